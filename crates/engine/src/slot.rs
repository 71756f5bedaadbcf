//! The fixed table of requests in flight.
//!
//! A slot owns everything that its request needs until the kernel has let go of it: the memory, and a reference to the
//! file. That is the whole of the engine's soundness: a buffer cannot be freed early, because the only thing that could
//! free it is the table.
//!
//! ```text
//!            insert          start           finished iteration, more to do
//!   Free ───────────► Queued ──────► Running ─────────────┐
//!    ▲                  │ ▲             │ │                │
//!    │   cancelled      │ └─────────────┼─┘ ◄──────────────┘
//!    ├──────────────────┘               │ deadline passed, or the caller dropped it
//!    │        last iteration            ▼
//!    ├───────────────────────────── Abandoned   (its memory comes back by a Released notice)
//!    └──────────────────────────────────┘
//! ```
//!
//! [`Slots::transition`] is the one place where a state changes.

mod moments;
mod route;
mod streams;
mod work;

pub(crate) use moments::Ended;
pub(crate) use route::By;
pub(crate) use streams::{Looks, first_part, ready};
pub use work::Work;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{DurableBy, Kind};
use crate::error::Errno;
use crate::file::File;
use crate::memory::{IOV_MAX, Memory};
use crate::policy::{Caching, Durability, Policy, Time};
use crate::request::{Op, Request, RequestId};
use crate::sys::{self, Action, Fd, Iteration, TRANSFER_MAX};

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nobody uses the slot. Left by `insert`.
    Free,
    /// Waiting for an order (a fence, an overlapping abandoned write). Left by the engine when that has ended.
    Held,
    /// Waiting to be given to a backend. Left when the backend accepts it.
    Queued,
    /// One iteration is active. Left when the backend reports its raw result.
    Running,
    /// Completed towards the caller, but the kernel still holds its memory. Left when the backend reports.
    Abandoned,
}

impl State {
    pub(crate) fn is_running(self) -> bool {
        matches!(self, State::Running | State::Abandoned)
    }
}

/// The largest table: each slot takes memory from the start on.
pub(crate) const SLOTS_MAX: u32 = 1 << 18;

#[derive(Debug)]
pub(crate) struct Slot {
    generation: u64,
    pub(crate) state: State,
    pub(crate) op: Op,
    pub(crate) file: Option<File>,
    pub(crate) target: Option<File>,
    pub(crate) memory: Memory,
    /// Bytes of it: a list would have to be walked.
    pub(crate) len: usize,
    pub(crate) policy: Policy,
    pub(crate) tag: u64,
    /// Bytes known to be transferred.
    pub(crate) done: usize,
    /// Where the running iteration began: behind `done` when direct I/O had to step back to an aligned byte.
    pub(crate) resumed_at: usize,
    pub(crate) iterations: u16,
    /// When its first iteration was handed over.
    pub(crate) begun: Option<Time>,
    /// Order of submission.
    pub(crate) sequence: u64,
    /// Writes to the file that a fence still waits for.
    pub(crate) waits_for: u32,
    /// The sync of the same file that will answer for this one.
    pub(crate) follows: Option<RequestId>,
    /// Its caller wants it to end: no further iteration starts.
    pub(crate) cancelled: bool,
    /// The stream had nothing, or no room: the next iteration waits until it has.
    pub(crate) awaits_readiness: bool,
    /// Consecutive `EAGAIN` results.
    pub(crate) refusals: u16,
    /// How often the kernel has told it `EFAULT`, in an engine that any thread may use.
    pub(crate) orphaned: u8,
    /// Its stream has refused to be told that it shall not wait: the engine looks before each iteration.
    pub(crate) looks: Option<Looks>,
    /// The next iteration, or the running one, is a pause until then.
    pub(crate) rests_until: Option<Time>,
    /// What it asked for is done, and what runs now is the sync that makes it durable.
    pub(crate) is_syncing: bool,
    /// Syncs of its file that had failed when it was submitted.
    pub(crate) failures: u64,
    /// What a transfer's window holds.
    pub(crate) window: Filled,
    /// The connection that an accept took.
    pub(crate) accepted: Option<File>,
    /// It is among [`Slots::going_on`].
    goes_on: bool,
    /// Who runs requests to its file, and who its running iteration.
    pub(crate) route: By,
    runs_at: By,
    /// The running iteration moves its bytes by copies ([`Slots::begin`]), and nobody else touches them.
    by_copies: bool,
}

