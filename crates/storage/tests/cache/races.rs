//! Races that other systems have had between cached and direct I/O, flushes, truncation and waking, told as they would happen
//! here. Each names the rule that keeps it from happening; `planted_races.rs` takes the rules out one at a time, and then
//! the test named for it fails.
//!
//! Blocks of a segment exist and are zeroed from the beginning, so what others had with holes is here what has never been
//! written, or what was just appended.

use std::time::Duration;

use baio_engine::sim::{Disk, Fault as Injected, Faults, Trigger};
use baio_engine::{Durability, Memory, Wait};
use baio_storage::cache::CacheOp;
use baio_storage::{Core, Fault, Handle, Mode, ResizeOptions, SegmentOp, SegmentRequest};

use crate::harness::through_cache::{
    B, begin_durable, begin_read, begin_write, end, get, got, open_cached, put, quiet, request, slow_disk, sync,
};
use crate::harness::{self, BLOCK, ME, Random, create, open_write, start};
use crate::rig;
use crate::rig::hand::{P, hand, is_sync, read_at, write_at};

fn opened() -> (Disk, Core, Handle) {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 32);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    (disk, core, handle)
}

fn resize(core: &mut Core, blocks: u64) {
    core.resize(ME, ME.uid, "data", &ResizeOptions::to_size(blocks * B))
        .unwrap();
}

/// R1, a stale read (generic/208, 209, 451): a direct write while readers fill and hit the cache. The rule: a direct write has
/// its pages for itself from before its submission to after its end; what was cached of them is dropped, and newcomers wait.
#[test]
fn r1_a_cached_read_never_gives_what_was_there_before_a_direct_write_that_has_ended() {
    let (_, mut core, handle) = opened();
    for round in 1..60_u8 {
        let before = begin_read(&mut core, handle, 0, 8, Mode::Cached);
        if round % 3 == 0 {
            end(&mut core, before).result.unwrap();
        }
        // A durable one is the slower of the two, and lands at its end.
        let direct = SegmentRequest {
            durability: Durability::Data,
            ..request(
                &core,
                handle,
                SegmentOp::Write { offset: 2 * B },
                &[round; 2 * BLOCK],
                Mode::Direct,
            )
        };
        let direct = start(&mut core, direct);
        core.turn(Wait::No).unwrap();
        // It comes while the direct write waits, or runs.
        let meanwhile = begin_read(&mut core, handle, 3, 2, Mode::Cached);
        end(&mut core, direct).result.unwrap();
        for _ in 0..2 {
            assert_eq!(
                get(&mut core, handle, 2, 2, Mode::Cached),
                [round; 2 * BLOCK],
                "round {round}"
            );
        }
        end(&mut core, meanwhile).result.unwrap();
    }
}

/// R1 again: the first cached request on a file or a segment comes while direct writes of it run, which have asked nobody. The
/// rule: their ranges are reserved when it begins to be cached.
#[test]
fn r1_a_direct_write_that_began_before_anything_was_cached_counts_too() {
    let (_, mut core, handle) = opened();
    let direct = SegmentRequest {
        durability: Durability::Data,
        ..request(
            &core,
            handle,
            SegmentOp::Write { offset: 2 * B },
            &[7; 2 * BLOCK],
            Mode::Direct,
        )
    };
    let direct = start(&mut core, direct);
    core.turn(Wait::No).unwrap();
    let meanwhile = begin_read(&mut core, handle, 0, 8, Mode::Cached);
    end(&mut core, direct).result.unwrap();
    assert_eq!(get(&mut core, handle, 2, 2, Mode::Cached), [7; 2 * BLOCK]);
    end(&mut core, meanwhile).result.unwrap();
    assert_eq!(get(&mut core, handle, 2, 2, Mode::Cached), [7; 2 * BLOCK]);
}

