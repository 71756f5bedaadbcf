//! The volume itself: what its opening found, and growing it.

use super::Core;

impl Core {
    /// What the opening found that whoever owns the volume should know, in words: segments that are not served because their
    /// blocks belong to others, inodes that cannot be decoded. Empty on a sound volume.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.volume.as_ref().map_or(&[], |volume| &volume.warnings)
    }
}
