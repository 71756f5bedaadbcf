//! `baio report`: the main job, done and measured on this machine.
//!
//! | file | what it is |
//! |---|---|
//! | `args.rs` | what is typed |
//! | `main_job.rs` | a file into a segment and back, and what is refused |
//! | `versus.rs` | `stress` against who does the same: random and sequential, direct and cached, plain and durable, by a service |
//! | `streaming.rs` | the tables of seed 000 and of seed 001, figures 1 and 2, in four ways |
//! | `posted_writes.rs`, `buffered_writes.rs` | what the submitting call waits for |
//! | `own_policy.rs`, `page_cleaners.rs`, `request_traces.rs` | what our cache is for, and how it works |
//! | `one_queue.rs`, `volume_scale.rs` | disk and pipe in one queue; many segments |
//! | `comparison.rs`, `marks.rs` | sides in turn, their ratios, and what these are to be |
//! | `places.rs`, `files.rs` | what experiments work on |
//! | `loop_device.rs`, `slow_device.rs`, `ext2.rs`, `memory_cgroup.rs` | what only root can make |

use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::output::Answer;
use serde::Serialize;

use args::ReportArgs;

pub(crate) mod args;
mod buffered_writes;
mod comparison;
mod ext2;
mod files;
mod loop_device;
mod main_job;
mod marks;
mod memory_cgroup;
mod one_queue;
mod own_policy;
mod page_cleaners;
mod places;
mod posted_writes;
mod request_traces;
mod slow_device;
mod streaming;
mod versus;
mod volume_scale;

/// An experiment: what it is called, what it shows, and what runs it.
struct Experiment {
    name: &'static str,
    shows: &'static str,
    /// Runs only when it is named: it takes long, or much room.
    on_request: bool,
    run: fn(&Setting) -> Result<Section, Failure>,
}

const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "segments",
        shows: "a file goes into a segment and comes back; what the volume refuses a second user",
        on_request: false,
        run: main_job::run,
    },
    Experiment {
        name: "random-read",
        shows: "4 KiB random direct reads of a file and of a segment, on each backend, against its peer",
        on_request: false,
        run: versus::random_read,
    },
    Experiment {
        name: "random-write",
        shows: "4 KiB random direct writes: many side by side on one file, against eight files and fio",
        on_request: false,
        run: versus::random_write,
    },
    Experiment {
        name: "cached-reads",
        shows: "random reads through our own cache, nothing cached: against the kernel's and against direct ones",
        on_request: false,
        run: versus::cached_reads,
    },
    Experiment {
        name: "sequential-reads",
        shows: "reads in order through our own cache, one at a time and many: against the kernel's and direct ones",
        on_request: false,
        run: versus::sequential_reads,
    },
    Experiment {
        name: "cache-hits",
        shows: "4 KiB reads that our own cache answers, against a loop of pread",
        on_request: false,
        run: versus::cache_hits,
    },
    Experiment {
        name: "durable-writes",
        shows: "durable writes through our own cache, against the kernel's and against direct ones",
        on_request: false,
        run: versus::durable_writes,
    },
    Experiment {
        name: "plain-writes",
        shows: "plain random writes through our own cache and one sync, against ext4 with as much memory",
        on_request: false,
        run: versus::plain_writes,
    },
    Experiment {
        name: "aio-stress-table",
        shows: "seed 000's table: 64 KiB reads and writes through a cache, against the kernel's and direct ones, on ext4 and ext2",
        on_request: false,
        run: streaming::table,
    },
    Experiment {
        name: "streaming-figures",
        shows: "seed 001's figures 1 and 2: random reads and O_SYNC writes of 4 to 64 KiB through a cache",
        on_request: false,
        run: streaming::figures,
    },
    Experiment {
        name: "request-traces",
        shows: "single requests through a cache, iteration by iteration, beside what seed 001 reports",
        on_request: false,
        run: request_traces::run,
    },
    Experiment {
        name: "page-cleaners",
        shows: "seed 001's tables 2 to 5: transactions on a buffer pool, one asynchronous cleaner against synchronous ones",
        on_request: false,
        run: page_cleaners::run,
    },
    Experiment {
        name: "own-policy",
        shows: "a program's own eviction and prefetch on our cache, against LRU and the kernel's cache",
        on_request: false,
        run: own_policy::run,
    },
    Experiment {
        name: "service",
        shows: "4 KiB random direct reads of a segment through a service thread, against the same in the caller's thread",
        on_request: false,
        run: versus::service,
    },
    Experiment {
        name: "posted-writes",
        shows: "a thousand writes posted to a slow device: posting must not wait for it",
        on_request: false,
        run: posted_writes::run,
    },
    Experiment {
        name: "buffered-writes",
        shows: "64 KiB writes through the kernel's cache: who blocks, and with how many threads",
        on_request: false,
        run: buffered_writes::run,
    },
    Experiment {
        name: "buffered-reads",
        shows: "4 KiB reads that the kernel's cache answers, against a loop of pread",
        on_request: false,
        run: versus::buffered_reads,
    },
    Experiment {
        name: "one-queue",
        shows: "messages through a pipe and reads of a disk, waited for in one queue, against blocking threads",
        on_request: false,
        run: one_queue::run,
    },
    Experiment {
        name: "volume-scale",
        shows: "a sparse volume of 4 TiB with many segments: opens, creates, memory",
        on_request: true,
        run: volume_scale::run,
    },
];

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
}

