//! Whose turn it is: one user's flood makes another wait as long as one honest neighbour would. What is counted is answers, requests and
//! rounds, never time. And an end that comes at once, whatever was asked.

use baio_words::entry::{Op, Place, Submission};
use baio_words::session::{Answer, Question};
use baio_words::{Access, Mode};

use crate::house::{House, STRANGER, Victim, is_root};
use crate::raw::{Client, create};

/// One user has as many changes waiting as it may. None of them can go on, and neither its own opens and lists nor anything of another
/// user's waits for them; when they can, all of them are answered.
#[test]
fn what_waits_keeps_nothing_else_back() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let (mut keeper, mut other) = (house.client(), house.client_of(STRANGER + 1));
    other.create("own", 4096);
    let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
        panic!()
    };
    let mut flood: Vec<Client> = (0..20).map(|_| house.client_of(STRANGER)).collect();
    for (nth, client) in flood.iter_mut().enumerate() {
        for at in 0..32 {
            client.pose(&create(STRANGER, &format!("f{nth} {at}"), 4096));
        }
        assert_eq!(client.refusal(&Question::Info), "EAGAIN");
    }
    let mut own = house.client_of(STRANGER);
    for client in [&mut own, &mut other, &mut keeper] {
        for _ in 0..5 {
            assert!(matches!(client.ask(&Question::List), Answer::Segments { .. }));
            let opened = client.open_of(STRANGER + 1, "own", Access::Read);
            assert_eq!(opened.is_ok(), client.uid() != STRANGER);
        }
    }
    let id = other.pose(&create(STRANGER + 1, "another", 4096));
    assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
    assert!(matches!(other.answer(id), Answer::Segment { .. }));
    for client in &mut flood {
        // One of the 33 was refused.
        for id in 1..=32 {
            let answer = client.answer(id);
            assert!(matches!(answer, Answer::Segment { .. }), "{answer:?}");
        }
    }
    house.ends();
}

/// A user may ask so much at a time over all its sessions, and is told when it is more.
#[test]
fn questions_of_one_user_are_bounded_over_all_its_sessions() {
    let house = House::new();
    let mut keeper = house.client();
    let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
        panic!()
    };
    let uid = keeper.uid();
    let mut clients: Vec<Client> = (0..33).map(|_| house.client()).collect();
    for (nth, client) in clients.iter_mut().enumerate() {
        for at in 0..32 {
            client.pose(&create(uid, &format!("f{nth} {at}"), 4096));
        }
        // All of them are heard before the next one's.
        assert_eq!(client.refusal(&Question::Info), "EAGAIN");
    }
    let last = clients.last_mut().unwrap();
    let Answer::Failed(failed) = last.answer(1) else {
        panic!("more than 1024 wait")
    };
    assert!(
        failed.code == "EAGAIN" && failed.need.as_deref().unwrap().contains("of one user"),
        "{failed:?}"
    );
    // What ends others is always heard.
    assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
    for client in &mut clients[..32] {
        for id in 1..=32 {
            let answer = client.answer(id);
            assert!(matches!(answer, Answer::Segment { .. }), "{answer:?}");
        }
    }
    house.ends();
}

/// A list is kept whole until it is read, so of one user's there are two at a time. Others' lists, and all opens, do not wait for that.
#[test]
fn lists_that_nobody_reads_are_few() {
    if !is_root() {
        return;
    }
    let house = House::new();
    let mut victim = Victim::new(&house);
    for nth in 0..300 {
        victim.client.create(&format!("{nth:0>255}"), 4096);
    }
    let uid = victim.client.uid();
    let greedy: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = house.client();
            // More than its socket takes.
            for _ in 0..20 {
                client.pose(&Question::List);
            }
            client
        })
        .collect();
    let mut other = house.client_of(STRANGER);
    for _ in 0..40 {
        assert!(matches!(other.ask(&Question::List), Answer::Segments { .. }));
    }
    let mut last = house.client();
    let id = last.pose(&Question::List);
    for _ in 0..10 {
        assert!(matches!(other.ask(&Question::List), Answer::Segments { .. }));
        assert!(victim.client.open_of(uid, "canary", Access::Read).is_ok());
        victim.goes_on();
    }
    assert_eq!(last.arrived(), 0, "a third list of the user's is kept");
    // Those who do not read go, and it has its list.
    drop(greedy);
    while let Answer::Segments { more: true, .. } = last.answer(id) {}
    drop((last, other));
    house.ends();
}

