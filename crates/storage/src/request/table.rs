//! The table in which a core keeps its requests: one entry each, from the start until the outcome has been taken and the kernel has
//! let go of the memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::task::{Poll, Waker};

use baio_engine::{Caching, Completion, Errno, Memory, RequestId, Time};

use super::fences::{Epoch, Fences};
use super::state::{Asked, Owner, State};
use super::{Handle, Outcome, SegmentOp, SegmentRequest, StatusWord, Ticket};
use crate::cache::{self, ObjectId};
use crate::error::Result;

/// Who takes an outcome.
#[derive(Debug)]
enum Taker {
    /// Whoever asks for the next one.
    Anyone,
    /// Who polls for this very request, so its outcome is not for the queue; to be woken.
    Poller(Option<Waker>),
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    state: State,
    owner: Owner,
    asked: Asked,
    /// Its memory, while it waits in the core or for the cache to make way.
    memory: Memory,
    /// While [`State::is_done`].
    outcome: Option<Outcome>,
    /// Of a write that is not over, and of a fence that waits: where it stands in its line.
    epoch: Option<Epoch>,
    /// The cache keeps out of its range until the device is done with it.
    reserved: Option<(ObjectId, cache::RequestId)>,
    /// Of a fence: how many syncs of its file had failed when it was asked for.
    failures: u64,
    taker: Taker,
    status: Option<StatusWord>,
    tag: u64,
}

impl Entry {
    /// `core` makes the tickets of one core strangers on another; 0 is no generation, so that a default ticket names nothing.
    fn free(core: u32) -> Entry {
        let handle = Handle {
            core,
            index: u32::MAX,
            generation: 0,
        };
        Entry {
            generation: core.wrapping_mul(0x9e37_79b1) & Ticket::GENERATION_MASK | 1,
            state: State::Free,
            owner: Owner::Caller,
            asked: Asked::of(&SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)),
            memory: Memory::None,
            outcome: None,
            epoch: None,
            reserved: None,
            failures: 0,
            taker: Taker::Anyone,
            status: None,
            tag: 0,
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
    /// So many wait in the core alone.
    waiting: usize,
    /// So many fences wait for writes.
    following: usize,
    /// Ended and not yet taken, in order; entries taken by ticket are skipped.
    finished: VecDeque<Ticket>,
    /// What is to begin again, in the order in which it was woken; those that were called off since are skipped.
    woken: VecDeque<Ticket>,
    /// The first of those, while it is tried.
    called_up: Option<Ticket>,
    /// Nobody has tried to begin the last of those.
    is_woken: bool,
    /// How many entries were given back by what had begun, and slots of the engine by what has no entry.
    given_back: u64,
    /// Callers' requests that the kernel has let go of after their end, once somebody asks for those.
    let_go: Option<VecDeque<Ticket>>,
    /// When what is not with the engine is overdue, with names that may be old ones.
    deadlines: BinaryHeap<Reverse<(Time, u32, u32)>>,
    /// Which fences wait for which writes.
    fences: Fences,
    /// Wakers replaced or not needed any more. Dropping one may run anybody's code, so that is left to whoever has given
    /// the core's borrow back.
    displaced: Vec<Waker>,
}

impl Requests {
    pub(crate) fn new(count: u32, core: u32) -> Requests {
        Requests {
            core,
            entries: (0..count).map(|_| Entry::free(core)).collect(),
            free: (0..count).rev().collect(),
            kept: 0,
            waiting: 0,
            following: 0,
            finished: VecDeque::with_capacity(count as usize),
            woken: VecDeque::new(),
            called_up: None,
            is_woken: false,
            given_back: 0,
            let_go: None,
            deadlines: BinaryHeap::new(),
            fences: Fences::default(),
            displaced: Vec::new(),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free_places() == 0
    }

    /// How many more callers' requests it takes.
    pub(crate) fn free_places(&self) -> usize {
        self.free.len().saturating_sub(self.kept)
    }

    pub(crate) fn given_back(&self) -> u64 {
        self.given_back
    }

    /// Adds `count` reserved entries, which callers do not get.
    pub(crate) fn keep_entries(&mut self, count: u32) {
        let first = self.entries.len() as u32;
        let core = self.core;
        self.entries.extend((0..count).map(|_| Entry::free(core)));
        // Entries are taken from the end.
        self.free.splice(0..0, (first..first + count).rev());
        self.kept += count as usize;
    }

    /// Takes an entry for a request; `None` when there is none.
    pub(crate) fn insert(&mut self, owner: Owner, request: &SegmentRequest) -> Option<Ticket> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        entry.owner = owner;
        entry.asked = Asked::of(request);
        entry.taker = Taker::Anyone;
        entry.tag = request.tag;
        entry.status.clone_from(&request.status);
        let ticket = Ticket {
            index,
            generation: entry.generation,
        };
        self.transition(ticket, State::InHand);
        Some(ticket)
    }

