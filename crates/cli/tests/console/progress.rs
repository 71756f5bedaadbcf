//! Promise: what takes long shows how far it is and the time left, on a terminal and nowhere else.

use crate::support::Place;
use crate::support::terminal::shown_on_a_terminal;

#[test]
fn a_terminal_sees_the_time_left_and_a_log_sees_nothing() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    let line = "stress f --mode kernel --runtime 3s";
    let (shown, status) = shown_on_a_terminal(&place, line, &[("NO_COLOR", "1")]);
    assert_eq!(status, 0, "{shown}");
    assert!(
        shown.contains("stress randread [") && shown.contains(" left"),
        "{shown:?}"
    );
    assert_eq!(
        place
            .baio("stress f --mode kernel --runtime 1500ms")
            .succeeds()
            .errors(),
        ""
    );
}

#[test]
fn what_is_soon_done_shows_nothing() {
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    let (shown, status) = shown_on_a_terminal(&place, "create vol#a --size 1M", &[]);
    assert_eq!((shown.as_str(), status), ("", 0));
}
