//! The socket that a service manager has bound, and hands over as descriptor 3 (sd_listen_fds(3)).
//!
//! It stays the manager's: who connects while no broker runs waits in its queue.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use baio_console::failure::Failure;
use rustix::io::FdFlags;
use rustix::net::SocketAddrUnix;

/// Where the protocol has the first of them.
const FIRST: libc::c_int = 3;
const VARIABLES: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"];

/// What was handed over.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) fd: OwnedFd,
    /// Where it is bound, if it is a path.
    pub(super) path: Option<PathBuf>,
}

/// Takes it, if it is for this process, and the variables out of the environment. To be called once, before there are other
/// threads.
///
/// # Errors
/// Not one was handed over, or it is not there.
pub(super) fn take() -> Result<Option<Handed>, Failure> {
    let [pid, count] = ["LISTEN_PID", "LISTEN_FDS"].map(|name| std::env::var(name).unwrap_or_default());
    for name in VARIABLES {
        // SAFETY: there is one thread, so nobody looks at the environment meanwhile.
        unsafe { std::env::remove_var(name) };
    }
    if pid != std::process::id().to_string() || count == "0" {
        return Ok(None);
    }
    let failed = |said: String| {
        Failure::new("serve", "EBADF", said)
            .on("LISTEN_FDS")
            .needing("one listening Unix socket of type SOCK_SEQPACKET, as descriptor 3")
            .cured_by("one ListenSequentialPacket= in the socket unit; one unit for each volume")
    };
    if count != "1" {
        return Err(failed(format!("{count} sockets were handed over")));
    }
    // SAFETY: it asks for the flags of a number; no memory is involved.
    if unsafe { libc::fcntl(FIRST, libc::F_GETFD) } < 0 {
        return Err(failed("none was handed over".to_owned()));
    }
    // SAFETY: it is open, as we have just seen. Whoever started this process gave it by this number to whoever has this pid, and
    // nothing here has opened anything that is still open: it is nobody's yet, and from here on this owner's alone.
    let fd = unsafe { OwnedFd::from_raw_fd(FIRST) };
    // No child of ours is to have it.
    let _ = rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC);
    let name = rustix::net::getsockname(&fd).ok();
    let name = name.and_then(|name| SocketAddrUnix::try_from(name).ok());
    let path = name.as_ref().and_then(SocketAddrUnix::path);
    let path = path.map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())));
    Ok(Some(Handed { fd, path }))
}
