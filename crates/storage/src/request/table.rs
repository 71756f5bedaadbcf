//! The table in which a core keeps its requests until somebody takes their outcome.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::{Poll, Waker};

use baio_engine::{Completion, Errno, RequestId};

use super::{Handle, Outcome, PinnedPage, SegmentOp, SegmentRequest, StatusWord, Ticket};
use crate::error::Result;

/// Where an entry of the table stands.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each request")]
enum EntryState {
    /// Nobody uses it.
    Free,
    /// Under way: with the engine, or with the page cache.
    InFlight,
    /// Ended; the outcome waits to be taken.
    Done(Outcome),
    /// Nobody will take the outcome, or somebody has; freed when the request has ended and the engine has let go.
    Abandoned,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    state: EntryState,
    /// The engine's request, as long as the engine has it: also when it was abandoned, or answered at its deadline.
    engine: Option<RequestId>,
    handle: Handle,
    op: SegmentOp,
    /// The bytes of the segment that it touches.
    range: Range<u64>,
    /// It waits for a hold: the engine has an event in its place.
    parked: bool,
    waker: Option<Waker>,
    status: Option<StatusWord>,
    tag: u64,
    /// Somebody polls for this very request, so its outcome is not for the queue.
    awaited: bool,
}

impl Entry {
    /// `core` makes the tickets of one core strangers on another; 0 is no generation, so that a default ticket names nothing.
    fn free(core: u32) -> Entry {
        Entry {
            generation: core.wrapping_mul(0x9e37_79b1) & Ticket::GENERATION_MASK | 1,
            state: EntryState::Free,
            engine: None,
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
        entry.state = EntryState::InFlight;
        entry.engine = None;
        entry.handle = request.handle;
        entry.op = request.op;
        entry.range = request.range();
        entry.parked = false;
        entry.tag = request.tag;
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
            entry.engine = Some(id);
        }
    }

    /// The engine's request, of one that has not been answered.
    pub(crate) fn engine_id(&mut self, ticket: Ticket) -> Option<RequestId> {
        let entry = self.entry(ticket)?;
        entry.engine.filter(|_| matches!(entry.state, EntryState::InFlight))
    }

