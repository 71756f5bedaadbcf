//! Exactly one completion per request, memory that stays with it until its own end, and engines that end in good order
//! (docs/inside/engine.md rules 1, 3 and 6).

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use baio_engine::{Engine, EngineOptions, Error, File, Memory, Notice, Op, Policy, Request, Time, Wait};

use crate::backends::{Bench, Case, Stop, blank, buffer, bytes_of, direct, finish, next, own, pattern, read, refused};
use crate::gate::{Gate, gated};

/// Requests that are in flight until the test ends them: reads of a gated disk, or of an empty pipe.
pub(crate) struct Endless {
    pub(crate) engine: Engine,
    file: File,
    end: End,
}

enum End {
    Gate(Gate),
    Pipe(OwnedFd),
}

impl Endless {
    pub(crate) fn new(bench: &Bench) -> Result<Endless, Stop> {
        if bench.ends_in_its_turn() {
            return Err(Stop::Refused("a request has ended when its turn returns".into()));
        }
        if bench.is_simulated() {
            let (engine, gate, _, file) = gated(bench, 65536)?;
            gate.close();
            return Ok(Endless {
                engine,
                file,
                end: End::Gate(gate),
            });
        }
        let (file, writer) = bench.pipe()?;
        Ok(Endless {
            engine: bench.engine(),
            file,
            end: End::Pipe(writer),
        })
    }

    pub(crate) fn read(&self, len: usize) -> Request {
        let offset = matches!(self.end, End::Gate(_)).then_some(0);
        let memory = Memory::Own(blank(&self.engine, len));
        Request {
            op: Op::Read { offset },
            memory,
            ..Request::bare(Op::Sync, Some(&self.file), Policy::kernel())
        }
    }

    pub(crate) fn let_end(&mut self, len: usize) {
        match &mut self.end {
            End::Gate(gate) => gate.open(),
            End::Pipe(writer) => {
                let mut writer = std::fs::File::from(writer.try_clone().expect("a pipe"));
                writer.write_all(&vec![1; len]).expect("a pipe");
            }
        }
    }
}

fn nothing_left(engine: &mut Engine) {
    assert!(engine.next_completion().is_none());
    engine.turn(Wait::No).expect("a turn");
    assert!(engine.next_completion().is_none());
    assert_eq!(engine.in_flight(), 0);
}

pub(crate) fn cancelled_before_the_start_it_never_runs(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let bytes = pattern(1, 8192);
    let file = bench.file(&bytes);
    let id = engine
        .submit(Request::write(&file, 0, blank(&engine, 4096), Policy::kernel()).tagged(5))
        .expect("a slot");
    assert_eq!(engine.queued(), 1);
    engine.cancel(id);
    engine.cancel(id);
    let done = engine.next_completion().expect("known at once");
    assert_eq!((done.id, done.tag, done.result), (id, 5, Err(Error::Cancelled)));
    assert_eq!((done.iterations, done.memory.len()), (0, 4096));
    nothing_left(&mut engine);
    let read = read(&mut engine, &file, 0, 8192, Policy::kernel());
    assert!(bytes_of(&read.memory) == bytes, "a cancelled write was carried out");
    Ok(())
}

pub(crate) fn a_cancel_after_the_end_is_harmless(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(2, 8192));
    let request = Request::read(&file, 0, blank(&engine, 4096), Policy::kernel());
    let id = engine.submit(request).expect("a slot");
    engine.turn(Wait::one()).expect("a turn");
    // The completion is ready, and not taken yet.
    engine.cancel(id);
    engine.abandon(id);
    assert_eq!(next(&mut engine).result, Ok(4096));
    engine.cancel(id);
    engine.abandon(id);
    nothing_left(&mut engine);
    Ok(())
}

pub(crate) fn a_cancelled_wait_completes_once(bench: &Bench) -> Case {
    let mut endless = Endless::new(bench)?;
    let request = endless.read(100);
    let id = endless.engine.submit(request).expect("a slot");
    endless.engine.turn(Wait::No).expect("a turn");
    for _ in 0..200 {
        endless.engine.cancel(id);
    }
    // Best effort: a simulated device, as a real one, may carry out what it has begun.
    endless.let_end(100);
    let done = next(&mut endless.engine);
    assert!(
        matches!(done.result, Ok(100) | Err(Error::Cancelled)),
        "{:?}",
        done.result
    );
    assert_eq!((done.id, done.memory.len()), (id, 100));
    nothing_left(&mut endless.engine);
    Ok(())
}

