//! Waiting for room: a task that found the table full is woken when a place is free for it, and one that found no memory when some has
//! come back (`memory.rs`).

use std::sync::Arc;
use std::task::Waker;

use baio_words::Time;

use crate::carrier::Carrier;
use crate::client::Client;
use crate::state::State;
use crate::table::Table;
use crate::waiters::WaitPlace;

impl<K: Carrier> Client<K> {
    /// Wakes `waker` when a place has come free for it, or never will, and at `until`. Who has the place that it is given here
    /// says so when it has what it waited for ([`Client::room_taken`]), or wants it no more ([`Client::leave_room`]).
    pub fn wake_when_room(self: &Arc<Self>, place: &mut Option<WaitPlace>, waker: &Waker, until: Option<Time>) {
        let waker = waker.clone();
        let mut state = self.lock();
        let left = state.table.wait_for_room(place, waker, until);
        // Whoever sleeps there does so for too long perhaps.
        let nudge = until.is_some() && state.sleeper;
        // Room may have come, or the end, since the caller was refused.
        let ring = self.flush(&mut state);
        state.drain(&self.shared, &self.carrier, &self.name);
        state.table.wake_if_room();
        self.finish_up(state, ring);
        if nudge {
            self.shared.bell.ring();
        }
        drop(left);
    }

    /// Who waited here has a place now.
    pub fn room_taken(&self, place: WaitPlace) {
        let left = self.lock().table.room_taken(place);
        drop(left);
    }

    /// Who waited here does so no more. A wake that it has had is the next one's.
    pub fn leave_room(&self, place: WaitPlace) {
        let mut state = self.lock();
        let left = state.table.leave_room(place);
        self.finish_up(state, false);
        drop(left);
    }

    /// Wakes `waker` when so much memory may have come back, or there never will be any, and at `until`. Whoever has the place that it is given
    /// here leaves it when it has what it waited for, or wants it no more ([`Client::leave_memory`]).
    ///
    /// Some may have come since the caller found none: it looks once more.
    pub fn wake_when_memory(
        self: &Arc<Self>,
        place: &mut Option<WaitPlace>,
        wants: u64,
        waker: &Waker,
        until: Option<Time>,
    ) {
        let waker = waker.clone();
        let mut state = self.lock();
        let left = state.table.memory.wait(place, wants, waker, until);
        self.carrier.await_memory(true);
        if state.table.closed.is_some() {
            state.table.wake_room();
        }
        // Whoever sleeps there does so for too long perhaps.
        let nudge = until.is_some() && state.sleeper;
        self.finish_up(state, false);
        if nudge {
            self.shared.bell.ring();
        }
        drop(left);
    }

    /// Memory has come back, or what would have given some back is over.
    pub fn memory_came(&self) {
        let mut state = self.lock();
        state.table.memory_came(1);
        self.finish_up(state, false);
    }

    /// Who waited here for so much does so no more.
    pub fn leave_memory(&self, place: WaitPlace, wants: u64) {
        let mut state = self.lock();
        let table = &mut state.table;
        let left = table.memory.leave(place, wants, &mut table.fired);
        self.finish_up(state, false);
        drop(left);
    }
}

impl<K: Carrier> Table<K> {
    /// Memory has come back so many times: the first who want some look whether it is enough.
    pub(crate) fn memory_came(&mut self, count: usize) {
        if count > 0 {
            self.memory.call(count, &mut self.fired);
        }
    }

    /// If nothing is under way any more that would give memory back, whoever waits for some is told that.
    pub(crate) fn tell_if_none_will_come(&mut self) {
        if !self.memory.is_empty() && !self.is_any_awaited() {
            self.memory_came(1);
        }
    }
}

impl<K: Carrier> State<K> {
    /// Memory has come back since the last look: as many are called.
    pub(crate) fn hear_of_memory(&mut self, carrier: &K) {
        let count = carrier.memory_came();
        if count > 0 && self.table.memory.is_empty() {
            carrier.await_memory(false);
        }
        self.table.memory_came(count);
    }
}
