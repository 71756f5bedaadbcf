//! Turns sleep exactly as long as they are told, and everything that ends is seen: by a sleeping turn, by a polling one, by
//! an outside loop. Streams and timers complete in the same queue (seed 001 §9).

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baio_engine::{
    BATCH_MAX, Engine, EngineOptions, Errno, Error, File, Memory, Notice, Op, Patience, Policy, Request, Wait,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backends::{Bench, Case, Stop, blank, buffer, bytes_of, direct, finish, next, own, pattern, refused};

const UNTIL_RUNG: Wait = Wait::Until {
    count: 0,
    min_wait: Duration::ZERO,
    deadline: None,
};

pub(crate) fn a_turn_with_nothing_in_flight_does_not_sleep(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    assert_eq!(engine.turn(Wait::No), Ok(0));
    assert_eq!(engine.turn(Wait::one()), Ok(0));
    assert_eq!(engine.turn(Wait::for_count(100)), Ok(0));
    let deadline = Some(engine.now().after(Duration::from_millis(1)));
    assert_eq!(
        engine.turn(Wait::Until {
            count: 0,
            min_wait: Duration::ZERO,
            deadline
        }),
        Ok(0)
    );
    assert!(Some(engine.now()) >= deadline, "asked to sleep until then");
    Ok(())
}

pub(crate) fn a_whole_batch_goes_off_without_a_turn(bench: &Bench) -> Case {
    let config = EngineOptions {
        slots: 2 * BATCH_MAX as u32,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let file = bench.file(&pattern(1, 4096));
    let read = |engine: &mut Engine| {
        let memory = blank(engine, 512);
        engine
            .submit(Request::read(&file, 0, memory, Policy::kernel()))
            .map_err(|_| "full")
            .unwrap()
    };
    for _ in 1..BATCH_MAX {
        read(&mut engine);
    }
    assert_eq!(engine.queued(), BATCH_MAX - 1, "fewer are only queued");
    read(&mut engine);
    assert_eq!(engine.queued(), 0);
    while engine.turn(Wait::one()) != Ok(BATCH_MAX) {}
    Ok(())
}

pub(crate) fn polling_without_sleep_sees_every_completion(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 65536));
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for _ in 0..10 {
        for block in 0..16 {
            let request = Request::read(&file, block * 4096, blank(&engine, 4096), policy);
            engine.submit(request).expect("a slot");
        }
        let mut seen = 0;
        while seen < 16 {
            engine.turn(Wait::No).expect("a turn");
            while let Some(done) = engine.next_completion() {
                assert_eq!(done.result, Ok(4096));
                seen += 1;
            }
        }
    }
    Ok(())
}

pub(crate) fn a_turn_waits_for_as_many_as_asked(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(2, 65536));
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for (count, expected) in [(1, 1), (7, 7), (16, 16), (1000, 16)] {
        for block in 0..16 {
            let request = Request::read(&file, block * 4096, blank(&engine, 4096), policy);
            engine.submit(request).expect("a slot");
        }
        let ready = engine.turn(Wait::for_count(count)).expect("a turn");
        assert!(ready >= expected && ready <= 16, "{ready} of {count}");
        while engine.in_flight() > 0 {
            engine.turn(Wait::for_count(16)).expect("a turn");
        }
        assert_eq!(std::iter::from_fn(|| engine.next_completion()).count(), 16);
    }
    Ok(())
}

fn timer(engine: &Engine, after: Duration) -> Request {
    Request::bare(
        Op::Timer {
            at: engine.now().after(after),
        },
        None,
        Policy::direct(),
    )
}

pub(crate) fn after_min_wait_one_completion_is_enough(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let soon = engine.submit(timer(&engine, Duration::from_millis(1))).expect("a slot");
    let late = engine
        .submit(timer(&engine, Duration::from_secs(3600)))
        .expect("a slot");
    if let Some(done) = engine.next_completion() {
        refused(&done)?;
    }
    let wait = Wait::Until {
        count: 2,
        min_wait: Duration::from_millis(3),
        deadline: None,
    };
    assert_eq!(engine.turn(wait), Ok(1));
    assert_eq!(next(&mut engine).id, soon);
    engine.cancel(late);
    assert_eq!(next(&mut engine).result, Err(Error::Cancelled));
    Ok(())
}

