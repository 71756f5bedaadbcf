//! Streams without waiting: one try of a call that might wait for the other end.
//!
//! A descriptor may be blocking. All who share it would be affected if that were changed, so each call says for itself
//! that it will not wait (`RWF_NOWAIT`, `MSG_DONTWAIT`). A file that does not know these flags (a terminal) is left to a worker thread, which
//! checks once more whether it is ready.
//!
//! accept(2) and connect(2) have no such flag. A listener is made non-blocking for good: usually several threads accept from it, and if each
//! asked for readiness first, all but one would block. A socket that is to be connected is made
//! non-blocking during the call: nobody else can use it yet.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};

use rustix::fs::{FileType, OFlags};

use crate::memory::Window;
use crate::slot::{first_part, ready};
use crate::sys::{self, Action, Fd, Iteration};

/// What came of a try.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// It has ended: a count, or a negated error number.
    Ended(i32),
    /// It would wait for these events.
    NotReady(u32),
    /// It is ready, but may block even so: for a worker.
    Blocks,
    /// The connection is on its way; its outcome can be asked for when the socket is writable.
    Connecting,
}

const IN: u32 = libc::POLLIN as u32;
const OUT: u32 = libc::POLLOUT as u32;

/// Tries an iteration.
///
/// # Safety
/// As for [`sys::execute`].
pub(crate) unsafe fn attempt(iteration: &Iteration) -> Tried {
    let Fd::Raw(fd) = iteration.fd else {
        return Tried::Ended(-libc::EBADF);
    };
    let mut quick = *iteration;
    let events = match &mut quick.action {
        Action::Read { .. } => IN,
        Action::Write { .. } => OUT,
        Action::Receive { flags, .. } => {
            *flags |= libc::MSG_DONTWAIT as u32;
            IN
        }
        Action::Send { flags, .. } => {
            *flags |= libc::MSG_DONTWAIT as u32;
            OUT
        }
        // SAFETY: the caller's promise.
        Action::Accept => return unsafe { accept(fd, iteration) },
        // SAFETY: the caller's promise.
        Action::Connect { .. } => return unsafe { connect(fd, iteration) },
        // Nothing else is a stream's.
        _ => return Tried::Blocks,
    };
    quick.flags = sys::as_streams_know_it(quick.flags | libc::RWF_NOWAIT);
    // SAFETY: the caller's promise.
    match unsafe { sys::execute(&quick) } {
        raw if raw == -libc::EAGAIN => Tried::NotReady(events),
        raw if raw == -libc::EOPNOTSUPP && is_patient(iteration) && has_position(&quick.action) => {
            if ready(fd, events) != 0 {
                Tried::Blocks
            } else {
                Tried::NotReady(events)
            }
        }
        raw => Tried::Ended(raw),
    }
}

/// readv(2) and writev(2) carry `RWF_NOWAIT`; send(2) and recv(2) do not, and mean what they say.
fn has_position(action: &Action) -> bool {
    matches!(action, Action::Read { .. } | Action::Write { .. })
}

/// Did the caller not ask to be told `EAGAIN`?
pub(crate) fn is_patient(iteration: &Iteration) -> bool {
    let told = match iteration.action {
        Action::Receive { flags, .. } | Action::Send { flags, .. } => flags & libc::MSG_DONTWAIT as u32 != 0,
        _ => false,
    };
    !told && iteration.flags & libc::RWF_NOWAIT == 0
}

/// Whoever looks first and accepts then may find that another was faster, and wait: so the listener itself is told not to.
unsafe fn accept(fd: RawFd, iteration: &Iteration) -> Tried {
    // SAFETY: the slot of the request keeps the descriptor open.
    let listener = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = match rustix::fs::fcntl_getfl(listener) {
        Ok(flags) => flags,
        Err(errno) => return Tried::Ended(-errno.raw_os_error()),
    };
    if !flags.contains(OFlags::NONBLOCK) {
        if let Err(errno) = rustix::fs::fcntl_setfl(listener, flags | OFlags::NONBLOCK) {
            return Tried::Ended(-errno.raw_os_error());
        }
    }
    // SAFETY: the caller's promise.
    match unsafe { sys::execute(iteration) } {
        raw if raw == -libc::EAGAIN => Tried::NotReady(IN),
        raw => Tried::Ended(raw),
    }
}

