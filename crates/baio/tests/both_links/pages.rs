//! The buffer pool by its pins, hints, lent pages, and policies of eviction.

use std::sync::atomic::{AtomicU64, Ordering};

use baio::{
    CacheError, CacheOptions, Eviction, Fault, Hint, Link, Local, Mode, Pattern, Policy, Remote, ResizeOptions,
};
use futures_util::future::{join, join_all};

use crate::rig::{Made, PAGE, Volume, byte_of, once, options, page, segment, until};

pub(crate) fn pinned_read_and_changed<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    open.write_at(3 * 4096, page(&link, 3)).wait().unwrap();
    let pin = open.pin(3).wait().unwrap();
    assert_eq!((pin.page(), pin.read(|bytes| bytes[0]).wait().unwrap()), (3, 3));
    assert_eq!(
        pin.change(0, |bytes| std::mem::replace(&mut bytes[0], 4))
            .wait()
            .unwrap(),
        3
    );
    pin.change(0, |bytes| bytes.fill(6)).wait().unwrap();
    assert_eq!(byte_of(&open, 3), 6, "a direct read sees it");
    let name = open.name().to_owned();
    drop(open);
    assert_eq!(
        pin.read(|bytes| bytes[PAGE - 1]).wait().unwrap(),
        6,
        "it outlives the handle"
    );
    assert!(format!("{pin:?}").contains(&name));
    pin.unpin();
    link.close().unwrap();
}

pub(crate) fn a_new_page_is_zero<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    open.write_at(0, page(&link, 3)).wait().unwrap();
    let pin = open.pin_new(0, 0).wait().unwrap();
    assert!(pin.read(|bytes| bytes.iter().all(|byte| *byte == 0)).wait().unwrap());
    drop(pin);
    open.sync(baio::Durability::Data).wait().unwrap();
    assert_eq!(byte_of(&open, 0), 0);
    let error = open.pin(8).wait().unwrap_err();
    assert!(
        matches!(error.fault, Fault::Cache(CacheError::PastEnd) | Fault::Beyond { .. }),
        "{error}"
    );
}

/// A cache of eight pages.
fn small<L: Made>(volume: &Volume) -> L {
    L::open_with(&volume.path, &options(8)).unwrap()
}

pub(crate) fn a_pin_that_is_dropped_lets_its_frame_go<L: Made>() {
    let volume = Volume::new();
    let link: L = small(&volume);
    let open = segment(&link, "one", 64);
    for round in 0..8_u64 {
        let pins: Vec<_> = (0..6).map(|nth| open.pin(round * 8 + nth).wait().unwrap()).collect();
        assert!(pins.iter().all(|pin| pin.read(|bytes| bytes[0]).wait().unwrap() == 0));
    }
}

pub(crate) fn every_frame_pinned_is_told<L: Made>() {
    let volume = Volume::new();
    let link: L = small(&volume);
    let open = segment(&link, "one", 64);
    let mut pins = Vec::new();
    let error = loop {
        match open.pin(pins.len() as u64).wait() {
            Ok(pin) => pins.push(pin),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.fault, Fault::Cache(CacheError::NoFrame)), "{error}");
    assert!(pins.len() >= 4, "{}", pins.len());
    drop(pins);
    open.pin(60).wait().unwrap().read(|_| ()).wait().unwrap();
}

pub(crate) fn a_pin_keeps_what_it_pins<L: Made>() {
    let volume = Volume::new();
    let link: L = small(&volume);
    let open = segment(&link, "one", 64).with_mode(Mode::Cached);
    let pin = open.pin(5).wait().unwrap();
    for nth in 0..64_u64 {
        open.read_at(nth * 4096, page(&link, 0)).wait().unwrap();
    }
    let missed = link.cache_stats().wait().unwrap().unwrap().pages_missed;
    assert_eq!(pin.read(|bytes| bytes[0]).wait().unwrap(), 0);
    open.pin(5).wait().unwrap();
    assert_eq!(link.cache_stats().wait().unwrap().unwrap().pages_missed, missed);
    let written = open.write_at(5 * 4096, page(&link, 1)).wait();
    let direct = open.write_at(5 * 4096, page(&link, 2)).direct().wait().unwrap_err();
    assert!(
        matches!(direct.error.fault, Fault::Cache(CacheError::Pinned)),
        "{direct}"
    );
    drop(written);
}

pub(crate) fn a_pin_of_what_was_deleted_is_stale<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let pin = open.pin(2).wait().unwrap();
    link.delete_segment("one").wait().unwrap();
    let is_stale = |error: baio::Error| {
        let stale = matches!(error.fault, Fault::Stale | Fault::Cache(CacheError::StalePin));
        assert!(stale, "{error}");
    };
    is_stale(pin.read(|_| ()).wait().unwrap_err());
    is_stale(pin.change(0, |_| ()).wait().unwrap_err());
    is_stale(open.pin(1).wait().map(drop).unwrap_err());
    let open = segment(&link, "one", 8);
    let pin = open.pin(7).wait().unwrap();
    let cut = link.resize_segment("one", &ResizeOptions::to_size(4096)).wait();
    match cut {
        Ok(_) => is_stale(pin.read(|_| ()).wait().unwrap_err()),
        Err(error) => assert!(matches!(error.fault, Fault::Cache(CacheError::Pinned)), "{error}"),
    }
}

