//! Looking up a name, one bucket at a time; the caller brings the buckets.
//!
//! A key's home is bucket `hash mod buckets`. If that is full the key went to the next bucket, and so on, around the end
//! (linear probing over buckets of four slots). A probe ends
//!
//! - at the key, or
//! - at a bucket with a *free* slot: no key has gone past it, so this one would be there, or
//! - when it has gone round.
//!
//! A tombstone does not end a probe, as keys behind it came past when it was in use; but a create may use it. (Which of the
//! two a slot becomes when it is given up: [`super::tombstones`].) The slot to be
//! used is the first tombstone on the way, else the free slot at the end: so tombstones are used up before free slots, which
//! keep the probes short. With twice as many slots as usable segments nearly every probe reads one bucket.
//!
//! ```text
//! let mut probe = Probe::new(key, &seed, buckets);
//! while let Some(bucket) = probe.next_bucket() {
//!     let slots = ...read the bucket...;
//!     match probe.visit(bucket, &slots) {
//!         Visit::Found(at) => ...the inode...,
//!         Visit::End { reusable } => ...no such key; here it could go...,
//!         Visit::Continue => {}
//!     }
//! }
//! ```
//!
//! **Two creates at once.** A create that goes on past a bucket because another create is about to take its last free slot
//! depends on that other one: if it were acknowledged first and a crash took the other one back, the bucket would have
//! a free slot again, and the probe for the acknowledged key would end there. So a create that passes over a slot whose
//! taking is not yet durable waits for it. (The same holds for the new inode of a rename.)
//!
//! A slot that cannot be decoded counts as taken by somebody else: it neither ends a probe nor is reused.

use super::bucket::Slots;
use super::inode::InodeState;
use super::name::Key;

/// Where an inode lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotAddress {
    /// The bucket.
    pub bucket: u64,
    /// The slot in it, 0 to 3.
    pub slot: usize,
}

/// What a visited bucket meant for the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The key is here.
    Found(SlotAddress),
    /// Not here, but perhaps in the next bucket.
    Continue,
    /// The key is nowhere.
    End {
        /// Where it could be put; `None` if every slot of the volume is taken.
        reusable: Option<SlotAddress>,
    },
}

/// A look-up under way.
#[derive(Clone, Debug)]
pub struct Probe {
    key: Key,
    buckets: u64,
    /// The bucket to be visited next.
    at: u64,
    /// Buckets not yet visited; 0 when the probe has ended.
    left: u64,
    /// The first tombstone on the way.
    tombstone: Option<SlotAddress>,
}

impl Probe {
    /// A look-up of this key in a table of so many buckets.
    pub fn new(key: Key, seed: &[u8; 16], buckets: u64) -> Self {
        let hash = key.hash(seed);
        Self::from_hash(key, hash, buckets)
    }

    /// The same with a hash that was computed before.
    pub fn from_hash(key: Key, hash: u64, buckets: u64) -> Self {
        let at = hash.checked_rem(buckets).unwrap_or(0);
        Self {
            key,
            buckets,
            at,
            left: buckets,
            tombstone: None,
        }
    }

    /// What is looked for.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The bucket to visit next; `None` when the probe has ended.
    pub fn next_bucket(&self) -> Option<u64> {
        (self.left > 0).then_some(self.at)
    }

    /// Takes in the bucket that [`Probe::next_bucket`] named.
    pub fn visit(&mut self, bucket: u64, slots: &Slots) -> Visit {
        debug_assert_eq!(
            Some(bucket),
            self.next_bucket(),
            "a probe visits the buckets that it names"
        );
        if let Some(slot) = find(slots, |inode| inode.answers(&self.key)) {
            self.left = 0;
            return Visit::Found(SlotAddress { bucket, slot });
        }
        let address = |slot| SlotAddress { bucket, slot };
        let tombstone = find(slots, |inode| inode.state == InodeState::Tombstone).map(address);
        let free = find(slots, |inode| inode.state == InodeState::Free).map(address);
        self.tombstone = self.tombstone.or(tombstone);
        self.advance();
        let is_early = tombstone.is_some() && crate::seeded_bug("a-tombstone-ends-a-probe");
        if free.is_some() || self.left == 0 || is_early {
            self.left = 0;
            return Visit::End {
                reusable: self.tombstone.or(free),
            };
        }
        Visit::Continue
    }

