//! What needs no disk, or more than one turn, ends beside tokio's reactor too: operations of the volume, pins and their
//! refusals, opens that wait for another process.

#![cfg(feature = "tokio")]

mod common;

use std::time::Duration;

use baio::{File, Link, Local};
use common::story::tell_of;

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
