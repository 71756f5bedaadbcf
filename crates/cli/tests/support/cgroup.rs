//! A memory cgroup of a test's own, of either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One with a limit, gone with this.
pub(crate) struct Cgroup {
    path: PathBuf,
    is_second: bool,
}

impl Cgroup {
    /// `None`: there is no hierarchy of memory here in which this process may make one.
    pub(crate) fn make(name: &str, limit_bytes: u64) -> Option<Cgroup> {
        let (parent, is_second) = [("/sys/fs/cgroup/memory", false), ("/sys/fs/cgroup", true)]
            .into_iter()
            .find(|(parent, _)| Path::new(parent).join("cgroup.procs").exists())?;
        let path = Path::new(parent).join(format!("baio-test-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let made = Cgroup { path, is_second };
        let limit = if is_second {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        fs::write(made.path.join(limit), limit_bytes.to_string()).ok()?;
        Some(made)
    }

    /// Runs this program inside.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 >\"$0\" && exec \"$@\""]);
        command.arg(self.path.join("cgroup.procs")).arg(program);
        command
    }

    /// The most that it had, in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        let file = if self.is_second {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Processes that the kernel has killed in it.
    pub(crate) fn killed(&self) -> u64 {
        let file = if self.is_second {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
