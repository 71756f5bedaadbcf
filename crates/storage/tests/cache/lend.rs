//! Hits that lend their pages: the memory itself, read-only and as it was; who changes a page changes a copy.
//! One small story each; every I/O is ended by hand, in the order the story wants.

use baio_engine::{Arena, Durability, Errno, Memory};
use baio_storage::Mode;
use baio_storage::cache::{Borrower, CacheError, CacheOp, LentPages};

use crate::harness::through_cache::{B, begin_durable, end, get, open_cached, put, slow_disk};
use crate::harness::{self, BLOCK, create, open_write};
use crate::rig::hand::{Hand, P, hand, is_sync, read_at, write_at};
use crate::rig::{self, PAGE, bytes};

/// Half of them may be lent.
const FRAMES: usize = 64;

fn anybody() -> Borrower {
    Borrower::new(1 << 30)
}

fn lend(h: &mut Hand, page: u64, pages: u64) -> LentPages {
    h.cache
        .lend(h.object, page..page + pages, &anybody())
        .expect("all are here")
}

fn firsts(lent: &LentPages) -> Vec<u8> {
    lent.pages()
        .map(|page| {
            assert!(page.len() == PAGE && page.iter().all(|byte| *byte == page[0]));
            page[0]
        })
        .collect()
}

fn seen(h: &mut Hand, page: u64, pages: u64) -> Vec<u8> {
    let read = h.read(page, pages);
    let done = h.good(read);
    bytes(&done.memory).chunks(PAGE).map(|page| page[0]).collect()
}

#[test]
fn a_hit_lends_all_its_pages_or_none() {
    let mut h = hand(FRAMES);
    h.cached(10, 16, 1);
    let small = h.cache.add(100, 0);
    for (object, pages) in [
        (h.object, 9..11),
        (h.object, 20..27),
        (h.object, 10..10),
        (h.object, 10..27),
        (h.object, 999..1001),
        (h.object, u64::MAX - 1..u64::MAX),
        (small, 0..1),
    ] {
        assert!(h.cache.lend(object, pages.clone(), &anybody()).is_none(), "{pages:?}");
    }
    let lent = lend(&mut h, 10, 16);
    assert_eq!(
        (lent.len(), lent.is_empty(), firsts(&lent)),
        (16 * PAGE, false, vec![1; 16])
    );
    assert_eq!(h.cache.stats().pages_lent, 16);
    assert_eq!(h.cache.stats().pages_hit, 16);
    h.quiet();
    // One that is being read is not here.
    let read = h.read(30, 1);
    let io = h.io();
    assert!(h.cache.lend(h.object, 30..31, &anybody()).is_none());
    h.end(io, 1);
    h.good(read);
}

#[test]
fn a_borrower_holds_what_it_may_and_gives_back_by_dropping() {
    let mut h = hand(FRAMES);
    h.cached(0, 16, 1);
    let one = Borrower::new(4 * PAGE);
    let first = h.cache.lend(h.object, 0..3, &one).unwrap();
    assert!(h.cache.lend(h.object, 3..5, &one).is_none());
    let other = h.cache.lend(h.object, 3..5, &Borrower::new(2 * PAGE)).unwrap();
    let last = h.cache.lend(h.object, 4..5, &one.clone()).unwrap();
    assert_eq!(one.held_bytes(), 4 * PAGE);
    // On any thread.
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!(one.held_bytes(), PAGE);
    drop((last, other));
    assert_eq!(one.held_bytes(), 0);
    assert_eq!(
        h.cache.lend(h.object, 0..4, &one).map(|lent| lent.len()),
        Some(4 * PAGE)
    );
}

/// Who borrows the beginning of a longer run holds that and nothing else: the rest comes back when the others give it back.
#[test]
fn who_borrows_a_part_of_a_run_does_not_hold_the_rest() {
    let mut h = hand(FRAMES);
    h.cached(0, 16, 1);
    h.cached(16, 16, 1);
    h.cached(32, 16, 1);
    let one = Borrower::new(PAGE);
    let long = lend(&mut h, 0, 16);
    let short = h.cache.lend(h.object, 0..1, &one).expect("one page may be held");
    let again = lend(&mut h, 0, 16);
    assert_eq!((firsts(&short), one.held_bytes()), (vec![1], PAGE));
    assert!(h.cache.lend(h.object, 1..2, &one).is_none());
    drop((long, again));
    // The page that is held, and half of the frames but one.
    let others = [lend_soon(&mut h, 16, 16), lend_soon(&mut h, 32, 15)];
    assert!(h.cache.lend(h.object, 47..48, &anybody()).is_none());
    // What is held already takes no more room.
    assert_eq!(firsts(&lend(&mut h, 0, 1)), [1]);
    drop(others);
    let write = h.write_with(P, 15 * PAGE, 2, Durability::None);
    h.good(write);
    assert_eq!(h.cache.stats().lent_copied, 0, "nobody has the rest");
    let write = h.write(0, 2);
    h.good(write);
    assert_eq!((firsts(&short), h.cache.stats().lent_copied), (vec![1], 1));
}

