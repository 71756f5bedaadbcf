//! What the inodes say, taken together: every one can be decoded, is found by its name, and no name is there twice.
//!
//! A look-up goes from a name's home bucket to the first bucket with a free slot. So an inode is found if no bucket from its
//! home to its own, its own left out, has one. What is not is either made reachable, by tombstones in the free slots on the
//! way, or, where the way is long, gets a new name whose home is the bucket it is in. The same happens to the second of two
//! inodes of one name, and to what is saved of an inode that cannot be decoded.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::error::Result;
use crate::segment::inode::{Inode, InodeState, MoveTo};
use crate::segment::layout::{Place, is_used_up};
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::SlotAddress;
use crate::segment::salvage::Salvage;
use crate::segment::superblock::Superblock;
use crate::volume::check::names::MadeNames;
use crate::volume::check::repair::Change;
use crate::volume::check::{Check, corrupt};
use crate::volume::contents::Contents;
use crate::volume::device::Device;
use crate::volume::table::{self, Doubt, Found, Undecodable};

/// Longer ways are not paved with tombstones.
const WAY_MAX: u64 = 64;

/// What a check sees in the table.
#[expect(clippy::large_enum_variant, reason = "one at a time, and never stored")]
pub(super) enum Seen {
    /// A slot of a bucket.
    Slot(Found),
    /// A bucket that was never written.
    Untouched,
    /// A bucket of which nothing is left.
    Lost,
}

/// An inode that answers a look-up: the hash of its key, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Keyed {
    hash: u64,
    at: SlotAddress,
}

/// What was seen so far: a bit per bucket, and 24 bytes per segment.
pub(super) struct Inodes {
    superblock: Superblock,
    /// Where the device ended when the volume was found cut.
    cut: Option<u64>,
    /// Buckets with a free slot, one bit each.
    free: Vec<u64>,
    keyed: Vec<Keyed>,
    undecodable: Vec<(SlotAddress, Undecodable)>,
    /// Segments that reach behind the end of a cut device.
    cut_off: Vec<(SlotAddress, String)>,
    /// Slots that can hardly be given another generation.
    used_up: Vec<SlotAddress>,
    names: RefCell<MadeNames>,
}

impl Inodes {
    pub(super) fn new(superblock: &Superblock, cut: Option<u64>) -> Inodes {
        let words = superblock.layout().buckets().div_ceil(64) as usize;
        Inodes {
            superblock: superblock.clone(),
            cut,
            free: vec![0; words],
            keyed: Vec::new(),
            undecodable: Vec::new(),
            cut_off: Vec::new(),
            used_up: Vec::new(),
            names: RefCell::new(MadeNames::new(superblock)),
        }
    }

    fn buckets(&self) -> u64 {
        self.superblock.layout().buckets()
    }

    fn set_free(&mut self, bucket: u64) {
        if let Some(word) = self.free.get_mut((bucket / 64) as usize) {
            *word |= 1 << (bucket % 64);
        }
    }

    fn has_free(&self, bucket: u64) -> bool {
        let word = self.free.get((bucket / 64) as usize);
        word.is_some_and(|word| word >> (bucket % 64) & 1 == 1)
    }

    pub(super) fn take_in(&mut self, at: SlotAddress, seen: &Seen) {
        let inode = match seen {
            Seen::Lost => return,
            Seen::Untouched => return self.set_free(at.bucket),
            Seen::Slot(Err(undecodable)) => return self.undecodable.push((at, undecodable.clone())),
            Seen::Slot(Ok(inode)) => inode,
        };
        if inode.state == InodeState::Free {
            self.set_free(at.bucket);
        }
        if is_used_up(inode.generation) {
            self.used_up.push(at);
        }
        if let Some(key) = inode.key() {
            let hash = key.hash(&self.superblock.hash_seed);
            self.keyed.push(Keyed { hash, at });
        }
        if let (Some(cut), Some((start, len))) = (self.cut, self.bytes_of(inode)) {
            if start + len > cut {
                self.cut_off.push((at, label(inode)));
            }
        }
    }

    fn bytes_of(&self, inode: &Inode) -> Option<(u64, u64)> {
        let layout = self.superblock.layout();
        let run = inode.state.is_segment().then_some((inode.start_block, inode.blocks))?;
        layout.run_at(run.0, run.1)
    }