/// R1 again: two of them overlap, and the second ends first. The rule: a reservation that waits goes with its write.
#[test]
fn r1_direct_writes_that_overlap_when_their_file_is_first_cached_leave_nothing_behind() {
    let (_, mut core, handle) = opened();
    let long = SegmentRequest {
        durability: Durability::Data,
        ..request(
            &core,
            handle,
            SegmentOp::Write { offset: 0 },
            &[7; 32 * BLOCK],
            Mode::Direct,
        )
    };
    let long = start(&mut core, long);
    let short = begin_write(&mut core, handle, 4, &[8; BLOCK], Mode::Direct);
    core.turn(Wait::No).unwrap();
    let first = begin_read(&mut core, handle, 60, 1, Mode::Cached);
    end(&mut core, short).result.unwrap();
    end(&mut core, first).result.unwrap();
    assert!(
        core.poll(long, None).is_pending(),
        "the durable one is the slower of the two"
    );
    end(&mut core, long).result.unwrap();
    put(&mut core, handle, 4, &[9; BLOCK], Mode::Direct);
    assert_eq!(get(&mut core, handle, 4, 1, Mode::Cached), [9; BLOCK]);
    resize(&mut core, 2);
    core.close().unwrap();
}

/// R2, a flush and the access to its blocks (generic/198, 239, 240): a write that ends while a flush runs is not covered by it.
/// The rule: a page remembers how many flushes had begun when its write ended; only a later one makes it clean.
#[test]
fn r2_a_flush_covers_only_what_was_written_before_it_began() {
    let mut h = hand(64);
    let (one, two) = (h.write(0, 1), h.write(9, 1));
    h.good(one);
    h.good(two);
    // The sync of page 0 alone flushes while page 9 is being written for another.
    let first = h.ask(
        h.object,
        CacheOp::Sync {
            start: 0,
            end: P,
            durability: Durability::Data,
        },
        Memory::None,
    );
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, false));
    h.end(io, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    let out = h.ask(
        h.object,
        CacheOp::WriteOut {
            start: 9 * P,
            end: 10 * P,
        },
        Memory::None,
    );
    let io = h.io();
    assert_eq!(write_at(&io), (9, 1, false));
    h.end(io, 0);
    h.good(out);
    h.end(flush, 0);
    h.good(first);
    let stats = h.cache.stats();
    assert_eq!((stats.frames_clean, stats.frames_unflushed), (1, 1), "{stats:?}");
    let again = h.sync();
    let flush = h.io();
    assert!(is_sync(&flush), "it was written, and must still be flushed");
    h.end(flush, 0);
    h.good(again);
    assert_eq!(h.cache.stats().frames_clean, 2);
}

/// R3, a direct write that goes through the cache after all (generic/198, LTP dio_sparse): what is cached and changed around it
/// is neither lost nor written over it later. The rule: before a direct write begins, changed pages of its range are made
/// safe, and then it is the device that has all.
#[test]
fn r3_a_direct_write_beside_changed_bytes_of_its_page_loses_neither() {
    let (_, mut core, handle) = opened();
    put(&mut core, handle, 4, &[1; 2 * BLOCK], Mode::Cached);
    let writes = |core: &Core| core.cache_stats().unwrap().writes;
    let before = writes(&core);
    // The smallest direct write is a part of a page.
    let direct = begin_write(&mut core, handle, 4, &[2; 512], Mode::Direct);
    end(&mut core, direct).result.unwrap();
    assert_eq!(writes(&core), before + 1, "what was changed, once");
    for mode in [Mode::Cached, Mode::Direct] {
        let seen = get(&mut core, handle, 4, 2, mode);
        assert!(seen[..512] == [2; 512] && seen[512..] == [1; 2 * BLOCK - 512]);
    }
    sync(&mut core, handle).unwrap();
    assert_eq!(
        get(&mut core, handle, 4, 1, Mode::Direct)[..512],
        [2; 512],
        "nothing went over it"
    );
}

