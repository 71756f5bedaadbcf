//! What a completed write or sync has made safe, in which order, and what a failure does to later proofs (docs/inside/engine.md
//! rule 5).

use baio_engine::sim::log::Record;
use baio_engine::{Durability, Engine, Errno, Error, File, Op, Policy, Request, Space, Wait};

use crate::backends::{
    Bench, Case, Stop, blank, buffer, bytes_of, direct, finish, next, pattern, policies, read, write,
};
use crate::device::FailingDevice;
use crate::gate::{Gate, gated};

const EIO: Error = Error::System(Errno::EIO);

fn fence(file: &File) -> Request {
    Request::bare(Op::Fence, Some(file), Policy::direct().durable(Durability::Data))
}

fn kernel_write(engine: &Engine, file: &File, offset: u64) -> Request {
    Request::write(file, offset, blank(engine, 4096), Policy::kernel())
}

pub(crate) fn sync_makes_data_and_everything_durable(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let on_disk = bench.disk(65536);
    let file = on_disk
        .as_ref()
        .map_or_else(|| bench.file(&pattern(1, 65536)), |(_, file)| file.clone());
    for durability in [Durability::None, Durability::Data, Durability::Full] {
        if let Some((disk, _)) = &on_disk {
            disk.record();
        }
        let write = kernel_write(&engine, &file, 4096);
        assert_eq!(finish(&mut engine, write).result, Ok(4096));
        let sync = finish(&mut engine, Request::sync(&file, durability));
        assert_eq!((sync.result, sync.bytes_done), (Ok(0), 0));
        if let Some((disk, _)) = &on_disk {
            let record = disk.take_record();
            assert!(
                matches!(record[..], [Record::Write { durable: false, .. }, Record::Sync]),
                "{record:?}"
            );
        }
    }
    let range = Op::SyncRange {
        offset: 4096,
        len: 8192,
    };
    assert_eq!(
        finish(&mut engine, Request::bare(range, Some(&file), Policy::kernel())).result,
        Ok(0)
    );
    Ok(())
}

pub(crate) fn a_durable_write_needs_no_sync(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let on_disk = bench.disk(65536);
    let file = on_disk
        .as_ref()
        .map_or_else(|| bench.file(&pattern(2, 65536)), |(_, file)| file.clone());
    for policy in policies(&file) {
        for durability in [Durability::Data, Durability::Full] {
            if let Some((disk, _)) = &on_disk {
                disk.record();
            }
            let bytes = pattern(3, 8192);
            let write = Request::write(&file, 8192, buffer(&engine, &bytes), policy.durable(durability));
            assert_eq!(finish(&mut engine, write).result, Ok(8192));
            let read = read(&mut engine, &file, 8192, 8192, policy);
            assert!(bytes_of(&read.memory) == bytes);
            if let Some((disk, _)) = &on_disk {
                let record = disk.take_record();
                assert!(
                    matches!(record[..], [Record::Write { durable: true, .. }]),
                    "{record:?}"
                );
            }
        }
    }
    Ok(())
}

fn allocation(file: &File, space: Space, policy: Policy) -> Request {
    let op = Op::Allocate {
        offset: 4096,
        len: 8192,
        space,
    };
    Request::bare(op, Some(file), policy)
}

