//! A block device that is as slow as it is told to be: a disk in memory behind a delay (nbdkit), as a file (nbdfuse), as a
//! loop device. Needs root and those tools; no kernel module but loop's and fuse's.
//!
//! Nothing stays behind, however this process ends. The kernel removes the loop device with its last descriptor. The kernel signals the two
//! servers when their parent ends, and without that they do not begin. nbdfuse unmounts when it gets that signal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::figures::quoted;
use crate::figures::runner::ends_with_this;
use crate::report::loop_device::{self, LoopDevice};

const TOOLS: [&str; 2] = ["nbdkit", "nbdfuse"];
const BYTES: u64 = 256 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// The device. Its parts are taken down in the order in which they stand here.
pub(super) struct SlowDevice {
    pub(super) device: LoopDevice,
    /// How it was made, for a reader who wants one.
    pub(super) commands: Vec<String>,
    _mounted: Server,
    _server: Server,
    _mount: Mount,
}

/// Why there can be no such device here; `None` where it is worth a try.
pub(super) fn missing() -> Option<String> {
    if let Some(reason) = loop_device::missing(&TOOLS) {
        return Some(reason);
    }
    let devices = ["/dev/fuse", "/dev/loop-control"];
    let device = devices.iter().find(|device| !Path::new(device).exists())?;
    Some(format!("needs {device}, which is not there"))
}

impl SlowDevice {
    /// One whose writes take `delay`, in a directory of ours.
    ///
    /// # Errors
    /// What refused, in words. Everything that had started is gone then.
    pub(super) fn start(dir: &Path, delay: Duration) -> Result<SlowDevice, String> {
        let ms = delay.as_millis();
        let socket = dir.join(format!("slow-{ms}.sock")).display().to_string();
        let file = dir.join(format!("slow-{ms}.file"));
        let shown = file.display().to_string();
        fs::write(&file, []).map_err(|error| format!("{shown}: {error}"))?;
        let mut commands = Vec::new();
        let delayed = format!("wdelay={ms}ms");
        let size = BYTES.to_string();
        let words = ["nbdkit", "-f", "-U", &socket, "--threads=64", "--filter=delay"];
        let server = Server::start(&[&words[..], &["memory", &size, &delayed]].concat(), &mut commands)?;
        until("nbdkit listens", || Path::new(&socket).exists())?;
        let mount = Mount(file.clone());
        let words = ["nbdfuse", "-C", "16", &shown, "--unix", &socket];
        let mounted = Server::start(&words, &mut commands)?;
        let is_there = || fs::metadata(&file).is_ok_and(|metadata| metadata.len() == BYTES);
        until("nbdfuse shows its file", is_there)?;
        commands.push(loop_device::set_up(&shown).map(quoted).join(" "));
        let device = LoopDevice::over(&file)?;
        Ok(SlowDevice {
            device,
            commands,
            _mounted: mounted,
            _server: server,
            _mount: mount,
        })
    }
}

fn until(what: &str, holds: impl Fn() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > deadline {
            return Err(format!("waited in vain until {what}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A process that ends with this one at the latest.
struct Server(Child);

impl Server {
    fn start(words: &[&str], commands: &mut Vec<String>) -> Result<Server, String> {
        commands.push(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
        let mut command = Command::new(words[0]);
        let child = ends_with_this(&mut command)
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.map(Server).map_err(|error| format!("{}: {error}", words[0]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What nbdfuse mounts, and unmounts when it ends well.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let mounted = fs::metadata(&self.0).map_or(true, |metadata| metadata.len() > 0);
        if mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        }
        let _ = fs::remove_file(&self.0);
    }
}
