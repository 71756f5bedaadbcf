//! Where a piece lies on its input, and in its buffer.
//!
//! Reads of segments and direct files are whole blocks, so a piece is read with the block that it begins in and the one that it ends in,
//! and then moved to the beginning of its buffer:
//!
//! ```text
//! input    |....pppp|pppppppp|pp......|      read: 3 blocks, the piece begins at byte 4 of the buffer
//! ```
//!
//! Writes are cut where the output has its blocks (`plan.rs`). Only the first and the last one may end elsewhere: they go through a cache.

/// Segments are read and written in multiples of this: volumes have no smaller block.
pub(super) const BLOCK: u64 = 4096;

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
    pub(super) fn at(offset: u64, len: u64, align: u64) -> ReadFrame {
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

/// Does a range consist of whole units?
pub(super) fn is_aligned(offset: u64, len: u64, align: u64) -> bool {
    let align = align.max(1);
    offset.is_multiple_of(align) && len.is_multiple_of(align)
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
    fn both_ends_of_a_range_count() {
        assert!(is_aligned(8192, 4096, 4096) && is_aligned(3, 5, 1) && is_aligned(0, 0, 512));
        assert!(!is_aligned(8192, 4097, 4096) && !is_aligned(8193, 4096, 4096));
    }
}
