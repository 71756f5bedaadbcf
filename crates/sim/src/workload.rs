//! Sessions: a volume is opened, looked at, and used, on the record.
//!
//! The record of a session carries marks. Mark 0: the opening is acknowledged, and what it served has been seen. Mark `n`: the
//! `n`-th operation is. So at every place of the record it is known what the user has been told ([`Session::expectation`]).
//!
//! Operations are generated from the model, one at a time: a process with two users who create, write, sync and delete; now
//! and then it closes the volume or is killed, and opens it again.

use std::ops::AddAssign;

use baio_engine::sim::Disk;
use baio_engine::sim::log::Record;
use baio_engine::{Durability, Memory};
use baio_storage::{Access, Core, CreateOptions, Fault, Identity, SegmentOp, SegmentRequest};
use serde::Serialize;

use crate::observe::{failed, observe, run};
use crate::oracle::{BLOCK, Expectation, Key, Kind, Model, NAMES, Op, UIDS, Violation, acknowledge};
use crate::random::Random;
use crate::stamp::{self, Instance, SECTOR, Version};
use crate::world;

/// Largest size of a segment in blocks.
const BLOCKS_MAX: u64 = 6;

/// A disk after a power cut or a kill, and what may be expected of it.
#[derive(Clone, Debug)]
pub struct State {
    /// The disk as the next opening reads it.
    pub disk: Disk,
    /// What of it no later power cut can take away.
    pub base: Disk,
    /// The rest, written but not flushed: after a kill. Without marks.
    pub tail: Vec<Record>,
    /// What must be there.
    pub expectation: Expectation,
}

impl State {
    /// After a power cut all that is there is there for good.
    #[must_use]
    pub fn after_power_cut(disk: Disk, expectation: Expectation) -> State {
        State {
            base: disk.copy(),
            disk,
            tail: Vec::new(),
            expectation,
        }
    }
}

/// A session that has ended, with its record.
#[derive(Clone, Debug)]
pub struct Session {
    /// The disk before the record.
    pub base: Disk,
    /// What the killed process before this one had not flushed, then what this session did.
    pub record: Vec<Record>,
    /// How many records are the killed process's.
    pub inherited: usize,
    /// What could be expected before the opening was acknowledged.
    pub before: Expectation,
    /// What the user had been told after so many operations.
    pub models: Vec<Model>,
    /// The operations.
    pub ops: Vec<Op>,
}

impl Session {
    /// What must be there when so many records have happened.
    #[must_use]
    pub fn expectation(&self, prefix: usize) -> Expectation {
        let mark = self.record.iter().take(prefix).rev().find_map(|record| match record {
            Record::Mark(mark) => Some(*mark as usize),
            _ => None,
        });
        let Some(acknowledged) = mark else {
            return self.before.clone();
        };
        Expectation {
            model: self.models.get(acknowledged).cloned().unwrap_or_default(),
            under_way: self.ops.get(acknowledged).cloned(),
        }
    }
}

/// Names for lives and writes, each given once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids {
    instance: Instance,
    version: Version,
}

/// How many operations of each kind were run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Segments made.
    pub create: u64,
    /// Plain writes.
    pub write: u64,
    /// Data-durable writes.
    pub write_durable: u64,
    /// Syncs.
    pub sync: u64,
    /// Segments deleted.
    pub delete: u64,
    /// Clean closes.
    pub close: u64,
    /// Kills with the power on.
    pub kill: u64,
    /// Openings.
    pub open: u64,
    /// Operations refused as they should be.
    pub refused: u64,
}

