//! A volume behind a device whose requests end when the test says, and whose backend breaks or panics when the test says.

#[path = "../../../broker/tests/support/device.rs"]
mod device;

use baio::{Core, Identity, LinkOptions, Local, Remote};
use baio_engine::sim::Disk;
use baio_engine::{Engine, EngineOptions, File};
use baio_storage::format_on;

pub use device::Gate;

/// A volume of 16 MiB on a simulated disk behind a gate.
pub fn gated() -> (Gate, Remote) {
    let gate = Gate::default();
    let inside = gate.clone();
    let config = config(128);
    let options = LinkOptions {
        identity: Identity::effective(),
        engine: config,
        ..LinkOptions::default()
    };
    let make = move || core(&inside, &config);
    (gate, Remote::around(make, &options).unwrap())
}

/// The same in this thread, with so many slots.
pub fn gated_here(gate: &Gate, slots: u32) -> Local {
    let core = core(gate, &config(slots)).unwrap();
    Local::around(core, Identity::effective())
}

fn config(slots: u32) -> EngineOptions {
    EngineOptions {
        slots,
        arena_bytes: 8 << 20,
        ..EngineOptions::default()
    }
}

fn core(gate: &Gate, config: &EngineOptions) -> baio::Result<Core> {
    let disk = Disk::new(16 << 20);
    let file = File::simulated(&disk, "gated");
    let mut engine = Engine::with_backend(gate.backend(), config).expect("an engine");
    format_on(&mut engine, &file, &baio::FormatOptions::default())?;
    Core::open_on(engine, &file, config)
}
