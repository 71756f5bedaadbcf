//! Checking a volume that nobody serves, or the very process that asks: reads all of its metadata, names everything that is wrong and where, and, if asked,
//! repairs it.
//!
//! A check that does not repair opens the volume for reading under a shared lock and writes nothing. It judges as a repair
//! would, in memory: every bucket is the newest valid one of its four images, whatever a reader would have taken, so it also
//! finds writes that the device acknowledged and lost. What a crash alone leaves, an update in the table that the mirror does
//! not have yet, is no problem but counted: the next opening makes it whole.
//!
//! | file | what it looks at |
//! |---|---|
//! | `mod.rs` | superblock copies, the size of the device, the snapshot; and the order of it all |
//! | `images.rs` | the four images of each bucket |
//! | `inodes.rs` | what the inodes say: decodable, reachable by their names, each name once |
//! | `repair.rs` | the changes that heal what `inodes.rs` found |
//!
//! **Repairing**, in this order: the superblock's copies are healed and its epoch raised, so that a repair that is cut short is an
//! opening that crashed; every bucket's images are made whole; inodes that cannot stay as they are get changed, each by an update of its
//! bucket; what cannot be saved is given up: a file that is too short is extended, an inode that does not say where its blocks are becomes
//! a tombstone, and what is lost or unknown of a bucket is written over; then the volume is opened and closed as ever, which ends renames
//! that were cut, quarantines who lost its blocks, and writes a new snapshot. Nothing is written once a read has failed: what was not read
//! is not judged. An error that comes when something may have been given up says what, as no later check can.

mod images;
mod inodes;
mod names;
mod repair;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use baio_engine::{Durability, Engine, EngineOptions, Kind};
pub use baio_words::{CheckReport, Problem, ProblemPlace, Repair};

use crate::error::{Error, Fault, Result};
use crate::segment::layout::BUCKET_BYTES;
use crate::segment::superblock::{Chosen, Superblock, SuperblockError};
use crate::volume::accounts::EVERYBODY_ELSE;
use crate::volume::contents::{Contents, Gathering};
use crate::volume::device::Device;
use crate::volume::lock::Hold;
use crate::volume::table::{Doubt, Healing};
use crate::volume::{Volume, bucket_write, reads, refuse_unknown_features, snapshot, superblocks};

/// Where memory gives only reads of one bucket: after so many of which nothing can be read, it is the device that is gone.
const LOST_IN_A_ROW_MAX: u32 = 16;

fn is_of_an_inode(problem: &Problem) -> bool {
    matches!(problem.kind, "bucket-lost" | "inode" | "rename" | "overlap")
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    /// Buckets of the inode table that were looked at.
    pub buckets_done: u64,
    /// Buckets that there are.
    pub buckets: u64,
}

/// Checks the volume at `path`; with `repair`, heals what can be healed.
///
/// # Errors
/// In use, no volume at all, a newer version; or what the system said. Problems of the volume are
/// listed in the report and are no errors. A repair that fails when it may have given something up says what: [`Fault::RepairCut`].
pub fn check(path: &Path, repair: bool, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport> {
    let mut engine = own_engine()?;
    let device = Device::open(path, hold_to(repair))?;
    run(&mut engine, device, repair, progress)
}

/// Checks a volume on any device.
///
/// # Errors
/// As [`check`].
pub fn check_on(engine: &mut Engine, device: impl Into<Device>, repair: bool) -> Result<CheckReport> {
    run(engine, device.into(), repair, &mut |_| {})
}

/// Checks a volume that this process serves, by an engine of its own; its metadata stands still meanwhile. Ends early when it is called off.
///
/// # Errors
/// As [`check`]; it was called off.
pub(crate) fn check_beside(
    device: &Device,
    is_called_off: &AtomicBool,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    go_on(device, Some(is_called_off))?; // Before it takes memory.
    check_served(&mut own_engine()?, device, is_called_off, progress)
}

/// The same by this engine.
///
/// # Errors
/// As [`check_beside`].
pub(crate) fn check_served(
    engine: &mut Engine,
    device: &Device,
    is_called_off: &AtomicBool,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let mut check = Check {
        engine,
        report: CheckReport::default(),
        repair: false,
        is_served: true,
        is_called_off: Some(is_called_off),
        written_off: repair::WrittenOff::default(),
    };
    check.metadata(device, progress)?;
    Ok(check.report)
}

/// Does anybody want to know still?
fn go_on(device: &Device, is_called_off: Option<&AtomicBool>) -> Result<()> {
    // Relaxed: nothing else is read by it.
    match is_called_off.is_some_and(|off| off.load(Ordering::Relaxed)) {
        true => Err(Error::new(
            "check",
            device.name(),
            Fault::Io(baio_engine::Error::Cancelled),
        )),
        false => Ok(()),
    }
}

fn own_engine() -> Result<Engine> {
    let config = EngineOptions {
        slots: 64,
        arena_bytes: 16 << 20,
        ..EngineOptions::default()
    };
    Engine::new(&config).map_err(|error| Error::new("start", "the engine", error))
}

fn hold_to(repair: bool) -> Hold {
    if repair { Hold::Exclusive } else { Hold::Shared }
}

fn run(
    engine: &mut Engine,
    mut device: Device,
    repair: bool,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    device.take(hold_to(repair))?;
    let file = device.file.clone();
    let mut check = Check {
        engine,
        report: CheckReport::default(),
        repair,
        is_served: false,
        is_called_off: None,
        written_off: repair::WrittenOff::default(),
    };
    let done = check.all(device, progress);
    let report = std::mem::take(&mut check.report);
    engine.detach(&file);
    done.map(|()| CheckReport {
        repaired: report.count_repaired(),
        ..report
    })
}

/// A check under way.
struct Check<'a> {
    engine: &'a mut Engine,
    report: CheckReport,
    repair: bool,
    /// Its owner is in this process: nothing is as a crash may leave it.
    is_served: bool,
    /// Nobody wants to know any more.
    is_called_off: Option<&'a AtomicBool>,
    /// What a repair has to give up.
    written_off: repair::WrittenOff,
}

