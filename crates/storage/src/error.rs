//! The one error of this crate: what was being done, to what, where, and what went wrong.
//!
//! [`Fault`] is typed, so that callers can decide; [`Error`] puts operation, object and offset around it, and knows code, need and cure.

use std::ops::Deref;

use baio_engine::Errno;
use baio_words::{DEVICE_CURE, Problem, RequestError, RequestFault};

use crate::segment::name::NameError;
use fault::of_a_request;

pub use fault::Fault;

mod fault;
mod of_log;
mod shown;
#[cfg(test)]
mod tests;
mod told;

/// What was asked, of what, at which byte, what went wrong, what was needed, and the cure.
///
/// Decide by [`code`](Error::code), [`errno`](Error::errno) or the typed `fault`, and not by the text. The fields are those of [`ErrorContext`].
///
/// ```
/// # use baio_storage as baio;
/// use baio::{Error, Fault};
///
/// fn advice(error: &Error) -> String {
///     match &error.fault {
///         Fault::Busy { holder: Some(process) } => format!("{} is open in process {process}", error.object),
///         Fault::NoSpace { asked, .. } => format!("make room for {asked} bytes"),
///         _ if error.code() == "ENOENT" => format!("there is no {}", error.object),
///         _ => error.to_string(), // One line with the cure.
///     }
/// }
///
/// let error = Error::new("open volume", "/tmp/vol", Fault::Busy { holder: Some(4711) });
/// assert_eq!(advice(&error), "/tmp/vol is open in process 4711");
/// ```
///
/// `Display` is one line. `Debug`, which `unwrap` and `main` show, has need and cure on lines of their own, and as `{:#?}` the fields.
// A pointer: on every request results are moved about, and hardly one is an error.
#[derive(Clone)]
pub struct Error(Box<ErrorContext>);

