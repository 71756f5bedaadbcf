//! Changing inodes that cannot stay as they are: per bucket one update, to the table and then to the mirror. Last of all, giving up what
//! cannot be saved.

use std::collections::{BTreeMap, BTreeSet};

use baio_engine::{Durability, Engine};

use crate::error::{Error, Result};
use crate::segment::bucket::{BucketError, BucketId, Image, NextImage};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::layout::{SLOTS_PER_BUCKET, is_used_up};
use crate::segment::name::SegmentName;
use crate::segment::probe::SlotAddress;
use crate::segment::superblock::Superblock;
use crate::volume::bucket_write;
use crate::volume::check::corrupt;
use crate::volume::device::Device;
use crate::volume::table::{self, Doubt, Healing};

/// What heals an inode, or a bucket. What is changed may be the new inode of a rename that a crash cut, and goes on naming the old one: the
/// opening at the end of the repair finishes the rename by that.
pub(super) enum Change {
    /// Another inode in its place.
    Replace(SlotAddress, Box<Inode>),
    /// The same under another name.
    Rename(SlotAddress, SegmentName),
    /// The same in the first generation of its slot.
    BeginAnew(SlotAddress),
    /// An empty slot that ends no probe.
    Bury(SlotAddress),
    /// The same for every free slot of a bucket.
    Fill(u64),
}

impl Change {
    fn bucket(&self) -> u64 {
        match self {
            Change::Replace(at, _) | Change::Rename(at, _) | Change::BeginAnew(at) | Change::Bury(at) => at.bucket,
            Change::Fill(bucket) => *bucket,
        }
    }

    /// What becomes of a slot of its bucket; nothing if it stays.
    fn of(&self, slot: usize, inode: Option<&Inode>) -> Option<Inode> {
        match self {
            Change::Replace(at, with) => (at.slot == slot).then(|| Inode::clone(with)),
            Change::Bury(at) => (at.slot == slot).then(empty),
            Change::Fill(_) => inode.filter(|inode| inode.state == InodeState::Free).map(|_| empty()),
            Change::BeginAnew(at) => {
                let mut begun = inode.filter(|_| at.slot == slot)?.clone();
                begun.generation = 1;
                Some(begun)
            }
            Change::Rename(at, name) => {
                let mut renamed = inode.filter(|_| at.slot == slot)?.clone();
                renamed.name = Some(name.clone());
                Some(renamed)
            }
        }
    }
}

/// What a repair gives up, beside inodes that cannot be saved ([`Change::Bury`]). It is written last, when all was read and everything else
/// is written: a repair that fails before has taken nothing away that the next check could not name.
#[derive(Default)]
pub(super) struct WrittenOff {
    /// Where a file that is too short must end: what was behind its end will read as zeroes.
    pub(super) file_end: Option<u64>,
    /// Buckets whose last generation may be gone with both copies of an image.
    pub(super) unknown: BTreeSet<u64>,
    /// Buckets of which no image is valid.
    pub(super) lost: Vec<u64>,
}

fn empty() -> Inode {
    Inode {
        state: InodeState::Tombstone,
        generation: 1,
        ..Inode::default()
    }
}

/// Makes all changes, and gives up what is to be given up. All other buckets are whole.
pub(super) fn apply(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    changes: Vec<Change>,
    written_off: &WrittenOff,
) -> Result<()> {
    let mut by_bucket: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
    for change in changes {
        by_bucket.entry(change.bucket()).or_default().push(change);
    }
    // An update of one of these would write over what is not known of it, or take away an inode that the next check would name.
    let unknown = written_off.unknown.iter();
    let mut last: BTreeMap<u64, Vec<Change>> = unknown.map(|&bucket| (bucket, Vec::new())).collect();
    for (bucket, changes) in by_bucket {
        let buries = changes.iter().any(|change| matches!(change, Change::Bury(_)));
        if buries || last.contains_key(&bucket) {
            last.insert(bucket, changes);
        } else {
            update(engine, device, superblock, bucket, &changes)?;
        }
    }
    if let Some(end) = written_off.file_end {
        let extended = device.file.set_size(end);
        extended.map_err(|errno| Error::new("resize", device.name(), errno))?;
        device.sync(engine, Durability::Full)?;
    }
    for (bucket, changes) in last {
        update(engine, device, superblock, bucket, &changes)?;
    }
    for &bucket in &written_off.lost {
        begin_anew(engine, device, superblock, bucket)?;
    }
    Ok(())
}

/// Four empty slots that end no probe, in two generations.
fn begin_anew(engine: &mut Engine, device: &Device, superblock: &Superblock, bucket: u64) -> Result<()> {
    let uuid = superblock.uuid;
    let (layout, epoch) = (superblock.layout(), superblock.epoch);
    let refused = |error: BucketError| corrupt(device, error.to_string());
    let empty = empty();
    let all: Vec<(usize, &Inode)> = (0..SLOTS_PER_BUCKET).map(|slot| (slot, &empty)).collect();
    let never = Image::initial(BucketId { uuid, bucket });
    let first = never.next_with(&all, epoch).map_err(refused)?;
    bucket_write::write_both(engine, device, layout, &first)?;
    let second = first.image().next_with(&[], epoch).map_err(refused)?;
    bucket_write::write_both(engine, device, layout, &second)
}

/// The next generation of a bucket with these changes. Where its generations are used up there are two, from the first ones on.
fn following(
    image: &Image<'_>,
    changes: &[(usize, &Inode)],
    epoch: u64,
) -> std::result::Result<Vec<NextImage>, BucketError> {
    if !is_used_up(image.generation()) {
        return Ok(vec![image.next_with(changes, epoch)?]);
    }
    let first = image.begun_anew(epoch)?;
    let second = first.image().next_with(changes, epoch)?;
    Ok(vec![first, second])
}

/// One update of a bucket: the changes, or the same inodes in their next generation.
fn update(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    bucket: u64,
    changes: &[Change],
) -> Result<()> {
    let doubt = Doubt {
        from_epoch: u64::MAX,
        healing: Healing::InMemory,
    };
    let mut next = None;
    table::look(engine, device, superblock, doubt, bucket, &mut |image| {
        let slot_after = |slot: usize| {
            let mut inode = image.slot(slot, superblock.geometry()).and_then(|inode| inode.ok());
            let mut is_changed = false;
            for change in changes {
                if let Some(after) = change.of(slot, inode.as_ref()) {
                    (inode, is_changed) = (Some(after), true);
                }
            }
            inode.filter(|_| is_changed).map(|inode| (slot, inode))
        };
        let after: Vec<(usize, Inode)> = (0..SLOTS_PER_BUCKET).filter_map(slot_after).collect();
        let after: Vec<(usize, &Inode)> = after.iter().map(|(slot, inode)| (*slot, inode)).collect();
        next = Some(following(image, &after, superblock.epoch));
    })?;
    let Some(next) = next else { return Ok(()) };
    for next in next.map_err(|error| corrupt(device, error.to_string()))? {
        bucket_write::write_both(engine, device, superblock.layout(), &next)?;
    }
    Ok(())
}
