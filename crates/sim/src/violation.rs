//! A promise that was broken, and its story.

use std::fmt;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The volume does not open.
    Refused,
    /// Something acknowledged, or once served, is not there any more.
    Lost,
    /// Two segments claim a block.
    Overlap,
    /// The free space does not add up.
    Space,
    /// Bytes that were never written to the segment: a deleted one's, another's, or what was there before the volume.
    Leak,
    /// An operation on an opened volume failed.
    Failed,
    /// Writes reached the device in an order that a crash between them makes unsafe.
    Order,
    /// The code panicked.
    Panic,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub kind: Kind,
    /// The story.
    pub story: String,
}

impl Violation {
    /// A violation with its story.
    #[must_use]
    pub fn new(kind: Kind, story: impl Into<String>) -> Violation {
        Violation {
            kind,
            story: story.into(),
        }
    }

    /// What had happened before.
    #[must_use]
    pub fn after(mut self, what: impl fmt::Display) -> Violation {
        self.story = format!("{what}\n  {}", self.story);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.story)
    }
}

impl std::error::Error for Violation {}
