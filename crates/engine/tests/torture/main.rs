//! The promises under everything else: no byte outside a buffer in flight ever changes, and each request is told of once, or when it was
//! given up or overdue its memory comes back once (docs/inside/engine.md rules 1 and 6).
//!
//! Engines are dropped with I/O in flight, before and in the syncs that make it durable, requests cancelled and abandoned, deadlines missed, engines shut down without
//! patience, the process forks; all at random. The memory comes from one arena that outlives the engines, and all of it is
//! always watched: a buffer is either in flight, with canaries behind its last byte, or filled with a pattern that must
//! still be there when it is looked at again. What a dropped engine gave back is taken at once and watched, too, so a
//! device that writes late is seen.
//!
//! 20,000 operations on each backend by default; `BAIO_TORTURE=1000000 cargo test -p baio-engine --test torture` for more,
//! `BAIO_TORTURE_SEED=7` for another order, `BAIO_TORTURE_BACKEND=uring` for one backend alone.

#[path = "../backends/mod.rs"]
mod backends;
mod hasty;
mod run;

use backends::{BACKENDS, Bench, tell};
use run::{Counts, Run, Source};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is no number"))
    })
}

#[test]
fn no_byte_outside_a_buffer_in_flight_changes() {
    let (operations, seed) = (number("BAIO_TORTURE", 20_000), number("BAIO_TORTURE_SEED", 1));
    let only = std::env::var("BAIO_TORTURE_BACKEND").ok();
    let chosen = |name| only.as_deref().is_none_or(|only| only == name);
    assert!(
        BACKENDS.iter().any(|row| chosen(row.name)),
        "no backend is named {only:?}"
    );
    for row in BACKENDS.iter().filter(|row| chosen(row.name)) {
        let bench = Bench::new(row);
        if let Err(why) = bench.starts() {
            tell(&format!("torture {}: does not start here: {why}", row.name));
            continue;
        }
        tell(&format!(
            "torture {}: {operations} operations with BAIO_TORTURE_SEED={seed}",
            row.name
        ));
        let source = Source::Backend(&bench);
        match Run::new(source, seed).and_then(|run| run.all(operations)) {
            Ok(counts) => {
                tell(&format!("torture {}: {counts:?}", row.name));
                was_worth_it(row.name, operations, &counts);
            }
            Err(broken) => panic!(
                "{0}: {broken}\nagain: BAIO_TORTURE_BACKEND={0} BAIO_TORTURE_SEED={seed} BAIO_TORTURE={operations} \
                 cargo test -p baio-engine --test torture",
                row.name
            ),
        }
    }
}

/// A run in which nothing was in flight when it mattered would prove nothing.
fn was_worth_it(backend: &str, operations: u64, counts: &Counts) {
    if operations < 10_000 {
        return;
    }
    assert!(
        counts.engines > 50 && counts.forks > 10 && counts.completed > operations / 20 && counts.followed > 10,
        "{counts:?}"
    );
    assert!(backend != "sim" || counts.collided == 0, "{counts:?}");
    if backend != "sync" {
        assert!(counts.dropped_in_flight > 100 && counts.cancelled > 0, "{counts:?}");
    }
}

/// The checker at work: a backend that tells the end of a read before the kernel has ended it is found out.
#[test]
fn a_backend_that_lets_go_too_early_is_found_out() {
    for seed in 1..4 {
        // A new one for each run: its late writes must never outlive the arena they are aimed at, else they land in whatever
        // is mapped there next, another run's arena for one.
        let source = hasty::Late::new();
        let run = Run::new(Source::Hasty(&source), seed).expect("a run");
        let broken = run.all(5000).expect_err("late writes went unseen");
        assert!(broken.contains("changed"), "{broken}");
        tell(&format!("torture: the hasty backend is found out: {broken}"));
    }
    // The same backend without its haste passes, so it is the late writes that were found.
    let source = hasty::Late::never();
    let run = Run::new(Source::Hasty(&source), 1).expect("a run");
    run.all(5000).expect("nothing is wrong with it");
}
