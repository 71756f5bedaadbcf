//! The client's table of requests: which are waited for and by which waker, which must still be sent, which have ended. It is plain data
//! behind the client's one lock, and calls no code of others: wakers to be woken or dropped are returned, for when the lock is free.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Waker};

use baio_words::entry::{RawSubmission, Tag};
use baio_words::{Errno, Handle, Outcome, RequestError, RequestFault, SegmentOp, StatusWord, Ticket, Time};

use crate::carrier::Carrier;
use crate::memory::ForMemory;
use crate::unsynced::Counted;
use crate::waiters::{WaitPlace, Waiters};

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A request, with the length of its memory.
    Request { op: SegmentOp, handle: Handle, len: u32 },
    /// A command.
    Command,
}

/// How it ended.
pub enum Ended<K: Carrier> {
    /// A request.
    Request(Outcome<K::Memory>),
    /// A command, with its answer unless the service has ended.
    Command(Result<K::Reply, RequestError>),
}

/// Where an entry stands.
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for each request")]
enum Stage<K: Carrier> {
    /// Nobody uses it.
    Free,
    /// Its words wait to be sent.
    Queued,
    /// The service has it.
    Sent,
    /// It has ended; the outcome waits to be taken.
    Done(Ended<K>),
    /// The service has it, and nobody will take the outcome.
    Abandoned,
}

pub(crate) struct Entry<K: Carrier> {
    generation: u32,
    stage: Stage<K>,
    kind: Kind,
    pub(crate) raw: RawSubmission,
    tag: u64,
    status: Option<StatusWord>,
    waker: Option<Waker>,
    /// Somebody waits for this very request, so its outcome is not for the queue.
    awaited: bool,
    /// Its outcome lies in the queue, and nobody has taken it.
    untaken: bool,
    /// Who reaps for it: [`HELPER`], or a thread inside of `block_on` or `wait`.
    reaper: u64,
    /// The caller's own memory, where other went in its place.
    pub(crate) behind: Option<K::Memory>,
    /// What its end means for cached writes that are not synced.
    pub(crate) counted: Option<Counted>,
    /// Its caller asked that it end early.
    pub(crate) called_off: bool,
}

/// The helper thread's number as a reaper.
pub(crate) const HELPER: u64 = 0;

/// Which places something may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// All but one, which is kept for the end: so a client whose outcomes nobody takes can still end.
    Usual,
    /// That one too: for who ends, on one thread, one thing after the other. No wake tells that it is free.
    Last,
}

/// Where a request stood when it was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It had ended, or was none.
    Ended,
    /// The service had not seen it.
    Queued,
    /// The service has it.
    Sent,
}

/// What an entry was, for whoever ends it.
pub(crate) struct Ending {
    pub(crate) kind: Kind,
    pub(crate) tag: u64,
    pub(crate) abandoned: bool,
}

pub(crate) struct Table<K: Carrier> {
    entries: Box<[Entry<K>]>,
    free: Vec<u32>,
    /// What has yet to be sent, in order; an entry abandoned meanwhile leaves a stale name.
    queue: VecDeque<Ticket>,
    finished: VecDeque<Ticket>,
    /// Of these, those that nobody has taken by their ticket meanwhile.
    untaken: usize,
    /// Who found every place taken.
    room: Waiters,
    /// Who found no memory that the service can be shown.
    pub(crate) memory: ForMemory,
    /// To be woken when the lock is free.
    pub(crate) fired: Vec<Waker>,
    /// Lists that were used for that before, so that nothing is allocated.
    spare: Vec<Vec<Waker>>,
    /// Sent or queued.
    in_flight: usize,
    /// Of these: awaited by somebody for whom the helper reaps.
    helped: usize,
    /// Of these: awaited by anybody.
    awaited: usize,
    /// Of these: given up.
    abandoned: usize,
    /// Outcomes that ever came.
    pub(crate) reaped: u64,
    /// Why nothing is taken any more.
    pub(crate) closed: Option<RequestFault>,
}

