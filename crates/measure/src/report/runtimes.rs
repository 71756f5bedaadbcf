//! The same reads by other asynchronous runtimes: the programs of `benches/peers`, where they have been built beside this one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baio_console::failure::Failure;
use baio_stress::Measurement;
use serde::Deserialize;

use crate::figures::command_line::CommandLine;
use crate::report::Setting;
use crate::report::comparison::{Findings, Peer, Side};
use crate::report::marks::{cpu, rate};
use crate::report::places::Site;

const OURS: &str = "baio-engine";
const THEIRS: [&str; 3] = ["tokio-uring", "glommio", "compio"];

/// Bytes of a read of these programs.
const BLOCK: u64 = 4096;

/// 4 KiB random direct reads, each program with the same loop and the same places.
pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let Some(programs) = built() else {
        findings.skip(
            "other runtimes",
            "their programs have not been built: `cargo build --release` in benches/peers, then run a baio that was built in the same checkout",
        );
        return Ok(());
    };
    let (runtime, rounds) = setting.measuring();
    let file = Site::file(setting, "runtimes", setting.working_set)?;
    findings.lines.push(format!(
        "4 KiB random direct reads of {} MiB by programs of one loop each; {rounds} rounds of {} ms a side, median of the ratios; \
         of each program's own stamps, without its start",
        setting.working_set >> 20,
        runtime.as_millis()
    ));
    for depth in [16, 64] {
        let side = |program: &str, name: String| side(programs.join(program), name, &file.path, depth, runtime);
        let peers = THEIRS.map(|program| Peer::new(side(program, program.to_owned()), [rate(1.0), cpu(1.0)]));
        findings.compare(rounds, side(OURS, format!("engine, depth {depth}")), peers.into())?;
    }
    Ok(())
}

/// Where they are: in the checkout in which this program was built, `target/release/baio`.
fn built() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let checkout = program.parent()?.parent()?.parent()?;
    let programs = checkout.join("benches/peers/target/release");
    let all = THEIRS
        .iter()
        .chain([&OURS])
        .all(|program| programs.join(program).is_file());
    all.then_some(programs)
}

fn side(program: PathBuf, name: String, file: &Path, depth: u32, runtime: Duration) -> Side {
    let mut words = vec![program.display().to_string(), file.display().to_string()];
    words.extend(["--depth".to_owned(), depth.to_string()]);
    words.extend(["--seconds".to_owned(), runtime.as_secs_f64().to_string()]);
    let line = CommandLine::of(words);
    Side {
        name,
        command: line.to_string(),
        run: Box::new(move || {
            let told: Told =
                serde_json::from_str(&line.finish()?.stdout).map_err(|error| format!("{line}: {error}"))?;
            Ok(told.into())
        }),
    }
}

/// What such a program prints.
#[derive(Debug, Deserialize)]
struct Told {
    requests: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl From<Told> for Measurement {
    fn from(told: Told) -> Measurement {
        Measurement {
            cpu_us_per_request: told.cpu_seconds * 1e6 / told.requests.max(1) as f64,
            ..Measurement::of(told.requests, BLOCK, told.seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_they_print_is_a_measurement() {
        let line = r#"{"program":"compio","requests":1000,"seconds":0.5,"cpu_seconds":0.002,"latency_us_median":null}"#;
        let measured = Measurement::from(serde_json::from_str::<Told>(line).unwrap());
        assert_eq!(
            (measured.iops, measured.cpu_us_per_request, measured.requests),
            (2000.0, 2.0, 1000)
        );
    }
}
