//! What is behind the handles.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use baio::{Buffer, Errno, LentPages, Link, Log, LogRecord, Opened, Outcome, Pin, Records, StatusWord, Ticket};

use crate::failure::{Failure, Result};
use crate::table::Table;

/// Of which kind a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Link = 1,
    File,
    Buffer,
    Status,
    Log,
    Records,
    Pin,
    Pages,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Link => "link",
            Kind::File => "file or segment",
            Kind::Buffer => "buffer",
            Kind::Status => "status word",
            Kind::Log => "log",
            Kind::Records => "reader of a log",
            Kind::Pin => "pin of a page",
            Kind::Pages => "loan of pages",
        }
    }
}

/// An object, whichever link it is on.
pub(crate) enum Thing<L: Link> {
    Link(Arc<LinkState<L>>),
    File(FileState<L>),
    Buffer(BufferState),
    Status(StatusWord),
    Log(Log<L>),
    Records(Box<Mutex<RecordsState<L>>>),
    Pin(Pin<L>),
    Pages(LentPages),
}

impl<L: Link> Thing<L> {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Thing::Link(_) => Kind::Link,
            Thing::File(_) => Kind::File,
            Thing::Buffer(_) => Kind::Buffer,
            Thing::Status(_) => Kind::Status,
            Thing::Log(_) => Kind::Log,
            Thing::Records(_) => Kind::Records,
            Thing::Pin(_) => Kind::Pin,
            Thing::Pages(_) => Kind::Pages,
        }
    }

    pub(crate) fn as_link(&self) -> Result<&Arc<LinkState<L>>> {
        match self {
            Thing::Link(state) => Ok(state),
            _ => Err(other_kind(Kind::Link)),
        }
    }

    pub(crate) fn as_file(&self) -> Result<&FileState<L>> {
        match self {
            Thing::File(state) => Ok(state),
            _ => Err(other_kind(Kind::File)),
        }
    }

    pub(crate) fn as_buffer(&self) -> Result<&BufferState> {
        match self {
            Thing::Buffer(state) => Ok(state),
            _ => Err(other_kind(Kind::Buffer)),
        }
    }

    pub(crate) fn as_log(&self) -> Result<&Log<L>> {
        match self {
            Thing::Log(log) => Ok(log),
            _ => Err(other_kind(Kind::Log)),
        }
    }

    pub(crate) fn as_records(&self) -> Result<&Mutex<RecordsState<L>>> {
        match self {
            Thing::Records(records) => Ok(records),
            _ => Err(other_kind(Kind::Records)),
        }
    }

    pub(crate) fn as_pin(&self) -> Result<&Pin<L>> {
        match self {
            Thing::Pin(pin) => Ok(pin),
            _ => Err(other_kind(Kind::Pin)),
        }
    }

    pub(crate) fn as_pages(&self) -> Result<&LentPages> {
        match self {
            Thing::Pages(pages) => Ok(pages),
            _ => Err(other_kind(Kind::Pages)),
        }
    }

    pub(crate) fn as_status(&self) -> Result<&StatusWord> {
        match self {
            Thing::Status(word) => Ok(word),
            _ => Err(other_kind(Kind::Status)),
        }
    }
}

fn other_kind(wanted: Kind) -> Failure {
    let text = format!("use a {}: the handle is of another kind", wanted.name());
    Failure::new(Errno::EBADF, text, "pass the handle that the call's declaration names")
}

/// A link, and its requests under way.
pub(crate) struct LinkState<L: Link> {
    pub(crate) link: L,
    pending: Mutex<Pending<L>>,
    /// Once a descriptor was asked for.
    pub(crate) event: OnceLock<OwnedFd>,
}

/// Requests that C has submitted and whose outcome it has not taken.
pub(crate) struct Pending<L: Link> {
    pub(crate) table: Table<UnderWay<L>>,
    pub(crate) count: usize,
}

/// One of them.
pub(crate) struct UnderWay<L: Link> {
    /// The caller's name for it.
    pub(crate) tag: u64,
    /// A thread waits for this one: nobody else takes its outcome.
    pub(crate) is_awaited: bool,
    /// Its outcome, which another thread came upon.
    pub(crate) put_by: Option<Outcome>,
    /// It reads: closing need not wait for it.
    pub(crate) reads: bool,
    /// None until it was started.
    pub(crate) ticket: Option<Ticket>,
    /// Gets its memory back.
    pub(crate) buffer: Option<Arc<Thing<L>>>,
    /// Open until the request has ended.
    pub(crate) _file: Opened<L>,
}

impl<L: Link> LinkState<L> {
    pub(crate) fn new(link: L) -> LinkState<L> {
        LinkState {
            link,
            pending: Mutex::new(Pending {
                table: Table::new(),
                count: 0,
            }),
            event: OnceLock::new(),
        }
    }

    pub(crate) fn pending(&self) -> MutexGuard<'_, Pending<L>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open file or segment.
pub(crate) struct FileState<L: Link> {
    pub(crate) opened: Opened<L>,
    pub(crate) on: Arc<LinkState<L>>,
}

/// A reader of a log.
pub(crate) struct RecordsState<L: Link> {
    pub(crate) records: Records<L>,
    /// Its bytes are shown to the caller.
    pub(crate) last: Option<LogRecord>,
}

/// A buffer, wherever its memory is.
pub(crate) struct BufferState {
    place: Mutex<Place>,
    pub(crate) len: usize,
}

/// Where the memory of a buffer is.
pub(crate) enum Place {
    /// The caller may use it.
    Here(Buffer),
    /// A request has it.
    InFlight,
    /// The kernel may still be at it, after a deadline or a cancel, or a broker that was left: it comes back to the arena by itself.
    Lost,
}

impl BufferState {
    pub(crate) fn new(buffer: Buffer) -> BufferState {
        BufferState {
            len: buffer.len(),
            place: Mutex::new(Place::Here(buffer)),
        }
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory for a request.
    pub(crate) fn take(&self) -> Result<Buffer> {
        let mut place = self.place();
        match std::mem::replace(&mut *place, Place::InFlight) {
            Place::Here(buffer) => Ok(buffer),
            other => {
                let failure = other.refusal();
                *place = other;
                Err(failure)
            }
        }
    }

    /// The request has ended, with or without its memory.
    pub(crate) fn give_back(&self, buffer: Option<Buffer>) {
        *self.place() = match buffer {
            Some(mut buffer) => {
                buffer.set_len(self.len);
                Place::Here(buffer)
            }
            None => Place::Lost,
        };
    }
}

impl Place {
    /// Why the caller may not use it.
    pub(crate) fn refusal(&self) -> Failure {
        match self {
            Place::Lost => Failure::new(
                Errno::ESTALE,
                "use a buffer: the kernel or a broker may still use its memory, since its request was given up",
                "free the handle, and take another buffer",
            ),
            Place::InFlight | Place::Here(_) => Failure::new(
                Errno::EBUSY,
                "use a buffer: a request under way has it",
                "take the outcome of the request first (baio_reap, baio_wait)",
            ),
        }
    }
}
