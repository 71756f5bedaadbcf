//! The promises of a core's buffer pool: what is pinned is read and changed where it lies, stays until it is given back, and
//! reaches the device after its log and not before. Whatever is done wrong is told, and nothing hangs.

use std::ops::Range;
use std::path::Path;

use baio_engine::sim::{Disk, Profile, Rotating};
use baio_engine::{Durability, Errno, File, Open, Wait};
use baio_storage::cache::eviction::{Eviction, Hint};
use baio_storage::cache::{CacheError, CacheOptions};
use baio_storage::{
    Access, Core, Error, Fault, FormatOptions, Handle, Mode, PinnedPage, Pinning, SegmentOp, SegmentRequest,
};

use crate::harness::{self, BLOCK, open_simulated, run, simulated_disk, start, sync_request};

const PAGES: usize = 64;

fn config(frames: usize) -> CacheOptions {
    CacheOptions::of_size(frames * BLOCK)
}

/// A file whose pages are filled with their numbers.
fn file_of(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("file");
    let bytes: Vec<u8> = (0..PAGES * BLOCK).map(|at| (at / BLOCK) as u8).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

fn opened(path: &Path, frames: usize) -> (Core, Handle) {
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&config(frames)).unwrap();
    let handle = core.open_file(path, &Open::write()).unwrap();
    (core, handle)
}

/// A core with a cache, and a simulated disk beside a volume that nobody uses.
fn simulated(disk: &Disk, frames: usize) -> (Core, Handle) {
    let volume = simulated_disk(&FormatOptions::of_size(1 << 20));
    let mut core = open_simulated(&volume);
    core.use_cache(&config(frames)).unwrap();
    let handle = core.add_file(File::simulated(disk, "disk"), Access::Write);
    (core, handle)
}

fn cause<T: std::fmt::Debug>(result: Result<T, Error>) -> CacheError {
    match result.unwrap_err().into_fault() {
        Fault::Cache(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Changes one page wholly.
fn change(core: &mut Core, handle: Handle, page: u64, lsn: u64, byte: u8) {
    let pin = core.pin_now(handle, page).unwrap();
    core.change_now(&pin, lsn).unwrap().fill(byte);
    core.unpin(pin);
}

fn on_disk(disk: &Disk, page: usize) -> u8 {
    let mut bytes = [0; BLOCK];
    disk.power_cut(1).read((page * BLOCK) as u64, &mut bytes);
    // What was written and not flushed may be torn; that anything was written shows.
    bytes.into_iter().max().unwrap_or_default()
}

#[test]
fn a_miss_comes_with_its_outcome_and_a_hit_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut core, handle) = opened(&file_of(dir.path()), 16);
    let Pinning::Coming(ticket) = core.pin(handle, 9).unwrap() else {
        panic!("nothing is cached");
    };
    let outcome = core.wait(ticket).unwrap().unwrap();
    assert!(outcome.result.is_ok());
    let pin = outcome.pin.unwrap();
    assert_eq!((pin.page(), core.page(&pin).unwrap()), (9, &[9; BLOCK][..]));
    let before = core.cache_stats().unwrap();
    let Pinning::Held(hit) = core.pin(handle, 9).unwrap() else {
        panic!("it is there");
    };
    let after = core.cache_stats().unwrap();
    assert_eq!((after.requests, after.pins_hit), (before.requests, before.pins_hit + 1));
    assert_eq!(core.in_flight(), 0);
    core.unpin(pin);
    core.unpin(hit);
    core.close().unwrap();
}

#[test]
fn a_pinned_page_stays_while_everything_else_goes() {
    let dir = tempfile::tempdir().unwrap();
    let (mut core, handle) = opened(&file_of(dir.path()), 8);
    let pin = core.pin_now(handle, 3).unwrap();
    for _ in 0..3 {
        for page in 10..PAGES as u64 {
            let other = core.pin_now(handle, page).unwrap();
            assert_eq!(core.page(&other).unwrap()[0], page as u8);
            core.unpin(other);
        }
    }
    assert_eq!(core.page(&pin).unwrap(), [3; BLOCK]);
    let evictions = core.cache_stats().unwrap().evictions;
    assert!(evictions > 100);
    core.unpin(pin);
}

#[test]
fn what_nobody_takes_is_not_held() {
    let dir = tempfile::tempdir().unwrap();
    let (mut core, handle) = opened(&file_of(dir.path()), 4);
    // Abandoned under way, after its end, and cancelled.
    for (page, ended) in [(0, false), (20, true), (40, false)] {
        let Pinning::Coming(ticket) = core.pin(handle, page).unwrap() else {
            panic!("nothing is cached");
        };
        while ended && !core.has_outcomes() {
            core.turn(Wait::one()).unwrap();
        }
        if page == 40 {
            core.cancel(ticket);
            assert!(core.wait(ticket).unwrap().unwrap().pin.is_none());
        }
        core.abandon(ticket);
    }
    // All four frames can be pinned.
    let pins: Vec<PinnedPage> = (10..14).map(|page| core.pin_now(handle, page).unwrap()).collect();
    assert_eq!(cause(core.pin_now(handle, 20)), CacheError::NoFrame);
    pins.into_iter().for_each(|pin| core.unpin(pin));
}

#[test]
fn a_change_is_read_by_everybody_and_written_by_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path());
    let (mut core, handle) = opened(&path, 16);
    change(&mut core, handle, 5, 0, 0xaa);
    for mode in [Mode::Cached, Mode::Direct] {
        let offset = 5 * BLOCK as u64;
        let buffer = core.buffer(BLOCK).unwrap();
        let read = SegmentRequest {
            mode,
            ..SegmentRequest::new(handle, SegmentOp::Read { offset }, buffer)
        };
        let outcome = run(&mut core, read);
        assert_eq!(outcome.memory.into_buffer().unwrap()[..], [0xaa; BLOCK], "{mode:?}");
    }
    run(&mut core, sync_request(handle)).result.unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[5 * BLOCK..6 * BLOCK], [0xaa; BLOCK]);
}

