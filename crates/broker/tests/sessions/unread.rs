//! Clients that do not read what they are told: the broker keeps a bounded part of it for them, and asks them for nothing new.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use baio_broker::host::Options;
use baio_words::entry::Op;
use baio_words::session::{Answer, Question};

use crate::house::{House, Victim, alone_lacking, until};
use crate::raw::BLOCK;

/// Segments with the longest names, so that lists are long.
fn with_many_segments() -> (House, Victim) {
    with_many_segments_of(House::new())
}

fn with_many_segments_of(house: House) -> (House, Victim) {
    let mut victim = Victim::new(&house);
    for number in 0..200 {
        victim.client.create(&format!("{number:0>255}"), 4096);
    }
    (house, victim)
}

#[test]
fn who_does_not_read_is_not_listened_to_until_it_does() {
    let (house, mut victim) = with_many_segments();
    let mut client = house.client();
    let mut posed = 0;
    // Its own socket fills up, as nobody takes from it.
    let list = |id| Question::List.encode(id).unwrap();
    while client.wire.sends_at_last(&list(posed)) {
        posed += 1;
        assert!(posed < 100_000, "the broker takes whatever is asked");
    }
    for _ in 0..5 {
        victim.goes_on();
    }
    // All that was asked is answered in the end.
    for id in 0..posed {
        while let Answer::Segments { more: true, .. } = client.answer(id) {}
    }
    assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    victim.goes_on();
    house.ends();
}

#[test]
fn who_never_reads_is_no_hindrance_to_an_end() {
    let (house, mut victim) = with_many_segments();
    let clients: Vec<_> = (0..8).map(|_| house.client()).collect();
    for client in &clients {
        for id in 0..64 {
            client.wire.try_send(&Question::List.encode(id).unwrap());
        }
    }
    victim.goes_on();
    house.ends();
}

/// There is no room to tell it of the end, and it has shut its half down, as a client may: its end is open all the same. It reads the end behind
/// all else, and its memory is its own till then.
#[test]
fn who_has_not_read_keeps_its_memory_and_is_told_of_the_end() {
    let (house, mut victim) = with_many_segments();
    let mut client = house.client();
    let handle = client.made_once("own", 1 << 20);
    assert_eq!(client.write(handle, 0, &[7; BLOCK as usize]).result, Ok(BLOCK));
    let mut posed = 0;
    while client.wire.sends_at_last(&Question::List.encode(posed).unwrap()) {
        posed += 1;
        assert!(posed < 100_000, "the broker takes whatever is asked");
    }
    rustix::net::shutdown(&client.wire.0, rustix::net::Shutdown::Write).unwrap();
    victim.is_left_with(1);
    let mut bytes = [0; BLOCK as usize];
    client.memory.arena().unwrap().copy_out(&mut bytes);
    assert!(bytes == [7; BLOCK as usize], "its memory was taken from it");
    while client.hear() {}
    client.memory.arena().unwrap().copy_out(&mut bytes);
    assert!(bytes == [7; BLOCK as usize], "its memory was taken from it");
    victim.goes_on();
    house.ends();
}

#[test]
fn who_never_reads_and_leaves_has_left() {
    let (house, mut victim) = with_many_segments();
    for _ in 0..20 {
        let client = house.client();
        for id in 0..64 {
            client.wire.try_send(&Question::List.encode(id).unwrap());
        }
        drop(client);
        victim.is_left_with(1);
    }
    victim.goes_on();
    house.ends();
}

/// It reads no answer, so it is asked for nothing new, and its own end of the socket lies behind what is not read. It is open for as long as it
/// lies there, so only time tells that nobody will ever read.
#[test]
fn who_never_reads_and_has_sent_its_own_socket_has_left_after_a_time() {
    alone_lacking("refused_rights", || {
        let (house, mut victim) = with_many_segments_of(House::with(Options {
            // Longer than this client looks for room: it has gone before its time is over.
            unread_patience: Duration::from_secs(2),
            ..Options::default()
        }));
        let client = house.client();
        let own = client.wire.0.as_fd();
        let mut posed = 0;
        while client.wire.has_room_at_last() && client.wire.send_with(&Question::List.encode(posed).unwrap(), &[own]) {
            posed += 1;
            assert!(posed < 100_000, "the broker takes whatever is asked");
        }
        drop(client);
        victim.is_left_with(1);
        victim.goes_on();
        house.ends();
    });
}

/// It says that it sleeps, again and again, and never reads what wakes it. Its socket is full after some hundred doorbells; its
/// requests end all the same, and nobody waits for it.
#[test]
fn who_never_reads_its_doorbells_holds_nobody_up() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.narrow(1);
    let handle = client.made("its own", 1 << 20);
    for turn in 0..2_000 {
        let sleeping = client.word(client.welcome.completions.sleeping);
        sleeping.store(1, Ordering::SeqCst);
        let entry = client.entry(Op::Read, 0, handle, 0);
        client.submit(&entry);
        let mut ended = None;
        until("it ends", || {
            ended = client.posted();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().result, Ok(BLOCK));
        if turn % 500 == 0 {
            victim.goes_on();
        }
    }
    // What is asked is answered when there is room.
    assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    victim.goes_on();
    house.ends();
}

/// What it asks is answered at once, and it reads no answer: neither socket takes any more, a doorbell neither. What it has in the
/// ring then is taken as the broker reads on.
#[test]
fn a_doorbell_that_finds_no_room_is_not_missed() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.client();
    let handle = client.made("its own", 1 << 20);
    let mut posed = 1_000;
    // More than once: the broker may have been late.
    for _ in 0..3 {
        while client.wire.sends_at_last(&Question::Status.encode(posed).unwrap()) {
            posed += 1;
            assert!(posed < 100_000, "the broker takes whatever is asked");
        }
        victim.goes_on();
    }
    let sleeping = client.word(client.welcome.submissions.sleeping);
    until("nobody looks at its ring", || sleeping.load(Ordering::SeqCst) == 1);
    let entry = client.entry(Op::Read, 0, handle, 0);
    client.submit(&entry);
    for id in 1_000..posed {
        assert!(matches!(client.answer(id), Answer::Status(_)));
    }
    assert_eq!(
        client.next().map(|ended| (ended.tag, ended.result)),
        Some((entry.tag, Ok(BLOCK)))
    );
    house.ends();
}
