//! Files with results. Each is opened before anything is measured, so that nobody waits for results that can then not be kept; and
//! it may be new or an ordinary file, never the target, a volume or a device.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use baio_console::failure::Failure;
use baio_stress::{Ground, may_replace};
use serde::Serialize;

use super::args::LatencyArgs;
use super::posted::Told;
use super::{COMMAND, charts};

/// The files of a run.
pub(super) struct Sheets {
    csv: Option<Sheet>,
    svg: Option<Sheet>,
    html: Option<Sheet>,
}

/// The files that were written.
#[derive(Default, Serialize)]
pub(super) struct Written {
    csv: Option<PathBuf>,
    svg: Option<PathBuf>,
    html: Option<PathBuf>,
}

struct Sheet {
    path: PathBuf,
    file: File,
    /// It was not there before, and goes again if nothing is written to it.
    is_new: bool,
}

impl Sheets {
    /// Opens those that are asked for, and changes none that is there.
    pub(super) fn prepare(args: &LatencyArgs, ground: &Ground) -> Result<Sheets, Failure> {
        let mut taken = vec![identity(&ground.path)];
        let mut open = |option, path: &Option<PathBuf>| {
            let sheet = path.as_ref().map(|path| Sheet::open(option, path, &mut taken));
            sheet.transpose()
        };
        Ok(Sheets {
            csv: open("--csv", &args.csv)?,
            svg: open("--svg", &args.svg)?,
            html: open("--html", &args.html)?,
        })
    }

    pub(super) fn write(self, told: &Told) -> Result<Written, Failure> {
        let write =
            |sheet: Option<Sheet>, text: fn(&Told) -> String| sheet.map(|sheet| sheet.write(&text(told))).transpose();
        Ok(Written {
            csv: write(self.csv, csv)?,
            svg: write(self.svg, charts::svg)?,
            html: write(self.html, charts::html)?,
        })
    }
}

/// What the kernel calls it; `None` for what is not there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

impl Sheet {
    fn open(option: &str, path: &Path, taken: &mut Vec<Option<(u64, u64)>>) -> Result<Sheet, Failure> {
        may_replace(COMMAND, path)?;
        let before = identity(path);
        if before.is_some() && taken.contains(&before) {
            return Err(
                Failure::usage(COMMAND, "the target, or another result, is in this very file")
                    .on(format!("{option} {}", path.display()))
                    .needing("a file of its own for each result")
                    .cured_by("name another file"),
            );
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| {
            Failure::from_io(COMMAND, &error)
                .on(path.display().to_string())
                .needing("a file that can be written, in a directory that is there")
                .cured_by("check the path and its permissions, or name another one")
        })?;
        taken.push(identity(path));
        Ok(Sheet {
            path: path.to_owned(),
            file,
            is_new: before.is_none(),
        })
    }

    fn write(mut self, text: &str) -> Result<PathBuf, Failure> {
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| {
            Failure::from_io(COMMAND, &error)
                .on(self.path.display().to_string())
                .needing("room for the results")
                .cured_by("free some space, or name a file elsewhere")
        })?;
        self.is_new = false;
        Ok(self.path.clone())
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        if self.is_new {
            // There is nobody to tell: another failure is under way.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A line a write: both times, in microseconds since the first write of its run was enqueued.
fn csv(told: &Told) -> String {
    let mut text = "scheduler,write,offset,enqueued_us,posted_us,known_us,latency_us,batch,failed\n".to_owned();
    for run in &told.runs {
        let scheduler = run.scheduler.as_deref().unwrap_or("");
        for (index, times) in run.times.iter().enumerate() {
            let us = |time: std::time::Duration| time.as_nanos() as f64 / 1000.0;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{scheduler},{index},{},{:.3},{:.3},{:.3},{:.3},{},{}",
                times.offset,
                us(times.enqueued),
                us(times.posted),
                us(times.known),
                us(times.latency()),
                times.batch,
                u8::from(times.failed),
            );
        }
    }
    text
}
