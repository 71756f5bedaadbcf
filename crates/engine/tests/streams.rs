//! Streams on every backend that is asynchronous: what waits for somebody else waits, blocking descriptor or not, and takes
//! neither the owner's time nor a worker (docs/inside/engine.md, seed 001 §9).

#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use baio_engine::{
    Address, Buffer, Choice, Completion, Engine, EngineOptions, Errno, Error, File, Memory, Op, Patience, Policy,
    Request, Wait,
};

const BACKENDS: [Choice; 3] = [Choice::Threads, Choice::Aio, Choice::Uring];

fn on_each(body: impl Fn(&mut Engine)) {
    for backend in BACKENDS {
        let config = EngineOptions {
            backend,
            slots: 600,
            reserved_slots: 0,
            arena_bytes: 8 << 20,
            ..EngineOptions::default()
        };
        match Engine::new(&config) {
            Ok(mut engine) => {
                eprintln!("on {backend}");
                body(&mut engine);
            }
            Err(why) => eprintln!("skipped {backend}: {why}"),
        }
    }
}

fn next(engine: &mut Engine) -> Completion {
    loop {
        if let Some(completion) = engine.next_completion() {
            return completion;
        }
        assert!(engine.in_flight() > 0, "nothing is in flight");
        engine.turn(Wait::one()).unwrap();
    }
}

fn finish(engine: &mut Engine, request: Request) -> Completion {
    engine.submit(request).unwrap();
    next(engine)
}

fn file(fd: impl Into<OwnedFd>) -> File {
    File::from_fd(fd.into(), "a stream").unwrap()
}

fn buffer(engine: &Engine, bytes: &[u8]) -> Buffer {
    let mut buffer = engine.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

fn bytes_of(memory: Memory) -> Vec<u8> {
    memory.into_buffer().unwrap().to_vec()
}

fn in_a_while(act: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        act();
    })
}

/// Threads of this process that belong to backends.
fn workers() -> usize {
    let comm = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.unwrap().path().join("comm"));
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .map(comm)
        .filter(|comm| comm.as_ref().is_ok_and(|comm| comm.starts_with("baio-")))
        .count()
}

#[test]
fn connections_are_accepted_made_and_refused() {
    on_each(|engine| {
        for non_blocking in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(non_blocking).unwrap();
            let to = Address::Internet(listener.local_addr().unwrap());
            let listening = file(listener);
            let dial = || {
                rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap()
            };
            engine.submit(Request::accept(&listening).tagged(1)).unwrap();
            engine.turn(Wait::No).unwrap();
            assert!(engine.next_completion().is_none(), "nobody has called");
            let dialled = file(dial());
            let address = to.encode(engine.arena()).unwrap();
            engine.submit(Request::connect(&dialled, address).tagged(2)).unwrap();
            let mut accepted = None;
            for _ in 0..2 {
                let done = next(engine);
                assert_eq!(done.result, Ok(0), "{done:?}");
                accepted = accepted.or(done.accepted);
            }
            let accepted = accepted.expect("the connection");
            let sent = finish(engine, Request::send(&dialled, buffer(engine, b"hello")));
            assert_eq!(sent.result, Ok(5));
            let got = finish(engine, Request::receive(&accepted, buffer(engine, &[0; 64])));
            assert_eq!((got.result, &bytes_of(got.memory)[..5]), (Ok(5), &b"hello"[..]));
            drop(dialled);
            let end = finish(engine, Request::receive(&accepted, buffer(engine, &[0; 64])));
            assert_eq!(end.result, Ok(0));
            drop((listening, accepted));
            let address = to.encode(engine.arena()).unwrap();
            let refused = finish(engine, Request::connect(&file(dial()), address));
            assert_eq!(refused.result, Err(Error::System(Errno::from_raw(libc::ECONNREFUSED))));
        }
    });
}

