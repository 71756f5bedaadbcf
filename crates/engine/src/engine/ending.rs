//! How requests end: completed, cancelled, given up, left to the kernel. Every slot is emptied here and nowhere else.

use std::mem::ManuallyDrop;
use std::time::Duration;

use super::Engine;
use crate::completion::{Completion, Notice};
use crate::error::Error;
use crate::memory::Memory;
use crate::policy::{Caching, Time};
use crate::request::{Op, RequestId, Wait};
use crate::slot::{Slots, State};

impl Engine {
    /// Asks that a request end early. It still completes exactly once, cancelled or not: disk I/O that the device has
    /// begun cannot be called back.
    pub fn cancel(&mut self, id: RequestId) {
        match self.slots.get(id).map(|slot| slot.state) {
            Some(State::Queued | State::Held) => self.drop_before_start(id, Err(Error::Cancelled)),
            Some(State::Running) if !self.fork.is_forked() => self.call_back(id),
            Some(State::Running | State::Abandoned | State::Free) | None => {}
        }
    }

    /// Gives up on a request: it will not complete. Its memory comes back by a `Released` notice when the kernel has let
    /// go of it.
    pub fn abandon(&mut self, id: RequestId) {
        match self.slots.get(id).map(|slot| slot.state) {
            Some(State::Queued | State::Held) => {
                self.unqueue(id);
                self.release(id);
            }
            Some(State::Running) if !self.fork.is_forked() => {
                self.leave_to_kernel(id);
                self.call_back(id);
            }
            Some(State::Running | State::Abandoned | State::Free) | None => {}
        }
    }

    /// Asks the backend to end what runs, once: however often the caller asks, a backend has no more to do.
    pub(super) fn call_back(&mut self, id: RequestId) {
        if let Some(slot) = self.slots.get_mut(id) {
            if !std::mem::replace(&mut slot.cancelled, true) && !self.home.is_elsewhere() {
                self.backend.cancel(&self.slots, id);
            }
        }
    }

