//! The rules of the cache, one small story each. Every I/O is ended by hand, in the order the story wants.

mod cached;

use std::sync::Arc;
use std::time::Duration;

use baio_engine::{Arena, Durability, Errno, Memory, Region, Time};
use baio_storage::cache::eviction::{Hint, Policy};
use baio_storage::cache::{
    Cache, CacheConfig, CacheDone, CacheError, CacheOp, CacheRequest, Io, IoKind, ObjectId, RequestId,
};
use cached::{PAGE, buffer, bytes, fill};

const P: u64 = PAGE as u64;

/// A cache of so many frames with one object of 1000 pages, and memory for requests.
struct Hand {
    cache: Cache,
    object: ObjectId,
    memory: Arc<Arena>,
}

fn config(frames: usize) -> CacheConfig {
    CacheConfig {
        bytes: frames * PAGE,
        eviction: Policy::Clock,
        dirty_percent_max: 50,
        write_bytes_max: 8 * PAGE,
        writes_in_flight_max: 2,
        age_max: Duration::from_secs(5),
    }
}

fn hand(frames: usize) -> Hand {
    let mut cache = Cache::new(&Arena::new(frames * PAGE).unwrap(), config(frames)).unwrap();
    let object = cache.add(1000 * P, 0);
    Hand {
        cache,
        object,
        memory: Arena::new(4 << 20).unwrap(),
    }
}

impl Hand {
    fn ask(&mut self, object: ObjectId, op: CacheOp, memory: Memory) -> RequestId {
        let hint = Hint::Normal;
        self.cache.start(
            0,
            CacheRequest {
                object,
                op,
                memory,
                hint,
            },
        )
    }

    fn read(&mut self, page: u64, pages: u64) -> RequestId {
        let memory = buffer(&self.memory, (pages * P) as usize).into();
        self.ask(self.object, CacheOp::Read { offset: page * P }, memory)
    }

    fn write_with(&mut self, offset: u64, len: usize, byte: u8, durability: Durability) -> RequestId {
        let mut buffer = buffer(&self.memory, len);
        buffer.fill(byte);
        self.ask(self.object, CacheOp::Write { offset, durability }, buffer.into())
    }

    fn write(&mut self, page: u64, byte: u8) -> RequestId {
        self.write_with(page * P, PAGE, byte, Durability::None)
    }

    fn durable(&mut self, page: u64, byte: u8) -> RequestId {
        self.write_with(page * P, PAGE, byte, Durability::Data)
    }

    fn sync(&mut self) -> RequestId {
        let (start, end, durability) = (0, u64::MAX, Durability::Data);
        self.ask(self.object, CacheOp::Sync { start, end, durability }, Memory::None)
    }

    fn reserve(&mut self, page: u64, pages: u64) -> RequestId {
        let (start, end) = (page * P, (page + pages) * P);
        self.ask(self.object, CacheOp::Reserve { start, end }, Memory::None)
    }

    fn io(&mut self) -> Io {
        self.cache.next_io().expect("an I/O")
    }

    fn quiet(&mut self) {
        assert!(self.cache.next_io().is_none(), "no I/O is wanted");
        assert!(self.cache.next_done().is_none(), "nothing has ended");
    }

    /// Ends an I/O well; a read gives pages filled with this byte.
    fn end(&mut self, mut io: Io, byte: u8) {
        let len = io.memory.len();
        if let IoKind::Read { .. } = io.kind {
            fill(&mut io.memory, &vec![byte; len]);
        }
        self.cache.io_ended(io.id, Ok(len as u32), io.memory);
    }

    fn fail(&mut self, io: Io) {
        self.cache.io_ended(io.id, Err(Errno::EIO), io.memory);
    }

    fn done(&mut self, id: RequestId) -> CacheDone {
        let done = self.cache.next_done().expect("an end");
        assert_eq!(done.id, id);
        done
    }

    fn good(&mut self, id: RequestId) -> CacheDone {
        let done = self.done(id);
        assert!(done.result.is_ok(), "{done:?}");
        done
    }

