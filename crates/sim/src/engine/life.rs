//! One life of a disk: one engine or several, requests, answers that are checked, and the power cut that ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baio_engine::memory::Region;
use baio_engine::sim::{Disk, Fault, Faults, Flash, Injected, Profile, Random, Rotating, Sim, SimHandle};
use baio_engine::{
    Completion, Engine, EngineOptions, Error, File, Memory, Notice, Request, RequestId, SetupError, Wait,
};

use crate::engine::model::{Model, SECTOR, Word, is_filled};
use crate::engine::report::{Report, Tale};
use crate::engine::request::{Asked, Does, SECTORS_MAX, choose};
use crate::engine::weak::Swallowing;
use crate::engine::{DISK_BYTES, Plan, Weakening};

mod judge;

use judge::tell_wrong;

/// Pieces of shared memory, with guards around each.
const PIECES: usize = 16;
const PIECE: usize = SECTORS_MAX as usize * SECTOR;
const GUARD: usize = 512;
const GUARD_BYTE: u8 = 0xc3;

/// What a block is used for by requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read(u32),
    Write,
}

pub(crate) struct Life {
    seed: u64,
    random: Random,
    weakening: Option<Weakening>,
    /// All on one machine.
    engines: Vec<Engine>,
    handle: SimHandle,
    disk: Disk,
    file: File,
    is_healthy: bool,
    region: Arc<Region>,
    free_pieces: Vec<usize>,
    model: Model,
    blocks: Vec<Use>,
    asked: Vec<Asked>,
    /// Of each request: which engine has it, and what that one calls it.
    ids: Vec<(usize, RequestId)>,
    /// The tags of what is in flight.
    in_flight: Vec<usize>,
    failed_flushes: u64,
    is_poisoned: bool,
    scratch: Vec<u8>,
    report: Report,
    told: u64,
}

impl Life {
    pub(crate) fn begin(plan: &Plan, seed: u64, left: Option<Disk>) -> Result<Life, String> {
        let mut random = Random::from(&[seed]);
        let first = Sim::new(random.bits()).map_err(|error| error.to_string())?;
        let handle = first.handle();
        let mut sims = vec![first];
        for _ in 1..plan.engines {
            sims.push(sims[0].beside().map_err(|error| error.to_string())?);
        }
        let engines: Result<Vec<Engine>, SetupError> = sims.into_iter().map(|sim| engine_on(plan, sim)).collect();
        let mut engines = engines.map_err(|error| error.to_string())?;
        let disk = left.unwrap_or_else(|| Disk::new(DISK_BYTES));
        disk.set_profile(profile(&mut random));
        let file = File::simulated(&disk, "disk");
        let found = read_all(&mut engines[0], &file)?;
        let faults = faults(&mut random);
        let is_healthy = faults == Faults::none();
        disk.set_faults(faults.listed());
        let region = Region::create(PIECES * (PIECE + 2 * GUARD)).map_err(|error| error.to_string())?;
        if let Some(all) = region.span(0, region.size() as u32) {
            all.copy_in(&vec![GUARD_BYTE; region.size()]);
        }
        Ok(Life {
            seed,
            random,
            weakening: plan.weakening,
            engines,
            handle,
            disk,
            file,
            is_healthy,
            region,
            free_pieces: (0..PIECES).collect(),
            model: Model::of(&found),
            blocks: vec![Use::Read(0); DISK_BYTES as usize / 4096],
            asked: Vec::new(),
            ids: Vec::new(),
            in_flight: Vec::new(),
            failed_flushes: 0,
            is_poisoned: false,
            scratch: vec![0; PIECE + GUARD],
            report: Report::default(),
            told: 0,
        })
    }

    /// Runs so many requests, cuts the power, and returns what is left.
    pub(crate) fn live(mut self, requests: u64, tale: &mut Tale) -> Result<Disk, String> {
        let outcome = self.run(requests);
        let left = outcome.and_then(|()| self.cut_power());
        let end = left.and_then(|left| self.drain().map(|()| left));
        self.report.events = self.handle.events();
        let injected = self.disk.faults_injected();
        for fault in Fault::ALL {
            *self.report.faults.of(fault) = injected.of(fault);
        }
        tale.report.add(&Tale {
            report: self.report,
            ..Tale::default()
        });
        tale.hash = tale.hash.rotate_left(1) ^ self.handle.event_hash();
        tale.told = tale.told.rotate_left(1) ^ self.told;
        end
    }

