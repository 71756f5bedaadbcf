//! What two looks at a broker tell.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use baio::{BrokerStatus, OwnerStatus};
use baio_console::output::{Align, Answer, Table};
use baio_console::size::format_size;
use baio_console::terminal::Terminal;
use serde::Serialize;

use crate::command::serve::status::{DISPENSABLE, Figures};

/// A broker at one moment.
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) status: BrokerStatus,
}

/// What is shown of two looks.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    pub(super) volume: String,
    /// Null before the second look.
    interval_seconds: Option<f64>,
    owners: Vec<Row>,
    totals: Row,
}

/// One user, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Row {
    /// Null of all.
    uid: Option<u32>,
    clients: u64,
    handles: u64,
    in_flight: u64,
    held: u64,
    requests_per_second: Option<u64>,
    read_bytes_per_second: Option<u64>,
    written_bytes_per_second: Option<u64>,
    errors: u64,
    violations: u64,
    /// Null of all, and of who had no request in that time.
    latency_us_p50: Option<u64>,
    latency_us_p99: Option<u64>,
}

/// The columns.
const HEADINGS: [&str; 12] = [
    "UID",
    "CLIENTS",
    "HANDLES",
    "IN-FLIGHT",
    "HELD",
    "REQ/S",
    "READ/S",
    "WRITTEN/S",
    "ERRORS",
    "VIOLATIONS",
    "P50-US",
    "P99-US",
];

