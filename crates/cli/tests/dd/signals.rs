//! Promise: SIGUSR1 prints the figures of `baio dd`, which goes on; SIGINT prints them and ends it as by the signal, whatever it waits for, and
//! a volume is closed properly. The figures are GNU dd's.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::confined;
use crate::support::gnu;
use crate::support::{self, BAIO, Place, random_bytes, until};

/// A copy that runs until it is told to end.
struct Running {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Running {
    fn start(place: &Place, program: &str, line: &str) -> Running {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if program == BAIO {
            words.insert(0, "dd");
        }
        let mut child = place.spawn(program, words);
        let errors = BufReader::new(child.stderr.take().unwrap());
        Running { child, errors }
    }

    /// Gives it bytes on its standard input, and waits until it has taken all of them.
    fn feed(&mut self, bytes: &[u8]) {
        let pipe = self.child.stdin.as_mut().unwrap();
        pipe.write_all(bytes).unwrap();
        let pipe = self.child.stdin.as_ref().unwrap();
        until("it takes its input", || {
            rustix::io::ioctl_fionread(pipe.as_fd()).unwrap() == 0
        });
    }

    fn signal(&self, signal: Signal) {
        support::signal(&self.child, signal);
    }

    /// Asks for the figures until they are these: what a copy has taken it has not yet written.
    fn comes_to(&mut self, expected: [&str; 3]) {
        let mut told = Vec::new();
        until(&format!("{expected:?}"), || {
            self.signal(Signal::USR1);
            told = self.figures();
            told == expected
        });
    }

    /// The next figures: without the third line, which holds times.
    fn figures(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.len() < 3 {
            let mut line = String::new();
            // Not for ever, if it says nothing.
            until("it prints the figures", || {
                let now = rustix::event::Timespec::default();
                let mut watched = [PollFd::new(self.errors.get_ref(), PollFlags::IN)];
                !self.errors.buffer().is_empty() || poll(&mut watched, Some(&now)).unwrap() > 0
            });
            assert!(self.errors.read_line(&mut line).unwrap() > 0, "{lines:?}");
            lines.push(line.split(", ").next().unwrap().trim().to_owned());
        }
        lines
    }

    /// Waits for its end: all that it still said, and the signal that has ended it.
    fn end(mut self) -> (String, Option<i32>) {
        drop(self.child.stdin.take());
        drop(self.child.stdout.take());
        until("it ends", || self.child.try_wait().unwrap().is_some());
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors).unwrap();
        (errors, self.child.wait().unwrap().signal())
    }
}

fn records(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| line.contains(" record")).collect()
}

/// Each way in which a copy may wait for its input, and the figures once it has taken 250 bytes, and 100 more.
const LINES: [(&str, [[&str; 3]; 2]); 5] = [
    ("of=out bs=100", [AS_READ_250, AS_READ_350]),
    (
        "of=out ibs=100 obs=70",
        [
            ["2+1 records in", "3+0 records out", "210 bytes copied"],
            ["3+1 records in", "5+0 records out", "350 bytes copied"],
        ],
    ),
    (
        "of=out ibs=100 obs=1000",
        [
            ["2+1 records in", "0+0 records out", "0 bytes copied"],
            ["3+1 records in", "0+0 records out", "0 bytes copied"],
        ],
    ),
    (
        "of=out bs=100 conv=swab",
        [
            ["2+1 records in", "2+0 records out", "200 bytes copied"],
            ["3+1 records in", "3+0 records out", "300 bytes copied"],
        ],
    ),
    ("of=out bs=100 oflag=append conv=notrunc", [AS_READ_250, AS_READ_350]),
];

const AS_READ_250: [&str; 3] = ["2+1 records in", "2+1 records out", "250 bytes copied"];
const AS_READ_350: [&str; 3] = ["3+1 records in", "3+1 records out", "350 bytes copied"];

const BACKENDS: [&str; 4] = ["auto", "threads", "aio", "sync"];

#[test]
fn the_figures_under_a_pipe_that_gives_nothing() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    for (line, [first, second]) in LINES {
        for (program, more) in ours_and_theirs() {
            let _ = std::fs::remove_file(place.path("out"));
            let mut running = Running::start(&place, &program, &format!("{line} {more}"));
            running.feed(&random_bytes(250, 1));
            running.comes_to(first);
            running.feed(&random_bytes(100, 2));
            running.comes_to(second);
            let (errors, signal) = running.end();
            assert_eq!(signal, None, "{program} {line} {more}: {errors}");
            assert_eq!(records(&errors)[0], second[0], "{program} {line} {more}");
            assert_eq!(place.read("out").len(), 350, "{program} {line} {more}");
        }
    }
}