impl Check<'_> {
    /// Notes a problem of which nothing is lost.
    fn note(&mut self, kind: &'static str, object: impl Into<String>, offset: u64, what: impl Into<String>) {
        let repair = if self.repair {
            Repair::Repaired
        } else {
            Repair::Repairable
        };
        self.note_as(repair, kind, object.into(), offset, what.into());
    }

    fn note_lost(&mut self, kind: &'static str, object: impl Into<String>, offset: u64, what: impl Into<String>) {
        self.note_as(Repair::Lost, kind, object.into(), offset, what.into());
    }

    fn note_as(&mut self, repair: Repair, kind: &'static str, object: String, offset: u64, what: String) {
        self.report.problems.push(Problem {
            kind,
            place: ProblemPlace { object, offset },
            what,
            repair,
        });
    }

    fn all(&mut self, device: Device, progress: &mut dyn FnMut(CheckProgress)) -> Result<()> {
        if self.repair {
            device.sync(self.engine, Durability::Full)?;
        }
        let (superblock, changes) = self.metadata(&device, progress)?;
        if self.repair {
            all_was_read(&device)?;
            let finished = self.finish(device, &superblock, changes);
            finished.map_err(|error| self.with_what_is_lost(error))?;
        }
        Ok(())
    }

    /// Writes what was held back until all was read.
    fn finish(&mut self, device: Device, superblock: &Superblock, changes: Vec<repair::Change>) -> Result<()> {
        repair::apply(self.engine, &device, superblock, changes, &self.written_off)?;
        let (unread, name) = (device.unread(), device.name().to_owned());
        let volume = Volume::open(self.engine, device)?;
        volume.close(self.engine)?;
        unread.must_be_none(REPAIR, &name)
    }

    /// The report of a repair that fails is shown to nobody, and the next check finds nothing of what was given up.
    fn with_what_is_lost(&self, error: Error) -> Error {
        let is_lost = |problem: &&Problem| problem.repair == Repair::Lost;
        let lost: Vec<Problem> = self.report.problems.iter().filter(is_lost).cloned().collect();
        match lost.is_empty() {
            true => error,
            false => error.of_a_repair(lost),
        }
    }

    /// Looks at all of it; the superblock from now on, and the changes that would heal inodes.
    fn metadata(
        &mut self,
        device: &Device,
        progress: &mut dyn FnMut(CheckProgress),
    ) -> Result<(Superblock, Vec<repair::Change>)> {
        let chosen = superblocks::find_any(self.engine, device)?;
        if self.repair {
            refuse_unknown_features(device, &chosen.current)?;
        }
        let found = chosen.believed();
        self.report.clean = found.is_clean();
        self.superblock_copies(device, &chosen)?;
        let cut = self.length(device, &chosen.current)?;
        let superblock = self.raise_epoch(device, &chosen)?;
        let mut gathering = Gathering::new(device, &found)?;
        let mut inodes = inodes::Inodes::new(&superblock, cut);
        self.table(device, &found, &superblock, progress, &mut |address, found| {
            inodes.take_in(address, found);
            if let inodes::Seen::Slot(found) = found {
                gathering.take_in(address, found);
            }
        })?;
        let contents = self.contents(device, &superblock, gathering)?;
        let changes = inodes.judge(self, device, &superblock, &contents)?;
        self.snapshot(device, &found, &contents)?;
        self.count(&superblock, &contents);
        Ok((superblock, changes))
    }

    fn superblock_copies(&mut self, device: &Device, chosen: &Chosen) -> Result<()> {
        let places = chosen.current.layout().superblocks_at();
        for &copy in &chosen.heal {
            let at = places[usize::from(copy)];
            let why = superblocks::read_copy(self.engine, device, at, copy)?;
            let object = format!("superblock copy {copy}");
            let current = chosen.current.sequence;
            match why {
                Err(error @ SuperblockError::Unread { .. }) => {
                    self.note_as(Repair::Unread, "superblock", object, at, error.to_string());
                }
                Err(error) => self.note("superblock", object, at, error.to_string()),
                // It could not be read before, and is what it should be.
                Ok(found) if found == chosen.current => {}
                Ok(found) if found.sequence == current => {
                    let what = format!("it holds sequence {current} as the current one does, and something else in it");
                    self.note("superblock", object, at, what);
                }
                Ok(found) => {
                    let what = format!("it holds sequence {}, the current one is {current}", found.sequence);
                    self.note("superblock", object, at, what);
                }
            }
        }
        Ok(())
    }

    /// Notes a device that ends too early; returns where it ends then. A file can be extended, what it held is gone.
    fn length(&mut self, device: &Device, superblock: &Superblock) -> Result<Option<u64>> {
        let (size, end) = (device.size()?, superblock.layout().end());
        if size >= end {
            return Ok(None);
        }
        // Nothing of any segment is left then; and a superblock may claim a table of any size.
        if size <= superblock.layout().data_at() {
            let short = superblock.check_device(size);
            return short
                .map(|()| None)
                .map_err(|error| Error::new("check", device.name(), superblocks::fault(error)));
        }
        let what = format!("it has {size} bytes, the volume on it needs {end}; what was behind is gone");
        if device.file.kind() != Kind::Regular {
            self.note_lost("device-short", "device", size, what);
            return match self.repair {
                false => Ok(Some(size)),
                true => superblock
                    .check_device(size)
                    .map(|()| None)
                    .map_err(|error| Error::new("repair", device.name(), superblocks::fault(error))),
            };
        }
        self.note("device-short", "file", size, what);
        self.written_off.file_end = Some(end);
        Ok(Some(size))
    }

    /// Begins a repair as an opening begins: the copies healed, the epoch raised.
    fn raise_epoch(&mut self, device: &Device, chosen: &Chosen) -> Result<Superblock> {
        if !self.repair {
            return Ok(chosen.believed());
        }
        all_was_read(device)?;
        superblocks::begin_epoch(self.engine, device, chosen, |_| {})
    }

    /// Reads table and mirror side by side, judges the images of every bucket, heals them if asked, and shows what they hold.
    fn table(
        &mut self,
        device: &Device,
        found: &Superblock,
        superblock: &Superblock,
        progress: &mut dyn FnMut(CheckProgress),
        visit: &mut dyn FnMut(crate::segment::probe::SlotAddress, &inodes::Seen),
    ) -> Result<()> {
        let layout = superblock.layout();
        let (table_at, buckets) = (layout.table_at(), layout.buckets());
        let range = (table_at, layout.table_bytes());
        let mut judge = images::Judge::new(device, found, superblock, self.is_served);
        let mut lost_in_a_row = 0;
        // The closure of the reading has the engine; what it notes is gathered here.
        let (repair, report, is_called_off) = (self.repair, &mut self.report, self.is_called_off);
        let read = reads::read_all(
            self.engine,
            device,
            range,
            BUCKET_BYTES as usize,
            &mut |engine, chunk| {
                go_on(device, is_called_off)?;
                let first = (chunk.offset - table_at) / BUCKET_BYTES;
                let count = chunk.units(BUCKET_BYTES);
                let mirror_at = layout.mirror_at() + (chunk.offset - table_at);
                let mirror = reads::read_pages(engine, device, mirror_at, (count * BUCKET_BYTES) as usize)?;
                let mirror = mirror.chunk();
                let lost = chunk.lost().filter(|_| mirror.lost().is_some());
                lost_in_a_row = lost.map_or(0, |_| lost_in_a_row + 1);
                if let Some(errno) = lost.filter(|_| count > 1 || lost_in_a_row > LOST_IN_A_ROW_MAX) {
                    // It is no page that is bad, but the device: else every bucket to its end would be told by itself.
                    return Err(Error::new("read the inode table of", device.name(), errno).at(chunk.offset));
                }
                for index in 0..count {
                    let at = 2 * index as usize;
                    let table = [chunk.page(at), chunk.page(at + 1)];
                    let mirror = [mirror.page(at), mirror.page(at + 1)];
                    let writes = judge.bucket(first + index, table, mirror, repair, report, visit)?;
                    if repair {
                        all_was_read(device)?;
                        for (home, page) in writes {
                            bucket_write::write(engine, device, home, page.bytes())?;
                        }
                    }
                }
                progress(CheckProgress {
                    buckets_done: first + count,
                    buckets,
                });
                Ok(())
            },
        );
        let repair::WrittenOff { unknown, lost, .. } = judge.written_off;
        (self.written_off.unknown, self.written_off.lost) = (unknown, lost);
        read
    }

    /// Puts together what was gathered; where two claim one block, by all four images of every bucket.
    fn contents(&mut self, device: &Device, superblock: &Superblock, gathering: Gathering) -> Result<Contents> {
        let doubt = Doubt {
            from_epoch: 0,
            // Of a bucket that is lost nothing is there yet. A read that fails only now ends the repair later.
            healing: Healing::Check,
        };
        gathering.end(self.engine, device, superblock, doubt)
    }

    /// A check names what it cannot read and goes on; a repair changes nothing by what it has not seen.
    fn healing(&self) -> Healing {
        if self.repair { Healing::InMemory } else { Healing::Check }
    }

    fn snapshot(&mut self, device: &Device, found: &Superblock, contents: &Contents) -> Result<()> {
        let Some(read) = snapshot::read(self.engine, device, found)? else {
            return Ok(());
        };
        match read {
            Err((offset, why)) if all_was_read(device).is_err() && why.contains("could not be read") => {
                self.note_as(
                    Repair::Unread,
                    "snapshot",
                    "snapshot of the clean close".into(),
                    offset,
                    why,
                );
            }
            Err((offset, why)) => self.note("snapshot", "snapshot of the clean close", offset, why),
            // Inodes that are damaged are reason enough to differ.
            Ok(_) if self.report.problems.iter().any(is_of_an_inode) => {}
            Ok(noted) if noted.free != contents.free || noted.accounts != contents.accounts => {
                let at = found.layout().bitmap_at();
                let what = "it does not agree with the inodes: blocks in use or owners' sums differ";
                // Both copies of an image may be gone. Then the one before it serves, and only the snapshot knows of the other.
                if self
                    .report
                    .problems
                    .iter()
                    .any(|problem| problem.kind.starts_with("image"))
                {
                    let what = format!(
                        "{what}; images of buckets are damaged, and some were the only ones of what is missing now"
                    );
                    self.note_lost("snapshot", "snapshot of the clean close", at, what);
                    return Ok(());
                }
                self.note("snapshot", "snapshot of the clean close", at, what);
            }
            Ok(_) => {}
        }
        Ok(())
    }

    fn count(&mut self, superblock: &Superblock, contents: &Contents) {
        let report = &mut self.report;
        report.buckets = superblock.layout().buckets();
        report.segments = contents.accounts.segments();
        let owners = contents.accounts.iter().filter(|(uid, _)| *uid != EVERYBODY_ELSE);
        report.owners = owners.count() as u64;
        report.over_quota = contents.accounts.over_quota();
        report.quarantined = contents.quarantined.count() as u64;
        report.unfinished_moves = contents.unfinished_moves.len() as u64;
        report.blocks = superblock.geometry().data_blocks;
        report.free_blocks = contents.free.free_blocks();
    }
}

/// What is being done, for messages.
const REPAIR: &str = "repair";

/// Whoever writes by what he has read must have read everything.
fn all_was_read(device: &Device) -> Result<()> {
    device.unread().must_be_none(REPAIR, device.name())
}

/// An error of a check.
fn corrupt(device: &Device, why: impl Into<String>) -> Error {
    Error::new("check", device.name(), Fault::Corrupt(why.into()))
}
