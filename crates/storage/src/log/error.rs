//! What can go wrong with a log.

use std::fmt;

use baio_engine::Errno;

use super::Lsn;

/// Why a log did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// No room now: in memory, until more of what was appended is durable.
    WouldBlock,
    /// No room in the area, until the log is truncated or made larger.
    Full,
    /// The record, or the group, is longer than this log ever takes.
    TooLong {
        /// Bytes of the payloads.
        bytes: u64,
        /// The most that one record alone may have.
        max: u64,
    },
    /// A write failed. Nothing from this LSN on is acknowledged; what becomes of it only the next opening knows.
    Failed {
        /// What the device said.
        errno: Errno,
        /// The first LSN that is not acknowledged.
        lsn: Lsn,
    },
    /// A record with this LSN was appended before an earlier crash, if ever, and did not outlive it.
    Lost {
        /// Where what outlived the crash ends.
        end: Lsn,
        /// The first LSN that was given after it.
        next: Lsn,
    },
    /// No record has this LSN yet, nor will the next one: nobody waits for that.
    NotYet {
        /// The next record gets this LSN, or a little more.
        end: Lsn,
    },
    /// The log is not open yet, or was closed.
    Closed,
    /// The area holds no log.
    NotLog,
    /// A log was being made there when its maker ended: nothing was ever appended to it.
    NotMade,
    /// The area holds no log, but other bytes, so none is made there unasked.
    Foreign {
        /// Where in the area the first of them is, in bytes.
        offset: u64,
    },
    /// The log has a format that this build does not know.
    Version(u32),
    /// Both copies of the header are damaged.
    HeaderLost,
    /// A batch that was durable is not there any more, and others behind it are or were.
    Rot {
        /// The end of what can be read in front of it.
        lsn: Lsn,
        /// Where in the area it lay, in bytes.
        offset: u64,
    },
    /// So much is missing or no batch that an opening does not go over all of it: no log of ours has become like that by itself.
    TooDamaged {
        /// The end of what can be read in front of it.
        lsn: Lsn,
        /// Where in the area that is, in bytes.
        offset: u64,
    },
    /// The space of these records has been given up.
    Truncated {
        /// The oldest LSN that is kept.
        head: Lsn,
    },
    /// Longer batches, a wider window or an area of this size do not go together.
    BadSize {
        /// Bytes of the area.
        size_bytes: u64,
        /// Bytes that it needs at least, for these batches and this window.
        need: u64,
    },
    /// The log has blocks that this device cannot write.
    BlockBytes {
        /// Of the log.
        log: u32,
        /// Of the device.
        device: u32,
    },
    /// The options are not possible.
    BadOptions(&'static str),
    /// The area is smaller than the log that its header tells of.
    Cut {
        /// Bytes of the area.
        size_bytes: u64,
        /// Bytes that the log has.
        need: u64,
    },
    /// No buffer could be had from the arena.
    NoMemory,
    /// A read failed. What is there nobody knows.
    Read {
        /// What the device said.
        errno: Errno,
        /// Where in the area, in bytes.
        offset: u64,
    },
    /// What is not the log's yet could not be written. The log goes on as it was.
    Write {
        /// What the device said.
        errno: Errno,
        /// Where in the area, in bytes.
        offset: u64,
    },
    /// The request does not go with what the log does now.
    Busy,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::WouldBlock => {
                f.write_str("no room in memory before more of what was appended is durable: wait for `room`, and append again")
            }
            LogError::Full => f.write_str(
                "the log is full: give up records (`truncate`), or make it larger (`grow`); `room` waits until somebody does",
            ),
            LogError::TooLong { bytes, max } => write!(
                f,
                "{bytes} bytes are more than this log takes at once ({max}): make the log or its buffer larger, or append in pieces"
            ),
            LogError::Failed {
                errno: Errno::ECHILD, ..
            } => f.write_str("this is a forked child, and the log is its parent's: open a log of its own there"),
            LogError::Failed { errno, lsn } => write!(
                f,
                "{}: nothing from LSN {lsn} on is acknowledged; {}, and open the log again",
                happened("a write failed", *errno),
                way_out(*errno)
            ),
            LogError::Lost { end, next } => write!(
                f,
                "lost at an earlier crash: records from LSN {end} on did not outlive it, and new ones have LSNs from {next} on"
            ),
            LogError::NotYet { end } => write!(
                f,
                "no such record yet: the next one gets LSN {end}; wait for an LSN that an append gave"
            ),
            LogError::Closed => f.write_str("the log is not open: open it again"),
            LogError::NotLog => f.write_str(
                "no log is there: check the path; `open_or_create_log` makes one where nothing was ever written",
            ),
            LogError::NotMade => f.write_str(
                "a log was being made there and is not finished; nothing was appended to it: make it by `open_or_create_log`, or anew",
            ),
            LogError::Foreign { offset } => write!(
                f,
                "no log is there, but other bytes, at byte {offset} of the area: check the path; `create_log` makes a log there, and destroys them"
            ),
            LogError::Version(version) => {
                write!(
                    f,
                    "the log has format version {version}, or features, that this build does not know: use a newer one"
                )
            }
            LogError::HeaderLost => {
                f.write_str("both copies of the log's header are damaged: restore the log from a copy")
            }
            LogError::Rot { lsn, offset } => write!(
                f,
                "what was durable at LSN {lsn}, byte {offset} of the area, cannot be read any more: restore it from a copy, or open with `salvage` to go on behind it"
            ),
            LogError::TooDamaged { lsn, offset } => write!(
                f,
                "behind LSN {lsn}, byte {offset} of the area, more is damaged than an opening goes over: restore it from a copy"
            ),
            LogError::Truncated { head } => write!(f, "given up: the oldest LSN that is kept is {head}"),
            LogError::BadSize { size_bytes, need } => write!(
                f,
                "{size_bytes} bytes are too few, {need} are needed for these batches and this window: make it larger, or `batch_bytes_max` smaller"
            ),
            LogError::BlockBytes { log, device } => {
                write!(
                    f,
                    "the log has blocks of {log} bytes, and the device writes {device}: in a plain file or on a device open it with both descriptions (through the page cache it is read and goes on), else copy the log's records into a new one"
                )
            }
            LogError::BadOptions(what) => f.write_str(what),
            LogError::Cut { size_bytes, need } => {
                write!(
                    f,
                    "the log has {need} bytes, and only {size_bytes} are there: restore the size"
                )
            }
            LogError::NoMemory => f.write_str("no memory for a batch: give the core a larger arena"),
            LogError::Read { errno, offset } => write!(
                f,
                "{}, which does not mean that the log is damaged: {}, and open it again{}",
                happened(&format!("byte {offset} of the area could not be read"), *errno),
                way_out(*errno),
                match *errno {
                    Errno::EPIPE => "",
                    _ => ", or copy it to a sound device (`baio dd conv=noerror,sync`) and open the copy",
                }
            ),
            LogError::Write { errno, offset } => write!(
                f,
                "{}, and the log goes on as it was: {}, and ask again",
                happened(&format!("byte {offset} of the area could not be written"), *errno),
                way_out(*errno)
            ),
            LogError::Busy => f.write_str("the log is doing that already"),
        }
    }
}

/// What has happened: the device has failed, or who was asked to do it has ended.
fn happened(what: &str, errno: Errno) -> String {
    match errno {
        Errno::EPIPE => format!("{what}, as the service or broker of the volume has ended"),
        errno => format!("{what} ({errno})"),
    }
}

/// What there is to do before the log is opened again.
fn way_out(errno: Errno) -> &'static str {
    match errno {
        Errno::EPIPE => "connect again",
        Errno::EFBIG => "raise the limit of file size (`ulimit -f`)",
        Errno::ENOSPC | Errno::EDQUOT => {
            "make room where the file lies, or below the device (extend the thin pool, or discard), or bring back a device that was taken away"
        }
        Errno::ENXIO | Errno::ENODEV => "bring the device back",
        _ => "see to the device",
    }
}

impl std::error::Error for LogError {}
