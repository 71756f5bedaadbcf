//! Several engines on one machine: one clock, one queue a disk, one power cut.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::backends::{Bench, Random, blank, buffer, bytes_of, finish};
use baio_engine::sim::{Disk, Flash, Profile, Sim, SimHandle};
use baio_engine::{Completion, Durability, Engine, Error, File, Op, Policy, Request, Wait};

const BLOCK: usize = 4096;

/// A disk that serves one at a time, and each in the same time.
fn narrow() -> Profile {
    Profile::Flash(Flash {
        channels: 1,
        jitter_percent: 0,
        ..Flash::default()
    })
}

struct Machine {
    engines: Vec<Engine>,
    handle: SimHandle,
    disk: Disk,
    file: File,
}

impl Machine {
    fn new(seed: u64, profile: Profile) -> Machine {
        let disk = Disk::new(1 << 20);
        disk.set_profile(profile);
        let first = Sim::new(seed).expect("a simulation");
        let second = first.beside().expect("a place beside it");
        let handle = first.handle();
        let engine = |sim| Engine::simulated(sim, &Bench::config()).expect("an engine");
        Machine {
            engines: [first, second].into_iter().map(engine).collect(),
            handle,
            file: File::simulated(&disk, "disk"),
            disk,
        }
    }

    /// A write of a whole block of this byte, which is also its tag.
    fn write(&mut self, engine: usize, block: u64, byte: u8) -> baio_engine::RequestId {
        let engine = &mut self.engines[engine];
        let memory = buffer(engine, &[byte; BLOCK]);
        let write = Request::write(&self.file, block * BLOCK as u64, memory, Policy::direct());
        let id = engine.submit(write.tagged(u64::from(byte))).expect("a free slot");
        engine.turn(Wait::No).expect("a turn");
        id
    }

    fn sync(&mut self, engine: usize) {
        let done = finish(&mut self.engines[engine], Request::sync(&self.file, Durability::Data));
        assert_eq!(done.result, Ok(0));
    }

    /// Turns an engine until it has something.
    fn next(&mut self, engine: usize) -> Completion {
        loop {
            if let Some(done) = self.engines[engine].next_completion() {
                return done;
            }
            self.engines[engine].turn(Wait::one()).expect("a turn");
        }
    }

    /// What blocks 0 and 1 begin with behind many power cuts.
    fn left(&self) -> BTreeSet<(u8, u8)> {
        let first_of = |disk: &Disk, block: u64| {
            let mut byte = [0];
            disk.read(block * BLOCK as u64, &mut byte);
            byte[0]
        };
        let left = |seed| {
            let left = self.disk.power_cut(seed);
            (first_of(&left, 0), first_of(&left, 1))
        };
        (0..200).map(left).collect()
    }
}

#[test]
fn a_power_cut_chooses_among_the_writes_of_both() {
    let mut machine = Machine::new(1, narrow());
    machine.write(0, 0, 1);
    machine.write(1, 1, 2);
    let any = [(0, 0), (0, 2), (1, 0), (1, 2)].into();
    assert_eq!(machine.left(), any, "both are under way");
    assert_eq!(machine.next(0).tag, 1);
    assert_eq!(machine.next(1).tag, 2);
    assert_eq!(machine.left(), any, "both are in the disk's cache");
    machine.sync(0);
    assert_eq!(machine.left(), [(1, 2)].into(), "one device, one flush");
    machine.write(1, 1, 3);
    machine.write(0, 0, 4);
    assert_eq!(machine.left(), [(1, 2), (1, 3), (4, 2), (4, 3)].into());
}

/// What the disk begins is a matter of its own queue: a flush of one engine covers what it had ended before, of the other too.
#[test]
fn a_flush_covers_what_stood_before_it_in_the_one_queue() {
    let mut machine = Machine::new(1, narrow());
    let (disk, file) = (machine.disk.clone(), machine.file.clone());
    machine.write(1, 0, 1);
    assert_eq!(machine.next(1).tag, 1);
    disk.record();
    let sync = Request::sync(&file, Durability::Data);
    machine.engines[0].submit(sync).expect("a free slot");
    machine.engines[0].turn(Wait::No).expect("a turn");
    machine.write(1, 1, 2);
    assert_eq!(machine.next(0).result, Ok(0));
    assert_eq!(machine.next(1).tag, 2);
    assert_eq!(machine.left(), [(1, 0), (1, 2)].into(), "the later write is in doubt");
}

