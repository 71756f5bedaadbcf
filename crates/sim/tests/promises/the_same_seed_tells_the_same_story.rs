//! A failure is worth a command that replays it only if equal seeds give equal runs, to the byte.

use baio_sim::explore::{Plan, event_log};
use baio_sim::trials::{self, Until};

#[test]
fn twice_the_same_event_log() {
    for workload in 0..20 {
        let once = event_log(&Plan::of(9), workload).unwrap();
        assert!(once.len() > 30);
        assert_eq!(once, event_log(&Plan::of(9), workload).unwrap());
        assert_ne!(once, event_log(&Plan::of(10), workload).unwrap());
    }
}

#[test]
fn twice_the_same_report() {
    let run = |threads| {
        let mut report = trials::run(&Plan::of(11), Until::Distinct(2_000), threads);
        report.seconds = 0.0;
        report.states_per_second = 0.0;
        format!("{report:?}")
    };
    let alone = run(1);
    assert_eq!(alone, run(1));
    assert_eq!(alone, run(3), "however many share the work");
}

/// A trial run alone breaks the same promise in the same way as among all the others.
#[test]
fn a_failure_replays_alone() {
    let plan = Plan {
        weakening: baio_sim::mutate::Weakening::by_name("volatile-mirror"),
        ..Plan::of(1)
    };
    let report = trials::run(&plan, Until::Broken(20_000), 1);
    let failure = &report.failures[0];
    let alone = trials::run_only(&plan, failure.number);
    assert_eq!(alone.failures[0].violation, failure.violation);
}
