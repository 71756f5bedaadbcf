//! Who is let in: the first message of each side.

use baio_words::entry::{HandleWords, Op};
use baio_words::session::{Answer, FEATURE_GROW, FEATURE_LOGS, FEATURE_OWNERSHIP, GOES_ON, Hello, Question};
use baio_words::{Access, Failure, OperationName, OwnershipChange, ResizeOptions};

use crate::house::{House, Victim};
use crate::raw::{Told, hello};

#[test]
fn a_welcome_says_what_the_session_has() {
    let house = House::new();
    let client = house.client();
    let welcome = &client.welcome;
    assert_eq!((welcome.version, welcome.features), (1, 0));
    assert_eq!(welcome.uid, rustix::process::geteuid().as_raw());
    assert_eq!((welcome.places, welcome.questions_max), (256, 32));
    assert_eq!((welcome.arena_bytes, &*welcome.volume), (4 << 20, "volume"));
    assert!(!welcome.cached && welcome.block_size.is_power_of_two());
    assert_eq!(
        rustix::fs::fstat(client.memfd()).unwrap().st_size,
        welcome.memory_bytes as i64
    );
    house.ends();
}

#[test]
fn what_a_hello_wants_is_cut_to_what_there_is() {
    let house = House::new();
    let wants = |places, arena_bytes| {
        let hello = Hello {
            places,
            arena_bytes,
            ..hello()
        };
        let client = house.wire().greet(&hello).unwrap();
        (client.welcome.places, client.welcome.arena_bytes)
    };
    assert_eq!(wants(u32::MAX, u64::MAX), (256, 4 << 20));
    assert_eq!(wants(1, 1), (1, 256 << 10));
    assert_eq!(wants(7, 1 << 20), (7, 1 << 20));
    house.ends();
}

#[test]
fn versions_meet_or_the_client_is_told() {
    let house = House::new();
    let speaks = |version_min, version_max| {
        let hello = Hello {
            version_min,
            version_max,
            ..hello()
        };
        house.wire().greet(&hello).map(|client| client.welcome.version)
    };
    assert_eq!(speaks(0, u16::MAX).unwrap(), 1);
    assert_eq!(speaks(1, 7).unwrap(), 1);
    for (min, max) in [(2, 9), (0, 0), (9, 2)] {
        assert_eq!(speaks(min, max).unwrap_err().code, "EPROTONOSUPPORT");
    }
    house.ends();
}

#[test]
fn features_that_the_broker_does_not_know_are_left_out() {
    let house = House::new();
    let hello = Hello {
        features: u64::MAX,
        ..hello()
    };
    assert_eq!(
        house.wire().greet(&hello).unwrap().welcome.features,
        GOES_ON | FEATURE_LOGS | FEATURE_OWNERSHIP | FEATURE_GROW
    );
    assert_eq!(house.wire().greet(&self::hello()).unwrap().welcome.features, 0);
    house.ends();
}

#[test]
fn what_comes_with_a_feature_is_a_violation_without_it() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let open_known = Question::OpenKnown {
        owner_uid: victim.client.uid(),
        name: "canary".into(),
        access: Access::Read,
        identity: None,
    };
    let grow = Question::Resize {
        operation: OperationName::NONE,
        owner_uid: victim.client.uid(),
        name: "canary".into(),
        options: ResizeOptions::grown_to(1 << 20),
    };
    let own = Question::ChangeOwnership {
        operation: OperationName::NONE,
        owner_uid: victim.client.uid(),
        name: "canary".into(),
        change: OwnershipChange::of_mode(0o666),
    };
    for question in [Question::Opening, open_known.clone(), grow, own] {
        let client = house.client();
        assert!(client.wire.send(&question.encode(1).unwrap()));
        client.goes_out("a question of a feature that it has not");
    }
    assert_eq!(victim.row().violations, 4);
    let hello = Hello {
        features: GOES_ON,
        ..hello()
    };
    let mut client = house.wire().greet(&hello).unwrap();
    assert!(matches!(client.ask(&Question::Opening), Answer::Opening { .. }));
    assert!(matches!(client.ask(&open_known), Answer::OpenedKnown { .. }));
    victim.goes_on();
    house.ends();
}

