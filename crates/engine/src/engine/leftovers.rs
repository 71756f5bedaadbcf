//! Abandoned writes that the kernel still has, by file and range: what a new write must not overtake.
//!
//! Found by range, so that a write costs no walk of the table, neither while a device is stuck with some nor ever after.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::slot::Slot;

/// [`File::identity`](crate::File::identity).
type Identity = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// File, first byte and slot of each, and where it ends.
    writes: BTreeMap<(Identity, u64, u32), u64>,
    /// No write here is longer: how far before a range the first one that reaches into it can begin.
    longest: u64,
}

impl Leftovers {
    pub(super) fn add(&mut self, slot: &Slot, index: u32) {
        if let Some((identity, range)) = place(slot) {
            self.longest = self.longest.max(range.end - range.start);
            self.writes.insert((identity, range.start, index), range.end);
        }
    }

    /// The kernel has let go of it.
    pub(super) fn remove(&mut self, slot: &Slot, index: u32) {
        if let Some((identity, range)) = place(slot) {
            self.writes.remove(&(identity, range.start, index));
        }
        if self.writes.is_empty() {
            self.longest = 0;
        }
    }

    /// May one of them still change what this request is about to write?
    #[inline]
    pub(super) fn block(&self, slot: &Slot) -> bool {
        !self.writes.is_empty() && self.reach(slot)
    }

    fn reach(&self, slot: &Slot) -> bool {
        let Some((identity, range)) = place(slot) else {
            return false;
        };
        let first = (identity, range.start.saturating_sub(self.longest), 0);
        let behind = (identity, range.end, 0);
        self.writes.range(first..behind).any(|(_, &end)| end > range.start)
    }
}

fn place(slot: &Slot) -> Option<(Identity, Range<u64>)> {
    let (start, end) = slot.write_range()?;
    Some((slot.file.as_ref()?.identity(), start..end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Policy, Space};
    use crate::request::{Op, Request};
    use crate::sim::Disk;
    use crate::sim::{Profile, Rotating, Sim};
    use crate::slot::Slots;
    use crate::{Engine, EngineOptions, File, RequestId, Wait};

    #[test]
    fn what_overlaps_blocks_and_what_only_touches_does_not() {
        let file = File::simulated(&Disk::new(1 << 20), "disk");
        let other = File::simulated(&Disk::new(1 << 20), "other disk");
        let mut slots = Slots::new(8);
        let mut write = |file: &File, offset, len| -> RequestId {
            let space = Space::Zero;
            let request = Request::bare(Op::Allocate { offset, len, space }, Some(file), Policy::direct());
            slots.insert(request, 0).unwrap()
        };
        let long = write(&file, 1000, 5000);
        let short = write(&file, 2000, 10);
        let elsewhere = write(&other, 0, 1 << 20);
        let asked: Vec<_> = [(0, 1000), (0, 1001), (5999, 1), (6000, 100), (2005, 1)]
            .into_iter()
            .map(|(offset, len)| write(&file, offset, len))
            .collect();
        let mut left = Leftovers::default();
        for id in [long, short, elsewhere] {
            left.add(slots.get(id).unwrap(), id.slot);
        }
        let blocked =
            |left: &Leftovers| -> Vec<bool> { asked.iter().map(|&id| left.block(slots.get(id).unwrap())).collect() };
        assert_eq!(blocked(&left), [false, true, true, false, true]);
        left.remove(slots.get(long).unwrap(), long.slot);
        assert_eq!(blocked(&left), [false, false, false, false, true]);
        left.remove(slots.get(short).unwrap(), short.slot);
        assert_eq!(blocked(&left), [false; 5]);
        left.remove(slots.get(elsewhere).unwrap(), elsewhere.slot);
        assert_eq!((left.writes.len(), left.longest), (0, 0));
    }

    /// An abandoned request made every later write walk the whole table, for the engine's life.
    #[test]
    fn writes_walk_no_table_beside_an_abandoned_one_nor_after_it() {
        let config = EngineOptions {
            slots: 64,
            arena_bytes: 1 << 20,
            ..EngineOptions::default()
        };
        let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config).unwrap();
        let disk = Disk::new(1 << 20);
        disk.set_profile(Profile::Rotating(Rotating::default()));
        let file = File::simulated(&disk, "disk");
        let write = |engine: &Engine, block: u64| {
            Request::write(&file, block * 4096, engine.buffer(4096).unwrap(), Policy::direct())
        };
        // On the disk already, where three of four cannot be called back.
        let mut block = 0;
        while engine.leftovers.writes.is_empty() {
            let id = engine.submit(write(&engine, block)).unwrap();
            engine.turn(Wait::No).unwrap();
            engine.abandon(id);
            engine.turn(Wait::No).unwrap();
            block += 1;
        }
        let walks = engine.slots.scanned.get();
        for block in 100..110 {
            engine.submit(write(&engine, block)).unwrap();
        }
        while engine.in_flight() > 0 {
            engine.turn(Wait::one()).unwrap();
            while engine.next_completion().is_some() {}
        }
        assert!(engine.stats().abandoned > 0 && engine.leftovers.writes.is_empty());
        for block in 0..10 {
            assert_eq!(engine.run(write(&engine, block)).result, Ok(4096));
        }
        assert_eq!(engine.slots.scanned.get() - walks, 0);
    }
}
