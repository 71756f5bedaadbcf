//! The segment that a command line names, and what is a volume.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use baio_engine::EngineOptions;
use baio_storage::segment::name::SegmentName;
use baio_storage::segment::superblock::MAGIC;
use baio_storage::{Core, Error, Identity};

use crate::failure::Failure;

/// `PATH#NAME` or `PATH#UID/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSegment {
    /// As it was typed, for messages.
    pub typed: String,
    /// The volume's file or device.
    pub volume: PathBuf,
    /// The owner, where one was typed.
    pub owner: Option<u32>,
    /// The segment's name.
    pub name: String,
}

/// A file of fewer bytes holds no volume: the second copy of its superblock begins here.
pub const VOLUME_MIN: u64 = 64 << 10;

/// Does it hold a volume? The first or the second copy of its superblock begins in a way that nothing else does.
pub fn holds_volume(file: &File) -> bool {
    let found = |at| {
        let mut head = [0; MAGIC.len()];
        file.read_exact_at(&mut head, at).is_ok() && head == MAGIC
    };
    found(0) || found(VOLUME_MIN)
}

/// Can a segment have this name? It is asked before anything is opened: a bad one must not even raise the volume's epoch.
///
/// # Errors
/// It cannot.
pub fn check_name(command: &str, typed: &str, name: &str) -> Result<(), Failure> {
    SegmentName::new(name).map(drop).map_err(|error| {
        let error = Error::new("name", typed, error);
        Failure::from_storage(command, typed, &error)
    })
}

impl NamedSegment {
    /// The owner's uid: the one typed, else that of whoever asks.
    pub fn owner_uid(&self, who: Identity) -> u32 {
        self.owner.unwrap_or(who.uid)
    }

    /// What became of a call on the volume, told as the failure of `command` on this target.
    pub fn told<T>(&self, command: &str, result: baio_storage::Result<T>) -> Result<T, Failure> {
        result.map_err(|error| Failure::from_storage(command, self.typed.clone(), &error))
    }

    /// Refuses what looking already refuses, before the volume is opened to write, which raises its epoch.
    pub fn look_first(&self, command: &str, who: Identity) -> Result<(), Failure> {
        let seen = Core::inspect_segment(&self.volume, who, self.owner_uid(who), &self.name);
        self.told(command, seen).map(drop)
    }

    /// [`with_volume`] on its volume, told as the failure of `command`.
    ///
    /// # Errors
    /// As there.
    pub fn with_volume<T>(
        &self,
        command: &str,
        work: impl FnOnce(&mut Core) -> baio_storage::Result<T>,
    ) -> Result<T, Failure> {
        self.told(command, with_volume(&self.volume, work))
    }
}

/// Opens a volume to write, does something, and closes it cleanly whatever came of it.
///
/// # Errors
/// Of the three what failed first.
pub fn with_volume<T>(path: &Path, work: impl FnOnce(&mut Core) -> baio_storage::Result<T>) -> baio_storage::Result<T> {
    let mut core = Core::open(path, &EngineOptions::default())?;
    let done = work(&mut core);
    let closed = core.close();
    done.and_then(|value| closed.map(|()| value))
}
