//! Lent pages in the model: each holds what a read could have given at that moment, and the same until it is given back.

use baio_storage::cache::{Borrower, LentPages};

use super::*;

const LOANS_MAX: usize = 3;

#[derive(Debug)]
pub(super) struct Lent {
    borrower: Borrower,
    loans: Vec<(LentPages, Vec<u8>)>,
}

impl Default for Lent {
    fn default() -> Lent {
        Lent {
            borrower: Borrower::new(1 << 20),
            loans: Vec::new(),
        }
    }
}

impl World {
    /// Borrows pages that are here, or gives some back.
    pub(super) fn lend_step(&mut self) {
        if self.lent.loans.len() >= LOANS_MAX || self.random.one_in(3) {
            return self.give_back();
        }
        let object = self.random.below(self.objects.len() as u64) as usize;
        let pages = (self.objects[object].cells.len() * CELL / PAGE) as u64;
        let first = self.random.below(pages.min(8));
        let end = pages.min(first + 1 + self.random.below(3));
        let Some(lent) = self
            .cache
            .lend(self.objects[object].id, first..end, &self.lent.borrower)
        else {
            return;
        };
        let bytes: Vec<u8> = lent.pages().flatten().copied().collect();
        let cells = first as usize * PAGE / CELL..end as usize * PAGE / CELL;
        let allowed = self.allowed(object, &cells);
        for ((at, number), allowed) in cells.zip(cells_of(&bytes)).zip(&allowed) {
            assert!(
                allowed.contains(&number),
                "object {object} cell {at}: lent {number}, not {allowed:?}"
            );
        }
        self.lent.loans.push((lent, bytes));
    }

    fn give_back(&mut self) {
        if self.lent.loans.is_empty() {
            return;
        }
        let at = self.random.below(self.lent.loans.len() as u64) as usize;
        let (lent, bytes) = self.lent.loans.swap_remove(at);
        assert!(
            lent.pages().zip(bytes.chunks(PAGE)).all(|(now, then)| now == then),
            "what is lent was changed"
        );
    }

    pub(super) fn end_loans(&mut self) {
        while !self.lent.loans.is_empty() {
            self.give_back();
        }
        assert_eq!(self.lent.borrower.held_bytes(), 0);
    }
}
