//! Crash states, cut from one record.
//!
//! The model: power fails after some prefix of the record. Of the writes in that prefix that no later sync covers and that
//! are not durable by themselves, any one may be absent, or torn at a multiple of 512 bytes; and the write that was under
//! way, the first behind the prefix, may be there in part. ([`states`] enumerates; several losses at a time, as a real
//! device may show: [`Disk::power_cut`].)

use crate::backend::sim::disk::Disk;
use crate::backend::sim::log::Record;

/// Granularity of a torn write, in bytes: the smallest sector.
pub const SECTOR: usize = 512;

/// What happened to one write when the power failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It never reached the medium.
    Absent,
    /// Only its first this many sectors did.
    Head(usize),
    /// Only the sectors from this one on did.
    Tail(usize),
}

/// One moment at which the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Records that had happened.
    pub prefix: usize,
    /// A write (by its place in the record) that is not wholly there; it may be the one at `prefix`, then under way.
    pub loss: Option<(usize, Loss)>,
}

/// Every crash of a record, in order. The count grows with the writes between syncs; callers who cannot afford all of
/// them take some (`step_by`, or a seeded choice).
pub fn states(record: &[Record]) -> impl Iterator<Item = Crash> + '_ {
    (0..=record.len()).flat_map(move |prefix| {
        let whole = Crash { prefix, loss: None };
        let uncovered = uncovered(record, prefix).flat_map(move |at| {
            losses(&record[at]).map(move |loss| Crash {
                prefix,
                loss: Some((at, loss)),
            })
        });
        let under_way = record.get(prefix).into_iter().flat_map(move |next| {
            losses(next)
                .filter(|loss| *loss != Loss::Absent)
                .map(move |loss| Crash {
                    prefix,
                    loss: Some((prefix, loss)),
                })
        });
        std::iter::once(whole).chain(uncovered).chain(under_way)
    })
}

/// Writes of the prefix that a power cut may still lose.
fn uncovered(record: &[Record], prefix: usize) -> impl Iterator<Item = usize> + '_ {
    let covered = covered(&record[..prefix]);
    (covered..prefix).filter(|&at| matches!(record[at], Record::Write { durable: false, .. }))
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

/// The ways in which one write can be lost: absent, and torn in the middle, at its first and at its last sector.
fn losses(record: &Record) -> impl Iterator<Item = Loss> + use<> {
    let sectors = match record {
        Record::Write { bytes, .. } => bytes.len().div_ceil(SECTOR),
        Record::Sync | Record::LateSync { .. } | Record::Mark(_) => 0,
    };
    let mut cuts = vec![1, sectors / 2, sectors.saturating_sub(1)];
    cuts.retain(|&cut| cut > 0 && cut < sectors);
    cuts.dedup();
    let torn = cuts.into_iter().flat_map(|cut| [Loss::Head(cut), Loss::Tail(cut)]);
    (sectors > 0).then_some(Loss::Absent).into_iter().chain(torn)
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
        let certain = uncovered(self.record, crash.prefix).next().unwrap_or(crash.prefix);
        assert!(certain >= self.applied, "crashes come in order");
        for record in &self.record[self.applied..certain] {
            apply(&self.settled, record, None);
        }
        self.applied = certain;
        let disk = self.settled.copy();
        let loss_at = |at| crash.loss.filter(|(lost, _)| *lost == at).map(|(_, loss)| loss);
        for at in certain..crash.prefix {
            apply(&disk, &self.record[at], loss_at(at));
        }
        if let Some(loss) = loss_at(crash.prefix) {
            apply(&disk, &self.record[crash.prefix], Some(loss));
        }
        disk
    }
}

fn apply(disk: &Disk, record: &Record, loss: Option<Loss>) {
    let Record::Write { offset, bytes, .. } = record else {
        return;
    };
    let kept = match loss {
        None => 0..bytes.len(),
        Some(Loss::Absent) => 0..0,
        Some(Loss::Head(sectors)) => 0..(sectors * SECTOR).min(bytes.len()),
        Some(Loss::Tail(sectors)) => (sectors * SECTOR).min(bytes.len())..bytes.len(),
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