/// Rings when the engine is probably asleep; the result does not depend on it.
fn ring_soon(engine: &Engine) -> std::thread::JoinHandle<()> {
    let doorbell = engine.doorbell();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        doorbell.ring();
    })
}

pub(crate) fn a_doorbell_ends_a_sleeping_turn(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for _ in 0..3 {
        let ringer = ring_soon(&engine);
        assert_eq!(engine.turn(UNTIL_RUNG), Ok(0));
        ringer.join().expect("a thread that rings");
    }
    Ok(())
}

pub(crate) fn a_doorbell_rung_before_the_turn_is_heard(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for _ in 0..100 {
        engine.doorbell().ring();
        engine.doorbell().ring();
        assert_eq!(engine.turn(UNTIL_RUNG), Ok(0));
    }
    Ok(())
}

pub(crate) fn a_doorbell_wakes_a_turn_that_waits_for_requests(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let (file, writer) = bench.pipe()?;
    let read = stream(Op::Read { offset: None }, &file, Memory::Own(blank(&engine, 16)));
    if bench.ends_in_its_turn() {
        return Err(Stop::Refused("each request blocks until it has ended".into()));
    }
    engine.submit(read).expect("a slot");
    for _ in 0..3 {
        let ringer = ring_soon(&engine);
        assert_eq!(engine.turn(Wait::one()), Ok(0));
        ringer.join().expect("a thread that rings");
    }
    std::fs::File::from(writer)
        .write_all(b"sixteen bytes...")
        .expect("a pipe");
    assert_eq!(next(&mut engine).result, Ok(16));
    Ok(())
}

/// A long time for a wake-up that has been asked for; an outside loop would wait for ever.
fn wakes(fd: BorrowedFd<'_>) -> bool {
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).expect("poll") > 0
}

fn arm(engine: &mut Engine) -> Result<OwnedFd, Stop> {
    let fd = engine
        .ready_fd(true)
        .ok_or_else(|| Stop::Refused("it has no ready descriptor".into()))?;
    Ok(fd.try_clone_to_owned().expect("a descriptor"))
}

/// Polling the ring itself misses completions under DEFER_TASKRUN.
pub(crate) fn the_ready_descriptor_sees_every_completion(bench: &Bench) -> Case {
    const READS: u64 = 1000;
    let mut engine = bench.engine();
    let file = bench.file(&pattern(3, 65536));
    let policy = direct(&file).unwrap_or(Policy::kernel());
    let mut spare: Vec<_> = (0..8).map(|_| blank(&engine, 4096)).collect();
    let (mut submitted, mut seen) = (0, 0);
    while seen < READS {
        while submitted < READS
            && let Some(memory) = spare.pop()
        {
            engine
                .submit(Request::read(&file, submitted % 16 * 4096, memory, policy))
                .expect("a slot");
            submitted += 1;
        }
        let ready = arm(&mut engine)?;
        if engine.turn(Wait::No) == Ok(0) {
            assert!(wakes(ready.as_fd()), "missed a wake-up after {seen} completions");
        }
        engine.ready_fd(false);
        engine.turn(Wait::No).expect("a turn");
        while let Some(done) = engine.next_completion() {
            assert_eq!(done.result, Ok(4096));
            spare.push(own(done.memory));
            seen += 1;
        }
    }
    Ok(())
}

