//! What a path can do: a file or a device itself, or for a directory a file made in it.
//!
//! A file that exists is only read. Nothing of the file made for the purpose is left behind.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use baio_engine::{Caching, Create, Engine, File, Kind, Open, Policy, Request};
use baio_storage::{Core, Error, Identity};
use rustix::fs::StatFs;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Table;
use crate::size::format_size;

/// Bytes of one trial: fits every alignment in use.
const TRIAL_BYTES: usize = 4096;

/// What was found out about a path.
#[derive(Serialize)]
pub(super) struct Place {
    path: String,
    kind: &'static str,
    size_bytes: u64,
    file_system: Option<String>,
    modes: Vec<ModeTried>,
    direct_memory_alignment: Option<u32>,
    direct_offset_alignment: Option<u32>,
    volume: bool,
    volume_problem: Option<String>,
}

/// A caching mode, and what a request in it came to.
#[derive(Serialize)]
struct ModeTried {
    mode: &'static str,
    works: bool,
    reason: Option<String>,
}

impl Place {
    /// Finds out.
    pub(super) fn examine(engine: &mut Engine, path: &Path) -> Result<Place, Failure> {
        let shown = path.display().to_string();
        let told = |error| Failure::from_storage("doctor", shown.clone(), &Error::new("examine", shown.clone(), error));
        let directory = path.is_dir();
        refuse_fifo(path)?;
        let file = if directory {
            scratch(path)
        } else {
            File::open(path, &Open::read())
        }
        .map_err(told)?;
        let size = file.size().map_err(|errno| {
            let error = Error::new("measure", shown.clone(), errno);
            Failure::from_storage("doctor", shown.clone(), &error)
        })?;
        let limits = file.gives(Caching::Direct).then(|| file.direct_limits());
        let holds_data = !directory && matches!(file.kind(), Kind::Regular | Kind::Block);
        let (volume, volume_problem) = if holds_data {
            look_for_volume(path)
        } else {
            (false, None)
        };
        Ok(Place {
            kind: if directory { "directory" } else { kind_name(file.kind()) },
            size_bytes: if directory { 0 } else { size },
            file_system: file_system(path, file.kind()),
            modes: try_modes(engine, &file, directory),
            direct_memory_alignment: limits.map(|limits| limits.memory),
            direct_offset_alignment: limits.map(|limits| limits.offset),
            volume,
            volume_problem,
            path: shown,
        })
    }

    /// Shows it.
    pub(super) fn add_rows(&self, table: &mut Table) {
        table.row(["path", &self.path]);
        table.row(["kind", self.kind]);
        table.row(["size", &format_size(self.size_bytes)]);
        table.row(["file system", self.file_system.as_deref().unwrap_or("none")]);
        for tried in &self.modes {
            let state = tried
                .reason
                .as_ref()
                .map_or("works".to_owned(), |why| format!("no: {why}"));
            table.row([format!("mode {}", tried.mode), state]);
        }
        if let (Some(memory), Some(offset)) = (self.direct_memory_alignment, self.direct_offset_alignment) {
            let needs = format!("memory {memory} B, offset and length {offset} B");
            table.row(["direct alignment", &needs]);
        }
        let volume = match &self.volume_problem {
            None if self.volume => "yes".to_owned(),
            None => "no".to_owned(),
            Some(why) => format!("cannot be opened: {why}"),
        };
        table.row(["volume", &volume]);
    }
}

/// Opening a FIFO waits for its other end, perhaps for ever.
fn refuse_fifo(path: &Path) -> Result<(), Failure> {
    if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return Err(Failure::new("doctor", "EINVAL", "this is a FIFO")
            .on(path.display().to_string())
            .needing("a file, a directory or a device")
            .cured_by("name the directory that it lies in"));
    }
    Ok(())
}

/// A new file in the directory, which has no name any more.
fn scratch(directory: &Path) -> Result<File, baio_engine::SetupError> {
    let path: PathBuf = directory.join(format!(".baio-doctor-{}", std::process::id()));
    let options = Open {
        create: Create::New,
        ..Open::write()
    };
    let file = File::open(&path, &options);
    if file.is_ok() {
        // A name that cannot be removed is the smallest of this directory's problems.
        let _ = std::fs::remove_file(&path);
    }
    file
}

fn try_modes(engine: &mut Engine, file: &File, may_write: bool) -> Vec<ModeTried> {
    if file.kind() == Kind::Stream {
        return Vec::new(); // Reading would take something away from it, or wait.
    }
    let modes = [Caching::Kernel, Caching::Uncached, Caching::Direct];
    let tried = modes.map(|caching| {
        let wrong = try_mode(engine, file, caching, may_write).err();
        ModeTried {
            mode: caching.name(),
            works: wrong.is_none(),
            reason: wrong,
        }
    });
    tried.into()
}

/// One request; on a file of our own it is a write, which needs more.
fn try_mode(engine: &mut Engine, file: &File, caching: Caching, may_write: bool) -> Result<(), String> {
    let mut buffer = engine.buffer(TRIAL_BYTES).ok_or("no buffer is free")?;
    let policy = Policy {
        caching,
        ..Policy::default()
    };
    let request = if may_write {
        buffer.fill(0);
        Request::write(file, 0, buffer, policy)
    } else {
        Request::read(file, 0, buffer, policy)
    };
    engine.run(request).result.map(drop).map_err(|error| error.to_string())
}

/// Is it a volume, and if it looks like one, why can it not be read?
fn look_for_volume(path: &Path) -> (bool, Option<String>) {
    match Core::inspect(path, Identity::effective()) {
        Ok(_) => (true, None),
        Err(error) if error.code() == "ENOTVOLUME" => (false, None),
        Err(error) => (false, Some(error.fault.to_string())),
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "file",
        Kind::Block => "block device",
        Kind::Stream => "stream",
        Kind::Simulated => "simulated",
    }
}

/// The file system that the path lies on; what a device node lies on says nothing about the device.
fn file_system(path: &Path, kind: Kind) -> Option<String> {
    if kind != Kind::Regular {
        return None;
    }
    rustix::fs::statfs(path).ok().map(|stat| file_system_name(&stat))
}

/// The names of `include/uapi/linux/magic.h`.
fn file_system_name(stat: &StatFs) -> String {
    let magic = stat.f_type as u64;
    let name = match magic {
        0xef53 => "ext2/ext3/ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlayfs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0x00c3_6400 => "ceph",
        0x0102_1997 => "9p",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        other => return format!("{other:#x}"),
    };
    name.to_owned()
}
