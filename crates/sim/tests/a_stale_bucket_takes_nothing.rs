//! The promise: when a bucket falls back to the image before its newest, because both homes of the newest are gone, nobody whose
//! inode lies elsewhere loses a block or a byte: blocks belong to whoever got them last.

use baio_sim::stale;

#[test]
fn from_anybody_else() {
    let report = stale::run(1, 300, false, 2);
    for failure in &report.failures {
        eprintln!("{}", failure.violation);
        eprintln!("replay: cargo run --release -p baio-sim -- {}", failure.replay);
    }
    assert!(!report.is_broken());
    assert!(
        report.more("buckets") > 1_000 && report.more("overlaps_settled") > 100,
        "{report:?}"
    );
}