impl<K: Carrier> Table<K> {
    /// One place fewer than `places` for requests: the last is for the end ([`Places::Last`]).
    pub(crate) fn new(places: u32) -> Table<K> {
        static CLIENTS: AtomicU32 = AtomicU32::new(1);
        // Tickets of one client are strangers on another; 0 is no generation.
        let generation = CLIENTS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b1) | 1;
        let entry = || Entry {
            generation,
            stage: Stage::Free,
            kind: Kind::Command,
            raw: RawSubmission::default(),
            tag: 0,
            status: None,
            waker: None,
            awaited: false,
            untaken: false,
            reaper: HELPER,
            behind: None,
            counted: None,
            called_off: false,
        };
        let count = places as usize;
        Table {
            entries: (0..count).map(|_| entry()).collect(),
            free: (0..places).rev().collect(),
            queue: VecDeque::with_capacity(2 * count),
            finished: VecDeque::with_capacity(2 * count),
            untaken: 0,
            room: Waiters::default(),
            memory: ForMemory::default(),
            fired: Vec::with_capacity(count),
            spare: Vec::with_capacity(8),
            in_flight: 0,
            helped: 0,
            awaited: 0,
            abandoned: 0,
            reaped: 0,
            closed: None,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn finished(&self) -> usize {
        self.untaken
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Must the helper reap when nobody else does?
    pub(crate) fn needs_helper(&self) -> bool {
        self.helped + self.abandoned + self.room.len() > 0 || !self.memory.is_empty()
    }

    /// Takes a place.
    pub(crate) fn reserve(&mut self, places: Places) -> Option<Tag> {
        let kept = match places {
            Places::Usual => 1,
            Places::Last => 0,
        };
        if self.free.len() <= kept {
            return None;
        }
        let index = self.free.pop()?;
        let generation = self.entries[index as usize].generation;
        Some(Tag { index, generation })
    }

    /// Fills a place that was reserved, and queues it.
    pub(crate) fn queue(
        &mut self,
        tag: Tag,
        kind: Kind,
        raw: RawSubmission,
        user_tag: u64,
        status: Option<StatusWord>,
    ) -> Ticket {
        let ticket = self.occupy(tag, kind, user_tag, status);
        self.entries[tag.index as usize].raw = raw;
        if self.queue.len() == self.queue.capacity() {
            let entries = &self.entries;
            self.queue.retain(|ticket| is_queued(entries, *ticket));
        }
        self.queue.push_back(ticket);
        ticket
    }

    /// Fills a place without queuing it: it is about to end.
    pub(crate) fn occupy(&mut self, tag: Tag, kind: Kind, user_tag: u64, status: Option<StatusWord>) -> Ticket {
        let entry = &mut self.entries[tag.index as usize];
        entry.stage = Stage::Queued;
        entry.kind = kind;
        entry.tag = user_tag;
        (entry.awaited, entry.called_off) = (false, false);
        if let Some(status) = &status {
            status.begin();
        }
        entry.status = status;
        self.in_flight += 1;
        Ticket::from_parts(tag.index, tag.generation)
    }

    /// A request under way is sent once more, with these words; it keeps its place in the queue if it has one.
    pub(crate) fn send_again(&mut self, ticket: Ticket, raw: RawSubmission, behind: Option<K::Memory>) {
        let Some(entry) = self.entry(ticket) else { return };
        entry.raw = raw;
        entry.behind = behind;
        if matches!(entry.stage, Stage::Sent) {
            entry.stage = Stage::Queued;
            self.queue.push_back(ticket);
        }
    }

    /// A command that its carrier was given and could not send waits again as it is, in front of those that came later.
    pub(crate) fn take_back(&mut self, place: u32) {
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return;
        };
        if matches!(entry.stage, Stage::Sent) {
            entry.stage = Stage::Queued;
            self.queue.push_front(Ticket::from_parts(place, entry.generation));
        }
    }

    /// The next words to be sent.
    pub(crate) fn next_to_send(&mut self) -> Option<(Ticket, Kind, &RawSubmission)> {
        while let Some(&ticket) = self.queue.front() {
            if is_queued(&self.entries, ticket) {
                let entry = &self.entries[ticket.parts().0 as usize];
                return Some((ticket, entry.kind, &entry.raw));
            }
            self.queue.pop_front();
        }
        None
    }

    pub(crate) fn sent(&mut self, ticket: Ticket) {
        self.queue.pop_front();
        if let Some(entry) = self.entry(ticket) {
            entry.stage = Stage::Sent;
        }
    }

    pub(crate) fn entry(&mut self, ticket: Ticket) -> Option<&mut Entry<K>> {
        let (index, generation) = ticket.parts();
        self.entries
            .get_mut(index as usize)
            .filter(|entry| entry.generation == generation && !matches!(entry.stage, Stage::Free))
    }

    /// Has the service been sent this request, and has it not ended?
    pub(crate) fn is_sent(&mut self, ticket: Ticket) -> bool {
        self.entry(ticket)
            .is_some_and(|entry| matches!(entry.stage, Stage::Sent))
    }

    /// Is it a command?
    pub(crate) fn is_command(&mut self, ticket: Ticket) -> bool {
        self.entry(ticket)
            .is_some_and(|entry| matches!(entry.kind, Kind::Command))
    }

    /// An entry is about to end. `None` when no such request is under way.
    pub(crate) fn ending(&mut self, ticket: Ticket) -> Option<Ending> {
        let entry = self.entry(ticket)?;
        let abandoned = match entry.stage {
            Stage::Queued | Stage::Sent => false,
            Stage::Abandoned => true,
            Stage::Free | Stage::Done(_) => return None,
        };
        Some(Ending {
            kind: entry.kind,
            tag: entry.tag,
            abandoned,
        })
    }

    /// Every request under way, with whether the service may have it.
    pub(crate) fn under_way(&self, from: u32) -> Option<(Ticket, bool)> {
        let rest = self.entries.iter().enumerate().skip(from as usize);
        for (index, entry) in rest {
            let sent = match entry.stage {
                Stage::Sent | Stage::Abandoned => true,
                Stage::Queued => false,
                Stage::Free | Stage::Done(_) => continue,
            };
            return Some((Ticket::from_parts(index as u32, entry.generation), sent));
        }
        None
    }

    /// An entry that was abandoned has ended. Whoever watches its status word still wants to know.
    pub(crate) fn end_abandoned(&mut self, ticket: Ticket, result: impl FnOnce() -> std::result::Result<u32, Errno>) {
        self.tell(ticket, result);
        self.abandoned = self.abandoned.saturating_sub(1);
        self.leave_flight(ticket);
        self.release(ticket);
    }

    fn tell(&mut self, ticket: Ticket, result: impl FnOnce() -> std::result::Result<u32, Errno>) {
        if let Some(status) = self.entry(ticket).and_then(|entry| entry.status.take()) {
            status.end(result());
        }
    }

    /// A request has ended. True when its outcome is for the queue.
    pub(crate) fn end(&mut self, ticket: Ticket, ended: Ended<K>) -> bool {
        self.leave_flight(ticket);
        self.reaped += 1;
        let Some(entry) = self.entry(ticket) else {
            return false;
        };
        if let (Some(status), Ended::Request(outcome)) = (entry.status.take(), &ended) {
            let errno = |error: &RequestError| error.fault.errno();
            status.end(outcome.result.as_ref().copied().map_err(errno));
        }
        let for_queue = !entry.awaited && matches!(ended, Ended::Request(_));
        entry.stage = Stage::Done(ended);
        let waker = entry.waker.take();
        entry.untaken = for_queue;
        self.fired.extend(waker);
        if for_queue {
            self.untaken += 1;
            if self.finished.len() == self.finished.capacity() {
                let entries = &self.entries;
                self.finished
                    .retain(|ticket| entries[ticket.parts().0 as usize].generation == ticket.parts().1);
            }
            self.finished.push_back(ticket);
            self.tell_if_none_will_come();
        }
        for_queue
    }

    fn leave_flight(&mut self, ticket: Ticket) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.set_awaited(ticket, None);
    }

