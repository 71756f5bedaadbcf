//! Durable writes through our own cache, against the kernel's and against our own direct ones.
//!
//! This is what seed 000 asked for: O_SYNC writes through a cache, many at a time, without their waiting for one another. On a file
//! and on a segment, both really written before; each block is written whole, so nothing is read.

use std::path::Path;
use std::time::Duration;

use baio_console::failure::Failure;

use crate::figures::fio::{self, Engine};
use crate::figures::stress::Run;
use crate::figures::{Measurement, median};
use crate::report::comparison::{Bound, Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::places::{Place, Places};
use crate::report::{Section, Setting};
use crate::stress::result::CacheCounts;

const DEPTH: u32 = 64;

/// Ours and fio's word, the size of a request, and what the ratio to the kernel's cache is to be.
type Write = (&'static str, fio::Rw, u64, &'static [Mark]);

const WRITES: [Write; 5] = [
    ("randwrite", fio::Rw::RandomWrite, 4 << 10, THRICE),
    ("randwrite", fio::Rw::RandomWrite, 8 << 10, THRICE),
    ("randwrite", fio::Rw::RandomWrite, 16 << 10, THRICE),
    ("randwrite", fio::Rw::RandomWrite, 64 << 10, MORE),
    ("write", fio::Rw::Write, 16 << 10, THRICE),
];

const THRICE: &[Mark] = &[Mark::at_least(Figure::Requests, 3.0)];
const MORE: &[Mark] = &[Mark::at_least(Figure::Requests, 2.5)];

const AGAINST_DIRECT: &[Mark] = &[Mark::at_least(Figure::Requests, 0.95)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let bytes = setting.working_set;
    let (runtime, rounds) = setting.measuring_many();
    let places = Places::make(setting, "durable-writes", bytes)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "working set {} MiB, written before; our cache has 64 MiB; {rounds} rounds of {} ms a side, median of the ratios",
        bytes >> 20,
        runtime.as_millis()
    ));
    for (nth, write) in WRITES.iter().enumerate() {
        // The quick report has one size on the segment too.
        for place in places.chosen(!setting.quick || nth == 0) {
            let runs = findings.compare_for(&comparison(place, places.file(), bytes, runtime, write), rounds)?;
            counted(&mut findings, &runs.ours);
        }
    }
    Ok(Section::of(findings))
}

fn comparison(place: &Place, file: &Path, bytes: u64, runtime: Duration, write: &Write) -> Comparison {
    let &(rw, kernels_rw, size, marks) = write;
    let request = size.to_string();
    let ours = |mode: &str| {
        Run::new(&place.target, rw, DEPTH, runtime).with(&[
            "--request-size",
            &request,
            "--durability",
            "data",
            "--mode",
            mode,
        ])
    };
    let mut kernels = fio::Job::new(
        Engine::IoUring,
        kernels_rw,
        vec![file.to_owned()],
        bytes,
        DEPTH,
        runtime,
    );
    (kernels.request_size, kernels.sync, kernels.direct) = (size, Some("dsync"), false);
    let name = format!("{}, cached, {rw}, {} KiB, depth {DEPTH}", place.said, size >> 10);
    Comparison {
        ours: Side::stress(name, ours("cached")),
        peers: vec![
            Peer::new(Side::fio(kernels), marks),
            Peer::new(Side::stress("ours, direct".into(), ours("direct")), AGAINST_DIRECT),
        ],
    }
}

/// What the device was asked for, by our own counters.
fn counted(findings: &mut Findings, runs: &[Measurement]) {
    let per_request = |of: fn(&CacheCounts) -> u64| {
        let each = |run: &Measurement| {
            run.cache
                .map_or(f64::NAN, |cache| of(&cache) as f64 / run.requests as f64)
        };
        median(&runs.iter().map(each).collect::<Vec<_>>())
    };
    let (writes, reads) = (
        per_request(|cache| cache.device_writes),
        per_request(|cache| cache.device_reads),
    );
    findings.count(
        "writes of the device a request",
        "device_writes",
        writes,
        Some(Bound::AtMost(1.0)),
    );
    findings.count(
        "reads of the device a request",
        "device_reads",
        reads,
        Some(Bound::AtMost(0.0)),
    );
}
