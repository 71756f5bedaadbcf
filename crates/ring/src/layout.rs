//! Where rings and arena lie in a session's memory. The service decides, and tells its client, which checks it.
//!
//! ```text
//! 0      128    256    ...   768                                   arena_at              bytes
//! | head | tail | sleeping ... | submissions' cells | completions' cells | (a page's rest) | arena |
//!   a word of 32 bits in each    words of 64 bits                                            bytes
//! ```
//!
//! All words of 32 bits lie before all else: no byte is used in two sizes ([`baio_memory::Region`]).

use std::fmt;

use baio_words::entry::{COMPLETION_WORDS, SUBMISSION_WORDS};
use baio_words::session::{RingAt, Welcome};

/// Bytes that a word has for itself, so that the sides do not take a cache line from each other without need.
const ALONE: u64 = 128;

/// What the arena begins at a multiple of, for direct I/O and for the page tables.
const PAGE: u64 = 4096;

/// Most requests of a session at a time.
pub const PLACES_MAX: u32 = 1 << 23;

/// Largest arena of a session, in bytes: what the length of one span can say, down to 256 KiB.
pub const ARENA_BYTES_MAX: u64 = (1 << 32) - (256 << 10);

const ENTRIES_MAX: u32 = 2 * PLACES_MAX;

/// Where all of it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The ring from the client to the service, of entries of [`SUBMISSION_WORDS`].
    pub submissions: RingAt,
    /// The other one, of entries of [`COMPLETION_WORDS`].
    pub completions: RingAt,
    /// The first byte of the arena.
    pub arena_at: u64,
    /// Its size.
    pub arena_bytes: u64,
    /// Size of it all.
    pub bytes: u64,
}

impl Layout {
    /// As a service tells it. Nothing is checked here: [`SessionMemory::map`](crate::SessionMemory::map) does that.
    #[must_use]
    pub fn told(welcome: &Welcome) -> Layout {
        Layout {
            submissions: welcome.submissions,
            completions: welcome.completions,
            arena_at: welcome.arena_at,
            arena_bytes: welcome.arena_bytes,
            bytes: welcome.memory_bytes,
        }
    }

    /// For so many requests at a time and so large an arena. `None` for no request, more than [`PLACES_MAX`] or an arena beyond
    /// [`ARENA_BYTES_MAX`].
    #[must_use]
    pub fn new(places: u32, arena_bytes: u64) -> Option<Layout> {
        if places == 0 || places > PLACES_MAX || arena_bytes > ARENA_BYTES_MAX {
            return None;
        }
        let ring = |first: u64, cells: u64, entries: u32| RingAt {
            head: first * ALONE,
            tail: (first + 1) * ALONE,
            sleeping: (first + 2) * ALONE,
            cells,
            entries,
        };
        let (sent, ended) = entries(places);
        let submissions = ring(0, 6 * ALONE, sent);
        let completions = ring(3, cells_end(&submissions, SUBMISSION_WORDS)?, ended);
        let arena_at = cells_end(&completions, COMPLETION_WORDS)?.checked_next_multiple_of(PAGE)?;
        Some(Layout {
            submissions,
            completions,
            arena_at,
            arena_bytes,
            bytes: arena_at.checked_add(arena_bytes)?.checked_next_multiple_of(PAGE)?,
        })
    }

    /// Is this a layout that memory of so many bytes can have? What a client asks before it believes one.
    ///
    /// # Errors
    /// The first part that is not where it can be.
    pub fn check(&self, region_bytes: u64) -> Result<(), Misplaced> {
        let bytes = self.bytes.min(region_bytes);
        if self.bytes > region_bytes {
            return Err(Misplaced::new("the end", self.bytes, "not behind the memory's own"));
        }
        for (what, ring) in self.rings() {
            if !ring.entries.is_power_of_two() || ring.entries > ENTRIES_MAX {
                let need = "a number of entries that is a power of two up to 2^24";
                return Err(Misplaced::new(what, ring.cells, need));
            }
        }
        if self.arena_bytes > ARENA_BYTES_MAX {
            return Err(Misplaced::new("the arena", self.arena_at, "less than 4 GiB long"));
        }
        let mut parts = self.parts();
        for part in &parts {
            if part.at % part.align != 0 {
                return Err(Misplaced::new(part.what, part.at, part.aligned));
            }
            if part.end().is_none_or(|end| end > bytes) {
                return Err(Misplaced::new(part.what, part.at, "inside of the memory"));
            }
        }
        // No part but an empty arena is of no bytes, and that one comes before whatever begins with it.
        parts.sort_by_key(|part| (part.at, part.len));
        for pair in parts.windows(2) {
            if pair[0].end().is_none_or(|end| end > pair[1].at) {
                return Err(Misplaced::new(pair[1].what, pair[1].at, "bytes of its own"));
            }
        }
        let words = self.words();
        match parts.iter().find(|part| part.align != WORD && part.at < words) {
            Some(part) => Err(Misplaced::new(part.what, part.at, "behind all counters and flags")),
            None => Ok(()),
        }
    }

