//! The event fds that requests name (`IOCB_FLAG_RESFD`).
//!
//! The kernel keeps the event fd of a request, whatever becomes of its number: a program may close it, and have another file by that
//! number, before the request ends. A number is not enough, then: signalling one that is another file's by now would write into that
//! file. So a request holds a duplicate, made when it is submitted. Requests in flight share one, and the last to end closes it, since
//! one more descriptor of the program's event fd keeps an epoll(7) entry for it alive.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use baio_engine::Errno;
use rustix::event::EventfdFlags;

/// Of requests in flight, by the numbers that they came with.
#[derive(Default)]
pub(crate) struct EventFds(Vec<(RawFd, Weak<OwnedFd>)>);

impl EventFds {
    /// The event fd that has this number now.
    ///
    /// # Errors
    /// `EBADF` and `EINVAL` as the kernel says them; `EAGAIN` when there is no descriptor for a duplicate.
    pub(crate) fn of(&mut self, number: u32) -> Result<Arc<OwnedFd>, Errno> {
        let number = RawFd::try_from(number).map_err(|_| Errno::EBADF)?;
        let known = self.0.iter().find(|(its, _)| *its == number);
        if let Some(own) = known.and_then(|(_, own)| own.upgrade()) {
            if crate::descriptor::are_one(number, own.as_raw_fd()) {
                return Ok(own);
            }
        }
        let own = Arc::new(duplicate(number)?);
        self.0.retain(|(its, own)| *its != number && own.strong_count() > 0);
        self.0.push((number, Arc::downgrade(&own)));
        Ok(own)
    }
}

fn duplicate(number: RawFd) -> Result<OwnedFd, Errno> {
    let own = crate::descriptor::duplicate(number).map_err(|errno| match errno {
        Errno::EMFILE => Errno::EAGAIN,
        other => other,
    })?;
    if is_event_fd(own.as_fd())? {
        Ok(own)
    } else {
        Err(Errno::EINVAL)
    }
}

/// Anything with the inode that all event fds share. Others have it too (timers, epolls), and refuse a write: what matters is that no
/// file of the program is written to.
fn is_event_fd(it: BorrowedFd<'_>) -> Result<bool, Errno> {
    let known = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
    let (its, known) = (rustix::fs::fstat(it)?, rustix::fs::fstat(&known)?);
    Ok((its.st_dev, its.st_ino) == (known.st_dev, known.st_ino))
}

/// Adds one to an event fd. Not by `write` of libc, in which a thread can be cancelled.
pub(crate) fn signal(event_fd: &OwnedFd) {
    // A full counter says EAGAIN, or is waited for, and is readable in any case.
    let _ = rustix::io::write(event_fd, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

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
        signal(&second);
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&two, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1);
    }

    #[test]
    fn a_file_is_no_event_fd() {
        let file = tempfile::tempfile().unwrap();
        let told = EventFds::default().of(file.as_raw_fd() as u32);
        assert_eq!(told.unwrap_err(), Errno::EINVAL);
        assert_eq!(EventFds::default().of(1 << 30).unwrap_err(), Errno::EBADF);
    }
}
