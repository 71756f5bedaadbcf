//! The promise: a crash inside `format` leaves no volume, the old one untouched, or the new empty one, never a mixture.

use baio_sim::formatting;

#[test]
fn leaves_no_mixture_of_two_volumes() {
    let report = formatting::run(2, 2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    for found in ["no_volume", "old_volume", "new_volume"] {
        assert!(report.more(found) > 20, "{found} is among what was found: {report:?}");
    }
}
