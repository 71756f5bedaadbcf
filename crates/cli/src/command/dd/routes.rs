//! What carries a copy: a link to each volume, here or behind a broker, or one without a volume for plain files.
//!
//! A link that is alone sleeps by itself. Of several none may sleep while another has something to do, and a broker's hears no signal: each is
//! turned without waiting, and then their descriptors ([`Link::event_fd`]) are slept on together, with a bell that signals ring.
//!
//! A link to a broker moves buffers of its own arena, and the copy takes its buffers there as long as there are any; a quarter stays free,
//! because what lies elsewhere goes through a buffer of the arena too. No piece is longer than a half of that quarter: so no `bs=` or
//! `iodepth=` is too large for the arena that a broker gives.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use baio::{
    Access, Buffer, CacheOptions, Core, EngineOptions, Error, Fault, File, Handle, Identity, Link, LinkOptions, Local,
    Outcome, Remote, Segment, SegmentInfo, SegmentOp, SegmentRequest, Ticket, Wait,
};
use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_engine::Arena;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::frame::BLOCK;
use super::inode::Inode;
use super::signals::Signals;

/// The page cache of a volume, for what does not end on whole blocks.
pub(super) const CACHE_BYTES: usize = 4 << 20;

/// This share of a broker's arena stays free for what lies elsewhere.
const FREE_SHARE: usize = 4;

/// Rounds of waiting for what SIGINT has called off, and how long each of them is.
const CALLED_OFF_ROUNDS: u32 = 100;
const CALLED_OFF_ROUND: Duration = Duration::from_millis(10);

/// All links of a copy; ends name theirs by its index.
pub(super) struct Routes {
    routes: Vec<Route>,
    /// Buffers of a copy between brokers, when their arenas have no more.
    spare: Option<Arc<Arena>>,
    /// Rung by signals, where links are slept on together.
    bell: Option<Arc<OwnedFd>>,
    config: EngineOptions,
    signals: Signals,
    /// Rounds of waiting that are left, once the copy was interrupted.
    rounds: Option<u32>,
}

/// A link, and what is under way on it.
struct Route {
    link: Way,
    /// The volume's file, or the broker's socket.
    place: Option<Inode>,
    /// What its failures are about.
    typed: String,
    /// The backend's name, and whether it really keeps several requests in flight.
    backend: (&'static str, bool),
    /// Bytes of the arena that are left free.
    free: usize,
    /// What is slept on, where it is not alone.
    event: Option<OwnedFd>,
    under_way: usize,
    ended: VecDeque<Outcome>,
    /// What was started last, a read and a write: on a stream each may wait for ever.
    last: [Option<Ticket>; 2],
}

enum Way {
    Here(Local),
    There(Remote),
}

/// The same on either link.
macro_rules! on {
    ($way:expr, $link:ident => $does:expr) => {
        match $way {
            Way::Here($link) => $does,
            Way::There($link) => $does,
        }
    };
}

/// What the requests of an end are made on; open as long as this lives.
pub(super) enum Opened {
    File(File<Local>),
    Here(Segment<Local>),
    There(Segment<Remote>),
}

impl Opened {
    pub(super) fn handle(&self) -> Handle {
        match self {
            Opened::File(file) => file.handle(),
            Opened::Here(segment) => segment.handle(),
            Opened::There(segment) => segment.handle(),
        }
    }

    /// What a segment is.
    pub(super) fn info(&self) -> Option<&SegmentInfo> {
        match self {
            Opened::File(_) => None,
            Opened::Here(segment) => Some(segment.info()),
            Opened::There(segment) => Some(segment.info()),
        }
    }
}

impl Routes {
    /// None yet; they are opened with `config`.
    pub(super) fn new(config: EngineOptions, signals: Signals) -> Routes {
        Routes {
            routes: Vec::new(),
            spare: None,
            bell: None,
            config,
            signals,
            rounds: None,
        }
    }

    /// The link to a segment's volume, which is opened if it is not open yet: to read, unless something of it is to be written.
    pub(super) fn reach_volume(
        &mut self,
        segment: &NamedSegment,
        (path, place): (&Path, Option<Inode>),
        access: Access,
    ) -> Result<usize, Failure> {
        if let Some(index) = self.find(place, Route::is_here) {
            return Ok(index);
        }
        let opened = match access {
            Access::Read => Core::open_to_read(path, &self.config),
            Access::Write => Core::open(path, &self.config),
        };
        let mut core = segment.told("dd", opened)?;
        let cache = CacheOptions {
            bytes: CACHE_BYTES,
            ..CacheOptions::default()
        };
        if let Err(error) = core.use_cache(&cache) {
            let _ = core.close(); // The first failure is the one to tell.
            return Err(Failure::from_storage("dd", segment.typed.clone(), &error));
        }
        Ok(self.add_here(core, place, segment.typed.clone()))
    }

