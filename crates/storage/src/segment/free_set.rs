//! Which data blocks are free: a bitmap in memory, and a hint where to look next.
//!
//! The BAIO paper (section 5) keeps the free list as a bitmap with "a freelist hint indicating which position in the
//! freelist to start looking for a contiguous stream of free blocks", and argues that more is not needed: segments are
//! large and made rarely, and no read or write comes by here. So it is: a search starts at the hint, takes the first run
//! that is long enough (next fit) and goes round once. Here the bitmap is derived: the inodes are the truth, and an open
//! fills the set from them ([`FreeSet::occupy`]) or from the snapshot of a clean close.
//!
//! A set bit is a block in use. The search goes word by word: 64 blocks that are all in use, or all free, cost one
//! comparison. A volume of 4 TiB has 2^30 blocks and a bitmap of 128 MiB; a search through all of it reads these 128 MiB
//! once, 10 ms on the machine of our figures. Fragments cost more, but there are at most as many as inodes. Bits behind the
//! last block are set, so that no search ends there.

mod error;

pub use error::{FreeSetError, NoMemory};

const WORD_BITS: u64 = u64::BITS as u64;

#[cfg(test)]
thread_local! {
    /// How often the longest free run was looked for.
    pub(crate) static WALKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The free blocks of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeSet {
    /// One bit per block, set if in use; the last word is padded with ones.
    words: Vec<u64>,
    blocks: u64,
    free: u64,
    /// Where the next search begins, below `blocks` or 0.
    hint: u64,
    /// Runs that stay in use whoever gives them back: first block, and the block behind the last.
    kept: Vec<(u64, u64)>,
}

impl FreeSet {
    /// A set of so many blocks, all free, with a hint from the superblock.
    ///
    /// The bitmap of a huge, mostly empty volume costs no memory yet: its words are zero pages until they are written.
    pub fn new(blocks: u64, hint: u64) -> Result<Self, NoMemory> {
        let length = words_for(blocks)?;
        // Asking first turns a number of blocks that no memory holds into an error instead of an abort.
        Vec::<u64>::new()
            .try_reserve_exact(length)
            .map_err(|_| NoMemory { blocks })?;
        let mut set = Self {
            words: vec![0; length],
            blocks,
            free: blocks,
            hint: 0,
            kept: Vec::new(),
        };
        set.pad();
        set.set_hint(hint);
        Ok(set)
    }

    /// Blocks of the volume.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Free blocks.
    pub fn free_blocks(&self) -> u64 {
        self.free
    }

    /// Where the next search begins.
    pub fn hint(&self) -> u64 {
        self.hint
    }

    /// Lets the next search begin here; a hint outside the volume means its beginning.
    pub fn set_hint(&mut self, hint: u64) {
        self.hint = if hint < self.blocks { hint } else { 0 };
    }

    /// Adds free blocks at the end, up to so many in all. A set never shrinks.
    pub fn grow(&mut self, blocks: u64) -> Result<(), NoMemory> {
        let (old, Some(added)) = (self.blocks, blocks.checked_sub(self.blocks)) else {
            return Ok(());
        };
        let length = words_for(blocks)?;
        self.words
            .try_reserve_exact(length.saturating_sub(self.words.len()))
            .map_err(|_| NoMemory { blocks })?;
        self.words.resize(length, 0);
        self.blocks = blocks;
        self.free += added;
        // What was padding behind the old end are blocks now.
        if !crate::seeded_bug("grown-blocks-stay-taken") {
            self.for_each_word(old, added, |word, mask| *word &= !mask);
        }
        self.pad();
        Ok(())
    }

    /// Takes a run of blocks: the first long enough at or after the hint, else the first of all.
    ///
    /// No blocks are a run as well; it begins at 0 and takes nothing. `None`: no free run is so long.
    pub fn allocate(&mut self, blocks: u64) -> Option<u64> {
        if blocks == 0 {
            return Some(0);
        }
        let start = self.find(blocks)?;
        self.take(start, blocks);
        self.set_hint(start + blocks);
        Some(start)
    }

    /// Marks a run as in use: one of an inode at open, or the blocks behind a segment that grows in place. The hint stays.
    pub fn occupy(&mut self, start: u64, blocks: u64) -> Result<(), FreeSetError> {
        self.check_inside(start, blocks)?;
        match self.next_used(start, start + blocks) {
            at if at < start + blocks => Err(FreeSetError::Overlap { start, blocks, at }),
            _ => {
                self.take(start, blocks);
                Ok(())
            }
        }
    }

    /// Marks a run as in use, whatever of it is in use already; says how many of its blocks were free before.
    pub fn occupy_any(&mut self, start: u64, blocks: u64) -> Result<u64, FreeSetError> {
        self.check_inside(start, blocks)?;
        let before = self.free;
        let (mut at, end) = (start, start + blocks);
        for word in self.words.iter_mut().skip((start / WORD_BITS) as usize) {
            if at >= end {
                break;
            }
            let offset = at % WORD_BITS;
            let count = (WORD_BITS - offset).min(end - at);
            let mask = u64::MAX >> (WORD_BITS - count) << offset;
            self.free -= u64::from((mask & !*word).count_ones());
            *word |= mask;
            at += count;
        }
        Ok(before - self.free)
    }

    /// Blocks in use.
    pub fn used_blocks(&self) -> u64 {
        self.blocks - self.free
    }

    /// One block behind the last one in use.
    pub fn used_end(&self) -> u64 {
        let whole = |word: u64, at: usize| {
            let bits = word & self.real_bits(at);
            (bits != 0).then(|| (at as u64 + 1) * WORD_BITS - u64::from(bits.leading_zeros()))
        };
        let words = self.words.iter().enumerate().rev();
        words.into_iter().find_map(|(at, word)| whole(*word, at)).unwrap_or(0)
    }

    /// Writes the bits of the blocks from `first` on, a multiple of 64, as little-endian words, set if in use; zero behind the
    /// last block.
    pub fn store(&self, first: u64, bytes: &mut [u8]) {
        let from = (first / WORD_BITS) as usize;
        for (at, target) in (from..).zip(bytes.chunks_exact_mut(size_of::<u64>())) {
            let word = self.words.get(at).map_or(0, |word| word & self.real_bits(at));
            target.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The way back: what is stored is in use, as well as what was before. Bits behind the last block are ignored.
    pub fn load(&mut self, first: u64, bytes: &[u8]) {
        let from = (first / WORD_BITS) as usize;
        for (at, source) in (from..self.words.len()).zip(bytes.chunks_exact(size_of::<u64>())) {
            let mut word = [0; size_of::<u64>()];
            word.copy_from_slice(source);
            let bits = u64::from_le_bytes(word) & self.real_bits(at);
            if bits != 0 {
                self.free -= u64::from((bits & !self.words[at]).count_ones());
                self.words[at] |= bits;
            }
        }
    }

    /// The bits of a word that stand for blocks.
    fn real_bits(&self, at: usize) -> u64 {
        match self.blocks.saturating_sub(at as u64 * WORD_BITS) {
            0 => 0,
            left if left >= WORD_BITS => u64::MAX,
            left => u64::MAX >> (WORD_BITS - left),
        }
    }

    /// Keeps a run in use from now on, also when somebody else who has blocks of it gives them back: what is left of a
    /// segment that is not served lies there.
    pub fn keep(&mut self, start: u64, blocks: u64) -> Result<(), FreeSetError> {
        self.occupy_any(start, blocks)?;
        self.kept.push((start, start + blocks));
        Ok(())
    }

    /// Gives a run back, but for what is kept. The hint stays: next fit comes round to it.
    pub fn release(&mut self, start: u64, blocks: u64) -> Result<(), FreeSetError> {
        self.check_inside(start, blocks)?;
        match self.next_free(start, start + blocks) {
            at if at < start + blocks => Err(FreeSetError::NotInUse { start, blocks, at }),
            _ => {
                self.for_each_word(start, blocks, |word, mask| *word &= !mask);
                self.free += blocks;
                self.keep_again(start, start + blocks)
            }
        }
    }

    /// Takes the parts of a run that are kept.
    fn keep_again(&mut self, start: u64, end: u64) -> Result<(), FreeSetError> {
        for at in 0..self.kept.len() {
            let (from, to) = (self.kept[at].0.max(start), self.kept[at].1.min(end));
            if from < to {
                self.occupy_any(from, to - from)?;
            }
        }
        Ok(())
    }

    /// Whether a whole run is free; one that leaves the volume is not.
    pub fn is_free(&self, start: u64, blocks: u64) -> bool {
        self.check_inside(start, blocks).is_ok() && self.next_used(start, start + blocks) == start + blocks
    }

    /// The longest free run: (first block, length), the first of equally long ones; length 0 if nothing is free. It takes a walk through
    /// the whole set, 10 ms for 4 TiB.
    pub fn largest_free_run(&self) -> (u64, u64) {
        #[cfg(test)]
        WALKS.set(WALKS.get() + 1);
        // `>` and not `>=`: the first of equally long ones.
        self.free_runs()
            .fold((0, 0), |best, run| if run.1 > best.1 { run } else { best })
    }

    /// All free runs in ascending order: (first block, length).
    pub fn free_runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.free_runs_from(0)
    }

    /// The free runs at or after a block; of one that contains it, what is left of it there.
    pub fn free_runs_from(&self, block: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = block.min(self.blocks);
        std::iter::from_fn(move || {
            let start = self.next_free(at, self.blocks);
            at = self.next_used(start, self.blocks);
            (start < self.blocks).then_some((start, at - start))
        })
    }

    /// Sets the bits behind the last block.
    fn pad(&mut self) {
        let padding = self.blocks.next_multiple_of(WORD_BITS) - self.blocks;
        self.for_each_word(self.blocks, padding, |word, mask| *word |= mask);
    }

    /// From the hint to the end, then from the beginning. The second search may run over the hint, as a run there may begin
    /// before it; what begins behind the hint was seen by the first.
    fn find(&self, blocks: u64) -> Option<u64> {
        if blocks > self.free {
            return None;
        }
        let wrapped_end = self.hint.saturating_add(blocks - 1).min(self.blocks);
        self.find_between(self.hint, self.blocks, blocks)
            .or_else(|| self.find_between(0, wrapped_end, blocks))
    }

    /// The first free run of so many blocks that lies between two blocks.
    fn find_between(&self, from: u64, end: u64, blocks: u64) -> Option<u64> {
        let mut at = from;
        loop {
            let start = self.next_free(at, end);
            let run_end = start.checked_add(blocks).filter(|run_end| *run_end <= end)?;
            at = self.next_used(start, run_end);
            if at == run_end {
                return Some(start);
            }
        }
    }

    /// The first free block in `from..end`, or `end`.
    fn next_free(&self, from: u64, end: u64) -> u64 {
        self.next_set_bit(from, end, |word| !word)
    }

    /// The first block in use in `from..end`, or `end`.
    fn next_used(&self, from: u64, end: u64) -> u64 {
        self.next_set_bit(from, end, |word| word)
    }

    /// The first bit in `from..end` that is set after every word went through `view`, or `end`.
    #[inline]
    fn next_set_bit(&self, from: u64, end: u64, view: impl Fn(u64) -> u64) -> u64 {
        if from >= end {
            return end;
        }
        let first = (from / WORD_BITS) as usize;
        let last = ((end - 1) / WORD_BITS) as usize;
        // Bits before `from` do not count.
        let mut mask = u64::MAX << (from % WORD_BITS);
        for (at, word) in (first..=last).zip(self.words.iter().skip(first)) {
            let bits = view(*word) & mask;
            if bits != 0 {
                return (at as u64 * WORD_BITS + u64::from(bits.trailing_zeros())).min(end);
            }
            mask = u64::MAX;
        }
        end
    }

    /// Marks blocks that are known to be free.
    fn take(&mut self, start: u64, blocks: u64) {
        self.for_each_word(start, blocks, |word, mask| *word |= mask);
        self.free -= blocks;
    }

    /// Calls `change` with every word of a run inside the volume and the mask of the bits that belong to it.
    fn for_each_word(&mut self, start: u64, blocks: u64, change: impl Fn(&mut u64, u64)) {
        let (mut at, end) = (start, start + blocks);
        for word in self.words.iter_mut().skip((start / WORD_BITS) as usize) {
            if at >= end {
                break;
            }
            let offset = at % WORD_BITS;
            let count = (WORD_BITS - offset).min(end - at);
            change(word, u64::MAX >> (WORD_BITS - count) << offset);
            at += count;
        }
    }

    fn check_inside(&self, start: u64, blocks: u64) -> Result<(), FreeSetError> {
        match start.checked_add(blocks) {
            Some(end) if end <= self.blocks => Ok(()),
            _ => Err(FreeSetError::Outside {
                start,
                blocks,
                volume: self.blocks,
            }),
        }
    }
}

/// Words of the bitmap of so many blocks. What this lets through can be rounded up without overflow.
fn words_for(blocks: u64) -> Result<usize, NoMemory> {
    let bytes_max = isize::MAX as u64;
    let words = Some(blocks.div_ceil(WORD_BITS)).filter(|_| blocks <= bytes_max);
    words
        .and_then(|words| usize::try_from(words).ok())
        .ok_or(NoMemory { blocks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set_of(blocks: u64, hint: u64) -> FreeSet {
        FreeSet::new(blocks, hint).unwrap()
    }

    #[test]
    fn next_fit_goes_on_and_comes_round() {
        let mut set = set_of(200, 0);
        assert_eq!((set.allocate(100), set.allocate(60)), (Some(0), Some(100)));
        set.release(0, 100).unwrap();
        assert_eq!(
            set.allocate(40),
            Some(160),
            "behind the hint, although there is room before it"
        );
        assert_eq!((set.hint(), set.allocate(70)), (0, Some(0)));
        assert_eq!(set.allocate(31), None);
        assert_eq!(set.allocate(0), Some(0));
    }

    #[test]
    fn a_run_across_the_hint_is_found() {
        let mut set = set_of(128, 0);
        set.occupy(100, 28).unwrap();
        set.set_hint(50);
        assert_eq!(set.allocate(80), Some(0));
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        let mut set = set_of(300, 0);
        set.occupy(64, 64).unwrap();
        let before = set.clone();
        assert_eq!(
            set.occupy(0, 65),
            Err(FreeSetError::Overlap {
                start: 0,
                blocks: 65,
                at: 64
            })
        );
        assert_eq!(
            set.release(120, 20),
            Err(FreeSetError::NotInUse {
                start: 120,
                blocks: 20,
                at: 128
            })
        );
        assert!(matches!(set.occupy(299, 2), Err(FreeSetError::Outside { .. })));
        assert!(matches!(set.release(u64::MAX, 2), Err(FreeSetError::Outside { .. })));
        assert!(!set.is_free(u64::MAX, 2) && !set.is_free(60, 5) && set.is_free(128, 172));
        assert_eq!(set, before);
        assert_eq!(set.allocate(u64::MAX), None);
    }

    #[test]
    fn growth_joins_the_last_run() {
        let mut set = set_of(70, 99);
        assert_eq!(set.hint(), 0, "a hint outside means the beginning");
        set.occupy(0, 60).unwrap();
        set.grow(1000).unwrap();
        assert_eq!((set.free_blocks(), set.largest_free_run()), (940, (60, 940)));
        set.grow(5).unwrap();
        assert_eq!(set.blocks(), 1000);
    }

    #[test]
    fn a_bitmap_beyond_memory_is_an_error() {
        for blocks in [u64::MAX, i64::MAX as u64, 1 << 60] {
            assert_eq!(FreeSet::new(blocks, 0), Err(NoMemory { blocks }));
            assert_eq!(set_of(1, 0).grow(blocks), Err(NoMemory { blocks }));
        }
    }

    #[test]
    fn what_is_stored_is_loaded_again() {
        let mut set = set_of(32 * 64 + 7, 0);
        assert_eq!(set.used_end(), 0);
        assert_eq!(set.occupy_any(60, 10), Ok(10));
        assert_eq!(set.occupy_any(65, 10), Ok(5), "five were in use already");
        assert_eq!(set.occupy_any(32 * 64 + 6, 1), Ok(1));
        assert_eq!((set.used_blocks(), set.used_end()), (16, 32 * 64 + 7));
        assert!(set.occupy_any(32 * 64 + 6, 2).is_err());
        let mut bytes = [[0xff; 8 * 20], [0xff; 8 * 20]];
        set.store(0, &mut bytes[0]);
        set.store(20 * 64, &mut bytes[1]);
        assert_eq!(bytes[1][8 * 13..], [0; 8 * 7], "no bits behind the last block");
        let mut copy = set_of(32 * 64 + 7, 0);
        bytes[1][8 * 13..].fill(0xff);
        copy.load(20 * 64, &bytes[1]);
        copy.load(0, &bytes[0]);
        assert_eq!(copy, set_of_same(&set), "the same but for the bits behind the end");
        let mut again = copy.clone();
        again.load(0, &bytes[0]);
        assert_eq!(again, copy, "loaded twice counts once");
    }

    #[test]
    fn what_is_kept_stays_in_use() {
        let mut set = set_of(100, 0);
        set.occupy(10, 30).unwrap();
        set.keep(35, 10).unwrap();
        set.keep(12, 1).unwrap();
        assert_eq!(set.used_blocks(), 35);
        set.release(10, 30).unwrap();
        let free: Vec<_> = set.free_runs().collect();
        assert_eq!((free, set.free_blocks()), (vec![(0, 12), (13, 22), (45, 55)], 89));
    }

    /// The set that has the same blocks in use, made block by block.
    fn set_of_same(set: &FreeSet) -> FreeSet {
        let mut same = set_of(set.blocks(), 0);
        for block in 0..set.blocks() {
            if !set.is_free(block, 1) {
                same.occupy(block, 1).unwrap();
            }
        }
        same
    }

    /// A full 1 TiB volume with one free block at the end of a search: words that are full are skipped.
    #[test]
    fn a_large_volume_is_searched_by_words() {
        let blocks = 1 << 28;
        let mut set = set_of(blocks, 1);
        set.occupy(1, blocks - 1).unwrap();
        assert_eq!((set.free_blocks(), set.largest_free_run()), (1, (0, 1)));
        assert_eq!(set.allocate(1), Some(0));
        assert_eq!(set.allocate(1), None);
    }

    /// The same, block by block.
    struct Model {
        used: Vec<bool>,
        hint: usize,
    }

    impl Model {
        fn fits(&self, start: usize, blocks: usize) -> bool {
            self.used
                .get(start..start + blocks)
                .is_some_and(|run| run.iter().all(|used| !used))
        }

        fn allocate(&mut self, blocks: usize) -> Option<usize> {
            let order = (self.hint..self.used.len()).chain(0..self.hint);
            let start = order.into_iter().find(|start| self.fits(*start, blocks))?;
            self.used[start..start + blocks].fill(true);
            self.hint = (start + blocks) % self.used.len();
            Some(start)
        }

        fn largest(&self) -> usize {
            self.used.split(|used| *used).map(<[bool]>::len).max().unwrap_or(0)
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_model(
            size in 1usize..400, hint in 0usize..400,
            operations in proptest::collection::vec((0u8..3, 0usize..400, 1usize..150), 1..60),
        ) {
            let mut set = set_of(size as u64, hint as u64);
            let mut model = Model { used: vec![false; size], hint: if hint < size { hint } else { 0 } };
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for (operation, at, blocks) in operations {
                match operation {
                    0 => {
                        let got = set.allocate(blocks as u64);
                        prop_assert_eq!(got, model.allocate(blocks).map(|start| start as u64));
                        runs.extend(got.map(|start| (start, blocks as u64)));
                    }
                    1 => {
                        let fits = model.fits(at, blocks);
                        prop_assert_eq!(set.is_free(at as u64, blocks as u64), fits);
                        prop_assert_eq!(set.occupy(at as u64, blocks as u64).is_ok(), fits);
                        if fits {
                            model.used[at..at + blocks].fill(true);
                            runs.push((at as u64, blocks as u64));
                        }
                    }
                    _ if runs.is_empty() => {}
                    _ => {
                        let (start, blocks) = runs.swap_remove(at % runs.len());
                        prop_assert_eq!(set.release(start, blocks), Ok(()));
                        prop_assert!(set.release(start, 1).is_err());
                        model.used[start as usize..(start + blocks) as usize].fill(false);
                    }
                }
                let free = model.used.iter().filter(|used| !**used).count();
                prop_assert_eq!((set.free_blocks(), set.largest_free_run().1), (free as u64, model.largest() as u64));
                prop_assert_eq!(set.free_runs().map(|(_, blocks)| blocks).sum::<u64>(), free as u64);
            }
        }
    }
}
