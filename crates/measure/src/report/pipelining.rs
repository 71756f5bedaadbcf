//! Seed 004 §7, figures 3 to 5: a stream of requests, each with processing behind it, as a web server has them. Stage i processes
//! the request i-k while the next k are at the disk. Theirs showed BAIO ahead of KAIO, which is threads in blocking calls, and of
//! one caller who waits for each.
//!
//! Threads also process side by side, on as many processors as there are; ours is one thread. So what tells there is how many
//! requests a second of processor time makes, the processing itself not counted.

use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::{Measurement, Rw};

use crate::figures::command_line::Measures;
use crate::figures::middle;
use crate::figures::worker;
use crate::figures::worker::pipelining::{self, Job, SIZE, Who};
use crate::report::comparison::{Peer, Side, Turns, ratio};
use crate::report::findings::Findings;
use crate::report::marks::{Bound, Figure, rate};
use crate::report::places::Site;
use crate::report::setting::Setting;
use crate::report::streaming::file_system;

/// Requests ahead of the one that is processed, where it is not said.
const STAGES: u32 = 32;

/// What the names of our own sides begin with, where they stand beside peers.
const OURS: &str = "ours";

/// What the figure begins with that is held to a mark.
const OF_THE_BEST: &str = "of the requests a CPU second of the best in them";

/// The same without what both take before their first request: the pages of a pool are made present there, those of the kernel's cache
/// in the requests.
const READY: &str = "the same from where both stand ready";

/// One row of the figures.
#[derive(Clone, Copy)]
struct Stream {
    name: &'static str,
    rw: Rw,
}

const STREAMS: [Stream; 4] = [
    stream("random read", Rw::RandomRead),
    stream("random write", Rw::RandomWrite),
    stream("sequential read", Rw::Read),
    stream("sequential write", Rw::Write),
];

const fn stream(name: &'static str, rw: Rw) -> Stream {
    Stream { name, rw }
}

/// What all comparisons have.
struct Sweep<'a> {
    setting: &'a Setting,
    site: &'a Site,
    runtime: Duration,
    rounds: usize,
    turns_a_microsecond: f64,
}

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.either((Duration::from_millis(100), 1), (Duration::from_millis(300), 3));
    let bytes = setting
        .either(setting.working_set / 4, setting.working_set)
        .max(1 << 20);
    let site = Site::file(setting, "pipelining", bytes)?;
    let sweep = Sweep {
        setting,
        site: &site,
        runtime,
        rounds,
        turns_a_microsecond: pipelining::turns_a_microsecond(),
    };
    findings.lines.push(format!(
        "8 KiB requests to {} MiB, processing behind each, writes with a sync at the end; {rounds} rounds of {} ms a side, median of \
         the ratios; CPU is less the processing's own; CPU less both starts is that of the requests",
        bytes >> 20,
        runtime.as_millis()
    ));
    for stream in STREAMS {
        let waited = sweep.median_of_one(stream)?;
        sweep.direct(stream, bytes, waited, 0.5, findings)?;
        if stream.rw == Rw::RandomRead && !setting.quick {
            for part in [0.25, 1.0, 2.0, 4.0] {
                sweep.direct(stream, bytes, waited, part, findings)?;
            }
            // Theirs went from 10 to 160 MB.
            for smaller in [bytes / 16, bytes / 4] {
                sweep.direct(stream, smaller, waited, 0.5, findings)?;
            }
        }
        if stream.rw == Rw::RandomRead || !setting.quick {
            sweep.cached(stream, waited, findings)?;
        }
    }
    Ok(())
}

