//! The devices: how each is made, what happens to it while somebody works, and how it is made whole again.
//!
//! | file | whose |
//! |---|---|
//! | [`rig`] | of each: what a device must do |
//! | [`mapped`] | device-mapper's |
//! | [`models`] | scsi_debug's and null_blk's |
//! | [`served`] | of a process: nbd, ublk |

use crate::powercut::worker::Failure;

mod mapped;
mod models;
mod rig;
mod served;

pub(super) use mapped::Mapped;
use models::Scsi;
pub use rig::Disks;
pub(super) use rig::{DEVICE_BYTES, Rig, Strike, sectors};

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
