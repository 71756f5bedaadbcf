//! Writing an image of a bucket: durably, and read back.
//!
//! There is one way to write a bucket. An operation, which serves others meanwhile, awaits it
//! (`operation/update.rs`); recovery and repair wait for the device here. Both ask [`Home`] where an image goes and
//! whether the device has it.

use baio_engine::{Durability, Engine};

use crate::error::{Error, Fault, Result};
use crate::segment::bucket::NextImage;
use crate::segment::layout::{Layout, Parity, Place};
use crate::segment::page::PAGE_BYTES;
use crate::volume::device::Device;

/// Where an image of a bucket belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    bucket: u64,
    parity: Parity,
    place: Place,
    pub(crate) at: u64,
}

impl Home {
    pub(crate) fn of(layout: &Layout, bucket: u64, parity: Parity, place: Place) -> std::result::Result<Home, Fault> {
        let at = layout.image_at(bucket, parity, place);
        let at = at.ok_or_else(|| Fault::Corrupt(format!("there is no bucket {bucket}")))?;
        Ok(Home {
            bucket,
            parity,
            place,
            at,
        })
    }

    /// Whether the device has what was written here.
    pub(crate) fn compare(&self, written: &[u8], found: Option<&[u8]>) -> std::result::Result<(), Fault> {
        if found == Some(written) || crate::seeded_bug("nothing-is-read-back") {
            return Ok(());
        }
        let Home { bucket, parity, .. } = self;
        let place = match self.place {
            Place::Table => "inode table",
            Place::Mirror => "mirror of the inode table",
        };
        Err(Fault::LostWrite {
            page: format!("the {parity} image of bucket {bucket} in the {place}"),
            at: self.at,
        })
    }
}

/// Writes an image to one of its homes. What the device acknowledged and did not store is an error.
pub(crate) fn write(engine: &mut Engine, device: &Device, home: Home, bytes: &[u8; PAGE_BYTES]) -> Result<()> {
    device.write_now(engine, home.at, bytes, Durability::Data)?;
    let found = device.read(engine, home.at, PAGE_BYTES)?;
    home.compare(bytes, Some(&found))
        .map_err(|fault| Error::new("write", device.name(), fault).at(home.at))
}

/// Writes the next image of a bucket to the table, then to the mirror.
pub(crate) fn write_both(engine: &mut Engine, device: &Device, layout: &Layout, next: &NextImage) -> Result<()> {
    let bucket = next.image().id().bucket;
    for place in [Place::Table, Place::Mirror] {
        let home = Home::of(layout, bucket, next.parity(), place);
        let home = home.map_err(|fault| Error::new("write", device.name(), fault))?;
        write(engine, device, home, next.page().bytes())?;
    }
    Ok(())
}
