//! nbdfuse: the device as a plain file. It uses direct I/O, so the kernel keeps nothing of it. Over that file root can have a loop
//! device, a block device with a kernel's own flushes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// So many requests are under way at the server at once.
const CONNECTIONS: &str = "8";

/// A mounted device; dropping it unmounts it.
#[derive(Debug)]
pub struct Mount {
    file: PathBuf,
    nbdfuse: Child,
}

impl Mount {
    /// Mounts what is served on `socket` as the file `file`, which this makes.
    ///
    /// # Errors
    ///
    /// nbdfuse is not installed, or it cannot mount.
    pub fn new(socket: &Path, file: &Path, size: u64) -> Result<Mount, String> {
        std::fs::write(file, []).map_err(|error| format!("{}: {error}", file.display()))?;
        let said = file.with_extension("said");
        let stderr = File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
        // It ends with this process, however that ends.
        let nbdfuse = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "nbdfuse", "-C", CONNECTIONS])
            .arg(file)
            .arg("--unix")
            .arg(socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|error| format!("setpriv: {error}"))?;
        let mut mount = Mount {
            file: file.to_owned(),
            nbdfuse,
        };
        let deadline = Instant::now() + PATIENCE;
        while std::fs::metadata(file).map_or(0, |metadata| metadata.len()) != size {
            if let Ok(Some(status)) = mount.nbdfuse.try_wait() {
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                let said = said.trim().replace('\n', "; ");
                return Err(format!(
                    "nbdfuse: {said}: {status}; cure: be root, or have fusermount3 (package fuse3)"
                ));
            }
            if Instant::now() > deadline {
                return Err(format!("nbdfuse shows nothing within {} s", PATIENCE.as_secs()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(mount)
    }

    /// The device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether nbdfuse still runs; it has no reason to end.
    pub fn lives(&mut self) -> bool {
        matches!(self.nbdfuse.try_wait(), Ok(None))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmount = |program: &str, options: &[&str]| {
            let mut command = Command::new(program);
            command.args(options).arg(&self.file);
            let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        };
        if !unmount("fusermount3", &["-u"]) && !unmount("umount", &[]) && !unmount("umount", &["--lazy"]) {
            let _ = self.nbdfuse.kill();
        }
        // Who still has it open keeps it mounted, and unseen. It is not waited for.
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.nbdfuse.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.nbdfuse.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A loop device over a file. It goes with the last descriptor on it, so also with this process, however that ends.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _held: File,
}

impl LoopDevice {
    /// One over this file. What it reads and writes goes past the kernel's cache of the file.
    ///
    /// # Errors
    /// Not root, or no losetup.
    pub fn over(file: &Path) -> Result<LoopDevice, String> {
        let path = losetup(&["--direct-io=on", "--find", "--show"], file)?;
        let held = File::open(&path).map_err(|error| format!("{path}: {error}"));
        // While it is open, this only marks it to go.
        losetup(&["--detach"], Path::new(&path))?;
        Ok(LoopDevice {
            path: path.into(),
            _held: held?,
        })
    }

    /// The device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn losetup(options: &[&str], file: &Path) -> Result<String, String> {
    let mut command = Command::new("losetup");
    let ran = command.args(options).arg(file).output();
    let ran = ran.map_err(|error| format!("losetup: {error}"))?;
    match ran.status.success() {
        true => Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned()),
        false => Err(format!("losetup: {}", String::from_utf8_lossy(&ran.stderr).trim())),
    }
}
