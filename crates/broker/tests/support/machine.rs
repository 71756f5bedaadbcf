//! A service on a simulated machine, whose device hangs when the test says so.

use baio_engine::{Engine, EngineOptions};

use super::Client;
use super::device::Gate;
use super::tested::Tested;

/// Slots that requests of a client get; as many are reserved.
pub(crate) const SLOTS: u32 = 8;

/// A simulated machine whose device hangs while its gate is closed, and whose time passes, as the test says.
pub(crate) type Machine = Gate;

impl Gate {
    pub(crate) fn hangs(&self, hangs: bool) {
        if hangs { self.close() } else { self.open() }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_of(Tested::Segment)
    }

    /// The client of a service on this machine, for what is tested.
    pub(crate) fn client_of(&self, tested: Tested) -> Client {
        let machine = self.clone();
        let client = Client::of(2 * SLOTS, tempfile::tempdir().unwrap(), move || {
            let config = EngineOptions {
                slots: 2 * SLOTS,
                arena_bytes: 1 << 20,
                ..EngineOptions::default()
            };
            let engine = Engine::with_backend(machine.backend(), &config).unwrap();
            Ok(Tested::simulated(engine, &config))
        });
        Client {
            tested,
            is_simulated: true,
            ..client
        }
    }
}
