//! Rot: one batch, or one copy of the header, has changed or cannot be read. Tests what must be reported then, and which records must still
//! be there.
//!
//! The batches are charted here by the rules of `docs/inside/log-format.md`, not by the code that recovers a log.

use std::fmt;
use std::sync::Arc;

use baio_engine::Arena;
use baio_engine::sim::Random;
use baio_storage::log::format::{
    BATCH_HEADER, BatchHeader, COPIES_AT, DATA_AT, HEADER_BYTES, Header, RECORD_HEADER, SeenBatch,
};
use baio_storage::log::{Hole, LogError, LogOptions, Lsn};

use super::medium::{Medium, SECTOR};
use super::model::{Group, Seen, check_groups};
use super::opens::open;
use super::workload::{Counts, State};
use crate::violation::{Kind, Violation};

/// A batch, where it lies.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// From the beginning of the area.
    offset: u64,
    /// The end of the batch before it.
    begin: u64,
    padded: u64,
    header: BatchHeader,
}

/// The batches of a log in their order.
#[derive(Debug)]
struct Chart {
    header: Header,
    links: Vec<Link>,
}

fn copies(image: &[u8]) -> impl Iterator<Item = Header> + '_ {
    COPIES_AT
        .into_iter()
        .filter_map(|at| Header::decode(&image[at as usize..at as usize + HEADER_BYTES]).ok())
}

fn watermark(image: &[u8]) -> u64 {
    copies(image).map(|header| header.watermark).max().unwrap_or(0)
}

fn batch_at(image: &[u8], header: &Header, offset: u64) -> Option<BatchHeader> {
    let rest = DATA_AT + header.capacity - offset;
    let bytes = &image[offset as usize..(offset + rest) as usize];
    match BatchHeader::look(bytes, &header.salt, u64::from(header.batch_bytes_max).min(rest)) {
        SeenBatch::Whole(batch) => Some(batch),
        _ => None,
    }
}

fn chart(image: &[u8]) -> Option<Chart> {
    let mut all: Vec<Header> = copies(image).collect();
    all.sort_by_key(|header| header.sequence);
    let header = all.pop()?;
    let (mut end, mut place, mut passed, mut epoch) = (header.head.batch, header.head.place, 0, 0);
    let mut links: Vec<Link> = Vec::new();
    while passed < header.capacity {
        let Some(batch) = batch_at(image, &header, DATA_AT + place) else {
            break;
        };
        let follows = batch.prev == end || (links.is_empty() && batch.lsn == end);
        if !follows || batch.lsn < end || batch.epoch < epoch {
            break;
        }
        let padded = u64::from(batch.padded(header.block_bytes));
        links.push(Link {
            offset: DATA_AT + place,
            begin: end,
            padded,
            header: batch,
        });
        (end, epoch) = (batch.lsn + padded, batch.epoch);
        passed += padded;
        place = (place + padded) % header.capacity;
    }
    Some(Chart { header, links })
}

/// What lies on a medium, for a story: the copies of the header, and every batch with its place.
#[must_use]
pub fn describe(medium: &Medium) -> String {
    let image = medium.image();
    let mut story: Vec<String> = copies(&image).map(|header| format!("{header:?}")).collect();
    let blocks = DATA_AT..image.len() as u64;
    for header in copies(&image).take(1) {
        let end = DATA_AT + header.capacity;
        let places = blocks
            .clone()
            .step_by(header.block_bytes as usize)
            .filter(|at| *at < end);
        story.extend(places.filter_map(|at| Some(format!("at {at} {:?}", batch_at(&image, &header, at)?))));
    }
    story.join("\n  ")
}

/// What has become of some bytes.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Bit,
    Zeroes,
    /// Others of this log, that were given up or come earlier.
    Old(u64),
    AllZeroes,
    /// The sector gives an error.
    Unreadable,
}

/// What rotted.
#[derive(Clone, Copy, Debug)]
struct Rot {
    offset: u64,
    damage: Damage,
}

impl fmt::Display for Rot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rot at byte {}: {:?}", self.offset, self.damage)
    }
}

