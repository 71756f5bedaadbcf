//! Streams of requests through a cache, as aio-stress makes them: what seed 000's table and seed 001's two figures share.
//!
//! Both compare the same four ways, here and there: the kernel's asynchronous I/O through its cache as it is (theirs "vanilla"),
//! the same made asynchronous (theirs "patched", ours the cache of our own), and direct ones, which are what can be had at all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baio_console::failure::Failure;
use serde_json::json;

use crate::figures::fio::{self, Engine};
use crate::figures::stress::Run;
use crate::figures::{Measurement, median};
use crate::report::comparison::{Comparison, Findings, Peer, Side};
use crate::report::files::{settle, warm};
use crate::stress::job::warm_bytes;

/// The ways, in the order of the tables.
const WAYS: [&str; 4] = [
    "ours, cached",
    "libaio, the kernel's cache",
    "ours, direct",
    "libaio, direct",
];

/// One row of a table.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub(super) name: &'static str,
    pub(super) rw: fio::Rw,
    pub(super) request: u64,
    /// O_SYNC.
    pub(super) is_synced: bool,
    /// One sync at the end, whose time counts.
    pub(super) ends_synced: bool,
    /// So many percent of the file are cached beforehand.
    pub(super) warm_percent: Option<u8>,
}

/// A row that was taken: its name, and megabytes a second in each way.
type Row = (String, [f64; WAYS.len()]);

/// What all rows have.
pub(super) struct Table {
    pub(super) file: PathBuf,
    pub(super) bytes: u64,
    pub(super) depth: u32,
    /// Requests handed over together.
    pub(super) batch: u32,
    /// A run ends with its last block, or then.
    pub(super) runtime: Duration,
    pub(super) rounds: usize,
    /// Without the last way.
    pub(super) is_quick: bool,
    /// So far.
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// Takes a row.
    ///
    /// # Errors
    /// Our side failed.
    pub(super) fn take(&mut self, findings: &mut Findings, place: &str, stream: &Stream) -> Result<(), Failure> {
        let name = format!("{}, {} KiB, {place}", stream.name, stream.request >> 10);
        let mut comparison = Comparison {
            ours: Side {
                name: format!("{name}: cached"),
                ..self.prepared(stream, true, self.ours(stream, "cached"))
            },
            peers: vec![
                Peer::new(self.prepared(stream, false, self.libaio(stream, false)), &[]),
                Peer::new(self.prepared(stream, true, self.ours(stream, "direct")), &[]),
            ],
        };
        if !self.is_quick {
            let theirs = self.prepared(stream, true, self.libaio(stream, true));
            comparison.peers.push(Peer::new(theirs, &[]));
        }
        let runs = findings.compare_for(&comparison, self.rounds)?;
        let sides = [&runs.ours[..], runs.peer(0), runs.peer(1), runs.peer(2)];
        self.rows.push((name, sides.map(megabytes)));
        Ok(())
    }

    /// Shows the rows, one below the other.
    pub(super) fn show(&self, findings: &mut Findings) {
        let longest = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let heads = WAYS.map(|way| format!("{way:>28}")).concat();
        findings.lines.push(format!("{:longest$}{heads}", "MB/s"));
        let shown = |value: &f64| {
            if value.is_nan() {
                format!("{:>28}", "-")
            } else {
                format!("{value:>28.1}")
            }
        };
        let mut rows = Vec::new();
        for (name, values) in &self.rows {
            let cells: String = values.iter().map(shown).collect();
            findings.lines.push(format!("{name:longest$}{cells}"));
            let mut row = json!({ "row": name });
            for (way, value) in WAYS.iter().zip(values) {
                row[way] = json!((!value.is_nan()).then_some(value));
            }
            rows.push(row);
        }
        findings
            .parts
            .push(json!({ "part": "megabytes a second", "rows": rows }));
    }

    fn ours(&self, stream: &Stream, mode: &str) -> Side {
        let [request, batch, cache] = [stream.request, u64::from(self.batch), self.bytes].map(|n| n.to_string());
        let mut run = Run::once(&self.file.display().to_string(), stream.rw.name(), self.depth)
            .at_most(self.runtime)
            .with(&["--request-size", &request, "--batch", &batch, "--mode", mode]);
        if mode == "cached" {
            // As the kernel's, which has all the memory there is, it holds the file.
            run = run.with(&["--cache", &cache]);
            if let Some(percent) = stream.warm_percent {
                run = run.with(&["--warm", &percent.to_string()]);
            }
        }
        if stream.is_synced {
            run = run.with(&["--durability", "full"]);
        }
        if stream.ends_synced {
            run = run.with(&["--end-sync"]);
        }
        Side::stress(format!("ours, {mode}"), run).synced()
    }

    fn libaio(&self, stream: &Stream, direct: bool) -> Side {
        Side::fio(fio::Job {
            request_size: stream.request,
            batch: self.batch,
            direct,
            warm: !direct && stream.warm_percent.is_some(),
            sync: stream.is_synced.then_some("sync"),
            end_fsync: stream.ends_synced,
            runtime: self.runtime,
            ..fio::Job::once(Engine::Libaio, stream.rw, self.file.clone(), self.bytes, self.depth)
        })
    }

    /// Begins with nothing in the kernel's cache, or with what is to be there.
    fn prepared(&self, stream: &Stream, is_empty: bool, side: Side) -> Side {
        let file = self.file.clone();
        match stream.warm_percent {
            Some(percent) if !is_empty => {
                let bytes = warm_bytes(self.bytes, percent, stream.request);
                Side {
                    command: format!("{} (the first {bytes} bytes are cached)", side.command),
                    ..side.after(move || warm(&file, bytes))
                }
            }
            _ => side.after(move || settle(&file)),
        }
    }
}

fn megabytes(runs: &[Measurement]) -> f64 {
    if runs.is_empty() {
        return f64::NAN;
    }
    median(&runs.iter().map(|run| run.bytes_per_second / 1e6).collect::<Vec<_>>())
}

/// The name of the file system there, as far as it matters here.
pub(super) fn file_system(dir: &Path) -> String {
    /// `EXT4_SUPER_MAGIC`, linux/magic.h.
    const EXT4: u64 = 0xef53;
    match rustix::fs::statfs(dir).map(|told| told.f_type as u64) {
        Ok(EXT4) => "ext4".into(),
        Ok(other) => format!("file system {other:#x}"),
        Err(_) => "a file system".into(),
    }
}
