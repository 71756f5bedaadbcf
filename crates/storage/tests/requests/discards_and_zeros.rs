//! The promise: a discard and a zero make their range read as zeros, nothing else, beside everything that is cached, moved or
//! written there; they are refused where a direct write would be, whole, and have no longest length but the segment's.

use std::task::Poll;
use std::time::Duration;

use baio_engine::sim::{Disk, Fault as Injected, Faults, Flash, Profile, Trigger};
use baio_engine::{Argument, Durability, File, Memory, Open, Wait};
use baio_storage::{Access, Core, Fault, Handle, Mode, Outcome, SegmentOp, SegmentRequest, Status, StatusWord};

use crate::harness::known;
use crate::harness::through_cache::{
    self, B, begin_durable, begin_read, begin_write, end, get, open_cached, put, quiet, slow_disk,
};
use crate::harness::{self, BLOCK, ME, create, open_write, read, run, start, sync, write};

const SIZE: usize = 64 * BLOCK;

type Make = fn(u64, u64) -> SegmentOp;

const BOTH: [Make; 2] = [
    |offset, len| SegmentOp::Discard { offset, len },
    |offset, len| SegmentOp::Zero { offset, len },
];

fn ask(handle: Handle, op: SegmentOp) -> SegmentRequest {
    SegmentRequest::new(handle, op, Memory::None)
}

fn asked_in(handle: Handle, op: SegmentOp, mode: Mode) -> SegmentRequest {
    SegmentRequest {
        mode,
        ..ask(handle, op)
    }
}

/// It ended well, and says that nothing was transferred.
fn is_done(outcome: &Outcome) {
    assert_eq!(*outcome.result.as_ref().unwrap(), 0);
    assert_eq!(outcome.bytes_done, 0);
}

/// A segment full of ones between two neighbours that are full of twos.
fn between(core: &mut Core) -> [Handle; 3] {
    ["before", "data", "behind"].map(|name| {
        create(core, name, SIZE as u64);
        let handle = open_write(core, name);
        let byte = if name == "data" { 1 } else { 2 };
        write(core, handle, 0, &vec![byte; SIZE]).unwrap();
        handle
    })
}

fn neighbours_are_whole(core: &mut Core, [before, _, behind]: [Handle; 3]) {
    for neighbour in [before, behind] {
        assert_eq!(read(core, neighbour, 0, SIZE).unwrap(), vec![2; SIZE]);
    }
}

#[test]
fn a_range_reads_as_zeros_and_nothing_beside_it_does() {
    known::everywhere(|world| {
        let mut core = world.open();
        let handles = between(&mut core);
        let mut expected = vec![1; SIZE];
        for (nth, make) in BOTH.into_iter().enumerate() {
            let at = (1 + 8 * nth) * BLOCK;
            let word = StatusWord::new();
            let request = SegmentRequest {
                durability: [Durability::None, Durability::Full][nth],
                status: Some(word.clone()),
                tag: 7,
                ..ask(handles[1], make(at as u64, 2 * B))
            };
            let outcome = run(&mut core, request);
            is_done(&outcome);
            assert_eq!((outcome.tag, word.get()), (7, Status::Done(0)));
            expected[at..at + 2 * BLOCK].fill(0);
            assert_eq!(read(&mut core, handles[1], 0, SIZE).unwrap(), expected);
        }
        // What was discarded takes bytes again.
        write(&mut core, handles[1], B, &[3; BLOCK]).unwrap();
        expected[BLOCK..2 * BLOCK].fill(3);
        assert_eq!(read(&mut core, handles[1], 0, SIZE).unwrap(), expected);
        // All of it, at once.
        is_done(&run(&mut core, ask(handles[1], BOTH[0](0, SIZE as u64))));
        assert_eq!(read(&mut core, handles[1], 0, SIZE).unwrap(), vec![0; SIZE]);
        neighbours_are_whole(&mut core, handles);
        core.close().unwrap();
        let mut core = world.open();
        let handles = ["before", "data", "behind"].map(|name| open_write(&mut core, name));
        assert_eq!(read(&mut core, handles[1], 0, SIZE).unwrap(), vec![0; SIZE]);
        neighbours_are_whole(&mut core, handles);
    });
}

