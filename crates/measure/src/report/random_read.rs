//! 4 KiB random direct reads: each backend against the peer that does what it does, on a file; the best backend also on a
//! segment, where the volume's own cost would show.
//!
//! uring has io_uring through fio for a peer, aio has libaio, threads have glibc's POSIX AIO and blocking threads. fio reads
//! a segment as the byte range of the volume's file in which it lies.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baio::{Core, Identity};
use baio_console::failure::Failure;

use crate::figures::fio::{self, Engine};
use crate::figures::stress::{Run, segment_target};
use crate::figures::worker::{self, Job};
use crate::report::comparison::{Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::{written_file, written_segment};
use crate::report::{Section, Setting, storage_failure};

const NAME: &str = "pages";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    Segment,
}

enum Rival {
    Fio(Engine),
    /// Our own loop of blocking threads, for machines without fio.
    Pread,
}

/// One line: ours, its peers, and the marks.
struct Line {
    place: Place,
    backend: &'static str,
    depth: u32,
    /// Also in the quick report.
    quick: bool,
    peers: &'static [(Rival, &'static [Mark])],
}

/// A saturated device makes equality a coin toss: then 0.97 is a pass, and the processor time is what tells.
const RATE: Mark = Mark::at_least(Figure::Requests, 0.97);
const LEAN: Mark = Mark::at_most(Figure::Cpu, 0.75);

const RING: &[(Rival, &[Mark])] = &[(Rival::Fio(Engine::IoUring), &[RATE])];
const LEAN_RING: &[(Rival, &[Mark])] = &[(Rival::Fio(Engine::IoUring), &[RATE, LEAN])];
const LEAN_RING_AND_THREADS: &[(Rival, &[Mark])] = &[(Rival::Fio(Engine::IoUring), &[RATE, LEAN]), (Rival::Pread, &[])];
const AIO: &[(Rival, &[Mark])] = &[(Rival::Fio(Engine::Libaio), &[RATE])];
const LEAN_AIO: &[(Rival, &[Mark])] = &[(Rival::Fio(Engine::Libaio), &[RATE, LEAN])];
const POSIX: (Rival, &[Mark]) = (Rival::Fio(Engine::Posixaio), &[Mark::at_least(Figure::Requests, 1.5)]);
const FEW_THREADS: &[(Rival, &[Mark])] = &[POSIX];
const MANY_THREADS: &[(Rival, &[Mark])] = &[
    POSIX,
    (
        Rival::Fio(Engine::Psync),
        &[Mark::at_least(Figure::Requests, 0.8), Mark::at_most(Figure::Cpu, 1.3)],
    ),
];

const fn line(
    place: Place,
    backend: &'static str,
    depth: u32,
    quick: bool,
    peers: &'static [(Rival, &'static [Mark])],
) -> Line {
    Line {
        place,
        backend,
        depth,
        quick,
        peers,
    }
}

const LINES: &[Line] = &[
    line(Place::File, "uring", 1, false, RING),
    line(Place::File, "uring", 16, true, LEAN_RING),
    line(Place::File, "uring", 64, true, LEAN_RING_AND_THREADS),
    line(Place::File, "uring", 256, false, RING),
    line(Place::Segment, "uring", 1, false, RING),
    line(Place::Segment, "uring", 16, true, LEAN_RING),
    line(Place::Segment, "uring", 64, true, LEAN_RING),
    line(Place::Segment, "uring", 256, false, RING),
    line(Place::File, "aio", 1, false, AIO),
    line(Place::File, "aio", 16, true, LEAN_AIO),
    line(Place::File, "aio", 64, true, LEAN_AIO),
    line(Place::File, "aio", 256, false, AIO),
    line(Place::File, "threads", 16, true, FEW_THREADS),
    line(Place::File, "threads", 64, true, MANY_THREADS),
];

