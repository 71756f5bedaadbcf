//! What `--target` names: the thing that a report is about.
//!
//! ```text
//! DIR                    where the files of the experiments are made, as by --dir
//! DEVICE or FILE         it is read, and never written: the experiments that only read run on it
//! unix:SOCKET#SEGMENT    a segment that a running broker serves: it is read through that broker
//! ```
//!
//! All of it is looked at before anything is measured, so that a mistyped name ends the report at its beginning.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use baio::{Access, Identity, Link, Options, Remote};
use baio_console::failure::Failure;
use baio_console::size::format_size;
use baio_console::target::{Served, Target as Meant};
use baio_engine::{Caching, Create, Descriptions, File, Open, SetupError};

use crate::report::args::ReportArgs;
use crate::report::{EXPERIMENTS, Experiment, WORKING_SET_STEP};

const OPTION: &str = "--target";

/// What may be named, for every refusal.
const NEED: &str = "a directory, a block device or a file that is there, or unix:SOCKET#SEGMENT of a broker that runs";

/// What experiments read instead of files of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A block device or a file, only read.
    Read { path: PathBuf, is_device: bool, bytes: u64 },
    /// A broker's segment, as `stress` is told.
    Served { typed: String, bytes: u64 },
}

/// The one that reads what a broker serves, and nothing else.
const SERVED: &[&str] = &["served"];

/// Those that need nothing but a file to read.
const READ: &[&str] = &[
    "random-read",
    "one-at-a-time",
    "cached-reads",
    "sequential-reads",
    "request-size",
    "batches",
];

impl Target {
    /// Of a file or a device.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Target::Read { path, .. } => Some(path),
            Target::Served { .. } => None,
        }
    }

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
            Meant::Segment { .. } => {
                return Err(refused("it is a segment, and no broker serves it here", typed)
                    .cured_by("serve its volume (`baio serve`), or name its directory, where the report makes segments of its own"));
            }
            Meant::Served(served) => return Ok((dir, Some(served_segment(&served)?))),
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
        enough(&path.display().to_string(), bytes)?;
        let target = Target::Read { path, is_device, bytes };
        Ok((dir, Some(target)))
    }

    /// How much of it an experiment may use, that would have so much of a file of its own.
    pub(super) fn at_most(&self, working_set: u64) -> u64 {
        let (Target::Read { bytes, .. } | Target::Served { bytes, .. }) = self;
        working_set.min(bytes / WORKING_SET_STEP * WORKING_SET_STEP)
    }

    /// As it would be typed.
    pub(super) fn typed(&self) -> String {
        match self {
            Target::Read { path, .. } => path.display().to_string(),
            Target::Served { typed, .. } => typed.clone(),
        }
    }

    /// What it is, in a phrase.
    pub(super) fn said(&self) -> String {
        match self {
            Target::Read { path, is_device, bytes } => {
                let kind = if *is_device { "block device" } else { "file" };
                format!("{}, a {kind} of {}, only read", path.display(), format_size(*bytes))
            }
            Target::Served { typed, bytes } => {
                format!(
                    "{typed}, a segment of {} that a broker serves, only read",
                    format_size(*bytes)
                )
            }
        }
    }

    fn runs(&self, name: &str) -> bool {
        match self {
            Target::Read { .. } => READ.contains(&name),
            Target::Served { .. } => SERVED.contains(&name),
        }
    }

    /// Of the experiments, those that are asked for and that this target is for; and the others in a sentence.
    ///
    /// # Errors
    /// One that is named is not for it.
    pub(super) fn choose(&self, only: &[String]) -> Result<(Vec<&'static Experiment>, String), Failure> {
        let names = |of: &[&Experiment]| of.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
        let all = || EXPERIMENTS.iter();
        let could: Vec<_> = all().filter(|one| self.runs(one.name)).collect();
        if !only.is_empty() {
            let named = crate::report::choose(only)?;
            return match named.iter().find(|one| !self.runs(one.name)) {
                None => Ok((named, String::new())),
                Some(one) => Err(
                    Failure::usage("report", format!("`{}` is not for what is only read", one.name))
                        .on("--only")
                        .needing(format!("an experiment that {OPTION} is for: {}", names(&could)))
                        .cured_by(format!("name one of these, or leave {OPTION} out")),
                ),
            };
        }
        let left: Vec<_> = crate::report::choose(&[])?;
        let left: Vec<_> = left.into_iter().filter(|one| !self.runs(one.name)).collect();
        let said = format!(
            "left out, because they write, or work on files of their own: {}",
            names(&left)
        );
        Ok((could, said))
    }
}

