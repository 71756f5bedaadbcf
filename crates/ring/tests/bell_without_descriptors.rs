//! The promise: nothing that a client can do to its bell makes the service wait. A descriptor would allow it: its flags and
//! its counter belong to whoever has it. Alone in its file: it looks at the descriptors of the whole process.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use baio_ring::Shared;
use rustix::fs::OFlags;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// The event fds of this process.
fn event_fds() -> BTreeSet<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let is_one = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|target| target.to_string_lossy().contains("eventfd"))
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter(is_one).filter_map(number).collect()
}

/// The same description, as a peer has it that was handed a copy.
fn as_a_peer_has_it(fd: i32) -> OwnedFd {
    let me = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    pidfd_getfd(me, fd, PidfdGetfdFlags::empty()).unwrap()
}

#[test]
fn a_hostile_client_cannot_make_whoever_rings_its_bell_wait() {
    let before = event_fds();
    let shared = Arc::new(Shared::<()>::new(4));
    // Whatever descriptor there is: blocking, and full.
    for fd in event_fds().difference(&before) {
        let fd = as_a_peer_has_it(*fd);
        let _ = rustix::io::write(&fd, &(u64::MAX - 1).to_ne_bytes());
        let _ = rustix::fs::fcntl_setfl(&fd, OFlags::empty());
    }
    let (tell, told) = mpsc::channel();
    let theirs = Arc::clone(&shared);
    std::thread::spawn(move || {
        theirs.bell.ring();
        theirs.end();
        let _ = tell.send(());
    });
    let rang = told.recv_timeout(Duration::from_secs(20));
    assert!(rang.is_ok(), "whoever rings the bell waits for the client");
    // And it is heard.
    shared.bell.sleep(None);
    assert!(shared.has_ended());
}
