//! The segment that a command line names.

use std::path::{Path, PathBuf};

use baio_engine::Config;
use baio_storage::segment::name::SegmentName;
use baio_storage::{Core, Error, Identity};

use crate::failure::Failure;
use crate::target::{Served, Target, TypedTarget};

/// `PATH#NAME` or `PATH#UID/NAME`, with a name that a segment can have.
#[derive(Clone, Debug)]
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

/// A target, with a name that a segment can have where it is one.
#[derive(Clone, Debug)]
pub enum Named {
    /// A file, a device or a whole volume.
    File(PathBuf),
    /// A segment of a volume.
    Segment(NamedSegment),
}

impl Named {
    /// What a target means. The name is checked before anything is opened: a bad one must not even raise the volume's epoch.
    ///
    /// # Errors
    /// It means nothing, or two things; no segment can have this name.
    pub fn resolve(command: &str, typed: &TypedTarget) -> Result<Named, Failure> {
        match Reached::resolve(command, typed)? {
            Reached::Here(named) => Ok(named),
            Reached::Served(_) => Err(typed.served(command)),
        }
    }
}

/// A target, here or behind a broker, with a name that a segment can have where it is one.
#[derive(Clone, Debug)]
pub enum Reached {
    /// A file, a device, a volume, or a segment of one.
    Here(Named),
    /// What a broker serves.
    Served(Served),
}

impl Reached {
    /// What a target means, for a command that works through a broker too.
    ///
    /// # Errors
    /// As [`Named::resolve`].
    pub fn resolve(command: &str, typed: &TypedTarget) -> Result<Reached, Failure> {
        let meant = typed.meant(command)?;
        let typed = typed.to_string();
        let check = |name: &str| match SegmentName::new(name) {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = Error::new("name", typed.clone(), error);
                Err(Failure::from_storage(command, typed.clone(), &error))
            }
        };
        match meant {
            Target::File(path) => Ok(Reached::Here(Named::File(path))),
            Target::Segment { volume, owner, name } => {
                check(&name)?;
                Ok(Reached::Here(Named::Segment(NamedSegment {
                    typed,
                    volume,
                    owner,
                    name,
                })))
            }
            Target::Served(served) => {
                served.name.as_deref().map_or(Ok(()), check)?;
                Ok(Reached::Served(served))
            }
        }
    }
}

impl NamedSegment {
    /// Resolves a target that must be a segment.
    ///
    /// # Errors
    /// As [`Named::resolve`]; it is none.
    pub fn resolve(command: &str, typed: &TypedTarget) -> Result<NamedSegment, Failure> {
        match Named::resolve(command, typed)? {
            Named::File(_) => Err(typed.segment_expected(command)),
            Named::Segment(named) => Ok(named),
        }
    }

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
    let mut core = Core::open(path, &Config::default())?;
    let done = work(&mut core);
    let closed = core.close();
    done.and_then(|value| closed.map(|()| value))
}
