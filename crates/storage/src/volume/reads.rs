//! Reading large parts of the volume in order: some large reads are under way while what has come is looked at.
//!
//! How many and how large follows from the memory that is left: at most half of the arena, down to one read of a few
//! pages. What the device cannot read is tried again page by page, so that one bad page costs that page. Whoever looks decides
//! what that means: the inode table has its mirror, also where not one page of a chunk could be read.
//!
//! An engine that has requests of others under way is served one read at a time: their completions are not ours to take.

use std::collections::VecDeque;

use baio_engine::{Buffer, Completion, Durability, Engine, Errno, Request, RequestId, Wait};

use crate::error::{Error, Fault, Result};
use crate::segment::page::{PAGE_BYTES, PageRead};
use crate::volume::device::Device;

/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;
/// Reads under way at most.
const DEPTH: usize = 8;
/// Bytes of the arena that are left to whoever looks at what was read.
const LEFT_BYTES: usize = 16 << 10;

/// Some pages as they were read.
pub(crate) struct Chunk<'a> {
    /// Where they lie on the device.
    pub(crate) offset: u64,
    /// How many bytes were asked for.
    len: usize,
    bytes: &'a [u8],
    /// Pages that could not be read.
    bad: &'a [BadPage],
}

/// A page of a chunk, by its number, that could not be read.
type BadPage = (usize, Errno);

impl<'a> Chunk<'a> {
    /// How many units of so many bytes it has.
    pub(crate) fn units(&self, bytes: u64) -> u64 {
        self.len as u64 / bytes
    }

    /// A page by its number in the chunk. One that is not whole was not read.
    pub(crate) fn page(&self, number: usize) -> PageRead<'a> {
        let at = number.saturating_mul(PAGE_BYTES);
        let bad = self.bad.iter().find(|(page, _)| *page == number);
        match (bad, self.bytes.get(at..at.saturating_add(PAGE_BYTES))) {
            (Some((_, errno)), _) => PageRead::Unread(*errno),
            (None, Some(page)) => PageRead::Read(page),
            (None, None) => PageRead::Unread(Errno::EIO),
        }
    }

    /// Why not one of its pages could be read, if that is so.
    pub(crate) fn lost(&self) -> Option<Errno> {
        let (_, errno) = self.bad.first()?;
        (self.bad.len() == self.len / PAGE_BYTES).then_some(*errno)
    }
}

/// Some pages that were read by themselves.
pub(crate) struct Pages {
    offset: u64,
    len: usize,
    buffer: Buffer,
    bad: Vec<BadPage>,
}

impl Pages {
    pub(crate) fn chunk(&self) -> Chunk<'_> {
        Chunk {
            offset: self.offset,
            len: self.len,
            bytes: &self.buffer,
            bad: &self.bad,
        }
    }
}

/// Reads some pages beside such a reading, with the same patience for bad ones.
pub(crate) fn read_pages(engine: &mut Engine, device: &Device, offset: u64, len: usize) -> Result<Pages> {
    let mut bad = Vec::new();
    let read = device.read(engine, offset, len);
    let whole = read.as_ref().is_ok_and(|buffer| buffer.len() == len);
    let buffer = match read {
        Ok(buffer) if whole || offset + buffer.len() as u64 >= device.size()? => buffer,
        Ok(mut buffer) => {
            read_singly(engine, device, offset, len, &mut buffer, &mut bad)?;
            buffer
        }
        Err(error) if error.is_the_devices() => {
            let no_memory = || Error::new("read", device.name(), Fault::NoMemory { asked: len as u64 });
            let mut buffer = engine.buffer(len).ok_or_else(no_memory)?;
            read_singly(engine, device, offset, len, &mut buffer, &mut bad)?;
            buffer
        }
        Err(error) => return Err(error),
    };
    Ok(Pages {
        offset,
        len,
        buffer,
        bad,
    })
}

