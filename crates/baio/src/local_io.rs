//! Sockets, pipes and timers in the same loop as segments and files: what the engine of a local link does besides.
//!
//! Their requests go to the engine itself, under tags that the core leaves to its driver, and their completions come out of the link's turns
//! (`Ours::note` takes them). So one thread sleeps in one place for all.

use std::fmt;
use std::fs;
use std::future::Future;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use baio_client::WaitPlace;
use baio_engine::{Address, Completion, Errno, Memory, Op, Policy, Request};
use baio_storage::{Error, Fault, Result};

use crate::buffer::{IoBuf, IoBufMut};
use crate::local::Local;
use crate::ours::{CalledOff, Entry};
use crate::result::{Done, Failed};
use crate::transport::Transport;

/// One request to the engine of a local link.
struct Work {
    link: Local,
    op: Op,
    name: String,
    stage: Stage,
    /// Where it waits for a slot.
    place: Option<WaitPlace>,
}

enum Stage {
    Fresh(Box<Request>),
    /// It could not be made, or was called off before it went.
    Refused(Box<NotDone>),
    Started(u64),
    Ended,
}

/// Why there is no completion, and the memory if it never went.
type NotDone = (Error, Option<Memory>);

impl Work {
    fn new(link: &Local, name: &str, request: Request) -> Work {
        Work {
            link: link.clone(),
            op: request.op,
            name: name.to_owned(),
            stage: Stage::Fresh(Box::new(request)),
            place: None,
        }
    }

    fn failed(&self, fault: impl Into<Fault>) -> Error {
        Error::new(self.op.name(), &*self.name, fault)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<Completion, NotDone>> {
        // While all is in its place, and nothing is borrowed: a clone may run anybody's code, which may turn the link.
        let waker = context.waker().clone();
        let polled = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Fresh(request) => self.start(*request, waker),
            Stage::Refused(why) => Poll::Ready(Err(*why)),
            Stage::Started(tag) => self.look(tag, waker),
            Stage::Ended => Poll::Ready(Err((self.failed(Fault::Stale), None))),
        };
        // Who has ended stands in nobody's way, also while its owner keeps it.
        if let Some(place) = self.place.take_if(|_| polled.is_ready()) {
            self.link.slots().leave(place);
        }
        polled
    }

    fn start(&mut self, request: Request, waker: Waker) -> Poll<std::result::Result<Completion, NotDone>> {
        let ours = self.link.ours();
        let refusal = match self.link.link_state().refusal {
            None if ours.closed.get() => Some(Fault::Stale),
            None if !self.link.is_driven() => Some(Fault::NobodyDrives),
            refusal => refusal,
        };
        if let Some(fault) = refusal {
            return Poll::Ready(Err((self.failed(fault), Some(request.memory))));
        }
        let tag = ours.next_tag();
        let mut given = Some((request.tagged(tag), waker));
        let stage = &mut self.stage;
        let submitted = self.link.with(|core| {
            if let Some((request, waker)) = given.take() {
                match core.engine_mut().submit(request) {
                    // Within the borrow: behind it a waker may turn the link, or panic.
                    Ok(id) => {
                        let entry = Entry::UnderWay(id, Some(waker));
                        ours.entries.borrow_mut().insert(tag, entry);
                        *stage = Stage::Started(tag);
                    }
                    Err(back) => given = Some((back, waker)),
                }
            }
            Ok(())
        });
        match (submitted, given) {
            (Ok(()), None) => {
                if let Some(place) = self.place.take() {
                    self.link.slots().served(place);
                }
                self.link.call_driver();
                Poll::Pending
            }
            (Ok(()), Some((back, waker))) => self.wait_for_slot(back, waker),
            (Err(error), given) => Poll::Ready(Err((error, given.map(|(request, _)| request.memory)))),
        }
    }

    fn wait_for_slot(&mut self, request: Request, waker: Waker) -> Poll<std::result::Result<Completion, NotDone>> {
        let until = request.policy.deadline;
        if until.is_some_and(|at| at <= self.link.link_clock()) {
            let error = self.failed(baio_engine::Error::Cancelled);
            return Poll::Ready(Err((error, Some(request.memory))));
        }
        self.stage = Stage::Fresh(Box::new(request)); // First: another's waker may panic.
        self.link.wait_for_slot(&mut self.place, waker, until);
        if until.is_some() {
            self.link.call_driver(); // It may have to wake up sooner.
        }
        Poll::Pending
    }