impl Sweep<'_> {
    fn job(&self, stream: Stream, who: Who) -> Job {
        Job {
            path: self.site.path.clone(),
            bytes: self.site.bytes,
            write: stream.rw.writes(),
            sequential: !stream.rw.is_random(),
            cached: false,
            turns: 0,
            runtime_ms: self.runtime.as_millis() as u64,
            requests: u64::MAX,
            who,
        }
    }

    /// How long a blocking caller waits for a request of this kind, in microseconds.
    fn median_of_one(&self, stream: Stream) -> Result<f64, Failure> {
        let bare = Job {
            runtime_ms: self.setting.either(50, 200),
            ..self.job(stream, Who::Threads(1))
        };
        let ran = worker::Job::Pipelining(bare)
            .run()
            .and_then(|run| run.latency_us.p50.ok_or_else(|| "no request ended".into()));
        ran.map_err(|error| {
            Failure::new("report", "EIO", error)
                .on(self.site.path.display().to_string())
                .needing("direct reads and writes of a file there")
                .cured_by("name another directory by --dir")
        })
    }

    /// Past every cache, with this part of a request's time as processing.
    fn direct(
        &self,
        stream: Stream,
        bytes: u64,
        waited: f64,
        part: f64,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let processing = waited * part;
        let job = |who| Job {
            bytes,
            turns: (processing * self.turns_a_microsecond) as u64,
            ..self.job(stream, who)
        };
        let side = |name: String, who| Side::by(name, worker::Job::Pipelining(job(who)));
        let is_marked = part == 0.5;
        let is_swept = !self.setting.quick && is_marked && bytes == self.site.bytes;
        let (threads, stages): (&[u32], &[u32]) = if is_swept {
            (&[2, 4, 8, 16, 32], &[1, 4, 16, 64])
        } else {
            (&[4, 16], &[])
        };
        let least = if stream.rw.is_random() { 1.54 } else { 0.97 };
        let one = side("one blocking caller".into(), Who::Threads(1));
        let mut peers = vec![Peer::new(one, is_marked.then(|| rate(least)))];
        for &count in threads {
            peers.push(Peer::new(
                side(format!("{count} blocking threads"), Who::Threads(count)),
                [],
            ));
        }
        for &count in stages {
            peers.push(Peer::new(
                side(format!("{OURS}, {count} ahead"), Who::Stages(count)),
                [],
            ));
        }
        let name = format!(
            "{}, direct, {} MiB, processing {part} of a request, {STAGES} ahead",
            stream.name,
            bytes >> 20
        );
        let turns = findings.compare(self.rounds, side(name, Who::Stages(STAGES)), peers)?;
        judge(&turns, processing, is_marked, findings);
        Ok(())
    }

    /// Through a cache that holds the working set and is empty at first: ours, or the kernel's. So that all have as many hits, each
    /// makes as many requests. Reads of ours come as copies, or their pages are processed where they lie.
    fn cached(&self, stream: Stream, waited: f64, findings: &mut Findings) -> Result<(), Failure> {
        self.cached_by("cached", Who::Stages(STAGES), stream, waited, findings)?;
        if stream.rw.writes() {
            return Ok(());
        }
        self.cached_by("cached, in place", Who::Pinned(STAGES), stream, waited, findings)
    }

    fn cached_by(
        &self,
        how: &str,
        who: Who,
        stream: Stream,
        waited: f64,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        /// A device on which so many requests take longer is not waited for.
        const LONGEST_MS: u64 = 20_000;
        let (bytes, processing) = (self.site.bytes / self.setting.either(4, 32), waited * 0.5);
        let job = |who| Job {
            bytes,
            cached: true,
            turns: (processing * self.turns_a_microsecond) as u64,
            runtime_ms: LONGEST_MS,
            requests: bytes / SIZE * 2,
            ..self.job(stream, who)
        };
        let side = |name: String, who| Side::by(name, worker::Job::Pipelining(job(who))).cold(&self.site.path);
        let threads: &[u32] = self.setting.either(&[1, 4, 16], &[1, 4, 16, 32]);
        let place = file_system(&self.setting.dir);
        let blocking = |count: &u32| {
            let name = format!("{count} blocking threads over {place}");
            Peer::new(side(name, Who::Threads(*count)), [])
        };
        let name = format!(
            "{}, {how}, {} MiB, which the cache holds, empty at first, processing 0.5 of a request, {STAGES} ahead",
            stream.name,
            bytes >> 20
        );
        let turns = findings.compare(self.rounds, side(name, who), threads.iter().map(blocking).collect())?;
        let mut all = turns.peers().flat_map(|(_, runs)| runs).chain(&turns.ours);
        let are_cut = all.any(|run| run.requests < bytes / SIZE * 2);
        if are_cut {
            findings.lines.push(format!(
                "{}: a side did not make its requests in {LONGEST_MS} ms, so the parts of hits differ: no mark is judged",
                stream.name
            ));
        }
        let is_marked = stream.rw == Rw::RandomRead && !are_cut;
        judge(&turns, processing, is_marked, findings);
        Ok(())
    }
}

/// Against the number of threads that is best in each figure, which is known only now.
fn judge(turns: &Turns, processing: f64, is_marked: bool, findings: &mut Findings) {
    findings.count("us of processing behind each", "processing_us", processing, None);
    let kaio = || turns.peers().filter(|(name, _)| !name.starts_with(OURS));
    let middle = |figure: Figure, runs: &[Measurement]| middle(runs, |run| figure.of(run));
    // Requests a CPU second are one by the CPU of a request.
    let each = |figure, runs: &[Measurement]| 1.0 / ratio(figure, &turns.ours, runs);
    let bound = is_marked.then_some(Bound::AtLeast(1.25));
    for (figure, said, key, bound) in [
        (Figure::Cpu, OF_THE_BEST, "requests_a_cpu_second", bound),
        (Figure::CpuLessStart, READY, "requests_a_cpu_second_when_ready", None),
    ] {
        let cpu = |runs| middle(figure, runs);
        if let Some((name, runs)) = kaio().min_by(|one, other| cpu(one.1).total_cmp(&cpu(other.1))) {
            findings.count(&format!("{said}, {name}"), key, each(figure, runs), bound);
        } else if let Some(bound) = bound {
            findings.not_judged(said, "", bound);
        }
    }
    let rate = |runs| middle(Figure::Requests, runs);
    if let Some((name, runs)) = kaio().max_by(|one, other| rate(one.1).total_cmp(&rate(other.1))) {
        let of_theirs = ratio(Figure::Requests, &turns.ours, runs);
        let said = format!("of the requests/s of the fastest, {name}");
        findings.count(&said, "requests_of_the_fastest", of_theirs, None);
        let said = format!("of the requests a CPU second of the fastest, {name}");
        findings.count(
            &said,
            "requests_a_cpu_second_of_the_fastest",
            each(Figure::Cpu, runs),
            None,
        );
    }
}
