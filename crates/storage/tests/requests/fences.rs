//! The promise: a fence ends when every write, zero and discard that was submitted before it to the same file or segment has
//! ended, wherever that was, and a sync behind them; it waits for nothing that came later, and for nobody else's.

use std::time::Duration;

use baio_engine::sim::{Disk, Fault as Injected, Faults, Flash, Profile, Trigger};
use baio_engine::{Durability, File, Memory, Wait};
use baio_storage::{Access, Core, Fault, Handle, Mode, SegmentOp, SegmentRequest, Status, StatusWord, Ticket};

use crate::harness::known;
use crate::harness::through_cache::{
    B, begin_durable, begin_write, code, end, get, open_cached, put, quiet, slow_disk,
};
use crate::harness::{self, BLOCK, ME, create, open_write, read, run, start, write, write_request};

fn fence_of(handle: Handle) -> SegmentRequest {
    SegmentRequest {
        durability: Durability::Data,
        ..SegmentRequest::new(handle, SegmentOp::Fence, Memory::None)
    }
}

fn fence(core: &mut Core, handle: Handle) -> Ticket {
    start(core, fence_of(handle))
}

fn zero(core: &mut Core, handle: Handle, block: u64, blocks: u64) -> Ticket {
    let (offset, len) = (block * B, blocks * B);
    start(
        core,
        SegmentRequest::new(handle, SegmentOp::Zero { offset, len }, Memory::None),
    )
}

fn is_pending(core: &mut Core, ticket: Ticket) -> bool {
    core.poll(ticket, None).is_pending()
}

fn segment(core: &mut Core) -> Handle {
    create(core, "data", 64 * B);
    open_write(core, "data")
}

/// Whoever waits for two ends does not sleep over a fence that may begin when the first has come.
#[test]
fn a_turn_for_two_does_not_sleep_over_a_fence() {
    let mut core = harness::open_simulated(&slow_disk());
    let handle = segment(&mut core);
    let hung = Disk::new(16 * B);
    hung.set_profile(Profile::Flash(Flash {
        read: Duration::from_secs(1000),
        ..Flash::default()
    }));
    let file = core.add_file(File::simulated(&hung, "hung"), Access::Write);
    let memory = core.buffer(BLOCK).unwrap();
    let hangs = start(
        &mut core,
        SegmentRequest::new(file, SegmentOp::Read { offset: 0 }, memory),
    );
    let request = write_request(&core, handle, 0, &[1; BLOCK]);
    let before = start(&mut core, request);
    let behind = fence(&mut core, handle);
    let mut ended = 0;
    while ended < 2 {
        ended += core.turn(Wait::for_count(2 - ended as u32)).unwrap();
    }
    assert!(!is_pending(&mut core, before) && !is_pending(&mut core, behind));
    assert!(is_pending(&mut core, hangs));
}

/// Of direct writes, everywhere: they are safe when the fence has ended, and nobody was asked to wait for them.
#[test]
fn a_fence_ends_behind_the_writes_before_it() {
    known::everywhere(|world| {
        let mut core = world.open();
        let handle = segment(&mut core);
        let mut before = Vec::new();
        for block in 0..8 {
            let request = write_request(&core, handle, block * B, &[1; BLOCK]);
            before.push(start(&mut core, request));
        }
        before.push(zero(&mut core, handle, 2, 2));
        let len = B;
        let discard = SegmentOp::Discard { offset: 6 * B, len };
        before.push(start(&mut core, SegmentRequest::new(handle, discard, Memory::None)));
        let ticket = fence(&mut core, handle);
        while is_pending(&mut core, ticket) {
            core.turn(Wait::one()).unwrap();
        }
        for write in before {
            assert!(!is_pending(&mut core, write));
        }
        // Nothing is before this one, by a handle for reading as well.
        let (reader, _) = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
        assert_eq!(run(&mut core, fence_of(reader)).result.unwrap(), 0);
        core.close_handle(handle);
        let error = run(&mut core, fence_of(handle)).result.unwrap_err();
        assert!(
            matches!(error.fault, Fault::Stale) && error.operation == "fence",
            "{error}"
        );
        core.close().unwrap();
    });
}

