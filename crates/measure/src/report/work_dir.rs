//! The directory in which a report works: its own, gone when it ends unless it is to be kept; what a killed one left goes with the next.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use baio_console::failure::Failure;

/// A directory of our own that goes when the report ends.
pub(super) struct WorkDir {
    path: PathBuf,
    keeps: bool,
}

/// Whether working files stay. Whoever works on one asks when it is done with it, and nobody changes this meanwhile.
static KEEPS: AtomicBool = AtomicBool::new(false);

impl WorkDir {
    pub(super) fn make(parent: &Path, keeps: bool) -> Result<WorkDir, Failure> {
        // One that is to stay has a name that no later report takes for a left-over.
        let kept = if keeps { "kept-" } else { "" };
        let path = parent.join(format!("baio-report-{kept}{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| no_place(parent, &error))?;
        KEEPS.store(keeps, Ordering::Relaxed);
        Ok(WorkDir { path, keeps })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// An experiment is done with this file. The next one needs the room, unless files are kept.
pub(super) fn done_with(path: &Path) {
    if !KEEPS.load(Ordering::Relaxed) {
        let _ = std::fs::remove_file(path);
    }
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

/// Removes what a report that was interrupted left behind: our own directories, whose process is no more.
pub(super) fn remove_left_over(parent: &Path) {
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
        match std::fs::remove_dir_all(&path) {
            Ok(()) => eprintln!("report: removed {}, left by an interrupted report", path.display()),
            Err(error) => eprintln!(
                "report: cannot remove {}, left by an interrupted report: {error}",
                path.display()
            ),
        }
    }
}

/// The process whose working directory has this name; `None` for every other name.
pub(super) fn pid_in(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("baio-report-")?;
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
        assert_eq!(pid_in("baio-report-17"), Some(17));
        for name in [
            "baio-report-",
            "baio-report-017",
            "baio-report-+1",
            "baio-report-0",
            "baio-report-1x",
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
        remove_left_over(parent.path());
        assert!(!dead.exists() && alive.exists() && other.exists());
    }
}
