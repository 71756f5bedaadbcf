//! The one way to make a descriptor that stays.
//!
//! Numbers 0, 1 and 2 are the program's standard streams, even when they are closed. A daemon closes them, and puts something else there
//! with `dup2`, which would silently close a descriptor of ours. So descriptors that are made here have numbers above 2, and exec closes them.

// The one place that makes them.
#![allow(clippy::disallowed_methods)]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::event::{EventfdFlags, epoll};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, Protocol, SocketAddrUnix, SocketFlags, SocketType};
use rustix::path::Arg;
use rustix::time::{TimerfdClockId, TimerfdFlags};

/// The first number that is no standard stream's.
const FIRST: i32 = 3;

/// The same, above the standard streams: for what another function has made.
///
/// # Errors
/// No other number is free.
pub fn above_standard(made: OwnedFd) -> Result<OwnedFd> {
    if made.as_raw_fd() >= FIRST {
        return Ok(made);
    }
    duplicate(&made)
}

/// One more of the same description (`dup`).
///
/// # Errors
/// No number is free.
pub fn duplicate(fd: impl AsFd) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, FIRST)
}

/// An event fd at 0, of which nobody waits in a read (eventfd(2)).
///
/// # Errors
/// As the system call.
pub fn event() -> Result<OwnedFd> {
    above_standard(rustix::event::eventfd(
        0,
        EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
    )?)
}

/// An epoll instance (epoll(7)).
///
/// # Errors
/// As the system call.
pub fn epoll() -> Result<OwnedFd> {
    above_standard(epoll::create(epoll::CreateFlags::CLOEXEC)?)
}

/// A timer (timerfd_create(2)).
///
/// # Errors
/// As the system call.
pub fn timer(clock: TimerfdClockId, flags: TimerfdFlags) -> Result<OwnedFd> {
    above_standard(rustix::time::timerfd_create(clock, flags | TimerfdFlags::CLOEXEC)?)
}

/// Memory without a path (memfd_create(2)).
///
/// # Errors
/// As the system call.
pub fn memory(name: impl Arg, flags: MemfdFlags) -> Result<OwnedFd> {
    above_standard(rustix::fs::memfd_create(name, flags | MemfdFlags::CLOEXEC)?)
}

/// A file or a directory (open(2)).
///
/// # Errors
/// As the system call.
pub fn open(path: impl Arg, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    above_standard(rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?)
}

/// A socket (socket(2)).
///
/// # Errors
/// As the system call.
pub fn socket(
    family: AddressFamily,
    kind: SocketType,
    flags: SocketFlags,
    protocol: Option<Protocol>,
) -> Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    above_standard(rustix::net::socket_with(family, kind, flags, protocol)?)
}

/// Two sockets that are connected (socketpair(2)).
///
/// # Errors
/// As the system call.
pub fn socket_pair(
    family: AddressFamily,
    kind: SocketType,
    flags: SocketFlags,
    protocol: Option<Protocol>,
) -> Result<(OwnedFd, OwnedFd)> {
    let flags = flags | SocketFlags::CLOEXEC;
    let (one, other) = rustix::net::socketpair(family, kind, flags, protocol)?;
    Ok((above_standard(one)?, above_standard(other)?))
}

/// The next connection of a socket that listens (accept4(2)).
///
/// # Errors
/// As the system call.
pub fn accept(listener: impl AsFd, flags: SocketFlags) -> Result<OwnedFd> {
    above_standard(rustix::net::accept_with(listener, flags | SocketFlags::CLOEXEC)?)
}

/// Binds a Unix socket to a path. Those of `mode` may connect from its first moment on, under every umask, and nobody else (bind(2)). Where they
/// cannot be let in, the name is taken back.
///
/// # Errors
/// As the system calls; `ELOOP` where somebody has put another thing into the place of the socket.
pub fn bind(socket: impl AsFd, path: &Path, mode: Mode) -> Result<()> {
    // What is bound has the mode of the descriptor, less the umask (unix_bind, net/unix/af_unix.c).
    rustix::fs::fchmod(&socket, mode)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let given = give_mode(path, mode);
    if given.is_err_and(|errno| errno != Errno::LOOP) {
        let _ = rustix::fs::unlink(path);
    }
    given
}

/// Gives the socket that was bound to this path these permissions.
fn give_mode(path: &Path, mode: Mode) -> Result<()> {
    let bound = open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
    let found = rustix::fs::fstat(&bound)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(Errno::LOOP);
    }
    if Mode::from_raw_mode(found.st_mode) == mode {
        return Ok(());
    }
    // The umask has taken some of it. By what is held, since the path may lead elsewhere by now; and by the path where there is no /proc.
    let held = format!("/proc/self/fd/{}", bound.as_raw_fd());
    match rustix::fs::chmod(held, mode) {
        Err(Errno::NOENT | Errno::NOTDIR) => rustix::fs::chmod(path, mode),
        changed => changed,
    }
}
