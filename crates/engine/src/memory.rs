//! The only owner of raw memory.
//!
//! Three kinds of memory live behind one enum, because they differ in who may change them while an I/O runs:
//!
//! | kind | who may change it | what a borrower gets |
//! |---|---|---|
//! | [`Buffer`] | its one owner | `&[u8]`, `&mut [u8]` |
//! | [`Frozen`] | nobody: it is shared and read-only | `&[u8]` |
//! | [`Span`] | a peer in another process, at any time | copies in and out, never a reference |
//!
//! Buffers and frozen buffers are runs of 4 KiB chunks of one [`Arena`], which is mapped lazily: memory that was never
//! touched costs nothing. Each run carries one count (0 free, 1 unique, n shared) at its first chunk. A bitmap of claimed
//! chunks, changed by compare-and-swap alone, lets buffers be dropped on any thread without a lock.
//!
//! What keeps this sound with a kernel on the other side: a request owns its [`Memory`] until the kernel has ended it, so
//! the borrow checker cannot be talked into lending bytes that are being written. [`Lent`] is the one exception, unsafe to
//! make, for shims whose callers own the memory by contract.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Errno, SetupError};

/// Granularity and alignment of arena memory, in bytes. Every buffer starts at a multiple of it.
pub const CHUNK: usize = 4096;

/// Chunks that one bitmap word stands for.
const WORD: usize = 64;

/// A `mmap`ed range that is unmapped when dropped.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is an address range; every access to its bytes goes through the types below, which decide who may
// read or write which part of it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only yields the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn anonymous(len: usize) -> Result<Mapping, Errno> {
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

    fn shared(fd: BorrowedFd<'_>, len: usize) -> Result<Mapping, Errno> {
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
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us and every user of it held the owner of this mapping alive.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A fixed budget of buffer memory, mapped at once and touched only as it is used.
pub struct Arena {
    mapping: Mapping,
    /// One bit a chunk: 1 = claimed.
    claimed: Box<[AtomicU64]>,
    /// At the first chunk of a run: how many owners it has.
    counts: Box<[AtomicU32]>,
    /// Word at which the next search starts; a hint, so races on it are harmless.
    hint: AtomicU32,
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} bytes)", self.mapping.len)
    }
}

impl Arena {
    /// Maps an arena of at least `bytes` bytes (rounded up to 256 KiB).
    ///
    /// # Errors
    /// What `mmap` said, with the size asked for.
    pub fn new(bytes: usize) -> Result<Arc<Arena>, SetupError> {
        let refused = |errno| {
            SetupError::new("map an arena", format!("{bytes} bytes of memory"), errno)
                .cure("ask for a smaller arena, or raise RLIMIT_AS")
        };
        let granule = CHUNK * WORD;
        let len = bytes
            .max(1)
            .checked_next_multiple_of(granule)
            .filter(|&len| len / CHUNK <= u32::MAX as usize)
            .ok_or_else(|| refused(Errno::ENOMEM))?;
        let chunks = len / CHUNK;
        Ok(Arc::new(Arena {
            mapping: Mapping::anonymous(len).map_err(refused)?,
            claimed: (0..chunks / WORD).map(|_| AtomicU64::new(0)).collect(),
            counts: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
            hint: AtomicU32::new(0),
        }))
    }

    /// Takes a buffer of exactly `len` bytes, aligned to [`CHUNK`]; `None` when no run of free chunks is long enough.
    /// Its bytes are whatever the last user of the arena left there; zero at first.
    #[must_use]
    pub fn buffer(self: &Arc<Arena>, len: usize) -> Option<Buffer> {
        let chunks = len.max(1).div_ceil(CHUNK);
        let len = u32::try_from(len).ok()?;
        let at = if chunks <= WORD {
            self.claim_within_word(chunks)?
        } else {
            self.claim_words(chunks)?
        };
        self.counts[at].store(1, Ordering::Relaxed);
        Some(Buffer {
            arena: Arc::clone(self),
            at: at as u32,
            chunks: chunks as u32,
            len,
        })
    }

    /// The whole range, for a backend that registers it with the kernel.
    pub(crate) fn range(&self) -> (*mut u8, usize) {
        (self.mapping.base.as_ptr(), self.mapping.len)
    }

