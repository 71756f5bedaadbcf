//! The durable log: records that are appended without waiting, and are safe when they are said to be.
//!
//! | file | what it holds |
//! |---|---|
//! | `log.rs` | opening a log, appending to it, what is asked of it |
//! | `waiting.rs` | futures: until a record is durable, until there is room |
//! | `reading.rs` | its records, to the durable end or following it |
//! | `events.rs` | an event fd that tells of progress |
//!
//! Appending crosses no ring: a record goes into memory that the caller's thread and the core share, and the core's next turn writes
//! all that has gathered there as one batch.

mod events;
mod reading;
mod waiting;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use baio_broker::control::{Call, Reply};
use baio_storage::log::{
    Appender, LogAnswer, LogError, LogOptions, LogRequest, LogStart, LogUsage, Lsn, Recovered, Retained,
};
use baio_storage::{Error, Fault, HeldLog, Result};

pub use self::events::LogEvents;
pub use self::reading::{LogRecord, NextRecord, Records};
use self::waiting::WAIT;
pub use self::waiting::{Durable, Room};
use crate::opened::Opened;
use crate::operation::Operation;
use crate::trace;
use crate::transport::{Notice, Transport};

/// An open log of records, which takes up a whole file or segment. A record is safe when [`durable`](Log::durable) says so, with everything
/// before it: the next opening finds it. Clones share the log; dropping the last one closes it and its readers. Over
/// [`Remote`](crate::Remote) any number of threads append.
///
/// ```
/// use baio::{File, Link, LogOptions, Remote};
/// # fn main() -> baio::Result<()> {
/// # let path = std::env::temp_dir().join(format!("baio-log-doc-{}", std::process::id()));
/// let link = Remote::new()?;
/// let file = File::options().write().create().open(&link, &path).wait()?;
/// let options = LogOptions { file_bytes: 4 << 20, ..LogOptions::default() };
/// let log = file.open_or_create_log(&options).wait()?;
/// log.append(b"debit")?; // In memory. Never waits.
/// let last = log.append(b"credit")?;
/// log.durable(last).wait()?; // Both are safe.
/// log.close().wait()?;
///
/// // Another day: what was acknowledged is there.
/// let log = file.open_or_create_log(&options).wait()?;
/// let mut records = log.records(log.head_lsn());
/// assert_eq!(records.next_record().wait()?.unwrap().payload(), b"debit");
///
/// // A log never grows by itself. Give up what you do not need, or `append` fails with ENOSPC one day.
/// log.truncate(last).wait()?;
/// assert_eq!(log.head_lsn(), last);
/// # drop((records, log, file));
/// # std::fs::remove_file(&path).unwrap();
/// link.close()
/// # }
/// ```
pub struct Log<L: Transport> {
    shared: Arc<Shared<L>>,
}

struct Shared<L: Transport> {
    // Dropped first: the log is wound down while its handle is open.
    held: HeldLog,
    appender: Appender,
    found: Recovered,
    opened: Opened<L>,
}

impl<L: Transport> Shared<L> {
    /// An append or a wait has failed.
    fn failed(&self, what: &'static str, error: LogError) -> Error {
        let error = self.held.failed(what, error);
        trace::log_failed(&error);
        error
    }
}

impl<L: Transport> Drop for Shared<L> {
    fn drop(&mut self) {
        trace::log_closed(self.held.name(), &self.appender);
    }
}

impl<L: Transport> Clone for Log<L> {
    fn clone(&self) -> Log<L> {
        Log {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<L: Transport> fmt::Debug for Log<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({})", self.name())
    }
}

impl<L: Transport> Opened<L> {
    /// Makes a log in the whole file or segment, and opens it. Everything that was there is lost, another log too: most programs want
    /// [`Opened::open_or_create_log`]. The space that it needs is filled with zeros, so that later writes change no metadata. A plain file that is shorter
    /// than [`LogOptions::file_bytes`] is made as long first.
    pub fn create_log(&self, options: &LogOptions) -> Operation<L, Log<L>> {
        self.start_log(LogStart::Create, options)
    }

    /// Opens the log in it, after recovery: every record that was acknowledged is there, in order, without a gap.
    /// [`Log::found`] says what else was found. While it is open nothing else on this link can write, delete or shorten the file or segment.
    /// A plain file is locked (`flock`), so that no other process, and no other link, opens the log.
    pub fn open_log(&self, options: &LogOptions) -> Operation<L, Log<L>> {
        self.start_log(LogStart::Open, options)
    }

