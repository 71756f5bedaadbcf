//! The core: one engine, one volume, driven by one thread.
//!
//! It is deterministic and holds no lock. Whoever turns it, drives it: requests and operations that are queued reach the
//! kernel in [`Core::turn`], completions are read there, and the state machines they belong to move on. A completion finds
//! its owner by its tag: two bits say what kind of owner, the rest which one.
//!
//! Wakers are collected, never called, here: whoever turned the core wakes them when its borrow has ended.

use std::collections::VecDeque;
use std::path::Path;
use std::task::{Poll, Waker};
use std::time::Duration;

use baio_engine::{
    Argument, Buffer, Completion, Config, Create, Engine, File, Kind, Memory, Notice, Op, Open, Policy, Request,
    RequestId, Stats, Wait,
};

use crate::error::{Error, Fault, Result};
use crate::identity::{Access, Identity};
use crate::object::{Objects, State, Target};
use crate::operation::create::{Create as CreateOperation, CreateOptions};
use crate::operation::delete::Delete;
use crate::operation::open::OpenSegment;
use crate::operation::{Answer, Context, Event, Operation, Step, Subject};
use crate::request::{Handle, Outcome, Requests, SegmentOp, SegmentRequest, Ticket};
use crate::segment::name::{Key, SegmentName};
use crate::segment::probe::SlotAddress;
use crate::volume::device::{Device, Hold};
use crate::volume::inspect::{self, SegmentInfo, VolumeInfo};
use crate::volume::table::{Doubt, Healing};
use crate::volume::{Volume, format};

/// Who a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Request(Ticket),
    Operation(u32),
}

impl Owner {
    const REQUEST: u64 = 1 << 62;
    const OPERATION: u64 = 2 << 62;
    const KIND: u64 = 3 << 62;

    fn tag(self) -> u64 {
        match self {
            Owner::Request(ticket) => Owner::REQUEST | u64::from(ticket.generation) << 32 | u64::from(ticket.index),
            Owner::Operation(index) => Owner::OPERATION | u64::from(index),
        }
    }

    fn of(tag: u64) -> Option<Owner> {
        match tag & Owner::KIND {
            Owner::REQUEST => Some(Owner::Request(Ticket {
                index: tag as u32,
                generation: (tag >> 32) as u32 & 0x3fff_ffff,
            })),
            Owner::OPERATION => Some(Owner::Operation(tag as u32)),
            _ => None,
        }
    }
}

/// An operation under way, and what it waits for.
struct Running {
    operation: Operation,
    draining: Option<SlotAddress>,
    answer: Option<Result<Answer>>,
    /// Nobody waits for the answer any more.
    left_alone: bool,
}

/// One engine and at most one volume.
pub struct Core {
    // Before the volume: dropping the engine waits until the kernel has let go of everything.
    engine: Engine,
    volume: Option<Volume>,
    objects: Objects,
    requests: Requests,
    running: Vec<Option<Running>>,
    /// The operation that has the table token.
    token: Option<u32>,
    waiting_for_token: VecDeque<u32>,
    fired: Vec<Waker>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Core({})", self.volume_name())
    }
}

impl Core {
    /// A core without a volume, for plain files.
    ///
    /// # Errors
    /// When no backend can be started.
    pub fn new(config: &Config) -> Result<Core> {
        let engine = Engine::new(config).map_err(|error| Error::new("start", "the engine", error))?;
        Ok(Core::around(engine, None, config))
    }

    /// Opens the volume at `path` to read and write it; this process then owns it.
    ///
    /// # Errors
    /// In use by another process, not a volume, a newer one, damaged beyond repair; or what the system said.
    pub fn open(path: &Path, config: &Config) -> Result<Core> {
        let engine = Engine::new(config).map_err(|error| Error::new("start", "the engine", error))?;
        let device = Device::open(path, Hold::Exclusive, Create::Never)?;
        Core::serve(engine, device, config)
    }

