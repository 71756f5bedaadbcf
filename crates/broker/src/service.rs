//! The service thread: it makes the core, takes the client's submissions, turns the core, and posts completions.
//!
//! One round: take submissions, post completions, say "asleep" and look for submissions again, then turn the core once. The turn
//! submits everything, and sleeps until something completes or the client rings. So requests that arrive while the service is awake
//! are taken before it sleeps, a batch costs one call into the kernel, and each completion is posted by the next round,
//! while others are still in flight. With nothing to do it sleeps in the kernel until the client rings: no timer, no
//! spinning. A round takes at most one ring full of entries, so a client that keeps filling its ring does not delay completions.
//!
//! However the thread ends (closed by the client, by a broken backend, a violation of the protocol, a panic), it drops the core first, which
//! waits until the kernel has released all memory. Then it tells the client ([`baio_ring::Shared::end`]), so that no request waits for ever.

use std::sync::mpsc;
use std::sync::{Arc, mpsc::SyncSender};
use std::task::{Poll, Waker};
use std::time::Duration;

use baio_engine::{Arena, Doorbell, Errno, Memory, SetupError, Wait};
use baio_ring::ring::Ring;
use baio_storage::{Core, Error, Fault};
use baio_words::entry::{COMPLETION_WORDS, HandleWords, Limits, Place, SUBMISSION_WORDS, Submission, Tag, Violation};
use baio_words::{Handle, Identity};

use crate::connection::{Between, Connection};
use crate::control::{self, Begun, Call, Doing, Parcel, Reply};
use crate::seat::{Border, Other, Ration, Seat, answered};
use crate::served;

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
pub fn start(setup: Setup, make: impl FnOnce() -> Result<Core, Error> + Send + 'static) -> Result<Connection, Error> {
    // One place more: a client whose places are all taken can still ask the service to close.
    let places = setup.places.clamp(1, (1 << 20) - 1) + 1;
    let shared: Arc<Between> = Arc::new(Between::new(places));
    let (tell, told) = mpsc::sync_channel(1);
    let theirs = Arc::clone(&shared);
    let thread = baio_process::thread::named("baio-service")
        .start(move || serve(theirs, setup.identity, make, &tell))
        .map_err(|error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(11));
            let error = SetupError::new("start", "a thread".into(), errno);
            not_started(error.cure(baio_process::thread::CURE))
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
            Err(not_started(Fault::ServiceEnded))
        }
    }
}

fn not_started(why: impl Into<Fault>) -> Error {
    Error::new("start", "a service", why)
}

/// Tells the client that nobody is there any more, however the thread ends.
struct Obituary(Arc<Between>);

impl Drop for Obituary {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn serve(
    shared: Arc<Between>,
    identity: Identity,
    make: impl FnOnce() -> Result<Core, Error>,
    tell: &SyncSender<Result<Hello, Error>>,
) {
    // Declared first, so dropped last: when the core is gone.
    let _obituary = Obituary(Arc::clone(&shared));
    let core = match make() {
        Ok(core) => core,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let hello = Hello {
        doorbell: core.engine().doorbell(),
        arena: Arc::clone(core.engine().arena()),
        number: core.number(),
        name: core.volume_name(),
    };
    let service = Service::new(core, Arc::clone(&shared), identity);
    if tell.send(Ok(hello)).is_ok() {
        // How else it ended is told to the client by what its requests get.
        if let Err(End::Broken(errno)) = service.run() {
            shared.broke(errno.raw().unsigned_abs());
        }
    }
}

/// Why the service ends.
#[derive(Debug)]
enum End {
    /// The client wanted it.
    Asked,
    /// The client broke the protocol.
    #[allow(dead_code, reason = "told to a log when there is one")]
    Violation(Violation),
    /// The backend itself is broken: what the system said.
    Broken(Errno),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> End {
        End::Violation(violation)
    }
}

/// The border within one process: rings on the heap, memory in the exchange.
struct Near {
    shared: Arc<Between>,
    arena: Arc<Arena>,
    /// In all handles of the core.
    number: u32,
}

impl Border for Near {
    fn submissions(&self) -> Ring<'_, SUBMISSION_WORDS> {
        self.shared.submissions.ring()
    }

    fn completions(&self) -> Ring<'_, COMPLETION_WORDS> {
        self.shared.completions.ring()
    }

    /// It must be what waits in the exchange.
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

    fn give_back(&self, place: u32, memory: Memory) -> Result<(), Violation> {
        let put = self.shared.exchange.put(place, Parcel::Memory(memory));
        put.then_some(()).ok_or(Violation::Exchange(place))
    }

    /// One client, so the core keeps the one table of handles.
    fn handle(&self, words: HandleWords) -> Handle {
        Handle::from_parts(self.number, words.index, words.generation)
    }

    fn forget(&mut self, words: HandleWords) -> Option<Handle> {
        Some(self.handle(words))
    }

    fn wake(&self) {
        self.shared.bell.ring();
    }
}

struct Service {
    core: Core,
    shared: Arc<Between>,
    identity: Identity,
    seat: Seat<Near>,
    operations: Vec<(Tag, Doing)>,
    closing: Option<Tag>,
}

