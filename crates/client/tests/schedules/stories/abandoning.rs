//! Who leaves takes nothing away from others: his place and his memory come back, whenever it is that he leaves.

use std::task::{Poll, Waker};

use shuttle::rand::{Rng, thread_rng};

use crate::explore::explore;
use crate::futures::{World, good, park_on, poll_once};

/// Dropped before it is sent, under way, as it ends, or after.
#[test]
fn a_future_is_dropped_as_it_ends() {
    explore(|| {
        let world = World::of(2);
        let drops = world.spawn(|user| {
            for number in 11..=12 {
                let mut future = user.run(user.read(number));
                let _ = poll_once(&mut future, Waker::noop());
                if thread_rng().gen_bool(0.5) {
                    shuttle::thread::yield_now();
                }
            }
        });
        for number in 1..=2 {
            good(&park_on(world.user.run(world.user.read(number))).unwrap(), number);
        }
        drops.join().unwrap();
        world.end();
    });
}

/// The same inside of `block_on`, with nobody else who reaps; then every place is needed.
#[test]
fn places_of_those_who_left_are_used_again() {
    explore(|| {
        let world = World::of(2);
        let user = &world.user;
        let work = async {
            for number in [1, 2, 3, 4] {
                let mut future = user.run(user.read(number));
                let mut polled = false;
                // Once, and it is sent before the next poll; then it is dropped.
                std::future::poll_fn(|context| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    poll_once(&mut future, context.waker()).map(|_| ())
                })
                .await;
            }
        };
        user.client.block_on(work).unwrap();
        let both = world.spawn(|user| good(&park_on(user.run(user.read(5))).unwrap(), 5));
        good(&park_on(user.run(user.read(6))).unwrap(), 6);
        both.join().unwrap();
        world.end();
    });
}

/// A ticket that another thread gives up is no reason to wait for ever.
#[test]
fn who_waits_for_what_another_gives_up_is_told() {
    explore(|| {
        let world = World::of(3);
        let long = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.gated(9)));
            done.unwrap().unwrap().result.unwrap();
        });
        let ticket = world.user.submit(1);
        let gives_up = world.spawn(move |user| user.client.abandon(ticket));
        let also = world.spawn(|user| {
            let ticket = user.submit(2);
            good(&user.wait(ticket), 2);
        });
        let _ = world.user.client.wait(ticket);
        gives_up.join().unwrap();
        also.join().unwrap();
        world.user.doorbell.open_the_gate();
        long.join().unwrap();
        world.end();
    });
}
