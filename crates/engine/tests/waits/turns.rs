//! Turns that wait for what cannot complete at once: requests that wait for one another, iterations that go on, rings
//! beside them. Each sleep has a deadline far away: who reaches it has slept for ever.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use baio_engine::{
    Caching, Choice, Descriptions, Durability, Engine, EngineOptions, Errno, Error, File, Memory, Op, Open, Policy,
    Request, Vectored, Wait,
};
use rustix::event::{PollFd, PollFlags, poll};

use crate::backends::FOR_EVER;

const SIZE: usize = 1 << 20;

fn engine(backend: Choice) -> Option<Engine> {
    let config = EngineOptions {
        backend,
        slots: 64,
        ..EngineOptions::default()
    };
    Engine::new(&config).map_err(|why| eprintln!("skipped: {why}")).ok()
}

fn file() -> (tempfile::NamedTempFile, File) {
    let mut kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.write_all(&[7; SIZE]).unwrap();
    let file = File::open(kept.path(), &Open::write()).unwrap();
    (kept, file)
}

fn nowhere() -> File {
    let options = Open {
        descriptions: Descriptions::Only(Caching::Kernel),
        ..Open::write()
    };
    File::open("/dev/null".as_ref(), &options).unwrap()
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

/// Turns and sleeps as an outside loop does until the one request has ended, which must take several turns.
fn turn_as_outside_loop(engine: &mut Engine) -> u32 {
    let name = engine.explain().backend;
    let mut turns = 0;
    loop {
        let outside = engine.ready_fd(true).map(|fd| fd.try_clone_to_owned().unwrap());
        if engine.turn(Wait::No).unwrap() > 0 {
            break;
        }
        turns += 1;
        if let Some(fd) = outside {
            let mut one = [PollFd::new(&fd, PollFlags::IN)];
            let woken = poll(&mut one, Some(&FOR_EVER.try_into().unwrap())).unwrap();
            assert_eq!(woken, 1, "{name}: nobody says that there is more to do");
        }
        engine.ready_fd(false);
    }
    assert!(turns > 0, "{name}: all in one turn");
    engine.next_completion().unwrap().result.unwrap()
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

#[test]
fn a_ring_is_heard_beside_a_transfer_that_never_waits() {
    for mut engine in Choice::ALL.into_iter().filter_map(engine) {
        let (_kept, file) = file();
        let window = engine.buffer(4096).unwrap();
        let request = Request::transfer(&file, 0, SIZE as u64, &nowhere(), window, Policy::kernel());
        engine.submit(request).unwrap();
        engine.doorbell().ring();
        let name = engine.explain().backend;
        assert_eq!(turn_for(&mut engine, 1), 0, "{name}: the whole transfer came first");
        turn_for(&mut engine, 1);
    }
}

#[test]
fn a_transfer_that_never_waits_does_not_hold_the_turn() {
    for mut engine in Choice::ALL.into_iter().filter_map(engine) {
        let (_kept, file) = file();
        let window = engine.buffer(4096).unwrap();
        let request = Request::transfer(&file, 0, SIZE as u64, &nowhere(), window, Policy::kernel());
        engine.submit(request).unwrap();
        assert_eq!(turn_as_outside_loop(&mut engine), SIZE as u32);
    }
}

#[test]
fn a_list_that_never_waits_does_not_hold_the_turn() {
    const PARTS: usize = 64 * 1024;
    for mut engine in Choice::ALL.into_iter().filter_map(engine) {
        let byte = engine.buffer(1).unwrap().freeze();
        let mut list = Vectored::with_capacity(PARTS);
        for _ in 0..PARTS {
            list.push(byte.clone().into()).unwrap();
        }
        let request = Request::write_stream(&nowhere(), Memory::Many(list));
        engine.submit(request).unwrap();
        assert_eq!(turn_as_outside_loop(&mut engine), PARTS as u32);
    }
}

#[test]
fn a_transfer_out_of_a_pipe_is_refused() {
    for mut engine in Choice::ALL.into_iter().filter_map(engine) {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = File::from_fd(OwnedFd::from(reader), "a pipe").unwrap();
        let window = engine.buffer(4096).unwrap();
        let request = Request::transfer(&pipe, 0, 8192, &nowhere(), window, Policy::kernel());
        engine.submit(request).unwrap();
        let told = engine.next_completion().map(|completion| completion.result);
        assert_eq!(told, Some(Err(Error::System(Errno::ESPIPE))));
    }
}

#[test]
fn more_workers_than_there_are_numbers_are_no_panic() {
    for backend in Choice::ALL {
        let config = EngineOptions {
            backend,
            pool_threads: u32::MAX,
            ..EngineOptions::default()
        };
        let _ = Engine::new(&config).map(|engine| engine.explain());
    }
}
