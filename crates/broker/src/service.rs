//! The thread that serves: makes what it serves ([`Served`]), takes what the client submits, turns, posts completions.
//!
//! One round: take submissions, post what has ended, say "asleep" and look again, then one turn of what is served, which
//! submits everything and sleeps until something completes or the client rings. So what arrives while the service is awake
//! is taken before it sleeps, a batch costs one call into the kernel, and each completion is posted by the round after it,
//! while others are still in flight. With nothing to do it sleeps in the kernel until it is rung for: no timer, no
//! spinning. A round takes one ring full at most, of whatever kind: a client that keeps filling its ring delays nobody's
//! completions.
//!
//! Whatever ends the thread (the client, a broken backend, a client that breaks the protocol, a panic), what is
//! served is dropped first, which waits until the kernel has let go of all memory, and then the client is told
//! ([`baio_ring::Shared::end`]): nobody waits for ever.

mod held;

pub(crate) use held::HELD_PATIENCE;

use std::collections::VecDeque;
use std::sync::mpsc;
use std::sync::{Arc, mpsc::SyncSender};
use std::time::Duration;

use baio_engine::{Arena, Caching, Doorbell, Errno, Memory, SetupError, Time, Wait};
use baio_ring::exchange::Parcel;
use baio_ring::ring::{Cursor, Refused};
use baio_words::entry::{Completion, Limits, Op, Place, Submission, Tag, Violation};
use baio_words::{Handle, Identity, SegmentRequest, Ticket};

use crate::connection::Connection;
use crate::served::{Begun, Between, NotStarted, Served, word_of};

/// How a service is started.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Who the client is. Within one process it guards against mistakes only.
    pub identity: Identity,
    /// Requests that the client may have under way.
    pub places: u32,
}

/// What the thread tells when it serves.
struct Hello {
    doorbell: Doorbell,
    arena: Arc<Arena>,
    number: u32,
    name: String,
}

/// Starts a service around what `make` makes, on a thread of its own.
///
/// # Errors
/// What `make` said, or that the thread could not be had.
pub fn start<S: Served + 'static>(
    setup: Setup,
    make: impl FnOnce() -> Result<S, S::Error> + Send + 'static,
) -> Result<Connection<S>, S::Error> {
    // One place more: a client whose places are all taken can still ask the service to close.
    let places = setup.places.clamp(1, (1 << 20) - 1) + 1;
    let shared: Arc<Between<S>> = Arc::new(Between::<S>::new(places));
    let (tell, told) = mpsc::sync_channel(1);
    let theirs = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("baio-service".into())
        .spawn(move || serve(theirs, setup.identity, make, &tell))
        .map_err(|error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(11));
            let error = SetupError::new("start", "a thread".into(), errno);
            NotStarted::Thread(error.cure("end other threads, or raise RLIMIT_NPROC (`ulimit -u`)"))
        })?;
    match told.recv() {
        Ok(Ok(hello)) => Ok(Connection {
            shared,
            doorbell: hello.doorbell,
            arena: hello.arena,
            number: hello.number,
            name: hello.name,
            thread,
        }),
        Ok(Err(error)) => {
            // The caller may open the same volume at once: the thread must have let go of it.
            let _ = thread.join();
            Err(error)
        }
        Err(_) => {
            let _ = thread.join();
            Err(NotStarted::Ended.into())
        }
    }
}

/// Tells the client that nobody is there any more, however the thread ends.
struct Obituary<S: Served>(Arc<Between<S>>);

impl<S: Served> Drop for Obituary<S> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn serve<S: Served>(
    shared: Arc<Between<S>>,
    identity: Identity,
    make: impl FnOnce() -> Result<S, S::Error>,
    tell: &SyncSender<Result<Hello, S::Error>>,
) {
    // Declared first, so dropped last: when what is served is gone.
    let _obituary = Obituary::<S>(Arc::clone(&shared));
    let served = match make() {
        Ok(served) => served,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let hello = Hello {
        doorbell: served.engine().doorbell(),
        arena: Arc::clone(served.engine().arena()),
        number: served.number(),
        name: served.name(),
    };
    let service = Service::new(served, shared, identity);
    if tell.send(Ok(hello)).is_ok() {
        // How it ended is told to the client by what its requests get.
        let _ = service.run();
    }
}

/// Where the request of a place stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Empty,
    /// It waits for a slot.
    Held {
        generation: u32,
        /// The next sweep ends it.
        cancelled: bool,
    },
    /// It was started.
    Running {
        generation: u32,
        ticket: Ticket,
        /// Whoever has it was told, once.
        cancelled: bool,
    },
    /// A command under way.
    Command,
}

/// Why the service ends.
#[derive(Debug)]
enum End {
    /// The client wanted it.
    Asked,
    /// The client broke the protocol.
    #[allow(dead_code, reason = "told to a log when there is one")]
    Violation(Violation),
    /// The backend itself is broken.
    #[allow(dead_code, reason = "as above")]
    Broken(String),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Violation(violation)
    }
}