/// Another thread posts and rings; an outside loop may not sleep through what was posted.
pub(crate) fn the_ready_descriptor_hears_every_ring(bench: &Bench) -> Case {
    const POSTS: u64 = 3000;
    let mut engine = bench.engine();
    engine
        .ready_fd(true)
        .ok_or_else(|| Stop::Refused("it has no ready descriptor".into()))?;
    let posted = Arc::new(AtomicU64::new(0));
    let taken = Arc::new(AtomicU64::new(0));
    let doorbell = engine.doorbell();
    let poster = {
        let (posted, taken) = (Arc::clone(&posted), Arc::clone(&taken));
        std::thread::spawn(move || {
            for post in 1..=POSTS {
                posted.store(post, Ordering::SeqCst);
                doorbell.ring();
                // Two may be under way, so rings meet every state of the loop.
                while taken.load(Ordering::SeqCst) + 2 < post {
                    std::thread::yield_now();
                }
            }
        })
    };
    let mut mine = 0;
    while mine < POSTS {
        let ready = arm(&mut engine)?;
        engine.turn(Wait::No).expect("a turn");
        let now = posted.load(Ordering::SeqCst);
        if now == mine {
            assert!(wakes(ready.as_fd()), "slept through a ring after {mine}");
        }
        mine = now;
        taken.store(mine, Ordering::SeqCst);
        engine.ready_fd(false);
    }
    poster.join().expect("the posting thread");
    Ok(())
}

/// A write to an event fd completes the poll in a context from which the kernel defers, and since Linux 6.10 forgets, the
/// signal to the ready descriptor.
pub(crate) fn the_ready_descriptor_sees_event_fds_that_are_polled(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    arm(&mut engine)?;
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("an event fd");
    let file = File::from_fd(event.try_clone().expect("an event fd"), "an event fd").expect("an event fd");
    for round in 0..10 {
        let watch = Request::bare(
            Op::Poll {
                events: libc::POLLIN as u32,
            },
            Some(&file),
            Policy::kernel(),
        );
        engine.submit(watch).expect("a slot");
        let ready = arm(&mut engine)?;
        assert_eq!(engine.turn(Wait::No), Ok(0));
        rustix::io::write(&event, &1_u64.to_ne_bytes()).expect("an event fd");
        assert!(wakes(ready.as_fd()), "missed a wake-up in round {round}");
        engine.ready_fd(false);
        assert_eq!(next(&mut engine).result, Ok(libc::POLLIN as u32));
        rustix::io::read(&event, &mut [0; 8]).expect("an event fd");
    }
    Ok(())
}

/// Disarming may not lose a ring that the caller has not seen.
pub(crate) fn a_ring_heard_outside_ends_the_next_sleep(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for _ in 0..3 {
        let ready = arm(&mut engine)?;
        assert_eq!(engine.turn(Wait::No), Ok(0));
        engine.doorbell().ring();
        assert!(wakes(ready.as_fd()));
        engine.ready_fd(false);
        assert_eq!(engine.turn(UNTIL_RUNG), Ok(0));
    }
    Ok(())
}

pub(crate) fn a_timer_fires_and_time_goes_on(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let before = engine.now();
    let at = before.after(Duration::from_millis(2));
    for (tag, at) in [(3, at.after(Duration::from_millis(4))), (2, at), (1, before)] {
        engine
            .submit(Request::bare(Op::Timer { at }, None, Policy::direct()).tagged(tag))
            .expect("a slot");
    }
    let done = next(&mut engine);
    refused(&done)?;
    let mut order = vec![done.tag];
    order.extend(
        (0..2)
            .map(|_| next(&mut engine))
            .map(|done| (assert_eq!(done.result, Ok(0)), done.tag).1),
    );
    assert_eq!(order, [1, 2, 3]);
    assert!(engine.now() >= at, "a timer may not fire early");
    Ok(())
}

fn stream(op: Op, file: &File, memory: Memory) -> Request {
    Request {
        memory,
        ..Request::bare(op, Some(file), Policy::kernel())
    }
}

pub(crate) fn polling_tells_what_is_ready(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let disk = bench.file(&[0; 4096]);
    let watch = |file: &File| {
        Request::bare(
            Op::Poll {
                events: libc::POLLIN as u32,
            },
            Some(file),
            Policy::kernel(),
        )
    };
    refused(&finish(&mut engine, watch(&disk)))?;
    let (file, writer) = bench.pipe()?;
    engine.submit(watch(&file)).expect("a slot");
    engine.turn(Wait::No).expect("a turn");
    assert!(engine.next_completion().is_none(), "an empty pipe is not readable");
    let mut writer = std::fs::File::from(writer);
    writer.write_all(b"x").expect("a pipe");
    let events = next(&mut engine).result.expect("ready");
    assert_ne!(events & libc::POLLIN as u32, 0);
    Ok(())
}

