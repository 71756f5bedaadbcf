//! Segments for logs that clients keep: who has claimed one writes there, and nobody else does.

use baio_broker::host::{May, Options, Rules, Whom};
use baio_words::entry::{HandleWords, Op, Place, Submission};
use baio_words::session::{Answer, FEATURE_LOGS, Hello, Question};
use baio_words::{Access, Failure, Mode, OperationName, ResizeOptions};

use crate::house::{House, Victim, until};
use crate::raw::{BLOCK, Client, Wire, hello};

const MIB: u64 = 1 << 20;

fn greeting() -> Hello {
    Hello {
        features: FEATURE_LOGS,
        ..hello()
    }
}

fn client(house: &House) -> Client {
    house.wire().greet(&greeting()).unwrap()
}

fn try_claim(client: &mut Client, handle: HandleWords) -> Result<HandleWords, String> {
    match client.ask(&Question::ClaimLog { handle: handle.into() }) {
        Answer::LogClaimed(claim) => {
            assert!(claim.size_bytes == MIB && claim.block_bytes.is_power_of_two());
            Ok(claim.handle.into())
        }
        Answer::Failed(failed) => Err(failed.code),
        other => panic!("{other:?}"),
    }
}

fn claim(client: &mut Client, handle: HandleWords) -> HandleWords {
    try_claim(client, handle).unwrap()
}

fn release(client: &mut Client, handle: HandleWords) -> Answer {
    client.ask(&Question::ReleaseLog { handle: handle.into() })
}

fn writes(client: &mut Client, handle: HandleWords) -> Result<u32, Failure> {
    client.write(handle, 0, &[7; BLOCK as usize]).result
}

#[test]
fn who_has_claimed_a_segment_writes_there_alone() {
    let house = House::cached();
    let (mut one, mut other) = (client(&house), client(&house));
    let handle = one.made("log", MIB);
    let theirs = other.open("log", Access::Write);
    let log = claim(&mut one, handle);
    assert_eq!(writes(&mut one, log), Ok(BLOCK));
    assert_eq!(writes(&mut one, handle), Err(Failure::HasLog));
    assert_eq!(writes(&mut other, theirs), Err(Failure::HasLog));
    for (client, handle) in [(&mut one, handle), (&mut other, theirs)] {
        assert_eq!(try_claim(client, handle), Err("EBUSY".to_owned()));
        assert_eq!(client.read(handle, 0, BLOCK).1, [7; BLOCK as usize]);
        let discard = Submission {
            len: 4096,
            place: Place::Nowhere,
            ..client.entry(Op::Discard, 0, handle, 0)
        };
        assert_eq!(client.run(&discard).result, Err(Failure::HasLog));
        let cached = Submission {
            mode: Mode::Cached,
            ..client.entry(Op::Write, 0, handle, 0)
        };
        assert_eq!(client.run(&cached).result, Err(Failure::HasLog));
    }
    // Its own writes are direct ones, and nothing else.
    let cached = Submission {
        mode: Mode::Cached,
        ..one.entry(Op::Write, 0, log, 0)
    };
    assert_eq!(one.run(&cached).result, Err(Failure::HasLog));
    let beyond = one.write(log, MIB, &[1; BLOCK as usize]).result;
    assert_eq!(beyond, Err(Failure::Beyond { size: MIB }));
    let (operation, owner_uid, name) = (OperationName::NONE, one.uid(), "log".to_owned());
    let delete = Question::Delete {
        operation,
        owner_uid,
        name: name.clone(),
    };
    let shrink = Question::Resize {
        operation,
        owner_uid,
        name,
        options: ResizeOptions::to_size(MIB / 2),
    };
    assert_eq!((&*other.refusal(&delete), &*other.refusal(&shrink)), ("EBUSY", "EBUSY"));
    assert_eq!(release(&mut one, log), Answer::Done);
    assert_eq!(writes(&mut one, log), Err(Failure::Stale));
    assert_eq!(writes(&mut other, theirs), Ok(BLOCK));
    let log = claim(&mut other, theirs);
    // A close does what a release does.
    other.close(log);
    until("the segment is free", || try_claim(&mut one, handle).is_ok());
    house.ends();
}

#[test]
fn a_guessed_stale_or_foreign_handle_claims_and_releases_nothing() {
    let house = House::new();
    let (mut one, mut other) = (client(&house), client(&house));
    let handle = one.made("log", MIB);
    let own = other.made("own", MIB);
    let log = claim(&mut one, handle);
    for (index, generation) in [
        (log.index, log.generation),
        (log.index, log.generation.wrapping_add(1)),
        (own.index, own.generation.wrapping_sub(1)),
        (u32::MAX, u32::MAX),
    ] {
        let handle = HandleWords { index, generation };
        assert_eq!(other.refusal(&Question::ClaimLog { handle: handle.into() }), "ESTALE");
        assert_eq!(other.refusal(&Question::ReleaseLog { handle: handle.into() }), "ESTALE");
    }
    // A handle that is no claim is not closed as one.
    assert_eq!(other.refusal(&Question::ReleaseLog { handle: own.into() }), "ESTALE");
    assert_eq!(writes(&mut other, own), Ok(BLOCK));
    assert_eq!(writes(&mut one, log), Ok(BLOCK));
    assert_eq!(writes(&mut one, handle), Err(Failure::HasLog));
    assert_eq!(release(&mut one, log), Answer::Done);
    assert_eq!(one.refusal(&Question::ReleaseLog { handle: log.into() }), "ESTALE");
    one.close(handle);
    assert_eq!(one.refusal(&Question::ClaimLog { handle: handle.into() }), "ESTALE");
    house.ends();
}