    fn look(&mut self, tag: u64, waker: Waker) -> Poll<std::result::Result<Completion, NotDone>> {
        let mut entries = self.link.ours().entries.borrow_mut();
        let displaced = match entries.remove(&tag) {
            Some(Entry::Ended(completion)) => return Poll::Ready(Ok(completion)),
            Some(Entry::UnderWay(id, displaced)) => {
                entries.insert(tag, Entry::UnderWay(id, Some(waker)));
                displaced
            }
            None => return Poll::Ready(Err((self.failed(Fault::Stale), None))),
        };
        drop(entries);
        self.stage = Stage::Started(tag); // First: the drop of a waker may panic.
        drop(displaced);
        if self.link.is_driven() {
            return Poll::Pending;
        }
        // With nobody to reap, waiting would last for ever.
        self.give_up();
        Poll::Ready(Err((self.failed(Fault::NobodyDrives), None)))
    }

    fn cancel(&self) {
        if let Stage::Started(tag) = self.stage {
            let id = match self.link.ours().entries.borrow().get(&tag) {
                Some(Entry::UnderWay(id, _)) => *id,
                _ => return,
            };
            self.link.call_off(CalledOff::Cancelled(id));
        }
    }

    /// Nobody wants its end.
    fn give_up(&mut self) {
        if let Some(place) = self.place.take() {
            self.link.slots().leave(place);
        }
        let Stage::Started(tag) = std::mem::replace(&mut self.stage, Stage::Ended) else {
            return;
        };
        let entry = self.link.ours().entries.borrow_mut().remove(&tag);
        if let Some(Entry::UnderWay(id, _)) = &entry {
            self.link.call_off(CalledOff::Abandoned(*id));
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// A timer, a connection, a readiness: a future of its result. Dropping it gives it up.
#[must_use = "what is never awaited never begins"]
pub struct Event<T> {
    work: Work,
    read: fn(&Local, Completion) -> std::result::Result<T, Fault>,
}

impl<T> fmt::Debug for Event<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({} on {})", self.work.op.name(), self.work.name)
    }
}

impl<T> Event<T> {
    /// Waits for its end in this thread, driving the link meanwhile. Not in a signal handler: what it interrupts may be what it waits for.
    ///
    /// # Errors
    /// As its future; and that the link could not be driven to its end.
    pub fn wait(self) -> Result<T> {
        let link = self.work.link.clone();
        link.run_on_link(self)?
    }
}

impl<T> Future for Event<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.get_mut();
        this.work.poll(context).map(|ended| {
            let completion = ended.map_err(|(error, _)| error)?;
            (this.read)(&this.work.link, completion).map_err(|fault| this.work.failed(fault))
        })
    }
}

/// A read or a write of a stream: a future of its result, as those of files are. Dropping it gives it up: bytes that it has received
/// by then are lost.
#[must_use = "a request that is never awaited never starts"]
pub struct StreamRequest<B: IoBuf> {
    work: Work,
    buffer: PhantomData<fn() -> B>,
}

impl<B: IoBuf> fmt::Debug for StreamRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamRequest({} on {})", self.work.op.name(), self.work.name)
    }
}

impl<B: IoBuf> StreamRequest<B> {
    /// Gives up on it so long from now: it then fails as indeterminate, without its buffer. What it has received is lost. If it still waits for a
    /// slot then, it fails as cancelled, with its buffer.
    pub fn within(mut self, duration: Duration) -> Self {
        let at = self.work.link.link_clock().after(duration);
        if let Stage::Fresh(request) = &mut self.work.stage {
            request.policy.deadline = Some(at);
        }
        self
    }

    /// Asks that it end early; it still has a result, to be awaited, with its buffer.
    pub fn cancel(&mut self) {
        match std::mem::replace(&mut self.work.stage, Stage::Ended) {
            Stage::Fresh(request) => {
                let error = self.work.failed(baio_engine::Error::Cancelled);
                self.work.stage = Stage::Refused(Box::new((error, Some(request.memory))));
                // Others stand behind it.
                if let Some(place) = self.work.place.take() {
                    self.work.link.slots().leave(place);
                }
            }
            stage => {
                self.work.stage = stage;
                self.work.cancel();
            }
        }
    }

    /// Waits for its end in this thread, driving the link meanwhile. Not in a signal handler: what it interrupts may be what it waits for.
    ///
    /// # Errors
    /// As its future; and that the link could not be driven to its end.
    pub fn wait(self) -> std::result::Result<Done<B>, Failed<B>> {
        let link = self.work.link.clone();
        link.run_on_link(self).unwrap_or_else(|error| {
            Err(Failed {
                error,
                buffer: None,
                bytes_done: 0,
            })
        })
    }
}

impl<B: IoBuf> Future for StreamRequest<B> {
    type Output = std::result::Result<Done<B>, Failed<B>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.work.poll(context).map(|ended| {
            let completion = ended.map_err(|(error, memory)| Failed {
                error,
                buffer: memory.and_then(B::from_memory),
                bytes_done: 0,
            })?;
            let bytes_done = completion.bytes_done as usize;
            let filled = match (this.work.op, &completion.result) {
                (Op::Read { .. } | Op::Receive { .. }, Ok(bytes)) => *bytes as usize,
                _ => 0,
            };
            match (completion.result, B::from_filled(completion.memory, filled)) {
                (Ok(bytes), Some(buffer)) => Ok(Done {
                    bytes: bytes as usize,
                    buffer,
                    took: completion.took,
                    iterations: completion.iterations,
                }),
                (result, buffer) => Err(Failed {
                    error: this
                        .work
                        .failed(result.err().unwrap_or(baio_engine::Error::Indeterminate)),
                    buffer,
                    bytes_done,
                }),
            }
        })
    }
}

