//! The inode table, read from end to end: by an open, which heals what a crash left half-written, and by the commands that
//! only look.

use baio_engine::{Buffer, Engine, Errno};

use crate::error::{Error, Fault, Result};
use crate::segment::bucket::{self, BucketError, BucketId, Image, Pair};
use crate::segment::inode::{Inode, InodeError};
use crate::segment::layout::{BUCKET_BYTES, Place, SLOTS_PER_BUCKET};
use crate::segment::page::{PAGE_BYTES, PageRead};
use crate::segment::probe::SlotAddress;
use crate::segment::salvage::Salvage;
use crate::segment::superblock::Superblock;
use crate::volume::Volume;
use crate::volume::bucket_write::{self, Home};
use crate::volume::device::Device;
use crate::volume::reads;

/// What a scan does about buckets that a crash left in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Healing {
    /// Decides and writes the decision down: the volume is about to serve.
    Write,
    /// Decides the same in memory only.
    InMemory,
    /// The same, and passes over buckets that nobody can decide, instead of failing: only for a check, which has named them already.
    Check,
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
        let from_epoch = match found.is_clean() {
            true => u64::MAX,
            false if crate::seeded_bug("only-the-last-epoch-is-healed") => found.epoch,
            false => found.healed_epoch,
        };
        Doubt { from_epoch, healing }
    }
}

/// A bucket as it was read, with the mirror where the table alone did not decide.
#[derive(Debug)]
pub(crate) struct BucketCopy {
    id: BucketId,
    /// Where its first image in the table lies.
    at: u64,
    /// The volume's epoch: no image is of a later one.
    epoch: u64,
    /// What an opening that writes would have healed is decided in memory as that one would; see [`Doubt`].
    from_epoch: u64,
    table: Buffer,
    mirror: Option<Buffer>,
}

impl BucketCopy {
    pub(crate) fn new(volume: &Volume, bucket: u64, table: Buffer) -> BucketCopy {
        let superblock = &volume.superblock;
        let uuid = superblock.uuid;
        BucketCopy {
            id: BucketId { uuid, bucket },
            at: superblock.layout().bucket_at(bucket, Place::Table).unwrap_or(0),
            epoch: superblock.epoch,
            from_epoch: match volume.is_read_only() {
                true => Doubt::after(superblock, Healing::InMemory).from_epoch,
                false => u64::MAX,
            },
            table,
            mirror: None,
        }
    }

    pub(crate) fn bucket(&self) -> u64 {
        self.id.bucket
    }

    pub(crate) fn needs_mirror(&self) -> bool {
        let is_asked = self.mirror.is_none() && !crate::seeded_bug("the-mirror-is-not-asked");
        is_asked && bucket::needs_healing(&self.pair(&self.table), self.from_epoch)
    }

    pub(crate) fn add_mirror(&mut self, mirror: Buffer) {
        self.mirror = Some(mirror);
    }

    /// The image that is served.
    pub(crate) fn image(&self) -> std::result::Result<Image<'_>, Fault> {
        let table = self.pair(&self.table);
        let image = match &self.mirror {
            Some(mirror) => bucket::newest_of_four(&table, &self.pair(mirror), self.id),
            None => bucket::view_with_mirror(&table, &self.pair(&[]), self.id), // Nobody has read it.
        };
        image.map_err(|error| fault_of(self.at, error))
    }

    fn pair<'a>(&self, bytes: &'a [u8]) -> Pair<'a> {
        let page = |at: usize| {
            let page = bytes.get(at..at + PAGE_BYTES);
            page.map_or(PageRead::Unread(Errno::EIO), PageRead::Read)
        };
        Pair::read(page(0), page(PAGE_BYTES), self.id).up_to(self.epoch)
    }
}

/// What a bucket that nobody can decide means: the device may read it later, or it is damaged.
fn fault_of(bucket_at: u64, error: BucketError) -> Fault {
    let what = error.to_string();
    match error {
        BucketError::Unread { parity, .. } => {
            let at = bucket_at + (parity.index() * PAGE_BYTES) as u64;
            Fault::Unreadable { what, at }
        }
        _ => Fault::Corrupt(what),
    }
}

/// What a slot turned out to hold.
pub(crate) type Found = std::result::Result<Inode, Undecodable>;

/// An inode that cannot be decoded, and what can be saved of it.
#[derive(Clone, Debug)]
pub(crate) struct Undecodable {
    pub(crate) error: InodeError,
    pub(crate) salvage: Salvage,
}

/// Shows every slot that was ever used to `visit`, in order.
///
/// # Errors
/// A bucket of which no image is valid, or one cannot be read: which blocks its inodes hold is unknown. And what the device
/// said.
pub(crate) fn scan(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    doubt: Doubt,
    visit: &mut dyn FnMut(SlotAddress, Found),
) -> Result<()> {
    scan_images(engine, device, superblock, doubt, &mut |image| {
        show(image, superblock, visit);
    })
}

/// The same by whole buckets: shows the image that each one is, in order. Of those that were never written it may leave out some.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_images(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    doubt: Doubt,
    visit: &mut dyn FnMut(&Image<'_>),
) -> Result<()> {
    let layout = superblock.layout();
    let range = (layout.table_at(), layout.table_bytes());
    let visit_chunk = &mut |engine: &mut Engine, chunk: &reads::Chunk<'_>| {
        let first = (chunk.offset - layout.table_at()) / BUCKET_BYTES;
        for index in 0..chunk.units(BUCKET_BYTES) {
            let at = 2 * index as usize;
            let pages = (chunk.page(at), chunk.page(at + 1));
            settle(engine, device, superblock, doubt, first + index, pages, visit)?;
        }
        Ok(())
    };
    let unit = BUCKET_BYTES as usize;
    match doubt.from_epoch {
        // A bucket that the table does not have may be in the mirror: nothing is known to be whole.
        0 => reads::read_all(engine, device, range, unit, visit_chunk),
        _ => reads::read_written(engine, device, range, unit, visit_chunk),
    }
}

