//! The inode table, read from end to end: by an open, which heals what a crash left half-written, and by the commands that
//! only look.

use baio_engine::{Buffer, Durability, Engine};

use crate::error::{Error, Fault, Result};
use crate::segment::bucket::{self, BucketId, Image, Pair, Slots};
use crate::segment::inode::Inode;
use crate::segment::layout::{BUCKET_BYTES, Layout, Place};
use crate::segment::page::PAGE_BYTES;
use crate::segment::probe::SlotAddress;
use crate::segment::superblock::Superblock;
use crate::volume::device::Device;

/// Buckets read at a time.
const BUCKETS_PER_READ: u64 = 128;

/// What a scan does about buckets that a crash left in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Healing {
    /// Decides and writes the decision down: the volume is about to serve.
    Write,
    /// Decides the same in memory only.
    InMemory,
}

/// Which buckets are in doubt, and what is done about them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    /// Buckets whose newest table image is of this epoch or later.
    pub(crate) from_epoch: u64,
    pub(crate) healing: Healing,
}

impl Doubt {
    /// What an opening of a volume with this superblock has to doubt. After a clean close that is nothing; damage leads
    /// to the mirror in any case.
    pub(crate) fn after(found: &Superblock, healing: Healing) -> Doubt {
        let from_epoch = if found.is_clean() { u64::MAX } else { found.healed_epoch };
        Doubt { from_epoch, healing }
    }
}

/// A bucket as it was read, with the mirror where the table alone did not decide.
#[derive(Debug)]
pub(crate) struct BucketCopy {
    id: BucketId,
    table: Buffer,
    mirror: Option<Buffer>,
}

impl BucketCopy {
    pub(crate) fn new(id: BucketId, table: Buffer) -> BucketCopy {
        BucketCopy {
            id,
            table,
            mirror: None,
        }
    }

    pub(crate) fn bucket(&self) -> u64 {
        self.id.bucket
    }

    pub(crate) fn needs_mirror(&self) -> bool {
        self.mirror.is_none() && bucket::view(&pair(&self.table, self.id)) == bucket::View::NeedsMirror
    }

    pub(crate) fn add_mirror(&mut self, mirror: Buffer) {
        self.mirror = Some(mirror);
    }

    /// The image that is served.
    pub(crate) fn image(&self) -> std::result::Result<Image<'_>, Fault> {
        let table = pair(&self.table, self.id);
        let nothing: &[u8] = &[];
        let mirror = match &self.mirror {
            Some(mirror) => pair(mirror, self.id),
            None => Pair::read(nothing, nothing, self.id),
        };
        bucket::view_with_mirror(&table, &mirror, self.id).map_err(|error| Fault::Corrupt(error.to_string()))
    }
}

fn pair(bytes: &[u8], id: BucketId) -> Pair<'_> {
    // What the device did not give is judged as unreadable.
    let even = bytes.get(..PAGE_BYTES).unwrap_or(&[]);
    let odd = bytes.get(PAGE_BYTES..2 * PAGE_BYTES).unwrap_or(&[]);
    Pair::read(even, odd, id)
}

/// Shows every inode to `visit`, in order. One that cannot be decoded ends the scan: which blocks it holds is unknown.
pub(crate) fn scan(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    doubt: Doubt,
    visit: &mut dyn FnMut(SlotAddress, Inode),
) -> Result<()> {
    let layout = superblock.layout();
    let buckets = layout.buckets();
    let mut first = 0;
    while first < buckets {
        let (count, bytes) = read_some(engine, device, layout, first)?;
        for index in 0..count {
            let at = (index * BUCKET_BYTES) as usize;
            let end = (at + BUCKET_BYTES as usize).min(bytes.len());
            let table = bytes.get(at..end).unwrap_or(&[]);
            let slots = settle(engine, device, superblock, doubt, first + index, table)?;
            for (slot, inode) in slots.into_iter().enumerate() {
                let bucket = first + index;
                let inode = inode.map_err(|error| {
                    let why = format!("slot {slot} of bucket {bucket}: {error}");
                    Error::new("read the inode table of", device.name(), Fault::Corrupt(why))
                })?;
                visit(SlotAddress { bucket, slot }, inode);
            }
        }
        first += count;
    }
    Ok(())
}

/// As many buckets as there is memory for: callers may hold most of the arena.
fn read_some(engine: &mut Engine, device: &Device, layout: &Layout, first: u64) -> Result<(u64, Buffer)> {
    let at = layout.table_at() + first * BUCKET_BYTES;
    let mut count = BUCKETS_PER_READ.min(layout.buckets() - first);
    loop {
        match device.read(engine, at, (count * BUCKET_BYTES) as usize) {
            Err(Error {
                fault: Fault::NoMemory { .. },
                ..
            }) if count > 1 => count /= 2,
            read => return read.map(|bytes| (count, bytes)),
        }
    }
}

/// Decides which image of a bucket is served, and, if asked, makes the decision last.
fn settle(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    doubt: Doubt,
    number: u64,
    table: &[u8],
) -> Result<Slots> {
    let id = BucketId {
        uuid: superblock.uuid,
        bucket: number,
    };
    let corrupt = |error: bucket::BucketError| {
        Error::new(
            "read the inode table of",
            device.name(),
            Fault::Corrupt(error.to_string()),
        )
    };
    let table = pair(table, id);
    if !bucket::needs_healing(&table, doubt.from_epoch) {
        let newest = table
            .newest()
            .ok_or_else(|| corrupt(bucket::BucketError::Lost { bucket: number }))?;
        return Ok(newest.slots(superblock.geometry()));
    }
    let layout = superblock.layout();
    let mirror_at = layout
        .bucket_at(number, Place::Mirror)
        .ok_or_else(|| corrupt(bucket::BucketError::Lost { bucket: number }))?;
    let mirror = device.read(engine, mirror_at, BUCKET_BYTES as usize)?;
    let mirror = pair(&mirror, id);
    let decision = bucket::heal(&table, &mirror, doubt.from_epoch, id).map_err(corrupt)?;
    if doubt.healing == Healing::Write {
        for (place, bytes) in bucket::bury(&table, &mirror, &decision.winner) {
            if let Some(at) = layout.image_at(number, decision.winner.parity().other(), place) {
                device.write_pages(engine, &[(at, bytes)], Durability::Data)?;
            }
        }
        for &place in decision.rewrite {
            let parity = decision.winner.parity();
            if let Some(at) = layout.image_at(number, parity, place) {
                device.write_pages(engine, &[(at, decision.winner.bytes())], Durability::Data)?;
            }
        }
    }
    Ok(decision.winner.slots(superblock.geometry()))
}
