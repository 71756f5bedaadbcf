//! Every slot taken: who waits for one gets it, and who needs none does not wait.

use std::time::Duration;

use baio::{Link, Segment, SegmentOp, Wait};
use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;

use crate::rig::{Made, PAGE, Volume, options, page, segment};

fn few<L: Made>(volume: &Volume) -> L {
    with(volume, 16, 8)
}

/// With fewer slots still, and room in the cache.
fn scarce<L: Made>(volume: &Volume) -> L {
    with(volume, 64, 4)
}

fn with<L: Made>(volume: &Volume, cache_pages: usize, slots: u32) -> L {
    let mut options = options(cache_pages);
    options.engine.slots = slots;
    L::open_with(&volume.path, &options).unwrap()
}

/// Takes every slot by outcomes that nobody has taken.
fn fill<L: Link>(open: &Segment<L>) -> usize {
    let mut taken = 0;
    loop {
        let read = |nth: u64| open.request(SegmentOp::Read { offset: nth % 8 * 4096 }, page(open.link(), 1));
        while open.submit(read(taken as u64)).is_ok() {
            taken += 1;
        }
        if open.link().in_flight() == 0 {
            return taken;
        }
        open.link().turn(Wait::one()).unwrap();
    }
}

fn empty<L: Link>(link: &L, taken: usize) {
    let outcomes = std::iter::from_fn(|| link.next_outcome());
    assert_eq!(outcomes.filter(|outcome| outcome.result.is_ok()).count(), taken);
}

pub(crate) fn futures_wait_for_room<L: Made>() {
    let volume = Volume::new();
    let link: L = few(&volume);
    let open = segment(&link, "one", 8);
    let reads = (0..100).map(|nth| open.read_at(nth % 8 * 4096, page(&link, 1)));
    let done = link.block_on(join_all(reads)).unwrap();
    assert!(done.into_iter().all(|done| done.unwrap().bytes == PAGE));
    // Beside those of tickets: when their outcomes are taken.
    let taken = fill(&open);
    assert!(taken >= 8, "{taken}");
    let mut waiting = open.read_at(0, page(&link, 1));
    let both = async {
        assert!(crate::rig::once(&mut waiting).await.is_none());
        empty(&link, taken);
        waiting.await.unwrap().bytes
    };
    assert_eq!(link.block_on(both).unwrap(), PAGE);
}

/// What needs no slot of the core answers also when nobody takes outcomes.
pub(crate) fn operations_wait_for_no_outcome<L: Made>() {
    let volume = Volume::new();
    let link: L = few(&volume);
    let open = segment(&link, "one", 8);
    let taken = fill(&open);
    assert_eq!(open.size().wait().unwrap(), 8 * 4096);
    assert_eq!(link.list().wait().unwrap().len(), 1);
    segment(&link, "two", 1);
    empty(&link, taken);
    drop(open);
    link.close().unwrap();
}

pub(crate) fn pins_wait_for_room<L: Made>() {
    let volume = Volume::new();
    let link: L = few(&volume);
    let open = segment(&link, "one", 64);
    let taken = fill(&open);
    let mut pin = open.pin(40);
    let both = async {
        let first = crate::rig::once(&mut pin).await;
        empty(&link, taken);
        match first {
            Some(pin) => pin,
            None => pin.await,
        }
    };
    let pin = link.block_on(both).unwrap().unwrap();
    assert_eq!(pin.page(), 40);
    // Changes, too, wait for their turn.
    let reads = join_all((0..40).map(|nth| open.read_at(nth * 4096, page(&link, 1))));
    let changes = join_all((0..20).map(|_| pin.changeable(0)));
    let pins = join_all((0..20).map(|nth| open.pin(nth % 6)));
    let ((reads, changes), pins) = link.block_on(join(join(reads, changes), pins)).unwrap();
    reads.into_iter().for_each(|read| assert_eq!(read.unwrap().bytes, PAGE));
    changes.into_iter().for_each(|change| change.unwrap());
    pins.into_iter().for_each(|pin| drop(pin.unwrap()));
}

pub(crate) fn more_pins_than_slots<L: Made>() {
    let volume = Volume::new();
    let link = scarce::<L>(&volume);
    let open = segment(&link, "one", 256);
    let pins = (0..24).map(|nth| open.pin(nth * 5));
    let pins = link.block_on(join_all(pins)).unwrap();
    assert!(
        pins.iter().all(Result::is_ok),
        "{:?}",
        pins.iter().find(|pin| pin.is_err())
    );
}

pub(crate) fn more_watched_pins_than_slots<L: Made>() {
    let volume = Volume::new();
    let link = scarce::<L>(&volume);
    let open = segment(&link, "one", 256);
    let pins = (0..24).map(|nth| open.pin(nth * 5).watched().0);
    let pins = link.block_on(join_all(pins)).unwrap();
    assert!(
        pins.iter().all(Result::is_ok),
        "{:?}",
        pins.iter().find(|pin| pin.is_err())
    );
}

pub(crate) fn a_deadline_counts_while_it_waits<L: Made>() {
    let volume = Volume::new();
    let link: L = few(&volume);
    let open = segment(&link, "one", 8);
    let taken = fill(&open);
    let late = open
        .write_at(0, page(&link, 7))
        .within(Duration::from_millis(20))
        .wait()
        .unwrap_err();
    assert_eq!(late.error.code(), "ECANCELED", "{late}");
    assert_eq!(late.buffer.map(|back| back[0]), Some(7));
    empty(&link, taken);
    assert_eq!(crate::rig::byte_of(&open, 0), 0);
}

/// A slot comes free for a future that nobody polls, as its task awaits another one: that one gets the slot.
pub(crate) fn who_is_called_and_not_polled_keeps_nobody_waiting<L: Made>() {
    let volume = Volume::new();
    let link: L = few(&volume);
    let open = segment(&link, "one", 8);
    let mut reads: FuturesUnordered<_> = (0..60)
        .map(|nth| open.read_at(nth % 8 * 4096, page(&link, 1)).direct())
        .collect();
    let ended = link.block_on(async {
        let mut ended = 0;
        while let Some(read) = reads.next().await {
            assert_eq!(read.unwrap().bytes, PAGE);
            assert_eq!(open.read_at(0, page(&link, 1)).direct().await.unwrap().bytes, PAGE);
            ended += 1;
        }
        ended
    });
    assert_eq!(ended.unwrap(), 60);
}
