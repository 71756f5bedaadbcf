//! The promise: a loop of one's own sleeps on the link's descriptor, which is readable while an outcome lies there that nobody awaits or the link has
//! ended, and only then.

use std::os::fd::OwnedFd;

use baio::{Access, Backend, CreateOptions, Link, Local, Remote, Segment, SegmentOp, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::common::broker::Served;
use crate::common::{image, options, remote};

/// Looks, or sleeps until it is.
fn is_readable(event: &OwnedFd, sleeps: bool) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(event, PollFlags::IN)];
    poll(&mut fds, (!sleeps).then_some(&now)).unwrap() > 0
}

fn story(link: &Remote) -> Segment<Remote> {
    const REQUESTS: u64 = 16;
    link.create_segment("event", &CreateOptions::of_size(1 << 20))
        .wait()
        .unwrap();
    let segment = link.open_segment("event", Access::Write).wait().unwrap();
    let event = link.event_fd().unwrap();
    assert!(!is_readable(&event, false), "nothing was asked for");
    for round in 0..10 {
        for nth in 0..REQUESTS {
            let mut page = segment.buffer(4096).unwrap();
            page.fill(round);
            let op = SegmentOp::Write { offset: nth * 4096 };
            segment.submit(segment.request(op, page)).unwrap();
        }
        link.turn(Wait::No).unwrap();
        let mut ended = 0;
        while ended < REQUESTS {
            assert!(is_readable(&event, true));
            let before = ended;
            while let Some(outcome) = link.next_outcome() {
                assert_eq!(outcome.result.unwrap(), 4096);
                ended += 1;
            }
            assert!(ended > before, "readable, and nothing there");
        }
        assert!(!is_readable(&event, false), "all was taken");
    }
    // What somebody awaits is that one's.
    let page = segment.buffer(4096).unwrap();
    let waited = segment
        .submit(segment.request(SegmentOp::Read { offset: 0 }, page))
        .unwrap();
    assert_eq!(link.wait(waited).unwrap().unwrap().result.unwrap(), 4096);
    let read = segment.read_at(0, segment.buffer(4096).unwrap()).wait().unwrap();
    assert!(read.buffer.iter().all(|byte| *byte == 9));
    assert!(!is_readable(&event, false), "it is another's");
    // A second copy says the same.
    let copy = link.event_fd().unwrap();
    let page = segment.buffer(4096).unwrap();
    segment
        .submit(segment.request(SegmentOp::Read { offset: 0 }, page))
        .unwrap();
    link.turn(Wait::No).unwrap();
    assert!(is_readable(&copy, true) && is_readable(&event, false));
    assert!(link.next_outcome().is_some() && !is_readable(&copy, false));
    segment
}

/// Nothing but the link: as many requests under way as it has, each edge followed until nothing is there.
fn edges<L: Link>(link: &L, segment: &Segment<L>) {
    const REQUESTS: u64 = 400;
    let event = link.event_fd().unwrap();
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&set, &event, epoll::EventData::new_u64(7), flags).unwrap();
    let (mut started, mut ended) = (0, 0);
    while ended < REQUESTS {
        while started < REQUESTS && started - ended < 8 {
            let page = segment.buffer(4096).unwrap();
            let op = SegmentOp::Read {
                offset: started % 16 * 4096,
            };
            segment.submit(segment.request(op, page)).unwrap();
            started += 1;
        }
        link.turn(Wait::No).unwrap();
        let mut events = Vec::with_capacity(1);
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(count) => assert_eq!(count, 1),
            // A ring of this thread interrupts its calls, and this one is not begun again by itself.
            Err(error) => assert_eq!(error, rustix::io::Errno::INTR),
        }
        link.turn(Wait::No).unwrap();
        while let Some(outcome) = link.next_outcome() {
            assert_eq!(outcome.result.unwrap(), 4096);
            ended += 1;
        }
    }
}

#[test]
fn a_loop_sleeps_on_a_link_to_a_thread() {
    let (_dir, link) = remote::volume(Backend::Auto);
    let segment = story(&link);
    edges(&link, &segment);
    let event = link.event_fd().unwrap();
    let other = link.clone();
    std::thread::spawn(move || other.close().unwrap());
    assert!(is_readable(&event, true));
    while link.turn(Wait::No).is_ok() {}
    drop((link, segment));
    assert!(is_readable(&event, false), "it has ended");
}

#[test]
fn a_loop_sleeps_on_a_link_to_a_broker() {
    let mut served = Served::new(|_| {});
    let link = served.connect();
    let segment = story(&link);
    edges(&link, &segment);
    let event = link.event_fd().unwrap();
    assert!(!is_readable(&event, false));
    served.end();
    assert!(is_readable(&event, true), "the broker has ended");
    let error = link.turn(Wait::No).unwrap_err();
    assert_eq!(error.errno(), Some(baio::Errno::EPIPE));
}

/// In the caller's own thread: each backend that has requests under way, whether it has a descriptor or is looked at now and then.
#[test]
fn a_loop_sleeps_on_a_link_of_its_own_thread() {
    for backend in [Backend::Auto, Backend::Threads, Backend::Sync] {
        let (_dir, path) = image(16 << 20);
        let link = Local::open_with(&path, &options(backend, 128)).unwrap();
        link.create_segment("event", &CreateOptions::of_size(1 << 20))
            .wait()
            .unwrap();
        let segment = link.open_segment("event", Access::Write).wait().unwrap();
        edges(&link, &segment);
        let event = link.event_fd().unwrap();
        link.turn(Wait::No).unwrap();
        assert!(!is_readable(&event, false), "all was taken");
        drop(segment);
        link.close().unwrap();
    }
}
