//! Block devices for tests: a loop device over a file, given back at the end. Needs root, and says so when it is not.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program; what it printed, or what it complained of.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// A loop device over a file.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    /// With what more `losetup` is told, such as a sector size.
    pub(crate) fn with(file: &Path, options: &[&str]) -> Result<Loop, String> {
        if !rustix::process::geteuid().is_root() {
            return Err(super::NEEDS_ROOT.into());
        }
        let words = [options, &["--find", "--show", file.to_str().unwrap()]].concat();
        run("losetup", &words).map(|path| Loop(path.into()))
    }

    pub(crate) fn over(file: &Path) -> Result<Loop, String> {
        Loop::with(file, &[])
    }

    /// Over a new sparse file; `None`, and a word about it, where there are no loop devices.
    pub(crate) fn new(dir: &Path, size_bytes: u64, options: &[&str]) -> Option<Loop> {
        let file = dir.join("backing");
        std::fs::File::create(&file).unwrap().set_len(size_bytes).unwrap();
        Loop::with(&file, options)
            .inspect_err(|why| super::skip(&format!("no loop device: {why}")))
            .ok()
    }

    pub(crate) fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", self.name()]);
    }
}

/// A mounted directory.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    pub(crate) fn at(device: &Path, point: &Path) -> Result<Mounted, String> {
        run("mount", &[device.to_str().unwrap(), point.to_str().unwrap()])?;
        Ok(Mounted(point.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &[self.0.to_str().unwrap()]);
    }
}