    /// Steps from a key's home to a bucket.
    fn way(&self, one: &Keyed) -> u64 {
        let home = one.hash % self.buckets();
        (one.at.bucket + self.buckets() - home) % self.buckets()
    }

    /// Names what is wrong and says what would heal it.
    pub(super) fn judge(
        mut self,
        check: &mut Check<'_>,
        device: &Device,
        superblock: &Superblock,
        contents: &Contents,
    ) -> Result<Vec<Change>> {
        self.keyed.sort_unstable();
        for (at, label) in std::mem::take(&mut self.cut_off) {
            let what = format!("{label}: its end was on the part of the device that is gone");
            check.note_lost("segment-cut", slot_word(at), place_of(superblock, at), what);
        }
        let mut changes = Vec::new();
        for (at, undecodable) in std::mem::take(&mut self.undecodable) {
            changes.push(self.save(check, at, &undecodable));
        }
        let mut renamed = BTreeSet::new();
        for at in self.second_ones(check, device)? {
            renamed.insert(at);
            changes.extend(self.rename(check, device, "name-twice", at)?);
        }
        for one in self.keyed.clone() {
            let blocked = self.blocked(&one);
            if blocked.is_empty() || renamed.contains(&one.at) {
                continue;
            }
            if self.way(&one) > WAY_MAX {
                changes.extend(self.rename(check, device, "name-unreachable", one.at)?);
                continue;
            }
            let what = format!(
                "a look-up ends at bucket {}, which has a free slot, before it comes here: the slot becomes a tombstone",
                blocked[0]
            );
            check.note(
                "name-unreachable",
                slot_word(one.at),
                place_of(superblock, one.at),
                what,
            );
            changes.extend(blocked.into_iter().map(Change::Fill));
        }
        for at in std::mem::take(&mut self.used_up) {
            let what = "its slot's generation is almost the last: it begins anew";
            check.note("inode-generation", slot_word(at), place_of(superblock, at), what);
            // What is to become a tombstone becomes one here: under its new generation nobody would know it.
            changes.push(match contents.superseded.contains(&at) {
                true => Change::Bury(at),
                false => Change::BeginAnew(at),
            });
        }
        for &at in &contents.superseded {
            let what = "the old inode of a rename that was not finished: it becomes a tombstone";
            check.note("rename", slot_word(at), place_of(superblock, at), what);
        }
        for (&at, why) in contents.losers.iter().zip(&contents.loser_labels) {
            let what = format!("{why}: some of its blocks belong to a segment allocated later; it becomes quarantined");
            check.note("overlap", slot_word(at), place_of(superblock, at), what);
        }
        Ok(changes)
    }

    /// Buckets with a free slot on the way to an inode; a long way is looked at up to the first.
    fn blocked(&self, one: &Keyed) -> Vec<u64> {
        let (home, way) = (one.hash % self.buckets(), self.way(one));
        let on_the_way = (0..way).map(|step| (home + step) % self.buckets());
        let most = if way > WAY_MAX { 1 } else { usize::MAX };
        on_the_way.filter(|bucket| self.has_free(*bucket)).take(most).collect()
    }

    /// Of inodes with one name all but the one that a look-up comes to first.
    fn second_ones(&self, check: &mut Check<'_>, device: &Device) -> Result<Vec<SlotAddress>> {
        let mut second = Vec::new();
        for same in self.keyed.chunk_by(|one, two| one.hash == two.hash) {
            if same.len() < 2 {
                continue;
            }
            let mut same: Vec<Keyed> = same.to_vec();
            same.sort_by_key(|one| (self.way(one), one.at));
            let mut keys: Vec<Key> = Vec::new();
            for one in same {
                let Some(key) = self.inode_at(check, device, one.at)?.and_then(|inode| inode.key()) else {
                    continue;
                };
                if keys.contains(&key) {
                    second.push(one.at);
                } else {
                    keys.push(key);
                }
            }
        }
        Ok(second)
    }

    /// Reads one inode again.
    fn inode_at(&self, check: &mut Check<'_>, device: &Device, at: SlotAddress) -> Result<Option<Inode>> {
        let doubt = Doubt {
            from_epoch: 0,
            healing: check.healing(),
        };
        let mut found = None;
        let superblock = &self.superblock;
        table::look(check.engine, device, superblock, doubt, at.bucket, &mut |image| {
            found = image.slot(at.slot, superblock.geometry()).and_then(|inode| inode.ok());
        })?;
        Ok(found)
    }

