//! The report's experiments with processing, connections or another program beside the requests: they run small, and leave nothing behind.
//! No figure is asserted, for a benchmark is no test.

use std::process::Command;

use serde_json::{Value, json};

use crate::small;
use crate::support::BAIO;

fn report(only: &str) -> Vec<Value> {
    small::report(only, "--working-set 4M", true)
}

/// Every run of every side has made requests, and none has failed.
fn all_ran(parts: &[Value]) {
    for part in parts {
        let runs = |side: &Value| side["runs"].as_array().cloned().unwrap_or_default();
        let theirs = part["against"].as_array().into_iter().flatten().flat_map(runs);
        for run in theirs.chain(runs(part)) {
            assert!(run["requests"].as_u64().unwrap() > 0, "{run}");
            assert_eq!(run["errors"], 0, "{run}");
        }
    }
}

/// How many marks there are, which hold or not.
fn marks(parts: &[Value]) -> usize {
    let against = |part: &Value| part["against"].as_array().cloned().unwrap_or_default();
    let of_peers = parts
        .iter()
        .flat_map(against)
        .map(|peer| peer["marks"].as_array().map_or(0, Vec::len));
    let counts = |part: &Value| {
        let counts = part["counts"].as_object();
        counts.map_or(0, |counts| {
            counts.values().filter(|count| count["holds"].is_boolean()).count()
        })
    };
    of_peers.sum::<usize>() + parts.iter().map(counts).sum::<usize>()
}

#[test]
fn pipelines_are_compared_with_one_caller_and_with_threads() {
    let parts = report("pipelining");
    // Four streams direct; random reads through a cache, as copies and in place, which have no mark against one caller.
    assert_eq!(parts.len(), 6);
    assert_eq!(marks(&parts), 10);
    all_ran(&parts);
}

#[test]
fn a_server_in_one_loop_is_compared_with_epoll_and_threads() {
    let parts = report("server");
    assert_eq!(parts.len(), 2);
    // Of both pools, at 64 connections.
    assert_eq!(marks(&parts), 4);
    all_ran(&parts);
}

/// Runs a server of 16 blocks with three clients, in one loop and with a pool, who are told of so many blocks.
fn serve(blocks: u64, mut ended: impl FnMut(std::process::Output)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; 64 << 10]).unwrap();
    for pool in [Value::Null, json!(2)] {
        let job =
            json!({ "Server": { "path": path, "blocks": blocks, "connections": 3, "runtime_ms": 50, "pool": pool } });
        ended(Command::new(BAIO).args(["worker", &job.to_string()]).output().unwrap());
    }
}

/// Its answers are looked at: here no block carries its number, but the first.
#[test]
fn a_server_that_answers_wrongly_is_noticed() {
    serve(16, |output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let run: Value = serde_json::from_slice(&output.stdout).unwrap();
        let [requests, errors] = ["requests", "errors"].map(|key| run[key].as_u64().unwrap());
        assert!(requests > 0 && errors > requests / 2 && errors <= requests, "{run}");
    });
}

/// Its clients do not wait for ever.
#[test]
fn a_server_that_cannot_read_ends_and_says_why() {
    serve(1 << 40, |output| {
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("block") || said.contains("answer"), "{said}");
    });
}

#[test]
fn blocks_of_dd_are_swept() {
    let parts = report("request-size");
    let sizes = parts
        .iter()
        .filter(|part| part["against"].as_array().is_some_and(|all| all.len() == 3));
    assert_eq!(sizes.count(), 5);
    assert_eq!(marks(&parts), 4);
    all_ran(&parts);
    match parts.iter().find(|part| part["part"] == "I/O schedulers") {
        Some(skipped) => assert!(!skipped["skipped"].as_str().unwrap().is_empty()),
        None => assert!(parts.len() > 5, "no scheduler was tried"),
    }
}

#[test]
fn batches_of_many_sizes_are_compared() {
    let parts = report("batches");
    assert_eq!(parts.len(), 3);
    all_ran(&parts);
    for part in &parts {
        let calls = part["counts"]["system_calls"]["value"].as_f64().unwrap();
        assert!(calls > 0.0, "{part}");
    }
}

#[test]
fn a_broker_is_compared_with_the_owner() {
    let parts = report("broker");
    assert_eq!(parts.len(), 2);
    assert_eq!(marks(&parts), 4);
    all_ran(&parts);
}
