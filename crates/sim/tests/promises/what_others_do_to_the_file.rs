//! The promise: a file or device that somebody cut off is refused and not written, and when it is lengthened again everything
//! before the cut is there; one that is longer than it need be changes nothing; one that is cut off while it is open never reads as
//! if it ended early; and what a copy serves that was made while the volume was in use never overlaps.

use baio_sim::outside::{self, What};

#[test]
fn costs_what_was_cut_off_and_nothing_else() {
    let report = outside::run(&What::ALL, 400, 2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    for what in ["cut_closed", "cut_open", "lengthened", "copied"] {
        assert_eq!(report.more(what), 400, "{what}");
    }
}
