//! How much a client may ask at a time, and what it may always ask.

use baio_broker::host::Options;
use baio_words::session::{Answer, Question};
use baio_words::{CreateOptions, Limits, OperationName, ResizeOptions};

use crate::house::{House, Victim};
use crate::raw::create;

const MOST: u32 = 4;

fn house() -> House {
    House::with(Options {
        questions_max: MOST,
        ..Options::default()
    })
}

#[test]
fn one_question_too_many_is_refused_and_no_other() {
    let house = house();
    let mut victim = Victim::new(&house);
    let (mut keeper, mut client) = (house.client(), house.client());
    assert_eq!(client.welcome.questions_max, MOST);
    let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
        panic!()
    };
    let uid = client.uid();
    let waiting: Vec<u32> = (0..MOST)
        .map(|at| client.pose(&create(uid, &format!("s{at}"), 4096)))
        .collect();
    assert_eq!(client.refusal(&Question::Info), "EAGAIN");
    assert_eq!(client.refusal(&create(uid, "one more", 4096)), "EAGAIN");
    // A cancel has no answer of its own, also now. What it ends makes room for one more.
    client.pose(&Question::Cancel { question: waiting[0] });
    assert!(matches!(client.answer(waiting[0]), Answer::Failed(_)));
    assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    assert_eq!(client.other_answers(), 0);
    // Others ask as ever.
    assert!(matches!(victim.client.ask(&Question::Info), Answer::Volume(_)));
    assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
    for id in &waiting[1..] {
        assert!(matches!(client.answer(*id), Answer::Segment { .. }));
    }
    assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    victim.goes_on();
    house.ends();
}

/// What it has asked waits for its own thaw.
#[test]
fn who_has_asked_all_that_it_may_can_still_thaw() {
    let house = house();
    let mut client = house.client();
    let Answer::Frozen { freeze } = client.ask(&Question::Freeze) else {
        panic!()
    };
    let uid = client.uid();
    let waiting: Vec<u32> = (0..MOST)
        .map(|at| client.pose(&create(uid, &format!("s{at}"), 4096)))
        .collect();
    assert_eq!(client.ask(&Question::Thaw { freeze }), Answer::Done);
    for id in waiting {
        let answer = client.answer(id);
        assert!(matches!(answer, Answer::Segment { .. }), "{answer:?}");
    }
    house.ends();
}

#[test]
fn a_cancel_of_nothing_does_nothing() {
    let house = House::new();
    let mut client = house.client();
    for question in [0, 1, u32::MAX] {
        client.pose(&Question::Cancel { question });
    }
    assert!(matches!(client.ask(&Question::Info), Answer::Volume(_)));
    assert_eq!(client.other_answers(), 0);
    house.ends();
}

/// Sizes, names and modes at their ends. Whatever comes of them is an answer.
#[test]
fn questions_of_any_numbers_are_answered() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut client = house.client();
    let uid = client.uid();
    let long = "n".repeat(255);
    for name in ["", ".", "..", "a/b", "nul\0", "new\nline", "\u{feff}", &*long] {
        for size_bytes in [0, 1, 1 << 40, u64::MAX - 1, u64::MAX] {
            let operation = OperationName::NONE;
            for reserve_bytes in [0, u64::MAX] {
                client.ask(&Question::Create {
                    operation,
                    owner_uid: u32::MAX,
                    name: name.to_owned(),
                    options: CreateOptions {
                        reserve_bytes,
                        mode: u32::MAX,
                        group: Some(u32::MAX),
                        ..CreateOptions::of_size(size_bytes)
                    },
                });
            }
            client.ask(&create(uid, name, size_bytes));
            client.ask(&Question::Resize {
                operation,
                owner_uid: uid,
                name: name.to_owned(),
                options: ResizeOptions {
                    reserve_bytes: Some(size_bytes),
                    ..ResizeOptions::to_size(u64::MAX - size_bytes)
                },
            });
            client.ask(&Question::Delete {
                operation,
                owner_uid: uid,
                name: name.to_owned(),
            });
        }
    }
    for number in [0, 1, u64::MAX] {
        let (blocks, segments) = (Some(number), Some(u64::MAX));
        client.ask(&Question::SetQuota {
            uid: 7,
            limits: Limits { blocks, segments },
        });
        client.ask(&Question::Thaw { freeze: number });
        client.ask(&Question::Revoke { grant: number });
        client.ask(&Question::Quota { uid: number as u32 });
    }
    victim.goes_on();
    house.ends();
}
