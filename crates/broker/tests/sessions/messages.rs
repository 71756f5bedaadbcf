//! Datagrams of any bytes, with any descriptors.

use std::os::fd::{AsFd, BorrowedFd};

use baio_words::session::{Answer, FromClient, MESSAGE_MAX, Question};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::house::{House, Victim, alone_lacking, descriptors, until};
use crate::raw::{Told, create};
use crate::rings::goes_out;

#[test]
fn messages_that_are_too_long_end_the_session() {
    let good = Question::Info.encode(1).unwrap();
    for len in [MESSAGE_MAX, MESSAGE_MAX + 1, 2 * MESSAGE_MAX] {
        goes_out("a good beginning, and too much behind it", 4, |client, _| {
            let mut message = good.clone();
            message.resize(len, 0);
            assert!(client.wire.send(&message));
        });
    }
}

#[test]
fn every_part_of_a_message_ends_the_session() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let whole = create(0, "cut off", 4096).encode(7).unwrap();
    // One byte is a doorbell, and none the end.
    for len in 2..whole.len() {
        let client = house.client();
        assert!(client.wire.send(&whole[..len]));
        client.goes_out("a part");
    }
    victim.is_left_with(1);
    assert_eq!(victim.row().violations, whole.len() as u64 - 2);
    victim.goes_on();
    house.ends();
}

#[test]
fn what_only_a_broker_says_ends_the_session() {
    goes_out("an answer", 4, |client, _| {
        assert!(client.wire.send(&Answer::Done.encode(1).unwrap()));
    });
    goes_out("a welcome", 4, |client, _| {
        let welcome = client.welcome.encode();
        assert!(client.wire.send(&welcome));
    });
}

#[test]
fn an_empty_datagram_is_the_end() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let client = house.client();
    client.wire.send(&[]);
    client.goes_out("nothing");
    victim.is_left_with(1);
    house.ends();
}

/// Messages of any bytes, many of them with a kind that there is. What decodes is answered or does nothing, and the session goes
/// on; what does not ends it.
#[test]
fn any_bytes_are_a_message_or_the_end() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let kinds = proptest::sample::select((0x0100..=0x0114_u16).collect::<Vec<_>>());
    let kind = prop_oneof![4 => kinds, 1 => any::<u16>()];
    let body = proptest::collection::vec(prop_oneof![2 => Just(0), 1 => any::<u8>()], 0..48);
    let head = (kind, prop_oneof![9 => Just(0_u16), 1 => any::<u16>()], any::<u32>());
    let message = (head, body).prop_map(|((kind, zero, id), body)| {
        let mut message = Vec::new();
        message.extend(kind.to_le_bytes());
        message.extend(zero.to_le_bytes());
        message.extend(id.to_le_bytes());
        message.extend(body);
        message
    });
    let any_message = prop_oneof![3 => message, 1 => proptest::collection::vec(any::<u8>(), 2..200)];
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 1_500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let told = runner.run(&any_message, |message| {
        let mut client = house.client();
        prop_assert!(client.wire.send(&message));
        match FromClient::decode(&message) {
            Ok(FromClient::Question { id, question }) => {
                if !matches!(question, Question::Cancel { .. }) {
                    client.answer_with(id);
                }
                // It goes on. Another id: that may be taken.
                client.ids_from(id.wrapping_add(1));
                let info = client.ask(&Question::Info);
                prop_assert!(matches!(info, Answer::Volume(_)));
            }
            Ok(FromClient::Doorbell) => {}
            Ok(FromClient::Hello(_)) | Err(_) => client.goes_out("any bytes"),
        }
        Ok(())
    });
    told.unwrap();
    victim.is_left_with(1);
    victim.goes_on();
    house.ends();
}

#[test]
fn descriptors_that_come_with_messages_are_nobodys() {
    alone_lacking("refused_rights", || {
        let house = House::new();
        let mut victim = Victim::new(&house);
        let (null, before) = (std::fs::File::open("/dev/null").unwrap(), descriptors());
        let many: Vec<BorrowedFd<'_>> = (0..250).map(|_| null.as_fd()).collect();
        {
            // With the hello already.
            let wire = house.wire();
            assert!(wire.send_with(&crate::raw::hello().encode(), &many));
            assert!(matches!(wire.receive(), Told::Message(..)));
            let mut client = house.client();
            // Its welcome is behind it, and the descriptor that came with that.
            client.ask(&Question::Info);
            let with_client = descriptors();
            for count in [1, 2, 250] {
                assert!(client.wire.send_with(&[1], &many[..count]));
                let question = Question::Info.encode(1000 + count as u32).unwrap();
                assert!(client.wire.send_with(&question, &many[..count]));
                client.answer(1000 + count as u32);
            }
            assert_eq!(descriptors(), with_client);
            assert!(client.wire.send_with(&[7; 100], &many));
            client.goes_out("no message, with descriptors");
        }
        victim.is_left_with(1);
        until("all descriptors are closed", || descriptors() == before);
        victim.goes_on();
        house.ends();
    });
}

/// Where the kernel can say so, none comes at all: neither by the broker's own socket, nor by one that was handed on.
#[test]
fn descriptors_are_refused_where_the_kernel_refuses_any() {
    use baio_process::kernel::{Feature, lacking};
    let house = House::new();
    let mut victim = Victim::new(&house);
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut client = house.client();
    let is_refused = !client.wire.send_with(&[1], &[null.as_fd()]);
    let cannot = lacking().any(|line| line.feature == Feature::RefusedRights);
    assert_eq!(is_refused, !cannot);
    let handle = client.made("its own", 1 << 20);
    let id = client.pose(&Question::HandOn {
        handle: handle.into(),
        access: baio_words::Access::Read,
    });
    let (_, mut fds) = client.answer_with(id);
    let handed_on = crate::raw::Wire::of(fds.remove(0));
    assert_eq!(handed_on.send_with(&[1], &[null.as_fd()]), cannot);
    // It goes on, as if nothing had been sent.
    assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    victim.goes_on();
    house.ends();
}

#[test]
fn a_storm_of_doorbells_delays_nobody_for_ever() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut storming = house.narrow(4);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (wire, is_over) = (&storming.wire, &is_over);
        scope.spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                wire.try_send(&[1]);
            }
        });
        for _ in 0..20 {
            victim.goes_on();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(matches!(storming.ask(&Question::Info), Answer::Volume(_)));
    house.ends();
}
