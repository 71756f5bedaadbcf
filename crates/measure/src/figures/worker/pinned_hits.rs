//! Pages of a core's buffer pool, all in memory: pinned, looked at and given back, at random places of a small file.

use std::path::PathBuf;
use std::time::Instant;

use baio_engine::{Config, Descriptions, Open};
use baio_storage::cache::CacheConfig;
use baio_storage::{Core, Error, Pinning};
use serde::{Deserialize, Serialize};

use crate::figures::Measurement;
use crate::stress::pattern::Random;

const PAGE: u64 = 4096;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    pub(crate) reads: u64,
}

pub(super) fn run(job: &Job) -> Result<Measurement, String> {
    let told = |error: std::io::Error| format!("{}: {error}", job.path.display());
    let pages = std::fs::metadata(&job.path).map_err(told)?.len() / PAGE;
    if pages == 0 {
        return Err("the file is too short".into());
    }
    let said = |error: Error| error.to_string();
    // Nothing has to leave.
    let bytes = (pages + 64) as usize * PAGE as usize;
    let mut core = Core::new(&Config {
        arena_bytes: bytes + (8 << 20),
        ..Config::default()
    })
    .map_err(said)?;
    core.use_cache(&CacheConfig {
        bytes,
        ..CacheConfig::default()
    })
    .map_err(said)?;
    let open = Open {
        descriptions: Descriptions::Both,
        ..Open::read()
    };
    let file = core.open_file(&job.path, &open).map_err(said)?;
    for page in 0..pages {
        let pin = core.pin_now(file, page).map_err(said)?;
        core.unpin(pin);
    }
    let mut random = Random::new(u64::from(std::process::id()));
    let mut errors = 0;
    let begun = Instant::now();
    for _ in 0..job.reads {
        let Ok(Pinning::Held(pin)) = core.pin(file, random.below(pages)) else {
            errors += 1;
            continue;
        };
        match core.page(&pin) {
            Ok(bytes) => _ = std::hint::black_box(bytes.first()),
            Err(_) => errors += 1,
        }
        core.unpin(pin);
    }
    let seconds = begun.elapsed().as_secs_f64();
    core.close().map_err(said)?;
    Ok(Measurement {
        system_calls_per_request: Some(0.0),
        in_flight_max: 1,
        errors,
        backend: "buffer pool".into(),
        mode: "cached".into(),
        ..Measurement::of(job.reads, PAGE, seconds)
    })
}
