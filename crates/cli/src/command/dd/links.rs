//! The brokers that a copy goes to: a link to each, and what is under way on it.
//!
//! A link moves buffers of its own arena, and the copy takes its buffers there as long as there are any. What lies elsewhere goes in
//! *parts*, through a few buffers that the link keeps for that. So no `bs=` or `iodepth=` is too large for the arena that a broker gives.
//!
//! A link has no descriptor that could be slept on beside the cores' own. So every part is polled for, with a waker that writes to
//! an event descriptor (`eventfd(2)`), and the link's helper reaps.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use baio::{Link, Options, Remote, Segment};
use baio_console::failure::Failure;
use baio_console::target::Served;
use baio_engine::{Buffer, Config, Memory, Wait};
use baio_storage::{Access, Error, Outcome, SegmentOp, SegmentRequest, Ticket};

use super::cores::{Inode, inode_of};
use super::ends::BLOCK;

/// Buffers that each link keeps for what lies elsewhere.
const KEPT: usize = 8;

/// They are this share of its arena, all together.
const KEPT_SHARE: usize = 4;

/// No part is longer.
const PART_BYTES_MAX: usize = 256 << 10;

/// The links, one for each socket.
#[derive(Default)]
pub(super) struct Links {
    links: Vec<Route>,
    news: Option<Arc<News>>,
}

/// Says that a part has ended.
struct News(OwnedFd);

