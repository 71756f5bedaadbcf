//! Under tokio the link is driven by the reactor: reads, timers and other tasks share one thread, and none is missed.

#![cfg(feature = "tokio")]

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::PipeWriter;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use baio::{Choice, CreateOptions, Durability, File, Link, Local, SegmentOp, SegmentRequest, Time};

fn run(backend: Choice) {
    let (_dir, volume) = common::volume(backend);
    let segment = common::segment(&volume, "async", 1 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let ticks = Rc::new(Cell::new(0));
    let counter = Rc::clone(&ticks);
    let driver = volume.drive_tokio();
    let done = local.block_on(&runtime, async move {
        tokio::task::spawn_local(driver);
        let ticker = tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                counter.set(counter.get() + 1);
            }
        });
        let tasks: Vec<_> = (0..8_u64)
            .map(|task| {
                let segment = segment.clone();
                tokio::task::spawn_local(async move {
                    for round in 0..50_u64 {
                        let offset = (task * 16 + round % 16) * 4096;
                        let mut page = segment.buffer(4096).unwrap();
                        page.fill(round as u8);
                        segment.write_at(offset, page).await.unwrap();
                        let page = segment.buffer(4096).unwrap();
                        let done = segment.read_at(offset, page).await.unwrap();
                        assert_eq!(done.bytes, 4096);
                        assert!(done.buffer.iter().all(|&byte| byte == round as u8));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        segment.sync(Durability::Data).await.unwrap();
        // The reactor goes on beside the link: its timers fire.
        tokio::time::sleep(Duration::from_millis(20)).await;
        ticker.abort();
        true
    });
    assert!(done && ticks.get() > 0);
    drop(local);
    volume.close().unwrap();
}

/// What completes without the kernel, or is reaped by an operation, is seen too.
fn refused_and_reaped_elsewhere(backend: Choice) {
    let (_dir, volume) = common::volume(backend);
    let segment = common::segment(&volume, "async", 1 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let driver = volume.drive_tokio();
    local.block_on(&runtime, async move {
        tokio::task::spawn_local(driver);
        tokio::task::yield_now().await;
        let ended = segment.write_at(1, segment.buffer(4096).unwrap()).await;
        assert_eq!(ended.unwrap_err().error.code(), "EINVAL");
        let read = tokio::task::spawn_local(segment.read_at(0, segment.buffer(4096).unwrap()));
        tokio::task::spawn_local(async move {
            volume
                .create_segment("other", &CreateOptions::of_size(1 << 20))
                .wait()
                .unwrap();
        });
        assert_eq!(read.await.unwrap().unwrap().bytes, 4096);
    });
}

#[test]
fn what_is_refused_or_reaped_elsewhere_is_seen() {
    refused_and_reaped_elsewhere(Choice::Auto);
    refused_and_reaped_elsewhere(Choice::Sync);
}

#[test]
fn tokio_drives_the_link() {
    run(Choice::Auto);
}

#[test]
fn tokio_drives_a_link_without_a_ready_fd() {
    run(Choice::Sync);
}

/// Longer than anything takes that is waited for.
const FOR_EVER: Duration = Duration::from_secs(20);

/// What there must be for as long as the rest is used: without its writer a pipe would be at its end.
type Kept = (tempfile::TempDir, PipeWriter);

/// A volume with few slots, and a pipe beside it that nobody writes to: a read of it never ends.
fn volume_and_pipe(slots: u32) -> (Kept, Local, File<Local>) {
    let (dir, path) = common::image(16 << 20);
    let volume = Local::open_with(&path, &common::options(Choice::Auto, slots)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let pipe = File::open(&volume, format!("/proc/self/fd/{}", reader.as_raw_fd()))
        .wait()
        .unwrap();
    ((dir, writer), volume, pipe)
}

fn endless(pipe: &File<Local>, deadline: Option<Time>) -> SegmentRequest {
    SegmentRequest {
        deadline,
        ..pipe.request(SegmentOp::Read { offset: 0 }, pipe.buffer(4096).unwrap())
    }
}

/// Runs this beside the driver, which nothing wakes but what it sleeps for.
fn run_beside<F: Future>(volume: &Local, work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    let driver = volume.drive_tokio();
    local.block_on(&runtime, async move {
        let driver = tokio::task::spawn_local(driver);
        let output = tokio::time::timeout(FOR_EVER, work).await;
        driver.abort();
        output.expect("the driver slept through it")
    })
}

#[test]
fn a_deadline_ends_the_sleep() {
    let (_kept, volume, pipe) = volume_and_pipe(64);
    let request = endless(&pipe, Some(volume.deadline(Duration::from_millis(20))));
    let ticket = volume.start(request).unwrap();
    let outcome = run_beside(&volume, poll_fn(|context| volume.poll(ticket, context.waker())));
    let error = outcome.unwrap().result.unwrap_err();
    assert_eq!(error.code(), "EINDETERMINATE", "{error}");
}

/// Its first poll takes the link's last slot; it gives up when its deadline passes, and nobody else ends meanwhile.
#[test]
fn the_deadline_of_who_waits_for_a_slot_ends_the_sleep() {
    let (_kept, volume, pipe) = volume_and_pipe(16);
    let segment = common::segment(&volume, "async", 1 << 20);
    let mut under_way = Vec::new();
    while let Ok(ticket) = volume.start(endless(&pipe, None)) {
        under_way.push(ticket);
    }
    let read = segment.read_at(0, segment.buffer(4096).unwrap());
    let ended = run_beside(&volume, read.within(Duration::from_millis(20)));
    assert_eq!(ended.unwrap_err().error.code(), "ECANCELED");
    under_way.into_iter().for_each(|ticket| volume.abandon(ticket));
}
