//! Who comes, and who goes.

use std::os::fd::{AsFd, OwnedFd};

use baio_engine::Errno;
use baio_ring::SessionMemory;
use baio_words::Identity;
use baio_words::entry::Limits;
use baio_words::session::{Answer, FEATURE_LOGS, FEATURE_OWNERSHIP, FromClient, GOES_ON, Hello, VERSION, Welcome};

use super::far::{Far, Handles};
use super::rules::May;
use super::session::{Bound, Open, Session, failed};
use super::sockets::{self, Heard};
use super::{Broker, Options};
use crate::seat::Seat;

/// What events of the listening socket carry.
pub(super) const LISTENER: u64 = u64::MAX;
/// Messages that are read from one socket in one round.
const MESSAGES_MAX: usize = 8;
/// Connections that are accepted in one round.
const ACCEPTED_MAX: usize = 64;
/// Arenas are multiples of this many bytes.
const ARENA_GRANULE: u64 = 256 << 10;

impl Broker {
    /// A socket has something.
    pub(super) fn heard(&mut self, word: u64) {
        if word == LISTENER {
            return self.accept();
        }
        let number = word as u32;
        let session = self.sessions.get_mut(number as usize).and_then(Option::as_deref_mut);
        // What is told of one that has gone is not for who came after it.
        let Some(session) = session.filter(|session| session.word == word && !session.is_leaving) else {
            return;
        };
        if session.is_blocked && !session.flush() {
            return self.leave(number);
        }
        for _ in 0..MESSAGES_MAX {
            let Some(session) = self.sessions[number as usize].as_deref_mut() else {
                return;
            };
            if session.is_leaving || session.owes() {
                break;
            }
            match sockets::receive(session.fd(), &mut self.inbox) {
                Heard::Nothing => break,
                Heard::Gone => return self.leave(number),
                Heard::Message(len) => {
                    let message = self.inbox.get(..len).map(FromClient::decode);
                    match message {
                        // Mostly there is nothing behind it; if there is, the set says so again.
                        Some(Ok(doorbell @ FromClient::Doorbell)) => {
                            self.said(number, doorbell);
                            break;
                        }
                        Some(Ok(message)) => self.said(number, message),
                        // Longer than any message, or none.
                        Some(Err(_)) | None => self.violated(number),
                    }
                }
            }
        }
        self.listen_to(number);
    }

    /// Waits for what a session is to send; or first for it to read what it is told.
    pub(super) fn listen_to(&mut self, number: u32) {
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        let owes = session.owes();
        if owes != session.is_blocked && !session.is_leaving {
            session.is_blocked = owes;
            self.set.wait_for(&session.fd(), session.word, !owes, owes);
        }
    }

