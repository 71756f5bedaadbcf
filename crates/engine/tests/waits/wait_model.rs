//! What a wait promises (docs/inside/engine.md rule 9), against random mixtures of requests: a turn returns with as many results as
//! it was asked for, or at the deadline; never does it sleep while something that could be submitted or continued lies there,
//! nor for more than is left.
//!
//! The model is a count: how many results are owed, whoever else waits for ever. A turn for at most as many must not need a
//! deadline that is far away. On the simulation the backend itself looks at what it is told (`lazy.rs`).

mod lazy;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use baio_engine::sim::{Disk, Fault, Faults, Flash, Profile};
use baio_engine::{
    Doorbell, Durability, Engine, File, Memory, Op, Policy, Request, RequestId, Space, Time, Vectored, Wait,
};

use crate::backends::{Bench, FOR_EVER, Random, blank, buffer, policies};
use lazy::{Eye, Lazy};

const STEPS: u64 = 60;
const BLOCKS: u64 = 32;

/// More than a socket takes at a time.
const MUCH: usize = 600_000;

struct Driver {
    name: String,
    engine: Engine,
    random: Random,
    file: File,
    policies: Vec<Policy>,
    /// Sockets and pipes, too.
    streams: bool,
    /// Results that come by themselves, or wait to be taken.
    owed: usize,
    /// What never ends by itself, and whether it is an event.
    standing: Vec<(RequestId, bool)>,
    eye: Arc<Eye>,
    peers: Vec<JoinHandle<()>>,
    kept: Vec<UnixStream>,
    _doorbell: Option<Doorbell>,
}

impl Driver {
    fn submit(&mut self, request: Request) -> RequestId {
        self.engine.submit(request).expect("a slot")
    }

    fn owe(&mut self, request: Request) {
        self.submit(request);
        self.owed += 1;
    }

    fn soon(&mut self) -> Time {
        let micros = self.random.below(3000);
        self.engine.now().after(Duration::from_micros(micros))
    }

    fn policy(&mut self) -> Policy {
        let at = self.random.below(self.policies.len() as u64);
        self.policies[at as usize]
    }

    /// Submits something that ends by itself.
    fn submit_one(&mut self) {
        let (file, offset) = (self.file.clone(), self.random.below(BLOCKS) * 4096);
        let policy = self.policy();
        match self.random.below(if self.streams { 12 } else { 10 }) {
            0 | 1 => {
                // Some of them reach across the end.
                let len = 4096 * (1 + self.random.below(4)) as usize;
                let memory = blank(&self.engine, len);
                self.owe(Request::read(&file, offset, memory, policy));
            }
            2 | 3 => {
                let durability = [Durability::None, Durability::Data][self.random.below(2) as usize];
                let memory = buffer(&self.engine, &[1; 4096]);
                self.owe(Request::write(&file, offset, memory, policy.durable(durability)));
            }
            4 => self.owe(Request::bare(Op::Fence, Some(&file), Policy::direct())),
            5 => {
                let durability = [Durability::Data, Durability::Full][self.random.below(2) as usize];
                self.owe(Request::sync(&file, durability));
            }
            6 => {
                let (len, space) = (4096, Space::Reserve);
                self.owe(Request::bare(
                    Op::Allocate { offset, len, space },
                    Some(&file),
                    Policy::kernel(),
                ));
            }
            7 => {
                let at = self.soon();
                self.owe(Request::bare(Op::Timer { at }, None, Policy::kernel()));
            }
            8 => {
                let mut list = Vectored::with_capacity(1100);
                let byte = buffer(&self.engine, &[4]).freeze();
                (0..1100).for_each(|_| list.push(byte.clone().into()).expect("a part"));
                self.owe(Request::write(&file, offset, Memory::Many(list), Policy::kernel()));
            }
            9 => {
                // An overdue one is told twice: at once, and when the backend has let go of it.
                let mut request = self.far_timer();
                request.policy.deadline = Some(self.soon());
                self.owe(request);
                self.owed += 1;
            }
            10 => self.dialogue(),
            _ => self.transfer(),
        }
    }

    fn far_timer(&self) -> Request {
        let at = self.engine.now().after(1000 * FOR_EVER);
        Request::bare(Op::Timer { at }, None, Policy::kernel())
    }

