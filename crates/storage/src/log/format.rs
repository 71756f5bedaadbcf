//! The bytes of a log: its header, its batches, its records. Pure: what is decoded here is recognised, not yet believed;
//! `chain` says which batch follows which. `docs/inside/log-format.md` has the same as prose, for whoever writes another reader.
//!
//! The area of a log: header copies at 0 and 4096, data from 8192 to its end in whole blocks.
//!
//! | header, offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `BAIOLOG\0` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | block size: 512 or 4096 |
//! | 16 | 16 | uuid |
//! | 32 | 8 | sequence: one more with every update |
//! | 40 | 8 | epoch: one more with every opening |
//! | 48 | 8 | head: LSN of the oldest record that is kept |
//! | 56 | 8 | LSN of the batch in which it begins |
//! | 64 | 8 | where that batch lies, from the beginning of the data |
//! | 72 | 8 | first LSN of this epoch |
//! | 80 | 8 | watermark: the log is durable up to there |
//! | 88 | 8 | capacity: bytes of data, whole blocks |
//! | 96 | 8 | ahead: how far LSNs that were given may lie beyond what is durable |
//! | 104 | 8 | holes below this LSN are known (0: none) |
//! | 112 | 4 | bytes of the longest batch, whole blocks |
//! | 116 | 4 | window: most batches in flight |
//! | 120 | 4 | incompatible features: an older program must refuse |
//! | 124 | 4 | compatible features |
//! | 128 | 4 | flags: bit 0, closed cleanly |
//! | 132 | 4 | reserved, zero |
//! | 136 | 16 | salt: random, drawn when the log was made |
//! | 152 | 356 | reserved, zero |
//! | 508 | 4 | CRC-32C of bytes 0 to 507 |
//!
//! | batch, offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 4 | magic `BLOG` |
//! | 4 | 4 | CRC-32C of the bytes from 8 to the end of what is used |
//! | 8 | 8 | stamp: of epoch and LSN, by the salt |
//! | 16 | 8 | epoch |
//! | 24 | 8 | LSN of this batch: of its first byte |
//! | 32 | 8 | prev: LSN of the end of the batch before it, with its padding |
//! | 40 | 8 | watermark when it was written |
//! | 48 | 4 | bytes used, this header included |
//! | 52 | 4 | where the first record that begins here has its header; 0: none begins here |
//! | 56 | 4 | flags: bit 0, its last record goes on in the next batch |
//! | 60 | 4 | reserved, zero |
//!
//! A record: length of its payload (4 bytes), flags (4 bytes: bit 0 last of its group, bit 1 first of its group), payload, zeroes
//! up to a multiple of 8.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use super::stamp::Salt;

/// The first eight bytes of a header.
pub const MAGIC: [u8; 8] = *b"BAIOLOG\0";
/// The first eight bytes of what stands there while a log is made.
pub const MAKING: [u8; 8] = *b"BAIONEW\0";
/// The format version that this code reads and writes.
pub const VERSION: u32 = 1;
/// Where the two copies of the header lie.
pub const COPIES_AT: [u64; 2] = [0, 4096];
/// Where the data begin.
pub const DATA_AT: u64 = 8192;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 512;
/// Bytes of a batch's header.
pub const BATCH_HEADER: usize = 64;
/// Bytes of a record's header.
pub const RECORD_HEADER: usize = 8;
/// Longest record, in bytes of payload.
pub const RECORD_MAX: usize = 16 << 20;
/// Longest batch that a header may name.
pub const BATCH_MAX: u32 = 16 << 20;
/// Most batches in flight that a header may name.
pub const WINDOW_MAX: u32 = 1024;
/// LSN of the first batch of a new log.
pub const FIRST_LSN: u64 = DATA_AT;
/// LSNs above this are damage: nobody appends so much.
pub const LSN_MAX: u64 = 1 << 62;
/// Largest distance that `ahead` may name.
pub const AHEAD_MAX: u64 = 1 << 44;