/// A connection that another takes first may not block anybody.
#[test]
fn many_acceptors_share_a_blocking_listener() {
    on_each(|engine| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let listening = file(listener);
        for tag in 0..20 {
            engine.submit(Request::accept(&listening).tagged(tag)).unwrap();
        }
        let callers: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(to).unwrap()).collect();
        for _ in 0..5 {
            let done = next(engine);
            assert_eq!(done.result, Ok(0));
            assert!(done.accepted.is_some());
        }
        engine.turn(Wait::No).unwrap();
        assert!(engine.next_completion().is_none());
        // Those left can be called off: none of them sits in a blocking call.
        assert_eq!(engine.shutdown(Duration::from_secs(20)), 0);
        drop(callers);
    });
}

#[test]
fn a_full_backlog_is_waited_for() {
    on_each(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: no memory is involved.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let first = UnixStream::connect(&path).unwrap();
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
        let address = Address::Local(path.clone()).encode(engine.arena()).unwrap();
        let socket = file(socket);
        engine.submit(Request::connect(&socket, address)).unwrap();
        engine.turn(Wait::No).unwrap();
        assert!(
            engine.next_completion().is_none(),
            "there is no room yet, and the owner does not wait for it"
        );
        let taker = in_a_while(move || {
            for _ in 0..2 {
                drop(listener.accept().unwrap());
            }
        });
        assert_eq!(next(engine).result, Ok(0));
        taker.join().unwrap();
        drop(first);
    });
}

/// Nothing tells when there is room for a non-blocking socket, so it is tried again after a pause, and not over and over.
#[test]
fn a_full_backlog_is_not_stormed() {
    on_each(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: no memory is involved.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let first = UnixStream::connect(&path).unwrap();
        let sockets: Vec<File> = (0..2).map(|_| file(impatient_socket())).collect();
        let ids: Vec<_> = sockets
            .iter()
            .map(|socket| {
                let address = Address::Local(path.clone()).encode(engine.arena()).unwrap();
                engine.submit(Request::connect(socket, address)).unwrap()
            })
            .collect();
        let wait = Wait::Until {
            count: 1,
            min_wait: Duration::ZERO,
            deadline: Some(engine.now().after(Duration::from_millis(200))),
        };
        assert_eq!(engine.turn(wait), Ok(0), "there is no room yet");
        let iterations = engine.stats().iterations;
        assert!(iterations < 500, "a storm of {iterations} tries and pauses");
        engine.cancel(ids[0]);
        let done = next(engine);
        assert_eq!((done.id, done.result), (ids[0], Err(Error::Cancelled)));
        let taker = std::thread::spawn(move || {
            for _ in 0..2 {
                drop(listener.accept().unwrap());
            }
        });
        // An outside loop is woken too: it sleeps until the turn has what it waits for.
        while engine.completed() == 0 {
            let fd = engine.ready_fd(true).unwrap().try_clone_to_owned().unwrap();
            if engine.turn(Wait::No) == Ok(0) {
                let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
                let mut one = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
                assert_eq!(rustix::event::poll(&mut one, Some(&limit)), Ok(1), "nobody wakes it");
            }
            engine.ready_fd(false);
        }
        let done = next(engine);
        assert_eq!((done.id, done.result), (ids[1], Ok(0)));
        taker.join().unwrap();
        drop(first);
    });
}

fn impatient_socket() -> OwnedFd {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap()
}

