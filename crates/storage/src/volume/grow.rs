//! Growing the volume: first the file (a device is larger already), then a flush, then one update of the superblock.
//!
//! All metadata stays where it is, as table and bitmap were made for the largest size at format; only the number of data
//! blocks changes. A crash before the update leaves a longer file and the old volume.

use baio_engine::{Durability, Engine, Kind};

use crate::error::{Error, Fault, Result};
use crate::volume::device::Device;
use crate::volume::{Volume, superblocks};

impl Volume {
    /// Grows to `size_bytes`, the size of the whole file or device.
    pub(crate) fn grow(&mut self, engine: &mut Engine, size_bytes: u64) -> Result<()> {
        let refused = |fault| Error::new("resize", self.device.name(), fault);
        self.may_change().map_err(refused)?;
        let layout = *self.layout();
        if size_bytes < layout.end() {
            let end = layout.end();
            return Err(refused(Fault::BadSize(format!(
                "asked for {size_bytes} bytes, the volume has {end}: a volume does not shrink"
            ))));
        }
        if layout.leaves_room_unused(size_bytes) {
            let most = layout.end_max();
            return Err(refused(Fault::BadSize(format!(
                "asked for {size_bytes} bytes, the volume was formatted to grow to {most} bytes at most (`baio format --max-size`)"
            ))));
        }
        let grown = self
            .superblock
            .resized(size_bytes)
            .map_err(|error| refused(superblocks::fault(error)))?;
        if grown.geometry() == self.superblock.geometry() {
            return Ok(());
        }
        if let Err(error) = superblocks::must_be_ours(engine, &self.device, &self.superblock) {
            self.latch();
            return Err(error);
        }
        extend(&self.device, size_bytes)?;
        if !crate::seeded_bug("volume-grows-unflushed") {
            self.device.sync(engine, Durability::Full)?;
        }
        self.free
            .grow(grown.geometry().data_blocks)
            .map_err(|error| refused(Fault::BadSize(error.to_string())))?;
        if let Err(error) = superblocks::write(engine, &self.device, &grown) {
            // Which of the two sizes the volume has is known again after the next open.
            self.latch();
            return Err(error);
        }
        if !crate::seeded_bug("growth-is-forgotten") {
            self.superblock = grown;
        }
        Ok(())
    }
}

/// A regular file is made as long as asked, if it is shorter; a device must be.
fn extend(device: &Device, asked: u64) -> Result<()> {
    let size = device.size()?;
    match device.file.kind() {
        _ if size >= asked => Ok(()),
        Kind::Regular => device
            .file
            .set_size(asked)
            .map_err(|errno| Error::new("resize", device.name(), errno)),
        _ => Err(Error::new(
            "resize",
            device.name(),
            Fault::BadSize(format!("asked for {asked} bytes on a device of {size}")),
        )),
    }
}
