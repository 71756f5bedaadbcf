//! One run: the random operations, and the watch over all memory.

#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use baio_engine::memory::CHUNK;
use baio_engine::{
    Arena, Buffer, Completion, Durability, Engine, EngineOptions, Errno, Error, File, Memory, Notice, Op, Policy,
    Request, RequestId, Space, Vectored, Wait,
};

use crate::backends::{Bench, Random, direct};
use crate::hasty;

/// Each buffer holds so many bytes; requests leave at least `TAIL` of them to canaries.
const ROOM: usize = 4 * CHUNK;
const TAIL: usize = 512;
const BUFFERS: usize = 256;
const FILE: u64 = 4 << 20;
const CANARY: u8 = 0xc5;

/// Where engines and their file come from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Backend(&'a Bench),
    Hasty(&'a hasty::Late),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) engines: u64,
    pub(crate) completed: u64,
    pub(crate) cancelled: u64,
    pub(crate) released: u64,
    pub(crate) dropped_in_flight: u64,
    pub(crate) shutdowns: u64,
    pub(crate) forks: u64,
    /// Durable requests that a sync followed.
    pub(crate) followed: u64,
    pub(crate) collided: u64,
    pub(crate) bytes_checked: u64,
}

/// A buffer that nobody may change: it holds the pattern of its seed.
struct Watched {
    buffer: Buffer,
    seed: u64,
}

struct Flight {
    id: RequestId,
    offset: u64,
    reads: bool,
    /// Its end is that of a sync.
    syncs: bool,
    /// It completed without its memory, which comes later.
    answered: bool,
    given_up: bool,
}

pub(crate) struct Run<'a> {
    source: Source<'a>,
    random: Random,
    arena: Arc<Arena>,
    file: File,
    policies: Vec<Policy>,
    unit: u64,
    engine: Option<Engine>,
    flights: HashMap<u64, Flight>,
    watched: Vec<Watched>,
    next: u64,
    counts: Counts,
}

type Checked<T = ()> = Result<T, String>;

