//! The memory of a ring within one process.

use crate::atomic::{AtomicU32, AtomicU64};
use crate::ring::Ring;

/// A word alone in its cache lines, so that the sides do not take them from each other without need.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone(AtomicU32);

/// The words and cells of one ring, on the heap.
#[derive(Debug)]
pub struct Heap<const WORDS: usize> {
    head: Alone,
    tail: Alone,
    sleeping: Alone,
    cells: Box<[[AtomicU64; WORDS]]>,
}

impl<const WORDS: usize> Heap<WORDS> {
    /// Room for at least `entries` entries.
    #[must_use]
    pub fn new(entries: u32) -> Heap<WORDS> {
        let entries = entries.clamp(2, 1 << 24).next_power_of_two();
        Heap {
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