/// This record is the last of its group.
pub const RECORD_LAST: u32 = 1;
/// This record is the first of its group.
pub const RECORD_FIRST: u32 = 2;

const BATCH_MAGIC: [u8; 4] = *b"BLOG";
const GOES_ON: u32 = 1;
const CLEAN: u32 = 1;
/// Incompatible features that this code knows: none yet.
const FEATURES_INCOMPAT_KNOWN: u32 = 0;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Size of a block: 512 or 4096.
    pub block_bytes: u32,
    /// Whose log.
    pub uuid: [u8; 16],
    /// By which its batches are known.
    pub salt: Salt,
    /// One more with every update.
    pub sequence: u64,
    /// One more with every opening.
    pub epoch: u64,
    /// The oldest record that is kept.
    pub head: Head,
    /// First LSN of this epoch.
    pub epoch_first: u64,
    /// The log is durable up to there.
    pub watermark: u64,
    /// Bytes of data.
    pub capacity: u64,
    /// How far LSNs that were given may lie beyond what is durable.
    pub ahead: u64,
    /// Holes below this LSN are known; 0 for none.
    pub holes_below: u64,
    /// Longest batch.
    pub batch_bytes_max: u32,
    /// Most batches in flight, ever.
    pub window: u32,
    /// Closed cleanly: nothing was appended beyond the watermark.
    pub is_clean: bool,
}

/// A place in the stream where records may begin to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// LSN of the record.
    pub lsn: u64,
    /// LSN of the batch in which it begins; equal to `lsn` when it is the end of a batch, and the next may not be there yet.
    pub batch: u64,
    /// Where that batch lies, from the beginning of the data.
    pub place: u64,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// There is none: another magic, or zeroes.
    Absent,
    /// A log is being made here, or its making was cut off: nothing was appended yet.
    Making,
    /// Of another version, or with features that this code does not know.
    Version(u32),
    /// There was one: its checksum, or what it says, is wrong.
    Damaged,
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    block_bytes: U32,
    uuid: [u8; 16],
    sequence: U64,
    epoch: U64,
    head: U64,
    head_batch: U64,
    head_offset: U64,
    epoch_first: U64,
    watermark: U64,
    capacity: U64,
    ahead: U64,
    holes_below: U64,
    batch_bytes_max: U32,
    window: U32,
    features_incompat: U32,
    features_compat: U32,
    flags: U32,
    reserved: [u8; 4],
    salt: [u8; 16],
    reserved_too: [u8; 356],
    checksum: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const CHECKSUM_AT: usize = std::mem::offset_of!(RawHeader, checksum);
const _: () = assert!(CHECKSUM_AT == 508 && std::mem::offset_of!(RawHeader, salt) == 136);

