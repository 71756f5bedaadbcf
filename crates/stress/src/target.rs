//! How requests reach what they are made on: over a link, as any program's.
//!
//! ```text
//! file, device, segment    a Local of each lane's own: the core is driven by the lane's thread
//! the same segment         one Remote that all lanes share: a service thread has the volume (--service), or a broker (unix:SOCKET#NAME)
//! ```
//!
//! The link that is shared has one queue of outcomes for whoever takes from it, and tags that it only carries. So a request's tag says
//! whose it is, and a lane that takes another one's outcome puts it into that one's inbox. Nobody oversleeps: a turn ends
//! with every outcome that comes, whoever's it is, and at once when nothing is in flight.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baio::{
    Access, CacheOptions, CacheStats, Core, Durability, EngineOptions, Errno, Error, Fault, File, Identity, Link,
    LinkOptions, Local, Memory, Mode, Opened, Outcome, Region, Remote, SegmentOp, SegmentRequest, Stats, Wait,
};
use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_console::named::Volume;

use super::job::{Job, Lane, Mode as JobMode, Objects, SegmentPath};
use super::schedule::Piece;

/// The end of one request.
pub(super) struct Ended {
    pub(super) tag: u64,
    pub(super) memory: Memory,
    pub(super) result: Result<u32, Fault>,
}

/// The objects of one lane, in the lane's thread.
pub(crate) struct Target<L: Reach> {
    link: L,
    /// One an object; only those that the lane touches are open.
    objects: Vec<Option<Opened<L>>>,
    durability: Durability,
    is_cached: bool,
    lane: usize,
    /// Of all lanes, where they share the link.
    inboxes: Option<Arc<Inboxes>>,
    /// Taken before it was asked for.
    early: Option<Outcome>,
    command: &'static str,
    /// What a failure of all of it is about.
    whole: String,
}

/// Outcomes that one lane took and another one waits for.
type Inboxes = Vec<Mutex<VecDeque<Outcome>>>;

/// A kind of link, and how lanes come to it.
pub(crate) trait Reach: Link {
    /// What all lanes have together.
    type Shared: Send + Sync;

    /// Makes that, before any lane opens.
    fn share(job: &Job) -> Result<Self::Shared, Failure>;

    /// Opens everything that the lane of this number touches.
    fn open_lane(job: &Job, lane: usize, shared: &Self::Shared) -> Result<Target<Self>, Failure>;

    /// A lane needs the link no more.
    fn let_go(self) -> baio::Result<()>;

    /// Gives back what was shared, when every lane has closed.
    fn end(shared: Self::Shared) -> Result<(), Failure>;
}

impl Reach for Local {
    type Shared = ();

    fn share(_: &Job) -> Result<(), Failure> {
        Ok(())
    }

    fn open_lane(job: &Job, lane: usize, (): &()) -> Result<Target<Local>, Failure> {
        let of_lane = &job.lanes[lane];
        let (identity, whole) = match &job.objects {
            Objects::Files(_) => (Identity::effective(), "the engine"),
            Objects::Segment(segment) => (segment.identity, &*segment.typed),
        };
        let failed = |error: Error| Failure::from_storage(job.command, whole, &error);
        let link = Local::around(core(job, of_lane).map_err(failed)?, identity);
        let objects = match &job.objects {
            Objects::Files(_) => files(&link, job, of_lane),
            Objects::Segment(path) => segment(&link, job, path).map(|one| vec![Some(one)]).map_err(failed),
        };
        match objects {
            Ok(objects) => Ok(Target::new(job, link, objects, lane, None)),
            Err(failure) => {
                // The first failure is the one to tell.
                let _ = link.close();
                Err(failure)
            }
        }
    }

    fn let_go(self) -> baio::Result<()> {
        self.close()
    }

    fn end((): ()) -> Result<(), Failure> {
        Ok(())
    }
}

/// The service or the broker, and what lanes hold for each other.
pub(crate) struct Service {
    volume: Remote,
    segment: Opened<Remote>,
    inboxes: Arc<Inboxes>,
    command: &'static str,
    typed: String,
}

impl Reach for Remote {
    type Shared = Service;

    fn share(job: &Job) -> Result<Service, Failure> {
        let Objects::Segment(path) = &job.objects else {
            return Err(Failure::new(job.command, "EINVAL", "a plain file is no segment"));
        };
        let told = |error: Error| Failure::from_storage(job.command, &*path.typed, &error);
        let options = LinkOptions {
            identity: path.identity,
            engine: for_all(job),
            ..LinkOptions::default()
        };
        let volume = match &path.volume {
            Volume::Served(socket) => Remote::connect_with(socket, "", &options),
            Volume::Here(volume) => Remote::open_with(volume, &options),
        };
        let volume = volume.map_err(told)?;
        match segment(&volume, job, path) {
            Ok(segment) => Ok(Service {
                volume,
                segment,
                inboxes: Arc::new(job.lanes.iter().map(|_| Mutex::default()).collect()),
                command: job.command,
                typed: path.typed.clone(),
            }),
            Err(error) => {
                // The first failure is the one to tell.
                let _ = volume.close();
                Err(told(error))
            }
        }
    }

