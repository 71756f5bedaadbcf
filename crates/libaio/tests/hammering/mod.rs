//! What the harnesses that hammer a drop-in library have in common: dice, shifts of threads, an end. `crates/posix-aio` has one too.

#![allow(unsafe_code, unreachable_pub)]

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Threads end and others go on, so that requests outlive them.
const SHIFT: Duration = Duration::from_millis(250);
/// More than any request takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Each thread's own; the same numbers in each run.
pub struct Dice {
    state: u64,
    step: u64,
}

impl Dice {
    pub fn new(thread: usize) -> Dice {
        Dice {
            state: thread as u64 + 1,
            step: thread as u64 * 2 + 1,
        }
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(self.step);
        (self.state >> 33) as usize % sides
    }
}

pub fn pipe(flags: i32) -> (OwnedFd, OwnedFd) {
    let mut ends = [-1; 2];
    // SAFETY: there is room for both ends.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) }, 0);
    // SAFETY: the kernel has just made them for us.
    ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }).into()
}

/// Runs for `BAIO_SECONDS`, 1 if nothing says so. Fails where threads of the test hang in the library, rather than to hang with them.
pub fn bounded(hammer: impl FnOnce(Duration) + Send + 'static) {
    let seconds = std::env::var("BAIO_SECONDS").ok().and_then(|text| text.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(1));
    let (done, told) = std::sync::mpsc::channel();
    let threads = std::thread::spawn(move || {
        hammer(length);
        let _ = done.send(());
    });
    let limit = length + 2 * PATIENCE;
    match told.recv_timeout(limit) {
        Err(RecvTimeoutError::Timeout) => panic!("a thread is still in the library after {limit:?}: it hangs"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {}
    }
    if let Err(panic) = threads.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Each worker works in a thread, of which there is another in each shift. At the end of a shift `between` looks.
pub fn in_shifts<W: Send>(
    mut workers: Vec<W>,
    length: Duration,
    work: impl Fn(&mut W) + Sync,
    mut between: impl FnMut(),
) -> Vec<W> {
    let until = Instant::now() + length;
    let work = &work;
    while Instant::now() < until {
        let end = Instant::now() + SHIFT;
        workers = std::thread::scope(|scope| {
            let shift: Vec<_> = workers
                .drain(..)
                .map(|mut worker| {
                    scope.spawn(move || {
                        while Instant::now() < end {
                            work(&mut worker);
                        }
                        worker
                    })
                })
                .collect();
            shift.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        between();
    }
    workers
}

/// Does the library carry requests, and not what it stands in front of? Then it has a thread of this name.
pub fn has_thread(named: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads
        .flatten()
        .any(|thread| std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == named))
}
