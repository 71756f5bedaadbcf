//! Promise: `baio latency` makes single requests of the size asked for, tells points of their distribution and a histogram that counts each
//! of them once, and reads unless it is told to write.

use serde_json::Value;

use crate::support::{self, Place, Unchanged};

/// One bucket for each request.
#[track_caller]
fn counts(told: &Value, requests: u64) {
    assert_eq!(told["requests"], requests);
    assert_eq!(told["errors"], 0);
    let buckets = told["histogram"].as_array().unwrap();
    let sum: u64 = buckets.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, requests, "{told}");
    let latency = &told["latency_us"];
    let [p50, p99, max] = ["p50", "p99", "max"].map(|key| latency[key].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{latency}");
}

#[test]
fn a_file_is_read_and_not_changed() {
    let place = Place::new();
    place.write("f", &support::random_bytes(256 << 10, 1));
    let watched = Unchanged::watch(&place.path("f"));
    let told = place
        .baio("latency f --count 20 --interval 0s --json")
        .succeeds()
        .json();
    counts(&told, 20);
    assert_eq!((&told["operation"], &told["mode"]), (&"read".into(), &"direct".into()));
    assert_eq!(
        (&told["request_size"], &told["durability"]),
        (&4096.into(), &"none".into())
    );
    watched.check("reading");
    let text = place
        .baio("latency f --count 3 --interval 1ms --request-size 8K")
        .succeeds();
    let text = String::from_utf8_lossy(text.out()).into_owned();
    assert!(text.starts_with("f: 3 reads of 8 KiB, direct, "), "{text}");
    assert!(
        text.contains("p50 ") && text.contains("p99.9 ") && text.contains('#'),
        "{text}"
    );
}

#[test]
fn a_mistyped_name_does_not_become_a_file() {
    let place = Place::new();
    for line in ["latency mistyped --count 3", "latency mistyped --size 1M"] {
        let error = place.baio(&format!("{line} --json")).fails_with(1).error();
        assert_eq!(
            (&error["code"], &error["object"]),
            (&"ENOENT".into(), &"mistyped".into()),
            "{error}"
        );
        assert!(error["need"].is_string() && error["cure"].is_string(), "{error}");
        assert!(!place.path("mistyped").exists());
    }
}

#[test]
fn writes_stay_within_the_target() {
    let place = Place::new();
    place.write("f", &[0; 64 << 10]);
    let line = "latency f --write --durable --count 30 --interval 0s --json";
    let told = place.baio(line).succeeds().json();
    counts(&told, 30);
    assert_eq!(
        (&told["operation"], &told["durability"]),
        (&"write".into(), &"data".into())
    );
    let bytes = place.read("f");
    assert_eq!(bytes.len(), 64 << 10);
    assert!(bytes.iter().any(|byte| *byte != 0), "something was written");
}

#[test]
fn a_segment_on_every_backend() {
    let place = Place::new();
    place.volume("16M", "1M");
    for backend in ["auto", "sync", "threads"] {
        for what in ["", "--write"] {
            let line = format!("latency vol#a --count 5 --interval 0s --backend {backend} {what} --json");
            let told = place.baio(&line).succeeds().json();
            counts(&told, 5);
            assert!(backend == "auto" || told["backend"] == backend, "{told}");
        }
    }
    place.baio("check vol").succeeds();
}

#[test]
fn a_missing_file_that_is_to_be_written_is_made_really_written_and_stays() {
    let place = Place::new();
    place
        .baio("latency new --write --size 128K --count 1 --json")
        .succeeds();
    assert_eq!(place.read("new").len(), 128 << 10);
    assert!(place.read("new").iter().any(|byte| *byte != 0));
}

#[test]
fn a_request_that_fails_ends_the_run_and_is_told() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    let told = place
        .baio("latency f --request-size 1000 --count 5 --json")
        .fails_with(1)
        .json();
    assert_eq!(told["errors"], 1);
    assert_eq!(told["first_error"]["code"], "EINVAL", "{told}");
    assert_eq!(told["requests"], 0);
    assert_eq!(told["latency_us"]["p50"], Value::Null, "nothing measured is not zero");
}
