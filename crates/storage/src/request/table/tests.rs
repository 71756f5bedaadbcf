use std::time::Duration;

use super::*;
use crate::request::Status;

fn asked(tag: u64) -> SegmentRequest {
    let handle = Handle {
        core: 1,
        index: 0,
        generation: 0,
    };
    SegmentRequest {
        tag,
        ..SegmentRequest::new(handle, SegmentOp::Sync, Memory::None)
    }
}

fn insert(requests: &mut Requests, tag: u64) -> Ticket {
    requests.insert(Owner::Caller, &asked(tag)).unwrap()
}

fn finish(requests: &mut Requests, ticket: Ticket, result: Result<u32>) {
    let _ = requests.finish(Outcome::early(ticket, Memory::None, result), None);
}

fn at_device(requests: &mut Requests, ticket: Ticket) -> RequestId {
    let id = RequestId::default();
    requests.transition(ticket, State::AtDevice(id));
    id
}

#[test]
fn an_outcome_is_taken_once_by_ticket_or_in_order() {
    let mut requests = Requests::new(2, 1);
    let (one, two) = (insert(&mut requests, 1), insert(&mut requests, 2));
    assert!(requests.insert(Owner::Caller, &asked(3)).is_none());
    assert!(requests.poll(one, None).is_pending());
    finish(&mut requests, two, Ok(7));
    finish(&mut requests, one, Ok(8));
    let Poll::Ready(Some(outcome)) = requests.poll(one, None) else {
        panic!("finished")
    };
    assert_eq!((outcome.tag, outcome.result.unwrap()), (1, 8));
    assert!(matches!(requests.poll(one, None), Poll::Ready(None)));
    assert_eq!(requests.next_finished().map(|outcome| outcome.tag), Some(2));
    assert!(requests.next_finished().is_none());
    assert!(!requests.is_full());
    assert!(!requests.has_finished());
}

/// What is taken by ticket, in any order, leaves nothing that would have to be looked through.
#[test]
fn stale_names_do_not_stand_before_what_waits() {
    let mut requests = Requests::new(8, 1);
    let tickets: Vec<Ticket> = (0..6).map(|tag| insert(&mut requests, tag)).collect();
    for ticket in &tickets {
        finish(&mut requests, *ticket, Ok(1));
    }
    for taken in [1, 0, 2, 4] {
        assert!(requests.has_finished());
        assert!(requests.poll(tickets[taken], None).is_ready());
    }
    assert_eq!(requests.finished.front(), Some(&tickets[3]));
    drop(requests.take(tickets[3]));
    assert_eq!(requests.finished.front(), Some(&tickets[5]));
    drop(requests.take(tickets[5]));
    assert!(!requests.has_finished() && requests.finished.is_empty());
}

#[test]
fn only_what_the_engine_has_is_in_flight_however_it_was_given_up() {
    let mut requests = Requests::new(4, 1);
    let [held, abandoned, answered] = [1, 2, 3].map(|tag| insert(&mut requests, tag));
    requests.keep(held, State::Held, Memory::None);
    for ticket in [abandoned, answered] {
        at_device(&mut requests, ticket);
    }
    assert_eq!((requests.in_flight().count(), requests.waiting()), (2, 1));
    requests.transition(abandoned, State::Left(RequestId::default()));
    let outcome = Outcome::early(answered, Memory::None, Ok(0));
    let _ = requests.finish(outcome, Some(RequestId::default()));
    assert!(requests.poll(answered, None).is_ready());
    assert!(matches!(requests.state(answered), State::Left(_)), "the kernel has it");
    assert!(matches!(requests.poll(answered, None), Poll::Ready(None)));
    assert_eq!(requests.in_flight().count(), 2);
    assert_eq!(requests.next_let_go(), None);
    for ticket in [abandoned, answered] {
        requests.released(ticket);
    }
    assert_eq!((requests.in_flight().count(), requests.free.len()), (0, 3));
    let told = [(); 3].map(|()| requests.next_let_go());
    assert_eq!(told, [Some(abandoned), Some(answered), None]);
    requests.take_in_hand(held);
    finish(&mut requests, held, Ok(0));
    assert_eq!((requests.waiting(), requests.free.len()), (0, 3));
    assert!(requests.take(held).is_some());
    assert_eq!(requests.free.len(), 4);
}

