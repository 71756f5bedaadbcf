//! The report's experiments with processing or another program beside the requests: they run small, and leave nothing behind.
//! No figure is asserted, for a benchmark is no test.

use serde_json::Value;

use crate::small;

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
fn blocks_of_dd_are_swept() {
    let parts = report("request-size");
    let sizes = parts
        .iter()
        .filter(|part| part["against"].as_array().is_some_and(|all| all.len() == 3));
    assert_eq!(sizes.count(), 5);
    assert_eq!(marks(&parts), 4);
    all_ran(&parts);
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
