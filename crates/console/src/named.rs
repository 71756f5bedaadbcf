//! The volume and the segment that a command line names.

use std::path::PathBuf;

use baio::{Error, Identity, SegmentName};

use crate::failure::Failure;

/// Where a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// In this file or device.
    Here(PathBuf),
    /// Behind the broker at this socket.
    Served(PathBuf),
}

impl Volume {
    /// Does a broker serve it?
    pub fn is_served(&self) -> bool {
        matches!(self, Volume::Served(_))
    }
}

/// `PATH#NAME` or `PATH#UID/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSegment {
    /// As it was typed, for messages.
    pub typed: String,
    /// Where its volume is.
    pub volume: Volume,
    /// The owner, where one was typed.
    pub owner: Option<u32>,
    /// The segment's name.
    pub name: String,
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
    pub fn told<T>(&self, command: &str, result: baio::Result<T>) -> Result<T, Failure> {
        result.map_err(|error| Failure::from_storage(command, self.typed.clone(), &error))
    }
}
