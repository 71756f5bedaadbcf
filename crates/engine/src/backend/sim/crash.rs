//! Crash states, cut from one record.
//!
//! The model: power fails after some prefix of the record. Two sorts of writes are then in doubt: those of the prefix that no
//! later sync covers and that are not durable by themselves, which may be absent; and those that had begun and not
//! ended, durable or not, which may be there. Any of them may be torn at a multiple of 512 bytes. So writes that were on their
//! way together reach the medium in any order. [`cuts`] gives, for one prefix, every subset of those in doubt while they are
//! few, and chosen ones when they are many; with each, one write may be torn. Of some pairs in doubt both are torn, beside a
//! chosen subset of the others.

pub use crate::backend::sim::cache::SECTOR;
use crate::backend::sim::disk::Disk;
use crate::backend::sim::log::Record;
use crate::backend::sim::random::Random;

/// Of so many writes in doubt, every subset is tried.
const FEW: usize = 4;

/// Of more, so many chosen ones, beside each alone, all but one, and all.
const CHOSEN: u64 = 8;

/// Of each pair of writes in doubt, among the first so many, both are torn in so many ways.
const PAIRED: usize = 4;
const PAIR_TEARS: u64 = 3;

/// More are not looked at: the rest are there, or not there yet.
const IN_DOUBT_MAX: usize = 64;

/// What of a write reached the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Torn {
    /// Only its first this many sectors.
    Head(usize),
    /// Only the sectors from this one on.
    Tail(usize),
}

/// One moment at which the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crash {
    /// Records that had happened.
    pub prefix: usize,
    /// Of the writes in doubt, in the order of the record (the first is bit 0), those with which it goes the unlikely way: of
    /// the prefix the absent ones, behind it those that are there.
    pub swayed: u64,
    /// One write in doubt, by its place in the record, that is there in part.
    pub torn: Option<(usize, Torn)>,
    /// A second one.
    pub torn_too: Option<(usize, Torn)>,
}

impl Crash {
    /// Everything of the prefix is there, and nothing else.
    #[must_use]
    pub fn clean(prefix: usize) -> Crash {
        Crash {
            prefix,
            swayed: 0,
            torn: None,
            torn_too: None,
        }
    }

    /// How a write is torn, by its place in the record.
    fn torn_at(&self, at: usize) -> Option<Torn> {
        let both = [self.torn, self.torn_too].into_iter().flatten();
        both.filter(|(torn, _)| *torn == at).map(|(_, torn)| torn).next()
    }

    /// The places of the writes behind the prefix that are wholly there.
    #[must_use]
    pub fn early(&self, record: &[Record]) -> Vec<usize> {
        let doubted = in_doubt(record, self.prefix);
        let is_early = |(nth, at): &(usize, &usize)| self.swayed >> nth & 1 == 1 && **at >= self.prefix;
        doubted.iter().enumerate().filter(is_early).map(|(_, at)| *at).collect()
    }
}

/// Every crash of a record, in order. The count grows with the writes between syncs; callers who cannot afford all of
/// them take some of each prefix ([`cuts`]).
pub fn states(record: &[Record]) -> impl Iterator<Item = Crash> + '_ {
    (0..=record.len()).flat_map(|prefix| cuts(record, prefix))
}

/// The crashes of one prefix: the clean one first.
#[must_use]
pub fn cuts(record: &[Record], prefix: usize) -> Vec<Crash> {
    let doubted = in_doubt(record, prefix);
    let before = doubted.iter().filter(|&&at| at < prefix).count();
    let all = bits(doubted.len());
    let mut crashes: Vec<Crash> = subsets(doubted.len(), prefix)
        .into_iter()
        .map(|swayed| Crash {
            swayed,
            ..Crash::clean(prefix)
        })
        .collect();
    // With a torn one those of the prefix are all there, or none of them; and so are those behind it.
    let lost = bits(before);
    let others = [0, lost, all & !lost, all];
    for (nth, &at) in doubted.iter().enumerate() {
        let mut others = others.map(|swayed| swayed & !(1 << nth)).to_vec();
        others.sort_unstable();
        others.dedup();
        for torn in tears(&record[at]) {
            crashes.extend(others.iter().map(|&swayed| Crash {
                swayed,
                torn: Some((at, torn)),
                ..Crash::clean(prefix)
            }));
        }
    }
    crashes.extend(torn_pairs(record, prefix, &doubted));
    crashes
}

