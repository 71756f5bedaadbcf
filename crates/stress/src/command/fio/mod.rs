//! Job files of fio: `baio stress FILE.fio` runs the common subset of their options, and refuses the rest by name and line.
//!
//! All of a file is understood before anything is done. Then the files that jobs work on are made, as fio lays them out, and the jobs run:
//! those between two `stonewall`s at once, each clone (`numjobs`) with a thread and an engine of its own.
//!
//! | file | what it is |
//! |---|---|
//! | `file.rs` | sections and options, as text |
//! | `units.rs` | numbers, sizes and times as fio reads them |
//! | `meaning.rs` | what the options of a section mean here |
//! | `run.rs` | what runs when, and what came out |

mod file;
mod meaning;
mod run;
mod units;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use baio_console::failure::Failure;

pub(crate) use run::Jobs;

use super::stress::args::StressArgs;
use super::stress::plan::COMMAND;
use meaning::Meaning;

/// Larger than any job file; a data file of this name is refused before it is read whole.
const TEXT_MAX: u64 = 1 << 20;

/// Why a job file does not run here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    line: usize,
    said: String,
    need: String,
}

impl Refusal {
    fn new(line: usize, said: String, need: impl Into<String>) -> Refusal {
        let need = need.into();
        Refusal { line, said, need }
    }

    fn unknown(line: usize, option: &str) -> Refusal {
        let said = format!("the option '{option}' does not run here");
        Refusal::new(line, said, "the options that docs/stress.md lists")
    }

    fn into_failure(self, path: &Path) -> Failure {
        Failure::usage(COMMAND, format!("line {}: {}", self.line, self.said))
            .on(path.display().to_string())
            .needing(self.need)
            .cured_by("change the line or take it out, or give the file to fio")
    }
}

/// The job file that is meant, if one is: `--job FILE`, or a target that ends in `.fio`.
pub(super) fn meant(args: &StressArgs) -> Option<PathBuf> {
    if let Some(path) = &args.job {
        return Some(path.clone());
    }
    let path = PathBuf::from(args.target.as_os_str());
    // `vol#log.fio` is a segment, unless it is there as a file.
    let is_segment = path.as_os_str().as_encoded_bytes().contains(&b'#') && !path.exists();
    (path.extension() == Some(OsStr::new("fio")) && !is_segment).then_some(path)
}

/// Runs a job file.
pub(super) fn run(args: &StressArgs, path: &Path) -> Result<Jobs, Failure> {
    only_what_scales(args, path)?;
    let text = text_of(path)?;
    let meanings = file::read(&text, &|name| std::env::var(name).ok())
        .and_then(|file| {
            let meanings = file.sections.iter().map(|section| Meaning::of(&file, section));
            meanings.collect::<Result<Vec<_>, _>>()
        })
        .map_err(|refusal| refusal.into_failure(path))?;
    if meanings.is_empty() {
        return Err(Failure::usage(COMMAND, "it has no job")
            .on(path.display().to_string())
            .needing("a section, [NAME]")
            .cured_by("name a job file of fio; a data file with this ending has to be renamed"));
    }
    run::run(args, path, &meanings)
}

/// A job file says all but where and how much.
fn only_what_scales(args: &StressArgs, path: &Path) -> Result<(), Failure> {
    let others = StressArgs {
        size: None,
        runtime: None,
        directory: None,
        force: false,
        job: None,
        target: args.target.clone(),
        ..args.clone()
    };
    if others == StressArgs::on(&args.target) && (args.job.is_none() || args.target.as_os_str().is_empty()) {
        return Ok(());
    }
    Err(
        Failure::usage(COMMAND, "the job file says what is done, and so does the command line")
            .on(path.display().to_string())
            .needing("no TARGET and no options but --size, --runtime, --directory, --force and --json")
            .cured_by("write the option into the file"),
    )
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let shown = || path.display().to_string();
    let refused = |error: &std::io::Error| {
        Failure::from_io(COMMAND, error)
            .on(shown())
            .needing("a job file of fio that can be read")
            .cured_by("check the path; a data file whose name ends in .fio has to be renamed")
    };
    let metadata = path.metadata().map_err(|error| refused(&error))?;
    if !metadata.is_file() || metadata.len() > TEXT_MAX {
        return Err(Failure::usage(COMMAND, "this is no job file")
            .on(shown())
            .needing("a text of at most 1048576 bytes")
            .cured_by("name a job file of fio; a data file with this ending has to be renamed"));
    }
    let bytes = std::fs::read(path).map_err(|error| refused(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
