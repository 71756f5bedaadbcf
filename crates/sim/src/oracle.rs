//! The oracle: what must be on a volume after a crash, and what may be.
//!
//! A [`Model`] is what the user was told: which segments exist, and for every sector the last content that was promised to
//! last and those written since, of which any may be found. An [`Expectation`] is a model and the one operation that was
//! under way when the power failed, which may have happened or not. [`Expectation::check`] compares it with what is there.
//!
//! What is promised, and nothing more:
//!
//! - A create or delete that was acknowledged is there for good; one under way has happened or has not.
//! - A new segment reads as zeroes, whatever its blocks held before.
//! - A write that was acknowledged and then synced on its segment, or written data-durable, or followed by a clean close,
//!   is there. Without that, each of its sectors may be old or new.
//! - What an opening served stays: it flushes before it reads, so what it reads cannot be taken back.
//! - No two segments share a block, and every block that no segment holds is free.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::observe::{Seen, SeenSegment};
use crate::stamp::{Content, Instance, SECTOR, Version};

/// Users of the volume.
pub const UIDS: [u32; 2] = [1000, 1001];

/// Names that each of them uses.
pub const NAMES: [&str; 5] = ["wal", "heap", "index", "undo", "temp"];

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// Sectors of a block.
pub const SECTORS_PER_BLOCK: u64 = BLOCK / SECTOR as u64;

/// Whose segment, and its name as a place in [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The owner.
    pub uid: u32,
    /// Which name.
    pub name: usize,
}

impl Key {
    /// The name as the volume knows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.get(self.name).copied().unwrap_or("none")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.name())
    }
}

/// What may be in a sector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sector {
    /// The last version that was promised to last.
    pub settled: Version,
    /// Versions since.
    pub pending: Vec<Version>,
}

impl Sector {
    fn allows(&self, version: Version) -> bool {
        self.settled == version || self.pending.contains(&version)
    }

    fn settle(&mut self) {
        if let Some(&last) = self.pending.last() {
            self.settled = last;
            self.pending.clear();
        }
    }
}

/// A segment as the user was told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which life of the name.
    pub instance: Instance,
    /// Where its run begins.
    pub start_block: u64,
    /// Its size.
    pub blocks: u64,
    /// Its run.
    pub reserve: u64,
    /// Its sectors.
    pub sectors: Vec<Sector>,
}

/// What the user was told.
pub type Model = BTreeMap<Key, Rc<Segment>>;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make a segment.
    Create {
        /// Which.
        key: Key,
        /// The life that begins.
        instance: Instance,
        /// Its size.
        blocks: u64,
        /// Its run, at least the size.
        reserve: u64,
        /// Where the volume put it, known when it was acknowledged.
        start_block: u64,
    },
    /// Write some sectors.
    Write {
        /// Into which segment.
        key: Key,
        /// The first sector.
        first: u64,
        /// How many.
        count: u64,
        /// What they bear.
        version: Version,
        /// Data-durable?
        durable: bool,
    },
    /// Sync a segment.
    Sync {
        /// Which.
        key: Key,
    },
    /// Delete a segment.
    Delete {
        /// Which.
        key: Key,
    },
    /// Close the volume cleanly.
    Close,
    /// The process is killed; the power stays on.
    Kill,
    /// Open the volume again.
    Open,
    /// An operation that was refused, as it should be, and has no effect: a name taken, or no room.
    Refused,
}

/// Does to the model what the acknowledgement of `op` tells the user.
pub fn acknowledge(model: &mut Model, op: &Op) {
    match *op {
        Op::Create {
            key,
            instance,
            blocks,
            reserve,
            start_block,
        } => {
            let segment = Segment {
                instance,
                start_block,
                blocks,
                reserve,
                sectors: vec![Sector::default(); (blocks * SECTORS_PER_BLOCK) as usize],
            };
            model.insert(key, Rc::new(segment));
        }
        Op::Write {
            key,
            first,
            count,
            version,
            durable,
        } => {
            for sector in sectors_of(model, key)
                .iter_mut()
                .skip(first as usize)
                .take(count as usize)
            {
                sector.pending.push(version);
                if durable {
                    sector.settle();
                }
            }
        }
        Op::Sync { key } => sectors_of(model, key).iter_mut().for_each(Sector::settle),
        Op::Delete { key } => drop(model.remove(&key)),
        Op::Close => {
            let keys: Vec<Key> = model.keys().copied().collect();
            for key in keys {
                sectors_of(model, key).iter_mut().for_each(Sector::settle);
            }
        }
        Op::Kill | Op::Open | Op::Refused => {}
    }
}

fn sectors_of(model: &mut Model, key: Key) -> &mut [Sector] {
    match model.get_mut(&key) {
        Some(segment) => &mut Rc::make_mut(segment).sectors,
        None => &mut [],
    }
}

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The volume does not open.
    Refused,
    /// Something acknowledged, or once served, is not there any more.
    Lost,
    /// Two segments claim a block.
    Overlap,
    /// The free space does not add up.
    Leak,
    /// Bytes that were never written to the segment.
    Stale,
    /// An operation on an opened volume failed.
    Failed,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub kind: Kind,
    /// The story.
    pub story: String,
}

impl Violation {
    /// A violation with its story.
    #[must_use]
    pub fn new(kind: Kind, story: impl Into<String>) -> Violation {
        Violation {
            kind,
            story: story.into(),
        }
    }

