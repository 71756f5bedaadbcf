//! Where a ring lies: on the heap of one process, or in memory that two share.

use std::sync::Arc;

use baio_memory::Region;

use crate::heap::Heap;
use crate::ring::Ring;
use baio_words::session::RingAt;

/// The memory of one ring.
#[derive(Debug)]
pub struct Lane<const WORDS: usize>(Home<WORDS>);

#[derive(Debug)]
enum Home<const WORDS: usize> {
    Heap(Box<Heap<WORDS>>),
    Region { region: Arc<Region>, at: RingAt },
}

impl<const WORDS: usize> Lane<WORDS> {
    /// Of this process, with room for at least `entries` entries.
    #[must_use]
    pub fn new(entries: u32) -> Lane<WORDS> {
        Lane(Home::Heap(Box::new(Heap::new(entries))))
    }

    /// In shared memory. `None` when the region has no ring there ([`ring_in`]).
    #[must_use]
    pub fn of(region: &Arc<Region>, at: RingAt) -> Option<Lane<WORDS>> {
        ring_in::<WORDS>(region, &at)?;
        let region = Arc::clone(region);
        Some(Lane(Home::Region { region, at }))
    }

    /// The ring in it.
    #[must_use]
    pub fn ring(&self) -> Ring<'_, WORDS> {
        match &self.0 {
            Home::Heap(heap) => heap.ring(),
            Home::Region { region, at } => ring_in(region, at).expect("the lane was made with these"),
        }
    }
}

/// The ring at this place of a region; `None` when a word or a cell would lie outside of the region's part for its kind, or
/// across its alignment, or the number of entries is no power of two.
#[must_use]
pub fn ring_in<'a, const WORDS: usize>(region: &'a Region, at: &RingAt) -> Option<Ring<'a, WORDS>> {
    let (head, tail) = (region.word(at.head)?, region.word(at.tail)?);
    Ring::new(
        head,
        tail,
        region.word(at.sleeping)?,
        region.cells(at.cells, at.entries)?,
    )
}
