//! Taking outcomes, and the descriptor that tells of them.
//!
//! Outcomes are taken by turning the link. Once its descriptor was asked for, every call turns it before it returns, so that the descriptor says
//! what is true.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_int};
use std::os::fd::AsRawFd;
use std::time::Duration;

use baio::{Caching, Errno, Outcome, Ticket, Time, Wait};

use crate::abi::{BAIO_MODE_DIRECT, BAIO_MODE_KERNEL, BAIO_MODE_UNCACHED, baio_link, baio_outcome, baio_ticket};
use crate::border::{Out, guard, null};
use crate::failure::{Failure, Result, c_text, keep};
use crate::handles::{Handle, Home, look, on_either};
use crate::table::{PLACE_BITS, low};
use crate::things::{Kind, LinkState, Thing, UnderWay};

/// The number of a request: its place and generation in the link's table.
pub(crate) fn id_of(place: u64, generation: u64) -> baio_ticket {
    generation << PLACE_BITS | place
}

fn place_of(id: baio_ticket) -> (u64, u64) {
    (id & low(PLACE_BITS), id >> PLACE_BITS)
}

thread_local! {
    /// Texts of the outcomes that this thread took last.
    static MESSAGES: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
}

fn forget_messages() {
    let _ = MESSAGES.try_with(|kept| kept.borrow_mut().clear());
}

/// What C is told of an outcome; the buffer is the caller's again.
fn told<L: Home>(under_way: UnderWay<L>, id: u64, outcome: Outcome) -> baio_outcome {
    if let Some(Thing::Buffer(buffer)) = under_way.buffer.as_deref() {
        buffer.give_back(outcome.memory.into_buffer());
    }
    let (result, message) = match outcome.result {
        Ok(bytes) => (i64::from(bytes), std::ptr::null()),
        Err(error) => {
            let failure = Failure::from(error);
            let text = c_text(failure.text());
            // Its place is on the heap: it stays when the list grows.
            let message = text.as_ptr();
            let kept = MESSAGES.try_with(|kept| kept.borrow_mut().push(text));
            (i64::from(keep(&failure)), kept.map_or(std::ptr::null(), |()| message))
        }
    };
    baio_outcome {
        tag: under_way.tag,
        ticket: id,
        result,
        bytes_done: u64::from(outcome.bytes_done),
        message,
        took: match outcome.took {
            Caching::Direct => BAIO_MODE_DIRECT,
            Caching::Kernel => BAIO_MODE_KERNEL,
            Caching::Uncached => BAIO_MODE_UNCACHED,
        },
        iterations: u32::from(outcome.iterations),
        reserved: [0; 2],
    }
}

/// Takes the request of an outcome out of the table.
fn claim<L: Home>(state: &LinkState<L>, outcome: Outcome) -> Option<baio_outcome> {
    let id = outcome.tag;
    let (place, generation) = place_of(id);
    let mut pending = state.pending();
    let under_way = pending.table.remove(place, generation)?;
    pending.count -= 1;
    drop(pending);
    Some(told(under_way, id, outcome))
}

/// The next that has ended, without waiting.
fn next<L: Home>(state: &LinkState<L>) -> Option<baio_outcome> {
    loop {
        let outcome = state.link.next_outcome()?;
        if let Some(outcome) = unless_awaited(state, outcome) {
            if let Some(told) = claim(state, outcome) {
                return Some(told);
            }
        }
    }
}

/// Puts an outcome by that another thread waits for.
fn unless_awaited<L: Home>(state: &LinkState<L>, outcome: Outcome) -> Option<Outcome> {
    let (place, generation) = place_of(outcome.tag);
    let mut pending = state.pending();
    match pending.table.get_mut(place, generation) {
        Some(under_way) if under_way.is_awaited => {
            under_way.put_by = Some(outcome);
            None
        }
        _ => Some(outcome),
    }
}