    /// Gives an inode a name by which it is found where it is. A limit on an owner has no name; the second one goes.
    fn rename(
        &self,
        check: &mut Check<'_>,
        device: &Device,
        kind: &'static str,
        at: SlotAddress,
    ) -> Result<Option<Change>> {
        let Some(inode) = self.inode_at(check, device, at)? else {
            return Err(corrupt(
                device,
                format!("{} changed while it was checked", slot_word(at)),
            ));
        };
        let why = match kind {
            "name-twice" => "a look-up comes to another inode of this name first",
            _ => "a look-up of its name ends before it comes here",
        };
        let offset = place_of(&self.superblock, at);
        if inode.state == InodeState::Quota {
            let what = format!("the quota of uid {}: {why}; it becomes a tombstone", inode.owner_uid);
            check.note(kind, slot_word(at), offset, what);
            return Ok(Some(Change::Bury(at)));
        }
        let Some(name) = self.made_name(at, inode.owner_uid) else {
            check.note_lost(kind, slot_word(at), offset, format!("{}: {why}", label(&inode)));
            return Ok(None);
        };
        let what = format!("{}: {why}; it gets the name {}", label(&inode), name.as_str());
        check.note(kind, slot_word(at), offset, what);
        Ok(Some(Change::Rename(at, name)))
    }

    /// What becomes of an inode that cannot be decoded: quarantined, if it says where its blocks are.
    fn save(&self, check: &mut Check<'_>, at: SlotAddress, undecodable: &Undecodable) -> Change {
        let Undecodable { error, salvage } = undecodable;
        let offset = place_of(&self.superblock, at);
        let named = salvage.name.as_ref().map_or("", |name| name.as_str());
        let who = format!("uid {}, name {named:?}", salvage.owner_uid);
        let saved = self
            .made_name(at, salvage.owner_uid)
            .and_then(|name| self.quarantined(name, salvage));
        match saved {
            Some(inode) => {
                let name = inode.name.as_ref().map_or("", |name| name.as_str());
                let what = format!(
                    "{error} ({who}): quarantined under the name {name}, with {} blocks from block {}",
                    inode.reserve_blocks, inode.start_block
                );
                check.note("inode", slot_word(at), offset, what);
                Change::Replace(at, Box::new(inode))
            }
            None => {
                let what = format!("{error} ({who}): it does not say where its blocks are; it becomes a tombstone");
                check.note_lost("inode", slot_word(at), offset, what);
                Change::Bury(at)
            }
        }
    }

    fn quarantined(&self, name: SegmentName, salvage: &Salvage) -> Option<Inode> {
        let (start_block, blocks) = salvage.run.or(salvage.target)?;
        let mut inode = Inode {
            state: InodeState::Quarantined,
            name: Some(name),
            owner_uid: salvage.owner_uid,
            mode: 0o600,
            generation: 1,
            uuid: salvage.uuid,
            start_block,
            blocks,
            reserve_blocks: blocks,
            zeroed_to: blocks,
            ..Inode::default()
        };
        let alone = inode.clone();
        // The size is not known: as much as fits into both runs.
        if let (Some(_), Some((start, target))) = (salvage.run, salvage.target) {
            inode.blocks = blocks.min(target);
            inode.move_to = Some(MoveTo {
                start,
                blocks: target,
                done: 0,
            });
        }
        let geometry = self.superblock.geometry();
        [inode, alone]
            .into_iter()
            .find(|inode| inode.validate(geometry).is_ok())
    }

    /// A name that nobody has and whose home is this bucket.
    fn made_name(&self, at: SlotAddress, owner_uid: u32) -> Option<SegmentName> {
        let is_taken = |hash: u64| self.keyed.binary_search_by_key(&hash, |one| one.hash).is_ok();
        self.names.borrow_mut().take(owner_uid, at.bucket, is_taken)
    }
}

fn label(inode: &Inode) -> String {
    let name = inode.name.as_ref().map_or("", |name| name.as_str());
    format!("segment {}/{name}", inode.owner_uid)
}

fn slot_word(at: SlotAddress) -> String {
    format!("slot {} of bucket {}", at.slot, at.bucket)
}

fn place_of(superblock: &Superblock, at: SlotAddress) -> u64 {
    superblock.layout().bucket_at(at.bucket, Place::Table).unwrap_or(0)
}
