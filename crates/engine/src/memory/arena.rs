//! Buffers: runs of 4 KiB chunks of one mapping.
//!
//! An arena is mapped lazily: memory that was never touched costs nothing. A run that is shared carries the count of its owners
//! at its first chunk; one with a single owner needs none. A bitmap of claimed chunks, changed by compare-and-swap alone, lets
//! buffers be dropped on any thread without a lock.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Mapping, Span};
use crate::error::{Errno, SetupError};

/// Granularity and alignment of arena memory, in bytes. Every buffer starts at a multiple of it.
pub const CHUNK: usize = 4096;

/// Chunks that one bitmap word stands for.
const WORD: usize = 64;

/// Bytes that one word of the bitmap stands for: an arena's size is a multiple of it.
const GRANULE: usize = CHUNK * WORD;

/// What keeps an arena's memory mapped.
enum Home {
    Own(Mapping),
    Shared { _kept: Span },
}

/// A fixed budget of buffer memory, mapped at once and touched only as it is used.
pub struct Arena {
    /// The first byte of `home`, which is at least `len` long.
    base: *mut u8,
    len: usize,
    home: Home,
    /// One bit a chunk: 1 = claimed.
    claimed: Box<[AtomicU64]>,
    /// At the first chunk of a run: how many owners it has, from its freezing on.
    counts: Box<[AtomicU32]>,
    /// Word at which the next search starts; a hint, so races on it are harmless.
    hint: AtomicU32,
    /// Called when chunks have come back.
    on_return: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

// SAFETY: what keeps an arena in one thread is its address. It stays mapped wherever the arena goes, and every access to the bytes
// behind it goes through a buffer, which has claimed them.
unsafe impl Send for Arena {}
// SAFETY: as above; claims are made by compare-and-swap.
unsafe impl Sync for Arena {}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} bytes)", self.len)
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
                .cure(
                "raise the limit of address space (RLIMIT_AS, `ulimit -v`): an arena takes little memory before it is used; or ask for a smaller one",
            )
        };
        let len = bytes
            .max(1)
            .checked_next_multiple_of(GRANULE)
            .filter(|&len| len / CHUNK <= u32::MAX as usize)
            .ok_or_else(|| refused(Errno::ENOMEM))?;
        let mapping = Mapping::anonymous(len).map_err(refused)?;
        // SAFETY: the mapping is new, and nobody else gets it.
        Ok(unsafe { Arena::at(mapping.at(0), len, Home::Own(mapping)) })
    }

    /// An arena in memory that a peer has too: a client's buffers, where its service finds them. As long as the span, rounded
    /// down to 256 KiB; [`Buffer::place`] counts from the beginning of the span.
    ///
    /// # Errors
    /// `EINVAL` for a span that does not begin at a page, or is shorter than 256 KiB.
    ///
    /// # Safety
    /// Buffers lend these bytes by reference. So as long as the arena or anything from it exists, wherever it has been handed
    /// to, and for ever if it is leaked:
    /// - nobody else in this process uses these bytes, by another span of them or in any other way;
    /// - the peer is trusted to write only into the memory of requests that this process has sent it and whose end it has not
    ///   seen yet, and only if they read.
    pub unsafe fn over(span: Span) -> Result<Arc<Arena>, SetupError> {
        let (base, len) = (span.pointer(), span.len() / GRANULE * GRANULE);
        if base.addr() % CHUNK != 0 || len == 0 {
            let object = format!("{} bytes of shared memory", span.len());
            return Err(SetupError::new("make an arena", object, Errno::EINVAL)
                .need(format!("at least {GRANULE} bytes that begin at a page"))
                .cure("share memory whose part for buffers begins at a multiple of 4096 and is as long"));
        }
        // SAFETY: the caller promises that the bytes are the arena's alone.
        Ok(unsafe { Arena::at(base, len, Home::Shared { _kept: span }) })
    }

    /// # Safety
    /// `home` keeps `len` initialised bytes at `base` mapped, a multiple of `GRANULE` and at least one, and nobody else uses them.
    unsafe fn at(base: *mut u8, len: usize, home: Home) -> Arc<Arena> {
        let chunks = len / CHUNK;
        Arc::new(Arena {
            base,
            len,
            home,
            claimed: (0..chunks / WORD).map(|_| AtomicU64::new(0)).collect(),
            counts: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
            hint: AtomicU32::new(0),
            on_return: OnceLock::new(),
        })
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
        Some(Buffer {
            arena: Arc::clone(self),
            at: at as u32,
            chunks: chunks as u32,
            len,
        })
    }

    /// From now on `tell` is called whenever memory has come back, on the thread that gives it back, whatever that holds: it must not wait. The
    /// first one stays.
    pub fn on_return(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_return.set(Box::new(tell));
    }

    fn came_back(&self) {
        if let Some(tell) = self.on_return.get() {
            tell();
        }
    }

    /// The whole range, for a backend that registers it with the kernel.
    pub(crate) fn range(&self) -> (*mut u8, usize) {
        (self.base, self.len)
    }

    /// All of it will be touched: huge pages, which one entry of the processor's and one of the kernel's tables stands for, are
    /// better then. Memory that is shared is the peer's business.
    pub(crate) fn wish_huge(&self) {
        if let Home::Own(mapping) = &self.home {
            mapping.wish_huge();
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.len
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
        // First a look: what is claimed and given back again is missed by others meanwhile, and is told as if it had come back.
        let is_free = |index: usize| self.claimed[index].load(Ordering::Relaxed) == 0;
        if let Some(taken) = (start..start + whole).find(|&index| !is_free(index)) {
            return Err(taken);
        }
        if tail > 0 && self.claimed[start + whole].load(Ordering::Relaxed) & run_mask(tail) != 0 {
            return Err(start + whole);
        }
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
        self.came_back();
    }

    /// One of the owners of a shared run goes.
    fn release_shared(&self, at: u32, chunks: u32) {
        // AcqRel: the last of several owners must see the others' reads as done before the chunks go back.
        if self.counts[at as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.release(at, chunks);
        }
    }

    /// The only owner of a run goes.
    fn release(&self, at: u32, chunks: u32) {
        let (at, chunks) = (at as usize, chunks as usize);
        if chunks <= WORD {
            let mask = run_mask(chunks) << (at % WORD);
            self.claimed[at / WORD].fetch_and(!mask, Ordering::Release);
            self.came_back();
        } else {
            self.give_back_words(at / WORD, chunks / WORD, chunks % WORD);
        }
    }

    fn pointer(&self, at: u32) -> *mut u8 {
        self.base.wrapping_add(at as usize * CHUNK)
    }
}

