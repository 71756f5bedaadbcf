//! Commands go beside requests, and a handle that was opened for somebody who has left is closed.

use std::task::{Poll, Waker};

use crate::explore::explore;
use crate::futures::{World, good, park_on, poll_once};
use crate::service::Ask;

#[test]
fn commands_go_beside_requests() {
    explore(|| {
        let world = World::of(3);
        let asks = world.spawn(|user| {
            let handle = user.client.ask(Box::new(Ask::Open)).unwrap().unwrap();
            user.client.remember(handle, "opened".into());
            user.client.close_handle(handle);
        });
        let awaits = world.spawn(|user| {
            let handle = park_on(user.ask(Ask::Open)).unwrap().unwrap();
            user.client.close_handle(handle);
        });
        let ticket = world.user.submit(1);
        good(&world.user.wait(ticket), 1);
        asks.join().unwrap();
        awaits.join().unwrap();
        // What lies in the ring is taken before the next answer comes.
        let ticket = world.user.submit(2);
        good(&world.user.wait(ticket), 2);
        let told = world.end();
        assert_eq!((told.opened, told.closed), (2, 2));
    });
}

#[test]
fn what_was_opened_for_nobody_is_closed() {
    explore(|| {
        let world = World::of(3);
        let leaves = world.spawn(|user| {
            let mut asking = user.ask(Ask::Open);
            if let Poll::Ready(Some(Some(handle))) = poll_once(&mut asking, Waker::noop()) {
                user.client.close_handle(handle);
            }
        });
        for number in 1..=2 {
            good(&park_on(world.user.run(world.user.read(number))).unwrap(), number);
        }
        leaves.join().unwrap();
        // Closed with the client's next activity, when the answer is there.
        while world.user.client.in_flight() > 0 {
            world.user.client.look_once();
            shuttle::thread::yield_now();
        }
        for number in 3..=4 {
            let ticket = world.user.submit(number);
            good(&world.user.wait(ticket), number);
        }
        let told = world.end();
        assert_eq!(told.opened, told.closed, "a handle is left open");
    });
}
