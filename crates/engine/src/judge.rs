//! What the raw result of an iteration means for its request: done, continue where it stopped, try again, or fail. Here all
//! backends become alike.

use std::time::Duration;

use baio_process::kernel::{self, Feature};

use crate::device::Kind;
use crate::error::{Errno, Error};
use crate::request::Op;
use crate::slot::{Filled, Slot};
use crate::sys;

/// What becomes of a request after an iteration.
pub(crate) enum Next {
    Again,
    AgainAfter(Duration),
    /// What it was asked for is done; a sync makes it durable.
    Sync,
    End(Result<u32, Error>),
}

/// How long a request rests that the system has refused so often in a row, with `EAGAIN`, and that nothing tells when to
/// come back. The first time not at all. A stream tells, so it is believed for a while.
fn rest(slot: &Slot) -> Option<Duration> {
    const FIRST: Duration = Duration::from_micros(50);
    const LONGEST: Duration = Duration::from_millis(10);
    let believed = if slot.awaits_readiness { 16 } else { 1 };
    let rests = u32::from(slot.refusals).checked_sub(believed + 1)?;
    Some(FIRST.saturating_mul(1 << rests.min(16)).min(LONGEST))
}

/// Has the kernel ended the iteration because the thread that had submitted it has ended? io_uring says `ECANCELED` to what waits for
/// a descriptor then, and `EFAULT` to what waits for the page cache (`io_req_task_submit`, io_uring/io_uring.c). Neither has moved a
/// byte, and nobody has asked for either. What a device says by itself is believed when it comes again and again. Such an iteration begins again as it was, whatever the request's
/// patience.
pub(crate) fn is_orphaned(slot: &mut Slot, raw: i32) -> bool {
    const BELIEVED: u8 = 8;
    let may_be = match Errno::from_raw(-raw) {
        Errno::ECANCELED => !slot.cancelled,
        Errno::EFAULT => true,
        _ => false,
    };
    slot.orphaned = slot.orphaned.saturating_add(u8::from(may_be));
    may_be && slot.orphaned < BELIEVED
}

/// What a raw result means for its request.
pub(crate) fn judge(slot: &mut Slot, raw: i32) -> Next {
    if matches!(slot.op, Op::Read { .. }) && raw >= 0 && slot.is_at_work() {
        // Most of all that ends: there is nothing to be made durable, and no report to be taken.
        (slot.refusals, slot.orphaned) = (0, 0);
        if raw == 0 && is_behind_the_end(slot) == Some(false) {
            return Next::End(Err(Error::System(Errno::EAGAIN)));
        }
        return judge_bytes(slot, raw as usize);
    }
    if slot.rests_until.take().is_some() && (raw >= 0 || raw == -libc::ETIME) {
        return Next::Again;
    }
    match judge_iteration(slot, raw) {
        Next::End(Ok(_)) if slot.takes_the_report() => {
            // The kernel tells lost data once: whoever was told first has what might have been told here.
            let failed = slot.failed_meanwhile().map(Error::Poisoned);
            Next::End(failed.map_or(Ok(slot.done as u32), Err))
        }
        Next::End(Ok(_)) if !slot.is_sync() && slot.needs_a_sync() => Next::Sync,
        Next::Again if slot.looks.is_some() && !slot.is_ready() => Next::End(Err(Error::System(Errno::EAGAIN))),
        next => next,
    }
}

/// Does a read that may not wait begin behind the end of its file or device? Its result cannot tell: Linux 5.9 and 5.10 say 0 where the page
/// cache has nothing, and `EAGAIN` at the end. A transfer reads so, too.
fn is_behind_the_end(slot: &Slot) -> Option<bool> {
    let place = match slot.op {
        Op::Read { offset: Some(offset) } => offset + slot.resumed_at as u64,
        Op::Transfer { offset, .. } if slot.window.is_empty() => offset + slot.window_start(),
        _ => return None,
    };
    if slot.may_wait() || sys::knows_the_end() {
        return None;
    }
    let has_an_end = |kind| matches!(kind, Kind::Regular | Kind::Block);
    let file = slot.file.as_ref().filter(|file| has_an_end(file.kind()));
    Some(place >= file?.size().ok()?)
}

/// What the system said; but of a device that has been taken away, that it is gone: what was under way has failed, and writes are told
/// that they are behind its end.
fn gone_or(slot: &Slot, errno: Errno) -> Errno {
    let has_no_bytes = || {
        let device = slot.file.as_ref().filter(|file| file.kind() == Kind::Block);
        device.is_some_and(|device| device.size() == Ok(0))
    };
    match errno {
        Errno::EIO | Errno::ENOSPC if has_no_bytes() => Errno::ENXIO,
        errno => errno,
    }
}

