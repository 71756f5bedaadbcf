//! A queue of fixed-size entries between one producer and one consumer, in memory that both can write.
//!
//! The ring owns nothing: it refers to two counters, a flag and the cells, wherever they lie: on the heap, or in a
//! sealed memfd. Both counters run freely and wrap; an entry lives in the cell `counter % capacity`.
//!
//! ```text
//!            head (consumer)                 tail (producer)
//!              |                               |
//!   .  .  .  .  E  E  E  E  E  E  E  E  E  E  .  .  .        0 <= tail - head <= capacity
//! ```
//!
//! Each side keeps its own counter in a [`Cursor`] that the peer cannot reach, publishes it, and reads the peer's. So a
//! peer that scribbles can do three things only: publish a counter that cannot be ([`Refused::Broken`]), hand over
//! entries that make no sense (each is copied once, then checked), or lose its own. Nothing here is undefined behaviour
//! whatever it does, because every shared word is an atomic.
//!
//! **Batches.** [`Ring::push`] and [`Ring::pop`] touch cells only; [`Ring::publish`] and [`Ring::release`] make a whole
//! batch visible with one store.
//!
//! **Sleep.** The consumer says that it is going to sleep and looks once more ([`Ring::fall_asleep`]); the producer
//! publishes and looks whether the consumer said so ([`Ring::publish`]). A SeqCst fence stands between the store and the
//! load on both sides, so at least one of them sees the other's store: either the consumer stays awake, or the producer
//! rings its doorbell. The producer takes the flag down as it rings, so one sleep costs one ring at most. A ring that
//! comes late finds the consumer awake, which costs one look at an empty queue.
//!
//! `tests/ring_loom.rs` includes this file with the model checker's atomics; every ordering below is needed there.

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// One queue. `WORDS` is the length of an entry in 64-bit words.
#[derive(Clone, Copy)]
pub struct Ring<'a, const WORDS: usize> {
    head: &'a AtomicU32,
    tail: &'a AtomicU32,
    sleeping: &'a AtomicU32,
    cells: &'a [[AtomicU64; WORDS]],
}

/// Where one side stands. Private to that side.
#[derive(Debug, Default)]
pub struct Cursor {
    /// Entries that this side has pushed, or popped.
    mine: u32,
    /// The peer's counter, as it was last seen.
    theirs: u32,
}

impl Cursor {
    /// For a ring whose two counters both begin at `counter`.
    #[must_use]
    pub fn starting_at(counter: u32) -> Cursor {
        Cursor {
            mine: counter,
            theirs: counter,
        }
    }
}

/// Why nothing was pushed or popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Every cell holds an entry that the consumer has not given back.
    Full,
    /// The peer published a counter that cannot be: it is broken, or hostile.
    Broken,
}

impl<const WORDS: usize> std::fmt::Debug for Ring<'_, WORDS> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} entries of {WORDS} words)", self.cells.len())
    }
}

