//! The system calls that take raw memory, and the translation of our words into the kernel's flags.
//!
//! [`execute`] runs one [`Iteration`] by blocking system calls: the whole of the `sync` backend, and the reference for
//! every other one.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use baio_process::kernel::{self, Feature};

use crate::error::Errno;
use crate::memory::Window;
use crate::policy::{Caching, Durability, Patience, Space, Time};

/// Runs a call that changes something once and for all until it says what came of it: a signal is no answer, and a file
/// system that is busy (EAGAIN) is asked again for as long as a person would not notice.
pub(crate) fn until_it_says<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T, Errno> {
    const BUSY_MAX: u32 = 20;
    let mut busy = 0;
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) if busy < BUSY_MAX => {
                busy += 1;
                std::thread::sleep(std::time::Duration::from_millis(u64::from(busy)));
            }
            told => return Ok(told?),
        }
    }
}

/// The descriptor of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fd {
    None,
    Raw(RawFd),
    /// An index in the table of the backend that registered the file.
    Registered(u32),
}

/// One non-blocking try at what is left of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iteration {
    pub(crate) action: Action,
    pub(crate) fd: Fd,
    /// `RWF_*`.
    pub(crate) flags: i32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Read { window: Window, offset: i64 },
    Write { window: Window, offset: i64 },
    Sync { data_only: bool },
    SyncRange { offset: u64, len: u64 },
    Allocate { offset: u64, len: u64, mode: i32 },
    Truncate { len: u64 },
    Poll { events: u32 },
    Timer { at: Time },
    Accept,
    Connect { address: Window },
    Receive { window: Window, flags: u32 },
    Send { window: Window, flags: u32 },
}

/// Most bytes that one read or write moves (`MAX_RW_COUNT`, include/linux/fs.h).
pub(crate) const TRANSFER_MAX: usize = 0x7fff_f000;

/// What goes with a transfer through a description of this mode.
pub(crate) fn rw_flags(caching: Caching, durability: Durability, patience: Patience) -> i32 {
    let mut flags = match durability {
        Durability::None => 0,
        Durability::Data => libc::RWF_DSYNC,
        Durability::Full => libc::RWF_SYNC,
    };
    if caching == Caching::Uncached {
        flags |= libc::RWF_DONTCACHE;
    }
    if !patience.may_wait() {
        flags |= libc::RWF_NOWAIT;
    }
    flags
}

/// A flag that no kernel knows: it says `EOPNOTSUPP` to a read or write with it, as to `RWF_NOWAIT` where that is not known.
const UNKNOWN: i32 = 1 << 30;

/// The same flags for a pipe or socket, of which older kernels do not know that they shall not wait.
pub(crate) fn as_streams_know_it(flags: i32) -> i32 {
    let lacks = flags & libc::RWF_NOWAIT != 0 && kernel::is_taken_away(Feature::NowaitStreams);
    if lacks { flags | UNKNOWN } else { flags }
}

pub(crate) fn allocate_mode(space: Space) -> i32 {
    let mode = match space {
        Space::Reserve => 0,
        Space::Zero => libc::FALLOC_FL_ZERO_RANGE,
        Space::Discard => libc::FALLOC_FL_PUNCH_HOLE,
    };
    if space.keeps_size() {
        mode | libc::FALLOC_FL_KEEP_SIZE
    } else {
        mode
    }
}

/// What the kernel is told to fall back from: nothing. A raw result is a count, or a negated error number.
fn raw(result: libc::ssize_t) -> i32 {
    if result < 0 {
        -Errno::last().raw()
    } else {
        // No transfer exceeds TRANSFER_MAX.
        result as i32
    }
}

/// Runs one iteration in the calling thread, waiting as long as the kernel does.
///
/// # Safety
/// The memory of the iteration must be valid, and used by nobody else, until the call returns.
pub(crate) unsafe fn execute(iteration: &Iteration) -> i32 {
    let Fd::Raw(fd) = iteration.fd else {
        return -libc::EBADF;
    };
    match iteration.action {
        // SAFETY: the caller's promise.
        Action::Read { window, offset } => unsafe { read(fd, window, offset, iteration.flags) },
        // SAFETY: the caller's promise.
        Action::Write { window, offset } => unsafe { write(fd, window, offset, iteration.flags) },
        Action::Sync { data_only } => sync(fd, data_only),
        Action::SyncRange { offset, len } => sync_range(fd, offset, len),
        Action::Allocate { offset, len, mode } => allocate(fd, offset, len, mode),
        Action::Truncate { len } => truncate(fd, len),
        Action::Poll { events } => poll(fd, events),
        Action::Timer { .. } => -libc::EOPNOTSUPP,
        Action::Accept => accept(fd),
        // SAFETY: the caller's promise.
        Action::Connect { address } => unsafe { connect(fd, address) },
        // SAFETY: the caller's promise.
        Action::Receive { window, flags } => unsafe { receive(fd, window, flags) },
        // SAFETY: the caller's promise.
        Action::Send { window, flags } => unsafe { send(fd, window, flags) },
    }
}

