//! What was asked of an end beyond plain reads and writes is tried before the output is cut: the cache of `mode=`, and that what
//! `verify=` reads again may be read. One block of each end is read for that, and thrown away.

use baio::{Errno, Error, Mode};
use baio_console::failure::Failure;

use super::Job;
use super::ends::{End, EndKind};
use super::frame::BLOCK;
use super::plain::Flow;
use super::progress::Halt;

impl Job<'_> {
    /// Finds out whether both ends can do what was asked of them.
    pub(super) fn try_ends(&mut self) -> Result<(), Halt> {
        let ends = self.ends;
        let (input, output) = (&ends.input, &ends.output);
        // A stream, or a standard output that appends: what was written stands nowhere, or nobody knows where.
        if self.operands.verifies && output.flow == Flow::InOrder {
            let refused = Failure::new("dd", "ESPIPE", "what was written there cannot be read back");
            return Err(refused
                .on(output.typed.clone())
                .needing("an output with positions: a file, a device or a segment")
                .cured_by("leave out verify=")
                .into());
        }
        if input.unreadable.is_none() {
            self.try_mode(input)?;
        }
        self.try_mode(output)?;
        if self.operands.verifies && !output.is_segment() {
            let (mode, align) = output.way_back();
            if let Err(error) = self.try_read(output, mode, align)?
                && error.errno() == Some(Errno::EBADF)
            {
                return Err(unreadable_again(output).into());
            }
        }
        Ok(())
    }

    /// Where the kernel's own cache is used in the usual way nothing can be refused; segments are what they are.
    fn try_mode(&mut self, end: &End) -> Result<(), Halt> {
        let is_plain = !matches!(end.kind(), EndKind::Segment | EndKind::Stream);
        if !is_plain || !matches!(end.mode, Mode::Direct | Mode::Uncached) {
            return Ok(());
        }
        match self.try_read(end, end.mode, end.align)? {
            Err(error) if matches!(error.errno(), Some(Errno::EINVAL | Errno::EOPNOTSUPP)) => {
                Err(end.has_not_that_mode(&error).into())
            }
            // A bad block is found by the copy, if that comes to it. What may only be written cannot be tried.
            _ => Ok(()),
        }
    }

    /// Reads a block where the copy begins.
    fn try_read(&mut self, end: &End, mode: Mode, align: u64) -> Result<Result<(), Error>, Halt> {
        let len = BLOCK.max(align);
        let begin = end.offset(0);
        let offset = begin - begin % align.max(1);
        Ok(self.read_one(end, mode, (offset, len))?.result.map(drop))
    }
}

impl End {
    /// The system has refused the cache that was asked for.
    fn has_not_that_mode(&self, error: &Error) -> Failure {
        let need = match self.mode {
            Mode::Uncached => "a file system that reads and writes uncached (RWF_DONTCACHE)",
            _ => "a device, or a file on a file system that supports O_DIRECT",
        };
        let refused = self.failed(error).needing(need);
        match self.asked {
            Some(asked) => refused.cured_by(format!("leave out {asked}")),
            // Somebody else opened it so.
            None => refused.cured_by("open it without O_DIRECT"),
        }
    }
}

fn unreadable_again(output: &End) -> Failure {
    Failure::new(
        "dd",
        "EBADF",
        "what is written there cannot be read back: it is open for writing only",
    )
    .on(output.typed.clone())
    .needing("an output that may be read")
    .cured_by("name it by of=, and give yourself the permission to read it; or leave out verify=")
}
