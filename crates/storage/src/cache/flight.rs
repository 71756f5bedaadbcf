//! I/Os on their way: what the cache asks of the device, and what becomes of the pages when it has ended.
//!
//! The cache does no I/O. It hands out an [`Io`] with the frames' own memory in it, and is told once how that ended and given
//! the memory back. Memory that does not come back (the engine gave up on a request that still runs) takes its frames out of
//! the budget until [`Cache::io_released`]: a fill's pages are then simply not there; a write's pages stay readable, because
//! the cache shares their bytes with the device, and count as being written until then.

use baio_engine::{Durability, Errno, Frozen, Memory, Vectored};

use super::Cache;
use super::frames::{FrameState, PAGE, PAGE_BYTES};
use super::object::ObjectId;
use super::request::RequestId;

/// Names an I/O. Carries a generation: a stale one names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// What the device is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Read into the memory, directly.
    Read {
        /// Byte in the object; a multiple of the page size.
        offset: u64,
        /// Bytes; a multiple of the page size, except at the object's end.
        len: u32,
    },
    /// Write from the memory, directly.
    Write {
        /// Byte in the object; a multiple of the page size.
        offset: u64,
        /// Bytes; a multiple of the page size, except at the object's end.
        len: u32,
        /// `None`: a flush will follow; else it has ended when the bytes are safe.
        durability: Durability,
    },
    /// Flush: make safe all writes that have ended before it began.
    Sync {
        /// How much of the inode too.
        durability: Durability,
    },
}

/// One I/O to carry out.
#[derive(Debug)]
pub struct Io {
    /// To be named in [`Cache::io_ended`].
    pub id: IoId,
    /// Of which object.
    pub object: ObjectId,
    /// What to do.
    pub kind: IoKind,
    /// The bytes of the pages, of exactly the length of the I/O; none for a sync.
    pub memory: Memory,
    /// On the caller's own memory, past that of the frames: nothing is copied when it has ended.
    pub bypasses: bool,
}

/// Lists are made with room for so many pages, so that one that served a small I/O seldom grows for a large one.
const LIST_PARTS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fill,
    /// A read for this request, into its own memory.
    Bypass(RequestId),
    Write {
        durability: Durability,
        /// Of the cleaner or a sync: those are bounded together.
        background: bool,
        /// How many flushes of the object had failed when it began.
        failed_flushes: u64,
        /// From a caller's memory, not that of the frames.
        through: bool,
    },
    Flush,
}

impl Kind {
    fn is_read(self) -> bool {
        matches!(self, Kind::Fill | Kind::Bypass(_))
    }

    /// Is it about a caller's own memory?
    fn is_of_caller(self) -> bool {
        matches!(self, Kind::Bypass(_) | Kind::Write { through: true, .. })
    }

    fn is_background(self) -> bool {
        matches!(self, Kind::Write { background: true, .. })
    }
}

#[derive(Debug)]
struct Flight {
    object: u32,
    kind: Kind,
    first: u64,
    /// Bytes that it is about; the object may end elsewhere when it has ended.
    len: u32,
    /// Its frames, in page order.
    frames: Vec<u32>,
    /// Pages that were refused together with these, and are tried one by one when this has ended; the last of them is next.
    rest: Vec<u32>,
    /// It was told as ended, and its memory is not back.
    given_up: bool,
}

/// All I/Os on their way, by slot.
#[derive(Debug, Default)]
pub(super) struct Flights {
    slots: Vec<(u32, Option<Flight>)>,
    free: Vec<u32>,
    /// Emptied lists, so that a new I/O allocates nothing.
    spare_frames: Vec<Vec<u32>>,
    spare_lists: Vec<Vectored>,
    /// I/Os that the device works at and that may still end well; of them those that are no reads; of those the writes of the
    /// cleaner and of syncs.
    pub(super) live: u32,
    pub(super) live_writes: u32,
    pub(super) live_background: u32,
}