fn run_mask(chunks: usize) -> u64 {
    if chunks == WORD { !0 } else { (1 << chunks) - 1 }
}

/// The lowest bit at which `chunks` zero bits of `word` follow one another.
fn free_run(word: u64, chunks: usize) -> Option<usize> {
    // Where as many zero bits begin as have been looked at so far.
    let (mut begins, mut seen) = (!word, 1);
    while seen < chunks {
        let more = seen.min(chunks - seen);
        begins &= begins >> more;
        seen += more;
    }
    (begins != 0).then(|| begins.trailing_zeros() as usize)
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
        // Relaxed: whoever else is to own it gets it from this thread.
        this.arena.counts[this.at as usize].store(1, Ordering::Relaxed);
        Frozen {
            // SAFETY: `this` is never dropped, so the reference count that its field holds moves to the new value.
            arena: unsafe { std::ptr::read(&this.arena) },
            at: this.at,
            chunks: this.chunks,
            len: this.len,
        }
    }

    /// Shows `len` bytes from now on, at most [`Buffer::capacity`]: for a transfer shorter than its buffer. One of 4 GiB shows all but its
    /// last byte, since no buffer is longer.
    pub fn set_len(&mut self, len: usize) {
        self.len = u32::try_from(len.min(self.capacity())).unwrap_or(u32::MAX);
    }

    /// Where it begins in its arena, in bytes: what a peer that shares the arena is told.
    #[must_use]
    pub fn place(&self) -> u64 {
        u64::from(self.at) * CHUNK as u64
    }

    /// Is it a run of this arena?
    #[must_use]
    pub fn is_of(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    /// Bytes that the run of chunks holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.chunks as usize * CHUNK
    }
}