#[test]
fn who_may_not_write_claims_nothing() {
    let read = May {
        read: true,
        ..May::NOTHING
    };
    let house = House::new();
    let mut one = client(&house);
    one.create("log", MIB);
    let handle = one.open("log", Access::Read);
    assert_eq!(try_claim(&mut one, handle), Err("EBADF".to_owned()));
    house.ends();
    let rules = Rules::new(vec![(Whom::Everybody, read)]);
    let house = House::with(Options {
        rules,
        ..Options::default()
    });
    let handle = HandleWords::default();
    assert_eq!(
        client(&house).refusal(&Question::ClaimLog { handle: handle.into() }),
        "EACCES"
    );
    house.ends();
}

#[test]
fn a_session_without_the_feature_has_no_logs() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    for question in [
        Question::ClaimLog {
            handle: HandleWords::default().into(),
        },
        Question::ReleaseLog {
            handle: HandleWords::default().into(),
        },
    ] {
        let mut plain = house.client();
        plain.pose(&question);
        plain.goes_out("a question of a feature that its welcome does not have");
        victim.goes_on();
    }
    house.ends();
}

#[test]
fn claims_are_among_the_handles_of_a_session() {
    let house = House::with(Options {
        handles_max: 3,
        ..Options::default()
    });
    let mut one = client(&house);
    let (a, b) = (one.made("a", MIB), one.made("b", MIB));
    let log = claim(&mut one, a);
    assert_eq!(try_claim(&mut one, b), Err("EMFILE".to_owned()));
    assert_eq!(release(&mut one, log), Answer::Done);
    claim(&mut one, b);
    house.ends();
}

/// Writes by the claim, none of which is awaited.
fn floods(client: &mut Client, log: HandleWords) -> u32 {
    let places = client.welcome.places.min(64);
    for place in 0..places {
        let entry = client.entry(Op::Write, place, log, u64::from(place) * u64::from(BLOCK));
        client.push(&entry.encode());
    }
    client.publish();
    places
}

#[test]
fn what_was_under_way_by_a_claim_ends_before_another_has_the_segment() {
    let house = House::new();
    let (mut one, mut other) = (client(&house), client(&house));
    let handle = one.made("log", MIB);
    let theirs = other.open("log", Access::Write);
    for _ in 0..20 {
        let log = claim(&mut one, handle);
        let sent = floods(&mut one, log);
        one.is_taken();
        assert_eq!(release(&mut one, log), Answer::Done);
        let mut next = None;
        until("the segment is free", || {
            next = try_claim(&mut other, theirs).ok();
            next.is_some()
        });
        // None lands behind what the next writes.
        let next = next.unwrap();
        assert_eq!(other.write(next, 0, &[5; 64 * BLOCK as usize]).result, Ok(64 * BLOCK));
        for _ in 0..sent {
            assert_eq!(one.next().map(|ended| ended.result), Some(Ok(BLOCK)));
        }
        assert!(other.read(next, 0, 64 * BLOCK).1.iter().all(|byte| *byte == 5));
        assert_eq!(release(&mut other, next), Answer::Done);
    }
    house.ends();
}

#[test]
fn a_session_that_dies_gives_its_claims_back() {
    let house = House::new();
    let mut victim = Victim::new(&house);
    let mut other = client(&house);
    let theirs = other.made("log", MIB);
    for _ in 0..10 {
        let mut one = client(&house);
        let handle = one.open("log", Access::Write);
        let log = claim(&mut one, handle);
        floods(&mut one, log);
        assert_eq!(writes(&mut other, theirs), Err(Failure::HasLog));
        drop(one);
        until("the segment is free", || writes(&mut other, theirs) == Ok(BLOCK));
        victim.goes_on();
    }
    house.ends();
}

#[test]
fn who_was_handed_a_handle_claims_by_it_until_it_is_taken_back() {
    let house = House::new();
    let mut one = client(&house);
    let handle = one.made("log", MIB);
    for access in [Access::Read, Access::Write] {
        let id = one.pose(&Question::HandOn {
            handle: handle.into(),
            access,
        });
        let (answer, mut fds) = one.answer_with(id);
        let Answer::HandedOn { grant } = answer else {
            panic!("{answer:?}")
        };
        let mut other = Wire::of(fds.remove(0)).greet(&greeting()).unwrap();
        let theirs = other.open_of(0, "", access).unwrap();
        if access == Access::Read {
            assert_eq!(try_claim(&mut other, theirs), Err("EBADF".to_owned()));
        } else {
            let log = claim(&mut other, theirs);
            assert_eq!(writes(&mut one, handle), Err(Failure::HasLog));
            floods(&mut other, log);
        }
        assert_eq!(one.ask(&Question::Revoke { grant }), Answer::Done);
        // Nothing of it can land any more.
        assert_eq!(writes(&mut one, handle), Ok(BLOCK));
    }
    house.ends();
}
