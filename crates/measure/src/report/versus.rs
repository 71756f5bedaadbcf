//! `baio stress` against other programs that do the same. Each experiment here is a table of lines. A line has one kind of [`Work`], our
//! side, its peers with their marks, and what is counted of our side.
//!
//! On a saturated device equality is a coin toss. There 0.97 of a peer's requests is a pass, and processor time decides.

use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::{CacheCounts, Measurement, Rw};

use crate::figures::fio::{self, Engine};
use crate::figures::middle;
use crate::figures::stress::Run;
use crate::figures::worker::{Job, bare};
use crate::report::charts::{OURS, PEER, Sweep, linear, logarithmic};
use crate::report::comparison::{Peer, Side, Turns};
use crate::report::findings::Findings;
use crate::report::marks::{Figure, cpu, rate};
use crate::report::memory_cgroup::MemoryCgroup;
use crate::report::places::Site;
use crate::report::setting::{Setting, unavailable};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4 * KIB;

/// Requests in flight, where it is not said.
const DEPTH: u32 = 64;

/// A file that fits into any cache.
const SMALL: u64 = 8 * MIB;

/// What both sides of a line do.
#[derive(Clone, Copy)]
struct Work<'a> {
    place: &'a Site,
    rw: Rw,
    /// Bytes of a request.
    size: u64,
    depth: u32,
    /// As many requests as there is time for, at random with replacement; without it each block once.
    runtime: Option<Duration>,
}

