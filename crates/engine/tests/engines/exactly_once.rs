//! Exactly one completion per request, under every order of submitting, cancelling, abandoning and turning that a seed
//! leads to (docs/engine.md rules 1 and 6): nobody is answered twice, nobody is forgotten, all memory comes back.
//!
//! One seed alone: `BAIO_SEED=7 cargo test -p baio-engine --test engines exactly_once`.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::backends::{BACKENDS, Bench, Random, buffer, own, pattern, policies, tell};
use baio_engine::{Completion, Config, Engine, Error, File, Memory, Notice, Op, Policy, Request, RequestId, Wait};

const STEPS: u32 = 3000;
const SEEDS: std::ops::Range<u64> = 100..108;

#[test]
fn every_request_is_answered_exactly_once() {
    for row in BACKENDS {
        let bench = Bench::new(row);
        if let Err(why) = bench.starts() {
            tell(&format!("exactly once {}: does not start here: {why}", row.name));
            continue;
        }
        let seeds: Vec<u64> = match std::env::var("BAIO_SEED") {
            Ok(seed) => vec![seed.parse().expect("a number")],
            Err(_) => SEEDS.collect(),
        };
        let mut counts = Counts::default();
        for seed in seeds {
            eprintln!("{} with BAIO_SEED={seed}", row.name);
            counts.add(&Run::new(&bench, seed).all());
        }
        tell(&format!("exactly once {}: {counts:?}", row.name));
    }
}

/// What the caller of one request has done and been told.
#[derive(Default)]
struct Told {
    abandoned: bool,
    op: Option<Op>,
    has_deadline: bool,
    completed: u32,
    indeterminate: bool,
    released: u32,
}

#[derive(Debug, Default)]
struct Counts {
    submitted: u32,
    refused: u32,
    completed: u32,
    cancelled: u32,
    indeterminate: u32,
    released: u32,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.submitted += other.submitted;
        self.refused += other.refused;
        self.completed += other.completed;
        self.cancelled += other.cancelled;
        self.indeterminate += other.indeterminate;
        self.released += other.released;
    }
}

struct Run {
    engine: Engine,
    random: Random,
    file: File,
    pipe: Option<(File, OwnedFd)>,
    requests: HashMap<u64, (RequestId, Told)>,
    ids: Vec<RequestId>,
    next_tag: u64,
    counts: Counts,
}

const BLOCKS: u64 = 64;

impl Run {
    fn new(bench: &Bench, seed: u64) -> Run {
        let config = Config {
            slots: 24,
            reserved_slots: 4,
            arena_bytes: 1 << 20,
            ..Config::default()
        };
        Run {
            engine: bench.engine_with(&config),
            random: Random(seed),
            file: bench.file(&pattern(seed, BLOCKS as usize * 4096)),
            pipe: bench.pipe().ok(),
            requests: HashMap::new(),
            ids: Vec::new(),
            next_tag: 1,
            counts: Counts::default(),
        }
    }

    fn all(mut self) -> Counts {
        let free = self.engine.arena().free_bytes();
        for _ in 0..STEPS {
            match self.random.below(11) {
                0..=4 => self.submit(),
                5 => self.pick(Engine::cancel),
                6 => self.abandon(),
                7 => self.turn(Wait::No),
                8 => self.sleep(),
                9 => self.take(usize::MAX),
                _ => self.feed(),
            }
            // An untaken completion now and then meets the calls that follow.
            let some = self.random.below(4) as usize;
            self.take(some);
        }
        self.drain();
        assert_eq!(self.engine.in_flight(), 0);
        assert_eq!(self.engine.arena().free_bytes(), free, "memory is missing");
        for (tag, (_, told)) in &self.requests {
            let whole = match (told.completed, told.released) {
                (1, 0) => !told.indeterminate,
                (1, 1) => told.indeterminate && told.has_deadline,
                (0, 1) => told.abandoned,
                _ => false,
            };
            assert!(
                whole,
                "request {tag}: {} completions, {} releases: {:?}",
                told.completed, told.released, told.op
            );
        }
        let stats = self.engine.stats();
        assert_eq!(stats.requests, u64::from(self.counts.submitted));
        assert_eq!(stats.completions, u64::from(self.counts.completed));
        self.counts
    }

    fn submit(&mut self) {
        let tag = self.next_tag;
        let Some(request) = self.request() else { return };
        let has_deadline = request.policy.deadline.is_some();
        let op = request.op;
        let submitted = if self.random.below(8) == 0 {
            self.engine.submit_reserved(request.tagged(tag))
        } else {
            self.engine.submit(request.tagged(tag))
        };
        match submitted {
            Ok(id) => {
                self.next_tag += 1;
                self.counts.submitted += 1;
                self.ids.push(id);
                let told = Told {
                    has_deadline,
                    op: Some(op),
                    ..Told::default()
                };
                assert!(self.requests.insert(tag, (id, told)).is_none());
            }
            Err(back) => {
                self.counts.refused += 1;
                assert_eq!(back.tag, tag);
            }
        }
    }

