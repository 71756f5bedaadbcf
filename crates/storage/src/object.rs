//! Opened segments and files: what a handle stands for.

use std::ops::Range;

use baio_engine::{Caching, File};

use crate::error::Fault;
use crate::identity::Access;
use crate::request::{Handle, Mode};
use crate::segment::probe::SlotAddress;

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
    /// Nobody uses it.
    Free,
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
    generation: u32,
    pub(crate) state: ObjectState,
    pub(crate) name: String,
    pub(crate) access: Access,
    pub(crate) in_flight: u32,
    pub(crate) target: Option<Target>,
}

/// The table of opened things.
#[derive(Debug)]
pub(crate) struct Objects {
    core: u32,
    objects: Vec<Object>,
}

impl Objects {
    pub(crate) fn new(core: u32) -> Objects {
        Objects {
            core,
            objects: Vec::new(),
        }
    }

    pub(crate) fn core(&self) -> u32 {
        self.core
    }

    pub(crate) fn add(&mut self, name: String, access: Access, target: Target) -> Handle {
        let free = self.objects.iter().position(|object| object.state == ObjectState::Free);
        let index = free.unwrap_or_else(|| {
            self.objects.push(Object {
                generation: 0,
                state: ObjectState::Free,
                name: String::new(),
                access: Access::Read,
                in_flight: 0,
                target: None,
            });
            self.objects.len() - 1
        });
        let object = &mut self.objects[index];
        object.state = ObjectState::Open;
        object.name = name;
        object.access = access;
        object.target = Some(target);
        Handle {
            core: self.core,
            index: index as u32,
            generation: object.generation,
        }
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&Object> {
        self.objects
            .get(handle.index as usize)
            .filter(|_| handle.core == self.core)
            .filter(|object| object.generation == handle.generation && object.state != ObjectState::Free)
    }

    fn get_mut(&mut self, handle: Handle) -> Option<&mut Object> {
        self.objects
            .get_mut(handle.index as usize)
            .filter(|_| handle.core == self.core)
            .filter(|object| object.generation == handle.generation && object.state != ObjectState::Free)
    }

    /// Is this file open by a handle other than that one?
    pub(crate) fn is_file_open(&self, identity: (u64, u64), but: Handle) -> bool {
        let is_it =
            |object: &Object| matches!(&object.target, Some(Target::Plain(file)) if file.identity() == identity);
        let mut others = self.objects.iter().enumerate();
        others.any(|(index, object)| index as u32 != but.index && object.state == ObjectState::Open && is_it(object))
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
            Some(Target::Plain(file)) => Some(file.clone()),
            _ => None,
        };
        if object.state != ObjectState::Gone {
            object.state = ObjectState::Closed;
        }
        self.collect(handle);
        file
    }

    fn collect(&mut self, handle: Handle) {
        if let Some(object) = self.get_mut(handle)
            && matches!(object.state, ObjectState::Closed | ObjectState::Gone)
            && object.in_flight == 0
        {
            object.state = ObjectState::Free;
            object.target = None;
            object.generation = object.generation.wrapping_add(1);
        }
    }

    /// Moves every handle of a segment from one state to another; returns how many requests are under way on them.
    pub(crate) fn move_segment(&mut self, address: SlotAddress, to: ObjectState) -> u32 {
        let mut in_flight = 0;
        for index in 0..self.objects.len() {
            let object = &mut self.objects[index];
            let same = matches!(&object.target, Some(Target::Segment { address: at, .. }) if *at == address);
            if same {
                in_flight += object.in_flight;
            }
            let next = match object.state {
                ObjectState::Open | ObjectState::Draining => Some(to),
                // Nothing opens a closed handle again, but what waits on it must hear that the segment goes.
                ObjectState::Closed if to != ObjectState::Open => Some(ObjectState::Gone),
                _ => None,
            };
            if let Some(next) = next.filter(|_| same) {
                object.state = next;
                let handle = Handle {
                    core: self.core,
                    index: index as u32,
                    generation: object.generation,
                };
                self.collect(handle);
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
        for object in &mut self.objects {
            if let Some(target) = &mut object.target
                && matches!(target, Target::Segment { address: at, .. } if *at == address)
            {
                change(target);
            }
        }
    }

    /// The segment's inode lives elsewhere now, and messages call it so.
    pub(crate) fn rename(&mut self, from: SlotAddress, to: SlotAddress, name: &str) {
        for object in &mut self.objects {
            if let Some(Target::Segment { address, .. }) = &mut object.target
                && *address == from
            {
                *address = to;
                name.clone_into(&mut object.name);
            }
        }
    }

    /// Where the inode of a handle's segment lives.
    pub(crate) fn address(&self, handle: Handle) -> Option<SlotAddress> {
        match self.get(handle)?.target {
            Some(Target::Segment { address, .. }) => Some(address),
            _ => None,
        }
    }

    /// Requests under way on the handles of a segment.
    pub(crate) fn in_flight_on(&self, address: SlotAddress) -> u32 {
        #[cfg(test)]
        WALKS.set(WALKS.get() + 1);
        let same =
            |object: &&Object| matches!(&object.target, Some(Target::Segment { address: at, .. }) if *at == address);
        self.objects.iter().filter(same).map(|object| object.in_flight).sum()
    }
}

impl Object {
    /// May new requests come?
    pub(crate) fn serves(&self) -> bool {
        matches!(self.state, ObjectState::Open | ObjectState::Draining)
    }

    /// The one place that decides which cache carries a request.
    pub(crate) fn route(&self, mode: Mode, volume: Caching) -> Result<Caching, Fault> {
        match (&self.target, mode) {
            (Some(Target::Plain(_)), Mode::Direct | Mode::Cached) => Ok(Caching::Direct),
            (Some(Target::Plain(_)), Mode::Kernel) => Ok(Caching::Kernel),
            (Some(Target::Plain(_)), Mode::Uncached) => Ok(Caching::Uncached),
            (Some(Target::Segment { .. }), Mode::Direct | Mode::Cached) => Ok(volume),
            (Some(Target::Segment { .. }), Mode::Kernel | Mode::Uncached) => {
                Err(Fault::NotYet("the kernel's page cache on a segment"))
            }
            (None, _) => Err(Fault::Stale),
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
