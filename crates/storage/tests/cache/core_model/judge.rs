//! What the end of a request says about cells, and whether it may.

use std::ops::Range;

use baio_storage::{Fault, Outcome, SegmentOp};

use super::{Active, CELL, Change, Thing, What, World, judge_image};

/// What 512 bytes may hold.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// What a read may give when no write of it is under way.
    possible: Vec<u32>,
    /// What a power cut may leave, the oldest first.
    pub(crate) since_safe: Vec<u32>,
    /// The write under way.
    pub(crate) pending: Option<u32>,
    /// The last write went beside the cache and nothing has made it safe: a flush that fails may take it away.
    pub(crate) is_loose: bool,
}

impl Cell {
    pub(crate) fn holding(stamp: u32) -> Cell {
        Cell {
            possible: vec![stamp],
            since_safe: vec![stamp],
            pending: None,
            is_loose: false,
        }
    }

    pub(crate) fn zero() -> Cell {
        Cell::holding(0)
    }

    pub(crate) fn make_safe(&mut self) {
        self.since_safe.clone_from(&self.possible);
        self.is_loose = false;
    }

    /// A flush may have failed.
    pub(crate) fn may_have_been_lost(&mut self) {
        if self.is_loose {
            for stamp in &self.since_safe {
                if !self.possible.contains(stamp) {
                    self.possible.push(*stamp);
                }
            }
        }
    }

    /// What a read that begins now may give. A flush that fails while a direct read runs takes away what it would have covered,
    /// from under that read too; the cache keeps it, and writes it again before the next one.
    pub(crate) fn readable(&self, may_be_lost: bool, direct: bool) -> Vec<u32> {
        let mut all = self.possible.clone();
        all.extend(self.pending);
        if may_be_lost && (self.is_loose || direct) {
            all.extend(&self.since_safe);
        }
        all
    }
}

/// Marks the number of a discard or a zero, which leaves zeros and no number.
pub(super) const ZEROED: u32 = 1 << 31;

/// May a cell that one of these has changed hold that?
pub(super) fn may_be(numbers: &[u32], found: u32) -> bool {
    let left_by = |number: u32| if number & ZEROED == 0 { number } else { 0 };
    numbers.iter().any(|number| left_by(*number) == found)
}

/// The number that fills a cell, if one does.
pub(super) fn stamp_of(bytes: &[u8]) -> Option<u32> {
    let stamp = u32::from_le_bytes(bytes[..4].try_into().ok()?);
    (bytes[4..] == bytes[..bytes.len() - 4]).then_some(stamp)
}

impl World {
    pub(super) fn write_begins(&mut self, thing: usize, cells: Range<usize>, stamp: u32) {
        for cell in &mut self.things[thing].cells[cells.clone()] {
            cell.pending = Some(stamp);
            cell.since_safe.push(stamp);
        }
        for active in self.active.iter_mut().filter(|active| active.thing == thing) {
            if let What::Read {
                cells: read, allowed, ..
            } = &mut active.what
            {
                for cell in read.start.max(cells.start)..read.end.min(cells.end) {
                    allowed[cell - read.start].push(stamp);
                }
            }
        }
    }

    pub(super) fn sync_or_fence(&mut self, thing: usize) -> (SegmentOp, What) {
        match self.random.below(2) == 0 {
            true => (SegmentOp::Fence, self.sync_of(thing, true)),
            false => (SegmentOp::Sync, self.sync_of(thing, false)),
        }
    }

    pub(super) fn sync_of(&self, thing: usize, is_fence: bool) -> What {
        let snapshot = self.things[thing].cells.iter().map(|cell| cell.readable(false, false));
        What::Sync {
            stamp: self.stamp,
            snapshot: snapshot.collect(),
            is_fence,
        }
    }

    /// May it have failed so?
    fn excuse(&mut self, active: &Active, outcome: &Outcome) {
        let Err(error) = &outcome.result else { return };
        let changing = self.things[active.thing].changing.as_ref().map(|(_, change)| *change);
        let excused = match (&error.fault, error.code()) {
            (Fault::Stale, _) => {
                self.saw("stale");
                // The delete may have been answered in the same turn.
                changing.is_none_or(|change| change == Change::Delete)
            }
            (_, "ECANCELED") if active.may_end_early => {
                self.saw("cancelled");
                true
            }
            (_, "EINDETERMINATE") if active.may_end_early => {
                self.saw("overdue");
                true
            }
            (Fault::Beyond { .. }, _) => !matches!(changing, Some(Change::Move)),
            _ => self.is_faulty || self.is_poisoned,
        };
        assert!(excused, "seed {}: {error}", self.seed);
    }

