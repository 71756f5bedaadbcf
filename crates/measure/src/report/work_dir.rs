//! The directory in which a report works: its own, gone when it ends unless it is to be kept; what a killed one left goes with the next.
//!
//! A report holds a lock on its directory (flock(2)) as long as it lives. Its process's number alone would not do: a report in another
//! PID namespace has one that is nobody's here. Where the file system knows no locks the number must do.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use baio_console::diagnostics;
use baio_console::failure::Failure;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A directory of our own that goes when the report ends.
pub(crate) struct WorkDir {
    path: PathBuf,
    keeps: bool,
    /// Locked. Processes that the report starts do not have it.
    _lock: Option<File>,
}

/// Names that are tried: reports of other PID namespaces may have the same number.
const NAMES: u32 = 100;

/// Whether working files stay. Whoever works on one asks when it is done with it, and nobody changes this meanwhile.
static KEEPS: AtomicBool = AtomicBool::new(false);

impl WorkDir {
    pub(crate) fn make(parent: &Path, keeps: bool) -> Result<WorkDir, Failure> {
        // One that is to stay has a name that no later report takes for a left-over.
        let kept = if keeps { "kept-" } else { "" };
        let name = format!("baio-report-{kept}{}", std::process::id());
        // It has its name only when it is locked, or another report could find it between the two.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let fresh = parent.join(format!(".{name}-{}.new", now.as_nanos()));
        std::fs::create_dir(&fresh).map_err(|error| no_place(parent, &error))?;
        let lock = locked(&fresh).ok();
        let path = named(parent, &name, &fresh).map_err(|error| {
            let _ = std::fs::remove_dir(&fresh);
            no_place(parent, &error)
        })?;
        KEEPS.store(keeps, Ordering::Relaxed);
        Ok(WorkDir {
            path,
            keeps,
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Where one experiment works. Whatever it made goes when it ends, also by a failure: the others need the room.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn make(dir: &Path, experiment: &str) -> io::Result<Place> {
        let path = dir.join(experiment);
        std::fs::create_dir(&path)?;
        Ok(Place(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !KEEPS.load(Ordering::Relaxed) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// What an experiment needs.
pub(super) struct Need<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: u64,
    /// What makes it less.
    pub(super) less_by: &'a str,
}

/// Refuses to begin what there is no room for. One of the experiments works at a time.
pub(super) fn refuse_without_room<'a>(dir: &Path, needs: impl Iterator<Item = Need<'a>>) -> Result<(), Failure> {
    let Some(Need { name, bytes, less_by }) = needs.max_by_key(|need| need.bytes) else {
        return Ok(());
    };
    // A directory that cannot be asked is told about when something is made in it.
    let Ok(system) = rustix::fs::statvfs(dir) else {
        return Ok(());
    };
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    if bytes <= free {
        return Ok(());
    }
    let said = format!("`{name}` works on {bytes} bytes, and {free} bytes are free");
    Err(Failure::new("report", "ENOSPC", said)
        .on(dir.display().to_string())
        .needing(format!("{bytes} bytes free on the file system"))
        .cured_by(format!(
            "name another directory by --dir, {less_by}, or the experiments that fit by --only"
        )))
}

/// An experiment is done with this file. The next one needs the room, unless files are kept.
pub(super) fn done_with(path: &Path) {
    if !KEEPS.load(Ordering::Relaxed) {
        let _ = std::fs::remove_file(path);
    }
}

/// Gives it the first name that is free.
fn named(parent: &Path, name: &str, fresh: &Path) -> io::Result<PathBuf> {
    let mut refused = io::Error::from(ErrorKind::AlreadyExists);
    for number in 1..=NAMES {
        let path = parent.join(if number == 1 {
            name.to_owned()
        } else {
            format!("{name}.{number}")
        });
        // A directory that is empty would be replaced, and it may be another's that has just begun.
        let renamed = rustix::fs::renameat_with(
            rustix::fs::CWD,
            fresh,
            rustix::fs::CWD,
            &path,
            rustix::fs::RenameFlags::NOREPLACE,
        );
        match renamed {
            Ok(()) => return Ok(path),
            Err(Errno::EXIST) => {}
            // This file system cannot tell the two apart.
            Err(Errno::INVAL) if !path.exists() => return std::fs::rename(fresh, &path).map(|()| path),
            Err(Errno::INVAL) => {}
            Err(error) => {
                refused = error.into();
                break;
            }
        }
    }
    Err(refused)
}

/// A lock that ends with what is given.
fn locked(path: &Path) -> io::Result<File> {
    let dir = File::open(path)?;
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    Ok(dir)
}

/// Does a report that lives work in it, wherever its process is?
fn is_in_use(path: &Path) -> bool {
    locked(path).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn no_place(parent: &Path, error: &io::Error) -> Failure {
    let (need, cure) = match error.kind() {
        ErrorKind::NotFound => ("a directory that exists", "make it, or name another one by --dir"),
        ErrorKind::NotADirectory => ("a directory", "name one by --dir"),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ("a directory that may be written to", "name another one by --dir")
        }
        _ => ("a directory in which files can be made", "name another one by --dir"),
    };
    let failure = Failure::from_io("report", error).on(parent.display().to_string());
    failure.needing(need).cured_by(cure)
}

/// Removes what a report that was interrupted left behind: our own directories that nobody has locked, and whose process is no more.
/// One in which something of the caller's lies stays.
pub(crate) fn remove_left_over(parent: &Path, of_the_caller: &[Option<PathBuf>]) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return; // What is wrong with it will be told when our own directory is made.
    };
    for entry in entries.flatten() {
        let is_directory = entry.metadata().is_ok_and(|metadata| {
            // Of the entry itself: a symbolic link does not count.
            metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw()
        });
        let name = entry.file_name();
        if !is_directory || name.to_str().and_then(pid_in).is_none_or(is_alive) {
            continue;
        }
        let path = entry.path();
        let whole = path.canonicalize();
        let is_wanted = whole.is_ok_and(|whole| of_the_caller.iter().flatten().any(|one| one.starts_with(&whole)));
        if is_wanted || is_in_use(&path) {
            continue;
        }
        match std::fs::remove_dir_all(&path) {
            Ok(()) => diagnostics::say(format_args!(
                "report: removed {}, left by an interrupted report",
                path.display()
            )),
            Err(error) => diagnostics::say(format_args!(
                "report: cannot remove {}, left by an interrupted report: {error}",
                path.display()
            )),
        }
    }
}

/// The process whose working directory has this name; `None` for every other name.
pub(super) fn pid_in(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("baio-report-")?;
    let (digits, number) = digits.split_once('.').unwrap_or((digits, "2"));
    let is_number = number
        .parse()
        .is_ok_and(|of: u32| of > 1 && of <= NAMES && of.to_string() == number);
    if !is_number {
        return None;
    }
    let pid: u32 = digits.parse().ok()?;
    (pid > 0 && pid.to_string() == digits).then_some(pid)
}

/// Is a process of this number running, other than this one, which has left nothing yet?
pub(super) fn is_alive(pid: u32) -> bool {
    let other = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let gone = |pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
    pid != std::process::id() && other.is_some_and(|pid| !gone(pid))
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !self.keeps {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_ours() {
        assert_eq!([pid_in("baio-report-17"), pid_in("baio-report-17.2")], [Some(17); 2]);
        for name in [
            "baio-report-",
            "baio-report-017",
            "baio-report-+1",
            "baio-report-0",
            "baio-report-1x",
            "baio-report-1.1",
            "baio-report-1.x",
            "baio-report-1.2.3",
            "baio-report-kept-1",
            "17",
        ] {
            assert_eq!(pid_in(name), None, "{name}");
        }
    }

    #[test]
    fn only_what_a_dead_process_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let dead = parent.path().join(format!("baio-report-{}", child.id()));
        let alive = parent.path().join("baio-report-1");
        let other = parent.path().join(format!("baio-report-{}-mine", child.id()));
        for path in [&dead, &alive, &other] {
            std::fs::create_dir(path).unwrap();
        }
        remove_left_over(parent.path(), &[]);
        assert!(!dead.exists() && alive.exists() && other.exists());
    }

    #[test]
    fn what_a_report_of_another_namespace_works_in_stays() {
        let parent = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        // Its number is nobody's here, and yet it lives.
        let theirs = parent.path().join(format!("baio-report-{}", child.id()));
        std::fs::create_dir(&theirs).unwrap();
        let Ok(lock) = locked(&theirs) else {
            eprintln!("SKIPPED: this file system knows no locks");
            return;
        };
        remove_left_over(parent.path(), &[]);
        assert!(theirs.exists());
        drop(lock);
        remove_left_over(parent.path(), &[]);
        assert!(!theirs.exists());
    }

    #[test]
    fn two_of_one_number_have_a_directory_each() {
        let parent = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| WorkDir::make(parent.path(), false).unwrap());
        assert_ne!(one.path(), other.path());
        for dir in [&one, &other] {
            let name = dir.path().file_name().unwrap().to_str().unwrap();
            assert_eq!(pid_in(name), Some(std::process::id()));
        }
        // Neither takes the other for something that a process of its own number left.
        remove_left_over(parent.path(), &[]);
        assert!(one.path().exists() && other.path().exists());
        drop((one, other));
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
