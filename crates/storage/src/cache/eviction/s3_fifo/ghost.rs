//! The keys of pages that left, the last so many: a ring of keys, and a hash table that finds a key's place in the ring.
//!
//! The ring says which key is the oldest and makes room for the next. The table is open-addressed, at most a quarter full, and
//! closes the gap when an entry goes, so that it never needs to be rebuilt. A key that came back is taken from the table
//! only; its place in the ring stays empty until the ring comes round.
//!
//! Neighbours mostly leave together, and their keys differ in the last bits only ([`run_of`]): those of one run that come in
//! ascending order, one after the other, share a place and an entry. So a request of 16 pages costs about what one page does. A
//! run that came at several times has several entries.
//!
//! The hash has no key, so somebody may choose pages whose runs have their homes side by side. It gains him nothing: an entry lies within
//! [`REACH`] of its home, or there is none, so a look-up never goes over more than that. A key that finds no place is forgotten, which is
//! a page that is read once more. A secret key would have to come from outside, and a simulation go another way each time.

use std::collections::TryReserveError;

use crate::cache::eviction::{filled, run_of};

const NONE: u32 = u32::MAX;

/// Entries of the table for each key. Those of a run that came several times stand in one row, so there is more room than for keys
/// that are all apart.
const TABLE_PART: usize = 4;

/// So many entries from its home on an entry may lie. Where nobody chooses, a row is a few dozens long.
const REACH: usize = 512;

/// An entry of the table: a place of the ring, and the hash of its run, by which it has its home in the table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    place: u32,
}

const EMPTY: Entry = Entry { hash: 0, place: NONE };

/// Keys of one run. Two runs of one hash are mistaken for each other.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    hash: u32,
    /// Which are remembered; the table has an entry if any is.
    pages: u16,
    /// Which have their place in the ring, those that came back as well. The lowest is the oldest.
    places: u16,
}

#[derive(Debug)]
pub(super) struct Ghost {
    ring: Box<[Keys]>,
    /// Each within reach of its run's home. A power of two.
    table: Box<[Entry]>,
    /// Where the oldest stand in the ring, and how many follow from there on.
    first: usize,
    count: usize,
    /// Places of single keys that these take: as many at most as the ring is long.
    taken: u32,
}

impl Ghost {
    /// Room for so many keys.
    pub(super) fn new(keys: u32) -> Result<Self, TryReserveError> {
        Ok(Self {
            ring: filled(keys as usize, Keys::default())?,
            table: filled((keys as usize * TABLE_PART).next_power_of_two(), EMPTY)?,
            first: 0,
            count: 0,
            taken: 0,
        })
    }

    /// Remembers a key, and forgets the oldest if there is no room.
    pub(super) fn insert(&mut self, key: u64) {
        let (run, page) = run_of(key);
        self.insert_all(run, page);
    }

    /// The same for these keys of a run, in ascending order.
    pub(super) fn insert_all(&mut self, run: u64, mut pages: u16) {
        let mut new = ones(pages);
        while new > self.ring.len() as u32 {
            (pages, new) = (pages & (pages - 1), new - 1);
        }
        if pages == 0 {
            return;
        }
        let hash = hash(run);
        self.take(hash, pages);
        self.taken += new;
        while self.taken > self.ring.len() as u32 {
            self.forget(self.taken - self.ring.len() as u32);
        }
        if self.count > 0 {
            let newest = self.place_of(self.count - 1);
            let keys = &mut self.ring[newest];
            if keys.hash == hash && pages.trailing_zeros() > keys.places.ilog2() {
                let is_listed = keys.pages != 0;
                keys.pages |= pages;
                keys.places |= pages;
                if !is_listed {
                    self.enter(hash, newest);
                }
                return;
            }
        }
        let place = self.place_of(self.count);
        let places = pages;
        self.ring[place] = Keys { hash, pages, places };
        self.count += 1;
        self.enter(hash, place);
    }

    /// Forgets a key, and says whether it was remembered.
    pub(super) fn remove(&mut self, key: u64) -> bool {
        let (run, page) = run_of(key);
        self.take(hash(run), page)
    }

    /// Is a key remembered?
    pub(super) fn holds(&self, key: u64) -> bool {
        let (run, page) = run_of(key);
        self.holds_any(run, page)
    }

    /// Is any of these keys of a run?
    pub(super) fn holds_any(&self, run: u64, pages: u16) -> bool {
        self.find(|keys| keys.pages & pages != 0, hash(run)).is_some()
    }

    /// The place in the ring of those that came so many after the oldest.
    fn place_of(&self, nth: usize) -> usize {
        let place = self.first + nth;
        if place < self.ring.len() {
            place
        } else {
            place - self.ring.len()
        }
    }

    /// Takes keys out of the table; says whether any was there.
    fn take(&mut self, hash: u32, pages: u16) -> bool {
        let mut any = false;
        while let Some(at) = self.find(|keys| keys.pages & pages != 0, hash) {
            any = true;
            let keys = &mut self.ring[self.table[at].place as usize];
            keys.pages &= !pages;
            if keys.pages == 0 {
                self.close(at);
            }
        }
        any
    }

