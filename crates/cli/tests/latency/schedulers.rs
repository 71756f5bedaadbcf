//! Promise: `baio latency --schedulers` runs once with each I/O scheduler of the device and puts the old one back, also when the process is
//! killed; when the process that guards the setting is killed, the run notices, puts it back itself and fails.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{self, BAIO, Done, Loop, Place};

/// A loop device whose scheduler is not the first that a run chooses, so that the first choice can be seen.
struct Setting {
    device: Loop,
    path: PathBuf,
    names: Vec<String>,
    original: String,
    old: String,
}

impl Setting {
    fn new(place: &Place) -> Option<Setting> {
        place.write("image", &vec![0; 8 << 20]);
        let device = Loop::over(&place.path("image"))?;
        let name = device.0.file_name()?.to_str()?;
        let path = PathBuf::from(format!("/sys/block/{name}/queue/scheduler"));
        let text = fs::read_to_string(&path).ok()?;
        let names: Vec<String> = text
            .split_whitespace()
            .map(|word| word.trim_matches(['[', ']']).to_owned())
            .collect();
        if names.len() < 2 {
            support::skip("the kernel has one I/O scheduler");
            return None;
        }
        let old = names[1].clone();
        let original = now(&path);
        fs::write(&path, &old).ok()?;
        Some(Setting {
            device,
            path,
            names,
            original,
            old,
        })
    }

    fn now(&self) -> String {
        now(&self.path)
    }

    /// Sleeps until the setting is (or is no longer) the old one.
    #[track_caller]
    fn wait_until(&self, is_old: bool) {
        let begun = Instant::now();
        while (self.now() == self.old) != is_old {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", self.now());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A run that is busy for a while with its first choice.
    fn long_run(&self, place: &Place) -> Child {
        let device = self.device.0.to_str().unwrap();
        let words = format!("latency {device} --writes 1500 --backend sync --durable --schedulers --force --json");
        let child = place.spawn(BAIO, words.split_whitespace());
        self.wait_until(false);
        child
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(&self.path, &self.original);
    }
}

/// The word in brackets.
fn now(path: &PathBuf) -> String {
    let text = fs::read_to_string(path).unwrap();
    let word = text.split_whitespace().find(|word| word.starts_with('['));
    word.unwrap_or_default().trim_matches(['[', ']']).to_owned()
}

#[test]
fn each_scheduler_once_and_then_the_old_one() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    let Some(setting) = Setting::new(&place) else {
        return;
    };
    let device = setting.device.0.to_str().unwrap();
    let error = place.error(&format!("latency {device} --writes 20 --schedulers"), 1);
    assert_eq!(error["code"], "EPERM", "a device only with --force");
    let line = format!("latency {device} --writes 50 --schedulers --force --csv s.csv");
    let told = place.json(&line);
    let runs = told["runs"].as_array().unwrap();
    let ran: Vec<&str> = runs.iter().map(|run| run["scheduler"].as_str().unwrap()).collect();
    assert_eq!(ran, setting.names);
    assert_eq!(setting.now(), setting.old);
    let csv = String::from_utf8(place.read("s.csv")).unwrap();
    for name in &setting.names {
        let lines = csv.lines().filter(|line| line.starts_with(&format!("{name},")));
        assert_eq!(lines.count(), 50, "{name}");
    }
}

#[test]
fn a_run_that_is_killed() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    let Some(setting) = Setting::new(&place) else {
        return;
    };
    let mut child = setting.long_run(&place);
    // A second run would take the first one's choice for the old one.
    let device = setting.device.0.to_str().unwrap();
    let held = place.error(&format!("latency {device} --writes 1 --schedulers --force"), 1);
    assert_eq!(held["code"], "EBUSY", "{held}");
    child.kill().unwrap();
    child.wait().unwrap();
    setting.wait_until(true);
}

#[test]
fn a_guard_that_is_killed() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    let Some(setting) = Setting::new(&place) else {
        return;
    };
    let child = setting.long_run(&place);
    let pid = child.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let guard: i32 = children.trim().parse().expect("one child");
    kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    let done = Done(child.wait_with_output().unwrap()).fails_with(1);
    assert_eq!(done.error()["code"], "ECHILD");
    assert_eq!(setting.now(), setting.old);
}

#[test]
fn whoever_may_not_choose_is_told_what_is_needed() {
    let place = Place::new();
    place.write("f", &[0; 64 << 10]);
    if rustix::process::geteuid().is_root() {
        return; // Root may.
    }
    let error = place.error("latency f --writes 10 --schedulers", 1);
    // On a file system without a device of its own there is nothing to choose.
    assert!(
        ["EACCES", "EOPNOTSUPP"].iter().any(|code| error["code"] == *code),
        "{error}"
    );
}
