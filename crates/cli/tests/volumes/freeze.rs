//! Promise: what `baio freeze` runs finds the volume standing still, whoever writes to it, and its copy of the file is whole; afterwards the
//! volume goes on, whatever became of the command, and the status is the command's.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Child;
use std::time::Instant;

use rustix::process::Signal;

use crate::support::server::{self, Server};
use crate::support::{BAIO, Place, signal};

/// A volume of 64 MiB, `vol`, with the segment `a`, that is served at `s`.
fn served() -> (Place, Server) {
    let place = Place::new();
    place.baio("format vol --size 64M --segments 64").succeeds();
    let server = Server::start(&place, "serve vol --socket s").ready();
    place.baio("create unix:s#a --size 4M").succeeds();
    (place, server)
}

/// Changes go through again.
fn has_thawed(place: &Place) {
    place.baio("create unix:s#new --size 4K").succeeds();
    place.baio("delete unix:s#new").succeeds();
}

fn ends(place: &Place, server: Server) {
    server.signal(Signal::TERM);
    server.ends_well();
    place.baio("check vol").succeeds();
}

fn freezes(place: &Place, script: &str) -> Child {
    place.write("script", script.as_bytes());
    place.spawn(BAIO, ["freeze", "unix:s", "--", "sh", "script"])
}

/// Waits until the command says that it runs.
fn runs(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
}

/// Who reads it waits for who writes it.
fn fifo(place: &Place) -> PathBuf {
    let path = place.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    path
}

#[test]
fn a_copy_is_of_one_moment_while_others_write() {
    let (place, server) = served();
    // They write as long as this test runs, past the cache and through it.
    let writers: Vec<_> = ["direct", "cached"]
        .into_iter()
        .map(|mode| {
            let line = format!("stress unix:s#a --rw randwrite --mode {mode} --runtime 300s");
            place.spawn(BAIO, line.split_whitespace())
        })
        .collect();
    let written = || {
        let status = place.json("serve --status --socket s");
        status["totals"]["written_bytes"].as_u64().unwrap()
    };
    let grows = |before: u64| {
        let since = Instant::now();
        while written() <= before {
            assert!(since.elapsed() < server::PATIENCE, "nobody writes");
        }
    };
    grows(0);
    // Two copies, one behind the other, are one if nothing has changed in between.
    place.write("script", b"set -e\ncp vol first\ncp vol second\ncmp first second\n");
    for _ in 0..3 {
        place.baio("freeze unix:s -- sh script").succeeds();
        grows(written());
        place.baio("check first").succeeds();
        // It opens, and its segment is there.
        assert_eq!(place.json("stat first#a")["size_bytes"], 4 << 20);
        place.baio("dd if=first#a of=/dev/null bs=1M").succeeds();
        place.baio("create first#b --size 1M").succeeds();
        place.baio("check first").succeeds();
    }
    for mut writer in writers {
        writer.kill().unwrap();
        writer.wait().unwrap();
    }
    has_thawed(&place);
    ends(&place, server);
}

#[test]
fn it_ends_as_its_command_and_the_volume_goes_on() {
    let (place, server) = served();
    for (script, status) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ] {
        place.write("script", script.as_bytes());
        let told = place.baio("freeze unix:s -- sh script");
        assert_eq!(told.status(), status, "{script}: {}", told.errors());
        assert_eq!(told.errors(), "", "{script}");
        has_thawed(&place);
    }
    let told = place
        .baio("freeze unix:s -- ./no-such-command --its-own -o ption")
        .fails_with(127);
    assert!(
        told.errors().contains("no-such-command") && told.errors().contains("cure: "),
        "{}",
        told.errors()
    );
    let told = place.baio("freeze unix:s -- ./vol").fails_with(126);
    assert!(told.errors().contains("Permission denied"), "{}", told.errors());
    has_thawed(&place);
    // Its words are its own, and so is what it says.
    let told = place.baio("freeze unix:s -- echo --json -- x").succeeds();
    assert_eq!(told.out(), b"--json -- x\n");
    ends(&place, server);
}

#[test]
fn who_is_asked_to_end_hands_it_on_and_who_is_killed_thaws() {
    let (place, server) = served();
    for asked in [Signal::TERM, Signal::INT] {
        let mut child = freezes(
            &place,
            "trap 'exit 9' TERM INT\necho ready\nwhile :; do sleep 0.1; done",
        );
        runs(&mut child);
        signal(&child, asked);
        assert_eq!(child.wait().unwrap().code(), Some(9));
        has_thawed(&place);
    }
    let fifo = fifo(&place);
    // It is the command's to end: who runs it waits.
    let mut child = freezes(&place, "trap '' INT\necho ready\nread line < fifo\nexit 3");
    runs(&mut child);
    signal(&child, Signal::INT);
    std::fs::write(&fifo, "go on\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    has_thawed(&place);
    let mut child = freezes(&place, "echo ready\nread line < fifo");
    runs(&mut child);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    has_thawed(&place);
    std::fs::write(&fifo, "go on\n").unwrap();
    ends(&place, server);
}

/// The broker ends while the command copies: what that has is of no single moment, and its own success is not believed.
#[test]
fn a_freeze_that_was_lost_is_told() {
    let (place, server) = served();
    place.write("script", b"echo ready\nread line < fifo\nexit 0\n");
    let fifo = fifo(&place);
    let mut child = place.spawn(BAIO, ["freeze", "unix:s", "--", "sh", "script"]);
    runs(&mut child);
    server.killed();
    std::fs::write(&fifo, "go on\n").unwrap();
    let told = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.status.code(), Some(1), "{said}");
    assert!(
        said.contains("thawed before") && said.contains("throw away what was copied"),
        "{said}"
    );
}

#[test]
fn a_volume_that_nobody_has_open_is_kept_so() {
    let place = Place::new();
    place.volume("4M", "64K");
    place.write(
        "script",
        format!("{BAIO} check vol >&2 && {BAIO} list vol >&2 && {BAIO} create vol#b --size 4K").as_bytes(),
    );
    let told = place.baio("freeze vol -- sh script").fails_with(1);
    assert!(told.errors().contains("nobody has vol open"), "{}", told.errors());
    assert!(told.errors().contains("in use by process"), "{}", told.errors());
    place.baio("create vol#b --size 4K").succeeds();
    // No volume, or one that somebody has: nothing is run.
    place.write("file", &[0; 1 << 20]);
    place.write("script", b"touch ran\n");
    place.baio("freeze file -- sh script").fails_with(1);
    place.baio("freeze missing -- sh script").fails_with(1);
    let server = Server::start(&place, "serve vol --socket s").ready();
    let told = place.baio("freeze vol -- sh script").fails_with(1);
    assert!(
        told.errors().contains("in use by process") && told.errors().contains("unix:SOCKET"),
        "{}",
        told.errors()
    );
    assert!(!place.path("ran").exists());
    ends(&place, server);
}
