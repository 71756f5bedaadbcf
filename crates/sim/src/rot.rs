//! Rot: one metadata page that does not say any more what was written. The format keeps every page of its metadata in at
//! least two places, so one rotten image of a bucket, or one rotten superblock copy, must cost nothing.
//!
//! Rot is a flipped bit, a page of other bytes, or a page of zeroes. Zeroes over the first two generations of a bucket's table
//! images are left to [`Rot::within_the_limit`]: a look-up cannot tell them from pages never written, a check can
//! (`docs/inside/disk-format.md` states the limit).

use std::fmt;

use baio_engine::sim::log::Record;
use baio_engine::sim::{Disk, Random};
use baio_storage::segment::layout::{Layout, Parity, Place};

use crate::stamp;

const PAGE: usize = 4096;

/// Which page rots, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rot {
    /// Which page.
    pub victim: Victim,
    /// What becomes of it.
    pub damage: Damage,
}

/// What becomes of a rotten page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// This bit flips.
    Bit(u64),
    /// It is full of other bytes.
    Stale,
    /// It is full of zeroes.
    Zeroes,
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
        }?;
        match self.damage {
            Damage::Bit(_) | Damage::Stale => Ok(()),
            Damage::Zeroes => write!(f, ", all zeroes"),
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
        let damage = match random.below(10) {
            0..=5 => Damage::Bit(random.below(PAGE as u64 * 8)),
            6..=7 if !is_within_the_limit(disk, layout, victim) => Damage::Zeroes,
            _ => Damage::Stale,
        };
        Rot { victim, damage }
    }

    /// Zeroes over an early image of the table, whose mirror holds the same; `None` if there is no such image.
    #[must_use]
    pub fn within_the_limit(disk: &Disk, layout: &Layout, random: &mut Random) -> Option<Rot> {
        let has_its_mirror = |victim: &Victim| match *victim {
            Victim::Image(bucket, parity, Place::Table) => {
                read(disk, layout, Victim::Image(bucket, parity, Place::Mirror)) == read(disk, layout, *victim)
            }
            _ => false,
        };
        let early: Vec<Victim> = images(layout)
            .filter(|victim| is_within_the_limit(disk, layout, *victim) && has_its_mirror(victim))
            .collect();
        let victim = random.pick(&early).copied()?;
        let damage = Damage::Zeroes;
        Some(Rot { victim, damage })
    }

    /// Damages the page. Returns the damage as a record, for states that are cut later.
    pub fn strike(&self, disk: &Disk, layout: &Layout) -> Option<Record> {
        let at = place(layout, self.victim)?;
        let mut page = [0; PAGE];
        match self.damage {
            Damage::Bit(bit) => {
                disk.read(at, &mut page);
                page[(bit / 8) as usize % PAGE] ^= 1 << (bit % 8);
            }
            Damage::Stale => stamp::fill_word(&mut page, stamp::STALE),
            Damage::Zeroes => {}
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

fn read(disk: &Disk, layout: &Layout, victim: Victim) -> Option<[u8; PAGE]> {
    let mut page = [0; PAGE];
    disk.read(place(layout, victim)?, &mut page);
    Some(page)
}

/// An image of the table of generation 1 or 2.
fn is_within_the_limit(disk: &Disk, layout: &Layout, victim: Victim) -> bool {
    const GENERATION_AT: usize = 40;
    let Victim::Image(_, _, Place::Table) = victim else {
        return false;
    };
    read(disk, layout, victim).is_some_and(|page| {
        let mut word = [0; 8];
        word.copy_from_slice(&page[GENERATION_AT..GENERATION_AT + 8]);
        (1..=2).contains(&u64::from_le_bytes(word))
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