/// fallocate(2) has no flag for it.
pub(crate) fn a_durable_allocation_ends_behind_a_sync(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let on_disk = bench.disk(65536);
    let file = on_disk
        .as_ref()
        .map_or_else(|| bench.file(&pattern(6, 65536)), |(_, file)| file.clone());
    for space in [Space::Reserve, Space::Zero, Space::Discard] {
        for durability in [Durability::None, Durability::Data, Durability::Full] {
            if let Some((disk, _)) = &on_disk {
                disk.record();
            }
            let before = engine.stats();
            let request = allocation(&file, space, Policy::kernel().durable(durability));
            let done = finish(&mut engine, request);
            if done.result == Err(Error::System(Errno::EOPNOTSUPP)) {
                return Err(Stop::Skipped("the file system cannot do it".into()));
            }
            assert_eq!((done.result, done.bytes_done), (Ok(0), 0));
            let syncs = u32::from(durability != Durability::None);
            assert_eq!(u32::from(done.iterations), 1 + syncs, "{space:?}, {durability:?}");
            let after = engine.stats();
            assert_eq!(after.durable_by_sync - before.durable_by_sync, u64::from(syncs));
            if let Some((disk, _)) = &on_disk {
                let record = disk.take_record();
                let flushed = record.iter().filter(|entry| **entry == Record::Sync).count();
                assert_eq!(flushed, syncs as usize, "{record:?}");
                assert!(
                    syncs == 0 || record.last() == Some(&Record::Sync),
                    "the flush comes last: {record:?}"
                );
            }
        }
    }
    Ok(())
}

/// The sync behind an allocation is one like any other.
pub(crate) fn a_failed_sync_of_an_allocation_poisons(bench: &Bench) -> Case {
    let (mut engine, gate, _, file) = gated(bench, 65536)?;
    let durable = Policy::kernel().durable(Durability::Data);
    gate.fail_behind(1, Errno::EIO);
    let request = allocation(&file, Space::Zero, durable);
    assert_eq!(finish(&mut engine, request).result, Err(EIO));
    let poisoned = Err(Error::Poisoned(Errno::EIO));
    let request = allocation(&file, Space::Zero, durable);
    let refused = finish(&mut engine, request);
    assert_eq!((refused.result, refused.iterations), (poisoned, 0));
    assert_eq!(
        finish(&mut engine, Request::sync(&file, Durability::Data)).result,
        poisoned
    );
    assert_eq!(file.acknowledge_failure(), Some(Errno::EIO));
    let request = allocation(&file, Space::Zero, durable);
    assert_eq!(finish(&mut engine, request).result, Ok(0));
    Ok(())
}

pub(crate) fn a_fence_comes_after_the_writes_before_it(bench: &Bench) -> Case {
    const FENCE: u64 = 100;
    let mut engine = bench.engine();
    let file = bench.file(&vec![0; 8 << 20]);
    let policy = direct(&file).unwrap_or(Policy::kernel());
    for _ in 0..20 {
        for write in 0..8 {
            let memory = blank(&engine, 1 << 20);
            engine
                .submit(Request::write(&file, write << 20, memory, policy).tagged(write))
                .expect("a free slot");
        }
        engine.submit(fence(&file).tagged(FENCE)).expect("a free slot");
        let mut seen = Vec::new();
        while engine.in_flight() > 0 || seen.len() < 9 {
            let done = next(&mut engine);
            assert!(done.result.is_ok());
            seen.push(done.tag);
        }
        assert_eq!(seen.last(), Some(&FENCE), "{seen:?}");
    }
    Ok(())
}

/// Without a race: the sync may not even start while a write is out.
pub(crate) fn a_held_device_holds_the_fence(bench: &Bench) -> Case {
    let (mut engine, gate, disk, file) = gated(bench, 65536)?;
    let other = File::simulated(&baio_engine::sim::Disk::new(65536), "another disk");
    disk.record();
    gate.close();
    for block in 0..3 {
        let write = kernel_write(&engine, &file, block * 4096).tagged(block);
        engine.submit(write).expect("a free slot");
    }
    engine.turn(Wait::No).expect("a turn");
    gate.pass_others();
    engine.submit(fence(&file).tagged(10)).expect("a free slot");
    let behind = kernel_write(&engine, &file, 40960).tagged(20);
    engine.submit(behind).expect("a free slot");
    engine.submit(fence(&other).tagged(30)).expect("a free slot");
    engine.turn(Wait::No).expect("a turn");
    let told: Vec<_> = std::iter::from_fn(|| engine.next_completion())
        .map(|done| done.tag)
        .collect();
    assert_eq!(
        told,
        [20, 30],
        "neither a later write nor another file waits for the fence"
    );
    assert!(
        !disk.take_record().contains(&Record::Sync),
        "the fence ran while writes before it were out"
    );
    gate.open();
    let told: Vec<_> = (0..4)
        .map(|_| next(&mut engine))
        .map(|done| (done.tag, done.result.is_ok()))
        .collect();
    assert_eq!(told.last(), Some(&(10, true)), "{told:?}");
    Ok(())
}