pub(crate) fn a_stale_id_never_names_another_request(bench: &Bench) -> Case {
    let config = EngineOptions {
        slots: 1,
        reserved_slots: 0,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let file = bench.file(&pattern(3, 8192));
    let request = Request::read(&file, 0, blank(&engine, 4096), Policy::kernel());
    let old = engine.submit(request).expect("a slot");
    next(&mut engine);
    let request = Request::read(&file, 0, blank(&engine, 4096), Policy::kernel());
    let new = engine.submit(request).expect("the same slot");
    assert_ne!(old, new);
    engine.cancel(old);
    engine.abandon(old);
    let done = next(&mut engine);
    assert_eq!((done.id, done.result, done.notice), (new, Ok(4096), Notice::Completed));
    nothing_left(&mut engine);
    Ok(())
}

pub(crate) fn abandoned_before_the_start_its_memory_comes_back(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let free = engine.arena().free_bytes();
    let bytes = pattern(4, 8192);
    let file = bench.file(&bytes);
    let request = Request::write(&file, 0, blank(&engine, 8192), Policy::kernel()).tagged(6);
    let id = engine.submit(request).expect("a slot");
    engine.abandon(id);
    engine.abandon(id);
    let done = engine.next_completion().expect("known at once");
    assert_eq!((done.id, done.tag, done.notice), (id, 6, Notice::Released));
    assert_eq!(own(done.memory).len(), 8192);
    assert_eq!(engine.arena().free_bytes(), free);
    nothing_left(&mut engine);
    assert_eq!(engine.stats().completions, 0, "a notice is no completion");
    let read = read(&mut engine, &file, 0, 8192, Policy::kernel());
    assert!(bytes_of(&read.memory) == bytes, "an abandoned write was carried out");
    Ok(())
}

pub(crate) fn abandoned_while_it_runs_its_memory_comes_back_later(bench: &Bench) -> Case {
    let mut endless = Endless::new(bench)?;
    let free = endless.engine.arena().free_bytes();
    let request = endless.read(5000);
    let id = endless.engine.submit(request.tagged(7)).expect("a slot");
    endless.engine.turn(Wait::No).expect("a turn");
    endless.engine.abandon(id);
    assert!(
        endless.engine.next_completion().is_none(),
        "the kernel still has the memory"
    );
    assert_eq!((endless.engine.in_flight(), endless.engine.stats().abandoned), (1, 1));
    assert_eq!(endless.engine.arena().free_bytes(), free - 8192);
    endless.let_end(5000);
    let done = next(&mut endless.engine);
    assert_eq!((done.id, done.tag, done.notice), (id, 7, Notice::Released));
    assert_eq!(own(done.memory).len(), 5000);
    assert_eq!(endless.engine.arena().free_bytes(), free);
    nothing_left(&mut endless.engine);
    Ok(())
}

pub(crate) fn a_write_waits_for_an_abandoned_one_to_the_same_bytes(bench: &Bench) -> Case {
    let (mut engine, gate, disk, file) = gated(bench, 65536)?;
    let write = |engine: &Engine, offset, byte: u8| {
        Request::write(&file, offset, buffer(engine, &[byte; 4096]), Policy::direct()).tagged(u64::from(byte))
    };
    gate.close();
    let request = write(&engine, 8192, 1);
    let abandoned = engine.submit(request).expect("a slot");
    engine.turn(Wait::No).expect("a turn");
    engine.abandon(abandoned);
    gate.pass_others();
    for (offset, byte) in [(4096, 2), (8192, 3), (12288, 4)] {
        let request = write(&engine, offset, byte);
        engine.submit(request).expect("a slot");
    }
    engine.turn(Wait::No).expect("a turn");
    let told: Vec<_> = std::iter::from_fn(|| engine.next_completion())
        .map(|done| done.tag)
        .collect();
    assert_eq!(told, [2, 4], "neighbours need not wait; the same bytes must");
    let mut byte = [0];
    disk.read(8192, &mut byte);
    assert_eq!(
        byte,
        [1],
        "the second write has reached the device while the first may still land"
    );
    gate.open();
    let told: Vec<_> = (0..2)
        .map(|_| next(&mut engine))
        .map(|done| (done.tag, done.notice))
        .collect();
    assert_eq!(told, [(1, Notice::Released), (3, Notice::Completed)]);
    disk.read(8192, &mut byte);
    assert_eq!(byte, [3]);
    nothing_left(&mut engine);
    Ok(())
}

pub(crate) fn a_write_never_passes_an_abandoned_one_on_a_real_disk(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&vec![0; 1 << 20]);
    let policy = direct(&file)?;
    for round in 0..100_u64 {
        let (old, new) = (round as u8 | 1, round as u8 & !1);
        let request = Request::write(&file, 0, buffer(&engine, &vec![old; 1 << 20]), policy).tagged(1);
        let id = engine.submit(request).expect("a slot");
        engine.turn(Wait::No).expect("a turn");
        engine.abandon(id);
        let offset = round * 4096;
        let request = Request::write(&file, offset, buffer(&engine, &[new; 8192]), policy).tagged(2);
        engine.submit(request).expect("a slot");
        let told: Vec<_> = (0..2)
            .map(|_| next(&mut engine))
            .map(|done| (done.tag, done.notice))
            .collect();
        if told.iter().any(|(_, notice)| *notice == Notice::Released) {
            assert_eq!(told, [(1, Notice::Released), (2, Notice::Completed)]);
        }
        let read = read(&mut engine, &file, offset, 8192, policy);
        assert!(
            bytes_of(&read.memory).iter().all(|&byte| byte == new),
            "round {round}: an abandoned write landed late"
        );
    }
    if engine.stats().abandoned == 0 {
        return Err(Stop::Refused("a request has ended when its turn returns".into()));
    }
    Ok(())
}

