//! Looking at a volume without writing a byte: `list` and `stat`.
//!
//! The volume is locked for reading, so nobody writes meanwhile; or it is read beside its owner (`beside.rs`). After a crash the same decisions are made as an open to
//! write would make, but in memory only. A list reads the table once; one segment is looked up by its name, in one bucket
//! as a rule, and says what that bucket says: that another segment claims its blocks is known after the next open.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use baio_engine::Engine;
pub use baio_words::{InUse, SegmentInfo, VolumeInfo, VolumeView};

use crate::error::{Error, Fault, Result};
use crate::identity::{Identity, Sight};
use crate::segment::inode::{Inode, InodeState};
use crate::segment::layout::SUPERBLOCK_STEP;
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::{Probe, SlotAddress, Visit};
use crate::segment::superblock::{MAGIC, Superblock};
use crate::volume::accounts::Account;
use crate::volume::beside::{self, Seen, Witness};
use crate::volume::contents::{Contents, Gathering};
use crate::volume::device::Device;
use crate::volume::lock::Hold;
use crate::volume::table::{self, Doubt, Healing};
use crate::volume::{MIXED, snapshot, superblocks};

/// A file of fewer bytes holds no volume: the second copy of its superblock begins here.
pub const VOLUME_BYTES_MIN: u64 = SUPERBLOCK_STEP;

/// Does this file or device hold a volume, whole or damaged? The first or the second copy of its superblock begins in a way that nothing else
/// does. It must be open for reading; of what cannot be read there is none.
#[must_use]
pub fn holds_volume(file: &File) -> bool {
    let found = |at| {
        let mut head = [0; MAGIC.len()];
        file.read_exact_at(&mut head, at).is_ok() && head == MAGIC
    };
    found(0) || found(VOLUME_BYTES_MIN)
}

/// A segment, as its inode says.
pub(crate) fn segment_info(inode: &Inode, name: &SegmentName, block_size: u32, quarantined: bool) -> SegmentInfo {
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(block_size));
    let state = match quarantined {
        true => InodeState::Quarantined,
        false => inode.state,
    };
    SegmentInfo {
        name: name.as_str().to_owned(),
        owner_uid: inode.owner_uid,
        owner_gid: inode.owner_gid,
        mode: inode.mode,
        size_bytes: bytes(inode.blocks),
        reserve_bytes: bytes(inode.reserve_blocks),
        start_block: inode.start_block,
        state: state_name(state),
        uuid: inode.uuid,
    }
}

fn state_name(state: InodeState) -> &'static str {
    match state {
        InodeState::Live => "live",
        InodeState::Moving => "moving",
        InodeState::Quarantined => "quarantined",
        InodeState::Free | InodeState::Tombstone | InodeState::Quota => "none",
    }
}

/// Everything about a volume that the caller may see.
///
/// # Errors
/// When it cannot be opened, is in use by a writer, or is no volume.
pub(crate) fn inspect(engine: &mut Engine, path: &Path, who: Identity) -> Result<(VolumeInfo, Vec<SegmentInfo>)> {
    Device::open(path, Hold::Shared)?.look(engine, |engine, device| look(engine, device, who))
}

/// The volume as the caller may see it, with what an open would find wrong.
///
/// # Errors
/// As [`inspect`].
pub(crate) fn inspect_view(engine: &mut Engine, path: &Path, who: Identity) -> Result<VolumeView> {
    Device::open(path, Hold::Shared)?.look(engine, |engine, device| {
        let (info, _, own) = gather(engine, device, who, &mut Witness::of_a_lock())?;
        Ok(info.seen_with(device.sight(who), own))
    })
}

/// [`inspect`], beside the owner if there is one.
///
/// # Errors
/// As [`inspect`], but not for being in use.
pub(crate) fn inspect_beside(
    engine: &mut Engine,
    path: &Path,
    who: Identity,
) -> Result<Seen<(VolumeInfo, Vec<SegmentInfo>)>> {
    beside::look(engine, path, &mut |engine, device, witness| {
        let user = witness.user();
        let (mut info, segments, _) = gather(engine, device, who, witness)?;
        info.in_use = user;
        Ok((info, segments))
    })
}

/// [`inspect_view`], beside the owner if there is one.
///
/// # Errors
/// As [`inspect_beside`].
pub(crate) fn inspect_view_beside(engine: &mut Engine, path: &Path, who: Identity) -> Result<Seen<VolumeView>> {
    beside::look(engine, path, &mut |engine, device, witness| {
        let (sight, user) = (device.sight(who), witness.user());
        let (mut info, _, own) = gather(engine, device, who, witness)?;
        info.in_use = user;
        Ok(info.seen_with(sight, own))
    })
}

/// The volume alone: after a clean close its snapshot says it all.
///
/// # Errors
/// As [`inspect`].
pub(crate) fn inspect_volume(engine: &mut Engine, path: &Path) -> Result<VolumeInfo> {
    Device::open(path, Hold::Shared)?.look(engine, measure)
}

