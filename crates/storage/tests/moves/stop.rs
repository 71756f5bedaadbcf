//! The promise: whatever stops a move, the segment is served by its mark, no byte and no block is lost, another move goes on
//! from there, and what waits for a chunk in copy can still be called back and ends in time.

use std::time::Duration;

use baio_engine::sim::{Fault as Injected, Faults, Trigger};
use baio_engine::{Buffer, Memory, Wait};
use baio_storage::segment::inode::{InodeState, MoveTo};
use baio_storage::{Core, Fault, FormatOptions, SegmentOp, SegmentRequest};

use crate::harness::images;
use crate::harness::known::{BLOCKS, Known, VOLUME, World, assert_nothing_leaked, start_block};
use crate::harness::{
    self, BLOCK, ME, Random, config, create, open_moody, open_write, read, read_request, run, simulated_disk, start,
    write, write_request,
};

/// An unreadable block of the source: what is below the mark is served from the target, the rest from the source, and what
/// crosses the mark is refused with it. Written anew, the block lets the next move pass.
#[test]
fn a_move_stopped_by_a_read_error_leaves_the_segment_served() {
    let world = World::simulated();
    let World::Simulated(disk) = &world else { unreachable!() };
    let mut core = world.open();
    let mut known = Known::new(&mut core, "data", BLOCKS);
    known.fill(&mut core, &mut Random(12));
    let info = core.volume_info().unwrap();
    let bad = 300 * BLOCK as u64;
    let on_device = info.data_at_bytes + start_block(&mut core, "data").0 * BLOCK as u64 + bad;
    let fails = Trigger::always(Injected::ReadError).within(on_device..on_device + BLOCK as u64);
    disk.set_faults(Faults::none().when(fails));
    let error = core.move_segment(ME, ME.uid, "data", Some(1500)).unwrap_err();
    assert_eq!(error.code(), "EIO", "{error}");
    assert_eq!(start_block(&mut core, "data").1, "moving");
    // The chunk is 64 blocks: the arena of these tests is small.
    let mark = 256 * BLOCK as u64;
    let handle = open_write(&mut core, "data");
    for handle in [handle, known.handle] {
        for offset in [0, mark - BLOCK as u64, mark] {
            assert!(read(&mut core, handle, offset, BLOCK).is_ok());
        }
        let error = read(&mut core, handle, mark - BLOCK as u64, 2 * BLOCK).unwrap_err();
        assert!(
            matches!(error.fault, Fault::MoveStopped { mark: at } if at == mark),
            "{error}"
        );
        assert!(error.need().unwrap().contains(&mark.to_string()) && error.cure().is_some());
        assert_eq!(error.offset, Some(mark - BLOCK as u64));
    }
    for (block, byte) in [(255, 1), (256, 2), (300, 3), (511, 4)] {
        known.holds[block] = byte;
        write(&mut core, known.handle, (block * BLOCK) as u64, &[byte; BLOCK]).unwrap();
    }
    // Still unreadable; another move stops there again, and so does one after an open.
    assert!(core.move_segment(ME, ME.uid, "data", None).is_err());
    core.close().unwrap();
    let mut core = world.open();
    known.handle = open_write(&mut core, "data");
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(start_block(&mut core, "data").1, "moving");
    disk.set_faults(Faults::none());
    let info = core.move_segment(ME, ME.uid, "data", None).unwrap();
    assert_eq!(
        (info.start_block, info.state),
        (1500, "live"),
        "it goes on to where it was going"
    );
    known.assert_holds(&mut core);
    assert_nothing_leaked(&mut core);
}

/// What waits for the chunk in copy can be called back, and ends in time.
#[test]
fn requests_that_wait_for_a_chunk_obey_cancel_and_deadline() {
    let format = FormatOptions::of_size(VOLUME);
    let disk = simulated_disk(&format);
    let (mut core, whims) = open_moody(&disk, &config());
    let mut known = Known::new(&mut core, "data", 130);
    known.fill(&mut core, &mut Random(14));
    let seen = whims.borrow().seen;
    let id = core.begin_move(ME, ME.uid, "data", Some(1000)).unwrap();
    // The look-up, the record in table and mirror, and its reading back; then the first chunk, whose read does not end.
    while whims.borrow().seen < seen + 4 {
        core.turn(Wait::one()).unwrap();
    }
    whims.borrow_mut().hold = true;
    whims.borrow_mut().hold_turns = 1000;
    let request = read_request(&core, known.handle, 0, BLOCK);
    let cancelled = start(&mut core, request);
    let due = core.engine().now().after(Duration::from_millis(5));
    let [late, beside] = [0, 129].map(|block| {
        let mut request = write_request(&core, known.handle, block * BLOCK as u64, &[1; BLOCK]);
        request.deadline = Some(due);
        request
    });
    let beside = start(&mut core, beside);
    let late = start(&mut core, late);
    core.cancel(cancelled);
    for ticket in [cancelled, late] {
        let outcome = core.wait(ticket).unwrap().unwrap();
        assert_eq!(outcome.memory.len(), BLOCK, "it never reached the device");
        let error = outcome.result.unwrap_err();
        assert!(
            matches!(error.fault, Fault::Io(baio_engine::Error::Cancelled)),
            "{error}"
        );
    }
    assert!(core.engine().now() >= due, "not before its time");
    let outcome = core.wait(beside).unwrap().unwrap();
    assert_eq!(outcome.result.unwrap_err().code(), "EINDETERMINATE", "this one did");
    known.holds[129] = 1;
    whims.borrow_mut().hold = false;
    whims.borrow_mut().hold_turns = 0;
    loop {
        match core.take_answer(&id) {
            Some(answer) => break drop(answer.unwrap()),
            None => core.turn(Wait::one()).unwrap(),
        };
    }
    known.assert_holds(&mut core);
}