impl<'a> Run<'a> {
    pub(crate) fn new(source: Source<'a>, seed: u64) -> Checked<Run<'a>> {
        let mut bytes = vec![0; FILE as usize];
        content(0, &mut bytes);
        let file = match source {
            Source::Backend(bench) => match bench.disk(FILE) {
                Some((disk, _)) => {
                    // So that writes are followed by syncs; other files there are trusted with the flag.
                    disk.ignore_durability();
                    disk.poke(0, &bytes);
                    File::simulated(&disk, "disk")
                }
                None => bench.file(&bytes),
            },
            Source::Hasty(late) => late.file(&bytes),
        };
        let mut policies = vec![Policy::kernel()];
        if let Ok(policy) = direct(&file) {
            // Mostly direct: there the device itself writes the memory.
            policies.extend([policy; 7]);
        }
        let unit = u64::from(file.direct_limits().offset.max(TAIL as u32));
        let arena = Arena::new(BUFFERS * ROOM).map_err(|error| error.to_string())?;
        let mut run = Run {
            source,
            random: Random(seed),
            arena,
            file,
            policies,
            unit,
            engine: None,
            flights: HashMap::new(),
            watched: Vec::new(),
            next: 1,
            counts: Counts::default(),
        };
        run.take_what_came_back();
        run.start_engine();
        Ok(run)
    }

    pub(crate) fn all(mut self, operations: u64) -> Checked<Counts> {
        for operation in 0..operations {
            let step = self.step().and_then(|()| match operation % 500 {
                0 => self.sweep(),
                _ => Ok(()),
            });
            step.map_err(|broken| format!("operation {operation}: {broken}"))?;
        }
        self.replace_engine()?;
        // As long as this takes, anything late could still arrive.
        for _ in 0..200 {
            self.submit();
        }
        self.turn(Wait::for_count(u32::MAX))?;
        self.sweep()?;
        Ok(self.counts)
    }

    fn step(&mut self) -> Checked {
        match self.random.below(1000) {
            0..=529 => self.submit(),
            530..=549 => self.submit_sync(),
            550..=649 => self.cancel(),
            650..=699 => self.abandon(),
            700..=849 => return self.turn(Wait::No),
            850..=919 => return self.turn(Wait::one()),
            920..=969 => return self.take(usize::MAX),
            970..=979 => self.engine().doorbell().ring(),
            980..=989 => return self.replace_engine(),
            990..=996 => return self.shut_down(),
            _ => return self.fork(),
        }
        Ok(())
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().expect("there is always an engine")
    }

    fn start_engine(&mut self) {
        let config = EngineOptions {
            slots: 48,
            reserved_slots: 0,
            arena_bytes: 1 << 18,
            ..EngineOptions::default()
        };
        self.engine = Some(match self.source {
            Source::Backend(bench) => bench.engine_with(&config),
            Source::Hasty(late) => late.engine(&config),
        });
        self.counts.engines += 1;
    }

    fn submit(&mut self) {
        let parts = 1 + self.random.below(8).saturating_sub(5) as usize;
        let mut buffers = Vec::new();
        let most = (ROOM - TAIL) as u64 / self.unit;
        for _ in 0..parts {
            let Some(at) = self.watched.len().checked_sub(1) else {
                break;
            };
            let at = self.random.below(at as u64 + 1) as usize;
            let Watched { mut buffer, seed } = self.watched.swap_remove(at);
            if !is_pattern(&buffer, seed) {
                // Back to where the next sweep finds it, and says so.
                self.watched.push(Watched { buffer, seed });
                break;
            }
            buffer.fill(CANARY);
            buffer.set_len(((1 + self.random.below(most)) * self.unit) as usize);
            buffers.push(buffer);
        }
        let len: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if len == 0 {
            return;
        }
        let offset = self.random.below((FILE - len as u64) / self.unit) * self.unit;
        let reads = self.random.below(8) > 0;
        if !reads {
            // What is there already: so a read never sees anything else, whatever becomes of the write.
            let mut at = offset;
            for buffer in &mut buffers {
                content(at, buffer);
                at += buffer.len() as u64;
            }
        }
        let memory = if buffers.len() == 1 {
            Memory::Own(buffers.remove(0))
        } else {
            let mut list = Vectored::default();
            for buffer in buffers {
                list.push(Memory::Own(buffer)).expect("a buffer is no list");
            }
            Memory::Many(list)
        };
        let mut policy = self.policies[self.random.below(self.policies.len() as u64) as usize];
        if self.random.below(10) == 0 {
            let soon = Duration::from_micros(self.random.below(200));
            policy.deadline = Some(self.engine().now().after(soon));
        }
        let op = match reads {
            true => Op::Read { offset: Some(offset) },
            false => Op::Write { offset: Some(offset) },
        };
        if !reads && self.random.below(8) == 0 {
            policy = policy.durable(Durability::Data);
        }
        let file = self.file.clone();
        if let Source::Hasty(late) = self.source {
            late.expect(&memory, reads);
        }
        let request = Request {
            memory,
            ..Request::bare(op, Some(&file), policy)
        };
        if let Err(back) = self.send(request, offset, reads) {
            if let Source::Hasty(late) = self.source {
                late.forget();
            }
            self.watch_memory(back.memory);
        }
    }

    /// What changes no byte, and ends in a sync.
    fn submit_sync(&mut self) {
        let space = Space::Reserve;
        let (offset, len) = (0, self.unit);
        let op = match self.random.below(4) {
            0 => Op::Sync,
            1 => Op::Fence,
            _ => Op::Allocate { offset, len, space },
        };
        let mut policy = Policy::kernel().durable(Durability::Data);
        if self.random.below(4) == 0 {
            let soon = Duration::from_micros(self.random.below(2000));
            policy.deadline = Some(self.engine().now().after(soon));
        }
        let request = Request::bare(op, Some(&self.file), policy);
        if let Source::Hasty(late) = self.source {
            late.expect(&request.memory, false);
        }
        if self.send(request, 0, false).is_err()
            && let Source::Hasty(late) = self.source
        {
            late.forget();
        }
    }

    fn send(&mut self, request: Request, offset: u64, reads: bool) -> Result<(), Request> {
        let tag = self.next;
        let syncs = request.policy.durability != Durability::None;
        let id = self.engine().submit(request.tagged(tag))?;
        self.next += 1;
        let flight = Flight {
            id,
            offset,
            reads,
            syncs,
            answered: false,
            given_up: false,
        };
        self.flights.insert(tag, flight);
        Ok(())
    }

    fn cancel(&mut self) {
        if let Some(&mut Flight { id, .. }) = self.any_flight() {
            self.engine().cancel(id);
        }
    }

    fn abandon(&mut self) {
        if let Some(Flight { id, given_up, .. }) = self.any_flight() {
            *given_up = true;
            let id = *id;
            self.engine().abandon(id);
        }
    }

    fn any_flight(&mut self) -> Option<&mut Flight> {
        let newest = self.next;
        // Tags are dense and die soon: a few tries find one, or there is hardly any.
        let tags = std::iter::repeat_with(|| newest.saturating_sub(1 + self.random.below(64)));
        let tag = tags.take(4).find(|tag| self.flights.contains_key(tag))?;
        self.flights.get_mut(&tag)
    }

    fn turn(&mut self, wait: Wait) -> Checked {
        self.engine()
            .turn(wait)
            .map_err(|error| format!("a turn failed: {error}"))?;
        let some = self.random.below(16) as usize;
        self.take(some)
    }

    fn take(&mut self, most: usize) -> Checked {
        for _ in 0..most {
            let Some(done) = self.engine().next_completion() else {
                break;
            };
            self.settle(done)?;
        }
        Ok(())
    }

    fn settle(&mut self, done: Completion) -> Checked {
        let tag = done.tag;
        let Some(flight) = self.flights.get_mut(&tag) else {
            return Err(format!("request {tag} was told twice, or never made"));
        };
        if done.id != flight.id {
            return Err(format!("request {tag} was told by another's id"));
        }
        let whole = done.memory.len() as u32;
        match (done.notice, done.result) {
            (Notice::Completed, _) if flight.answered => return Err(format!("request {tag} was completed twice")),
            (Notice::Completed, Err(Error::Indeterminate)) => {
                flight.answered = true;
                return Ok(());
            }
            (Notice::Released, _) if flight.answered || flight.given_up => self.counts.released += 1,
            (Notice::Completed, Err(Error::Cancelled)) => self.counts.cancelled += 1,
            (Notice::Completed, Ok(moved)) if moved == whole => {
                self.counts.completed += 1;
                let (offset, reads) = (flight.offset, flight.reads);
                if reads {
                    self.is_content(offset, &done.memory)
                        .map_err(|why| format!("request {tag}: {why}"))?;
                }
            }
            // Where a direct write meets cached bytes of the same page that are in use, the kernel lets go of neither and gives the
            // file an EIO for the next sync (`dio_warn_stale_pagecache`, mm/filemap.c).
            (Notice::Completed, Err(Error::System(Errno::EIO) | Error::Poisoned(Errno::EIO)))
                if flight.syncs && self.policies.len() > 1 =>
            {
                self.file.acknowledge_failure();
                self.counts.collided += 1;
            }
            (_, other) => return Err(format!("request {tag}: {other:?}")),
        }
        self.flights.remove(&tag);
        self.tails_are_whole(&done.memory)
            .map_err(|why| format!("request {tag}: {why}"))?;
        self.watch_memory(done.memory);
        Ok(())
    }

    fn is_content(&mut self, mut offset: u64, memory: &Memory) -> Checked {
        for buffer in buffers_of(memory) {
            if !holds_content(offset, buffer) {
                return Err(format!(
                    "the read of {} bytes at {offset} has other bytes: its memory changed",
                    buffer.len()
                ));
            }
            offset += buffer.len() as u64;
            self.counts.bytes_checked += buffer.len() as u64;
        }
        Ok(())
    }

    /// Bytes behind the length that was asked for belong to nobody.
    fn tails_are_whole(&mut self, memory: &Memory) -> Checked {
        for buffer in buffers_of(memory) {
            let len = buffer.len();
            // SAFETY: the bytes up to the capacity are the buffer's own; `Buffer` only hides them by its length.
            let tail = unsafe { std::slice::from_raw_parts(buffer.as_ptr().add(len), ROOM - len) };
            if tail.iter().any(|&byte| byte != CANARY) {
                return Err(format!("a canary behind {len} bytes changed"));
            }
            self.counts.bytes_checked += tail.len() as u64;
        }
        Ok(())
    }

    fn watch_memory(&mut self, memory: Memory) {
        match memory {
            Memory::Own(buffer) => self.watch(buffer),
            Memory::Many(mut list) => {
                let parts: Vec<_> = list.drain().collect();
                parts.into_iter().for_each(|part| self.watch_memory(part));
            }
            _ => {}
        }
    }

    fn watch(&mut self, mut buffer: Buffer) {
        let seed = self.random.bits();
        buffer.set_len(ROOM);
        fill_pattern(&mut buffer, seed);
        self.watched.push(Watched { buffer, seed });
    }

    fn take_what_came_back(&mut self) {
        while let Some(buffer) = self.arena.buffer(ROOM) {
            self.watch(buffer);
        }
    }

    /// Looks at everything that may not have changed.
    fn sweep(&mut self) -> Checked {
        for watched in &self.watched {
            if !is_pattern(&watched.buffer, watched.seed) {
                return Err("a buffer that had come back changed".into());
            }
        }
        self.counts.bytes_checked += (self.watched.len() * ROOM) as u64;
        Ok(())
    }

    /// The engine goes with whatever is in flight; what it held is watched from that moment on.
    fn replace_engine(&mut self) -> Checked {
        for _ in 0..self.random.below(24) {
            self.submit();
        }
        if self.random.below(2) == 0 {
            self.engine().turn(Wait::No).map_err(|error| error.to_string())?;
        }
        let engine = self.engine.take().expect("there is always an engine");
        self.counts.followed += engine.stats().durable_by_sync;
        self.counts.dropped_in_flight += engine.in_flight() as u64;
        drop(engine);
        self.flights.clear();
        self.take_what_came_back();
        if self.watched.len() != BUFFERS {
            return Err(format!(
                "{} buffers of {BUFFERS} came back from a healthy device",
                self.watched.len()
            ));
        }
        self.start_engine();
        self.sweep()
    }

    /// Without patience: what is in flight stays in flight, and is told later or goes with the engine.
    fn shut_down(&mut self) -> Checked {
        self.counts.shutdowns += 1;
        let engine = self.engine();
        let left = engine.shutdown(Duration::ZERO);
        if left != engine.in_flight() {
            return Err(format!(
                "{left} requests are said to be stuck, and {} are",
                engine.in_flight()
            ));
        }
        Ok(())
    }

    /// The child tries what it must not, and ends; the parent goes on with everything in flight.
    fn fork(&mut self) -> Checked {
        self.counts.forks += 1;
        let some = self.any_flight().map(|flight| flight.id).unwrap_or_default();
        let goes_too = self.random.below(2) == 0;
        // SAFETY: the child has one thread, makes the calls of `in_child` and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a child that hangs is ended by the signal, and the parent says so.
            unsafe { libc::alarm(30) };
            let status = self.in_child(some, goes_too);
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes one int.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if (waited, status) != (child, 0) {
            return Err(format!("a forked child ended with {status:#x}"));
        }
        Ok(())
    }

    fn in_child(&mut self, some: RequestId, goes_too: bool) -> i32 {
        const TAG: u64 = u64::MAX;
        let request = Request::sync(&self.file, Durability::Data).tagged(TAG);
        let engine = self.engine();
        if engine.submit(request).is_ok() {
            let told = std::iter::from_fn(|| engine.next_completion()).find(|done| done.tag == TAG);
            if told.map(|done| done.result) != Some(Err(Error::Forked)) {
                return 1;
            }
        }
        if engine.turn(Wait::No) != Err(Error::Forked) {
            return 2;
        }
        engine.cancel(some);
        engine.abandon(some);
        engine.shutdown(Duration::from_secs(1));
        if goes_too {
            drop(self.engine.take());
        }
        0
    }
}

fn buffers_of(memory: &Memory) -> impl Iterator<Item = &Buffer> {
    let (one, many) = match memory {
        Memory::Own(_) => (Some(memory), &[][..]),
        Memory::Many(list) => (None, list.parts()),
        _ => (None, &[][..]),
    };
    one.into_iter().chain(many).filter_map(|part| match part {
        Memory::Own(buffer) => Some(buffer),
        _ => None,
    })
}

fn word(seed: u64, at: u64) -> [u8; 8] {
    let mixed = (seed ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).to_ne_bytes()
}

/// What the file holds from `offset` on: every eight bytes say where they belong.
pub(crate) fn content(offset: u64, bytes: &mut [u8]) {
    for (at, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(0, 1 + offset / 8 + at as u64));
    }
}

fn holds_content(offset: u64, bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks_exact(8).enumerate();
    chunks.all(|(at, chunk)| chunk == word(0, 1 + offset / 8 + at as u64))
}

fn fill_pattern(bytes: &mut [u8], seed: u64) {
    for (at, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        chunk.copy_from_slice(&word(seed, at as u64));
    }
}

fn is_pattern(bytes: &[u8], seed: u64) -> bool {
    let mut chunks = bytes.chunks_exact(8).enumerate();
    chunks.all(|(at, chunk)| chunk == word(seed, at as u64))
}
