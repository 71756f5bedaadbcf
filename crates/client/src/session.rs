//! A session with a broker of another process: how it is opened.
//!
//! The client says what it would like, the broker what it gives, and the memory of the session comes with that. All of it is
//! checked before any is used.

use std::fmt;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baio_process::descriptor;
use baio_ring::{Layout, SessionMemory};
use baio_words::session::{
    Answer, FEATURE_GROW, FEATURE_LOGS, FEATURE_OWNERSHIP, Failed, FromBroker, Hello, MESSAGE_MAX, VERSION, Welcome,
};
use baio_words::{Errno, IN_LINE, ON_LINES, into_std, write_advice};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno as Said;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::wire::{SLICE, Wire};

/// How long a broker has to answer, if nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Requests under way at a time that a client takes which has named no number: it keeps memory for each.
const PLACES_MAX: u32 = 1 << 20;

/// What a client would like.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// The volume, by the name under which it is served; empty for the only one.
    pub volume: String,
    /// Requests under way at a time; 0 for as many as the broker gives, at most 2^20.
    pub places: u32,
    /// Bytes of the arena; 0 for what the broker gives.
    pub arena_bytes: u64,
    /// What it would use beyond version 1, a bit each.
    pub features: u64,
    /// How long to wait for the broker.
    pub patience: Duration,
}

impl Default for Wishes {
    fn default() -> Wishes {
        Wishes {
            volume: String::new(),
            places: 0,
            arena_bytes: 0,
            features: 0,
            patience: PATIENCE,
        }
    }
}

/// An open session.
#[derive(Debug)]
pub struct Session {
    /// Its socket.
    pub wire: Arc<Wire>,
    /// The rings and the arena, which nobody else in this process has.
    pub memory: SessionMemory,
    /// What the broker gives.
    pub welcome: Welcome,
}

/// Why there is no session. `Display` is one line; `Debug` has need and cure on lines of their own.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectError {
    /// Where the broker was looked for.
    pub object: String,
    /// What the system said, or the nearest to what is wrong.
    pub errno: Errno,
    /// What is wrong, where the number does not say it.
    pub what: Option<String>,
    /// What was needed instead.
    pub need: Option<String>,
    /// What to do about it.
    pub cure: Option<String>,
    /// The broker's own words, if it was that who refused.
    pub refused: Option<Box<Failed>>,
}

const NO_BROKER: &str = "use the path of a broker's socket: the one that `baio serve` was given";

impl ConnectError {
    fn new(object: &str, errno: impl Into<Errno>) -> ConnectError {
        ConnectError {
            object: object.to_owned(),
            errno: errno.into(),
            what: None,
            need: None,
            cure: None,
            refused: None,
        }
    }

    fn told(self, what: impl Into<String>, need: &str, cure: &str) -> ConnectError {
        ConnectError {
            what: Some(what.into()),
            ..self.advised(need, cure)
        }
    }

    fn advised(self, need: &str, cure: &str) -> ConnectError {
        ConnectError {
            need: Some(need.to_owned()),
            cure: Some(cure.to_owned()),
            ..self
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, between: &str) -> fmt::Result {
        write!(f, "connect to {}: ", self.object)?;
        match (&self.refused, &self.what) {
            (Some(refused), _) => write!(f, "the broker refused: {}", refused.what)?,
            (None, Some(what)) => write!(f, "{what} ({})", self.errno.name())?,
            (None, None) => write!(f, "{}", self.errno)?,
        }
        write_advice(f, between, self.need.as_deref(), self.cure.as_deref())
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, IN_LINE)
    }
}

impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, ON_LINES)
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.errno)
    }
}

impl From<ConnectError> for std::io::Error {
    fn from(error: ConnectError) -> std::io::Error {
        into_std(error.errno, error)
    }
}

impl Session {
    /// Opens one with the broker whose socket is at `path`.
    ///
    /// # Errors
    /// Nobody serves there, or not this client; the other end is no broker, or of another version; or what the system said.
    pub fn connect(path: &Path, wishes: &Wishes) -> Result<Session, ConnectError> {
        Session::connect_while(path, wishes, &|| true)
    }

