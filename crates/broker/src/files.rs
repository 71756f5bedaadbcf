//! An engine with plain files, served: opened by path, read, written and synced by handle; no volume, no page cache of ours.
//!
//! | asked | becomes |
//! |---|---|
//! | a request of mode direct, kernel, uncached | the engine's, with that caching |
//! | of mode cached | `NoCache`: that is the cache of a core |
//! | a read at the end of the file | fewer bytes, at last none |
//! | a write or a zero past it | a longer file; a discard past it does nothing |
//! | a fence | the engine's: behind the writes before it to that file, by all handles |
//! | a discard, a zero, an allocate | the engine's; of no bytes, nothing |
//! | a truncate, an allocate | of a regular file; of all else `NotAFile` |
//!
//! A handle that is closed stays until what is under way on it has left the engine. Paths are opened as the service's own
//! process may: within one process the client is that process. A broker between processes takes descriptors instead.

use std::collections::VecDeque;
use std::fmt;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use baio_engine::{
    Caching, Config, Engine, Errno, Error as IoError, File, Kind, Memory, Notice, Op, Open, Policy, Request, RequestId,
    SetupError, Space, Stats, Wait,
};
use baio_words::entry::Completion;
use baio_words::{
    Access, Failure, Handle, Identity, Mode, RequestError, RequestFault, SegmentOp, SegmentRequest, Ticket,
};

use crate::seat::HELD_PATIENCE;
use crate::served::{Begun, NotStarted, Served, tag_of};

/// What is asked besides requests.
#[derive(Debug)]
pub enum FileCommand {
    /// Open a file.
    Open {
        /// Where.
        path: PathBuf,
        /// How.
        options: Open,
    },
    /// Bytes behind a handle.
    Size(Handle),
    /// The engine's counters and name.
    Counters,
    /// End what is under way, end.
    Close,
}

/// What is answered.
#[derive(Debug)]
pub enum FileReply {
    /// A handle, and the size of the file in bytes.
    Opened(Handle, u64),
    /// Bytes.
    Size(u64),
    /// The engine's counters, and the backend's name.
    Counters(Stats, &'static str),
    /// It is done.
    Done,
}

/// Why a command failed.
#[derive(Debug)]
pub enum FileError {
    /// A file, a thread or an engine could not be had.
    Setup(Box<SetupError>),
    /// What was asked of an open file.
    Request(RequestError),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Setup(error) => write!(f, "{error}"),
            FileError::Request(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for FileError {}

impl From<SetupError> for FileError {
    fn from(error: SetupError) -> FileError {
        FileError::Setup(Box::new(error))
    }
}

impl From<NotStarted> for FileError {
    fn from(why: NotStarted) -> FileError {
        match why {
            NotStarted::Thread(error) => error.into(),
            NotStarted::Ended => {
                FileError::Request(RequestError::new("start", "a service", RequestFault::ServiceEnded))
            }
        }
    }
}

/// A place for an opened file.
#[derive(Debug, Default)]
struct FilePlace {
    /// Which use of the place. After 2^32 opens of one place a handle of the first could name the last.
    generation: u32,
    opened: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    file: File,
    access: Access,
    /// Requests that the engine has.
    in_flight: u32,
    /// No new ones; the place is free when the last has left.
    is_closed: bool,
}

/// A place for a request that the engine has.
#[derive(Debug, Default)]
struct RequestPlace {
    generation: u32,
    running: Option<Running>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    id: RequestId,
    file: u32,
    tag: u64,
}

/// An engine with plain files.
pub struct Files {
    number: u32,
    files: Vec<FilePlace>,
    requests: Vec<RequestPlace>,
    free: Vec<u32>,
    /// Ends that nobody has taken.
    ended: VecDeque<(Completion, Memory)>,
    engine: Engine,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.files.iter().filter(|place| place.opened.is_some()).count();
        write!(f, "Files({open} open)")
    }
}

impl Files {
    /// Starts an engine for them.
    ///
    /// # Errors
    /// What the engine said.
    pub fn new(config: &Config) -> Result<Files, FileError> {
        Ok(Files::around(Engine::new(config)?))
    }

    /// Files on an engine that was made elsewhere.
    #[must_use]
    pub fn around(engine: Engine) -> Files {
        Files {
            number: baio_words::next_number(),
            files: Vec::new(),
            requests: Vec::new(),
            free: Vec::new(),
            ended: VecDeque::new(),
            engine,
        }
    }

    /// Takes a file that is open already.
    pub fn add(&mut self, file: File, access: Access) -> Handle {
        self.engine.attach(&file);
        let free = self.files.iter().position(|place| place.opened.is_none());
        let index = free.unwrap_or_else(|| {
            self.files.push(FilePlace::default());
            self.files.len() - 1
        });
        let place = &mut self.files[index];
        place.opened = Some(Opened {
            file,
            access,
            in_flight: 0,
            is_closed: false,
        });
        Handle::from_parts(self.number, index as u32, place.generation)
    }

