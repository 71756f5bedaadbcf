//! Where an experiment works: a plain file, or a segment as large on the same file system. What must hold on one must hold on the
//! other. The kernel's side works on the file both times, for it knows no segments, unless it goes past its cache: then it has the
//! byte range of the volume's file in which the segment lies.

use std::path::PathBuf;

use baio::{Core, Identity};
use baio_console::failure::Failure;

use crate::figures::stress::segment_target;
use crate::report::files::{written_file, written_segment};
use crate::report::setting::{Setting, storage_failure};
use crate::report::target::Target;
use crate::report::work_dir::done_with;

const SEGMENT: &str = "pages";

/// A file or a segment, really written; it goes when this does, for the next experiment needs the room. Or what `--target` names, which
/// is only read, and stays.
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
    is_ours: bool,
}

impl Site {
    /// What an experiment reads that writes nothing: what `--target` names, or one of each kind of our own.
    pub(super) fn to_read(setting: &Setting, experiment: &str, bytes: u64) -> Result<Vec<Site>, Failure> {
        match Site::target(setting, bytes) {
            Some(site) => Ok(vec![site]),
            None => Site::both(setting, experiment, bytes).map(Vec::from),
        }
    }

    /// The same for an experiment that works on a file alone.
    pub(super) fn file_to_read(setting: &Setting, experiment: &str, bytes: u64) -> Result<Site, Failure> {
        Site::target(setting, bytes).map_or_else(|| Site::file(setting, experiment, bytes), Ok)
    }

    /// The beginning of what `--target` names.
    fn target(setting: &Setting, bytes: u64) -> Option<Site> {
        let Target {
            path,
            is_device,
            bytes: there,
        } = setting.target.as_ref()?;
        Some(Site {
            said: if *is_device { "device" } else { "file" },
            target: path.display().to_string(),
            path: path.clone(),
            offset: 0,
            bytes: bytes.min(*there),
            is_ours: false,
        })
    }

    /// Do its bytes end where those end that are read? Behind a part of something larger there is more to read ahead.
    pub(super) fn is_whole(&self) -> bool {
        self.is_ours
    }

    /// What `stress` is told further: how much of somebody else's it may use. Of ours it uses all.
    pub(super) fn words(&self) -> String {
        match self.is_ours {
            true => String::new(),
            false => format!("--size {}", self.bytes),
        }
    }

    /// The same for fio, which must neither write nor make what is not ours.
    pub(super) fn fios_words(&self) -> &'static str {
        match self.is_ours {
            true => "",
            false => "--readonly --allow_file_create=0",
        }
    }

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
            is_ours: true,
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
            is_ours: true,
        })
    }

    /// One of each.
    pub(super) fn both(setting: &Setting, experiment: &str, bytes: u64) -> Result<[Site; 2], Failure> {
        Ok([
            Site::file(setting, experiment, bytes)?,
            Site::segment(setting, experiment, bytes)?,
        ])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.is_ours {
            done_with(&self.path);
        }
    }
}
