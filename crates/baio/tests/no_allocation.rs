//! No heap allocation per request once a link is warm: by ticket and awaited, on both sides of the ring, and for awaited
//! futures of the local link. Every allocation of the process is counted, whichever thread makes it, so the tests of this
//! binary take turns.

#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use baio::{Backend, Buffer, Link, LogOptions, Lsn, Remote, Request, Segment, SegmentOp, Wait};
use common::remote;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, and a count of its calls.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

const READS: u64 = 4000;
const DEPTH: usize = 32;

/// Runs the work until it is warm, then once more, counted. The test runner may allocate in its own thread while a test
/// starts, so one clean run of a few is the claim: what allocates per request has none.
fn assert_none(what: &str, mut work: impl FnMut()) {
    work();
    let runs = (0..5).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        work();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    let counts: Vec<u64> = runs.collect();
    assert!(
        counts.contains(&0),
        "{what}: allocations per {READS} requests: {counts:?}"
    );
}

fn by_ticket(volume: &Remote, segment: &Segment<Remote>, spare: &mut Vec<Buffer>) {
    let (mut next, mut ended) = (0, 0);
    while ended < READS {
        while next < READS
            && let Some(buffer) = spare.pop()
        {
            let read = SegmentOp::Read {
                offset: next * 37 % 256 * 4096,
            };
            segment.submit(segment.request(read, buffer)).expect("a place");
            next += 1;
        }
        volume.turn(Wait::one()).unwrap();
        while let Some(outcome) = volume.next_outcome() {
            outcome.result.unwrap();
            spare.extend(outcome.memory.into_buffer());
            ended += 1;
        }
    }
}

/// Keeps a fixed set of futures going, in places that are used again: an executor's list would allocate.
struct Pump<'a, L: Link> {
    segment: &'a Segment<L>,
    places: &'a mut [Option<Request<L, Buffer>>],
    next: u64,
    ended: u64,
}

impl<L: Link> Future for Pump<'_, L> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        for place in &mut *this.places {
            loop {
                if place.is_none() && this.next < READS {
                    let buffer = this.segment.buffer(4096).unwrap();
                    *place = Some(this.segment.read_at(this.next % 256 * 4096, buffer));
                    this.next += 1;
                }
                let Some(read) = place else { break };
                let Poll::Ready(ended) = Pin::new(read).poll(context) else {
                    break;
                };
                ended.unwrap();
                this.ended += 1;
                *place = None;
            }
        }
        if this.ended == READS {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

fn places<L: Link>() -> Vec<Option<Request<L, Buffer>>> {
    (0..DEPTH).map(|_| None).collect()
}

fn pump<'a, L: Link>(segment: &'a Segment<L>, places: &'a mut [Option<Request<L, Buffer>>]) -> Pump<'a, L> {
    Pump {
        segment,
        places,
        next: 0,
        ended: 0,
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn requests_by_ticket_over_a_service_allocate_nothing() {
    let _alone = alone();
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "warm", 1 << 20);
    let mut spare: Vec<Buffer> = (0..DEPTH).map(|_| segment.buffer(4096).unwrap()).collect();
    assert_none("tickets over a service", || by_ticket(&volume, &segment, &mut spare));
    assert_none("waited tickets over a service", || {
        for n in 0..READS / 8 {
            let buffer = spare.pop().unwrap();
            let read = segment.request(SegmentOp::Read { offset: n % 256 * 4096 }, buffer);
            let ticket = segment.submit(read).unwrap();
            let outcome = volume.wait(ticket).unwrap().unwrap();
            spare.extend(outcome.memory.into_buffer());
        }
    });
}

#[test]
fn awaited_reads_over_a_service_allocate_nothing() {
    let _alone = alone();
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "warm", 1 << 20);
    let mut places = places();
    assert_none("futures in block_on", || {
        volume.block_on(pump(&segment, &mut places)).unwrap();
    });
    // The same where the helper reaps.
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    assert_none("futures reaped by the helper", || {
        let mut work = pump(&segment, &mut places);
        while Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
    });
}

#[test]
fn awaited_reads_in_the_same_thread_allocate_nothing() {
    let _alone = alone();
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "warm", 1 << 20);
    let mut places = places();
    // `block_on` itself makes one waker, so it is entered once.
    let counts = volume.block_on(async {
        pump(&segment, &mut places).await;
        let mut counts = [0; 5];
        for count in &mut counts {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            pump(&segment, &mut places).await;
            *count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
        counts
    });
    let counts = counts.unwrap();
    assert!(counts.contains(&0), "allocations per {READS} requests: {counts:?}");
}

/// The canary: the counter does count, also in other threads.
#[test]
fn an_allocation_is_counted() {
    let _alone = alone();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    std::thread::spawn(|| drop(std::hint::black_box(Box::new([0_u8; 100]))))
        .join()
        .unwrap();
    assert!(ALLOCATIONS.load(Ordering::Relaxed) > before);
}

/// Appending copies into memory that the log has; only what is done once a batch may allocate.
#[test]
fn appending_to_a_log_allocates_nothing() {
    let _alone = alone();
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "log", 4 << 20);
    let log = segment.create_log(&LogOptions::default()).wait().unwrap();
    let append_all = || {
        let mut last = Lsn(0);
        for number in 0..1000_u64 {
            last = log.append(&number.to_le_bytes()).unwrap();
        }
        last
    };
    let runs = (0..6).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let last = append_all();
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        log.durable(last).wait().unwrap();
        count
    });
    let counts: Vec<u64> = runs.collect();
    assert!(counts[1..].contains(&0), "allocations per 1000 records: {counts:?}");
}
