//! `baio latency --log` or `--peer` in a process of its own: one side, one round.

use std::path::Path;
use std::time::Duration;

use baio_stress::{Latency, Measurement};
use serde::Deserialize;
use serde::de::Error as _;

use crate::figures::command_line::{CommandLine, Measures};

/// Durable appends from one side; a request is a record.
#[derive(Clone, Debug)]
pub(crate) struct Run(CommandLine);

/// What of the command's answer is used.
#[derive(Deserialize)]
struct Told {
    runtime_seconds: f64,
    sides: Vec<Side>,
}

#[derive(Deserialize)]
struct Side {
    side: String,
    appends_per_second: f64,
    bytes_per_second: f64,
    cpu_us_per_append: f64,
    context_switches_per_append: f64,
    latency_us: Latency,
    append_us: Latency,
}

impl Run {
    /// By `who`, as it is typed, under a load that is typed so.
    pub(crate) fn new(path: &Path, who: &str, load: &str, record_bytes: usize, runtime: Duration) -> Run {
        let line = format!("{who} {load} --record-size {record_bytes} --rounds 1 --json");
        let mut words = vec!["latency".to_owned(), path.display().to_string()];
        words.extend(line.split_whitespace().map(str::to_owned));
        words.extend(["--runtime".to_owned(), format!("{}ms", runtime.as_millis())]);
        Run(CommandLine::own(words))
    }
}

impl Measures for Run {
    fn line(&self) -> CommandLine {
        self.0.clone()
    }

    /// The costs are of the time that is measured: what making a log takes is none of theirs.
    fn run(&self) -> Result<Measurement, String> {
        let finished = self.0.finish()?;
        let measured = measurement(&finished.stdout).map_err(|error| format!("the output of latency: {error}"))?;
        Ok(Measurement {
            rss_bytes: Some(finished.ended.memory_bytes),
            ..measured
        })
    }
}

fn measurement(json: &str) -> serde_json::Result<Measurement> {
    let told: Told = serde_json::from_str(json)?;
    let side = told.sides.into_iter().next();
    let side = side.ok_or_else(|| serde_json::Error::custom("it has no side"))?;
    Ok(Measurement {
        iops: side.appends_per_second,
        bytes_per_second: side.bytes_per_second,
        latency_us: side.latency_us,
        submit_latency_us: Some(side.append_us),
        cpu_us_per_request: side.cpu_us_per_append,
        context_switches_per_request: side.context_switches_per_append,
        requests: (side.appends_per_second * told.runtime_seconds) as u64,
        backend: side.side,
        mode: "direct".to_owned(),
        ..Measurement::default()
    })
}
