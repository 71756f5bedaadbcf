//! A range of mapped memory.
//!
//! It gives addresses, not references: the owner of the mapping decides who may read or write which part of it.

#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::Advice;
#[cfg(not(miri))]
use rustix::mm::{MapFlags, ProtFlags};

use baio_words::Errno;

/// A `mmap`ed range that is unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range; every access to its bytes goes through the types that own one, which decide who may
// read or write which part of it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only yields the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeros from Miri's allocator, which finds wrong uses of them: it knows no `mmap` of this kind.
    ///
    /// # Errors
    /// `EINVAL` for no bytes.
    #[cfg(miri)]
    pub fn anonymous(len: usize) -> Result<Mapping, Errno> {
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the length is not zero.
        let base = unsafe { std::alloc::alloc_zeroed(Mapping::layout(len)?) };
        Mapping::checked(base, len)
    }

    #[cfg(miri)]
    fn layout(len: usize) -> Result<std::alloc::Layout, Errno> {
        std::alloc::Layout::from_size_align(len, 4096).map_err(|_| Errno::ENOMEM)
    }

    /// Zeros of this process alone, which take memory as they are touched.
    ///
    /// # Errors
    /// What `mmap` said: `EINVAL` for no bytes.
    #[cfg(not(miri))]
    pub fn anonymous(len: usize) -> Result<Mapping, Errno> {
        // SAFETY: a fresh private anonymous mapping aliases nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Mapping::checked(base.cast(), len)
    }

    /// Under Miri no other process has it.
    #[cfg(miri)]
    pub(crate) fn shared(_fd: BorrowedFd<'_>, len: usize) -> Result<Mapping, Errno> {
        Mapping::anonymous(len)
    }

    #[cfg(not(miri))]
    pub(crate) fn shared(fd: BorrowedFd<'_>, len: usize) -> Result<Mapping, Errno> {
        // SAFETY: the mapping is new; its bytes are only ever touched through atomics (see `Region`), so a peer that
        // writes at the same time cannot break a Rust reference. The seals keep the file from shrinking under it.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        Mapping::checked(base.cast(), len)
    }

    fn checked(base: *mut u8, len: usize) -> Result<Mapping, Errno> {
        NonNull::new(base)
            .map(|base| Mapping { base, len })
            .ok_or(Errno::ENOMEM)
    }

    /// Asks for huge pages, where they are to be had: a wish, which changes nothing but speed and what a first touch takes.
    pub fn wish_huge(&self) {
        // SAFETY: the range is this mapping's own, and its bytes stay what they are.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Length in bytes, never zero.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of byte `at`, which must not lie behind the end.
    #[must_use]
    pub fn at(&self, at: usize) -> *mut u8 {
        debug_assert!(at <= self.len);
        self.base.as_ptr().wrapping_add(at)
    }
}

impl Drop for Mapping {
    #[cfg(miri)]
    fn drop(&mut self) {
        if let Ok(layout) = Mapping::layout(self.len) {
            // SAFETY: the range was allocated with this layout.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }

    #[cfg(not(miri))]
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us and every user of it held the owner of this mapping alive.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
