//! What a page that is in memory costs, of a set of 8 MiB at random: pinned, read and given back; copied by a request; and, to
//! measure both by, read with `pread` from the kernel's page cache.
//!
//! `cargo bench -p baio-storage --bench cache_hits` prints CPU nanoseconds per page and the ratios to `pread`. The three take
//! turns, round by round, and the ratio is that of one round: what disturbs the machine disturbs all of them. The marks of the
//! project: at most 0.33 for a pinned page, at most 0.85 for a copied one.

use std::hint::black_box;
use std::os::unix::fs::FileExt;

use baio_engine::{Buffer, Config, Memory, Open};
use baio_storage::cache::CacheConfig;
use baio_storage::{Core, Handle, Mode, Pinning, SegmentOp, SegmentRequest};

const PAGE: usize = 4096;
const PAGES: u64 = 2048;
const TIMES: u64 = 200_000;
const ROUNDS: usize = 9;

/// Page numbers in a scattered order.
fn page(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53
}

/// The CPU time of this thread so far, in ns.
fn cpu_ns() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

fn cost(mut run: impl FnMut(u64)) -> f64 {
    let start = cpu_ns();
    (0..TIMES).for_each(&mut run);
    (cpu_ns() - start) as f64 / TIMES as f64
}

fn pinned(core: &mut Core, handle: Handle, page: u64) -> u64 {
    let Ok(Pinning::Held(pin)) = core.pin(handle, page) else {
        panic!("page {page} is not there");
    };
    let bytes = core.page(&pin).expect("it is pinned");
    let word = u64::from_le_bytes(bytes[64..72].try_into().expect("eight bytes"));
    core.unpin(pin);
    word
}

fn copied(core: &mut Core, handle: Handle, page: u64, buffer: Buffer) -> Buffer {
    let request = SegmentRequest {
        mode: Mode::Cached,
        ..SegmentRequest::new(
            handle,
            SegmentOp::Read {
                offset: page * PAGE as u64,
            },
            buffer,
        )
    };
    let ticket = core.start(request).expect("a slot");
    let outcome = core.wait(ticket).expect("a core that runs").expect("an outcome");
    match outcome.memory {
        Memory::Own(buffer) if outcome.result.is_ok() => buffer,
        _ => panic!("{:?}", outcome.result),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("baio-cache-hits-{}", std::process::id()));
    std::fs::write(&path, vec![7; PAGES as usize * PAGE])?;
    let file = std::fs::File::open(&path)?;
    let mut core = Core::new(&Config {
        arena_bytes: 32 << 20,
        ..Config::default()
    })?;
    core.use_cache(&CacheConfig {
        bytes: 16 << 20,
        ..CacheConfig::default()
    })?;
    let handle = core.open_file(&path, &Open::read())?;
    std::fs::remove_file(&path)?;
    for page in 0..PAGES {
        let pin = core.pin_now(handle, page)?;
        core.unpin(pin);
    }
    let mut bytes = [0; PAGE];
    let mut buffer = Some(core.buffer(PAGE)?);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let pread = cost(|n| {
            file.read_exact_at(black_box(&mut bytes), page(n) * PAGE as u64)
                .expect("the file is there");
        });
        let pin = cost(|n| _ = black_box(pinned(&mut core, handle, page(n))));
        let copy = cost(|n| {
            let given = buffer.take().expect("it came back");
            buffer = Some(black_box(copied(&mut core, handle, page(n), given)));
        });
        rounds.push((pread, pin, copy));
    }
    let middle = |of: fn(&(f64, f64, f64)) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[ROUNDS / 2]
    };
    println!("pread       {:7.1} ns", middle(|round| round.0));
    println!(
        "pinned hit  {:7.1} ns  {:.3} of pread",
        middle(|round| round.1),
        middle(|round| round.1 / round.0)
    );
    println!(
        "copied hit  {:7.1} ns  {:.3} of pread",
        middle(|round| round.2),
        middle(|round| round.2 / round.0)
    );
    Ok(())
}
