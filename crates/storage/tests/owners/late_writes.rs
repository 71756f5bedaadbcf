//! The promise: no write of a killed process lands after the first one of the new owner.
//!
//! A killed process is gone at once, its writes are not: with io_uring they land whenever the device is done with them, and
//! only the lock on the very description that carries them is held until then (`crates/storage/src/volume/device.rs`). Here
//! the device is late with marked writes and keeps a log: the owner is killed with such writes in flight, the next one opens
//! the volume and writes, and the log says what landed when. The last test shows that this would be seen: there, the lock
//! lies on another description than the I/O, as in a program that has not thought of it.
//!
//! Needs root, nbdkit and nbdfuse; says so when it has none.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use baio_engine::{Choice, Descriptions, Durability, Engine, File, Open, Policy, Request, Wait};
use baio_storage::{Access, Core};
use rustix::fs::{FlockOperation, flock};

use crate::harness::loop_device::{Mounted, run};
use crate::harness::{
    self, BLOCK, ME, TestName, child, config, create, open_write, role, start, sync, write, write_request,
};
use crate::late_device::{LATE, LateDevice, until};

/// So many late writes are in flight when the owner is killed.
const WRITES: u64 = 4;
/// Side by side they would become one.
const APART: u64 = 2 * BLOCK as u64;

fn late_block() -> Vec<u8> {
    let mut block = vec![7; BLOCK];
    block[..LATE.len()].copy_from_slice(LATE);
    block
}

fn config_of(backend: Choice) -> baio_engine::EngineOptions {
    baio_engine::EngineOptions { backend, ..config() }
}