impl Flights {
    fn insert(&mut self, flight: Flight) -> IoId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        self.live += 1;
        self.live_writes += u32::from(!flight.kind.is_read());
        self.live_background += u32::from(flight.kind.is_background());
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(flight);
        IoId {
            slot,
            generation: entry.0,
        }
    }

    fn take(&mut self, id: IoId, given_up: bool) -> Option<Flight> {
        let entry = self.slots.get_mut(id.slot as usize)?;
        if entry.0 != id.generation || entry.1.as_ref()?.given_up != given_up {
            return None;
        }
        let flight = entry.1.take()?;
        if !given_up {
            self.live -= 1;
            self.live_writes -= u32::from(!flight.kind.is_read());
            self.live_background -= u32::from(flight.kind.is_background());
        }
        Some(flight)
    }

    fn retire(&mut self, id: IoId, mut flight: Flight) {
        let entry = &mut self.slots[id.slot as usize];
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(id.slot);
        flight.frames.clear();
        self.spare_frames.push(flight.frames);
    }

    fn give_up(&mut self, id: IoId, mut flight: Flight) {
        flight.given_up = true;
        self.slots[id.slot as usize].1 = Some(flight);
    }

    /// An empty list of frames.
    pub(super) fn frames(&mut self) -> Vec<u32> {
        self.spare_frames
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(LIST_PARTS))
    }

    /// Keeps a list that was not needed.
    pub(super) fn put_away(&mut self, frames: Vec<u32>) {
        self.spare_frames.push(frames);
    }

    fn list(&mut self, parts: usize) -> Vectored {
        self.spare_lists
            .pop()
            .unwrap_or_else(|| Vectored::with_capacity(parts.max(LIST_PARTS)))
    }
}

impl Cache {
    /// The next I/O to carry out; `None` when there is none now. Take all of them before sleeping.
    pub fn next_io(&mut self) -> Option<Io> {
        // For callers who know nothing of slices: one a call, and all when there is no I/O whose end they would wait for.
        loop {
            if self.is_put_off() {
                self.go_on();
            }
            let next = self.next_io_now();
            if next.is_some() || self.flights.live > 0 || !self.is_put_off() {
                return next;
            }
        }
    }

    /// The same for who goes on with what is put off himself.
    pub(crate) fn next_io_now(&mut self) -> Option<Io> {
        if let Some(io) = self.bypasses.pop_front() {
            return Some(io);
        }
        self.copy_late();
        // Durable writes begin here, and not when they are asked: so those asked together are written together.
        while self.outgoing.is_empty() && !self.copied.is_empty() {
            while let Some(slot) = self.copied.pop_front() {
                self.make_safe(slot);
            }
            self.settle();
        }
        self.outgoing.pop_front()
    }

    /// Is there an I/O to be taken?
    pub(crate) fn wants_io(&self) -> bool {
        !(self.outgoing.is_empty() && self.bypasses.is_empty() && self.copied.is_empty())
    }

    /// Starts reading these frames, which are `Filling` and follow one another from page `first`.
    pub(super) fn start_fill(&mut self, object: u32, first: u64, frames: Vec<u32>) {
        let mut len = 0;
        let mut list = (frames.len() > 1).then(|| self.flights.list(frames.len()));
        let mut memory = Memory::None;
        for (page, &frame) in (first..).zip(&frames) {
            let valid = self.objects[object as usize].valid(page);
            let Some(buffer) = self.frames.lend(frame, valid) else {
                continue; // A free frame has its memory: this does not happen.
            };
            len += valid as u32;
            match &mut list {
                Some(list) => drop(list.push(buffer.into())),
                None => memory = buffer.into(),
            }
        }
        if let Some(list) = list {
            memory = Memory::Many(list);
        }
        self.stats.fills += 1;
        self.stats.pages_filled += frames.len() as u64;
        let offset = first * PAGE;
        self.send(object, Kind::Fill, first, frames, IoKind::Read { offset, len }, memory);
    }

