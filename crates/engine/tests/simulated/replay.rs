//! The same seed tells the same story: random mixes of operations on slow, faulty disks run twice, and every completion and
//! every event of the machine is the same.
//!
//! A failure prints the command that replays its seed. `BAIO_SEED=N` runs one seed, `BAIO_SEEDS=N` so many.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backends::{Random, tell};
use baio_engine::sim::{Disk, Fault, Faults, Flash, Profile, Rotating, Sim, SimHandle};
use baio_engine::{
    Caching, Completion, Config, Durability, Engine, Errno, Error, File, Memory, Notice, Op, Patience, Policy, Request,
    RequestId, Space, Wait,
};

const DISK: u64 = 1 << 20;
const STEPS: usize = 400;

/// All that can be seen of a run from outside.
#[derive(Debug, PartialEq, Eq)]
struct Story {
    told: Vec<Told>,
    hash: u64,
    events: u64,
    /// What two power cuts would leave.
    left: Vec<u64>,
    faults: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
struct Told {
    tag: u64,
    notice: Notice,
    result: Result<u32, Error>,
    bytes_done: u32,
    iterations: u16,
    memory: u64,
    at: u64,
}

#[derive(Default)]
struct Counts {
    completed: u64,
    released: u64,
    cancelled: u64,
    indeterminate: u64,
    poisoned: u64,
    events: u64,
}

struct Run {
    random: Random,
    engine: Engine,
    handle: SimHandle,
    disks: Vec<(Disk, File)>,
    ids: Vec<RequestId>,
    patience: Vec<Patience>,
    abandoned: BTreeMap<u64, bool>,
    told: Vec<Told>,
}

fn faults(random: &mut Random) -> Faults {
    let mut faults = Faults::none().delays(Duration::ZERO..Duration::from_millis(3));
    for fault in Fault::ALL {
        if random.below(2) == 0 {
            faults = faults.chance(fault, random.below(100) as f64 / 1000.0);
        }
    }
    if random.below(4) == 0 {
        faults = faults.real_bytes(DISK / 2);
    }
    faults
}

fn profile(random: &mut Random) -> Profile {
    match random.below(4) {
        0 => Profile::Instant,
        1 => Profile::Flash(Flash::default()),
        2 => Profile::Rotating(Rotating::default()),
        _ => Profile::Rotating(Rotating::default().cached(64 << 10)),
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random(seed);
        let sim = Sim::new(seed).expect("a simulation");
        let handle = sim.handle();
        let config = Config {
            slots: 32,
            reserved_slots: 2,
            arena_bytes: 4 << 20,
            ..Config::default()
        };
        let engine = Engine::simulated(sim, &config).expect("an engine");
        let disks = (0..2)
            .map(|_| {
                let disk = Disk::new(DISK);
                disk.set_profile(profile(&mut random));
                disk.set_faults(faults(&mut random));
                let file = File::simulated(&disk, "disk");
                (disk, file)
            })
            .collect();
        Run {
            random,
            engine,
            handle,
            disks,
            ids: Vec::new(),
            patience: Vec::new(),
            abandoned: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=8 => self.submit(),
            9 => self.on_some(Engine::cancel),
            10 => self.abandon(),
            11 => self.turn(Wait::No),
            12 => {
                self.disks[0].1.acknowledge_failure();
            }
            _ => {
                let deadline = Some(self.engine.now().after(Duration::from_micros(self.random.below(5000))));
                let count = self.random.below(4) as u32;
                let min_wait = Duration::from_micros(self.random.below(2) * 100);
                self.turn(Wait::Until {
                    count,
                    min_wait,
                    deadline,
                });
            }
        }
        self.take();
    }

    fn submit(&mut self) {
        let request = self.request().tagged(self.ids.len() as u64);
        let patience = request.policy.patience;
        match self.engine.submit(request) {
            Ok(id) => {
                self.ids.push(id);
                self.patience.push(patience);
            }
            Err(_) => self.turn(Wait::one()),
        }
    }

    fn request(&mut self) -> Request {
        let random = &mut self.random;
        let file = self.disks[random.below(2) as usize].1.clone();
        let len = 512 * (1 + random.below(32)) as usize;
        let offset = random.below((DISK - len as u64) / 512) * 512;
        let now = self.engine.now();
        let policy = Policy {
            caching: if random.below(2) == 0 {
                Caching::Kernel
            } else {
                Caching::Direct
            },
            durability: [Durability::None, Durability::None, Durability::Data, Durability::Full]
                [random.below(4) as usize],
            patience: if random.below(8) == 0 {
                Patience::NoWait
            } else {
                Patience::Wait
            },
            deadline: (random.below(5) == 0).then(|| now.after(Duration::from_micros(random.below(8000)))),
        };
        let kind = random.below(20);
        let byte = random.bits() as u8;
        let after = Duration::from_micros(random.below(3000));
        let range = len as u64;
        match kind {
            0..=6 => self.with_memory(len, byte, |memory| Request::read(&file, offset, memory, policy)),
            7..=13 => self.with_memory(len, byte, |memory| Request::write(&file, offset, memory, policy)),
            14 => Request::bare(Op::Fence, Some(&file), policy),
            15 => Request::bare(Op::SyncRange { offset, len: range }, Some(&file), policy),
            16 => {
                let space = [Space::Reserve, Space::Zero, Space::Discard][byte as usize % 3];
                Request::bare(
                    Op::Allocate {
                        offset,
                        len: range,
                        space,
                    },
                    Some(&file),
                    policy,
                )
            }
            17 => Request::bare(Op::Timer { at: now.after(after) }, None, policy),
            _ => Request::bare(Op::Sync, Some(&file), policy),
        }
    }

    fn with_memory(&self, len: usize, byte: u8, make: impl FnOnce(Memory) -> Request) -> Request {
        let mut buffer = self.engine.buffer(len).expect("room in the arena");
        buffer.fill(byte);
        make(buffer.into())
    }

    fn on_some(&mut self, act: fn(&mut Engine, RequestId)) {
        let window = self.ids.len().min(20) as u64;
        if window > 0 {
            let back = self.random.below(window) as usize;
            act(&mut self.engine, self.ids[self.ids.len() - 1 - back]);
        }
    }

    fn abandon(&mut self) {
        let window = self.ids.len().min(20) as u64;
        if window > 0 {
            let tag = self.ids.len() - 1 - self.random.below(window) as usize;
            self.engine.abandon(self.ids[tag]);
            self.abandoned.insert(tag as u64, true);
        }
    }

    fn turn(&mut self, wait: Wait) {
        self.engine.turn(wait).expect("a turn");
        self.take();
    }

    fn take(&mut self) {
        while let Some(done) = self.engine.next_completion() {
            self.told.push(tell_of(&done, self.engine.now().0));
        }
    }

    fn end(mut self, seed: u64) -> Story {
        while self.engine.in_flight() > 0 {
            self.turn(Wait::one());
        }
        self.check();
        let left = self.disks.iter().flat_map(|(disk, _)| {
            [
                disk.fingerprint(),
                disk.power_cut(seed).fingerprint(),
                disk.power_cut(!seed).fingerprint(),
            ]
        });
        let injected = |fault| {
            self.disks
                .iter()
                .map(|(disk, _)| disk.faults_injected().of(fault))
                .sum()
        };
        Story {
            left: left.collect(),
            faults: Fault::ALL.into_iter().map(injected).collect(),
            hash: self.handle.event_hash(),
            events: self.handle.events(),
            told: self.told,
        }
    }

    /// Every request was answered once: by a completion, or when it was given up by the release of its memory.
    fn check(&self) {
        let mut completed = vec![0; self.ids.len()];
        let mut released = vec![0; self.ids.len()];
        for told in &self.told {
            match told.notice {
                Notice::Completed => completed[told.tag as usize] += 1,
                Notice::Released => released[told.tag as usize] += 1,
            }
            let gives_up = told.result == Err(Error::Indeterminate);
            assert!(!(gives_up && told.notice == Notice::Completed) || told.memory == 0);
            let interrupted = [Errno::EINTR, Errno::EAGAIN].map(|errno| Err(Error::System(errno)));
            if interrupted.contains(&told.result) {
                let patience = self.patience[told.tag as usize];
                assert_eq!(patience, Patience::NoWait, "request {} would have waited", told.tag);
            }
        }
        for tag in 0..self.ids.len() {
            let is_abandoned = self.abandoned.contains_key(&(tag as u64));
            let answers = (completed[tag], released[tag]);
            let legal = match answers {
                (1, 0) => true,
                // Overdue: told at once, and its memory later. Given up: only its memory.
                (1, 1) => true,
                (0, 1) => is_abandoned,
                _ => false,
            };
            assert!(legal, "request {tag} was answered {answers:?}");
        }
    }
}

fn tell_of(done: &Completion, at: u64) -> Told {
    let memory = match &done.memory {
        Memory::Own(buffer) => buffer.iter().fold(1_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }),
        _ => 0,
    };
    Told {
        tag: done.tag,
        notice: done.notice,
        result: done.result,
        bytes_done: done.bytes_done,
        iterations: done.iterations,
        memory,
        at,
    }
}

