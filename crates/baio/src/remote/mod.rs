//! A core on a thread of its own: any thread may use the link, and futures may be polled anywhere.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | what a user sees: the same as [`crate::Local`], with futures where that blocks |
//! | `asked.rs` | questions that are no requests, as futures |
//! | `carried.rs` | what the client carries to a service of this process: the arena's memory, commands as values |
//!
//! The client's half of the connection is a crate of its own ([`baio_client`]).
//!
//! The price against [`crate::Local`] is a hop to another thread and back; batches share it.

mod asked;
mod carried;

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use baio_broker::control::{Command, Reply};
use baio_broker::{Setup, start};
use baio_client::Ended;
use baio_engine::{Buffer, Config, Stats, Time, Wait};
use baio_storage::{
    Access, Core, CreateOptions, Error, Fault, Handle, Identity, Outcome, ResizeOptions, Result, SegmentInfo,
    SegmentRequest, Ticket, VolumeView,
};
use baio_words::RequestFault;

pub use self::asked::Asked;
pub use self::carried::Carried;
use self::carried::{Client, outcome};
use crate::link::Link;
use crate::local::Options;
use crate::segment::Segment;

/// A volume served by a thread of this process. Clones are the same volume; `Send` and `Sync`, as are its segments and
/// futures.
///
/// ```
/// use baio::{Access, CreateOptions, Remote};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("baio-remote-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("volume.img");
/// # baio::format(&path, &baio::Format { size_bytes: Some(16 << 20), force: true, ..baio::Format::default() })?;
/// let volume = Remote::open(&path)?;
/// let segment = volume.block_on(async {
///     volume.create_segment("shared", &CreateOptions::of_size(1 << 20)).await?;
///     volume.open_segment("shared", Access::Write).await
/// })??;
/// let threads: Vec<_> = (0..4_u64)
///     .map(|page| {
///         let (volume, segment) = (volume.clone(), segment.clone());
///         std::thread::spawn(move || {
///             let mut buffer = segment.buffer(4096)?;
///             buffer.fill(page as u8);
///             volume.block_on(segment.write_at(page * 4096, buffer))?.result
///         })
///     })
///     .collect();
/// for thread in threads {
///     assert_eq!(thread.join().unwrap()?, 4096);
/// }
/// volume.close()?;
/// # std::fs::remove_dir_all(dir)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Remote(Arc<Owner>);

/// Ends the service when the last link has gone.
struct Owner {
    client: Arc<Client>,
    identity: Identity,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.0.client.name())
    }
}

impl Owner {
    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join(); // A panic has been told by its own message, and by the requests' outcomes.
        }
    }
}

impl Drop for Owner {
    /// Without [`Remote::close`] the volume stays marked as in use, and the next open heals it. What is under way ends
    /// first, and the volume's lock is given back.
    fn drop(&mut self) {
        let _rest = Rest(self);
        self.client.refuse(); // Wakes whoever waits for a place: foreign code, which may panic.
    }
}

/// The end of the service and of the helper, whatever the wakers do.
struct Rest<'a>(&'a Owner);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.client.stop();
        self.0.join();
        self.0.client.dismiss_helper();
        self.0.client.look_once(); // The service has ended: whatever is left is told.
    }
}

