//! `baio tour`: shows what works here, how fast this disk is, and that no acknowledged record is lost, with advice; in half a minute, on one
//! screen.
//!
//! | file | what it is |
//! |---|---|
//! | `../disk/` | the disk in figures, each by a `baio stress` that a reader can run again, and what they advise |
//! | `promises.rs` | a file into a segment and back; a log whose writer is killed |

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baio_console::device::Device;
use baio_console::exit_status::ExitStatus;
use baio_console::failure::Failure;
use baio_console::mount::Mount;
use baio_console::output::{Answer, Tone, wrapped};
use clap::Args;
use serde::Serialize;

use crate::disk::{self, Figure};
use crate::figures::command_line::CommandLine;
use crate::figures::interrupt;
use crate::report::work_dir::{WorkDir, remove_left_over};
use promises::{Carried, Killed};

mod promises;

/// `baio tour`
#[derive(Debug, Args)]
#[command(after_help = "\
It works in a directory of its own below DIR, on files of 0.4 GiB, for about half a minute, and removes them. Nothing that exists is
written to. Other work on the disk shows in the figures.
Exit status: 0 done, 1 something could not be tried, 3 bytes or records were not what they must be

Examples:
  baio tour
  baio tour --json")]
pub struct TourArgs {
    /// A directory on the disk to look at [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Bytes that the files of a tour take at most.
const ROOM: u64 = 400 << 20;

/// How often each figure is taken, and how long that is.
const ROUNDS: usize = 3;
const EACH: Duration = Duration::from_millis(650);

/// What a tour has shown.
#[derive(Debug, Serialize)]
pub(crate) struct Tour {
    /// Does baio work well here? As `baio doctor` says it.
    verdict: String,
    directory: PathBuf,
    file_system: Option<String>,
    device: Option<String>,
    figures: Vec<Figure>,
    carried: Carried,
    killed: Killed,
    advice: Vec<String>,
    seconds: f64,
}

/// Takes it.
pub(crate) fn run(args: &TourArgs) -> Result<Tour, Failure> {
    let begun = Instant::now();
    let parent = whole(args.dir.as_deref())?;
    interrupt::watch("tour")?;
    remove_left_over(&parent, &[]);
    refuse_without_room(&parent)?;
    let work = WorkDir::make(&parent, false).map_err(|failure| failure.of("tour"))?;
    let dir = work.path();
    let shown = || -> Result<_, String> {
        let (verdict, figures) = (verdict(dir)?, figures(&dir.join("file"))?);
        let carried = promises::there_and_back(&dir.join("volume"))?;
        Ok((verdict, figures, carried, promises::kill(&dir.join("log"))?))
    };
    let (verdict, figures, carried, killed) = shown().map_err(|said| stopped(dir, &said))?;
    let mount = std::fs::File::open(dir).ok().and_then(Mount::of);
    Ok(Tour {
        verdict,
        file_system: mount.map(|mount| mount.file_system),
        device: Device::under(dir).ok().flatten().map(|device| device.name),
        directory: parent,
        advice: disk::advice(&figures),
        figures,
        carried,
        killed,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// The directory to look at, whole: what is given on to commands must be no option of theirs, as `-x` would be.
fn whole(dir: Option<&Path>) -> Result<PathBuf, Failure> {
    let whole = match dir {
        Some(dir) => std::path::absolute(dir),
        None => std::env::current_dir(),
    };
    whole.map_err(|error| {
        let on = dir.map_or_else(|| "the current directory".to_owned(), |dir| dir.display().to_string());
        Failure::from_io("tour", &error)
            .on(on)
            .needing("a directory that is there")
            .cured_by("name one by --dir")
    })
}

fn figures(path: &Path) -> Result<Vec<Figure>, String> {
    let work = disk::Work {
        path,
        size: disk::SIZE,
        only_reads: false,
        rounds: ROUNDS,
        each: EACH,
    };
    disk::take(&work, |_| {})
}

/// The first sentence of `baio doctor`.
fn verdict(dir: &Path) -> Result<String, String> {
    let words = ["doctor", &dir.display().to_string(), "--json"].map(str::to_owned);
    let said = CommandLine::own(words).finish()?.stdout;
    let said: serde_json::Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
    Ok(said["verdict"].as_str().unwrap_or_default().to_owned())
}

fn stopped(dir: &Path, said: &str) -> Failure {
    match interrupt::check() {
        Err(came) => Failure::new("tour", "EINTR", came.to_string()),
        Ok(()) => Failure::new("tour", "EIO", said.to_owned())
            .on(dir.display().to_string())
            .cured_by("see what `baio doctor` says of this directory, or name another one by --dir"),
    }
}

fn refuse_without_room(dir: &Path) -> Result<(), Failure> {
    // A directory that cannot be asked is told about when something is made in it.
    let free = rustix::fs::statvfs(dir).map_or(u64::MAX, |system| system.f_bavail.saturating_mul(system.f_frsize));
    if free >= ROOM {
        return Ok(());
    }
    Err(Failure::new("tour", "ENOSPC", format!("{free} bytes are free"))
        .on(dir.display().to_string())
        .needing(format!("{ROOM} bytes free on the file system"))
        .cured_by("name another directory by --dir"))
}

impl Answer for Tour {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", wrapped(&self.verdict))?;
        let on =
            |what: &Option<String>, word: &str| what.as_ref().map_or_else(String::new, |what| format!("{word}{what}"));
        let (file_system, device) = (on(&self.file_system, ", "), on(&self.device, " on "));
        let disk = format!("This disk: {}{file_system}{device}", self.directory.display());
        writeln!(out, "{}", wrapped(&disk))?;
        writeln!(out)?;
        disk::table(&self.figures).write(out)?;
        writeln!(out)?;
        writeln!(out, "{}", wrapped(&self.carried.to_string()))?;
        writeln!(out, "{}", wrapped(&self.killed.to_string()))?;
        writeln!(out, "\nWhat follows:")?;
        for sentence in &self.advice {
            writeln!(out, "{}", wrapped(&format!("- {sentence}")))?;
        }
        writeln!(
            out,
            "\nIt took {:.0} s, and nothing is left of it. Next:\n  \
             baio stress --help      one of these figures, as long and as large as you like\n  \
             baio report --quick     ours beside fio and blocking calls, as a page; minutes",
            self.seconds
        )
    }

    fn exit_status(&self) -> ExitStatus {
        match self.carried.same && self.killed.lost == 0 {
            true => ExitStatus::Success,
            false => ExitStatus::NotVerified,
        }
    }

    fn tone(&self, line: &str) -> Tone {
        match line {
            line if line.contains(" LOST.") || line.contains(" CHANGED") => Tone::Bad,
            line if line.starts_with("This disk") || line.starts_with("What follows") => Tone::Heading,
            _ => Tone::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else each command takes the path for options: `baio tour --dir=-x`.
    #[test]
    fn what_is_given_on_is_a_whole_path() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(whole(Some(Path::new("-x"))).unwrap(), here.join("-x"));
        assert_eq!(whole(None).unwrap(), here);
        assert_eq!(whole(Some(Path::new("/x"))).unwrap(), Path::new("/x"));
        assert!(whole(Some(Path::new(""))).is_err());
    }
}
