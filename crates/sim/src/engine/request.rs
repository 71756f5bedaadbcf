//! Requests by chance, and what must be remembered of each until it has ended.

use std::ops::Range;

use baio_engine::sim::Random;
use baio_engine::{Caching, Durability, Op, Patience, Policy, Space, Time};

use crate::engine::DISK_BYTES;
use crate::engine::model::{Number, SECTOR, Word};

/// Bytes of a block: the unit in which requests exclude each other.
pub(crate) const BLOCK: u64 = 4096;

/// Most sectors of a request.
pub(crate) const SECTORS_MAX: u64 = 16;

/// What a request does to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Read,
    Write,
    /// Zeroes the range.
    Zero,
    Reserve,
    /// Makes durable what had ended when it was submitted.
    Sync,
    Nothing,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) does: Does,
    pub(crate) op: Op,
    pub(crate) policy: Policy,
    pub(crate) sectors: Range<usize>,
    /// What it writes, mixed with the place.
    pub(crate) version: u32,
    /// What a sync covers.
    pub(crate) ended: Number,
    /// Writes before it that ended after it was submitted: a fence covers them.
    pub(crate) later: Vec<Number>,
    /// Submitted when a failed sync was known and not acknowledged.
    pub(crate) must_fail: bool,
    /// A sync failed while it ran, or the disk lost some of it, or put something else there.
    pub(crate) doubtful: bool,
    pub(crate) damaged: Vec<Range<usize>>,
    /// Its piece of shared memory, if it has one.
    pub(crate) piece: Option<usize>,
    pub(crate) given_up: bool,
    pub(crate) answered: bool,
}

impl Asked {
    /// What its write puts into a sector.
    pub(crate) fn word(&self, sector: usize) -> Word {
        match self.does {
            Does::Write => word(self.version, sector),
            _ => 0,
        }
    }

    pub(crate) fn changes(&self) -> bool {
        matches!(self.does, Does::Write | Does::Zero)
    }

    pub(crate) fn blocks(&self) -> Range<usize> {
        let per_block = BLOCK as usize / SECTOR;
        self.sectors.start / per_block..self.sectors.end.div_ceil(per_block)
    }

    pub(crate) fn moves_bytes(&self) -> bool {
        matches!(self.does, Does::Read | Does::Write)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.sectors.len() * SECTOR
    }
}

pub(crate) fn word(version: u32, sector: usize) -> Word {
    // No byte of it is like that of another version at the same place, as a rule.
    (Word::from(version) << 16 | sector as Word).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The next request, in a place of at most `SECTORS_MAX` sectors.
pub(crate) fn choose(random: &mut Random, now: Time, version: u32, ended: Number) -> Asked {
    let count = 1 + random.below(SECTORS_MAX);
    let first = random.below(DISK_BYTES / SECTOR as u64 - count);
    let offset = first * SECTOR as u64;
    let len = count * SECTOR as u64;
    let (does, op) = match random.below(100) {
        0..=37 => (Does::Read, Op::Read { offset: Some(offset) }),
        38..=81 => (Does::Write, Op::Write { offset: Some(offset) }),
        82..=85 => (Does::Zero, allocate(offset, len, Space::Zero)),
        86..=87 => (Does::Zero, allocate(offset, len, Space::Discard)),
        88 => (Does::Reserve, allocate(offset, len, Space::Reserve)),
        89..=90 => (Does::Nothing, Op::SyncRange { offset, len }),
        91..=92 => {
            let at = Time(now.0 + random.below(3_000_000));
            (Does::Nothing, Op::Timer { at })
        }
        93..=94 => (Does::Sync, Op::Fence),
        _ => (Does::Sync, Op::Sync),
    };
    let is_durable = does == Does::Sync || (does == Does::Write && random.percent(25));
    let policy = Policy {
        caching: if random.percent(40) {
            Caching::Kernel
        } else {
            Caching::Direct
        },
        durability: if is_durable { Durability::Data } else { Durability::None },
        patience: if random.percent(5) {
            Patience::NoWait
        } else {
            Patience::Wait
        },
        deadline: random.percent(5).then(|| Time(now.0 + random.below(10_000_000))),
    };
    Asked {
        does,
        op,
        policy,
        sectors: first as usize..(first + count) as usize,
        version,
        ended,
        later: Vec::new(),
        must_fail: false,
        doubtful: false,
        damaged: Vec::new(),
        piece: None,
        given_up: false,
        answered: false,
    }
}

fn allocate(offset: u64, len: u64, space: Space) -> Op {
    Op::Allocate { offset, len, space }
}