#[test]
fn what_a_direct_write_is_refused_for_they_are_refused_for() {
    known::everywhere(|world| {
        let mut core = world.open();
        let handles = between(&mut core);
        let (reader, _) = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
        let size = SIZE as u64;
        for make in BOTH {
            let name = make(0, 0).name();
            let mut refused = |handle, offset, len| {
                let error = run(&mut core, ask(handle, make(offset, len))).result.unwrap_err();
                assert_eq!((error.operation, error.offset), (name, Some(offset)));
                error.into_fault()
            };
            assert!(matches!(refused(reader, 0, B), Fault::ReadOnly));
            for (offset, len) in [
                (size, B),
                (size - B, 2 * B),
                (0, size + B),
                (B, u64::MAX),
                (u64::MAX - 511, 512),
            ] {
                let fault = refused(handles[1], offset, len);
                let whole =
                    matches!(fault, Fault::Beyond { len: told, size: at, write: true } if (told, at) == (len, size));
                assert!(whole, "{fault:?}");
            }
            for (offset, len, what) in [
                (7, B, Argument::Offset),
                (B, 7, Argument::Length),
                (size - 1, 1, Argument::Offset),
            ] {
                let fault = refused(handles[1], offset, len);
                let Fault::Io(baio_engine::Error::Misaligned { argument, value, .. }) = fault else {
                    panic!("{fault:?}")
                };
                let told = if what == Argument::Offset { offset } else { len };
                assert_eq!((argument, value), (what, told), "in bytes of the segment");
            }
            // Of no bytes there is nothing to do, as of a write.
            for offset in [0, B, size] {
                is_done(&run(&mut core, ask(handles[1], make(offset, 0))));
            }
            let closed = open_write(&mut core, "data");
            core.close_handle(closed);
            let error = run(&mut core, ask(closed, make(0, B))).result.unwrap_err();
            assert!(matches!(error.fault, Fault::Stale), "{error}");
        }
        assert_eq!(read(&mut core, handles[1], 0, SIZE).unwrap(), vec![1; SIZE]);
        neighbours_are_whole(&mut core, handles);
    });
}

/// More than fits into the 32 bits of a result, in one request.
#[test]
fn a_range_of_five_gigabytes_is_one_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 6 << 30);
    let mut core = harness::open(&path);
    let size: u64 = 5 << 30;
    create(&mut core, "data", size);
    let handle = open_write(&mut core, "data");
    for at in [0, 3 << 30, size - B] {
        write(&mut core, handle, at, &[1; BLOCK]).unwrap();
    }
    is_done(&run(
        &mut core,
        ask(handle, SegmentOp::Discard { offset: 0, len: size }),
    ));
    for at in [0, 3 << 30, size - B] {
        assert_eq!(read(&mut core, handle, at, BLOCK).unwrap(), vec![0; BLOCK]);
    }
}

