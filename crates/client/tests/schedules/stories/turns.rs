//! Threads that take whatever there is: each outcome goes to one of them, and none sleeps when nothing is left to come.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};
use std::time::Duration;

use shuttle::sync::atomic::AtomicBool;
use shuttle::sync::mpsc;

use crate::explore::explore;
use crate::futures::{User, World, after_ms, good, park_on};

#[test]
fn two_threads_turn_and_each_outcome_comes_once() {
    explore(|| {
        let world = World::of(4);
        let turn = |user: &User, from: u64| {
            let mut numbers = Vec::new();
            user.submit(from);
            user.submit(from + 1);
            while user.client.in_flight() > 0 {
                user.client.turn(1, Duration::ZERO, None).unwrap();
                while let Some(outcome) = user.client.next_outcome() {
                    good(&outcome, outcome.tag);
                    numbers.push(outcome.tag);
                }
            }
            numbers
        };
        let other = world.spawn(move |user| turn(user, 11));
        let mut numbers = turn(&world.user, 1);
        numbers.extend(other.join().unwrap());
        while let Some(outcome) = world.user.client.next_outcome() {
            numbers.push(outcome.tag);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 11, 12]);
        world.end();
    });
}

/// What is under way is awaited by others, and one of them sleeps on the bell for something else: with nothing in flight
/// nobody sleeps in a turn, nor waits for all.
#[test]
fn nobody_turns_when_nothing_is_under_way() {
    explore(|| {
        let world = World::of(4);
        let done = Arc::new(AtomicBool::new(false));
        let (tell, told) = mpsc::channel::<Waker>();
        let theirs = Arc::clone(&done);
        let sleeps = world.spawn(move |user| {
            let other = poll_fn(|context| {
                if theirs.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                let _ = tell.send(context.waker().clone());
                Poll::Pending
            });
            user.client.block_on(other).unwrap();
        });
        let waker = told.recv().unwrap();
        let awaited = world.spawn(|user| {
            let ticket = user.submit(1);
            good(&user.wait(ticket), 1);
        });
        let turns = world.spawn(|user| {
            let _ = user.client.turn(1, Duration::ZERO, None);
        });
        let all = world.spawn(|user| user.client.wait_for_all());
        for thread in [awaited, turns, all] {
            thread.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        waker.wake();
        sleeps.join().unwrap();
        world.end();
    });
}

/// One sleeps on the bell for something else, and reaps.
#[test]
fn who_turns_is_told_by_whoever_reaps() {
    explore(|| {
        let world = World::of(4);
        let long = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.gated(9)));
            done.unwrap().unwrap().result.unwrap();
        });
        for number in 1..=2 {
            world.user.submit(number);
            world.user.client.turn(1, Duration::ZERO, None).unwrap();
            good(&world.user.client.next_outcome().expect("it was told of one"), number);
        }
        world.user.doorbell.open_the_gate();
        long.join().unwrap();
        world.end();
    });
}

/// A turn ends at its deadline, whoever else sleeps.
#[test]
fn a_turn_ends_in_time() {
    explore(|| {
        let world = World::of(2);
        let ticket = world
            .user
            .client
            .start(world.user.gated(9))
            .unwrap_or_else(|_| panic!("refused"));
        let turns = world.spawn(|user| {
            let until = Some(after_ms(5));
            user.client.turn(1, Duration::ZERO, until).unwrap();
        });
        good(&park_on(world.user.run(world.user.read(1))).unwrap(), 1);
        turns.join().unwrap();
        world.user.doorbell.open_the_gate();
        world.user.wait(ticket).result.unwrap();
        world.end();
    });
}
