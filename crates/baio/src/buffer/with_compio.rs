//! The buffers of compio.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use ::compio::buf::{IoBuf as TheirIoBuf, IoBufMut as TheirIoBufMut};
use baio_engine::{Foreign, Memory};

use super::sealed::{Carried, Filled, Piece};
use super::standard::owner_of;
use super::{IoBuf, IoBufMut};

/// A buffer that compio's own operations take, which behaves as there: a write takes its bytes, a read fills it from its first byte
/// to its capacity and makes it as long as what was read, unless it is longer.
///
/// What a read may fill and has no bytes yet is set to zero first, as no memory of a request is uninitialised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compio<B>(
    /// The buffer.
    pub B,
);

/// A buffer at a place of its own, for it may hold its bytes in itself.
struct Pinned<B> {
    place: NonNull<B>,
    /// Tells it how much of it a read has filled.
    advance: Option<fn(&mut B, usize)>,
}

// SAFETY: it owns the buffer, as a box does.
unsafe impl<B: Send> Send for Pinned<B> {}

impl<B> Pinned<B> {
    fn new(buffer: B, advance: Option<fn(&mut B, usize)>) -> Pinned<B> {
        Pinned {
            place: NonNull::from(Box::leak(Box::new(buffer))),
            advance,
        }
    }

    fn into_inner(self) -> B {
        let place = std::mem::ManuallyDrop::new(self).place;
        // SAFETY: from `Box::leak`, and `self` is not dropped.
        *unsafe { Box::from_raw(place.as_ptr()) }
    }
}

impl<B> Drop for Pinned<B> {
    fn drop(&mut self) {
        // SAFETY: from `Box::leak`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(self.place.as_ptr()) });
    }
}

impl<B: TheirIoBuf + Send> IoBuf for Compio<B> {}
impl<B: TheirIoBufMut + Send> IoBufMut for Compio<B> {}
impl<B: TheirIoBuf + Send> Piece for Compio<B> {}
impl<B: TheirIoBuf + Send> Carried for Compio<B> {
    fn into_memory(self) -> Memory {
        let owner = Pinned::new(self.0, None);
        // SAFETY: nobody else has the buffer.
        let bytes = unsafe { owner.place.as_ref() }.as_init();
        let (pointer, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: `bytes` is borrowed from the buffer, which is neither moved nor touched before the end: so long nobody can write
        // them. They are in it or behind it, and it is behind the owner's pointer.
        unsafe { Foreign::new(Box::new(owner), pointer, len, false) }.into()
    }

    fn from_memory(memory: Memory) -> Option<Compio<B>> {
        owner_of::<Pinned<B>>(memory).map(|owner| Compio(owner.into_inner()))
    }

    fn from_filled(memory: Memory, bytes: usize) -> Option<Compio<B>> {
        let owner = owner_of::<Pinned<B>>(memory)?;
        let advance = owner.advance;
        let mut buffer = owner.into_inner();
        if let Some(advance) = advance {
            advance(&mut buffer, bytes);
        }
        Some(Compio(buffer))
    }
}

impl<B: TheirIoBufMut + Send> Filled for Compio<B> {
    fn into_room(self) -> Memory {
        // SAFETY: as many bytes as were read are initialised, as are those that are there already.
        let advance = |buffer: &mut B, bytes: usize| unsafe { buffer.advance_to(bytes) };
        let mut owner = Pinned::new(self.0, Some(advance));
        // SAFETY: nobody else has the buffer.
        let bytes = unsafe { owner.place.as_mut() }.ensure_init();
        let (pointer, len) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: as above, and `bytes` is borrowed exclusively.
        unsafe { Foreign::new(Box::new(owner), pointer, len, true) }.into()
    }
}
