//! The promise: a request may be abandoned, cancelled or overdue at any moment of its life, wherever in the core it waits, and everything else
//! ends, nothing of it is left over, and the bytes are right.
//!
//! Each kind of request is run once beside nothing, a move, a shrink and a delete, and its turns are counted. Then it is run again for
//! each of them, and given up after that turn. The machine is simulated, so that all runs of a kind are the same up to there. Afterwards the
//! segment is moved, shrunk, read and written everywhere, every slot and frame is asked for, and the core closed.

use std::task::Poll;

use baio_engine::{Durability, Time, Wait};
use baio_storage::{
    Core, Handle, Mode, OperationId, Outcome, Pinning, ResizeOptions, SegmentOp, SegmentRequest, Ticket,
};

use crate::harness::through_cache::{self, B, get, open_cached, put, slow_disk, sync};
use crate::harness::{self, BLOCK, ME, create, open_write, start, sync_request};

const BLOCKS: u64 = 64;
/// What a shrink leaves.
const LEFT: u64 = 40;
/// Frames of the cache; twelve of them may be dirty.
const PAGES: usize = 16;
/// The turn at which the log becomes safe.
const LOG_TURN: usize = 12;
const TURNS_MAX: usize = 4_000;

const OLD: u8 = 1;
const NEW: u8 = 2;
const OTHER: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ReadMiss,
    ReadHit,
    ReadPartial,
    ReadBehindADirectWrite,
    Write,
    WritePart,
    WriteForRoom,
    WriteBehindADirectWrite,
    Durable,
    DurablePart,
    DurableForLog,
    Sync,
    SyncForLog,
    FlushForLog,
    Pin,
    PinNew,
    ChangeForLog,
    DirectRead,
    DirectReadForLog,
    DirectWrite,
    DirectWriteForLog,
    DirectWriteBehindAnother,
    ZeroBehindAWrite,
    FenceBehindWrites,
    FenceForLog,
    /// Overlapping direct writes when the segment is first cached: the first, the second, and the cached read.
    FirstLong,
    FirstShort,
    FirstCached,
}

const KINDS: &[Kind] = &[
    Kind::ReadMiss,
    Kind::ReadHit,
    Kind::ReadPartial,
    Kind::ReadBehindADirectWrite,
    Kind::Write,
    Kind::WritePart,
    Kind::WriteForRoom,
    Kind::WriteBehindADirectWrite,
    Kind::Durable,
    Kind::DurablePart,
    Kind::DurableForLog,
    Kind::Sync,
    Kind::SyncForLog,
    Kind::FlushForLog,
    Kind::Pin,
    Kind::PinNew,
    Kind::ChangeForLog,
    Kind::DirectRead,
    Kind::DirectReadForLog,
    Kind::DirectWrite,
    Kind::DirectWriteForLog,
    Kind::DirectWriteBehindAnother,
    Kind::ZeroBehindAWrite,
    Kind::FenceBehindWrites,
    Kind::FenceForLog,
    Kind::FirstLong,
    Kind::FirstShort,
    Kind::FirstCached,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Move,
    Shrink,
    Delete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Itself,
    Abandoned(usize),
    Cancelled(usize),
    Overdue(Time),
}

fn bit(byte: u8) -> u8 {
    1 << byte
}

struct Run {
    kind: Kind,
    beside: Beside,
    ending: Ending,
    core: Core,
    handle: Handle,
    /// The first block of what is asked.
    at: u64,
    deadline: Option<Time>,
    others: Vec<Ticket>,
    /// What each byte may be: a bit for each value.
    may_be: Vec<u8>,
    free_bytes: usize,
    /// The engine's time at each turn.
    times: Vec<Time>,
}

impl Run {
    fn new(kind: Kind, beside: Beside, ending: Ending) -> Run {
        let mut core = open_cached(&slow_disk(), PAGES);
        create(&mut core, "data", BLOCKS * B);
        let handle = open_write(&mut core, "data");
        put(&mut core, handle, 0, &[OLD; BLOCKS as usize * BLOCK], Mode::Direct);
        let free_bytes = core.engine().arena().free_bytes();
        Run {
            kind,
            beside,
            ending,
            handle,
            // What is cut off is asked for; and what is moved first, and last.
            at: if beside == Beside::Shrink { LEFT - 2 } else { 0 },
            deadline: match ending {
                Ending::Overdue(at) => Some(at),
                _ => None,
            },
            others: Vec::new(),
            may_be: vec![bit(OLD); BLOCKS as usize * BLOCK],
            free_bytes,
            times: Vec::new(),
            core,
        }
    }

