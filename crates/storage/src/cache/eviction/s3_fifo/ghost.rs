//! The keys of pages that left, the last so many: a ring of keys, and a hash table that finds a key's place in the ring.
//!
//! The ring says which key is the oldest and makes room for the next. The table is open-addressed, at most half full, and
//! closes the gap when an entry goes, so that it never needs to be rebuilt. A key that came back is taken from the table
//! only; its place in the ring stays empty until the ring comes round.

use std::collections::TryReserveError;

use crate::cache::eviction::filled;

const NONE: u32 = u32::MAX;

/// An entry of the table: where its key is in the ring, and as much of the key's hash as finds its home and tells most others
/// from it, so that a search seldom looks into the ring.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    place: u32,
}

const EMPTY: Entry = Entry { hash: 0, place: NONE };

#[derive(Debug)]
pub(super) struct Ghost {
    ring: Box<[u64]>,
    /// Each within reach of its key's home. A power of two.
    table: Box<[Entry]>,
    /// Where the next key goes in the ring.
    next: usize,
}

impl Ghost {
    /// Room for so many keys.
    pub(super) fn new(keys: u32) -> Result<Self, TryReserveError> {
        Ok(Self {
            ring: filled(keys as usize, 0)?,
            table: filled((keys as usize * 2).next_power_of_two(), EMPTY)?,
            next: 0,
        })
    }

    /// Remembers a key, and forgets the oldest if there is no room.
    pub(super) fn insert(&mut self, key: u64) {
        if self.ring.is_empty() {
            return;
        }
        self.remove(key);
        let place = self.next as u32;
        // What the place held may have come back, and even left anew: then it is found elsewhere, and stays.
        if let Some(at) = self
            .find(self.ring[self.next])
            .filter(|&at| self.table[at].place == place)
        {
            self.close(at);
        }
        self.ring[self.next] = key;
        self.next += 1;
        if self.next == self.ring.len() {
            self.next = 0;
        }
        let hash = hash(key);
        let mut at = self.home(hash);
        while self.table[at].place != NONE {
            at = self.after(at);
        }
        self.table[at] = Entry { hash, place };
    }

    /// Forgets a key, and says whether it was remembered.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        let found = self.find(key);
        if let Some(at) = found {
            self.close(at);
        }
        found.is_some()
    }

    /// Is a key remembered?
    pub(super) fn holds(&self, key: u64) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: u64) -> Option<usize> {
        let hash = hash(key);
        let mut at = self.home(hash);
        loop {
            let entry = self.table[at];
            if entry.place == NONE {
                return None;
            }
            if entry.hash == hash && self.ring[entry.place as usize] == key {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// Empties an entry, and moves into the gap whichever entry behind it could not be reached past it.
    fn close(&mut self, mut gap: usize) {
        let mut at = self.after(gap);
        while self.table[at].place != NONE {
            let home = self.home(self.table[at].hash);
            if self.distance(home, at) >= self.distance(gap, at) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.table[gap] = EMPTY;
    }

    /// Where a key is looked for first.
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.table.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.table.len() - 1)
    }
}

/// The multiplication spreads keys that are worse than hashes.
fn hash(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a queue of (key, still there).
        #[test]
        fn remembers_the_last_keys(
            room in 0..9u32,
            steps in prop::collection::vec((any::<bool>(), 0..24u64), 0..200),
        ) {
            let mut ghost = Ghost::new(room).unwrap();
            let mut model = VecDeque::<Option<u64>>::new();
            for (insert, key) in steps {
                let known = model.iter_mut().find(|slot| **slot == Some(key));
                let was_known = known.is_some();
                if let Some(slot) = known {
                    *slot = None;
                }
                if insert {
                    ghost.insert(key);
                    model.push_back(Some(key));
                    if model.len() > room as usize {
                        model.pop_front();
                    }
                } else {
                    prop_assert_eq!(ghost.remove(key), was_known);
                }
                for key in 0..24 {
                    prop_assert_eq!(ghost.find(key).is_some(), model.contains(&Some(key)));
                }
            }
        }
    }
}
