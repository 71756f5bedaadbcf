//! What a defragmentation and a check have come to. A message carries the first [`FINDINGS_MAX`] findings, and how many more there are.

use crate::codec::{FINDING_TEXT_MAX, FINDINGS_MAX, Field, Malformed, Reader, Writer, words};

/// A segment that is not where it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmoved {
    /// Its name.
    pub name: String,
    /// Its owner.
    pub owner_uid: u32,
    /// Why it was not moved; a broker cuts it to 256 bytes.
    pub why: String,
}

/// The result of a defragmentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragReport {
    /// Moves made; a segment that had to hop made two.
    pub moves: u64,
    /// Segments that were moved.
    pub moved_segments: u64,
    /// Bytes copied.
    pub moved_bytes: u64,
    /// Bytes of the longest free run before.
    pub largest_free_before_bytes: u64,
    /// Bytes of the longest free run now.
    pub largest_free_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Segments that could not be moved down although there is a gap below them.
    pub unmoved: Vec<Unmoved>,
    /// How many more there are that are not listed: a broker tells the first 64.
    pub untold: u64,
}

/// What was done about a problem, or can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It is healed, and nothing was lost.
    Repaired,
    /// A check that repairs heals it, and nothing is lost.
    Repairable,
    /// Something is lost for good, or nobody can know whether something is. A check that repairs makes the volume sound without it.
    Lost,
    /// It could not be read, so nobody knows whether anything is wrong. A repair is refused while reads fail. A broker calls it
    /// lost: it is as little sound, and the text says what it is.
    Unread,
}

/// Something that is wrong with a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem, one of [`Problem::KINDS`]; "unknown" if a newer broker names another. These words do not change.
    pub kind: &'static str,
    /// Where it is.
    pub place: ProblemPlace,
    /// What is wrong, and what becomes of it.
    pub what: String,
    /// What was done about it, or can be.
    pub repair: Repair,
}

impl Problem {
    /// The kinds of problems.
    pub const KINDS: [&'static str; 18] = [
        "superblock",
        "device-short",
        "segment-cut",
        "image",
        "image-stale",
        "image-erased",
        "image-epoch",
        "image-generation",
        "image-unknown",
        "bucket-lost",
        "bucket-unreadable",
        "inode",
        "inode-generation",
        "name-twice",
        "name-unreachable",
        "rename",
        "overlap",
        "snapshot",
    ];
}

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemPlace {
    /// Which part of the volume: "superblock copy 2", "bucket 7, odd image of the mirror".
    pub object: String,
    /// Its first byte on the device.
    pub offset: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Everything that is wrong, in the order of the device within each part.
    pub problems: Vec<Problem>,
    /// How many more there are that are not listed: a broker tells the first 64.
    pub untold: u64,
    /// How many of them are healed now.
    pub repaired: u64,
    /// Had the volume been closed cleanly?
    pub clean: bool,
    /// Buckets of the inode table.
    pub buckets: u64,
    /// Segments, of whatever state.
    pub segments: u64,
    /// Owners with segments or limits.
    pub owners: u64,
    /// Owners that hold more than they may: a limit was set below what they had.
    pub over_quota: u64,
    /// Segments that are not served, because another one has some of their blocks.
    pub quarantined: u64,
    /// Segments that are being moved: the next opening goes on with them.
    pub unfinished_moves: u64,
    /// Buckets whose last update a crash cut: the next opening makes them whole.
    pub in_doubt: u64,
    /// Blocks of data, and those that nobody claims.
    pub blocks: u64,
    /// Blocks that nobody claims.
    pub free_blocks: u64,
}

impl CheckReport {
    /// How many of the problems are marked as healed.
    #[must_use]
    pub fn count_repaired(&self) -> u64 {
        let repaired = self
            .problems
            .iter()
            .filter(|problem| problem.repair == Repair::Repaired);
        repaired.count() as u64
    }
}

/// Those of the findings that a message carries, then how many more there are.
fn put_findings<T: Field>(findings: &[T], untold: u64, writer: &mut Writer) {
    let (told, rest) = findings.split_at(findings.len().min(FINDINGS_MAX));
    (told.len() as u32).put(writer);
    for finding in told {
        finding.put(writer);
    }
    untold.saturating_add(rest.len() as u64).put(writer);
}

fn take_findings<T: Field>(reader: &mut Reader<'_>) -> Result<(Vec<T>, u64), Malformed> {
    let count = reader.count(FINDINGS_MAX, "more than 64 findings")?;
    let findings: Result<_, _> = (0..count).map(|_| T::take(reader)).collect();
    Ok((findings?, Field::take(reader)?))
}

/// A text that was cut to fit.
fn short(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    reader.string(FINDING_TEXT_MAX, "a finding of more than 256 bytes")
}

impl Field for DefragReport {
    fn put(&self, writer: &mut Writer) {
        self.moves.put(writer);
        self.moved_segments.put(writer);
        self.moved_bytes.put(writer);
        self.largest_free_before_bytes.put(writer);
        self.largest_free_bytes.put(writer);
        self.free_bytes.put(writer);
        put_findings(&self.unmoved, self.untold, writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<DefragReport, Malformed> {
        let numbers = DefragReport {
            moves: Field::take(reader)?,
            moved_segments: Field::take(reader)?,
            moved_bytes: Field::take(reader)?,
            largest_free_before_bytes: Field::take(reader)?,
            largest_free_bytes: Field::take(reader)?,
            free_bytes: Field::take(reader)?,
            ..DefragReport::default()
        };
        let (unmoved, untold) = take_findings(reader)?;
        Ok(DefragReport {
            unmoved,
            untold,
            ..numbers
        })
    }
}

impl Field for Unmoved {
    fn put(&self, writer: &mut Writer) {
        self.name.put(writer);
        self.owner_uid.put(writer);
        writer.cut(&self.why, FINDING_TEXT_MAX);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Unmoved, Malformed> {
        Ok(Unmoved {
            name: Field::take(reader)?,
            owner_uid: Field::take(reader)?,
            why: short(reader)?,
        })
    }
}

impl Field for CheckReport {
    fn put(&self, writer: &mut Writer) {
        put_findings(&self.problems, self.untold, writer);
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

    fn take(reader: &mut Reader<'_>) -> Result<CheckReport, Malformed> {
        let (problems, untold) = take_findings(reader)?;
        let report = CheckReport {
            problems,
            untold,
            repaired: 0,
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
        };
        Ok(CheckReport {
            repaired: report.count_repaired(),
            ..report
        })
    }
}

impl Field for Problem {
    fn put(&self, writer: &mut Writer) {
        writer.name(self.kind);
        writer.cut(&self.place.object, FINDING_TEXT_MAX);
        self.place.offset.put(writer);
        writer.cut(&self.what, FINDING_TEXT_MAX);
        self.repair.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Problem, Malformed> {
        let kind = reader.one_of(&Problem::KINDS)?;
        let place = ProblemPlace {
            object: short(reader)?,
            offset: Field::take(reader)?,
        };
        Ok(Problem {
            kind,
            place,
            what: short(reader)?,
            repair: Field::take(reader)?,
        })
    }
}

words!(Repair, "an unknown repair" { 0 Repaired, 1 Repairable, 2 Lost or Unread });
