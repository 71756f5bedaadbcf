//! A helper whose turn has failed is lost. Requests that it ran end, and new requests for it are refused, both with an error that names
//! the helper. All other requests go on.
//!
//! The memory of a request that it ran is safe: a helper reaches it only by copies under the request's id, and that id ends here.
//! Nobody can know which acknowledged writes the helper has lost. So every file that it served is poisoned at once, for all users of the file
//! (`backend/router.rs`): until the owner acknowledges the loss, no sync through another helper proves anything. Nor can anybody know what it
//! still does to the device: a write that it had taken may reach the device after those of its successor, and overwrite them.

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
