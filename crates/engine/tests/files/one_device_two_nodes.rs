//! Promise: a block device is one file, whichever of its nodes it was opened by. So a page cache over it is one, and a write
//! waits for an abandoned one to the same bytes.

use std::path::Path;

use baio_engine::{File, Kind, Open};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Some block devices of this machine; nothing is read from them.
fn devices() -> Vec<(u32, u32)> {
    let listed = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let numbers = listed.filter_map(|entry| {
        let text = std::fs::read_to_string(entry.path().join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    numbers.collect()
}

fn node(path: &Path, (major, minor): (u32, u32)) -> Result<File, String> {
    let number = rustix::fs::makedev(major, minor);
    mknodat(CWD, path, FileType::BlockDevice, Mode::RUSR, number).map_err(|error| error.to_string())?;
    File::open(path, &Open::read()).map_err(|error| error.to_string())
}

#[test]
fn two_nodes_of_one_device_are_one_file() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut why = "there is no block device".to_owned();
    let mut seen = Vec::new();
    for (at, number) in devices().into_iter().enumerate() {
        let path = |name: &str| dir.path().join(format!("{name}{at}"));
        match (node(&path("a"), number), node(&path("b"), number)) {
            (Ok(one), Ok(two)) => {
                assert_eq!((one.kind(), two.kind()), (Kind::Block, Kind::Block));
                assert_eq!(one.identity(), two.identity());
                assert!(!seen.contains(&one.identity()), "two devices are two");
                seen.push(one.identity());
            }
            (Err(error), _) | (_, Err(error)) => why = error,
        }
    }
    if seen.is_empty() {
        eprintln!("skipped: {why}");
    }
}