    fn open_lane(job: &Job, lane: usize, service: &Service) -> Result<Target<Remote>, Failure> {
        let objects = vec![Some(service.segment.clone())];
        let inboxes = Some(Arc::clone(&service.inboxes));
        Ok(Target::new(job, service.volume.clone(), objects, lane, inboxes))
    }

    fn let_go(self) -> baio::Result<()> {
        Ok(())
    }

    fn end(service: Service) -> Result<(), Failure> {
        // What a lane that failed left in an inbox holds memory of the arena.
        drop((service.inboxes, service.segment));
        let closed = service.volume.close();
        closed.map_err(|error| Failure::from_storage(service.command, service.typed, &error))
    }
}

impl<L: Reach> Target<L> {
    fn new(
        job: &Job,
        link: L,
        objects: Vec<Option<Opened<L>>>,
        lane: usize,
        inboxes: Option<Arc<Inboxes>>,
    ) -> Target<L> {
        Target {
            link,
            objects,
            durability: job.durability,
            is_cached: job.mode == JobMode::Cached,
            lane,
            inboxes,
            early: None,
            command: job.command,
            whole: match &job.objects {
                Objects::Files(_) => "the engine".to_owned(),
                Objects::Segment(segment) => segment.typed.clone(),
            },
        }
    }

    /// A buffer from the link's memory.
    fn buffer(&mut self, len: usize) -> Option<Memory> {
        self.link.buffer(len).ok().map(Memory::Own)
    }

    /// Queues a request; the loop never has more under way than the lane's depth.
    ///
    /// Gives the memory back when there is no slot, which is a mistake in the sizing, and when nothing is taken any more
    /// ([`refusal`](Target::refusal)).
    pub(super) fn start(&mut self, piece: &Piece, memory: Memory, tag: u64) -> Result<(), Memory> {
        let Some(Some(object)) = self.objects.get(piece.object) else {
            return Err(memory);
        };
        let offset = piece.offset;
        // Only writes can be durable.
        let (op, durability) = match piece.write {
            true => (SegmentOp::Write { offset }, self.durability),
            false => (SegmentOp::Read { offset }, Durability::None),
        };
        let mut request = object.request(op, memory); // Large: it is changed where it is.
        request.durability = durability;
        request.tag = address(self.lane, tag);
        object.submit(request).map(drop).map_err(|request| request.memory)
    }

    /// Why no request is taken any more; `None` as long as they are.
    pub(super) fn refusal(&self) -> Option<Fault> {
        self.link.refusal()
    }

    /// Submits what is queued and sleeps as long as `wait` allows.
    pub(super) fn turn(&mut self, wait: Wait) -> Result<(), Fault> {
        let wait = match wait {
            Wait::Until { .. } if self.is_cached => {
                // What the cache had needs no turn, and of what it has not, many requests may end with one read or write.
                if self.early.is_none() {
                    self.early = self.take();
                }
                match self.early {
                    Some(_) => Wait::No,
                    None => Wait::one(),
                }
            }
            wait => wait,
        };
        self.link.turn(wait).map(drop).map_err(Error::into_fault)
    }

    /// The next end that a turn has found.
    pub(super) fn next(&mut self) -> Option<Ended> {
        let outcome = match self.early.take() {
            Some(early) => early,
            None => self.take()?,
        };
        Some(Ended {
            tag: outcome.tag & u64::from(u32::MAX),
            memory: outcome.memory,
            result: outcome.result.map_err(Error::into_fault),
        })
    }

    /// One of this lane's.
    #[inline]
    fn take(&self) -> Option<Outcome> {
        match self.inboxes.as_ref().filter(|inboxes| inboxes.len() > 1) {
            Some(inboxes) => self.take_from(inboxes),
            None => self.link.next_outcome(),
        }
    }

    fn take_from(&self, inboxes: &Inboxes) -> Option<Outcome> {
        if let Some(own) = lock(&inboxes[self.lane]).pop_front() {
            return Some(own);
        }
        while let Some(outcome) = self.link.next_outcome() {
            let whose = lane_of(outcome.tag);
            if whose == self.lane {
                return Some(outcome);
            }
            if let Some(inbox) = inboxes.get(whose) {
                lock(inbox).push_back(outcome);
            }
        }
        None
    }

