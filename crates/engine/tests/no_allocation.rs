//! No heap allocation per request on the hot path: 10,000 reads on a warm engine allocate
//! nothing at all in the thread that runs it.

#![allow(unsafe_code)]

mod backends;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use backends::{Bench, blank, direct, own, pattern, tell};
use baio_engine::{Engine, EngineOptions, File, Memory, Policy, Request, Vectored, Wait};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and a count of its calls per thread.
struct Counting;

fn note() {
    // A thread that is ending has no counter any more, and nothing to measure.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged; the counter is a plain thread-local number that needs
// neither initialisation nor destruction, so counting cannot allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
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

/// So few that a warm engine has them all. One more, made because a job has waited for long, would be an allocation: of this
/// moment, and of no request.
const WORKERS: u32 = 4;

const READS: u64 = 10_000;
const DEPTH: usize = 64;
const BLOCKS: u64 = 256;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// The asynchronous backends that start here.
fn benches() -> impl Iterator<Item = Bench> {
    Bench::each(|row| ["threads", "aio", "uring"].contains(&row.name))
}

/// Keeps `spare.len()` reads in flight until `reads` have completed.
fn pump(engine: &mut Engine, file: &File, policy: Policy, spare: &mut Vec<Memory>, reads: u64) {
    let (mut submitted, mut completed) = (0, 0);
    while completed < reads {
        while submitted < reads
            && let Some(memory) = spare.pop()
        {
            let offset = submitted * 37 % (BLOCKS - 4) * 4096;
            engine
                .submit(Request::read(file, offset, memory, policy))
                .expect("a free slot");
            submitted += 1;
        }
        engine.turn(Wait::one()).expect("a turn");
        while let Some(done) = engine.next_completion() {
            assert!(done.result.is_ok());
            spare.push(done.memory);
            completed += 1;
        }
    }
}

fn measure(mut engine: Engine, file: &File, policy: Policy, mut spare: Vec<Memory>, what: &str) {
    pump(&mut engine, file, policy, &mut spare, 1000);
    let before = allocations();
    pump(&mut engine, file, policy, &mut spare, READS);
    let allocated = allocations() - before;
    let backend = engine.explain().backend;
    tell(&format!("no allocation: {allocated} for {READS} {what} on {backend}"));
    assert_eq!(allocated, 0, "{what} on {backend}");
}

#[test]
fn warm_reads_allocate_nothing() {
    for bench in benches() {
        let file = bench.file(&pattern(1, BLOCKS as usize * 4096));
        for policy in [Policy::kernel(), direct(&file).unwrap_or(Policy::kernel())] {
            let engine = bench.engine_with(&EngineOptions {
                slots: 128,
                pool_threads: WORKERS,
                ..Bench::config()
            });
            let spare: Vec<Memory> = (0..DEPTH).map(|_| Memory::Own(blank(&engine, 4096))).collect();
            measure(engine, &file, policy, spare, "reads into buffers");
        }
    }
}

#[test]
fn a_buffer_taken_and_dropped_per_read_allocates_nothing() {
    for bench in benches() {
        let file = bench.file(&pattern(2, BLOCKS as usize * 4096));
        let policy = direct(&file).unwrap_or(Policy::kernel());
        let mut engine = bench.engine_with(&EngineOptions {
            slots: 128,
            pool_threads: WORKERS,
            ..Bench::config()
        });
        let one = |engine: &mut Engine, read: u64| {
            let memory = engine.buffer(4096).expect("room in the arena");
            engine
                .submit(Request::read(&file, read % BLOCKS * 4096, memory, policy))
                .expect("a free slot");
            engine.turn(Wait::one()).expect("a turn");
            drop(own(engine.next_completion().expect("one request").memory));
        };
        (0..100).for_each(|read| one(&mut engine, read));
        let before = allocations();
        (0..1000).for_each(|read| one(&mut engine, read));
        assert_eq!(allocations() - before, 0);
    }
}

#[test]
fn a_list_used_again_allocates_nothing() {
    for bench in benches() {
        let file = bench.file(&pattern(3, BLOCKS as usize * 4096));
        let policy = direct(&file).unwrap_or(Policy::kernel());
        let engine = bench.engine_with(&EngineOptions {
            slots: 128,
            pool_threads: WORKERS,
            ..Bench::config()
        });
        let list = || {
            let mut parts = Vectored::with_capacity(4);
            for _ in 0..4 {
                parts.push(Memory::Own(blank(&engine, 4096))).expect("a part");
            }
            Memory::Many(parts)
        };
        let spare: Vec<Memory> = (0..DEPTH).map(|_| list()).collect();
        measure(engine, &file, policy, spare, "reads into lists of four");
    }
}

/// The canary: the counter does count.
#[test]
fn an_allocation_is_counted() {
    let before = allocations();
    drop(std::hint::black_box(Box::new([0_u8; 100])));
    assert_eq!(allocations() - before, 1);
}