fn judge_iteration(slot: &mut Slot, raw: i32) -> Next {
    if raw >= 0 && std::mem::take(&mut slot.awaits_readiness) {
        return Next::Again;
    }
    if raw >= 0 {
        (slot.refusals, slot.orphaned) = (0, 0);
        return match slot.op {
            _ if slot.is_sync() => Next::End(Ok(slot.done as u32)),
            op if op.moves_bytes() => judge_bytes(slot, raw as usize),
            Op::Transfer { .. } if raw == 0 && is_behind_the_end(slot) == Some(false) => {
                Next::End(Err(Error::System(Errno::EAGAIN)))
            }
            Op::Transfer { len, .. } => judge_transfer(slot, len, raw as usize),
            _ => Next::End(Ok(raw as u32)),
        };
    }
    match Errno::from_raw(-raw) {
        Errno::EINTR if slot.may_wait() => Next::Again,
        Errno::EAGAIN if slot.may_wait() => {
            // A non-blocking descriptor: trying again at once would be a storm of retries (seed 001 §7.2).
            slot.awaits_readiness = slot.waits_for_a_stream();
            slot.refusals = slot.refusals.saturating_add(1);
            rest(slot).map_or(Next::Again, Next::AgainAfter)
        }
        Errno::EAGAIN if is_behind_the_end(slot) == Some(true) => Next::End(Ok(slot.done as u32)),
        Errno::EOPNOTSUPP if slot.looks.is_none() && !slot.policy.patience.may_wait() => {
            slot.looks = slot.refuses_nowait();
            if slot.looks.is_none() {
                return Next::End(Err(Error::System(Errno::EOPNOTSUPP)));
            }
            kernel::has(Feature::NowaitStreams, false);
            Next::Again
        }
        Errno::ECANCELED => Next::End(Err(Error::Cancelled)),
        // A timer that fires says so by this.
        Errno::ETIME if matches!(slot.op, Op::Timer { .. }) => Next::End(Ok(0)),
        errno => Next::End(Err(Error::System(gone_or(slot, errno)))),
    }
}

/// Is this error one of the device's, or only a refusal that says nothing of what was written before?
pub(crate) fn tells_of_lost_data(errno: Errno) -> bool {
    !matches!(
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
    )
}

/// Poisons the file of a request that has taken the kernel's report of lost data. The kernel reports a failed write-back
/// once per description and may mark the pages clean: no later sync proves anything (PostgreSQL's fsyncgate;
/// research/reliability.md finding 2).
pub(crate) fn poison_if_lost(slot: &Slot, errno: Errno) {
    if slot.rests_until.is_some() {
        // The end of a pause.
        return;
    }
    if slot.takes_the_report() && tells_of_lost_data(errno) {
        if let Some(file) = &slot.file {
            file.poison(gone_or(slot, errno));
        }
    }
}

/// File requests are exact: a short transfer continues where it stopped, from an aligned byte when it is direct. A read that
/// comes no further has met the end of the file; a write that comes no further, and without a reason from the system, has
/// failed, for nobody may take a part of it for the whole. Whoever reports more than it was asked for has moved nothing that can be
/// relied on.
fn judge_bytes(slot: &mut Slot, moved: usize) -> Next {
    // A datagram's true length is asked for by this flag (recv(2)).
    let whole = matches!(slot.op, Op::Receive { flags } if flags & libc::MSG_TRUNC as u32 != 0);
    if moved > slot.len - slot.resumed_at && !whole {
        return Next::End(Err(Error::System(Errno::EIO)));
    }
    let reached = slot.resumed_at + moved;
    let progress = reached > slot.done;
    slot.done = slot.done.max(reached);
    let stream_read = matches!(slot.op, Op::Read { offset: None } | Op::Receive { .. });
    if slot.done >= slot.len || stream_read {
        return Next::End(Ok(slot.done as u32));
    }
    if !progress {
        return Next::End(match slot.op {
            Op::Write { .. } | Op::Send { .. } => Err(Error::System(Errno::EIO)),
            _ => Ok(slot.done as u32),
        });
    }
    let granularity = slot.granularity();
    slot.resumed_at = slot.done / granularity * granularity;
    Next::Again
}

/// A window has come out of the file, or some of it has gone to the target.
fn judge_transfer(slot: &mut Slot, len: u64, moved: usize) -> Next {
    let asked = if slot.window.is_empty() {
        slot.memory.len()
    } else {
        (slot.window.bytes - slot.window.sent) as usize
    };
    if moved > asked {
        return Next::End(Err(Error::System(Errno::EIO)));
    }
    if slot.window.is_empty() {
        let start = slot.window_start();
        let end = len.min(start + moved as u64);
        slot.window = Filled {
            bytes: (end - start) as u32,
            // Direct I/O may have stepped back to an aligned byte.
            sent: (slot.done as u64 - start) as u32,
        };
        let at_end_of_file = slot.window.is_empty();
        return if at_end_of_file {
            Next::End(Ok(slot.done as u32))
        } else {
            Next::Again
        };
    }
    if moved == 0 {
        return Next::End(Err(Error::System(Errno::EIO)));
    }
    slot.window.sent += moved as u32;
    slot.done += moved;
    if slot.done as u64 >= len {
        Next::End(Ok(slot.done as u32))
    } else {
        Next::Again
    }
}
