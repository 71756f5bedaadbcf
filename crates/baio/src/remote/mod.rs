//! A core on a thread of its own, or in a broker of another process: any thread may use the link, and futures may be polled anywhere.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | the link: the same as [`crate::Local`] |
//! | `carried.rs` | what the client carries to a service of this process: the arena's memory, commands as values |
//! | `far.rs` | what it carries to a broker: the same memory, commands as messages |
//! | `connecting.rs` | how a link to a broker begins |
//! | `again.rs`, `handles.rs` | a link that goes on with the next broker; its handles |
//! | `transport.rs` | the calls of every transport |
//! | `logs/` | durable logs in segments of a broker: kept in this process |
//! | `behind.rs` | memory of requests by ticket that a broker cannot be shown |
//!
//! The client's half of the connection is a crate of its own ([`baio_client`]).
//!
//! The price against [`crate::Local`] is a hop to another thread and back; batches share it.

mod again;
mod behind;
mod carried;
mod connecting;
mod far;
mod handles;
mod logs;
mod transport;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{JoinHandle, ThreadId};

use baio_broker::control::Reply;
use baio_broker::{Setup, start};
use baio_client::{Carrier, Ended, Session, Wishes};
use baio_engine::EngineOptions;
use baio_storage::{Answer, Command, Core, Error, Fault, Identity, Outcome, Result};
use baio_words::RequestFault;
use baio_words::session::{BrokerStatus, GOES_ON};

use self::behind::Behind;
use self::carried::{Carried, Client, outcome};
use self::logs::{Ends, Logs};
use crate::local::inside;
use crate::operation::Operation;
use crate::options::{LinkOptions, Reconnect};
use crate::trace;
use crate::transport::Facts;

/// A link that works on a thread of its own: for plain files ([`Remote::new`]), for a volume ([`Remote::open`]), or through a broker that has
/// the volume open ([`Remote::connect`]). Take it if you have threads, tokio or another executor, or do not know. Clones are the same link;
/// they, their segments and their futures may go to any thread.
///
/// ```
/// use baio::{Access, CreateOptions, Link, Remote};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("baio-remote-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("volume.img");
/// # baio::format(&path, &baio::FormatOptions { size_bytes: Some(16 << 20), force: true, ..baio::FormatOptions::default() })?;
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
    facts: Facts,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The service's thread; `None` for a broker.
    service: Option<ThreadId>,
    behind: Behind,
    /// Logs in segments of a broker.
    logs: Logs,
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
        if self.client.is_forked() {
            return;
        }
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
        if self.client.is_forked() {
            // The thread, the session and what waits for them are the parent's.
            let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(thread.take());
            return self.logs.disown();
        }
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
        Remote::new_with(&LinkOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Remote::new`]; there is no memory for the cache.
    pub fn new_with(options: &LinkOptions) -> Result<Remote> {
        let how = options.clone();
        Remote::around(move || how.start(), options)
    }

    /// Opens the volume at `path` on a new thread; this process then owns it.
    ///
    /// # Errors
    /// The volume is in use by another process, which the error names; it is not a volume, or damaged; or the system's error.
    pub fn open(path: impl AsRef<Path>) -> Result<Remote> {
        Remote::open_with(path, &LinkOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Remote::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &LinkOptions) -> Result<Remote> {
        let (path, how) = (path.as_ref().to_owned(), options.clone());
        Remote::around(move || how.open(&path), options)
    }

    /// A link to a core that `make` makes on the service's thread: a core stays on its thread.
    ///
    /// # Errors
    /// What `make` said, or that the thread could not be had.
    pub fn around(make: impl FnOnce() -> Result<Core> + Send + 'static, options: &LinkOptions) -> Result<Remote> {
        let EngineOptions { slots, .. } = options.engine;
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
            facts: Facts::new(options.identity, client.name().to_owned(), false),
            client: Arc::new(client),
            service: Some(thread.thread().id()),
            thread: Mutex::new(Some(thread)),
            behind: Behind::default(),
            logs: Logs::default(),
        })))
    }

    /// Connects to the broker whose socket is at `path`: a link to the volume that it serves to many processes.
    ///
    /// A broker does not offer everything yet: pins, pages under a log, plain files, [`crate::Link::with_pool`], counters and the
    /// progress of an operation fail with `EOPNOTSUPP`. A request on memory that is not from [`crate::Link::buffer`] is copied
    /// ([`crate::Link::bounced`] counts these).
    ///
    /// # Errors
    /// No broker serves there, or it does not serve this user; the other end is not a broker, or one of another version; or the system's error.
    pub fn connect(path: impl AsRef<Path>) -> Result<Remote> {
        Remote::connect_to(path.as_ref(), Wishes::default(), Reconnect::Never)
    }

    /// The same, for the volume that is served under this name (empty: the only one). The link has as many slots and as much buffer memory as
    /// the options say, if the broker gives that much. The caller's identity is what the broker sees of the process ([`crate::Link::identity`]).
    /// [`LinkOptions::reconnect`] says what the link does when the broker ends.
    ///
    /// # Errors
    /// As [`Remote::connect`]; no such volume is served there.
    pub fn connect_with(path: impl AsRef<Path>, volume: &str, options: &LinkOptions) -> Result<Remote> {
        let wishes = Wishes {
            volume: volume.to_owned(),
            places: options.engine.slots,
            arena_bytes: options.engine.arena_bytes as u64,
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
        let connected = Session::connect(path, &wishes).map_err(|error| connecting::unconnected(error, path));
        let connected = connected.and_then(|session| connecting::client(session, path, &wishes, limit));
        trace::link_opened(|| baio_engine::path_name(path), connected.as_ref().map(drop));
        let (client, uid) = connected?;
        let own = Identity::effective();
        // The broker knows our groups better than we do.
        let identity = match own.uid == uid {
            true => own,
            false => Identity::new(uid, own.gid),
        };
        Ok(Remote(Arc::new(Owner {
            facts: Facts::new(identity, client.name().to_owned(), false),
            client,
            service: None,
            thread: Mutex::new(None),
            behind: Behind::default(),
            logs: Logs::default(),
        })))
    }

    /// Who uses the broker at the other end, and how much. Uid 0 and the user that the broker runs as see all users; others see themselves.
    ///
    /// Its operation fails with `EOPNOTSUPP` when there is no broker: counters of a link of one's own are [`crate::Link::metrics`].
    pub fn status(&self) -> Operation<Remote, BrokerStatus> {
        Operation::new(self, Command::Status, |_, reply| match reply {
            Reply::Answer(Answer::Status(status)) => Some(status),
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
        self.client().will_give_back() || self.0.facts.bounces.is_any_under_way()
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

/// The outcome of a request: commands have none.
fn request(ended: Option<Ended<Carried>>) -> Option<Outcome> {
    match ended {
        Some(Ended::Request(ended)) => Some(outcome(ended)),
        Some(Ended::Command(_)) | None => None,
    }
}
