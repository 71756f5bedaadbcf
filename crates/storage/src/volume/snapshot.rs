//! The snapshot of a clean close: what an open would otherwise compute from the whole inode table.
//!
//! The bitmap of the blocks in use, from block 0 to the last one in use, in pages at `bitmap_at`; the owners' accounts in the
//! fifteen pages between superblock copies 2 and 3. A page of either:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic: `BMP0` bitmap, `ACC0` accounts |
//! | 4 | 4 | CRC-32C of the page, this field taken as zero |
//! | 8 | 16 | uuid of the volume |
//! | 24 | 8 | number of the page among its kind, from 0 |
//! | 32 | 8 | epoch that the clean close ended |
//! | 40 | 8 | accounts: how many are in this page; bitmap: 0 |
//! | 48 | 16 | reserved |
//! | 64 | 4032 | bitmap: 504 words of 64 blocks, bit `n mod 64` of word `n / 64` set if block `n` is in use; accounts: up to 100 |
//!
//! An account: uid (4 bytes), reserved (4), blocks held (8), segments held (8), blocks allowed (8), segments allowed (8);
//! 2^64-1 allows any number.
//!
//! It is written behind a flush, before the clean note, which the superblock carries together with how much was written. It is
//! believed only as a whole: the note is of the epoch that was closed cleanly, every page is valid and of that epoch, and the
//! sums add up. In every other case the table is read: the inodes are the only truth.
//!
//! So no feature bit guards it: a program that does not know the snapshot raises the epoch when it opens the volume to write,
//! and then no note is of the last epoch; what it writes over the note makes it none.
//!
//! None is written where something is left that only a reading of the inodes tells: a move that is not finished, something
//! quarantined or undecodable, a failed metadata write, more owners than there is room for, or sums that do not agree.

use baio_engine::{Durability, Engine};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::segment::layout::{BITMAP_BLOCKS_PER_PAGE, Layout};
use crate::segment::page::{self, PAGE_BYTES, PAGE_BYTES_U64, PageRead};
use crate::segment::superblock::{SnapshotNote, Superblock};
use crate::volume::accounts::{Account, Accounts, Limits, Usage};
use crate::volume::contents::Contents;
use crate::volume::device::Device;
use crate::volume::{Volume, reads};

/// Owners that a page has room for.
const ACCOUNTS_PER_PAGE: u64 = 100;
/// Pages for accounts, between superblock copies 2 and 3.
const ACCOUNT_PAGES: u64 = 15;
/// Pages written in one request, and requests at a time.
const PAGES_PER_WRITE: u64 = 64;
const WRITES: usize = 4;

/// Which of the two kinds of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bitmap,
    Accounts,
}

impl Kind {
    fn magic(self) -> [u8; 4] {
        match self {
            Kind::Bitmap => *b"BMP0",
            Kind::Accounts => *b"ACC0",
        }
    }

    /// Where its pages begin.
    pub(crate) fn at(self, layout: &Layout) -> u64 {
        let [_, _, superblock_2_at, _] = layout.superblocks_at();
        match self {
            Kind::Bitmap => layout.bitmap_at(),
            Kind::Accounts => superblock_2_at + PAGE_BYTES_U64,
        }
    }

    /// How many pages the note says there are.
    pub(crate) fn pages(self, note: &SnapshotNote) -> u64 {
        match self {
            Kind::Bitmap => note.pages,
            Kind::Accounts => note.accounts.div_ceil(ACCOUNTS_PER_PAGE),
        }
    }
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPage {
    magic: [u8; 4],
    checksum: [u8; 4],
    uuid: [u8; 16],
    number: U64,
    epoch: U64,
    count: U64,
    reserved: [u8; 16],
    payload: [u8; 4032],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawAccount {
    uid: U32,
    reserved: U32,
    used_blocks: U64,
    used_segments: U64,
    limit_blocks: U64,
    limit_segments: U64,
}

const CHECKSUM_AT: usize = std::mem::offset_of!(RawPage, checksum);

const _: () = assert!(size_of::<RawPage>() == PAGE_BYTES);
const _: () = assert!(CHECKSUM_AT == 4);
const _: () = assert!(std::mem::offset_of!(RawPage, payload) == 64);
const _: () = assert!(size_of::<RawAccount>() == 40);
const _: () = assert!(ACCOUNTS_PER_PAGE as usize * size_of::<RawAccount>() <= 4032);
const _: () = assert!(BITMAP_BLOCKS_PER_PAGE == 4032 * 8);

/// What a page must say of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageId {
    kind: Kind,
    uuid: [u8; 16],
    number: u64,
    epoch: u64,
}

impl PageId {
    fn seal(&self, raw: &mut RawPage) {
        raw.magic = self.kind.magic();
        raw.uuid = self.uuid;
        raw.number = self.number.into();
        raw.epoch = self.epoch.into();
        raw.checksum = [0; 4];
        let checksum = page::checksum(zerocopy::transmute_ref!(&*raw), CHECKSUM_AT);
        raw.checksum = checksum.to_le_bytes();
    }

