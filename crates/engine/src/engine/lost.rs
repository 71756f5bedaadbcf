//! A helper whose turn has failed is lost. What it ran ends, what is for it is refused, both with an error that names it; everybody else
//! goes on.
//!
//! The memory of what it ran is nobody's but the request's: a helper reaches it by copies under the request's id, which ends here.
//! What it has lost of what it had acknowledged nobody can know, so every file that it has served is poisoned at once, for everybody
//! (`backend/router.rs`): no sync through another proves what it has not, until the owner acknowledges it. What it does to the device afterwards
//! nobody can know either: a write that it had taken may be done behind those of its successor, and overtake them.

use super::Engine;
use crate::request::RequestId;
use crate::slot::State;

impl Engine {
    /// Ends what lost helpers ran.
    pub(super) fn end_lost(&mut self) {
        while let Some(by) = self.backend.take_loss() {
            let Some(error) = self.backend.loss(by) else { continue };
            let running = self.slots.iter().filter(|(_, slot)| slot.state.is_running());
            let its = running.filter(|&(id, _)| self.slots.runs_at(id) == by);
            let ids: Vec<RequestId> = its.map(|(id, _)| id).collect();
            for id in ids {
                match self.slots.get(id).map(|slot| slot.state) {
                    Some(State::Abandoned) => self.release(id),
                    _ => self.finish(id, Err(error)),
                }
            }
        }
    }

    /// Ends what is queued for lost helpers, and whatever comes into the queue by that.
    pub(super) fn refuse_for_lost(&mut self) {
        let mut refused = Vec::new();
        loop {
            self.queue.swept(&self.slots);
            let (backend, slots) = (&self.backend, &self.slots);
            self.queue.retain(|id| {
                let error = backend.loss(slots.goes_to(id));
                refused.extend(error.map(|error| (id, error)));
                error.is_none()
            });
            if refused.is_empty() {
                return;
            }
            for (id, error) in refused.drain(..) {
                self.finish(id, Err(error));
            }
        }
    }
}