/// An answer at the deadline may be taken after the kernel has let go too.
#[test]
fn an_entry_is_free_when_it_is_taken_and_released_in_either_order() {
    let mut requests = Requests::new(1, 1);
    let ticket = insert(&mut requests, 0);
    let id = at_device(&mut requests, ticket);
    let _ = requests.finish(Outcome::early(ticket, Memory::None, Ok(0)), Some(id));
    assert_eq!(requests.next_let_go(), None);
    requests.released(ticket);
    assert_eq!(requests.next_let_go(), None, "its end says so");
    assert_eq!((requests.state(ticket), requests.in_flight().count()), (State::Done, 0));
    assert!(requests.take(ticket).is_some());
    assert_eq!((requests.state(ticket), requests.free.len()), (State::Free, 1));
}

#[test]
#[should_panic(expected = "cannot go from Held to Done")]
fn what_waits_does_not_end_behind_the_back_of_the_core() {
    let mut requests = Requests::new(1, 1);
    let ticket = insert(&mut requests, 0);
    requests.keep(ticket, State::Held, Memory::None);
    finish(&mut requests, ticket, Ok(0));
}

#[test]
#[should_panic(expected = "cannot go from")]
fn an_old_ticket_moves_nothing() {
    let mut requests = Requests::new(1, 1);
    let old = insert(&mut requests, 0);
    requests.free(old);
    insert(&mut requests, 1);
    requests.transition(old, State::Done);
}

#[test]
fn what_was_woken_begins_in_order_but_for_what_was_called_off() {
    let mut requests = Requests::new(4, 1);
    let tickets = [0, 1, 2].map(|tag| insert(&mut requests, tag));
    for ticket in tickets {
        requests.keep(ticket, State::Held, Memory::None);
        requests.wake(ticket);
    }
    requests.take_in_hand(tickets[0]);
    finish(&mut requests, tickets[0], Ok(0));
    assert_eq!(requests.next_woken(), Some(tickets[1]));
    requests.take_in_hand(tickets[1]);
    requests.put_off(tickets[1], Memory::None);
    assert_eq!(requests.next_woken(), Some(tickets[1]), "it is the next again");
    assert_eq!(requests.next_woken(), Some(tickets[2]));
    assert_eq!(requests.next_woken(), None);
}

#[test]
fn deadlines_are_those_of_what_is_in_the_core() {
    let mut requests = Requests::new(4, 1);
    let at = |secs: u64| Time(0).after(Duration::from_secs(secs));
    let held = |requests: &mut Requests, secs| {
        let request = SegmentRequest {
            deadline: Some(at(secs)),
            ..asked(0)
        };
        let ticket = requests.insert(Owner::Caller, &request).unwrap();
        requests.keep(ticket, State::Held, Memory::None);
        requests.watch(ticket);
        ticket
    };
    let [late, soon, soonest] = [9, 5, 1].map(|secs| held(&mut requests, secs));
    let without = insert(&mut requests, 0);
    requests.keep(without, State::Held, Memory::None);
    requests.watch(without);
    assert_eq!(requests.next_deadline(), Some((at(1), soonest)));
    requests.take_in_hand(soonest);
    at_device(&mut requests, soonest);
    assert_eq!(
        requests.next_deadline(),
        Some((at(5), soon)),
        "the engine has the first"
    );
    requests.take_in_hand(soon);
    finish(&mut requests, soon, Ok(0));
    assert!(requests.take(soon).is_some());
    assert_eq!(requests.next_deadline(), Some((at(9), late)));
    // Whoever ends before it is due leaves no more than a name, and not many of those.
    for _ in 0..100 {
        let ticket = held(&mut requests, 10);
        requests.take_in_hand(ticket);
        requests.free(ticket);
        assert!(requests.deadlines.len() <= 2 * requests.entries.len());
    }
    assert_eq!(requests.next_deadline(), Some((at(9), late)));
}

#[test]
fn a_status_word_tells_the_end() {
    let mut requests = Requests::new(1, 1);
    let word = StatusWord::new();
    let request = SegmentRequest {
        status: Some(word.clone()),
        ..asked(0)
    };
    let ticket = requests.insert(Owner::Caller, &request).unwrap();
    assert_eq!(word.get(), Status::InFlight);
    finish(&mut requests, ticket, Ok(4096));
    assert_eq!(word.get(), Status::Done(4096));
}
