//! A volume in use: what is in memory of it, and how that comes about.
//!
//! | file | what it does |
//! |---|---|
//! | `accounts.rs` | what each owner holds and may hold |
//! | `device.rs` | the file: locked, read and written in a straight line |
//! | `superblocks.rs` | the four copies: read, healed, updated |
//! | `table.rs` | the inode table from end to end, healing on the way |
//! | `format.rs` | making a volume |
//! | `inspect.rs` | looking at one without writing a byte |
//! | `mod.rs` | opening to write, and closing |
//!
//! Opening to write, in this order (DESIGN §5): lock; flush, so that what is read is what a power cut would leave; read
//! the superblock; raise the epoch durably; heal; note the healed epoch; serve. The inodes are the only truth: the free
//! set is computed from them.

use std::collections::BTreeSet;

use baio_engine::{Durability, Engine};

use crate::error::{Error, Fault, Result};
use crate::segment::free_set::FreeSet;
use crate::segment::inode::{AllocSeq, Inode, InodeState};
use crate::segment::layout::Layout;
use crate::segment::probe::SlotAddress;
use crate::segment::superblock::{Superblock, SuperblockError};
use crate::volume::accounts::{Accounts, Limits, Usage};
use crate::volume::device::Device;
use crate::volume::table::{Doubt, Healing};

pub(crate) mod accounts;
pub(crate) mod device;
pub(crate) mod format;
pub(crate) mod inspect;
pub(crate) mod superblocks;
pub(crate) mod table;

/// A volume opened to write.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) device: Device,
    pub(crate) superblock: Superblock,
    pub(crate) free: FreeSet,
    /// Segments whose blocks belong to another one with a later allocation: not served.
    pub(crate) quarantined: BTreeSet<SlotAddress>,
    /// What each owner holds, with what is promised to operations under way.
    pub(crate) accounts: Accounts,
    /// Segments that a crash or a close left half-moved; whoever serves the volume goes on with them.
    pub(crate) unfinished_moves: Vec<SlotAddress>,
    /// Updates of the inode table begun since the open: a slot that was found stays found while this stands still.
    pub(crate) table_updates: u64,
    allocations: u64,
    /// A metadata write failed: which of two states the table holds is decided by the next open.
    latched: bool,
}

impl Volume {
    /// Opens a volume to write and makes it whole.
    pub(crate) fn open(engine: &mut Engine, device: Device) -> Result<Volume> {
        device.sync(engine, Durability::Full)?;
        let chosen = superblocks::read(engine, &device)?;
        refuse_unknown_features(&device, &chosen.current)?;
        superblocks::heal(engine, &device, &chosen)?;
        let found = chosen.current;
        let exhausted = |error: SuperblockError| Error::new("open volume", device.name(), superblocks::fault(error));
        let mut superblock = found.next_epoch().map_err(exhausted)?;
        if found.is_clean() {
            // Nothing can be in doubt, so both notes fit in one update.
            superblock.healed_epoch = superblock.epoch;
        }
        superblocks::write(engine, &device, &superblock)?;
        let doubt = Doubt::after(&found, Healing::Write);
        let contents = Contents::read(engine, &device, &superblock, doubt)?;
        if superblock.healed_epoch != superblock.epoch {
            superblock = superblock.successor().map_err(exhausted)?;
            superblock.healed_epoch = superblock.epoch;
            superblocks::write(engine, &device, &superblock)?;
        }
        engine.attach(&device.file);
        Ok(Volume {
            device,
            superblock,
            free: contents.free,
            quarantined: contents.quarantined,
            accounts: contents.accounts,
            unfinished_moves: contents.unfinished_moves,
            table_updates: 0,
            allocations: 0,
            latched: false,
        })
    }

    /// Notes a clean close. The caller has drained all requests.
    pub(crate) fn close(mut self, engine: &mut Engine) -> Result<()> {
        let result = self.note_clean_close(engine);
        self.device.close(engine);
        result
    }

    fn note_clean_close(&mut self, engine: &mut Engine) -> Result<()> {
        self.device.sync(engine, Durability::Full)?;
        if self.latched {
            return Ok(()); // What holds is in doubt: the next open must heal.
        }
        let mut superblock = self
            .superblock
            .successor()
            .map_err(|error| Error::new("close volume", self.device.name(), superblocks::fault(error)))?;
        superblock.clean_epoch = superblock.epoch;
        superblock.alloc_hint = self.free.hint();
        superblocks::write(engine, &self.device, &superblock)
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.superblock.layout()
    }

    pub(crate) fn block_size(&self) -> u32 {
        self.layout().block_size()
    }

    /// When a run was allocated: decides between two inodes that claim one block.
    pub(crate) fn next_alloc_seq(&mut self) -> AllocSeq {
        self.allocations += 1;
        AllocSeq {
            epoch: self.superblock.epoch,
            counter: self.allocations,
        }
    }

    /// The first failed metadata write ends all later ones: repeating another image could lose an acknowledged one.
    pub(crate) fn latch(&mut self) {
        self.latched = true;
    }

    pub(crate) fn is_latched(&self) -> bool {
        self.latched
    }
}

