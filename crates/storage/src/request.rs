//! Requests on segments and files, and the table in which the core keeps them until somebody takes their outcome.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Poll, Waker};

use baio_engine::{Caching, Completion, Durability, Errno, Memory, RequestId, Time};

use crate::error::Result;

/// Names an opened segment or file. Valid on the core that gave it, until it is closed or its segment is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Which core gave it: on another one it is a stranger.
    pub(crate) core: u32,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Handle {
    /// A handle as a peer names it: the core's number, its place there, and which use of that place. Naming gives no
    /// rights: a core refuses what it did not give.
    #[must_use]
    pub fn from_parts(core: u32, index: u32, generation: u32) -> Handle {
        Handle {
            core,
            index,
            generation,
        }
    }

    /// Its three parts, in this order.
    #[must_use]
    pub fn parts(self) -> (u32, u32, u32) {
        (self.core, self.index, self.generation)
    }
}

/// Through which cache a request goes; the choice is per request (seed 004 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Past every cache.
    #[default]
    Direct,
    /// Through our own page cache, on plain files so far; the core must have one ([`Core::use_cache`](crate::Core::use_cache)). The file
    /// keeps the size that it had at its first cached request, and that must be a multiple of 4 KiB. A plain write is done
    /// after the copy, and safe after a sync. Whoever else writes the file is not seen in cached pages.
    Cached,
    /// Through the kernel's page cache; on plain files only.
    Kernel,
    /// The same, dropped behind the request; on plain files only.
    Uncached,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentOp {
    /// Fill the request's memory from `offset`. At the end there is less, and at last nothing, to read.
    Read {
        /// First byte.
        offset: u64,
    },
    /// Write the request's memory at `offset`.
    Write {
        /// First byte.
        offset: u64,
    },
    /// Make every write completed before this durable; the request's durability says how far.
    Sync,
}

impl SegmentOp {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SegmentOp::Read { .. } => "read",
            SegmentOp::Write { .. } => "write",
            SegmentOp::Sync => "sync",
        }
    }
}

/// One operation on a handle.
#[derive(Debug)]
pub struct SegmentRequest {
    /// On what.
    pub handle: Handle,
    /// What.
    pub op: SegmentOp,
    /// From or into which memory; comes back with the outcome.
    pub memory: Memory,
    /// Through which cache.
    pub mode: Mode,
    /// How safe it must be when it completes.
    pub durability: Durability,
    /// When to give up on it.
    pub deadline: Option<Time>,
    /// A word to be moved when it completes (seed 004 §6).
    pub status: Option<StatusWord>,
    /// The caller's name for it, handed back untouched.
    pub tag: u64,
}

impl SegmentRequest {
    /// A direct request without durability, deadline or status word.
    #[must_use]
    pub fn new(handle: Handle, op: SegmentOp, memory: impl Into<Memory>) -> SegmentRequest {
        SegmentRequest {
            handle,
            op,
            memory: memory.into(),
            mode: Mode::Direct,
            durability: Durability::None,
            deadline: None,
            status: None,
            tag: 0,
        }
    }

    /// The bytes of the segment that it touches: none for a sync.
    pub(crate) fn range(&self) -> Range<u64> {
        match self.op {
            SegmentOp::Read { offset } | SegmentOp::Write { offset } => {
                offset..offset.saturating_add(self.memory.len() as u64)
            }
            SegmentOp::Sync => 0..0,
        }
    }
}

/// Names a request in flight, until its outcome has been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The end of one request.
#[derive(Debug)]
pub struct Outcome {
    /// Which.
    pub ticket: Ticket,
    /// The caller's name for it.
    pub tag: u64,
    /// Bytes transferred, or why not.
    pub result: Result<u32>,
    /// Bytes that were transferred, also when an error ended it half-way.
    pub bytes_done: u32,
    /// The request's memory; `None` while the kernel may still write it (after a deadline): it then goes back to the arena.
    pub memory: Memory,
    /// The caching mode that really carried it.
    pub took: Caching,
    /// Iterations that it ran.
    pub iterations: u16,
}

/// Where a request with a status word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not completed, or nobody has reaped the completion.
    InFlight,
    /// Completed with so many bytes.
    Done(u32),
    /// Failed.
    Failed(Errno),
}

/// A word in the application's memory that tells how a request stands: the paper's way to be notified (seed 004 §6).
/// It moves only when somebody reaps: turns the core, waits, or drives it.
#[derive(Clone, Debug, Default)]
pub struct StatusWord(Arc<AtomicI64>);

impl StatusWord {
    const IN_FLIGHT: i64 = i64::MIN;

