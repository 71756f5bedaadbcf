//! The promise: a thread that sleeps until its record is durable is woken when it is, and when it never will be; whatever the others do.
//! Who would sleep on here meets the limit, and says so.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use baio_engine::Errno;
use baio_storage::log::{Appender, LogError, LogRequest, Lsn};

use crate::rig::{Rig, record, small};

const SIZE: u64 = 8192 + (4 << 20);
const THREADS: usize = 16;
const EACH: u64 = 400;
const LIMIT: Duration = Duration::from_secs(100);

fn wait(appender: &Appender, lsn: u64) -> Result<(), LogError> {
    match appender.wait_durable(Lsn(lsn), Some(Instant::now() + LIMIT)) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("{lsn} sleeps on, durable is {}", appender.durable_lsn()),
    }
}

/// One of many: a record or a group, which may be longer than a batch, and until it is durable nothing else.
fn append_and_wait(appender: &Appender, thread: usize) {
    for number in 0..EACH {
        let one = record(number, (thread * 37 + number as usize * 11) % 700);
        let long = record(number, 3000);
        let group: &[&[u8]] = if number % 7 == 0 { &[&one, &long, &one] } else { &[&one] };
        let lsn = loop {
            match appender.append_all(group) {
                Ok(lsn) => break lsn,
                Err(LogError::WouldBlock | LogError::Full) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        wait(appender, lsn.0).unwrap();
        assert!(lsn < appender.durable_lsn());
    }
}

/// Is any of them still there?
fn any<T>(threads: &[ScopedJoinHandle<'_, T>]) -> bool {
    threads.iter().any(|thread| !thread.is_finished())
}

/// Batches of all threads, several at the device, which end in any order; and nobody rings for the driver.
#[test]
fn many_threads_each_wake_for_their_record() {
    let mut rig = Rig::create(SIZE, &small());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let appender = rig.appender.clone();
                scope.spawn(move || append_and_wait(&appender, thread))
            })
            .collect();
        let mut turn = 0;
        while any(&threads) {
            rig.pump();
            rig.collect();
            turn += 1;
            match rig.ios.len() {
                0 => std::thread::yield_now(),
                ios => rig.end(turn % ios),
            }
            let durable = rig.appender.durable_lsn().0;
            if turn % 1000 == 0 {
                rig.start(LogRequest::Truncate { to: Lsn(durable) });
            }
        }
    });
    assert_eq!(rig.part.usage().appends, THREADS as u64 * (EACH + EACH.div_ceil(7) * 2));
}

/// All sleep for records that are at the device, or open; then this happens to the log.
fn all_are_told(happens: impl FnOnce(Rig), tells: fn(bool, &Result<(), LogError>) -> bool) {
    let mut rig = Rig::create(SIZE, &small());
    let before = rig.batch(&record(1, 100));
    let at_device = rig.batch(&record(2, 100));
    rig.batch(&record(3, 100)); // The window is full.
    let open = rig.append(&record(4, 100));
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let lsn = [before, at_device, open][number % 3];
            let (appender, begun) = (rig.appender.clone(), &begun);
            scope.spawn(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                let told = wait(&appender, lsn);
                assert!(tells(lsn == before, &told), "{lsn}: {told:?}");
            });
        }
        while begun.load(Ordering::SeqCst) < THREADS {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20)); // Most are asleep by now; none needs to be.
        happens(rig);
    });
}

#[test]
fn a_write_that_fails_wakes_all() {
    let happens = |mut rig: Rig| {
        rig.fail(1, Errno::EIO, |_| false);
        rig.end(0);
        rig.run();
    };
    all_are_told(happens, |is_before, told| is_before == told.is_ok());
}

#[test]
fn a_log_that_is_closed_wakes_all() {
    let happens = |mut rig: Rig| {
        rig.ask(LogRequest::Close).unwrap();
    };
    all_are_told(happens, |_, told| matches!(told, Ok(()) | Err(LogError::Closed)));
}

#[test]
fn a_log_that_goes_wakes_all() {
    all_are_told(drop, |_, told| *told == Err(LogError::Closed));
}

#[test]
fn a_failed_log_that_goes_wakes_who_waits_for_what_was_before() {
    let happens = |mut rig: Rig| {
        rig.fail(1, Errno::EIO, |_| false);
        drop(rig);
    };
    all_are_told(happens, |_, told| matches!(told, Err(LogError::Failed { .. })));
}

/// The driver's thread panics: its unwinding lets the log go.
#[test]
fn a_driver_that_panics_wakes_all() {
    let happens = |rig: Rig| {
        let panics = std::thread::spawn(move || {
            let _rig = rig;
            panic!("on purpose");
        });
        assert!(panics.join().is_err());
    };
    all_are_told(happens, |_, told| *told == Err(LogError::Closed));
}

#[test]
fn a_deadline_ends_a_sleep() {
    let mut rig = Rig::create(SIZE, &small());
    let lsn = Lsn(rig.append(b"x"));
    let soon = || Some(Instant::now() + Duration::from_millis(5));
    assert!(rig.appender.wait_durable(lsn, soon()).is_pending());
    assert!(rig.appender.wait_durable(lsn, Some(Instant::now())).is_pending());
    rig.run();
    assert_eq!(
        rig.appender.wait_durable(lsn, Some(Instant::now())),
        Poll::Ready(Ok(()))
    );
    assert_eq!(rig.appender.wait_durable(lsn, None), Poll::Ready(Ok(())));
}

/// Whoever waits before the log is open hears of what an earlier crash has lost, and of what comes.
#[test]
fn an_opening_wakes_who_waits_for_it() {
    let mut rig = Rig::create(SIZE, &small());
    let kept = rig.write(b"kept");
    let device = rig.crash(|_, _| false);
    let arena = baio_engine::Arena::new(64 << 20).unwrap();
    let size = device.bytes.len() as u64;
    let part = baio_storage::log::LogPart::open(&arena, size, &small()).unwrap();
    let mut rig = Rig::of_unopened(arena, device, part);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let appender = rig.appender.clone();
                scope.spawn(move || wait(&appender, kept).unwrap())
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        rig.ask(LogRequest::Open).unwrap();
        drop(threads);
    });
}
