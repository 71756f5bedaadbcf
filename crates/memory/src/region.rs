//! Memory shared with a peer in another process: bytes are copied in and out through atomics, never borrowed.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(not(miri))]
use baio_process::kernel::{self, Feature};
#[cfg(not(miri))]
use baio_process::memory_limit;
#[cfg(any(test, not(miri)))]
use baio_process::signals;
use rustix::fs::MemfdFlags;
use rustix::fs::{FallocateFlags, SealFlags};

use baio_words::Errno;

use crate::cells::{CELL, load, load_all, store_all};
use crate::error::RegionError;
use crate::mapping::Mapping;

/// Memory shared with a peer in another process: a sealed memfd.
///
/// Its beginning may be set apart for words of 32 bits ([`Region::word`]); all behind is touched in cells of 64 bits
/// ([`Region::cells`], [`Span`]). No byte is both: atomics of several sizes on the same bytes would be a data race.
///
/// Its pages live as long as anybody has the file. Whoever made it can give them back nevertheless ([`Region::give_pages_back`]).
///
/// A peer can give some back at any time (fallocate(2)): zeros are there then. But where the system counts memory strictly
/// ([`counts_strictly`](baio_process::memory_limit::counts_strictly)) and has promised all of it, there is no page for the next touch, which ends
/// the process with SIGBUS. No seal forbids that to a peer who may write.
pub struct Region {
    mapping: Mapping,
    /// Bytes at the beginning that hold words of 32 bits.
    words: usize,
    fd: OwnedFd,
    /// Its pages go at its end.
    gives_back: AtomicBool,
    /// Dropped behind the pages.
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.gives_back.load(Ordering::Relaxed) {
            // Best effort: a file that nobody else has goes as a whole.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.fd, flags, 0, self.size() as u64);
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.mapping.len())
    }
}

/// Without these a peer could shrink the file and turn our next access into SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Of memory in a file nothing else is `ENOSPC`.
const UNPROMISED: &str =
    "memory that is promised to nobody, as `vm.overcommit_memory` is 2 (raise `vm.overcommit_ratio`, or add swap)";

/// What statfs(2) says of a memfd without huge pages.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

impl Region {
    /// Makes, sizes and seals a memfd of `len` bytes and maps it. It takes memory as it is touched; where the system counts memory strictly,
    /// all at once.
    ///
    /// # Errors
    /// What `memfd_create`, `ftruncate`, `fallocate`, `fcntl(F_ADD_SEALS)` or `mmap` said: `ENOSPC` where memory is counted strictly, and all
    /// is promised.
    pub fn create(len: usize) -> Result<Arc<Region>, RegionError> {
        Region::create_with_words(0, len)
    }

    /// The same, with the first `words` bytes (rounded up to a multiple of 8) for words of 32 bits.
    ///
    /// # Errors
    /// As [`Region::create`]; `EINVAL` for more words than there are bytes.
    pub fn create_with_words(words: usize, len: usize) -> Result<Arc<Region>, RegionError> {
        let make = || -> Result<Region, Errno> {
            let fd = sealed_memfd(len)?;
            let mapping = Mapping::shared(fd.as_fd(), len)?;
            Region::of(mapping, words, fd)
        };
        make().map(Arc::new).map_err(|errno| RegionError {
            operation: "make shared memory",
            object: format!("{len} bytes"),
            errno,
            need: (errno == Errno::ENOSPC).then(|| UNPROMISED.to_owned()),
        })
    }

    /// Maps a region that a peer made. The seals are checked, and that it has ordinary pages, so the peer cannot take the
    /// memory away.
    ///
    /// # Errors
    /// `EPERM` for a file that is not sealed against shrinking, or that lies elsewhere than in ordinary shared memory: a hole
    /// punched into one of huge pages can be filled again only while there are some, else our access ends with SIGBUS. Else what
    /// the system said.
    pub fn map(fd: OwnedFd) -> Result<Arc<Region>, RegionError> {
        Region::map_with_words(fd, 0)
    }

