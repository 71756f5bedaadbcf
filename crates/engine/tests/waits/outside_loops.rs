//! Whatever ends while somebody sleeps wakes them: in a turn that waits for several, or in a loop outside that sleeps on the
//! ready descriptor until the next deadline (docs/inside/engine.md rule 9). On every asynchronous backend.

use std::os::fd::AsFd;
use std::time::Duration;

use baio_engine::{Choice, Engine, EngineOptions, Error, File, Op, Open, Policy, Request, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn on(backends: &[Choice], body: impl Fn(&mut Engine)) {
    for &backend in backends {
        let config = EngineOptions {
            backend,
            slots: 128,
            reserved_slots: 0,
            arena_bytes: 64 << 20,
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

const ALL: &[Choice] = &[Choice::Threads, Choice::Aio, Choice::Uring];

/// A long time for a wake-up that must come.
const HANG: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

fn a_file(bytes: usize) -> (tempfile::NamedTempFile, File) {
    let kept = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(kept.path(), vec![7; bytes]).unwrap();
    kept.as_file().sync_all().unwrap();
    let file = File::open(kept.path(), &Open::write()).unwrap();
    (kept, file)
}

fn direct(file: &File) -> Policy {
    if file.gives(Policy::direct().caching) {
        Policy::direct()
    } else {
        Policy::kernel()
    }
}

/// Sleeps outside until `wanted` requests have completed.
fn sleep_outside(engine: &mut Engine, wanted: usize) {
    let mut seen = 0;
    while seen < wanted {
        let ready = engine
            .ready_fd(true)
            .expect("a ready descriptor")
            .try_clone_to_owned()
            .unwrap();
        engine.turn(Wait::No).unwrap();
        let before = seen;
        seen += std::iter::from_fn(|| engine.next_completion()).count();
        if seen == before {
            let woken = poll(&mut [PollFd::new(&ready.as_fd(), PollFlags::IN)], Some(&HANG)).unwrap();
            assert_eq!(woken, 1, "slept through it with {seen} of {wanted}");
        }
        engine.ready_fd(false);
    }
}

#[test]
fn what_was_under_way_before_the_first_arming_is_seen() {
    on(ALL, |engine| {
        let (_kept, file) = a_file(16 << 20);
        for block in 0..16 {
            let buffer = engine.buffer(1 << 20).unwrap();
            engine
                .submit(Request::read(&file, block << 20, buffer, direct(&file)))
                .unwrap();
        }
        engine.turn(Wait::No).unwrap();
        let early = std::iter::from_fn(|| engine.next_completion()).count();
        sleep_outside(engine, 16 - early);
    });
}

#[test]
fn a_loop_outside_is_woken_by_timers_syncs_and_cached_writes() {
    on(ALL, |engine| {
        let (_kept, file) = a_file(1 << 20);
        for round in 1..20_u64 {
            let at = engine.now().after(Duration::from_micros(300 * round));
            engine
                .submit(Request::bare(Op::Timer { at }, None, Policy::kernel()))
                .unwrap();
            let mut buffer = engine.buffer(65536).unwrap();
            buffer.fill(round as u8);
            engine
                .submit(Request::write(&file, 0, buffer, Policy::kernel()))
                .unwrap();
            engine
                .submit(Request::sync(&file, baio_engine::Durability::Data))
                .unwrap();
            sleep_outside(engine, 3);
        }
    });
}

/// What never ends by itself is under way before the loop first asks for its descriptor, and again before each arming.
#[test]
fn a_loop_outside_is_woken_beside_an_accept_that_nobody_answers() {
    on(ALL, |engine| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listener = File::from_fd(listener.into(), "a listener").unwrap();
        let far = engine.now().after(Duration::from_secs(3600));
        let pending = [
            Request::accept(&listener),
            Request::bare(Op::Timer { at: far }, None, Policy::kernel()),
        ];
        let pending = pending.map(|request| engine.submit(request).unwrap());
        engine.turn(Wait::No).unwrap();
        let (_kept, file) = a_file(1 << 20);
        for round in 0..5_u64 {
            let buffer = engine.buffer(65536).unwrap();
            let read = Request::read(&file, round << 16, buffer, direct(&file));
            engine.submit(read).unwrap();
            sleep_outside(engine, 1);
            let (reader, writer) = std::io::pipe().unwrap();
            let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
            let read = Request::read_stream(&pipe, engine.buffer(16).unwrap());
            engine.submit(read).unwrap();
            engine.turn(Wait::No).unwrap();
            let late = std::thread::spawn(move || std::io::Write::write_all(&mut &writer, b"x"));
            sleep_outside(engine, 1);
            late.join().unwrap().unwrap();
        }
        for id in pending {
            engine.cancel(id);
        }
        sleep_outside(engine, 2);
    });
}

/// More syncs at a time than one backend leaves to the kernel, mixed with what goes elsewhere.
#[test]
fn forty_files_are_synced_at_once() {
    on(ALL, |engine| {
        let files: Vec<_> = (0..40).map(|_| a_file(4096)).collect();
        for _ in 0..3 {
            for (_, file) in &files {
                let mut buffer = engine.buffer(4096).unwrap();
                buffer.fill(1);
                engine
                    .submit(Request::write(file, 0, buffer, Policy::kernel()))
                    .unwrap();
                engine
                    .submit(Request::sync(file, baio_engine::Durability::Full))
                    .unwrap();
            }
            while engine.in_flight() > 0 {
                engine.turn(Wait::for_count(80)).unwrap();
            }
            let results: Vec<_> = std::iter::from_fn(|| engine.next_completion())
                .map(|done| done.result)
                .collect();
            assert_eq!(results.len(), 80);
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
    });
}

/// A sleep for several requests is ended by the doorbell, as one for a single request is.
#[test]
fn a_ring_ends_a_sleep_for_many() {
    on(ALL, |engine| {
        let (_kept, file) = a_file(4096);
        for count in [1, 2, 8, 50] {
            let far = engine.now().after(Duration::from_secs(3600));
            let timers: Vec<_> = (0..count)
                .map(|_| {
                    engine
                        .submit(Request::bare(Op::Timer { at: far }, None, Policy::kernel()))
                        .unwrap()
                })
                .collect();
            // Something in the kernel's own queue, too, which ends long before.
            let buffer = engine.buffer(4096).unwrap();
            engine.submit(Request::read(&file, 0, buffer, direct(&file))).unwrap();
            let doorbell = engine.doorbell();
            let ringer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                doorbell.ring();
            });
            engine.turn(Wait::for_count(count + 1)).unwrap();
            ringer.join().unwrap();
            for timer in timers {
                engine.cancel(timer);
            }
            while engine.in_flight() > 0 {
                engine.turn(Wait::one()).unwrap();
            }
            assert_eq!(
                std::iter::from_fn(|| engine.next_completion()).count() as u32,
                count + 1
            );
        }
    });
}

/// The descriptor does not tell of a deadline: whoever sleeps on it asks until when.
#[test]
fn a_loop_outside_sleeps_until_the_soonest_deadline() {
    on(ALL, |engine| {
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = File::from_fd(reader.into(), "a pipe").unwrap();
        assert_eq!(engine.next_deadline(), None);
        let soon = engine.now().after(Duration::from_millis(30));
        let late = soon.after(Duration::from_secs(3600));
        let ids = [late, soon].map(|deadline| {
            let mut request = Request::read_stream(&pipe, engine.buffer(16).unwrap());
            request.policy.deadline = Some(deadline);
            engine.submit(request).unwrap()
        });
        assert_eq!(engine.next_deadline(), Some(soon));
        let done = loop {
            let ready = engine.ready_fd(true).unwrap().try_clone_to_owned().unwrap();
            engine.turn(Wait::No).unwrap();
            if let Some(done) = engine.next_completion() {
                break done;
            }
            let left = engine.next_deadline().unwrap().since(engine.now());
            assert!(left <= Duration::from_millis(30), "{left:?}");
            let limit = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            poll(&mut [PollFd::new(&ready.as_fd(), PollFlags::IN)], Some(&limit)).unwrap();
            engine.ready_fd(false);
        };
        assert_eq!((done.id, done.result), (ids[1], Err(Error::Indeterminate)));
        assert_eq!(engine.next_deadline(), Some(late));
        engine.cancel(ids[0]);
        while engine.in_flight() > 0 {
            engine.turn(Wait::one()).unwrap();
        }
        assert_eq!(engine.next_deadline(), None);
    });
}