/// The device ends them in any order, and the power fails when the fence has ended.
#[test]
fn what_a_fence_has_covered_outlives_a_power_cut() {
    for mode in [Mode::Direct, Mode::Cached] {
        for seed in 0..8 {
            let disk = slow_disk();
            let mut core = open_cached(&disk, 32);
            let handle = segment(&mut core);
            write(&mut core, handle, 0, &[1; 16 * BLOCK]).unwrap();
            let zeros = zero(&mut core, handle, 0, 4);
            let writes = [8, 9, 30, 12].map(|block| begin_write(&mut core, handle, block, &[7; BLOCK], mode));
            let ticket = fence(&mut core, handle);
            end(&mut core, ticket).result.unwrap();
            for ended in writes.into_iter().chain([zeros]) {
                assert!(!is_pending(&mut core, ended));
            }
            drop(core);
            let mut core = open_cached(&disk.power_cut(seed), 32);
            let handle = open_write(&mut core, "data");
            assert_eq!(get(&mut core, handle, 0, 4, Mode::Direct), vec![0; 4 * BLOCK]);
            for block in [8, 9, 30, 12] {
                assert_eq!(get(&mut core, handle, block, 1, Mode::Cached), [7; BLOCK]);
            }
        }
    }
}

/// Durable, waiting for a frame, behind a direct write, beside the cache: the engine knows of none of them yet.
#[test]
fn writes_that_wait_in_the_core_or_the_cache_are_waited_for() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 16);
    let handle = segment(&mut core);
    let mut before: Vec<Ticket> = (0..40)
        .map(|block| begin_write(&mut core, handle, block, &[2; BLOCK], Mode::Cached))
        .collect();
    before.push(begin_durable(&mut core, handle, 41, &[3; BLOCK]));
    before.push(begin_write(&mut core, handle, 0, &[4; 8 * BLOCK], Mode::Direct));
    before.push(begin_write(&mut core, handle, 3, &[5; BLOCK], Mode::Cached));
    before.push(zero(&mut core, handle, 20, 4));
    assert!(before.iter().filter(|write| is_pending(&mut core, **write)).count() > 10);
    let ticket = fence(&mut core, handle);
    let mut waited = 0;
    while is_pending(&mut core, ticket) {
        waited += 1;
        core.turn(Wait::one()).unwrap();
    }
    // A poll of one that has ended takes its outcome.
    for write in before {
        assert!(!is_pending(&mut core, write));
    }
    assert!(waited > 3);
    quiet(&mut core);
    assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
}

#[test]
fn what_comes_later_or_is_of_others_is_not_waited_for() {
    let disk = slow_disk();
    let mut core = harness::open_simulated(&disk);
    let handle = segment(&mut core);
    create(&mut core, "other", 64 * B);
    let other = open_write(&mut core, "other");
    // A file whose device never ends anything.
    let hung = Disk::new(16 * B);
    hung.set_profile(Profile::Flash(Flash {
        write: Duration::from_secs(1000),
        ..Flash::default()
    }));
    let file = core.add_file(File::simulated(&hung, "hung"), Access::Write);
    let request = write_request(&core, file, 0, &[1; BLOCK]);
    let stuck = start(&mut core, request);
    let first = begin_write(&mut core, handle, 0, &[1; BLOCK], Mode::Direct);
    let ticket = fence(&mut core, handle);
    let later = zero(&mut core, file, 4, 4);
    let beside = begin_write(&mut core, other, 0, &[1; BLOCK], Mode::Direct);
    end(&mut core, ticket).result.unwrap();
    assert!(!is_pending(&mut core, first));
    end(&mut core, beside).result.unwrap();
    for waits in [stuck, later] {
        assert!(is_pending(&mut core, waits));
    }
    // A second handle on the same file is the same file.
    let again = core.add_file(File::simulated(&hung, "again"), Access::Write);
    let behind = fence(&mut core, again);
    for _ in 0..3 {
        core.turn(Wait::No).unwrap();
    }
    assert!(is_pending(&mut core, behind));
    core.cancel(behind);
    assert_eq!(end(&mut core, behind).result.unwrap_err().code(), "ECANCELED");
}

