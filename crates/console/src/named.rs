//! The segment that a command line names.

use std::path::PathBuf;

use baio_engine::Config;
use baio_storage::segment::name::SegmentName;
use baio_storage::{Core, Error, Identity};

use crate::failure::Failure;
use crate::target::{Target, TypedTarget, exists_on_disk};

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

impl NamedSegment {
    /// Resolves a target that must be a segment.
    pub fn resolve(command: &str, typed: &TypedTarget) -> Result<NamedSegment, Failure> {
        let target = typed.resolve(exists_on_disk);
        match target.map_err(|error| error.into_failure(command))? {
            Target::File(_) => Err(typed.segment_expected().into_failure(command)),
            Target::Segment { volume, owner, name } => NamedSegment::checked(command, typed, volume, owner, name),
        }
    }

    /// Checks the name before anything is opened: a bad one must not even raise the volume's epoch.
    pub fn checked(
        command: &str,
        typed: &TypedTarget,
        volume: PathBuf,
        owner: Option<u32>,
        name: String,
    ) -> Result<NamedSegment, Failure> {
        let typed = typed.to_string();
        if let Err(error) = SegmentName::new(&name) {
            let error = Error::new("name", typed.clone(), error);
            return Err(Failure::from_storage(command, typed, &error));
        }
        Ok(NamedSegment {
            typed,
            volume,
            owner,
            name,
        })
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

    /// Opens the volume to write, does something, and closes it cleanly whatever came of it.
    pub fn with_volume<T>(
        &self,
        command: &str,
        work: impl FnOnce(&mut Core) -> baio_storage::Result<T>,
    ) -> Result<T, Failure> {
        let mut core = self.told(command, Core::open(&self.volume, &Config::default()))?;
        let done = work(&mut core);
        let closed = core.close();
        self.told(command, done.and_then(|value| closed.map(|()| value)))
    }
}
