//! The lock on a file of this kernel (flock(2)), and who has it.

use std::os::fd::{AsFd, BorrowedFd};

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
        let stat = rustix::fs::fstat(self.any_fd().ok()?).ok()?;
        let device = stat.st_dev;
        let wanted = format!(
            "{:02x}:{:02x}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device),
            stat.st_ino
        );
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

#[cfg(test)]
mod tests {
    use super::super::{File, Made, Open};
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
