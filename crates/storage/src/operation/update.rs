//! Writing inodes of one bucket: its next image to the table, durably, then to the mirror, durably (the rule stands at the
//! top of `segment/bucket.rs`). While the mirror is written, the page of the table is read back: a device that acknowledged
//! a write and lost it, or put it elsewhere, is noticed before anybody is told that the record is safe. The mirror's page
//! is not: `check` compares it.
//!
//! A full host refuses the write to the table where its file is sparse. The page is read back then: where it is not the new
//! image, nothing has happened, and the volume goes on as it was. Every other failure latches it.

use baio_engine::{Buffer, Completion, Durability, Memory};

use crate::error::Fault;
use crate::operation::fill::is_full;
use crate::operation::{Context, Part};
use crate::segment::bucket::{BucketError, Image, NextImage};
use crate::segment::inode::Inode;
use crate::segment::layout::Place;
use crate::segment::probe::SlotAddress;
use crate::volume::bucket_write::Home;
use crate::volume::table::BucketCopy;

/// An update under way.
pub(crate) struct Update {
    bucket: u64,
    image: NextImage,
    stage: Stage,
    /// Memory to read back into, taken before anything is written: a record that has begun does not fail for want of some.
    spare: Option<Buffer>,
    failed: Option<Fault>,
}

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Table,
    /// The host had no room for the table's page, which is read back.
    Refused,
    /// The mirror is written and the table read back; which of the two have ended.
    Mirror {
        written: bool,
        compared: bool,
    },
}

/// How far it is.
pub(crate) enum Updated {
    /// Requests are under way.
    Writing,
    /// The inode is durable, twice.
    Done,
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
            stage: Stage::Table,
            spare: Some(spare),
            failed: None,
        };
        let at = update.home(cx, Place::Table)?.at;
        cx.write(at, Memory::Own(buffer), Durability::Data)?;
        cx.volume.table_updates += 1;
        Ok(update)
    }

    /// Takes in the end of one of its requests.
    ///
    /// # Errors
    /// What went wrong, once nothing is under way any more; the volume is latched then, unless nothing was written.
    pub(crate) fn completed(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Updated, Fault> {
        let noted = match (self.stage, Part::of(&completion)) {
            (Stage::Table, _) => match self.refused(cx, completion) {
                Some(completion) => self.table_written(cx, completion),
                None => Ok(()),
            },
            (Stage::Refused, _) => {
                let in_doubt = completion.result.is_err() || self.compare(cx, completion).is_ok();
                return Err(self.end_refused(cx, in_doubt));
            }
            (Stage::Mirror { compared, .. }, Part::Main) => {
                let written = true;
                self.stage = Stage::Mirror { written, compared };
                let result = completion.result.map(drop).map_err(Fault::Io);
                drop(completion.memory);
                result.and_then(|()| self.read_back(cx))
            }
            (Stage::Mirror { written, .. }, _) => {
                let compared = true;
                self.stage = Stage::Mirror { written, compared };
                self.compare(cx, completion)
            }
        };
        if let Err(fault) = noted {
            cx.volume.latch();
            self.failed = self.failed.take().or(Some(fault));
        }
        match self.stage {
            Stage::Mirror { written, compared } if !written || !(compared || self.spare.is_some()) => {
                Ok(Updated::Writing)
            }
            Stage::Refused => Ok(Updated::Writing),
            stage => match self.failed.take() {
                Some(fault) => Err(fault),
                None if stage == Stage::Table => Ok(Updated::Writing),
                None => Ok(Updated::Done),
            },
        }
    }

    /// Takes the end of the table's write if the host was full, and begins to read the page back.
    fn refused(&mut self, cx: &mut Context<'_>, completion: Completion) -> Option<Completion> {
        let fault = match completion.result {
            Err(error) => Fault::Io(error),
            Ok(_) => return Some(completion),
        };
        if !is_full(&fault) || completion.bytes_done > 0 {
            return Some(completion);
        }
        let (Ok(home), Some(spare)) = (self.home(cx, Place::Table), self.spare.take()) else {
            return Some(completion);
        };
        if cx.read_into(Part::ReadBack, home.at, spare).is_err() {
            return Some(completion);
        }
        self.stage = Stage::Refused;
        self.failed = Some(fault);
        None
    }

    /// What a page that cannot be read holds is in doubt, as one is that was written after all.
    fn end_refused(&mut self, cx: &mut Context<'_>, in_doubt: bool) -> Fault {
        if in_doubt {
            cx.volume.latch();
        }
        self.failed.take().unwrap_or(Fault::Latched)
    }

    fn table_written(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<(), Fault> {
        completion.result?;
        let at = self.home(cx, Place::Mirror)?.at;
        // The same bytes in the same memory.
        cx.write(at, completion.memory, Durability::Data)?;
        self.stage = Stage::Mirror {
            written: false,
            compared: false,
        };
        self.read_back(cx)
    }

    /// Begins to read the table's page back, unless that was begun. Where every slot is taken it is tried again when the
    /// mirror's write has given its own back.
    fn read_back(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        let at = self.home(cx, Place::Table)?.at;
        let Some(spare) = self.spare.take() else {
            return Ok(());
        };
        match cx.read_into(Part::ReadBack, at, spare) {
            Ok(()) => Ok(()),
            Err((_, Some(spare))) if !matches!(self.stage, Stage::Mirror { written: true, .. }) => {
                self.spare = Some(spare);
                Ok(())
            }
            Err((fault, _)) => {
                if let Stage::Mirror { compared, .. } = &mut self.stage {
                    *compared = true;
                }
                Err(fault)
            }
        }
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
