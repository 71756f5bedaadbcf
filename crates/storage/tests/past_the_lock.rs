//! The promise: a volume has one owner, also where a lock alone does not say so. A forked child does not give its parent's lock
//! away, whatever it does with its copy of the core. A loop device over the volume's file is the same volume. And an owner who
//! is not alone after all notices it before it writes a superblock, and a snapshot that lacks what the other one made.

mod harness;

use std::path::Path;
use std::process::Command;

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::{Core, CreateOptions, Fault, FormatOptions, check_on};
use harness::images;
use harness::loop_device::Loop;
use harness::{BLOCK, ME, ROOT, config, create, format, open, open_simulated, open_write, simulated_disk, skip, write};

/// Runs something in a forked child, which leaves without the parent's exit handlers; its status.
#[allow(unsafe_code)]
fn in_a_child(run: impl FnOnce() -> i32) -> i32 {
    unsafe extern "C" {
        fn fork() -> i32;
        fn _exit(status: i32) -> !;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    }
    // SAFETY: the child drops or closes a core, which takes no lock of another thread, and leaves by `_exit`.
    match unsafe { fork() } {
        0 => {
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(101);
            // SAFETY: ends this process.
            unsafe { _exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the kernel writes one int.
            assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
            status >> 8
        }
    }
}

fn assert_owned(path: &Path) {
    let error = Core::open(path, &config()).map(drop).expect_err("a second owner");
    assert!(matches!(error.fault, Fault::Busy { .. }), "{error}");
}

#[test]
fn a_forked_child_gives_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    let mut core = open(&path);
    create(&mut core, "a", BLOCK as u64);
    let handle = open_write(&mut core, "a");
    for closes in [false, true] {
        // The child has a copy of the core; the parent's stays as it is.
        let mut copy = Some(core);
        let status = in_a_child(|| {
            let copy = copy.take().unwrap();
            if closes {
                i32::from(copy.close().is_ok())
            } else {
                drop(copy);
                0
            }
        });
        core = copy.unwrap();
        assert_eq!(status, 0, "the child's close of its parent's volume: {closes}");
        assert_owned(&path);
        write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
    }
    // A program that is started has no copy at all.
    assert!(Command::new("true").status().unwrap().success());
    assert_owned(&path);
    create(&mut core, "b", BLOCK as u64);
    core.close().unwrap();
    open(&path).close().unwrap();
}

#[test]
fn a_loop_device_over_the_file_is_the_same_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, 2 << 20);
    let device = match Loop::over(&path) {
        Ok(device) => device,
        Err(why) => return skip(&format!("no loop device: {why}")),
    };
    let other = Loop::over(&path).unwrap();
    // Whoever comes first, by whatever name, is the owner.
    let names = [path.as_path(), &device.0, &other.0];
    for first in names {
        let core = open(first);
        for second in names {
            assert_owned(second);
            assert!(Core::inspect(second, ME).is_err(), "{second:?} beside {first:?}");
        }
        core.close().unwrap();
        for again in names {
            assert!(Core::inspect(again, ME).is_ok());
        }
    }
    // And who forgets to close is in nobody's way.
    drop(open(&device.0));
    open(&path).close().unwrap();
}

fn two_owners() -> (Disk, Core, Core) {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(2 << 20),
        max_size_bytes: Some(8 << 20),
        ..FormatOptions::default()
    });
    let mut first = open_simulated(&disk);
    create(&mut first, "of the first", BLOCK as u64);
    let second = open_simulated(&disk);
    (disk, first, second)
}

#[test]
fn who_is_not_alone_writes_no_superblock() {
    let (disk, first, mut second) = two_owners();
    create(&mut second, "of the second", BLOCK as u64);
    let error = first.close().unwrap_err();
    assert_eq!(error.code(), "ESTALE", "{error}");
    assert!(matches!(error.fault, Fault::Overtaken { .. }), "{error}");
    create(&mut second, "another", BLOCK as u64);
    second.close().unwrap();
    let mut core = open_simulated(&disk);
    assert_eq!(core.list(ME).unwrap().len(), 3);
    assert_eq!(
        core.volume_info().unwrap().segments,
        3,
        "a snapshot without the other's segments"
    );
    core.close().unwrap();
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    let report = check_on(&mut engine, &File::simulated(&disk, "disk"), false).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn who_is_not_alone_does_not_grow_the_volume() {
    let (_, mut first, second) = two_owners();
    let error = first.resize_volume(ROOT, 4 << 20).map(drop).unwrap_err();
    assert_eq!(error.code(), "ESTALE", "{error}");
    // And changes nothing any more.
    let refused = first.create(ME, ME.uid, "more", &CreateOptions::of_size(BLOCK as u64));
    assert_eq!(refused.unwrap_err().code(), "EPOISONED");
    second.close().unwrap();
}

/// A copy that lost its last write is no other owner's. One of another volume is, whose format has come no further yet.
#[test]
fn an_older_superblock_is_passed_over_if_it_is_of_this_volume() {
    for (is_of_another, closed) in [(false, Ok(())), (true, Err("ESTALE"))] {
        let disk = simulated_disk(&FormatOptions {
            size_bytes: Some(2 << 20),
            ..FormatOptions::default()
        });
        let mut older = images::superblock(&disk);
        let core = open_simulated(&disk);
        if is_of_another {
            older.uuid = [9; 16];
        }
        disk.poke(0, older.encode(0).bytes());
        assert_eq!(core.close().map_err(|error| error.code()), closed);
    }
}