impl Remote {
    /// Opens the volume at `path` on a new thread; this process then owns it.
    ///
    /// # Errors
    /// In use by another process (named), not a volume, damaged; or what the system said.
    pub fn open(path: impl AsRef<Path>) -> Result<Remote> {
        Remote::open_with(path, &Options::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Remote::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Remote> {
        let (path, how) = (path.as_ref().to_owned(), *options);
        Remote::around(move || how.open(&path), options)
    }

    /// A link to a core that `make` makes on the service's thread: a core stays on its thread.
    ///
    /// # Errors
    /// What `make` said, or that the thread could not be had.
    pub fn around(make: impl FnOnce() -> Result<Core> + Send + 'static, options: &Options) -> Result<Remote> {
        let Config { slots, .. } = options.config;
        let setup = Setup {
            identity: options.identity,
            places: slots,
        };
        let (client, thread) = Carried::client(start(setup, make)?);
        Ok(Remote(Arc::new(Owner {
            client: Arc::new(client),
            identity: options.identity,
            thread: Mutex::new(Some(thread)),
        })))
    }

    fn client(&self) -> &Arc<Client> {
        &self.0.client
    }

    /// Makes a segment of the caller's own; ends when it is durable.
    ///
    /// # Errors
    /// The future's: the name is taken or bad, there is no space; or what the system said.
    pub fn create_segment(&self, name: &str, options: &CreateOptions) -> Asked<SegmentInfo> {
        self.create_segment_of(self.0.identity.uid, name, options)
    }

    /// Makes a segment for another owner; only uid 0 may.
    ///
    /// # Errors
    /// As [`Remote::create_segment`], and `Access`.
    pub fn create_segment_of(&self, owner_uid: u32, name: &str, options: &CreateOptions) -> Asked<SegmentInfo> {
        let command = Command::Create {
            owner_uid,
            name: name.to_owned(),
            options: *options,
        };
        Asked::new(self, command, segment_of)
    }

    /// Opens a segment of the caller's own.
    ///
    /// # Errors
    /// The future's: there is none; or what the system said.
    pub fn open_segment(&self, name: &str, access: Access) -> Asked<Segment<Remote>> {
        self.open_segment_of(self.0.identity.uid, name, access)
    }

    /// Opens somebody's segment, if its mode allows it.
    ///
    /// # Errors
    /// As [`Remote::open_segment`], and `Access`.
    pub fn open_segment_of(&self, owner_uid: u32, name: &str, access: Access) -> Asked<Segment<Remote>> {
        let command = Command::Open {
            owner_uid,
            name: name.to_owned(),
            access,
        };
        Asked::new(self, command, |remote, reply| match reply {
            Reply::Opened(handle, info) => {
                let client = remote.client();
                client.remember(handle, format!("{}#{}/{}", client.name(), info.owner_uid, info.name));
                Some(Segment::new(remote.clone(), handle, info))
            }
            _ => None,
        })
    }

    /// Deletes a segment of the caller's own, when the requests under way on it have ended.
    ///
    /// # Errors
    /// The future's: there is none; or what the system said.
    pub fn delete_segment(&self, name: &str) -> Asked<()> {
        let command = Command::Delete {
            owner_uid: self.0.identity.uid,
            name: name.to_owned(),
        };
        Asked::new(self, command, |_, reply| {
            matches!(reply, Reply::Segment(_)).then_some(())
        })
    }

    /// Gives a segment of the caller's own another size; open handles see it at once. What it gains reads as zero. It is moved
    /// where neither its reserve nor free blocks behind it are enough, and is served meanwhile.
    ///
    /// # Errors
    /// The future's: there is none, there is no space, it is over quota; or what the system said.
    pub fn resize_segment(&self, name: &str, options: &ResizeOptions) -> Asked<SegmentInfo> {
        let command = Command::Resize {
            owner_uid: self.0.identity.uid,
            name: name.to_owned(),
            options: *options,
        };
        Asked::new(self, command, segment_of)
    }

    /// Gives a segment of the caller's own another name; open handles stay valid.
    ///
    /// # Errors
    /// The future's: there is none, the new name is taken or bad; or what the system said.
    pub fn rename_segment(&self, old: &str, new: &str) -> Asked<SegmentInfo> {
        let command = Command::Rename {
            owner_uid: self.0.identity.uid,
            old: old.to_owned(),
            new: new.to_owned(),
        };
        Asked::new(self, command, segment_of)
    }

    /// The segments that the caller may see. The service reads the table in one go; other requests go on in the kernel, and
    /// are answered behind it.
    ///
    /// # Errors
    /// The future's: the table cannot be read.
    pub fn list(&self) -> Asked<Vec<SegmentInfo>> {
        Asked::new(self, Command::List, |_, reply| match reply {
            Reply::Segments(list) => Some(list),
            _ => None,
        })
    }

    /// The volume as it is now, as far as this user may see it.
    ///
    /// # Errors
    /// The future's: the link is closed, the service has ended.
    pub fn info(&self) -> Asked<VolumeView> {
        Asked::new(self, Command::Info, |_, reply| match reply {
            Reply::Volume(info) => Some(info),
            _ => None,
        })
    }

    /// Counters of the service's engine. Blocks for the length of one hop.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters().map(|(stats, _)| stats).unwrap_or_default()
    }

    /// The backend that the service has chosen. Blocks for the length of one hop.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.counters().map_or("none", |(_, backend)| backend)
    }

    fn counters(&self) -> Result<(Stats, &'static str)> {
        let asked = Asked::new(self, Command::Counters, |_, reply| match reply {
            Reply::Counters(stats, backend) => Some((stats, backend)),
            _ => None,
        });
        asked.wait()
    }

    /// Sends what is queued, sleeps as long as `wait` allows, and reaps. Returns how many requests of this link ended
    /// meanwhile, whoever started them. Outcomes that lie untaken count towards `wait`, and with nothing in flight it does
    /// not sleep. A count of 0 sleeps until there is any news.
    ///
    /// # Errors
    /// The link is closed, or the service has ended, and nothing is left to be taken.
    pub fn turn(&self, wait: Wait) -> Result<usize> {
        let turned = match wait {
            Wait::No => self.client().turn_once(),
            Wait::Until {
                count,
                min_wait,
                deadline,
            } => self.client().turn(count, min_wait, deadline),
        };
        turned.map_err(|fault| Error::new("turn", self.client().name(), fault))
    }

