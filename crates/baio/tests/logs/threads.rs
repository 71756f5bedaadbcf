//! Many threads on one log, over a service: each record has one LSN, none is lost, and the service is not woken for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use baio::{Backend, Link, Lsn, Memory, Remote, SegmentOp, Wait};

use crate::rig::{Place, Rig, near_and_far, payloads, segment};

const PLACE: Place = Place {
    backend: Backend::Auto,
    is_file: false,
    is_far: false,
    block_bytes: 512,
};

const THREADS: u64 = 8;
const EACH: u64 = 200;

#[test]
fn many_threads_append_and_wait() {
    near_and_far(PLACE, many_threads_append_and_wait_on);
}

fn many_threads_append_and_wait_on(rig: &Rig) {
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let log = log.clone();
            std::thread::spawn(move || {
                let mut lsns = Vec::new();
                for number in 0..EACH {
                    let lsn = log.append(&(thread << 32 | number).to_le_bytes()).unwrap();
                    assert_eq!(log.durable(lsn).wait().unwrap(), lsn);
                    assert!(lsn < log.durable_lsn());
                    lsns.push(lsn);
                }
                lsns
            })
        })
        .collect();
    let mut lsns: Vec<Lsn> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    lsns.sort_unstable();
    lsns.dedup();
    assert_eq!(lsns.len() as u64, THREADS * EACH, "no LSN is given twice");
    let mut next = [0; THREADS as usize];
    for payload in payloads(&log) {
        let word = u64::from_le_bytes(payload.try_into().unwrap());
        let thread = (word >> 32) as usize;
        assert_eq!(word & 0xffff_ffff, next[thread], "in the order of each thread");
        next[thread] += 1;
    }
    assert_eq!(next, [EACH; THREADS as usize]);
    let usage = log.usage().wait().unwrap();
    assert!(
        usage.bells <= usage.batches + 2 && usage.batches < usage.appends,
        "{usage:?}"
    );
    drop(log);
    link.close().unwrap();
}

#[test]
fn a_flood_rings_once_a_batch_at_most() {
    const RECORDS: u64 = 3000;
    let rig = Rig::new(PLACE);
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
    let mut last = Lsn(0);
    for number in 0..RECORDS {
        last = log.append(&number.to_le_bytes()).unwrap();
    }
    log.durable(last).wait().unwrap();
    let usage = log.usage().wait().unwrap();
    assert!(
        usage.bells <= usage.batches + 2 && usage.batches < RECORDS / 2,
        "{usage:?}"
    );
    assert_eq!(payloads(&log).len() as u64, RECORDS);
    drop(log);
    link.close().unwrap();
}

#[test]
fn a_reader_follows_many_writers() {
    near_and_far(PLACE, a_reader_follows_many_writers_on);
}

fn a_reader_follows_many_writers_on(rig: &Rig) {
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
    let reader = {
        let log = log.clone();
        std::thread::spawn(move || {
            let mut follower = log.follow(log.head_lsn());
            let mut seen = Vec::new();
            while seen.len() < 4 * 150 {
                let record = follower.next_record().wait().unwrap().unwrap();
                assert!(record.lsn() < log.durable_lsn(), "only what is durable is shown");
                assert!(seen.last().is_none_or(|last| *last < record.lsn()));
                seen.push(record.lsn());
            }
        })
    };
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let log = log.clone();
            std::thread::spawn(move || {
                for number in 0..150_usize {
                    let lsn = log.append(&vec![number as u8; number * 10]).unwrap();
                    if number % 10 == 9 {
                        log.durable(lsn).wait().unwrap();
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    reader.join().unwrap();
    drop(log);
    link.close().unwrap();
}

/// A record that is in memory is given without waiting, so that no lock of the link is taken: also where waiting is refused.
#[test]
fn a_record_at_hand_waits_for_nobody() {
    near_and_far(PLACE, a_record_at_hand_waits_for_nobody_on);
}

fn a_record_at_hand_waits_for_nobody_on(rig: &Rig) {
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
    let mut follower = log.follow(log.head_lsn());
    log.append_durable(b"first").wait().unwrap();
    assert_eq!(follower.next_record().wait().unwrap().unwrap().payload(), b"first");
    let last = log.append_durable(b"second").wait().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    log.when_durable(last, move |_| {
        let read = (0..2).map(|_| follower.next_record().wait());
        let _ = tell.send((read.collect::<Vec<_>>(), follower));
    });
    let (read, follower) = told.recv().unwrap();
    let [Ok(Some(second)), Err(refused)] = &read[..] else {
        panic!("{read:?}")
    };
    assert_eq!((second.lsn(), second.payload()), (last, &b"second"[..]));
    assert_eq!(refused.errno(), Some(baio::Errno::EDEADLK), "{refused}");
    drop((follower, log));
    link.close().unwrap();
}

/// A thread that parks is woken by its waker alone: nobody reaps for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_wait_in_another_runtime() {
    let rig = Rig::new(PLACE);
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).await.unwrap();
    let tasks: Vec<_> = (0..16_u64)
        .map(|task| {
            let log = log.clone();
            tokio::spawn(async move {
                for number in 0..20 {
                    log.append_durable(&(task * 100 + number).to_le_bytes()).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let then = Arc::clone(&stop);
    let last = log.append(b"last").unwrap();
    log.when_durable(last, move |result| {
        result.unwrap();
        then.store(true, Ordering::SeqCst);
    });
    log.durable(last).await.unwrap();
    log.close().await.unwrap();
    assert!(stop.load(Ordering::SeqCst));
    drop(log);
    tokio::task::spawn_blocking(move || link.close().unwrap())
        .await
        .unwrap();
}

/// Some sleep for a record that never comes when the service ends.
#[test]
fn who_sleeps_hears_of_the_end() {
    near_and_far(PLACE, who_sleeps_hears_of_the_end_on);
}

fn who_sleeps_hears_of_the_end_on(rig: &Rig) {
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
    let far = Lsn(log.end_lsn().0 + (1 << 20));
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (log, begun) = (log.clone(), &begun);
                scope.spawn(move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    log.durable(far).wait().unwrap_err()
                })
            })
            .collect();
        while begun.load(Ordering::SeqCst) < THREADS as usize {
            std::thread::yield_now();
        }
        link.clone().close().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    assert!(log.durable(far).wait().is_err());
}

/// Outcomes that nobody takes hold every place. The log needs some for its end, and only the thread that closes would take outcomes.
#[test]
fn a_link_closes_beside_outcomes_that_nobody_takes() {
    near_and_far(PLACE, a_link_closes_beside_outcomes_that_nobody_takes_on);
}

fn a_link_closes_beside_outcomes_that_nobody_takes_on(rig: &Rig) {
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).create_log(&rig.options()).wait().unwrap();
    log.append_durable(b"kept").wait().unwrap();
    let other = segment(&link, "other");
    loop {
        while other.submit(other.request(SegmentOp::Sync, Memory::None)).is_ok() {}
        if link.in_flight() == 0 {
            break;
        }
        link.turn(Wait::one()).unwrap();
    }
    link.clone().close().unwrap();
    drop((log, other, link));
    let link = rig.link::<Remote>();
    let log = rig.opened(&link).open_log(&rig.options()).wait().unwrap();
    assert!(log.found().was_clean, "it was wound down: {:?}", log.found());
    assert_eq!(payloads(&log), [b"kept"]);
    drop(log);
    link.close().unwrap();
}
