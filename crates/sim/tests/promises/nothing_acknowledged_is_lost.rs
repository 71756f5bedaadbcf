//! The promise: after a power cut at any moment, with any unflushed writes lost and up to two torn, with one rotten
//! metadata page on top, and with several operations under way, the volume opens, holds all that was acknowledged or ever served, and shows no byte that was not written to it.

use baio_sim::explore::Plan;
use baio_sim::trials::{self, Until};

/// Distinct states for each seed, one for each of two processors; twenty times as many in `.ci/run`.
const STATES: u64 = 1_250;

fn explore(seed: u64) {
    let report = trials::run(&Plan::of(seed), Until::Distinct(STATES), 1);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert!(report.distinct >= STATES);
    for (kind, count) in report.operations.all() {
        assert!(count > 0, "{kind} was explored {count} times: {:?}", report.operations);
    }
    assert!(
        report.more("rotten") > STATES / 10 && report.more("continued") > STATES / 10,
        "{report:?}"
    );
    assert!(report.more("erased") > 0, "{report:?}");
}

#[test]
fn in_the_states_of_seed_1() {
    explore(1);
}

#[test]
fn in_the_states_of_seed_2() {
    explore(2);
}
