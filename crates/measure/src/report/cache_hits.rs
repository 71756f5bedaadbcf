//! A hit in our own cache against a pread(2) of what the kernel's cache holds: what a copy costs with a system call and
//! without, and what a look at a pinned page costs, which is no copy. All are whole programs: the copies are those of `stress`,
//! which draws, stamps the time and counts; the others are bare loops.

use std::time::Duration;

use baio_console::failure::Failure;

use crate::figures::stress::Run;
use crate::figures::worker;
use crate::figures::worker::{buffered_reads, pinned_hits};
use crate::report::comparison::{Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::written_file;
use crate::report::{Section, Setting};

const BYTES: u64 = 8 << 20;

const COPIED: &[Mark] = &[Mark::at_most(Figure::Cpu, 0.85)];
const PINNED: &[Mark] = &[Mark::at_most(Figure::Cpu, 0.33)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (reads, runtime, rounds) = if setting.quick {
        (300_000, Duration::from_millis(400), 2)
    } else {
        (3_000_000, Duration::from_secs(3), 5)
    };
    let path = setting.dir.join("cache-hits.file");
    written_file(&path, BYTES)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "4 KiB reads one at a time at random places of {} MiB, all of it cached; {rounds} rounds, median of the ratios",
        BYTES >> 20
    ));
    let ours =
        Run::new(&path.display().to_string(), "randread", 1, runtime).with(&["--mode", "cached", "--warm", "100"]);
    let pinned = pinned_hits::Job {
        path: path.clone(),
        reads,
    };
    let bare = || {
        let job = buffered_reads::Job {
            path: path.clone(),
            reads,
            batch: None,
        };
        Side::worker("a loop of pread".into(), worker::Job::BufferedReads(job))
    };
    let sides = [
        (Side::stress("copied, one at a time".into(), ours), COPIED),
        (Side::worker("pinned".into(), worker::Job::PinnedHits(pinned)), PINNED),
    ];
    for (ours, marks) in sides {
        let comparison = Comparison {
            ours,
            peers: vec![Peer::new(bare(), marks)],
        };
        findings.compare(&comparison, rounds)?;
    }
    // The next experiment needs the room.
    let _ = std::fs::remove_file(&path);
    Ok(Section::of(findings))
}
