//! Memory shared with a peer in another process: bytes are copied in and out through atomics, never borrowed.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};

use super::mapping::Mapping;
use crate::error::{Errno, SetupError};

/// Memory shared with a peer in another process: a sealed memfd.
pub struct Region {
    mapping: Mapping,
    fd: OwnedFd,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.mapping.len())
    }
}

/// Without these a peer could shrink the file and turn our next access into SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Region {
    /// Makes, sizes and seals a memfd of `len` bytes and maps it.
    ///
    /// # Errors
    /// What `memfd_create`, `ftruncate`, `fcntl(F_ADD_SEALS)` or `mmap` said.
    pub fn create(len: usize) -> Result<Arc<Region>, SetupError> {
        let make = || -> Result<Region, Errno> {
            let fd = rustix::fs::memfd_create("baio-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            rustix::fs::ftruncate(&fd, len as u64)?;
            rustix::fs::fcntl_add_seals(&fd, SEALS)?;
            let mapping = Mapping::shared(fd.as_fd(), len)?;
            Ok(Region { mapping, fd })
        };
        make()
            .map(Arc::new)
            .map_err(|errno| SetupError::new("make shared memory", format!("{len} bytes"), errno))
    }

    /// Maps a region that a peer made. The seals are checked, so the peer cannot take the memory away.
    ///
    /// # Errors
    /// `EPERM` for a file that is not sealed against shrinking; else what the system said.
    pub fn map(fd: OwnedFd) -> Result<Arc<Region>, SetupError> {
        let open = |fd: OwnedFd| -> Result<Region, Errno> {
            let seals = rustix::fs::fcntl_get_seals(&fd)?;
            if !seals.contains(SealFlags::SHRINK | SealFlags::SEAL) {
                return Err(Errno::EPERM);
            }
            let len = usize::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
            let mapping = Mapping::shared(fd.as_fd(), len)?;
            Ok(Region { mapping, fd })
        };
        open(fd).map(Arc::new).map_err(|errno| {
            SetupError::new("map shared memory", "a peer's descriptor".into(), errno)
                .need("a memfd sealed with F_SEAL_SHRINK and F_SEAL_SEAL")
        })
    }

    /// The descriptor to hand to a peer.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.mapping.len()
    }

    /// A view of `len` bytes at byte `at`; `None` when it would leave the region.
    #[must_use]
    pub fn span(self: &Arc<Region>, at: u64, len: u32) -> Option<Span> {
        let end = at.checked_add(u64::from(len))?;
        (end <= self.size() as u64).then(|| Span {
            region: Arc::clone(self),
            at,
            len,
        })
    }
}

/// A view of shared memory that a peer may change at any time: bytes are copied in and out, never borrowed.
#[derive(Clone, Debug)]
pub struct Span {
    region: Arc<Region>,
    at: u64,
    len: u32,
}

impl Span {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True for a view of nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to the beginning of the span; returns how many fitted.
    pub fn copy_in(&self, bytes: &[u8]) -> usize {
        self.copy_in_at(0, bytes)
    }

    /// Copies the beginning of the span into `bytes`; returns how many there were.
    pub fn copy_out(&self, bytes: &mut [u8]) -> usize {
        self.copy_out_at(0, bytes)
    }

    pub(super) fn copy_in_at(&self, skip: usize, bytes: &[u8]) -> usize {
        let cells = self.cells(skip, bytes.len());
        for (cell, byte) in cells.iter().zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
        cells.len()
    }

    pub(super) fn copy_out_at(&self, skip: usize, bytes: &mut [u8]) -> usize {
        let cells = self.cells(skip, bytes.len());
        for (cell, byte) in cells.iter().zip(bytes) {
            *byte = cell.load(Ordering::Relaxed);
        }
        cells.len()
    }

    fn cells(&self, skip: usize, len: usize) -> &[AtomicU8] {
        let skip = skip.min(self.len());
        let len = len.min(self.len() - skip);
        // SAFETY: the range lies in the mapping (checked when the span was made), and atomics are the one way to share
        // bytes with somebody who may write them meanwhile.
        unsafe {
            let first = self.region.mapping.at(self.at as usize + skip);
            std::slice::from_raw_parts(first.cast::<AtomicU8>(), len)
        }
    }

    pub(super) fn pointer(&self) -> *mut u8 {
        self.region.mapping.at(self.at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_sealed_and_copied() {
        let region = Region::create(8192).unwrap();
        assert!(rustix::fs::ftruncate(region.fd(), 0).is_err());
        let peer = Region::map(region.fd().try_clone_to_owned().unwrap()).unwrap();
        assert!(region.span(8000, 193).is_none());
        assert!(region.span(u64::MAX, 2).is_none());
        assert_eq!(region.span(100, 5).unwrap().copy_in(b"hello, world"), 5);
        let mut seen = [0; 5];
        assert_eq!(peer.span(100, 5).unwrap().copy_out(&mut seen), 5);
        assert_eq!(&seen, b"hello");
    }

    #[test]
    fn an_unsealed_file_is_no_region() {
        let fd = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        let error = Region::map(fd).unwrap_err();
        assert!(error.to_string().contains("F_SEAL_SHRINK"), "{error}");
    }
}
