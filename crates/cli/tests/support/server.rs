//! A broker that runs: `baio serve` as a child, and what is known of its process.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::support::{BAIO, Place};

/// Nothing here takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A socket as a broker's.
pub(crate) fn packets() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

/// The same, bound there, with a queue for who connects.
pub(crate) fn listening(path: &Path) -> OwnedFd {
    let socket = packets();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 64).unwrap();
    socket
}

/// A broker that runs.
pub(crate) struct Server {
    pub(crate) child: Child,
    told: BufReader<ChildStderr>,
}

impl Server {
    /// Makes the volume `vol.img` of a place, and serves it on the socket `vol.sock` with these words more.
    pub(crate) fn on_new_volume(place: &Place, words: &str) -> Server {
        // A quarter of it is enough for each test: more nobody but root may hold.
        place.baio("format vol.img --size 64M --segments 64").succeeds();
        Server::on_volume(place, words).ready()
    }

    /// The same with the volume that is there, before it has said anything.
    pub(crate) fn on_volume(place: &Place, words: &str) -> Server {
        Server::start(place, &format!("serve vol.img --socket vol.sock {words}"))
    }

    pub(crate) fn start(place: &Place, line: &str) -> Server {
        Server::of(place.spawn(BAIO, line.split_whitespace()))
    }

    /// The same of a command that is prepared, with no other stream than standard error.
    pub(crate) fn begin(command: &mut Command) -> Server {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        Server::of(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// With this socket as descriptor 3, as a service manager starts it. The shell becomes the broker, so it knows its pid.
    pub(crate) fn handed(place: &Place, socket: &OwnedFd, words: &str, variables: &[(&str, &str)]) -> Server {
        let script = format!("LISTEN_PID=$$ LISTEN_FDS=1 exec {BAIO} serve vol.img {words} 3<&0 </dev/null");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(place.path(""));
        command
            .envs(variables.iter().copied())
            .stdin(socket.try_clone().unwrap());
        Server::of(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn of(mut child: Child) -> Server {
        let told = BufReader::new(child.stderr.take().unwrap());
        Server { child, told }
    }

    /// Waits for the line of standard error with this in it, and gives it; what it said instead, if it ended without.
    pub(crate) fn says(&mut self, word: &str) -> String {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let read = self.told.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "it ended without `{word}`, and said: {said}");
            if line.contains(word) {
                return line;
            }
            said += &line;
        }
    }

    pub(crate) fn ready(mut self) -> Server {
        self.says("serving ");
        self
    }

    pub(crate) fn signal(&self, signal: Signal) {
        super::signal(&self.child, signal);
    }

    /// Its end: the status, and what it has said since. One that serves for ever is killed one day.
    pub(crate) fn ends(&mut self) -> (std::process::ExitStatus, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let (ended, has_ended) = mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        });
        let mut rest = String::new();
        self.told.read_to_string(&mut rest).unwrap();
        drop(ended);
        watch.join().unwrap();
        (self.child.wait().unwrap(), rest)
    }

    /// Tells it to end; its status, and what it has said since.
    pub(crate) fn stops(mut self) -> (std::process::ExitStatus, String) {
        self.signal(Signal::TERM);
        self.ends()
    }

    pub(crate) fn stops_well(self) {
        let (status, said) = self.stops();
        assert!(status.success(), "{status}: {said}");
    }

    pub(crate) fn ends_well(mut self) {
        let (status, said) = self.ends();
        assert!(status.success(), "{status}: {said}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many descriptors it has, and how many mappings of clients' memory.
    pub(crate) fn holds(&self) -> (usize, usize) {
        let fds = fs::read_dir(self.proc("fd")).unwrap().count();
        let maps = self.about("maps");
        let shared = maps.lines().filter(|line| line.contains("memfd:baio"));
        (fds, shared.count())
    }

    /// The number on a line of its `status`.
    pub(crate) fn status(&self, key: &str) -> u64 {
        number_of(&self.about("status"), key)
    }

    /// What `/proc` tells of it in this file.
    pub(crate) fn about(&self, file: &str) -> String {
        fs::read_to_string(self.proc(file)).unwrap()
    }

    /// How often its threads have ceased to run. Not the kernel's own (`iou-wrk-...`): those look every five seconds whether they are
    /// still needed.
    pub(crate) fn switches(&self) -> u64 {
        let tasks = fs::read_dir(self.proc("task")).unwrap();
        let tasks = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default());
        tasks
            .filter(|status| !status.starts_with("Name:\tiou-"))
            .map(|status| {
                number_of(&status, "voluntary_ctxt_switches") + number_of(&status, "nonvoluntary_ctxt_switches")
            })
            .sum()
    }

    fn proc(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.pid())
    }

    pub(crate) fn killed(mut self) {
        self.signal(Signal::KILL);
        self.ends();
    }
}

impl Drop for Server {
    /// A test that fails leaves none behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number_of(status: &str, key: &str) -> u64 {
    let line = status
        .lines()
        .find(|line| line.split_once(':').is_some_and(|(name, _)| name == key));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or_default()
}
