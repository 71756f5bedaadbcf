//! The broker: one core, one thread, many clients of other processes.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | how it is made, how it ends |
//! | `rounds.rs` | its loop |
//! | `clients.rs` | connections that come and go |
//! | `questions.rs` | clients' questions, and the answers |
//! | `session.rs` | one client |
//! | `grants.rs` | handles that are handed on |
//! | `logs.rs` | segments for logs that clients keep |
//! | `far.rs` | the border to it: shared memory, its handles |
//! | `names.rs` | what the volume is called here and there |
//! | `rules.rs` | what the administrator lets clients do at most |
//! | `account.rs` | what each user holds, and how much that may be |
//! | `deal.rs` | whose turn it is in a round |
//! | `owners.rs` | its users: what each has under way, and its counters |
//! | `figures.rs` | the same and the core's counters, for other threads |
//! | `sockets.rs`, `groups.rs` | the system's calls for all that |
//!
//! `docs/inside/shm-protocol.md` says what a client may send, `docs/inside/broker.md` who wakes whom.
//!
//! Whatever a client does ends at most its own session. Memory that it shares is read once and checked. Its requests are bounded by
//! [`Options`]. When it goes, its requests end before its memory is given back.
//!
//! Sources: seed 004 §4 (segments that applications own on a shared device), §5 (one shared buffer cache, cached or direct by
//! request).

mod account;
mod clients;
mod deal;
mod far;
mod figures;
mod grants;
mod groups;
mod logs;
mod names;
mod owners;
mod questions;
mod rounds;
mod rules;
mod session;
mod sockets;

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baio_engine::{Doorbell, File, RequestId, SetupError, Time};
use baio_ring::Layout;
use baio_storage::{Core, EVERYBODY_ELSE, Error, Identity, Limits, Result, Ticket};

pub use figures::{Figures, Snapshot};
pub use rules::{May, Rules, Whom};
pub use sockets::Listener;

use self::account::Accounts;
use self::names::Names;
use self::owners::Owners;
use self::session::{Rest, Session};
use self::sockets::{Set, Unknown};
use crate::seat::{PLACE_BITS, SEATS_MAX};

/// How a broker serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What clients call the volume. No path of the host.
    pub name: String,
    /// Clients at a time; at most 4,095.
    pub clients_max: u32,
    /// Clients at a time of one user: nobody takes all the places.
    pub clients_of_one_max: u32,
    /// Requests that a client may have under way; at most 2^20.
    pub places_max: u32,
    /// Bytes of buffers that a client may share with the broker. Memory is taken as it is touched.
    pub arena_bytes_max: u64,
    /// Segments that a client may have open.
    pub handles_max: u32,
    /// Questions that a client may have asked and not been answered.
    pub questions_max: u32,
    /// Bytes that the memory of all sessions may take together, if that is less than all of them would: arenas are smaller then, 256 KiB at
    /// least. One user has as much of it as of the places.
    pub memory_bytes_max: Option<u64>,
    /// How long a client that has connected may wait with its hello.
    pub hello_patience: Duration,
    /// How long a client may read nothing of what it is told, while there is no room to tell it more. It is not heard then: nobody would know that
    /// it has gone, if its own end of the socket lies in what it has sent.
    pub unread_patience: Duration,
    /// What clients may do at most.
    pub rules: Rules,
    /// What an owner may hold who has no quota of its own, if the volume does not say so already: it is noted there. `None` is a
    /// quarter of the volume's space and segments.
    pub quota: Option<Limits>,
}

impl Options {
    /// What the memory of the smallest session takes, with so many places.
    #[must_use]
    pub fn least_session_bytes(places: u32) -> u64 {
        Layout::new(places, clients::ARENA_GRANULE).map_or(0, |layout| layout.bytes)
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "volume".to_owned(),
            clients_max: 1024,
            clients_of_one_max: 512,
            places_max: 256,
            arena_bytes_max: 4 << 20,
            handles_max: 1024,
            questions_max: 32,
            memory_bytes_max: None,
            hello_patience: Duration::from_secs(10),
            unread_patience: Duration::from_secs(300),
            rules: Rules::default(),
            quota: None,
        }
    }
}

/// Serves a core to clients of other processes, in the thread that runs it.
pub struct Broker {
    core: Core,
    listener: Listener,
    /// Full, or ending: nobody is accepted until somebody has gone.
    is_deaf: bool,
    /// Given up for a moment to turn somebody away when there are no descriptors.
    spare: Option<OwnedFd>,
    set: Set,
    /// The set, as the engine polls it.
    poll: File,
    /// That poll, while it is under way.
    polled: Option<RequestId>,
    sessions: Vec<Option<Box<Session>>>,
    /// Sessions that there are, those that are leaving included.
    count: u32,
    /// Those whose rings are looked at each round.
    awake: Vec<u32>,
    owners: Owners,
    /// Requests that were answered at their deadline and that the device has still: whose they are, by place, and their bytes.
    held_on: HashMap<Ticket, (usize, i64)>,
    accounts: Accounts,
    /// What is left of ended sessions whose clients have not closed their sockets.
    rests: Vec<Rest>,
    /// Something was done with the sockets of some of those.
    has_stirred: bool,
    /// Those who came and have not said hello, and until when they may wait with it; in order.
    silent: VecDeque<(Time, u64)>,
    /// When to look for those who read nothing.
    unread_at: Option<Time>,
    /// Users and groups that nobody can be told by here.
    unknown: Unknown,
    /// Something was given back for which questions may wait.
    has_room: bool,
    names: Names,
    options: Options,
    stop: Arc<AtomicBool>,
    next_rules: Arc<Mutex<Option<Rules>>>,
    counts: Counts,
    shows: figures::Shows,
    /// Counts rounds, sessions, freezes and what is handed on: what is to begin elsewhere each time, and names that are never used again.
    round: u64,
    born: u32,
    freezes: u64,
    grants: u64,
    /// Kept for the next round.
    ready: Vec<u64>,
    inbox: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Counts {
    started_at_unix: u64,
    sessions_ended: u64,
}

/// Gives a broker other rules, from any thread.
#[derive(Clone, Debug)]
pub struct Ruler {
    next: Arc<Mutex<Option<Rules>>>,
    doorbell: Doorbell,
}

impl Ruler {
    /// These hold from its next round on. Sessions of who may do less than before are ended.
    pub fn rule(&self, rules: Rules) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
        self.doorbell.ring();
    }
}

