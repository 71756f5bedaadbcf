//! Writing one inode: the next image of its bucket to the table, durably, then to the mirror, durably (the rule stands at
//! the top of `segment/bucket.rs`).

use baio_engine::{Completion, Durability, Memory};

use crate::error::Fault;
use crate::operation::Context;
use crate::segment::bucket::NextImage;
use crate::segment::inode::Inode;
use crate::segment::layout::Place;
use crate::segment::probe::SlotAddress;
use crate::volume::table::BucketCopy;

/// An update under way.
pub(crate) struct Update {
    bucket: u64,
    image: NextImage,
    writing: Place,
}

/// How far it is.
pub(crate) enum Updated {
    /// A write is under way.
    Writing,
    /// The inode is durable, twice.
    Done,
}

impl Update {
    pub(crate) fn begin(
        cx: &mut Context<'_>,
        copy: &BucketCopy,
        at: SlotAddress,
        inode: &Inode,
    ) -> Result<Update, Fault> {
        if cx.volume.is_latched() {
            return Err(Fault::Latched);
        }
        let epoch = cx.volume.superblock.epoch;
        let corrupt = |error: crate::segment::bucket::BucketError| Fault::Corrupt(error.to_string());
        let image = copy.image()?.next(at.slot, inode, epoch).map_err(corrupt)?;
        let update = Update {
            bucket: at.bucket,
            image,
            writing: Place::Table,
        };
        let bytes = update.image.page().bytes();
        let mut buffer = cx.engine.buffer(bytes.len()).ok_or(Fault::NoMemory {
            asked: bytes.len() as u64,
        })?;
        buffer.copy_from_slice(bytes);
        update.write(cx, Memory::Own(buffer))?;
        Ok(update)
    }

    pub(crate) fn completed(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Updated, Fault> {
        let wrote = completion.result.map_err(Fault::Io).and_then(|_| match self.writing {
            Place::Table => {
                self.writing = Place::Mirror;
                // The same bytes in the same memory: a record that has begun does not fail for want of some.
                self.write(cx, completion.memory).map(|()| Updated::Writing)
            }
            Place::Mirror => Ok(Updated::Done),
        });
        if wrote.is_err() {
            cx.volume.latch();
        }
        wrote
    }

    fn write(&self, cx: &mut Context<'_>, memory: Memory) -> Result<(), Fault> {
        let at = cx
            .volume
            .layout()
            .image_at(self.bucket, self.image.parity(), self.writing)
            .ok_or_else(|| Fault::Corrupt(format!("there is no bucket {}", self.bucket)))?;
        cx.write(at, memory, Durability::Data)
    }
}
