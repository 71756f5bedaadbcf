//! A report of one experiment, on little, in a directory that must be empty again.

use std::process::Command;

use serde_json::Value;

use crate::support::{BAIO, Done, Place};

/// Its comparisons. With these options more; without tools there is no search path, and so no fio.
#[track_caller]
pub(crate) fn report(experiment: &str, options: &str, with_tools: bool) -> Vec<Value> {
    let (place, out) = (Place::new(), Place::new());
    let mut command = Command::new(BAIO);
    command
        .args(["report", "--quick", "--json", "--only", experiment])
        .args(options.split_whitespace())
        .arg("--out")
        .arg(out.path("."))
        .current_dir(place.path("."));
    if !with_tools {
        command.env("PATH", place.path("."));
    }
    let told = Done(command.output().unwrap()).succeeds().json();
    let left = std::fs::read_dir(place.path(".")).unwrap().count();
    assert_eq!(left, 0, "working files go");
    assert_eq!(told["verified"], true, "{told}");
    assert_eq!(told["experiments"][0]["name"], experiment);
    told["experiments"][0]["parts"].as_array().unwrap().clone()
}
