//! Fences and syncs on devices that are as fast as they are: all end, in an order that proves something.

use std::time::Duration;

use baio_engine::{Durability, Policy, Request, Wait};

use crate::backends::{Bench, Case, blank, direct, pattern};
use crate::order::{fence, sync, told};

pub(crate) fn a_fence_with_nothing_before_it_is_a_sync(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 8192));
    assert_eq!(finish!(engine, fence(&file)).result, Ok(0));
    Ok(())
}

pub(crate) fn fences_in_a_row_end_in_their_order_or_together(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(2, 1 << 20));
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for round in 0..5_u64 {
        let memory = blank(&engine, 65536);
        engine
            .submit(Request::write(&file, round << 16, memory, policy).tagged(10 + round))
            .expect("a slot");
        engine.submit(fence(&file).tagged(round)).expect("a slot");
    }
    let order: Vec<_> = told(&mut engine)
        .into_iter()
        .map(|(tag, result)| (result.expect("it works"), tag).1)
        .collect();
    for round in 0..5 {
        let place = |wanted: u64| order.iter().position(|&tag| tag == wanted).expect("told");
        assert!(place(round) > place(10 + round), "a fence before its write: {order:?}");
    }
    Ok(())
}

pub(crate) fn many_syncs_and_writes_of_one_file_all_end(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&vec![0; 1 << 20]);
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for round in 0..20_u64 {
        for tag in 0..40_u64 {
            let request = match tag % 4 {
                0 => Request::write(&file, tag * 4096, blank(&engine, 4096), policy),
                1 => fence(&file),
                _ => Request::sync(
                    &file,
                    if tag % 8 > 5 {
                        Durability::Full
                    } else {
                        Durability::Data
                    },
                ),
            };
            engine.submit(request.tagged(tag)).expect("a slot");
            if (tag + round) % 7 == 0 {
                engine.turn(Wait::No).expect("a turn");
            }
        }
        let mut seen: Vec<_> = told(&mut engine)
            .into_iter()
            .map(|(tag, result)| (result.expect("it works"), tag).1)
            .collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..40), "round {round}");
    }
    Ok(())
}

pub(crate) fn shutdown_tells_every_sync_that_waits(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(3, 8192));
    for tag in 0..20 {
        engine.submit(sync(&file).tagged(tag)).expect("a slot");
        if tag % 5 == 4 {
            engine.turn(Wait::No).expect("a turn");
        }
    }
    assert_eq!(engine.shutdown(Duration::from_secs(20)), 0);
    let mut tags: Vec<_> = std::iter::from_fn(|| engine.next_completion())
        .map(|done| done.tag)
        .collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..20));
    Ok(())
}