/// Page by page: which of them the device cannot read.
///
/// # Errors
/// What is not the device's: no memory, or a broken engine.
fn read_singly(
    engine: &mut Engine,
    device: &Device,
    offset: u64,
    len: usize,
    into: &mut Buffer,
    bad: &mut Vec<BadPage>,
) -> Result<()> {
    into.set_len(len);
    for number in 0..len / PAGE_BYTES {
        let at = number * PAGE_BYTES;
        match device.read(engine, offset + at as u64, PAGE_BYTES) {
            Ok(page) if page.len() == PAGE_BYTES => into[at..at + PAGE_BYTES].copy_from_slice(&page),
            Ok(_) => bad.push((number, Errno::EIO)),
            Err(error) if error.is_the_devices() => bad.push((number, error.errno().unwrap_or(Errno::EIO))),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One read under way.
struct Flight {
    id: RequestId,
    offset: u64,
    len: usize,
    ended: Option<Completion>,
}

/// The memory and the requests of a reading.
struct Reads<'a> {
    device: &'a Device,
    spare: Vec<Buffer>,
    flights: VecDeque<Flight>,
    /// Others use the engine.
    shared: bool,
    /// Where the file has holes, there is nothing to be shown.
    skip_holes: bool,
}

/// Reads `len` bytes from `offset` on and shows them in order, in chunks of whole units (a power of two of bytes, at least a
/// page).
///
/// # Errors
/// What `visit` says; no memory at all; the engine is broken.
pub(crate) fn read_all(
    engine: &mut Engine,
    device: &Device,
    (offset, len): (u64, u64),
    unit: usize,
    visit: &mut dyn FnMut(&mut Engine, &Chunk<'_>) -> Result<()>,
) -> Result<()> {
    read_by(engine, device, (offset, len), unit, false, visit)
}

/// The same without units that lie in holes of the file, all zeroes: a sparse volume is read as far as it was written.
///
/// # Errors
/// As [`read_all`].
pub(crate) fn read_written(
    engine: &mut Engine,
    device: &Device,
    range: (u64, u64),
    unit: usize,
    visit: &mut dyn FnMut(&mut Engine, &Chunk<'_>) -> Result<()>,
) -> Result<()> {
    read_by(engine, device, range, unit, true, visit)
}

fn read_by(
    engine: &mut Engine,
    device: &Device,
    (offset, len): (u64, u64),
    unit: usize,
    skip_holes: bool,
    visit: &mut dyn FnMut(&mut Engine, &Chunk<'_>) -> Result<()>,
) -> Result<()> {
    let mut reads = Reads {
        device,
        spare: Vec::new(),
        flights: VecDeque::new(),
        shared: engine.in_flight() + engine.completed() > 0,
        skip_holes,
    };
    let read_bytes = reads.take_memory(engine, len, unit)?;
    let read = reads.run(engine, (offset, offset.saturating_add(len)), (read_bytes, unit), visit);
    reads.end(engine);
    read
}

impl Reads<'_> {
    /// Takes the buffers; returns how many bytes each has.
    fn take_memory(&mut self, engine: &Engine, len: u64, unit: usize) -> Result<usize> {
        let all = usize::try_from(len).unwrap_or(READ_BYTES).min(READ_BYTES);
        let mut bytes = all.next_power_of_two().max(unit);
        let left = engine.buffer(LEFT_BYTES);
        loop {
            match engine.buffer(bytes) {
                Some(buffer) => {
                    self.spare.push(buffer);
                    break;
                }
                None if bytes > unit => bytes /= 2,
                None => {
                    let asked = bytes as u64;
                    return Err(Error::new("read", self.device.name(), Fault::NoMemory { asked }));
                }
            }
        }
        let wanted = len.div_ceil(bytes as u64).min(DEPTH as u64) as usize;
        while !self.shared && self.spare.len() < wanted && engine.arena().free_bytes() > engine.arena().size() / 2 {
            let Some(buffer) = engine.buffer(bytes) else { break };
            self.spare.push(buffer);
        }
        drop(left);
        Ok(bytes)
    }

    fn run(
        &mut self,
        engine: &mut Engine,
        (begin, end): (u64, u64),
        (read_bytes, unit): (usize, usize),
        visit: &mut dyn FnMut(&mut Engine, &Chunk<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut next = begin;
        loop {
            next = self.written_from(next, begin, unit as u64).min(end);
            while next < end {
                let Some(buffer) = self.spare.pop() else {
                    break;
                };
                let len = (end - next).min(read_bytes as u64) as usize;
                if !self.submit(engine, next, len, buffer)? {
                    break;
                }
                next = self.written_from(next + len as u64, begin, unit as u64).min(end);
            }
            let Some((flight, completion)) = self.first(engine)? else {
                return Ok(());
            };
            self.show(engine, &flight, completion, visit)?;
        }
    }

    /// The first unit from `next` on that is not all hole.
    fn written_from(&self, next: u64, begin: u64, unit: u64) -> u64 {
        if !self.skip_holes {
            return next;
        }
        // Who cannot tell has data everywhere.
        let data = self
            .device
            .file
            .next_data(next)
            .unwrap_or(Some(next))
            .unwrap_or(u64::MAX);
        next.max(begin + data.saturating_sub(begin) / unit * unit)
    }

    /// Starts a read; false if the engine has no slot for it now.
    fn submit(&mut self, engine: &mut Engine, offset: u64, len: usize, mut buffer: Buffer) -> Result<bool> {
        buffer.set_len(len);
        let policy = self.device.policy(Durability::None);
        let request = Request::read(&self.device.file, offset, buffer, policy);
        let flight = |id, ended| Flight { id, offset, len, ended };
        if self.shared {
            let completion = engine.run(request);
            self.flights.push_back(flight(completion.id, Some(completion)));
            return Ok(true);
        }
        match engine.submit_reserved(request) {
            Ok(id) => self.flights.push_back(flight(id, None)),
            Err(back) => {
                self.spare.extend(back.memory.into_buffer());
                if self.flights.is_empty() {
                    return Err(Error::new("read", self.device.name(), baio_engine::Error::Full).at(offset));
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for the first of those under way.
    fn first(&mut self, engine: &mut Engine) -> Result<Option<(Flight, Completion)>> {
        while let Some(front) = self.flights.front_mut() {
            if let Some(completion) = front.ended.take() {
                return Ok(self.flights.pop_front().map(|flight| (flight, completion)));
            }
            if !self.collect(engine) {
                engine
                    .turn(Wait::one())
                    .map_err(|error| Error::new("read", self.device.name(), error))?;
            }
        }
        Ok(None)
    }

    /// Takes the completions that are there. Nobody else has any.
    fn collect(&mut self, engine: &mut Engine) -> bool {
        let mut any = false;
        while let Some(completion) = engine.next_completion() {
            any = true;
            if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == completion.id) {
                flight.ended = Some(completion);
            }
        }
        any
    }

    fn show(
        &mut self,
        engine: &mut Engine,
        flight: &Flight,
        completion: Completion,
        visit: &mut dyn FnMut(&mut Engine, &Chunk<'_>) -> Result<()>,
    ) -> Result<()> {
        let result = completion.result;
        let Some(mut buffer) = completion.memory.into_buffer() else {
            return Err(Error::new("read", self.device.name(), baio_engine::Error::Indeterminate).at(flight.offset));
        };
        let mut bad = Vec::new();
        match result {
            // What lies behind the end of the device is no page; before it, a read that stops has met a bad one.
            Ok(got) if (got as usize) < flight.len && flight.offset + u64::from(got) < self.device.size()? => {
                self.device.note_unread(flight.offset + u64::from(got), Errno::EIO);
                read_singly(engine, self.device, flight.offset, flight.len, &mut buffer, &mut bad)?;
            }
            Ok(got) => buffer.set_len(got as usize),
            Err(baio_engine::Error::System(errno)) => {
                self.device.note_unread(flight.offset, errno);
                read_singly(engine, self.device, flight.offset, flight.len, &mut buffer, &mut bad)?;
            }
            Err(error) => return Err(Error::new("read", self.device.name(), error).at(flight.offset)),
        }
        let chunk = Chunk {
            offset: flight.offset,
            len: flight.len,
            bytes: &buffer,
            bad: &bad,
        };
        let seen = visit(engine, &chunk);
        self.spare.push(buffer);
        seen
    }

    /// Whatever happened: what is under way ends before its memory is somebody else's.
    fn end(&mut self, engine: &mut Engine) {
        while self.flights.iter().any(|flight| flight.ended.is_none()) {
            if !self.collect(engine) && engine.turn(Wait::one()).is_err() {
                for flight in self.flights.iter().filter(|flight| flight.ended.is_none()) {
                    engine.abandon(flight.id);
                }
                return;
            }
        }
    }
}