pub(crate) fn a_cancelled_write_lets_its_fence_go(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(4, 65536));
    let write = kernel_write(&engine, &file, 0);
    let cancelled = engine.submit(write).expect("a free slot");
    let write = kernel_write(&engine, &file, 4096);
    let abandoned = engine.submit(write).expect("a free slot");
    engine.submit(fence(&file).tagged(1)).expect("a free slot");
    engine.cancel(cancelled);
    engine.abandon(abandoned);
    let told: Vec<_> = (0..3)
        .map(|_| next(&mut engine))
        .map(|done| (done.tag, done.result))
        .collect();
    assert_eq!(told[2], (1, Ok(0)), "{told:?}");
    Ok(())
}

/// A device that takes cached writes and fails when they are to become durable.
struct Failing {
    engine: Engine,
    file: File,
    gate: Option<Gate>,
    _device: Option<FailingDevice>,
}

impl Failing {
    fn new(bench: &Bench) -> Result<Failing, Stop> {
        if bench.is_simulated() {
            let (engine, gate, _, file) = gated(bench, 1 << 20)?;
            return Ok(Failing {
                engine,
                file,
                gate: Some(gate),
                _device: None,
            });
        }
        bench.path()?;
        let device = FailingDevice::new()?;
        let (engine, file) = (bench.engine(), device.open());
        Ok(Failing {
            engine,
            file,
            gate: None,
            _device: Some(device),
        })
    }

    /// The write succeeds: it only went to the cache.
    fn write_what_will_be_lost(&mut self, offset: u64) {
        let write = kernel_write(&self.engine, &self.file, offset);
        assert_eq!(finish(&mut self.engine, write).result, Ok(4096));
    }

    /// The real device fails by itself; the simulated one is told.
    fn fail_behind(&self, others: usize) {
        if let Some(gate) = &self.gate {
            gate.fail_behind(others, Errno::EIO);
        }
    }

    fn sync(&mut self, durability: Durability) -> Result<u32, Error> {
        finish(&mut self.engine, Request::sync(&self.file, durability)).result
    }
}

pub(crate) fn a_failed_sync_poisons_until_acknowledged(bench: &Bench) -> Case {
    let mut failing = Failing::new(bench)?;
    failing.write_what_will_be_lost(0);
    failing.fail_behind(0);
    assert_eq!(failing.sync(Durability::Data), Err(EIO));
    let poisoned = Err(Error::Poisoned(Errno::EIO));
    for _ in 0..2 {
        // The kernel would say yes: it told once, and took the pages for clean.
        assert_eq!(failing.sync(Durability::Data), poisoned);
        assert_eq!(failing.sync(Durability::Full), poisoned);
        assert_eq!(
            finish(&mut failing.engine, fence(&failing.file.clone())).result,
            poisoned,
            "clones are one file"
        );
    }
    assert_eq!(failing.file.acknowledge_failure(), Some(Errno::EIO));
    assert_eq!(failing.file.acknowledge_failure(), None);
    assert_eq!(failing.sync(Durability::Data), Ok(0));
    Ok(())
}

/// The kernel gives the failure to one of several syncs that run at once; the others prove nothing either.
pub(crate) fn of_two_syncs_none_hides_the_failure(bench: &Bench) -> Case {
    let mut failing = Failing::new(bench)?;
    for round in 0..60 {
        failing.write_what_will_be_lost(4096 * round);
        failing.fail_behind(0);
        for _ in 0..4 {
            failing
                .engine
                .submit(Request::sync(&failing.file, Durability::Data))
                .expect("a free slot");
        }
        let told: Vec<_> = (0..4).map(|_| next(&mut failing.engine).result).collect();
        assert!(told.contains(&Err(EIO)), "round {round}: {told:?}");
        assert!(
            told.iter().all(Result::is_err),
            "round {round}: a sync proved what had failed: {told:?}"
        );
        assert_eq!(failing.file.acknowledge_failure(), Some(Errno::EIO));
    }
    Ok(())
}