#[test]
fn a_disk_serves_both_from_one_queue_by_one_clock() {
    let time_of = |both: bool| {
        let mut machine = Machine::new(1, narrow());
        let began = machine.handle.now();
        machine.write(0, 0, 1);
        machine.write(usize::from(both), 1, 2);
        assert_eq!(machine.next(0).tag, 1);
        assert_eq!(machine.next(usize::from(both)).tag, 2);
        machine.handle.now().since(began)
    };
    assert_eq!(time_of(true), time_of(false), "as if one engine had asked for both");
}

#[test]
fn what_is_read_comes_to_the_engine_that_asked() {
    let mut machine = Machine::new(1, narrow());
    machine.disk.poke(0, &[1; BLOCK]);
    machine.disk.poke(BLOCK as u64, &[2; BLOCK]);
    for engine in 0..2 {
        let blank = blank(&machine.engines[engine], BLOCK);
        let read = Request::read(&machine.file, (engine * BLOCK) as u64, blank, Policy::direct());
        machine.engines[engine].submit(read).expect("a free slot");
        machine.engines[engine].turn(Wait::No).expect("a turn");
    }
    // The second one's ends while the first one sleeps.
    let timer = Op::Timer {
        at: machine.handle.now().after(Duration::from_secs(1)),
    };
    assert_eq!(machine.next(0).result, Ok(BLOCK as u32));
    machine.engines[0]
        .submit(Request::bare(timer, None, Policy::kernel()))
        .expect("a free slot");
    machine.next(0);
    let began = machine.handle.now();
    let done = machine.next(1);
    assert_eq!(bytes_of(&done.memory), [2; BLOCK]);
    assert!(
        machine.handle.now().since(began) < Duration::from_micros(10),
        "it had ended"
    );
}

/// Two engines call their first requests alike.
#[test]
fn an_engine_cancels_its_own_request() {
    let mut machine = Machine::new(1, narrow());
    let ids = [0, 1, 0, 1].map(|engine| machine.write(engine, 0, 1));
    assert_eq!(ids[2], ids[3], "alike, and both in the disk's queue");
    machine.engines[1].cancel(ids[3]);
    let ends = |machine: &mut Machine, engine| [(); 2].map(|()| machine.next(engine).result);
    assert_eq!(ends(&mut machine, 0), [Ok(BLOCK as u32); 2]);
    let ends = ends(&mut machine, 1);
    assert!(
        ends.contains(&Err(Error::Cancelled)) && ends.contains(&Ok(BLOCK as u32)),
        "{ends:?}"
    );
}

/// One sleeps without an end, or for long; what comes is for the other, who is turned by the same thread.
#[test]
fn an_engine_that_sleeps_comes_back_for_what_is_another_s() {
    let forever = Wait::Until {
        count: 0,
        min_wait: Duration::ZERO,
        deadline: None,
    };
    let mut machine = Machine::new(1, narrow());
    machine.engines[0]
        .turn(forever)
        .expect("nothing will ever happen, and it comes back");
    machine.engines[1].turn(forever).expect("so does the other");
    machine.write(1, 0, 1);
    let began = machine.handle.now();
    let long = Wait::Until {
        count: 1,
        min_wait: Duration::ZERO,
        deadline: Some(began.after(Duration::from_secs(3600))),
    };
    let timer = Op::Timer {
        at: began.after(Duration::from_secs(3600)),
    };
    machine.engines[0]
        .submit(Request::bare(timer, None, Policy::kernel()))
        .expect("a free slot");
    machine.engines[0].turn(long).expect("a turn");
    assert!(
        machine.handle.now().since(began) < Duration::from_secs(1),
        "not by an hour late"
    );
    machine.engines[1].turn(Wait::No).expect("a turn");
    assert_eq!(machine.engines[1].next_completion().map(|done| done.tag), Some(1));
    // Whoever nobody turns holds nobody up.
    machine.write(1, 0, 2);
    machine.engines[0].turn(long).expect("a turn");
    machine.engines[0].turn(long).expect("a turn");
    assert!(machine.engines[0].next_completion().is_some(), "an hour has passed");
}