/// On a file they do what the file system does: a discard never makes it longer, a zero may.
#[test]
fn a_plain_file_is_discarded_and_zeroed_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, [1; 8 * BLOCK]).unwrap();
    let mut core = Core::new(&harness::config()).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    is_done(&run(&mut core, ask(handle, SegmentOp::Discard { offset: B, len: B })));
    is_done(&run(
        &mut core,
        ask(
            handle,
            SegmentOp::Discard {
                offset: 7 * B,
                len: 9 * B,
            },
        ),
    ));
    assert_eq!(core.size(handle).unwrap(), 8 * B);
    is_done(&run(&mut core, ask(handle, SegmentOp::Zero { offset: 3 * B, len: B })));
    is_done(&run(&mut core, ask(handle, SegmentOp::Zero { offset: 8 * B, len: B })));
    let zeros = |block| [1, 3, 7, 8].contains(&block);
    let expected: Vec<u8> = (0..9 * BLOCK).map(|at| u8::from(!zeros(at / BLOCK))).collect();
    assert_eq!(std::fs::read(&path).unwrap(), expected);
    // Bytes through the kernel's cache have no alignment; a range that the kernel has no number for is refused.
    let kernel = asked_in(handle, SegmentOp::Zero { offset: 1, len: 2 }, Mode::Kernel);
    is_done(&run(&mut core, kernel));
    assert_eq!(std::fs::read(&path).unwrap()[..4], [1, 0, 0, 1]);
    for (offset, len) in [(1 << 63, 512), (0, 1 << 63), (u64::MAX - 511, 1024)] {
        let error = run(&mut core, ask(handle, SegmentOp::Discard { offset, len })).result;
        assert_eq!(error.unwrap_err().code(), "EFBIG");
    }
    let reader = core.open_file(&path, &Open::read()).unwrap();
    let error = run(&mut core, ask(reader, SegmentOp::Discard { offset: 0, len: B })).result;
    assert_eq!(error.unwrap_err().code(), "EBADF");
}

#[test]
fn a_discard_behind_the_end_of_a_device_that_shrank_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 4 << 20);
    let mut core = harness::open(&path);
    create(&mut core, "data", 1 << 20);
    let handle = open_write(&mut core, "data");
    is_done(&run(&mut core, ask(handle, SegmentOp::Discard { offset: 0, len: B })));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(3 << 20).unwrap();
    let error = run(&mut core, ask(handle, SegmentOp::Discard { offset: 0, len: B }))
        .result
        .unwrap_err();
    assert!(matches!(error.fault, Fault::Shrunk { .. }), "{error}");
    assert!(core.close().is_err());
}

/// Half of it cached, a part of that changed and not written.
fn cached(disk: &Disk) -> (Core, Handle) {
    let mut core = open_cached(disk, 32);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    write(&mut core, handle, 0, &vec![1; SIZE]).unwrap();
    get(&mut core, handle, 0, 16, Mode::Cached);
    put(&mut core, handle, 4, &[3; 4 * BLOCK], Mode::Cached);
    assert!(core.cache_stats().unwrap().frames_dirty > 0);
    (core, handle)
}

#[test]
fn what_is_cached_of_the_range_is_not_served_and_not_written_back_over_it() {
    for mode in [Mode::Direct, Mode::Cached] {
        for make in BOTH {
            let disk = slow_disk();
            let (mut core, handle) = cached(&disk);
            // Its edges lie in pages that are cached, one of them changed, and their other sectors are somebody else's.
            let (from, to) = (2 * BLOCK + 512, 6 * BLOCK + 1024);
            let op = make(from as u64, (to - from) as u64);
            let request = SegmentRequest {
                durability: Durability::Data,
                ..asked_in(handle, op, mode)
            };
            is_done(&run(&mut core, request));
            let mut expected = vec![1; 16 * BLOCK];
            expected[4 * BLOCK..8 * BLOCK].fill(3);
            expected[from..to].fill(0);
            assert_eq!(get(&mut core, handle, 0, 16, Mode::Cached), expected);
            assert_eq!(get(&mut core, handle, 0, 16, Mode::Direct), expected);
            sync(&mut core, handle).unwrap();
            quiet(&mut core);
            assert_eq!(get(&mut core, handle, 0, 16, Mode::Direct), expected);
            assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
            // What the outcome promised holds over a power cut.
            drop(core);
            let mut core = open_cached(&disk.power_cut(1), 32);
            let handle = open_write(&mut core, "data");
            assert_eq!(
                get(&mut core, handle, 0, 16, Mode::Cached)[from..to],
                expected[from..to]
            );
        }
    }
}

