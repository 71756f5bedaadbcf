//! The promise: a crash inside `format` leaves no volume, the old one untouched, or the new empty one, never a mixture.

use baio_sim::formatting;

#[test]
fn leaves_no_mixture_of_two_volumes() {
    let report = formatting::run(2, 2);
    for failure in &report.failures {
        eprintln!("{}", failure.violation);
        eprintln!("replay: cargo run --release -p baio-sim -- {}", failure.replay);
    }
    assert!(!report.is_broken());
    for found in ["no_volume", "old_volume", "new_volume"] {
        assert!(report.more(found) > 20, "{found} is among what was found: {report:?}");
    }
}
