//! One machine: its clock, what is planned for when, its disks with a queue each, its dice; and for each engine on it what
//! has ended.
//!
//! Whichever engine lets time pass, lets it pass for all: everything happens in its own moment, and what ends for another
//! engine waits until that engine's next turn, with the bytes that were read. So one device serves all of them: it begins what is in
//! its queue in its own order, a flush covers the writes of all that had ended, and a power cut chooses among the writes of all.

use std::collections::{BTreeMap, VecDeque};

use crate::backend::sim::disk::Disk;
use crate::backend::sim::execute;
use crate::backend::sim::faults::Fault;
use crate::backend::sim::job::{Job, Owner};
use crate::backend::sim::profile::{Busy, Mechanism, Profile};
use crate::backend::sim::random::Random;
use crate::backend::sim::trace::{Event, SimHandle};
use crate::policy::Time;
use crate::request::RequestId;
use crate::slot::{Slots, Work};

/// How much virtual time a turn takes when nothing is waited for.
const TICK_NS: u64 = 1000;

/// Of the running requests that are cancelled, the device gives up one in so many.
const CANCELS_ONE_IN: u64 = 4;

/// When something happens; of two at one time, the one that was planned first comes first.
type Moment = (Time, u64);

pub(crate) struct Machine {
    now: Time,
    /// Identities, and everything else: two streams, so that a plan of faults changes no identity.
    identities: Random,
    dice: Random,
    plans: BTreeMap<Moment, Planned>,
    planned: u64,
    stations: Vec<Station>,
    jobs: u64,
    trace: SimHandle,
    engines: Vec<Resident>,
}

/// An engine as its machine knows it.
#[derive(Default)]
struct Resident {
    /// What has ended since its last turn.
    news: Vec<Outcome>,
    /// Where each running request is, by slot.
    places: Vec<Option<(RequestId, Place)>>,
}

/// How an iteration has ended.
pub(crate) struct Outcome {
    pub(crate) id: RequestId,
    pub(crate) raw: i32,
    /// What was read. They reach the request's memory in its engine's turn, which alone has the slots.
    pub(crate) bytes: Vec<u8>,
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
    Timer(Owner),
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

impl Machine {
    pub(crate) fn new(seed: u64, trace: SimHandle) -> Machine {
        Machine {
            now: Time(0),
            identities: Random(seed),
            dice: Random(!seed),
            plans: BTreeMap::new(),
            planned: 0,
            stations: Vec::new(),
            jobs: 0,
            trace,
            engines: Vec::new(),
        }
    }

    /// Returns its number.
    pub(crate) fn add_engine(&mut self) -> usize {
        self.engines.push(Resident::default());
        self.engines.len() - 1
    }

    pub(crate) fn identify(&mut self, bytes: &mut [u8]) {
        self.identities.fill(bytes);
    }

    pub(crate) fn has_news(&self, engine: usize) -> bool {
        !self.engines[engine].news.is_empty()
    }

    pub(crate) fn take_news(&mut self, engine: usize) -> impl Iterator<Item = Outcome> {
        self.engines[engine].news.drain(..)
    }

