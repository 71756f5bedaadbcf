//! What a client does all day.

use std::collections::BTreeSet;

use baio_words::OperationName;
use baio_words::entry::{Op, Place, Submission};
use baio_words::session::{Answer, Question};
use baio_words::{Access, Account, Failure, Hint, Limits, Pattern, ResizeOptions};

use crate::house::House;
use crate::raw::{BLOCK, Client};

fn account(client: &mut Client) -> Account {
    let question = Question::Quota { uid: client.uid() };
    let answer = client.ask(&question);
    let Answer::Account(account) = answer else {
        panic!("{answer:?}")
    };
    account
}

#[test]
fn a_segment_is_made_written_read_resized_renamed_and_deleted() {
    let house = House::new();
    let mut client = house.client();
    let (uid, operation) = (client.uid(), OperationName::NONE);
    let info = client.create("logs", 1 << 20);
    assert_eq!((&*info.name, info.owner_uid, info.size_bytes), ("logs", uid, 1 << 20));
    let handle = client.open("logs", Access::Write);

    let bytes: Vec<u8> = (0..64 << 10).map(|at: u32| at as u8 ^ (at >> 8) as u8).collect();
    assert_eq!(client.write(handle, 8192, &bytes).result, Ok(64 << 10));
    assert_eq!(client.sync(handle).result, Ok(0));
    let (ended, read) = client.read(handle, 8192, 64 << 10);
    assert!(ended.result == Ok(64 << 10) && ended.bytes_done == 64 << 10 && read == bytes);
    let ended = client.write(handle, 1 << 20, &[1; BLOCK as usize]);
    assert_eq!(ended.result, Err(Failure::Beyond { size: 1 << 20 }));
    let (ended, _) = client.read(handle, 1 << 20, BLOCK);
    assert_eq!(ended.result, Ok(0), "nothing is there to read");
    let (ended, _) = client.read(handle, (1 << 20) - u64::from(BLOCK), 2 * BLOCK);
    assert_eq!(
        (ended.result, ended.bytes_done),
        (Ok(BLOCK), BLOCK),
        "as much as there is"
    );

    let resize = Question::Resize {
        operation,
        owner_uid: uid,
        name: "logs".into(),
        options: ResizeOptions::to_size(2 << 20),
    };
    let Answer::Segment { info } = client.ask(&resize) else {
        panic!()
    };
    assert_eq!(info.size_bytes, 2 << 20);
    assert_eq!(
        client.ask(&Question::Size { handle: handle.into() }),
        Answer::Count { value: 2 << 20 }
    );
    let (ended, read) = client.read(handle, 8192, 64 << 10);
    assert!(ended.result == Ok(64 << 10) && read == bytes);

    let rename = Question::Rename {
        operation,
        owner_uid: uid,
        old: "logs".into(),
        new: "old logs".into(),
    };
    let Answer::Segment { info } = client.ask(&rename) else {
        panic!()
    };
    assert_eq!(info.name, "old logs");
    assert_eq!(client.open_of(uid, "logs", Access::Read), Err("ENOENT".to_owned()));

    client.close(handle);
    let delete = Question::Delete {
        operation,
        owner_uid: uid,
        name: "old logs".into(),
    };
    assert!(matches!(client.ask(&delete), Answer::Segment { .. }));
    assert_eq!(client.refusal(&delete), "ENOENT");
    assert_eq!(account(&mut client).used.segments, 0);
    house.ends();
}

#[test]
fn requests_of_all_places_end_each_once() {
    let house = House::new();
    let mut client = house.client();
    let places = client.welcome.places;
    let handle = client.made("wide", u64::from(places) * u64::from(BLOCK));
    for op in [Op::Write, Op::Read] {
        let mut open = BTreeSet::new();
        for place in 0..places {
            let offset = u64::from(place) * u64::from(BLOCK);
            if op == Op::Write {
                let span = client.memory.span(offset, BLOCK).unwrap();
                span.copy_in(&[place as u8; BLOCK as usize]);
            }
            let entry = client.entry(op, place, handle, offset);
            open.insert((entry.tag.index, entry.tag.generation));
            client.push(&entry.encode());
        }
        client.publish();
        while !open.is_empty() {
            let ended = client.next().unwrap();
            assert_eq!(ended.result, Ok(BLOCK));
            assert!(open.remove(&(ended.tag.index, ended.tag.generation)), "twice");
        }
        client.memory.arena().unwrap().copy_in(&vec![0; 1 << 20]);
    }
    let (_, bytes) = client.read(handle, 7 * u64::from(BLOCK), BLOCK);
    assert_eq!(bytes, [7; BLOCK as usize]);
    house.ends();
}