#[test]
fn what_waits_takes_no_worker() {
    on_each(|engine| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let stream = file(reader);
        for tag in 0..250 {
            let memory = buffer(engine, &[0; 4]);
            engine.submit(Request::receive(&stream, memory).tagged(tag)).unwrap();
            let poll = Op::Poll {
                events: libc::POLLIN as u32,
            };
            engine
                .submit(Request::bare(poll, Some(&stream), Policy::kernel()).tagged(1000 + tag))
                .unwrap();
        }
        engine.turn(Wait::No).unwrap();
        assert_eq!(engine.in_flight(), 500);
        assert!(workers() < 100, "{} workers", workers());
        // Five messages for 250 who wait; every poll is told.
        writer.write_all(&[7; 20]).unwrap();
        let (mut received, mut polled) = (0, 0);
        while received < 20 || polled < 250 {
            let done = next(engine);
            match done.tag {
                1000.. => {
                    assert_ne!(done.result.unwrap() & libc::POLLIN as u32, 0);
                    polled += 1;
                }
                _ => received += done.result.unwrap(),
            }
        }
        assert_eq!(engine.shutdown(Duration::from_secs(20)), 0);
    });
}

/// The slot of a wait that was called off may serve another, which the old descriptor must not wake.
#[test]
fn a_wait_that_was_called_off_wakes_nobody() {
    for backend in BACKENDS {
        let config = EngineOptions {
            backend,
            slots: 1,
            reserved_slots: 0,
            ..EngineOptions::default()
        };
        let Ok(mut engine) = Engine::new(&config) else { continue };
        let (first, mut to_first) = std::io::pipe().unwrap();
        let (second, mut to_second) = std::io::pipe().unwrap();
        let (first, second) = (file(first), file(second));
        let poll = |file: &File| {
            let events = libc::POLLIN as u32;
            Request::bare(Op::Poll { events }, Some(file), Policy::kernel())
        };
        let id = engine.submit(poll(&first)).unwrap();
        engine.turn(Wait::No).unwrap();
        engine.cancel(id);
        assert_eq!(next(&mut engine).result, Err(Error::Cancelled));
        engine.submit(poll(&second)).unwrap();
        engine.turn(Wait::No).unwrap();
        to_first.write_all(b"x").unwrap();
        for _ in 0..10 {
            engine.turn(Wait::No).unwrap();
            assert!(
                engine.next_completion().is_none(),
                "{backend}: woken by another's descriptor"
            );
        }
        to_second.write_all(b"x").unwrap();
        assert!(next(&mut engine).result.is_ok());
    }
}

#[test]
fn waiting_for_all_bytes_is_the_sockets_business() {
    on_each(|engine| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let receive = |stream: &File, engine: &Engine| Request {
            op: Op::Receive {
                flags: libc::MSG_WAITALL as u32,
            },
            ..Request::receive(stream, buffer(engine, &[0; 10]))
        };
        let stream = file(reader);
        let feed = std::thread::spawn(move || {
            for byte in 0..10_u8 {
                std::thread::sleep(Duration::from_millis(2));
                writer.write_all(&[byte]).unwrap();
            }
            std::thread::sleep(Duration::from_millis(2));
            writer.write_all(b"xyz").unwrap();
        });
        let done = finish(engine, receive(&stream, engine));
        assert_eq!(done.result, Ok(10));
        assert!(bytes_of(done.memory).into_iter().eq(0..10));
        // The other end closes with three of ten.
        let done = finish(engine, receive(&stream, engine));
        assert_eq!((done.result, &bytes_of(done.memory)[..3]), (Ok(3), &b"xyz"[..]));
        feed.join().unwrap();
        // A datagram is whole as it is.
        let (reader, writer) = UnixDatagram::pair().unwrap();
        writer.send(b"four").unwrap();
        let done = finish(engine, receive(&file(reader), engine));
        assert_eq!(done.result, Ok(4));
    });
}

#[test]
fn who_does_not_want_to_wait_is_told() {
    on_each(|engine| {
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let stream = file(reader);
        let impatient = |engine: &Engine| {
            let mut request = Request::receive(&stream, buffer(engine, &[0; 4]));
            request.policy.patience = Patience::NoWait;
            request
        };
        let told = finish(engine, impatient(engine));
        assert_eq!(told.result, Err(Error::System(Errno::EAGAIN)));
        let flagged = Request {
            op: Op::Receive {
                flags: libc::MSG_DONTWAIT as u32,
            },
            ..Request::receive(&stream, buffer(engine, &[0; 4]))
        };
        assert_eq!(finish(engine, flagged).result, Err(Error::System(Errno::EAGAIN)));
        writer.write_all(b"now").unwrap();
        assert_eq!(finish(engine, impatient(engine)).result, Ok(3));
    });
}

