//! The promise: through one core, cached, durable, direct, hinted, discarding, zeroing, fenced, truncating, failing, cancelled and overdue requests on segments and a file, with
//! segments that are resized, moved, deleted and made again meanwhile, agree with an array: a read gives the last completed
//! write; what a durable write or a sync has acknowledged is found after a power cut at any moment; and after a write or a flush
//! that failed no sync succeeds before the data is really there.
//!
//! ```text
//! BAIO_MODEL_OPS=1000000 BAIO_MODEL_SEED=7 cargo test --release -p baio-storage --test cache any_mix::
//! ```
//!
//! runs so many operations (five of six are requests; 100,000 when nothing is said, 1,250,000 in `.ci/run`) from that seed on; a failure prints the line that replays its run alone, which with
//! `BAIO_MODEL_TRACE=1` prints every end.

use crate::core_model::World;
use crate::harness;

/// Operations of one run, on fresh disks.
const RUN: u64 = 5_000;

fn from_env(name: &str, or: u64) -> u64 {
    let typed = std::env::var(name).ok();
    typed.map_or(or, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number"))
    })
}

struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let line = format!(
                "replay: BAIO_MODEL_SEED={} BAIO_MODEL_OPS={RUN} cargo test -p baio-storage --test cache any_mix::",
                self.0
            );
            harness::tell(&line);
        }
    }
}

#[test]
fn any_mix_through_a_core_agrees_with_an_array() {
    let seed = from_env("BAIO_MODEL_SEED", 1);
    let ops = from_env("BAIO_MODEL_OPS", 100_000);
    let mut seen = std::collections::BTreeMap::<&'static str, u64>::new();
    for nth in 0..ops.div_ceil(RUN) {
        let replay = Replay(seed + nth);
        for (what, count) in World::new(seed + nth).run(RUN) {
            *seen.entry(what).or_default() += count;
        }
        drop(replay);
    }
    harness::tell(&format!("any_mix: {seen:?}"));
    if ops >= 100_000 {
        // A mix in which something never happens, or never ends well, shows nothing.
        for what in [
            "reads",
            "writes",
            "durable writes",
            "direct reads",
            "direct writes",
            "discard",
            "zero",
            "truncates",
            "syncs",
            "fences",
            "failed reads",
            "failed writes",
            "failed syncs",
            "cancelled",
            "abandoned",
            "reopened",
            "hints",
            "overdue",
            "stale",
            "deletes",
            "resizes",
            "moves",
            "power cuts",
            "images",
        ] {
            assert!(seen.get(what).is_some_and(|count| *count > 10), "{what}: {seen:?}");
        }
    }
}