#[test]
fn no_page_reaches_the_device_before_its_log() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 8);
    change(&mut core, handle, 1, 100, 1);
    change(&mut core, handle, 2, 200, 2);
    change(&mut core, handle, 3, 0, 3);
    // A sync, and everything that the cleaner and the want of frames can bring about.
    let sync = start(&mut core, sync_request(handle));
    for page in 10..40 {
        let pin = core.pin_now(handle, page).unwrap();
        core.unpin(pin);
    }
    let seen = |core: &mut Core| {
        for _ in 0..100 {
            core.turn(Wait::No).unwrap();
        }
        [1, 2, 3].map(|page| on_disk(&disk, page))
    };
    assert_eq!(seen(&mut core)[..2], [0, 0]);
    assert_eq!(core.lsn_wanted(), Some(200));
    core.set_durable_lsn(199).unwrap();
    assert_eq!(seen(&mut core)[1], 0);
    assert!(!core.has_outcomes(), "the sync has pages to wait for");
    core.set_durable_lsn(200).unwrap();
    core.wait(sync).unwrap().unwrap().result.unwrap();
    assert_eq!(seen(&mut core), [1, 2, 3]);
    assert_eq!(core.oldest_recovery_lsn(), None);
    assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
}

#[test]
fn a_durable_write_over_a_logged_change_waits_for_the_log() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 8);
    change(&mut core, handle, 1, 7, 1);
    let buffer = core.buffer(100).unwrap();
    let write = SegmentRequest {
        mode: Mode::Cached,
        durability: Durability::Data,
        ..SegmentRequest::new(handle, SegmentOp::Write { offset: BLOCK as u64 }, buffer)
    };
    let write = start(&mut core, write);
    for _ in 0..100 {
        core.turn(Wait::No).unwrap();
    }
    assert!(!core.has_outcomes() && on_disk(&disk, 1) == 0);
    core.set_durable_lsn(7).unwrap();
    core.wait(write).unwrap().unwrap().result.unwrap();
    let mut kept = [0; BLOCK];
    disk.power_cut(1).read(BLOCK as u64, &mut kept);
    assert_eq!(kept[BLOCK - 1], 1, "the change went along");
}

