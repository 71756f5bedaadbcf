//! Who waits for which descriptor to become ready: epoll, one-shot, several waiters per descriptor.
//!
//! A descriptor is in the epoll set once, with the events that all its waiters want together. When it fires, those whose
//! events have come are taken out, and it is armed again for the rest. One that nobody waits for any more is taken out of
//! the set, or stays in it disarmed after it has fired, so that waiting for it again is one system call. The owner of a
//! waiter keeps the descriptor open.
//!
//! The same set holds what else can end the owner's sleep: its doorbell, the bell of its workers, a timer for outside loops.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use crate::error::Errno;

/// Something of the backend's own that became readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Doorbell,
    Bell,
    Timer,
}

/// One who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) slot: u32,
    pub(crate) events: u32,
}

/// What became of a wish to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    Yes,
    /// epoll does not take it, for it never has to be waited for: regular files, some devices.
    AlwaysReady,
}

pub(crate) struct Readiness {
    epoll: OwnedFd,
    watches: HashMap<RawFd, Watch>,
    waiting: usize,
    events: Vec<Event>,
}

// SAFETY: what keeps it in one thread is the room for events, whose word could be a pointer. Ours are numbers.
#[allow(unsafe_code)]
unsafe impl Send for Readiness {}

#[derive(Default)]
struct Watch {
    waiters: Vec<Waiter>,
    /// Probably in the set. The kernel takes it out when the file behind the descriptor is closed.
    in_set: bool,
}

/// poll(2)'s bits; the rest of an epoll word has other meanings.
const POLL_BITS: u32 = 0x3fff;

/// These are told whether asked for or not.
const ALWAYS_TOLD: u32 = (libc::POLLERR | libc::POLLHUP) as u32;

impl Readiness {
    pub(crate) fn new() -> Result<Readiness, Errno> {
        Ok(Readiness {
            epoll: baio_process::descriptor::epoll()?,
            watches: HashMap::new(),
            waiting: 0,
            events: Vec::with_capacity(64),
        })
    }

