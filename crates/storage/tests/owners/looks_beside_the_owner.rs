//! Promise: whoever looks at a volume that is being written to sees it as it was at one moment, or is told otherwise; and the owner
//! is named.
//!
//! The owner takes a fixed walk, so that the states which exist can be told from those that do not:
//!
//! - one of the names `a` and `b` exists, never both and never none;
//! - `left` is resized, then `right` to the same size: `left` is never smaller by more than a step, nor ahead by more;
//! - `first` is made before `second` and deleted after it: never is `second` there alone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baio_storage::{Core, CreateOptions, InUse, ResizeOptions, SegmentInfo};

use crate::harness::loop_device::Loop;
use crate::harness::{BLOCK, ME, config, format};

const ROUNDS: usize = 500;
const STEPS: u64 = 8;

/// Owns the volume, and changes it until it is told to end.
fn own(path: &Path, ended: &AtomicBool, is_open: &AtomicBool) {
    let mut core = Core::open(path, &config()).unwrap();
    for name in ["a", "left", "right"] {
        let options = CreateOptions::of_size(BLOCK as u64);
        core.create(ME, ME.uid, name, &options).unwrap();
    }
    is_open.store(true, Ordering::Release);
    let mut step = 0;
    while !ended.load(Ordering::Acquire) {
        step += 1;
        let names = if step % 2 == 1 { ["a", "b"] } else { ["b", "a"] };
        core.rename(ME, ME.uid, names[0], names[1]).unwrap();
        let blocks = 1 + step % STEPS;
        for name in ["left", "right"] {
            core.resize(ME, ME.uid, name, &ResizeOptions::to_size(blocks * BLOCK as u64))
                .unwrap();
        }
        for name in ["first", "second"] {
            core.create(ME, ME.uid, name, &CreateOptions::of_size(BLOCK as u64))
                .unwrap();
        }
        for name in ["second", "first"] {
            core.delete(ME, ME.uid, name).unwrap();
        }
    }
    core.close().unwrap();
}

/// What is wrong with a list that is told to be of one moment.
fn wrong(segments: &[SegmentInfo]) -> Option<String> {
    let find = |name: &str| segments.iter().find(|segment| segment.name == name);
    let there = |name: &str| find(name).is_some();
    let blocks = |name: &str| find(name).map(|segment| segment.size_bytes / BLOCK as u64);
    let (Some(left), Some(right)) = (blocks("left"), blocks("right")) else {
        return Some("a segment is missing".into());
    };
    // In steps of one, from the last to the first.
    let ahead = (left + STEPS - right) % STEPS;
    let is_between = ahead == 1;
    if ahead > 1 {
        return Some(format!("left has {left} blocks, right {right}"));
    }
    if there("a") == there("b") {
        return Some(format!("a: {}, b: {}", there("a"), there("b")));
    }
    if there("second") && !there("first") {
        return Some("second without first".into());
    }
    if is_between && (there("first") || there("second")) {
        return Some(format!("left has {left} blocks, right {right}, and first is there"));
    }
    segments
        .iter()
        .any(|segment| segment.state == "quarantined")
        .then(|| "quarantined".into())
}

