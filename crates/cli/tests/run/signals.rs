//! Promise: what `baio run` runs has its signals as it would have them without, and gets those that are sent to `baio run`, once.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::drop_ins::libraries;
use crate::support::{self, BAIO, Place};

/// `baio run` as words, up to the program.
fn baio_run() -> Vec<String> {
    let words = [BAIO, "run", "--libaio", "--libraries", libraries(), "--"];
    words.map(str::to_owned).into()
}

/// Says each signal that it gets as a line, by its number; SIGTERM ends it with 7.
const TELLS: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void tell(int got) {
    char line[3] = {'0' + got / 10, '0' + got % 10, '\n'};
    if (write(1, line, 3) != 3) _exit(1);
    if (got == SIGTERM) _exit(7);
}
int main(void) {
    int all[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM};
    for (int at = 0; at < 6; at++) signal(all[at], tell);
    sigset_t none;
    alarm(120);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    if (write(1, "ready\n", 6) != 6) return 1;
    for (;;) pause();
}
"#;

/// A program that tells its signals, behind `before` and `baio run`, which is what `child` is: `before` ends in exec.
struct Telling {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Telling {
    fn start(place: &Place, before: &[&str], input: Stdio) -> Telling {
        place.write("tells.c", TELLS.as_bytes());
        place.shell("cc -o tells tells.c").succeeds();
        let mut words: Vec<String> = before.iter().map(|&word| word.to_owned()).collect();
        words.extend(baio_run());
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .arg(place.path("tells"))
            .current_dir(place.path("."))
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut told = Telling { child, out };
        assert_eq!(told.line(), "ready");
        told
    }

    fn line(&mut self) -> String {
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let mut watched = [PollFd::new(self.out.get_ref(), PollFlags::IN)];
        let told = !self.out.buffer().is_empty() || poll(&mut watched, Some(&patience)).unwrap() > 0;
        assert!(told, "the program has not got it");
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        support::signal(&self.child, signal);
    }

    /// Ends it by a signal that is handed on behind all others; whatever it had not yet told.
    fn end(&mut self) -> String {
        self.signal(Signal::TERM);
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(7));
        rest
    }
}

impl Drop for Telling {
    /// Where a test has failed it is still there; the program then ends by its alarm.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who ignores SIGCHLD leaves it so to what it starts, and its children leave no status.
#[test]
fn a_status_is_there_although_nobody_waits_for_children() {
    let mut words = vec!["--ignore-signal=CHLD".to_owned()];
    words.extend(baio_run());
    let told = Command::new("env").args(words).args(["sh", "-c", "exit 3"]).output();
    let told = told.unwrap();
    assert_eq!(told.status.code(), Some(3), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn a_program_finds_its_signals_as_without_us() {
    let ignored = [
        "--default-signal",
        "--ignore-signal=HUP,INT,QUIT,USR1,CHLD",
        "--ignore-signal=PIPE",
        "--block-signal=TERM,USR2",
    ];
    for options in [&ignored[..1], &ignored[..2], &ignored[..]] {
        let seen = |run: Vec<String>| {
            let mut command = Command::new("env");
            command.args(options).args(run);
            let told = command
                .args(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"])
                .output();
            let told = told.unwrap();
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            String::from_utf8(told.stdout).unwrap()
        };
        assert_eq!(seen(baio_run()), seen(Vec::new()), "{options:?}");
    }
}

#[test]
fn what_is_sent_to_us_alone_goes_on_to_the_program() {
    let place = Place::new();
    // Ignored or blocked when we began, it is the program's to say what becomes of it.
    let options = [
        "env",
        "--default-signal",
        "--ignore-signal=HUP,INT",
        "--block-signal=USR1,TERM",
    ];
    for before in [&options[..2], &options[..]] {
        let mut program = Telling::start(&place, before, Stdio::null());
        for (signal, line) in [
            (Signal::INT, "02"),
            (Signal::QUIT, "03"),
            (Signal::HUP, "01"),
            (Signal::USR1, "10"),
            (Signal::USR2, "12"),
        ] {
            program.signal(signal);
            assert_eq!(program.line(), line, "{before:?}");
        }
        assert_eq!(program.end(), "15\n");
    }
}

/// The terminal sends it to the program too: what we get is not handed on.
#[test]
fn a_key_of_the_terminal_reaches_the_program_once() {
    let place = Place::new();
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    // It is no leader of a group: setsid(1) does not fork, and the program has its group.
    let mut program = Telling::start(&place, &["setsid", "--ctty"], theirs.into());
    for key in [b"\x03", b"\x1c"] {
        File::from(ours.try_clone().unwrap()).write_all(key).unwrap();
        assert_eq!(program.line(), if key == b"\x03" { "02" } else { "03" });
    }
    assert_eq!(program.end(), "15\n", "each once");
}
