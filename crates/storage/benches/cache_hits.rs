//! What a page that is in memory costs, of a set at random: pinned, read and given back; copied by a request; and, to measure
//! both by, read with `pread` from the kernel's page cache, and copied by nothing but a copy.
//!
//! `cargo bench -p baio-storage --bench cache_hits` prints CPU nanoseconds per page and the ratios to `pread`; then a copied page of
//! 10,000 files beside one of as many pages of one file. What is compared takes turns, round by round, and the ratio is that of
//! one round: what disturbs the machine disturbs all of them. The marks of the project: at most 0.33 of `pread` for a pinned page,
//! at most 0.85 for a copied one, and at most 1.1 of one file for many.
//!
//! In between 16 pages at once, lent and copied: a loan may cost a tenth of the copy.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

use baio_engine::{Buffer, Caching, Descriptions, EngineOptions, Memory, Open};
use baio_storage::cache::{Borrower, CacheOptions};
use baio_storage::{Core, Handle, Mode, Pinning, SegmentOp, SegmentRequest};

const PAGE: usize = 4096;
const PAGES: u64 = 2048;
const TIMES: u64 = 200_000;
const ROUNDS: usize = 9;

const FILES: u64 = 10_000;

/// Page numbers in a scattered order.
fn page(n: u64) -> u64 {
    one_of(PAGES, n)
}

fn one_of(count: u64, n: u64) -> u64 {
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(scattered) * u128::from(count)) >> 64) as u64
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

/// 16 pages, looked at without a copy.
fn lent(core: &mut Core, borrower: &Borrower, handle: Handle, first: u64) -> u64 {
    let lent = core.lend(borrower, handle, first..first + 16).expect("they are there");
    lent.pages().map(|page| u64::from(page[64])).sum()
}

/// The middle of what the rounds gave.
fn middle<R>(rounds: &[R], of: impl Fn(&R) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn core_with_cache(bytes: usize) -> Result<Core, baio_storage::Error> {
    let mut core = Core::new(&EngineOptions {
        arena_bytes: bytes + (16 << 20),
        ..EngineOptions::default()
    })?;
    let bytes = CacheOptions {
        bytes,
        ..CacheOptions::default()
    };
    core.use_cache(&bytes)?;
    Ok(core)
}

fn bring_in(core: &mut Core, handle: Handle, pages: u64) -> Result<(), baio_storage::Error> {
    for page in 0..pages {
        let pin = core.pin_now(handle, page)?;
        core.unpin(pin);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = std::env::temp_dir().join(format!("baio-cache-hits-{}", std::process::id()));
    std::fs::create_dir(&place)?;
    let done = one_file(&place).and_then(|()| many_files(&place));
    std::fs::remove_dir_all(&place)?;
    done
}

/// Pinned, copied, and what both are measured by.
fn one_file(place: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let path = place.join("one");
    std::fs::write(&path, vec![7; PAGES as usize * PAGE])?;
    let file = std::fs::File::open(&path)?;
    let mut core = core_with_cache(16 << 20)?;
    let handle = core.open_file(&path, &Open::read())?;
    bring_in(&mut core, handle, PAGES)?;
    let memory = vec![7_u8; PAGES as usize * PAGE];
    let mut bytes = [0; PAGE];
    let mut buffer = Some(core.buffer(PAGE)?);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let pread = cost(|n| {
            file.read_exact_at(black_box(&mut bytes), page(n) * PAGE as u64)
                .expect("the file is there");
        });
        let bare = cost(|n| {
            let from = page(n) as usize * PAGE;
            black_box(&mut bytes).copy_from_slice(&memory[from..from + PAGE]);
        });
        let pin = cost(|n| _ = black_box(pinned(&mut core, handle, page(n))));
        let copy = cost(|n| {
            let given = buffer.take().expect("it came back");
            buffer = Some(black_box(copied(&mut core, handle, page(n), given)));
        });
        rounds.push([pread, bare, pin, copy, copy - bare]);
    }
    for (at, what) in ["pread", "bare copy", "pinned hit", "copied hit", "  less a copy"]
        .iter()
        .enumerate()
    {
        let (ns, ratio) = (
            middle(&rounds, |round| round[at]),
            middle(&rounds, |round| round[at] / round[0]),
        );
        println!("{what:14} {ns:7.1} ns  {ratio:.3} of pread");
    }
    loans(&mut core, handle)
}

/// 16 pages at once, lent and copied.
fn loans(core: &mut Core, handle: Handle) -> Result<(), Box<dyn std::error::Error>> {
    let borrower = Borrower::new(1 << 20);
    let mut large = Some(core.buffer(16 * PAGE)?);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let lend = cost(|n| _ = black_box(lent(core, &borrower, handle, page(n) & !15)));
        let copy = cost(|n| {
            let given = large.take().expect("it came back");
            large = Some(black_box(copied(core, handle, page(n) & !15, given)));
        });
        rounds.push([lend, copy]);
    }
    let [lend, copy] = [0, 1].map(|at| middle(&rounds, |round| round[at]));
    let ratio = middle(&rounds, |round| round[0] / round[1]);
    println!("64 KiB lent    {lend:7.1} ns  {ratio:.3} of copied, {copy:.1} ns");
    Ok(())
}

/// A copied hit of one of many files, beside one of as many pages of one file.
fn many_files(place: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let direct = Open {
        descriptions: Descriptions::Only(Caching::Direct),
        ..Open::read()
    };
    let path = place.join("all");
    std::fs::write(&path, vec![7; FILES as usize * PAGE])?;
    let mut one = core_with_cache(64 << 20)?;
    let whole = one.open_file(&path, &direct)?;
    bring_in(&mut one, whole, FILES)?;
    let mut many = core_with_cache(64 << 20)?;
    let mut handles = Vec::new();
    for n in 0..FILES {
        let path = place.join(n.to_string());
        std::fs::write(&path, [7; PAGE])?;
        let handle = many.open_file(&path, &direct)?;
        bring_in(&mut many, handle, 1)?;
        handles.push(handle);
    }
    let mut buffers = [Some(one.buffer(PAGE)?), Some(many.buffer(PAGE)?)];
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let of_one = cost(|n| {
            let given = buffers[0].take().expect("it came back");
            buffers[0] = Some(black_box(copied(&mut one, whole, one_of(FILES, n), given)));
        });
        let of_many = cost(|n| {
            let given = buffers[1].take().expect("it came back");
            let handle = handles[one_of(FILES, n) as usize];
            buffers[1] = Some(black_box(copied(&mut many, handle, 0, given)));
        });
        rounds.push([of_one, of_many]);
    }
    let [ns, others] = [0, 1].map(|at| middle(&rounds, |round| round[at]));
    println!("of {FILES} pages {ns:7.1} ns");
    let ratio = middle(&rounds, |round| round[1] / round[0]);
    println!("of {FILES} files {others:7.1} ns  {ratio:.3} of as many pages of one");
    Ok(())
}
