//! Reads of what the kernel's cache holds: what the engine costs above a bare pread(2). Nothing waits here, so the engine
//! answers in the caller's thread (`RWF_NOWAIT`), and the price is its own.

use baio_console::failure::Failure;

use crate::figures::worker;
use crate::figures::worker::buffered_reads::Job;
use crate::report::comparison::{Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::written_file;
use crate::report::{Section, Setting};

const BYTES: u64 = 8 << 20;

const ONE: &[Mark] = &[Mark::at_most(Figure::Cpu, 1.5)];
const MANY: &[Mark] = &[Mark::at_most(Figure::Cpu, 1.35)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (reads, rounds) = if setting.quick { (300_000, 3) } else { (3_000_000, 5) };
    let path = setting.dir.join("buffered-reads.file");
    written_file(&path, BYTES)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "working set {} MiB, in the kernel's cache; {rounds} rounds of {reads} reads a side, median of the ratios",
        BYTES >> 20
    ));
    let side = |name: &str, batch| {
        let path = path.clone();
        Side::worker(name.into(), worker::Job::BufferedReads(Job { path, reads, batch }))
    };
    for (name, batch, marks) in [("one at a time", 1, ONE), ("in batches of 16", 16, MANY)] {
        let comparison = Comparison {
            ours: side(name, Some(batch)),
            peers: vec![Peer::new(side("a loop of pread", None), marks)],
        };
        findings.compare(&comparison, rounds)?;
    }
    // The next experiment needs the room.
    let _ = std::fs::remove_file(&path);
    Ok(Section::of(findings))
}