#[test]
fn parts_of_a_segment_are_discarded_and_made_zero() {
    let house = House::new();
    let mut client = house.client();
    let handle = client.made("holes", 1 << 20);
    assert_eq!(client.write(handle, 0, &[7; 64 << 10]).result, Ok(64 << 10));
    for (op, offset) in [(Op::Zero, 0), (Op::Discard, 32 << 10)] {
        let entry = Submission {
            len: 16 << 10,
            place: Place::Nowhere,
            ..client.entry(op, 0, handle, offset)
        };
        assert_eq!(client.run(&entry).result, Ok(0), "{op:?}");
    }
    let (_, bytes) = client.read(handle, 0, 32 << 10);
    assert!(bytes[..16 << 10].iter().all(|byte| *byte == 0));
    assert!(bytes[16 << 10..].iter().all(|byte| *byte == 7));
    house.ends();
}

#[test]
fn a_list_of_long_names_comes_in_pieces() {
    const COUNT: usize = 300;
    let house = House::new();
    let mut client = house.client();
    let mut names = BTreeSet::new();
    for number in 0..COUNT {
        let name = format!("{number:0>255}");
        client.create(&name, 4096);
        names.insert(name);
    }
    let id = client.pose(&Question::List);
    let (mut pieces, mut goes_on) = (0, true);
    while goes_on {
        let Answer::Segments { more, infos } = client.answer(id) else {
            panic!()
        };
        assert!(!infos.is_empty());
        for info in infos {
            assert!(names.remove(&info.name), "twice, or never made: {}", info.name);
        }
        (pieces, goes_on) = (pieces + 1, more);
    }
    assert!(
        names.is_empty() && pieces > 1,
        "{pieces} pieces, {} not told",
        names.len()
    );
    assert_eq!(account(&mut client).used.segments, COUNT as u64);
    house.ends();
}

#[test]
fn a_list_of_nothing_is_one_piece() {
    let house = House::new();
    let mut client = house.client();
    let nothing = Answer::Segments {
        more: false,
        infos: vec![],
    };
    assert_eq!(client.ask(&Question::List), nothing);
    house.ends();
}

#[test]
fn a_quota_holds() {
    let house = House::new();
    let mut client = house.client();
    let uid = client.uid();
    let limit = Question::SetQuota {
        uid,
        limits: Limits {
            blocks: None,
            segments: Some(2),
        },
    };
    assert!(matches!(client.ask(&limit), Answer::Account(_)));
    client.create("one", 4096);
    client.create("two", 4096);
    assert_eq!(client.refusal(&crate::raw::create(uid, "three", 4096)), "EDQUOT");
    let account = account(&mut client);
    assert_eq!((account.used.segments, account.limits.segments), (2, Some(2)));
    house.ends();
}

#[test]
fn hints_reach_the_cache_whatever_they_name() {
    let house = House::cached();
    let mut client = house.client();
    assert!(client.welcome.cached);
    let handle = client.made("warm", 1 << 20);
    let (all, back) = (0..u64::MAX, std::ops::Range { start: 9, end: 3 });
    let far = u64::MAX - 1..u64::MAX;
    let mut hints = vec![Hint::Pattern(Pattern::Random), Hint::Prefetch(vec![])];
    for range in [0..4, all, back, far] {
        hints.push(Hint::Prefetch(vec![range.clone(); 3]));
        hints.push(Hint::Drop(range.clone()));
        hints.push(Hint::Keep(range.clone()));
        hints.push(Hint::KeepNoMore(range));
    }
    for hint in hints {
        let answer = client.ask(&Question::Hint {
            handle: handle.into(),
            hint: hint.clone(),
        });
        assert!(
            matches!(answer, Answer::Count { .. } | Answer::Failed(_)),
            "{hint:?}: {answer:?}"
        );
    }
    let entry = Submission {
        mode: baio_words::Mode::Cached,
        ..client.entry(Op::Read, 0, handle, 0)
    };
    assert_eq!(client.run(&entry).result, Ok(BLOCK));
    house.ends();
}