    /// Bytes that no buffer holds now.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        let claimed: u32 = self
            .claimed
            .iter()
            .map(|w| w.load(Ordering::Relaxed).count_ones())
            .sum();
        (self.counts.len() - claimed as usize) * CHUNK
    }

    fn claim_within_word(&self, chunks: usize) -> Option<usize> {
        let words = self.claimed.len();
        let first = self.hint.load(Ordering::Relaxed) as usize % words;
        for step in 0..words {
            let index = (first + step) % words;
            let word = &self.claimed[index];
            let mut seen = word.load(Ordering::Relaxed);
            while let Some(bit) = free_run(seen, chunks) {
                let mask = run_mask(chunks) << bit;
                // Acquire: what the last owner of these chunks wrote happened before our use of them.
                match word.compare_exchange_weak(seen, seen | mask, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        self.hint.store(index as u32, Ordering::Relaxed);
                        return Some(index * WORD + bit);
                    }
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// A run longer than one word takes whole free words and the beginning of a last one.
    fn claim_words(&self, chunks: usize) -> Option<usize> {
        let whole = chunks / WORD;
        let tail = chunks % WORD;
        let needed = whole + usize::from(tail > 0);
        let last_start = self.claimed.len().checked_sub(needed)?;
        let mut start = 0;
        while start <= last_start {
            match self.claim_words_at(start, whole, tail) {
                Ok(()) => return Some(start * WORD),
                Err(taken) => start = taken + 1,
            }
        }
        None
    }

    fn claim_words_at(&self, start: usize, whole: usize, tail: usize) -> Result<(), usize> {
        for index in start..start + whole {
            let claim = self.claimed[index].compare_exchange(0, !0, Ordering::Acquire, Ordering::Relaxed);
            if claim.is_err() {
                self.give_back_words(start, index - start, 0);
                return Err(index);
            }
        }
        if tail == 0 {
            return Ok(());
        }
        let word = &self.claimed[start + whole];
        let mask = run_mask(tail);
        let claim = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |seen| {
            (seen & mask == 0).then_some(seen | mask)
        });
        if claim.is_err() {
            self.give_back_words(start, whole, 0);
            return Err(start + whole);
        }
        Ok(())
    }

    fn give_back_words(&self, start: usize, whole: usize, tail: usize) {
        for word in &self.claimed[start..start + whole] {
            word.store(0, Ordering::Release);
        }
        if tail > 0 {
            self.claimed[start + whole].fetch_and(!run_mask(tail), Ordering::Release);
        }
    }

    fn release(&self, at: u32, chunks: u32) {
        let at = at as usize;
        // AcqRel: the last of several owners must see the others' reads as done before the chunks go back.
        if self.counts[at].fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let chunks = chunks as usize;
        if chunks <= WORD {
            let mask = run_mask(chunks) << (at % WORD);
            self.claimed[at / WORD].fetch_and(!mask, Ordering::Release);
        } else {
            self.give_back_words(at / WORD, chunks / WORD, chunks % WORD);
        }
    }

    fn pointer(&self, at: u32) -> *mut u8 {
        // SAFETY: `at` is a chunk of this arena, so the offset stays inside the mapping.
        unsafe { self.mapping.base.as_ptr().add(at as usize * CHUNK) }
    }
}

fn run_mask(chunks: usize) -> u64 {
    if chunks == WORD { !0 } else { (1 << chunks) - 1 }
}

/// The lowest bit at which `chunks` zero bits of `word` follow one another.
fn free_run(word: u64, chunks: usize) -> Option<usize> {
    let mut bit = 0;
    while bit + chunks <= WORD {
        let blocked = (word >> bit) & run_mask(chunks);
        if blocked == 0 {
            return Some(bit);
        }
        bit += WORD - blocked.leading_zeros() as usize;
    }
    None
}

/// A run of arena memory with one owner. Dropping it gives the memory back.
pub struct Buffer {
    arena: Arc<Arena>,
    at: u32,
    chunks: u32,
    len: u32,
}

impl Buffer {
    /// Shares the bytes from now on; nobody can change them until the last [`Frozen`] is gone.
    #[must_use]
    pub fn freeze(self) -> Frozen {
        let this = std::mem::ManuallyDrop::new(self);
        Frozen {
            // SAFETY: `this` is never dropped, so the reference count that its field holds moves to the new value.
            arena: unsafe { std::ptr::read(&this.arena) },
            at: this.at,
            chunks: this.chunks,
            len: this.len,
        }
    }

    /// Shows `len` bytes from now on, at most [`Buffer::capacity`]: for a transfer shorter than its buffer.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity()) as u32;
    }

    /// Bytes that the run of chunks holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.chunks as usize * CHUNK
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the run is claimed, mapped and initialised (fresh pages are zero), and `&self` keeps the only owner
        // from changing it.
        unsafe { std::slice::from_raw_parts(self.arena.pointer(self.at), self.len as usize) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.arena.pointer(self.at), self.len as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.arena.release(self.at, self.chunks);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

/// A run of arena memory that several own and nobody may change.
pub struct Frozen {
    arena: Arc<Arena>,
    at: u32,
    chunks: u32,
    len: u32,
}

impl Frozen {
    /// Takes the bytes back for changing when this is the last owner; else returns itself.
    ///
    /// # Errors
    /// `self`, when others still share the bytes.
    pub fn thaw(self) -> Result<Buffer, Frozen> {
        // Acquire pairs with the release of the owner that dropped last.
        if self.arena.counts[self.at as usize].load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        let this = std::mem::ManuallyDrop::new(self);
        Ok(Buffer {
            // SAFETY: `this` is never dropped; its count moves to the buffer.
            arena: unsafe { std::ptr::read(&this.arena) },
            at: this.at,
            chunks: this.chunks,
            len: this.len,
        })
    }
}

impl Clone for Frozen {
    fn clone(&self) -> Frozen {
        self.arena.counts[self.at as usize].fetch_add(1, Ordering::Relaxed);
        Frozen {
            arena: Arc::clone(&self.arena),
            at: self.at,
            chunks: self.chunks,
            len: self.len,
        }
    }
}

impl Deref for Frozen {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: claimed, mapped, initialised, and no `Buffer` for this run can exist while a `Frozen` does.
        unsafe { std::slice::from_raw_parts(self.arena.pointer(self.at), self.len as usize) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.arena.release(self.at, self.chunks);
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frozen({} bytes)", self.len)
    }
}

/// Memory shared with a peer in another process: a sealed memfd.
pub struct Region {
    mapping: Mapping,
    fd: OwnedFd,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.mapping.len)
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
        self.mapping.len
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

    fn copy_in_at(&self, skip: usize, bytes: &[u8]) -> usize {
        let cells = self.cells(skip, bytes.len());
        for (cell, byte) in cells.iter().zip(bytes) {
            cell.store(*byte, Ordering::Relaxed);
        }
        cells.len()
    }

    fn copy_out_at(&self, skip: usize, bytes: &mut [u8]) -> usize {
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
            let base = self.region.mapping.base.as_ptr().add(self.at as usize + skip);
            std::slice::from_raw_parts(base.cast::<AtomicU8>(), len)
        }
    }

    fn pointer(&self) -> *mut u8 {
        // SAFETY: `at` lies in the mapping.
        unsafe { self.region.mapping.base.as_ptr().add(self.at as usize) }
    }
}

