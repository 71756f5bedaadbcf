//! Which file a number of the program's stands for: the kernel looks at the number when it is given a call, and by then the program may
//! have closed it.

#![allow(unsafe_code)]

use std::os::fd::RawFd;

/// Two numbers of one file have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    device: (u32, u32),
    inode: u64,
    kind: u32,
}

impl File {
    /// That of this number now; none if it stands for nothing. A signal handler may ask.
    #[must_use]
    pub fn of(fd: RawFd) -> Option<File> {
        // SAFETY: zeros are a `statx`, and the kernel fills it in.
        let mut stat: libc::statx = unsafe { std::mem::zeroed() };
        // Nothing that a file server would have to be asked for.
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        let wanted = libc::STATX_TYPE | libc::STATX_INO;
        // SAFETY: the kernel writes the one `statx`; the path is empty.
        let told = unsafe { libc::syscall(libc::SYS_statx, fd, c"".as_ptr(), flags, wanted, &raw mut stat) };
        if told != 0 {
            let closed = std::io::Error::last_os_error().raw_os_error() == Some(libc::EBADF);
            return if closed { None } else { File::by_fstat(fd) };
        }
        Some(File {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            kind: u32::from(stat.stx_mode) & libc::S_IFMT,
        })
    }

    /// The same where a policy forbids statx(2). It may ask a file server.
    fn by_fstat(fd: RawFd) -> Option<File> {
        // SAFETY: zeros are a `stat`, and the kernel fills it in.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: it writes the one `stat`. No thread is cancelled in it.
        let told = unsafe { libc::fstat(fd, &raw mut stat) };
        (told == 0).then(|| File {
            device: (libc::major(stat.st_dev), libc::minor(stat.st_dev)),
            inode: stat.st_ino,
            kind: stat.st_mode & libc::S_IFMT,
        })
    }

    /// `S_IFMT` of it.
    #[must_use]
    pub fn kind(self) -> u32 {
        self.kind
    }

    /// Is it a pipe, a socket, a terminal or the like? What goes in and out has an order in place of offsets, and a call may wait for ever.
    #[must_use]
    pub fn is_stream(self) -> bool {
        !matches!(self.kind, libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR)
    }
}

/// Does a write by this number go on until all is written? Not where it is open with `O_NONBLOCK`, or not at all.
#[must_use]
pub fn blocks(fd: RawFd) -> bool {
    // By `syscall`: a thread can be cancelled in some of libc's own functions.
    // SAFETY: it touches no memory.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::c_long::from(libc::O_NONBLOCK) == 0
}

#[cfg(test)]
#[path = "../../engine/tests/environment/filter.rs"]
mod filter;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::{File, filter};

    #[test]
    fn a_file_is_known_where_statx_is_forbidden() {
        let regular = tempfile::tempfile().unwrap();
        let (stream, _other) = UnixStream::pair().unwrap();
        let all = [regular.as_raw_fd(), stream.as_raw_fd(), -1];
        let known = all.map(File::of);
        assert!(known[0].is_some_and(|file| !file.is_stream()));
        assert!(known[1].is_some_and(File::is_stream));
        assert_eq!(known[2], None);
        for errno in [libc::ENOSYS, libc::EPERM] {
            // In a thread of its own: a filter stays.
            let filtered = move || {
                filter::forbid(&[libc::SYS_statx], errno);
                all.map(File::of)
            };
            assert_eq!(std::thread::spawn(filtered).join().unwrap(), known);
        }
    }
}
