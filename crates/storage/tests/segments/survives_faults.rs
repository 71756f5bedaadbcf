//! The promise: whatever fails half-way, no operation hangs, no block and no place in a table leaks, and what was told to
//! the caller is what the next open finds ("the first failed metadata write latches"; states let operations resume).
//!
//! The device is simulated: it answers late, or says EIO although it did what was asked, or its backend breaks for a turn.

use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Engine, EngineOptions, File, Wait};
use baio_storage::segment::layout::{Parity, Place, SLOTS_PER_BUCKET};
use baio_storage::segment::name::{Key, SegmentName};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Access, Core, CreateOptions, Fault, FormatOptions, Mode, ResizeOptions, SegmentInfo, check_on};

use crate::harness::images;
use crate::harness::through_cache::{begin_write, open_cached};
use crate::harness::{
    BLOCK, ME, config, create, open_moody, open_simulated, open_write, read, run, simulated_disk, start, sync_request,
    write, write_request,
};

fn small() -> FormatOptions {
    FormatOptions {
        size_bytes: Some(8 << 20),
        ..FormatOptions::default()
    }
}

/// Free blocks and the segments' reserves are the whole volume.
fn assert_nothing_leaked(core: &mut Core) -> Vec<SegmentInfo> {
    let segments = core.list(ME).unwrap();
    let info = core.volume_info().unwrap();
    let used: u64 = segments.iter().map(|segment| segment.reserve_bytes).sum();
    assert_eq!(info.free_bytes + used, info.size_bytes, "{segments:?}");
    assert_eq!(info.segments, segments.len() as u64);
    segments
}

/// A volume whose last record is in doubt is not marked as closed cleanly, so the next open heals it.
#[test]
fn the_first_failed_record_latches_until_the_next_open() {
    // One that moves no byte and gives no reason has failed, too.
    for stall in [false, true] {
        a_failed_record_latches(stall);
    }
}

fn a_failed_record_latches(stall: bool) {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "before", 1 << 20);
    let handle = open_write(&mut core, "before");
    core.delete(ME, ME.uid, "nobody").unwrap_err();
    // Of a create: look, zero, flush, look, table; the table fails.
    let seen = whims.borrow().seen;
    whims.borrow_mut().fail_from = Some(seen + 4);
    whims.borrow_mut().fail_count = 1;
    whims.borrow_mut().stall = stall;
    let torn = core.create(ME, ME.uid, "torn", &CreateOptions::of_size(BLOCK as u64));
    assert_eq!(torn.unwrap_err().code(), "EIO");
    let refused = core
        .create(ME, ME.uid, "next", &CreateOptions::of_size(BLOCK as u64))
        .unwrap_err();
    assert!(matches!(refused.fault, Fault::Latched), "{refused}");
    assert!(refused.cure().unwrap().contains("open it again"));
    assert!(matches!(
        core.delete(ME, ME.uid, "before").unwrap_err().fault,
        Fault::Latched
    ));
    // Data goes on.
    write(&mut core, handle, 0, &[3; BLOCK]).unwrap();
    core.close().unwrap();
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    assert!(
        !Superblock::decode(&page, 0).unwrap().is_clean(),
        "the next open would not heal"
    );
    let mut core = open_simulated(&disk);
    assert_nothing_leaked(&mut core);
    create(&mut core, "next", BLOCK as u64);
    let handle = open_write(&mut core, "before");
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), vec![3; BLOCK]);
}

