//! The one error of this crate: what was being done, to what, where, and what went wrong.
//!
//! [`Fault`] is typed, so that callers can decide; [`Error`] puts the operation, the object and the offset around it, and
//! knows the code, the need and the cure that the command line prints.

use std::fmt;

use baio_engine::{Errno, SetupError};

use crate::segment::free_set::NoSpace;
use crate::segment::layout::LayoutError;
use crate::segment::name::NameError;

/// What went wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// A request failed in the engine.
    Io(baio_engine::Error),
    /// A file, an arena or a backend could not be had.
    Setup(Box<SetupError>),
    /// The file carries no volume.
    NotVolume(String),
    /// The volume has a format that this build does not know.
    Version(String),
    /// Metadata is damaged beyond what its copies can mend.
    Corrupt(String),
    /// Another process has the volume open.
    Busy {
        /// Its process id, where the kernel names it.
        holder: Option<u32>,
    },
    /// Something is there already that must not be overwritten.
    Occupied(String),
    /// No run of free blocks is long enough.
    NoSpace {
        /// Bytes asked for.
        asked: u64,
        /// Bytes free.
        free: u64,
        /// Bytes in the longest free run.
        largest: u64,
    },
    /// Every place in the inode table is taken.
    TableFull {
        /// Segments that the volume was formatted for.
        segments_max: u64,
    },
    /// A segment of this name exists.
    Exists,
    /// No segment of this name exists.
    NotFound,
    /// The caller may not do this.
    Access {
        /// Who asked.
        uid: u32,
    },
    /// The name cannot be a segment's.
    Name(NameError),
    /// The volume cannot have this shape.
    Layout(LayoutError),
    /// The range lies beyond the end of the object.
    Beyond {
        /// Bytes from the offset.
        len: u64,
        /// Size of the object in bytes.
        size: u64,
        /// Was it a write?
        write: bool,
    },
    /// A size that cannot be.
    BadSize(String),
    /// Not built yet.
    NotYet(&'static str),
    /// An earlier metadata write failed; what the volume holds is known again after the next open.
    Latched,
    /// The handle's segment was deleted or closed.
    Stale,
    /// Nobody is there to complete the request.
    NobodyDrives,
    /// The buffer memory is used up.
    NoMemory {
        /// Bytes asked for.
        asked: u64,
    },
}

