//! The promise: a block device is a volume like a file is, and one that is mounted or held by somebody else is refused by
//! open and by format (`O_EXCL`: two device nodes can both be locked, so a lock alone is not enough).
//!
//! Needs root and a loop device; says so when it has none.

use std::path::Path;
use std::time::Duration;

use baio_storage::{Core, Fault, FormatOptions};

use crate::harness::loop_device::{Loop, Mounted, run};
use crate::harness::{self, BLOCK, ME, config, create, open, open_write, read, sync, write};
use crate::starting::Starting;

fn loop_device(dir: &Path) -> Option<Loop> {
    Loop::new(dir, 16 << 20, &[])
}

#[test]
fn a_block_device_holds_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = loop_device(dir.path()) else {
        return;
    };
    let too_large = FormatOptions::of_size(17 << 20);
    let error = Core::format(&device.0, &too_large).unwrap_err();
    assert_eq!(error.code(), "EINVAL", "{error}");
    Core::format(&device.0, &FormatOptions::default()).unwrap();
    let error = Core::format(&device.0, &FormatOptions::default()).unwrap_err();
    assert_eq!(error.code(), "EEXIST", "{error}");
    let mut core = open(&device.0);
    create(&mut core, "a", 3 << 20);
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 1 << 20, &[7; BLOCK]).unwrap();
    sync(&mut core, handle).unwrap();
    // The owner is named, although it is the claim that refuses.
    let error = Core::open(&device.0, &config()).unwrap_err();
    let me = std::process::id();
    assert!(
        matches!(error.fault, Fault::Busy { holder: Some(pid) } if pid == me),
        "{error}"
    );
    core.close().unwrap();
    let (info, segments) = Core::inspect(&device.0, ME).unwrap();
    assert!(info.clean);
    assert_eq!(segments.len(), 1);
    let mut core = open(&device.0);
    let handle = open_write(&mut core, "a");
    assert_eq!(read(&mut core, handle, 1 << 20, BLOCK).unwrap(), vec![7; BLOCK]);
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), vec![0; BLOCK]);
    core.close().unwrap();
}

/// A second node of the device, made by `mknod`, is another inode: its lock is free, but the device is claimed.
#[test]
fn two_nodes_of_one_device_are_one_volume() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = loop_device(dir.path()) else {
        return;
    };
    Core::format(&device.0, &FormatOptions::default()).unwrap();
    let second = dir.path().join("second");
    let number = rustix::fs::stat(&device.0).unwrap().st_rdev;
    let kind = rustix::fs::FileType::BlockDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &second, kind, 0o600.into(), number).unwrap();
    let core = open(&device.0);
    let error = Core::open(&second, &config()).unwrap_err();
    assert_eq!(error.code(), "EBUSY", "{error}");
    core.close().unwrap();
    match Core::open(&second, &config()) {
        Ok(core) => core.close().unwrap(),
        // A file system mounted with `nodev` opens no device.
        Err(error) => assert_eq!(error.code(), "EACCES", "{error}"),
    }
}

/// The claim cannot be given back while a child that is being started has a copy of the descriptor.
#[test]
fn a_child_being_started_does_not_keep_a_closed_device() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = loop_device(dir.path()) else {
        return;
    };
    Core::format(&device.0, &FormatOptions::default()).unwrap();
    let core = open(&device.0);
    let child = Starting::new();
    core.close().unwrap();
    // Whoever opens the device waits until the child execs.
    let soon = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        child.let_go();
    });
    open(&device.0).close().unwrap();
    soon.join().unwrap();
}

#[test]
fn a_mounted_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = loop_device(dir.path()) else {
        return;
    };
    let point = dir.path().join("mounted");
    std::fs::create_dir(&point).unwrap();
    let mounted = run("mkfs.ext4", &["-q", device.name()]).and_then(|_| Mounted::at(&device.0, &point));
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(why) => {
            harness::skip(&format!("nothing can be mounted: {why}"));
            return;
        }
    };
    std::fs::write(point.join("file"), b"precious").unwrap();
    rustix::fs::sync();
    let forced = FormatOptions {
        force: true,
        ..FormatOptions::default()
    };
    for error in [
        Core::open(&device.0, &config()).unwrap_err(),
        Core::format(&device.0, &FormatOptions::default()).unwrap_err(),
        Core::format(&device.0, &forced).unwrap_err(),
    ] {
        assert_eq!(error.code(), "EBUSY", "{error}");
        assert!(error.need().unwrap().contains("not mounted"), "{error}");
    }
    assert_eq!(std::fs::read(point.join("file")).unwrap(), b"precious");
    drop(mounted);
    // Unmounted it may be had, but holds a file system.
    let error = Core::format(&device.0, &FormatOptions::default()).unwrap_err();
    assert_eq!(error.code(), "EEXIST", "{error}");
    Core::format(&device.0, &forced).unwrap();
    open(&device.0).close().unwrap();
}

/// A file system without direct I/O makes the file before it refuses; the volume is then carried by the page cache.
#[test]
fn a_file_system_without_direct_io_carries_a_volume() {
    if !harness::is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("mounted");
    std::fs::create_dir(&point).unwrap();
    if let Err(why) = run("mount", &["-t", "ramfs", "none", point.to_str().unwrap()]) {
        harness::skip(&format!("nothing can be mounted: {why}"));
        return;
    }
    let _mounted = Mounted(point.clone());
    let path = point.join("volume.img");
    harness::format(&path, 2 << 20);
    let mut core = open(&path);
    create(&mut core, "a", BLOCK as u64);
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
    sync(&mut core, handle).unwrap();
    core.close().unwrap();
    assert_eq!(Core::inspect(&path, ME).unwrap().1.len(), 1);
}
