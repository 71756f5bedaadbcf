//! `baio report`: the main job, done and measured on this machine.
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs` | what is typed |
//! | `main_job.rs`, `mixed_paths.rs` | a file into a segment and back, and what is refused; both ways on the same data |
//! | `versus.rs` | `stress` against who does the same: random and sequential, direct and cached, plain and durable, by a service, one at a time, in batches |
//! | `runtimes.rs` | other runtimes, where their programs have been built |
//! | `brokers.rs` | a volume that a broker serves, against one in the own process |
//! | `served.rs` | a segment that a broker serves already |
//! | `streaming.rs` | the tables of seed 000 and of seed 001, figures 1 and 2, in four ways |
//! | `posted_writes.rs`, `buffered_writes.rs` | what the submitting call waits for |
//! | `as_written.rs` | seed 003's test |
//! | `pipelining.rs` | seed 004's figures 3 to 5: requests with processing behind each |
//! | `request_size.rs` | seed 002: `baio dd` against GNU dd, by the size of a block |
//! | `drop_ins.rs` | fio on our libraries, and on the originals |
//! | `log_appends.rs` | seed 002's question: our log against threads that write |
//! | `page_cleaners.rs` | a database's page cleaners |
//! | `one_queue.rs`, `volume_scale.rs` | disk and pipe in one queue; many segments |
//! | `server.rs` | a server's sockets and disk in one loop |
//! | `comparison.rs`, `marks.rs` | sides in turn, their ratios, and what these are to be |
//! | `findings.rs`, `charts.rs` | what an experiment found: rows, sentences, raw parts; drawings of what was swept |
//! | `run.rs`, `save.rs`, `record.rs` | one after the other, each saved as it ends; what is kept |
//! | `machine.rs`, `promises.rs` | on what it was taken; what the documents ask for, and what shows it |
//! | `terminal.rs`, `progress.rs`, `beside.rs` | what is shown: a table and the verdict, how far it is, two reports side by side |
//! | `tally.rs`, `numbers.rs` | which marks hold; numbers of few digits |
//! | `page/`, `markdown.rs` | the same as a page, and as a chapter of these docs |
//! | `target.rs` | what `--target` names, and which experiments are for it |
//! | `places.rs`, `files.rs` | what experiments work on |
//! | `work_dir.rs` | where all of it happens, and what is removed |
//! | `loop_device.rs`, `slow_device.rs`, `memory_cgroup.rs` | what only root can make |

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::{Align, Answer, Table};
use baio_engine::{Choice, Config, Engine, SetupError};
use serde::{Serialize, Serializer};
use serde_json::json;

use args::{Form, ReportArgs};
use beside::Beside;
use comparison::Findings;
use record::Record;
use run::Taken;
use target::Target;
use terminal::Shown;

pub(crate) mod args;
mod as_written;
mod beside;
mod brokers;
mod buffered_writes;
mod charts;
mod comparison;
mod drop_ins;
mod files;
mod findings;
mod log_appends;
mod loop_device;
mod machine;
mod main_job;
mod markdown;
mod marks;
mod memory_cgroup;
mod mixed_paths;
mod numbers;
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
mod runtimes;
mod save;
mod served;
mod server;
mod slow_device;
mod streaming;
mod tally;
mod target;
mod terminal;
mod versus;
mod volume_scale;
mod work_dir;

/// An experiment: what it is called, what runs it, and what it shows.
struct Experiment {
    name: &'static str,
    run: fn(&Setting, &mut Findings) -> Result<(), Failure>,
    shows: &'static str,
}

impl Experiment {
    /// Bytes that it may need at most at a time. What is only read needs next to none.
    fn room(&self, working_set: u64, only_reads: bool) -> u64 {
        // A volume beside a file, and what its metadata and a log take.
        let spare = 128 << 20;
        match self.name {
            _ if only_reads => 0,
            // They look themselves, and choose less work where there is less room.
            "buffered-writes" | "volume-scale" => 0,
            "log-appends" => spare + (256 << 20),
            "segments" => 2 * spare,
            _ => spare + 2 * working_set,
        }
    }
}

/// One line an experiment.
macro_rules! experiments {
    ($($name:literal => $run:path: $shows:literal)*) => {
        &[$(Experiment { name: $name, run: $run, shows: $shows },)*]
    };
}

const EXPERIMENTS: &[Experiment] = experiments! {
    "segments" => main_job::run: "a file goes into a segment and comes back; what the volume refuses a second user"
    "mixed-paths" => mixed_paths::run: "direct and cached requests on the same data: whatever was written last is what either reads"
    "random-read" => versus::random_read: "4 KiB random direct reads of a file and of a segment, on each backend, against its peer"
    "one-at-a-time" => versus::one_at_a_time: "4 KiB random direct reads one at a time, against ioping"
    "runtimes" => runtimes::run: "the same reads by tokio-uring, glommio and compio, where benches/peers has been built"
    "random-write" => versus::random_write: "4 KiB random direct writes: many side by side on one file, against eight files and fio"
    "cached-reads" => versus::cached_reads:
        "random reads through our own cache, nothing cached: against the kernel's and against direct ones"
    "sequential-reads" => versus::sequential_reads:
        "reads in order through our own cache, one at a time and many: against the kernel's and direct ones"
    "cache-hits" => versus::cache_hits: "4 KiB reads that our own cache answers, against a loop of pread"
    "durable-writes" => versus::durable_writes: "durable writes through our own cache, against the kernel's and against direct ones"
    "plain-writes" => versus::plain_writes:
        "plain random writes through our own cache and one sync, against ext4 with as much memory"
    "aio-stress-table" => streaming::table:
        "seed 000's table: 64 KiB reads and writes through a cache, against the kernel's and direct ones"
    "streaming-figures" => streaming::figures:
        "seed 001's figures 1 and 2: random reads and O_SYNC writes of 4 to 64 KiB through a cache"
    "page-cleaners" => page_cleaners::run:
        "seed 001's tables 2 to 5: transactions on a buffer pool, one asynchronous cleaner against synchronous ones"
    "service" => versus::service:
        "4 KiB random direct reads of a segment through a service thread, against the same in the caller's thread"
    "broker" => brokers::run:
        "4 KiB random direct reads of a segment by a broker, against the same volume in the caller's process"
    "served" => served::run: "a segment that a running broker serves (--target unix:SOCKET#SEGMENT): reads by one more client"
    "posted-writes" => posted_writes::run: "seed 003: a thousand writes posted to a slow device: posting must not wait for it; and its test as written"
    "buffered-writes" => buffered_writes::run: "64 KiB writes through the kernel's cache: who blocks, and with how many threads"
    "buffered-reads" => versus::buffered_reads: "4 KiB reads that the kernel's cache answers, against a loop of pread"
    "one-queue" => one_queue::run: "messages through a pipe and reads of a disk, waited for in one queue, against blocking threads"
    "pipelining" => pipelining::run:
        "seed 004's figures 3 to 5: 8 KiB requests with processing behind each, against threads and one blocking caller"
    "server" => server::run: "a server with many connections that reads the disk for each message, against epoll and threads that read"
    "request-size" => request_size::run: "seed 002: a file in order by baio dd and by GNU dd, in blocks of 512 bytes to 1 MiB"
    "drop-ins" => drop_ins::run: "fio, unchanged, on our libaio and our POSIX AIO, against the originals"
    "batches" => versus::batches: "random direct reads, 1 to 64 handed over by a call"
    "log-appends" => log_appends::run:
        "seed 002's question: small durable records, by our log and by a thread of its own that writes them"
    "volume-scale" => volume_scale::run: "a sparse volume of 4 TiB with many segments: opens, creates, memory"
};

/// These run only when they are asked for: they take long, or much room, or need a target.
const ON_REQUEST: &[&str] = &["volume-scale", "served"];

/// Working sets are cut to whole multiples of this: they divide into files and into any request.
const WORKING_SET_STEP: u64 = 1 << 20;

/// Where and how long to work.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// A directory of our own, removed at the end.
    pub(crate) dir: PathBuf,
    /// The bytes to be carried; `None` takes this program's own, repeated.
    pub(crate) input: Option<PathBuf>,
    pub(crate) quick: bool,
    /// Bytes of the working set of an experiment, a multiple of [`WORKING_SET_STEP`].
    pub(crate) working_set: u64,
    /// Segments of the experiment that makes many.
    pub(crate) segments: Option<u64>,
    /// What is only read, instead of files of our own.
    pub(crate) target: Option<Target>,
}

impl Setting {
    /// Of the quick report, or of the other.
    pub(crate) fn either<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// How long one measured run takes, and how many rounds there are.
    pub(crate) fn measuring(&self) -> (Duration, usize) {
        self.either((Duration::from_millis(400), 2), (Duration::from_millis(500), 3))
    }

    /// The same for an experiment of many lines.
    pub(crate) fn measuring_many(&self) -> (Duration, usize) {
        self.either((Duration::from_millis(300), 1), (Duration::from_millis(300), 3))
    }

    /// How many bytes an experiment reads that reads each once, and how many rounds there are.
    pub(crate) fn reading_once(&self) -> (u64, usize) {
        self.either((self.working_set / 4, 1), (self.working_set / 8, 2))
    }
}

/// What `baio report` answers.
pub(crate) enum Answered {
    List,
    Beside(Beside),
    Kept {
        record: Box<Record>,
        shown: Shown,
        form: Form,
    },
    Taken {
        taken: Box<Taken>,
        shown: Shown,
        /// Beside another report, where that was asked for.
        beside: Option<Beside>,
    },
}

/// A storage error names its own object.
fn storage_failure(error: baio::Error) -> Failure {
    Failure::from_storage("report", error.object.clone(), &error)
}

/// Why a backend is not to be had here; `None` where it works.
fn unavailable(backend: &str) -> Option<String> {
    match backend.parse() {
        Ok(choice) => small_engine(choice).err().map(|error| error.to_string()),
        Err(error) => Some(error),
    }
}

fn small_engine(backend: Choice) -> Result<Engine, SetupError> {
    Engine::new(&Config {
        backend,
        slots: 8,
        arena_bytes: 1,
        ..Config::default()
    })
}

/// Does what is asked for: shows what there is, sets two reports side by side, or takes one.
pub(crate) fn run(args: ReportArgs) -> Result<Answered, Failure> {
    if args.list {
        return Ok(Answered::List);
    }
    // Before anything is measured.
    let others = args.compare.iter().map(|path| save::load(path));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    if let [other, this] = &others[..] {
        return Ok(Answered::Beside(Beside::of(other, this)));
    }
    let shown = Shown {
        commands: args.commands,
    };
    if let Some(path) = &args.show {
        let record = Box::new(save::load(path)?);
        let form = args.form;
        return Ok(Answered::Kept { record, shown, form });
    }
    let taken = Box::new(run::take(args)?);
    let beside = others.first().map(|other| Beside::of(other, &taken.record));
    Ok(Answered::Taken { taken, shown, beside })
}

fn working_set_of(quick: bool, asked: Option<u64>) -> Result<u64, Failure> {
    let Some(asked) = asked else {
        return Ok(if quick { 256 << 20 } else { 1 << 30 });
    };
    match asked / WORKING_SET_STEP * WORKING_SET_STEP {
        0 => Err(
            Failure::usage("report", format!("{asked} bytes are too few to work on"))
                .on("--working-set")
                .needing("at least 1M")
                .cured_by("choose a larger one, or leave it out"),
        ),
        bytes => Ok(bytes),
    }
}

fn choose(only: &[String]) -> Result<Vec<&'static Experiment>, Failure> {
    if only.is_empty() {
        return Ok(EXPERIMENTS.iter().filter(|e| !ON_REQUEST.contains(&e.name)).collect());
    }
    let find = |name: &String| {
        let known = || EXPERIMENTS.iter().map(|e| e.name).collect::<Vec<_>>().join(", ");
        let missing = || {
            Failure::usage("report", format!("no experiment is called `{name}`"))
                .on("--only")
                .needing(known())
                .cured_by("name one of these, or leave --only out")
        };
        EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(missing)
    };
    let named = only.iter().enumerate().filter(|(at, name)| !only[..*at].contains(name));
    named.map(|(_, name)| find(name)).collect()
}

impl Serialize for Answered {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Answered::List => {
                let experiments = EXPERIMENTS.iter().map(|experiment| {
                    let is_on_request = ON_REQUEST.contains(&experiment.name);
                    json!({ "name": experiment.name, "shows": experiment.shows, "on_request": is_on_request })
                });
                json!({ "experiments": experiments.collect::<Vec<_>>() }).serialize(to)
            }
            Answered::Beside(beside) => beside.serialize(to),
            Answered::Kept { record, .. } => record.serialize(to),
            Answered::Taken { taken, beside, .. } => {
                let verified = taken.record.experiments.iter().all(|told| told.verified);
                let mut told = serde_json::to_value(&taken.record).map_err(serde::ser::Error::custom)?;
                told["verified"] = json!(verified);
                if let Some(beside) = beside {
                    told["beside"] = serde_json::to_value(beside).map_err(serde::ser::Error::custom)?;
                }
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
                    let when = if ON_REQUEST.contains(&experiment.name) {
                        " (only when asked for)"
                    } else {
                        ""
                    };
                    table.row([experiment.name, &format!("{}{when}", experiment.shows)]);
                }
                table.write(out)
            }
            Answered::Beside(beside) => beside.write_text(out),
            Answered::Kept { record, shown, form } => match form {
                Form::Text => terminal::write_kept(record, *shown, out),
                Form::Page => out.write_all(page::html(record).as_bytes()),
                Form::Markdown => out.write_all(markdown::markdown(record).as_bytes()),
            },
            Answered::Taken { taken, shown, beside } => {
                if let Some(beside) = beside {
                    beside.write_text(out)?;
                    writeln!(out)?;
                }
                terminal::write(taken, *shown, out)
            }
        }
    }

    fn exit_status(&self) -> ExitStatus {
        match self {
            Answered::Taken { taken, .. } => taken.exit_status(),
            Answered::List | Answered::Beside(_) | Answered::Kept { .. } => ExitStatus::Success,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_runs_only_when_it_is_named() {
        let all = choose(&[]).unwrap();
        assert!(all.len() > 1 && all.iter().all(|e| e.name != "volume-scale"));
        assert_eq!(choose(&["volume-scale".into()]).unwrap().len(), 1);
    }
}
