//! The promise: a segment's `discard`, `zero` and `fence` do over both links what they say: the ranges read as zeros, and a fence
//! ends behind the writes before it.

use baio::{
    Access, Backend, CreateOptions, Durability, Fault, Link, Local, Segment, SegmentOp, SegmentRequest, Status,
    StatusWord,
};

use crate::common::{self, remote};

const PAGE: usize = 4096;
const PAGES: usize = 16;

fn page<L: Link>(segment: &Segment<L>, byte: u8) -> baio::Buffer {
    let mut buffer = segment.buffer(PAGE).unwrap();
    buffer.fill(byte);
    buffer
}

async fn byte_at<L: Link>(segment: &Segment<L>, number: u64) -> u8 {
    let done = segment
        .read_at(number * PAGE as u64, page(segment, 0xee))
        .await
        .unwrap();
    assert_eq!(done.bytes, PAGE);
    let bytes = done.buffer;
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

async fn story<L: Link>(segment: &Segment<L>) {
    let words: Vec<StatusWord> = (0..PAGES).map(|_| StatusWord::default()).collect();
    let mut tickets = Vec::new();
    for (number, word) in (0..).zip(&words) {
        let op = SegmentOp::Write {
            offset: number * PAGE as u64,
        };
        let write = SegmentRequest {
            status: Some(word.clone()),
            ..segment.request(op, page(segment, 7))
        };
        tickets.push(segment.submit(write).unwrap());
    }
    segment.fence(Durability::Data).await.unwrap();
    for word in &words {
        assert_eq!(
            word.get(),
            Status::Done(PAGE as u32),
            "a fence ends behind what came before it"
        );
    }
    for ticket in tickets {
        assert!(segment.link().wait(ticket).unwrap().unwrap().result.is_ok());
    }

    for (number, range) in [
        (2, segment.discard(2 * PAGE as u64, PAGE as u64)),
        (5, segment.zero(5 * PAGE as u64, 2 * PAGE as u64)),
    ] {
        let ended = range.await;
        if number == 2 && matches!(&ended, Err(failed) if failed.error.code() == "EOPNOTSUPP") {
            eprintln!("SKIPPED: a discard: the file system cannot punch holes");
            continue;
        }
        assert_eq!(ended.unwrap().bytes, 0);
        assert_eq!(byte_at(segment, number).await, 0);
    }
    for (number, byte) in [(1, 7), (3, 7), (4, 7), (6, 0), (7, 7)] {
        assert_eq!(byte_at(segment, number).await, byte, "page {number}");
    }
    let beyond = segment.zero(0, (PAGES as u64 + 1) * PAGE as u64).await;
    assert!(matches!(beyond.unwrap_err().error.fault, Fault::Beyond { .. }));
    assert_eq!(byte_at(segment, 0).await, 7, "refused whole");
}

#[test]
fn in_this_thread() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "data", (PAGES * PAGE) as u64);
    volume.block_on(story(&segment)).unwrap();
}

#[test]
fn in_a_service() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "data", (PAGES * PAGE) as u64);
    volume.block_on(story(&segment)).unwrap();
}

#[test]
fn who_may_only_read_changes_nothing() {
    let (_dir, volume) = common::volume(Backend::Auto);
    volume
        .create_segment("data", &CreateOptions::of_size(PAGE as u64))
        .wait()
        .unwrap();
    let segment: Segment<Local> = volume.open_segment("data", Access::Read).wait().unwrap();
    for request in [segment.discard(0, PAGE as u64), segment.zero(0, PAGE as u64)] {
        assert!(matches!(request.wait().unwrap_err().error.fault, Fault::ReadOnly));
    }
    segment.fence(Durability::Data).wait().unwrap();
}
