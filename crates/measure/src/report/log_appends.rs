//! Seed 002's question: our log against the two writers with a thread of their own, which "can easily max out any real device's bandwidth,
//! but incurs more latency than should be absolutely needed due to the extra context switching". Each side is `baio latency` on the
//! same file, in turn.

use std::time::Duration;

use baio_console::failure::Failure;

use crate::figures::appends;
use crate::report::charts::{OURS, PEER, Sweep, linear, logarithmic};
use crate::report::comparison::{Peer, Side, Turns};
use crate::report::findings::Findings;
use crate::report::marks::{Figure, Mark, cpu, rate};
use crate::report::places::Site;
use crate::report::setting::Setting;

const THREADS: [&str; 2] = ["thread-direct", "thread-fdatasync"];

/// In these times, and in turn so often.
#[derive(Clone, Copy)]
struct Pace {
    runtime: Duration,
    rounds: usize,
}

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let (runtime, rounds) = setting.either((Duration::from_millis(100), 2), (Duration::from_millis(150), 3));
    let pace = Pace { runtime, rounds };
    let file = Site::file(setting, "log-appends", setting.either(32 << 20, 256 << 20))?;
    findings.lines.push(format!(
        "durable records, by our log and by threads that write, {} ms each; {rounds} rounds, median of the ratios; a request is a record",
        runtime.as_millis()
    ));
    let record_bytes: &[usize] = setting.either(&[256, 4096], &[256, 4096, 65536]);
    let mut capacity = 0.0;
    for &bytes in record_bytes {
        let mut sweep = Sweep::new(
            format!("durable records of {bytes} bytes"),
            logarithmic("records waiting", ""),
            linear("records a second", "1/s"),
        );
        let loads: &[u32] = match (setting.quick, bytes) {
            (true, 4096) => &[8, 64],
            _ => &[1, 8, 64, 512],
        };
        for &waiting in loads {
            let name = format!("{bytes} bytes, {waiting} waiting");
            let load = format!("--waiting {waiting}");
            let turns = against_threads(&file, pace, (&name, &load), bytes, &[], findings)?;
            judge(&turns, &closed_loop(bytes, waiting), findings);
            if (bytes, waiting) == (256, 64) {
                let best = turns.best().map_or(&[][..], |(_, best)| best);
                capacity = crate::figures::middle(best, |run| run.iops);
            }
            sweep.runs("our log", OURS, f64::from(waiting), &turns.ours, |run| run.iops);
            for (name, runs) in turns.peers() {
                sweep.runs(name, PEER, f64::from(waiting), runs, |run| run.iops);
            }
        }
        let here = "one thread keeps so many records waiting: our log beside two threads that write";
        findings.charts.extend(sweep.chart("", here));
    }
    let threads = ("256 bytes, 8 threads", "--threads 8");
    let turns = against_threads(&file, pace, threads, 256, &[], findings)?;
    judge(
        &turns,
        &[rate(1.0), Mark::at_most(Figure::ContextSwitches, 1.0)],
        findings,
    );
    let half = (capacity / 2.0).clamp(1.0, 10_000_000.0) as u32;
    // Its name is the same in each report; how many there are stands in the command.
    let name = "256 bytes at random moments";
    let load = format!("--rate {half}");
    // All make as many a second: none is the better.
    against_threads(&file, pace, (name, &load), 256, &LATENCIES, findings)?;
    alone(&file, pace, findings)
}

/// Of a writer's.
const LATENCIES: [Mark; 2] = [Mark::at_most(Figure::P50, 1.03), Mark::at_most(Figure::P99, 1.10)];

/// What is asked of one thread that keeps records waiting.
fn closed_loop(bytes: usize, waiting: u32) -> Vec<Mark> {
    let is_many = waiting >= 64;
    let appends = match bytes {
        256 if is_many => 1.15,
        256 => 1.05,
        4096 if !is_many => 1.05,
        // The device is the limit.
        _ => 0.97,
    };
    let switches = Mark::at_most(Figure::ContextSwitches, 0.5);
    let mut marks = vec![rate(appends), LATENCIES[0], LATENCIES[1], switches];
    marks.extend((bytes == 256).then(|| cpu(0.6)));
    marks
}

fn side(file: &Site, pace: Pace, name: String, who: &str, load: &str, bytes: usize) -> Side {
    Side::by(name, appends::Run::new(&file.path, who, load, bytes, pace.runtime))
}

fn against_threads(
    file: &Site,
    pace: Pace,
    (name, load): (&str, &str),
    bytes: usize,
    marks: &[Mark],
    findings: &mut Findings,
) -> Result<Turns, Failure> {
    let peer = |peer: &str| {
        let theirs = side(file, pace, peer.to_owned(), &format!("--peer {peer}"), load, bytes);
        Peer::new(theirs, marks.iter().copied()).also(&[Figure::ContextSwitches, Figure::P50, Figure::P99])
    };
    let ours = side(file, pace, name.to_owned(), "--log", load, bytes);
    findings.compare(pace.rounds, ours, THREADS.map(peer).into())
}

/// The marks are against the better of the two, which is known only now.
fn judge(turns: &Turns, marks: &[Mark], findings: &mut Findings) {
    findings.hold_to_best(turns, marks.iter().map(|mark| (*mark, mark.figure.key())));
}

/// One record alone, against nothing but its write, by a call that blocks.
fn alone(file: &Site, pace: Pace, findings: &mut Findings) -> Result<(), Failure> {
    let one = |name: &str, who: &str| side(file, pace, name.to_owned(), who, "--waiting 1", 256);
    let bare = Peer::new(one("bare", "--peer bare"), [Mark::at_most(Figure::P50, 1.08)]);
    let ours = one("256 bytes, a record alone", "--log");
    findings.compare(pace.rounds, ours, vec![bare]).map(drop)
}
