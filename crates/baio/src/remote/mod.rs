//! A core on a thread of its own, or in a broker of another process: any thread may use the link, and futures may be polled anywhere.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | the link: the same as [`crate::Local`] |
//! | `carried.rs` | what the client carries to a service of this process: the arena's memory, commands as values |
//! | `far.rs` | what it carries to a broker: the same memory, commands as messages |
//! | `again.rs`, `handles.rs` | a link that goes on with the next broker; its handles |
//! | `logs/` | durable logs in segments of a broker: kept in this process |
//! | `status.rs` | who uses a broker, and how much |
//! | `upkeep.rs` | what a broker tells of a defragmentation and a check |
//! | `behind.rs` | memory of requests by ticket that a broker cannot be shown |
//!
//! The client's half of the connection is a crate of its own ([`baio_client`]).
//!
//! The price against [`crate::Local`] is a hop to another thread and back; batches share it.

mod again;
mod behind;
mod carried;
mod far;
mod handles;
mod logs;
mod status;
mod upkeep;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread::{JoinHandle, ThreadId};

use baio_broker::control::{Command, Reply};
use baio_broker::{Setup, start};
use baio_client::{Carrier, Ended, Session, Wishes};
use baio_engine::{Buffer, Config, Memory, Time, Wait};
use baio_storage::cache::{Borrower, LentPages};
use baio_storage::log::Appender;
use baio_storage::{Core, Error, Fault, Handle, HeldLog, Identity, Outcome, Result, SegmentRequest, Ticket};
use baio_words::RequestFault;
use baio_words::session::GOES_ON;

use self::behind::Behind;
use self::carried::{Carried, Client, outcome};
use self::logs::{Asked, Ends, Logs};
pub use self::status::{BrokerStatus, OwnerStatus};
use crate::link::{Link, NotAsked};
use crate::local::inside;
use crate::operation::Operation;
use crate::options::{Options, Reconnect};
use crate::request::bounce;
use crate::trace;

/// A volume served by a thread of this process, or by a broker ([`Remote::connect`]). Clones are the same volume; `Send` and `Sync`, as are its segments and
/// futures.
///
/// ```
/// use baio::{Access, CreateOptions, Link, Remote};
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
///             baio::Result::Ok(segment.write_at(page * 4096, buffer).wait()?.bytes)
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
    /// Requests that went through a buffer of the arena, and their bytes.
    bounced: (AtomicU64, AtomicU64),
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The service's thread; `None` for a broker.
    service: Option<ThreadId>,
    behind: Behind,
    /// Logs in segments of a broker.
    logs: Logs,
    /// Buffers of the arena that futures have taken for requests and not given back.
    bouncing: AtomicUsize,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.0.client.name())
    }
}

impl Owner {
    /// Is this the service's own thread? What waits for the service there would wait for itself.
    fn is_inside(&self) -> bool {
        Some(std::thread::current().id()) == self.service || self.logs.is_inside()
    }

    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last link may go inside of `with_pool`: its thread then ends by itself.
        if let Some(thread) = thread.filter(|_| !self.is_inside()) {
            let _ = thread.join(); // A panic has been told by its own message, and by the requests' outcomes.
        }
    }
}

impl Drop for Owner {
    /// Without [`Remote::close`] the volume stays marked as in use, and the next open heals it. What is under way ends
    /// first, and the volume's lock is given back.
    fn drop(&mut self) {
        let _rest = Rest(self);
        self.logs.end(Ends::AtOnce); // As after a crash: the next opening recovers them.
        self.client.refuse(); // Wakes whoever waits for a place: foreign code, which may panic.
    }
}

/// The end of the service and of the helper, whatever the wakers do.
struct Rest<'a>(&'a Owner);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.client.stop();
        // A broker ends what is under way when it sees that its client has gone.
        self.0.client.carrier().hang_up();
        self.0.join();
        self.0.client.dismiss_helper();
        self.0.client.look_once(); // The service has ended: whatever is left is told.
    }
}