    /// The page, if it is the one asked for; else why not.
    fn check<'a>(&self, page: PageRead<'a>) -> std::result::Result<&'a RawPage, String> {
        let bytes = page
            .whole()
            .map_err(|errno| format!("a page of it could not be read ({errno})"))?;
        let raw: &RawPage = zerocopy::transmute_ref!(bytes);
        let computed = page::checksum(bytes, CHECKSUM_AT);
        if raw.magic != self.kind.magic() {
            return Err("no such page is stored here".into());
        }
        if u32::from_le_bytes(raw.checksum) != computed {
            return Err("its checksum is wrong".into());
        }
        if raw.uuid != self.uuid {
            return Err("it is of another volume".into());
        }
        if raw.number.get() != self.number {
            return Err(format!("it is page {}", raw.number.get()));
        }
        if raw.epoch.get() != self.epoch && !crate::seeded_bug("old-snapshot-pages-are-believed") {
            return Err(format!("it is of epoch {}, not {}", raw.epoch.get(), self.epoch));
        }
        Ok(raw)
    }
}

/// Writes the snapshot of a volume that is being closed; nothing where none should be believed. It is durable when the caller
/// has flushed, and means something when the superblock carries the note.
pub(crate) fn write(engine: &mut Engine, volume: &Volume) -> Option<SnapshotNote> {
    let note = note_of(volume)?;
    let epoch = note.epoch;
    let uuid = volume.superblock.uuid;
    let id = |kind, number| PageId {
        kind,
        uuid,
        number,
        epoch,
    };
    let bitmap = |number: u64, raw: &mut RawPage| {
        volume.free.store(number * BITMAP_BLOCKS_PER_PAGE, &mut raw.payload);
        id(Kind::Bitmap, number).seal(raw);
    };
    write_kind(engine, volume, Kind::Bitmap, &note, &bitmap).ok()?;
    let accounts: Vec<(u32, Account)> = volume.accounts.iter().collect();
    let pages: Vec<&[(u32, Account)]> = accounts.chunks(ACCOUNTS_PER_PAGE as usize).collect();
    let page = |number: u64, raw: &mut RawPage| {
        let some = pages.get(number as usize).copied().unwrap_or(&[]);
        raw.count = (some.len() as u64).into();
        for (target, one) in raw.payload.chunks_exact_mut(size_of::<RawAccount>()).zip(some) {
            target.copy_from_slice(raw_account(one).as_bytes());
        }
        id(Kind::Accounts, number).seal(raw);
    };
    write_kind(engine, volume, Kind::Accounts, &note, &page).ok()?;
    Some(note)
}

/// What would be noted; nothing if the inodes say more than a snapshot can.
fn note_of(volume: &Volume) -> Option<SnapshotNote> {
    let accounts = volume.accounts.iter().count() as u64;
    let held = volume.accounts.blocks();
    let told_by_inodes_only = volume.is_latched()
        || !volume.unfinished_moves.is_empty()
        || !volume.quarantined.is_empty()
        // Whoever opens it next is to be told the same: also of an inode that cannot be decoded and claims nothing.
        || !volume.warnings.is_empty()
        || accounts > ACCOUNT_PAGES * ACCOUNTS_PER_PAGE
        || held != volume.free.used_blocks();
    (!told_by_inodes_only).then(|| SnapshotNote {
        epoch: volume.superblock.epoch,
        pages: volume.free.used_end().div_ceil(BITMAP_BLOCKS_PER_PAGE),
        accounts,
        used_blocks: held,
        segments: volume.accounts.segments(),
    })
}

fn write_kind(
    engine: &mut Engine,
    volume: &Volume,
    kind: Kind,
    note: &SnapshotNote,
    fill: &dyn Fn(u64, &mut RawPage),
) -> Result<()> {
    let at = |number: u64| kind.at(volume.layout()) + number * PAGE_BYTES_U64;
    let mut batch: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut next = 0;
    let pages = kind.pages(note);
    while next < pages {
        let count = PAGES_PER_WRITE.min(pages - next);
        let mut bytes = Vec::with_capacity(count as usize * PAGE_BYTES);
        for number in next..next + count {
            let mut raw = RawPage::new_zeroed();
            fill(number, &mut raw);
            bytes.extend_from_slice(raw.as_bytes());
        }
        batch.push((at(next), bytes));
        next += count;
        if batch.len() == WRITES || next == pages {
            let writes: Vec<(u64, &[u8])> = batch.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
            volume.device.write_pages(engine, &writes, Durability::None)?;
            batch.clear();
        }
    }
    Ok(())
}