/// The bytes of a transfer's window: read from its file, and as far as `sent` gone to its target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filled {
    pub(crate) bytes: u32,
    pub(crate) sent: u32,
}

impl Filled {
    pub(crate) fn is_empty(self) -> bool {
        self.sent >= self.bytes
    }
}

/// The table. Backends see it to learn what an iteration is; only the engine changes it.
#[derive(Debug)]
pub struct Slots {
    /// By which an engine knows its own (`backend/lent.rs`).
    number: u64,
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Slots whose memory the kernel may be using.
    running: usize,
    /// Of these, those whose running iteration is likely not the last.
    going_on: usize,
    /// Whose `start` this is: nobody begins anything else.
    pub(crate) starting: Option<By>,
    /// When what runs next is handed over.
    pub(crate) handed_over: Time,
    /// Slots that somebody looked at because he looked at all.
    #[cfg(test)]
    pub(crate) scanned: std::cell::Cell<usize>,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Slots {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let slot = || Slot {
            generation: 0,
            state: State::Free,
            op: Op::Sync,
            file: None,
            target: None,
            memory: Memory::None,
            len: 0,
            policy: Policy::default(),
            tag: 0,
            done: 0,
            resumed_at: 0,
            iterations: 0,
            begun: None,
            sequence: 0,
            waits_for: 0,
            follows: None,
            cancelled: false,
            awaits_readiness: false,
            refusals: 0,
            orphaned: 0,
            looks: None,
            rests_until: None,
            is_syncing: false,
            failures: 0,
            window: Filled::default(),
            accepted: None,
            goes_on: false,
            route: By::PRIMARY,
            runs_at: By::PRIMARY,
            by_copies: false,
        };
        Slots {
            // Relaxed: it is only never given twice.
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            slots: (0..count).map(|_| slot()).collect(),
            free: (0..count).rev().collect(),
            running: 0,
            going_on: 0,
            starting: None,
            handed_over: Time::default(),
            #[cfg(test)]
            scanned: std::cell::Cell::default(),
        }
    }

