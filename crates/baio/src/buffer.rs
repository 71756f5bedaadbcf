//! What a request can carry: any owned buffer.
//!
//! | buffer | on its way |
//! |---|---|
//! | [`Buffer`], of the link's arena | registered with the kernel where that is allowed; no copy, on every link |
//! | `Vec<u8>`, `Box<[u8]>`, [`Owned`] | the kernel uses its own address; no copy. Direct requests need it aligned, see [`Request::bounced`](crate::Request::bounced) |
//! | [`Frozen`], `Arc<[u8]>`, `&'static [u8]` | the same, to be written from only |
//! | `Vec<B>` of the others | several, one behind the other in the file (preadv2(2)); at most 1024 |

use baio_engine::{Buffer, Frozen, Memory, Vectored};

/// A buffer that a request can own until its end: what it writes, or reads into ([`IoBufMut`]).
///
/// Sealed: a type of your own goes by [`Owned`].
pub trait IoBuf: Sized + Send + 'static + sealed::Carried {}

/// A buffer that a read can fill: as many bytes as its length.
pub trait IoBufMut: IoBuf {}

pub(crate) mod sealed {
    use baio_engine::Memory;

    /// Into the memory of a request, and back.
    pub trait Carried: Sized {
        fn into_memory(self) -> Memory;

        /// `None`: it is not what went in; the kernel still has that.
        fn from_memory(memory: Memory) -> Option<Self>;
    }

    /// One piece of memory: lists do not nest.
    pub trait Piece: Carried {}
}

use sealed::{Carried, Piece};

impl IoBuf for Buffer {}
impl IoBufMut for Buffer {}
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
impl<B: IoBuf + Piece> Carried for Vec<B> {
    fn into_memory(self) -> Memory {
        let mut list = Vectored::with_capacity(self.len());
        for buffer in self {
            // It has room for all of them.
            let _ = list.push(buffer.into_memory());
        }
        Memory::Many(list)
    }

    fn from_memory(memory: Memory) -> Option<Vec<B>> {
        match memory {
            Memory::Many(mut list) => list.drain().map(B::from_memory).collect(),
            _ => None,
        }
    }
}