/// A pipe or socket of a local link. Clones are the same one; it is closed with the last of them, when its requests have ended.
///
/// Each request that is under way takes one of the link's slots, also one that waits for ever.
#[derive(Clone)]
pub struct Stream {
    link: Local,
    file: baio_engine::File,
    is_socket: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.file.name())
    }
}

impl Local {
    /// Ends so long from now, by the engine's clock.
    pub fn sleep(&self, duration: Duration) -> Event<()> {
        let at = self.link_clock().after(duration);
        let request = Request::bare(Op::Timer { at }, None, Policy::kernel());
        Event {
            work: Work::new(self, "the clock", request),
            read: |_, completion| completion.result.map(drop).map_err(Fault::from),
        }
    }

    /// Takes a pipe or a socket, connected, listening or new, into this link's loop: a `TcpStream`, a `UnixListener`, an end of a pipe.
    ///
    /// # Errors
    /// What the system said; `EINVAL` for a descriptor that can be read at an offset: open it as a file.
    pub fn stream(&self, fd: impl Into<OwnedFd>) -> Result<Stream> {
        let fd = fs::File::from(fd.into());
        let name = format!("descriptor {}", fd.as_raw_fd());
        let failed = |fault: Fault| Error::new("use", &*name, fault);
        let metadata = fd.metadata().map_err(|error| failed(Errno::of(&error).into()))?;
        let is_socket = metadata.file_type().is_socket();
        let file = baio_engine::File::from_fd(fd.into(), &name).map_err(|error| failed(error.into()))?;
        if file.kind() != baio_engine::Kind::Stream {
            return Err(failed(Errno::EINVAL.into()));
        }
        Ok(Stream {
            link: self.clone(),
            file,
            is_socket,
        })
    }
}

impl Stream {
    fn request<B: IoBuf>(&self, request: Request) -> StreamRequest<B> {
        StreamRequest {
            work: Work::new(&self.link, self.file.name(), request),
            buffer: PhantomData,
        }
    }

    fn event<T>(&self, request: Request, read: fn(&Local, Completion) -> std::result::Result<T, Fault>) -> Event<T> {
        Event {
            work: Work::new(&self.link, self.file.name(), request),
            read,
        }
    }

    /// Reads what there is, at most as many bytes as the buffer has, at least one; 0 when the other end is closed.
    pub fn read<B: IoBufMut>(&self, buffer: B) -> StreamRequest<B> {
        let memory = buffer.into_room();
        self.request(match self.is_socket {
            true => Request::receive(&self.file, memory),
            false => Request::read_stream(&self.file, memory),
        })
    }

    /// Writes the whole buffer.
    pub fn write<B: IoBuf>(&self, buffer: B) -> StreamRequest<B> {
        let memory = buffer.into_memory();
        self.request(match self.is_socket {
            true => Request::send(&self.file, memory),
            false => Request::write_stream(&self.file, memory),
        })
    }

    /// Takes the next connection of a listening socket.
    pub fn accept(&self) -> Event<Stream> {
        self.event(Request::accept(&self.file), |link, completion| {
            completion.result?;
            let file = completion.accepted.ok_or(Errno::ECONNABORTED)?;
            Ok(Stream {
                link: link.clone(),
                file,
                is_socket: true,
            })
        })
    }

    /// Connects a socket.
    pub fn connect(&self, address: &Address) -> Event<()> {
        let memory = self.link.with(|core| {
            let encoded = address.encode(core.engine().arena());
            encoded.map_err(|errno| Error::new("connect", self.file.name(), errno))
        });
        let (memory, refusal) = match memory {
            Ok(memory) => (memory, None),
            Err(error) => (Memory::None, Some(error)),
        };
        let mut event = self.event(Request::connect(&self.file, memory), |_, completion| {
            completion.result.map(drop).map_err(Fault::from)
        });
        if let Some(error) = refusal {
            event.work.stage = Stage::Refused(Box::new((error, None)));
        }
        event
    }

    /// Waits until it is ready for one of these events (`POLLIN` is 1, `POLLOUT` is 4; poll(2)), and gives those it is ready for.
    pub fn poll(&self, events: u32) -> Event<u32> {
        let request = Request::bare(Op::Poll { events }, Some(&self.file), Policy::kernel());
        self.event(request, |_, completion| completion.result.map_err(Fault::from))
    }
}