    /// The same for one who has more to do: while it waits it asks `still` each 250 ms or more often, and ends at a no.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub fn connect_while(path: &Path, wishes: &Wishes, still: &dyn Fn() -> bool) -> Result<Session, ConnectError> {
        let object = path.display().to_string();
        let until = Instant::now().checked_add(wishes.patience);
        let socket = connect(path, until, still).map_err(|errno| explained(&object, errno))?;
        greet(socket, &object, wishes, until, still)
    }

    /// The same over a connected socket that somebody has handed on.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub fn over(socket: OwnedFd, wishes: &Wishes) -> Result<Session, ConnectError> {
        let object = "the broker behind a socket that was handed on";
        let until = Instant::now().checked_add(wishes.patience);
        let looked = || -> Result<bool, Said> {
            rustix::io::ioctl_fionbio(&socket, true)?;
            let is_packets = rustix::net::sockopt::socket_type(&socket)? == SocketType::SEQPACKET;
            Ok(is_packets && rustix::net::sockopt::socket_domain(&socket)? == AddressFamily::UNIX)
        };
        match looked() {
            Ok(true) => greet(socket, object, wishes, until, &|| true),
            Ok(false) => Err(ConnectError::new(object, Errno::EPROTOTYPE).advised(
                "a connected Unix socket of type SOCK_SEQPACKET",
                "hand on the socket that the broker gave",
            )),
            Err(errno) => Err(explained(object, errno)),
        }
    }
}

fn connect(path: &Path, until: Option<Instant>, still: &dyn Fn() -> bool) -> Result<OwnedFd, Said> {
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = descriptor::socket(AddressFamily::UNIX, SocketType::SEQPACKET, kind, None)?;
    let address = SocketAddrUnix::new(path.as_os_str().as_bytes())?;
    loop {
        match rustix::net::connect(&socket, &address) {
            // So many wait to be accepted that there is no place in the queue: of a free one nobody tells.
            Err(Said::AGAIN) if !is_over(until) && still() => std::thread::sleep(Duration::from_millis(5)),
            Err(Said::INTR) => {}
            other => return other.map(|()| socket),
        }
    }
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// What the system's word means for who looks for a broker.
fn explained(object: &str, errno: Said) -> ConnectError {
    let error = ConnectError::new(object, errno);
    match errno {
        Said::NOENT => error.advised(
            "a broker that runs",
            "start it (`baio serve`), or check which --socket it was started with",
        ),
        Said::CONNREFUSED => error.advised(
            "a broker that runs: what is there is the socket of one that has ended, or no socket",
            "start it (`baio serve`)",
        ),
        Said::ACCESS | Said::PERM => error.advised(
            "permission to write to the socket, and to search the directories above it",
            "have whoever runs the broker start it with another --socket-mode, or act as another user",
        ),
        Said::AGAIN | Said::TIMEDOUT => error.advised(
            "a broker that accepts connections",
            "see whether it runs or is stopped; try again later",
        ),
        Said::PROTOTYPE | Said::NOTSOCK | Said::NOTDIR => error.advised("the socket of a broker", NO_BROKER),
        Said::NAMETOOLONG => error.advised("a path of at most 107 bytes", "use a shorter path, or a link to it"),
        Said::MFILE => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            let limit = limit.map_or("no limit".to_owned(), |limit| format!("a limit of {limit}"));
            error.advised(
                &format!("three free descriptors: this process has {limit}"),
                "raise the limit of open files (RLIMIT_NOFILE, `ulimit -n`), or close some",
            )
        }
        Said::NFILE => error.advised(
            "three free descriptors in the whole system",
            "raise `sysctl fs.file-max`, or close what is open",
        ),
        _ => error,
    }
}

fn no_broker(object: &str, what: impl Into<String>) -> ConnectError {
    ConnectError::new(object, Errno::EPROTO).told(what, "a broker that keeps the protocol", NO_BROKER)
}