    /// Opens a volume on a simulated disk.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_simulated(engine: Engine, file: &File, config: &Config) -> Result<Core> {
        Core::serve(engine, Device::simulated(file.clone()), config)
    }

    fn serve(mut engine: Engine, device: Device, config: &Config) -> Result<Core> {
        let file = device.file.clone();
        match Volume::open(&mut engine, device) {
            Ok(volume) => Ok(Core::around(engine, Some(volume), config)),
            Err(error) => {
                engine.detach(&file);
                file.unlock();
                Err(error)
            }
        }
    }

    fn around(engine: Engine, volume: Option<Volume>, config: &Config) -> Core {
        Core {
            engine,
            volume,
            objects: Objects::default(),
            requests: Requests::new(config.slots),
            running: Vec::new(),
            token: None,
            waiting_for_token: VecDeque::new(),
            fired: Vec::new(),
        }
    }

    /// Formats the volume file at `path`. See [`format::format`].
    ///
    /// # Errors
    /// As there.
    pub fn format(path: &Path, options: &format::Format) -> Result<VolumeInfo> {
        let mut engine = Core::plain_engine()?;
        let superblock = format::format(&mut engine, path, options)?;
        let free = crate::segment::free_set::FreeSet::new(superblock.geometry().data_blocks, 0)
            .map_err(|error| Error::new("format", path.display().to_string(), Fault::Corrupt(error.to_string())))?;
        Ok(inspect::volume_info(&superblock, &free, 0))
    }

    /// What a volume holds, as far as `who` may see it; writes nothing.
    ///
    /// # Errors
    /// In use by another process, not a volume, damaged.
    pub fn inspect(path: &Path, who: Identity) -> Result<(VolumeInfo, Vec<SegmentInfo>)> {
        inspect::inspect(&mut Core::plain_engine()?, path, who)
    }

    /// One segment of a volume; writes nothing.
    ///
    /// # Errors
    /// As [`Core::inspect`], and when there is none or `who` may not see it.
    pub fn inspect_segment(path: &Path, who: Identity, owner_uid: u32, name: &str) -> Result<SegmentInfo> {
        inspect::inspect_segment(&mut Core::plain_engine()?, path, who, owner_uid, name)
    }

    fn plain_engine() -> Result<Engine> {
        let config = Config {
            slots: 64,
            arena_bytes: 8 << 20,
            ..Config::default()
        };
        Engine::new(&config).map_err(|error| Error::new("start", "the engine", error))
    }

    fn volume_name(&self) -> String {
        self.volume
            .as_ref()
            .map_or_else(|| "no volume".to_owned(), |volume| volume.device.name().to_owned())
    }

    /// The engine: buffers, counters, what was chosen.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, for its event fd and doorbell.
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Counters of the engine.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// A buffer of `len` bytes from the core's arena: requests on it move without a copy.
    ///
    /// # Errors
    /// `NoMemory` when the arena is used up.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        self.engine.buffer(len).ok_or_else(|| {
            Error::new(
                "take a buffer for",
                self.volume_name(),
                Fault::NoMemory { asked: len as u64 },
            )
        })
    }

    /// The volume as it is now.
    ///
    /// # Errors
    /// When the core has none.
    pub fn volume_info(&self) -> Result<VolumeInfo> {
        let volume = self.volume_or("stat")?;
        Ok(inspect::volume_info(&volume.superblock, &volume.free, volume.segments))
    }

    /// The segments that `who` may see. Runs the core until no operation is under way.
    ///
    /// # Errors
    /// When the core has no volume, or the table cannot be read.
    pub fn list(&mut self, who: Identity) -> Result<Vec<SegmentInfo>> {
        while self.running.iter().any(Option::is_some) {
            self.turn(Wait::one())?;
        }
        let Some(volume) = &self.volume else {
            return Err(no_volume("list"));
        };
        let doubt = Doubt {
            from_epoch: u64::MAX,
            healing: Healing::InMemory,
        };
        let quarantined = |at| volume.quarantined.contains(&at);
        inspect::list(
            &mut self.engine,
            &volume.device,
            &volume.superblock,
            doubt,
            who,
            quarantined,
        )
    }

    /// Makes a segment. Returns when it is durable; other requests go on meanwhile.
    ///
    /// # Errors
    /// `Exists`, `NoSpace`, `TableFull`, `Access`, a bad name or size; or what the system said.
    pub fn create(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        options: &CreateOptions,
    ) -> Result<SegmentInfo> {
        let subject = self.subject("create", who, owner_uid, name)?;
        let operation = Operation::Create(CreateOperation::new(subject, *options));
        self.run_operation(operation).map(Answer::into_info)
    }

    /// Deletes a segment: new requests are refused, those under way end, then it is gone for good.
    ///
    /// # Errors
    /// `NotFound`, `Access`; or what the system said.
    pub fn delete(&mut self, who: Identity, owner_uid: u32, name: &str) -> Result<SegmentInfo> {
        let subject = self.subject("delete", who, owner_uid, name)?;
        self.run_operation(Operation::Delete(Delete::new(subject, [0; 16])))
            .map(Answer::into_info)
    }

    /// Opens a segment.
    ///
    /// # Errors
    /// `NotFound`, `Access`; or what the system said.
    pub fn open_segment(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        access: Access,
    ) -> Result<(Handle, SegmentInfo)> {
        let subject = self.subject("open", who, owner_uid, name)?;
        let object = subject.object.clone();
        match self.run_operation(Operation::Open(OpenSegment::new(subject, access)))? {
            Answer::Opened(handle, info) => Ok((handle, info)),
            Answer::Segment(_) => Err(Error::new("open", object, Fault::NotFound)),
        }
    }

    /// Opens a plain file or device beside the volume.
    ///
    /// # Errors
    /// What the system said.
    pub fn open_file(&mut self, path: &Path, options: &Open) -> Result<Handle> {
        let name = path.display().to_string();
        let file = File::open(path, options).map_err(|error| Error::new("open", &name, error))?;
        Ok(self.add_file(file, if options.write { Access::Write } else { Access::Read }))
    }

    /// Takes a file that is open already.
    pub fn add_file(&mut self, file: File, access: Access) -> Handle {
        self.engine.attach(&file);
        self.objects.add(file.name().to_owned(), access, Target::Plain(file))
    }

    /// The file behind a handle on a plain file.
    #[must_use]
    pub fn file(&self, handle: Handle) -> Option<&File> {
        let object = self.objects.get(handle).filter(|object| object.state != State::Gone)?;
        match &object.target {
            Some(Target::Plain(file)) => Some(file),
            _ => None,
        }
    }

    /// Size in bytes of what is behind a handle.
    ///
    /// # Errors
    /// `Stale`; or what the system said.
    pub fn size(&self, handle: Handle) -> Result<u64> {
        let serves = |object: &&crate::object::Object| object.state != State::Gone;
        let object = self
            .objects
            .get(handle)
            .filter(serves)
            .ok_or_else(|| stale("measure"))?;
        match &object.target {
            Some(Target::Segment { size, .. }) => Ok(*size),
            Some(Target::Plain(file)) => file.size().map_err(|errno| Error::new("measure", &object.name, errno)),
            None => Err(stale("measure")),
        }
    }

    /// Closes a handle. What is under way on it ends.
    pub fn close_handle(&mut self, handle: Handle) {
        if let Some(file) = self.objects.close(handle) {
            self.engine.detach(&file);
        }
    }

    /// Queues a request; the next turn submits it. Whatever is wrong with it is told by its outcome.
    ///
    /// # Errors
    /// The request itself, when every slot is taken: take outcomes, turn, and try again.
    pub fn start(&mut self, mut request: SegmentRequest) -> std::result::Result<Ticket, SegmentRequest> {
        if self.requests.is_full() {
            return Err(request);
        }
        let asked = request.memory.len();
        let prepared = self.prepare(&mut request);
        let Some(ticket) = self.requests.insert(&request) else {
            return Err(request);
        };
        match prepared {
            Ok(Prepared::Submit(file, op, policy)) => {
                let engine_request = Request {
                    op,
                    file: Some(file),
                    memory: std::mem::take(&mut request.memory),
                    policy,
                    tag: Owner::Request(ticket).tag(),
                };
                match self.engine.submit(engine_request) {
                    Ok(id) => {
                        self.requests.set_engine_id(ticket, id);
                        self.objects.begin(request.handle);
                        Ok(ticket)
                    }
                    Err(back) => {
                        self.requests.take_back(ticket);
                        request.memory = back.memory;
                        if let Memory::Own(buffer) = &mut request.memory {
                            buffer.set_len(asked); // A read across the end had cut it.
                        }
                        Err(request)
                    }
                }
            }
            Ok(Prepared::Nothing) => {
                self.finish_early(ticket, request.memory, Ok(0));
                Ok(ticket)
            }
            Err(error) => {
                self.finish_early(ticket, request.memory, Err(error));
                Ok(ticket)
            }
        }
    }

    /// The outcome of a request that never reached the engine.
    fn finish_early(&mut self, ticket: Ticket, memory: Memory, result: Result<u32>) {
        let completion = Completion {
            id: RequestId::default(),
            tag: 0,
            notice: Notice::Completed,
            result: Ok(0),
            bytes_done: 0,
            memory,
            took: baio_engine::Caching::Direct,
            iterations: 0,
        };
        self.fired.extend(self.requests.finish(ticket, completion, result));
    }

    /// Checks a request against its object and translates it for the engine.
    fn prepare(&self, request: &mut SegmentRequest) -> Result<Prepared> {
        let operation = operation_name(request.op);
        let object = self.objects.get(request.handle).ok_or_else(|| stale(operation))?;
        let fail = |fault: Fault| Error::new(operation, &object.name, fault);
        if object.state != State::Open {
            return Err(fail(Fault::Stale));
        }
        let caching = self.caching_for(object, request).map_err(fail)?;
        let policy = Policy {
            caching,
            durability: request.durability,
            deadline: request.deadline,
            ..Policy::default()
        };
        match &object.target {
            Some(Target::Plain(file)) => {
                let op = match request.op {
                    SegmentOp::Read { offset } => Op::Read {
                        offset: position(file, offset),
                    },
                    SegmentOp::Write { offset } => Op::Write {
                        offset: position(file, offset),
                    },
                    SegmentOp::Sync => Op::Sync,
                };
                Ok(Prepared::Submit(file.clone(), op, policy))
            }
            Some(Target::Segment { start, size, .. }) => {
                let volume = self.volume_or(operation)?;
                let op = within(request, *start, *size).map_err(|(offset, fault)| fail(fault).at(offset))?;
                match op {
                    Some(op) => Ok(Prepared::Submit(volume.device.file.clone(), op, policy)),
                    None => Ok(Prepared::Nothing),
                }
            }
            None => Err(fail(Fault::Stale)),
        }
    }

    fn caching_for(
        &self,
        object: &crate::object::Object,
        request: &SegmentRequest,
    ) -> std::result::Result<baio_engine::Caching, Fault> {
        let volume = self
            .volume
            .as_ref()
            .map_or(baio_engine::Caching::Direct, |volume| volume.device.caching);
        if request.op == SegmentOp::Sync {
            return Ok(volume); // A sync covers the file, whatever cache its writes went through.
        }
        let writes = matches!(request.op, SegmentOp::Write { .. });
        if writes && object.access == Access::Read {
            return Err(Fault::Io(baio_engine::Error::System(baio_engine::Errno::EBADF)));
        }
        object.route(request.mode, volume)
    }

    /// Submits what is queued, sleeps as long as `wait` allows, reads what has completed and moves its owners on. Returns
    /// how many completions of the engine were read.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn turn(&mut self, wait: Wait) -> Result<usize> {
        self.engine
            .turn(wait)
            .map_err(|error| Error::new("turn", self.volume_name(), error))?;
        let mut count = 0;
        while let Some(completion) = self.engine.next_completion() {
            count += 1;
            self.dispatch(completion);
        }
        Ok(count)
    }

    fn dispatch(&mut self, completion: Completion) {
        match Owner::of(completion.tag) {
            Some(Owner::Request(ticket)) => self.request_ended(ticket, completion),
            Some(Owner::Operation(index)) => self.step(index, Event::Completed(completion)),
            None => {}
        }
    }

    fn request_ended(&mut self, ticket: Ticket, completion: Completion) {
        let Some(ended) = self.requests.ended(ticket) else {
            return;
        };
        if completion.notice == Notice::Released {
            self.requests.released(ticket);
            self.handle_idle(ended.handle);
            return;
        }
        // Answered at its deadline, but the kernel still has its memory: the end is told by a `Released` notice.
        let still_runs = completion.result == Err(baio_engine::Error::Indeterminate);
        let result = completion
            .result
            .map_err(|error| self.explain(ended.handle, ended.op, error));
        if still_runs {
            self.requests.hold_for_kernel(ticket);
        }
        self.fired.extend(self.requests.finish(ticket, completion, result));
        if !still_runs {
            self.handle_idle(ended.handle);
        }
    }

    /// One request less on a handle: whoever waits for the last one may go on.
    fn handle_idle(&mut self, handle: Handle) {
        self.objects.end(handle);
        for index in 0..self.running.len() {
            let draining = self.running[index].as_ref().and_then(|running| running.draining);
            if let Some(address) = draining
                && self.objects.in_flight_on(address) == 0
            {
                if let Some(running) = &mut self.running[index] {
                    running.draining = None;
                }
                self.step(index as u32, Event::Drained);
            }
        }
    }

    fn explain(&self, handle: Handle, op: SegmentOp, error: baio_engine::Error) -> Error {
        let name = self
            .objects
            .get(handle)
            .map_or("a closed handle", |object| &object.name);
        match op {
            SegmentOp::Read { offset } | SegmentOp::Write { offset } => {
                Error::new(operation_name(op), name, in_segment(error, offset)).at(offset)
            }
            SegmentOp::Sync => Error::new(operation_name(op), name, error),
        }
    }

    /// Takes the outcome of a request if it has ended; else remembers whom to wake. `None` for a ticket that is not valid
    /// any more.
    pub fn poll(&mut self, ticket: Ticket, waker: Option<&Waker>) -> Poll<Option<Outcome>> {
        self.requests.poll(ticket, waker)
    }

    /// Takes the next outcome in the order of completion.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.requests.next_finished()
    }

    /// Turns the core until the request has ended. `None` for a ticket that is not valid any more.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Option<Outcome>> {
        loop {
            if let Poll::Ready(outcome) = self.requests.poll(ticket, None) {
                return Ok(outcome);
            }
            self.turn(Wait::one())?;
        }
    }

    /// Nobody will take the outcome. The request's memory returns to the arena when the kernel has let go of it.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Some(id) = self.requests.abandon(ticket) {
            self.engine.abandon(id);
        }
    }

    /// Asks that a request end early.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some(id) = self.requests.engine_id(ticket) {
            self.engine.cancel(id);
        }
    }

    /// Wakers of what has ended; to be woken when the core is not borrowed any more.
    pub fn take_fired(&mut self, into: &mut Vec<Waker>) {
        into.append(&mut self.fired);
    }

    /// Wakers that nobody needs any more; to be dropped when the core is not borrowed any more, because that may run
    /// anybody's code.
    pub fn take_displaced(&mut self, into: &mut Vec<Waker>) {
        self.requests.take_displaced(into);
    }

    /// Requests that the engine has, or that the next turn gives it.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    /// Ends everything under way, notes a clean close and gives the volume back.
    ///
    /// # Errors
    /// What the system said; the volume is then healed by the next open.
    pub fn close(mut self) -> Result<()> {
        while self.in_flight() > 0 {
            self.turn(Wait::one())?;
        }
        match self.volume.take() {
            Some(volume) => volume.close(&mut self.engine),
            None => Ok(()),
        }
    }

    fn subject(&self, operation: &'static str, who: Identity, owner_uid: u32, name: &str) -> Result<Subject> {
        let object = format!("{}#{owner_uid}/{name}", self.volume_name());
        let name = SegmentName::new(name).map_err(|error| Error::new(operation, &object, error))?;
        self.volume_or(operation)?;
        Ok(Subject {
            operation,
            key: Key::segment(owner_uid, name),
            who,
            object,
        })
    }

    fn volume_or(&self, operation: &'static str) -> Result<&Volume> {
        self.volume.as_ref().ok_or_else(|| no_volume(operation))
    }

    /// Runs an operation to its end, turning the core meanwhile.
    fn run_operation(&mut self, operation: Operation) -> Result<Answer> {
        let free = self.running.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.running.push(None);
            self.running.len() - 1
        });
        self.running[index] = Some(Running {
            operation,
            draining: None,
            answer: None,
            left_alone: false,
        });
        self.step(index as u32, Event::Begin);
        loop {
            let answer = self.running[index].as_mut().and_then(|running| running.answer.take());
            if let Some(answer) = answer {
                self.running[index] = None;
                return answer;
            }
            if let Err(error) = self.turn(Wait::one()) {
                // What it has begun still ends, and with that its place and the token come back.
                if let Some(running) = &mut self.running[index] {
                    running.left_alone = true;
                }
                return Err(error);
            }
        }
    }

    /// Moves an operation on, and whoever gets the token by that.
    fn step(&mut self, index: u32, event: Event) {
        let mut next = Some((index, event));
        while let Some((index, event)) = next {
            self.step_one(index, event);
            next = self.grant_token().map(|index| (index, Event::Token));
        }
    }

    fn step_one(&mut self, index: u32, event: Event) {
        let (Some(Some(running)), Some(volume)) = (self.running.get_mut(index as usize), &mut self.volume) else {
            return;
        };
        let mut has_token = self.token == Some(index);
        let mut context = Context {
            engine: &mut self.engine,
            volume,
            objects: &mut self.objects,
            tag: Owner::Operation(index).tag(),
            has_token: &mut has_token,
        };
        let step = running.operation.step(&mut context, event);
        if self.token == Some(index) && !has_token {
            self.token = None;
        }
        match step {
            Step::Requests => {}
            Step::Token => self.waiting_for_token.push_back(index),
            Step::Drain(address) => running.draining = Some(address),
            Step::Done(_) if running.left_alone => self.running[index as usize] = None,
            Step::Done(answer) => running.answer = Some(answer),
        }
    }

    fn grant_token(&mut self) -> Option<u32> {
        if self.token.is_some() {
            return None;
        }
        self.token = self.waiting_for_token.pop_front();
        self.token
    }

    /// How long a caller may be kept waiting by [`Core`]'s drop when a device is stuck.
    pub const DROP_PATIENCE: Duration = Duration::from_secs(30);
}

