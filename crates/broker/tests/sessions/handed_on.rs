//! Handles that are handed on: what the other may do with them, and how they end.

use baio_words::Access;
use baio_words::Failure;
use baio_words::OperationName;
use baio_words::entry::{HandleWords, Op};
use baio_words::session::{Answer, Question};

use crate::house::{House, Victim};
use crate::raw::{BLOCK, Client, Wire, create, hello};

/// Hands a handle on: the grant, and the socket's other end.
fn hand_on(client: &mut Client, handle: HandleWords, access: Access) -> (u64, Wire) {
    let id = client.pose(&Question::HandOn {
        handle: handle.into(),
        access,
    });
    let (answer, mut fds) = client.answer_with(id);
    let Answer::HandedOn { grant } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(fds.len(), 1, "a socket, and nothing else");
    (grant, Wire::of(fds.remove(0)))
}

fn open_it(client: &mut Client, access: Access) -> Result<HandleWords, String> {
    client.open_of(0, "", access)
}

fn with_one() -> (House, Client, HandleWords) {
    let house = House::new();
    let mut client = house.client();
    let handle = client.made("shared", 1 << 20);
    client.write(handle, 0, &[1; BLOCK as usize]);
    (house, client, handle)
}

#[test]
fn who_is_handed_a_handle_reads_and_writes_by_it() {
    let (house, mut client, handle) = with_one();
    let (_, wire) = hand_on(&mut client, handle, Access::Write);
    let mut other = wire.greet(&hello()).unwrap();
    let theirs = open_it(&mut other, Access::Write).unwrap();
    assert_eq!(other.read(theirs, 0, BLOCK).1, [1; BLOCK as usize]);
    assert_eq!(other.write(theirs, 0, &[2; BLOCK as usize]).result, Ok(BLOCK));
    assert_eq!(
        other.ask(&Question::Size { handle: theirs.into() }),
        Answer::Count { value: 1 << 20 }
    );
    assert_eq!(client.read(handle, 0, BLOCK).1, [2; BLOCK as usize]);
    // It lives on when the first handle is closed.
    client.close(handle);
    client.is_taken();
    assert_eq!(other.read(theirs, 0, BLOCK).1, [2; BLOCK as usize]);
    house.ends();
}

#[test]
fn a_handle_handed_on_to_read_does_not_write() {
    let (house, mut client, handle) = with_one();
    let (_, wire) = hand_on(&mut client, handle, Access::Read);
    let mut other = wire.greet(&hello()).unwrap();
    assert_eq!(open_it(&mut other, Access::Write), Err("EACCES".to_owned()));
    let theirs = open_it(&mut other, Access::Read).unwrap();
    assert_eq!(
        other.write(theirs, 0, &[2; BLOCK as usize]).result,
        Err(Failure::ReadOnly)
    );
    assert_eq!(other.read(theirs, 0, BLOCK).1, [1; BLOCK as usize]);
    // Nor does one that was opened to read and is handed on to write.
    client.close(handle);
    let handle = client.open("shared", Access::Read);
    let access = Access::Write;
    let answer = client.ask(&Question::HandOn {
        handle: handle.into(),
        access,
    });
    assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
    house.ends();
}

#[test]
fn who_has_it_may_ask_for_nothing_else() {
    let (house, mut client, handle) = with_one();
    let (grant, wire) = hand_on(&mut client, handle, Access::Write);
    let mut other = wire.greet(&hello()).unwrap();
    let theirs = open_it(&mut other, Access::Read).unwrap();
    assert_eq!(open_it(&mut other, Access::Read), Err("EACCES".to_owned()), "once");
    let (uid, operation) = (client.uid(), OperationName::NONE);
    let name = || "shared".to_owned();
    let access = Access::Read;
    for question in [
        create(uid, "another", 4096),
        Question::Delete {
            operation,
            owner_uid: uid,
            name: name(),
        },
        Question::Rename {
            operation,
            owner_uid: uid,
            old: name(),
            new: "mine".into(),
        },
        Question::Open {
            owner_uid: uid,
            name: name(),
            access,
        },
        Question::List,
        Question::Info,
        Question::Quota { uid },
        Question::Freeze,
        Question::Defrag,
        Question::Check,
        Question::Thaw { freeze: 1 },
        Question::Status,
        Question::Revoke { grant },
        // Handed on, it is not handed on again.
        Question::HandOn {
            handle: theirs.into(),
            access,
        },
    ] {
        assert_eq!(other.refusal(&question), "EACCES", "{question:?}");
    }
    other.pose(&Question::Cancel { question: 1 });
    assert!(matches!(
        other.ask(&Question::Size { handle: theirs.into() }),
        Answer::Count { .. }
    ));
    assert_eq!(other.other_answers(), 0, "a cancel has no answer of its own");
    // Opened to read, though it was handed on to write.
    assert_eq!(
        other.write(theirs, 0, &[2; BLOCK as usize]).result,
        Err(Failure::ReadOnly)
    );
    house.ends();
}

#[test]
fn a_handle_of_another_session_is_none_here() {
    let (house, mut client, handle) = with_one();
    let second = client.made("second", 1 << 20);
    let (_, wire) = hand_on(&mut client, handle, Access::Write);
    let mut other = wire.greet(&hello()).unwrap();
    let entry = other.entry(Op::Read, 0, HandleWords::default(), 0);
    assert_eq!(other.run(&entry).result, Err(Failure::Stale), "not before it is opened");
    open_it(&mut other, Access::Write).unwrap();
    let entry = other.entry(Op::Read, 0, second, 0);
    assert_eq!(other.run(&entry).result, Err(Failure::Stale));
    house.ends();
}

