//! What the page cache costs the processor for a request at a random place of sixteen times the cache, and for each of its pages,
//! beside the copy and any device: durable writes and reads, under a device that answers at once.
//!
//! `cargo bench -p baio-storage --bench page_cache [-- WORD]` prints CPU time, the best of some rounds, of all or of what has the word
//! in its name. What a page in memory costs is in `cache_hits`.

use std::hint::black_box;
use std::sync::Arc;

use baio_engine::{Arena, Durability, Memory};
use baio_storage::cache::eviction::Hint;
use baio_storage::cache::{Cache, CacheOp, CacheOptions, CacheRequest, IoKind};

const PAGE: usize = 4096;
const ROUNDS: usize = 5;

fn main() {
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|word| name.contains(word.as_str()));
    for (what, durability) in [("read", None), ("durable write", Some(Durability::Data))] {
        for pages in [1, 4, 16] {
            if !wanted(&format!("{what}, {} KiB", pages * 4)) {
                continue;
            }
            let best = best(|| beside_a_device(pages, durability));
            println!(
                "{what}, {} KiB, beside device and copy{:>9.0} ns a request, {:>5.0} a page",
                pages * 4,
                best,
                best / pages as f64
            );
        }
    }
}

/// Nanoseconds of a request of so many pages, without its copy: eight under way at a time.
fn beside_a_device(pages: usize, durability: Option<Durability>) -> f64 {
    const FRAMES: usize = 4096;
    const UNDER_WAY: u64 = 8;
    const TIMES: u64 = 100_000;
    let arena = Arena::new(FRAMES * PAGE).expect("memory");
    let config = CacheOptions::of_size(FRAMES * PAGE);
    let mut cache = Cache::new(&arena, config).expect("a cache");
    let size = 16 * FRAMES * PAGE;
    let object = cache.add(size as u64, 0);
    let own: Arc<Arena> = Arena::new(UNDER_WAY as usize * pages * PAGE).expect("memory");
    let mut spare: Vec<Memory> = (0..UNDER_WAY)
        .map(|_| own.buffer(pages * PAGE).expect("memory").into())
        .collect();
    let mut copy = own_copy(pages);
    let all = cost(TIMES / UNDER_WAY, |n| {
        for nth in 0..UNDER_WAY {
            let offset = place(n * UNDER_WAY + nth, size / pages) * pages as u64;
            let op = match durability {
                Some(durability) => CacheOp::Write { offset, durability },
                None => CacheOp::Read { offset },
            };
            let memory = spare.pop().expect("memory");
            let hint = Hint::Normal;
            cache.start(
                nth,
                CacheRequest {
                    object,
                    op,
                    memory,
                    hint,
                },
            );
        }
        while let Some(io) = cache.next_io() {
            let len = match io.kind {
                IoKind::Read { len, .. } | IoKind::Write { len, .. } => len,
                IoKind::Sync { .. } => 0,
            };
            cache.io_ended(io.id, Ok(len), io.memory);
        }
        while let Some(done) = cache.next_done() {
            assert!(done.result.is_ok());
            spare.push(done.memory);
        }
    });
    let copies = cost(TIMES, |n| copy(n as usize));
    all / UNDER_WAY as f64 - copies
}

/// A copy of so many pages between memories as large as those above.
fn own_copy(pages: usize) -> impl FnMut(usize) {
    let mut to = vec![1_u8; 4096 * PAGE];
    let from = vec![2_u8; 8 * pages * PAGE];
    move |n| {
        let len = pages * PAGE;
        let at = place(n as u64, to.len() / pages) as usize * pages;
        to[at..at + len].copy_from_slice(black_box(&from[n % 8 * len..][..len]));
    }
}

/// A page at random, as an offset below `size`.
fn place(n: u64, size: usize) -> u64 {
    let random = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    random % (size / PAGE) as u64 * PAGE as u64
}

fn best(mut run: impl FnMut() -> f64) -> f64 {
    (0..ROUNDS).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// CPU nanoseconds of one of so many.
fn cost(times: u64, mut run: impl FnMut(u64)) -> f64 {
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let begun = cpu();
    (0..times).for_each(&mut run);
    let ended = cpu();
    let nanoseconds = (ended.tv_sec - begun.tv_sec) * 1_000_000_000 + ended.tv_nsec - begun.tv_nsec;
    nanoseconds as f64 / times as f64
}
