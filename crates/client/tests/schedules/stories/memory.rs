//! Memory that the service can be shown is used up: who waits for some gets it when it comes back, on whatever thread.

use std::task::Waker;

use crate::explore::explore;
use crate::futures::{World, park_on, poll_once};

#[test]
fn who_waits_for_memory_is_called() {
    explore(|| {
        let world = World::of(1);
        let elsewhere = world.spawn(|user| park_on(user.take_memory()));
        let blocks = world.spawn(|user| user.client.block_on(user.take_memory()).unwrap());
        world.user.give_memory();
        world.user.give_memory();
        elsewhere.join().unwrap();
        blocks.join().unwrap();
        world.end();
    });
}

/// Whoever is called and wants it no more leaves it to the next.
#[test]
fn who_was_called_for_memory_and_leaves_hands_it_on() {
    explore(|| {
        let world = World::of(1);
        let leaves = world.spawn(|user| {
            let mut taking = user.take_memory();
            if poll_once(&mut taking, Waker::noop()).is_ready() {
                user.give_memory();
            }
        });
        let stays = world.spawn(|user| park_on(user.take_memory()));
        world.user.give_memory();
        leaves.join().unwrap();
        stays.join().unwrap();
        world.end();
    });
}