    fn told(&mut self, id: RequestId) {
        assert_eq!(self.done(id).result, Err(CacheError::System(Errno::EIO)));
    }

    /// Brings in pages, each with this byte.
    fn cached(&mut self, page: u64, pages: u64, byte: u8) {
        let read = self.read(page, pages);
        while let Some(io) = self.cache.next_io() {
            self.end(io, byte);
        }
        self.good(read);
    }

    fn is_cached(&mut self, page: u64) -> bool {
        let read = self.read(page, 1);
        let done = self.cache.next_done().is_some();
        if !done {
            self.cache.cancel(read);
            self.cache.next_done();
            while let Some(io) = self.cache.next_io() {
                self.end(io, 0);
            }
        }
        done
    }
}

fn read_at(io: &Io) -> (u64, u64) {
    match io.kind {
        IoKind::Read { offset, len } => (offset / P, u64::from(len) / P),
        other => panic!("{other:?} is no read"),
    }
}

fn write_at(io: &Io) -> (u64, u64, bool) {
    match io.kind {
        IoKind::Write {
            offset,
            len,
            durability,
        } => (offset / P, u64::from(len) / P, durability != Durability::None),
        other => panic!("{other:?} is no write"),
    }
}

fn is_sync(io: &Io) -> bool {
    matches!(io.kind, IoKind::Sync { .. })
}

#[test]
fn a_hit_ends_in_start() {
    let mut h = hand(16);
    h.cached(3, 2, 7);
    let read = h.read(3, 2);
    let done = h.good(read);
    assert_eq!((done.iterations, bytes(&done.memory)), (1, vec![7; 2 * PAGE]));
    h.quiet();
}

#[test]
fn a_read_starts_every_gap_at_once_and_copies_in_any_order() {
    let mut h = hand(64);
    h.cached(1, 1, 1);
    h.cached(3, 1, 3);
    let read = h.read(0, 6);
    let gaps: Vec<Io> = std::iter::from_fn(|| h.cache.next_io()).collect();
    assert_eq!(gaps.iter().map(read_at).collect::<Vec<_>>(), [(0, 1), (2, 1), (4, 2)]);
    for io in gaps.into_iter().rev() {
        assert!(h.cache.next_done().is_none());
        h.end(io, 9);
    }
    let done = h.good(read);
    // The last gaps came first, so one wake-up was enough.
    assert_eq!(done.iterations, 2);
    let firsts: Vec<u8> = bytes(&done.memory).chunks(PAGE).map(|page| page[0]).collect();
    assert_eq!(firsts, [9, 1, 9, 3, 9, 9]);
}

#[test]
fn a_read_ends_at_the_objects_end() {
    let mut h = hand(16);
    let small = h.cache.add(P + 512, 0);
    let memory = buffer(&h.memory, 4 * PAGE).into();
    let read = h.ask(small, CacheOp::Read { offset: 100 }, memory);
    let io = h.io();
    assert_eq!(
        io.kind,
        IoKind::Read {
            offset: 0,
            len: 4096 + 512
        }
    );
    h.end(io, 1);
    assert_eq!(h.done(read).result, Ok(4096 + 512 - 100));
    let memory = buffer(&h.memory, 10).into();
    let behind = h.ask(small, CacheOp::Read { offset: 1 << 40 }, memory);
    assert_eq!(h.done(behind).result, Ok(0));
    let memory = buffer(&h.memory, 513).into();
    let durability = Durability::None;
    let past = h.ask(small, CacheOp::Write { offset: P, durability }, memory);
    assert_eq!(h.done(past).result, Err(CacheError::PastEnd));
    // The last page is written as far as it belongs to the object.
    let memory = buffer(&h.memory, 512).into();
    let durability = Durability::Data;
    let last = h.ask(small, CacheOp::Write { offset: P, durability }, memory);
    let io = h.io();
    assert_eq!((io.memory.len(), write_at(&io)), (512, (1, 0, true)));
    h.end(io, 0);
    h.good(last);
}

