//! What a disk may hold, sector by sector.
//!
//! Each sector has a history of what was written to it, oldest first. A write that ended well is *certain*; one that
//! failed half-way or was given up may have landed or not. A certain entry that is also *safe* (a durable write, or one that
//! a sync covers) makes everything before it impossible, for ever. So a reader may see what stands from the last certain
//! entry on, and a power cut may leave what stands from the last certain and safe entry on. Since a workload has at most
//! one request that writes in flight per block, and none that reads beside it, this is exact.

use std::ops::Range;

/// Bytes of a sector; all of them bear one word.
pub const SECTOR: usize = 512;

/// What is in a sector: its every eight bytes.
pub type Word = u64;

/// Names a write; later ones have higher numbers.
pub type Number = u64;

/// What a write has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// It ended well; else it may be there or not.
    pub certain: bool,
    /// No power cut takes it back.
    pub safe: bool,
    /// It went in pieces that need not end at a sector.
    pub in_pieces: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: Number,
    /// `None`: damaged behind everybody's back, so that it may be anything.
    word: Option<Word>,
    landing: Landing,
}

#[derive(Clone, Debug, Default)]
struct Sector {
    entries: Vec<Entry>,
}

/// A disk, as its user knows it.
#[derive(Clone, Debug)]
pub struct Model {
    sectors: Vec<Sector>,
    next: Number,
}

/// A sector that holds what it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its number.
    pub sector: usize,
    /// What it begins with.
    pub found: Word,
    /// What it could hold.
    pub allowed: Vec<Word>,
}

/// From when on something is possible.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    /// The last certain entry: for a reader.
    Certain,
    /// The last certain and safe one: behind a power cut.
    Safe,
}

const BASE: Landing = Landing {
    certain: true,
    safe: true,
    in_pieces: false,
};

impl Model {
    /// A disk that holds this: all of it is there for good. A sector that is not filled with one word counts as damaged.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Model {
        let sectors = bytes.chunks(SECTOR).map(|sector| Sector {
            entries: vec![Entry {
                number: 0,
                word: Some(first_word(sector)).filter(|&word| is_filled(sector, word)),
                landing: BASE,
            }],
        });
        Model {
            sectors: sectors.collect(),
            next: 1,
        }
    }

    /// Writes that have ended so far: what a sync submitted now covers.
    #[must_use]
    pub fn ended(&self) -> Number {
        self.next
    }

    /// A write of `word` to these sectors has ended. Returns its number.
    pub fn land(&mut self, sectors: Range<usize>, word: impl Fn(usize) -> Word, landing: Landing) -> Number {
        let number = self.next;
        self.next += 1;
        for at in sectors {
            let Some(sector) = self.sectors.get_mut(at) else { break };
            let word = Some(word(at));
            sector.entries.push(Entry { number, word, landing });
            sector.forget();
        }
        number
    }

    /// A sync has succeeded that was submitted when `ended` writes had ended; a fence covers some that ended `later`, too.
    pub fn sync(&mut self, ended: Number, later: &[Number]) {
        for sector in &mut self.sectors {
            if sector.entries.len() == 1 && sector.entries[0].landing.safe {
                continue;
            }
            for entry in &mut sector.entries {
                entry.landing.safe |= entry.number < ended || later.contains(&entry.number);
            }
            sector.forget();
        }
    }

    /// A sync has failed, or nobody knows how it ended: nothing that was not safe before is certain any more.
    pub fn fail_sync(&mut self) {
        for sector in &mut self.sectors {
            for entry in &mut sector.entries {
                entry.landing.certain &= entry.landing.safe;
            }
        }
    }

    /// Nothing can be said of these sectors until they are written again.
    pub fn damage(&mut self, sectors: Range<usize>) {
        for at in sectors {
            if let Some(sector) = self.sectors.get_mut(at) {
                sector.entries = vec![Entry {
                    number: self.next,
                    word: None,
                    landing: BASE,
                }];
            }
        }
    }

    /// A read that began at this sector has returned these bytes. What was seen is there, and the next reader sees the same,
    /// if it `stays`: unless a sync failed while the read ran, perhaps between two of its iterations.
    ///
    /// # Errors
    /// The first sector that cannot hold what was read. Else: how many could be checked.
    pub fn check_read(&mut self, first: usize, bytes: &[u8], stays: bool) -> Result<u64, Wrong> {
        let mut checked = 0;
        for (at, found) in bytes.chunks(SECTOR).enumerate() {
            let Some(sector) = self.sectors.get_mut(first + at) else {
                break;
            };
            checked += u64::from(sector.check(first + at, found, Since::Certain, None, !stays)?);
            if stays {
                sector.narrow(found);
            }
        }
        Ok(checked)
    }

    /// A power cut has left these bytes; `under_way` tells what a write that had not ended would put into a sector.
    ///
    /// # Errors
    /// As [`Model::check_read`].
    pub fn check_left(&self, bytes: &[u8], under_way: impl Fn(usize) -> Option<Word>) -> Result<u64, Wrong> {
        let mut checked = 0;
        for (at, (sector, found)) in self.sectors.iter().zip(bytes.chunks(SECTOR)).enumerate() {
            checked += u64::from(sector.check(at, found, Since::Safe, under_way(at), under_way(at).is_some())?);
        }
        Ok(checked)
    }
}

