//! Opened segments and files: what a handle stands for.

mod lines;

use std::ops::Range;

use baio_engine::{Caching, File, Kind};

use self::lines::Lines;
use crate::error::Fault;
use crate::identity::Access;
use crate::request::{Handle, Mode};
use crate::segment::probe::SlotAddress;
use crate::slot_map::{SlotKey, SlotMap};

#[cfg(test)]
thread_local! {
    /// How often all objects were gone over for those of one segment.
    pub(crate) static WALKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What is behind a handle.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A run of blocks of the volume.
    Segment {
        /// Where its inode lives.
        address: SlotAddress,
        /// Whose it is.
        owner_uid: u32,
        /// First byte on the device.
        start: u64,
        /// Bytes.
        size: u64,
        /// The move under way.
        moving: Option<Moving>,
    },
    /// A file of its own.
    Plain(File),
}

impl Target {
    /// Whose it is; of a file whoever has the core.
    fn owner_uid(&self) -> u32 {
        match self {
            Target::Segment { owner_uid, .. } => *owner_uid,
            Target::Plain(_) => 0,
        }
    }
}

/// A segment that is being moved lives in two places: what is below the mark in the target, the rest still in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    /// First byte of the target on the device.
    pub(crate) target: u64,
    /// Bytes copied so far, durably noted.
    pub(crate) mark: u64,
    /// Bytes above the mark that may be in the target already: the record that says so failed, and only the next open knows.
    pub(crate) doubt: u64,
}

/// Where a range of a segment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Behind this byte of the device, which is the segment's first there.
    At(u64),
    /// In both places at once.
    Across,
    /// In one of the two, and nobody knows in which.
    Unknown,
}

impl Moving {
    /// Where a range lies; `source` is the segment's first byte in the run that it leaves.
    pub(crate) fn route(&self, source: u64, range: &Range<u64>) -> Route {
        if range.end <= self.mark {
            Route::At(self.target)
        } else if range.start >= self.mark + self.doubt {
            Route::At(source)
        } else if range.end <= self.mark + self.doubt || range.start >= self.mark {
            Route::Unknown
        } else {
            Route::Across
        }
    }
}

/// Where an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectState {
    /// Serves requests.
    Open,
    /// Its segment is being deleted: no new request, those under way end.
    Draining,
    /// The handle was closed: no new request, those under way end; freed when the last has.
    Closed,
    /// Its segment is gone; freed when the last request has ended.
    Gone,
}

/// One opened thing.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) state: ObjectState,
    pub(crate) name: String,
    pub(crate) access: Access,
    /// Who has opened it; of a file whoever has the core.
    pub(crate) opened_by: u32,
    pub(crate) in_flight: u32,
    pub(crate) target: Target,
    /// The line in which its writes and fences stand; that of all handles on the same file or segment.
    line: u32,
    /// Its file or segment is for a log of whoever has this handle, until nothing of it is under way any more.
    claims: bool,
}

/// The table of opened things.
#[derive(Debug)]
pub(crate) struct Objects {
    core: u32,
    objects: SlotMap<Object>,
    lines: Lines,
}

impl Objects {
    pub(crate) fn new(core: u32) -> Objects {
        Objects {
            core,
            objects: SlotMap::default(),
            lines: Lines::default(),
        }
    }

    pub(crate) fn core(&self) -> u32 {
        self.core
    }

    /// A handle was opened by this user.
    pub(crate) fn opened_by(&mut self, handle: Handle, uid: u32) {
        if let Some(object) = self.get_mut(handle) {
            object.opened_by = uid;
        }
    }

    /// May pages be dropped by this handle? To others' they are worth something.
    pub(crate) fn may_drop(&self, handle: Handle) -> bool {
        self.get(handle).is_none_or(|object| {
            let owns = object.opened_by == 0 || object.opened_by == object.target.owner_uid();
            object.access == Access::Write || owns
        })
    }

    pub(crate) fn add(&mut self, name: String, access: Access, target: Target) -> Handle {
        let line = self.lines.join(&target);
        let key = self.objects.insert(Object {
            line,
            state: ObjectState::Open,
            name,
            access,
            opened_by: target.owner_uid(),
            in_flight: 0,
            target,
            claims: false,
        });
        self.handle(key)
    }

    fn handle(&self, key: SlotKey) -> Handle {
        Handle {
            core: self.core,
            index: key.index,
            generation: key.generation,
        }
    }

