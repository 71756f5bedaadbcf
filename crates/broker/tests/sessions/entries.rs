//! Entries of any bytes. What the validator takes lies inside of the arena; what it takes ends once; what it does not take ends
//! the session.

use baio_words::Failure;
use baio_words::entry::{HandleWords, Limits, Op, Place, RawSubmission, Submission, Violation};
use proptest::prelude::*;

use crate::house::{House, Victim};
use crate::raw::{BLOCK, Client};
use crate::rings::goes_out;

const PLACES: u32 = 4;
const ARENA: u64 = 256 << 10;
const SEGMENT: u64 = 1 << 20;

/// Numbers at which something ends.
fn edges() -> impl Strategy<Value = u64> {
    let known = [
        0,
        1,
        511,
        512,
        4096,
        ARENA - 4096,
        ARENA,
        SEGMENT - 4096,
        SEGMENT,
        u64::from(u32::MAX),
        1 << 63,
        u64::MAX - 4095,
        u64::MAX,
    ];
    prop_oneof![4 => proptest::sample::select(known.to_vec()), 1 => any::<u64>()]
}

fn entry() -> impl Strategy<Value = RawSubmission> {
    let or = |max: u8, beyond: u8| prop_oneof![19 => 0..=max, 1 => Just(beyond)];
    let len = prop_oneof![3 => Just(4096), 1 => edges()];
    let arena_at = prop_oneof![3 => Just(0), 1 => edges()];
    let own_or = || prop_oneof![2 => Just(0), 1 => 0..=3_u32];
    let first = (or(11, 12), or(3, 4), or(2, 3), or(1, 2), len);
    let names = (0..PLACES, own_or(), own_or());
    let zero = prop_oneof![19 => Just(0), 1 => any::<u64>()];
    let deadline = prop_oneof![Just(0), edges()];
    let rest = (
        edges(),
        arena_at,
        deadline,
        edges(),
        zero,
        proptest::bool::weighted(0.9),
    );
    (first, names, rest).prop_map(|((op, mode, durability, place, len), names, rest)| {
        let (index, handle, generation) = names;
        let (offset, arena_at, deadline, range, zero, is_neat) = rest;
        let low = u32::from_le_bytes([op, mode, durability, place]);
        let mut raw = [
            u64::from(low) | len << 32,
            u64::from(index) | 7 << 32,
            u64::from(handle) | u64::from(generation) << 32,
            offset,
            arena_at,
            deadline,
            range,
            zero,
        ];
        if is_neat {
            neaten(&mut raw);
        }
        raw
    })
}

/// Takes out what the operation does not use, so that most of these are taken.
fn neaten(raw: &mut RawSubmission) {
    let op = raw[0] as u8;
    raw[7] = 0;
    if raw[0] >> 24 & 0xff == 0 {
        (raw[0], raw[4]) = (raw[0] & 0xff_ffff, 0);
    }
    match op {
        1 | 2 => raw[6] = 0,
        3 | 9 => (raw[3], raw[6]) = (0, 0),
        4 => *raw = [4, raw[1], 0, 0, 0, 0, 0, 0],
        5 => *raw = [5, 0, raw[2], 0, 0, 0, 0, 0],
        10 => raw[3] = 0,
        _ => {}
    }
}

fn any_entry() -> impl Strategy<Value = RawSubmission> {
    prop_oneof![3 => entry(), 1 => any::<RawSubmission>()]
}

/// As the page says it, in words of its own: a table of what each operation uses.
fn is_taken(raw: &RawSubmission) -> bool {
    let [op, mode, durability, place] = (raw[0] as u32).to_le_bytes();
    let len = raw[0] >> 32;
    let known = matches!(op, 1..=5 | 7..=11) && mode <= 3 && durability <= 2 && place <= 1;
    let in_arena = match place {
        1 => u128::from(raw[4]) + u128::from(len) <= u128::from(ARENA),
        _ => len == 0 && raw[4] == 0,
    };
    let is_bare = raw[0] == u64::from(op) && raw[3..].iter().all(|word| *word == 0);
    let uses = match op {
        1 | 2 => raw[6] == 0,
        3 | 9 => raw[3] == 0 && raw[6] == 0,
        4 => is_bare && raw[2] == 0,
        5 => is_bare && raw[1] == 0,
        10 => raw[3] == 0,
        _ => true,
    };
    known && in_arena && uses && raw[7] == 0 && (raw[1] as u32) < PLACES
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The validator over all that it can be given, against the page.
    #[test]
    fn what_is_taken_lies_inside_of_the_arena(raw in any_entry(), arena_bytes in edges(), places in 0..9_u32) {
        let limits = Limits { places, arena_bytes };
        if let Ok(taken) = Submission::decode(&raw, &limits) {
            prop_assert!(taken.tag.index < places);
            prop_assert_eq!(taken.encode(), raw, "nothing of it is left unread");
            if let Place::Arena { at, len } = taken.place {
                prop_assert!(u128::from(at) + u128::from(len) <= u128::from(arena_bytes));
            }
        }
        let limits = Limits { places: PLACES, arena_bytes: ARENA };
        let taken = Submission::decode(&raw, &limits).is_ok_and(|taken| {
            taken.op != Op::Control && !matches!(taken.place, Place::Exchange { .. })
        });
        prop_assert_eq!(taken, is_taken(&raw));
    }
}

