//! Looking at a volume from outside while another process may have it open to write.

use std::path::Path;

use super::Core;
use crate::error::Result;
use crate::identity::Identity;
use crate::volume::beside::Seen;
use crate::volume::device::Device;
use crate::volume::inspect::{self, SegmentInfo, VolumeInfo, VolumeView};
use crate::volume::lock::Hold;

/// A volume that nobody has open, and that nobody opens to write as long as this is there ([`Core::keep_still`]).
#[derive(Debug)]
#[must_use = "others may open the volume when it is dropped"]
pub struct StillVolume {
    _device: Device,
}

impl Core {
    /// Keeps a volume that nobody has open as it is, for a copy of its file: it can be looked at and checked meanwhile, and not be opened to
    /// write. Writes nothing. A copy of one that was not closed properly opens as after a crash, as the volume itself does.
    ///
    /// # Errors
    /// In use by another process (named), not a volume, damaged; or what the system said.
    pub fn keep_still(path: &Path) -> Result<StillVolume> {
        let device = Device::open(path, Hold::Shared)?;
        inspect::inspect_volume(&mut Core::plain_engine()?, path)?;
        Ok(StillVolume { _device: device })
    }

    /// [`Core::inspect`], also of a volume that is in use: then it is read without the lock, beside its owner. What is told
    /// was so at one moment, or it is marked as possibly [torn](Seen::torn). Writes nothing.
    ///
    /// A volume that is not in use is locked while it is looked at, as by [`Core::inspect`].
    ///
    /// # Errors
    /// Not a volume, damaged; or what the system said.
    pub fn inspect_beside(path: &Path, who: Identity) -> Result<Seen<(VolumeInfo, Vec<SegmentInfo>)>> {
        inspect::inspect_beside(&mut Core::plain_engine()?, path, who)
    }

    /// [`Core::inspect_view`] in the same way.
    ///
    /// # Errors
    /// As [`Core::inspect_beside`].
    pub fn inspect_view_beside(path: &Path, who: Identity) -> Result<Seen<VolumeView>> {
        inspect::inspect_view_beside(&mut Core::plain_engine()?, path, who)
    }

    /// [`Core::inspect_segment`] in the same way. A rename is two records: between them the segment is shown under both names,
    /// by a look at one of them; a list shows the new one.
    ///
    /// # Errors
    /// As [`Core::inspect_beside`], and if it does not exist or `who` may not see it.
    pub fn inspect_segment_beside(path: &Path, who: Identity, owner_uid: u32, name: &str) -> Result<Seen<SegmentInfo>> {
        inspect::inspect_segment_beside(&mut Core::plain_engine()?, path, who, owner_uid, name)
    }
}
