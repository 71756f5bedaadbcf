//! The bucket: four inodes, updated together, of which a crash never loses an acknowledged state.
//!
//! A bucket lies on the device as four images, an even and an odd one in the table and the same in the mirror. An image:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `BKT0` |
//! | 4 | 4 | CRC-32C of the page, this field taken as zero |
//! | 8 | 16 | uuid of the volume |
//! | 24 | 8 | number of the bucket: a page that was written elsewhere is not believed |
//! | 32 | 8 | epoch in which it was written |
//! | 40 | 8 | generation of the bucket |
//! | 48 | 16 | reserved |
//! | 64 | 4 x 1008 | inodes 0 to 3 ([`super::inode`]) |
//!
//! # Writing
//!
//! Generation `g` goes to image `g mod 2`, so that the image of `g-1`, the acknowledged one, is never touched:
//!
//! 1. to the table, durably;
//! 2. then the same bytes to the mirror, durably (so the mirror is ahead of the table only if the device lost a write that it had acknowledged);
//! 3. then it is acknowledged.
//!
//! One update of a bucket is in flight at a time; one that failed is repeated with the same image, never with another one.
//!
//! # Reading
//!
//! The newer valid image of the table is the bucket, by (epoch, generation). Only if an image of the table is invalid is the
//! mirror read as well: then the newest of all four. So a look-up costs one read of 8 KiB ([`view`]).
//!
//! # Opening after a crash
//!
//! A crash may have left generation `g` in the table and `g-1` in the mirror. Nobody was told about `g`, so either may be
//! served; but once `g` was served, it must stay: if it is served and then its only image rots, the reader falls back to the
//! mirror and serves `g-1`. So before anything is served, an open makes whole
//!
//! > every bucket whose newest table image is of the last healed epoch or later, or that has an invalid table image,
//!
//! by taking the newest valid of all four and writing it to its home in the table, then in the mirror, where these differ
//! ([`heal`]). Older buckets need nothing: an update of theirs was either acknowledged, hence whole, or healed by
//! the open of a later epoch. The *healed epoch* in the superblock is the last epoch in which that healing was completed:
//! an open that crashes while it heals has raised the epoch but not the healed epoch, so the next one heals the same again.
//!
//! Before that, invalid images in the winner's *other* home, where the next update goes, are overwritten ([`bury`]): the crash
//! explorer found that one of them, torn in the mirror and rotten in the table, can be made whole again by the next update
//! torn over it, and would then be believed (`crates/sim/tests/promises/what_was_buried_stays_buried.rs`).
//!
//! Shorter rules fail (this file's tests enumerate them):
//!
//! - *Heal only buckets with an invalid image.* The table was written, the mirror not, all images are valid. The reader
//!   serves `g`; its table image rots; the mirror takes the reader back to `g-1`.
//! - *Heal only buckets of the very last epoch.* An open crashes while it heals. The next open finds the unhealed
//!   buckets one epoch older than the last, believes them whole, serves `g`, and rot takes it back as above.
//!
//! # What cannot be read
//!
//! A page that the device does not read now may be read later: the other path is back, the server answers again. So it is not
//! damage: it may hold the newest image. Of each place, even and odd, one copy must say what it holds, as the table is never
//! behind the mirror and the mirror never behind what was acknowledged. Where one copy cannot be read and the other is no image, nobody
//! decides ([`BucketError::Unread`]): nothing is served of the bucket, and nothing written over it. The same holds for images of an epoch
//! that the volume has not reached ([`Pair::up_to`]): every later update would be older than they are.
//!
//! # Never written
//!
//! An image of zeroes was never written, so that a volume of terabytes need not be. In the even place it is generation 0 of
//! epoch 0, four free inodes; in the odd place it is *never*, older than everything. It is believed only as long as it can
//! be true: beside a valid image of generation 2 or later the other place must have been written too, and zeroes there are
//! damage. What this cannot see: zeroes that replace generation 1 while nothing else was written, or generation 2 beside generation 1, look
//! like a write that never happened. The mirror knows better, and `check`, which reads all four, finds it; a look-up does not.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::{INODE_BYTES, Inode, InodeError};
use super::layout::{GENERATION_MAX, Geometry, Parity, Place, SLOTS_PER_BUCKET};
use super::page::{self, PAGE_BYTES, Page, PageRead};

mod error;

pub use error::{BucketError, ImageError};

/// The first four bytes of every image that was written.
pub const MAGIC: [u8; 4] = *b"BKT0";