/// A flush that fails takes every later sync with it, and the close: nobody is told "safe" by repeating it.
#[test]
fn a_failed_sync_poisons_the_later_ones_and_the_clean_close() {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "a", 1 << 20);
    let handle = open_write(&mut core, "a");
    let seen = whims.borrow().seen;
    whims.borrow_mut().fail_from = Some(seen);
    whims.borrow_mut().fail_count = 1;
    assert_eq!(run(&mut core, sync_request(handle)).result.unwrap_err().code(), "EIO");
    let again = run(&mut core, sync_request(handle)).result.unwrap_err();
    assert_eq!(again.code(), "EPOISONED");
    let made = core.create(ME, ME.uid, "b", &CreateOptions::of_size(BLOCK as u64));
    assert_eq!(made.unwrap_err().code(), "EPOISONED");
    assert_nothing_leaked(&mut core);
    assert_eq!(core.close().unwrap_err().code(), "EPOISONED");
    let core = open_simulated(&disk);
    assert!(!core.volume_info().unwrap().clean);
}

/// The blocks of a deleted segment may become somebody else's, so a write that was under way when its handle was closed
/// must have landed before.
#[test]
fn a_delete_waits_for_requests_of_closed_handles_too() {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "a", 1 << 20);
    for close_first in [false, true] {
        create(&mut core, "doomed", 1 << 20);
        let handle = open_write(&mut core, "doomed");
        whims.borrow_mut().hold = true;
        whims.borrow_mut().hold_turns = 40;
        let request = write_request(&core, handle, 0, &[9; BLOCK]);
        let ticket = start(&mut core, request);
        core.turn(Wait::No).unwrap();
        whims.borrow_mut().hold = false;
        assert!(core.poll(ticket, None).is_pending());
        if close_first {
            core.close_handle(handle);
        }
        core.delete(ME, ME.uid, "doomed").unwrap();
        let ended = core.poll(ticket, None);
        let std::task::Poll::Ready(Some(outcome)) = ended else {
            panic!("close_first {close_first}: the blocks are free, and a write to them is under way");
        };
        assert_eq!(outcome.result.unwrap(), BLOCK as u32);
    }
    assert_nothing_leaked(&mut core);
}

/// While a delete waits, new requests on the segment are refused, and a request given up by its caller still counts.
#[test]
fn a_delete_waits_for_abandoned_requests() {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "doomed", 1 << 20);
    let handle = open_write(&mut core, "doomed");
    whims.borrow_mut().hold = true;
    whims.borrow_mut().hold_turns = 60;
    let request = write_request(&core, handle, 0, &[9; BLOCK]);
    let ticket = start(&mut core, request);
    core.turn(Wait::No).unwrap();
    whims.borrow_mut().hold = false;
    core.abandon(ticket);
    assert_eq!(core.in_flight(), 1);
    core.delete(ME, ME.uid, "doomed").unwrap();
    assert_eq!(core.in_flight(), 0, "the write has landed before the blocks went back");
}

/// A request answered at its deadline keeps its place, its handle busy and its memory until the device lets go.
#[test]
fn a_deadline_answers_at_once_and_the_delete_still_waits() {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "doomed", 1 << 20);
    let arena = core.engine().arena().free_bytes();
    for (taken, abandoned) in [(true, false), (false, true), (false, false)] {
        let handle = open_write(&mut core, "doomed");
        whims.borrow_mut().hold = true;
        whims.borrow_mut().hold_turns = 100;
        let mut request = write_request(&core, handle, 0, &[9; BLOCK]);
        // A simulated turn takes a microsecond.
        let patience = std::time::Duration::from_micros(if abandoned { 2 } else { 20 });
        request.deadline = Some(core.engine().now().after(patience));
        let ticket = start(&mut core, request);
        core.turn(Wait::No).unwrap();
        whims.borrow_mut().hold = false;
        if abandoned {
            // The deadline passes while the core lists: its notice waits to be read when the caller gives up.
            core.list(ME).unwrap();
            core.abandon(ticket);
        } else {
            let outcome = loop {
                core.turn(Wait::one()).unwrap();
                match core.poll(ticket, None) {
                    std::task::Poll::Ready(outcome) if taken => break outcome,
                    std::task::Poll::Ready(outcome) => {
                        drop(outcome);
                        break None;
                    }
                    std::task::Poll::Pending => {}
                }
            };
            if let Some(outcome) = outcome {
                assert_eq!(outcome.result.unwrap_err().code(), "EINDETERMINATE");
                assert!(outcome.memory.is_empty());
                assert_eq!(core.in_flight(), 1, "the device still has it");
            }
        }
        core.delete(ME, ME.uid, "doomed").unwrap();
        assert_eq!(core.in_flight(), 0);
        create(&mut core, "doomed", 1 << 20);
        assert_eq!(core.engine().arena().free_bytes(), arena);
    }
    // Every place in the table is free again.
    let handle = open_write(&mut core, "doomed");
    for _ in 0..1000 {
        write(&mut core, handle, 0, &[1; BLOCK]).unwrap();
    }
}

