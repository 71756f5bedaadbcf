//! Timers: engine time goes on, and each moment is told once, in order, never early.

use std::time::Duration;

use baio_engine::{Engine, EngineOptions, Error, Op, Policy, Request, Time, Wait};

use crate::backends::{Bench, Case, Random, blank, next, pattern, read};

fn at(at: Time) -> Request {
    Request::bare(Op::Timer { at }, None, Policy::kernel())
}

fn ms(engine: &Engine, ms: u64) -> Time {
    engine.now().after(Duration::from_millis(ms))
}

pub(crate) fn a_moment_in_the_past_is_now(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let now = engine.now();
    for moment in [Time(0), Time(1), now] {
        assert_eq!(go!(engine, at(moment))?.result, Ok(0));
    }
    Ok(())
}

pub(crate) fn no_timer_is_early(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for delay in [1, 3, 10] {
        let moment = ms(&engine, delay);
        assert_eq!(go!(engine, at(moment))?.result, Ok(0));
        assert!(engine.now() >= moment, "{:?} before {moment:?}", engine.now());
    }
    Ok(())
}

pub(crate) fn moments_are_told_in_order_however_they_were_asked(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    begin!(engine, at(ms(&engine, 3_600_000)).tagged(99))?;
    let start = ms(&engine, 5);
    for tag in [4, 1, 3, 0, 2_u64] {
        engine
            .submit(at(start.after(Duration::from_millis(4 * tag))).tagged(tag))
            .expect("a slot");
    }
    let order: Vec<_> = (0..5).map(|_| next(&mut engine).tag).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    assert_eq!(engine.in_flight(), 1);
    Ok(())
}

pub(crate) fn one_moment_may_be_asked_for_many_times(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let moment = ms(&engine, 5);
    for tag in 0..50 {
        let request = at(moment).tagged(tag);
        engine.submit(request).expect("a slot");
    }
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..50 {
        let done = next(&mut engine);
        crate::backends::refused(&done)?;
        assert_eq!(done.result, Ok(0));
        seen.push(done.tag);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..50));
    Ok(())
}

pub(crate) fn thousands_of_timers_are_told_once_each(bench: &Bench) -> Case {
    const TIMERS: u64 = 3000;
    let mut engine = bench.engine_if_it_fits(&EngineOptions {
        slots: 4096,
        ..Bench::config()
    })?;
    let start = ms(&engine, 20);
    let mut random = Random(5);
    for tag in 0..TIMERS {
        let moment = start.after(Duration::from_micros(random.below(50_000)));
        engine
            .submit(at(moment).tagged(tag))
            .map_err(|_| "full")
            .expect("a slot");
    }
    let mut seen = vec![0; TIMERS as usize];
    for _ in 0..TIMERS {
        let done = next(&mut engine);
        crate::backends::refused(&done)?;
        assert_eq!(done.result, Ok(0));
        seen[done.tag as usize] += 1;
    }
    assert!(seen.iter().all(|&times| times == 1));
    assert_eq!(engine.in_flight(), 0);
    Ok(())
}

pub(crate) fn the_largest_moment_is_waited_for_and_cancelled(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for moment in [Time(u64::MAX), Time(i64::MAX as u64), Time(1 << 62)] {
        let id = begin!(engine, at(moment))?;
        assert_eq!(engine.completed(), 0, "{moment:?} has not come");
        engine.cancel(id);
        assert_eq!(next(&mut engine).result, Err(Error::Cancelled));
    }
    Ok(())
}

pub(crate) fn a_cancelled_timer_takes_no_other_away(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    begin!(engine, at(ms(&engine, 3_600_000)).tagged(99))?;
    // A moment that passes before they are cancelled shows nothing: then a later one.
    for patience in [10, 100, 1000, 10_000, 100_000] {
        let moment = ms(&engine, patience);
        let begun = (0..10).map(|tag| engine.submit(at(moment).tagged(tag)).expect("a slot"));
        let ids: Vec<_> = begun.collect();
        engine.turn(Wait::No).expect("a turn");
        for &id in ids.iter().step_by(2) {
            engine.cancel(id);
        }
        engine.turn(Wait::No).expect("a turn");
        let is_late = engine.now() >= moment;
        let mut told: Vec<_> = (0..10)
            .map(|_| next(&mut engine))
            .map(|done| (done.tag, done.result))
            .collect();
        if is_late {
            continue;
        }
        told.sort_unstable_by_key(|(tag, _)| *tag);
        for (tag, result) in told {
            let expected = if tag % 2 == 0 { Err(Error::Cancelled) } else { Ok(0) };
            assert_eq!(result, expected, "{tag}");
        }
        return Ok(());
    }
    panic!("a turn takes minutes here")
}

pub(crate) fn a_timer_holds_no_read_up(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 8192));
    let id = begin!(engine, at(ms(&engine, 3_600_000)))?;
    for _ in 0..10 {
        assert_eq!(read(&mut engine, &file, 0, 4096, Policy::kernel()).result, Ok(4096));
    }
    engine.cancel(id);
    assert_eq!(next(&mut engine).result, Err(Error::Cancelled));
    Ok(())
}

pub(crate) fn a_read_holds_no_timer_up(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 1 << 20));
    let moment = ms(&engine, 2);
    begin!(engine, at(moment).tagged(1))?;
    loop {
        let memory = blank(&engine, 65536);
        engine
            .submit(Request::read(&file, 0, memory, Policy::kernel()).tagged(2))
            .expect("a slot");
        if next(&mut engine).tag == 1 {
            break;
        }
    }
    assert!(engine.now() >= moment);
    Ok(())
}

pub(crate) fn a_turn_that_may_not_sleep_tells_a_timer_that_has_fired(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    begin!(engine, at(ms(&engine, 2)))?;
    while engine.completed() == 0 {
        engine.turn(Wait::No).expect("a turn");
    }
    Ok(())
}

pub(crate) fn a_turn_sleeps_until_its_deadline_beside_a_later_timer(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let id = begin!(engine, at(ms(&engine, 3_600_000)))?;
    let deadline = Some(ms(&engine, 3));
    let wait = Wait::Until {
        count: 1,
        min_wait: Duration::ZERO,
        deadline,
    };
    assert_eq!(engine.turn(wait), Ok(0));
    assert!(Some(engine.now()) >= deadline);
    engine.cancel(id);
    assert_eq!(next(&mut engine).result, Err(Error::Cancelled));
    Ok(())
}
