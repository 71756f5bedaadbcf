//! An engine that any thread may use, one at a time (docs/inside/engine.md rule 12): requests submitted here, turned there and dropped
//! elsewhere, on every backend; many threads under one lock; and one that belongs to its thread, which refuses the others.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use baio_engine::{
    Affinity, Caching, Choice, Completion, Durability, Engine, EngineOptions, Error, File, Op, Open, Policy, Request,
    Wait,
};

use crate::backends::{self, Bench, bytes_of, next, pattern, tell};

const KERNELS: [Choice; 4] = [Choice::Uring, Choice::Aio, Choice::Threads, Choice::Sync];

fn start(backend: Choice, affinity: Affinity) -> Option<Engine> {
    let config = EngineOptions {
        backend,
        affinity,
        ..Bench::config()
    };
    Engine::new(&config)
        .map_err(|why| tell(&format!("skipped: {backend} does not start here: {why}")))
        .ok()
}

/// Runs `body` in a thread of its own, which has ended when this returns.
fn elsewhere<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn a_file(bytes: &[u8]) -> (tempfile::NamedTempFile, File) {
    let mut kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kept.write_all(bytes).unwrap();
    kept.as_file().sync_all().unwrap();
    let file = File::open(kept.path(), &Open::write()).unwrap();
    (kept, file)
}

fn best(file: &File) -> Policy {
    if file.gives(Caching::Direct) {
        Policy::direct()
    } else {
        Policy::kernel()
    }
}

#[test]
fn each_step_may_be_another_threads() {
    for backend in KERNELS {
        let Some(mut engine) = elsewhere(|| start(backend, Affinity::AnyThread)) else {
            continue;
        };
        let bytes = pattern(1, 16 * 4096);
        let (kept, file) = elsewhere(|| a_file(&bytes));
        let policy = best(&file);
        let attached = engine.attach(&file);
        elsewhere(|| {
            for block in 0..16 {
                let memory = engine.buffer(4096).unwrap();
                let read = Request::read(&file, block * 4096, memory, policy).tagged(block);
                engine.submit(read).unwrap();
            }
        });
        elsewhere(|| engine.turn(Wait::for_count(5)).unwrap());
        let mut seen = [false; 16];
        for _ in 0..16 {
            let done = elsewhere(|| next(&mut engine));
            let at = done.tag as usize;
            assert_eq!((done.result, std::mem::replace(&mut seen[at], true)), (Ok(4096), false));
            assert!(
                bytes_of(&done.memory) == &bytes[at * 4096..][..4096],
                "{backend}: block {at}"
            );
        }
        let sync = elsewhere(|| engine.run(Request::sync(&file, Durability::Data)));
        assert_eq!(sync.result, Ok(0));
        if attached {
            elsewhere(|| engine.detach(&file));
        }
        elsewhere(|| drop(file));
        elsewhere(|| drop(engine));
        drop(kept);
    }
}

