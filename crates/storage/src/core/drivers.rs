//! The logs that a core drives, by the write gates that wait for them.

use std::fmt;

use crate::cache::GateId;

/// The gates whose logs the core drives. There are as many as logs.
#[derive(Debug, Default)]
pub(super) struct Drivers(pub(super) Vec<Driver>);

pub(super) struct Driver {
    pub(super) gate: GateId,
    /// The LSN that the log's next record will have.
    pub(super) next_lsn: Box<dyn Fn() -> u64 + Send>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Driver").field(&self.gate).finish()
    }
}

impl Drivers {
    pub(super) fn get(&self, gate: GateId) -> Option<&Driver> {
        self.0.iter().find(|driver| driver.gate == gate)
    }

    pub(super) fn remove(&mut self, gate: GateId) {
        self.0.retain(|driver| driver.gate != gate);
    }
}
