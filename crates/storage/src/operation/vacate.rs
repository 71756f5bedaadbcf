//! Giving up the slot of an inode: it becomes free where that is safe, else a tombstone (the rule stands at the top of
//! `segment/tombstones.rs`). Then the bucket is written.
//!
//! The tombstone of an operation that has a name stays though it could go: at most one in a bucket, as the next one frees it.
//!
//! Both images are made at the beginning, so that the bucket's copy can go: where buckets ahead cannot be read, the tombstone
//! is written.

use crate::error::Fault;
use crate::operation::Context;
use crate::operation::lookup::read_table_alone;
use crate::operation::update::{Update, next};
use crate::operation::waits::with;
use crate::segment::bucket::NextImage;
use crate::segment::inode::Inode;
use crate::segment::probe::SlotAddress;
use crate::segment::tombstones::{Vacancy, Verdict, freed_with};
use crate::volume::table::BucketCopy;

/// Gives up a slot of a bucket that was just read, whose tombstone would be this; and, in the same record, puts an inode
/// into another slot of it. The operation has the token. Gives the record, which has begun.
///
/// # Errors
/// Nothing was written then.
pub(crate) async fn vacate(
    copy: BucketCopy,
    at: SlotAddress,
    tombstone: &Inode,
    also: Option<(usize, &Inode)>,
) -> Result<Update, Fault> {
    let mut slot = with(|cx| Slot::new(cx, copy, at, tombstone, also))?;
    while let Verdict::Look(bucket) = slot.verdict {
        slot.verdict = slot.look_at(bucket).await?;
    }
    let image = match slot.verdict {
        Verdict::Free => slot.freed,
        Verdict::Look(_) | Verdict::Tombstone => slot.kept,
    };
    with(|cx| Update::of(cx, image))
}

/// What is asked of the buckets ahead, and the two images of which one is written.
struct Slot {
    vacancy: Vacancy,
    verdict: Verdict,
    freed: NextImage,
    kept: NextImage,
}

impl Slot {
    fn new(
        cx: &Context<'_>,
        copy: BucketCopy,
        at: SlotAddress,
        tombstone: &Inode,
        also: Option<(usize, &Inode)>,
    ) -> Result<Slot, Fault> {
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
        let superblock = &cx.volume.superblock;
        let (vacancy, verdict) = Vacancy::of(at, &slots, &superblock.hash_seed, superblock.layout().buckets());
        Ok(Slot {
            vacancy,
            verdict,
            freed,
            kept,
        })
    }

    /// Asks a bucket ahead; where the table alone does not say, the tombstone stays.
    async fn look_at(&mut self, bucket: u64) -> Result<Verdict, Fault> {
        let copy = read_table_alone(bucket).await?;
        let slots = copy.filter(|copy| !copy.needs_mirror()).and_then(|copy| {
            let image = copy.image().ok()?;
            Some(with(|cx| image.slots(cx.volume.superblock.geometry())))
        });
        Ok(slots.map_or(Verdict::Tombstone, |slots| self.vacancy.visit(&slots)))
    }
}