impl Wake for News {
    fn wake(self: Arc<News>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<News>) {
        // A counter that is full says enough.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// A link and what is under way on it.
struct Route {
    link: Remote,
    socket: Option<Inode>,
    typed: String,
    /// They stay open as long as the copy goes on.
    segments: Vec<Segment<Remote>>,
    part_bytes: usize,
    kept: Vec<Buffer>,
    wholes: BTreeMap<u64, Whole>,
    next_whole: u64,
    waiting: VecDeque<Part>,
    under_way: Vec<(Ticket, Part)>,
    ended: VecDeque<Outcome>,
}

/// A request of the copy.
struct Whole {
    /// Its memory is here while parts go through other buffers.
    request: SegmentRequest,
    /// Parts that have not ended.
    left: usize,
    /// Bytes without a gap, as far as is known.
    done: u64,
    /// The failure that comes first in the data, and where.
    error: Option<(u64, Error)>,
}

/// What goes to the broker at once.
struct Part {
    whole: u64,
    from: u64,
    len: u64,
    /// The request's memory, which goes as it is.
    own: Option<Memory>,
}

impl Links {
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The link to a socket, which is connected if it is not yet.
    pub(super) fn connect(&mut self, served: &Served, config: &Config) -> Result<usize, Failure> {
        let socket = inode_of(&served.socket);
        let known = |route: &Route| socket.is_some() && route.socket == socket;
        if let Some(index) = self.links.iter().position(known) {
            return Ok(index);
        }
        if self.news.is_none() {
            let news = baio_process::descriptor::event();
            let news = news.map_err(|errno| Failure::from_io("dd", &errno.into()))?;
            self.news = Some(Arc::new(News(news)));
        }
        let options = Options {
            config: *config,
            ..Options::default()
        };
        let told = |error: Error| Failure::from_storage("dd", served.typed.clone(), &error);
        let link = Remote::connect_with(&served.socket, "", &options).map_err(told)?;
        let block = BLOCK as usize;
        let share = link.arena_free_bytes() / KEPT_SHARE / KEPT;
        let part_bytes = (share / block * block).clamp(block, PART_BYTES_MAX);
        let mut kept = vec![link.buffer(part_bytes).map_err(told)?];
        kept.extend((1..KEPT).map_while(|_| link.buffer(part_bytes).ok()));
        self.links.push(Route {
            link,
            socket,
            typed: served.typed.clone(),
            segments: Vec::new(),
            part_bytes,
            kept,
            wholes: BTreeMap::new(),
            next_whole: 0,
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            ended: VecDeque::new(),
        });
        Ok(self.links.len() - 1)
    }

    /// Opens a segment: whose it is, what requests name it by, and its size.
    pub(super) fn open(
        &mut self,
        index: usize,
        served: &Served,
        name: &str,
        access: Access,
    ) -> Result<Opened, Failure> {
        let route = self.route(index)?;
        let owner = served.owner.unwrap_or(route.link.identity().uid);
        let opened = route.link.open_segment_of(owner, name, access).wait();
        let segment = opened.map_err(|error| Failure::from_storage("dd", served.typed.clone(), &error))?;
        let opened = Opened {
            handle: segment.handle(),
            owner,
            size: segment.info().size_bytes,
        };
        route.segments.push(segment);
        Ok(opened)
    }

    fn route(&mut self, index: usize) -> Result<&mut Route, Failure> {
        let route = self.links.get_mut(index);
        route.ok_or_else(|| Failure::new("dd", "EBADF", "no link carries this"))
    }

    /// A buffer of the first link that has one.
    pub(super) fn buffer(&self, len: usize) -> Option<Buffer> {
        self.links.iter().find_map(|route| route.link.buffer(len).ok())
    }

    pub(super) fn start(&mut self, index: usize, request: SegmentRequest) -> Result<(), Failure> {
        self.route(index)?.take(request);
        Ok(())
    }

    /// Sends what there is room for, and looks what has ended; says how much that was. Whatever ends from now on makes
    /// [`news`](Links::news).
    pub(super) fn look(&mut self) -> Result<usize, Failure> {
        let Some(news) = &self.news else {
            return Ok(0);
        };
        // Before looking: what ends meanwhile writes it again.
        let _ = rustix::io::read(&news.0, &mut [0_u8; 8]);
        let waker = Waker::from(Arc::clone(news));
        let mut count = 0;
        for route in &mut self.links {
            route.send()?;
            route.reap(&waker);
            // What makes room lets others go; a part that has just been sent may have ended.
            while !route.waiting.is_empty() && route.sends()? {
                route.reap(&waker);
            }
            count += route.ended.len();
        }
        Ok(count)
    }

    /// Wakes whoever sleeps on the links.
    pub(super) fn waker(&self) -> Option<Waker> {
        self.news.as_ref().map(|news| Waker::from(Arc::clone(news)))
    }

    /// What becomes readable when something has ended; `None` if nothing is under way.
    pub(super) fn news(&self) -> Option<BorrowedFd<'_>> {
        let busy = self.links.iter().any(|route| !route.under_way.is_empty());
        self.news.as_ref().filter(|_| busy).map(|news| news.0.as_fd())
    }

    pub(super) fn next_outcome(&mut self) -> Option<Outcome> {
        self.links.iter_mut().find_map(|route| route.ended.pop_front())
    }

    /// Leaves every broker. What was copied is copied: one that has ended by now took nothing back.
    pub(super) fn close(self) {
        for route in self.links {
            drop(route.segments);
            let _ = route.link.close();
        }
    }
}

/// A segment that is open.
pub(super) struct Opened {
    pub(super) handle: baio_storage::Handle,
    pub(super) owner: u32,
    pub(super) size: u64,
}

impl Route {
    /// Makes parts of a request.
    fn take(&mut self, mut request: SegmentRequest) {
        let number = self.next_whole;
        self.next_whole += 1;
        let len = request.memory.len() as u64;
        let before = self.waiting.len();
        if self.link.must_copy(&request.memory) {
            let each = self.part_bytes as u64;
            let parts = (0..len.div_ceil(each)).map(|part| Part {
                whole: number,
                from: part * each,
                len: each.min(len - part * each),
                own: None,
            });
            self.waiting.extend(parts);
        } else {
            self.waiting.push_back(Part {
                whole: number,
                from: 0,
                len,
                own: Some(std::mem::take(&mut request.memory)),
            });
        }
        let left = self.waiting.len() - before;
        let whole = Whole {
            request,
            left,
            done: len,
            error: None,
        };
        self.wholes.insert(number, whole);
    }

    /// The same, and whether anything went.
    fn sends(&mut self) -> Result<bool, Failure> {
        let before = self.waiting.len();
        self.send()?;
        Ok(self.waiting.len() < before)
    }

    /// Starts what waits, as far as there is room.
    fn send(&mut self) -> Result<(), Failure> {
        while let Some(mut part) = self.waiting.pop_front() {
            let Some(whole) = self.wholes.get(&part.whole) else {
                continue;
            };
            let goes_as_it_is = part.own.is_some();
            let memory = match part.own.take() {
                Some(memory) => memory,
                None => match self.kept.pop() {
                    Some(mut buffer) => {
                        whole.fill(&part, &mut buffer);
                        Memory::Own(buffer)
                    }
                    None => {
                        self.waiting.push_front(part);
                        return self.waits();
                    }
                },
            };
            let request = whole.part(&part, memory);
            match self.link.start(request) {
                Ok(ticket) => self.under_way.push((ticket, part)),
                Err(back) => {
                    match goes_as_it_is {
                        true => part.own = Some(back.memory),
                        false => self.kept.extend(back.memory.into_buffer()),
                    }
                    self.waiting.push_front(part);
                    return self.waits();
                }
            }
        }
        Ok(())
    }

