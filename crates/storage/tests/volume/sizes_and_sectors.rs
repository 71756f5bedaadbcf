//! The promise: a volume has any size from 1 MiB to 8 TiB, blocks of 4 to 64 KiB, and lies in a file or on a device with
//! sectors of 512 bytes or of 4 KiB. In each of these it is formatted, segments are made, filled, closed, lost and found.
//!
//! The devices need root; says so when there are none.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use baio_engine::Error as EngineError;
use baio_storage::{Access, Core, CreateOptions, Fault, FormatOptions, Identity, ResizeOptions, Sight};

use crate::harness::loop_device::Loop;
use crate::harness::{BLOCK, ME, Random, config, create, open, open_write, read, sync, write};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// One volume of each size and block size at this place, which is `sector` bytes fine, if it is a device.
fn try_all(place: &Path, device_bytes: u64, sector: Option<u64>) {
    for block_size in [4 << 10, 16 << 10, 64 << 10] {
        for size_bytes in [MIB, 16 * MIB, 8 * TIB] {
            if size_bytes > device_bytes {
                continue;
            }
            assert!(least_size(place, block_size) <= MIB);
            let format = FormatOptions {
                size_bytes: Some(size_bytes),
                block_size,
                // The table of as many as fit takes its time to read.
                segments: (size_bytes == 8 * TIB).then_some(5_000),
                force: true,
                ..FormatOptions::default()
            };
            try_one(place, &format, sector);
        }
    }
}

/// The least size that can be formatted, as told by who asks for less.
fn least_size(place: &Path, block_size: u32) -> u64 {
    let format = FormatOptions {
        size_bytes: Some(4096),
        block_size,
        force: true,
        ..FormatOptions::default()
    };
    let error = Core::format(place, &format).unwrap_err();
    match error.into_fault() {
        Fault::Layout(baio_storage::segment::layout::LayoutError::TooSmall { least_bytes, .. }) => least_bytes,
        fault => panic!("{fault}"),
    }
}

fn try_one(place: &Path, format: &FormatOptions, sector: Option<u64>) {
    let info = Core::format(place, format).unwrap();
    let block = u64::from(format.block_size);
    assert_eq!(u64::from(info.block_size), block);
    assert!(info.data_at_bytes + info.size_bytes <= format.size_bytes.unwrap());
    assert_eq!(info.free_bytes, info.size_bytes);
    let mut core = open(place);
    // Behind the largest reserve there is, or what a small volume has.
    let reserve = if info.size_bytes > TIB { 7 * TIB } else { block };
    let options = CreateOptions {
        reserve_bytes: reserve,
        ..CreateOptions::of_size(1)
    };
    let first = core.create(ME, ME.uid, "first", &options).unwrap();
    assert_eq!(
        (first.size_bytes, first.reserve_bytes),
        (block, reserve),
        "whole blocks"
    );
    create(&mut core, "second", block + 1);
    let second = core.list(ME).unwrap().pop().unwrap();
    assert_eq!(second.name, "second");
    assert!(second.start_block * block >= reserve, "{second:?}");
    let content = Random(block).bytes(2 * format.block_size as usize);
    let handle = open_write(&mut core, "second");
    write(&mut core, handle, 0, &content).unwrap();
    check_alignment(&mut core, sector);
    sync(&mut core, handle).unwrap();
    let free = core.volume_info().unwrap().free_bytes;
    assert_eq!(free, info.size_bytes - reserve - 2 * block);
    core.close().unwrap();
    // The bytes stand where the layout says, not only where they are found again.
    let mut raw = vec![0; content.len()];
    let file = std::fs::File::open(place).unwrap();
    file.read_exact_at(&mut raw, info.data_at_bytes + second.start_block * block)
        .unwrap();
    assert!(raw == content);
    for closes in [false, true] {
        let (seen, listed) = Core::inspect(place, ME).unwrap();
        assert_eq!((seen.free_bytes, listed.len()), (free, 2));
        let mut core = open(place);
        let info = core.volume_info().unwrap();
        assert_eq!((info.free_bytes, info.block_size), (free, format.block_size));
        let handle = open_write(&mut core, "second");
        assert!(read(&mut core, handle, 0, content.len()).unwrap() == content);
        let handle = core.open_segment(ME, ME.uid, "first", Access::Read).unwrap().0;
        assert!(
            read(&mut core, handle, 0, format.block_size as usize)
                .unwrap()
                .iter()
                .all(|&byte| byte == 0)
        );
        resize_one(&mut core, block);
        // Full to the last block, and no further.
        let (asked, largest) = (core.volume_info().unwrap().largest_free_bytes, free);
        if asked < 16 * MIB {
            assert_eq!(asked, largest);
            create(&mut core, "rest", asked);
            let handle = open_write(&mut core, "rest");
            let end = vec![3; format.block_size as usize];
            write(&mut core, handle, asked - block, &end).unwrap();
            assert_eq!(core.volume_info().unwrap().free_bytes, 0);
            let error = core.create(ME, ME.uid, "more", &CreateOptions::of_size(1)).unwrap_err();
            assert_eq!(error.code(), "ENOSPC", "{error}");
            core.delete(ME, ME.uid, "rest").unwrap();
        }
        if closes {
            core.close().unwrap();
        }
    }
}

