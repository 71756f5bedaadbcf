//! Who waits is told, and who has nothing to wait for is not held up: places that others free, outcomes that were taken, tickets
//! polled elsewhere, requests that no entry can tell.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use baio::{Backend, Link, Memory, Remote, SegmentOp, StatusWord, Vectored, Wait};
use baio_engine::Region;

use crate::common::{self, Wakes, gate, remote};

const GUARD: Duration = Duration::from_secs(20);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < GUARD, "{what}");
        std::thread::yield_now();
    }
}

/// More bytes than an entry's length can tell.
#[test]
fn a_request_of_more_than_four_gibibytes_ends_alone() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "long", 64 << 10);
    let region = Region::create(3 << 30).unwrap();
    let mut list = Vectored::with_capacity(2);
    for _ in 0..2 {
        list.push(Memory::Span(region.span(0, 3 << 30).unwrap())).unwrap();
    }
    let write = segment.request(SegmentOp::Write { offset: 0 }, Memory::Many(list));
    let failed = segment.run(write).wait().unwrap_err();
    assert_eq!(failed.buffer.unwrap().len(), 6 << 30);
    let read = segment.read_at(0, segment.buffer(4096).expect("the service serves on"));
    read.wait().unwrap();
}

/// An outcome that was taken by its ticket counts no more.
#[test]
fn a_turn_does_not_count_what_was_taken() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "taken", 64 << 10);
    let read = || segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    let first = segment.submit(read()).unwrap();
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    volume.wait(first).unwrap().unwrap().result.unwrap();
    gate.close();
    segment.submit(read()).unwrap();
    let opener = std::thread::spawn(move || {
        gate.wait_for(1);
        std::thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    assert_eq!(volume.turn(Wait::one()).unwrap(), 1);
    opener.join().unwrap();
    volume.next_outcome().unwrap().result.unwrap();
    assert!(volume.next_outcome().is_none());
}

/// One thread waits for a place to ask a question in; another makes it by taking an outcome.
#[test]
fn a_thread_that_waits_for_a_place_is_told_of_one() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "full", 64 << 10);
    let read = || segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    for _ in 0..127 {
        segment.submit(read()).unwrap();
    }
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    gate.close();
    segment.submit(read()).unwrap();
    volume.turn(Wait::No).unwrap();
    gate.wait_for(1);
    let (tell, told) = std::sync::mpsc::channel();
    let asks = volume.clone();
    let thread = std::thread::spawn(move || {
        let backend = asks.backend().wait();
        tell.send(backend).unwrap();
    });
    std::thread::sleep(Duration::from_millis(100)); // It waits by now; if not, the test shows less.
    volume.next_outcome().unwrap().result.unwrap();
    let backend = told.recv_timeout(GUARD);
    gate.open();
    thread.join().unwrap();
    backend.expect("nobody was told of the place").unwrap();
}

/// `Link::poll` by itself, where nobody else reaps.
#[test]
fn a_ticket_polled_elsewhere_is_sent_and_woken() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "polled", 64 << 10);
    let request = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    let ticket = segment.submit(request).unwrap();
    let (wakes, waker) = Wakes::new();
    assert!(volume.poll(ticket, &waker).is_pending());
    until("nobody was woken", || wakes.count() > 0);
}

/// Whoever watches the word of a request whose future has gone sees its end.
#[test]
fn the_word_of_a_dropped_future_moves() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "word", 64 << 10);
    for sent in [true, false] {
        gate.close();
        let word = StatusWord::new();
        let mut request = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
        request.status = Some(word.clone());
        let mut future = Box::pin(segment.run(request));
        volume
            .block_on(std::future::poll_fn(|context| {
                assert!(future.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            }))
            .unwrap();
        if sent {
            volume.turn(Wait::No).unwrap();
            gate.wait_for(1);
        }
        drop(future);
        gate.open();
        until("the word stands still", || {
            volume.turn(Wait::No).unwrap();
            !matches!(word.get(), baio::Status::InFlight)
        });
    }
}

/// Two threads close; both find the volume given back.
#[test]
fn a_second_close_waits_for_the_first() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "twice", 64 << 10);
    gate.close();
    let request = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    let _ = segment.submit(request).unwrap();
    volume.turn(Wait::No).unwrap();
    gate.wait_for(1);
    let other: Remote = volume.clone();
    let first = std::thread::spawn(move || other.close());
    until("nobody closes", || volume.refusal().is_some());
    let watched = volume.clone();
    let second = std::thread::spawn(move || {
        volume.close().unwrap();
        watched.in_flight()
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        !second.is_finished(),
        "a close came back before the volume was given back"
    );
    gate.open();
    first.join().unwrap().unwrap();
    assert_eq!(second.join().unwrap(), 0);
}

#[test]
fn a_wait_without_end_is_no_panic() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "long", 64 << 10);
    let request = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    segment.submit(request).unwrap();
    let wait = Wait::Until {
        count: 1,
        min_wait: Duration::MAX,
        deadline: None,
    };
    assert_eq!(volume.turn(wait).unwrap(), 1);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the test wants a waker to panic");
    }
}

/// The waker of somebody who waits for a place panics as the link is closed: the volume is given back all the same.
#[test]
fn a_waker_that_panics_at_the_end_leaves_no_service() {
    let (_dir, path) = common::image(16 << 20);
    let options = common::options(Backend::Auto, 8);
    let volume = Remote::open_with(&path, &options).unwrap();
    let segment = common::segment(&volume, "panics", 64 << 10);
    let read = || segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    for _ in 0..8 {
        segment.submit(read()).unwrap();
    }
    let waker = Waker::from(Arc::new(Panics));
    let mut future = Box::pin(segment.run(read()));
    assert!(
        future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
            .is_pending()
    );
    let last = volume.clone();
    let closed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| volume.close()));
    assert!(closed.is_err(), "the waker did not panic");
    drop((future, segment, last));
    Remote::open_with(&path, &options).expect("the volume was given back");
}