/// Two users copy from the cache, one of them a megabyte at a time: the other has its small ones meanwhile, not behind all.
#[test]
fn bytes_that_are_copied_are_dealt_out() {
    if !is_root() {
        return;
    }
    let house = House::cached_of(16 << 20);
    let mut small = house.client_of(STRANGER);
    let own = small.made("small", 64 << 10);
    let mut large = house.client_of(STRANGER + 1);
    let theirs = large.made("large", 4 << 20);
    let entry = |client: &mut Client, place, handle, len: u32| Submission {
        mode: Mode::Cached,
        place: Place::Arena { at: 0, len },
        ..client.entry(Op::Read, place, handle, 0)
    };
    // Both are cached from here on.
    let first = entry(&mut large, 0, theirs, 4 << 20);
    assert_eq!(large.run(&first).result, Ok(4 << 20));
    let first = entry(&mut small, 0, own, 4096);
    assert_eq!(small.run(&first).result, Ok(4096));
    let mut free: Vec<u32> = (0..large.welcome.places).collect();
    let fill = |large: &mut Client, free: &mut Vec<u32>| {
        for place in free.drain(..) {
            let read = entry(large, place, theirs, 4 << 20);
            large.push(&read.encode());
        }
        large.publish();
    };
    let ended = |large: &mut Client, free: &mut Vec<u32>| {
        let before = free.len();
        free.extend(std::iter::from_fn(|| large.posted()).map(|ended| ended.tag.index));
        free.len() - before
    };
    let mut between = Vec::new();
    for _ in 0..16 {
        ended(&mut large, &mut free);
        fill(&mut large, &mut free);
        // The other is alone for a while, and may have as much under way then as the device takes.
        std::thread::sleep(std::time::Duration::from_millis(40));
        ended(&mut large, &mut free);
        let read = entry(&mut small, 1, own, 4096);
        assert_eq!(small.run(&read).result, Ok(4096));
        between.push(ended(&mut large, &mut free));
    }
    // Dealt by requests and by what may be at the device alone, there are four in every round. More of them are seen where this thread was late
    // to look; fewer never were.
    between.sort_unstable();
    assert!(between[0] <= 2, "{between:?}");
    house.ends();
}

/// The end does not wait for what was asked: not for walks, not for those who wait for a turn.
#[test]
fn an_end_comes_at_once_whatever_was_asked() {
    let house = House::of_segments(1 << 18);
    let mut victim = Victim::new(&house);
    let uid = victim.client.uid();
    // Of one user where this is not root, who may have 1,024 questions without an answer, the victim's among them.
    let mut clients: Vec<Client> = (0..24).map(|_| house.client()).collect();
    let hello = baio_words::session::Hello {
        features: baio_words::session::GOES_ON,
        ..crate::raw::hello()
    };
    clients.extend((0..4).map(|_| house.wire().greet(&hello).unwrap()));
    let goes_on = clients.len() - 4;
    for (nth, client) in clients.iter_mut().enumerate() {
        for at in 0..32 {
            let question = match at % 3 {
                0 => Question::List,
                1 if nth >= goes_on => Question::OpenKnown {
                    owner_uid: uid,
                    name: "gone".into(),
                    access: Access::Read,
                    identity: Some([9; 16]),
                },
                _ => create(uid, &format!("c{nth} {at}"), 4096),
            };
            client.pose(&question);
        }
    }
    victim.goes_on();
    house.ends();
    for client in &clients {
        client.goes_out("the end");
    }
}