/// What no target is for, without which it has nothing to work on.
///
/// # Errors
/// It is named.
pub(super) fn refuse_without(chosen: &[&Experiment]) -> Result<(), Failure> {
    match chosen.iter().find(|one| SERVED.contains(&one.name)) {
        None => Ok(()),
        Some(one) => Err(
            Failure::usage("report", format!("`{}` needs something that is served", one.name))
                .on("--only")
                .needing(format!("{OPTION} unix:SOCKET#SEGMENT"))
                .cured_by("name the segment of a broker that runs"),
        ),
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

fn enough(target: &str, bytes: u64) -> Result<(), Failure> {
    if bytes >= WORKING_SET_STEP {
        return Ok(());
    }
    Err(
        Failure::usage("report", format!("{OPTION}: {bytes} bytes are too few to work on"))
            .on(target)
            .needing("at least 1M")
            .cured_by("name a larger one"),
    )
}

fn served_segment(served: &Served) -> Result<Target, Failure> {
    let Some(name) = &served.name else {
        return Err(refused("it is a whole volume", &served.typed).cured_by("name a segment of it, behind a `#`"));
    };
    let told = |error: baio::Error| Failure::from_storage("report", served.typed.as_str(), &error);
    let who = Identity::effective();
    let options = Options {
        identity: who,
        ..Options::default()
    };
    let volume = Remote::connect_with(&served.socket, "", &options).map_err(told)?;
    let owner = served.owner.unwrap_or(who.uid);
    let segment = volume.open_segment_of(owner, name, Access::Read).wait().map_err(told)?;
    let bytes = segment.size().wait().map_err(told)?;
    drop(segment);
    volume.close().map_err(told)?;
    enough(&served.typed, bytes)?;
    Ok(Target::Served {
        typed: served.typed.clone(),
        bytes,
    })
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
            ("/nowhere#segment", "baio serve"),
            ("unix:/nowhere", "name a segment"),
            ("unix:/nowhere#segment", "baio serve"),
        ] {
            let refused = of(&["--target", target]).unwrap_err().to_string();
            assert!(refused.contains("needed: ") && refused.contains(cure), "{refused}");
        }
        assert!(!missing.exists());
    }

    #[test]
    fn a_working_set_is_no_larger_than_the_target() {
        let target = Target::Read {
            path: "/f".into(),
            is_device: false,
            bytes: (5 << 20) + 17,
        };
        assert_eq!(target.at_most(1 << 30), 5 << 20);
        assert_eq!(target.at_most(2 << 20), 2 << 20);
    }

    #[test]
    fn what_writes_is_left_out_and_refused_by_name() {
        let target = Target::Read {
            path: "/f".into(),
            is_device: true,
            bytes: 1 << 30,
        };
        let (run, left) = target.choose(&[]).unwrap();
        let names: Vec<&str> = run.iter().map(|one| one.name).collect();
        assert_eq!(
            names.len(),
            READ.len(),
            "each name of the list is one of an experiment: {names:?}"
        );
        assert!(left.contains("durable-writes") && !left.contains("batches"), "{left}");
        assert!(target.choose(&["durable-writes".into()]).is_err());
        assert_eq!(target.choose(&["batches".into()]).unwrap().0.len(), 1);
        let served = Target::Served {
            typed: "unix:/s#a".into(),
            bytes: 1 << 30,
        };
        let names = |(run, _): (Vec<&Experiment>, String)| run.iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(served.choose(&[]).unwrap()), SERVED);
        assert!(served.choose(&["batches".into()]).is_err() && target.choose(&["served".into()]).is_err());
        assert!(refuse_without(&crate::report::choose(&["served".into()]).unwrap()).is_err());
    }
}