    /// Opens the log that is there, as [`Opened::open_log`] does, or makes one where none was ever made. Begin a program with this: it may be
    /// killed at each step. A log is made where there are only zeros, or where an earlier making was cut off. Other bytes stay as they are, and
    /// the error says where they begin. A new log makes a plain file as long as [`LogOptions::file_bytes`] says. Do not allocate the file
    /// before: if a copy of a log was cut short, that would put zeros where records are missing.
    ///
    /// ```
    /// use baio::{File, Link, LogOptions, Remote};
    /// # fn main() -> baio::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("baio-open-or-create-{}", std::process::id()));
    /// let link = Remote::new()?;
    /// let file = File::options().write().create().open(&link, &path).wait()?;
    /// let options = LogOptions { file_bytes: 4 << 20, ..LogOptions::default() };
    /// let log = file.open_or_create_log(&options).wait()?;
    /// log.append_durable(b"credit 5").wait()?;
    /// # drop((log, file));
    /// # let _ = std::fs::remove_file(path);
    /// # link.close() }
    /// ```
    pub fn open_or_create_log(&self, options: &LogOptions) -> Operation<L, Log<L>> {
        self.start_log(LogStart::OpenOrCreate, options)
    }

    fn start_log(&self, start: LogStart, options: &LogOptions) -> Operation<L, Log<L>> {
        let (handle, options) = (self.handle(), *options);
        self.ask_for(Call::StartLog { handle, start, options }, log_of)
    }

    /// From now on pages of this file or segment that are changed under an LSN ([`Pin::change`](crate::Pin::change)) wait for this log: each is
    /// written once the record with its LSN is durable. Nobody has to say so ([`Link::set_durable_lsn`](crate::Link::set_durable_lsn) is for a log
    /// of your own). This holds for all handles on it, until another log is set.
    pub fn set_log(&self, log: &Log<L>) -> Operation<L, ()> {
        let (handle, log) = (self.handle(), log.shared.held.id());
        self.ask(Call::SetLog { handle, log }, |reply| reply.is_done().then_some(()))
    }
}

fn log_of<L: Transport>(opened: Opened<L>, reply: Reply) -> Option<Log<L>> {
    match reply {
        Reply::Log(held, LogAnswer::Opened(found)) => {
            trace::log_opened(held.name(), &found);
            Some(Log {
                shared: Arc::new(Shared {
                    appender: match opened.link().link_facts().is_here {
                        true => held.appender().quiet(),
                        false => held.appender().clone(),
                    },
                    held,
                    found,
                    opened,
                }),
            })
        }
        _ => None,
    }
}

impl<L: Transport> Log<L> {
    /// The segment or file that it is in, as messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.held.name()
    }

    /// The link it was opened on.
    #[must_use]
    pub fn link(&self) -> &L {
        self.shared.opened.link()
    }

    /// What its opening found: where its records begin and end, whether it was closed before, and what was cut off.
    #[must_use]
    pub fn found(&self) -> &Recovered {
        &self.shared.found
    }

    /// Appends a record of up to 16 MiB and gives its LSN. Never waits: the record is in memory, and safe once
    /// [`Log::durable`] says so. Records are recovered in the order of their LSNs.
    ///
    /// # Errors
    /// `EAGAIN` when there is no room in memory before more is durable ([`Log::room`]); `ENOSPC` when the log is full
    /// ([`Log::truncate`], [`Log::grow`]) and for nothing else; too long; a write has failed (`EIO`, also where the device was full); the
    /// log was closed.
    pub fn append(&self, record: &[u8]) -> Result<Lsn> {
        self.appended(self.shared.appender.append(record))
    }

    /// Appends records as one group: recovered whole or not at all. Gives the LSN of the last.
    ///
    /// # Errors
    /// As [`Log::append`]; then none of them was appended.
    pub fn append_all(&self, records: &[&[u8]]) -> Result<Lsn> {
        self.appended(self.shared.appender.append_all(records))
    }

    fn appended(&self, appended: std::result::Result<Lsn, LogError>) -> Result<Lsn> {
        self.link().tell_link(Notice::Logged { calls_back: false });
        appended.map_err(|error| self.shared.failed("append to", error))
    }

    /// Until a record is durable, with all before it and the rest of its group.
    pub fn durable(&self, lsn: Lsn) -> Durable<L> {
        Durable::new(self, Ok(lsn))
    }

    /// Appends a record now, and waits until it is durable.
    pub fn append_durable(&self, record: &[u8]) -> Durable<L> {
        Durable::new(self, self.append(record))
    }

