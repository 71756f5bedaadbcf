//! Which operation comes next: chosen by chance from what the model allows, or read from a script.

use std::collections::VecDeque;

use baio_engine::sim::Random;
use baio_storage::Limits;

use crate::model::{Key, Model, NAMES, Op, SECTORS_PER_BLOCK, UIDS};
use crate::workload::Ids;
use crate::world::{BLOCKS, BLOCKS_MORE};

/// Largest size of a segment in blocks, in workloads by chance.
const BLOCKS_MAX: u64 = 6;

/// Operations at a time, at most: of so many any subset may have happened.
const TOGETHER_MAX: usize = 5;

/// Says what a process does next.
pub trait Guide {
    /// The next operation on a volume that holds this; `None`: the process ends here. A volume that is not open can only
    /// be opened.
    fn next(&mut self, model: &Model, is_open: bool) -> Option<Op>;

    /// The randomness of the next opening.
    fn seed(&mut self) -> u64;
}

/// A process with two users who create, write, sync, resize, rename, move and delete, and are limited; now and then it closes the volume or is killed, and opens
/// it again.
#[derive(Debug)]
pub struct ByChance<'a> {
    /// From which the choices follow.
    pub random: &'a mut Random,
    /// Names for what is new.
    pub ids: &'a mut Ids,
    /// Operations until it ends.
    pub left: usize,
    /// May a write be under way beside what comes next?
    pub writes_late: bool,
    /// What comes next in any case: behind a write that is under way.
    pub then: VecDeque<Op>,
}

impl<'a> ByChance<'a> {
    /// So many operations; `writes_late`: a write may be under way beside what comes next.
    pub fn new(random: &'a mut Random, ids: &'a mut Ids, left: usize, writes_late: bool) -> ByChance<'a> {
        ByChance {
            random,
            ids,
            left,
            writes_late,
            then: VecDeque::new(),
        }
    }
}

impl Guide for ByChance<'_> {
    fn next(&mut self, model: &Model, is_open: bool) -> Option<Op> {
        self.left = self.left.checked_sub(1)?;
        if !is_open {
            return Some(Op::Open);
        }
        if let Some(then) = self.then.pop_front() {
            return Some(then);
        }
        if self.writes_late && self.random.percent(7) {
            return Some(self.together(model));
        }
        let existing: Vec<Key> = model.segments.keys().copied().collect();
        let chosen = self.random.pick(&existing).copied();
        Some(match (self.random.below(100), chosen) {
            (0..=4, _) => Op::Close,
            (5..=8, _) => Op::Kill,
            (9..=12, Some(key)) => self.create(key), // The name is taken.
            (13..=26, Some(key)) => self.delete(model, key),
            (27..=44, Some(key)) => self.write(model, key),
            (45..=52, Some(key)) => Op::Sync { key },
            (53..=61, Some(key)) => {
                if self.random.percent(25) {
                    return Some(self.shrink_and_grow(model, key));
                }
                let resize = self.resize(key);
                self.beside_a_write(model, key, resize)
            }
            (62..=66, Some(from)) => self.rename(from),
            (67..=72, Some(key)) => self.move_it(model, key),
            (73..=75, _) => self.quota(),
            (76, _) => Op::Defrag,
            (77, _) => {
                let now = model.data_blocks.unwrap_or(BLOCKS);
                let larger = BLOCKS + self.random.below(BLOCKS_MORE + 1);
                // A volume of another shape has no room.
                let blocks = if now < BLOCKS { now } else { now.max(larger) };
                Op::Grow { blocks }
            }
            _ => {
                let key = self.any();
                self.create(key)
            }
        })
    }

    fn seed(&mut self) -> u64 {
        self.random.bits()
    }
}

