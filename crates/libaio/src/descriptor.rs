//! What is asked of a descriptor by its number, which is the program's own.

#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use baio_engine::Errno;

/// `F_DUPFD_QUERY`, include/uapi/linux/fcntl.h: Linux 6.10.
const DUPFD_QUERY: libc::c_int = 1027;
/// `KCMP_FILE`, include/uapi/linux/kcmp.h.
const KCMP_FILE: libc::c_int = 0;

fn told(result: libc::c_long) -> Result<i32, Errno> {
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result as i32)
    }
}

// By `syscall` all of them: a thread can be cancelled in some of libc's own functions.
fn fcntl(fd: RawFd, what: libc::c_int, argument: libc::c_long) -> Result<i32, Errno> {
    // SAFETY: none of the commands used here refers to memory.
    told(unsafe { libc::syscall(libc::SYS_fcntl, fd, what, argument) })
}

/// How the file is open: `O_RDONLY` and its like. `EBADF` for a number that is no file's, and for one that is only a path.
pub(crate) fn flags(fd: RawFd) -> Result<i32, Errno> {
    match fcntl(fd, libc::F_GETFL, 0)? {
        flags if flags & libc::O_PATH != 0 => Err(Errno::EBADF),
        flags => Ok(flags),
    }
}

/// Which file a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct File {
    device: (u32, u32),
    inode: u64,
    /// `S_IFMT`.
    pub(crate) kind: u32,
}

impl File {
    /// That of this number now.
    pub(crate) fn of(fd: RawFd) -> Result<File, Errno> {
        // SAFETY: zeros are a `statx`, and the kernel fills it in.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        // Nothing that a file server would have to be asked for.
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        let wanted = libc::STATX_TYPE | libc::STATX_INO;
        // SAFETY: the kernel writes the one `statx`; the path is empty.
        told(unsafe { libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, wanted, &raw mut stat) })?;
        Ok(File {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            kind: u32::from(stat.stx_mode) & libc::S_IFMT,
        })
    }

    /// Is it a pipe, a socket, a terminal or the like? What goes in and out has an order in place of offsets, and a call may wait for ever.
    pub(crate) fn is_stream(self) -> bool {
        !matches!(self.kind, libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR)
    }
}

/// One more descriptor of the same description.
pub(crate) fn duplicate(fd: RawFd) -> Result<OwnedFd, Errno> {
    let own = fcntl(fd, libc::F_DUPFD_CLOEXEC, 3)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}

/// Are these two descriptors of one description? No, where the kernel does not say.
pub(crate) fn are_one(one: RawFd, two: RawFd) -> bool {
    match fcntl(one, DUPFD_QUERY, libc::c_long::from(two)) {
        Ok(same) => same == 1,
        Err(Errno::EBADF) => false,
        Err(_) => {
            let own = std::process::id();
            // SAFETY: no memory is involved.
            let told = told(unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, two) });
            told == Ok(0)
        }
    }
}
