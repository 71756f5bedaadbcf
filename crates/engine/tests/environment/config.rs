//! A small engine, which costs little locked memory.

use baio_engine::{Choice, EngineOptions};

pub(crate) fn config(backend: Choice) -> EngineOptions {
    EngineOptions {
        backend,
        slots: 32,
        arena_bytes: 1 << 20,
        ..EngineOptions::default()
    }
}
