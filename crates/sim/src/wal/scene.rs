//! The scene: a small volume with a segment for the log and one for the pages of each database.

use std::time::Duration;

use baio_engine::File;
use baio_engine::sim::{Disk, Flash, Profile, Random};
use baio_storage::cache::CacheOptions;
use baio_storage::log::{LogAnswer, LogOptions};
use baio_storage::{Access, Core, CreateOptions, Error, FormatOptions, Handle, HeldLog, LogReply, format_on};

use super::database::{Database, State};
use super::pages::{PAGE_BYTES, PAGES};
use crate::log::model::Told;
use crate::observe::failed;
use crate::stamp;
use crate::violation::{Kind, Violation};
use crate::world::{self, ROOT};

/// Of the disk: the metadata of the smallest volume, and its segments.
const DISK_BYTES: u64 = (328 << 10) + (512 << 10);
const ARENA_BYTES: usize = 512 << 10;
const NAME: &str = "simulated";

/// What a workload's process is like.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// One, or two.
    pub databases: usize,
    /// How their logs are made and opened.
    pub log: LogOptions,
    /// Bytes of the segment of a log.
    pub log_bytes: u64,
    /// Frames of the cache.
    pub frames: usize,
    /// Requests end in any order.
    pub is_flash: bool,
}

impl Scene {
    /// Any that is small.
    #[must_use]
    pub fn by_chance(random: &mut Random) -> Scene {
        let block: u32 = if random.percent(70) { 512 } else { 4096 };
        let batch = if block == 512 {
            512 * (2 + random.below(6)) as u32
        } else {
            8192
        };
        let window = 1 + random.below(3) as u32;
        let least = baio_storage::log::format::DATA_AT + u64::from(4 * window * batch);
        Scene {
            databases: 1 + random.below(2) as usize,
            log: LogOptions {
                block_bytes: block,
                window,
                window_short: u32::from(random.percent(20)),
                gather: Duration::ZERO,
                buffer_bytes: 16 * block as usize + random.below(32 << 10) as usize,
                batch_bytes_max: batch,
                recent_bytes: 0,
                file_bytes: 0,
                salvage: false,
            },
            log_bytes: (least + random.below(8 << 10)).next_multiple_of(4096),
            frames: 4 + random.below(20) as usize,
            is_flash: random.percent(60),
        }
    }

    /// Makes the volume on a disk of stale bytes, with its segments and empty logs, and closes it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(&self, seed: u64) -> Result<State, Violation> {
        let disk = Disk::new(DISK_BYTES);
        let mut stale = [0; PAGE_BYTES];
        stamp::fill_word(&mut stale, stamp::STALE);
        for page in 0..DISK_BYTES / PAGE_BYTES as u64 {
            disk.poke(page * PAGE_BYTES as u64, &stale);
        }
        let shape = FormatOptions {
            size_bytes: Some(DISK_BYTES),
            force: true, // The disk is full of stale bytes.
            ..FormatOptions::default()
        };
        let say = |error: Error| failed("make the scene", &error);
        let mut engine = world::engine(seed, &world::config(ARENA_BYTES))?;
        format_on(&mut engine, &File::simulated(&disk, NAME), &shape).map_err(say)?;
        let mut core = self.core(&disk, seed)?;
        let mut databases = Vec::new();
        for nth in 0..self.databases {
            let options = CreateOptions::of_size(self.log_bytes);
            core.create(ROOT, ROOT.uid, &log_name(nth), &options).map_err(say)?;
            let options = CreateOptions::of_size(PAGES * PAGE_BYTES as u64);
            core.create(ROOT, ROOT.uid, &pages_name(nth), &options).map_err(say)?;
            let handle = open_segment(&mut core, &log_name(nth))?;
            let question = core.begin_create_log(handle, &self.log).map_err(say)?;
            let (_held, recovered) = opened(core.wait_log(&question))?;
            let mut database = Database::default();
            database.log.told(&Told::Opened { recovered, groups: 0 });
            database.log.told(&Told::CloseAsked);
            databases.push(database);
        }
        core.close().map_err(say)?;
        Ok(State { disk, databases })
    }

    /// A process that has opened the volume, and has a cache.
    ///
    /// # Errors
    /// It is refused.
    pub fn core(&self, disk: &Disk, seed: u64) -> Result<Core, Violation> {
        let profile = match self.is_flash {
            true => Profile::Flash(Flash {
                jitter_percent: 400,
                ..Flash::default()
            }),
            false => Profile::Instant,
        };
        disk.set_profile(profile);
        let config = world::config(ARENA_BYTES);
        let opened = Core::open_on(world::engine(seed, &config)?, &File::simulated(disk, NAME), &config);
        let mut core = opened.map_err(|error| Violation::new(Kind::Refused, error.to_string()))?;
        let cache = CacheOptions {
            bytes: self.frames * PAGE_BYTES,
            age_max: Duration::from_millis(1),
            ..CacheOptions::default()
        };
        core.use_cache(&cache).map_err(|error| failed("use a cache", &error))?;
        Ok(core)
    }
}

/// Of the segment in which a database has its log.
#[must_use]
pub fn log_name(nth: usize) -> String {
    format!("log-{nth}")
}

/// Of the segment of its pages.
#[must_use]
pub fn pages_name(nth: usize) -> String {
    format!("pages-{nth}")
}

/// Opens a segment to write.
///
/// # Errors
/// It is refused.
pub fn open_segment(core: &mut Core, name: &str) -> Result<Handle, Violation> {
    let opened = core.open_segment(ROOT, ROOT.uid, name, Access::Write);
    opened
        .map(|(handle, _)| handle)
        .map_err(|error| failed("open a segment", &error))
}

/// A log that was made or recovered.
///
/// # Errors
/// It was not.
pub fn opened(reply: Result<LogReply, Error>) -> Result<(HeldLog, baio_storage::log::Recovered), Violation> {
    match reply {
        Ok(LogReply::Opened(held, LogAnswer::Opened(recovered))) => Ok((held, recovered)),
        Ok(other) => Err(Violation::new(Kind::Failed, format!("an opening gave {other:?}"))),
        Err(error) => Err(Violation::new(Kind::Refused, error.to_string())),
    }
}
