//! Promise: a report is saved as it goes. One that is interrupted leaves what had ended and no working file, and goes on from there;
//! what is shown fits a terminal.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::terminal::answered_on_a_terminal;
use crate::support::{self, BAIO, Done, Place};

/// Two experiments that need no other program: the second takes long enough to be interrupted.
const TWO: [&str; 9] = [
    "report",
    "--quick",
    "--working-set",
    "4M",
    "--only",
    "segments",
    "--only",
    "cache-hits",
    "--out=out",
];

fn report(place: &Place) -> Command {
    let mut command = Command::new(BAIO);
    // Without a search path there is no fio.
    command
        .args(TWO)
        .current_dir(place.path("."))
        .env("PATH", place.path("."));
    command
}

fn kept(place: &Place) -> Value {
    kept_at(place, "out/report.json")
}

fn kept_at(place: &Place, path: &str) -> Value {
    serde_json::from_slice(&place.read(path)).unwrap()
}

fn experiments(kept: &Value) -> Vec<&Value> {
    kept["experiments"].as_array().unwrap().iter().collect()
}

/// Starts one, waits until its second experiment begins, and ends it by this signal.
fn interrupted(place: &Place, signal: Signal) -> (i32, String) {
    let mut child = report(place)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    until(&mut errors, "2 of 2");
    support::signal(&child, signal);
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    let status = child.wait().unwrap();
    (status.code().unwrap_or(-1), shown)
}

fn until(errors: &mut impl BufRead, word: &str) {
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it ended without {word}");
    }
}

fn names_in(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path(".")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn an_interrupted_report_is_kept_and_goes_on() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let place = Place::new();
        let (ended, shown) = interrupted(&place, signal);
        assert_eq!(ended, status, "{shown}");
        assert!(
            shown.contains("--resume") && shown.contains("cache-hits was interrupted"),
            "{shown}"
        );
        assert_eq!(names_in(&place), ["out"], "no working file stays");
        let before = kept(&place);
        assert_eq!(before["finished"], false);
        let [segments, hits] = experiments(&before)[..] else {
            panic!("{before}");
        };
        assert_eq!(
            (&segments["name"], &segments["verified"]),
            (&json!("segments"), &json!(true))
        );
        let last = hits["rows"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["figure"], &hits["name"]),
            (&json!("interrupted"), &json!("cache-hits"))
        );

        let done = Done(report(&place).arg("--resume").output().unwrap()).succeeds();
        assert!(
            !done.errors().contains(": segments:"),
            "it was run again: {}",
            done.errors()
        );
        let after = kept(&place);
        assert_eq!(after["finished"], true);
        assert_eq!(experiments(&after)[0], segments, "what was measured stays");
        assert_eq!(after["began"], before["began"]);
        let rows = experiments(&after)[1]["rows"].as_array().unwrap();
        assert!(
            rows.len() > 1 && rows.iter().all(|row| row["skipped"].is_null()),
            "{rows:?}"
        );
    }
}

#[test]
fn a_report_of_other_options_is_not_gone_on_with() {
    let place = Place::new();
    let line = "report --quick --working-set 4M --only segments --out out";
    place.baio(line).succeeds();
    let before = place.read("out/report.json");
    let error = place.error(&format!("{line} --only mixed-paths --resume"), 2);
    assert!(error["need"].as_str().unwrap().contains("--only=segments"), "{error}");
    assert_eq!(place.read("out/report.json"), before);
}

#[test]
fn somebody_elses_file_is_left_alone() {
    let place = Place::new();
    place.write("report.json", b"{\"mine\": true}");
    let failed = place.baio("report --quick --only segments --json").fails_with(1);
    assert!(failed.error()["cure"].as_str().unwrap().contains("--out"));
    assert_eq!(place.read("report.json"), b"{\"mine\": true}");
    assert_eq!(names_in(&place), ["report.json"]);
    // Nor what has the name that an older report gets; and nothing is measured for a report that could not be kept.
    let line = "report --quick --working-set 4M --only segments --out out";
    place.baio(line).succeeds();
    place.write("out/report.json.old", b"mine");
    let failed = place.baio(&format!("{line} --json")).fails_with(1);
    let object = failed.error()["object"].as_str().unwrap().to_owned();
    assert!(object.ends_with("report.json.old"), "{object}");
    assert_eq!(place.read("out/report.json.old"), b"mine");
}

