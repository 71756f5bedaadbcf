//! Where an experiment works: a plain file, or a segment as large on the same file system. What must hold on one must hold on the
//! other. The kernel's side works on the file both times, for it knows no segments, unless it goes past its cache: then it has the
//! byte range of the volume's file in which the segment lies.

use std::path::PathBuf;

use baio::{Core, Identity};
use baio_console::failure::Failure;

use crate::figures::stress::segment_target;
use crate::report::files::{settle, written_file, written_segment};
use crate::report::work_dir::done_with;
use crate::report::{Setting, storage_failure};

const SEGMENT: &str = "pages";

/// A file or a segment, really written; it goes when this does, for the next experiment needs the room.
pub(super) struct Site {
    /// What a comparison's name begins with.
    pub(super) said: &'static str,
    /// As `stress` is told.
    pub(super) target: String,
    /// The file, or the volume's.
    pub(super) path: PathBuf,
    /// Where its bytes begin in that.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Site {
    /// A plain file, called after the experiment.
    pub(super) fn file(setting: &Setting, experiment: &str, bytes: u64) -> Result<Site, Failure> {
        Site::at(setting.dir.join(format!("{experiment}.file")), bytes)
    }

    pub(super) fn at(path: PathBuf, bytes: u64) -> Result<Site, Failure> {
        written_file(&path, bytes)?;
        Ok(Site {
            said: "file",
            target: path.display().to_string(),
            path,
            offset: 0,
            bytes,
        })
    }

    /// A segment of a volume of its own, called after the experiment.
    pub(super) fn segment(setting: &Setting, experiment: &str, bytes: u64) -> Result<Site, Failure> {
        let path = setting.dir.join(format!("{experiment}.img"));
        written_segment(&path, SEGMENT, bytes)?;
        let who = Identity::effective();
        let segment = Core::inspect_segment(&path, who, who.uid, SEGMENT).map_err(storage_failure)?;
        let volume = Core::inspect_volume(&path).map_err(storage_failure)?;
        Ok(Site {
            said: "segment",
            target: segment_target(&path, SEGMENT),
            path,
            offset: volume.data_at_bytes + segment.start_block * u64::from(volume.block_size),
            bytes,
        })
    }

    /// One of each.
    pub(super) fn both(setting: &Setting, experiment: &str, bytes: u64) -> Result<[Site; 2], Failure> {
        Ok([
            Site::file(setting, experiment, bytes)?,
            Site::segment(setting, experiment, bytes)?,
        ])
    }

    /// Everything of it is on its device, and none of it in the kernel's cache.
    pub(super) fn settled(&self) -> impl Fn() -> Result<(), String> + use<> {
        let path = self.path.clone();
        move || settle(&path)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        done_with(&self.path);
    }
}