impl Sector {
    fn since(&self, since: Since) -> &[Entry] {
        let rules = |entry: &Entry| entry.landing.certain && (since == Since::Certain || entry.landing.safe);
        let from = self.entries.iter().rposition(rules).unwrap_or(0);
        &self.entries[from..]
    }

    /// Drops what can never be seen again.
    fn forget(&mut self) {
        let dead = self.entries.len() - self.since(Since::Safe).len();
        self.entries.drain(..dead);
    }

    /// Was it checked, then it is right.
    fn check(
        &self,
        at: usize,
        found: &[u8],
        since: Since,
        under_way: Option<Word>,
        in_pieces: bool,
    ) -> Result<bool, Wrong> {
        let entries = self.since(since);
        if entries.iter().any(|entry| entry.word.is_none()) {
            return Ok(false);
        }
        let words = || entries.iter().filter_map(|entry| entry.word).chain(under_way);
        if words().any(|word| is_filled(found, word)) {
            return Ok(true);
        }
        let in_pieces = in_pieces || entries.iter().any(|entry| entry.landing.in_pieces);
        let is_mixture = || {
            found.iter().enumerate().all(|(nth, &byte)| {
                let bears = |word: Word| word.to_le_bytes()[nth % 8] == byte;
                words().any(bears)
            })
        };
        if in_pieces && is_mixture() {
            return Ok(true);
        }
        Err(Wrong {
            sector: at,
            found: first_word(found),
            allowed: words().collect(),
        })
    }

    /// A reader has seen this, so of what was possible only this is.
    fn narrow(&mut self, found: &[u8]) {
        let word = first_word(found);
        let first = self.entries.len() - self.since(Since::Certain).len();
        if first + 1 == self.entries.len() || !is_filled(found, word) {
            return;
        }
        // As a new entry: whether it is safe is what is known of the entry that it repeats.
        let seen = self.entries[first..]
            .iter()
            .rev()
            .find(|entry| entry.word == Some(word))
            .copied();
        if let Some(mut seen) = seen {
            seen.landing.certain = true;
            // Not yet known to be safe, though the same word may be: a sync from now on will tell.
            seen.landing.safe = false;
            seen.number = self.entries.last().map_or(seen.number, |last| last.number);
            self.entries.push(seen);
        }
    }
}

fn first_word(bytes: &[u8]) -> Word {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    Word::from_le_bytes(word)
}

/// Does every eight bytes bear the word?
#[must_use]
pub fn is_filled(bytes: &[u8], word: Word) -> bool {
    let word = word.to_le_bytes();
    bytes.chunks(8).all(|chunk| *chunk == word[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Landing = Landing {
        certain: true,
        safe: false,
        in_pieces: false,
    };

    fn fill(word: Word) -> Vec<u8> {
        word.to_le_bytes().repeat(SECTOR / 8)
    }

    fn model() -> Model {
        Model::of(&fill(1))
    }

    fn may_be_left(model: &Model) -> Vec<Word> {
        (0..10)
            .filter(|&word| model.check_left(&fill(word), |_| None).is_ok())
            .collect()
    }

    fn may_be_read(model: &Model) -> Vec<Word> {
        (0..10)
            .filter(|&word| model.clone().check_read(0, &fill(word), true).is_ok())
            .collect()
    }

    #[test]
    fn a_reader_sees_the_last_and_a_power_cut_leaves_any_since_the_last_safe() {
        let mut model = model();
        model.land(0..1, |_| 2, PLAIN);
        model.land(0..1, |_| 3, PLAIN);
        assert_eq!((may_be_read(&model), may_be_left(&model)), (vec![3], vec![1, 2, 3]));
        let covers = model.ended();
        model.land(0..1, |_| 4, PLAIN);
        model.sync(covers, &[]);
        assert_eq!((may_be_read(&model), may_be_left(&model)), (vec![4], vec![3, 4]));
        model.land(0..1, |_| 5, Landing { safe: true, ..PLAIN });
        assert_eq!((may_be_read(&model), may_be_left(&model)), (vec![5], vec![5]));
    }

    #[test]
    fn what_may_have_landed_is_known_when_it_was_read() {
        let mut model = model();
        model.land(
            0..1,
            |_| 2,
            Landing {
                certain: false,
                ..PLAIN
            },
        );
        assert_eq!(may_be_read(&model), [1, 2]);
        model.check_read(0, &fill(1), true).unwrap();
        assert_eq!((may_be_read(&model), may_be_left(&model)), (vec![1], vec![1, 2]));
        model.sync(model.ended(), &[]);
        assert_eq!(may_be_left(&model), [1]);
    }

    #[test]
    fn a_failed_sync_makes_what_it_covered_doubtful() {
        let mut model = model();
        model.land(0..1, |_| 2, PLAIN);
        model.land(0..1, |_| 3, PLAIN);
        model.fail_sync();
        assert_eq!(may_be_read(&model), [1, 2, 3]);
    }

    #[test]
    fn pieces_may_mix_and_whole_writes_may_not() {
        let mut half = fill(1);
        half[100..].copy_from_slice(&fill(2)[100..]);
        let mut whole = model();
        whole.land(0..1, |_| 2, PLAIN);
        assert!(whole.check_left(&half, |_| None).is_err());
        let mut pieces = model();
        pieces.land(
            0..1,
            |_| 2,
            Landing {
                in_pieces: true,
                ..PLAIN
            },
        );
        assert!(pieces.check_left(&half, |_| None).is_ok());
        assert!(pieces.check_left(&fill(3), |_| None).is_err());
    }
}