/// Ends a broker, from any thread or signal handler's thread.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    doorbell: Doorbell,
}

impl Stop {
    /// Asks it to end: what is under way ends first, then the volume is closed.
    pub fn ask(&self) {
        // Other side: the round that the doorbell begins.
        self.asked.store(true, Ordering::Release);
        self.doorbell.ring();
    }
}

impl Broker {
    /// Serves `core` to whoever connects to `listener`.
    ///
    /// # Errors
    /// The system has no set of sockets for it; or the quota of everybody else could not be noted.
    pub fn new(mut core: Core, listener: Listener, options: Options) -> Result<Broker> {
        bind_everybody(&mut core, options.quota)?;
        let failed = |error: SetupError| Error::new("serve", core.volume_name(), error);
        let set = Set::new().map_err(failed)?;
        let named = |errno| failed(SetupError::new("poll", "the broker's socket".into(), errno));
        set.add(&listener.fd, clients::LISTENER).map_err(named)?;
        let poll = File::from_fd(set.descriptor().map_err(failed)?, "the clients' sockets").map_err(failed)?;
        let options = Options {
            clients_max: options.clients_max.clamp(1, SEATS_MAX - 1),
            // More would be told from another client's by nothing.
            places_max: options.places_max.clamp(1, 1 << PLACE_BITS),
            ..options
        };
        let place_bytes = Options::least_session_bytes(options.places_max);
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Ok(Broker {
            names: Names {
                path: core.volume_name(),
                served: options.name.clone(),
            },
            core,
            listener,
            is_deaf: false,
            spare: sockets::spare(),
            set,
            poll,
            polled: None,
            sessions: Vec::new(),
            count: 0,
            awake: Vec::new(),
            owners: Owners::default(),
            held_on: HashMap::new(),
            accounts: Accounts::new(&options, place_bytes, clients::ARENA_GRANULE),
            rests: Vec::new(),
            has_stirred: false,
            silent: VecDeque::new(),
            unread_at: None,
            unknown: Unknown::read(),
            has_room: false,
            options,
            stop: Arc::default(),
            next_rules: Arc::default(),
            counts: Counts {
                started_at_unix: unix.map_or(0, |since| since.as_secs()),
                sessions_ended: 0,
            },
            shows: figures::Shows::default(),
            round: 0,
            born: 0,
            freezes: 0,
            grants: 0,
            ready: Vec::new(),
            inbox: vec![0; baio_words::session::MESSAGE_MAX + 1].into(),
        })
    }

    /// Ends it from elsewhere.
    #[must_use]
    pub fn stopper(&self) -> Stop {
        Stop {
            asked: Arc::clone(&self.stop),
            doorbell: self.core.engine().doorbell(),
        }
    }

    /// Gives it other rules from elsewhere.
    #[must_use]
    pub fn ruler(&self) -> Ruler {
        Ruler {
            next: Arc::clone(&self.next_rules),
            doorbell: self.core.engine().doorbell(),
        }
    }

    /// Serves until it is stopped. What is under way then ends, what the page cache has is written, and the volume is closed.
    ///
    /// # Errors
    /// The backend is broken, or the volume could not be closed properly: the next open heals it.
    pub fn run(mut self) -> Result<()> {
        let served = self.serve();
        // Nothing else ends it, and a core is closed when nothing is under way.
        if let Some(poll) = self.polled.take() {
            self.core.engine_mut().cancel(poll);
        }
        let Broker {
            core,
            sessions,
            rests,
            shows,
            ..
        } = self;
        drop(shows);
        // Their sockets first: a client sees the end before the next broker has the lock. Their memory stays theirs.
        drop((sessions, rests));
        served.and_then(|()| core.close())
    }
}

/// Nobody fills the volume alone because nobody thought of a limit.
fn bind_everybody(core: &mut Core, quota: Option<Limits>) -> Result<()> {
    const ROOT: Identity = Identity::new(0, 0);
    if !core.quota(ROOT, EVERYBODY_ELSE)?.limits.is_none() {
        return Ok(());
    }
    let info = core.volume_info()?;
    let quarter = Limits {
        blocks: Some(info.size_bytes / u64::from(info.block_size) / 4),
        segments: Some((info.segments_max / 4).max(1)),
    };
    core.set_quota(ROOT, EVERYBODY_ELSE, quota.unwrap_or(quarter)).map(drop)
}
