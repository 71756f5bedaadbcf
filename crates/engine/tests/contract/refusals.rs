//! What is wrong with a request is told by its completion, precisely, and nothing is tried.

use baio_engine::sim::Disk;
use baio_engine::{
    Argument, Caching, Descriptions, DirectLimits, Durability, Errno, Error, File, Memory, Notice, Op, Open, Policy,
    Region, Request, Space, Vectored,
};

use crate::backends::{Bench, Case, Stop, blank, buffer, direct, finish, pattern, read, write};

fn limits(file: &File) -> Result<(Policy, DirectLimits), Stop> {
    let policy = direct(file)?;
    let limits = file.direct_limits();
    assert!(limits.offset > 1 && limits.memory > 1, "{limits:?}");
    Ok((policy, limits))
}

fn assert_untried(engine: &mut baio_engine::Engine, request: Request, expected: Error) {
    let len = request.memory.len();
    let done = finish(engine, request);
    assert_eq!(done.result, Err(expected));
    assert_eq!((done.iterations, done.bytes_done, done.memory.len()), (0, 0, len));
    assert_eq!(expected.errno(), Errno::EINVAL);
    assert!(expected.cure().is_some());
}

pub(crate) fn a_misaligned_offset_names_value_and_need(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(1, 65536));
    let (policy, limits) = limits(&file)?;
    for value in [1, u64::from(limits.offset) / 2, 4096 + u64::from(limits.offset) / 2] {
        let (argument, need) = (Argument::Offset, limits.offset);
        let error = Error::Misaligned { argument, value, need };
        let read = Request::read(&file, value, blank(&engine, 4096), policy);
        assert_untried(&mut engine, read, error);
        let write = Request::write(&file, value, blank(&engine, 4096), policy);
        assert_untried(&mut engine, write, error);
        assert!(
            error
                .to_string()
                .contains(&format!("offset {value} is not a multiple of {need}")),
            "{error}"
        );
    }
    Ok(())
}

pub(crate) fn a_misaligned_length_names_value_and_need(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(2, 65536));
    let (policy, limits) = limits(&file)?;
    for value in [1, 4097, 8191] {
        let (argument, need) = (Argument::Length, limits.offset);
        let error = Error::Misaligned { argument, value, need };
        let read = Request::read(&file, 0, blank(&engine, value as usize), policy);
        assert_untried(&mut engine, read, error);
        let write = Request::write(&file, 0, blank(&engine, value as usize), policy);
        assert_untried(&mut engine, write, error);
    }
    Ok(())
}

pub(crate) fn a_misaligned_address_names_value_and_need(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(3, 65536));
    let (policy, limits) = limits(&file)?;
    let region = Region::create(16384).expect("shared memory");
    let crooked = || Memory::Span(region.span(1, 4096).expect("inside"));
    let mut parts = Vectored::default();
    parts.push(Memory::Own(blank(&engine, 4096))).expect("a part");
    parts.push(crooked()).expect("a part");
    for memory in [crooked(), Memory::Many(parts)] {
        let done = finish(&mut engine, Request::write(&file, 0, memory, policy));
        let Err(Error::Misaligned {
            argument: Argument::Memory,
            value,
            need,
        }) = done.result
        else {
            panic!("{:?}", done.result);
        };
        assert_eq!((value % u64::from(need), need, done.iterations), (1, limits.memory, 0));
    }
    Ok(())
}

/// statx(2): the alignment of offsets holds for the length of every segment, not only for their sum.
pub(crate) fn a_misaligned_part_of_a_list_is_named(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(4, 65536));
    let (policy, limits) = limits(&file)?;
    let mut parts = Vectored::default();
    for len in [4096, 100, 3996] {
        parts.push(Memory::Own(blank(&engine, len))).expect("a part");
    }
    let error = Error::Misaligned {
        argument: Argument::Length,
        value: 100,
        need: limits.offset,
    };
    let request = Request::write(&file, 0, Memory::Many(parts), policy);
    assert_untried(&mut engine, request, error);
    Ok(())
}

pub(crate) fn a_read_only_file_takes_no_writes(bench: &Bench) -> Case {
    let path = bench.path()?;
    std::fs::write(&path, pattern(5, 8192)).expect("a test file");
    let mut engine = bench.engine();
    let file = File::open(&path, &Open::read()).expect("a test file");
    for policy in crate::backends::policies(&file) {
        let write = write(&mut engine, &file, 0, &[0xa5; 4096], policy);
        assert_eq!(write.result, Err(Error::System(Errno::EBADF)));
        let read = read(&mut engine, &file, 0, 4096, policy);
        assert_eq!(read.result, Ok(4096));
    }
    assert_eq!(std::fs::read(&path).expect("a test file"), pattern(5, 8192));
    Ok(())
}