    fn key(&self, handle: Handle) -> Option<SlotKey> {
        let (index, generation) = (handle.index, handle.generation);
        (handle.core == self.core).then_some(SlotKey { index, generation })
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&Object> {
        self.objects.get(self.key(handle)?)
    }

    fn get_mut(&mut self, handle: Handle) -> Option<&mut Object> {
        self.objects.get_mut(self.key(handle)?)
    }

    /// Is this file open by a handle other than that one?
    pub(crate) fn is_file_open(&self, identity: (u64, u64), but: Handle) -> bool {
        let is_it = |object: &Object| matches!(&object.target, Target::Plain(file) if file.identity() == identity);
        let mut others = self.objects.iter();
        others.any(|(index, object)| index != but.index && object.state == ObjectState::Open && is_it(object))
    }

    pub(crate) fn begin(&mut self, handle: Handle) {
        if let Some(object) = self.get_mut(handle) {
            object.in_flight += 1;
        }
    }

    pub(crate) fn end(&mut self, handle: Handle) {
        if let Some(object) = self.get_mut(handle) {
            object.in_flight = object.in_flight.saturating_sub(1);
        }
        self.collect(handle);
    }

    /// Closes a handle. What is under way ends; returns the file to be unregistered, if it was the handle's own.
    pub(crate) fn close(&mut self, handle: Handle) -> Option<File> {
        let object = self.get_mut(handle)?;
        // Requests under way on a segment still count for whoever wants to delete it, so its name stays.
        let file = match &object.target {
            Target::Plain(file) => Some(file.clone()),
            Target::Segment { .. } => None,
        };
        if object.state != ObjectState::Gone {
            object.state = ObjectState::Closed;
        }
        self.collect(handle);
        file
    }

    fn collect(&mut self, handle: Handle) {
        let is_over =
            |object: &Object| matches!(object.state, ObjectState::Closed | ObjectState::Gone) && object.in_flight == 0;
        if self.get(handle).is_some_and(is_over) {
            if let Some(object) = self.key(handle).and_then(|key| self.objects.remove(key)) {
                if object.claims {
                    self.lines.set_log(object.line, false);
                }
                self.lines.leave(object.line);
            }
        }
    }

    /// Moves every handle of a segment from one state to another; returns how many requests are under way on them.
    pub(crate) fn move_segment(&mut self, address: SlotAddress, to: ObjectState) -> u32 {
        let mut in_flight = 0;
        for index in self.objects.indices() {
            let Some(object) = self.objects.at_mut(index).filter(|object| object.is_of(address)) else {
                continue;
            };
            in_flight += object.in_flight;
            let next = match object.state {
                ObjectState::Open | ObjectState::Draining => to,
                // Nothing opens a closed handle again, but what waits on it must hear that the segment goes.
                ObjectState::Closed if to != ObjectState::Open => ObjectState::Gone,
                _ => continue,
            };
            object.state = next;
            if let Some(key) = self.objects.key_at(index) {
                self.collect(self.handle(key));
            }
        }
        in_flight
    }

    /// The segment has this many bytes now.
    pub(crate) fn resize(&mut self, address: SlotAddress, bytes: u64) {
        self.each_of(address, |target| {
            if let Target::Segment { size, .. } = target {
                *size = bytes;
            }
        });
    }

    /// The handles of a segment learn how it is moved, or that it is not any more.
    pub(crate) fn set_moving(&mut self, address: SlotAddress, now: Option<Moving>) {
        self.each_of(address, |target| {
            if let Target::Segment { moving, .. } = target {
                *moving = now;
            }
        });
    }

    /// A segment lives elsewhere now, from this byte of the device on, with so many bytes.
    pub(crate) fn moved(&mut self, address: SlotAddress, to: u64, bytes: u64) {
        self.each_of(address, |target| {
            if let Target::Segment {
                start, size, moving, ..
            } = target
            {
                (*start, *size, *moving) = (to, bytes, None);
            }
        });
    }

    fn each_of(&mut self, address: SlotAddress, mut change: impl FnMut(&mut Target)) {
        let its = self.objects.values_mut().filter(|object| object.is_of(address));
        its.for_each(|object| change(&mut object.target));
    }

    /// The segment's inode lives elsewhere now, has that owner, and messages call it so.
    pub(crate) fn rename(&mut self, from: SlotAddress, to: SlotAddress, owner: u32, name: &str) {
        self.lines.rename(from, to);
        for object in self.objects.values_mut().filter(|object| object.is_of(from)) {
            if let Target::Segment { address, owner_uid, .. } = &mut object.target {
                *address = to;
                *owner_uid = owner;
            }
            name.clone_into(&mut object.name);
        }
    }

    /// The line of a handle's file or segment.
    pub(crate) fn line(&self, handle: Handle) -> Option<u32> {
        self.get(handle).map(|object| object.line)
    }

    /// Is a log open on a handle's file or segment, by whatever handle, or claimed for one elsewhere?
    #[inline]
    pub(crate) fn has_log(&self, handle: Handle) -> bool {
        self.lines.have_logs() && self.get(handle).is_some_and(|object| self.lines.has_log(object.line))
    }

    /// The same of a segment.
    pub(crate) fn segment_has_log(&self, address: SlotAddress) -> bool {
        self.lines.segment_has_log(address)
    }

    /// A log was opened on a handle's file or segment, or has been wound down.
    pub(crate) fn set_log(&mut self, handle: Handle, has_log: bool) {
        if let Some(line) = self.line(handle) {
            self.lines.set_log(line, has_log);
        }
    }

    /// Who has this handle has a log of its own there, until the handle is closed and its requests have ended.
    pub(crate) fn claim(&mut self, handle: Handle) {
        if let Some(object) = self.get_mut(handle) {
            object.claims = true;
            self.set_log(handle, true);
        }
    }

    /// Is it the handle by which a caller's own log writes?
    pub(crate) fn is_claim(&self, handle: Handle) -> bool {
        self.get(handle).is_some_and(|object| object.claims)
    }

    /// Where the inode of a handle's segment lives.
    pub(crate) fn address(&self, handle: Handle) -> Option<SlotAddress> {
        self.get(handle)?.address()
    }

    /// Requests under way on the handles of a segment.
    pub(crate) fn in_flight_on(&self, address: SlotAddress) -> u32 {
        #[cfg(test)]
        WALKS.set(WALKS.get() + 1);
        let its = self.objects.iter().filter(|(_, object)| object.is_of(address));
        its.map(|(_, object)| object.in_flight).sum()
    }
}

impl Object {
    fn address(&self) -> Option<SlotAddress> {
        match self.target {
            Target::Segment { address, .. } => Some(address),
            Target::Plain(_) => None,
        }
    }