#[test]
fn whole_pages_are_written_without_a_read_and_parts_after_one() {
    let mut h = hand(16);
    let whole = h.write(0, 1);
    assert_eq!(h.good(whole).iterations, 1);
    h.quiet();
    let part = h.write_with(P + 100, 8, 2, Durability::None);
    let io = h.io();
    assert_eq!(read_at(&io), (1, 1));
    h.end(io, 5);
    assert_eq!(h.good(part).iterations, 2);
    let read = h.read(1, 1);
    let seen = bytes(&h.good(read).memory);
    assert_eq!((seen[99], seen[100], seen[107], seen[108]), (5, 2, 2, 5));
}

#[test]
fn a_failed_fill_is_told_to_who_waits_and_forgotten() {
    let mut h = hand(16);
    let (one, two) = (h.read(0, 1), h.read(0, 1));
    let io = h.io();
    h.fail(io);
    h.told(one);
    h.told(two);
    assert_eq!(h.cache.stats().frames_free, 16);
    h.cached(0, 1, 4);
}

#[test]
fn a_short_fill_is_good_as_far_as_it_came() {
    let mut h = hand(16);
    let read = h.read(0, 3);
    let io = h.io();
    h.cache.io_ended(io.id, Ok(4096 + 4095), io.memory);
    let done = h.done(read);
    assert_eq!(
        (done.result, done.bytes_done),
        (Err(CacheError::System(Errno::EIO)), 4096)
    );
    assert!(h.is_cached(0) && !h.is_cached(1));
}

#[test]
fn a_page_under_write_back_is_read_and_not_changed() {
    let mut h = hand(16);
    let durable = h.durable(0, 1);
    let io = h.io();
    let plain = h.write(0, 2);
    h.quiet();
    let read = h.read(0, 1);
    assert_eq!(bytes(&h.good(read).memory)[0], 1);
    assert_eq!(bytes(&io.memory), vec![1; PAGE]);
    h.end(io, 0);
    h.good(durable);
    assert_eq!(h.good(plain).iterations, 2);
    let read = h.read(0, 1);
    assert_eq!(bytes(&h.good(read).memory)[0], 2);
}

#[test]
fn durable_writes_that_were_woken_together_share_one_write() {
    let mut h = hand(16);
    let first = h.durable(0, 1);
    let others = [
        h.durable(0, 2),
        h.write_with(8, 8, 3, Durability::Data),
        h.durable(0, 4),
    ];
    let io = h.io();
    h.quiet();
    h.end(io, 0);
    h.good(first);
    let io = h.io();
    assert_eq!(bytes(&io.memory), vec![4; PAGE]);
    h.quiet();
    h.end(io, 0);
    let writes: u32 = others.map(|id| h.good(id).writes).iter().sum();
    assert_eq!((writes, h.cache.stats().durable_writes), (1, 2));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_durable_write_is_one_device_write_over_all_its_pages() {
    let mut h = hand(64);
    let durable = h.write_with(100, 3 * PAGE, 1, Durability::Data);
    let head = h.io();
    assert_eq!(read_at(&head), (0, 1));
    h.end(head, 0);
    let tail = h.io();
    assert_eq!(read_at(&tail), (3, 1));
    h.end(tail, 0);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 4, true));
    h.quiet();
    h.end(io, 0);
    assert_eq!(h.good(durable).writes, 1);
    assert_eq!(h.cache.stats().frames_clean, 4);
}