/// Looks at a volume so often at one path while its owner has it at another, or at the same.
fn look_at(path: &Path, owners: &Path, rounds: usize) {
    let (ended, is_open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let owner = {
        let (path, ended, is_open) = (owners.to_owned(), Arc::clone(&ended), Arc::clone(&is_open));
        std::thread::spawn(move || own(&path, &ended, &is_open))
    };
    while !is_open.load(Ordering::Acquire) {
        assert!(!owner.is_finished());
        std::thread::yield_now();
    }
    let (mut torn, mut states) = (0, std::collections::BTreeSet::new());
    for round in 0..rounds {
        let seen = Core::inspect_beside(path, ME).unwrap();
        let (volume, segments) = seen.found;
        if seen.torn {
            torn += 1;
            continue;
        }
        assert_eq!(wrong(&segments), None, "round {round}: {segments:#?}");
        let in_use = InUse {
            pid: Some(std::process::id()),
        };
        assert_eq!(volume.in_use, Some(in_use));
        assert_eq!(volume.segments, segments.len() as u64);
        // One that is being moved has blocks in two places.
        if segments.iter().all(|segment| segment.state == "live") {
            let held: u64 = segments.iter().map(|segment| segment.reserve_bytes).sum();
            assert_eq!(volume.free_bytes, volume.size_bytes - held);
        }
        assert_eq!(volume.warnings, Vec::<String>::new());
        states.insert(format!("{segments:?}"));
        let right = Core::inspect_segment_beside(path, ME, ME.uid, "right").unwrap();
        assert!((1..=STEPS).contains(&(right.found.size_bytes / BLOCK as u64)));
    }
    ended.store(true, Ordering::Release);
    owner.join().unwrap();
    // Where writes cost nothing, as on tmpfs, it hardly ever stands still.
    assert!(torn < rounds / 2, "{torn} of {rounds} looks were torn");
    assert!(
        states.len() > 10,
        "the owner did hardly anything: {} states",
        states.len()
    );
}

#[test]
fn what_is_seen_was_so_or_is_told_as_torn() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("vol");
    format(&path, 16 << 20);
    look_at(&path, &path, ROUNDS);
}

/// The kernel keeps a file and a loop device over it the same for whoever reads past the page cache.
#[test]
fn a_loop_device_and_its_file_show_the_same() {
    let place = tempfile::tempdir().unwrap();
    let Some(device) = Loop::new(place.path(), 16 << 20, &[]) else {
        return;
    };
    let file = place.path().join("backing");
    format(&file, 16 << 20);
    for (path, owners) in [(&device.0, &device.0), (&file, &device.0), (&device.0, &file)] {
        look_at(path, owners, ROUNDS / 4);
        let mut core = Core::open(&file, &config()).unwrap();
        for info in core.list(ME).unwrap() {
            core.delete(ME, ME.uid, &info.name).unwrap();
        }
        core.close().unwrap();
    }
}

/// Nobody has it: it is looked at as ever, under a lock.
#[test]
fn whoever_looks_at_a_volume_that_is_free_is_told_the_same_as_ever() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("vol");
    format(&path, 4 << 20);
    let mut core = Core::open(&path, &config()).unwrap();
    core.create(ME, ME.uid, "a", &CreateOptions::of_size(BLOCK as u64))
        .unwrap();
    let beside = Core::inspect_view_beside(&path, ME).unwrap();
    assert!(!beside.torn && beside.found.in_use.is_some() && !beside.found.clean);
    assert!(Core::inspect(&path, ME).is_err(), "who insists on the lock is refused");
    core.close().unwrap();
    let beside = Core::inspect_beside(&path, ME).unwrap();
    assert!(!beside.torn);
    assert_eq!(beside.found, Core::inspect(&path, ME).unwrap());
    assert!(beside.found.0.in_use.is_none() && beside.found.0.clean);
    let error = Core::inspect_segment_beside(&path, ME, ME.uid, "b").unwrap_err();
    let as_ever = Core::inspect_segment(&path, ME, ME.uid, "b").unwrap_err();
    assert_eq!(error.to_string(), as_ever.to_string());
}

/// What is damaged for good is an error beside the owner too, and soon.
#[test]
fn damage_is_no_change() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("vol");
    format(&path, 4 << 20);
    let core = Core::open(&path, &config()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    // Every page of metadata is gone behind the owner's back.
    let data_at = core.volume_info().unwrap().data_at_bytes as usize;
    let mut lost = bytes.clone();
    lost[..data_at].fill(0x5a);
    std::fs::write(&path, &lost).unwrap();
    // What changes is looked at for two seconds.
    let began = std::time::Instant::now();
    assert!((0..30).all(|_| Core::inspect_beside(&path, ME).is_err()));
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    std::fs::write(&path, &bytes).unwrap();
    core.close().unwrap();
}
