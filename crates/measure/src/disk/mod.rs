//! A disk in figures, and what they advise: `baio tour` shows them, and a report begins with them.
//!
//! Each row is measured several times, in turn with all the others, so that what else the disk does meets all of them. What the rounds do not
//! agree about is not advised.

use std::path::Path;
use std::time::Duration;

use baio_console::output::{Align, Table};
use baio_stress::Measurement;
use serde::{Deserialize, Serialize};

use crate::figures::command_line::Measures;
use crate::figures::stress::Run;
use crate::figures::{median, middle};
use crate::report::numbers::figure;

mod advice;

pub(crate) use advice::of as advice;

/// Bytes that it works on, where there are as many.
pub(crate) const SIZE: u64 = 256 << 20;

/// Those that lie in the cache when its hits are measured.
const CACHED: u64 = 64 << 20;

/// What each row is called by whoever draws a conclusion from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    RandomRead,
    DurableWrite,
    ReadInOrder,
    WriteInOrder,
    CacheHit,
    /// Of a later version.
    #[default]
    #[serde(other)]
    Other,
}

/// One row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Figure {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    /// Requests in flight.
    pub(crate) depth: u32,
    /// Requests a second: the median of the rounds, as all that follows.
    pub(crate) iops: f64,
    /// The same of each round.
    pub(crate) rounds: Vec<f64>,
    pub(crate) bytes_per_second: f64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// What has measured it, as a shell would be given it.
    pub(crate) command: String,
}

/// On what it is taken, and for how long.
pub(crate) struct Work<'a> {
    /// A file, which is made and written where it is not there.
    pub(crate) path: &'a Path,
    /// At most this many of its bytes.
    pub(crate) size: u64,
    /// It is not ours: nothing is written to it.
    pub(crate) only_reads: bool,
    pub(crate) rounds: usize,
    pub(crate) each: Duration,
}

