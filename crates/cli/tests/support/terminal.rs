//! A program whose standard error, or standard output, is a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{BAIO, Place};

/// What `baio`, with the words of `line`, shows on the terminal by standard error, and how it ends.
pub(crate) fn shown_on_a_terminal(place: &Place, line: &str, environment: &[(&str, &str)]) -> (String, i32) {
    on_a_terminal(place, line, environment, |command, slave| {
        command.stdout(Stdio::null()).stderr(slave);
    })
}

/// The same by standard output.
pub(crate) fn answered_on_a_terminal(place: &Place, line: &str, environment: &[(&str, &str)]) -> (String, i32) {
    on_a_terminal(place, line, environment, |command, slave| {
        command.stdout(slave).stderr(Stdio::null());
    })
}

fn on_a_terminal(
    place: &Place,
    line: &str,
    environment: &[(&str, &str)],
    leads: impl FnOnce(&mut Command, OwnedFd),
) -> (String, i32) {
    let (master, slave) = new_terminal();
    let mut command = Command::new(BAIO);
    command
        .args(line.split_whitespace())
        .current_dir(place.path(""))
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .envs(environment.iter().copied())
        .stdin(Stdio::null());
    leads(&mut command, slave);
    let mut child = command.spawn().unwrap();
    // It holds the slave too.
    drop(command);
    // When the last slave is closed a read of the master fails with EIO, and what was written before has been read.
    let mut shown = Vec::new();
    let _ = File::from(master).read_to_end(&mut shown);
    let status = child.wait().unwrap().code().unwrap_or(-1);
    (String::from_utf8_lossy(&shown).replace("\r\n", "\n"), status)
}

/// A terminal of its own: who shows it, and who writes on it.
pub(crate) fn new_terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
    (master, slave)
}