    pub(super) fn violated(&mut self, number: u32) {
        if let Some(session) = self.sessions[number as usize].as_deref() {
            self.owners.at(session.owner).violations += 1;
        }
        self.leave(number);
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            if self.count >= self.options.clients_max {
                return self.set_deaf(true);
            }
            match self.listener.accept() {
                Ok(Some(socket)) => {
                    let Ok(who) = sockets::peer(socket.as_fd()) else {
                        continue; // Nobody that could own anything.
                    };
                    if let Err((socket, refusal)) = self.enter(socket, who, None) {
                        refuse(&socket, &refusal);
                    }
                }
                Ok(None) => return,
                // Whoever waits is told by the end of its connection, and not kept waiting for descriptors that nobody gives back.
                Err(Errno::EMFILE | Errno::ENFILE) => self.turn_away(),
                Err(_) => return,
            }
        }
    }

    /// Accepts by the one descriptor that is kept for this, and hangs up.
    fn turn_away(&mut self) {
        self.spare = None;
        let _ = self.listener.accept();
        self.spare = sockets::spare();
    }

    /// The listening socket is looked at, or not.
    fn set_deaf(&mut self, is_deaf: bool) {
        if self.is_deaf != is_deaf {
            self.is_deaf = is_deaf;
            self.set.wait_for(&self.listener.fd, LISTENER, !is_deaf, false);
        }
    }

    /// A place for whoever has the other end of this socket.
    pub(super) fn enter(
        &mut self,
        socket: OwnedFd,
        who: Identity,
        bound: Option<Bound>,
    ) -> std::result::Result<(), (OwnedFd, Answer)> {
        let of_one_max = self.options.clients_of_one_max;
        let refused = |need: String| failed(Errno::EAGAIN, "connect", &need, "close other connections first");
        if self.count >= self.options.clients_max {
            return Err((
                socket,
                refused(format!("at most {} connections", self.options.clients_max)),
            ));
        }
        let owner = self.owners.enter(who.uid);
        if self.owners.at(owner).sessions > of_one_max {
            self.owners.leave(owner);
            return Err((socket, refused(format!("at most {of_one_max} connections of one user"))));
        }
        let free = self.sessions.iter().position(Option::is_none);
        let number = free.unwrap_or(self.sessions.len());
        self.born = self.born.wrapping_add(1) & (u32::MAX >> 1); // Never the listener's word.
        let word = u64::from(self.born) << 32 | number as u64;
        if let Err(errno) = self.set.add(&socket, word) {
            self.owners.leave(owner);
            return Err((
                socket,
                failed(errno, "connect", "a place in the set of sockets", "try again later"),
            ));
        }
        let session = Some(Box::new(Session::new(socket, who, owner, word, bound)));
        match self.sessions.get_mut(number) {
            Some(place) => *place = session,
            None => self.sessions.push(session),
        }
        self.count += 1;
        Ok(())
    }

    /// A client has gone, or is sent away. What it has under way ends before its memory is given back.
    pub(super) fn leave(&mut self, number: u32) {
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        if session.is_leaving {
            return;
        }
        session.is_leaving = true;
        self.set.remove(&session.fd());
        sockets::hang_up(session.fd());
        if let Some(open) = &mut session.open {
            open.seat.cancel_all(&mut self.core);
            let handles = open.seat.border.handles.take_all();
            open.seat.close_handles(&mut self.core, handles);
            for asking in &open.asking {
                asking.doing.cancel(&mut self.core);
            }
            open.freezes.clear();
        }
        if let Some(bound) = session.bound.as_ref().filter(|bound| !bound.is_taken) {
            self.core.close_handle(bound.handle);
        }
        if !std::mem::replace(&mut session.is_awake, true) {
            self.awake.push(number);
        }
        self.take_back_all_of(number);
    }

    /// Gives the places of those back who have left and have nothing under way.
    pub(super) fn bury(&mut self) {
        let (mut any, mut ended) = (false, Vec::new());
        for &number in &self.awake {
            let (place, core) = (&mut self.sessions[number as usize], &self.core);
            let is_over = |session: &mut Box<Session>| {
                let lands = session.bound.as_ref().is_some_and(|bound| bound.lands(core));
                session.is_leaving && !lands && session.open.as_ref().is_none_or(|open| open.is_still())
            };
            if let Some(session) = place.take_if(is_over) {
                self.owners.leave(session.owner);
                self.count -= 1;
                self.counts.sessions_ended += 1;
                any = true;
                ended.extend(session.bound);
            }
        }
        for bound in ended {
            self.taken_back(&bound);
        }
        if any {
            let sessions = &self.sessions;
            self.awake.retain(|&number| sessions[number as usize].is_some());
            if !self.stop.load(std::sync::atomic::Ordering::Acquire) {
                self.set_deaf(false);
            }
        }
    }

    pub(super) fn wake(&mut self, number: u32) {
        if let Some(session) = self.sessions[number as usize].as_deref_mut() {
            if !std::mem::replace(&mut session.is_awake, true) {
                self.awake.push(number);
            }
        }
    }

    fn said(&mut self, number: u32, message: FromClient) {
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        match (message, session.open.is_some()) {
            (FromClient::Doorbell, true) => self.wake(number),
            (FromClient::Hello(hello), false) => self.greet(number, &hello),
            (FromClient::Question { id, question }, true) => {
                // A doorbell for which there was no room behind questions is not sent: who reads these looks at the ring.
                self.wake(number);
                self.asked(number, id, question);
            }
            // Before the hello, or a second one.
            _ => self.violated(number),
        }
    }

    fn greet(&mut self, number: u32, hello: &Hello) {
        let Some(session) = self.sessions[number as usize].as_deref_mut() else {
            return;
        };
        let welcome = welcome(&self.options, hello, &self.core, session);
        let is_there = match welcome {
            Ok((welcome, open, fd)) => {
                session.open = Some(open.into_open(number));
                session.tell(None, welcome.encode(), Some(fd))
            }
            Err(refusal) => {
                session.answer(0, &refusal, None);
                false
            }
        };
        match is_there {
            // So that it falls asleep, and says so: its first request rings then.
            true => self.wake(number),
            false => self.leave(number),
        }
    }
}

