//! Under tokio the link is driven by the reactor: reads, timers and other tasks share one thread, and none is missed.

#![cfg(feature = "tokio")]

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use baio::{Choice, CreateOptions, Durability};

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
                        segment.write_at(offset, page).await.result.unwrap();
                        let page = segment.buffer(4096).unwrap();
                        let outcome = segment.read_at(offset, page).await;
                        assert_eq!(outcome.result.unwrap(), 4096);
                        let page = outcome.memory.into_buffer().unwrap();
                        assert!(page.iter().all(|&byte| byte == round as u8));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        segment.sync(Durability::Data).await.result.unwrap();
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
        let outcome = segment.write_at(1, segment.buffer(4096).unwrap()).await;
        assert_eq!(outcome.result.unwrap_err().code(), "EINVAL");
        let read =
            tokio::task::spawn_local(
                async move { segment.read_at(0, segment.buffer(4096).unwrap()).await.result.unwrap() },
            );
        tokio::task::spawn_local(async move {
            volume
                .create_segment("other", &CreateOptions::of_size(1 << 20))
                .unwrap();
        });
        assert_eq!(read.await.unwrap(), 4096);
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