#[test]
fn what_is_shown_fits_a_terminal() {
    let place = Place::new();
    let line = "report --quick --working-set 4M --only disk --only segments --only random-write";
    let done = place.baio(line).succeeds();
    let shown = done.text();
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(shown.lines().count() <= 60, "{shown}");
    for word in [
        "This disk:",
        "4 KiB durable write",
        "baio beside",
        "--marks",
        "report.json",
    ] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // The machine before all, and what is for the project only where it is asked for.
    assert!(shown.find("Linux ") < shown.find("This disk:"), "{shown}");
    let marks = |shown: &str| shown.contains("S20") && shown.contains("random-write");
    assert!(!marks(&shown), "{shown}");
    assert!(
        !shown.contains(" stress "),
        "commands are shown when they are asked for"
    );
    // Nothing but a line an experiment.
    assert_eq!(done.errors().lines().count(), 3, "{}", done.errors());
    let kept = place.text("report --show report.json --marks");
    assert!(marks(&kept) && kept.contains("This disk:"), "{kept}");
    assert!(kept.lines().all(|line| line.chars().count() <= 80), "{kept}");
    let figures = kept_at(&place, "report.json")["experiments"][0]["disk"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(figures, 8, "the disk in figures is kept");
}

/// Colours stand around whole lines, on a terminal alone; a variable forbids them.
#[test]
fn colour_is_for_a_terminal_that_wants_it() {
    let place = Place::new();
    place.baio("report --quick --working-set 4M --only disk").succeeds();
    const LINE: &str = "report --show report.json";
    let (loud, status) = answered_on_a_terminal(&place, LINE, &[]);
    assert_eq!(status, 0);
    assert!(loud.contains("\u{1b}[1mThis disk:\u{1b}[0m"), "{loud}");
    let piped = place.text(LINE);
    for quiet in [answered_on_a_terminal(&place, LINE, &[("NO_COLOR", "1")]).0, piped] {
        assert!(quiet.contains("This disk:") && !quiet.contains('\u{1b}'), "{quiet}");
    }
}

#[test]
fn commands_can_be_run_again_while_their_files_are_kept() {
    let place = Place::new();
    let line = "report --quick --working-set 4M --only cache-hits --commands --keep --out out";
    let shown = place.text(line);
    let commands: Vec<&str> = shown.lines().filter(|line| line.starts_with(BAIO)).collect();
    assert!(commands.iter().any(|command| command.contains(" worker ")), "{shown}");
    assert!(commands.iter().any(|command| command.contains(" stress ")), "{shown}");
    for command in commands {
        let again = Command::new("sh").args(["-c", command]).output().unwrap();
        assert!(
            again.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&again.stderr)
        );
    }
}

#[test]
fn experiments_are_listed_and_none_is_run() {
    let place = Place::new();
    let listed = place.json("report --list");
    let names: Vec<&str> = listed["experiments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|experiment| experiment["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"segments") && names.contains(&"volume-scale"),
        "{names:?}"
    );
    let shown = place.text("report --list");
    assert!(names.iter().all(|name| shown.contains(name)), "{shown}");
    assert!(names_in(&place).is_empty());
}

/// The processes that a process has started and that run.
fn children(pid: u32) -> Vec<u32> {
    let told = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    told.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

fn command_of(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

#[test]
fn a_report_that_is_killed_takes_its_broker_with_it() {
    let place = Place::new();
    let mut report = Command::new(BAIO)
        .args("report --quick --working-set 4M --only broker --out out".split(' '))
        .current_dir(place.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut broker = None;
    until_so("a broker serves", || {
        assert!(report.try_wait().unwrap().is_none(), "the report ended before");
        let serves = |pid: &u32| command_of(*pid).contains(" serve ");
        broker = children(report.id()).into_iter().find(serves);
        broker.is_some()
    });
    report.kill().unwrap();
    report.wait().unwrap();
    let broker = broker.unwrap();
    // What has ended has no command, also before somebody has taken its status.
    until_so("its broker ends", || !command_of(broker).contains(" serve "));
}

#[track_caller]
fn until_so(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = std::time::Instant::now();
    while !is_so() {
        assert!(since.elapsed().as_secs() < 60, "never: {what}");
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

#[test]
fn an_interruption_before_the_first_figure_leaves_the_older_report() {
    let place = Place::new();
    let older = "report --quick --working-set 4M --only segments --out out";
    place.baio(older).succeeds();
    let before = place.read("out/report.json");
    // Its first experiment first writes a file, which takes longer than a signal.
    let mut child = Command::new(BAIO)
        .args("report --working-set 1G --only random-write --out out".split(' '))
        .current_dir(place.path("."))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until(&mut BufReader::new(child.stderr.take().unwrap()), "1 of 1");
    support::signal(&child, Signal::INT);
    let mut shown = String::new();
    child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{shown}");
    assert!(shown.contains("NOT KEPT") && shown.contains("stays"), "{shown}");
    assert_eq!(place.read("out/report.json"), before);

    // One that is finished takes its place, and it stays beside it.
    place
        .baio("report --quick --working-set 4M --only mixed-paths --out out")
        .succeeds();
    assert_eq!(place.read("out/report.json.old"), before);
    assert_eq!(kept(&place)["experiments"][0]["name"], "mixed-paths");
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let place = Place::new();
    assert!(
        Command::new("mkfifo")
            .arg(place.path("pipe"))
            .status()
            .unwrap()
            .success()
    );
    // Whoever waits is ended, with another exit status.
    let waits_no_longer = |line: &str| place.shell(&format!("exec timeout 60 {BAIO} {line}"));
    let error = waits_no_longer("report --show pipe --json").fails_with(1).error();
    assert_eq!(error["object"], "pipe", "{error}");
    let failed = waits_no_longer("report --quick --only segments --input pipe --out out").fails_with(1);
    let shown = failed.text();
    assert!(shown.contains("not a regular file"), "{shown}");
    place.baio("report --show out/report.json --quick").fails_with(2);
    place.baio("report --show out/report.json --keep").fails_with(2);
}

/// What there is no room for is refused before anything is measured.
#[test]
fn room_is_asked_for_at_the_start() {
    let place = Place::new();
    let script = "mkdir tiny && mount -t tmpfs -o size=64m none tiny || { echo none; exit 0; }
        $BAIO report --quick --only random-read --dir tiny --out out --json; echo; ls -A tiny out";
    let Some(told) = place.with_mounts_of_its_own(script) else {
        return support::skip("no tmpfs can be mounted here");
    };
    let (error, left) = told.split_once("\n").unwrap();
    assert!(
        error.contains("ENOSPC") && error.contains("`random-read` works on"),
        "{told}"
    );
    assert!(error.contains("--working-set"), "{told}");
    assert_eq!(left.trim(), "out:\n\ntiny:", "nothing was made");
}