/// What [`Core::inspect`](crate::Core::inspect) tells, of a volume on any device.
///
/// # Errors
/// As there.
pub fn inspect_on(
    engine: &mut Engine,
    device: impl Into<Device>,
    who: Identity,
) -> Result<(VolumeInfo, Vec<SegmentInfo>)> {
    let device = device.into();
    device.look(engine, |engine, device| look(engine, device, who))
}

/// What [`Core::inspect_volume`](crate::Core::inspect_volume) tells, of a volume on any device.
///
/// # Errors
/// As there.
pub fn inspect_volume_on(engine: &mut Engine, device: impl Into<Device>) -> Result<VolumeInfo> {
    device.into().look(engine, measure)
}

/// What an owner holds and may hold, and the bytes of a block.
///
/// # Errors
/// As [`inspect`]; `Access` when it is another's.
pub(crate) fn inspect_quota(engine: &mut Engine, path: &Path, who: Identity, uid: u32) -> Result<(Account, u32)> {
    Device::open(path, Hold::Shared)?.look(engine, |engine, device| {
        if !who.acts_for(uid) && device.sight(who) != Sight::Whole {
            let object = format!("uid {uid} on {}", path.display());
            return Err(Error::new("show the quota", object, Fault::Access { uid: who.uid }));
        }
        let chosen = superblocks::read(engine, device)?;
        let contents = contents(engine, device, &chosen.believed())?;
        Ok((contents.accounts.get(uid), chosen.current.layout().block_size()))
    })
}

/// From the snapshot of a clean close, else from the table.
pub(crate) fn contents(engine: &mut Engine, device: &Device, superblock: &Superblock) -> Result<Contents> {
    match snapshot::read(engine, device, superblock)? {
        Some(Ok(contents)) => Ok(contents),
        None | Some(Err(_)) => {
            let doubt = Doubt::after(superblock, Healing::InMemory);
            Contents::read(engine, device, superblock, doubt)
        }
    }
}

fn measure(engine: &mut Engine, device: &Device) -> Result<VolumeInfo> {
    let chosen = superblocks::read(engine, device)?;
    let superblock = chosen.believed();
    let contents = contents(engine, device, &superblock)?;
    let segments = contents.accounts.segments();
    let mut info = volume_info(&superblock, device.size()?, Some(&contents.free), segments);
    info.warnings = contents.warnings;
    info.warnings.extend(chosen.mixed.as_ref().map(|_| MIXED.to_owned()));
    Ok(info)
}

fn look(engine: &mut Engine, device: &Device, who: Identity) -> Result<(VolumeInfo, Vec<SegmentInfo>)> {
    gather(engine, device, who, &mut Witness::of_a_lock()).map(|(info, segments, _)| (info, segments))
}

/// The same with what the caller holds.
fn gather(
    engine: &mut Engine,
    device: &Device,
    who: Identity,
    witness: &mut Witness,
) -> Result<(VolumeInfo, Vec<SegmentInfo>, Account)> {
    let chosen = superblocks::read(engine, device)?;
    let superblock = chosen.believed();
    let doubt = witness.saw_superblock(&superblock);
    let mut listed = Listing::new(&superblock, who);
    let mut gathering = Gathering::new(device, &superblock)?;
    table::scan_images(engine, device, &superblock, doubt, &mut |image| {
        witness.saw(image);
        table::show(image, &superblock, &mut |address, found| {
            if let Ok(inode) = &found {
                listed.show(address, inode);
            }
            gathering.take_in(address, &found);
        });
    })?;
    let contents = gathering.end(engine, device, &superblock, doubt)?;
    let segments = listed.end(
        |at| contents.superseded.contains(&at),
        |at| contents.quarantined.contains(&at),
    );
    let segments = segments.into_iter().map(|(_, info)| info).collect();
    let mut info = volume_info(
        &superblock,
        device.size()?,
        Some(&contents.free),
        contents.accounts.segments(),
    );
    info.warnings = contents.warnings;
    info.warnings.extend(chosen.mixed.map(|_| MIXED.to_owned()));
    Ok((info, segments, contents.accounts.get(who.uid)))
}

/// A segment as an inode tells of it, for whoever may see it: its owner, and uid 0.
pub(crate) fn shown(inode: &Inode, who: Identity, block_size: u32, quarantined: bool) -> Option<SegmentInfo> {
    let may_see = inode.state.is_segment() && who.acts_for(inode.owner_uid);
    let name = inode.name.as_ref().filter(|_| may_see)?;
    Some(segment_info(inode, name, block_size, quarantined))
}

/// The segments that somebody may see, as they are found.
struct Listing {
    who: Identity,
    block_size: u32,
    segments: Vec<(SlotAddress, SegmentInfo)>,
}

impl Listing {
    fn new(superblock: &Superblock, who: Identity) -> Listing {
        Listing {
            who,
            block_size: superblock.layout().block_size(),
            segments: Vec::new(),
        }
    }

