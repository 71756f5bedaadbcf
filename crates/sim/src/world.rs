//! The scene of an exploration: a disk that was full of stale bytes, with a small volume on it.
//!
//! Stale bytes first, because a new disk is all zeroes, and on such a disk nobody would notice that a segment's blocks were
//! never zeroed.

use baio_engine::sim::{Disk, Random, Sim};
use baio_engine::{Engine, EngineOptions, File};
use baio_storage::segment::layout::Layout;
use baio_storage::segment::name::{self, SegmentName};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{
    CheckReport, Core, FormatOptions, Identity, SegmentInfo, VolumeInfo, check_on, format_on, inspect_on,
    inspect_volume_on,
};

use crate::model::{Key, NAMES, UIDS};
use crate::stamp;
use crate::violation::{Kind, Violation};

/// Bytes of the disk: the metadata of the smallest volume, 48 blocks of data, and room to grow. Small, so that blocks are soon used a
/// second time and an image is cheap to copy and to compare.
pub const DISK_BYTES: u64 = VOLUME_BYTES + (BLOCKS_MORE << 12);

/// Bytes of the volume before it grows.
const VOLUME_BYTES: u64 = METADATA_BYTES + (BLOCKS << 12);
const METADATA_BYTES: u64 = 328 << 10;

/// Its data blocks.
pub const BLOCKS: u64 = 48;

/// Data blocks by which it can grow.
pub const BLOCKS_MORE: u64 = 12;

/// The shape of the volume.
#[must_use]
pub fn shape() -> FormatOptions {
    FormatOptions {
        size_bytes: Some(VOLUME_BYTES),
        max_size_bytes: Some(DISK_BYTES),
        ..FormatOptions::default()
    }
}

/// Memory of a process: so little that a move copies four blocks at a time.
const ARENA_BYTES: usize = 256 << 10;

pub(crate) const ROOT: Identity = Identity::new(0, 0);

/// The name of the disk in messages.
const NAME: &str = "simulated";

/// A formatted disk.
#[derive(Clone, Debug)]
pub struct World {
    /// The disk, just formatted.
    pub disk: Disk,
    /// Where everything lies on it.
    pub layout: Layout,
    /// Names that share a home, in a crowded one.
    pub crowd: Vec<Key>,
}

impl World {
    /// Formats a disk of stale bytes; identities follow from the seed.
    ///
    /// # Errors
    /// The volume cannot be made.
    pub fn new(seed: u64) -> Result<World, Violation> {
        World::formatted(seed, &shape())
    }

    /// The same with a hash by which most of the users' names have one home: its bucket overflows, and names are found behind it.
    ///
    /// # Errors
    /// The volume cannot be made.
    pub fn crowded(seed: u64) -> Result<World, Violation> {
        let mut world = World::new(seed)?;
        let buckets = world.layout.buckets();
        let mut random = Random::from(&[seed, 7]);
        let candidates = (0..CROWDED_TRIES).map(|_| hash_seed(&mut random));
        let most = candidates.max_by_key(|hash_seed| crowd(hash_seed, buckets).len());
        for (copy, at) in (0u8..).zip(world.layout.superblocks_at()) {
            let mut page = [0; 4096];
            world.disk.read(at, &mut page);
            let mut superblock = Superblock::decode(&page, copy)
                .map_err(|error| Violation::new(Kind::Failed, format!("read what was formatted: {error}")))?;
            superblock.hash_seed = most.unwrap_or(superblock.hash_seed);
            world.disk.poke(at, superblock.encode(copy).bytes());
        }
        world.crowd = most.map(|hash_seed| crowd(&hash_seed, buckets)).unwrap_or_default();
        Ok(world)
    }

    /// The same with a shape of its own.
    ///
    /// # Errors
    /// The volume cannot be made.
    pub fn formatted(seed: u64, shape: &FormatOptions) -> Result<World, Violation> {
        let disk = stale_disk();
        let layout = format(&disk, seed, shape)?;
        let crowd = Vec::new();
        Ok(World { disk, layout, crowd })
    }
}

/// Of so many hash seeds the one that crowds most is taken.
const CROWDED_TRIES: usize = 300;

