//! Submitting and cancelling requests.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use baio::{Durability, Errno, Memory, SegmentOp, SegmentRequest};

use crate::abi::{
    BAIO_DURABLE_DATA, BAIO_DURABLE_FULL, BAIO_DURABLE_NONE, BAIO_OP_ALLOCATE, BAIO_OP_DISCARD, BAIO_OP_FENCE,
    BAIO_OP_READ, BAIO_OP_SYNC, BAIO_OP_TRUNCATE, BAIO_OP_WRITE, BAIO_OP_ZERO, baio_link, baio_outcome, baio_request,
    baio_ticket,
};
use crate::border::{Out, guard, invalid, null, unused};
use crate::failure::{Failure, Result};
use crate::files::mode_of;
use crate::handles::{Handle, Home, look, on_either, on_link};
use crate::reaping;
use crate::statuses::word_of;
use crate::things::{Kind, LinkState, Thing, UnderWay};

fn durability_of(durable: u32) -> Result<Durability> {
    Ok(match durable {
        BAIO_DURABLE_NONE => Durability::None,
        BAIO_DURABLE_DATA => Durability::Data,
        BAIO_DURABLE_FULL => Durability::Full,
        other => {
            let text = format!("there is no durability {other}");
            return Err(invalid(text, "use one of BAIO_DURABLE_..."));
        }
    })
}

fn op_of(request: &baio_request) -> Result<SegmentOp> {
    let (offset, len) = (request.offset, request.length);
    Ok(match request.op {
        BAIO_OP_READ => SegmentOp::Read { offset },
        BAIO_OP_WRITE => SegmentOp::Write { offset },
        BAIO_OP_SYNC => SegmentOp::Sync,
        BAIO_OP_FENCE => SegmentOp::Fence,
        BAIO_OP_DISCARD => SegmentOp::Discard { offset, len },
        BAIO_OP_ZERO => SegmentOp::Zero { offset, len },
        BAIO_OP_TRUNCATE => SegmentOp::Truncate { len },
        BAIO_OP_ALLOCATE => SegmentOp::Allocate { offset, len },
        other => {
            return Err(invalid(
                format!("there is no operation {other}"),
                "use one of BAIO_OP_...",
            ));
        }
    })
}

/// The bytes of a request: all of its buffer, or the first of it.
fn shown(buffer: usize, length: u64) -> Result<usize> {
    match usize::try_from(length) {
        Ok(0) => Ok(buffer),
        Ok(length) if length <= buffer => Ok(length),
        _ => Err(invalid(
            format!("`length` is {length}, and the buffer has {buffer} bytes"),
            "take a larger buffer, or ask for less",
        )),
    }
}

/// The file or segment of a request. It must be of the link that the request goes to.
fn file_for<L: Home>(state: &Arc<LinkState<L>>, given: &baio_request) -> Result<Arc<Thing<L>>> {
    let thing = on_link::<L, _>(given.file, Kind::File)?;
    if Arc::ptr_eq(&thing.as_file()?.on, state) {
        return Ok(thing);
    }
    let text = "use a file or segment: it is of another link";
    Err(Failure::new(
        Errno::EXDEV,
        text,
        "use what was opened on the link of the call",
    ))
}

/// The buffer of a request that moves bytes. The others have none.
fn buffer_for<L: Home>(given: &baio_request, op: &SegmentOp) -> Result<Option<Arc<Thing<L>>>> {
    let moves_bytes = matches!(op, SegmentOp::Read { .. } | SegmentOp::Write { .. });
    match (given.buffer.is_null(), moves_bytes) {
        (false, true) => on_link::<L, _>(given.buffer, Kind::Buffer).map(Some),
        (true, false) => Ok(None),
        (true, true) => Err(null("request.buffer")),
        (false, false) => Err(invalid(
            "an operation that moves no bytes was given a buffer",
            "set `buffer` to NULL",
        )),
    }
}

fn refused<L: Home>(link: &L) -> Failure {
    match link.refusal() {
        Some(fault) => baio::Error::new("submit to", link.name(), fault).into(),
        None => Failure::new(
            Errno::EAGAIN,
            "submit a request: every slot of the link is taken",
            "take outcomes first (baio_reap), or open the link with more slots",
        ),
    }
}

