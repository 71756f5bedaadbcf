//! A driver goes on when the process had no descriptor left for a moment. Alone in its process, whose table of descriptors it fills.

#![cfg(feature = "tokio")]

use baio::{File, Link, Local};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_driver_outlives_a_full_table_of_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, [7; 100]).unwrap();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = Some(maximum.map_or(256, |most| most.min(256)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // The engine takes as many as two, and the copy for the reactor is one more.
    for free in 0..4 {
        let tasks = tokio::task::LocalSet::new();
        tasks.block_on(&runtime, async {
            let link = Local::new().unwrap();
            let file = File::open(&link, &path).wait().unwrap();
            let one = std::fs::File::open(&path).unwrap();
            let mut held: Vec<_> = std::iter::from_fn(|| one.try_clone().ok()).collect();
            assert!(held.len() > free, "{} descriptors", held.len());
            held.truncate(held.len() - free);
            let driver = tokio::task::spawn_local(link.drive_tokio());
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            drop(held);
            let read = file.read_at(0, vec![0; 100]).await;
            let ended = driver.is_finished();
            assert!(!ended, "{free} were free, and the driver has ended: {read:?}");
            assert_eq!(read.unwrap().buffer, [7; 100], "{free} were free");
            driver.abort();
        });
    }
}