#[test]
fn what_a_durable_write_waits_for_is_written_durably() {
    let mut h = hand(64);
    // A sync has begun to write page 0 when the durable write of 0..2 is copied but for page 1.
    h.write(0, 1);
    h.cache.next_done();
    h.cached(1, 1, 1);
    let sync = h.sync();
    let plain = h.io();
    assert_eq!(write_at(&plain), (0, 1, false));
    h.write(1, 2);
    h.cache.next_done();
    let part = h.write_with(P, 2 * PAGE, 3, Durability::Data);
    let own = h.io();
    assert_eq!(write_at(&own), (1, 2, true));
    h.end(own, 0);
    h.good(part);
    h.end(plain, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn a_page_is_not_evicted_before_a_flush_covered_it() {
    let mut h = hand(4); // Two may be dirty.
    h.write(0, 1);
    h.cache.next_done();
    h.write(1, 1);
    h.cache.next_done();
    let sync = h.sync();
    let writes: Vec<Io> = std::iter::from_fn(|| h.cache.next_io()).collect();
    for io in writes {
        assert!(!write_at(&io).2);
        h.end(io, 0);
    }
    // Written, and the flush runs: reads of other pages must do with the other two frames.
    let flush = h.io();
    for page in 10..20 {
        h.cached(page, 1, 9);
    }
    assert!(h.is_cached(0) && h.is_cached(1));
    assert_eq!(h.cache.stats().frames_unflushed, 2);
    h.end(flush, 0);
    h.good(sync);
    assert_eq!(h.cache.stats().frames_unflushed, 0);
    for page in 20..30 {
        h.cached(page, 1, 9);
    }
    assert!(!h.is_cached(0));
}

#[test]
fn writers_above_the_dirty_limit_go_on_in_the_order_of_asking() {
    let mut h = hand(8); // Four may be dirty.
    for page in 0..4 {
        let write = h.write(page * 10, 1);
        h.good(write);
    }
    let waiting = [100, 50, 75].map(|page| h.write(page, 2));
    assert!(h.cache.next_done().is_none());
    // Whoever changes a page that is dirty already needs no room.
    let mut ended = Vec::new();
    while let Some(io) = h.cache.next_io() {
        h.end(io, 0);
        while let Some(done) = h.cache.next_done() {
            assert!(done.result.is_ok() && done.parked == 1, "{done:?}");
            ended.push(done.id);
        }
        assert!(h.cache.stats().frames_dirty + h.cache.stats().frames_unflushed <= 4);
    }
    assert_eq!(ended, waiting);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn syncs_share_a_flush_that_begins_after_their_writes() {
    let mut h = hand(16);
    let first = h.sync();
    let flush = h.io();
    assert!(is_sync(&flush));
    let write = h.write(0, 1);
    h.good(write);
    let (second, third) = (h.sync(), h.sync());
    let page = h.io();
    h.end(page, 0);
    h.quiet(); // The flush on its way began before that write ended.
    h.end(flush, 0);
    h.good(first);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(second);
    h.good(third);
    h.quiet();
    assert_eq!(h.cache.stats().flushes, 2);
}

#[test]
fn a_sync_passes_over_what_became_dirty_later() {
    let mut h = hand(64);
    for page in [0, 10, 20, 30] {
        let write = h.write(page, 1);
        h.good(write);
    }
    let sync = h.sync();
    let mut ahead = 100;
    loop {
        let io = h.io();
        if is_sync(&io) {
            h.end(io, 0);
            break;
        }
        assert!(write_at(&io).0 <= 30, "{io:?}");
        h.end(io, 0);
        for page in [ahead, 0, 10] {
            h.write(page, 2); // Pages on their way to the device make it wait.
        }
        ahead += 1;
    }
    let ended: Vec<RequestId> = std::iter::from_fn(|| h.cache.next_done()).map(|done| done.id).collect();
    assert!(ended.contains(&sync));
    h.quiet();
}

#[test]
fn a_failed_write_is_told_kept_and_written_again() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    for _ in 0..3 {
        let sync = h.sync();
        let io = h.io();
        assert_eq!(bytes(&io.memory), vec![1; PAGE]);
        h.fail(io);
        h.told(sync);
        h.quiet();
        assert_eq!(h.cache.stats().frames_failed, 1);
    }
    let sync = h.sync();
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
    assert_eq!((h.cache.stats().frames_failed, h.cache.stats().frames_clean), (0, 1));
}

#[test]
fn a_failed_durable_write_is_told_to_all_who_rely_on_it() {
    let mut h = hand(16);
    let first = h.durable(0, 1);
    let io = h.io();
    let second = h.durable(0, 2);
    h.fail(io);
    h.told(first);
    // The second had not copied: it has a write of its own.
    let io = h.io();
    assert_eq!(bytes(&io.memory), vec![2; PAGE]);
    h.end(io, 0);
    h.good(second);
}

#[test]
fn after_a_failed_flush_no_sync_succeeds_before_the_pages_were_written_again() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let sync = h.sync();
    let io = h.io();
    h.end(io, 0);
    let waiting = h.sync();
    let flush = h.io();
    h.fail(flush);
    h.told(sync);
    h.told(waiting);
    let sync = h.sync();
    let again = h.io();
    assert_eq!(write_at(&again), (0, 1, false));
    h.end(again, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn a_write_that_ran_while_a_flush_failed_is_not_trusted() {
    let mut h = hand(16);
    let first = h.sync();
    let flush = h.io();
    let write = h.write(0, 1);
    h.good(write);
    let (start, end) = (0, P);
    let out = h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
    let io = h.io();
    h.fail(flush);
    h.told(first);
    h.told(out);
    h.end(io, 0);
    assert_eq!(h.cache.stats().frames_failed, 1);
    let sync = h.sync();
    let again = h.io();
    assert_eq!(write_at(&again), (0, 1, false));
    h.end(again, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn a_page_written_again_when_a_flush_fails_counts_for_the_next_sync() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let first = h.sync();
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    let reserve = h.reserve(0, 1); // Its page is written again, durably.
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, true));
    h.fail(flush);
    h.told(first);
    let sync = h.sync();
    h.quiet();
    h.end(io, 0);
    h.good(reserve);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn a_broken_object_does_not_take_the_room_of_others() {
    let mut h = hand(16); // Eight may be dirty, four failed of one object.
    let other = h.cache.add(100 * P, 0);
    let mut refused = 0;
    for page in 0..12 {
        h.write(page, 1);
        while let Some(io) = h.cache.next_io() {
            h.fail(io);
        }
        let (start, end, durability) = (0, u64::MAX, Durability::Data);
        h.ask(h.object, CacheOp::Sync { start, end, durability }, Memory::None);
        while let Some(io) = h.cache.next_io() {
            h.fail(io);
        }
        while let Some(done) = h.cache.next_done() {
            refused += u32::from(done.result == Err(CacheError::Unwritable(Errno::EIO)));
        }
    }
    assert_eq!((refused, h.cache.stats().frames_failed), (8, 4));
    for page in 0..4 {
        let memory = buffer(&h.memory, PAGE).into();
        let durability = Durability::None;
        let write = h.ask(
            other,
            CacheOp::Write {
                offset: page * P,
                durability,
            },
            memory,
        );
        h.good(write);
    }
    // The device is repaired: a sync is enough.
    let sync = h.sync();
    while let Some(io) = h.cache.next_io() {
        h.end(io, 0);
    }
    h.good(sync);
    let write = h.write(50, 1);
    h.good(write);
}

#[test]
fn a_device_that_breaks_with_the_limit_reached_does_not_stop_the_others() {
    let mut h = hand(16); // Eight may be dirty.
    for page in 0..8 {
        h.write(page * 2, 1);
    }
    let waits = h.write(100, 1);
    while let Some(io) = h.cache.next_io() {
        h.fail(io);
    }
    let last = std::iter::from_fn(|| h.cache.next_done()).last().unwrap();
    assert_eq!((last.id, last.result), (waits, Err(CacheError::Unwritable(Errno::EIO))));
    assert_eq!(h.cache.stats().frames_failed, 8);
    let other = h.cache.add(100 * P, 0);
    for page in 0..30 {
        let memory = buffer(&h.memory, PAGE).into();
        let durability = Durability::None;
        let write = h.ask(
            other,
            CacheOp::Write {
                offset: page * P,
                durability,
            },
            memory,
        );
        while let Some(io) = h.cache.next_io() {
            assert_eq!(io.object, other);
            h.end(io, 0);
        }
        h.good(write);
    }
}

#[test]
fn a_writer_does_not_wait_for_ever_for_room_that_cannot_come() {
    let mut h = hand(4); // Two may be dirty, three when some of them failed.
    let mut results = Vec::new();
    for _ in 0..4 {
        let object = h.cache.add(100 * P, 0);
        let memory = buffer(&h.memory, PAGE).into();
        let (offset, durability) = (0, Durability::Data);
        h.ask(object, CacheOp::Write { offset, durability }, memory);
        while let Some(io) = h.cache.next_io() {
            h.fail(io);
        }
        results.extend(h.cache.next_done().map(|done| done.result));
    }
    let (told, refused) = (CacheError::System(Errno::EIO), CacheError::Unwritable(Errno::EIO));
    assert_eq!(results, [Err(told), Err(told), Err(told), Err(refused)]);
}

#[test]
fn a_reservation_makes_pages_safe_drops_them_and_keeps_others_out() {
    let mut h = hand(64);
    h.cached(0, 4, 1);
    let write = h.write(1, 2);
    h.good(write);
    let reserve = h.reserve(0, 3);
    let io = h.io();
    assert_eq!(write_at(&io), (1, 1, true));
    let (late_read, late_write) = (h.read(2, 1), h.write(0, 3));
    // What is cached can be read until it is dropped; nothing can be written.
    h.good(late_read);
    h.quiet();
    h.end(io, 0);
    h.good(reserve);
    let read = h.read(2, 2);
    h.quiet();
    let beside = h.read(3, 1);
    h.good(beside);
    h.cache.release(h.object, reserve);
    h.good(late_write);
    let io = h.io();
    assert_eq!(read_at(&io), (2, 1));
    h.end(io, 7);
    h.good(read);
    h.cache.release(h.object, reserve); // A second time does nothing.
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn reservations_of_one_page_follow_one_another() {
    let mut h = hand(16);
    let (one, two, beside) = (h.reserve(0, 2), h.reserve(1, 2), h.reserve(5, 1));
    h.good(one);
    h.good(beside);
    h.quiet();
    h.cache.release(h.object, one);
    h.good(two);
    assert_eq!(h.cache.remove(h.object), Err(CacheError::Busy));
    h.cache.release(h.object, two);
    h.cache.release(h.object, beside);
    assert_eq!(h.cache.remove(h.object), Ok(0));
}

#[test]
fn a_reservation_that_is_cancelled_lets_the_others_in() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let reserve = h.reserve(0, 1);
    let io = h.io();
    let late = h.write(0, 2);
    h.cache.cancel(reserve);
    assert_eq!(h.done(reserve).result, Err(CacheError::Cancelled));
    h.end(io, 0);
    h.good(late);
}

#[test]
fn before_a_direct_read_dirty_pages_are_written_out_and_stay() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    let (start, end) = (0, P);
    let out = h.ask(h.object, CacheOp::WriteOut { start, end }, Memory::None);
    let io = h.io();
    assert_eq!(write_at(&io), (0, 1, false));
    h.end(io, 0);
    h.good(out);
    h.quiet();
    assert!(h.is_cached(0));
}

#[test]
fn memory_that_does_not_come_back_is_missed_and_then_taken_back() {
    let mut h = hand(8);
    let read = h.read(0, 2);
    let fill = h.io();
    h.cache.io_ended(fill.id, Err(Errno::ETIMEDOUT), Memory::None);
    assert_eq!(h.done(read).result, Err(CacheError::System(Errno::ETIMEDOUT)));
    assert_eq!((h.cache.stats().frames_lost, h.cache.stats().frames_free), (2, 6));

    let durable = h.durable(5, 1);
    let write = h.io();
    h.cache.io_ended(write.id, Err(Errno::ETIMEDOUT), Memory::None);
    assert_eq!(h.done(durable).result, Err(CacheError::System(Errno::ETIMEDOUT)));
    let read = h.read(5, 1); // Its bytes are shared with the device.
    assert_eq!(bytes(&h.good(read).memory), vec![1; PAGE]);
    let again = h.write(5, 2);
    assert_eq!(h.done(again).result, Err(CacheError::Stuck));
    let sync = h.sync();
    assert_eq!(h.done(sync).result, Err(CacheError::Stuck));
    assert_eq!(h.cache.remove(h.object), Err(CacheError::Busy));

    h.cache.io_released(write.id, write.memory);
    h.cache.io_released(fill.id, fill.memory);
    assert_eq!((h.cache.stats().frames_lost, h.cache.stats().frames_failed), (0, 1));
    let sync = h.sync();
    let io = h.io();
    assert_eq!(bytes(&io.memory), vec![1; PAGE]);
    h.end(io, 0);
    let flush = h.io();
    h.end(flush, 0);
    h.good(sync);
}

#[test]
fn with_every_frame_lost_a_read_fails_and_does_not_hang() {
    let mut h = hand(4);
    let mut lost = Vec::new();
    for page in 0..4 {
        let read = h.read(page, 1);
        let io = h.io();
        h.cache.io_ended(io.id, Err(Errno::ETIMEDOUT), Memory::None);
        h.done(read);
        lost.push(io);
    }
    let read = h.read(9, 1);
    assert_eq!(h.done(read).result, Err(CacheError::NoFrame));
    for io in lost {
        h.cache.io_released(io.id, io.memory);
    }
    h.cached(9, 1, 1);
}

#[test]
fn the_cleaner_merges_neighbours_and_goes_on_where_it_left() {
    let mut h = hand(64); // 32 may be dirty; above 16 the cleaner writes, 8 pages at once.
    let mut written = Vec::new();
    for page in (0..20).rev() {
        let write = h.write(page, 1);
        h.good(write);
        while let Some(io) = h.cache.next_io() {
            written.push((write_at(&io).0, write_at(&io).1));
            h.end(io, 0);
        }
    }
    // From the first dirty page on, then from behind that; never one page at a time.
    assert_eq!(written, [(3, 8)]);
    for page in 100..120 {
        h.write(page, 1);
        while let Some(io) = h.cache.next_io() {
            if !is_sync(&io) {
                written.push((write_at(&io).0, write_at(&io).1));
            }
            h.end(io, 0);
        }
    }
    assert_eq!(written[1], (11, 8), "{written:?}");
    assert_eq!(h.cache.stats().cleaner_writes, written.len() as u64);
}

#[test]
fn what_has_grown_old_is_written_and_flushed() {
    let mut h = hand(16);
    h.cache.tick(Time(1_000));
    assert_eq!(h.cache.next_tick(), None);
    let write = h.write(0, 1);
    h.good(write);
    let due = h.cache.next_tick().unwrap();
    h.cache.tick(Time(due.0 - 1));
    h.quiet();
    h.cache.tick(due);
    let io = h.io();
    h.fail(io); // Tried again when it has grown old again.
    h.quiet();
    let due = h.cache.next_tick().unwrap();
    h.cache.tick(due);
    let io = h.io();
    h.end(io, 0);
    let flush = h.io();
    h.end(flush, 0);
    assert_eq!((h.cache.stats().frames_clean, h.cache.next_tick()), (1, None));
}

#[test]
fn a_reader_in_order_is_read_ahead_of_and_a_random_one_is_not() {
    let mut h = hand(256);
    let object = h.cache.add(1000 * P, 16 * PAGE);
    h.object = object;
    let mut asked = 0;
    for page in 0..40 {
        let read = h.read(page, 1);
        while let Some(io) = h.cache.next_io() {
            asked += 1;
            h.end(io, 1);
        }
        h.good(read);
    }
    let stats = h.cache.stats();
    assert!(asked <= 12, "{asked} reads for forty pages in order");
    assert!(stats.ahead_hit > 20, "{stats:?}");
    let before = stats.pages_filled;
    for nth in 0..40 {
        h.cached(200 + nth * 397 % 800, 1, 1);
    }
    assert_eq!(h.cache.stats().pages_filled - before, 40);
}

#[test]
fn a_readahead_that_fails_is_told_to_nobody() {
    let mut h = hand(256);
    h.object = h.cache.add(1000 * P, 16 * PAGE);
    for page in 0..20 {
        let read = h.read(page, 1);
        while let Some(io) = h.cache.next_io() {
            let (first, pages) = read_at(&io);
            if first > page {
                h.fail(io); // Only what nobody asked for.
            } else if pages > 1 {
                h.cache.io_ended(io.id, Ok(4096), io.memory);
            } else {
                h.end(io, 1);
            }
        }
        h.good(read);
    }
    assert!(h.cache.stats().failed_fills > 0);
}

#[test]
fn a_peers_memory_is_read_once_and_written_once() {
    let mut h = hand(16);
    let region = Region::create(4 * PAGE).unwrap();
    region.span(0, 8192).unwrap().copy_in(&[5; 8192]);
    let durability = Durability::None;
    let span = region.span(100, 4096).unwrap();
    let write = h.ask(h.object, CacheOp::Write { offset: 50, durability }, Memory::Span(span));
    region.span(0, 8192).unwrap().copy_in(&[6; 8192]); // Too late to matter.
    while let Some(io) = h.cache.next_io() {
        h.end(io, 1);
    }
    h.good(write);
    let span = region.span(8192, 4096).unwrap();
    let read = h.ask(h.object, CacheOp::Read { offset: 50 }, Memory::Span(span));
    h.good(read);
    let mut seen = [0; 4097];
    region.span(8192, 4097).unwrap().copy_out(&mut seen);
    assert_eq!((&seen[..4096], seen[4096]), (&[5; 4096][..], 0));
}

#[test]
fn stale_names_do_nothing() {
    let mut h = hand(16);
    let read = h.read(0, 1);
    let io = h.io();
    let id = io.id;
    h.end(io, 1);
    h.good(read);
    h.cache.cancel(read);
    h.cache.io_ended(id, Ok(4096), Memory::None);
    h.cache.io_released(id, Memory::None);
    h.cache.release(h.object, read);
    assert_eq!(h.cache.remove(h.object), Ok(0));
    assert_eq!(h.cache.remove(h.object), Err(CacheError::NoObject));
    let read = h.read(0, 1);
    assert_eq!(h.done(read).result, Err(CacheError::NoObject));
    h.object = h.cache.add(P, 0);
    let read = h.read(0, 1);
    let io = h.io(); // Nothing of the old object is found.
    h.end(io, 1);
    h.good(read);
}

#[test]
fn resizing_needs_quiet_and_drops_what_was_cached() {
    let mut h = hand(16);
    let write = h.write(0, 1);
    h.good(write);
    assert_eq!(h.cache.resize(h.object, P), Err(CacheError::Busy));
    let sync = h.sync();
    while let Some(io) = h.cache.next_io() {
        h.end(io, 0);
    }
    h.good(sync);
    assert_eq!(h.cache.resize(h.object, P), Ok(()));
    assert_eq!(h.cache.stats().frames_free, 16);
    let write = h.write(1, 1);
    assert_eq!(h.done(write).result, Err(CacheError::PastEnd));
}

#[test]
fn a_cancelled_request_gives_its_memory_back_and_its_pages_come_all_the_same() {
    let mut h = hand(16);
    let (one, two) = (h.read(0, 2), h.read(0, 2));
    let io = h.io();
    h.cache.cancel(one);
    let done = h.done(one);
    assert_eq!((done.result, done.memory.len()), (Err(CacheError::Cancelled), 2 * PAGE));
    h.end(io, 1);
    h.good(two);
    assert_eq!(h.cache.stats().frames_clean, 2);
}
