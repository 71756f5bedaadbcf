//! Large durable writes: the device has them from the caller's memory, and they are copied while it works.
//! One small story each; what a power cut leaves of them is the model's (`model.rs`).

use std::time::Duration;

use baio_engine::sim::{Fault as Injected, Faults};
use baio_engine::{Durability, Errno, Memory, Vectored, Wait};
use baio_storage::cache::{CacheError, CacheOp, GateId, Io, RequestId};
use baio_storage::{Fault, Mode, SegmentOp, SegmentRequest};

use crate::harness::through_cache::{
    B, begin_durable, begin_write, end, get, open_cached, put, quiet, request, slow_disk,
};
use crate::harness::{BLOCK, create, open_write, start};
use crate::rig::hand::{Hand, P, hand, is_sync, read_at, write_at};
use crate::rig::{PAGE, buffer, bytes};

/// A window of sixteen pages.
const FRAMES: usize = 64;
const COUNT: usize = 4;

fn large(h: &mut Hand, page: u64, byte: u8) -> RequestId {
    h.write_with(page * P, COUNT * PAGE, byte, Durability::Data)
}

/// Is it a durable write from the caller's memory? Of those pages.
fn through(io: &Io, page: u64) -> bool {
    assert_eq!(write_at(io), (page, COUNT as u64, true));
    assert_eq!(matches!(io.memory, Memory::Shared(_)), io.bypasses);
    io.bypasses
}

fn seen(h: &mut Hand, page: u64, pages: u64) -> Vec<u8> {
    let read = h.read(page, pages);
    let done = h.good(read);
    bytes(&done.memory).chunks(PAGE).map(|page| page[0]).collect()
}

#[test]
fn the_device_has_it_before_its_pages_have() {
    let mut h = hand(FRAMES);
    let write = large(&mut h, 10, 7);
    let io = h.io();
    assert!(through(&io, 10));
    assert_eq!(bytes(&io.memory), vec![7; COUNT * PAGE]);
    h.quiet();
    assert_eq!(seen(&mut h, 10, 4), [7; 4]);
    h.end(io, 0);
    let done = h.good(write);
    assert_eq!((done.writes, done.iterations, done.bytes_done), (1, 2, 4 * PAGE as u32));
    assert!(matches!(&done.memory, Memory::Own(buffer) if buffer.len() == COUNT * PAGE));
    let stats = h.cache.stats();
    assert_eq!(
        (stats.writes_through, stats.durable_writes, stats.frames_clean),
        (1, 1, 4)
    );
    assert_eq!((stats.spurious_wakeups, stats.fills), (0, 0));
    assert_eq!(seen(&mut h, 10, 4), [7; 4]);
}

/// The rule: the copy comes before anything else that is asked.
#[test]
fn a_page_shows_no_bytes_that_it_never_had() {
    let mut h = hand(FRAMES);
    h.cached(11, 1, 3);
    for (page, byte) in [(100, 5), (200, 6)] {
        // What these frames held before was another page's.
        h.cached(page, 20, byte);
        h.cache.drop_pages(h.object, page..page + 20).unwrap();
    }
    let pin = h.hit(11);
    let write = large(&mut h, 10, 7);
    let io = h.cache.next_bypass().unwrap();
    assert_eq!(h.cache.page(&pin).unwrap()[0], 3, "nobody has copied yet");
    let read = h.read(10, 4);
    let during = bytes(&h.good(read).memory);
    assert!(during.iter().all(|byte| *byte == 7), "{}", during[0]);
    assert_eq!(h.cache.page(&pin).unwrap()[0], 7);
    assert_eq!(h.cache.change(&pin, 0), Err(CacheError::BeingWritten));
    h.end(io, 0);
    h.good(write);
    h.cache.change(&pin, 0).unwrap().fill(8);
    h.cache.unpin(pin);
    assert_eq!(seen(&mut h, 10, 4), [7, 8, 7, 7]);
}