fn refuse_unknown_features(device: &Device, superblock: &Superblock) -> Result<()> {
    match superblock.unknown_ro_compat() {
        0 => Ok(()),
        bits => Err(Error::new(
            "open volume",
            device.name(),
            Fault::Version(format!(
                "the volume has features {bits:#x} that this build does not know; it may be read but not written"
            )),
        )),
    }
}

/// What the inode table says, taken together.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) free: FreeSet,
    pub(crate) quarantined: BTreeSet<SlotAddress>,
    pub(crate) accounts: Accounts,
    pub(crate) unfinished_moves: Vec<SlotAddress>,
}

/// A run of blocks and who claims it.
#[derive(Clone, Copy, Debug)]
struct Claim {
    start: u64,
    end: u64,
    alloc_seq: AllocSeq,
    owner: SlotAddress,
}

impl Contents {
    pub(crate) fn read(
        engine: &mut Engine,
        device: &Device,
        superblock: &Superblock,
        doubt: Doubt,
    ) -> Result<Contents> {
        let mut claims = Vec::new();
        let mut accounts = Accounts::default();
        let mut unfinished_moves = Vec::new();
        table::scan(engine, device, superblock, doubt, &mut |address, inode| {
            account(&mut accounts, &inode);
            if inode.state == InodeState::Moving {
                unfinished_moves.push(address);
            }
            claims.extend(claims_of(&inode, address));
        })?;
        let quarantined = losers(&mut claims);
        let mut free = FreeSet::new(superblock.geometry().data_blocks, superblock.alloc_hint)
            .map_err(|error| Error::new("open volume", device.name(), Fault::Corrupt(error.to_string())))?;
        for claim in claims.iter().filter(|claim| !quarantined.contains(&claim.owner)) {
            free.occupy(claim.start, claim.end - claim.start).map_err(|error| {
                let why = format!("slot {:?} claims blocks that it cannot have: {error}", claim.owner);
                Error::new("read the inode table of", device.name(), Fault::Corrupt(why))
            })?;
        }
        for claim in claims.iter().filter(|claim| quarantined.contains(&claim.owner)) {
            keep_the_rest(&mut free, claim);
        }
        Ok(Contents {
            free,
            quarantined,
            accounts,
            unfinished_moves,
        })
    }
}

/// What a quarantined segment has and nobody else claims is not given away: it is all that is left of its bytes.
fn keep_the_rest(free: &mut FreeSet, claim: &Claim) {
    let inside = |(start, blocks): (u64, u64)| (start.max(claim.start), (start + blocks).min(claim.end));
    let rest: Vec<(u64, u64)> = free
        .free_runs()
        .map(inside)
        .filter(|(start, end)| start < end)
        .collect();
    for (start, end) in rest {
        // It is free, as it was just found, so it can be taken.
        let _ = free.occupy(start, end - start);
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

/// What a segment counts for its owner.
pub(crate) fn usage_of(inode: &Inode) -> Usage {
    Usage {
        blocks: inode.reserve_blocks,
        segments: 1,
    }
}

fn claims_of(inode: &Inode, owner: SlotAddress) -> impl Iterator<Item = Claim> + use<> {
    let claim = move |start: u64, blocks: u64, alloc_seq| Claim {
        start,
        end: start + blocks,
        alloc_seq,
        owner,
    };
    let held = inode
        .state
        .holds_blocks()
        .then(|| claim(inode.start_block, inode.reserve_blocks, inode.alloc_seq));
    let target = inode.move_to.map(|to| claim(to.start, to.blocks, inode.alloc_seq));
    held.into_iter().chain(target)
}

/// Two live inodes that claim one block never stop a mount: the later allocation wins, the other is not served.
fn losers(claims: &mut [Claim]) -> BTreeSet<SlotAddress> {
    claims.sort_unstable_by_key(|claim| claim.start);
    let mut losers = BTreeSet::new();
    let mut last: Option<Claim> = None;
    for &claim in claims.iter() {
        let Some(before) = last else {
            last = Some(claim);
            continue;
        };
        if claim.start >= before.end {
            last = Some(claim);
        } else if claim.alloc_seq > before.alloc_seq {
            losers.insert(before.owner);
            last = Some(claim);
        } else {
            losers.insert(claim.owner);
        }
    }
    losers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(start: u64, end: u64, counter: u64) -> Claim {
        Claim {
            start,
            end,
            alloc_seq: AllocSeq { epoch: 1, counter },
            owner: SlotAddress {
                bucket: counter,
                slot: 0,
            },
        }
    }

    #[test]
    fn of_two_that_claim_one_block_the_later_allocation_wins() {
        let mut claims = [claim(10, 20, 1), claim(15, 25, 2), claim(25, 30, 3), claim(0, 10, 4)];
        let lost: Vec<u64> = losers(&mut claims).iter().map(|owner| owner.bucket).collect();
        assert_eq!(lost, [1]);
        let mut claims = [claim(10, 20, 5), claim(15, 25, 2)];
        let lost: Vec<u64> = losers(&mut claims).iter().map(|owner| owner.bucket).collect();
        assert_eq!(lost, [2]);
    }
}
