//! The oracle: what must be on a volume after a crash, and what may be.
//!
//! A [`Model`] is what the user was told: which segments exist, and for every sector the last content that was promised to
//! last and those written since, of which any may be found. An [`Expectation`] is a model and the one operation that was
//! under way when the power failed, which may have happened or not. [`Expectation::check`] compares it with what is there.
//!
//! What is promised, and nothing more:
//!
//! - A create, delete, resize, rename, move or quota that was acknowledged is there for good; one under way has happened or has
//!   not. A resize that has to move may have lengthened the run and not yet the segment.
//! - A new segment reads as zeroes, whatever its blocks held before; so does what a segment is made longer, also where it was
//!   cut off before.
//! - A segment that is moved holds the same bytes at every moment, and a renamed one has one name, never two or none.
//! - A write that was acknowledged and then synced on its segment, or written data-durable, or followed by a clean close,
//!   is there. Without that, each of its sectors may be old or new.
//! - What an opening served stays: it flushes before it reads, so what it reads cannot be taken back.
//! - Of several operations that were under way together any may have happened.
//! - No two segments share a block, and every block that no segment holds is free, once moves have ended. What the owners are
//!   told to hold adds up.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use baio_storage::Limits;

use crate::model::{Key, Model, Op, SECTORS_PER_BLOCK, Sector, Segment};
use crate::observe::{Seen, SeenSegment};
use crate::stamp::{Content, Instance, Version};
use crate::violation::{Kind, Violation};

/// What must be there, and the operation of which it is not known whether it happened.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// What was acknowledged.
    pub model: Model,
    /// What was under way.
    pub under_way: Option<Op>,
}

impl Expectation {
    /// Everything acknowledged, nothing under way.
    #[must_use]
    pub fn exactly(model: Model) -> Expectation {
        Expectation { model, under_way: None }
    }

    /// Compares with what is there. Returns it as the model from here on: what was served once must stay.
    ///
    /// # Errors
    /// The broken promise.
    pub fn check(&self, seen: &Seen) -> Result<Model, Violation> {
        check_space(seen)?;
        self.check_contents(seen)
    }

    /// The same without the blocks that no segment holds: of an operation that failed half-way they may be held until the
    /// next opening.
    ///
    /// # Errors
    /// As [`Expectation::check`].
    pub fn check_contents(&self, seen: &Seen) -> Result<Model, Violation> {
        let after = self
            .under_way
            .as_ref()
            .map(|op| self.model.during(op))
            .unwrap_or_default();
        let between = self.half_resized();
        let possible = |key: Key| {
            let before = self.model.segments.get(&key);
            let after = after.iter().filter_map(move |after| after.segments.get(&key));
            let between = between
                .iter()
                .filter(move |(of, _)| *of == key)
                .map(|(_, segment)| segment);
            before.into_iter().chain(after).map(Rc::as_ref).chain(between)
        };
        let mut found = Model {
            limits: self.check_limits(seen, &after)?,
            data_blocks: Some(self.check_size(seen, &after)?),
            ..Model::default()
        };
        let mut instances = BTreeSet::new();
        for there in &seen.segments {
            let segment = check_segment(there, possible(there.key))?;
            if !instances.insert(segment.instance) {
                let story = format!("{} is there under another name as well", there.key);
                return Err(Violation::new(Kind::Lost, story));
            }
            found.segments.insert(there.key, Rc::new(segment));
        }
        for (key, segment) in &self.model.segments {
            let lives_on = |after: &Model| after.segments.values().any(|other| other.instance == segment.instance);
            if after.iter().all(lives_on) && !instances.contains(&segment.instance) {
                let story = format!("{key} of {} blocks was acknowledged and is gone", segment.blocks);
                return Err(Violation::new(Kind::Lost, story));
            }
        }
        Ok(found)
    }
}

impl Expectation {
    /// A resize that has to move the segment first gives it the longer run, then the size; cut between the two it has the one
    /// and not the other.
    fn half_resized(&self) -> Vec<(Key, Segment)> {
        let half = |op: &Op| {
            let Op::Resize { key, .. } = op else {
                return None;
            };
            let segment = Segment::clone(self.model.segments.get(key)?);
            let reserve = self.model.after(op).segments.get(key)?.reserve;
            let longer = reserve > segment.reserve;
            longer.then_some((
                *key,
                Segment {
                    start_block: None,
                    reserve,
                    ..segment
                },
            ))
        };
        self.under_way.iter().flat_map(Op::each).filter_map(half).collect()
    }

    fn check_size(&self, seen: &Seen, after: &[Model]) -> Result<u64, Violation> {
        let known = after
            .iter()
            .map(|after| after.data_blocks)
            .chain([self.model.data_blocks]);
        let expected: Vec<u64> = known.flatten().collect();
        if self.model.data_blocks.is_some() && !expected.contains(&seen.data_blocks) {
            let story = format!("the volume has {} blocks, expected {expected:?}", seen.data_blocks);
            return Err(Violation::new(Kind::Lost, story));
        }
        Ok(seen.data_blocks)
    }