    pub(crate) fn start(&mut self, slots: &mut Slots, owner: Owner) {
        let work = slots.begin(owner.id);
        if let Work::Timer { at } = work {
            self.plan(at, Planned::Timer(owner));
            return;
        }
        self.jobs += 1;
        match execute::prepare(slots, owner, work, self.jobs, self.now) {
            Err(raw) => self.finish(owner, raw, Vec::new()),
            Ok((disk, mut job)) => {
                let tries = slots.iterations(owner.id);
                let delay = self.strike(&disk, &mut job, tries);
                let station = self.station(&disk);
                self.trace
                    .note(Event::Start, [owner.to_bits(), station as u64, job.offset, job.len]);
                execute::begin(&disk, &mut job);
                match delay {
                    Some(at) => self.plan(at, Planned::Arrival(station, job)),
                    None => self.arrive(station, job),
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

    fn arrive(&mut self, at: usize, mut job: Job) {
        job.arrived = self.now;
        let owner = job.owner;
        let station = &mut self.stations[at];
        station.follow_profile();
        station.mechanism.arrived(&mut job);
        station.queue.push_back(job);
        self.put(owner, Some(Place::Queue(at)));
        self.dispatch(at);
    }

    /// Lets a disk begin what it can.
    fn dispatch(&mut self, at: usize) {
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
                self.end(at, before, work);
            } else {
                self.plan(end, Planned::End(at, before, work));
            }
        }
    }

    fn end(&mut self, at: usize, before: u32, work: Busy) {
        let station = &mut self.stations[at];
        if station.before == before {
            station.mechanism.ended(&work);
        }
        if let Busy::Job(job) = work {
            if !job.cancelled {
                let (raw, bytes) = execute::end(&station.disk, &job, &self.trace);
                self.finish(job.owner, raw, bytes);
            }
        }
    }

    fn finish(&mut self, owner: Owner, raw: i32, bytes: Vec<u8>) {
        self.trace.note(Event::End, [owner.to_bits(), raw as u64, 0, 0]);
        self.put(owner, None);
        let id = owner.id;
        self.engines[owner.engine].news.push(Outcome { id, raw, bytes });
    }

    fn plan(&mut self, at: Time, planned: Planned) {
        self.planned += 1;
        let moment = (at, self.planned);
        match &planned {
            Planned::Timer(owner) => self.put(*owner, Some(Place::Planned(moment))),
            Planned::Arrival(_, job) | Planned::End(_, _, Busy::Job(job)) => {
                self.put(job.owner, Some(Place::Planned(moment)));
            }
            Planned::End(_, _, Busy::Own(_)) => {}
        }
        self.plans.insert(moment, planned);
    }

    fn put(&mut self, owner: Owner, place: Option<Place>) {
        let engine = &mut self.engines[owner.engine];
        let index = owner.id.slot as usize;
        if engine.places.len() <= index {
            engine.places.resize_with(index + 1, || None);
        }
        engine.places[index] = place.map(|place| (owner.id, place));
    }

    /// One engine sleeps: time passes until something happens to anybody, or until `deadline`. Says whether to wake its caller though
    /// nothing may have ended for it.
    pub(crate) fn sleep(&mut self, engine: usize, deadline: Option<Time>) -> bool {
        let (began, known) = (self.now, self.others_with_news(engine));
        let next = self.plans.first_key_value().map(|((at, _), _)| *at);
        let target = match (next, deadline) {
            (Some(next), Some(deadline)) => next.min(deadline),
            (next, deadline) => next.or(deadline).unwrap_or(self.tick()),
        };
        self.pass(target);
        if !self.has_news(engine) && self.now == began {
            // Whoever only looks again and again lets time pass too.
            self.pass_a_tick();
        }
        let only_others_act = next.is_none() && deadline.is_none() && self.engines.len() > 1;
        only_others_act || self.others_with_news(engine) > known
    }

    /// How many other engines something has ended for.
    fn others_with_news(&self, engine: usize) -> usize {
        let all = self.engines.iter().enumerate();
        all.filter(|(at, other)| *at != engine && !other.news.is_empty())
            .count()
    }

    pub(crate) fn pass_a_tick(&mut self) {
        self.pass(self.tick());
    }

    fn tick(&self) -> Time {
        Time(self.now.0.saturating_add(TICK_NS))
    }

    /// Lets time pass until `target`; everything happens at its own moment.
    fn pass(&mut self, target: Time) {
        while let Some(entry) = self.plans.first_entry() {
            let (at, _) = *entry.key();
            if at > target {
                break;
            }
            let planned = entry.remove();
            self.set_now(self.now.max(at));
            match planned {
                Planned::Timer(owner) => {
                    self.trace.note(Event::Timer, [owner.to_bits(), 0, 0, 0]);
                    self.finish(owner, -libc::ETIME, Vec::new());
                }
                Planned::Arrival(station, job) => self.arrive(station, job),
                Planned::End(station, before, work) => {
                    self.end(station, before, work);
                    self.dispatch(station);
                }
            }
        }
        self.set_now(self.now.max(target));
    }

    fn set_now(&mut self, now: Time) {
        self.now = now;
        self.trace.set_now(now);
    }

    pub(crate) fn cancel(&mut self, owner: Owner) {
        let places = &self.engines[owner.engine].places;
        let place = places.get(owner.id.slot as usize).copied().flatten();
        let Some((_, place)) = place.filter(|(known, _)| *known == owner.id) else {
            return;
        };
        self.trace.note(Event::Cancel, [owner.to_bits(), 0, 0, 0]);
        match place {
            Place::Queue(at) => {
                let queue = &mut self.stations[at].queue;
                let found = queue.iter().position(|job| job.owner == owner);
                if let Some(job) = found.and_then(|found| queue.remove(found)) {
                    self.withdraw(at, &job);
                }
            }
            Place::Planned(moment) => match self.plans.remove(&moment) {
                Some(Planned::Timer(owner)) => self.finish(owner, -libc::ECANCELED, Vec::new()),
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

    /// A job is called back before its end: nothing of it happens.
    fn withdraw(&mut self, station: usize, job: &Job) {
        execute::withdraw(&self.stations[station].disk, job);
        self.finish(job.owner, -libc::ECANCELED, Vec::new());
    }
}
