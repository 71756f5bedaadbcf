//! Sums up the inode table: which blocks are free, what each owner holds, and which segments claim the same blocks.
//!
//! It takes one pass over the table. Each claim is entered into the free set as it comes, even if another segment claims the same blocks: a
//! claimed block is not free, whichever segment gets it. Only if two live segments claim one block does a second pass collect the segments
//! that touch such a run, and decide:
//!
//! - If one inode says that it was renamed from the other, and was allocated later, they are one segment, and the old inode is superseded.
//! - Otherwise the later allocation gets the block. A segment that loses a block so is quarantined. For `check` it keeps the blocks that
//!   no other segment claims.
//!
//! So an opening needs memory for the free set and the accounts, and not for each segment.

use std::collections::{BTreeMap, BTreeSet};

use baio_engine::Engine;

use crate::error::{Error, Fault, Result};
use crate::segment::free_set::FreeSet;
use crate::segment::inode::{AllocSeq, Inode, InodeState, RenameFrom};
use crate::segment::probe::SlotAddress;
use crate::segment::superblock::Superblock;
use crate::volume::accounts::{Accounts, Limits, Usage};
use crate::volume::device::Device;
use crate::volume::table::{self, Doubt, Found, Healing};

/// Everything that follows from the inodes.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) free: FreeSet,
    pub(crate) accounts: Accounts,
    pub(crate) unfinished_moves: Vec<SlotAddress>,
    pub(crate) quarantined: Quarantine,
    /// Old inodes of renames that were not finished.
    pub(crate) superseded: Vec<SlotAddress>,
    /// Live inodes that lost their blocks to a later one, and do not say so on the device yet; those allocated last come first.
    pub(crate) losers: Vec<SlotAddress>,
    /// The same in words.
    pub(crate) loser_labels: Vec<String>,
    /// What the owner of the volume should know, in words.
    pub(crate) warnings: Vec<String>,
}

/// Segments that are not served, and the runs that are kept for their sake.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarantine {
    slots: BTreeSet<SlotAddress>,
    /// Runs of theirs, and of inodes that cannot be decoded: first block and the block behind the last.
    kept: Vec<(u64, u64)>,
}

impl Quarantine {
    pub(crate) fn contains(&self, address: &SlotAddress) -> bool {
        self.slots.contains(address)
    }

    /// Forgets a segment that was deleted. Its blocks stay taken until the next opening finds out whose they are.
    pub(crate) fn remove(&mut self, address: &SlotAddress) -> bool {
        self.slots.remove(address)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Is nothing kept for the sake of anything that is not served?
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.kept.is_empty()
    }
}

/// A segment that touches a run which more than one claims.
#[derive(Debug)]
struct Contender {
    address: SlotAddress,
    alloc_seq: AllocSeq,
    generation: u64,
    uuid: [u8; 16],
    renamed_from: Option<RenameFrom>,
    owner_uid: u32,
    usage: Usage,
    runs: Vec<(u64, u64)>,
    label: String,
}

/// The first pass, inode by inode.
pub(crate) struct Gathering {
    contents: Contents,
    /// Runs of which a block was claimed before: first block and the block behind the last.
    contested: Vec<(u64, u64)>,
    outside: Option<String>,
}

impl Contents {
    pub(crate) fn read(
        engine: &mut Engine,
        device: &Device,
        superblock: &Superblock,
        doubt: Doubt,
    ) -> Result<Contents> {
        let mut gathering = Gathering::new(device, superblock)?;
        table::scan(engine, device, superblock, doubt, &mut |address, found| {
            gathering.take_in(address, &found);
        })?;
        gathering.end(engine, device, superblock, doubt)
    }

    /// The contents of a volume that was never used.
    pub(crate) fn empty(device: &Device, superblock: &Superblock) -> Result<Contents> {
        let free = FreeSet::new(superblock.geometry().data_blocks, superblock.alloc_hint)
            .map_err(|error| Error::new("open volume", device.name(), Fault::Corrupt(error.to_string())))?;
        Ok(Contents {
            free,
            accounts: Accounts::default(),
            unfinished_moves: Vec::new(),
            quarantined: Quarantine::default(),
            superseded: Vec::new(),
            losers: Vec::new(),
            loser_labels: Vec::new(),
            warnings: Vec::new(),
        })
    }

