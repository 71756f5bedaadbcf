//! What the programs have in common: the command line, the random places, the stamps, and the line that each prints.
//!
//! Every program reads 4 KiB at random places of one file, keeps `--depth` reads under way in one thread, and stamps after its
//! setup. Only at depth 1 is each read timed: the clock would be a part of what is compared.

pub mod programs;

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

/// Bytes of a read.
pub const BLOCK: usize = 4096;

/// So many reads are begun between two looks at the clock.
const UNTIMED: u64 = 64;

pub type Outcome = Result<(), Box<dyn Error>>;

/// Memory of one read, aligned for direct I/O.
#[repr(align(4096))]
pub struct Aligned(pub [u8; BLOCK]);

/// A buffer of its own, touched once.
pub fn page() -> Box<Aligned> {
    Box::new(Aligned([1; BLOCK]))
}

/// What there is to read, and what has been.
pub struct Load {
    pub path: PathBuf,
    pub depth: usize,
    /// So many reads go off together, where a program has a say in it.
    pub batch: usize,
    blocks: Cell<u64>,
    state: Cell<u64>,
    requests_max: u64,
    seconds: f64,
    begun: Cell<u64>,
    over: Cell<bool>,
    done: Cell<u64>,
    started: Cell<(Instant, f64)>,
    latencies: RefCell<Vec<u32>>,
}

/// Now, and the processor time of this process so far in seconds, user's and system's.
fn stamp() -> (Instant, f64) {
    // SAFETY: getrusage fills the structure, for which all zeroes is a value.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut used);
        used
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (Instant::now(), seconds(used.ru_utime) + seconds(used.ru_stime))
}

impl Load {
    /// Reads `FILE [--depth N] [--seconds N] [--requests N] [--seed N] [--batch N]`.
    pub fn from_arguments() -> Result<Load, Box<dyn Error>> {
        let mut arguments = std::env::args().skip(1);
        let mut load = Load {
            path: arguments
                .next()
                .ok_or("usage: FILE [--depth N] [--seconds N] [--requests N] [--seed N] [--batch N]")?
                .into(),
            depth: 1,
            batch: usize::MAX,
            blocks: Cell::new(0),
            state: Cell::new(1),
            requests_max: u64::MAX,
            seconds: 2.0,
            begun: Cell::new(0),
            over: Cell::new(false),
            done: Cell::new(0),
            started: Cell::new(stamp()),
            latencies: RefCell::default(),
        };
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--depth" => load.depth = value.parse()?,
                "--batch" => load.batch = value.parse()?,
                "--seconds" => load.seconds = value.parse()?,
                "--requests" => load.requests_max = value.parse()?,
                "--seed" => load.state = Cell::new(value.parse::<u64>()?.max(1)),
                _ => return Err(format!("no such option: {option}").into()),
            }
        }
        if load.requests_max != u64::MAX {
            load.seconds = f64::MAX;
        }
        load.set_size(std::fs::metadata(&load.path)?.len());
        Ok(load)
    }

    /// How many bytes from the file's beginning on are read.
    pub fn set_size(&self, bytes: u64) {
        self.blocks.set(bytes / BLOCK as u64);
    }

    /// Setup is over.
    pub fn start(&self) {
        self.latencies
            .borrow_mut()
            .reserve(if self.depth == 1 { 1 << 20 } else { 0 });
        self.started.set(stamp());
    }

    /// Where to read next; `None` when it is enough.
    pub fn next(&self) -> Option<u64> {
        let begun = self.begun.get();
        if begun.is_multiple_of(UNTIMED) {
            self.over
                .set(self.over.get() || self.started.get().0.elapsed().as_secs_f64() >= self.seconds);
        }
        if self.over.get() || begun >= self.requests_max {
            return None;
        }
        self.begun.set(begun + 1);
        let mut state = self.state.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.set(state);
        let block = (u128::from(state) * u128::from(self.blocks.get())) >> 64;
        Some(block as u64 * BLOCK as u64)
    }

    /// The time before a read, at depth 1.
    pub fn clock(&self) -> Option<Instant> {
        (self.depth == 1).then(Instant::now)
    }

    /// A read that was begun at `since` has ended with so many bytes.
    pub fn ended(&self, since: Option<Instant>, bytes: usize) {
        assert_eq!(bytes, BLOCK, "a read came short");
        self.done.set(self.done.get() + 1);
        if let Some(since) = since {
            self.latencies.borrow_mut().push(since.elapsed().as_nanos() as u32);
        }
    }

    /// Prints the line.
    pub fn report(&self, program: &str) {
        let ((began, cpu_before), (ended, cpu)) = (self.started.get(), stamp());
        let mut sorted = self.latencies.borrow_mut();
        sorted.sort_unstable();
        let at = |share: f64| match sorted.get((sorted.len() as f64 * share) as usize) {
            Some(&ns) => format!("{:.2}", f64::from(ns) / 1000.0),
            None => "null".to_owned(),
        };
        let (depth, requests, seconds) = (self.depth, self.done.get(), (ended - began).as_secs_f64());
        let (cpu_seconds, median, p99) = (cpu - cpu_before, at(0.5), at(0.99));
        println!(
            "{{\"program\":\"{program}\",\"depth\":{depth},\"requests\":{requests},\"seconds\":{seconds:.6},\
             \"cpu_seconds\":{cpu_seconds:.6},\"latency_us_median\":{median},\"latency_us_p99\":{p99}}}"
        );
    }
}