impl<'a, const WORDS: usize> Ring<'a, WORDS> {
    /// A ring over these words, all zero at first. `None` unless the number of cells is a power of two up to 2^31.
    #[must_use]
    pub fn new(
        head: &'a AtomicU32,
        tail: &'a AtomicU32,
        sleeping: &'a AtomicU32,
        cells: &'a [[AtomicU64; WORDS]],
    ) -> Option<Ring<'a, WORDS>> {
        let fits = cells.len().is_power_of_two() && cells.len() <= 1 << 31;
        fits.then_some(Ring {
            head,
            tail,
            sleeping,
            cells,
        })
    }

    /// Entries that it holds at most.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.cells.len() as u32
    }

    fn cell(&self, counter: u32) -> &'a [AtomicU64; WORDS] {
        &self.cells[(counter & (self.capacity() - 1)) as usize]
    }

    /// Producer: writes an entry behind the last one. Nobody sees it before [`Ring::publish`].
    ///
    /// # Errors
    /// `Full`: the entry was not taken. `Broken`: the consumer's counter cannot be.
    pub fn push(&self, at: &mut Cursor, entry: &[u64; WORDS]) -> Result<(), Refused> {
        if at.mine.wrapping_sub(at.theirs) >= self.capacity() {
            // Other side: the consumer's `release`. It has copied these entries out before we overwrite them.
            let head = self.head.load(Ordering::Acquire);
            let used = at.mine.wrapping_sub(head);
            if used > self.capacity() {
                return Err(Refused::Broken);
            }
            at.theirs = head;
            if used == self.capacity() {
                return Err(Refused::Full);
            }
        }
        for (word, value) in self.cell(at.mine).iter().zip(entry) {
            // Other side: the consumer's `pop`, ordered behind this by the tail.
            word.store(*value, Ordering::Relaxed);
        }
        at.mine = at.mine.wrapping_add(1);
        Ok(())
    }

    /// Producer: entries that lie unread in the ring, or a few more.
    #[must_use]
    pub fn unread(&self, at: &Cursor) -> u32 {
        // Relaxed: nothing is overwritten for it; `push` looks by itself.
        at.mine.wrapping_sub(self.head.load(Ordering::Relaxed))
    }

    /// Producer: shows the consumer all that was pushed. True when the consumer sleeps: ring its doorbell, once.
    #[must_use = "a consumer that sleeps must be woken"]
    pub fn publish(&self, at: &Cursor) -> bool {
        // Other side: the consumer's `pop`. Whoever sees the new tail sees the entries before it.
        self.tail.store(at.mine, Ordering::Release);
        // Other side: the fence in `fall_asleep`. Either the consumer's second look sees the tail, or we see its flag.
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) != 0 && self.sleeping.swap(0, Ordering::Relaxed) != 0
    }

    /// Consumer: copies the next entry out. Its cell is the consumer's until [`Ring::release`].
    ///
    /// # Errors
    /// `Broken`: the producer's counter cannot be.
    pub fn pop(&self, at: &mut Cursor) -> Result<Option<[u64; WORDS]>, Refused> {
        if at.mine == at.theirs {
            // Other side: the producer's `publish`. We see the entries before the tail that we see.
            let tail = self.tail.load(Ordering::Acquire);
            if tail.wrapping_sub(at.mine) > self.capacity() {
                return Err(Refused::Broken);
            }
            at.theirs = tail;
            if tail == at.mine {
                return Ok(None);
            }
        }
        let cell = self.cell(at.mine);
        // The one copy: all checks look at it, never at the shared words again.
        let entry = std::array::from_fn(|word| cell[word].load(Ordering::Relaxed));
        at.mine = at.mine.wrapping_add(1);
        Ok(Some(entry))
    }

    /// Consumer: gives the cells of all that was popped back to the producer.
    pub fn release(&self, at: &Cursor) {
        // Other side: the producer's `push`. It overwrites a cell only after our copy out of it.
        self.head.store(at.mine, Ordering::Release);
    }

    /// Consumer: says that it is about to sleep. False when there is something to pop: then it is awake again.
    #[must_use = "false forbids to sleep"]
    pub fn fall_asleep(&self, at: &Cursor) -> bool {
        // Other side: `publish`, which looks for this flag. All that write it do so by swaps, so that there is one order of
        // all its values: a swap that took down an earlier 1 cannot take down this one.
        self.sleeping.swap(1, Ordering::Relaxed);
        // Other side: the fence in `publish`.
        fence(Ordering::SeqCst);
        // Relaxed: only whether there is anything; `pop` loads it again.
        if self.tail.load(Ordering::Relaxed) == at.mine {
            return true;
        }
        self.wake_up();
        false
    }

    /// Consumer: it is awake, and need not be rung for.
    pub fn wake_up(&self) {
        // A producer that has just seen the flag rings once for nothing; the next sleep ends early.
        self.sleeping.swap(0, Ordering::Relaxed);
    }
}
