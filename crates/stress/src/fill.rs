//! Making the files that a run needs: really written, block by block, and synced, before anything is measured.
//!
//! A file that is only preallocated, or sparse, would be measured wrong: unwritten extents halve the rate of durable writes,
//! and holes are read without a device. The loop that measures does the writing, so under `--verify` the blocks come with
//! their stamps.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::SystemTime;

use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_console::size::format_size;
use baio_engine::Durability;

use super::job::{Job, Lane, Mode, Objects, Rw, Stage, Stream, Verify};
use super::lanes;
use super::place::{Kind, Place};

/// Bytes of one request, where blocks need no stamps.
const REQUEST_MAX: u64 = 1 << 20;

/// Requests under way.
const DEPTH: u32 = 16;

/// A file, and the size that it must have.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) place: Place,
    pub(crate) size: u64,
}

/// Writes what is missing of the files, which the job then runs on. If all of them are made here, whole, they carry its stamps.
///
/// # Errors
/// What the system said, or a signal that came; the files that were made here are then removed, and those that were made longer are as they
/// were.
pub(crate) fn make(job: &mut Job, wants: &[Want]) -> Result<(), Failure> {
    let all_made = !wants.is_empty() && wants.iter().all(|want| want.is_missing() && want.size > 0);
    let short: Vec<&Want> = wants.iter().filter(|want| want.is_short()).collect();
    has_room(job, &short)?;
    let mut begun = Vec::new();
    for want in short {
        let filled = make_one(job, want, &mut begun);
        if filled.is_err() {
            // The failure to be told is the one that came first.
            for one in &begun {
                let _ = one.undo();
            }
        }
        filled?;
    }
    if all_made && job.verify.is_some() {
        job.verify = Some(Verify::Stamped);
    }
    Ok(())
}

impl Want {
    fn is_missing(&self) -> bool {
        self.place.kind == Kind::Missing
    }

    /// Is anything to be written?
    fn is_short(&self) -> bool {
        self.place.kind != Kind::Device && (self.is_missing() || self.place.size < self.size)
    }

    fn bytes_missing(&self) -> u64 {
        self.size.saturating_sub(self.place.size)
    }
}

fn make_one<'a>(job: &Job, want: &'a Want, begun: &mut Vec<Begun<'a>>) -> Result<(), Failure> {
    let file = open_one(job, want)?;
    let identity = file
        .metadata()
        .map(|found| identity(&found))
        .map_err(|error| unopened(job, want, &error))?;
    begun.push(Begun { want, identity });
    fill_one(job, want, &file)
}

/// A file that is made, or made longer. It is known by what it is, for there may be more of them than a process may have open.
struct Begun<'a> {
    want: &'a Want,
    identity: Identity,
}

/// With the time of its birth: the number of an inode comes again.
type Identity = (u64, u64, Option<SystemTime>);

impl Begun<'_> {
    /// Makes it what it was before, in size; none, if it was made here. What has taken its name since is somebody else's.
    fn undo(&self) -> io::Result<()> {
        let path = &self.want.place.path;
        if self.want.is_missing() {
            return match identity(&std::fs::symlink_metadata(path)?) == self.identity {
                true => std::fs::remove_file(path),
                false => Ok(()),
            };
        }
        // Whatever else has this name is not even opened: a pipe would wait for a reader.
        if identity(&std::fs::metadata(path)?) != self.identity {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(path)?;
        let found = file.metadata()?;
        // Somebody has written behind what was filled.
        let is_longer = found.len() > self.want.size;
        match identity(&found) == self.identity && !is_longer {
            true => file.set_len(self.want.place.size),
            false => Ok(()),
        }
    }
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino(), found.created().ok())
}

