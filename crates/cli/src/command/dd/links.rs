//! The brokers that a copy goes to: a link to each, and what is under way on it.
//!
//! A link moves buffers of its own arena, and the copy takes its buffers there as long as there are any; a quarter stays free, because what
//! lies elsewhere goes through a buffer of the arena too. No piece is longer than a half of that quarter: so no `bs=` or `iodepth=` is too
//! large for the arena that a broker gives.
//!
//! Each link has a descriptor that is slept on beside the cores' own ([`Link::event_fd`]).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use baio::{
    Access, Buffer, Caching, Config, Error, Fault, Handle, Link, Options, Outcome, Remote, Segment, SegmentRequest,
    Ticket, Wait,
};
use baio_console::failure::Failure;
use baio_console::target::Served;

use super::frame::BLOCK;
use super::inode::{Inode, inode_of};
use super::signals::{Bell, Signals};

/// This share of an arena stays free for what lies elsewhere.
const FREE_SHARE: usize = 4;

/// The links, one for each socket.
#[derive(Default)]
pub(super) struct Links {
    links: Vec<Route>,
    /// Rung by signals.
    bell: Option<Arc<OwnedFd>>,
}

/// A link and what is under way on it.
struct Route {
    link: Remote,
    event: OwnedFd,
    socket: Option<Inode>,
    typed: String,
    /// They stay open as long as the copy goes on.
    segments: Vec<Segment<Remote>>,
    /// Bytes of the arena that are left free.
    free: usize,
    waiting: VecDeque<SegmentRequest>,
    under_way: usize,
    ended: VecDeque<Outcome>,
}

impl Links {
    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The link to a socket, which is connected if it is not yet.
    pub(super) fn connect(&mut self, served: &Served, config: &Config, signals: &Signals) -> Result<usize, Failure> {
        let socket = inode_of(&served.socket);
        let known = |route: &Route| socket.is_some() && route.socket == socket;
        if let Some(index) = self.links.iter().position(known) {
            return Ok(index);
        }
        if self.bell.is_none() {
            let bell = baio_process::descriptor::event();
            let bell = Arc::new(bell.map_err(|errno| Failure::from_io("dd", &errno.into()))?);
            signals.ring(Bell::Event(Arc::clone(&bell)));
            self.bell = Some(bell);
        }
        let options = Options {
            config: *config,
            ..Options::default()
        };
        let told = |error: Error| Failure::from_storage("dd", served.typed.clone(), &error);
        let link = Remote::connect_with(&served.socket, "", &options).map_err(told)?;
        self.links.push(Route {
            free: link.arena_free_bytes() / FREE_SHARE,
            event: link.event_fd().map_err(told)?,
            link,
            socket,
            typed: served.typed.clone(),
            segments: Vec::new(),
            waiting: VecDeque::new(),
            under_way: 0,
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

    /// Sends what there is room for, and looks what has ended; says how much that was.
    pub(super) fn look(&mut self) -> Result<usize, Failure> {
        if let Some(bell) = &self.bell {
            // Before looking: a signal that comes meanwhile rings again.
            let _ = rustix::io::read(bell, &mut [0_u8; 8]);
        }
        self.links
            .iter_mut()
            .try_fold(0, |count, route| Ok(count + route.look()?))
    }

    /// Is nothing under way?
    pub(super) fn are_idle(&self) -> bool {
        self.links.iter().all(|route| route.under_way == 0)
    }

    /// What is readable when something has ended, or a signal has come; none if nothing is under way.
    pub(super) fn events(&self) -> impl Iterator<Item = &OwnedFd> {
        let busy = self.links.iter().filter(|route| route.under_way > 0);
        let bell = self.bell.as_deref().filter(|_| !self.are_idle());
        busy.map(|route| &route.event).chain(bell)
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
    fn look(&mut self) -> Result<usize, Failure> {
        self.send()?;
        let turned = match self.under_way {
            0 => Ok(()),
            _ => self.turn(),
        };
        while let Some(outcome) = self.link.next_outcome() {
            self.under_way = self.under_way.saturating_sub(1);
            self.ended.push_back(with_reason(&self.link, outcome));
        }
        // A broker that has ended says so by what was under way, and the copy tells how far it came.
        match self.ended.len() {
            0 => turned.map(|()| 0),
            count => Ok(count),
        }
    }

    fn turn(&self) -> Result<(), Failure> {
        let turned = self.link.turn(Wait::No).map(drop);
        turned.map_err(|error| Failure::from_storage("dd", self.typed.clone(), &error))
    }

    /// Starts what waits, as far as there is room.
    fn send(&mut self) -> Result<(), Failure> {
        while let Some(request) = self.waiting.pop_front() {
            match self.link.start(request) {
                Ok(_) => self.under_way += 1,
                Err(back) => match self.link.refusal() {
                    Some(fault) => self.ended.push_back(refused(back, fault, &self.typed)),
                    None => {
                        self.waiting.push_front(back);
                        return self.waits();
                    }
                },
            }
        }
        Ok(())
    }

    /// Something waits for the end of another; if there is none, it would wait for ever.
    fn waits(&self) -> Result<(), Failure> {
        if self.under_way > 0 {
            return Ok(());
        }
        self.turn()?;
        Err(Failure::new("dd", "EIO", "its broker takes no request any more")
            .on(self.typed.clone())
            .needing("a broker that serves")
            .cured_by("look whether it still runs (`baio serve`), and begin again"))
    }
}

/// The end of a request that was never sent, since its broker has ended.
fn refused(request: SegmentRequest, fault: Fault, typed: &str) -> Outcome {
    let error = Error::new(request.op.name(), typed, fault);
    let offset = request.op.offset();
    Outcome {
        ticket: Ticket {
            index: u32::MAX,
            generation: 0,
        },
        tag: request.tag,
        result: Err(match offset {
            Some(offset) => error.at(offset),
            None => error,
        }),
        bytes_done: 0,
        memory: request.memory,
        took: Caching::Direct,
        iterations: 0,
        pin: None,
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