#[test]
fn a_write_that_failed_does_not_fail_the_fence_and_a_sync_that_fails_does() {
    let disk = slow_disk();
    let mut core = harness::open_simulated(&disk);
    let handle = segment(&mut core);
    disk.set_faults(Faults::none().when(Trigger::nth(Injected::WriteError, 1)));
    let fails = begin_write(&mut core, handle, 0, &[1; BLOCK], Mode::Direct);
    let beyond = begin_write(&mut core, handle, 64, &[1; BLOCK], Mode::Direct);
    let ticket = fence(&mut core, handle);
    end(&mut core, ticket).result.unwrap();
    assert_eq!(end(&mut core, fails).result.unwrap_err().code(), "EIO");
    assert_eq!(end(&mut core, beyond).result.unwrap_err().code(), "ENOSPC");
    disk.set_faults(Faults::none().when(Trigger::nth(Injected::FailedFlush, 1)));
    let good = begin_write(&mut core, handle, 0, &[1; BLOCK], Mode::Direct);
    let ticket = fence(&mut core, handle);
    let error = end(&mut core, ticket).result.unwrap_err();
    assert_eq!((error.operation, error.offset), ("fence", None));
    end(&mut core, good).result.unwrap();
    let ticket = fence(&mut core, handle);
    assert_eq!(end(&mut core, ticket).result.unwrap_err().code(), "EPOISONED");
}

/// A file on a disk whose writes outlast its flushes.
fn plain(core: &mut Core, disk: &Disk) -> Handle {
    disk.set_profile(Profile::Flash(Flash {
        write: Duration::from_millis(1),
        ..Flash::default()
    }));
    core.add_file(File::simulated(disk, "disk"), Access::Write)
}

fn fail_next_flush(disk: &Disk) {
    disk.set_faults(Faults::none().when(Trigger::nth(Injected::FailedFlush, 1)));
}

/// The failure is the only report of what the device has lost, and that may be what the fence covers.
#[test]
fn a_fence_hears_of_a_sync_that_failed_and_was_acknowledged_while_it_waited() {
    let mut core = harness::open_simulated(&slow_disk());
    let disk = Disk::new(16 * B);
    let handle = plain(&mut core, &disk);
    put(&mut core, handle, 0, &[7; BLOCK], Mode::Direct);
    fail_next_flush(&disk);
    let before = begin_write(&mut core, handle, 1, &[7; BLOCK], Mode::Direct);
    let fails = start(&mut core, harness::sync_request(handle));
    let ticket = fence(&mut core, handle);
    assert_eq!(code(&mut core, fails), "EIO");
    assert!(is_pending(&mut core, before), "so the fence's own sync has not begun");
    assert!(core.file(handle).unwrap().acknowledge_failure().is_some());
    assert_eq!(code(&mut core, ticket), "EPOISONED");
    end(&mut core, before).result.unwrap();
    // Who asks after the acknowledgement has nothing to do with it.
    let ticket = fence(&mut core, handle);
    end(&mut core, ticket).result.unwrap();
}

/// A fence covers what was written by whatever handle.
#[test]
fn a_fence_hears_of_a_sync_that_failed_on_another_open_of_its_file() {
    let mut core = harness::open_simulated(&slow_disk());
    let disk = Disk::new(16 * B);
    let (one, other) = (plain(&mut core, &disk), plain(&mut core, &disk));
    put(&mut core, one, 0, &[7; BLOCK], Mode::Direct);
    fail_next_flush(&disk);
    let fails = start(&mut core, harness::sync_request(one));
    assert_eq!(code(&mut core, fails), "EIO");
    for handle in [other, one] {
        let ticket = fence(&mut core, handle);
        assert_eq!(code(&mut core, ticket), "EPOISONED");
    }
    // Either owner may say that the data is checked.
    assert!(core.file(other).unwrap().acknowledge_failure().is_some());
    for handle in [other, one] {
        let ticket = fence(&mut core, handle);
        end(&mut core, ticket).result.unwrap();
    }
}

/// The cache has nothing to write, and its own flush has nothing to report any more.
#[test]
fn a_fence_through_the_cache_hears_of_a_durable_zero_that_failed_beside_it() {
    let mut core = open_cached(&slow_disk(), 32);
    let disk = Disk::new(16 * B);
    let (one, other) = (plain(&mut core, &disk), plain(&mut core, &disk));
    put(&mut core, one, 0, &[7; BLOCK], Mode::Cached);
    // A direct read has the page written, and not flushed.
    get(&mut core, one, 0, 1, Mode::Direct);
    fail_next_flush(&disk);
    let (offset, len) = (8 * B, B);
    let op = SegmentOp::Zero { offset, len };
    let durable = SegmentRequest {
        durability: Durability::Data,
        ..SegmentRequest::new(other, op, Memory::None)
    };
    let durable = start(&mut core, durable);
    assert_eq!(code(&mut core, durable), "EIO");
    let ticket = fence(&mut core, one);
    let error = end(&mut core, ticket).result.unwrap_err();
    // The cache tells of its own flush, which the failure has poisoned.
    assert_eq!((error.operation, error.code()), ("fence", "EIO"));
}

