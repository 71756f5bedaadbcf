//! One lane of a core: an engine, the objects that requests name, the requests, and what serves them: page cache, logs, holds.
//!
//! It does not know the table. What it must know of the volume it is told ([`ToLane`], obeyed here and nowhere else), and what the table must
//! hear of waits in [`Lane::to_table`] until the core hands it on. A core has one lane so far, in the thread that turns it.

pub(crate) mod cached;
pub(crate) mod logs;
pub(in crate::core) mod returns;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use baio_engine::{Caching, Completion, Engine, EngineOptions, Errno, File, Kind};

use self::cached::{Known, PageCache};
use self::logs::Logs;
use self::returns::Returns;
use super::wrong::stale;
use crate::crossing::{Awaited, CutOff, LaneDoor, Opening, Stillness, ToLane, ToTable};
use crate::error::{Error, Fault, Result};
use crate::holds::Holds;
use crate::object::{ObjectState, Objects, Target};
use crate::request::{Handle, Requests};
use crate::segment::probe::SlotAddress;
use crate::slot_map::SlotKey;
use crate::volume::{Volume, must_fit};

/// The volume, as requests see it.
#[derive(Debug)]
pub(in crate::core) struct Ground {
    pub(in crate::core) file: File,
    pub(in crate::core) caching: Caching,
    /// Where it ends on the device.
    end: u64,
}

impl Ground {
    pub(in crate::core) fn must_fit(&self) -> std::result::Result<(), Fault> {
        must_fit(&self.file, self.end)
    }
}

/// See the module.
pub(in crate::core) struct Lane {
    pub(in crate::core) engine: Engine,
    pub(in crate::core) ground: Option<Ground>,
    pub(in crate::core) objects: Objects,
    pub(in crate::core) requests: Requests,
    pub(in crate::core) cached: Option<Box<PageCache>>,
    pub(in crate::core) holds: Holds,
    pub(in crate::core) logs: Logs,
    pub(in crate::core) returns: Arc<Returns>,
    /// Operations that wait for something here.
    pub(in crate::core) awaited: Vec<(SlotKey, Awaited)>,
    pub(in crate::core) stillness: Stillness,
    /// What the table is to hear.
    pub(in crate::core) to_table: VecDeque<ToTable>,
    /// Completions of requests that are not the core's own.
    pub(in crate::core) foreign: VecDeque<Completion>,
    pub(in crate::core) fired: Vec<Waker>,
    /// Wakers that nobody needs any more, of logs and of whoever drives the core; those of requests are in their table.
    pub(in crate::core) displaced: Vec<Waker>,
    /// An end has not been reported yet: the next turn must not sleep.
    pub(in crate::core) is_told: bool,
}

impl Lane {
    pub(in crate::core) fn new(engine: Engine, volume: Option<&Volume>, config: &EngineOptions) -> Lane {
        let id = baio_words::next_number();
        Lane {
            ground: volume.map(|volume| Ground {
                file: volume.device.file.clone(),
                caching: volume.device.caching,
                end: volume.layout().end(),
            }),
            objects: Objects::new(id),
            requests: Requests::new(config.slots, id),
            cached: None,
            holds: Holds::default(),
            logs: Logs::new(engine.doorbell()),
            returns: Returns::new(engine.doorbell()),
            awaited: Vec::new(),
            stillness: Stillness::None,
            to_table: VecDeque::new(),
            foreign: VecDeque::new(),
            fired: Vec::new(),
            displaced: Vec::new(),
            is_told: false,
            engine,
        }
    }

    /// The number that handles carry: while there is one lane, the core's.
    pub(in crate::core) fn number(&self) -> u32 {
        self.objects.core()
    }

    pub(in crate::core) fn file(&self, handle: Handle) -> Option<&File> {
        let object = self.objects.get(handle).filter(|object| object.serves())?;
        match &object.target {
            Target::Plain(file) => Some(file),
            Target::Segment { .. } => None,
        }
    }

