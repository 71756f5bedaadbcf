//! The promise: a request makes a plain file shorter or longer, in the order of the writes beside it, and whoever caches it sees the
//! new end: what was cut off never comes back, whatever was cached of it, and what is new reads as zeros.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baio_engine::sim::{Disk, Fault as Injected, Faults, Flash, Profile, Trigger};
use baio_engine::{Durability, File, Memory, Open, Wait};
use baio_storage::{Access, Core, Fault, Handle, Mode, SegmentOp, SegmentRequest, Status, StatusWord, Ticket};

use crate::harness::through_cache::{
    B, begin_read, begin_write, cache_of, end, get, got, open_cached, put, quiet, slow_disk,
};
use crate::harness::{self, BLOCK, create, open_write, run, start, sync_request};

const MODES: [Mode; 3] = [Mode::Direct, Mode::Kernel, Mode::Cached];

fn ask(handle: Handle, op: SegmentOp, mode: Mode) -> SegmentRequest {
    SegmentRequest {
        mode,
        ..SegmentRequest::new(handle, op, Memory::None)
    }
}

fn begin(core: &mut Core, handle: Handle, op: SegmentOp) -> Ticket {
    start(core, ask(handle, op, Mode::Direct))
}

/// Ends well, and says that nothing was transferred.
fn done(core: &mut Core, request: SegmentRequest) {
    let outcome = run(core, request);
    assert_eq!((*outcome.result.as_ref().unwrap(), outcome.bytes_done), (0, 0));
}

fn truncate(core: &mut Core, handle: Handle, len: u64, mode: Mode) {
    done(core, ask(handle, SegmentOp::Truncate { len }, mode));
}

struct World {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

/// A file of so many blocks of ones, not in the kernel's cache's way.
fn world(blocks: usize) -> World {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![1; blocks * BLOCK]).unwrap();
    World { _dir: dir, path }
}

fn core_with(pages: usize) -> Core {
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&cache_of(pages)).unwrap();
    core
}

fn open(core: &mut Core, path: &Path) -> Handle {
    core.open_file(path, &Open::write()).unwrap()
}

/// A file on a simulated disk that takes its time, in a core with a cache.
fn slow(blocks: u64) -> (Disk, Core, Handle) {
    let disk = Disk::new(blocks * B);
    disk.poke(0, &vec![1; (blocks * B) as usize]);
    disk.set_profile(Profile::Flash(Flash::default()));
    let mut core = open_cached(&slow_disk(), 64);
    let handle = core.add_file(File::simulated(&disk, "disk"), Access::Write);
    (disk, core, handle)
}

#[test]
fn a_file_is_made_shorter_and_longer_and_keeps_its_first_bytes() {
    let world = world(8);
    for mode in MODES {
        let mut core = core_with(64);
        let handle = open(&mut core, &world.path);
        truncate(&mut core, handle, 0, mode);
        done(
            &mut core,
            ask(handle, SegmentOp::Allocate { offset: 0, len: 8 * B }, mode),
        );
        assert_eq!(core.size(handle).unwrap(), 8 * B);
        put(&mut core, handle, 0, &[1; 8 * BLOCK], Mode::Direct);
        for (len, left) in [(5, 5), (8, 5), (8, 5), (2, 2), (7, 2)] {
            let word = StatusWord::new();
            let request = SegmentRequest {
                durability: Durability::Full,
                status: Some(word.clone()),
                ..ask(handle, SegmentOp::Truncate { len: len * B }, mode)
            };
            done(&mut core, request);
            assert_eq!((core.size(handle).unwrap(), word.get()), (len * B, Status::Done(0)));
            let expected: Vec<u8> = (0..len).flat_map(|block| [u8::from(block < left); BLOCK]).collect();
            assert_eq!(std::fs::read(&world.path).unwrap(), expected, "{mode:?}");
            assert_eq!(get(&mut core, handle, 0, 8, Mode::Direct), expected);
        }
        core.close().unwrap();
    }
}

