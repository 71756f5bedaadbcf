//! What every device under test has, and what its makers do.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use baio_engine::sim::Random;

use crate::powercut::worker::Failure;

/// Of each device.
pub(in super::super) const DEVICE_BYTES: u64 = 24 << 20;
/// A device that was made is seen within so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two blank disks that may be written over.
#[derive(Clone, Debug)]
pub struct Disks {
    /// What lies below the devices.
    pub first: PathBuf,
    /// Records, and the table of a pool.
    pub second: PathBuf,
}

impl Disks {
    /// Zeros in all places that a device uses.
    pub(in super::super) fn blank(&self) -> Result<(), Failure> {
        let zeros = vec![0; 1 << 20];
        for disk in [&self.first, &self.second] {
            let file = fs::File::options().write(true).open(disk)?;
            for at in (0..2 * DEVICE_BYTES).step_by(zeros.len()) {
                file.write_all_at(&zeros, at)?;
            }
            file.sync_all()?;
        }
        Ok(())
    }
}

/// What a strike does to whoever works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Strike {
    /// Nothing.
    None,
    /// Some requests fail; who works may go on.
    Fails,
    /// No request ends well any more: who works ends, by itself.
    Ends,
}

/// A device under test.
pub(in super::super) trait Rig {
    fn path(&self) -> PathBuf;

    /// Something happens to it.
    fn strike(&mut self, _random: &mut Random) -> Result<Strike, Failure> {
        Ok(Strike::None)
    }

    /// Whether a request may fail before a strike: it is full, or an error of before was told to nobody yet.
    fn fails_by_itself(&self) -> bool {
        false
    }

    /// It is whole again, with what it held.
    fn mend(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Runs it to its end, which must be a good one.
pub(super) fn run(program: &str, words: &[&str]) -> Result<String, Failure> {
    // There may be no udev that makes the nodes of devices.
    let ran = Command::new(program)
        .args(words)
        .env("DM_DISABLE_UDEV", "1")
        .stdin(Stdio::null())
        .output();
    let ran = ran.map_err(|error| format!("{program}: {error}"))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).trim().replace('\n', "; ");
        return Err(format!("{program} {}: {said}", words.join(" ")).into());
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

pub(in super::super) fn sectors() -> u64 {
    DEVICE_BYTES / 512
}

/// The first thing that such a search finds, within some time.
pub(super) fn find(what: &str, mut search: impl FnMut() -> Option<PathBuf>) -> Result<PathBuf, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = search() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(format!("there is no {what}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}