    fn what(&self) -> String {
        format!("{:?} beside {:?}, {:?}", self.kind, self.beside, self.ending)
    }

    fn request(&self, op: SegmentOp, byte: u8, len: usize, mode: Mode, durability: Durability) -> SegmentRequest {
        SegmentRequest {
            durability,
            deadline: self.deadline,
            ..through_cache::request(&self.core, self.handle, op, &vec![byte; len], mode)
        }
    }

    fn read(&mut self, block: u64, blocks: usize, mode: Mode) -> Ticket {
        let offset = (self.at + block) * B;
        let request = self.request(SegmentOp::Read { offset }, 0xee, blocks * BLOCK, mode, Durability::None);
        start(&mut self.core, request)
    }

    /// The request itself writes [`NEW`].
    fn write(&mut self, offset: u64, len: usize, mode: Mode, durability: Durability) -> Ticket {
        let offset = self.at * B + offset;
        self.note(offset, len, NEW);
        let request = self.request(SegmentOp::Write { offset }, NEW, len, mode, durability);
        start(&mut self.core, request)
    }

    fn bare(&mut self, op: SegmentOp) -> Ticket {
        let request = SegmentRequest {
            deadline: self.deadline,
            ..SegmentRequest::new(self.handle, op, baio_engine::Memory::None)
        };
        start(&mut self.core, request)
    }

    /// Somebody else's, which ends by itself.
    fn other(&mut self, block: u64, blocks: usize, mode: Mode, durability: Durability) {
        let offset = (self.at + block) * B;
        self.note(offset, blocks * BLOCK, OTHER);
        let request = SegmentRequest {
            deadline: None,
            ..self.request(SegmentOp::Write { offset }, OTHER, blocks * BLOCK, mode, durability)
        };
        let ticket = start(&mut self.core, request);
        self.others.push(ticket);
    }

    fn note(&mut self, offset: u64, len: usize, byte: u8) {
        for cell in &mut self.may_be[offset as usize..][..len] {
            *cell |= bit(byte);
        }
    }

    /// Is there, and safe or not.
    fn cached(&mut self, block: u64, blocks: usize) {
        get(&mut self.core, self.handle, self.at + block, blocks, Mode::Cached);
    }

    fn changed(&mut self, block: u64, blocks: usize) {
        let at = self.at + block;
        put(
            &mut self.core,
            self.handle,
            at,
            &vec![OTHER; blocks * BLOCK],
            Mode::Cached,
        );
        for cell in &mut self.may_be[at as usize * BLOCK..][..blocks * BLOCK] {
            *cell = bit(OTHER);
        }
    }

    /// Is changed, and waits for the log.
    fn gated(&mut self, block: u64) {
        let page = self.at + block;
        let pin = self.core.pin_now(self.handle, page).unwrap();
        self.core.change(&pin, 5).unwrap().fill(OTHER);
        self.core.unpin(pin);
        for cell in &mut self.may_be[page as usize * BLOCK..][..BLOCK] {
            *cell = bit(OTHER);
        }
    }

