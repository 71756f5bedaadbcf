//! A context is never fuller than its live ring: no event is lost, however many threads fill it at once while events arrive.

#![allow(unsafe_code)]

mod common;

use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use baio_libaio::command;
use common::{Library, NO_EVENT, request};

const THREADS: usize = 8;

#[test]
fn threads_that_fill_a_context_lose_no_event() {
    let library = Library::ours();
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let context = library.context(8);
    let mut byte = 0;
    let mut reads: Vec<_> = (0..4096)
        .map(|_| request(command::PREAD, zeros.as_raw_fd(), &raw mut byte, 1, 0))
        .collect();
    let mut one_after_the_other = reads.iter_mut().map(|read| library.submit_one(context, read));
    let room = one_after_the_other.by_ref().take_while(|told| *told == 1).count();
    assert_eq!(library.events(context, room).len(), room);
    let (full, seen, taken) = (
        Barrier::new(THREADS + 1),
        Barrier::new(THREADS + 1),
        AtomicUsize::new(0),
    );
    let rounds = 6000;
    let mut flaws = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut byte = 0;
                for _ in 0..rounds {
                    let mut refusals = 0;
                    while refusals < 3 {
                        let mut read = request(command::PREAD, zeros.as_raw_fd(), &raw mut byte, 1, 0);
                        match library.submit_one(context, &mut read) {
                            1 => _ = taken.fetch_add(1, Ordering::Relaxed),
                            told => {
                                assert_eq!(told, -libc::EAGAIN);
                                refusals += 1;
                            }
                        }
                    }
                    full.wait();
                    seen.wait();
                }
            });
        }
        for round in 0..rounds {
            full.wait();
            let expected = taken.swap(0, Ordering::Relaxed);
            // Not asserted here: the threads would wait for ever.
            let mut limit = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            let mut events = vec![NO_EVENT; 4096];
            // SAFETY: there is room for so many.
            let told =
                unsafe { (library.get_events)(context, expected as i64, 4096, events.as_mut_ptr(), &raw mut limit) };
            if expected > room || told != expected as i32 {
                flaws.push(format!(
                    "round {round}: {expected} let in, room for {room}, {told} events"
                ));
            }
            seen.wait();
        }
    });
    assert!(flaws.is_empty(), "{flaws:?}");
    // SAFETY: nobody uses it any more.
    assert_eq!(unsafe { (library.destroy)(context) }, 0);
}
