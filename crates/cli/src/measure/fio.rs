//! fio as a peer: the command, exactly as printed, and what it reports.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::measure::child;
use crate::measure::{Latency, Measurement, quoted};

/// A run of random direct reads of a byte range.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) request_size: u64,
    pub(crate) depth: u32,
    pub(crate) runtime: Duration,
}

impl Job<'_> {
    /// The words of the command.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![
            "--name=baio-peer".into(),
            "--ioengine=io_uring".into(),
            "--rw=randread".into(),
            "--norandommap".into(),
            "--direct=1".into(),
            "--time_based".into(),
            "--output-format=json".into(),
        ];
        words.push(format!("--bs={}", self.request_size));
        words.push(format!("--iodepth={}", self.depth));
        words.push(format!("--offset={}", self.offset));
        words.push(format!("--size={}", self.len));
        words.push(format!("--runtime={}ms", self.runtime.as_millis()));
        // fio reads a colon as a separator of files.
        let path = self.path.display().to_string().replace(':', "\\:");
        words.push(format!("--filename={path}"));
        words
    }

    /// The command, as a shell would be given it.
    pub(crate) fn command_line(&self) -> String {
        let words = self.words();
        let words = words.iter().map(|word| quoted(word));
        std::iter::once("fio".to_owned())
            .chain(words)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Is it there?
pub(crate) fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| version.trim().to_owned())
}

/// Runs fio; the processor time is the whole process's, as on our side.
pub(crate) fn run(job: &Job<'_>) -> Result<Measurement, String> {
    let finished = child::run(Command::new("fio").args(job.words())).map_err(|error| format!("fio: {error}"))?;
    if !finished.success {
        let said = finished.stderr.lines().next().unwrap_or("it failed without a word");
        return Err(format!("fio: {said}"));
    }
    // fio prints notes before its object when it cannot do something as asked.
    let json = finished.stdout.find('{').map_or("", |at| &finished.stdout[at..]);
    let value: Value = serde_json::from_str(json).map_err(|error| format!("fio's output: {error}"))?;
    let read = &value["jobs"][0]["read"];
    let requests = read["total_ios"].as_u64().unwrap_or(0);
    if requests == 0 {
        return Err("fio made no request".into());
    }
    let per = |total: f64| total / requests as f64;
    Ok(Measurement {
        iops: read["iops"].as_f64().unwrap_or(0.0),
        bytes_per_second: read["bw_bytes"].as_f64().unwrap_or(0.0),
        latency_us: latency(&read["clat_ns"]),
        submit_latency_us: read["slat_ns"].is_object().then(|| latency(&read["slat_ns"])),
        cpu_us_per_request: per(finished.cpu.as_secs_f64() * 1e6),
        context_switches_per_request: per(finished.context_switches as f64),
        system_calls_per_request: None,
        in_flight_max: u64::from(job.depth),
        threads_max: None,
        rss_bytes: finished.rss_bytes,
        requests,
        errors: value["jobs"][0]["total_err"].as_u64().unwrap_or(0),
        iterations_per_request: None,
        backend: "fio io_uring".into(),
        mode: "direct".into(),
    })
}

fn latency(value: &Value) -> Latency {
    let us = |ns: &Value| ns.as_f64().map(|ns| ns / 1000.0);
    Latency {
        mean: us(&value["mean"]),
        p50: us(&value["percentile"]["50.000000"]),
        p99: us(&value["percentile"]["99.000000"]),
        p999: us(&value["percentile"]["99.900000"]),
        max: us(&value["max"]),
    }
}
