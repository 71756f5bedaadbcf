//! How bytes are cut into requests. A piece is [`PIECE`] bytes, and but for the odd ends begins and ends at a multiple of [`PAGE`], as direct
//! requests need it.

use crate::pool::PAGE;

/// Bytes of one request of a reader or writer.
pub(super) const PIECE: usize = 128 << 10;

/// Requests of a stream that are under way at a time, unless it is told otherwise.
pub(super) const DEPTH: usize = 8;

/// How far a byte is behind the beginning of its page.
pub(super) fn in_page(at: u64) -> usize {
    const WITHIN: u64 = PAGE as u64 - 1;
    (at & WITHIN) as usize
}

/// Where its page begins.
pub(super) fn page_of(at: u64) -> u64 {
    at.saturating_sub(in_page(at) as u64)
}