/// Submits what is queued and sleeps until more may have ended, or until then.
fn turn<L: Home>(state: &LinkState<L>, count: usize, until: Option<Time>) -> Result<()> {
    let wait = Wait::Until {
        count: u32::try_from(count).unwrap_or(u32::MAX).max(1),
        min_wait: Duration::ZERO,
        deadline: until,
    };
    state.link.turn(wait)?;
    Ok(())
}

/// Submits what is queued on a link that is watched, and makes its descriptor say what is true.
pub(crate) fn settle<L: Home>(state: &LinkState<L>) -> Result<()> {
    if state.event.get().is_some() {
        state.link.turn(Wait::No)?;
    }
    Ok(())
}

fn reap<L: Home>(
    handle: Handle,
    least: usize,
    timeout_ns: i64,
    most: usize,
    mut put: impl FnMut(usize, baio_outcome),
) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let state = thing.as_link()?;
    forget_messages();
    let duration = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
    let until = duration.map(|duration| state.link.now().after(duration));
    let (mut count, mut has_turned) = (0, false);
    let turned = loop {
        while count < most {
            let Some(outcome) = next(state) else { break };
            put(count, outcome);
            count += 1;
        }
        let pending = state.pending().count;
        let is_late = has_turned && until.is_some_and(|at| at <= state.link.now());
        if count >= least.min(most) || pending == 0 || is_late {
            if has_turned {
                break Ok(());
            }
            // What is queued goes out all the same.
            has_turned = true;
            match state.link.turn(Wait::No) {
                Ok(_) if count == most => break Ok(()),
                Ok(_) => continue,
                Err(error) => break Err(error.into()),
            }
        }
        has_turned = true;
        if let Err(error) = turn(state, (least - count).min(pending), until) {
            break Err(error);
        }
    };
    let settled = settle(state);
    match turned.and(settled) {
        Err(error) if count == 0 => Err(error),
        _ => Ok(c_int::try_from(count).unwrap_or(c_int::MAX)),
    }
}

/// Submits what is queued, waits until at least `min` requests have ended, and takes the outcomes of at most `max`, in the order in which they
/// ended. It returns earlier after `timeout_ns` nanoseconds (negative: no limit), and when nothing is under way any more. With `min` 0 it
/// does not wait. `outcomes` has room for `max`.
///
/// Owner: the buffers of these requests are the caller's again. Messages are the library's: see baio_outcome.
/// Threads: the link's. Several may reap one link of a service: each outcome is given once.
/// Returns: how many outcomes, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_reap(
    link: *mut baio_link,
    outcomes: *mut baio_outcome,
    max: usize,
    min: usize,
    timeout_ns: i64,
) -> c_int {
    guard(|| {
        if outcomes.is_null() && max != 0 {
            return Err(null("outcomes"));
        }
        let max = max.min(c_int::MAX as usize);
        let put = |index: usize, outcome| {
            // SAFETY: the caller's promise: there is room for `max`.
            unsafe { outcomes.add(index).write_unaligned(outcome) }
        };
        on_either!(link, Kind::Link, reap, min, timeout_ns, max, put)
    })
}

fn stale() -> Failure {
    let text = "look at a request: its outcome was taken already, or the ticket never was one of this link";
    Failure::new(Errno::ESTALE, text, "use each ticket until its outcome, and not after")
}

pub(crate) fn ticket_of<L: Home>(state: &LinkState<L>, id: baio_ticket) -> Result<Ticket> {
    let (place, generation) = place_of(id);
    let pending = state.pending();
    let under_way = pending.table.get(place, generation);
    under_way.and_then(|under_way| under_way.ticket).ok_or_else(stale)
}

