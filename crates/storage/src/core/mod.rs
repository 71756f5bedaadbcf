//! The core: one engine, one volume, driven by one thread.
//!
//! It is two halves that know nothing of each other (decision 0034): the *table*, with the volume's metadata and the operations on it, and a
//! *lane*, with the requests and all that serves them. `impl Core` is what whoever holds a core may ask; `impl Lane` and `impl Table`
//! are what each half does.
//!
//! It is deterministic and holds no lock. Whoever turns it, drives it: requests and operations that are queued reach the
//! kernel in [`Core::turn`], completions are read there, and the state machines they belong to move on. A completion finds
//! whom it is for by its tag (`tags.rs`).
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | opening and closing, handles, turning |
//! | `table/` | the volume and the operations on it: one half of a core |
//! | `lane/` | the requests and what serves them: the other half. What passes between the two is [`crate::crossing`] |
//! | `requests.rs` | requests on handles: sent to the engine or the cache or held back, answered |
//! | `ways.rs` | where they go: checked against their object, translated for the engine |
//! | `waits.rs` | how long a turn sleeps; what waits here begins again, is cancelled, is overdue |
//! | `tags.rs` | whom a completion is for; those of the driver's own requests |
//! | `lane/cached/` | requests through the page cache, and the cache's own |
//! | `pool.rs` | pages of the cache pinned and changed in place; hints |
//! | `lend.rs` | pages of the cache lent to whoever reads |
//! | `lane/returns.rs` | pins and freezes that are let go on other threads |
//! | `defrag.rs` | packing a volume by moves |
//! | `resize.rs` | the volume itself: what is wrong with it, growing it |
//! | `lane/logs.rs` | the logs: opened, asked, driven, wound down |
//! | `table/freeze.rs` | the device kept still for a copy of the volume |
//! | `moves.rs` | moves: begun, begun again after an open, stopped by a close |
//! | `commands.rs` | what is asked besides requests: an arm a verb |
//! | `table/operations.rs` | runs the operations, hands the table token round, keeps the answers |
//! | `segments.rs` | create, delete, open, list, quotas |
//! | `counters.rs` | all counters at one moment |
//! | `looks.rs` | looking at a volume from outside, beside its owner |
//!
//! Wakers are collected, never called, here: whoever turned the core wakes them when its borrow has ended.

pub(crate) mod commands;
pub(crate) mod counters;
mod defrag;
mod drivers;
mod gates;
pub(crate) mod lane;
mod lend;
pub(crate) mod looks;
mod moves;
pub(crate) mod pool;
mod requests;
mod resize;
mod segments;
mod table;
mod tags;
mod waits;
mod ways;
mod wrong;

#[cfg(test)]
mod holds_tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::task::Waker;
use std::time::Duration;

use baio_engine::{Buffer, Completion, Engine, EngineOptions, File, Open, Stats, Wait, path_name};

use self::lane::Lane;
pub use self::lane::returns::{HeldFreeze, HeldPage};
use self::table::Table;
pub use self::table::operations::{OperationId, Watch};
use self::tags::Recipient;
use self::wrong::no_volume;
use crate::error::{Error, Fault, Result};
use crate::identity::{Access, Identity, Sight};
use crate::object::Target;
use crate::operation::Event;
use crate::request::Handle;
use crate::volume::accounts::Account;
use crate::volume::device::Device;
use crate::volume::inspect::{self, SegmentInfo, VolumeInfo, VolumeView};
use crate::volume::lock::Hold;
use crate::volume::{Volume, format};

/// One engine and at most one volume.
pub struct Core {
    // Before the volume: dropping the engine waits until the kernel has let go of everything.
    lane: Lane,
    table: Table,
    /// So many wakers kept a turn from sleeping already.
    fired_known: usize,
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
    pub fn new(config: &EngineOptions) -> Result<Core> {
        Ok(Core::around(started(config)?, None, config))
    }