/// Whoever comes while it runs neither brings old bytes in for later nor writes behind its back.
#[test]
fn cached_requests_beside_it_leave_nothing_old_behind() {
    for make in BOTH {
        let disk = slow_disk();
        let (mut core, handle) = cached(&disk);
        let zero = start(&mut core, ask(handle, make(0, 24 * B)));
        // Of the last eight pages nothing is here.
        let reads = [0, 16].map(|block| begin_read(&mut core, handle, block, 8, Mode::Cached));
        let writing = begin_write(&mut core, handle, 2, &[9; BLOCK], Mode::Cached);
        // Beside it everything goes on.
        get(&mut core, handle, 40, 4, Mode::Cached);
        is_done(&end(&mut core, zero));
        for read in reads {
            let seen = through_cache::got(end(&mut core, read));
            assert!(seen.iter().all(|byte| [0, 1, 3, 9].contains(byte)));
        }
        end(&mut core, writing).result.unwrap();
        let mut expected = vec![0; 24 * BLOCK];
        expected[2 * BLOCK..3 * BLOCK].fill(9);
        for mode in [Mode::Cached, Mode::Direct] {
            assert_eq!(get(&mut core, handle, 0, 24, mode), expected);
        }
    }
}

#[test]
fn in_mode_cached_whole_sectors_of_what_is_there_and_a_cache() {
    let (mut core, handle) = cached(&slow_disk());
    for make in BOTH {
        let outcome = run(&mut core, asked_in(handle, make(0, 100), Mode::Cached));
        let error = outcome.result.unwrap_err();
        assert!(
            matches!(error.fault, Fault::Io(baio_engine::Error::Misaligned { .. })),
            "{error}"
        );
        let outcome = run(&mut core, asked_in(handle, make(63 * B, 2 * B), Mode::Cached));
        assert_eq!(outcome.result.unwrap_err().code(), "ENOSPC");
    }
    // A file that is cached does not grow, by no way through the cache.
    let disk = Disk::new(16 * B);
    let file = core.add_file(File::simulated(&disk, "disk"), Access::Write);
    let outcome = run(&mut core, asked_in(file, BOTH[1](15 * B, 2 * B), Mode::Cached));
    assert!(matches!(outcome.result.unwrap_err().fault, Fault::Beyond { .. }));
    is_done(&run(&mut core, asked_in(file, BOTH[1](15 * B, B), Mode::Cached)));
    let mut core = harness::open_simulated(&slow_disk());
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    let outcome = run(&mut core, asked_in(handle, BOTH[0](0, B), Mode::Cached));
    assert!(matches!(outcome.result.unwrap_err().fault, Fault::NoCache));
}

#[test]
fn a_pinned_page_is_not_taken_away() {
    let (mut core, handle) = cached(&slow_disk());
    let pin = core.pin_now(handle, 9).unwrap();
    for make in BOTH {
        let error = run(&mut core, ask(handle, make(8 * B, 4 * B))).result.unwrap_err();
        assert!(error.to_string().contains("pinned"), "{error}");
    }
    assert_eq!(core.page(&pin).unwrap(), [1; BLOCK]);
    core.unpin(pin);
    is_done(&run(&mut core, ask(handle, BOTH[0](8 * B, 4 * B))));
    assert_eq!(get(&mut core, handle, 8, 4, Mode::Cached), vec![0; 4 * BLOCK]);
}

/// It needs no frame of its own.
#[test]
fn a_cache_whose_every_frame_is_changed_holds_them_up_only_for_their_range() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 16);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    let writes: Vec<_> = (0..16)
        .map(|block| begin_write(&mut core, handle, block, &[5; BLOCK], Mode::Cached))
        .collect();
    is_done(&run(&mut core, ask(handle, BOTH[0](8 * B, 32 * B))));
    for write in writes {
        end(&mut core, write).result.unwrap();
    }
    assert_eq!(get(&mut core, handle, 0, 8, Mode::Cached), vec![5; 8 * BLOCK]);
    // Those that came before it went first.
    assert_eq!(get(&mut core, handle, 8, 8, Mode::Cached), vec![0; 8 * BLOCK]);
}

