//! A core over two simulated disks, and what it may say.
//!
//! Bytes are written in cells of 512, each filled with the number of the write, and two writes never overlap while both run.
//! The model keeps, per cell, what a read may give (the last completed write; several after one that failed) and what a power
//! cut may leave (everything since the last that is known to be safe).

mod file;
mod judge;

use std::collections::BTreeMap;
use std::ops::Range;
use std::task::Poll;
use std::time::Duration;

use baio_engine::sim::{Disk, Fault, Faults, Flash, Profile, Trigger};
use baio_engine::{Durability, File, Memory, Wait};
use baio_storage::cache::window::Pattern;
use baio_storage::{Access, Core, Handle, Mode, OperationId, ResizeOptions, SegmentOp, SegmentRequest, Ticket};

use crate::harness::through_cache::{B, get, open_cached};
use crate::harness::{BLOCK, ME, Random, create, open_write, simulated_disk};
use judge::Cell;

pub(crate) const CELL: usize = 512;
const PER_BLOCK: usize = BLOCK / CELL;
/// Blocks of a file or segment at first.
const BLOCKS: u64 = 24;
/// Requests under way at most.
const DEPTH: usize = 24;

/// A segment or file.
pub(crate) struct Thing {
    name: &'static str,
    handle: Handle,
    is_file: bool,
    pub(crate) cells: Vec<Cell>,
    changing: Option<(OperationId, Change)>,
    /// It has been changed, and the model has not taken that in.
    is_settling: bool,
    /// Its first byte on the disk.
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Delete,
    Resize(u64),
    Move,
}

/// A request under way.
pub(crate) struct Active {
    ticket: Ticket,
    thing: usize,
    what: What,
    /// Somebody asked for its end, or gave it little time.
    may_end_early: bool,
}

pub(crate) enum What {
    Read {
        cells: Range<usize>,
        allowed: Vec<Vec<u32>>,
        direct: bool,
    },
    Write {
        cells: Range<usize>,
        stamp: u32,
        durable: bool,
        direct: bool,
        name: &'static str,
    },
    Sync {
        stamp: u32,
        snapshot: Vec<Vec<u32>>,
        is_fence: bool,
    },
}

