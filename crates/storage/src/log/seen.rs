//! Reading the log's data, so that nothing judges what was not read.
//!
//! A read that fails is tried again block by block, up to the first block that cannot be read. What comes of it is a [`Seen`]: the
//! bytes that were read, and nothing in the place of others. Whoever wants more than these has to ask why there are no more, and
//! gets [`Unread`]: an error of the device, which says nothing of the data.

use baio_engine::{Buffer, Errno};

use super::LogIoKind;
use super::error::LogError;

/// A block of the area that could not be read, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) offset: u64,
    pub(super) errno: Errno,
}

impl From<Unread> for LogError {
    fn from(unread: Unread) -> LogError {
        LogError::Read {
            errno: unread.errno,
            offset: unread.offset,
        }
    }
}

/// What a read gave: from its beginning up to the first block that could not be read.
#[derive(Debug)]
pub(super) struct Seen {
    buffer: Option<Buffer>,
    offset: u64,
    cut: Option<Unread>,
}

impl Seen {
    /// The bytes from this byte of the area on; empty behind the end of what was asked for.
    pub(super) fn from(&self, offset: u64) -> Result<&[u8], Unread> {
        let at = offset.checked_sub(self.offset);
        let bytes = self
            .buffer
            .as_deref()
            .zip(at)
            .and_then(|(all, at)| all.get(at as usize..));
        match (bytes, self.cut) {
            (Some(bytes), None) => Ok(bytes),
            (Some(bytes), Some(_)) if !bytes.is_empty() => Ok(bytes),
            (_, Some(unread)) if unread.offset <= offset => Err(unread),
            _ => Ok(&[]),
        }
    }

    /// Why there are no more bytes, if it is for a block that could not be read.
    pub(super) fn cut(&self) -> Option<Unread> {
        self.cut
    }

    fn up_to(bytes: usize, mut buffer: Buffer, offset: u64, cut: Option<Unread>) -> Seen {
        buffer.set_len(bytes);
        Seen {
            buffer: Some(buffer),
            offset,
            cut,
        }
    }

    /// The memory, with what was read in it.
    pub(super) fn into_buffer(self) -> Option<Buffer> {
        self.buffer
    }
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Reading {
    offset: u64,
    len: u32,
    block: u32,
    pieces: Option<Pieces>,
}

/// It is read block by block.
#[derive(Debug)]
struct Pieces {
    whole: Buffer,
    read: u32,
}

/// An I/O of a read has ended.
pub(super) enum Heard {
    /// It is over. The memory of a single block comes back, if one was read last.
    Seen(Seen, Option<Buffer>),
    /// A block is read next: into this memory, or into some that is still to be had.
    Block(Reading, Option<Buffer>),
}

impl Reading {
    pub(super) fn new(offset: u64, len: u32, block: u32) -> Reading {
        Reading {
            offset,
            len,
            block,
            pieces: None,
        }
    }

    /// How many bytes are read in all.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// What the device is asked for now.
    pub(super) fn kind(&self) -> LogIoKind {
        let (offset, len) = self.asked();
        LogIoKind::Read { offset, len }
    }

    fn asked(&self) -> (u64, u32) {
        match &self.pieces {
            None => (self.offset, self.len),
            Some(pieces) => (self.offset + u64::from(pieces.read), self.block),
        }
    }

    pub(super) fn ended(self, result: Result<u32, Errno>, buffer: Option<Buffer>) -> Heard {
        let (offset, len) = self.asked();
        // As many bytes as were asked for, or none.
        let errno = match (result, &buffer) {
            (Err(errno), _) => Some(errno),
            (Ok(read), Some(buffer)) if read == len && buffer.len() == len as usize => None,
            _ => Some(Errno::EIO),
        };
        let unread = errno.map(|errno| Unread { offset, errno });
        match self.pieces {
            Some(pieces) => pieces.ended(Reading { pieces: None, ..self }, unread, buffer),
            None => match (unread, buffer) {
                (Some(_), Some(mut whole)) if whole.capacity() >= len as usize && len > self.block => {
                    whole.set_len(len as usize);
                    let pieces = Some(Pieces { whole, read: 0 });
                    Heard::Block(Reading { pieces, ..self }, None)
                }
                (Some(_), Some(whole)) => Heard::Seen(Seen::up_to(0, whole, self.offset, unread), None),
                (cut, buffer) => Heard::Seen(Seen { buffer, offset, cut }, None),
            },
        }
    }
}

impl Pieces {
    /// A block was read, or not.
    fn ended(mut self, all: Reading, unread: Option<Unread>, block: Option<Buffer>) -> Heard {
        let (from, to) = (self.read as usize, (self.read + all.block) as usize);
        if unread.is_some() {
            return Heard::Seen(Seen::up_to(from, self.whole, all.offset, unread), block);
        }
        if let (Some(into), Some(block)) = (self.whole.get_mut(from..to), &block) {
            into.copy_from_slice(block);
        }
        self.read += all.block;
        if self.read < all.len {
            let pieces = Some(self);
            return Heard::Block(Reading { pieces, ..all }, block);
        }
        Heard::Seen(Seen::up_to(to, self.whole, all.offset, None), block)
    }
}