impl From<Refused> for End {
    fn from(_: Refused) -> End {
        // A full completion ring is the same: a client that waits for completions takes them.
        End::Violation(Violation::Ring)
    }
}

struct Service<S: Served> {
    served: S,
    shared: Arc<Between<S>>,
    arena: Arc<Arena>,
    identity: Identity,
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
    /// Requests that found every slot taken, in order. Their stages say so.
    held: VecDeque<SegmentRequest<Memory>>,
    /// Handles that are closed when no held request names them any more.
    leaving: Vec<Handle>,
    /// When to look for held requests to be given up: perhaps too early, never too late.
    sweep_at: Option<Time>,
    /// Since when nothing has ended and nothing of the client's runs, though requests are held.
    stuck_since: Option<Time>,
    operations: Vec<(Tag, S::Operation)>,
    closing: Option<Tag>,
}

impl<S: Served> Service<S> {
    fn new(served: S, shared: Arc<Between<S>>, identity: Identity) -> Service<S> {
        let places = shared.exchange.places();
        let arena = Arc::clone(served.engine().arena());
        Service {
            served,
            identity,
            limits: Limits {
                places,
                arena_bytes: arena.size() as u64,
            },
            arena,
            submissions: Cursor::default(),
            completions: Cursor::default(),
            unpublished: false,
            stages: vec![Stage::Empty; places as usize].into(),
            busy: 0,
            running: 0,
            held: VecDeque::with_capacity(places as usize),
            leaving: Vec::new(),
            sweep_at: None,
            stuck_since: None,
            operations: Vec::new(),
            closing: None,
            shared,
        }
    }

    fn run(mut self) -> Result<(), End> {
        loop {
            self.take_submissions()?;
            self.collect()?;
            self.end_held()?;
            // What is refused as it leaves the held ones has ended now: no sleep would end for it.
            while self.start_held() {
                self.collect()?;
            }
            self.close_leaving();
            self.publish();
            if self.shared.is_stopping() {
                return Err(End::Asked);
            }
            if let Some(tag) = self.closing {
                if self.busy == 1 {
                    return self.close(tag);
                }
            }
            self.turn()?;
        }
    }

    /// Submits, and sleeps unless there is more to take.
    fn turn(&mut self) -> Result<(), End> {
        let shared = Arc::clone(&self.shared);
        let ring = shared.submissions.ring();
        if !ring.fall_asleep(&self.submissions) {
            // What was taken goes off before the rest is looked at.
            return self.turn_served(Wait::No);
        }
        let wait = Wait::Until {
            count: u32::from(self.served.in_flight() > 0),
            min_wait: Duration::ZERO,
            deadline: self.sweep_at,
        };
        let turned = self.turn_served(wait);
        ring.wake_up();
        turned
    }

    fn turn_served(&mut self, wait: Wait) -> Result<(), End> {
        let turned = self.served.turn(wait);
        if turned.map_err(|error| End::Broken(error.to_string()))? > 0 {
            self.stuck_since = None;
        }
        Ok(())
    }

    /// Takes what the client submitted, one ring full at most: what it submits meanwhile waits for the next round.
    fn take_submissions(&mut self) -> Result<(), End> {
        let shared = Arc::clone(&self.shared);
        let ring = shared.submissions.ring();
        let mut taken = 0;
        while taken < ring.capacity() {
            let Some(raw) = ring.pop(&mut self.submissions)? else {
                break;
            };
            taken += 1;
            let submission = Submission::decode(&raw, &self.limits)?;
            self.take(&submission)?;
        }
        if taken > 0 {
            ring.release(&self.submissions);
        }
        Ok(())
    }