/// Tells whoever connects why not.
fn refuse(socket: &OwnedFd, refusal: &Answer) {
    if let Ok(message) = refusal.encode(0) {
        sockets::send(socket.as_fd(), &message, None);
    }
    sockets::hang_up(socket.as_fd());
}

/// What a session needs of what it was promised.
struct Promised {
    border: Far,
    limits: Limits,
    features: u64,
}

impl Promised {
    fn into_open(self, number: u32) -> Box<Open> {
        Box::new(Open::new(Seat::new(number, self.border, self.limits), self.features))
    }
}

/// What a client is given that says hello, and the memory.
fn welcome(
    options: &Options,
    hello: &Hello,
    core: &baio_storage::Core,
    session: &Session,
) -> std::result::Result<(Welcome, Promised, OwnedFd), Answer> {
    if hello.version_min > VERSION || hello.version_max < VERSION {
        let need = format!("version {VERSION} of the protocol");
        return Err(failed(
            Errno::EPROTONOSUPPORT,
            "connect",
            &need,
            "use a client and a broker of one release",
        ));
    }
    if !hello.volume.is_empty() && hello.volume != options.name {
        return Err(failed(
            Errno::ENOENT,
            "connect",
            "the name of a volume that is served here",
            "leave the name out, or ask whoever runs the broker",
        ));
    }
    if options.rules.of(&session.who) == May::NOTHING {
        let need = "a rule of the broker's that allows something";
        return Err(failed(Errno::EACCES, "connect", need, "ask whoever runs the broker"));
    }
    let refused = |errno: Errno| failed(errno, "connect", "shared memory for the session", "try again later");
    let places = match hello.places {
        0 => options.places_max,
        wanted => wanted.min(options.places_max),
    };
    let arena_bytes = match hello.arena_bytes {
        0 => options.arena_bytes_max,
        wanted => wanted.min(options.arena_bytes_max),
    };
    // Whole granules, as every arena.
    let arena_bytes = arena_bytes.max(1).next_multiple_of(ARENA_GRANULE);
    let memory = SessionMemory::create(places, arena_bytes).map_err(|error| refused(error.errno))?;
    let fd = memory.region().fd().try_clone_to_owned();
    let fd = fd.map_err(|error| refused(Errno::of(&error)))?;
    let layout = *memory.layout();
    let info = core.volume_info().map_err(|_| refused(Errno::EIO))?;
    // Who has one handle that was handed on cannot get it again: it goes with the session of who handed it on.
    let known = match session.bound {
        Some(_) => FEATURE_LOGS,
        None => FEATURE_LOGS | FEATURE_OWNERSHIP | GOES_ON,
    };
    let features = hello.features & known;
    let welcome = Welcome {
        version: VERSION,
        features,
        places,
        questions_max: options.questions_max,
        uid: session.who.uid,
        memory_bytes: layout.bytes,
        submissions: layout.submissions,
        completions: layout.completions,
        arena_at: layout.arena_at,
        arena_bytes: layout.arena_bytes,
        volume: options.name.clone(),
        cached: core.cache_stats().is_some(),
        block_size: info.block_size,
    };
    let handles = Handles::new(options.handles_max as usize, core.number());
    let limits = Limits {
        places,
        arena_bytes: layout.arena_bytes,
    };
    let border = Far::new(memory, handles, std::sync::Arc::clone(&session.socket));
    let promised = Promised {
        border,
        limits,
        features,
    };
    Ok((welcome, promised, fd))
}
