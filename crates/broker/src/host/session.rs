//! One client: its socket, its requests, what it has asked, what it is to be told.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use baio_engine::{Errno, Time};
use baio_memory::Region;
use baio_storage::{Core, Handle, HeldFreeze, SegmentInfo};
use baio_words::session::{Answer, Failed, Question, pieces};
use baio_words::{Access, Groups, Identity};

use super::account::{Charge, Kind};
use super::far::Far;
use super::groups;
use super::sockets::{self, Sent};
use crate::control::Doing;
use crate::seat::Seat;

/// One client.
pub(super) struct Session {
    pub(super) socket: Arc<OwnedFd>,
    pub(super) who: Identity,
    /// The list that `who` names.
    pub(super) groups: Groups,
    /// Its user's place among the owners.
    pub(super) owner: usize,
    /// What events of its socket carry.
    pub(super) word: u64,
    /// `None` before its first message.
    pub(super) open: Option<Box<Open>>,
    outbox: VecDeque<Letter>,
    /// Its socket was full: it is told when there is room.
    pub(super) is_blocked: bool,
    /// Since when it has read nothing of what it is to be told; while it is blocked.
    pub(super) unread_since: Option<Time>,
    /// Somebody looks at its ring each round.
    pub(super) is_awake: bool,
    /// It has gone, or is to go: what it has under way ends first.
    pub(super) is_leaving: bool,
    /// Its client was told that it is over, as far as it is to be told.
    pub(super) is_end_said: bool,
    /// It is for a handle that was handed on, and for nothing else.
    pub(super) bound: Option<Bound>,
    /// Its place.
    pub(super) place: Charge,
    /// What a long list of groups costs.
    _long_list: Option<Charge>,
    /// Descriptors that it was sent and has perhaps not received.
    flying: Vec<Charge>,
}

/// A handle that one session has handed on to whoever has the other end of another's socket.
pub(super) struct Bound {
    /// Named in the question that takes it back.
    pub(super) grant: u64,
    /// The session that has handed it on, which it is charged to.
    pub(super) by: u32,
    /// The core's; until the session ends, also when its client has closed it.
    pub(super) handle: Handle,
    pub(super) access: Access,
    pub(super) info: SegmentInfo,
    /// What was claimed by it for logs: while anything is under way there, the session has not ended.
    pub(super) claims: Vec<Handle>,
    /// The client has it in its table.
    pub(super) is_taken: bool,
    /// The question of the session (by its word) that waits for its end.
    pub(super) revoked_by: Option<(u32, u64)>,
}

impl Bound {
    /// Can anything still land that was asked by it?
    pub(super) fn lands(&self, core: &Core) -> bool {
        let mut all = self.claims.iter().chain([&self.handle]);
        all.any(|handle| core.is_under_way_on(*handle))
    }
}

/// What a client has that has said hello.
pub(super) struct Open {
    pub(super) seat: Seat<Far>,
    pub(super) asking: Vec<Asking>,
    pub(super) freezes: Vec<(u64, HeldFreeze)>,
    /// What both sides have beyond version 1.
    pub(super) features: u64,
    /// Questions that wait for the end of what was handed on.
    pub(super) revoking: Vec<Charge>,
    /// Questions that wait for their user's turn.
    pub(super) waiting: VecDeque<Waiting>,
    /// The list that goes out.
    listing: Option<Listing>,
}

/// A question that the core is not asked yet.
pub(super) struct Waiting {
    pub(super) id: u32,
    pub(super) question: Question,
    /// What its user has one of more, when it is asked.
    pub(super) kind: Kind,
    pub(super) charge: Charge,
}

/// A question under way.
pub(super) struct Asking {
    pub(super) id: u32,
    pub(super) doing: Doing,
    /// Of an open, how it is answered.
    pub(super) opens: Option<Opens>,
    /// Is it a list?
    pub(super) lists: bool,
    pub(super) was_called_off: bool,
    pub(super) charges: Charges,
}

/// What a question costs its user until it has its whole answer.
#[expect(dead_code, reason = "held for as long as the question is")]
pub(super) struct Charges(pub(super) Charge, pub(super) Option<Charge>);

/// What an ended session leaves behind: its client may use the memory still, and have descriptors in its socket. It counts for its user
/// until the client's end of the socket is closed; then the memory's pages are given back.
pub(super) struct Rest {
    socket: Arc<OwnedFd>,
    is_end_said: bool,
    memory: Option<Arc<Region>>,
    _place: Charge,
    _flying: Vec<Charge>,
}

impl Rest {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Has its client closed its end? Then nothing is left but the memory that a device may be at work on. Else it is told of the end, as
    /// soon as there is room.
    pub(super) fn is_over(&mut self) -> bool {
        self.is_end_said = self.is_end_said || sockets::say_end(self.fd());
        let is_over = sockets::is_closed(self.fd());
        if let Some(memory) = self.memory.as_ref().filter(|_| is_over) {
            memory.give_pages_back();
        }
        is_over
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        sockets::hang_up(self.fd());
    }
}