/// A sync covers what had completed before it was submitted: one that starts behind the last of them answers for all.
pub(crate) fn syncs_that_wait_together_share_one(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&[1; 4096]);
    let other = bench.file(&[1; 4096]);
    let sync = |file: &File, tag, durability| Request::sync(file, durability).tagged(tag);
    for tag in 0..4 {
        engine.submit(sync(&file, tag, Durability::Data)).expect("a free slot");
    }
    engine.submit(sync(&file, 4, Durability::Full)).expect("a free slot");
    engine.submit(sync(&other, 5, Durability::Data)).expect("a free slot");
    let mut seen: Vec<_> = (0..6).map(|_| next(&mut engine)).collect();
    assert!(seen.iter().all(|done| done.result == Ok(0)), "{seen:?}");
    seen.sort_by_key(|done| done.tag);
    assert_eq!(seen.iter().map(|done| done.tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(engine.stats().iterations, 2, "one for each file");
    nothing_is_left(&engine);
    Ok(())
}

/// The one that would have answered for others is cancelled: they are not.
pub(crate) fn a_cancelled_sync_takes_no_other_with_it(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&[1; 4096]);
    let first = engine
        .submit(Request::sync(&file, Durability::Data))
        .expect("a free slot");
    for tag in 1..3 {
        engine
            .submit(Request::sync(&file, Durability::Data).tagged(tag))
            .expect("a free slot");
    }
    engine.cancel(first);
    let told: Vec<_> = (0..3).map(|_| next(&mut engine)).collect();
    assert_eq!((told[0].id, told[0].result), (first, Err(Error::Cancelled)));
    assert!(told[1..].iter().all(|done| done.result == Ok(0)), "{told:?}");
    nothing_is_left(&engine);
    Ok(())
}

fn nothing_is_left(engine: &Engine) {
    assert_eq!((engine.in_flight(), engine.completed(), engine.queued()), (0, 0, 0));
}

/// Nobody waits for its answer any more, but it has taken the kernel's one report all the same.
pub(crate) fn a_sync_given_up_on_poisons_when_it_fails(bench: &Bench) -> Case {
    let (mut engine, gate, _, file) = gated(bench, 65536)?;
    gate.close();
    gate.fail_behind(0, Errno::EIO);
    let id = engine
        .submit(Request::sync(&file, Durability::Data))
        .expect("a free slot");
    engine.turn(Wait::No).expect("a turn");
    engine.abandon(id);
    gate.open();
    assert_eq!(next(&mut engine).id, id);
    let sync = finish(&mut engine, Request::sync(&file, Durability::Data));
    assert_eq!(sync.result, Err(Error::Poisoned(Errno::EIO)));
    Ok(())
}

/// sync_file_range(2) takes the kernel's one report of the failure: the sync behind it would prove nothing.
pub(crate) fn a_failed_range_sync_poisons_too(bench: &Bench) -> Case {
    let mut failing = Failing::new(bench)?;
    failing.write_what_will_be_lost(0);
    failing.fail_behind(0);
    let range = Op::SyncRange { offset: 0, len: 4096 };
    let range = Request::bare(range, Some(&failing.file), Policy::kernel());
    assert_eq!(finish(&mut failing.engine, range).result, Err(EIO));
    assert_eq!(failing.sync(Durability::Data), Err(Error::Poisoned(Errno::EIO)));
    Ok(())
}

