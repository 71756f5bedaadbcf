//! A small volume in a temporary directory.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

pub mod gate;
pub mod remote;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use baio::{Access, Backend, Config, CreateOptions, Format, Link, Local, Options, Segment};

pub fn options(backend: Backend, slots: u32) -> Options {
    Options {
        config: Config {
            backend,
            slots,
            arena_bytes: 8 << 20,
            ..Config::default()
        },
        ..Options::default()
    }
}

pub fn image(size: u64) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let format = Format {
        size_bytes: Some(size),
        ..Format::default()
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

pub fn segment<L: Link>(volume: &L, name: &str, size: u64) -> Segment<L> {
    volume
        .create_segment(name, &CreateOptions::of_size(size))
        .wait()
        .unwrap();
    volume.open_segment(name, Access::Write).wait().unwrap()
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// An executor that knows nothing of us: it polls the work and the driver when they were woken.
pub fn run_elsewhere<F: Future>(volume: &Local, work: F) -> F::Output {
    let mut work = std::pin::pin!(work);
    let mut driver = std::pin::pin!(volume.drive());
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    loop {
        assert!(flag.0.swap(false, Ordering::AcqRel), "nobody woke the executor");
        if let Poll::Ready(output) = work.as_mut().poll(&mut context) {
            return output;
        }
        assert!(driver.as_mut().poll(&mut context).is_pending(), "the driver failed");
    }
}
