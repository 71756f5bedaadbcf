//! An idle service uses no processor: it sleeps in the kernel, without a timer and without spinning, until it is rung for.
//! Counted, not timed: a thread that does not run makes no context switch. One test in this binary, so that its threads
//! are the only ones of their names.

mod common;

use std::time::Duration;

use baio::{Backend, Link};
use common::remote;

/// Times that the thread was switched out, by itself or by others.
fn switches(thread: u64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let count = |line: &str| {
        line.contains("ctxt_switches")
            .then(|| line.split_whitespace().last()?.parse::<u64>().ok())
    };
    status.lines().filter_map(count).flatten().sum::<u64>()
}

/// A thread gives itself its name a moment after it was started.
fn thread(name: &str) -> u64 {
    loop {
        match remote::thread_named(name) {
            Some(thread) => return thread,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn an_idle_service_does_not_run_at_all() {
    for backend in [Backend::Auto, Backend::Sync] {
        while remote::thread_named("baio-helper").is_some() {
            std::thread::yield_now(); // The last volume's helper is on its way out.
        }
        let (_dir, volume) = remote::volume(backend);
        let segment = common::segment(&volume, "idle", 64 << 10);
        let read = || segment.read_at(0, segment.buffer(4096).unwrap());
        read().wait().unwrap();
        // The helper too: started by a future that this thread does not drive.
        let mut left = Box::pin(read());
        assert!(
            std::future::Future::poll(
                left.as_mut(),
                &mut std::task::Context::from_waker(std::task::Waker::noop())
            )
            .is_pending()
        );
        assert_eq!(volume.block_on(left).unwrap().unwrap().bytes, 4096);
        let (service, helper) = (thread("baio-service"), thread("baio-helper"));
        // On a busy machine what the last request has left to do may take a while; who spins or has a timer never rests.
        let rested = (0..20).any(|_| {
            let before = (switches(service), switches(helper));
            std::thread::sleep(Duration::from_millis(200));
            (switches(service), switches(helper)) == before
        });
        assert!(rested, "it runs while there is nothing to do");
        let before = switches(service);
        read().wait().unwrap();
        assert!(switches(service) > before, "it is that thread that serves");
        volume.close().unwrap();
    }
}
