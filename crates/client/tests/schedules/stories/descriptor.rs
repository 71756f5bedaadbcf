//! A loop of a program's own sleeps on the descriptor: it is readable while there is something to be taken, or all has ended, and only then.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::explore::explore;
use crate::futures::{World, good, good_or_lost, park_on};

fn is_readable(event: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&now)).unwrap() > 0
}

/// The model knows no descriptors: the others go on until it is readable.
fn sleep_on(event: &OwnedFd) {
    let mut patience = 20_000;
    while !is_readable(event) {
        patience -= 1;
        assert!(patience > 0, "a loop sleeps for ever");
        shuttle::thread::yield_now();
    }
}

#[test]
fn a_loop_sleeps_on_the_descriptor() {
    explore(|| {
        let world = World::of(3);
        let client = &world.user.client;
        let event = client.event_fd().unwrap();
        let other = world.spawn(|user| good(&park_on(user.run(user.read(11))).unwrap(), 11));
        for first in [1, 3] {
            let mut left = 2;
            world.user.submit(first);
            world.user.submit(first + 1);
            client.turn_once().unwrap();
            while left > 0 {
                sleep_on(&event);
                let before = left;
                while let Some(outcome) = client.next_outcome() {
                    good(&outcome, outcome.tag);
                    left -= 1;
                }
                assert!(left < before, "readable for nothing");
            }
            assert!(!is_readable(&event), "all was taken");
        }
        other.join().unwrap();
        world.end();
    });
}

#[test]
fn the_end_of_a_service_is_told_to_a_loop() {
    explore(|| {
        let world = World::that_dies(3, Some(1));
        let client = &world.user.client;
        let event = client.event_fd().unwrap();
        // It may die of the first before the second is taken.
        let started = (1..=2).filter(|number| client.start(world.user.read(*number)).is_ok());
        let (started, mut ended) = (started.count(), 0);
        while client.turn_once().is_ok() {
            sleep_on(&event);
            while let Some(outcome) = client.next_outcome() {
                good_or_lost(&outcome, outcome.tag);
                ended += 1;
            }
        }
        assert_eq!(ended, started);
        assert!(is_readable(&event), "it has ended");
        world.end();
    });
}

/// With nothing under way too.
#[test]
fn a_link_that_is_closed_elsewhere_is_told_to_a_loop() {
    explore(|| {
        let world = World::of(2);
        let event = world.user.client.event_fd().unwrap();
        assert!(!is_readable(&event));
        let closes = world.spawn(|user| user.client.refuse());
        sleep_on(&event);
        assert!(world.user.client.turn_once().is_err());
        closes.join().unwrap();
        world.end();
    });
}
