//! Who waits is woken, whoever reaps for him.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

use shuttle::sync::atomic::AtomicBool;
use shuttle::sync::mpsc;

use crate::explore::explore;
use crate::futures::{Parked, User, World, good, park_on, poll_once};
use crate::service::Ask;

/// The smallest: it ends before the thread looks, as it looks, as it falls asleep, or later.
#[test]
fn a_request_ends_as_its_waiter_falls_asleep() {
    explore(|| {
        let world = World::of(1);
        for number in 1..=2 {
            let ticket = world.user.submit(number);
            good(&world.user.wait(ticket), number);
        }
        world.end();
    });
}

#[test]
fn threads_wait_and_one_reaps_for_all() {
    explore(|| {
        let world = World::of(3);
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                world.spawn(move |user| {
                    for number in [10 * thread + 1, 10 * thread + 2] {
                        let ticket = user.submit(number);
                        good(&user.wait(ticket), number);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        world.end();
    });
}

#[test]
fn one_blocks_one_waits_and_the_helper_reaps_for_a_third() {
    explore(|| {
        let world = World::of(3);
        let blocks = world.spawn(|user| {
            for number in 1..=2 {
                let done = user.client.block_on(user.run(user.read(number)));
                good(&done.unwrap().unwrap(), number);
            }
        });
        let waits = world.spawn(|user| {
            let ticket = user.submit(11);
            good(&user.wait(ticket), 11);
        });
        for number in 21..=22 {
            good(&park_on(world.user.run(world.user.read(number))).unwrap(), number);
        }
        blocks.join().unwrap();
        waits.join().unwrap();
        world.end();
    });
}

/// One sleeps on the bell for what comes late; others come and go meanwhile, and each is sent and told.
#[test]
fn others_go_on_beside_one_who_sleeps_long() {
    explore(|| {
        let world = World::of(3);
        let long = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.gated(9)));
            done.unwrap().unwrap().result.unwrap();
        });
        let polled = world.spawn(|user| {
            for number in 1..=2 {
                good(&park_on(user.run(user.read(number))).unwrap(), number);
            }
        });
        for number in 11..=12 {
            let ticket = world.user.submit(number);
            good(&world.user.wait(ticket), number);
        }
        polled.join().unwrap();
        world.user.doorbell.open_the_gate();
        long.join().unwrap();
        world.end();
    });
}

/// While wakers run the role is free: one of them waits for a thread that turns, and for an answer. (Not for one that is woken
/// as it is itself: that one may be next in line.)
#[test]
fn a_waker_may_wait_itself() {
    struct Waits {
        user: User,
        other: Arc<Parked>,
        woken: Arc<Parked>,
    }

    impl Wake for Waits {
        fn wake(self: Arc<Self>) {
            // The other thread may be the one that reaps, and wakes.
            if shuttle::thread::current().name() == Some("baio-helper") {
                self.other.park();
            }
            let handle = self.user.client.ask(Box::new(Ask::Open)).unwrap().unwrap();
            self.user.client.close_handle(handle);
            Arc::clone(&self.woken).wake();
        }
    }

    explore(|| {
        let world = World::of(4);
        let (other, woken) = (Arc::<Parked>::default(), Arc::<Parked>::default());
        let theirs = Arc::clone(&other);
        let thread = world.spawn(move |user| {
            for number in 11..=12 {
                user.submit(number);
                // A turn counts the other's request too.
                let outcome = loop {
                    user.client.turn(1, Duration::ZERO, None).unwrap();
                    if let Some(outcome) = user.client.next_outcome() {
                        break outcome;
                    }
                };
                good(&outcome, number);
            }
            theirs.wake();
        });
        let waker = Waker::from(Arc::new(Waits {
            user: world.user.clone(),
            other,
            woken: Arc::clone(&woken),
        }));
        let mut first = world.user.run(world.user.read(1));
        assert!(poll_once(&mut first, &waker).is_pending());
        drop(waker);
        woken.park();
        good(&park_on(first).unwrap(), 1);
        thread.join().unwrap();
        world.end();
    });
}

/// A thread has the role and waits for something that is none of the client's.
#[test]
fn a_future_wakes_block_on_from_another_thread() {
    explore(|| {
        let world = World::of(2);
        let (tell, told) = mpsc::channel::<Waker>();
        let done = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&done);
        let blocks = world.spawn(move |user| {
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
        let ticket = world.user.submit(1);
        good(&world.user.wait(ticket), 1);
        done.store(true, Ordering::SeqCst);
        waker.wake();
        blocks.join().unwrap();
        world.end();
    });
}

/// Two threads and a future want one outcome: one of them gets it, and the others hear that it has gone.
#[test]
fn who_waits_for_what_another_took_is_told() {
    explore(|| {
        let world = World::of(2);
        let long = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.gated(9)));
            done.unwrap().unwrap().result.unwrap();
        });
        let ticket = world.user.submit(1);
        let wait = move |user: &User| user.client.wait(ticket).is_some();
        let poll = move |user: &User| {
            assert!(user.client.is_driven());
            park_on(poll_fn(|context| user.client.poll(ticket, context.waker()))).is_some()
        };
        let (one, other) = (world.spawn(wait), world.spawn(poll));
        let took = [wait(&world.user), one.join().unwrap(), other.join().unwrap()];
        assert_eq!(took.iter().filter(|took| **took).count(), 1, "{took:?}");
        world.user.doorbell.open_the_gate();
        long.join().unwrap();
        world.end();
    });
}

/// Polled inside of `block_on` with a waker of the outside, not sent, and left behind; another thread sleeps on the bell.
#[test]
fn what_block_on_leaves_behind_is_sent_and_reaped() {
    explore(|| {
        let world = World::of(3);
        // The helper is there already.
        good(&park_on(world.user.run(world.user.read(1))).unwrap(), 1);
        let long = world.spawn(|user| {
            let done = user.client.block_on(user.run(user.gated(9)));
            done.unwrap().unwrap().result.unwrap();
        });
        let parked = Arc::new(Parked::default());
        let waker = Waker::from(Arc::clone(&parked));
        let mut left = world.user.run(world.user.read(2));
        let polled = world.user.client.block_on(async { poll_once(&mut left, &waker) });
        if polled.unwrap().is_pending() {
            parked.park();
            good(&park_on(left).unwrap(), 2);
        }
        world.user.doorbell.open_the_gate();
        long.join().unwrap();
        world.end();
    });
}