    /// The second pass: who has what more than one claims.
    fn settle(
        &mut self,
        engine: &mut Engine,
        device: &Device,
        superblock: &Superblock,
        doubt: Doubt,
        contested: Vec<(u64, u64)>,
    ) -> Result<()> {
        let contested = merged(contested);
        let mut contenders = Vec::new();
        // What the first pass has healed needs no second healing.
        let healing = match doubt.healing {
            Healing::Write | Healing::InMemory => Healing::InMemory,
            Healing::Check => Healing::Check,
        };
        let doubt = Doubt { healing, ..doubt };
        table::scan(engine, device, superblock, doubt, &mut |address, found| {
            if let Ok(inode) = found {
                if runs_of(&inode).any(|run| touches(&contested, run)) && inode.state.holds_blocks() {
                    contenders.push(Contender::of(address, &inode));
                }
            }
        })?;
        let superseded = superseded(&contenders);
        for contender in contenders.iter().filter(|one| superseded.contains(&one.address)) {
            self.accounts.give_back(contender.owner_uid, contender.usage);
        }
        self.unfinished_moves.retain(|address| !superseded.contains(address));
        contenders.retain(|contender| !superseded.contains(&contender.address));
        self.superseded = superseded.into_iter().collect();
        for loser in losers(&mut contenders, &self.free) {
            let (address, runs) = (loser.address, &loser.runs);
            self.quarantined.slots.insert(address);
            // Of a move that ends here only the run that it has counts, as its inode will say.
            self.accounts.give_back(loser.owner_uid, loser.usage);
            let blocks = runs.first().map_or(0, |(_, blocks)| *blocks);
            self.accounts.add(loser.owner_uid, Usage { blocks, segments: 1 });
            for &(start, blocks) in runs {
                self.quarantined.kept.push((start, start + blocks));
                // It lies in the data area, as its inode was decoded.
                let _ = self.free.keep(start, blocks);
            }
            self.losers.push(address);
            self.loser_labels.push(loser.label.clone());
            self.warnings.push(format!(
                "the segment in slot {} of bucket {} is quarantined: some of its blocks belong to one allocated later",
                address.slot, address.bucket
            ));
        }
        let quarantined = &self.quarantined.slots;
        self.unfinished_moves.retain(|moving| !quarantined.contains(moving));
        Ok(())
    }
}

impl Gathering {
    pub(crate) fn new(device: &Device, superblock: &Superblock) -> Result<Gathering> {
        Ok(Gathering {
            contents: Contents::empty(device, superblock)?,
            contested: Vec::new(),
            outside: None,
        })
    }

    /// Everything was taken in; where two claim one block, the table is read once more.
    pub(crate) fn end(
        mut self,
        engine: &mut Engine,
        device: &Device,
        superblock: &Superblock,
        doubt: Doubt,
    ) -> Result<Contents> {
        self.keep_quarantined();
        let Gathering {
            mut contents,
            contested,
            outside,
        } = self;
        if let Some(why) = outside {
            return Err(Error::new(
                "read the inode table of",
                device.name(),
                Fault::Corrupt(why),
            ));
        }
        if !contested.is_empty() {
            contents.settle(engine, device, superblock, doubt, contested)?;
        }
        Ok(contents)
    }

    pub(crate) fn take_in(&mut self, address: SlotAddress, found: &Found) {
        let SlotAddress { bucket, slot } = address;
        let contents = &mut self.contents;
        let inode = match found {
            Ok(inode) => inode,
            Err(undecodable) => {
                let runs: Vec<(u64, u64)> = undecodable.salvage.runs().collect();
                contents.warnings.push(format!(
                    "the inode in slot {slot} of bucket {bucket} cannot be decoded: {}; {} kept for it; `baio check --repair` saves it",
                    undecodable.error,
                    said(&runs),
                ));
                contents
                    .quarantined
                    .kept
                    .extend(runs.iter().map(|(start, blocks)| (*start, start + blocks)));
                return;
            }
        };
        account(&mut contents.accounts, inode);
        match inode.state {
            InodeState::Quarantined => {
                contents.quarantined.slots.insert(address);
                let runs = runs_of(inode).map(|(start, blocks)| (start, start + blocks));
                contents.quarantined.kept.extend(runs);
                return;
            }
            InodeState::Moving => contents.unfinished_moves.push(address),
            _ => {}
        }
        for (start, blocks) in runs_of(inode).filter(|_| inode.state.holds_blocks()) {
            match contents.free.occupy_any(start, blocks) {
                Ok(new) if new == blocks => {}
                Ok(_) => self.contested.push((start, start + blocks)),
                // A decoded inode lies in the data area, so this cannot be; if it is, nothing may be given away.
                Err(error) => self.outside = Some(format!("slot {slot} of bucket {bucket}: {error}")),
            }
        }
    }

    /// What is not served has the lowest priority: it keeps what nobody else claims.
    fn keep_quarantined(&mut self) {
        for (start, end) in &self.contents.quarantined.kept {
            // It lies in the data area: salvaged runs were checked as well.
            let _ = self.contents.free.keep(*start, end - start);
        }
    }
}