/// Shows the slots of one bucket.
pub(crate) fn show(image: &Image<'_>, superblock: &Superblock, visit: &mut dyn FnMut(SlotAddress, Found)) {
    if image.generation() == 0 {
        return; // Never written: four free slots.
    }
    let geometry = superblock.geometry();
    for slot in 0..SLOTS_PER_BUCKET {
        let (Some(inode), Some(bytes)) = (image.slot(slot, geometry), image.slot_bytes(slot)) else {
            continue;
        };
        let bucket = image.id().bucket;
        let found = inode.map_err(|error| Undecodable {
            error,
            salvage: Salvage::of(bytes, geometry),
        });
        visit(SlotAddress { bucket, slot }, found);
    }
}

/// Reads one bucket as a reader of a clean volume does, or with the doubt that a crash leaves.
pub(crate) fn look(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    doubt: Doubt,
    bucket: u64,
    visit: &mut dyn FnMut(&Image<'_>),
) -> Result<()> {
    let table = read_images(engine, device, superblock, bucket, Place::Table)?;
    let table = table.chunk();
    let pages = (table.page(0), table.page(1));
    settle(engine, device, superblock, doubt, bucket, pages, visit)
}

/// The two images of a bucket in the table or in the mirror, as far as they can be read.
fn read_images(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    bucket: u64,
    place: Place,
) -> Result<reads::Pages> {
    let at = superblock.layout().bucket_at(bucket, place);
    let at = at.ok_or_else(|| undecided(device, superblock, bucket, BucketError::Lost { bucket }))?;
    reads::read_pages(engine, device, at, BUCKET_BYTES as usize)
}

/// A bucket of which nobody can tell what it is.
pub(crate) fn undecided(device: &Device, superblock: &Superblock, bucket: u64, error: BucketError) -> Error {
    let bucket_at = superblock.layout().bucket_at(bucket, Place::Table).unwrap_or(0);
    match fault_of(bucket_at, error) {
        fault @ Fault::Unreadable { at, .. } => Error::new("read the inode table of", device.name(), fault).at(at),
        fault => {
            let why = format!("{fault}; `baio check --repair` saves what can be saved");
            Error::new("read the inode table of", device.name(), Fault::Corrupt(why))
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
    (even, odd): (PageRead<'_>, PageRead<'_>),
    visit: &mut dyn FnMut(&Image<'_>),
) -> Result<()> {
    let id = BucketId {
        uuid: superblock.uuid,
        bucket: number,
    };
    let table = Pair::read(even, odd, id).up_to(superblock.epoch);
    if !bucket::needs_healing(&table, doubt.from_epoch) {
        if let Some(newest) = table.newest() {
            visit(&newest);
            return Ok(());
        }
    }
    let mirror = read_images(engine, device, superblock, number, Place::Mirror)?;
    let mirror = mirror.chunk();
    let mirror = Pair::read(mirror.page(0), mirror.page(1), id).up_to(superblock.epoch);
    if doubt.healing == Healing::Check && bucket::newest_of_four(&table, &mirror, id).is_err() {
        return Ok(());
    }
    let decision = bucket::heal(&table, &mirror, doubt.from_epoch, id)
        .map_err(|error| undecided(device, superblock, number, error))?;
    if doubt.healing == Healing::Write {
        let parity = decision.winner.parity();
        let buried =
            bucket::bury(&table, &mirror, &decision.winner).map(|(place, bytes)| (parity.other(), place, bytes));
        let rewritten = decision
            .rewrite
            .iter()
            .map(|&place| (parity, place, decision.winner.bytes()));
        for (parity, place, bytes) in buried.chain(rewritten) {
            let home = Home::of(superblock.layout(), number, parity, place);
            let home = home.map_err(|fault| Error::new("heal", device.name(), fault))?;
            bucket_write::write(engine, device, home, bytes)?;
        }
    }
    visit(&decision.winner);
    Ok(())
}

/// Changes slots of one bucket in a straight line: the next image of the bucket, durably to the table, then to the mirror.
///
/// Only for a bucket that is whole: one that was healed since the last crash.
pub(crate) fn rewrite(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
    bucket: u64,
    change: &mut dyn FnMut(usize, Inode) -> Option<Inode>,
) -> Result<()> {
    let mut next = None;
    let doubt = Doubt {
        from_epoch: u64::MAX,
        healing: Healing::InMemory,
    };
    look(engine, device, superblock, doubt, bucket, &mut |image| {
        let slots = image.slots(superblock.geometry()).into_iter().enumerate();
        let changed: Vec<(usize, Inode)> = slots
            .filter_map(|(slot, inode)| Some((slot, change(slot, inode.ok()?)?)))
            .collect();
        if !changed.is_empty() {
            let changed: Vec<(usize, &Inode)> = changed.iter().map(|(slot, inode)| (*slot, inode)).collect();
            next = Some(image.next_with(&changed, superblock.epoch));
        }
    })?;
    match next
        .transpose()
        .map_err(|error| undecided(device, superblock, bucket, error))?
    {
        Some(next) => bucket_write::write_both(engine, device, superblock.layout(), &next),
        None => Ok(()),
    }
}
