//! The same fio, unchanged, on our libraries and on the originals: libaio direct and through the kernel's cache, POSIX AIO on one file.
//!
//! Ours is fio with our library in its environment; the peer is fio without. A run that our library has not carried fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baio_console::drop_ins::{DIRECTORY, DropIn};
use baio_console::failure::Failure;
use baio_stress::Rw;

use crate::figures::fio::{self, Engine};
use crate::figures::middle;
use crate::report::comparison::{Peer, Side, Turns};
use crate::report::findings::Findings;
use crate::report::marks::{Figure, Mark, cpu, rate};
use crate::report::places::Site;
use crate::report::setting::Setting;

/// From here on the original's submitting call is slow, at its p99.9.
const SLOW_US: f64 = 1000.0;

/// Which way a line's requests go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// As many as there is time for; the others too, unless they are cold.
    Direct,
    /// Through the kernel's cache: each block once, nothing of it cached.
    Cold,
    /// Through the kernel's cache, each durable.
    Synced,
}

/// A line; the quick report has some of them.
struct Line {
    engine: Engine,
    rw: Rw,
    kib: u64,
    depth: u32,
    how: How,
    quick: bool,
}

const fn line(engine: Engine, rw: Rw, kib: u64, depth: u32, how: How, quick: bool) -> Line {
    Line {
        engine,
        rw,
        kib,
        depth,
        how,
        quick,
    }
}

const LINES: [Line; 11] = [
    line(Engine::Libaio, Rw::RandomRead, 4, 1, How::Direct, false),
    line(Engine::Libaio, Rw::RandomRead, 4, 16, How::Direct, true),
    line(Engine::Libaio, Rw::RandomRead, 4, 64, How::Direct, false),
    line(Engine::Libaio, Rw::RandomWrite, 4, 1, How::Direct, false),
    line(Engine::Libaio, Rw::RandomWrite, 4, 16, How::Direct, false),
    line(Engine::Libaio, Rw::RandomWrite, 4, 64, How::Direct, false),
    line(Engine::Libaio, Rw::RandomRead, 4, 64, How::Cold, true),
    line(Engine::Libaio, Rw::RandomRead, 16, 64, How::Cold, false),
    line(Engine::Libaio, Rw::RandomWrite, 4, 64, How::Synced, true),
    line(Engine::Posixaio, Rw::RandomRead, 4, 1, How::Direct, false),
    line(Engine::Posixaio, Rw::RandomRead, 4, 64, How::Direct, true),
];

impl Line {
    fn name(&self) -> String {
        let pattern = if self.rw.writes() { "writes" } else { "reads" };
        let interface = match self.engine {
            Engine::Posixaio => "POSIX AIO",
            _ => "libaio",
        };
        let said = match self.how {
            How::Direct => "direct",
            How::Cold => "kernel's cache, cold",
            How::Synced => "kernel's cache, O_SYNC",
        };
        format!(
            "{interface}, {pattern} of {} KiB, {said}, depth {}",
            self.kib, self.depth
        )
    }

    /// What it is held to.
    fn marks(&self) -> Vec<Mark> {
        match (self.engine, self.how, self.depth) {
            (Engine::Posixaio, _, 1) | (_, How::Synced, _) => vec![rate(1.0)],
            (Engine::Posixaio, ..) => vec![rate(2.5), cpu(1.0)],
            (_, How::Cold, _) => vec![rate(2.0)],
            (_, How::Direct, _) => vec![rate(0.98), cpu(1.0)],
        }
    }

    fn job(&self, file: &Site, runtime: Duration) -> fio::Job {
        let job = fio::Job::new(self.engine, self.rw, vec![file.path.clone()], file.bytes, self.depth);
        let job = job.with(&format!("--bs={}k", self.kib));
        match self.how {
            How::Direct => job.timed(runtime),
            How::Cold => job.buffered(),
            How::Synced => job.with("--sync=sync").timed(runtime).buffered(),
        }
    }
}

pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    if fio::version().is_none() {
        findings.skip("fio on our libraries", "fio is not installed");
        return Ok(());
    }
    let libaio = find(DropIn::Libaio);
    let posix = find(DropIn::PosixAio);
    for (what, found) in [("libaio", &libaio), ("POSIX AIO", &posix)] {
        if let Err(reason) = found {
            findings.skip(what, reason);
        }
    }
    if libaio.is_err() && posix.is_err() {
        return Ok(());
    }
    let (runtime, rounds) = setting.either((Duration::from_millis(200), 2), (Duration::from_millis(500), 5));
    let file = Site::file(setting, "drop-ins", setting.working_set / 4)?;
    findings.lines.push(format!(
        "fio, unchanged, with our library in its environment and without; requests at random to {} MiB; {rounds} rounds of {} ms a side, what is \
         cold each block once; median of the ratios",
        file.bytes >> 20,
        runtime.as_millis()
    ));
    for line in LINES.iter().filter(|line| line.quick || !setting.quick) {
        let library = match line.engine {
            Engine::Posixaio => &posix,
            _ => &libaio,
        };
        let Ok(library) = library else { continue };
        compare(line, library, &file, (runtime, rounds), findings)?;
    }
    Ok(())
}

fn compare(
    line: &Line,
    library: &Path,
    file: &Site,
    (runtime, rounds): (Duration, usize),
    findings: &mut Findings,
) -> Result<(), Failure> {
    let job = line.job(file, runtime);
    let side = |job: fio::Job| {
        let side = Side::fio(job);
        match line.how {
            How::Direct => side,
            How::Cold | How::Synced => side.cold(&file.path),
        }
    };
    let ours = Side {
        name: line.name(),
        ..side(job.clone().on(library.to_owned()))
    };
    let theirs = side(job);
    let theirs_name = theirs.name.clone();
    let is_cold = line.how == How::Cold;
    let also: &[Figure] = if is_cold { &[Figure::SubmitP999] } else { &[] };
    let peer = Peer::new(theirs, line.marks()).also(also);
    let turns = findings.compare(rounds, ours, vec![peer])?;
    if is_cold {
        hold_to_a_tenth(findings, &turns, &theirs_name);
    }
    Ok(())
}

/// Where the original's call is slow; one that is fast already has nothing to gain. Which it is, is known only if each round has measured it.
fn hold_to_a_tenth(findings: &mut Findings, turns: &Turns, theirs: &str) {
    let tenth = Mark::at_most(Figure::SubmitP999, 0.1);
    let original = match turns.peer(0) {
        [] => f64::NAN,
        runs => middle(runs, |run| tenth.figure.of(run)),
    };
    if original.is_nan() {
        findings.not_judged(tenth.figure.said(), tenth.figure.unit(), tenth.bound);
    } else if original > SLOW_US {
        findings.hold(turns, theirs, tenth, "submit_p999");
    }
}

/// Where a library of ours is, or why there is none.
fn find(library: DropIn) -> Result<PathBuf, String> {
    let package = match library {
        DropIn::Libaio => "libaio",
        DropIn::PosixAio => "posix-aio",
    };
    let missing = |_| {
        format!(
            "crates/{package}/build.sh builds our {}; {DIRECTORY} names where it is",
            library.file()
        )
    };
    let found = library.find("report", &[]);
    found.map(|dir| dir.join(library.file())).map_err(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baio_stress::{Latency, Measurement};

    /// The marks that were told as not judged, where the original's rounds were these.
    fn not_judged(original: &[Option<f64>]) -> usize {
        let runs = original.iter().map(|&p999| Measurement {
            submit_latency_us: Some(Latency {
                p999,
                ..Latency::default()
            }),
            ..Measurement::default()
        });
        let turns = Turns {
            ours: Vec::new(),
            peers: vec![("fio".to_owned(), Ok(runs.collect()))],
        };
        let mut findings = Findings::default();
        hold_to_a_tenth(&mut findings, &turns, "fio");
        findings.rows.iter().filter(|row| row.skipped.is_some()).count()
    }

    #[test]
    fn a_tenth_of_what_was_not_measured_is_not_judged() {
        assert_eq!(not_judged(&[]), 1);
        assert_eq!(not_judged(&[Some(5000.0), None]), 1);
        assert_eq!(not_judged(&[Some(5.0), Some(6.0)]), 0, "it is fast");
        assert_eq!(not_judged(&[Some(5000.0), Some(6000.0)]), 0, "it is held");
    }

    #[test]
    fn each_line_has_its_own_name() {
        let mut names: Vec<String> = LINES.iter().map(Line::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), LINES.len());
    }
}
