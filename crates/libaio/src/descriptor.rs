//! What is asked of a descriptor by its number, which is the program's own.

#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

use baio_engine::Errno;
use baio_process::kernel::{self, Feature};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};

/// `F_DUPFD_QUERY`, include/uapi/linux/fcntl.h: Linux 6.10.
const DUPFD_QUERY: libc::c_int = 1027;
/// `KCMP_FILE`, include/uapi/linux/kcmp.h.
const KCMP_FILE: libc::c_int = 0;
/// `XFS_SUPER_MAGIC`, `f_type` of statfs(2).
const XFS: u64 = 0x5846_5342;

/// How this process calls itself: by the calling thread, whose memory and descriptors are meant. The first thread's number is the
/// process's, and stands for neither once that thread has ended.
pub(crate) fn own_id() -> libc::c_long {
    rustix::thread::gettid().as_raw_nonzero().get().into()
}

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

/// The block size of a file on XFS, if what is in it does not lie in memory (DAX); none of any other file. Its direct writes of whole blocks
/// move its end only when they have ended (`xfs_dio_write_end_io`, fs/xfs/xfs_file.c), and nobody waits for them.
pub(crate) fn block_of_xfs(fd: RawFd) -> Option<u64> {
    if fd < 0 {
        return None;
    }
    // SAFETY: no call here closes it, and one that is none, or another by now, is the kernel's to refuse.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let system = rustix::fs::fstatfs(file).ok()?;
    if system.f_type as u64 != XFS {
        return None;
    }
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let told = rustix::fs::statx(file, c"", flags, StatxFlags::empty()).ok()?;
    // Before Linux 5.8 nobody says it.
    let is_said = told.stx_attributes_mask.contains(StatxAttributes::DAX);
    let is_memory = told.stx_attributes.contains(StatxAttributes::DAX);
    (is_said && !is_memory).then_some(system.f_bsize as u64)
}

/// Are these two descriptors of one description? None, where the kernel does not say.
pub(crate) fn are_one(one: RawFd, two: RawFd) -> Option<bool> {
    let mut answer = Err(Errno::ENOSYS);
    kernel::tried(Feature::SameFile, || {
        answer = fcntl(one, DUPFD_QUERY, libc::c_long::from(two));
        // What an older kernel says of every command that it does not know.
        answer != Err(Errno::EINVAL)
    });
    match answer {
        Ok(same) => return Some(same == 1),
        Err(Errno::EBADF) => return Some(false),
        // An older kernel, or a policy.
        Err(_) => {}
    }
    let own = own_id();
    // SAFETY: no memory is involved.
    let order = told(unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one, two) });
    order.ok().map(|order| order == 0)
}

/// The number that the kernel gives each event fd (`eventfd-id` in proc_pid_fdinfo(5), Linux 5.2); another has it only when all descriptors of
/// this one are closed. None for other files, and where there is no /proc.
pub(crate) fn event_fd_id(fd: RawFd) -> Option<u32> {
    // Not /proc/self: a thread may have descriptors of its own.
    let path = format!("/proc/thread-self/fdinfo/{fd}");
    let file = baio_process::descriptor::open(path, OFlags::RDONLY, Mode::empty()).ok()?;
    let mut text = [0; 512];
    let len = rustix::io::read(&file, &mut text).ok()?;
    let text = std::str::from_utf8(&text[..len]).ok()?;
    let id = text.lines().find_map(|line| line.strip_prefix("eventfd-id:"))?;
    id.trim().parse().ok()
}
