//! Writing inodes of one bucket: its next image to the table, durably, then to the mirror, durably (the rule stands at the
//! top of `segment/bucket.rs`). While the mirror is written, the page of the table is read back: a device that acknowledged
//! a write and lost it, or put it elsewhere, is noticed before anybody is told that the record is safe. The mirror's page
//! is not: `check` compares it.
//!
//! Where the table does not show the record, the mirror may be ahead of it: the old state would be served, until the mirror is asked and
//! takes it back. So the same bytes are written to the table once more. If it does not show them then either, the close notes that the
//! next opening must ask all mirrors. Nobody is told that the record is safe, whatever comes of it.
//!
//! A full host refuses the write to the table where its file is sparse. The page is read back then: where it is not the new
//! image, nothing has happened, and the volume goes on as it was. Every other failure latches it.

use baio_engine::{Buffer, Completion, Durability, Memory};

use crate::error::Fault;
use crate::operation::fill::is_full;
use crate::operation::waits::{completed, with};
use crate::operation::{Context, Part};
use crate::segment::bucket::{BucketError, Image, NextImage};
use crate::segment::inode::Inode;
use crate::segment::layout::Place;
use crate::segment::probe::SlotAddress;
use crate::volume::bucket_write::Home;
use crate::volume::table::BucketCopy;

/// An update that has begun: its page is being written to the table.
pub(crate) struct Update {
    bucket: u64,
    image: NextImage,
    /// Memory to read back into, taken before anything is written: a record that has begun does not fail for want of some.
    spare: Option<Buffer>,
    /// The table's page is being read back.
    is_reading_back: bool,
    /// The table has shown what was written.
    is_shown: bool,
}

impl Update {
    /// Replaces one inode of a bucket that was just read. The copy is let go first: its memory may be all there is.
    pub(crate) fn begin(
        cx: &mut Context<'_>,
        copy: BucketCopy,
        at: SlotAddress,
        inode: &Inode,
    ) -> Result<Update, Fault> {
        let image = next(cx, &copy.image()?, &[(at.slot, inode)])?;
        drop(copy);
        Update::of(cx, image)
    }

    /// Writes this image of a bucket.
    pub(crate) fn of(cx: &mut Context<'_>, image: NextImage) -> Result<Update, Fault> {
        cx.volume.may_change()?;
        let bucket = image.image().id().bucket;
        let bytes = image.page().bytes();
        let mut buffer = cx.buffer(bytes.len())?;
        buffer.copy_from_slice(bytes);
        let spare = cx.buffer(bytes.len())?;
        let update = Update {
            bucket,
            image,
            spare: Some(spare),
            is_reading_back: false,
            is_shown: false,
        };
        let at = update.home(cx, Place::Table)?.at;
        cx.write(at, Memory::Own(buffer), Durability::Data)?;
        cx.volume.table_updates += 1;
        Ok(update)
    }

    /// Waits until the inode is durable, twice.
    ///
    /// # Errors
    /// What went wrong, once nothing is under way any more; the volume is latched then, unless nothing was written.
    pub(crate) async fn ended(mut self) -> Result<(), Fault> {
        let table = completed().await?;
        if let Some(full) = with(|cx| self.was_refused(cx, &table)) {
            drop(table);
            return Err(self.refused(full).await?);
        }
        with(|cx| latching(cx, |cx| self.write_mirror(cx, table)))?;
        let mut failed = with(|cx| latching(cx, |cx| self.read_back(cx, true))).err();
        let mut is_writing = true;
        while is_writing || self.is_reading_back {
            let completion = completed().await?;
            let noted = with(|cx| {
                latching(cx, |cx| match Part::of(&completion) {
                    Part::ReadBack => {
                        self.is_reading_back = false;
                        self.compare(cx, completion)?;
                        self.is_shown = true;
                        Ok(())
                    }
                    _ => {
                        is_writing = false;
                        let Completion { result, memory, .. } = completion;
                        drop(memory);
                        result?;
                        self.read_back(cx, false)
                    }
                })
            });
            failed = failed.or(noted.err());
        }
        let Some(fault) = failed else { return Ok(()) };
        if !self.is_shown && self.repeat().await.is_err() {
            with(|cx| cx.volume.doubt_the_table());
        }
        Err(fault)
    }