    fn dialogue(&mut self) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_nonblocking(self.random.below(2) == 0).expect("a socket");
        let ours = File::from_fd(ours.into(), "a socket").expect("a socket");
        let (message, answer) = (blank(&self.engine, MUCH), blank(&self.engine, 16));
        self.owe(Request::send(&ours, message));
        self.owe(Request::receive(&ours, answer));
        self.peers.push(std::thread::spawn(move || {
            theirs.read_exact(&mut vec![0; MUCH]).expect("the message");
            theirs.write_all(b"answer").expect("a socket");
        }));
    }

    fn transfer(&mut self) {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let target = File::from_fd(writer.into(), "a pipe").expect("a pipe");
        let (file, window) = (self.file.clone(), blank(&self.engine, 8192));
        let len = BLOCKS * 4096;
        self.owe(Request::transfer(&file, 0, len, &target, window, Policy::kernel()));
        self.peers.push(std::thread::spawn(move || {
            reader.read_to_end(&mut Vec::new()).expect("the bytes");
        }));
    }

    /// Something that never ends by itself begins, or is ended.
    fn stand(&mut self) {
        if self.standing.len() < 4 {
            let request = match self.random.below(if self.streams { 3 } else { 2 }) {
                0 => Request::event(),
                1 => self.far_timer(),
                _ => {
                    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
                    ours.set_nonblocking(self.random.below(2) == 0).expect("a socket");
                    self.kept.push(theirs);
                    let ours = File::from_fd(ours.into(), "a socket").expect("a socket");
                    Request::receive(&ours, blank(&self.engine, 16))
                }
            };
            let is_event = request.op == Op::Event;
            self.eye.events.fetch_add(usize::from(is_event), Ordering::Relaxed);
            let id = self.submit(request);
            self.standing.push((id, is_event));
        } else {
            let at = self.random.below(self.standing.len() as u64) as usize;
            let (id, is_event) = self.standing.swap_remove(at);
            self.eye.events.fetch_sub(usize::from(is_event), Ordering::Relaxed);
            match self.random.below(2) {
                0 => self.engine.cancel(id),
                _ => self.engine.abandon(id),
            }
            self.owed += 1;
        }
    }

    fn turn(&mut self) {
        let begun = self.engine.now();
        let far = begun.after(FOR_EVER);
        let owed = self.owed as u64;
        let (count, min_wait, deadline) = match self.random.below(6) {
            0 => {
                self.engine.turn(Wait::No).expect("a turn");
                return;
            }
            // Perhaps more than will ever come.
            1 => (self.random.below(owed + 8), Duration::ZERO, self.soon()),
            2 if owed > 0 => (1 + self.random.below(owed), Duration::from_millis(1), far),
            _ if owed > 0 => (1 + self.random.below(owed), Duration::ZERO, far),
            _ => return,
        };
        let (count, min) = (count as usize, min_wait);
        let wait = Wait::Until {
            count: count as u32,
            min_wait,
            deadline: Some(deadline),
        };
        let ready = self.engine.turn(wait).expect("a turn");
        let (now, name) = (self.engine.now(), &self.name);
        let told = format!(
            "{name}: {ready} ready, {wait:?}, {} owed, {} in flight",
            self.owed,
            self.engine.in_flight()
        );
        assert!(deadline != far || now < far, "slept for ever: {told}");
        let one_is_enough = !min.is_zero() && ready > 0 && now.since(begun) >= min;
        let enough = count > 0 && ready >= count || one_is_enough;
        let nothing_left = count > 0 && self.engine.in_flight() == 0;
        assert!(enough || now >= deadline || nothing_left, "too early: {told}");
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most {
            if self.engine.next_completion().is_none() {
                break;
            }
            self.owed = self.owed.checked_sub(1).expect("a result that nobody expects");
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            for _ in 0..self.random.below(6) {
                self.submit_one();
            }
            if self.random.below(4) == 0 {
                self.stand();
            }
            self.turn();
            let most = if self.owed > 20 {
                usize::MAX
            } else {
                self.random.below(8) as usize
            };
            self.take(most);
            // A table that is full is another test's business.
            while self.owed > 30 {
                let ready = self.engine.turn(Wait::for_count(1)).expect("a turn");
                self.take(ready);
            }
            let fault = self.eye.fault.get();
            assert_eq!(fault, None, "{}", self.name);
        }
        while self.owed > 0 {
            self.engine.turn(Wait::for_count(self.owed as u32)).expect("a turn");
            self.take(usize::MAX);
        }
        assert_eq!(self.engine.in_flight(), self.standing.len(), "{}", self.name);
        self.peers.into_iter().for_each(|peer| peer.join().expect("a peer"));
    }
}

