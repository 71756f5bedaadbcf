//! What the raw result of an iteration means for its request: done, continue where it stopped, try again, or fail. Here all
//! backends become alike.

use crate::error::{Errno, Error};
use crate::policy::{Caching, Durability};
use crate::request::Op;
use crate::slot::Slot;

/// What becomes of a request after an iteration.
pub(crate) enum Next {
    Again,
    End(Result<u32, Error>),
}

/// What a raw result means for its request.
pub(crate) fn judge(slot: &mut Slot, raw: i32) -> Next {
    if raw >= 0 && std::mem::take(&mut slot.awaits_readiness) {
        return Next::Again;
    }
    if raw >= 0 {
        return match slot.op {
            Op::Read { .. } | Op::Write { .. } => judge_transfer(slot, raw as usize),
            // Another sync failed while this one ran; which of the two covered what is unknown.
            Op::Sync | Op::Fence => Next::End(poison_of(slot).map_or(Ok(0), Err)),
            _ => Next::End(Ok(raw as u32)),
        };
    }
    match Errno::from_raw(-raw) {
        Errno::EINTR if slot.policy.patience.may_wait() => Next::Again,
        Errno::EAGAIN if slot.policy.patience.may_wait() => {
            // A non-blocking descriptor: trying again at once would be a storm of retries (seed 001 §7.2).
            slot.awaits_readiness = slot.is_stream_transfer();
            Next::Again
        }
        Errno::ECANCELED => Next::End(Err(Error::Cancelled)),
        // A timer that fires says so by this.
        Errno::ETIME if matches!(slot.op, Op::Timer { .. }) => Next::End(Ok(0)),
        errno => Next::End(Err(Error::System(errno))),
    }
}

/// Poisons the file of a request that has taken the kernel's report of lost data. The kernel reports a failed write-back
/// once per description and may mark the pages clean: no later sync proves anything (PostgreSQL's fsyncgate;
/// research/reliability.md finding 2).
pub(crate) fn poison_if_lost(slot: &Slot, errno: Errno) {
    let takes_the_report = match slot.op {
        Op::Sync | Op::Fence | Op::SyncRange { .. } => true,
        // A sync is part of it, and what that reports may be the failure of an earlier write.
        Op::Write { .. } => slot.policy.durability != Durability::None && slot.policy.caching != Caching::Direct,
        _ => false,
    };
    let untried = matches!(
        errno,
        Errno::EINTR
            | Errno::EAGAIN
            | Errno::ECANCELED
            | Errno::EINVAL
            | Errno::EBADF
            | Errno::ESPIPE
            | Errno::EFAULT
            | Errno::EFBIG
            | Errno::EPERM
            | Errno::EOPNOTSUPP
            | Errno::ENOSYS
    );
    if takes_the_report
        && !untried
        && let Some(file) = &slot.file
    {
        file.poison(errno);
    }
}

fn poison_of(slot: &Slot) -> Option<Error> {
    let errno = slot.file.as_ref()?.poisoned()?;
    Some(Error::Poisoned(errno))
}

/// File requests are exact: a short transfer continues where it stopped, from an aligned byte when it is direct. A read that
/// comes no further has met the end of the file; a write that comes no further, and without a reason from the system, has
/// failed, for nobody may take a part of it for the whole.
fn judge_transfer(slot: &mut Slot, moved: usize) -> Next {
    let reached = slot.resumed_at + moved;
    let progress = reached > slot.done;
    slot.done = slot.done.max(reached);
    let stream_read = matches!(slot.op, Op::Read { offset: None });
    if slot.done >= slot.memory.len() || stream_read {
        return Next::End(Ok(slot.done as u32));
    }
    if !progress {
        return Next::End(match slot.op {
            Op::Write { .. } => Err(Error::System(Errno::EIO)),
            _ => Ok(slot.done as u32),
        });
    }
    let granularity = slot.granularity();
    slot.resumed_at = slot.done / granularity * granularity;
    Next::Again
}