    /// Makes durable what was written to an object, while nothing else is under way.
    pub(super) fn sync(&mut self, object: usize, durability: Durability) -> Result<(), Fault> {
        let Some(Some(object)) = self.objects.get(object) else {
            return Ok(());
        };
        let request = SegmentRequest {
            durability,
            ..object.request(SegmentOp::Sync, Memory::None)
        };
        let synced = object.run(request).wait();
        synced.map(drop).map_err(|failed| failed.error.into_fault())
    }

    /// A core that is shared is told of by the first lane.
    fn tells(&self) -> bool {
        self.inboxes.is_none() || self.lane == 0
    }

    /// A broker tells nothing.
    pub(super) fn stats(&self) -> Stats {
        let told = self.tells().then(|| self.link.stats().wait().ok());
        told.flatten().unwrap_or_default()
    }

    /// Counters of our own cache, where requests go through it.
    pub(super) fn cache_stats(&self) -> Option<CacheStats> {
        let told = (self.is_cached && self.tells()).then(|| self.link.cache_stats().wait().ok());
        told.flatten().flatten()
    }

    /// A broker does not say which one it has.
    pub(super) fn backend(&self) -> &'static str {
        self.link.backend().wait().unwrap_or("broker")
    }

    /// Gives everything back.
    pub(super) fn close(self) -> Result<(), Failure> {
        drop((self.early, self.objects));
        let left = self.link.let_go();
        left.map_err(|error| Failure::from_storage(self.command, self.whole, &error))
    }
}

/// Opens the segment of a job.
fn segment<L: Link>(link: &L, job: &Job, path: &SegmentPath) -> baio::Result<Opened<L>> {
    let access = if job.writes() { Access::Write } else { Access::Read };
    let segment = link.open_segment_of(path.owner_uid, &path.name, access).wait()?;
    let mode = match job.mode {
        JobMode::Cached => Mode::Cached,
        _ => Mode::Direct,
    };
    Ok(Opened::clone(&segment.with_mode(mode)))
}

/// Opens what the lane touches.
fn files(link: &Local, job: &Job, lane: &Lane) -> Result<Vec<Option<Opened<Local>>>, Failure> {
    let Objects::Files(paths) = &job.objects else {
        return Ok(Vec::new());
    };
    let options = File::options().mode(match job.mode {
        JobMode::Direct => Mode::Direct,
        JobMode::Kernel => Mode::Kernel,
        JobMode::Uncached => Mode::Uncached,
        JobMode::Cached => Mode::Cached,
    });
    let options = if job.writes() { options.write() } else { options };
    let open = |(object, path): (usize, &std::path::PathBuf)| {
        let is_touched = lane.streams.iter().any(|stream| stream.object == object);
        let opened = is_touched.then(|| options.open(link, path).wait()).transpose();
        let opened = opened.map(|file| file.map(|file| Opened::clone(&file)));
        opened.map_err(|error| Failure::from_storage(job.command, path.display().to_string(), &error))
    };
    paths.iter().enumerate().map(open).collect()
}

/// A core as large as the lane, with the job's cache.
fn core(job: &Job, lane: &Lane) -> baio::Result<Core> {
    let is_cached = job.mode == JobMode::Cached;
    let mut config = config(job, lane);
    config.arena_bytes += if is_cached { job.cache_bytes } else { 0 };
    let mut core = match &job.objects {
        Objects::Files(_) => without_volume(job, &config)?,
        Objects::Segment(segment) => match &segment.volume {
            Volume::Served(path) | Volume::Here(path) if job.writes() => Core::open(path, &config)?,
            Volume::Served(path) | Volume::Here(path) => Core::open_to_read(path, &config)?,
        },
    };
    let cache = CacheOptions {
        bytes: job.cache_bytes,
        ..CacheOptions::default()
    };
    let given = if is_cached { core.use_cache(&cache) } else { Ok(()) };
    match given {
        Ok(()) => Ok(core),
        Err(error) => {
            // The first failure is the one to tell.
            let _ = core.close();
            Err(error)
        }
    }
}

/// For files. Locked memory that a ring has just given back counts for a moment longer; an ordinary user, who has
/// little of it, would then get a lesser backend than the one that made the file a moment ago.
fn without_volume(job: &Job, config: &EngineOptions) -> baio::Result<Core> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(20);
    let short = |started: &baio::Result<Core>| match started {
        Ok(core) => {
            let mut rejected = core.engine().rejected().iter();
            rejected.any(|rejected| rejected.reason.starts_with(Errno::ENOMEM.name()))
        }
        Err(error) => error.errno() == Some(Errno::ENOMEM),
    };
    let mut started = Core::new(config);
    for _ in 0..TRIES {
        if !short(&started) {
            break;
        }
        drop(started);
        std::thread::sleep(PAUSE);
        started = Core::new(config);
    }
    started.inspect(|core| tell_rejected(job, core))
}