/// Damages some of these bytes; the rot, if it has changed them.
fn strike(medium: &mut Medium, offset: u64, used: u64, old: &[u64], random: &mut Random) -> Option<Rot> {
    let mut before = vec![0; used as usize];
    medium.read(offset, &mut before);
    let at = offset + random.below(used);
    let sector = at / SECTOR as u64 * SECTOR as u64;
    let damage = match random.below(13) {
        0..=4 => Damage::Bit,
        5..=6 => Damage::Zeroes,
        7 => Damage::AllZeroes,
        10..=12 => Damage::Unreadable,
        _ => random.pick(old).map_or(Damage::Zeroes, |&from| Damage::Old(from)),
    };
    let mut bytes = [0; SECTOR];
    match damage {
        Damage::Bit => {
            medium.read(sector, &mut bytes);
            bytes[(at - sector) as usize] ^= 1 << random.below(8);
            medium.poke(sector, &bytes);
        }
        Damage::Zeroes => medium.poke(sector, &bytes),
        Damage::Old(from) => {
            medium.read(from, &mut bytes);
            medium.poke(sector, &bytes);
        }
        Damage::Unreadable => {
            medium.spoil(at);
            return Some(Rot { offset: at, damage });
        }
        Damage::AllZeroes => medium.poke(offset, &vec![0; used.next_multiple_of(SECTOR as u64) as usize]),
    }
    let mut after = vec![0; used as usize];
    medium.read(offset, &mut after);
    (before != after).then_some(Rot { offset: at, damage })
}

/// What a state without rot serves: its groups, and where their records are.
#[derive(Debug)]
pub struct Reference<'a> {
    /// From the head on.
    pub groups: &'a [Group],
    /// Their records.
    pub seen: &'a [Seen],
    /// Groups from the oldest known on.
    pub count: usize,
}

impl Reference<'_> {
    /// Groups that have anything in this batch.
    fn touched(&self, chart: &Chart, nth: usize) -> Vec<bool> {
        let mut records = self.seen.iter();
        self.groups
            .iter()
            .map(|group| {
                let of_group = records.by_ref().take(group.lens.len());
                of_group.fold(false, |is_touched, record| is_touched | chart.has(nth, record))
            })
            .collect()
    }
}

impl Chart {
    /// Does this batch have anything of the record?
    fn has(&self, nth: usize, record: &Seen) -> bool {
        let begins = self.links.partition_point(|link| link.header.lsn <= record.lsn);
        let mut left = RECORD_HEADER as u64 + (record.bytes.len() as u64).next_multiple_of(8);
        let mut at = record.lsn;
        for (number, link) in self.links.iter().enumerate().skip(begins.saturating_sub(1)) {
            if number == nth {
                return true;
            }
            let room = (link.header.lsn + u64::from(link.header.bytes)).saturating_sub(at);
            left = left.saturating_sub(room);
            if left == 0 {
                break;
            }
            at = link.header.lsn + link.padded + BATCH_HEADER as u64;
        }
        false
    }
}

/// One thing rots, and the log is opened; the fingerprint of what was opened, when anything has changed.
///
/// # Errors
/// A broken promise.
pub fn try_rot(
    arena: &Arc<Arena>,
    options: &LogOptions,
    state: &State,
    reference: &Reference<'_>,
    random: &mut Random,
    counts: &mut Counts,
) -> Result<Option<u64>, Violation> {
    let mut medium = state.medium.clone();
    medium.sync();
    let image = medium.image();
    let Some(chart) = chart(&image) else {
        return Err(Violation::new(Kind::Failed, "opened, and there is no header"));
    };
    if random.percent(25) || chart.links.is_empty() {
        return rot_header(arena, options, state, medium, reference, random, counts);
    }
    if random.percent(10) {
        return spoil_behind(arena, options, medium, &chart, reference, random, counts);
    }
    let nth = match random.below(4) {
        0 => chart.links.len() - 1 - random.below(chart.links.len().min(4) as u64) as usize,
        _ => random.below(chart.links.len() as u64) as usize,
    };
    let link = chart.links[nth];
    let old = old_sectors(&image, &chart, nth);
    let Some(rot) = strike(&mut medium, link.offset, u64::from(link.header.bytes), &old, random) else {
        return Ok(None);
    };
    *counts.entry("rotten").or_default() += 1;
    let behind = chart.links[nth + 1..].iter().map(|link| link.header.watermark).max();
    let known = behind.unwrap_or(0).max(watermark(&image)) > link.begin;
    let look = Look {
        arena,
        options,
        medium: &medium,
        reference,
        unserved: [&state.model.gone, &state.model.groups[reference.count..]].concat(),
        chart: &chart,
        nth,
        known,
        is_unreadable: matches!(rot.damage, Damage::Unreadable),
    };
    look.judge(state, random, counts).map_err(|violation| {
        violation.after(format!(
            "{rot}, in batch {nth} of {}, {link:?}, known to be durable: {known}",
            chart.links.len()
        ))
    })?;
    Ok(Some(medium.fingerprint()))
}

/// Sectors that no later batch has, also none that begin one: an old one is wanted.
fn old_sectors(image: &[u8], chart: &Chart, nth: usize) -> Vec<u64> {
    let end = DATA_AT + chart.header.capacity;
    let later = &chart.links[nth..];
    (DATA_AT..end)
        .step_by(SECTOR)
        .filter(|at| {
            !later
                .iter()
                .any(|link| (link.offset..link.offset + link.padded).contains(at))
        })
        .filter(|at| batch_at(image, &chart.header, *at).is_none_or(|batch| batch.lsn <= chart.links[nth].begin))
        .collect()
}

