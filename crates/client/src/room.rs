//! Waiting for a place in the table: who found every place taken is woken when one has come free for it.

use std::sync::Arc;
use std::task::Waker;

use baio_words::Time;

use crate::carrier::Carrier;
use crate::client::Client;
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
}