impl Remote {
    /// A link without a volume, for plain files, on a new thread.
    ///
    /// # Errors
    /// No backend or no thread can be had.
    pub fn new() -> Result<Remote> {
        Remote::new_with(&Options::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Remote::new`]; there is no memory for the cache.
    pub fn new_with(options: &Options) -> Result<Remote> {
        let how = options.clone();
        Remote::around(move || how.start(), options)
    }

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
        let (path, how) = (path.as_ref().to_owned(), options.clone());
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
        let started = start(setup, make);
        trace::link_opened(
            || {
                started
                    .as_ref()
                    .map_or_else(|_| String::new(), |connection| connection.name.clone())
            },
            started.as_ref().map(drop),
        );
        let (client, thread) = Carried::client(started?);
        Ok(Remote(Arc::new(Owner {
            client: Arc::new(client),
            identity: options.identity,
            bounced: Default::default(),
            service: Some(thread.thread().id()),
            thread: Mutex::new(Some(thread)),
            behind: Behind::default(),
            logs: Logs::default(),
            bouncing: AtomicUsize::new(0),
        })))
    }

    /// Connects to the broker whose socket is at `path`: a link to the volume that it serves to many processes.
    ///
    /// What a broker does not do yet says so by its error: pins, pages under a log, plain files, [`Link::with_pool`], defragmentations, checks, counters,
    /// progress. Memory of requests that is not from [`Link::buffer`] is copied ([`Link::bounced`] counts it).
    ///
    /// # Errors
    /// Nobody serves there, or not this user; the other end is no broker, or one of another version; or what the system said.
    pub fn connect(path: impl AsRef<Path>) -> Result<Remote> {
        Remote::connect_to(path.as_ref(), Wishes::default(), Reconnect::Never)
    }

    /// The same for a volume by the name under which it is served (empty: the only one), with as many places for requests as the options
    /// have slots, and so large an arena, if the broker gives that much. Who asks is what the broker sees: [`Link::identity`]. What becomes of
    /// the link when the broker ends is [`Options::reconnect`].
    ///
    /// # Errors
    /// As [`Remote::connect`]; no such volume is served there.
    pub fn connect_with(path: impl AsRef<Path>, volume: &str, options: &Options) -> Result<Remote> {
        let wishes = Wishes {
            volume: volume.to_owned(),
            places: options.config.slots,
            arena_bytes: options.config.arena_bytes as u64,
            ..Wishes::default()
        };
        Remote::connect_to(path.as_ref(), wishes, options.reconnect)
    }

    fn connect_to(path: &Path, wishes: Wishes, reconnect: Reconnect) -> Result<Remote> {
        let limit = match reconnect {
            Reconnect::Never => None,
            Reconnect::Within(limit) => Some(limit),
        };
        let wishes = Wishes {
            features: if limit.is_some() { GOES_ON } else { 0 },
            ..wishes
        };
        let connected = Session::connect(path, &wishes).map_err(|error| far::unconnected(error, path));
        let connected = connected.and_then(|session| far::client(session, path, &wishes, limit));
        trace::link_opened(|| path.display().to_string(), connected.as_ref().map(drop));
        let (client, uid) = connected?;
        let own = Identity::effective();
        Ok(Remote(Arc::new(Owner {
            client,
            // The broker knows our groups better than we do.
            identity: if own.uid == uid {
                own
            } else {
                Identity::new(uid, own.gid)
            },
            bounced: Default::default(),
            service: None,
            thread: Mutex::new(None),
            behind: Behind::default(),
            logs: Logs::default(),
            bouncing: AtomicUsize::new(0),
        })))
    }

    /// Who uses the broker at the other end, and how much: every user for uid 0 and the user that the broker runs as, else the caller.
    ///
    /// Its operation fails with `EOPNOTSUPP` when there is no broker: counters of a link of one's own are [`Link::metrics`].
    pub fn status(&self) -> Operation<Remote, BrokerStatus> {
        Operation::new(self, Command::Status, |_, reply| match reply {
            Reply::Status(words) => Some(words.into()),
            _ => None,
        })
    }

    fn is_far(&self) -> bool {
        self.0.service.is_none()
    }

    /// Ends a session: what is under way ends first, then the broker is left.
    fn leave_broker(&self, client: &Arc<Client>) -> Result<()> {
        self.0.logs.end(Ends::Properly);
        let carrier = client.carrier();
        let is_down = carrier.keeps_commands() && carrier.has_just_ended();
        if !client.wind_down() && client.refusal() == Some(RequestFault::ServiceEnded) {
            return Err(Error::new("close", client.name(), Fault::ServiceEnded));
        }
        client.wait_for_all();
        client.carrier().hang_up();
        client.look_once();
        match is_down {
            // There was nobody to be left, and no other one has come yet.
            true => Err(Error::new("close", client.name(), Fault::ServiceEnded)),
            false => Ok(()),
        }
    }

    /// Do requests under way hold buffers that come back by themselves? In this order: a future's buffer goes back after its place.
    fn gives_back(&self) -> bool {
        self.client().will_give_back() || self.0.bouncing.load(Ordering::Acquire) > 0
    }

    /// An outcome as the caller of its request knows it.
    fn outcome(&self, ended: Option<Ended<Carried>>) -> Option<Outcome> {
        request(ended).map(|outcome| self.0.behind.restore(outcome))
    }

    fn client(&self) -> &Arc<Client> {
        &self.0.client
    }

    /// The client, for what may wait for the service.
    fn client_to_wait(&self) -> Result<&Arc<Client>> {
        match self.0.is_inside() {
            true => Err(inside()),
            false => Ok(self.client()),
        }
    }

    /// Elsewhere than in `block_on` the helper is to send and reap what is awaited; here it is started.
    fn expect_helper<T>(&self, polled: &Poll<T>) {
        if polled.is_pending() {
            let _ = self.client().is_driven();
        }
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

    fn start(&self, mut request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        let behind = &self.0.behind;
        let must_copy = self.must_copy(&request.memory) && (request.op.changes_bytes() || request.memory.is_writable());
        let is_marked = self.is_far() && behind.wants(request.tag);
        if !must_copy && !is_marked {
            return self.client().start(request);
        }
        let len = request.memory.len();
        let own = match must_copy.then(|| bounce(self, &mut request)) {
            Some(Ok(own)) => Some(own),
            // There may be room when others have ended.
            Some(Err(_)) if self.may_bounce_later(len) => return Err(request),
            // There never will be: it ends at once, with `ENOBUFS`.
            Some(Err(_)) | None => None,
        };
        let is_bounced = own.is_some();
        behind.keep(&mut request, own);
        let tag = request.tag;
        match self.client().start(request) {
            Ok(ticket) => {
                behind.started(tag, ticket);
                if is_bounced {
                    self.count_bounce(len);
                }
                Ok(ticket)
            }
            Err(mut request) => {
                behind.undo(&mut request);
                Err(request)
            }
        }
    }

    fn must_copy(&self, memory: &Memory) -> bool {
        self.client().carrier().must_copy(memory)
    }

    fn may_bounce_later(&self, bytes: usize) -> bool {
        self.is_far() && bytes <= self.client().carrier().arena().size() && self.gives_back()
    }

    fn poll(&self, ticket: Ticket, waker: &Waker) -> Poll<Option<Outcome>> {
        let polled = self.client().poll(ticket, waker).map(|ended| self.outcome(ended));
        self.expect_helper(&polled);
        polled
    }

    fn wait(&self, ticket: Ticket) -> Result<Option<Outcome>> {
        Ok(self.outcome(self.client_to_wait()?.wait(ticket)))
    }

    fn cancel(&self, ticket: Ticket) {
        self.client().cancel(ticket);
    }

    fn abandon(&self, ticket: Ticket) {
        self.client().abandon(ticket);
        if self.is_far() {
            self.0.behind.forget(ticket);
        }
    }

    fn turn(&self, wait: Wait) -> Result<usize> {
        let client = self.client_to_wait()?;
        let turned = match wait {
            Wait::No => client.turn_once(),
            Wait::Until {
                count,
                min_wait,
                deadline,
            } => client.turn(count, min_wait, deadline),
        };
        turned.map_err(|fault| Error::new("turn", client.name(), fault))
    }

    fn next_outcome(&self) -> Option<Outcome> {
        let ended = self.client().next_outcome()?;
        Some(self.0.behind.restore(outcome(ended)))
    }

    fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        let client = self.client_to_wait()?;
        let done = client.block_on(future);
        done.map_err(|fault| Error::new("wait on", client.name(), fault))
    }

    fn close(self) -> Result<()> {
        let client = self.client_to_wait()?;
        if self.is_far() {
            let left = self.leave_broker(client);
            trace::link_closed(|| client.name().to_owned(), left.as_ref().map(drop));
            return left;
        }
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
            Some(Ended::Command(answer)) => answer.map_err(Error::from).and_then(|closed| closed).map(drop),
            _ => ended(),
        };
        self.0.join();
        client.look_once();
        trace::link_closed(|| client.name().to_owned(), closed.as_ref().map(drop));
        closed
    }

    fn now(&self) -> Time {
        Time::monotonic()
    }

    fn arena_free_bytes(&self) -> usize {
        self.client().carrier().arena().free_bytes()
    }

    fn in_flight(&self) -> usize {
        self.client().in_flight()
    }

    fn bounced(&self) -> (u64, u64) {
        let (requests, bytes) = &self.0.bounced;
        (requests.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    fn name(&self) -> String {
        self.client().name().to_owned()
    }

    fn identity(&self) -> Identity {
        self.0.identity
    }

    type Question = Asked;

    fn ask(&self, command: Box<Command>) -> std::result::Result<Asked, NotAsked> {
        let client = self.client();
        if self.is_far() {
            if let Some(asked) = self.0.logs.ask(client, &command) {
                return asked.map(Asked::Log);
            }
        }
        let asked = client.command(command).map_err(|command| match client.refusal() {
            Some(fault) => NotAsked::Refused(fault.into()),
            None => NotAsked::Full(command),
        });
        asked.map(Asked::Service)
    }

    fn poll_answer(&self, question: &Asked, waker: &Waker) -> Poll<Result<Reply>> {
        let question = match question {
            Asked::Service(ticket) => ticket,
            Asked::Log(asked) => return asked.poll(waker),
        };
        let polled = self.client().poll(*question, waker);
        self.expect_helper(&polled);
        polled.map(|ended| match ended {
            Some(Ended::Command(answer)) => answer.map_err(Error::from).and_then(|answer| answer),
            _ => Err(Error::new("ask the service of", self.client().name(), Fault::Stale)),
        })
    }

    fn leave(&self, question: Asked) {
        match question {
            Asked::Service(ticket) => self.client().abandon(ticket),
            Asked::Log(asked) => drop(asked), // A log that it would have given is closed.
        }
    }

    fn start_awaited(
        &self,
        request: SegmentRequest,
        waker: &Waker,
    ) -> std::result::Result<(Ticket, Poll<Option<Outcome>>), SegmentRequest> {
        let ticket = self.client().start_awaited(request, waker)?;
        Ok((ticket, Poll::Pending))
    }

    fn wake_when_room(&self, waker: &Waker, until: Option<Time>) {
        self.client().wake_when_room(waker, until);
    }

    fn refusal(&self) -> Option<Fault> {
        self.client().refusal().map(Fault::from)
    }

    fn is_driven(&self) -> bool {
        self.client().is_driven()
    }

    /// The service turns it; when that has ended, its logs have told everybody.
    fn is_turned(&self) -> bool {
        true
    }

    fn appender_of(&self, held: &HeldLog) -> Appender {
        held.appender().clone()
    }

    /// The service does, but what this thread has queued is to reach it before.
    fn while_others_drive<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        let client = self.client_to_wait().ok()?;
        let has_more = match client.refusal_or_in_flight() {
            Err(_) => return None, // Waiting for the link says why.
            Ok(in_flight) => in_flight > 0,
        };
        if has_more {
            client.look_once();
        }
        let slept = sleep();
        if has_more {
            client.look_once(); // As if it had reaped meanwhile.
        }
        Some(slept)
    }

    fn nudge(&self) {} // Whoever appends rings for the service himself.

    fn call_back(&self) {} // So does who leaves a callback.

    fn close_handle(&self, handle: Handle) {
        self.client().close_handle(handle);
    }

    fn remember(&self, handle: Handle, name: &str) {
        self.client().remember(handle, name.to_owned());
    }

    fn lend_here(&self, _: &Borrower, _: Handle, _: Range<u64>) -> Option<LentPages> {
        None // The cache is behind a hop.
    }

    fn note_bounce(&self, begins: bool) {
        match begins {
            true => self.0.bouncing.fetch_add(1, Ordering::AcqRel),
            false => self.0.bouncing.fetch_sub(1, Ordering::AcqRel),
        };
    }

    fn count_bounce(&self, bytes: usize) {
        self.0.bounced.0.fetch_add(1, Ordering::Relaxed);
        self.0.bounced.1.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The outcome of a request: commands have none.
fn request(ended: Option<Ended<Carried>>) -> Option<Outcome> {
    match ended {
        Some(Ended::Request(ended)) => Some(outcome(ended)),
        Some(Ended::Command(_)) | None => None,
    }
}