    fn request(&mut self) -> Option<Request> {
        let policies: Vec<Policy> = policies(&self.file).collect();
        let mut policy = policies[self.random.below(policies.len() as u64) as usize];
        if self.random.below(3) == 0 {
            let after = Duration::from_micros(self.random.below(3000));
            policy.deadline = Some(self.engine.now().after(after));
        }
        let offset = self.random.below(BLOCKS) * 4096;
        let len = (1 + self.random.below(3)) * 4096;
        let timer = Op::Timer {
            at: self.engine.now().after(Duration::from_micros(self.random.below(5000))),
        };
        Some(match self.random.below(12) {
            0..=3 => {
                let memory = self.memory(len)?;
                Request::read(&self.file, offset, memory, policy)
            }
            4..=6 => {
                let memory = self.memory(len)?;
                Request::write(&self.file, offset, memory, policy)
            }
            7 => Request::bare(Op::Sync, Some(&self.file), policy),
            8 => Request::bare(Op::Fence, Some(&self.file), policy),
            9 => Request::bare(timer, None, policy),
            10 => {
                let memory = self.memory(len)?;
                Request::write(&self.file, u64::MAX, memory, policy)
            }
            _ => self.endless(policy)?,
        })
    }

    /// Waits for what only this test will do, or never.
    fn endless(&mut self, mut policy: Policy) -> Option<Request> {
        policy.caching = baio_engine::Caching::Kernel;
        let (file, _) = self.pipe.as_ref()?;
        let poll = Op::Poll {
            events: libc::POLLIN as u32,
        };
        if self.engine.explain().backend == "sync" || self.random.below(2) == 0 {
            return Some(Request::bare(poll, Some(file), policy));
        }
        let op = Op::Read { offset: None };
        let memory = Memory::Own(self.engine.buffer(100)?);
        Some(Request {
            memory,
            ..Request::bare(op, self.pipe.as_ref().map(|(file, _)| file), policy)
        })
    }

    /// Memory whose first bytes name its request, for as long as nothing is read into it.
    fn memory(&mut self, len: u64) -> Option<Memory> {
        if self.engine.arena().free_bytes() < 4 * len as usize {
            return None;
        }
        let mut bytes = vec![0; len as usize];
        bytes[..8].copy_from_slice(&self.next_tag.to_le_bytes());
        Some(Memory::Own(buffer(&self.engine, &bytes)))
    }

    /// Any id ever given, so most are stale.
    fn pick(&mut self, act: fn(&mut Engine, RequestId)) {
        let window = self.ids.len().min(40);
        if window > 0 {
            let at = self.ids.len() - 1 - self.random.below(window as u64) as usize;
            act(&mut self.engine, self.ids[at]);
        }
    }

    fn abandon(&mut self) {
        let window = self.ids.len().min(40);
        if window == 0 {
            return;
        }
        let id = self.ids[self.ids.len() - 1 - self.random.below(window as u64) as usize];
        self.engine.abandon(id);
        let told = self.requests.values_mut().find(|(theirs, _)| *theirs == id);
        told.expect("a known request").1.abandoned = true;
    }

    fn turn(&mut self, wait: Wait) {
        self.engine.turn(wait).expect("a turn");
    }

    /// Not for ever: endless requests may be all there is.
    fn sleep(&mut self) {
        let count = self.random.below(4) as u32;
        let deadline = Some(self.engine.now().after(Duration::from_micros(300)));
        let min_wait = Duration::from_micros(self.random.below(2) * 50);
        if self.random.below(4) == 0 {
            self.engine.doorbell().ring();
        }
        self.turn(Wait::Until {
            count,
            min_wait,
            deadline,
        });
    }

    fn feed(&mut self) {
        if let Some((_, writer)) = &self.pipe {
            let mut writer = std::fs::File::from(writer.try_clone().expect("a pipe"));
            writer.write_all(b"food").expect("a pipe");
        }
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let Some(done) = self.engine.next_completion() else {
                break;
            };
            self.check(done);
        }
    }

    fn check(&mut self, done: Completion) {
        let (id, told) = self.requests.get_mut(&done.tag).expect("a request of ours");
        assert_eq!(done.id, *id, "another request's tag");
        match done.notice {
            Notice::Completed => {
                told.completed += 1;
                self.counts.completed += 1;
                told.indeterminate = done.result == Err(Error::Indeterminate);
                self.counts.indeterminate += u32::from(told.indeterminate);
                self.counts.cancelled += u32::from(done.result == Err(Error::Cancelled));
            }
            Notice::Released => {
                told.released += 1;
                self.counts.released += 1;
            }
        }
        assert!(
            told.completed <= 1 && told.released <= 1,
            "request {} is answered twice",
            done.tag
        );
        if let (Memory::Own(_), false) = (&done.memory, done.iterations > 0) {
            let memory = own(done.memory);
            if memory.len() >= 4096 {
                assert_eq!(memory[..8], done.tag.to_le_bytes(), "another request's memory");
            }
        }
    }

    fn drain(&mut self) {
        self.take(usize::MAX);
        while self.engine.in_flight() > 0 {
            for id in self.ids.iter().rev().take(100) {
                self.engine.cancel(*id);
            }
            self.engine.turn(Wait::one()).expect("a turn");
            self.take(usize::MAX);
        }
    }
}