fn drive(name: String, engine: Engine, file: File, seed: u64, streams: bool, eye: &Arc<Eye>) {
    // On uring that changes how it sleeps.
    let lent = seed.is_multiple_of(2).then(|| engine.doorbell());
    let driver = Driver {
        name,
        policies: policies(&file).collect(),
        engine,
        random: Random(seed),
        file,
        streams,
        owed: 0,
        standing: Vec::new(),
        eye: Arc::clone(eye),
        peers: Vec::new(),
        kept: Vec::new(),
        _doorbell: lent,
    };
    driver.run();
}

#[test]
fn what_has_one_iteration_each_is_slept_for_together() {
    let eye = Arc::new(Eye::default());
    let mut engine = Lazy::engine(1, &eye);
    let disk = Disk::new(BLOCKS * 4096);
    disk.set_profile(Profile::Flash(Flash::default()));
    let file = File::simulated(&disk, "disk");
    for block in 0..8 {
        let memory = blank(&engine, 4096);
        let request = Request::read(&file, block * 4096, memory, Policy::direct());
        engine.submit(request).expect("a slot");
    }
    assert_eq!(engine.turn(Wait::for_count(8)), Ok(8));
    assert_eq!(eye.for_many.load(Ordering::Relaxed), 1, "sleeps for more than one");
}

/// What is queued behind what the backend takes at a time can end there.
#[test]
fn who_waits_for_two_does_not_get_one_because_the_queue_ran_dry() {
    let eye = Arc::new(Eye::default());
    eye.at_once.store(1, Ordering::Relaxed);
    let mut engine = Lazy::engine(1, &eye);
    let now = engine.now();
    let timer = |at| Request::bare(Op::Timer { at }, None, Policy::kernel());
    let mut overdue = timer(now.after(FOR_EVER));
    overdue.policy.deadline = Some(now);
    for request in [timer(now.after(Duration::from_millis(5))), overdue] {
        engine.submit(request).expect("a slot");
    }
    assert_eq!(engine.turn(Wait::for_count(2)), Ok(2));
}

#[test]
fn every_mixture_is_waited_for_on_a_simulated_disk() {
    let mut slept_for_many = 0;
    for seed in 1..=300 {
        let eye = Arc::new(Eye::default());
        eye.at_once.store(seed as usize % 4, Ordering::Relaxed);
        // It ends within a block.
        let disk = Disk::new(BLOCKS * 4096 - 512);
        disk.set_profile(Profile::Flash(Flash::default()));
        let faults = [
            Fault::ShortRead,
            Fault::ShortWrite,
            Fault::Interrupted,
            Fault::TryAgain,
            Fault::Delay,
        ];
        let plan = faults
            .into_iter()
            .fold(Faults::none(), |plan, fault| plan.chance(fault, 0.1));
        disk.set_faults(plan.delays(Duration::ZERO..Duration::from_millis(20)));
        let (engine, file) = (Lazy::engine(seed, &eye), File::simulated(&disk, "disk"));
        drive(format!("sim, seed {seed}"), engine, file, seed, false, &eye);
        slept_for_many += eye.for_many.load(Ordering::Relaxed);
    }
    assert!(
        slept_for_many > 1000,
        "only {slept_for_many} sleeps for many: the model looks at nothing"
    );
}

#[test]
fn every_mixture_is_waited_for_on_every_backend() {
    for bench in Bench::each(|row| !["sim", "sync"].contains(&row.name)) {
        for seed in 1..=8 {
            let file = bench.file(&vec![1; BLOCKS as usize * 4096 - 512]);
            let name = format!("{}, seed {seed}", bench.row.name);
            drive(name, bench.engine(), file, seed, true, &Arc::default());
        }
    }
}
