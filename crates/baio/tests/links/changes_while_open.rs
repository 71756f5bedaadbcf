//! A segment that is open, and busy, is resized, moved and renamed: handles stay valid, what was written stays, and what
//! was gained reads as zero; on both links.

use baio::{Access, Backend, CreateOptions, Durability, Link, ResizeOptions, Segment};
use futures_util::future::join_all;

use crate::common::{self, remote};

const PAGE: usize = 4096;
const PAGES: u64 = 64;

fn to(pages: u64) -> ResizeOptions {
    ResizeOptions::to_size(pages * PAGE as u64)
}

fn stamp(page: u64, round: u8) -> u8 {
    (page as u8).wrapping_mul(31).wrapping_add(round) | 1
}

async fn fill<L: Link>(segment: &Segment<L>, round: u8) {
    let writes = (0..PAGES).map(|page| {
        let mut buffer = segment.buffer(PAGE).unwrap();
        buffer.fill(stamp(page, round));
        segment.write_at(page * PAGE as u64, buffer)
    });
    for done in join_all(writes).await {
        assert_eq!(done.unwrap().bytes, PAGE);
    }
    segment.sync(Durability::Data).await.unwrap();
}

async fn expect<L: Link>(segment: &Segment<L>, page: u64, byte: u8) {
    let buffer = segment.buffer(PAGE).unwrap();
    let read = segment.read_at(page * PAGE as u64, buffer).await;
    let done = read.unwrap_or_else(|failed| panic!("page {page}: {failed}"));
    assert_eq!(done.bytes, PAGE, "page {page}");
    assert!(
        done.buffer.iter().all(|&found| found == byte),
        "page {page} is not all {byte}"
    );
}

#[test]
fn on_the_callers_own_thread() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "a", PAGES * PAGE as u64);
    // Right behind it, so that growing has to move it.
    common::segment(&volume, "b", PAGE as u64);
    volume.block_on(fill(&segment, 1)).unwrap();
    let before = segment.info().start_block;
    let after = volume.resize_segment("a", &to(2 * PAGES)).wait().unwrap();
    assert_ne!(after.start_block, before, "it was not moved");
    assert_eq!(segment.size().wait().unwrap(), 2 * PAGES * PAGE as u64);
    volume
        .block_on(async {
            for page in 0..2 * PAGES {
                expect(&segment, page, if page < PAGES { stamp(page, 1) } else { 0 }).await;
            }
        })
        .unwrap();
    assert_eq!(volume.rename_segment("a", "c").wait().unwrap().name, "c");
    volume.block_on(fill(&segment, 2)).unwrap();
    let again = volume.open_segment("c", Access::Read).wait().unwrap();
    volume
        .block_on(async {
            for page in 0..PAGES {
                expect(&again, page, stamp(page, 2)).await;
            }
        })
        .unwrap();
    volume.delete_segment("c").wait().unwrap();
    volume.close().unwrap();
}

#[test]
fn on_a_thread_of_its_own_while_requests_go_on() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "a", PAGES * PAGE as u64);
    common::segment(&volume, "b", PAGE as u64);
    let work = async {
        fill(&segment, 1).await;
        let moved = async {
            for pages in [2 * PAGES, 4 * PAGES, PAGES] {
                volume.resize_segment("a", &to(pages)).await.unwrap();
                volume
                    .create_segment(&format!("in the way {pages}"), &CreateOptions::of_size(1))
                    .await
                    .unwrap();
            }
            volume.rename_segment("a", "c").await.unwrap()
        };
        let busy = async {
            for round in 2..20 {
                fill(&segment, round).await;
                for page in 0..PAGES {
                    expect(&segment, page, stamp(page, round)).await;
                }
            }
        };
        let (info, ()) = futures_util::future::join(moved, busy).await;
        assert_eq!((info.name.as_str(), info.size_bytes), ("c", PAGES * PAGE as u64));
        for page in 0..PAGES {
            expect(&segment, page, stamp(page, 19)).await;
        }
    };
    volume.block_on(work).unwrap();
    assert_eq!(segment.size().wait().unwrap(), PAGES * PAGE as u64);
}
