//! The promise in small scope: all sequences of two operations over two names and three sizes, cut at every record, with every
//! single loss, lose nothing. (Three operations: `baio-sim exhaustive --length 3`.)

use baio_sim::exhaustive;

#[test]
fn of_two_operations_keeps_what_was_acknowledged() {
    let report = exhaustive::run(2, 2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert_eq!(report.more("sequences"), exhaustive::sequences(2));
    assert!(report.states > 6_000, "{report:?}");
    assert!(report.distinct > 500, "{report:?}");
}
