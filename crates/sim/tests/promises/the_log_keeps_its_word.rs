//! The promise: after power cuts and kills at any moments, one after the other, with each write that was not acknowledged lost, torn or
//! there, a log opens with every acknowledged record, whole groups in order, without a gap; and no LSN is given twice. What rots below
//! the watermark is told with its place, and what rots above it cuts the log there.

use baio_sim::log::Plan;
use baio_sim::trials::{self, Trials, Until};

/// Distinct states for each seed; a hundred times as many in `.ci/run`.
const STATES: u64 = 2_000;

fn explore(seed: u64) {
    let report = trials::run(&Plan { seed, rot: true }, Until::Distinct(STATES), 1);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert!(report.distinct >= STATES);
    // So rare that a million states hold a few.
    let counted = Plan::COUNTED.iter().filter(|what| **what != "rot_gives_again");
    for what in counted {
        assert!(report.more(what) > 0, "{what}: {report:?}");
    }
    for what in ["continued", "kills", "header_rotten", "rot_told", "rot_cut"] {
        assert!(report.more(what) > STATES / 50, "{what}: {report:?}");
    }
}

#[test]
fn in_the_states_of_seed_1() {
    explore(1);
}

#[test]
fn in_the_states_of_seed_2() {
    explore(2);
}

#[test]
fn equal_seeds_tell_equal_stories_on_any_number_of_threads() {
    let tell = |threads| {
        let report = trials::run(&Plan { seed: 7, rot: true }, Until::Distinct(2_000), threads);
        (report.states, report.distinct, report.more)
    };
    assert_eq!(tell(1), tell(3));
}
