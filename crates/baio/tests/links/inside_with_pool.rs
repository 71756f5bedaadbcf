//! What runs inside of `with_pool` may reach futures of its own local link, and poll or drop them there: none of them loses what it has.

use std::cell::RefCell;
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use baio::{Backend, Buffer, Drive, Event, Link, Local, Request, StreamRequest};

use crate::common::story::tell_of;
use crate::common::{self, Wakes, begun};

type Ends = Pin<Box<dyn Future<Output = ()>>>;
type Read = Pin<Box<Request<Local, Buffer>>>;
type Timer = Pin<Box<Event<()>>>;
type Received = Pin<Box<StreamRequest<Vec<u8>>>>;

thread_local! {
    /// What runs inside must be `Send`, and these are not.
    static READ: RefCell<Option<Read>> = const { RefCell::new(None) };
    static FREEZE: RefCell<Option<Ends>> = const { RefCell::new(None) };
    static TIMERS: RefCell<Vec<Timer>> = const { RefCell::new(Vec::new()) };
    static DRIVER: RefCell<Option<Drive>> = const { RefCell::new(None) };
    static RECEIVED: RefCell<Option<Received>> = const { RefCell::new(None) };
}

/// A read under way is taken into `with_pool`, and its buffer is back in the arena at the end.
fn a_read_ends_inside(how: fn(Read)) {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "one", 64 << 10);
    let free = volume.arena_free_bytes();
    let driver = volume.drive();
    READ.set(Some(begun(segment.read_at(0, segment.buffer(4096).unwrap()))));
    let inside = volume.with_pool(move |_| how(READ.take().unwrap()));
    inside.wait().unwrap();
    common::finish(&volume);
    drop(driver);
    assert_eq!(volume.arena_free_bytes(), free);
}

#[test]
fn a_request_is_polled_inside() {
    tell_of(|| {
        a_read_ends_inside(|mut read| {
            let polled = read.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        });
    });
}

#[test]
fn a_request_is_dropped_inside() {
    tell_of(|| a_read_ends_inside(drop));
}

/// Otherwise the volume would stay frozen, and nobody could thaw it.
#[test]
fn a_freeze_is_polled_and_dropped_inside() {
    tell_of(|| {
        let (_dir, volume) = common::cached(64, 64);
        let segment = common::segment(&volume, "one", 64 << 10);
        let driver = volume.drive();
        let freeze = volume.freeze();
        FREEZE.set(Some(begun(async move { drop(freeze.await) })));
        let inside = volume.with_pool(|_| {
            let mut freeze = FREEZE.take().unwrap();
            let _ = freeze.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        });
        inside.wait().unwrap();
        drop(driver);
        let write = segment.write_at(0, segment.buffer(4096).unwrap());
        write.within(Duration::from_secs(3)).wait().unwrap();
    });
}

/// Otherwise the close waits for it.
#[test]
fn a_timer_is_dropped_inside() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let driver = volume.drive();
        TIMERS.set(vec![begun(volume.sleep(Duration::from_secs(3600)))]);
        volume.with_pool(|_| drop(TIMERS.take())).wait().unwrap();
        drop(driver);
        volume.close().unwrap();
    });
}

/// Whoever drives the link is called for that, and panics.
#[test]
fn two_timers_are_dropped_inside_beside_a_driver_that_panics() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let driver = volume.drive();
        let timers = (0..2).map(|_| begun(volume.sleep(Duration::from_secs(3600))));
        TIMERS.set(timers.collect());
        volume.set_driver(&common::panicking_waker());
        let run = volume.with_pool(|_| drop(TIMERS.take()));
        let ran = catch_unwind(AssertUnwindSafe(|| run.wait()));
        assert!(ran.is_err(), "nobody was called");
        common::finish(&volume);
        drop(driver);
    });
}

/// Whoever waits hears that nobody drives the link any more.
#[test]
fn the_last_who_drives_the_link_goes_inside() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "one", 64 << 10);
        let (wakes, waker) = Wakes::new();
        DRIVER.set(Some(volume.drive()));
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        let mut context = Context::from_waker(&waker);
        assert!(read.as_mut().poll(&mut context).is_pending());
        let mut run = Box::pin(volume.with_pool(|_| drop(DRIVER.take())));
        let _ = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(wakes.count(), 1);
        assert!(read.as_mut().poll(&mut context).is_ready());
        drop((read, run));
    });
}

#[test]
fn a_read_of_a_stream_is_cancelled_inside() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let (one, _other) = UnixStream::pair().unwrap();
        let stream = volume.stream(one).unwrap();
        let driver = volume.drive();
        RECEIVED.set(Some(begun(stream.read(vec![7; 10]))));
        let inside = volume.with_pool(|_| RECEIVED.with_borrow_mut(|read| read.as_mut().unwrap().cancel()));
        inside.wait().unwrap();
        let failed = volume.block_on(RECEIVED.take().unwrap()).unwrap().unwrap_err();
        assert_eq!((failed.error.code(), failed.buffer), ("ECANCELED", Some(vec![7; 10])));
        drop(driver);
    });
}
