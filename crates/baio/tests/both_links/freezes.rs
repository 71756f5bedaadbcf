//! A volume stays frozen for as long as its freeze is there; the end of the link waits neither for it nor for what waits for the thaw.

use std::time::{Duration, Instant};

use baio::{CreateOptions, Link, Segment, SegmentOp, Wait};
use futures_util::future::join4;

use crate::rig::{Made, Volume, once, page, segment};

/// An end that waits for the thaw lasts for ever; a machine that has much to do is no such end.
const SOON: Duration = Duration::from_secs(5);

fn write<L: Link>(open: &Segment<L>, page_number: u64) {
    let offset = page_number * 4096;
    open.submit(open.request(SegmentOp::Write { offset }, page(open.link(), 1)))
        .unwrap();
}

pub(crate) fn a_frozen_link_is_dropped_with_writes_that_wait<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16);
    let frozen = link.freeze().wait().unwrap();
    (0..4).for_each(|number| write(&open, number));
    let _ = link.turn(Wait::No);
    let mut make = link.create_segment("two", &CreateOptions::of_size(1 << 20));
    link.block_on(once(&mut make)).unwrap();
    std::mem::forget(frozen);
    drop((make, open));
    let start = Instant::now();
    drop(link);
    assert!(start.elapsed() < SOON);
}

pub(crate) fn a_frozen_link_is_closed_with_operations_that_wait<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16);
    let frozen = link.freeze().wait().unwrap();
    write(&open, 0);
    let _ = link.turn(Wait::No);
    let mut make = link.create_segment("two", &CreateOptions::of_size(1 << 20));
    let (mut again, mut check, mut defrag) = (link.freeze(), link.check(), link.defrag());
    link.block_on(join4(
        once(&mut make),
        once(&mut again),
        once(&mut check),
        once(&mut defrag),
    ))
    .unwrap();
    std::mem::forget(frozen);
    let kept = link.clone();
    link.close().unwrap();
    drop((kept, make, again, check, defrag));
}