fn rot_header(
    arena: &Arc<Arena>,
    options: &LogOptions,
    state: &State,
    mut medium: Medium,
    reference: &Reference<'_>,
    random: &mut Random,
    counts: &mut Counts,
) -> Result<Option<u64>, Violation> {
    let copy = random.below(2) as usize;
    let Some(rot) = strike(&mut medium, COPIES_AT[copy], HEADER_BYTES as u64, &[DATA_AT], random) else {
        return Ok(None);
    };
    *counts.entry("header_rotten").or_default() += 1;
    if matches!(rot.damage, Damage::Unreadable) {
        *counts.entry("header_unreadable").or_default() += 1;
        let mut both = medium.clone();
        both.spoil(COPIES_AT[1 - copy]);
        match open(arena, both, options, random)? {
            Err(LogError::Read { .. }) => {}
            other => {
                let story = format!("neither copy of the header can be read: {:?}", other.map(drop));
                return Err(Violation::new(Kind::Failed, story));
            }
        }
    }
    let mut fallback = || -> Result<(), Violation> {
        let (_, recovered, seen) = match open(arena, medium.clone(), options, random)? {
            Ok(opened) => opened,
            Err(error) => return Err(Violation::new(Kind::Refused, error.to_string())),
        };
        let count = state.model.check(&recovered, &seen, true)?;
        if count != reference.count {
            let story = format!("{count} groups with one header, {} with two", reference.count);
            return Err(Violation::new(Kind::Lost, story));
        }
        Ok(())
    };
    let fingerprint = medium.fingerprint();
    fallback().map_err(|violation| violation.after(format!("{rot}, copy {copy} of the header")))?;
    Ok(Some(fingerprint))
}

/// A sector behind the end cannot be read. Where the next batch would be nobody knows whether it is there: that may be told; elsewhere
/// nothing is lost by it.
fn spoil_behind(
    arena: &Arc<Arena>,
    options: &LogOptions,
    mut medium: Medium,
    chart: &Chart,
    reference: &Reference<'_>,
    random: &mut Random,
    counts: &mut Counts,
) -> Result<Option<u64>, Violation> {
    let (header, sector) = (&chart.header, SECTOR as u64);
    let at = DATA_AT + random.below(header.capacity / sector) * sector;
    let end = chart
        .links
        .last()
        .map_or(DATA_AT + header.head.place, |link| link.offset + link.padded);
    let end = if end == DATA_AT + header.capacity { DATA_AT } else { end };
    let is_linked = |link: &Link| (link.offset..link.offset + link.padded).contains(&at);
    if chart.links.iter().any(is_linked) {
        return Ok(None);
    }
    *counts.entry("unreadable_behind").or_default() += 1;
    medium.spoil(at);
    let fingerprint = medium.fingerprint();
    let wrong = |kind, story: String| {
        let story = format!("byte {at} behind the end at {end} cannot be read: {story}");
        Err(Violation::new(kind, story))
    };
    let is_next = (end..end + u64::from(header.batch_bytes_max)).contains(&at);
    match open(arena, medium, options, random)? {
        Ok((_, _, seen)) if seen != reference.seen => wrong(Kind::Lost, format!("{} records are there", seen.len())),
        Err(LogError::Read { .. }) if is_next => Ok(Some(fingerprint)),
        Err(error) => wrong(Kind::Refused, error.to_string()),
        Ok(_) => Ok(Some(fingerprint)),
    }
}

struct Look<'a> {
    arena: &'a Arc<Arena>,
    options: &'a LogOptions,
    medium: &'a Medium,
    reference: &'a Reference<'a>,
    /// Given, and not served without rot.
    unserved: Vec<Group>,
    chart: &'a Chart,
    nth: usize,
    known: bool,
    is_unreadable: bool,
}

