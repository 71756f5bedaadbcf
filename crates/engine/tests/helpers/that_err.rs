//! The promise: a helper that errs harms nobody else. What it begins out of its turn is refused, a panic in its start ends in the caller's hands,
//! and what it has no room for fills nobody's batch, and what it may have lost is not proven by its successor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use baio_engine::backend::Done;
use baio_engine::{
    Backend, Doorbell, Durability, Engine, Errno, Error, Explain, File, Op, Policy, Request, RequestId, Slots, Wait,
};

use crate::backends::{self, Bench, next};
use crate::far::Far;

const BLOCK: usize = 4096;

fn benches() -> impl Iterator<Item = Bench> {
    Bench::each(|_| true)
}

/// Those that sleep in the kernel, and not in virtual time.
fn sleepers() -> impl Iterator<Item = Bench> {
    Bench::each(|row| !row.is_simulated())
}

fn read(engine: &Engine, file: &File) -> Request {
    Request::read(file, 0, engine.buffer(16).unwrap(), Policy::kernel())
}

/// In how many batches 24 writes to a local file go off that are submitted without a turn, and how often a helper is offered something
/// meanwhile that has taken one request and has no room for so many more.
fn batches_beside(bench: &Bench, waiting: usize) -> (u64, usize) {
    let mut engine = bench.engine();
    let far = Far::new(&[7; BLOCK]);
    far.help(&mut engine);
    (far.inside().holds, far.inside().most) = (true, 1);
    let (file, local) = (far.file(), bench.file(&[1; BLOCK]));
    for _ in 0..=waiting {
        engine.submit(read(&engine, &file)).unwrap();
    }
    engine.turn(Wait::No).unwrap();
    assert_eq!(far.inside().taken.len(), 1);
    let (batches, offered) = (engine.stats().batches, far.inside().offered);
    for _ in 0..24 {
        let memory = backends::buffer(&engine, b"x");
        engine
            .submit(Request::write(&local, 0, memory, Policy::kernel()))
            .unwrap();
    }
    let told = (engine.stats().batches - batches, far.inside().offered - offered);
    far.inside().holds = false;
    told
}

#[test]
fn who_waits_for_room_at_a_helper_fills_no_batch() {
    for bench in sleepers() {
        let (alone, _) = batches_beside(&bench, 0);
        assert!(alone > 0 && alone < 24, "{}: {alone} batches", bench.row.name);
        for waiting in [3, 16] {
            let (batches, offered) = batches_beside(&bench, waiting);
            assert!(
                batches <= alone && offered as u64 <= batches,
                "{}: {batches} batches and {offered} offers beside {waiting} that wait, {alone} batches without",
                bench.row.name
            );
        }
    }
}

/// Takes the first that it is given, and begins the second in a turn; or panics in its start.
struct Late {
    doorbell: Doorbell,
    panics: bool,
    ended: Vec<(RequestId, i32)>,
    kept: Option<RequestId>,
}

impl Late {
    fn help(engine: &mut Engine, panics: bool) {
        let late = |doorbell| Late {
            doorbell,
            panics,
            ended: Vec::new(),
            kept: None,
        };
        engine.add_helper(|doorbell| Ok(Box::new(late(doorbell)))).unwrap();
    }
}

impl Backend for Late {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        slots.begin(queue[0]);
        assert!(!self.panics, "a mistake");
        self.ended.push((queue[0], 16));
        self.kept = queue.get(1).copied();
        1
    }

    fn turn(&mut self, slots: &mut Slots, _: Wait, done: &mut Done) -> Result<(), Errno> {
        if let Some(id) = self.kept.take() {
            slots.begin(id);
            self.ended.push((id, 16));
        }
        done.raw.append(&mut self.ended);
        Ok(())
    }

    fn serves(&self, file: &File) -> bool {
        file.device::<Far>().is_some()
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn explain(&self) -> Explain {
        Explain::named("late")
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        None
    }
}

