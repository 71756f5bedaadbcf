//! The engine on slow, failing disks gives no answer that the model forbids; and the model notices when it does.

use baio_sim::engine::{Plan, Weakening, run};

fn plan(seeds: u64) -> Plan {
    Plan {
        seed: 1,
        seeds,
        engines: 1,
        weakening: None,
    }
}

#[test]
fn no_answer_is_wrong_and_every_seed_tells_one_story() {
    let (report, failures) = run(&plan(100));
    assert_eq!((failures, report.wrong, report.replays_differing), (Vec::new(), 0, 0));
    let faults = report.faults;
    let kinds = [
        faults.short_read,
        faults.short_write,
        faults.read_error,
        faults.write_error,
        faults.no_space,
        faults.interrupted,
        faults.try_again,
        faults.delay,
        faults.lost_write,
        faults.torn_write,
        faults.misdirected,
        faults.rot,
        faults.failed_flush,
    ];
    assert!(
        kinds.iter().all(|&count| count > 0),
        "something was never injected: {faults:?}"
    );
    let seen = [
        report.released,
        report.cancelled,
        report.indeterminate,
        report.synced,
        report.poisoned,
        report.power_cuts,
    ];
    assert!(
        seen.iter().all(|&count| count > 0),
        "something never happened: {report:?}"
    );
    assert!(
        report.sectors_checked > 20 * report.sectors_damaged,
        "too little could be compared"
    );
}

/// One device serves them, so what is promised to one holds against the others too.
#[test]
fn several_engines_on_one_machine_keep_their_word() {
    for engines in [2, 3] {
        let (report, failures) = run(&Plan { engines, ..plan(40) });
        assert_eq!((failures, report.wrong, report.replays_differing), (Vec::new(), 0, 0));
        assert!(
            report.synced > 0 && report.poisoned > 0 && report.power_cuts == 80,
            "{report:?}"
        );
        assert!(report.sectors_checked > 20 * report.sectors_damaged, "{report:?}");
    }
}

#[test]
fn every_broken_promise_is_noticed() {
    for (nth, (name, weakening)) in Weakening::ALL.into_iter().enumerate() {
        let weak = Plan {
            weakening: Some(weakening),
            engines: 1 + nth % 2,
            ..plan(20)
        };
        let (report, failures) = run(&weak);
        assert!(!failures.is_empty(), "{name} is not noticed");
        let differs = weakening == Weakening::Undetermined;
        assert_eq!(report.replays_differing > 0, differs, "{name}: {failures:?}");
        assert_eq!(report.wrong > 0, !differs, "{name}: {failures:?}");
    }
}
