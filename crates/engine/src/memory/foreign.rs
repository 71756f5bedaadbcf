//! Memory of any sort, which a request owns together with the value that owns the bytes.
//!
//! A program has its bytes in a `Vec<u8>`, in something shared, in pages of another library. [`Foreign`] takes such an owner
//! into the request and gives it back at the end, so the kernel works at the owner's own address and nothing is copied; as with all memory
//! of a request, it is out of everybody's reach until the kernel has let go.
//!
//! Direct I/O needs an alignment that such memory seldom has: a misaligned address is refused by its value and the need,
//! as with any other memory, and never copied in secret.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Bytes with the value that owns them.
///
/// ```
/// use baio_engine::{Foreign, Memory};
///
/// let memory = Memory::from(Foreign::of_vec(b"to be written".to_vec()));
/// assert_eq!(memory.len(), 13);
/// let Memory::Foreign(foreign) = memory else { return };
/// let vec: Vec<u8> = foreign.into_owner_of().expect("what it was made of");
/// assert_eq!(vec, b"to be written");
/// ```
pub struct Foreign {
    owner: Box<dyn Any + Send>,
    pointer: *mut u8,
    len: usize,
    /// At most so many bytes are shown, or `ALL`. Of 32 bits, as `Outcome` of the storage has no more room.
    shown: u32,
    is_writable: bool,
}

/// No limit.
const ALL: u32 = u32::MAX;