/// R4, a write under way when its blocks are given to somebody else (LTP dio_truncate, generic/299, 300): a delete. The rules:
/// a delete waits for every I/O of the cache on the segment, begins none, and throws changed pages away.
#[test]
fn r4_no_write_of_a_deleted_segment_lands_in_the_next_one() {
    for seed in 0..40 {
        let (disk, mut core, handle) = opened();
        let free = core.volume_info().unwrap().free_bytes;
        create(&mut core, "rest", free);
        let mut random = Random(seed);
        disk.set_faults(
            Faults::none()
                .chance(Injected::Delay, 0.5)
                .delays(Duration::ZERO..Duration::from_millis(3)),
        );
        for _ in 0..random.below(30) {
            let block = random.below(60);
            match random.below(3) {
                0 => begin_write(&mut core, handle, block, &[5; 3 * BLOCK], Mode::Cached),
                1 => begin_durable(&mut core, handle, block, &[6; 2 * BLOCK]),
                _ => start(&mut core, harness::sync_request(handle)),
            };
            if random.below(3) == 0 {
                core.turn(Wait::No).unwrap();
            }
        }
        core.delete(ME, ME.uid, "data").unwrap();
        assert_eq!(core.in_flight(), 0, "seed {seed}: the device is at nothing any more");
        disk.record();
        create(&mut core, "data", 64 * B);
        let new = open_write(&mut core, "data");
        let zeroed = disk.take_record();
        assert!(!zeroed.is_empty());
        assert_eq!(
            get(&mut core, new, 0, 64, Mode::Cached),
            vec![0; 64 * BLOCK],
            "seed {seed}"
        );
        quiet(&mut core);
        let stats = core.cache_stats().unwrap();
        assert_eq!(stats.frames_dirty + stats.frames_failed, 0, "seed {seed}: {stats:?}");
        assert_eq!(
            get(&mut core, new, 0, 64, Mode::Direct),
            vec![0; 64 * BLOCK],
            "seed {seed}"
        );
        core.close().unwrap();
    }
}

/// R4 again, a shrink: the cut blocks go to a neighbour. The rule: a shrink first has the cache let go of what it cuts off, and
/// keep out of it until the record is written.
#[test]
fn r4_no_write_behind_a_new_end_lands_in_the_neighbour() {
    for seed in 0..40 {
        let (_, mut core, handle) = opened();
        let free = core.volume_info().unwrap().free_bytes;
        create(&mut core, "rest", free);
        let mut random = Random(seed);
        for _ in 0..1 + random.below(30) {
            begin_write(&mut core, handle, 20 + random.below(40), &[5; 3 * BLOCK], Mode::Cached);
            if random.below(3) == 0 {
                core.turn(Wait::No).unwrap();
            }
        }
        resize(&mut core, 20);
        create(&mut core, "neighbour", 44 * B);
        let neighbour = open_write(&mut core, "neighbour");
        sync(&mut core, handle).unwrap();
        quiet(&mut core);
        assert_eq!(
            get(&mut core, neighbour, 0, 44, Mode::Direct),
            vec![0; 44 * BLOCK],
            "seed {seed}"
        );
        core.delete(ME, ME.uid, "neighbour").unwrap();
        resize(&mut core, 64);
        assert_eq!(
            get(&mut core, handle, 20, 44, Mode::Cached),
            vec![0; 44 * BLOCK],
            "seed {seed}"
        );
        core.close().unwrap();
    }
}

/// R5, a size that is seen before its bytes (generic/207, 427, 465, 586): a segment grows over what was another's. The rule: the
/// new blocks are zeroed and flushed, then recorded, and only then do handles and the cache learn the size.
#[test]
fn r5_a_reader_never_sees_what_was_there_before_a_segment_grew() {
    let (_, mut core, handle) = opened();
    create(&mut core, "behind", 64 * B);
    let behind = open_write(&mut core, "behind");
    for block in 0..64 {
        put(&mut core, behind, block, &[0xee; BLOCK], Mode::Direct);
    }
    core.delete(ME, ME.uid, "behind").unwrap();
    let id = core
        .begin_resize(ME, ME.uid, "data", &ResizeOptions::to_size(128 * B))
        .unwrap();
    let mut seen_before = 0;
    let mut reads = Vec::new();
    while core.take_answer(&id).map(|answer| answer.unwrap()).is_none() {
        core.turn(Wait::one()).unwrap();
        reads.push(begin_read(&mut core, handle, 60, 8, Mode::Cached));
        reads.push(begin_read(&mut core, handle, 100, 2, Mode::Direct));
        for ticket in reads.drain(..) {
            let bytes = got(end(&mut core, ticket));
            assert!(bytes.iter().all(|byte| *byte == 0), "old bytes");
            seen_before += usize::from(bytes.len() < BLOCK);
        }
    }
    assert!(seen_before > 0, "the old end was seen meanwhile");
    assert_eq!(get(&mut core, handle, 64, 64, Mode::Cached), vec![0; 64 * BLOCK]);
}

