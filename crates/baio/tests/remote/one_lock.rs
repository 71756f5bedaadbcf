//! The promise: to send a request through a broker takes one lock, by ticket and awaited, of a link that goes on with the next broker too.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use baio::{Access, CreateOptions, Link, LinkOptions, Reconnect, Remote, SegmentOp};
use baio_client::locks_taken;

use crate::common::broker::Served;

/// They are counted where builds check themselves.
const ONE: u64 = cfg!(debug_assertions) as u64;

fn counted<T>(act: impl FnOnce() -> T) -> (u64, T) {
    let before = locks_taken();
    let done = act();
    (locks_taken() - before, done)
}

fn story(link: &Remote) {
    link.create_segment("lock", &CreateOptions::of_size(1 << 20))
        .wait()
        .unwrap();
    let segment = link.open_segment("lock", Access::Write).wait().unwrap();
    for round in 0..3 {
        let page = segment.buffer(4096).unwrap();
        let request = segment.request(SegmentOp::Write { offset: 0 }, page);
        let (locks, ticket) = counted(|| segment.submit(request).unwrap());
        assert_eq!(locks, ONE, "by ticket, round {round}");
        assert_eq!(link.wait(ticket).unwrap().unwrap().result.unwrap(), 4096);

        let mut write = pin!(segment.write_at(0, segment.buffer(4096).unwrap()).cached());
        let (locks, polled) = link
            .block_on(async { counted(|| write.as_mut().poll(&mut Context::from_waker(Waker::noop()))) })
            .unwrap();
        assert!(matches!(polled, Poll::Pending));
        assert_eq!(locks, ONE, "awaited, round {round}");
        assert_eq!(link.block_on(write).unwrap().unwrap().bytes, 4096);
    }
}

#[test]
fn a_request_is_sent_with_one_lock() {
    let served = Served::new(|_| {});
    story(&served.connect());
}

#[test]
fn a_request_that_may_go_on_with_the_next_broker_too() {
    let served = Served::new(|_| {});
    let options = LinkOptions {
        reconnect: Reconnect::Within(Duration::from_secs(60)),
        ..LinkOptions::default()
    };
    story(&Remote::connect_with(&served.socket, "served", &options).unwrap());
}