    /// Another table has another one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How many requests the table holds at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// How many requests are in it.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, request: Request, sequence: u64) -> Result<RequestId, Request> {
        let Some(index) = self.free.pop() else {
            return Err(request);
        };
        let slot = &mut self.slots[index as usize];
        slot.op = request.op;
        fill(&mut slot.file, request.file);
        fill(&mut slot.target, request.target);
        slot.len = request.memory.len();
        fill(&mut slot.memory, request.memory);
        slot.policy = request.policy;
        slot.tag = request.tag;
        (slot.done, slot.resumed_at, slot.iterations) = (0, 0, 0);
        slot.begun = None;
        slot.sequence = sequence;
        slot.waits_for = 0;
        slot.follows = None;
        slot.cancelled = false;
        slot.awaits_readiness = false;
        (slot.refusals, slot.orphaned) = (0, 0);
        (slot.rests_until, slot.looks) = (None, None);
        slot.is_syncing = false;
        slot.window = Filled::default();
        (slot.route, slot.runs_at) = (By::PRIMARY, By::PRIMARY);
        let id = RequestId {
            slot: index,
            generation: slot.generation,
        };
        self.transition(id, State::Queued);
        Ok(id)
    }

    /// Empties a slot and makes its id stale. Returns the memory.
    pub(crate) fn remove(&mut self, id: RequestId) -> Memory {
        if self.get(id).is_none() {
            return Memory::None;
        }
        self.transition(id, State::Free);
        let slot = &mut self.slots[id.slot as usize];
        slot.generation += 1;
        slot.file = None;
        slot.target = None;
        self.free.push(id.slot);
        std::mem::take(&mut slot.memory)
    }

    /// Moves a slot to another state. An illegal move is a bug of the engine, so it is asserted.
    #[inline(always)]
    pub(crate) fn transition(&mut self, id: RequestId, to: State) {
        let slot = &mut self.slots[id.slot as usize];
        let legal = match (slot.state, to) {
            (State::Free, State::Queued)
            | (State::Queued, State::Held | State::Running | State::Free)
            | (State::Held, State::Queued | State::Free)
            | (State::Running, State::Queued | State::Abandoned | State::Free)
            | (State::Abandoned, State::Free) => true,
            (State::Free | State::Held | State::Queued | State::Running | State::Abandoned, _) => false,
        };
        assert!(legal, "request {id:?} cannot go from {:?} to {to:?}", slot.state);
        slot.by_copies &= to.is_running();
        if slot.state.is_running() {
            self.running -= 1;
            self.going_on -= usize::from(std::mem::take(&mut slot.goes_on));
        }
        if to.is_running() {
            self.running += 1;
            slot.goes_on = to == State::Running && slot.is_likely_to_go_on();
            self.going_on += usize::from(slot.goes_on);
            slot.begun.get_or_insert(self.handed_over);
        }
        slot.state = to;
    }

    pub(crate) fn get(&self, id: RequestId) -> Option<&Slot> {
        self.slots
            .get(id.slot as usize)
            .filter(|slot| slot.generation == id.generation && slot.state != State::Free)
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Slot> {
        self.slots
            .get_mut(id.slot as usize)
            .filter(|slot| slot.generation == id.generation && slot.state != State::Free)
    }

    /// The request in flight that the kernel calls so ([`RequestId::to_bits`]).
    pub(crate) fn named(&self, bits: u64) -> RequestId {
        let slot = bits as u32;
        let now = self.slots.get(slot as usize).map(|slot| slot.generation);
        RequestId {
            slot,
            // Another than that of now is nobody's: no slot has been used so often.
            generation: now.filter(|now| *now as u32 == (bits >> 32) as u32).unwrap_or(u64::MAX),
        }
    }

    /// Every request in the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &Slot)> {
        #[cfg(test)]
        self.scanned.set(self.scanned.get() + self.slots.len());
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.state != State::Free)
            .map(|(index, slot)| {
                let id = RequestId {
                    slot: index as u32,
                    generation: slot.generation,
                };
                (id, slot)
            })
    }

    /// How many requests a backend has: the kernel may be using their memory.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// How many of these are likely to need another iteration after the one that runs.
    pub(crate) fn going_on(&self) -> usize {
        self.going_on
    }

    pub(crate) fn is_stream(&self, id: RequestId) -> bool {
        let stream = |file: &Option<File>| file.as_ref().is_some_and(|file| file.kind() == Kind::Stream);
        self.get(id)
            .is_some_and(|slot| stream(&slot.file) || stream(&slot.target))
    }

    pub(crate) fn is_at_a_terminal(&self, id: RequestId) -> bool {
        self.get(id).is_some_and(Slot::is_at_a_terminal)
    }

    /// What the iteration that `id` has to run now is about; as good as a stream where there is no file.
    pub(crate) fn subject(&self, id: RequestId) -> (Kind, Caching) {
        let subject = self.get(id).and_then(Slot::subject);
        subject.map_or((Kind::Stream, Caching::Kernel), |(file, caching)| {
            (file.kind(), caching)
        })
    }

    /// The iteration that `id` has to run now: what is left of it.
    pub(crate) fn iteration(&mut self, id: RequestId, mark: u64) -> Option<Iteration> {
        let slot = self.get_mut(id)?;
        Some(slot.iteration(mark))
    }
}

impl Slot {
    /// The file range that a write may change.
    pub(crate) fn write_range(&self) -> Option<(u64, u64)> {
        match self.op {
            Op::Write { offset: Some(at) } => Some((at, at.saturating_add(self.len as u64))),
            Op::Allocate { offset, len, .. } => Some((offset, offset.saturating_add(len))),
            Op::Truncate { len } => Some((len, u64::MAX)),
            _ => None,
        }
    }

    /// Is the iteration that it has to run now a sync?
    pub(crate) fn is_sync(&self) -> bool {
        self.is_syncing || matches!(self.op, Op::Sync | Op::Fence)
    }