/// What stands in place of both headers while a log is made.
pub(super) fn making_mark() -> [u8; HEADER_BYTES] {
    let mut mark = [0; HEADER_BYTES];
    mark[..MAKING.len()].copy_from_slice(&MAKING);
    let checksum = crc32c::crc32c(&mark[..CHECKSUM_AT]);
    mark[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    mark
}

impl Header {
    /// Its 512 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = RawHeader::new_zeroed();
        raw.magic = MAGIC;
        raw.version = VERSION.into();
        raw.block_bytes = self.block_bytes.into();
        raw.uuid = self.uuid;
        raw.sequence = self.sequence.into();
        raw.epoch = self.epoch.into();
        raw.head = self.head.lsn.into();
        raw.head_batch = self.head.batch.into();
        raw.head_offset = self.head.place.into();
        raw.epoch_first = self.epoch_first.into();
        raw.watermark = self.watermark.into();
        raw.capacity = self.capacity.into();
        raw.ahead = self.ahead.into();
        raw.holes_below = self.holes_below.into();
        raw.batch_bytes_max = self.batch_bytes_max.into();
        raw.window = self.window.into();
        raw.flags = u32::from(self.is_clean).into();
        raw.salt = self.salt.0;
        raw.checksum = crc32c::crc32c(&raw.as_bytes()[..CHECKSUM_AT]).into();
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// From the first 512 bytes of a copy.
    ///
    /// # Errors
    /// Why the header cannot be used.
    pub fn decode(bytes: &[u8]) -> Result<Header, HeaderFault> {
        let Ok((raw, _)) = RawHeader::ref_from_prefix(bytes) else {
            return Err(HeaderFault::Absent);
        };
        if raw.magic != MAGIC {
            let is_making = bytes.starts_with(&making_mark());
            return Err(if is_making {
                HeaderFault::Making
            } else {
                HeaderFault::Absent
            });
        }
        if crc32c::crc32c(&bytes[..CHECKSUM_AT]) != raw.checksum.get() {
            return Err(HeaderFault::Damaged);
        }
        if raw.version.get() != VERSION {
            return Err(HeaderFault::Version(raw.version.get()));
        }
        if raw.features_incompat.get() & !FEATURES_INCOMPAT_KNOWN != 0 {
            return Err(HeaderFault::Version(VERSION));
        }
        let header = Header {
            block_bytes: raw.block_bytes.get(),
            uuid: raw.uuid,
            salt: Salt(raw.salt),
            sequence: raw.sequence.get(),
            epoch: raw.epoch.get(),
            head: Head {
                lsn: raw.head.get(),
                batch: raw.head_batch.get(),
                place: raw.head_offset.get(),
            },
            epoch_first: raw.epoch_first.get(),
            watermark: raw.watermark.get(),
            capacity: raw.capacity.get(),
            ahead: raw.ahead.get(),
            holes_below: raw.holes_below.get(),
            batch_bytes_max: raw.batch_bytes_max.get(),
            window: raw.window.get(),
            is_clean: raw.flags.get() & CLEAN != 0,
        };
        header.is_possible().then_some(header).ok_or(HeaderFault::Damaged)
    }

    /// May a log be like this? A right checksum does not say that whoever wrote it was right.
    pub(super) fn is_possible(&self) -> bool {
        let block = u64::from(self.block_bytes);
        (block == 512 || block == 4096)
            && self.capacity % block == 0
            && self.capacity <= u64::MAX / 4
            && self.batch_bytes_max as usize > BATCH_HEADER
            && self.batch_bytes_max % self.block_bytes == 0
            && self.batch_bytes_max <= BATCH_MAX
            && (1..=WINDOW_MAX).contains(&self.window)
            && u64::from(self.window) * u64::from(self.batch_bytes_max) <= self.capacity / 4
            && self.head.is_possible(self.capacity, block, self.batch_bytes_max)
            && [self.epoch_first, self.watermark, self.holes_below, self.ahead].map(|lsn| lsn % 8) == [0; 4]
            && self.epoch_first <= LSN_MAX
            && self.watermark <= LSN_MAX
            && self.holes_below <= LSN_MAX
            && self.ahead <= AHEAD_MAX
            && self.ahead >= u64::from(self.window + 1) * u64::from(self.batch_bytes_max)
            && (1..LSN_MAX).contains(&self.epoch)
            && self.sequence < LSN_MAX
    }
}

impl Head {
    fn is_possible(&self, capacity: u64, block: u64, batch_max: u32) -> bool {
        let within = self.lsn.wrapping_sub(self.batch);
        self.batch > 0
            && self.lsn <= LSN_MAX
            && self.lsn % 8 == 0
            && self.batch % 8 == 0
            && self.place < capacity
            && self.place % block == 0
            && (within == 0 || (within >= BATCH_HEADER as u64 && within < u64::from(batch_max)))
    }
}

/// What a batch says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// In which opening it was written.
    pub epoch: u64,
    /// LSN of its first byte.
    pub lsn: u64,
    /// LSN of the end of the batch before it.
    pub prev: u64,
    /// The log was durable up to there.
    pub watermark: u64,
    /// Bytes used, its header included.
    pub bytes: u32,
    /// Where the first record that begins here has its header; 0 for none.
    pub first: u32,
    /// Its last record goes on in the next batch.
    pub goes_on: bool,
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBatch {
    magic: [u8; 4],
    checksum: U32,
    stamp: U64,
    epoch: U64,
    lsn: U64,
    prev: U64,
    watermark: U64,
    bytes: U32,
    first: U32,
    flags: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<RawBatch>() == BATCH_HEADER);

impl RawBatch {
    fn header(&self) -> BatchHeader {
        BatchHeader {
            epoch: self.epoch.get(),
            lsn: self.lsn.get(),
            prev: self.prev.get(),
            watermark: self.watermark.get(),
            bytes: self.bytes.get(),
            first: self.first.get(),
            goes_on: self.flags.get() & GOES_ON != 0,
        }
    }
}

/// What lies at the beginning of these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenBatch {
    /// No batch of this log, or not all of it.
    None,
    /// Possibly a batch, of so many bytes: longer than the input.
    Longer(u32),
    /// One whose checksum is right.
    Whole(BatchHeader),
}