#[test]
fn what_has_no_size_of_its_own_refuses_it_with_the_cure() {
    let mut core = open_cached(&slow_disk(), 16);
    create(&mut core, "data", 16 * B);
    let handle = open_write(&mut core, "data");
    for op in [
        SegmentOp::Truncate { len: 0 },
        SegmentOp::Truncate { len: 1 << 40 },
        SegmentOp::Allocate { offset: 0, len: B },
        SegmentOp::Allocate { offset: 0, len: 0 },
    ] {
        for mode in [Mode::Direct, Mode::Cached] {
            let error = run(&mut core, ask(handle, op, mode)).result.unwrap_err();
            assert!(matches!(error.fault, Fault::NotAFile), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(op.name()) && text.contains("a plain file"), "{text}");
            assert!(text.contains("baio resize"), "{text}");
        }
    }
    assert_eq!(core.size(handle).unwrap(), 16 * B);
    let world = world(2);
    let mut core = core_with(16);
    let reader = core.open_file(&world.path, &Open::read()).unwrap();
    let error = run(&mut core, ask(reader, SegmentOp::Truncate { len: 0 }, Mode::Kernel)).result;
    assert!(matches!(error.unwrap_err().fault, Fault::ReadOnly));
    let writer = open(&mut core, &world.path);
    let far = SegmentOp::Truncate { len: 1 << 63 };
    assert_eq!(
        run(&mut core, ask(writer, far, Mode::Kernel))
            .result
            .unwrap_err()
            .code(),
        "EFBIG"
    );
    core.close_handle(writer);
    let stale = run(&mut core, ask(writer, SegmentOp::Truncate { len: 0 }, Mode::Kernel)).result;
    assert!(matches!(stale.unwrap_err().fault, Fault::Stale));
    assert_eq!(std::fs::metadata(&world.path).unwrap().len(), 2 * B);
}

/// Clean and changed pages alike; what is made of the place later reads as zeros.
#[test]
fn what_was_cached_behind_the_new_end_never_comes_back() {
    for mode in MODES {
        let world = world(8);
        let mut core = core_with(64);
        let handle = open(&mut core, &world.path);
        assert_eq!(get(&mut core, handle, 0, 8, Mode::Cached), [1; 8 * BLOCK]);
        put(&mut core, handle, 5, &[2; 2 * BLOCK], Mode::Cached);
        truncate(&mut core, handle, 4 * B, mode);
        assert_eq!(get(&mut core, handle, 0, 8, Mode::Cached), [1; 4 * BLOCK]);
        assert_eq!(got_at(&mut core, handle, 6), []);
        truncate(&mut core, handle, 8 * B, mode);
        let expected = [[1; 4 * BLOCK], [0; 4 * BLOCK]].concat();
        assert_eq!(get(&mut core, handle, 0, 8, Mode::Cached), expected, "{mode:?}");
        // What is new takes bytes through the cache.
        put(&mut core, handle, 7, &[3; BLOCK], Mode::Cached);
        assert_eq!(get(&mut core, handle, 7, 1, Mode::Direct), [3; BLOCK]);
        core.close().unwrap();
        assert_eq!(std::fs::read(&world.path).unwrap()[7 * BLOCK..], [3; BLOCK]);
    }
}

fn got_at(core: &mut Core, handle: Handle, block: u64) -> Vec<u8> {
    let ticket = begin_read(core, handle, block, 1, Mode::Cached);
    got(end(core, ticket))
}

