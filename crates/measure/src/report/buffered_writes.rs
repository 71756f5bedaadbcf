//! Writes through the kernel's cache, which the file system may block: with libaio they block the submitting call, here a
//! worker. The peer's file and time grow until its submission is slow; before that there is nothing to compare.

use std::path::Path;
use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::{Measurement, Rw};

use crate::figures::command_line::Measures;
use crate::figures::fio;
use crate::figures::stress::Run;
use crate::report::comparison::{Peer, Side};
use crate::report::findings::Findings;
use crate::report::marks::{Bound, Figure, Mark};
use crate::report::setting::{Setting, unavailable};
use crate::report::streaming::file_system;

const REQUEST: u64 = 64 << 10;
const DEPTH: u32 = 128;

/// The submission of the peer is slow from here on, at its p99.9.
const SLOW_US: f64 = 1000.0;

/// Threads at most: the caller, the pool for writes through the kernel's cache (the kernel's own bounded workers on uring
/// are as many), and what watches for readiness.
const THREADS_MAX: u64 = 1 + 16 + 2;

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let path = setting.dir.join("buffered-writes.file");
    match choose(setting, &path) {
        Ok(work) => compare(setting, &path, &work, findings),
        Err(reason) => {
            findings.skip("buffered-writes", &reason);
            Ok(())
        }
    }
}

/// How much is written for how long.
struct Work {
    len: u64,
    runtime_ms: u64,
    /// The peer's p99.9 of submitting that, in microseconds.
    slowest: f64,
}

/// The least work with which the peer is slow, or else the most that there is room for. Or why there is nothing to compare.
fn choose(setting: &Setting, path: &Path) -> Result<Work, String> {
    if file_system(&setting.dir) != "ext4" {
        return Err("the working directory is not on ext4".into());
    }
    if fio::version().is_none() {
        return Err("fio is not installed".into());
    }
    let room = rustix::fs::statvfs(&setting.dir).map_or(0, |told| told.f_bavail * told.f_frsize);
    let sizes: &[(u64, u64)] = if setting.quick {
        &[(1 << 30, 400)]
    } else {
        &[(1 << 30, 1000), (2 << 30, 2000), (4 << 30, 3000)]
    };
    let mut chosen = None;
    for &(len, runtime_ms) in sizes.iter().filter(|(len, _)| len * 2 < room) {
        reserve(path, len).map_err(|error| format!("reserve {} MiB: {error}", len >> 20))?;
        let probe = peer(path, len, runtime_ms)
            .run()
            .map_err(|reason| format!("fio libaio: {reason}"))?;
        let slowest = submit_p999(&probe);
        chosen = Some(Work {
            len,
            runtime_ms,
            slowest,
        });
        if slowest > SLOW_US {
            break;
        }
    }
    chosen.ok_or_else(|| "there is no room for a file of 1 GiB".into())
}

fn compare(setting: &Setting, path: &Path, work: &Work, findings: &mut Findings) -> Result<(), Failure> {
    let &Work {
        len,
        runtime_ms,
        slowest,
    } = work;
    let rounds = setting.either(1, 2);
    findings.lines.push(format!(
        "64 KiB writes through the kernel's cache at random places of {} MiB, depth {DEPTH}; {rounds} rounds of {runtime_ms} ms \
         a side, median of the ratios",
        len >> 20
    ));
    if slowest <= SLOW_US {
        findings.lines.push(format!(
            "libaio's p99.9 of submitting stayed at {slowest:.0} us, below {SLOW_US:.0}, for as large a file and as long as was \
             tried: the kernel's cache took everything, and the mark says little"
        ));
    }
    for backend in ["uring", "threads"] {
        if let Some(reason) = unavailable(backend) {
            findings.skip(backend, &reason);
            continue;
        }
        let target = path.display().to_string();
        // fio empties the cache itself; the other side must not find more there.
        let words = format!("--mode kernel --request-size {REQUEST} --backend {backend}");
        let run = Run::new(&target, "randwrite", DEPTH, Duration::from_millis(runtime_ms)).posting();
        let ours = Side::by(backend, run.with(&words)).cold(path);
        let theirs = Side::fio(peer(path, len, runtime_ms)).cold(path);
        let tenth = Mark::at_most(Figure::SubmitP999, 0.1);
        let runs = findings.compare(rounds, ours, vec![Peer::new(theirs, [tenth])])?;
        let threads = runs.ours.iter().filter_map(|run| run.threads_max).max().unwrap_or(0);
        let most = Bound::AtMost(THREADS_MAX as f64);
        findings.count("threads at most", "threads", threads as f64, Some(most));
    }
    Ok(())
}

fn submit_p999(run: &Measurement) -> f64 {
    run.submit_latency_us.and_then(|at| at.p999).unwrap_or(0.0)
}

fn peer(path: &Path, len: u64, runtime_ms: u64) -> fio::Job {
    let job = fio::Job::new(fio::Engine::Libaio, Rw::RandomWrite, vec![path.to_owned()], len, DEPTH);
    let job = job.with(&format!("--bs={REQUEST}")).buffered();
    job.timed(Duration::from_millis(runtime_ms))
}

fn reserve(path: &Path, len: u64) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    Ok(rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::empty(),
        0,
        len,
    )?)
}
