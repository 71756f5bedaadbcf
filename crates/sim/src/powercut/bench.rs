//! Where a story runs: a folder, the device in it, and a watch over the time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::place::Place;
use crate::nbd::{Disk, LoopDevice, Manner, Mount, Server};

/// A round that takes longer hangs: most take a tenth of a second.
const PATIENCE_SECONDS: u64 = 120;

/// Rounds that have begun; the watch looks whether it moves.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// A folder of its own with a device in it, served and mounted. All of it goes when it is dropped.
#[derive(Debug)]
pub struct Bench {
    block_device: Option<LoopDevice>,
    mount: Option<Mount>,
    /// It is a block device, from the next start on. Only root has one.
    pub as_block_device: bool,
    _server: Server,
    /// The device.
    pub disk: Arc<Disk>,
    dir: PathBuf,
}

impl Bench {
    /// One of this size.
    ///
    /// # Errors
    /// What it needs is not there: nbdfuse, or the right to mount.
    pub fn new(size: u64, seed: u64) -> Result<Bench, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        for tool in ["nbdfuse", "setpriv"] {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {tool} >/dev/null")])
                .status();
            if !found.is_ok_and(|status| status.success()) {
                return Err(format!("{tool} is not installed"));
            }
        }
        if !Path::new("/dev/fuse").exists() {
            return Err("there is no /dev/fuse".into());
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("baio-powercut-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let disk = Arc::new(Disk::new(size, seed));
        let server = Server::start(&disk, &dir.join("socket")).map_err(|error| error.to_string())?;
        let mut bench = Bench {
            block_device: None,
            mount: None,
            as_block_device: false,
            _server: server,
            disk,
            dir,
        };
        bench.mount_anew()?;
        Ok(bench)
    }

    /// Everything that the kernel has of it goes; what was still to be written meets the power as it is.
    fn unmount(&mut self) {
        self.block_device = None;
        self.mount = None;
    }

    fn mount_anew(&mut self) -> Result<(), String> {
        let file = self.dir.join("disk");
        self.mount = Some(Mount::new(&self.dir.join("socket"), &file, self.disk.size())?);
        if self.as_block_device {
            self.block_device = Some(LoopDevice::over(&file)?);
        }
        Ok(())
    }

    /// Whether it can be a block device here.
    pub fn has_block_device(&mut self) -> bool {
        LoopDevice::over(&self.dir.join("disk")).is_ok()
    }
}

impl Place for Bench {
    fn device(&self) -> PathBuf {
        let device = self.block_device.as_ref().map(|device| device.path().to_owned());
        device.unwrap_or_else(|| self.dir.join("disk"))
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn lose_power(&mut self) {
        self.disk.cut(Manner::Torn);
    }

    /// The power is on, nothing fails, and nothing of the old mount is left.
    fn restart(&mut self) -> Result<(), String> {
        self.unmount();
        self.disk.heal();
        self.disk.power_on();
        self.mount_anew()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.unmount();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A round begins: `replay` is what to run if it never ends.
pub fn begins(replay: &str) {
    let round = BEGUN.fetch_add(1, Ordering::Relaxed) + 1;
    let replay = replay.to_owned();
    // Not told when the round ends: it looks whether another has begun, and goes.
    let watch = thread::Builder::new().name("watch".into()).spawn(move || {
        thread::sleep(Duration::from_secs(PATIENCE_SECONDS));
        if BEGUN.load(Ordering::Relaxed) == round {
            eprintln!("baio-sim: a round hangs since {PATIENCE_SECONDS} s\nreplay: {replay}");
            std::process::abort();
        }
    });
    drop(watch);
}

/// The last round has ended.
pub fn ends() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
}
