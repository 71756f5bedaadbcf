//! The promise: a format that is not forced destroys nothing that somebody might miss: no volume of which any copy of the
//! superblock is left, and no byte of anything else, wherever it stands. One that is forced leaves a whole, empty volume. And a
//! volume that lost its first 128 KiB is a volume: every command finds it.

use std::os::unix::fs::FileExt;
use std::path::Path;

use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, Error, FormatOptions, check};

use crate::harness::loop_device::Loop;
use crate::harness::{BLOCK, ME, config, create, format, open};

fn try_format(path: &Path, force: bool) -> Result<(), Error> {
    let options = FormatOptions {
        force,
        ..FormatOptions::default()
    };
    Core::format(path, &options).map(drop)
}

fn places(image: &[u8]) -> [u64; 4] {
    Superblock::decode(&image[..BLOCK], 0)
        .unwrap()
        .layout()
        .superblocks_at()
}

fn assert_refused(path: &Path, what: &str) -> String {
    let before = std::fs::read(path).unwrap();
    let error = try_format(path, false).expect_err(what);
    assert_eq!(error.code(), "EEXIST", "{what}: {error}");
    assert!(std::fs::read(path).unwrap() == before, "{what}: it was changed");
    error.to_string()
}

#[test]
fn every_combination_of_damaged_copies_is_spared_and_can_be_forced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    for with_segment in [false, true] {
        let _ = std::fs::remove_file(&path);
        format(&path, 2 << 20);
        if with_segment {
            let mut core = open(&path);
            create(&mut core, "a", BLOCK as u64);
            core.close().unwrap();
        }
        let image = std::fs::read(&path).unwrap();
        let places = places(&image);
        for damaged in 0..16_u32 {
            for byte in [0, 0xa5] {
                let mut image = image.clone();
                for copy in (0..4).filter(|copy| damaged >> copy & 1 == 1) {
                    image[places[copy] as usize..][..BLOCK].fill(byte);
                }
                std::fs::write(&path, &image).unwrap();
                let what = format!("copies {damaged:04b} are {byte:02x}, segment {with_segment}");
                if damaged == 15 && byte == 0 && !with_segment {
                    try_format(&path, false).unwrap();
                } else {
                    let told = assert_refused(&path, &what);
                    // Of which any copy is left, that is a volume; else what is stored is anybody's.
                    assert_eq!(told.contains("a baio volume"), damaged != 15, "{what}: {told}");
                    try_format(&path, true).unwrap();
                }
                let (info, segments) = Core::inspect(&path, ME).unwrap();
                assert!(info.clean && segments.is_empty(), "{what}");
                assert_eq!(check(&path, false, &mut |_| {}).unwrap().problems, [], "{what}");
            }
        }
    }
}

/// Else a crash before the new volume is written would leave a copy of the old one, and a table that is empty. Of another
/// shape, the new one writes nothing where the rear copies were.
#[test]
fn a_forced_format_leaves_no_copy_of_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    for left in 0..4 {
        let _ = std::fs::remove_file(&path);
        let large = FormatOptions {
            segments: Some(2000),
            ..FormatOptions::of_size(32 << 20)
        };
        Core::format(&path, &large).unwrap();
        let mut image = std::fs::read(&path).unwrap();
        let places = places(&image);
        for copy in (0..4).filter(|copy| *copy != left) {
            image[places[copy] as usize..][..BLOCK].fill(0);
        }
        std::fs::write(&path, &image).unwrap();
        try_format(&path, true).unwrap();
        let image = std::fs::read(&path).unwrap();
        let data_at = Superblock::decode(&image[..BLOCK], 0).unwrap().layout().data_at();
        assert!(places[2] >= data_at, "else they are cleared with the table");
        for at in &places[2..] {
            let page = &image[*at as usize..][..BLOCK];
            assert!(page.iter().all(|byte| *byte == 0), "copy {left} is still there");
        }
    }
}

#[test]
fn a_volume_without_its_first_128_kib_is_found_and_healed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    let mut core = open(&path);
    create(&mut core, "a", BLOCK as u64);
    core.close().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&vec![0; 128 << 10], 0).unwrap();
    assert_refused(&path, "the rear pair is left");
    assert_eq!(Core::inspect(&path, ME).unwrap().1.len(), 1);
    let mut core = Core::open(&path, &config()).unwrap();
    create(&mut core, "b", BLOCK as u64);
    core.close().unwrap();
    assert_eq!(check(&path, false, &mut |_| {}).unwrap().problems, []);
}

#[test]
fn data_of_something_else_is_spared_wherever_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign.img");
    let size = (3 << 20) + 100;
    for at in [0, 511, 70_000, 200_000, 1 << 20, size - 1] {
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"x", at).unwrap();
        assert_refused(&path, &format!("a byte at {at}"));
        let error = try_format(&path, false).unwrap_err().to_string();
        assert!(error.contains(&format!("byte {at} ")), "{error}");
        // And nobody is told to format it.
        let error = Core::inspect(&path, ME).unwrap_err().to_string();
        assert!(!error.contains("format"), "byte {at}: {error}");
    }
    // Zeroes, written or not, are nothing.
    std::fs::write(&path, vec![0; 2 << 20]).unwrap();
    try_format(&path, false).unwrap();
    std::fs::File::create(&path).unwrap().set_len(2 << 20).unwrap();
    assert!(
        Core::inspect(&path, ME)
            .unwrap_err()
            .to_string()
            .contains("baio format")
    );
}

#[test]
fn a_device_is_looked_at_from_its_beginning_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let size = 64 << 20;
    let Some(device) = Loop::new(dir.path(), size, &[]) else {
        return;
    };
    let file = std::fs::OpenOptions::new().write(true).open(&device.0).unwrap();
    for at in [200_000, 10 << 20, size - 4096] {
        file.write_all_at(&[1; 512], at / 512 * 512).unwrap();
        file.sync_all().unwrap();
        let error = try_format(&device.0, false).unwrap_err();
        assert_eq!(error.code(), "EEXIST", "{at}: {error}");
        file.write_all_at(&[0; 512], at / 512 * 512).unwrap();
        file.sync_all().unwrap();
    }
    drop(file);
    try_format(&device.0, false).unwrap();
    let error = try_format(&device.0, false).unwrap_err();
    assert!(error.to_string().contains("it holds a baio volume"), "{error}");
}