#[test]
fn a_checkpoint_moves_the_oldest_recovery_lsn() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 32);
    for (page, lsn) in [(4, 10), (9, 20), (2, 30)] {
        change(&mut core, handle, page, lsn, lsn as u8);
    }
    change(&mut core, handle, 4, 40, 40);
    assert_eq!(core.oldest_recovery_lsn(), Some(10));
    core.set_durable_lsn(40).unwrap();
    let flush = core.flush_to(handle, 20).unwrap();
    core.wait(flush).unwrap().unwrap().result.unwrap();
    assert_eq!(core.oldest_recovery_lsn(), Some(30));
    assert_eq!([4, 9, 2].map(|page| on_disk(&disk, page)), [40, 20, 0]);
}

#[test]
fn a_new_page_costs_no_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path());
    let (mut core, handle) = opened(&path, 8);
    let pin = core.pin_new_now(handle, 7, 0).unwrap();
    assert_eq!(core.page(&pin).unwrap(), [0; BLOCK]);
    core.change(&pin, 0).unwrap()[0] = 1;
    core.unpin(pin);
    assert_eq!(core.cache_stats().unwrap().fills, 0);
    core.close().unwrap();
    let kept = std::fs::read(&path).unwrap();
    assert_eq!(kept[7 * BLOCK..7 * BLOCK + 2], [1, 0]);
}

#[test]
fn who_opened_for_reading_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&config(8)).unwrap();
    let handle = core.open_file(&file_of(dir.path()), &Open::read()).unwrap();
    let pin = core.pin_now(handle, 1).unwrap();
    assert!(matches!(core.change(&pin, 0).unwrap_err().fault, Fault::ReadOnly));
    assert!(matches!(core.change_later(&pin, 0).unwrap_err().fault, Fault::ReadOnly));
    assert!(matches!(core.pin_new(handle, 2, 0).unwrap_err().fault, Fault::ReadOnly));
    core.unpin(pin);
}

/// The first handle of a file that is cached may be for reading only, and the page may be there already.
#[test]
fn a_change_through_a_hit_is_written_whoever_cached_the_file_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path());
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&config(16)).unwrap();
    let reader = core.open_file(&path, &Open::read()).unwrap();
    let pin = core.pin_now(reader, 1).unwrap();
    core.unpin(pin);
    let writer = core.open_file(&path, &Open::write()).unwrap();
    let hits = core.cache_stats().unwrap().pages_hit;
    change(&mut core, writer, 1, 0, 9);
    assert_eq!(core.cache_stats().unwrap().pages_hit, hits + 1);
    assert!(run(&mut core, sync_request(writer)).result.is_ok());
    assert_eq!(std::fs::read(&path).unwrap()[BLOCK], 9);
    core.close().unwrap();
}

#[test]
fn a_pin_outlives_its_handle_and_is_a_stranger_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path());
    let (mut core, handle) = opened(&path, 8);
    let pin = core.pin_now(handle, 1).unwrap();
    core.close_handle(handle);
    assert_eq!(core.pin(handle, 1).unwrap_err().code(), "ESTALE");
    core.change(&pin, 0).unwrap().fill(9);
    let (mut other, _) = opened(&path, 8);
    assert_eq!(cause(other.page(&pin).map(<[u8]>::len)), CacheError::StalePin);
    assert_eq!(
        cause(other.change(&pin, 0).map(|bytes| bytes.len())),
        CacheError::StalePin
    );
    assert_eq!(cause(other.change_later(&pin, 0)), CacheError::StalePin);
    core.unpin(pin);
    core.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[BLOCK], 9);
}

