//! Promise: the report's experiments on our own page cache run small, count what the cache did, hold each count to its mark,
//! and leave nothing behind: no file, no cgroup, no mount. No time is asserted, for a benchmark is no test.

use serde_json::Value;

use crate::small;

fn report(experiment: &str, with_tools: bool) -> Vec<Value> {
    small::report(experiment, "--working-set 4M", with_tools)
}

/// Of a mark that does not depend on time.
#[track_caller]
fn holds(part: &Value, key: &str) {
    let count = &part["counts"][key];
    assert_eq!(count["holds"], true, "{key}: {}", part["part"]);
}

#[track_caller]
fn is_compared(peer: &Value, marks: usize) {
    assert!(peer["iops_ratio"].as_f64() > Some(0.0), "{peer}");
    assert!(peer["cpu_ratio"].as_f64() > Some(0.0), "{peer}");
    let held = peer["marks"].as_array().unwrap().iter();
    assert_eq!(held.filter(|mark| mark["holds"].is_boolean()).count(), marks, "{peer}");
}

/// The comparisons on a plain file, and those on a segment, each by its own command.
fn by_place(parts: &[Value]) -> (Vec<&Value>, Vec<&Value>) {
    let (segment, file): (Vec<_>, Vec<_>) = parts
        .iter()
        .partition(|part| part["part"].as_str().unwrap().starts_with("segment, "));
    assert!(
        segment
            .iter()
            .all(|part| part["command"].as_str().unwrap().contains(".img#pages"))
    );
    assert!(file.iter().all(|part| {
        let command = part["command"].as_str().unwrap();
        part["part"].as_str().unwrap().starts_with("file, ") && command.contains(".file ")
    }));
    (file, segment)
}

#[test]
fn cold_reads_ask_the_device_once_for_what_was_asked_and_no_more() {
    let parts = report("cached-reads", false);
    let (file, segment) = by_place(&parts);
    assert_eq!(
        (file.len(), segment.len()),
        (2, 1),
        "two sizes, and one of them on the segment"
    );
    for part in &parts {
        assert_eq!(part["counts"]["bytes_read"]["value"], 1.0, "{part}");
        holds(part, "device_reads");
        is_compared(&part["against"][0], 1);
        assert_eq!(part["against"][1]["skipped"], "fio is not installed");
        let command = part["command"].as_str().unwrap();
        assert!(
            command.contains("--once") && command.contains("--mode cached"),
            "{command}"
        );
    }
}

#[test]
fn reads_in_order_bring_each_byte_once() {
    let parts = report("sequential-reads", false);
    let (file, segment) = by_place(&parts);
    assert_eq!((file.len(), segment.len()), (2, 2), "one at a time, and streaming");
    parts.iter().for_each(|part| holds(part, "bytes_read"));
    is_compared(&file[1]["against"][0], 1);
    is_compared(&segment[1]["against"][0], 1);
}

#[test]
fn hits_are_compared_with_pread() {
    let parts = report("cache-hits", false);
    assert_eq!(parts.len(), 2, "copied, and pinned");
    parts.iter().for_each(|part| is_compared(&part["against"][0], 1));
}

#[test]
fn a_durable_write_is_at_most_one_write_of_the_device_and_no_read() {
    let parts = report("durable-writes", false);
    let (file, segment) = by_place(&parts);
    assert_eq!(
        (file.len(), segment.len()),
        (5, 1),
        "four sizes at random, one in order"
    );
    for part in &parts {
        for key in ["device_writes", "device_reads", "spurious_wakeups"] {
            holds(part, key);
        }
    }
}

#[test]
fn plain_writes_are_compared_with_as_much_memory_or_say_why_not() {
    let parts = report("plain-writes", true);
    let (file, segment) = by_place(&parts);
    assert_eq!(
        (file.len(), segment.len()),
        (3, 1),
        "three sets, and the first of them on the segment"
    );
    // The set that fits reaches the device once.
    holds(file[0], "pages_written_per_page");
    holds(segment[0], "pages_written_per_page");
    for part in &parts {
        assert!(part["counts"]["pages_written_per_page"]["value"].as_f64() > Some(0.0));
        assert!(part["runs"][0]["sync_seconds"].as_f64() > Some(0.0), "{part}");
        let peer = &part["against"][0];
        if peer["skipped"].is_null() {
            is_compared(peer, 1);
            let command = peer["command"].as_str().unwrap();
            assert!(
                command.contains("cgroup.procs") && command.contains("--end_fsync=1"),
                "{command}"
            );
            let procs = command.split_once("> ").unwrap().1.split_once(" &&").unwrap().0;
            assert!(!std::path::Path::new(procs).exists(), "{procs} stayed behind");
        }
    }
}

#[test]
fn the_tables_have_each_row_in_each_way() {
    for (experiment, rows) in [("aio-stress-table", 4), ("streaming-figures", 2)] {
        let parts = report(experiment, false);
        let tables: Vec<&Value> = parts.iter().filter(|part| part["rows"].is_array()).collect();
        assert!(!tables.is_empty());
        for table in tables {
            let told = table["rows"].as_array().unwrap();
            assert_eq!(told.len(), rows, "{experiment}");
            for row in told {
                assert!(row["ours, cached"].as_f64() > Some(0.0), "{row}");
                assert!(row["ours, direct"].as_f64() > Some(0.0), "{row}");
                assert!(row["libaio, the kernel's cache"].is_null(), "there is no fio: {row}");
            }
        }
    }
}

#[test]
fn one_asynchronous_cleaner_is_compared_with_the_best_of_the_others() {
    let parts = report("page-cleaners", false);
    let ours = parts
        .iter()
        .find(|part| part["counts"].is_object())
        .expect("a comparison");
    for key in ["transactions", "cpu", "foreground"] {
        assert!(ours["counts"][key]["holds"].is_boolean(), "{key}: {ours}");
    }
    assert!(ours["runs"][0]["foreground_percent"].is_number());
    let table = parts.iter().find(|part| part["rows"].is_array()).expect("a table");
    assert!(table["rows"].as_array().unwrap().len() >= 2, "{table}");
    assert!(table["best"].as_str().unwrap().contains("synchronous"));
}
