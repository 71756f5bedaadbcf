//! Clients that die at every step. What was theirs is given back: descriptors, memory, places, handles, the volume's stillness.

use std::os::fd::AsFd;

use baio_words::Access;
use baio_words::entry::Op;
use baio_words::session::{Answer, Question};

use crate::house::{House, Victim, alone, alone_lacking, descriptors, until};
use crate::raw::{BLOCK, Client, create, hello};

/// A client does this and is gone, many times.
fn leaves_nothing(story: impl Fn(&House, &mut Victim)) {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let before = descriptors();
    for _ in 0..10 {
        story(&house, &mut victim);
        victim.is_left_with(1);
        until("all descriptors are closed", || descriptors() == before);
        victim.goes_on();
    }
    house.ends();
}

#[test]
fn before_it_says_anything() {
    alone(|| leaves_nothing(|house, _| drop(house.wire())));
}

#[test]
fn before_it_reads_its_welcome() {
    alone(|| {
        leaves_nothing(|house, _| {
            house.wire().send(&hello().encode());
        });
    });
}

#[test]
fn with_a_welcome() {
    alone(|| leaves_nothing(|house, _| drop(house.client())));
}

#[test]
fn with_handles() {
    alone(|| {
        leaves_nothing(|house, _| {
            let mut client = house.client();
            client.made_once("its own", 1 << 20);
            client.open("its own", Access::Read);
        });
    });
}

fn with_requests(house: &House, places: u32) -> Client {
    let mut client = house.narrow(places);
    let handle = client.made_once("its own", 1 << 20);
    for place in 0..places {
        let op = if place % 2 == 0 { Op::Read } else { Op::Write };
        let entry = client.entry(op, place, handle, u64::from(place) * u64::from(BLOCK));
        client.push(&entry.encode());
    }
    client
}

#[test]
fn with_requests_that_nobody_was_told_of() {
    alone(|| leaves_nothing(|house, _| drop(with_requests(house, 8))));
}

#[test]
fn with_requests_under_way_and_held() {
    alone(|| leaves_nothing(|house, _| with_requests(house, 128).publish()));
}

#[test]
fn with_writes_that_wait_for_a_volume_that_is_kept_still() {
    alone(|| {
        leaves_nothing(|house, victim| {
            let mut keeper = house.client();
            let mut client = with_requests(house, 64);
            let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
                panic!()
            };
            client.publish();
            client.is_taken();
            drop(client);
            // They end with it, and wait for no thaw.
            victim.is_left_with(2);
            assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
        });
    });
}

#[test]
fn with_questions_under_way() {
    alone(|| {
        leaves_nothing(|house, victim| {
            let mut client = house.client();
            client.made_once("its own", 1 << 20);
            let uid = client.uid();
            for at in 0..8 {
                client.pose(&create(uid, &format!("s{at}"), 4096));
                client.pose(&Question::Open {
                    owner_uid: uid,
                    name: "its own".into(),
                    access: Access::Write,
                });
                client.pose(&Question::List);
            }
            drop(client);
            victim.goes_on();
        });
    });
}

#[test]
fn while_it_keeps_the_volume_still() {
    alone(|| {
        leaves_nothing(|house, _| {
            let mut client = house.client();
            assert!(matches!(client.ask(&Question::Freeze), Answer::Frozen { .. }));
            assert!(matches!(client.ask(&Question::Freeze), Answer::Frozen { .. }));
        });
    });
}

#[test]
fn while_what_it_has_asked_waits_for_its_own_thaw() {
    alone(|| {
        leaves_nothing(|house, _| {
            let mut client = with_requests(house, 64);
            assert!(matches!(client.ask(&Question::Freeze), Answer::Frozen { .. }));
            client.publish();
            let uid = client.uid();
            client.pose(&create(uid, "never made", 4096));
            client.is_taken();
        });
    });
}

#[test]
fn while_the_volume_becomes_still_for_it() {
    alone(|| {
        leaves_nothing(|house, _| {
            house.client().pose(&Question::Freeze);
        });
    });
}

#[test]
fn with_handles_that_it_has_handed_on() {
    alone(|| {
        leaves_nothing(|house, _| {
            let mut client = house.client();
            let handle = client.made_once("its own", 1 << 20);
            let access = Access::Read;
            for _ in 0..3 {
                let id = client.pose(&Question::HandOn {
                    handle: handle.into(),
                    access,
                });
                let (answer, fds) = client.answer_with(id);
                assert!(matches!(answer, Answer::HandedOn { .. }) && fds.len() == 1);
            }
            // And one that it has not even read.
            client.pose(&Question::HandOn {
                handle: handle.into(),
                access,
            });
        });
    });
}

/// It has broken a rule and is not heard any more, and its own end of the socket lies among what nobody reads: no other is open, and nobody is
/// told that it has gone. An empty message before it reads as the end does.
#[test]
fn with_its_own_socket_on_the_way_to_the_broker() {
    alone_lacking("refused_rights", || {
        leaves_nothing(|house, _| {
            let client = house.client();
            let own = client.wire.0.as_fd();
            client.wire.send(&[9; 9]);
            client.wire.send_with(&[], &[own]);
            client.wire.send(&[]);
            client.wire.send_with(&[1], &[own]);
        });
    });
}

#[test]
fn with_a_broker_that_ends_meanwhile() {
    alone(|| {
        for _ in 0..10 {
            let before = descriptors();
            let house = House::new();
            let mut client = with_requests(&house, 128);
            client.publish();
            client.pose(&Question::List);
            client.pose(&Question::Freeze);
            house.ends();
            client.goes_out("the broker's end");
            drop(client);
            until("all descriptors are closed", || descriptors() == before);
        }
    });
}
