//! What is written of an input that comes in order: bytes become blocks of the output, and blocks become pieces.
//!
//! ```text
//! bytes --> a block: `obs=` bytes, or a record --> zeros are passed over (`conv=sparse`)
//!                                              \-> gathered until a piece is full, or by itself
//! ```
//!
//! Where nobody can see whether a block of 512 bytes is a request of its own, blocks are gathered. Pieces end where the output has its
//! blocks (`plan.rs`), so that only the first and the last one go through a cache.

use std::collections::VecDeque;

use baio::Buffer;
use baio_console::failure::Failure;

use super::plan::{Cuts, Piece};

/// No more blocks wait where each has a buffer of its own.
const AT_ONCE_MAX: usize = 64;

/// Gives a buffer of this many bytes.
pub(super) type Spare<'a> = &'a mut dyn FnMut(usize) -> Result<Buffer, Failure>;

/// How the output wants its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a block; `None`: each record is one.
    pub(super) block: Option<u64>,
    /// Blocks of zeros are passed over.
    pub(super) sparse: bool,
    /// Each block is written as soon as it is whole.
    pub(super) at_once: bool,
    pub(super) cuts: Cuts,
    /// Bytes that the output has room for.
    pub(super) room: u64,
}

/// Bytes gathered for a piece that is not full yet.
struct Gathered {
    piece: Piece,
    buffer: Buffer,
}

/// The blocks of an output.
pub(super) struct Blocks {
    layout: Layout,
    /// Bytes of the one that is not whole yet.
    in_block: usize,
    /// Where zeros are passed over, these bytes.
    block: Vec<u8>,
    gathered: Option<Gathered>,
    /// Pieces that wait to be written. One without a buffer is passed over.
    pieces: VecDeque<(Piece, Option<Buffer>)>,
    /// Where what is taken next goes.
    position: u64,
    overflows: bool,
    ends_in_hole: bool,
}

impl Blocks {
    pub(super) fn new(layout: Layout) -> Blocks {
        Blocks {
            layout,
            in_block: 0,
            block: Vec::new(),
            gathered: None,
            pieces: VecDeque::new(),
            position: 0,
            overflows: false,
            ends_in_hole: false,
        }
    }

    /// Where all that was taken ends.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Where the last whole block ends.
    pub(super) fn whole(&self) -> u64 {
        match self.layout.sparse {
            true => self.position,
            false => self.position - self.in_block as u64,
        }
    }

    /// Was there more than there is room for?
    pub(super) fn overflow(&self) -> bool {
        self.overflows
    }

    /// Was the last block passed over?
    pub(super) fn end_in_hole(&self) -> bool {
        self.ends_in_hole
    }

    /// Is each record one?
    pub(super) fn are_records(&self) -> bool {
        self.layout.block.is_none()
    }

    pub(super) fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub(super) fn next_piece(&mut self) -> Option<(Piece, Option<Buffer>)> {
        self.pieces.pop_front()
    }

    /// Can a buffer with `len` bytes become a block and a piece without a copy?
    pub(super) fn takes_whole(&self, len: u64) -> bool {
        let layout = &self.layout;
        let is_block = layout.block.is_none_or(|block| block == len) && self.in_block == 0;
        let fills = layout.cuts.end_of(self.position) - self.position;
        let is_piece = len == fills || layout.at_once && len < fills && self.tail(self.position, len) == 0;
        let fits = layout.room.saturating_sub(self.position) >= len;
        is_block && is_piece && fits && !layout.sparse && self.gathered.is_none()
    }

    /// Takes such a buffer.
    pub(super) fn put_whole(&mut self, buffer: Buffer, len: u64) {
        self.pieces.push_back((whole(self.position, len), Some(buffer)));
        self.position += len;
    }

    /// Bytes that may be taken at once.
    pub(super) fn step(&self) -> usize {
        match self.layout.block {
            Some(block) if self.layout.at_once => (block as usize).saturating_mul(AT_ONCE_MAX),
            _ => usize::MAX,
        }
    }

