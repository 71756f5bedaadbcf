//! The disk in figures.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::figures::stress::Run;

/// What it works on.
const SIZE: &str = "256M";
const EACH: Duration = Duration::from_secs(2);

/// What each row is called by whoever draws a conclusion from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    RandomRead,
    DurableWrite,
    ReadInOrder,
    WriteInOrder,
    CacheHit,
}

/// One row.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) kind: Kind,
    pub(super) what: String,
    /// Requests in flight.
    pub(super) depth: u32,
    /// Requests a second.
    pub(super) iops: f64,
    pub(super) bytes_per_second: f64,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    /// What has measured it, as a shell would be given it.
    command: String,
}

/// Kind, name, what stress is to do, how deep, by which further options.
type Row = (Kind, &'static str, &'static str, u32, &'static str);

#[rustfmt::skip]
const ROWS: [Row; 8] = [
    (Kind::WriteInOrder, "write of 1 MiB in order, 4 at a time", "write", 4, "--request-size 1M"),
    (Kind::ReadInOrder, "read of 1 MiB in order, 4 at a time", "read", 4, "--request-size 1M"),
    (Kind::RandomRead, "random read of 4 KiB, 1 at a time", "randread", 1, ""),
    (Kind::RandomRead, "16 at a time", "randread", 16, ""),
    (Kind::RandomRead, "64 at a time", "randread", 64, ""),
    (Kind::DurableWrite, "durable write of 4 KiB, 1 at a time", "randwrite", 1, "--durability data"),
    (Kind::DurableWrite, "16 at a time", "randwrite", 16, "--durability data"),
    (Kind::CacheHit, "read of 4 KiB from baio's cache", "randread", 1, "--mode cached --cache 96M --warm 100 --size 64M"),
];

/// Measures all of it on a file that it makes.
///
/// # Errors
/// What could not be measured, and why.
pub(super) fn take(file: &Path) -> Result<Vec<Figure>, String> {
    let path = file.display().to_string();
    ROWS.into_iter()
        .map(|(kind, what, rw, depth, further)| {
            let sized = if further.contains("--size") { "" } else { SIZE };
            let run = Run::new(&path, rw, depth, EACH).whole().with(further);
            let run = if sized.is_empty() {
                run
            } else {
                run.with(&format!("--size {SIZE}"))
            };
            let measured = run.run()?;
            let indent = if what.starts_with(char::is_numeric) { "  " } else { "" };
            Ok(Figure {
                kind,
                what: format!("{indent}{what}"),
                depth,
                iops: measured.iops,
                bytes_per_second: measured.bytes_per_second,
                p50_us: measured.latency_us.p50,
                p99_us: measured.latency_us.p99,
                command: run.command_line(),
            })
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::tour) fn row(kind: Kind, depth: u32, iops: f64, p50_us: f64) -> Figure {
        Figure {
            kind,
            what: String::new(),
            depth,
            iops,
            bytes_per_second: iops * 4096.0,
            p50_us: Some(p50_us),
            p99_us: Some(p50_us),
            command: String::new(),
        }
    }
}
