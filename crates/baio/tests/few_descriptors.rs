//! A driver goes on when the process had no descriptor left for a moment, and sleeps meanwhile. Alone in its process, whose table of descriptors it
//! fills.

#![cfg(feature = "tokio")]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use baio::{File, Local};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// What this thread has used of a processor.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

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
            let (near, mut far) = UnixStream::pair().unwrap();
            let near = link.stream(near).unwrap();
            let one = std::fs::File::open(&path).unwrap();
            let driving = link.drive_tokio();
            // It is under way all the time.
            let long = tokio::task::spawn_local(async move { near.read(vec![0; 1]).await });
            let mut held: Vec<_> = std::iter::from_fn(|| one.try_clone().ok()).collect();
            assert!(held.len() > free, "{} descriptors", held.len());
            held.truncate(held.len() - free);
            let driver = tokio::task::spawn_local(driving);
            let before = thread_time();
            tokio::time::sleep(Duration::from_millis(200)).await;
            let used = thread_time().saturating_sub(before);
            assert!(
                used < Duration::from_millis(100),
                "{free} were free: {used:?} of 200 ms"
            );
            drop(held);
            let read = file.read_at(0, vec![0; 100]).await;
            let ended = driver.is_finished();
            assert!(!ended, "{free} were free, and the driver has ended: {read:?}");
            assert_eq!(read.unwrap().buffer, [7; 100], "{free} were free");
            far.write_all(&[5]).unwrap();
            assert_eq!(long.await.unwrap().unwrap().buffer, [5], "{free} were free");
            driver.abort();
        });
    }
}
