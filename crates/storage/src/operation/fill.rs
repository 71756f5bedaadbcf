//! Zeroes over a range of blocks, durably: before a create or a grow exposes them, so that nobody reads what another left there.
//!
//! A [`Fill`] keeps some writes under way beside whatever else its operation does, then flushes. Or it asks the device to
//! zero the range, which takes a moment instead of the time of writing it; where the device cannot, it writes. It is one
//! part ([`Part::Zeroes`]) of its operation's requests, so a look-up can be under way beside it.

use baio_engine::{Completion, Durability, Errno, Frozen, Memory, Op, Request, Space};
pub use baio_words::Zeroing;

use crate::error::Fault;
use crate::operation::waits::{completed, with};
use crate::operation::{CALLED_OFF, Context, Part, Progress};

/// Writes of zeroes at a time, and bytes of each. Where a backend has to copy what it writes (blocking calls, Linux AIO on tmpfs), one turn
/// copies all of them: it must not hold its thread for long.
const DEPTH: u32 = 8;
const CHUNK_BYTES: u64 = 256 << 10;

/// What is left in the arena for the look-up beside: a bucket's table pair and its mirror.
const SPARE_BYTES: usize = 16 << 10;

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asking(Space),
    Writing,
    Flushing,
    Durable,
    /// The host is full: what was taken of it is given back.
    GivingBack,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Requests are under way.
    UnderWay,
    /// Nothing is under way: all is zero, durably, unless it was stopped or waits for room.
    Ended,
}

/// A range being zeroed.
pub(crate) struct Fill {
    /// First byte on the device.
    at: u64,
    len: u64,
    submitted: u64,
    /// Zero by now.
    done: u64,
    under_way: u32,
    stage: Stage,
    stopped: bool,
    /// Whoever calls the operation off: what is recorded already goes on behind it.
    to_the_end: bool,
    /// Bytes that the operation has done before, of which its progress tells.
    before: u64,
    failed: Option<Fault>,
    zeros: Option<Frozen>,
}

impl Fill {
    /// Is going to zero so many blocks from a block of the volume.
    pub(crate) fn new(cx: &Context<'_>, start_block: u64, blocks: u64, zeroing: Zeroing) -> Result<Fill, Fault> {
        let (at, len) = cx
            .volume
            .layout()
            .run_at(start_block, blocks)
            .ok_or_else(|| Fault::Corrupt("a run of blocks outside of the volume".into()))?;
        let stage = match zeroing {
            _ if len == 0 => Stage::Durable,
            Zeroing::Written => Stage::Writing,
            Zeroing::Lazy if crate::seeded_bug("lazily-means-never") => Stage::Flushing,
            Zeroing::Lazy => Stage::Asking(Space::Zero),
        };
        Ok(Fill {
            at,
            len,
            submitted: 0,
            done: 0,
            under_way: 0,
            stage,
            stopped: false,
            to_the_end: false,
            before: 0,
            failed: None,
            zeros: None,
        })
    }

    /// The same behind so many bytes, which are recorded already: it is called off by nobody.
    pub(crate) fn going_to_the_end(self, before: u64) -> Fill {
        Fill {
            to_the_end: true,
            before,
            ..self
        }
    }

    /// Does it all.
    ///
    /// # Errors
    /// What went wrong, once nothing is under way any more.
    pub(crate) async fn run(mut self) -> Result<(), Fault> {
        let mut filled = with(|cx| self.go_on(cx, false))?;
        while filled == Filled::UnderWay {
            let completion = completed().await?;
            filled = with(|cx| self.completed(cx, completion, false))?;
        }
        Ok(())
    }

    /// Begins nothing more; what is under way ends.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Takes in the end of one of its requests.
    ///
    /// # Errors
    /// What went wrong, once nothing is under way any more.
    pub(crate) fn completed(
        &mut self,
        cx: &mut Context<'_>,
        completion: Completion,
        beside: bool,
    ) -> Result<Filled, Fault> {
        self.under_way = self.under_way.saturating_sub(1);
        drop(completion.memory); // What comes next may need it.
        match (self.stage, completion.result) {
            (Stage::Asking(space), Err(error)) if is_refused(&error) => {
                self.submitted = 0;
                self.stage = match space {
                    Space::Zero => Stage::Asking(Space::Discard),
                    _ => Stage::Writing,
                };
            }
            (Stage::Flushing, Ok(_)) => self.stage = Stage::Durable,
            (Stage::Asking(_), Ok(_)) => self.done = self.len,
            (Stage::Writing, Ok(written)) => self.done += u64::from(written),
            // Whether the file can or not: the zeroes have failed for another reason.
            (Stage::GivingBack, _) | (_, Ok(_)) => {}
            (_, Err(error)) => self.failed = self.failed.take().or(Some(Fault::Io(error))),
        }
        self.go_on(cx, beside)
    }

