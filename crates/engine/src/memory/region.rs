//! Memory shared with a peer in another process: bytes are copied in and out through atomics, never borrowed.

#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(any(test, not(miri)))]
use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;

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

/// What statfs(2) says of a memfd without huge pages.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

impl Region {
    /// Makes, sizes and seals a memfd of `len` bytes and maps it.
    ///
    /// # Errors
    /// What `memfd_create`, `ftruncate`, `fcntl(F_ADD_SEALS)` or `mmap` said.
    pub fn create(len: usize) -> Result<Arc<Region>, SetupError> {
        let make = || -> Result<Region, Errno> {
            let fd = sealed_memfd(len)?;
            let mapping = Mapping::shared(fd.as_fd(), len)?;
            Ok(Region { mapping, fd })
        };
        make()
            .map(Arc::new)
            .map_err(|errno| SetupError::new("make shared memory", format!("{len} bytes"), errno))
    }

    /// Maps a region that a peer made. The seals are checked, and that it has ordinary pages, so the peer cannot take the
    /// memory away.
    ///
    /// # Errors
    /// `EPERM` for a file that is not sealed against shrinking, or that lies elsewhere than in ordinary shared memory: a hole
    /// punched into one of huge pages can be filled again only while there are some, else our access ends with SIGBUS. Else what
    /// the system said.
    pub fn map(fd: OwnedFd) -> Result<Arc<Region>, SetupError> {
        let open = |fd: OwnedFd| -> Result<Region, Errno> {
            let seals = rustix::fs::fcntl_get_seals(&fd)?;
            let is_ordinary = rustix::fs::fstatfs(&fd)?.f_type == TMPFS_MAGIC;
            if !is_ordinary || !seals.contains(SealFlags::SHRINK | SealFlags::SEAL) {
                return Err(Errno::EPERM);
            }
            let len = usize::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
            let mapping = Mapping::shared(fd.as_fd(), len)?;
            Ok(Region { mapping, fd })
        };
        open(fd).map(Arc::new).map_err(|errno| {
            SetupError::new("map shared memory", "a peer's descriptor".into(), errno)
                .need("a memfd of ordinary pages, sealed with F_SEAL_SHRINK and F_SEAL_SEAL")
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

#[cfg(not(miri))]
fn sealed_memfd(len: usize) -> Result<OwnedFd, Errno> {
    let fd = rustix::fs::memfd_create("baio-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// Miri has none: its mappings are of no file (`mapping.rs`).
#[cfg(miri)]
fn sealed_memfd(_len: usize) -> Result<OwnedFd, Errno> {
    let nothing = std::fs::File::open("/dev/null").map_err(|error| Errno::of(&error))?;
    Ok(nothing.into())
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
        let part = self.part(skip, bytes.len());
        let (head, rest) = bytes[..part.len].split_at(part.head());
        let body = rest.chunks_exact(CELL);
        let tail = body.remainder();
        let (first, cells) = self.cells(part).split_at(usize::from(!head.is_empty()));
        let (whole, last) = cells.split_at(body.len());
        if let [cell] = first {
            store_some(cell, part.into, head);
        }
        for (cell, bytes) in whole.iter().zip(body) {
            let mut word = [0; CELL];
            word.copy_from_slice(bytes);
            cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        if let [cell] = last {
            store_some(cell, 0, tail);
        }
        part.len
    }

    pub(super) fn copy_out_at(&self, skip: usize, bytes: &mut [u8]) -> usize {
        let part = self.part(skip, bytes.len());
        let (head, rest) = bytes[..part.len].split_at_mut(part.head());
        let (body, tail) = rest.split_at_mut(rest.len() / CELL * CELL);
        let (first, cells) = self.cells(part).split_at(usize::from(!head.is_empty()));
        let (whole, last) = cells.split_at(body.len() / CELL);
        if let [cell] = first {
            head.copy_from_slice(&load(cell)[part.into..][..head.len()]);
        }
        for (cell, bytes) in whole.iter().zip(body.chunks_exact_mut(CELL)) {
            bytes.copy_from_slice(&load(cell));
        }
        if let [cell] = last {
            tail.copy_from_slice(&load(cell)[..tail.len()]);
        }
        part.len
    }

    /// At most `len` bytes from byte `skip` of the span on.
    fn part(&self, skip: usize, len: usize) -> Part {
        let skip = skip.min(self.len());
        let at = self.at as usize + skip;
        Part {
            first: at - at % CELL,
            into: at % CELL,
            len: len.min(self.len() - skip),
        }
    }

    /// The cells that hold these bytes. At its ends a part shares cells with its neighbours.
    fn cells(&self, part: Part) -> &[AtomicU64] {
        let count = match part.len {
            0 => 0,
            len => (part.into + len).div_ceil(CELL),
        };
        // SAFETY: the bytes lie in the mapping (checked when the span was made), and so do their cells: it begins at a page
        // and what is mapped ends at one, so no cell crosses either end, and each is aligned. Atomics of one size are the
        // one way to share them with somebody who may write them meanwhile.
        unsafe {
            let first = self.region.mapping.at(part.first);
            std::slice::from_raw_parts(first.cast::<AtomicU64>(), count)
        }
    }

    pub(super) fn pointer(&self) -> *mut u8 {
        self.region.mapping.at(self.at as usize)
    }
}

/// Bytes that are moved at once. All of a region is touched in aligned cells of this size, also where a span ends within
/// one: atomics of several sizes on the same bytes would be a data race.
const CELL: usize = size_of::<u64>();

/// Bytes of a region as cells hold them.
#[derive(Clone, Copy)]
struct Part {
    /// Where the first cell begins.
    first: usize,
    /// Bytes of the first cell before the part.
    into: usize,
    len: usize,
}

impl Part {
    /// Bytes before the first cell that is the part's own from its beginning.
    fn head(self) -> usize {
        match self.into {
            0 => 0,
            into => self.len.min(CELL - into),
        }
    }
}

fn load(cell: &AtomicU64) -> [u8; CELL] {
    cell.load(Ordering::Relaxed).to_ne_bytes()
}

/// Stores some bytes of a cell. Its others may be written by somebody else meanwhile, and stay whatever they become.
fn store_some(cell: &AtomicU64, into: usize, bytes: &[u8]) {
    let (mut word, mut mask) = ([0; CELL], [0; CELL]);
    word[into..][..bytes.len()].copy_from_slice(bytes);
    mask[into..][..bytes.len()].fill(u8::MAX);
    cell.fetch_and(!u64::from_ne_bytes(mask), Ordering::Relaxed);
    cell.fetch_or(u64::from_ne_bytes(word), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "it has no memfd")]
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
    #[cfg_attr(miri, ignore = "it has no memfd")]
    fn an_unsealed_file_is_no_region() {
        let fd = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        let error = Region::map(fd).unwrap_err();
        assert!(error.to_string().contains("F_SEAL_SHRINK"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no memfd")]
    fn a_memfd_of_huge_pages_is_no_region() {
        let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let Ok(fd) = rustix::fs::memfd_create("huge", flags) else {
            return; // A kernel without them.
        };
        rustix::fs::ftruncate(&fd, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&fd, SEALS).unwrap();
        let error = Region::map(fd).unwrap_err();
        assert_eq!(error.errno, Errno::EPERM, "{error}");
        assert!(error.to_string().contains("ordinary pages"), "{error}");
    }

    /// Spans that begin and end anywhere within cells, against plain bytes.
    #[test]
    fn a_copy_touches_its_own_bytes_only() {
        let region = Region::create(4096).unwrap();
        let whole = region.span(0, 4096).unwrap();
        let mut model = [0; 4096];
        let mut fill = 0_u8;
        let span_of_ends = if cfg!(miri) { 9 } else { 40 };
        for end in [64, 4096] {
            for at in end - span_of_ends..=end {
                for len in 0..=end - at {
                    for skip in [0, 1, 8, 9].into_iter().filter(|skip| *skip <= len) {
                        fill = fill.wrapping_add(1);
                        let bytes: [u8; 64] = std::array::from_fn(|nth| fill.wrapping_add(nth as u8));
                        let span = region.span(at as u64, len as u32).unwrap();
                        // More than there is room for.
                        assert_eq!(span.copy_in_at(skip, &bytes), len - skip);
                        model[at + skip..at + len].copy_from_slice(&bytes[..len - skip]);
                        let mut seen = [0; 4096];
                        assert_eq!(whole.copy_out(&mut seen), 4096);
                        assert!(seen == model, "{len} bytes at {at} from {skip}");
                        let mut seen = [0; 64];
                        let got = span.copy_out_at(skip, &mut seen);
                        assert_eq!(seen[..got], model[at + skip..at + len], "{len} at {at} from {skip}");
                        assert!(seen[got..].iter().all(|byte| *byte == 0));
                    }
                }
            }
        }
    }
}
