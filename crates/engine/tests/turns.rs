//! Turns that wait for what cannot complete at once: requests that wait for one another, iterations that go on, rings
//! beside them. Each sleep has a deadline far away: who reaches it has slept for ever.

use std::io::Write;
use std::time::{Duration, Instant};

use baio_engine::{Choice, Config, Durability, Engine, File, Op, Open, Policy, Request, Wait};

const FOR_EVER: Duration = Duration::from_secs(20);
const SIZE: usize = 1 << 20;

fn engine(backend: Choice) -> Option<Engine> {
    let config = Config {
        backend,
        slots: 64,
        ..Config::default()
    };
    Engine::new(&config).map_err(|why| eprintln!("skipped: {why}")).ok()
}

fn file() -> (tempfile::NamedTempFile, File) {
    let mut kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.write_all(&[7; SIZE]).unwrap();
    let file = File::open(kept.path(), &Open::write()).unwrap();
    (kept, file)
}

/// A turn until `count` are ready, which must not need the deadline. Returns how many are.
fn turn_for(engine: &mut Engine, count: u32) -> usize {
    let begun = Instant::now();
    let wait = Wait::Until {
        count,
        min_wait: Duration::ZERO,
        deadline: Some(engine.now().after(FOR_EVER)),
    };
    let ready = engine.turn(wait).unwrap();
    assert!(begun.elapsed() < FOR_EVER / 2, "{} slept", engine.explain().backend);
    ready
}

#[test]
fn who_waits_for_several_gets_those_that_wait_for_one_another() {
    for mut engine in Choice::ALL.into_iter().filter_map(engine) {
        let (_kept, file) = file();
        for _ in 0..2 {
            engine.submit(Request::sync(&file, Durability::Data)).unwrap();
        }
        assert_eq!(turn_for(&mut engine, 2), 2, "two syncs, one of which answers for both");
        while engine.next_completion().is_some() {}
        let buffer = engine.buffer(4096).unwrap();
        engine
            .submit(Request::write(&file, 0, buffer, Policy::direct()))
            .unwrap();
        engine
            .submit(Request::bare(Op::Fence, Some(&file), Policy::direct()))
            .unwrap();
        assert_eq!(turn_for(&mut engine, 2), 2, "a write and its fence");
    }
}

#[test]
fn a_ring_is_heard_beside_an_iteration_that_goes_on() {
    for mut engine in Choice::ALL.into_iter().filter_map(engine) {
        let (_kept, file) = file();
        let doorbell = engine.doorbell();
        let event = engine.submit(Request::event()).unwrap();
        engine.turn(Wait::No).unwrap();
        let buffer = engine.buffer(8192).unwrap();
        let across_the_end = Request::read(&file, SIZE as u64 - 4096, buffer, Policy::direct());
        engine.submit(across_the_end).unwrap();
        doorbell.ring();
        turn_for(&mut engine, 2);
        engine.signal(event, 0);
    }
}