    /// A word for one request at a time.
    #[must_use]
    pub fn new() -> StatusWord {
        StatusWord(Arc::new(AtomicI64::new(StatusWord::IN_FLIGHT)))
    }

    /// How the request stands.
    #[must_use]
    pub fn get(&self) -> Status {
        // Acquire: whoever sees the request done also sees the bytes that were read.
        match self.0.load(Ordering::Acquire) {
            StatusWord::IN_FLIGHT => Status::InFlight,
            errno if errno < 0 => Status::Failed(Errno::from_raw(-errno as i32)),
            bytes => Status::Done(bytes as u32),
        }
    }

    /// A request that moves it is under way: for links that keep the request's table themselves.
    pub fn begin(&self) {
        self.0.store(StatusWord::IN_FLIGHT, Ordering::Release);
    }

    /// The request has ended.
    pub fn end(&self, result: std::result::Result<u32, Errno>) {
        let word = match result {
            Ok(bytes) => i64::from(bytes),
            Err(errno) => -i64::from(errno.raw()),
        };
        self.0.store(word, Ordering::Release);
    }
}

/// Where an entry of the table stands.
#[derive(Debug)]
enum State {
    /// Nobody uses it.
    Free,
    /// The engine has the request.
    InFlight(Option<RequestId>),
    /// Ended; the outcome waits to be taken.
    Done(Outcome),
    /// Nobody will take the outcome; freed when the engine lets go.
    Abandoned,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    state: State,
    handle: Handle,
    op: SegmentOp,
    /// The bytes of the segment that it touches.
    range: Range<u64>,
    /// It waits for a hold: the engine has an event in its place.
    parked: bool,
    waker: Option<Waker>,
    status: Option<StatusWord>,
    tag: u64,
    /// Answered at its deadline; the kernel still has its memory.
    held_by_kernel: bool,
    /// Somebody polls for this very request, so its outcome is not for the queue.
    awaited: bool,
}

impl Entry {
    /// `core` makes the tickets of one core strangers on another; 0 is no generation, so that a default ticket names nothing.
    fn free(core: u32) -> Entry {
        Entry {
            generation: core.wrapping_mul(0x9e37_79b1) & Ticket::GENERATION_MASK | 1,
            state: State::Free,
            handle: Handle {
                core,
                index: u32::MAX,
                generation: 0,
            },
            op: SegmentOp::Sync,
            range: 0..0,
            parked: false,
            waker: None,
            status: None,
            tag: 0,
            held_by_kernel: false,
            awaited: false,
        }
    }
}

/// The table of requests in flight or not yet taken. Its size is fixed; a full one hands requests back.
#[derive(Debug)]
pub(crate) struct Requests {
    core: u32,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// So many of the free ones are not for callers.
    kept: usize,
    /// Ended and not yet taken, in order; entries taken by ticket are skipped.
    finished: VecDeque<Ticket>,
    /// Wakers replaced or not needed any more. Dropping one may run anybody's code, so that is left to whoever has given
    /// the core's borrow back.
    displaced: Vec<Waker>,
}

/// What the core must know when a request ends.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) handle: Handle,
    pub(crate) op: SegmentOp,
    pub(crate) range: Range<u64>,
    pub(crate) parked: bool,
    pub(crate) abandoned: bool,
}

