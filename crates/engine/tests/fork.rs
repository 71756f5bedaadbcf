//! A forked child cannot use its copy of the parent's engine, and cannot harm the parent by trying.

#![allow(unsafe_code)]

mod backends;
#[allow(dead_code, reason = "the contract uses the rest")]
#[path = "contract/gate.rs"]
mod gate;

use std::io::Write;

use baio_engine::{Choice, Engine, EngineOptions, Error, File, Open, Policy, Request, Wait};

fn next(engine: &mut Engine) -> baio_engine::Completion {
    loop {
        if let Some(completion) = engine.next_completion() {
            return completion;
        }
        engine.turn(Wait::one()).unwrap();
    }
}

/// What the child tries; 0 when every try was refused as it must be.
fn try_all(engine: &mut Engine, file: &File, running: baio_engine::RequestId) -> i32 {
    let Some(buffer) = engine.buffer(4096) else { return 1 };
    if engine.submit(Request::read(file, 0, buffer, Policy::direct())).is_err() {
        return 2;
    }
    if engine.next_completion().map(|completion| completion.result) != Some(Err(Error::Forked)) {
        return 3;
    }
    if engine.turn(Wait::one()) != Err(Error::Forked) {
        return 4;
    }
    engine.cancel(running);
    engine.abandon(running);
    if engine.attach(file) || engine.ready_fd(true).is_some() {
        return 5;
    }
    engine.detach(file);
    // An engine of the child's own works.
    let config = EngineOptions {
        backend: Choice::Auto,
        ..EngineOptions::default()
    };
    let Ok(mut own) = Engine::new(&config) else { return 6 };
    let Some(buffer) = own.buffer(4096) else { return 7 };
    if own.run(Request::read(file, 0, buffer, Policy::kernel())).result != Ok(4096) {
        return 8;
    }
    0
}

#[test]
fn a_child_gets_an_error_and_the_parent_goes_on() {
    for backend in [Choice::Uring, Choice::Aio, Choice::Threads, Choice::Sync] {
        let config = EngineOptions {
            backend,
            ..EngineOptions::default()
        };
        let Ok(mut engine) = Engine::new(&config) else {
            eprintln!("skipped: {backend:?} does not start here");
            continue;
        };
        let mut source = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        source.write_all(&[7; 4096]).unwrap();
        source.as_file().sync_all().unwrap();
        let file = File::open(source.path(), &Open::write()).unwrap();
        let attached = engine.attach(&file);
        // A request under way, so that there is something to harm; the pipe never has anything to read before it is written.
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = File::from_fd(reader.into(), "a pipe").unwrap();
        let waiting = (backend != Choice::Sync).then(|| {
            let buffer = engine.buffer(16).unwrap();
            let id = engine.submit(Request::read_stream(&reader, buffer).tagged(9)).unwrap();
            engine.turn(Wait::No).unwrap();
            id
        });
        for _ in 0..20 {
            // SAFETY: the child is single-threaded, makes the calls of `try_all` and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let status = try_all(&mut engine, &file, waiting.unwrap_or_default());
                drop(engine);
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(status) };
            }
            let mut status = 0;
            // SAFETY: the kernel writes one int.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0, "the child's exit status");
            let buffer = engine.buffer(4096).unwrap();
            engine
                .submit(Request::read(&file, 0, buffer, Policy::kernel()).tagged(1))
                .unwrap();
            let completion = next(&mut engine);
            assert_eq!((completion.tag, completion.result), (1, Ok(4096)));
        }
        if waiting.is_some() {
            (&writer).write_all(b"news").unwrap();
            let completion = next(&mut engine);
            assert_eq!((completion.tag, completion.result), (9, Ok(4)));
        }
        if attached {
            engine.detach(&file);
        }
    }
}

/// A backend may take locks to explain itself, and the thread that held one when the parent forked is not in the child.
#[test]
fn a_child_asks_no_backend_to_explain_itself() {
    let row = backends::BACKENDS.iter().find(|row| row.is_simulated()).unwrap();
    let (engine, gate, _, _) = gate::gated(&backends::Bench::new(row), 65536).unwrap();
    let before = gate.explained();
    // SAFETY: the child is single-threaded, asks for an explanation and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let explained = engine.explain();
        let asked = gate.explained() != before;
        let told = explained.backend == "sim" && explained.features.iter().any(|(_, had)| had.is_err());
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(asked) * 2 + i32::from(!told)) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's exit status");
    assert_eq!(engine.explain().backend, "sim");
    assert_eq!(gate.explained(), before + 1);
}

/// What a ring is entered by is a thread's own: that of the child's engine may look like that of the parent's.
#[test]
fn a_child_drops_its_copy_and_its_own_engine_goes_on() {
    let Ok(mut engine) = Engine::new(&EngineOptions::default()) else {
        return;
    };
    let kept = tempfile::tempfile().unwrap();
    (&kept).write_all(&[7; 4096]).unwrap();
    let file = File::from_fd(kept.into(), "a file").unwrap();
    let write = |engine: &mut Engine| {
        let Some(buffer) = engine.buffer(4096) else {
            return false;
        };
        // Not answered by the caller's own thread.
        let durable = Policy::kernel().durable(baio_engine::Durability::Data);
        engine.run(Request::write(&file, 0, buffer, durable)).result == Ok(4096)
    };
    // SAFETY: the child is single-threaded, uses engines and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let Ok(mut own) = Engine::new(&EngineOptions::default()) else {
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(1) }
        };
        let before = write(&mut own);
        drop(engine);
        let after = write(&mut own);
        // SAFETY: as above.
        unsafe { libc::_exit(if before && after { 0 } else { 2 }) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's exit status");
    assert!(write(&mut engine), "the parent's");
}

/// The parent's threads leave one another places in tables that the child has not; the child waits for nobody over them.
#[test]
fn a_child_of_a_thread_that_was_left_a_place_starts_an_engine() {
    let Ok(first) = Engine::new(&EngineOptions::default()) else {
        return;
    };
    // Its ring's place stays behind here.
    std::thread::spawn(move || drop(first)).join().unwrap();
    // SAFETY: the child is single-threaded, uses engines and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let engines: Vec<_> = (0..3)
            .filter_map(|_| Engine::new(&EngineOptions::default()).ok())
            .collect();
        let all = engines.len() == 3;
        let worked = engines.into_iter().all(|mut engine| {
            let at = engine.now();
            let timer = Request::bare(baio_engine::Op::Timer { at }, None, Policy::kernel());
            engine.run(timer).result == Ok(0)
        });
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!all || !worked)) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's exit status");
}
