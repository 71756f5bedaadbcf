//! Seed 001 §9: disk and network in one queue. One thread has reads of a disk and of a pipe in flight and waits for both at
//! once; another writes to the pipe. The peer does the same by blocking calls, a thread for everything that may wait.

use baio_console::failure::Failure;

use crate::figures::worker;
use crate::figures::worker::one_queue::Job;
use crate::report::comparison::{Peer, Side};
use crate::report::findings::Findings;
use crate::report::marks::{Figure, Mark, rate};
use crate::report::places::Site;
use crate::report::setting::Setting;

const BYTES: u64 = 64 << 20;
/// As many messages of 4 KiB as a pipe holds, for either side.
const UNDER_WAY: u32 = 16;
const DISK_DEPTH: u32 = 8;

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (messages, rounds) = setting.either((8_000, 2), (20_000, 3));
    let file = Site::file(setting, "one-queue", BYTES)?;
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
                path: file.path.clone(),
                messages,
                under_way: UNDER_WAY,
                disk_reads,
                disk_depth: DISK_DEPTH,
                engine,
            });
            Side::by(format!("{how}, {name}"), job)
        };
        let half = Mark::at_most(Figure::ContextSwitches, 0.5);
        let threads = Peer::new(side("blocking threads", false), [rate(1.0), half]);
        findings.compare(rounds, side("one queue", true), vec![threads])?;
    }
    Ok(())
}
