//! How a client, or a handle of it, is closed.

use baio_words::{Handle, RequestFault, Ticket};

use crate::carrier::Carrier;
use crate::client::Client;
use crate::table::Places;

impl<K: Carrier> Client<K> {
    /// Nothing is taken from now on but this command, which closes the service and is queued in the same moment: a waker
    /// that is told may wait for the end. `None` when it was closed before.
    pub fn begin_close(&self, command: Box<K::Command>) -> Option<Ticket> {
        let mut state = self.lock();
        if state.table.closed.is_some() {
            return None;
        }
        // One place is kept for this.
        let tag = state.table.reserve(Places::Last)?;
        state.table.closed = Some(RequestFault::Stale);
        let ticket = self.queue_command(&mut state, tag, command);
        state.table.wake_room();
        self.finish_up(state, false);
        Some(ticket)
    }

    /// Nothing is taken from now on, and what is under way is to end early. False: it was closed before.
    pub fn wind_down(&self) -> bool {
        let mut state = self.lock();
        let is_first = state.table.closed.is_none();
        state.table.closed.get_or_insert(RequestFault::Stale);
        state.table.wake_room();
        let mut ring = self.flush(&mut state);
        let mut from = 0;
        while let Some((ticket, sent)) = state.table.under_way(from) {
            from = ticket.parts().0 + 1;
            ring |= sent && self.push_cancel(&mut state, ticket);
        }
        self.finish_up(state, ring);
        is_first
    }

    /// Nothing is taken from now on. Wakes whoever waits for a place.
    pub fn refuse(&self) {
        let mut state = self.lock();
        state.table.closed.get_or_insert(RequestFault::Stale);
        state.table.wake_room();
        self.finish_up(state, false);
    }

    /// Tells the service to end, without waiting for it.
    pub fn stop(&self) {
        if self.is_forked() {
            return;
        }
        self.shared.stop();
        self.carrier.ring();
    }

    /// Closes a handle, as soon as there is room in the ring for saying so.
    pub fn close_handle(&self, handle: Handle) {
        let mut state = self.lock();
        let known = state.names.iter().position(|(known, _)| *known == handle);
        let name = known.map(|at| state.names.swap_remove(at));
        let mut ring = false;
        if state.table.closed.is_none() {
            let words = self.carrier.close(&mut state.kept, handle);
            // What has ended has no handles.
            let is_down = state.is_down;
            state.closing.extend(words.filter(|_| !is_down));
            ring = self.flush(&mut state);
        }
        self.finish_up(state, ring);
        drop(name);
    }
}