#[test]
fn a_page_past_the_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (mut core, handle) = opened(&file_of(dir.path()), 8);
    for page in [PAGES as u64, u64::MAX] {
        let error = core.pin_now(handle, page).unwrap_err();
        assert!(matches!(error.fault, Fault::Beyond { .. }), "{error}");
        assert_eq!(error.operation, "pin", "{error}");
        let error = core.pin_new_now(handle, page, 0).unwrap_err();
        assert_eq!(error.operation, "pin", "{error}");
        // No file is so long that it has the second of them.
        let is_too_far = page == u64::MAX && error.errno() == Some(Errno::EFBIG);
        assert!(is_too_far || matches!(error.fault, Fault::Beyond { .. }), "{error}");
    }
    let backwards = Range { start: 5, end: 2 };
    assert!(core.prefetch(handle, &[PAGES as u64..u64::MAX, backwards]).is_ok());
    let mut none = Core::new(&harness::config()).unwrap();
    let handle = none.open_file(&file_of(dir.path()), &Open::write()).unwrap();
    assert!(matches!(none.pin(handle, 0).unwrap_err().fault, Fault::NoCache));
    assert!(matches!(none.set_durable_lsn(1).unwrap_err().fault, Fault::NoCache));
}

#[test]
fn who_waits_for_the_log_alone_is_told_instead_of_hanging() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 4);
    let mut lsn = 0;
    let error = loop {
        lsn += 1;
        let pin = match core.pin_now(handle, lsn) {
            Ok(pin) => pin,
            Err(error) => break error,
        };
        let changed = core.change_now(&pin, lsn).map(|bytes| bytes.fill(1));
        core.unpin(pin);
        if let Err(error) = changed {
            break error;
        }
    };
    let told = cause::<()>(Err(error));
    assert!(matches!(told, CacheError::LogFirst(_)), "{told:?}");
    core.set_durable_lsn(lsn).unwrap();
    change(&mut core, handle, 50, lsn + 1, 1);
    assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
}

#[test]
fn who_waits_for_the_log_is_told_whatever_else_the_engine_has() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 4);
    change(&mut core, handle, 0, 5, 1);
    let until = core.engine().now().after(std::time::Duration::from_secs(3600));
    let sync = SegmentRequest {
        deadline: Some(until),
        ..sync_request(handle)
    };
    let sync = start(&mut core, sync);
    for lsn in 6.. {
        let changed = core.pin_new_now(handle, lsn, lsn);
        let Ok(pin) = changed else {
            let told = cause(changed);
            assert!(matches!(told, CacheError::LogFirst(_)), "{told:?}");
            break;
        };
        core.unpin(pin);
    }
    let pin = core.pin_now(handle, 0).unwrap();
    let told = cause(core.change_now(&pin, 50).map(drop));
    assert_eq!(told, CacheError::LogFirst(5));
    core.unpin(pin);
    assert!(
        core.engine().now() < until && !core.has_outcomes(),
        "the sync still waits"
    );
    core.set_durable_lsn(50).unwrap();
    core.wait(sync).unwrap().unwrap().result.unwrap();
    assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
}

/// Others wait for the log; who reads another page waits for the device alone, also when something else ends before.
#[test]
fn who_waits_for_the_device_is_not_told_of_the_log() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    disk.set_profile(Profile::Rotating(Rotating::default()));
    let (mut core, handle) = simulated(&disk, 4);
    change(&mut core, handle, 0, 5, 1);
    let sync = start(&mut core, sync_request(handle));
    let beside = core.add_file(File::simulated(&Disk::new(BLOCK as u64), "beside"), Access::Read);
    let read = harness::read_request(&core, beside, 0, BLOCK);
    let early = start(&mut core, read);
    let pin = core.pin_now(handle, 7).unwrap();
    core.unpin(pin);
    core.set_durable_lsn(5).unwrap();
    for ticket in [early, sync] {
        core.wait(ticket).unwrap().unwrap().result.unwrap();
    }
}

#[test]
fn a_close_writes_what_the_log_allows_and_tells_of_the_rest() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 16);
    change(&mut core, handle, 1, 5, 1);
    change(&mut core, handle, 2, 0, 2);
    let sync = start(&mut core, sync_request(handle));
    assert_eq!(cause(core.close()), CacheError::LogFirst(5));
    let _ = sync;
    assert_eq!([1, 2].map(|page| on_disk(&disk, page)), [0, 2]);
}

