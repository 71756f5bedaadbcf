//! A live session of a broker: the input decides messages on its socket and words in its rings, beside a victim whose bytes stay, whose requests end
//! and who is served as ever. Each input has a broker and a volume of its own, so it can be run again.
//!
//! An input is a program: an operation a byte, and behind it what that takes. It cannot name the victim's segments, which are its own user's: the
//! broker would let it.
#![no_main]
#![allow(
    dead_code,
    reason = "of the house and the client some is for the tests whose they are"
)]

#[path = "../../crates/broker/tests/sessions/house.rs"]
mod house;
#[path = "../../crates/broker/tests/sessions/raw.rs"]
mod raw;

use std::sync::atomic::Ordering;

use baio_words::entry::{HandleWords, Op, Place, Submission, Tag};
use baio_words::session::{Answer, DOORBELL, FromBroker, Question};
use baio_words::{Access, Durability, Mode};
use libfuzzer_sys::fuzz_target;

use house::{House, Victim};
use raw::{BLOCK, Client, Told, create};

/// More is more of the same.
const STEPS_MAX: usize = 200;
/// Requests of the victim's that are under way all the time.
const UNDER_WAY: u32 = 8;
/// So often it is looked whether requests have ended.
const SETTLING_MAX: usize = 50;
/// The id of the question by which the attacker hears how far the broker is.
const SYNC: u32 = 0xfff_fff0;

const OPS: [Op; 11] = [
    Op::Read,
    Op::Write,
    Op::Sync,
    Op::Cancel,
    Op::CloseHandle,
    Op::Discard,
    Op::Zero,
    Op::Fence,
    Op::Truncate,
    Op::Allocate,
    Op::Read,
];

/// What is left of the input. Behind its end there are zeros.
struct Program<'a>(&'a [u8]);

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let taken = self.some(N);
        bytes[..taken.len()].copy_from_slice(&taken);
        bytes
    }

    fn some(&mut self, len: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }
}

/// Who attacks: a session, and a segment of its own that it has opened.
struct Attacker {
    client: Client,
    handle: HandleWords,
}

impl Attacker {
    fn new(house: &House) -> Attacker {
        let mut client = house.narrow(8);
        let handle = client.open("its own", Access::Write);
        Attacker { client, handle }
    }

    fn say(&self, message: &[u8]) {
        if !message.windows(6).any(|window| window == b"canary") {
            self.client.wire.try_send(message);
        }
    }

    /// Waits until the broker has read what was sent. False: it has ended the session.
    fn is_heard(&self) -> bool {
        let question = Question::Info.encode(SYNC).expect("it is short");
        if !self.client.wire.try_send(&question) {
            return true; // There is no room, or nobody.
        }
        loop {
            match self.client.wire.receive() {
                Told::End => return false,
                Told::Message(FromBroker::Answer { id: SYNC, answer }, _) if !matches!(answer, Answer::Done) => {
                    return true;
                }
                Told::Message(..) => {}
            }
        }
    }

