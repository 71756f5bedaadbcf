//! What is told of a defragmentation and of a check: to those only who may see the whole volume.

use super::codec::{Field, Malformed, Reader, Writer, choice};
use super::{FINDING_TEXT_MAX, FINDINGS_MAX, NAME_MAX};

/// What a defragmentation has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragWords {
    /// Moves made.
    pub moves: u64,
    /// Segments that were moved.
    pub moved_segments: u64,
    /// Bytes copied.
    pub moved_bytes: u64,
    /// Bytes of the longest run before that no segment held.
    pub largest_free_before_bytes: u64,
    /// Bytes of the longest run now that no segment holds.
    pub largest_free_bytes: u64,
    /// Bytes that no segment holds.
    pub free_bytes: u64,
    /// Segments that could not be moved down. A message carries the first [`FINDINGS_MAX`].
    pub unmoved: Vec<UnmovedWords>,
    /// How many more there are.
    pub untold: u64,
}

/// A segment that is not where it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmovedWords {
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner_uid: u32,
    /// Why it was not moved; cut to [`FINDING_TEXT_MAX`] bytes.
    pub why: String,
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckWords {
    /// What is wrong. A message carries the first [`FINDINGS_MAX`].
    pub problems: Vec<ProblemWords>,
    /// How many more there are.
    pub untold: u64,
    /// Was it closed properly? Not while it is in use.
    pub clean: bool,
    /// Buckets of the inode table.
    pub buckets: u64,
    /// Segments, of whatever state.
    pub segments: u64,
    /// Owners with segments or limits.
    pub owners: u64,
    /// Owners that hold more than they may.
    pub over_quota: u64,
    /// Segments that are not served.
    pub quarantined: u64,
    /// Segments that are being moved.
    pub unfinished_moves: u64,
    /// Buckets whose last update is not whole.
    pub in_doubt: u64,
    /// Blocks of data.
    pub blocks: u64,
    /// Blocks that nobody claims.
    pub free_blocks: u64,
}

/// Something that is wrong with a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemWords {
    /// What kind of problem, in a word.
    pub kind: String,
    /// Which part of the volume has it; cut to [`FINDING_TEXT_MAX`] bytes.
    pub object: String,
    /// Its first byte on the device.
    pub offset: u64,
    /// What is wrong; cut to [`FINDING_TEXT_MAX`] bytes.
    pub what: String,
    /// Is it healed, can it be?
    pub repair: RepairWords,
}

/// What was done about a problem, or can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairWords {
    /// It is healed.
    Repaired,
    /// A check that repairs heals it.
    Repairable,
    /// Something is lost for good.
    Lost,
}

/// The findings that a message carries, and how many more there are.
fn told<T>(findings: &[T], untold: u64) -> (&[T], u64) {
    let (told, rest) = findings.split_at(findings.len().min(FINDINGS_MAX));
    (told, untold.saturating_add(rest.len() as u64))
}

fn put_told<T: Field>(told: &[T], writer: &mut Writer) {
    (told.len() as u32).put(writer);
    for finding in told {
        finding.put(writer);
    }
}

fn take_told<T: Field>(reader: &mut Reader<'_>) -> Result<Vec<T>, Malformed> {
    let count = reader.count(FINDINGS_MAX, "more than 64 findings")?;
    (0..count).map(|_| T::take(reader)).collect()
}

/// A text that was cut to fit.
fn short(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    reader.string(FINDING_TEXT_MAX, "a finding of more than 256 bytes")
}

impl Field for DefragWords {
    fn put(&self, writer: &mut Writer) {
        self.moves.put(writer);
        self.moved_segments.put(writer);
        self.moved_bytes.put(writer);
        self.largest_free_before_bytes.put(writer);
        self.largest_free_bytes.put(writer);
        self.free_bytes.put(writer);
        let (told, untold) = told(&self.unmoved, self.untold);
        put_told(told, writer);
        untold.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<DefragWords, Malformed> {
        Ok(DefragWords {
            moves: Field::take(reader)?,
            moved_segments: Field::take(reader)?,
            moved_bytes: Field::take(reader)?,
            largest_free_before_bytes: Field::take(reader)?,
            largest_free_bytes: Field::take(reader)?,
            free_bytes: Field::take(reader)?,
            unmoved: take_told(reader)?,
            untold: Field::take(reader)?,
        })
    }
}

impl Field for UnmovedWords {
    fn put(&self, writer: &mut Writer) {
        self.name.put(writer);
        self.owner_uid.put(writer);
        writer.cut(&self.why, FINDING_TEXT_MAX);
    }

    fn take(reader: &mut Reader<'_>) -> Result<UnmovedWords, Malformed> {
        Ok(UnmovedWords {
            name: Field::take(reader)?,
            owner_uid: Field::take(reader)?,
            why: short(reader)?,
        })
    }
}

impl Field for CheckWords {
    fn put(&self, writer: &mut Writer) {
        let (told, untold) = told(&self.problems, self.untold);
        put_told(told, writer);
        untold.put(writer);
        self.clean.put(writer);
        self.buckets.put(writer);
        self.segments.put(writer);
        self.owners.put(writer);
        self.over_quota.put(writer);
        self.quarantined.put(writer);
        self.unfinished_moves.put(writer);
        self.in_doubt.put(writer);
        self.blocks.put(writer);
        self.free_blocks.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<CheckWords, Malformed> {
        Ok(CheckWords {
            problems: take_told(reader)?,
            untold: Field::take(reader)?,
            clean: Field::take(reader)?,
            buckets: Field::take(reader)?,
            segments: Field::take(reader)?,
            owners: Field::take(reader)?,
            over_quota: Field::take(reader)?,
            quarantined: Field::take(reader)?,
            unfinished_moves: Field::take(reader)?,
            in_doubt: Field::take(reader)?,
            blocks: Field::take(reader)?,
            free_blocks: Field::take(reader)?,
        })
    }
}

impl Field for ProblemWords {
    fn put(&self, writer: &mut Writer) {
        writer.cut(&self.kind, NAME_MAX);
        writer.cut(&self.object, FINDING_TEXT_MAX);
        self.offset.put(writer);
        writer.cut(&self.what, FINDING_TEXT_MAX);
        self.repair.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<ProblemWords, Malformed> {
        Ok(ProblemWords {
            kind: Field::take(reader)?,
            object: short(reader)?,
            offset: Field::take(reader)?,
            what: short(reader)?,
            repair: Field::take(reader)?,
        })
    }
}

impl Field for RepairWords {
    fn put(&self, writer: &mut Writer) {
        let word: u8 = match self {
            RepairWords::Repaired => 0,
            RepairWords::Repairable => 1,
            RepairWords::Lost => 2,
        };
        word.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<RepairWords, Malformed> {
        let known = |byte| match byte {
            0 => Some(RepairWords::Repaired),
            1 => Some(RepairWords::Repairable),
            2 => Some(RepairWords::Lost),
            _ => None,
        };
        choice(reader, known, "an unknown repair")
    }
}
