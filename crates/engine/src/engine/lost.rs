//! A helper whose turn has failed is lost. What it ran ends, what is for it is refused, both with an error that names it; everybody else
//! goes on.
//!
//! The memory of what it ran is nobody's but the request's: a helper reaches it by copies under the request's id, which ends here.
//! What it does to the device afterwards nobody can know, so its files take no more writes that might be overtaken, and what it was
//! syncing is poisoned.

use super::Engine;
use crate::request::RequestId;
use crate::slot::State;

impl Engine {
    /// Ends what lost helpers ran.
    pub(super) fn end_lost(&mut self) {
        while let Some((by, errno)) = self.backend.take_loss() {
            let Some(error) = self.backend.loss(by) else { continue };
            let running = self.slots.iter().filter(|(_, slot)| slot.state.is_running());
            let its = running.filter(|&(id, _)| self.slots.runs_at(id) == by);
            let ids: Vec<RequestId> = its.map(|(id, _)| id).collect();
            for slot in ids.iter().filter_map(|&id| self.slots.get(id)) {
                // First of all: no sync that waits for one of these may prove what it has not.
                if let Some(file) = slot.file.as_ref().filter(|_| slot.takes_the_report()) {
                    file.poison(errno);
                }
            }
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