pub(crate) struct World {
    seed: u64,
    random: Random,
    volume: Disk,
    plain: Disk,
    core: Core,
    pub(crate) things: Vec<Thing>,
    pub(crate) active: Vec<Active>,
    stamp: u32,
    /// Faults are being injected, or were, and what they struck may not have been told yet.
    pub(crate) is_faulty: bool,
    /// A flush of the volume has failed: the engine lets no sync succeed until the next open.
    is_poisoned: bool,
    pub(crate) seen: BTreeMap<&'static str, u64>,
    /// Every end is printed, for whoever replays a failure.
    is_traced: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let volume = simulated_disk(&baio_storage::FormatOptions::of_size(4 << 20));
        let plain = Disk::new(BLOCKS * B);
        let mut random = Random(seed);
        let core = World::open(&volume, &plain, &mut random);
        let mut world = World {
            seed,
            random,
            volume,
            plain,
            core,
            things: Vec::new(),
            active: Vec::new(),
            stamp: 0,
            is_faulty: false,
            is_poisoned: false,
            seen: BTreeMap::new(),
            is_traced: std::env::var_os("BAIO_MODEL_TRACE").is_some(),
        };
        for name in ["one", "two"] {
            create(&mut world.core, name, BLOCKS * B);
        }
        world.take_up(&["one", "two", "file"]);
        world
    }

    fn open(volume: &Disk, plain: &Disk, random: &mut Random) -> Core {
        for disk in [volume, plain] {
            if random.below(3) > 0 {
                disk.set_profile(Profile::Flash(Flash::default()));
            }
        }
        open_cached(volume, 16 + random.below(40) as usize)
    }

    /// Opens what is there.
    fn take_up(&mut self, names: &[&'static str]) {
        for &name in names {
            let is_file = name == "file";
            let handle = match is_file {
                true => self.core.add_file(File::simulated(&self.plain, "file"), Access::Write),
                false => open_write(&mut self.core, name),
            };
            let mut thing = Thing {
                name,
                handle,
                is_file,
                cells: Vec::new(),
                changing: None,
                is_settling: false,
                at: 0,
            };
            thing.cells.resize_with(BLOCKS as usize * PER_BLOCK, Cell::zero);
            self.things.push(thing);
        }
        self.locate();
    }

    /// Where segments lie; nothing moves them now.
    fn locate(&mut self) {
        let data = self.core.volume_info().unwrap().data_at_bytes;
        for segment in self.core.list(ME).unwrap() {
            for thing in self.things.iter_mut().filter(|thing| thing.name == segment.name) {
                thing.at = data + segment.start_block * B;
            }
        }
    }

    pub(crate) fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(crate) fn run(mut self, ops: u64) -> BTreeMap<&'static str, u64> {
        for _ in 0..ops {
            match self.random.below(400) {
                0 => self.power_cut(),
                7..=9 if self.is_poisoned => self.power_cut(),
                1..=3 => self.begin_change(),
                4 => self.inject(),
                5 => self.quiet(),
                6..=20 if !self.active.is_empty() => self.cancel(),
                21..=30 => self.hint(),
                31 => self.reopen(),
                32 | 33 => self.cut(),
                _ => self.ask(),
            }
            while self.active.len() >= DEPTH {
                self.turn(Wait::one());
            }
            if self.random.below(3) == 0 {
                self.turn(Wait::No);
            }
        }
        self.quiet();
        if !self.is_poisoned {
            self.core
                .close()
                .unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
            for thing in 0..self.things.len() {
                // A close makes all safe but what went into a file beside the cache.
                let thing = &mut self.things[thing];
                let cells = thing.cells.iter_mut().filter(|cell| !thing.is_file || !cell.is_loose);
                cells.for_each(Cell::make_safe);
                judge_image(&self.volume, &self.plain, thing, self.seed);
            }
        }
        self.seen
    }

    fn ask(&mut self) {
        let thing = self.random.below(self.things.len() as u64) as usize;
        let Thing {
            handle,
            changing,
            cells,
            ..
        } = &self.things[thing];
        let (handle, count) = (*handle, cells.len());
        // What is about to be cut off is not written any more, but for what is under way.
        let writable = match changing {
            Some((_, Change::Resize(blocks))) => count.min(*blocks as usize * PER_BLOCK),
            _ => count,
        };
        let choice = self.random.below(20);
        let direct = self.random.below(4) == 0;
        let from = self.random.below(count as u64) as usize;
        let len = 1 + self.random.below([4, 16, 60][self.random.0 as usize % 3]) as usize;
        let mut cells = from..(from + len).min(count);
        if direct && self.random.below(2) == 0 {
            cells = cells.start / PER_BLOCK * PER_BLOCK..cells.end.div_ceil(PER_BLOCK) * PER_BLOCK;
        }
        let mode = if direct { Mode::Direct } else { Mode::Cached };
        let offset = (cells.start * CELL) as u64;
        let (op, what, memory) = match choice {
            0 => {
                let (op, what) = self.sync_or_fence(thing);
                (op, what, Memory::None)
            }
            1..=9 => {
                let allowed = cells
                    .clone()
                    .map(|cell| self.things[thing].cells[cell].readable(self.is_faulty, direct));
                let allowed = allowed.collect();
                let Ok(buffer) = self.core.buffer(cells.len() * CELL) else {
                    return;
                };
                (
                    SegmentOp::Read { offset },
                    What::Read { cells, allowed, direct },
                    Memory::Own(buffer),
                )
            }
            _ => {
                let is_busy = |cell: usize| self.things[thing].cells[cell].pending.is_some();
                if cells.end > writable || cells.clone().any(is_busy) {
                    return;
                }
                let Some(asked) = self.change_of(cells, choice < 14, direct) else {
                    return;
                };
                asked
            }
        };
        let hurried = self.random.below(30) == 0 && !direct;
        let soon = Duration::from_micros(self.random.below(300));
        let request = SegmentRequest {
            mode,
            durability: match what {
                What::Write { durable: false, .. } | What::Read { .. } => Durability::None,
                _ => Durability::Data,
            },
            deadline: hurried.then(|| self.core.engine().now().after(soon)),
            ..SegmentRequest::new(handle, op, memory)
        };
        if let What::Write { cells, stamp, .. } = &what {
            self.write_begins(thing, cells.clone(), *stamp);
        }
        let ticket = crate::harness::start(&mut self.core, request);
        self.active.push(Active {
            ticket,
            thing,
            what,
            may_end_early: hurried,
        });
    }

    /// A write, a discard or a zero of these cells.
    fn change_of(&mut self, cells: Range<usize>, durable: bool, direct: bool) -> Option<(SegmentOp, What, Memory)> {
        let (offset, len) = ((cells.start * CELL) as u64, (cells.len() * CELL) as u64);
        let op = match self.random.below(12) {
            0 => SegmentOp::Discard { offset, len },
            1 => SegmentOp::Zero { offset, len },
            _ => SegmentOp::Write { offset },
        };
        let (stamp, memory) = self.write_of(op, cells.len())?;
        let write = What::Write {
            cells,
            stamp,
            durable,
            // The device is asked for it, whatever the mode.
            direct: direct || op.names_its_range(),
            name: op.name(),
        };
        Some((op, write, memory))
    }

    /// The number that its cells hold then, and its memory.
    fn write_of(&mut self, op: SegmentOp, cells: usize) -> Option<(u32, Memory)> {
        if op.names_its_range() {
            self.stamp += 1;
            return Some((self.stamp | judge::ZEROED, Memory::None));
        }
        let mut buffer = self.core.buffer(cells * CELL).ok()?;
        self.stamp += 1;
        buffer.copy_from_slice(&self.stamp.to_le_bytes().repeat(cells * CELL / 4));
        Some((self.stamp, Memory::Own(buffer)))
    }

    /// Hints change what is cached, and nothing that anybody reads. On what is just going away they are refused.
    fn hint(&mut self) {
        let thing = self.random.below(self.things.len() as u64) as usize;
        let Thing { handle, cells, .. } = &self.things[thing];
        let (handle, pages) = (*handle, (cells.len() / PER_BLOCK) as u64);
        let from = self.random.below(pages + 4);
        let range = from..from + 1 + self.random.below(8);
        let pattern = [Pattern::Sequential, Pattern::Random, Pattern::Unknown][from as usize % 3];
        let core = &mut self.core;
        let given = match self.random.below(7) {
            0 | 1 => core.prefetch(handle, &[range, 20..22]).map(drop),
            2 | 3 => core.drop_cached(handle, range).map(drop),
            4 => core.keep_cached(handle, range),
            5 => core.keep_cached_no_more(handle, range),
            _ => core.read_pattern(handle, pattern),
        };
        if given.is_ok() {
            self.saw("hints");
        }
    }

    fn cancel(&mut self) {
        let at = self.random.below(self.active.len() as u64) as usize;
        // A write that nobody waits for may land at any time, which the model does not know.
        if !matches!(self.active[at].what, What::Write { .. }) && self.random.below(2) == 0 {
            self.core.abandon(self.active.swap_remove(at).ticket);
            return self.saw("abandoned");
        }
        self.active[at].may_end_early = true;
        self.core.cancel(self.active[at].ticket);
    }

    /// One turn; then all that has ended.
    fn turn(&mut self, wait: Wait) {
        self.core.turn(wait).unwrap();
        let mut at = 0;
        while let Some(active) = self.active.get(at) {
            match self.core.poll(active.ticket, None) {
                Poll::Pending => at += 1,
                Poll::Ready(outcome) => {
                    let active = self.active.swap_remove(at);
                    self.judge(active, outcome.expect("nobody else has taken it"));
                }
            }
        }
        for thing in 0..self.things.len() {
            let Some((id, change)) = self.things[thing].changing.take() else {
                continue;
            };
            match self.core.take_answer(&id) {
                None => self.things[thing].changing = Some((id, change)),
                Some(answer) => self.changed(thing, change, answer.is_ok()),
            }
        }
    }

    /// Nothing is under way; what goes wrong from now on goes wrong for a reason.
    fn quiet(&mut self) {
        self.volume.set_faults(Faults::none());
        self.plain.set_faults(Faults::none());
        let mut turns = 0;
        while !self.active.is_empty() || self.things.iter().any(|thing| thing.changing.is_some()) {
            self.turn(Wait::one());
            turns += 1;
            assert!(
                turns < 200_000,
                "seed {}: nobody wakes {} requests",
                self.seed,
                self.active.len()
            );
        }
        while self.core.in_flight() > 0 {
            self.turn(Wait::one());
        }
        if self.is_faulty {
            for thing in &mut self.things {
                thing.cells.iter_mut().for_each(Cell::may_have_been_lost);
            }
        }
        let was_faulty = std::mem::take(&mut self.is_faulty);
        for thing in 0..self.things.len() {
            let handle = self.things[thing].handle;
            match self.core.file(handle) {
                Some(file) => drop(file.acknowledge_failure()),
                None if self.is_poisoned => continue,
                None => {}
            }
            if was_faulty {
                // Nothing fails any more: the next sync makes all good.
                let what = self.sync_of(thing, false);
                let ticket = crate::harness::start(&mut self.core, crate::harness::sync_request(handle));
                let outcome = self.core.wait(ticket).unwrap().unwrap();
                let active = Active {
                    ticket,
                    thing,
                    what,
                    may_end_early: false,
                };
                self.judge(active, outcome);
            }
        }
        let stats = self.core.cache_stats().unwrap();
        assert_eq!(stats.spurious_wakeups, 0, "seed {}", self.seed);
    }

    fn inject(&mut self) {
        if self.is_faulty {
            return;
        }
        self.quiet();
        self.is_faulty = true;
        let chance = |faults: Faults, fault| faults.chance(fault, 0.03);
        let faults = [
            Fault::WriteError,
            Fault::TornWrite,
            Fault::ReadError,
            Fault::ShortWrite,
            Fault::ShortRead,
        ];
        let mut faults = faults.into_iter().fold(Faults::none(), chance);
        if self.random.below(3) == 0 {
            faults = faults.chance(Fault::FailedFlush, 0.2);
        }
        self.plain.set_faults(faults);
        // The volume's own records are somebody else's tests.
        let data = self.core.volume_info().unwrap().data_at_bytes;
        let mut faults = Faults::none();
        for fault in [Fault::WriteError, Fault::ReadError] {
            let first = 1 + self.random.below(20);
            faults = faults.when(
                Trigger::nth(fault, first)
                    .times(1 + self.random.below(4))
                    .within(data..u64::MAX),
            );
        }
        if self.random.below(6) == 0 {
            faults = faults.when(Trigger::nth(Fault::FailedFlush, 1));
            self.is_poisoned = true;
        }
        self.volume.set_faults(faults);
    }

    fn begin_change(&mut self) {
        let thing = self.random.below(self.things.len() as u64) as usize;
        let Thing {
            name,
            is_file,
            changing,
            ..
        } = &self.things[thing];
        // One at a time, so that the model knows what is where.
        if *is_file || changing.is_some() || self.is_faulty || self.is_poisoned {
            return;
        }
        let name = *name;
        let (id, change) = match self.random.below(6) {
            0 | 1 => (self.core.begin_delete(ME, ME.uid, name), Change::Delete),
            2 => (self.core.begin_move(ME, ME.uid, name, None), Change::Move),
            _ => {
                let blocks = 8 + self.random.below(32);
                let options = ResizeOptions::to_size(blocks * B);
                (
                    self.core.begin_resize(ME, ME.uid, name, &options),
                    Change::Resize(blocks),
                )
            }
        };
        if self.is_traced {
            println!("{name} {change:?} begins");
        }
        self.things[thing].changing = Some((id.unwrap(), change));
    }

    fn changed(&mut self, thing: usize, change: Change, is_done: bool) {
        if change == Change::Move {
            self.saw(if is_done { "moves" } else { "refused moves" });
        } else {
            assert!(is_done, "seed {}: {change:?}", self.seed);
        }
        if self.is_traced {
            println!("{} {change:?}: {is_done}", self.things[thing].name);
        }
        self.locate();
        // Those that came before it have ended, or are about to: on what is gone none is waited for by the change.
        self.things[thing].is_settling = true;
        while self.active.iter().any(|active| active.thing == thing) {
            self.turn(Wait::one());
        }
        self.things[thing].is_settling = false;
        match change {
            Change::Move => {}
            Change::Resize(blocks) => {
                self.saw("resizes");
                self.things[thing]
                    .cells
                    .resize_with(blocks as usize * PER_BLOCK, Cell::zero);
            }
            Change::Delete => {
                self.saw("deletes");
                let name = self.things[thing].name;
                create(&mut self.core, name, BLOCKS * B);
                self.things[thing].handle = open_write(&mut self.core, name);
                self.things[thing].cells.clear();
                self.things[thing]
                    .cells
                    .resize_with(BLOCKS as usize * PER_BLOCK, Cell::zero);
            }
        }
        self.locate();
    }

    /// The power fails in the middle of everything but changes of the volume itself.
    fn power_cut(&mut self) {
        while self.things.iter().any(|thing| thing.changing.is_some()) {
            self.turn(Wait::one());
        }
        self.saw("power cuts");
        if self.is_traced {
            println!("the power fails");
        }
        let seed = self.random.bits();
        self.volume = self.volume.power_cut(seed);
        self.plain = self.plain.power_cut(seed);
        // It may have failed while the file was cut.
        self.plain.set_size(BLOCKS * B);
        self.core = World::open(&self.volume, &self.plain, &mut self.random);
        self.active.clear();
        (self.is_faulty, self.is_poisoned) = (false, false);
        for thing in 0..self.things.len() {
            let known = &mut self.things[thing];
            known.handle = match known.is_file {
                true => self.core.add_file(File::simulated(&self.plain, "file"), Access::Write),
                false => open_write(&mut self.core, known.name),
            };
            let blocks = known.cells.len() / PER_BLOCK;
            let mode = if self.random.below(2) == 0 {
                Mode::Direct
            } else {
                Mode::Cached
            };
            let left = get(&mut self.core, known.handle, 0, blocks, mode);
            for (nth, bytes) in left.chunks(CELL).enumerate() {
                let cell = &mut known.cells[nth];
                let found = judge::stamp_of(bytes);
                assert!(
                    found.is_some_and(|found| judge::may_be(&cell.since_safe, found)),
                    "seed {}: cell {nth} of {} is {found:?} after a power cut; {cell:?}",
                    self.seed,
                    known.name
                );
                *cell = Cell::holding(found.unwrap_or_default());
            }
        }
        self.locate();
    }
}

/// What a power cut would leave of a thing.
fn judge_image(volume: &Disk, plain: &Disk, thing: &Thing, seed: u64) {
    let disk = if thing.is_file { plain } else { volume };
    let mut left = vec![0; thing.cells.len() * CELL];
    disk.power_cut(seed).read(thing.at, &mut left);
    for (nth, (bytes, cell)) in left.chunks(CELL).zip(&thing.cells).enumerate() {
        let found = judge::stamp_of(bytes);
        assert!(
            found.is_some_and(|found| judge::may_be(&cell.since_safe, found)),
            "seed {seed}: cell {nth} of {} would be {found:?}; {cell:?}",
            thing.name
        );
    }
}
