//! Two users on one volume whose blocks go from one to the other all the time. Neither learns anything of the other: no name, no size, no
//! handle, no byte. Needs root, to be several users. `BAIO_BROKER_ROUNDS=N` chooses how often blocks change hands.

use baio_words::OperationName;
use baio_words::entry::{HandleWords, Op, Place, Submission};
use baio_words::session::{Answer, Question};
use baio_words::{Access, Durability, Failure, Mode, ResizeOptions, Zeroing};

use crate::house::{House, STRANGER, is_root, opens};
use crate::raw::{BLOCK, Client, create};

const USERS: [u32; 2] = [STRANGER, STRANGER + 1];
const ROUNDS: u64 = 200;
/// What is left free of the volume: blocks that one gives back the other gets.
const FREE_BLOCKS: u64 = 16;
/// Blocks of the largest segment. Two of them are never beside each other: whoever has one has blocks that the other had in its own.
const LARGEST: u64 = 12;

/// What a user writes.
fn secret(uid: u32) -> u8 {
    0x80 | uid as u8
}

/// Runs a request of so many blocks from or to the beginning of the arena.
fn moves(client: &mut Client, op: Op, handle: HandleWords, blocks: u64, mode: Mode, durability: Durability) {
    let len = (blocks * u64::from(BLOCK)) as u32;
    let entry = Submission {
        place: Place::Arena { at: 0, len },
        mode,
        durability,
        ..client.entry(op, 0, handle, 0)
    };
    assert_eq!(client.run(&entry).result, Ok(len), "{op:?}");
}

fn arena(client: &Client, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; (blocks * u64::from(BLOCK)) as usize];
    client.memory.arena().unwrap().copy_out(&mut bytes);
    bytes
}

fn fill(client: &Client, blocks: u64, byte: u8) {
    let bytes = vec![byte; (blocks * u64::from(BLOCK)) as usize];
    client.memory.arena().unwrap().copy_in(&bytes);
}

fn sized(client: &Client, name: &str, blocks: u64, is_lazy: bool) -> Question {
    let mut question = create(client.uid(), name, blocks * u64::from(BLOCK));
    if let Question::Create { options, .. } = &mut question {
        options.zero = if is_lazy { Zeroing::Lazy } else { Zeroing::Written };
    }
    question
}

fn resize(client: &mut Client, name: &str, blocks: u64) {
    let question = Question::Resize {
        operation: OperationName::NONE,
        owner_uid: client.uid(),
        name: name.to_owned(),
        options: ResizeOptions::to_size(blocks * u64::from(BLOCK)),
    };
    let answer = client.ask(&question);
    assert!(matches!(answer, Answer::Segment { .. }), "{answer:?}");
}

fn delete(client: &mut Client, name: &str) {
    let question = Question::Delete {
        operation: OperationName::NONE,
        owner_uid: client.uid(),
        name: name.to_owned(),
    };
    let answer = client.ask(&question);
    assert!(matches!(answer, Answer::Segment { .. }), "{answer:?}");
}

/// Reads all of a segment over bytes that are none of it: they are the user's own, or zero.
fn is_its_own(client: &mut Client, handle: HandleWords, blocks: u64, mode: Mode, allowed: &[u8]) {
    fill(client, blocks, 0x55);
    moves(client, Op::Read, handle, blocks, mode, Durability::None);
    let bytes = arena(client, blocks);
    let foreign = bytes.iter().position(|byte| !allowed.contains(byte));
    assert_eq!(
        foreign.map(|at| (at, bytes[at])),
        None,
        "a foreign byte for {} by {mode:?}",
        client.uid()
    );
}

/// A volume on which hardly anything is free.
fn crowded(house: &House) -> Client {
    let mut root = house.client();
    let whole = |root: &mut Client| match root.ask(&Question::Info) {
        Answer::Volume(volume) => volume.whole.expect("root sees all of it"),
        other => panic!("{other:?}"),
    };
    let mut number = 0;
    while whole(&mut root).free_bytes > FREE_BLOCKS * u64::from(BLOCK) {
        let whole = whole(&mut root);
        let size = whole
            .largest_free_bytes
            .min(whole.free_bytes - FREE_BLOCKS * u64::from(BLOCK));
        root.create(&format!("filler {number}"), size);
        number += 1;
    }
    root
}

