//! Who comes, and who goes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use baio_engine::Errno;
use baio_ring::SessionMemory;
use baio_words::entry::Limits;
use baio_words::session::{
    Answer, FEATURE_GROW, FEATURE_LOGS, FEATURE_OWNERSHIP, FromClient, GOES_ON, Hello, VERSION, Welcome,
};
use baio_words::{Groups, Identity, Sight};

use super::account::{Account, Accounts, Charge, Kind};
use super::deal::Good;
use super::far::{Far, Handles};
use super::rules::May;
use super::session::{Bound, Open, Rest, Session, failed};
use super::sockets::{self, Heard};
use super::{Broker, Options};
use crate::seat::Seat;

/// What events of the listening socket carry.
pub(super) const LISTENER: u64 = u64::MAX;
/// Messages that are read from one socket in one round.
const MESSAGES_MAX: usize = 8;
/// Connections that are accepted in one round.
const ACCEPTED_MAX: usize = 16;
/// Arenas are multiples of this many bytes.
pub(super) const ARENA_GRANULE: u64 = 256 << 10;
/// A list of groups that is not longer is a part of its session's place.
const GROUPS_FREE: usize = 1024;
/// What events carry of sockets whose sessions have ended.
pub(super) const RESTS: u64 = u64::MAX - 1;

