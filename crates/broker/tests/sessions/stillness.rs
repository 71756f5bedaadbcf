//! A volume that is kept still: writers wait, readers do not, and nobody keeps it still from the grave.

use baio_words::entry::Op;
use baio_words::session::{Answer, Question};

use crate::house::{House, Victim, until};
use crate::raw::{BLOCK, Client, create};

fn freeze(client: &mut Client) -> u64 {
    let answer = client.ask(&Question::Freeze);
    let Answer::Frozen { freeze } = answer else {
        panic!("{answer:?}")
    };
    freeze
}

#[test]
fn writers_wait_and_readers_do_not() {
    let house = House::new();
    let (mut keeper, mut client) = (house.client(), house.client());
    let handle = client.made("one", 1 << 20);
    let held = freeze(&mut keeper);
    let write = client.entry(Op::Write, 1, handle, 0);
    client.submit(&write);
    let uid = client.uid();
    let making = client.pose(&create(uid, "two", 4096));
    for _ in 0..5 {
        let read = client.entry(Op::Read, 2, handle, 0);
        assert_eq!(client.run(&read).result, Ok(BLOCK), "and the write has not ended");
    }
    assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    assert_eq!(client.other_answers(), 0, "nothing is made");
    assert_eq!(keeper.ask(&Question::Thaw { freeze: held }), Answer::Done);
    assert_eq!(client.next().unwrap().tag, write.tag);
    assert!(matches!(client.answer(making), Answer::Segment { .. }));
    house.ends();
}

#[test]
fn who_dies_lets_the_volume_go_on() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    for _ in 0..10 {
        let mut keeper = house.client();
        freeze(&mut keeper);
        freeze(&mut keeper);
        drop(keeper);
        victim.goes_on();
    }
    // And who is ended for what it did.
    let mut keeper = house.client();
    freeze(&mut keeper);
    keeper.submit_raw(&[u64::MAX; 8]);
    keeper.goes_out("all ones");
    victim.goes_on();
    house.ends();
}

#[test]
fn it_goes_on_with_the_last_who_kept_it() {
    let house = House::new();
    let (mut one, mut other, mut client) = (house.client(), house.client(), house.client());
    let handle = client.made("one", 1 << 20);
    let (first, second) = (freeze(&mut one), freeze(&mut other));
    assert_ne!(first, second);
    let write = client.entry(Op::Write, 1, handle, 0);
    client.submit(&write);
    // The other's number is not one's own to give back.
    assert_eq!(one.ask(&Question::Thaw { freeze: second }), Answer::Done);
    assert_eq!(one.ask(&Question::Thaw { freeze: first }), Answer::Done);
    let read = client.entry(Op::Read, 2, handle, 0);
    assert_eq!(client.run(&read).result, Ok(BLOCK), "and the write still waits");
    assert_eq!(other.ask(&Question::Thaw { freeze: second }), Answer::Done);
    assert_eq!(client.next().unwrap().tag, write.tag);
    house.ends();
}

#[test]
fn a_broker_ends_though_the_volume_is_kept_still_and_writers_wait() {
    let house = House::new();
    let (mut keeper, mut client) = (house.client(), house.narrow(64));
    let handle = client.made("one", 1 << 20);
    freeze(&mut keeper);
    for place in 0..64 {
        let entry = client.entry(Op::Write, place, handle, 0);
        client.push(&entry.encode());
    }
    client.publish();
    client.is_taken();
    let uid = client.uid();
    client.pose(&create(uid, "two", 4096));
    house.stop();
    client.goes_out("the end");
    until("the memory is let go", || client.posted().is_none());
    house.ends();
}