/// What was begun in a thread goes on when that thread has ended. io_uring ends some of it as cancelled, though nobody asked for that.
/// Fails if the engine believes it.
#[test]
fn what_a_thread_has_begun_outlives_it() {
    for backend in KERNELS {
        let Some(mut engine) = start(backend, Affinity::AnyThread) else {
            continue;
        };
        if backend == Choice::Sync {
            continue; // What is begun has ended.
        }
        let (_kept, file) = a_file(&pattern(2, 1 << 20));
        let (reader, mut writer) = std::io::pipe().unwrap();
        let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
        let (mine, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = File::from_fd(mine.into(), "a socket").unwrap();
        let (polled, mut to_polled) = std::io::pipe().unwrap();
        let polled = File::from_fd(polled.into(), "a pipe").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = File::from_fd(listener.into(), "a listener").unwrap();
        let at = engine.now().after(Duration::from_millis(100));
        let whole = Policy::kernel().durable(Durability::Full);
        elsewhere(|| {
            let memory = |engine: &Engine, len| engine.buffer(len).unwrap();
            let requests = [
                Request::read_stream(&pipe, memory(&engine, 16)),
                Request::receive(&socket, memory(&engine, 16)),
                Request::bare(Op::Poll { events: 1 }, Some(&polled), Policy::kernel()),
                Request::accept(&listener),
                Request::bare(Op::Timer { at }, None, Policy::kernel()),
                Request::read(&file, 0, memory(&engine, 1 << 19), best(&file)),
                Request::write(&file, 1 << 19, memory(&engine, 1 << 19), whole),
                Request::sync(&file, Durability::Full),
            ];
            for (tag, request) in requests.into_iter().enumerate() {
                engine.submit(request.tagged(tag as u64)).unwrap();
            }
            engine.turn(Wait::No).unwrap();
        });
        thread::sleep(Duration::from_millis(20));
        elsewhere(|| engine.turn(Wait::No).unwrap());
        writer.write_all(b"pipe").unwrap();
        theirs.write_all(b"socket").unwrap();
        to_polled.write_all(b"x").unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let mut told: Vec<Option<Completion>> = (0..8).map(|_| None).collect();
        for _ in 0..8 {
            let done = elsewhere(|| next(&mut engine));
            let tag = done.tag as usize;
            told[tag] = Some(done);
        }
        let results: Vec<_> = told.iter().map(|done| done.as_ref().unwrap().result).collect();
        let half = Ok(1 << 19);
        assert_eq!(
            results,
            [Ok(4), Ok(6), Ok(1), Ok(0), Ok(0), half, half, Ok(0)],
            "{backend}"
        );
        assert!(told[3].as_ref().unwrap().accepted.is_some());
        assert_eq!(&bytes_of(&told[0].as_ref().unwrap().memory)[..4], b"pipe");
    }
}

/// These io_uring ends with `EFAULT`.
#[test]
fn reads_past_the_page_cache_whose_thread_has_ended_end_well() {
    let Some(mut engine) = start(Choice::Uring, Affinity::AnyThread) else {
        return;
    };
    let bytes = pattern(5, 8 << 20);
    let (kept, file) = a_file(&bytes);
    for round in 0..50 {
        rustix::fs::fadvise(kept.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        elsewhere(|| {
            for part in 0..8 {
                let memory = engine.buffer(1 << 20).unwrap();
                let read = Request::read(&file, part << 20, memory, Policy::kernel());
                engine.submit(read.tagged(part)).unwrap();
            }
            engine.turn(Wait::No).unwrap();
        });
        for _ in 0..8 {
            let done = next(&mut engine);
            assert_eq!(done.result, Ok(1 << 20), "round {round}");
            assert!(bytes_of(&done.memory) == &bytes[(done.tag as usize) << 20..][..1 << 20]);
        }
    }
}

#[test]
fn a_cancel_in_another_thread_than_the_submitters_ends_a_request() {
    for backend in [Choice::Uring, Choice::Aio, Choice::Threads] {
        let Some(mut engine) = start(backend, Affinity::AnyThread) else {
            continue;
        };
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
        let id = elsewhere(|| {
            let memory = engine.buffer(16).unwrap();
            let id = engine.submit(Request::read_stream(&pipe, memory)).unwrap();
            engine.turn(Wait::No).unwrap();
            id
        });
        elsewhere(|| engine.cancel(id));
        let done = elsewhere(|| next(&mut engine));
        assert_eq!((done.id, done.result), (id, Err(Error::Cancelled)), "{backend}");
    }
}

/// Each thread finds the completions of its requests, whoever of them has turned.
#[test]
fn threads_share_an_engine_under_one_lock() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 100;
    struct Shared {
        engine: Engine,
        ended: HashMap<u64, Completion>,
    }
    for backend in KERNELS {
        let Some(engine) = start(backend, Affinity::AnyThread) else {
            continue;
        };
        let (_kept, file) = a_file(&vec![0; (THREADS * 8 * 4096) as usize]);
        let policy = best(&file);
        let ended = HashMap::new();
        let shared = Arc::new(Mutex::new(Shared { engine, ended }));
        let finish = |shared: &Mutex<Shared>, tag: u64, request: Request| {
            let mut request = Some(request.tagged(tag));
            loop {
                let mut inside = shared.lock().unwrap();
                let Shared { engine, ended } = &mut *inside;
                if let Some(fresh) = request.take() {
                    request = engine.submit(fresh).err();
                }
                engine.turn(Wait::No).unwrap();
                while let Some(done) = engine.next_completion() {
                    assert!(ended.insert(done.tag, done).is_none(), "{backend}: told twice");
                }
                if let Some(done) = ended.remove(&tag) {
                    return done;
                }
                drop(inside);
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (file, shared, finish) = (file.clone(), Arc::clone(&shared), &finish);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let tag = thread * ROUNDS + round;
                        let offset = (thread * 8 + round % 8) * 4096;
                        let bytes = pattern(tag, 4096);
                        let memory = |bytes: &[u8]| backends::buffer(&shared.lock().unwrap().engine, bytes);
                        let write = Request::write(&file, offset, memory(&bytes), policy);
                        assert_eq!(finish(&shared, tag, write).result, Ok(4096));
                        let read = Request::read(&file, offset, memory(&[0; 4096]), policy);
                        let done = finish(&shared, tag, read);
                        assert!(
                            bytes_of(&done.memory) == &bytes[..],
                            "{backend}: thread {thread}, round {round}"
                        );
                    }
                });
            }
        });
        let shared = Arc::into_inner(shared).unwrap().into_inner().unwrap();
        assert_eq!((shared.engine.in_flight(), shared.ended.len()), (0, 0));
    }
}