impl Requests {
    pub(crate) fn new(count: u32, core: u32) -> Requests {
        Requests {
            core,
            entries: (0..count).map(|_| Entry::free(core)).collect(),
            free: (0..count).rev().collect(),
            kept: 0,
            finished: VecDeque::with_capacity(count as usize),
            displaced: Vec::new(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.len() <= self.kept
    }

    /// Makes so many entries more, which callers do not get.
    pub(crate) fn keep_entries(&mut self, count: u32) {
        let first = self.entries.len() as u32;
        let core = self.core;
        self.entries.extend((0..count).map(|_| Entry::free(core)));
        // Entries are taken from the end.
        self.free.splice(0..0, (first..first + count).rev());
        self.kept += count as usize;
    }

    /// Takes the outcome if the request has ended; for the core's own.
    pub(crate) fn take_ended(&mut self, ticket: Ticket) -> Option<Outcome> {
        self.take(ticket)
    }

    /// Takes an entry for a request; the caller has checked that there is one.
    pub(crate) fn insert(&mut self, request: &SegmentRequest) -> Option<Ticket> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        entry.state = State::InFlight(None);
        entry.handle = request.handle;
        entry.op = request.op;
        entry.range = request.range();
        entry.parked = false;
        entry.tag = request.tag;
        entry.held_by_kernel = false;
        entry.awaited = false;
        entry.status.clone_from(&request.status);
        if let Some(status) = &entry.status {
            status.begin();
        }
        Some(Ticket {
            index,
            generation: entry.generation,
        })
    }

    pub(crate) fn set_engine_id(&mut self, ticket: Ticket, id: RequestId) {
        if let Some(entry) = self.entry(ticket) {
            entry.state = State::InFlight(Some(id));
        }
    }

    pub(crate) fn engine_id(&mut self, ticket: Ticket) -> Option<RequestId> {
        match self.entry(ticket)?.state {
            State::InFlight(id) => id,
            _ => None,
        }
    }

    /// Frees an entry whose request never got as far as the engine.
    pub(crate) fn take_back(&mut self, ticket: Ticket) {
        self.release(ticket);
    }

    pub(crate) fn ended(&mut self, ticket: Ticket) -> Option<Ended> {
        self.entry(ticket).map(|entry| Ended {
            handle: entry.handle,
            op: entry.op,
            range: entry.range.clone(),
            parked: entry.parked,
            abandoned: matches!(entry.state, State::Abandoned),
        })
    }

    /// The request waits for a hold, or does so no longer.
    pub(crate) fn set_parked(&mut self, ticket: Ticket, parked: bool) {
        if let Some(entry) = self.entry(ticket) {
            entry.parked = parked;
        }
    }

    /// A request that was parked is with the engine again, for this range.
    pub(crate) fn start_again(&mut self, ticket: Ticket, id: RequestId, range: Range<u64>) {
        if let Some(entry) = self.entry(ticket) {
            entry.state = State::InFlight(Some(id));
            entry.range = range;
            entry.parked = false;
        }
    }

    /// Every request that the device may be at work on: those too that nobody waits for any more.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (Handle, Range<u64>)> + '_ {
        let busy = |entry: &&Entry| match entry.state {
            State::InFlight(id) => id.is_some(),
            State::Abandoned => true,
            State::Done(_) => entry.held_by_kernel,
            State::Free => false,
        };
        let at_work = self.entries.iter().filter(busy).filter(|entry| !entry.parked);
        at_work.map(|entry| (entry.handle, entry.range.clone()))
    }

    /// A request has ended: its outcome waits to be taken, and whoever waits for it is named.
    pub(crate) fn finish(&mut self, ticket: Ticket, completion: Completion, result: Result<u32>) -> Option<Waker> {
        let entry = self.entry(ticket)?;
        if let Some(status) = entry.status.take() {
            let errno = |error: &crate::error::Error| error.errno().unwrap_or(Errno::EIO);
            status.end(result.as_ref().copied().map_err(errno));
        }
        if matches!(entry.state, State::Abandoned) {
            if !entry.held_by_kernel {
                self.release(ticket);
            }
            return None;
        }
        let outcome = Outcome {
            ticket,
            tag: entry.tag,
            result,
            bytes_done: completion.bytes_done,
            memory: completion.memory,
            took: completion.took,
            iterations: completion.iterations,
        };
        let waker = entry.waker.take();
        entry.state = State::Done(outcome);
        if !entry.awaited {
            self.finished.push_back(ticket);
        }
        waker
    }

