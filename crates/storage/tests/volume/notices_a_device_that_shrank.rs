//! The promise: a segment ends where its inode says. A file or device that is cut while its volume is open gives errors, never
//! the end of a file; nothing is changed in its metadata any more, and its close says so.

use std::fs::{File, OpenOptions};
use std::path::Path;

use baio_storage::cache::CacheOptions;
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, CreateOptions, Error, Fault, Mode, SegmentRequest};

use crate::harness::{BLOCK, ME, config, create, format, open, open_write, read, read_request, run, sync, write};

const VOLUME: u64 = 4 << 20;
const SEGMENT: usize = 1 << 20;

/// An open volume with one segment, of which the last half lies behind the end of its file.
fn cut(path: &Path) -> (Core, baio_storage::Handle) {
    format(path, VOLUME);
    let mut core = open(path);
    create(&mut core, "below", SEGMENT as u64);
    create(&mut core, "a", SEGMENT as u64);
    core.delete(ME, ME.uid, "below").unwrap();
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 0, &vec![7; SEGMENT]).unwrap();
    sync(&mut core, handle).unwrap();
    let info = core.list(ME).unwrap().remove(0);
    let volume = core.volume_info().unwrap();
    let start = volume.data_at_bytes + info.start_block * u64::from(volume.block_size);
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(start + SEGMENT as u64 / 2).unwrap();
    (core, handle)
}

fn says_that_it_shrank(error: &Error, at: Option<u64>) {
    assert!(matches!(error.fault, Fault::Shrunk { .. }), "{error}");
    assert_eq!((error.code(), error.offset), ("EIO", at), "{error}");
    assert!(error.need().is_some() && error.cure().is_some(), "{error}");
}

fn is_clean(path: &Path) -> bool {
    let mut page = vec![0; BLOCK];
    let file = File::open(path).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, 0).unwrap();
    Superblock::decode(&page, 0).unwrap().is_clean()
}

#[test]
fn a_read_behind_the_end_is_an_error_and_the_volume_latches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let (mut core, handle) = cut(&path);
    let half = SEGMENT as u64 / 2;
    assert_eq!(read(&mut core, handle, 0, SEGMENT / 2).unwrap(), vec![7; SEGMENT / 2]);
    let across = read(&mut core, handle, 0, SEGMENT).unwrap_err();
    says_that_it_shrank(&across, Some(half));
    let behind = read(&mut core, handle, half, BLOCK).unwrap_err();
    says_that_it_shrank(&behind, Some(half));
    let refused = core.create(ME, ME.uid, "next", &CreateOptions::of_size(1)).unwrap_err();
    assert!(matches!(refused.fault, Fault::Latched), "{refused}");
    says_that_it_shrank(&core.close().unwrap_err(), None);
    assert!(!is_clean(&path));
    assert!(Core::open(&path, &config()).is_err());
}

/// A device that is taken away has no bytes; where it ended is of no use to anybody.
#[test]
fn one_of_which_nothing_is_left_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let (mut core, handle) = cut(&path);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let gone = read(&mut core, handle, 0, BLOCK).unwrap_err();
    says_that_it_shrank(&gone, Some(0));
    let told = gone.to_string();
    assert!(told.contains("is gone") && !told.contains("ends at byte"), "{told}");
    says_that_it_shrank(&core.close().unwrap_err(), None);
}

#[test]
fn a_read_at_the_end_of_the_segment_is_still_cut_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    format(&path, VOLUME);
    let mut core = open(&path);
    create(&mut core, "a", SEGMENT as u64);
    let handle = open_write(&mut core, "a");
    assert_eq!(read(&mut core, handle, SEGMENT as u64, BLOCK).unwrap().len(), 0);
    assert_eq!(
        read(&mut core, handle, SEGMENT as u64 - BLOCK as u64, 4 * BLOCK)
            .unwrap()
            .len(),
        BLOCK
    );
    create(&mut core, "next", BLOCK as u64);
    core.close().unwrap();
    assert!(is_clean(&path));
}

#[test]
fn a_cached_read_fails_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let (mut core, handle) = cut(&path);
    let cache = CacheOptions::of_size(64 * BLOCK);
    core.use_cache(&cache).unwrap();
    let request = SegmentRequest {
        mode: Mode::Cached,
        ..read_request(&core, handle, SEGMENT as u64 / 2, BLOCK)
    };
    assert_eq!(run(&mut core, request).result.unwrap_err().code(), "EIO");
    says_that_it_shrank(&core.close().unwrap_err(), None);
}

#[test]
fn a_close_notices_it_though_nobody_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let (core, _) = cut(&path);
    says_that_it_shrank(&core.close().unwrap_err(), None);
    assert!(!is_clean(&path));
}

#[test]
fn a_move_stops_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    let (mut core, handle) = cut(&path);
    let stopped = core.move_segment(ME, ME.uid, "a", None).unwrap_err();
    says_that_it_shrank(&stopped, None);
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), vec![7; BLOCK]);
}
