//! However the service ends, nobody waits for ever: each is told, and memory comes back.

use std::time::Duration;

use baio_words::RequestFault;
use shuttle::rand::{Rng, thread_rng};

use crate::explore::explore;
use crate::futures::{World, good_or_lost, park_on};
use crate::service::Ask;
use crate::table::Ended;

/// It dies after so many entries, with some of them answered.
fn dies(after: u32) {
    let world = World::that_dies(4, Some(after));
    let waits = world.spawn(|user| {
        // A thread that turns may take what nobody awaits yet.
        let ticket = user.client.start(user.write(1)).ok();
        if let Some(Ended::Request(outcome)) = ticket.and_then(|ticket| user.client.wait(ticket)) {
            good_or_lost(&outcome, 1);
        }
    });
    let blocks = world.spawn(|user| {
        // Nothing that the client knows of is under way any more, or its end is told.
        let done = user.client.block_on(user.run(user.read(2)));
        if let Some(outcome) = done.expect("the future waits for nothing else") {
            good_or_lost(&outcome, 2);
        }
    });
    let awaits = world.spawn(|user| {
        if let Some(outcome) = park_on(user.run(user.read(3))) {
            good_or_lost(&outcome, 3);
        }
    });
    let turns = world.spawn(|user| {
        let _ = user.client.start(user.read(4));
        while user.client.turn(1, Duration::ZERO, None).is_ok() {
            while let Some(outcome) = user.client.next_outcome() {
                assert!([1, 4].contains(&outcome.tag), "{} is awaited", outcome.tag);
                good_or_lost(&outcome, outcome.tag);
            }
            if user.client.in_flight() == 0 {
                break;
            }
        }
    });
    for thread in [waits, blocks, awaits, turns] {
        thread.join().unwrap();
    }
    world.end();
}

#[test]
fn a_service_dies_while_four_wait() {
    explore(|| dies(thread_rng().gen_range(1..=4)));
}

/// There is one place: some wait for that, by whatever way there is.
#[test]
fn a_service_dies_while_others_wait_for_a_place() {
    explore(|| {
        let world = World::that_dies(1, Some(thread_rng().gen_range(1..=3)));
        let asks = world.spawn(|user| {
            if let Err(error) = user.client.ask(Box::new(Ask::Open)) {
                assert!(!matches!(error, crate::waits::Unasked::Full), "{error}");
            }
        });
        let blocks = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.read(1)));
            if let Some(outcome) = done.expect("the future waits for nothing else") {
                good_or_lost(&outcome, 1);
            }
        });
        if let Some(outcome) = park_on(world.user.run(world.user.read(2))) {
            good_or_lost(&outcome, 2);
        }
        asks.join().unwrap();
        blocks.join().unwrap();
        world.end();
    });
}

/// It waits for what never comes; the service ends, and that is told.
#[test]
fn who_waits_for_something_else_hears_of_the_end() {
    explore(|| {
        let world = World::that_dies(2, Some(1));
        let forever: Vec<_> = (0..2)
            .map(|_| world.spawn(|user| user.client.block_on(std::future::pending::<()>()).unwrap_err()))
            .collect();
        if let Some(outcome) = park_on(world.user.run(world.user.read(1))) {
            good_or_lost(&outcome, 1);
        }
        for thread in forever {
            assert_eq!(thread.join().unwrap(), RequestFault::ServiceEnded);
        }
        world.end();
    });
}