impl Setting {
    /// How long one measured run takes, and how many rounds there are.
    pub(crate) fn measuring(&self) -> (Duration, usize) {
        if self.quick {
            (Duration::from_millis(400), 2)
        } else {
            (Duration::from_secs(3), 5)
        }
    }

    /// The same for an experiment of many lines.
    pub(crate) fn measuring_many(&self) -> (Duration, usize) {
        if self.quick {
            (Duration::from_millis(400), 1)
        } else {
            (Duration::from_secs(2), 5)
        }
    }

    /// How many bytes an experiment reads that reads each once, and how many rounds there are.
    pub(crate) fn reading_once(&self) -> (u64, usize) {
        if self.quick {
            (self.working_set / 4, 1)
        } else {
            (self.working_set / 2, 3)
        }
    }
}

/// What an experiment found.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    /// Lines for people.
    #[serde(skip)]
    pub(crate) lines: Vec<String>,
    /// Did everything hold that must hold? Figures do not count here.
    pub(crate) verified: bool,
    /// The same for programs.
    pub(crate) parts: Vec<serde_json::Value>,
    pub(crate) seconds: f64,
}

impl Section {
    /// The section of an experiment that takes figures.
    fn of(mut findings: comparison::Findings) -> Section {
        let verified = findings.verified();
        Section::new(findings.lines, findings.parts, verified)
    }

    fn new(lines: Vec<String>, parts: Vec<serde_json::Value>, verified: bool) -> Section {
        Section {
            name: "",
            shows: "",
            lines,
            verified,
            parts,
            seconds: 0.0,
        }
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: &'static str,
    machine: Machine,
    parts: Vec<Section>,
    verified: bool,
    seconds: f64,
}

/// On what it was taken.
#[derive(Debug, Serialize)]
struct Machine {
    kernel: String,
    processors: usize,
    backend: &'static str,
    fio: Option<String>,
}

impl Machine {
    fn look() -> Machine {
        let kernel = rustix::system::uname();
        let config = baio_engine::Config {
            slots: 8,
            arena_bytes: 1,
            ..baio_engine::Config::default()
        };
        Machine {
            kernel: kernel.release().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            backend: baio_engine::Engine::new(&config).map_or("none", |engine| engine.explain().backend),
            fio: crate::figures::fio::version(),
        }
    }
}

/// A storage error names its own object.
fn storage_failure(error: baio::Error) -> Failure {
    Failure::from_storage("report", error.object.clone(), &error)
}

/// Why a backend is not to be had here; `None` where it works.
fn unavailable(backend: &str) -> Option<String> {
    use crate::stress::job::Backend;
    use clap::ValueEnum;
    let choice = match Backend::from_str(backend, false) {
        Ok(backend) => backend.into(),
        Err(error) => return Some(error),
    };
    let config = baio_engine::Config {
        backend: choice,
        slots: 8,
        arena_bytes: 1,
        ..baio_engine::Config::default()
    };
    baio_engine::Engine::new(&config).err().map(|error| error.to_string())
}

/// Runs the experiments that are asked for, or all.
pub(crate) fn run(args: ReportArgs) -> Result<Report, Failure> {
    let chosen = choose(&args.only)?;
    let working_set = working_set_of(args.quick, args.working_set.map(|size| size.bytes()))?;
    let parent = args.dir.as_deref().unwrap_or(Path::new("."));
    remove_left_over(parent);
    let work = WorkDir::make(parent)?;
    let setting = Setting {
        dir: work.0.clone(),
        input: args.input,
        quick: args.quick,
        working_set,
        segments: args.segments,
    };
    let started = Instant::now();
    let mut parts = Vec::new();
    for experiment in chosen {
        eprintln!("report: {}: {}", experiment.name, experiment.shows);
        let begun = Instant::now();
        let mut section = (experiment.run)(&setting)?;
        section.name = experiment.name;
        section.shows = experiment.shows;
        section.seconds = begun.elapsed().as_secs_f64();
        parts.push(section);
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::look(),
        verified: parts.iter().all(|section| section.verified),
        parts,
        seconds: started.elapsed().as_secs_f64(),
    })
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
        return Ok(EXPERIMENTS.iter().filter(|e| !e.on_request).collect());
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
    only.iter().map(find).collect()
}

