//! Promise: an experiment of `baio report` that takes figures names each side's exact command, gives every ratio and mark,
//! leaves out a peer that is not there with the reason, and is failed by wrong bytes and failed requests, not by figures.

use std::io::Read;
use std::process::Command;

use serde_json::Value;

use crate::small;
use crate::support::{self, BAIO, Place};

fn report(experiment: &str, with_fio: bool) -> Vec<Value> {
    small::report(experiment, "--working-set 4M", with_fio)
}

#[track_caller]
fn compared(peer: &Value, figures: &[&str]) {
    for figure in figures {
        assert!(
            peer[figure].as_f64().is_some_and(|ratio| ratio > 0.0),
            "{figure}: {peer}"
        );
    }
    for mark in peer["marks"].as_array().unwrap() {
        assert!(mark["holds"].is_boolean() && mark["mark"].is_string(), "{mark}");
    }
    assert!(!peer["runs"].as_array().unwrap().is_empty());
}

#[test]
fn one_file_against_eight_and_no_fio() {
    let parts = report("random-write", false);
    let command = parts[0]["command"].as_str().unwrap();
    assert!(
        command.contains(" stress ") && command.contains("--rw randwrite --depth 64"),
        "{command}"
    );
    let against = parts[0]["against"].as_array().unwrap();
    assert_eq!(against.len(), 2);
    compared(&against[0], &["iops_ratio", "cpu_ratio"]);
    assert_eq!(against[0]["marks"][0]["mark"], ">= 0.95");
    assert!(against[0]["command"].as_str().unwrap().contains("--files 8"));
    assert_eq!(against[1]["skipped"], "fio is not installed");
    assert!(against[1]["command"].as_str().unwrap().starts_with("fio "));
}

#[test]
fn one_file_against_fio() {
    if Command::new("fio").arg("--version").output().is_err() {
        support::skip("fio is not installed");
        return;
    }
    let parts = report("random-write", true);
    let fio = &parts[0]["against"][1];
    compared(fio, &["iops_ratio", "cpu_ratio"]);
    assert_eq!(fio["runs"][0]["backend"], "fio io_uring");
    assert!(fio["runs"][0]["requests"].as_u64() > Some(0));
}

#[test]
fn a_service_against_the_callers_own_thread() {
    let parts = report("service", false);
    assert_eq!(parts.len(), 2, "two depths");
    for part in parts {
        assert!(part["command"].as_str().unwrap().contains("--service"));
        compared(
            &part["against"][0],
            &[
                "iops_ratio",
                "cpu_ratio",
                "context_switches_ratio",
                "p50_ratio",
                "p99_ratio",
            ],
        );
        assert!(!part["against"][0]["command"].as_str().unwrap().contains("--service"));
    }
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is_made() {
    let place = Place::new();
    let error = place.error("report --only nothing", 2);
    assert!(error["need"].as_str().unwrap().contains("random-write"), "{error}");
    place.baio("report --working-set 1000 --json").fails_with(2);
    assert_eq!(std::fs::read_dir(place.path(".")).unwrap().count(), 0);
}

/// Whoever waits for a process is told by the kernel: nobody has to look in time, however short it is, or busy the machine.
#[test]
fn the_memory_of_a_measured_process_is_taken_at_its_end() {
    const MIB: u64 = 1 << 20;
    let measured = |words: &[&str]| -> u64 {
        let (mut tells, told) = std::io::pipe().unwrap();
        let mut command = Command::new(BAIO);
        command.args(["worker", r#""Runner""#]).args(words);
        command.stdin(told).status().unwrap();
        drop(command);
        let mut text = String::new();
        tells.read_to_string(&mut text).unwrap();
        let told: Value = serde_json::from_str(&text).unwrap();
        told["Ended"]["memory_bytes"]
            .as_u64()
            .unwrap_or_else(|| panic!("{told}"))
    };
    for _ in 0..20 {
        let small = measured(&["true"]);
        assert!((1..32 * MIB).contains(&small), "{small}");
    }
    // Its child's counts too: fio works in one.
    let large = measured(&[
        "sh",
        "-c",
        "dd if=/dev/zero of=/dev/null bs=64M count=2 2>/dev/null; true",
    ]);
    assert!((64 * MIB..96 * MIB).contains(&large), "{large}");
    let (mut tells, told) = std::io::pipe().unwrap();
    let mut command = Command::new(BAIO);
    command.args(["worker", r#""Runner""#, "/missing"]).stdin(told);
    command.status().unwrap();
    drop(command);
    let mut text = String::new();
    tells.read_to_string(&mut text).unwrap();
    assert_eq!(text, r#"{"Refused":{"errno":2}}"#);
}
