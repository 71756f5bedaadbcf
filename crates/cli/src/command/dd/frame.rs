//! Where a piece lies on its two ends, and in its buffer.
//!
//! Requests on segments and direct files are whole blocks, so a piece is read with the block that it begins in, moved
//! inside its buffer where the output wants it, and written with the blocks that it begins and ends in:
//!
//! ```text
//! input    |....pppp|pppppppp|pp......|      read: 3 blocks, the piece begins at byte 4 of the buffer
//! output   |......pp|pppppppp|pppp....|      written: 3 blocks, the piece begins at byte 6 of the buffer
//!           ^^^^^^               ^^^^        head and tail: what the output keeps, read from it before
//! ```

use super::ends::{BLOCK, End};
use super::plan::Piece;

/// A range of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// A piece on its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadFrame {
    /// What to read.
    pub(super) range: Range,
    /// Where the piece then begins in the buffer.
    pub(super) head: u64,
}

impl ReadFrame {
    pub(super) fn of(input: &End, piece: Piece) -> ReadFrame {
        ReadFrame::at(input.offset(piece.position), piece.len, input.align)
    }

    fn at(offset: u64, len: u64, align: u64) -> ReadFrame {
        let head = offset % align.max(1);
        ReadFrame {
            range: Range {
                offset: offset - head,
                len: round_up(head.saturating_add(len), align),
            },
            head,
        }
    }
}

/// A piece on its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WriteFrame {
    /// What to write.
    pub(super) range: Range,
    /// Where the piece begins in the buffer.
    pub(super) head: u64,
    /// Where it ends in the buffer.
    pub(super) end: u64,
}

impl WriteFrame {
    pub(super) fn of(output: &End, piece: Piece) -> WriteFrame {
        let align = if output.keeps_blocks() { BLOCK } else { 1 };
        WriteFrame::at(output.offset(piece.position), piece.len, align)
    }

    fn at(offset: u64, len: u64, align: u64) -> WriteFrame {
        let head = offset % align;
        let end = head.saturating_add(len);
        WriteFrame {
            range: Range {
                offset: offset - head,
                len: round_up(end, align),
            },
            head,
            end,
        }
    }

    /// The block whose beginning is to be kept.
    pub(super) fn head_block(&self) -> Option<Range> {
        (self.head > 0).then_some(Range {
            offset: self.range.offset,
            len: BLOCK,
        })
    }

    /// The block whose end is to be kept; none if it is the head's, which is read already.
    pub(super) fn tail_block(&self) -> Option<Range> {
        let needed = self.end < self.range.len && !self.is_one_block_with_head();
        needed.then(|| Range {
            offset: self.range.offset + self.range.len.saturating_sub(BLOCK),
            len: BLOCK,
        })
    }

    fn is_one_block_with_head(&self) -> bool {
        self.head > 0 && self.range.len == BLOCK
    }

    /// Puts the bytes that the first block keeps before, and if it is also the last one behind, the piece.
    pub(super) fn keep_head(&self, buffer: &mut [u8], block: &[u8]) {
        keep(buffer, 0, block, 0, self.head);
        if self.is_one_block_with_head() {
            keep(buffer, self.end, block, self.end, BLOCK);
        }
    }

    /// Puts the bytes that the last block keeps behind the piece.
    pub(super) fn keep_tail(&self, buffer: &mut [u8], block: &[u8]) {
        keep(buffer, self.end, block, self.end % BLOCK, BLOCK);
    }
}

/// Copies `block[from..to]` to `buffer[at..]`.
fn keep(buffer: &mut [u8], at: u64, block: &[u8], from: u64, to: u64) {
    let kept = block.get(from as usize..to as usize).unwrap_or(&[]);
    if let Some(place) = buffer.get_mut(at as usize..at as usize + kept.len()) {
        place.copy_from_slice(kept);
    }
}

pub(super) fn round_up(value: u64, align: u64) -> u64 {
    value.checked_next_multiple_of(align.max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_read_with_the_blocks_around_it() {
        let frame = ReadFrame::at(5000, 100, 4096);
        assert_eq!(
            frame.range,
            Range {
                offset: 4096,
                len: 4096
            }
        );
        assert_eq!(frame.head, 904);
        let frame = ReadFrame::at(5000, 100, 1);
        assert_eq!((frame.range, frame.head), (Range { offset: 5000, len: 100 }, 0));
    }

    #[test]
    fn the_output_keeps_what_it_was_not_given() {
        let one = WriteFrame::at(4096 + 10, 20, 4096);
        assert_eq!(
            one.head_block(),
            Some(Range {
                offset: 4096,
                len: 4096
            })
        );
        assert_eq!(one.tail_block(), None);
        let mut buffer = [1; 4096];
        one.keep_head(&mut buffer, &[7; 4096]);
        assert!(buffer[..10].iter().chain(&buffer[30..]).all(|byte| *byte == 7));
        assert!(buffer[10..30].iter().all(|byte| *byte == 1));

        let two = WriteFrame::at(10, 8000, 4096);
        assert_eq!(
            two.tail_block(),
            Some(Range {
                offset: 4096,
                len: 4096
            })
        );
        let mut buffer = [1; 8192];
        two.keep_head(&mut buffer, &[7; 4096]);
        two.keep_tail(&mut buffer, &[8; 4096]);
        assert_eq!((buffer[9], buffer[10], buffer[8009], buffer[8010]), (7, 1, 1, 8));

        let whole = WriteFrame::at(8192, 4096, 4096);
        assert_eq!((whole.head_block(), whole.tail_block()), (None, None));
    }
}