impl View {
    /// Whoever is busiest comes first.
    pub(super) fn of(volume: String, before: Option<&Look>, after: &Look) -> View {
        let took = before.map(|before| after.at.saturating_duration_since(before.at));
        let rate = |value: fn(&Figures) -> u64, then: &Figures, now: &Figures| {
            took.map(|took| per_second(value(then), value(now), took))
        };
        let row = |uid: Option<u32>, then: &Figures, now: &Figures| Row {
            uid,
            clients: now.clients,
            handles: now.handles,
            in_flight: now.in_flight,
            held: now.held,
            requests_per_second: rate(|of| of.requests, then, now),
            read_bytes_per_second: rate(|of| of.read_bytes, then, now),
            written_bytes_per_second: rate(|of| of.written_bytes, then, now),
            errors: now.errors,
            violations: now.violations,
            latency_us_p50: None,
            latency_us_p99: None,
        };
        let us = |took: Duration| Some(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        let of_owner = |owner: &OwnerStatus| {
            // Who was not there has had nothing.
            let then = before.and_then(|before| before.status.owners.iter().find(|other| other.uid == owner.uid));
            let then = then.map(Figures::from).unwrap_or_default();
            let row = row(Some(owner.uid), &then, &owner.into());
            match row.requests_per_second {
                // Its times are those of an earlier second.
                Some(0) => row,
                _ => Row {
                    latency_us_p50: us(owner.latency_p50),
                    latency_us_p99: us(owner.latency_p99),
                    ..row
                },
            }
        };
        let mut owners: Vec<Row> = after.status.owners.iter().map(of_owner).collect();
        owners.sort_by_key(|row| (Reverse(row.requests_per_second), row.uid));
        let sum = |value: fn(&Row) -> Option<u64>| {
            let add = |sum: u64, row: &Row| sum.saturating_add(value(row).unwrap_or(0));
            took.map(|_| owners.iter().fold(0, add))
        };
        let all = Figures::sum(&after.status.owners);
        let totals = Row {
            requests_per_second: sum(|row| row.requests_per_second),
            read_bytes_per_second: sum(|row| row.read_bytes_per_second),
            written_bytes_per_second: sum(|row| row.written_bytes_per_second),
            ..row(None, &all, &all)
        };
        View {
            volume,
            interval_seconds: took.map(|took| took.as_secs_f64()),
            owners,
            totals,
        }
    }

    /// A line for each user, all together first; in a line of so many columns.
    pub(super) fn table(&self, room: Option<usize>) -> Table {
        let columns = HEADINGS.map(|heading| (heading, Align::Right));
        let mut table = Table::with_headings(&columns).fit(room, &DISPENSABLE);
        for row in std::iter::once(&self.totals).chain(&self.owners) {
            table.row(row.cells());
        }
        table
    }
}

impl Row {
    fn cells(&self) -> [String; HEADINGS.len()] {
        let or_none = |value: Option<u64>, shown: fn(u64) -> String| value.map_or_else(|| "-".to_owned(), shown);
        let number = |value: u64| value.to_string();
        [
            self.uid.map_or_else(|| "all".to_owned(), |uid| uid.to_string()),
            number(self.clients),
            number(self.handles),
            number(self.in_flight),
            number(self.held),
            or_none(self.requests_per_second, number),
            or_none(self.read_bytes_per_second, format_size),
            or_none(self.written_bytes_per_second, format_size),
            number(self.errors),
            number(self.violations),
            or_none(self.latency_us_p50, number),
            or_none(self.latency_us_p99, number),
        ]
    }
}

/// A counter that has become less belongs to who came after it: all of it is new.
fn per_second(then: u64, now: u64, took: Duration) -> u64 {
    let more = if now < then { now } else { now - then };
    let nanos = took.as_nanos().max(1);
    u64::try_from(u128::from(more) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

impl Answer for View {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.table(Terminal::of_stdout().and_then(|terminal| terminal.columns))
            .write(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: Instant, owners: &[(u32, u64, u64)]) -> Look {
        let mut status = BrokerStatus::default();
        for &(uid, requests, written) in owners {
            let mut owner = OwnerStatus::default();
            (owner.uid, owner.requests, owner.bytes_written, owner.clients) = (uid, requests, written, 1);
            status.owners.push(owner);
        }
        Look { at, status }
    }

    #[test]
    fn rates_are_what_has_been_added_over_the_time_between() {
        let now = Instant::now();
        let before = look(now, &[(1, 100, 0), (2, 50, 8192), (4, 1000, 0)]);
        let after = [(1, 100, 0), (2, 150, 8192 + 4096), (3, 30, 0), (4, 10, 0)];
        let view = View::of("v".into(), Some(&before), &look(now + Duration::from_secs(2), &after));
        let rates: Vec<_> = view
            .owners
            .iter()
            .map(|row| (row.uid, row.requests_per_second))
            .collect();
        let expected = [(2, 50), (3, 15), (4, 5), (1, 0)].map(|(uid, rate)| (Some(uid), Some(rate)));
        assert_eq!(rates, expected);
        assert_eq!(view.owners[0].written_bytes_per_second, Some(2048));
        let totals = view.totals;
        assert_eq!(
            (totals.uid, totals.clients, totals.requests_per_second),
            (None, 4, Some(70))
        );
        assert_eq!(view.interval_seconds, Some(2.0));
        let cells = [view.totals.cells(), view.owners[0].cells(), view.owners[3].cells()];
        assert_eq!([&cells[0][0], &cells[0][5], &cells[0][10]], ["all", "70", "-"]);
        assert_eq!([&cells[1][0], &cells[1][7], &cells[1][10]], ["2", "2 KiB", "0"]);
        // Who had no request in that time has none that took some.
        assert_eq!([&cells[2][0], &cells[2][5], &cells[2][10]], ["1", "0", "-"]);
        let lines = view.table(Some(80)).lines();
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    }

    #[test]
    fn of_one_look_there_are_no_rates() {
        let view = View::of("v".into(), None, &look(Instant::now(), &[(7, 9, 9)]));
        assert_eq!((view.totals.requests_per_second, view.interval_seconds), (None, None));
        assert_eq!(view.owners[0].cells()[5..8], ["-", "-", "-"]);
    }

    #[test]
    fn no_figure_is_too_large() {
        let now = Instant::now();
        let (before, after) = (
            look(now, &[(1, 0, 0)]),
            look(now, &[(1, u64::MAX, 1), (2, u64::MAX, 1)]),
        );
        let view = View::of("v".into(), Some(&before), &after);
        assert_eq!(view.totals.requests_per_second, Some(u64::MAX));
    }
}