/// What an [`Error`] says; it is read through it, as `error.fault`.
#[derive(Clone, Debug)]
pub struct ErrorContext {
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
        Error(Box::new(ErrorContext {
            operation,
            object: object.into(),
            offset: None,
            fault: fault.into(),
        }))
    }

    /// What went wrong, without where.
    #[must_use]
    pub fn into_fault(self) -> Fault {
        self.0.fault
    }

    /// Did the system refuse the I/O itself?
    pub(crate) fn is_the_devices(&self) -> bool {
        matches!(self.fault, Fault::Io(baio_engine::Error::System(_)))
    }

    /// The same, met by a repair that may have given this up by then.
    pub(crate) fn of_a_repair(self, lost: Vec<Problem>) -> Error {
        let (operation, object, offset) = (self.operation, self.object.clone(), self.offset);
        let fault = Fault::RepairCut { error: self, lost };
        Error(Box::new(ErrorContext {
            operation,
            object,
            offset,
            fault,
        }))
    }

    /// The same, met in another operation.
    pub(crate) fn during(mut self, operation: &'static str) -> Error {
        self.0.operation = operation;
        self
    }

    /// Says at which byte.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Error {
        self.0.offset = Some(offset);
        self
    }

    /// The word that stands for the error in JSON.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match &self.fault {
            fault @ of_a_request!() => fault.of_request().map_or("EIO", RequestFault::code),
            Fault::Latched => "EPOISONED",
            Fault::Told(failed) => told::code(failed),
            Fault::RepairCut { error, .. } => error.code(),
            Fault::NotFar(_) | Fault::OlderBroker(_) => "EOPNOTSUPP",
            Fault::Log(error) => of_log::code(error),
            Fault::Setup(error) => error.errno.name(),
            Fault::NotVolume(_) => "ENOTVOLUME",
            Fault::Version(_) => "EVERSION",
            Fault::Corrupt(_) => "ECORRUPT",
            Fault::LostWrite { .. } | Fault::Unreadable { .. } | Fault::Shrunk { .. } | Fault::Unexpected(_) => "EIO",
            Fault::Busy { .. } | Fault::Moving => "EBUSY",
            Fault::Overtaken { .. } => "ESTALE",
            Fault::Occupied(_) | Fault::Exists => "EEXIST",
            Fault::NoSpace { .. } | Fault::TableFull { .. } => "ENOSPC",
            Fault::OverQuota { .. } => "EDQUOT",
            Fault::NotFound => "ENOENT",
            Fault::Access { .. } | Fault::Group { .. } => "EACCES",
            Fault::Name(NameError::TooLong { .. }) => "ENAMETOOLONG",
            Fault::Name(_) | Fault::Layout(_) | Fault::BadSize(_) | Fault::WouldCut { .. } => "EINVAL",
            Fault::MoveStopped { .. } => "EAGAIN",
            Fault::ReadOnlyVolume => "EROFS",
            Fault::NoMemory { .. } => "ENOBUFS",
        }
    }

    /// The error number, for interfaces that have nothing else: the system's where it said one, else the one that
    /// [`Error::code`] names, or the nearest.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        Some(match &self.fault {
            fault @ of_a_request!() => fault.of_request()?.errno(),
            Fault::Setup(error) => error.errno,
            Fault::Log(error) => of_log::errno(error),
            Fault::Told(failed) => told::errno(failed),
            Fault::RepairCut { error, .. } => return error.errno(),
            Fault::NotFar(_) | Fault::OlderBroker(_) => Errno::EOPNOTSUPP,
            Fault::Corrupt(_) | Fault::Latched | Fault::Unexpected(_) => Errno::EIO,
            Fault::LostWrite { .. } | Fault::Unreadable { .. } | Fault::Shrunk { .. } => Errno::EIO,
            Fault::Busy { .. } | Fault::Moving => Errno::EBUSY,
            Fault::Overtaken { .. } => Errno::ESTALE,
            Fault::Occupied(_) | Fault::Exists => Errno::EEXIST,
            Fault::NoSpace { .. } | Fault::TableFull { .. } => Errno::ENOSPC,
            Fault::OverQuota { .. } => Errno::EDQUOT,
            Fault::NotFound => Errno::ENOENT,
            Fault::Access { .. } | Fault::Group { .. } => Errno::EACCES,
            Fault::Name(NameError::TooLong { .. }) => Errno::ENAMETOOLONG,
            Fault::Name(_) | Fault::Layout(_) | Fault::BadSize(_) | Fault::WouldCut { .. } => Errno::EINVAL,
            Fault::NotVolume(_) | Fault::Version(_) => Errno::EINVAL,
            Fault::MoveStopped { .. } => Errno::EAGAIN,
            Fault::ReadOnlyVolume => Errno::EROFS,
            Fault::NoMemory { .. } => Errno::ENOBUFS,
        })
    }

    /// What was needed instead.
    #[must_use]
    pub fn need(&self) -> Option<String> {
        match &self.fault {
            fault @ of_a_request!() => fault.of_request()?.need(),
            Fault::Setup(error) => error.need.clone(),
            Fault::Log(error) => of_log::need(error),
            Fault::Told(failed) => failed.need.clone(),
            Fault::RepairCut { error, .. } => error.need(),
            Fault::NotFar(_) => Some("a volume that this process has open itself".into()),
            Fault::OlderBroker(_) => Some("a broker of this release".into()),
            Fault::NoSpace { asked, .. } => Some(format!("{asked} contiguous free bytes")),
            Fault::OverQuota {
                what,
                asked,
                used,
                limit,
                ..
            } => Some(format!(
                "a quota of {} {what}, it is {limit}",
                used.saturating_add(*asked)
            )),
            Fault::Name(_) => Some("1 to 255 bytes of UTF-8 without '#', '/' and control characters".into()),
            Fault::Access { .. } => Some(
                "the owner's uid, uid 0, or, to open it, a mode that gives the caller r to read and w to write".into(),
            ),
            Fault::Group { .. } => Some("the caller's own group, or uid 0".into()),
            Fault::Busy { .. } => Some("to be the only process that has it open".into()),
            Fault::Overtaken { .. } => Some("to be the only one that writes to it".into()),
            Fault::Layout(error) => shown::layout_need(error),
            Fault::BadSize(_) => Some("a size of at least one byte, and of no more than there is".into()),
            Fault::WouldCut { has, .. } => Some(format!(
                "a size of at least {has} bytes, or `--shrink`, to lose what stands behind"
            )),
            Fault::Latched => Some("a volume without a failed metadata write since it was opened".into()),
            Fault::Moving => Some("a segment whose move has ended".into()),
            Fault::LostWrite { .. } => Some("a device that stores what it acknowledges".into()),
            Fault::Unreadable { .. } => Some("a device that reads at least one copy of it".into()),
            Fault::Unexpected(_) => Some("an operation that knows what it waits for; this is a bug in baio".into()),
            Fault::Shrunk { needs, .. } => Some(format!("a file or device of at least {needs} bytes")),
            Fault::MoveStopped { mark } => Some(format!(
                "a range that ends or begins at byte {mark}, or a move that goes on"
            )),
            Fault::ReadOnlyVolume => Some("a volume opened to write".into()),
            Fault::NoMemory { asked } => Some(format!("{asked} contiguous free bytes in the arena")),
            _ => None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn cure(&self) -> Option<String> {
        let fixed = match &self.fault {
            fault @ of_a_request!() => return fault.of_request()?.cure_of(self.operation),
            Fault::Unreadable { .. } => Some(DEVICE_CURE),
            Fault::Setup(error) => return error.cure.clone(),
            Fault::Told(failed) => return failed.cure.clone(),
            Fault::RepairCut { error, .. } => {
                let again = "note what is lost, and run `baio check --repair` again once the cause is gone";
                let first = error.cure().map_or_else(String::new, |cure| format!("{cure}; "));
                return Some(first + again);
            }
            Fault::OlderBroker(_) => Some("restart the broker with the release of its client (`baio --version`)"),
            Fault::NotFar(_) => Some("open it without a broker (`Local::open`, `Remote::open`), or do without"),
            Fault::Log(_) => None, // It is in the line already.
            Fault::NotVolume(_) => Some("check the path"),
            Fault::Version(_) => Some("use a newer baio"),
            Fault::Corrupt(_) => Some("`baio check` names what is damaged, and with --repair saves what can be saved"),
            Fault::Busy { holder: Some(pid) } => {
                return Some(format!("wait for process {pid} to end, or stop it"));
            }
            Fault::Overtaken { .. } => Some(
                "find the other owner (a second machine, a loop device, a copy of the process), stop all, then `baio check`: \
                 nothing was noted by this one",
            ),
            Fault::Busy { holder: None } => Some("wait until the other process has ended"),
            Fault::Occupied(_) => Some("pass --force to overwrite it"),
            Fault::NoSpace { .. } => Some("delete a segment, or ask for a smaller one"),
            Fault::TableFull { .. } => Some("delete a segment, or format with a larger --segments"),
            Fault::OverQuota { .. } => Some("delete a segment, or have root raise the quota with `baio quota`"),
            Fault::Exists => Some("choose another name, or delete the segment first"),
            Fault::NotFound => Some("`baio list` shows the segments"),
            Fault::Access { .. } => Some("act as its owner, or as root; or have either give more by `baio chmod`"),
            Fault::Group { .. } => Some("leave the group out, or let root make the segment and name its owner"),
            Fault::Name(_) => Some("choose another name"),
            Fault::Layout(_) | Fault::BadSize(_) => Some("choose another size"),
            Fault::WouldCut { .. } => Some("copy what you need, then pass `--shrink` (`ResizeOptions::to_size`)"),
            Fault::Latched => Some("close the volume and open it again: recovery decides what holds"),
            Fault::Moving => Some("move the segment again, or open the volume again: its move goes on then"),
            Fault::LostWrite { .. } => {
                Some("do not trust this device; `baio check` shows what it has, and whether a write landed elsewhere")
            }
            Fault::Unexpected(_) => {
                Some("please report it; close the volume and open it again: recovery decides what holds")
            }
            Fault::Shrunk { ends: 0, .. } => Some(
                "a device: see in the kernel's log (`dmesg`) why it is gone, and bring it back; a file: somebody has emptied it, take a copy \
                 of it that is whole",
            ),
            Fault::Shrunk { .. } => Some(
                "close the volume and see why the file or device was cut; `baio check` names the segments that reach behind its end",
            ),
            Fault::MoveStopped { .. } => Some(
                "open the volume again or move the segment again: it goes on from there; what cannot be read must be written anew",
            ),
            Fault::ReadOnlyVolume => Some("open the volume to write"),
            Fault::NoMemory { .. } => {
                Some("drop buffers that are not needed, ask for less at a time, or open with a larger arena")
            }
        };
        fixed.map(str::to_owned)
    }
}

impl Deref for Error {
    type Target = ErrorContext;

    fn deref(&self) -> &ErrorContext {
        &self.0
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        Error(Box::new(ErrorContext {
            operation: error.operation,
            object: error.object,
            offset: error.offset,
            fault: error.fault.into(),
        }))
    }
}