pub(crate) fn a_deadline_completes_early_and_releases_later(bench: &Bench) -> Case {
    let mut endless = Endless::new(bench)?;
    let free = endless.engine.arena().free_bytes();
    let mut request = endless.read(4096).tagged(8);
    request.policy.deadline = Some(endless.engine.now().after(Duration::from_millis(2)));
    let id = endless.engine.submit(request).expect("a slot");
    let done = next(&mut endless.engine);
    assert_eq!((done.id, done.tag, done.notice), (id, 8, Notice::Completed));
    assert_eq!(done.result, Err(Error::Indeterminate));
    assert!(matches!(done.memory, Memory::None), "the kernel may still write it");
    assert_eq!(endless.engine.in_flight(), 1, "slot and credit stay taken");
    assert_eq!(endless.engine.arena().free_bytes(), free - 4096);
    endless.let_end(4096);
    let done = next(&mut endless.engine);
    assert_eq!((done.id, done.tag, done.notice), (id, 8, Notice::Released));
    assert_eq!(own(done.memory).len(), 4096);
    assert_eq!(endless.engine.arena().free_bytes(), free);
    nothing_left(&mut endless.engine);
    Ok(())
}

/// A short transfer goes on in another iteration; a deadline that falls between the two is told like any other.
pub(crate) fn a_deadline_between_two_iterations_releases_too(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let free = engine.arena().free_bytes();
    let file = bench.file(&pattern(9, 5000));
    // The end of the file makes it short. A cached read would be tried before the turn, and end in it.
    let mut request = Request::read(&file, 0, blank(&engine, 8192), direct(&file)?);
    request.policy.deadline = Some(engine.now());
    let id = engine.submit(request).expect("a slot");
    let done = next(&mut engine);
    assert_eq!(
        (done.id, done.notice, done.result),
        (id, Notice::Completed, Err(Error::Indeterminate))
    );
    assert!(matches!(done.memory, Memory::None));
    let done = next(&mut engine);
    assert_eq!((done.id, done.notice), (id, Notice::Released));
    assert_eq!(own(done.memory).len(), 8192);
    assert_eq!(engine.arena().free_bytes(), free);
    nothing_left(&mut engine);
    Ok(())
}

fn timer(at: Time, deadline: Option<Time>) -> Request {
    Request::bare(
        Op::Timer { at },
        None,
        Policy {
            deadline,
            ..Policy::direct()
        },
    )
}

pub(crate) fn a_deadline_ends_a_timer(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let now = engine.now();
    let late = now.after(Duration::from_secs(3600));
    let id = engine
        .submit(timer(late, Some(now.after(Duration::from_millis(2)))))
        .expect("a slot");
    let done = next(&mut engine);
    refused(&done)?;
    assert_eq!((done.id, done.result), (id, Err(Error::Indeterminate)));
    let done = next(&mut engine);
    assert_eq!((done.id, done.notice), (id, Notice::Released));
    nothing_left(&mut engine);
    Ok(())
}

