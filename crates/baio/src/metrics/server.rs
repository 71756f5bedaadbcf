//! The metrics socket: a small thread that answers `GET /metrics` over a Unix socket with the snapshot of that moment.
//!
//! Peers are served beside each other, each for so long and with so many bytes of request at most: one that says nothing, or does not
//! take its answer, keeps no other waiting. HTTP/1.1 as far as a scraper and `curl` need it: one request, one answer, closed.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use super::Metrics;
use crate::moment::from_now;

/// A peer has so long for its request, and as long for taking the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Peers at a time.
const PEERS_MAX: usize = 32;
/// So long nobody is accepted when descriptors have run out.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);
/// No request is longer.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Peers that wait to be answered.
const BACKLOG: i32 = 16;
/// How long another process may take to put its socket there.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// The media type of OpenMetrics' text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A metrics socket that is open. Dropping it ends its thread, after the answer that is under way, and removes the socket.
pub struct MetricsServer {
    path: PathBuf,
    /// Device and inode number of the socket: another one at the path is somebody else's.
    identity: (u64, u64),
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricsServer({})", self.path.display())
    }
}

/// Opens a Unix socket at `path` that answers `GET /metrics` with what `snapshot` gives at that moment, from a thread of its own.
///
/// Only this user may connect (mode 0600). A socket that a dead process left there is replaced.
///
/// ```
/// # use std::sync::{Arc, Mutex};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = std::env::temp_dir().join(format!("baio-metrics-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// use baio::metrics::{self, Metrics};
///
/// // A link in this thread cannot be asked by another one: leave its latest figures where the socket finds them.
/// let latest = Arc::new(Mutex::new(Metrics::default()));
/// let shown = Arc::clone(&latest);
/// let server = metrics::serve(dir.join("metrics.sock"), move || shown.lock().unwrap().clone())?;
/// // Now and then: *latest.lock().unwrap() = ...
/// # drop(server);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// `AddrInUse` when a living process answers there, `AlreadyExists` when what is there is no socket; or what the system said.
pub fn serve(path: impl AsRef<Path>, snapshot: impl Fn() -> Metrics + Send + 'static) -> io::Result<MetricsServer> {
    serve_if(path, move || Some(snapshot()))
}

/// The same where there may be no snapshot now: the answer then is 503.
///
/// # Errors
/// As [`serve`].
pub fn serve_if(
    path: impl AsRef<Path>,
    snapshot: impl Fn() -> Option<Metrics> + Send + 'static,
) -> io::Result<MetricsServer> {
    let path = path.as_ref().to_owned();
    let (listener, identity) = listen(&path)?;
    let stop = Arc::new(baio_process::descriptor::event()?);
    let mut server = MetricsServer {
        path,
        identity,
        stop: Arc::clone(&stop),
        thread: None,
        pid: std::process::id(),
    };
    let run = move || {
        Serving {
            listener,
            stop,
            snapshot,
            peers: Vec::new(),
        }
        .run()
    };
    server.thread = Some(baio_process::thread::named("baio-metrics").start(run)?);
    Ok(server)
}

