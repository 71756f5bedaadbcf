//! What needs no disk, or more than one turn, ends beside tokio's reactor too: operations of the volume, pins and their
//! refusals, opens that wait for another process.

#![cfg(feature = "tokio")]
#![allow(unsafe_code)]

mod common;

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use baio::{Backend, File, Link, Local, SegmentOp, Wait};
use common::story::tell_of;
use futures_util::future::join;
use tokio::io::unix::AsyncFd;

#[test]
fn operations_of_the_volume_end() {
    tell_of(|| {
        let (_dir, volume) = common::cached(64, 64);
        common::beside_tokio(&volume, async { volume.check().await.unwrap() });
        common::beside_tokio(&volume, async { volume.defrag().await.unwrap() });
        common::beside_tokio(&volume, async { volume.list().await.unwrap() });
    });
}

/// It does not wait: the pins may be those of who asks.
#[test]
fn a_pin_is_refused_while_every_page_is_pinned() {
    tell_of(|| {
        let (_dir, volume) = common::cached(64, 64);
        let segment = common::segment(&volume, "one", 1 << 20);
        common::beside_tokio(&volume, async {
            let mut pins = Vec::new();
            for page in 0..64 {
                pins.push(segment.pin(page).await.unwrap());
            }
            let refused = segment.pin(100).await.unwrap_err();
            assert!(refused.to_string().contains("every frame is held"), "{refused}");
        });
    });
}

#[test]
fn a_pin_that_goes_leaves_its_page_to_the_next() {
    tell_of(|| {
        let (_dir, volume) = common::cached(64, 64);
        let segment = common::segment(&volume, "one", 1 << 20);
        common::beside_tokio(&volume, async {
            let mut pins = Vec::new();
            while let Ok(pin) = segment.pin(pins.len() as u64).await {
                pins.push(pin);
            }
            assert_eq!(pins.len(), 64);
            drop(pins.pop());
            segment.pin(100).await.unwrap();
        });
    });
}

#[test]
fn an_open_ends_when_another_opens_the_other_end() {
    tell_of(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = common::fifo(dir.path());
        let link = Local::new().unwrap();
        let other_end = path.clone();
        common::beside_tokio(&link, async {
            let writer = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(100));
                let file = std::fs::OpenOptions::new().write(true).open(other_end);
                std::thread::sleep(Duration::from_millis(500));
                drop(file);
            });
            drop(File::open(&link, &path).await.unwrap());
            writer.join().unwrap();
        });
    });
}

/// A place comes free as its outcome is taken, while the driver sleeps. It is for whoever stands first, whose task awaits another one: the
/// next has it.
#[test]
fn who_is_called_and_awaits_another_task_keeps_nobody_waiting() {
    tell_of(|| {
        let (_dir, path) = common::image(16 << 20);
        let mut options = common::options(Backend::Auto, 8);
        options.engine.reserved_slots = 0;
        let link = Local::open_with(&path, &options).unwrap();
        let segment = common::segment(&link, "full", 64 << 10);
        let read = || Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        common::beside_tokio(&link, async {
            let mut all = Vec::new();
            let mut first = loop {
                let mut read = read();
                assert!(poll_fn(|context| Poll::Ready(read.as_mut().poll(context).is_pending())).await);
                // Its words say what it would do as long as it has not begun.
                if format!("{read:?}").contains("read") {
                    break read;
                }
                all.push(read);
            };
            let second = tokio::task::spawn_local(read());
            // All have ended, and the driver sleeps.
            tokio::time::sleep(Duration::from_millis(50)).await;
            all.pop().unwrap().await.unwrap();
            second.await.unwrap().unwrap();
            drop(all);
            first.as_mut().await.unwrap();
        });
    });
}

/// Two sleep on the engine of one link, the adapter and a loop on the link's descriptor: neither takes the other's wake-ups.
#[test]
fn a_loop_of_ones_own_sleeps_beside_the_adapter() {
    tell_of(|| {
        let (_dir, volume) = common::cached(64, 64);
        let segment = common::segment(&volume, "one", 1 << 20);
        common::beside_tokio(&volume, async {
            // SAFETY: the descriptor is its own, and stays open until it is dropped.
            let event = unsafe { AsyncFd::register(volume.event_fd().unwrap()) }.unwrap();
            for page in 0..100 {
                let offset = page * 4096;
                let by_ticket = async {
                    let request = segment.request(SegmentOp::Read { offset }, segment.buffer(4096).unwrap());
                    segment.submit(request).unwrap();
                    loop {
                        volume.turn(Wait::No).unwrap();
                        let ended: Vec<_> = std::iter::from_fn(|| volume.next_outcome()).collect();
                        if let [outcome] = &ended[..] {
                            break outcome.result.clone().unwrap();
                        }
                        event.readable().await.unwrap().clear_ready();
                    }
                };
                let awaited = segment.read_at(offset, segment.buffer(4096).unwrap());
                let (by_ticket, awaited) = join(by_ticket, awaited).await;
                assert_eq!((by_ticket, awaited.unwrap().bytes), (4096, 4096));
            }
        });
    });
}
