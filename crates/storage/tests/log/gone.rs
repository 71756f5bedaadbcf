//! The promise: who waits for a log hears of it when the log goes, whatever had become of it before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use baio_engine::Errno;
use baio_storage::log::{LogError, LogRequest, Lsn, WaitKey};

use crate::rig::{Rig, Woken, record, small};

const SIZE: u64 = 8192 + (64 << 10);

/// A write has failed, the one before it is at the device still, and then nobody drives the log any more.
#[test]
fn a_failed_log_that_goes_tells_who_waits_for_what_was_before_the_failure() {
    let mut rig = Rig::create(SIZE, &small());
    let before = rig.batch(&record(1, 100));
    let failed = rig.batch(&record(2, 100));
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut key = WaitKey::default();
    let appender = rig.appender.clone();
    assert!(appender.poll_durable(Lsn(before), &mut key, &waker).is_pending());
    let told = Arc::new(AtomicUsize::new(0));
    let then = Arc::clone(&told);
    let callback = move |result: Result<(), LogError>| {
        assert!(result.is_err());
        then.fetch_add(1, Ordering::SeqCst);
    };
    appender.when_durable(Lsn(before), Box::new(callback));
    rig.fail(1, Errno::EIO, |_| false);
    assert!(matches!(
        appender.poll_durable(Lsn(failed), &mut WaitKey::default(), Waker::noop()),
        Poll::Ready(Err(LogError::Failed { .. }))
    ));
    drop(rig);
    assert_eq!(told.load(Ordering::SeqCst), 1, "the callback is told");
    assert_eq!(woken.count(), 1, "who waits is woken");
    match appender.poll_durable(Lsn(before), &mut key, &waker) {
        Poll::Ready(Err(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// With the log its driver has gone, who would call back.
#[test]
fn a_callback_is_told_after_the_log_has_gone() {
    let mut rig = Rig::create(SIZE, &small());
    let durable = rig.write(&record(1, 100));
    rig.ask(LogRequest::Close).unwrap();
    let appender = rig.appender.clone();
    drop(rig);
    let told = Arc::new(AtomicUsize::new(0));
    for (lsn, is_durable) in [(durable, true), (durable + (1 << 20), false)] {
        let then = Arc::clone(&told);
        let callback = move |result: Result<(), LogError>| {
            assert_eq!(result.is_ok(), is_durable, "{result:?}");
            then.fetch_add(1, Ordering::SeqCst);
        };
        appender.when_durable(Lsn(lsn), Box::new(callback));
    }
    assert_eq!(told.load(Ordering::SeqCst), 2);
}

/// One callback that panics keeps no other from being told that the log has gone.
#[test]
fn a_panic_in_a_callback_is_its_own() {
    let rig = Rig::create(SIZE, &small());
    let appender = rig.appender.clone();
    let told = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let then = Arc::clone(&told);
        let callback = move |result: Result<(), LogError>| {
            then.fetch_add(1, Ordering::SeqCst);
            result.unwrap(); // Panics, on purpose.
        };
        appender.when_durable(Lsn(1 << 30), Box::new(callback));
    }
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(rig)));
    drop(dropped);
    assert_eq!(told.load(Ordering::SeqCst), 3);
}