    fn trace(&self, active: &Active, outcome: &Outcome) {
        let what = match &active.what {
            What::Read { cells, direct, .. } => format!("read {cells:?} direct {direct}"),
            What::Write {
                cells,
                stamp,
                durable,
                direct,
                name,
            } => {
                format!("{name} {stamp} {cells:?} durable {durable} direct {direct}")
            }
            What::Sync { stamp, is_fence, .. } => format!("sync since {stamp}, fence {is_fence}"),
        };
        let name = self.things[active.thing].name;
        println!("{name} {what}: {:?} faulty {}", outcome.result, self.is_faulty);
    }

    pub(super) fn judge(&mut self, active: Active, outcome: Outcome) {
        if self.is_traced {
            self.trace(&active, &outcome);
        }
        self.excuse(&active, &outcome);
        let is_good = outcome.result.is_ok();
        match &active.what {
            What::Read { cells, allowed, direct } => {
                self.saw(match is_good {
                    true if *direct => "direct reads",
                    true => "reads",
                    false => "failed reads",
                });
                let Ok(got) = outcome.result else { return };
                let bytes = outcome.memory.into_buffer().unwrap();
                let whole = got as usize == cells.len() * CELL;
                let resized = !matches!(self.things[active.thing].changing, Some((_, Change::Move)));
                assert!(whole || resized, "seed {}: {got} bytes of {cells:?}", self.seed);
                for (nth, bytes) in bytes[..got as usize].chunks(CELL).enumerate() {
                    let found = stamp_of(bytes);
                    assert!(
                        found.is_some_and(|found| may_be(&allowed[nth], found)),
                        "seed {}: cell {} of {} reads as {found:?}; {:?}",
                        self.seed,
                        cells.start + nth,
                        self.things[active.thing].name,
                        allowed[nth]
                    );
                }
            }
            What::Write {
                cells,
                stamp,
                durable,
                direct,
                name,
            } => {
                self.saw(match (is_good, durable, direct) {
                    (true, ..) if *stamp & ZEROED != 0 => name,
                    (false, ..) => "failed writes",
                    (true, _, true) => "direct writes",
                    (true, true, false) => "durable writes",
                    (true, false, false) => "writes",
                });
                for cell in &mut self.things[active.thing].cells[cells.clone()] {
                    cell.pending = None;
                    match is_good {
                        true => cell.possible = vec![*stamp],
                        false => cell.possible.push(*stamp),
                    }
                    cell.is_loose = *direct && !(is_good && *durable) || !is_good && cell.is_loose;
                    if is_good && *durable {
                        cell.since_safe = vec![*stamp];
                    }
                }
                if is_good {
                    self.tell_fences(active.thing, cells, *stamp);
                }
            }
            What::Sync {
                stamp,
                snapshot,
                is_fence,
            } => {
                self.saw(match (is_good, is_fence) {
                    (true, true) => "fences",
                    (true, false) => "syncs",
                    (false, _) => "failed syncs",
                });
                if is_good {
                    self.synced(active.thing, *stamp, snapshot);
                }
            }
        }
    }

    /// A fence that came behind it covers it too.
    pub(super) fn tell_fences(&mut self, thing: usize, cells: &Range<usize>, written: u32) {
        for active in self.active.iter_mut().filter(|active| active.thing == thing) {
            if let What::Sync {
                stamp,
                snapshot,
                is_fence: true,
            } = &mut active.what
                && written & !ZEROED <= *stamp
            {
                let covered = snapshot.iter_mut().take(cells.end).skip(cells.start);
                covered.for_each(|before| *before = vec![written]);
            }
        }
    }

    fn synced(&mut self, thing: usize, stamp: u32, snapshot: &[Vec<u32>]) {
        for (cell, before) in self.things[thing].cells.iter_mut().zip(snapshot) {
            cell.since_safe
                .retain(|written| *written & !ZEROED > stamp || before.contains(written));
        }
        let Thing {
            changing, is_settling, ..
        } = &self.things[thing];
        if changing.is_none() && !is_settling && self.random.below(4) == 0 {
            self.saw("images");
            let seed = self.random.bits();
            judge_image(&self.volume, &self.plain, &self.things[thing], seed);
        }
    }
}
