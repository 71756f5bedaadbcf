//! An engine with one file and the buffers of its requests: what the bare loops begin with.

use std::path::Path;

use baio_engine::{Caching, Choice, Config, Descriptions, Engine, File, Memory, Open};

pub(super) struct Queue {
    pub(super) engine: Engine,
    pub(super) file: File,
    /// One for each request that may be under way, filled with a letter.
    pub(super) memory: Vec<Memory>,
}

impl Queue {
    /// For so many requests of `size` bytes at a time.
    pub(super) fn open(
        path: &Path,
        backend: Choice,
        (caching, open): (Caching, Open),
        requests: u32,
        size: usize,
    ) -> Result<Queue, String> {
        let mut engine = Engine::new(&Config {
            backend,
            slots: requests + 1,
            reserved_slots: 0,
            // Buffers are given out in words of this many bytes.
            arena_bytes: requests as usize * size + (256 << 10),
            ..Config::default()
        })
        .map_err(|error| error.to_string())?;
        let open = Open {
            descriptions: Descriptions::Only(caching),
            ..open
        };
        let file = File::open(path, &open).map_err(|error| error.to_string())?;
        engine.attach(&file);
        let mut memory = Vec::with_capacity(requests as usize);
        for _ in 0..requests {
            let mut buffer = engine.buffer(size).ok_or("no buffer")?;
            buffer.fill(b'D');
            memory.push(buffer.into());
        }
        Ok(Queue { engine, file, memory })
    }
}
