//! A link whose broker has ended goes on with the next one on the same socket.
//!
//! A thread of its own looks for it, with pauses that grow, for as long as the link's options say. It makes a session, sees that it is
//! another opening of the same volume, opens the segments again by what they are, and hands all of it to the client
//! ([`baio_client::Client::resume`]), under whose lock it takes the place of the former.
//!
//! **Why memory of the former broker may come back then.** A broker opens its volume before it greets anybody. The open takes the lock of the
//! volume's file or device, which is on the description that carries the I/O: the kernel gives it up when the last request on it has ended, however its
//! process did. Then it raises the epoch. So the welcome of a broker with a later epoch of the same volume means that nothing of the former one's
//! is under way, in its process or in the kernel. A broker of the same epoch is the same one, which has ended the session itself and may be at its
//! requests still: nothing is taken over from it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use baio_client::{ConnectError, Session, Wire, Wishes};
use baio_ring::{Bell, Shared};
use baio_words::session::{Answer, GOES_ON, Question};
use baio_words::{Errno, Lost};

use super::carried::{Between, Client};
use super::far::{self, Far};
use super::handles::{Known, Opened};
use crate::moment::from_now;

/// The first pause, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(250)];

/// Which opening of which volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    volume: [u8; 16],
    epoch: u64,
}

/// What a link needs to go on.
pub(super) struct Again {
    path: PathBuf,
    wishes: Wishes,
    limit: Duration,
    opening: Mutex<Opening>,
}

impl Again {
    /// With the broker of this session first.
    pub(super) fn new(session: &Session, path: &Path, wishes: &Wishes, limit: Duration) -> Result<Again, ConnectError> {
        let until = from_now(wishes.patience);
        let opening = opening(session, until, &|| true).ok_or_else(|| ConnectError {
            object: baio_engine::path_name(path),
            errno: Errno::EPROTONOSUPPORT,
            what: Some("it cannot tell one opening of its volume from another".to_owned()),
            need: Some("a broker whose clients can go on with the next one".to_owned()),
            cure: Some("start a broker of this release, or connect with `Reconnect::Never`".to_owned()),
            refused: None,
        })?;
        Ok(Again {
            path: path.to_owned(),
            wishes: Wishes {
                // By its name: another may be the only one there tomorrow.
                volume: session.welcome.volume.clone(),
                places: session.welcome.places,
                arena_bytes: session.welcome.arena_bytes,
                ..wishes.clone()
            },
            limit,
            opening: Mutex::new(opening),
        })
    }

    /// This client is the one that goes on.
    pub(super) fn belongs_to(self, client: &Arc<Client>) {
        let (again, link) = (Arc::new(self), Arc::downgrade(client));
        if let Some(far) = client.carrier().far() {
            far.looks_by(Box::new(move || begin(&again, &link)));
        }
    }

    fn opening(&self) -> MutexGuard<'_, Opening> {
        baio_client::locked(&self.opening)
    }
}

/// Begins to look for the next broker. False: no thread can be had for that.
fn begin(again: &Arc<Again>, link: &Weak<Client>) -> bool {
    // Beyond the clock's end is never.
    let until = Instant::now().checked_add(again.limit);
    let (again, link) = (Arc::clone(again), link.clone());
    let thread = baio_process::thread::named("baio-reconnect");
    thread.start(move || look(&again, &link, until)).is_ok()
}

fn opening(session: &Session, until: Instant, still: &dyn Fn() -> bool) -> Option<Opening> {
    if session.welcome.features & GOES_ON == 0 {
        return None;
    }
    match session.wire.ask_alone(&Question::Opening, until, still)? {
        Answer::Opening { volume, epoch } => Some(Opening { volume, epoch }),
        _ => None,
    }
}

/// Looks for the next broker until it is there, the link is closed, or `until` is over.
fn look(again: &Again, link: &Weak<Client>, until: Option<Instant>) {
    let [mut pause, longest] = PAUSES;
    let left = |now: Instant| until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
    while let Some(client) = link.upgrade() {
        let Some(far) = client.carrier().far() else { return };
        if client.refusal().is_some() {
            return client.look_once(); // It was closed: whoever waits is told.
        }
        if goes_on(&client, far, again, left(Instant::now())) {
            return;
        }
        let left = left(Instant::now());
        if left.is_zero() {
            return client.give_up();
        }
        client.end_overdue();
        // Who drops the link meanwhile does not wait for this.
        drop(client);
        std::thread::sleep(pause.min(left));
        pause = pause.saturating_mul(2).min(longest);
    }
}

/// One attempt. True: it goes on, or was closed.
fn goes_on(client: &Client, far: &Far, again: &Again, left: Duration) -> bool {
    let patience = left.min(again.wishes.patience);
    let until = from_now(patience);
    let wishes = Wishes {
        patience,
        ..again.wishes.clone()
    };
    // Somebody may be there and say nothing for long.
    let still = || {
        client.end_overdue();
        client.refusal().is_none()
    };
    let Ok(session) = Session::connect_while(&again.path, &wishes, &still) else {
        return false;
    };
    let Some(opening) = opening(&session, until, &still).filter(|opening| again.is_next(&session, far, *opening))
    else {
        return false;
    };
    let Ok(arena) = far::arena(&session.memory, far.name()) else {
        return false;
    };
    let bell = Bell::far(Arc::clone(far.wire()) as Arc<dyn baio_ring::FarBell>);
    let Some(line) = Shared::far(&session.memory, session.welcome.places, bell) else {
        return false;
    };
    let line: Between = line;
    let known = client.kept(|kept, _| kept.handles.to_open());
    let mut opened: Vec<(u32, Opened)> = Vec::with_capacity(known.len());
    for (index, known) in known {
        match open(&session.wire, &known, until, &still) {
            Some(result) => opened.push((index, result)),
            None => return false,
        }
    }
    let resumed = client.resume(Arc::new(line), |kept| {
        *again.opening() = opening;
        far.take_over(kept, &session.wire, arena, session.welcome.features);
        kept.handles.install(opened)
    });
    resumed || client.refusal().is_some()
}

impl Again {
    /// May what the former broker had be taken over by the one of this session?
    fn is_next(&self, session: &Session, far: &Far, opening: Opening) -> bool {
        let (welcome, wishes) = (&session.welcome, &self.wishes);
        let former = *self.opening();
        let is_other = opening.volume == former.volume && opening.epoch > former.epoch;
        let is_room = welcome.places >= wishes.places && welcome.arena_bytes >= wishes.arena_bytes;
        is_other && is_room && welcome.uid == far.uid()
    }
}

/// The same segment, by what it is. `None`: the broker has gone too, or it took too long.
fn open(wire: &Wire, known: &Known, until: Instant, still: &dyn Fn() -> bool) -> Option<Opened> {
    let question = Question::OpenKnown {
        owner_uid: known.owner_uid,
        name: known.name.clone(),
        access: known.access,
        identity: Some(known.uuid),
    };
    match wire.ask_alone(&question, until, still)? {
        Answer::OpenedKnown {
            handle, info, identity, ..
        } if identity == known.uuid => Some(Ok((handle.into(), info.name))),
        Answer::Failed(failed) => {
            let errno = Errno::from_raw(i32::try_from(failed.errno).unwrap_or(0));
            Some(Err(match errno {
                Errno::ESTALE => Lost::Segment,
                errno => Lost::Refused(errno),
            }))
        }
        _ => Some(Err(Lost::Refused(Errno::EPROTO))),
    }
}
