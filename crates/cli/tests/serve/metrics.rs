//! Promise: `baio serve --metrics PATH` answers there with the figures of its core and of each user, at that moment, and the socket
//! goes with the broker.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use baio::{Access, Link, Remote};

use serde_json::json;

use crate::support::server::Server;
use crate::support::{Place, has};

fn scrape(place: &Place) -> String {
    let mut peer = UnixStream::connect(place.path("m.sock")).unwrap();
    peer.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    answer
}

#[track_caller]
fn value(answer: &str, name: &str) -> f64 {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {answer}"))
        .parse()
        .unwrap()
}

#[test]
fn a_scrape_shows_the_core_and_each_user_as_they_are_then() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "--metrics m.sock");
    let mode = std::fs::metadata(place.path("m.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let uid = rustix::process::geteuid().as_raw();
    let of_owner = |name: &str| format!("{name}{{uid=\"{uid}\"}}");
    place.baio("create unix:vol.sock#a --size 1M").succeeds();
    let link = Remote::connect(place.path("vol.sock")).unwrap();
    let segment = link.open_segment("a", Access::Write).wait().unwrap();
    for written in 1..=3_u32 {
        segment.write_at(0, link.buffer(4096).unwrap()).wait().unwrap();
        let answer = scrape(&place);
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\n# EOF\n"),
            "{answer}"
        );
        for (name, expected) in [
            ("baio_broker_requests_total", written),
            ("baio_broker_written_bytes_total", written * 4096),
            ("baio_broker_clients", 1),
            ("baio_broker_handles", 1),
            ("baio_broker_in_flight", 0),
            ("baio_broker_errors_total", 0),
        ] {
            assert_eq!(value(&answer, &of_owner(name)), f64::from(expected), "{name}");
        }
        assert_eq!(value(&answer, "baio_volume_segments"), 1.0);
        assert!(value(&answer, "baio_engine_written_bytes_total") >= f64::from(written * 4096));
        // Who made the segment.
        assert_eq!(value(&answer, "baio_broker_sessions_ended_total"), 1.0);
    }
    let json = place.json("metrics m.sock");
    let samples = json["samples"].as_array().unwrap();
    let has = |sample: &&serde_json::Value| {
        sample["name"] == "baio_broker_requests_total" && sample["labels"]["uid"] == uid.to_string().as_str()
    };
    assert_eq!(samples.iter().find(has).unwrap()["value"], 3);
    let text = place.text("metrics m.sock");
    let has_line = |line: &str| text.lines().any(|found| found == line);
    assert!(
        has_line("baio_volume_segments 1") && text.ends_with("\n# EOF\n"),
        "{text}"
    );
    // It removes its socket when it ends, and leaves it when it is killed: the next one takes it.
    serving.stops_well();
    assert!(!place.path("m.sock").exists());
    Server::on_volume(&place, "--metrics m.sock").ready().killed();
    let error = place.error("metrics m.sock", 1);
    assert_eq!(error["code"], "ECONNREFUSED", "{error}");
    assert!(error["cure"].as_str().unwrap().contains("start the process"), "{error}");
    let serving = Server::on_volume(&place, "--metrics m.sock").ready();
    place.text("metrics m.sock");
    serving.stops_well();
}

/// What is measured is what was asked for: `stress` said `cached` once, and made direct requests.
#[test]
fn a_cached_stress_goes_through_the_brokers_cache() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "--metrics m.sock");
    place.baio("create unix:vol.sock#a --size 1M").succeeds();
    let reads = || value(&scrape(&place), "baio_cache_requests_total");
    place
        .baio("stress unix:vol.sock#a --rw randread --io-size 256K")
        .succeeds();
    assert_eq!(reads(), 0.0);
    place
        .baio("stress unix:vol.sock#a --rw randread --io-size 256K --mode cached")
        .succeeds();
    assert!(reads() >= 64.0, "{}", reads());
    serving.stops_well();
}

#[test]
fn a_place_that_cannot_be_had_is_found_before_the_volume_is_touched() {
    let place = Place::new();
    place.baio("format vol.img --size 4M").succeeds();
    let before = place.read("vol.img");
    place.write("file", b"precious");
    for (path, code) in [("file", "EEXIST"), ("none/m.sock", "ENOENT")] {
        let line = format!("serve vol.img --socket vol.sock --metrics {path} --json");
        let done = place.in_a_minute(&line);
        let error = done.fails_with(1).error();
        has(&error, json!({"code": code, "object": path}));
    }
    assert!(place.read("vol.img") == before && place.read("file") == b"precious");
    assert!(!place.path("vol.sock").exists());
}