    fn start(&mut self) -> Ticket {
        use Durability::{Data, None};
        use Mode::{Cached, Direct};
        let is_first = matches!(self.kind, Kind::FirstLong | Kind::FirstShort | Kind::FirstCached);
        if !is_first {
            self.cached(9, 1); // The segment is cached.
        }
        match self.kind {
            Kind::ReadMiss => self.read(0, 6, Cached),
            Kind::ReadHit => {
                self.cached(0, 2);
                self.read(0, 2, Cached)
            }
            Kind::ReadPartial => {
                self.cached(1, 2);
                self.read(0, 6, Cached)
            }
            Kind::ReadBehindADirectWrite => {
                self.other(1, 4, Direct, Data);
                self.read(0, 6, Cached)
            }
            Kind::Write => self.write(B, 4 * BLOCK, Cached, None),
            Kind::WritePart => self.write(B - 100, 2 * BLOCK, Cached, None),
            Kind::WriteForRoom => {
                self.changed(0, 11);
                self.write(11 * B, 8 * BLOCK, Cached, None)
            }
            Kind::WriteBehindADirectWrite => {
                self.other(2, 2, Direct, Data);
                self.write(B, 2 * BLOCK, Cached, None)
            }
            Kind::Durable => self.write(B, 6 * BLOCK, Cached, Data),
            Kind::DurablePart => self.write(B - 100, 2 * BLOCK, Cached, Data),
            Kind::DurableForLog => {
                self.gated(2);
                self.write(2 * B + 10, 100, Cached, Data)
            }
            Kind::Sync | Kind::SyncForLog | Kind::FlushForLog => {
                self.changed(0, 3);
                if self.kind != Kind::Sync {
                    self.gated(2);
                }
                if self.kind == Kind::FlushForLog {
                    return self.core.flush_to(self.handle, 5).unwrap();
                }
                let deadline = self.deadline;
                let request = SegmentRequest {
                    deadline,
                    ..sync_request(self.handle)
                };
                start(&mut self.core, request)
            }
            Kind::Pin | Kind::PinNew => {
                let page = self.at + 1;
                let pinning = if self.kind == Kind::Pin {
                    self.core.pin(self.handle, page)
                } else {
                    // It waits for a direct write.
                    self.other(1, 2, Direct, Data);
                    self.note(page * B, BLOCK, 0);
                    self.core.pin_new(self.handle, page, 0)
                };
                match pinning.unwrap() {
                    Pinning::Coming(ticket) => ticket,
                    Pinning::Held(_) => panic!("it is not there"),
                }
            }
            Kind::ChangeForLog => {
                self.gated(2);
                let sync = start(&mut self.core, sync_request(self.handle));
                self.others.push(sync);
                let pin = self.core.pin_now(self.handle, self.at + 2).unwrap();
                let ticket = self.core.change_later(&pin, 6).unwrap();
                self.core.unpin(pin);
                ticket
            }
            Kind::DirectRead => {
                self.changed(1, 3);
                self.read(0, 5, Direct)
            }
            Kind::DirectReadForLog => {
                self.gated(2);
                self.read(0, 5, Direct)
            }
            Kind::DirectWrite => {
                self.changed(1, 3);
                self.write(0, 5 * BLOCK, Direct, None)
            }
            Kind::DirectWriteForLog => {
                self.gated(2);
                self.write(0, 5 * BLOCK, Direct, Data)
            }
            Kind::DirectWriteBehindAnother => {
                self.other(1, 3, Direct, Data);
                self.write(2 * B, 4 * BLOCK, Direct, None)
            }
            Kind::ZeroBehindAWrite => {
                self.changed(1, 3);
                self.other(2, 3, Direct, Data);
                let (offset, len) = (self.at * B, 5 * B);
                self.note(offset, len as usize, 0);
                self.bare(SegmentOp::Zero { offset, len })
            }
            Kind::FenceBehindWrites | Kind::FenceForLog => {
                if self.kind == Kind::FenceForLog {
                    self.gated(2);
                }
                self.other(0, 4, Direct, None);
                self.other(5, 3, Cached, None);
                self.other(6, 6, Cached, Data);
                self.bare(SegmentOp::Fence)
            }
            Kind::FirstLong | Kind::FirstShort | Kind::FirstCached => self.first(),
        }
    }

    fn first(&mut self) -> Ticket {
        use Durability::{Data, None};
        use Mode::{Cached, Direct};
        let long = if self.kind == Kind::FirstLong {
            Some(self.write(0, 12 * BLOCK, Direct, Data))
        } else {
            self.other(0, 12, Direct, Data);
            Option::None
        };
        let short = if self.kind == Kind::FirstShort {
            Some(self.write(4 * B, BLOCK, Direct, None))
        } else {
            self.other(4, 1, Direct, None);
            Option::None
        };
        self.core.turn(Wait::No).unwrap();
        let deadline = self.deadline.filter(|_| self.kind == Kind::FirstCached);
        let deadline = std::mem::replace(&mut self.deadline, deadline);
        let cached = self.read(15, 1, Cached);
        self.deadline = deadline;
        match long.or(short) {
            Some(ticket) => {
                self.others.push(cached);
                ticket
            }
            Option::None => cached,
        }
    }