    fn check_limits(&self, seen: &Seen, after: &[Model]) -> Result<BTreeMap<u32, Limits>, Violation> {
        let mut found = BTreeMap::new();
        for (uid, account) in &seen.accounts {
            let of = |model: &Model| model.limits.get(uid).copied().unwrap_or_default();
            let expected: Vec<Limits> = after.iter().chain([&self.model]).map(of).collect();
            if !expected.contains(&account.limits) {
                let story = format!("limits of {uid} are {:?}, expected {expected:?}", account.limits);
                return Err(Violation::new(Kind::Lost, story));
            }
            if !account.limits.is_none() {
                found.insert(*uid, account.limits);
            }
        }
        Ok(found)
    }
}

/// Of a segment that is there: is it one of those that may be?
fn check_segment<'a>(
    found: &SeenSegment,
    possible: impl Iterator<Item = &'a Segment> + Clone,
) -> Result<Segment, Violation> {
    let key = found.key;
    let Some(instance) = possible.clone().next().map(|segment| segment.instance) else {
        let story = format!("{key} is there, but was never created, or its deletion was acknowledged");
        return Err(Violation::new(Kind::Lost, story));
    };
    let fits = |segment: &&Segment| {
        segment.start_block.is_none_or(|start| start == found.start_block)
            && (segment.blocks, segment.reserve) == (found.blocks, found.reserve)
    };
    if !possible.clone().any(|segment| fits(&segment)) {
        let shape = |segment: &Segment| (segment.start_block, segment.blocks, segment.reserve);
        let story = format!(
            "{key} is (start, blocks, reserve) {:?}, acknowledged was {:?}",
            (found.start_block, found.blocks, found.reserve),
            possible.map(shape).collect::<Vec<_>>()
        );
        return Err(Violation::new(Kind::Lost, story));
    }
    Ok(Segment {
        instance,
        start_block: Some(found.start_block),
        blocks: found.blocks,
        reserve: found.reserve,
        sectors: check_sectors(found, instance, possible)?,
    })
}

fn check_sectors<'a>(
    found: &SeenSegment,
    instance: Instance,
    possible: impl Iterator<Item = &'a Segment> + Clone,
) -> Result<Vec<Sector>, Violation> {
    let key = found.key;
    if found.contents.len() as u64 != found.blocks * SECTORS_PER_BLOCK {
        let story = format!("{key} of {} blocks has {} sectors", found.blocks, found.contents.len());
        return Err(Violation::new(Kind::Lost, story));
    }
    let mut sectors = Vec::with_capacity(found.contents.len());
    for (position, content) in found.contents.iter().enumerate() {
        let mut expected = possible.clone().filter_map(|segment| segment.sectors.get(position));
        let version = match judge(instance, position as u64, *content) {
            Ok(Some(version)) => version,
            Ok(None) => {
                sectors.push(expected.next().cloned().unwrap_or_default());
                continue;
            }
            Err(story) => {
                let story = format!("{key} sector {position}: {story}");
                return Err(Violation::new(Kind::Leak, story));
            }
        };
        if !expected.clone().any(|sector| sector.allows(version)) {
            let expected: Vec<&Sector> = expected.collect();
            let story = format!("{key} sector {position} has version {version}, expected {expected:?}");
            return Err(Violation::new(Kind::Lost, story));
        }
        sectors.push(Sector {
            settled: version,
            pending: Vec::new(),
        });
    }
    Ok(sectors)
}

/// The version that a sector has, or why its bytes cannot be this segment's. `None`: it was damaged on purpose.
fn judge(instance: Instance, at: u64, content: Content) -> Result<Option<Version>, String> {
    match content {
        Content::Zero => Ok(Some(0)),
        Content::Damaged => Ok(None),
        Content::Written {
            instance: writer,
            position,
            version,
        } if writer == instance && u64::from(position) == at => Ok(Some(version)),
        Content::Written { .. } => Err(format!("holds another segment's bytes, {content:?}")),
        Content::Stale => Err("holds what was on the disk before the volume".into()),
        Content::Mixed => Err("holds bytes that nobody wrote".into()),
    }
}

/// The longest run of blocks that none of these runs holds: each its first block and the one behind its last.
pub(crate) fn longest_gap(mut runs: Vec<(u64, u64)>, blocks: u64) -> u64 {
    runs.sort_unstable();
    let ends = [0].into_iter().chain(runs.iter().map(|run| run.1));
    let starts = runs.iter().map(|run| run.0).chain([blocks]);
    let gaps = starts.zip(ends).map(|(start, end)| start.saturating_sub(end));
    gaps.max().unwrap_or(0)
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
    if let Some(segment) = seen.segments.iter().find(|segment| !segment.is_served()) {
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
        return Err(Violation::new(Kind::Space, story));
    }
    let ends = runs.iter().map(|run| (run.0, run.0 + run.1)).collect();
    let largest = longest_gap(ends, seen.data_blocks);
    if largest != seen.largest_free {
        let story = format!(
            "the longest free run is said to be {}, and is {largest}",
            seen.largest_free
        );
        return Err(Violation::new(Kind::Space, story));
    }
    for (uid, account) in &seen.accounts {
        let own = seen.segments.iter().filter(|segment| segment.key.uid == *uid);
        let (blocks, segments) = own.fold((0, 0), |(blocks, count), s| (blocks + s.reserve, count + 1));
        if (account.used.blocks, account.used.segments) != (blocks, segments) {
            let story = format!(
                "{uid} is told to hold {:?}, and holds {blocks} blocks in {segments} segments",
                account.used
            );
            return Err(Violation::new(Kind::Space, story));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
