//! What lies between a client and a service: two rings, the exchange, the client's bell, and how each says that it ends.

use baio_words::entry::{COMPLETION_WORDS, SUBMISSION_WORDS};

use crate::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::bell::Bell;
use crate::exchange::Exchange;
use crate::ring::Ring;

/// A word alone in its cache lines, so that the sides do not take them from each other without need.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU32);

/// The memory of one ring.
#[derive(Debug)]
pub struct Lane<const WORDS: usize> {
    head: Alone,
    tail: Alone,
    sleeping: Alone,
    cells: Box<[[AtomicU64; WORDS]]>,
}

impl<const WORDS: usize> Lane<WORDS> {
    /// Room for at least `entries` entries.
    fn new(entries: u32) -> Lane<WORDS> {
        let entries = entries.clamp(2, 1 << 24).next_power_of_two();
        Lane {
            head: Alone::default(),
            tail: Alone::default(),
            sleeping: Alone::default(),
            cells: (0..entries)
                .map(|_| std::array::from_fn(|_| AtomicU64::new(0)))
                .collect(),
        }
    }

    /// The ring in it.
    #[must_use]
    pub fn ring(&self) -> Ring<'_, WORDS> {
        let ring = Ring::new(&self.head.0, &self.tail.0, &self.sleeping.0, &self.cells);
        ring.expect("the number of cells was rounded up to a power of two")
    }
}

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
}

impl<T> Shared<T> {
    /// For at most `places` requests at a time.
    #[must_use]
    pub fn new(places: u32) -> Shared<T> {
        Shared {
            submissions: Lane::new(places.saturating_mul(2)),
            completions: Lane::new(places),
            exchange: Exchange::new(places),
            bell: Bell::default(),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
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

    /// Client: is nobody there any more? Completions that lie in the ring are still good; look here first, then there.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