/// A sleeping turn is another thread's to wake, as ever.
#[test]
fn a_doorbell_wakes_a_turn_in_another_thread() {
    for backend in KERNELS {
        let Some(mut engine) = start(backend, Affinity::AnyThread) else {
            continue;
        };
        let bell = engine.doorbell();
        let sleeps = Wait::Until {
            count: 0,
            min_wait: Duration::ZERO,
            deadline: None,
        };
        let turned = thread::spawn(move || engine.turn(sleeps));
        thread::sleep(Duration::from_millis(10));
        bell.ring();
        assert_eq!(turned.join().unwrap(), Ok(0), "{backend}");
    }
}

#[test]
fn an_engine_of_one_thread_refuses_the_others_and_goes_on() {
    for backend in KERNELS {
        let Some(mut engine) = start(backend, Affinity::OneThread) else {
            continue;
        };
        let (_kept, file) = a_file(&pattern(3, 4096));
        let read = |engine: &Engine| Request::read(&file, 0, engine.buffer(4096).unwrap(), best(&file));
        elsewhere(|| {
            assert_eq!(engine.turn(Wait::No), Err(Error::OtherThread), "{backend}");
            let refused = engine.run(read(&engine));
            assert_eq!(refused.result, Err(Error::OtherThread), "{backend}");
            assert_eq!(refused.memory.len(), 4096, "its memory comes back");
            assert!(!engine.attach(&file) && engine.ready_fd(true).is_none());
        });
        assert_eq!(engine.run(read(&engine)).result, Ok(4096), "{backend}");
        elsewhere(move || drop(engine));
    }
}

/// A file that several engines use is poisoned for all of them, whichever thread they are in.
#[test]
fn files_of_engines_in_several_threads_are_one_file() {
    let (kept, file) = a_file(&[0; 4096]);
    let policy = Policy::kernel();
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = file.clone();
            scope.spawn(move || {
                let Some(mut engine) = start(Choice::Auto, Affinity::OneThread) else {
                    return;
                };
                for _ in 0..200 {
                    engine.attach(&file);
                    let memory = backends::buffer(&engine, &[thread + 1; 16]);
                    let write = Request::write(&file, u64::from(thread) * 16, memory, policy);
                    assert_eq!(engine.run(write).result, Ok(16));
                    let memory = engine.buffer(16).unwrap();
                    let read = engine.run(Request::read(&file, u64::from(thread) * 16, memory, policy));
                    assert_eq!(bytes_of(&read.memory), [thread + 1; 16]);
                    engine.detach(&file);
                }
            });
        }
    });
    let bytes = std::fs::read(kept.path()).unwrap();
    assert_eq!(bytes[..64], *[[1; 16], [2; 16], [3; 16], [4; 16]].as_flattened());
}
