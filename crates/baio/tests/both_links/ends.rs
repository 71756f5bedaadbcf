//! Early ends: cancels, deadlines, dropped operations, closed and dropped links.

use std::time::{Duration, Instant};

use baio::{Access, CacheError, CreateOptions, Fault, ResizeOptions, Time};
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::rig::{Made, PAGE, Volume, byte_of, once, page, segment, until};

fn is_early(error: &baio::Error) {
    assert!(matches!(error.code(), "ECANCELED" | "EINDETERMINATE"), "{error}");
}

pub(crate) fn a_request_is_cancelled<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16);
    let mut unbegun = open.write_at(0, page(&link, 7));
    unbegun.cancel();
    let failed = unbegun.wait().unwrap_err();
    assert_eq!(
        (failed.error.code(), failed.buffer.map(|back| back[0])),
        ("ECANCELED", Some(7))
    );
    let under_way = async {
        let mut reads: Vec<_> = (0..16).map(|nth| open.read_at(nth * 4096, page(&link, 1))).collect();
        for read in &mut reads {
            assert!(once(read).await.is_none());
        }
        reads.iter_mut().for_each(baio::Request::cancel);
        join_all(reads).await
    };
    for ended in link.block_on(under_way).unwrap() {
        match ended {
            Ok(done) => assert_eq!(done.bytes, PAGE),
            Err(failed) => is_early(&failed.error),
        }
    }
    assert_eq!(byte_of(&open, 0), 0);
}

pub(crate) fn a_deadline_passes<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16);
    for mode in [baio::Mode::Direct, baio::Mode::Cached] {
        match open.read_at(0, page(&link, 1)).mode(mode).deadline(Time(1)).wait() {
            Ok(done) => assert_eq!(done.bytes, PAGE),
            Err(failed) => is_early(&failed.error),
        }
    }
    // Behind a page whose log does not come it ends at its time.
    let pin = open.pin_new(3, 10).wait().unwrap();
    let began = Instant::now();
    let failed = open
        .sync(baio::Durability::Data)
        .within(Duration::from_millis(50))
        .wait()
        .unwrap_err();
    is_early(&failed.error);
    assert!(began.elapsed() >= Duration::from_millis(40));
    drop(pin);
    link.set_durable_lsn(10).wait().unwrap();
    open.sync(baio::Durability::Data).wait().unwrap();
}

/// What was asked for may happen all the same; it happens wholly or not at all, and nothing stays behind.
pub(crate) fn operations_are_dropped_halfway<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    segment(&link, "kept", 4);
    for nth in 0..20 {
        let name = format!("s{nth}");
        let mut create = link.create_segment(&name, &CreateOptions::of_size(4096));
        let mut resize = link.resize_segment("kept", &ResizeOptions::to_size(4096 * (nth + 1)));
        let (mut open, mut list) = (link.open_segment("kept", Access::Write), link.list());
        let halfway = async {
            let _ = once(&mut create).await;
            let _ = once(&mut resize).await;
            let _ = once(&mut open).await;
            let _ = once(&mut list).await;
        };
        link.block_on(halfway).unwrap();
        drop((create, resize, open, list));
        // One that never began does nothing.
        drop(link.delete_segment("kept"));
    }
    // What had begun goes on to its end.
    let all = || link.list().wait().unwrap();
    let (mut before, mut quiet) = (all(), 0);
    until(&link, "nothing changes any more", || {
        let now = all();
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        quiet == 50
    });
    for info in all() {
        let open = link.open_segment(&info.name, Access::Write).wait().unwrap();
        assert_eq!(open.size().wait().unwrap(), info.size_bytes);
        drop(open);
        link.delete_segment(&info.name).wait().unwrap();
    }
    link.close().unwrap();
}

pub(crate) fn pins_are_dropped_halfway<L: Made>() {
    let volume = Volume::new();
    let link = L::open_with(&volume.path, &crate::rig::options(8)).unwrap();
    let open = segment(&link, "one", 64);
    for round in 0..64 {
        let mut pin = open.pin(round);
        let _ = link.block_on(async { once(&mut pin).await.map(drop) }).unwrap();
        drop(pin);
    }
    // No frame stays held by one of them; over a service each is on its way back.
    let mut pins = Vec::new();
    until(&link, "six frames are free", || {
        match open.pin(pins.len() as u64).wait() {
            Ok(pin) => pins.push(pin),
            Err(error) => assert!(matches!(error.fault, Fault::Cache(CacheError::NoFrame)), "{error}"),
        }
        pins.len() == 6
    });
}

