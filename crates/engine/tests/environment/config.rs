//! A small engine, which costs little locked memory.

use baio_engine::{Choice, Config};

pub(crate) fn config(backend: Choice) -> Config {
    Config {
        backend,
        slots: 32,
        arena_bytes: 1 << 20,
        ..Config::default()
    }
}