fn run(seed: u64) -> Story {
    let mut run = Run::new(seed);
    for _ in 0..STEPS {
        run.step();
    }
    run.end(seed)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let one = number("BAIO_SEED");
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAIO_SEEDS").unwrap_or(250),
    };
    let mut counts = Counts::default();
    let mut faults = vec![0; Fault::ALL.len()];
    let mut hashes = Vec::new();
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| (run(seed), run(seed)));
        let replay = || {
            tell(&format!(
                "replay: BAIO_SEED={seed} cargo test -p baio-engine --test simulated replay"
            ))
        };
        let Ok((first, second)) = outcome else {
            replay();
            panic!("seed {seed}");
        };
        if first != second {
            replay();
            let at = first.told.iter().zip(&second.told).position(|(one, two)| one != two);
            let different = at.map(|at| (&first.told[at], &second.told[at]));
            panic!("seed {seed} differs at completion {at:?}: {different:?}");
        }
        hashes.push(first.hash);
        counts.events += first.events;
        for (sum, count) in faults.iter_mut().zip(&first.faults) {
            *sum += count;
        }
        for told in &first.told {
            counts.completed += u64::from(told.notice == Notice::Completed);
            counts.released += u64::from(told.notice == Notice::Released);
            counts.cancelled += u64::from(told.result == Err(Error::Cancelled));
            counts.poisoned += u64::from(matches!(told.result, Err(Error::Poisoned(_))));
            let indeterminate = told.notice == Notice::Completed && told.result == Err(Error::Indeterminate);
            counts.indeterminate += u64::from(indeterminate);
        }
    }
    let injected: Vec<_> = Fault::ALL
        .iter()
        .zip(&faults)
        .map(|(fault, n)| (fault.name(), n))
        .collect();
    tell(&format!(
        "simulated replay: {} seeds, {} events, {} completed, {} released, {} cancelled, {} indeterminate, {} poisoned; \
         last event hash {:016x}; faults {injected:?}",
        hashes.len(),
        counts.events,
        counts.completed,
        counts.released,
        counts.cancelled,
        counts.indeterminate,
        counts.poisoned,
        hashes.last().copied().unwrap_or_default(),
    ));
    if one.is_none() {
        let all = [counts.released, counts.cancelled, counts.indeterminate, counts.poisoned];
        assert!(
            all.iter().chain(&faults).all(|&count| count > 0),
            "something never happened"
        );
        let seeds = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), seeds, "two seeds tell the same story");
    }
}
