//! Volumes in files, as crashes and workloads leave them, with what the library says of each: for readers that share no code
//! with it (`reader/reader.py`), and as what [`crate::mangle`] begins with.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use baio_engine::sim::crash::Replay;
use baio_engine::sim::{Disk, Random};
use baio_storage::segment::layout::Layout;
use baio_storage::{SegmentInfo, VolumeInfo};
use serde::{Deserialize, Serialize};

use crate::explore::crashes_of;
use crate::oracle::Expectation;
use crate::rot::Rot;
use crate::violation::Violation;
use crate::workload::{ByChance, Counts, Ids, Session, State, run_session};
use crate::world::{self, World};

/// How an image came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A power cut.
    Crash,
    /// An opening after that; then the process was killed.
    Opened,
    /// A clean close after that.
    Closed,
    /// A power cut, and one page is rotten.
    Rotten,
}

impl Origin {
    const ALL: [Origin; 4] = [Origin::Crash, Origin::Opened, Origin::Closed, Origin::Rotten];
}

/// A volume, and where everything lies on it.
#[derive(Debug)]
pub struct Image {
    /// Its bytes.
    pub disk: Disk,
    /// Its layout, as it was formatted.
    pub layout: Layout,
    /// How it came about.
    pub origin: Origin,
}

/// Operations before an image is taken.
const WORKLOAD_OPS: usize = 24;

/// Images that share a workload.
pub const PER_WORKLOAD: u64 = 16;

/// A workload, from which images are taken.
#[derive(Debug)]
pub struct Source {
    world: World,
    session: Session,
    seed: u64,
    workload: u64,
}

impl Source {
    /// The workload of this number.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn new(seed: u64, workload: u64) -> Result<Source, Violation> {
        let mut random = Random::from(&[seed, 9, workload]);
        let world = match workload % 3 {
            2 => World::crowded(random.bits())?,
            _ => World::new(random.bits())?,
        };
        let mut ids = Ids::default();
        let mut guide = ByChance::new(&mut random, &mut ids, WORKLOAD_OPS, true);
        guide.fill(&world.crowd);
        let state = State::after_power_cut(world.disk.copy(), Expectation::default());
        let session = run_session(state, &mut guide, &mut Counts::default())?;
        Ok(Source {
            world,
            session,
            seed,
            workload,
        })
    }

    /// The image of this number, of this workload.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn image(&self, nth: u64) -> Result<Image, Violation> {
        let mut random = Random::from(&[self.seed, 10, self.workload, nth]);
        let origin = Origin::ALL[(nth % Origin::ALL.len() as u64) as usize];
        let session = &self.session;
        // Moves are found half-done only where they are cut: any record as likely as the others.
        let crashes: Vec<_> = crashes_of(session).collect();
        let wanted = random.below(session.record.len() as u64 + 1) as usize;
        let of_prefix: Vec<_> = crashes.iter().filter(|crash| crash.prefix >= wanted).take(40).collect();
        let disk = match random.pick(&of_prefix) {
            Some(&&crash) => Replay::new(&session.base, &session.record).disk(crash),
            None => session.disk_at(session.record.len()),
        };
        let disk = match origin {
            Origin::Crash => disk,
            Origin::Rotten => {
                Rot::choose(&disk, &self.world.layout, &mut random).strike(&disk, &self.world.layout);
                disk
            }
            Origin::Opened => opened(disk, false, nth)?,
            Origin::Closed => opened(disk, true, nth)?,
        };
        Ok(Image {
            disk,
            layout: self.world.layout,
            origin,
        })
    }
}

/// Opened, moves waited for, and closed or killed.
fn opened(disk: Disk, closed: bool, seed: u64) -> Result<Disk, Violation> {
    let mut core = world::open(&disk, seed)?;
    crate::observe::settle(&mut core)?;
    if closed {
        core.close().map_err(|error| crate::observe::failed("close", &error))?;
    } else {
        drop(core);
    }
    Ok(disk.copy())
}

/// What the library says of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The file.
    pub image: String,
    /// How it came about, if that is known.
    pub origin: Option<Origin>,
    /// Was it read, and if not, why not?
    pub refused: Option<String>,
    /// Blocks that nobody holds.
    pub free: u64,
    /// Its segments: owner, name, state, first block, size and reserve in bytes.
    pub segments: Vec<(u32, String, String, u64, u64, u64)>,
}

/// Asks the library, which does not write, about an image in memory.
#[must_use]
pub fn said(image: &Image, name: &str) -> Said {
    let seen = world::inspect(&image.disk, 1).map_err(|violation| violation.story);
    Said {
        origin: Some(image.origin),
        ..said_of(name, seen)
    }
}

/// The same about a file, which is read into memory first.
#[must_use]
pub fn said_of_file(path: &Path) -> Said {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let seen = std::fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| {
            let disk = Disk::new(bytes.len() as u64);
            for (page, bytes) in (0..).zip(bytes.chunks(4096)) {
                if bytes.iter().any(|&byte| byte != 0) {
                    disk.poke(page * 4096, bytes);
                }
            }
            world::inspect(&disk, 1).map_err(|violation| violation.story)
        });
    said_of(&name, seen)
}

fn said_of(name: &str, seen: Result<(VolumeInfo, Vec<SegmentInfo>), String>) -> Said {
    let mut said = Said {
        image: name.into(),
        origin: None,
        refused: None,
        free: 0,
        segments: Vec::new(),
    };
    match seen {
        Ok((volume, segments)) => {
            said.free = volume.free_bytes / u64::from(volume.block_size);
            let row = |s: SegmentInfo| {
                (
                    s.owner_uid,
                    s.name,
                    s.state.to_owned(),
                    s.start_block,
                    s.size_bytes,
                    s.reserve_bytes,
                )
            };
            said.segments = segments.into_iter().map(row).collect();
        }
        Err(why) => said.refused = Some(why),
    }
    said
}

/// Writes so many images into a folder; returns what the library says of each.
///
/// # Errors
/// An image cannot be made or written.
pub fn write_all(folder: &Path, seed: u64, images: u64) -> Result<Vec<Said>, Violation> {
    let mut all = Vec::new();
    let mut source = None;
    for number in 0..images {
        if number % PER_WORKLOAD == 0 {
            source = Some(Source::new(seed, number / PER_WORKLOAD)?);
        }
        let Some(source) = &source else { break };
        let image = source.image(number % PER_WORKLOAD)?;
        let name = format!("{number:06}.img");
        write(&image.disk, &folder.join(&name)).map_err(|error| {
            let story = format!("write {}: {error}", folder.join(&name).display());
            Violation::new(crate::violation::Kind::Failed, story)
        })?;
        all.push(said(&image, &name));
    }
    Ok(all)
}

/// A disk as a sparse file.
///
/// # Errors
/// What the system says.
pub fn write(disk: &Disk, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(disk.size())?;
    for at in (0..disk.size()).step_by(4096) {
        let mut page = [0; 4096];
        let len = disk.read(at, &mut page);
        if page[..len].iter().any(|&byte| byte != 0) {
            file.write_all_at(&page[..len], at)?;
        }
    }
    Ok(())
}
