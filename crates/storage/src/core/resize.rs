//! The volume itself: what its opening found, and growing it.

use baio_engine::{Errno, Wait};

use super::{Core, no_volume};
use crate::crossing::{LaneDoor, ToLane};
use crate::error::{Error, Fault, Result};
use crate::identity::Identity;
use crate::volume::inspect::VolumeInfo;

impl Core {
    /// What the opening found that whoever owns the volume should know, in words: segments that are not served because their
    /// blocks belong to others, inodes that cannot be decoded. Empty on a sound volume.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        self.table.volume.as_ref().map_or(&[], |volume| &volume.warnings)
    }

    /// Makes the volume larger: a file is extended to `size_bytes`, a device must have them already. Runs the core while operations are
    /// at work, other than moves; those that wait for the end of requests or for a log go on behind it. A size that the volume has already
    /// changes nothing.
    ///
    /// Only uid 0 may, and the user that this process runs as: whoever may open the file could extend it anyway.
    ///
    /// # Errors
    /// `Access`; `BadSize` for less than the volume has, or more than it was formatted for (`max_size_bytes`), or than the
    /// device has; `EBUSY` while the volume is frozen; `Latched`; or what the system said.
    pub fn resize_volume(&mut self, who: Identity, size_bytes: u64) -> Result<VolumeInfo> {
        let name = self.volume_or("resize")?.device.name().to_owned();
        if who.uid != 0 && who.uid != Identity::effective().uid {
            return Err(Error::new("resize", name, Fault::Access { uid: who.uid }));
        }
        loop {
            // A turn may begin a freeze that waited for another.
            if self.table.freeze.is_wanted() {
                self.lane.note_what_waits();
                return Err(Error::new("resize", name, Fault::from(Errno::EBUSY)));
            }
            if !self.table.is_at_work() {
                break;
            }
            self.turn(Wait::one())?;
        }
        self.lane.note_what_waits();
        let Some(volume) = &mut self.table.volume else {
            return Err(no_volume("resize"));
        };
        volume.grow(&mut self.lane.engine, size_bytes)?;
        let end = volume.layout().end();
        self.lane.obey(ToLane::Grown { end });
        self.volume_info()
    }
}