#[test]
fn a_volume_is_found_by_the_name_it_is_served_under() {
    let house = House::new();
    let named = |volume: &str| {
        let hello = Hello {
            volume: volume.to_owned(),
            ..hello()
        };
        house.wire().greet(&hello).map(drop)
    };
    named("volume").unwrap();
    assert_eq!(named("another").unwrap_err().code, "ENOENT");
    let failed = named("/etc/passwd").unwrap_err();
    assert!(
        !failed.what.contains("/tmp") && !failed.object.contains("/tmp"),
        "{failed:?}"
    );
    house.ends();
}

#[test]
fn a_first_message_that_is_no_hello_ends_the_connection() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let good = hello().encode();
    let mut other_magic = good.clone();
    other_magic[8] = b'B';
    let mut with_id = good.clone();
    with_id[4] = 1;
    let mut longer = good.clone();
    longer.push(0);
    let mut reserved = good.clone();
    reserved[2] = 1;
    for (what, message) in [
        ("a doorbell", vec![1]),
        ("two bytes", vec![1, 0]),
        ("a question", Question::Info.encode(1).unwrap()),
        ("another magic", other_magic),
        ("an id", with_id),
        ("a byte behind it", longer),
        ("half of it", good[..good.len() / 2].to_vec()),
        ("a reserved byte", reserved),
    ] {
        let wire = house.wire();
        assert!(wire.send(&message));
        assert!(matches!(wire.receive(), Told::End), "{what}");
    }
    victim.is_left_with(1);
    assert_eq!(victim.row().violations, 8);
    victim.goes_on();
    house.ends();
}

#[test]
fn a_second_hello_ends_the_session() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let client = house.client();
    assert!(client.wire.send(&hello().encode()));
    client.goes_out("a second hello");
    victim.is_left_with(1);
    victim.goes_on();
    house.ends();
}

#[test]
fn a_request_is_taken_though_nothing_was_ever_asked() {
    let house = House::new();
    for _ in 0..10 {
        let mut client = house.client();
        let entry = client.entry(Op::Sync, 0, HandleWords::default(), 0);
        assert_eq!(client.run(&entry).result, Err(Failure::Stale));
    }
    house.ends();
}

/// What a client sends behind its hello is not read any more, and does not keep it from reading why.
#[test]
fn who_is_refused_reads_why_whatever_it_has_sent() {
    let house = House::new();
    for _ in 0..20 {
        let wire = house.wire();
        let hello = Hello {
            version_min: 2,
            version_max: 2,
            ..hello()
        };
        assert!(wire.send(&hello.encode()));
        for id in 0..20 {
            wire.try_send(&Question::Info.encode(id).unwrap());
        }
        assert_eq!(wire.greeted().err().unwrap().code, "EPROTONOSUPPORT");
    }
    house.ends();
}

/// Nor does it keep who breaks a rule from reading what it was answered before.
#[test]
fn who_is_ended_reads_what_it_was_answered_before() {
    let house = House::new();
    for _ in 0..20 {
        let mut client = house.client();
        let id = client.pose(&Question::Info);
        assert!(client.wire.send(&[7; 100]));
        for id in 100..120 {
            client.wire.try_send(&Question::Info.encode(id).unwrap());
        }
        client.answer(id);
        client.goes_out("no message");
    }
    house.ends();
}

#[test]
fn no_client_gets_more_places_than_tags_tell_apart() {
    let house = House::with(baio_broker::host::Options {
        places_max: 1 << 21,
        ..Default::default()
    });
    assert_eq!(house.client().welcome.places, 1 << 20);
    house.ends();
}
