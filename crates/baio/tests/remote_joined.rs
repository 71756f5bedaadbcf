//! The stories of the local link, told again over a service thread: joined futures go in one batch, refusals answer,
//! tickets, status words and the queue tell the same, and what differs are the auto traits only.

mod common;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use baio::{
    Access, Asked, Choice, CreateOptions, Durability, Fault, InFlight, Link, Local, Remote, Segment, SegmentInfo,
    SegmentOp, Status, StatusWord, Ticket, Wait,
};
use common::remote;
use futures_util::future::join_all;

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Remote>();
    is_send_and_sync::<Segment<Remote>>();
    is_send_and_sync::<InFlight<Remote>>();
    is_send_and_sync::<Asked<Segment<Remote>>>();
    is_send_and_sync::<Asked<Vec<SegmentInfo>>>();
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
    let _ = <InFlight<Local> as NotSend<_>>::holds;
};

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn sixty_four_joined_futures_cost_one_submission() {
    let (_dir, volume) = remote::volume(Choice::Auto);
    let segment = remote::segment(&volume, "many", 1 << 20);
    let before = volume.stats();
    let reads = (0..64).map(|block| segment.read_at(block * 4096, segment.buffer(4096).unwrap()));
    let outcomes = volume.block_on(join_all(reads)).unwrap();
    let after = volume.stats();
    assert!(outcomes.into_iter().all(|outcome| outcome.result.unwrap() == 4096));
    assert_eq!(after.requests - before.requests, 64);
    assert_eq!(after.batches - before.batches, 1, "one batch for all of them");
    volume.close().unwrap();
}

#[test]
fn a_future_needs_no_driver() {
    let (_dir, volume) = remote::volume(Choice::Auto);
    let segment = remote::segment(&volume, "alone", 64 << 10);
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    let outcome = loop {
        if let Poll::Ready(outcome) = read.as_mut().poll(&mut context) {
            break outcome;
        }
        while !flag.0.swap(false, Ordering::SeqCst) {
            std::thread::yield_now();
        }
    };
    assert_eq!(outcome.result.unwrap(), 4096);
}

#[test]
fn more_futures_than_slots_all_complete() {
    for backend in [Choice::Auto, Choice::Sync] {
        let (_dir, volume) = remote::volume(backend);
        let segment = remote::segment(&volume, "crowd", 1 << 20);
        let reads = (0..1500_u64).map(|n| {
            let segment = segment.clone();
            async move {
                let outcome = segment.read_at(n % 256 * 4096, segment.buffer(4096).unwrap()).await;
                outcome.result.unwrap()
            }
        });
        let done = volume.block_on(join_all(reads)).unwrap();
        assert_eq!(done.len(), 1500);
        assert_eq!(volume.in_flight(), 0);
    }
}

#[test]
fn thousands_of_tickets_are_handed_back_when_every_place_is_taken() {
    let (_dir, volume) = remote::volume(Choice::Auto);
    let segment = remote::segment(&volume, "full", 1 << 20);
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
    let (_dir_1, here) = common::volume(Choice::Auto);
    let (_dir_2, there) = remote::volume(Choice::Auto);
    let local = common::segment(&here, "same", 64 << 10);
    let distant = remote::segment(&there, "same", 64 << 10);
    // The volumes differ by their directories only.
    let told = |error: baio::Error| {
        let text = error.to_string();
        let (before, after) = text.split_once("/volume.img").unwrap();
        (
            before.split(' ').next().unwrap().to_owned(),
            after.to_owned(),
            error.code(),
            error.errno(),
        )
    };
    macro_rules! same {
        ($segment:ident => $future:expr) => {{
            let $segment = &local;
            let mine = told(here.block_on($future).unwrap().result.unwrap_err());
            let $segment = &distant;
            let theirs = told(there.block_on($future).unwrap().result.unwrap_err());
            assert_eq!(mine, theirs);
        }};
    }
    same!(segment => segment.write_at(1, segment.buffer(4096).unwrap()));
    same!(segment => segment.write_at(64 << 10, segment.buffer(4096).unwrap()));
    same!(segment => segment.write_at(u64::MAX, segment.buffer(4096).unwrap()));
    same!(segment => segment.read_at(0, segment.buffer(100).unwrap()));
    same!(segment => {
        let mut request = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
        request.mode = baio::Mode::Cached;
        segment.run(request)
    });
    let cut = there
        .block_on(distant.read_at(60 << 10, distant.buffer(8192).unwrap()))
        .unwrap();
    assert_eq!((cut.result.unwrap(), cut.memory.len()), (4096, 4096));
    assert_eq!(
        distant
            .link()
            .size(distant.request(SegmentOp::Sync, baio::Memory::None).handle)
            .unwrap(),
        64 << 10
    );
}

