//! Random reads through our own cache of what is nowhere cached, each block once (seed 001 §3: streaming asynchronous reads).
//! A cache that reads what nobody asked for, or waits for one request before it starts the next, shows here; on a file and on a
//! segment.

use std::path::Path;

use baio_console::failure::Failure;

use crate::figures::fio::{self, Engine};
use crate::figures::stress::Run;
use crate::figures::{Measurement, median};
use crate::report::comparison::{Bound, Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::settle;
use crate::report::places::{Place, Places};
use crate::report::{Section, Setting};

const DEPTH: u32 = 64;
const KIB: u64 = 1 << 10;

/// The size of a request, what the ratio to libaio through the kernel's cache is to be, and what the quick report has of it.
const SIZES: [(u64, &[Mark], Quick); 5] = [
    (4 * KIB, TWICE, Quick::Both),
    (8 * KIB, TWICE, Quick::None),
    (16 * KIB, TWICE, Quick::None),
    (32 * KIB, MORE, Quick::None),
    (64 * KIB, MORE, Quick::File),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quick {
    None,
    File,
    Both,
}

const TWICE: &[Mark] = &[Mark::at_least(Figure::Requests, 2.0)];
const MORE: &[Mark] = &[Mark::at_least(Figure::Requests, 1.2)];
const AGAINST_RING: &[Mark] = &[Mark::at_least(Figure::Requests, 0.9)];
const AGAINST_DIRECT: &[Mark] = &[Mark::at_least(Figure::Requests, 0.95)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (bytes, rounds) = setting.reading_once();
    let places = Places::make(setting, "cached-reads", bytes)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "each block of {} MiB once, nothing of it cached; our cache has 64 MiB and is new in each run; {rounds} rounds, \
         median of the ratios",
        bytes >> 20
    ));
    for (size, marks, quick) in SIZES {
        if setting.quick && quick == Quick::None {
            continue;
        }
        for place in places.chosen(!setting.quick || quick == Quick::Both) {
            let comparison = comparison(place, places.file(), bytes, size, marks);
            let runs = findings.compare_for(&comparison, rounds)?;
            counted(&mut findings, &runs.ours, size);
        }
    }
    Ok(Section::of(findings))
}

fn comparison(place: &Place, file: &Path, bytes: u64, size: u64, marks: &'static [Mark]) -> Comparison {
    let request = size.to_string();
    let ours =
        |mode: &str| Run::once(&place.target, "randread", DEPTH).with(&["--request-size", &request, "--mode", mode]);
    let kernels = |engine| {
        let side = Side::fio(fio::Job {
            request_size: size,
            direct: false,
            ..fio::Job::once(engine, fio::Rw::RandomRead, file.to_owned(), bytes, DEPTH)
        });
        let file = file.to_owned();
        side.after(move || settle(&file))
    };
    let name = format!("{}, cached, {} KiB, depth {DEPTH}", place.said, size / KIB);
    Comparison {
        ours: Side::stress(name, ours("cached")).after(place.settled()),
        peers: vec![
            Peer::new(Side::stress("ours, direct".into(), ours("direct")), AGAINST_DIRECT),
            Peer::new(kernels(Engine::Libaio), marks),
            Peer::new(kernels(Engine::IoUring), AGAINST_RING),
        ],
    }
}

/// What the device was asked for, by our own counters.
fn counted(findings: &mut Findings, runs: &[Measurement], size: u64) {
    let each = |of: &dyn Fn(&Measurement) -> Option<f64>| {
        median(&runs.iter().map(|run| of(run).unwrap_or(f64::NAN)).collect::<Vec<_>>())
    };
    let bytes = each(&|run| Some(run.cache?.pages_read as f64 * 4096.0 / (run.requests * size) as f64));
    findings.count(
        "bytes read for each that was asked for",
        "bytes_read",
        bytes,
        Some(Bound::AtMost(1.02)),
    );
    let reads = each(&|run| Some(run.cache?.device_reads as f64 / run.requests as f64));
    findings.count(
        "reads of the device a request",
        "device_reads",
        reads,
        Some(Bound::AtMost(1.02)),
    );
    let iterations = each(&|run| Some(run.cache?.iterations as f64 / run.requests as f64));
    findings.count("iterations a request", "iterations", iterations, None);
}