// SAFETY: the owner is `Send`, and the bytes go with it: by the contract of `Foreign::new` nobody else writes them, or reads them
// where they may change.
unsafe impl Send for Foreign {}
// SAFETY: `&Foreign` gives no reference to the owner, only its type; bytes are only copied out, which several may do at once.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Takes `len` bytes at `pointer` with what owns them. Reads may fill them if `is_writable`.
    ///
    /// # Safety
    /// As long as the value exists, wherever it has been handed to, and for ever if it is leaked (an engine that is dropped while a
    /// stuck device holds a request leaks its memory):
    /// - the bytes are initialised and stay mapped at their place while the owner is moved: they lie behind a pointer in the owner,
    ///   not in the owner itself;
    /// - nobody else writes them;
    /// - nobody else reads them, if `is_writable`;
    /// - `pointer` may be used to read them and, if `is_writable`, to write them.
    ///
    /// Any thread may use and drop the value.
    #[must_use]
    pub unsafe fn new(owner: Box<dyn Any + Send>, pointer: *mut u8, len: usize, is_writable: bool) -> Foreign {
        Foreign {
            owner,
            pointer,
            len,
            shown: ALL,
            is_writable,
        }
    }

    /// The bytes of a vector, as many as it is long; may be read into.
    #[must_use]
    pub fn of_vec(bytes: Vec<u8>) -> Foreign {
        let mut owner = Box::new(bytes);
        // From where the vector stays: moving it would be a use of the bytes by somebody else.
        let (pointer, len) = (owner.as_mut_ptr(), owner.len());
        // SAFETY: the bytes are in the vector's allocation, which moves with nothing, and the vector is out of reach.
        unsafe { Foreign::new(owner, pointer, len, true) }
    }

    /// A box of bytes; may be read into.
    #[must_use]
    pub fn of_box(bytes: Box<[u8]>) -> Foreign {
        let mut owner = Box::new(bytes);
        let (pointer, len) = (owner.as_mut_ptr(), owner.len());
        // SAFETY: the bytes are in the inner box's allocation, and that box is not moved before it is given back.
        unsafe { Foreign::new(owner, pointer, len, true) }
    }

    /// Bytes that others may share; may only be written from.
    #[must_use]
    pub fn of_arc(bytes: Arc<[u8]>) -> Foreign {
        let (pointer, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: while this owner exists the count is not zero; `get_mut` of another one finds that it is not alone.
        unsafe { Foreign::new(Box::new(bytes), pointer, len, false) }
    }

    /// Bytes that are always there; may only be written from.
    #[must_use]
    pub fn of_static(bytes: &'static [u8]) -> Foreign {
        let (pointer, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: they are borrowed for ever, so nobody writes them.
        unsafe { Foreign::new(Box::new(bytes), pointer, len, false) }
    }

    /// Length in bytes, of those that are shown.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.shown {
            ALL => self.len,
            shown => self.len.min(shown as usize),
        }
    }

    /// True for no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shows at most so many bytes from now on; the owner has all of them.
    pub(super) fn show(&mut self, len: usize) {
        self.shown = u32::try_from(len).unwrap_or(ALL);
    }

    /// May a read fill it?
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Is the owner of this type?
    #[must_use]
    pub fn is<T: Any>(&self) -> bool {
        self.owner.is::<T>()
    }

    /// What owns the bytes, with whatever they are now.
    #[must_use]
    pub fn into_owner(self) -> Box<dyn Any + Send> {
        self.owner
    }

    /// The same for who knows its type.
    ///
    /// # Errors
    /// `self`, if the owner is of another type.
    pub fn into_owner_of<T: Any + Send>(self) -> Result<T, Foreign> {
        let Foreign {
            owner,
            pointer,
            len,
            shown,
            is_writable,
        } = self;
        owner.downcast().map(|owner| *owner).map_err(|owner| Foreign {
            owner,
            pointer,
            len,
            shown,
            is_writable,
        })
    }

    /// Where it lies, as far as alignment goes.
    #[must_use]
    pub fn address(&self) -> usize {
        self.pointer.addr()
    }

    pub(super) fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// As much of `bytes` as fits behind the first `skip`; nothing if it may not be written.
    pub(super) fn copy_in_at(&mut self, skip: usize, bytes: &[u8]) {
        if !self.is_writable {
            return;
        }
        let skip = skip.min(self.len());
        let len = bytes.len().min(self.len() - skip);
        // SAFETY: inside the range, which is ours alone; `bytes` cannot overlap with what nobody else may read.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer.add(skip), len) };
    }

    pub(super) fn copy_out_at(&self, skip: usize, bytes: &mut [u8]) {
        let skip = skip.min(self.len());
        let len = bytes.len().min(self.len() - skip);
        // SAFETY: inside the range, which nobody writes; so `bytes`, which can be written, cannot overlap with it.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer.add(skip), bytes.as_mut_ptr(), len) };
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, Vectored, Window};

    #[test]
    fn a_vector_comes_back_with_what_was_copied_into_it() {
        let mut memory = Memory::from(Foreign::of_vec(vec![1; 8]));
        memory.copy_in_at(6, b"abcd");
        let mut seen = [0; 3];
        memory.copy_out_at(5, &mut seen);
        assert_eq!((&seen, memory.is_writable()), (b"\x01ab", true));
        let Memory::Foreign(foreign) = memory else {
            panic!("it was foreign");
        };
        assert!(foreign.is::<Vec<u8>>() && !foreign.is::<Box<[u8]>>());
        let foreign = foreign.into_owner_of::<String>().unwrap_err();
        assert_eq!(
            foreign.into_owner_of::<Vec<u8>>().unwrap(),
            *b"\x01\x01\x01\x01\x01\x01ab"
        );
    }

    #[test]
    fn a_box_is_moved_about_and_keeps_its_bytes() {
        let foreign = Foreign::of_box(vec![7; 4].into_boxed_slice());
        let mut held = vec![Memory::from(foreign)];
        held.reserve(100);
        held[0].copy_in_at(1, &[8, 9]);
        let Memory::Foreign(foreign) = held.swap_remove(0) else {
            panic!("it was foreign");
        };
        let owner = foreign.into_owner().downcast::<Box<[u8]>>().unwrap();
        assert_eq!(**owner, [7, 8, 9, 7]);
    }

    #[test]
    fn shared_and_static_bytes_are_never_written() {
        let shared: Arc<[u8]> = Arc::from(&b"shared"[..]);
        for foreign in [Foreign::of_arc(Arc::clone(&shared)), Foreign::of_static(b"static")] {
            let mut memory = Memory::from(foreign);
            assert!(!memory.is_writable() && memory.len() == 6);
            memory.copy_in_at(0, b"XXXXXX");
            let mut seen = [0; 8];
            memory.copy_out_at(0, &mut seen);
            assert!(seen == *b"shared\0\0" || seen == *b"static\0\0");
        }
        assert_eq!((&*shared, Arc::strong_count(&shared)), (&b"shared"[..], 1));
    }

    #[test]
    fn a_list_holds_them_among_others() {
        let mut list = Vectored::with_capacity(3);
        list.push(Foreign::of_vec(vec![0; 3]).into()).unwrap();
        list.push(Foreign::of_box(vec![0; 2].into()).into()).unwrap();
        let mut memory = Memory::Many(list);
        memory.copy_in_at(1, b"abcd");
        let mut seen = [0; 5];
        memory.copy_out_at(0, &mut seen);
        assert_eq!(&seen, b"\0abcd");
        assert!(memory.is_writable());
        assert!(matches!(memory.window(4), Window::List { count: 1, .. }));
    }

    #[test]
    fn the_owner_goes_with_the_value() {
        let owner = Arc::new(());
        let bytes = b"of a library".as_ptr().cast_mut();
        // SAFETY: the bytes are static.
        let foreign = unsafe { Foreign::new(Box::new(Arc::clone(&owner)), bytes, 12, false) };
        let memory = std::thread::spawn(move || Memory::from(foreign)).join().unwrap();
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(memory);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
