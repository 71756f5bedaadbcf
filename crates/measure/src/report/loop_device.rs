//! A loop device over a file of ours. It goes with its last user, however this process ends. Needs root.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    _held: File,
}

/// Why this cannot be tried here; `None` where it is worth a try.
pub(super) fn missing(tools: &[&str]) -> Option<String> {
    if !geteuid().is_root() {
        return Some("needs root, for a loop device".into());
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &&&str| std::env::split_paths(&search).any(|dir| dir.join(tool).is_file());
    let tool = tools.iter().find(|tool| !there(tool))?;
    Some(format!("needs {tool}, which is not installed"))
}

impl LoopDevice {
    /// Over this file, past the kernel's cache of it.
    ///
    /// # Errors
    /// What refused, in words.
    pub(super) fn over(image: &Path) -> Result<LoopDevice, String> {
        let shown = image.display().to_string();
        let device = output(&set_up(&shown))?;
        if !device.starts_with("/dev/loop") {
            return Err(format!("losetup named `{device}`, which is no loop device"));
        }
        let held = File::open(&device).map_err(|error| format!("open {device}: {error}"));
        // While it is open, this only marks it to go with the last user.
        output(&["losetup", "-d", &device])?;
        Ok(LoopDevice {
            path: device.into(),
            _held: held?,
        })
    }
}

/// The command that makes one over this file, and prints its name.
pub(super) fn set_up(image: &str) -> [&str; 5] {
    ["losetup", "--direct-io=on", "-f", "--show", image]
}

/// What a command printed.
///
/// # Errors
/// What it said when it failed.
pub(super) fn output(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .map_err(|error| format!("{}: {error}", words[0]))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{}: {said}", words[0]))
}
