//! What a report keeps: `report.json`, from which the terminal's tables, the page and a comparison are made.
//!
//! Unknown fields are passed over, and missing ones are empty, so that reports of other versions can be read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::disk;

/// Of the file; a report of another number is not read.
pub(crate) const FORMAT: u32 = 1;

/// The whole report, or as much of it as has ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Of the program.
    pub(crate) version: String,
    /// When it was begun: RFC 3339, in UTC.
    pub(crate) began: String,
    pub(crate) seconds: f64,
    pub(crate) quick: bool,
    /// What was asked for, as words of a command line; a report of other words is another report.
    pub(crate) options: Vec<String>,
    /// Everything that was asked for has ended.
    pub(crate) finished: bool,
    pub(crate) machine: Machine,
    /// Which experiments do not run on what is only read, in a sentence; empty where all do.
    pub(crate) left_out: String,
    /// In the order in which they ran.
    pub(crate) experiments: Vec<Experiment>,
    /// What the seed documents ask for, and what shows it.
    pub(crate) promises: Vec<Promise>,
}

/// On what it was taken. What could not be found out is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    /// Those that this process may run on.
    pub(crate) processors: usize,
    pub(crate) memory_bytes: u64,
    /// Of the first processor.
    pub(crate) governor: Option<String>,
    /// What `--target` names, in a phrase, where that is what was read; then what follows is of it and not of the working files.
    pub(crate) target: Option<String>,
    /// Where the working files are: `ext4`.
    pub(crate) file_system: String,
    /// `relatime`, `noatime`, ...
    pub(crate) atime: Option<String>,
    /// The block device below: `vda`.
    pub(crate) device: Option<String>,
    pub(crate) scheduler: Option<String>,
    pub(crate) nr_requests: Option<u64>,
    pub(crate) read_ahead_kb: Option<u64>,
    pub(crate) rotational: Option<bool>,
    /// `write back` or `write through`.
    pub(crate) write_cache: Option<String>,
    pub(crate) backend: String,
    /// Why this one was chosen.
    pub(crate) backend_why: String,
    pub(crate) peers: Vec<Program>,
}

/// A program that runs in turn with ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// `None` where it is not installed.
    pub(crate) version: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Experiment {
    /// As `--only` names it.
    pub(crate) name: String,
    /// One sentence.
    pub(crate) shows: String,
    /// Did everything hold that must hold? Marks do not count here.
    pub(crate) verified: bool,
    pub(crate) seconds: f64,
    pub(crate) rows: Vec<Row>,
    /// Of the experiment that measures the disk alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) disk: Vec<disk::Figure>,
    pub(crate) charts: Vec<Chart>,
    /// Sentences for people: what was done, and what is no figure.
    pub(crate) notes: Vec<String>,
    /// The measurements themselves, each run of each side.
    pub(crate) parts: Vec<Value>,
}

/// One figure of ours, beside a peer's where there is one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    /// What was done: `file, uring, depth 64`.
    pub(crate) what: String,
    /// `requests/s`, `CPU a request`, ...
    pub(crate) figure: String,
    /// `1/s`, `us`, `MiB/s`; empty for a number without one.
    pub(crate) unit: String,
    pub(crate) ours: Option<f64>,
    /// Who did the same.
    pub(crate) peer: String,
    pub(crate) theirs: Option<f64>,
    /// The median of the rounds' ratios, ours to theirs.
    pub(crate) ratio: Option<f64>,
    /// The least and the largest of them.
    pub(crate) spread: Option<[f64; 2]>,
    /// What the ratio is to be, or our figure where there is no peer: `>= 0.97`.
    pub(crate) mark: Option<String>,
    pub(crate) holds: Option<bool>,
    /// By how many percent the mark is missed.
    pub(crate) short_by: Option<f64>,
    /// Why there is no figure.
    pub(crate) skipped: Option<String>,
    /// What a shell would be given to run ours.
    pub(crate) command: String,
    pub(crate) peers_command: String,
}

/// A drawing. Its table is made of the same values.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// Of all lines, rising.
    pub(crate) at: Vec<f64>,
    pub(crate) lines: Vec<Line>,
    /// What the document showed, in a sentence; empty where it has no figure.
    pub(crate) document: String,
    /// What is shown here, in a sentence.
    pub(crate) here: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Axis {
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) logarithmic: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Whose: `ours`, `peer`, or `document` for what a seed document printed.
    pub(crate) whose: String,
    /// One for each place of [`Chart::at`]; none where nothing was measured.
    pub(crate) values: Vec<Option<f64>>,
}

/// A row of what the documents ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Promise {
    /// `S1`
    pub(crate) id: String,
    pub(crate) title: String,
    /// `001 §3`
    pub(crate) document: String,
    /// The experiments that show it.
    pub(crate) shown_by: Vec<String>,
    /// `shown`, `in part` (not all of them ran), `missed`, `not run` or `not built yet`; `checked` for what a live check of the report shows.
    pub(crate) state: String,
}

/// The figure of a row that tells why an experiment came to no end.
pub(super) const FAILED: &str = "failed";
pub(super) const STOPPED: &str = "interrupted";

impl Row {
    /// Is this no figure, but why there are no more?
    pub(super) fn is_end(&self) -> bool {
        self.skipped.is_some() && [FAILED, STOPPED].contains(&&self.figure[..])
    }
}

#[cfg(test)]
impl Record {
    /// Of one experiment with these rows.
    pub(super) fn of(rows: Vec<Row>) -> Record {
        let experiments = vec![Experiment {
            rows,
            ..Experiment::default()
        }];
        Record {
            experiments,
            ..Record::default()
        }
    }
}

/// A row, and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    /// The place of the experiment in the record.
    pub(super) experiment: usize,
    pub(super) name: &'a str,
    pub(super) row: &'a Row,
}

impl Experiment {
    /// Its rows, where it has this place.
    pub(super) fn found(&self, experiment: usize) -> impl Iterator<Item = Found<'_>> {
        let name = &self.name;
        self.rows.iter().map(move |row| Found { experiment, name, row })
    }
}

impl Record {
    /// All of all experiments.
    pub(super) fn rows(&self) -> impl Iterator<Item = Found<'_>> {
        let all = self.experiments.iter().enumerate();
        all.flat_map(|(at, one)| one.found(at))
    }

    /// The disk alone; empty where it was not measured.
    pub(super) fn disk(&self) -> &[disk::Figure] {
        let mut all = self.experiments.iter().map(|one| &one.disk[..]);
        all.find(|figures| !figures.is_empty()).unwrap_or_default()
    }
}

impl Experiment {
    /// Did it fail, or was it interrupted? Then it is run again by `--resume`.
    pub(super) fn has_stopped(&self) -> bool {
        self.rows.iter().any(Row::is_end)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| row.figure == FAILED)
    }
}
