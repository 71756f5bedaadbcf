//! The only owner of raw memory.
//!
//! Four kinds of memory live behind one enum, because they differ in who may change them while an I/O runs:
//!
//! | kind | who may change it | what a borrower gets |
//! |---|---|---|
//! | [`Buffer`] | its one owner | `&[u8]`, `&mut [u8]` |
//! | [`Frozen`] | nobody: it is shared and read-only | `&[u8]` |
//! | [`Span`] | a peer in another process, at any time | copies in and out, never a reference |
//! | [`Foreign`] | nobody: it is here with its owner, of any type | copies; at the end the owner |
//!
//! | file | what it holds |
//! |---|---|
//! | `arena.rs` | buffers, from a budget mapped at once, or from memory that is shared with a service |
//! | `foreign.rs` | memory of any owner |
//! | `vectored.rs` | lists of the others |
//!
//! Mappings and spans themselves are `baio-memory`'s, which needs no engine.
//!
//! What keeps this sound with a kernel on the other side: a request owns its [`Memory`] until the kernel has ended it, so
//! the borrow checker cannot be talked into lending bytes that are being written. [`Lent`] is the one exception, unsafe to
//! make, for shims whose callers own the memory by contract.

#![allow(unsafe_code)]

mod arena;
mod foreign;
mod vectored;

pub(crate) use baio_memory::Mapping;

pub use arena::{Arena, Buffer, CHUNK, Frozen};
pub use baio_memory::{Region, RegionError, Span};
pub use foreign::Foreign;
pub use vectored::{IOV_MAX, Vectored};

/// Memory that somebody else owns, for shims over foreign interfaces.
///
/// The loan is the value: it begins with [`Lent::new`] and ends when the value is dropped. A completion and a `Released`
/// notice hand the value back, so whoever has it may use the bytes again, by [`Memory::copy_in_at`] or in another request; a
/// shim drops it before it tells the owner of the bytes that the request has ended.
///
/// ```
/// use baio_engine::{Lent, Memory};
///
/// let mut theirs = [0; 4];
/// // SAFETY: `theirs` outlives the value, which is dropped below, and is not used before that.
/// let mut memory = Memory::Lent(unsafe { Lent::new(theirs.as_mut_ptr(), 4) });
/// memory.copy_in_at(1, b"ab");
/// drop(memory);
/// assert_eq!(&theirs, b"\0ab\0");
/// ```
#[derive(Debug)]
pub struct Lent {
    pointer: *mut u8,
    len: u32,
    /// Of these, from the first on, are shown.
    shown: u32,
}

impl Lent {
    /// Lends `len` bytes at `pointer`.
    ///
    /// # Safety
    /// As long as the value exists, wherever it has been handed to, the bytes must stay mapped, nobody else may write them,
    /// and nobody else may read them unless the value is only ever written from. For ever, if it is leaked: an engine that
    /// is dropped while a stuck device holds a request leaks its memory. Any thread may use the value.
    #[must_use]
    pub unsafe fn new(pointer: *mut u8, len: u32) -> Lent {
        Lent {
            pointer,
            len,
            shown: len,
        }
    }

    fn len(&self) -> usize {
        self.shown as usize
    }

    fn show(&mut self, len: usize) {
        self.shown = u32::try_from(len).map_or(self.len, |len| len.min(self.len));
    }
}

// SAFETY: the promise made to `Lent::new` holds for whichever thread has the value, as long as there is one; a `Lent` gives
// nobody a reference to the bytes.
unsafe impl Send for Lent {}
// SAFETY: as above; with `&Lent` bytes are only copied out, which several may do at once.
unsafe impl Sync for Lent {}

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
    /// Bytes of any sort, with the value that owns them.
    Foreign(Foreign),
}

/// Where the kernel finds the bytes of one iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Window {
    Flat { pointer: *mut u8, len: usize },
    List { list: *const libc::iovec, count: u32 },
}

// SAFETY: what keeps a window in one thread are its pointers. They lead into the memory of one slot, which nobody touches between
// the start of an iteration and its report (the slot is `Running` or `Abandoned`), and which is leaked, not freed, when a report
// never comes. Whoever has the window has been handed that iteration: through the lock of a pool, or with the whole engine by
// whoever moved it. So only one thread uses it, behind all that the other has done.
unsafe impl Send for Window {}

impl Window {
    /// The first `limit` bytes of a flat window; lists stay as they are.
    pub(crate) fn at_most(self, limit: usize) -> Window {
        match self {
            Window::Flat { pointer, len } => Window::Flat {
                pointer,
                len: len.min(limit),
            },
            list @ Window::List { .. } => list,
        }
    }
}