    fn begin_beside(&mut self) -> Option<OperationId> {
        let core = &mut self.core;
        match self.beside {
            Beside::Nothing => None,
            Beside::Move => Some(core.begin_move(ME, ME.uid, "data", Some(300)).unwrap()),
            Beside::Shrink => {
                let options = ResizeOptions::to_size(LEFT * B);
                Some(core.begin_resize(ME, ME.uid, "data", &options).unwrap())
            }
            Beside::Delete => Some(core.begin_delete(ME, ME.uid, "data").unwrap()),
        }
    }

    /// Runs until everything has ended; how many turns it took the request.
    fn run(mut self) -> Vec<Time> {
        let ticket = self.start();
        let mut others = std::mem::take(&mut self.others);
        let mut beside = self.begin_beside();
        let mut own = Some(ticket);
        let mut turns = 0;
        while own.is_some() || !others.is_empty() || beside.is_some() || self.core.in_flight() > 0 {
            if own.is_some() {
                self.times.push(self.core.engine().now());
            }
            match self.ending {
                Ending::Abandoned(at) if at == turns && own.is_some() => {
                    self.core.abandon(ticket);
                    own = None;
                }
                Ending::Cancelled(at) if at == turns => self.core.cancel(ticket),
                _ => {}
            }
            if turns == LOG_TURN {
                self.core.set_durable_lsn(6).unwrap();
            }
            let is_idle = self.core.is_engine_idle(); // Nothing would end a sleep: who waits here waits for the log, or for us.
            self.core.turn(if is_idle { Wait::No } else { Wait::one() }).unwrap();
            own = own.filter(|&ticket| !self.has_ended(ticket, true));
            others.retain(|&ticket| !self.has_ended(ticket, false));
            if let Some(answer) = beside.as_ref().and_then(|id| self.core.take_answer(id)) {
                answer.unwrap_or_else(|error| panic!("{}: {error}", self.what()));
                beside = None;
            }
            turns += 1;
            if turns > TURNS_MAX {
                let what = self.what();
                std::mem::forget(self.core); // It would wait for them.
                panic!("{what}: own {own:?}, others {others:?}, beside {beside:?} never end");
            }
        }
        let times = std::mem::take(&mut self.times);
        self.check();
        times
    }

    fn has_ended(&mut self, ticket: Ticket, is_own: bool) -> bool {
        let Poll::Ready(outcome) = self.core.poll(ticket, None) else {
            return false;
        };
        let outcome = outcome.expect("nobody else has taken it");
        self.judge(outcome, is_own);
        true
    }

    fn judge(&mut self, mut outcome: Outcome, is_own: bool) {
        if let Some(pin) = outcome.pin.take() {
            self.core.unpin(pin);
        }
        let is_by_itself = self.ending == Ending::Itself || !is_own;
        let may_be_refused = matches!(self.beside, Beside::Delete | Beside::Shrink) || self.kind == Kind::ChangeForLog;
        if let Err(error) = &outcome.result
            && is_by_itself
            && !may_be_refused
        {
            panic!("{}: {error}", self.what());
        }
        if is_own && outcome.result.is_ok() && self.beside != Beside::Shrink {
            // What has ended well was done, unless somebody else's came over it.
            for cell in &mut self.may_be {
                if *cell & (bit(NEW) | bit(OTHER)) == bit(NEW) {
                    *cell = bit(NEW);
                }
            }
        }
    }

