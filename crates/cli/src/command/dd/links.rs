//! The brokers that a copy goes to: a link to each, and what is under way on it.
//!
//! A link moves buffers of its own arena, and the copy takes its buffers there as long as there are any; a quarter stays free, because what
//! lies elsewhere goes through a buffer of the arena too. No piece is longer than a half of that quarter: so no `bs=` or `iodepth=` is too
//! large for the arena that a broker gives.
//!
//! A link has no descriptor that could be slept on beside the cores' own. So every request is polled for, with a waker that writes to
//! an event descriptor (`eventfd(2)`), and the link's helper reaps.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use baio::{
    Access, Buffer, Config, Error, Handle, Link, Options, Outcome, Remote, Segment, SegmentRequest, Ticket, Wait,
};
use baio_console::failure::Failure;
use baio_console::target::Served;

use super::frame::BLOCK;
use super::inode::{Inode, inode_of};

/// This share of an arena stays free for what lies elsewhere.
const FREE_SHARE: usize = 4;

/// The links, one for each socket.
#[derive(Default)]
pub(super) struct Links {
    links: Vec<Route>,
    news: Option<Arc<News>>,
}

/// Says that a request has ended.
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
    /// Bytes of the arena that are left free.
    free: usize,
    waiting: VecDeque<SegmentRequest>,
    under_way: Vec<Ticket>,
    ended: VecDeque<Outcome>,
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
        self.links.push(Route {
            free: link.arena_free_bytes() / FREE_SHARE,
            link,
            socket,
            typed: served.typed.clone(),
            segments: Vec::new(),
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

    /// The longest piece that each link can copy into its arena; `None` without links.
    pub(super) fn piece_max(&self) -> Option<u64> {
        let pieces = self.links.iter().map(|route| route.free as u64 / 2 / BLOCK * BLOCK);
        pieces.min().map(|bytes| bytes.max(BLOCK))
    }

    /// A buffer of the first link that has one.
    pub(super) fn buffer(&self, len: usize) -> Option<Buffer> {
        let has_room = |route: &&Route| route.link.arena_free_bytes() >= route.free.saturating_add(len);
        let mut routes = self.links.iter().filter(has_room);
        routes.find_map(|route| route.link.buffer(len).ok())
    }

    pub(super) fn start(&mut self, index: usize, request: SegmentRequest) -> Result<(), Failure> {
        self.route(index)?.waiting.push_back(request);
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
            // What makes room lets others go; what has just been sent may have ended.
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
    pub(super) handle: Handle,
    pub(super) owner: u32,
    pub(super) size: u64,
}

impl Route {
    /// The same, and whether anything went.
    fn sends(&mut self) -> Result<bool, Failure> {
        let before = self.waiting.len();
        self.send()?;
        Ok(self.waiting.len() < before)
    }

    /// Starts what waits, as far as there is room.
    fn send(&mut self) -> Result<(), Failure> {
        while let Some(request) = self.waiting.pop_front() {
            match self.link.start(request) {
                Ok(ticket) => self.under_way.push(ticket),
                Err(back) => {
                    self.waiting.push_front(back);
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
        let Route { link, ended, .. } = self;
        self.under_way.retain(|ticket| match link.poll(*ticket, waker) {
            Poll::Pending => true,
            // A ticket is looked at until it has ended, and no longer: there is an outcome.
            Poll::Ready(outcome) => {
                ended.extend(outcome.map(|outcome| with_reason(link, outcome)));
                false
            }
        });
    }
}

/// A broker that has ended says of a write that it was given up, and nothing of itself.
fn with_reason(link: &Remote, mut outcome: Outcome) -> Outcome {
    if let (Err(error), Some(refusal)) = (&outcome.result, link.refusal()) {
        let told = Error::new(error.operation, error.object.as_str(), refusal);
        outcome.result = Err(match error.offset {
            Some(offset) => told.at(offset),
            None => told,
        });
    }
    outcome
}