#[test]
fn an_interrupt_under_a_pipe_that_gives_nothing() {
    let place = Place::new();
    if !gnu::is_there(&place) {
        return;
    }
    for (line, [first, _]) in LINES {
        for (program, more) in ours_and_theirs() {
            let what = format!("{program} {line} {more}");
            let _ = std::fs::remove_file(place.path("out"));
            let mut running = Running::start(&place, &program, &format!("{line} {more}"));
            running.feed(&random_bytes(250, 1));
            running.comes_to(first);
            running.signal(Signal::INT);
            // Its input stays open: only the signal ends it.
            let stays = running.child.stdin.take();
            assert_eq!(running.figures(), first, "{what}");
            let (errors, signal) = running.end();
            drop(stays);
            assert_eq!((errors.as_str(), signal), ("", Some(2)), "{what}");
            let bytes: usize = first[2].split(' ').next().unwrap().parse().unwrap();
            assert_eq!(place.read("out").len(), bytes, "{what}");
        }
    }
}

/// GNU dd, and ours by each backend.
fn ours_and_theirs() -> Vec<(String, String)> {
    let theirs = ("dd".to_owned(), String::new());
    let ours = BACKENDS.map(|backend| (BAIO.to_owned(), format!("backend={backend}")));
    std::iter::once(theirs).chain(ours).collect()
}

/// Many requests are in flight: what was written behind the first gap is cut off.
#[test]
fn a_file_ends_where_the_figures_say() {
    let place = Place::new();
    for line in ["if=/dev/zero of=out bs=64K iodepth=16", "if=in of=out bs=4K iodepth=64"] {
        // Holes take no room, and there is no end of it within the test.
        let file = File::create(place.path("in")).unwrap();
        file.set_len(1 << 40).unwrap();
        let _ = std::fs::remove_file(place.path("out"));
        let mut running = Running::start(&place, BAIO, line);
        let len = || place.path("out").metadata().map_or(0, |metadata| metadata.len());
        until("it copies", || len() > 1 << 20);
        running.signal(Signal::USR1);
        running.figures();
        running.signal(Signal::INT);
        let figures = running.figures();
        let (errors, signal) = running.end();
        assert_eq!(signal, Some(2), "{line}: {errors}");
        let bytes: u64 = figures[2].split(' ').next().unwrap().parse().unwrap();
        assert_eq!(len(), bytes, "{line}: {figures:?}");
    }
}

#[test]
fn a_volume_is_closed_properly() {
    let place = Place::new();
    place.volume("16M", "1M");
    for (line, fed, figures) in [
        ("of=vol#a bs=100", 250, AS_READ_250),
        (
            "of=vol#a bs=4K",
            8192,
            ["2+0 records in", "2+0 records out", "8192 bytes (8.2 kB"],
        ),
        (
            "of=vol#a",
            1000,
            ["1+1 records in", "1+0 records out", "512 bytes copied"],
        ),
    ] {
        let bytes = random_bytes(fed, 3);
        let mut running = Running::start(&place, BAIO, line);
        running.feed(&bytes);
        running.comes_to(figures);
        running.signal(Signal::INT);
        let stays = running.child.stdin.take();
        running.figures();
        assert_eq!(running.end().1, Some(2), "{line}");
        drop(stays);
        let told = place.json("stat vol");
        assert_eq!(told["clean"], true, "{line}");
        let written: usize = figures[2].split(' ').next().unwrap().parse().unwrap();
        let back = place.baio(&format!("dd if=vol#a count={written}B")).succeeds();
        assert_eq!(back.out(), &bytes[..written], "{line}");
    }
}

#[test]
fn a_reader_that_takes_nothing() {
    let place = Place::new();
    for line in ["if=/dev/zero bs=64K", "if=/dev/zero ibs=64K obs=32K"] {
        let mut running = Running::start(&place, BAIO, line);
        let taken = running.child.stdout.take().unwrap();
        until("the pipe is full", || {
            rustix::io::ioctl_fionread(taken.as_fd()).unwrap() >= 64 << 10
        });
        running.signal(Signal::INT);
        let figures = running.figures();
        assert!(figures[2].starts_with("65536 bytes"), "{figures:?}");
        assert_eq!(running.end().1, Some(2), "{line}");
    }
}

