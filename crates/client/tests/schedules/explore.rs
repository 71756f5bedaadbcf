//! Runs a story in many schedules: most of them at random, others with few preemptions at random places.

use std::path::Path;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler, UrwRandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

use crate::sync;

pub(crate) fn explore(story: fn()) {
    if let Some(file) = std::env::var_os("BAIO_REPLAY") {
        let replay = ReplayScheduler::new_from_file(Path::new(&file));
        return run(replay.expect("no schedule can be read there"), story);
    }
    let count = number("BAIO_SCHEDULES").unwrap_or(1000) as usize;
    let seed = number("BAIO_SEED").unwrap_or(1);
    run(RandomScheduler::new_from_seed(seed, count - count / 2), story);
    run(UrwRandomScheduler::new_from_seed(seed, count / 4), story);
    run(PctScheduler::new_from_seed(seed, 3, count / 4), story);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

fn run(scheduler: impl Scheduler + 'static, story: fn()) {
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::File(Some(env!("CARGO_TARGET_TMPDIR").into()));
    Runner::new(scheduler, config).run(move || {
        sync::begin();
        story();
    });
}
