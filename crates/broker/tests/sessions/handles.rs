//! What names a segment in one session names nothing, or something else, in another; and nothing when it is closed.

use baio_broker::host::Options;
use baio_words::entry::{HandleWords, Op, Submission};
use baio_words::session::{Answer, Question};
use baio_words::{Access, Failure};

use crate::house::House;
use crate::raw::{BLOCK, Client};

fn is_stale(client: &mut Client, handle: HandleWords) {
    for op in [Op::Read, Op::Write, Op::Sync, Op::Fence] {
        let entry = client.entry(op, 0, handle, 0);
        assert_eq!(client.run(&entry).result, Err(Failure::Stale), "{op:?} {handle:?}");
    }
    assert_eq!(client.refusal(&Question::Size { handle: handle.into() }), "ESTALE");
    let access = Access::Read;
    assert_eq!(
        client.refusal(&Question::HandOn {
            handle: handle.into(),
            access
        }),
        "ESTALE"
    );
}

#[test]
fn a_closed_handle_names_nothing_any_more() {
    let house = House::new();
    let mut client = house.client();
    let first = client.made("one", 1 << 20);
    client.close(first);
    is_stale(&mut client, first);
    // The place is used again, under another number.
    let second = client.open("one", Access::Write);
    assert_ne!(first, second);
    is_stale(&mut client, first);
    client.close(first);
    assert_eq!(client.write(second, 0, &[1; BLOCK as usize]).result, Ok(BLOCK));
    client.close(second);
    client.close(second);
    is_stale(&mut client, second);
    house.ends();
}

#[test]
fn a_guessed_handle_names_nothing() {
    let house = House::new();
    let mut client = house.client();
    let HandleWords { index, generation } = client.made("one", 1 << 20);
    for (index, generation) in [
        (index, generation.wrapping_add(1)),
        (index, generation.wrapping_sub(1)),
        (index + 1, generation),
        (u32::MAX, 0),
        (u32::MAX, u32::MAX),
    ] {
        is_stale(&mut client, HandleWords { index, generation });
    }
    house.ends();
}

#[test]
fn the_same_name_is_another_segment_in_another_session() {
    let house = House::new();
    let (mut one, mut other) = (house.client(), house.client());
    let of_one = [one.made("a", 1 << 20), one.made("b", 1 << 20)];
    let of_other = other.made("c", 1 << 20);
    assert_eq!(of_one[0], of_other, "each table begins anew");
    one.write(of_one[0], 0, &[1; BLOCK as usize]);
    other.write(of_other, 0, &[2; BLOCK as usize]);
    assert_eq!(one.read(of_one[0], 0, BLOCK).1, [1; BLOCK as usize]);
    is_stale(&mut other, of_one[1]);
    // Closing it closes nobody else's.
    other.close(of_one[1]);
    other.close(of_one[0]);
    assert_eq!(one.read(of_one[0], 0, BLOCK).1, [1; BLOCK as usize]);
    assert_eq!(one.read(of_one[1], 0, BLOCK).0.result, Ok(BLOCK));
    house.ends();
}

#[test]
fn a_handle_to_read_does_not_write() {
    let house = House::new();
    let mut client = house.client();
    let handle = client.made("one", 1 << 20);
    client.close(handle);
    let handle = client.open("one", Access::Read);
    assert_eq!(client.read(handle, 0, BLOCK).0.result, Ok(BLOCK));
    assert_eq!(
        client.write(handle, 0, &[1; BLOCK as usize]).result,
        Err(Failure::ReadOnly)
    );
    for op in [Op::Zero, Op::Discard] {
        let entry = Submission {
            len: 4096,
            ..client.entry(op, 0, handle, 0)
        };
        assert_eq!(client.run(&entry).result, Err(Failure::ReadOnly));
    }
    house.ends();
}

/// The volume is kept still, so writes wait, more than there are slots. What was asked before the close is done.
#[test]
fn a_handle_is_closed_behind_what_was_asked_of_it() {
    let house = House::new();
    let mut keeper = house.client();
    let mut client = house.narrow(64);
    let handle = client.made("one", 1 << 20);
    let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
        panic!()
    };
    client.memory.arena().unwrap().copy_in(&vec![5; 64 * BLOCK as usize]);
    for place in 0..64 {
        let entry = client.entry(Op::Write, place, handle, u64::from(place) * u64::from(BLOCK));
        client.push(&entry.encode());
    }
    let close = Submission {
        handle,
        ..Submission::new(Op::CloseHandle, Default::default())
    };
    client.push(&close.encode());
    client.publish();
    client.is_taken();
    assert_eq!(client.refusal(&Question::Size { handle: handle.into() }), "ESTALE");
    assert!(client.posted().is_none());
    assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
    for _ in 0..64 {
        assert_eq!(client.next().unwrap().result, Ok(BLOCK));
    }
    let again = client.open("one", Access::Write);
    assert_eq!(client.read(again, 63 * u64::from(BLOCK), BLOCK).1, [5; BLOCK as usize]);
    is_stale(&mut client, handle);
    house.ends();
}

#[test]
fn a_session_has_so_many_handles() {
    let house = House::with(Options {
        handles_max: 3,
        ..Options::default()
    });
    let mut client = house.client();
    let mut handles = vec![client.made("one", 4096)];
    handles.extend((0..2).map(|_| client.open("one", Access::Read)));
    let uid = client.uid();
    assert_eq!(client.open_of(uid, "one", Access::Read), Err("EMFILE".to_owned()));
    client.close(handles[1]);
    client.is_taken();
    handles.push(client.open("one", Access::Read));
    assert_eq!(client.open_of(uid, "one", Access::Read), Err("EMFILE".to_owned()));
    // All at once: those on their way count.
    let mut other = house.client();
    let name = "one".to_owned();
    let open = Question::Open {
        owner_uid: uid,
        name,
        access: Access::Read,
    };
    let ids: Vec<u32> = (0..10).map(|_| other.pose(&open)).collect();
    let opened = ids
        .into_iter()
        .filter(|id| matches!(other.answer(*id), Answer::Opened { .. }));
    assert_eq!(opened.count(), 3);
    house.ends();
}