impl ByChance<'_> {
    /// Makes these segments first, of one block each: more than their bucket has slots.
    pub(crate) fn fill(&mut self, crowd: &[Key]) {
        for &key in crowd {
            let mut create = self.create(key);
            if let Op::Create { blocks, reserve, .. } = &mut create {
                (*blocks, *reserve) = (1, 1);
            }
            self.then.push_back(create);
        }
        self.left += crowd.len();
    }

    fn any(&mut self) -> Key {
        Key {
            uid: self.random.pick(&UIDS).copied().unwrap_or(UIDS[0]),
            name: self.random.below(NAMES.len() as u64) as usize,
        }
    }

    fn resize(&mut self, key: Key) -> Op {
        let blocks = 1 + self.random.below(2 * BLOCKS_MAX);
        let reserve = self.random.percent(30).then(|| blocks + self.random.below(4));
        Op::Resize {
            key,
            blocks,
            reserve,
            start_block: None,
        }
    }

    /// Keeps its run, so that it can grow back over what it held.
    fn shrink_and_grow(&mut self, model: &Model, key: Key) -> Op {
        let (blocks, reserve) = model.segments.get(&key).map_or((1, 1), |s| (s.blocks, s.reserve));
        let to = |blocks| Op::Resize {
            key,
            blocks,
            reserve: Some(reserve),
            start_block: None,
        };
        self.then.push_back(to(blocks));
        to(1 + self.random.below(blocks))
    }

    /// Behind one with a write under way somebody else wants blocks.
    fn delete(&mut self, model: &Model, key: Key) -> Op {
        let op = self.beside_a_write(model, key, Op::Delete { key });
        if op != (Op::Delete { key }) {
            let other = self.any();
            let create = self.create(other);
            self.then.push_back(create);
        }
        op
    }

    /// Waited for, with a write under way; or only begun, beside a write or somebody who wants blocks.
    fn move_it(&mut self, model: &Model, key: Key) -> Op {
        let to = self.random.percent(30).then(|| self.random.below(BLOCKS));
        let beside = self.writes_late && self.random.percent(50);
        let op = Op::Move {
            key,
            to,
            beside,
            start_block: None,
        };
        if !beside {
            return self.beside_a_write(model, key, op);
        }
        let next = match self.random.below(10) {
            0..=5 => self.write(model, key),
            6..=7 => {
                let other = self.any();
                self.create(other)
            }
            _ => self.together(model),
        };
        self.then.push_back(next);
        op
    }

    /// Now and then to a name that is taken, also its own.
    fn rename(&mut self, from: Key) -> Op {
        let to = Key {
            uid: from.uid,
            ..self.any()
        };
        Op::Rename { from, to }
    }

    fn quota(&mut self) -> Op {
        let blocks = self.random.percent(60).then(|| self.random.below(BLOCKS));
        let segments = self.random.percent(20).then(|| self.random.below(NAMES.len() as u64));
        Op::Quota {
            uid: self.random.pick(&UIDS).copied().unwrap_or(UIDS[0]),
            limits: Limits { blocks, segments },
        }
    }

    /// Now and then a write on the segment is still under way.
    fn beside_a_write(&mut self, model: &Model, key: Key, op: Op) -> Op {
        if !self.writes_late || self.left == 0 || !self.random.percent(40) {
            return op;
        }
        let mut write = self.write(model, key);
        if let Op::Write { durable, late, .. } = &mut write {
            (*durable, *late) = (false, true);
        }
        self.then.push_back(op);
        write
    }

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
            lazily: self.random.percent(20),
            start_block: None,
        }
    }

    /// Up to four operations of several owners at a time, each on a segment of its own; now and then a resize meets the
    /// delete of its segment.
    fn together(&mut self, model: &Model) -> Op {
        let abandoned = self.random.percent(30);
        let (mut ops, mut touched) = (Vec::new(), Vec::new());
        for _ in 0..2 + self.random.below(3) {
            let key = self.any();
            if touched.contains(&key) {
                continue;
            }
            touched.push(key);
            let exists = model.segments.contains_key(&key);
            match self.random.below(10) {
                _ if !exists => ops.push(self.create(key)),
                0..=3 => ops.push(Op::Delete { key }),
                4..=6 if !abandoned => {
                    ops.push(self.resize(key));
                    if self.random.percent(30) {
                        ops.push(Op::Delete { key });
                    }
                }
                7..=8 => {
                    let to = Key {
                        uid: key.uid,
                        ..self.any()
                    };
                    if !touched.contains(&to) {
                        touched.push(to);
                        ops.push(Op::Rename { from: key, to });
                    }
                }
                // One is enough: what two of one owner came to cannot be told from their answers.
                _ if ops.iter().all(|op| !matches!(op, Op::Quota { .. })) => ops.push(self.quota()),
                _ => {}
            }
        }
        ops.truncate(TOGETHER_MAX);
        Op::Together { ops, abandoned }
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
            late: false,
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
    /// Gives it this size in blocks.
    Resize(Key, u64),
    /// Gives it the other name.
    Rename(Key, Key),
    /// Moves it wherever the volume likes.
    Move(Key),
    /// Limits its owner to so many blocks.
    Quota(Key, u64),
    /// Packs the volume.
    Defrag,
    /// Makes the volume as large as it was formatted for.
    Grow,
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

impl<'a> Script<'a> {
    /// These steps; the randomness of the openings follows from `seed`.
    pub fn new(steps: &'a [Step], ids: &'a mut Ids, seed: u64) -> Script<'a> {
        Script { steps, ids, seed }
    }
}

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
            late: false,
        };
        Some(match step {
            Step::Create(key, blocks) => Op::Create {
                key,
                instance: self.ids.instance(),
                blocks,
                reserve: blocks,
                lazily: false,
                start_block: None,
            },
            Step::Delete(key) => Op::Delete { key },
            Step::WriteDurable(key) => write(key, self.ids.version(), true),
            Step::Write(key) => write(key, self.ids.version(), false),
            Step::Sync(key) => Op::Sync { key },
            Step::Resize(key, blocks) => Op::Resize {
                key,
                blocks,
                reserve: None,
                start_block: None,
            },
            Step::Rename(from, to) => Op::Rename { from, to },
            Step::Move(key) => Op::Move {
                key,
                to: None,
                beside: false,
                start_block: None,
            },
            Step::Quota(key, blocks) => Op::Quota {
                uid: key.uid,
                limits: Limits {
                    blocks: Some(blocks),
                    segments: None,
                },
            },
            Step::Defrag => Op::Defrag,
            Step::Grow => Op::Grow {
                blocks: BLOCKS + BLOCKS_MORE,
            },
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
