//! A segment that a running broker serves (`--target unix:SOCKET#SEGMENT`): what one more client of it gets. Nobody else can be asked
//! the same: the broker alone has the volume, and no other program speaks with it. So these figures stand without a peer.

use baio_console::failure::Failure;
use baio_stress::Rw;

use crate::figures::middle;
use crate::figures::stress::Run;
use crate::report::Setting;
use crate::report::comparison::{Findings, Side};
use crate::report::target::Target;

/// Requests in flight.
const DEPTHS: [u32; 3] = [1, 16, 64];

/// Each pattern with the bytes of a request.
const PATTERNS: [(Rw, &str, u64); 2] = [(Rw::RandomRead, "random", 4096), (Rw::Read, "in order", 16_384)];

pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let Some(Target::Served { typed, .. }) = &setting.target else {
        findings.skip("a broker's segment", "no --target names one");
        return Ok(());
    };
    let (runtime, rounds) = setting.measuring_many();
    findings.lines.push(format!(
        "reads of the first {} MiB of a segment, of 4 KiB at random and of 16 KiB in order, by one more client of its broker; {rounds} rounds of {} ms, median; the processor time is \
         this client's alone, and others may use the broker meanwhile",
        setting.working_set >> 20,
        runtime.as_millis()
    ));
    for (rw, pattern, size) in PATTERNS {
        for mode in ["direct", "cached"] {
            for depth in DEPTHS {
                let words = format!("--size {} --request-size {size} --mode {mode}", setting.working_set);
                let run = Run::new(typed, rw.name(), depth, runtime).with(&words);
                let name = format!("depth {depth}, {mode}, {pattern}");
                let runs = findings
                    .compare(rounds, Side::stress(name.clone(), run), Vec::new())?
                    .ours;
                // Each in a line of its own on the terminal, which has one for each thing that was done.
                for (point, figure, value) in [
                    (
                        "median",
                        "p50 latency",
                        middle(&runs, |run| run.latency_us.p50.unwrap_or(f64::NAN)),
                    ),
                    (
                        "tail",
                        "p99 latency",
                        middle(&runs, |run| run.latency_us.p99.unwrap_or(f64::NAN)),
                    ),
                ] {
                    findings.figure(&format!("{name}: {point}"), figure, "us", value, None);
                }
            }
        }
    }
    findings.skip(
        "another program",
        "not measured: only the broker has this volume, and no other program speaks with it",
    );
    Ok(())
}