/// Reads and writes that are under way when it comes are over before it. Who comes while it waits sees the file as it was or as it is
/// then, and who comes behind its end the new one.
#[test]
fn it_stands_in_order_with_what_is_under_way_in_the_cache() {
    let (disk, mut core, handle) = slow(16);
    get(&mut core, handle, 0, 1, Mode::Cached);
    let before = begin_read(&mut core, handle, 8, 8, Mode::Cached);
    let write = begin_write(&mut core, handle, 12, &[2; 2 * BLOCK], Mode::Cached);
    let cut = begin(&mut core, handle, SegmentOp::Truncate { len: 10 * B });
    let behind = begin_read(&mut core, handle, 8, 8, Mode::Cached);
    let too_far = begin_read(&mut core, handle, 12, 1, Mode::Cached);
    let fence = start(
        &mut core,
        SegmentRequest {
            durability: Durability::Data,
            ..ask(handle, SegmentOp::Fence, Mode::Cached)
        },
    );
    let seen = got(end(&mut core, before));
    assert_eq!((seen.len(), &seen[..4 * BLOCK]), (8 * BLOCK, &[1; 4 * BLOCK][..]));
    end(&mut core, write).result.unwrap();
    for (read, whole) in [(behind, 8 * BLOCK), (too_far, BLOCK)] {
        let seen = got(end(&mut core, read));
        // The write beside it may have come or not; no byte is of neither.
        assert!(seen.iter().all(|byte| [1, 2].contains(byte)));
        assert!([whole, 2 * BLOCK, 0].contains(&seen.len()), "{} bytes", seen.len());
    }
    end(&mut core, fence).result.unwrap();
    assert!(
        matches!(core.poll(cut, None), std::task::Poll::Ready(Some(_))),
        "the fence is behind it"
    );
    quiet(&mut core);
    assert_eq!(got_at(&mut core, handle, 9), [1; BLOCK]);
    assert_eq!(got_at(&mut core, handle, 10), []);
    assert_eq!((disk.size(), core.size(handle).unwrap()), (10 * B, 10 * B));
    // The same place, made again: nothing of what was there.
    truncate(&mut core, handle, 16 * B, Mode::Direct);
    assert_eq!(get(&mut core, handle, 10, 6, Mode::Cached), [0; 6 * BLOCK]);
}

/// A cancelled one has done nothing, and one whose end nobody told is looked for.
#[test]
fn cancelled_it_has_done_nothing_and_failed_it_leaves_all_as_it_was() {
    let (disk, mut core, handle) = slow(16);
    put(&mut core, handle, 12, &[2; BLOCK], Mode::Cached);
    let cut = begin(&mut core, handle, SegmentOp::Truncate { len: 8 * B });
    core.cancel(cut);
    assert_eq!(end(&mut core, cut).result.unwrap_err().code(), "ECANCELED");
    assert_eq!(get(&mut core, handle, 12, 1, Mode::Cached), [2; BLOCK]);
    let refused = Trigger::nth(Injected::NoSpace, 1);
    disk.set_faults(Faults::none().when(refused));
    let cut = begin(&mut core, handle, SegmentOp::Truncate { len: 8 * B });
    assert_eq!(end(&mut core, cut).result.unwrap_err().code(), "ENOSPC");
    assert_eq!(get(&mut core, handle, 12, 1, Mode::Cached), [2; BLOCK]);
    assert_eq!(get(&mut core, handle, 8, 8, Mode::Cached).len(), 8 * BLOCK);
    // Nobody waits behind it for ever.
    put(&mut core, handle, 13, &[3; BLOCK], Mode::Cached);
    assert_eq!(run(&mut core, sync_request(handle)).result.unwrap(), 0);
    truncate(&mut core, handle, 8 * B, Mode::Cached);
    assert_eq!(disk.size(), 8 * B);
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
}

/// It was answered at its deadline and came all the same: when the device has let go of it, the file is asked.
#[test]
fn what_nobody_told_the_end_of_is_looked_for() {
    let (disk, mut core, handle) = slow(16);
    get(&mut core, handle, 0, 1, Mode::Cached);
    let deadline = core.engine().now().after(Duration::from_nanos(1));
    let request = SegmentRequest {
        deadline: Some(deadline),
        ..ask(handle, SegmentOp::Truncate { len: 8 * B }, Mode::Direct)
    };
    assert_eq!(run(&mut core, request).result.unwrap_err().code(), "EINDETERMINATE");
    quiet(&mut core);
    assert_eq!(disk.size(), 8 * B);
    assert_eq!(get(&mut core, handle, 4, 8, Mode::Cached), [1; 4 * BLOCK]);
    assert_eq!(got_at(&mut core, handle, 12), []);
}

/// A pin is somebody's memory: a file is not cut under it.
#[test]
fn a_pinned_page_keeps_a_file_from_being_cut() {
    let world = world(8);
    let mut core = core_with(64);
    let handle = open(&mut core, &world.path);
    let pin = core.pin_now(handle, 6).unwrap();
    let cut = ask(handle, SegmentOp::Truncate { len: 4 * B }, Mode::Direct);
    let error = run(&mut core, cut).result.unwrap_err();
    assert_eq!(error.code(), "EBUSY", "{error}");
    assert_eq!(core.size(handle).unwrap(), 8 * B);
    core.unpin(pin);
    truncate(&mut core, handle, 4 * B, Mode::Direct);
    core.close().unwrap();
}