    /// The link to a segment's broker, which is connected if it is not yet.
    pub(super) fn reach_broker(
        &mut self,
        segment: &NamedSegment,
        (socket, place): (&Path, Option<Inode>),
    ) -> Result<usize, Failure> {
        if let Some(index) = self.find(place, |route| !route.is_here()) {
            return Ok(index);
        }
        let options = LinkOptions {
            engine: self.config,
            ..LinkOptions::default()
        };
        let link = segment.told("dd", Remote::connect_with(socket, "", &options))?;
        let free = link.arena_free_bytes() / FREE_SHARE;
        // It does not say which backend it has.
        Ok(self.add(Way::There(link), (place, segment.typed.clone()), ("broker", true), free))
    }

    fn find(&self, place: Option<Inode>, is_such: impl Fn(&Route) -> bool) -> Option<usize> {
        let known = |route: &Route| place.is_some() && route.place == place && is_such(route);
        self.routes.iter().position(known)
    }

    fn add_here(&mut self, core: Core, place: Option<Inode>, typed: String) -> usize {
        let doorbell = core.engine().doorbell();
        self.signals.ring(Box::new(move || doorbell.ring()));
        let explained = core.engine().explain();
        let blocking = |(name, had): &(&str, Result<(), String>)| *name == "asynchronous" && had.is_err();
        let backend = (explained.backend, !explained.features.iter().any(blocking));
        let link = Local::around(core, Identity::effective());
        self.add(Way::Here(link), (place, typed), backend, 0)
    }

    fn add(
        &mut self,
        link: Way,
        (place, typed): (Option<Inode>, String),
        backend: (&'static str, bool),
        free: usize,
    ) -> usize {
        self.routes.push(Route {
            link,
            place,
            typed,
            backend,
            free,
            event: None,
            under_way: 0,
            ended: VecDeque::new(),
            last: [None, None],
        });
        self.routes.len() - 1
    }

    /// Opens a segment on a link, of its user if nobody is named.
    pub(super) fn open_segment(
        &mut self,
        index: usize,
        segment: &NamedSegment,
        access: Access,
    ) -> Result<Opened, Failure> {
        let (way, name) = (&self.route(index)?.link, &segment.name);
        let owner = segment.owner_uid(on!(way, link => link.identity()));
        let opened = match way {
            Way::Here(link) => link.open_segment_of(owner, name, access).wait().map(Opened::Here),
            Way::There(link) => link.open_segment_of(owner, name, access).wait().map(Opened::There),
        };
        segment.told("dd", opened)
    }

    /// Takes a plain file, on whichever link of this process there is.
    pub(super) fn open_file(&mut self, file: baio_engine::File, typed: &str) -> Result<(usize, Opened), Failure> {
        let index = match self.routes.iter().position(Route::is_here) {
            Some(index) => index,
            None => {
                let core = Core::new(&self.config);
                let core = core.map_err(|error| Failure::from_storage("dd", "the engine", &error))?;
                self.add_here(core, None, "the engine".to_owned())
            }
        };
        let Way::Here(link) = &self.route(index)?.link else {
            return Err(no_route());
        };
        let taken = File::from_engine(link, file, Access::Write).wait();
        let taken = taken.map_err(|error| Failure::from_storage("dd", typed, &error))?;
        Ok((index, Opened::File(taken)))
    }

    fn route(&mut self, index: usize) -> Result<&mut Route, Failure> {
        self.routes.get_mut(index).ok_or_else(no_route)
    }

    /// A buffer from a broker's arena, else from the first link's of this process, which is sized for the whole copy.
    pub(super) fn buffer(&mut self, len: usize) -> Result<Buffer, Failure> {
        let of_broker = self.routes.iter().find_map(|route| route.shared_buffer(len));
        let buffer = of_broker.or_else(|| {
            let here = self.routes.iter().find_map(|route| match &route.link {
                Way::Here(link) => Some(link.buffer(len).ok()),
                Way::There(_) => None,
            });
            here.unwrap_or_else(|| self.spare_arena()?.buffer(len))
        });
        buffer.ok_or_else(|| {
            Failure::new("dd", "ENOBUFS", format!("no buffer of {len} bytes is free"))
                .needing("memory for every request in flight")
                .cured_by("choose a smaller bs= or iodepth=")
        })
    }

    fn spare_arena(&mut self) -> Option<&Arc<Arena>> {
        if self.spare.is_none() {
            self.spare = Arena::new(self.config.arena_bytes).ok();
        }
        self.spare.as_ref()
    }

    /// The longest piece that every broker can copy into its arena.
    pub(super) fn piece_max(&self) -> u64 {
        let there = self.routes.iter().filter(|route| !route.is_here());
        let pieces = there.map(|route| (route.free as u64 / 2 / BLOCK * BLOCK).max(BLOCK));
        pieces.min().unwrap_or(u64::MAX)
    }

    /// Queues a request. Where there is no room, what is under way makes some.
    pub(super) fn start(&mut self, index: usize, mut request: SegmentRequest) -> Result<(), Failure> {
        while let Some(back) = self.route(index)?.start(request)? {
            request = back;
            self.turn()?;
        }
        Ok(())
    }

    /// The next outcome of any link.
    pub(super) fn next_outcome(&mut self) -> Option<Outcome> {
        self.routes.iter_mut().find_map(|route| route.ended.pop_front())
    }

    /// Submits what is queued and sleeps until something has completed, or a signal has come.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        if let [only @ Route { link: Way::Here(_), .. }] = self.routes.as_mut_slice() {
            return only.turn(Wait::one()).map(drop);
        }
        self.watch()?;
        match self.turn_all()? {
            0 => self.sleep(),
            _ => Ok(()),
        }
    }

