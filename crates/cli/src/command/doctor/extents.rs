//! Space of a file that was preallocated and never written, as `FS_IOC_FIEMAP` tells it (fiemap.rst of the kernel).
//!
//! Durable writes pay for it: the first write to an unwritten extent must also commit that it is written now, which on ext4
//! halves the rate of small ones.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: libc::c_ulong = 0xc020_660b;

/// `FIEMAP_EXTENT_LAST` and `FIEMAP_EXTENT_UNWRITTEN`.
const LAST: u32 = 0x1;
const UNWRITTEN: u32 = 0x800;

/// Extents of one call, and calls at most: a file in more pieces than that is looked at in part.
const AT_A_TIME: usize = 256;
const CALLS_MAX: usize = 64;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved_wide: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap`, with room for its answers.
#[repr(C)]
struct Question {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; AT_A_TIME],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Question>() == 32 + 56 * AT_A_TIME);

/// How many bytes of a regular file are so, at least; `None` where the file system does not tell.
///
/// The flag that would write the file's dirty pages first (`FIEMAP_FLAG_SYNC`) is not set: nothing is changed.
pub(super) fn unwritten(fd: BorrowedFd<'_>) -> Option<u64> {
    let mut bytes = 0_u64;
    let mut start = 0;
    for _ in 0..CALLS_MAX {
        let mut question = Box::new(Question {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            room: AT_A_TIME as u32,
            reserved: 0,
            extents: [Extent::default(); AT_A_TIME],
        });
        // SAFETY: the request's one argument is this structure, laid out as the kernel's, with room for as many extents as
        // it says; it outlives the call.
        if unsafe { libc::ioctl(fd.as_raw_fd(), FIEMAP, &raw mut *question) } != 0 {
            return None;
        }
        let answers = &question.extents[..(question.mapped as usize).min(AT_A_TIME)];
        let Some(last) = answers.last() else {
            return Some(bytes);
        };
        let unwritten = answers.iter().filter(|extent| extent.flags & UNWRITTEN != 0);
        bytes = unwritten.fold(bytes, |sum, extent| sum.saturating_add(extent.length));
        let next = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || next <= start {
            return Some(bytes);
        }
        start = next;
    }
    Some(bytes)
}
