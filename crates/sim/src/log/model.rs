//! What the users of a log were told, and what an opening must therefore give.

use std::collections::BTreeMap;

use baio_storage::log::{Batches, Lsn, Record, RecordReader, Recovered};

use crate::violation::{Kind, Violation};

/// Records that were appended as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Number of its first record; the others follow.
    pub first: u64,
    /// Bytes of each record.
    pub lens: Vec<u32>,
    /// LSN of its last record, as the append said.
    pub lsn: u64,
}

impl Group {
    /// Is that its last record?
    #[must_use]
    pub fn ends_with(&self, record: &Seen) -> bool {
        let (last, number) = (self.lens.len() - 1, self.first + self.lens.len() as u64 - 1);
        let is_its = record.is_last && record.lsn == self.lsn && record.bytes.len() == self.lens[last] as usize;
        is_its && is_record(number, &record.bytes)
    }
}

/// What somebody was told, or asked.
#[derive(Clone, Debug)]
pub enum Told {
    /// A group has its LSN.
    Given(Group),
    /// Everything below is durable.
    Durable(u64),
    /// What is below is not wanted any more.
    TruncateAsked(u64),
    /// The head is there.
    Head(u64),
    /// This one holds what is not below.
    Held(u64, u64),
    /// It holds nothing any more.
    LetGo(u64),
    /// The log is open: so many of the groups were served.
    Opened {
        /// What the opening said.
        recovered: Recovered,
        /// Groups from the oldest that is known to the last that was served.
        groups: usize,
    },
    /// A close was asked for.
    CloseAsked,
    /// It was closed.
    Closed,
}

/// What must hold.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// In their order: those that are there, or may be.
    pub groups: Vec<Group>,
    /// Those that an opening did not find: only a salvage may bring them back.
    pub gone: Vec<Group>,
    /// The log was open once.
    pub is_made: bool,
    /// The highest LSN that was ever given.
    pub given: u64,
    /// Everything below is durable.
    pub durable: u64,
    head: u64,
    head_asked: u64,
    /// What is held, by whom.
    held: BTreeMap<u64, u64>,
    epoch: u64,
    close_asked: bool,
    is_closed: bool,
}

/// The bytes of a record: those of no other.
pub fn fill(number: u64, into: &mut [u8]) {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in into.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = word.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
}

/// Is that the record with this number?
#[must_use]
pub fn is_record(number: u64, bytes: &[u8]) -> bool {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    bytes.chunks(8).all(|chunk| {
        let is_right = *chunk == word.to_le_bytes()[..chunk.len()];
        word = word.rotate_left(17).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        is_right
    })
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its LSN.
    pub lsn: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The last of its group.
    pub is_last: bool,
}

impl Seen {
    /// A record.
    #[must_use]
    pub fn of(record: &Record<'_>) -> Seen {
        Seen {
            lsn: record.lsn.0,
            bytes: record.bytes.to_vec(),
            is_last: record.is_last,
        }
    }
}

/// Adds the records of batches that were read from this LSN on.
///
/// # Errors
/// They are no row of records.
pub fn see(reader: &mut RecordReader, batches: &Batches, from: Lsn, seen: &mut Vec<Seen>) -> Result<(), Violation> {
    reader.push(batches);
    if reader.is_damaged() {
        return Err(Violation::new(
            Kind::Leak,
            format!("what lies at {from} is no row of records"),
        ));
    }
    while let Some(record) = reader.next_record() {
        seen.push(Seen::of(&record));
    }
    Ok(())
}

impl Model {
    /// Of a log that is not made yet, over one to which these were appended.
    #[must_use]
    pub fn of_a_log_over(gone: Vec<Group>) -> Model {
        Model {
            gone,
            ..Model::default()
        }
    }

    /// The same, and this was said.
    pub fn told(&mut self, told: &Told) {
        match told {
            Told::Given(group) => {
                self.given = group.lsn;
                self.groups.push(group.clone());
            }
            Told::Durable(lsn) => self.durable = *lsn,
            Told::TruncateAsked(to) => self.head_asked = self.head_asked.max(*to),
            Told::Head(head) => {
                self.head = self.head.max(*head);
                self.head_asked = self.head_asked.max(*head);
                let gone = self.groups.partition_point(|group| group.lsn < *head);
                self.groups.drain(..gone);
            }
            Told::Held(who, from) => {
                self.held.insert(*who, *from);
            }
            Told::LetGo(who) => {
                self.held.remove(who);
            }
            Told::Opened { recovered, groups } => {
                self.held.clear();
                self.gone.extend(self.groups.drain(*groups..));
                self.is_made = true;
                self.head = recovered.head.0;
                self.head_asked = self.head_asked.max(self.head);
                self.epoch = recovered.epoch;
                self.durable = recovered.next.0;
                (self.close_asked, self.is_closed) = (false, false);
            }
            Told::CloseAsked => self.close_asked = true,
            Told::Closed => self.is_closed = true,
        }
    }

