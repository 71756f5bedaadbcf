//! Reads in order through our own cache: what readahead is for (seed 001 §3.2, §3.3). One at a time a reader waits for the
//! device unless it is read ahead of; with many in flight a cache must not make fewer or smaller reads of them than there are. On a
//! file and on a segment.

use std::path::Path;

use baio_console::failure::Failure;

use crate::figures::fio::{self, Engine};
use crate::figures::stress::Run;
use crate::figures::{Measurement, median};
use crate::report::comparison::{Bound, Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::settle;
use crate::report::places::{Place, Places};
use crate::report::{Section, Setting};

const REQUEST: u64 = 16 << 10;
const STREAMING: u32 = 64;

const AGAINST_KERNEL: &[Mark] = &[Mark::at_least(Figure::Requests, 1.0)];
const AGAINST_DIRECT: &[Mark] = &[Mark::at_least(Figure::Requests, 0.95)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (bytes, rounds) = setting.reading_once();
    let places = Places::make(setting, "sequential-reads", bytes)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "16 KiB reads in order of {} MiB, nothing of it cached; our cache has 64 MiB and is new in each run; {rounds} rounds, \
         median of the ratios",
        bytes >> 20
    ));
    for place in places.chosen(true) {
        for comparison in [one_at_a_time(place, places.file(), bytes), many(place)] {
            let runs = findings.compare_for(&comparison, rounds)?;
            let asked = |run: &Measurement| (run.requests * REQUEST) as f64;
            let bytes = runs.ours.iter().map(|run| {
                run.cache
                    .map_or(f64::NAN, |cache| cache.pages_read as f64 * 4096.0 / asked(run))
            });
            let bytes = median(&bytes.collect::<Vec<_>>());
            findings.count(
                "bytes read for each that was asked for",
                "bytes_read",
                bytes,
                Some(Bound::AtMost(1.02)),
            );
        }
    }
    Ok(Section::of(findings))
}

fn ours(place: &Place, depth: u32, mode: &str) -> Run {
    let request = REQUEST.to_string();
    Run::once(&place.target, "read", depth).with(&["--request-size", &request, "--mode", mode])
}

fn one_at_a_time(place: &Place, file: &Path, bytes: u64) -> Comparison {
    let kernels = Side::fio(fio::Job {
        request_size: REQUEST,
        direct: false,
        ..fio::Job::once(Engine::Psync, fio::Rw::Read, file.to_owned(), bytes, 1)
    });
    let file = file.to_owned();
    let name = format!("{}, cached, one at a time", place.said);
    Comparison {
        ours: Side::stress(name, ours(place, 1, "cached")).after(place.settled()),
        peers: vec![
            Peer::new(kernels.after(move || settle(&file)), AGAINST_KERNEL),
            Peer::new(
                Side::stress("ours, direct, one at a time".into(), ours(place, 1, "direct")),
                &[],
            ),
        ],
    }
}

fn many(place: &Place) -> Comparison {
    let name = format!("{}, cached, depth {STREAMING}", place.said);
    Comparison {
        ours: Side::stress(name, ours(place, STREAMING, "cached")).after(place.settled()),
        peers: vec![Peer::new(
            Side::stress("ours, direct".into(), ours(place, STREAMING, "direct")),
            AGAINST_DIRECT,
        )],
    }
}