/// Two writes in doubt torn at once, in some ways; the others go as the dice say.
fn torn_pairs<'a>(record: &'a [Record], prefix: usize, doubted: &'a [usize]) -> impl Iterator<Item = Crash> + 'a {
    let mut dice = Random(prefix as u64 ^ 0x7061_6972);
    let first = doubted.len().min(PAIRED);
    let pairs = (0..first).flat_map(move |one| (one + 1..first).map(move |two| (one, two)));
    pairs.flat_map(move |(one, two)| {
        let [ones, twos] = [one, two].map(|nth| tears(&record[doubted[nth]]).collect::<Vec<Torn>>());
        let ways = if ones.is_empty() || twos.is_empty() {
            0
        } else {
            PAIR_TEARS
        };
        let of_pair: Vec<Crash> = (0..ways)
            .map(|_| {
                let mut some = |tears: &[Torn]| tears[dice.below(tears.len() as u64) as usize];
                let (torn, torn_too) = (some(&ones), some(&twos));
                Crash {
                    prefix,
                    swayed: dice.bits() & bits(doubted.len()) & !(1 << one | 1 << two),
                    torn: Some((doubted[one], torn)),
                    torn_too: Some((doubted[two], torn_too)),
                }
            })
            .collect();
        of_pair
    })
}

/// The lowest `count` bits.
fn bits(count: usize) -> u64 {
    (1_u64 << count.min(63)) - 1
}

/// Subsets of so many, each as its bits: all, or chosen ones.
fn subsets(count: usize, seed: usize) -> Vec<u64> {
    if count <= FEW {
        return (0..1 << count).collect();
    }
    let all = bits(count);
    let each = |nth: usize| [1 << nth, all & !(1 << nth)];
    let mut subsets = vec![0, all];
    subsets.extend((0..count).flat_map(each));
    let mut dice = Random(seed as u64);
    subsets.extend((0..CHOSEN).map(|_| dice.bits() & all));
    subsets.sort_unstable();
    subsets.dedup();
    subsets
}

/// The places of the writes that a power cut behind this prefix may or may not find.
fn in_doubt(record: &[Record], prefix: usize) -> Vec<usize> {
    let covered = covered(&record[..prefix]);
    let lost = (covered..prefix).filter(|&at| matches!(record[at], Record::Write { durable: false, .. }));
    let had_begun = |&at: &usize| match record[at] {
        Record::Write { under_way, .. } => at.saturating_sub(under_way as usize) <= prefix,
        Record::Sync | Record::LateSync { .. } | Record::Mark(_) => false,
    };
    let early = (prefix..record.len()).filter(had_begun);
    lost.chain(early).take(IN_DOUBT_MAX - 1).collect()
}

/// How many of these records, from the first on, a sync among them has made safe.
#[must_use]
pub fn covered(record: &[Record]) -> usize {
    let mut covered = 0;
    for (at, entry) in record.iter().enumerate().rev() {
        match entry {
            Record::Sync => return covered.max(at + 1),
            Record::LateSync { late } => covered = covered.max(without_late(&record[..at], *late)),
            Record::Write { .. } | Record::Mark(_) => {}
        }
        if at < covered {
            break;
        }
    }
    covered
}

/// The records before the last `late` writes.
fn without_late(record: &[Record], late: u32) -> usize {
    let is_write = |entry: &(usize, &Record)| matches!(entry.1, Record::Write { .. });
    let last = record.iter().enumerate().rev().filter(is_write);
    last.take(late as usize).last().map_or(record.len(), |(at, _)| at)
}

/// Where one write can be torn: every sector of a page; of longer ones at the first, in the middle, and at the last.
fn tears(record: &Record) -> impl Iterator<Item = Torn> + use<> {
    let sectors = match record {
        Record::Write { bytes, .. } => bytes.len().div_ceil(SECTOR),
        Record::Sync | Record::LateSync { .. } | Record::Mark(_) => 0,
    };
    let mut cuts: Vec<usize> = match sectors {
        ..=8 => (1..sectors).collect(),
        _ => vec![1, sectors / 2, sectors - 1],
    };
    cuts.dedup();
    cuts.into_iter().flat_map(|cut| [Torn::Head(cut), Torn::Tail(cut)])
}

/// Replays records on a disk. What no crash can undo any more is applied once, so a state costs its tail and not its
/// whole history.
#[derive(Debug)]
pub struct Replay<'a> {
    settled: Disk,
    record: &'a [Record],
    applied: usize,
}

