//! Who is woken, called back or dropped by a log may use that log at once: the log's lock is free then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use baio_engine::Errno;
use baio_storage::log::{Appender, LogError, LogOptions, LogRequest, Lsn, WaitKey};

use crate::rig::{Rig, Woken, record, small};

const SIZE: u64 = 8192 + (64 << 10);

/// Takes the log's lock in every way.
fn use_log(appender: &Appender) {
    let _ = appender.append(b"from a waker");
    let mut key = WaitKey::default();
    let _ = appender.poll_durable(appender.end_lsn(), &mut key, Waker::noop());
    let _ = appender.poll_room(4000, &mut WaitKey::default(), Waker::noop());
    drop(appender.retain(appender.head_lsn()));
}

/// Uses the log whenever it is woken, and when it is dropped.
struct Greedy {
    appender: Appender,
    woken: Arc<AtomicUsize>,
}

impl Wake for Greedy {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        use_log(&self.appender);
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        use_log(&self.appender);
    }
}

/// A waker that nobody else keeps, and how often it was woken.
fn greedy(rig: &Rig) -> (Waker, Arc<AtomicUsize>) {
    let woken = Arc::new(AtomicUsize::new(0));
    let greedy = Greedy {
        appender: rig.appender.clone(),
        woken: Arc::clone(&woken),
    };
    (Waker::from(Arc::new(greedy)), woken)
}

/// Runs it in a thread of its own, as a lock that is taken twice waits for ever.
fn ends(name: &str, test: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = sender.send(());
    });
    let waited = receiver.recv_timeout(Duration::from_secs(60));
    if thread.is_finished() || waited.is_ok() {
        thread.join().expect(name);
    }
    assert!(waited.is_ok(), "{name}: it waits for its own lock");
}

/// Waits for these LSNs by one waker, and for the last by a callback.
fn wait_for(rig: &Rig, lsns: &[u64]) -> (Vec<WaitKey>, Arc<AtomicUsize>) {
    let (waker, woken) = greedy(rig);
    let keys = lsns.iter().map(|lsn| {
        let mut key = WaitKey::default();
        assert!(rig.appender.poll_durable(Lsn(*lsn), &mut key, &waker).is_pending());
        key
    });
    let keys = keys.collect();
    let appender = rig.appender.clone();
    let called = Arc::clone(&woken);
    let callback = move |_: Result<(), LogError>| {
        called.fetch_add(100, Ordering::Relaxed);
        use_log(&appender);
    };
    rig.appender
        .when_durable(Lsn(*lsns.last().unwrap()), Box::new(callback));
    (keys, woken)
}

#[test]
fn of_an_lsn_that_is_durable() {
    ends("durable", || {
        let mut rig = Rig::create(SIZE, &small());
        let lsns: Vec<u64> = (0..3).map(|number| rig.append(&record(number, 100))).collect();
        let (keys, woken) = wait_for(&rig, &lsns);
        rig.run();
        assert_eq!(woken.load(Ordering::Relaxed), 101);
        drop(keys);
    });
}

#[test]
fn of_a_write_that_failed() {
    ends("failed", || {
        let mut rig = Rig::create(SIZE, &small());
        let lsns: Vec<u64> = (0..3).map(|number| rig.batch(&record(number, 100))).collect();
        let (_keys, woken) = wait_for(&rig, &lsns);
        rig.fail(1, Errno::EIO, |_| false);
        rig.run();
        assert!(woken.load(Ordering::Relaxed) > 100);
    });
}

#[test]
fn of_a_log_that_is_closed_or_dropped() {
    ends("closed", || {
        let mut rig = Rig::create(SIZE, &small());
        let next = rig.appender.end_lsn().0;
        let (_keys, woken) = wait_for(&rig, &[next, next]);
        rig.ask(LogRequest::Close).unwrap();
        assert_eq!(woken.load(Ordering::Relaxed), 101);
    });
    ends("dropped", || {
        let mut rig = Rig::create(SIZE, &small());
        let lsn = rig.batch(b"one");
        let (_keys, woken) = wait_for(&rig, &[lsn]);
        drop(rig.part);
        assert_eq!(woken.load(Ordering::Relaxed), 101);
    });
}

#[test]
fn of_room() {
    ends("room", || {
        let mut rig = Rig::create(SIZE, &LogOptions { window: 1, ..small() });
        while rig.appender.append(&record(0, 1900)).is_ok() {}
        let (waker, woken) = greedy(&rig);
        let mut keys = [WaitKey::default(), WaitKey::default()];
        for key in &mut keys {
            assert!(rig.appender.poll_room(1900, key, &waker).is_pending());
        }
        drop(waker);
        rig.run();
        let head = rig.appender.durable_lsn().0;
        rig.truncate(head);
        rig.run();
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn of_a_truncation_that_waits() {
    ends("wanted", || {
        let mut rig = Rig::create(SIZE, &small());
        let first = rig.write(b"one");
        let retained = rig.appender.retain(Lsn(first));
        let last = rig.write(b"two");
        for _ in 0..2 {
            // The second takes the place of the first.
            let (waker, _) = greedy(&rig);
            assert!(retained.poll_wanted(&waker).is_pending());
        }
        let (waker, woken) = greedy(&rig);
        assert!(retained.poll_wanted(&waker).is_pending());
        drop(waker);
        rig.truncate(last);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        drop(retained);
        rig.run();
    });
}

#[test]
fn of_places_that_are_given_up() {
    ends("given up", || {
        let mut rig = Rig::create(SIZE, &small());
        let lsn = rig.batch(b"one");
        let mut key = WaitKey::default();
        for _ in 0..2 {
            let (waker, _) = greedy(&rig);
            assert!(rig.appender.poll_durable(Lsn(lsn), &mut key, &waker).is_pending());
        }
        drop(key);
        let mut key = WaitKey::default();
        let (waker, woken) = greedy(&rig);
        assert!(rig.appender.poll_durable(Lsn(lsn), &mut key, &waker).is_pending());
        drop(waker);
        rig.part.stir();
        rig.collect();
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        rig.run();
    });
}

#[test]
fn a_driver_that_goes_after_a_failed_write_leaves_nobody_waiting() {
    let mut rig = Rig::create(SIZE, &small());
    let lsns: Vec<u64> = (0..3).map(|number| rig.batch(&record(number, 100))).collect();
    rig.fail(1, Errno::EIO, |_| false);
    // The one in front of it may still end well.
    let woken = Arc::new(Woken::default());
    let mut key = WaitKey::default();
    let poll = |rig: &Rig, key: &mut WaitKey| {
        let waker = Waker::from(Arc::clone(&woken));
        rig.appender.poll_durable(Lsn(lsns[0]), key, &waker)
    };
    assert!(poll(&rig, &mut key).is_pending());
    let told = Arc::new(Mutex::new(None));
    let into = Arc::clone(&told);
    let callback = move |result| *into.lock().unwrap() = Some(result);
    rig.appender.when_durable(Lsn(lsns[0]), Box::new(callback));
    let Rig { part, appender, .. } = rig;
    drop(part);
    assert_eq!(woken.count(), 1);
    let expected = LogError::Failed {
        errno: Errno::EIO,
        lsn: Lsn(lsns[0] / 512 * 512),
    };
    assert_eq!(told.lock().unwrap().take(), Some(Err(expected.clone())));
    let polled = appender.poll_durable(Lsn(lsns[0]), &mut key, Waker::noop());
    assert_eq!(polled, Poll::Ready(Err(expected)));
}
