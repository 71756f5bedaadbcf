//! Seed 003's test as it is written: a thousand writes of 512 bytes, posted as fast as possible, two times of each. On the device below
//! the working directory, with each of its I/O schedulers where that can be chosen.
//!
//! "Linux kernel AI/O helps with the 8.3ms issue. It does so by batching ~30 write request into a single unit ... the peaks for first
//! message in a batch are much higher than 8.3 us. (~30-60 ms)."

use baio_console::device::Device;
use baio_console::failure::Failure;
use serde_json::{Value, json};

use crate::figures::command_line::CommandLine;
use crate::report::findings::{Findings, our_side};
use crate::report::setting::Setting;

const WRITES: usize = 1000;

pub(super) fn run(setting: &Setting, findings: &mut Findings) -> Result<(), Failure> {
    let path = setting.dir.join("as-written.file");
    let line = |further: &[&str]| {
        let target = path.display().to_string();
        let words = ["latency", &target, "--writes", "1000", "--size", "8M", "--json"];
        CommandLine::own(words.iter().chain(further).map(|word| (*word).to_owned()))
    };
    let device = Device::under(&setting.dir).ok().flatten();
    let may_choose = rustix::process::geteuid().is_root() && device.is_some_and(|device| device.schedulers.len() > 1);
    if may_choose {
        let line = line(&["--schedulers"]);
        match told(&line) {
            Ok(told) => {
                note(&line, &told, findings);
                return Ok(());
            }
            Err(reason) => findings.skip("as written, with each scheduler", &reason),
        }
    }
    let line = line(&[]);
    let told = told(&line).map_err(|said| our_side(said, &line.to_string()))?;
    note(&line, &told, findings);
    Ok(())
}

fn told(line: &CommandLine) -> Result<Value, String> {
    let finished = line.finish()?;
    serde_json::from_str(&finished.stdout).map_err(|error| format!("the output of latency: {error}"))
}

fn note(line: &CommandLine, told: &Value, findings: &mut Findings) {
    findings.errors += told["errors"].as_u64().unwrap_or(0);
    findings.lines.push(format!(
        "as written: {WRITES} writes of {} bytes, linear, posted at once; durability: {}, for {}",
        told["request_size"],
        told["durability"].as_str().unwrap_or("?"),
        told["durability_because"].as_str().unwrap_or("?"),
    ));
    let runs = told["runs"].as_array().map_or(&[][..], Vec::as_slice);
    for run in runs {
        let us = |of: &str, point: &str| run[of][point].as_f64().unwrap_or(f64::NAN);
        let scheduler = run["scheduler"].as_str().unwrap_or("unknown");
        let what = format!("as written, scheduler {scheduler}");
        let batch = run["batch_size_mean"].as_f64().unwrap_or(f64::NAN);
        let us = [
            ("p50 latency", us("latency_us", "p50")),
            ("longest latency", us("latency_us", "max")),
            ("first of a batch, p50", us("first_of_batch_latency_us", "p50")),
            ("first of a batch, longest", us("first_of_batch_latency_us", "max")),
            ("enqueuing call, p50", us("enqueue_us", "p50")),
            ("enqueuing call, longest", us("enqueue_us", "max")),
        ];
        findings.figure(&what, "writes in a batch", "", batch, None);
        for (figure, value) in us {
            findings.figure(&what, figure, "us", value, None);
        }
    }
    findings.parts.push(json!({
        "part": "as written",
        "command": line.to_string(),
        "durability": told["durability"],
        "below": told["below"],
        "writes": runs,
    }));
}