    /// Opens the volume at `path` to read and write it; this process then owns it.
    ///
    /// # Errors
    /// In use by another process, not a volume, a newer one, damaged beyond repair; or what the system said.
    pub fn open(path: &Path, config: &EngineOptions) -> Result<Core> {
        let engine = started(config)?;
        Core::open_on(engine, Device::open(path, Hold::Exclusive)?, config)
    }

    /// Opens the volume at `path` to read segments of it: beside other readers, on read-only file systems and full hosts. It
    /// writes nothing: what a crash left is decided in memory, as [`Core::inspect`] decides it, and stays for the next open to
    /// write. What would change anything is refused with `EROFS`.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_to_read(path: &Path, config: &EngineOptions) -> Result<Core> {
        let engine = started(config)?;
        Core::open_to_read_on(engine, Device::open(path, Hold::Shared)?, config)
    }

    /// [`Core::open`] on any device that the engine can reach: a file that is open already, a disk of the simulation, a device of your
    /// own ([`baio_engine::Device`]). It is locked as a path's would be, or by its own lock, from now on until the volume is closed;
    /// [`Device::unlocked`] leaves that to you.
    ///
    /// ```
    /// use baio_engine::{EngineOptions, Engine, File, sim::{Disk, Sim}};
    /// use baio_storage::{Core, FormatOptions, Identity, format_on};
    ///
    /// let config = EngineOptions::default();
    /// let mut engine = Engine::simulated(Sim::new(1)?, &config)?;
    /// let disk = File::simulated(&Disk::new(8 << 20), "disk");
    /// format_on(&mut engine, &disk, &FormatOptions::default())?;
    /// let mut core = Core::open_on(engine, &disk, &config)?;
    /// assert!(core.list(Identity::new(0, 0))?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_on(mut engine: Engine, device: impl Into<Device>, config: &EngineOptions) -> Result<Core> {
        let volume = opened(&mut engine, device.into(), Hold::Exclusive, Volume::open)?;
        let mut core = Core::around(engine, Some(volume), config);
        core.resume_moves();
        Ok(core)
    }

    /// [`Core::open_to_read`] on any device, as [`Core::open_on`] opens it.
    ///
    /// # Errors
    /// As [`Core::open`].
    pub fn open_to_read_on(mut engine: Engine, device: impl Into<Device>, config: &EngineOptions) -> Result<Core> {
        let volume = opened(&mut engine, device.into(), Hold::Shared, Volume::open_to_read)?;
        Ok(Core::around(engine, Some(volume), config))
    }

    fn around(engine: Engine, volume: Option<Volume>, config: &EngineOptions) -> Core {
        Core {
            lane: Lane::new(engine, volume.as_ref(), config),
            table: Table::new(volume),
            fired_known: 0,
        }
    }

    /// Formats the volume file at `path`, which is made if it is missing and a size is given.
    ///
    /// # Errors
    /// Refuses what is not empty, unless forced; nothing is changed then. Else what the system said.
    pub fn format(path: &Path, options: &format::FormatOptions) -> Result<VolumeInfo> {
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
    /// As [`Core::inspect`], and if it does not exist or `who` may not see it.
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
        let config = EngineOptions {
            slots: 64,
            arena_bytes: 8 << 20,
            ..EngineOptions::default()
        };
        started(&config)
    }

    /// The path of the volume, for messages.
    #[must_use]
    pub fn volume_name(&self) -> String {
        self.table
            .volume
            .as_ref()
            .map_or_else(|| "plain files".to_owned(), |volume| volume.device.name().to_owned())
    }

    /// The core's number in this process, which its handles carry.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.lane.number()
    }

    /// The engine: buffers, counters, what was chosen.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.lane.engine
    }

    /// The engine, for its event fd and doorbell; and for requests of the driver's own, under a tag of [`Core::FOREIGN_TAGS`].
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.lane.engine
    }

    /// Counters of the engine.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.lane.engine.stats()
    }

    /// A buffer of `len` bytes from the core's arena: requests on it move without a copy.
    ///
    /// # Errors
    /// `NoMemory` when the arena is used up.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        self.lane.engine.buffer(len).ok_or_else(|| {
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
        self.table
            .volume
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
        self.lane.engine.attach(&file);
        self.lane
            .objects
            .add(file.name().to_owned(), access, Target::Plain(file))
    }

    /// The file behind a handle on a plain file.
    #[must_use]
    pub fn file(&self, handle: Handle) -> Option<&File> {
        self.lane.file(handle)
    }

    /// Size in bytes of what is behind a handle: of a file that is cached where cached reads end, with all that was written, also what
    /// the device does not have yet, and without what others did to the file meanwhile. Asks the system, and waits for no request.
    ///
    /// # Errors
    /// `Stale`; or what the system said.
    pub fn size(&self, handle: Handle) -> Result<u64> {
        self.lane.size(handle)
    }

    /// Closes a handle. What is under way on it ends. With the last one on a plain file the page cache forgets it, as soon as what
    /// was changed is safe; a log that was opened by it is wound down.
    pub fn close_handle(&mut self, handle: Handle) {
        self.lane.close_handle(handle);
    }

    /// Submits what is queued, sleeps as long as `wait` allows, reads what has completed and moves its owners on. Returns
    /// how many have ended: completions of the engine, and requests that were overdue here. It may come back earlier, with fewer: when a
    /// request that the engine does not have is overdue, or waits for another that has ended; with a page cache, when something has grown so old that the cleaner
    /// writes it in the next turn.
    ///
    /// # Errors
    /// The backend itself is broken.
    pub fn turn(&mut self, wait: Wait) -> Result<usize> {
        self.lane.take_returned();
        let wait = match self.before_sleep() {
            true => Wait::No,
            false => self.sleep_for(wait),
        };
        // What was appended since is submitted by the next turn, which comes at once.
        let wait = if wait == Wait::No || self.lane.logs.fall_asleep() {
            wait
        } else {
            Wait::No
        };
        let turned = self.lane.engine.turn(wait);
        self.lane.logs.wake_up();
        turned.map_err(|error| Error::new("turn", self.volume_name(), error))?;
        let (mut count, mut bytes) = (0, 0);
        // Who waits for one outcome gets some before the bytes of all that the cache has read are copied, so that the device has its
        // next requests meanwhile. Direct requests copy nothing and are handed on together. Not without a wait: outside loops
        // would sleep over the rest.
        let part = match wait {
            Wait::Until { count: 1, .. } if self.lane.cached.is_some() => PART_BYTES,
            _ => u64::MAX,
        };
        while let Some(completion) = self.lane.engine.next_completion() {
            count += 1;
            bytes += self.lane.cached_bytes(&completion);
            self.dispatch(completion);
            self.pass_on();
            if bytes >= part {
                self.lane.take_done();
                if self.lane.requests.has_finished() {
                    break;
                }
            }
        }
        if count > 0 && self.lane.cached.is_some() {
            self.lane.serve_cache();
            self.lane.forget_left();
        }
        self.lane.end_log_turn();
        count += self.lane.end_overdue();
        self.pass_on();
        self.lane.begin_again();
        self.pass_on();
        Ok(count)
    }

    /// Hands on what the lane has told the table. Says whether there was anything: mostly not, and it is asked several times a turn.
    #[inline]
    fn pass_on(&mut self) -> bool {
        !self.lane.to_table.is_empty() && self.pass_all_on()
    }

    fn pass_all_on(&mut self) -> bool {
        while let Some(message) = self.lane.to_table.pop_front() {
            self.table.hear(&mut self.lane, message);
        }
        true
    }

    fn dispatch(&mut self, completion: Completion) {
        match Recipient::of(completion.tag) {
            Some(Recipient::Request(ticket)) => return self.lane.request_ended(ticket, completion),
            Some(operation @ Recipient::Operation { .. }) => {
                self.table
                    .tell_operation(&mut self.lane, operation, Event::Completed(completion));
            }
            Some(Recipient::Driver) => self.lane.foreign.push_back(completion),
            None => {}
        }
        self.lane.requests.slot_came_free(); // With none of its places.
    }

    /// Is there anything for [`Core::take_fired`], [`Core::take_displaced`] or [`Core::next_foreign`] to take? Mostly not.
    #[must_use]
    pub fn leaves_something(&self) -> bool {
        let (lane, table) = (&self.lane, &self.table);
        !(lane.fired.is_empty() && table.fired.is_empty() && lane.displaced.is_empty() && lane.foreign.is_empty())
            || lane.requests.has_displaced()
    }

    /// Wakers of what has ended; to be woken when the core is not borrowed any more.
    pub fn take_fired(&mut self, into: &mut Vec<Waker>) {
        into.append(&mut self.lane.fired);
        into.append(&mut self.table.fired);
        self.fired_known = 0;
    }

    /// Takes the wakers of all that is under way: for whoever stops driving the core.
    pub fn take_wakers(&mut self, into: &mut Vec<Waker>) {
        self.lane.requests.take_wakers(into);
        self.table.take_operation_wakers(into);
        self.lane.take_log_wakers(into);
    }

    /// A waker that nobody needs any more, of whoever drives the core; see [`Core::take_displaced`].
    pub fn displace(&mut self, waker: Option<Waker>) {
        self.lane.displaced.extend(waker);
    }

    /// Wakers that nobody needs any more; to be dropped when the core is not borrowed any more, because that may run
    /// anybody's code.
    pub fn take_displaced(&mut self, into: &mut Vec<Waker>) {
        self.lane.requests.take_displaced(into);
        into.append(&mut self.lane.displaced);
    }

    /// Requests that the engine or the page cache has, that wait here, or that have ended in the engine and are read by the next turn;
    /// and operations that go on at the next turn, when the device is still, or when a thread of theirs has ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.lane.in_flight() + self.table.in_flight()
    }

    /// Has anything ended that [`Core::next_outcome`] would give?
    #[must_use]
    pub fn has_outcomes(&self) -> bool {
        self.lane.requests.has_finished()
    }

    /// Is there anything that a turn would find or submit without waiting?
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.lane.has_news() || self.table.has_news()
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
        while self.in_flight() > 0 || self.lane.in_cache().1 {
            self.turn(Wait::one())?;
        }
        match self.table.volume.take() {
            Some(volume) => volume.close(&mut self.lane.engine).and(written_back),
            None => written_back,
        }
    }

    fn volume_or(&self, operation: &'static str) -> Result<&Volume> {
        self.table.volume.as_ref().ok_or_else(|| no_volume(operation))
    }

    /// How long a caller may be kept waiting by [`Core`]'s drop when a device is stuck.
    pub const DROP_PATIENCE: Duration = Duration::from_secs(30);
}

impl Drop for Core {
    /// Without [`Core::close`] the volume stays marked as in use, and the next open heals it. The lock is given back when
    /// the kernel has let go of everything; a forked child's copy gives nothing back. Who was to be woken is.
    fn drop(&mut self) {
        for waker in self.lane.fired.drain(..).chain(self.table.fired.drain(..)) {
            // Anybody's code: the core goes all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
        let stuck = self.lane.engine.shutdown(Core::DROP_PATIENCE);
        if let Some(volume) = &mut self.table.volume {
            match stuck {
                0 => volume.device.close(&mut self.lane.engine),
                _ => volume.device.stays_locked(&mut self.lane.engine),
            }
        }
    }
}

fn started(config: &EngineOptions) -> Result<Engine> {
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