/// Waits for one request.
pub(crate) fn wait_for<L: Home>(state: &LinkState<L>, id: baio_ticket) -> Result<baio_outcome> {
    forget_messages();
    let ticket = ticket_of(state, id)?;
    await_one(state, id, true);
    let outcome = loop {
        match state.link.wait(ticket) {
            Ok(Some(outcome)) => break outcome,
            Ok(None) => match put_by(state, id)? {
                Some(outcome) => break outcome,
                // Whoever came upon it is about to put it by.
                None => std::thread::yield_now(),
            },
            Err(error) => {
                await_one(state, id, false);
                return Err(error.into());
            }
        }
    };
    take(state, outcome)
}

/// Claims an outcome; what settling says of the link is for the next call.
fn take<L: Home>(state: &LinkState<L>, outcome: Outcome) -> Result<baio_outcome> {
    let told = claim(state, outcome).ok_or_else(stale)?;
    if let Err(failure) = settle(state) {
        keep(&failure);
    }
    Ok(told)
}

fn await_one<L: Home>(state: &LinkState<L>, id: baio_ticket, is_awaited: bool) {
    let (place, generation) = place_of(id);
    if let Some(under_way) = state.pending().table.get_mut(place, generation) {
        under_way.is_awaited = is_awaited;
    }
}

/// The outcome that another thread has put by; none yet; or there is nothing to wait for any more.
fn put_by<L: Home>(state: &LinkState<L>, id: baio_ticket) -> Result<Option<Outcome>> {
    let (place, generation) = place_of(id);
    let mut pending = state.pending();
    let under_way = pending.table.get_mut(place, generation).ok_or_else(stale)?;
    Ok(under_way.put_by.take())
}

fn wait<L: Home>(handle: Handle, id: baio_ticket) -> Result<baio_outcome> {
    let thing = look::<L>(handle, Kind::Link)?;
    wait_for(thing.as_link()?, id)
}

/// Submits what is queued, waits for the end of one request, and takes its outcome. `outcome` may be NULL.
///
/// Owner: the request's buffer is the caller's again.
/// Threads: the link's.
/// Returns: the result of the request: bytes, or a negative error number, of it or of the call: -ESTALE when its outcome was taken already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_wait(link: *mut baio_link, ticket: baio_ticket, outcome: *mut baio_outcome) -> i64 {
    guard(|| {
        let ended = on_either!(link, Kind::Link, wait, ticket)?;
        if !outcome.is_null() {
            // SAFETY: the caller's promise.
            unsafe { Out::new(outcome, "outcome")? }.put(ended);
        }
        Ok(ended.result)
    })
}

/// Waits for all requests of a link that closes: their buffers are the caller's again. Reads are cancelled; of a pipe they may never end.
pub(crate) fn end_all<L: Home>(state: &LinkState<L>) {
    let reads: Vec<Ticket> = {
        let pending = state.pending();
        let reads = pending.table.iter().filter(|under_way| under_way.reads);
        reads.filter_map(|under_way| under_way.ticket).collect()
    };
    reads.into_iter().for_each(|ticket| state.link.cancel(ticket));
    while state.pending().count > 0 {
        while next(state).is_some() {}
        if state.pending().count > 0 && turn(state, 1, None).is_err() {
            return; // Closing says why.
        }
    }
}

/// The link has closed. What has not ended until then never will: its memory is not the caller's again.
pub(crate) fn give_up<L: Home>(state: &LinkState<L>) {
    let mut pending = state.pending();
    pending.count = 0;
    let left: Vec<UnderWay<L>> = pending.table.drain().collect();
    drop(pending);
    for under_way in left {
        if let Some(Thing::Buffer(buffer)) = under_way.buffer.as_deref() {
            buffer.give_back(None);
        }
    }
}

pub(crate) fn event_fd<L: Home>(state: &LinkState<L>) -> Result<c_int> {
    let event = match state.event.get() {
        Some(event) => event,
        None => {
            let new = state.link.event_fd()?;
            state.event.get_or_init(|| new)
        }
    };
    settle(state)?;
    Ok(event.as_raw_fd())
}