/// A cached durable write is a write and a sync: the failure that it reports may be that of an earlier write, whose pages
/// the kernel wrote back in the background. It is reported once.
pub(crate) fn a_durable_cached_write_cannot_swallow_anothers_failure(bench: &Bench) -> Case {
    let mut failing = Failing::new(bench)?;
    failing.write_what_will_be_lost(0);
    if failing.gate.is_none() {
        // Background write-back, as the kernel does it after some seconds; it reports to no descriptor.
        rustix::fs::sync();
    }
    failing.fail_behind(0);
    let policy = Policy::kernel().durable(Durability::Data);
    let Failing { engine, file, .. } = &mut failing;
    assert_eq!(write(engine, file, 8192, &[1; 4096], policy).result, Err(EIO));
    let sync = failing.sync(Durability::Data);
    assert!(
        sync.is_err(),
        "the first write is lost, and a sync that covers it says yes"
    );
    Ok(())
}

/// An error that is about the request itself says nothing about data.
pub(crate) fn a_request_that_was_never_tried_poisons_nothing(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(8, 8192));
    let policy = Policy::kernel().durable(Durability::Data);
    assert!(
        write(&mut engine, &file, u64::MAX - 4095, &[1; 4096], policy)
            .result
            .is_err()
    );
    let range = Op::SyncRange {
        offset: 1 << 63,
        len: 4096,
    };
    let _ = finish(&mut engine, Request::bare(range, Some(&file), Policy::kernel()));
    let cancelled = engine
        .submit(Request::sync(&file, Durability::Full))
        .expect("a free slot");
    engine.cancel(cancelled);
    assert_eq!(next(&mut engine).result, Err(Error::Cancelled));
    assert_eq!(
        finish(&mut engine, Request::sync(&file, Durability::Full)).result,
        Ok(0)
    );
    assert_eq!(file.acknowledge_failure(), None);
    Ok(())
}

fn allocate(file: &File, offset: u64, len: u64, space: Space) -> Request {
    Request::bare(Op::Allocate { offset, len, space }, Some(file), Policy::kernel())
}

fn worked(done: &baio_engine::Completion) -> Result<(), Stop> {
    if done.result == Err(Error::System(Errno::EOPNOTSUPP)) {
        return Err(Stop::Skipped("the file system cannot do that to ranges".into()));
    }
    assert_eq!(done.result, Ok(0));
    Ok(())
}

pub(crate) fn ranges_are_reserved_zeroed_and_discarded(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let mut model = pattern(5, 65536);
    let file = bench.file(&model);
    worked(&finish(&mut engine, allocate(&file, 0, 65536, Space::Reserve)))?;
    worked(&finish(&mut engine, allocate(&file, 4096, 8192, Space::Zero)))?;
    model[4096..12288].fill(0);
    worked(&finish(&mut engine, allocate(&file, 32768, 4096, Space::Discard)))?;
    model[32768..36864].fill(0);
    let read = read(&mut engine, &file, 0, 65536, Policy::kernel());
    assert_eq!(read.result, Ok(65536));
    assert!(bytes_of(&read.memory) == model);
    Ok(())
}

/// The same by their short names, durable in every way; a fence behind them has nothing left to wait for when it ends.
pub(crate) fn reserve_zero_discard_and_fence_are_requests(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for durability in [Durability::None, Durability::Data, Durability::Full] {
        let mut model = pattern(8, 65536);
        let file = bench.file(&model);
        let requests = [
            Request::reserve(&file, 0, 65536, durability),
            Request::zero(&file, 4096, 8192, durability),
            Request::discard(&file, 32768, 4096, durability),
        ];
        let names = requests.each_ref().map(|request| request.op.name());
        assert_eq!(names, ["allocate", "zero", "discard"]);
        for request in requests {
            engine.submit(request.tagged(1)).expect("a slot");
        }
        engine
            .submit(Request::fence(&file, durability).tagged(2))
            .expect("a slot");
        for left in (0..4).rev() {
            let done = next(&mut engine);
            worked(&done)?;
            assert_eq!(done.tag == 2, left == 0, "the fence is the last");
        }
        model[4096..12288].fill(0);
        model[32768..36864].fill(0);
        let read = read(&mut engine, &file, 0, 65536, Policy::kernel());
        assert!(bytes_of(&read.memory) == model, "{durability:?}");
    }
    Ok(())
}