impl Look<'_> {
    fn link(&self) -> &Link {
        &self.chart.links[self.nth]
    }

    fn judge(&self, state: &State, random: &mut Random, counts: &mut Counts) -> Result<(), Violation> {
        let link = self.link();
        let touched = self.reference.touched(self.chart, self.nth);
        match open(self.arena, self.medium.clone(), self.options, random)? {
            Err(LogError::Rot { lsn, offset }) if !self.is_unreadable => {
                if lsn.0 != link.begin || offset != link.offset {
                    let story = format!("told as rot behind LSN {lsn} at byte {offset}");
                    return Err(Violation::new(Kind::Failed, story));
                }
                if !self.known && !self.says_anybody() {
                    return Err(Violation::new(Kind::Refused, "rot, and nothing says it was durable"));
                }
                *counts.entry("rot_told").or_default() += 1;
                self.salvage(&touched, random)
            }
            Err(LogError::Read { .. }) if self.is_unreadable => {
                *counts.entry("unreadable_told").or_default() += 1;
                self.salvage_refuses(random)
            }
            Err(error) => Err(Violation::new(Kind::Refused, error.to_string())),
            Ok(_) if self.is_unreadable => Err(Violation::new(
                Kind::Lost,
                "a batch that cannot be read is taken for the end",
            )),
            Ok(_) if self.known => Err(Violation::new(
                Kind::Lost,
                format!(
                    "what was known to be durable has rotted, and the log ends there as if nothing had been: {:?}",
                    self.chart
                ),
            )),
            Ok((_, recovered, seen)) => {
                *counts.entry("rot_cut").or_default() += 1;
                self.check_kept(self.in_front(&touched), &seen)?;
                if recovered.next.0 <= state.model.given {
                    // Nobody can know any more what was given.
                    *counts.entry("rot_gives_again").or_default() += 1;
                }
                Ok(())
            }
        }
    }

    /// The groups in front of the batch.
    fn in_front(&self, touched: &[bool]) -> &[Group] {
        let lsn = self.link().header.lsn;
        let kept = touched.iter().position(|&is_touched| is_touched);
        let groups = self.reference.groups;
        &groups[..kept.unwrap_or_else(|| groups.partition_point(|group| group.lsn < lsn))]
    }

    /// Nobody salvages while reads fail.
    fn salvage_refuses(&self, random: &mut Random) -> Result<(), Violation> {
        let options = LogOptions {
            salvage: true,
            ..*self.options
        };
        match open(self.arena, self.medium.clone(), &options, random)? {
            Err(LogError::Read { .. }) => Ok(()),
            other => {
                let story = format!("what cannot be read is salvaged: {:?}", other.map(drop));
                Err(Violation::new(Kind::Lost, story))
            }
        }
    }

    fn check_kept(&self, groups: &[Group], seen: &[Seen]) -> Result<(), Violation> {
        let count = check_groups(groups.iter(), seen)?;
        if count < groups.len() {
            let story = format!("{count} of {} groups that have not rotted are there", groups.len());
            return Err(Violation::new(Kind::Lost, story));
        }
        Ok(())
    }

    /// Does any batch at all say that the log was durable beyond it? One behind a gap, for example.
    fn says_anybody(&self) -> bool {
        let image = self.medium.image();
        let header = &self.chart.header;
        (DATA_AT..DATA_AT + header.capacity)
            .step_by(header.block_bytes as usize)
            .filter_map(|offset| batch_at(&image, header, offset))
            .any(|batch| batch.watermark > self.link().begin)
    }

    /// With salvage all is there but what has rotted; and a later opening knows of the hole.
    fn salvage(&self, touched: &[bool], random: &mut Random) -> Result<(), Violation> {
        let link = self.link();
        let options = LogOptions {
            salvage: true,
            ..*self.options
        };
        let say = |violation: Violation| violation.after("with salvage");
        let (mut rig, recovered, seen) = match open(self.arena, self.medium.clone(), &options, random).map_err(say)? {
            Ok(opened) => opened,
            Err(error) => return Err(say(Violation::new(Kind::Refused, error.to_string()))),
        };
        // What had been in flight behind a gap, or was cut off by an earlier opening, may be found now, and what a growth has copied:
        // it was appended.
        let is_seen = |group: &Group| seen.iter().any(|record| group.ends_with(record));
        let is_other = |group: &Group| self.reference.seen.iter().all(|record| record.lsn != group.lsn);
        let more = self.unserved.iter().filter(|group| is_seen(group) && is_other(group));
        let there = self.reference.groups.iter().zip(touched);
        let there = there.filter(|(group, is_touched)| !**is_touched || is_seen(group));
        let mut groups: Vec<Group> = there.map(|(group, _)| group).chain(more).cloned().collect();
        // Records without bytes look alike, also one of a log that was there before.
        groups.sort_by_key(|group| group.lsn);
        groups.dedup_by_key(|group| group.lsn);
        self.check_kept(&groups, &seen).map_err(say)?;
        let is_right = |hole: &Hole| {
            let next = self.chart.links.get(self.nth + 1);
            hole.offset == link.offset
                && hole.from.0 <= link.begin
                && next.is_none_or(|next| hole.to == Lsn(next.header.lsn))
        };
        if !recovered.holes.first().is_some_and(is_right) {
            return Err(say(Violation::new(
                Kind::Failed,
                format!("holes: {:?}", recovered.holes),
            )));
        }
        rig.drain()?;
        let again = |violation: Violation| violation.after("opened again after salvage");
        match open(self.arena, rig.medium.clone(), self.options, random).map_err(again)? {
            Ok((_, _, seen)) => self.check_kept(&groups, &seen).map_err(again),
            Err(error) => Err(again(Violation::new(Kind::Refused, error.to_string()))),
        }
    }
}
