//! The promise: when a bucket falls back to the image before its newest, because both homes of the newest are gone, nobody whose
//! inode lies elsewhere loses a block or a byte: blocks belong to whoever got them last.

use baio_sim::stale;

#[test]
fn from_anybody_else() {
    takes_nothing(false);
}

#[test]
fn from_anybody_else_while_a_segment_is_moved() {
    takes_nothing(true);
}

fn takes_nothing(moving: bool) {
    let report = stale::run(1, 300, moving, 2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert!(
        report.more("buckets") > 1_000 && report.more("overlaps_settled") > 100,
        "{report:?}"
    );
}
