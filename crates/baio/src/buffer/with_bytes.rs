//! The buffers of the crate `bytes`.

#![allow(unsafe_code)]

use ::bytes::{Bytes, BytesMut};
use baio_engine::{Foreign, Memory};

use super::sealed::{Carried, Filled, Piece};
use super::standard::owner_of;
use super::{IoBuf, IoBufMut};

/// To be written from only: others may share it.
impl IoBuf for Bytes {}
impl Piece for Bytes {}
impl Carried for Bytes {
    fn into_memory(self) -> Memory {
        let (pointer, len) = (self.as_ptr().cast_mut(), self.len());
        // SAFETY: the bytes lie behind the value's pointer, in an allocation that lives as long as it does, or are static; nobody
        // writes what is shared.
        unsafe { Foreign::new(Box::new(self), pointer, len, false) }.into()
    }

    fn from_memory(memory: Memory) -> Option<Bytes> {
        owner_of(memory)
    }
}

/// As many bytes as its length; what it has room for is not used.
impl IoBuf for BytesMut {}
impl IoBufMut for BytesMut {}
impl Piece for BytesMut {}
impl Filled for BytesMut {}
impl Carried for BytesMut {
    fn into_memory(mut self) -> Memory {
        let (pointer, len) = (self.as_mut_ptr(), self.len());
        // SAFETY: the bytes lie behind the value's pointer, in an allocation of which this part is its own.
        unsafe { Foreign::new(Box::new(self), pointer, len, true) }.into()
    }

    fn from_memory(memory: Memory) -> Option<BytesMut> {
        owner_of(memory)
    }
}