    /// Frees the places of so many of the oldest keys, or of all that stand with the oldest.
    fn forget(&mut self, mut keys: u32) {
        let place = self.first;
        let Keys { hash, pages, places } = self.ring[place];
        let mut left = places;
        while left != 0 && keys > 0 {
            (left, keys) = (left & (left - 1), keys - 1);
            self.taken -= 1;
        }
        let keys = &mut self.ring[place];
        (keys.places, keys.pages) = (left, pages & left);
        if pages != 0 && pages & left == 0 {
            if let Some(at) = self.find_entry(hash, place as u32) {
                self.close(at);
            }
        }
        if left == 0 {
            self.first = self.place_of(1);
            self.count -= 1;
        }
    }

    fn find(&self, wanted: impl Fn(&Keys) -> bool, hash: u32) -> Option<usize> {
        let mut at = self.home(hash);
        for _ in 0..REACH {
            let entry = self.table[at];
            if entry.place == NONE {
                return None;
            }
            if entry.hash == hash && wanted(&self.ring[entry.place as usize]) {
                return Some(at);
            }
            at = self.after(at);
        }
        None
    }

    /// The entry of a place in the ring; for `NONE` the first that is empty.
    fn find_entry(&self, hash: u32, place: u32) -> Option<usize> {
        let mut at = self.home(hash);
        for _ in 0..REACH {
            let found = self.table[at].place;
            if found == place {
                return Some(at);
            }
            if found == NONE {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// The keys of this place are found from now on; without room near their home they are forgotten.
    fn enter(&mut self, hash: u32, place: usize) {
        match self.find_entry(hash, NONE) {
            Some(at) => {
                self.table[at] = Entry {
                    hash,
                    place: place as u32,
                }
            }
            None => self.ring[place].pages = 0,
        }
    }

    /// Empties an entry, and moves into the gap whichever entry behind it could not be reached past it. Closing a gap may move a whole
    /// row, but each entry less than [`REACH`] times: every move brings it nearer to its home.
    fn close(&mut self, mut gap: usize) {
        let mut at = self.after(gap);
        while self.table[at].place != NONE && self.distance(gap, at) < REACH {
            let home = self.home(self.table[at].hash);
            if self.distance(home, at) >= self.distance(gap, at) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.table[gap] = EMPTY;
    }

    /// Where a run is looked for first.
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

/// How many; mostly one, and the instruction for that is not in every processor.
fn ones(pages: u16) -> u32 {
    if pages.is_power_of_two() { 1 } else { pages.count_ones() }
}

/// The multiplication spreads runs that are worse than hashes. Anybody can find runs of one hash (see above).
fn hash(run: u64) -> u32 {
    (run.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn listed(ghost: &Ghost) -> usize {
        let listed = ghost.table.iter().filter(|entry| entry.place != NONE).count();
        assert_eq!(listed, ghost.ring.iter().filter(|keys| keys.pages != 0).count());
        listed
    }

    /// Somebody has chosen pages whose runs meet: some are forgotten, and nobody's look-up goes over all of them.
    #[test]
    fn runs_that_meet_do_not_stand_in_an_endless_row() {
        let mut ghost = Ghost::new(4096).unwrap();
        let near = 64;
        let meet: Vec<u64> = (0..).filter(|&run| ghost.home(hash(run)) < near).take(4096).collect();
        for &run in &meet {
            ghost.insert(run * 16);
        }
        assert!(listed(&ghost) <= near + REACH, "{} stand in a row", listed(&ghost));
        let held = meet.iter().filter(|&&run| ghost.holds(run * 16)).count();
        assert!(held >= listed(&ghost) && held < meet.len(), "{held} are held");
        // Who has his home elsewhere is remembered, and so is everybody when they have gone.
        let other = (0..).find(|&run| ghost.home(hash(run)) > 8192).unwrap();
        ghost.insert(other * 16);
        assert!(ghost.holds(other * 16));
        for run in 0..8192 {
            ghost.insert((1 << 40 | run) * 16);
            assert!(ghost.holds((1 << 40 | run) * 16) || run < 4096, "run {run}");
        }
        assert!(listed(&ghost) <= 4096);
    }

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
                    prop_assert_eq!(ghost.holds(key), model.contains(&Some(key)));
                }
            }
        }

        /// Keys of a run at once are as these keys one after the other; what the others think of is theirs alone.
        #[test]
        fn a_run_at_once_is_its_keys(
            room in 0..40u32,
            steps in prop::collection::vec((any::<bool>(), 0..3u64, any::<u16>()), 0..100),
        ) {
            let [mut one, mut other] = [0; 2].map(|_| Ghost::new(room).unwrap());
            for (insert, run, pages) in steps {
                let keys = (0..16).filter(|page| pages & 1 << page != 0).map(|page| run * 16 + page);
                if insert {
                    one.insert_all(run, pages);
                    keys.for_each(|key| other.insert(key));
                } else {
                    let held = one.holds_any(run, pages);
                    let taken = keys.map(|key| (one.remove(key), other.remove(key)));
                    let taken: Vec<_> = taken.collect();
                    prop_assert!(taken.iter().all(|(one, other)| one == other));
                    prop_assert_eq!(held, taken.iter().any(|(one, _)| *one));
                }
                for key in 0..48 {
                    prop_assert_eq!(one.holds(key), other.holds(key));
                }
            }
        }
    }
}
