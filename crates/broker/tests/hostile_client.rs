//! The service against a client that speaks to the rings directly: what a correct one sends is served; whatever a wrong
//! one sends ends its connection, touches nothing, and gives the volume back.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use baio_broker::control::{Call, Reply};
use baio_ring::exchange::Parcel;
use baio_ring::ring::Cursor;
use baio_storage::{Answer, Command};
use baio_words::Failure;
use baio_words::entry::{HandleWords, Op, Place, Submission, Tag};
use support::machine::{Machine, SLOTS};
use support::{Client, PLACES, tag};

#[test]
fn a_correct_client_is_served() {
    let mut client = Client::new();
    let handle = client.open();
    let mut write = client.read(1, handle);
    write.op = Op::Write;
    client.send(&write.encode());
    let written = client.next().unwrap();
    assert_eq!(
        (written.tag, written.result, written.bytes_done),
        (tag(1), Ok(4096), 4096)
    );
    drop(client.connection.shared.exchange.take(1));
    // A stale handle is no violation; neither is a range that cannot be.
    let stale = HandleWords {
        generation: handle.generation + 1,
        ..handle
    };
    let read = client.read(2, stale);
    client.send(&read.encode());
    assert_eq!(client.next().unwrap().result, Err(Failure::Stale));
    drop(client.connection.shared.exchange.take(2));
    let mut far = client.read(2, handle);
    (far.op, far.offset) = (Op::Write, u64::MAX);
    client.send(&far.encode());
    assert_eq!(client.next().unwrap().result, Err(Failure::Beyond { size: 64 << 10 }));
    assert!(client.ask(Call::Close).is_done());
    assert!(client.next().is_none());
}

#[test]
fn bytes_that_are_no_entry_end_the_connection() {
    let mut client = Client::new();
    client.push(&[u64::MAX; 8]);
    client.goes_out("all ones");
    let mut client = Client::new();
    client.push(&[0; 8]);
    client.goes_out("all zeroes");
    let mut client = Client::new();
    client.push(&Submission::new(Op::Sync, tag(PLACES + 1)).encode());
    client.goes_out("a place that does not exist");
}

#[test]
fn memory_that_is_not_the_entrys_ends_the_connection() {
    let mut client = Client::new();
    let handle = client.open();
    let mut read = client.read(1, handle);
    let Place::Arena { at, .. } = read.place else {
        unreachable!()
    };
    read.place = Place::Arena {
        at: at + 4096,
        len: 4096,
    };
    client.push(&read.encode());
    client.goes_out("another run of the arena");

    let mut client = Client::new();
    let handle = client.open();
    let mut read = client.read(1, handle);
    read.place = Place::Arena { at, len: 8192 };
    client.push(&read.encode());
    client.goes_out("more than its own");

    let mut client = Client::new();
    let handle = client.open();
    let read = client.read(1, handle);
    drop(client.connection.shared.exchange.take(1));
    client.push(&read.encode());
    client.goes_out("nothing in the exchange");

    let mut client = Client::new();
    client.push(&Submission::new(Op::Control, tag(0)).encode());
    client.goes_out("a command that is not there");
}

#[test]
fn a_tag_in_use_ends_the_connection() {
    let mut client = Client::new();
    let handle = client.open();
    let sync = Submission {
        handle,
        ..Submission::new(Op::Sync, tag(1))
    };
    client.push(&sync.encode());
    client.push(&sync.encode());
    client.goes_out("one tag twice");
}