/// The owner that is killed: starts its writes and waits for them.
fn own(path: &Path, backend: Choice) {
    let mut core = Core::open(path, &config_of(backend)).unwrap();
    let handle = core.open_segment(ME, ME.uid, "late", Access::Write).unwrap().0;
    for at in 0..WRITES {
        let request = write_request(&core, handle, at * APART, &late_block());
        start(&mut core, request);
    }
    loop {
        core.turn(Wait::one()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The careless one: the same, with the lock on a description of its own.
fn own_carelessly(path: &Path) {
    let lock = std::fs::File::options().read(true).write(true).open(path).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let mut engine = Engine::new(&config_of(Choice::Uring)).unwrap();
    let file = open_unclaimed(path);
    for at in 0..WRITES {
        let mut buffer = engine.buffer(BLOCK).unwrap();
        buffer.copy_from_slice(&late_block());
        let offset = (1 << 20) + at * APART;
        let request = Request::write(&file, offset, buffer, Policy::direct());
        engine.submit(request).unwrap();
    }
    loop {
        engine.turn(Wait::one()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn open_unclaimed(path: &Path) -> File {
    let options = Open {
        descriptions: Descriptions::Only(baio_engine::Caching::Direct),
        ..Open::write()
    };
    File::open(path, &options).unwrap()
}

/// Does what a child is told; not in the parent.
fn is_child() -> bool {
    let Some(role) = role() else { return false };
    let (what, path) = role.split_once(' ').unwrap();
    match Choice::ALL.iter().find(|choice| choice.name() == what) {
        Some(&backend) => own(Path::new(path), backend),
        None => own_carelessly(Path::new(path)),
    }
    true
}

/// Starts an owner and kills it when all its writes are late.
fn kill_an_owner(test: TestName, device: &LateDevice, role: &str) {
    device.forget();
    let mut child = child(test, role)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let late = || device.log().iter().any(|line| line.starts_with("begin LATE"));
    until("a write is late", late).unwrap();
    child.kill().unwrap();
    device.note("killed");
    // Its parent asks for its status much later: whoever comes next does not wait for that.
    std::thread::spawn(move || child.wait());
}

/// Late writes that landed after the kill, and those of them that landed after the next owner had begun to write. It begins
/// with superblocks.
fn landings(log: &[String]) -> (usize, usize) {
    let killed = log.iter().position(|line| line == "killed").unwrap();
    let after = &log[killed..];
    let late = |line: &&String| line.starts_with("landed LATE");
    let first = after.iter().position(|line| line.starts_with("begin BAIOVOL")).unwrap();
    (
        after.iter().filter(late).count(),
        after[first..].iter().filter(late).count(),
    )
}

fn check_all(test: TestName, device: &LateDevice, path: &Path) {
    let mut core = harness::open(path);
    create(&mut core, "late", 1 << 20);
    create(&mut core, "other", 1 << 20);
    core.close().unwrap();
    for backend in [Choice::Uring, Choice::Threads, Choice::Aio] {
        if Engine::new(&config_of(backend)).is_err() {
            harness::skip(&format!("no {}", backend.name()));
            continue;
        }
        kill_an_owner(test, device, &format!("{} {}", backend.name(), path.display()));
        let mut core = Core::open(path, &config()).unwrap_or_else(|error| panic!("{}: {error}", backend.name()));
        let handle = open_write(&mut core, "other");
        write(&mut core, handle, 0, &[9; BLOCK]).unwrap();
        sync(&mut core, handle).unwrap();
        core.close().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let (late, too_late) = landings(&device.log());
        assert!(late > 0, "{}: nothing was in flight", backend.name());
        assert_eq!(too_late, 0, "{}: of {late}: {:?}", backend.name(), device.log());
        println!("{}: {late} writes landed after the kill", backend.name());
    }
}

#[test]
fn no_write_of_a_killed_owner_of_a_block_device_lands_late() {
    if is_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = LateDevice::new(dir.path(), 8 << 20) else {
        return;
    };
    Core::format(&device.path, &baio_storage::FormatOptions::default()).unwrap();
    let test = TestName::of(no_write_of_a_killed_owner_of_a_block_device_lands_late);
    check_all(test, &device, &device.path);
}

#[test]
fn no_write_of_a_killed_owner_of_a_file_lands_late() {
    if is_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(device) = LateDevice::new(dir.path(), 32 << 20) else {
        return;
    };
    let point = dir.path().join("mounted");
    std::fs::create_dir(&point).unwrap();
    let mounted = run("mkfs.ext4", &["-q", "-E", "nodiscard", device.path.to_str().unwrap()])
        .and_then(|_| Mounted::at(&device.path, &point));
    let _mounted = match mounted {
        Ok(mounted) => mounted,
        Err(why) => {
            harness::skip(&format!("nothing can be mounted: {why}"));
            return;
        }
    };
    let path = point.join("volume.img");
    harness::format(&path, 8 << 20);
    check_all(
        TestName::of(no_write_of_a_killed_owner_of_a_file_lands_late),
        &device,
        &path,
    );
}

/// The canary: what the others promise is broken here, and seen.
#[test]
fn with_the_lock_on_another_description_they_do_land_late() {
    if is_child() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    if Engine::new(&config_of(Choice::Uring)).is_err() {
        harness::skip("no io_uring, and nothing else leaves writes behind");
        return;
    }
    let Some(device) = LateDevice::new(dir.path(), 8 << 20) else {
        return;
    };
    let test = TestName::of(with_the_lock_on_another_description_they_do_land_late);
    kill_an_owner(test, &device, &format!("careless {}", device.path.display()));
    let lock = std::fs::File::options().write(true).open(&device.path).unwrap();
    let is_free = || flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    until("the lock is free", is_free).unwrap();
    let mut engine = Engine::new(&config()).unwrap();
    let file = open_unclaimed(&device.path);
    let mut buffer = engine.buffer(BLOCK).unwrap();
    buffer.fill(0);
    buffer[..7].copy_from_slice(b"BAIOVOL");
    let policy = Policy {
        durability: Durability::Data,
        ..Policy::direct()
    };
    engine.run(Request::write(&file, 0, buffer, policy)).result.unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let (late, too_late) = landings(&device.log());
    assert!(
        too_late > 0,
        "{late} were in flight, and all were waited for: {:?}",
        device.log()
    );
}
