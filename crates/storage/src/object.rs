//! Opened segments and files: what a handle stands for.

use baio_engine::{Caching, File};

use crate::error::Fault;
use crate::identity::Access;
use crate::request::{Handle, Mode};
use crate::segment::probe::SlotAddress;

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
    },
    /// A file of its own.
    Plain(File),
}

/// Where an object stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
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
    pub(crate) state: State,
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
        let free = self.objects.iter().position(|object| object.state == State::Free);
        let index = free.unwrap_or_else(|| {
            self.objects.push(Object {
                generation: 0,
                state: State::Free,
                name: String::new(),
                access: Access::Read,
                in_flight: 0,
                target: None,
            });
            self.objects.len() - 1
        });
        let object = &mut self.objects[index];
        object.state = State::Open;
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
            .filter(|object| object.generation == handle.generation && object.state != State::Free)
    }

    fn get_mut(&mut self, handle: Handle) -> Option<&mut Object> {
        self.objects
            .get_mut(handle.index as usize)
            .filter(|_| handle.core == self.core)
            .filter(|object| object.generation == handle.generation && object.state != State::Free)
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
        if object.state != State::Gone {
            object.state = State::Closed;
        }
        self.collect(handle);
        file
    }

    fn collect(&mut self, handle: Handle) {
        if let Some(object) = self.get_mut(handle)
            && matches!(object.state, State::Closed | State::Gone)
            && object.in_flight == 0
        {
            object.state = State::Free;
            object.target = None;
            object.generation = object.generation.wrapping_add(1);
        }
    }

    /// Moves every handle of a segment from one state to another; returns how many requests are under way on them.
    pub(crate) fn move_segment(&mut self, address: SlotAddress, to: State) -> u32 {
        let mut in_flight = 0;
        for index in 0..self.objects.len() {
            let object = &mut self.objects[index];
            let same = matches!(&object.target, Some(Target::Segment { address: at, .. }) if *at == address);
            if same {
                in_flight += object.in_flight;
            }
            let next = match object.state {
                State::Open | State::Draining => Some(to),
                // Nothing opens a closed handle again, but what waits on it must hear that the segment goes.
                State::Closed if to != State::Open => Some(State::Gone),
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
        for object in &mut self.objects {
            if let Some(Target::Segment { address: at, size, .. }) = &mut object.target
                && *at == address
            {
                *size = bytes;
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
        let same =
            |object: &&Object| matches!(&object.target, Some(Target::Segment { address: at, .. }) if *at == address);
        self.objects.iter().filter(same).map(|object| object.in_flight).sum()
    }
}

impl Object {
    /// May new requests come?
    pub(crate) fn serves(&self) -> bool {
        matches!(self.state, State::Open | State::Draining)
    }

    /// The one place that decides which cache carries a request.
    pub(crate) fn route(&self, mode: Mode, volume: Caching) -> Result<Caching, Fault> {
        match (&self.target, mode) {
            (_, Mode::Cached) => Err(Fault::NotYet("mode `cached`")),
            (Some(Target::Plain(_)), Mode::Direct) => Ok(Caching::Direct),
            (Some(Target::Plain(_)), Mode::Kernel) => Ok(Caching::Kernel),
            (Some(Target::Plain(_)), Mode::Uncached) => Ok(Caching::Uncached),
            (Some(Target::Segment { .. }), Mode::Direct) => Ok(volume),
            (Some(Target::Segment { .. }), Mode::Kernel | Mode::Uncached) => {
                Err(Fault::NotYet("the kernel's page cache on a segment"))
            }
            (None, _) => Err(Fault::Stale),
        }
    }
}