#[test]
fn blocks_that_change_hands_bring_nothing_with_them() {
    if !is_root() {
        return;
    }
    let rounds = std::env::var("BAIO_BROKER_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let house = House::cached();
    let _root = crowded(&house);
    let mut users = USERS.map(|uid| house.client_of(uid));
    let mut largest = [0; 2];
    for round in 0..rounds {
        let at = (round % 2) as usize;
        let client = &mut users[at];
        let name = format!("s{}", round % 3);
        let blocks = 1 + round / 2 * 5 % LARGEST;
        let modes = [[Mode::Direct, Mode::Cached], [Mode::Cached, Mode::Direct]][(round / 2 % 2) as usize];
        let question = sized(client, &name, blocks, round % 3 == 0);
        let answer = client.ask(&question);
        assert!(matches!(answer, Answer::Segment { .. }), "{round}: {answer:?}");
        largest[at] = largest[at].max(blocks);
        let handle = client.open(&name, Access::Write);
        // Fresh: zeros, whichever way one looks.
        for mode in modes {
            is_its_own(client, handle, blocks, mode, &[0]);
        }
        fill(client, blocks, secret(client.uid()));
        let durability = [Durability::None, Durability::Data, Durability::Full][(round % 3) as usize];
        moves(client, Op::Write, handle, blocks, modes[0], durability);
        if blocks > 1 && round % 5 == 0 {
            // What comes back after a cut is fresh too, and not even one's own.
            resize(client, &name, blocks - 1);
            resize(client, &name, blocks);
            let (own, last) = (secret(client.uid()), ((blocks - 1) * u64::from(BLOCK)) as usize);
            for mode in modes {
                is_its_own(client, handle, blocks, mode, &[own, 0]);
                assert!(arena(client, blocks)[last..].iter().all(|byte| *byte == 0), "{mode:?}");
            }
        }
        if round % 4 != 0 {
            client.close(handle);
        }
        delete(client, &name);
        if round % 4 == 0 {
            // Through a handle that it still has, nothing of whose turn is next.
            let entry = client.entry(Op::Read, 0, handle, 0);
            assert_eq!(client.run(&entry).result, Err(Failure::Stale));
            client.close(handle);
        }
    }
    assert_eq!(largest, [LARGEST; 2], "each has had blocks of the other");
    eprintln!("{rounds} rounds");
    house.ends();
}

#[test]
fn neither_of_two_users_finds_anything_of_the_other() {
    if !is_root() {
        return;
    }
    let house = House::cached();
    let mut owner = house.client_of(USERS[0]);
    let mut handles = Vec::new();
    for name in ["one", "two", "three"] {
        let handle = owner.made(name, 4 * u64::from(BLOCK));
        for mode in [Mode::Direct, Mode::Cached] {
            fill(&owner, 4, secret(USERS[0]));
            moves(&mut owner, Op::Write, handle, 4, mode, Durability::None);
        }
        handles.push(handle);
    }
    let mut other = house.client_of(USERS[1]);
    let Answer::Segments { infos, .. } = other.ask(&Question::List) else {
        panic!()
    };
    assert!(infos.is_empty(), "{infos:?}");
    for name in ["one", "two", "three"] {
        assert_eq!(opens(&mut other, USERS[0], name), Err("EACCES".to_owned()));
        // In its own name there is none.
        assert_eq!(opens(&mut other, USERS[1], name), Err("ENOENT".to_owned()));
    }
    // The very words, and all about them.
    let all = (0..64).flat_map(|index| (0..64).map(move |generation| HandleWords { index, generation }));
    let guessed = handles.iter().copied().chain(all);
    fill(&other, 1, 0x55);
    let mut guesses = 0;
    for handle in guessed {
        for (op, mode) in [
            (Op::Read, Mode::Direct),
            (Op::Read, Mode::Cached),
            (Op::Write, Mode::Direct),
        ] {
            let entry = Submission {
                mode,
                ..other.entry(op, 0, handle, 0)
            };
            assert_eq!(other.run(&entry).result, Err(Failure::Stale), "{handle:?}");
            guesses += 1;
        }
    }
    assert!(arena(&other, 1).iter().all(|byte| *byte == 0x55), "nothing came");
    assert_eq!(
        other.refusal(&Question::Size {
            handle: handles[0].into()
        }),
        "ESTALE"
    );
    // With a handle of its own of the same words it sees its own segment.
    let own = other.made("one", 4 * u64::from(BLOCK));
    is_its_own(&mut other, own, 4, Mode::Cached, &[0]);
    is_its_own(&mut other, own, 4, Mode::Direct, &[0]);
    for handle in handles {
        is_its_own(&mut owner, handle, 4, Mode::Direct, &[secret(USERS[0])]);
    }
    eprintln!("{guesses} guesses");
    house.ends();
}