impl BatchHeader {
    /// Its bytes with the padding up to a block.
    #[must_use]
    pub fn padded(&self, block_bytes: u32) -> u32 {
        round_up(self.bytes, block_bytes)
    }

    /// Writes itself in front of the records that stand in `batch` from byte 64 to `self.bytes`, with the checksum of all.
    pub fn seal(&self, batch: &mut [u8], salt: &Salt) {
        let mut raw = RawBatch::new_zeroed();
        raw.magic = BATCH_MAGIC;
        raw.stamp = salt.stamp(self.epoch, self.lsn).into();
        raw.epoch = self.epoch.into();
        raw.lsn = self.lsn.into();
        raw.prev = self.prev.into();
        raw.watermark = self.watermark.into();
        raw.bytes = self.bytes.into();
        raw.first = self.first.into();
        raw.flags = if self.goes_on { GOES_ON } else { 0 }.into();
        let Some(used) = batch.get_mut(..(self.bytes as usize).max(BATCH_HEADER)) else {
            return;
        };
        used[..BATCH_HEADER].copy_from_slice(raw.as_bytes());
        let checksum = crc32c::crc32c(&used[8..]);
        used[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The header of a batch that we have sealed ourselves: it is believed.
    pub(super) fn of_sealed(batch: &[u8]) -> Option<BatchHeader> {
        let (raw, _) = RawBatch::ref_from_prefix(batch).ok()?;
        Some(raw.header())
    }

    /// Looks whether a batch of this log begins here, no longer than `max` bytes.
    #[must_use]
    pub fn look(bytes: &[u8], salt: &Salt, max: u64) -> SeenBatch {
        BatchHeader::look_if(bytes, salt, max, |_| true)
    }

    /// The same for one whose header is wanted: others are not even summed up.
    pub(super) fn look_if(
        bytes: &[u8],
        salt: &Salt,
        max: u64,
        is_wanted: impl FnOnce(&BatchHeader) -> bool,
    ) -> SeenBatch {
        let Ok((raw, _)) = RawBatch::ref_from_prefix(bytes) else {
            return SeenBatch::None;
        };
        if raw.magic != BATCH_MAGIC {
            return SeenBatch::None;
        }
        let used = raw.bytes.get();
        if (used as usize) < BATCH_HEADER + RECORD_HEADER || used % 8 != 0 || u64::from(used) > max {
            return SeenBatch::None;
        }
        let header = raw.header();
        if !header.is_possible() {
            return SeenBatch::None;
        }
        let is_ours = salt.stamp(header.epoch, header.lsn) == raw.stamp.get();
        if !is_ours && !crate::seeded_bug("log-any-stamp-counts") || !is_wanted(&header) {
            return SeenBatch::None;
        }
        let Some(whole) = bytes.get(..used as usize) else {
            return SeenBatch::Longer(used);
        };
        if crc32c::crc32c(&whole[8..]) != raw.checksum.get() && !crate::seeded_bug("log-torn-batch-accepted") {
            return SeenBatch::None;
        }
        SeenBatch::Whole(header)
    }

    fn is_possible(&self) -> bool {
        let first = self.first as usize;
        self.lsn <= LSN_MAX
            && self.lsn % 8 == 0
            && self.prev <= self.lsn
            && self.watermark <= self.lsn
            && self.epoch < LSN_MAX
            && (first == 0 || (first >= BATCH_HEADER && first % 8 == 0 && first + RECORD_HEADER <= self.bytes as usize))
    }
}

/// The header of a record.
#[must_use]
pub fn record_header(len: u32, flags: u32) -> [u8; RECORD_HEADER] {
    let mut bytes = [0; RECORD_HEADER];
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..].copy_from_slice(&flags.to_le_bytes());
    bytes
}

/// Bytes that a record takes: its header, its payload, zeroes up to a multiple of 8.
#[must_use]
pub fn record_bytes(len: usize) -> u64 {
    (RECORD_HEADER + len.next_multiple_of(8)) as u64
}

/// Up to the next multiple of `unit`.
pub(super) fn round_up(bytes: u32, unit: u32) -> u32 {
    bytes.div_ceil(unit) * unit
}

/// What of a record lies in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// Where its header stands in the batch, when it begins here.
    pub begins: Option<u32>,
    /// Its whole payload in bytes, and where of it this piece begins.
    pub len: u32,
    /// Where in the payload this piece begins.
    pub skip: u32,
    /// Payload bytes here: from, to, in the batch.
    pub from: u32,
    /// One behind the last.
    pub to: u32,
    /// Its end lies here.
    pub ends: bool,
    /// Flags of its header.
    pub flags: u32,
}

