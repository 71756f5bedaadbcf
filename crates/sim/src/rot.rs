//! Rot: one metadata page that does not say any more what was written. The format keeps every page of its metadata in at
//! least two places, so one rotten image of a bucket, or one rotten superblock copy, must cost nothing.
//!
//! Rot is a flipped bit or a page of other bytes. Pages that rot into zeroes are left out: beside a bucket's first
//! generations a look-up cannot tell them from pages never written (`docs/disk-format.md` states the limit).

use std::fmt;

use baio_engine::sim::Disk;
use baio_engine::sim::log::Record;
use baio_storage::segment::layout::{Layout, Parity, Place};

use crate::random::Random;
use crate::stamp;

const PAGE: usize = 4096;

/// Which page rots, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rot {
    /// Which page.
    pub victim: Victim,
    /// The bit that flips; `None`: the page is full of other bytes.
    pub bit: Option<u64>,
}

/// A page of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// A copy of the superblock.
    Superblock(usize),
    /// An image of a bucket.
    Image(u64, Parity, Place),
    /// Another page, by its first byte: of the snapshot.
    Page(u64),
}

impl fmt::Display for Rot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.victim {
            Victim::Superblock(copy) => write!(f, "superblock copy {copy} rotten"),
            Victim::Image(bucket, parity, place) => {
                write!(f, "bucket {bucket}: the {parity:?} image of the {place:?} rotten")
            }
            Victim::Page(at) => write!(f, "the page at {at} rotten"),
        }
    }
}

impl Rot {
    /// Chooses a page; mostly one that was written.
    #[must_use]
    pub fn choose(disk: &Disk, layout: &Layout, random: &mut Random) -> Rot {
        let victim = if random.percent(25) {
            Victim::Superblock(random.below(4) as usize)
        } else {
            let written: Vec<Victim> = images(layout)
                .filter(|victim| is_written(disk, layout, *victim))
                .collect();
            let any: Vec<Victim> = images(layout).collect();
            let among = if random.percent(90) && !written.is_empty() {
                &written
            } else {
                &any
            };
            random.pick(among).copied().unwrap_or(Victim::Superblock(0))
        };
        let bit = random.percent(70).then(|| random.below(PAGE as u64 * 8));
        Rot { victim, bit }
    }

    /// Damages the page. Returns the damage as a record, for states that are cut later.
    pub fn strike(&self, disk: &Disk, layout: &Layout) -> Option<Record> {
        let at = place(layout, self.victim)?;
        let mut page = [0; PAGE];
        match self.bit {
            Some(bit) => {
                disk.read(at, &mut page);
                page[(bit / 8) as usize % PAGE] ^= 1 << (bit % 8);
            }
            None => stamp::fill_word(&mut page, stamp::STALE),
        }
        disk.poke(at, &page);
        Some(Record::Write {
            offset: at,
            bytes: page.as_slice().into(),
            durable: true,
            under_way: 0,
        })
    }
}

pub(crate) fn images(layout: &Layout) -> impl Iterator<Item = Victim> + use<> {
    (0..layout.buckets()).flat_map(|bucket| {
        Parity::BOTH.into_iter().flat_map(move |parity| {
            [Place::Table, Place::Mirror]
                .into_iter()
                .map(move |place| Victim::Image(bucket, parity, place))
        })
    })
}

fn is_written(disk: &Disk, layout: &Layout, victim: Victim) -> bool {
    let mut head = [0; 8];
    if let Some(at) = place(layout, victim) {
        disk.read(at, &mut head);
    }
    head != [0; 8]
}

pub(crate) fn place(layout: &Layout, victim: Victim) -> Option<u64> {
    match victim {
        Victim::Superblock(copy) => layout.superblocks_at().get(copy).copied(),
        Victim::Image(bucket, parity, place) => layout.image_at(bucket, parity, place),
        Victim::Page(at) => Some(at),
    }
}