impl<'a> Replay<'a> {
    /// Starts from `base`, the disk as it was when the record began.
    #[must_use]
    pub fn new(base: &Disk, record: &'a [Record]) -> Replay<'a> {
        Replay {
            settled: base.copy(),
            record,
            applied: 0,
        }
    }

    /// The disk as the power cut leaves it.
    ///
    /// # Panics
    /// When crashes do not come in the order of their prefixes, or lie behind the record.
    #[must_use]
    pub fn disk(&mut self, crash: Crash) -> Disk {
        let doubted = in_doubt(self.record, crash.prefix);
        let certain = doubted.first().map_or(crash.prefix, |&at| at.min(crash.prefix));
        assert!(certain >= self.applied, "crashes come in order");
        for record in &self.record[self.applied..certain] {
            apply(&self.settled, record, None);
        }
        self.applied = certain;
        let disk = self.settled.copy();
        let is_swayed = |at| {
            let nth = doubted.iter().position(|&doubted| doubted == at);
            nth.is_some_and(|nth| crash.swayed >> nth & 1 == 1)
        };
        for at in certain..crash.prefix {
            let torn = crash.torn_at(at);
            if torn.is_some() || !is_swayed(at) {
                apply(&disk, &self.record[at], torn);
            }
        }
        for &at in doubted.iter().filter(|&&at| at >= crash.prefix) {
            let torn = crash.torn_at(at);
            if torn.is_some() || is_swayed(at) {
                apply(&disk, &self.record[at], torn);
            }
        }
        disk
    }
}

fn apply(disk: &Disk, record: &Record, torn: Option<Torn>) {
    let Record::Write { offset, bytes, .. } = record else {
        return;
    };
    let kept = match torn {
        None => 0..bytes.len(),
        Some(Torn::Head(sectors)) => 0..(sectors * SECTOR).min(bytes.len()),
        Some(Torn::Tail(sectors)) => (sectors * SECTOR).min(bytes.len())..bytes.len(),
    };
    disk.poke(offset + kept.start as u64, &bytes[kept]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, byte: u8, durable: bool) -> Record {
        Record::Write {
            offset,
            bytes: vec![byte; 1024].into(),
            durable,
            under_way: 0,
        }
    }

    #[test]
    fn what_ends_while_a_flush_runs_is_not_covered() {
        let record = [write(0, 1, false), write(4096, 2, false), Record::LateSync { late: 1 }];
        assert_eq!(covered(&record), 1);
        let mut replay = Replay::new(&Disk::new(1 << 20), &record);
        let seen: Vec<_> = states(&record)
            .filter(|crash| crash.prefix == 3)
            .map(|crash| {
                let disk = replay.disk(crash);
                [0, 4096].map(|at| byte_at(&disk, at))
            })
            .collect();
        assert!(
            seen.contains(&[1, 0]) && seen.iter().all(|bytes| bytes[0] == 1),
            "{seen:?}"
        );
        assert_eq!(covered(&[&record[..], &[Record::Sync]].concat()), 4);
        assert_eq!(covered(&record[..2]), 0);
    }

    /// What is seen of the first bytes of some places, in every crash of one prefix.
    fn seen(record: &[Record], prefix: usize, places: &[u64]) -> Vec<Vec<u8>> {
        let mut replay = Replay::new(&Disk::new(1 << 20), record);
        let look = |disk: &Disk| places.iter().map(|&at| byte_at(disk, at)).collect();
        cuts(record, prefix)
            .into_iter()
            .map(|crash| look(&replay.disk(crash)))
            .collect()
    }

    #[test]
    fn of_a_few_uncovered_writes_every_subset_is_lost() {
        let record: Vec<Record> = (0..4).map(|nth| write(nth * 4096, 1, false)).collect();
        let seen = seen(&record, 4, &[0, 4096, 8192, 12288]);
        for subset in 0..16_u8 {
            let wanted: Vec<u8> = (0..4).map(|nth| subset >> nth & 1).collect();
            assert!(seen.contains(&wanted), "{wanted:?}");
        }
    }

    #[test]
    fn of_many_each_is_lost_alone_and_kept_alone_and_all_are_lost() {
        let record: Vec<Record> = (0..12).map(|nth| write(nth * 4096, 1, false)).collect();
        let places: Vec<u64> = (0..12).map(|nth| nth * 4096).collect();
        let seen = seen(&record, 12, &places);
        let there = |seen: &[u8]| seen.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        for (count, subsets) in [(0, 1), (1, 12), (11, 12), (12, 1)] {
            let distinct: std::collections::BTreeSet<_> = seen.iter().filter(|seen| there(seen) == count).collect();
            assert_eq!(distinct.len(), subsets, "{count}: {distinct:?}");
        }
        assert!(
            seen.iter().any(|seen| (3..9).contains(&there(seen))),
            "and some chosen ones"
        );
    }

    #[test]
    fn durable_writes_under_way_together_land_in_any_order() {
        let mut record = [write(0, 1, true), write(4096, 2, true), write(8192, 3, true)];
        for (nth, record) in record.iter_mut().enumerate() {
            if let Record::Write { under_way, .. } = record {
                *under_way = nth.min(1) as u32;
            }
        }
        // The first two began together; the third when the first had ended.
        let of = |prefix| seen(&record, prefix, &[0, 4096, 8192]);
        assert!(of(0).contains(&vec![0, 2, 0]) && of(0).iter().all(|seen| seen[2] == 0));
        assert!(of(1).contains(&vec![1, 0, 3]) && of(1).iter().all(|seen| seen[0] == 1));
        assert!(of(3).iter().all(|seen| *seen == [1, 2, 3]));
    }

    #[test]
    fn beside_a_torn_write_one_that_is_under_way_may_be_whole() {
        let mut record = [write(0, 1, true), write(4096, 2, true)];
        if let Record::Write { under_way, .. } = &mut record[1] {
            *under_way = 1;
        }
        let seen = seen(&record, 0, &[0, 512, 4096, 4608]);
        for wanted in [[1, 0, 2, 2], [0, 1, 2, 2], [1, 0, 0, 0], [1, 1, 2, 0]] {
            assert!(seen.contains(&wanted.to_vec()), "{wanted:?}: {seen:?}");
        }
    }

    #[test]
    fn two_writes_are_torn_in_one_crash() {
        let record = [0, 1, 2].map(|nth| write(nth * 4096, 1, false));
        let seen = seen(&record, 3, &[0, 512, 4096, 4608, 8192]);
        let is_torn = |halves: &[u8]| halves[0] != halves[1];
        let both = seen
            .iter()
            .filter(|bytes| is_torn(&bytes[..2]) && is_torn(&bytes[2..4]));
        let third: std::collections::BTreeSet<u8> = both.map(|bytes| bytes[4]).collect();
        assert_eq!(
            third,
            [0, 1].into(),
            "beside a third that is there, and one that is not"
        );
    }

    #[test]
    fn a_page_is_torn_at_each_of_its_sectors() {
        let page = Record::Write {
            offset: 0,
            bytes: vec![1; 4096].into(),
            durable: true,
            under_way: 0,
        };
        let sectors: Vec<u64> = (0..8).map(|nth| nth * 512).collect();
        let seen = seen(&[page], 0, &sectors);
        for cut in 1..8 {
            let head: Vec<u8> = (0..8).map(|nth| u8::from(nth < cut)).collect();
            let tail: Vec<u8> = head.iter().map(|byte| 1 - byte).collect();
            assert!(seen.contains(&head) && seen.contains(&tail), "{cut}");
        }
    }

    fn byte_at(disk: &Disk, offset: u64) -> u8 {
        let mut byte = [0];
        disk.read(offset, &mut byte);
        byte[0]
    }

    #[test]
    fn synced_and_durable_writes_are_in_every_state_behind_them() {
        let record = [
            write(0, 1, false),
            Record::Sync,
            write(4096, 2, true),
            write(8192, 3, false),
        ];
        let mut replay = Replay::new(&Disk::new(1 << 20), &record);
        for crash in states(&record) {
            let disk = replay.disk(crash);
            if crash.prefix >= 2 {
                assert_eq!(byte_at(&disk, 0), 1, "{crash:?}");
                assert_eq!(byte_at(&disk, 1023), 1, "{crash:?}");
            }
            if crash.prefix >= 3 {
                assert_eq!(byte_at(&disk, 4096 + 512), 2, "{crash:?}");
            }
        }
    }

    #[test]
    fn an_uncovered_write_can_be_lost_though_later_ones_are_there() {
        let record = [write(0, 1, false), write(4096, 2, false)];
        let mut replay = Replay::new(&Disk::new(1 << 20), &record);
        let seen: Vec<_> = states(&record)
            .map(|crash| {
                let disk = replay.disk(crash);
                [0, 512, 4096, 4608].map(|at| byte_at(&disk, at))
            })
            .collect();
        assert!(seen.contains(&[0, 0, 2, 2]), "the first absent");
        assert!(seen.contains(&[1, 0, 2, 2]), "the first torn behind its head");
        assert!(seen.contains(&[0, 1, 2, 2]), "the first torn before its tail");
        assert!(seen.contains(&[1, 1, 0, 2]), "the second torn");
    }
}
