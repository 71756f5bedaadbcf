//! The event fds that requests name (`IOCB_FLAG_RESFD`).
//!
//! The kernel keeps the event fd of a request, whatever becomes of its number: a program may close it, and have another file by that
//! number, before the request ends. A number is not enough, then: signalling one that is another file's by now would write into that
//! file. So a request holds a duplicate, made when it is submitted. Requests share one, and so do the next ones: making it costs more than
//! all the rest of a request that ends at once. But one more descriptor of the program's event fd keeps an epoll(7) entry for it alive. So
//! the helper gives back what nobody has used for a while.
//!
//! Where nothing says whether a number is still the same event fd's, its next request has a duplicate of its own, and only so many have one.
//! A request that cannot have one is refused until one that has ends, or the program closes a descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use baio_engine::Errno;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::descriptor;

/// Unused ones that are kept at most.
const KEPT_MAX: usize = 8;

/// Duplicates at most of numbers of which nothing says whose they are: the program's descriptors are not for us to use up.
const UNSURE_MAX: usize = 64;

/// By the numbers that requests came with.
#[derive(Default)]
pub(crate) struct EventFds {
    known: Vec<Known>,
    /// Those that requests have, and of which nothing says whether their number was still theirs when the next request came.
    unsure: Vec<Weak<OwnedFd>>,
    /// How often one was asked for.
    uses: u32,
}

struct Known {
    number: RawFd,
    own: Arc<OwnedFd>,
    /// Once it was looked at. It stays the same as long as this is kept.
    id: Option<u32>,
}

impl Known {
    /// Does its number still stand for it? None, where nothing says so.
    fn has_its_number(&mut self) -> Option<bool> {
        let own = self.own.as_raw_fd();
        let told = descriptor::are_one(self.number, own);
        if told.is_some() {
            return told;
        }
        self.id = self.id.or_else(|| descriptor::event_fd_id(own));
        let id = self.id?;
        match descriptor::event_fd_id(self.number) {
            Some(its) => Some(its == id),
            // It is no event fd, unless nothing can be looked at any more.
            None => descriptor::event_fd_id(own).map(|_| false),
        }
    }
}

impl EventFds {
    /// The event fd that has this number now.
    ///
    /// # Errors
    /// `EBADF` and `EINVAL` as the kernel says them; `EAGAIN` when there is no descriptor for a duplicate.
    pub(crate) fn of(&mut self, number: u32) -> Result<Arc<OwnedFd>, Errno> {
        self.uses = self.uses.wrapping_add(1);
        let number = RawFd::try_from(number).map_err(|_| Errno::EBADF)?;
        if let Some(at) = self.known.iter().position(|known| known.number == number) {
            let told = self.known[at].has_its_number();
            if told == Some(true) {
                return Ok(self.known[at].own.clone());
            }
            // Its requests keep it.
            let left = self.known.swap_remove(at);
            if told.is_none() {
                self.unsure.push(Arc::downgrade(&left.own));
            }
        }
        self.unsure.retain(|left| left.strong_count() > 0);
        if self.unsure.len() >= UNSURE_MAX {
            return Err(Errno::EAGAIN);
        }
        if self.unused().count() >= KEPT_MAX {
            self.give_back();
        }
        let made = duplicate(number).or_else(|errno| match errno {
            Errno::EAGAIN if self.unused().next().is_some() => {
                self.give_back();
                duplicate(number)
            }
            other => Err(other),
        });
        let own = Arc::new(made?);
        self.known.push(Known {
            number,
            own: own.clone(),
            id: None,
        });
        Ok(own)
    }

    fn unused(&self) -> impl Iterator<Item = &OwnedFd> {
        let all = self.known.iter().map(|known| &known.own);
        all.filter(|own| Arc::strong_count(own) == 1).map(Arc::as_ref)
    }

    fn give_back(&mut self) {
        self.known.retain(|known| Arc::strong_count(&known.own) > 1);
    }

    /// If any is kept that no request uses: how often one was asked for so far.
    pub(crate) fn kept(&self) -> Option<u32> {
        self.unused().next().is_some().then_some(self.uses)
    }

    /// Closes those that no request uses, unless one was asked for since.
    pub(crate) fn give_back_since(&mut self, uses: u32) {
        if self.uses == uses {
            self.give_back();
        }
    }
}

fn duplicate(number: RawFd) -> Result<OwnedFd, Errno> {
    let no_room = |errno: Errno| match errno {
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Errno::EAGAIN,
        other => other,
    };
    let own = descriptor::duplicate(number).map_err(no_room)?;
    if is_event_fd(own.as_fd()).map_err(no_room)? {
        Ok(own)
    } else {
        Err(Errno::EINVAL)
    }
}

/// Anything with the inode that all event fds share. Others have it too (timers, epolls), and refuse a write: what matters is that no
/// file of the program is written to.
fn is_event_fd(it: BorrowedFd<'_>) -> Result<bool, Errno> {
    let known = baio_process::descriptor::event()?;
    let (its, known) = (rustix::fs::fstat(it)?, rustix::fs::fstat(&known)?);
    Ok((its.st_dev, its.st_ino) == (known.st_dev, known.st_ino))
}

/// Which event fds are to be signalled, and how often each.
#[derive(Default)]
pub(crate) struct Signals(Vec<(Arc<OwnedFd>, u64)>);

