//! No heap allocation per request once the cache is warm: hits, fills with evictions, plain and durable writes, write-back.

use baio_engine::{Arena, Durability, EngineOptions, Memory, Open};
use baio_storage::cache::eviction::Policy;
use baio_storage::cache::{Borrower, Cache, CacheOp, CacheOptions};
use baio_storage::{Core, Pinning};

use crate::allocations;
use crate::rig::hand::{P, config, hand};
use crate::rig::{self, PAGE, Random, ask, end_all};

#[test]
fn a_warm_cache_allocates_nothing() {
    let mut h = hand(64);
    let mut random = Random(1);
    let mut memory: Vec<Memory> = (0..4).map(|_| h.memory.buffer(4 * PAGE).unwrap().into()).collect();
    let mut round = |h: &mut rig::hand::Hand| {
        for _ in 0..4 {
            let offset = random.below(250) * P + random.below(2) * 100;
            let op = match random.below(4) {
                0 => CacheOp::Write {
                    offset,
                    durability: Durability::None,
                },
                1 => CacheOp::Write {
                    offset,
                    durability: Durability::Data,
                },
                _ => CacheOp::Read { offset },
            };
            let memory = memory.pop().unwrap();
            ask(&mut h.cache, h.object, op, memory);
        }
        while memory.len() < 4 {
            end_all(&mut h.cache);
            while let Some(done) = h.cache.next_done() {
                assert!(done.result.is_ok());
                memory.push(done.memory);
            }
        }
    };
    // Lists grow to the most that were ever needed at once; soon that does not grow any more.
    let mut calls = u64::MAX;
    for _ in 0..8 {
        let before = allocations::so_far();
        for _ in 0..3000 {
            round(&mut h);
        }
        calls = allocations::so_far() - before;
        if calls == 0 {
            break;
        }
    }
    let stats = h.cache.stats();
    assert!(
        stats.evictions > 1000 && stats.durable_writes > 1000 && stats.cleaner_writes > 10,
        "{stats:?}"
    );
    assert_eq!(calls, 0, "allocations in 12000 requests: {stats:?}");
}

#[test]
fn what_is_not_copied_allocates_nothing() {
    let mut h = hand(64);
    let config = CacheOptions {
        eviction: Policy::S3Fifo,
        ..config(64)
    };
    h.cache = Cache::new(&Arena::new(64 * PAGE).unwrap(), config).unwrap();
    h.object = h.cache.add(1000 * P, 0);
    let borrower = Borrower::new(1 << 20);
    let mut memory: Memory = h.memory.buffer(4 * PAGE).unwrap().into();
    let mut round = |h: &mut rig::hand::Hand, n: u64| {
        let durability = Durability::Data;
        // Cold reads, large durable writes far from one another, and a run that is lent again and again.
        let page = 100 + n * 37 % 110 * 8;
        let op = match n % 2 {
            0 => CacheOp::Read { offset: page * P },
            _ => CacheOp::Write {
                offset: page % 32 * P,
                durability,
            },
        };
        h.ask(h.object, op, std::mem::take(&mut memory));
        end_all(&mut h.cache);
        let done = h.cache.next_done().unwrap();
        assert!(done.result.is_ok());
        memory = done.memory;
        drop(h.cache.lend(h.object, 40..56, &borrower));
    };
    h.cached(40, 16, 1);
    for n in 0..64 {
        h.cached(200 + n, 1, 1);
        drop(h.cache.lend(h.object, 40..56, &borrower));
    }
    let mut calls = u64::MAX;
    for _ in 0..8 {
        let before = allocations::so_far();
        for n in 0..1000 {
            round(&mut h, n);
        }
        calls = allocations::so_far() - before;
        if calls == 0 {
            break;
        }
    }
    let stats = h.cache.stats();
    assert!(
        stats.bypasses > 100 && stats.writes_through > 100 && stats.pages_lent > 1000,
        "{stats:?}"
    );
    assert_eq!(calls, 0, "{stats:?}");
}

#[test]
fn a_pinned_hit_allocates_nothing_and_is_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 64 * PAGE]).unwrap();
    let config = EngineOptions {
        slots: 16,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    };
    let mut core = Core::new(&config).unwrap();
    let cache = CacheOptions::of_size(128 * PAGE);
    core.use_cache(&cache).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    for page in 0..64 {
        let pin = core.pin_now(handle, page).unwrap();
        core.change(&pin, 0).unwrap()[1] = 1;
        core.unpin(pin);
    }
    let requests = core.cache_stats().unwrap().requests;
    let before = allocations::so_far();
    for n in 0..6400 {
        let Ok(Pinning::Held(pin)) = core.pin(handle, n * 37 % 64) else {
            panic!("it is there");
        };
        assert_eq!(core.page(&pin).unwrap()[..2], [7, 1]);
        core.change(&pin, 0).unwrap()[2] = n as u8;
        core.unpin(pin);
    }
    assert_eq!(allocations::so_far() - before, 0);
    assert_eq!(core.cache_stats().unwrap().requests, requests);
}