/// Inside its run and beyond it, and back.
fn resize_one(core: &mut Core, block: u64) {
    create(core, "sized", block);
    let handle = open_write(core, "sized");
    let content = Random(3).bytes(block as usize);
    write(core, handle, 0, &content).unwrap();
    let reserve = ResizeOptions {
        reserve_bytes: Some(4 * block),
        ..ResizeOptions::to_size(2 * block)
    };
    for (options, blocks) in [
        (reserve, (2, 4)),
        (ResizeOptions::to_size(3 * block + 1), (4, 4)),
        (ResizeOptions::to_size(5 * block), (5, 5)),
        (ResizeOptions::to_size(1), (1, 1)),
    ] {
        let info = core.resize(ME, ME.uid, "sized", &options).unwrap();
        assert_eq!(
            (info.size_bytes, info.reserve_bytes),
            (blocks.0 * block, blocks.1 * block),
            "{options:?}"
        );
        let bytes = read(core, handle, 0, info.size_bytes as usize).unwrap();
        assert!(bytes.starts_with(&content));
        assert!(bytes[block as usize..].iter().all(|&byte| byte == 0));
    }
    core.delete(ME, ME.uid, "sized").unwrap();
    core.close_handle(handle);
}

/// What a device cannot do is said before it is tried.
fn check_alignment(core: &mut Core, sector: Option<u64>) {
    let Some(sector) = sector else { return };
    let handle = open_write(core, "first");
    for (offset, len) in [(0, 512), (512, 512), (3584, 512), (1024, 3072)] {
        let result = write(core, handle, offset, &vec![0; len]);
        let aligned = (offset | len as u64).is_multiple_of(sector);
        match result {
            Ok(bytes) => assert!(aligned && bytes as usize == len, "{offset} {len}"),
            Err(error) => {
                assert!(!aligned, "{offset} {len}: {error}");
                assert!(
                    matches!(error.fault, Fault::Io(EngineError::Misaligned { need, .. }) if u64::from(need) == sector),
                    "{error}"
                );
            }
        }
    }
    core.close_handle(handle);
}

#[test]
fn in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    std::fs::File::create(&path).unwrap();
    try_all(&path, 8 * TIB, None);
}

#[test]
fn on_a_device_of_512_byte_sectors() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--sector-size", "512", "--direct-io=on"];
    if let Some(device) = Loop::new(dir.path(), 8 * TIB, &options) {
        try_all(&device.0, 8 * TIB, Some(512));
    }
}

#[test]
fn on_a_device_of_4096_byte_sectors() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--sector-size", "4096", "--direct-io=on"];
    if let Some(device) = Loop::new(dir.path(), 8 * TIB, &options) {
        try_all(&device.0, 8 * TIB, Some(4096));
    }
}

/// A device of 1 MiB is a volume of 1 MiB, without anybody saying so.
#[test]
fn a_device_has_the_size_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = Loop::new(dir.path(), MIB, &[]) else {
        return;
    };
    let info = Core::format(&device.0, &FormatOptions::default()).unwrap();
    let unused = MIB - info.data_at_bytes - info.size_bytes;
    assert!(unused < BLOCK as u64, "{unused}");
    let mut core = Core::open(&device.0, &config()).unwrap();
    create(&mut core, "all", info.size_bytes);
    core.close().unwrap();
}

/// A broker asks so for each client that connects, and answers so whoever wants to know: of what is free only who is shown it waits for a look at
/// all of it.
#[test]
fn who_sees_its_own_waits_for_no_walk_through_what_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let format = FormatOptions {
        size_bytes: Some(8 * TIB),
        segments: Some(64),
        ..FormatOptions::default()
    };
    Core::format(&path, &format).unwrap();
    let core = open(&path);
    let owner = Identity::effective();
    let other = Identity::new(owner.uid + 1, owner.gid + 1);
    assert_eq!((core.sight(owner), core.sight(other)), (Sight::Whole, Sight::Own));
    let least = |who| {
        let took = (0..8).map(|_| {
            let since = Instant::now();
            let view = core.volume_view(who).unwrap();
            assert_eq!(view.whole.is_some(), who == owner);
            since.elapsed()
        });
        took.min().unwrap()
    };
    let (whole, own) = (least(owner), least(other));
    assert!(20 * own < whole, "{own:?} for its own, {whole:?} for all");
}