/// What came back is found soon.
fn lend_soon(h: &mut Hand, page: u64, pages: u64) -> LentPages {
    (0..40)
        .find_map(|_| h.cache.lend(h.object, page..page + pages, &anybody()))
        .expect("what came back is found soon")
}

#[test]
fn all_together_hold_half_of_the_frames() {
    let mut h = hand(FRAMES);
    h.cached(0, 16, 1);
    h.cached(16, 16, 1);
    h.cached(32, 16, 1);
    let lent = [lend(&mut h, 0, 16), lend(&mut h, 32, 16)];
    for _ in 0..5 {
        assert!(h.cache.lend(h.object, 16..17, &anybody()).is_none());
    }
    drop(lent);
    let mut tries = 0;
    while h.cache.lend(h.object, 16..32, &anybody()).is_none() {
        tries += 1;
        assert!(tries < 3, "what came back is found soon");
    }
}

/// The rule: what is lent is not changed; a page that is gets other memory.
#[test]
fn what_is_lent_stays_as_it_is_and_who_writes_writes_a_copy() {
    let mut h = hand(FRAMES);
    h.cached(10, 4, 1);
    let lent = lend(&mut h, 10, 4);
    let again = lend(&mut h, 11, 1);
    let whole = h.write(10, 2);
    h.good(whole);
    let part = h.write_with(11 * P + 100, 8, 3, Durability::None);
    h.good(part);
    let pin = h.hit(12);
    h.change(&pin, 0, 4);
    let new = h.pool(CacheOp::PinNew { page: 13, lsn: 0 });
    let held = h.good(new).pin.unwrap();
    assert_eq!(
        (h.cache.page(&pin).unwrap()[0], h.cache.page(&held).unwrap()[0]),
        (4, 0)
    );
    assert_eq!((firsts(&lent), firsts(&again)), (vec![1; 4], vec![1]));
    let now = seen(&mut h, 10, 4);
    assert_eq!(now, [2, 1, 4, 0]);
    let stats = h.cache.stats();
    assert_eq!((stats.lent_copied, stats.frames_lent), (4, 4));
    // Once it has a copy it is like any other.
    let whole = h.write(10, 5);
    h.good(whole);
    assert_eq!(h.cache.stats().lent_copied, 4);
    h.cache.unpin(pin);
    h.cache.unpin(held);
    drop((lent, again));
    // The frames are found when they are wanted.
    for page in 0..80 {
        let read = h.read(100 + page * 2, 1);
        h.end_all(0);
        h.good(read);
    }
    assert_eq!((h.cache.stats().frames_lent, h.cache.stats().frames_lost), (0, 0));
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn what_was_given_back_is_changed_where_it_is() {
    let mut h = hand(FRAMES);
    h.cached(10, 4, 1);
    drop(lend(&mut h, 10, 4));
    let write = h.write_with(10 * P, 4 * PAGE, 2, Durability::None);
    h.good(write);
    assert_eq!((h.cache.stats().lent_copied, h.cache.stats().frames_lent), (0, 0));
    assert_eq!(seen(&mut h, 10, 4), [2; 4]);
}

#[test]
fn a_lent_page_is_not_evicted_and_the_others_are() {
    let mut h = hand(16);
    h.cached(0, 4, 7);
    let lent = lend(&mut h, 0, 4);
    for page in 100..140 {
        h.cached(page, 1, 1);
    }
    assert_eq!(firsts(&lent), [7; 4]);
    assert!(h.is_cached(0) && h.is_cached(3));
    drop(lent);
    for page in 200..280 {
        h.cached(page, 1, 1);
    }
    assert_eq!(h.cache.stats().frames_lent, 0);
}

#[test]
fn a_lent_page_is_written_like_any_other() {
    let mut h = hand(FRAMES);
    let write = h.write_with(10 * P, 4 * PAGE, 1, Durability::None);
    h.good(write);
    let before = lend(&mut h, 10, 2);
    let sync = h.sync();
    let io = h.io();
    assert_eq!((write_at(&io), bytes(&io.memory)), ((10, 4, false), vec![1; 4 * PAGE]));
    // Also while it is on its way; and its end is no sign that the device keeps anything.
    let during = lend(&mut h, 11, 2);
    h.end(io, 0);
    let flush = h.io();
    assert!(is_sync(&flush));
    h.end(flush, 0);
    h.good(sync);
    assert_eq!(h.cache.stats().frames_clean, 4);
    // A durable write from the caller's memory is copied first where a page is lent.
    let large = h.write_with(10 * P, 4 * PAGE, 2, Durability::Data);
    let io = h.io();
    assert!(!io.bypasses && bytes(&io.memory) == vec![2; 4 * PAGE]);
    assert_eq!((firsts(&before), firsts(&during)), (vec![1; 2], vec![1; 2]));
    h.end(io, 0);
    h.good(large);
    // Of the pages that the device has from elsewhere some may be lent on the way.
    drop((before, during));
    let large = h.write_with(20 * P, 4 * PAGE, 3, Durability::Data);
    let io = h.io();
    assert!(io.bypasses);
    let lent = lend(&mut h, 20, 4);
    assert_eq!(firsts(&lent), [3; 4]);
    h.end(io, 0);
    h.good(large);
    assert_eq!(h.cache.stats().frames_clean, 8);
    // A refused one leaves pages that are tried again.
    let plain = h.write(22, 4);
    h.good(plain);
    let lent_22 = lend(&mut h, 22, 1);
    let sync = h.sync();
    let io = h.io();
    h.fail(io);
    h.told(sync);
    let sync = h.sync();
    h.end_all(0);
    h.good(sync);
    assert_eq!((firsts(&lent), firsts(&lent_22)), (vec![3; 4], vec![4]));
}

#[test]
fn a_write_that_is_given_up_on_keeps_a_lent_page_too() {
    let mut h = hand(FRAMES);
    let write = h.write(10, 1);
    h.good(write);
    let lent = lend(&mut h, 10, 1);
    let sync = h.sync();
    let io = h.io();
    h.cache.io_ended(io.id, Err(Errno::ETIMEDOUT), Memory::None);
    h.done(sync).result.unwrap_err();
    let write = h.write(10, 2);
    assert_eq!(h.done(write).result, Err(CacheError::Stuck));
    h.cache.io_released(io.id, io.memory);
    let write = h.write(10, 2);
    h.good(write);
    assert_eq!((firsts(&lent), seen(&mut h, 10, 1)), (vec![1], vec![2]));
    assert_eq!(h.cache.stats().frames_failed, 1);
}

#[test]
fn a_writer_waits_for_a_frame_and_not_for_the_borrower() {
    let mut h = hand(4);
    h.cached(0, 1, 1);
    let lent = lend(&mut h, 0, 1);
    // The other frames: two pinned, one being read.
    h.cached(1, 1, 1);
    h.cached(2, 1, 1);
    let pins = [h.hit(1), h.hit(2)];
    let read = h.read(3, 1);
    let io = h.io();
    let write = h.write(0, 2);
    h.quiet();
    h.end(io, 1);
    h.good(read);
    h.good(write);
    assert_eq!((firsts(&lent), seen(&mut h, 0, 1)), (vec![1], vec![2]));
    // Nothing can come free any more: it is told.
    let again = h.write(4, 1);
    let sync = h.sync();
    h.end_all(0);
    let ends: Vec<_> = std::iter::from_fn(|| h.cache.next_done()).collect();
    assert!(ends.iter().any(|done| done.id == again) && ends.iter().any(|done| done.id == sync));
    for pin in pins {
        h.cache.unpin(pin);
    }
    drop(lent);
    assert_eq!(h.cache.stats().spurious_wakeups, 0);
}

#[test]
fn a_direct_write_a_hint_and_a_delete_take_the_page_and_leave_the_bytes() {
    for how in 0..3 {
        let mut h = hand(16);
        h.cached(10, 2, 1);
        let lent = lend(&mut h, 10, 2);
        match how {
            0 => {
                let direct = h.reserve(10, 2);
                h.good(direct);
                h.cache.release(h.object, direct);
            }
            1 => assert_eq!(h.cache.remove(h.object), Ok(0)),
            _ => h.cache.discard(h.object),
        }
        assert_eq!(h.cache.stats().frames_lent, 2, "{how}");
        assert_eq!(firsts(&lent), [1; 2]);
        if how == 0 {
            let read = h.read(10, 2);
            let io = h.io();
            assert_eq!(read_at(&io), (10, 2));
            h.end(io, 9);
            h.good(read);
        }
        assert_eq!(firsts(&lent), [1; 2]);
        drop(lent);
    }
}

/// A run is kept to be lent again; every way in which one of its pages changes ends that.
#[test]
fn a_run_that_is_lent_again_is_what_it_is_now() {
    let mut h = hand(FRAMES);
    for how in 0..7 {
        let page = how * 20;
        h.cached(page, 6, 1);
        // Runs that overlap, shorter and longer ones; some are held and some not.
        let held = [lend(&mut h, page + 1, 4), lend(&mut h, page + 2, 1)];
        drop([lend(&mut h, page, 3), lend(&mut h, page, 6), lend(&mut h, page + 2, 4)]);
        assert_eq!(firsts(&lend(&mut h, page, 6)), [1; 6]);
        let changed = page + 2;
        match how {
            0 => {
                let write = h.write(changed, 2);
                h.good(write);
            }
            1 => {
                let write = h.write_with(changed * P, 4 * PAGE, 2, Durability::Data);
                let io = h.io();
                h.end(io, 0);
                h.good(write);
            }
            2 => {
                let pin = h.hit(changed);
                h.change(&pin, 0, 2);
                h.cache.unpin(pin);
            }
            3 => {
                let new = h.pool(CacheOp::PinNew { page: changed, lsn: 0 });
                let pin = h.good(new).pin.unwrap();
                h.change(&pin, 0, 2);
                h.cache.unpin(pin);
            }
            4 => {
                let direct = h.reserve(changed, 1);
                h.good(direct);
                h.cache.release(h.object, direct);
                h.cached(changed, 1, 2);
            }
            5 => {
                let pin = h.hit(changed);
                let later = h.pool(CacheOp::Change { page: changed, lsn: 0 });
                h.good(later);
                h.change(&pin, 0, 2);
                h.cache.unpin(pin);
            }
            _ => {
                for other in 0..40 {
                    h.cached(500 + other, 1, 9); // The pages that nobody holds leave.
                }
                h.cached(page, 6, 1);
                let write = h.write(changed, 2);
                h.good(write);
            }
        }
        let now = firsts(&lend(&mut h, page, 6));
        assert_eq!((now[1], now[2]), (1, 2), "{how}");
        assert_eq!(firsts(&lend(&mut h, changed, 2))[0], 2, "{how}");
        assert_eq!((firsts(&held[0]), firsts(&held[1])), (vec![1; 4], vec![1]), "{how}");
    }
}

#[test]
fn what_is_lent_outlives_the_cache() {
    let arena = Arena::new(FRAMES * PAGE).unwrap();
    let mut h = hand(FRAMES);
    h.cache = baio_storage::cache::Cache::new(&arena, rig::hand::config(FRAMES)).unwrap();
    h.object = h.cache.add(1000 * P, 0);
    h.cached(10, 2, 1);
    let lent = lend(&mut h, 10, 2);
    let one = lent.frozen(1).unwrap().clone();
    drop(h);
    assert_eq!(firsts(&lent), [1; 2]);
    drop(lent);
    assert_eq!(one[0], 1);
    assert_eq!(arena.free_bytes(), arena.size() - PAGE);
}

#[test]
fn a_reader_that_borrows_in_order_is_read_ahead_of() {
    let mut h = hand(256);
    h.object = h.cache.add(1000 * P, 64 * PAGE);
    let mut misses = 0;
    for page in (0..400).step_by(4) {
        if h.cache.lend(h.object, page..page + 4, &anybody()).is_none() {
            misses += 1;
            let read = h.read(page, 4);
            h.end_all(1);
            h.good(read);
        }
        h.end_all(1);
    }
    assert!(misses < 10, "{misses} of 100");
}

#[test]
fn through_a_core_pages_are_lent_and_written_by_others() {
    let disk = slow_disk();
    let mut core = open_cached(&disk, 128);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    let session = Borrower::new(32 * BLOCK);
    assert!(core.lend(&session, handle, 0..1).is_none(), "nothing is cached");
    put(&mut core, handle, 0, &[1; 16 * BLOCK], Mode::Cached);
    let lent = core.lend(&session, handle, 0..16).unwrap();
    assert_eq!(firsts(&lent), [1; 16]);
    put(&mut core, handle, 3, &[2; BLOCK], Mode::Cached);
    let durable = begin_durable(&mut core, handle, 0, &[3; 16 * BLOCK]);
    end(&mut core, durable).result.unwrap();
    put(&mut core, handle, 5, &[4; BLOCK], Mode::Direct);
    assert_eq!(firsts(&lent), [1; 16]);
    let mut now = [3; 16];
    now[5] = 4;
    let seen = get(&mut core, handle, 0, 16, Mode::Cached);
    assert_eq!(seen.chunks(BLOCK).map(|block| block[0]).collect::<Vec<_>>(), now);
    let later = core.lend(&session, handle, 0..16).unwrap();
    assert_eq!(firsts(&later), now);
    assert!(core.lend(&session, handle, 0..1).is_none(), "that is what it may hold");
    core.delete(harness::ME, harness::ME.uid, "data").unwrap();
    assert!(core.lend(&session, handle, 0..1).is_none());
    core.close().unwrap();
    assert_eq!((firsts(&lent), firsts(&later)), (vec![1; 16], now.to_vec()));
}
