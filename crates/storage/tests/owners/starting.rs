//! A child between fork and exec: it has every descriptor of this process, also those that close on exec.

#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long it stays there by itself: nobody is left behind by a test that fails.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// It stays there until it is let go.
pub(crate) struct Starting {
    starter: JoinHandle<std::process::ExitStatus>,
    lets_go: std::io::PipeWriter,
}

impl Starting {
    pub(crate) fn new() -> Starting {
        let (mut forked, tells) = std::io::pipe().unwrap();
        let (waits, lets_go) = std::io::pipe().unwrap();
        let starter = std::thread::spawn(move || {
            let mut command = Command::new("true");
            let stay = move || {
                rustix::io::write(&tells, b"x")?;
                poll(&mut [PollFd::new(&waits.as_fd(), PollFlags::IN)], Some(&PATIENCE))?;
                Ok(())
            };
            // SAFETY: between fork and exec the child only makes two system calls, which need no lock and no memory.
            unsafe {
                command.pre_exec(stay);
            }
            command.status().unwrap()
        });
        forked.read_exact(&mut [0]).unwrap();
        Starting { starter, lets_go }
    }

    /// It has stayed until now, and goes on.
    pub(crate) fn let_go(mut self) {
        assert!(!self.starter.is_finished(), "the child was not held: nothing is shown");
        self.lets_go.write_all(b"x").unwrap();
        assert!(self.starter.join().unwrap().success());
    }
}
