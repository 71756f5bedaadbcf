//! More connections than there is room for.

use baio_broker::host::Options;
use baio_words::session::{FromBroker, Hello};

use crate::house::{House, Victim, alone, descriptors, hoard, hoard_more, until};
use crate::raw::{Client, Told, Wire, hello};

fn comes_in(house: &House) -> Client {
    let mut client = None;
    until("there is room again", || {
        let wire = house.wire();
        if wire.send(&hello().encode()) {
            client = wire.greeted().ok();
        }
        client.is_some()
    });
    client.unwrap()
}

#[test]
fn one_user_has_so_many_connections_and_is_told() {
    let house = House::with(Options {
        clients_of_one_max: 5,
        ..Options::default()
    });
    let mut victim = Victim::new(&house);
    // Who says nothing counts too. The broker accepts in order.
    let silent: Vec<Wire> = (0..2).map(|_| house.wire()).collect();
    let clients: Vec<Client> = (0..2).map(|_| house.client()).collect();
    for _ in 0..20 {
        let refused = house.wire();
        // The refusal may come first; what it says is heard all the same.
        refused.try_send(&hello().encode());
        let Told::Message(FromBroker::Answer { id: 0, answer }, _) = refused.receive() else {
            panic!("no refusal")
        };
        let baio_words::session::Answer::Failed(failed) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(failed.code, "EAGAIN");
        assert!(matches!(refused.receive(), Told::End));
    }
    victim.goes_on();
    drop(clients);
    let again = [comes_in(&house), comes_in(&house)];
    drop((silent, again));
    victim.is_left_with(1);
    victim.goes_on();
    house.ends();
}

/// Who closes its one connection and opens another is not refused because the broker has not heard of the end yet: after a session, after
/// a refusal, after a breach of the protocol.
#[test]
fn who_closes_one_connection_has_its_place_for_the_next() {
    let house = House::with(Options {
        clients_of_one_max: 1,
        ..Options::default()
    });
    let elsewhere = Hello {
        volume: "another".into(),
        ..hello()
    };
    for turn in 0..200 {
        match turn % 4 {
            0 => assert_eq!(house.wire().greet(&elsewhere).err().unwrap().code, "ENOENT"),
            1 => {
                let wire = house.wire();
                assert!(wire.send(&[9; 9]));
                wire.goes_out("no message");
            }
            _ => drop(house.client()),
        }
    }
    house.ends();
}

#[test]
fn who_comes_when_all_places_are_taken_waits_for_one() {
    let house = House::with(Options {
        clients_max: 3,
        ..Options::default()
    });
    let mut victim = Victim::new(&house);
    let (first, second) = (house.client(), house.wire());
    victim.goes_on();
    // The socket is full now, and no more is said to who connects.
    let waiting: Vec<Wire> = (0..10).map(|_| house.wire()).collect();
    for wire in &waiting {
        assert!(wire.send(&hello().encode()));
    }
    victim.goes_on();
    assert_eq!(victim.row().clients, 3);
    drop((first, second));
    for wire in waiting {
        // Each leaves room for the next one.
        assert!(matches!(wire.receive(), Told::Message(FromBroker::Welcome(_), _)));
    }
    victim.is_left_with(1);
    house.ends();
}

#[test]
fn who_connects_and_hangs_up_all_day_leaves_nothing() {
    alone(|| {
        let house = House::new();
        let mut victim = Victim::new(&house);
        let before = descriptors();
        for turn in 0..500 {
            let wire = house.wire();
            match turn % 4 {
                0 => {}
                1 => assert!(wire.send(&hello().encode())),
                2 => assert!(wire.send(&[0; 9])),
                _ => drop(wire.greet(&hello())),
            }
            if turn % 50 == 0 {
                victim.goes_on();
            }
        }
        victim.is_left_with(1);
        until("all descriptors are closed", || descriptors() == before);
        assert!(victim.status().sessions_ended >= 500);
        house.ends();
    });
}

/// There are no descriptors left for anybody new. Those that are there go on, and there is room again later.
#[test]
fn without_descriptors_who_is_there_goes_on() {
    alone(|| {
        let house = House::new();
        let mut victim = Victim::new(&house);
        let wires: Vec<Wire> = (0..4).map(|_| house.wire()).collect();
        until("all are accepted", || victim.row().clients == 5);
        let mut hoard = hoard();
        for wire in wires {
            // No memory for it: it is told so.
            let failed = wire.greet(&hello()).err().expect("no descriptor for its memory");
            assert!(!failed.what.is_empty());
            victim.goes_on();
            hoard_more(&mut hoard);
        }
        drop(hoard);
        drop(comes_in(&house));
        victim.is_left_with(1);
        house.ends();
    });
}

#[test]
fn who_finds_no_descriptor_is_not_kept_waiting() {
    alone(|| {
        let house = House::new();
        let mut victim = Victim::new(&house);
        let kind = rustix::net::SocketFlags::CLOEXEC;
        let family = rustix::net::AddressFamily::UNIX;
        let socket = rustix::net::socket_with(family, rustix::net::SocketType::SEQPACKET, kind, None).unwrap();
        let at = rustix::net::SocketAddrUnix::new(&house.socket).unwrap();
        let hoard = hoard();
        rustix::net::connect(&socket, &at).unwrap();
        assert!(matches!(Wire::of(socket).receive(), Told::End));
        victim.goes_on();
        drop(hoard);
        drop(comes_in(&house));
        victim.is_left_with(1);
        house.ends();
    });
}
