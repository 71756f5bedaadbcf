//! A memory cgroup for a peer, so that the kernel's cache has no more memory than ours. Version 2 or 1 of cgroups, whichever
//! has the memory controller here; needs root. It is removed when it is dropped, and what an interrupted report left goes
//! with the next one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use baio_console::diagnostics;

use super::work_dir::{is_alive, pid_in};

pub(super) struct MemoryCgroup {
    path: PathBuf,
}

impl MemoryCgroup {
    /// One that holds at most `bytes` bytes, the page cache of its processes among them.
    ///
    /// # Errors
    /// Why there can be none here.
    pub(super) fn make(bytes: u64) -> Result<MemoryCgroup, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| format!("/proc/self/mounts: {error}"))?;
        let (parent, limit) = place(&mounts, |path| fs::read_to_string(path).unwrap_or_default())?;
        remove_left_over(&parent);
        let path = parent.join(format!("baio-report-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("make {}: {error}", path.display()))?;
        let made = MemoryCgroup { path };
        let file = made.path.join(limit);
        fs::write(&file, bytes.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A process that has just ended may still be on its way out.
        for _ in 0..20 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        diagnostics::say(format_args!("report: cannot remove {}", self.path.display()));
    }
}

/// Where memory cgroups are made, and the file of the limit.
fn place(mounts: &str, read: impl Fn(&Path) -> String) -> Result<(PathBuf, &'static str), String> {
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, at, kind, options, ..] = words[..] else {
            continue;
        };
        let at = Path::new(at);
        if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
            return Ok((at.to_owned(), "memory.limit_in_bytes"));
        }
        let handed_on = || read(&at.join("cgroup.subtree_control"));
        if kind == "cgroup2" && handed_on().split_whitespace().any(|word| word == "memory") {
            return Ok((at.to_owned(), "memory.max"));
        }
    }
    Err("no memory cgroups are to be had here".into())
}

fn remove_left_over(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().and_then(pid_in).is_some_and(|pid| !is_alive(pid)) {
            // One with processes in it refuses.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_version_is_found_where_it_has_the_memory_controller() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /cg/cpu cgroup rw,cpu 0 0\ncgroup /cg/memory cgroup rw,memory 0 0\n";
        let nothing = |_: &Path| String::new();
        assert_eq!(place(one, nothing), Ok(("/cg/memory".into(), "memory.limit_in_bytes")));
        let two = "cgroup2 /cg cgroup2 rw 0 0\n";
        let with = |path: &Path| {
            assert_eq!(path, Path::new("/cg/cgroup.subtree_control"));
            "cpu memory\n".to_owned()
        };
        assert_eq!(place(two, with), Ok(("/cg".into(), "memory.max")));
        assert!(place(two, nothing).is_err());
    }
}