impl Memory {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Memory::None => 0,
            Memory::Own(buffer) => buffer.len(),
            Memory::Shared(frozen) => frozen.len(),
            Memory::Span(span) => span.len(),
            Memory::Many(list) => list.len(),
            Memory::Lent(lent) => lent.len(),
            Memory::Foreign(foreign) => foreign.len(),
        }
    }

    /// Shows its first `len` bytes from now on, or all if it has fewer: for a transfer that ends earlier. Of a [`Buffer`] all is its capacity, and
    /// behind its length there may be what an earlier owner left. What is hidden comes back by a larger `len`, but of a [`Span`], which can only
    /// be cut. Memory that is shared stays as it is: nothing is read into it.
    pub fn show(&mut self, len: usize) {
        match self {
            Memory::None | Memory::Shared(_) => {}
            Memory::Own(buffer) => buffer.set_len(len),
            Memory::Span(span) => span.cut(len),
            Memory::Many(list) => list.show(len),
            Memory::Lent(lent) => lent.show(len),
            Memory::Foreign(foreign) => foreign.show(len),
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
    #[must_use]
    pub fn is_writable(&self) -> bool {
        match self {
            Memory::Shared(_) => false,
            Memory::Foreign(foreign) => foreign.is_writable(),
            Memory::Many(list) => list.parts.iter().all(Memory::is_writable),
            _ => true,
        }
    }

    /// The address of the first part of which this is true, if there is one.
    pub(crate) fn first_place_where(&self, is_true: impl Fn(u64) -> bool + Copy) -> Option<u64> {
        match self {
            Memory::Many(list) => list.parts.iter().find_map(|part| part.place_where(is_true)),
            flat => flat.place_where(is_true),
        }
    }

    /// Does any part of it not begin at a multiple of this many bytes?
    #[must_use]
    pub fn misplaced(&self, align: u64) -> bool {
        self.first_place_where(|place| place % align != 0).is_some()
    }

    /// Its address, unless it is a list.
    pub(crate) fn place(&self) -> Option<u64> {
        match self {
            Memory::Many(_) => None,
            flat => Some(flat.flat().0 as u64),
        }
    }

    fn place_where(&self, is_true: impl Fn(u64) -> bool) -> Option<u64> {
        match self {
            Memory::None => None,
            flat => {
                // No bytes lie nowhere: an empty vector's address means nothing.
                let (pointer, len) = flat.flat();
                Some(pointer as u64).filter(|&place| len > 0 && is_true(place))
            }
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
            return list.aim(skip);
        }
        self.flat_window(skip)
    }

    #[inline]
    fn flat_window(&self, skip: usize) -> Window {
        let (pointer, len) = self.flat();
        Window::Flat {
            pointer: pointer.wrapping_add(skip),
            len: len.saturating_sub(skip),
        }
    }

    /// The same, but a list of one piece is no list: for operations that take either.
    #[inline]
    pub(crate) fn pieces(&mut self, skip: usize) -> Window {
        if !matches!(self, Memory::Many(_)) {
            return self.flat_window(skip);
        }
        let window = self.window(skip);
        match self {
            Memory::Many(list) => list.only_piece().unwrap_or(window),
            _ => window,
        }
    }

    /// Where it begins, and how long it is; a list begins nowhere.
    fn flat(&self) -> (*mut u8, usize) {
        match self {
            Memory::None => (std::ptr::null_mut(), 0),
            Memory::Own(buffer) => (buffer.pointer(), buffer.len()),
            Memory::Shared(frozen) => (frozen.pointer(), frozen.len()),
            Memory::Span(span) => (span.pointer(), span.len()),
            Memory::Many(list) => (std::ptr::null_mut(), list.len()),
            Memory::Lent(lent) => (lent.pointer, lent.len()),
            Memory::Foreign(foreign) => (foreign.pointer(), foreign.len()),
        }
    }

    /// Copies `bytes` in behind the first `skip` bytes, as far as they fit; shared, read-only memory stays as it is. A long list
    /// is walked from its beginning: [`Vectored::copy_in_part`] goes straight to a part.
    pub fn copy_in_at(&mut self, mut skip: usize, mut bytes: &[u8]) {
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
            Memory::Foreign(foreign) => foreign.copy_in_at(skip, bytes),
            Memory::Lent(lent) => {
                let skip = skip.min(lent.len());
                let len = bytes.len().min(lent.len() - skip);
                // SAFETY: inside the lent range, which its lender promised to leave alone as long as the value exists.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), lent.pointer.add(skip), len);
                }
            }
            Memory::Many(list) => {
                bytes = &bytes[..bytes.len().min(list.most().saturating_sub(skip))];
                for part in &mut list.parts {
                    let len = part.len();
                    if skip < len {
                        let take = (len - skip).min(bytes.len());
                        part.copy_in_at(skip, &bytes[..take]);
                        bytes = &bytes[take..];
                        skip = 0;
                    } else {
                        skip -= len;
                    }
                }
            }
        }
    }

    /// Copies out from behind the first `skip` bytes until `bytes` is full or nothing is left; the rest of `bytes` stays as it is.
    pub fn copy_out_at(&self, mut skip: usize, mut bytes: &mut [u8]) {
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
            Memory::Foreign(foreign) => foreign.copy_out_at(skip, bytes),
            Memory::Lent(lent) => {
                let skip = skip.min(lent.len());
                let len = bytes.len().min(lent.len() - skip);
                // SAFETY: inside the lent range, which stays mapped and unchanged by others as long as the value exists.
                unsafe {
                    std::ptr::copy_nonoverlapping(lent.pointer.add(skip), bytes.as_mut_ptr(), len);
                }
            }
            Memory::Many(list) => {
                let most = bytes.len().min(list.most().saturating_sub(skip));
                bytes = &mut bytes[..most];
                for part in &list.parts {
                    let len = part.len();
                    if skip < len {
                        let take = (len - skip).min(bytes.len());
                        let (now, later) = bytes.split_at_mut(take);
                        part.copy_out_at(skip, now);
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

impl baio_words::Payload for Memory {
    fn payload_bytes(&self) -> usize {
        self.len()
    }
}

impl From<Buffer> for Memory {
    fn from(buffer: Buffer) -> Memory {
        Memory::Own(buffer)
    }
}

impl From<Foreign> for Memory {
    fn from(foreign: Foreign) -> Memory {
        Memory::Foreign(foreign)
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
    fn neighbours_in_memory_are_one_piece() {
        let arena = Arena::new(1 << 20).unwrap();
        let mut pages: Vec<_> = (0..4).map(|_| arena.buffer(CHUNK).unwrap()).collect();
        pages.sort_by_key(Buffer::place);
        let mut list = Vectored::with_capacity(4);
        pages[1].set_len(CHUNK - 8);
        for page in pages {
            list.push(page.into()).unwrap();
        }
        let mut memory = Memory::Many(list);
        // The second part is shorter than its memory, so the third does not begin where it ends.
        assert!(matches!(memory.pieces(0), Window::List { count: 2, .. }));
        let Window::Flat { pointer, len } = memory.pieces(2 * CHUNK + 8) else {
            panic!("the last two lie side by side")
        };
        assert_eq!(len, 2 * CHUNK - 16);
        assert_eq!(pointer as usize % CHUNK, 16);
    }

    #[test]
    fn what_is_hidden_is_not_moved_and_comes_back() {
        let mut theirs = [1; 12];
        let mut list = Vectored::default();
        for len in [3, 4, 5] {
            list.push(Foreign::of_vec(vec![1; len]).into()).unwrap();
        }
        // SAFETY: `theirs` outlives the value, and is not used before its end.
        let lent = unsafe { Lent::new(theirs.as_mut_ptr(), 12) };
        for mut memory in [
            Memory::Many(list),
            Memory::from(Foreign::of_vec(vec![1; 12])),
            Memory::Lent(lent),
        ] {
            memory.show(5);
            assert_eq!(memory.len(), 5);
            let is_right = match memory.pieces(4) {
                Window::Flat { len, .. } => len == 1,
                Window::List { .. } => false,
            };
            assert!(is_right, "{memory:?}");
            memory.copy_in_at(2, &[2; 12]);
            let mut seen = [0; 12];
            memory.copy_out_at(1, &mut seen);
            assert_eq!(seen, [1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
            memory.show(12);
            memory.copy_out_at(0, &mut seen);
            assert_eq!((memory.len(), seen), (12, [1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1]));
        }
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
        memory.copy_in_at(2, b"abcdefgh");
        let mut seen = [0; 12];
        memory.copy_out_at(0, &mut seen);
        assert_eq!(&seen, b"\0\0abcdefgh\0\0");
        assert!(matches!(memory.pieces(0), Window::List { count: 3, .. }));
        // One part is left, and needs no list.
        assert!(matches!(memory.pieces(8), Window::Flat { len: 4, .. }));
    }
}