/// Memory that somebody else owns, for shims over foreign interfaces.
#[derive(Debug)]
pub struct Lent {
    pointer: *mut u8,
    len: u32,
}

impl Lent {
    /// Lends `len` bytes at `pointer` to one request.
    ///
    /// # Safety
    /// The bytes must stay mapped, and must not be read (for a read request) or written by anybody until the completion,
    /// or the `Released` notice of an abandoned request, has been delivered.
    #[must_use]
    pub unsafe fn new(pointer: *mut u8, len: u32) -> Lent {
        Lent { pointer, len }
    }
}

/// A scatter-gather list that is filled once and used for many requests without a new allocation.
#[derive(Debug, Default)]
pub struct Vectored {
    parts: Vec<Memory>,
    window: Vec<libc::iovec>,
}

impl Vectored {
    /// An empty list with room for `parts` parts.
    #[must_use]
    pub fn with_capacity(parts: usize) -> Vectored {
        Vectored {
            parts: Vec::with_capacity(parts),
            window: Vec::with_capacity(parts.min(IOV_MAX)),
        }
    }

    /// Adds a part at the end. Lists do not nest: a list is handed back.
    ///
    /// # Errors
    /// `part`, when it is itself a list.
    pub fn push(&mut self, part: Memory) -> Result<(), Memory> {
        match part {
            Memory::Many(_) => Err(part),
            part => {
                self.parts.push(part);
                Ok(())
            }
        }
    }

    /// The parts in order.
    #[must_use]
    pub fn parts(&self) -> &[Memory] {
        &self.parts
    }