/// Where between or within records a batch begins or ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carry {
    /// Nobody has looked at the batch before: what does not begin here is passed over.
    #[default]
    Unknown,
    /// Between two records.
    Between,
    /// Within one: so much of its payload, and of the bytes with padding, is in the next batches.
    Within {
        /// Its payload in bytes.
        len: u32,
        /// Bytes of it that have been seen, padding included.
        seen: u32,
        /// Flags of its header.
        flags: u32,
    },
}

/// Goes over the records of a batch whose checksum is right; says how the next one begins, or nothing when the records are not
/// what the header says.
pub fn walk(batch: &[u8], header: &BatchHeader, carry: Carry, mut each: impl FnMut(Piece)) -> Option<Carry> {
    let end = header.bytes;
    let mut at = BATCH_HEADER as u32;
    if let Carry::Within { len, seen, flags } = carry {
        let whole = len.next_multiple_of(8);
        let here = whole.checked_sub(seen)?.min(end - at);
        let piece = Piece {
            begins: None,
            len,
            skip: seen.min(len),
            from: at,
            to: at + here.min(len.saturating_sub(seen)),
            ends: seen + here == whole,
            flags,
        };
        at += here;
        let first = if at < end { at } else { 0 };
        if header.first != first {
            return None;
        }
        each(piece);
        if !piece.ends {
            return header.goes_on.then_some(Carry::Within {
                len,
                seen: seen + here,
                flags,
            });
        }
    } else if carry == Carry::Unknown {
        if header.first == 0 {
            return Some(if header.goes_on { Carry::Unknown } else { Carry::Between });
        }
        at = header.first;
    } else if header.first != at {
        return None;
    }
    while at < end {
        let bytes = batch.get(at as usize..at as usize + RECORD_HEADER)?;
        let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let flags = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if len as usize > RECORD_MAX || flags & !(RECORD_FIRST | RECORD_LAST) != 0 {
            return None;
        }
        let from = at + RECORD_HEADER as u32;
        let whole = len.next_multiple_of(8);
        let here = whole.min(end.checked_sub(from)?);
        each(Piece {
            begins: Some(at),
            len,
            skip: 0,
            from,
            to: from + here.min(len),
            ends: here == whole,
            flags,
        });
        at = from + here;
        if here < whole {
            return header.goes_on.then_some(Carry::Within { len, seen: here, flags });
        }
    }
    (!header.goes_on).then_some(Carry::Between)
}
