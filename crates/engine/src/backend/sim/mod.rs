//! A simulated machine: virtual time, choices that follow from a seed, and disks in memory that take their time, fail as
//! disks do, and record what is done to them. It is always compiled and public, so that users can test their own formats
//! with it; `docs/inside/simulation.md` tells how, and what is not simulated.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | the machine: which event is next |
//! | [`disk`] | a disk: bytes, record, faults, power |
//! | `cache.rs` | what of it a power cut takes |
//! | [`profile`] | how long it takes: instant, flash, rotating |
//! | [`faults`] | what goes wrong, and when |
//! | `execute.rs` | what one iteration does |
//! | [`log`], [`crash`] | the record, and every crash that can be cut from it |
//! | `trace.rs` | one number for all that happened |
//!
//! An iteration reaches its disk when it is started (later, with [`Fault::Delay`]), waits there until the profile begins it,
//! and moves its bytes in the moment in which it ends. A write is recorded then, for then it has reached the disk's cache;
//! a flush covers the writes that had ended when it reached the disk. A turn jumps to the next event, so time costs nothing.
//!
//! # A format of your own, through every power cut
//!
//! A value of four bytes is kept in two sectors in turn, with its number and a check word; opening takes the newest that is
//! whole. Whatever moment the power fails at, what was acknowledged must be found again.
//!
//! ```
//! use baio_engine::sim::{Disk, Sim};
//! use baio_engine::{Config, Durability, Engine, Error, File, Policy, Request};
//!
//! fn engine(seed: u64) -> Engine {
//!     let config = Config { slots: 8, arena_bytes: 1 << 20, ..Config::default() };
//!     Engine::simulated(Sim::new(seed).unwrap(), &config).unwrap()
//! }
//!
//! fn save(engine: &mut Engine, file: &File, number: u32, value: u32) -> Result<u32, Error> {
//!     let mut sector = engine.buffer(512).unwrap();
//!     sector.fill(0);
//!     for (at, word) in [number, value, number ^ value ^ 0x5eed].into_iter().enumerate() {
//!         sector[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
//!     }
//!     let policy = Policy::direct().durable(Durability::Data); // Without this the assertion below fails.
//!     engine.run(Request::write(file, u64::from(number % 2) * 512, sector, policy)).result
//! }
//!
//! fn load(engine: &mut Engine, file: &File) -> Option<(u32, u32)> {
//!     let sectors = engine.buffer(1024).unwrap();
//!     let sectors = engine.run(Request::read(file, 0, sectors, Policy::direct())).memory.into_buffer()?;
//!     let word = |at: usize| u32::from_le_bytes(sectors[at..at + 4].try_into().unwrap());
//!     let whole = [0, 512].into_iter().filter(|at| word(*at) ^ word(at + 4) ^ 0x5eed == word(at + 8));
//!     whole.map(|at| (word(at), word(at + 4))).max()
//! }
//!
//! for steps in 0.. {
//!     let disk = Disk::new(4096);
//!     disk.cut_power_after(steps, steps); // After so many steps; what is torn follows from the seed.
//!     let (mut engine1, file, mut acknowledged) = (engine(1), File::simulated(&disk, "mine"), 0);
//!     for number in 1..=10 {
//!         if save(&mut engine1, &file, number, number * 7).is_err() {
//!             break;
//!         }
//!         acknowledged = number;
//!     }
//!     let Some(left) = disk.surviving() else { break }; // The power outlasted the workload: all is tried.
//!     let found = load(&mut engine(2), &File::simulated(&left, "mine"));
//!     let (number, value) = found.unwrap_or_default();
//!     assert!(number >= acknowledged && value == number * 7, "after {steps} steps: {found:?}");
//! }
//! ```

use std::collections::{BTreeMap, VecDeque};

use crate::backend::{Backend, Done, Doorbell, Explain};
use crate::error::{Errno, Error, SetupError};
use crate::policy::Time;
use crate::request::{Op, RequestId, Wait};
use crate::slot::{Slots, Work};

mod cache;
pub mod crash;
pub mod disk;
mod execute;
pub mod faults;
mod job;
pub mod log;
mod pages;
pub mod profile;
mod random;
mod trace;

pub use disk::Disk;
pub use faults::{Fault, FaultCounts, Faults, Injected, Trigger};
pub use profile::{Flash, Profile, Rotating};
pub use random::Random;
pub use trace::SimHandle;

use job::Job;
use profile::{Busy, Mechanism};
use trace::Event;

const NAME: &str = "sim";

/// How much virtual time a turn takes when nothing is waited for.
const TICK_NS: u64 = 1000;

/// Of the running requests that are cancelled, the device gives up one in so many.
const CANCELS_ONE_IN: u64 = 4;

/// When something happens; of two at one time, the one that was planned first comes first.
type Moment = (Time, u64);

/// The simulated backend.
pub struct Sim {
    now: Time,
    /// Identities, and everything else: two streams, so that a plan of faults changes no identity.
    identities: Random,
    dice: Random,
    finished: Vec<(RequestId, i32)>,
    plans: BTreeMap<Moment, Planned>,
    planned: u64,
    /// Where each running request is, by slot.
    places: Vec<Option<(RequestId, Place)>>,
    stations: Vec<Station>,
    jobs: u64,
    trace: SimHandle,
    doorbell: Doorbell,
}

