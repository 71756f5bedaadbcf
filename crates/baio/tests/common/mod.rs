//! A small volume in a temporary directory.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod broker;
pub mod gate;
pub mod remote;
pub mod story;
#[cfg(all(feature = "futures-io", feature = "tokio"))]
pub mod stream;

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
#[cfg(feature = "tokio")]
use std::time::Duration;

use baio::{Access, Backend, CreateOptions, EngineOptions, FormatOptions, Link, LinkOptions, Local, Segment, Wait};

pub fn options(backend: Backend, slots: u32) -> LinkOptions {
    LinkOptions {
        engine: EngineOptions {
            backend,
            slots,
            arena_bytes: 8 << 20,
            ..EngineOptions::default()
        },
        ..LinkOptions::default()
    }
}

pub fn image(size: u64) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let format = FormatOptions {
        size_bytes: Some(size),
        ..FormatOptions::default()
    };
    baio::format(&path, &format).unwrap();
    (dir, path)
}

/// In this thread.
pub fn volume(backend: Backend) -> (tempfile::TempDir, Local) {
    let (dir, path) = image(16 << 20);
    let volume = Local::open_with(&path, &options(backend, 128)).unwrap();
    (dir, volume)
}

pub fn cached_options(cache_pages: usize, slots: u32) -> LinkOptions {
    options(Backend::Auto, slots).with_cache(cache_pages * 4096)
}

/// In this thread, with a page cache.
pub fn cached(cache_pages: usize, slots: u32) -> (tempfile::TempDir, Local) {
    let (dir, path) = image(16 << 20);
    let volume = Local::open_with(&path, &cached_options(cache_pages, slots)).unwrap();
    (dir, volume)
}

pub fn segment<L: Link>(volume: &L, name: &str, size: u64) -> Segment<L> {
    volume
        .create_segment(name, &CreateOptions::of_size(size))
        .wait()
        .unwrap();
    volume.open_segment(name, Access::Write).wait().unwrap()
}

/// A pipe: who opens it to read waits until somebody opens it to write.
pub fn fifo(dir: &Path) -> PathBuf {
    let path = dir.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    path
}

/// The future after its first poll, by a waker that does nothing: it is not done.
#[track_caller]
pub fn begun<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    future
}

/// The same, in the task that awaits this.
pub async fn begun_here<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    let polled = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    assert!(polled.is_pending());
    future
}

/// Turns until nothing is under way.
pub fn finish(volume: &Local) {
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
}

/// Runs the work in tokio's runtime of this thread, beside a task that drives the link.
#[cfg(feature = "tokio")]
pub fn beside_tokio<F: Future>(link: &Local, work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let driver = tokio::task::spawn_local(link.drive_tokio());
        let output = tokio::time::timeout(Duration::from_secs(10), work)
            .await
            .expect("the link sleeps");
        driver.abort();
        output
    })
}

/// A waker that counts how often it is woken.
pub struct Wakes(AtomicU32);

impl Wakes {
    pub fn new() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::new(Wakes(AtomicU32::new(0)));
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// The count, which begins anew.
    pub fn take(&self) -> u32 {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the test wants a waker to panic");
    }
}

/// A waker that panics.
pub fn panicking_waker() -> Waker {
    Waker::from(Arc::new(Panics))
}

/// Is a link's descriptor readable now?
pub fn is_readable(event: &OwnedFd) -> bool {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(event, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
}

/// An executor that knows nothing of us: it polls the work and the driver when they were woken.
pub fn run_elsewhere<F: Future>(volume: &Local, work: F) -> F::Output {
    let mut work = std::pin::pin!(work);
    let mut driver = std::pin::pin!(volume.drive());
    let (wakes, waker) = Wakes::new();
    waker.wake_by_ref();
    let mut context = Context::from_waker(&waker);
    loop {
        assert!(wakes.take() > 0, "nobody woke the executor");
        if let Poll::Ready(output) = work.as_mut().poll(&mut context) {
            return output;
        }
        assert!(driver.as_mut().poll(&mut context).is_pending(), "the driver failed");
    }
}
