//! A `baio serve` of the test's own, over the volume `vol.img` of a place, on the socket `vol.sock`.

#![allow(dead_code, reason = "no story needs all of it")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ExitStatus};

use rustix::process::{Pid, Signal};

use crate::support::{BAIO, Place};

/// One that serves. A story that fails leaves none behind.
pub(crate) struct Serving {
    child: Child,
    told: BufReader<ChildStderr>,
}

impl Serving {
    /// Makes the volume, and serves it with these words more.
    pub(crate) fn start(place: &Place, words: &str) -> Serving {
        place.baio("format vol.img --size 16M").succeeds();
        Serving::again(place, words)
    }

    /// The same with the volume that is there.
    pub(crate) fn again(place: &Place, words: &str) -> Serving {
        let mut serving = Serving::bare(place, words);
        serving.says("serving ");
        serving
    }

    /// The same, before it has said anything.
    pub(crate) fn bare(place: &Place, words: &str) -> Serving {
        let line = format!("serve vol.img --socket vol.sock {words}");
        let mut child = place.spawn(BAIO, line.split_whitespace());
        let told = BufReader::new(child.stderr.take().unwrap());
        Serving { child, told }
    }

    /// Waits for a line of standard error with this in it.
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

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Tells it to end; its status, and what it has said since.
    pub(crate) fn ends(mut self) -> (ExitStatus, String) {
        self.signal(Signal::TERM);
        let mut rest = String::new();
        self.told.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    pub(crate) fn ends_well(self) {
        let (status, said) = self.ends();
        assert!(status.success(), "{status}: {said}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
