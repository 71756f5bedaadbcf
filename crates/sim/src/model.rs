//! What the user was told: the model, and what the acknowledgement of each operation does to it.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use baio_storage::Limits;

use crate::stamp::{Instance, SECTOR, Version};

/// Users of the volume.
pub const UIDS: [u32; 2] = [1000, 1001];

/// Names that each of them uses.
pub const NAMES: [&str; 5] = ["wal", "heap", "index", "undo", "temp"];

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// Sectors of a block.
pub const SECTORS_PER_BLOCK: u64 = BLOCK / SECTOR as u64;

/// Whose segment, and its name as a place in [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The owner.
    pub uid: u32,
    /// Which name.
    pub name: usize,
}

impl Key {
    /// The name as the volume knows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.get(self.name).copied().unwrap_or("none")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.uid, self.name())
    }
}

/// What may be in a sector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sector {
    /// The last version that was promised to last.
    pub settled: Version,
    /// Versions since.
    pub pending: Vec<Version>,
}

impl Sector {
    /// May it be found with this version?
    #[must_use]
    pub fn allows(&self, version: Version) -> bool {
        self.settled == version || self.pending.contains(&version)
    }

    fn settle(&mut self) {
        if let Some(&last) = self.pending.last() {
            self.settled = last;
            self.pending.clear();
        }
    }
}

/// A segment as the user was told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which life of the name.
    pub instance: Instance,
    /// Where its run begins; only the volume knows before it was acknowledged.
    pub start_block: Option<u64>,
    /// Its size.
    pub blocks: u64,
    /// Its run.
    pub reserve: u64,
    /// Its sectors.
    pub sectors: Vec<Sector>,
}

impl Segment {
    /// Its run with another size: what is asked for; else a shorter segment gives back what is behind its end, and a longer
    /// one keeps a run that is long enough.
    #[must_use]
    pub fn reserve_of(&self, blocks: u64, asked: Option<u64>) -> u64 {
        let reserve = match asked {
            Some(reserve) => reserve,
            None if blocks < self.blocks => blocks,
            None => self.reserve,
        };
        reserve.max(blocks)
    }
}

/// What the user was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// The segments that exist.
    pub segments: BTreeMap<Key, Rc<Segment>>,
    /// What the owners may hold, where there is a limit.
    pub limits: BTreeMap<u32, Limits>,
    /// Data blocks of the volume, once they have been seen.
    pub data_blocks: Option<u64>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Make a segment.
    Create {
        /// Which.
        key: Key,
        /// The life that begins.
        instance: Instance,
        /// Its size.
        blocks: u64,
        /// Its run, at least the size.
        reserve: u64,
        /// Are its blocks zeroed by the device, and not by writing?
        lazily: bool,
        /// Where the volume put it, known when it was acknowledged.
        start_block: Option<u64>,
    },
    /// Give a segment another size.
    Resize {
        /// Which.
        key: Key,
        /// Its size.
        blocks: u64,
        /// Its run, if it is to be another than follows from the size.
        reserve: Option<u64>,
        /// Where it is then; it may have to move.
        start_block: Option<u64>,
    },
    /// Give a segment another name.
    Rename {
        /// Which.
        from: Key,
        /// Its new name, of the same owner.
        to: Key,
    },
    /// Move a segment.
    Move {
        /// Which.
        key: Key,
        /// The block to which it goes; else the volume decides.
        to: Option<u64>,
        /// It is only begun, and goes on beside the next operation.
        beside: bool,
        /// Where it is then.
        start_block: Option<u64>,
    },
    /// Limit what an owner may hold.
    Quota {
        /// The owner.
        uid: u32,
        /// The limits.
        limits: Limits,
    },
    /// Write some sectors.
    Write {
        /// Into which segment.
        key: Key,
        /// The first sector.
        first: u64,
        /// How many.
        count: u64,
        /// What they bear.
        version: Version,
        /// Data-durable?
        durable: bool,
        /// It is only begun, reaches the disk late, and is under way when the next operation begins.
        late: bool,
    },
    /// Sync a segment.
    Sync {
        /// Which.
        key: Key,
    },
    /// Delete a segment.
    Delete {
        /// Which.
        key: Key,
    },
    /// Pack the segments of all owners.
    Defrag,
    /// Give the volume so many data blocks.
    Grow {
        /// How many it has then.
        blocks: u64,
    },
    /// Close the volume cleanly.
    Close,
    /// The process is killed; the power stays on.
    Kill,
    /// Open the volume again.
    Open,
    /// Several operations, begun one after the other while those before are under way. Of a session, those that happened.
    Together {
        /// In the order in which they were begun.
        ops: Vec<Op>,
        /// Nobody asks for the answers.
        abandoned: bool,
    },
    /// An operation that was refused, as it should be, and has no effect: a name taken or missing, or no room.
    Refused,
}

