//! The lower shapes: tickets, turns, outcomes.

use std::task::{Poll, Waker};

use baio::{Link, Memory, Segment, SegmentOp, SegmentRequest, Ticket, Wait};

use crate::rig::{Made, PAGE, Volume, page, segment, until};

fn read<L: Link>(open: &Segment<L>, nth: u64) -> SegmentRequest {
    open.request(SegmentOp::Read { offset: nth * 4096 }, page(open.link(), 0xee))
}

pub(crate) fn tickets_are_waited_for<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let tickets: Vec<_> = (0..8).map(|nth| open.submit(read(&open, nth)).unwrap()).collect();
    for ticket in tickets.into_iter().rev() {
        let outcome = link.wait(ticket).unwrap().unwrap();
        assert_eq!(
            (outcome.ticket, outcome.result.unwrap(), outcome.memory.len()),
            (ticket, 4096, PAGE)
        );
        assert!(link.wait(ticket).unwrap().is_none());
    }
    assert!(link.next_outcome().is_none());
}

pub(crate) fn outcomes_come_in_turn<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    for nth in 0..8 {
        let tagged = SegmentRequest {
            tag: 100 + nth,
            ..read(&open, nth)
        };
        link.start(tagged).unwrap();
    }
    let mut tags = Vec::new();
    while tags.len() < 8 {
        link.turn(Wait::one()).unwrap();
        while let Some(outcome) = link.next_outcome() {
            assert_eq!(outcome.result.unwrap(), 4096);
            tags.push(outcome.tag);
        }
    }
    tags.sort_unstable();
    assert!(tags.into_iter().eq(100..108));
    assert_eq!((link.in_flight(), link.turn(Wait::No).unwrap()), (0, 0));
}

pub(crate) fn a_ticket_is_polled<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let ticket = open.submit(read(&open, 0)).unwrap();
    let mut ended = None;
    until(&link, "the ticket ends", || match link.poll(ticket, Waker::noop()) {
        Poll::Ready(outcome) => {
            ended = outcome;
            true
        }
        Poll::Pending => false,
    });
    assert_eq!(ended.unwrap().result.unwrap(), 4096);
    assert!(matches!(link.poll(ticket, Waker::noop()), Poll::Ready(None)));
}

pub(crate) fn a_ticket_is_cancelled_and_abandoned<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let free = link.arena_free_bytes();
    let open = segment(&link, "one", 8);
    for _ in 0..10 {
        let (one, two) = (
            open.submit(read(&open, 0)).unwrap(),
            open.submit(read(&open, 1)).unwrap(),
        );
        link.cancel(one);
        link.abandon(two);
        match link.wait(one).unwrap().unwrap().result {
            Ok(bytes) => assert_eq!(bytes, 4096),
            Err(error) => assert!(matches!(error.code(), "ECANCELED" | "EINDETERMINATE"), "{error}"),
        }
        assert!(link.wait(two).unwrap().is_none());
    }
    until(&link, "all memory is back", || link.arena_free_bytes() == free);
}

pub(crate) fn a_stranger_is_nobody<L: Made>() {
    let (volume, other) = (Volume::new(), Volume::new());
    let (link, another): (L, L) = (volume.link(), other.link());
    let (open, theirs) = (segment(&link, "one", 8), segment(&another, "one", 8));
    let outcome = link
        .block_on(open.run(theirs.request(SegmentOp::Sync, Memory::None)))
        .unwrap();
    assert!(matches!(outcome.unwrap_err().error.fault, baio::Fault::Stale));
    assert!(link.wait(Ticket::default()).unwrap().is_none());
    link.cancel(Ticket::default());
    link.abandon(Ticket::default());
    // A buffer of another link's arena is memory like any other.
    let mut foreign = another.buffer(PAGE).unwrap();
    foreign.fill(9);
    assert_eq!(open.write_at(0, foreign).wait().unwrap().buffer[..], [9; PAGE]);
    assert_eq!(crate::rig::byte_of(&open, 0), 9);
}
