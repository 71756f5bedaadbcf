//! Over a service thread refusals answer as they do locally, tickets and memory of strangers do no harm, operations go on beside
//! requests, and what differs are the auto traits only.

use std::future::Future;
use std::task::{Context, Poll};

use baio::{
    Access, Backend, Buffer, CreateOptions, Durability, Error, Fault, Link, Local, Operation, Remote, Request, Segment,
    SegmentInfo, SegmentOp, Ticket, Wait,
};

use crate::common::{self, remote};

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Remote>();
    is_send_and_sync::<Segment<Remote>>();
    is_send_and_sync::<Request<Remote, Buffer>>();
    is_send_and_sync::<Operation<Remote, Segment<Remote>>>();
    is_send_and_sync::<Operation<Remote, Vec<SegmentInfo>>>();
};

/// `Segment<Local>` is not `Send`: with both impls the call below would be ambiguous.
const _: () = {
    trait NotSend<A> {
        fn holds() {}
    }
    struct Anything;
    struct OnlySend;
    impl<T> NotSend<Anything> for T {}
    impl<T: Send> NotSend<OnlySend> for T {}
    let _ = <Segment<Local> as NotSend<_>>::holds;
    let _ = <Request<Local, Buffer> as NotSend<_>>::holds;
};

#[test]
fn a_future_needs_no_driver() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "alone", 64 << 10);
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    let (wakes, waker) = common::Wakes::new();
    let mut context = Context::from_waker(&waker);
    let ended = loop {
        if let Poll::Ready(ended) = read.as_mut().poll(&mut context) {
            break ended;
        }
        while wakes.take() == 0 {
            std::thread::yield_now();
        }
    };
    assert_eq!(ended.unwrap().bytes, 4096);
}

#[test]
fn thousands_of_tickets_are_handed_back_when_every_place_is_taken() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "full", 1 << 20);
    let (mut next, mut ended, mut handed_back) = (0_u64, 0_u64, 0);
    let mut seen = vec![false; 5000];
    while ended < 5000 {
        while next < 5000 {
            let mut request = segment.request(
                SegmentOp::Read {
                    offset: next % 256 * 4096,
                },
                segment.buffer(4096).unwrap(),
            );
            request.tag = next;
            match segment.submit(request) {
                Ok(_) => next += 1,
                Err(request) => {
                    assert_eq!((request.tag, request.memory.len()), (next, 4096), "handed back whole");
                    handed_back += 1;
                    break;
                }
            }
        }
        volume.turn(Wait::one()).unwrap();
        while let Some(outcome) = volume.next_outcome() {
            assert_eq!(outcome.result.unwrap(), 4096);
            assert!(!std::mem::replace(&mut seen[outcome.tag as usize], true), "told twice");
            ended += 1;
        }
    }
    assert!(handed_back > 0);
    assert_eq!(volume.in_flight(), 0);
}

#[test]
fn a_refused_request_is_told_as_it_is_locally() {
    let (_dir_1, here) = common::volume(Backend::Auto);
    let (_dir_2, there) = remote::volume(Backend::Auto);
    let local = common::segment(&here, "same", 64 << 10);
    let distant = common::segment(&there, "same", 64 << 10);
    // The volumes differ by their directories only.
    let told = |error: Error| {
        let text = error.to_string();
        let (before, after) = text.split_once("/volume.img").unwrap();
        (
            before.split(' ').next().unwrap().to_owned(),
            after.to_owned(),
            error.code(),
            error.errno(),
        )
    };
    for (mine, theirs) in refusals(&local).into_iter().zip(refusals(&distant)) {
        assert_eq!(told(mine), told(theirs));
    }
    let cut = distant.read_at(60 << 10, distant.buffer(8192).unwrap()).wait().unwrap();
    assert_eq!(
        (cut.bytes, cut.buffer.len()),
        (4096, 8192),
        "the buffer comes back as it went in"
    );
    assert_eq!(distant.size().wait().unwrap(), 64 << 10);
}

fn refusals<L: Link>(segment: &Segment<L>) -> [Error; 5] {
    let buffer = |len| segment.buffer(len).unwrap();
    let requests = [
        segment.write_at(1, buffer(4096)),
        segment.write_at(64 << 10, buffer(4096)),
        segment.write_at(u64::MAX, buffer(4096)),
        segment.read_at(0, buffer(100)),
        segment.read_at(0, buffer(4096)).cached(),
    ];
    requests.map(|request| request.wait().unwrap_err().error)
}

