//! `baio report`: the main job, done and measured on this machine.
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs`, `setting.rs` | what is typed; where and how long to work |
//! | `experiments.rs` | each experiment in a line |
//! | `main_job.rs`, `mixed_paths.rs` | a file into a segment and back, and what is refused; both ways on the same data |
//! | `versus.rs` | `stress` against who does the same: random and sequential, direct and cached, plain and durable, by a service, in batches |
//! | `brokers.rs` | a volume that a broker serves, against one in the own process |
//! | `streaming.rs` | the tables of seed 000 and of seed 001, figures 1 and 2, in four ways |
//! | `posted_writes.rs`, `buffered_writes.rs` | what the submitting call waits for |
//! | `as_written.rs` | seed 003's test |
//! | `pipelining.rs` | seed 004's figures 3 to 5: requests with processing behind each |
//! | `request_size.rs` | seed 002: `baio dd` against GNU dd, by the size of a block |
//! | `drop_ins.rs` | fio on our libraries, and on the originals |
//! | `log_appends.rs` | seed 002's question: our log against threads that write |
//! | `page_cleaners.rs` | a database's page cleaners |
//! | `one_queue.rs`, `volume_scale.rs` | disk and pipe in one queue; many segments |
//! | `this_disk.rs` | the disk alone, which a report begins with |
//! | `comparison.rs`, `marks.rs` | sides in turn, their ratios, and what these are to be |
//! | `beside.rs` | ours beside the others in counts: faster, the same, slower |
//! | `findings.rs`, `charts.rs` | what an experiment found: rows, sentences, raw parts; drawings of what was swept |
//! | `run.rs`, `save.rs`, `record.rs` | one after the other, each saved as it ends; what is kept |
//! | `machine.rs`, `promises.rs` | on what it was taken; what the documents ask for, and what shows it |
//! | `terminal.rs`, `progress.rs` | what is shown: the first screen, and what is for the project; how far it is |
//! | `tally.rs`, `numbers.rs` | which marks hold; numbers of few digits |
//! | `page/` | the same as a page |
//! | `target.rs` | what `--target` names, and which experiments read it |
//! | `places.rs`, `files.rs` | what experiments work on |
//! | `work_dir.rs` | where all of it happens, and what is removed |
//! | `loop_device.rs`, `slow_device.rs`, `memory_cgroup.rs` | what only root can make |

use std::io::{self, Write};

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::{Align, Answer, Table, Tone};
use serde::{Serialize, Serializer};
use serde_json::json;

use args::{Form, ReportArgs};
use experiments::{EXPERIMENTS, When};
use record::Record;
use run::Taken;
use terminal::Shown;

pub(crate) mod args;
mod as_written;
mod beside;
mod brokers;
mod buffered_writes;
mod charts;
mod comparison;
mod drop_ins;
pub(crate) mod experiments;
pub(crate) mod files;
mod findings;
mod log_appends;
mod loop_device;
mod machine;
mod main_job;
mod marks;
mod memory_cgroup;
mod mixed_paths;
pub(crate) mod numbers;
mod one_queue;
mod page;
mod page_cleaners;
mod pipelining;
mod places;
mod posted_writes;
mod progress;
mod promises;
mod record;
mod request_size;
mod run;
mod save;
mod setting;
mod slow_device;
mod streaming;
mod tally;
mod target;
pub(crate) mod terminal;
mod this_disk;
mod versus;
mod volume_scale;
pub(crate) mod work_dir;

/// What `baio report` answers.
pub(crate) enum Answered {
    List,
    Kept {
        record: Box<Record>,
        shown: Shown,
        form: Form,
    },
    Taken {
        taken: Box<Taken>,
        shown: Shown,
    },
}

/// Does what is asked for: shows what there is, or takes one.
pub(crate) fn run(args: ReportArgs) -> Result<Answered, Failure> {
    if args.list {
        return Ok(Answered::List);
    }
    let shown = Shown {
        marks: args.marks,
        commands: args.commands,
    };
    if let Some(path) = &args.show {
        let record = Box::new(save::load(path)?);
        let form = args.form;
        return Ok(Answered::Kept { record, shown, form });
    }
    let taken = Box::new(run::take(args)?);
    Ok(Answered::Taken { taken, shown })
}

impl Serialize for Answered {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Answered::List => {
                let experiments = EXPERIMENTS.iter().map(|experiment| {
                    let is_on_request = experiment.when == When::OnRequest;
                    json!({ "name": experiment.name, "shows": experiment.shows, "on_request": is_on_request })
                });
                json!({ "experiments": experiments.collect::<Vec<_>>() }).serialize(to)
            }
            Answered::Kept { record, .. } => record.serialize(to),
            Answered::Taken { taken, .. } => {
                let verified = taken.record.experiments.iter().all(|told| told.verified);
                let mut told = serde_json::to_value(&taken.record).map_err(serde::ser::Error::custom)?;
                told["verified"] = json!(verified);
                told.serialize(to)
            }
        }
    }
}

impl Answer for Answered {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Answered::List => {
                let mut table = Table::with_headings(&[("experiment", Align::Left), ("what it shows", Align::Left)]);
                for experiment in EXPERIMENTS {
                    let when = if experiment.when == When::OnRequest {
                        " (only when asked for)"
                    } else {
                        ""
                    };
                    table.row([experiment.name, &format!("{}{when}", experiment.shows)]);
                }
                table.write(out)
            }
            Answered::Kept { record, shown, form } => match form {
                Form::Text => terminal::write_kept(record, *shown, out),
                Form::Page => out.write_all(page::html(record).as_bytes()),
            },
            Answered::Taken { taken, shown } => terminal::write(taken, *shown, out),
        }
    }

    fn exit_status(&self) -> ExitStatus {
        match self {
            Answered::Taken { taken, .. } => taken.exit_status(),
            Answered::List | Answered::Kept { .. } => ExitStatus::Success,
        }
    }

    fn tone(&self, line: &str) -> Tone {
        match self {
            Answered::Taken { .. } | Answered::Kept { form: Form::Text, .. } => terminal::tone(line),
            Answered::Kept { .. } | Answered::List => Tone::Plain,
        }
    }
}