    /// Every record below this LSN is durable, with its whole group. It costs one load from memory, so look at it as often as you like.
    #[must_use]
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.appender.durable_lsn()
    }

    /// The LSN of the oldest record that is kept.
    #[must_use]
    pub fn head_lsn(&self) -> Lsn {
        self.shared.appender.head_lsn()
    }

    /// Records that are appended from now on have this LSN or a later one. To wait for all that was appended, do not wait for this LSN, whose
    /// record is still to come, but for the last one that [`Log::append`] gave.
    #[must_use]
    pub fn end_lsn(&self) -> Lsn {
        self.shared.appender.end_lsn()
    }

    /// Calls this when a record is durable, or never will be. It runs on the thread that drives the link, so it must not block. If the log is
    /// closed already, it runs at once in this thread. A panic in it prints its message, and disturbs nobody else.
    pub fn when_durable(&self, lsn: Lsn, callback: impl FnOnce(Result<()>) + Send + 'static) {
        let name = self.name().to_owned();
        let callback = move |result: std::result::Result<(), LogError>| {
            let result = result.map_err(|error| Error::of_log(WAIT, &name, error));
            // Two that panic while a core goes would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(result)));
        };
        self.shared.appender.when_durable(lsn, Box::new(callback));
        self.link().tell_link(Notice::Logged { calls_back: true }); // It may be so already.
    }

    /// Waits until an append of so many bytes may succeed again. Others may append first: then wait again. In a full log (`ENOSPC`)
    /// it waits until somebody truncates or grows the log.
    pub fn room(&self, bytes: usize) -> Room<L> {
        Room::new(self, bytes)
    }

    /// An event fd that is readable whenever more has become durable.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn events(&self) -> Result<LogEvents> {
        LogEvents::new(self.name(), &self.shared.appender)
    }

    /// Reads the records from this LSN on, or from the first after it, up to the last that is durable when the reader gets there.
    pub fn records(&self, from: Lsn) -> Records<L> {
        Records::new(self, from, false)
    }

    /// The same without an end: after the last record it waits until another is durable. When the log is closed it fails, though there may be
    /// records that it has not given: read these after the next opening.
    pub fn follow(&self, from: Lsn) -> Records<L> {
        Records::new(self, from, true)
    }

    /// Gives up the records before this LSN, as far as nobody retains them, so that their space is used again. Returns the oldest LSN that is
    /// kept. It does not wait for those who retain records: the log gives these up by itself later.
    pub fn truncate(&self, to: Lsn) -> Operation<L, Lsn> {
        self.ask(LogRequest::Truncate { to }, |answer| match answer {
            LogAnswer::Head(head) => Some(head),
            _ => None,
        })
    }

    /// Keeps the records from this LSN on, even if somebody truncates, until the value is dropped: for an archiver or a replica.
    /// This is not stored: after the next opening retain again before anybody truncates.
    pub fn retain(&self, from: Lsn) -> Retained {
        self.shared.appender.retain(from)
    }

    /// Its records, its space and its batches, in figures.
    pub fn usage(&self) -> Operation<L, LogUsage> {
        let call = Call::LogUsage(self.shared.held.id());
        self.shared.opened.ask(call, |reply| match reply {
            Reply::LogUsage(usage) => Some(*usage),
            _ => None,
        })
    }

    /// Lets the log use more of its segment or file, which must have been made larger before.
    pub fn grow(&self, size_bytes: u64) -> Operation<L, ()> {
        self.ask(LogRequest::Grow { size_bytes }, |_| Some(()))
    }

    /// Closes the log for all clones. What was appended becomes durable first, and the log is marked as closed, so that the next opening has
    /// nothing to recover.
    pub fn close(&self) -> Operation<L, ()> {
        self.ask(LogRequest::Close, |_| Some(()))
    }

    fn ask<T>(
        &self,
        request: LogRequest,
        read: impl FnOnce(LogAnswer) -> Option<T> + Send + Sync + 'static,
    ) -> Operation<L, T> {
        let log = self.shared.held.id();
        let call = Call::OnLog { log, request };
        self.shared.opened.ask(call, |reply| match reply {
            Reply::OnLog(answer) => read(answer),
            _ => None,
        })
    }

    /// With nobody who turns the core, waiting would last for ever.
    fn nobody(&self) -> Option<Fault> {
        let link = self.link();
        link.link_facts().is_here.then(|| link.nobody_drives()).flatten()
    }
}