impl Model {
    /// The model as it is when `op` was acknowledged.
    #[must_use]
    pub fn after(&self, op: &Op) -> Model {
        let mut after = self.clone();
        after.acknowledge(op);
        after
    }

    /// Does to the model what the acknowledgement of `op` tells the user.
    pub fn acknowledge(&mut self, op: &Op) {
        if let Op::Together { ops, .. } = op {
            ops.iter().for_each(|op| self.acknowledge(op));
            return;
        }
        match *op {
            Op::Create {
                key,
                instance,
                blocks,
                reserve,
                start_block,
                ..
            } => {
                let segment = Segment {
                    instance,
                    start_block,
                    blocks,
                    reserve,
                    sectors: vec![Sector::default(); (blocks * SECTORS_PER_BLOCK) as usize],
                };
                self.segments.insert(key, Rc::new(segment));
            }
            Op::Resize {
                key,
                blocks,
                reserve,
                start_block,
            } => self.change(key, |segment| {
                segment.reserve = segment.reserve_of(blocks, reserve);
                segment.blocks = blocks;
                // What is cut off is gone; what is added is zero.
                let sectors = (blocks * SECTORS_PER_BLOCK) as usize;
                segment.sectors.resize(sectors, Sector::default());
                segment.start_block = start_block;
            }),
            Op::Rename { from, to } => {
                if let Some(segment) = self.segments.remove(&from) {
                    self.segments.insert(to, segment);
                }
            }
            Op::Move { key, start_block, .. } => self.change(key, |segment| segment.start_block = start_block),
            // Which of them were moved, and where to, the next look tells.
            Op::Defrag => self.change_all(|segment| segment.start_block = None),
            Op::Grow { blocks } => self.data_blocks = Some(blocks),
            Op::Quota { uid, limits } => {
                self.limits.remove(&uid);
                if !limits.is_none() {
                    self.limits.insert(uid, limits);
                }
            }
            Op::Write {
                key,
                first,
                count,
                version,
                durable,
                ..
            } => {
                let sectors = self.sectors_of(key).iter_mut().skip(first as usize);
                for sector in sectors.take(count as usize) {
                    sector.pending.push(version);
                    if durable {
                        sector.settle();
                    }
                }
            }
            Op::Sync { key } => self.sectors_of(key).iter_mut().for_each(Sector::settle),
            Op::Delete { key } => drop(self.segments.remove(&key)),
            Op::Close => self.change_all(|segment| segment.sectors.iter_mut().for_each(Sector::settle)),
            Op::Kill | Op::Open | Op::Refused | Op::Together { .. } => {}
        }
    }

    /// The models as they may be when `op` is under way and some of it has happened: of several operations, any of them.
    #[must_use]
    pub fn during(&self, op: &Op) -> Vec<Model> {
        let ops = op.each();
        let subsets = 1..1_u32 << ops.len();
        let after = |subset: u32| {
            let mut model = self.clone();
            let chosen = ops.iter().enumerate().filter(|(nth, _)| subset >> nth & 1 == 1);
            chosen.for_each(|(_, op)| model.acknowledge(op));
            model
        };
        subsets.map(after).collect()
    }

    fn change(&mut self, key: Key, change: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.segments.get_mut(&key) {
            change(Rc::make_mut(segment));
        }
    }

    fn change_all(&mut self, change: impl FnMut(&mut Segment)) {
        self.segments.values_mut().map(Rc::make_mut).for_each(change);
    }

    fn sectors_of(&mut self, key: Key) -> &mut [Sector] {
        match self.segments.get_mut(&key) {
            Some(segment) => &mut Rc::make_mut(segment).sectors,
            None => &mut [],
        }
    }
}

impl Op {
    /// The operations that it consists of: itself, or several.
    #[must_use]
    pub fn each(&self) -> &[Op] {
        match self {
            Op::Together { ops, .. } => ops,
            one => std::slice::from_ref(one),
        }
    }

    /// The one segment that it needs under the name that it has.
    #[must_use]
    pub fn needs(&self) -> Option<Key> {
        match *self {
            Op::Delete { key } | Op::Write { key, .. } | Op::Sync { key } => Some(key),
            Op::Resize { key, .. } | Op::Move { key, .. } | Op::Rename { from: key, .. } => Some(key),
            Op::Create { .. } | Op::Quota { .. } | Op::Defrag | Op::Grow { .. } => None,
            Op::Close | Op::Kill | Op::Open | Op::Refused | Op::Together { .. } => None,
        }
    }
}
