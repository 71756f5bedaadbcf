//! Durable writes of one object that wait until their pages are safe, by the pages that they wait for.
//!
//! Thousands may wait for the log or for a slow device together. Whoever writes a page asks which of them it serves, so they are kept
//! in page order and found by range.

use std::ops::Range;

use super::ranges::overlap;

#[derive(Debug, Default)]
pub(super) struct DurableWaiting {
    /// First page, request and end of each, in this order.
    waits: Vec<(u64, u32, u64)>,
    /// No range here is longer: how far before a page the first one that reaches it can begin.
    longest: u64,
}

impl DurableWaiting {
    pub(super) fn add(&mut self, slot: u32, pages: &Range<u64>) {
        let at = self.behind(pages.start, slot);
        self.waits.insert(at, (pages.start, slot, pages.end));
        self.longest = self.longest.max(pages.end - pages.start);
    }

    /// Forgets a request, whose range begins with this page. False if it is not here.
    pub(super) fn remove(&mut self, slot: u32, first: u64) -> bool {
        let at = self.behind(first, slot);
        let is_here = self.waits.get(at).is_some_and(|wait| (wait.0, wait.1) == (first, slot));
        if is_here {
            self.waits.remove(at);
        }
        if self.waits.is_empty() {
            self.longest = 0;
        }
        is_here
    }

    /// Those that wait for one of these pages.
    pub(super) fn of(&self, pages: Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> + '_ {
        self.near(pages.clone())
            .filter(move |(_, range)| overlap(range, &pages))
    }

    fn near(&self, pages: Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> + '_ {
        let from = self.behind(pages.start.saturating_sub(self.longest), 0);
        let end = pages.end;
        let waits = self.waits[from..].iter().take_while(move |(first, ..)| *first < end);
        waits.map(|&(first, slot, end)| (slot, first..end))
    }

    fn behind(&self, first: u64, slot: u32) -> usize {
        self.waits.partition_point(|wait| (wait.0, wait.1) < (first, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_page_are_found_among_thousands() {
        let mut waiting = DurableWaiting::default();
        for slot in (0..4000).rev() {
            let first = u64::from(slot) * 2;
            waiting.add(slot, &(first..first + 2));
        }
        let slots =
            |found: &mut dyn Iterator<Item = (u32, Range<u64>)>| found.map(|(slot, _)| slot).collect::<Vec<_>>();
        assert_eq!(slots(&mut waiting.of(101..103)), [50, 51]);
        assert!(waiting.near(102..104).count() <= 2);
        waiting.add(9000, &(0..300));
        assert_eq!(slots(&mut waiting.of(299..300)), [9000, 149]);
        assert!(waiting.remove(9000, 0) && !waiting.remove(9000, 0));
        assert_eq!(slots(&mut waiting.of(299..300)), [149]);
        for slot in 0..4000 {
            assert!(waiting.remove(slot, u64::from(slot) * 2));
        }
        assert_eq!((waiting.waits.len(), waiting.longest), (0, 0));
    }
}
