//! What a user can make the broker pay for is counted until it is gone, and bounded whatever he keeps.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use baio_broker::host::Options;
use baio_words::entry::HandleWords;
use baio_words::session::{Answer, FromBroker, Hello, Question};
use baio_words::{Access, Hint};

use crate::house::{House, STRANGER, Victim, alone, is_root, until};
use crate::raw::{BLOCK, Client, Told, create, hello};

/// Pages of a memfd that are there, in bytes.
fn bytes_of(memfd: &impl AsFd) -> u64 {
    rustix::fs::fstat(memfd).unwrap().st_blocks as u64 * 512
}

/// Uses all of the arena, and keeps the memory when it goes.
fn fills_its_arena(mut client: Client) -> OwnedFd {
    let handle = client.made_once("full", 8 << 20);
    let len = client.welcome.arena_bytes as u32;
    let (ended, _) = client.read(handle, 0, len);
    assert_eq!(ended.result, Ok(len));
    let kept = client.memfd().try_clone_to_owned().unwrap();
    assert!(bytes_of(&kept) >= u64::from(len));
    kept
}

/// Sessions come and go, and their user keeps all their memory. The broker pays for none of it.
#[test]
fn memory_that_a_client_keeps_is_no_more_of_the_brokers() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let kept: Vec<OwnedFd> = (0..20).map(|_| fills_its_arena(house.client())).collect();
    until("all pages are given back", || {
        kept.iter().all(|memfd| bytes_of(memfd) == 0)
    });
    victim.is_left_with(1);
    victim.goes_on();
    house.ends();
}

/// A correct client may use its buffers as long as its socket is open, whoever has ended the session. It counts for its user till then.
#[test]
fn memory_is_its_clients_until_the_socket_is_closed() {
    let house = House::with(Options {
        clients_of_one_max: 4,
        ..Options::default()
    });
    let mut victim = Victim::new(&house);
    for turn in 0..3 {
        let mut client = house.client();
        let handle = client.made_once("own", 1 << 20);
        let written = client.write(handle, 0, &[7; BLOCK as usize]);
        assert_eq!(written.result, Ok(BLOCK));
        // The one ends it by shutting down its half, another breaks the protocol, a third one the same with another word.
        match turn {
            0 => rustix::net::shutdown(&client.wire.0, rustix::net::Shutdown::Write).unwrap(),
            _ => assert!(client.wire.send(&[9; 9])),
        }
        assert!(matches!(client.wire.receive(), Told::End));
        victim.is_left_with(1);
        let mut bytes = [0; BLOCK as usize];
        client.memory.arena().unwrap().copy_out(&mut bytes);
        assert_eq!(bytes, [7; BLOCK as usize], "its memory was taken from it");
        // The victim, this one, and two more: it has a place still.
        let others = [house.client(), house.client()];
        let refused = house.wire();
        refused.try_send(&hello().encode());
        let refusal = refused.greeted().err().expect("one too many");
        assert_eq!(refusal.code, "EAGAIN");
        let kept = client.memfd().try_clone_to_owned().unwrap();
        drop((client, others));
        until("its pages are given back", || bytes_of(&kept) == 0);
        victim.is_left_with(1);
    }
    victim.goes_on();
    house.ends();
}

/// Whoever does not receive its welcome holds a descriptor of the broker's in flight, whatever it does then. It counts, and is told why
/// there are no more.
#[test]
fn a_welcome_that_nobody_receives_counts_for_its_user() {
    let house = House::with(Options {
        clients_of_one_max: 20,
        ..Options::default()
    });
    let mut victim = Victim::new(&house);
    let mut kept = Vec::new();
    let refusal = loop {
        let wire = house.wire();
        wire.try_send(&hello().encode());
        if kept.len() >= 19 {
            break wire.greeted().err().expect("all of its places are taken");
        }
        // The one breaks the protocol; another shuts both directions down, which looks like a closed end.
        match kept.len() % 2 {
            0 => drop(wire.try_send(&[9; 9])),
            _ => {
                until("its welcome lies there", || wire.has_something());
                rustix::net::shutdown(&wire.0, rustix::net::Shutdown::Both).unwrap();
            }
        }
        kept.push(wire);
        assert!(kept.len() < 100, "nobody counts them");
        victim.is_left_with(1);
    };
    assert_eq!(refusal.code, "EAGAIN");
    assert!(refusal.need.as_deref().unwrap().contains("of one user"), "{refusal:?}");
    victim.goes_on();
    drop(kept);
    until("there is room again", || {
        let wire = house.wire();
        wire.try_send(&hello().encode());
        wire.greeted().is_ok()
    });
    house.ends();
}

