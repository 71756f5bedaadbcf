//! What a segment and its requests under way share.

use std::fmt;

use baio_storage::{Handle, SegmentInfo};

use crate::link::Link;

/// An opened segment's capability. The last of its segments and requests closes it.
pub(crate) struct Opened<L: Link> {
    pub(crate) link: L,
    pub(crate) handle: Handle,
    pub(crate) info: SegmentInfo,
}

impl<L: Link> Drop for Opened<L> {
    fn drop(&mut self) {
        self.link.close_handle(self.handle);
    }
}

impl<L: Link> fmt::Debug for Opened<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({}/{})", self.info.owner_uid, self.info.name)
    }
}
