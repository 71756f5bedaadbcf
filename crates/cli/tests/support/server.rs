//! A broker that runs: `baio serve` as a child.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{BAIO, Place};

/// Nothing here takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

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
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
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