#[test]
fn completions_that_nobody_takes_end_the_connection() {
    let mut client = Client::new();
    let sync = Submission::new(Op::Sync, tag(1)).encode();
    // Each is answered as stale; the ring has room for four.
    for _ in 0..8 {
        client.send(&sync);
        let guard = Instant::now();
        while client.connection.shared.submissions.ring().unread(&client.submissions) > 0
            && !client.connection.shared.has_ended()
        {
            assert!(guard.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        // It is taken; posted before the next one is looked at.
        std::thread::sleep(Duration::from_millis(5));
    }
    client.goes_out("a full ring");
}

#[test]
fn cancelling_what_is_not_there_is_harmless() {
    let mut client = Client::new();
    let handle = client.open();
    for index in 0..PLACES {
        client.send(&Submission::new(Op::Cancel, tag(index)).encode());
    }
    let read = client.read(1, handle);
    client.push(&read.encode());
    client.push(&Submission::new(Op::Cancel, tag(1)).encode());
    client.publish();
    let ended = client.next().unwrap();
    assert_eq!(ended.tag, tag(1), "once, cancelled or not: {:?}", ended.result);
    client.send(
        &Submission {
            handle,
            ..Submission::new(Op::CloseHandle, Tag::default())
        }
        .encode(),
    );
    assert!(matches!(client.ask(Command::Info), Reply::Answer(Answer::Volume(_))));
    assert!(client.ask(Call::Close).is_done());
}

#[test]
fn words_that_an_operation_does_not_use_end_the_connection() {
    let sync = Submission::new(Op::Sync, tag(1)).encode();
    let cancel = Submission::new(Op::Cancel, tag(1)).encode();
    let control = Submission::new(Op::Control, tag(0)).encode();
    let close = Submission::new(Op::CloseHandle, Tag::default()).encode();
    for (what, mut entry, word, value) in [
        ("a sync with an offset", sync, 3, 1),
        ("a cancel with an offset", cancel, 3, 1),
        ("a cancel with a handle", cancel, 2, 1),
        ("a cancel with a deadline", cancel, 5, 1),
        ("a cancel with a mode", cancel, 0, 1 << 8),
        ("a cancel with memory", cancel, 0, 2 << 24 | 1 << 32),
        ("a command with a handle", control, 2, 1 << 32),
        ("a closed handle with a tag", close, 1, 1),
        ("a closed handle with a durability", close, 0, 1 << 16),
        ("a closed handle with an offset in the arena", close, 4, 1),
    ] {
        let mut client = Client::new();
        entry[word] |= value;
        client.push(&entry);
        client.goes_out(what);
    }
}

/// A client that submits while the service takes what it has submitted: here on the service's own thread, so it is always
/// fast enough. Whatever it does, the service turns and publishes after one ring full.
#[test]
fn a_client_that_never_stops_submitting_gets_one_ring_full_a_round() {
    const BATCHES: u32 = 12;
    let machine = Machine::default();
    let mut client = machine.client();
    let handle = client.open();
    // A request under way, so that each round turns the backend.
    machine.hangs(true);
    let read = client.read(SLOTS, handle);
    client.send(&read.encode());

    let shared = Arc::clone(&client.connection.shared);
    let capacity = shared.submissions.ring().capacity();
    let batch = capacity / 4;
    let most = Arc::new(AtomicU32::new(0));
    let (mut turn, mut taken) = (0, 0);
    // To create, to open, to read, and the command below.
    let (mut pushed, mut commands) = (4, 0);
    let (theirs, told) = (machine.clone(), Arc::clone(&most));
    machine.at_explain(move || {
        if turn != theirs.turns() {
            (turn, taken) = (theirs.turns(), 0);
        }
        taken += batch;
        told.fetch_max(taken, Ordering::SeqCst);
        if commands == BATCHES {
            return;
        }
        commands += 1;
        // A new cursor has seen no head: it does not wait for the service to give cells back.
        let ring = shared.submissions.ring();
        let mut cursor = Cursor::starting_at(pushed);
        for _ in 1..batch {
            let cancel = Submission::new(Op::Cancel, tag(0)).encode();
            ring.push(&mut cursor, &cancel).unwrap();
        }
        // Another place than that of the command which is being answered.
        let place = 1 + commands % 2;
        let call = Parcel::Command(Box::new(Call::Counters));
        assert!(shared.exchange.put(place, call));
        let command = Submission::new(Op::Control, tag(place)).encode();
        ring.push(&mut cursor, &command).unwrap();
        let _ = ring.publish(&cursor);
        pushed += batch;
    });
    assert!(matches!(client.ask(Call::Counters), Reply::Counters(..)));
    for command in 1..=BATCHES {
        assert_eq!(client.next().unwrap().tag, tag(1 + command % 2));
    }
    // A batch is counted in the round that takes its end.
    let most = most.load(Ordering::SeqCst);
    assert!(
        most <= capacity + batch,
        "{most} entries in a round, with a ring of {capacity}"
    );

    client.submissions = Cursor::starting_at(4 + BATCHES * batch);
    machine.hangs(false);
    assert_eq!(client.next().unwrap().tag, tag(SLOTS));
    assert!(client.ask(Call::Close).is_done());
}
