//! A list of memory for one request.

#![allow(unsafe_code)]

use super::{Memory, Window};

/// A scatter-gather list that is filled once and used for many requests without a new allocation.
#[derive(Debug)]
pub struct Vectored {
    pub(super) parts: Vec<Memory>,
    /// For the kernel: the first `count` of these.
    window: Box<[libc::iovec]>,
    count: u32,
    /// At most so many bytes are shown, or `ALL`. Of 32 bits, as `Outcome` of the storage has no more room.
    shown: u32,
}

/// No limit.
const ALL: u32 = u32::MAX;

const NOWHERE: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

impl Default for Vectored {
    fn default() -> Vectored {
        Vectored::with_capacity(0)
    }
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
            window: vec![NOWHERE; parts.min(IOV_MAX)].into_boxed_slice(),
            count: 0,
            shown: ALL,
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

    /// Takes the parts out; the list keeps its room, and shows all that is added to it.
    pub fn drain(&mut self) -> impl Iterator<Item = Memory> + '_ {
        self.shown = ALL;
        self.parts.drain(..)
    }

    pub(super) fn len(&self) -> usize {
        let len: usize = self.parts.iter().map(Memory::len).sum();
        len.min(self.most())
    }

    /// Shows at most so many bytes from now on; its parts stay as they are.
    pub(super) fn show(&mut self, len: usize) {
        self.shown = ALL;
        if len < self.len() {
            self.shown = u32::try_from(len).unwrap_or(ALL);
        }
    }

    /// The bytes that it shows at most.
    pub(super) fn most(&self) -> usize {
        match self.shown {
            ALL => usize::MAX,
            shown => shown as usize,
        }
    }

    /// Points the kernel's list at what is left after `skip` bytes, at most `IOV_MAX` pieces of it. Parts that lie side by side
    /// in memory are one piece: the kernel takes each piece's pages anew.
    pub(super) fn aim(&mut self, mut skip: usize) -> Window {
        let (mut count, mut most) = (0, self.most());
        for part in &self.parts {
            let (pointer, len) = part.flat();
            let len = len.min(most);
            most -= len;
            if skip >= len {
                skip -= len;
                continue;
            }
            let piece = libc::iovec {
                iov_base: pointer.wrapping_add(skip).cast(),
                iov_len: len - skip,
            };
            skip = 0;
            match self.window[..count].last_mut() {
                Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == piece.iov_base => {
                    last.iov_len += piece.iov_len;
                    continue;
                }
                _ if count == IOV_MAX => break,
                _ => {}
            }
            if count == self.window.len() {
                grow(&mut self.window);
            }
            self.window[count] = piece;
            count += 1;
        }
        self.count = count as u32;
        Window::List {
            list: self.window.as_ptr(),
            count: self.count,
        }
    }

    /// What the kernel's list says, if that is a single piece.
    pub(super) fn only_piece(&self) -> Option<Window> {
        match self.window[..self.count as usize] {
            [one] => Some(Window::Flat {
                pointer: one.iov_base.cast(),
                len: one.iov_len,
            }),
            _ => None,
        }
    }
}

/// Makes room for more pieces, up to `IOV_MAX`.
fn grow(window: &mut Box<[libc::iovec]>) {
    let mut list = std::mem::take(window).into_vec();
    list.resize(list.len().saturating_mul(2).clamp(4, IOV_MAX), NOWHERE);
    *window = list.into_boxed_slice();
}

/// Most parts that one `preadv` takes (`limits.h`).
pub const IOV_MAX: usize = 1024;
