//! Every place is taken: who waits for one gets one, or hears that there is none.

use std::sync::Arc;
use std::task::Waker;

use crate::explore::explore;
use crate::futures::{Parked, World, after_ms, good, park_on, poll_once};
use crate::service::Ask;

#[test]
fn more_futures_than_places() {
    explore(|| {
        let world = World::of(1);
        let elsewhere = world.spawn(|user| {
            for number in 11..=12 {
                good(&park_on(user.run(user.read(number))).unwrap(), number);
            }
        });
        let blocks = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.read(21)));
            good(&done.unwrap().unwrap(), 21);
        });
        good(&park_on(world.user.run(world.user.read(1))).unwrap(), 1);
        elsewhere.join().unwrap();
        blocks.join().unwrap();
        world.end();
    });
}

/// Outcomes that nobody has taken hold the places; another thread takes them.
#[test]
fn a_question_waits_for_a_place_that_another_makes() {
    explore(|| {
        let world = World::of(2);
        let first = world.user.submit(1);
        let second = world.user.submit(2);
        let asks = world.spawn(|user| {
            // Full, if it asks when both have ended and nobody has taken them.
            let asked = user.client.ask(Box::new(Ask::Open));
            match asked {
                Ok(answer) => user.client.close_handle(answer.expect("a handle")),
                Err(full) => assert!(matches!(full, crate::waits::Unasked::Full), "{full}"),
            }
        });
        good(&world.user.wait(first), 1);
        good(&world.user.wait(second), 2);
        asks.join().unwrap();
        world.end();
    });
}

/// The place is behind a gate that opens late: who has no time left gives up, who has gets it.
#[test]
fn who_waits_for_a_place_gives_up_in_time() {
    explore(|| {
        let world = World::of(1);
        let holds = world.spawn(|user| {
            let ticket = user.client.start(user.gated(9));
            if let Ok(ticket) = ticket {
                user.wait(ticket).result.unwrap();
            }
        });
        let gives_up = world.spawn(|user| {
            let mut request = user.read(1);
            request.deadline = Some(after_ms(5));
            if let Some(outcome) = park_on(user.run(request)) {
                good(&outcome, 1);
            }
        });
        gives_up.join().unwrap();
        world.user.doorbell.open_the_gate();
        holds.join().unwrap();
        world.end();
    });
}

/// Whoever is woken for a place and wants it no more leaves it to the next.
#[test]
fn who_was_woken_for_a_place_and_leaves_hands_it_on() {
    explore(|| {
        let world = World::of(1);
        let leaves = world.spawn(|user| {
            let mut read = user.run(user.read(11));
            let parked = Arc::new(Parked::default());
            if poll_once(&mut read, &Waker::from(Arc::clone(&parked))).is_pending() {
                parked.park();
            }
        });
        let stays = world.spawn(|user| good(&park_on(user.run(user.read(12))).unwrap(), 12));
        good(&park_on(world.user.run(world.user.read(1))).unwrap(), 1);
        leaves.join().unwrap();
        stays.join().unwrap();
        world.end();
    });
}