fn raw_account((uid, account): &(u32, Account)) -> RawAccount {
    let limit = |limit: Option<u64>| limit.unwrap_or(u64::MAX).into();
    RawAccount {
        uid: (*uid).into(),
        reserved: 0.into(),
        used_blocks: account.used.blocks.into(),
        used_segments: account.used.segments.into(),
        limit_blocks: limit(account.limits.blocks),
        limit_segments: limit(account.limits.segments),
    }
}

/// What is wrong with a snapshot: where on the device, and why.
pub(crate) type Fault = (u64, String);

/// Reads the snapshot of a volume that was closed cleanly; says why it cannot be believed, or that there is none.
pub(crate) fn read(
    engine: &mut Engine,
    device: &Device,
    superblock: &Superblock,
) -> Result<Option<std::result::Result<Contents, Fault>>> {
    let Some(note) = superblock.valid_snapshot() else {
        return Ok(None);
    };
    let mut contents = Contents::empty(device, superblock)?;
    let layout = superblock.layout();
    let impossible = note.pages > layout.bitmap_pages() || note.accounts > ACCOUNT_PAGES * ACCOUNTS_PER_PAGE;
    let mut fault = impossible.then(|| (0, "the superblock notes more pages than there is room for".to_owned()));
    for kind in [Kind::Bitmap, Kind::Accounts] {
        if fault.is_some() {
            break;
        }
        let range = (kind.at(layout), kind.pages(&note) * PAGE_BYTES_U64);
        let read = reads::read_all(engine, device, range, PAGE_BYTES, &mut |_, chunk| {
            if let Some(errno) = chunk.lost() {
                // There is no other copy of it: the inodes say what it says, and the rest of it need not be waited for.
                return Err(Error::new("read", device.name(), errno).at(chunk.offset));
            }
            let first = (chunk.offset - range.0) / PAGE_BYTES_U64;
            for index in 0..chunk.units(PAGE_BYTES_U64) {
                let number = first + index;
                let id = PageId {
                    kind,
                    uuid: superblock.uuid,
                    number,
                    epoch: note.epoch,
                };
                let taken = id
                    .check(chunk.page(index as usize))
                    .and_then(|raw| take_in(&mut contents, kind, number, raw));
                if let (Err(why), None) = (taken, &fault) {
                    fault = Some((range.0 + number * PAGE_BYTES_U64, why));
                }
            }
            Ok(())
        });
        if let Err(error) = read {
            if !error.is_the_devices() {
                return Err(error);
            }
            fault = fault.or(Some((range.0, format!("it could not be read ({})", error.code()))));
        }
    }
    let Contents { free, accounts, .. } = &contents;
    let found = (
        free.used_blocks(),
        accounts.blocks(),
        accounts.iter().count() as u64,
        accounts.segments(),
    );
    let noted = (note.used_blocks, note.used_blocks, note.accounts, note.segments);
    if fault.is_none() && found != noted {
        fault = Some((Kind::Accounts.at(layout), "its sums do not add up".into()));
    }
    Ok(Some(fault.map_or(Ok(contents), Err)))
}

fn take_in(contents: &mut Contents, kind: Kind, number: u64, raw: &RawPage) -> std::result::Result<(), String> {
    if kind == Kind::Bitmap {
        contents.free.load(number * BITMAP_BLOCKS_PER_PAGE, &raw.payload);
        return Ok(());
    }
    if raw.count.get() > ACCOUNTS_PER_PAGE {
        return Err(format!("it claims to have {} accounts", raw.count.get()));
    }
    let size = size_of::<RawAccount>();
    for bytes in raw.payload.chunks_exact(size).take(raw.count.get() as usize) {
        let account = RawAccount::ref_from_bytes(bytes).map_err(|_| "an account is cut".to_owned())?;
        take_in_account(&mut contents.accounts, account);
    }
    Ok(())
}

fn take_in_account(accounts: &mut Accounts, raw: &RawAccount) {
    let limit = |value: U64| (value.get() != u64::MAX).then_some(value.get());
    let used = Usage {
        blocks: raw.used_blocks.get(),
        segments: raw.used_segments.get(),
    };
    let limits = Limits {
        blocks: limit(raw.limit_blocks),
        segments: limit(raw.limit_segments),
    };
    accounts.add(raw.uid.get(), used);
    accounts.set_limits(raw.uid.get(), limits);
}
