//! Giving up the slot of an inode: it becomes free where that is safe, else a tombstone (the rule stands at the top of
//! `segment/tombstones.rs`). Then the bucket is written.
//!
//! The tombstone of an operation that has a name stays though it could go: at most one in a bucket, as the next one frees it.
//!
//! Both images are made when it begins, so that the bucket's copy can go: where buckets ahead cannot be read, the tombstone
//! is written.

use baio_engine::Completion;

use crate::error::Fault;
use crate::operation::lookup::{bucket_copy, read_pair};
use crate::operation::update::{Update, Updated, next};
use crate::operation::{Context, Event};
use crate::segment::bucket::{NextImage, Slots};
use crate::segment::inode::Inode;
use crate::segment::layout::Place;
use crate::segment::probe::SlotAddress;
use crate::segment::tombstones::{Vacancy, Verdict, freed_with};
use crate::volume::table::BucketCopy;

/// What is asked of the buckets ahead, and the two images of which one is written.
struct Looking {
    vacancy: Vacancy,
    bucket: u64,
    freed: NextImage,
    kept: NextImage,
}

/// A slot being given up. The operation has the token until it is done.
pub(crate) struct Vacate {
    looking: Option<Box<Looking>>,
    record: Option<Update>,
}

impl Vacate {
    /// Gives up a slot of a bucket that was just read, whose tombstone would be this; and, in the same record, puts an inode
    /// into another slot of it.
    ///
    /// # Errors
    /// Nothing was written then.
    pub(crate) fn begin(
        cx: &mut Context<'_>,
        copy: BucketCopy,
        at: SlotAddress,
        tombstone: &Inode,
        also: Option<(usize, &Inode)>,
    ) -> Result<Vacate, Fault> {
        let image = copy.image()?;
        let mut slots = image.slots(cx.volume.superblock.geometry());
        let mut changes: Vec<(usize, &Inode)> = also.into_iter().collect();
        if let Some((slot, inode)) = also {
            slots[slot] = Ok(inode.clone());
        }
        changes.push((at.slot, tombstone));
        let kept = next(cx, &image, &changes)?;
        changes.pop();
        let free = Inode::free();
        // A named operation leaves its tombstone for a repeat of it, until the next slot of the bucket is given up or it is used.
        let stays = tombstone.operation_id != [0; 16];
        changes.extend(
            freed_with(at.slot, &slots).map(|slot| (slot, if stays && slot == at.slot { tombstone } else { &free })),
        );
        let freed = next(cx, &image, &changes)?;
        drop(copy);
        let superblock = &cx.volume.superblock;
        let (vacancy, verdict) = Vacancy::of(at, &slots, &superblock.hash_seed, superblock.layout().buckets());
        let mut vacate = Vacate {
            looking: None,
            record: None,
        };
        let bucket = at.bucket;
        let looking = Looking {
            vacancy,
            bucket,
            freed,
            kept,
        };
        vacate.judge(cx, Box::new(looking), verdict)?;
        Ok(vacate)
    }

    /// Has its record begun? What fails then leaves the slot in doubt, and the volume latched.
    pub(crate) fn has_begun(&self) -> bool {
        self.record.is_some()
    }

    pub(crate) fn completed(&mut self, cx: &mut Context<'_>, completion: Completion) -> Result<Updated, Fault> {
        if let Some(record) = &mut self.record {
            return record.completed(cx, completion);
        }
        let Some(mut looking) = self.looking.take() else {
            // It begins with one or the other.
            return Err(cx.unexpected(&Event::Completed(completion)));
        };
        let verdict = match slots_of(cx, looking.bucket, completion) {
            Some(slots) => looking.vacancy.visit(&slots),
            None => Verdict::Tombstone,
        };
        self.judge(cx, looking, verdict)?;
        Ok(Updated::Writing)
    }

    fn judge(&mut self, cx: &mut Context<'_>, mut looking: Box<Looking>, verdict: Verdict) -> Result<(), Fault> {
        let image = match verdict {
            Verdict::Look(bucket) if read_pair(cx, bucket, Place::Table).is_ok() => {
                looking.bucket = bucket;
                self.looking = Some(looking);
                return Ok(());
            }
            Verdict::Free => looking.freed,
            Verdict::Look(_) | Verdict::Tombstone => looking.kept,
        };
        self.record = Some(Update::of(cx, image)?);
        Ok(())
    }
}

/// The slots of a bucket that was read; none where the table alone does not say.
fn slots_of(cx: &Context<'_>, bucket: u64, completion: Completion) -> Option<Slots> {
    let copy = bucket_copy(cx, bucket, completion).ok()?;
    if copy.needs_mirror() {
        return None;
    }
    let image = copy.image().ok()?;
    Some(image.slots(cx.volume.superblock.geometry()))
}
