//! Which batch follows which: the rules by which a batch counts, and where its groups begin.
//!
//! | rule | what it keeps out |
//! |---|---|
//! | magic, stamp, CRC-32C | torn batches, other logs, records that look like batches |
//! | `prev` is the end of the batch before | a batch behind one that was lost |
//! | the LSN is that end, or in a later epoch a higher one | ghosts of the last lap |
//! | the epoch is not lower | ghosts of an opening before this one |
//! | its records are as it says | what no writer of ours wrote |

use super::format::{BatchHeader, Carry, Head, Header, RECORD_FIRST, RECORD_LAST, Salt, SeenBatch, walk};

/// A log's batches, followed from a known place on.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    salt: Salt,
    block: u32,
    batch_max: u32,
    capacity: u64,
    /// LSN of the end of what was followed.
    pub(super) end: u64,
    /// Where the next batch lies.
    pub(super) place: u64,
    pub(super) epoch: u64,
    carry: Carry,
    /// Where the group begins that is not whole at the end.
    pub(super) group: Option<Head>,
    /// Records below this LSN are not looked at.
    from: u64,
    link: Link,
    /// Bytes that were summed up and did not count.
    pub(super) in_vain: u64,
}

/// What the next batch must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// The batch with the LSN `end`, or that which follows it.
    First,
    /// That which follows.
    Next,
    /// Any that is later: something between has been lost.
    BehindHole,
}

/// What lies at the place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The next batch, of so many bytes with padding.
    Batch {
        header: BatchHeader,
        padded: u32,
        place: u64,
        /// The group that was not whole when it began.
        group: Option<Head>,
    },
    /// Perhaps a batch, longer than the bytes.
    Longer,
    /// Not the next batch.
    Gap,
}

impl Chain {
    /// From a head on.
    pub(super) fn new(header: &Header, head: Head) -> Chain {
        Chain {
            salt: header.salt,
            block: header.block_bytes,
            batch_max: header.batch_bytes_max,
            capacity: header.capacity,
            end: head.batch,
            place: head.place,
            epoch: 0,
            carry: if head.lsn == head.batch {
                Carry::Between
            } else {
                Carry::Unknown
            },
            group: None,
            from: head.lsn,
            link: Link::First,
            in_vain: 0,
        }
    }

    /// From a batch in the middle on, at whose beginning this group was not whole.
    pub(super) fn within(&self, lsn: u64, place: u64, group: Option<Head>) -> Chain {
        Chain {
            end: lsn,
            place,
            carry: Carry::Unknown,
            group,
            from: 0,
            link: Link::First,
            ..self.clone()
        }
    }

    /// Goes on behind a hole, at a place where a later batch was found.
    pub(super) fn skip_to(&mut self, place: u64) {
        self.place = place;
        self.carry = Carry::Unknown;
        self.group = None;
        self.link = Link::BehindHole;
    }

    /// Was it begun in an area of this size?
    pub(super) fn is_of(&self, capacity: u64) -> bool {
        self.capacity == capacity
    }

    /// Where whole groups end.
    pub(super) fn complete(&self) -> Head {
        self.group.unwrap_or(Head {
            lsn: self.end,
            batch: self.end,
            place: self.place,
        })
    }

    fn follows(&self, header: &BatchHeader) -> bool {
        if crate::seeded_bug("log-ghost-accepted") {
            return true;
        }
        if header.epoch < self.epoch || header.lsn < self.end {
            return false;
        }
        match self.link {
            Link::First => header.lsn == self.end || header.prev == self.end,
            Link::Next => header.prev == self.end && (header.lsn == self.end || header.epoch > self.epoch),
            Link::BehindHole => true,
        }
    }

    /// A batch that may be later than this place, when it is there and whole.
    pub(super) fn look_later(&mut self, bytes: &[u8], place: u64) -> Option<Later> {
        let max = u64::from(self.batch_max).min(self.capacity - place);
        let mut summed = 0;
        let seen = BatchHeader::look_if(bytes, &self.salt, max, |header| {
            let is_later = header.lsn > self.end && header.epoch >= self.epoch;
            summed = if is_later { u64::from(header.bytes) } else { 0 };
            is_later
        });
        self.in_vain += summed;
        match seen {
            SeenBatch::None => None,
            SeenBatch::Longer(_) => Some(Later::Longer),
            // Only one that `step` would take: a recovery that skips to it goes on.
            SeenBatch::Whole(header) => walk(bytes, &header, Carry::Unknown, |_| {}).map(|_| Later::Batch(header)),
        }
    }

    /// Looks at the bytes that lie at the place, and goes behind the batch that begins there if it is the next. Every group that
    /// begins in it is told.
    pub(super) fn step(&mut self, bytes: &[u8], mut each_group: impl FnMut(Head)) -> Step {
        let max = u64::from(self.batch_max).min(self.capacity - self.place);
        let mut summed = 0;
        let seen = BatchHeader::look_if(bytes, &self.salt, max, |header| {
            let follows = self.follows(header);
            summed = if follows { u64::from(header.bytes) } else { 0 };
            follows
        });
        let header = match seen {
            SeenBatch::None => {
                self.in_vain += summed;
                return Step::Gap;
            }
            SeenBatch::Longer(_) => return Step::Longer,
            SeenBatch::Whole(header) => header,
        };
        // Another epoch goes on behind the last whole group, so what was begun before it is over.
        let is_fresh =
            self.link == Link::Next && header.epoch > self.epoch || self.link == Link::First && header.lsn > self.end;
        let carry = if is_fresh { Carry::Between } else { self.carry };
        let before = if is_fresh { None } else { self.group };
        let (mut group, from, place) = (before, self.from, self.place);
        let walked = walk(bytes, &header, carry, |piece| {
            if let Some(at) = piece.begins {
                let head = Head {
                    lsn: header.lsn + u64::from(at),
                    batch: header.lsn,
                    place,
                };
                if piece.flags & RECORD_FIRST != 0 && head.lsn >= from {
                    group = Some(head);
                    each_group(head);
                }
            }
            if piece.ends && piece.flags & RECORD_LAST != 0 {
                group = None;
            }
        });
        let Some(carry) = walked else {
            self.in_vain += summed;
            return Step::Gap;
        };
        let padded = header.padded(self.block);
        (self.carry, self.group, self.epoch, self.link) = (carry, group, header.epoch, Link::Next);
        self.end = header.lsn + u64::from(padded);
        self.place += u64::from(padded);
        if self.place >= self.capacity {
            self.place = 0;
        }
        Step::Batch {
            header,
            padded,
            place,
            group: before,
        }
    }
}

/// What was found behind a gap.
#[derive(Clone, Copy, Debug)]
pub(super) enum Later {
    Batch(BatchHeader),
    Longer,
}
