//! Promises about one request that is much larger than the cache: it is pipelined, with a window of memory and no copy of its own;
//! its progress can be looked at and moves with every half of a window; and 2 GiB are no special case.

use std::fs::File;

use baio_engine::{Durability, Memory, Open, Region, Vectored, Wait};
use baio_storage::cache::{CacheOp, CacheOptions, Io};
use baio_storage::{Core, Mode, SegmentOp, SegmentRequest};

use crate::harness;
use crate::rig::PAGE;
use crate::rig::hand::{Hand, P, hand, write_at};

const PAGES: u64 = 1000;
/// Of a cache of 64 frames.
const WINDOW: u64 = 16;

/// 1000 pages in 125 spans that are one and the same memory.
fn spans(region: &std::sync::Arc<Region>) -> Memory {
    let mut list = Vectored::with_capacity(125);
    for _ in 0..PAGES / 8 {
        let span = region.span(0, 8 * PAGE as u32).unwrap();
        list.push(Memory::Span(span)).unwrap();
    }
    Memory::Many(list)
}

fn wanted(h: &mut Hand) -> Vec<Io> {
    std::iter::from_fn(|| h.cache.next_io()).collect()
}

#[test]
fn a_long_read_keeps_the_device_busy_within_one_window() {
    let mut h = hand(64);
    let region = Region::create(8 * PAGE).unwrap();
    let read = h.ask(h.object, CacheOp::Read { offset: 0 }, spans(&region));
    let mut ios = wanted(&mut h);
    assert_eq!(ios.len(), 2, "both halves of the window are started at once");
    let (mut ended, mut before) = (0, 0);
    while h.cache.progress(read).is_some() {
        let io = ios.remove(0);
        ended += (io.memory.len() / PAGE) as u64;
        h.end(io, 1);
        ios.extend(wanted(&mut h));
        let Some(progress) = h.cache.progress(read) else { break };
        assert!(progress > before, "it moves with each half: {progress}");
        assert!(
            ended * P <= progress + WINDOW * P,
            "{ended} pages read, {progress} bytes done"
        );
        // While one half is copied the next is on its way, up to the last.
        assert!(!ios.is_empty(), "the device is idle at {progress}");
        before = progress;
    }
    let done = h.good(read);
    assert_eq!(done.memory.len() as u64, PAGES * P);
    assert_eq!(u64::from(done.held_max), WINDOW);
    let stats = h.cache.stats();
    assert_eq!(
        (stats.pages_filled, stats.fills, stats.spurious_wakeups),
        (PAGES, 125, 0),
        "{stats:?}"
    );
}

#[test]
fn a_device_that_is_faster_than_the_copy_is_asked_for_more_before_the_window_is_empty() {
    let mut h = hand(64);
    let region = Region::create(8 * PAGE).unwrap();
    let read = h.ask(h.object, CacheOp::Read { offset: 0 }, spans(&region));
    let mut ios = wanted(&mut h);
    // The second half comes first: when the first one comes, all of the window is there.
    let first = ios.remove(0);
    h.end(ios.remove(0), 1);
    h.end(first, 1);
    let ios = wanted(&mut h);
    let pages: Vec<u64> = ios.iter().map(|io| (io.memory.len() / PAGE) as u64).collect();
    assert_eq!(pages, [WINDOW / 2; 2]);
    assert_eq!(h.cache.progress(read), Some(WINDOW * P));
}

#[test]
fn a_long_durable_write_goes_by_windows_and_tells_what_is_safe() {
    let mut h = hand(64);
    let region = Region::create(8 * PAGE).unwrap();
    let (offset, durability) = (0, Durability::Data);
    let write = h.ask(h.object, CacheOp::Write { offset, durability }, spans(&region));
    let mut safe = 0;
    while let Some(io) = h.cache.next_io() {
        let (first, pages, durable) = write_at(&io);
        assert!(durable && first * P == safe && pages <= WINDOW, "{first} {pages}");
        assert_eq!(h.cache.progress(write), Some(safe));
        safe += pages * P;
        h.end(io, 0);
    }
    let done = h.good(write);
    assert_eq!((done.result, safe), (Ok((PAGES * P) as u32), PAGES * P));
    assert!(u64::from(done.held_max) <= WINDOW, "{}", done.held_max);
}

#[test]
fn a_long_plain_write_takes_what_may_be_dirty_and_no_more() {
    let mut h = hand(64); // 32 may be dirty.
    let region = Region::create(8 * PAGE).unwrap();
    let (offset, durability) = (0, Durability::None);
    let write = h.ask(h.object, CacheOp::Write { offset, durability }, spans(&region));
    let mut before = h.cache.progress(write).unwrap();
    assert_eq!(before, 32 * P);
    while let Some(io) = h.cache.next_io() {
        h.end(io, 0);
        let stats = h.cache.stats();
        assert!(stats.frames_dirty + stats.frames_write_back <= 32, "{stats:?}");
        let now = h.cache.progress(write).unwrap_or(PAGES * P);
        assert!(now >= before);
        before = now;
    }
    let done = h.good(write);
    assert_eq!(done.result, Ok((PAGES * P) as u32));
    assert!(done.held_max <= 1, "{}", done.held_max);
}

#[test]
fn two_gibibytes_in_one_request_through_a_small_cache() {
    const BYTES: u64 = 2 << 30;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    File::create(&path).unwrap().set_len(BYTES).unwrap();
    let mut core = Core::new(&harness::config()).unwrap();
    let bytes = 2 << 20;
    core.use_cache(&CacheOptions {
        bytes,
        ..CacheOptions::default()
    })
    .unwrap();
    let handle = core.open_file(&path, &Open::read()).unwrap();
    // 2048 parts, more than one iovec list may have, all of them one mebibyte of shared memory.
    let region = Region::create(1 << 20).unwrap();
    let span = region.span(0, 1 << 20).unwrap();
    span.copy_in(&[7; 4096]);
    let mut list = Vectored::with_capacity(2048);
    for _ in 0..BYTES >> 20 {
        list.push(Memory::Span(span.clone())).unwrap();
    }
    let request = SegmentRequest {
        mode: Mode::Cached,
        ..SegmentRequest::new(handle, SegmentOp::Read { offset: 0 }, Memory::Many(list))
    };
    let ticket = core.start(request).unwrap();
    let window = bytes as u64 / 4;
    let (mut seen, mut at) = (0, 0);
    while let Some(progress) = core.progress(ticket) {
        assert!(progress >= at);
        seen += u32::from(progress > at);
        at = progress;
        core.turn(Wait::one()).unwrap();
    }
    let outcome = core.wait(ticket).unwrap().unwrap();
    assert_eq!(u64::from(outcome.result.unwrap()), BYTES);
    assert_eq!(outcome.memory.len() as u64, BYTES);
    // Whoever looks after each turn sees it move by two windows at most, on the whole.
    assert!(u64::from(seen) >= BYTES / window / 4, "seen to move {seen} times");
    let mut bytes = [1; 4096];
    span.copy_out(&mut bytes);
    assert_eq!(bytes, [0; 4096]);
    let stats = core.cache_stats().unwrap();
    assert_eq!((stats.pages_filled, stats.spurious_wakeups), (BYTES / P, 0));
    core.close().unwrap();
}