unsafe fn connect(fd: RawFd, iteration: &Iteration) -> Tried {
    // SAFETY: the slot of the request keeps the descriptor open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = match rustix::fs::fcntl_getfl(socket) {
        Ok(flags) => flags,
        Err(errno) => return Tried::Ended(-errno.raw_os_error()),
    };
    let blocking = !flags.contains(OFlags::NONBLOCK);
    if blocking {
        if let Err(errno) = rustix::fs::fcntl_setfl(socket, flags | OFlags::NONBLOCK) {
            return Tried::Ended(-errno.raw_os_error());
        }
    }
    // SAFETY: the caller's promise.
    let raw = unsafe { sys::execute(iteration) };
    if blocking {
        // It worked a moment ago.
        let _ = rustix::fs::fcntl_setfl(socket, flags);
    }
    match -raw {
        libc::EINPROGRESS => Tried::Connecting,
        // The backlog of a Unix socket is full, and nothing tells when it is not.
        libc::EAGAIN if blocking => Tried::Blocks,
        _ => Tried::Ended(raw),
    }
}

/// Does a receive with these flags want all its bytes, and not just the first that come? A datagram is whole as it is.
pub(crate) fn waits_for_all(fd: RawFd, flags: u32) -> bool {
    use rustix::net::{SocketType, sockopt::socket_type};
    let asked = flags & libc::MSG_WAITALL as u32 != 0 && flags & libc::MSG_PEEK as u32 == 0;
    // SAFETY: the slot of the request keeps the descriptor open.
    asked && socket_type(unsafe { BorrowedFd::borrow_raw(fd) }) == Ok(SocketType::STREAM)
}

/// How a connection on its way ended. The kernel counts it as made only when connect(2) is called again; left alone, it
/// would give the 0 to whoever calls it next, instead of `EISCONN`.
///
/// # Safety
/// As for [`sys::execute`].
pub(crate) unsafe fn connected(fd: RawFd, iteration: &Iteration) -> i32 {
    // SAFETY: the slot of the request keeps the descriptor open.
    match rustix::net::sockopt::socket_error(unsafe { BorrowedFd::borrow_raw(fd) }) {
        // SAFETY: the caller's promise.
        Ok(Ok(())) => match unsafe { sys::execute(iteration) } {
            raw if raw == -libc::EISCONN => 0,
            raw => raw,
        },
        Ok(Err(errno)) | Err(errno) => -errno.raw_os_error(),
    }
}

/// Runs, in a worker, an iteration that may block even though the stream was ready: not when another has been faster, which
/// is told by `EAGAIN`.
///
/// # Safety
/// As for [`sys::execute`].
pub(crate) unsafe fn run_if_ready(iteration: &Iteration) -> i32 {
    let mut iteration = *iteration;
    let Fd::Raw(fd) = iteration.fd else {
        return -libc::EBADF;
    };
    let events = match &mut iteration.action {
        Action::Read { .. } => IN,
        Action::Write { window, .. } => {
            shorten(fd, window);
            OUT
        }
        _ => 0,
    };
    if events != 0 && ready(fd, events) == 0 {
        return -libc::EAGAIN;
    }
    // SAFETY: the caller's promise.
    unsafe { sys::execute(&iteration) }
}

/// A pipe that is writable has room for this much; more would wait for its reader. The engine writes the rest afterwards.
fn shorten(fd: RawFd, window: &mut Window) {
    // SAFETY: the slot of the request keeps the descriptor open.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) });
    if !stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo) {
        return;
    }
    // A list has at least one part while anything is left to be written.
    *window = first_part(*window).at_most(libc::PIPE_BUF);
}