    fn is_of(&self, segment: SlotAddress) -> bool {
        self.address() == Some(segment)
    }

    /// May new requests come?
    pub(crate) fn serves(&self) -> bool {
        matches!(self.state, ObjectState::Open | ObjectState::Draining)
    }

    /// Does it have a size that requests may change?
    pub(crate) fn is_file(&self) -> bool {
        matches!(&self.target, Target::Plain(file) if matches!(file.kind(), Kind::Regular | Kind::Foreign))
    }

    /// The one place that decides which cache carries a request.
    pub(crate) fn route(&self, mode: Mode, volume: Caching) -> Result<Caching, Fault> {
        match (&self.target, mode) {
            (Target::Plain(_), Mode::Direct | Mode::Cached) => Ok(Caching::Direct),
            (Target::Plain(_), Mode::Kernel) => Ok(Caching::Kernel),
            (Target::Plain(_), Mode::Uncached) => Ok(Caching::Uncached),
            (Target::Segment { .. }, Mode::Direct | Mode::Cached) => Ok(volume),
            (Target::Segment { .. }, Mode::Kernel | Mode::Uncached) => {
                Err(Fault::NotYet("the kernel's page cache on a segment"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moving_segment_is_served_by_its_mark() {
        let mut moving = Moving {
            target: 1 << 30,
            mark: 8192,
            doubt: 0,
        };
        let route = |moving: &Moving, range| moving.route(4096, &range);
        assert_eq!(route(&moving, 0..8192), Route::At(1 << 30));
        assert_eq!(route(&moving, 8192..8193), Route::At(4096));
        assert_eq!(route(&moving, 8191..8193), Route::Across);
        assert_eq!(route(&moving, 0..u64::MAX), Route::Across);
        // What is empty lies in either; at the mark it must not be taken for crossing it.
        assert_eq!(route(&moving, 8192..8192), Route::At(1 << 30));
        moving.doubt = 4096;
        assert_eq!(route(&moving, 0..8192), Route::At(1 << 30));
        assert_eq!(route(&moving, 12288..12289), Route::At(4096));
        assert_eq!(route(&moving, 8192..12288), Route::Unknown);
        assert_eq!(route(&moving, 12287..12289), Route::Unknown);
    }
}