/// Queues one request, and gives the ticket that C has. One that `is_awaited` is taken by nobody but `wait_for`.
fn submit_one<L: Home>(state: &Arc<LinkState<L>>, given: &baio_request, is_awaited: bool) -> Result<baio_ticket> {
    unused(&given.reserved, "request")?;
    unused(&[u64::from(given.flags)], "request")?;
    let op = op_of(given)?;
    let durability = durability_of(given.durable)?;
    let thing = file_for(state, given)?;
    let file = thing.as_file()?;
    let status = match given.status.is_null() {
        true => None,
        false => Some(word_of(given.status)?),
    };
    let buffer = buffer_for::<L>(given, &op)?;
    let mode = mode_of(given.mode)?.unwrap_or(match op {
        // As the library's own calls for them.
        SegmentOp::Sync | SegmentOp::Fence => baio::Mode::Direct,
        _ => file.opened.default_mode(),
    });
    let memory = match &buffer {
        Some(thing) => {
            let shown = shown(thing.as_buffer()?.len, given.length)?;
            let mut memory = thing.as_buffer()?.take()?;
            memory.set_len(shown);
            Memory::Own(memory)
        }
        None => Memory::None,
    };
    // Held until the ticket is known: whoever reaps finds all of it, or nothing.
    let mut pending = state.pending();
    let back = |memory: Memory| {
        if let Some(Thing::Buffer(buffer)) = buffer.as_deref() {
            buffer.give_back(memory.into_buffer());
        }
    };
    let under_way = UnderWay {
        tag: given.tag,
        is_awaited,
        put_by: None,
        reads: matches!(op, SegmentOp::Read { .. }),
        ticket: None,
        buffer: buffer.clone(),
        _file: file.opened.clone(),
    };
    let Some((place, generation)) = pending.table.insert(under_way) else {
        back(memory);
        return Err(Failure::new(
            Errno::EAGAIN,
            "submit a request: too many are under way",
            "take outcomes first",
        ));
    };
    let id = reaping::id_of(place, generation);
    let request = SegmentRequest {
        mode,
        durability,
        deadline: (given.timeout_ns != 0).then(|| state.link.deadline(Duration::from_nanos(given.timeout_ns))),
        status,
        tag: id,
        ..SegmentRequest::new(file.opened.handle(), op, memory)
    };
    match state.link.start(request) {
        Ok(ticket) => {
            pending.count += 1;
            if let Some(under_way) = pending.table.get_mut(place, generation) {
                under_way.ticket = Some(ticket);
            }
            Ok(id)
        }
        Err(request) => {
            let removed = pending.table.remove(place, generation);
            drop(pending);
            back(request.memory);
            drop(removed); // With nothing locked.
            Err(refused(&state.link))
        }
    }
}

fn submit<L: Home>(handle: Handle, requests: &[baio_request], mut took: impl FnMut(usize, u64)) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    let mut count = 0;
    for request in requests {
        match submit_one(state, request, false) {
            Ok(ticket) => took(count, ticket),
            Err(failure) if count == 0 => return Err(failure),
            Err(failure) => {
                crate::failure::keep(&failure);
                break;
            }
        }
        count += 1;
    }
    match reaping::settle(state) {
        Err(failure) if count == 0 => return Err(failure),
        // They were taken all the same.
        Err(failure) => _ = crate::failure::keep(&failure),
        Ok(()) => {}
    }
    Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
}

/// Queues `count` requests, in this order. They are submitted together by the next baio_reap() or baio_wait(), or when many are queued; at
/// once if the link has an event descriptor. `tickets` may be NULL; else it has room for `count`.
///
/// Owner: the library has the buffer of each until its outcome is taken. `requests` is the caller's again when the call returns.
/// Threads: the link's.
/// Returns: how many were taken, the first ones; baio_error_message() says why not the next. A negative error number when the first was not:
/// -EAGAIN when every slot is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_submit(
    link: *mut baio_link,
    requests: *const baio_request,
    count: usize,
    tickets: *mut baio_ticket,
) -> c_int {
    guard(|| {
        if requests.is_null() && count != 0 {
            return Err(null("requests"));
        }
        if !requests.is_aligned() || count > c_int::MAX as usize {
            return Err(invalid(
                "`requests` is not aligned, or `count` too large",
                "pass an array of baio_request",
            ));
        }
        let requests = match count {
            0 => &[],
            // SAFETY: the caller's promise; it is not null, and aligned.
            _ => unsafe { std::slice::from_raw_parts(requests, count) },
        };
        let took = |index: usize, ticket| {
            if !tickets.is_null() {
                // SAFETY: the caller's promise: there is room for `count`.
                unsafe { tickets.add(index).write_unaligned(ticket) }
            }
        };
        on_either!(link, Kind::Link, submit, requests, took)
    })
}

fn cancel<L: Home>(handle: Handle, ticket: baio_ticket) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    let ticket = reaping::ticket_of(state, ticket)?;
    state.link.cancel(ticket);
    // It is asked for all the same.
    if let Err(failure) = reaping::settle(state) {
        crate::failure::keep(&failure);
    }
    Ok(0)
}

/// Asks that a request end early, if that is possible. It still has an outcome: take it.
///
/// Threads: the link's.
/// Returns: 0; -ESTALE when its outcome was taken already; or another negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn baio_cancel(link: *mut baio_link, ticket: baio_ticket) -> c_int {
    guard(|| on_either!(link, Kind::Link, cancel, ticket))
}

fn run<L: Home>(handle: Handle, request: &baio_request) -> Result<baio_outcome> {
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    let ticket = submit_one(state, request, true)?;
    reaping::wait_for(state, ticket)
}

/// Submits one request and waits for its end. `outcome` may be NULL.
///
/// Owner: the request's buffer is the caller's again.
/// Threads: the link's.
/// Returns: the result of the request: bytes, or a negative error number, of it or of the call; baio_error_message() has the text of both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_run(
    link: *mut baio_link,
    request: *const baio_request,
    outcome: *mut baio_outcome,
) -> i64 {
    guard(|| {
        if request.is_null() {
            return Err(null("request"));
        }
        // SAFETY: the caller's promise.
        let request = unsafe { request.read_unaligned() };
        let ended = on_either!(link, Kind::Link, run, &request)?;
        if !outcome.is_null() {
            // SAFETY: as above.
            unsafe { Out::new(outcome, "outcome")? }.put(ended);
        }
        Ok(ended.result)
    })
}