    /// Watches a descriptor of the backend's own for as long as both live. `once` per event: it need not be read.
    pub(crate) fn watch_own(&self, own: Own, fd: &OwnedFd, once: bool) -> Result<(), Errno> {
        let flags = if once {
            EventFlags::IN | EventFlags::ET
        } else {
            EventFlags::IN
        };
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(own_key(own)), flags)?)
    }

    /// Whether anybody waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Waits for events on `fd`, which must stay open until the waiter has been told or removed.
    ///
    /// # Errors
    /// What epoll said; then nobody waits.
    pub(crate) fn add(&mut self, fd: BorrowedFd<'_>, waiter: Waiter) -> Result<Watched, Errno> {
        let watch = self.watches.entry(fd.as_raw_fd()).or_default();
        watch.waiters.push(waiter);
        match arm(&self.epoll, fd, watch) {
            Ok(()) => {
                self.waiting += 1;
                Ok(Watched::Yes)
            }
            Err(errno) => {
                watch.waiters.pop();
                match errno {
                    Errno::EPERM => Ok(Watched::AlwaysReady),
                    other => Err(other),
                }
            }
        }
    }

    /// Stops waiting.
    pub(crate) fn remove(&mut self, fd: BorrowedFd<'_>, slot: u32) {
        let Some(watch) = self.watches.get_mut(&fd.as_raw_fd()) else {
            return;
        };
        let Some(at) = watch.waiters.iter().position(|waiter| waiter.slot == slot) else {
            return;
        };
        watch.waiters.swap_remove(at);
        self.waiting -= 1;
        if watch.waiters.is_empty() && std::mem::take(&mut watch.in_set) {
            // Left armed it would fire for nobody. If it is gone from the set already, all the better.
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// Sleeps until something is ready, at most `limit`; tells the waiters whose time has come, and the backend's own.
    ///
    /// # Errors
    /// epoll itself is broken.
    pub(crate) fn wait(
        &mut self,
        limit: Option<&Timespec>,
        ready: &mut Vec<Waiter>,
        mut own: impl FnMut(Own),
    ) -> Result<(), Errno> {
        self.events.clear();
        match sleep(&self.epoll, &mut self.events, limit) {
            Ok(()) => {}
            // The caller decides whether to sleep again.
            Err(Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        for event in &self.events {
            let Event { flags, data } = *event;
            let (key, told) = (data.u64(), flags.bits());
            match key {
                DOORBELL => own(Own::Doorbell),
                BELL => own(Own::Bell),
                TIMER => own(Own::Timer),
                fd => {
                    let fd = fd as RawFd;
                    if let Some(watch) = self.watches.get_mut(&fd) {
                        let before = watch.waiters.len();
                        watch.tell(told, ready);
                        self.waiting -= before - watch.waiters.len();
                        self.waiting -= rearm(&self.epoll, fd, watch, ready);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Watch {
    /// Takes out who is served by these events.
    fn tell(&mut self, told: u32, ready: &mut Vec<Waiter>) {
        self.waiters.retain(|waiter| {
            let events = told & (waiter.events | ALWAYS_TOLD);
            if events != 0 {
                let slot = waiter.slot;
                ready.push(Waiter { slot, events });
            }
            events == 0
        });
    }
}

/// One-shot: after it has fired, those who are left have to be armed for again. Returns how many were told because that
/// failed: they find out for themselves.
#[allow(unsafe_code)]
fn rearm(epoll: &OwnedFd, fd: RawFd, watch: &mut Watch, ready: &mut Vec<Waiter>) -> usize {
    if watch.waiters.is_empty() {
        return 0;
    }
    // SAFETY: somebody waits, and who waits keeps the descriptor open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    if arm(epoll, fd, watch).is_ok() {
        return 0;
    }
    let left = watch.waiters.len();
    let failed = |waiter: Waiter| Waiter {
        events: libc::POLLERR as u32,
        ..waiter
    };
    ready.extend(watch.waiters.drain(..).map(failed));
    left
}

/// Puts the descriptor in the set, armed for what its waiters want.
fn arm(epoll: &OwnedFd, fd: BorrowedFd<'_>, watch: &mut Watch) -> Result<(), Errno> {
    let wanted = watch.waiters.iter().fold(0, |all, waiter| all | waiter.events);
    let flags = EventFlags::from_bits_retain(wanted & POLL_BITS) | EventFlags::ONESHOT;
    let data = EventData::new_u64(fd.as_raw_fd() as u64);
    use rustix::io::Errno as Raw;
    let armed = if watch.in_set {
        // The file behind it may have been closed, and another have got its number.
        match epoll::modify(epoll, fd, data, flags) {
            Err(Raw::NOENT) => epoll::add(epoll, fd, data, flags),
            other => other,
        }
    } else {
        match epoll::add(epoll, fd, data, flags) {
            Err(Raw::EXIST) => epoll::modify(epoll, fd, data, flags),
            other => other,
        }
    };
    watch.in_set = armed.is_ok();
    Ok(armed?)
}

/// Who sleeps longer is woken in between, and sleeps again: in milliseconds it fits epoll_wait(2), while epoll_pwait2(2) came with Linux
/// 5.11 only.
const LONGEST: Timespec = Timespec {
    tv_sec: 1 << 20,
    tv_nsec: 0,
};

/// Rounded up to milliseconds, so that nobody wakes too early and turns in vain.
fn sleep(epoll: &OwnedFd, events: &mut Vec<Event>, limit: Option<&Timespec>) -> Result<(), Errno> {
    let limit = limit.map(|limit| if limit.tv_sec < LONGEST.tv_sec { limit } else { &LONGEST });
    epoll::wait(epoll, rustix::buffer::spare_capacity(events), limit)?;
    Ok(())
}

/// Keys that are no descriptors.
const DOORBELL: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
const TIMER: u64 = u64::MAX - 2;

fn own_key(own: Own) -> u64 {
    match own {
        Own::Doorbell => DOORBELL,
        Own::Bell => BELL,
        Own::Timer => TIMER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const IN: u32 = libc::POLLIN as u32;
    const OUT: u32 = libc::POLLOUT as u32;

    fn waiter(slot: u32, events: u32) -> Waiter {
        Waiter { slot, events }
    }

    fn told(readiness: &mut Readiness) -> Vec<u32> {
        let mut ready = Vec::new();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        readiness.wait(Some(&now), &mut ready, |_| {}).unwrap();
        let mut slots: Vec<_> = ready.iter().map(|waiter| waiter.slot).collect();
        slots.sort_unstable();
        slots
    }

    #[test]
    fn each_waiter_of_a_descriptor_is_told_of_its_own_events_once() {
        let mut readiness = Readiness::new().unwrap();
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        for (slot, events) in [(1, IN), (2, OUT), (3, IN | OUT), (4, IN)] {
            assert_eq!(readiness.add(one.as_fd(), waiter(slot, events)), Ok(Watched::Yes));
        }
        assert_eq!(told(&mut readiness), [2, 3], "writable at once");
        assert_eq!(told(&mut readiness), [0; 0]);
        readiness.remove(one.as_fd(), 4);
        other.write_all(b"x").unwrap();
        assert_eq!(told(&mut readiness), [1], "those left were armed for again");
        assert!(readiness.is_idle());
        assert_eq!(told(&mut readiness), [0; 0]);
        // And again, on the descriptor that is still in the set.
        readiness.add(one.as_fd(), waiter(5, IN)).unwrap();
        assert_eq!(told(&mut readiness), [5]);
    }

    #[test]
    fn a_descriptor_nobody_waits_for_any_more_is_silent() {
        let mut readiness = Readiness::new().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        readiness.add(reader.as_fd(), waiter(1, IN)).unwrap();
        readiness.remove(reader.as_fd(), 1);
        readiness.remove(reader.as_fd(), 1);
        writer.write_all(b"x").unwrap();
        let mut all = Vec::new();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        readiness.wait(Some(&now), &mut all, |_| {}).unwrap();
        assert!(readiness.events.is_empty(), "it would end every sleep");
        readiness.add(reader.as_fd(), waiter(2, IN)).unwrap();
        assert_eq!(told(&mut readiness), [2]);
    }

    #[test]
    fn another_file_may_get_the_number() {
        let mut readiness = Readiness::new().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        readiness.add(reader.as_fd(), waiter(1, IN)).unwrap();
        writer.write_all(b"x").unwrap();
        assert_eq!(told(&mut readiness), [1]);
        let (mut second, mut to_second) = std::io::pipe().unwrap();
        // The old file stays open elsewhere, so the set keeps its old entry.
        let kept = reader.try_clone().unwrap();
        let mut reader = OwnedFd::from(reader);
        rustix::io::dup2(&second, &mut reader).unwrap();
        readiness.add(reader.as_fd(), waiter(2, IN)).unwrap();
        assert_eq!(
            told(&mut readiness),
            [0; 0],
            "the old file is readable, the new one is not"
        );
        to_second.write_all(b"yz").unwrap();
        assert_eq!(told(&mut readiness), [2]);
        second.read_exact(&mut [0; 2]).unwrap();
        drop(kept);
    }

    #[test]
    fn regular_files_are_always_ready() {
        let mut readiness = Readiness::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        assert_eq!(readiness.add(file.as_fd(), waiter(1, IN)), Ok(Watched::AlwaysReady));
        assert!(readiness.is_idle());
        assert!(readiness.watches[&file.as_raw_fd()].waiters.is_empty());
    }

    #[test]
    fn a_bell_wakes_each_time_it_is_rung_though_nobody_reads_it() {
        let mut readiness = Readiness::new().unwrap();
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        readiness.watch_own(Own::Bell, &bell, true).unwrap();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..3 {
            rustix::io::write(&bell, &1_u64.to_ne_bytes()).unwrap();
            for expected in [1, 0] {
                let mut heard = 0;
                readiness
                    .wait(Some(&now), &mut Vec::new(), |own| {
                        assert_eq!(own, Own::Bell);
                        heard += 1;
                    })
                    .unwrap();
                assert_eq!(heard, expected);
            }
        }
    }
}