/// A disk as this machine has it.
struct Station {
    disk: Disk,
    profile: Profile,
    mechanism: Box<dyn Mechanism>,
    /// How many mechanisms it had before this one.
    before: u32,
    queue: VecDeque<Job>,
}

impl Station {
    /// Its owner may have given it another profile: what waits is this one's from now on, and what has begun ends when it was
    /// said to end.
    fn follow_profile(&mut self) {
        let profile = self.disk.profile();
        if profile != self.profile {
            self.profile = profile;
            self.mechanism = profile.mechanism(self.disk.size());
            self.before += 1;
            self.queue.iter_mut().for_each(|job| self.mechanism.arrived(job));
        }
    }
}

enum Planned {
    Timer(RequestId),
    /// A job was delayed, and reaches its disk.
    Arrival(usize, Job),
    /// What this mechanism of the disk has begun.
    End(usize, u32, Busy),
}

#[derive(Clone, Copy)]
enum Place {
    Planned(Moment),
    Queue(usize),
}

impl Sim {
    /// A machine whose choices follow from `seed`.
    ///
    /// # Errors
    /// When the doorbell's event fd cannot be made.
    pub fn new(seed: u64) -> Result<Sim, SetupError> {
        Ok(Sim {
            now: Time(0),
            identities: Random(seed),
            dice: Random(!seed),
            finished: Vec::new(),
            plans: BTreeMap::new(),
            planned: 0,
            places: Vec::new(),
            stations: Vec::new(),
            jobs: 0,
            trace: SimHandle::new(),
            doorbell: Doorbell::new()?,
        })
    }

    /// A view on this machine that stays when an engine owns it.
    #[must_use]
    pub fn handle(&self) -> SimHandle {
        self.trace.clone()
    }

    fn start_one(&mut self, slots: &mut Slots, id: RequestId) {
        let work = slots.begin(id);
        if let Work::Timer { at } = work {
            self.plan(at, Planned::Timer(id));
            return;
        }
        self.jobs += 1;
        match execute::prepare(slots, id, work, self.jobs, self.now) {
            Err(raw) => self.finish(id, raw),
            Ok((disk, mut job)) => {
                let tries = slots.iterations(id);
                let delay = self.strike(&disk, &mut job, tries);
                let station = self.station(&disk);
                self.trace
                    .note(Event::Start, [id.to_bits(), station as u64, job.offset, job.len]);
                execute::begin(&disk, &mut job);
                match delay {
                    Some(at) => self.plan(at, Planned::Arrival(station, job)),
                    None => self.arrive(slots, station, job),
                }
            }
        }
    }

    /// What will go wrong with it, and when it reaches its disk if that is later.
    fn strike(&mut self, disk: &Disk, job: &mut Job, tries: u16) -> Option<Time> {
        let (dice, range, kind) = (&mut self.dice, job.range(), job.kind);
        job.strike = disk.with_plan(|plan| plan.strike(kind, &range, tries, dice));
        let delay = disk.with_plan(|plan| {
            let delay = plan.delay(kind, &range, dice)?;
            plan.count(Fault::Delay);
            Some(delay)
        })?;
        let at = self.now.after(delay);
        self.trace.note(Event::Delay, [at.0, 0, 0, 0]);
        Some(at)
    }

    fn station(&mut self, disk: &Disk) -> usize {
        let known = self.stations.iter().position(|station| station.disk.id() == disk.id());
        known.unwrap_or_else(|| {
            let profile = disk.profile();
            self.stations.push(Station {
                disk: disk.clone(),
                profile,
                mechanism: profile.mechanism(disk.size()),
                before: 0,
                queue: VecDeque::new(),
            });
            self.stations.len() - 1
        })
    }

    fn arrive(&mut self, slots: &mut Slots, at: usize, mut job: Job) {
        job.arrived = self.now;
        let id = job.id;
        let station = &mut self.stations[at];
        station.follow_profile();
        station.mechanism.arrived(&mut job);
        station.queue.push_back(job);
        self.put(id, Some(Place::Queue(at)));
        self.dispatch(slots, at);
    }

    /// Lets a disk begin what it can.
    fn dispatch(&mut self, slots: &mut Slots, at: usize) {
        self.stations[at].follow_profile();
        loop {
            let Station {
                mechanism,
                queue,
                before,
                ..
            } = &mut self.stations[at];
            let before = *before;
            let Some((work, end)) = mechanism.next(queue, self.now, &mut self.dice) else {
                return;
            };
            if end <= self.now {
                self.end(slots, at, before, work);
            } else {
                self.plan(end, Planned::End(at, before, work));
            }
        }
    }

    fn end(&mut self, slots: &mut Slots, at: usize, before: u32, work: Busy) {
        let station = &mut self.stations[at];
        if station.before == before {
            station.mechanism.ended(&work);
        }
        let disk = &station.disk;
        if let Busy::Job(job) = work {
            if !job.cancelled {
                let raw = execute::end(disk, slots, &job, &self.trace);
                self.finish(job.id, raw);
            }
        }
    }

