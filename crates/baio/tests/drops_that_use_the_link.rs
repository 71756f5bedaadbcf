//! The memory and the answers of users may be anything. Their drops may use the link that they came from, have the last handle of it, or
//! panic: nobody hangs of it, nothing of others is lost, and no memory stays behind.

mod common;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::{Duration, Instant};

use baio::{Backend, Buffer, Link, Local, Owned, OwnedBytes, OwnedBytesMut, Remote, Request, Wait};
use common::begun;
use common::story::tell_of;

#[repr(align(4096))]
struct Page([u8; 4096]);

/// A page of memory, and what is dropped with it.
struct With<D> {
    page: Box<Page>,
    _dropped: D,
}

// SAFETY: the bytes are initialised, and in the box's allocation, which nobody else can reach.
#[allow(unsafe_code)]
unsafe impl<D: Send + 'static> OwnedBytes for With<D> {
    fn bytes(&mut self) -> (*mut u8, usize) {
        (self.page.0.as_mut_ptr(), 4096)
    }
}
// SAFETY: the pointer may be used to write them.
#[allow(unsafe_code)]
unsafe impl<D: Send + 'static> OwnedBytesMut for With<D> {}

fn memory_with<D: Send + 'static>(dropped: D) -> Owned<With<D>> {
    Owned(With {
        page: Box::new(Page([7; 4096])),
        _dropped: dropped,
    })
}

/// Until nothing is under way on the link of a service; a story that waits for ever fails by its guard.
fn settle(volume: &Remote) {
    while volume.in_flight() > 0 {
        volume.turn(Wait::No).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn abandoned_memory_has_the_segment_that_is_read() {
    tell_of(|| {
        let (gate, volume) = common::gate::gated();
        let segment = common::segment(&volume, "one", 64 << 10);
        gate.close();
        let read = begun(segment.read_at(0, memory_with(segment.clone())).direct());
        gate.wait_for(1);
        drop((read, segment));
        gate.open();
        settle(&volume);
        volume.close().unwrap();
    });
}

#[test]
fn an_answer_that_nobody_takes_has_a_segment() {
    tell_of(|| {
        let (_dir, volume) = common::remote::volume(Backend::Auto);
        let segment = common::segment(&volume, "one", 64 << 10);
        let answer = segment.clone();
        let run = begun(volume.with_pool(move |_| {
            std::thread::sleep(Duration::from_millis(200));
            answer
        }));
        std::thread::sleep(Duration::from_millis(50));
        drop((segment, run));
        settle(&volume);
        volume.close().unwrap();
    });
}

#[test]
fn a_closure_that_never_ran_has_a_segment() {
    tell_of(|| {
        let (gate, volume) = common::gate::gated();
        let segment = common::segment(&volume, "one", 64 << 10);
        let inside = segment.clone();
        let busy = begun(volume.with_pool(|_| std::thread::sleep(Duration::from_millis(200))));
        std::thread::sleep(Duration::from_millis(50));
        gate.close();
        let read = begun(segment.read_at(0, segment.buffer(4096).unwrap()));
        drop(volume.with_pool(move |_| drop(inside)));
        drop((segment, busy, read));
        gate.open();
        volume.close().unwrap();
    });
}

/// It goes on the service's thread or on the helper's, neither of which can wait for itself.
#[test]
fn abandoned_memory_has_the_last_handle_of_the_link() {
    tell_of(|| {
        let (_dir, volume) = common::remote::volume(Backend::Auto);
        let segment = common::segment(&volume, "one", 64 << 10);
        let write = begun(segment.write_at(0, memory_with(volume.clone())).direct());
        drop((write, segment, volume));
        let start = Instant::now();
        while common::remote::thread_named("baio-service").is_some() {
            assert!(start.elapsed() < Duration::from_secs(10), "the service goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

type Read = Pin<Box<Request<Local, Buffer>>>;

thread_local! {
    /// What [`TakesARequest`] drops: memory is `Send`, and a request of a local link is not.
    static REQUEST: RefCell<Option<Read>> = const { RefCell::new(None) };
}

struct TakesARequest;

impl Drop for TakesARequest {
    fn drop(&mut self) {
        drop(REQUEST.take());
    }
}

#[test]
fn abandoned_memory_drops_another_request_inside_a_turn() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "one", 64 << 10);
        let free = volume.arena_free_bytes();
        let driver = volume.drive();
        REQUEST.set(Some(begun(segment.read_at(0, segment.buffer(4096).unwrap()))));
        let abandoned = begun(segment.read_at(4096, memory_with(TakesARequest)).direct());
        volume.turn(Wait::No).unwrap();
        drop(abandoned);
        common::finish(&volume);
        drop(driver);
        assert_eq!(volume.arena_free_bytes(), free);
    });
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the test wants this drop to panic");
        }
    }
}

#[test]
fn a_drop_that_panics_beside_a_service_fails_nobody_else() {
    tell_of(|| {
        let (gate, volume) = common::gate::gated();
        let segment = common::segment(&volume, "one", 64 << 10);
        gate.close();
        let read = begun(segment.read_at(0, memory_with(Bomb)).direct());
        gate.wait_for(1);
        drop(read);
        gate.open();
        // The helper drops it.
        settle(&volume);
        let other = segment.read_at(4096, segment.buffer(4096).unwrap());
        assert_eq!(other.wait().unwrap().bytes, 4096);
        settle(&volume);
        volume.close().unwrap();
    });
}

/// The thread that drives the link drops it: there the panic is.
#[test]
fn a_drop_that_panics_inside_a_turn_fails_nobody_else() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "one", 64 << 10);
        let driver = volume.drive();
        let abandoned = begun(segment.read_at(0, memory_with(Bomb)).direct());
        let other = begun(segment.read_at(4096, segment.buffer(4096).unwrap()));
        let _ = volume.turn(Wait::No);
        let mut panics = usize::from(catch_unwind(AssertUnwindSafe(|| drop(abandoned))).is_err());
        while volume.in_flight() > 0 {
            let turned = catch_unwind(AssertUnwindSafe(|| volume.turn(Wait::one()).unwrap()));
            panics += usize::from(turned.is_err());
        }
        assert_eq!(panics, 1);
        assert_eq!(volume.block_on(other).unwrap().unwrap().bytes, 4096);
        drop((driver, segment));
        volume.close().unwrap();
    });
}