impl Service {
    fn new(core: Core, shared: Arc<Between>, identity: Identity) -> Service {
        let arena = Arc::clone(core.engine().arena());
        let limits = Limits {
            places: shared.exchange.places(),
            arena_bytes: arena.size() as u64,
        };
        let border = Near {
            shared: Arc::clone(&shared),
            arena,
            number: core.number(),
        };
        Service {
            core,
            shared,
            identity,
            seat: Seat::new(0, border, limits),
            operations: Vec::new(),
            closing: None,
        }
    }

    fn run(mut self) -> Result<(), End> {
        loop {
            // The one client has it all; a ring full a round, as what it submits meanwhile waits for the next one.
            let mut ration = Ration::of_entries(self.shared.submissions.ring().capacity());
            self.take_submissions(&mut ration)?;
            self.collect()?;
            let now = self.core.engine().now();
            self.seat.end_held(now, !self.operations.is_empty())?;
            // What is refused as it leaves the held ones has ended now: no sleep would end for it.
            while self.seat.start_held(&mut self.core, &mut ration) {
                self.collect()?;
            }
            self.seat.close_leaving(&mut self.core);
            self.seat.publish();
            if self.shared.is_stopping() {
                return Err(End::Asked);
            }
            if let Some(tag) = self.closing {
                if self.seat.busy() == 1 {
                    return self.close(tag);
                }
            }
            self.turn()?;
        }
    }

    /// Submits, and sleeps unless there is more to take.
    fn turn(&mut self) -> Result<(), End> {
        if !self.seat.fall_asleep() {
            // What was taken goes off before the rest is looked at.
            return self.turn_core(Wait::No);
        }
        let wait = Wait::Until {
            count: u32::from(self.core.in_flight() > 0),
            min_wait: Duration::ZERO,
            deadline: self.seat.sweep_at(),
        };
        let turned = self.turn_core(wait);
        self.seat.wake_up();
        turned
    }

    fn turn_core(&mut self, wait: Wait) -> Result<(), End> {
        let turned = served::turn(&mut self.core, wait);
        if turned.map_err(|error| End::Broken(error.errno().unwrap_or(Errno::EIO)))? > 0 {
            self.seat.unstick();
        }
        Ok(())
    }

    /// Takes what the client submitted.
    fn take_submissions(&mut self, ration: &mut Ration) -> Result<(), End> {
        while let Some(other) = self.seat.take(&mut self.core, ration)? {
            match other {
                Other::Command(tag) => {
                    let Some(Parcel::Command(command)) = self.shared.exchange.take(tag.index) else {
                        return Err(Violation::Exchange(tag.index).into());
                    };
                    self.command(tag, *command)?;
                }
                Other::CallOff(tag) => {
                    if let Some((_, operation)) = self.operations.iter().find(|(known, _)| *known == tag) {
                        operation.cancel(&mut self.core);
                    }
                }
            }
        }
        Ok(())
    }

    /// Posts what has ended.
    fn collect(&mut self) -> Result<(), End> {
        while let Some(ended) = served::next_end(&mut self.core) {
            self.seat.end(ended.completion, ended.memory).1?;
        }
        let mut at = 0;
        while at < self.operations.len() {
            let (tag, operation) = &self.operations[at];
            let tag = *tag;
            match operation.poll(&mut self.core, Some(Waker::noop().clone())) {
                Poll::Ready(answer) => {
                    self.operations.swap_remove(at);
                    self.reply(tag, answer)?;
                }
                Poll::Pending => at += 1,
            }
        }
        Ok(())
    }

    /// Leaves the answer to a command where its client takes it, and posts that it is there.
    fn reply(&mut self, tag: Tag, answer: Result<Reply, Error>) -> Result<(), End> {
        if !self.shared.exchange.put(tag.index, Parcel::Reply(Box::new(answer))) {
            return Err(Violation::Exchange(tag.index).into());
        }
        Ok(self.seat.end(answered(tag), Memory::None).1?)
    }

    fn command(&mut self, tag: Tag, call: Call) -> Result<(), End> {
        match control::begin(&mut self.core, self.identity, call) {
            Begun::Doing(operation) => self.operations.push((tag, operation)),
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
        self.core.wind_down();
        for (tag, operation) in std::mem::take(&mut self.operations) {
            // A pipe that nobody writes is never open. A file that is opened later is closed then.
            if matches!(operation, Doing::Opening(_)) {
                self.reply(tag, Err(Error::new("open", self.core.volume_name(), Fault::Stale)))?;
            } else {
                self.operations.push((tag, operation));
            }
        }
        Ok(())
    }

    /// Everything has ended: closes the core, and answers when that is done.
    fn close(self, tag: Tag) -> Result<(), End> {
        let Service {
            core, shared, mut seat, ..
        } = self;
        let closed = served::close(core).map(|()| Reply::DONE);
        if !shared.exchange.put(tag.index, Parcel::Reply(Box::new(closed))) {
            return Err(Violation::Exchange(tag.index).into());
        }
        seat.end(answered(tag), Memory::None).1?;
        seat.publish();
        Ok(())
    }
}
