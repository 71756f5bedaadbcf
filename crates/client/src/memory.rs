//! Queues of tasks that found no memory that the service can see. They are woken when some has come back.
//!
//! Tasks that want equally much wait in one queue, and the first of each queue is woken. So a large wish that cannot be met yet holds up no
//! smaller one, and no task is woken for memory that is not enough even for the task before it.
//!
//! Memory comes back on any thread, also by the drop of a buffer that no request ever had. The carrier counts that and rings the bell
//! (`Carrier::await_memory`), and the thread that looks next wakes as many tasks (`room.rs`).

use std::collections::BTreeMap;
use std::task::Waker;

use baio_words::Time;

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
    pub(crate) fn wait(
        &mut self,
        place: &mut Option<WaitPlace>,
        wants: u64,
        waker: Waker,
        until: Option<Time>,
    ) -> Option<Waker> {
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
