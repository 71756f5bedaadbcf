//! One client's requests in the hands of who serves it: taken from its ring, started or held, ended, posted.
//!
//! Where the rings lie, how memory changes sides and which handle an entry names is the [`Border`]'s: the exchange of one
//! process (`service.rs`), or a session's shared memory (`host/`).

mod held;
mod stage;

use std::collections::VecDeque;

use baio_engine::{Memory, Time};
use baio_ring::ring::{Cursor, Refused, Ring};
use baio_storage::Core;
use baio_words::entry::{
    COMPLETION_WORDS, Completion, HandleWords, Limits, Op, SUBMISSION_WORDS, Submission, Tag, Violation,
};
use baio_words::{Handle, Mode, SegmentRequest};

use self::stage::Stage;
use crate::served::word_of;

/// What lies between a client and its seat.
pub(crate) trait Border {
    /// From the client.
    fn submissions(&self) -> Ring<'_, SUBMISSION_WORDS>;

    /// To the client.
    fn completions(&self) -> Ring<'_, COMPLETION_WORDS>;

    /// The memory that an entry names.
    ///
    /// # Errors
    /// It is not there, or not the client's.
    fn memory(&self, submission: &Submission) -> Result<Memory, Violation>;

    /// The memory of the request at this place is its client's again.
    ///
    /// # Errors
    /// The client has broken the place.
    fn give_back(&self, place: u32, memory: Memory) -> Result<(), Violation>;

    /// What an entry calls a handle; whatever names none is a stale one.
    fn handle(&self, words: HandleWords) -> Handle;

    /// The client closes a handle: it names none from now on. What it named, if it did.
    fn forget(&mut self, words: HandleWords) -> Option<Handle>;

    /// The client sleeps, and there is news.
    fn wake(&self);
}

/// Tags of several seats go through one core: the upper bits of a place say whose it is.
pub(crate) const PLACE_BITS: u32 = 20;

/// Seats that can be told apart.
pub(crate) const SEATS_MAX: u32 = 1 << (u32::BITS - PLACE_BITS);

/// What a client submitted that is not for its seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// A command waits at this place, which is taken from now on.
    Command(Tag),
    /// The client does not wait for this command any more.
    CallOff(Tag),
}

/// What may be taken from a client and started for it in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ration {
    /// Entries of its ring.
    pub(crate) entries: i64,
    /// Requests that are started.
    pub(crate) requests: u32,
    /// Their bytes: the last one goes whole, as long as there are any left.
    pub(crate) device_bytes: i64,
    /// The same of those that the page cache copies.
    pub(crate) copied_bytes: i64,
}

impl Ration {
    /// So many entries, and whatever is in them.
    pub(crate) fn of_entries(entries: u32) -> Ration {
        Ration {
            entries: entries.into(),
            requests: u32::MAX,
            device_bytes: i64::MAX,
            copied_bytes: i64::MAX,
        }
    }

    fn allows(&self, request: &SegmentRequest<Memory>) -> bool {
        let copies = request.mode == Mode::Cached && self.copied_bytes <= 0;
        self.requests > 0 && self.device_bytes > 0 && !copies
    }

    /// Would the next round's be enough for what this one's was not?
    pub(crate) fn grows(&self) -> bool {
        self.requests > 0 && self.device_bytes > 0 && self.copied_bytes <= 0
    }
}

/// A request that was started and has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// When it was started.
    pub(crate) since: Time,
    /// Did it write?
    pub(crate) writes: bool,
    /// Bytes that it was about.
    pub(crate) bytes: i64,
}

/// One client's requests.
pub(crate) struct Seat<B: Border> {
    pub(crate) border: B,
    /// In the upper bits of its tags.
    number: u32,
    limits: Limits,
    submissions: Cursor,
    completions: Cursor,
    /// Completions were pushed that the client cannot see yet.
    unpublished: bool,
    stages: Box<[Stage]>,
    /// Stages that are not empty.
    busy: u32,
    /// Stages that are running.
    running: u32,
    /// Requests that may not start yet, in order. Their stages say so.
    held: VecDeque<SegmentRequest<Memory>>,
    /// Handles that are closed when no held request names them any more.
    leaving: Vec<Handle>,
    /// A held request has gone since these were looked at.
    has_let_go: bool,
    /// When to look for held requests to be given up: perhaps too early, never too late.
    sweep_at: Option<Time>,
    /// Since when nothing has ended and nothing of the client's runs, though requests are held.
    stuck_since: Option<Time>,
}

impl<B: Border> Seat<B> {
    /// The seat with this number, below [`SEATS_MAX`], for at most `limits.places` requests, at most `1 << PLACE_BITS`.
    pub(crate) fn new(number: u32, border: B, limits: Limits) -> Seat<B> {
        Seat {
            border,
            number,
            limits,
            submissions: Cursor::default(),
            completions: Cursor::default(),
            unpublished: false,
            stages: vec![Stage::Empty; limits.places as usize].into(),
            busy: 0,
            running: 0,
            held: VecDeque::new(),
            leaving: Vec::new(),
            has_let_go: false,
            sweep_at: None,
            stuck_since: None,
        }
    }

    /// Requests and commands that have not ended.
    pub(crate) fn busy(&self) -> u32 {
        self.busy
    }

