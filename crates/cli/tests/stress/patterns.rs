//! Promise: `baio stress` makes the requests that its pattern names, as many under way as asked for, on files and on
//! segments, and tells them in one object whose keys are always all there.

use std::os::unix::fs::MetadataExt;

use serde_json::{Value, json};

use crate::support::{self, Place, has};

/// The keys of a measurement, which the whole run and every part have.
const MEASUREMENT: [&str; 20] = [
    "part",
    "seconds",
    "sync_seconds",
    "verified",
    "unverified",
    "iops",
    "bytes_per_second",
    "latency_us",
    "submit_latency_us",
    "cpu_us_per_request",
    "context_switches_per_request",
    "system_calls_per_request",
    "in_flight_max",
    "threads_max",
    "rss_bytes",
    "requests",
    "errors",
    "iterations_per_request",
    "backend",
    "mode",
];

#[track_caller]
fn stress(place: &Place, line: &str) -> Value {
    place.json(&format!("stress {line}"))
}

fn part_names(told: &Value) -> Vec<&str> {
    let parts = told["parts"].as_array().unwrap();
    parts.iter().map(|part| part["part"].as_str().unwrap()).collect()
}

#[test]
fn every_pattern_on_a_file_and_on_a_segment() {
    let place = Place::new();
    place.volume("16M", "2M");
    place.write("f", &vec![1; 2 << 20]);
    for target in ["f --size 2M", "vol#a", "vol#a --service"] {
        for backend in ["auto", "sync"] {
            for (rw, parts) in [
                ("read", &["read"][..]),
                ("write", &["write"]),
                ("randread", &["randread"]),
                ("randwrite", &["randwrite"]),
                ("randrw", &["read", "write"]),
            ] {
                let line = format!("{target} --rw {rw} --runtime 50ms --backend {backend}");
                let told = stress(&place, &line);
                assert_eq!(part_names(&told), parts, "{line}");
                let requests = |of: &Value| of["requests"].as_u64().unwrap();
                let of_parts: u64 = told["parts"].as_array().unwrap().iter().map(requests).sum();
                assert!(requests(&told) > 0 && requests(&told) == of_parts, "{line}: {told}");
                assert_eq!(told["errors"], 0, "{line}");
                assert_eq!(told["mode"], "direct", "{line}");
                assert!(backend == "auto" || told["backend"] == "sync", "{line}");
            }
        }
    }
}

#[test]
fn all_keys_are_there() {
    let place = Place::new();
    let told = stress(&place, "f --size 1M --rw randrw --once");
    for section in [&told, &told["parts"][0], &told["parts"][1]] {
        for key in MEASUREMENT {
            assert!(
                section.get(key).is_some_and(|value| !value.is_null()),
                "{key}: {section}"
            );
        }
        for latency in ["latency_us", "submit_latency_us"] {
            for point in ["mean", "p50", "p99", "p999", "max"] {
                assert!(section[latency][point].is_number(), "{latency} {point}: {section}");
            }
        }
    }
    for key in [
        "target",
        "request_size",
        "depth",
        "batch",
        "threads",
        "files",
        "size_bytes",
        "durability",
        "seed",
        "service",
        "cold",
        "missed",
    ] {
        assert!(!told[key].is_null(), "{key}");
    }
    assert_eq!(told["first_error"], Value::Null);
    let one_turn = stress(&place, "f --once --one-turn");
    assert_eq!(one_turn["submit_latency_us"], Value::Null, "not measured is not zero");
}

