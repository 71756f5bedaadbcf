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
use crate::report::comparison::{Peer, Side};
use crate::report::findings::Findings;
use crate::report::marks::{Figure, Mark};
use crate::report::places::Site;
use crate::report::setting::Setting;

/// From here on the original's submitting call is slow, at its p99.9.
const SLOW_US: f64 = 1000.0;

/// What a line does, and what it is held to.
struct Line {
    said: &'static str,
    engine: Engine,
    rw: Rw,
    kib: u64,
    depth: u32,
    direct: bool,
    /// As many requests as there is time for; else each block once, nothing of it cached.
    timed: bool,
    durable: bool,
    marks: &'static [Mark],
    /// The quick report has it.
    quick: bool,
}

const DIRECT: &[Mark] = &[Mark::at_least(Figure::Requests, 0.98), Mark::at_most(Figure::Cpu, 1.0)];
const COLD: &[Mark] = &[Mark::at_least(Figure::Requests, 2.0)];
const DURABLE: &[Mark] = &[Mark::at_least(Figure::Requests, 1.0)];
const MANY: &[Mark] = &[Mark::at_least(Figure::Requests, 2.5), Mark::at_most(Figure::Cpu, 1.0)];
const ONE: &[Mark] = &[Mark::at_least(Figure::Requests, 1.0)];

const fn direct(engine: Engine, rw: Rw, depth: u32, marks: &'static [Mark], quick: bool) -> Line {
    Line {
        said: "direct",
        engine,
        rw,
        kib: 4,
        depth,
        direct: true,
        timed: true,
        durable: false,
        marks,
        quick,
    }
}

const fn cold(kib: u64, quick: bool) -> Line {
    Line {
        said: "kernel's cache, cold",
        kib,
        direct: false,
        timed: false,
        ..direct(Engine::Libaio, Rw::RandomRead, 64, COLD, quick)
    }
}

const LINES: &[Line] = &[
    direct(Engine::Libaio, Rw::RandomRead, 1, DIRECT, false),
    direct(Engine::Libaio, Rw::RandomRead, 16, DIRECT, true),
    direct(Engine::Libaio, Rw::RandomRead, 64, DIRECT, false),
    direct(Engine::Libaio, Rw::RandomWrite, 1, DIRECT, false),
    direct(Engine::Libaio, Rw::RandomWrite, 16, DIRECT, false),
    direct(Engine::Libaio, Rw::RandomWrite, 64, DIRECT, false),
    cold(4, true),
    cold(16, false),
    Line {
        said: "kernel's cache, O_SYNC",
        direct: false,
        durable: true,
        ..direct(Engine::Libaio, Rw::RandomWrite, 64, DURABLE, true)
    },
    direct(Engine::Posixaio, Rw::RandomRead, 1, ONE, false),
    direct(Engine::Posixaio, Rw::RandomRead, 64, MANY, true),
];

impl Line {
    fn name(&self) -> String {
        let pattern = if self.rw.writes() { "writes" } else { "reads" };
        let interface = match self.engine {
            Engine::Posixaio => "POSIX AIO",
            _ => "libaio",
        };
        format!(
            "{interface}, {pattern} of {} KiB, {}, depth {}",
            self.kib, self.said, self.depth
        )
    }

    fn job(&self, file: &Site, runtime: Duration) -> fio::Job {
        let job = fio::Job::new(self.engine, self.rw, vec![file.path.clone()], file.bytes, self.depth);
        let job = job.with(&format!("--bs={}k", self.kib));
        let job = if self.durable { job.with("--sync=sync") } else { job };
        let job = if self.timed { job.timed(runtime) } else { job };
        if self.direct { job } else { job.buffered() }
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
        if line.direct { side } else { side.after(file.settled()) }
    };
    let ours = Side {
        name: line.name(),
        ..side(job.clone().on(library.to_owned()))
    };
    let is_read = !line.rw.writes();
    let theirs = side(job);
    let theirs_name = theirs.name.clone();
    let peer = Peer {
        also: if is_read && !line.direct {
            &[Figure::SubmitP999]
        } else {
            &[]
        },
        ..Peer::new(theirs, line.marks.iter().copied())
    };
    let turns = findings.compare(rounds, ours, vec![peer])?;
    // A call that is fast already has nothing to gain.
    let slow = middle(turns.peer(0), |run| Figure::SubmitP999.of(run)) > SLOW_US;
    if is_read && !line.direct && slow {
        let tenth = Mark::at_most(Figure::SubmitP999, 0.1);
        findings.hold(&turns, &theirs_name, tenth, "submit_p999");
    }
    Ok(())
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

    #[test]
    fn each_line_has_its_own_name_and_a_mark() {
        let mut names: Vec<String> = LINES.iter().map(Line::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), LINES.len());
        assert!(LINES.iter().all(|line| !line.marks.is_empty()));
    }
}