pub(crate) fn a_device_that_the_backend_does_not_know_is_ebadf(bench: &Bench) -> Case {
    let bytes = pattern(6, 8192);
    let file = match bench.row.name {
        "ram" => File::simulated(&Disk::new(8192), "a disk"),
        _ => crate::in_memory(&bytes),
    };
    let mut engine = bench.engine();
    let unknown = Err(Error::System(Errno::EBADF));
    for policy in crate::backends::policies(&file) {
        assert_eq!(write(&mut engine, &file, 0, &[0xa5; 4096], policy).result, unknown);
        assert_eq!(read(&mut engine, &file, 0, 4096, policy).result, unknown);
        let sync = Request::bare(Op::Sync, Some(&file), policy);
        assert_eq!(finish(&mut engine, sync).result, unknown);
    }
    assert_eq!((file.size(), file.acknowledge_failure()), (Ok(8192), None));
    Ok(())
}

pub(crate) fn a_mode_that_was_not_opened_is_refused(bench: &Bench) -> Case {
    let path = bench.path()?;
    std::fs::write(&path, pattern(6, 8192)).expect("a test file");
    let mut engine = bench.engine();
    direct(&File::open(&path, &Open::read()).expect("a test file"))?;
    let lacking = |given, modes: &'static [Caching]| (given, modes);
    for (given, modes) in [
        lacking(Caching::Kernel, &[Caching::Direct]),
        lacking(Caching::Direct, &[Caching::Kernel, Caching::Uncached]),
    ] {
        let open = Open {
            descriptions: Descriptions::Only(given),
            ..Open::write()
        };
        let file = File::open(&path, &open).expect("a test file");
        let policy = Policy {
            caching: given,
            ..Policy::default()
        };
        assert_eq!(read(&mut engine, &file, 0, 4096, policy).result, Ok(4096));
        for &caching in modes {
            let policy = Policy {
                caching,
                ..Policy::default()
            };
            let mode = caching.name();
            let read = Request::read(&file, 0, blank(&engine, 4096), policy);
            assert_untried(&mut engine, read, Error::NoDescription { mode });
        }
        assert_eq!(
            finish(&mut engine, Request::sync(&file, Durability::Full)).result,
            Ok(0),
            "sync needs no mode"
        );
    }
    Ok(())
}

pub(crate) fn frozen_memory_cannot_be_read_into(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(7, 65536));
    let bytes = pattern(8, 4096);
    for policy in crate::backends::policies(&file) {
        let frozen = buffer(&engine, &bytes).freeze();
        let mut parts = Vectored::default();
        parts.push(Memory::Own(blank(&engine, 4096))).expect("a part");
        parts.push(Memory::Shared(frozen.clone())).expect("a part");
        for memory in [Memory::Shared(frozen.clone()), Memory::Many(parts)] {
            let read = finish(&mut engine, Request::read(&file, 0, memory, policy));
            assert_eq!((read.result, read.iterations), (Err(Error::ReadOnlyMemory), 0));
        }
        assert_eq!(&frozen[..], bytes, "what is shared did not change");
        let write = finish(&mut engine, Request::write(&file, 0, frozen, policy));
        assert_eq!(write.result, Ok(4096));
    }
    Ok(())
}

pub(crate) fn a_request_without_its_file_is_refused(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for op in [
        Op::Read { offset: Some(0) },
        Op::Write { offset: None },
        Op::Sync,
        Op::Fence,
        Op::SyncRange { offset: 0, len: 4096 },
        Op::Allocate {
            offset: 0,
            len: 4096,
            space: Space::Reserve,
        },
    ] {
        let done = finish(&mut engine, Request::bare(op, None, Policy::kernel()));
        assert_eq!(done.result, Err(Error::System(Errno::EBADF)), "{op:?}");
    }
    Ok(())
}

pub(crate) fn a_range_beyond_every_file_is_refused(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(9, 8192));
    for policy in crate::backends::policies(&file) {
        for offset in [i64::MAX as u64 & !4095, 1 << 63, !4095] {
            let read = read(&mut engine, &file, offset, 8192, policy);
            assert_eq!(
                (read.result, read.iterations),
                (Err(Error::System(Errno::EFBIG)), 0),
                "{offset}"
            );
        }
    }
    Ok(())
}

/// A result has 32 bits: a longer list would end with a number that wrapped round.
pub(crate) fn more_bytes_than_a_result_can_tell_are_refused(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(10, 8192));
    let shared = blank(&engine, 4 << 20).freeze();
    let mut parts = Vectored::default();
    for _ in 0..1025 {
        parts.push(Memory::Shared(shared.clone())).expect("a part");
    }
    let write = finish(
        &mut engine,
        Request::write(&file, 0, Memory::Many(parts), Policy::kernel()),
    );
    assert_eq!((write.result, write.iterations), (Err(Error::System(Errno::EINVAL)), 0));
    Ok(())
}

pub(crate) fn a_refusal_is_a_completion_with_tag_and_memory(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(11, 8192));
    let bytes = pattern(12, 100);
    let request = Request::write(&file, u64::MAX, buffer(&engine, &bytes), Policy::kernel()).tagged(4711);
    let id = engine.submit(request).expect("a free slot");
    let done = engine.next_completion().expect("known at once");
    assert_eq!((done.id, done.tag, done.notice), (id, 4711, Notice::Completed));
    assert_eq!(crate::backends::bytes_of(&done.memory), bytes);
    assert_eq!((engine.stats().errors, engine.in_flight()), (1, 0));
    Ok(())
}
