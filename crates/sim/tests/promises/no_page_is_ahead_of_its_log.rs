//! The promise: in a volume with databases whose pages are under logs, a power cut leaves no page with a change whose record its log has
//! not; each log holds its word; and log and pages together have every change that was durable, whatever was truncated.

use baio_sim::trials::{self, Until};
use baio_sim::wal::Plan;

/// Distinct states for each seed.
const STATES: u64 = 2_000;

#[test]
fn no_page_is_ahead_of_its_log() {
    let report = trials::run(&Plan { seed: 1 }, Until::Distinct(STATES), 1);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert!(report.distinct >= STATES);
    for what in ["continued", "appends", "waits", "syncs", "checkpoints", "pages_changed"] {
        assert!(report.more(what) > 100, "{what}: {report:?}");
    }
    for what in ["failed_writes", "closes", "would_block"] {
        assert!(report.more(what) > 0, "{what}: {report:?}");
    }
}

#[test]
fn equal_seeds_tell_equal_stories_on_any_number_of_threads() {
    let tell = |threads| {
        let report = trials::run(&Plan { seed: 7 }, Until::Distinct(200), threads);
        (report.states, report.distinct, report.more)
    };
    assert_eq!(tell(1), tell(3));
}
