//! The cache against a model: any order of completions, failing reads, writes and flushes, memory that comes back late, cancels,
//! and power cuts at any moment.
//!
//! A failure prints its seed; `BAIO_CACHE_SEED=n cargo test -p baio-storage --test cache model::` runs that one again,
//! and `BAIO_CACHE_SEEDS=n` runs so many instead of a few.

use crate::rig::PAGE;
use crate::rig::world::{Faults, World};

fn run(name: &str, seeds: u64, steps: u64, faults: Faults) {
    let only: Option<u64> = std::env::var("BAIO_CACHE_SEED").ok().and_then(|seed| seed.parse().ok());
    let more = std::env::var("BAIO_CACHE_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    for seed in only.map_or(0..more.unwrap_or(seeds), |only| only..only + 1) {
        println!("{name}: seed {seed}");
        let frames = [4, 8, 24, 100][(seed % 4) as usize];
        let sizes: &[usize] = match seed / 4 % 3 {
            0 => &[40 * PAGE],
            1 => &[12 * PAGE + 1024, 30 * PAGE + 64],
            _ => &[5 * PAGE, 200 * PAGE + 512, 17 * PAGE],
        };
        let mut world = World::new(seed, frames, sizes, faults);
        for _ in 0..steps {
            world.step(1 + (seed as usize * 7) % 40);
            assert_eq!(world.spurious, 0, "wake-ups in vain");
        }
        world.finish();
        println!("{:?}", world.seen);
        println!("{:?}", world.cache.stats());
    }
}

/// A story a line: its steps, and one in how many I/Os or steps is what.
macro_rules! stories {
    ($($name:ident: $steps:literal steps $(, $what:ident $one_in:literal)*;)*) => {$(
        #[test]
        #[allow(clippy::needless_update, reason = "one of them has everything")]
        fn $name() {
            let faults = Faults { $($what: $one_in,)* ..Faults::default() };
            run(stringify!($name), 24, $steps, faults);
        }
    )*};
}

stories! {
    without_faults: 4000 steps;
    with_cancels_and_power_cuts: 4000 steps, cancel 40, cut 300;
    with_failing_reads: 4000 steps, read 10, cut 1000;
    with_failing_writes: 4000 steps, write 10, cut 300;
    with_failing_flushes: 4000 steps, flush 4, cut 300;
    with_memory_that_comes_back_late: 4000 steps, given_up 20, cut 500;
    with_everything_at_once: 6000 steps, read 30, write 30, flush 10, given_up 60, cancel 60, cut 400;
    with_a_buffer_pool: 6000 steps, cut 300, pool 2;
    with_a_buffer_pool_and_everything_at_once: 6000 steps, read 30, write 30, flush 10, given_up 60, cancel 60, cut 400, pool 3;
}