/// How an open is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opens {
    /// Its client is told which segment it is.
    pub(super) is_known: bool,
}

impl Opens {
    pub(super) fn of(question: &Question) -> Option<Opens> {
        let is_known = match question {
            Question::Open { .. } => false,
            Question::OpenKnown { .. } => true,
            _ => return None,
        };
        Some(Opens { is_known })
    }
}

/// A list that goes out a piece at a time, as the client reads it.
struct Listing {
    id: u32,
    rest: std::vec::IntoIter<SegmentInfo>,
    charges: Charges,
}

/// Descriptors that may lie in the socket of one client.
const FLYING_MAX: usize = 16;

/// Segments of a list that are put into words at a time: some messages.
const SLICE: usize = 512;

struct Letter {
    /// The question that it answers.
    id: Option<u32>,
    message: Vec<u8>,
    with: Option<OwnedFd>,
    /// Of a list's last piece: what the list has cost so far.
    charges: Option<Charges>,
}

impl Session {
    pub(super) fn new(
        socket: OwnedFd,
        (who, groups, long_list): (Identity, Groups, Option<Charge>),
        owner: usize,
        word: u64,
        bound: Option<Bound>,
        place: Charge,
    ) -> Session {
        Session {
            socket: Arc::new(socket),
            who,
            groups,
            owner,
            word,
            open: None,
            outbox: VecDeque::new(),
            is_blocked: false,
            unread_since: None,
            is_awake: false,
            is_leaving: false,
            is_end_said: false,
            bound,
            place,
            _long_list: long_list,
            flying: Vec::new(),
        }
    }

