//! Whoever waits for a log is told, once: whatever others' callbacks do, and whatever becomes of the log.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use baio::{Access, Backend, Link, Local, Log, LogOptions, Lsn, Remote, Wait};
use baio_engine::sim::{Flash, Profile};

use crate::ends::{formatted, options as sim_options, remote};
use crate::rig::{Made, Place, Rig, near_and_far};

const PLACE: Place = Place {
    backend: Backend::Auto,
    is_file: false,
    is_far: false,
    block_bytes: 4096,
};

fn log_on<L: Made>(rig: &Rig, link: &L) -> Log<L> {
    rig.opened(link).create_log(&rig.options()).wait().unwrap()
}

/// Until it is so, driving the link; not for ever.
fn until<L: Link>(link: &L, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        let _ = link.turn(Wait::No);
        std::thread::sleep(Duration::from_millis(1));
        assert!(begun.elapsed() < Duration::from_secs(10), "it never comes");
    }
}

fn a_callback_panics<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = log_on(rig, &link);
    let called = Arc::new(AtomicU64::new(0));
    let lsn = log.append(b"one").unwrap();
    for number in 0..6 {
        let called = Arc::clone(&called);
        log.when_durable(lsn, move |result| {
            result.unwrap();
            called.fetch_add(1, Ordering::SeqCst);
            assert!(number % 2 == 1, "panics, on purpose");
        });
    }
    // Who waits for the same is told as if nothing were.
    log.durable(lsn).wait().unwrap();
    until(&link, || called.load(Ordering::SeqCst) == 6);
    log.append_durable(b"two").wait().unwrap();
    // Also of those that hear of the end.
    let far = Lsn(log.end_lsn().0 + (1 << 20));
    for _ in 0..4 {
        let called = Arc::clone(&called);
        log.when_durable(far, move |result| {
            called.fetch_add(1, Ordering::SeqCst);
            result.unwrap(); // Panics, on purpose.
        });
    }
    log.close().wait().unwrap();
    until(&link, || called.load(Ordering::SeqCst) == 10);
    drop(log);
    link.close().unwrap();
}

#[test]
fn a_callback_that_panics_keeps_nobody_from_being_told() {
    a_callback_panics::<Local>(&Rig::new(PLACE));
    near_and_far(PLACE, a_callback_panics::<Remote>);
}

/// The link goes without a close, and with it a log for which callbacks wait: each is told, whatever the others do.
fn a_link_goes<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let logs = [
        rig.opened(&link).create_log(&rig.options()).wait().unwrap(),
        crate::rig::segment(&link, "other")
            .create_log(&rig.options())
            .wait()
            .unwrap(),
    ];
    let told = Arc::new(AtomicU64::new(0));
    for log in &logs {
        let far = Lsn(log.end_lsn().0 + (1 << 20));
        for _ in 0..3 {
            let told = Arc::clone(&told);
            log.when_durable(far, move |result| {
                told.fetch_add(1, Ordering::SeqCst);
                result.unwrap(); // Panics, on purpose.
            });
        }
    }
    let _ = catch_unwind(AssertUnwindSafe(move || drop((logs, link))));
    let begun = Instant::now();
    while told.load(Ordering::SeqCst) < 6 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{told:?} are told");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn callbacks_are_told_that_the_link_has_gone() {
    a_link_goes::<Local>(&Rig::new(PLACE));
    near_and_far(PLACE, a_link_goes::<Remote>);
}

/// A callback appends, waits for that by another callback, and lets the last of the log go.
#[test]
fn a_callback_may_append_and_drop_the_log() {
    near_and_far(PLACE, a_callback_may_append_and_drop_the_log_on);
}

fn a_callback_may_append_and_drop_the_log_on(rig: &Rig) {
    let link = rig.link::<Remote>();
    let log = log_on(rig, &link);
    let appender = log.clone();
    let is_done = Arc::new(AtomicBool::new(false));
    let then = Arc::clone(&is_done);
    let last = Mutex::new(Some(log.clone()));
    let lsn = log.append(b"one").unwrap();
    log.when_durable(lsn, move |result| {
        result.unwrap();
        let lsn = appender.append(b"two").unwrap();
        let waits = appender.durable(lsn).wait();
        assert!(waits.is_err(), "it would wait for itself");
        let last = last.lock().unwrap().take();
        appender.when_durable(lsn, move |result| {
            result.unwrap();
            drop(last); // The last of all, now or when the outer one ends.
            then.store(true, Ordering::SeqCst);
        });
    });
    drop(log);
    until(&link, || is_done.load(Ordering::SeqCst));
    let closes = std::thread::spawn(move || link.close().unwrap());
    until_finished(closes);
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).open_log(&rig.options()).wait().unwrap();
    assert_eq!(crate::rig::payloads(&log), [b"one", b"two"]);
    drop(log);
    link.close().unwrap();
}

fn until_finished<T>(thread: std::thread::JoinHandle<T>) -> T {
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

/// What is durable already is told by a callback too, when the link is driven from an outside loop that has nothing else to do.
#[test]
fn a_callback_that_comes_late_is_told_by_an_outside_loop() {
    let rig = Rig::new(PLACE);
    let link = rig.link::<Local>();
    let log = log_on(&rig, &link);
    let lsn = log.append_durable(b"one").wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let work = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let (tell, told) = tokio::sync::oneshot::channel();
                log.when_durable(lsn, move |result| tell.send(result.map_err(drop)).unwrap());
                tokio::time::timeout(Duration::from_secs(5), told)
                    .await
                    .expect("it is called")
                    .unwrap()
                    .unwrap();
            }
        };
        tokio::select! {
            error = link.drive() => panic!("{error}"),
            () = work => {}
        }
    });
    drop(log);
    link.close().unwrap();
}

