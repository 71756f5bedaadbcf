//! Durable random writes through our own cache, against the kernel's and against our own direct ones.
//!
//! This is what seed 000 asked for: O_SYNC writes through a cache, many at a time, without their waiting for one another. The file
//! is really written before; each block is written whole, so nothing is read.

use crate::failure::Failure;
use crate::measure::fio::{self, Engine};
use crate::measure::stress::Run;
use crate::report::comparison::{Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::written_file;
use crate::report::{Section, Setting};

const DEPTH: u32 = 64;

/// The size of a request, and what the ratio to the kernel's cache is to be.
const SIZES: [(u64, &[Mark]); 4] = [
    (4 << 10, &[Mark::at_least(Figure::Requests, 3.0)]),
    (8 << 10, &[Mark::at_least(Figure::Requests, 3.0)]),
    (16 << 10, &[Mark::at_least(Figure::Requests, 3.0)]),
    (64 << 10, &[Mark::at_least(Figure::Requests, 2.5)]),
];

const AGAINST_DIRECT: &[Mark] = &[Mark::at_least(Figure::Requests, 0.95)];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let bytes = setting.working_set;
    let (runtime, rounds) = setting.measuring_many();
    let file = setting.dir.join("durable-writes.file");
    written_file(&file, bytes)?;
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "working set {} MiB, written before; our cache has 64 MiB; {rounds} rounds of {} ms a side, median of the ratios",
        bytes >> 20,
        runtime.as_millis()
    ));
    for (size, marks) in SIZES {
        let request = size.to_string();
        let ours = |mode: &str| {
            Run::new(&file.display().to_string(), "randwrite", DEPTH, runtime).with(&[
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
            fio::Rw::RandomWrite,
            vec![file.clone()],
            bytes,
            DEPTH,
            runtime,
        );
        (kernels.request_size, kernels.dsync, kernels.direct) = (size, true, false);
        findings.compare(
            &Comparison {
                ours: Side::stress(format!("cached, {} KiB, depth {DEPTH}", size >> 10), ours("cached")),
                peers: vec![
                    Peer::new(Side::fio(kernels), marks),
                    Peer::new(Side::stress("ours, direct".into(), ours("direct")), AGAINST_DIRECT),
                ],
            },
            rounds,
        )?;
    }
    // The next experiment needs the room.
    let _ = std::fs::remove_file(&file);
    Ok(Section::of(findings))
}