/// An image as its bytes lie on the device.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawImage {
    magic: [u8; 4],
    checksum: [u8; 4],
    uuid: [u8; 16],
    bucket: U64,
    epoch: U64,
    generation: U64,
    reserved: [u8; 16],
    inodes: [[u8; INODE_BYTES]; SLOTS_PER_BUCKET],
}

const CHECKSUM_AT: usize = std::mem::offset_of!(RawImage, checksum);

const _: () = assert!(size_of::<RawImage>() == PAGE_BYTES && CHECKSUM_AT == 4);
const _: () = assert!(std::mem::offset_of!(RawImage, uuid) == 8);
const _: () = assert!(std::mem::offset_of!(RawImage, bucket) == 24);
const _: () = assert!(std::mem::offset_of!(RawImage, epoch) == 32);
const _: () = assert!(std::mem::offset_of!(RawImage, generation) == 40);
const _: () = assert!(std::mem::offset_of!(RawImage, inodes) == 64);

/// Four inodes, each by itself. Where one cannot be decoded the other slots are still decoded. What an opening does then
/// stands in docs/inside/disk-format.md: the blocks of the bad one are unknown.
pub type Slots = [Result<Inode, InodeError>; SLOTS_PER_BUCKET];

/// Which bucket of which volume: what every image of it must bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketId {
    /// The volume's uuid.
    pub uuid: [u8; 16],
    /// The bucket's number.
    pub bucket: u64,
}

/// A valid image: its checksum, address and parity are right. It borrows the page that was read.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    raw: &'a RawImage,
    bytes: &'a [u8; PAGE_BYTES],
    id: BucketId,
}

impl<'a> Image<'a> {
    /// Generation 0 of a bucket: four free inodes, never written.
    pub fn initial(id: BucketId) -> Image<'static> {
        let bytes = page::zero_page();
        Image {
            raw: zerocopy::transmute_ref!(bytes),
            bytes,
            id,
        }
    }

    /// Checks an image that was read from its place; all-zero pages are judged by [`Pair::read`], not here.
    fn check(bytes: &'a [u8; PAGE_BYTES], id: BucketId, parity: Parity) -> Result<Self, ImageError> {
        let raw: &RawImage = zerocopy::transmute_ref!(bytes);
        if raw.magic != MAGIC {
            return Err(ImageError::Magic);
        }
        let (found, computed) = (u32::from_le_bytes(raw.checksum), page::checksum(bytes, CHECKSUM_AT));
        if found != computed {
            return Err(ImageError::Checksum { found, computed });
        }
        if raw.uuid != id.uuid {
            return Err(ImageError::ForeignVolume);
        }
        if raw.bucket.get() != id.bucket {
            return Err(ImageError::Misplaced {
                found: raw.bucket.get(),
            });
        }
        let generation = raw.generation.get();
        if generation == 0 || generation > GENERATION_MAX || Parity::of(generation) != parity {
            return Err(ImageError::Generation { found: generation });
        }
        Ok(Self { raw, bytes, id })
    }

    /// The bytes of the image, the same in table and mirror.
    pub fn bytes(&self) -> &'a [u8; PAGE_BYTES] {
        self.bytes
    }

    /// The bucket that it belongs to.
    pub fn id(&self) -> BucketId {
        self.id
    }

    /// The epoch in which it was written; 0 if it never was.
    pub fn epoch(&self) -> u64 {
        self.raw.epoch.get()
    }

    /// The generation of the bucket; 0 if it was never written.
    pub fn generation(&self) -> u64 {
        self.raw.generation.get()
    }

    /// The home of the image.
    pub fn parity(&self) -> Parity {
        Parity::of(self.generation())
    }

    /// What decides which of two images is newer.
    fn age(&self) -> (u64, u64) {
        (self.epoch(), self.generation())
    }

    /// All four inodes.
    pub fn slots(&self, geometry: &Geometry) -> Slots {
        std::array::from_fn(|slot| Inode::decode(&self.raw.inodes[slot], geometry))
    }

    /// One inode; `None` if there is no such slot.
    pub fn slot(&self, slot: usize, geometry: &Geometry) -> Option<Result<Inode, InodeError>> {
        self.raw.inodes.get(slot).map(|bytes| Inode::decode(bytes, geometry))
    }

    /// The bytes of one inode, for what can be saved of one that cannot be decoded.
    pub fn slot_bytes(&self, slot: usize) -> Option<&'a [u8; INODE_BYTES]> {
        self.raw.inodes.get(slot)
    }

    /// The next generation of the bucket, with one slot replaced; the other three keep their bytes, even damaged ones.
    pub fn next(&self, slot: usize, inode: &Inode, epoch: u64) -> Result<NextImage, BucketError> {
        self.next_with(&[(slot, inode)], epoch)
    }

    /// The same with several slots replaced at once.
    pub fn next_with(&self, changes: &[(usize, &Inode)], epoch: u64) -> Result<NextImage, BucketError> {
        let bucket = self.id.bucket;
        let generation = self
            .generation()
            .checked_add(u64::from(
                self.generation() == 0 || !crate::seeded_bug("generation-not-raised"),
            ))
            .filter(|generation| *generation <= GENERATION_MAX)
            .ok_or(BucketError::Exhausted { bucket })?;
        self.as_generation(generation, changes, epoch)
    }

    /// The same inodes as the first generation that belongs in the other place, for a repair of a bucket whose generations are
    /// used up: of a later epoch it is the newer one.
    pub fn begun_anew(&self, epoch: u64) -> Result<NextImage, BucketError> {
        let generation = match self.parity().other() {
            Parity::Odd => 1,
            Parity::Even => 2,
        };
        self.as_generation(generation, &[], epoch)
    }

    fn as_generation(
        &self,
        generation: u64,
        changes: &[(usize, &Inode)],
        epoch: u64,
    ) -> Result<NextImage, BucketError> {
        let bucket = self.id.bucket;
        let mut raw = self.raw.clone();
        for &(slot, inode) in changes {
            let target = raw
                .inodes
                .get_mut(slot)
                .ok_or(BucketError::NoSuchSlot { bucket, slot })?;
            *target = inode.encode();
        }
        raw.magic = MAGIC;
        raw.uuid = self.id.uuid;
        raw.bucket = bucket.into();
        raw.epoch = epoch.into();
        raw.generation = generation.into();
        raw.reserved.zero();
        Ok(NextImage {
            id: self.id,
            generation,
            page: seal(&raw),
        })
    }
}

