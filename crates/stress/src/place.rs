//! What a path is, and whether it may be overwritten.
//!
//! An ordinary file may. A volume image or a device may only with `--force`, and not while another program uses it:
//! a mounted or claimed device stays refused, and so does a volume that a process serves.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use baio::{Error, Identity, VOLUME_BYTES_MIN, holds_volume};
use baio_console::failure::Failure;
use baio_console::size::format_size;
use baio_engine::{Caching, Create, Descriptions, Errno, File, Open, SetupError};

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Missing,
    File,
    Device,
}

/// A path, looked at.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// In bytes; 0 for what is missing.
    pub(crate) size: u64,
    pub(crate) volume: Volume,
}

/// Does it hold a volume?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Volume {
    Held,
    None,
    /// It cannot be read, and is long enough for one.
    Unread,
}

/// Held while a device or a volume image is written over, so that nobody else takes it meanwhile.
#[derive(Debug)]
pub(crate) struct Claim(#[allow(dead_code, reason = "held for its description")] Option<File>);

impl Place {
    /// Looks at a path; nothing is changed.
    ///
    /// # Errors
    /// It is neither a file nor a block device; or what the system said.
    pub(crate) fn look(command: &'static str, path: &Path) -> Result<Place, Failure> {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Place::missing(path)),
            Err(error) => {
                return Err(Failure::from_io(command, &error)
                    .on(path.display().to_string())
                    .needing("a path that can be reached")
                    .cured_by("check the path and the permissions of its directories"));
            }
        };
        let place = |kind, size, volume| Place {
            path: path.to_owned(),
            kind,
            size,
            volume,
        };
        let kind = metadata.file_type();
        if kind.is_file() {
            return Ok(place(Kind::File, metadata.len(), volume_in(path, metadata.len())));
        }
        if !kind.is_block_device() {
            let code = if kind.is_dir() { "EISDIR" } else { "EINVAL" };
            return Err(
                Failure::new(command, code, "requests at any offset cannot be made on this")
                    .on(path.display().to_string())
                    .needing("a file, a block device or a segment")
                    .cured_by("name a file in a directory, or PATH#SEGMENT"),
            );
        }
        let size = open(path, &Open::read()).and_then(|file| file.size().map_err(|errno| of_size(path, errno)));
        let size = size.map_err(|error| refused(command, path, error))?;
        Ok(place(Kind::Device, size, volume_in(path, size)))
    }

    fn missing(path: &Path) -> Place {
        Place {
            path: path.to_owned(),
            kind: Kind::Missing,
            size: 0,
            volume: Volume::None,
        }
    }

    /// Makes sure that the path may be written over.
    ///
    /// # Errors
    /// It holds a volume or is a device, and `force` is not given; somebody else has it; it cannot be read, and may hold a volume.
    pub(crate) fn claim(&self, command: &'static str, force: bool) -> Result<Claim, Failure> {
        let shown = self.path.display().to_string();
        let precious = match (self.volume, self.kind) {
            (Volume::Held, _) => Some(("EEXIST", "it holds a baio volume, which would be destroyed")),
            (Volume::Unread, _) => {
                let said = "it cannot be read, and may hold a baio volume, which would be destroyed";
                return Err(Failure::new(command, "EACCES", said)
                    .on(shown)
                    .needing("the permission to read it")
                    .cured_by("let it be read (`chmod u+r`), or name something else"));
            }
            (Volume::None, Kind::Device) => Some(("EPERM", "it is a device, and all that it holds would be destroyed")),
            (Volume::None, Kind::File | Kind::Missing) => None,
        };
        let Some((code, said)) = precious else {
            return Ok(Claim(None));
        };
        if !force {
            return Err(Failure::new(command, code, said)
                .on(shown)
                .needing("a segment, written as PATH#NAME, or a file that holds nothing precious")
                .cured_by("name something else, only read, or insist with --force"));
        }
        let options = Open {
            claim_device: true,
            ..Open::write()
        };
        let file = open(&self.path, &options).map_err(|error| refused(command, &self.path, error))?;
        file.must_take_any_order()
            .map_err(|error| refused(command, &self.path, error))?;
        if let Err(errno) = file.try_lock(true) {
            let holder = file.lock_holder();
            let holder = holder.map_or_else(
                || "another process".to_owned(),
                |holder| format!("process {}", holder.pid),
            );
            let code = if errno == Errno::EAGAIN { "EBUSY" } else { errno.name() };
            return Err(Failure::new(command, code, format!("{holder} has it open as a volume"))
                .on(shown)
                .needing("a volume that nobody uses")
                .cured_by("stop that process first"));
        }
        Ok(Claim(Some(file)))
    }
}

/// Makes sure that a segment may be written over: one of mine may.
///
/// # Errors
/// It is somebody else's, and `force` is not given.
pub(crate) fn may_write_segment(
    command: &'static str,
    typed: &str,
    owner_uid: u32,
    who: Identity,
    force: bool,
) -> Result<(), Failure> {
    if owner_uid == who.uid || force {
        return Ok(());
    }
    let said = format!("it is the segment of user {owner_uid}, and would be overwritten");
    Err(Failure::new(command, "EPERM", said)
        .on(typed)
        .needing("a segment of your own")
        .cured_by("name one of yours, only read, or insist with --force"))
}

/// More of it is asked for than there is.
pub(crate) fn too_small(command: &'static str, typed: &str, has: u64, asked: u64) -> Failure {
    let said = format!(
        "it has {}, and --size asks for {}",
        format_size(has),
        format_size(asked)
    );
    Failure::usage(command, said)
        .on(typed)
        .needing("a --size that fits")
        .cured_by("leave out --size, or name something larger")
}

/// There is nothing, and nobody says how much there is to be.
pub(crate) fn is_empty(command: &'static str, path: &Path) -> Failure {
    Failure::usage(command, "it is empty")
        .on(path.display().to_string())
        .needing("--size")
        .cured_by("say with --size how large it is to be")
}

/// Who may write it may not be allowed to read it.
fn volume_in(path: &Path, size: u64) -> Volume {
    match std::fs::File::open(path) {
        Ok(file) if holds_volume(&file) => Volume::Held,
        Err(_) if size >= VOLUME_BYTES_MIN => Volume::Unread,
        Ok(_) | Err(_) => Volume::None,
    }
}

fn open(path: &Path, options: &Open) -> Result<File, SetupError> {
    let options = Open {
        descriptions: Descriptions::Only(Caching::Kernel),
        create: Create::Never,
        ..*options
    };
    File::open(path, &options)
}

fn of_size(path: &Path, errno: Errno) -> SetupError {
    SetupError::new("measure", path.display().to_string(), errno)
}

pub(super) fn refused(command: &'static str, path: &Path, error: SetupError) -> Failure {
    let shown = path.display().to_string();
    Failure::from_storage(command, shown.clone(), &Error::new("open", shown, error))
}