#[test]
fn requests_and_tickets_of_another_volume_are_strangers() {
    let (_dir_1, one) = remote::volume(Backend::Auto);
    let (_dir_2, two) = remote::volume(Backend::Auto);
    let theirs = common::segment(&one, "theirs", 64 << 10);
    let ours = common::segment(&two, "ours", 64 << 10);
    let request = theirs.request(SegmentOp::Write { offset: 0 }, ours.buffer(4096).unwrap());
    let failed = ours.run(request).wait().unwrap_err();
    assert!(matches!(failed.error.fault, Fault::Stale));
    // A buffer of another volume's arena does its work too.
    let mut buffer = theirs.buffer(4096).unwrap();
    buffer.fill(9);
    ours.write_at(0, buffer).wait().unwrap();
    let read = ours.read_at(0, theirs.buffer(4096).unwrap()).wait().unwrap();
    assert!(read.buffer.iter().all(|&byte| byte == 9));
    let theirs = theirs
        .submit(theirs.request(SegmentOp::Sync, baio::Memory::None))
        .unwrap();
    assert!(two.wait(theirs).unwrap().is_none());
    two.abandon(theirs);
    assert!(one.wait(theirs).unwrap().is_some());
}

#[test]
fn a_stale_ticket_touches_nobody() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "stale", 64 << 10);
    let read = || segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
    let old = segment.submit(read()).unwrap();
    assert!(volume.wait(old).unwrap().is_some());
    // The same place, queued and not sent.
    let new = segment.submit(read()).unwrap();
    volume.abandon(old);
    volume.abandon(Ticket::default());
    let outcome = volume.wait(new).unwrap().unwrap();
    assert_eq!((outcome.result.unwrap(), outcome.memory.len()), (4096, 4096));
    // Abandoned before it was sent: its memory is back at once, and it is never run.
    let (free, requests) = (volume.arena_free_bytes(), volume.stats().wait().unwrap().requests);
    let unsent = segment.submit(read()).unwrap();
    assert_eq!(volume.arena_free_bytes(), free - 4096);
    volume.abandon(unsent);
    assert_eq!((volume.arena_free_bytes(), volume.in_flight()), (free, 0));
    assert_eq!(volume.stats().wait().unwrap().requests, requests);
}

#[test]
fn lists_and_shared_memory_go_through() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "lists", 64 << 10);
    let mut page = segment.buffer(4096).unwrap();
    page.fill(3);
    let frozen = page.freeze();
    let mut list = baio::Vectored::with_capacity(2);
    list.push(frozen.clone().into()).unwrap();
    list.push(frozen.into()).unwrap();
    let write = segment.request(SegmentOp::Write { offset: 4096 }, baio::Memory::Many(list));
    assert_eq!(segment.run(write).wait().unwrap().bytes, 8192);
    let back = segment
        .read_at(0, segment.buffer(16384).unwrap())
        .wait()
        .unwrap()
        .buffer;
    assert!(back[4096..12288].iter().all(|&byte| byte == 3));
    assert!(back[..4096].iter().chain(&back[12288..]).all(|&byte| byte == 0));
}

#[test]
fn operations_are_futures_and_requests_go_on_beside_them() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "first", 64 << 10);
    let work = async {
        let big = volume.create_segment("second", &CreateOptions::of_size(4 << 20));
        let read = segment.read_at(0, segment.buffer(4096).unwrap());
        let (made, read) = futures_util::future::join(big, read).await;
        assert_eq!((made?.size_bytes, read?.bytes), (4 << 20, 4096));
        assert!(
            volume
                .create_segment("second", &CreateOptions::of_size(4096))
                .await
                .is_err()
        );
        assert!(volume.open_segment("none", Access::Read).await.is_err());
        let names: Vec<String> = volume.list().await?.into_iter().map(|info| info.name).collect();
        assert!(names.contains(&"first".into()) && names.contains(&"second".into()));
        assert_eq!(volume.info().await?.own.used.segments, 2);
        let second = volume.open_segment("second", Access::Read).await?;
        let failed = second.write_at(0, second.buffer(4096)?).await.unwrap_err();
        assert_eq!(failed.error.code(), "EBADF");
        volume.delete_segment("second").await?;
        let gone = second.read_at(0, second.buffer(4096)?).await.unwrap_err();
        assert_eq!(gone.error.code(), "ESTALE");
        assert_eq!(volume.list().await?.len(), 1);
        // Asked in one batch: the list waits for no segment that is being made, and may show it or not.
        let create = volume.create_segment("third", &CreateOptions::of_size(64 << 10));
        let (made, listed) = futures_util::future::join(create, volume.list()).await;
        assert_eq!(made?.name.as_str(), "third");
        assert!(listed?.iter().any(|info| info.name == "first"));
        assert_eq!(volume.list().await?.len(), 2);
        segment.sync(Durability::Data).await.map_err(Error::from)
    };
    volume.block_on(work).unwrap().unwrap();
    assert_ne!(volume.backend().wait().unwrap(), "none");
}