    /// Something waits for the end of another; if there is none, it would wait for ever.
    fn waits(&self) -> Result<(), Failure> {
        if !self.under_way.is_empty() {
            return Ok(());
        }
        let told = |error: Error| Failure::from_storage("dd", self.typed.clone(), &error);
        self.link.turn(Wait::No).map_err(told)?;
        Err(Failure::new("dd", "EIO", "its broker takes no request any more")
            .on(self.typed.clone())
            .needing("a broker that serves")
            .cured_by("look whether it still runs (`baio serve`), and begin again"))
    }

    /// Takes what has ended.
    fn reap(&mut self, waker: &Waker) {
        let mut at = 0;
        while let Some((ticket, _)) = self.under_way.get(at) {
            match self.link.poll(*ticket, waker) {
                Poll::Pending => at += 1,
                Poll::Ready(outcome) => {
                    let (_, part) = self.under_way.swap_remove(at);
                    // A ticket is looked at until it has ended, and no longer: there is an outcome.
                    if let Some(outcome) = outcome {
                        self.part_ended(part, outcome);
                    }
                }
            }
        }
    }

    fn part_ended(&mut self, mut part: Part, mut outcome: Outcome) {
        let Some(whole) = self.wholes.get_mut(&part.whole) else {
            return;
        };
        let memory = std::mem::take(&mut outcome.memory);
        let goes_as_it_is = matches!(whole.request.memory, Memory::None);
        match memory {
            Memory::Own(buffer) if goes_as_it_is => part.own = Some(Memory::Own(buffer)),
            Memory::Own(buffer) => {
                whole.keep(&part, &buffer, outcome.bytes_done);
                self.kept.push(buffer);
            }
            _ => {} // A sync has none; what a broker had that has gone is lost.
        }
        whole.left -= 1;
        if let Some(memory) = part.own {
            whole.request.memory = memory;
        }
        let end = part.from + u64::from(outcome.bytes_done);
        if end < part.from + part.len {
            whole.done = whole.done.min(end);
        }
        let result = std::mem::replace(&mut outcome.result, Ok(0));
        if let Err(mut error) = result {
            // A broker that has ended says of a write that it was given up, and nothing of itself.
            if let Some(refusal) = self.link.refusal() {
                let at = error.offset;
                error = Error::new(error.operation, error.object.as_str(), refusal);
                error = at.map_or(error.clone(), |at| error.at(at));
            }
            whole.done = whole.done.min(end);
            if whole.error.as_ref().is_none_or(|(at, _)| part.from < *at) {
                whole.error = Some((part.from, error));
            }
        }
        if whole.left > 0 {
            return;
        }
        if let Some(whole) = self.wholes.remove(&part.whole) {
            // No request is longer than this: the buffers' lengths come from `bs=`, which memory bounds.
            let done = u32::try_from(whole.done).unwrap_or(u32::MAX);
            self.ended.push_back(Outcome {
                tag: whole.request.tag,
                result: whole.error.map_or(Ok(done), |(_, error)| Err(error)),
                bytes_done: done,
                memory: whole.request.memory,
                ..outcome
            });
        }
    }
}

impl Whole {
    /// The request of a part.
    fn part(&self, part: &Part, memory: Memory) -> SegmentRequest {
        let op = match self.request.op {
            SegmentOp::Read { offset } => SegmentOp::Read {
                offset: offset + part.from,
            },
            SegmentOp::Write { offset } => SegmentOp::Write {
                offset: offset + part.from,
            },
            other => other,
        };
        SegmentRequest {
            mode: self.request.mode,
            durability: self.request.durability,
            ..SegmentRequest::new(self.request.handle, op, memory)
        }
    }

    /// Gives a buffer a part's length, and what it writes.
    fn fill(&self, part: &Part, buffer: &mut Buffer) {
        buffer.set_len(part.len as usize);
        if let (SegmentOp::Write { .. }, Memory::Own(whole)) = (self.request.op, &self.request.memory) {
            let range = part.from as usize..(part.from + part.len) as usize;
            if let Some(bytes) = whole.get(range) {
                buffer.copy_from_slice(bytes);
            }
        }
    }

    /// Takes over what a part has read.
    fn keep(&mut self, part: &Part, buffer: &Buffer, bytes: u32) {
        if let (SegmentOp::Read { .. }, Memory::Own(whole)) = (self.request.op, &mut self.request.memory) {
            let (from, len) = (part.from as usize, bytes as usize);
            if let (Some(to), Some(read)) = (whole.get_mut(from..from + len), buffer.get(..len)) {
                to.copy_from_slice(read);
            }
        }
    }
}
