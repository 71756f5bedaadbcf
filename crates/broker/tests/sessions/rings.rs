//! Rings that are broken: counters that cannot be, completions that nobody takes, entries that change after they were published.

use std::sync::atomic::Ordering;

use baio_words::entry::{HandleWords, Op, Submission};
use baio_words::session::{Answer, Question};

use crate::house::{House, Victim, until};
use crate::raw::{BLOCK, Client};

/// Somebody does this beside the victim. It ends the session that did it, once, and nothing else.
pub(crate) fn goes_out(what: &str, places: u32, attack: impl FnOnce(&mut Client, HandleWords)) {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.narrow(places);
    let handle = client.made("its own", 1 << 20);
    attack(&mut client, handle);
    client.goes_out(what);
    victim.is_left_with(1);
    assert_eq!(victim.row().violations, 1, "{what}");
    victim.goes_on();
    house.ends();
}

#[test]
fn a_tail_that_cannot_be_ends_the_session() {
    let entries = |client: &Client| client.welcome.submissions.entries;
    let set = |client: &mut Client, to: u32| {
        client
            .word(client.welcome.submissions.tail)
            .store(to, Ordering::Release);
        client.ring();
    };
    goes_out("far ahead", 8, |client, _| set(client, entries(client) + 1));
    goes_out("half round", 8, |client, _| set(client, 1 << 31));
    goes_out("before the beginning", 8, |client, _| set(client, u32::MAX));
    goes_out("back again", 8, |client, handle| {
        let entry = client.entry(Op::Sync, 0, handle, 0);
        client.run(&entry);
        set(client, 0);
    });
}

#[test]
fn a_full_ring_of_zeroes_ends_the_session() {
    goes_out("entries that were never written", 8, |client, _| {
        let entries = client.welcome.submissions.entries;
        client
            .word(client.welcome.submissions.tail)
            .store(entries, Ordering::Release);
        client.ring();
    });
}

#[test]
fn a_head_that_cannot_be_ends_the_session() {
    for (what, head) in [("forwards", 100), ("backwards", u32::MAX - 100)] {
        goes_out(what, 1, |client, handle| {
            // Of a ring of two entries: the third completion looks at the head.
            for _ in 0..2 {
                let entry = client.entry(Op::Read, 0, handle, 0);
                client.run(&entry);
            }
            client
                .word(client.welcome.completions.head)
                .store(head, Ordering::Release);
            let entry = client.entry(Op::Read, 0, handle, 0);
            client.submit(&entry);
        });
    }
}

#[test]
fn counters_and_flags_that_are_the_brokers_are_the_brokers() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.narrow(2);
    let handle = client.made("its own", 1 << 20);
    for value in [0, 1, 7, u32::MAX] {
        let (sent, ended) = (client.welcome.submissions, client.welcome.completions);
        for at in [sent.head, sent.sleeping, ended.tail, ended.sleeping] {
            client.word(at).store(value, Ordering::Release);
        }
        // Such a client rings by itself, and looks at nothing but what the broker writes over it.
        let entry = client.entry(Op::Write, 0, handle, 0);
        let tail = client.word(sent.tail).load(Ordering::Relaxed);
        client.word(sent.head).store(tail, Ordering::Release);
        client.submit(&entry);
        client.ring();
        until("it is posted", || {
            client.ring();
            client.word(ended.tail).load(Ordering::Acquire) == tail.wrapping_add(1)
        });
        assert_eq!(client.posted().unwrap().result, Ok(BLOCK));
        victim.goes_on();
    }
    house.ends();
}

#[test]
fn a_ring_of_two_entries_goes_round_and_round() {
    let house = House::new();
    let mut client = house.narrow(1);
    let handle = client.made("its own", 1 << 20);
    for turn in 0..500 {
        let entry = client.entry(Op::Write, 0, handle, turn % 256 * u64::from(BLOCK));
        assert_eq!(client.run(&entry).result, Ok(BLOCK));
    }
    house.ends();
}

/// So many requests end, and nobody takes their completions.
fn fill(client: &mut Client, handle: HandleWords) -> u32 {
    let places = client.welcome.places;
    for place in 0..places {
        let entry = client.entry(Op::Read, place, handle, 0);
        client.push(&entry.encode());
    }
    client.publish();
    let at = client.welcome.completions.tail;
    until("all are posted", || client.word(at).load(Ordering::Acquire) == places);
    places
}

#[test]
fn completions_that_nobody_takes_end_the_session() {
    goes_out("one more than there is room for", 4, |client, handle| {
        fill(client, handle);
        let entry = client.entry(Op::Read, 0, handle, 0);
        client.submit(&entry);
    });
}

/// There are fewer slots than places, so most of the second batch is held when the first of it finds no room.
#[test]
fn a_session_that_is_ended_leaves_nothing_that_was_held() {
    goes_out("a whole batch more", 64, |client, handle| {
        for place in 0..fill(client, handle) {
            let entry = client.entry(Op::Read, place, handle, 0);
            client.push(&entry.encode());
        }
        client.publish();
    });
}

#[test]
fn a_tag_in_use_ends_the_session() {
    goes_out("one tag twice", 4, |client, handle| {
        let entry = client.entry(Op::Read, 0, handle, 0).encode();
        client.push(&entry);
        client.push(&entry);
        client.publish();
    });
}

/// One thread publishes good entries, another writes over the cells as fast as it can. What the broker has copied is what it
/// checks and does; the canary stays as it is.
#[test]
fn entries_that_change_after_they_were_published() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    for _ in 0..20 {
        let mut client = house.narrow(8);
        let handle = client.made_once("its own", 1 << 20);
        let memory = client.memory.region().clone();
        let at = client.welcome.submissions;
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let cells: &[[_; 8]] = memory.cells(at.cells, at.entries).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    for cell in cells {
                        let was = cell[4].load(Ordering::Relaxed);
                        // Beyond the arena, beyond the segment, another's handle; and back.
                        cell[4].store(u64::MAX - 4095, Ordering::Relaxed);
                        cell[3].store(u64::MAX - 4095, Ordering::Relaxed);
                        cell[2].store(1, Ordering::Relaxed);
                        cell[4].store(was, Ordering::Relaxed);
                        cell[3].store(0, Ordering::Relaxed);
                        cell[2].store(0, Ordering::Relaxed);
                    }
                }
            });
            for turn in 0..200 {
                let entry = client.entry(Op::Write, turn % 8, handle, 0);
                if client.try_run(&entry).is_none() {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        victim.goes_on();
    }
    victim.is_left_with(1);
    house.ends();
}

/// It fills its ring with cancels of nothing as fast as they are taken. What is taken in one round is bounded, so others are served.
#[test]
fn who_never_stops_submitting_delays_nobody_for_ever() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.narrow(64);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let storming = scope.spawn(move || {
            let mut taken = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let cancel = Submission::new(Op::Cancel, client.tag(0)).encode();
                while client.try_push(&cancel) {
                    taken += 1;
                }
                client.publish();
            }
            (client, taken)
        });
        for _ in 0..20 {
            victim.goes_on();
        }
        is_over.store(true, Ordering::Relaxed);
        let (mut client, taken) = storming.join().unwrap();
        assert!(taken > 128, "{taken} entries are no storm");
        client.is_taken();
        assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    });
    house.ends();
}
