//! Events of the application's own end in the same queue, whoever signals them, once.

use std::sync::Barrier;

use baio_engine::{EngineOptions, Error, Memory, Notice, Op, Policy, Request, Wait};

use crate::backends::{Bench, Case, blank, next, own, pattern, read};

pub(crate) fn a_signal_completes_with_its_value(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for value in [0, 1, 7, u32::MAX] {
        let id = engine.submit(Request::event().tagged(3)).expect("a slot");
        assert!(engine.signal(id, value));
        let done = engine.next_completion().expect("known at once");
        assert_eq!(
            (done.id, done.tag, done.notice, done.result),
            (id, 3, Notice::Completed, Ok(value))
        );
        assert_eq!(done.iterations, 0);
    }
    Ok(())
}

pub(crate) fn a_second_signal_finds_nothing(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let id = engine.submit(Request::event()).expect("a slot");
    assert!(engine.signal(id, 1));
    assert!(!engine.signal(id, 2));
    engine.signals().signal(id, 3);
    assert_eq!(next(&mut engine).result, Ok(1));
    engine.turn(Wait::No).expect("a turn");
    assert_eq!(engine.completed(), 0);
    Ok(())
}

pub(crate) fn a_stale_signal_never_reaches_a_later_event(bench: &Bench) -> Case {
    let mut engine = bench.engine_with(&EngineOptions {
        slots: 1,
        reserved_slots: 0,
        ..Bench::config()
    });
    let old = engine.submit(Request::event()).expect("a slot");
    assert!(engine.signal(old, 1));
    next(&mut engine);
    let new = engine.submit(Request::event()).expect("the same slot");
    engine.signals().signal(old, 2);
    engine.turn(Wait::No).expect("a turn");
    assert!(!engine.signal(old, 3));
    assert_eq!(engine.completed(), 0, "the old id names nothing");
    assert!(engine.signal(new, 4));
    assert_eq!(next(&mut engine).result, Ok(4));
    Ok(())
}

pub(crate) fn only_events_can_be_signalled(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 8192));
    let memory = blank(&engine, 4096);
    let id = engine
        .submit(Request::read(&file, 0, memory, Policy::kernel()))
        .expect("a slot");
    assert!(!engine.signal(id, 5));
    engine.signals().signal(id, 6);
    assert_eq!(next(&mut engine).result, Ok(4096));
    Ok(())
}

pub(crate) fn a_signal_from_a_thread_ends_the_sleep(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for value in 0..50 {
        let id = engine.submit(Request::event()).expect("a slot");
        let signals = engine.signals();
        let thread = std::thread::spawn(move || signals.signal(id, value));
        let done = next(&mut engine);
        assert_eq!((done.id, done.result), (id, Ok(value)));
        thread.join().expect("the signalling thread");
    }
    Ok(())
}

pub(crate) fn a_signal_before_the_sleep_is_heard(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for _ in 0..50 {
        let id = engine.submit(Request::event()).expect("a slot");
        engine.signals().signal(id, 1);
        assert_eq!(engine.turn(Wait::one()), Ok(1));
        assert_eq!(next(&mut engine).id, id);
    }
    Ok(())
}

pub(crate) fn threads_signal_thousands_and_none_is_lost(bench: &Bench) -> Case {
    const THREADS: usize = 4;
    const EVENTS: usize = 2000;
    let mut engine = bench.engine_if_it_fits(&EngineOptions {
        slots: 4096,
        ..Bench::config()
    })?;
    let ids: Vec<_> = (0..EVENTS)
        .map(|tag| {
            engine
                .submit(Request::event().tagged(tag as u64))
                .map_err(|_| "full")
                .expect("a slot")
        })
        .collect();
    let barrier = Barrier::new(THREADS);
    let mut seen = vec![None; EVENTS];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (signals, ids, barrier) = (engine.signals(), &ids, &barrier);
            scope.spawn(move || {
                barrier.wait();
                // Two threads for each event: it ends once.
                for (at, &id) in ids.iter().enumerate().skip(thread % 2).step_by(2) {
                    signals.signal(id, at as u32);
                }
            });
        }
        for _ in 0..EVENTS {
            let done = next(&mut engine);
            let before = seen[done.tag as usize].replace(done.result);
            assert!(before.is_none(), "event {} ended twice", done.tag);
        }
    });
    assert!(seen.iter().enumerate().all(|(at, told)| *told == Some(Ok(at as u32))));
    engine.turn(Wait::No).expect("a turn");
    assert_eq!((engine.in_flight(), engine.completed()), (0, 0));
    Ok(())
}

pub(crate) fn memory_comes_back_with_the_event(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let request = Request {
        memory: Memory::Own(blank(&engine, 100)),
        ..Request::event()
    };
    let id = engine.submit(request).expect("a slot");
    assert!(engine.signal(id, 9));
    let done = next(&mut engine);
    assert_eq!(done.result, Ok(9));
    assert_eq!(own(done.memory)[..], [0xa5; 100]);
    Ok(())
}

pub(crate) fn an_event_holds_nothing_up(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(2, 8192));
    let id = engine.submit(Request::event()).expect("a slot");
    for _ in 0..5 {
        assert_eq!(read(&mut engine, &file, 0, 4096, Policy::kernel()).result, Ok(4096));
        let sync = Request::bare(Op::Fence, Some(&file), Policy::kernel());
        assert_eq!(finish!(engine, sync).result, Ok(0));
    }
    assert_eq!((engine.in_flight(), engine.queued()), (1, 0));
    engine.cancel(id);
    assert_eq!(next(&mut engine).result, Err(Error::Cancelled));
    Ok(())
}

pub(crate) fn an_event_takes_a_slot(bench: &Bench) -> Case {
    let mut engine = bench.engine_with(&EngineOptions {
        slots: 4,
        reserved_slots: 1,
        ..Bench::config()
    });
    let ids: Vec<_> = (0..3)
        .map(|_| engine.submit(Request::event()).expect("a slot"))
        .collect();
    assert!(engine.submit(Request::event()).is_err(), "the rest is reserved");
    for id in ids {
        assert!(engine.signal(id, 0));
        next(&mut engine);
    }
    assert!(engine.submit(Request::event()).is_ok());
    Ok(())
}