    /// Its status word says that it is in flight.
    pub(crate) fn begin_status(&self, ticket: Ticket) {
        if let Some(status) = self.entry(ticket).and_then(|entry| entry.status.as_ref()) {
            status.begin();
        }
    }

    /// Moves a request to another state. An illegal move is a bug of the core, so it is asserted. Inlined, because it runs at least three times a
    /// request, and almost every caller knows to which state, which decides most of it.
    #[inline(always)]
    pub(crate) fn transition(&mut self, ticket: Ticket, to: State) {
        let entry = &mut self.entries[ticket.index as usize];
        let from = entry.state;
        assert!(
            entry.generation == ticket.generation && from.may_become(to),
            "request {ticket:?} cannot go from {from:?} to {to:?}"
        );
        self.waiting -= usize::from(from.waits());
        self.waiting += usize::from(to.waits());
        self.following -= usize::from(from.follows());
        self.following += usize::from(to.follows());
        entry.state = to;
        if from.follows() || to.is_over() {
            if let Some(epoch) = entry.epoch.take() {
                self.leave_line(epoch, to);
            }
        }
    }

    /// Of a write or a fence that goes to this state.
    fn leave_line(&mut self, epoch: Epoch, to: State) {
        match to {
            State::Woken => {}
            State::InHand => self.fences.forget(epoch),
            _ => self.write_over(epoch),
        }
    }

    /// Nothing of a write can happen any more: fences that waited for it alone may begin.
    fn write_over(&mut self, epoch: Epoch) {
        self.fences.ended(epoch);
        while let Some(fence) = self.fences.next_free(epoch.line) {
            self.wake(fence);
        }
    }

    /// A write in hand stands in this line until it is over.
    pub(crate) fn count_write(&mut self, ticket: Ticket, line: u32) {
        let epoch = self.fences.write(line);
        if let Some(entry) = self.entry_mut(ticket) {
            entry.epoch = Some(epoch);
        }
    }

    /// Does a fence in hand have to wait for writes before it in this line? Then it is woken when they are over.
    pub(crate) fn must_follow(&mut self, ticket: Ticket, line: u32) -> bool {
        let epoch = self.fences.fence(line, ticket);
        if let Some(entry) = self.entry_mut(ticket) {
            entry.epoch = epoch;
        }
        epoch.is_some()
    }

    /// Where a request stands; `Free` for an old ticket.
    pub(crate) fn state(&self, ticket: Ticket) -> State {
        self.entry(ticket).map_or(State::Free, |entry| entry.state)
    }

    /// What was asked, of one that is in the table.
    pub(crate) fn asked(&self, ticket: Ticket) -> Option<Asked> {
        self.entry(ticket).map(|entry| entry.asked)
    }

    /// Whose it is.
    pub(crate) fn owner(&self, ticket: Ticket) -> Option<Owner> {
        self.entry(ticket).map(|entry| entry.owner)
    }

    /// Requests that wait in the core alone.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Fences that wait for writes. What would end those would end them: nobody sleeps for a fence's own sake.
    pub(crate) fn following(&self) -> usize {
        self.following
    }

    /// It waits there, and its memory here.
    pub(crate) fn keep(&mut self, ticket: Ticket, at: State, memory: Memory) {
        self.transition(ticket, at);
        self.entries[ticket.index as usize].memory = memory;
    }

    /// The engine had no slot for it: it begins after those that came before it.
    pub(crate) fn put_off(&mut self, ticket: Ticket, memory: Memory) {
        self.keep(ticket, State::Woken, memory);
        match self.called_up.take() == Some(ticket) {
            true => self.woken.push_front(ticket), // It was the first.
            false => self.woken.push_back(ticket),
        }
    }

