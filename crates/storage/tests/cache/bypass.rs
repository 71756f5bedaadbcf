//! Cold random reads go past the frames of a full cache, straight into the caller's memory; who comes a second time brings the pages in.
//! One small story each. The rules that keep such a read coherent are taken out one at a time by `planted_races.rs`.

use std::time::Duration;

use baio_engine::sim::{Fault as Injected, Faults, Trigger};
use baio_engine::{Arena, Errno, Foreign, Memory, Region, Vectored, Wait};
use baio_storage::cache::eviction::Policy;
use baio_storage::cache::{Cache, CacheError, CacheOp, CacheOptions, Io};
use baio_storage::{Core, Fault, Handle, Mode, SegmentOp};

use crate::harness::through_cache::{
    self, B, begin_durable, begin_read, cache_of, end, get, got, open_cached, put, quiet, request, slow_disk,
};
use crate::harness::{self, BLOCK, ME, create, open_write, start};
use crate::rig::hand::{Hand, P, config, hand, read_at, write_at};
use crate::rig::{PAGE, buffer, bytes, end_well};

const FRAMES: usize = 16;
/// A window is a quarter of the frames.
const MOST: u64 = FRAMES as u64 / 4;

/// A cache by S3-FIFO with so many pages in it that no frame is free: pages 0 to 15, each with a 1.
fn full() -> Hand {
    let config = CacheOptions {
        eviction: Policy::S3Fifo,
        ..config(FRAMES)
    };
    let mut cache = Cache::new(&Arena::new(FRAMES * PAGE).unwrap(), config).unwrap();
    let object = cache.add(1000 * P, 0);
    let mut h = Hand {
        cache,
        object,
        memory: Arena::new(4 << 20).unwrap(),
    };
    for page in 0..FRAMES as u64 {
        h.cached(page, 1, 1);
    }
    let stats = h.cache.stats();
    assert_eq!((stats.frames_free, stats.bypasses), (0, 0));
    h
}

/// Is it a read into the caller's own memory? Of those pages.
fn past(io: &Io, first: u64, pages: u64) -> bool {
    assert_eq!(read_at(io), (first, pages));
    assert_eq!(io.memory.len() as u64, pages * P);
    io.bypasses
}