    pub(in crate::core) fn size(&self, handle: Handle) -> Result<u64> {
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

    pub(in crate::core) fn plain_size(&self, handle: Handle, file: &File) -> std::result::Result<u64, Errno> {
        let size = file.size()?;
        let cached = self.cached.as_ref().filter(|_| file.kind() == Kind::Regular);
        let cached = cached.and_then(|cached| cached.size_of(&self.objects, handle));
        // As cached reads see it, whatever others have done to the file meanwhile.
        Ok(cached.unwrap_or(size))
    }

    pub(in crate::core) fn close_handle(&mut self, handle: Handle) {
        self.end_logs_by(handle);
        self.keeper_gone(handle);
        if let Some(file) = self.objects.close(handle) {
            self.engine.detach(&file);
            self.file_closed(&file);
        }
    }

    /// Requests that the engine or the page cache has, that wait here, or that have ended in the engine and are read by the next turn; and
    /// what the table is to hear.
    pub(in crate::core) fn in_flight(&self) -> usize {
        let waiting = self.requests.waiting() + self.requests.following();
        let engine = self.engine.in_flight() + self.engine.completed();
        engine + self.in_cache().0 + waiting + self.logs.under_way() + self.to_table.len()
    }

    /// Is there anything that a turn would find or submit without waiting?
    pub(in crate::core) fn has_news(&self) -> bool {
        let news = self.is_told || !self.to_table.is_empty() || self.requests.is_woken() || self.logs.want_io();
        news || self.has_become_awaited() || self.engine.queued() + self.engine.completed() > 0 || self.in_cache().1
    }

    /// Has a stillness come about that somebody waits for and has not been told of?
    pub(in crate::core) fn has_become_awaited(&self) -> bool {
        self.awaited.iter().any(|(_, what)| self.has_become_still(*what))
    }

    /// One request less on a handle: whoever waits for the last one may go on.
    pub(in crate::core) fn handle_idle(&mut self, handle: Handle) {
        let address = self.objects.address(handle);
        self.objects.end(handle);
        if self.awaited.is_empty() {
            return;
        }
        let (objects, holds, to_table) = (&self.objects, &self.holds, &mut self.to_table);
        self.awaited.retain(|&(operation, what)| {
            let has_come = match what {
                // Only who waits for this segment has reason to look through all its handles.
                Awaited::Drained(at) => address == Some(at) && objects.in_flight_on(at) == 0,
                Awaited::Quiet(hold) => holds.is_quiet(hold),
                Awaited::Still(_) => false, // It is looked for when a turn begins.
            };
            if has_come {
                to_table.push_back(ToTable::HasCome { operation });
            }
            !has_come
        });
    }

    pub(in crate::core) fn is_frozen(&self) -> bool {
        self.stillness == Stillness::Frozen
    }

    /// Tells whoever waits for stillness that it has come about.
    pub(in crate::core) fn tell_stillness(&mut self) {
        let mut awaited = std::mem::take(&mut self.awaited);
        awaited.retain(|&(operation, what)| {
            let has_come = self.has_become_still(what);
            if has_come {
                self.to_table.push_back(ToTable::HasCome { operation });
            }
            !has_come
        });
        self.awaited = awaited;
    }

    /// Is this stillness, and has it come about?
    fn has_become_still(&self, what: Awaited) -> bool {
        match what {
            Awaited::Still(Stillness::Frozen) => {
                let mut writes = self.requests.writes_under_way();
                !writes.any(|(_, handle, _)| self.objects.address(handle).is_some())
            }
            // The cache has none of callers' writes, but those that wait for a log.
            Awaited::Still(Stillness::None | Stillness::Draining) => {
                let awaits_log = |cached: &PageCache| cached.cache.lsns_awaited().next().is_some();
                self.requests.cached_writes() == 0 || self.cached.as_deref().is_some_and(awaits_log)
            }
            Awaited::Drained(_) | Awaited::Quiet(_) => false,
        }
    }
}

impl LaneDoor for Lane {
    fn obey(&mut self, message: ToLane) {
        let Lane {
            objects,
            requests,
            holds,
            cached,
            ..
        } = self;
        match message {
            ToLane::Hold { id, operation, place } => holds.hold((id, operation), place, objects, requests),
            ToLane::MoveHold { id, range } => holds.move_to(id, range, objects, requests),
            ToLane::ReleaseHold { id } => holds.release(id, objects, requests),
            ToLane::Ended { operation } => {
                self.awaited.retain(|(other, _)| *other != operation);
                holds.release_of(operation.index, objects, requests);
                on(cached, |cached| cached.release_cuts(operation.index));
            }
            ToLane::Serve { at } => drop(objects.move_segment(at, ObjectState::Open)),
            ToLane::Gone { at } => drop(objects.move_segment(at, ObjectState::Gone)),
            ToLane::Forget { at } => on(cached, |cached| cached.forget(objects, at)),
            ToLane::Resized { at, bytes } => {
                objects.resize(at, bytes);
                on(cached, |cached| cached.resized(objects, at, bytes));
            }
            ToLane::Moving { at, moving } => objects.set_moving(at, Some(moving)),
            ToLane::Moved { at, start, bytes } => objects.moved(at, start, bytes),
            ToLane::Renamed {
                from,
                to,
                owner_uid,
                name,
            } => objects.rename(from, to, owner_uid, &name),
            ToLane::Close { handle } => self.close_handle(handle),
            ToLane::WrittenBack => on(cached, PageCache::is_written_back),
            ToLane::BeStill(stillness) => self.stillness = stillness,
            ToLane::Thawed => {
                self.stillness = Stillness::None;
                on(cached, PageCache::is_written_back);
                holds.wake_free(objects, requests);
            }
            ToLane::Grown { end } => self.ground.iter_mut().for_each(|ground| ground.end = end),
            ToLane::LogMay { handle, may } => self.log_may(handle, may),
        }
    }