impl Contender {
    fn of(address: SlotAddress, inode: &Inode) -> Contender {
        let name = inode.name.as_ref().map_or("", |name| name.as_str());
        Contender {
            address,
            alloc_seq: inode.alloc_seq,
            generation: inode.generation,
            uuid: inode.uuid,
            renamed_from: inode.rename_from,
            owner_uid: inode.owner_uid,
            usage: usage_of(inode),
            runs: runs_of(inode).collect(),
            label: format!("segment {}/{name}", inode.owner_uid),
        }
    }

    /// What decides which of two inodes of a segment was written later: no two of them are of one age.
    fn age(&self) -> (AllocSeq, u64, SlotAddress) {
        (self.alloc_seq, self.generation, self.address)
    }

    /// Is this the inode that `newer` was renamed from?
    fn was_renamed_to(&self, newer: &Contender) -> bool {
        #[cfg(test)]
        tests::ASKED.set(tests::ASKED.get() + 1);
        newer.renamed_from.is_some_and(|from| {
            from.bucket == self.address.bucket
                && from.slot as usize == self.address.slot
                && (from.generation == self.generation || crate::seeded_bug("renames-know-no-generation"))
        }) && (newer.age() > self.age() || crate::seeded_bug("renames-know-no-age"))
            && newer.address != self.address
            && newer.uuid == self.uuid
            && newer.runs.first() == self.runs.first()
    }
}

/// The old inodes of renames that a crash cut between the new inode and the end of the old one. Of those that name each other, as no crash
/// leaves them, the latest stays.
fn superseded(contenders: &[Contender]) -> BTreeSet<SlotAddress> {
    let at: BTreeMap<SlotAddress, &Contender> = contenders.iter().map(|one| (one.address, one)).collect();
    let old_of = |newer: &Contender| {
        let RenameFrom { bucket, slot, .. } = newer.renamed_from?;
        let slot = slot as usize;
        at.get(&SlotAddress { bucket, slot })
            .filter(|old| old.was_renamed_to(newer))
    };
    contenders.iter().filter_map(old_of).map(|old| old.address).collect()
}

/// Those of which a block belongs to a later allocation. The later ones are entered first; who finds a block taken has lost it.
fn losers<'a>(contenders: &'a mut [Contender], like: &FreeSet) -> Vec<&'a Contender> {
    contenders.sort_unstable_by_key(|one| (std::cmp::Reverse(one.alloc_seq), one.address));
    if crate::seeded_bug("older-allocation-wins") {
        contenders.reverse();
    }
    let Ok(mut taken) = FreeSet::new(like.blocks(), 0) else {
        return Vec::new(); // A second set of a size that there is memory for already.
    };
    let mut lost = |one: &&Contender| {
        let found_taken = |&(start, blocks): &(u64, u64)| taken.occupy_any(start, blocks) != Ok(blocks);
        // All of its runs are entered, also after the first that is lost.
        one.runs.iter().map(found_taken).fold(false, |any, one| any | one)
    };
    contenders.iter().filter(|one| lost(one)).collect()
}

