//! What lies between a client and a service: two rings, the exchange, the client's bell, and how each says that it ends.

use baio_words::entry::{COMPLETION_WORDS, SUBMISSION_WORDS};

use crate::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::bell::Bell;
use crate::exchange::Exchange;
use crate::lane::Lane;

/// What both sides use. `T` is what waits in the exchange.
#[derive(Debug)]
pub struct Shared<T> {
    /// From the client to the service. Twice as many entries as places: requests always fit, and cancellations are sent
    /// only while they leave room for all of them.
    pub submissions: Lane<SUBMISSION_WORDS>,
    /// From the service to the client: a completion for each place always fits.
    pub completions: Lane<COMPLETION_WORDS>,
    /// Memory on its way.
    pub exchange: Exchange<T>,
    /// Wakes the client.
    pub bell: Bell,
    stop: AtomicBool,
    ended: AtomicBool,
    /// What the system said that ended the service; 0: nothing.
    broke_by: AtomicU32,
}

impl<T> Shared<T> {
    /// Within one process, for at most `places` requests at a time.
    #[must_use]
    pub fn new(places: u32) -> Shared<T> {
        let (submissions, completions) = (Lane::new(places.saturating_mul(2)), Lane::new(places));
        Shared::over(submissions, completions, places, Bell::default())
    }

    /// Over these lanes, which have room for so many requests, with this bell.
    pub(crate) fn over(
        submissions: Lane<SUBMISSION_WORDS>,
        completions: Lane<COMPLETION_WORDS>,
        places: u32,
        bell: Bell,
    ) -> Shared<T> {
        Shared {
            submissions,
            completions,
            exchange: Exchange::new(places),
            bell,
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            broke_by: AtomicU32::new(0),
        }
    }

    /// Client: asks the service to end; then it must be rung for.
    pub fn stop(&self) {
        // Other side: `is_stopping`, behind the doorbell.
        self.stop.store(true, Ordering::Release);
    }

    /// Service: was it asked to end?
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Service: its last act, when it has let go of everything. Wakes the client.
    pub fn end(&self) {
        // Other side: `has_ended`. Who sees it sees all completions too, and everything the service gave back.
        self.ended.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Service: it ends because the system said this, an errno. Before [`Shared::end`].
    pub fn broke(&self, errno: u32) {
        // Other side: `broke_by`, behind the store of `end`.
        self.broke_by.store(errno, Ordering::Relaxed);
    }

    /// Client, of a service that has ended: what the system said that ended it, an errno.
    #[must_use]
    pub fn broke_by(&self) -> Option<u32> {
        let errno = self.broke_by.load(Ordering::Relaxed);
        (errno != 0).then_some(errno)
    }

    /// Client: is nobody there any more? Completions that lie in the ring are still good; look here first, then there.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