    /// Takes the parts out; the list keeps its room.
    pub fn drain(&mut self) -> impl Iterator<Item = Memory> + '_ {
        self.parts.drain(..)
    }

    fn len(&self) -> usize {
        self.parts.iter().map(Memory::len).sum()
    }

    /// Points the kernel's list at what is left after `skip` bytes, at most `IOV_MAX` parts of it.
    fn aim(&mut self, mut skip: usize) {
        self.window.clear();
        for part in &self.parts {
            let (pointer, len) = part.flat();
            if skip >= len {
                skip -= len;
                continue;
            }
            if self.window.len() == IOV_MAX {
                break;
            }
            self.window.push(libc::iovec {
                iov_base: pointer.wrapping_add(skip).cast(),
                iov_len: len - skip,
            });
            skip = 0;
        }
    }
}

/// Most parts that one `preadv` takes (`limits.h`).
pub const IOV_MAX: usize = 1024;

/// The memory of one request, owned by it until its end.
#[derive(Debug, Default)]
pub enum Memory {
    /// No memory: syncs, timers.
    #[default]
    None,
    /// A buffer of its own.
    Own(Buffer),
    /// Shared, read-only bytes: may be written from, never read into.
    Shared(Frozen),
    /// Bytes shared with another process.
    Span(Span),
    /// Several of the others.
    Many(Vectored),
    /// Somebody else's bytes, by an unsafe promise.
    Lent(Lent),
}

/// Where the kernel finds the bytes of one iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    Flat { pointer: *mut u8, len: usize },
    List { list: *const libc::iovec, count: u32 },
}

impl Memory {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Memory::None => 0,
            Memory::Own(buffer) => buffer.len as usize,
            Memory::Shared(frozen) => frozen.len as usize,
            Memory::Span(span) => span.len(),
            Memory::Many(list) => list.len(),
            Memory::Lent(lent) => lent.len as usize,
        }
    }

    /// True for no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer, when it is one.
    #[must_use]
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Memory::Own(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// May a read fill it? Shared bytes may not change.
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Memory::Shared(_) => false,
            Memory::Many(list) => list.parts.iter().all(Memory::is_writable),
            _ => true,
        }
    }

    /// The address of the first part that does not begin at a multiple of `align`, if there is one.
    pub(crate) fn misaligned(&self, align: u32) -> Option<u64> {
        let bad = |value: usize| (!value.is_multiple_of(align as usize)).then_some(value as u64);
        match self {
            Memory::Many(list) => list.parts.iter().find_map(|part| part.misaligned(align)),
            Memory::None => None,
            flat => bad(flat.flat().0 as usize),
        }
    }

    /// The parts of a list; none for anything else.
    pub(crate) fn parts(&self) -> &[Memory] {
        match self {
            Memory::Many(list) => &list.parts,
            _ => &[],
        }
    }

    /// What is left after `skip` bytes, for the kernel.
    pub(crate) fn window(&mut self, skip: usize) -> Window {
        if let Memory::Many(list) = self {
            list.aim(skip);
            return Window::List {
                list: list.window.as_ptr(),
                count: list.window.len() as u32,
            };
        }
        let (pointer, len) = self.flat();
        Window::Flat {
            pointer: pointer.wrapping_add(skip),
            len: len.saturating_sub(skip),
        }
    }

    fn flat(&self) -> (*mut u8, usize) {
        let pointer = match self {
            Memory::None | Memory::Many(_) => std::ptr::null_mut(),
            Memory::Own(buffer) => buffer.arena.pointer(buffer.at),
            Memory::Shared(frozen) => frozen.arena.pointer(frozen.at),
            Memory::Span(span) => span.pointer(),
            Memory::Lent(lent) => lent.pointer,
        };
        (pointer, self.len())
    }

    /// Copies `bytes` in behind `skip`: the simulated device's way of finishing a read.
    pub(crate) fn fill(&mut self, mut skip: usize, mut bytes: &[u8]) {
        match self {
            Memory::None | Memory::Shared(_) => {}
            Memory::Own(buffer) => {
                let rest = buffer.get_mut(skip..).unwrap_or(&mut []);
                let len = rest.len().min(bytes.len());
                rest[..len].copy_from_slice(&bytes[..len]);
            }
            Memory::Span(span) => {
                span.copy_in_at(skip, bytes);
            }
            Memory::Lent(lent) => {
                let skip = skip.min(lent.len as usize);
                let len = bytes.len().min(lent.len as usize - skip);
                // SAFETY: inside the lent range, which its lender promised to leave alone.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), lent.pointer.add(skip), len);
                }
            }
            Memory::Many(list) => {
                for part in &mut list.parts {
                    let len = part.len();
                    if skip < len {
                        let take = (len - skip).min(bytes.len());
                        part.fill(skip, &bytes[..take]);
                        bytes = &bytes[take..];
                        skip = 0;
                    } else {
                        skip -= len;
                    }
                }
            }
        }
    }

    /// Copies bytes out from behind `skip` until `bytes` is full: the simulated device's way of taking a write.
    pub(crate) fn take(&self, mut skip: usize, mut bytes: &mut [u8]) {
        match self {
            Memory::None => {}
            Memory::Own(_) | Memory::Shared(_) => {
                let all: &[u8] = match self {
                    Memory::Own(buffer) => buffer,
                    Memory::Shared(frozen) => frozen,
                    _ => &[],
                };
                let rest = all.get(skip..).unwrap_or(&[]);
                let len = rest.len().min(bytes.len());
                bytes[..len].copy_from_slice(&rest[..len]);
            }
            Memory::Span(span) => {
                span.copy_out_at(skip, bytes);
            }
            Memory::Lent(lent) => {
                let skip = skip.min(lent.len as usize);
                let len = bytes.len().min(lent.len as usize - skip);
                // SAFETY: inside the lent range.
                unsafe {
                    std::ptr::copy_nonoverlapping(lent.pointer.add(skip), bytes.as_mut_ptr(), len);
                }
            }
            Memory::Many(list) => {
                for part in &list.parts {
                    let len = part.len();
                    if skip < len {
                        let take = (len - skip).min(bytes.len());
                        let (now, later) = bytes.split_at_mut(take);
                        part.take(skip, now);
                        bytes = later;
                        skip = 0;
                    } else {
                        skip -= len;
                    }
                }
            }
        }
    }
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Memory {
        Memory::Own(buffer)
    }
}

