//! The promise: a file or device that somebody cut off is refused and not written, and when it is lengthened again everything
//! before the cut is there; one that is longer than it need be changes nothing.

use baio_sim::outside::{self, What};

#[test]
fn costs_what_was_cut_off_and_nothing_else() {
    let report = outside::run(&What::SOUND, 400, 2);
    for failure in &report.failures {
        eprintln!("{}", failure.violation);
        eprintln!("replay: cargo run --release -p baio-sim -- {}", failure.replay);
    }
    assert!(!report.is_broken());
    assert_eq!((report.more("cut_closed"), report.more("lengthened")), (400, 400));
}
