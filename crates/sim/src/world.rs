//! The scene of an exploration: a disk that was full of stale bytes, with a small volume on it.
//!
//! Stale bytes first, because a new disk is all zeroes, and on such a disk nobody would notice that a segment's blocks were
//! never zeroed.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Config, Engine, File};
use baio_storage::segment::layout::Layout;
use baio_storage::{Core, Format, format_simulated};

use crate::oracle::{Kind, Violation};
use crate::stamp;

/// Bytes of the disk: the metadata of the smallest volume, and 48 blocks of data. Small, so that blocks are soon used a
/// second time and an image is cheap to copy and to compare.
pub const DISK_BYTES: u64 = (328 + 48 * 4) << 10;

/// The name of the disk in messages.
const NAME: &str = "simulated";

/// A formatted disk.
#[derive(Clone, Debug)]
pub struct World {
    /// The disk, just formatted.
    pub disk: Disk,
    /// Where everything lies on it.
    pub layout: Layout,
}

impl World {
    /// Formats a disk of stale bytes; identities follow from the seed.
    ///
    /// # Errors
    /// The volume cannot be made.
    pub fn new(seed: u64) -> Result<World, Violation> {
        let disk = Disk::new(DISK_BYTES);
        let mut stale = [0; 4096];
        stamp::fill_word(&mut stale, stamp::STALE);
        for page in 0..DISK_BYTES / 4096 {
            disk.poke(page * 4096, &stale);
        }
        let failed = |why: String| Violation::new(Kind::Failed, format!("format: {why}"));
        let mut engine = engine(seed)?;
        let file = File::simulated(&disk, NAME);
        let superblock =
            format_simulated(&mut engine, &file, &Format::default()).map_err(|error| failed(error.to_string()))?;
        Ok(World {
            disk,
            layout: *superblock.layout(),
        })
    }
}

/// Opens the volume on `disk` to write, as a process does that starts; `seed` is its randomness.
///
/// # Errors
/// The mount is refused.
pub fn open(disk: &Disk, seed: u64) -> Result<Core, Violation> {
    Core::open_simulated(engine(seed)?, &File::simulated(disk, NAME), &config())
        .map_err(|error| Violation::new(Kind::Refused, error.to_string()))
}

/// Small, because there is one for every crash state.
fn config() -> Config {
    Config {
        slots: 32,
        reserved_slots: 8,
        arena_bytes: 1 << 20,
        ..Config::default()
    }
}

fn engine(seed: u64) -> Result<Engine, Violation> {
    Sim::new(seed)
        .and_then(|sim| Engine::simulated(sim, &config()))
        .map_err(|error| Violation::new(Kind::Failed, format!("start the engine: {error}")))
}
