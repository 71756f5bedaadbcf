//! The promise: clients of a broker share one page cache. What several of them read is read from the device once, and one that reads
//! through much more than the cache holds does not cost another one the pages that it uses again and again.

use std::sync::Barrier;

use baio::{Access, CacheOptions, Durability, Link, Pattern, Policy, Remote, Segment};

use crate::common::broker::Served;
use crate::common::segment;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const PIECE: u64 = 256 << 10;

fn cache(bytes: u64) -> CacheOptions {
    CacheOptions {
        bytes: bytes as usize,
        ..CacheOptions::default()
    }
}

/// Each page of a segment begins with its number.
fn stamp(segment: &Segment<Remote>, size: u64) {
    for at in (0..size).step_by(PIECE as usize) {
        let mut piece = segment.buffer(PIECE as usize).unwrap();
        for (page, bytes) in piece.chunks_mut(PAGE as usize).enumerate() {
            bytes[..8].copy_from_slice(&(at / PAGE + page as u64).to_le_bytes());
        }
        segment.write_at(at, piece).direct().wait().unwrap();
    }
    segment.sync(Durability::Data).wait().unwrap();
}

/// Reads this piece through the cache; it must be what was stamped.
fn read(segment: &Segment<Remote>, at: u64, len: u64) {
    let buffer = segment.buffer(len as usize).unwrap();
    let read = segment.read_at(at, buffer).cached().wait().unwrap();
    assert_eq!(read.bytes as u64, len);
    for (page, bytes) in read.buffer.chunks(PAGE as usize).enumerate() {
        assert_eq!(bytes[..8], (at / PAGE + page as u64).to_le_bytes());
    }
}

#[test]
fn what_eight_clients_read_is_read_from_the_device_once() {
    const SIZE: u64 = 64 * MIB;
    let served = Served::with(96 * MIB, cache(SIZE + 8 * MIB), |_| {});
    let maker = served.connect();
    stamp(&segment(&maker, "a", SIZE), SIZE);
    let clients: Vec<_> = (0..8).map(|_| served.connect()).collect();
    let opened = clients
        .iter()
        .map(|client| client.open_segment("a", Access::Read).wait().unwrap());
    let opened: Vec<_> = opened.collect();
    let before = served.counters();
    let together = Barrier::new(opened.len());
    std::thread::scope(|scope| {
        for (number, a) in opened.iter().enumerate() {
            let together = &together;
            scope.spawn(move || {
                together.wait();
                // Half of them begin at the same place and run for the same pages; the others come from elsewhere.
                let first = SIZE / 8 * (number as u64 / 4 * number as u64);
                for at in (0..SIZE).step_by(PIECE as usize) {
                    read(a, (first + at) % SIZE, PIECE);
                }
            });
        }
    });
    let after = served.counters();
    let (cache, cached_before) = (after.cache.unwrap(), before.cache.unwrap());
    assert_eq!(after.engine.bytes_read - before.engine.bytes_read, SIZE);
    assert_eq!(cache.pages_filled - cached_before.pages_filled, SIZE / PAGE);
    // Nobody was answered past it.
    let used = |stats: &baio::CacheStats| stats.pages_hit + stats.pages_missed;
    assert!(used(&cache) - used(&cached_before) >= 8 * SIZE / PAGE, "{cache:?}");
}

/// S3-FIFO: what was used again in the small queue, a tenth of the frames, goes to the main queue, which gives no victim as long as the small one
/// is full; a scan fills that and never comes further. So of a hot set that was used twice and fits into nine tenths of the cache no page leaves,
/// however long the scan: the bound is 0.
#[test]
fn a_scan_of_one_client_leaves_anothers_hot_set_where_it_is() {
    const CACHE: u64 = 16 * MIB;
    const HOT: u64 = CACHE / 4;
    const SCANNED: u64 = 4 * CACHE;
    let served = Served::with(
        96 * MIB,
        CacheOptions {
            eviction: Policy::S3Fifo,
            ..cache(CACHE)
        },
        |_| {},
    );
    let (one, other) = (served.connect(), served.connect());
    let hot = segment(&one, "hot", HOT);
    let long = segment(&other, "long", SCANNED);
    stamp(&hot, HOT);
    stamp(&long, SCANNED);
    // As an index is used: a page here, a page there.
    hot.read_pattern(Pattern::Random).wait().unwrap();
    let use_it = || {
        let pages = HOT / PAGE;
        // Odd, so each page once.
        (0..pages).for_each(|step| read(&hot, step * 389 % pages * PAGE, PAGE));
    };
    for _ in 0..3 {
        use_it();
    }
    let before = served.counters();
    for at in (0..SCANNED).step_by(PIECE as usize) {
        read(&long, at, PIECE);
    }
    let scanned = served.counters();
    assert!(
        scanned.engine.bytes_read - before.engine.bytes_read >= SCANNED,
        "it was no scan"
    );
    use_it();
    let after = served.counters();
    assert_eq!(
        after.engine.bytes_read, scanned.engine.bytes_read,
        "pages of the hot set had left"
    );
}