/// Named pipes and terminals: `RWF_NOWAIT` is not for everybody.
#[test]
fn a_named_pipe_is_read_and_written_whole() {
    on_each(|engine| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let open = || std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let (mut outside, inside) = (open(), file(open()));
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at >> 3) as u8).collect();
        engine
            .submit(Request::write_stream(&inside, buffer(engine, &bytes)).tagged(1))
            .unwrap();
        engine.turn(Wait::No).unwrap();
        let expected = bytes.clone();
        let reader = in_a_while(move || {
            let mut got = vec![0; expected.len()];
            outside.read_exact(&mut got).unwrap();
            assert!(got == expected);
        });
        assert_eq!(next(engine).result, Ok(200_000));
        reader.join().unwrap();
        // And a read that somebody else feeds, later.
        engine
            .submit(Request::read_stream(&inside, buffer(engine, &[0; 64])))
            .unwrap();
        engine.turn(Wait::No).unwrap();
        assert!(engine.next_completion().is_none());
        let mut outside = open();
        let feed = in_a_while(move || outside.write_all(b"at last").unwrap());
        let done = next(engine);
        assert_eq!((done.result, &bytes_of(done.memory)[..7]), (Ok(7), &b"at last"[..]));
        feed.join().unwrap();
    });
}

/// The end with the keys and the screen, and the terminal itself.
fn terminal() -> Option<(std::fs::File, File)> {
    // SAFETY: plain calls on a new descriptor, which becomes ours.
    let master = unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        if master < 0 || libc::grantpt(master) != 0 || libc::unlockpt(master) != 0 {
            eprintln!("skipped: no terminals here");
            return None;
        }
        OwnedFd::from_raw_fd(master)
    };
    let mut name = [0_u8; 64];
    // SAFETY: the name fits, and is terminated.
    let named = unsafe { libc::ptsname_r(master.as_raw_fd(), name.as_mut_ptr().cast(), name.len()) };
    assert_eq!(named, 0);
    let name = std::ffi::CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap();
    let terminal = std::fs::File::options().read(true).write(true).open(name).unwrap();
    Some((master.into(), file(terminal)))
}

/// Reads so many bytes from the screen when it is told how many, or, so that who waits for it is freed, unasked after half a minute.
fn screen(mut keys: std::fs::File) -> (std::sync::mpsc::Sender<usize>, std::thread::JoinHandle<()>) {
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let asked = told.recv_timeout(Duration::from_secs(30));
        let mut shown = vec![0; asked.unwrap_or(FULL)];
        keys.read_exact(&mut shown).unwrap();
        assert!(asked.is_ok(), "it waited for who reads the terminal");
        assert!(shown.iter().all(|&byte| byte == b'x'));
    });
    (tell, reader)
}

/// More than a terminal has room for.
const FULL: usize = 1 << 20;

#[test]
fn a_terminal_that_is_full_keeps_nobody_but_its_writer() {
    on_each(|engine| {
        let Some((keys, terminal)) = terminal() else { return };
        let (tell, reader) = screen(keys);
        let (one, mut other) = std::io::pipe().unwrap();
        other.write_all(b"meanwhile").unwrap();
        engine
            .submit(Request::write_stream(&terminal, buffer(engine, &[b'x'; FULL])).tagged(1))
            .unwrap();
        let read = Request::read_stream(&file(one), buffer(engine, &[0; 64])).tagged(2);
        engine.submit(read).unwrap();
        let done = next(engine);
        assert_eq!((done.tag, done.result), (2, Ok(9)));
        tell.send(FULL).unwrap();
        let done = next(engine);
        assert_eq!((done.tag, done.result), (1, Ok(FULL as u32)));
        reader.join().unwrap();
    });
}

