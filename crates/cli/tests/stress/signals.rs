//! Promise: SIGINT and SIGTERM end `baio stress` and `baio latency` with the figures that they have by then, and leave no half-made file.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::server::Server;
use crate::support::{self, BAIO, Done, Place, has, until};

/// A place with a file of 1 MiB, `f`.
fn with_file() -> Place {
    let place = Place::new();
    place.write("f", &support::random_bytes(1 << 20, 1));
    place
}

fn start(place: &Place, line: &str) -> Child {
    place.spawn(BAIO, line.split_whitespace())
}

/// Reads or writes that a process has asked the kernel for.
fn calls(child: &Child, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let number = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    number.unwrap_or(0)
}

/// Its end after a signal: not by it, but with a status as a shell says it.
fn ended(child: Child, signal: Signal) -> Done {
    support::signal(&child, signal);
    let done = Done(child.wait_with_output().unwrap());
    assert_eq!(done.0.status.signal(), None, "{}", done.errors());
    done.fails_with(128 + signal.as_raw())
}

fn figures(done: &Done, key: &str) -> Value {
    let told = done.json();
    assert!(told[key].as_str().is_some_and(|said| said.contains("SIG")), "{told}");
    told
}

#[test]
fn a_run_of_stress_tells_what_it_has() {
    let place = with_file();
    for (signal, options) in [
        (Signal::INT, "--rw randread --runtime 900"),
        (Signal::TERM, "--rw randwrite --runtime 900 --threads 3"),
        (Signal::INT, "--stages randread,read,write --runtime 900 --verify"),
    ] {
        let line = format!("stress f --backend sync --mode kernel {options} --json");
        let child = start(&place, &line);
        until("it is at work", || {
            calls(&child, "syscr:") + calls(&child, "syscw:") > 2000
        });
        let told = figures(&ended(child, signal), "ended_early");
        assert!(
            told["requests"].as_u64().unwrap() > 0 && told["iops"].as_f64().unwrap() > 0.0,
            "{told}"
        );
        has(&told, json!({"errors": 0, "first_error": null}));
        assert_eq!(
            told["parts"].as_array().unwrap().len(),
            1,
            "no stage is begun after it: {told}"
        );
    }
}

/// `timeout` sends its signal to a process and to its group, and a terminal's Ctrl-C comes beside a shell's TERM: what comes within an instant
/// asks no second time.
#[test]
fn two_signals_at_once_cost_no_figures() {
    let place = with_file();
    let child = start(&place, "stress f --backend sync --mode kernel --runtime 900 --json");
    until("it is at work", || calls(&child, "syscr:") > 2000);
    // Stopped, it has both before it does anything.
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        support::signal(&child, signal);
    }
    let done = Done(child.wait_with_output().unwrap());
    assert_eq!(done.0.status.signal(), None, "{}", done.errors());
    assert!(matches!(done.status(), 130 | 143), "{}", done.errors());
    figures(&done, "ended_early");
}

#[test]
fn people_see_that_it_ended_early() {
    let place = with_file();
    let child = start(&place, "stress f --backend sync --mode kernel --runtime 900");
    until("it is at work", || calls(&child, "syscr:") > 2000);
    let told = ended(child, Signal::INT);
    let text = told.text();
    assert!(
        text.contains(" requests in ") && text.contains("\nended early: interrupted by SIGINT\n"),
        "{text}"
    );
}

/// A file that is being made may be large: it is not left behind without a word.
#[test]
fn a_file_that_is_half_made_goes_again() {
    for size in ["256M", "512M", "1G", "2G"] {
        let place = Place::new();
        let child = start(
            &place,
            &format!("stress new --rw write --runtime 900 --size {size} --json"),
        );
        until("it writes", || {
            place.path("new").metadata().is_ok_and(|file| file.len() > 0)
        });
        let done = ended(child, Signal::INT);
        if done.json().get("requests").is_some() {
            continue; // It was made, and is written over: a larger one takes longer.
        }
        assert!(!place.path("new").exists());
        let error = done.error();
        assert_eq!(error["code"], "EINTR");
        assert!(error["message"].as_str().unwrap().contains("is gone again"), "{error}");
        return;
    }
    panic!("not even 2 GiB take long enough");
}

#[test]
fn latency_tells_what_it_has() {
    let place = Place::new();
    let line = "latency new --size 16M --log --runtime 900s --backend sync --peer bare --waiting 1 --json";
    let child = start(&place, line);
    until("it is at work", || calls(&child, "syscw:") > 500);
    let told = figures(&ended(child, Signal::INT), "ended_early");
    assert!(told.get("sides").is_some(), "{told}");
}

/// It waits for its next request an hour, and not when it is called.
#[test]
fn a_pause_between_requests_ends_too() {
    let place = with_file();
    let child = start(&place, "stress f --interval 60m --runtime 60m --json");
    until("it sleeps", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
        stat.contains("nanosleep")
    });
    let told = figures(&ended(child, Signal::TERM), "ended_early");
    assert_eq!(told["requests"], 1, "{told}");
}

/// It would wait for its next request a day.
#[test]
fn a_pause_between_requests_ends_with_the_run() {
    let place = with_file();
    let told = place.in_a_minute("stress f --interval 1440m --runtime 100ms --json");
    assert_eq!(told.succeeds().json()["requests"], 1);
    let told = place.in_a_minute("stress f --interval 1440m --io-size 4K --json");
    assert_eq!(told.succeeds().json()["requests"], 1);
}

/// What was to be filled has lost its name: whoever has that now keeps it.
#[test]
fn a_file_that_came_into_the_place_of_a_half_made_one_stays() {
    let place = Place::new();
    place.write("another", b"precious");
    let child = start(&place, "stress new --rw write --runtime 900 --size 2G --json");
    until("it writes", || {
        place.path("new").metadata().is_ok_and(|file| file.len() > 0)
    });
    std::fs::rename(place.path("another"), place.path("new")).unwrap();
    ended(child, Signal::INT);
    assert_eq!(std::fs::read(place.path("new")).unwrap(), b"precious");
}

/// One signal is enough where nothing has begun, so that nobody looks for it: `timeout` sends no second one.
#[test]
fn it_ends_where_nothing_has_begun() {
    let place = Place::new();
    let server = Server::on_new_volume(&place, "");
    place.baio("create unix:vol.sock#seg --size 1M").succeeds();
    server.signal(Signal::STOP);
    let mut child = start(&place, "stress unix:vol.sock#seg --rw randread --runtime 900");
    until("it hears", || hears(&child, Signal::TERM));
    support::signal(&child, Signal::TERM);
    let mut status = None;
    until("it has ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(Signal::TERM.as_raw()));
    server.signal(Signal::CONT);
    server.stops_well();
}

/// Has it a handler for the signal (proc_pid_status(5))?
fn hears(child: &Child, signal: Signal) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}
