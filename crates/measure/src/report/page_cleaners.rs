//! Seed 001's tables 2 to 5: an OLTP-like mix on a buffer pool, and who writes its changed pages. One asynchronous cleaner against
//! 1 to 64 synchronous ones (threads of the experiment, which block), on a file system and on a device; memory is fixed, and what
//! the synchronous cleaners take of it the pool has less.
//!
//! Agents are the same on both sides: transactions that wait and threads that do not, as many threads as processors. The parameters
//! below were fixed before the runs; the sweep over the number of cleaners is all in the answer.

use std::path::Path;

use baio_console::failure::Failure;
use baio_stress::Measurement;
use serde_json::json;

use crate::figures::middle;
use crate::figures::worker;
use crate::figures::worker::page_cleaners::{AGENTS, CLEANER_BYTES, Job, MEMORY_PART, OLTP as MIX};
use crate::report::charts::{OURS, PEER, Sweep, linear, logarithmic};
use crate::report::comparison::{Peer, Side, Turns};
use crate::report::findings::Findings;
use crate::report::loop_device::{LoopDevice, missing};
use crate::report::marks::{Bound, cpu, rate};
use crate::report::places::Site;
use crate::report::setting::Setting;
use crate::report::streaming::file_system;

/// Of these one has a mark: the best.
const CLEANERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK: [u32; 2] = [1, 16];

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let bytes = setting.working_set / 4;
    let file = Site::file(setting, "page-cleaners", bytes)?;
    findings.lines.push(format!(
        "{} MiB of pages, {} MiB of memory, {} KiB of it for each synchronous cleaner; {AGENTS} agents; a transaction uses {} pages \
         ({} % of the uses are of {} % of the pages), goes through each {} times, and changes {} % of them",
        bytes >> 20,
        (bytes / MEMORY_PART) >> 20,
        CLEANER_BYTES >> 10,
        MIX.pages,
        MIX.hot_uses_percent,
        MIX.hot_pages_percent,
        MIX.work,
        MIX.changed_percent
    ));
    sweep(setting, &file.path, bytes, &file_system(&setting.dir), true, findings)?;
    let device = match missing(&[]) {
        Some(reason) => Err(reason),
        None => LoopDevice::over(&file.path),
    };
    match device {
        Ok(device) => sweep(setting, &device.path, bytes, "a loop device", false, findings)?,
        Err(reason) => findings.skip("a loop device", &reason),
    }
    Ok(())
}

fn sweep(
    setting: &Setting,
    path: &Path,
    bytes: u64,
    place: &str,
    has_kernels_cache: bool,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let (runtime_ms, rounds) = setting.either((400, 1), (500, 3));
    let side = |name: String, cleaners: u32, through_kernel: bool| {
        let job = worker::Job::PageCleaners(Job {
            through_kernel,
            ..Job::new(path.to_owned(), bytes, cleaners, runtime_ms)
        });
        Side::by(name, job).cold(path)
    };
    // As much memory as these take must be there, and a pool beside it.
    let fits = |cleaners: &u32| u64::from(*cleaners) * CLEANER_BYTES * 2 <= bytes / MEMORY_PART;
    let numbers = setting.either(&QUICK[..], &CLEANERS).iter().copied().filter(fits);
    let mut peers = Vec::new();
    for cleaners in numbers.clone() {
        let name = format!("{cleaners} synchronous");
        peers.push(Peer::new(side(name.clone(), cleaners, false), []));
        if has_kernels_cache && cleaners == 16 {
            let name = format!("{name}, the kernel's cache, O_DSYNC");
            peers.push(Peer::new(side(name, cleaners, true), []));
        }
    }
    let ours = side(format!("transactions on {place}, one asynchronous cleaner"), 0, false);
    let turns = findings.compare(rounds, ours, peers)?;
    judge(findings, &turns);
    let title = format!("transactions by cleaners, {place}");
    let mut sweep = Sweep::new(
        title,
        logarithmic("synchronous cleaners", ""),
        linear("transactions a second", "1/s"),
    );
    for cleaners in numbers {
        let (at, name) = (f64::from(cleaners), format!("{cleaners} synchronous"));
        // Ours is as fast whatever their number.
        sweep.runs("one asynchronous cleaner", OURS, at, &turns.ours, |run| run.iops);
        let theirs = turns
            .peers()
            .find(|(peer, _)| *peer == name)
            .map_or(&[][..], |(_, runs)| runs);
        sweep.runs("synchronous cleaners", PEER, at, theirs, |run| run.iops);
    }
    let showed =
        "one asynchronous cleaner 133, 55 synchronous ones 122 (relative); agents wrote none and 30 % of the pages";
    let here = "one asynchronous cleaner beside 1 to 64 synchronous ones, which take memory of the pool";
    findings.charts.extend(sweep.chart(showed, here));
    Ok(())
}

/// Against the best of the synchronous ones.
fn judge(findings: &mut Findings, turns: &Turns) {
    let foreground = |runs: &[Measurement]| middle(runs, |run| run.foreground_percent.unwrap_or(f64::NAN));
    let mut rows = Vec::new();
    for (name, runs) in std::iter::once(("one asynchronous", &turns.ours[..])).chain(turns.peers()) {
        let rate = middle(runs, |run| run.iops);
        let cpu = middle(runs, |run| run.cpu_us_per_request);
        let foreground = foreground(runs);
        rows.push(json!({
            "row": name,
            "transactions_per_second": rate,
            "cpu_us": cpu,
            "foreground_percent": foreground,
        }));
    }
    findings.hold_to_best(turns, [(rate(1.09), "transactions"), (cpu(1.0), "cpu")]);
    let of_ours = "% of our pages written in the foreground";
    findings.count(of_ours, "foreground", foreground(&turns.ours), Some(Bound::AtMost(0.0)));
    let Some((name, best)) = turns.best() else { return };
    let of_best = "% of the pages of the best synchronous ones";
    findings.count(of_best, "foreground_of_best", foreground(best), None);
    findings.lines.push(format!("the best of the synchronous ones: {name}"));
    findings
        .parts
        .push(json!({ "part": "cleaners", "best": name, "rows": rows }));
}
