//! 4 KiB random direct reads of a segment through a service thread, against the same core in the caller's own thread.
//!
//! What the hop costs: requests/s, processor time and context switches of both together. The paper (seed 004 §5) puts the
//! service into the application's process for this reason.

use baio_console::failure::Failure;

use crate::figures::stress::{Run, segment_target};
use crate::report::comparison::{Comparison, Figure, Findings, Mark, Peer, Side};
use crate::report::files::written_segment;
use crate::report::{Section, Setting};

const NAME: &str = "pages";

/// Depth 1 is left out: there the hop is no longer shared by a batch, and latency is what tells.
const DEPTHS: [u32; 2] = [16, 64];

const MARKS: &[Mark] = &[Mark::at_least(Figure::Requests, 0.95)];
const ALSO: &[Figure] = &[Figure::ContextSwitches, Figure::P50, Figure::P99];

pub(crate) fn run(setting: &Setting) -> Result<Section, Failure> {
    let bytes = setting.working_set;
    let (runtime, rounds) = setting.measuring();
    let path = setting.dir.join("service.img");
    written_segment(&path, NAME, bytes)?;
    let target = segment_target(&path, NAME);
    let mut findings = Findings::default();
    findings.lines.push(format!(
        "working set {} MiB, {rounds} rounds of {} ms a side, median of the ratios",
        bytes >> 20,
        runtime.as_millis()
    ));
    for depth in DEPTHS {
        let run = || Run::new(&target, "randread", depth, runtime);
        let embedded = Side::stress("ours in the caller's thread".into(), run());
        let comparison = Comparison {
            ours: Side::stress(format!("through a service, depth {depth}"), run().with(&["--service"])),
            peers: vec![Peer {
                also: ALSO,
                ..Peer::new(embedded, MARKS)
            }],
        };
        findings.compare(&comparison, rounds)?;
    }
    // The next experiment needs the room.
    let _ = std::fs::remove_file(path);
    Ok(Section::of(findings))
}
