//! The promise: with one fault of the device under the metadata (a lost, misdirected, torn or failing write, a bit that turns over,
//! a read or a flush that fails) every answer is right or an error, and nothing acknowledged is lost.

use baio_sim::faults;

#[test]
fn is_answered_with_an_error_or_costs_nothing() {
    let report = faults::run(1, 1_000, 2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert_eq!(report.states, 1_000, "each trial counts, also one that is passed over");
    for fault in [
        "lost_write",
        "misdirected",
        "rot",
        "read_error",
        "write_error",
        "torn_write",
        "failed_flush",
    ] {
        assert!(report.more(fault) > 10, "{fault} struck often: {report:?}");
    }
    assert!(report.more("answered_with_an_error") > 100 && report.more("passed_unseen") > 100);
    assert!(report.more("zeroed_a_page") < 20, "{report:?}");
}
