//! The promise: one wrong bit in the metadata, anywhere, costs nothing. (Every bit: `baio-sim rot`; here a sample of each page.)

use baio_sim::every_bit;

#[test]
fn is_repaired_or_passed_over() {
    let report = every_bit::run(1999, 2).unwrap();
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert_eq!(report.more("images"), 3);
    assert!(report.more("pages") >= 3 * 36 && report.states > 1_500, "{report:?}");
    assert_eq!(report.states, report.distinct, "every bit makes another image");
}