    /// Bytes at the beginning that hold the words of 32 bits, in whole words of 64.
    #[must_use]
    pub fn words(&self) -> u64 {
        let words = self
            .rings()
            .map(|(_, ring)| ring.head.max(ring.tail).max(ring.sleeping));
        let last = words.into_iter().max().unwrap_or(0);
        last.checked_add(WORD)
            .and_then(|end| end.checked_next_multiple_of(CELL))
            .unwrap_or(u64::MAX)
    }

    /// Do requests of so many places always fit, and their completions?
    #[must_use]
    pub fn has_room_for(&self, places: u32) -> bool {
        let (sent, ended) = entries(places);
        places <= PLACES_MAX && self.submissions.entries >= sent && self.completions.entries >= ended
    }

    fn rings(&self) -> [(&'static str, RingAt); 2] {
        [
            ("the submission ring", self.submissions),
            ("the completion ring", self.completions),
        ]
    }

    fn parts(&self) -> [Part; 9] {
        let word = |what, at| Part {
            what,
            at,
            len: Some(WORD),
            align: WORD,
            aligned: "a multiple of 4",
        };
        let cells = |what, ring: RingAt, words| Part {
            what,
            at: ring.cells,
            len: cells_bytes(&ring, words),
            align: CELL,
            aligned: "a multiple of 8",
        };
        let (sent, ended) = (self.submissions, self.completions);
        [
            word("the submission ring's head", sent.head),
            word("the submission ring's tail", sent.tail),
            word("the submission ring's flag", sent.sleeping),
            word("the completion ring's head", ended.head),
            word("the completion ring's tail", ended.tail),
            word("the completion ring's flag", ended.sleeping),
            cells("the submission ring", sent, SUBMISSION_WORDS),
            cells("the completion ring", ended, COMPLETION_WORDS),
            Part {
                what: "the arena",
                at: self.arena_at,
                len: Some(self.arena_bytes),
                align: PAGE,
                aligned: "a multiple of 4096",
            },
        ]
    }
}

/// How many entries the two rings of so many places have. Twice as many submissions, so that there is room for cancellations.
pub(crate) fn entries(places: u32) -> (u32, u32) {
    let rounded = |entries: u32| entries.clamp(2, ENTRIES_MAX).next_power_of_two();
    (rounded(places.saturating_mul(2)), rounded(places))
}

const WORD: u64 = size_of::<u32>() as u64;
const CELL: u64 = size_of::<u64>() as u64;

/// Bytes of a ring's cells, each of so many words.
fn cells_bytes(ring: &RingAt, words: usize) -> Option<u64> {
    (words as u64 * CELL).checked_mul(u64::from(ring.entries))
}

fn cells_end(ring: &RingAt, words: usize) -> Option<u64> {
    ring.cells.checked_add(cells_bytes(ring, words)?)
}

/// Bytes with one use.
struct Part {
    what: &'static str,
    at: u64,
    /// `None`: too long to be said.
    len: Option<u64>,
    align: u64,
    aligned: &'static str,
}

impl Part {
    fn end(&self) -> Option<u64> {
        self.at.checked_add(self.len?)
    }
}

/// What is wrong with a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Which part.
    pub what: &'static str,
    /// Where it is said to be.
    pub at: u64,
    /// What it would have to be.
    pub need: &'static str,
}

impl Misplaced {
    fn new(what: &'static str, at: u64, need: &'static str) -> Misplaced {
        Misplaced { what, at, need }
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is at byte {}; needed: {}", self.what, self.at, self.need)
    }
}

impl std::error::Error for Misplaced {}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
