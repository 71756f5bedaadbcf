//! A file for results: opened before anything is measured, so that no results are taken that cannot be kept, and gone again if nothing
//! was written to it.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One that is open. What is in it stays until there is something to write.
pub struct ResultFile {
    path: PathBuf,
    file: File,
    /// It was not there before, and goes when this is dropped.
    is_new: bool,
}

impl ResultFile {
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<ResultFile> {
        // A link, also to what is not there, is no file of ours.
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let is_new = made.is_ok();
        let file = made.or_else(|_| OpenOptions::new().write(true).create(true).truncate(false).open(path))?;
        let path = path.to_owned();
        Ok(ResultFile { path, file, is_new })
    }

    /// To write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It has its results.
    pub fn keep(&mut self) {
        self.is_new = false;
    }
}

impl Drop for ResultFile {
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