/// Its owner waits no longer, as for a device that is stuck. The disk goes on.
#[test]
fn what_a_disk_has_of_an_engine_that_is_gone_is_done() {
    let mut machine = Machine::new(1, narrow());
    machine.write(1, 1, 2);
    machine.write(0, 0, 1);
    let mut gone = machine.engines.remove(1);
    assert_eq!(gone.shutdown(Duration::from_nanos(1)), 1, "it is under way");
    drop(gone);
    assert_eq!(machine.next(0).tag, 1);
    let mut bytes = [0; 2 * BLOCK];
    machine.disk.read(0, &mut bytes);
    assert_eq!((bytes[0], bytes[BLOCK]), (1, 2));
}

/// Turned in an order that follows from the seed, they do the same again.
#[test]
fn equal_seeds_tell_equal_stories_of_both() {
    let tell = |seed: u64, swapped: bool| {
        let mut machine = Machine::new(seed, Profile::Flash(Flash::default()));
        let (mut random, mut told) = (Random(seed), Vec::new());
        for nth in 0..400 {
            let engine = random.below(2) as usize ^ usize::from(swapped);
            match random.below(3) {
                0 | 1 if machine.engines[engine].free_slots().0 > 8 => {
                    machine.write(engine, random.below(256), nth as u8);
                }
                _ => {
                    machine.engines[engine].turn(Wait::one()).expect("a turn");
                }
            }
            while let Some(done) = machine.engines[engine].next_completion() {
                told.push((engine, done.tag, machine.handle.now()));
            }
        }
        assert!(told.len() > 100, "{} requests", told.len());
        (
            told,
            machine.handle.event_hash(),
            machine.disk.fingerprint(),
            machine.disk.power_cut(seed).fingerprint(),
        )
    };
    for seed in 0..20 {
        assert_eq!(tell(seed, false), tell(seed, false), "seed {seed}");
        assert_ne!(tell(seed, false).1, tell(seed, true).1, "the trace says whose it is");
        assert_ne!(tell(seed, false).1, tell(seed + 1, false).1);
    }
}

/// A thread each: no order, but each gets its own, and none waits for another.
#[test]
fn engines_on_threads_of_their_own_share_a_machine() {
    let disk = Disk::new(256 * BLOCK as u64);
    disk.set_profile(Profile::Flash(Flash::default()));
    let first = Sim::new(1).expect("a simulation");
    let second = first.beside().expect("a place beside it");
    std::thread::scope(|threads| {
        for (nth, sim) in [first, second].into_iter().enumerate() {
            let file = File::simulated(&disk, "disk");
            threads.spawn(move || {
                let mut engine = Engine::simulated(sim, &Bench::config()).expect("an engine");
                for round in 0..200_u64 {
                    let block = (round * 2 + nth as u64) % 256 * BLOCK as u64;
                    let memory = buffer(&engine, &[round as u8 | 1; BLOCK]);
                    let done = engine.run(Request::write(&file, block, memory, Policy::direct()));
                    assert_eq!(done.result, Ok(BLOCK as u32), "block {block}");
                    let read = Request::read(&file, block, blank(&engine, BLOCK), Policy::direct());
                    assert_eq!(bytes_of(&engine.run(read).memory), [round as u8 | 1; BLOCK]);
                }
            });
        }
    });
    let mut bytes = [0; 256 * BLOCK];
    disk.read(0, &mut bytes);
    assert!(bytes.chunks(BLOCK).all(|block| block[0] != 0), "all were written");
}
