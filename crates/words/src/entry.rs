//! The entries of both rings, byte by byte.
//!
//! All words are 64 bits, little-endian. A submission is 64 bytes, one cache line:
//!
//! | byte | what | |
//! |---|---|---|
//! | 0 | operation | 1 read, 2 write, 3 sync, 4 cancel, 5 close handle, 6 control, 7 discard, 8 zero, 9 fence, 10 truncate, 11 allocate |
//! | 1 | mode | 0 direct, 1 cached, 2 kernel, 3 uncached |
//! | 2 | durability | 0 none, 1 data, 2 full |
//! | 3 | place | 0 no memory, 1 the arena, 2 the exchange only (lists, shared memory; within one process) |
//! | 4..8 | length of the memory in bytes | |
//! | 8..12 | tag: index | the client's place for the request; below the number of places |
//! | 12..16 | tag: generation | handed back untouched |
//! | 16..20 | handle: index | |
//! | 20..24 | handle: generation | |
//! | 24..32 | offset in the segment, in bytes | |
//! | 32..40 | offset in the arena, in bytes | with place 1; else 0 |
//! | 40..48 | deadline | engine time in nanoseconds; 0 for none |
//! | 48..56 | length in bytes | of the range of a discard, a zero and an allocate, of the file that a truncate leaves; else 0 |
//! | 56..64 | zero | |
//!
//! Discard, zero and allocate use all of it; reads and writes all but the last length; a truncate all but the offset in the segment; a
//! sync and a fence neither of the two; cancel and control the tag; close handle the handle. What an operation does not use is zero, else the entry is a violation.
//!
//! A completion is 32 bytes:
//!
//! | byte | what | |
//! |---|---|---|
//! | 0..4 | tag: index | |
//! | 4..8 | tag: generation | |
//! | 8..12 | bytes transferred | also when an error ended it half-way |
//! | 12 | code | 0 done, else which [`Failure`] |
//! | 13 | mode in which it was carried | 0 direct, 2 kernel, 3 uncached |
//! | 14..16 | iterations | |
//! | 16..20 | the result's value, or a small detail of the failure | |
//! | 20..24 | a second small detail | |
//! | 24..32 | a large detail | |
//!
//! The service copies an entry once out of the ring and decodes the copy; a [`Violation`] is what no correct client
//! sends, and ends that connection only. What a correct client's user can get wrong (a stale handle, a range beyond the
//! end, a misaligned offset) is no violation: it becomes the request's outcome.

use crate::failure::{Failure, decode_failure, encode_failure};
use crate::handle::{Handle, Ticket};
use crate::mode::{Caching, Durability, Mode};
use crate::op::SegmentOp;
use crate::time::Time;

/// Length of a submission in words.
pub const SUBMISSION_WORDS: usize = 8;
/// Length of a completion in words.
pub const COMPLETION_WORDS: usize = 4;

/// A submission as it lies in the ring.
pub type RawSubmission = [u64; SUBMISSION_WORDS];
/// A completion as it lies in the ring.
pub type RawCompletion = [u64; COMPLETION_WORDS];

const _: () = {
    assert!(size_of::<RawSubmission>() == 64);
    assert!(size_of::<RawCompletion>() == 32);
    assert!(Op::Control as u8 == 6 && Op::Fence as u8 == 9 && Op::Allocate as u8 == 11 && Mode::Uncached as u8 == 3);
};

/// What a submission asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Fill the memory from the offset.
    Read = 1,
    /// Write the memory at the offset.
    Write = 2,
    /// Make completed writes durable.
    Sync = 3,
    /// End the request with this tag early, if it can be. Has no completion of its own.
    Cancel = 4,
    /// Close the handle. Has no completion.
    CloseHandle = 5,
    /// What waits in the exchange: create, open, list, close.
    Control = 6,
    /// Give the space of a range back.
    Discard = 7,
    /// Make a range read as zeros.
    Zero = 8,
    /// A sync behind the writes before it.
    Fence = 9,
    /// Make a plain file so long.
    Truncate = 10,
    /// Set space aside for a range of a plain file.
    Allocate = 11,
}

/// The client's name for a request: its place in the exchange, and how often that was used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Which place.
    pub index: u32,
    /// Which use of it.
    pub generation: u32,
}

/// The service's name for an opened segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleWords {
    /// Its place in the service's table.
    pub index: u32,
    /// Which use of that place.
    pub generation: u32,
}

impl From<Handle> for HandleWords {
    fn from(handle: Handle) -> HandleWords {
        let (_, index, generation) = handle.parts();
        HandleWords { index, generation }
    }
}

/// A name as a peer says it: nobody's, until it was found in a table.
impl From<HandleWords> for Handle {
    fn from(words: HandleWords) -> Handle {
        Handle::from_parts(0, words.index, words.generation)
    }
}