    /// Takes the next outcome of requests started by ticket that nobody polls for, in the order of completion. Reaps nothing
    /// by itself.
    #[must_use]
    pub fn next_outcome(&self) -> Option<Outcome> {
        self.client().next_outcome().map(outcome)
    }

    /// Runs a future to its end in this thread, which sends and reaps meanwhile. Any thread may do so, also many at a time.
    ///
    /// # Errors
    /// The service has ended, or the link was closed, while the future waits for something else.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        let client = self.client();
        let done = client.block_on(future);
        done.map_err(|fault| Error::new("wait on", client.name(), fault))
    }

    /// Ends everything under way, marks the volume as closed properly, and gives it back. Blocks until then. Requests under
    /// way get their outcomes; later ones give `Stale`.
    ///
    /// # Errors
    /// What the system said, or that the service has ended before; the next open then heals the volume.
    pub fn close(self) -> Result<()> {
        let client = self.client();
        let ended = || Err(Error::new("close", client.name(), Fault::ServiceEnded));
        let Some(ticket) = client.begin_close(Box::new(Command::Close)) else {
            if client.refusal() == Some(RequestFault::ServiceEnded) {
                return ended();
            }
            // Another thread closes: its command is under way until the volume has been given back.
            client.wait_for_all();
            return Ok(());
        };
        let closed = match client.wait(ticket) {
            Some(Ended::Command(answer)) => answer.map_err(Error::from).flatten().map(drop),
            _ => ended(),
        };
        self.0.join();
        client.look_once();
        closed
    }

    /// The moment `duration` from now, for a request's deadline. A request that is not done by then completes as
    /// indeterminate: it may or may not take effect.
    #[must_use]
    pub fn deadline(&self, duration: Duration) -> Time {
        Time::monotonic().after(duration)
    }

    /// Buffer memory that nobody holds, in bytes.
    #[must_use]
    pub fn arena_free_bytes(&self) -> usize {
        self.client().carrier().arena().free_bytes()
    }

    /// Requests that have not ended, or whose end nobody has reaped.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.client().in_flight()
    }
}

impl Link for Remote {
    fn buffer(&self, len: usize) -> Result<Buffer> {
        let client = self.client();
        let failed = |fault| Error::new("take a buffer for", client.name(), fault);
        if let Some(fault) = client.refusal() {
            return Err(failed(fault.into()));
        }
        let arena = client.carrier().arena();
        let asked = len as u64;
        let found = arena.buffer(len).or_else(|| {
            // Memory of abandoned requests may lie in the ring.
            client.look_once();
            arena.buffer(len)
        });
        found.ok_or_else(|| failed(Fault::NoMemory { asked }))
    }

    fn start(&self, request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        self.client().start(request)
    }

    fn poll(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>> {
        let polled = self.client().poll(ticket, waker).map(request);
        if polled.is_pending() {
            // Elsewhere than in `block_on` the helper is to send and reap it; here it is started.
            let _ = self.client().is_driven();
        }
        polled
    }

    fn wake_when_room(&self, waker: &Waker, until: Option<Time>) {
        self.client().wake_when_room(waker, until);
    }

    fn now(&self) -> Time {
        Time::monotonic()
    }

    fn refusal(&self) -> Option<Fault> {
        self.client().refusal().map(Fault::from)
    }

    fn is_driven(&self) -> bool {
        self.client().is_driven()
    }

    fn wait(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        Ok(request(self.client().wait(ticket)))
    }

    fn abandon(&self, ticket: Ticket) {
        self.client().abandon(ticket);
    }

    fn size(&self, handle: Handle) -> Result<u64> {
        if !self.client().knows(handle) {
            return Err(Error::new("measure", "a closed handle", Fault::Stale));
        }
        let asked = Asked::new(self, Command::Size(handle), |_, reply| match reply {
            Reply::Size(bytes) => Some(bytes),
            _ => None,
        });
        asked.wait()
    }

    fn close_handle(&self, handle: Handle) {
        self.client().close_handle(handle);
    }
}

/// A segment, where one was asked for.
fn segment_of(_: &Remote, reply: Reply) -> Option<SegmentInfo> {
    match reply {
        Reply::Segment(info) => Some(info),
        _ => None,
    }
}

/// The outcome of a request: commands have none.
fn request(ended: Option<Ended<Carried<Core>>>) -> Option<Outcome> {
    match ended {
        Some(Ended::Request(ended)) => Some(outcome(ended)),
        Some(Ended::Command(_)) | None => None,
    }
}