/// An error with its context.
#[derive(Clone, Debug)]
pub struct Error {
    /// What was being done: "open volume", "read".
    pub operation: &'static str,
    /// To what: a path, or `PATH#UID/NAME`.
    pub object: String,
    /// At which byte of it.
    pub offset: Option<u64>,
    /// What went wrong.
    pub fault: Fault,
}

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of an operation on an object.
    #[must_use]
    pub fn new(operation: &'static str, object: impl Into<String>, fault: impl Into<Fault>) -> Error {
        Error {
            operation,
            object: object.into(),
            offset: None,
            fault: fault.into(),
        }
    }

    /// Says at which byte.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Error {
        self.offset = Some(offset);
        self
    }

    /// The word that stands for the error in JSON (DESIGN §9).
    #[must_use]
    pub fn code(&self) -> &'static str {
        match &self.fault {
            Fault::Io(baio_engine::Error::Poisoned(_)) | Fault::Latched => "EPOISONED",
            Fault::Io(baio_engine::Error::Indeterminate) => "EINDETERMINATE",
            Fault::Io(error) => error.errno().name(),
            Fault::Setup(error) => error.errno.name(),
            Fault::NotVolume(_) => "ENOTVOLUME",
            Fault::Version(_) => "EVERSION",
            Fault::Corrupt(_) => "ECORRUPT",
            Fault::Busy { .. } => "EBUSY",
            Fault::Occupied(_) | Fault::Exists => "EEXIST",
            Fault::NoSpace { .. } | Fault::TableFull { .. } => "ENOSPC",
            Fault::NotFound => "ENOENT",
            Fault::Access { .. } => "EACCES",
            Fault::Name(NameError::TooLong { .. }) => "ENAMETOOLONG",
            Fault::Name(_) | Fault::Layout(_) | Fault::BadSize(_) => "EINVAL",
            Fault::Beyond { write: true, .. } => "ENOSPC",
            Fault::Beyond { .. } => "EINVAL",
            Fault::NotYet(_) => "EOPNOTSUPP",
            Fault::Stale => "ESTALE",
            Fault::NobodyDrives => "EDEADLK",
            Fault::NoMemory { .. } => "ENOBUFS",
        }
    }

    /// The system's error number, where the system said one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match &self.fault {
            Fault::Io(error) => Some(error.errno()),
            Fault::Setup(error) => Some(error.errno),
            _ => None,
        }
    }

    /// What was needed instead.
    #[must_use]
    pub fn need(&self) -> Option<String> {
        match &self.fault {
            Fault::Io(baio_engine::Error::Misaligned { argument, need, .. }) => {
                Some(format!("{argument} in multiples of {need} bytes"))
            }
            Fault::Setup(error) => error.need.clone(),
            Fault::NoSpace { asked, .. } => Some(format!("{asked} contiguous free bytes")),
            Fault::Beyond { size, .. } => Some(format!("offset plus length of at most {size} bytes")),
            Fault::Name(_) => Some("1 to 255 bytes of UTF-8 without '#', '/' and control characters".into()),
            Fault::Access { .. } => Some("the owner's uid, uid 0, or a mode that allows it".into()),
            Fault::Busy { .. } => Some("to be the only process that has the volume open".into()),
            _ => None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn cure(&self) -> Option<String> {
        let fixed = match &self.fault {
            Fault::Io(error) => error.cure(),
            Fault::Setup(error) => return error.cure.clone(),
            Fault::NotVolume(_) => Some("check the path; `baio format` makes a volume (and destroys what is there)"),
            Fault::Version(_) => Some("use a newer baio"),
            Fault::Corrupt(_) => Some("restore the volume from a backup, or copy what is still readable"),
            Fault::Busy { holder: Some(pid) } => {
                return Some(format!("wait for process {pid} to end, or stop it"));
            }
            Fault::Busy { holder: None } => Some("wait until the other process has ended"),
            Fault::Occupied(_) => Some("pass --force to overwrite it"),
            Fault::NoSpace { .. } => Some("delete a segment, or ask for a smaller one"),
            Fault::TableFull { .. } => Some("delete a segment, or format with a larger --segments"),
            Fault::Exists => Some("choose another name, or delete the segment first"),
            Fault::NotFound => Some("`baio list` shows the segments"),
            Fault::Access { .. } => Some("act as its owner, or as root"),
            Fault::Name(_) => Some("choose another name"),
            Fault::Layout(_) | Fault::BadSize(_) => Some("choose another size"),
            Fault::Beyond { write: true, .. } => Some("write less, or make a larger segment"),
            Fault::Beyond { .. } => Some("read less"),
            Fault::NotYet(_) => Some("use mode `direct`"),
            Fault::Latched => Some("close the volume and open it again: recovery decides what holds"),
            Fault::Stale => Some("open the segment again"),
            Fault::NobodyDrives => Some("run it inside `block_on`, keep a `drive()` beside it, or call `wait`"),
            Fault::NoMemory { .. } => Some("drop buffers that are not needed, or open with a larger arena"),
        };
        fixed.map(str::to_owned)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Io(error) => write!(f, "{error}"),
            Fault::Setup(error) => write!(f, "cannot {} {}: {}", error.operation, error.object, error.errno),
            Fault::NotVolume(why) | Fault::Version(why) | Fault::Corrupt(why) => f.write_str(why),
            Fault::Busy { holder: Some(pid) } => write!(f, "in use by process {pid}"),
            Fault::Busy { holder: None } => f.write_str("in use by a process that the kernel does not name"),
            Fault::Occupied(what) | Fault::BadSize(what) => f.write_str(what),
            Fault::NoSpace { asked, free, largest } => write!(
                f,
                "no space: asked for {asked} bytes, {free} are free, the longest free run is {largest}"
            ),
            Fault::TableFull { segments_max } => {
                write!(f, "no space: all {segments_max} segments are in use")
            }
            Fault::Exists => f.write_str("a segment of this name exists"),
            Fault::NotFound => f.write_str("no such segment"),
            Fault::Access { uid } => write!(f, "uid {uid} may not do this"),
            Fault::Name(error) => write!(f, "{error}"),
            Fault::Layout(error) => write!(f, "{error}"),
            Fault::Beyond { len, size, write } => write!(
                f,
                "{} of {len} bytes goes beyond its end at {size}",
                if *write { "a write" } else { "a read" }
            ),
            Fault::NotYet(what) => write!(f, "{what} is not available yet"),
            Fault::Latched => f.write_str("an earlier metadata write failed"),
            Fault::Stale => f.write_str("the segment behind this handle is gone"),
            Fault::NobodyDrives => f.write_str("nobody completes the requests of this link"),
            Fault::NoMemory { asked } => write!(f, "no buffer of {asked} bytes is free"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.object)?;
        if let Some(offset) = self.offset {
            write!(f, " at {offset}")?;
        }
        write!(f, ": {}", self.fault)?;
        if let Some(need) = self.need() {
            write!(f, "; needed: {need}")?;
        }
        if let Some(cure) = self.cure() {
            write!(f, "; cure: {cure}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<baio_engine::Error> for Fault {
    fn from(error: baio_engine::Error) -> Fault {
        Fault::Io(error)
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Io(baio_engine::Error::System(errno))
    }
}

impl From<SetupError> for Fault {
    fn from(error: SetupError) -> Fault {
        Fault::Setup(Box::new(error))
    }
}

impl From<NameError> for Fault {
    fn from(error: NameError) -> Fault {
        Fault::Name(error)
    }
}

impl From<LayoutError> for Fault {
    fn from(error: LayoutError) -> Fault {
        Fault::Layout(error)
    }
}

impl Fault {
    /// The allocator counts blocks; people count bytes.
    #[must_use]
    pub fn no_space(space: &NoSpace, block_size: u32) -> Fault {
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(block_size));
        Fault::NoSpace {
            asked: bytes(space.asked),
            free: bytes(space.free),
            largest: bytes(space.largest_run),
        }
    }
}
