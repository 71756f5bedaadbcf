//! A file with results. It is opened before anything is measured, so that no results are taken that cannot be kept. It may be new or an
//! ordinary file, never the target, a volume or a device.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use baio_console::failure::Failure;
use baio_console::printable::readable;
use baio_stress::{ResultFile, may_replace};

use super::COMMAND;

/// One that is open, and not written yet.
pub(super) struct Sheet(ResultFile);

/// What the kernel calls it; `None` for what is not there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

impl Sheet {
    /// Opens the one that `option` names, and changes none that is there; `target` may not be there yet.
    pub(super) fn open(option: &str, path: &Path, target: &Path) -> Result<Sheet, Failure> {
        may_replace(COMMAND, path)?;
        let sheet = ResultFile::open(path).map_err(|error| {
            Failure::from_io(COMMAND, &error)
                .on(path.display().to_string())
                .needing("a file that can be written, in a directory that is there")
                .cured_by("check the path and its permissions, or name another one")
        })?;
        // Now that it is there, both have an identity if they are one.
        if identity(path) == identity(target) {
            return Err(Failure::usage(COMMAND, "the target is this very file")
                .on(format!("{option} {}", path.display()))
                .needing("a file of its own for the result")
                .cured_by("name another file"));
        }
        Ok(Sheet(sheet))
    }

    /// Writes it; where it is, as text.
    pub(super) fn write(mut self, text: &str) -> Result<String, Failure> {
        let mut file = self.0.file();
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(|error| {
            Failure::from_io(COMMAND, &error)
                .on(self.0.path().display().to_string())
                .needing("room for the results")
                .cured_by("free some space, or name a file elsewhere")
        })?;
        self.0.keep();
        Ok(readable(self.0.path()))
    }
}
