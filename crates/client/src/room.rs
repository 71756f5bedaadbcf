//! Waiting for a place in the table: who found every place taken is woken when one has come free for it.

use std::sync::Arc;
use std::task::Waker;

use baio_words::Time;

use crate::carrier::Carrier;
use crate::client::Client;
use crate::waiters::WaitPlace;

impl<K: Carrier> Client<K> {
    /// Wakes `waker` when a place has come free for it, or never will, and at `until`. Who stands here in the line goes on from there
    /// ([`Client::start_awaited`], [`Client::command`]), or wants it no more ([`Client::leave_room`]).
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

    /// Who waited here does so no more. A wake that it has had is the next one's.
    pub fn leave_room(&self, place: WaitPlace) {
        let mut state = self.lock();
        let left = state.table.leave_room(place);
        self.finish_up(state, false);
        drop(left);
    }

    /// Wakes `waker` when memory that the service can see may have come back, and at `until`, which must not be far: its owner may give
    /// it back without a word to anybody.
    pub fn wake_when_memory(self: &Arc<Self>, place: &mut Option<WaitPlace>, waker: &Waker, until: Time) {
        let waker = waker.clone();
        let mut state = self.lock();
        let left = state.table.wait_for_memory(place, waker, until);
        // Whoever sleeps there does so for too long perhaps.
        let nudge = state.sleeper;
        if state.table.closed.is_some() {
            state.table.wake_room();
        }
        self.finish_up(state, false);
        if nudge {
            self.shared.bell.ring();
        }
        drop(left);
    }

    /// Memory has come back.
    pub fn memory_came(&self) {
        let mut state = self.lock();
        if !state.table.wants_memory() {
            return;
        }
        state.table.memory_came();
        self.finish_up(state, false);
    }

    /// Who waited here for memory does so no more.
    pub fn leave_memory(&self, place: WaitPlace) {
        let mut state = self.lock();
        let left = state.table.leave_memory(place);
        self.finish_up(state, false);
        drop(left);
    }
}
