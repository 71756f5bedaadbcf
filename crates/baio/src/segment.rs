//! An opened segment.

use std::fmt;
use std::ops::Deref;

use baio_storage::{Handle, Mode, SegmentInfo};

use crate::link::Link;
use crate::opened::Opened;

/// A segment that this link may use: the paper's capability (seed 004 §4). Its requests are those of [`Opened`]; they are
/// direct unless they say otherwise.
pub struct Segment<L: Link> {
    opened: Opened<L>,
    info: SegmentInfo,
}

impl<L: Link> Clone for Segment<L> {
    fn clone(&self) -> Segment<L> {
        Segment {
            opened: self.opened.clone(),
            info: self.info.clone(),
        }
    }
}

impl<L: Link> fmt::Debug for Segment<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segment({}/{})", self.info.owner_uid, self.info.name)
    }
}

impl<L: Link> Deref for Segment<L> {
    type Target = Opened<L>;

    fn deref(&self) -> &Opened<L> {
        &self.opened
    }
}

impl<L: Link> Segment<L> {
    pub(crate) fn new(link: &L, handle: Handle, info: SegmentInfo) -> Segment<L> {
        let name = format!("{}#{}/{}", link.name(), info.owner_uid, info.name);
        Segment {
            opened: Opened::new(link, handle, name, Mode::Direct),
            info,
        }
    }

    /// What the segment was when it was opened.
    #[must_use]
    pub fn info(&self) -> &SegmentInfo {
        &self.info
    }

    /// The same segment, with another mode for requests that do not say one.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Segment<L> {
        self.opened.set_mode(mode);
        self
    }
}
