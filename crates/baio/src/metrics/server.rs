//! The metrics socket: a small thread that answers `GET /metrics` over a Unix socket with the snapshot of that moment.
//!
//! It answers one peer at a time, and each for so long and with so many bytes of request at most that a slow one keeps the
//! others waiting for a second. HTTP/1.1 as far as a scraper and `curl` need it: one request, one answer, closed.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

/// A peer has so long for its request and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(1);
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
    // What is bound has the mode of the descriptor, less the umask (unix_bind, net/unix/af_unix.c): never is it open to others.
    rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&listener, &address)?;
    let listening = fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .and_then(|()| Ok(rustix::net::listen(&listener, BACKLOG)?))
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
        let why = format!("{} is there and is no socket", path.display());
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
}

/// Why a peer is not served on.
enum End {
    /// The server is to end.
    Stopped,
    /// The peer has gone, or was too slow.
    Peer,
}

impl<S: Fn() -> Option<Metrics>> Serving<S> {
    fn run(self) {
        loop {
            if self.wait(self.listener.as_fd(), PollFlags::IN, None).is_err() {
                return;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match baio_process::descriptor::accept(&self.listener, flags) {
                Ok(peer) => {
                    if let Err(End::Stopped) = self.answer(&peer) {
                        return;
                    }
                }
                // Whoever connected has gone again.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptors are left, as a rule: they come back.
                Err(_) => {
                    let until = from_now(Duration::from_millis(100));
                    if let Err(End::Stopped) = self.wait(self.stop.as_fd(), PollFlags::IN, Some(until)) {
                        return;
                    }
                }
            }
        }
    }

    fn answer(&self, peer: &OwnedFd) -> Result<(), End> {
        let until = from_now(PATIENCE);
        let mut request = Vec::new();
        let read = self.read(peer, &mut request, until)?;
        let asked = Instant::now();
        let reply = match read {
            Read::Whole => reply_to(&request, &self.snapshot),
            Read::TooLong => Reply::plain("431 Request Header Fields Too Large", "the request is too long\n"),
        };
        // How long a snapshot takes is not the peer's doing.
        let until = until.checked_add(asked.elapsed()).unwrap_or(until);
        self.write(peer, &reply.head, until)?;
        if !request.starts_with(b"HEAD ") {
            self.write(peer, &reply.body, until)?;
        }
        // Whoever has sent more than was read would lose the answer by a reset: take it until it is done.
        let _ = rustix::net::shutdown(peer, Shutdown::Write);
        let mut rest = [0; 4096];
        let mut most = REQUEST_BYTES_MAX;
        while most > 0 {
            match self.receive(peer, &mut rest, until)? {
                0 => break,
                got => most = most.saturating_sub(got),
            }
        }
        Ok(())
    }

    /// Reads up to the empty line that ends a request's head.
    fn read(&self, peer: &OwnedFd, request: &mut Vec<u8>, until: Instant) -> Result<Read, End> {
        let mut part = [0; 1024];
        loop {
            let got = self.receive(peer, &mut part, until)?;
            if got == 0 {
                return Err(End::Peer);
            }
            request.extend_from_slice(part.get(..got).unwrap_or_default());
            if request.windows(4).any(|four| four == b"\r\n\r\n") {
                return Ok(Read::Whole);
            }
            if request.len() > REQUEST_BYTES_MAX {
                return Ok(Read::TooLong);
            }
        }
    }

    fn receive(&self, peer: &OwnedFd, into: &mut [u8], until: Instant) -> Result<usize, End> {
        loop {
            match rustix::net::recv(peer, &mut *into, RecvFlags::empty()) {
                Ok((_, got)) => return Ok(got),
                Err(Errno::AGAIN) => self.wait(peer.as_fd(), PollFlags::IN, Some(until))?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(End::Peer),
            }
        }
    }

    fn write(&self, peer: &OwnedFd, mut bytes: &[u8], until: Instant) -> Result<(), End> {
        while !bytes.is_empty() {
            // No signal in a program that has not asked for one.
            match rustix::net::send(peer, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) => self.wait(peer.as_fd(), PollFlags::OUT, Some(until))?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(End::Peer),
            }
        }
        Ok(())
    }

    /// Waits for a descriptor; for the server's end as well.
    fn wait(&self, fd: BorrowedFd<'_>, events: PollFlags, until: Option<Instant>) -> Result<(), End> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(End::Peer);
            }
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut polled = [
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(fd, events),
            ];
            match rustix::event::poll(&mut polled, timeout.as_ref()) {
                Err(Errno::INTR) => {}
                Err(_) => return Err(End::Stopped),
                Ok(_) if !polled[0].revents().is_empty() => return Err(End::Stopped),
                Ok(_) if !polled[1].revents().is_empty() => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}

enum Read {
    Whole,
    TooLong,
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
        return Reply::plain("400 Bad Request", "this is no request of HTTP\n");
    };
    if !version.starts_with(b"HTTP/1.") {
        return Reply::plain("505 HTTP Version Not Supported", "HTTP/1.1 is spoken here\n");
    }
    if !matches!(method, b"GET" | b"HEAD") {
        return Reply::plain("405 Method Not Allowed", "GET is answered here\n");
    }
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    if !matches!(path, b"/" | b"/metrics") {
        return Reply::plain("404 Not Found", "/metrics is here\n");
    }
    // A snapshot is the caller's code: its panic is its own, and the next peer may find it well.
    match catch_unwind(AssertUnwindSafe(snapshot)) {
        Ok(Some(metrics)) => Reply::new("200 OK", CONTENT_TYPE, metrics.prometheus()),
        Ok(None) => Reply::plain("503 Service Unavailable", "there are no figures now\n"),
        Err(_) => Reply::plain("500 Internal Server Error", "the snapshot has failed\n"),
    }
}
