//! Promise: where something better cannot be had, `doctor` says what stands in the way and what to do, and exits with 0 as
//! long as any backend works that does not block. Each world here is one that people meet: a container's seccomp profile,
//! little locked memory, native AIO used up by a database.

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use support::confined::{Confined, HoldsAllAio};
use support::{BAIO, Done};

const RING: &[libc::c_long] = &[libc::SYS_io_uring_setup];

/// One at a time: one of these takes what the others need.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn doctor(confined: Confined, form: &[&str]) -> Done {
    Done(confined.run(BAIO, &[&["doctor"], form].concat()))
}

fn backend<'a>(told: &'a Value, name: &str) -> &'a Value {
    let all = told["backends"].as_array().unwrap();
    all.iter().find(|backend| backend["backend"] == name).unwrap()
}

fn rejected<'a>(told: &'a Value, name: &str) -> &'a Value {
    let all = told["rejected"].as_array().unwrap();
    let found = all.iter().find(|backend| backend["backend"] == name);
    found.unwrap_or_else(|| panic!("{name} is not rejected: {told}"))
}

#[track_caller]
fn has(said: &Value, words: &[&str]) {
    let text = said.as_str().unwrap_or_else(|| panic!("{said} says nothing"));
    for word in words {
        assert!(text.contains(word), "`{word}` is missing in `{text}`");
    }
}

/// Does the system itself forbid rings? Then it, and not the filter, is to be named.
fn rings_are_disabled() -> bool {
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    !matches!(setting.trim(), "0" | "")
}

#[test]
fn a_filter_that_refuses_rings_is_named() {
    let _alone = alone();
    let told = doctor(Confined::new().without(RING, libc::EPERM), &["--json"])
        .succeeds()
        .json();
    assert_ne!(told["backend"], "uring");
    assert_eq!(told["asynchronous"], true);
    assert_eq!(told["system"]["seccomp"], "filter");
    let uring = rejected(&told, "uring");
    has(&uring["reason"], &["EPERM"]);
    if rings_are_disabled() {
        has(&uring["cause"], &["io_uring_disabled"]);
        has(&uring["cure"], &["sysctl -w kernel.io_uring_disabled=0"]);
    } else {
        has(&uring["cause"], &["seccomp"]);
        has(&uring["cure"], &["seccomp", "io_uring_setup"]);
    }
    assert_eq!(backend(&told, "uring")["cure"], uring["cure"]);
}

/// Who asks for a ring is killed: another process asks first, and every command goes on without.
#[test]
fn a_filter_that_kills_is_named() {
    let _alone = alone();
    let deadly = || Confined::new().dies_of(RING);
    let told = doctor(deadly(), &["--json"]).succeeds().json();
    assert_ne!(told["backend"], "uring");
    let uring = rejected(&told, "uring");
    has(&uring["reason"], &["EPERM"]);
    if !rings_are_disabled() {
        has(&uring["cause"], &["seccomp"]);
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    std::fs::write(&path, [7; 8192]).unwrap();
    let line = format!("stress {} --rw randread --mode kernel --once --json", path.display());
    let command = &line.split(' ').collect::<Vec<_>>()[..];
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let told = Done(deadly().run(BAIO, command)).succeeds().json();
    assert_ne!(told["backend"], "uring");
    let forced = Done(deadly().run(BAIO, &[command, &["--backend", "uring"]].concat()));
    let errors = forced.errors();
    assert!(forced.status() != 0 && format!("{errors}{}", forced.text()).contains("seccomp"));
}

#[test]
fn the_environment_names_the_backend() {
    let place = support::Place::new();
    let told = place
        .shell(&format!("BAIO_BACKEND=threads {BAIO} doctor --json"))
        .succeeds()
        .json();
    assert_eq!(told["backend"], "threads");
    place
        .shell(&format!(
            "{BAIO} format vol --size 16M && BAIO_BACKEND=sync {BAIO} create vol#a --size 1M"
        ))
        .succeeds();
    let refused = place.shell(&format!("BAIO_BACKEND=best {BAIO} list vol"));
    assert_eq!(refused.status(), 2);
    assert!(refused.errors().contains("BAIO_BACKEND=best"), "{}", refused.errors());
}

#[test]
fn a_filter_that_hides_rings_is_named() {
    let _alone = alone();
    let told = doctor(Confined::new().without(RING, libc::ENOSYS), &["--json"])
        .succeeds()
        .json();
    let uring = rejected(&told, "uring");
    has(&uring["reason"], &["ENOSYS"]);
    has(&uring["cause"], &["seccomp"]);
    has(&uring["cure"], &["seccomp", "io_uring_setup"]);
}

#[test]
fn people_read_the_same() {
    let _alone = alone();
    let done = doctor(Confined::new().without(RING, libc::EPERM), &["--verbose"]).succeeds();
    let text = done.text();
    let line = text.lines().find(|line| line.starts_with("backend uring")).unwrap();
    for word in ["EPERM", "cause: ", "cure: "] {
        assert!(line.contains(word), "{line}");
    }
    assert!(text.contains("seccomp") && text.contains("RLIMIT_MEMLOCK"), "{text}");
}

/// An administrator reads the first line, and does what stands below it.
#[test]
fn the_verdict_comes_first_and_then_what_to_do() {
    let _alone = alone();
    let confined = || Confined::new().without(RING, libc::EPERM);
    let done = doctor(confined(), &[]).succeeds();
    let text = done.text();
    let mut lines = text.lines();
    assert!(
        lines.next().unwrap().starts_with("Usable: requests go through "),
        "{text}"
    );
    assert!(
        lines.next().unwrap().starts_with("- io_uring does not work: "),
        "{text}"
    );
    let cure = lines.next().unwrap().strip_prefix("  do: ").unwrap();
    for detail in ["no_sqarray", "registered_lists", "RLIMIT_NPROC"] {
        assert!(
            !text.contains(detail),
            "{detail} says nothing to an administrator: {text}"
        );
    }
    let told = doctor(confined(), &["--json"]).succeeds().json();
    has(&told["verdict"], &["Usable: "]);
    assert_eq!(told["to_do"][0]["what"], cure);
    let calls = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_setup,
        libc::SYS_clone,
        libc::SYS_clone3,
    ];
    let bad = doctor(Confined::new().without(&calls, libc::EPERM), &[]).fails_with(1);
    assert!(bad.out().starts_with(b"Bad: every request blocks its caller"));
}