/// A file that may not grow: what was written behind its end through the cache stays there, and every sync fails, until it is cut off.
#[test]
fn a_cut_throws_away_what_cannot_be_written() {
    use rustix::fs::{MemfdFlags, SealFlags};
    let fd = rustix::fs::memfd_create("sealed", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&fd, &[1; 2 * BLOCK], 0).unwrap();
    rustix::fs::fcntl_add_seals(&fd, SealFlags::GROW).unwrap();
    let mut core = core_with(64);
    let handle = core.add_file(File::from_fd(fd, "sealed").unwrap(), Access::Write);
    for (block, byte) in [(1, 4), (2, 5), (9, 6)] {
        let written = begin_write(&mut core, handle, block, &[byte; BLOCK], Mode::Cached);
        assert_eq!(end(&mut core, written).result.unwrap(), BLOCK as u32);
    }
    // A cut that the last page refuses has thrown none of the others away.
    assert!(run(&mut core, sync_request(handle)).result.is_err());
    let pin = core.pin_now(handle, 9).unwrap();
    let refused = run(&mut core, ask(handle, SegmentOp::Truncate { len: B }, Mode::Kernel)).result;
    assert_eq!(refused.unwrap_err().code(), "EBUSY");
    core.unpin(pin);
    assert_eq!(get(&mut core, handle, 2, 1, Mode::Cached), vec![5; BLOCK]);
    for len in [2 * B + 1, 2 * B - 1] {
        assert!(run(&mut core, sync_request(handle)).result.is_err());
        let cut = run(&mut core, ask(handle, SegmentOp::Truncate { len }, Mode::Kernel)).result;
        // Of the third block a byte stays, which cannot be written.
        assert_eq!(cut.is_ok(), len < 2 * B, "{len}: {cut:?}");
    }
    done(&mut core, sync_request(handle));
    assert_eq!(core.size(handle).unwrap(), 2 * B - 1);
    assert_eq!(get(&mut core, handle, 1, 1, Mode::Cached), vec![4; BLOCK - 1]);
}

/// All is written, and the flush fails: what is cut off does not have to be safe. What stays of a block is written by itself, durably.
#[test]
fn a_cut_throws_away_what_could_not_be_flushed() {
    for len in [2 * B, B, 2 * B + 1] {
        let (disk, mut core, handle) = slow(8);
        for block in [2, 5, 7] {
            let written = begin_write(&mut core, handle, block, &[block as u8; BLOCK], Mode::Cached);
            assert_eq!(end(&mut core, written).result.unwrap(), BLOCK as u32);
        }
        disk.set_faults(Faults::none().when(Trigger::always(Injected::FailedFlush)));
        done(&mut core, ask(handle, SegmentOp::Truncate { len }, Mode::Kernel));
        disk.set_faults(Faults::none());
        assert_eq!(core.size(handle).unwrap(), len);
    }
}

/// Its log has ended: the page is never written, and who cuts it off does not have to hear of that.
#[test]
fn a_cut_throws_away_what_waits_for_a_log_that_has_ended() {
    let w = world(4);
    let mut core = core_with(64);
    let handle = open(&mut core, &w.path);
    let gate = core.add_gate(u64::MAX).unwrap();
    core.set_gate(handle, gate).unwrap();
    core.drive_gate(gate, || 1000).unwrap();
    let pin = core.pin_now(handle, 3).unwrap();
    core.change_now(&pin, 500).unwrap()[0] = 8;
    core.unpin(pin);
    core.log_ended(gate);
    let cut = |core: &mut Core, len| run(core, ask(handle, SegmentOp::Truncate { len }, Mode::Kernel)).result;
    assert!(cut(&mut core, 3 * B + 7).is_err(), "a part of it stays");
    assert_eq!(cut(&mut core, 3 * B).unwrap(), 0);
    done(&mut core, sync_request(handle));
    core.close().unwrap();
    assert_eq!(std::fs::read(&w.path).unwrap(), [1; 3 * BLOCK]);
}
