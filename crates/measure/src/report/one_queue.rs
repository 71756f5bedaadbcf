//! Seed 001 §9: disk and network in one queue. One thread has reads of a disk and of a pipe in flight and waits for both at
//! once; another writes to the pipe. The peer does the same by blocking calls, a thread for everything that may wait.

use baio_console::failure::Failure;

use crate::figures::worker::one_queue::Job;
use crate::figures::{Measurement, median, worker};
use crate::report::comparison::{Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::written_file;
use crate::report::{Section, Setting};

const BYTES: u64 = 64 << 20;
/// As many messages of 4 KiB as a pipe holds, for either side.
const UNDER_WAY: u32 = 16;
const DISK_DEPTH: u32 = 8;

const MARKS: &[Mark] = &[Mark::at_most(Figure::ContextSwitches, 0.5)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (messages, rounds) = if setting.quick { (16_000, 3) } else { (160_000, 5) };
    let path = setting.dir.join("one-queue.file");
    written_file(&path, BYTES)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "{messages} checked messages of 4 KiB through a pipe, {UNDER_WAY} at most under way, beside {DISK_DEPTH} direct 4 KiB \
         reads in flight; {rounds} rounds, median of the ratios; a request is a message"
    ));
    for (name, disk_reads) in [
        ("a disk read for ten messages", messages / 10),
        ("a disk read for each", messages),
    ] {
        let side = |how: &str, engine| {
            let job = worker::Job::OneQueue(Job {
                path: path.clone(),
                messages,
                under_way: UNDER_WAY,
                disk_reads,
                disk_depth: DISK_DEPTH,
                engine,
            });
            Side::worker(format!("{how}, {name}"), job)
        };
        let comparison = Comparison {
            ours: side("one queue", true),
            peers: vec![Peer::new(side("blocking threads", false), MARKS)],
        };
        let runs = findings.compare_for(&comparison, rounds)?;
        let middle = |runs: &[Measurement]| {
            let switches: Vec<f64> = runs.iter().map(|run| run.context_switches_per_request).collect();
            median(&switches)
        };
        findings.lines.push(format!(
            "    context switches a message: {:.3} against {:.3}",
            middle(&runs.ours),
            middle(runs.peer(0))
        ));
    }
    // The next experiment needs the room.
    let _ = std::fs::remove_file(&path);
    Ok(Section::of(findings))
}
