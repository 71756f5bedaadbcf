//! A volume in use: what is in memory of it, and how that comes about.
//!
//! | file | what it does |
//! |---|---|
//! | `accounts.rs` | what each owner holds and may hold |
//! | `bucket_write.rs` | an image of a bucket written, and read back |
//! | `lock.rs` | who has the file: locks, claims of devices |
//! | `device.rs` | the file: locked, read and written in a straight line |
//! | `superblocks.rs` | the four copies: read, healed, updated |
//! | `reads.rs` | large parts of it read in order, several reads under way |
//! | `table.rs` | the inode table from end to end, healing on the way |
//! | `contents.rs` | what the inodes say together: free blocks, accounts, who claims what another has |
//! | `snapshot.rs` | what a clean close writes so that the next open need not read the table |
//! | `format.rs` | making a volume |
//! | `grow.rs` | making it larger |
//! | `inspect.rs` | looking at one without writing a byte |
//! | `beside.rs` | the same while another process writes to it |
//! | `check/` | naming what is wrong with a volume, and repairing it |
//! | `mod.rs` | opening to write, and closing |
//!
//! Opening to write, in this order: lock; flush, so that what is read is what a power cut would leave; read the superblock;
//! raise the epoch durably; heal; finish renames and note who is quarantined; note the healed epoch; serve. The inodes are
//! the only truth: the free set is computed from them, or read from the snapshot of a clean close.
//!
//! Memory of an open volume: one bit per block, 32 MiB per TiB at 4 KiB blocks, of which only what lies before the last block
//! ever in use is touched; an account per owner; nothing per segment. An opening that reads the table takes up to 8 MiB of the
//! arena while it does. A check keeps 24 bytes per segment.

use baio_engine::{Durability, Engine, File};

use crate::error::{Error, Fault, Result};
use crate::segment::free_set::FreeSet;
use crate::segment::inode::{AllocSeq, InodeState};
use crate::segment::layout::Layout;
use crate::segment::probe::SlotAddress;
use crate::segment::superblock::{Superblock, SuperblockError};
use crate::volume::accounts::Accounts;
use crate::volume::contents::{Contents, Quarantine};
use crate::volume::device::Device;
use crate::volume::table::{Doubt, Healing};

pub(crate) mod accounts;
pub(crate) mod beside;
pub(crate) mod bucket_write;
pub(crate) mod check;
pub(crate) mod contents;
pub(crate) mod device;
pub(crate) mod format;
pub(crate) mod grow;
pub(crate) mod inspect;
pub(crate) mod lock;
pub(crate) mod reads;
pub(crate) mod snapshot;
pub(crate) mod superblocks;
pub(crate) mod table;

pub(crate) use contents::usage_of;

/// What a volume's owner should know of copies of mixed ages.
pub(crate) const MIXED: &str = "the copies of the superblock are of different ages, as in a copy that was made while the volume was \
     in use: what segments hold may be of different ages too";

/// A volume opened to write.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) device: Device,
    pub(crate) superblock: Superblock,
    pub(crate) free: FreeSet,
    /// Segments whose blocks belong to another one with a later allocation: not served.
    pub(crate) quarantined: Quarantine,
    /// What each owner holds, with what is promised to operations under way.
    pub(crate) accounts: Accounts,
    /// Segments that a crash or a close left half-moved; whoever serves the volume goes on with them.
    pub(crate) unfinished_moves: Vec<SlotAddress>,
    /// Updates of the inode table begun since the open: a slot that was found stays found while this stands still.
    pub(crate) table_updates: u64,
    /// What the opening found that the volume's owner should know.
    pub(crate) warnings: Vec<String>,
    /// Old inodes of renames that a crash cut, where only the next open to write ends them.
    pub(crate) superseded: Vec<SlotAddress>,
    /// Nothing is ever written.
    read_only: bool,
    allocations: u64,
    /// A metadata write failed: which of two states the table holds is decided by the next open.
    latched: bool,
    /// A record may stand in the mirror and not in the table.
    mirror_may_be_ahead: bool,
    /// Segments of which that record was to take something away, and second inodes of those that it was to rename: nobody opens them
    /// before it is decided.
    doubted: Vec<SlotAddress>,
}