    /// Another descriptor is to be sent to it. Back, when too many lie in its socket.
    pub(super) fn flies(&mut self, charge: Charge) -> Result<(), Charge> {
        if !groups::has_unread(self.fd()) {
            self.flying.clear();
        }
        if self.flying.len() >= FLYING_MAX {
            return Err(charge);
        }
        self.flying.push(charge);
        Ok(())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Is it to be told anything that it has not room for? Then it is asked for nothing new.
    pub(super) fn owes(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends a message, or keeps it until there is room. False: the client has gone.
    pub(super) fn tell(&mut self, id: Option<u32>, message: Vec<u8>, with: Option<OwnedFd>) -> bool {
        self.outbox.push_back(Letter {
            id,
            message,
            with,
            charges: None,
        });
        self.flush()
    }

    /// Answers a question. False: the client has gone.
    pub(super) fn answer(&mut self, id: u32, answer: &Answer, with: Option<OwnedFd>) -> bool {
        let message = answer.encode(id).or_else(|_| too_long().encode(id));
        message.is_ok_and(|message| self.tell(Some(id), message, with))
    }

    /// Answers with a list, a piece at a time.
    pub(super) fn list(&mut self, id: u32, list: Vec<SegmentInfo>, charges: Charges) -> bool {
        if let Some(open) = &mut self.open {
            open.listing = Some(Listing {
                id,
                rest: list.into_iter(),
                charges,
            });
        }
        self.flush()
    }

    /// May another list be begun? It is kept whole until it is read, so there is one at a time, for who reads.
    pub(super) fn may_list(&self) -> bool {
        let lists = |open: &Open| open.listing.is_some() || open.asking.iter().any(|asking| asking.lists);
        !self.owes() && !self.open.as_deref().is_some_and(lists)
    }

    /// What is left of it when it has ended: until its client has closed its end of the socket.
    pub(super) fn rest(self) -> Rest {
        Rest {
            memory: self.open.map(|open| Arc::clone(open.seat.border.region())),
            is_end_said: self.is_end_said,
            socket: self.socket,
            _place: self.place,
            _flying: self.flying,
        }
    }

    /// Sends what there is room for. False: the client has gone.
    pub(super) fn flush(&mut self) -> bool {
        loop {
            while let Some(letter) = self.outbox.front_mut() {
                match sockets::send(
                    self.socket.as_fd(),
                    &letter.message,
                    letter.with.as_ref().map(AsFd::as_fd),
                ) {
                    Sent::Whole => {
                        self.unread_since = None;
                        self.outbox.pop_front()
                    }
                    Sent::Full => return true,
                    Sent::Gone => return false,
                    // No writable event will follow, so a retry cannot wait. An answer carries the refusal; a welcome has no place for one.
                    Sent::TooMany => {
                        letter.with = None;
                        let Some(id) = letter.id else {
                            // A client without its memory: it is told why, and goes.
                            if let Ok(refusal) = too_many("connect").encode(0) {
                                sockets::send(self.socket.as_fd(), &refusal, None);
                            }
                            return false;
                        };
                        let Ok(refusal) = too_many("hand on").encode(id) else {
                            return false;
                        };
                        letter.message = refusal;
                        continue;
                    }
                };
            }
            if !self.next_slice() {
                return true;
            }
        }
    }

    /// Puts the next part of a list into words. False: there is none.
    fn next_slice(&mut self) -> bool {
        let Some(open) = &mut self.open else { return false };
        let Some(listing) = &mut open.listing else {
            return false;
        };
        let infos: Vec<_> = listing.rest.by_ref().take(SLICE).collect();
        let (id, is_last) = (listing.id, listing.rest.len() == 0);
        for piece in pieces(&infos) {
            let piece = match piece {
                Answer::Segments { more, infos } => Answer::Segments {
                    more: more || !is_last,
                    infos,
                },
                other => other,
            };
            // Names have at most 255 bytes, so each piece fits.
            if let Ok(message) = piece.encode(id) {
                self.outbox.push_back(Letter {
                    id: Some(id),
                    message,
                    with: None,
                    charges: None,
                });
            }
        }
        if is_last {
            // Given back when the last piece is sent.
            let charges = open.listing.take().map(|listing| listing.charges);
            if let Some(last) = self.outbox.back_mut() {
                last.charges = charges;
            }
        }
        true
    }
}

impl Open {
    pub(super) fn new(seat: Seat<Far>, features: u64) -> Open {
        Open {
            seat,
            asking: Vec::new(),
            freezes: Vec::new(),
            features,
            revoking: Vec::new(),
            waiting: VecDeque::new(),
            listing: None,
        }
    }

    /// Questions without a whole answer.
    pub(super) fn questions(&self) -> usize {
        self.asking.len() + self.waiting.len() + usize::from(self.listing.is_some()) + self.revoking.len()
    }

    /// Is nothing of it under way any more?
    pub(super) fn is_still(&self) -> bool {
        self.seat.busy() == 0 && self.asking.is_empty()
    }
}

fn too_long() -> Answer {
    failed(
        Errno::EMSGSIZE,
        "answer",
        "an answer that fits into a message of 65536 bytes",
        "ask for less",
    )
}

pub(super) fn too_many(operation: &str) -> Answer {
    failed(
        Errno::EAGAIN,
        operation,
        "fewer descriptors that the broker has sent and clients have not received",
        "receive what was sent; try again later",
    )
}

/// A failure of the host's own.
pub(super) fn failed(errno: Errno, operation: &str, need: &str, cure: &str) -> Answer {
    Answer::Failed(Box::new(Failed {
        code: errno.name().to_owned(),
        errno: errno.raw().unsigned_abs(),
        operation: operation.to_owned(),
        object: "a session".to_owned(),
        offset: None,
        what: errno.to_string(),
        need: Some(need.to_owned()),
        cure: Some(cure.to_owned()),
    }))
}

#[cfg(test)]
mod tests {
    use baio_engine::sim::{Disk, Sim};
    use baio_engine::{Engine, EngineOptions, File, Wait};
    use baio_storage::{CreateOptions, FormatOptions, SegmentOp, SegmentRequest, format_on};

    use super::*;

    /// What was handed on is taken back when nothing lands any more: not by the handle, nor by what was claimed with it for a log.
    #[test]
    fn what_is_under_way_by_a_claim_lands() {
        const ROOT: Identity = Identity::new(0, 0);
        let (disk, config) = (Disk::new(16 << 20), EngineOptions::default());
        let file = File::simulated(&disk, "disk");
        let format = FormatOptions {
            size_bytes: Some(16 << 20),
            segments: Some(64),
            ..FormatOptions::default()
        };
        let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config).unwrap();
        format_on(&mut engine, &file, &format).unwrap();
        let engine = Engine::simulated(Sim::new(2).unwrap(), &config).unwrap();
        let mut core = Core::open_on(engine, &file, &config).unwrap();
        core.create(ROOT, 0, "log", &CreateOptions::of_size(1 << 20)).unwrap();
        let handle = core.open_segment(ROOT, 0, "log", Access::Write).unwrap().0;
        let claim = core.claim_log(handle).unwrap().handle;
        let bound = Bound {
            grant: 1,
            by: 0,
            handle,
            access: Access::Write,
            info: SegmentInfo::default(),
            claims: vec![claim],
            is_taken: true,
            revoked_by: None,
        };
        assert!(!bound.lands(&core));
        let buffer = core.buffer(4096).unwrap();
        let write = SegmentRequest::new(claim, SegmentOp::Write { offset: 0 }, buffer);
        let ticket = core.start(write).unwrap();
        core.close_handle(claim);
        assert!(bound.lands(&core));
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        assert!(core.wait(ticket).unwrap().unwrap().result.is_ok());
        assert!(!bound.lands(&core));
    }
}
