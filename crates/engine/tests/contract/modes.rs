//! Modes and moods of requests: uncached ones, impatient ones, deadlines that matter or do not, and ranges that are stored
//! differently from now on.

use std::time::Duration;

use baio_engine::{
    Caching, Create, Durability, Engine, Errno, Error, File, Notice, Op, Open, Patience, Policy, Request, Space, Time,
    Wait,
};

use crate::backends::{Bench, Case, Stop, blank, buffer, bytes_of, next, own, pattern, policies, read, write};
use crate::device::LoopDevice;
use crate::streams::{blanks, joined};

fn uncached() -> Policy {
    Policy {
        caching: Caching::Uncached,
        ..Policy::default()
    }
}

/// A file whose file system has `RWF_DONTCACHE`.
fn uncached_file(bench: &Bench, engine: &mut Engine, bytes: &[u8]) -> Result<File, Stop> {
    let file = bench.file(bytes);
    match read(engine, &file, 0, 1, uncached()).result {
        Err(Error::System(Errno::EOPNOTSUPP)) => Err(Stop::Skipped("the file system has no RWF_DONTCACHE".into())),
        _ => Ok(file),
    }
}

pub(crate) fn uncached_requests_end_where_the_file_does(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let bytes = pattern(1, 10_000);
    let file = uncached_file(bench, &mut engine, &bytes)?;
    for (offset, expected) in [(0, 10_000), (9999, 1), (10_000, 0), (1 << 40, 0)] {
        let done = read(&mut engine, &file, offset, 20_000, uncached());
        assert_eq!(done.result, Ok(expected), "{offset}");
        assert!(
            bytes_of(&done.memory)[..expected as usize] == bytes[10_000.min(offset as usize)..][..expected as usize]
        );
    }
    Ok(())
}

pub(crate) fn uncached_lists_make_the_round_trip(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = uncached_file(bench, &mut engine, &[0; 65536])?;
    let mut list = baio_engine::Vectored::default();
    for part in pattern(2, 5000).chunks(777) {
        list.push(buffer(&engine, part).into()).expect("a part");
    }
    let request = Request::write(&file, 123, baio_engine::Memory::Many(list), uncached());
    assert_eq!(finish!(engine, request).result, Ok(5000));
    let list = blanks(&engine, [1, 4000, 999]);
    let done = finish!(engine, Request::read(&file, 123, list, uncached()));
    assert!(joined(&done.memory) == pattern(2, 5000));
    Ok(())
}

pub(crate) fn uncached_and_cached_requests_see_one_file(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = uncached_file(bench, &mut engine, &[0; 65536])?;
    for (from, to) in [(uncached(), Policy::kernel()), (Policy::kernel(), uncached())] {
        let bytes = pattern(from.caching as u64, 9000);
        assert_eq!(write(&mut engine, &file, 500, &bytes, from).result, Ok(9000));
        assert!(bytes_of(&read(&mut engine, &file, 500, 9000, to).memory) == bytes);
    }
    Ok(())
}

pub(crate) fn an_uncached_write_can_be_durable(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = uncached_file(bench, &mut engine, &[0; 65536])?;
    for durability in [Durability::Data, Durability::Full] {
        assert_eq!(
            write(&mut engine, &file, 7, &[1; 5000], uncached().durable(durability)).result,
            Ok(5000)
        );
    }
    Ok(())
}

fn impatient(policy: Policy) -> Policy {
    Policy {
        patience: Patience::NoWait,
        ..policy
    }
}

pub(crate) fn an_impatient_read_gets_what_is_in_the_cache(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let bytes = pattern(3, 65536);
    let file = bench.file(&bytes);
    // Now it is there.
    assert_eq!(read(&mut engine, &file, 0, 65536, Policy::kernel()).result, Ok(65536));
    let done = read(&mut engine, &file, 4096, 8192, impatient(Policy::kernel()));
    assert_eq!(done.result, Ok(8192));
    assert!(bytes_of(&done.memory) == &bytes[4096..12288]);
    assert_eq!(
        read(&mut engine, &file, 65536, 4096, impatient(Policy::kernel())).result,
        Ok(0)
    );
    Ok(())
}

/// What the file system cannot do without waiting is told, and is not half done.
pub(crate) fn an_impatient_request_is_whole_or_refused(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let bytes = pattern(4, 65536);
    let file = bench.file(&bytes);
    for policy in policies(&file).map(impatient) {
        let new = pattern(5, 4096);
        let done = write(&mut engine, &file, 8192, &new, policy);
        let refused = matches!(done.result, Err(Error::System(Errno::EAGAIN | Errno::EOPNOTSUPP)));
        assert!(refused || done.result == Ok(4096), "{policy:?}: {:?}", done.result);
        let seen = read(&mut engine, &file, 8192, 4096, Policy::kernel());
        let expected = if refused { &bytes[8192..12288] } else { &new };
        assert!(bytes_of(&seen.memory) == expected, "{policy:?}");
        assert_eq!(
            write(&mut engine, &file, 8192, &bytes[8192..12288], Policy::kernel()).result,
            Ok(4096)
        );
        let done = read(&mut engine, &file, 0, 4096, policy);
        assert!(
            matches!(
                done.result,
                Ok(4096) | Err(Error::System(Errno::EAGAIN | Errno::EOPNOTSUPP))
            ),
            "{policy:?}"
        );
    }
    Ok(())
}

