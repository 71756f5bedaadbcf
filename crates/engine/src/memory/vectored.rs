//! A list of memory for one request.

#![allow(unsafe_code)]

use super::Memory;

/// A scatter-gather list that is filled once and used for many requests without a new allocation.
#[derive(Debug, Default)]
pub struct Vectored {
    pub(super) parts: Vec<Memory>,
    pub(super) window: Vec<libc::iovec>,
}

// SAFETY: the list for the kernel is written anew for each iteration, and points into the parts, which the same value
// owns and which are `Send` themselves.
unsafe impl Send for Vectored {}
// SAFETY: `&Vectored` shows the parts only, which are `Sync` themselves.
unsafe impl Sync for Vectored {}

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

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(Memory::len).sum()
    }

    /// Points the kernel's list at what is left after `skip` bytes, at most `IOV_MAX` parts of it.
    pub(super) fn aim(&mut self, mut skip: usize) {
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
