//! The least of an io_uring: memory is registered, and one read at a time goes into it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Map, PAGE, check, descriptor};

const SETUP: libc::c_long = libc::SYS_io_uring_setup;
const ENTER: libc::c_long = libc::SYS_io_uring_enter;
const REGISTER: libc::c_long = libc::SYS_io_uring_register;
const REGISTER_BUFFERS: u32 = 0;
const ENTER_GETEVENTS: u32 = 1;
const READ_FIXED: u8 = 4;
const OFF_SQES: libc::off_t = 0x1000_0000;

#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    /// Of the submission ring: flags, dropped, array. Of the completion ring: overflow, cqes, flags.
    rest: [u32; 3],
    resv: u32,
    user_addr: u64,
}

#[repr(C)]
#[derive(Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    resv: [u32; 3],
    sq_off: Offsets,
    cq_off: Offsets,
}

#[repr(C)]
#[derive(Default)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    rw_flags: u32,
    user_data: u64,
    buf_index: u16,
    personality: u16,
    splice_fd_in: i32,
    addr3: [u64; 2],
}

const _: () = assert!(size_of::<Submission>() == 64 && size_of::<Params>() == 120);

/// A ring of one entry.
pub struct Fixed {
    fd: OwnedFd,
    ring: Map,
    entries: Map,
    params: Params,
}

impl Fixed {
    pub fn new() -> io::Result<Fixed> {
        let mut params = Params::default();
        // SAFETY: a structure of the kernel's layout.
        let fd = descriptor(unsafe { libc::syscall(SETUP, 1, &raw mut params) } as libc::c_int)?;
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
        );
        // Both rings lie in one page, since one entry is all there is.
        let ring = Map::of(fd.as_raw_fd(), 1, protection, flags)?;
        // SAFETY: a new mapping of the entries, which the kernel has at this offset.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, fd.as_raw_fd(), OFF_SQES) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = std::ptr::NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        let entries = Map { base, pages: 1 };
        Ok(Fixed {
            fd,
            ring,
            entries,
            params,
        })
    }

    /// Registers pages of a mapping: the kernel pins what lies there now.
    pub fn register(&self, map: &Map, page: usize, pages: usize) -> io::Result<()> {
        let range = libc::iovec {
            iov_base: map.void(page),
            iov_len: pages * PAGE,
        };
        // SAFETY: one range, which is mapped.
        let answer = unsafe { libc::syscall(REGISTER, self.fd.as_raw_fd(), REGISTER_BUFFERS, &raw const range, 1) };
        check(answer as libc::c_int).map(drop)
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        // SAFETY: the kernel says that a word of the ring lies there.
        unsafe { AtomicU32::from_ptr(self.ring.at(0).wrapping_add(at as usize).cast()) }
    }

    /// Reads the first page of a file to a page of the registered memory.
    pub fn read(&self, file: libc::c_int, map: &Map, page: usize) -> io::Result<i32> {
        let entry = Submission {
            opcode: READ_FIXED,
            fd: file,
            addr: map.at(page) as u64,
            len: PAGE as u32,
            ..Submission::default()
        };
        // SAFETY: the only entry, which the kernel does not look at before the tail has moved.
        unsafe { self.entries.at(0).cast::<Submission>().write(entry) };
        let (sq, cq) = (&self.params.sq_off, &self.params.cq_off);
        self.word(sq.rest[2]).store(0, Ordering::Relaxed);
        self.word(sq.tail).fetch_add(1, Ordering::Release);
        // SAFETY: no memory of ours but what is mapped.
        let entered = unsafe { libc::syscall(ENTER, self.fd.as_raw_fd(), 1, 1, ENTER_GETEVENTS, 0, 0) };
        check(entered as libc::c_int)?;
        let head = self.word(cq.head).load(Ordering::Relaxed);
        let at = cq.rest[1] + (head & self.word(cq.ring_mask).load(Ordering::Relaxed)) * 16;
        let result = self.word(at + 8).load(Ordering::Acquire) as i32;
        self.word(cq.head).store(head + 1, Ordering::Release);
        if result < 0 {
            Err(io::Error::from_raw_os_error(-result))
        } else {
            Ok(result)
        }
    }
}
