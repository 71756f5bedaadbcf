//! How a file or segment will be used.

use std::ops::Range;

use crate::codec::{Field, Malformed, RANGES_MAX, Reader, Writer, choice, words};

/// How a file or segment will be used. Pages are of 4 KiB, number 0 is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Bring these in.
    Prefetch(Vec<Range<u64>>),
    /// These will not be wanted again.
    Drop(Range<u64>),
    /// These stay.
    Keep(Range<u64>),
    /// These need not stay any more.
    KeepNoMore(Range<u64>),
    /// It will be read so.
    Pattern(Pattern),
}

/// How an object will be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// Not known: the cache recognises sequential reads itself.
    #[default]
    Unknown,
    /// In order: the cache reads ahead of every request, with the largest window at once.
    Sequential,
    /// At random: nothing is read ahead.
    Random,
}

words!(Pattern, "an unknown pattern" { 0 Unknown, 1 Sequential, 2 Random });

impl Field for Range<u64> {
    fn put(&self, writer: &mut Writer) {
        self.start.put(writer);
        self.end.put(writer);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Range<u64>, Malformed> {
        let start = u64::take(reader)?;
        Ok(start..u64::take(reader)?)
    }
}

impl Field for Hint {
    fn put(&self, writer: &mut Writer) {
        let mut one = |word: u8, range: &Range<u64>| {
            word.put(writer);
            range.put(writer);
        };
        match self {
            Hint::Prefetch(ranges) => {
                writer.check("a list of ranges", ranges.len(), RANGES_MAX);
                0u8.put(writer);
                ranges.put(writer);
            }
            Hint::Drop(range) => one(1, range),
            Hint::Keep(range) => one(2, range),
            Hint::KeepNoMore(range) => one(3, range),
            Hint::Pattern(pattern) => {
                4u8.put(writer);
                pattern.put(writer);
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Hint, Malformed> {
        let known = |byte| (byte <= 4).then_some(byte);
        Ok(match choice(reader, known, "an unknown hint")? {
            0 => {
                let count = reader.count(RANGES_MAX, "more than 1024 ranges")?;
                let ranges: Result<_, _> = (0..count).map(|_| Field::take(reader)).collect();
                Hint::Prefetch(ranges?)
            }
            1 => Hint::Drop(Field::take(reader)?),
            2 => Hint::Keep(Field::take(reader)?),
            3 => Hint::KeepNoMore(Field::take(reader)?),
            _ => Hint::Pattern(Field::take(reader)?),
        })
    }
}