    /// Starts writing these frames with bytes that they have yet to get.
    pub(super) fn start_write_from(
        &mut self,
        object: u32,
        first: u64,
        frames: Vec<u32>,
        durability: Durability,
        bytes: Frozen,
    ) {
        self.stats.writes_through += 1;
        self.start_write_before(object, first, frames, durability, Vec::new(), Some(bytes));
    }

    /// Starts writing these frames, which follow one another from page `first`, are readable and not being written.
    pub(super) fn start_write(&mut self, object: u32, first: u64, frames: Vec<u32>, durability: Durability) {
        self.start_write_before(object, first, frames, durability, Vec::new(), None);
    }

    /// The same; when it has ended, the pages of `rest` are tried one by one, which are being written as far as others can tell. With
    /// `bytes` these are written, and the frames keep theirs.
    fn start_write_before(
        &mut self,
        object: u32,
        first: u64,
        frames: Vec<u32>,
        durability: Durability,
        rest: Vec<u32>,
        bytes: Option<Frozen>,
    ) {
        // Who asks for a durable write waits for it itself; there are as many as there are requests.
        let background = durability == Durability::None;
        let durability = self.strengthen(object, first, frames.len() as u64, durability);
        let through = bytes.is_some();
        let mut len = 0;
        let mut list = (frames.len() > 1 && !through).then(|| self.flights.list(frames.len()));
        let mut memory = bytes.map_or(Memory::None, Memory::Shared);
        for (page, &frame) in (first..).zip(&frames) {
            debug_assert_ne!(self.frames.get(frame).state, FrameState::Gated, "before its log");
            self.transition(frame, FrameState::WriteBack);
            let entry = self.frames.get_mut(frame);
            entry.writing = self.version;
            entry.pool.wanted = false;
            let valid = self.objects[object as usize].valid(page);
            len += valid as u32;
            if through {
                continue;
            }
            let Some(bytes) = self.frames.share(frame, valid) else {
                continue; // Its bytes are here unless it is filling or being written: this does not happen.
            };
            match &mut list {
                Some(list) => drop(list.push(bytes.into())),
                None => memory = bytes.into(),
            }
        }
        if let Some(list) = list {
            memory = Memory::Many(list);
        }
        self.stats.writes += 1;
        self.stats.durable_writes += u64::from(durability != Durability::None);
        self.stats.pages_written += frames.len() as u64;
        let kind = Kind::Write {
            durability,
            background,
            failed_flushes: self.objects[object as usize].failed_flushes,
            through,
        };
        let offset = first * PAGE;
        let io = IoKind::Write {
            offset,
            len,
            durability,
        };
        let id = self.send(object, kind, first, frames, io, memory);
        if let Some(flight) = &mut self.flights.slots[id.slot as usize].1 {
            flight.rest = rest;
        }
    }

    /// Sends off a read into a caller's memory.
    pub(super) fn send_bypass(&mut self, object: u32, request: RequestId, io: IoKind, memory: Memory) {
        self.stats.fills += 1;
        self.stats.bypasses += 1;
        self.stats.pages_filled += (memory.len() / PAGE_BYTES) as u64;
        let frames = self.flights.frames();
        self.send(object, Kind::Bypass(request), 0, frames, io, memory);
    }

    /// Sends a flush off.
    pub(super) fn send_flush(&mut self, object: u32, durability: Durability) {
        self.stats.flushes += 1;
        let frames = self.flights.frames();
        self.send(
            object,
            Kind::Flush,
            0,
            frames,
            IoKind::Sync { durability },
            Memory::None,
        );
    }

    fn send(&mut self, slot: u32, kind: Kind, first: u64, frames: Vec<u32>, io: IoKind, memory: Memory) -> IoId {
        self.progress += 1;
        let len = match io {
            IoKind::Read { len, .. } | IoKind::Write { len, .. } => len,
            IoKind::Sync { .. } => 0,
        };
        let object = &mut self.objects[slot as usize];
        object.flights += 1;
        if kind.is_background() {
            self.accounts.write_begins(object.account);
        }
        let id = self.flights.insert(Flight {
            object: slot,
            kind,
            first,
            len,
            frames,
            rest: Vec::new(),
            given_up: false,
        });
        let object = ObjectId {
            slot,
            generation: object.generation,
        };
        let bypasses = kind.is_of_caller();
        let queue = if bypasses {
            &mut self.bypasses
        } else {
            &mut self.outgoing
        };
        queue.push_back(Io {
            id,
            object,
            kind: io,
            memory,
            bypasses,
        });
        id
    }

