//! What an owner holds of a volume, and may hold.

use crate::codec::record;

/// How many blocks and segments an owner holds, or may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks.
    pub blocks: u64,
    /// Segments.
    pub segments: u64,
}

/// The most that an owner may hold; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Blocks.
    pub blocks: Option<u64>,
    /// Segments.
    pub segments: Option<u64>,
}

impl Limits {
    /// Is there no limit at all?
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }
}

/// What one owner holds and may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What it holds.
    pub used: Usage,
    /// What it may hold.
    pub limits: Limits,
}

impl Account {
    /// Does the owner hold more than it may? That is so after a limit was set below what it had.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let Account { used, limits } = self;
        limits.blocks.is_some_and(|limit| used.blocks > limit)
            || limits.segments.is_some_and(|limit| used.segments > limit)
    }
}

record!(Usage { blocks, segments });
record!(Limits { blocks, segments });
record!(Account { used, limits });