    /// Writes the same bytes to the table once more, and reads them back.
    async fn repeat(self) -> Result<(), Fault> {
        with(|cx| {
            let bytes = self.image.page().bytes();
            let mut buffer = cx.buffer(bytes.len())?;
            buffer.copy_from_slice(bytes);
            let at = self.home(cx, Place::Table)?.at;
            cx.write(at, Memory::Own(buffer), Durability::Data)
        })?;
        completed().await?.result?;
        with(|cx| {
            let at = self.home(cx, Place::Table)?.at;
            let buffer = cx.buffer(self.image.page().bytes().len())?;
            cx.read_into(Part::ReadBack, at, buffer).map_err(|(fault, _)| fault)
        })?;
        let completion = completed().await?;
        with(|cx| self.compare(cx, completion))
    }

    /// Had the host no room for the table's page? Then that is being read back.
    fn was_refused(&mut self, cx: &mut Context<'_>, table: &Completion) -> Option<Fault> {
        let fault = Fault::Io(table.result.err()?);
        if !is_full(&fault) || table.bytes_done > 0 {
            return None;
        }
        let home = self.home(cx, Place::Table).ok()?;
        let spare = self.spare.take()?;
        cx.read_into(Part::ReadBack, home.at, spare).ok()?;
        Some(fault)
    }

    /// Looks whether the page was written after all; so it may be where it cannot be read.
    async fn refused(self, full: Fault) -> Result<Fault, Fault> {
        let completion = completed().await?;
        with(|cx| {
            if completion.result.is_err() || self.compare(cx, completion).is_ok() {
                cx.volume.latch();
            }
        });
        Ok(full)
    }

    /// Writes the same bytes, from the same memory.
    fn write_mirror(&mut self, cx: &mut Context<'_>, table: Completion) -> Result<(), Fault> {
        table.result?;
        let at = self.home(cx, Place::Mirror)?.at;
        cx.write(at, table.memory, Durability::Data)
    }

    /// Begins to read the table's page back, unless that was begun. Where every slot is taken it can be tried `again` when the
    /// mirror's write has given its own back.
    fn read_back(&mut self, cx: &mut Context<'_>, again: bool) -> Result<(), Fault> {
        let at = self.home(cx, Place::Table)?.at;
        let Some(spare) = self.spare.take() else {
            return Ok(());
        };
        match cx.read_into(Part::ReadBack, at, spare) {
            Ok(()) => self.is_reading_back = true,
            Err((_, Some(spare))) if again => self.spare = Some(spare),
            Err((fault, _)) => return Err(fault),
        }
        Ok(())
    }

    fn compare(&self, cx: &Context<'_>, completion: Completion) -> Result<(), Fault> {
        let got = completion.result? as usize;
        let found = completion.memory.into_buffer();
        let found = found.as_deref().and_then(|bytes| bytes.get(..got));
        let home = self.home(cx, Place::Table)?;
        home.compare(self.image.page().bytes(), found)
    }

    fn home(&self, cx: &Context<'_>, place: Place) -> Result<Home, Fault> {
        Home::of(cx.volume.layout(), self.bucket, self.image.parity(), place)
    }
}

/// Where this fails, nobody knows what the table holds.
fn latching(cx: &mut Context<'_>, act: impl FnOnce(&mut Context<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
    let acted = act(cx);
    if acted.is_err() {
        cx.volume.latch();
    }
    acted
}

/// The image after this one, with some inodes replaced.
pub(crate) fn next(cx: &Context<'_>, image: &Image<'_>, changes: &[(usize, &Inode)]) -> Result<NextImage, Fault> {
    let epoch = cx.volume.superblock.epoch;
    // What could not be decoded again would be a segment that vanishes: of this, nothing is written.
    for (_, inode) in changes {
        let valid = inode.validate(cx.volume.superblock.geometry());
        valid.map_err(|error| Fault::Corrupt(format!("its inode would be one that is refused: {error}")))?;
    }
    image
        .next_with(changes, epoch)
        .map_err(|error: BucketError| Fault::Corrupt(error.to_string()))
}
