//! The name of a page that is held.

use super::object::ObjectId;

/// A page that is held in memory, until [`Cache::unpin`](super::Cache::unpin). One that is dropped instead holds its page as long as the page's
/// object lives.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the page is held until the pin is given back"]
pub struct PagePin {
    pub(super) object: ObjectId,
    pub(super) page: u64,
    pub(super) frame: u32,
    pub(super) epoch: u32,
}

impl PagePin {
    /// Of which object.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Which of its pages.
    #[must_use]
    pub fn page(&self) -> u64 {
        self.page
    }
}
