//! A local link that is driven from other loops: what tasks append becomes durable, and they hear of it; also when a batch waits for the
//! clock, and when nothing else is under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use baio::{Backend, Error, Link, Local, LogOptions};

use crate::rig::{Place, Rig, payloads};

const PLACE: Place = Place {
    backend: Backend::Auto,
    is_file: false,
    is_far: false,
    block_bytes: 4096,
};

/// Tasks of one thread append and wait, beside whoever drives the link.
fn tasks_append<D: Future<Output = Error>>(options: LogOptions, drive: impl FnOnce(&Local) -> D) {
    let rig = Rig::new(PLACE);
    let link = rig.link::<Local>();
    let log = rig.opened(&link).create_log(&options).wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let begun = Instant::now();
    runtime.block_on(async {
        let driven = drive(&link);
        let work = async {
            let tasks = tokio::task::LocalSet::new();
            for task in 0..5_u8 {
                let log = log.clone();
                tasks.spawn_local(async move {
                    for number in 0..10_u8 {
                        log.append_durable(&[task, number]).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                });
            }
            tasks.await;
            let mut follower = log.follow(log.head_lsn());
            for _ in 0..50 {
                follower.next_record().await.unwrap().unwrap();
            }
        };
        tokio::select! {
            error = driven => panic!("{error}"),
            () = work => {}
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody was left asleep");
    assert_eq!(payloads(&log).len(), 50);
    drop(log);
    link.close().unwrap();
}

fn options(gather: Duration) -> LogOptions {
    LogOptions {
        batch_bytes_max: 32 << 10,
        gather,
        ..LogOptions::default()
    }
}

#[test]
fn beside_any_executor() {
    tasks_append(options(Duration::ZERO), Local::drive);
    tasks_append(options(Duration::from_millis(2)), Local::drive);
}

#[cfg(feature = "tokio")]
#[test]
fn by_the_reactor_of_tokio() {
    tasks_append(options(Duration::ZERO), Local::drive_tokio);
    tasks_append(options(Duration::from_millis(2)), Local::drive_tokio);
}

/// What became durable a moment ago is read from memory: nobody drives the link for it.
#[test]
fn a_follower_reads_the_tail_without_the_core() {
    let rig = Rig::new(PLACE);
    let link = rig.link::<Local>();
    let log = rig.opened(&link).create_log(&options(Duration::ZERO)).wait().unwrap();
    let mut follower = log.follow(log.head_lsn());
    log.append_durable(b"first").wait().unwrap();
    let first = follower.next_record().wait().unwrap().unwrap();
    assert_eq!(first.payload(), b"first");
    let before = log.usage().wait().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for number in 0..50_u8 {
        let lsn = log.append_durable(&[number]).wait().unwrap();
        match Pin::new(&mut follower.next_record()).poll(&mut context) {
            Poll::Ready(Ok(Some(record))) => assert_eq!((record.lsn(), record.payload()), (lsn, &[number][..])),
            other => panic!("{other:?}"),
        }
    }
    let usage = log.usage().wait().unwrap();
    assert_eq!(usage.reads_device, before.reads_device);
    assert_eq!(usage.reads_recent, before.reads_recent + 50);
    drop(follower);
    drop(log);
    link.close().unwrap();
}

/// Whoever waits when the driver leaves is told so.
#[test]
fn the_driver_leaves() {
    let rig = Rig::new(PLACE);
    let link = rig.link::<Local>();
    let log = rig.opened(&link).create_log(&options(Duration::ZERO)).wait().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let driven = link.drive();
        let waiting = tokio::task::spawn_local(log.durable(log.end_lsn()));
        let mut driven = Box::pin(driven);
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = &mut driven => panic!("it does not end"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert!(!waiting.is_finished());
        drop(driven);
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.errno(), Some(baio::Errno::EDEADLK), "{error}");
    });
    drop(log);
    link.close().unwrap();
}