impl Buffer {
    pub(super) fn pointer(&self) -> *mut u8 {
        self.arena.pointer(self.at)
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

impl Frozen {
    /// The first `len` bytes of the same memory, shared with this.
    #[must_use]
    pub fn first(&self, len: usize) -> Frozen {
        let mut first = self.clone();
        first.len = first.len.min(u32::try_from(len).unwrap_or(u32::MAX));
        first
    }

    pub(super) fn pointer(&self) -> *mut u8 {
        self.arena.pointer(self.at)
    }
}

/// Forgotten clones (`mem::forget`) could count up to 2^32 and round to 0, and memory in use would be given away. As
/// `Arc` does, the process ends half-way there: the other half is room for the threads that count at the same time. A
/// panic would not do, as it can be caught and repeated.
const OWNERS_MAX: u32 = i32::MAX as u32;

impl Clone for Frozen {
    fn clone(&self) -> Frozen {
        let owners = self.arena.counts[self.at as usize].fetch_add(1, Ordering::Relaxed);
        if owners > OWNERS_MAX {
            std::process::abort();
        }
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
        self.arena.release_shared(self.at, self.chunks);
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frozen({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Region;

    #[test]
    fn an_arena_gives_back_what_is_dropped() {
        let arena = Arena::new(1 << 20).unwrap();
        assert_eq!(arena.free_bytes(), 1 << 20);
        let buffers: Vec<_> = std::iter::from_fn(|| arena.buffer(CHUNK)).collect();
        assert_eq!(buffers.len(), 256);
        drop(buffers);
        assert_eq!(arena.free_bytes(), 1 << 20);
        let whole = arena.buffer(1 << 20).unwrap();
        assert_eq!((whole.place(), whole.is_of(&arena)), (0, true));
        assert!(!whole.is_of(&Arena::new(1).unwrap()));
        assert!(arena.buffer(1).is_none());
        drop(whole);
        assert!(arena.buffer(1).is_some());
    }

    /// The longest buffer is a byte shorter than its chunks, and as many bytes as these are no length that it can keep. Nothing is touched.
    #[test]
    #[cfg(target_pointer_width = "64")]
    #[cfg_attr(miri, ignore = "it would allocate all of it")]
    fn the_longest_buffer_shows_all_that_it_can() {
        let arena = Arena::new(4 << 30).unwrap();
        let mut longest = arena.buffer(u32::MAX as usize).unwrap();
        assert_eq!(longest.capacity(), 4 << 30);
        longest.set_len(longest.capacity());
        assert_eq!(longest.len(), u32::MAX as usize);
        longest.set_len(usize::MAX);
        assert_eq!(longest.len(), u32::MAX as usize);
        longest.set_len(7);
        assert_eq!(longest.len(), 7);
    }

    #[test]
    fn a_run_is_found_where_its_bits_are_free() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let dense = [0, !0, 1, 1 << 63, !1, !(1 << 63), 0x5555_5555_5555_5555];
        for round in 0..if cfg!(miri) { 1 } else { 1000 } {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            for word in [word, word & word >> 1, word & word << 7 & word >> 20]
                .into_iter()
                .chain(dense)
            {
                for chunks in 1..=WORD {
                    let is_free = |bit: &usize| word >> bit & run_mask(chunks) == 0;
                    assert_eq!(
                        free_run(word, chunks),
                        (0..=WORD - chunks).find(is_free),
                        "{word:x} {chunks}"
                    );
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it looks at every byte of megabytes")]
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
    #[cfg_attr(miri, ignore = "it has no memfd")]
    fn an_arena_over_a_span_lies_where_the_peer_sees_it() {
        let page = CHUNK as u64;
        let region = Region::create(CHUNK + GRANULE + 5).unwrap();
        let span = region.span(page, GRANULE as u32 + 5).unwrap();
        // SAFETY: nothing else in this process uses this mapping of the bytes.
        let arena = unsafe { Arena::over(span) }.unwrap();
        assert_eq!((arena.size(), arena.free_bytes()), (GRANULE, GRANULE));
        let first = arena.buffer(CHUNK).unwrap();
        let mut second = arena.buffer(5).unwrap();
        assert_eq!((first.place(), second.place()), (0, page));
        second.copy_from_slice(b"hello");
        let peer = Region::map(region.fd().try_clone_to_owned().unwrap()).unwrap();
        drop(region);
        let mut seen = [0; 5];
        peer.span(page + second.place(), 5).unwrap().copy_out(&mut seen);
        assert_eq!(&seen, b"hello");
        // What is registered with a kernel is the span's own bytes, and no more.
        let (base, len) = arena.range();
        assert_eq!((base, len), (first.pointer(), GRANULE));
        drop((first, second));
        assert_eq!(arena.buffer(GRANULE).map(|whole| whole.place()), Some(0));
    }

    #[test]
    fn an_arena_over_a_span_is_page_aligned_and_not_empty() {
        let region = Region::create(2 * GRANULE).unwrap();
        for (at, len) in [(8, GRANULE), (0, GRANULE - 1), (0, 0), (CHUNK - 1, GRANULE)] {
            let span = region.span(at as u64, len as u32).unwrap();
            // SAFETY: nothing else in this process uses the bytes.
            let error = unsafe { Arena::over(span) }.unwrap_err();
            assert_eq!(error.errno, Errno::EINVAL, "{error}");
        }
        let span = region.span(CHUNK as u64, GRANULE as u32).unwrap();
        // SAFETY: nothing else in this process uses the bytes.
        let arena = unsafe { Arena::over(span) }.unwrap();
        let mut buffer = arena.buffer(GRANULE).unwrap();
        buffer.fill(1);
        assert!(arena.buffer(1).is_none());
    }
}