    /// It is held: for another sync's sake, not for that of earlier writes?
    pub(crate) fn awaits_sync(&self) -> bool {
        self.is_sync() && self.waits_for == 0
    }

    /// Must a sync follow, for what it was asked to make durable?
    pub(crate) fn needs_a_sync(&self) -> bool {
        needs_a_sync(self.op, self.policy.durability, self.file.as_ref())
    }

    /// Will this request end in a sync?
    pub(crate) fn will_sync(request: &Request) -> bool {
        matches!(request.op, Op::Sync | Op::Fence)
            || needs_a_sync(request.op, request.policy.durability, request.file.as_ref())
    }

    /// A sync of its file that has failed since it was submitted: which of the two covered what is unknown.
    pub(crate) fn failed_meanwhile(&self) -> Option<Errno> {
        self.file.as_ref()?.failed_since(self.failures)
    }

    /// Does its running iteration take the kernel's report of lost data? A cached durable write syncs, and what that reports may
    /// be the failure of an earlier write.
    pub(crate) fn takes_the_report(&self) -> bool {
        match self.op {
            _ if self.is_sync() => true,
            Op::SyncRange { .. } => true,
            Op::Write { .. } => self.flag() != Durability::None && self.policy.caching != Caching::Direct,
            _ => false,
        }
    }

    /// How durable the flag of its write shall make it.
    pub(crate) fn flag(&self) -> Durability {
        match self.op {
            Op::Write { .. } if !self.needs_a_sync() => self.policy.durability,
            _ => Durability::None,
        }
    }

    /// The caching mode that carries it.
    pub(crate) fn took(&self) -> Caching {
        let asked = self.policy.caching;
        self.file.as_ref().map_or(asked, |file| file.really(asked))
    }

    /// Bytes at which direct I/O may continue; 1 elsewhere.
    pub(crate) fn granularity(&self) -> usize {
        match (&self.file, self.policy.caching) {
            (Some(file), Caching::Direct) => file.direct_limits().offset as usize,
            _ => 1,
        }
    }

    /// Is the end of its next iteration likely not its own? A stream has nothing or takes a part, a transfer goes window by
    /// window, a long list piece by piece; behind a pause comes a try, behind some durable writes a sync. Disk I/O of other kinds is short only at the end of a file and in trouble.
    fn is_likely_to_go_on(&self) -> bool {
        if self.rests_until.is_some() || (self.needs_a_sync() && !self.is_syncing) {
            return true;
        }
        match self.op {
            Op::Read { offset: Some(_) } | Op::Write { offset: Some(_) } => {
                self.len > TRANSFER_MAX || self.memory.parts().len() > IOV_MAX
            }
            Op::Transfer { .. } => true,
            op => op.moves_bytes() || matches!(op, Op::Accept | Op::Connect),
        }
    }

    /// May the running iteration be tried again once its stream is ready?
    pub(crate) fn waits_for_a_stream(&self) -> bool {
        let stream = |file: &Option<File>| file.as_ref().is_some_and(|file| file.kind() == Kind::Stream);
        match self.op {
            Op::Transfer { .. } => !self.window.is_empty(),
            op => (op.moves_bytes() || op == Op::Accept) && stream(&self.file),
        }
    }

    /// Did the caller not ask to be told `EAGAIN`?
    pub(crate) fn may_wait(&self) -> bool {
        let told = match self.op {
            Op::Receive { flags } | Op::Send { flags } => flags & libc::MSG_DONTWAIT as u32 != 0,
            _ => false,
        };
        self.policy.patience.may_wait() && !told
    }

    /// The readiness that an iteration of this kind waits for (poll(2)).
    pub(crate) fn readiness(&self) -> u32 {
        let events = match self.op {
            Op::Write { .. } | Op::Send { .. } | Op::Transfer { .. } => libc::POLLOUT,
            _ => libc::POLLIN,
        };
        events as u32
    }

    /// Does the running iteration do what was asked for, and not wait until that can be tried?
    pub(crate) fn is_at_work(&self) -> bool {
        !self.awaits_readiness && self.rests_until.is_none()
    }