    /// Begins what there is room for. What there is none for waits, if requests of another part are under way `beside`; it
    /// is then to be called again when these have ended.
    ///
    /// # Errors
    /// What went wrong, once nothing is under way any more.
    pub(crate) fn go_on(&mut self, cx: &mut Context<'_>, beside: bool) -> Result<Filled, Fault> {
        if cx.is_called_off && !self.to_the_end && self.stage != Stage::Durable {
            self.failed = self.failed.take().or(Some(CALLED_OFF));
        }
        while self.wants_more() {
            match self.begin_one(cx) {
                Ok(len) => {
                    self.submitted += len;
                    self.under_way += 1;
                }
                // One of those under way gives back what is missing.
                Err(Fault::Io(baio_engine::Error::Full) | Fault::NoMemory { .. }) if beside || self.under_way > 0 => {
                    break;
                }
                Err(fault) => self.failed = Some(fault),
            }
        }
        cx.shown.progress = Some(Progress::Bytes {
            done: self.before.saturating_add(self.done),
            of: self.before.saturating_add(self.len),
        });
        if self.under_way > 0 {
            return Ok(Filled::UnderWay);
        }
        self.zeros = None;
        if self.failed.as_ref().is_some_and(is_full) && self.stage != Stage::GivingBack && self.give_back(cx) {
            return Ok(Filled::UnderWay);
        }
        self.failed.take().map_or(Ok(Filled::Ended), Err)
    }

    /// A run that could not be filled lies in a sparse file on a full host: what it has taken there would keep the host full
    /// for nothing. Nobody has seen the blocks, and whoever gets them next zeroes them.
    fn give_back(&mut self, cx: &mut Context<'_>) -> bool {
        let op = Op::Allocate {
            offset: self.at,
            len: self.len,
            space: Space::Discard,
        };
        let policy = cx.volume.device.policy(Durability::None);
        let request = Request::bare(op, Some(&cx.volume.device.file), policy);
        let begun = cx.submit_as(Part::Zeroes, request, true).is_ok();
        if begun {
            self.stage = Stage::GivingBack;
            self.under_way = 1;
        }
        begun
    }

    fn wants_more(&mut self) -> bool {
        if self.failed.is_some() || self.stopped {
            return false;
        }
        let filled = self.submitted >= self.len && self.under_way == 0;
        if filled && matches!(self.stage, Stage::Asking(_) | Stage::Writing) {
            self.stage = Stage::Flushing;
            self.zeros = None;
        }
        match self.stage {
            Stage::Asking(_) => self.submitted == 0,
            Stage::Writing => self.submitted < self.len && self.under_way < DEPTH,
            Stage::Flushing => self.under_way == 0,
            Stage::Durable | Stage::GivingBack => false,
        }
    }

    /// Begins the next request; says how many bytes it is about.
    fn begin_one(&mut self, cx: &mut Context<'_>) -> Result<u64, Fault> {
        let policy = cx.volume.device.policy(Durability::None);
        let file = &cx.volume.device.file;
        let (len, request) = match self.stage {
            Stage::Asking(space) => {
                let op = Op::Allocate {
                    offset: self.at,
                    len: self.len,
                    space,
                };
                (self.len, Request::bare(op, Some(file), policy))
            }
            Stage::Writing => {
                let zeros = self.zeros(cx, self.len - self.submitted)?;
                let at = self.at.saturating_add(self.submitted);
                let file = &cx.volume.device.file;
                (
                    zeros.len() as u64,
                    Request::write(file, at, Memory::Shared(zeros), policy),
                )
            }
            Stage::Flushing | Stage::Durable | Stage::GivingBack => {
                cx.sync_as(Part::Zeroes)?;
                return Ok(0);
            }
        };
        // The reserved slots are for records, which must not fail for want of one; but one request is always under way.
        cx.submit_as(Part::Zeroes, request, self.under_way == 0)?;
        Ok(len)
    }

    /// Zeroes to write from, at most so many bytes.
    fn zeros(&mut self, cx: &Context<'_>, left: u64) -> Result<Frozen, Fault> {
        if let Some(zeros) = self.zeros.as_ref().filter(|zeros| zeros.len() as u64 <= left) {
            return Ok(zeros.clone());
        }
        self.zeros = None;
        let zeros = some_zeros(cx, CHUNK_BYTES.min(left))?;
        self.zeros = Some(zeros.clone());
        Ok(zeros)
    }
}

/// The host has no room left, or its owner may have no more of it.
pub(super) fn is_full(fault: &Fault) -> bool {
    use baio_engine::Error;
    matches!(fault, Fault::Io(Error::System(Errno::ENOSPC | Errno::EDQUOT)))
}

/// The file system or the device has no such operation.
fn is_refused(error: &baio_engine::Error) -> bool {
    use baio_engine::Error;
    matches!(
        error,
        Error::System(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ENOSYS | Errno::ENODEV) | Error::Unsupported { .. }
    )
}

/// So many zeroes, or as many as there is memory for: whole blocks in either case.
fn some_zeros(cx: &Context<'_>, wanted: u64) -> Result<Frozen, Fault> {
    let block_size = u64::from(cx.volume.block_size());
    let _spare = cx.lane.engine().buffer(SPARE_BYTES);
    let mut len = wanted;
    loop {
        match cx.lane.engine().buffer(len as usize) {
            Some(mut buffer) => {
                buffer.fill(0);
                return Ok(buffer.freeze());
            }
            None if len <= block_size => return Err(Fault::NoMemory { asked: len }),
            None => len = (len / 2).next_multiple_of(block_size),
        }
    }
}