pub(crate) fn a_deadline_in_the_queue_cancels(bench: &Bench) -> Case {
    let (mut engine, gate, disk, file) = gated(bench, 65536)?;
    gate.close();
    let write = |engine: &Engine, byte: u8| Request::write(&file, 0, buffer(engine, &[byte; 4096]), Policy::direct());
    let request = write(&engine, 1);
    let abandoned = engine.submit(request).expect("a slot");
    engine.turn(Wait::No).expect("a turn");
    engine.abandon(abandoned);
    let mut request = write(&engine, 2).tagged(2);
    request.policy.deadline = Some(engine.now().after(Duration::from_millis(1)));
    engine.submit(request).expect("a slot");
    let done = next(&mut engine);
    assert_eq!((done.tag, done.result, done.iterations), (2, Err(Error::Cancelled), 0));
    assert_eq!(own(done.memory)[..], [2; 4096]);
    gate.open();
    assert_eq!(next(&mut engine).notice, Notice::Released);
    nothing_left(&mut engine);
    let mut byte = [0];
    disk.read(0, &mut byte);
    assert_eq!(byte, [1], "what was cancelled never ran");
    Ok(())
}

/// A request refused at submission has a deadline of its own; ending it may not make the engine forget the others'.
pub(crate) fn a_refused_request_takes_no_other_deadline_away(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(5, 8192));
    let now = engine.now();
    let deadline = Some(now.after(Duration::from_millis(2)));
    engine
        .submit(timer(now.after(Duration::from_secs(2)), deadline).tagged(1))
        .expect("a slot");
    let policy = Policy {
        deadline,
        ..Policy::kernel()
    };
    engine
        .submit(Request::read(&file, 0, Memory::None, policy).tagged(2))
        .expect("a slot");
    engine
        .submit(Request::read(&file, u64::MAX, blank(&engine, 1), policy).tagged(3))
        .expect("a slot");
    while let Some(done) = engine.next_completion() {
        refused(&done)?;
        assert!(done.tag > 1);
    }
    let done = next(&mut engine);
    assert_eq!(
        (done.tag, done.result),
        (1, Err(Error::Indeterminate)),
        "its deadline was forgotten"
    );
    assert_eq!(next(&mut engine).notice, Notice::Released);
    nothing_left(&mut engine);
    Ok(())
}

pub(crate) fn a_full_table_hands_the_request_back(bench: &Bench) -> Case {
    let config = EngineOptions {
        slots: 8,
        reserved_slots: 2,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let file = bench.file(&pattern(6, 8192));
    let read = |engine: &Engine, tag| Request::read(&file, 0, blank(engine, 4096), Policy::kernel()).tagged(tag);
    for tag in 0..6 {
        let request = read(&engine, tag);
        engine.submit(request).expect("a free slot");
    }
    let request = read(&engine, 6);
    let back = engine.submit(request).expect_err("the rest is reserved");
    assert_eq!((back.tag, back.memory.len()), (6, 4096));
    engine.submit_reserved(back).expect("a reserved slot");
    let request = read(&engine, 7);
    engine.submit_reserved(request).expect("a reserved slot");
    let request = read(&engine, 8);
    let back = engine.submit_reserved(request).expect_err("every slot is taken");
    engine.turn(Wait::for_count(8)).expect("a turn");
    let back = engine
        .submit_reserved(back)
        .expect_err("completions that nobody takes may not pile up");
    let mut seen: Vec<_> = std::iter::from_fn(|| engine.next_completion())
        .map(|done| done.tag)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(finish(&mut engine, back).result, Ok(4096));
    nothing_left(&mut engine);
    Ok(())
}

pub(crate) fn a_straight_line_request_runs_beside_untaken_completions(bench: &Bench) -> Case {
    let config = EngineOptions {
        slots: 4,
        reserved_slots: 1,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let file = bench.file(&pattern(7, 8192));
    // As many completions as there are slots, and the caller in the middle of something else.
    for tag in 0..4 {
        let request = Request::read(&file, 0, blank(&engine, 4096), Policy::kernel()).tagged(tag);
        engine.submit_reserved(request).expect("a free slot");
    }
    engine.turn(Wait::for_count(4)).expect("a turn");
    for _ in 0..3 {
        let done = engine.run(Request::read(&file, 0, blank(&engine, 4096), Policy::kernel()).tagged(9));
        assert_eq!((done.tag, done.result), (9, Ok(4096)));
    }
    // And when every slot is taken by what is still to run.
    while engine.next_completion().is_some() {}
    for tag in 0..4 {
        let request = Request::read(&file, 0, blank(&engine, 4096), Policy::kernel()).tagged(tag);
        engine.submit_reserved(request).expect("a free slot");
    }
    let done = engine.run(Request::sync(&file, baio_engine::Durability::Data).tagged(10));
    assert_eq!((done.tag, done.result), (10, Ok(0)));
    let mut seen: Vec<_> = (0..4).map(|_| next(&mut engine).tag).collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3]);
    nothing_left(&mut engine);
    Ok(())
}