    /// What had happened before.
    #[must_use]
    pub fn after(mut self, what: impl fmt::Display) -> Violation {
        self.story = format!("{what}\n  {}", self.story);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.story)
    }
}

impl std::error::Error for Violation {}

/// What must be there, and the operation of which it is not known whether it happened.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// What was acknowledged.
    pub model: Model,
    /// What was under way.
    pub under_way: Option<Op>,
}

impl Expectation {
    /// Compares with what is there. Returns it as the model from here on: what was served once must stay.
    ///
    /// # Errors
    /// The broken promise.
    pub fn check(&self, seen: &Seen) -> Result<Model, Violation> {
        check_space(seen)?;
        let mut model = Model::new();
        for found in &seen.segments {
            let segment = self.check_segment(found)?;
            model.insert(found.key, Rc::new(segment));
        }
        for (key, segment) in &self.model {
            let may_be_gone = self.under_way == Some(Op::Delete { key: *key });
            if !model.contains_key(key) && !may_be_gone {
                let story = format!("{key} of {} blocks was acknowledged and is gone", segment.blocks);
                return Err(Violation::new(Kind::Lost, story));
            }
        }
        Ok(model)
    }

    fn check_segment(&self, found: &SeenSegment) -> Result<Segment, Violation> {
        let key = found.key;
        let expected = match (self.model.get(&key), &self.under_way) {
            (Some(segment), _) => Segment::clone(segment),
            (None, Some(create @ Op::Create { key: created, .. })) if *created == key => {
                // Only the volume knows yet where it put it.
                let mut made = Model::new();
                acknowledge(&mut made, create);
                match made.remove(&key).map(Rc::unwrap_or_clone) {
                    Some(segment) => Segment {
                        start_block: found.start_block,
                        ..segment
                    },
                    None => return Err(Violation::new(Kind::Failed, "the oracle cannot make a segment")),
                }
            }
            _ => {
                let story = format!("{key} is there, but was never created, or its deletion was acknowledged");
                return Err(Violation::new(Kind::Lost, story));
            }
        };
        let shape = (expected.start_block, expected.blocks, expected.reserve);
        let seen = (found.start_block, found.blocks, found.reserve);
        if shape != seen {
            let story = format!("{key} is (start, blocks, reserve) {seen:?}, acknowledged was {shape:?}");
            return Err(Violation::new(Kind::Lost, story));
        }
        self.check_sectors(key, expected, &found.contents)
    }

    fn check_sectors(&self, key: Key, mut segment: Segment, contents: &[Content]) -> Result<Segment, Violation> {
        if contents.len() != segment.sectors.len() {
            let story = format!(
                "{key} has {} sectors to read, not {}",
                contents.len(),
                segment.sectors.len()
            );
            return Err(Violation::new(Kind::Lost, story));
        }
        for (position, (sector, content)) in segment.sectors.iter_mut().zip(contents).enumerate() {
            let version = judge(segment.instance, position as u64, *content)
                .map_err(|story| Violation::new(Kind::Stale, format!("{key} sector {position}: {story}")))?;
            if !sector.allows(version) && !self.is_being_written(key, position as u64, version) {
                let story = format!("{key} sector {position} has version {version}, expected {sector:?}");
                return Err(Violation::new(Kind::Lost, story));
            }
            *sector = Sector {
                settled: version,
                pending: Vec::new(),
            };
        }
        Ok(segment)
    }

    fn is_being_written(&self, key: Key, position: u64, found: Version) -> bool {
        matches!(self.under_way, Some(Op::Write { key: written, first, count, version, .. })
            if written == key && version == found && (first..first + count).contains(&position))
    }
}

/// The version that a sector has, or why its bytes cannot be this segment's.
fn judge(instance: Instance, at: u64, content: Content) -> Result<Version, String> {
    match content {
        Content::Zero => Ok(0),
        Content::Written {
            instance: writer,
            position,
            version,
        } if writer == instance && u64::from(position) == at => Ok(version),
        Content::Written { .. } => Err(format!("holds another segment's bytes, {content:?}")),
        Content::Stale => Err("holds what was on the disk before the volume".into()),
        Content::Mixed => Err("holds bytes that nobody wrote".into()),
    }
}

/// No block twice, and every block either somebody's or free.
fn check_space(seen: &Seen) -> Result<(), Violation> {
    let mut runs: Vec<_> = seen
        .segments
        .iter()
        .map(|s| (s.start_block, s.reserve, s.key))
        .collect();
    runs.sort_unstable();
    for pair in runs.windows(2) {
        if pair[0].0 + pair[0].1 > pair[1].0 {
            let story = format!("{} and {} claim block {}", pair[0].2, pair[1].2, pair[1].0);
            return Err(Violation::new(Kind::Overlap, story));
        }
    }
    if let Some(segment) = seen.segments.iter().find(|segment| !segment.is_live) {
        let story = format!(
            "{} is there but not served: its blocks are claimed by another",
            segment.key
        );
        return Err(Violation::new(Kind::Overlap, story));
    }
    let held: u64 = runs.iter().map(|run| run.1).sum();
    if seen.free_blocks + held != seen.data_blocks || seen.segments_counted != runs.len() as u64 {
        let story = format!(
            "{} blocks free and {held} held of {}; {} segments counted, {} listed",
            seen.free_blocks,
            seen.data_blocks,
            seen.segments_counted,
            runs.len()
        );
        return Err(Violation::new(Kind::Leak, story));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