/// A deadline that passes between two iterations, when the device has nothing of the request: the place, the handle's count
/// and the memory come back as they do when it runs.
#[test]
fn a_deadline_between_two_iterations_frees_the_place() {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "doomed", 1 << 20);
    let handle = open_write(&mut core, "doomed");
    let arena = core.engine().arena().free_bytes();
    for _ in 0..200 {
        whims.borrow_mut().short = Some(512);
        let mut request = write_request(&core, handle, 0, &[9; BLOCK]);
        request.deadline = Some(core.engine().now().after(std::time::Duration::from_micros(1)));
        let outcome = run(&mut core, request);
        whims.borrow_mut().short = None;
        assert_eq!(outcome.result.unwrap_err().code(), "EINDETERMINATE");
        assert_eq!(outcome.bytes_done, 512);
    }
    core.delete(ME, ME.uid, "doomed").unwrap();
    assert_eq!(core.in_flight(), 0);
    assert_eq!(core.engine().arena().free_bytes(), arena);
}

/// A turn of the backend that fails ends the operation's call, not the core: the operation itself ends later, and gives
/// back its place and the token.
#[test]
fn a_broken_turn_does_not_wedge_later_operations() {
    for at in 0..12 {
        let disk = simulated_disk(&small());
        let (mut core, whims) = open_moody(&disk, &config());
        whims.borrow_mut().hold = true;
        whims.borrow_mut().hold_turns = 1;
        let mut broke = false;
        for turn in 0..=at {
            if turn == at {
                whims.borrow_mut().broken_turns = 1;
            }
            broke |= core
                .create(ME, ME.uid, &format!("s{turn}"), &CreateOptions::of_size(BLOCK as u64))
                .is_err();
        }
        whims.borrow_mut().hold = false;
        assert!(broke);
        for _ in 0..100 {
            core.turn(Wait::one()).unwrap();
        }
        let listed = core.list(ME).unwrap().len();
        assert!(listed >= at);
        create(&mut core, "after", BLOCK as u64);
        assert_nothing_leaked(&mut core);
        core.close().unwrap();
    }
}

/// With little memory things get slower, not impossible; with none left the error says so and nothing is lost.
#[test]
fn a_small_arena_serves_a_large_volume() {
    let format = FormatOptions {
        size_bytes: Some(64 << 20),
        segments: Some(2000),
        ..FormatOptions::default()
    };
    let disk = simulated_disk(&format);
    let config = EngineOptions {
        slots: 16,
        arena_bytes: 256 << 10,
        ..EngineOptions::default()
    };
    let (mut core, _) = open_moody(&disk, &config);
    create(&mut core, "large", (10 << 20) + BLOCK as u64);
    let handle = open_write(&mut core, "large");
    write(&mut core, handle, 10 << 20, &[7; BLOCK]).unwrap();
    assert_eq!(core.list(ME).unwrap().len(), 1);
    // A caller holds all but a few pages.
    let mut held: Vec<_> = std::iter::from_fn(|| core.buffer(BLOCK).ok()).collect();
    let refused = core.create(ME, ME.uid, "x", &CreateOptions::of_size(BLOCK as u64));
    assert_eq!(refused.unwrap_err().code(), "ENOBUFS");
    assert_eq!(
        core.open_segment(ME, ME.uid, "large", Access::Read).unwrap_err().code(),
        "ENOBUFS"
    );
    assert_eq!(core.list(ME).unwrap_err().code(), "ENOBUFS");
    held.truncate(held.len() - 3);
    create(&mut core, "x", 5 * BLOCK as u64);
    core.delete(ME, ME.uid, "x").unwrap();
    drop(held);
    assert_nothing_leaked(&mut core);
    assert_eq!(core.engine().arena().free_bytes(), 256 << 10);
    core.close().unwrap();
}

