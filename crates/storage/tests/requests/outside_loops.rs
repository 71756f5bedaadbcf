//! The promise: a loop of somebody else's that sleeps on the engine's descriptor, until `Core::next_wake` at most, sees every deadline
//! pass and every changed page grow old, wherever the request is that waits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use baio_engine::{Caching, Create, Descriptions, Open, Time, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{Core, Mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::harness::{self, BLOCK, config, read_request, start, write_request};

/// Longer than anything takes that is looked at.
const FOR_EVER: Duration = Duration::from_secs(20);

const AGE: Duration = Duration::from_millis(40);

/// A core with a cache, unless its backend has no descriptor.
fn started() -> Option<Core> {
    let mut core = Core::new(&config()).unwrap();
    let cache = CacheOptions {
        bytes: 64 * BLOCK,
        age_max: AGE,
        ..CacheOptions::default()
    };
    core.use_cache(&cache).unwrap();
    let can = core.engine_mut().ready_fd(false).is_some();
    if !can {
        harness::skip("this backend has no descriptor to sleep on");
    }
    can.then_some(core)
}

/// Sleeps outside until this is true.
fn sleep_until(core: &mut Core, mut is_so: impl FnMut(&mut Core) -> bool) {
    let begun = Instant::now();
    loop {
        let ready = core.engine_mut().ready_fd(true).unwrap().try_clone_to_owned().unwrap();
        core.turn(Wait::No).unwrap();
        if is_so(core) {
            break;
        }
        if !core.has_news() {
            let now = core.engine().now();
            let left = core.next_wake().map_or(FOR_EVER, |at| at.since(now));
            let limit = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            poll(&mut [PollFd::new(&ready.as_fd(), PollFlags::IN)], Some(&limit)).unwrap();
        }
        core.engine_mut().ready_fd(false);
        assert!(begun.elapsed() < FOR_EVER / 2, "slept through it");
    }
}

#[test]
fn what_has_grown_old_is_written() {
    let Some(mut core) = started() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; 64 * BLOCK]).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    assert_eq!(core.next_wake(), None);
    let mut write = write_request(&core, handle, 0, &[1; BLOCK]);
    write.mode = Mode::Cached;
    harness::run(&mut core, write).result.unwrap();
    let written = |core: &mut Core| core.cache_stats().unwrap().pages_written;
    assert!(core.next_wake().is_some_and(|at| at <= core.engine().now().after(AGE)));
    assert_eq!(written(&mut core), 0);
    sleep_until(&mut core, |core| written(core) == 1);
    sleep_until(&mut core, |core| core.next_wake().is_none());
}

/// A pipe that nobody writes to, by a direct request, which the engine has.
#[test]
fn what_the_engine_has_is_overdue() {
    let Some(mut core) = started() else { return };
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let options = Open {
        write: true, // Both ends: opening does not wait.
        descriptions: Descriptions::Only(Caching::Kernel),
        create: Create::Never,
        claim_device: false,
    };
    let handle = core.open_file(&fifo, &options).unwrap();
    let mut request = read_request(&core, handle, 0, BLOCK);
    request.mode = Mode::Kernel;
    let at = core.engine().now().after(Duration::from_millis(30));
    request.deadline = Some(at);
    let ticket = start(&mut core, request);
    assert_eq!(core.next_wake(), Some(at));
    sleep_until(&mut core, |core| {
        core.next_outcome().is_some_and(|outcome| outcome.ticket == ticket)
    });
    assert_eq!(core.next_wake(), None);
}

/// In virtual time: whichever comes first, of the cache's ages, the deadlines here and those in the engine.
#[test]
fn the_soonest_is_told() {
    let disk = baio_engine::sim::Disk::new(64 * BLOCK as u64);
    disk.set_profile(baio_engine::sim::Profile::Flash(baio_engine::sim::Flash::default()));
    let volume = harness::simulated_disk(&baio_storage::FormatOptions {
        size_bytes: Some(1 << 20),
        ..baio_storage::FormatOptions::default()
    });
    let mut core = harness::open_simulated(&volume);
    let cache = CacheOptions {
        bytes: 16 * BLOCK,
        age_max: AGE,
        ..CacheOptions::default()
    };
    core.use_cache(&cache).unwrap();
    let file = baio_engine::File::simulated(&disk, "disk");
    let handle = core.add_file(file, baio_storage::Access::Write);
    let now = core.engine().now();
    let after = |milliseconds| now.after(Duration::from_millis(milliseconds));
    let begin = |core: &mut Core, page: u64, mode, deadline: Time| {
        let mut write = write_request(core, handle, page * BLOCK as u64, &[1; BLOCK]);
        (write.mode, write.deadline) = (mode, Some(deadline));
        write.durability = baio_engine::Durability::Data;
        start(core, write)
    };
    // Changed, and to be made safe.
    let cached = begin(&mut core, 0, Mode::Cached, after(70));
    assert!(core.next_wake() <= Some(core.engine().now().after(AGE)));
    let sooner = begin(&mut core, 1, Mode::Cached, after(20));
    assert_eq!(core.next_wake(), Some(after(20)), "of what the cache has");
    let direct = begin(&mut core, 2, Mode::Direct, after(10));
    assert_eq!(core.next_wake(), Some(after(10)), "of what the engine has");
    for ticket in [direct, sooner, cached] {
        core.wait(ticket).unwrap().unwrap().result.unwrap();
    }
    // The file's age is looked at once more.
    let deadline = core.next_wake();
    assert_eq!(deadline, Some(now.after(AGE)));
    // Nothing ends any more; it sleeps; it looks.
    for _ in 0..3 {
        let wait = Wait::Until {
            count: 0,
            min_wait: Duration::ZERO,
            deadline,
        };
        core.turn(wait).unwrap();
    }
    assert_eq!(core.next_wake(), None);
}
