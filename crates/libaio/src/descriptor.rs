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