    /// The same, with the first `words` bytes (rounded up to a multiple of 8) for words of 32 bits.
    ///
    /// # Errors
    /// As [`Region::map`]; `EINVAL` for more words than there are bytes.
    pub fn map_with_words(fd: OwnedFd, words: usize) -> Result<Arc<Region>, RegionError> {
        let open = |fd: OwnedFd| -> Result<Region, Errno> {
            let seals = rustix::fs::fcntl_get_seals(&fd)?;
            let is_ordinary = rustix::fs::fstatfs(&fd)?.f_type == TMPFS_MAGIC;
            if !is_ordinary || !seals.contains(SealFlags::SHRINK | SealFlags::SEAL) {
                return Err(Errno::EPERM);
            }
            let len = usize::try_from(rustix::fs::fstat(&fd)?.st_size).unwrap_or(0);
            let mapping = Mapping::shared(fd.as_fd(), len)?;
            Region::of(mapping, words, fd)
        };
        open(fd).map(Arc::new).map_err(|errno| RegionError {
            operation: "map shared memory",
            object: "a peer's descriptor".into(),
            errno,
            need: Some("a memfd of ordinary pages, sealed with F_SEAL_SHRINK and F_SEAL_SEAL".into()),
        })
    }

    fn of(mapping: Mapping, words: usize, fd: OwnedFd) -> Result<Region, Errno> {
        let words = words
            .checked_next_multiple_of(CELL)
            .filter(|words| *words <= mapping.len())
            .ok_or(Errno::EINVAL)?;
        Ok(Region {
            mapping,
            words,
            fd,
            gives_back: AtomicBool::new(false),
            kept: OnceLock::new(),
        })
    }

    /// When nobody here uses it any more, a hole is punched into all of it: it costs nothing then, though a peer may have the file still.
    /// What the peer touches later is zeros, and the peer's own memory. Only for who knows that the peer wants nothing of it any more.
    pub fn give_pages_back(&self) {
        self.gives_back.store(true, Ordering::Relaxed);
    }

    /// Keeps something for as long as the memory is there, and drops it when the pages were given back: what they are counted by. Once.
    pub fn keep(&self, what: impl Any + Send + Sync) {
        let _ = self.kept.set(Box::new(what));
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

    /// A view of `len` bytes at byte `at`; `None` when it would leave the region, or lie among its words.
    #[must_use]
    pub fn span(self: &Arc<Region>, at: u64, len: u32) -> Option<Span> {
        self.holds_cells(at, u64::from(len)).then(|| Span {
            region: Arc::clone(self),
            at,
            len,
        })
    }

    /// The word of 32 bits at byte `at`; `None` unless all of it lies in the part for words, at a multiple of 4. A peer may change
    /// it at any time.
    #[must_use]
    pub fn word(&self, at: u64) -> Option<&AtomicU32> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(size_of::<AtomicU32>())?;
        if at % align_of::<AtomicU32>() != 0 || end > self.words {
            return None;
        }
        // SAFETY: the bytes lie in the mapping, which begins at a page, so they are aligned; they live as long as it, which `self`
        // owns. Zeros or whatever a peer left are a word. Only this function gives references to the part for words, so
        // nobody in this process uses another size on them.
        Some(unsafe { &*self.mapping.at(at).cast::<AtomicU32>() })
    }

    /// `count` entries of so many words of 64 bits from byte `at` on; `None` when they would leave the region or lie among its
    /// words of 32 bits, or `at` is no multiple of 8. A peer may change them at any time.
    #[must_use]
    pub fn cells<const WORDS: usize>(&self, at: u64, count: u32) -> Option<&[[AtomicU64; WORDS]]> {
        let len = (size_of::<[AtomicU64; WORDS]>() as u64).checked_mul(u64::from(count))?;
        if at % CELL as u64 != 0 || !self.holds_cells(at, len) {
            return None;
        }
        // SAFETY: as for `word`; here and through spans all is touched as aligned cells of this one size.
        Some(unsafe { std::slice::from_raw_parts(self.mapping.at(at as usize).cast(), count as usize) })
    }

    /// Do these bytes lie in the part that is touched as cells of 64 bits?
    fn holds_cells(&self, at: u64, len: u64) -> bool {
        let end = at.checked_add(len);
        at >= self.words as u64 && end.is_some_and(|end| end <= self.size() as u64)
    }
}

