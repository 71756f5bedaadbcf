//! Polling only queues: sixty-four joined futures reach the kernel in one call. And a future that nobody drives says so
//! instead of waiting for ever. What both links promise is asked of both.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use baio::{Backend, Fault, Link, SegmentOp, Status, StatusWord, Ticket, Wait};
use futures_util::future::join_all;

use crate::common::{self, remote};

fn one_submission<L: Link>(volume: &L) {
    let segment = common::segment(volume, "many", 1 << 20);
    let before = volume.stats().wait().unwrap();
    let reads = (0..64).map(|block| segment.read_at(block * 4096, segment.buffer(4096).unwrap()));
    let ends = volume.block_on(join_all(reads)).unwrap();
    let after = volume.stats().wait().unwrap();
    assert!(ends.into_iter().all(|ended| ended.unwrap().bytes == 4096));
    assert_eq!(after.requests - before.requests, 64);
    assert_eq!(after.batches - before.batches, 1, "one batch for all of them");
}

#[test]
fn sixty_four_joined_futures_cost_one_submission() {
    one_submission(&common::volume(Backend::Auto).1);
    one_submission(&remote::volume(Backend::Auto).1);
}

#[test]
fn an_undriven_future_gives_the_error_and_the_cure_and_its_buffer() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "alone", 64 << 10);
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    let Poll::Ready(ended) = read.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("pending for ever");
    };
    let failed = ended.unwrap_err();
    let error = failed.error;
    assert!(matches!(error.fault, Fault::NobodyDrives), "{error}");
    assert!(error.cure().unwrap().contains("block_on"), "{error}");
    assert_eq!(failed.buffer.unwrap().len(), 4096, "the buffer comes back");
}

#[test]
fn a_future_whose_driver_leaves_gives_the_error_too() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "left", 64 << 10);
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    let mut context = Context::from_waker(Waker::noop());
    let driver = volume.drive();
    assert!(read.as_mut().poll(&mut context).is_pending());
    drop(driver);
    let Poll::Ready(ended) = read.as_mut().poll(&mut context) else {
        panic!("pending for ever");
    };
    assert!(matches!(ended.unwrap_err().error.fault, Fault::NobodyDrives));
}

#[test]
fn drive_completes_futures_inside_any_executor() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "driven", 1 << 20);
    let work = async {
        let mut total = 0;
        for block in 0..32 {
            let buffer = segment.buffer(4096).unwrap();
            total += segment.read_at(block * 4096, buffer).await.unwrap().bytes;
        }
        total
    };
    let total = common::run_elsewhere(&volume, work);
    assert_eq!(total, 32 * 4096);
}

#[test]
fn another_thread_wakes_block_on() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let shared = std::sync::Arc::new(std::sync::Mutex::new((false, None::<Waker>)));
    let other = std::sync::Arc::clone(&shared);
    let thread = std::thread::spawn(move || {
        loop {
            let mut state = other.lock().unwrap();
            if let Some(waker) = state.1.take() {
                state.0 = true;
                return waker.wake();
            }
            drop(state);
            std::thread::yield_now();
        }
    });
    let answered = std::future::poll_fn(|context| {
        let mut state = shared.lock().unwrap();
        if state.0 {
            return Poll::Ready(7);
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    });
    assert_eq!(volume.block_on(answered).unwrap(), 7);
    thread.join().unwrap();
}

fn a_crowd<L: Link>(volume: &L) {
    let segment = common::segment(volume, "crowd", 1 << 20);
    let reads = (0..1500_u64).map(|n| {
        let segment = segment.clone();
        async move {
            // Buffers are taken one by one as the requests start, so that the arena suffices.
            let read = segment.read_at(n % 256 * 4096, segment.buffer(4096).unwrap());
            read.await.unwrap().bytes
        }
    });
    let done = volume.block_on(join_all(reads)).unwrap();
    assert_eq!(done.len(), 1500);
    assert_eq!(volume.in_flight(), 0);
}

#[test]
fn more_futures_than_slots_all_complete() {
    for backend in [Backend::Auto, Backend::Sync] {
        a_crowd(&common::volume(backend).1);
        a_crowd(&remote::volume(backend).1);
    }
}

fn lower_shapes<L: Link>(volume: &L) {
    let segment = common::segment(volume, "paper", 1 << 20);
    let word = StatusWord::new();
    let mut request = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(8192).unwrap());
    request.status = Some(word.clone());
    request.tag = 42;
    let ticket = segment.submit(request).unwrap();
    assert_eq!(word.get(), Status::InFlight, "it moves only when somebody reaps");
    let outcome = volume.wait(ticket).unwrap().unwrap();
    assert_eq!((outcome.tag, outcome.result.unwrap()), (42, 8192));
    assert_eq!(word.get(), Status::Done(8192));
    assert!(volume.wait(ticket).unwrap().is_none(), "an outcome is taken once");
    assert!(volume.wait(Ticket::default()).unwrap().is_none());

    for tag in 0..10 {
        let read = SegmentOp::Read { offset: 4096 * tag };
        let mut request = segment.request(read, segment.buffer(4096).unwrap());
        request.tag = tag;
        segment.submit(request).unwrap();
    }
    let mut seen = 0_u64;
    while seen.count_ones() < 10 {
        volume.turn(Wait::one()).unwrap();
        while let Some(outcome) = volume.next_outcome() {
            outcome.result.unwrap();
            seen |= 1 << outcome.tag;
        }
    }
}

#[test]
fn tickets_status_words_and_the_queue_tell_the_same() {
    lower_shapes(&common::volume(Backend::Auto).1);
    lower_shapes(&remote::volume(Backend::Auto).1);
}
