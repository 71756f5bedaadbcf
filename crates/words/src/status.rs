//! The word that tells how a request stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::errno::Errno;

/// Where a request with a status word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not completed, or the completion was not collected yet.
    InFlight,
    /// Completed with so many bytes.
    Done(u32),
    /// Failed.
    Failed(Errno),
}

/// A word in the application's memory that says whether a request has ended, and how.
/// It changes only while somebody drives the link: turns it, or waits.
#[derive(Clone, Debug, Default)]
pub struct StatusWord(Arc<AtomicI64>);

impl StatusWord {
    const IN_FLIGHT: i64 = i64::MIN;

    /// A word for one request at a time.
    #[must_use]
    pub fn new() -> StatusWord {
        StatusWord(Arc::new(AtomicI64::new(StatusWord::IN_FLIGHT)))
    }

    /// Whether the request has ended, and how.
    #[must_use]
    pub fn get(&self) -> Status {
        // Acquire: whoever sees the request done also sees the bytes that were read.
        match self.0.load(Ordering::Acquire) {
            StatusWord::IN_FLIGHT => Status::InFlight,
            errno if errno < 0 => Status::Failed(Errno::from_raw(-errno as i32)),
            bytes => Status::Done(bytes as u32),
        }
    }

    /// A request that moves it is under way: for links that keep the request's table themselves.
    pub fn begin(&self) {
        self.0.store(StatusWord::IN_FLIGHT, Ordering::Release);
    }

    /// The request has ended.
    pub fn end(&self, result: std::result::Result<u32, Errno>) {
        let word = match result {
            Ok(bytes) => i64::from(bytes),
            Err(errno) => -i64::from(errno.raw()),
        };
        self.0.store(word, Ordering::Release);
    }
}