#[cfg(not(miri))]
fn sealed_memfd(len: usize) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Nobody executes it. With `vm.memfd_noexec` at 2 the first kernels that have it make no memfd for who does not say so, and
    // later ones none that could be executed. Linux before 6.3 knows neither flag nor setting.
    let memory = |flags| baio_process::descriptor::memory("baio-region", flags);
    let mut sealed = None;
    kernel::tried(Feature::NoexecSeal, || {
        let made = memory(flags | MemfdFlags::NOEXEC_SEAL);
        // Whatever else a system refuses it for, it knows the flag.
        let is_known = !matches!(made, Err(rustix::io::Errno::INVAL));
        sealed = made.ok();
        is_known
    });
    let fd = match sealed {
        Some(made) => made,
        // What is wrong is told here, if it was not the flag.
        None => memory(flags)?,
    };
    // A limit of file sizes holds for it too.
    signals::outlasting_limits(|| rustix::fs::ftruncate(&fd, len as u64))?;
    if memory_limit::counts_strictly() {
        take_pages(&fd, len)?;
    }
    rustix::fs::fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// Where the system counts memory strictly it may have no page for a first touch, and ends by SIGBUS who touches (`shmem_acct_blocks`,
/// mm/shmem.c). So all are taken while that can still be refused.
#[cfg(not(miri))]
fn take_pages(fd: &OwnedFd, len: usize) -> Result<(), Errno> {
    // A signal undoes one step, and not all: who gets one every few milliseconds comes to an end too.
    const STEP: usize = 4 << 20;
    for at in (0..len).step_by(STEP) {
        let part = len.saturating_sub(at).min(STEP);
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), at as u64, part as u64))?;
    }
    Ok(())
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

    /// Shows `len` bytes from now on, or as many as it has: for a transfer that ends earlier.
    pub fn cut(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Copies `bytes` to the beginning of the span; returns how many fitted.
    pub fn copy_in(&self, bytes: &[u8]) -> usize {
        self.copy_in_at(0, bytes)
    }

    /// Copies the beginning of the span into `bytes`; returns how many there were.
    pub fn copy_out(&self, bytes: &mut [u8]) -> usize {
        self.copy_out_at(0, bytes)
    }

    /// Copies `bytes` behind the first `skip` bytes of the span; returns how many fitted.
    pub fn copy_in_at(&self, skip: usize, bytes: &[u8]) -> usize {
        let part = self.part(skip, bytes.len());
        let (head, rest) = bytes[..part.len].split_at(part.head());
        let (body, tail) = rest.split_at(rest.len() / CELL * CELL);
        let (first, cells) = self.cells(part).split_at(usize::from(!head.is_empty()));
        let (whole, last) = cells.split_at(body.len() / CELL);
        if let [cell] = first {
            store_some(cell, part.into, head);
        }
        store_all(whole, body);
        if let [cell] = last {
            store_some(cell, 0, tail);
        }
        part.len
    }

    /// Copies what is behind the first `skip` bytes of the span into `bytes`; returns how many there were.
    pub fn copy_out_at(&self, skip: usize, bytes: &mut [u8]) -> usize {
        let part = self.part(skip, bytes.len());
        let (head, rest) = bytes[..part.len].split_at_mut(part.head());
        let (body, tail) = rest.split_at_mut(rest.len() / CELL * CELL);
        let (first, cells) = self.cells(part).split_at(usize::from(!head.is_empty()));
        let (whole, last) = cells.split_at(body.len() / CELL);
        if let [cell] = first {
            head.copy_from_slice(&load(cell)[part.into..][..head.len()]);
        }
        load_all(whole, body);
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

    /// Its raw address, for a system call: the bytes behind it may change at any time, so they are never borrowed. Good as long
    /// as a copy of the span exists.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.region.mapping.at(self.at as usize)
    }
}

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

    /// The promise that a peer costs its maker nothing when the maker is done with it, whatever the peer keeps.
    #[test]
    #[cfg_attr(miri, ignore = "it has no memfd")]
    fn its_pages_go_with_it_though_a_peer_keeps_the_file() {
        let region = Region::create_with_words(64, 1 << 20).unwrap();
        region.span(64, 4096).unwrap().copy_in(&[7; 4096]);
        region.span(512 << 10, 8192).unwrap().copy_in(&[7; 8192]);
        let counted = Arc::new(());
        region.keep(Arc::clone(&counted));
        let file = region.fd().try_clone_to_owned().unwrap();
        let peer = Region::map(file.try_clone().unwrap()).unwrap();
        let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks;
        assert!(blocks() >= 3 * 8);
        let late = region.span(0x1000, 8).unwrap();
        region.give_pages_back();
        drop(region);
        assert!(
            blocks() >= 3 * 8 && Arc::strong_count(&counted) == 2,
            "somebody uses it still"
        );
        drop(late);
        assert_eq!((blocks(), Arc::strong_count(&counted)), (0, 1));
        // What the peer touches is there, and is zero.
        let mut seen = [1; 8];
        assert_eq!(peer.span(512 << 10, 8).unwrap().copy_out(&mut seen), 8);
        assert_eq!(seen, [0; 8]);
        // Who is not told to gives nothing back: the peer has what it had.
        let region = Region::create(8192).unwrap();
        region.span(0, 8).unwrap().copy_in(&[7; 8]);
        let peer = Region::map(region.fd().try_clone_to_owned().unwrap()).unwrap();
        drop(region);
        peer.span(0, 8).unwrap().copy_out(&mut seen);
        assert_eq!(seen, [7; 8]);
    }

    #[test]
    #[cfg(not(miri))]
    fn its_pages_are_there_from_the_start_where_memory_is_counted_strictly() {
        // More than one step, and a part of one.
        let region = Region::create(9 << 20).unwrap();
        let blocks = || rustix::fs::fstat(&region.fd).unwrap().st_blocks;
        let all = (9 << 20) / 512;
        match memory_limit::counts_strictly() {
            true => assert!(blocks() >= all),
            false => assert_eq!(blocks(), 0),
        }
        // That takes them, behind the seals too.
        take_pages(&region.fd, region.size()).unwrap();
        assert!(blocks() >= all);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no memfd")]
    fn nobody_executes_a_region() {
        use std::os::unix::fs::PermissionsExt;
        if rustix::fs::memfd_create("asked", MemfdFlags::NOEXEC_SEAL).is_err() {
            return; // Linux before 6.3.
        }
        let region = Region::create(4096).unwrap();
        let file = std::fs::File::from(region.fd().try_clone_to_owned().unwrap());
        let mut permissions = file.metadata().unwrap().permissions();
        assert_eq!(permissions.mode() & 0o111, 0);
        permissions.set_mode(0o777);
        assert!(file.set_permissions(permissions).is_err(), "it can be made executable");
    }

    #[test]
    fn no_byte_is_of_a_word_and_of_a_cell() {
        // 12 bytes of words are 16: a cell is never cut.
        let region = Region::create_with_words(12, 4096).unwrap();
        for at in 0..40 {
            assert_eq!(region.word(at).is_some(), at % 4 == 0 && at <= 12, "a word at {at}");
            assert_eq!(region.span(at, 1).is_some(), at >= 16, "a byte at {at}");
            let is_cell = at % 8 == 0 && at >= 16;
            assert_eq!(region.cells::<1>(at, 1).is_some(), is_cell, "a cell at {at}");
        }
        for at in [4095, 4096, u64::MAX - 3, u64::MAX] {
            assert!(region.word(at).is_none(), "{at}");
            assert!(region.cells::<1>(at, 1).is_none(), "{at}");
            assert!(region.span(at, 2).is_none(), "{at}");
        }
        assert_eq!(region.cells::<4>(4096 - 32, 1).map(<[_]>::len), Some(1));
        assert!(region.cells::<4>(4096 - 32, 2).is_none());
        assert!(region.cells::<4>(16, u32::MAX).is_none());
        assert!(Region::create(4096).unwrap().word(0).is_none());
        let error = Region::create_with_words(4097, 4096).unwrap_err();
        assert_eq!(error.errno, Errno::EINVAL, "{error}");
        assert_eq!(
            Region::create_with_words(usize::MAX, 4096).unwrap_err().errno,
            Errno::EINVAL
        );
    }

    #[test]
    fn words_and_cells_are_where_a_span_sees_them() {
        let region = Region::create_with_words(8, 4096).unwrap();
        region.word(0).unwrap().store(7, Ordering::Relaxed);
        region.word(4).unwrap().store(9, Ordering::Relaxed);
        region.cells::<2>(8, 2).unwrap()[1][0].store(u64::from_ne_bytes(*b"in cells"), Ordering::Relaxed);
        let mut seen = [0; 8];
        region.span(24, 8).unwrap().copy_out(&mut seen);
        assert_eq!(&seen, b"in cells");
        assert_eq!(region.word(0).unwrap().load(Ordering::Relaxed), 7);
        assert_eq!(region.word(4).unwrap().load(Ordering::Relaxed), 9);
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