    fn run(&mut self, requests: u64) -> Result<(), String> {
        while self.report.requests < requests {
            let engine = self.some_engine();
            match self.random.below(100) {
                0..=69 => self.submit(engine)?,
                70..=72 => self.cancel(),
                73..=74 => self.give_up(),
                75 => {
                    self.file.acknowledge_failure();
                    self.is_poisoned = false;
                }
                76..=80 => self.turn(engine, Wait::No)?,
                _ => {
                    let limit = Duration::from_micros(self.random.below(20_000));
                    let deadline = Some(self.engines[engine].now().after(limit));
                    let count = self.random.below(16) as u32;
                    let min_wait = Duration::ZERO;
                    let wait = Wait::Until {
                        count,
                        min_wait,
                        deadline,
                    };
                    self.turn(engine, wait)?;
                }
            }
            self.weaken();
        }
        Ok(())
    }

    fn weaken(&mut self) {
        /// Is the same for no two runs.
        static STEPS: AtomicU64 = AtomicU64::new(0);
        match self.weakening {
            Some(Weakening::SilentDamage) if self.report.requests == 500 => {
                let sector = self.random.below(DISK_BYTES / SECTOR as u64);
                self.disk.poke(sector * SECTOR as u64, &[0xee; SECTOR]);
            }
            Some(Weakening::Undetermined) if STEPS.fetch_add(1, Ordering::Relaxed).is_multiple_of(997) => {
                self.random.bits();
            }
            _ => {}
        }
    }

    /// Whose turn it is: where there is one engine, no choice is made.
    fn some_engine(&mut self) -> usize {
        match self.engines.len() {
            1 => 0,
            many => self.random.below(many as u64) as usize,
        }
    }

    fn submit(&mut self, engine: usize) -> Result<(), String> {
        let version = self.asked.len() as u32 + 1;
        let now = self.engines[engine].now();
        let mut asked = choose(&mut self.random, now, version, self.model.ended());
        if !self.is_free(&asked) {
            return self.turn(engine, Wait::one());
        }
        asked.must_fail = asked.does == Does::Sync && self.is_poisoned;
        let tag = self.asked.len();
        let request = self.request(engine, &mut asked, tag);
        let Ok(id) = self.engines[engine].submit(request) else {
            self.free_pieces.extend(asked.piece);
            return self.turn(engine, Wait::one());
        };
        self.report.requests += 1;
        self.take_blocks(&asked);
        self.asked.push(asked);
        self.ids.push((engine, id));
        self.in_flight.push(tag);
        // A refusal is answered at once.
        self.take(engine)
    }

    fn request(&mut self, engine: usize, asked: &mut Asked, tag: usize) -> Request {
        let memory = if asked.moves_bytes() {
            self.memory(engine, asked)
        } else {
            Memory::None
        };
        Request {
            op: asked.op,
            target: None,
            file: Some(self.file.clone()),
            memory,
            policy: asked.policy,
            tag: tag as u64,
        }
    }

    /// A buffer, or a piece of shared memory between guards; filled for a write, and with something else for a read.
    fn memory(&mut self, engine: usize, asked: &mut Asked) -> Memory {
        let len = asked.bytes();
        let bytes = &mut self.scratch[..len];
        match asked.does {
            Does::Write => {
                for (at, sector) in bytes.chunks_mut(SECTOR).enumerate() {
                    crate::stamp::fill_word(sector, asked.word(asked.sectors.start + at));
                }
            }
            _ => bytes.fill(0x77),
        }
        if self.random.percent(40)
            && let Some(piece) = self.free_pieces.pop()
            && let Some(span) = self.region.span(piece_at(piece), len as u32)
        {
            asked.piece = Some(piece);
            span.copy_in(bytes);
            // Behind a shorter request the rest of the piece is a guard too.
            if let Some(rest) = self.region.span(piece_at(piece) + len as u64, (PIECE - len) as u32) {
                rest.copy_in(&[GUARD_BYTE; PIECE][len..]);
            }
            return Memory::Span(span);
        }
        match self.engines[engine].buffer(len) {
            Some(mut buffer) => {
                buffer.copy_from_slice(bytes);
                Memory::Own(buffer)
            }
            None => Memory::None,
        }
    }

    fn is_free(&self, asked: &Asked) -> bool {
        match asked.does {
            Does::Read => self.blocks[asked.blocks()].iter().all(|&used| used != Use::Write),
            Does::Write | Does::Zero => self.blocks[asked.blocks()].iter().all(|&used| used == Use::Read(0)),
            Does::Reserve | Does::Sync | Does::Nothing => true,
        }
    }

    fn take_blocks(&mut self, asked: &Asked) {
        for used in &mut self.blocks[asked.blocks()] {
            match (asked.does, &mut *used) {
                (Does::Read, Use::Read(readers)) => *readers += 1,
                (Does::Write | Does::Zero, used) => *used = Use::Write,
                _ => {}
            }
        }
    }