/// Sockets made here are closed in programs that this process starts.
pub(crate) const ACCEPT_FLAGS: i32 = libc::SOCK_CLOEXEC;

fn accept(fd: RawFd) -> i32 {
    // SAFETY: the peer's address is not asked for, so no memory is involved.
    raw(unsafe { libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), ACCEPT_FLAGS) } as libc::ssize_t)
}

/// The socket that an accept returned, owned from here on, and above the standard streams.
pub(crate) fn adopt(raw: i32) -> rustix::io::Result<OwnedFd> {
    // SAFETY: the kernel has just made this descriptor for one accept request, whose raw result is read once.
    baio_process::descriptor::above_standard(unsafe { OwnedFd::from_raw_fd(raw) })
}

unsafe fn connect(fd: RawFd, address: Window) -> i32 {
    let (pointer, len) = flat(address);
    // SAFETY: the caller promises the bytes; the kernel copies them.
    raw(unsafe { libc::connect(fd, pointer.cast(), len as libc::socklen_t) } as libc::ssize_t)
}

unsafe fn receive(fd: RawFd, window: Window, flags: u32) -> i32 {
    // SAFETY: the caller promises the bytes, and the list where it is one; the message lives as long as the call.
    raw(unsafe {
        match window {
            Window::Flat { pointer, len } => libc::recv(fd, pointer.cast(), len.min(TRANSFER_MAX), flags as i32),
            Window::List { list, count } => {
                let mut message = Message::of(list, count);
                libc::recvmsg(fd, &raw mut message.0, flags as i32)
            }
        }
    })
}

unsafe fn send(fd: RawFd, window: Window, flags: u32) -> i32 {
    // SAFETY: as in `receive`.
    raw(unsafe {
        match window {
            Window::Flat { pointer, len } => libc::send(fd, pointer.cast(), len.min(TRANSFER_MAX), flags as i32),
            Window::List { list, count } => {
                let message = Message::of(list, count);
                libc::sendmsg(fd, &raw const message.0, flags as i32)
            }
        }
    })
}

/// What recvmsg(2) and sendmsg(2) take: a list, no address, nothing beside it. All parts are one datagram.
pub(crate) struct Message(pub(crate) libc::msghdr);

// SAFETY: its one pointer is that of a window's list, and goes where the window goes.
unsafe impl Send for Message {}

impl Message {
    pub(crate) fn of(list: *const libc::iovec, count: u32) -> Message {
        // SAFETY: zeros are an empty message: no pointer, no length.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = list.cast_mut();
        // `Memory::pieces` makes no list longer than `IOV_MAX`.
        message.msg_iovlen = count as _;
        Message(message)
    }
}

/// Does a read that shall not wait tell the end of a file from what the page cache has not? Before Linux 5.16 (`filemap_read`,
/// mm/filemap.c) it may say `EAGAIN` at the end, and on 5.9 and 5.10 0 elsewhere (preadv2(2), BUGS). A read that happens to be right proves
/// nothing, so a system call of 5.16 tells.
pub(crate) fn knows_the_end() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        kernel::tried(Feature::NowaitAtEnd, || {
            let nowhere = std::ptr::without_provenance::<u8>(1);
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: its list of one is at no address, so nothing is waited for, read or written.
            let told = unsafe { libc::syscall(libc::SYS_futex_waitv, nowhere, 1_u32, 0_u32, forever, 0_i32) };
            told < 0 && Errno::last() == Errno::EFAULT
        })
    })
}

/// Is it a terminal, whose write may wait however ready it is?
pub(crate) fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::isatty(fd.as_raw_fd()) == 1 }
}

/// Of a connect, whose address is no list.
pub(crate) fn flat(window: Window) -> (*mut u8, usize) {
    match window {
        Window::Flat { pointer, len } => (pointer, len),
        Window::List { .. } => (std::ptr::null_mut(), 0),
    }
}

/// Waits until a non-blocking descriptor is ready; the result is the ready events.
fn poll(fd: RawFd, events: u32) -> i32 {
    let mut one = libc::pollfd {
        fd,
        events: events as i16,
        revents: 0,
    };
    // SAFETY: the kernel writes the one `revents`.
    let result = unsafe { libc::poll(&raw mut one, 1, -1) };
    if result < 0 {
        raw(result as libc::ssize_t)
    } else {
        i32::from(one.revents)
    }
}

