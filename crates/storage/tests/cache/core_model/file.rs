//! The plain file: its handle, its size.

use std::task::Poll;

use baio_engine::{Durability, Memory, Wait};
use baio_storage::{Access, Mode, SegmentOp, SegmentRequest};

use super::{CELL, Cell, DEPTH, PER_BLOCK, World, judge};

impl World {
    /// The cache forgets a file that nobody has open, as soon as it can.
    pub(super) fn reopen(&mut self) {
        let Some(at) = self.things.iter().position(|thing| thing.is_file) else {
            return;
        };
        let handle = self.things[at].handle;
        let Some(file) = self.core.file(handle).cloned() else {
            return;
        };
        self.core.close_handle(handle);
        for _ in 0..self.random.below(3) {
            self.turn(Wait::No);
        }
        self.things[at].handle = self.core.add_file(file, Access::Write);
        self.saw("reopened");
    }

    /// The plain file is cut and made as long again, beside what is under way and what comes: what was cut off is zeros from then on.
    pub(super) fn cut(&mut self) {
        let Some(thing) = self.things.iter().position(|thing| thing.is_file) else {
            return;
        };
        let count = self.things[thing].cells.len();
        let from = self.random.below(count as u64) as usize;
        // The page in which the file ends then is let go of as a whole, but bytes before the end are not its matter.
        let is_busy = |cell: &Cell| cell.pending.is_some();
        if self.is_faulty || self.things[thing].cells[from..].iter().any(is_busy) {
            return;
        }
        self.stamp += 1;
        let stamp = self.stamp | judge::ZEROED;
        self.write_begins(thing, from..count, stamp);
        let len = |cells: usize| (cells * CELL) as u64;
        self.size_request(thing, SegmentOp::Truncate { len: len(from) });
        self.size_request(thing, SegmentOp::Truncate { len: len(count) });
        for cell in &mut self.things[thing].cells[from..] {
            *cell = Cell::holding(stamp);
        }
        self.tell_fences(thing, &(from..count), stamp);
        // No byte changes by that.
        let offset = len(self.random.below(count as u64) as usize);
        let op = SegmentOp::Allocate {
            offset,
            len: len(PER_BLOCK).min(len(count) - offset),
        };
        self.size_request(thing, op);
        self.saw("truncates");
    }

    /// Ends well, and others come and go meanwhile.
    fn size_request(&mut self, thing: usize, op: SegmentOp) {
        let request = SegmentRequest {
            mode: [Mode::Direct, Mode::Cached, Mode::Kernel][self.random.below(3) as usize],
            durability: [Durability::None, Durability::Data][self.random.below(2) as usize],
            ..SegmentRequest::new(self.things[thing].handle, op, Memory::None)
        };
        let ticket = crate::harness::start(&mut self.core, request);
        loop {
            if let Poll::Ready(outcome) = self.core.poll(ticket, None) {
                let result = outcome.expect("nobody else has taken it").result;
                assert!(result.is_ok(), "seed {}: {op:?}: {result:?}", self.seed);
                return;
            }
            if self.active.len() < DEPTH && self.random.below(2) == 0 {
                self.ask();
            }
            self.turn(Wait::one());
        }
    }
}
