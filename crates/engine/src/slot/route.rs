//! Who runs a request: what the router (`backend/router.rs`) writes into its slot.

use super::{Slot, Slots};
use crate::request::RequestId;

/// Who runs an iteration: the engine's own backend, or one of its helpers (`backend/router.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct By(pub(crate) u32);

impl By {
    pub(crate) const PRIMARY: By = By(0);
    pub(crate) const HELPERS_MAX: usize = 15;
    /// Whoever ran it has reported.
    pub(super) const NOBODY: By = By(u32::MAX);

    pub(crate) fn helper(index: usize) -> By {
        By(index as u32 + 1)
    }

    pub(crate) fn index(self) -> Option<usize> {
        (self.0 as usize).checked_sub(1)
    }
}

impl Slots {
    /// To whom its next iteration goes: a pause to whoever has the clock.
    pub(crate) fn goes_to(&self, id: RequestId) -> By {
        let slot = self.get(id).filter(|slot| slot.rests_until.is_none());
        slot.map_or(By::PRIMARY, |slot| slot.route)
    }

    pub(crate) fn give(&mut self, id: RequestId, by: By) {
        if let Some(slot) = self.get_mut(id) {
            slot.runs_at = by;
        }
    }

    pub(crate) fn runs_at(&self, id: RequestId) -> By {
        self.get(id).map_or(By::PRIMARY, |slot| slot.runs_at)
    }

    pub(crate) fn is_running(&self, id: RequestId) -> bool {
        self.get(id).is_some_and(|slot| slot.state.is_running())
    }

    /// Is it `by` who owes the end of an iteration of `id`? Not any more, then.
    pub(crate) fn take_report(&mut self, id: RequestId, by: By) -> bool {
        let owes = |slot: &&mut Slot| slot.state.is_running() && slot.runs_at == by;
        let slot = self.get_mut(id).filter(owes);
        slot.map(|slot| slot.runs_at = By::NOBODY).is_some()
    }
}