impl From<Ticket> for Tag {
    fn from(ticket: Ticket) -> Tag {
        let (index, generation) = ticket.parts();
        Tag { index, generation }
    }
}

impl From<Tag> for Ticket {
    fn from(tag: Tag) -> Ticket {
        Ticket::from_parts(tag.index, tag.generation)
    }
}

/// Where the request's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is none.
    Nowhere,
    /// A run of the arena that both sides share.
    Arena {
        /// First byte in the arena.
        at: u64,
        /// Bytes.
        len: u32,
    },
    /// Only in the exchange, so only within one process.
    Exchange {
        /// Bytes.
        len: u32,
    },
}

/// One submission, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// What.
    pub op: Op,
    /// The client's name for it.
    pub tag: Tag,
    /// On what.
    pub handle: HandleWords,
    /// First byte in the segment.
    pub offset: u64,
    /// Bytes of the range, of an operation that names it itself; of a truncation those of the file.
    pub len: u64,
    /// With which memory.
    pub place: Place,
    /// Through which cache.
    pub mode: Mode,
    /// How safe when it completes.
    pub durability: Durability,
    /// When to give up.
    pub deadline: Option<Time>,
}

/// What no correct client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An operation, mode, durability or place that does not exist: (byte, value).
    Unknown(u8, u8),
    /// A word that must be zero is not.
    Reserved,
    /// The tag names no place.
    Tag(u32),
    /// The memory is not inside of the arena.
    OutsideArena,
    /// The exchange does not hold what the entry names.
    Exchange(u32),
    /// The tag is that of a request in flight.
    InUse(u32),
    /// A ring's counter cannot be, or completions are not taken.
    Ring,
}

/// What an entry is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Places in the exchange.
    pub places: u32,
    /// Size of the arena in bytes.
    pub arena_bytes: u64,
}

impl Submission {
    /// An entry of this operation, with everything else zero.
    #[must_use]
    pub fn new(op: Op, tag: Tag) -> Submission {
        Submission {
            op,
            tag,
            handle: HandleWords::default(),
            offset: 0,
            len: 0,
            place: Place::Nowhere,
            mode: Mode::Direct,
            durability: Durability::None,
            deadline: None,
        }
    }

    /// An entry for this operation on a handle, with everything else zero.
    #[must_use]
    pub fn of(op: SegmentOp, tag: Tag) -> Submission {
        let kind = match op {
            SegmentOp::Read { .. } => Op::Read,
            SegmentOp::Write { .. } => Op::Write,
            SegmentOp::Sync => Op::Sync,
            SegmentOp::Fence => Op::Fence,
            SegmentOp::Discard { .. } => Op::Discard,
            SegmentOp::Zero { .. } => Op::Zero,
            SegmentOp::Truncate { .. } => Op::Truncate,
            SegmentOp::Allocate { .. } => Op::Allocate,
        };
        let len = match op {
            SegmentOp::Truncate { len } => len,
            op => op.bytes(0),
        };
        Submission {
            offset: op.offset().unwrap_or(0),
            len,
            ..Submission::new(kind, tag)
        }
    }

    /// The operation on a handle that it asks for; `None` when it asks for something else.
    #[must_use]
    pub fn segment_op(&self) -> Option<SegmentOp> {
        let (offset, len) = (self.offset, self.len);
        match self.op {
            Op::Read => Some(SegmentOp::Read { offset }),
            Op::Write => Some(SegmentOp::Write { offset }),
            Op::Sync => Some(SegmentOp::Sync),
            Op::Fence => Some(SegmentOp::Fence),
            Op::Discard => Some(SegmentOp::Discard { offset, len }),
            Op::Zero => Some(SegmentOp::Zero { offset, len }),
            Op::Truncate => Some(SegmentOp::Truncate { len }),
            Op::Allocate => Some(SegmentOp::Allocate { offset, len }),
            Op::Cancel | Op::CloseHandle | Op::Control => None,
        }
    }

    /// The words for the ring.
    #[must_use]
    pub fn encode(&self) -> RawSubmission {
        let (place, arena_at, len) = match self.place {
            Place::Nowhere => (0, 0, 0),
            Place::Arena { at, len } => (1, at, len),
            Place::Exchange { len } => (2, 0, len),
        };
        let durability = match self.durability {
            Durability::None => 0,
            Durability::Data => 1,
            Durability::Full => 2,
        };
        [
            bytes([self.op as u8, self.mode as u8, durability, place], len),
            pair(self.tag.index, self.tag.generation),
            pair(self.handle.index, self.handle.generation),
            self.offset,
            arena_at,
            self.deadline.map_or(0, |at| at.0.max(1)),
            self.len,
            0,
        ]
    }