unsafe fn read(fd: RawFd, window: Window, offset: i64, flags: i32) -> i32 {
    let (list, count) = as_list(&window);
    // SAFETY: `list` points at the window itself or at the request's own list; both outlive the call, and the caller
    // promises the bytes.
    raw(unsafe { libc::preadv2(fd, list.as_ptr(&window), count, offset, flags) })
}

/// Runs a read now if it need not wait: `-EAGAIN` when it would.
///
/// # Safety
/// As for [`execute`].
pub(crate) unsafe fn try_read(iteration: &Iteration) -> i32 {
    match (iteration.fd, iteration.action) {
        // SAFETY: the caller's promise.
        (Fd::Raw(fd), Action::Read { window, offset }) => unsafe { read(fd, window, offset, libc::RWF_NOWAIT) },
        _ => -libc::EAGAIN,
    }
}

unsafe fn write(fd: RawFd, window: Window, offset: i64, flags: i32) -> i32 {
    let (list, count) = as_list(&window);
    // SAFETY: as in `read`.
    raw(unsafe { libc::pwritev2(fd, list.as_ptr(&window), count, offset, flags) })
}

/// One element on the stack, or the request's own list.
enum List {
    One(libc::iovec),
    Own,
}

impl List {
    fn as_ptr(&self, window: &Window) -> *const libc::iovec {
        match (self, window) {
            (List::One(one), _) => one,
            (List::Own, Window::List { list, .. }) => *list,
            (List::Own, Window::Flat { .. }) => std::ptr::null(),
        }
    }
}

fn as_list(window: &Window) -> (List, i32) {
    match window {
        Window::Flat { pointer, len } => {
            let one = libc::iovec {
                iov_base: pointer.cast(),
                iov_len: (*len).min(TRANSFER_MAX),
            };
            (List::One(one), 1)
        }
        Window::List { count, .. } => (List::Own, *count as i32),
    }
}

fn sync(fd: RawFd, data_only: bool) -> i32 {
    // SAFETY: no memory is involved.
    raw(unsafe {
        if data_only {
            libc::fdatasync(fd)
        } else {
            libc::fsync(fd)
        }
    } as libc::ssize_t)
}

pub(crate) fn truncate(fd: RawFd, len: u64) -> i32 {
    // SAFETY: no memory is involved.
    raw(unsafe { libc::ftruncate(fd, len as i64) } as libc::ssize_t)
}

fn sync_range(fd: RawFd, offset: u64, len: u64) -> i32 {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is involved.
    raw(unsafe { libc::sync_file_range(fd, offset as i64, len as i64, flags) } as libc::ssize_t)
}

fn allocate(fd: RawFd, offset: u64, len: u64, mode: i32) -> i32 {
    // SAFETY: no memory is involved.
    raw(unsafe { libc::fallocate(fd, mode, offset as i64, len as i64) } as libc::ssize_t)
}

/// Capacity of a block device in bytes (`BLKGETSIZE64`, include/uapi/linux/fs.h).
pub(crate) fn device_size(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272;
    let mut bytes = 0_u64;
    // SAFETY: the kernel writes one u64 through the pointer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) };
    if result < 0 { Err(Errno::last()) } else { Ok(bytes) }
}

/// Logical sector size of a block device in bytes (`BLKSSZGET`).
pub(crate) fn device_sector_size(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    const BLKSSZGET: libc::Ioctl = 0x1268;
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int through the pointer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKSSZGET, &raw mut bytes) };
    if result < 0 {
        return Err(Errno::last());
    }
    u32::try_from(bytes).map_err(|_| Errno::EINVAL)
}

/// Nanoseconds since 1970.
pub(crate) fn since_1970() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The monotonic clock in nanoseconds.
pub(crate) fn monotonic() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_and_a_busy_file_system_are_no_answers() {
        use rustix::io::Errno as System;
        let run = |mut answers: Vec<rustix::io::Result<u32>>| {
            answers.reverse();
            until_it_says(|| answers.pop().unwrap())
        };
        let (intr, busy) = (Err(System::INTR), Err(System::AGAIN));
        assert_eq!(
            run([vec![intr; 100], vec![busy; 3], vec![intr], vec![Ok(7)]].concat()),
            Ok(7)
        );
        assert_eq!(run(vec![intr, Err(System::NOSPC)]), Err(Errno::ENOSPC));
        // It does not stay busy for ever.
        assert_eq!(run(vec![busy; 100]), Err(Errno::EAGAIN));
    }
}