    fn advance(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.at = (self.at + 1).checked_rem(self.buckets).unwrap_or(0);
    }
}

fn find(slots: &Slots, wanted: impl Fn(&super::inode::Inode) -> bool) -> Option<usize> {
    slots.iter().position(|slot| slot.as_ref().is_ok_and(&wanted))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::inode::tests::live;
    use super::super::inode::{Inode, InodeError};
    use super::super::name::SegmentName;
    use super::*;
    use proptest::prelude::*;

    const SEED: [u8; 16] = [3; 16];

    fn key(uid: u32, name: &str) -> Key {
        Key::segment(uid, SegmentName::new(name).unwrap())
    }

    fn free() -> Slots {
        std::array::from_fn(|_| Ok(Inode::free()))
    }

    fn run(table: &[Slots], mut probe: Probe) -> (Visit, usize) {
        let mut visited = 0;
        while let Some(bucket) = probe.next_bucket() {
            visited += 1;
            match probe.visit(bucket, &table[bucket as usize]) {
                Visit::Continue => {}
                end => {
                    assert_eq!(probe.next_bucket(), None);
                    return (end, visited);
                }
            }
        }
        panic!("a probe ends with an answer");
    }

    #[test]
    fn goes_round_and_past_tombstones() {
        let mut table = vec![free(), free(), free()];
        let taken = || std::array::from_fn(|slot| Ok(live(9, &format!("other {slot}"))));
        (table[2], table[0]) = (taken(), taken());
        table[2][3] = Ok(live(9, "gone").tombstone([0; 16]));
        table[0][1] = Err(InodeError::NamePadding);
        let probe = || Probe::from_hash(key(1, "a"), 5, 3);
        let reusable = Some(SlotAddress { bucket: 2, slot: 3 });
        assert_eq!(run(&table, probe()), (Visit::End { reusable }, 3));
        table[1][0] = Ok(live(1, "a"));
        assert_eq!(
            run(&table, probe()),
            (Visit::Found(SlotAddress { bucket: 1, slot: 0 }), 3)
        );
        table[1] = taken();
        assert_eq!(run(&table, probe()), (Visit::End { reusable }, 3));
        table[2] = taken();
        assert_eq!(run(&table, probe()), (Visit::End { reusable: None }, 3));
    }

    #[test]
    fn a_strangers_name_is_not_found() {
        let mut table = vec![free()];
        table[0][0] = Ok(live(1000, "log"));
        let (visit, _) = run(&table, Probe::new(key(1001, "log"), &SEED, 1));
        assert_eq!(
            visit,
            Visit::End {
                reusable: Some(SlotAddress { bucket: 0, slot: 1 })
            }
        );
        assert_eq!(Probe::new(key(1, "a"), &SEED, 0).next_bucket(), None);
    }

    proptest! {
        /// Creates and deletes in any order against a map; every key that is in is found, every other is not.
        #[test]
        fn agrees_with_a_map(operations in proptest::collection::vec((any::<bool>(), 0u32..3, 0u32..12), 1..120)) {
            let mut table: Vec<Slots> = (0..8).map(|_| free()).collect();
            let mut model = BTreeMap::new();
            for (create, uid, number) in operations {
                let name = number.to_string();
                match run(&table, Probe::new(key(uid, &name), &SEED, 8)).0 {
                    Visit::Found(at) => {
                        prop_assert_eq!(model.get(&(uid, number)), Some(&at));
                        if !create {
                            let slot = &mut table[at.bucket as usize][at.slot];
                            *slot = slot.clone().map(|inode| inode.tombstone([0; 16]));
                            model.remove(&(uid, number));
                        }
                    }
                    Visit::End { reusable } => {
                        prop_assert_eq!(model.get(&(uid, number)), None);
                        if let (true, Some(at)) = (create, reusable) {
                            table[at.bucket as usize][at.slot] = Ok(live(uid, &name));
                            model.insert((uid, number), at);
                        }
                        prop_assert!(reusable.is_some() || model.len() == 32);
                    }
                    Visit::Continue => unreachable!(),
                }
            }
        }
    }
}
