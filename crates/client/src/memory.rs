//! Waiting for memory that the service can be shown: who found none is woken when some has come back.
//!
//! Whoever wants the same stands in one line, and the first of each line is called. So a large wish that cannot be met yet keeps no smaller one
//! waiting, and who could have no more than the one before it is not called in vain.
//!
//! Memory comes back on any thread, also by the drop of a buffer that never was a request's. The carrier counts that and rings the bell
//! ([`Carrier::await_memory`]), and whoever looks calls as many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use baio_words::Time;

use crate::carrier::Carrier;
use crate::client::Client;
use crate::state::State;
use crate::table::Table;
use crate::waiters::{WaitPlace, Waiters};

/// Those who wait for memory, by how much they want.
#[derive(Debug, Default)]
pub(crate) struct ForMemory {
    lines: BTreeMap<u64, Waiters>,
    last: u64,
}

impl ForMemory {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Waits in the line of those who want so much. Gives back a waker that is not needed.
    fn wait(&mut self, place: &mut Option<WaitPlace>, wants: u64, waker: Waker, until: Option<Time>) -> Option<Waker> {
        // A line that has ended and one that begins give no place twice.
        place.get_or_insert_with(|| {
            self.last += 1;
            WaitPlace(self.last)
        });
        self.lines.entry(wants).or_default().wait(place, waker, until)
    }

    /// Calls so many of each line.
    pub(crate) fn call(&mut self, count: usize, fired: &mut Vec<Waker>) {
        self.with_each(|line| line.wake_next(count, fired));
    }

    pub(crate) fn call_all(&mut self, fired: &mut Vec<Waker>) {
        self.with_each(|line| line.wake_all(fired));
    }

    pub(crate) fn call_late(&mut self, now: Time, fired: &mut Vec<Waker>) {
        self.with_each(|line| line.wake_late(now, fired));
    }

    /// When the first of them gives up.
    pub(crate) fn until(&self) -> Option<Time> {
        self.lines.values().filter_map(Waiters::until).min()
    }

    /// One of those who want so much waits no more. There may be more for the next, if this one was called.
    pub(crate) fn leave(&mut self, place: WaitPlace, wants: u64, fired: &mut Vec<Waker>) -> Option<Waker> {
        let line = self.lines.get_mut(&wants)?;
        let own = line.leave(place, fired);
        if line.is_empty() {
            self.lines.remove(&wants);
        }
        own
    }

    fn with_each(&mut self, mut act: impl FnMut(&mut Waiters)) {
        self.lines.retain(|_, line| {
            act(line);
            !line.is_empty()
        });
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

impl<K: Carrier> Client<K> {
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
