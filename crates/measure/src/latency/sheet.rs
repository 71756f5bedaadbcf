//! A file with results. It is opened before anything is measured, so that no results are taken that cannot be kept. It may be new or an
//! ordinary file, never the target, a volume or a device.

use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use baio_console::failure::Failure;
use baio_console::printable::readable;
use baio_stress::may_replace;

use super::COMMAND;

/// One that is open, and not written yet.
pub(super) struct Sheet {
    path: PathBuf,
    file: File,
    /// It was not there before, and goes again if nothing is written to it.
    is_new: bool,
}

/// What the kernel calls it; `None` for what is not there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

impl Sheet {
    /// Opens the one that `option` names, and changes none that is there; `target` may not be there yet.
    pub(super) fn open(option: &str, path: &Path, target: &Path) -> Result<Sheet, Failure> {
        may_replace(COMMAND, path)?;
        // A link, also to what is not there, is no file of ours.
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let is_new = made.is_ok();
        let file = made.or_else(|_| OpenOptions::new().write(true).create(true).truncate(false).open(path));
        let file = file.map_err(|error| {
            Failure::from_io(COMMAND, &error)
                .on(path.display().to_string())
                .needing("a file that can be written, in a directory that is there")
                .cured_by("check the path and its permissions, or name another one")
        })?;
        let sheet = Sheet {
            path: path.to_owned(),
            file,
            is_new,
        };
        // Now that it is there, both have an identity if they are one.
        if identity(path) == identity(target) {
            return Err(Failure::usage(COMMAND, "the target is this very file")
                .on(format!("{option} {}", path.display()))
                .needing("a file of its own for the result")
                .cured_by("name another file"));
        }
        Ok(sheet)
    }

    /// Writes it; where it is, as text.
    pub(super) fn write(mut self, text: &str) -> Result<String, Failure> {
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| {
            Failure::from_io(COMMAND, &error)
                .on(self.path.display().to_string())
                .needing("room for the results")
                .cured_by("free some space, or name a file elsewhere")
        })?;
        self.is_new = false;
        Ok(readable(&self.path))
    }
}

impl Drop for Sheet {
    fn drop(&mut self) {
        let identity = |found: Metadata| (found.dev(), found.ino());
        let ours = self.file.metadata().map(identity).ok();
        // What has taken its name since is somebody else's.
        if self.is_new && ours.is_some() && ours == self.path.symlink_metadata().map(identity).ok() {
            // There is nobody to tell: another failure is under way.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