#[test]
fn people_get_a_table() {
    let place = Place::new();
    let text = place.text("stress f --size 1M --stages write,randread");
    for piece in ["REQ/s", "\nwrite ", "\nrandread ", "512 requests in ", "0 failed"] {
        assert!(text.contains(piece), "{piece}: {text}");
    }
    let mut lines = text.lines();
    assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn as_many_requests_are_under_way_as_asked_for() {
    let place = Place::new();
    place.volume("16M", "2M");
    place.write("f", &vec![1; 2 << 20]);
    for target in ["f --size 2M", "vol#a"] {
        for (line, depth) in [("--depth 1", 1), ("--depth 7", 7), ("--depth 32 --batch 8", 32)] {
            let told = stress(&place, &format!("{target} --once --one-turn {line}"));
            assert_eq!(told["in_flight_max"], depth, "{target} {line}");
        }
    }
    let told = stress(&place, "f --once --one-turn --depth 4 --threads 3");
    assert_eq!(told["in_flight_max"], 12);
}

#[test]
fn a_missing_file_is_made_and_really_written() {
    let place = Place::new();
    stress(&place, "f --size 2M --rw randwrite --once");
    let metadata = place.path("f").metadata().unwrap();
    assert_eq!(metadata.len(), 2 << 20);
    assert!(metadata.blocks() * 512 >= 2 << 20, "{} blocks", metadata.blocks());
    let bytes = place.read("f");
    let zeros = bytes
        .chunks(4096)
        .filter(|block| block.iter().all(|&byte| byte == 0))
        .count();
    assert_eq!(zeros, 0);
}

#[test]
fn a_file_that_is_too_short_grows_for_a_run_that_writes() {
    let place = Place::new();
    place.write("f", &[7; 10_000]);
    stress(&place, "f --size 64K --rw randwrite --runtime 20ms --mode kernel");
    assert_eq!(place.read("f").len(), 64 << 10);
    let short = place.baio("stress f --size 128K --rw read --json").fails_with(2);
    assert_eq!(short.error()["code"], "EUSAGE");
}

#[test]
fn the_size_that_is_asked_for_bounds_the_run() {
    let place = Place::new();
    place.write("f", &[7; 64 << 10]);
    stress(&place, "f --size 16K --rw write --once");
    let bytes = place.read("f");
    assert!(bytes[16 << 10..].iter().all(|&byte| byte == 7));
    assert!(
        bytes[..16 << 10]
            .chunks(4096)
            .all(|block| block.iter().any(|&byte| byte != 7))
    );
}

#[test]
fn every_mode_of_a_file() {
    let place = Place::new();
    for mode in ["direct", "kernel", "uncached"] {
        let done = place.baio(&format!("stress f --size 256K --rw randrw --once --mode {mode} --json"));
        if done.status() == 1 && done.error()["code"] == "EOPNOTSUPP" {
            support::skip(&format!("this file system has no mode {mode}"));
            continue;
        }
        assert_eq!(done.succeeds().json()["mode"], mode);
    }
}

#[test]
fn several_files_threads_and_contexts() {
    let place = Place::new();
    let told = stress(
        &place,
        "f --files 3 --size 256K --rw write --once --threads 2 --iterations 2",
    );
    assert_eq!(told["requests"], 3 * 64);
    for name in ["f.0", "f.1", "f.2"] {
        assert_eq!(place.read(name).len(), 256 << 10, "{name}");
    }
    let line = "f --files 2 --stages write --contexts 2 --offset 64K --size 256K";
    assert_eq!(
        stress(&place, line)["requests"],
        2 * (64 + 32),
        "the inner stream is shorter at both ends"
    );
    let none = place
        .baio("stress f --files 2 --contexts 2 --threads 5 --offset 4K")
        .fails_with(2);
    assert!(none.errors().contains("4 streams"), "{}", none.errors());
}

#[test]
fn durable_writes_and_shared_buffers() {
    let place = Place::new();
    place.volume("16M", "2M");
    for target in ["f --size 1M", "vol#a"] {
        for durability in ["data", "full"] {
            let line = format!("{target} --rw randwrite --runtime 30ms --durability {durability} --shared-memory");
            let told = stress(&place, &line);
            assert_eq!(told["durability"], durability);
            assert_eq!(told["errors"], 0);
        }
    }
}

#[test]
fn thresholds_that_are_missed_exit_with_4() {
    let place = Place::new();
    place.write("f", &vec![1; 1 << 20]);
    let met = "stress f --size 1M --once --min-iops 1 --max-p99 2m";
    place.baio(met).succeeds();
    let told = place
        .baio("stress f --once --min-iops 4000000000 --max-p99 0us --json")
        .fails_with(4)
        .json();
    let missed: Vec<&str> = told["missed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["threshold"].as_str().unwrap())
        .collect();
    assert_eq!(missed, ["--min-iops", "--max-p99 us"]);
}

/// A file that somebody cuts while it is being read.
#[test]
fn requests_that_fail_are_counted_and_the_first_is_told() {
    let place = Place::new();
    place.write("f", &[1; 1 << 20]);
    let line = ["stress", "f", "--rw", "randread", "--runtime", "60s", "--json"];
    let mut child = place.spawn(support::BAIO, line);
    drop(child.stdin.take());
    let mut opened = || {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
        let links = std::fs::read_dir(format!("/proc/{}/fd", child.id()))
            .into_iter()
            .flatten();
        let mut files = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        files.any(|file| file == place.path("f").canonicalize().unwrap())
    };
    // By then it knows how large the file is.
    while !opened() {
        std::thread::yield_now();
    }
    let file = std::fs::OpenOptions::new().write(true).open(place.path("f")).unwrap();
    file.set_len(512 << 10).unwrap();
    let done = support::Done(child.wait_with_output().unwrap()).fails_with(1);
    let told = done.json();
    let errors = told["errors"].as_u64().unwrap();
    assert!((1000..1100).contains(&errors), "a thousand are enough: {errors}");
    assert!(told["requests"].as_u64().unwrap() >= errors, "{told}");
    let error = &told["first_error"];
    has(error, json!({"code": "EIO", "object": "f"}));
    assert!(
        error["offset"].as_u64().is_some_and(|offset| offset >= 512 << 10),
        "{error}"
    );
    assert!(error["need"].is_string() && error["cure"].is_string());
    assert_eq!(done.errors().lines().count(), 1, "{}", done.errors());
}

#[test]
fn an_error_that_no_request_would_escape_ends_the_run() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    // Beyond this limit every write fails with EFBIG.
    let line = format!(
        "ulimit -f 32; exec {} stress f --rw write --runtime 60s --json",
        support::BAIO
    );
    let mut child = place.spawn("bash", ["-c", &format!("trap '' XFSZ; {line}")]);
    drop(child.stdin.take());
    let done = support::Done(child.wait_with_output().unwrap()).fails_with(1);
    let error = done.json()["error"].clone();
    has(&error, json!({"code": "EFBIG", "object": "f"}));
    assert!(
        error["offset"].as_u64().is_some_and(|offset| offset >= 32 << 10),
        "{error}"
    );
}

#[test]
fn the_words_of_fio_are_ours() {
    let place = Place::new();
    place.write("f", &[1; 64 << 10]);
    for (engine, backend) in [("psync", "sync"), ("posixaio", "threads")] {
        let line = format!("f --rw randrw --bs 8K --iodepth 3 --ioengine {engine} --rwmixread 100 --runtime 1");
        let told = stress(&place, &line);
        has(&told, json!({"backend": backend, "depth": 3, "request_size": 8192}));
        assert!(told["seconds"].as_f64().unwrap() >= 1.0, "{told}");
        let parts = told["parts"].as_array().unwrap();
        assert!(parts[0]["requests"].as_u64().unwrap() > 0, "{told}");
        has(&parts[1], json!({"part": "write", "requests": 0}));
    }
}

/// A job file is fio's: here it is a file like any other, whose bytes are read or written.
#[test]
fn a_name_that_ends_as_a_job_file_s_is_a_file() {
    let place = Place::new();
    place.write("x.fio", &support::random_bytes(64 << 10, 1));
    let told = stress(&place, "x.fio --rw read --once");
    assert_eq!(told["requests"], 16);
}

/// Names come from anywhere; nothing in them reaches a terminal as a command, or turns a line round.
#[test]
fn the_name_of_a_target_cannot_steer_a_terminal() {
    let place = Place::new();
    let name = "f\x1b[2J\u{202e}fdp";
    for words in [
        &["stress", name, "--size", "64K", "--rw", "write", "--once"][..],
        &["stress", name, "--runtime", "1ms"],
        &["latency", name, "--writes", "2"],
    ] {
        let told = place.words(words).succeeds();
        let all = [told.out(), told.errors().as_bytes()].concat();
        let all = String::from_utf8(all).unwrap();
        assert!(
            all.contains("u{1b}") && !all.contains(['\x1b', '\u{202e}']),
            "{words:?}: {all:?}"
        );
    }
}

/// A run that writes little keeps what it does not write: a file is filled up behind its last byte.
#[test]
fn filling_up_begins_behind_what_exists() {
    let place = Place::new();
    let before = support::random_bytes(5000, 1);
    for mode in ["direct", "kernel"] {
        place.write("data", &before);
        let line = format!("stress data --rw write --size 1M --io-size 4K --mode {mode} --request-size");
        place.baio(&format!("{line} 4K")).succeeds();
        let after = place.read("data");
        assert_eq!(after.len(), 1 << 20);
        support::assert_same(&before[4096..], &after[4096..5000], "what lay behind the only request");
    }
}

#[test]
fn one_request_after_a_rest_and_then_the_next() {
    let place = Place::new();
    place.write("f", &[7; 64 << 10]);
    let told = stress(&place, "f --interval 100us --io-size 20K");
    has(&told, json!({"requests": 5, "in_flight_max": 1}));
    assert_eq!(told["depth"], 1);
}
