//! `baio serve --status`: who uses a broker that runs, and how much.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use baio::{BrokerStatus, Link, OwnerStatus, Remote};
use baio_console::failure::Failure;
use baio_console::output::{Align, Answer, Table};
use baio_console::printable::readable;
use baio_console::size::format_size;
use baio_console::terminal::Terminal;
use serde::Serialize;

/// What `serve --status` shows.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    volume: String,
    started_at_unix: u64,
    sessions_ended: u64,
    owners: Vec<Row>,
    totals: Figures,
}

/// One user.
#[derive(Debug, Serialize)]
struct Row {
    uid: u32,
    #[serde(flatten)]
    figures: Figures,
    latency_us_p50: u64,
    latency_us_p99: u64,
}

/// Columns in the order in which they go where a line has no room for all; those of `baio top` too. A user and its requests stay.
pub(crate) const DISPENSABLE: [&str; 12] = [
    "HANDLES",
    "VIOLATIONS",
    "ERRORS",
    "HELD",
    "P50-US",
    "CLIENTS",
    "P99-US",
    "IN-FLIGHT",
    "WRITTEN/S",
    "READ/S",
    "WRITTEN",
    "READ",
];

/// What can be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    pub(crate) clients: u64,
    pub(crate) handles: u64,
    pub(crate) in_flight: u64,
    pub(crate) held: u64,
    pub(crate) requests: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) errors: u64,
    pub(crate) violations: u64,
}

impl From<&OwnerStatus> for Figures {
    fn from(owner: &OwnerStatus) -> Figures {
        Figures {
            clients: owner.clients.into(),
            handles: owner.handles.into(),
            in_flight: owner.in_flight.into(),
            held: owner.held.into(),
            requests: owner.requests,
            read_bytes: owner.bytes_read,
            written_bytes: owner.bytes_written,
            errors: owner.errors,
            violations: owner.violations,
        }
    }
}

impl Figures {
    /// Of several together. The broker is believed nothing: no sum is too large.
    pub(crate) fn sum<'a>(owners: impl IntoIterator<Item = &'a OwnerStatus>) -> Figures {
        let add = |sum: Figures, one: Figures| Figures {
            clients: sum.clients.saturating_add(one.clients),
            handles: sum.handles.saturating_add(one.handles),
            in_flight: sum.in_flight.saturating_add(one.in_flight),
            held: sum.held.saturating_add(one.held),
            requests: sum.requests.saturating_add(one.requests),
            read_bytes: sum.read_bytes.saturating_add(one.read_bytes),
            written_bytes: sum.written_bytes.saturating_add(one.written_bytes),
            errors: sum.errors.saturating_add(one.errors),
            violations: sum.violations.saturating_add(one.violations),
        };
        owners.into_iter().map(Figures::from).fold(Figures::default(), add)
    }
}

/// Connects, and asks.
pub(crate) fn run(socket: &Path) -> Result<Shown, Failure> {
    let typed = readable(socket);
    let failed = |error: baio::Error| Failure::from_storage("serve", typed.clone(), &error);
    let link = Remote::connect(socket).map_err(failed)?;
    let status = link.status().wait().map_err(failed)?;
    let name = link.name();
    // What was asked is told; a broker that ends now took nothing back.
    let _ = link.close();
    Ok(Shown::of(name, status))
}

impl Shown {
    fn of(volume: String, mut status: BrokerStatus) -> Shown {
        status.owners.sort_by_key(|owner| owner.uid);
        let us = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let row = |owner: &OwnerStatus| Row {
            uid: owner.uid,
            figures: owner.into(),
            latency_us_p50: us(owner.latency_p50),
            latency_us_p99: us(owner.latency_p99),
        };
        Shown {
            volume,
            started_at_unix: status.started_at_unix,
            sessions_ended: status.sessions_ended,
            totals: Figures::sum(&status.owners),
            owners: status.owners.iter().map(row).collect(),
        }
    }
}

impl Answer for Shown {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::with_headings(&[
            ("UID", Align::Right),
            ("CLIENTS", Align::Right),
            ("HANDLES", Align::Right),
            ("IN-FLIGHT", Align::Right),
            ("HELD", Align::Right),
            ("REQUESTS", Align::Right),
            ("READ", Align::Right),
            ("WRITTEN", Align::Right),
            ("ERRORS", Align::Right),
            ("VIOLATIONS", Align::Right),
            ("P50-US", Align::Right),
            ("P99-US", Align::Right),
        ])
        .fit(
            Terminal::of_stdout().and_then(|terminal| terminal.columns),
            &DISPENSABLE,
        );
        let mut row = |name: String, figures: &Figures, p50: String, p99: String| {
            table.row([
                name,
                figures.clients.to_string(),
                figures.handles.to_string(),
                figures.in_flight.to_string(),
                figures.held.to_string(),
                figures.requests.to_string(),
                format_size(figures.read_bytes),
                format_size(figures.written_bytes),
                figures.errors.to_string(),
                figures.violations.to_string(),
                p50,
                p99,
            ]);
        };
        for owner in &self.owners {
            let [p50, p99] = [owner.latency_us_p50, owner.latency_us_p99].map(|us| us.to_string());
            row(owner.uid.to_string(), &owner.figures, p50, p99);
        }
        row("total".to_owned(), &self.totals, "-".to_owned(), "-".to_owned());
        table.write(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_added_up_and_rows_are_in_order() {
        let mut status = BrokerStatus::default();
        for (uid, requests) in [(9, 2), (3, u64::MAX), (5, 1)] {
            let mut owner = OwnerStatus::default();
            (owner.uid, owner.requests, owner.clients) = (uid, requests, 1);
            owner.latency_p99 = Duration::from_millis(2);
            status.owners.push(owner);
        }
        let shown = Shown::of("v".into(), status);
        assert!(shown.owners.iter().map(|row| row.uid).eq([3, 5, 9]));
        assert_eq!((shown.totals.clients, shown.totals.requests), (3, u64::MAX));
        assert_eq!(shown.owners[0].latency_us_p99, 2000);
    }
}