    /// Who reaps for an entry under way; `None` when nobody awaits it.
    fn set_awaited(&mut self, ticket: Ticket, reaper: Option<u64>) {
        let Some(entry) = self.entry(ticket) else {
            return;
        };
        let before = entry.waker.is_some().then_some(entry.reaper);
        if let Some(reaper) = reaper {
            entry.reaper = reaper;
        }
        let count = |who: Option<u64>| (usize::from(who.is_some()), usize::from(who == Some(HELPER)));
        let ((was, was_helped), (is, is_helped)) = (count(before), count(reaper));
        self.awaited = self.awaited + is - was;
        self.helped = self.helped + is_helped - was_helped;
    }

    /// Takes the outcome if it has ended; else remembers whom to wake. What is left in `waker` is to be dropped when the
    /// lock is free: dropping or cloning one may run anybody's code.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &mut Option<Waker>, reaper: u64) -> Poll<Option<Ended<K>>> {
        let Some(entry) = self.entry(ticket) else {
            return Poll::Ready(None);
        };
        match entry.stage {
            Stage::Queued | Stage::Sent => {
                self.set_awaited(ticket, Some(reaper));
                let entry = &mut self.entries[ticket.parts().0 as usize];
                entry.awaited = true;
                if let Some(new) = waker.take() {
                    *waker = entry.waker.replace(new);
                }
                Poll::Pending
            }
            Stage::Done(_) => Poll::Ready(self.take(ticket)),
            Stage::Free | Stage::Abandoned => Poll::Ready(None),
        }
    }

    /// The same for whoever has asked before with the same waker: nothing is cloned. `None`: that waker is not remembered yet.
    pub(crate) fn poll_again(&mut self, ticket: Ticket, waker: &Waker, reaper: u64) -> Option<Poll<Option<Ended<K>>>> {
        let Some(entry) = self.entry(ticket) else {
            return Some(Poll::Ready(None));
        };
        match entry.stage {
            Stage::Queued | Stage::Sent => {
                if !entry.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                    return None;
                }
                self.set_awaited(ticket, Some(reaper));
                Some(Poll::Pending)
            }
            Stage::Done(_) => Some(Poll::Ready(self.take(ticket))),
            Stage::Free | Stage::Abandoned => Some(Poll::Ready(None)),
        }
    }

    /// Somebody awaits what was begun in this moment. True: the helper reaps for him.
    pub(crate) fn await_new(&mut self, ticket: Ticket, awaits: Option<(Waker, u64)>) -> bool {
        let Some((waker, reaper)) = awaits else {
            return false;
        };
        // Nobody else knows the ticket: it displaces no waker.
        let polled = self.poll(ticket, &mut Some(waker), reaper);
        polled.is_pending() && reaper == HELPER
    }

    fn take(&mut self, ticket: Ticket) -> Option<Ended<K>> {
        let entry = self.entry(ticket)?;
        if !matches!(entry.stage, Stage::Done(_)) {
            return None;
        }
        let Stage::Done(ended) = std::mem::replace(&mut entry.stage, Stage::Abandoned) else {
            return None;
        };
        if std::mem::take(&mut entry.untaken) {
            self.untaken = self.untaken.saturating_sub(1);
        }
        self.release(ticket);
        Some(ended)
    }

    /// The next outcome in the order of completion, of requests that nobody awaits.
    pub(crate) fn next_finished(&mut self) -> Option<Outcome<K::Memory>> {
        while let Some(ticket) = self.finished.pop_front() {
            if let Some(Ended::Request(outcome)) = self.take(ticket) {
                return Some(outcome);
            }
        }
        None
    }

    /// Nobody will take the outcome. What is given back with the answer is to be dropped when the lock is free.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> (Left, Option<Waker>, Option<Ended<K>>) {
        let Some(entry) = self.entry(ticket) else {
            return (Left::Ended, None, None);
        };
        let left = match entry.stage {
            Stage::Sent => Left::Sent,
            Stage::Queued => Left::Queued,
            Stage::Done(_) => return (Left::Ended, None, self.take(ticket)),
            Stage::Free | Stage::Abandoned => return (Left::Ended, None, None),
        };
        self.set_awaited(ticket, None);
        let entry = &mut self.entries[ticket.parts().0 as usize];
        let waker = entry.waker.take();
        if left == Left::Sent {
            entry.stage = Stage::Abandoned;
            self.abandoned += 1;
        } else {
            self.in_flight = self.in_flight.saturating_sub(1);
            self.tell(ticket, || Err(Errno::ECANCELED));
            self.release(ticket);
        }
        (left, waker, None)
    }

    fn release(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            entry.stage = Stage::Free;
            entry.status = None;
            entry.counted = None;
            let waker = entry.waker.take();
            entry.generation = entry.generation.wrapping_add(1).max(1);
            self.fired.extend(waker);
            self.free.push(ticket.parts().0);
            self.room.wake_next(1, &mut self.fired);
            self.tell_if_none_will_come();
        }
    }

    /// Wakes `waker` when a place has come free for it, and at `until`. Gives back a copy that is not needed.
    pub(crate) fn wait_for_room(
        &mut self,
        place: &mut Option<WaitPlace>,
        waker: Waker,
        until: Option<Time>,
    ) -> Option<Waker> {
        self.room.wait(place, waker, until)
    }

    /// When the first of those who wait for a place, or for memory, gives up.
    pub(crate) fn room_until(&self) -> Option<Time> {
        earlier(self.room.until(), self.memory.until())
    }

    /// Wakes whoever has waited for a place or for memory long enough.
    pub(crate) fn wake_late(&mut self, now: impl FnOnce() -> Time) {
        if self.room_until().is_some() {
            let now = now();
            self.room.wake_late(now, &mut self.fired);
            self.memory.call_late(now, &mut self.fired);
        }
    }

    /// Is there a place for a request?
    pub(crate) fn has_room(&self) -> bool {
        self.free.len() > 1
    }

    /// Is there a place that is taken, and not by an outcome that nobody awaits?
    pub(crate) fn is_any_awaited(&self) -> bool {
        self.free.len() + self.untaken < self.entries.len()
    }

    /// Is every place that is taken held by an outcome that nobody awaits, so that no place comes by itself?
    pub(crate) fn is_full_of_untaken(&self) -> bool {
        self.free.len() + self.untaken == self.entries.len()
    }

    /// Who waited for a place has it. Gives back its waker, to be dropped when the lock is free.
    #[must_use]
    pub(crate) fn room_taken(&mut self, place: WaitPlace) -> Option<Waker> {
        self.room.served(place)
    }

    /// Whoever waited for a place does so no more; a wake that it has had is the next one's.
    #[must_use]
    pub(crate) fn leave_room(&mut self, place: WaitPlace) -> Option<Waker> {
        self.room.leave(place, &mut self.fired)
    }

    /// Wakes whoever awaits anything, to look again.
    pub(crate) fn wake_awaited(&mut self) {
        for entry in &mut self.entries {
            if let Some(waker) = entry.waker.take() {
                self.fired.push(waker);
                self.awaited = self.awaited.saturating_sub(1);
                self.helped = self.helped.saturating_sub(usize::from(entry.reaper == HELPER));
            }
        }
        self.wake_room();
    }

    /// Whoever waits for a place need not, when there is one, or never will be.
    pub(crate) fn wake_if_room(&mut self) {
        match self.closed {
            Some(_) => self.wake_room(),
            None => self.room.wake_next(self.free.len().saturating_sub(1), &mut self.fired),
        }
    }

    /// Everybody who waits for a place, or for memory, is to look again.
    pub(crate) fn wake_room(&mut self) {
        self.room.wake_all(&mut self.fired);
        self.memory.call_all(&mut self.fired);
    }

    /// A thread stops reaping for what it has awaited: the helper does from now on.
    pub(crate) fn leave_to_helper(&mut self, reaper: u64) {
        if self.awaited == self.helped {
            return;
        }
        for entry in &mut self.entries {
            let under_way = matches!(entry.stage, Stage::Queued | Stage::Sent);
            if under_way && entry.waker.is_some() && entry.reaper == reaper {
                entry.reaper = HELPER;
                self.helped += 1;
            }
        }
    }

    pub(crate) fn has_fired(&self) -> bool {
        !self.fired.is_empty()
    }

    /// The wakers to be woken; give the list back.
    pub(crate) fn take_fired(&mut self) -> Vec<Waker> {
        let empty = self.spare.pop().unwrap_or_default();
        std::mem::replace(&mut self.fired, empty)
    }

    pub(crate) fn give_back(&mut self, list: Vec<Waker>) {
        if self.spare.len() < self.spare.capacity() {
            self.spare.push(list);
        }
    }
}

fn is_queued<K: Carrier>(entries: &[Entry<K>], ticket: Ticket) -> bool {
    let entry = &entries[ticket.parts().0 as usize];
    entry.generation == ticket.parts().1 && matches!(entry.stage, Stage::Queued)
}

/// The first of two moments, where none is never.
pub(crate) fn earlier<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
