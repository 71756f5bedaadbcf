//! What of a request can be known to fail before anything is tried.

use baio_process::kernel::{self, Feature};

use crate::device::Kind;
use crate::error::{Argument, Errno, Error};
use crate::file::File;
use crate::memory::Memory;
use crate::policy::Caching;
use crate::request::{Op, Request};
use crate::slot::Slot;

impl File {
    /// What a change of the space of a range ([`Op::Allocate`]) is to be refused for before it is tried, by whoever promises for it
    /// what holds for a write of this mode: `EFBIG` beyond 2^63 - 1; `Misaligned` of a direct one, and of any on a block device.
    /// The engine leaves that to the kernel: a file takes any bytes, a block device sectors.
    ///
    /// # Errors
    /// These two.
    pub fn check_space(&self, caching: Caching, offset: u64, len: u64) -> Result<(), Error> {
        check_range(offset, len)?;
        match caching == Caching::Direct || self.kind() == Kind::Block {
            true => check_extent(self, offset, len),
            false => Ok(()),
        }
    }
}

impl Slot {
    /// Refuses what can be known to fail before anything is tried. The request's memory has `len` bytes.
    pub(crate) fn validate(request: &mut Request, len: usize) -> Result<(), Error> {
        let (offset, reads) = match request.op {
            Op::Read { offset } => (offset, true),
            Op::Write { offset } => (offset, false),
            Op::Timer { .. } | Op::Event => return Ok(()),
            Op::Transfer { offset, len } => {
                Slot::validate_transfer(request, offset, len)?;
                (Some(offset), true)
            }
            Op::Receive { flags } => {
                Slot::validate_flags(request, flags)?;
                (None, true)
            }
            Op::Send { flags } => {
                Slot::validate_flags(request, flags)?;
                (None, false)
            }
            Op::SyncRange { offset, len } => {
                let file = request.file.as_ref().map(|_| ()).ok_or(NO_FILE);
                return file.and_then(|()| check_range(offset, len));
            }
            Op::Truncate { len } => {
                let file = request.file.as_ref().map(|_| ()).ok_or(NO_FILE);
                return file.and_then(|()| check_range(0, len));
            }
            _ => return request.file.as_ref().map(|_| ()).ok_or(NO_FILE),
        };
        let file = request.file.as_ref().ok_or(NO_FILE)?;
        let caching = request.policy.caching;
        if !file.gives(caching) {
            return Err(Error::NoDescription { mode: caching.name() });
        }
        if caching == Caching::Uncached && kernel::is_taken_away(Feature::Uncached) {
            return Err(Error::System(Errno::EOPNOTSUPP));
        }
        if reads && !request.memory.is_writable() {
            return Err(Error::ReadOnlyMemory);
        }
        let len = len as u64;
        if u32::try_from(len).is_err() {
            // The result of a request has 32 bits.
            return Err(Error::System(Errno::EINVAL));
        }
        check_range(offset.unwrap_or(0), len)?;
        check_place(file, request.op)?;
        if caching == Caching::Direct {
            check_alignment(file, offset.unwrap_or(0), len, &request.memory)?;
        }
        Ok(())
    }

    /// A transfer goes through one flat window to a stream.
    fn validate_transfer(request: &Request, offset: u64, len: u64) -> Result<(), Error> {
        let target = request.target.as_ref().ok_or(NO_FILE)?;
        let flat = request.memory.parts().is_empty() && !request.memory.is_empty();
        if target.kind() != Kind::Stream || !flat || u32::try_from(len).is_err() {
            return Err(Error::System(Errno::EINVAL));
        }
        check_range(offset, len)
    }

    /// A list is sent and received without flags.
    fn validate_flags(request: &Request, flags: u32) -> Result<(), Error> {
        if flags != 0 && !request.memory.parts().is_empty() {
            return Err(Error::System(Errno::EINVAL));
        }
        Ok(())
    }
}

const NO_FILE: Error = Error::System(Errno::EBADF);

/// The kernel's offsets are signed.
fn check_range(offset: u64, len: u64) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(Error::System(Errno::EFBIG)),
    }
}

/// A file is read and written at an offset, a pipe or socket without one. Left to the kernel, io_uring would forget the
/// offset in a pipe, and each backend would take another one for a file that has none.
fn check_place(file: &File, op: Op) -> Result<(), Error> {
    match op {
        Op::Read { offset } | Op::Write { offset } => match offset {
            Some(_) if !file.has_offsets() => Err(Error::System(Errno::ESPIPE)),
            None if file.kind() != Kind::Stream => Err(Error::System(Errno::EINVAL)),
            _ => Ok(()),
        },
        Op::Transfer { .. } if !file.has_offsets() => Err(Error::System(Errno::ESPIPE)),
        _ => Ok(()),
    }
}

fn check_alignment(file: &File, offset: u64, len: u64, memory: &Memory) -> Result<(), Error> {
    let limits = file.direct_limits();
    // As a rule memory is flat and all is right: one look at the bits of all three.
    if let Some(place) = memory.place() {
        if let (Some(blocks), Some(bytes)) = (mask_of(limits.offset), mask_of(limits.memory)) {
            if (offset | len) & blocks | place & bytes == 0 {
                return Ok(());
            }
        }
    }
    check_extent(file, offset, len)?;
    for part in memory.parts() {
        // statx(2): the alignment of offsets is that of segment lengths too.
        check(Argument::Length, part.len() as u64, limits.offset)?;
    }
    match memory.first_place_where(|place| !is_multiple(place, limits.memory)) {
        Some(value) => check(Argument::Memory, value, limits.memory),
        None => Ok(()),
    }
}

fn check_extent(file: &File, offset: u64, len: u64) -> Result<(), Error> {
    let need = file.direct_limits().offset;
    check(Argument::Offset, offset, need)?;
    check(Argument::Length, len, need)
}

fn check(argument: Argument, value: u64, need: u32) -> Result<(), Error> {
    if is_multiple(value, need) {
        Ok(())
    } else {
        Err(Error::Misaligned { argument, value, need })
    }
}

/// Without a division, which would be the dearest step of a request: alignments are powers of two, as a rule.
fn is_multiple(value: u64, need: u32) -> bool {
    match mask_of(need) {
        Some(mask) => value & mask == 0,
        None => value % u64::from(need) == 0,
    }
}

/// The bits that no multiple of this has, if that can be said.
fn mask_of(need: u32) -> Option<u64> {
    let need = u64::from(need);
    let mask = need.wrapping_sub(1);
    (need & mask == 0).then_some(mask)
}

#[cfg(test)]
mod tests {
    use super::is_multiple;

    #[test]
    fn multiples_of_any_alignment_are_told() {
        for need in [1, 2, 3, 512, 520, 4096, 1 << 31, u32::MAX] {
            for value in [0, 1, 2, 511, 512, 520, 1040, 4096, 1 << 40, u64::MAX] {
                assert_eq!(is_multiple(value, need), value % u64::from(need) == 0, "{value} {need}");
            }
        }
        assert!(is_multiple(0, 0) && !is_multiple(1, 0));
    }
}
