//! What a request can carry: any owned buffer.
//!
//! | buffer | on its way |
//! |---|---|
//! | [`Buffer`], of the link's arena | registered with the kernel where that is allowed; no copy, on every link |
//! | `Vec<u8>`, `Box<[u8]>`, `BytesMut` (feature `bytes`), `Compio` (feature `compio`), [`Owned`] | the kernel uses its own address; no copy. Direct requests need it aligned, see [`Request::bounced`](crate::Request::bounced) |
//! | [`Frozen`], `Arc<[u8]>`, `&'static [u8]`, `String`, `Bytes` (feature `bytes`) | the same, to be written from only |
//! | `Vec<B>` of the others | several, one behind the other in the file (preadv2(2)); at most 1024 |

mod owned;
mod standard;
#[cfg(feature = "bytes")]
mod with_bytes;
#[cfg(feature = "compio")]
mod with_compio;

use baio_engine::{Buffer, Frozen, Memory, Vectored};

pub use owned::{Owned, OwnedBytes, OwnedBytesMut};
#[cfg(feature = "compio")]
pub use with_compio::Compio;

/// A buffer that a request can own until its end: what it writes, or reads into ([`IoBufMut`]).
///
/// Sealed: a type of your own goes by [`Owned`].
pub trait IoBuf: Sized + Send + 'static + sealed::Carried {}

/// A buffer that a read can fill: as many bytes as its length (of a `Compio`, as its capacity).
///
/// ```compile_fail
/// fn can_be_filled<B: baio::IoBufMut>() {}
/// can_be_filled::<std::sync::Arc<[u8]>>();
/// ```
pub trait IoBufMut: IoBuf + sealed::Filled {}

pub(crate) mod sealed {
    use baio_engine::Memory;

    /// Into the memory of a request, and back.
    pub trait Carried: Sized {
        fn into_memory(self) -> Memory;

        /// `None`: it is not what went in; the kernel still has that.
        fn from_memory(memory: Memory) -> Option<Self>;

        /// The same after a read into its first `bytes`.
        fn from_filled(memory: Memory, bytes: usize) -> Option<Self> {
            let _ = bytes;
            Self::from_memory(memory)
        }
    }

    /// What a read can fill.
    pub trait Filled: Carried {
        /// All that a read may fill, where that is not what a write would take.
        fn into_room(self) -> Memory {
            self.into_memory()
        }
    }

    /// One piece of memory: lists do not nest.
    pub trait Piece: Carried {}
}

use sealed::{Carried, Filled, Piece};

impl IoBuf for Buffer {}
impl IoBufMut for Buffer {}
impl Filled for Buffer {}
impl Piece for Buffer {}
impl Carried for Buffer {
    fn into_memory(self) -> Memory {
        Memory::Own(self)
    }

    fn from_memory(memory: Memory) -> Option<Buffer> {
        memory.into_buffer()
    }
}

impl IoBuf for Frozen {}
impl Piece for Frozen {}
impl Carried for Frozen {
    fn into_memory(self) -> Memory {
        Memory::Shared(self)
    }

    fn from_memory(memory: Memory) -> Option<Frozen> {
        match memory {
            Memory::Shared(frozen) => Some(frozen),
            _ => None,
        }
    }
}

/// Whatever the engine knows, as it is.
impl IoBuf for Memory {}
impl IoBufMut for Memory {}
impl Filled for Memory {}
impl Carried for Memory {
    fn into_memory(self) -> Memory {
        self
    }

    fn from_memory(memory: Memory) -> Option<Memory> {
        Some(memory)
    }
}

/// For requests without bytes: a sync, a discard.
impl IoBuf for () {}
impl Carried for () {
    fn into_memory(self) -> Memory {
        Memory::None
    }

    fn from_memory(_: Memory) -> Option<()> {
        Some(())
    }
}

/// Several buffers, one behind the other.
impl<B: IoBuf + Piece> IoBuf for Vec<B> {}
impl<B: IoBufMut + Piece> IoBufMut for Vec<B> {}
impl<B: IoBufMut + Piece> Filled for Vec<B> {
    fn into_room(self) -> Memory {
        list_of(self, B::into_room)
    }
}
impl<B: IoBuf + Piece> Carried for Vec<B> {
    fn into_memory(self) -> Memory {
        list_of(self, B::into_memory)
    }

    fn from_memory(memory: Memory) -> Option<Vec<B>> {
        match memory {
            Memory::Many(mut list) => list.drain().map(B::from_memory).collect(),
            _ => None,
        }
    }

    fn from_filled(memory: Memory, bytes: usize) -> Option<Vec<B>> {
        let mut left = bytes;
        match memory {
            Memory::Many(mut list) => {
                let parts = list.drain().map(|part| {
                    let filled = part.len().min(left);
                    left = left.saturating_sub(filled);
                    B::from_filled(part, filled)
                });
                parts.collect()
            }
            _ => None,
        }
    }
}

fn list_of<B>(buffers: Vec<B>, memory: fn(B) -> Memory) -> Memory {
    let mut list = Vectored::with_capacity(buffers.len());
    for buffer in buffers {
        // It has room for all of them.
        let _ = list.push(memory(buffer));
    }
    Memory::Many(list)
}