    /// What it waited for is over: it is to begin again.
    pub(crate) fn wake(&mut self, ticket: Ticket) {
        self.transition(ticket, State::Woken);
        self.woken.push_back(ticket);
        self.is_woken = true;
    }

    /// May something begin again that nobody has tried to?
    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken
    }

    /// The next that is to begin again.
    pub(crate) fn next_woken(&mut self) -> Option<Ticket> {
        self.is_woken = false;
        while let Some(ticket) = self.woken.pop_front() {
            if self.state(ticket) == State::Woken {
                self.called_up = Some(ticket);
                return Some(ticket);
            }
        }
        None
    }

    /// Calls up one that waited, with the memory that was kept.
    pub(crate) fn take_in_hand(&mut self, ticket: Ticket) -> Memory {
        self.transition(ticket, State::InHand);
        std::mem::take(&mut self.entries[ticket.index as usize].memory)
    }

    /// A read that was checked again may have been cut.
    pub(crate) fn set_len(&mut self, ticket: Ticket, len: u64) {
        if let Some(entry) = self.entry_mut(ticket) {
            entry.asked.len = len;
        }
    }

    /// The cache keeps out of its range, by this request.
    pub(crate) fn reserve(&mut self, ticket: Ticket, object: ObjectId, id: cache::RequestId) {
        if let Some(entry) = self.entry_mut(ticket) {
            entry.reserved = Some((object, id));
        }
    }

    /// Notes how many syncs of the file had failed when the fence was submitted.
    pub(crate) fn note_failures(&mut self, ticket: Ticket, failures: u64) {
        if let Some(entry) = self.entry_mut(ticket) {
            entry.failures = failures;
        }
    }

    /// What was asked, if it was a fence, and how many syncs of its file had failed then.
    pub(crate) fn asked_of_fence(&self, ticket: Ticket) -> Option<(Asked, u64)> {
        let entry = self.entry(ticket).filter(|entry| entry.asked.op == SegmentOp::Fence)?;
        Some((entry.asked, entry.failures))
    }

    /// Does the cache keep out of its range?
    pub(crate) fn is_reserved(&self, ticket: Ticket) -> bool {
        self.entry(ticket).is_some_and(|entry| entry.reserved.is_some())
    }

    /// The device is done with it: what kept the cache out is to be given back.
    pub(crate) fn take_reservation(&mut self, ticket: Ticket) -> Option<(ObjectId, cache::RequestId)> {
        self.entry_mut(ticket)?.reserved.take()
    }

    /// Looks at its deadline as long as it is in the core. One that goes to the engine takes it along.
    pub(crate) fn watch(&mut self, ticket: Ticket) {
        let Some(entry) = self.entry(ticket).filter(|entry| entry.state.is_timed_here()) else {
            return;
        };
        let Some(at) = entry.asked.deadline else { return };
        // Those that have ended leave their names; they must not outgrow the table.
        if self.deadlines.len() >= 2 * self.entries.len() {
            let mut deadlines = std::mem::take(&mut self.deadlines);
            deadlines.retain(|&Reverse((_, index, generation))| self.is_timed_here(Ticket { index, generation }));
            self.deadlines = deadlines;
        }
        self.deadlines.push(Reverse((at, ticket.index, ticket.generation)));
    }

    fn is_timed_here(&self, ticket: Ticket) -> bool {
        self.state(ticket).is_timed_here()
    }

    /// The first deadline that the core looks at, and whose it is.
    pub(crate) fn next_deadline(&mut self) -> Option<(Time, Ticket)> {
        while let Some(&Reverse((at, index, generation))) = self.deadlines.peek() {
            let ticket = Ticket { index, generation };
            if self.is_timed_here(ticket) {
                return Some((at, ticket));
            }
            self.deadlines.pop();
        }
        None
    }