/// It comes when all is copied, or the copy has failed, and the figures wait for somebody to read them.
#[test]
fn an_interrupt_behind_the_copy_ends_the_program_too() {
    for (output, reason) in [("out", ""), ("/dev/full", "No space left on device")] {
        let place = Place::new();
        let mut told = full_pipe(&place);
        let copy = format!("exec {BAIO} dd if=/dev/zero of={output} bs=4K count=1 2>told");
        let mut child = place.spawn("sh", ["-c", &copy]);
        until("it waits for a reader", || waits_to_say(child.id()));
        support::signal(&child, Signal::INT);
        std::thread::sleep(Duration::from_millis(200));
        let (mut said, mut drained) = (Vec::new(), vec![0; 1 << 16]);
        until("it ends", || {
            let has_ended = child.try_wait().unwrap().is_some();
            if let Ok(len) = told.read(&mut drained) {
                said.extend_from_slice(&drained[..len]);
            }
            has_ended
        });
        let said = String::from_utf8_lossy(&said);
        let said = said.trim_start_matches('.');
        assert_eq!(child.wait().unwrap().signal(), Some(2), "{output}: {said}");
        assert!(
            said.contains("1+0 records in") && said.contains(reason),
            "{output}: {said}"
        );
    }
}

/// Then nothing is left but that.
#[test]
fn an_interrupt_of_a_failure_that_nobody_reads() {
    let place = Place::new();
    let _told = full_pipe(&place);
    let copy = format!("exec {BAIO} dd if=/dev/zero of=/dev/full bs=4K count=1 status=none 2>told");
    let mut child = place.spawn("sh", ["-c", &copy]);
    until("it waits for a reader", || waits_to_say(child.id()));
    support::signal(&child, Signal::INT);
    until("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

/// A named pipe, open on both sides, so that no opening waits. It is full: who writes to it waits.
fn full_pipe(place: &Place) -> File {
    place.shell("mkfifo told").succeeds();
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let mut told = options.open(place.path("told")).unwrap();
    while told.write_all(&[b'.'; 4096]).is_ok() {}
    told
}

/// Does it sleep in a write to its standard error?
fn waits_to_say(pid: impl Display) -> bool {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    call.starts_with(&format!("{} 0x2 ", libc::SYS_write))
}

/// It has no size, and is read as a stream.
#[test]
fn an_interrupt_under_a_file_that_gives_nothing() {
    if !support::is_root() {
        return;
    }
    let kernel_log = Path::new("/proc/kmsg");
    if !kernel_log.is_file() || File::open(kernel_log).is_err() {
        return support::skip("/proc/kmsg cannot be read here");
    }
    let place = Place::new();
    let mut running = Running::start(&place, BAIO, "if=/proc/kmsg of=out backend=threads");
    until("it hears SIGINT", || hears(running.child.id(), libc::SIGINT));
    let mut len = None;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(300));
        let before = len;
        len = place.path("out").metadata().ok().map(|out| out.len());
        if len.is_some() && len == before {
            break;
        }
    }
    running.signal(Signal::INT);
    let figures = running.figures();
    let (errors, signal) = running.end();
    assert_eq!((errors.as_str(), signal), ("", Some(2)), "{figures:?}");
}

/// `timeout` sends its signal to a process and to its group: what comes within an instant asks no second time.
#[test]
fn two_interrupts_at_once_cost_no_figures() {
    let place = Place::new();
    for _ in 0..10 {
        let mut running = Running::start(&place, BAIO, "if=/dev/zero bs=64K");
        let taken = running.child.stdout.take().unwrap();
        until("the pipe is full", || {
            rustix::io::ioctl_fionread(taken.as_fd()).unwrap() >= 64 << 10
        });
        for _ in 0..3 {
            running.signal(Signal::INT);
            // Two that nobody has heard yet would be one.
            std::thread::sleep(Duration::from_millis(1));
        }
        let figures = running.figures();
        assert!(figures[2].starts_with("65536 bytes"), "{figures:?}");
        assert_eq!(running.end().1, Some(2));
    }
}