    fn open(&mut self, opening: Opening) -> Handle {
        let handle = self.objects.add(opening.name, opening.access, opening.target);
        self.objects.opened_by(handle, opening.uid);
        handle
    }

    fn will_tell(&mut self, operation: SlotKey, what: Awaited) -> bool {
        let has_come = matches!(what, Awaited::Quiet(hold) if self.holds.is_quiet(hold));
        if !has_come {
            self.awaited.push((operation, what));
        }
        !has_come
    }

    fn drain(&mut self, at: SlotAddress) -> usize {
        let under_way = self.objects.move_segment(at, ObjectState::Draining);
        self.holds.wake_all_on(at, &self.objects, &mut self.requests);
        on(&mut self.cached, |cached| cached.refuse(&self.objects, at));
        under_way as usize
    }

    fn cut(&mut self, what: CutOff) -> bool {
        let Some(cached) = &mut self.cached else { return false };
        let known = Known {
            objects: &mut self.objects,
            requests: &mut self.requests,
        };
        let whose = (what.operation.index, what.tag);
        cached.cut(known, whose, &what.name, what.target, what.from);
        true
    }

    fn write_back(&mut self, tag: u64) -> usize {
        let cached = self.cached.as_mut();
        cached.map_or(0, |cached| cached.write_back(&self.objects, tag))
    }

    fn cached_writes(&self) -> usize {
        self.requests.cached_writes()
    }

    fn has_log(&self, at: SlotAddress) -> bool {
        self.objects.segment_has_log(at)
    }

    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

/// Has the cache do something, if there is one.
fn on(cached: &mut Option<Box<PageCache>>, act: impl FnOnce(&mut PageCache)) {
    if let Some(cached) = cached {
        act(cached);
    }
}