/// A directory of our own that goes when the report ends.
struct WorkDir(PathBuf);

impl WorkDir {
    fn make(parent: &Path) -> Result<WorkDir, Failure> {
        let path = parent.join(format!("baio-report-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| no_place(parent, &error))?;
        Ok(WorkDir(path))
    }
}

fn no_place(parent: &Path, error: &io::Error) -> Failure {
    let (need, cure) = match error.kind() {
        ErrorKind::NotFound => ("a directory that exists", "make it, or name another one by --dir"),
        ErrorKind::NotADirectory => ("a directory", "name one by --dir"),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ("a directory that may be written to", "name another one by --dir")
        }
        _ => ("a directory in which files can be made", "name another one by --dir"),
    };
    let failure = Failure::from_io("report", error).on(parent.display().to_string());
    failure.needing(need).cured_by(cure)
}

/// Removes what a report that was interrupted left behind: our own directories, whose process is no more.
fn remove_left_over(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return; // What is wrong with it will be told when our own directory is made.
    };
    for entry in entries.flatten() {
        let is_directory = entry.metadata().is_ok_and(|metadata| {
            // Of the entry itself: a symbolic link does not count.
            metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw()
        });
        let name = entry.file_name();
        if !is_directory || name.to_str().and_then(pid_in).is_none_or(is_alive) {
            continue;
        }
        let path = entry.path();
        match std::fs::remove_dir_all(&path) {
            Ok(()) => eprintln!("report: removed {}, left by an interrupted report", path.display()),
            Err(error) => eprintln!(
                "report: cannot remove {}, left by an interrupted report: {error}",
                path.display()
            ),
        }
    }
}

/// The process whose working directory has this name; `None` for every other name.
fn pid_in(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("baio-report-")?;
    let pid: u32 = digits.parse().ok()?;
    (pid > 0 && pid.to_string() == digits).then_some(pid)
}

/// Is a process of this number running, other than this one, which has left nothing yet?
fn is_alive(pid: u32) -> bool {
    let other = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let gone = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    pid != std::process::id() && other.is_some_and(|pid| !gone(pid))
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Answer for Report {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let machine = &self.machine;
        writeln!(
            out,
            "baio {} on Linux {}, {} processors, backend {}, {}",
            self.version,
            machine.kernel,
            machine.processors,
            machine.backend,
            machine
                .fio
                .as_deref()
                .unwrap_or("fio is not installed: its comparisons are left out"),
        )?;
        for section in &self.parts {
            writeln!(out, "\n{}: {} ({:.1} s)", section.name, section.shows, section.seconds)?;
            for line in &section.lines {
                writeln!(out, "  {line}")?;
            }
        }
        let verdict = if self.verified {
            "everything held that must hold"
        } else {
            "SOMETHING DID NOT VERIFY"
        };
        writeln!(out, "\n{verdict}; {:.1} s", self.seconds)
    }

    fn exit_status(&self) -> ExitStatus {
        if self.verified {
            ExitStatus::Success
        } else {
            ExitStatus::NotVerified
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

    #[test]
    fn only_exact_names_are_ours() {
        assert_eq!(pid_in("baio-report-17"), Some(17));
        for name in [
            "baio-report-",
            "baio-report-017",
            "baio-report-+1",
            "baio-report-0",
            "baio-report-1x",
            "17",
        ] {
            assert_eq!(pid_in(name), None, "{name}");
        }
    }

    #[test]
    fn only_what_a_dead_process_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = parent.path().join(format!("baio-report-{}", child.id()));
        let alive = parent.path().join("baio-report-1");
        let other = parent.path().join(format!("baio-report-{}-mine", child.id()));
        for path in [&dead, &alive, &other] {
            std::fs::create_dir(path).unwrap();
        }
        remove_left_over(parent.path());
        assert!(!dead.exists() && alive.exists() && other.exists());
    }
}