/// R6, one request over parts of two kinds (LTP aiodio_sparse, aiodio_append): cached pages and several gaps, whose reads end in
/// any order. The rule: a request ends when its last part has, and nothing touches its memory after that.
#[test]
fn r6_a_read_over_cached_and_missing_pages_ends_with_its_last_part() {
    let mut h = hand(64);
    h.cached(2, 1, 9);
    h.cached(5, 1, 9);
    let read = h.read(0, 8);
    let gaps = [h.io(), h.io(), h.io()];
    assert_eq!(gaps.each_ref().map(read_at), [(0, 2), (3, 2), (6, 2)]);
    let [first, second, third] = gaps;
    h.end(third, 3);
    h.quiet();
    h.end(first, 1);
    h.quiet();
    h.end(second, 2);
    let done = h.good(read);
    assert_eq!(done.result, Ok(8 * P as u32));
    let mut bytes = rig::bytes(&done.memory).into_iter().step_by(P as usize);
    assert!(bytes.by_ref().eq([1, 1, 9, 2, 2, 9, 3, 3]));
}

/// R6 again, an I/O of the cache's own that was made two at the mark of a stopped move. The rule: it has ended when both parts
/// have.
#[test]
fn r6_an_io_that_was_made_two_ends_with_the_second() {
    let disk = harness::simulated_disk(&baio_storage::FormatOptions::of_size(16 << 20));
    let mut core = open_cached(&disk, 200);
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
    let seen = get(&mut core, handle, from, 8, Mode::Cached);
    assert!(seen[..4 * BLOCK] == [7; 4 * BLOCK] && seen[4 * BLOCK..] == [8; 4 * BLOCK]);
    let durable = begin_durable(&mut core, handle, from, &[9; 8 * BLOCK]);
    end(&mut core, durable).result.unwrap();
    for block in [from, from + 7] {
        assert_eq!(get(&mut core, handle, block, 1, Mode::Direct), [9; BLOCK]);
    }
    core.close().unwrap();
}

