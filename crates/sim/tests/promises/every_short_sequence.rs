//! The promise in small scope: all sequences of operations over two names and three sizes, cut at every record, with every single
//! loss, lose nothing. (One operation here, two in `.ci/long`, half of those in `.ci/run`, three by
//! `baio-sim exhaustive --length 3`.)

use baio_sim::exhaustive;

#[test]
fn of_one_operation_keeps_what_was_acknowledged() {
    let report = exhaustive::run(1, 2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert_eq!(report.more("sequences"), exhaustive::sequences(1));
    assert!(report.states > 100, "{report:?}");
    assert!(report.distinct > 10, "{report:?}");
}
