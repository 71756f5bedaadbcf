//! Closing a link leaves nobody waiting for ever: what is under way ends, and whoever waits is woken and told.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use baio::{Access, Backend, Fault, Link, Local};

use crate::common::{self, Wakes};

#[test]
fn a_future_that_is_under_way_is_woken_and_told() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "open", 64 << 10);
    let _driver = volume.drive();
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    let (wakes, waker) = Wakes::new();
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    volume.clone().close().unwrap();
    assert_eq!(wakes.count(), 1);
    let Poll::Ready(ended) = read.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("pending for ever");
    };
    assert!(matches!(ended.unwrap_err().error.fault, Fault::Stale));
}

#[test]
fn a_future_that_waits_for_a_slot_is_woken_and_gets_its_buffer_back() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "full", 64 << 10);
    let _driver = volume.drive();
    let mut noop = Context::from_waker(Waker::noop());
    let mut reads: Vec<_> = (0..256)
        .map(|_| Box::pin(segment.read_at(0, segment.buffer(4096).unwrap())))
        .collect();
    for read in &mut reads {
        assert!(read.as_mut().poll(&mut noop).is_pending());
    }
    let (wakes, waker) = Wakes::new();
    let mut late = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    assert!(late.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    volume.clone().close().unwrap();
    assert!(wakes.count() > 0);
    let Poll::Ready(ended) = late.as_mut().poll(&mut noop) else {
        panic!("pending for ever");
    };
    let failed = ended.unwrap_err();
    assert!(matches!(failed.error.fault, Fault::Stale));
    assert_eq!(failed.buffer.unwrap().len(), 4096);
}

#[test]
fn requests_on_a_closed_link_are_told() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "gone", 64 << 10);
    let buffer = segment.buffer(4096).unwrap();
    volume.clone().close().unwrap();
    assert!(segment.buffer(4096).is_err());
    assert!(volume.list().wait().is_err());
    let ended = volume.block_on(segment.read_at(0, buffer)).unwrap();
    assert!(matches!(ended.unwrap_err().error.fault, Fault::Stale));
    assert!(
        volume.block_on(std::future::pending::<()>()).is_err(),
        "it cannot sleep"
    );
}

/// The panic is the caller's; what was written is on the device all the same.
#[test]
fn a_driver_that_panics_at_the_end_loses_no_cached_write() {
    let (_dir, path) = common::image(16 << 20);
    let options = common::cached_options(64, 64);
    let volume = Local::open_with(&path, &options).unwrap();
    let segment = common::segment(&volume, "written", 64 << 10);
    let mut page = segment.buffer(4096).unwrap();
    page.fill(7);
    segment.write_at(0, page).cached().wait().unwrap();
    volume.set_driver(&common::panicking_waker());
    let link = volume.clone();
    let closed = catch_unwind(AssertUnwindSafe(|| link.close()));
    assert!(closed.is_err(), "the waker did not panic");
    drop((segment, volume));
    let volume = Local::open_with(&path, &options).unwrap();
    let segment = volume.open_segment("written", Access::Read).wait().unwrap();
    let read = segment.read_at(0, segment.buffer(4096).unwrap()).wait().unwrap();
    assert!(read.buffer.iter().all(|byte| *byte == 7));
}