impl Counts {
    fn count(&mut self, op: &Op) {
        *match op {
            Op::Create { .. } => &mut self.create,
            Op::Write { durable: false, .. } => &mut self.write,
            Op::Write { durable: true, .. } => &mut self.write_durable,
            Op::Sync { .. } => &mut self.sync,
            Op::Delete { .. } => &mut self.delete,
            Op::Close => &mut self.close,
            Op::Kill => &mut self.kill,
            Op::Open => &mut self.open,
            Op::Refused => &mut self.refused,
        } += 1;
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.create += other.create;
        self.write += other.write;
        self.write_durable += other.write_durable;
        self.sync += other.sync;
        self.delete += other.delete;
        self.close += other.close;
        self.kill += other.kill;
        self.open += other.open;
        self.refused += other.refused;
    }
}

/// Runs a session of `length` operations on a disk.
///
/// # Errors
/// The volume does not open, is not what was promised, or an operation fails that should not.
pub fn run_session(
    state: State,
    length: usize,
    random: &mut Random,
    ids: &mut Ids,
    counts: &mut Counts,
) -> Result<Session, Violation> {
    let State {
        disk,
        base,
        tail,
        expectation,
    } = state;
    disk.record();
    let mut driver = Driver {
        disk,
        core: None,
        model: Model::new(),
        random,
        ids,
    };
    driver.open(&expectation)?;
    counts.open += 1;
    driver.disk.mark(0);
    let mut models = vec![driver.model.clone()];
    let mut ops = Vec::with_capacity(length);
    while ops.len() < length {
        let wanted = driver.choose();
        let done = driver
            .perform(wanted.clone())
            .map_err(|violation| violation.after(format!("{wanted:?} after {ops:?}")))?;
        counts.count(&done);
        ops.push(done);
        models.push(driver.model.clone());
        driver.disk.mark(ops.len() as u64);
    }
    // The process is gone, and closes nothing.
    drop(driver.core.take());
    let inherited = tail.len();
    let mut record = tail;
    record.extend(driver.disk.take_record());
    Ok(Session {
        base,
        record,
        inherited,
        before: expectation,
        models,
        ops,
    })
}

/// One process on one volume.
struct Driver<'a> {
    disk: Disk,
    core: Option<Core>,
    model: Model,
    random: &'a mut Random,
    ids: &'a mut Ids,
}