    /// After SIGINT: calls off what waits for a stream, and waits a while; says whether that was not enough. Only a stream, a file that
    /// gives what comes as a stream does, and a broker that stands still let a request wait for ever. What a device has ends, however slow
    /// it is: until then nobody knows how long a file becomes, and a volume cannot be closed.
    pub(super) fn are_stuck(&mut self, waits_for_stream: bool) -> Result<bool, Failure> {
        if self.rounds.is_none() {
            self.routes.iter_mut().for_each(Route::call_off);
        }
        let Some(left) = self.rounds.unwrap_or(CALLED_OFF_ROUNDS).checked_sub(1) else {
            return Ok(true);
        };
        // What goes on ending is not stuck, however much of it there is.
        let is_quiet = self.turn_all()? == 0;
        let may_last = waits_for_stream || self.routes.iter().any(Route::waits_for_broker);
        self.rounds = Some(if is_quiet && may_last { left } else { CALLED_OFF_ROUNDS });
        if is_quiet {
            std::thread::sleep(CALLED_OFF_ROUND);
        }
        Ok(false)
    }

    /// Is nothing under way?
    pub(super) fn are_idle(&self) -> bool {
        self.routes.iter().all(|route| route.under_way == 0)
    }

    fn turn_all(&mut self) -> Result<usize, Failure> {
        if let Some(bell) = &self.bell {
            // Before looking: a signal that comes meanwhile rings again.
            let _ = rustix::io::read(bell, &mut [0_u8; 8]);
        }
        let turned = |count, route: &mut Route| Ok(count + route.turn(Wait::No)?);
        self.routes.iter_mut().try_fold(0, turned)
    }

    /// Makes what the links are slept on by together. From then on a turn that does not wait makes it say what is true.
    fn watch(&mut self) -> Result<(), Failure> {
        if self.bell.is_none() {
            let bell = baio_process::descriptor::event().map_err(|errno| Failure::from_io("dd", &errno.into()))?;
            let bell = Arc::new(bell);
            let rung = Arc::clone(&bell);
            self.signals.ring(Box::new(move || {
                // A counter that is full says enough.
                let _ = rustix::io::write(&rung, &1_u64.to_ne_bytes());
            }));
            self.bell = Some(bell);
        }
        for route in self.routes.iter_mut().filter(|route| route.event.is_none()) {
            let event = on!(&route.link, link => link.event_fd());
            let failed = |error| Failure::from_storage("dd", route.typed.clone(), &error);
            route.event = Some(event.map_err(failed)?);
        }
        Ok(())
    }

    /// Sleeps on all links that have something under way.
    fn sleep(&self) -> Result<(), Failure> {
        let busy = self.routes.iter().filter(|route| route.under_way > 0);
        let events = busy.filter_map(|route| route.event.as_ref());
        let mut watched: Vec<PollFd<'_>> = events.map(|event| PollFd::new(event, PollFlags::IN)).collect();
        if watched.is_empty() {
            return Ok(());
        }
        watched.extend(self.bell.iter().map(|bell| PollFd::new(bell, PollFlags::IN)));
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Failure::from_io("dd", &errno.into())),
        }
    }

    /// System calls that this process has made for requests so far.
    pub(super) fn system_calls(&self) -> u64 {
        let made = self.routes.iter().map(|route| match &route.link {
            Way::Here(link) => link.stats().wait().map_or(0, |stats| stats.system_calls),
            Way::There(_) => 0,
        });
        made.sum()
    }

    /// The backend's name, and whether it really keeps several requests in flight.
    pub(super) fn backend(&self) -> (&'static str, bool) {
        let here = self.routes.iter().find(|route| route.is_here());
        here.or(self.routes.first())
            .map_or(("none", true), |route| route.backend)
    }

    /// Closes every volume cleanly, whatever happened; the first failure is told.
    pub(super) fn close(self) -> Result<(), Failure> {
        let closed = self.routes.into_iter().map(Route::close);
        closed.fold(Ok(()), Result::and)
    }
}