/// Sorted and without overlaps.
fn merged(mut runs: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    runs.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (start, end) in runs {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// Does a run touch one of these, which are sorted?
fn touches(runs: &[(u64, u64)], (start, blocks): (u64, u64)) -> bool {
    let next = runs.partition_point(|(_, end)| *end <= start);
    runs.get(next)
        .is_some_and(|(first, _)| *first < start.saturating_add(blocks))
}

fn said(runs: &[(u64, u64)]) -> String {
    match runs {
        [] => "no blocks are".into(),
        runs => {
            let one = |(start, blocks): &(u64, u64)| format!("{blocks} blocks from block {start}");
            format!("{} are", runs.iter().map(one).collect::<Vec<_>>().join(" and "))
        }
    }
}

fn account(accounts: &mut Accounts, inode: &Inode) {
    if inode.state.is_segment() {
        accounts.add(inode.owner_uid, usage_of(inode));
    }
    if inode.state == InodeState::Quota {
        let limit = |value: u64| (value != u64::MAX).then_some(value);
        let limits = Limits {
            blocks: limit(inode.quota_blocks),
            segments: limit(inode.quota_segments),
        };
        accounts.set_limits(inode.owner_uid, limits);
    }
}

/// What a segment counts for its owner: while it is being moved, the run that it will have.
pub(crate) fn usage_of(inode: &Inode) -> Usage {
    let counts = |_: &_| inode.state == InodeState::Moving && !crate::seeded_bug("a-move-counts-its-source");
    let moving = inode.move_to.filter(counts);
    Usage {
        blocks: moving.map_or(inode.reserve_blocks, |to| to.blocks),
        segments: 1,
    }
}

/// The runs that an inode claims, of whatever state it is: first block and length.
pub(crate) fn runs_of(inode: &Inode) -> impl Iterator<Item = (u64, u64)> + use<> {
    let held = inode
        .state
        .is_segment()
        .then_some((inode.start_block, inode.reserve_blocks));
    let target = inode.move_to.map(|to| (to.start, to.blocks));
    held.into_iter().chain(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// How often an inode was held against another one.
        pub(super) static ASKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn contender(counter: u64, runs: &[(u64, u64)]) -> Contender {
        Contender {
            address: SlotAddress {
                bucket: counter,
                slot: 0,
            },
            alloc_seq: AllocSeq { epoch: 1, counter },
            generation: 1,
            uuid: [counter as u8; 16],
            renamed_from: None,
            owner_uid: 7,
            usage: Usage::default(),
            runs: runs.to_vec(),
            label: String::new(),
        }
    }

    fn lost(mut contenders: Vec<Contender>) -> Vec<u64> {
        let like = FreeSet::new(1000, 0).unwrap();
        let mut lost: Vec<u64> = losers(&mut contenders, &like)
            .iter()
            .map(|one| one.address.bucket)
            .collect();
        lost.sort_unstable();
        lost
    }

    #[test]
    fn of_two_that_claim_one_block_the_later_allocation_wins() {
        let runs = |counter, start, blocks| contender(counter, &[(start, blocks)]);
        assert_eq!(
            lost(vec![runs(1, 10, 10), runs(2, 15, 10), runs(3, 25, 5), runs(4, 0, 10)]),
            [1]
        );
        assert_eq!(lost(vec![runs(5, 10, 10), runs(2, 15, 10)]), [2]);
        // The middle one lost its end to the last, but its beginning is not the first one's for that.
        assert_eq!(lost(vec![runs(1, 0, 10), runs(2, 5, 15), runs(3, 15, 15)]), [1, 2]);
        assert_eq!(
            lost(vec![contender(1, &[(0, 5), (50, 5)]), runs(2, 54, 1), runs(0, 4, 1)]),
            [0, 1]
        );
    }

    #[test]
    fn a_rename_is_known_by_slot_generation_uuid_and_run() {
        let from = RenameFrom {
            bucket: 1,
            slot: 0,
            generation: 1,
        };
        let pair = |change: &dyn Fn(&mut Contender, &mut Contender)| {
            let (mut old, mut new) = (contender(1, &[(0, 9)]), contender(2, &[(0, 9)]));
            (new.uuid, new.renamed_from) = (old.uuid, Some(from));
            change(&mut old, &mut new);
            superseded(&[old, new]).len()
        };
        assert_eq!(pair(&|_, _| {}), 1);
        assert_eq!(pair(&|old, _| old.generation = 2), 0);
        assert_eq!(pair(&|old, _| old.uuid = [9; 16]), 0);
        assert_eq!(pair(&|old, _| old.runs[0].1 = 8), 0);
        assert_eq!(pair(&|old, _| old.address.slot = 1), 0);
    }

    #[test]
    fn of_inodes_that_name_each_other_the_latest_stays() {
        let naming = |counter: u64, other: u64| Contender {
            uuid: [7; 16],
            renamed_from: Some(RenameFrom {
                bucket: other,
                slot: 0,
                generation: 1,
            }),
            ..contender(counter, &[(0, 9)])
        };
        let gone = |contenders: &[Contender]| -> Vec<u64> {
            let gone = superseded(contenders);
            gone.iter().map(|address| address.bucket).collect()
        };
        assert_eq!(gone(&[naming(1, 2), naming(2, 1)]), [1]);
        assert_eq!(gone(&[naming(1, 3), naming(2, 1), naming(3, 2)]), [1, 2]);
    }

    #[test]
    fn many_renames_are_each_looked_up_by_slot() {
        let pairs = (0..1000).flat_map(|number| {
            let (mut old, mut new) = (contender(2 * number, &[(0, 9)]), contender(2 * number + 1, &[(0, 9)]));
            (old.uuid, new.uuid) = ([7; 16], [7; 16]);
            new.renamed_from = Some(RenameFrom {
                bucket: old.address.bucket,
                slot: 0,
                generation: 1,
            });
            [old, new]
        });
        let contenders: Vec<Contender> = pairs.collect();
        ASKED.set(0);
        assert_eq!(superseded(&contenders).len(), 1000);
        assert!(ASKED.get() <= 1000, "{} pairs were compared", ASKED.get());
    }

    #[test]
    fn runs_touch_where_they_share_a_block() {
        let runs = merged(vec![(15, 30), (50, 60), (10, 20)]);
        assert_eq!(runs, [(10, 30), (50, 60)]);
        assert!(touches(&runs, (29, 1)) && touches(&runs, (0, 11)) && touches(&runs, (45, 100)));
        assert!(!touches(&runs, (30, 20)) && !touches(&runs, (0, 10)) && !touches(&runs, (60, 1)));
    }
}