fn greet(
    socket: OwnedFd,
    object: &str,
    wishes: &Wishes,
    until: Option<Instant>,
    still: &dyn Fn() -> bool,
) -> Result<Session, ConnectError> {
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        features: FEATURE_GROW | FEATURE_LOGS | FEATURE_OWNERSHIP | wishes.features,
        places: wishes.places,
        arena_bytes: wishes.arena_bytes,
        volume: wishes.volume.clone(),
    };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // A broker that is full says so and closes before it reads: its word is there all the same.
    match rustix::net::send(&socket, &hello.encode(), flags) {
        Ok(_) | Err(Said::PIPE | Said::CONNRESET) => {}
        Err(errno) => return Err(explained(object, errno)),
    }
    let (message, memory) = hear(&socket, object, until, still)?;
    let welcome = match FromBroker::decode(&message) {
        Ok(FromBroker::Welcome(welcome)) => welcome,
        Ok(FromBroker::Answer {
            answer: Answer::Failed(failed),
            ..
        }) => return Err(refused(object, failed)),
        Ok(_) => return Err(no_broker(object, "it does not answer a greeting")),
        Err(malformed) => return Err(no_broker(object, format!("its answer makes no sense: {malformed}"))),
    };
    if welcome.version != VERSION {
        let what = format!("it speaks version {} of the protocol", welcome.version);
        let need = format!("version {VERSION}");
        let cure = "use a client and a broker of one release";
        return Err(ConnectError::new(object, Errno::EPROTONOSUPPORT).told(what, &need, cure));
    }
    not_more_than_wished(object, welcome.places, wishes.places)?;
    let Some(memory) = memory else {
        return Err(no_broker(
            object,
            "its welcome did not come with exactly one descriptor",
        ));
    };
    let layout = Layout::told(&welcome);
    let memory = SessionMemory::map(memory, layout).map_err(|error| match error.errno {
        Errno::EMFILE | Errno::ENFILE => explained(object, Said::from_raw_os_error(error.errno.raw())),
        errno => ConnectError {
            need: error.need.clone(),
            ..ConnectError::new(object, errno).told(error.to_string(), "", NO_BROKER)
        },
    })?;
    if welcome.places == 0 || !layout.has_room_for(welcome.places) {
        return Err(no_broker(
            object,
            "its rings have no room for the requests that it promises",
        ));
    }
    let wire = Wire::new(socket, welcome.questions_max).map_err(|errno| explained(object, errno))?;
    // Buffers may be used longer than the session: till then its memory is ours.
    memory.region().keep(wire.stays_open());
    Ok(Session {
        wire: Arc::new(wire),
        memory,
        welcome,
    })
}

/// A client keeps memory for each place, however little of the session's a broker has for it.
fn not_more_than_wished(object: &str, given: u32, wished: u32) -> Result<(), ConnectError> {
    let most = if wished == 0 { PLACES_MAX } else { wished };
    match given > most {
        true => Err(no_broker(
            object,
            format!("it gives {given} requests in flight, where {most} are the most that were asked for"),
        )),
        false => Ok(()),
    }
}

fn refused(object: &str, failed: Box<Failed>) -> ConnectError {
    ConnectError {
        need: failed.need.clone(),
        cure: failed.cure.clone(),
        refused: Some(failed.clone()),
        ..ConnectError::new(object, Errno::from_raw(i32::try_from(failed.errno).unwrap_or(0)))
    }
}

/// The first message, and the descriptor that came with it if there was exactly one: others are closed.
fn hear(
    socket: &OwnedFd,
    object: &str,
    until: Option<Instant>,
    still: &dyn Fn() -> bool,
) -> Result<(Vec<u8>, Option<OwnedFd>), ConnectError> {
    let mut bytes = vec![0; MESSAGE_MAX + 1];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let heard = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        match heard {
            Ok(heard) => {
                let mut fds: Vec<OwnedFd> = Vec::new();
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = message {
                        fds.extend(rights);
                    }
                }
                if heard.bytes == 0 {
                    let need = "a broker that answers a greeting, and does not run as a user unknown here";
                    return Err(ConnectError::new(object, Errno::ECONNRESET).told(
                        "it closed the connection",
                        need,
                        "see what the broker says about it; try again later",
                    ));
                }
                if heard.flags.contains(ReturnFlags::TRUNC) {
                    return Err(no_broker(object, "its answer is longer than any message"));
                }
                if heard.flags.contains(ReturnFlags::CTRUNC) && fds.is_empty() {
                    // The kernel leaves out what it has no number for, and does not say why.
                    descriptor::duplicate(socket).map_err(|errno| explained(object, errno))?;
                }
                bytes.truncate(heard.bytes);
                let one = match fds.len() {
                    1 => fds.pop().map(descriptor::above_standard).transpose(),
                    _ => Ok(None),
                };
                return Ok((bytes, one.map_err(|errno| explained(object, errno))?));
            }
            Err(Said::AGAIN) => wait(socket, object, until, still)?,
            // It closed without having read all; its word lies behind that, if it had one.
            Err(Said::INTR | Said::CONNRESET) => {}
            Err(errno) => return Err(explained(object, errno)),
        }
    }
}

fn wait(socket: &OwnedFd, object: &str, until: Option<Instant>, still: &dyn Fn() -> bool) -> Result<(), ConnectError> {
    if is_over(until) || !still() {
        return Err(ConnectError::new(object, Errno::ETIMEDOUT).told(
            "it accepted the connection and does not answer",
            "a broker that answers a greeting",
            "see whether it is stopped or overloaded; if nothing accepts there, start it again",
        ));
    }
    let left = until.map_or(SLICE, |until| {
        until.saturating_duration_since(Instant::now()).min(SLICE)
    });
    let left = Timespec::try_from(left).ok();
    let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
    // A signal makes it look early.
    let _ = rustix::event::poll(&mut fds, left.as_ref());
    Ok(())
}