impl Signals {
    pub(crate) fn add(&mut self, event_fd: Arc<OwnedFd>) {
        match self.0.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &event_fd)) {
            Some((_, times)) => *times += 1,
            None => self.0.push((event_fd, 1)),
        }
    }

    /// Adds to each event fd what it is due. Not by `write` of libc, in which a thread can be cancelled.
    pub(crate) fn send(self) {
        for (event_fd, times) in self.0 {
            // A full counter would be waited for. It is readable in any case.
            let mut room = [PollFd::new(&event_fd, PollFlags::OUT)];
            let told = rustix::event::poll(&mut room, Some(&Timespec::default()));
            if told == Ok(1) && room[0].revents().contains(PollFlags::OUT) {
                let _ = rustix::io::write(&event_fd, &times.to_ne_bytes());
            }
        }
    }
}

#[cfg(test)]
#[path = "../../engine/tests/environment/filter.rs"]
mod filter;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::EventfdFlags;

    #[test]
    fn requests_share_a_duplicate_until_the_number_is_anothers() {
        let mut fds = EventFds::default();
        let eventfd = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let (one, two) = (eventfd(), eventfd());
        let number = one.as_raw_fd() as u32;
        let first = fds.of(number).unwrap();
        assert!(Arc::ptr_eq(&first, &fds.of(number).unwrap()), "it is the same event fd");
        let mut one = one;
        rustix::io::dup2(&two, &mut one).unwrap();
        let second = fds.of(number).unwrap();
        assert!(!Arc::ptr_eq(&first, &second), "the number is another event fd's by now");
        let mut signals = Signals::default();
        for _ in 0..3 {
            signals.add(second.clone());
        }
        signals.send();
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&two, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 3);
    }

    #[test]
    fn what_nobody_uses_is_given_back() {
        let mut fds = EventFds::default();
        let one = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let number = one.as_raw_fd() as u32;
        let used = fds.of(number).unwrap();
        assert_eq!(fds.kept(), None);
        let weak = Arc::downgrade(&used);
        drop(used);
        let uses = fds.kept().unwrap();
        drop(fds.of(number).unwrap());
        fds.give_back_since(uses);
        assert!(weak.upgrade().is_some(), "it was asked for since");
        fds.give_back_since(fds.kept().unwrap());
        assert!(weak.upgrade().is_none());
        // As many as there may be, and one.
        let many: Vec<_> = (0..=KEPT_MAX)
            .map(|_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap())
            .collect();
        for one in &many {
            drop(fds.of(one.as_raw_fd() as u32).unwrap());
        }
        assert!(fds.unused().count() <= KEPT_MAX);
    }

    /// In a thread of its own, where `F_DUPFD_QUERY` and kcmp(2) are refused, as in a container on Linux before 6.10, and so are these.
    fn where_nothing_compares(refused: &[libc::c_long], story: impl FnOnce() + Send) {
        let filtered = || {
            let query = filter::Which::Argument(1, 1027);
            filter::forbid_some(&[(libc::SYS_fcntl, query)], Errno::EINVAL.raw());
            filter::forbid(&[libc::SYS_kcmp], Errno::EPERM.raw());
            filter::forbid(refused, Errno::ENOENT.raw());
            story();
        };
        std::thread::scope(|scope| scope.spawn(filtered).join().unwrap());
    }

    #[test]
    fn requests_share_a_duplicate_where_only_proc_tells() {
        where_nothing_compares(&[], || {
            let mut fds = EventFds::default();
            let eventfd = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let (mut one, two) = (eventfd(), eventfd());
            let number = one.as_raw_fd() as u32;
            let first = fds.of(number).unwrap();
            for _ in 0..100 {
                assert!(Arc::ptr_eq(&first, &fds.of(number).unwrap()), "it is the same event fd");
            }
            rustix::io::dup2(&two, &mut one).unwrap();
            let second = fds.of(number).unwrap();
            assert!(!Arc::ptr_eq(&first, &second), "the number is another event fd's by now");
            drop(two);
            rustix::io::dup2(tempfile::tempfile().unwrap(), &mut one).unwrap();
            assert_eq!(fds.of(number).unwrap_err(), Errno::EINVAL);
        });
    }

    #[test]
    fn where_nothing_tells_few_requests_have_a_duplicate() {
        #[cfg(target_arch = "x86_64")]
        const OPEN: &[libc::c_long] = &[libc::SYS_openat, libc::SYS_open];
        #[cfg(not(target_arch = "x86_64"))]
        const OPEN: &[libc::c_long] = &[libc::SYS_openat];
        where_nothing_compares(OPEN, || {
            let mut fds = EventFds::default();
            let one = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let number = one.as_raw_fd() as u32;
            let mut have: Vec<_> = (0..UNSURE_MAX).map(|_| fds.of(number).unwrap()).collect();
            assert_eq!(fds.of(number).unwrap_err(), Errno::EAGAIN);
            assert_eq!(fds.of(number).unwrap_err(), Errno::EAGAIN);
            // One request ends, and another may have what it had.
            have.pop();
            have.push(fds.of(number).unwrap());
            assert_eq!(fds.of(number).unwrap_err(), Errno::EAGAIN);
            // Nobody has any: they do not count.
            have.clear();
            for _ in 0..2 * UNSURE_MAX {
                drop(fds.of(number).unwrap());
            }
        });
    }

    #[test]
    fn a_file_is_no_event_fd() {
        let file = tempfile::tempfile().unwrap();
        let told = EventFds::default().of(file.as_raw_fd() as u32);
        assert_eq!(told.unwrap_err(), Errno::EINVAL);
        assert_eq!(EventFds::default().of(1 << 30).unwrap_err(), Errno::EBADF);
    }
}
