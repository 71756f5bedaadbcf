//! The pool under jobs that block for as long as the test likes: reads of pipes.

use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::*;
use crate::memory::Window;
use crate::sys::{Action, Fd};

fn pool(name: &'static str, wide: u32, narrow: u32, stream: u32) -> Pool {
    let pool = Pool::new(name, 16, Limits { wide, narrow, stream }).unwrap();
    // Before its first worker sits, the pool may make one more than it needs.
    eventually("the first worker sits", || lock(&pool.shared.state).idle.len() == 1);
    pool
}

/// A read of one byte, which nobody looks at.
fn read(slot: u32, fd: RawFd, class: Class) -> Job {
    // Leaked: a stuck job may write it at any time.
    let byte: &'static mut u8 = Box::leak(Box::new(0));
    Job {
        id: RequestId { slot, generation: 0 },
        iteration: Iteration {
            action: Action::Read {
                window: Window::Flat { pointer: byte, len: 1 },
                offset: -1,
            },
            fd: Fd::Raw(fd),
            flags: 0,
        },
        class,
    }
}

/// Threads of this process by that name: what the kernel says, not what the pool counts.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let named =
        |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    tasks.filter(|task| named(task.as_ref().unwrap().path())).count()
}

/// Waits for something that must come; a test that hangs is better than one that guesses how long it takes.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {what}");
}

/// How often the bell was rung since this was asked last.
fn rings(pool: &Pool) -> u64 {
    let mut count = [0; 8];
    let rang = rustix::io::read(pool.bell(), &mut count).is_ok();
    if rang { u64::from_ne_bytes(count) } else { 0 }
}

fn results(pool: &mut Pool, into: &mut Vec<(RequestId, i32)>, want: usize) {
    eventually("every job is reported", || {
        pool.collect(into, Ring::Never);
        into.len() >= want
    });
}

