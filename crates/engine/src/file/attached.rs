//! A number that somebody with a mark keeps for a file: where a ring has registered its descriptions, which backend serves it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A place has so many bits; the mark has the others.
const PLACE_BITS: u32 = 16;

/// One word, so that engines in different threads never see the place of one and the mark of another. 0: nowhere.
#[derive(Default)]
pub(crate) struct Attached(AtomicU64);

impl Attached {
    /// The place in the table of the backend with this mark.
    pub(crate) fn place(&self, mark: u64) -> Option<u32> {
        // Relaxed: a backend believes its own mark only, which nobody else has written.
        let word = self.0.load(Ordering::Relaxed);
        (word >> PLACE_BITS == mark && word != 0).then_some((word & ((1 << PLACE_BITS) - 1)) as u32)
    }

    /// The last who registers it is the one who knows it.
    pub(crate) fn set(&self, mark: u64, place: u32) {
        self.0.store(word(mark, place), Ordering::Relaxed);
    }

    /// Unless another has registered it meanwhile.
    pub(crate) fn clear(&self, mark: u64, place: u32) {
        let _ = self
            .0
            .compare_exchange(word(mark, place), 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn word(mark: u64, place: u32) -> u64 {
    debug_assert!(place < 1 << PLACE_BITS && mark > 0);
    mark << PLACE_BITS | u64::from(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_registered_it_last_finds_it_and_lets_it_go() {
        let attached = Attached::default();
        assert_eq!((attached.place(0), attached.place(1)), (None, None));
        attached.set(1, 0);
        assert_eq!((attached.place(1), attached.place(2)), (Some(0), None));
        attached.set(2, 126);
        attached.clear(1, 0);
        assert_eq!((attached.place(1), attached.place(2)), (None, Some(126)));
        attached.clear(2, 126);
        assert_eq!(attached.place(2), None);
    }
}