    pub(crate) fn iteration(&mut self, mark: u64) -> Iteration {
        if let Some(at) = self.rests_until {
            let (action, fd) = (Action::Timer { at }, Fd::None);
            return Iteration { action, fd, flags: 0 };
        }
        // Flags speak of the file that this iteration is about: of a transfer, its source or its target.
        let (fd, caching) = self.fd(mark);
        if self.awaits_readiness {
            let events = self.readiness();
            let action = Action::Poll { events };
            return Iteration { action, fd, flags: 0 };
        }
        let skip = self.resumed_at;
        let at = |offset: Option<u64>| offset.map_or(-1, |offset| (offset + skip as u64) as i64);
        let action = match self.op {
            _ if self.is_sync() => Action::Sync {
                data_only: self.policy.durability != Durability::Full,
            },
            Op::Read { offset } => Action::Read {
                window: self.memory.pieces(skip),
                offset: at(offset),
            },
            Op::Write { offset } => Action::Write {
                window: self.memory.pieces(skip),
                offset: at(offset),
            },
            Op::SyncRange { offset, len } => Action::SyncRange { offset, len },
            Op::Allocate { offset, len, space } => Action::Allocate {
                offset,
                len,
                mode: sys::allocate_mode(space),
            },
            Op::Truncate { len } => Action::Truncate { len },
            Op::Poll { events } => Action::Poll { events },
            Op::Timer { at } => Action::Timer { at },
            Op::Accept => Action::Accept,
            Op::Connect => Action::Connect {
                address: self.memory.window(0),
            },
            Op::Receive { flags } => self.receive(skip, flags),
            Op::Send { flags } => self.send(skip, flags),
            Op::Transfer { offset, len } => self.transfer(offset, len),
            // Never given to a backend, or said above.
            Op::Event | Op::Sync | Op::Fence => Action::Poll { events: 0 },
        };
        let flags = sys::rw_flags(caching, self.flag(), self.policy.patience);
        let flags = match (action, self.looks) {
            (Action::Read { offset: -1, .. } | Action::Write { offset: -1, .. }, Some(looks)) => {
                return streams::of_what_is_ready(looks, action, fd);
            }
            (Action::Read { offset: -1, .. } | Action::Write { offset: -1, .. }, None) => {
                sys::as_streams_know_it(flags)
            }
            _ => flags,
        };
        Iteration { action, fd, flags }
    }

    /// The file that the next iteration is about, and through which of its descriptions.
    fn subject(&self) -> Option<(&File, Caching)> {
        let file = match self.op {
            Op::Transfer { .. } if !self.window.is_empty() => self.target.as_ref()?,
            _ => self.file.as_ref()?,
        };
        let caching = match self.op {
            _ if self.is_syncing => file.any_caching(),
            Op::Read { .. } | Op::Write { .. } => self.policy.caching,
            Op::Transfer { .. } if self.window.is_empty() => self.policy.caching,
            _ => file.any_caching(),
        };
        Some((file, caching))
    }

    fn fd(&self, mark: u64) -> (Fd, Caching) {
        let Some((file, caching)) = self.subject() else {
            return (Fd::None, Caching::Kernel);
        };
        let direct = u32::from(caching == Caching::Direct);
        let fd = match file.attached().place(mark) {
            Some(first) => Fd::Registered(first + direct),
            None => file.raw_fd(caching).map_or(Fd::None, Fd::Raw),
        };
        (fd, caching)
    }
}

/// Puts something where nothing is, so that nothing need be dropped.
fn fill<T>(empty: &mut T, with: T) {
    std::mem::forget(std::mem::replace(empty, with));
}

/// No flag of a request makes an allocation or a size durable (fallocate(2)), and not every file system keeps that of a write.
fn needs_a_sync(op: Op, durability: Durability, file: Option<&File>) -> bool {
    durability != Durability::None
        && match op {
            Op::Allocate { .. } | Op::Truncate { .. } => true,
            Op::Write { .. } => file.is_some_and(|file| file.durable_by() == DurableBy::Sync),
            _ => false,
        }
}

#[cfg(test)]
#[path = "slot_tests.rs"]
mod tests;