#[test]
fn one_that_waits_is_cancelled_and_overdue_without_having_done_anything() {
    for ends in 0..3 {
        let (mut core, handle) = cached(&slow_disk());
        let before = get(&mut core, handle, 0, 16, Mode::Cached);
        // The cache has something to write before it makes way.
        let soon = core.engine().now().after(Duration::from_nanos(1));
        let request = SegmentRequest {
            deadline: (ends == 1).then_some(soon),
            ..ask(handle, BOTH[0](0, 16 * B))
        };
        let ticket = start(&mut core, request);
        match ends {
            0 => core.cancel(ticket),
            1 => {}
            _ => core.abandon(ticket),
        }
        if ends < 2 {
            assert_eq!(end(&mut core, ticket).result.unwrap_err().code(), "ECANCELED");
        }
        quiet(&mut core);
        assert_eq!(get(&mut core, handle, 0, 16, Mode::Cached), before);
        assert_eq!(get(&mut core, handle, 0, 16, Mode::Direct), before);
    }
}

/// An abandoned one may still land, so the cache keeps out until the device is done with it.
#[test]
fn an_abandoned_one_at_the_device_keeps_the_cache_out() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 32);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    write(&mut core, handle, 0, &vec![1; SIZE]).unwrap();
    get(&mut core, handle, 40, 1, Mode::Cached);
    let ticket = start(&mut core, ask(handle, BOTH[1](0, 8 * B)));
    core.turn(Wait::No).unwrap();
    core.abandon(ticket);
    let durable = begin_durable(&mut core, handle, 1, &[6; BLOCK]);
    end(&mut core, durable).result.unwrap();
    quiet(&mut core);
    assert_eq!(get(&mut core, handle, 1, 1, Mode::Direct), [6; BLOCK]);
    assert!(matches!(core.poll(ticket, None), Poll::Ready(None)));
}

#[test]
fn what_a_device_cannot_do_is_told_with_offset_and_errno() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 32);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    write(&mut core, handle, 0, &vec![1; SIZE]).unwrap();
    disk.set_faults(Faults::none().when(Trigger::nth(Injected::WriteError, 1)));
    let error = run(&mut core, ask(handle, BOTH[0](4 * B, B))).result.unwrap_err();
    assert_eq!(
        (error.code(), error.operation, error.offset),
        ("EIO", "discard", Some(4 * B))
    );
    is_done(&run(&mut core, ask(handle, BOTH[0](4 * B, B))));
}

/// A zero that is durable, and one that nobody made so: what a power cut leaves of each.
#[test]
fn a_power_cut_takes_only_what_was_not_promised() {
    let mut kept = [0; 2];
    for seed in 0..16 {
        let disk = Disk::new(16 * B);
        disk.set_profile(Profile::Flash(Flash::default()));
        let mut core = harness::open_simulated(&slow_disk());
        let handle = core.add_file(File::simulated(&disk, "disk"), Access::Write);
        write(&mut core, handle, 0, &[1; 16 * BLOCK]).unwrap();
        sync(&mut core, handle).unwrap();
        let durable = SegmentRequest {
            durability: Durability::Data,
            ..ask(handle, BOTH[0](0, 4 * B))
        };
        is_done(&run(&mut core, durable));
        is_done(&run(&mut core, ask(handle, BOTH[1](8 * B, 4 * B))));
        let mut left = vec![9; 16 * BLOCK];
        disk.power_cut(seed).read(0, &mut left);
        assert_eq!(left[..4 * BLOCK], [0; 4 * BLOCK], "seed {seed}");
        assert_eq!(left[4 * BLOCK..8 * BLOCK], [1; 4 * BLOCK], "seed {seed}");
        kept[usize::from(left[8 * BLOCK] == 0)] += 1;
    }
    assert!(kept[0] > 0, "it was not durable: {kept:?}");
}