/// One that waits is called off like everything that waits in the core; who comes behind it waits for the same writes.
#[test]
fn a_fence_that_waits_is_cancelled_abandoned_overdue_and_leaves_no_trace() {
    for ends in 0..3 {
        let disk = slow_disk();
        let mut core = harness::open_simulated(&disk);
        let handle = segment(&mut core);
        let before = begin_write(&mut core, handle, 0, &[1; BLOCK], Mode::Direct);
        let word = StatusWord::new();
        let soon = core.engine().now().after(Duration::from_nanos(1));
        let request = SegmentRequest {
            deadline: (ends == 1).then_some(soon),
            status: Some(word.clone()),
            ..fence_of(handle)
        };
        let ticket = start(&mut core, request);
        assert_eq!((word.get(), core.in_flight()), (Status::InFlight, 2));
        let behind = fence(&mut core, handle);
        match ends {
            0 => core.cancel(ticket),
            1 => {}
            _ => core.abandon(ticket),
        }
        if ends < 2 {
            assert_eq!(end(&mut core, ticket).result.unwrap_err().code(), "ECANCELED");
        } else {
            assert!(matches!(core.poll(ticket, None), std::task::Poll::Ready(None)));
        }
        end(&mut core, behind).result.unwrap();
        assert!(!is_pending(&mut core, before));
        quiet(&mut core);
        assert_eq!(core.in_flight(), 0);
    }
}

/// What was given up may still land, so a fence waits for the device, not for whoever asked.
#[test]
fn an_abandoned_write_is_waited_for_until_the_device_is_done_with_it() {
    let disk = Disk::new(64 * B);
    disk.set_profile(Profile::Flash(Flash::default()));
    let mut core = harness::open_simulated(&slow_disk());
    let handle = core.add_file(File::simulated(&disk, "disk"), Access::Write);
    let mut abandoned = Vec::new();
    for block in 0..8 {
        let request = write_request(&core, handle, block * B, &[6; BLOCK]);
        abandoned.push(start(&mut core, request));
    }
    core.turn(Wait::No).unwrap();
    for write in abandoned {
        core.abandon(write);
    }
    let ticket = fence(&mut core, handle);
    end(&mut core, ticket).result.unwrap();
    let mut left = vec![0; 8 * BLOCK];
    disk.power_cut(1).read(0, &mut left);
    let now = read(&mut core, handle, 0, 8 * BLOCK).unwrap();
    assert_eq!(left, now, "nothing landed behind the fence");
}

/// A close ends nothing that is under way, a delete ends it all.
#[test]
fn a_handle_is_closed_and_a_segment_deleted_over_a_fence_that_waits() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 32);
    let handle = segment(&mut core);
    begin_write(&mut core, handle, 0, &[1; BLOCK], Mode::Direct);
    begin_write(&mut core, handle, 4, &[1; BLOCK], Mode::Cached);
    let ticket = fence(&mut core, handle);
    core.close_handle(handle);
    end(&mut core, ticket).result.unwrap();
    let handle = open_write(&mut core, "data");
    begin_write(&mut core, handle, 0, &[1; 8 * BLOCK], Mode::Direct);
    let ticket = fence(&mut core, handle);
    let behind = fence(&mut core, handle);
    core.delete(ME, ME.uid, "data").unwrap();
    for fence in [ticket, behind] {
        if let Err(error) = end(&mut core, fence).result {
            assert!(matches!(error.fault, Fault::Stale), "{error}");
        }
    }
    quiet(&mut core);
    core.close().unwrap();
}

/// A rename takes what is under way along; who takes the old name has nothing before it.
#[test]
fn a_fence_follows_its_segment_through_a_rename() {
    let disk = slow_disk();
    let mut core = harness::open_simulated(&disk);
    let handle = segment(&mut core);
    core.rename(ME, ME.uid, "data", "renamed").unwrap();
    let again = open_write(&mut core, "renamed");
    let before = begin_write(&mut core, handle, 0, &[1; BLOCK], Mode::Direct);
    let ticket = fence(&mut core, again);
    let new = segment(&mut core);
    assert_eq!(run(&mut core, fence_of(new)).result.unwrap(), 0);
    end(&mut core, ticket).result.unwrap();
    assert!(!is_pending(&mut core, before));
}