    /// Takes what the client submitted, as far as the ration goes and down to what is not the seat's. What it does not allow to be
    /// started is held.
    ///
    /// # Errors
    /// What no correct client submits.
    pub(crate) fn take(&mut self, core: &mut Core, ration: &mut Ration) -> Result<Option<Other>, Violation> {
        let mut any = false;
        let mut other = None;
        while ration.entries > 0 && other.is_none() {
            let popped = self.border.submissions().pop(&mut self.submissions);
            let Some(raw) = popped.map_err(broken)? else { break };
            ration.entries -= 1;
            any = true;
            let submission = Submission::decode(&raw, &self.limits)?;
            other = self.take_one(core, &submission, ration)?;
        }
        if any {
            self.border.submissions().release(&self.submissions);
        }
        Ok(other)
    }

    fn take_one(
        &mut self,
        core: &mut Core,
        submission: &Submission,
        ration: &mut Ration,
    ) -> Result<Option<Other>, Violation> {
        let tag = submission.tag;
        match submission.op {
            Op::Cancel => return Ok(self.cancel(core, tag)),
            Op::CloseHandle => {
                if let Some(handle) = self.border.forget(submission.handle) {
                    self.close_handle(core, handle);
                }
            }
            Op::Control => {
                self.occupy(tag, Stage::Command)?;
                return Ok(Some(Other::Command(tag)));
            }
            Op::Read | Op::Write | Op::Sync | Op::Fence | Op::Discard | Op::Zero | Op::Truncate | Op::Allocate => {
                let stage = Stage::Held {
                    generation: tag.generation,
                    cancelled: false,
                };
                self.occupy(tag, stage)?;
                let request = self.request(submission).inspect_err(|_| {
                    self.vacate(tag.index);
                })?;
                let refused = match self.held.is_empty() && ration.allows(&request) {
                    true => self.start(core, request, ration).err(),
                    false => Some(request),
                };
                if let Some(request) = refused {
                    self.hold(request);
                }
            }
        }
        Ok(None)
    }

    fn occupy(&mut self, tag: Tag, stage: Stage) -> Result<(), Violation> {
        let place = &mut self.stages[tag.index as usize];
        if *place != Stage::Empty {
            return Err(Violation::InUse(tag.index));
        }
        *place = stage;
        self.busy += 1;
        Ok(())
    }

    fn vacate(&mut self, index: u32) -> Option<Done> {
        let before = std::mem::replace(&mut self.stages[index as usize], Stage::Empty);
        self.busy -= u32::from(before != Stage::Empty);
        match before {
            Stage::Running {
                since, writes, bytes, ..
            } => {
                self.running -= 1;
                Some(Done { since, writes, bytes })
            }
            _ => None,
        }
    }

    fn request(&self, submission: &Submission) -> Result<SegmentRequest<Memory>, Violation> {
        let unknown = Violation::Unknown(0, submission.op as u8);
        Ok(SegmentRequest {
            handle: self.border.handle(submission.handle),
            op: submission.segment_op().ok_or(unknown)?,
            memory: self.border.memory(submission)?,
            mode: submission.mode,
            durability: submission.durability,
            deadline: submission.deadline,
            status: None,
            tag: self.word(submission.tag),
        })
    }

    /// A tag as the core sees it.
    fn word(&self, tag: Tag) -> u64 {
        word_of(Tag {
            index: tag.index | self.number << PLACE_BITS,
            ..tag
        })
    }

    /// The end of a request or command, posted with the next [`Seat::publish`]. Its place is free, whatever else happens.
    ///
    /// # Errors
    /// The client has broken a ring or a place.
    pub(crate) fn end(&mut self, completion: Completion, memory: Memory) -> (Option<Done>, Result<(), Violation>) {
        let (_, tag) = seat_of(completion.tag);
        let done = self.vacate(tag.index);
        (done, self.post(Completion { tag, ..completion }, memory))
    }

    fn post(&mut self, completion: Completion, memory: Memory) -> Result<(), Violation> {
        let tag = completion.tag;
        if !matches!(memory, Memory::None) {
            self.border.give_back(tag.index, memory)?;
        }
        let raw = completion.encode();
        let pushed = self.border.completions().push(&mut self.completions, &raw);
        // A full ring is the same as a broken one: a client that waits for completions takes them.
        pushed.map_err(broken)?;
        self.unpublished = true;
        Ok(())
    }

    /// Shows the client what was posted, and wakes it if it sleeps.
    pub(crate) fn publish(&mut self) {
        if std::mem::take(&mut self.unpublished) && self.border.completions().publish(&self.completions) {
            self.border.wake();
        }
    }

    /// Says that nobody looks at the ring until the client rings. False when there is something in it.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.border.submissions().fall_asleep(&self.submissions)
    }

    /// Somebody looks again.
    pub(crate) fn wake_up(&self) {
        self.border.submissions().wake_up();
    }
}

fn broken(_: Refused) -> Violation {
    Violation::Ring
}

/// The number of the seat in a tag of the core, and the tag without it.
pub(crate) fn seat_of(tag: Tag) -> (u32, Tag) {
    let index = tag.index & ((1 << PLACE_BITS) - 1);
    (tag.index >> PLACE_BITS, Tag { index, ..tag })
}

/// The completion that says that a command has its answer.
pub(crate) fn answered(tag: Tag) -> Completion {
    Completion {
        tag,
        result: Ok(0),
        bytes_done: 0,
        took: baio_engine::Caching::Direct,
        iterations: 0,
    }
}