    /// Takes bytes.
    pub(super) fn put(&mut self, mut bytes: &[u8], spare: Spare<'_>) -> Result<(), Failure> {
        let size = self.layout.block.map_or(usize::MAX, |size| size as usize);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(size.saturating_sub(self.in_block)));
            match self.layout.sparse {
                // Only a whole one can be passed over.
                true => self.block.extend_from_slice(now),
                false => self.put_bytes(now, spare)?,
            }
            self.in_block += now.len();
            if self.in_block >= size {
                self.end_block(spare)?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// The block is whole, whatever it has.
    pub(super) fn end_block(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        self.in_block = 0;
        if !self.block.is_empty() {
            let block = std::mem::take(&mut self.block);
            let put = self.put_sparse(&block, spare);
            // Its memory serves the next one.
            self.block = block;
            self.block.clear();
            put?;
        }
        match self.layout.at_once {
            true => self.flush(spare),
            false => Ok(()),
        }
    }

    fn put_sparse(&mut self, block: &[u8], spare: Spare<'_>) -> Result<(), Failure> {
        let (position, len) = (self.position, block.len() as u64);
        // What has no place is written, and so refused.
        let fits = self.layout.room.saturating_sub(position) >= len;
        self.ends_in_hole = fits && block.iter().all(|byte| *byte == 0);
        if !self.ends_in_hole {
            return self.put_bytes(block, spare);
        }
        self.position += len;
        self.flush(spare)?;
        self.pass_over(position, len);
        Ok(())
    }

    fn put_bytes(&mut self, bytes: &[u8], spare: Spare<'_>) -> Result<(), Failure> {
        let (position, len) = (self.position, bytes.len() as u64);
        let fits = len.min(self.layout.room.saturating_sub(position));
        self.position += len;
        self.overflows |= fits < len;
        self.gather(position, bytes.get(..fits as usize).unwrap_or(bytes), spare)
    }

    fn pass_over(&mut self, position: u64, len: u64) {
        match self.pieces.back_mut() {
            Some((hole, None)) => hole.len += len,
            _ => self.pieces.push_back((whole(position, len), None)),
        }
    }

    fn gather(&mut self, mut position: u64, mut bytes: &[u8], spare: Spare<'_>) -> Result<(), Failure> {
        let Layout {
            mut cuts,
            at_once,
            block,
            ..
        } = self.layout;
        let mut needed = cuts.piece;
        if at_once {
            // Nothing of a block is written before it is whole.
            cuts.unit = 1;
            needed = block.unwrap_or(needed).min(needed);
        }
        while !bytes.is_empty() {
            let gathered = match &mut self.gathered {
                Some(gathered) => gathered,
                none => none.insert(Gathered {
                    piece: whole(position, 0),
                    buffer: spare(needed as usize)?,
                }),
            };
            let taken = gathered.add(&cuts, bytes);
            if taken == 0 {
                return Err(Failure::new("dd", "ENOBUFS", "a buffer is smaller than its piece"));
            }
            position += taken as u64;
            bytes = bytes.get(taken..).unwrap_or_default();
            if gathered.is_full(&cuts) {
                self.flush_gathered();
            }
        }
        Ok(())
    }

    /// The input has ended: all that there is becomes pieces.
    pub(super) fn finish(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        self.end_block(spare)?;
        self.flush(spare)
    }

    /// Only whole blocks become pieces.
    pub(super) fn stop(&mut self) {
        self.block.clear();
        if let (Some(gathered), false) = (&mut self.gathered, self.layout.sparse) {
            gathered.piece.len = gathered.piece.len.saturating_sub(self.in_block as u64);
        }
        self.in_block = 0;
        self.gathered.take_if(|gathered| gathered.piece.len == 0);
        self.flush_gathered();
    }

    /// What is gathered is written. What does not end where the output has its blocks goes by itself.
    fn flush(&mut self, spare: Spare<'_>) -> Result<(), Failure> {
        let parted = self.gathered.as_ref().map_or((0, 0), |Gathered { piece, .. }| {
            (piece.position, self.tail(piece.position, piece.len))
        });
        let (Some(gathered), (_, 1..)) = (&mut self.gathered, parted) else {
            self.flush_gathered();
            return Ok(());
        };
        let tail = parted.1;
        let mut buffer = spare(tail as usize)?;
        let piece = &mut gathered.piece;
        piece.len -= tail;
        let from = piece.len as usize..(piece.len + tail) as usize;
        if let (Some(to), Some(from)) = (buffer.get_mut(..tail as usize), gathered.buffer.get(from)) {
            to.copy_from_slice(from);
        }
        let rest = (whole(piece.position + piece.len, tail), Some(buffer));
        self.flush_gathered();
        self.pieces.push_back(rest);
        Ok(())
    }

    fn flush_gathered(&mut self) {
        if let Some(Gathered { piece, buffer }) = self.gathered.take() {
            self.pieces.push_back((piece, Some(buffer)));
        }
    }

    /// Bytes behind the last block of the output that ends within a piece; none if there is nothing before them.
    fn tail(&self, position: u64, len: u64) -> u64 {
        let cuts = &self.layout.cuts;
        let tail = (cuts.seek.saturating_add(position).saturating_add(len)) % cuts.unit.max(1);
        if tail < len { tail } else { 0 }
    }
}

impl Gathered {
    fn end(&self, cuts: &Cuts) -> u64 {
        cuts.end_of(self.piece.position) - self.piece.position
    }

    fn is_full(&self, cuts: &Cuts) -> bool {
        self.piece.len >= self.end(cuts)
    }

    /// Copies what fits in; says how much that was.
    fn add(&mut self, cuts: &Cuts, bytes: &[u8]) -> usize {
        let left = self.end(cuts).saturating_sub(self.piece.len);
        let begin = self.piece.len as usize;
        let free = self.buffer.get_mut(begin..).unwrap_or(&mut []);
        let len = bytes.len().min(free.len()).min(left as usize);
        if let (Some(to), Some(from)) = (free.get_mut(..len), bytes.get(..len)) {
            to.copy_from_slice(from);
        }
        self.piece.len += len as u64;
        len
    }
}

fn whole(position: u64, len: u64) -> Piece {
    Piece {
        position,
        len,
        has_no_room: false,
    }
}