/// A question that waits for its turn is called off at once, and those behind it go on.
#[test]
fn what_waits_is_called_off_by_a_cancel() {
    let house = House::new();
    let (mut keeper, mut client) = (house.client(), house.client());
    let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
        panic!()
    };
    let uid = client.uid();
    // More than the core is asked at a time: some wait there, the others here.
    let waiting: Vec<u32> = (0..20)
        .map(|at| client.pose(&create(uid, &format!("s{at}"), 4096)))
        .collect();
    for question in &waiting[1..] {
        client.pose(&Question::Cancel { question: *question });
    }
    // Though the volume is frozen still.
    for id in &waiting[1..] {
        let Answer::Failed(failed) = client.answer(*id) else {
            panic!("it was done")
        };
        assert_eq!(failed.code, "ECANCELED");
    }
    assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
    assert!(matches!(client.answer(waiting[0]), Answer::Segment { .. }));
    assert_eq!(
        client.refusal(&Question::Open {
            owner_uid: uid,
            name: "s3".into(),
            access: Access::Read,
        }),
        "ENOENT"
    );
    house.ends();
}

/// How many of a neighbour's creates come before the one that another user asks for behind them all, when so many of its sessions have
/// asked for so many each.
fn creates_before_one(sessions: u32, each: u32) -> usize {
    let house = House::new();
    let (mut keeper, mut other) = (house.client(), house.client_of(STRANGER + 1));
    let Answer::Frozen { freeze } = keeper.ask(&Question::Freeze) else {
        panic!()
    };
    let mut neighbours: Vec<Client> = (0..sessions).map(|_| house.client_of(STRANGER)).collect();
    for (nth, client) in neighbours.iter_mut().enumerate() {
        for at in 0..each {
            client.pose(&create(STRANGER, &format!("{nth} {at}"), 4096));
        }
        // All of them have been heard.
        client.ask(&Question::Info);
    }
    let id = other.pose(&create(STRANGER + 1, "one", 4096));
    assert!(matches!(other.ask(&Question::Info), Answer::Volume(_)));
    assert_eq!(keeper.ask(&Question::Thaw { freeze }), Answer::Done);
    assert!(matches!(other.answer(id), Answer::Segment { .. }));
    for client in &mut neighbours {
        for id in 1..=each {
            assert!(matches!(client.answer(id), Answer::Segment { .. }));
        }
    }
    // Each is put behind the one that was made before it.
    let mut made = house.ends_with();
    made.sort_unstable_by_key(|segment| segment.start_block);
    made.iter().position(|segment| segment.name == "one").unwrap()
}

#[test]
fn a_flood_of_changes_is_worth_one_neighbour() {
    if !is_root() {
        return;
    }
    let (one, many) = (creates_before_one(1, 1), creates_before_one(24, 32));
    assert!(one >= 1, "nobody was before it: nothing is shown");
    assert!(many <= 2 * one, "{many} beside a flood, {one} beside one neighbour");
}

/// How many of a neighbour's direct reads end while another user's one does, in the median of 40, when so many of its sessions have
/// all that they may under way. The broker counts them itself.
fn reads_beside_one(sessions: u32) -> u64 {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut neighbours: Vec<_> = (0..sessions)
        .map(|nth| {
            let mut client = house.client_of(STRANGER);
            let handle = client.made(&format!("{nth}"), 1 << 20);
            let free: Vec<u32> = (0..client.welcome.places).collect();
            (client, handle, free)
        })
        .collect();
    let theirs = |victim: &mut Victim| {
        let owners = victim.status().owners;
        owners.iter().find(|row| row.uid == STRANGER).unwrap().requests
    };
    let mut counts: Vec<u64> = (0..40)
        .map(|_| {
            for (client, handle, free) in &mut neighbours {
                free.extend(std::iter::from_fn(|| client.posted()).map(|ended| ended.tag.index));
                for place in free.drain(..) {
                    let read = Submission {
                        place: Place::Arena { at: 0, len: 4096 },
                        ..client.entry(Op::Read, place, *handle, 0)
                    };
                    client.push(&read.encode());
                }
                client.publish();
            }
            let before = theirs(&mut victim);
            victim.reads();
            theirs(&mut victim) - before
        })
        .collect();
    counts.sort_unstable();
    drop((neighbours, victim));
    house.ends();
    counts[20]
}

#[test]
fn a_flood_at_the_device_is_worth_one_neighbour() {
    if !is_root() {
        return;
    }
    let (one, many) = (reads_beside_one(1), reads_beside_one(24));
    assert!(one >= 1, "nothing was under way beside it: nothing is shown");
    assert!(many <= 2 * one, "{many} beside a flood, {one} beside one neighbour");
}