    fn opened(&self, handle: Handle) -> Option<&Opened> {
        let (number, index, generation) = handle.parts();
        let place = self
            .files
            .get(index as usize)
            .filter(|place| place.generation == generation)?;
        place
            .opened
            .as_ref()
            .filter(|opened| number == self.number && !opened.is_closed)
    }

    fn open(&mut self, path: &std::path::Path, options: &Open) -> Result<FileReply, FileError> {
        if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
            // It would keep everybody waiting until somebody opens the other end.
            let refused = SetupError::new("open", baio_engine::path_name(path), Errno::EOPNOTSUPP);
            return Err(refused
                .need("a file, a device or a socket: to open a named pipe may wait for its other end")
                .into());
        }
        let file = File::open(path, options)?;
        let failed = |errno| SetupError::new("measure", file.name().to_owned(), errno);
        let size = match file.kind() {
            Kind::Stream => 0,
            _ => file.size().map_err(failed)?,
        };
        let access = if options.write { Access::Write } else { Access::Read };
        Ok(FileReply::Opened(self.add(file, access), size))
    }

    fn size(&self, handle: Handle) -> Result<FileReply, FileError> {
        let failed = |name: &str, fault| FileError::Request(RequestError::new("measure", name, fault));
        let opened = self
            .opened(handle)
            .ok_or_else(|| failed("a closed handle", RequestFault::Stale))?;
        let size = opened.file.size();
        size.map(FileReply::Size)
            .map_err(|errno| failed(opened.file.name(), RequestFault::Io(errno.into())))
    }

    /// The request as the engine takes it, without its memory; none if there is nothing to do.
    fn prepare(&self, request: &SegmentRequest<Memory>, ticket: Ticket) -> Result<Option<Request>, RequestFault> {
        let opened = self.opened(request.handle).ok_or(RequestFault::Stale)?;
        if request.op.changes_bytes() && opened.access == Access::Read {
            return Err(RequestFault::ReadOnly);
        }
        let caching = match request.mode {
            Mode::Direct => Caching::Direct,
            Mode::Kernel => Caching::Kernel,
            Mode::Uncached => Caching::Uncached,
            Mode::Cached => return Err(RequestFault::NoCache),
        };
        if request.op.is_of_size() && opened.file.kind() != Kind::Regular && opened.file.kind() != Kind::Foreign {
            return Err(RequestFault::NotAFile);
        }
        // Streams have no offsets.
        let position = |offset| (opened.file.kind() != Kind::Stream).then_some(offset);
        let space = |offset, len, space| {
            opened.file.check_space(caching, offset, len)?;
            Ok::<_, IoError>(Op::Allocate { offset, len, space })
        };
        let op = match request.op {
            SegmentOp::Read { offset } => Op::Read {
                offset: position(offset),
            },
            SegmentOp::Write { offset } => Op::Write {
                offset: position(offset),
            },
            SegmentOp::Sync => Op::Sync,
            SegmentOp::Fence => Op::Fence,
            SegmentOp::Discard { offset, len } => space(offset, len, Space::Discard).map_err(RequestFault::Io)?,
            SegmentOp::Zero { offset, len } => space(offset, len, Space::Zero).map_err(RequestFault::Io)?,
            SegmentOp::Truncate { len } => Op::Truncate { len },
            // No byte changes, so none has to be aligned.
            SegmentOp::Allocate { offset, len } => Op::Allocate {
                offset,
                len,
                space: Space::Reserve,
            },
        };
        if matches!(op, Op::Allocate { len: 0, .. }) {
            return Ok(None);
        }
        let policy = Policy {
            caching,
            durability: request.durability,
            deadline: request.deadline,
            ..Policy::default()
        };
        Ok(Some(Request::bare(op, Some(&opened.file), policy).tagged(bits(ticket))))
    }

    /// The engine has let go of a request.
    fn left(&mut self, index: u32, file: u32) {
        let place = &mut self.requests[index as usize];
        place.running = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        if let Some(opened) = &mut self.files[file as usize].opened {
            opened.in_flight -= 1;
        }
        self.collect(file);
    }

    /// Frees the place of a closed file when nothing is under way on it.
    fn collect(&mut self, file: u32) {
        let place = &mut self.files[file as usize];
        let is_over = |opened: &mut Opened| opened.is_closed && opened.in_flight == 0;
        if let Some(opened) = place.opened.take_if(is_over) {
            place.generation = place.generation.wrapping_add(1);
            self.engine.detach(&opened.file);
        }
    }