    /// The engine has let go of a request and given its memory back.
    pub(crate) fn left_engine(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.engine = None;
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
            abandoned: matches!(entry.state, EntryState::Abandoned),
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
            entry.engine = Some(id);
            entry.range = range;
            entry.parked = false;
        }
    }

    /// Every request that the device may be at work on: those too that nobody waits for any more. What only the page cache has
    /// is not: its I/Os are requests of their own.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (Handle, Range<u64>)> + '_ {
        let forgets = crate::seeded_bug("who-was-abandoned-is-on-the-device");
        let is_left = move |entry: &Entry| forgets && matches!(entry.state, EntryState::Abandoned);
        let busy = move |entry: &&Entry| (entry.engine.is_some() || is_left(entry)) && !entry.parked;
        let at_work = self.entries.iter().filter(busy);
        at_work.map(|entry| (entry.handle, entry.range.clone()))
    }

    /// The same for writes alone, with those that are parked, which will begin without asking anybody again.
    pub(crate) fn writes_under_way(&self) -> impl Iterator<Item = (Ticket, Handle, Range<u64>)> + '_ {
        let writes =
            |(_, entry): &(usize, &Entry)| matches!(entry.op, SegmentOp::Write { .. }) && entry.engine.is_some();
        let named = |(index, entry): (usize, &Entry)| {
            let ticket = Ticket {
                index: index as u32,
                generation: entry.generation,
            };
            (ticket, entry.handle, entry.range.clone())
        };
        self.entries.iter().enumerate().filter(writes).map(named)
    }

    /// A request has ended: its outcome waits to be taken, and whoever waits for it is named.
    pub(crate) fn finish(&mut self, ticket: Ticket, completion: Completion, result: Result<u32>) -> Option<Waker> {
        let entry = self.entry(ticket)?;
        if let Some(status) = entry.status.take() {
            let errno = |error: &crate::error::Error| error.errno().unwrap_or(Errno::EIO);
            status.end(result.as_ref().copied().map_err(errno));
        }
        if matches!(entry.state, EntryState::Abandoned) {
            if entry.engine.is_none() {
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
            pin: None,
        };
        let waker = entry.waker.take();
        entry.state = EntryState::Done(outcome);
        if !entry.awaited {
            self.finished.push_back(ticket);
        }
        waker
    }

    /// Puts a pin into an outcome that waits to be taken; gives it back if nobody will.
    pub(crate) fn give_pin(&mut self, ticket: Ticket, pin: PinnedPage) -> std::result::Result<(), PinnedPage> {
        match self.entry(ticket).map(|entry| &mut entry.state) {
            Some(EntryState::Done(outcome)) => {
                outcome.pin = Some(pin);
                Ok(())
            }
            _ => Err(pin),
        }
    }

    /// Takes it out of there again.
    pub(crate) fn take_pin(&mut self, ticket: Ticket) -> Option<PinnedPage> {
        match &mut self.entry(ticket)?.state {
            EntryState::Done(outcome) => outcome.pin.take(),
            _ => None,
        }
    }

    /// Takes the outcome if there is one, else remembers whom to wake.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: Option<Waker>) -> Poll<Option<Outcome>> {
        let Some(entry) = self
            .entry(ticket)
            .filter(|entry| !matches!(entry.state, EntryState::Abandoned))
        else {
            self.displaced.extend(waker);
            return Poll::Ready(None);
        };
        if matches!(entry.state, EntryState::InFlight) {
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
        // What was taken by ticket is dropped from the front, so the first is one.
        !self.finished.is_empty()
    }

    fn waits_to_be_taken(&self, ticket: Ticket) -> bool {
        let entry = self.entries.get(ticket.index as usize);
        entry.is_some_and(|entry| entry.generation == ticket.generation && matches!(entry.state, EntryState::Done(_)))
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
        if !matches!(entry.state, EntryState::Done(_)) {
            return None;
        }
        let EntryState::Done(outcome) = std::mem::replace(&mut entry.state, EntryState::Abandoned) else {
            return None;
        };
        if entry.engine.is_none() {
            self.release(ticket);
        }
        while self
            .finished
            .front()
            .is_some_and(|first| !self.waits_to_be_taken(*first))
        {
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
            EntryState::InFlight => {
                entry.state = EntryState::Abandoned;
                entry.engine
            }
            EntryState::Done(_) => {
                drop(self.take(ticket));
                None
            }
            EntryState::Free | EntryState::Abandoned => None,
        }
    }

    /// The engine has let go of a request that was abandoned, or answered at its deadline.
    pub(crate) fn released(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.engine = None;
            if matches!(entry.state, EntryState::Abandoned) {
                self.release(ticket);
            }
        }
    }

    fn release(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.state = EntryState::Free;
            entry.engine = None;
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
            .filter(|entry| entry.generation == ticket.generation && !matches!(entry.state, EntryState::Free))
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Status;
    use baio_engine::{Caching, Memory};

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
        assert!(!requests.has_finished());
    }

    /// What is taken by ticket, in any order, leaves nothing that would have to be looked through.
    #[test]
    fn stale_names_do_not_stand_before_what_waits() {
        let mut requests = Requests::new(8, 1);
        let tickets: Vec<Ticket> = (0..6).map(|tag| requests.insert(&request(tag)).unwrap()).collect();
        for ticket in &tickets {
            requests.finish(*ticket, completion(), Ok(1));
        }
        for taken in [1, 0, 2, 4] {
            assert!(requests.has_finished());
            assert!(requests.poll(tickets[taken], None).is_ready());
        }
        assert_eq!(requests.finished.front(), Some(&tickets[3]));
        requests.abandon(tickets[3]);
        assert_eq!(requests.finished.front(), Some(&tickets[5]));
        requests.abandon(tickets[5]);
        assert!(!requests.has_finished() && requests.finished.is_empty());
    }

    #[test]
    fn only_what_the_engine_has_is_in_flight_however_it_was_given_up() {
        let mut requests = Requests::new(4, 1);
        let [cached, abandoned, answered] = [1, 2, 3].map(|tag| requests.insert(&request(tag)).unwrap());
        for ticket in [abandoned, answered] {
            requests.set_engine_id(ticket, RequestId::default());
        }
        assert_eq!(requests.in_flight().count(), 2);
        assert!(requests.abandon(cached).is_none() && requests.abandon(abandoned).is_some());
        requests.finish(answered, completion(), Ok(0));
        assert!(requests.poll(answered, None).is_ready());
        assert_eq!(requests.in_flight().count(), 2);
        for ticket in [abandoned, answered] {
            requests.released(ticket);
        }
        assert_eq!((requests.in_flight().count(), requests.free.len()), (0, 3));
        requests.finish(cached, completion(), Ok(0));
        assert_eq!(requests.free.len(), 4);
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
