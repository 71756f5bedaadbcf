//! Disk and network I/O, pipes and the application's own events end in one queue (seed 001 §9).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use baio_engine::{Address, Choice, Config, Engine, File, Notice, Op, Policy, Request, Wait};

fn engine() -> Option<Engine> {
    let config = Config {
        backend: Choice::Uring,
        ..Config::default()
    };
    Engine::new(&config).map_err(|why| eprintln!("skipped: {why}")).ok()
}

fn next(engine: &mut Engine) -> baio_engine::Completion {
    loop {
        if let Some(completion) = engine.next_completion() {
            return completion;
        }
        engine.turn(Wait::one()).unwrap();
    }
}

fn socket(fd: impl Into<OwnedFd>) -> File {
    File::from_fd(fd.into(), "a socket").unwrap()
}

#[test]
fn a_connection_is_accepted_and_talks() {
    let Some(mut engine) = engine() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Internet(listener.local_addr().unwrap());
    let listener = socket(listener);
    engine.submit(Request::accept(&listener).tagged(1)).unwrap();
    let dialled = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    let dialled = socket(dialled);
    let address = to.encode(engine.arena()).unwrap();
    engine.submit(Request::connect(&dialled, address).tagged(2)).unwrap();
    let mut accepted = None;
    for _ in 0..2 {
        let completion = next(&mut engine);
        assert_eq!(completion.result, Ok(0), "{completion:?}");
        accepted = accepted.or(completion.accepted);
    }
    let accepted = accepted.expect("the connection");
    let mut hello = engine.buffer(5).unwrap();
    hello.copy_from_slice(b"hello");
    engine.submit(Request::send(&dialled, hello).tagged(3)).unwrap();
    let room = engine.buffer(64).unwrap();
    engine.submit(Request::receive(&accepted, room).tagged(4)).unwrap();
    for _ in 0..2 {
        let completion = next(&mut engine);
        assert_eq!(completion.result, Ok(5));
        if completion.tag == 4 {
            assert_eq!(&completion.memory.into_buffer().unwrap()[..5], b"hello");
        }
    }
}

#[test]
fn a_range_of_a_file_goes_to_a_socket_window_by_window() {
    let Some(mut engine) = engine() else { return };
    let bytes: Vec<u8> = (0..100_001_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let mut source = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    source.write_all(&bytes).unwrap();
    let file = File::open(source.path(), &baio_engine::Open::read()).unwrap();
    for policy in [Policy::kernel(), Policy::direct()] {
        if !file.gives(policy.caching) {
            continue;
        }
        for (offset, len, expected) in [
            (0, 100_001, 100_001),
            (4096, 50_000, 50_000),
            (98_304, 9_999, 1_697),
            (200_704, 5, 0),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            let reader = std::thread::spawn(move || {
                let mut got = Vec::new();
                receiver.read_to_end(&mut got).unwrap();
                got
            });
            let target = socket(sender);
            let window = engine.buffer(8192).unwrap();
            engine
                .submit(Request::transfer(&file, offset, len, &target, window, policy))
                .unwrap();
            let completion = next(&mut engine);
            drop(target);
            assert_eq!(completion.result, Ok(expected), "{offset}+{len}");
            assert_eq!(
                reader.join().unwrap(),
                bytes[(offset as usize).min(bytes.len())..][..expected as usize]
            );
        }
    }
}

#[test]
fn events_are_signalled_here_and_from_other_threads() {
    let config = Config {
        backend: Choice::Sync,
        ..Config::default()
    };
    let mut engine = Engine::new(&config).unwrap();
    let here = engine.submit(Request::event().tagged(1)).unwrap();
    assert!(engine.signal(here, 7));
    assert!(!engine.signal(here, 8), "an event ends once");
    assert_eq!(next(&mut engine).result, Ok(7));
    let there = engine.submit(Request::event().tagged(2)).unwrap();
    let signals = engine.signals();
    let thread = std::thread::spawn(move || signals.signal(there, 9));
    let completion = next(&mut engine);
    assert_eq!((completion.tag, completion.result), (2, Ok(9)));
    thread.join().unwrap();
    let given_up = engine.submit(Request::event()).unwrap();
    engine.abandon(given_up);
    engine.turn(Wait::No).unwrap();
    assert_eq!(engine.next_completion().unwrap().notice, Notice::Released);
}

#[test]
fn what_cannot_be_transferred_is_refused() {
    let Some(mut engine) = engine() else { return };
    let source = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = File::open(source.path(), &baio_engine::Open::read()).unwrap();
    let window = engine.buffer(4096).unwrap();
    let request = Request::transfer(&file, 0, 4096, &file, window, Policy::kernel());
    engine.submit(request).unwrap();
    assert!(next(&mut engine).result.is_err(), "a file is no stream");
    let request = Request::bare(Op::Transfer { offset: 0, len: 1 }, Some(&file), Policy::kernel());
    engine.submit(request).unwrap();
    assert!(next(&mut engine).result.is_err(), "no target, no window");
}
