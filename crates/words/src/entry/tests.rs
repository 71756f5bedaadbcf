//! What goes in comes out, and whatever bytes come in, decoding gives an entry that is inside of its limits or says no.

use super::*;
use crate::errno::Errno;
use crate::io_error::{Argument, IoError};

const LIMITS: Limits = Limits {
    places: 64,
    arena_bytes: 1 << 20,
};

fn read() -> Submission {
    Submission {
        handle: HandleWords {
            index: 7,
            generation: 9,
        },
        offset: u64::MAX,
        place: Place::Arena {
            at: (1 << 20) - 4096,
            len: 4096,
        },
        mode: Mode::Uncached,
        durability: Durability::Full,
        deadline: Some(Time(5)),
        ..Submission::new(
            Op::Read,
            Tag {
                index: 63,
                generation: 3,
            },
        )
    }
}

fn write_of(read: Submission) -> Submission {
    Submission { op: Op::Write, ..read }
}

/// A small generator of our own: the seed is the replay.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_submission_comes_out_as_it_went_in() {
    let raw = read().encode();
    assert_eq!(Submission::decode(&raw, &LIMITS), Ok(read()));
    // The byte table, not only the two functions' agreement.
    let bytes: Vec<u8> = raw.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(bytes[..8], [1, 3, 2, 1, 0, 0x10, 0, 0]);
    assert_eq!(bytes[8..24], [63, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
    assert_eq!(bytes[32..40], [0, 0xf0, 0xf, 0, 0, 0, 0, 0]);
    assert_eq!(
        bytes[40..],
        [5, 0, 0, 0, 0, 0, 0, 0]
            .iter()
            .chain(&[0; 16])
            .copied()
            .collect::<Vec<u8>>()
    );
}

#[test]
fn a_range_of_any_length_comes_out_as_it_went_in() {
    let tag = Tag::default();
    for (op, number) in [
        (
            SegmentOp::Discard {
                offset: 4096,
                len: 3 << 40,
            },
            7,
        ),
        (
            SegmentOp::Zero {
                offset: u64::MAX,
                len: u64::MAX,
            },
            8,
        ),
        (SegmentOp::Truncate { len: 5 << 40 }, 10),
        (SegmentOp::Allocate { offset: 7, len: 1 }, 11),
    ] {
        let entry = Submission::of(op, tag);
        let raw = entry.encode();
        let (offset, len) = match op {
            SegmentOp::Truncate { len } => (0, len),
            op => (op.offset().unwrap(), op.bytes(0)),
        };
        assert_eq!((raw[0] & 0xff, raw[3], raw[6], raw[7]), (number, offset, len, 0));
        let decoded = Submission::decode(&raw, &LIMITS).unwrap();
        assert_eq!((decoded, decoded.segment_op()), (entry, Some(op)));
    }
    for op in [
        SegmentOp::Read { offset: 9 },
        SegmentOp::Write { offset: 9 },
        SegmentOp::Sync,
        SegmentOp::Fence,
    ] {
        let entry = Submission::of(op, tag);
        assert_eq!((entry.segment_op(), entry.len), (Some(op), 0));
    }
    assert_eq!(Submission::new(Op::Cancel, tag).segment_op(), None);
}

#[test]
fn what_no_client_sends_is_told() {
    let broken = |change: fn(&mut RawSubmission)| {
        let mut raw = read().encode();
        change(&mut raw);
        Submission::decode(&raw, &LIMITS)
    };
    assert_eq!(broken(|raw| raw[0] &= !0xff), Err(Violation::Unknown(0, 0)));
    assert_eq!(broken(|raw| raw[0] |= 0xff), Err(Violation::Unknown(0, 255)));
    assert_eq!(broken(|raw| raw[0] |= 0xff00), Err(Violation::Unknown(1, 255)));
    assert_eq!(broken(|raw| raw[0] |= 0xff_0000), Err(Violation::Unknown(2, 255)));
    assert_eq!(broken(|raw| raw[0] |= 0xff00_0000), Err(Violation::Unknown(3, 255)));
    assert_eq!(broken(|raw| raw[1] += 1), Err(Violation::Tag(64)));
    assert_eq!(broken(|raw| raw[4] += 1), Err(Violation::OutsideArena));
    assert_eq!(broken(|raw| raw[4] = u64::MAX), Err(Violation::OutsideArena));
    assert_eq!(broken(|raw| raw[6] = 1), Err(Violation::Reserved));
    assert_eq!(broken(|raw| raw[7] = 1 << 63), Err(Violation::Reserved));
    // The length of a range is of those that name one.
    assert_eq!(broken(|raw| raw[0] = raw[0] & !0xff | 2), Ok(write_of(read())));
    assert_eq!(
        broken(|raw| (raw[0], raw[6]) = (raw[0] & !0xff | 2, 1)),
        Err(Violation::Reserved)
    );
    // Without memory there is neither a length nor a place for it.
    assert_eq!(broken(|raw| raw[0] &= !0xff00_0000), Err(Violation::Reserved));
}

#[test]
fn what_an_operation_does_not_use_is_zero() {
    // Bytes: operation, mode, durability, place, length, tag, handle, offset, arena offset, deadline, length of the range.
    let uses = |op: Op, byte: usize| match op {
        Op::Discard | Op::Zero | Op::Allocate => byte < 56,
        Op::Truncate => byte < 24 || (32..56).contains(&byte),
        Op::Read | Op::Write => byte < 48,
        Op::Sync | Op::Fence => byte < 24 || (32..48).contains(&byte),
        Op::Cancel | Op::Control => (8..16).contains(&byte) || byte == 0,
        Op::CloseHandle => (16..24).contains(&byte) || byte == 0,
    };
    let all = [
        Op::Read,
        Op::Write,
        Op::Sync,
        Op::Cancel,
        Op::CloseHandle,
        Op::Control,
        Op::Discard,
        Op::Zero,
        Op::Fence,
        Op::Truncate,
        Op::Allocate,
    ];
    for op in all {
        for byte in 1..64 {
            let mut raw = Submission::new(op, Tag::default()).encode();
            raw[byte / 8] |= 1 << (byte % 8 * 8);
            let refused = Submission::decode(&raw, &LIMITS).is_err();
            assert!(refused || uses(op, byte), "{op:?}, byte {byte}");
        }
    }
}

#[test]
fn whatever_bytes_come_in_an_entry_is_inside_of_its_limits() {
    let mut seed = 1;
    let mut accepted = 0;
    for round in 0..200_000_u32 {
        let mut raw = read().encode();
        for word in &mut raw {
            match random(&mut seed) % 8 {
                0 => *word = random(&mut seed),
                1 => *word ^= 1 << (random(&mut seed) % 64),
                2 => *word = u64::MAX - random(&mut seed) % 4,
                _ => {}
            }
        }
        let Ok(entry) = Submission::decode(&raw, &LIMITS) else {
            continue;
        };
        accepted += 1;
        assert!(entry.tag.index < LIMITS.places, "round {round}");
        if let Place::Arena { at, len } = entry.place {
            assert!(at.saturating_add(u64::from(len)) <= LIMITS.arena_bytes, "round {round}");
        }
        assert_eq!(entry.encode(), raw, "nothing is left out, round {round}");
    }
    assert!(accepted > 1000);
}

#[test]
fn a_completion_comes_out_as_it_went_in() {
    let misaligned = IoError::Misaligned {
        argument: Argument::Memory,
        value: u64::MAX - 1,
        need: 512,
    };
    let unsupported = IoError::Unsupported {
        operation: "sync",
        backend: "uring",
    };
    let results = [
        Ok(u32::MAX),
        Err(Failure::Io(IoError::System(Errno::EIO))),
        Err(Failure::Io(misaligned)),
        Err(Failure::Io(unsupported)),
        Err(Failure::Io(IoError::NoDescription { mode: "uncached" })),
        Err(Failure::Io(IoError::ReadOnlyMemory)),
        Err(Failure::Io(IoError::Poisoned(Errno::EIO))),
        Err(Failure::Io(IoError::Indeterminate)),
        Err(Failure::Io(IoError::Cancelled)),
        Err(Failure::Io(IoError::Full)),
        Err(Failure::Beyond { size: 1 << 40 }),
        Err(Failure::ReadOnly),
        Err(Failure::HasLog),
        Err(Failure::Stale),
        Err(Failure::NotYet(1)),
        Err(Failure::Ending),
        Err(Failure::NoCache),
        Err(Failure::Cache { word: 0, with: 5 }),
        Err(Failure::Cache {
            word: u32::MAX,
            with: u64::MAX,
        }),
    ];
    for result in results {
        for took in [Caching::Direct, Caching::Kernel, Caching::Uncached] {
            let completion = Completion {
                tag: Tag {
                    index: 1,
                    generation: 2,
                },
                result,
                bytes_done: 3 << 20,
                took,
                iterations: 513,
            };
            assert_eq!(Completion::decode(&completion.encode()), Some(completion));
        }
    }
}

#[test]
fn a_completion_that_makes_no_sense_is_none() {
    let raw = |code: u64, took: u64, second: u64| [0, code << 32 | took << 40, second << 32, 0];
    assert!(Completion::decode(&raw(19, 0, 0)).is_none());
    assert!(Completion::decode(&raw(255, 0, 0)).is_none());
    assert!(Completion::decode(&raw(0, 1, 0)).is_none());
    assert!(Completion::decode(&raw(2, 0, 3)).is_none());
    assert!(Completion::decode(&raw(0, 0, 0)).is_some());
}