#[test]
fn tickets_status_words_and_the_queue_tell_the_same() {
    let (_dir, volume) = remote::volume(Choice::Auto);
    let segment = remote::segment(&volume, "paper", 1 << 20);
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
}

#[test]
fn requests_and_tickets_of_another_volume_are_strangers() {
    let (_dir_1, one) = remote::volume(Choice::Auto);
    let (_dir_2, two) = remote::volume(Choice::Auto);
    let theirs = remote::segment(&one, "theirs", 64 << 10);
    let ours = remote::segment(&two, "ours", 64 << 10);
    let request = theirs.request(SegmentOp::Write { offset: 0 }, ours.buffer(4096).unwrap());
    let outcome = two.block_on(ours.run(request)).unwrap();
    assert!(matches!(outcome.result.unwrap_err().fault, Fault::Stale));
    // A buffer of another volume's arena does its work too.
    let mut buffer = theirs.buffer(4096).unwrap();
    buffer.fill(9);
    two.block_on(ours.write_at(0, buffer)).unwrap().result.unwrap();
    let read = two.block_on(ours.read_at(0, theirs.buffer(4096).unwrap())).unwrap();
    assert!(read.memory.into_buffer().unwrap().iter().all(|&byte| byte == 9));
    let theirs = theirs
        .submit(theirs.request(SegmentOp::Sync, baio::Memory::None))
        .unwrap();
    assert!(two.wait(theirs).unwrap().is_none());
    two.abandon(theirs);
    assert!(one.wait(theirs).unwrap().is_some());
}

#[test]
fn a_stale_ticket_touches_nobody() {
    let (_dir, volume) = remote::volume(Choice::Auto);
    let segment = remote::segment(&volume, "stale", 64 << 10);
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
    let (free, requests) = (volume.arena_free_bytes(), volume.stats().requests);
    let unsent = segment.submit(read()).unwrap();
    assert_eq!(volume.arena_free_bytes(), free - 4096);
    volume.abandon(unsent);
    assert_eq!((volume.arena_free_bytes(), volume.in_flight()), (free, 0));
    assert_eq!(volume.stats().requests, requests);
}

#[test]
fn lists_and_shared_memory_go_through() {
    let (_dir, volume) = remote::volume(Choice::Auto);
    let segment = remote::segment(&volume, "lists", 64 << 10);
    let mut page = segment.buffer(4096).unwrap();
    page.fill(3);
    let frozen = page.freeze();
    let mut list = baio::Vectored::with_capacity(2);
    list.push(frozen.clone().into()).unwrap();
    list.push(frozen.into()).unwrap();
    let write = segment.request(SegmentOp::Write { offset: 4096 }, baio::Memory::Many(list));
    assert_eq!(volume.block_on(segment.run(write)).unwrap().result.unwrap(), 8192);
    let back = volume
        .block_on(segment.read_at(0, segment.buffer(16384).unwrap()))
        .unwrap();
    let back = back.memory.into_buffer().unwrap();
    assert!(back[4096..12288].iter().all(|&byte| byte == 3));
    assert!(back[..4096].iter().chain(&back[12288..]).all(|&byte| byte == 0));
}

#[test]
fn operations_are_futures_and_requests_go_on_beside_them() {
    let (_dir, volume) = remote::volume(Choice::Auto);
    let segment = remote::segment(&volume, "first", 64 << 10);
    let work = async {
        let big = volume.create_segment("second", &CreateOptions::of_size(4 << 20));
        let read = segment.read_at(0, segment.buffer(4096).unwrap());
        let (made, read) = futures_util::future::join(big, read).await;
        assert_eq!((made?.size_bytes, read.result?), (4 << 20, 4096));
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
        let error = second.write_at(0, second.buffer(4096)?).await.result.unwrap_err();
        assert_eq!(error.code(), "EBADF");
        volume.delete_segment("second").await?;
        let gone = second.read_at(0, second.buffer(4096)?).await.result.unwrap_err();
        assert_eq!(gone.code(), "ESTALE");
        assert_eq!(volume.list().await?.len(), 1);
        // Asked in one batch: the list waits for no segment that is being made, and may show it or not.
        let create = volume.create_segment("third", &CreateOptions::of_size(64 << 10));
        let (made, listed) = futures_util::future::join(create, volume.list()).await;
        assert_eq!(made?.name.as_str(), "third");
        assert!(listed?.iter().any(|info| info.name == "first"));
        assert_eq!(volume.list().await?.len(), 2);
        segment.sync(Durability::Data).await.result
    };
    volume.block_on(work).unwrap().unwrap();
    assert_ne!(volume.backend(), "none");
}