#[test]
fn ten_thousand_blocking_jobs_never_need_more_threads_than_allowed() {
    const JOBS: u32 = 10_000;
    let mut pool = pool("cap", 3, 5, 1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut batch = Vec::new();
    for slot in 0..JOBS {
        let class = [Class::Wide, Class::Narrow][slot as usize % 2];
        batch.push(read(slot, reader.as_raw_fd(), class));
        if batch.len() == 100 {
            pool.submit(&mut batch);
        }
    }
    eventually("the pool grows as far as it may", || threads("cap") == 8);
    let mut done = Vec::new();
    for _ in 0..JOBS / 100 {
        writer.write_all(&[7; 100]).unwrap();
        assert!(threads("cap") <= 8);
        let state = lock(&pool.shared.state);
        assert!((0..CLASSES).all(|class| state.running[class] <= state.limits[class]));
        drop(state);
        pool.collect(&mut done, Ring::Never);
    }
    results(&mut pool, &mut done, JOBS as usize);
    assert!(done.iter().all(|(_, raw)| *raw == 1));
    let mut slots: Vec<u32> = done.iter().map(|(id, _)| id.slot).collect();
    slots.sort_unstable();
    assert!(slots.iter().copied().eq(0..JOBS), "each is reported once");
    assert_eq!(pool.workers().1, 8);
}

#[test]
fn no_more_threads_are_made_than_jobs_may_run() {
    let mut pool = pool("ration", 8, 2, 1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut batch: Vec<Job> = (0..6)
        .map(|slot| read(slot, reader.as_raw_fd(), Class::Narrow))
        .collect();
    pool.submit(&mut batch);
    eventually("two are made", || pool.workers().0 == 2);
    // Stuck ones do not keep others from running.
    let (other, mut to_other) = std::io::pipe().unwrap();
    to_other.write_all(b"x").unwrap();
    pool.submit(&mut vec![read(6, other.as_raw_fd(), Class::Wide)]);
    let mut done = Vec::new();
    results(&mut pool, &mut done, 1);
    assert_eq!(done[0].0.slot, 6);
    assert!(pool.workers().1 <= 3);
    writer.write_all(b"xxxxxx").unwrap();
    results(&mut pool, &mut done, 7);
    let order: Vec<u32> = done.iter().map(|(id, _)| id.slot).collect();
    assert!(order.contains(&5), "{order:?}");
}

#[test]
fn idle_workers_leave_and_the_last_one_stays() {
    let mut pool = pool("idle", 4, 1, 1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    for round in 0..2 {
        let mut batch: Vec<Job> = (0..4).map(|slot| read(slot, reader.as_raw_fd(), Class::Wide)).collect();
        pool.submit(&mut batch);
        eventually("four are made", || threads("idle") == 4);
        writer.write_all(b"xxxx").unwrap();
        let mut done = Vec::new();
        results(&mut pool, &mut done, 4);
        eventually("three leave", || threads("idle") == 1);
        thread::sleep(4 * IDLE);
        assert_eq!((threads("idle"), pool.workers().0), (1, 1), "round {round}");
    }
}

#[test]
fn a_stuck_worker_is_let_go_of_and_leaves_when_it_can() {
    let mut pool = pool("stuck", 4, 1, 1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    // One is stuck, one waits behind it, one is idle.
    pool.submit(&mut vec![
        read(0, reader.as_raw_fd(), Class::Narrow),
        read(1, reader.as_raw_fd(), Class::Narrow),
    ]);
    let (other, mut to_other) = std::io::pipe().unwrap();
    to_other.write_all(b"x").unwrap();
    pool.submit(&mut vec![read(2, other.as_raw_fd(), Class::Wide)]);
    results(&mut pool, &mut Vec::new(), 1);
    drop(pool);
    eventually("the idle one has left", || threads("stuck") == 1);
    writer.write_all(b"xx").unwrap();
    eventually("the stuck one leaves", || threads("stuck") == 0);
    let mut left = [0; 2];
    let left = rustix::io::read(&reader, &mut left).unwrap();
    assert_eq!(left, 1, "what had not begun never ran");
}

#[test]
fn what_waits_is_cancelled_and_what_runs_is_not() {
    let mut pool = pool("cancel", 1, 1, 1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let jobs = (0..3).map(|slot| read(slot, reader.as_raw_fd(), Class::Narrow));
    pool.submit(&mut jobs.collect());
    let id = |slot| RequestId { slot, generation: 0 };
    eventually("the first one runs", || {
        lock(&pool.shared.state).running[Class::Narrow as usize] == 1
    });
    assert!(pool.cancel(id(1)));
    assert!(!pool.cancel(id(1)) && !pool.cancel(id(0)));
    writer.write_all(b"xx").unwrap();
    let mut done = Vec::new();
    results(&mut pool, &mut done, 2);
    assert_eq!(done, [(id(0), 1), (id(2), 1)]);
}

#[test]
fn the_bell_rings_once_when_as_many_are_there_as_are_waited_for() {
    let mut pool = pool("bell", 1, 1, 1);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut done = Vec::new();
    let jobs = (0..5).map(|slot| read(slot, reader.as_raw_fd(), Class::Wide));
    pool.submit(&mut jobs.collect());
    pool.collect(&mut done, Ring::When(3));
    writer.write_all(b"xx").unwrap();
    eventually("two are there", || lock(&pool.shared.state).finished.len() == 2);
    assert_eq!(rings(&pool), 0);
    writer.write_all(b"xx").unwrap();
    eventually("four are there", || lock(&pool.shared.state).finished.len() == 4);
    eventually("it rings", || rings(&pool) == 1);
    pool.collect(&mut done, Ring::Never);
    writer.write_all(b"x").unwrap();
    results(&mut pool, &mut done, 5);
    assert_eq!(rings(&pool), 0, "the owner is awake");
}

/// Those that run may be stuck: whoever has waited for them for long enough runs beside them, as many as may.
#[test]
fn stuck_jobs_keep_no_others_from_running() {
    let mut pool = pool("weary", 64, 1, 1);
    let (stuck, mut writer) = std::io::pipe().unwrap();
    let jobs = (0..BRISK).map(|slot| read(slot, stuck.as_raw_fd(), Class::Wide));
    pool.submit(&mut jobs.collect());
    eventually("all of them run", || threads("weary") == BRISK as usize);
    // More are stuck behind them; then comes one that is not.
    let jobs = (BRISK..BRISK + 8).map(|slot| read(slot, stuck.as_raw_fd(), Class::Wide));
    pool.submit(&mut jobs.collect());
    let (ready, mut to_ready) = std::io::pipe().unwrap();
    to_ready.write_all(b"x").unwrap();
    pool.submit(&mut vec![read(100, ready.as_raw_fd(), Class::Wide)]);
    let mut done = Vec::new();
    results(&mut pool, &mut done, 1);
    assert_eq!(done[0].0.slot, 100);
    eventually("no job waits", || {
        pool.collect(&mut done, Ring::Never);
        pool.next_look().is_none()
    });
    writer.write_all(&[7; BRISK as usize + 8]).unwrap();
    results(&mut pool, &mut done, BRISK as usize + 9);
}

/// Where no thread can be made and all that there are are stuck, a job that waits is looked after until one can be made:
/// whoever was refused, the owner or a worker that had found more to do than it can.
#[test]
fn a_job_that_found_no_thread_is_looked_after() {
    fn the_owner_is_refused_three_times() -> bool {
        static LEFT: AtomicU32 = AtomicU32::new(3);
        LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
    fn workers_are_refused() -> bool {
        thread::current().name() == Some("stuck-worker")
    }
    const SOON: Duration = Duration::from_micros(100);
    const LATE: Duration = Duration::from_secs(3600);
    let cases: [(_, _, _, fn() -> bool); 2] = [
        ("stuck-owner", 0, SOON, the_owner_is_refused_three_times),
        // The owner is not to look before the worker has.
        ("stuck-worker", 1, LATE, workers_are_refused),
    ];
    for (name, more, patience, refuses) in cases {
        let mut pool = pool(name, 64, 1, 1);
        let (stuck, mut writer) = std::io::pipe().unwrap();
        let (ready, mut to_ready) = std::io::pipe().unwrap();
        to_ready.write_all(b"x").unwrap();
        pool.submit(&mut vec![read(0, stuck.as_raw_fd(), Class::Wide)]);
        eventually("the only worker is stuck", || {
            lock(&pool.shared.state).running[Class::Wide as usize] == 1 && threads(name) == 1
        });
        lock(&pool.shared.state).patience = patience;
        lock(&pool.shared.state).refuses = refuses;
        let behind = (1..=more).map(|slot| read(slot, stuck.as_raw_fd(), Class::Wide));
        pool.submit(&mut behind.chain([read(100, ready.as_raw_fd(), Class::Wide)]).collect());
        eventually("a thread is refused", || pool.refused() == Some(Errno::EAGAIN));
        lock(&pool.shared.state).patience = SOON;
        if more > 0 {
            // As if the owner had looked while the worker held the job, between the queue and the refusal.
            pool.next_look = None;
        }
        let mut done = Vec::new();
        // The owner does what it does asleep: it collects when it is rung for, or when a look is due.
        eventually("the job runs", || {
            let due = pool.next_look().is_some_and(|at| at <= sys::monotonic());
            if due || rings(&pool) > 0 {
                pool.collect(&mut done, Ring::Next);
            }
            !done.is_empty()
        });
        assert_eq!(done[0].0.slot, 100);
        writer.write_all(&[7; 2]).unwrap();
        results(&mut pool, &mut done, 2 + more as usize);
    }
}

/// Who may never run, or has been called back, is nothing to be looked after.
#[test]
fn nobody_is_looked_after_who_may_not_run() {
    let mut pool = pool("patient", 64, 1, 1);
    let (stuck, mut writer) = std::io::pipe().unwrap();
    let jobs = (0..4).map(|slot| read(slot, stuck.as_raw_fd(), Class::Narrow));
    pool.submit(&mut jobs.collect());
    eventually("one runs", || {
        lock(&pool.shared.state).running[Class::Narrow as usize] == 1
    });
    let mut done = Vec::new();
    pool.collect(&mut done, Ring::Never);
    assert_eq!(pool.next_look(), None, "the class is full");
    let jobs = (10..11 + BRISK).map(|slot| read(slot, stuck.as_raw_fd(), Class::Wide));
    lock(&pool.shared.state).patience = Duration::from_secs(3600);
    pool.submit(&mut jobs.collect());
    let last = |pool: &Pool| {
        lock(&pool.shared.state).queues[Class::Wide as usize]
            .back()
            .map(|w| w.job.id)
    };
    eventually("one waits", || {
        lock(&pool.shared.state).queues[Class::Wide as usize].len() == 1
    });
    assert!(pool.next_look().is_some());
    let id = last(&pool).unwrap();
    for id in (1..4).map(|slot| RequestId { slot, generation: 0 }).chain([id]) {
        assert!(pool.cancel(id));
    }
    assert_eq!(pool.next_look(), None);
    writer.write_all(&[7; BRISK as usize + 1]).unwrap();
    results(&mut pool, &mut done, BRISK as usize + 1);
}

/// A worker that ends a job finds the next: so beyond a few, no more are woken or made than there are jobs left over.
#[test]
fn many_jobs_have_half_as_many_workers() {
    const JOBS: u32 = 100;
    let mut pool = pool("half", 64, 1, 1);
    lock(&pool.shared.state).patience = Duration::from_secs(3600);
    let (reader, mut writer) = std::io::pipe().unwrap();
    pool.submit(
        &mut (0..JOBS)
            .map(|slot| read(slot, reader.as_raw_fd(), Class::Wide))
            .collect(),
    );
    eventually("half of them run", || threads("half") == 50);
    thread::sleep(IDLE);
    assert_eq!(threads("half"), 50);
    writer.write_all(&[7; JOBS as usize]).unwrap();
    results(&mut pool, &mut Vec::new(), JOBS as usize);
    // A few all run.
    let (reader, mut writer) = std::io::pipe().unwrap();
    eventually("they leave", || threads("half") == 1);
    pool.submit(
        &mut (0..BRISK)
            .map(|slot| read(slot, reader.as_raw_fd(), Class::Wide))
            .collect(),
    );
    eventually("all run", || threads("half") == BRISK as usize);
    writer.write_all(&[7; BRISK as usize]).unwrap();
    results(&mut pool, &mut Vec::new(), BRISK as usize);
}