/// A client with one segment, under the only handle that it has: index 0, generation 0.
fn offender(house: &House) -> Client {
    let hello = baio_words::session::Hello {
        places: PLACES,
        arena_bytes: ARENA,
        ..crate::raw::hello()
    };
    let mut client = house.wire().greet(&hello).unwrap();
    let handle = client.made_once("its own", SEGMENT);
    assert_eq!(handle, HandleWords::default());
    client
}

#[test]
fn any_entry_ends_once_or_ends_its_session() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = Some(offender(&house));
    let (mut out, mut ended) = (0, 0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 3_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let client = std::cell::RefCell::new(&mut client);
    let counts = std::cell::RefCell::new((&mut out, &mut ended));
    let told = runner.run(&any_entry(), |raw| {
        let mut place = client.borrow_mut();
        let mut counts = counts.borrow_mut();
        let mut one = place.take().unwrap_or_else(|| offender(&house));
        one.submit_raw(&raw);
        if !is_taken(&raw) {
            one.goes_out("what is not taken");
            *counts.0 += 1;
            return Ok(());
        }
        match raw[0] as u8 {
            4 => {}                            // It has no completion.
            5 if raw[2] == 0 => return Ok(()), // Its only handle: another client comes.
            5 => {}
            _ => {
                let completion = one.next().expect("what is taken ends");
                let tag = completion.tag;
                prop_assert_eq!(u64::from(tag.index) | u64::from(tag.generation) << 32, raw[1]);
                if raw[2] != 0 {
                    prop_assert!(
                        completion.result.is_err() && completion.bytes_done == 0,
                        "a handle of nobody"
                    );
                }
                *counts.1 += 1;
            }
        }
        **place = Some(one);
        Ok(())
    });
    told.unwrap();
    assert!(
        out > 100 && ended > 100,
        "{out} and {ended}: these entries test nothing"
    );
    victim.goes_on();
    drop(client.into_inner().take());
    victim.is_left_with(1);
    assert_eq!(victim.row().violations, out);
    house.ends();
}

#[test]
fn what_is_for_one_process_ends_the_session() {
    goes_out("a control entry", 4, |client, _| {
        let tag = client.tag(0);
        client.submit(&Submission::new(Op::Control, tag));
    });
    goes_out("memory in the exchange", 4, |client, handle| {
        let entry = Submission {
            place: Place::Exchange { len: 4096 },
            ..client.entry(Op::Read, 0, handle, 0)
        };
        client.submit(&entry);
    });
}

#[test]
fn memory_outside_of_the_arena_ends_the_session() {
    for (at, len) in [
        (ARENA, 1),
        (ARENA - 4095, 4096),
        (0, u32::MAX),
        (u64::MAX, 1),
        (u64::MAX - 4095, 4096),
        (u64::MAX, u32::MAX),
    ] {
        let limits = Limits {
            places: 1,
            arena_bytes: ARENA,
        };
        let entry = Submission {
            place: Place::Arena { at, len },
            ..Submission::new(Op::Read, baio_words::entry::Tag::default())
        };
        let verdict = Submission::decode(&entry.encode(), &limits);
        assert_eq!(verdict, Err(Violation::OutsideArena), "{at} {len}");
        goes_out("outside of the arena", 1, |client, handle| {
            let at = if at < 1 << 40 {
                at - ARENA.min(at) + client.welcome.arena_bytes
            } else {
                at
            };
            client.submit(&Submission {
                handle,
                place: Place::Arena { at, len },
                ..Submission::new(Op::Write, entry.tag)
            });
        });
    }
}

#[test]
fn sums_that_overflow_are_outcomes() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.narrow(4);
    let handle = client.made("its own", SEGMENT);
    let ends = [0, 4096, SEGMENT, 1 << 63, u64::MAX - 4095, u64::MAX];
    for op in [Op::Read, Op::Write, Op::Discard, Op::Zero, Op::Allocate, Op::Truncate] {
        for offset in ends {
            for len in ends {
                let takes_range = matches!(op, Op::Discard | Op::Zero | Op::Allocate | Op::Truncate);
                let entry = Submission {
                    offset: if op == Op::Truncate { 0 } else { offset },
                    len: if takes_range { len } else { 0 },
                    deadline: None,
                    ..client.entry(op, 0, handle, 0)
                };
                let result = client.run(&entry).result;
                let fits = match takes_range {
                    true => u128::from(offset) + u128::from(len) <= u128::from(SEGMENT),
                    false => offset < SEGMENT,
                };
                if !fits && op != Op::Read {
                    assert!(result.is_err(), "{op:?} {offset} {len}: {result:?}");
                }
                if op == Op::Read && offset >= SEGMENT {
                    assert_ne!(result, Ok(BLOCK));
                }
            }
        }
    }
    victim.goes_on();
    house.ends();
}

#[test]
fn any_deadline_is_one() {
    let house = House::new();
    let mut client = house.narrow(4);
    let handle = client.made("its own", SEGMENT);
    for deadline in [1, 1 << 32, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
        let entry = Submission {
            deadline: Some(baio_words::Time(deadline)),
            ..client.entry(Op::Read, 0, handle, 0)
        };
        let ended = client.run(&entry);
        let is_past = deadline <= 1 << 32;
        // One that has passed may still find it done.
        match ended.result {
            Ok(bytes) => assert_eq!(bytes, BLOCK),
            Err(failure) => assert!(is_past && failure != Failure::Stale, "{failure:?}"),
        }
    }
    house.ends();
}