/// Only then is there nothing asynchronous left.
#[test]
fn without_rings_aio_and_threads_the_answer_is_no() {
    let _alone = alone();
    let calls = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_setup,
        libc::SYS_clone,
        libc::SYS_clone3,
    ];
    let told = doctor(Confined::new().without(&calls, libc::EPERM), &["--json"]);
    let told = told.fails_with(1).json();
    assert_eq!(told["backend"], "sync");
    assert_eq!(told["asynchronous"], false);
    has(&rejected(&told, "aio")["cause"], &["seccomp"]);
    has(&rejected(&told, "aio")["cure"], &["io_setup"]);
    rejected(&told, "threads");
}

#[test]
fn little_locked_memory_is_named() {
    let _alone = alone();
    let told = doctor(Confined::new().with_locked_memory(64 << 10), &["--json"])
        .succeeds()
        .json();
    assert_eq!(told["system"]["locked_memory_bytes_max"], 64 << 10);
    let uring = backend(&told, "uring");
    if told["system"]["locked_memory_unlimited"] == true {
        eprintln!("skipped: this process is exempt from the limit and may not give that up");
        return;
    }
    // The ring itself fits, unless others of this user have taken the 64 KiB; the memory to register never does.
    let refused = if uring["starts"] == true {
        let features = uring["features"].as_array().unwrap();
        let arena = features
            .iter()
            .find(|feature| feature["name"] == "registered_arena")
            .unwrap();
        assert_eq!(arena["available"], false);
        arena
    } else if uring["reason"].as_str().is_some_and(|reason| reason.contains("ENOMEM")) {
        uring
    } else {
        eprintln!("skipped: no ring can be had here: {uring}");
        return;
    };
    has(&refused["cause"], &["RLIMIT_MEMLOCK is 64 KiB"]);
    has(&refused["cure"], &["RLIMIT_MEMLOCK", "ulimit -l"]);
}

#[test]
fn native_aio_that_others_have_used_up_is_named() {
    let _alone = alone();
    for attempt in 1.. {
        let _all = match HoldsAllAio::start() {
            Ok(all) => all,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return;
            }
        };
        let told = doctor(Confined::new().without(RING, libc::EPERM), &["--json"])
            .succeeds()
            .json();
        let aio = backend(&told, "aio");
        // Somebody else on this machine may have given some back meanwhile.
        if aio["starts"] == true && attempt < 5 {
            continue;
        }
        assert_eq!(told["backend"], "threads");
        has(&aio["reason"], &["EAGAIN"]);
        has(&aio["cause"], &["fs.aio-nr", "fs.aio-max-nr"]);
        has(&aio["cure"], &["sysctl -w fs.aio-max-nr="]);
        assert_eq!(rejected(&told, "aio")["cause"], aio["cause"]);
        return;
    }
}
