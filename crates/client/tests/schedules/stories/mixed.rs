//! Any of it beside any other of it.

use std::task::Waker;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use crate::explore::explore;
use crate::futures::{User, World, after_ms, good_or_lost, park_on, poll_once};
use crate::service::Ask;

/// One thing that a thread may do.
fn act(user: &User, number: u64) {
    match thread_rng().gen_range(0..9) {
        0 => {
            if let Ok(ticket) = user.client.start(user.read(number)) {
                good_or_lost(&user.wait(ticket), number);
            }
        }
        1 => {
            let done = user.client.block_on(user.run(user.write(number)));
            if let Some(outcome) = done.expect("the future waits for nothing else") {
                good_or_lost(&outcome, number);
            }
        }
        2 | 3 => {
            if let Some(outcome) = park_on(user.run(user.read(number))) {
                good_or_lost(&outcome, number);
            }
        }
        4 => {
            let mut future = user.run(user.write(number));
            let _ = poll_once(&mut future, Waker::noop());
        }
        5 => {
            let mut future = user.run(user.read(number));
            let _ = user.client.block_on(async { poll_once(&mut future, Waker::noop()) });
        }
        6 => {
            if let Some(Some(handle)) = park_on(user.ask(Ask::Open)) {
                user.client.close_handle(handle);
            }
        }
        7 => {
            if let Ok(Some(handle)) = user.client.ask(Box::new(Ask::Open)) {
                user.client.close_handle(handle);
            }
        }
        _ => {
            let mut request = user.read(number);
            request.deadline = Some(after_ms(1));
            if let Some(outcome) = park_on(user.run(request)) {
                good_or_lost(&outcome, number);
            }
            let _ = user.client.turn(0, Duration::ZERO, Some(after_ms(1)));
        }
    }
}

fn mix(threads: u64, dies_after: Option<u32>) {
    let world = World::that_dies(2, dies_after);
    let others: Vec<_> = (1..threads)
        .map(|thread| {
            world.spawn(move |user| {
                for number in 1..=3 {
                    act(user, 10 * thread + number);
                }
            })
        })
        .collect();
    for number in 1..=3 {
        act(&world.user, number);
    }
    for thread in others {
        thread.join().unwrap();
    }
    world.end();
}

#[test]
fn three_do_anything() {
    explore(|| mix(3, None));
}

#[test]
fn three_do_anything_and_the_service_dies() {
    explore(|| mix(3, Some(thread_rng().gen_range(1..=8))));
}