/// The arena outlives the engine here, so what the kernel wrote late would be seen.
pub(crate) fn an_engine_dropped_in_flight_corrupts_nothing(bench: &Bench) -> Case {
    // Long enough that the device is still at it when the engine goes.
    const LEN: usize = 1 << 20;
    const READS: u64 = 16;
    let file = bench.file(&pattern(8, READS as usize * LEN));
    let policy = direct(&file).unwrap_or(Policy::kernel());
    // Room for nothing else: what is taken after the drop is what the requests had.
    let config = EngineOptions {
        arena_bytes: 2 * READS as usize * LEN,
        ..Bench::config()
    };
    for round in 0..4 {
        let mut engine = bench.engine_with(&config);
        let arena = engine.arena().clone();
        let all = arena.free_bytes();
        let mut canaries = Vec::new();
        for block in 0..READS {
            // Neighbours in the arena: one for the kernel, one to watch.
            let memory = blank(&engine, LEN);
            canaries.push(buffer(&engine, &[0x77; LEN]));
            let request = Request::read(&file, block * LEN as u64, memory, policy);
            engine.submit(request).expect("a free slot");
        }
        if round % 2 == 0 {
            engine.turn(Wait::No).expect("a turn");
        }
        drop(engine);
        assert_eq!(
            arena.free_bytes(),
            all - READS as usize * LEN,
            "a healthy device gives everything back"
        );
        let mut reused = Vec::new();
        while let Some(mut memory) = arena.buffer(LEN) {
            memory.fill(0x33);
            reused.push(memory);
        }
        assert_eq!(reused.len(), READS as usize);
        // Other reads take as long as anything of the dropped engine could still be under way.
        let mut other = bench.engine();
        for block in 0..READS {
            let read = Request::read(&file, block * LEN as u64, blank(&other, LEN), policy);
            assert_eq!(finish(&mut other, read).result, Ok(LEN as u32));
        }
        assert!(
            canaries.iter().all(|canary| canary.iter().all(|&byte| byte == 0x77)),
            "round {round}"
        );
        assert!(
            reused.iter().all(|memory| memory.iter().all(|&byte| byte == 0x33)),
            "round {round}: written late"
        );
        drop((canaries, reused));
        assert_eq!(arena.free_bytes(), all);
    }
    Ok(())
}

pub(crate) fn shutdown_ends_what_waits(bench: &Bench) -> Case {
    let mut endless = Endless::new(bench)?;
    let free = endless.engine.arena().free_bytes();
    let far = endless.engine.now().after(Duration::from_secs(3600));
    for tag in 0..5 {
        let request = endless.read(4096).tagged(tag);
        endless.engine.submit(request).expect("a slot");
    }
    endless.engine.submit(timer(far, None).tagged(5)).expect("a slot");
    endless.engine.turn(Wait::No).expect("a turn");
    let last = endless.read(4096).tagged(6);
    endless.engine.submit(last).expect("a slot");
    if let End::Gate(gate) = &endless.end {
        // A device that never answers keeps what it has, and the caller is told how much that is.
        assert_eq!(endless.engine.shutdown(Duration::from_millis(5)), 6);
        gate.open();
    }
    assert_eq!(endless.engine.shutdown(Duration::from_secs(60)), 0);
    let mut tags = Vec::new();
    while let Some(done) = endless.engine.next_completion() {
        assert!(
            matches!(done.result, Ok(_) | Err(Error::Cancelled)),
            "{:?}",
            done.result
        );
        assert_eq!(done.notice, Notice::Completed);
        tags.push(done.tag);
    }
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(endless.engine.arena().free_bytes(), free);
    Ok(())
}