/// Write-ahead: a page goes to the device when its log has.
pub(crate) fn a_change_waits_for_the_log<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    let pin = open.pin_new(0, 10).wait().unwrap();
    pin.change(11, |bytes| bytes.fill(7)).wait().unwrap();
    let mut sync = open.sync(baio::Durability::Data);
    let waits = async {
        assert!(once(&mut sync).await.is_none());
        // Somebody waits for the page: its next change does too.
        let mut changeable = pin.changeable(20);
        let first = once(&mut changeable).await;
        link.set_durable_lsn(11).await.unwrap();
        sync.await.unwrap();
        match first {
            Some(done) => done.unwrap(),
            None => changeable.await.unwrap(),
        }
    };
    link.block_on(waits).unwrap();
    pin.change(20, |bytes| bytes.fill(8)).wait().unwrap();
    assert_eq!(pin.read(|bytes| bytes[0]).wait().unwrap(), 8);
    link.set_durable_lsn(20).wait().unwrap();
    link.set_durable_lsn(5).wait().unwrap();
    open.sync(baio::Durability::Data).wait().unwrap();
    assert_eq!(byte_of(&open, 0), 8);
}

pub(crate) fn flushed_to_an_lsn<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 8);
    for nth in 0..4_u64 {
        let pin = open.pin_new(nth, nth + 1).wait().unwrap();
        pin.change(nth + 1, |bytes| bytes.fill(9)).wait().unwrap();
    }
    let log = async { link.set_durable_lsn(2).await };
    let (flushed, told) = link.block_on(join(open.flush_to(2), log)).unwrap();
    flushed.unwrap();
    told.unwrap();
    let oldest = link.with_pool(|pool| pool.oldest_recovery_lsn()).wait().unwrap();
    assert_eq!(oldest, Some(3));
    link.set_durable_lsn(4).wait().unwrap();
    open.flush_to(4).wait().unwrap();
    assert_eq!([0, 1, 2, 3].map(|nth| byte_of(&open, nth)), [9; 4]);
}

/// It would wait for a log that never comes.
pub(crate) fn a_flush_that_nobody_awaits_is_over<L: Made>() {
    let volume = Volume::new();
    let mut few = options(16);
    few.engine.slots = 4;
    let link = L::open_with(&volume.path, &few).unwrap();
    let open = segment(&link, "one", 8);
    let pin = open.pin_new(0, 10).wait().unwrap();
    for _ in 0..20 {
        let mut flush = open.flush_to(10);
        let begun = async {
            assert!(once(&mut flush).await.is_none());
            // There is room for others still; and over a service both are on their way now.
            open.read_at(4096, page(&link, 1)).await.unwrap().bytes
        };
        assert_eq!(link.block_on(begun).unwrap(), PAGE);
        drop(flush);
    }
    drop(pin);
    until(&link, "nothing is in flight", || link.in_flight() == 0);
    link.set_durable_lsn(10).wait().unwrap();
    link.close().unwrap();
}

pub(crate) fn hints_are_taken<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 64).with_mode(Mode::Cached);
    open.read_at(0, page(&link, 0)).wait().unwrap();
    let prefetched = open.prefetch(&[8..12, 20..22]).wait().unwrap();
    assert!((1..=6).contains(&prefetched), "{prefetched}");
    open.keep_cached(0..2).wait().unwrap();
    open.read_pattern(Pattern::Random).wait().unwrap();
    assert_eq!(open.read_at(8 * 4096, page(&link, 0)).wait().unwrap().bytes, PAGE);
    let dropped = open.drop_cached(0..64).wait().unwrap();
    assert!(dropped >= 1, "{dropped}");
    open.keep_cached_no_more(0..64).wait().unwrap();
    open.read_pattern(Pattern::Sequential).wait().unwrap();
    let error = open.prefetch(std::slice::from_ref(&(1000..2000))).wait();
    assert!(error.map_or_else(|error| error.code() == "EINVAL", |pages| pages <= 1000));
}