pub(crate) fn a_closed_link_refuses_everything<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let (pin, memory) = (open.pin(0).wait().unwrap(), page(&link, 1));
    link.clone().close().unwrap();
    let is_stale = |what: &str, error: baio::Error| assert!(matches!(error.fault, Fault::Stale), "{what}: {error}");
    is_stale("list", link.list().wait().unwrap_err());
    is_stale(
        "create",
        link.create_segment("two", &CreateOptions::of_size(4096))
            .wait()
            .unwrap_err(),
    );
    is_stale(
        "open",
        link.open_segment("one", Access::Read).wait().map(drop).unwrap_err(),
    );
    is_stale("size", open.size().wait().unwrap_err());
    is_stale("pin", open.pin(1).wait().map(drop).unwrap_err());
    is_stale("look", pin.read(|bytes| bytes[0]).wait().unwrap_err());
    is_stale("buffer", link.buffer(1).unwrap_err());
    is_stale("turn", link.turn(baio::Wait::No).unwrap_err());
    is_stale("pool", link.with_pool(|_| ()).wait().unwrap_err());
    let failed = open.write_at(0, memory).wait().unwrap_err();
    is_stale("write", failed.error);
    assert!(
        open.submit(open.request(baio::SegmentOp::Sync, baio::Memory::None))
            .is_err()
    );
    assert!(link.next_outcome().is_none());
    assert_eq!((link.in_flight(), link.clone().close().is_ok()), (0, true));
    drop((pin, open));
    let again: L = volume.link();
    again.close().unwrap();
}

pub(crate) fn futures_of_a_closed_link_end<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 64);
    let mut create = link.create_segment("two", &CreateOptions::of_size(1 << 20));
    let mut reads: Vec<_> = (0..30).map(|nth| open.read_at(nth * 4096, page(&link, 1))).collect();
    let (unasked, unbegun) = (link.list(), open.read_at(0, page(&link, 1)));
    let begun = async {
        assert!(once(&mut create).await.is_none());
        for read in &mut reads {
            assert!(once(read).await.is_none());
        }
    };
    link.block_on(begun).unwrap();
    link.clone().close().unwrap();
    let created = create.now_or_never().expect("an end");
    for read in join_all(reads).now_or_never().expect("their ends") {
        match read {
            Ok(done) => assert_eq!(done.bytes, PAGE),
            Err(failed) => assert!(matches!(failed.error.fault, Fault::Stale), "{failed}"),
        }
    }
    // What had not begun is told why it does not, and not that somebody should drive the link.
    let unasked = unasked.now_or_never().expect("an end").unwrap_err();
    assert!(matches!(unasked.fault, Fault::Stale), "{unasked}");
    let unbegun = unbegun.now_or_never().expect("an end").unwrap_err();
    assert!(matches!(unbegun.error.fault, Fault::Stale), "{unbegun}");
    assert_eq!(unbegun.buffer.map(|back| back.len()), Some(PAGE));
    drop(open);
    drop(link);
    // What was said to be made is there.
    let link: L = volume.link();
    let found = link.list().wait().unwrap().iter().any(|info| info.name == "two");
    assert!(found || created.is_err());
}

/// Who waits for a log that does not come is not waited for.
pub(crate) fn a_close_does_not_wait_for_the_log<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let pin = open.pin_new(0, 10).wait().unwrap();
    let (mut flush, mut sync) = (open.flush_to(10), open.sync(baio::Durability::Data));
    let begun = async {
        assert!(once(&mut flush).await.is_none());
        assert!(once(&mut sync).await.is_none());
    };
    link.block_on(begun).unwrap();
    // What was changed beyond the log is not written: the close says so, or the log would have.
    let closed = link.close();
    assert!(flush.now_or_never().expect("an end").is_err());
    assert!(sync.now_or_never().expect("an end").is_err());
    drop((pin, closed));
}

pub(crate) fn a_dropped_link_gives_its_volume_back<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    open.write_at(0, page(&link, 7))
        .durable(baio::Durability::Data)
        .wait()
        .unwrap();
    let (request, operation) = (open.read_at(0, page(&link, 1)), link.list());
    drop(link);
    drop(open);
    assert_eq!(request.wait().unwrap().buffer[0], 7, "a request keeps its link");
    assert_eq!(operation.wait().unwrap().len(), 1);
    let link: L = volume.link();
    assert_eq!(byte_of(&link.open_segment("one", Access::Read).wait().unwrap(), 0), 7);
}