/// The fewest slots that an engine can have carry every operation, one request after the other.
#[test]
fn a_core_with_one_slot_works() {
    for slots in [1, 2, 3, 7] {
        let disk = simulated_disk(&small());
        let config = EngineOptions { slots, ..config() };
        let (mut core, _) = open_moody(&disk, &config);
        create(&mut core, "a", (3 << 20) + BLOCK as u64);
        let handle = open_write(&mut core, "a");
        write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
        core.delete(ME, ME.uid, "a").unwrap();
        assert_nothing_leaked(&mut core);
        core.close().unwrap();
    }
}

/// Look-ups that pass over many buckets need memory for one of them.
#[test]
fn a_table_full_of_tombstones_can_be_searched_with_little_memory() {
    let format = FormatOptions {
        size_bytes: Some(8 << 20),
        segments: Some(160),
        ..FormatOptions::default()
    };
    let disk = simulated_disk(&format);
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    let superblock = Superblock::decode(&page, 0).unwrap();
    let buckets = superblock.layout().buckets();
    let config = EngineOptions {
        slots: 16,
        arena_bytes: 256 << 10,
        ..EngineOptions::default()
    };
    let (mut core, _) = open_moody(&disk, &config);
    // Names that fill bucket after bucket, and go again.
    let mut names: Vec<Vec<String>> = vec![Vec::new(); buckets as usize];
    for number in 0..100_000 {
        let name = format!("n{number}");
        let key = Key::segment(ME.uid, SegmentName::new(&name).unwrap());
        names[(key.hash(&superblock.hash_seed) % buckets) as usize].push(name);
    }
    for names in &names {
        let names = &names[..SLOTS_PER_BUCKET];
        for name in names {
            create(&mut core, name, BLOCK as u64);
        }
        for name in names {
            core.delete(ME, ME.uid, name).unwrap();
        }
    }
    let absent = core.open_segment(ME, ME.uid, "absent", Access::Read).unwrap_err();
    assert_eq!(absent.code(), "ENOENT", "{absent}");
    create(&mut core, "present", BLOCK as u64);
    assert_nothing_leaked(&mut core);
}

/// The record of a delete or a shrink fails: what it was to take away may be gone at the next open, so nobody reaches it,
/// through an old handle or a new one.
#[test]
fn what_a_failed_record_was_to_take_away_is_reached_by_nobody() {
    for shrinks in [false, true] {
        let disk = simulated_disk(&small());
        let mut core = open_simulated(&disk);
        for name in ["data", "other"] {
            create(&mut core, name, 10 * BLOCK as u64);
        }
        let handle = open_write(&mut core, "data");
        let mut page = [0; BLOCK];
        disk.read(0, &mut page);
        let layout = *Superblock::decode(&page, 0).unwrap().layout();
        let table = layout.table_at()..layout.table_at() + layout.table_bytes();
        disk.set_faults(Faults::none().when(Trigger::always(Sick::WriteError).within(table)));
        let failed = match shrinks {
            true => core.resize(ME, ME.uid, "data", &ResizeOptions::to_size(BLOCK as u64)),
            false => core.delete(ME, ME.uid, "data"),
        };
        assert_eq!(failed.unwrap_err().code(), "EIO");
        disk.set_faults(Faults::none());
        write(&mut core, handle, 9 * BLOCK as u64, &[7; BLOCK]).unwrap_err();
        let opened = core.open_segment(ME, ME.uid, "data", Access::Read);
        assert!(matches!(opened.unwrap_err().fault, Fault::Latched));
        open_write(&mut core, "other");
        core.close().unwrap();
        open_write(&mut open_simulated(&disk), "data");
    }
}

