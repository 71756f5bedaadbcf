//! How a run is shown.

use std::io::{self, Write};

use baio_console::exit_status::ExitStatus;
use baio_console::output::{Align, Answer, Table, wrapped};
use serde::Serialize;
use serde_json::Value;

use crate::measurement::Latency;
use crate::result::{Cut, Section};

/// What `stress` has to say.
#[derive(Serialize)]
pub(crate) struct Stressed {
    pub(super) target: String,
    pub(super) request_size: u64,
    pub(super) depth: u32,
    pub(super) batch: u32,
    pub(super) threads: u32,
    pub(super) files: u32,
    pub(super) size_bytes: u64,
    pub(super) durability: &'static str,
    pub(super) service: bool,
    pub(super) cold: bool,
    pub(super) seed: u64,
    #[serde(flatten)]
    pub(super) total: Section,
    pub(super) parts: Vec<Section>,
    /// Why it ended before its end: a signal, or what it was measured on is gone.
    pub(super) ended_early: Option<String>,
    /// What ended it, or the first request that failed, as an error object.
    pub(super) first_error: Option<Value>,
    #[serde(skip)]
    pub(super) cut: Option<Cut>,
    /// The thresholds that were missed.
    pub(super) missed: Vec<Missed>,
}

/// A threshold, and what was measured instead.
#[derive(Serialize)]
pub(crate) struct Missed {
    pub(super) threshold: &'static str,
    pub(super) asked: f64,
    pub(super) measured: f64,
}

impl Answer for Stressed {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let measured = &self.total.measured;
        let how = format!(
            "{}: {} backend{}, {}{}, requests of {} bytes, {} in flight{}",
            self.target,
            measured.backend,
            if self.service { " behind a service" } else { "" },
            measured.mode,
            if self.cold { " (cold)" } else { "" },
            self.request_size,
            measured.in_flight_max,
            match self.durability {
                "none" => String::new(),
                level => format!(", {level}-durable writes"),
            }
        );
        writeln!(out, "{}", wrapped(&how))?;
        table(&self.parts).write(out)?;
        let came_to = format!(
            "{} requests in {:.2} s, {:.2} us CPU and {:.2} system calls each; {} failed",
            measured.requests,
            self.total.seconds,
            measured.cpu_us_per_request,
            measured.system_calls_per_request.unwrap_or(0.0),
            measured.errors,
        );
        writeln!(out, "{}", wrapped(&came_to))?;
        if let Some(submit) = measured.submit_latency_us {
            let [p50, p99] = [submit.p50, submit.p99].map(microseconds);
            writeln!(out, "submission took {p50} us (p50), {p99} us (p99)")?;
        }
        if self.total.verified + self.total.unverified > 0 {
            let Section {
                verified, unverified, ..
            } = self.total;
            writeln!(out, "{verified} blocks verified; of {unverified} nothing was known")?;
        }
        if let Some(said) = &self.ended_early {
            writeln!(out, "{}", wrapped(&format!("ended early: {said}")))?;
        }
        for missed in &self.missed {
            let Missed {
                threshold,
                asked,
                measured,
            } = missed;
            writeln!(out, "missed: {threshold} {asked:.0}, measured {measured:.1}")?;
        }
        Ok(())
    }

    fn exit_status(&self) -> ExitStatus {
        if let Some(cut) = &self.cut {
            cut.exit_status()
        } else if self.total.measured.errors > 0 {
            ExitStatus::Failed
        } else if self.missed.is_empty() {
            ExitStatus::Success
        } else {
            ExitStatus::ThresholdMissed
        }
    }
}

/// In lines of 80 columns.
fn table(parts: &[Section]) -> Table {
    let right = |heading| (heading, Align::Right);
    let mut columns = vec![
        ("PART", Align::Left),
        right("REQ/s"),
        right("MiB/s"),
        right("mean us"),
        right("p50"),
        right("p99"),
        right("p99.9"),
        right("max"),
    ];
    let has_synced = parts.iter().any(|part| part.sync_seconds > 0.0);
    columns.extend(has_synced.then_some(right("sync s")));
    let mut table = Table::with_headings(&columns);
    for part in parts {
        let measured = &part.measured;
        let Latency {
            mean,
            p50,
            p99,
            p999,
            max,
        } = measured.latency_us;
        let mut row = vec![
            part.part.clone(),
            format!("{:.0}", measured.iops),
            format!("{:.1}", measured.bytes_per_second / f64::from(1 << 20)),
        ];
        row.extend([mean, p50, p99, p999, max].map(microseconds));
        row.push(match part.sync_seconds > 0.0 {
            true => format!("{:.2}", part.sync_seconds),
            false => "-".to_owned(),
        });
        table.row(row);
    }
    table
}

fn microseconds(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 1000.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}