#[test]
fn a_change_that_must_wait_is_told_by_a_ticket() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 16);
    change(&mut core, handle, 1, 5, 1);
    let sync = start(&mut core, sync_request(handle));
    let pin = core.pin_now(handle, 1).unwrap();
    assert_eq!(
        cause(core.change(&pin, 6).map(|bytes| bytes.len())),
        CacheError::LogFirst(5)
    );
    let later = core.change_later(&pin, 6).unwrap();
    for _ in 0..50 {
        core.turn(Wait::No).unwrap();
    }
    assert!(!core.has_outcomes());
    core.set_durable_lsn(5).unwrap();
    core.wait(later).unwrap().unwrap().result.unwrap();
    core.change(&pin, 6).unwrap().fill(2);
    core.wait(sync).unwrap().unwrap().result.unwrap();
    core.unpin(pin);
    assert_eq!(
        on_disk(&disk, 1),
        1,
        "what the sync promised, and not what came after it"
    );
}

#[test]
fn a_direct_write_does_not_wait_for_a_pin() {
    let dir = tempfile::tempdir().unwrap();
    let (mut core, handle) = opened(&file_of(dir.path()), 8);
    let pin = core.pin_now(handle, 1).unwrap();
    let write = harness::write_request(&core, handle, 0, &[1; 2 * BLOCK]);
    assert_eq!(cause(run(&mut core, write).result), CacheError::Pinned);
    core.unpin(pin);
    assert!(harness::write(&mut core, handle, 0, &[1; 2 * BLOCK]).is_ok());
    let pin = core.pin_now(handle, 1).unwrap();
    assert_eq!(core.page(&pin).unwrap(), [1; BLOCK]);
    core.unpin(pin);
}

#[test]
fn prefetched_pages_are_hits() {
    let dir = tempfile::tempdir().unwrap();
    let (mut core, handle) = opened(&file_of(dir.path()), 32);
    assert_eq!(core.prefetch(handle, &[40..41, 3..5, 60..61]).unwrap(), 4);
    while core.cache_stats().unwrap().frames_clean < 4 {
        core.turn(Wait::one()).unwrap();
    }
    for page in [40, 3, 4, 60] {
        let Ok(Pinning::Held(pin)) = core.pin(handle, page) else {
            panic!("page {page} is not there");
        };
        assert_eq!(core.page(&pin).unwrap()[0], page as u8);
        core.unpin(pin);
    }
    assert_eq!(core.cache_stats().unwrap().fills, 3);
    assert_eq!(core.drop_cached(handle, 0..50).unwrap(), 3);
    core.keep_cached(handle, 60..61).unwrap();
    for page in 0..50 {
        let pin = core.pin_now(handle, page).unwrap();
        core.unpin(pin);
    }
    assert!(matches!(core.pin(handle, 60).unwrap(), Pinning::Held(pin) if core.page(&pin).is_ok()));
    core.keep_cached_no_more(handle, 0..u64::MAX).unwrap();
    assert_eq!(cause(core.keep_cached(handle, 0..17)), CacheError::KeptFull);
}

/// Gives up whoever came first and names everybody twice.
#[derive(Debug, Default)]
struct Stammers(Vec<u32>, Option<u32>);

impl Eviction for Stammers {
    fn inserted(&mut self, frame: u32, _: u64, _: Hint) {
        self.0.push(frame);
    }
    fn hit(&mut self, _: u32) {}
    fn removed(&mut self, frame: u32) {
        self.0.retain(|held| *held != frame);
    }
    fn victim(&mut self, _: &mut dyn FnMut(u32) -> bool) -> Option<u32> {
        if let Some(again) = self.1.take() {
            return Some(again);
        }
        self.1 = (!self.0.is_empty()).then(|| self.0.remove(0));
        self.1
    }
    fn name(&self) -> &'static str {
        "stammers"
    }
}