/// A file system is not filled to the brim only to find that the rest does not fit. Links may lead to several.
fn has_room(job: &Job, short: &[&Want]) -> Result<(), Failure> {
    let mut systems: BTreeMap<u64, Vec<(&Want, PathBuf)>> = BTreeMap::new();
    for want in short {
        let at = match want.place.path.parent() {
            _ if !want.is_missing() => want.place.path.clone(),
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        // What cannot be asked is told about when the file is opened.
        if let Ok(found) = at.metadata() {
            systems.entry(found.dev()).or_default().push((want, at));
        }
    }
    systems.values().try_for_each(|wants| has_room_on(job, wants))
}

/// The same on one file system; with each file something on it that is there.
fn has_room_on(job: &Job, short: &[(&Want, PathBuf)]) -> Result<(), Failure> {
    let Some((first, at)) = short.first() else {
        return Ok(());
    };
    let path = &first.place.path;
    let asked = short
        .iter()
        .fold(0_u64, |sum, (want, _)| sum.saturating_add(want.bytes_missing()));
    let Ok(system) = rustix::fs::statvfs(at) else {
        return Ok(());
    };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if asked <= free {
        return Ok(());
    }
    let (into, fewer) = match short.len() {
        1 => (String::new(), ""),
        files => (format!(" into {files} files"), " or fewer files"),
    };
    let said = format!("{asked} bytes are to be written{into}, and {free} bytes are free");
    Err(Failure::new(job.command, "ENOSPC", said)
        .on(path.display().to_string())
        .needing(format!("{asked} bytes free on the file system"))
        .cured_by(format!("choose a smaller size{fewer}, or free some space")))
}

fn open_one(job: &Job, want: &Want) -> Result<File, Failure> {
    let path = &want.place.path;
    let opened = OpenOptions::new().write(true).create_new(want.is_missing()).open(path);
    opened.map_err(|error| unopened(job, want, &error))
}

fn unopened(job: &Job, want: &Want, error: &io::Error) -> Failure {
    let failure = Failure::from_io(job.command, error).on(want.place.path.display().to_string());
    match want.is_missing() {
        true => failure
            .needing("a directory in which a file can be made")
            .cured_by("check the path and its permissions, or name another one"),
        false => failure
            .needing("a file that can be written")
            .cured_by("check its permissions, or name another one"),
    }
}

fn fill_one(job: &Job, want: &Want, file: &File) -> Result<(), Failure> {
    let path = &want.place.path;
    if want.size == 0 {
        return Ok(());
    }
    let size = format_size(want.bytes_missing());
    diagnostics::say(format_args!(
        "baio: {}: writing {size} of {}",
        job.command,
        path.display()
    ));
    let start = first_block(job, want);
    fill_block(want, file, start).map_err(|error| {
        Failure::from_io(job.command, &error)
            .on(path.display().to_string())
            .needing("a file that can be written, and room on its file system")
            .cured_by("check its permissions and the free space, or choose a smaller size")
    })?;
    if start >= want.size {
        return Ok(());
    }
    let report = lanes::run(&filling(job, want, start))?;
    if let Some(failure) = report.first_error() {
        return Err(failure.clone());
    }
    match report.cut {
        Some(cut) => Err(cut.while_filling(job.command, path)),
        None => Ok(()),
    }
}

/// The first whole block behind the bytes that exist: those are nobody's to write here.
fn first_block(job: &Job, want: &Want) -> u64 {
    want.place.size.next_multiple_of(job.request_size)
}

/// Writes from the last byte that exists to the block that begins at `start`. The loop makes whole blocks only.
fn fill_block(want: &Want, file: &File, start: u64) -> io::Result<()> {
    let mut at = want.place.size;
    if at >= start {
        return Ok(());
    }
    let zeros = vec![0; (start - at).min(REQUEST_MAX) as usize];
    while at < start {
        let part = &zeros[..(start - at).min(REQUEST_MAX) as usize];
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    file.sync_all()
}

/// A job that writes the missing end of one file, from `start` on.
fn filling(job: &Job, want: &Want, start: u64) -> Job {
    let blocks = (want.size - start) / job.request_size;
    let request_size = if job.verify.is_some() {
        job.request_size
    } else {
        let most = (REQUEST_MAX / job.request_size).max(1);
        let blocks_each = (1..=most).rev().find(|each| blocks.is_multiple_of(*each));
        job.request_size * blocks_each.unwrap_or(1)
    };
    let objects = Objects::Files(vec![want.place.path.clone()]);
    Job {
        lanes: vec![Lane {
            depth: DEPTH,
            batch: 1,
            streams: vec![Stream {
                object: 0,
                start,
                end: want.size,
            }],
        }],
        stages: vec![Stage {
            sync: Some(Durability::Full),
            ..Stage::of(Rw::Write)
        }],
        mode: match job.mode {
            Mode::Direct | Mode::Cached => Mode::Direct,
            Mode::Kernel | Mode::Uncached => Mode::Kernel,
        },
        backend: job.backend,
        one_turn: true,
        verify: job.verify.map(|_| Verify::Own),
        seed: job.seed,
        ..Job::new(job.command, objects, request_size)
    }
}