/// R7, a durable writer whose page others have begun to write (seed 001 §5.3): the cleaner took one of its pages between its
/// copy and its write. The rule: it waits for every page of its own that is not safe, whoever writes it.
#[test]
fn r7_a_durable_write_waits_for_pages_that_write_back_has_taken() {
    let mut h = hand(64);
    let write = h.write(1, 1);
    h.good(write);
    let first = h.sync();
    let slow = h.io();
    assert_eq!(write_at(&slow), (1, 1, false));
    // Page 0 is copied; page 1 is being written, so it waits there; another sync takes page 0 meanwhile.
    let durable = h.write_with(0, 2 * BLOCK, 2, Durability::Data);
    let second = h.sync();
    let taken = h.io();
    assert_eq!((write_at(&taken).0, write_at(&taken).1), (0, 1));
    h.end(slow, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(first);
    // Its own write of page 1 may begin; with page 0 on its way it has not ended.
    let mut own = Vec::new();
    while let Some(io) = h.cache.next_io() {
        own.push(io);
    }
    own.into_iter().for_each(|io| h.end(io, 0));
    assert!(
        h.cache.next_done().is_none_or(|done| done.id == second),
        "page 0 is not safe"
    );
    h.end(taken, 0);
    let mut ended = Vec::new();
    loop {
        ended.extend(std::iter::from_fn(|| h.cache.next_done()));
        let Some(io) = h.cache.next_io() else { break };
        h.end(io, 0);
    }
    assert!(ended.iter().any(|done| done.id == durable && done.result.is_ok()));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

/// R8, a retry storm (seed 001 §7.2): many wait for many conditions of one page. The rule: a waiter names its condition, and is
/// woken when that holds, not when anything happens to the page.
#[test]
fn r8_whoever_is_woken_can_go_on() {
    let mut h = hand(64);
    let write = h.write(0, 1);
    h.good(write);
    let sync = h.sync();
    let io = h.io();
    // Two who want to change it, one who wants it for itself, readers, and one who wants it safe.
    let waiting = [h.write(0, 2), h.durable(0, 3), h.reserve(0, 1), h.write(0, 4)];
    for _ in 0..5 {
        let read = h.read(0, 1);
        h.good(read);
    }
    h.end(io, 0);
    let mut ended = Vec::new();
    let mut released = false;
    for _ in 0..50 {
        while let Some(done) = h.cache.next_done() {
            assert!(done.iterations <= 6, "{done:?}");
            ended.push(done.id);
        }
        if ended.contains(&waiting[2]) && !released {
            h.cache.release(h.object, waiting[2]);
            released = true;
        } else if let Some(io) = h.cache.next_io() {
            h.end(io, 0);
        }
    }
    assert!(waiting.iter().all(|id| ended.contains(id)) && ended.contains(&sync));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

/// Table 1 of seed 001: two requests process pages x and y in turn, each letting go of its page and then waiting for its
/// write-back; both pages' waiters once hung on one queue, and each retry woke the other. Here letting go wakes only those who
/// wait for that.
#[test]
fn table_1_letting_go_of_a_page_wakes_nobody_who_waits_for_its_write_back() {
    let mut h = hand(64);
    let pages = [3, 4];
    for page in pages {
        let write = h.write(page, 1);
        h.good(write);
    }
    let sync = h.sync();
    let under_way = h.io();
    assert_eq!(write_at(&under_way), (3, 2, false));
    // Each holds its page and waits for its write-back; then others come, look at it, and let go of it again.
    let writers = [h.write(3, 2), h.write(4, 2), h.durable(3, 3), h.durable(4, 3)];
    let before = h.cache.stats().iterations;
    for _ in 0..20 {
        for page in pages {
            let other = h.write(page, 9);
            h.cache.cancel(other);
            h.cache.next_done().unwrap();
            let read = h.read(page, 1);
            h.good(read);
        }
    }
    // Each of these ran once, and none of the four that wait.
    assert_eq!(h.cache.stats().iterations - before, 80);
    h.end(under_way, 0);
    let mut ended = Vec::new();
    loop {
        ended.extend(std::iter::from_fn(|| h.cache.next_done()));
        let Some(io) = h.cache.next_io() else { break };
        h.end(io, 0);
    }
    for done in &ended {
        assert!(done.result.is_ok() && done.iterations <= 5, "{done:?}");
    }
    assert!(writers.iter().all(|id| ended.iter().any(|done| done.id == *id)));
    assert!(ended.iter().any(|done| done.id == sync));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

/// A cached request is cancelled while a delete waits for the device. The rule: when the requests of a segment are ended, all of
/// them stop waiting before the first one ends; so the end of one finds no other, and their places can be used again.
#[test]
fn a_cancel_during_a_delete_ends_each_request_once() {
    for seed in 0..60 {
        let (_, mut core, handle) = opened();
        create(&mut core, "other", 64 * B);
        let other = open_write(&mut core, "other");
        let mut random = Random(seed);
        let mut tickets = Vec::new();
        for nth in 0..30 {
            let block = random.below(8);
            tickets.push(match nth % 4 {
                0 => begin_durable(&mut core, handle, block, &[6; 2 * BLOCK]),
                1 => begin_write(&mut core, handle, block, &[7; BLOCK], Mode::Direct),
                2 => begin_read(&mut core, handle, block, 30, Mode::Cached),
                _ => begin_write(&mut core, handle, block, &[8; 700], Mode::Cached),
            });
            if random.below(5) == 0 {
                core.turn(Wait::No).unwrap();
            }
        }
        let id = core.begin_delete(ME, ME.uid, "data").unwrap();
        let cancelled = tickets[random.below(30) as usize];
        for _ in 0..random.below(3) {
            core.turn(Wait::No).unwrap();
        }
        core.cancel(cancelled);
        // Their places in the cache are used by others at once.
        for block in 0..20 {
            put(&mut core, other, block, &[1; BLOCK], Mode::Cached);
        }
        for ticket in tickets {
            match end(&mut core, ticket).result {
                Ok(_) => {}
                Err(error) if ticket == cancelled => assert!(matches!(error.code(), "ECANCELED" | "ESTALE"), "{error}"),
                Err(error) => assert_eq!(error.code(), "ESTALE", "seed {seed}"),
            }
        }
        for _ in 0..10_000 {
            if core.take_answer(&id).map(|answer| answer.unwrap()).is_some() {
                break;
            }
            core.turn(Wait::one()).unwrap();
        }
        assert!(core.list(ME).unwrap().iter().all(|segment| segment.name != "data"));
        sync(&mut core, other).unwrap();
        let stats = core.cache_stats().unwrap();
        assert_eq!((stats.spurious_wakeups, stats.frames_dirty), (0, 0), "seed {seed}");
        core.close().unwrap();
    }
}

/// A direct write that waits for the cache is cancelled while a shrink waits behind it. The rule: a reservation that is given up
/// before it was granted lets in who waits behind it, and wakes them.
#[test]
fn a_cancel_during_a_resize_lets_the_resize_and_the_others_go_on() {
    for seed in 0..20 {
        let (disk, mut core, handle) = opened();
        let info = core.volume_info().unwrap();
        let at = info.data_at_bytes + core.list(ME).unwrap()[0].start_block * B;
        // What the segment's blocks are asked takes long, the records do not.
        let slow = Trigger::always(Injected::Delay).within(at..at + 64 * B);
        disk.set_faults(
            Faults::none()
                .when(slow)
                .delays(Duration::from_millis(20)..Duration::from_millis(21)),
        );
        let mut random = Random(seed);
        let first = begin_durable(&mut core, handle, 10, &[1; 4 * BLOCK]);
        core.turn(Wait::No).unwrap();
        let direct = begin_write(&mut core, handle, 11, &[2; 2 * BLOCK], Mode::Direct);
        let id = core
            .begin_resize(ME, ME.uid, "data", &ResizeOptions::to_size(12 * B))
            .unwrap();
        // It looks its record up, and waits.
        core.turn(Wait::one()).unwrap();
        for _ in 0..random.below(3) {
            core.turn(Wait::No).unwrap();
        }
        let behind = begin_write(&mut core, handle, 11, &[3; BLOCK], Mode::Cached);
        let beyond = begin_write(&mut core, handle, 11, &[4; 2 * BLOCK], Mode::Cached);
        core.cancel(direct);
        let outcome = end(&mut core, direct);
        assert_eq!(outcome.result.unwrap_err().code(), "ECANCELED");
        assert_eq!(outcome.memory.len(), 2 * BLOCK);
        end(&mut core, first).result.unwrap();
        end(&mut core, behind).result.unwrap();
        let ended = (0..20_000).any(|_| {
            core.turn(Wait::one()).unwrap();
            core.take_answer(&id).map(|answer| answer.unwrap()).is_some()
        });
        assert!(ended, "seed {seed}: nobody wakes the resize");
        drop(end(&mut core, beyond));
        assert_eq!(core.size(handle).unwrap(), 12 * B);
        disk.set_faults(Faults::none());
        sync(&mut core, handle).unwrap();
        assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
        core.close().unwrap();
    }
}