pub(crate) fn reserving_behind_the_end_grows_a_file(bench: &Bench) -> Case {
    if !bench.has_files() {
        return Err(Stop::Refused("its disks have a fixed size".into()));
    }
    let mut engine = bench.engine();
    let file = bench.file(&pattern(6, 8192));
    worked(&finish(&mut engine, allocate(&file, 8192, 8192, Space::Reserve)))?;
    assert_eq!(file.size(), Ok(16384));
    worked(&finish(&mut engine, allocate(&file, 16384, 8192, Space::Zero)))?;
    assert_eq!(file.size(), Ok(24576));
    worked(&finish(&mut engine, allocate(&file, 20480, 65536, Space::Discard)))?;
    assert_eq!(file.size(), Ok(24576), "giving back never grows");
    Ok(())
}

pub(crate) fn an_impossible_range_is_not_allocated(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let file = bench.file(&pattern(7, 8192));
    for space in [Space::Reserve, Space::Zero, Space::Discard] {
        for (offset, len) in [
            (0, 0),
            (4096, u64::MAX - 4096),
            (u64::MAX - 4095, 8192),
            (1 << 62, 1 << 62),
        ] {
            let done = finish(&mut engine, allocate(&file, offset, len, space));
            assert!(done.result.is_err(), "{space:?} {offset} {len}: {:?}", done.result);
        }
    }
    Ok(())
}

/// Shorter, longer, as it was; durable in every way. What was cut off never shows again.
pub(crate) fn a_truncated_file_ends_there_and_grows_with_zeros(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    for durability in [Durability::None, Durability::Data, Durability::Full] {
        let mut model = pattern(9, 65536);
        let file = bench.file(&model);
        for len in [40_000, 40_000, 50_001, 0, 8192] {
            let done = finish(&mut engine, Request::truncate(&file, len as u64, durability));
            if done.result == Err(Error::System(Errno::EINVAL)) && !bench.has_files() {
                return Err(Stop::Refused("its disks have a fixed size".into()));
            }
            assert_eq!((done.result, done.bytes_done), (Ok(0), 0), "{len} {durability:?}");
            model.resize(len, 0);
            assert_eq!(file.size(), Ok(len as u64));
            let read = read(&mut engine, &file, 0, 65536, Policy::kernel());
            assert_eq!(read.result, Ok(len as u32));
            assert!(bytes_of(&read.memory)[..len] == model, "{len} {durability:?}");
        }
        // A fence takes it for a write: it ends behind it.
        engine
            .submit(Request::truncate(&file, 4096, durability).tagged(1))
            .expect("a slot");
        engine
            .submit(Request::fence(&file, durability).tagged(2))
            .expect("a slot");
        assert_eq!([next(&mut engine).tag, next(&mut engine).tag], [1, 2]);
    }
    let file = bench.file(&pattern(9, 4096));
    let done = finish(&mut engine, Request::truncate(&file, 1 << 63, Durability::None));
    assert_eq!((done.result, file.size()), (Err(Error::System(Errno::EFBIG)), Ok(4096)));
    Ok(())
}

pub(crate) fn what_is_no_file_is_not_truncated(bench: &Bench) -> Case {
    let path = bench.path()?;
    std::fs::write(&path, [1; 8192]).expect("a test file");
    let (end, _other) = std::io::pipe().expect("a pipe");
    let mut engine = bench.engine();
    for file in [
        File::open(&path, &baio_engine::Open::read()).expect("a test file"),
        File::from_fd(end.into(), "a pipe").expect("a pipe"),
    ] {
        let done = finish(&mut engine, Request::truncate(&file, 4096, Durability::None));
        assert_eq!(done.result, Err(Error::System(Errno::EINVAL)), "{file:?}");
    }
    assert_eq!(std::fs::metadata(&path).expect("it is there").len(), 8192);
    Ok(())
}
