//! The promise: a request that waits for a slot of the service ends like any other, at its deadline or when it is cancelled,
//! also when a hung device has every slot; and what has neither is not held for ever by requests that were answered long ago.

mod support;

use std::time::Duration;

use baio_engine::Error;
use baio_words::Failure;
use baio_words::entry::{HandleWords, Op, Submission};
use support::machine::{Machine, SLOTS};
use support::tested::Tested;
use support::{Client, tag};

of_each! {
    a_held_request_ends_at_its_deadline
    a_held_request_can_be_cancelled
    what_has_no_deadline_is_not_held_for_ever_by_what_was_answered
}

const SECOND: Duration = Duration::from_secs(1);

/// A service every slot of which is with a hung device, for requests that were answered at their deadline.
fn with_every_slot_stuck(tested: Tested, machine: &Machine) -> (Client, HandleWords) {
    let mut client = machine.client_of(tested);
    let handle = client.open();
    machine.hangs(true);
    let deadline = machine.after(SECOND);
    for index in 1..=SLOTS {
        let read = client.read(index, handle);
        client.send(&Submission { deadline, ..read }.encode());
    }
    // Taken, and turned with, before time passes.
    client.settle();
    machine.pass(2 * SECOND);
    for _ in 0..SLOTS {
        let ended = client.next().unwrap();
        assert_eq!(ended.result, Err(Failure::Io(Error::Indeterminate)));
    }
    (client, handle)
}

/// The end of the request at this place, which has its memory back.
fn end_of(client: &mut Client, index: u32) -> Result<u32, Failure> {
    let ended = client.next().unwrap();
    assert_eq!(ended.tag, tag(index));
    assert!(client.connection.shared.exchange.take(index).is_some(), "no memory");
    ended.result
}

fn a_held_request_ends_at_its_deadline(tested: Tested) {
    let machine = Machine::default();
    let (mut client, handle) = with_every_slot_stuck(tested, &machine);
    let deadline = machine.after(100 * SECOND);
    let later = machine.after(200 * SECOND);
    let (first, second) = (client.read(9, handle), client.read(10, handle));
    client.push(
        &Submission {
            deadline: later,
            ..first
        }
        .encode(),
    );
    client.send(&Submission { deadline, ..second }.encode());
    // Both are there, and neither is over.
    client.settle();
    machine.pass(101 * SECOND);
    assert_eq!(end_of(&mut client, 10), Err(Failure::Io(Error::Cancelled)));
    machine.pass(100 * SECOND);
    assert_eq!(end_of(&mut client, 9), Err(Failure::Io(Error::Cancelled)));
    client.goes_on(&machine, handle);
}

fn a_held_request_can_be_cancelled(tested: Tested) {
    let machine = Machine::default();
    let (mut client, handle) = with_every_slot_stuck(tested, &machine);
    for index in 9..=11 {
        let read = client.read(index, handle);
        client.send(&read.encode());
    }
    client.settle();
    // Not its generation: somebody else's.
    let mut other = tag(10);
    other.generation += 1;
    client.send(&Submission::new(Op::Cancel, other).encode());
    client.push(&Submission::new(Op::Cancel, tag(10)).encode());
    client.send(&Submission::new(Op::Cancel, tag(10)).encode());
    assert_eq!(end_of(&mut client, 10), Err(Failure::Io(Error::Cancelled)));
    client.settle();
    // The others are served, in order, when the device is well again.
    machine.hangs(false);
    assert_eq!(end_of(&mut client, 9), Ok(4096));
    assert_eq!(end_of(&mut client, 11), Ok(4096));
    client.goes_on(&machine, handle);
}

fn what_has_no_deadline_is_not_held_for_ever_by_what_was_answered(tested: Tested) {
    let machine = Machine::default();
    let (mut client, handle) = with_every_slot_stuck(tested, &machine);
    // Nobody has waited for a slot until now, so this time is not counted.
    client.settle();
    machine.pass(100 * SECOND);
    let read = client.read(9, handle);
    client.send(&read.encode());
    client.settle();
    machine.pass(29 * SECOND);
    // It is still held: what is asked later is answered first.
    client.settle();
    machine.pass(2 * SECOND);
    assert_eq!(end_of(&mut client, 9), Err(Failure::Io(Error::Full)));
    // Nothing has changed since: the next one need not wait again; one that has a deadline does until then.
    let (hasty, patient) = (client.read(9, handle), client.read(10, handle));
    let deadline = machine.after(100 * SECOND);
    client.push(&Submission { deadline, ..patient }.encode());
    client.send(&hasty.encode());
    assert_eq!(end_of(&mut client, 9), Err(Failure::Io(Error::Full)));
    machine.hangs(false);
    assert_eq!(end_of(&mut client, 10), Ok(4096));
    client.goes_on(&machine, handle);
}

impl Client {
    /// The device is well again: every slot comes back, and the volume is given back in order.
    fn goes_on(mut self, machine: &Machine, handle: HandleWords) {
        machine.hangs(false);
        for index in 1..=SLOTS {
            drop(self.connection.shared.exchange.take(index));
            let read = self.read(index, handle);
            self.send(&read.encode());
        }
        for _ in 0..SLOTS {
            assert_eq!(self.next().unwrap().result, Ok(4096));
        }
        self.close();
    }
}