#[test]
fn what_is_taken_back_ends() {
    let (house, mut client, handle) = with_one();
    let mut victim = Victim::new(&house);
    let (grant, wire) = hand_on(&mut client, handle, Access::Write);
    let mut other = wire.greet(&hello()).unwrap();
    open_it(&mut other, Access::Write).unwrap();
    // Nobody else can take it back, whatever number they guess.
    for guess in 0..10 {
        assert_eq!(victim.client.ask(&Question::Revoke { grant: guess }), Answer::Done);
    }
    assert!(matches!(
        other.ask(&Question::Size {
            handle: HandleWords::default().into()
        }),
        Answer::Count { .. }
    ));
    assert_eq!(client.ask(&Question::Revoke { grant }), Answer::Done);
    other.goes_out("it was taken back");
    assert_eq!(client.ask(&Question::Revoke { grant }), Answer::Done, "again");
    // Before anybody has said hello by it, and before it was opened.
    let (grant, wire) = hand_on(&mut client, handle, Access::Write);
    assert_eq!(client.ask(&Question::Revoke { grant }), Answer::Done);
    wire.goes_out("taken back at once");
    let (grant, wire) = hand_on(&mut client, handle, Access::Write);
    let greeted = wire.greet(&hello()).unwrap();
    assert_eq!(client.ask(&Question::Revoke { grant }), Answer::Done);
    greeted.goes_out("taken back before it was opened");
    assert_eq!(client.read(handle, 0, BLOCK).0.result, Ok(BLOCK));
    drop(client);
    victim.is_left_with(1);
    house.ends();
}

/// Writes wait for a volume that is kept still while the handle is taken back. None lands after the answer.
#[test]
fn nothing_lands_after_it_was_taken_back() {
    let (house, mut client, handle) = with_one();
    let mut keeper = house.client();
    let (grant, wire) = hand_on(&mut client, handle, Access::Write);
    let mut other = wire.greet(&hello()).unwrap();
    let theirs = open_it(&mut other, Access::Write).unwrap();
    let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
        panic!()
    };
    other.memory.arena().unwrap().copy_in(&vec![9; 64 * BLOCK as usize]);
    for place in 0..64 {
        let entry = other.entry(Op::Write, place, theirs, u64::from(place) * u64::from(BLOCK));
        other.push(&entry.encode());
    }
    other.publish();
    other.is_taken();
    assert_eq!(client.ask(&Question::Revoke { grant }), Answer::Done);
    assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
    let (ended, bytes) = client.read(handle, 0, 64 * BLOCK);
    assert_eq!(ended.result, Ok(64 * BLOCK));
    assert!(bytes.iter().all(|byte| *byte != 9), "a write has landed");
    other.goes_out("it was taken back");
    house.ends();
}

#[test]
fn what_was_handed_on_ends_with_who_did() {
    let (house, mut client, handle) = with_one();
    let mut victim = Victim::new(&house);
    let (_, silent) = hand_on(&mut client, handle, Access::Read);
    let (_, wire) = hand_on(&mut client, handle, Access::Write);
    let mut other = wire.greet(&hello()).unwrap();
    open_it(&mut other, Access::Write).unwrap();
    drop(client);
    other.goes_out("who handed it on has gone");
    silent.goes_out("the same");
    victim.is_left_with(1);
    victim.goes_on();
    house.ends();
}

#[test]
fn who_has_it_may_break_its_own_session_only() {
    let (house, mut client, handle) = with_one();
    let mut victim = Victim::new(&house);
    let (grant, wire) = hand_on(&mut client, handle, Access::Write);
    let mut other = wire.greet(&hello()).unwrap();
    let theirs = open_it(&mut other, Access::Write).unwrap();
    let mut entry = other.entry(Op::Read, 0, theirs, 0).encode();
    entry[7] = 1;
    other.submit_raw(&entry);
    other.goes_out("a reserved word");
    assert_eq!(client.read(handle, 0, BLOCK).0.result, Ok(BLOCK));
    assert_eq!(client.ask(&Question::Revoke { grant }), Answer::Done);
    let (_, wire) = hand_on(&mut client, handle, Access::Write);
    let mut again = wire.greet(&hello()).unwrap();
    let theirs = open_it(&mut again, Access::Write).unwrap();
    // Closed by itself, and dropped.
    again.close(theirs);
    again.is_taken();
    assert_eq!(open_it(&mut again, Access::Write), Err("EACCES".to_owned()));
    drop((again, client));
    victim.is_left_with(1);
    victim.goes_on();
    house.ends();
}

#[test]
fn what_is_handed_on_counts_among_the_connections_of_who_does() {
    let house = House::with(baio_broker::host::Options {
        clients_of_one_max: 4,
        ..Default::default()
    });
    let mut victim = Victim::new(&house);
    let mut client = house.client();
    let handle = client.made("shared", 4096);
    let access = Access::Read;
    let handed = [(); 2].map(|()| hand_on(&mut client, handle, access));
    assert_eq!(
        client.refusal(&Question::HandOn {
            handle: handle.into(),
            access
        }),
        "EAGAIN"
    );
    drop(handed);
    drop(client);
    victim.is_left_with(1);
    house.ends();
}
