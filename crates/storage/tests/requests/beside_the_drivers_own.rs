//! What whoever drives a core is promised beside requests: operations find slots, nobody is passed over, and no turn sleeps over what
//! has ended, nor spins over it.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use baio_engine::{EngineOptions, Op, Open, Policy, Request, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{Core, CreateOptions, Handle, Mode, SegmentRequest, StatusWord};

use crate::harness::{self, BLOCK, ME, create, format, open_write, read_request, run};

const B: u64 = BLOCK as u64;

fn cached(core: &Core, handle: Handle, block: u64) -> SegmentRequest {
    SegmentRequest {
        mode: Mode::Cached,
        ..read_request(core, handle, block * B, BLOCK)
    }
}

/// A segment of 128 blocks, of which the last is cached if so asked.
fn world(is_cached: bool) -> (tempfile::TempDir, Core, Handle) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    format(&path, 8 << 20);
    let mut core = harness::open(&path);
    create(&mut core, "data", 128 * B);
    let handle = open_write(&mut core, "data");
    if is_cached {
        let bytes = 1 << 20;
        core.use_cache(&CacheOptions {
            bytes,
            ..CacheOptions::default()
        })
        .unwrap();
        let read = cached(&core, handle, 127);
        run(&mut core, read).result.unwrap();
    }
    (dir, core, handle)
}

fn timer(core: &mut Core, ms: u64, tag: u64) {
    let at = core.engine().now().after(Duration::from_millis(ms));
    let timer = Request::bare(Op::Timer { at }, None, Policy::kernel()).tagged(tag);
    core.engine_mut().submit(timer).unwrap();
}

#[test]
fn callers_that_waited_for_the_cache_leave_operations_their_slots() {
    for is_cached in [false, true] {
        let (_dir, mut core, handle) = world(is_cached);
        let mut n = 0;
        while core.start(read_request(&core, handle, n % 64 * B, 512)).is_ok() {
            n += 1;
        }
        let id = core
            .begin_create(ME, ME.uid, "new", &CreateOptions::of_size(B))
            .unwrap();
        let answer = loop {
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
            core.turn(Wait::one()).unwrap();
        };
        assert!(answer.is_ok(), "{answer:?}, cached: {is_cached}");
    }
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn no_turn_spins_over_wakers_that_nobody_takes() {
    let (_dir, mut core, handle) = world(false);
    let read = core.start(read_request(&core, handle, 0, BLOCK)).unwrap();
    let waker = Waker::from(Arc::new(Nobody));
    assert!(core.poll(read, Some(waker)).is_pending());
    timer(&mut core, 200, 7);
    let mut turns = 0;
    while core.next_foreign().is_none() {
        core.turn(Wait::one()).unwrap();
        turns += 1;
    }
    assert!(turns < 100, "{turns} turns");
}

#[test]
fn what_has_ended_during_an_operation_is_news() {
    let (_dir, mut core, _) = world(false);
    timer(&mut core, 1, 7);
    std::thread::sleep(Duration::from_millis(20));
    create(&mut core, "other", B);
    while core.next_foreign().is_none() {
        assert!(core.has_news(), "a turn would sleep over it");
        core.turn(Wait::one()).unwrap();
    }
}

#[test]
fn who_found_no_slot_is_not_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let mut core = Core::new(&EngineOptions {
        slots: 4,
        reserved_slots: 1,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    })
    .unwrap();
    let bytes = 1 << 20;
    core.use_cache(&CacheOptions {
        bytes,
        ..CacheOptions::default()
    })
    .unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    let read = cached(&core, handle, 250);
    run(&mut core, read).result.unwrap();
    for _ in 0..2 {
        timer(&mut core, 600_000, 7);
    }
    let direct = |core: &Core, tag: u64| SegmentRequest {
        tag,
        ..read_request(core, handle, tag % 100 * B, 512)
    };
    for tag in 1..=4 {
        core.start(direct(&core, tag)).unwrap();
    }
    let mut order = Vec::new();
    while order.len() < 40 {
        core.turn(Wait::one()).unwrap();
        while let Some(outcome) = core.next_outcome() {
            outcome.result.unwrap();
            order.push(outcome.tag);
            core.start(direct(&core, order.len() as u64 + 4)).unwrap();
        }
    }
    assert!((1..=4).all(|tag| order.contains(&tag)), "{order:?}");
    std::mem::forget(core); // Its timers have long to go.
}

#[test]
fn a_request_that_goes_back_was_never_in_flight() {
    let (_dir, mut core, handle) = world(false);
    while core.start(read_request(&core, handle, 0, 512)).is_ok() {}
    let word = StatusWord::new();
    word.end(Ok(1));
    let before = word.get();
    let request = SegmentRequest {
        status: Some(word.clone()),
        ..read_request(&core, handle, 0, 512)
    };
    drop(core.start(request).unwrap_err());
    assert_eq!(word.get(), before);
}

#[test]
fn a_strangers_tag_that_looks_like_a_request_ends_none() {
    let (_dir, mut core, handle) = world(true);
    let generation = u64::from(core.number().wrapping_mul(0x9e37_79b1) & ((1 << 30) - 1) | 1);
    let mut read = cached(&core, handle, 50);
    read.memory = core.buffer(8 * BLOCK).unwrap().into();
    let ticket = core.start(read).unwrap();
    for generation in generation..generation + 4 {
        for index in 0..3 {
            timer(&mut core, 0, 1 << 62 | generation << 32 | index);
        }
    }
    let outcome = core.wait(ticket).unwrap().unwrap();
    assert_eq!(outcome.result.unwrap(), 8 * BLOCK as u32);
}
