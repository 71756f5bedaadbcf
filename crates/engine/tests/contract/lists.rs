//! Lists of memory: any number of parts, in order, of any kind, with nothing between them.

use baio_engine::{Buffer, Caching, Engine, File, Memory, Policy, Region, Request, Vectored};

use crate::backends::{Bench, Case, Stop, blank, buffer, pattern, policies};
use crate::streams::{blanks, joined};

/// What a mode takes as the smallest part.
fn unit(file: &File, policy: Policy) -> usize {
    match policy.caching {
        Caching::Direct => file.direct_limits().offset as usize,
        _ => 1,
    }
}

fn mode(file: &File, caching: Caching) -> Result<Policy, Stop> {
    policies(file)
        .find(|policy| policy.caching == caching)
        .ok_or_else(|| Stop::Skipped("the file system has no direct I/O".into()))
}

fn cut(engine: &Engine, bytes: &[u8], lens: &[usize]) -> Memory {
    let mut list = Vectored::default();
    let mut at = 0;
    for &len in lens {
        list.push(Memory::Own(buffer(engine, &bytes[at..at + len])))
            .expect("a part");
        at += len;
    }
    Memory::Many(list)
}

/// Writes a list of these lengths, and reads it back through the same lengths reversed.
fn round_trip(bench: &Bench, caching: Caching, lens: impl Fn(usize) -> Vec<usize>) -> Case {
    let file = crate::offsets::sparse(bench, 24 << 20)?;
    let policy = mode(&file, caching)?;
    let lens = lens(unit(&file, policy));
    let total: usize = lens.iter().sum();
    let bytes = pattern(lens.len() as u64, total);
    let room = lens.iter().map(|len| len.max(&1).next_multiple_of(4096)).sum::<usize>();
    let config = baio_engine::EngineOptions {
        arena_bytes: room + (4 << 20),
        ..Bench::config()
    };
    let mut engine = bench.engine_with(&config);
    let memory = cut(&engine, &bytes, &lens);
    let done = finish!(engine, Request::write(&file, 8192, memory, policy));
    assert_eq!((done.result, done.bytes_done), (Ok(total as u32), total as u32));
    assert!(joined(&done.memory) == bytes, "a write leaves its memory alone");
    drop(done);
    let memory = blanks(&engine, lens.iter().rev().copied());
    let done = finish!(engine, Request::read(&file, 8192, memory, policy));
    assert_eq!((done.result, done.bytes_done), (Ok(total as u32), total as u32));
    assert!(joined(&done.memory) == bytes, "other bytes came back");
    Ok(())
}

macro_rules! lists {
    ($($case:ident($unit:ident) $lens:expr;)*) => {
        pub(crate) mod a_cached_list {
            use super::*;
            $(pub(crate) fn $case(bench: &Bench) -> Case {
                round_trip(bench, Caching::Kernel, |$unit| $lens)
            })*
        }
        pub(crate) mod a_direct_list {
            use super::*;
            $(pub(crate) fn $case(bench: &Bench) -> Case {
                round_trip(bench, Caching::Direct, |$unit| $lens)
            })*
        }
    };
}

lists! {
    of_one_part(unit) vec![unit * 3];
    of_1023_parts(unit) vec![unit; 1023];
    of_1024_parts(unit) vec![unit; 1024];
    of_1025_parts(unit) vec![unit; 1025];
    of_5000_parts(unit) vec![unit; 5000];
    with_empty_parts_everywhere(unit) [0, 0, unit, 0, 2 * unit, 0, 0].repeat(50);
    with_a_thousand_empty_parts_before_the_bytes(unit) [vec![0; 1500], vec![unit; 3]].concat();
    of_odd_lengths(unit) (1..=200).map(|part| part * 37 % 91 / unit.div_ceil(512) * unit).collect();
    with_one_large_part(unit) vec![unit, 2 << 20, unit];
}

pub(crate) fn a_list_of_empty_parts_has_nothing_to_do(bench: &Bench) -> Case {
    let file = bench.file(&pattern(1, 8192));
    let mut engine = bench.engine();
    for policy in policies(&file) {
        let list = blanks(&engine, [0, 0, 0]);
        let done = finish!(engine, Request::read(&file, 0, list, policy));
        assert_eq!((done.result, done.iterations), (Ok(0), 0));
        assert!(matches!(done.memory, Memory::Many(list) if list.parts().len() == 3));
    }
    Ok(())
}

pub(crate) fn a_list_over_the_end_is_filled_as_far_as_there_are_bytes(bench: &Bench) -> Case {
    let bytes = pattern(2, 10_240);
    let file = bench.file(&bytes);
    let mut engine = bench.engine();
    for policy in policies(&file) {
        let list = blanks(&engine, [4096, 4096, 4096, 4096]);
        let done = finish!(engine, Request::read(&file, 4096, list, policy));
        assert_eq!(done.result, Ok(6144), "{policy:?}");
        let seen = joined(&done.memory);
        assert!(seen[..6144] == bytes[4096..]);
        // A direct read may fill what it was given with zeros, up to the last part.
        let untouched = seen[8192..].iter().all(|&byte| byte == 0xa5);
        assert!(
            policy.caching == Caching::Direct || untouched,
            "a part behind the end was touched"
        );
    }
    Ok(())
}