    /// Cancels everything and waits until the kernel has let go of all memory, at most `patience`. Returns how many
    /// requests a stuck device still holds; their memory is leaked, not freed, because it may still be written. A drop waits
    /// for them again only if there was no patience at all, or something was submitted since.
    pub fn shutdown(&mut self, patience: Duration) -> usize {
        if self.fork.is_forked() {
            return 0;
        }
        let ids: Vec<RequestId> = self.slots.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.cancel(id);
        }
        let deadline = self.backend.now().after(patience);
        // Without patience too, what has ended is taken.
        while self.slots.in_use() > 0 {
            let before = self.ready.len() as u32;
            let wait = Wait::Until {
                count: before + 1,
                min_wait: Duration::ZERO,
                deadline: Some(deadline),
            };
            if self.turn(wait).is_err() || self.now >= deadline {
                break;
            }
        }
        // Whoever has not waited has found nothing.
        self.is_stuck = self.slots.in_use() > 0 && !patience.is_zero();
        self.slots.in_use()
    }

    pub(super) fn leave_to_kernel(&mut self, id: RequestId) {
        self.forget_deadline(id);
        self.slots.transition(id, State::Abandoned);
        self.stats.abandoned += 1;
        if let Some(slot) = self.slots.get(id) {
            self.leftovers.add(slot, id.slot);
        }
    }

    pub(super) fn forget_deadline(&mut self, id: RequestId) {
        if !self.deadlines.is_empty() {
            self.deadlines.cancel(id);
        }
    }

    pub(super) fn drop_before_start(&mut self, id: RequestId, result: Result<u32, Error>) {
        self.unqueue(id);
        self.finish(id, result);
    }

    /// A request that no backend has leaves its line; its slot is emptied next.
    pub(super) fn unqueue(&mut self, id: RequestId) {
        let Some(slot) = self.slots.get(id) else { return };
        match (slot.state, slot.op) {
            // Nothing but its caller or its deadline ends it.
            (_, Op::Event) => {}
            (State::Held, _) if slot.awaits_sync() => self.awaiting_sync.forget_one(),
            (State::Held, _) => self.held.forget_one(),
            _ => self.queue.forget_one(),
        }
    }

    /// Tells the caller that a running request is given up; its slot and memory stay.
    pub(super) fn complete_early(&mut self, id: RequestId) {
        let Some(slot) = self.slots.get(id) else {
            return;
        };
        let (op, begun) = (slot.op, slot.begun);
        let completion = Completion {
            id,
            tag: slot.tag,
            notice: Notice::Completed,
            result: Err(Error::Indeterminate),
            bytes_done: slot.done as u32,
            memory: Memory::None,
            accepted: None,
            took: slot.took(),
            iterations: slot.iterations,
        };
        self.count(op, completion.took, true, completion.bytes_done, begun);
        self.ready.push_back(completion);
    }

    /// The one completion of a request, and the end of its slot.
    pub(super) fn finish(&mut self, id: RequestId, result: Result<u32, Error>) {
        self.end(id, Notice::Completed, result);
    }

    /// The end of a slot whose caller has already been answered, or does not want an answer.
    pub(super) fn release(&mut self, id: RequestId) {
        self.end(id, Notice::Released, Err(Error::Indeterminate));
    }

    pub(super) fn end(&mut self, id: RequestId, notice: Notice, result: Result<u32, Error>) {
        self.forget_deadline(id);
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        let (op, sequence, begun) = (slot.op, slot.sequence, slot.begun);
        let is_sync = slot.is_sync();
        if slot.state == State::Abandoned {
            self.leftovers.remove(slot, id.slot);
        }
        let (tag, bytes_done, took, iterations) = (slot.tag, slot.done as u32, slot.took(), slot.iterations);
        let accepted = slot.accepted.take();
        let file = op.is_write().then(|| slot.file.take()).flatten();
        let memory = self.slots.remove(id);
        if notice == Notice::Completed {
            self.count(op, took, result.is_err(), bytes_done, begun);
        }
        self.ready.push_back(Completion {
            id,
            tag,
            notice,
            result,
            bytes_done,
            memory,
            accepted,
            took,
            iterations,
        });
        if is_sync {
            self.sync_ended(id, result);
        }
        if let Some(file) = file {
            if !self.held.is_empty() {
                self.wake_held(&file, sequence);
            }
        }
    }

    pub(super) fn count(&mut self, op: Op, took: Caching, failed: bool, bytes: u32, begun: Option<Time>) {
        let measured = self.measures.entry(op, took);
        measured.count(failed, bytes);
        if let Some(begun) = begun {
            measured.latency.record_ns(self.now.0.saturating_sub(begun.0), 1);
        }
        self.stats.completions += 1;
        self.stats.errors += u64::from(failed);
        let bytes = u64::from(bytes);
        match op {
            Op::Read { .. } => self.stats.bytes_read += bytes,
            Op::Write { .. } => self.stats.bytes_written += bytes,
            Op::Transfer { .. } => {
                self.stats.bytes_read += bytes;
                self.stats.bytes_written += bytes;
            }
            Op::Receive { .. } => self.stats.bytes_read += bytes,
            Op::Send { .. } => self.stats.bytes_written += bytes,
            _ => {}
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        /// A healthy device ends its requests within milliseconds; after this long it is taken for stuck.
        const PATIENCE: Duration = Duration::from_secs(30);
        if self.is_starting {
            // A backend has panicked halfway: nobody knows what it has taken, and it is not asked again. All is leaked.
            self.backend.leak();
            return;
        }
        if self.fork.is_forked() {
            // The parent's kernel work concerns the parent's memory: this process may free its copies.
            self.backend.disown();
        } else {
            // Whoever was told by `shutdown` has done the waiting.
            self.shutdown(if self.is_stuck { Duration::ZERO } else { PATIENCE });
        }
        if !self.fork.is_forked() && self.slots.running() > 0 {
            // Leaked: the kernel may still write this memory and these files.
            self.backend.leak_memory();
            return;
        }
        // Dropping the table frees memory that nobody else refers to; it is not used again.
        let slots = std::mem::replace(&mut self.slots, ManuallyDrop::new(Slots::new(0)));
        drop(ManuallyDrop::into_inner(slots));
    }
}