/// The mirror's record of a rename fails: the table has the segment under its new name, and which it has the next open decides. Nobody opens
/// it by that before: such a handle would share neither the cached pages nor the line of fences with those that there are.
#[test]
fn a_segment_whose_rename_failed_is_not_opened_by_its_new_name() {
    for in_one_bucket in [false, true] {
        let disk = simulated_disk(&small());
        let mut page = [0; BLOCK];
        disk.read(0, &mut page);
        let superblock = Superblock::decode(&page, 0).unwrap();
        let layout = superblock.layout();
        let home = |name: &str| {
            let key = Key::segment(ME.uid, SegmentName::new(name).unwrap());
            key.hash(&superblock.hash_seed) % layout.buckets()
        };
        let mut names = (0..).map(|number| format!("n{number}"));
        let new = names
            .find(|name| (home(name) == home("data")) == in_one_bucket)
            .unwrap();
        let mut core = open_cached(&disk, 64);
        create(&mut core, "data", BLOCK as u64);
        let handle = open_write(&mut core, "data");
        let mirror = layout.mirror_at()..layout.mirror_at() + layout.table_bytes();
        disk.set_faults(Faults::none().when(Trigger::always(Sick::WriteError).within(mirror)));
        let failed = core.rename(ME, ME.uid, "data", &new);
        assert_eq!(failed.unwrap_err().code(), "EIO");
        disk.set_faults(Faults::none());
        let written = begin_write(&mut core, handle, 0, &[7; BLOCK], Mode::Cached);
        core.wait(written).unwrap().unwrap().result.unwrap();
        let opened = core.open_segment(ME, ME.uid, &new, Access::Read);
        let refused = opened.expect_err("it would read the device, and not what was just written");
        assert!(matches!(refused.fault, Fault::Latched), "{refused}");
        core.close().unwrap();
        let mut core = open_simulated(&disk);
        let handle = open_write(&mut core, &new);
        assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [7; BLOCK]);
    }
}

/// The names that a volume serves.
fn names(disk: &Disk) -> Vec<String> {
    let mut core = open_simulated(disk);
    let listed = core.list(ME).unwrap().into_iter().map(|info| info.name).collect();
    core.close().unwrap();
    listed
}

/// The device acknowledges the table's write of a record and loses it, once or each time; the mirror's lands. Whichever state the next
/// opening serves then, no repair takes it back.
#[test]
fn a_record_that_the_table_lost_does_not_come_back_from_the_mirror() {
    for lost in [Trigger::nth(Sick::LostWrite, 1), Trigger::always(Sick::LostWrite)] {
        let disk = simulated_disk(&FormatOptions::of_size(2 << 20));
        let mut core = open_simulated(&disk);
        create(&mut core, "a", BLOCK as u64);
        core.delete(ME, ME.uid, "a").unwrap();
        create(&mut core, "a", BLOCK as u64);
        core.close().unwrap();
        let (slot, _) = images::find(&disk, "a");
        let layout = *images::superblock(&disk).layout();
        let even = layout.image_at(slot.bucket, Parity::Even, Place::Table).unwrap();
        let mut core = open_simulated(&disk);
        disk.set_faults(Faults::none().when(lost.clone().within(even..even + BLOCK as u64)));
        let deleted = core.delete(ME, ME.uid, "a").unwrap_err();
        assert!(matches!(deleted.fault, Fault::LostWrite { .. }), "{deleted}");
        core.close().unwrap();
        disk.set_faults(Faults::none());
        let served = names(&disk);
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
        let report = check_on(&mut engine, &File::simulated(&disk, "disk"), true).unwrap();
        assert_eq!(names(&disk), served, "{lost:?}, a repair: {:?}", report.problems);
    }
}