impl Volume {
    /// Opens a volume to write and makes it whole.
    pub(crate) fn open(engine: &mut Engine, device: Device) -> Result<Volume> {
        device.sync(engine, Durability::Full)?;
        let chosen = superblocks::read(engine, &device)?;
        refuse_unknown_features(&device, &chosen.current)?;
        let found = chosen.believed();
        let mut superblock = superblocks::begin_epoch(engine, &device, &chosen, |next| {
            if found.is_clean() || crate::seeded_bug("healed-is-noted-before-healing") {
                // Nothing can be in doubt, so both notes fit in one update.
                next.healed_epoch = next.epoch;
            }
        })?;
        let mut contents = match snapshot::read(engine, &device, &found)? {
            Some(Ok(contents)) => contents,
            // No snapshot, or one that cannot be believed: the inodes say it all.
            None | Some(Err(_)) => {
                let doubt = Doubt::after(&found, Healing::Write);
                Contents::read(engine, &device, &superblock, doubt)?
            }
        };
        write_down(engine, &device, &superblock, &contents)?;
        if superblock.healed_epoch != superblock.epoch {
            let exhausted =
                |error: SuperblockError| Error::new("open volume", device.name(), superblocks::fault(error));
            superblocks::must_be_ours(engine, &device, &superblock)?;
            superblock = superblock.successor().map_err(exhausted)?;
            superblock.healed_epoch = superblock.epoch;
            superblocks::write(engine, &device, &superblock)?;
        }
        if chosen.mixed.is_some() {
            contents.warnings.push(MIXED.into());
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
            warnings: contents.warnings,
            superseded: Vec::new(),
            read_only: false,
            allocations: 0,
            latched: false,
            mirror_may_be_ahead: false,
            doubted: Vec::new(),
        })
    }

    /// Opens a volume to read its segments, and writes nothing.
    pub(crate) fn open_to_read(engine: &mut Engine, device: Device) -> Result<Volume> {
        let chosen = superblocks::read(engine, &device)?;
        let superblock = chosen.believed();
        let mut contents = inspect::contents(engine, &device, &superblock)?;
        contents.warnings.extend(chosen.mixed.map(|_| MIXED.to_owned()));
        engine.attach(&device.file);
        Ok(Volume {
            device,
            superblock,
            free: contents.free,
            quarantined: contents.quarantined,
            accounts: contents.accounts,
            unfinished_moves: contents.unfinished_moves,
            table_updates: 0,
            warnings: contents.warnings,
            superseded: contents.superseded,
            read_only: true,
            allocations: 0,
            latched: false,
            mirror_may_be_ahead: false,
            doubted: Vec::new(),
        })
    }

    /// Notes a clean close. The caller has drained all requests.
    pub(crate) fn close(mut self, engine: &mut Engine) -> Result<()> {
        let result = self.note_clean_close(engine);
        self.device.close(engine);
        result
    }

    fn note_clean_close(&mut self, engine: &mut Engine) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.must_fit()
            .map_err(|fault| Error::new("close volume", self.device.name(), fault))?;
        self.device.sync(engine, Durability::Full)?;
        if self.latched && !crate::seeded_bug("clean-though-latched") {
            return self.leave_in_doubt(engine);
        }
        superblocks::must_be_ours(engine, &self.device, &self.superblock)?;
        let snapshot = snapshot::write(engine, self);
        if snapshot.is_some() {
            self.device.sync(engine, Durability::Full)?;
        }
        let mut superblock = self
            .superblock
            .successor()
            .map_err(|error| Error::new("close volume", self.device.name(), superblocks::fault(error)))?;
        superblock.clean_epoch = superblock.epoch;
        superblock.alloc_hint = self.free.hint();
        superblock.snapshot = snapshot;
        superblocks::must_be_ours(engine, &self.device, &self.superblock)?;
        superblocks::write(engine, &self.device, &superblock)
    }

    /// What holds is in doubt: the next open must heal. It asks the mirror of a bucket whose image in the table was written lately. Where
    /// the table has lost a record, the image that it shows may be older: then the open must ask all mirrors.
    fn leave_in_doubt(&mut self, engine: &mut Engine) -> Result<()> {
        if !self.mirror_may_be_ahead {
            return Ok(());
        }
        superblocks::must_be_ours(engine, &self.device, &self.superblock)?;
        let mut superblock = self
            .superblock
            .successor()
            .map_err(|error| Error::new("close volume", self.device.name(), superblocks::fault(error)))?;
        superblock.healed_epoch = 0;
        superblocks::write(engine, &self.device, &superblock)
    }

    /// Refuses a device that has become too small for the volume: somebody cut it while it was open.
    pub(crate) fn must_fit(&self) -> std::result::Result<(), Fault> {
        must_fit(&self.device.file, self.layout().end())
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

    /// Refuses any change of a volume that was opened to read, or of which it is not known what it holds.
    pub(crate) fn may_change(&self) -> std::result::Result<(), Fault> {
        match (self.read_only, self.is_latched()) {
            (true, _) => Err(Fault::ReadOnlyVolume),
            (_, true) => Err(Fault::Latched),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn is_latched(&self) -> bool {
        self.latched && !crate::seeded_bug("latched-volumes-go-on")
    }

    /// The table did not show a record that the mirror may have: the next opening must ask all mirrors.
    pub(crate) fn doubt_the_table(&mut self) {
        self.mirror_may_be_ahead = true;
    }

    /// A record failed that may have taken away the segment, or its end, or left it a second inode here.
    pub(crate) fn doubt(&mut self, address: SlotAddress) {
        self.doubted.push(address);
    }

    pub(crate) fn is_in_doubt(&self, address: SlotAddress) -> bool {
        self.doubted.contains(&address)
    }
}

/// Refuses a device that ends before the volume does.
pub(crate) fn must_fit(file: &File, needs: u64) -> std::result::Result<(), Fault> {
    let ends = file.size()?;
    if ends < needs {
        return Err(Fault::Shrunk { ends, needs });
    }
    Ok(())
}

/// Makes last what the contents decided: ends renames that a crash cut, and marks segments whose blocks are another's.
fn write_down(engine: &mut Engine, device: &Device, superblock: &Superblock, contents: &Contents) -> Result<()> {
    for &old in &contents.superseded {
        if crate::seeded_bug("half-a-rename-stays") {
            continue;
        }
        table::rewrite(engine, device, superblock, old.bucket, &mut |slot, inode| {
            (slot == old.slot).then(|| inode.tombstone(inode.operation_id))
        })?;
    }
    // The oldest first: it lost to a younger one, which may be a loser too, and still claims its blocks until its turn comes. The
    // other way round an opening that is cut in between would find nobody who claims the blocks of those that are left.
    for &loser in contents.losers.iter().rev() {
        table::rewrite(engine, device, superblock, loser.bucket, &mut |slot, mut inode| {
            inode.state = InodeState::Quarantined;
            (slot == loser.slot).then_some(inode)
        })?;
    }
    Ok(())
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
