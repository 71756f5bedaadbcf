//! What `--target` names: the thing that a report is about.
//!
//! ```text
//! DIR               where the files of the experiments are made, as by --dir
//! DEVICE or FILE    it is read, and never written: the experiments that only read run on it
//! ```
//!
//! All of it is looked at before anything is measured, so that a mistyped name ends the report at its beginning.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use baio_console::failure::Failure;
use baio_console::size::format_size;
use baio_console::target::Target as Meant;
use baio_engine::{Caching, Create, Descriptions, File, Open, SetupError};

use crate::report::args::ReportArgs;

const OPTION: &str = "--target";

/// What may be named, for every refusal.
const NEED: &str = "a directory, a block device or a file that is there";

/// Bytes that a target must have.
pub(super) const BYTES_MIN: u64 = 1 << 20;

/// A block device or a file that experiments read instead of files of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(super) path: PathBuf,
    pub(super) is_device: bool,
    pub(super) bytes: u64,
}

impl Target {
    /// Where the working files go, and what is read instead of them; none of a directory, which is for the working files.
    ///
    /// # Errors
    /// It is not there, may not be read, or is nothing that can be read at any offset.
    pub(super) fn of(args: &ReportArgs) -> Result<(PathBuf, Option<Target>), Failure> {
        let dir = whole(args.dir.as_deref().unwrap_or(Path::new(".")), "--dir")?;
        let Some(typed) = &args.target else {
            return Ok((dir, None));
        };
        let path = match typed.meant("report")? {
            Meant::File(path) => path,
            Meant::Segment(segment) if !segment.volume.is_served() => {
                return Err(refused("it is a segment", typed)
                    .cured_by("name its directory, where the report makes segments of its own"));
            }
            Meant::Served(_) | Meant::Segment(_) => {
                return Err(
                    refused("a broker serves it, and no other program can be asked the same", typed)
                        .cured_by(format!("`baio stress {typed}` measures it alone")),
                );
            }
        };
        let path = whole(&path, OPTION)?;
        let metadata = path.metadata().map_err(|error| unreadable(&path, &error))?;
        if metadata.is_dir() {
            return match &args.dir {
                Some(other) if !is_same(other, &path) => Err(refused("--dir names another directory", path.display())
                    .cured_by("leave one of the two out: a directory is the same by either")),
                _ => Ok((path, None)),
            };
        }
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(refused("it cannot be read at any offset", path.display()).cured_by("name another one"));
        }
        let bytes = readable_bytes(&path)?;
        if bytes < BYTES_MIN {
            let few = format!("{OPTION}: {bytes} bytes are too few to work on");
            let refused = Failure::usage("report", few).on(path.display().to_string());
            return Err(refused.needing("at least 1M").cured_by("name a larger one"));
        }
        Ok((dir, Some(Target { path, is_device, bytes })))
    }

    /// As it would be typed.
    pub(super) fn typed(&self) -> String {
        self.path.display().to_string()
    }

    /// What it is, in a phrase.
    pub(super) fn said(&self) -> String {
        let kind = if self.is_device { "block device" } else { "file" };
        format!("{}, a {kind} of {}, only read", self.typed(), format_size(self.bytes))
    }
}

/// So that commands can be run again from anywhere.
fn whole(path: &Path, option: &str) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::from_io("report", &error).on(option))
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn refused(said: &str, target: impl std::fmt::Display) -> Failure {
    Failure::usage("report", format!("{OPTION}: {said}"))
        .on(target.to_string())
        .needing(NEED)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let cure = match error.kind() {
        ErrorKind::NotFound => "check the path of --target",
        ErrorKind::PermissionDenied => {
            "run as root, or as a user who may read it (of a disk: the members of its group)"
        }
        _ => "see what is wrong with it, or name another one",
    };
    refused(&error.to_string(), path.display()).cured_by(cure)
}

/// Opens it as the experiments do, for reading, past the kernel's cache.
fn readable_bytes(path: &Path) -> Result<u64, Failure> {
    let options = Open {
        descriptions: Descriptions::Only(Caching::Direct),
        create: Create::Never,
        ..Open::read()
    };
    let of_size = |errno| SetupError::new("measure", path.display().to_string(), errno);
    let bytes = File::open(path, &options).and_then(|file| file.size().map_err(of_size));
    bytes.map_err(|error| unreadable(path, &std::io::Error::from_raw_os_error(error.errno.raw())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn of(words: &[&str]) -> Result<(PathBuf, Option<Target>), Failure> {
        let command = ReportArgs::augment_args(clap::Command::new("report"));
        let words = std::iter::once(&"report").chain(words);
        let matches = command.try_get_matches_from(words).unwrap();
        Target::of(&ReportArgs::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn a_directory_is_where_the_files_are_made() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, other] = [one.path(), other.path()].map(|path| path.to_str().unwrap());
        assert_eq!(of(&["--target", one]).unwrap(), (one.into(), None));
        let again = format!("{one}/.");
        assert_eq!(of(&["--target", one, "--dir", &again]).unwrap(), (one.into(), None));
        let both = of(&["--target", one, "--dir", other]).unwrap_err().to_string();
        assert!(both.contains("leave one of the two out"), "{both}");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_cure() {
        let dir = tempfile::tempdir().unwrap();
        let small = dir.path().join("small");
        std::fs::write(&small, [1; 1000]).unwrap();
        let missing = dir.path().join("missing");
        for (target, cure) in [
            (missing.to_str().unwrap(), "check the path"),
            ("/dev/null", "name another one"),
            (small.to_str().unwrap(), "name a larger one"),
            ("/nowhere#segment", "name its directory"),
            ("unix:/nowhere", "baio stress"),
            ("unix:/nowhere#segment", "baio stress"),
        ] {
            let refused = of(&["--target", target]).unwrap_err().to_string();
            assert!(refused.contains("needed: ") && refused.contains(cure), "{refused}");
        }
        assert!(!missing.exists());
    }
}