impl Broker {
    /// A socket has something.
    pub(super) fn heard(&mut self, word: u64) {
        match word {
            LISTENER => return self.accept(),
            RESTS => {
                self.has_stirred = true;
                return;
            }
            _ => {}
        }
        let number = word as u32;
        let session = self.sessions.get_mut(number as usize).and_then(Option::as_deref_mut);
        // What is told of one that has gone is not for who came after it.
        let Some(session) = session.filter(|session| session.word == word && !session.is_leaving) else {
            return;
        };
        if session.is_blocked {
            let is_there = session.flush();
            // Who is to read first is not listened to: that it has hung up is seen here only.
            if !is_there || session.owes() && sockets::is_half_closed(session.fd()) {
                return self.leave(number);
            }
        }
        for _ in 0..MESSAGES_MAX {
            let Some(session) = self.sessions[number as usize].as_deref_mut() else {
                return;
            };
            if session.is_leaving || session.owes() {
                break;
            }
            let good = match session.open {
                Some(_) => Good::Messages,
                None => Good::Greetings,
            };
            // What is not read now is told of again in the next round.
            if !self.owners.at(session.owner).hand.take(good) {
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
        if !owes {
            session.unread_since = None;
        } else if session.unread_since.is_none() {
            let now = self.core.engine().now();
            session.unread_since = Some(now);
            let until = now.after(self.options.unread_patience);
            self.unread_at = self.unread_at.into_iter().chain([until]).min();
        }
    }

    /// Ends the sessions of those who have read nothing for too long. Each may have gone long ago: its own end of the socket, sent to us, would
    /// lie among what is not read, and be open.
    pub(super) fn end_unread(&mut self) {
        let now = self.core.engine().now();
        if self.unread_at.is_none_or(|at| at > now) {
            return;
        }
        self.unread_at = None;
        for number in 0..self.sessions.len() {
            let session = self.sessions[number].as_deref().filter(|session| !session.is_leaving);
            let Some(since) = session.and_then(|session| session.unread_since) else {
                continue;
            };
            let until = since.after(self.options.unread_patience);
            if until <= now {
                // Nobody tells of a little room: the set does so when most of the socket is free.
                let session = self.sessions[number].as_deref_mut();
                match session.is_some_and(|session| session.flush() && session.unread_since != Some(since)) {
                    true => self.listen_to(number as u32),
                    false => self.leave(number as u32),
                }
            } else {
                self.unread_at = self.unread_at.into_iter().chain([until]).min();
            }
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
            if self.accounts.is_full() {
                return self.set_deaf(true);
            }
            match self.listener.accept() {
                Ok(Some(socket)) => {
                    let Ok(who) = self.unknown.peer(socket.as_fd()) else {
                        continue; // Nobody that could own anything.
                    };
                    match self.enter(socket, who, None) {
                        Ok(word) => {
                            let until = self.core.engine().now().after(self.options.hello_patience);
                            self.silent.push_back((until, word));
                        }
                        Err((socket, refusal)) => refuse(&socket, &refusal),
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

    /// A place for whoever has the other end of this socket. Whom a handle is handed on to is who has handed it on.
    pub(super) fn enter(
        &mut self,
        socket: OwnedFd,
        who: Identity,
        bound: Option<(Bound, Groups)>,
    ) -> std::result::Result<u64, (OwnedFd, Answer)> {
        let owner = self.owners.enter(who.uid);
        let place = match self.place(owner, &who, bound.is_some()) {
            Ok(place) => place,
            Err(need) => {
                self.owners.leave(owner);
                let cure = "close other connections first, with every descriptor of their sockets";
                return Err((socket, failed(Errno::EAGAIN, "connect", &need, cure)));
            }
        };
        let (bound, listed) = match bound {
            Some((bound, groups)) => (Some(bound), Ok((groups, None))),
            None => (None, self.groups(owner, socket.as_fd())),
        };
        let (groups, long_list) = match listed {
            Ok(listed) => listed,
            Err(refusal) => {
                self.owners.leave(owner);
                return Err((socket, refusal));
            }
        };
        let who = who.in_groups(&groups);
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
        let user = (who, groups, long_list);
        let session = Some(Box::new(Session::new(socket, user, owner, word, bound, place)));
        match self.sessions.get_mut(number) {
            Some(place) => *place = session,
            None => self.sessions.push(session),
        }
        self.count += 1;
        Ok(word)
    }

    /// The groups of whoever has a place now. A long list counts as arena: as many different ones can be brought as there are places.
    fn groups(
        &mut self,
        owner: usize,
        socket: BorrowedFd<'_>,
    ) -> std::result::Result<(Groups, Option<Charge>), Answer> {
        let list = self.unknown.groups_of(socket).map_err(|errno| {
            let need = "the groups of whoever connects (`SO_PEERGROUPS`)";
            failed(errno, "connect", need, "try again later")
        })?;
        let charge = match list.len() > GROUPS_FREE {
            true => {
                let account = &self.owners.at(owner).account;
                let charge = self
                    .accounts
                    .take(account, Kind::ArenaBytes, size_of_val(&list[..]) as u64);
                let need = format!(
                    "at most {GROUPS_FREE} groups, or arena that its user may have still for a longer list of them"
                );
                let cure = "close other connections first, or connect in fewer groups";
                Some(charge.ok_or_else(|| failed(Errno::EAGAIN, "connect", &need, cure))?)
            }
            false => None,
        };
        Ok((Groups::of(&list), charge))
    }

    /// A place for one more session of this user; else what is needed. Before anybody is refused, ends that nobody has told of yet are looked
    /// for: who closes one connection and opens another finds its place free, whichever of the two is heard first.
    /// Not where a handle is handed on: that is in the middle of what one of them has said.
    fn place(&mut self, owner: usize, who: &Identity, is_bound: bool) -> std::result::Result<Charge, String> {
        let place = self.free_place(owner, who);
        if place.is_ok() || is_bound || !self.owners.at(owner).hand.take(Good::SecondLooks) {
            return place;
        }
        self.hear_ends();
        self.free_place(owner, who)
    }

    fn free_place(&mut self, owner: usize, who: &Identity) -> std::result::Result<Charge, String> {
        let is_owner =
            who.uid == 0 || who.uid == rustix::process::geteuid().as_raw() || self.core.sight(*who) == Sight::Whole;
        let places = self.accounts.places(is_owner);
        if self.accounts.held_in_all(Kind::Places) >= places {
            let all = self.accounts.limit(Kind::Places).in_all;
            let kept = all - places;
            return Err(match kept {
                0 => format!("at most {all} connections"),
                kept => format!("at most {places} connections; {kept} more are kept for uid 0 and the volume's owner"),
            });
        }
        let account = &self.owners.at(owner).account;
        let of_one = self.accounts.limit(Kind::Places).of_one;
        let place = self.accounts.take(account, Kind::Places, 1);
        place.ok_or_else(|| format!("at most {of_one} connections of one user"))
    }

    /// Looks which clients have closed their ends, of all sessions and of what is left of others, and gives their places back.
    fn hear_ends(&mut self) {
        let sessions = self.sessions.iter().flatten();
        let sessions: Vec<_> = sessions.filter(|session| !session.is_leaving).collect();
        let fds = sessions.iter().map(|session| session.fd());
        let closed = sockets::closed(&mut fds.chain(self.rests.iter().map(Rest::fd)));
        let ended = sessions.iter().zip(&closed).filter(|(_, is_closed)| **is_closed);
        let ended: Vec<u64> = ended.map(|(session, _)| session.word).collect();
        for word in ended {
            // With what it has said before.
            self.heard(word);
        }
        self.bury();
        self.has_stirred = true;
        self.bury_rests();
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
        session.is_end_said = sockets::say_end(session.fd());
        sockets::stop_hearing(session.fd());
        if let Some(open) = &mut session.open {
            open.seat.cancel_all(&mut self.core);
            let handles = open.seat.border.handles.take_all();
            open.seat.close_handles(&mut self.core, handles);
            for asking in &open.asking {
                asking.doing.cancel(&mut self.core);
            }
            open.freezes.clear();
            open.waiting.clear();
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
                let mut session = *session;
                ended.extend(session.bound.take());
                let mut rest = session.rest();
                if !rest.is_over() && self.set.add_ending(&rest.fd(), RESTS).is_ok() {
                    self.rests.push(rest);
                }
            }
        }
        for bound in ended {
            self.taken_back(&bound);
        }
        if any {
            let sessions = &self.sessions;
            self.awake.retain(|&number| sessions[number as usize].is_some());
            self.has_room = true;
            self.listen_again();
        }
    }

    /// If clients of ended sessions have closed their sockets, or done something else with them: all are looked at, once a round.
    pub(super) fn bury_rests(&mut self) {
        if !std::mem::take(&mut self.has_stirred) {
            return;
        }
        let before = self.rests.len();
        self.rests.retain_mut(|rest| !rest.is_over());
        if self.rests.len() < before {
            self.listen_again();
        }
    }

    /// There may be places again.
    fn listen_again(&mut self) {
        if !self.accounts.is_full() && !self.stop.load(std::sync::atomic::Ordering::Acquire) {
            self.set_deaf(false);
        }
    }

    /// Ends the sessions of those who have come and not said hello for too long: their places are for others.
    pub(super) fn end_silent(&mut self) {
        let now = self.core.engine().now();
        while let Some(&(until, word)) = self.silent.front() {
            let session = self.sessions.get(word as u32 as usize).and_then(Option::as_deref);
            let is_silent = session.is_some_and(|s| s.word == word && s.open.is_none() && !s.is_leaving);
            if is_silent && until > now {
                return;
            }
            self.silent.pop_front();
            if is_silent {
                let need = format!("a hello within {} ms", self.options.hello_patience.as_millis());
                let refusal = failed(Errno::ETIMEDOUT, "connect", &need, "connect again, and say hello");
                self.tell(word as u32, 0, &refusal);
                self.leave(word as u32);
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
        let account = &self.owners.at(session.owner).account;
        let welcome = welcome(&self.options, hello, &self.core, session, (&self.accounts, account));
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

/// Whether somebody who says hello may have a session: the version, the volume and the rules say so.
fn check_hello(options: &Options, hello: &Hello, session: &Session) -> std::result::Result<(), Answer> {
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
    Ok(())
}

fn without_memory(errno: Errno) -> Answer {
    let cure = match errno {
        Errno::EFBIG => "raise the broker's limit of file sizes (`ulimit -f`, `LimitFSIZE=` of its service)",
        // It has no other cause (`Region::create`).
        Errno::ENOSPC => {
            "`vm.overcommit_memory` is 2, and all memory is promised: end programs that have much, raise `vm.overcommit_ratio`, or add swap"
        }
        _ => "try again later",
    };
    failed(errno, "connect", "shared memory for the session", cure)
}

/// Memory for a session, as much as was asked for and its account has left. It is charged for as long as anybody here uses it.
fn memory_for(
    options: &Options,
    hello: &Hello,
    (accounts, account): (&Accounts, &Account),
) -> std::result::Result<(u32, SessionMemory), Answer> {
    let places = match hello.places {
        0 => options.places_max,
        wanted => wanted.min(options.places_max),
    };
    let arena_bytes = match hello.arena_bytes {
        0 => options.arena_bytes_max,
        wanted => wanted.min(options.arena_bytes_max),
    };
    // Whole granules, as every arena.
    let wanted = arena_bytes.max(1).next_multiple_of(ARENA_GRANULE);
    let left = accounts.left(account, Kind::ArenaBytes);
    let more = (wanted - ARENA_GRANULE).min(left - left % ARENA_GRANULE);
    let charge = accounts.take(account, Kind::ArenaBytes, more);
    let memory = SessionMemory::create(places, ARENA_GRANULE + more).map_err(|error| without_memory(error.errno))?;
    memory.region().keep(charge);
    Ok((places, memory))
}

/// What a client is given that says hello, and the memory.
fn welcome(
    options: &Options,
    hello: &Hello,
    core: &baio_storage::Core,
    session: &Session,
    charged: (&Accounts, &Account),
) -> std::result::Result<(Welcome, Promised, OwnedFd), Answer> {
    check_hello(options, hello, session)?;
    let (places, memory) = memory_for(options, hello, charged)?;
    let fd = memory.region().fd().try_clone_to_owned();
    let fd = fd.map_err(|error| without_memory(Errno::of(&error)))?;
    let layout = *memory.layout();
    let block_size = core.block_size().map_err(|_| without_memory(Errno::EIO))?;
    // Who has one handle that was handed on cannot get it again: it goes with the session of who handed it on.
    let known = match session.bound {
        Some(_) => FEATURE_LOGS,
        None => FEATURE_GROW | FEATURE_LOGS | FEATURE_OWNERSHIP | GOES_ON,
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
        block_size,
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