    /// Tells how an I/O ended: the bytes transferred, or why not. `memory` is the I/O's own; `Memory::None` instead says that
    /// the device still holds it, and [`Cache::io_released`] will bring it. A stale id is ignored.
    pub fn io_ended(&mut self, id: IoId, result: Result<u32, Errno>, memory: Memory) {
        self.copy_now();
        let Some(mut flight) = self.flights.take(id, false) else {
            return;
        };
        if flight.kind.is_background() {
            self.accounts.write_ends(self.objects[flight.object as usize].account);
        }
        let is_back = match flight.kind {
            Kind::Fill => self.fill_ended(&flight, result, memory),
            Kind::Bypass(request) => {
                let is_back = !memory.is_empty();
                self.bypass_ended(request, result, memory);
                is_back
            }
            Kind::Write { durability, .. } => {
                let came_back = !memory.is_empty();
                self.put_list_away(memory);
                let mut rest = std::mem::take(&mut flight.rest);
                let is_back = self.write_ended(&flight, result, came_back, &mut rest);
                self.write_rest(flight.object, rest, durability);
                is_back
            }
            Kind::Flush => {
                self.flush_ended(flight.object, result.map(drop));
                true
            }
        };
        self.landed(id, flight, is_back);
    }

    /// Brings the memory of an I/O that was told as ended without it. A stale id is ignored.
    pub fn io_released(&mut self, id: IoId, memory: Memory) {
        let Some(flight) = self.flights.take(id, true) else {
            return;
        };
        let mut is_back = true;
        if let Kind::Bypass(_) = flight.kind {
            drop(memory); // Its request has ended: it goes back to its arena.
        } else if flight.kind == Kind::Fill {
            self.take_buffers(&flight.frames, memory);
            for &frame in &flight.frames {
                if self.frames.get(frame).state == FrameState::Lost {
                    self.frames.give_free(frame);
                }
            }
        } else {
            self.put_list_away(memory);
            for &frame in &flight.frames {
                if !self.frames.get(frame).stuck {
                    continue; // It came back before the others.
                }
                if !self.frames.unshare(frame, true) {
                    is_back = false;
                    continue;
                }
                self.frames.get_mut(frame).stuck = false;
                self.objects[flight.object as usize].stuck -= 1;
                self.transition(frame, FrameState::Failed);
                self.wake_page(frame);
            }
        }
        self.landed(id, flight, is_back);
    }

    /// An I/O has ended; it is over when all its memory is back.
    fn landed(&mut self, id: IoId, flight: Flight, is_back: bool) {
        let object = flight.object;
        if is_back {
            self.objects[object as usize].flights -= 1;
            self.flights.retire(id, flight);
        } else {
            self.flights.give_up(id, flight);
        }
        self.drop_discarded(object);
        self.settle();
    }

    /// Puts the buffers of a fill back into their frames; those that are missing stay away.
    fn take_buffers(&mut self, frames: &[u32], memory: Memory) {
        match memory {
            Memory::Own(buffer) if frames.len() == 1 && buffer.capacity() == PAGE_BYTES => {
                self.frames.take_back(frames[0], buffer);
            }
            Memory::Many(mut list) => {
                for (part, &frame) in list.drain().zip(frames) {
                    if let Memory::Own(buffer) = part {
                        if buffer.capacity() == PAGE_BYTES {
                            self.frames.take_back(frame, buffer);
                        }
                    }
                }
                self.flights.spare_lists.push(list);
            }
            _ => {}
        }
    }

    fn put_list_away(&mut self, memory: Memory) {
        if let Memory::Many(mut list) = memory {
            drop(list.drain());
            self.flights.spare_lists.push(list);
        }
    }

