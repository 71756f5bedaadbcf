//! A list of memory for one request.

#![allow(unsafe_code)]

use super::{Memory, Window};

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

    /// Copies `bytes` into one of the parts, behind its first `skip` bytes, as far as they fit.
    pub fn copy_in_part(&mut self, part: usize, skip: usize, bytes: &[u8]) {
        if let Some(part) = self.parts.get_mut(part) {
            part.copy_in_at(skip, bytes);
        }
    }

    /// Takes the parts out; the list keeps its room.
    pub fn drain(&mut self) -> impl Iterator<Item = Memory> + '_ {
        self.parts.drain(..)
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(Memory::len).sum()
    }

    /// Points the kernel's list at what is left after `skip` bytes, at most `IOV_MAX` pieces of it. Parts that lie side by side
    /// in memory are one piece: the kernel takes each piece's pages anew.
    pub(super) fn aim(&mut self, mut skip: usize) {
        self.window.clear();
        for part in &self.parts {
            let (pointer, len) = part.flat();
            if skip >= len {
                skip -= len;
                continue;
            }
            let piece = libc::iovec {
                iov_base: pointer.wrapping_add(skip).cast(),
                iov_len: len - skip,
            };
            skip = 0;
            let full = self.window.len() == IOV_MAX;
            match self.window.last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == piece.iov_base => {
                    last.iov_len += piece.iov_len;
                }
                _ if full => break,
                _ => self.window.push(piece),
            }
        }
    }

    /// What the kernel's list says, if that is a single piece.
    pub(super) fn only_piece(&self) -> Option<Window> {
        match self.window[..] {
            [one] => Some(Window::Flat {
                pointer: one.iov_base.cast(),
                len: one.iov_len,
            }),
            _ => None,
        }
    }
}

/// Most parts that one `preadv` takes (`limits.h`).
pub const IOV_MAX: usize = 1024;
