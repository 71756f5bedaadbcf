//! What carries a copy: a core for each volume that it opens, a link to each broker, or a core without a volume.
//!
//! Where a copy goes from one volume to another, both cores are turned, and neither may sleep while the other has
//! something to do: both are armed, looked at once more, and then their ready descriptors are slept on together, and those of
//! links to brokers (`links.rs`).

use std::sync::Arc;
use std::time::Duration;

use baio::{Access, Buffer, CacheConfig, Config, Core, Outcome, SegmentOp, SegmentRequest, Ticket, Wait};
use baio_console::failure::Failure;
use baio_console::named::NamedSegment;
use baio_console::target::Served;
use baio_engine::Arena;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::inode::{Inode, inode_of};
use super::links::{Links, Opened};
use super::signals::{Bell, Signals};

/// The page cache of a volume, for what does not end on whole blocks.
pub(super) const CACHE_BYTES: usize = 4 << 20;

/// Rounds of waiting for what SIGINT has called off, and how long each of them is.
const CALLED_OFF_ROUNDS: u32 = 100;
const CALLED_OFF_ROUND: Duration = Duration::from_millis(10);

/// A core, and whose failures are its.
struct Carrier {
    core: Core,
    volume: Option<Inode>,
    typed: String,
}

/// By what an end is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The core of this index.
    Core(usize),
    /// The link of this index.
    Link(usize),
}

/// One or two, cores or links.
pub(super) struct Cores {
    carriers: Vec<Carrier>,
    links: Links,
    /// Buffers of a copy between links, which need no core, when their arenas have no more.
    spare: Option<Arc<Arena>>,
    config: Config,
    signals: Signals,
    /// What was started last on a stream, a read and a write: each may wait for ever.
    waiting: [Option<(usize, Ticket)>; 2],
    /// Rounds of waiting that are left, once the copy was interrupted.
    rounds: Option<u32>,
}

impl Cores {
    /// None yet; they are started with `config`.
    pub(super) fn new(config: Config, signals: Signals) -> Cores {
        Cores {
            carriers: Vec::new(),
            links: Links::default(),
            spare: None,
            config,
            signals,
            waiting: [None, None],
            rounds: None,
        }
    }

    /// The core of a segment's volume, which is opened if it is not open yet: to read, unless something of it is to be written.
    pub(super) fn of_volume(&mut self, segment: &NamedSegment, access: Access) -> Result<usize, Failure> {
        let volume = inode_of(&segment.volume);
        let known = |carrier: &Carrier| volume.is_some() && carrier.volume == volume;
        if let Some(index) = self.carriers.iter().position(known) {
            return Ok(index);
        }
        let opened = match access {
            Access::Read => Core::open_to_read(&segment.volume, &self.config),
            Access::Write => Core::open(&segment.volume, &self.config),
        };
        let mut core = segment.told("dd", opened)?;
        let cache = CacheConfig {
            bytes: CACHE_BYTES,
            ..CacheConfig::default()
        };
        if let Err(error) = core.use_cache(&cache) {
            let _ = core.close(); // The first failure is the one to tell.
            return Err(Failure::from_storage("dd", segment.typed.clone(), &error));
        }
        Ok(self.add(core, volume, segment.typed.clone()))
    }

    /// Any core: plain files live on whichever there is.
    pub(super) fn any(&mut self) -> Result<usize, Failure> {
        if self.carriers.is_empty() {
            let core = Core::new(&self.config);
            let core = core.map_err(|error| Failure::from_storage("dd", "the engine", &error))?;
            self.add(core, None, "the engine".to_owned());
        }
        Ok(0)
    }

    fn add(&mut self, core: Core, volume: Option<Inode>, typed: String) -> usize {
        self.signals.ring(Bell::Core(core.engine().doorbell()));
        self.carriers.push(Carrier { core, volume, typed });
        self.carriers.len() - 1
    }

    /// The link to a segment's broker, which is connected if it is not yet, and the segment, open.
    pub(super) fn of_broker(
        &mut self,
        served: &Served,
        name: &str,
        access: Access,
    ) -> Result<(usize, Opened), Failure> {
        let link = self.links.connect(served, &self.config, &self.signals)?;
        Ok((link, self.links.open(link, served, name, access)?))
    }

    /// Works with a core.
    pub(super) fn with<T>(&mut self, way: Way, work: impl FnOnce(&mut Core) -> T) -> Result<T, Failure> {
        let carrier = match way {
            Way::Core(index) => self.carriers.get_mut(index),
            Way::Link(_) => None,
        };
        match carrier {
            Some(carrier) => Ok(work(&mut carrier.core)),
            None => Err(Failure::new("dd", "EBADF", "no core carries this")),
        }
    }

    /// A buffer from a link's arena, which a broker shares, else from the first core's, which is sized for the whole copy.
    pub(super) fn buffer(&mut self, len: usize) -> Result<Buffer, Failure> {
        let buffer = self.links.buffer(len).or_else(|| match self.carriers.first() {
            Some(carrier) => carrier.core.engine().buffer(len),
            None => self.spare_arena()?.buffer(len),
        });
        buffer.ok_or_else(|| {
            Failure::new("dd", "ENOBUFS", format!("no buffer of {len} bytes is free"))
                .needing("memory for every request in flight")
                .cured_by("choose a smaller bs= or iodepth=")
        })
    }