    /// Nothing is left over, and everything goes on.
    fn check(mut self) {
        let what = self.what();
        assert_eq!(
            self.core.engine().arena().free_bytes(),
            self.free_bytes,
            "{what}: memory"
        );
        self.core.set_durable_lsn(6).unwrap(); // It may all have been over before.
        let mut left = match self.beside {
            Beside::Shrink => LEFT,
            _ => BLOCKS,
        };
        if self.beside == Beside::Delete {
            create(&mut self.core, "data", BLOCKS * B);
            self.handle = open_write(&mut self.core, "data");
            self.may_be = vec![bit(0); BLOCKS as usize * BLOCK];
        }
        self.read_all(left, Mode::Cached);
        sync(&mut self.core, self.handle).unwrap();
        self.read_all(left, Mode::Direct);
        let stats = self.core.cache_stats().unwrap();
        assert_eq!(
            stats.frames_free + stats.frames_clean,
            stats.frames,
            "{what}: {stats:?}"
        );
        // Every slot.
        let tickets: Vec<Ticket> = (0..harness::config().slots)
            .map(|nth| {
                let op = SegmentOp::Read {
                    offset: u64::from(nth % 8) * B,
                };
                let request = through_cache::request(&self.core, self.handle, op, &[0; 512], Mode::Cached);
                let started = self.core.start(request);
                started.unwrap_or_else(|_| panic!("{what}: a slot is left over"))
            })
            .collect();
        for ticket in tickets {
            through_cache::end(&mut self.core, ticket).result.unwrap();
        }
        // Every frame, every range.
        self.core.drop_cached(self.handle, 0..BLOCKS).unwrap();
        let stats = self.core.cache_stats().unwrap();
        assert_eq!(stats.frames_free, stats.frames, "{what}: {stats:?}");
        for mode in [Mode::Cached, Mode::Direct] {
            put(&mut self.core, self.handle, 0, &vec![9; left as usize * BLOCK], mode);
        }
        let moving = self.core.begin_move(ME, ME.uid, "data", Some(600)).unwrap();
        self.answer(&moving);
        left /= 2;
        let options = ResizeOptions::to_size(left * B);
        let resizing = self.core.begin_resize(ME, ME.uid, "data", &options).unwrap();
        self.answer(&resizing);
        let now = get(&mut self.core, self.handle, 0, left as usize, Mode::Cached);
        assert_eq!(now, vec![9; left as usize * BLOCK], "{what}");
        assert_eq!(self.core.cache_stats().unwrap().spurious_wakeups, 0, "{what}");
        self.core.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    fn answer(&mut self, id: &OperationId) {
        for _ in 0..TURNS_MAX {
            if let Some(answer) = self.core.take_answer(id) {
                answer.unwrap_or_else(|error| panic!("{}: {error}", self.what()));
                return;
            }
            let is_idle = self.core.in_flight() == 0;
            self.core.turn(if is_idle { Wait::No } else { Wait::one() }).unwrap();
        }
        panic!("{}: a move or a shrink never ends", self.what());
    }

    fn read_all(&mut self, blocks: u64, mode: Mode) {
        let bytes = get(&mut self.core, self.handle, 0, blocks as usize, mode);
        assert_eq!(bytes.len(), blocks as usize * BLOCK);
        for (at, (byte, may_be)) in bytes.iter().zip(&mut self.may_be).enumerate() {
            let is_one = *byte <= OTHER && bit(*byte) & *may_be != 0;
            let what = (self.kind, self.beside, self.ending);
            assert!(is_one, "{what:?}: byte {at} is {byte}, not one of {may_be:#b}");
            *may_be = bit(*byte); // What was found is so from now on.
        }
    }
}

fn has_deadline(kind: Kind) -> bool {
    !matches!(kind, Kind::FlushForLog | Kind::Pin | Kind::PinNew | Kind::ChangeForLog)
}

fn every_step_beside(beside: Beside) {
    let mut runs = 0;
    for &kind in KINDS {
        let times = Run::new(kind, beside, Ending::Itself).run();
        assert!(!times.is_empty());
        for (turn, at) in times.iter().enumerate() {
            Run::new(kind, beside, Ending::Abandoned(turn)).run();
            Run::new(kind, beside, Ending::Cancelled(turn)).run();
            runs += 2;
            if has_deadline(kind) {
                Run::new(kind, beside, Ending::Overdue(*at)).run();
                runs += 1;
            }
        }
    }
    harness::tell(&format!("end_at_every_step: {runs} runs beside {beside:?}"));
}

#[test]
fn beside_nothing() {
    every_step_beside(Beside::Nothing);
}

#[test]
fn beside_a_move() {
    every_step_beside(Beside::Move);
}

#[test]
fn beside_a_shrink() {
    every_step_beside(Beside::Shrink);
}

#[test]
fn beside_a_delete() {
    every_step_beside(Beside::Delete);
}
