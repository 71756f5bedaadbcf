//! Seed 003: "The enqueueing of writes seems to block every now and then although the size of AIO queue was large enough to
//! hold all the requests." A thousand direct writes are posted to a device, one call each, and each call is timed: a slow
//! device must not make posting slower than a fast one does.
//!
//! The device has room for 128 requests. What comes beyond that waits somewhere: with io_submit(2) in the submitting call,
//! which is the complaint; with io_uring in a kernel worker, because it first asks the device not to make it wait; on
//! `threads` in the pool.

use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::{Latency, Measurement};

use crate::figures::median;
use crate::figures::stress::Run;
use crate::report::as_written;
use crate::report::charts::{OURS, Sweep, linear, logarithmic};
use crate::report::comparison::{Peer, Side};
use crate::report::findings::Findings;
use crate::report::marks::{Figure, Mark};
use crate::report::setting::{Setting, unavailable};
use crate::report::slow_device::{self, SlowDevice};

const SLOW: Duration = Duration::from_millis(30);

pub(crate) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    to_slow_device(setting, findings)?;
    as_written::run(setting, findings)
}

fn to_slow_device(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let started = slow_device::missing().map_or_else(|| devices(setting), Err);
    let (fast, slow) = match started {
        Ok(devices) => devices,
        Err(reason) => {
            findings.skip("posted-writes", &reason);
            return Ok(());
        }
    };
    // Ten writes at a time get through to the delay, so the slow device takes 3 s for a thousand.
    let (writes, turns) = setting.either((300, 2), (1000, 3));
    findings.lines.push(format!(
        "{writes} direct 4 KiB writes posted at once, a call each; {turns} turns, median of the ratios"
    ));
    findings.lines.push(format!(
        "the device, at {} ms: {}",
        SLOW.as_millis(),
        slow.commands.join(" ; ")
    ));
    let mut sweep = Sweep::new(
        "the submitting call, by the delay of the device",
        linear("delay of a write", "ms"),
        logarithmic("p99.9 of the call", "us"),
    );
    for backend in ["uring", "threads", "aio"] {
        if let Some(reason) = unavailable(backend) {
            findings.skip(&format!("posting by {backend}"), &reason);
            continue;
        }
        let side = |device: &SlowDevice, at: String| {
            let target = device.device.path.display().to_string();
            let words = format!("--io-size {} --backend {backend} --force", u64::from(writes) * 4096);
            Side::by(
                at,
                Run::untimed(&target, "write", writes).posting().whole().with(&words),
            )
        };
        // The one that the seed complains of is shown and has no mark.
        let (name, mark) = match backend {
            "aio" => ("aio (io_submit)", None),
            backend => (backend, Some(Mark::at_most(Figure::SubmitP999, 1.5))),
        };
        let at = |delay: Duration| format!("{name}, {} ms", delay.as_millis());
        let peer = Peer::new(side(&fast, at(Duration::ZERO)), mark).also(&[Figure::SubmitP999]);
        let runs = findings.compare(turns, side(&slow, at(SLOW)), vec![peer])?;
        for (delay, runs) in [(SLOW, &runs.ours[..]), (Duration::ZERO, runs.peer(0))] {
            calls(&at(delay), runs, findings);
            let p999 = |run: &Measurement| Figure::SubmitP999.of(run);
            sweep.runs(backend, OURS, delay.as_millis() as f64, runs, p999);
        }
    }
    let showed = "enqueuing blocked every now and then, although the queue had room for all";
    findings.charts.extend(sweep.chart(
        showed,
        "a slow device must not make posting slower than a fast one does",
    ));
    Ok(())
}

fn devices(setting: &Setting) -> Result<(SlowDevice, SlowDevice), String> {
    let fast = SlowDevice::start(&setting.dir, Duration::ZERO)?;
    let slow = SlowDevice::start(&setting.dir, SLOW)?;
    Ok((fast, slow))
}

/// The submitting call: the middle of the turns, and the worst call of all.
fn calls(what: &str, runs: &[Measurement], findings: &mut Findings) {
    let of = |pick: fn(&Latency) -> Option<f64>| -> Vec<f64> {
        runs.iter()
            .filter_map(|run| pick(run.submit_latency_us.as_ref()?))
            .collect()
    };
    let max = of(|latency| latency.max).into_iter().fold(0.0, f64::max);
    for (figure, value) in [
        ("p50 submit latency", median(&of(|latency| latency.p50))),
        ("p99 submit latency", median(&of(|latency| latency.p99))),
        ("longest submitting call", max),
    ] {
        findings.figure(what, figure, "us", value, None);
    }
}
