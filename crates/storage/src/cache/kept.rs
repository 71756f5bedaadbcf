//! What callers keep of an object, each for itself.

use std::ops::Range;

/// Who keeps pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    /// What he keeps is kept until he says otherwise, or is gone.
    pub id: u64,
    /// Whose share it is of.
    pub uid: u32,
}

/// What one keeper keeps of an object.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) keeper: Keeper,
    /// Sorted, and they do not touch.
    pub(super) ranges: Vec<Range<u64>>,
    /// In all of them: whoever asks what a user keeps looks at every keeper, and there may be millions of ranges.
    pub(super) pages: u64,
}

impl Kept {
    pub(super) fn holds(&self, page: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= page);
        self.ranges.get(at).is_some_and(|range| range.start <= page)
    }
}
