use baio_words::session::FromClient;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::*;

fn wire(questions_max: u32) -> (Wire, OwnedFd) {
    let kind = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, kind, None).unwrap();
    (Wire::new(ours, questions_max).unwrap(), theirs)
}

/// The next message that lies there.
fn said(theirs: &OwnedFd) -> Option<(u32, Question)> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let (_, len) = rustix::net::recv(theirs, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
    match FromClient::decode(&bytes[..len]) {
        Ok(FromClient::Question { id, question }) => Some((id, question)),
        other => panic!("{other:?}"),
    }
}

/// Who keeps a volume still and has asked all that it may: the answers wait for its thaw, and so the thaw cannot wait for them.
#[test]
fn what_lets_others_end_waits_for_no_answer() {
    let (wire, theirs) = wire(2);
    for place in 0..4 {
        wire.ask(place, &Question::Info).unwrap();
    }
    assert_eq!(said(&theirs), Some((0, Question::Info)));
    assert_eq!(said(&theirs), Some((1, Question::Info)));
    assert_eq!(said(&theirs), None, "more than it may");
    wire.cancel(1);
    assert_eq!(said(&theirs), Some((NO_ANSWER, Question::Cancel { question: 1 })));
    wire.tell(&Question::Thaw { freeze: 7 });
    let (id, question) = said(&theirs).expect("a thaw");
    assert_eq!(question, Question::Thaw { freeze: 7 });
    let done = |id| {
        let answer = Answer::Done.encode(id).unwrap();
        rustix::net::send(&theirs, &answer, SendFlags::NOSIGNAL).unwrap();
    };
    // The others go as answers come, in their order.
    done(id);
    done(0);
    assert_eq!(wire.next_answer(), Some((0, Answer::Done)));
    assert_eq!(said(&theirs), Some((2, Question::Info)));
    assert_eq!(said(&theirs), None);
    done(1);
    done(2);
    assert_eq!(wire.next_answer(), Some((1, Answer::Done)));
    assert_eq!(wire.next_answer(), Some((2, Answer::Done)));
    assert!(!wire.has_gone());
}

/// A read ends, whatever a broker says meanwhile; what is left is read by the next one.
#[test]
fn a_broker_that_does_not_stop_talking_holds_up_nobody() {
    let (wire, theirs) = wire(2);
    wire.ask(1, &Question::Info).unwrap();
    let say = |id| {
        let answer = Answer::Done.encode(id).unwrap();
        rustix::net::send(&theirs, &answer, SendFlags::NOSIGNAL).unwrap();
    };
    (0..READ_MAX).for_each(|_| say(NO_ANSWER));
    say(1);
    assert_eq!(wire.next_answer(), None, "it lies behind as many as are read at once");
    assert_eq!(wire.next_answer(), Some((1, Answer::Done)));
    assert!(!wire.has_gone());
}

/// Who fell asleep and found the ring not empty has not read its doorbell. A request that its broker has cancelled is asked again only of
/// a link that knows of the end.
#[test]
fn an_end_behind_doorbells_is_seen() {
    let (wire, theirs) = wire(2);
    for _ in 0..2 {
        rustix::net::send(&theirs, &DOORBELL, SendFlags::NOSIGNAL).unwrap();
    }
    assert!(!wire.has_just_gone());
    for _ in 0..2 {
        rustix::net::send(&theirs, &DOORBELL, SendFlags::NOSIGNAL).unwrap();
    }
    drop(theirs);
    assert!(wire.has_just_gone());
}

/// A broker that answers one list for ever would have its client take memory until there is none.
#[test]
fn a_list_without_an_end_ends_the_session() {
    let (wire, theirs) = wire(2);
    wire.post().list_max = 5;
    let two = |more| Answer::Segments {
        more,
        infos: vec![SegmentInfo::default(); 2],
    };
    let say = |place, more| {
        let answer = two(more).encode(place).unwrap();
        rustix::net::send(&theirs, &answer, SendFlags::NOSIGNAL).unwrap();
    };
    wire.ask(1, &Question::List).unwrap();
    say(1, true);
    say(1, false);
    let Some((1, Answer::Segments { infos, .. })) = wire.next_answer() else {
        panic!("a list that is not too long");
    };
    assert_eq!(infos.len(), 4);
    // Two lists at once are no way round it.
    wire.ask(1, &Question::List).unwrap();
    wire.ask(2, &Question::List).unwrap();
    for place in [1, 2, 1] {
        say(place, true);
    }
    let Some((1, Answer::Failed(failed))) = wire.next_answer() else {
        panic!("the list that was too long");
    };
    assert_eq!((&*failed.code, &*failed.operation), ("EMSGSIZE", "list"));
    assert!(failed.what.contains("more than 5 segments"), "{}", failed.what);
    assert!(wire.has_gone(), "such a broker is not believed anything any more");
    assert_eq!(wire.next_answer(), None);
}