#[test]
fn a_block_is_written_by_one_write_at_a_time() {
    let mut h = hand(FRAMES);
    let first = large(&mut h, 10, 1);
    let io = h.io();
    let second = large(&mut h, 12, 2);
    let plain = h.write(11, 3);
    h.quiet();
    assert_eq!(seen(&mut h, 10, 4), [1; 4]);
    h.end(io, 0);
    h.good(first);
    let io = h.io();
    assert_eq!((write_at(&io), io.bypasses), ((12, 4, true), false));
    h.good(plain);
    h.end(io, 0);
    h.good(second);
    assert_eq!(seen(&mut h, 10, 6), [1, 3, 2, 2, 2, 2]);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn what_it_cannot_have_at_once_is_copied_first() {
    let copied = |h: &mut Hand, write: RequestId| {
        while let Some(io) = h.cache.next_io() {
            assert!(!io.bypasses, "{io:?}");
            h.end(io, 0);
        }
        h.good(write);
        assert_eq!(h.cache.stats().writes_through, 0);
    };
    // Parts of pages, lists, few pages, a whole window and more.
    let mut h = hand(FRAMES);
    for (offset, len) in [
        (P + 64, 4 * PAGE),
        (2 * P, 4 * PAGE + 64),
        (20 * P, 3 * PAGE),
        (40 * P, 17 * PAGE),
    ] {
        let write = h.write_with(offset, len, 1, Durability::Data);
        copied(&mut h, write);
    }
    let mut list = Vectored::with_capacity(2);
    list.push(buffer(&h.memory, 2 * PAGE).into()).unwrap();
    list.push(buffer(&h.memory, 2 * PAGE).into()).unwrap();
    let (offset, durability) = (80 * P, Durability::Data);
    let write = h.ask(h.object, CacheOp::Write { offset, durability }, Memory::Many(list));
    copied(&mut h, write);
    // A direct write has a page of it.
    let direct = h.reserve(103, 1);
    h.good(direct);
    let write = large(&mut h, 100, 1);
    h.quiet();
    h.cache.release(h.object, direct);
    copied(&mut h, write);
    // One waits for the log.
    h.logged(111, 5, 1);
    let write = large(&mut h, 110, 1);
    h.quiet();
    h.cache.set_durable_lsn(GateId::default(), 5);
    copied(&mut h, write);
    // It goes on where the last ended: they may share a write.
    let together = [large(&mut h, 200, 1), large(&mut h, 204, 1)];
    let first = h.io();
    assert!(through(&first, 200));
    let second = h.io();
    assert!(!through(&second, 204));
    for io in [first, second] {
        h.end(io, 0);
    }
    for write in together {
        h.good(write);
    }
}

#[test]
fn shared_memory_goes_to_the_device_and_stays_its_owners() {
    let mut h = hand(FRAMES);
    let mut mine = buffer(&h.memory, COUNT * PAGE);
    mine.fill(7);
    let mine = mine.freeze();
    let (offset, durability) = (10 * P, Durability::Data);
    for cancels in [false, true] {
        let write = h.ask(h.object, CacheOp::Write { offset, durability }, mine.clone().into());
        let io = h.io();
        assert!(through(&io, 10));
        if cancels {
            h.cache.cancel(write);
        } else {
            h.end(io, 0);
        }
        let done = h.cache.next_done().unwrap();
        assert!(matches!(&done.memory, Memory::Shared(frozen) if frozen.len() == COUNT * PAGE));
    }
    assert_eq!((seen(&mut h, 10, 4), mine[0]), (vec![7; 4], 7));
}

#[test]
fn sixteen_pages_go_alone_wherever_they_are() {
    let mut h = hand(FRAMES);
    for nth in 0..3 {
        let write = h.write_with(nth * 16 * P, 16 * PAGE, 1, Durability::Full);
        let io = h.io();
        assert!(io.bypasses);
        h.end(io, 0);
        h.good(write);
    }
}

/// A quarter of the frames are changed, and more may not be.
#[test]
fn above_the_dirty_limit_it_waits_as_others_do() {
    let mut h = hand(16);
    for page in 0..6 {
        let write = h.write(page * 2, 1);
        h.good(write);
    }
    let large = large(&mut h, 100, 2);
    let mut ios = 0;
    while let Some(io) = h.cache.next_io() {
        assert!(!io.bypasses);
        h.end(io, 0);
        ios += 1;
    }
    assert!(ios > 1);
    h.good(large);
    assert_eq!(seen(&mut h, 100, 4), [2; 4]);
}

#[test]
fn one_that_fails_leaves_its_bytes_in_pages_that_are_tried_again() {
    let mut h = hand(FRAMES);
    h.cached(11, 1, 3);
    let write = large(&mut h, 10, 7);
    let io = h.io();
    assert!(through(&io, 10));
    h.fail(io);
    for page in 10..14 {
        let io = h.io();
        assert_eq!((write_at(&io), bytes(&io.memory)), ((page, 1, true), vec![7; PAGE]));
        if page == 12 {
            h.fail(io);
        } else {
            h.end(io, 0);
        }
    }
    let done = h.done(write);
    assert_eq!(done.result, Err(CacheError::System(Errno::EIO)));
    assert!(matches!(done.memory, Memory::Own(_)));
    assert_eq!((h.cache.stats().frames_failed, h.cache.stats().frames_clean), (1, 3));
    assert_eq!(seen(&mut h, 10, 4), [7; 4]);
    let sync = h.sync();
    let io = h.io();
    assert_eq!((write_at(&io), bytes(&io.memory)[0]), ((12, 1, false), 7));
    h.end(io, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn one_that_is_given_up_on_keeps_its_pages_from_others_until_its_memory_is_back() {
    let mut h = hand(FRAMES);
    let free = h.memory.free_bytes();
    let write = large(&mut h, 10, 7);
    let io = h.io();
    h.cache.io_ended(io.id, Err(Errno::ETIMEDOUT), Memory::None);
    let done = h.done(write);
    assert_eq!(
        (done.result, done.memory.len()),
        (Err(CacheError::System(Errno::ETIMEDOUT)), 0)
    );
    assert_eq!(seen(&mut h, 10, 4), [7; 4]);
    let over = h.write(12, 8);
    assert_eq!(h.done(over).result, Err(CacheError::Stuck));
    let again = large(&mut h, 10, 9);
    assert_eq!(h.done(again).result, Err(CacheError::Stuck));
    assert_eq!(h.memory.free_bytes(), free - COUNT * PAGE);
    h.cache.io_released(io.id, io.memory);
    assert_eq!(h.memory.free_bytes(), free);
    assert_eq!(h.cache.stats().frames_failed, 4);
    let sync = h.sync();
    h.end_all(0);
    h.good(sync);
    assert_eq!(h.cache.stats().frames_clean, 4);
}

#[test]
fn a_cancel_ends_it_at_once_and_its_memory_comes_back_with_the_io() {
    for takes in [true, false] {
        let mut h = hand(FRAMES);
        let free = h.memory.free_bytes();
        let write = large(&mut h, 10, 7);
        let taken = takes.then(|| h.io());
        h.cache.cancel(write);
        let done = h.done(write);
        assert_eq!((done.result, done.memory.len()), (Err(CacheError::Cancelled), 0));
        let io = taken.unwrap_or_else(|| h.io());
        assert_eq!(bytes(&io.memory)[0], 7);
        assert_eq!(seen(&mut h, 10, 4), [7; 4]);
        h.end(io, 0);
        h.quiet();
        assert_eq!(h.memory.free_bytes(), free);
        assert_eq!(h.cache.stats().frames_clean, 4);
    }
}

#[test]
fn an_object_that_goes_waits_for_it() {
    let mut h = hand(FRAMES);
    let write = large(&mut h, 10, 7);
    let io = h.io();
    h.cache.discard(h.object);
    assert_eq!(h.done(write).result, Err(CacheError::NoObject));
    assert_eq!(h.cache.stats().frames_write_back, 4);
    h.end(io, 0);
    h.quiet();
    assert_eq!(h.cache.stats().frames_free, FRAMES as u32);
}

#[test]
fn a_sync_and_a_direct_write_wait_for_it() {
    let mut h = hand(FRAMES);
    let write = large(&mut h, 10, 7);
    let io = h.io();
    let sync = h.sync();
    let direct = h.reserve(13, 1);
    h.quiet();
    h.end(io, 0);
    while let Some(io) = h.cache.next_io() {
        assert!(is_sync(&io));
        h.end(io, 0);
    }
    let ends: Vec<RequestId> = std::iter::from_fn(|| h.cache.next_done())
        .map(|done| {
            done.result.unwrap();
            done.id
        })
        .collect();
    assert!(ends.len() == 3 && [write, sync, direct].iter().all(|id| ends.contains(id)));
    let later = h.read(13, 1);
    h.quiet();
    h.cache.release(h.object, direct);
    let io = h.io();
    assert_eq!(read_at(&io), (13, 1));
    h.end(io, 9);
    h.good(later);
}

#[test]
fn through_a_core_it_is_on_the_disk_and_in_the_pages() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 128);
    create(&mut core, "data", 256 * B);
    let handle = open_write(&mut core, "data");
    let free = core.engine().arena().free_bytes();
    // Large and small, over pages that are there and that are not, many at once.
    for round in 1..40_u8 {
        let tickets: Vec<_> = (0..6)
            .map(|nth| {
                let block = u64::from(round) * 29 % 40 + nth * 36;
                let blocks = [4, 16, 1, 20, 2, 8][nth as usize];
                begin_durable(&mut core, handle, block, &vec![round; blocks * BLOCK])
            })
            .collect();
        for ticket in tickets {
            end(&mut core, ticket).result.unwrap();
        }
        for (nth, blocks) in [4, 16, 1, 20, 2, 8].into_iter().enumerate() {
            let block = u64::from(round) * 29 % 40 + nth as u64 * 36;
            for mode in [Mode::Cached, Mode::Direct] {
                let seen = get(&mut core, handle, block, blocks, mode);
                assert!(seen.iter().all(|byte| *byte == round), "round {round}, {nth}, {mode:?}");
            }
        }
    }
    let stats = core.cache_stats().unwrap();
    assert!(stats.writes_through > 60, "{stats:?}");
    assert_eq!(stats.spurious_wakeups, 0);
    quiet(&mut core);
    assert_eq!(core.engine().arena().free_bytes(), free);
    // Direct writes and reads beside it, on the same blocks.
    for round in 0..30_u8 {
        let durable = begin_durable(&mut core, handle, 8, &[round; 8 * BLOCK]);
        let direct = begin_write(&mut core, handle, 10, &[100 + round; BLOCK], Mode::Direct);
        end(&mut core, durable).result.unwrap();
        end(&mut core, direct).result.unwrap();
        let cached = get(&mut core, handle, 8, 8, Mode::Cached);
        assert_eq!(cached, get(&mut core, handle, 8, 8, Mode::Direct));
        assert_eq!((cached[0], cached[2 * BLOCK]), (round, 100 + round));
        put(&mut core, handle, 11, &[0; BLOCK], Mode::Cached);
    }
    core.close().unwrap();
}

#[test]
fn a_deadline_ends_it_without_its_memory() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 128);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    get(&mut core, handle, 0, 1, Mode::Cached);
    let free = core.engine().arena().free_bytes();
    disk.set_faults(
        Faults::none()
            .chance(Injected::Delay, 1.0)
            .delays(Duration::from_millis(200)..Duration::from_millis(201)),
    );
    let until = core.engine().now().after(Duration::from_millis(20));
    let write = SegmentRequest {
        durability: Durability::Data,
        deadline: Some(until),
        ..request(
            &core,
            handle,
            SegmentOp::Write { offset: 8 * B },
            &[7; 8 * BLOCK],
            Mode::Cached,
        )
    };
    let write = start(&mut core, write);
    core.turn(Wait::No).unwrap();
    let outcome = end(&mut core, write);
    let error = outcome.result.unwrap_err();
    assert!(
        matches!(error.fault, Fault::Io(baio_engine::Error::Indeterminate)),
        "{error}"
    );
    assert!(outcome.memory.is_empty());
    quiet(&mut core);
    assert_eq!(core.engine().arena().free_bytes(), free);
    assert_eq!(get(&mut core, handle, 8, 8, Mode::Direct), [7; 8 * BLOCK]);
    core.close().unwrap();
}