    fn finish(&mut self, id: RequestId, raw: i32) {
        self.trace.note(Event::End, [id.to_bits(), raw as u64, 0, 0]);
        self.put(id, None);
        self.finished.push((id, raw));
    }

    fn plan(&mut self, at: Time, planned: Planned) {
        self.planned += 1;
        let moment = (at, self.planned);
        match &planned {
            Planned::Timer(id) => self.put(*id, Some(Place::Planned(moment))),
            Planned::Arrival(_, job) | Planned::End(_, _, Busy::Job(job)) => {
                self.put(job.id, Some(Place::Planned(moment)));
            }
            Planned::End(_, _, Busy::Own(_)) => {}
        }
        self.plans.insert(moment, planned);
    }

    fn put(&mut self, id: RequestId, place: Option<Place>) {
        let index = id.slot as usize;
        if self.places.len() <= index {
            self.places.resize_with(index + 1, || None);
        }
        self.places[index] = place.map(|place| (id, place));
    }

    /// Lets time pass until `target`; everything happens at its own moment.
    fn pass(&mut self, slots: &mut Slots, target: Time) {
        while let Some(entry) = self.plans.first_entry() {
            let (at, _) = *entry.key();
            if at > target {
                break;
            }
            let planned = entry.remove();
            self.set_now(self.now.max(at));
            match planned {
                Planned::Timer(id) => {
                    self.trace.note(Event::Timer, [id.to_bits(), 0, 0, 0]);
                    self.finish(id, -libc::ETIME);
                }
                Planned::Arrival(station, job) => self.arrive(slots, station, job),
                Planned::End(station, before, work) => {
                    self.end(slots, station, before, work);
                    self.dispatch(slots, station);
                }
            }
        }
        self.set_now(self.now.max(target));
    }

    fn set_now(&mut self, now: Time) {
        self.now = now;
        self.trace.set_now(now);
    }

    fn tick(&self) -> Time {
        Time(self.now.0.saturating_add(TICK_NS))
    }

    /// A job is called back before its end: nothing of it happens.
    fn withdraw(&mut self, station: usize, job: &Job) {
        execute::withdraw(&self.stations[station].disk, job);
        self.finish(job.id, -libc::ECANCELED);
    }
}

impl Backend for Sim {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            self.start_one(slots, id);
        }
        queue.len()
    }

    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        done.rang = self.doorbell.silence();
        let began = self.now;
        match wait {
            Wait::Until { deadline, .. } if self.finished.is_empty() && !done.rang => {
                let next = self.plans.first_key_value().map(|((at, _), _)| *at);
                let target = match (next, deadline) {
                    (Some(next), Some(deadline)) => next.min(deadline),
                    (next, deadline) => next.or(deadline).unwrap_or(self.tick()),
                };
                self.pass(slots, target);
                if self.finished.is_empty() && self.now == began {
                    // Whoever only looks again and again lets time pass too.
                    self.pass(slots, self.tick());
                }
            }
            _ => self.pass(slots, self.tick()),
        }
        done.raw.append(&mut self.finished);
        Ok(())
    }

    /// What waits for its disk is called back. What the disk works on, sometimes: as with a real one, whoever cancels has to
    /// wait for the end and look.
    fn cancel(&mut self, _: &Slots, id: RequestId) {
        let place = self.places.get(id.slot as usize).copied().flatten();
        let Some((_, place)) = place.filter(|(known, _)| *known == id) else {
            return;
        };
        self.trace.note(Event::Cancel, [id.to_bits(), 0, 0, 0]);
        match place {
            Place::Queue(at) => {
                let queue = &mut self.stations[at].queue;
                let found = queue.iter().position(|job| job.id == id);
                if let Some(job) = found.and_then(|found| queue.remove(found)) {
                    self.withdraw(at, &job);
                }
            }
            Place::Planned(moment) => match self.plans.remove(&moment) {
                Some(Planned::Timer(id)) => self.finish(id, -libc::ECANCELED),
                Some(Planned::Arrival(at, job)) => self.withdraw(at, &job),
                Some(Planned::End(at, before, Busy::Job(mut job))) => {
                    if self.dice.below(CANCELS_ONE_IN) == 0 {
                        self.withdraw(at, &job);
                        // The disk is busy with it all the same.
                        job.cancelled = true;
                    }
                    self.plans.insert(moment, Planned::End(at, before, Busy::Job(job)));
                }
                Some(planned @ Planned::End(_, _, Busy::Own(_))) => {
                    self.plans.insert(moment, planned);
                }
                None => {}
            },
        }
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn now(&self) -> Time {
        self.now
    }

    fn wall_clock(&self) -> Time {
        self.now
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.identities.fill(bytes);
        Ok(())
    }

    fn explain(&self) -> Explain {
        Explain::named(NAME)
    }

    /// A drop concerns this process alone.
    fn disown(self: Box<Self>) {}

    fn refuses(&self, op: Op) -> Option<Error> {
        (!op.is_for_disks()).then(|| op.unsupported_by(NAME))
    }
}