/// Kind, name, what stress is to do, how deep, by which further options.
type Row = (Kind, &'static str, &'static str, u32, &'static str);

#[rustfmt::skip]
const ROWS: [Row; 8] = [
    (Kind::WriteInOrder, "1 MiB write in order, 4 at a time", "write", 4, "--request-size 1M"),
    (Kind::ReadInOrder, "1 MiB read in order, 4 at a time", "read", 4, "--request-size 1M"),
    (Kind::RandomRead, "4 KiB random read, 1 at a time", "randread", 1, ""),
    (Kind::RandomRead, "  16 at a time", "randread", 16, ""),
    (Kind::RandomRead, "  64 at a time", "randread", 64, ""),
    (Kind::DurableWrite, "4 KiB durable write, 1 at a time", "randwrite", 1, "--durability data"),
    (Kind::DurableWrite, "  16 at a time", "randwrite", 16, "--durability data"),
    (Kind::CacheHit, "4 KiB read from baio's cache", "randread", 1, "--mode cached --cache 96M --warm 100"),
];

impl Kind {
    fn writes(self) -> bool {
        matches!(self, Kind::DurableWrite | Kind::WriteInOrder)
    }
}

/// Measures all of it; `at` is told what comes next.
///
/// # Errors
/// What could not be measured, and why.
pub(crate) fn take(work: &Work<'_>, at: impl Fn(&str)) -> Result<Vec<Figure>, String> {
    let path = work.path.display().to_string();
    let rows = ROWS.into_iter().filter(|row| !(work.only_reads && row.0.writes()));
    let mut taken: Vec<(Row, Run, Vec<Measurement>)> = rows
        .map(|row| {
            let (kind, _, rw, depth, further) = row;
            let size = if kind == Kind::CacheHit {
                work.size.min(CACHED)
            } else {
                work.size
            };
            let run = Run::new(&path, rw, depth, work.each).whole();
            (row, run.with(further).with(&format!("--size {size}")), Vec::new())
        })
        .collect();
    for _ in 0..work.rounds {
        for ((_, what, ..), run, runs) in &mut taken {
            at(what.trim());
            runs.push(run.run()?);
        }
    }
    Ok(taken
        .into_iter()
        .map(|(row, run, runs)| Figure::of(row, &run, &runs))
        .collect())
}

impl Figure {
    fn of((kind, what, _, depth, _): Row, run: &Run, runs: &[Measurement]) -> Figure {
        let point = |of: fn(&Measurement) -> Option<f64>| {
            let known: Vec<f64> = runs.iter().filter_map(of).collect();
            (!known.is_empty()).then(|| median(&known))
        };
        Figure {
            kind,
            what: what.to_owned(),
            depth,
            iops: middle(runs, |run| run.iops),
            rounds: runs.iter().map(|run| run.iops).collect(),
            bytes_per_second: middle(runs, |run| run.bytes_per_second),
            p50_us: point(|run| run.latency_us.p50),
            p99_us: point(|run| run.latency_us.p99),
            command: run.line().to_string(),
        }
    }

    /// By how many per cent of the median the rounds lie apart, to either side; none of a single round.
    pub(crate) fn spread_percent(&self) -> Option<f64> {
        let (least, most) = ends(self.rounds.iter().copied())?;
        (self.iops > 0.0).then(|| (most - least) / 2.0 / self.iops * 100.0)
    }

    /// What stands in a table of them, by its columns.
    pub(crate) fn cells(&self) -> [String; 6] {
        let us = |value: Option<f64>| value.map_or_else(String::new, figure);
        [
            self.what.clone(),
            figure(self.iops),
            self.spread_percent()
                .map_or_else(String::new, |by| format!("{by:.0} %")),
            figure(self.bytes_per_second / 1e6),
            us(self.p50_us),
            us(self.p99_us),
        ]
    }
}

/// Of [`Figure::cells`].
pub(crate) const COLUMNS: [&str; 6] = ["", "a second", "+/-", "MB/s", "p50 us", "p99 us"];

/// As text.
pub(crate) fn table(figures: &[Figure]) -> Table {
    let align = |name: &&'static str| (*name, if name.is_empty() { Align::Left } else { Align::Right });
    let mut table = Table::with_headings(&COLUMNS.iter().map(align).collect::<Vec<_>>());
    for row in figures {
        table.row(row.cells());
    }
    table
}

/// The least and the largest; none of fewer than two.
pub(crate) fn ends(of: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    (of.clone().count() > 1).then(|| (of.clone().fold(f64::MAX, f64::min), of.fold(f64::MIN, f64::max)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whose rounds made so many requests a second.
    pub(crate) fn row(kind: Kind, depth: u32, rounds: &[f64]) -> Figure {
        let iops = median(rounds);
        Figure {
            kind,
            depth,
            iops,
            rounds: rounds.to_vec(),
            bytes_per_second: iops * 4096.0,
            p50_us: Some(f64::from(depth) * 1e6 / iops),
            p99_us: Some(f64::from(depth) * 2e6 / iops),
            ..Figure::default()
        }
    }

    #[test]
    fn a_figure_says_how_far_its_rounds_lie_apart() {
        assert_eq!(
            row(Kind::RandomRead, 1, &[90.0, 100.0, 110.0]).spread_percent(),
            Some(10.0)
        );
        assert_eq!(row(Kind::RandomRead, 1, &[100.0]).spread_percent(), None);
    }

    #[test]
    fn a_table_fits_eighty_columns_however_large_its_figures() {
        let mut rows: Vec<Figure> = ROWS
            .iter()
            .map(|&(kind, ..)| row(kind, 64, &[9e5, 9.999e6, 9e7]))
            .collect();
        for (figure, (_, what, ..)) in rows.iter_mut().zip(ROWS) {
            figure.what = what.to_owned();
        }
        let mut out = Vec::new();
        table(&rows).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(text.lines().count(), 9);
    }
}