    fn give_blocks_back(&mut self, asked: &Asked) {
        for used in &mut self.blocks[asked.blocks()] {
            match (asked.does, &mut *used) {
                (Does::Read, Use::Read(readers)) => *readers -= 1,
                (Does::Write | Does::Zero, used) => *used = Use::Read(0),
                _ => {}
            }
        }
    }

    fn some_tag(&mut self) -> Option<usize> {
        let window = self.ids.len().min(24) as u64;
        (window > 0).then(|| self.ids.len() - 1 - self.random.below(window) as usize)
    }

    fn cancel(&mut self) {
        if let Some(tag) = self.some_tag() {
            let (engine, id) = self.ids[tag];
            self.engines[engine].cancel(id);
        }
    }

    fn give_up(&mut self) {
        if let Some(tag) = self.some_tag() {
            let (engine, id) = self.ids[tag];
            self.engines[engine].abandon(id);
            self.asked[tag].given_up = true;
        }
    }

    fn turn(&mut self, engine: usize, wait: Wait) -> Result<(), String> {
        self.engines[engine].turn(wait).map_err(|error| error.to_string())?;
        self.take(engine)
    }

    fn take(&mut self, engine: usize) -> Result<(), String> {
        self.look_at_faults();
        while let Some(done) = self.engines[engine].next_completion() {
            let tag = done.tag as usize;
            self.fold(engine, &done);
            self.answer(engine, done)
                .map_err(|story| format!("request {tag}: {story}; {:?}", self.asked[tag]))?;
        }
        Ok(())
    }

    /// What the disk has done behind everybody's back.
    fn look_at_faults(&mut self) {
        for injected in self.disk.take_injected() {
            let Injected {
                fault,
                offset,
                len,
                what,
                ..
            } = injected;
            match fault {
                Fault::LostWrite => self.damage(offset, len),
                Fault::Rot => self.damage(offset, 1),
                Fault::Misdirected => {
                    self.damage(offset, len);
                    self.damage(what, len);
                }
                _ => {}
            }
        }
        let failed = self.disk.faults_injected().of(Fault::FailedFlush);
        if failed > self.failed_flushes {
            self.failed_flushes = failed;
            self.model.fail_sync();
            // The file knows when the engine has heard that asked for the flush: with one, that is now.
            self.is_poisoned |= self.engines.len() == 1;
            for &tag in &self.in_flight {
                // What of it had ended before may be gone, or it has ended and nobody has told.
                self.asked[tag].doubtful = true;
            }
        }
    }

    fn damage(&mut self, offset: u64, len: u64) {
        let sectors = offset as usize / SECTOR..((offset + len) as usize).div_ceil(SECTOR);
        for &tag in &self.in_flight {
            let asked = &mut self.asked[tag];
            if asked.changes() && asked.sectors.start < sectors.end && sectors.start < asked.sectors.end {
                asked.damaged.push(sectors.clone());
            }
        }
        self.model.damage(sectors);
    }

