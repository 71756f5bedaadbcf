//! Several engines in one process, memory and doorbells that cross threads, and thousands of requests at once.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baio_engine::{Durability, Engine, EngineOptions, Error, Memory, Notice, Op, Policy, Request, Wait};

use crate::backends::{Bench, Case, blank, buffer, bytes_of, direct, next, own, pattern, policies, read, write};
use crate::streams::holds_requests;

pub(crate) fn engines_share_a_file(bench: &Bench) -> Case {
    let file = bench.file(&vec![0; 65536]);
    let mut engines: Vec<_> = (0..3).map(|_| bench.engine()).collect();
    for policy in policies(&file) {
        for round in 0..9_usize {
            let bytes = pattern(round as u64, 4096);
            assert_eq!(
                write(&mut engines[round % 3], &file, 4096, &bytes, policy).result,
                Ok(4096)
            );
            let done = read(&mut engines[(round + 1) % 3], &file, 4096, 4096, policy);
            assert!(bytes_of(&done.memory) == bytes);
        }
    }
    Ok(())
}

pub(crate) fn engines_have_requests_of_one_file_in_flight_together(bench: &Bench) -> Case {
    let bytes = pattern(1, 1 << 20);
    let file = bench.file(&bytes);
    let mut engines: Vec<_> = (0..4).map(|_| bench.engine()).collect();
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for block in 0..32_u64 {
        let engine = &mut engines[block as usize % 4];
        let request = Request::read(&file, block * 4096, blank(engine, 4096), policy).tagged(block);
        engine.submit(request).expect("a slot");
    }
    for engine in &mut engines {
        for _ in 0..8 {
            let done = next(engine);
            assert_eq!(bytes_of(&done.memory), &bytes[done.tag as usize * 4096..][..4096]);
        }
        assert_eq!(engine.in_flight(), 0, "no answer goes to another engine");
    }
    Ok(())
}

pub(crate) fn one_engine_goes_and_the_others_stay(bench: &Bench) -> Case {
    let file = bench.file(&pattern(2, 65536));
    let mut kept = bench.engine();
    for round in 0..20_u64 {
        let mut passing = bench.engine();
        let request = Request::read(&file, 0, blank(&passing, 4096), Policy::kernel());
        passing.submit(request).expect("a slot");
        passing.turn(Wait::No).expect("a turn");
        let request = Request::read(&file, 0, blank(&kept, 4096), Policy::kernel()).tagged(round);
        kept.submit(request).expect("a slot");
        drop(passing);
        let done = next(&mut kept);
        assert_eq!((done.tag, done.result), (round, Ok(4096)));
    }
    Ok(())
}

pub(crate) fn memory_of_one_engine_serves_another(bench: &Bench) -> Case {
    let bytes = pattern(3, 65536);
    let file = bench.file(&bytes);
    let (mut one, other) = (bench.engine(), bench.engine());
    let free = other.arena().free_bytes();
    for policy in policies(&file) {
        let memory = blank(&other, 16384);
        let done = finish!(one, Request::read(&file, 8192, memory, policy));
        assert!(bytes_of(&done.memory) == &bytes[8192..24576]);
    }
    assert_eq!(other.arena().free_bytes(), free);
    drop(other);
    Ok(())
}

pub(crate) fn memory_outlives_its_engine(bench: &Bench) -> Case {
    let bytes = pattern(4, 65536);
    let file = bench.file(&bytes);
    let mut engine = bench.engine();
    let memory = own(read(&mut engine, &file, 0, 65536, Policy::kernel()).memory);
    drop(engine);
    assert!(memory[..] == bytes);
    let mut other = bench.engine();
    assert_eq!(
        finish!(other, Request::write(&file, 0, memory, Policy::kernel())).result,
        Ok(65536)
    );
    Ok(())
}

pub(crate) fn memory_is_given_back_on_other_threads(bench: &Bench) -> Case {
    let file = bench.file(&pattern(5, 65536));
    let mut engine = bench.engine();
    let free = engine.arena().free_bytes();
    let (give, take) = std::sync::mpsc::channel::<baio_engine::Buffer>();
    let dropper = std::thread::spawn(move || take.into_iter().map(drop).count());
    for round in 0..2000_u64 {
        let done = read(&mut engine, &file, round % 16 * 4096, 4096, Policy::kernel());
        assert_eq!(done.result, Ok(4096));
        give.send(own(done.memory)).expect("the other thread");
    }
    drop(give);
    assert_eq!(dropper.join().expect("the other thread"), 2000);
    assert_eq!(engine.arena().free_bytes(), free);
    Ok(())
}