impl MetricsServer {
    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // A forked child has neither the thread nor the socket: both are its parent's.
        if std::process::id() != self.pid {
            std::mem::forget(self.thread.take());
            return;
        }
        if identity_of(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// A listening socket at `path`, for this user alone. The directory is locked meanwhile, so that of two processes which find
/// the same dead socket one does not remove what the other has put there.
fn listen(path: &Path) -> io::Result<(OwnedFd, (u64, u64))> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = baio_process::descriptor::open(
        parent.unwrap_or(Path::new(".")),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    lock(&directory)?;
    let address = SocketAddrUnix::new(path)?;
    make_way(path, &address)?;
    let listener = socket()?;
    baio_process::descriptor::bind(&listener, path, Mode::RUSR | Mode::WUSR)?;
    let listening = rustix::net::listen(&listener, BACKLOG)
        .map_err(io::Error::from)
        .and_then(|()| identity_of(path));
    match listening {
        Ok(identity) => Ok((listener, identity)),
        Err(error) => {
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(baio_process::descriptor::socket(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// The lock goes with the descriptor.
fn lock(directory: &OwnedFd) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if began.elapsed() < LOCK_PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            other => return Ok(other?),
        }
    }
}

/// Removes a socket that nobody listens to any more; refuses whatever else is there.
fn make_way(path: &Path, address: &SocketAddrUnix) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let why = format!("{} exists and is not a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match rustix::net::connect(&socket()?, address) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        // A full queue (EAGAIN) is a living owner too.
        Ok(()) | Err(Errno::AGAIN) => {
            let why = format!("another process answers at {}", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, why))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// What the thread has.
struct Serving<S> {
    listener: OwnedFd,
    /// Readable when the server is to end.
    stop: Arc<OwnedFd>,
    snapshot: S,
    /// Those that are served, in the order in which they came.
    peers: Vec<Peer>,
}

impl<S: Fn() -> Option<Metrics>> Serving<S> {
    fn run(mut self) {
        loop {
            let Ok(ready) = self.wait() else { return };
            if ready.is_to_end {
                return;
            }
            let now = Instant::now();
            let (snapshot, mut at) = (&self.snapshot, 0..);
            self.peers.retain_mut(|peer| {
                let is_ready = at.next().and_then(|at| ready.peers.get(at)) == Some(&true);
                (!is_ready || peer.go_on(snapshot).is_ok()) && now < peer.until
            });
            if ready.has_come && self.accept().is_err() {
                // No descriptors are left, as a rule: they come back. The end is heard meanwhile.
                let timeout = Timespec::try_from(OUT_OF_DESCRIPTORS).ok();
                let _ = rustix::event::poll(&mut [PollFd::new(&*self.stop, PollFlags::IN)], timeout.as_ref());
            }
        }
    }

    /// Sleeps until there is anything to do, or a peer has had its time.
    fn wait(&self) -> Result<Ready, Errno> {
        let mut polled = vec![
            PollFd::new(&*self.stop, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        polled.extend(
            self.peers
                .iter()
                .map(|peer| PollFd::new(&peer.socket, peer.waits_for())),
        );
        let until = self.peers.iter().map(|peer| peer.until).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut shows = polled.iter().map(|polled| !polled.revents().is_empty());
        Ok(Ready {
            is_to_end: shows.next() == Some(true),
            has_come: shows.next() == Some(true),
            peers: shows.collect(),
        })
    }

    /// One more; for the one that has been here longest, if there are too many.
    fn accept(&mut self) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match baio_process::descriptor::accept(&self.listener, flags) {
            Ok(socket) => {
                if self.peers.len() >= PEERS_MAX {
                    self.peers.remove(0);
                }
                self.peers.push(Peer {
                    socket,
                    until: from_now(PATIENCE),
                    stage: Stage::Asking(Vec::new()),
                });
                Ok(())
            }
            // Whoever connected has gone again.
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// What there is to do.
struct Ready {
    is_to_end: bool,
    has_come: bool,
    /// Of each peer whether it has sent something, or has room.
    peers: Vec<bool>,
}

/// One that is served.
struct Peer {
    socket: OwnedFd,
    /// So long, and no longer.
    until: Instant,
    stage: Stage,
}

/// How far it is.
enum Stage {
    /// So much of its request has come.
    Asking(Vec<u8>),
    /// So much of the answer has not been taken.
    Answered(Vec<u8>, usize),
    /// It has the whole answer. A close beside bytes that were not read resets the connection, and the peer loses the answer: so up to so many
    /// bytes are still read.
    Leaving(usize),
}

/// It has gone, or has had its answer.
struct Gone;

impl Peer {
    fn waits_for(&self) -> PollFlags {
        match self.stage {
            Stage::Answered(..) => PollFlags::OUT,
            Stage::Asking(_) | Stage::Leaving(_) => PollFlags::IN,
        }
    }

    /// As far as it goes without waiting.
    fn go_on(&mut self, snapshot: &impl Fn() -> Option<Metrics>) -> Result<(), Gone> {
        let mut part = [0; 4096];
        loop {
            self.stage = match &mut self.stage {
                Stage::Asking(request) => {
                    let got = match self.socket.receive(&mut part)? {
                        Some(0) => return Err(Gone),
                        Some(got) => got,
                        None => return Ok(()),
                    };
                    request.extend_from_slice(part.get(..got).unwrap_or_default());
                    let Some(answer) = answer_to(request, snapshot) else {
                        continue;
                    };
                    // How long a snapshot takes is not the peer's doing.
                    self.until = from_now(PATIENCE);
                    Stage::Answered(answer, 0)
                }
                Stage::Answered(answer, sent) => {
                    let rest = answer.get(*sent..).unwrap_or_default();
                    if rest.is_empty() {
                        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
                        Stage::Leaving(REQUEST_BYTES_MAX)
                    } else {
                        match self.socket.send(rest)? {
                            Some(more) => *sent = sent.saturating_add(more),
                            None => return Ok(()),
                        }
                        continue;
                    }
                }
                Stage::Leaving(most) => match self.socket.receive(&mut part)? {
                    Some(0) => return Err(Gone),
                    Some(got) if got < *most => Stage::Leaving(most.saturating_sub(got)),
                    Some(_) => return Err(Gone),
                    None => return Ok(()),
                },
            };
        }
    }
}

/// Both never wait: `None`, where they would.
trait NeverWaits {
    fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, Gone>;
    fn send(&self, bytes: &[u8]) -> Result<Option<usize>, Gone>;
}

impl NeverWaits for OwnedFd {
    fn receive(&self, into: &mut [u8]) -> Result<Option<usize>, Gone> {
        match rustix::net::recv(self, into, RecvFlags::empty()) {
            Ok((_, got)) => Ok(Some(got)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(Gone),
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<Option<usize>, Gone> {
        // No signal in a program that has not asked for one.
        match rustix::net::send(self, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => Ok(Some(sent)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(Gone),
        }
    }
}

/// The answer to what has come of a request, once its head is whole, or too long.
fn answer_to(request: &[u8], snapshot: &impl Fn() -> Option<Metrics>) -> Option<Vec<u8>> {
    let reply = match request.windows(4).any(|four| four == b"\r\n\r\n") {
        true => reply_to(request, snapshot),
        false if request.len() > REQUEST_BYTES_MAX => {
            Reply::plain("431 Request Header Fields Too Large", "the request is too long\n")
        }
        false => return None,
    };
    let mut answer = reply.head;
    if !request.starts_with(b"HEAD ") {
        answer.extend_from_slice(&reply.body);
    }
    Some(answer)
}

struct Reply {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Reply {
    fn new(status: &str, content_type: &str, body: String) -> Reply {
        let bytes = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
        );
        Reply {
            head: head.into_bytes(),
            body: body.into_bytes(),
        }
    }

    fn plain(status: &str, body: &str) -> Reply {
        Reply::new(status, "text/plain; charset=utf-8", body.to_owned())
    }
}

fn reply_to(request: &[u8], snapshot: &impl Fn() -> Option<Metrics>) -> Reply {
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return Reply::plain("400 Bad Request", "this is not an HTTP request\n");
    };
    if !version.starts_with(b"HTTP/1.") {
        return Reply::plain("505 HTTP Version Not Supported", "only HTTP/1.1 is supported\n");
    }
    if !matches!(method, b"GET" | b"HEAD") {
        return Reply::plain("405 Method Not Allowed", "only GET is supported\n");
    }
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    if !matches!(path, b"/" | b"/metrics") {
        return Reply::plain("404 Not Found", "/metrics is here\n");
    }
    // A snapshot is the caller's code: its panic is its own, and the next peer may find it well.
    match catch_unwind(AssertUnwindSafe(snapshot)) {
        Ok(Some(metrics)) => Reply::new("200 OK", CONTENT_TYPE, metrics.prometheus()),
        Ok(None) => Reply::plain("503 Service Unavailable", "there are no figures now\n"),
        Err(_) => Reply::plain("500 Internal Server Error", "taking the figures failed\n"),
    }
}