/// More parts than one call takes, and the file ends between two of them.
pub(crate) fn a_list_of_thousands_over_the_end_tells_how_many_bytes_there_were(bench: &Bench) -> Case {
    // Whatever the sectors are.
    const PART: usize = 4096;
    let there = 1500 * PART;
    let file = bench.file(&pattern(3, there));
    let mut engine = bench.engine();
    for policy in policies(&file) {
        let list = blanks(&engine, vec![PART; 2100]);
        let done = finish!(engine, Request::read(&file, 0, list, policy));
        assert_eq!(done.result, Ok(there as u32), "{policy:?}");
        assert!(joined(&done.memory)[..there] == pattern(3, there));
    }
    Ok(())
}

pub(crate) fn parts_of_every_kind_make_one_list(bench: &Bench) -> Case {
    let file = bench.file(&vec![0; 65536]);
    let mut engine = bench.engine();
    let region = Region::create(8192).expect("shared memory");
    for policy in policies(&file) {
        let bytes = pattern(4, 16384);
        let span = region.span(4096, 4096).expect("inside");
        span.copy_in(&bytes[8192..12288]);
        let mut list = Vectored::with_capacity(4);
        list.push(Memory::Own(buffer(&engine, &bytes[..4096]))).expect("a part");
        list.push(Memory::Shared(buffer(&engine, &bytes[4096..8192]).freeze()))
            .expect("a part");
        list.push(Memory::Span(span.clone())).expect("a part");
        list.push(Memory::Own(buffer(&engine, &bytes[12288..])))
            .expect("a part");
        let done = finish!(engine, Request::write(&file, 4096, Memory::Many(list), policy));
        assert_eq!(done.result, Ok(16384), "{policy:?}");
        let mut list = Vectored::with_capacity(2);
        span.copy_in(&[0; 4096]);
        list.push(Memory::Span(span)).expect("a part");
        list.push(Memory::Own(blank(&engine, 12288))).expect("a part");
        let done = finish!(engine, Request::read(&file, 4096, Memory::Many(list), policy));
        assert!(joined(&done.memory) == bytes, "{policy:?}");
    }
    Ok(())
}

pub(crate) fn one_shared_part_may_stand_many_times_in_a_list(bench: &Bench) -> Case {
    let file = bench.file(&vec![0; 1 << 20]);
    let mut engine = bench.engine();
    for policy in policies(&file) {
        let frozen = buffer(&engine, &pattern(5, 4096)).freeze();
        let mut list = Vectored::default();
        for _ in 0..200 {
            list.push(Memory::Shared(frozen.clone())).expect("a part");
        }
        let done = finish!(engine, Request::write(&file, 0, Memory::Many(list), policy));
        assert_eq!(done.result, Ok(200 * 4096));
        let done = finish!(engine, Request::read(&file, 199 * 4096, blank(&engine, 4096), policy),);
        assert!(joined(&done.memory) == frozen[..]);
    }
    Ok(())
}

pub(crate) fn a_list_comes_back_to_be_used_again(bench: &Bench) -> Case {
    let bytes = pattern(6, 65536);
    let file = bench.file(&bytes);
    let mut engine = bench.engine();
    let policy = policies(&file).last().expect("a mode");
    let mut memory = blanks(&engine, [4096; 4]);
    for block in 0..4 {
        let done = finish!(engine, Request::read(&file, block * 16384, memory, policy));
        assert_eq!(done.result, Ok(16384));
        assert!(joined(&done.memory) == bytes[block as usize * 16384..][..16384]);
        memory = done.memory;
    }
    let Memory::Many(mut list) = memory else {
        panic!("a list stays a list")
    };
    let parts: Vec<Buffer> = list.drain().map(crate::backends::own).collect();
    assert_eq!((parts.len(), list.parts().len()), (4, 0));
    Ok(())
}

pub(crate) fn a_list_in_a_list_is_handed_back(bench: &Bench) -> Case {
    let engine = bench.engine();
    let mut list = Vectored::default();
    let back = list.push(blanks(&engine, [1, 2])).expect_err("lists do not nest");
    assert_eq!((back.len(), list.parts().len()), (3, 0));
    Ok(())
}

pub(crate) fn lists_and_buffers_are_in_flight_together(bench: &Bench) -> Case {
    let bytes = pattern(7, 1 << 20);
    let file = bench.file(&bytes);
    let mut engine = bench.engine();
    let policy = policies(&file).last().expect("a mode");
    for tag in 0..32_u64 {
        let memory = match tag % 2 {
            0 => blanks(&engine, [4096, 8192, 4096]),
            _ => Memory::Own(blank(&engine, 16384)),
        };
        engine
            .submit(Request::read(&file, tag * 16384, memory, policy).tagged(tag))
            .expect("a slot");
    }
    for _ in 0..32 {
        let done = crate::backends::next(&mut engine);
        assert_eq!(done.result, Ok(16384));
        assert!(
            joined(&done.memory) == bytes[done.tag as usize * 16384..][..16384],
            "{}",
            done.tag
        );
    }
    Ok(())
}
