//! Promise: while one process creates, resizes, renames and deletes, `list` and `stat` of others answer each time, without an
//! error, and never tell of a state that did not exist, unless as torn.
//!
//! The owner is this test's own program, run again. It takes a fixed walk, of which every state can be told from all that never
//! were: see [`the_owner`] and [`wrong`]. (`crates/storage/tests/owners/looks_beside_the_owner.rs` does the same within one process.)

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use baio_engine::EngineOptions;
use baio_storage::{Core, CreateOptions, Identity, ResizeOptions};
use serde_json::Value;

use crate::support::{Place, TestName};

const ROUNDS: usize = 1_000;
const LIST: &str = "list vol --json";
const BLOCK: u64 = 4096;
const STEPS: u64 = 8;
/// Where the owner finds its volume.
const VOLUME: &str = "BAIO_TEST_VOLUME";

/// No test: the other process, until its standard input ends.
#[test]
#[ignore = "run by the test below"]
fn the_owner() {
    let Ok(path) = std::env::var(VOLUME) else { return };
    let me = Identity::effective();
    let config = EngineOptions {
        slots: 64,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    };
    let mut core = Core::open(Path::new(&path), &config).unwrap();
    let block = CreateOptions::of_size(BLOCK);
    for name in ["a", "left", "right"] {
        core.create(me, me.uid, name, &block).unwrap();
    }
    // Whoever started it holds the other end, and is gone when that is closed.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    println!("open");
    for step in 1_u64.. {
        let [old, new] = if step % 2 == 1 { ["a", "b"] } else { ["b", "a"] };
        core.rename(me, me.uid, old, new).unwrap();
        let size = ResizeOptions::to_size((1 + step % STEPS) * BLOCK);
        core.resize(me, me.uid, "left", &size).unwrap();
        core.resize(me, me.uid, "right", &size).unwrap();
        core.create(me, me.uid, "first", &block).unwrap();
        core.create(me, me.uid, "second", &block).unwrap();
        core.delete(me, me.uid, "second").unwrap();
        core.delete(me, me.uid, "first").unwrap();
    }
}

/// With what it says, to be kept: after a minute the test runner says there that it still runs, and ends where nobody can hear.
fn start_owner(place: &Place) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([TestName::of(the_owner).0, "--exact", "--ignored", "--nocapture"])
        .env(VOLUME, place.path("vol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"), "the owner has ended");
    (owner, lines)
}

/// Which rule of the owner's walk a list breaks that is told to be of one moment.
fn wrong(segments: &Value) -> Option<&'static str> {
    let segments = segments.as_array().unwrap();
    let find = |name: &str| segments.iter().find(|segment| segment["name"] == name);
    let there = |name: &str| find(name).is_some();
    let blocks = |name: &str| find(name).map_or(0, |segment| segment["size_bytes"].as_u64().unwrap() / BLOCK);
    let ahead = (blocks("left") + STEPS - blocks("right")) % STEPS;
    let rules = [
        (there("left") && there("right"), "a segment is missing"),
        (there("a") != there("b"), "one of the two names, and one only"),
        (ahead <= 1, "left is resized first, right at once after it"),
        (
            there("first") || !there("second"),
            "first is there before and after second",
        ),
        (ahead == 0 || !there("first"), "first is made when both are resized"),
        (
            segments.iter().all(|s| s["state"] != "quarantined"),
            "nobody lost blocks",
        ),
    ];
    rules.iter().find(|(holds, _)| !holds).map(|(_, rule)| *rule)
}

#[test]
fn a_thousand_lists_and_stats_tell_of_states_that_were() {
    let place = Place::new();
    place.baio("format vol --size 16M").succeeds();
    let (mut owner, _said) = start_owner(&place);
    let (mut torn, mut states) = (0, std::collections::BTreeSet::new());
    for round in 0..2 * ROUNDS {
        // Every other one is a list.
        let line = [LIST, "stat vol --json", LIST, "stat vol#right --json"][round % 4];
        let answer = place.baio(line).succeeds().json();
        if answer["torn"] == true {
            torn += 1;
        } else if line == LIST {
            assert_eq!(wrong(&answer["segments"]), None, "round {round}: {answer}");
            states.insert(answer.to_string());
        } else if line == "stat vol --json" {
            assert_eq!(answer["in_use"]["pid"], owner.id());
            assert_eq!(answer["warnings"], Value::Array(Vec::new()));
            let segments = answer["segments"].as_u64().unwrap();
            assert!((3..=5).contains(&segments), "round {round}: {answer}");
        } else {
            let blocks = answer["size_bytes"].as_u64().unwrap() / BLOCK;
            assert!((1..=STEPS).contains(&blocks), "round {round}: {answer}");
        }
    }
    assert!(owner.try_wait().unwrap().is_none(), "the owner has ended");
    owner.kill().unwrap();
    owner.wait().unwrap();
    // Where writes cost nothing, as on tmpfs, it hardly ever stands still.
    assert!(torn < ROUNDS, "{torn} answers were torn");
    assert!(states.len() > 10, "only {} states were seen", states.len());
    println!("{} states, {torn} torn", states.len());
}
