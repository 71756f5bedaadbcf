//! Promise: `baio serve --status` shows, by user, what the clients of a broker have and had, and what that adds up to.

use baio::{Access, Link, Remote};

use crate::support::Place;
use crate::support::server::Server;

#[test]
fn it_shows_what_each_user_has_and_had() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    place.baio("create unix:vol.sock#a --size 1M").succeeds();
    let link = Remote::connect(place.path("vol.sock")).unwrap();
    let segment = link.open_segment("a", Access::Write).wait().unwrap();
    for _ in 0..3 {
        segment.write_at(0, link.buffer(4096).unwrap()).wait().unwrap();
    }
    segment.read_at(0, link.buffer(8192).unwrap()).wait().unwrap();

    let uid = rustix::process::geteuid().as_raw();
    let status = place.json("serve --status --socket vol.sock");
    assert_eq!(status["volume"], "vol");
    assert!(status["started_at_unix"].as_u64().unwrap() > 0);
    // Who made the segment.
    assert_eq!(status["sessions_ended"], 1);
    let owner = &status["owners"][0];
    // Whoever asks is a client as well.
    for (key, value) in [
        ("clients", 2),
        ("handles", 1),
        ("in_flight", 0),
        ("held", 0),
        ("requests", 4),
        ("written_bytes", 3 * 4096),
        ("read_bytes", 8192),
        ("errors", 0),
        ("violations", 0),
    ] {
        assert_eq!(owner[key], value, "{key} in {status}");
        assert_eq!(status["totals"][key], value, "{key} in {status}");
    }
    assert_eq!(owner["uid"], uid);
    let [p50, p99] = ["latency_us_p50", "latency_us_p99"].map(|key| owner[key].as_u64().unwrap());
    assert!(p50 <= p99, "{status}");

    let text = place.text("serve --status --socket vol.sock");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!((lines[0][0], lines[0][5]), ("UID", "REQUESTS"), "{text}");
    assert_eq!((lines[1][0], lines[1][5]), (uid.to_string().as_str(), "4"), "{text}");
    assert_eq!((lines[2][0], lines[2][5]), ("total", "4"), "{text}");
    serving.stops_well();
}

#[test]
fn without_a_broker_it_says_so() {
    let place = Place::new();
    let error = place.error("serve --status --socket none.sock", 1);
    assert_eq!(error["code"], "ENOENT", "{error}");
    let said = place.baio("serve --status").fails_with(2).errors();
    assert!(said.contains("--socket"), "{said}");
    place.baio("serve vol.img --status --socket s").fails_with(2);
}
