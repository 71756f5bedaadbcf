//! What the choices of a user cost: direct reads of 4 KiB at random places through an engine that belongs to its thread, one
//! that any thread may use, the second under a lock taken for each turn, and the first with a deadline for each request, in turn.
//!
//! `cargo bench -p baio-engine --bench choices [-- FILE [SECONDS]]` prints, for depths of 1 and 64 on each backend, requests a second and
//! CPU time of this process for each, the medians of nine rounds, and the ratio to the first. FILE is a file or a device to read, at
//! least 4 MiB; without one it is a new file of 256 MiB under the target directory. At the end: what a clone of a `File` and its drop
//! take, which every request pays, and what they would take without atomics.

use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use baio_engine::{Affinity, Caching, Choice, Engine, EngineOptions, File, Memory, Open, Policy, Request, Wait};

const BLOCK: usize = 4096;
const ROUNDS: usize = 9;

/// How far off a deadline is: none passes.
const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    affinity: Affinity,
    is_locked: bool,
    has_deadlines: bool,
}

const PLAIN: Way = Way {
    name: "one thread",
    affinity: Affinity::OneThread,
    is_locked: false,
    has_deadlines: false,
};

/// The others are compared with the first.
const WAYS: [Way; 4] = [
    PLAIN,
    Way {
        name: "any thread",
        affinity: Affinity::AnyThread,
        ..PLAIN
    },
    Way {
        name: "under a lock",
        affinity: Affinity::AnyThread,
        is_locked: true,
        ..PLAIN
    },
    Way {
        name: "deadlines",
        has_deadlines: true,
        ..PLAIN
    },
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let given = arguments.next().map(PathBuf::from);
    let seconds: f64 = arguments.next().map_or(Ok(1.0), |word| word.parse())?;
    let made = given.is_none().then(new_file).transpose()?;
    let path = given.as_deref().or(made.as_ref().map(|file| file.path()));
    let file = File::open(path.ok_or("a file to read")?, &Open::read())?;
    if !file.gives(Caching::Direct) {
        return Err("no direct I/O there: name a file on another file system".into());
    }
    for backend in [Choice::Uring, Choice::Aio, Choice::Threads] {
        for depth in [1, 64] {
            if let Err(why) = compare(backend, depth, &file, Duration::from_secs_f64(seconds)) {
                println!("{backend}: {why}");
            }
        }
    }
    println!(
        "a File cloned and dropped: {:.1} ns; an Rc: {:.1} ns",
        clone_ns(&file),
        clone_ns(&Rc::new(0))
    );
    Ok(())
}

fn new_file() -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")))?;
    for _ in 0..256 {
        file.write_all(&[0x5a; 1 << 20])?;
    }
    file.as_file().sync_all()?;
    Ok(file)
}

/// Rounds of all the ways in turn, so that what else happens on the machine happens to each.
fn compare(backend: Choice, depth: u32, file: &File, long: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut rounds = WAYS.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for (way, figures) in WAYS.iter().zip(&mut rounds) {
            let config = EngineOptions {
                backend,
                affinity: way.affinity,
                slots: 128,
                arena_bytes: 4 << 20,
                ..EngineOptions::default()
            };
            let engine = Mutex::new(Engine::new(&config)?);
            figures.push(run(engine, depth, file, long, way, round as u64)?);
        }
    }
    let mut first = None;
    for (Way { name, .. }, figures) in WAYS.iter().zip(&rounds) {
        let per_second = median(figures.iter().map(|(requests, _)| *requests));
        let cpu_us = median(figures.iter().map(|(_, cpu)| *cpu));
        let (of_rate, of_cpu) = *first.get_or_insert((per_second, cpu_us));
        println!(
            "{backend:>8} depth {depth:>2} {name:>12}: {per_second:>9.0} requests/s ({:.3}), {cpu_us:>6.3} us CPU each ({:.3})",
            per_second / of_rate,
            cpu_us / of_cpu,
        );
    }
    Ok(())
}

/// Requests a second, and CPU microseconds for each.
fn run(
    engine: Mutex<Engine>,
    depth: u32,
    file: &File,
    long: Duration,
    way: &Way,
    seed: u64,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let blocks = file.size().map_err(|errno| errno.to_string())? / BLOCK as u64;
    let mut random = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = |engine: &Engine, memory: Memory| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let policy = Policy {
            deadline: way.has_deadlines.then(|| engine.now().after(DEADLINE)),
            ..Policy::direct()
        };
        Request::read(file, (random >> 33) % blocks * BLOCK as u64, memory, policy)
    };
    let mut guard = engine.lock().map_err(|_| "a panic")?;
    for _ in 0..depth {
        let memory = guard.buffer(BLOCK).ok_or("no memory")?;
        let request = next(&guard, memory.into());
        guard.submit(request).map_err(|_| "no slot")?;
    }
    let (begun, cpu, mut ended) = (Instant::now(), cpu_us(), 0_u64);
    while begun.elapsed() < long {
        for _ in 0..64 {
            if way.is_locked {
                drop(guard);
                guard = engine.lock().map_err(|_| "a panic")?;
            }
            guard.turn(Wait::one())?;
            while let Some(done) = guard.next_completion() {
                done.result?;
                ended += 1;
                let request = next(&guard, done.memory);
                guard.submit(request).map_err(|_| "no slot")?;
            }
        }
    }
    let figures = (
        ended as f64 / begun.elapsed().as_secs_f64(),
        (cpu_us() - cpu) / ended as f64,
    );
    drop(guard);
    Ok(figures)
}

fn clone_ns<T: Clone>(value: &T) -> f64 {
    const TIMES: u32 = 10_000_000;
    let begun = Instant::now();
    for _ in 0..TIMES {
        drop(black_box(value.clone()));
    }
    begun.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn cpu_us() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 * 1e6 + spent.tv_nsec as f64 / 1e3
}