/// A reader is at the device when the link closes: both end.
#[test]
fn a_link_closes_beside_a_reader() {
    for round in 0..10_u64 {
        let disk = formatted();
        disk.set_profile(Profile::Flash(Flash::default()));
        let link = remote(&disk);
        let segment = link.open_segment("log", Access::Write).wait().unwrap();
        let log = segment.create_log(&sim_options()).wait().unwrap();
        let mut last = Lsn(0);
        while let Ok(lsn) = log.append(&[1; 4000]) {
            last = lsn;
        }
        log.durable(last).wait().unwrap();
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let log = log.clone();
                std::thread::spawn(move || {
                    let mut records = log.records(log.head_lsn());
                    while let Ok(Some(_)) = records.next_record().wait() {}
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(100 * round));
        let closing = log.clone();
        let closes = std::thread::spawn(move || {
            let _ = closing.close().wait();
            closing.link().clone().close()
        });
        let _ = until_finished(closes);
        readers.into_iter().for_each(until_finished);
    }
}

/// Thousands wait; some give up, the others are told.
#[test]
fn ten_thousand_wait_for_one_record() {
    near_and_far(PLACE, ten_thousand_wait_for_one_record_on);
}

fn ten_thousand_wait_for_one_record_on(rig: &Rig) {
    const WAITERS: usize = 10_000;
    let link = rig.link::<Remote>();
    let log = log_on(rig, &link);
    let next = log.end_lsn();
    let mut waiting: Vec<_> = (0..WAITERS).map(|_| Box::pin(log.durable(next))).collect();
    let mut context = Context::from_waker(Waker::noop());
    for future in &mut waiting {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    let mut nth = 0;
    waiting.retain(|_| {
        nth += 1;
        nth % 3 != 0
    });
    let lsn = log.append(b"one").unwrap();
    assert!(lsn >= next);
    let told = link.block_on(async {
        let mut told = 0;
        for future in waiting {
            future.await.unwrap();
            told += 1;
        }
        told
    });
    assert_eq!(told.unwrap(), WAITERS - WAITERS / 3);
    drop(log);
    link.close().unwrap();
}

/// Many threads append to a log that is full all the time, and one makes room: nobody is left asleep beside room.
#[test]
fn threads_that_find_no_room_go_on() {
    near_and_far(PLACE, threads_that_find_no_room_go_on_on);
}

fn threads_that_find_no_room_go_on_on(rig: &Rig) {
    const THREADS: u64 = 6;
    const EACH: u64 = 400;
    let link = rig.link::<Remote>();
    let options = LogOptions {
        buffer_bytes: 64 << 10,
        batch_bytes_max: 16 << 10,
        ..rig.options()
    };
    let log = rig.opened(&link).create_log(&options).wait().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let truncates = {
        let (log, is_over) = (log.clone(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                log.truncate(log.durable_lsn()).wait().unwrap();
                std::thread::sleep(Duration::from_micros(300));
            }
        })
    };
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let log = log.clone();
            std::thread::spawn(move || {
                for number in 0..EACH {
                    let record = vec![thread as u8; 40 + (number * 977 + thread * 131) as usize % 9000];
                    while let Err(error) = log.append(&record) {
                        // Too much is not yet written, or the log is full until another thread gives records up.
                        let errno = error.errno();
                        assert!(
                            matches!(errno, Some(baio::Errno::EAGAIN | baio::Errno::ENOSPC)),
                            "{error}"
                        );
                        log.room(record.len()).wait().unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(until_finished);
    is_over.store(true, Ordering::SeqCst);
    until_finished(truncates);
    drop(log);
    link.close().unwrap();
}

/// Each future of a log is given up after so many polls, and the log goes on.
fn futures_are_given_up<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let mut log = log_on(rig, &link);
    for polls in 0..6 {
        let lsn = log.append_durable(b"between").wait().unwrap();
        give_up(&link, log.append_durable(b"durable"), polls);
        give_up(&link, log.durable(Lsn(lsn.0 + (1 << 20))), polls);
        give_up(&link, log.room(100), polls);
        give_up(&link, log.usage(), polls);
        give_up(&link, log.truncate(lsn), polls);
        give_up(&link, log.grow(1 << 20), polls);
        let mut records = log.records(log.head_lsn());
        for polls in 0..polls {
            give_up(&link, records.next_record(), polls);
        }
        drop(records);
        assert!(log.append_durable(b"after").wait().is_ok());
        give_up(&link, log.close(), polls);
        drop(log);
        let opened = rig.opened(&link);
        for polls in 0..=polls {
            give_up(&link, opened.open_log(&rig.options()), polls);
        }
        // What was given up is closed when it has come.
        let begun = Instant::now();
        log = loop {
            match opened.open_log(&rig.options()).wait() {
                Ok(log) => break log,
                Err(error) => assert_eq!(error.errno(), Some(baio::Errno::EBUSY), "{error}"),
            }
            let _ = link.turn(Wait::No); // Nobody else drives a local link.
            assert!(begun.elapsed() < Duration::from_secs(10), "it stays open");
        };
    }
    drop(log);
    link.close().unwrap();
}

fn give_up<L: Link, F: Future>(link: &L, future: F, polls: u32) {
    let mut context = Context::from_waker(Waker::noop());
    let mut future = pin!(future);
    let _ = link.block_on(async {
        for _ in 0..polls {
            if future.as_mut().poll(&mut context).is_ready() {
                return;
            }
            let _ = link.turn(Wait::No);
        }
    });
}

#[test]
fn futures_may_be_given_up_at_any_time() {
    futures_are_given_up::<Local>(&Rig::new(PLACE));
    near_and_far(PLACE, futures_are_given_up::<Remote>);
}