    /// Reads what the engine has completed.
    fn take_completions(&mut self) {
        while let Some(done) = self.engine.next_completion() {
            let index = done.tag as u32;
            let place = self.requests.get(index as usize);
            let found = place.filter(|place| u64::from(place.generation) == done.tag >> 32);
            let Some(running) = found.and_then(|place| place.running) else {
                debug_assert!(false, "an end of nothing: {done:?}");
                continue;
            };
            // Answered at its deadline, but the kernel still has its memory: that comes with a `Released` notice.
            let still_runs = done.notice == Notice::Completed && done.result == Err(IoError::Indeterminate);
            if done.notice == Notice::Completed {
                let completion = Completion {
                    tag: tag_of(running.tag),
                    result: done.result.map_err(Failure::Io),
                    bytes_done: done.bytes_done,
                    took: done.took,
                    iterations: done.iterations,
                };
                self.ended.push_back((completion, done.memory));
            }
            if !still_runs {
                self.left(index, running.file);
            }
        }
    }
}

/// What the engine calls a request.
fn bits(ticket: Ticket) -> u64 {
    let (index, generation) = ticket.parts();
    u64::from(generation) << 32 | u64::from(index)
}

impl Served for Files {
    type Command = FileCommand;
    type Answer = Result<FileReply, FileError>;
    /// Every command is done at once.
    type Operation = std::convert::Infallible;
    type Error = FileError;

    fn number(&self) -> u32 {
        self.number
    }

    fn name(&self) -> String {
        "files".into()
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn start(&mut self, mut request: SegmentRequest<Memory>) -> Result<Ticket, SegmentRequest<Memory>> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.requests.push(RequestPlace::default());
            self.requests.len() as u32 - 1
        });
        let ticket = Ticket::from_parts(index, self.requests[index as usize].generation);
        let prepared = match self.prepare(&request, ticket) {
            Ok(Some(prepared)) => prepared,
            early => {
                // Its ticket names nothing from now on, though its client may cancel it before it hears of the end.
                let place = &mut self.requests[index as usize];
                place.generation = place.generation.wrapping_add(1);
                self.free.push(index);
                let completion = Completion {
                    tag: tag_of(request.tag),
                    result: early.map(|_| 0).map_err(Failure::from),
                    bytes_done: 0,
                    took: Caching::Direct,
                    iterations: 0,
                };
                self.ended.push_back((completion, request.memory));
                return Ok(ticket);
            }
        };
        let memory = std::mem::take(&mut request.memory);
        match self.engine.submit(Request { memory, ..prepared }) {
            Ok(id) => {
                let (_, file, _) = request.handle.parts();
                if let Some(opened) = &mut self.files[file as usize].opened {
                    opened.in_flight += 1;
                }
                let tag = request.tag;
                self.requests[index as usize].running = Some(Running { id, file, tag });
                Ok(ticket)
            }
            Err(back) => {
                self.free.push(index);
                request.memory = back.memory;
                Err(request)
            }
        }
    }

    fn cancel(&mut self, ticket: Ticket) {
        let (index, generation) = ticket.parts();
        let place = self.requests.get(index as usize);
        let place = place.filter(|place| place.generation == generation);
        if let Some(running) = place.and_then(|place| place.running) {
            self.engine.cancel(running.id);
        }
    }

    fn next_end(&mut self) -> Option<(Completion, Memory)> {
        if self.ended.is_empty() {
            self.take_completions();
        }
        self.ended.pop_front()
    }

    fn close_handle(&mut self, handle: Handle) {
        if self.opened(handle).is_none() {
            return;
        }
        let (_, index, _) = handle.parts();
        if let Some(opened) = &mut self.files[index as usize].opened {
            opened.is_closed = true;
        }
        self.collect(index);
    }

    fn errno(error: &FileError) -> Errno {
        match error {
            FileError::Setup(error) => error.errno,
            FileError::Request(error) => error.fault.errno(),
        }
    }

    fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    fn turn(&mut self, wait: Wait) -> Result<usize, FileError> {
        if !self.ended.is_empty() {
            return self.turn_engine(Wait::No);
        }
        self.turn_engine(wait)
    }

    fn begin(&mut self, _who: Identity, command: FileCommand) -> Begun<Files> {
        Begun::Answered(match command {
            FileCommand::Open { path, options } => self.open(&path, &options),
            FileCommand::Size(handle) => self.size(handle),
            FileCommand::Counters => Ok(FileReply::Counters(self.engine.stats(), self.engine.explain().backend)),
            FileCommand::Close => return Begun::Close,
        })
    }

    fn take_answer(&mut self, operation: &std::convert::Infallible) -> Option<Result<FileReply, FileError>> {
        match *operation {}
    }

    fn opened(answer: &Result<FileReply, FileError>) -> Option<Handle> {
        match answer {
            Ok(FileReply::Opened(handle, _)) => Some(*handle),
            _ => None,
        }
    }

    /// Waits for what a device holds of requests that were answered at their deadline, as long as a drop does.
    fn close(mut self) -> Result<FileReply, FileError> {
        match self.engine.shutdown(HELD_PATIENCE) {
            0 => Ok(FileReply::Done),
            _ => {
                let fault = RequestFault::Io(IoError::Indeterminate);
                Err(FileError::Request(RequestError::new("close", self.name(), fault)))
            }
        }
    }
}

impl Files {
    fn turn_engine(&mut self, wait: Wait) -> Result<usize, FileError> {
        let turned = self.engine.turn(wait);
        turned.map_err(|error| FileError::Request(RequestError::new("turn", self.name(), RequestFault::Io(error))))
    }
}