impl From<Frozen> for Memory {
    fn from(frozen: Frozen) -> Memory {
        Memory::Shared(frozen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_gives_back_what_is_dropped() {
        let arena = Arena::new(1 << 20).unwrap();
        assert_eq!(arena.free_bytes(), 1 << 20);
        let buffers: Vec<_> = std::iter::from_fn(|| arena.buffer(CHUNK)).collect();
        assert_eq!(buffers.len(), 256);
        drop(buffers);
        assert_eq!(arena.free_bytes(), 1 << 20);
        let whole = arena.buffer(1 << 20).unwrap();
        assert!(arena.buffer(1).is_none());
        drop(whole);
        assert!(arena.buffer(1).is_some());
    }

    #[test]
    fn runs_never_overlap() {
        let arena = Arena::new(4 << 20).unwrap();
        let mut held = Vec::new();
        let mut seed = 1_u64;
        for round in 0..2000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let len = 1 + (seed >> 40) as usize % (600 << 10);
            if let Some(mut buffer) = arena.buffer(len) {
                let stamp = (round % 251) as u8;
                buffer.fill(stamp);
                held.push((buffer, stamp));
            }
            if held.len() > 20 || round % 3 == 0 {
                let at = (seed >> 20) as usize % held.len();
                let (buffer, stamp) = held.swap_remove(at);
                assert!(buffer.iter().all(|&byte| byte == stamp));
            }
        }
        held.clear();
        assert_eq!(arena.free_bytes(), 4 << 20);
    }

    #[test]
    fn frozen_memory_thaws_only_for_its_last_owner() {
        let arena = Arena::new(1 << 20).unwrap();
        let mut buffer = arena.buffer(10).unwrap();
        buffer.copy_from_slice(b"0123456789");
        let one = buffer.freeze();
        let two = one.clone();
        let one = one.thaw().unwrap_err();
        drop(one);
        let back = two.thaw().unwrap();
        assert_eq!(&back[..], b"0123456789");
        drop(back);
        assert_eq!(arena.free_bytes(), 1 << 20);
    }

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

    #[test]
    fn a_list_copies_across_its_parts() {
        let arena = Arena::new(1 << 20).unwrap();
        let mut list = Vectored::with_capacity(3);
        for len in [3, 4, 5] {
            let mut buffer = arena.buffer(len).unwrap();
            buffer.fill(0);
            list.push(buffer.into()).unwrap();
        }
        let mut memory = Memory::Many(list);
        memory.fill(2, b"abcdefgh");
        let mut seen = [0; 12];
        memory.take(0, &mut seen);
        assert_eq!(&seen, b"\0\0abcdefgh\0\0");
        let Window::List { count, .. } = memory.window(8) else {
            panic!("a list stays a list")
        };
        assert_eq!(count, 1);
    }
}
