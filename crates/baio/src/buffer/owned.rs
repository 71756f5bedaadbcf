//! Buffers of the user's own types.

#![allow(unsafe_code)]

use baio_engine::{Foreign, Memory};

use super::sealed::{Carried, Filled, Piece};
use super::standard::owner_of;
use super::{IoBuf, IoBufMut};

/// A type that owns bytes: pages of another library, a mapping, memory with an alignment of its own.
///
/// ```
/// use baio::{File, Link, Local, Owned, OwnedBytes, OwnedBytesMut};
///
/// /// A page that any direct request can use.
/// #[repr(align(4096))]
/// struct Page([u8; 4096]);
/// struct BoxedPage(Box<Page>);
///
/// // SAFETY: the bytes are initialised, and in the box's allocation, which nobody else can reach.
/// unsafe impl OwnedBytes for BoxedPage {
///     fn bytes(&mut self) -> (*mut u8, usize) {
///         (self.0.0.as_mut_ptr(), 4096)
///     }
/// }
/// // SAFETY: the pointer may be used to write them.
/// unsafe impl OwnedBytesMut for BoxedPage {}
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("baio-owned-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("pages");
/// let link = Local::new()?;
/// let file = File::options().write().create().open(&link, &path).wait()?;
/// let page = Owned(BoxedPage(Box::new(Page([7; 4096]))));
/// let page = file.write_at(0, page).wait()?.buffer;
/// let Owned(page) = file.read_at(0, page).wait()?.buffer;
/// assert_eq!(page.0.0, [7; 4096]);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok(()) }
/// ```
///
/// # Safety
/// What [`OwnedBytes::bytes`] gives, until the value is used again or dropped, wherever it is moved meanwhile, and for ever if it is
/// leaked (as the memory of a request is that a stuck device holds for ever):
/// - the bytes are initialised, and stay mapped at their place: they lie behind a pointer in the value, not in the value itself;
/// - nobody else writes them;
/// - the pointer may be used to read them.
pub unsafe trait OwnedBytes: Send + 'static {
    /// Where the bytes of a request begin, and how many they are.
    fn bytes(&mut self) -> (*mut u8, usize);
}

/// Bytes that a read may fill too.
///
/// # Safety
/// As [`OwnedBytes`]; nobody else reads the bytes either, and the pointer may be used to write them.
pub unsafe trait OwnedBytesMut: OwnedBytes {}

/// A buffer of the user's own type: the kernel uses its own address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owned<B>(
    /// What owns the bytes.
    pub B,
);

impl<B: OwnedBytes> Owned<B> {
    fn into_foreign(self, is_writable: bool) -> Memory {
        let mut owner = Box::new(self.0);
        let (pointer, len) = owner.bytes();
        // SAFETY: the promise of `OwnedBytes`, and of `OwnedBytesMut` where they may be written; the value is out of reach until
        // its end.
        unsafe { Foreign::new(owner, pointer, len, is_writable) }.into()
    }
}

impl<B: OwnedBytes> IoBuf for Owned<B> {}
impl<B: OwnedBytesMut> IoBufMut for Owned<B> {}
impl<B: OwnedBytes> Piece for Owned<B> {}
impl<B: OwnedBytes> Carried for Owned<B> {
    fn into_memory(self) -> Memory {
        self.into_foreign(false)
    }

    fn from_memory(memory: Memory) -> Option<Owned<B>> {
        owner_of(memory).map(Owned)
    }
}
impl<B: OwnedBytesMut> Filled for Owned<B> {
    fn into_room(self) -> Memory {
        self.into_foreign(true)
    }
}
