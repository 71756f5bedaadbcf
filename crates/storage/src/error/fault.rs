//! What can go wrong, typed, so that callers can decide by it; and what is said of each in a line.

use std::fmt;

use baio_engine::{Errno, SetupError};
use baio_words::session::Failed;
use baio_words::{Lost, Problem, RequestFault};

use super::Error;
use crate::cache::CacheError;
use crate::log::LogError;
use crate::segment::layout::LayoutError;
use crate::segment::name::NameError;
use crate::volume::accounts::{Limited, OverQuota};

/// What went wrong, for programs that decide by it. Most of them need only a few: [`NoSpace`](Fault::NoSpace) and
/// [`OverQuota`](Fault::OverQuota), [`Busy`](Fault::Busy), [`NotFound`](Fault::NotFound) and [`Exists`](Fault::Exists),
/// [`Log`](Fault::Log) with what a log says, and [`Io`](Fault::Io) with what the system said.
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
    /// Another owner has written to the volume since this one opened it, in spite of the lock.
    Overtaken {
        /// The sequence of the superblock that is there; 0 if none is.
        found: u64,
        /// Of the one that should be there.
        ours: u64,
    },
    /// Something is there already that must not be overwritten.
    Occupied(String),
    /// No run of free blocks is long enough.
    NoSpace {
        /// Bytes asked for.
        asked: u64,
        /// Bytes free; `None` to whom the volume's figures are not shown.
        free: Option<u64>,
        /// Bytes in the longest free run; `None` as well.
        largest: Option<u64>,
    },
    /// The inode table is full.
    TableFull {
        /// Segments that the volume was formatted for; `None` to whom the volume's figures are not shown.
        segments_max: Option<u64>,
    },
    /// The owner may not hold so much.
    OverQuota {
        /// The owner.
        uid: u32,
        /// "bytes" or "segments".
        what: &'static str,
        /// How many more were asked for.
        asked: u64,
        /// How many the owner holds.
        used: u64,
        /// How many it may hold.
        limit: u64,
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
    /// The caller may not make a segment of this group.
    Group {
        /// The group.
        gid: u32,
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
    /// The size would cut off bytes, and the caller asked that none be cut off.
    WouldCut {
        /// Size in bytes that it has.
        has: u64,
        /// Size in bytes that was asked for.
        asked: u64,
    },
    /// The core was not given a page cache.
    NoCache,
    /// The page cache could not do it.
    Cache(CacheError),
    /// A log could not do it.
    Log(Box<LogError>),
    /// Not available yet.
    NotYet(&'static str),
    /// An earlier metadata write failed, so the volume refuses changes: open it again.
    Latched,
    /// The device acknowledged a write of metadata and did not store it there: lost, or put elsewhere.
    LostWrite {
        /// Which page did not take its write.
        page: String,
        /// Where it lies on the device, in bytes.
        at: u64,
    },
    /// The device cannot read metadata now, and no other copy has it.
    Unreadable {
        /// Which.
        what: String,
        /// Where the first of them lies on the device, in bytes.
        at: u64,
    },
    /// The file or device has become smaller than the volume on it, while the volume was open.
    Shrunk {
        /// Where it ends now, in bytes.
        ends: u64,
        /// Where the volume ends.
        needs: u64,
    },
    /// A repair failed when it may have given up already what could not be saved.
    RepairCut {
        /// With what.
        error: Error,
        /// What is lost, all of it; the line of the error names the first 16. The next check names of it what the repair had not come to.
        lost: Vec<Problem>,
    },
    /// An operation was told of something that it does not wait for: a bug in this crate.
    Unexpected(&'static str),
    /// The move of the segment was stopped by an error, and the request or operation needs the move to go on.
    MoveStopped {
        /// How many bytes of the segment are in its new place; the rest is still in the old one.
        mark: u64,
    },
    /// The segment is being moved, and its move was stopped by an error.
    Moving,
    /// The volume was opened to read only.
    ReadOnlyVolume,
    /// A request cannot change the size of a segment: resize it.
    NotAFile,
    /// A log is open on it, and nothing else may write there.
    HasLog,
    /// A write through a handle that was opened for reading.
    ReadOnly,
    /// The handle's segment was deleted or closed.
    Stale,
    /// Nobody drives the link, so the request would never end.
    NobodyDrives,
    /// The thread or process that served the volume has ended.
    ServiceEnded,
    /// The thread that served it has ended with this error of the system.
    ServiceFailed(Errno),
    /// Another broker serves now, and the handle cannot be used there.
    Lost(Lost),
    /// An error that a broker sent.
    Told(Box<Failed>),
    /// Not available over a broker yet.
    NotFar(&'static str),
    /// The broker is of an older release, which does not know this.
    OlderBroker(&'static str),
    /// The buffer memory is used up.
    NoMemory {
        /// Bytes asked for.
        asked: u64,
    },
}

/// The faults that a client of a service can be told too: what is said of them stands in the words.
macro_rules! of_a_request {
    () => {
        Fault::Io(_)
            | Fault::Beyond { .. }
            | Fault::NoCache
            | Fault::Cache(_)
            | Fault::NotYet(_)
            | Fault::NotAFile
            | Fault::HasLog
            | Fault::ReadOnly
            | Fault::Stale
            | Fault::NobodyDrives
            | Fault::ServiceEnded
            | Fault::ServiceFailed(_)
            | Fault::Lost(_)
    };
}
pub(super) use of_a_request;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            fault @ of_a_request!() => fault.of_request().map_or(Ok(()), |fault| fault.fmt(f)),
            Fault::Setup(error) => write!(f, "cannot {} {}: {}", error.operation, error.object, error.errno),
            Fault::NotVolume(why) | Fault::Version(why) | Fault::Corrupt(why) => f.write_str(why),
            Fault::Busy { holder: Some(pid) } => write!(f, "in use by process {pid}"),
            Fault::Busy { holder: None } => {
                f.write_str("in use by a process that the kernel does not name, or of another user")
            }
            Fault::Overtaken { found, ours } => write!(
                f,
                "somebody else has written to it: its superblock has sequence {found}, this owner wrote {ours}"
            ),
            Fault::Occupied(what) | Fault::BadSize(what) => f.write_str(what),
            Fault::WouldCut { has, asked } => {
                write!(
                    f,
                    "it has {has} bytes, and a size of {asked} would cut off what stands behind"
                )
            }
            Fault::NoSpace {
                asked,
                free: Some(free),
                largest: Some(largest),
            } => write!(
                f,
                "no space: asked for {asked} bytes, {free} are free, the longest free run is {largest}"
            ),
            Fault::NoSpace { asked, .. } => write!(f, "no space: asked for {asked} bytes in one run"),
            Fault::TableFull {
                segments_max: Some(segments_max),
            } => write!(f, "no space: all {segments_max} segments are in use"),
            Fault::TableFull { segments_max: None } => f.write_str("no space: no other segment can be made"),
            Fault::OverQuota {
                uid,
                what,
                asked,
                used,
                limit,
            } => write!(
                f,
                "over quota: uid {uid} asked for {asked} {what}, holds {used} and may hold {limit}"
            ),
            Fault::Exists => f.write_str("a segment of this name exists"),
            Fault::NotFound => f.write_str("no such segment"),
            Fault::Access { uid } => write!(f, "uid {uid} may not do this"),
            Fault::Group { gid } => write!(f, "the caller is not in group {gid}"),
            Fault::Name(error) => write!(f, "{error}"),
            Fault::Log(error) => write!(f, "{error}"),
            Fault::Layout(error) => write!(f, "{error}"),
            Fault::Latched => f.write_str("an earlier metadata write failed"),
            Fault::Moving => f.write_str("the segment is being moved, and its move was stopped by an error"),
            Fault::LostWrite { page, at } => write!(
                f,
                "{page}, at byte {at} of the device, did not take its write, which the device acknowledged"
            ),
            Fault::Unreadable { what, at } => {
                write!(f, "cannot read what is there, at byte {at} of the device: {what}")
            }
            Fault::RepairCut { error, lost } => repair_cut(f, error, lost),
            Fault::Unexpected(event) => write!(f, "the operation was told of {event}, which it did not wait for"),
            Fault::Shrunk { ends, needs } => shrunk(f, *ends, *needs),
            Fault::MoveStopped { mark } => {
                write!(f, "the segment is half-moved: its move has stopped at byte {mark}")
            }
            Fault::ReadOnlyVolume => f.write_str("the volume was opened for reading only"),
            Fault::Told(failed) => f.write_str(&failed.what),
            Fault::NotFar(what) => write!(f, "{what} is not available over a broker yet"),
            Fault::OlderBroker(what) => write!(f, "{what} is not known to this broker, which is of an older release"),
            Fault::NoMemory { asked } => write!(f, "no buffer of {asked} bytes is free"),
        }
    }
}

/// Of a device that is taken away the kernel tells no size. Of a file that was emptied nothing is left either.
fn shrunk(f: &mut fmt::Formatter<'_>, ends: u64, needs: u64) -> fmt::Result {
    match ends {
        0 => f.write_str("the file or device is gone: nothing of it is left, while the volume is open"),
        _ => write!(
            f,
            "the device was cut while the volume was open: it ends at byte {ends}, the volume at {needs}"
        ),
    }
}

/// So many of the things that a repair has given up are named in a line.
const LOST_SHOWN_MAX: usize = 16;

fn repair_cut(f: &mut fmt::Formatter<'_>, error: &Error, lost: &[Problem]) -> fmt::Result {
    let said = |problem: &Problem| format!("{} ({})", problem.place.object, problem.what);
    let shown: Vec<String> = lost.iter().take(LOST_SHOWN_MAX).map(said).collect();
    write!(
        f,
        "{}; the repair ends early, and this is lost, though a later check may not name it: {}",
        error.fault,
        shown.join("; ")
    )?;
    match lost.len().saturating_sub(LOST_SHOWN_MAX) {
        0 => Ok(()),
        more => write!(f, "; and {more} more"),
    }
}

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

impl From<RequestFault> for Fault {
    fn from(fault: RequestFault) -> Fault {
        match fault {
            RequestFault::Io(error) => Fault::Io(error),
            RequestFault::Beyond { len, size, write } => Fault::Beyond { len, size, write },
            RequestFault::NoCache => Fault::NoCache,
            RequestFault::Cache(error) => Fault::Cache(error),
            RequestFault::NotYet(what) => Fault::NotYet(what),
            RequestFault::NotAFile => Fault::NotAFile,
            RequestFault::HasLog => Fault::HasLog,
            RequestFault::ReadOnly => Fault::ReadOnly,
            RequestFault::Stale => Fault::Stale,
            RequestFault::NobodyDrives => Fault::NobodyDrives,
            RequestFault::ServiceEnded => Fault::ServiceEnded,
            RequestFault::ServiceFailed(errno) => Fault::ServiceFailed(errno),
            RequestFault::Lost(lost) => Fault::Lost(lost),
        }
    }
}

impl Fault {
    /// The same in the words that a client knows; `None` for what no request says, only an open volume or an operation on it.
    #[must_use]
    pub fn of_request(&self) -> Option<RequestFault> {
        Some(match self {
            Fault::Io(error) => RequestFault::Io(*error),
            &Fault::Beyond { len, size, write } => RequestFault::Beyond { len, size, write },
            Fault::NoCache => RequestFault::NoCache,
            Fault::Cache(error) => RequestFault::Cache(*error),
            Fault::NotYet(what) => RequestFault::NotYet(what),
            Fault::NotAFile => RequestFault::NotAFile,
            Fault::HasLog => RequestFault::HasLog,
            Fault::ReadOnly => RequestFault::ReadOnly,
            Fault::Stale => RequestFault::Stale,
            Fault::NobodyDrives => RequestFault::NobodyDrives,
            Fault::ServiceEnded => RequestFault::ServiceEnded,
            Fault::ServiceFailed(errno) => RequestFault::ServiceFailed(*errno),
            Fault::Lost(lost) => RequestFault::Lost(*lost),
            _ => return None,
        })
    }

    /// Accounts count blocks; people count bytes.
    #[must_use]
    pub fn over_quota(over: OverQuota, block_size: u32) -> Fault {
        let (what, unit) = match over.what {
            Limited::Blocks => ("bytes", u64::from(block_size)),
            Limited::Segments => ("segments", 1),
        };
        Fault::OverQuota {
            uid: over.uid,
            what,
            asked: over.asked.saturating_mul(unit),
            used: over.used.saturating_mul(unit),
            limit: over.limit.saturating_mul(unit),
        }
    }
}