    fn fold(&mut self, engine: usize, done: &Completion) {
        let result = match done.result {
            Ok(count) => u64::from(count),
            Err(error) => error.errno().raw() as u64 | 1 << 40,
        };
        let words = [
            done.tag,
            result,
            u64::from(done.bytes_done),
            u64::from(done.iterations),
            self.engines[engine].now().0,
            u64::from(done.notice == Notice::Released),
        ];
        for word in words {
            self.told = (self.told ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
    }

    fn answer(&mut self, engine: usize, done: Completion) -> Result<(), String> {
        let tag = done.tag as usize;
        if (engine, done.id) != self.ids[tag] {
            return Err("it has another's id".into());
        }
        let Some(place) = self.in_flight.iter().position(|&known| known == tag) else {
            return Err(format!("answered once more: {:?} {:?}", done.notice, done.result));
        };
        if done.notice == Notice::Completed {
            if std::mem::replace(&mut self.asked[tag].answered, true) {
                return Err("completed twice".into());
            }
            self.report.completed += 1;
            if done.result == Err(Error::Indeterminate) {
                // The rest comes when the disk has let go of it.
                self.report.indeterminate += 1;
                let deadline = self.asked[tag].policy.deadline;
                let is_due = deadline.is_some_and(|at| at <= self.engines[engine].now());
                return if is_due {
                    Ok(())
                } else {
                    Err("given up before its deadline".into())
                };
            }
        } else {
            self.report.released += 1;
            if !self.asked[tag].answered && !self.asked[tag].given_up {
                return Err("released, and nobody was told why".into());
            }
        }
        self.in_flight.swap_remove(place);
        let mut asked = self.asked[tag].clone();
        self.check_guards(&asked)?;
        self.judge(&mut asked, &done)?;
        self.give_blocks_back(&asked);
        self.free_pieces.extend(asked.piece);
        Ok(())
    }

    /// No byte beside its memory has changed.
    fn check_guards(&mut self, asked: &Asked) -> Result<(), String> {
        let Some(piece) = asked.piece else { return Ok(()) };
        let end = piece_at(piece) + asked.bytes() as u64;
        if self.weakening == Some(Weakening::Overrun)
            && asked.does == Does::Read
            && let Some(span) = self.region.span(end, 1)
        {
            span.copy_in(&[0]);
        }
        // The guard before it; what is left of the piece, as `memory` made it; and the guard behind.
        self.check_guard(piece_at(piece) - GUARD as u64, GUARD)?;
        self.check_guard(end, PIECE - asked.bytes() + GUARD)
    }

    fn check_guard(&mut self, at: u64, len: usize) -> Result<(), String> {
        let bytes = &mut self.scratch[..len];
        let read = self.region.span(at, len as u32).map_or(0, |span| span.copy_out(bytes));
        if read == len && is_filled(bytes, Word::from_le_bytes([GUARD_BYTE; 8])) {
            Ok(())
        } else {
            Err("bytes beside its memory have changed".into())
        }
    }

    /// The power fails now, with requests in flight. The machine itself goes on, so that they can be seen to end.
    fn cut_power(&mut self) -> Result<Disk, String> {
        let left = self.disk.power_cut(self.seed);
        self.report.power_cuts += 1;
        if self.weakening == Some(Weakening::LostAtPowerCut) {
            let block = self.random.below(DISK_BYTES / 4096);
            left.poke(block * 4096, &[0xee; 4096]);
        }
        let mut bytes = vec![0; DISK_BYTES as usize];
        left.read(0, &mut bytes);
        let mut under_way = vec![None; bytes.len() / SECTOR];
        for &tag in &self.in_flight {
            let asked = &self.asked[tag];
            if asked.changes() {
                for sector in asked.sectors.clone() {
                    under_way[sector] = Some(asked.word(sector));
                }
            }
        }
        let checked = self
            .model
            .check_left(&bytes, |sector| under_way[sector])
            .map_err(|wrong| format!("behind the power cut, {}", tell_wrong(&wrong)))?;
        self.report.sectors_checked += checked;
        self.report.sectors_damaged += under_way.len() as u64 - checked;
        Ok(left)
    }

    fn drain(&mut self) -> Result<(), String> {
        for engine in 0..self.engines.len() {
            while self.engines[engine].in_flight() > 0 {
                self.turn(engine, Wait::one())?;
            }
        }
        match self.in_flight.first() {
            Some(&tag) => Err(format!("request {tag} was never answered: {:?}", self.asked[tag])),
            None => Ok(()),
        }
    }
}

fn engine_on(plan: &Plan, sim: Sim) -> Result<Engine, SetupError> {
    let options = EngineOptions {
        slots: 64,
        reserved_slots: 0,
        arena_bytes: 1 << 20,
        ..EngineOptions::default()
    };
    if plan.weakening == Some(Weakening::SwallowedErrors) {
        Engine::with_backend(Box::new(Swallowing(sim)), &options)
    } else {
        Engine::simulated(sim, &options)
    }
}

fn piece_at(piece: usize) -> u64 {
    (piece * (PIECE + 2 * GUARD) + GUARD) as u64
}

fn read_all(engine: &mut Engine, file: &File) -> Result<Vec<u8>, String> {
    let buffer = engine.buffer(DISK_BYTES as usize).ok_or("the arena is used up")?;
    let done = engine.run(Request::read(file, 0, buffer, baio_engine::Policy::direct()));
    if done.result != Ok(DISK_BYTES as u32) {
        return Err(format!("what is left cannot be read: {:?}", done.result));
    }
    let buffer = done.memory.into_buffer().ok_or("a read lost its memory")?;
    Ok(buffer.to_vec())
}

fn profile(random: &mut Random) -> Profile {
    match random.below(10) {
        0..=2 => Profile::Instant,
        3..=6 => Profile::Flash(Flash::default()),
        7 => Profile::Rotating(Rotating::default()),
        _ => Profile::Rotating(Rotating::default().cached(64 << 10)),
    }
}

fn faults(random: &mut Random) -> Faults {
    let mut faults = Faults::none();
    if random.percent(15) {
        return faults;
    }
    let silent = random.percent(25);
    for fault in Fault::ALL {
        let is_silent = matches!(fault, Fault::LostWrite | Fault::Misdirected | Fault::Rot);
        if random.percent(50) && (silent || !is_silent) {
            let most = if is_silent { 5 } else { 40 };
            faults = faults.chance(fault, random.below(most) as f64 / 1000.0);
        }
    }
    if random.percent(15) {
        faults = faults.real_bytes(DISK_BYTES / 2);
    }
    faults
}