    /// Is what was read of a log that was there before, as the making of this one had hardly begun?
    #[must_use]
    pub fn is_former(&self, seen: &[Seen]) -> bool {
        !self.is_made && self.groups.is_empty() && !seen.is_empty()
    }

    /// A process opens it: it may not look closed any more.
    pub fn is_opened_again(&mut self) {
        self.is_closed = false;
    }

    /// Is what an opening said right, and what it served? The number of groups that are there, from the oldest known.
    ///
    /// `is_fallback`: one copy of the header has rotted, so a clean close may be forgotten.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(&self, recovered: &Recovered, seen: &[Seen], is_fallback: bool) -> Result<usize, Violation> {
        self.check_numbers(recovered, is_fallback)?;
        let groups = self.check_prefix(recovered.head.0, seen)?;
        if let Some(missing) = self.groups.get(groups).filter(|group| group.lsn < self.durable) {
            let story = format!(
                "LSN {} was acknowledged (durable {}) and is not there: {groups} of {} groups, {recovered:?}",
                missing.lsn,
                self.durable,
                self.groups.len()
            );
            return Err(Violation::new(Kind::Lost, story));
        }
        let last = groups.checked_sub(1).map_or(0, |last| self.groups[last].lsn);
        if recovered.end.0 <= last && groups > 0 && last >= recovered.head.0 {
            let story = format!("record {last} is behind the end: {recovered:?}");
            return Err(Violation::new(Kind::Failed, story));
        }
        Ok(groups)
    }

    /// Head, LSNs and epoch.
    fn check_numbers(&self, recovered: &Recovered, is_fallback: bool) -> Result<(), Violation> {
        let wrong = |kind, story: String| Err(Violation::new(kind, format!("{story}: {recovered:?}")));
        let head = recovered.head.0;
        if head < self.head {
            return wrong(Kind::Failed, format!("the head was {} and went back", self.head));
        }
        if self.is_made && head > self.head_asked.max(self.head) {
            return wrong(Kind::Lost, format!("nobody asked for more than {}", self.head_asked));
        }
        if let Some(from) = self.held.values().find(|from| **from < head) {
            return wrong(Kind::Lost, format!("LSN {from} was held"));
        }
        if recovered.next.0 <= self.given {
            return wrong(Kind::Order, format!("LSN {} was given, and will be again", self.given));
        }
        if recovered.next.0 < self.durable {
            return wrong(Kind::Order, format!("durable was {}, and goes back", self.durable));
        }
        if recovered.epoch <= self.epoch {
            return wrong(Kind::Order, format!("epoch {} was there before", self.epoch));
        }
        if recovered.was_clean && self.is_made && !self.close_asked {
            return wrong(Kind::Failed, "nobody closed it".into());
        }
        if self.is_closed && !recovered.was_clean && !is_fallback {
            return wrong(Kind::Failed, "it was closed".into());
        }
        if !recovered.holes.is_empty() {
            return wrong(Kind::Failed, "a hole where nothing rotted".into());
        }
        Ok(())
    }

    /// What is served is what was appended, from the head on, whole groups in order, without a gap.
    ///
    /// # Errors
    /// It is not.
    pub fn check_prefix(&self, head: u64, seen: &[Seen]) -> Result<usize, Violation> {
        let begin = self.groups.partition_point(|group| group.lsn < head);
        let groups = self.groups[begin..].iter();
        Ok(begin + check_groups(groups, seen)?)
    }
}

/// Are these the records of the groups, as far as they go? How many groups they are.
///
/// # Errors
/// They are not.
pub fn check_groups<'a>(groups: impl Iterator<Item = &'a Group>, seen: &[Seen]) -> Result<usize, Violation> {
    let (mut rest, mut count, mut before) = (seen, 0, 0);
    for group in groups {
        if rest.is_empty() {
            return Ok(count);
        }
        for (nth, &len) in group.lens.iter().enumerate() {
            let number = group.first + nth as u64;
            let is_last = nth + 1 == group.lens.len();
            let Some((record, others)) = rest.split_first() else {
                let story = format!("the group that ends at {} is cut at record {nth}", group.lsn);
                return Err(Violation::new(Kind::Lost, story));
            };
            rest = others;
            let is_at = if is_last {
                record.lsn == group.lsn
            } else {
                record.lsn < group.lsn
            };
            let is_right = record.bytes.len() == len as usize && is_record(number, &record.bytes);
            if !is_at || record.lsn <= before || !is_right || record.is_last != is_last {
                let story = format!(
                    "LSN {} ({} bytes, bytes right: {is_right}) where record {number} of {len} bytes, LSN {} at most, should be",
                    record.lsn,
                    record.bytes.len(),
                    group.lsn
                );
                let kind = if is_right { Kind::Failed } else { Kind::Leak };
                return Err(Violation::new(kind, story));
            }
            before = record.lsn;
        }
        count += 1;
    }
    match rest.first() {
        None => Ok(count),
        Some(record) => {
            let story = format!(
                "LSN {} ({} bytes) was never appended, or was gone",
                record.lsn,
                record.bytes.len()
            );
            Err(Violation::new(Kind::Leak, story))
        }
    }
}