/// Bytes that the other side has not received (`SIOCOUTQ`, unix(7)).
#[allow(unsafe_code)]
fn unheard(socket: impl AsFd) -> i32 {
    let mut bytes = 0;
    // SAFETY: the descriptor is open for the call, which writes one `int`.
    let said = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(said, 0);
    bytes
}

/// The same for what is handed on: so many lie in one socket, and no more.
#[test]
fn handles_that_are_handed_on_and_not_received_are_bounded() {
    let house = House::new();
    let mut client = house.client();
    let handle = client.made("own", 4096);
    let access = Access::Read;
    for turn in 0..40 {
        client.pose(&Question::HandOn {
            handle: handle.into(),
            access,
        });
        // Taken back at once, so that no place keeps count.
        client.pose(&Question::Revoke { grant: turn + 1 });
    }
    // The broker hears all of it before any is received: what it has taken off the socket before it hears another is done.
    let mut other = house.client();
    until("the broker has heard all", || {
        let unheard = unheard(&client.wire.0);
        assert!(matches!(other.ask(&Question::Info), Answer::Volume(_)));
        unheard == 0
    });
    let (mut granted, mut refused) = (0, 0);
    for _ in 0..80 {
        let Told::Message(FromBroker::Answer { answer, .. }, fds) = client.wire.receive() else {
            panic!("the session has ended")
        };
        granted += fds.len();
        match answer {
            Answer::HandedOn { .. } | Answer::Done => {}
            Answer::Failed(failed) => {
                assert_eq!(failed.code, "EAGAIN");
                refused += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=16).contains(&granted) && refused >= 24, "{granted} were in flight");
    // All is received: there is room again.
    let id = client.pose(&Question::HandOn {
        handle: handle.into(),
        access,
    });
    let (answer, fds) = client.answer_with(id);
    assert!(
        matches!(answer, Answer::HandedOn { .. }) && fds.len() == 1,
        "{answer:?}"
    );
    house.ends();
}

/// Where memory is short a session gets less of it; all of them together never more than there is.
#[test]
fn arenas_are_as_small_as_the_memory_of_all_needs() {
    let most = 8 << 20;
    let house = House::with(Options {
        clients_max: 8,
        clients_of_one_max: 4,
        memory_bytes_max: Some(most),
        ..Options::default()
    });
    let clients: Vec<Client> = (0..4).map(|_| house.client()).collect();
    let bytes: Vec<u64> = clients.iter().map(|client| client.welcome.memory_bytes).collect();
    assert!(bytes.iter().sum::<u64>() <= most / 2, "{bytes:?}");
    let arenas: Vec<u64> = clients.iter().map(|client| client.welcome.arena_bytes).collect();
    assert!(
        arenas[0] > 1 << 20 && arenas.iter().all(|arena| *arena >= 256 << 10),
        "{arenas:?}"
    );
    drop(clients);
    until("it comes back", || {
        let wire = house.wire();
        wire.try_send(&hello().encode());
        wire.greeted()
            .is_ok_and(|client| client.welcome.arena_bytes == arenas[0])
    });
    house.ends();
}

/// Whatever a session can hold comes back at its end: one after the other has all of it, and leaves it.
#[test]
fn everything_that_a_session_holds_comes_back() {
    alone(|| {
        let house = House::with(Options {
            clients_max: 8,
            clients_of_one_max: 4,
            ..Options::default()
        });
        let mut victim = Victim::new(&house);
        let uid = victim.client.uid();
        for nth in 0..40 {
            victim.client.create(&format!("{nth:0>200}"), 4096);
        }
        let before = crate::house::descriptors();
        for _ in 0..30 {
            let wide = Hello {
                arena_bytes: u64::MAX,
                ..hello()
            };
            let clients: Vec<Client> = (0..2).map(|_| house.wire().greet(&wide).unwrap()).collect();
            for mut client in clients {
                let handle = client.open("canary", Access::Read);
                for at in 0..4 {
                    let hand_on = Question::HandOn {
                        handle: handle.into(),
                        access: Access::Read,
                    };
                    // No feature of this session: that ends it, and what comes behind it is not heard.
                    let identified = Question::OpenKnown {
                        owner_uid: uid,
                        name: "canary".into(),
                        access: Access::Read,
                        identity: Some([3; 16]),
                    };
                    let new = create(uid, &format!("new {at}"), 4096);
                    for question in [hand_on, Question::List, Question::Freeze, new, identified] {
                        let is_heard = client.poses(&question);
                        assert!(is_heard || at > 0, "{question:?}");
                    }
                }
            }
            victim.is_left_with(1);
        }
        until("all descriptors are closed", || crate::house::descriptors() == before);
        // Nothing counts any more: there is as much as at first.
        let all: Vec<Client> = (0..3).map(|_| house.client()).collect();
        assert!(all.iter().all(|client| client.welcome.arena_bytes == 4 << 20));
        drop(all);
        victim.goes_on();
        house.ends();
    });
}

/// Pages that a client keeps in the cache: a share of its user, which comes back with the handle.
#[test]
fn what_is_kept_goes_with_its_session() {
    let house = House::cached();
    let (mut first, mut second) = (house.client(), house.client());
    let handle = first.made("warm", 1 << 20);
    let again = second.open("warm", Access::Read);
    let keep = |handle: HandleWords, range| Question::Hint {
        handle: handle.into(),
        hint: Hint::Keep(range),
    };
    // A quarter of 256 pages.
    assert!(matches!(first.ask(&keep(handle, 0..64)), Answer::Count { .. }));
    let Answer::Failed(failed) = second.ask(&keep(again, 64..65)) else {
        panic!("more than a quarter")
    };
    assert!(failed.code == "EAGAIN" && failed.what.contains("kept"), "{failed:?}");
    drop(first);
    until("its share is free", || {
        matches!(second.ask(&keep(again, 64..128)), Answer::Count { .. })
    });
    house.ends();
}

/// Each connection may bring another list of groups, of up to 65,536. What a place does not pay for counts as arena.
#[test]
fn a_long_list_of_groups_counts_for_its_user() {
    if !is_root() {
        return;
    }
    // So little that each session has the least arena, and nobody has more.
    let house = House::with(Options {
        memory_bytes_max: Some(1),
        ..Options::default()
    });
    let groups: Vec<u32> = (1..=2000).collect();
    let wire = house.wire_of(STRANGER, STRANGER, &groups[..1000]);
    let mut client = wire.greet(&hello()).unwrap();
    let refused = house.wire_of(STRANGER, STRANGER, &groups);
    refused.try_send(&hello().encode());
    let refusal = refused.greeted().err().expect("nobody pays for its list");
    assert_eq!(refusal.code, "EAGAIN");
    assert!(refusal.need.as_deref().unwrap().contains("groups"), "{refusal:?}");
    assert!(matches!(client.ask(&Question::Status), Answer::Status(_)));
    house.ends();
}

#[test]
fn who_never_says_hello_has_no_place_for_long() {
    let house = House::with(Options {
        hello_patience: std::time::Duration::from_millis(50),
        clients_of_one_max: 3,
        ..Options::default()
    });
    let mut victim = Victim::new(&house);
    let silent = [house.wire(), house.wire()];
    for wire in silent {
        let refusal = wire.greeted().err().expect("it has said nothing");
        assert_eq!(refusal.code, "ETIMEDOUT");
    }
    victim.is_left_with(1);
    // Who has said hello in time is not asked again.
    victim.goes_on();
    house.ends();
}

/// Two users may have half of the places each, and uid 0 comes in all the same.
#[test]
fn a_place_is_kept_for_root() {
    if !is_root() {
        return;
    }
    let house = House::with(Options {
        clients_max: 8,
        clients_of_one_max: 4,
        ..Options::default()
    });
    let clients: Vec<Client> = (0..4).map(|_| house.client_of(STRANGER)).collect();
    let others: Vec<Client> = (0..2).map(|_| house.client_of(STRANGER + 1)).collect();
    let refused = house.wire_of(STRANGER + 1, STRANGER + 1, &[]);
    refused.try_send(&hello().encode());
    let refusal = refused.greeted().err().expect("what is left is kept");
    assert!(refusal.need.as_deref().unwrap().contains("kept"), "{refusal:?}");
    let mut root = house.client();
    assert!(matches!(root.ask(&Question::Status), Answer::Status(_)));
    drop((clients, others));
    house.ends();
}