impl PartialEq for Image<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.bytes == other.bytes
    }
}

impl Eq for Image<'_> {}

impl fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bucket, epoch, generation) = (self.id.bucket, self.epoch(), self.generation());
        write!(f, "Image(bucket {bucket}, epoch {epoch}, generation {generation})")
    }
}

/// The page of an image, with its checksum.
fn seal(raw: &RawImage) -> Page {
    let mut page = Page::zeroed();
    page.bytes_mut().copy_from_slice(raw.as_bytes());
    let checksum = page::checksum(page.bytes(), CHECKSUM_AT).to_le_bytes();
    page.bytes_mut()[CHECKSUM_AT..CHECKSUM_AT + checksum.len()].copy_from_slice(&checksum);
    page
}

/// An image to be written: to its home in the table, then in the mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextImage {
    id: BucketId,
    generation: u64,
    page: Page,
}

impl NextImage {
    /// The generation of the bucket that it is.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Its home.
    pub fn parity(&self) -> Parity {
        Parity::of(self.generation)
    }

    /// The bytes to write.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// The same as an image: what the bucket is, once it is acknowledged.
    pub fn image(&self) -> Image<'_> {
        let bytes = self.page.bytes();
        Image {
            raw: zerocopy::transmute_ref!(bytes),
            bytes,
            id: self.id,
        }
    }
}

/// What one of the four places holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// A valid image; a page of zeroes in the even place is one, of generation 0.
    Valid(Image<'a>),
    /// The odd place, never written.
    Never,
    /// Torn, rotten, foreign, zeroes where something must have been written; or not read, and then unknown.
    Invalid(ImageError),
}

impl<'a> Reading<'a> {
    /// The image, if it is valid.
    pub fn image(&self) -> Option<Image<'a>> {
        match self {
            Self::Valid(image) => Some(*image),
            Self::Never | Self::Invalid(_) => None,
        }
    }

    /// Whether there should be an image but is none.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid(_))
    }
}

/// The even and the odd image of a bucket, of the table or of the mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The first page.
    pub even: Reading<'a>,
    /// The second page.
    pub odd: Reading<'a>,
}

/// From this generation on the image in the other place must have been written as well.
const BOTH_WRITTEN_FROM: u64 = 2;

impl<'a> Pair<'a> {
    /// Judges two pages.
    pub fn read(even: PageRead<'a>, odd: PageRead<'a>, id: BucketId) -> Self {
        let mut pair = Self {
            even: read_one(even, id, Parity::Even),
            odd: read_one(odd, id, Parity::Odd),
        };
        let both_written = [pair.even, pair.odd]
            .iter()
            .filter_map(Reading::image)
            .any(|image| image.generation() >= BOTH_WRITTEN_FROM);
        if both_written {
            [&mut pair.even, &mut pair.odd].into_iter().for_each(doubt_zeroes);
        }
        pair
    }

