//! Devices that fill up and fail, for root: mounts and loop devices that go away with their guard.

use std::path::{Path, PathBuf};
use std::process::Command;

use baio_engine::{File, Open};

use crate::backends::Stop;

/// A mounted tmpfs.
pub(crate) struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = system("umount", &["-l", &self.0.path().display().to_string()]);
    }
}

/// A tmpfs with room for `bytes` bytes.
pub(crate) fn small_tmpfs(bytes: u64) -> Result<Tmpfs, Stop> {
    if !rustix::process::geteuid().is_root() {
        return Err(Stop::Skipped("needs root, who can mount".into()));
    }
    let dir = tempfile::tempdir().expect("a mount point");
    let target = dir.path().display().to_string();
    system(
        "mount",
        &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs", &target],
    )?;
    Ok(Tmpfs(dir))
}

/// A block device over a file.
pub(crate) struct LoopDevice(PathBuf);

impl LoopDevice {
    pub(crate) fn over(backing: &Path) -> Result<LoopDevice, Stop> {
        if !rustix::process::geteuid().is_root() {
            return Err(Stop::Skipped("needs root, who can make a loop device".into()));
        }
        let path = system("losetup", &["--find", "--show", &backing.display().to_string()])?;
        Ok(LoopDevice(path.into()))
    }

    /// That of its file may have changed.
    pub(crate) fn look_at_its_size(&self) -> Result<(), Stop> {
        system("losetup", &["--set-capacity", &self.0.display().to_string()]).map(drop)
    }

    pub(crate) fn open(&self) -> File {
        File::open(&self.0, &Open::write()).expect("the loop device")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = system("losetup", &["--detach", &self.0.display().to_string()]);
    }
}

/// A block device that takes cached writes and fails when they are written back: a loop device over a file on a tmpfs
/// that is full.
pub(crate) struct FailingDevice {
    device: LoopDevice,
    _tmpfs: Tmpfs,
}

impl FailingDevice {
    pub(crate) fn new() -> Result<FailingDevice, Stop> {
        let tmpfs = small_tmpfs(1 << 20)?;
        let backing = tmpfs.path().join("backing");
        let file = std::fs::File::create(&backing).expect("a file on tmpfs");
        file.set_len(16 << 20).expect("a sparse file");
        let full = std::fs::write(tmpfs.path().join("full"), vec![1; 2 << 20]);
        assert!(full.is_err(), "the tmpfs took more than its size");
        Ok(FailingDevice {
            device: LoopDevice::over(&backing)?,
            _tmpfs: tmpfs,
        })
    }

    pub(crate) fn open(&self) -> File {
        self.device.open()
    }
}

fn system(program: &str, arguments: &[&str]) -> Result<String, Stop> {
    let told = |why: String| Stop::Skipped(format!("{program} {}: {why}", arguments.join(" ")));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| told(error.to_string()))?;
    if !output.status.success() {
        return Err(told(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