impl<'a> Work<'a> {
    fn new(place: &'a Site, rw: Rw, kib: u64, depth: u32, runtime: Option<Duration>) -> Work<'a> {
        Work {
            place,
            rw,
            size: kib * KIB,
            depth,
            runtime,
        }
    }

    /// `stress` with further words.
    fn ours(&self, name: impl Into<String>, words: &str) -> Side {
        Side::by(name, self.run(words))
    }

    fn run(&self, words: &str) -> Run {
        let run = match self.runtime {
            Some(runtime) => Run::new(&self.place.target, self.rw.name(), self.depth, runtime),
            None => Run::once(&self.place.target, self.rw.name(), self.depth),
        };
        let run = match self.size {
            // It is what `stress` does unasked.
            PAGE => run,
            size => run.with(&format!("--request-size {size}")),
        };
        run.with(&self.place.words()).with(words)
    }

    /// fio past the kernel's cache, on the very bytes.
    fn fio(&self, engine: Engine) -> fio::Job {
        let offset = format!("--offset={}", self.place.offset);
        self.kernels(engine, self.place).with(&offset)
    }

    /// The same at the beginning of a file.
    fn kernels(&self, engine: Engine, file: &Site) -> fio::Job {
        let files = vec![file.path.clone()];
        let job = fio::Job::new(engine, self.rw, files, self.place.bytes, self.depth);
        let job = job.with(&format!("--bs={}", self.size)).with(file.fios_words());
        match self.runtime {
            Some(runtime) => job.timed(runtime),
            None => job,
        }
    }
}

/// A read or write of fio's through the kernel's cache, of which nothing is there before.
fn through_kernel(job: fio::Job, file: &Site) -> Side {
    Side::fio(job.buffered()).cold(&file.path)
}

fn bytes_read(findings: &mut Findings, runs: &Turns, size: u64, most: Option<f64>) {
    let name = ("bytes read for each that was asked for", "bytes_read");
    findings.counted(&runs.ours, name, most, |run, cache| {
        cache.pages_read as f64 * PAGE as f64 / (run.requests * size) as f64
    });
}

/// Of something that the cache counts, how often it happens for each request.
fn each(findings: &mut Findings, runs: &Turns, name: (&str, &str), most: Option<f64>, of: fn(&CacheCounts) -> u64) {
    findings.counted(&runs.ours, name, most, |run, cache| {
        of(cache) as f64 / run.requests as f64
    });
}

const DEVICE_READS: (&str, &str) = ("reads of the device a request", "device_reads");

fn by_size(title: &str) -> Sweep {
    Sweep::new(title, logarithmic("a request", "KiB"), linear("throughput", "MB/s"))
}

/// Ours, and its peers in the order of `names`.
fn megabytes(sweep: &mut Sweep, kib: u64, runs: &Turns, names: &[&str]) {
    let (at, each) = (kib as f64, |run: &Measurement| run.bytes_per_second / 1e6);
    sweep.runs("ours, cached", OURS, at, &runs.ours, each);
    for (index, name) in names.iter().enumerate() {
        let whose = if name.starts_with("ours") { OURS } else { PEER };
        sweep.runs(name, whose, at, runs.peer(index), each);
    }
}

fn working_set(setting: &Setting, made: &str, (runtime, rounds): (Duration, usize)) -> String {
    format!(
        "working set {} MiB{made} {rounds} rounds of {} ms a side, median of the ratios",
        setting.working_set / MIB,
        runtime.as_millis()
    )
}

/// On a file or on a segment, the backend, who else does it so, and how many requests are in flight.
type Read = (usize, &'static str, Engine, u32);

const FILE: usize = 0;
const SEGMENT: usize = 1;

/// The random reads of the report, the quick one or the other.
fn random_reads(quick: bool) -> impl Iterator<Item = Read> {
    let reads = [
        (FILE, "uring", Engine::IoUring, &[1, 16, 64, 256][..]),
        (SEGMENT, "uring", Engine::IoUring, &[1, 16, 64, 256]),
        (FILE, "aio", Engine::Libaio, &[1, 16, 64, 256]),
        (FILE, "threads", Engine::Posixaio, &[16, 64]),
    ];
    let each = |(place, backend, engine, depths): (usize, &'static str, Engine, &'static [u32])| {
        depths.iter().map(move |&depth| (place, backend, engine, depth))
    };
    let all = reads.into_iter().flat_map(each);
    all.filter(move |(.., depth)| !quick || matches!(depth, 16 | 64))
}

/// 4 KiB random direct reads: each backend against the peer that does what it does, on a file; the best one also on a segment,
/// where the volume's own cost would show. threads have glibc's POSIX AIO and blocking threads for peers.
pub(super) fn random_read(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.measuring_many();
    let places = Site::to_read(setting, "random-read", setting.working_set)?;
    findings.lines.push(working_set(setting, ",", (runtime, rounds)));
    let mut sweep = Sweep::new(
        "4 KiB random direct reads",
        logarithmic("requests in flight", ""),
        linear("requests a second", "1/s"),
    );
    for (place, backend, engine, depth) in random_reads(setting.quick) {
        // What is only read is one place.
        let Some(at) = places.get(place) else { continue };
        let work = Work::new(at, Rw::RandomRead, 4, depth, Some(runtime));
        let name = format!("{}, {backend}, depth {depth}", work.place.said);
        if let Some(reason) = unavailable(backend) {
            findings.skip(&name, &reason);
            continue;
        }
        let marks = match (engine, depth) {
            (Engine::Posixaio, _) => vec![rate(1.5)],
            (_, 16 | 64) => vec![rate(0.97), cpu(0.75)],
            _ => vec![rate(0.97)],
        };
        let mut peers = vec![Peer::new(Side::fio(work.fio(engine)), marks)];
        if (place, backend, depth) == (FILE, "threads", 64) {
            peers.push(Peer::new(Side::fio(work.fio(Engine::Psync)), [rate(0.8), cpu(1.3)]));
        }
        let runs = findings.compare(rounds, work.ours(name, &format!("--backend {backend}")), peers)?;
        let at = f64::from(depth);
        let (ours, theirs) = (
            format!("{backend}, {}", work.place.said),
            format!("fio {}", engine.name()),
        );
        sweep.runs(&ours, OURS, at, &runs.ours, |run| run.iops);
        if place == FILE {
            sweep.runs(&theirs, PEER, at, runs.peer(0), |run| run.iops);
        }
    }
    let here = "each of our backends beside the program that does the same, on a file; the best one on a segment too";
    findings.charts.extend(sweep.chart("", here));
    Ok(())
}

/// 4 KiB random direct writes, 64 in flight. Many writes to one object must go on side by side: where each waits for the object's
/// lock, eight objects are faster than one (seed 001 §5.1).
pub(super) fn random_write(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    const FILES: u64 = 8;
    let (runtime, rounds) = setting.measuring();
    let one = Site::file(setting, "random-write", setting.working_set)?;
    let path = |number| setting.dir.join(format!("random-write.many.{number}"));
    let parts = (0..FILES).map(|number| Site::at(path(number), setting.working_set / FILES));
    let _parts = parts.collect::<Result<Vec<_>, _>>()?;
    let many = setting.dir.join("random-write.many").display().to_string();
    findings
        .lines
        .push(working_set(setting, ", written before;", (runtime, rounds)));
    let run = |target: &str| Run::new(target, "randwrite", DEPTH, runtime);
    let on_many = run(&many).with(&format!("--files {FILES} --iterations 1"));
    let files = vec![one.path.clone()];
    let fio = fio::Job::new(Engine::IoUring, Rw::RandomWrite, files, one.bytes, DEPTH);
    let fio = fio.with("--bs=4096").timed(runtime);
    findings.compare(
        rounds,
        Side::by(
            format!("one file, depth {DEPTH}"),
            run(&one.target).with("--iterations 1"),
        ),
        vec![
            Peer::new(
                Side::by(format!("ours on {FILES} files of the same total"), on_many),
                [rate(0.95)],
            ),
            Peer::new(Side::fio(fio), [rate(0.97)]),
        ],
    )?;
    Ok(())
}

/// Random reads through our own cache of what is nowhere cached, each block once (seed 001 §3: streaming asynchronous reads). A
/// cache that reads what nobody asked for, or waits for one request before it starts the next, shows here.
pub(super) fn cached_reads(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (bytes, rounds) = setting.reading_once();
    let places = Site::to_read(setting, "cached-reads", bytes)?;
    findings.lines.push(format!(
        "each block of {} MiB once, nothing of it cached; our cache has 64 MiB and is new in each run; {rounds} rounds, \
         median of the ratios",
        bytes / MIB
    ));
    let mut sweep = by_size("random reads of what is nowhere cached, 64 in flight");
    // KiB of a request, of how many of libaio's requests there are to be as many, and on how many places the quick report has it.
    for (kib, least, quick) in [(4, 2.0, 2), (8, 2.0, 0), (16, 2.0, 0), (32, 1.2, 0), (64, 1.2, 1)] {
        for place in &places[..setting.either(quick, 2).min(places.len())] {
            let work = Work::new(place, Rw::RandomRead, kib, DEPTH, None);
            let kernels = |engine| through_kernel(work.kernels(engine, &places[0]), &places[0]);
            let name = format!("{}, cached, {kib} KiB, depth {DEPTH}", place.said);
            let runs = findings.compare(
                rounds,
                work.ours(name, "--mode cached").cold(&place.path),
                vec![
                    Peer::new(work.ours("ours, direct", "--mode direct"), [rate(0.95)]),
                    Peer::new(kernels(Engine::Libaio), [rate(least)]),
                    Peer::new(kernels(Engine::IoUring), [rate(0.9)]),
                ],
            )?;
            bytes_read(findings, &runs, work.size, Some(1.02));
            each(findings, &runs, DEVICE_READS, Some(1.02), |cache| cache.device_reads);
            let iterations = ("iterations a request", "iterations");
            each(findings, &runs, iterations, None, |cache| cache.iterations);
            if place.said != "segment" {
                let names = [
                    "ours, direct",
                    "fio libaio, the kernel's cache",
                    "fio io_uring, the kernel's cache",
                ];
                megabytes(&mut sweep, kib, &runs, &names);
            }
        }
    }
    let here = "our cache beside our direct reads, and the kernel's cache as libaio and io_uring read it";
    findings.charts.extend(sweep.chart("", here));
    Ok(())
}

/// 16 KiB reads in order through our own cache: what readahead is for (seed 001 §3.2, §3.3). One at a time a reader waits for the
/// device unless it is read ahead of; with many in flight a cache must not make fewer or smaller reads of them than there are.
pub(super) fn sequential_reads(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (bytes, rounds) = setting.reading_once();
    let places = Site::to_read(setting, "sequential-reads", bytes)?;
    findings.lines.push(format!(
        "16 KiB reads in order of {} MiB, nothing of it cached; our cache has 64 MiB and is new in each run; {rounds} rounds, \
         median of the ratios",
        bytes / MIB
    ));
    for place in &places {
        for (depth, said) in [(1, ", one at a time"), (DEPTH, "")] {
            let work = Work::new(place, Rw::Read, 16, depth, None);
            let direct = work.ours(format!("ours, direct{said}"), "--mode direct");
            let (name, peers) = if depth == 1 {
                let kernels = through_kernel(work.kernels(Engine::Psync, &places[0]), &places[0]);
                let peers = vec![Peer::new(kernels, [rate(1.0)]), Peer::new(direct, [])];
                (format!("{}, cached{said}", place.said), peers)
            } else {
                let peers = vec![Peer::new(direct, [rate(0.95)])];
                (format!("{}, cached, depth {depth}", place.said), peers)
            };
            let ours = work.ours(name, "--mode cached").cold(&place.path);
            let runs = findings.compare(rounds, ours, peers)?;
            bytes_read(findings, &runs, work.size, place.is_whole().then_some(1.02));
        }
    }
    Ok(())
}

/// A hit in our own cache against a pread(2) of what the kernel's cache holds: what a copy costs with a system call and without,
/// and what a look at a pinned page costs, which is no copy. The copies are those of `stress`, which draws, stamps the time and
/// counts; the others are bare loops.
pub(super) fn cache_hits(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.measuring();
    let reads = 300_000;
    let file = Site::file(setting, "cache-hits", SMALL)?;
    findings.lines.push(format!(
        "4 KiB reads one at a time at random places of {} MiB, all of it cached; {rounds} rounds, median of the ratios",
        SMALL / MIB
    ));
    let copied = Run::new(&file.target, "randread", 1, runtime).with("--mode cached --warm 100");
    let pinned = Job::PinnedHits(bare::PinnedHits {
        path: file.path.clone(),
        reads,
    });
    for (ours, most) in [
        (Side::by("copied, one at a time", copied), 0.85),
        (Side::by("pinned", pinned), 0.33),
    ] {
        let bare = buffered(&file, "a loop of pread", reads, None);
        findings.compare(rounds, ours, vec![Peer::new(bare, [cpu(most)])])?;
    }
    Ok(())
}

/// Reads of what the kernel's cache holds: what the engine costs above a bare pread(2). Nothing waits here, so the engine answers
/// in the caller's thread (`RWF_NOWAIT`), and the price is its own.
pub(super) fn buffered_reads(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (reads, rounds) = setting.either((100_000, 2), (300_000, 3));
    let file = Site::file(setting, "buffered-reads", SMALL)?;
    findings.lines.push(format!(
        "working set {} MiB, in the kernel's cache; {rounds} rounds of {reads} reads a side, median of the ratios",
        SMALL / MIB
    ));
    for (name, batch, most) in [("one at a time", 1, 1.5), ("in batches of 16", 16, 1.35)] {
        let bare = buffered(&file, "a loop of pread", reads, None);
        let ours = buffered(&file, name, reads, Some(batch));
        findings.compare(rounds, ours, vec![Peer::new(bare, [cpu(most)])])?;
    }
    Ok(())
}

fn buffered(file: &Site, name: &str, reads: u64, batch: Option<u32>) -> Side {
    let path = file.path.clone();
    Side::by(name, Job::BufferedReads(bare::BufferedReads { path, reads, batch }))
}

/// Durable writes through our own cache: what seed 000 asked for, O_SYNC writes through a cache, many at a time, without their
/// waiting for one another. Each block is written whole, so nothing is read.
pub(super) fn durable_writes(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.measuring_many();
    let places = Site::both(setting, "durable-writes", setting.working_set)?;
    findings.lines.push(format!(
        "working set {} MiB, written before; our cache has 64 MiB; {rounds} rounds of {} ms a side, median of the ratios",
        setting.working_set / MIB,
        runtime.as_millis()
    ));
    let mut sweep = by_size("durable random writes, 64 in flight");
    // What is written, in requests of how many KiB, of how many of the kernel's requests there are to be as many, and on how many
    // places the quick report has it.
    for (rw, kib, least, quick) in [
        (Rw::RandomWrite, 4, 3.0, 2),
        (Rw::RandomWrite, 8, 3.0, 1),
        (Rw::RandomWrite, 16, 3.0, 1),
        (Rw::RandomWrite, 64, 2.5, 1),
        (Rw::Write, 16, 3.0, 1),
    ] {
        for place in &places[..setting.either(quick, 2)] {
            let work = Work::new(place, rw, kib, DEPTH, Some(runtime));
            let kernels = work.kernels(Engine::IoUring, &places[0]).buffered();
            let kernels = Side::fio(kernels.with("--sync=dsync"));
            let name = format!("{}, cached, {}, {kib} KiB, depth {DEPTH}", place.said, rw.name());
            let runs = findings.compare(
                rounds,
                work.ours(name, "--durability data --mode cached"),
                vec![
                    Peer::new(kernels, [rate(least)]),
                    Peer::new(
                        work.ours("ours, direct", "--durability data --mode direct"),
                        [rate(0.95)],
                    ),
                ],
            )?;
            let writes = ("writes of the device a request", "device_writes");
            each(findings, &runs, writes, Some(1.0), |cache| cache.device_writes);
            each(findings, &runs, DEVICE_READS, Some(0.0), |cache| cache.device_reads);
            // Who waits for one page is not woken for another's (seed 001 §7.2).
            let in_vain = ("iterations in vain", "spurious_wakeups");
            findings.counted(&runs.ours, in_vain, Some(0.0), |_, cache| cache.spurious_wakeups as f64);
            if place.said == "file" && rw == Rw::RandomWrite {
                megabytes(
                    &mut sweep,
                    kib,
                    &runs,
                    &["fio io_uring, O_DSYNC, the kernel's cache", "ours, direct"],
                );
            }
        }
    }
    let here = "our cache beside our direct writes, and io_uring through the kernel's cache";
    findings.charts.extend(sweep.chart("", here));
    Ok(())
}

/// Plain writes through our own cache with one sync at their end, against ext4 with one fsync and as much memory for its cache as
/// ours has: what write-back costs, from a set that fits easily to one four times as large as the cache. A block that is written
/// again while it is in memory must not reach the device twice: the set that fits shows it.
pub(super) fn plain_writes(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    /// What fio needs for itself, on top of the cache; generously, for it counts for the peer.
    const FIOS_OWN: u64 = 32 * MIB;
    let (total, rounds) = setting.either((setting.working_set / 2, 1), (setting.working_set / 2, 3));
    let cache = total / 4;
    let places = Site::both(setting, "plain-writes", total)?;
    let cgroup = MemoryCgroup::make(cache + FIOS_OWN);
    findings.lines.push(format!(
        "{} MiB of 4 KiB writes at random places of a file or a segment that is there, then one sync, whose time counts; our \
         cache has {} MiB, the peer a memory cgroup of as much and {} MiB for itself; {rounds} rounds, median of the ratios",
        total / MIB,
        cache / MIB,
        FIOS_OWN / MIB
    ));
    for (set, name, quick) in [
        (cache / 4, "a quarter of", 2),
        (cache, "as much as", 1),
        (cache * 4, "four times", 1),
    ] {
        for place in &places[..setting.either(quick, 2)] {
            let words = format!("--mode cached --cache {cache} --size {set} --io-size {total} --end-sync");
            let run = Run::untimed(&place.target, "randwrite", DEPTH).with(&words);
            let ours = Side::by(format!("{}, a set of {name} the cache", place.said), run).synced();
            let files = vec![places[0].path.clone()];
            let kernels = fio::Job::new(Engine::Psync, Rw::RandomWrite, files, set, 1)
                .with(&format!("--bs=4096 --norandommap --io_size={total} --end_fsync=1"))
                .confined(cgroup.as_ref().ok().map(|cgroup| cgroup.path().to_owned()));
            let kernels = through_kernel(kernels, &places[0]).unless(cgroup.as_ref().err());
            let runs = findings.compare(rounds, ours.cold(&place.path), vec![Peer::new(kernels, [rate(0.97)])])?;
            let name = (
                "pages reached the device for each page of the set",
                "pages_written_per_page",
            );
            findings.counted(&runs.ours, name, (set < cache).then_some(1.0), |_, cache| {
                cache.pages_written as f64 / (set / PAGE) as f64
            });
        }
    }
    Ok(())
}

/// 4 KiB random direct reads of a segment through a service thread, against the same core in the caller's own thread: what the hop
/// costs both together. The paper (seed 004 §5) puts the service into the application's process for this reason. Depth 1 is left
/// out: there the hop is no longer shared by a batch, and latency is what tells.
pub(super) fn service(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.measuring();
    let place = Site::segment(setting, "service", setting.working_set)?;
    findings.lines.push(working_set(setting, ",", (runtime, rounds)));
    for depth in [16, DEPTH] {
        let work = Work::new(&place, Rw::RandomRead, 4, depth, Some(runtime));
        let peer = Peer::new(work.ours("ours in the caller's thread", ""), [rate(0.95)]);
        let peer = peer.also(&[Figure::ContextSwitches, Figure::P50, Figure::P99]);
        let ours = work.ours(format!("through a service, depth {depth}"), "--service");
        findings.compare(rounds, ours, vec![peer])?;
    }
    Ok(())
}

/// Seed 004 §4: many requests in one call. 4 KiB random direct reads, 64 in flight, handed over 1 to 64 at a time and awaited as many at a
/// time: what a submission costs, and what is saved when requests share it.
pub(super) fn batches(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.either((Duration::from_millis(200), 1), (Duration::from_millis(400), 3));
    let bytes = setting.either(setting.working_set / 4, setting.working_set).max(MIB);
    let file = Site::file_to_read(setting, "batches", bytes)?;
    findings.lines.push(format!(
        "4 KiB random direct reads of {} MiB, {DEPTH} in flight, handed over and awaited N at a time; {rounds} rounds of {} ms a side, \
         median of the ratios",
        file.bytes / MIB,
        runtime.as_millis()
    ));
    let work = Work::new(&file, Rw::RandomRead, 4, DEPTH, Some(runtime));
    let ours = |name: &str, batch: u32| Side::by(name, work.run(&format!("--batch {batch}")).posting());
    let swept: &[u32] = setting.either(&[1, 16, DEPTH], &[1, 2, 4, 8, 16, 32, DEPTH]);
    for &batch in swept {
        let words = format!("--iodepth_batch_submit={batch} --iodepth_batch_complete_min={batch}");
        let mut peers = vec![Peer::new(
            Side::fio(work.fio(Engine::IoUring).with(&words)),
            [rate(0.97)],
        )];
        if batch > 1 {
            peers.push(Peer::new(ours("ours, one at a time", 1), []));
        }
        let turns = findings.compare(rounds, ours(&format!("{batch} at a time"), batch), peers)?;
        let calls = middle(&turns.ours, |run| run.system_calls_per_request.unwrap_or(f64::NAN));
        findings.count("system calls a request", "system_calls", calls, None);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_report_has_every_backend_and_both_places() {
        for backend in ["uring", "aio", "threads"] {
            assert!(random_reads(true).any(|(_, of, ..)| of == backend), "{backend}");
        }
        assert!(random_reads(true).any(|(place, ..)| place == SEGMENT));
    }

    #[test]
    fn every_line_has_a_name_of_its_own() {
        let mut names: Vec<_> = random_reads(false)
            .map(|(place, backend, _, depth)| (place, backend, depth))
            .collect();
        let lines = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), lines), (14, 14));
    }
}
