//! One closes while others submit: what was taken ends well, what comes later is refused, and a second close waits for the
//! first.

use baio_words::RequestFault;

use crate::explore::explore;
use crate::futures::{User, World, good, park_on};
use crate::service::Ask;
use crate::table::Ended;

/// As `baio::Remote::close`, without the thread.
fn close(user: &User) {
    let Some(ticket) = user.client.begin_close(Box::new(Ask::Close)) else {
        user.client.wait_for_all();
        return;
    };
    let closed = user.client.wait(ticket);
    assert!(matches!(closed, Some(Ended::Command(Ok(None)))), "a close ends well");
}

#[test]
fn one_closes_while_others_submit() {
    explore(|| {
        let world = World::of(3);
        let waits = world.spawn(|user| match user.client.start(user.read(1)) {
            Ok(ticket) => good(&user.wait(ticket), 1),
            Err(_) => assert!(user.client.refusal().is_some()),
        });
        let blocks = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.read(2)));
            if let Some(outcome) = done.expect("the future waits for nothing else") {
                good(&outcome, 2);
            }
        });
        let awaits = world.spawn(|user| {
            if let Some(outcome) = park_on(user.run(user.read(3))) {
                good(&outcome, 3);
            }
        });
        close(&world.user);
        for thread in [waits, blocks, awaits] {
            thread.join().unwrap();
        }
        world.end();
    });
}

#[test]
fn two_close_and_others_wait_for_places() {
    explore(|| {
        let world = World::of(1);
        let closes = world.spawn(close);
        let awaits = world.spawn(|user| {
            if let Some(outcome) = park_on(user.run(user.read(1))) {
                good(&outcome, 1);
            }
        });
        let asks = world.spawn(|user| match user.client.ask(Box::new(Ask::Open)) {
            Ok(_) => {}
            Err(error) => assert!(
                matches!(
                    error,
                    crate::waits::Unasked::Refused(RequestFault::Stale | RequestFault::ServiceEnded)
                ),
                "{error}"
            ),
        });
        close(&world.user);
        for thread in [closes, awaits, asks] {
            thread.join().unwrap();
        }
        assert_eq!(world.user.client.in_flight(), 0);
        world.end();
    });
}
