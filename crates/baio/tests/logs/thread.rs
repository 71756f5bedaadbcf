//! The thread that keeps a link's logs in segments of a broker: it reaps for all of the link, and so runs anybody's wakers.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use baio::{Link, Remote, SegmentOp, SegmentRequest};

use crate::rig::{Rig, far, payloads, segment};

/// A waker that panics on the thread of the logs.
struct Bad(AtomicBool);

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        if std::thread::current().name() == Some("baio-logs") && !self.0.swap(true, Ordering::SeqCst) {
            panic!("on purpose");
        }
    }
}

/// Who waits for a read has nothing to do with the log.
fn a_waker_panics_on(rig: &Rig) {
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
    let other = segment(&link, "other");
    let bad = Arc::new(Bad(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&bad));
    let begun = Instant::now();
    let mut kept = Vec::new();
    while !bad.0.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the logs' thread reaps");
        let read = SegmentRequest::new(other.handle(), SegmentOp::Read { offset: 0 }, link.buffer(512).unwrap());
        let ticket = link.start(read).unwrap();
        let is_pending = link.poll(ticket, &waker).is_pending();
        kept.push(log.append_durable(b"record").wait().unwrap());
        if is_pending {
            while link.poll(ticket, Waker::noop()).is_pending() {
                std::thread::yield_now();
            }
        }
    }
    // The log goes on, and others begin.
    kept.push(log.append_durable(b"after it").wait().unwrap());
    assert_eq!(payloads(&log).len(), kept.len());
    let another = other.create_log(&rig.options()).wait().unwrap();
    another.append_durable(b"another").wait().unwrap();
    another.close().wait().unwrap();
    log.close().wait().unwrap();
    drop((log, another, other));
    link.close().unwrap();
}

#[test]
fn a_waker_that_panics_is_not_the_logs() {
    far(a_waker_panics_on);
}

/// What a callback asks while another thread closes the link is answered or refused: they do not wait for each other.
fn a_callback_asks_while_the_link_is_closed_on(rig: &Rig) {
    for _ in 0..8 {
        let link = rig.link::<Remote>();
        let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
        let lsn = log.append(b"record").unwrap();
        let (tell, told) = mpsc::channel();
        let asks = log.clone();
        log.when_durable(lsn, move |_| {
            tell.send(()).unwrap();
            let begun = Instant::now();
            // Started when it is first polled, and let go at once.
            let mut context = std::task::Context::from_waker(Waker::noop());
            while begun.elapsed() < Duration::from_millis(20) {
                let _ = std::pin::pin!(asks.usage()).as_mut().poll(&mut context);
            }
        });
        told.recv().unwrap();
        drop(log);
        link.close().unwrap();
    }
}

#[test]
fn a_callback_asks_while_the_link_is_closed() {
    far(a_callback_asks_while_the_link_is_closed_on);
}
