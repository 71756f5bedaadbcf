//! The core: one engine, one volume, driven by one thread.
//!
//! It is deterministic and holds no lock. Whoever turns it, drives it: requests and operations that are queued reach the
//! kernel in [`Core::turn`], completions are read there, and the state machines they belong to move on. A completion finds
//! whom it is for by its tag (`tags.rs`).
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | opening and closing, handles, turning |
//! | `requests.rs` | requests on handles: checked, sent to the engine or the cache or held back, answered |
//! | `waits.rs` | how long a turn sleeps; what waits here begins again, is cancelled, is overdue |
//! | `tags.rs` | whom a completion is for; those of the driver's own requests |
//! | `cached/` | requests through the page cache, and the cache's own |
//! | `pool.rs` | pages of the cache pinned and changed in place; hints |
//! | `lend.rs` | pages of the cache lent to whoever reads |
//! | `returns.rs` | pins and freezes that are let go on other threads |
//! | `defrag.rs` | packing a volume by moves |
//! | `resize.rs` | the volume itself: what is wrong with it, growing it |
//! | `logs.rs` | the logs: opened, asked, driven, wound down |
//! | `freeze.rs` | the device kept still for a copy of the volume |
//! | `moves.rs` | moves: begun, begun again after an open, stopped by a close |
//! | `commands.rs` | what is asked besides requests: an arm a verb |
//! | `operations.rs` | runs the operations, hands the table token round, keeps the answers |
//! | `segments.rs` | create, delete, open, list, quotas |
//! | `counters.rs` | all counters at one moment |
//! | `looks.rs` | looking at a volume from outside, beside its owner |
//!
//! Wakers are collected, never called, here: whoever turned the core wakes them when its borrow has ended.

pub(crate) mod cached;
pub(crate) mod commands;
pub(crate) mod counters;
mod defrag;
mod drivers;
mod freeze;
mod gates;
mod lend;
pub(crate) mod logs;
pub(crate) mod looks;
mod moves;
mod operations;
pub(crate) mod pool;
mod requests;
mod resize;
mod returns;
mod segments;
mod tags;
mod token;
mod waits;

#[cfg(test)]
mod holds_tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use baio_engine::{Buffer, Completion, Config, Engine, Errno, File, Kind, Open, Stats, Wait, path_name};

use self::operations::Running;
pub use self::operations::{OperationId, Watch};
pub use self::returns::{HeldFreeze, HeldPage};
use self::tags::Recipient;
use crate::error::{Error, Fault, Result};
use crate::holds::Holds;
use crate::identity::{Access, Identity, Sight};
use crate::object::{Objects, Target};
use crate::operation::Event;
use crate::operation::claims::Claims;
use crate::operation::freeze::Freeze;
use crate::request::{Handle, Requests};
use crate::slot_map::{SlotKey, SlotMap};
use crate::volume::accounts::Account;
use crate::volume::device::Device;
use crate::volume::inspect::{self, SegmentInfo, VolumeInfo, VolumeView};
use crate::volume::lock::Hold;
use crate::volume::{Volume, format};

/// One engine and at most one volume.
pub struct Core {
    // Before the volume: dropping the engine waits until the kernel has let go of everything.
    engine: Engine,
    volume: Option<Volume>,
    objects: Objects,
    requests: Requests,
    cached: Option<Box<cached::PageCache>>,
    holds: Holds,
    running: SlotMap<Running>,
    /// Which operations have the table token, and who waits for it.
    token: token::Token,
    /// Operations that go on at the next turn.
    next_turn: Vec<SlotKey>,
    /// Who is changing which segment, and who waits for the end of that.
    claims: Claims,
    waiting_for_claim: Vec<u32>,
    returns: Arc<returns::Returns>,
    /// Operations that wait for a thread of theirs.
    with_threads: Vec<SlotKey>,
    /// Who keeps the device still.
    freeze: Freeze,
    /// Completions of requests that are not the core's own.
    foreign: VecDeque<Completion>,
    fired: Vec<Waker>,
    /// Operations' wakers that nobody needs any more; those of requests are in their table.
    displaced: Vec<Waker>,
    /// So many of those kept a turn from sleeping already.
    fired_known: usize,
    logs: logs::Logs,
    /// Something has ended since the last turn that nobody was told of: nobody sleeps over it.
    is_told: bool,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Core({})", self.volume_name())
    }
}

