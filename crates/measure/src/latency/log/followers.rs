//! Readers that follow the tail of our log while it is appended to, as a replica does. What they have not read is retained for them.
//!
//! Over `Local` they are tasks of the loop in which the log is driven; over `Remote` each has a thread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use baio::{Link, Local, Log, Lsn, Records, Remote, Retained};

use crate::program::joined;

/// All who follow one log.
pub(super) trait Followers<L: Link>: Sized {
    /// So many, from where the log ends now. What they have read is let go in steps of so many bytes.
    fn start(log: &Log<L>, count: u32, step: u64) -> Result<Self, String>;

    /// Reads what there is, where that is done in the loop of whoever appends.
    fn poll(&mut self, context: &mut Context<'_>) -> Result<(), String>;

    /// They are to end: the log will be closed.
    fn dismiss(&self);

    /// The log is closed: how many records all of them have read.
    fn end(self) -> Result<u64, String>;
}

struct Follower<L: Link> {
    records: Records<L>,
    retained: Retained,
    /// From here on it is retained.
    kept: u64,
    step: u64,
    read: u64,
}

impl<L: Link> Follower<L> {
    fn new(log: &Log<L>, step: u64) -> Follower<L> {
        let from = log.end_lsn();
        Follower {
            records: log.follow(from),
            retained: log.retain(from),
            kept: from.0,
            step,
            read: 0,
        }
    }

    fn has_read(&mut self, lsn: Lsn) {
        self.read += 1;
        if lsn.0 > self.kept + self.step {
            self.kept = lsn.0;
            self.retained.advance(lsn);
        }
    }
}

/// Tasks of a loop.
pub(super) struct Tasks(Vec<Follower<Local>>);

impl Followers<Local> for Tasks {
    fn start(log: &Log<Local>, count: u32, step: u64) -> Result<Tasks, String> {
        Ok(Tasks((0..count).map(|_| Follower::new(log, step)).collect()))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        for follower in &mut self.0 {
            while let Poll::Ready(next) = Pin::new(&mut follower.records.next_record()).poll(context) {
                match next.map_err(|error| error.to_string())? {
                    Some(record) => follower.has_read(record.lsn()),
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn dismiss(&self) {}

    fn end(self) -> Result<u64, String> {
        Ok(self.0.iter().map(|follower| follower.read).sum())
    }
}

/// A thread each.
pub(super) struct Threads {
    threads: Vec<JoinHandle<Result<u64, String>>>,
    is_over: Arc<AtomicBool>,
}

impl Followers<Remote> for Threads {
    fn start(log: &Log<Remote>, count: u32, step: u64) -> Result<Threads, String> {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let (mut follower, is_over) = (Follower::new(log, step), Arc::clone(&is_over));
            let thread = baio_process::thread::named("follower");
            thread.start(move || {
                loop {
                    match follower.records.next_record().wait() {
                        Ok(Some(record)) => follower.has_read(record.lsn()),
                        // The log's end is an error for who waits for more.
                        _ if is_over.load(Ordering::Acquire) => return Ok(follower.read),
                        Ok(None) => return Err("the log has an end".to_owned()),
                        Err(error) => return Err(error.to_string()),
                    }
                }
            })
        };
        let threads = (0..count).map(start).collect::<std::io::Result<_>>();
        Ok(Threads {
            threads: threads.map_err(|error| error.to_string())?,
            is_over,
        })
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Result<(), String> {
        Ok(())
    }

    fn dismiss(&self) {
        // Release: whoever meets the closed log sees it.
        self.is_over.store(true, Ordering::Release);
    }

    fn end(self) -> Result<u64, String> {
        self.threads.into_iter().map(|thread| joined(thread.join())).sum()
    }
}