    /// The longest piece that every broker can take.
    pub(super) fn piece_max(&self) -> u64 {
        self.links.piece_max().unwrap_or(u64::MAX)
    }

    fn spare_arena(&mut self) -> Option<&Arc<Arena>> {
        if self.spare.is_none() {
            self.spare = Arena::new(self.config.arena_bytes).ok();
        }
        self.spare.as_ref()
    }

    /// Queues a request. The tables are larger than any depth, so a full one empties by turning.
    pub(super) fn start(&mut self, way: Way, mut request: SegmentRequest) -> Result<(), Failure> {
        if let Way::Link(index) = way {
            return self.links.start(index, request);
        }
        loop {
            let is_write = matches!(request.op, SegmentOp::Write { .. });
            match self.with(way, |core| core.start(request))? {
                Ok(ticket) => {
                    if let (Way::Core(index), Some(place)) = (way, self.waiting.get_mut(usize::from(is_write))) {
                        *place = Some((index, ticket));
                    }
                    return Ok(());
                }
                Err(back) => request = back,
            }
            self.turn()?;
        }
    }

    /// The next outcome of any core or link.
    pub(super) fn next_outcome(&mut self) -> Option<Outcome> {
        let of_core = self.carriers.iter_mut().find_map(|carrier| carrier.core.next_outcome());
        of_core.or_else(|| self.links.next_outcome())
    }

    /// Submits what is queued and sleeps until something has completed.
    pub(super) fn turn(&mut self) -> Result<(), Failure> {
        if let ([only], true) = (self.carriers.as_mut_slice(), self.links.is_empty()) {
            return only.turn(Wait::one()).map(drop);
        }
        if self.turn_all()? > 0 {
            return Ok(());
        }
        self.arm(true);
        let found = self.turn_all();
        let slept = match found {
            Ok(0) => self.sleep(),
            Ok(_) => Ok(()),
            Err(failure) => Err(failure),
        };
        self.arm(false);
        slept
    }

    /// After SIGINT: calls off what waits for a stream, and waits a while; says whether that was not enough.
    pub(super) fn are_stuck(&mut self) -> Result<bool, Failure> {
        if self.rounds.is_none() {
            for (index, ticket) in std::mem::take(&mut self.waiting).into_iter().flatten() {
                self.with(Way::Core(index), |core| core.cancel(ticket))?;
            }
        }
        let Some(left) = self.rounds.unwrap_or(CALLED_OFF_ROUNDS).checked_sub(1) else {
            return Ok(true);
        };
        // What goes on ending is not stuck, however much of it there is.
        let is_quiet = self.turn_all()? == 0;
        self.rounds = Some(if is_quiet { left } else { CALLED_OFF_ROUNDS });
        if is_quiet {
            std::thread::sleep(CALLED_OFF_ROUND);
        }
        Ok(false)
    }

    /// Is nothing under way?
    pub(super) fn are_idle(&self) -> bool {
        self.links.are_idle() && self.carriers.iter().all(|carrier| carrier.core.in_flight() == 0)
    }

    fn turn_all(&mut self) -> Result<usize, Failure> {
        let mut count = self.links.look()?;
        for carrier in &mut self.carriers {
            count += carrier.turn(Wait::No)?;
        }
        Ok(count)
    }

    fn arm(&mut self, arm: bool) {
        for carrier in &mut self.carriers {
            // A backend without such a descriptor completes everything inside a turn: it is never slept on.
            let _ = carrier.core.engine_mut().ready_fd(arm);
        }
    }

    /// Sleeps on all cores and links that have something under way.
    fn sleep(&mut self) -> Result<(), Failure> {
        let busy = self.carriers.iter_mut().filter(|carrier| carrier.core.in_flight() > 0);
        let ready = busy.filter_map(|carrier| carrier.core.engine_mut().ready_fd(true));
        let ready: Vec<_> = ready.collect();
        let mut watched: Vec<PollFd<'_>> = ready.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        watched.extend(self.links.events().map(|event| PollFd::new(event, PollFlags::IN)));
        if watched.is_empty() {
            return Ok(());
        }
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Failure::from_io("dd", &errno.into())),
        }
    }

    /// System calls made so far.
    pub(super) fn system_calls(&self) -> u64 {
        self.carriers
            .iter()
            .map(|carrier| carrier.core.stats().system_calls)
            .sum()
    }

    /// The backend's name, and whether it really keeps several requests in flight.
    pub(super) fn backend(&self) -> (&'static str, bool) {
        let Some(carrier) = self.carriers.first() else {
            return ("broker", true); // It does not say which one it has.
        };
        let explained = carrier.core.engine().explain();
        let blocking = |(name, had): &(&str, Result<(), String>)| *name == "asynchronous" && had.is_err();
        (explained.backend, !explained.features.iter().any(blocking))
    }

    /// Closes every volume cleanly, whatever happened; the first failure is told. Brokers are left.
    pub(super) fn close(self) -> Result<(), Failure> {
        self.links.close();
        let closed = self.carriers.into_iter().map(|carrier| {
            let closed = carrier.core.close();
            closed.map_err(|error| Failure::from_storage("dd", carrier.typed, &error))
        });
        closed.fold(Ok(()), Result::and)
    }
}

impl Carrier {
    fn turn(&mut self, wait: Wait) -> Result<usize, Failure> {
        let turned = self.core.turn(wait);
        turned.map_err(|error| Failure::from_storage("dd", self.typed.clone(), &error))
    }
}