pub(crate) fn a_stream_read_returns_what_there_is(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let (file, writer) = bench.pipe()?;
    let mut writer = std::fs::File::from(writer);
    for text in ["hello", "a second helping"] {
        writer.write_all(text.as_bytes()).expect("a pipe");
        let read = stream(Op::Read { offset: None }, &file, Memory::Own(blank(&engine, 4096)));
        let done = finish(&mut engine, read);
        assert_eq!(done.result, Ok(text.len() as u32));
        assert_eq!(&bytes_of(&done.memory)[..text.len()], text.as_bytes());
    }
    drop(writer);
    let read = stream(Op::Read { offset: None }, &file, Memory::Own(blank(&engine, 4096)));
    assert_eq!(finish(&mut engine, read).result, Ok(0), "the other end is closed");
    Ok(())
}

pub(crate) fn a_stream_write_is_whole(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let (reader, writer) = bench.raw_pipe()?;
    let file = File::from_fd(writer, "a pipe").expect("the writing end");
    let bytes = pattern(4, 1 << 20);
    let drain = std::thread::spawn(move || {
        let mut all = Vec::new();
        std::fs::File::from(reader).read_to_end(&mut all).map(|_| all)
    });
    let write = stream(Op::Write { offset: None }, &file, Memory::Own(buffer(&engine, &bytes)));
    let done = finish(&mut engine, write);
    assert_eq!((done.result, done.notice), (Ok(1 << 20), Notice::Completed));
    drop(file);
    drop(done);
    assert!(drain.join().expect("the reading thread").expect("a pipe") == bytes);
    Ok(())
}

/// `O_NONBLOCK` belongs to the descriptor, not to the request: a request that may wait, waits, and does not spin.
pub(crate) fn a_non_blocking_stream_is_waited_for(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let (reader, writer) = bench.raw_pipe()?;
    for end in [&reader, &writer] {
        rustix::io::ioctl_fionbio(end, true).expect("O_NONBLOCK");
    }
    let source = reader.try_clone().expect("a pipe");
    let file = File::from_fd(reader, "a pipe").expect("the reading end");
    let target = File::from_fd(writer.try_clone().expect("a pipe"), "a pipe").expect("the writing end");
    let feed = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        std::fs::File::from(writer).write_all(b"at last").expect("a pipe");
    });
    let read = stream(Op::Read { offset: None }, &file, Memory::Own(blank(&engine, 4096)));
    let done = finish(&mut engine, read);
    assert_eq!(done.result, Ok(7));
    assert!(done.iterations <= 4, "a storm of {} retries", done.iterations);
    feed.join().expect("the feeding thread");
    let drain = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        let mut left = 1 << 20;
        let mut some = vec![0; 65536];
        while left > 0 {
            match rustix::io::read(&source, &mut some) {
                Ok(got) => left -= got,
                Err(rustix::io::Errno::AGAIN) => std::thread::yield_now(),
                Err(errno) => panic!("{errno}"),
            }
        }
    });
    let write = stream(
        Op::Write { offset: None },
        &target,
        Memory::Own(blank(&engine, 1 << 20)),
    );
    assert_eq!(finish(&mut engine, write).result, Ok(1 << 20));
    drain.join().expect("the draining thread");
    Ok(())
}

pub(crate) fn only_who_asks_for_it_sees_eagain(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let (file, writer) = bench.pipe()?;
    let impatient = |memory| {
        let mut read = stream(Op::Read { offset: None }, &file, memory);
        read.policy.patience = Patience::NoWait;
        read
    };
    let memory = Memory::Own(blank(&engine, 64));
    let done = finish(&mut engine, impatient(memory));
    assert_eq!((done.result, done.iterations), (Err(Error::System(Errno::EAGAIN)), 1));
    std::fs::File::from(writer).write_all(b"now").expect("a pipe");
    assert_eq!(finish(&mut engine, impatient(done.memory)).result, Ok(3));
    Ok(())
}