    /// The same for a volume in this epoch: no image of a later one can be.
    pub fn up_to(mut self, newest: u64) -> Self {
        for reading in [&mut self.even, &mut self.odd] {
            if let Reading::Valid(image) = reading {
                if image.epoch() > newest {
                    let found = image.epoch();
                    *reading = Reading::Invalid(ImageError::Epoch { found, newest });
                }
            }
        }
        self
    }

    /// The image in this place.
    pub fn at(&self, parity: Parity) -> &Reading<'a> {
        match parity {
            Parity::Even => &self.even,
            Parity::Odd => &self.odd,
        }
    }

    /// Whether one of the two is invalid, so that a reader needs the mirror.
    pub fn is_damaged(&self) -> bool {
        self.even.is_invalid() || self.odd.is_invalid()
    }

    /// The newer valid image.
    pub fn newest(&self) -> Option<Image<'a>> {
        newer(self.even.image(), self.odd.image())
    }
}

/// One page by itself: zeroes are taken for never written.
fn read_one(page: PageRead<'_>, id: BucketId, parity: Parity) -> Reading<'_> {
    let bytes = match page.whole() {
        Ok(bytes) => bytes,
        Err(errno) => return Reading::Invalid(ImageError::Unread { errno }),
    };
    match (page::is_zero(bytes), parity) {
        (true, Parity::Even) => Reading::Valid(Image::initial(id)),
        (true, Parity::Odd) => Reading::Never,
        (false, parity) => Image::check(bytes, id, parity).map_or_else(Reading::Invalid, Reading::Valid),
    }
}

/// Zeroes beside an image that cannot be the first of its bucket are damage.
fn doubt_zeroes(reading: &mut Reading<'_>) {
    let zero = match reading {
        Reading::Valid(image) => image.generation() == 0,
        Reading::Never => true,
        Reading::Invalid(_) => false,
    };
    if zero {
        *reading = Reading::Invalid(ImageError::Erased);
    }
}

/// The newer of two; of equally old ones the first, which is the table's.
fn newer<'a>(first: Option<Image<'a>>, second: Option<Image<'a>>) -> Option<Image<'a>> {
    match (first, second) {
        (Some(first), Some(second)) if second.age() > first.age() => Some(second),
        (None, second) => second,
        (first, _) => first,
    }
}

/// What the table alone says about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View<'a> {
    /// This is the bucket.
    Settled(Image<'a>),
    /// An image of the table is invalid: read the mirror and ask [`view_with_mirror`].
    NeedsMirror,
}

/// What a reader sees of a bucket, from the table alone where that is enough.
pub fn view<'a>(table: &Pair<'a>) -> View<'a> {
    match table.newest() {
        Some(newest) if !table.is_damaged() => View::Settled(newest),
        _ => View::NeedsMirror,
    }
}

/// What a reader sees of a bucket when an image of the table is invalid: the newest of all four.
pub fn view_with_mirror<'a>(table: &Pair<'a>, mirror: &Pair<'a>, id: BucketId) -> Result<Image<'a>, BucketError> {
    match view(table) {
        View::Settled(image) => Ok(image),
        View::NeedsMirror => newest_of_four(table, mirror, id),
    }
}

/// The newest valid of all four images; the table's if two are equal. Refused where a page that says nothing now may hold a
/// newer one.
pub fn newest_of_four<'a>(table: &Pair<'a>, mirror: &Pair<'a>, id: BucketId) -> Result<Image<'a>, BucketError> {
    must_be_known(table, mirror, id)?;
    newer(table.newest(), mirror.newest()).ok_or(BucketError::Lost { bucket: id.bucket })
}

/// The valid image of the last generation, whatever its epoch; refused as [`newest_of_four`] refuses. For a repair of a bucket
/// whose epochs are no epochs of its volume.
pub fn newest_by_generation<'a>(table: &Pair<'a>, mirror: &Pair<'a>, id: BucketId) -> Result<Image<'a>, BucketError> {
    must_be_known(table, mirror, id)?;
    [mirror.odd, mirror.even, table.odd, table.even]
        .iter()
        .filter_map(Reading::image)
        .max_by_key(Image::generation)
        .ok_or(BucketError::Lost { bucket: id.bucket })
}