    /// Takes the outcome if there is one, else remembers whom to wake.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: Option<Waker>) -> Poll<Option<Outcome>> {
        let Some(entry) = self
            .entry(ticket)
            .filter(|entry| !matches!(entry.state, State::Abandoned))
        else {
            self.displaced.extend(waker);
            return Poll::Ready(None);
        };
        if matches!(entry.state, State::InFlight(_)) {
            if let Some(waker) = waker {
                entry.awaited = true;
                let old = entry.waker.replace(waker);
                self.displaced.extend(old);
            }
            return Poll::Pending;
        }
        self.displaced.extend(waker);
        Poll::Ready(self.take(ticket))
    }

    /// Takes the wakers of all that is under way: whoever waits is to look again.
    pub(crate) fn take_wakers(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.entries.iter_mut().filter_map(|entry| entry.waker.take()));
    }

    /// Is there such an outcome?
    pub(crate) fn has_finished(&self) -> bool {
        let waits = |ticket: &Ticket| {
            let entry = self.entries.get(ticket.index as usize);
            entry.is_some_and(|entry| entry.generation == ticket.generation && matches!(entry.state, State::Done(_)))
        };
        self.finished.iter().any(waits)
    }

    /// The next outcome in the order of completion, of requests that nobody polls for: the queue way to be notified.
    pub(crate) fn next_finished(&mut self) -> Option<Outcome> {
        while let Some(ticket) = self.finished.pop_front() {
            if let Some(outcome) = self.take(ticket) {
                return Some(outcome);
            }
        }
        None
    }

    fn take(&mut self, ticket: Ticket) -> Option<Outcome> {
        let entry = self.entry(ticket)?;
        if !matches!(entry.state, State::Done(_)) {
            return None;
        }
        let State::Done(outcome) = std::mem::replace(&mut entry.state, State::Abandoned) else {
            return None;
        };
        if !entry.held_by_kernel {
            self.release(ticket);
        }
        if self.finished.front() == Some(&ticket) {
            self.finished.pop_front();
        }
        // Tickets taken out of turn leave stale names in the queue; they must not outgrow the table.
        if self.finished.len() > self.entries.len() {
            let entries = &self.entries;
            self.finished
                .retain(|ticket| entries[ticket.index as usize].generation == ticket.generation);
        }
        Some(outcome)
    }

    /// Nobody will take the outcome. Returns the engine's request, if it is still under way.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> Option<RequestId> {
        let entry = self.entry(ticket)?;
        let waker = entry.waker.take();
        self.displaced.extend(waker);
        let entry = self.entry(ticket)?;
        match entry.state {
            State::InFlight(id) => {
                entry.state = State::Abandoned;
                id
            }
            State::Done(_) => {
                drop(self.take(ticket));
                None
            }
            State::Free | State::Abandoned => None,
        }
    }

    /// The engine has let go of a request that was abandoned, or answered at its deadline.
    pub(crate) fn released(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.held_by_kernel = false;
            if matches!(entry.state, State::Abandoned) {
                self.release(ticket);
            }
        }
    }

    /// The request is answered, but its end will be told by a `Released` notice.
    pub(crate) fn hold_for_kernel(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.held_by_kernel = true;
        }
    }

    fn release(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.state = State::Free;
            let waker = entry.waker.take();
            entry.status = None;
            entry.generation = (entry.generation.wrapping_add(1) & Ticket::GENERATION_MASK).max(1);
            self.free.push(ticket.index);
            self.displaced.extend(waker);
        }
    }

    /// Hands over the wakers that are to be dropped.
    pub(crate) fn take_displaced(&mut self, into: &mut Vec<Waker>) {
        into.append(&mut self.displaced);
    }

    fn entry(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        self.entries
            .get_mut(ticket.index as usize)
            .filter(|entry| entry.generation == ticket.generation && !matches!(entry.state, State::Free))
    }
}

impl Ticket {
    /// A ticket of a link that keeps the table of its requests itself.
    #[must_use]
    pub fn from_parts(index: u32, generation: u32) -> Ticket {
        Ticket { index, generation }
    }

    /// Its place in the table, and which use of that place.
    #[must_use]
    pub fn parts(self) -> (u32, u32) {
        (self.index, self.generation)
    }

    /// Generations fit beside the index and the owner's mark in an engine tag.
    const GENERATION_MASK: u32 = (1 << 30) - 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tag: u64) -> SegmentRequest {
        let handle = Handle {
            core: 1,
            index: 0,
            generation: 0,
        };
        SegmentRequest {
            tag,
            ..SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)
        }
    }

    fn completion() -> Completion {
        Completion {
            accepted: None,
            id: baio_engine::RequestId::default(),
            tag: 0,
            notice: baio_engine::Notice::Completed,
            result: Ok(0),
            bytes_done: 0,
            memory: Memory::None,
            took: Caching::Direct,
            iterations: 1,
        }
    }

    #[test]
    fn an_outcome_is_taken_once_by_ticket_or_in_order() {
        let mut requests = Requests::new(2, 1);
        let one = requests.insert(&request(1)).unwrap();
        let two = requests.insert(&request(2)).unwrap();
        assert!(requests.insert(&request(3)).is_none());
        assert!(requests.poll(one, None).is_pending());
        requests.finish(two, completion(), Ok(7));
        requests.finish(one, completion(), Ok(8));
        let Poll::Ready(Some(outcome)) = requests.poll(one, None) else {
            panic!("finished")
        };
        assert_eq!((outcome.tag, outcome.result.unwrap()), (1, 8));
        assert!(matches!(requests.poll(one, None), Poll::Ready(None)));
        assert_eq!(requests.next_finished().map(|o| o.tag), Some(2));
        assert!(requests.next_finished().is_none());
        assert!(!requests.is_full());
    }

    #[test]
    fn a_status_word_tells_the_end() {
        let mut requests = Requests::new(1, 1);
        let word = StatusWord::new();
        let ticket = requests
            .insert(&SegmentRequest {
                status: Some(word.clone()),
                ..request(0)
            })
            .unwrap();
        assert_eq!(word.get(), Status::InFlight);
        requests.finish(ticket, completion(), Ok(4096));
        assert_eq!(word.get(), Status::Done(4096));
    }
}