    /// A page is good when all its bytes came; who waits for it finds out by its state. What came with others and not well is read
    /// again by itself if somebody holds on to it: one bad block fails neither its neighbours nor whoever it was read ahead for.
    fn fill_ended(&mut self, flight: &Flight, result: Result<u32, Errno>, memory: Memory) -> bool {
        let is_back = !memory.is_empty();
        self.take_buffers(&flight.frames, memory);
        let got = result.unwrap_or(0) as usize;
        let splits = flight.frames.len() > 1 && self.objects[flight.object as usize].live;
        for (nth, &frame) in flight.frames.iter().enumerate() {
            let part = (flight.len as usize - nth * PAGE_BYTES).min(PAGE_BYTES);
            let is_here = !self.frames.bytes(frame).is_empty();
            if result.is_ok() && got >= nth * PAGE_BYTES + part && is_here {
                // What lies behind the end is zero, also when the object has grown meanwhile.
                self.frames.bytes_mut(frame)[part..].fill(0);
                self.transition(frame, FrameState::Clean);
                self.wake_page(frame);
                continue;
            }
            if splits && is_here && self.frames.get(frame).pins > 0 {
                let mut alone = self.flights.frames();
                alone.push(frame);
                self.start_fill(flight.object, flight.first + nth as u64, alone);
                continue;
            }
            self.stats.failed_fills += 1;
            self.transition(frame, FrameState::Broken(result.err().unwrap_or(Errno::EIO)));
            self.wake_page(frame);
            self.free_if_broken(frame);
        }
        is_back
    }

    /// Says whether all frames have their memory again; `came_back` whether that of the I/O has.
    fn write_ended(
        &mut self,
        flight: &Flight,
        result: Result<u32, Errno>,
        came_back: bool,
        rest: &mut Vec<u32>,
    ) -> bool {
        let Kind::Write {
            durability,
            failed_flushes: failed,
            through,
            ..
        } = flight.kind
        else {
            return true;
        };
        let object = &self.objects[flight.object as usize];
        let mut result = match result {
            Ok(done) if done < flight.len => Err(Errno::EIO),
            Ok(_) => Ok(()),
            Err(errno) => Err(errno),
        };
        // What was refused together is tried page by page, or one bad block would keep all others off the device; one after the
        // other, or a dead device would have hundreds on their way for each write that it refused, in the slots of all others.
        let splits = result.is_err() && flight.frames.len() > 1 && object.live;
        // A flush that failed meanwhile may have lost what this write left in the device's cache.
        if result.is_ok() && durability == Durability::None && object.failed_flushes != failed {
            result = Err(object.errno.unwrap_or(Errno::EIO));
        }
        let mut is_back = true;
        for &frame in &flight.frames {
            if self.frames.unshare(frame, came_back) && (came_back || !through) {
                if splits {
                    rest.push(frame);
                    continue;
                }
                self.page_written(frame, result, durability);
            } else {
                is_back = false;
                self.frames.get_mut(frame).stuck = true;
                self.objects[flight.object as usize].stuck += 1;
                self.tell_failure(frame, result.err().unwrap_or(Errno::ETIMEDOUT));
            }
            self.wake_page(frame);
        }
        if splits {
            rest.reverse(); // The first page is the last here.
        }
        is_back
    }

    /// Writes the next of the pages that were refused together; the others follow it. Of an object that has gone none is needed.
    fn write_rest(&mut self, object: u32, mut rest: Vec<u32>, durability: Durability) {
        if !self.objects[object as usize].live {
            let errno = self.objects[object as usize].errno.unwrap_or(Errno::EIO);
            for frame in rest {
                self.page_written(frame, Err(errno), durability);
            }
        } else if let Some(frame) = rest.pop() {
            let mut alone = self.flights.frames();
            alone.push(frame);
            let page = self.frames.get(frame).page;
            self.start_write_before(object, page, alone, durability, rest, None);
        }
    }
}
