//! What must not grow: the longest call of a reservation over half of a dirty cache, by the size of the cache; and a cached write with
//! its turn, by the number of objects.
//!
//! `cargo bench -p baio-storage --bench cache_walks` prints CPU time, the best of some rounds. The same is held by counters in
//! `tests/cache/reservations.rs` and `tests/cache/many_objects.rs`.

use baio_engine::{Arena, Durability, Memory, Time};
use baio_storage::cache::eviction::Hint;
use baio_storage::cache::{Cache, CacheOp, CacheOptions, CacheRequest, Io, ObjectId};

const PAGE: usize = 4096;
const ROUNDS: usize = 3;

fn main() {
    for mib in [64, 128, 256] {
        let (mut longest, mut all) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            let (one, sum) = reservation(mib << 20);
            longest = longest.min(one);
            all = all.min(sum);
        }
        println!("reservation over half of {mib} MiB: longest call {longest:>7.0} us, all {all:>9.0} us");
    }
    for count in [1, 100, 10_000] {
        let best = (0..ROUNDS).map(|_| write_and_turn(count)).fold(f64::INFINITY, f64::min);
        println!("cached write and turn, {count:>6} objects: {best:>7.0} ns");
    }
}

fn cache(bytes: usize) -> Cache {
    let config = CacheOptions {
        bytes,
        ..CacheOptions::default()
    };
    Cache::new(&Arena::new(bytes).expect("memory"), config).expect("a cache")
}

fn ask(cache: &mut Cache, object: ObjectId, op: CacheOp, memory: Memory) {
    let hint = Hint::Normal;
    cache.start(
        0,
        CacheRequest {
            object,
            op,
            memory,
            hint,
        },
    );
}

fn write(cache: &mut Cache, object: ObjectId, page: usize, memory: Memory) -> Memory {
    let (offset, durability) = ((page * PAGE) as u64, Durability::None);
    ask(cache, object, CacheOp::Write { offset, durability }, memory);
    cache.next_done().expect("it ends at once").memory
}

/// The longest call and all calls, in microseconds.
fn reservation(bytes: usize) -> (f64, f64) {
    let mut cache = cache(bytes);
    let pages = bytes / PAGE;
    let object = cache.add(bytes as u64, 0);
    let mut memory: Memory = Arena::new(PAGE).expect("memory").buffer(PAGE).expect("memory").into();
    for page in (0..pages).step_by(2) {
        memory = write(&mut cache, object, page, memory);
    }
    let (mut longest, mut all) = (0.0_f64, 0.0);
    let mut timed = |run: &mut dyn FnMut()| {
        let us = cost_ns(run) / 1000.0;
        longest = longest.max(us);
        all += us;
    };
    let (start, end) = (0, bytes as u64);
    timed(&mut || ask(&mut cache, object, CacheOp::Reserve { start, end }, Memory::None));
    let mut ios: Vec<Io> = Vec::new();
    while cache.next_done().is_none() {
        if cache.is_put_off() {
            timed(&mut || cache.go_on());
            continue;
        }
        timed(&mut || ios.extend(cache.next_io()));
        match ios.pop() {
            Some(io) => {
                let mut io = Some(io);
                timed(&mut || {
                    if let Some(io) = io.take() {
                        let len = io.memory.len() as u32;
                        cache.io_ended(io.id, Ok(len), io.memory);
                    }
                });
            }
            None => break,
        }
    }
    (longest, all)
}

/// Nanoseconds.
fn write_and_turn(count: usize) -> f64 {
    const TIMES: usize = 20_000;
    let mut cache = cache(64 << 20);
    let objects: Vec<ObjectId> = (0..count).map(|_| cache.add(PAGE as u64, 0)).collect();
    let mut memory: Memory = Arena::new(PAGE).expect("memory").buffer(PAGE).expect("memory").into();
    // Half of them have something to be written.
    for object in objects.iter().step_by(2) {
        memory = write(&mut cache, *object, 0, memory);
    }
    let mut memory = Some(memory);
    let all = cost_ns(&mut || {
        for n in 0..TIMES {
            // The same few pages, whatever the number, so that the copies cost the same.
            let object = objects[n % 16 * (count / 16) / 2 * 2];
            let given = memory.take().unwrap_or_default();
            memory = Some(write(&mut cache, object, 0, given));
            if cache.next_tick().is_some_and(|at| at <= Time(1)) {
                cache.tick(Time(1));
            }
            assert!(cache.next_io().is_none());
        }
    });
    all / TIMES as f64
}

/// CPU nanoseconds.
fn cost_ns(run: &mut dyn FnMut()) -> f64 {
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let begun = cpu();
    run();
    let ended = cpu();
    ((ended.tv_sec - begun.tv_sec) * 1_000_000_000 + ended.tv_nsec - begun.tv_nsec) as f64
}