fn hash_seed(random: &mut Random) -> [u8; 16] {
    let mut seed = [0; 16];
    for half in seed.chunks_mut(8) {
        half.copy_from_slice(&random.bits().to_le_bytes());
    }
    seed
}

/// Those of the users' names that have the most wanted bucket for their home.
fn crowd(hash_seed: &[u8; 16], buckets: u64) -> Vec<Key> {
    let mut homes = vec![Vec::new(); buckets as usize];
    for key in UIDS
        .iter()
        .flat_map(|&uid| (0..NAMES.len()).map(move |name| Key { uid, name }))
    {
        if let Ok(name) = SegmentName::new(key.name()) {
            let home = name::Key::segment(key.uid, name).hash(hash_seed) % buckets;
            homes[home as usize].push(key);
        }
    }
    homes.into_iter().max_by_key(Vec::len).unwrap_or_default()
}

/// A disk full of stale bytes.
#[must_use]
pub fn stale_disk() -> Disk {
    let disk = Disk::new(DISK_BYTES);
    let mut stale = [0; 4096];
    stamp::fill_word(&mut stale, stamp::STALE);
    for page in 0..DISK_BYTES / 4096 {
        disk.poke(page * 4096, &stale);
    }
    disk
}

/// Makes a volume on a disk, over whatever is there.
///
/// # Errors
/// It cannot be made.
pub fn format(disk: &Disk, seed: u64, shape: &FormatOptions) -> Result<Layout, Violation> {
    let mut engine = engine(seed, &small())?;
    let over_what_is_there = FormatOptions { force: true, ..*shape };
    format_on(&mut engine, &File::simulated(disk, NAME), &over_what_is_there)
        .map(|superblock| *superblock.layout())
        .map_err(|error| Violation::new(Kind::Failed, format!("format: {error}")))
}

/// Opens the volume on `disk` to write, as a process does that starts; `seed` is its randomness.
///
/// # Errors
/// The mount is refused.
pub fn open(disk: &Disk, seed: u64) -> Result<Core, Violation> {
    Core::open_on(engine(seed, &small())?, &File::simulated(disk, NAME), &small())
        .map_err(|error| Violation::new(Kind::Refused, error.to_string()))
}

/// Checks the volume on `disk`, and repairs it if told.
///
/// # Errors
/// It cannot be checked.
pub fn check(disk: &Disk, seed: u64, repair: bool) -> Result<CheckReport, Violation> {
    let mut engine = engine(seed, &small())?;
    check_on(&mut engine, &File::simulated(disk, NAME), repair)
        .map_err(|error| Violation::new(Kind::Refused, format!("check: {error}")))
}

/// The volume on `disk` and its segments, as somebody sees them who does not write.
///
/// # Errors
/// It is not read.
pub fn inspect(disk: &Disk, seed: u64) -> Result<(VolumeInfo, Vec<SegmentInfo>), Violation> {
    let mut engine = engine(seed, &small())?;
    inspect_on(&mut engine, &File::simulated(disk, NAME), ROOT)
        .map_err(|error| Violation::new(Kind::Refused, format!("inspect: {error}")))
}

/// The volume alone.
///
/// # Errors
/// It is not read.
pub fn inspect_volume(disk: &Disk, seed: u64) -> Result<VolumeInfo, Violation> {
    let mut engine = engine(seed, &small())?;
    inspect_volume_on(&mut engine, &File::simulated(disk, NAME))
        .map_err(|error| Violation::new(Kind::Refused, format!("inspect: {error}")))
}

fn small() -> EngineOptions {
    config(ARENA_BYTES)
}

/// Small, because there is one for every crash state.
pub(crate) fn config(arena_bytes: usize) -> EngineOptions {
    EngineOptions {
        slots: 32,
        reserved_slots: 8,
        arena_bytes,
        ..EngineOptions::default()
    }
}

/// An engine on simulated disks.
///
/// # Errors
/// There is no memory for it.
pub(crate) fn engine(seed: u64, config: &EngineOptions) -> Result<Engine, Violation> {
    Sim::new(seed)
        .and_then(|sim| Engine::simulated(sim, config))
        .map_err(|error| Violation::new(Kind::Failed, format!("start the engine: {error}")))
}
