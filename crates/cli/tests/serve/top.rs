//! Promise: `baio top` shows who uses a broker, on a terminal or as text, and leaves the terminal as it was, whatever ends it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use baio::{Access, Link, Remote};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};

use crate::support::server::{PATIENCE, Server};
use crate::support::terminal::new_terminal;
use crate::support::{self, BAIO, Place, has, until};

#[test]
fn one_table_is_of_one_second() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    place.baio("create unix:vol.sock#a --size 1M").succeeds();
    let link = Remote::connect(place.path("vol.sock")).unwrap();
    let _segment = link.open_segment("a", Access::Write).wait().unwrap();
    let view = place.json("top --socket vol.sock --once");
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(
        (&view["volume"], &view["owners"][0]["uid"]),
        (&"vol".into(), &uid.into())
    );
    assert!(view["interval_seconds"].as_f64().unwrap() >= 1.0, "{view}");
    for of in [&view["owners"][0], &view["totals"]] {
        // Whoever looks is a client as well.
        has(of, json!({"clients": 2, "handles": 1}));
        // Nobody asked for anything meanwhile.
        has(of, json!({"requests_per_second": 0, "latency_us_p99": null}));
    }
    assert_eq!(view["totals"]["uid"], Value::Null);
    let text = place.text("top unix:vol.sock --once");
    // Of who asked for nothing in that second there are no times.
    assert!(text.lines().next().unwrap().ends_with("P50-US  P99-US"), "{text}");
    assert!(
        text.lines().skip(1).all(|line| line.ends_with("      -       -")),
        "{text}"
    );
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let firsts: Vec<_> = text.lines().filter_map(first).collect();
    assert_eq!(firsts, ["UID", "all", uid.to_string().as_str()], "{text}");
    serving.stops_well();
}

#[test]
fn without_a_terminal_it_prints_until_the_broker_has_gone() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    let mut child = place.spawn(BAIO, ["top", "--socket", "vol.sock"]);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let tables = out
        .by_ref()
        .filter(|line| line.trim_start().starts_with("all "))
        .take(2);
    assert_eq!(tables.count(), 2);
    serving.stops_well();
    let rest: Vec<_> = out.collect();
    assert!(rest.iter().all(|line| !line.contains('\u{1b}')), "{rest:?}");
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("top vol.sock"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    place.baio("top").fails_with(2);
    place.baio("top unix:vol.sock --socket vol.sock").fails_with(2);
    let said = place.error("top vol --once", 2);
    assert!(said["need"].as_str().unwrap().contains("unix:SOCKET"), "{said}");
    let said = place.baio("top --socket vol.sock --json").fails_with(2).json();
    assert!(said["error"]["cure"].as_str().unwrap().contains("--once"), "{said}");
    let error = place.error("top --socket vol.sock --once", 1);
    assert_eq!(error["code"], "ENOENT");
}

/// A terminal with `baio top` in it.
struct Terminal {
    master: File,
    slave: OwnedFd,
    child: Child,
    shown: Vec<u8>,
}

impl Terminal {
    fn start(place: &Place) -> Terminal {
        let (master, slave) = new_terminal();
        let size = Winsize {
            ws_row: 24,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&slave, size).unwrap();
        let end = || slave.try_clone().unwrap();
        let child = Command::new(BAIO)
            .args(["top", "--socket", "vol.sock"])
            .current_dir(place.path(""))
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        Terminal {
            master: master.into(),
            slave,
            child,
            shown: Vec::new(),
        }
    }

    fn shows(&mut self, word: &str) {
        let until = Instant::now() + PATIENCE;
        while !String::from_utf8_lossy(&self.shown).contains(word) {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap();
            let mut polled = [PollFd::new(&self.master, PollFlags::IN)];
            let count = rustix::event::poll(&mut polled, Some(&left)).unwrap();
            let shown = String::from_utf8_lossy(&self.shown);
            assert_ne!(count, 0, "{word} is not in {shown:?}");
            let mut part = [0; 4096];
            let read = self.master.read(&mut part).unwrap();
            self.shown.extend_from_slice(&part[..read]);
        }
    }

    fn is_raw(&self) -> bool {
        let modes = tcgetattr(self.slave.as_fd()).unwrap().local_modes;
        !modes.contains(LocalModes::ICANON) && !modes.contains(LocalModes::ECHO)
    }

    /// It has a table, and the terminal to itself.
    fn is_there(&mut self) {
        // All but the first frame: rates are there.
        self.shows("REQ/S");
        assert!(self.is_raw());
    }

    /// The terminal is as it was before.
    fn ends(mut self) -> (ExitStatus, String) {
        self.shows("\u{1b}[?1049l");
        let status = self.child.wait().unwrap();
        let modes = tcgetattr(self.slave.as_fd()).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        // What is left in the terminal is read to its end: nobody has the other one any more.
        drop(self.slave);
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = self.master.read(&mut part) {
            self.shown.extend_from_slice(&part[..read]);
        }
        let shown = String::from_utf8_lossy(&self.shown).into_owned();
        assert!(shown.contains("\u{1b}[?25h"), "no cursor: {shown:?}");
        (status, shown)
    }
}

#[test]
fn on_a_terminal_keys_end_it() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    for key in [b"q", b"\x03"] {
        let mut terminal = Terminal::start(&place);
        terminal.is_there();
        terminal.master.write_all(key).unwrap();
        let (status, shown) = terminal.ends();
        assert!(status.success(), "{status}: {shown:?}");
    }
    serving.stops_well();
}

#[test]
fn on_a_terminal_signals_end_it_and_are_seen() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP] {
        let mut terminal = Terminal::start(&place);
        terminal.is_there();
        support::signal(&terminal.child, signal);
        let (status, shown) = terminal.ends();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{shown:?}");
    }
    serving.stops_well();
}

#[test]
fn on_a_terminal_the_end_of_the_broker_is_told_behind_the_table() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    let mut terminal = Terminal::start(&place);
    terminal.is_there();
    serving.stops_well();
    let (status, shown) = terminal.ends();
    assert_eq!(status.code(), Some(1), "{shown:?}");
    let behind = shown.rsplit("\u{1b}[?1049l").next().unwrap();
    assert!(behind.contains("baio: top vol.sock"), "{shown:?}");
}

#[test]
fn a_broker_that_does_not_answer_keeps_nobody() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    let mut terminal = Terminal::start(&place);
    terminal.is_there();
    serving.signal(rustix::process::Signal::STOP);
    terminal.shows("no answer for");
    terminal.master.write_all(b"q").unwrap();
    let (status, shown) = terminal.ends();
    serving.signal(rustix::process::Signal::CONT);
    assert!(status.success(), "{shown:?}");
    serving.stops_well();
}

#[test]
fn it_ends_with_its_terminal() {
    let place = Place::new();
    let serving = Server::on_new_volume(&place, "");
    let mut terminal = Terminal::start(&place);
    terminal.is_there();
    let Terminal {
        master,
        slave,
        mut child,
        ..
    } = terminal;
    drop((master, slave));
    let mut status = None;
    until("it has ended", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(rustix::process::Signal::HUP.as_raw()));
    serving.stops_well();
}