#[test]
fn the_first_read_of_a_page_passes_and_the_second_brings_it_in() {
    let mut h = full();
    let first = h.read(100, MOST);
    let io = h.io();
    assert!(past(&io, 100, MOST));
    assert!(matches!(io.memory, Memory::Own(_)));
    h.end(io, 7);
    let done = h.good(first);
    assert_eq!((done.iterations, done.bytes_done), (1, 4 * PAGE as u32));
    assert_eq!(bytes(&done.memory), vec![7; 4 * PAGE]);
    let stats = h.cache.stats();
    assert_eq!((stats.bypasses, stats.pages_missed, stats.evictions), (1, 20, 0));
    // Who comes again finds nothing, and brings it in.
    let second = h.read(102, 1);
    let io = h.io();
    assert!(!past(&io, 102, 1));
    h.end(io, 8);
    assert_eq!(bytes(&h.good(second).memory), vec![8; PAGE]);
    assert!(h.is_cached(102) && !h.is_cached(200));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[repr(align(4096))]
struct Aligned([u8; 2 * PAGE]);

/// A page in a box of its own, so many bytes behind a page boundary.
#[allow(unsafe_code)]
fn boxed_page(skip: usize) -> Foreign {
    let mut owner = Box::new(Box::new(Aligned([0; 2 * PAGE])));
    let pointer = owner.0[skip..].as_mut_ptr();
    // SAFETY: a page behind `skip` lies in the inner box, which is handed over here and moves with nobody.
    unsafe { Foreign::new(owner, pointer, PAGE, true) }
}

#[test]
fn memory_of_another_owner_is_read_into_where_the_device_can() {
    let mut h = full();
    for (page, skip, passes) in [(100, 0, true), (200, 512, false)] {
        let memory = Memory::from(boxed_page(skip));
        let read = h.ask(h.object, CacheOp::Read { offset: page * P }, memory);
        let io = h.io();
        assert_eq!(past(&io, page, 1), passes);
        assert_eq!(matches!(io.memory, Memory::Foreign(_)), passes);
        h.end(io, 9);
        let memory = h.good(read).memory;
        let mut seen = [0; PAGE];
        memory.copy_out_at(0, &mut seen);
        assert!(matches!(memory, Memory::Foreign(_)) && seen == [9; PAGE]);
    }
}

#[test]
fn what_can_be_had_without_driving_anything_out_is_brought_in() {
    let mut h = full();
    h.cache.drop_pages(h.object, 3..4).unwrap();
    let read = h.read(100, 1);
    let io = h.io();
    assert!(!past(&io, 100, 1), "a frame is free");
    h.end(io, 1);
    h.good(read);
    // A part of it is here, or is remembered.
    for (first, pages, missing) in [(14, 3, 16), (99, 3, 99)] {
        let read = h.read(first, pages);
        let io = h.io();
        assert!(!io.bypasses && read_at(&io).0 == missing, "{io:?}");
        h.end(io, 1);
        h.end_all(1);
        h.good(read);
    }
    let passed = h.read(300, 1);
    let io = h.io();
    assert!(past(&io, 300, 1));
    h.end(io, 1);
    h.good(passed);
    let beside = h.read(299, 2);
    let io = h.io();
    assert!(!past(&io, 299, 2));
    h.end(io, 1);
    h.good(beside);
}

#[test]
fn parts_of_pages_lists_spans_and_long_reads_go_through_frames() {
    let mut h = full();
    let region = Region::create(4096).unwrap();
    let small = h.cache.add(500 * P + 512, 0);
    let mut list = Vectored::with_capacity(2);
    list.push(buffer(&h.memory, PAGE).into()).unwrap();
    list.push(buffer(&h.memory, PAGE).into()).unwrap();
    let asked: [(_, u64, Memory); 6] = [
        (h.object, 100 * P + 512, buffer(&h.memory, PAGE).into()),
        (h.object, 110 * P, buffer(&h.memory, PAGE - 512).into()),
        (h.object, 120 * P, Memory::Many(list)),
        (h.object, 130 * P, Memory::Span(region.span(0, 4096).unwrap())),
        (h.object, 140 * P, buffer(&h.memory, (MOST as usize + 1) * PAGE).into()),
        (small, 500 * P, buffer(&h.memory, PAGE).into()),
    ];
    for (object, offset, memory) in asked {
        let read = h.ask(object, CacheOp::Read { offset }, memory);
        while let Some(io) = h.cache.next_io() {
            assert!(!io.bypasses, "at {offset}");
            end_well(&mut h.cache, io);
        }
        h.good(read);
    }
    assert_eq!(h.cache.stats().bypasses, 0);
}

#[test]
fn a_reader_in_order_is_read_ahead_of_and_not_past_the_frames() {
    let mut h = full();
    h.object = h.cache.add(1000 * P, 4 * PAGE);
    for page in 0..40 {
        let read = h.read(page, 1);
        h.end_all(1);
        h.good(read);
    }
    let stats = h.cache.stats();
    assert!(stats.ahead_hit > 10, "{stats:?}");
    assert_eq!(stats.bypasses, 1, "the first, which is no step of anything");
    for nth in 1..10 {
        let read = h.read(nth * 97, 1);
        let io = h.io();
        assert!(past(&io, nth * 97, 1));
        h.end(io, 1);
        h.good(read);
    }
}

#[test]
fn a_policy_that_remembers_nothing_gets_every_page() {
    let mut h = hand(FRAMES);
    for page in 0..3 * FRAMES as u64 {
        h.cached(page, 1, 1);
    }
    assert_eq!(h.cache.stats().bypasses, 0);
}

/// The rule: it waits for direct writes that have its range, as a fill does.
#[test]
fn a_cold_read_gives_what_a_direct_write_has_left_that_ended_before_it() {
    let mut h = full();
    let direct = h.reserve(101, 1);
    h.good(direct);
    let read = h.read(100, 3);
    h.quiet();
    // Nobody is kept out of the pages beside.
    let beside = h.read(200, 1);
    let io = h.io();
    assert!(past(&io, 200, 1));
    h.end(io, 1);
    h.good(beside);
    h.cache.release(h.object, direct);
    let io = h.io();
    assert!(past(&io, 100, 3));
    h.end(io, 5);
    let done = h.good(read);
    assert_eq!((done.parked, bytes(&done.memory)[0]), (1, 5));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

/// The rule: nobody else sees what it brings, so whoever comes later need not wait for it.
#[test]
fn a_direct_write_and_a_fill_need_not_wait_for_a_cold_read() {
    let mut h = full();
    let cold = h.read(100, 2);
    let slow = h.io();
    assert!(slow.bypasses);
    let direct = h.reserve(100, 2);
    h.good(direct);
    let later = h.read(100, 2);
    h.quiet();
    h.cache.release(h.object, direct);
    let fill = h.io();
    assert!(!past(&fill, 100, 2), "it is remembered");
    h.end(fill, 9);
    assert_eq!(bytes(&h.good(later).memory)[0], 9);
    h.end(slow, 1);
    assert_eq!(bytes(&h.good(cold).memory)[0], 1, "both were under way together");
    let again = h.read(100, 2);
    assert_eq!(bytes(&h.good(again).memory)[0], 9, "its bytes are nobody else's");
}

/// The rule: what is here is not passed.
#[test]
fn a_cold_read_gives_what_a_cached_write_has_left_that_was_done_before_it() {
    let mut h = full();
    let write = h.write(101, 7);
    h.good(write);
    let read = h.read(100, 3);
    while let Some(io) = h.cache.next_io() {
        if let baio_storage::cache::IoKind::Read { .. } = io.kind {
            h.end(io, 1);
        }
    }
    let seen = bytes(&h.good(read).memory);
    assert_eq!((seen[0], seen[PAGE], seen[2 * PAGE]), (1, 7, 1));
}

/// One that is done meanwhile is seen by whoever begins then, and not undone by what the cold read brings.
#[test]
fn a_cached_write_that_is_done_during_a_cold_read_stays() {
    let mut h = full();
    let cold = h.read(100, 3);
    let slow = h.io();
    assert!(slow.bypasses);
    let write = h.write(101, 7);
    h.good(write);
    let after = h.read(101, 1);
    assert_eq!(bytes(&h.good(after).memory)[0], 7);
    let durable = h.durable(102, 8);
    let io = h.io();
    assert_eq!(write_at(&io), (102, 1, true));
    h.end(io, 0);
    h.good(durable);
    h.end(slow, 1);
    assert_eq!(bytes(&h.good(cold).memory)[PAGE], 1);
    let after = h.read(101, 2);
    let seen = bytes(&h.good(after).memory);
    assert_eq!((seen[0], seen[PAGE]), (7, 8));
}

#[test]
fn a_cold_read_that_fails_begins_anew_page_by_page() {
    for short in [None, Some(PAGE as u32)] {
        let mut h = full();
        let read = h.read(100, 2);
        let io = h.io();
        assert!(io.bypasses);
        h.cache.io_ended(io.id, short.ok_or(Errno::EIO), io.memory);
        let together = h.io();
        assert!(!past(&together, 100, 2));
        h.fail(together);
        let mut alone = Vec::new();
        while let Some(io) = h.cache.next_io() {
            alone.push(read_at(&io).0);
            if read_at(&io).0 == 101 {
                h.fail(io);
            } else {
                h.end(io, 6);
            }
        }
        alone.sort_unstable();
        assert_eq!(alone, [100, 101]);
        let done = h.done(read);
        assert_eq!(
            (done.result, done.bytes_done),
            (Err(CacheError::System(Errno::EIO)), P as u32)
        );
        assert_eq!(bytes(&done.memory)[..PAGE], [6; PAGE]);
        assert!(h.is_cached(100) && !h.is_cached(101));
    }
}

#[test]
fn a_cancel_ends_it_at_once_and_its_memory_comes_back_with_the_io() {
    let mut h = full();
    let free = h.memory.free_bytes();
    let read = h.read(100, 2);
    let io = h.io();
    h.cache.cancel(read);
    let done = h.done(read);
    assert_eq!(
        (done.result, done.memory.len(), done.bytes_done),
        (Err(CacheError::Cancelled), 0, 0)
    );
    assert_eq!(h.memory.free_bytes(), free - 2 * PAGE);
    h.end(io, 1);
    h.quiet();
    assert_eq!(h.memory.free_bytes(), free);
    // Before its I/O was taken as well.
    let read = h.read(110, 2);
    h.cache.cancel(read);
    h.done(read);
    let io = h.io();
    h.end(io, 1);
    h.quiet();
    assert_eq!(h.memory.free_bytes(), free);
}

#[test]
fn what_the_device_keeps_is_told_and_comes_back_late() {
    let mut h = full();
    let free = h.memory.free_bytes();
    let read = h.read(100, 2);
    let io = h.io();
    h.cache.io_ended(io.id, Err(Errno::ETIMEDOUT), Memory::None);
    let done = h.done(read);
    assert_eq!(
        (done.result, done.memory.len()),
        (Err(CacheError::System(Errno::ETIMEDOUT)), 0)
    );
    assert_eq!(h.cache.forget(h.object), Err(CacheError::Busy));
    h.cache.io_released(io.id, io.memory);
    assert_eq!(h.memory.free_bytes(), free);
    assert_eq!(h.cache.stats().frames_lost, 0);
    h.cache.forget(h.object).unwrap();
}

/// The rule: an object that has gone gives its place away when the last I/O is back.
#[test]
fn an_object_waits_for_its_cold_reads_before_its_place_is_used_again() {
    let mut h = full();
    let read = h.read(100, 2);
    let io = h.io();
    assert_eq!(h.cache.forget(h.object), Err(CacheError::Busy));
    h.cache.discard(h.object);
    assert_eq!(h.done(read).result, Err(CacheError::NoObject));
    let before = h.cache.add(P, 0);
    h.end(io, 1);
    h.quiet();
    let after = h.cache.add(P, 0);
    let place = |id: baio_storage::cache::ObjectId| format!("{id:?}").split(',').next().unwrap().to_owned();
    assert_ne!(place(before), place(h.object));
    assert_eq!(place(after), place(h.object));
}

/// A core whose cache of 32 pages is full, and a segment of 256 blocks, each with its number.
fn full_core() -> (baio_engine::sim::Disk, Core, Handle) {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 32);
    create(&mut core, "data", 256 * B);
    let handle = open_write(&mut core, "data");
    for block in 0..256 {
        put(&mut core, handle, block, &[block as u8; BLOCK], Mode::Direct);
    }
    for block in 0..32 {
        get(&mut core, handle, block, 1, Mode::Cached);
    }
    assert_eq!(core.cache_stats().unwrap().frames_free, 0);
    (disk, core, handle)
}

#[test]
fn through_a_core_it_is_one_request_of_the_device_and_copies_nothing() {
    let (_, mut core, handle) = full_core();
    let before = core.cache_stats().unwrap().bypasses;
    for round in 0..2 {
        for nth in 0..14 {
            let block = 80 + nth * 83 % 17 * 10;
            let seen = get(&mut core, handle, block, 2, Mode::Cached);
            assert_eq!((seen[0], seen[BLOCK]), (block as u8, block as u8 + 1), "round {round}");
        }
    }
    let stats = core.cache_stats().unwrap();
    assert!(stats.bypasses - before >= 14, "{stats:?}");
    core.close().unwrap();
}

#[test]
fn a_deadline_gives_the_memory_back_when_the_device_does() {
    let (disk, mut core, handle) = full_core();
    disk.set_faults(
        Faults::none()
            .chance(Injected::Delay, 1.0)
            .delays(Duration::from_millis(200)..Duration::from_millis(201)),
    );
    let free = core.engine().arena().free_bytes();
    let until = core.engine().now().after(Duration::from_millis(20));
    let mut asked = request(
        &core,
        handle,
        SegmentOp::Read { offset: 90 * B },
        &[0; 2 * BLOCK],
        Mode::Cached,
    );
    asked.deadline = Some(until);
    let read = start(&mut core, asked);
    let outcome = end(&mut core, read);
    assert!(core.engine().now() < until.after(Duration::from_millis(50)));
    let error = outcome.result.unwrap_err();
    assert!(
        matches!(error.fault, Fault::Io(baio_engine::Error::Indeterminate)),
        "{error}"
    );
    assert!(outcome.memory.is_empty());
    quiet(&mut core);
    assert_eq!(core.engine().arena().free_bytes(), free);
    // A cancel does the same; so does one whose outcome nobody wants.
    for abandons in [false, true] {
        let read = begin_read(&mut core, handle, if abandons { 120 } else { 140 }, 2, Mode::Cached);
        core.turn(Wait::No).unwrap();
        if abandons {
            core.abandon(read);
        } else {
            core.cancel(read);
            assert_eq!(end(&mut core, read).result.unwrap_err().code(), "ECANCELED");
        }
        quiet(&mut core);
        assert_eq!(core.engine().arena().free_bytes(), free);
    }
    core.close().unwrap();
}

#[test]
fn a_delete_and_a_shrink_wait_for_it_and_nobody_reads_the_next_owners_bytes() {
    for deletes in [true, false] {
        let (disk, mut core, handle) = full_core();
        disk.set_faults(
            Faults::none()
                .chance(Injected::Delay, 1.0)
                .delays(Duration::from_millis(50)..Duration::from_millis(51)),
        );
        let free = core.engine().arena().free_bytes();
        let before = core.cache_stats().unwrap().bypasses;
        let read = begin_read(&mut core, handle, 200, 4, Mode::Cached);
        core.turn(Wait::No).unwrap();
        assert_eq!(core.cache_stats().unwrap().bypasses, before + 1);
        if deletes {
            core.delete(ME, ME.uid, "data").unwrap();
        } else {
            let options = baio_storage::ResizeOptions::to_size(100 * B);
            core.resize(ME, ME.uid, "data", &options).unwrap();
        }
        let outcome = end(&mut core, read);
        match outcome.result {
            Ok(len) => assert!(!deletes && got(outcome)[..len as usize].iter().all(|byte| *byte >= 200)),
            Err(error) => assert!(deletes, "{error}"),
        }
        assert_eq!(core.in_flight(), 0);
        assert_eq!(core.engine().arena().free_bytes(), free);
        core.close().unwrap();
    }
}

#[test]
fn across_the_mark_of_a_stopped_move_it_goes_through_frames() {
    let disk = harness::simulated_disk(&baio_storage::FormatOptions::of_size(16 << 20));
    let mut core = harness::open_simulated(&disk);
    core.use_cache(&cache_of(64)).unwrap();
    create(&mut core, "data", 600 * B);
    let handle = open_write(&mut core, "data");
    let info = core.volume_info().unwrap();
    let bad = info.data_at_bytes + (core.list(ME).unwrap()[0].start_block + 300) * B;
    disk.set_faults(Faults::none().when(Trigger::always(Injected::ReadError).within(bad..bad + B)));
    core.move_segment(ME, ME.uid, "data", Some(1500)).unwrap_err();
    let across = begin_read(&mut core, handle, 0, 300, Mode::Direct);
    let Fault::MoveStopped { mark } = end(&mut core, across).result.unwrap_err().fault else {
        panic!("the move has stopped")
    };
    disk.set_faults(Faults::none());
    let from = mark / B - 4;
    put(&mut core, handle, from, &[7; 4 * BLOCK], Mode::Direct);
    put(&mut core, handle, from + 4, &[8; 4 * BLOCK], Mode::Direct);
    for block in 0..64 {
        get(&mut core, handle, 400 + block, 1, Mode::Cached);
    }
    let before = core.cache_stats().unwrap().bypasses;
    let seen = get(&mut core, handle, from, 8, Mode::Cached);
    assert!(seen[..4 * BLOCK] == [7; 4 * BLOCK] && seen[4 * BLOCK..] == [8; 4 * BLOCK]);
    assert_eq!(core.cache_stats().unwrap().bypasses, before + 1);
    core.close().unwrap();
}

/// Direct, durable and cached writes and cold reads of a few blocks, many at once: a read gives, block by block, the last write that
/// was done before it began, or one that was under way since.
#[test]
fn cold_reads_among_writes_give_no_old_bytes() {
    let (_, mut core, handle) = full_core();
    let mut random = harness::Random(7);
    let mut last = [0_u8; 256];
    (0..256).for_each(|block| last[block] = block as u8);
    for round in 0..300 {
        let block = 32 + random.below(200);
        let byte = round as u8;
        let ticket = match random.below(3) {
            0 => through_cache::begin_write(&mut core, handle, block, &[byte; BLOCK], Mode::Direct),
            1 => through_cache::begin_write(&mut core, handle, block, &[byte; BLOCK], Mode::Cached),
            _ => begin_durable(&mut core, handle, block, &[byte; BLOCK]),
        };
        let during = begin_read(&mut core, handle, block - 1, 3, Mode::Cached);
        let was = last[block as usize];
        end(&mut core, ticket).result.unwrap();
        last[block as usize] = byte;
        let after = begin_read(&mut core, handle, block - 1, 3, Mode::Cached);
        let seen = got(end(&mut core, during));
        assert!(seen[BLOCK] == was || seen[BLOCK] == byte, "round {round}");
        let seen = got(end(&mut core, after));
        for nth in 0..3 {
            assert_eq!(
                seen[nth * BLOCK],
                last[block as usize - 1 + nth],
                "round {round}, block {block}"
            );
        }
        if round % 7 == 0 {
            // The rest of the cache is used, so that pages leave.
            for _ in 0..8 {
                let other = random.below(250);
                let seen = get(&mut core, handle, other, 1, Mode::Cached);
                assert_eq!(seen[0], last[other as usize], "round {round}");
            }
        }
    }
    assert!(core.cache_stats().unwrap().bypasses > 50, "{:?}", core.cache_stats());
    core.close().unwrap();
}