pub(crate) fn a_deadline_that_is_not_missed_changes_nothing(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(6, 8192));
    for policy in policies(&file) {
        let far = Some(engine.now().after(Duration::from_secs(3600)));
        for deadline in [far, Some(Time(u64::MAX))] {
            let done = read(&mut engine, &file, 0, 4096, Policy { deadline, ..policy });
            assert_eq!((done.result, done.notice), (Ok(4096), Notice::Completed));
        }
    }
    engine.turn(Wait::No).expect("a turn");
    assert_eq!((engine.completed(), engine.in_flight()), (0, 0));
    Ok(())
}

pub(crate) fn a_deadline_long_past_is_told_once_and_the_memory_comes_back(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let free = engine.arena().free_bytes();
    let file = bench.file(&pattern(7, 1 << 20));
    for policy in policies(&file) {
        for _ in 0..20 {
            let memory = blank(&engine, 65536);
            let deadline = Some(Time(0));
            let request = Request::read(&file, 0, memory, Policy { deadline, ..policy });
            let id = engine.submit(request).expect("a slot");
            let (mut completed, mut memory) = (0, 0);
            while engine.in_flight() > 0 || engine.completed() > 0 {
                let done = next(&mut engine);
                assert_eq!(done.id, id);
                completed += u32::from(done.notice == Notice::Completed);
                memory += done.memory.len();
            }
            assert_eq!((completed, memory), (1, 65536));
        }
    }
    assert_eq!(engine.arena().free_bytes(), free);
    Ok(())
}

fn allocate(engine: &mut Engine, file: &File, offset: u64, len: u64, space: Space) -> Result<Result<u32, Error>, Stop> {
    let op = Op::Allocate { offset, len, space };
    let result = finish!(*engine, Request::bare(op, Some(file), Policy::kernel())).result;
    match result {
        Err(Error::System(Errno::EOPNOTSUPP)) => Err(Stop::Skipped("the file system cannot do that to ranges".into())),
        other => Ok(other),
    }
}

fn zeroes(bench: &Bench, space: Space) -> Case {
    let mut engine = bench.engine();
    let mut model = pattern(8, 65536);
    let file = bench.file(&model);
    for (offset, len) in [
        (0_usize, 1),
        (4095, 2),
        (8192, 4096),
        (10_000, 5000),
        (511, 513),
        (65_535, 1),
        (20_000, 1),
    ] {
        assert_eq!(
            allocate(&mut engine, &file, offset as u64, len as u64, space)?,
            Ok(0),
            "{offset}+{len}"
        );
        model[offset..offset + len].fill(0);
    }
    let done = read(&mut engine, &file, 0, 65536, Policy::kernel());
    assert!(
        bytes_of(&done.memory) == model,
        "other bytes than those of the ranges changed"
    );
    Ok(())
}

pub(crate) fn odd_ranges_are_zeroed_to_the_byte(bench: &Bench) -> Case {
    zeroes(bench, Space::Zero)
}

pub(crate) fn odd_ranges_are_discarded_to_the_byte(bench: &Bench) -> Case {
    zeroes(bench, Space::Discard)
}

pub(crate) fn reserving_changes_no_byte(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let bytes = pattern(9, 65536);
    let file = bench.file(&bytes);
    for (offset, len) in [(0, 65536), (1, 1), (4095, 4098), (65_535, 1)] {
        assert_eq!(allocate(&mut engine, &file, offset, len, Space::Reserve)?, Ok(0));
    }
    assert!(bytes_of(&read(&mut engine, &file, 0, 65536, Policy::kernel()).memory) == bytes);
    Ok(())
}

pub(crate) fn a_discard_gives_the_blocks_back(bench: &Bench) -> Case {
    let path = bench.path()?;
    let mut engine = bench.engine();
    std::fs::write(&path, pattern(10, 1 << 20)).expect("a test file");
    let file = File::open(&path, &Open::write()).expect("a test file");
    assert_eq!(finish!(engine, Request::sync(&file, Durability::Full)).result, Ok(0));
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).expect("a test file"));
    let before = blocks();
    assert_eq!(allocate(&mut engine, &file, 0, 1 << 20, Space::Discard)?, Ok(0));
    assert!(blocks() < before, "{before} blocks are still there");
    assert_eq!(file.size(), Ok(1 << 20));
    Ok(())
}

pub(crate) fn a_read_only_file_takes_no_allocation(bench: &Bench) -> Case {
    let path = bench.path()?;
    std::fs::write(&path, [1; 8192]).expect("a test file");
    let file = File::open(&path, &Open::read()).expect("a test file");
    let mut engine = bench.engine();
    for space in [Space::Reserve, Space::Zero, Space::Discard] {
        assert_eq!(
            allocate(&mut engine, &file, 0, 4096, space)?,
            Err(Error::System(Errno::EBADF))
        );
    }
    Ok(())
}

