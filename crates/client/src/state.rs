//! What lies behind the client's one lock. Plain data: it calls nobody but parkers.

use std::sync::Arc;

use baio_ring::exchange::Parcel;
use baio_ring::ring::Cursor;
use baio_words::entry::HandleWords;
use baio_words::{Handle, IoError, RequestFault};

use crate::carrier::{Between, Carrier};
use crate::event::Event;
use crate::parker::Parker;
use crate::sync::MutexGuard;
use crate::table::Table;

pub(crate) struct State<K: Carrier> {
    pub(crate) table: Table<K>,
    /// The carrier's.
    pub(crate) kept: K::Kept,
    pub(crate) submissions: Cursor,
    pub(crate) completions: Cursor,
    /// Somebody sleeps on the bell.
    pub(crate) sleeper: bool,
    /// That one was asked to look at the queue, and has not done so yet.
    pub(crate) nudged: bool,
    /// Parked threads that can take the role; with whether any outcome will do for them.
    pub(crate) followers: Vec<(Arc<Parker<K>>, bool)>,
    pub(crate) parkers: Vec<Arc<Parker<K>>>,
    pub(crate) helper: Helper<K>,
    /// Opened segments, for messages.
    pub(crate) names: Vec<(Handle, String)>,
    /// Handles to be closed as soon as there is room in the ring.
    pub(crate) closing: Vec<HandleWords>,
    /// What lies between this client and its service now, where that is not its first: the rings of it. Exchange and bell stay the first one's.
    pub(crate) line: Option<Arc<Between<K>>>,
    /// The service has ended, and another is being looked for: nothing is sent and nothing comes.
    pub(crate) is_down: bool,
    /// What nobody wants any more, to be dropped when the lock is free: that may run anybody's code.
    pub(crate) litter: Vec<Parcel<K::Memory, K::Command, K::Reply>>,
    /// Of a program that sleeps in a loop of its own.
    pub(crate) event: Option<Event>,
}

pub(crate) type Guard<'a, K> = MutexGuard<'a, State<K>>;

impl<K: Carrier> State<K> {
    pub(crate) fn new(shared: &Arc<Between<K>>, kept: K::Kept) -> State<K> {
        State {
            table: Table::new(shared.exchange.places()),
            kept,
            submissions: Cursor::default(),
            completions: Cursor::default(),
            sleeper: false,
            nudged: false,
            followers: Vec::new(),
            parkers: Vec::new(),
            helper: Helper::new(shared),
            names: Vec::new(),
            closing: Vec::new(),
            line: None,
            is_down: false,
            litter: Vec::new(),
            event: None,
        }
    }

    /// What a forked child has: nothing is under way, nothing is taken, and no ring is looked at.
    pub(crate) fn of_a_child(shared: &Arc<Between<K>>) -> State<K> {
        let mut state = State::new(shared, K::Kept::default());
        state.table.closed = Some(RequestFault::Io(IoError::Forked));
        state.is_down = true;
        state
    }

    /// Is there anything to be done with the lock free?
    pub(crate) fn has_to_leave(&self) -> bool {
        self.table.has_fired() || !self.litter.is_empty()
    }

    /// Makes the descriptor say what is true: an outcome lies there that nobody awaits, or nothing is taken any more and nothing is under way.
    pub(crate) fn tell_event(&mut self) {
        let Some(event) = &mut self.event else { return };
        let has_ended = self.table.closed.is_some() && self.table.in_flight() == 0;
        event.tell(has_ended || self.table.finished() > 0);
    }

    /// Must the helper reap when nobody else does? Beside a descriptor always: it tells of the service's end too.
    pub(crate) fn needs_helper(&self) -> bool {
        self.event.is_some() || self.table.needs_helper()
    }

    pub(crate) fn take_parker(&mut self, shared: &Arc<Between<K>>) -> Arc<Parker<K>> {
        self.parkers.pop().unwrap_or_else(|| Parker::new(shared))
    }

    pub(crate) fn give_parker(&mut self, parker: Arc<Parker<K>>) {
        self.parkers.push(parker);
    }
}

/// What others know of the helper thread.
pub(crate) struct Helper<K: Carrier> {
    pub(crate) parker: Arc<Parker<K>>,
    pub(crate) started: bool,
    pub(crate) dismissed: bool,
}

impl<K: Carrier> Helper<K> {
    pub(crate) fn new(shared: &Arc<Between<K>>) -> Helper<K> {
        Helper {
            parker: Parker::new(shared),
            started: false,
            dismissed: false,
        }
    }

    /// Has it look again, if there is one.
    pub(crate) fn call(&self) {
        if self.started {
            self.parker.ring();
        }
    }
}
