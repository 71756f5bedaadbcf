//! The report's experiments with a device, a pipe or the kernel's cache: they run small, and leave nothing behind. No figure
//! is asserted, for a benchmark is no test.

use std::process::Command;

use serde_json::{Value, json};

use crate::small;
use crate::support::{BAIO, Place};

fn report(only: &str) -> Vec<Value> {
    small::report(only, "", true)
}

/// Every comparison of these experiments has a mark, which holds or not.
fn marks(parts: &[Value]) -> usize {
    let against = parts.iter().map(|part| &part["against"][0]);
    against.filter(|peer| peer["marks"][0]["holds"].is_boolean()).count()
}

/// Runs a job as the report does.
fn work(job: &Value) -> Result<Value, String> {
    let output = Command::new(BAIO).args(["worker", &job.to_string()]).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn reads_of_the_kernels_cache_are_compared_with_pread() {
    assert_eq!(marks(&report("buffered-reads")), 2);
}

/// What is counted of requests, and is no figure of this machine, may be asserted.
#[test]
fn a_large_volume_is_measured_in_small() {
    let parts = small::report("volume-scale", "--segments 300", true);
    let part = |name: &str| -> &Value {
        let found = parts.iter().find(|part| part["name"] == name);
        &found.unwrap_or_else(|| panic!("no {name} in {parts:?}"))["values"]
    };
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(part("the volume")["segments"], 300);
    let pairs = number(&part("an open by name")["pairs"]);
    assert!((1.0..1.3).contains(&pairs), "{pairs}");
    // Opened by its snapshot: the table was not read.
    let read = number(&part("an open after a clean close")["bytes_read"]);
    assert!(read < number(&part("the volume")["table_bytes"]) / 2.0, "{read}");
    assert!(number(&part("an open after a crash")["ratio_to_dd"]) > 0.0);
    // Looking up beside the zeroing, its flush, the record in the table, and in the mirror beside the look at the table.
    let create = part("a durable create in the open volume");
    assert_eq!((number(&create["writes"]), number(&create["syncs"])), (3.0, 1.0));
    let rounds = number(&create["rounds"]);
    assert!((4.0..4.7).contains(&rounds), "{rounds}");
    assert_eq!(part("memory of the open volume")["opens"], 10_000);
}

#[test]
fn disk_and_pipe_complete_in_one_queue() {
    assert_eq!(marks(&report("one-queue")), 2);
}

#[test]
fn posted_writes_run_or_say_what_they_need() {
    let parts = report("posted-writes");
    match parts[0]["skipped"].as_str() {
        Some(reason) => assert!(reason.contains("needs "), "{reason}"),
        None => assert_eq!(marks(&parts), 2),
    }
    let part = |name: &str| parts.iter().find(|part| part["part"] == name);
    let runs = part("as written").unwrap()["writes"].as_array().unwrap();
    assert!(!runs.is_empty() && runs.iter().all(|run| run["batches"].as_u64().unwrap() > 0));
}

#[test]
fn our_log_is_compared_with_threads_that_write() {
    let parts = report("log-appends");
    // Two sizes with four loads, many threads, random moments; and one record alone.
    assert_eq!(parts.len(), 9);
    for (number, part) in parts.iter().enumerate() {
        let against = part["against"].as_array().unwrap();
        assert_eq!(against.len(), if number == 8 { 1 } else { 2 }, "{part}");
        let judged = against.iter().flat_map(|peer| peer["marks"].as_array().unwrap()).chain(
            part["counts"]
                .as_object()
                .into_iter()
                .flat_map(|counts| counts.values()),
        );
        assert!(judged.clone().count() > 0 && judged.clone().all(|mark| mark["holds"].is_boolean()));
        assert!(
            against.iter().all(|peer| peer["p50_ratio"].as_f64().unwrap() > 0.0),
            "{part}"
        );
    }
}

#[test]
fn messages_go_either_way_unharmed_whatever_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    for engine in [true, false] {
        for (messages, disk_reads) in [(1, 0), (17, 3), (1000, 100)] {
            let measured = work(&json!({ "OneQueue": {
                "path": path, "messages": messages, "under_way": 16,
                "disk_reads": disk_reads, "disk_depth": 8, "engine": engine,
            }}))
            .unwrap();
            assert_eq!(measured["requests"], messages);
            assert_eq!(measured["errors"], 0);
        }
    }
}

/// The side of ours of `posted-writes`.
#[test]
fn every_posted_write_lands_and_is_counted() {
    let place = Place::new();
    for backend in ["threads", "sync"] {
        place.write("device", &[0; 300 * 4096]);
        let line = format!("stress device --rw write --depth 300 --io-size 1200K --backend {backend} --force");
        let measured = place.json(&line);
        assert_eq!((&measured["requests"], &measured["errors"]), (&json!(300), &json!(0)));
        assert!(measured["submit_latency_us"]["p999"].is_number());
        let bytes = place.read("device");
        assert!(bytes.chunks(4096).all(|page| page.iter().any(|&byte| byte != 0)));
    }
}

#[test]
fn buffered_writes_end_and_their_threads_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    // The side of ours of `buffered-writes`.
    let line = "--rw randwrite --mode kernel --request-size 64K --depth 16 --runtime 50ms --backend threads --json";
    let output = Command::new(BAIO)
        .arg("stress")
        .arg(&path)
        .args(line.split(' '))
        .output()
        .unwrap();
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(measured["errors"], 0);
    assert!(measured["submit_latency_us"]["p999"].is_number());
    let threads = measured["threads_max"].as_u64().unwrap();
    assert!((2..=19).contains(&threads), "{threads}");
}
