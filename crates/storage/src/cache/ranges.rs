//! Ranges of pages.

use std::ops::Range;

use super::frames::PAGE;

/// Do two ranges of pages share one?
pub(super) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// The pages that bytes `offset..offset + len` touch.
pub(super) fn pages_of(offset: u64, len: u64) -> Range<u64> {
    if len == 0 {
        return offset / PAGE..offset / PAGE;
    }
    offset / PAGE..offset.saturating_add(len).div_ceil(PAGE)
}