    fn step(&mut self, program: &mut Program<'_>, victim: &mut Victim) -> bool {
        match program.byte() % 9 {
            // A message of a kind that there is, or nearly.
            0 | 1 => {
                let (kind, id, len) = (
                    0x0100 + u16::from(program.byte() % 0x18),
                    program.byte(),
                    program.byte(),
                );
                let mut message = kind.to_le_bytes().to_vec();
                message.extend([0, 0, id, 0, 0, 0]);
                message.extend(program.some(len.into()));
                self.say(&message);
            }
            2 => {
                let len = usize::from(program.u16() % 2048);
                let datagram = program.some(len);
                if !datagram.is_empty() {
                    self.say(&datagram);
                }
            }
            // A word of the rings: counters, flags, entries.
            3 => {
                let (at, value) = (u64::from(program.u16()) * 4, program.u32());
                let word = self.client.memory.region().word(at % self.client.welcome.arena_at);
                if let Some(word) = word {
                    word.store(value, Ordering::SeqCst);
                }
            }
            // One of the six that are no entries.
            4 => {
                let (which, value) = (program.byte() % 6, program.u32());
                let (sent, ended) = (self.client.welcome.submissions, self.client.welcome.completions);
                let words = [
                    sent.head,
                    sent.tail,
                    sent.sleeping,
                    ended.head,
                    ended.tail,
                    ended.sleeping,
                ];
                self.client
                    .word(words[usize::from(which)])
                    .store(value, Ordering::SeqCst);
            }
            // An entry of any bytes.
            5 => {
                let bytes: [u8; 64] = program.bytes();
                let words =
                    std::array::from_fn(|at| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte])));
                if self.client.try_push(&words) {
                    self.client.publish();
                }
            }
            // An entry that a client could send.
            6 => {
                let entry = self.entry(program);
                if self.client.try_push(&entry.encode()) {
                    self.client.publish();
                }
            }
            7 => drop(self.client.wire.try_send(&DOORBELL)),
            _ => {
                let goes_on = self.is_heard();
                settle(victim);
                return goes_on;
            }
        }
        true
    }

    fn entry(&self, program: &mut Program<'_>) -> Submission {
        let op = OPS[usize::from(program.byte()) % OPS.len()];
        let [index, generation, at, len, offset, length, mode] = program.bytes();
        let handle = match mode & 0x80 {
            0 => self.handle,
            _ => HandleWords {
                index: generation.into(),
                generation: index.into(),
            },
        };
        let tag = Tag {
            index: u32::from(index % 9),
            generation: generation.into(),
        };
        let bare = Submission::new(op, tag);
        if matches!(op, Op::Cancel) {
            return bare;
        }
        Submission {
            handle,
            // What an operation does not use is mostly zero.
            offset: match op {
                Op::Sync | Op::Fence | Op::Truncate if mode & 0x40 == 0 => 0,
                _ => u64::from(offset) * 512,
            },
            place: match op {
                Op::Read | Op::Write => Place::Arena {
                    at: u64::from(at) * 512,
                    len: u32::from(len) * 512,
                },
                _ => Place::Nowhere,
            },
            mode: [Mode::Direct, Mode::Cached, Mode::Kernel, Mode::Uncached][usize::from(mode % 4)],
            durability: [Durability::None, Durability::Data, Durability::Full][usize::from(mode / 4 % 3)],
            len: match op {
                Op::Discard | Op::Zero | Op::Truncate | Op::Allocate => u64::from(length) * 512,
                _ => 0,
            },
            ..bare
        }
    }
}

/// What was submitted ends before anything else happens, so that a run is like the last one. What a freeze holds does not: it is not waited for.
fn settle(victim: &mut Victim) {
    for _ in 0..SETTLING_MAX {
        let row = victim.row();
        if (row.in_flight, row.held) == (0, 0) {
            return;
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut program = Program(data);
    let house = match program.byte() % 2 {
        0 => House::new(),
        _ => House::cached(),
    };
    let mut victim = Victim::new(&house);
    let uid = victim.client.uid();
    let mine = victim.client.made("canary, the other one", 64 << 10);
    let made = victim.client.ask(&create(uid, "its own", 64 << 10));
    assert!(matches!(made, Answer::Segment { .. }), "{made:?}");
    let mut attacker = Attacker::new(&house);
    // Requests of the victim's are under way whatever happens.
    for place in 0..UNDER_WAY {
        let op = if place % 2 == 0 { Op::Write } else { Op::Read };
        let entry = victim.client.entry(op, place, mine, u64::from(place * BLOCK));
        victim.client.push(&entry.encode());
    }
    victim.client.publish();
    for _ in 0..STEPS_MAX {
        if program.0.is_empty() {
            break;
        }
        if !attacker.step(&mut program, &mut victim) {
            attacker = Attacker::new(&house);
        }
    }
    attacker.is_heard();
    settle(&mut victim);
    drop(attacker);
    for _ in 0..UNDER_WAY {
        let ended = victim.client.next().expect("the victim's session goes on");
        assert_eq!(ended.result, Ok(BLOCK), "{ended:?}");
    }
    victim.client.close(mine);
    victim.is_left_with(1);
    victim.goes_on();
    house.ends();
});