    /// Checks a copy of an entry. Pure: the copy is all that it looks at.
    ///
    /// # Errors
    /// What no correct client sends.
    pub fn decode(raw: &RawSubmission, limits: &Limits) -> Result<Submission, Violation> {
        let ([op, mode, durability, place], len) = split_bytes(raw[0]);
        let op = match op {
            1 => Op::Read,
            2 => Op::Write,
            3 => Op::Sync,
            4 => Op::Cancel,
            5 => Op::CloseHandle,
            6 => Op::Control,
            7 => Op::Discard,
            8 => Op::Zero,
            9 => Op::Fence,
            10 => Op::Truncate,
            11 => Op::Allocate,
            other => return Err(Violation::Unknown(0, other)),
        };
        let mode = match mode {
            0 => Mode::Direct,
            1 => Mode::Cached,
            2 => Mode::Kernel,
            3 => Mode::Uncached,
            other => return Err(Violation::Unknown(1, other)),
        };
        let durability = match durability {
            0 => Durability::None,
            1 => Durability::Data,
            2 => Durability::Full,
            other => return Err(Violation::Unknown(2, other)),
        };
        let (index, generation) = split_pair(raw[1]);
        if index >= limits.places {
            return Err(Violation::Tag(index));
        }
        let place = match place {
            0 => Place::Nowhere,
            1 => in_arena(raw[4], len, limits)?,
            2 => Place::Exchange { len },
            other => return Err(Violation::Unknown(3, other)),
        };
        let (handle, handle_generation) = split_pair(raw[2]);
        let submission = Submission {
            op,
            tag: Tag { index, generation },
            handle: HandleWords {
                index: handle,
                generation: handle_generation,
            },
            offset: raw[3],
            len: raw[6],
            place,
            mode,
            durability,
            deadline: (raw[5] != 0).then_some(Time(raw[5])),
        };
        // What the operation does not use is zero, as are the words that nothing uses yet: so it can mean something later.
        if submission.used().encode() != *raw {
            return Err(Violation::Reserved);
        }
        Ok(submission)
    }

    /// The same with nothing but what its operation uses.
    fn used(&self) -> Submission {
        let bare = Submission::new(self.op, self.tag);
        match self.op {
            Op::Discard | Op::Zero | Op::Allocate => *self,
            Op::Truncate => Submission { offset: 0, ..*self },
            Op::Read | Op::Write => Submission { len: 0, ..*self },
            Op::Sync | Op::Fence => Submission {
                offset: 0,
                len: 0,
                ..*self
            },
            Op::Cancel | Op::Control => bare,
            Op::CloseHandle => Submission {
                tag: Tag::default(),
                handle: self.handle,
                ..bare
            },
        }
    }
}

fn in_arena(at: u64, len: u32, limits: &Limits) -> Result<Place, Violation> {
    let end = at.checked_add(u64::from(len)).ok_or(Violation::OutsideArena)?;
    if end > limits.arena_bytes {
        return Err(Violation::OutsideArena);
    }
    Ok(Place::Arena { at, len })
}

/// The end of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose.
    pub tag: Tag,
    /// The result.
    pub result: Result<u32, Failure>,
    /// Bytes that were transferred.
    pub bytes_done: u32,
    /// The cache that carried it.
    pub took: Caching,
    /// How many iterations it ran.
    pub iterations: u16,
}

impl Completion {
    /// The words for the ring.
    #[must_use]
    pub fn encode(&self) -> RawCompletion {
        let (code, small, second, large) = match self.result {
            Ok(value) => (0, value, 0, 0),
            Err(failure) => encode_failure(failure),
        };
        let took = match self.took {
            Caching::Direct => 0,
            Caching::Kernel => 2,
            Caching::Uncached => 3,
        };
        let [low, high] = self.iterations.to_le_bytes();
        [
            pair(self.tag.index, self.tag.generation),
            u64::from(self.bytes_done) | bytes([0; 4], u32::from_le_bytes([code, took, low, high])),
            pair(small, second),
            large,
        ]
    }

    /// Reads a copy of an entry. `None` when it cannot come from a correct service.
    #[must_use]
    pub fn decode(raw: &RawCompletion) -> Option<Completion> {
        let (index, generation) = split_pair(raw[0]);
        let (bytes_done, rest) = split_pair(raw[1]);
        let [code, took, low, high] = rest.to_le_bytes();
        let (small, second) = split_pair(raw[2]);
        let result = match code {
            0 => Ok(small),
            code => Err(decode_failure(code, small, second, raw[3])?),
        };
        let took = match took {
            0 => Caching::Direct,
            2 => Caching::Kernel,
            3 => Caching::Uncached,
            _ => return None,
        };
        Some(Completion {
            tag: Tag { index, generation },
            result,
            bytes_done,
            took,
            iterations: u16::from_le_bytes([low, high]),
        })
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn split_pair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn bytes(low: [u8; 4], high: u32) -> u64 {
    pair(u32::from_le_bytes(low), high)
}

fn split_bytes(word: u64) -> ([u8; 4], u32) {
    let (low, high) = split_pair(word);
    (low.to_le_bytes(), high)
}

#[cfg(test)]
mod tests;
