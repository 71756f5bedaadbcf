//! What whoever drives a log asks before it sleeps.

use super::LogPart;
use super::front::Life;

impl LogPart {
    /// Would [`LogPart::next_io`] give something, without anything else happening here?
    #[must_use]
    pub fn wants_io(&self) -> bool {
        if !self.outgoing.is_empty() {
            return true;
        }
        let front = self.shared.lock();
        if matches!(front.life, Life::Opening | Life::Failed(_)) || !front.may_send(!front.full.is_empty()) {
            return false;
        }
        let gathers = !self.options.gather.is_zero() && front.life == Life::Open;
        let is_over = self
            .gather_since
            .is_none_or(|since| self.now >= since.after(self.options.gather));
        !front.full.is_empty() || front.open.is_some() && (!gathers || is_over)
    }

    /// Does the open batch wait for more records, and for the clock?
    #[must_use]
    pub fn is_gathering(&self) -> bool {
        self.gather_since.is_some()
    }

    /// Will nothing more be durable before it is opened again?
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.shared.lock().life, Life::Failed(_))
    }

    /// The driver leaves: whoever waits is woken by the next [`LogPart::take_fired`], to find that nobody drives.
    pub fn stir(&mut self) {
        self.shared.lock().waits.stir();
    }

    /// Says whether the driver looks again before it sleeps: appends ring no bell then. Ask [`LogPart::wants_io`] after saying no.
    pub fn set_driver_awake(&mut self, is_awake: bool) {
        self.shared.lock().is_driver_awake = is_awake;
    }
}
