//! The standard library's owners of bytes. The kernel uses their own address.

#![allow(unsafe_code)]

use std::sync::Arc;

use baio_engine::{Foreign, Memory};

use super::sealed::{Carried, Filled, Piece};
use super::{IoBuf, IoBufMut};

/// What was put in as the owner of foreign bytes.
pub(super) fn owner_of<T: Send + 'static>(memory: Memory) -> Option<T> {
    match memory {
        Memory::Foreign(foreign) => foreign.into_owner_of().ok(),
        _ => None,
    }
}

/// As many bytes as its length; what it has room for is not used.
impl IoBuf for Vec<u8> {}
impl IoBufMut for Vec<u8> {}
impl Piece for Vec<u8> {}
impl Filled for Vec<u8> {}
impl Carried for Vec<u8> {
    fn into_memory(self) -> Memory {
        Foreign::of_vec(self).into()
    }

    fn from_memory(memory: Memory) -> Option<Vec<u8>> {
        owner_of(memory)
    }
}

impl IoBuf for Box<[u8]> {}
impl IoBufMut for Box<[u8]> {}
impl Piece for Box<[u8]> {}
impl Filled for Box<[u8]> {}
impl Carried for Box<[u8]> {
    fn into_memory(self) -> Memory {
        Foreign::of_box(self).into()
    }

    fn from_memory(memory: Memory) -> Option<Box<[u8]>> {
        owner_of(memory)
    }
}

/// To be written from only: others may share it.
impl IoBuf for Arc<[u8]> {}
impl Piece for Arc<[u8]> {}
impl Carried for Arc<[u8]> {
    fn into_memory(self) -> Memory {
        Foreign::of_arc(self).into()
    }

    fn from_memory(memory: Memory) -> Option<Arc<[u8]>> {
        owner_of(memory)
    }
}

/// To be written from only.
impl IoBuf for &'static [u8] {}
impl Piece for &'static [u8] {}
impl Carried for &'static [u8] {
    fn into_memory(self) -> Memory {
        Foreign::of_static(self).into()
    }

    fn from_memory(memory: Memory) -> Option<&'static [u8]> {
        owner_of(memory)
    }
}

/// To be written from only: `b"a literal"`.
impl<const N: usize> IoBuf for &'static [u8; N] {}
impl<const N: usize> Piece for &'static [u8; N] {}
impl<const N: usize> Carried for &'static [u8; N] {
    fn into_memory(self) -> Memory {
        Foreign::of_static(self).into()
    }

    fn from_memory(memory: Memory) -> Option<&'static [u8; N]> {
        owner_of::<&'static [u8]>(memory)?.try_into().ok()
    }
}

/// To be written from only: what is read need not be text.
impl IoBuf for String {}
impl Piece for String {}
impl Carried for String {
    fn into_memory(self) -> Memory {
        let (pointer, len) = (self.as_ptr().cast_mut(), self.len());
        // SAFETY: the bytes lie in the string's allocation, which is its own and moves with nothing.
        unsafe { Foreign::new(Box::new(self), pointer, len, false) }.into()
    }

    fn from_memory(memory: Memory) -> Option<String> {
        owner_of(memory)
    }
}