/// Of each place one copy must say what it holds, or both must be damaged for good.
fn must_be_known(table: &Pair<'_>, mirror: &Pair<'_>, id: BucketId) -> Result<(), BucketError> {
    let bucket = id.bucket;
    for parity in Parity::BOTH {
        let copies = [table.at(parity), mirror.at(parity)];
        if !copies.iter().all(|copy| copy.is_invalid()) {
            continue;
        }
        for copy in copies {
            match *copy {
                Reading::Invalid(ImageError::Unread { errno }) => {
                    return Err(BucketError::Unread { bucket, parity, errno });
                }
                Reading::Invalid(ImageError::Epoch { found, newest }) => {
                    return Err(BucketError::TooNew { bucket, found, newest });
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether an open after a crash must read the mirror of this bucket and [`heal`] it.
pub fn needs_healing(table: &Pair<'_>, healed_epoch: u64) -> bool {
    match view(table) {
        View::Settled(newest) if crate::seeded_bug("the-healed-epoch-is-whole") => newest.epoch() > healed_epoch,
        View::Settled(newest) => newest.epoch() >= healed_epoch,
        View::NeedsMirror => true,
    }
}

/// What an open after a crash does with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Healing<'a> {
    /// What the bucket is from now on.
    pub winner: Image<'a>,
    /// Where the winner's bytes must be written, at the home of its parity: in this order, each durably before the next.
    pub rewrite: &'static [Place],
}

/// The rule for an open after a crash. A `healed_epoch` of 0 heals every bucket: that is what `check --repair` asks.
///
/// An invalid image in the winner's *other* home is first buried ([`bury`]); [`restore_older`] repairs it.
pub fn heal<'a>(
    table: &Pair<'a>,
    mirror: &Pair<'a>,
    healed_epoch: u64,
    id: BucketId,
) -> Result<Healing<'a>, BucketError> {
    if let View::Settled(winner) = view(table) {
        if !needs_healing(table, healed_epoch) {
            return Ok(Healing { winner, rewrite: &[] });
        }
    }
    let winner = newest_of_four(table, mirror, id)?;
    let differs = |pair: &Pair<'_>| pair.at(winner.parity()).image() != Some(winner);
    let rewrite: &[Place] = match (differs(table), differs(mirror)) {
        (false, false) => &[],
        (true, false) => &[Place::Table],
        (false, true) => &[Place::Mirror],
        (true, true) => &[Place::Table, Place::Mirror],
    };
    Ok(Healing { winner, rewrite })
}

/// The repair of the image before the winner: `check` copies it from the place where it is valid to the one where it is not.
///
/// The bucket must be healed already (nothing left in [`Healing::rewrite`]), and the winner is what serves it. Nothing is
/// lost while this is undone, as the winner has two homes of its own; afterwards all four images are valid again.
pub fn restore_older<'a>(table: &Pair<'a>, mirror: &Pair<'a>, winner: &Image<'a>) -> Option<(Place, Image<'a>)> {
    let parity = match winner.parity() {
        Parity::Even => Parity::Odd,
        Parity::Odd => Parity::Even,
    };
    let before = |image: &Image<'_>| image.generation().checked_add(1) == Some(winner.generation());
    match (table.at(parity), mirror.at(parity)) {
        (Reading::Valid(image), Reading::Invalid(_)) if before(image) => Some((Place::Mirror, *image)),
        (Reading::Invalid(_), Reading::Valid(image)) if before(image) => Some((Place::Table, *image)),
        _ => None,
    }
}

/// What an open after a crash writes over invalid images in the winner's *other* home, before it serves: the image before the
/// winner where one is left, else zeroes.
///
/// An invalid image there may be a newer one that was never acknowledged, torn in one place and rotten in the other. If the
/// next update is torn over it, the old bytes and the new ones together can be that image again, whole; and it would be
/// believed, though the one before it has been served.
pub fn bury<'a>(
    table: &Pair<'a>,
    mirror: &Pair<'a>,
    winner: &Image<'a>,
) -> impl Iterator<Item = (Place, &'a [u8; PAGE_BYTES])> + use<'a> {
    let parity = winner.parity().other();
    let (table, mirror) = (*table.at(parity), *mirror.at(parity));
    let generation = winner.generation();
    let before = move |image: &Image<'_>| image.generation().checked_add(1) == Some(generation);
    let older = [table, mirror].iter().filter_map(Reading::image).find(before);
    let bytes = older.map_or(page::zero_page(), |image| image.bytes());
    [(Place::Table, table), (Place::Mirror, mirror)]
        .into_iter()
        .filter(|(_, reading)| reading.is_invalid() && !crate::seeded_bug("nothing-is-buried"))
        .map(move |(place, _)| (place, bytes))
}

#[cfg(test)]
mod tests;