/// Each write takes longer than what waits for a stream is given after SIGINT.
#[test]
fn a_volume_on_a_slow_device_is_closed_properly_too() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    place.volume("16M", "8M");
    let table = "0 32768 delay LOOP 0 0 LOOP 0 2500\n";
    let Some(device) = support::Mapped::over(&place.path("vol"), table) else {
        return;
    };
    let line = format!("if=/dev/zero of={}#a bs=64K", device.path());
    let mut running = Running::start(&place, BAIO, &line);
    // That comes when the volume is open.
    until("it hears SIGINT", || hears(running.child.id(), libc::SIGINT));
    std::thread::sleep(Duration::from_millis(500));
    running.signal(Signal::INT);
    let figures = running.figures();
    let (errors, signal) = running.end();
    assert_eq!((errors.as_str(), signal), ("", Some(2)), "{figures:?}");
    let told = place.json(&format!("stat {}", device.path()));
    assert_eq!(told["clean"], true, "{figures:?}");
}

/// Has it a handler for this signal?
fn hears(pid: impl Display, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// As a shell begins what runs in the background.
#[test]
fn an_interrupt_that_is_ignored_stays_ignored() {
    let place = Place::new();
    let script = format!("trap '' INT; exec {BAIO} dd of=out bs=100");
    let mut child = place.spawn("sh", ["-c", &script]);
    let errors = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running { child, errors };
    running.feed(&random_bytes(100, 1));
    running.signal(Signal::INT);
    running.feed(&random_bytes(100, 2));
    let (errors, signal) = running.end();
    assert_eq!((records(&errors)[0], signal), ("2+0 records in", None));
}

#[test]
fn who_wants_posix_to_the_letter_dies_of_the_first() {
    let place = Place::new();
    let script = format!("POSIXLY_CORRECT=1 exec {BAIO} dd of=out bs=100");
    let mut child = place.spawn("sh", ["-c", &script]);
    let errors = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running { child, errors };
    running.feed(&random_bytes(100, 1));
    running.signal(Signal::USR1);
    let stays = running.child.stdin.take();
    let (errors, signal) = running.end();
    drop(stays);
    assert_eq!((errors.as_str(), signal), ("", Some(10)));
}

/// The first process of a container: the kernel lets it die of no signal that it has no handler for.
#[test]
fn an_interrupt_of_the_first_process() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    let line = format!("--pid --fork {BAIO} dd if=/dev/zero of=/dev/null bs=4K");
    let mut running = Running::start(&place, "unshare", &line);
    let inner = begun_by(&running.child);
    let says_figures = |running: &Running| {
        let mut watched = [PollFd::new(running.errors.get_ref(), PollFlags::IN)];
        poll(&mut watched, Some(&rustix::event::Timespec::default())).unwrap() > 0
    };
    until("it hears signals", || {
        let _ = kill_process(inner, Signal::USR1);
        says_figures(&running)
    });
    let _ = kill_process(inner, Signal::INT);
    drop(running.child.stdout.take());
    until("it ends", || running.child.try_wait().unwrap().is_some());
    assert_eq!(running.child.wait().unwrap().code(), Some(130));
}

/// Its figures wait for a reader: only a second one ends it, which comes half a second later.
#[test]
fn a_second_interrupt_of_the_first_process() {
    if !support::is_root() {
        return;
    }
    let place = Place::new();
    let _told = full_pipe(&place);
    let copy = format!("exec {BAIO} dd if=/dev/zero of=/dev/null bs=4K 2>told");
    let mut child = place.spawn("unshare", ["--pid", "--fork", "sh", "-c", &copy]);
    let inner = begun_by(&child);
    until("it hears SIGINT", || hears(inner, libc::SIGINT));
    let _ = kill_process(inner, Signal::INT);
    until("it waits for a reader", || waits_to_say(inner));
    assert!(child.try_wait().unwrap().is_none());
    until("it ends", || {
        let _ = kill_process(inner, Signal::INT);
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// The process that `unshare --fork` has begun.
fn begun_by(unshare: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", unshare.id());
    let mut inner = None;
    until("it runs", || {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        inner = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        inner.is_some()
    });
    Pid::from_raw(inner.unwrap()).unwrap()
}

/// Nobody hears signals there, and the copy needs none.
#[test]
fn where_no_thread_can_be_had_it_copies() {
    let world = confined::Confined::new().without(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    let told = world.run(BAIO, &["dd", "if=/dev/zero", "of=/dev/null", "bs=64K", "count=4"]);
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{errors}");
    assert!(errors.contains("4+0 records out"), "{errors}");
}
