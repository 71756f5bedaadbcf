//! Promise: `baio latency --writes N` posts N writes at once and knows two times of each, matched by request; in the answer, and as
//! CSV.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::support::{Place, has};

/// The words of each line but the first.
fn lines(csv: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(',').map(str::to_owned).collect();
    csv.lines().skip(1).map(words).collect()
}

#[test]
fn both_times_of_every_write() {
    let place = Place::new();
    let line = "latency f --writes 100 --size 1M --csv times.csv";
    let told = place.json(line);
    has(&told, json!({"writes": 100, "errors": 0}));
    assert_eq!(told["durability"], "data", "a file is never safe by itself");
    assert!(told["durability_because"].is_string());
    let runs = told["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    for key in ["latency_us", "enqueue_us", "first_of_batch_latency_us"] {
        assert!(runs[0][key]["p50"].as_f64().is_some(), "{key}: {told}");
    }
    assert!(runs[0]["batches"].as_u64().unwrap() >= 1);
    assert_eq!(told["files"]["csv"], "times.csv");

    let size = told["request_size"].as_u64().unwrap();
    let csv = String::from_utf8(place.read("times.csv")).unwrap();
    let lines = lines(&csv);
    assert_eq!(lines.len(), 100);
    let mut before = 0.0;
    for (index, line) in lines.iter().enumerate() {
        let us = |column: usize| line[column].parse::<f64>().unwrap();
        let [enqueued, posted, known, latency] = [3, 4, 5, 6].map(us);
        assert_eq!(line[1], index.to_string());
        assert_eq!(line[2], (index as u64 * size).to_string(), "linear");
        assert!(before <= enqueued && enqueued <= posted, "{line:?}");
        assert!(
            enqueued <= known && (known - enqueued - latency).abs() < 0.01,
            "{line:?}"
        );
        assert_eq!(line[8], "0");
        before = enqueued;
    }
}

/// A path is bytes, and JSON is text.
#[test]
fn the_times_may_go_to_a_file_whose_name_is_no_text() {
    let place = Place::new();
    place.write("f", &[0; 64 << 10]);
    let name = OsStr::from_bytes(b"t\xff.csv");
    let words = ["latency", "f", "--writes", "3", "--json", "--csv"].map(OsStr::new);
    let told = place.words(words.into_iter().chain([name])).succeeds().json();
    assert_eq!(told["files"]["csv"], "t\\xff.csv");
    assert!(place.path(".").join(name).exists());
}

#[test]
fn the_same_block_again_and_again() {
    let place = Place::new();
    place.write("f", &[0; 64 << 10]);
    place
        .baio("latency f --writes 300 --same-block --request-size 4K --csv t.csv")
        .succeeds();
    let csv = String::from_utf8(place.read("t.csv")).unwrap();
    assert!(lines(&csv).iter().all(|line| line[2] == "0"), "{csv}");
    let bytes = place.read("f");
    assert!(bytes[..4096].iter().any(|byte| *byte != 0));
    assert!(
        bytes[4096..].iter().all(|byte| *byte == 0),
        "no other block was touched"
    );
}

#[test]
fn every_backend_and_a_segment() {
    let place = Place::new();
    place.volume("16M", "1M");
    place.write("f", &[0; 256 << 10]);
    for target in ["f", "vol#a"] {
        for backend in ["auto", "sync", "threads"] {
            let line = format!("latency {target} --writes 40 --request-size 4K --backend {backend}");
            let told = place.json(&line);
            assert_eq!(told["errors"], 0, "{line}: {told}");
            assert!(backend == "auto" || told["backend"] == backend, "{told}");
        }
    }
    place.baio("check vol").succeeds();
}