impl Drop for Core {
    /// Without [`Core::close`] the volume stays marked as in use, and the next open heals it. The lock is given back when
    /// the kernel has let go of everything.
    fn drop(&mut self) {
        let stuck = self.engine.shutdown(Core::DROP_PATIENCE);
        if let Some(volume) = &self.volume {
            self.engine.detach(&volume.device.file);
            if stuck == 0 {
                // At once, whoever else has the description: a child forked meanwhile keeps it until it execs.
                volume.device.file.unlock();
            }
        }
    }
}

/// What a checked request becomes.
enum Prepared {
    Submit(File, Op, Policy),
    /// A read at the end: there is nothing to read.
    Nothing,
}

/// Translates a range of a segment into one of the device. Reads are cut at the end of the segment, as at the end of a
/// device; writes that cross it are refused whole.
fn within(request: &mut SegmentRequest, start: u64, size: u64) -> std::result::Result<Option<Op>, (u64, Fault)> {
    let len = request.memory.len() as u64;
    match request.op {
        SegmentOp::Sync => Ok(Some(Op::Sync)),
        SegmentOp::Write { offset } => {
            if offset.checked_add(len).is_none_or(|end| end > size) {
                return Err((offset, Fault::Beyond { len, size, write: true }));
            }
            Ok(Some(Op::Write {
                offset: Some(start + offset),
            }))
        }
        SegmentOp::Read { offset } if offset >= size => Ok(None),
        SegmentOp::Read { offset } => {
            let left = size - offset;
            if len > left {
                match &mut request.memory {
                    Memory::Own(buffer) => buffer.set_len(left as usize),
                    _ => {
                        return Err((
                            offset,
                            Fault::Beyond {
                                len,
                                size,
                                write: false,
                            },
                        ));
                    }
                }
            }
            Ok(Some(Op::Read {
                offset: Some(start + offset),
            }))
        }
    }
}

/// The engine names the offset on the device; the caller gave one in the segment.
fn in_segment(error: baio_engine::Error, offset: u64) -> baio_engine::Error {
    match error {
        baio_engine::Error::Misaligned {
            argument: argument @ Argument::Offset,
            need,
            ..
        } => baio_engine::Error::Misaligned {
            argument,
            value: offset,
            need,
        },
        error => error,
    }
}

/// Streams have no offsets.
fn position(file: &File, offset: u64) -> Option<u64> {
    (file.kind() != Kind::Stream).then_some(offset)
}

fn operation_name(op: SegmentOp) -> &'static str {
    match op {
        SegmentOp::Read { .. } => "read",
        SegmentOp::Write { .. } => "write",
        SegmentOp::Sync => "sync",
    }
}

fn stale(operation: &'static str) -> Error {
    Error::new(operation, "a closed handle", Fault::Stale)
}

fn no_volume(operation: &'static str) -> Error {
    Error::new(
        operation,
        "this core",
        Fault::NotVolume("it was started without a volume".into()),
    )
}