pub(crate) fn a_new_file_is_empty_and_grows(bench: &Bench) -> Case {
    let path = bench.path()?.with_extension("new");
    let options = Open {
        create: Create::New,
        ..Open::write()
    };
    let file = File::open(&path, &options).expect("a new file");
    let mut engine = bench.engine();
    for policy in policies(&file) {
        file.set_size(0).expect("an empty file");
        assert_eq!(read(&mut engine, &file, 0, 4096, policy).result, Ok(0));
        assert_eq!(write(&mut engine, &file, 0, &[1; 4096], policy).result, Ok(4096));
        assert_eq!(file.size(), Ok(4096));
    }
    Ok(())
}

/// A block device ends like a file, and takes no byte behind its end.
pub(crate) fn a_device_ends_where_it_ends(bench: &Bench) -> Case {
    const SIZE: u64 = 1 << 20;
    let bytes = pattern(11, SIZE as usize);
    let path = bench.path()?;
    std::fs::write(&path, &bytes).expect("a test file");
    let device = LoopDevice::over(&path)?;
    let file = device.open();
    let mut engine = bench.engine();
    assert_eq!(file.size(), Ok(SIZE));
    for policy in policies(&file) {
        let done = read(&mut engine, &file, SIZE - 4096, 8192, policy);
        assert_eq!(done.result, Ok(4096), "{policy:?}");
        assert!(bytes_of(&done.memory)[..4096] == bytes[SIZE as usize - 4096..]);
        assert_eq!(read(&mut engine, &file, SIZE, 4096, policy).result, Ok(0));
        let done = write(&mut engine, &file, SIZE - 4096, &bytes[..8192], policy);
        assert_eq!(
            (done.result, done.bytes_done),
            (Err(Error::System(Errno::ENOSPC)), 4096),
            "{policy:?}"
        );
        assert!(write(&mut engine, &file, SIZE - 4096, &bytes[SIZE as usize - 4096..], policy).result == Ok(4096));
        let done = write(&mut engine, &file, SIZE, &[1; 4096], policy);
        assert_eq!((done.result, done.bytes_done), (Err(Error::System(Errno::ENOSPC)), 0));
    }
    assert_eq!(finish!(engine, Request::sync(&file, Durability::Full)).result, Ok(0));
    Ok(())
}

/// A device that is taken away has no bytes any more before it says so, and is told as gone: not as one that is full or broken.
pub(crate) fn a_device_without_bytes_is_gone(bench: &Bench) -> Case {
    let path = bench.path()?;
    std::fs::write(&path, [0; 1 << 16]).expect("a test file");
    let device = LoopDevice::over(&path)?;
    let file = device.open();
    let mut engine = bench.engine();
    std::fs::File::create(&path).expect("an empty file");
    device.look_at_its_size()?;
    assert_eq!(file.size(), Ok(0));
    for policy in policies(&file) {
        let done = write(&mut engine, &file, 4096, &[1; 4096], policy);
        assert_eq!(done.result, Err(Error::System(Errno::ENXIO)), "{policy:?}");
        assert_eq!(read(&mut engine, &file, 4096, 4096, policy).result, Ok(0));
    }
    Ok(())
}

/// A device's kernel-cached bytes go with those on it, dirty or not; what lies beside the range stays.
pub(crate) fn ranges_of_a_device_are_zeroed_and_discarded(bench: &Bench) -> Case {
    const SIZE: usize = 1 << 20;
    let mut model = pattern(12, SIZE);
    let path = bench.path()?;
    std::fs::write(&path, &model).expect("a test file");
    let device = LoopDevice::over(&path)?;
    let file = device.open();
    let mut engine = bench.engine();
    let whole = |engine: &mut Engine, policy| own(read(engine, &file, 0, SIZE, policy).memory);
    assert!(whole(&mut engine, Policy::kernel())[..] == model[..]);
    let mut at = 8192;
    for durability in [Durability::None, Durability::Data, Durability::Full] {
        for request in [Request::zero, Request::discard] {
            assert_eq!(
                write(&mut engine, &file, at as u64, &[0x77; 4096], Policy::kernel()).result,
                Ok(4096)
            );
            let done = finish!(engine, request(&file, at as u64, 8192, durability));
            if done.result == Err(Error::System(Errno::EOPNOTSUPP)) {
                return Err(Stop::Skipped("a loop device here cannot promise zeros".into()));
            }
            assert_eq!(done.result, Ok(0), "{durability:?} at {at}");
            model[at..at + 8192].fill(0);
            for policy in policies(&file) {
                assert!(
                    whole(&mut engine, policy)[..] == model[..],
                    "{policy:?} after {durability:?} at {at}"
                );
            }
            at += 16384;
        }
    }
    let behind = finish!(engine, Request::zero(&file, SIZE as u64 - 4096, 8192, Durability::None));
    assert!(behind.result.is_err(), "a device has an end");
    assert!(whole(&mut engine, Policy::kernel())[..] == model[..]);
    Ok(())
}