/// What is read, and where it lies in which file.
struct Read {
    target: String,
    path: PathBuf,
    offset: u64,
    len: u64,
}

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let bytes = setting.working_set;
    let (runtime, rounds) = setting.measuring_many();
    let file = file(&setting.dir.join("random-read.file"), bytes)?;
    let segment = segment(&setting.dir.join("random-read.img"), bytes)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "working set {} MiB, {rounds} rounds of {} ms a side, median of the ratios",
        bytes >> 20,
        runtime.as_millis()
    ));
    let lines = LINES.iter().filter(|line| line.quick || !setting.quick);
    for line in lines {
        let read = if line.place == Place::File { &file } else { &segment };
        let name = name(line);
        match crate::report::unavailable(line.backend) {
            Some(reason) => findings.skip(&name, &reason),
            None => findings.compare(&comparison(line, name, read, runtime), rounds)?,
        }
    }
    for read in [file, segment] {
        // The next experiment needs the room.
        let _ = std::fs::remove_file(read.path);
    }
    Ok(Section::of(findings))
}

fn name(line: &Line) -> String {
    let place = match line.place {
        Place::File => "file",
        Place::Segment => "segment",
    };
    format!("{place}, {}, depth {}", line.backend, line.depth)
}

fn file(path: &Path, bytes: u64) -> Result<Read, Failure> {
    written_file(path, bytes)?;
    Ok(Read {
        target: path.display().to_string(),
        path: path.to_owned(),
        offset: 0,
        len: bytes,
    })
}

fn segment(path: &Path, bytes: u64) -> Result<Read, Failure> {
    written_segment(path, NAME, bytes)?;
    let identity = Identity::effective();
    let info = Core::inspect_segment(path, identity, identity.uid, NAME).map_err(storage_failure)?;
    let whole = Core::inspect_volume(path).map_err(storage_failure)?;
    Ok(Read {
        target: segment_target(path, NAME),
        path: path.to_owned(),
        offset: whole.data_at_bytes + info.start_block * u64::from(whole.block_size),
        len: bytes,
    })
}

fn comparison(line: &Line, name: String, read: &Read, runtime: Duration) -> Comparison {
    let run = Run::new(&read.target, "randread", line.depth, runtime).on(line.backend);
    let peers = line.peers.iter().map(|(rival, marks)| {
        let side = match rival {
            Rival::Fio(engine) => Side::fio(fio::Job {
                offset: read.offset,
                ..fio::Job::new(
                    *engine,
                    fio::Rw::RandomRead,
                    vec![read.path.clone()],
                    read.len,
                    line.depth,
                    runtime,
                )
            }),
            Rival::Pread => pread(line, read, runtime),
        };
        Peer::new(side, marks)
    });
    Comparison {
        peers: peers.collect(),
        ours: Side::stress(name, run),
    }
}

/// Threads of ours, each in a loop of O_DIRECT pread(2).
fn pread(line: &Line, read: &Read, runtime: Duration) -> Side {
    let job = Job::Pread {
        path: read.path.clone(),
        offset: read.offset,
        len: read.len,
        request_size: 4096,
        threads: line.depth,
        runtime_ms: runtime.as_millis() as u64,
    };
    Side {
        name: format!("{} pread threads", line.depth),
        command: worker::command_line(&job),
        run: Box::new(move || worker::run(&job)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_report_has_every_backend_and_both_places() {
        let quick = || LINES.iter().filter(|line| line.quick);
        for backend in ["uring", "aio", "threads"] {
            assert!(quick().any(|line| line.backend == backend), "{backend}");
        }
        assert!(quick().any(|line| line.place == Place::Segment));
    }

    #[test]
    fn every_line_has_a_peer_with_a_mark_and_a_name_of_its_own() {
        let mut names: Vec<_> = LINES.iter().map(name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), LINES.len());
        assert!(
            LINES
                .iter()
                .all(|line| line.peers.iter().any(|(_, marks)| !marks.is_empty()))
        );
    }
}