    fn take(&mut self, submission: &Submission) -> Result<(), End> {
        let tag = submission.tag;
        match submission.op {
            Op::Cancel => self.cancel(tag),
            Op::CloseHandle => self.close_handle(self.handle(submission)),
            Op::Control => {
                self.occupy(tag, Stage::Command)?;
                let Some(Parcel::Command(command)) = self.shared.exchange.take(tag.index) else {
                    return Err(Violation::Exchange(tag.index).into());
                };
                self.command(tag, *command)?;
            }
            Op::Read | Op::Write | Op::Sync | Op::Fence | Op::Discard | Op::Zero | Op::Truncate | Op::Allocate => {
                let stage = Stage::Held {
                    generation: tag.generation,
                    cancelled: false,
                };
                self.occupy(tag, stage)?;
                let request = self.request(submission)?;
                let refused = match self.held.is_empty() {
                    true => self.start(request).err(),
                    false => Some(request),
                };
                if let Some(request) = refused {
                    self.hold(request);
                }
            }
        }
        Ok(())
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

    fn vacate(&mut self, index: u32) {
        let before = std::mem::replace(&mut self.stages[index as usize], Stage::Empty);
        self.busy -= u32::from(before != Stage::Empty);
        self.running -= u32::from(matches!(before, Stage::Running { .. }));
    }

    /// One client, so one table of handles serves. With many, each connection has a table of its own.
    fn handle(&self, submission: &Submission) -> Handle {
        let handle = submission.handle;
        Handle::from_parts(self.served.number(), handle.index, handle.generation)
    }

    fn request(&self, submission: &Submission) -> Result<SegmentRequest<Memory>, Violation> {
        let unknown = Violation::Unknown(0, submission.op as u8);
        Ok(SegmentRequest {
            handle: self.handle(submission),
            op: submission.segment_op().ok_or(unknown)?,
            memory: self.memory(submission)?,
            mode: submission.mode,
            durability: submission.durability,
            deadline: submission.deadline,
            status: None,
            tag: word_of(submission.tag),
        })
    }

    /// The memory that an entry names: it must be what waits in the exchange.
    fn memory(&self, submission: &Submission) -> Result<Memory, Violation> {
        let index = submission.tag.index;
        let wrong = Violation::Exchange(index);
        if submission.place == Place::Nowhere {
            return Ok(Memory::None);
        }
        let Some(Parcel::Memory(memory)) = self.shared.exchange.take(index) else {
            return Err(wrong);
        };
        let same = match (submission.place, &memory) {
            (Place::Arena { at, len }, Memory::Own(buffer)) => {
                buffer.is_of(&self.arena) && buffer.place() == at && buffer.len() == len as usize
            }
            // An entry cannot tell more than 32 bits; a longer memory is the user's mistake, and the engine says so.
            (Place::Exchange { len }, memory) => u32::try_from(memory.len()).unwrap_or(u32::MAX) == len,
            _ => false,
        };
        if same { Ok(memory) } else { Err(wrong) }
    }

    /// Posts what has ended.
    fn collect(&mut self) -> Result<(), End> {
        while let Some((completion, memory)) = self.served.next_end() {
            self.give_back(completion, memory)?;
        }
        let mut at = 0;
        while at < self.operations.len() {
            let (tag, operation) = &self.operations[at];
            let (tag, answer) = (*tag, self.served.take_answer(operation));
            match answer {
                Some(answer) => {
                    self.operations.swap_remove(at);
                    self.reply(tag, answer)?;
                }
                None => at += 1,
            }
        }
        Ok(())
    }

    fn give_back(&mut self, completion: Completion, memory: Memory) -> Result<(), End> {
        let index = completion.tag.index;
        self.vacate(index);
        if !matches!(memory, Memory::None) && !self.shared.exchange.put(index, Parcel::Memory(memory)) {
            return Err(Violation::Exchange(index).into());
        }
        self.push(completion)
    }

    fn reply(&mut self, tag: Tag, answer: S::Answer) -> Result<(), End> {
        self.vacate(tag.index);
        let completion = leave::<S>(&self.shared, tag, answer)?;
        self.push(completion)
    }

    fn push(&mut self, completion: Completion) -> Result<(), End> {
        let ring = self.shared.completions.ring();
        ring.push(&mut self.completions, &completion.encode())?;
        self.unpublished = true;
        Ok(())
    }

    /// Shows the client what was pushed, and wakes it if it sleeps.
    fn publish(&mut self) {
        if std::mem::take(&mut self.unpublished) && self.shared.completions.ring().publish(&self.completions) {
            self.shared.bell.ring();
        }
    }

    fn command(&mut self, tag: Tag, command: S::Command) -> Result<(), End> {
        match self.served.begin(self.identity, command) {
            Begun::Operation(operation) => self.operations.push((tag, operation)),
            Begun::Answered(answer) => return self.reply(tag, answer),
            Begun::Close => {
                self.closing = Some(tag);
                return self.wind_down();
            }
        }
        Ok(())
    }

    /// The client waits for the end of whatever is under way: that comes soon.
    fn wind_down(&mut self) -> Result<(), End> {
        self.served.wind_down();
        for (tag, operation) in std::mem::take(&mut self.operations) {
            match self.served.give_up(&operation) {
                Some(answer) => self.reply(tag, answer)?,
                None => self.operations.push((tag, operation)),
            }
        }
        Ok(())
    }

    /// Everything has ended: closes what is served, and answers when it is given back.
    fn close(self, tag: Tag) -> Result<(), End> {
        let Service {
            served,
            shared,
            mut completions,
            ..
        } = self;
        let completion = leave::<S>(&shared, tag, served.close())?;
        let ring = shared.completions.ring();
        ring.push(&mut completions, &completion.encode())?;
        if ring.publish(&completions) {
            shared.bell.ring();
        }
        Ok(())
    }
}

/// Leaves the answer to a command where its client takes it, and makes the completion that says so.
fn leave<S: Served>(shared: &Between<S>, tag: Tag, answer: S::Answer) -> Result<Completion, Violation> {
    if !shared.exchange.put(tag.index, Parcel::Reply(Box::new(answer))) {
        return Err(Violation::Exchange(tag.index));
    }
    Ok(Completion {
        tag,
        result: Ok(0),
        bytes_done: 0,
        took: Caching::Direct,
        iterations: 0,
    })
}