pub(crate) fn every_thread_may_have_an_engine(bench: &Bench) -> Case {
    let bench = &AssertSync(bench);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let bench = bench.bench();
                let bytes = pattern(thread, 65536);
                let (file, mut engine) = (bench.file(&bytes), bench.engine());
                for round in 0..100 {
                    let done = read(&mut engine, &file, round % 16 * 4096, 4096, Policy::kernel());
                    assert!(bytes_of(&done.memory) == &bytes[round as usize % 16 * 4096..][..4096]);
                }
            });
        }
    });
    Ok(())
}

/// A bench is a row and a directory; nothing of it is changed by use.
struct AssertSync<'a>(&'a Bench);

impl AssertSync<'_> {
    fn bench(&self) -> &Bench {
        self.0
    }
}

pub(crate) fn a_doorbell_is_rung_from_many_threads(bench: &Bench) -> Case {
    const RINGS: u64 = 300;
    let mut engine = bench.engine();
    let posted = Arc::new(AtomicU64::new(0));
    let ringers: Vec<_> = (0..4)
        .map(|_| {
            let (doorbell, posted) = (engine.doorbell(), Arc::clone(&posted));
            std::thread::spawn(move || {
                for _ in 0..RINGS {
                    posted.fetch_add(1, Ordering::SeqCst);
                    doorbell.ring();
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    let until_rung = Wait::Until {
        count: 0,
        min_wait: Duration::ZERO,
        deadline: None,
    };
    // Whoever posts and rings is seen: the last ring comes behind the last post.
    while posted.load(Ordering::SeqCst) < 4 * RINGS {
        engine.turn(until_rung).expect("a turn");
    }
    for ringer in ringers {
        ringer.join().expect("a ringing thread");
    }
    Ok(())
}

pub(crate) fn a_doorbell_outlives_its_engine(bench: &Bench) -> Case {
    let engine = bench.engine();
    let (doorbell, signals) = (engine.doorbell(), engine.signals());
    drop(engine);
    doorbell.ring();
    signals.signal(baio_engine::RequestId::default(), 1);
    Ok(())
}

pub(crate) fn a_doorbell_wakes_no_other_engine(bench: &Bench) -> Case {
    let (mut one, other) = (bench.engine(), bench.engine());
    other.doorbell().ring();
    let deadline = Some(one.now().after(Duration::from_millis(3)));
    let wait = Wait::Until {
        count: 0,
        min_wait: Duration::ZERO,
        deadline,
    };
    assert_eq!(one.turn(wait), Ok(0));
    assert!(Some(one.now()) >= deadline, "woken by another's doorbell");
    Ok(())
}

pub(crate) fn thousands_of_reads_are_in_flight(bench: &Bench) -> Case {
    const READS: u64 = 4000;
    let config = EngineOptions {
        slots: 4096,
        reserved_slots: 0,
        arena_bytes: 32 << 20,
        ..Bench::config()
    };
    let mut engine = bench.engine_if_it_fits(&config)?;
    let bytes = pattern(6, 1 << 20);
    let file = bench.file(&bytes);
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for tag in 0..READS {
        let memory = blank(&engine, 4096);
        let request = Request::read(&file, tag % 256 * 4096, memory, policy).tagged(tag);
        engine.submit(request).map_err(|_| "full").expect("a slot");
    }
    let mut seen = vec![false; READS as usize];
    for _ in 0..READS {
        let done = next(&mut engine);
        assert_eq!(done.result, Ok(4096));
        assert!(!std::mem::replace(&mut seen[done.tag as usize], true));
        assert!(bytes_of(&done.memory) == &bytes[done.tag as usize % 256 * 4096..][..4096]);
    }
    Ok(())
}

/// Disk I/O goes on beside thousands of requests that wait for somebody else.
pub(crate) fn thousands_of_polls_hold_no_read_up(bench: &Bench) -> Case {
    const POLLS: u64 = 4000;
    holds_requests(bench)?;
    let (reader, writer) = bench.pipe()?;
    let config = EngineOptions {
        slots: 4096,
        reserved_slots: 0,
        ..Bench::config()
    };
    let mut engine = bench.engine_if_it_fits(&config)?;
    let events = libc::POLLIN as u32;
    for tag in 0..POLLS {
        let poll = Request::bare(Op::Poll { events }, Some(&reader), Policy::kernel()).tagged(tag);
        engine.submit(poll).map_err(|_| "full").expect("a slot");
    }
    engine.turn(Wait::No).expect("a turn");
    while let Some(done) = engine.next_completion() {
        crate::backends::refused(&done)?;
    }
    let bytes = pattern(7, 1 << 20);
    let file = bench.file(&bytes);
    for block in 0..100_u64 {
        let done = read(&mut engine, &file, block * 4096, 4096, Policy::kernel());
        assert!(bytes_of(&done.memory) == &bytes[block as usize * 4096..][..4096]);
    }
    assert_eq!(engine.in_flight(), POLLS as usize);
    std::fs::File::from(writer).write_all(b"x").expect("a pipe");
    let mut seen = vec![false; POLLS as usize];
    for _ in 0..POLLS {
        let done = next(&mut engine);
        assert!(done.result.is_ok_and(|told| told & events != 0), "{:?}", done.result);
        assert!(!std::mem::replace(&mut seen[done.tag as usize], true));
    }
    assert_eq!(engine.in_flight(), 0);
    Ok(())
}

pub(crate) fn an_engine_goes_with_thousands_in_flight(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.pipe()?;
    let config = EngineOptions {
        slots: 4096,
        reserved_slots: 0,
        arena_bytes: 32 << 20,
        ..Bench::config()
    };
    let mut engine = bench.engine_if_it_fits(&config)?;
    let arena = engine.arena().clone();
    let free = arena.free_bytes();
    let events = libc::POLLIN as u32;
    for at in 0..4000 {
        let request = match at % 2 {
            0 => Request::bare(Op::Poll { events }, Some(&reader), Policy::kernel()),
            _ => Request::bare(
                Op::Timer {
                    at: baio_engine::Time(u64::MAX),
                },
                None,
                Policy::kernel(),
            ),
        };
        let memory = Memory::Own(blank(&engine, 16));
        engine
            .submit(Request { memory, ..request })
            .map_err(|_| "full")
            .expect("a slot");
    }
    engine.turn(Wait::No).expect("a turn");
    if let Some(done) = engine.next_completion() {
        crate::backends::refused(&done)?;
    }
    drop(engine);
    assert_eq!(arena.free_bytes(), free);
    drop(writer);
    Ok(())
}

pub(crate) fn untaken_completions_stop_new_requests_and_nothing_else(bench: &Bench) -> Case {
    let config = EngineOptions {
        slots: 8,
        reserved_slots: 0,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let file = bench.file(&pattern(8, 65536));
    for _ in 0..8 {
        let memory = blank(&engine, 4096);
        engine
            .submit(Request::read(&file, 0, memory, Policy::kernel()))
            .expect("a slot");
    }
    engine.turn(Wait::for_count(8)).expect("a turn");
    for taken in 0..8 {
        let memory = blank(&engine, 4096);
        let full = engine.submit(Request::read(&file, 0, memory, Policy::kernel()));
        assert!(full.is_err(), "{taken} taken");
        assert_eq!(next(&mut engine).result, Ok(4096));
        engine
            .submit(Request::sync(&file, Durability::Data))
            .expect("one was taken");
    }
    for _ in 0..8 {
        assert_eq!(next(&mut engine).result, Ok(0));
    }
    Ok(())
}

pub(crate) fn a_poisoned_file_is_poisoned_in_every_engine(bench: &Bench) -> Case {
    let (mut engine, gate, _, file) = crate::gate::gated(bench, 65536)?;
    gate.fail_behind(0, baio_engine::Errno::EIO);
    assert!(finish!(engine, Request::sync(&file, Durability::Data)).result.is_err());
    let mut other = bench.engine();
    let told = finish!(other, Request::sync(&file, Durability::Data)).result;
    assert_eq!(told, Err(Error::Poisoned(baio_engine::Errno::EIO)));
    Ok(())
}

pub(crate) fn a_shutdown_without_patience_forgets_nothing(bench: &Bench) -> Case {
    let file = bench.file(&pattern(9, 4 << 20));
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for round in 0..20 {
        let mut engine = bench.engine();
        let free = engine.arena().free_bytes();
        for block in 0..8 {
            let memory = blank(&engine, 256 << 10);
            engine
                .submit(Request::read(&file, block << 18, memory, policy))
                .expect("a slot");
        }
        if round % 2 == 0 {
            engine.turn(Wait::No).expect("a turn");
        }
        let left = engine.shutdown(Duration::ZERO);
        assert_eq!(left, engine.in_flight());
        let mut told = 0;
        while engine.in_flight() > 0 || engine.completed() > 0 {
            let done = next(&mut engine);
            assert_eq!(done.notice, Notice::Completed);
            assert!(
                matches!(done.result, Ok(_) | Err(Error::Cancelled)),
                "{:?}",
                done.result
            );
            told += 1;
        }
        assert_eq!(told, 8, "each is told once");
        assert_eq!(engine.arena().free_bytes(), free);
        // It has ended what it had; new requests are as welcome as before.
        assert_eq!(read(&mut engine, &file, 0, 4096, policy).result, Ok(4096));
    }
    Ok(())
}

pub(crate) fn reserved_slots_stay_free_for_those_who_need_them(bench: &Bench) -> Case {
    let config = EngineOptions {
        slots: 16,
        reserved_slots: 8,
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let file = bench.file(&pattern(10, 8192));
    let events: Vec<_> = std::iter::from_fn(|| engine.submit(Request::event()).ok()).collect();
    assert_eq!(events.len(), 8);
    // Whatever others hold, a write-back and its sync go through.
    for _ in 0..100 {
        let memory = buffer(&engine, &[1; 512]);
        engine
            .submit_reserved(Request::write(&file, 0, memory, Policy::kernel()))
            .expect("a reserved slot");
        assert_eq!(next(&mut engine).result, Ok(512));
        engine
            .submit_reserved(Request::sync(&file, Durability::Data))
            .expect("a reserved slot");
        assert_eq!(next(&mut engine).result, Ok(0));
    }
    Ok(())
}

pub(crate) fn an_engine_says_what_it_is(bench: &Bench) -> Case {
    let engine = bench.engine();
    let explain = engine.explain();
    assert_eq!(explain.backend, bench.row.explains);
    for (feature, had) in explain.features {
        assert!(
            !feature.is_empty() && had.err().is_none_or(|why| !why.is_empty()),
            "{feature}"
        );
    }
    Ok(())
}

pub(crate) fn random_bytes_differ(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let mut bytes = [0; 16];
        engine.random(&mut bytes).expect("random bytes");
        assert!(seen.insert(bytes));
    }
    engine.random(&mut []).expect("no bytes");
    Ok(())
}

/// What the numbers of an engine say is what its caller saw.
pub(crate) fn the_counters_add_up(bench: &Bench) -> Case {
    let mut engine: Engine = bench.engine();
    let file = bench.file(&vec![0; 65536]);
    for block in 0..10 {
        assert_eq!(
            write(&mut engine, &file, block * 4096, &[1; 4096], Policy::kernel()).result,
            Ok(4096)
        );
        assert_eq!(
            read(&mut engine, &file, block * 4096, 2048, Policy::kernel()).result,
            Ok(2048)
        );
    }
    assert!(read(&mut engine, &file, u64::MAX, 1, Policy::kernel()).result.is_err());
    let stats = engine.stats();
    assert_eq!((stats.requests, stats.completions, stats.errors), (21, 21, 1));
    assert_eq!((stats.bytes_written, stats.bytes_read), (40_960, 20_480));
    assert_eq!((stats.in_flight_max, stats.abandoned), (1, 0));
    Ok(())
}

pub(crate) fn an_address_that_does_not_fit_is_told_at_once(bench: &Bench) -> Case {
    let engine = bench.engine();
    let long = baio_engine::Address::Local("p".repeat(108).into());
    assert_eq!(
        long.encode(engine.arena()).err(),
        Some(baio_engine::Errno::ENAMETOOLONG)
    );
    let empty = baio_engine::Address::Local("".into());
    assert_eq!(empty.encode(engine.arena()).err(), Some(baio_engine::Errno::EINVAL));
    let whole: Vec<_> = std::iter::from_fn(|| engine.buffer(4096)).collect();
    let fits = baio_engine::Address::Internet("127.0.0.1:80".parse().expect("an address"));
    assert_eq!(fits.encode(engine.arena()).err(), Some(baio_engine::Errno::ENOMEM));
    drop(whole);
    assert!(fits.encode(engine.arena()).is_ok());
    Ok(())
}