#[test]
fn a_move_says_what_it_cannot_do() {
    let world = World::simulated();
    let mut core = world.open();
    create(&mut core, "data", 100 * BLOCK as u64);
    create(&mut core, "wall", 100 * BLOCK as u64);
    for to in [50, 150, u64::MAX, 1 << 40] {
        let error = core.move_segment(ME, ME.uid, "data", Some(to)).unwrap_err();
        assert_eq!(error.code(), "ENOSPC", "{error}");
    }
    let same = core.move_segment(ME, ME.uid, "data", Some(0)).unwrap();
    assert_eq!(same.start_block, 0);
    assert_eq!(
        core.move_segment(ME, ME.uid, "nothing", None).unwrap_err().code(),
        "ENOENT"
    );
    let stranger = core.move_segment(harness::STRANGER, ME.uid, "data", None).unwrap_err();
    assert_eq!(stranger.code(), "EACCES");
    assert_nothing_leaked(&mut core);
    // A caller that holds all memory is told so, and nothing is lost by it.
    let mut all = Vec::new();
    take_all_memory(&core, &mut all);
    let error = core.move_segment(ME, ME.uid, "data", Some(1000)).unwrap_err();
    assert_eq!(error.code(), "ENOBUFS", "{error}");
    drop(all);
    core.move_segment(ME, ME.uid, "data", Some(1000)).unwrap();
    assert_nothing_leaked(&mut core);
    let bare = SegmentRequest::new(open_write(&mut core, "data"), SegmentOp::Sync, Memory::None);
    run(&mut core, bare).result.unwrap();
}

/// All buffer memory is somebody else's in the middle of a move: it waits a while; then it stops, and can be gone on with.
#[test]
fn a_move_waits_for_memory_but_not_for_ever() {
    for comes_back in [true, false] {
        let disk = simulated_disk(&FormatOptions::of_size(VOLUME));
        let (mut core, whims) = open_moody(&disk, &config());
        let mut known = Known::new(&mut core, "data", 130);
        known.fill(&mut core, &mut Random(15));
        let seen = whims.borrow().seen;
        let begun = core.engine().now();
        let id = core.begin_move(ME, ME.uid, "data", Some(1000)).unwrap();
        while whims.borrow().seen < seen + 5 {
            core.turn(Wait::one()).unwrap();
        }
        let mut all = Vec::new();
        let mut answer = None;
        for turn in 0..1000 {
            if comes_back && turn > 6 {
                all.clear();
            } else {
                take_all_memory(&core, &mut all);
            }
            core.turn(Wait::one()).unwrap();
            answer = core.take_answer(&id);
            if answer.is_some() {
                break;
            }
        }
        let answer = answer.expect("it ends");
        all.clear();
        if comes_back {
            answer.unwrap();
        } else {
            assert_eq!(answer.unwrap_err().code(), "ENOBUFS");
            // By the simulated clock: it asks a few times only, so the pauses must grow.
            let patient = begun.after(Duration::from_secs(2));
            assert!(core.engine().now() >= patient, "it gave up at once");
            assert_eq!(start_block(&mut core, "data").1, "moving");
            core.move_segment(ME, ME.uid, "data", None).unwrap();
        }
        assert_eq!(start_block(&mut core, "data"), (1000, "live"));
        known.assert_holds(&mut core);
        assert_nothing_leaked(&mut core);
    }
}

fn take_all_memory(core: &Core, all: &mut Vec<Buffer>) {
    let mut size = 1 << 20;
    while size >= BLOCK {
        match core.buffer(size) {
            Ok(buffer) => all.push(buffer),
            Err(_) => size /= 2,
        }
    }
}

/// A move that goes on in the background waits for memory for as long as that takes; but a close and whoever wants to change
/// the segment do not wait for ever with it, as it may be they who have the memory.
#[test]
fn a_move_in_the_background_starves_nobody_who_waits_for_it() {
    for closes in [false, true] {
        for begin in 0..12 {
            let disk = simulated_disk(&FormatOptions::of_size(VOLUME));
            let mut core = open_moody(&disk, &config()).0;
            create(&mut core, "data", 300 * BLOCK as u64);
            core.close().unwrap();
            images::tamper(&disk, "data", |inode| {
                inode.state = InodeState::Moving;
                inode.move_to = Some(MoveTo {
                    start: 1000,
                    blocks: 300,
                    done: 0,
                });
            });
            images::forget_clean_close(&disk);
            let mut core = open_moody(&disk, &config()).0;
            let mut all = Vec::new();
            for turn in 0..begin + 20 {
                if turn >= begin {
                    take_all_memory(&core, &mut all);
                }
                core.turn(Wait::one()).unwrap();
            }
            if closes {
                let _ = core.close(); // Perhaps it cannot be noted, but it ends.
                continue;
            }
            // Enough for a look-up, not for a chunk.
            all.retain(|buffer| buffer.len() > BLOCK);
            let some = core.buffer(4 * BLOCK).or_else(|_| {
                all.pop();
                core.buffer(4 * BLOCK)
            });
            take_all_memory(&core, &mut all);
            drop(some);
            match core.rename(ME, ME.uid, "data", "other") {
                Ok(_) => assert_eq!(start_block(&mut core, "other").0, 1000),
                Err(error) => assert!(matches!(error.code(), "EBUSY" | "ENOBUFS"), "{error}"),
            }
        }
    }
}