impl Driver<'_> {
    fn open(&mut self, expectation: &Expectation) -> Result<(), Violation> {
        let mut core = world::open(&self.disk, self.random.bits())?;
        self.model = expectation.check(&observe(&mut core)?)?;
        self.core = Some(core);
        Ok(())
    }

    /// The next operation. Without a volume there is only one.
    fn choose(&mut self) -> Op {
        if self.core.is_none() {
            return Op::Open;
        }
        let existing: Vec<Key> = self.model.keys().copied().collect();
        let chosen = self.random.pick(&existing).copied();
        match (self.random.below(100), chosen) {
            (0..=4, _) => Op::Close,
            (5..=8, _) => Op::Kill,
            (9..=14, Some(key)) => self.create(key), // The name is taken.
            (15..=34, Some(key)) => Op::Delete { key },
            (35..=58, Some(key)) => self.write(key),
            (59..=70, Some(key)) => Op::Sync { key },
            _ => {
                let key = Key {
                    uid: self.random.pick(&UIDS).copied().unwrap_or(UIDS[0]),
                    name: self.random.below(NAMES.len() as u64) as usize,
                };
                self.create(key)
            }
        }
    }

    fn create(&mut self, key: Key) -> Op {
        let blocks = 1 + self.random.below(BLOCKS_MAX);
        let more = if self.random.percent(30) {
            self.random.below(4)
        } else {
            0
        };
        self.ids.instance += 1;
        Op::Create {
            key,
            instance: self.ids.instance,
            blocks,
            reserve: blocks + more,
            start_block: 0,
        }
    }

    fn write(&mut self, key: Key) -> Op {
        let sectors = self.model.get(&key).map_or(0, |segment| segment.sectors.len() as u64);
        let first = self.random.below(sectors);
        self.ids.version += 1;
        Op::Write {
            key,
            first,
            count: 1 + self.random.below((sectors - first).min(20)),
            version: self.ids.version,
            durable: self.random.percent(40),
        }
    }

    /// Does it, tells the model, and returns it as it turned out.
    fn perform(&mut self, op: Op) -> Result<Op, Violation> {
        let done = match op {
            Op::Open => {
                let expectation = Expectation {
                    model: std::mem::take(&mut self.model),
                    under_way: None,
                };
                self.open(&expectation)?;
                Op::Open
            }
            Op::Kill => {
                self.core = None;
                Op::Kill
            }
            Op::Close => {
                let core = self.core.take().ok_or_else(closed)?;
                core.close().map_err(|error| failed("close", &error))?;
                Op::Close
            }
            Op::Create { .. } => self.perform_create(op)?,
            op => {
                self.perform_on_segment(&op)?;
                op
            }
        };
        acknowledge(&mut self.model, &done);
        Ok(done)
    }

    fn perform_create(&mut self, mut op: Op) -> Result<Op, Violation> {
        let core = self.core.as_mut().ok_or_else(closed)?;
        let Op::Create {
            key,
            blocks,
            reserve,
            start_block,
            ..
        } = &mut op
        else {
            return Ok(op);
        };
        let options = CreateOptions {
            reserve_bytes: *reserve * BLOCK,
            ..CreateOptions::of_size(*blocks * BLOCK)
        };
        let is_taken = self.model.contains_key(key);
        match core.create(who(*key), key.uid, key.name(), &options) {
            Ok(info) if !is_taken => {
                *start_block = info.start_block;
                Ok(op)
            }
            Ok(_) => Err(Violation::new(Kind::Lost, format!("{key} was made though it exists"))),
            Err(error) => {
                let room = core
                    .volume_info()
                    .map_err(|error| failed("stat", &error))?
                    .largest_free_bytes;
                let rightly = match error.fault {
                    Fault::Exists => is_taken,
                    Fault::NoSpace { .. } => !is_taken && room < *reserve * BLOCK,
                    _ => false,
                };
                if rightly {
                    Ok(Op::Refused)
                } else {
                    Err(failed("create", &error))
                }
            }
        }
    }

    fn perform_on_segment(&mut self, op: &Op) -> Result<(), Violation> {
        let core = self.core.as_mut().ok_or_else(closed)?;
        match *op {
            Op::Delete { key } => core
                .delete(who(key), key.uid, key.name())
                .map(drop)
                .map_err(|error| failed("delete", &error)),
            Op::Write {
                key,
                first,
                count,
                version,
                durable,
            } => {
                let instance = self.model.get(&key).map_or(0, |segment| segment.instance);
                let mut buffer = core
                    .buffer(count as usize * SECTOR)
                    .map_err(|error| failed("write", &error))?;
                stamp::fill(&mut buffer, instance, first, version);
                let durability = if durable { Durability::Data } else { Durability::None };
                let offset = first * SECTOR as u64;
                on_segment(core, key, SegmentOp::Write { offset }, Memory::Own(buffer), durability)
            }
            Op::Sync { key } => on_segment(core, key, SegmentOp::Sync, Memory::None, Durability::Data),
            _ => Ok(()),
        }
    }
}

fn on_segment(
    core: &mut Core,
    key: Key,
    op: SegmentOp,
    memory: Memory,
    durability: Durability,
) -> Result<(), Violation> {
    let (handle, _) = core
        .open_segment(who(key), key.uid, key.name(), Access::Write)
        .map_err(|error| failed("open a segment", &error))?;
    let request = SegmentRequest {
        durability,
        ..SegmentRequest::new(handle, op, memory)
    };
    run(core, request)?;
    core.close_handle(handle);
    Ok(())
}

fn who(key: Key) -> Identity {
    Identity {
        uid: key.uid,
        gid: key.uid,
    }
}

fn closed() -> Violation {
    Violation::new(Kind::Failed, "the volume is not open")
}