pub(crate) fn without_a_cache_all_is_refused<L: Made>() {
    let volume = Volume::new();
    let link = L::open_with(&volume.path, &options(0)).unwrap();
    let open = segment(&link, "one", 8);
    let handle = open.handle();
    let refused = [
        ("pin", open.pin(0).wait().map(drop)),
        ("pin_new", open.pin_new(0, 0).wait().map(drop)),
        (
            "prefetch",
            open.prefetch(std::slice::from_ref(&(0..1))).wait().map(drop),
        ),
        ("drop", open.drop_cached(0..1).wait().map(drop)),
        ("keep", open.keep_cached(0..1).wait()),
        ("no more", open.keep_cached_no_more(0..1).wait()),
        ("pattern", open.read_pattern(Pattern::Random).wait()),
        ("flush", open.flush_to(1).wait()),
        ("lsn", link.set_durable_lsn(1).wait()),
        (
            "read",
            open.read_at(0, page(&link, 0))
                .cached()
                .wait()
                .map(drop)
                .map_err(Into::into),
        ),
        (
            "pool",
            link.with_pool(move |pool| pool.read(handle, 0, |_| ()))
                .wait()
                .unwrap()
                .map(drop),
        ),
    ];
    for (what, refused) in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error.fault, Fault::NoCache), "{what}: {error}");
    }
    assert!(link.cache_stats().wait().unwrap().is_none());
    assert!(open.lend(0..1).wait().unwrap().is_none());
}

pub(crate) fn pages_are_lent<L: Made>() {
    let volume = Volume::new();
    let link: L = volume.link();
    let open = segment(&link, "one", 16).with_mode(Mode::Cached);
    for nth in 0..4_u8 {
        open.write_at(u64::from(nth) * 4096, page(&link, nth + 1))
            .wait()
            .unwrap();
    }
    assert!(open.lend(8..9).wait().unwrap().is_none(), "it is not there");
    let lent = open.lend(0..4).wait().unwrap().unwrap();
    open.write_at(0, page(&link, 99)).wait().unwrap();
    assert_eq!(
        lent.pages().map(|page| page[7]).collect::<Vec<_>>(),
        [1, 2, 3, 4],
        "as it was"
    );
    assert_eq!((lent.len(), lent.frozen(2).map(|page| page[0])), (4 * PAGE, Some(3)));
    assert_eq!(open.read_at(0, page(&link, 0)).wait().unwrap().buffer[0], 99);
    drop((lent, open));
    link.close().unwrap();
}

pub(crate) fn lent_pages_are_dropped_on_another_thread<L: Made>() {
    let volume = Volume::new();
    let link: L = small(&volume);
    let open = segment(&link, "one", 64).with_mode(Mode::Cached);
    for round in 0..16_u64 {
        open.read_at(round * 4 * 4096, crate::rig::buffer(&link, &[1; 4 * PAGE]))
            .wait()
            .unwrap();
        if let Some(lent) = open.lend(round * 4..round * 4 + 2).wait().unwrap() {
            std::thread::spawn(move || assert_eq!(lent.pages().len(), 2))
                .join()
                .unwrap();
        }
    }
}

pub(crate) fn a_pin_is_dropped_on_another_thread() {
    let volume = Volume::new();
    let link: Remote = small(&volume);
    let open = segment(&link, "one", 64);
    for round in 0..8_u64 {
        let pins: Vec<_> = (0..6).map(|nth| open.pin(round * 8 + nth).wait().unwrap()).collect();
        std::thread::spawn(move || pins.iter().for_each(|pin| pin.read(|_| ()).wait().unwrap()))
            .join()
            .unwrap();
    }
    let pins = join_all((0..6).map(|nth| open.pin(nth)));
    assert!(link.block_on(pins).unwrap().into_iter().all(|pin| pin.is_ok()));
    let _ = std::marker::PhantomData::<Local>;
}

static ASKED: AtomicU64 = AtomicU64::new(0);

/// The library's own, and counts.
#[derive(Debug)]
struct Counting(Box<dyn Eviction>);

impl Eviction for Counting {
    fn inserted(&mut self, frame: u32, key: u64, hint: Hint) {
        self.0.inserted(frame, key, hint);
    }

    fn hit(&mut self, frame: u32) {
        self.0.hit(frame);
    }

    fn removed(&mut self, frame: u32) {
        self.0.removed(frame);
    }

    fn victim(&mut self, may_go: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        ASKED.fetch_add(1, Ordering::Relaxed);
        self.0.victim(may_go)
    }

    fn name(&self) -> &'static str {
        "counting"
    }
}

pub(crate) fn a_policy_of_ones_own_is_asked<L: Made>() {
    fn make(config: &CacheOptions) -> Box<dyn Eviction> {
        let frames = u32::try_from(config.bytes / PAGE).unwrap();
        Box::new(Counting(Policy::Clock.build(frames).unwrap()))
    }
    let volume = Volume::new();
    let mut own = options(8);
    own.eviction = Some(make);
    let link = L::open_with(&volume.path, &own).unwrap();
    let open = segment(&link, "one", 64).with_mode(Mode::Cached);
    let before = ASKED.load(Ordering::Relaxed);
    for nth in 0..64_u64 {
        open.read_at(nth * 4096, page(&link, 1)).wait().unwrap();
    }
    assert!(ASKED.load(Ordering::Relaxed) > before, "nobody asked it");
}