#[test]
fn a_policy_of_ones_own_serves_and_is_refused_where_it_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache_with(&config(8), Box::<Stammers>::default()).unwrap();
    let handle = core.open_file(&file_of(dir.path()), &Open::write()).unwrap();
    let held = core.pin_now(handle, 0).unwrap();
    for round in 0..3 {
        for page in 1..PAGES as u64 {
            let pin = core.pin_now(handle, page).unwrap();
            assert_eq!(
                core.page(&pin).unwrap()[0],
                if round == 0 || page % 2 == 1 { page as u8 } else { 99 }
            );
            if page % 2 == 0 {
                core.change_now(&pin, 0).unwrap().fill(99);
            }
            core.unpin(pin);
        }
    }
    assert_eq!(core.page(&held).unwrap(), [0; BLOCK]);
    assert!(core.cache_stats().unwrap().victims_refused > 0);
    core.unpin(held);
    core.close().unwrap();
}

/// A volume with a segment of ten pages, its disk, and a core with a cache.
fn with_segment() -> (Core, Handle) {
    let disk = simulated_disk(&FormatOptions::of_size(8 << 20));
    let mut core = open_simulated(&disk);
    core.use_cache(&config(16)).unwrap();
    harness::create(&mut core, "data", 10 * BLOCK as u64);
    let handle = harness::open_write(&mut core, "data");
    (core, handle)
}

#[test]
fn a_pin_of_a_deleted_segment_is_stale_and_stops_nobody() {
    let (mut core, handle) = with_segment();
    change(&mut core, handle, 1, 5, 1); // Behind the gate, too.
    let pin = core.pin_now(handle, 1).unwrap();
    core.delete(harness::ME, harness::ME.uid, "data").unwrap();
    assert_eq!(cause(core.page(&pin).map(<[u8]>::len)), CacheError::StalePin);
    assert_eq!(
        cause(core.change(&pin, 6).map(|bytes| bytes.len())),
        CacheError::StalePin
    );
    let later = core.change_later(&pin, 6).unwrap();
    assert!(core.wait(later).unwrap().unwrap().result.is_err());
    assert_eq!(core.oldest_recovery_lsn(), None);
    core.unpin(pin);
    // All frames serve another segment.
    harness::create(&mut core, "more", 16 * BLOCK as u64);
    let more = harness::open_write(&mut core, "more");
    let pins: Vec<PinnedPage> = (0..16).map(|page| core.pin_now(more, page).unwrap()).collect();
    assert!(pins.iter().all(|pin| core.page(pin).unwrap() == [0; BLOCK]));
    pins.into_iter().for_each(|pin| core.unpin(pin));
    core.close().unwrap();
}

#[test]
fn a_new_page_is_no_old_change_however_long_the_core_has_run() {
    let disk = Disk::new((PAGES * BLOCK) as u64);
    let (mut core, handle) = simulated(&disk, 16);
    let until = core.engine().now().after(3 * CacheOptions::default().age_max);
    while core.engine().now() < until {
        core.turn(Wait::Until {
            count: 0,
            min_wait: std::time::Duration::ZERO,
            deadline: Some(until),
        })
        .unwrap();
    }
    let pin = core.pin_new_now(handle, 3, 0).unwrap();
    for _ in 0..3 {
        core.turn(Wait::No).unwrap();
    }
    let stats = core.cache_stats().unwrap();
    assert_eq!((stats.frames_dirty, stats.cleaner_writes), (1, 0), "{stats:?}");
    core.unpin(pin);
    core.close().unwrap();
}

#[test]
fn a_segment_does_not_shrink_over_a_pin_and_grows_beside_one() {
    let (mut core, handle) = with_segment();
    let pin = core.pin_now(handle, 9).unwrap();
    core.change(&pin, 0).unwrap().fill(7);
    let resize = |core: &mut Core, pages: usize| {
        let options = baio_storage::ResizeOptions::to_size((pages * BLOCK) as u64);
        core.resize(harness::ME, harness::ME.uid, "data", &options).map(drop)
    };
    assert_eq!(cause(resize(&mut core, 5)), CacheError::Pinned);
    resize(&mut core, 20).unwrap();
    assert_eq!(core.page(&pin).unwrap(), [7; BLOCK]);
    core.unpin(pin);
    let new = core.pin_now(handle, 19).unwrap();
    assert_eq!(core.page(&new).unwrap(), [0; BLOCK]);
    core.unpin(new);
    resize(&mut core, 5).unwrap();
    assert!(core.pin_now(handle, 9).is_err());
    core.close().unwrap();
}