fn no_route() -> Failure {
    Failure::new("dd", "EBADF", "no link carries this")
}

impl Route {
    fn is_here(&self) -> bool {
        matches!(self.link, Way::Here(_))
    }

    fn waits_for_broker(&self) -> bool {
        !self.is_here() && self.under_way > 0
    }

    /// A buffer that a broker can be shown.
    fn shared_buffer(&self, len: usize) -> Option<Buffer> {
        match &self.link {
            Way::There(link) if link.arena_free_bytes() >= self.free.saturating_add(len) => link.buffer(len).ok(),
            Way::Here(_) | Way::There(_) => None,
        }
    }

    /// Queues a request, or gives it back where there is no room.
    fn start(&mut self, request: SegmentRequest) -> Result<Option<SegmentRequest>, Failure> {
        let at = usize::from(matches!(request.op, SegmentOp::Write { .. }));
        let back = match on!(&self.link, link => link.start(request)) {
            Ok(ticket) => {
                self.under_way += 1;
                self.last[at] = Some(ticket);
                return Ok(None);
            }
            Err(back) => back,
        };
        match on!(&self.link, link => link.refusal()) {
            Some(fault) => {
                self.ended.push_back(refused(back, fault, &self.typed));
                Ok(None)
            }
            // It would wait for ever.
            None if self.under_way == 0 => Err(Failure::new("dd", "EIO", "its broker takes no more requests")
                .on(self.typed.clone())
                .needing("a broker that serves")
                .cured_by("check whether it still runs (`baio serve`), and begin again")),
            None => Ok(Some(back)),
        }
    }

    /// Hands over what is queued, and takes what has ended; says how much has.
    fn turn(&mut self, wait: Wait) -> Result<usize, Failure> {
        let turned = match self.under_way {
            0 => Ok(0),
            _ => on!(&self.link, link => link.turn(wait)),
        };
        while let Some(outcome) = on!(&self.link, link => link.next_outcome()) {
            self.under_way = self.under_way.saturating_sub(1);
            let refusal = on!(&self.link, link => link.refusal());
            self.ended.push_back(with_reason(refusal, outcome));
        }
        match turned {
            Ok(count) => Ok(count.max(self.ended.len())),
            Err(error) if self.ended.is_empty() => Err(Failure::from_storage("dd", self.typed.clone(), &error)),
            // A broker that has ended says so by what was under way, and the copy tells how far it came.
            Err(_) => Ok(self.ended.len()),
        }
    }

    /// Calls off what may wait for ever: only here are there streams.
    fn call_off(&mut self) {
        if let Way::Here(link) = &self.link {
            let last = std::mem::take(&mut self.last);
            last.into_iter().flatten().for_each(|ticket| link.cancel(ticket));
        }
    }

    fn close(self) -> Result<(), Failure> {
        drop(self.ended);
        match self.link {
            Way::Here(link) => {
                let closed = link.close();
                closed.map_err(|error| Failure::from_storage("dd", self.typed, &error))
            }
            Way::There(link) => {
                // What was copied is copied: a broker that has ended by now took nothing back.
                let _ = link.close();
                Ok(())
            }
        }
    }
}

/// The end of a request that was never sent, since its broker has ended.
fn refused(request: SegmentRequest, fault: Fault, typed: &str) -> Outcome {
    let ticket = Ticket {
        index: u32::MAX,
        generation: 0,
    };
    let error = gave_up(request.op.name(), typed, request.op.offset(), fault);
    Outcome {
        tag: request.tag,
        ..Outcome::early(ticket, request.memory, Err(error))
    }
}

/// A broker that has ended says of a write that it was given up, and nothing of itself.
fn with_reason(refusal: Option<Fault>, mut outcome: Outcome) -> Outcome {
    if let (Err(error), Some(refusal)) = (&outcome.result, refusal) {
        outcome.result = Err(gave_up(error.operation, error.object.as_str(), error.offset, refusal));
    }
    outcome
}

fn gave_up(operation: &'static str, object: &str, offset: Option<u64>, fault: Fault) -> Error {
    let error = Error::new(operation, object, fault);
    match offset {
        Some(offset) => error.at(offset),
        None => error,
    }
}
