//! Which operation comes next: chosen by chance from what the model allows, or read from a script.

use crate::oracle::{Key, Model, NAMES, Op, SECTORS_PER_BLOCK, UIDS};
use crate::random::Random;
use crate::workload::Ids;

/// Largest size of a segment in blocks, in workloads by chance.
const BLOCKS_MAX: u64 = 6;

/// Says what a process does next.
pub trait Guide {
    /// The next operation on a volume that holds this; `None`: the process ends here. A volume that is not open can only
    /// be opened.
    fn next(&mut self, model: &Model, is_open: bool) -> Option<Op>;

    /// The randomness of the next opening.
    fn seed(&mut self) -> u64;
}

/// A process with two users who create, write, sync and delete; now and then it closes the volume or is killed, and opens
/// it again.
#[derive(Debug)]
pub struct ByChance<'a> {
    /// From which the choices follow.
    pub random: &'a mut Random,
    /// Names for what is new.
    pub ids: &'a mut Ids,
    /// Operations until it ends.
    pub left: usize,
}

impl Guide for ByChance<'_> {
    fn next(&mut self, model: &Model, is_open: bool) -> Option<Op> {
        self.left = self.left.checked_sub(1)?;
        if !is_open {
            return Some(Op::Open);
        }
        let existing: Vec<Key> = model.segments.keys().copied().collect();
        let chosen = self.random.pick(&existing).copied();
        Some(match (self.random.below(100), chosen) {
            (0..=4, _) => Op::Close,
            (5..=8, _) => Op::Kill,
            (9..=14, Some(key)) => self.create(key), // The name is taken.
            (15..=34, Some(key)) => Op::Delete { key },
            (35..=58, Some(key)) => self.write(model, key),
            (59..=70, Some(key)) => Op::Sync { key },
            _ => {
                let key = Key {
                    uid: self.random.pick(&UIDS).copied().unwrap_or(UIDS[0]),
                    name: self.random.below(NAMES.len() as u64) as usize,
                };
                self.create(key)
            }
        })
    }

    fn seed(&mut self) -> u64 {
        self.random.bits()
    }
}

impl ByChance<'_> {
    fn create(&mut self, key: Key) -> Op {
        let blocks = 1 + self.random.below(BLOCKS_MAX);
        let more = if self.random.percent(30) {
            self.random.below(4)
        } else {
            0
        };
        Op::Create {
            key,
            instance: self.ids.instance(),
            blocks,
            reserve: blocks + more,
            start_block: None,
        }
    }

    fn write(&mut self, model: &Model, key: Key) -> Op {
        let sectors = model.segments.get(&key).map_or(0, |s| s.sectors.len() as u64);
        let first = self.random.below(sectors);
        Op::Write {
            key,
            first,
            count: 1 + self.random.below((sectors - first).min(20)),
            version: self.ids.version(),
            durable: self.random.percent(40),
        }
    }
}

/// An operation of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a segment of so many blocks.
    Create(Key, u64),
    /// Deletes it.
    Delete(Key),
    /// Writes its first blocks, data-durable.
    WriteDurable(Key),
    /// Writes its first blocks.
    Write(Key),
    /// Syncs it.
    Sync(Key),
    /// Closes the volume and opens it again; where it is not open, only that.
    Reopen,
    /// Closes the volume.
    Close,
    /// Ends the process with the power on.
    Kill,
}

/// A process that does what a script says.
#[derive(Debug)]
pub struct Script<'a> {
    /// What is left of it.
    pub steps: &'a [Step],
    /// Names for what is new.
    pub ids: &'a mut Ids,
    /// The randomness of every opening.
    pub seed: u64,
}

/// Sectors that a step of a script writes: half a block, a whole one, and the half of a third, where there are so many.
const SCRIPT_SECTORS: u64 = 2 * SECTORS_PER_BLOCK;

impl Guide for Script<'_> {
    fn next(&mut self, _: &Model, is_open: bool) -> Option<Op> {
        let (&step, rest) = self.steps.split_first()?;
        if step == Step::Reopen && is_open {
            return Some(Op::Close); // The step stays, for the opening.
        }
        self.steps = rest;
        if !is_open {
            return Some(Op::Open);
        }
        let write = |key, version, durable| Op::Write {
            key,
            first: SECTORS_PER_BLOCK / 2,
            count: SCRIPT_SECTORS,
            version,
            durable,
        };
        Some(match step {
            Step::Create(key, blocks) => Op::Create {
                key,
                instance: self.ids.instance(),
                blocks,
                reserve: blocks,
                start_block: None,
            },
            Step::Delete(key) => Op::Delete { key },
            Step::WriteDurable(key) => write(key, self.ids.version(), true),
            Step::Write(key) => write(key, self.ids.version(), false),
            Step::Sync(key) => Op::Sync { key },
            Step::Reopen => Op::Open,
            Step::Close => Op::Close,
            Step::Kill => Op::Kill,
        })
    }

    fn seed(&mut self) -> u64 {
        self.seed += 1;
        self.seed
    }
}