    fn show(&mut self, address: SlotAddress, inode: &Inode) {
        if let Some(info) = shown(inode, self.who, self.block_size, false) {
            self.segments.push((address, info));
        }
    }

    /// All of them, sorted by owner and name: without those that are gone, and with what became of the quarantined.
    fn end(
        self,
        gone: impl Fn(SlotAddress) -> bool,
        quarantined: impl Fn(SlotAddress) -> bool,
    ) -> Vec<(SlotAddress, SegmentInfo)> {
        let mut segments = Vec::with_capacity(self.segments.len());
        for (address, mut info) in self.segments {
            if quarantined(address) {
                info.state = state_name(InodeState::Quarantined);
            }
            if !gone(address) {
                segments.push((address, info));
            }
        }
        segments.sort_by(|(_, a), (_, b)| (a.owner_uid, &a.name).cmp(&(b.owner_uid, &b.name)));
        segments
    }
}

/// Without the blocks that are free nothing is said of them.
pub(crate) fn volume_info(
    superblock: &Superblock,
    device_bytes: u64,
    free: Option<&crate::segment::free_set::FreeSet>,
    segments: u64,
) -> VolumeInfo {
    let geometry = superblock.geometry();
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(geometry.block_size));
    VolumeInfo {
        uuid: superblock.uuid,
        format_version: crate::segment::superblock::VERSION,
        block_size: geometry.block_size,
        size_bytes: bytes(geometry.data_blocks),
        size_bytes_max: bytes(geometry.data_blocks_max),
        device_bytes,
        free_bytes: free.map_or(0, |free| bytes(free.free_blocks())),
        largest_free_bytes: free.map_or(0, |free| bytes(free.largest_free_run().1)),
        segments,
        segments_max: geometry.segments_max,
        clean: superblock.is_clean(),
        in_use: None,
        data_at_bytes: superblock.layout().data_at(),
        warnings: Vec::new(),
    }
}

/// One segment that the caller may see.
///
/// # Errors
/// As [`inspect`]; `NotFound` when there is none, `Access` when it is another's.
pub(crate) fn inspect_segment(
    engine: &mut Engine,
    path: &Path,
    who: Identity,
    owner_uid: u32,
    name: &str,
) -> Result<SegmentInfo> {
    let key = sought(path, who, owner_uid, name)?;
    let device = Device::open(path, Hold::Shared)?;
    let found = device.look(engine, |engine, device| {
        find(engine, device, key, &mut Witness::of_a_lock())
    })?;
    found.ok_or_else(|| Error::new("stat", label(path, owner_uid, name), Fault::NotFound))
}

/// [`inspect_segment`], beside the owner if there is one.
///
/// # Errors
/// As [`inspect_beside`]; `NotFound` when there is none, `Access` when it is another's.
pub(crate) fn inspect_segment_beside(
    engine: &mut Engine,
    path: &Path,
    who: Identity,
    owner_uid: u32,
    name: &str,
) -> Result<Seen<SegmentInfo>> {
    let key = sought(path, who, owner_uid, name)?;
    let seen = beside::look(engine, path, &mut |engine, device, witness| {
        find(engine, device, key.clone(), witness)
    })?;
    match seen.found {
        Some(found) => Ok(Seen { found, torn: seen.torn }),
        None => Err(Error::new("stat", label(path, owner_uid, name), Fault::NotFound)),
    }
}

fn label(path: &Path, owner_uid: u32, name: &str) -> String {
    format!("{}#{owner_uid}/{name}", path.display())
}

/// What to look for, if `who` may.
fn sought(path: &Path, who: Identity, owner_uid: u32, name: &str) -> Result<Key> {
    let object = label(path, owner_uid, name);
    let name = SegmentName::new(name).map_err(|error| Error::new("stat", &object, error))?;
    match who.acts_for(owner_uid) {
        true => Ok(Key::segment(owner_uid, name)),
        false => Err(Error::new("stat", object, Fault::Access { uid: who.uid })),
    }
}

/// Looks for a name as an open volume does: one bucket in the common case, not the table.
fn find(engine: &mut Engine, device: &Device, key: Key, witness: &mut Witness) -> Result<Option<SegmentInfo>> {
    let superblock = superblocks::read(engine, device)?.believed();
    let (layout, geometry) = (superblock.layout(), superblock.geometry());
    let doubt = witness.saw_superblock(&superblock);
    let mut probe = Probe::new(key, &superblock.hash_seed, layout.buckets());
    let mut found = None;
    while let Some(bucket) = probe.next_bucket() {
        table::look(engine, device, &superblock, doubt, bucket, &mut |image| {
            witness.saw(image);
            let slots = image.slots(geometry);
            if let Visit::Found(at) = probe.visit(bucket, &slots) {
                if let Some(Ok(inode)) = slots.get(at.slot) {
                    if let Some(name) = &inode.name {
                        found = Some(segment_info(inode, name, layout.block_size(), false));
                    }
                }
            }
        })?;
    }
    Ok(found)
}