    /// Every request that the device may be at work on: those too that nobody waits for any more. What only the page cache has
    /// is not: its I/Os are requests of their own.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (Handle, Range<u64>)> + '_ {
        let at_work = self.entries.iter().filter(|entry| entry.state.is_at_device());
        at_work.map(|entry| (entry.asked.handle, entry.asked.range()))
    }

    /// Callers' writes that the page cache has.
    pub(crate) fn cached_writes(&self) -> usize {
        let is_one = |entry: &&Entry| {
            let in_cache = matches!(entry.state, State::InCache(_) | State::Overdue(_));
            in_cache && entry.asked.op.changes_bytes() && matches!(entry.owner, Owner::Caller)
        };
        self.entries.iter().filter(is_one).count()
    }

    /// Callers' requests that change bytes, and that the device or the page cache has: nothing is asked again before they do so.
    pub(crate) fn changes_under_way(&self) -> impl Iterator<Item = (Handle, SegmentOp)> + '_ {
        let has_begun = |state: State| state.is_at_device() || matches!(state, State::InCache(_) | State::Overdue(_));
        let is_one = move |entry: &&Entry| {
            matches!(entry.owner, Owner::Caller) && entry.asked.op.changes_bytes() && has_begun(entry.state)
        };
        let changes = self.entries.iter().filter(is_one);
        changes.map(|entry| (entry.asked.handle, entry.asked.op))
    }

    /// The same for writes alone, with those that wait in the core, which will begin without asking anybody again.
    pub(crate) fn writes_under_way(&self) -> impl Iterator<Item = (Ticket, Handle, Range<u64>)> + '_ {
        let writes = |(_, entry): &(usize, &Entry)| entry.asked.op.changes_bytes() && entry.state.is_at_device();
        let named = |(index, entry): (usize, &Entry)| {
            let ticket = Ticket {
                index: index as u32,
                generation: entry.generation,
            };
            (ticket, entry.asked.handle, entry.asked.range())
        };
        self.entries.iter().enumerate().filter(writes).map(named)
    }

    /// A caller's request has ended: its outcome waits to be taken, and whoever waits for it is named. `held` by the engine
    /// under this id, when the kernel still has its memory.
    pub(crate) fn finish(&mut self, outcome: Outcome, held: Option<RequestId>) -> Option<Waker> {
        let ticket = outcome.ticket;
        self.transition(ticket, held.map_or(State::Done, State::Answered));
        let entry = &mut self.entries[ticket.index as usize];
        if let Some(status) = entry.status.take() {
            let errno = |error: &crate::error::Error| error.errno().unwrap_or(Errno::EIO);
            status.end(outcome.result.as_ref().copied().map_err(errno));
        }
        entry.outcome.insert(outcome).tag = entry.tag; // Large: it is changed where it stays.
        match &mut entry.taker {
            Taker::Poller(waker) => waker.take(),
            Taker::Anyone => {
                self.finished.push_back(ticket);
                None
            }
        }
    }

    /// Takes the outcome if there is one, else remembers whom to wake.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: Option<Waker>) -> Poll<Option<Outcome>> {
        let state = self.state(ticket);
        if matches!(state, State::Free | State::Left(_)) || state.is_done() {
            self.displaced.extend(waker);
            return Poll::Ready(self.take(ticket));
        }
        if let (Some(waker), Some(entry)) = (waker, self.entry_mut(ticket)) {
            let old = std::mem::replace(&mut entry.taker, Taker::Poller(Some(waker)));
            self.displace(old);
        }
        Poll::Pending
    }

    /// Takes the wakers of all that is under way: whoever waits is to look again.
    pub(crate) fn take_wakers(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.entries.iter_mut().filter_map(|entry| match &mut entry.taker {
            Taker::Poller(waker) => waker.take(),
            Taker::Anyone => None,
        }));
    }

    /// Is there such an outcome?
    pub(crate) fn has_finished(&self) -> bool {
        // What was taken by ticket is dropped from the front, so the first is one.
        !self.finished.is_empty()
    }

    /// The next outcome in the order of completion, of requests that nobody polls for: the queue way to be notified.
    pub(crate) fn next_finished(&mut self) -> Option<Outcome> {
        loop {
            let ticket = self.finished.pop_front()?;
            if self.entry(ticket).is_some_and(|entry| entry.outcome.is_some()) {
                return self.take(ticket); // Large: it is moved once.
            }
        }
    }

    /// Takes the outcome if there is one. The entry is free then, or when the kernel has let go.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Outcome> {
        let entry = self.entry_mut(ticket)?;
        let (outcome, state) = (entry.outcome.take(), entry.state);
        match state {
            _ if outcome.is_none() => return None,
            State::Answered(id) => self.transition(ticket, State::Left(id)),
            _ => self.free(ticket),
        }
        while self.finished.front().is_some_and(|first| !self.state(*first).is_done()) {
            self.finished.pop_front();
        }
        // Tickets taken out of turn leave stale names in the queue; they must not outgrow the table.
        if self.finished.len() > self.entries.len() {
            let entries = &self.entries;
            self.finished
                .retain(|ticket| entries[ticket.index as usize].generation == ticket.generation);
        }
        outcome
    }

    /// Nobody is to be woken for it any more.
    pub(crate) fn forget_waker(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry_mut(ticket) {
            let taker = std::mem::replace(&mut entry.taker, Taker::Anyone);
            self.displace(taker);
        }
    }

    /// The kernel has let go of one that was answered or given up before.
    pub(crate) fn released(&mut self, ticket: Ticket) {
        match self.state(ticket) {
            State::Answered(_) => self.transition(ticket, State::Done),
            _ => {
                let is_callers = matches!(self.owner(ticket), Some(Owner::Caller));
                if let Some(let_go) = self.let_go.as_mut().filter(|_| is_callers) {
                    let_go.push_back(ticket);
                }
                self.free(ticket);
            }
        }
    }

    /// The next of those that the kernel has let go of after they had been answered and taken, or given up. They are noted from the first call on.
    pub(crate) fn next_let_go(&mut self) -> Option<Ticket> {
        self.let_go.get_or_insert_default().pop_front()
    }

    /// Nothing is left to be told.
    pub(crate) fn free(&mut self, ticket: Ticket) {
        // What goes back to its caller at once has left as much room as it found.
        let had_begun = self.entry(ticket).is_some_and(|entry| entry.state != State::InHand);
        self.given_back += u64::from(had_begun);
        self.transition(ticket, State::Free);
        let entry = &mut self.entries[ticket.index as usize];
        entry.status = None;
        entry.generation = (entry.generation.wrapping_add(1) & Ticket::GENERATION_MASK).max(1);
        let taker = std::mem::replace(&mut entry.taker, Taker::Anyone);
        self.free.push(ticket.index);
        self.displace(taker);
    }

    /// The engine has a slot more for a request, by the end of something that had no entry.
    pub(crate) fn slot_came_free(&mut self) {
        self.given_back += 1;
    }

    fn displace(&mut self, taker: Taker) {
        if let Taker::Poller(waker) = taker {
            self.displaced.extend(waker);
        }
    }

    /// Are there wakers to be dropped?
    pub(crate) fn has_displaced(&self) -> bool {
        !self.displaced.is_empty()
    }

    /// Hands over the wakers that are to be dropped.
    pub(crate) fn take_displaced(&mut self, into: &mut Vec<Waker>) {
        into.append(&mut self.displaced);
    }

    fn entry(&self, ticket: Ticket) -> Option<&Entry> {
        self.entries
            .get(ticket.index as usize)
            .filter(|entry| entry.generation == ticket.generation && entry.state != State::Free)
    }

    fn entry_mut(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        self.entries
            .get_mut(ticket.index as usize)
            .filter(|entry| entry.generation == ticket.generation && entry.state != State::Free)
    }
}

impl Outcome {
    /// The end of a request that never reached an engine. Its tag is for the caller to fill in.
    #[must_use]
    pub fn early(ticket: Ticket, memory: Memory, result: Result<u32>) -> Outcome {
        Outcome {
            ticket,
            tag: 0,
            result,
            bytes_done: 0,
            memory,
            took: Caching::Direct,
            iterations: 0,
            pin: None,
        }
    }

    /// The end that the engine told, as this result.
    pub(crate) fn told(ticket: Ticket, completion: Completion, result: Result<u32>) -> Outcome {
        Outcome {
            bytes_done: completion.bytes_done,
            took: completion.took,
            iterations: completion.iterations,
            ..Outcome::early(ticket, completion.memory, result)
        }
    }
}

#[cfg(test)]
mod tests;