/// It would run and stand in the queue at once. Whoever has made that mistake is told by a panic, in every build, and the engine is whole.
#[test]
fn what_is_begun_elsewhere_than_in_its_start_is_refused() {
    for bench in sleepers() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        Late::help(&mut engine, false);
        let (file, local) = (Far::new(&[7; BLOCK]).file(), bench.file(&[1; BLOCK]));
        for _ in 0..2 {
            engine.submit(read(&engine, &file)).unwrap();
        }
        let told = catch_unwind(AssertUnwindSafe(|| engine.turn(Wait::No))).expect_err(name);
        let told = told.downcast_ref::<String>().unwrap();
        assert!(told.contains("begun by who was not given it"), "{name}: {told}");
        for _ in 0..2 {
            assert_eq!(next(&mut engine).result, Ok(16), "{name}: begun in its start");
        }
        let sync = Request::sync(&local, Durability::Data);
        assert_eq!(engine.run(sync).result, Ok(0), "{name}");
    }
}

/// Who has taken what is unknown then, so nothing is asked for it, and nothing freed: above all not by a second panic.
#[test]
fn a_panic_in_a_start_unwinds() {
    for bench in benches() {
        let name = bench.row.name;
        let began = Instant::now();
        let told = catch_unwind(|| {
            let mut engine = bench.engine();
            Late::help(&mut engine, true);
            let file = Far::new(&[7; BLOCK]).file();
            engine.submit(read(&engine, &file)).unwrap();
            engine.turn(Wait::No)
        });
        let told = told.expect_err(name);
        assert_eq!(told.downcast_ref::<&str>(), Some(&"a mistake"), "{name}");
        assert!(began.elapsed() < Duration::from_secs(20), "{name}: the drop waited");
        let mut engine = bench.engine();
        let sync = Request::sync(&bench.file(&[1; BLOCK]), Durability::Data);
        assert_eq!(engine.run(sync).result, Ok(0), "{name}: another engine");
    }
}

/// The successor has a connection of its own: a sync there proves nothing of what the lost one had acknowledged.
#[test]
fn the_successor_of_a_lost_helper_proves_nothing_before_an_acknowledgement() {
    for bench in benches() {
        let name = bench.row.name;
        let mut engine = bench.engine();
        let (far, fresh) = (Far::new(&[7; BLOCK]), Far::new(&[7; BLOCK]));
        far.help(&mut engine);
        let file = far.file();
        let write = |engine: &Engine, policy| Request::write(&file, 0, backends::buffer(engine, b"words"), policy);
        let plain = write(&engine, Policy::kernel());
        assert_eq!(engine.run(plain).result, Ok(5), "{name}: acknowledged");
        // Another engine that serves the file by a helper of its own, which is as good as before.
        let mut other = bench.engine();
        far.help(&mut other);
        let plain = read(&other, &file);
        assert_eq!(other.run(plain).result, Ok(16));

        // It is lost with a read under way.
        far.inside().holds = true;
        engine.submit(read(&engine, &file)).unwrap();
        engine.turn(Wait::No).unwrap();
        far.inside().fails = Some(Errno::EIO);
        let lost = Err(Error::DeviceLost {
            device: "far",
            errno: Errno::EIO,
        });
        assert_eq!(next(&mut engine).result, lost, "{name}");
        (far.inside().fails, far.inside().holds) = (None, false);
        let sync = || Request::sync(&file, Durability::Data);
        assert_eq!(engine.run(sync()).result, lost, "{name}");

        far.help(&mut engine);
        let plain = write(&engine, Policy::kernel());
        assert_eq!(engine.run(plain).result, Ok(5), "{name}: it is served again");
        let poisoned = Err(Error::Poisoned(Errno::EIO));
        let fence = Request::bare(Op::Fence, Some(&file), Policy::kernel());
        for request in [sync(), fence, sync()] {
            assert_eq!(engine.run(request).result, poisoned, "{name}");
        }
        let elsewhere = Request::sync(&far.file(), Durability::Data);
        assert_eq!(
            other.run(elsewhere).result,
            poisoned,
            "{name}: another open, another engine"
        );
        let untouched = Request::sync(&fresh.file(), Durability::Data);
        assert_eq!(engine.run(untouched).result, Ok(0), "{name}: the lost one never had it");

        assert_eq!(file.acknowledge_failure(), Some(Errno::EIO));
        assert_eq!(engine.run(sync()).result, Ok(0), "{name}: once");
        assert_eq!(file.acknowledge_failure(), None);
    }
}
