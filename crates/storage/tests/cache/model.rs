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

#[test]
fn without_faults() {
    run("without faults", 24, 4000, Faults::default());
}

#[test]
fn with_cancels_and_power_cuts() {
    let faults = Faults {
        cancel: 40,
        cut: 300,
        ..Faults::default()
    };
    run("cancels and power cuts", 24, 4000, faults);
}

#[test]
fn with_failing_reads() {
    let faults = Faults {
        read: 10,
        cut: 1000,
        ..Faults::default()
    };
    run("failing reads", 24, 4000, faults);
}

#[test]
fn with_failing_writes() {
    let faults = Faults {
        write: 10,
        cut: 300,
        ..Faults::default()
    };
    run("failing writes", 24, 4000, faults);
}

#[test]
fn with_failing_flushes() {
    let faults = Faults {
        flush: 4,
        cut: 300,
        ..Faults::default()
    };
    run("failing flushes", 24, 4000, faults);
}

#[test]
fn with_memory_that_comes_back_late() {
    let faults = Faults {
        given_up: 20,
        cut: 500,
        ..Faults::default()
    };
    run("memory late", 24, 4000, faults);
}

#[test]
fn with_everything_at_once() {
    let faults = Faults {
        read: 30,
        write: 30,
        flush: 10,
        given_up: 60,
        cancel: 60,
        cut: 400,
        pool: 0,
    };
    run("everything", 24, 6000, faults);
}

#[test]
fn with_a_buffer_pool() {
    let faults = Faults {
        cut: 300,
        pool: 2,
        ..Faults::default()
    };
    run("a buffer pool", 24, 6000, faults);
}

#[test]
fn with_a_buffer_pool_and_everything_at_once() {
    let faults = Faults {
        read: 30,
        write: 30,
        flush: 10,
        given_up: 60,
        cancel: 60,
        cut: 400,
        pool: 3,
    };
    run("a buffer pool and everything", 24, 6000, faults);
}