#[test]
fn a_terminal_that_is_full_tells_who_does_not_want_to_wait() {
    on_each(|engine| {
        let Some((keys, terminal)) = terminal() else { return };
        let (tell, reader) = screen(keys);
        let mut write = Request::write_stream(&terminal, buffer(engine, &[b'x'; FULL]));
        write.policy.patience = Patience::NoWait;
        let done = finish(engine, write);
        assert_eq!(done.result, Err(Error::System(Errno::EAGAIN)));
        assert!(done.bytes_done > 0, "there was room");
        tell.send(done.bytes_done as usize).unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_terminal_is_waited_for_and_called_off() {
    on_each(|engine| {
        let Some((mut keys, terminal)) = terminal() else { return };
        let read = |engine: &Engine| Request::read_stream(&terminal, buffer(engine, &[0; 64]));
        let id = engine.submit(read(engine)).unwrap();
        engine.turn(Wait::No).unwrap();
        engine.cancel(id);
        assert_eq!(next(engine).result, Err(Error::Cancelled));
        engine.submit(read(engine)).unwrap();
        engine.turn(Wait::No).unwrap();
        assert!(engine.next_completion().is_none(), "nothing was typed");
        let typed = in_a_while(move || {
            keys.write_all(b"hello\n").unwrap();
            std::thread::sleep(Duration::from_millis(50));
        });
        let done = next(engine);
        assert_eq!((done.result, &bytes_of(done.memory)[..6]), (Ok(6), &b"hello\n"[..]));
        typed.join().unwrap();
    });
}

#[test]
fn a_broken_pipe_is_an_error() {
    on_each(|engine| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = finish(engine, Request::write_stream(&file(writer), buffer(engine, b"x")));
        assert_eq!(done.result, Err(Error::System(Errno::EPIPE)));
    });
}

#[test]
fn what_never_makes_one_wait_is_read_at_once() {
    on_each(|engine| {
        let zero = file(std::fs::File::open("/dev/zero").unwrap());
        let done = finish(engine, Request::read_stream(&zero, buffer(engine, &[9; 64])));
        assert_eq!(done.result, Ok(64));
        assert!(bytes_of(done.memory).iter().all(|&byte| byte == 0));
        let full = file(std::fs::File::options().write(true).open("/dev/full").unwrap());
        let done = finish(engine, Request::write_stream(&full, buffer(engine, b"x")));
        assert_eq!(done.result, Err(Error::System(Errno::ENOSPC)));
    });
}

/// Asking again costs nothing: no place in a queue, no call into the kernel.
#[test]
fn a_request_is_called_back_once_however_often_it_is_cancelled() {
    on_each(|engine| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = file(reader);
        let mut ids = Vec::new();
        for _ in 0..3 {
            let memory = buffer(engine, &[0; 16]);
            ids.push(engine.submit(Request::read_stream(&pipe, memory)).unwrap());
        }
        engine.turn(Wait::No).unwrap();
        let before = engine.stats().system_calls;
        for _ in 0..20_000 {
            ids.iter().for_each(|&id| engine.cancel(id));
        }
        engine.abandon(ids[2]);
        let calls = engine.stats().system_calls - before;
        assert!(calls < 10, "{calls} system calls");
        let mut ended: Vec<_> = (0..3)
            .map(|_| next(engine))
            .map(|done| (done.id, done.result))
            .collect();
        ended.sort_by_key(|(id, _)| ids.iter().position(|other| other == id));
        let results: Vec<_> = ended.into_iter().map(|(_, result)| result).collect();
        assert_eq!(results[..2], [Err(Error::Cancelled), Err(Error::Cancelled)]);
        engine.turn(Wait::No).unwrap();
        assert_eq!(engine.in_flight(), 0);
    });
}
