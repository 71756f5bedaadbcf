//! The thread that reaps for futures polled elsewhere: started once, dismissed at any moment, and nobody's work is lost.

use std::task::Waker;

use crate::explore::explore;
use crate::futures::{World, good, park_on, poll_once};

#[test]
fn two_executors_share_the_helper() {
    explore(|| {
        let world = World::of(2);
        let other = world.spawn(|user| {
            for number in 11..=12 {
                good(&park_on(user.run(user.read(number))).unwrap(), number);
            }
        });
        for number in 1..=2 {
            good(&park_on(world.user.run(world.user.read(number))).unwrap(), number);
        }
        other.join().unwrap();
        world.end();
    });
}

/// Dismissed as it looks, as it falls asleep on the bell or beside it, or as it wakes: it ends (or the model finds it asleep).
#[test]
fn the_helper_is_dismissed_as_it_falls_asleep() {
    explore(|| {
        let world = World::of(2);
        let mut left = world.user.run(world.user.read(1));
        let _ = poll_once(&mut left, Waker::noop());
        let other = world.spawn(|user| user.client.dismiss_helper());
        world.user.client.dismiss_helper();
        other.join().unwrap();
        drop(left);
        world.end();
    });
}

/// While somebody is on the bell, a future that is polled is sent all the same.
#[test]
fn a_future_polled_while_the_helper_sleeps_is_sent() {
    explore(|| {
        let world = World::of(3);
        let mut first = world.user.run(world.user.gated(1));
        assert!(poll_once(&mut first, Waker::noop()).is_pending());
        good(&park_on(world.user.run(world.user.read(2))).unwrap(), 2);
        good(&park_on(world.user.run(world.user.read(3))).unwrap(), 3);
        world.user.doorbell.open_the_gate();
        park_on(first).unwrap().result.unwrap();
        world.end();
    });
}
