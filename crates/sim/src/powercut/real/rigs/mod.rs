//! The devices: how each is made, what happens to it while somebody works, and how it is made whole again.
//!
//! | file | whose |
//! |---|---|
//! | [`mapped`] | device-mapper's |
//! | [`models`] | scsi_debug's and null_blk's |
//! | [`served`] | of a process: nbd, ublk |

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use baio_engine::sim::Random;

use crate::powercut::worker::Failure;

mod mapped;
mod models;
mod served;

pub(super) use mapped::Mapped;
use models::Scsi;

/// Of each device.
pub(super) const DEVICE_BYTES: u64 = 24 << 20;
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
    pub(super) fn blank(&self) -> Result<(), Failure> {
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
pub(super) enum Strike {
    /// Nothing.
    None,
    /// Some requests fail; who works may go on.
    Fails,
    /// No request ends well any more: who works ends, by itself.
    Ends,
}

/// A device under test.
pub(super) trait Rig {
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

type Make = fn(&Disks) -> Result<Box<dyn Rig>, Failure>;

/// All of them, and what each is.
pub(super) const ALL: [(&str, Make, &str); 15] = [
    (
        "flakey",
        mapped::flakey,
        "dm-flakey: writes, reads or both fail for a while",
    ),
    (
        "thin",
        mapped::thin,
        "a thin pool that is full, and is grown, again and again",
    ),
    (
        "delay",
        mapped::delay,
        "dm-delay: writes overtake each other, reads overtake writes",
    ),
    ("crypt", mapped::crypt, "dm-crypt with sectors of 4 KiB"),
    (
        "scsi-512",
        |_| Scsi::rig(&["sector_size=512"], false),
        "scsi_debug, sectors of 512",
    ),
    (
        "scsi-4096",
        |_| Scsi::rig(&["sector_size=4096"], false),
        "scsi_debug, sectors of 4096",
    ),
    (
        "scsi-one",
        |_| Scsi::rig(&["max_queue=1"], false),
        "scsi_debug, one request at a time",
    ),
    (
        "scsi-unmap",
        |_| Scsi::rig(&["lbpu=1", "lbpws=1"], false),
        "scsi_debug that unmaps",
    ),
    ("scsi-no-fua", |_| models::scsi_without_fua(), "scsi_debug without FUA"),
    (
        "scsi-deleted",
        |_| Scsi::rig(&[], true),
        "scsi_debug, deleted under load",
    ),
    (
        "null",
        |_| models::null(true),
        "null_blk whose cache is lost when its power goes",
    ),
    ("null-no-fua", |_| models::null(false), "the same without FUA"),
    ("nbd-cut", |_| served::nbd(), "nbd whose server is killed"),
    ("ublk-killed", |_| served::ublk(false), "ublk whose server is killed"),
    (
        "ublk-recovered",
        |_| served::ublk(true),
        "the same, and a new server takes the device over",
    ),
];

/// Those that forget what was written and not flushed.
pub(super) const FORGETFUL: [&str; 2] = ["null", "null-no-fua"];

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

pub(super) fn sectors() -> u64 {
    DEVICE_BYTES / 512
}

/// The first thing that such a search finds, within some time.
fn find(what: &str, mut search: impl FnMut() -> Option<PathBuf>) -> Result<PathBuf, Failure> {
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
