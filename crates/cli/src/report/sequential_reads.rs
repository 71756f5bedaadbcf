//! Reads in order through our own cache: what readahead is for (seed 001 §3.2, §3.3). One at a time a reader waits for the
//! device unless it is read ahead of; with many in flight a cache must not make fewer or smaller reads of them than there are.

use crate::failure::Failure;
use crate::measure::fio::{self, Engine};
use crate::measure::median;
use crate::measure::stress::Run;
use crate::report::comparison::{Bound, Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::{settle, written_file};
use crate::report::{Section, Setting};

const REQUEST: u64 = 16 << 10;
const STREAMING: u32 = 64;

const AGAINST_KERNEL: &[Mark] = &[Mark::at_least(Figure::Requests, 1.0)];
const AGAINST_DIRECT: &[Mark] = &[Mark::at_least(Figure::Requests, 0.95)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let (bytes, rounds) = setting.reading_once();
    let file = setting.dir.join("sequential-reads.file");
    written_file(&file, bytes)?;
    let target = file.display().to_string();
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "16 KiB reads in order of {} MiB, nothing of it cached; our cache has 64 MiB and is new in each run; {rounds} rounds, \
         median of the ratios",
        bytes >> 20
    ));
    let ours = |depth, mode: &str| {
        let request = REQUEST.to_string();
        Run::once(&target, "read", depth).with(&["--request-size", &request, "--mode", mode])
    };
    let cold = |side: Side| {
        let file = file.clone();
        side.after(move || settle(&file))
    };
    let kernels = Side::fio(fio::Job {
        request_size: REQUEST,
        direct: false,
        ..fio::Job::once(Engine::Psync, fio::Rw::Read, file.clone(), bytes, 1)
    });
    let one = Comparison {
        ours: cold(Side::stress("cached, one at a time".into(), ours(1, "cached"))),
        peers: vec![
            Peer::new(cold(kernels), AGAINST_KERNEL),
            Peer::new(
                Side::stress("ours, direct, one at a time".into(), ours(1, "direct")),
                &[],
            ),
        ],
    };
    let many = Comparison {
        ours: cold(Side::stress(
            format!("cached, depth {STREAMING}"),
            ours(STREAMING, "cached"),
        )),
        peers: vec![Peer::new(
            Side::stress("ours, direct".into(), ours(STREAMING, "direct")),
            AGAINST_DIRECT,
        )],
    };
    for comparison in [one, many] {
        let runs = findings.compare_for(&comparison, rounds)?;
        let asked = |run: &crate::measure::Measurement| (run.requests * REQUEST) as f64;
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
    // The next experiment needs the room.
    let _ = std::fs::remove_file(&file);
    Ok(Section::of(findings))
}
