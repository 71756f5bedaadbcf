//! Where an experiment on our own cache works: a plain file, and a segment as large on the same file system. What must hold on one
//! must hold on the other. The kernel's side works on the file both times, for it knows no segments.

use std::path::{Path, PathBuf};

use baio_console::failure::Failure;

use crate::figures::stress::segment_target;
use crate::report::Setting;
use crate::report::files::{settle, written_file, written_segment};

const SEGMENT: &str = "pages";

/// A file and a segment, both really written; they go when this does, for the next experiment needs the room.
pub(super) struct Places([Place; 2]);

/// One of the two.
pub(super) struct Place {
    /// What a comparison's name begins with.
    pub(super) said: &'static str,
    /// As `stress` is told.
    pub(super) target: String,
    /// The file, or the volume's.
    path: PathBuf,
}

impl Places {
    /// Both, of `bytes` bytes, called after the experiment.
    pub(super) fn make(setting: &Setting, experiment: &str, bytes: u64) -> Result<Places, Failure> {
        let path = |ending: &str| setting.dir.join(format!("{experiment}.{ending}"));
        let (file, volume) = (path("file"), path("img"));
        let places = Places([
            Place {
                said: "file",
                target: file.display().to_string(),
                path: file,
            },
            Place {
                said: "segment",
                target: segment_target(&volume, SEGMENT),
                path: volume,
            },
        ]);
        let [file, segment] = &places.0;
        written_file(&file.path, bytes)?;
        written_segment(&segment.path, SEGMENT, bytes)?;
        Ok(places)
    }

    /// The file is always there; the segment where the experiment is in full, or is to have it in the quick report too.
    pub(super) fn chosen(&self, segment: bool) -> &[Place] {
        &self.0[..1 + usize::from(segment)]
    }

    /// Where the kernel's side works.
    pub(super) fn file(&self) -> &Path {
        &self.0[0].path
    }
}

impl Place {
    /// Everything of it is on its device, and none of it in the kernel's cache.
    pub(super) fn settled(&self) -> impl Fn() -> Result<(), String> + use<> {
        let path = self.path.clone();
        move || settle(&path)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for place in &self.0 {
            let _ = std::fs::remove_file(&place.path);
        }
    }
}
