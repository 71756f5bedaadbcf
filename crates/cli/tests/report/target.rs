//! Promise: `baio report --target` reads a device or a file and never writes to it; what writes is left out, and the report says so. A
//! target that is not there, or that cannot be read, ends the report before anything is measured, and nothing is made.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;

use crate::support::{BAIO, Place, is_root, skip};

/// Every experiment that works on a target, and the others of the report.
const LINE: &str = "report --quick --working-set 2M --out out --dir work --target";

fn look(path: &Path) -> (Vec<u8>, SystemTime) {
    (fs::read(path).unwrap(), path.metadata().unwrap().modified().unwrap())
}

fn kept(place: &Place) -> Value {
    serde_json::from_slice(&place.read("out/report.json")).unwrap()
}

/// Takes a report of it, of all experiments that read or of those that are named; it must leave the target as it was.
fn reads_alone(place: &Place, target: &str, behind: &Path, kind: &str, only: &str) {
    fs::create_dir(place.path("work")).unwrap();
    let before = look(behind);
    let done = place.baio(&format!("{LINE} {target}{only}")).succeeds();
    assert!(look(behind) == before, "bytes or time of the target changed");
    assert_eq!(fs::read_dir(place.path("work")).unwrap().count(), 0);
    let told = kept(place);
    let experiments = told["experiments"].as_array().unwrap();
    let names: Vec<&str> = experiments.iter().map(|told| told["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"request-size") && names.contains(&"batches"),
        "{names:?}"
    );
    for told in experiments {
        // Without fio or dd ours stands alone; the disk has figures of its own.
        let rows = |key: &str| told[key].as_array().cloned().unwrap_or_default();
        let ours = rows("rows").iter().any(|row| row["ours"].is_number()) || rows("disk").len() == 5;
        assert!(ours && told["verified"] == true, "{}: {}", told["name"], told["notes"]);
    }
    let said = told["machine"]["target"].as_str().unwrap();
    assert!(said.contains(kind), "{said}");
    let shown = done.text();
    let in_a_line = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(in_a_line.contains(&format!("target {said}")), "{shown}");
    let left_out = told["left_out"].as_str().unwrap();
    assert_eq!(
        left_out.is_empty(),
        !only.is_empty(),
        "what was not asked for is not left out"
    );
    if only.is_empty() {
        assert!(
            left_out.contains("durable-writes") && !names.contains(&"durable-writes"),
            "{left_out}"
        );
        assert!(shown.contains("left out, because they write"), "{shown}");
    }
}

#[test]
fn a_file_is_read_and_stays_as_it_is() {
    let place = Place::new();
    place.write("data", &[7; 5 << 20]);
    reads_alone(&place, "data", &place.path("data"), "a file of 5 MiB", "");
    // The target is among the words of a report.
    place.write("other", &[7; 5 << 20]);
    let resumed = place.error(&format!("{LINE} other --resume"), 2);
    assert_eq!(resumed["code"], "EUSAGE", "{resumed}");
}

#[test]
fn a_device_is_read_and_stays_as_it_is() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.write("image", &[7; 4 << 20]);
    let made = Command::new("losetup")
        .args(["-f", "--show"])
        .arg(place.path("image"))
        .output();
    let Some(device) = made.ok().filter(|made| made.status.success()) else {
        return skip("no loop device is to be had");
    };
    let device = String::from_utf8(device.stdout).unwrap().trim().to_owned();
    let _gone = Detached(device.clone());
    let only = " --only request-size --only batches";
    reads_alone(&place, &device, &place.path("image"), "a block device of 4 MiB", only);
}

/// A loop device, until this is dropped.
struct Detached(String);

impl Drop for Detached {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn what_cannot_be_a_target_ends_it_at_once() {
    let place = Place::new();
    place.write("data", &[7; 2 << 20]);
    fs::create_dir(place.path("work")).unwrap();
    for (line, need) in [
        ("mistyped", "a file that is there"),
        ("/dev/null", "a block device"),
        ("data --only durable-writes", "random-read"),
        (".", "a directory"),
        ("unix:sock#a", "a block device"),
    ] {
        let error = place.error(&format!("{LINE} {line}"), 2);
        assert_eq!(error["code"], "EUSAGE", "{error}");
        assert!(error["need"].as_str().unwrap().contains(need), "{error}");
        assert!(error["cure"].is_string(), "{error}");
    }
    assert!(!place.path("mistyped").exists() && !place.path("out").exists());
}

#[test]
fn a_directory_is_where_the_files_are_made() {
    let place = Place::new();
    fs::create_dir(place.path("work")).unwrap();
    let done = Command::new(BAIO)
        .args([
            "report", "--quick", "--target", "work", "--only", "segments", "--out", "out",
        ])
        .current_dir(place.path("."))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let options = kept(&place)["options"].to_string();
    assert!(options.contains("--dir=") && !options.contains("--target"), "{options}");
}