/// Nothing falls back silently; once is enough for all lanes.
fn tell_rejected(job: &Job, core: &Core) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let rejected = core.engine().rejected();
    if rejected.is_empty() || TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    for rejected in rejected {
        let cure = rejected
            .cure
            .as_ref()
            .map_or_else(String::new, |cure| format!("; cure: {cure}"));
        diagnostics::say(format_args!(
            "baio: {}: not the {} backend: {}{cure}",
            job.command, rejected.backend, rejected.reason
        ));
    }
}

/// The loop's tags are places, of which there are fewer than 2^32.
fn address(lane: usize, tag: u64) -> u64 {
    (lane as u64) << 32 | tag
}

fn lane_of(tag: u64) -> usize {
    (tag >> 32) as usize
}

/// A thread that panicked has left nothing half-done behind an inbox.
fn lock(inbox: &Mutex<VecDeque<Outcome>>) -> MutexGuard<'_, VecDeque<Outcome>> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests of a volume itself, beside the lane's.
const SLOTS_SPARE: u32 = 128;

/// What opening a volume needs beside the buffers.
const ARENA_SPARE: usize = 4 << 20;

/// Memory of the arena is handed out in words of this many bytes, which no large buffer shares.
const ARENA_WORD: u64 = 256 << 10;

/// Arenas up to this size are registered with the kernel, which pins them.
const REGISTERED_MAX: usize = 64 << 20;

/// An engine as large as the lane.
fn config(job: &Job, lane: &Lane) -> EngineOptions {
    let arena_bytes = ARENA_SPARE
        + if job.shared_memory {
            0
        } else {
            arena_bytes(job.request_size, lane.depth)
        };
    EngineOptions {
        backend: job.backend,
        slots: lane.depth + SLOTS_SPARE,
        reserved_slots: SLOTS_SPARE / 2,
        arena_bytes,
        register_arena: arena_bytes <= REGISTERED_MAX,
        ..EngineOptions::default()
    }
}

fn arena_bytes(request_size: u64, depth: u32) -> usize {
    let each = request_size.next_multiple_of(4096);
    let words = if each > ARENA_WORD / 2 {
        u64::from(depth) * each.div_ceil(ARENA_WORD)
    } else {
        u64::from(depth).div_ceil(ARENA_WORD / each)
    };
    (words * ARENA_WORD) as usize
}

/// An engine as large as all lanes together.
fn for_all(job: &Job) -> EngineOptions {
    let all = Lane {
        depth: job.lanes.iter().map(|lane| lane.depth).sum(),
        batch: 1,
        streams: Vec::new(),
    };
    let each = |lane: &Lane| config(job, lane).arena_bytes - ARENA_SPARE;
    let arena_bytes = ARENA_SPARE + job.lanes.iter().map(each).sum::<usize>();
    EngineOptions {
        arena_bytes,
        register_arena: arena_bytes <= REGISTERED_MAX,
        ..config(job, &all)
    }
}

/// The buffers of a lane: from its arena, or spans of one shared mapping.
pub(super) fn buffers(job: &Job, lane: &Lane, target: &mut Target<impl Reach>) -> Result<Vec<Memory>, Failure> {
    let len = job.request_size as usize;
    let depth = lane.depth as usize;
    let refused = |said: String| {
        Failure::new(job.command, "ENOMEM", said)
            .on("the buffers")
            .needing(format!("{depth} buffers of {len} bytes"))
            .cured_by("choose a smaller depth or request size")
    };
    if !job.shared_memory {
        let each = (0..depth).map(|_| target.buffer(len));
        return each
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| refused("the arena has no room".to_owned()));
    }
    let step = len.next_multiple_of(4096) as u64;
    let region = Region::create(step as usize * depth).map_err(|error| refused(error.to_string()))?;
    (0..depth as u64)
        .map(|index| region.span(index * step, len as u32).map(Memory::Span))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| refused("the shared mapping has no room".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_of_this_size_has_the_buffers() {
        for (size, depth) in [
            (512, 3),
            (4096, 1),
            (4096, 65),
            (12_288, 100),
            (65_536, 9),
            (135_168, 5),
            (1 << 20, 7),
        ] {
            let arena = baio_engine::Arena::new(arena_bytes(size, depth)).unwrap();
            let buffers: Vec<_> = (0..depth).map_while(|_| arena.buffer(size as usize)).collect();
            assert_eq!(buffers.len(), depth as usize, "{size} {depth}");
        }
    }

    #[test]
    fn a_tag_says_whose_it_is() {
        let tag = address(255, 16_383);
        assert_eq!((lane_of(tag), tag & u64::from(u32::MAX)), (255, 16_383));
    }
}