/// Bytes of the cache's own I/O that a turn hands on at least before it may leave the rest to the next.
const PART_BYTES: u64 = 64 << 10;

impl Core {
    /// A core without a volume, for plain files.
    ///
    /// # Errors
    /// When no backend can be started.
    pub fn new(config: &Config) -> Result<Core> {
        Ok(Core::around(started(config)?, None, config))
    }

    /// Opens the volume at `path` to read and write it; this process then owns it.
    ///
    /// # Errors
    /// In use by another process, not a volume, a newer one, damaged beyond repair; or what the system said.
    pub fn open(path: &Path, config: &Config) -> Result<Core> {
        let engine = started(config)?;
        Core::open_on(engine, Device::open(path, Hold::Exclusive)?, config)
    }

    /// Opens the volume at `path` to read segments of it: beside other readers, on read-only file systems and full hosts. It
    /// writes nothing: what a crash left is decided in memory, as [`Core::inspect`] decides it, and stays for the next open to
    /// write. What would change anything is refused with `EROFS`.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_to_read(path: &Path, config: &Config) -> Result<Core> {
        let engine = started(config)?;
        Core::open_to_read_on(engine, Device::open(path, Hold::Shared)?, config)
    }

    /// [`Core::open`] on any device that the engine can reach: a file that is open already, a disk of the simulation, a device of your
    /// own ([`baio_engine::Device`]). It is locked as a path's would be, or by its own lock, from now on until the volume is closed;
    /// [`Device::unlocked`] leaves that to you.
    ///
    /// ```
    /// use baio_engine::{Config, Engine, File, sim::{Disk, Sim}};
    /// use baio_storage::{Core, Format, Identity, format_on};
    ///
    /// let config = Config::default();
    /// let mut engine = Engine::simulated(Sim::new(1)?, &config)?;
    /// let disk = File::simulated(&Disk::new(8 << 20), "disk");
    /// format_on(&mut engine, &disk, &Format::default())?;
    /// let mut core = Core::open_on(engine, &disk, &config)?;
    /// assert!(core.list(Identity::new(0, 0))?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_on(mut engine: Engine, device: impl Into<Device>, config: &Config) -> Result<Core> {
        let volume = opened(&mut engine, device.into(), Hold::Exclusive, Volume::open)?;
        let mut core = Core::around(engine, Some(volume), config);
        core.resume_moves();
        Ok(core)
    }

    /// [`Core::open_to_read`] on any device, as [`Core::open_on`] opens it.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_to_read_on(mut engine: Engine, device: impl Into<Device>, config: &Config) -> Result<Core> {
        let volume = opened(&mut engine, device.into(), Hold::Shared, Volume::open_to_read)?;
        Ok(Core::around(engine, Some(volume), config))
    }

    fn around(engine: Engine, volume: Option<Volume>, config: &Config) -> Core {
        let id = baio_words::next_number();
        let returns = returns::Returns::new(engine.doorbell());
        let logs = logs::Logs::new(engine.doorbell());
        Core {
            engine,
            volume,
            objects: Objects::new(id),
            requests: Requests::new(config.slots, id),
            cached: None,
            holds: Holds::default(),
            running: SlotMap::default(),
            token: token::Token::default(),
            next_turn: Vec::new(),
            claims: Claims::default(),
            waiting_for_claim: Vec::new(),
            returns,
            with_threads: Vec::new(),
            freeze: Freeze::default(),
            foreign: VecDeque::new(),
            fired: Vec::new(),
            displaced: Vec::new(),
            fired_known: 0,
            logs,
            is_told: false,
        }
    }

    /// Formats the volume file at `path`, which is made if it is missing and a size is given.
    ///
    /// # Errors
    /// Refuses what is not empty, unless forced; nothing is changed then. Else what the system said.
    pub fn format(path: &Path, options: &format::Format) -> Result<VolumeInfo> {
        let mut engine = Core::plain_engine()?;
        let superblock = format::format(&mut engine, path, options)?;
        let free = crate::segment::free_set::FreeSet::new(superblock.geometry().data_blocks, 0)
            .map_err(|error| Error::new("format", path_name(path), Fault::Corrupt(error.to_string())))?;
        let device_bytes = options.size_bytes.unwrap_or_else(|| superblock.layout().end());
        Ok(inspect::volume_info(&superblock, device_bytes, Some(&free), 0))
    }

    /// What a volume holds, as far as `who` may see it; writes nothing.
    ///
    /// # Errors
    /// In use by another process, not a volume, damaged.
    pub fn inspect(path: &Path, who: Identity) -> Result<(VolumeInfo, Vec<SegmentInfo>)> {
        inspect::inspect(&mut Core::plain_engine()?, path, who)
    }

    /// A volume as `who` may see it, with what an open would find wrong; writes nothing.
    ///
    /// # Errors
    /// As [`Core::inspect`].
    pub fn inspect_view(path: &Path, who: Identity) -> Result<VolumeView> {
        inspect::inspect_view(&mut Core::plain_engine()?, path, who)
    }

    /// A volume by itself, without its segments; writes nothing, and after a clean close reads no inode.
    ///
    /// # Errors
    /// As [`Core::inspect`].
    pub fn inspect_volume(path: &Path) -> Result<VolumeInfo> {
        inspect::inspect_volume(&mut Core::plain_engine()?, path)
    }

    /// One segment of a volume; writes nothing, and reads one bucket of the inode table as a rule.
    ///
    /// # Errors
    /// As [`Core::inspect`], and when there is none or `who` may not see it.
    pub fn inspect_segment(path: &Path, who: Identity, owner_uid: u32, name: &str) -> Result<SegmentInfo> {
        inspect::inspect_segment(&mut Core::plain_engine()?, path, who, owner_uid, name)
    }

    /// What an owner holds and may hold, in blocks and segments, and how many bytes a block has; writes nothing. Owners see
    /// their own.
    ///
    /// # Errors
    /// As [`Core::inspect`], and `Access`.
    pub fn inspect_quota(path: &Path, who: Identity, uid: u32) -> Result<(Account, u32)> {
        inspect::inspect_quota(&mut Core::plain_engine()?, path, who, uid)
    }

    fn plain_engine() -> Result<Engine> {
        let config = Config {
            slots: 64,
            arena_bytes: 8 << 20,
            ..Config::default()
        };
        started(&config)
    }

    /// The path of the volume, for messages.
    #[must_use]
    pub fn volume_name(&self) -> String {
        self.volume
            .as_ref()
            .map_or_else(|| "plain files".to_owned(), |volume| volume.device.name().to_owned())
    }

    /// The core's number in this process, which its handles carry.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.objects.core()
    }

    /// The engine: buffers, counters, what was chosen.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine, for its event fd and doorbell; and for requests of the driver's own, under a tag of [`Core::FOREIGN_TAGS`].
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

    /// The volume as it is now, as `who` may see it: what a link answers.
    ///
    /// # Errors
    /// When the core has none.
    pub fn volume_view(&self, who: Identity) -> Result<VolumeView> {
        let volume = self.volume_or("stat")?;
        let (own, sight) = (volume.accounts.get(who.uid), volume.device.sight(who));
        Ok(self.info_for(sight)?.seen_with(sight, own))
    }

    /// How much of the volume `who` may see; of no volume, nothing but its own. It costs nothing, whatever the volume's size.
    #[must_use]
    pub fn sight(&self, who: Identity) -> Sight {
        self.volume
            .as_ref()
            .map_or(Sight::Own, |volume| volume.device.sight(who))
    }

    /// The volume's unit of allocation in bytes.
    ///
    /// # Errors
    /// When the core has no volume.
    pub fn block_size(&self) -> Result<u32> {
        Ok(self.volume_or("stat")?.block_size())
    }

    /// Which opening of which volume this is: its uuid, and the epoch, which each opening to write raises before it serves. Two that
    /// differ in the epoch were not open at one time.
    ///
    /// # Errors
    /// When the core has no volume.
    pub fn opening(&self) -> Result<([u8; 16], u64)> {
        let superblock = &self.volume_or("stat")?.superblock;
        Ok((superblock.uuid, superblock.epoch))
    }

    /// The volume as it is now, for whoever holds the core.
    ///
    /// # Errors
    /// When the core has none.
    pub fn volume_info(&self) -> Result<VolumeInfo> {
        self.info_for(Sight::Whole)
    }

    /// Whoever sees its own is not shown what is free: to find that out takes a walk through the bitmap, 10 ms for 4 TiB, and anybody may ask.
    fn info_for(&self, sight: Sight) -> Result<VolumeInfo> {
        let volume = self.volume_or("stat")?;
        let mut info = inspect::volume_info(
            &volume.superblock,
            volume.device.size()?,
            (sight == Sight::Whole).then_some(&volume.free),
            volume.accounts.segments(),
        );
        info.warnings.clone_from(&volume.warnings);
        Ok(info)
    }

    /// Opens a plain file or device beside the volume.
    ///
    /// # Errors
    /// What the system said.
    pub fn open_file(&mut self, path: &Path, options: &Open) -> Result<Handle> {
        let name = path_name(path);
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
        let object = self.objects.get(handle).filter(|object| object.serves())?;
        match &object.target {
            Target::Plain(file) => Some(file),
            Target::Segment { .. } => None,
        }
    }

    /// Size in bytes of what is behind a handle: of a file that is cached where cached reads end, with all that was written, also what
    /// the device does not have yet, and without what others did to the file meanwhile. Asks the system, and waits for no request.
    ///
    /// # Errors
    /// `Stale`; or what the system said.
    pub fn size(&self, handle: Handle) -> Result<u64> {
        let object = self.objects.get(handle).filter(|object| object.serves());
        let object = object.ok_or_else(|| stale("measure"))?;
        match &object.target {
            Target::Segment { size, .. } => Ok(*size),
            Target::Plain(file) => {
                let size = self.plain_size(handle, file);
                size.map_err(|errno| Error::new("measure", &object.name, errno))
            }
        }
    }

    fn plain_size(&self, handle: Handle, file: &File) -> std::result::Result<u64, Errno> {
        let size = file.size()?;
        let cached = self.cached.as_ref().filter(|_| file.kind() == Kind::Regular);
        let cached = cached.and_then(|cached| cached.size_of(&self.objects, handle));
        // As cached reads see it, whatever others have done to the file meanwhile.
        Ok(cached.unwrap_or(size))
    }

    /// Closes a handle. What is under way on it ends. With the last one on a plain file the page cache forgets it, as soon as what
    /// was changed is safe; a log that was opened by it is wound down.
    pub fn close_handle(&mut self, handle: Handle) {
        self.end_logs_by(handle);
        self.keeper_gone(handle);
        if let Some(file) = self.objects.close(handle) {
            self.engine.detach(&file);
            self.file_closed(&file);
        }
    }

    /// Submits what is queued, sleeps as long as `wait` allows, reads what has completed and moves its owners on. Returns
    /// how many have ended: completions of the engine, and requests that were overdue here. It may come back earlier, with fewer: when a
    /// request that the engine does not have is overdue, or waits for another that has ended; with a page cache, when something has grown so old that the cleaner
    /// writes it in the next turn.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn turn(&mut self, wait: Wait) -> Result<usize> {
        self.take_returned();
        let wait = match self.before_sleep() {
            true => Wait::No,
            false => self.sleep_for(wait),
        };
        // What was appended since is submitted by the next turn, which comes at once.
        let wait = if wait == Wait::No || self.logs.fall_asleep() {
            wait
        } else {
            Wait::No
        };
        let turned = self.engine.turn(wait);
        self.logs.wake_up();
        turned.map_err(|error| Error::new("turn", self.volume_name(), error))?;
        let (mut count, mut bytes) = (0, 0);
        // Who waits for one outcome gets some before the bytes of all that the cache has read are copied, so that the device has its
        // next requests meanwhile. Direct requests copy nothing and are handed on together. Not without a wait: outside loops
        // would sleep over the rest.
        let part = match wait {
            Wait::Until { count: 1, .. } if self.cached.is_some() => PART_BYTES,
            _ => u64::MAX,
        };
        while let Some(completion) = self.engine.next_completion() {
            count += 1;
            bytes += self.cached_bytes(&completion);
            self.dispatch(completion);
            if bytes >= part {
                self.take_done();
                if self.requests.has_finished() {
                    break;
                }
            }
        }
        if count > 0 && self.cached.is_some() {
            self.serve_cache();
            self.forget_left();
        }
        self.end_log_turn();
        count += self.end_overdue();
        self.begin_again();
        Ok(count)
    }

    fn dispatch(&mut self, completion: Completion) {
        match Recipient::of(completion.tag) {
            Some(Recipient::Request(ticket)) => return self.request_ended(ticket, completion),
            Some(operation @ Recipient::Operation { .. }) => {
                self.tell_operation(operation, Event::Completed(completion));
            }
            Some(Recipient::Driver) => self.foreign.push_back(completion),
            None => {}
        }
        self.requests.slot_came_free(); // With none of its places.
    }

    /// Wakers of what has ended; to be woken when the core is not borrowed any more.
    pub fn take_fired(&mut self, into: &mut Vec<Waker>) {
        into.append(&mut self.fired);
        self.fired_known = 0;
    }

    /// Takes the wakers of all that is under way: for whoever stops driving the core.
    pub fn take_wakers(&mut self, into: &mut Vec<Waker>) {
        self.requests.take_wakers(into);
        self.take_operation_wakers(into);
        self.take_log_wakers(into);
    }

    /// A waker that nobody needs any more, of whoever drives the core; see [`Core::take_displaced`].
    pub fn displace(&mut self, waker: Option<Waker>) {
        self.displaced.extend(waker);
    }

    /// Wakers that nobody needs any more; to be dropped when the core is not borrowed any more, because that may run
    /// anybody's code.
    pub fn take_displaced(&mut self, into: &mut Vec<Waker>) {
        self.requests.take_displaced(into);
        into.append(&mut self.displaced);
    }

    /// Requests that the engine or the page cache has, that wait here, or that have ended in the engine and are read by the next turn;
    /// and operations that go on at the next turn, when the device is still, or when a thread of theirs has ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let waiting = self.requests.waiting() + self.requests.following();
        let operations = self.operations_in_flight();
        let logs = self.logs.under_way();
        self.engine.in_flight() + self.engine.completed() + self.in_cache().0 + waiting + operations + logs
    }

    /// Has anything ended that [`Core::next_outcome`] would give?
    #[must_use]
    pub fn has_outcomes(&self) -> bool {
        self.requests.has_finished()
    }

    /// Is there anything that a turn would find or submit without waiting?
    #[must_use]
    pub fn has_news(&self) -> bool {
        let news = self.is_told || self.requests.is_woken() || !self.next_turn.is_empty() || self.logs.want_io();
        news || self.engine.queued() + self.engine.completed() > 0 || self.in_cache().1 || self.is_still_at_last()
    }

    /// Writes back what is cached, ends everything under way (moves stop at their next mark), notes a clean close and gives the volume back.
    ///
    /// # Errors
    /// What the system said; the volume is then healed by the next open.
    pub fn close(mut self) -> Result<()> {
        // First, because a move that waits for memory may keep the cache from a chunk.
        self.wind_down();
        let written_back = self.sync_cache();
        // What the cache does for nobody is not in flight between its flush's end and the next.
        while self.in_flight() > 0 || self.in_cache().1 {
            self.turn(Wait::one())?;
        }
        match self.volume.take() {
            Some(volume) => volume.close(&mut self.engine).and(written_back),
            None => written_back,
        }
    }

    fn operations_in_flight(&self) -> usize {
        self.next_turn.len() + self.with_threads.len() + usize::from(self.awaits_stillness())
    }

    fn volume_or(&self, operation: &'static str) -> Result<&Volume> {
        self.volume.as_ref().ok_or_else(|| no_volume(operation))
    }

    /// How long a caller may be kept waiting by [`Core`]'s drop when a device is stuck.
    pub const DROP_PATIENCE: Duration = Duration::from_secs(30);
}

impl Drop for Core {
    /// Without [`Core::close`] the volume stays marked as in use, and the next open heals it. The lock is given back when
    /// the kernel has let go of everything; a forked child's copy gives nothing back. Who was to be woken is.
    fn drop(&mut self) {
        for waker in self.fired.drain(..) {
            // Anybody's code: the core goes all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        let stuck = self.engine.shutdown(Core::DROP_PATIENCE);
        if let Some(volume) = &mut self.volume {
            match stuck {
                0 => volume.device.close(&mut self.engine),
                _ => volume.device.stays_locked(&mut self.engine),
            }
        }
    }
}

fn started(config: &Config) -> Result<Engine> {
    Engine::new(config).map_err(|error| Error::new("start", "the engine", error))
}

/// The volume on a device, which nobody else has then.
fn opened(
    engine: &mut Engine,
    mut device: Device,
    hold: Hold,
    open: fn(&mut Engine, Device) -> Result<Volume>,
) -> Result<Volume> {
    device.take(hold)?;
    let file = device.file.clone();
    open(engine, device).inspect_err(|_| engine.detach(&file))
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
