//! The lock on a file of this kernel (flock(2)), and who has it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::FlockOperation;

use super::inode::Inode;
use crate::error::Errno;

/// Who has locked a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The process.
    pub pid: u32,
    /// Alone, or with others who only read?
    pub exclusive: bool,
}

impl Inode {
    pub(super) fn flock(&self, exclusive: bool) -> Result<(), Errno> {
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        let fd = self.lock_fd()?;
        // EAGAIN is an answer here.
        Ok(rustix::io::retry_on_intr(|| rustix::fs::flock(fd, operation))?)
    }

    pub(super) fn give_back(&self) {
        if let Ok(fd) = self.lock_fd() {
            let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
        }
    }

    pub(super) fn lock_holder(&self) -> Option<LockHolder> {
        let fd = self.any_fd().ok()?;
        let wanted = number_in_locks(fd).or_else(|| number_by_stat(fd))?;
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // "1: FLOCK  ADVISORY  WRITE 123 08:01:42 0 EOF"; a waiting line has "->" in second place.
            match words[..] {
                [_, "FLOCK", _, kind, pid, inode, ..] if inode == wanted => {
                    let pid = pid.parse().ok().filter(|&pid| pid > 0)?;
                    let exclusive = kind == "WRITE";
                    Some(LockHolder { pid, exclusive })
                }
                _ => None,
            }
        })
    }

    fn lock_fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        let fd = self.direct.as_ref().or(self.kernel.as_ref());
        fd.map(AsFd::as_fd).ok_or(Errno::EBADF)
    }
}

/// How `/proc/locks` calls a file: by the kernel's own numbers. On overlays and subvolumes stat(2) tells others.
fn number_in_locks(fd: BorrowedFd<'_>) -> Option<String> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    let word = |key: &str| about.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let (mount, inode) = (word("mnt_id:")?, word("ino:")?);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some(mount)).then(|| words.nth(1)).flatten()
    })?;
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(format!("{major:02x}:{minor:02x}:{inode}"))
}

fn number_by_stat(fd: BorrowedFd<'_>) -> Option<String> {
    let stat = rustix::fs::fstat(fd).ok()?;
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    Some(format!("{major:02x}:{minor:02x}:{}", stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::super::made::Made;
    use super::super::{File, Open};
    use super::*;
    use crate::policy::Caching;

    #[test]
    fn of_two_descriptions_the_direct_one_is_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(file.path(), &Open::write()).unwrap();
        if !file.gives(Caching::Direct) {
            return eprintln!("skipped: no direct I/O here");
        }
        let lock = |mode| {
            let Made::Inode(inode) = &file.0.made else {
                panic!("a file of this kernel")
            };
            let fd = inode.descriptor(mode).unwrap();
            rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)
        };
        file.try_lock(true).unwrap();
        assert_eq!(lock(Caching::Direct), Ok(()), "it has the lock already");
        assert_eq!(lock(Caching::Kernel), Err(rustix::io::Errno::AGAIN));
        file.unlock();
        assert_eq!(lock(Caching::Kernel), Ok(()));
    }
}
