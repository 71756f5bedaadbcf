//! The promise: an open that truncates cuts the file for the page cache too, whether the file is open elsewhere or was closed a moment ago
//! with pages that are not written yet.

use baio::{Durability, Local, OpenOptions};

use crate::common;

fn cached() -> OpenOptions {
    OpenOptions::new().write().create().cached()
}

/// One process, one file after the other: written and closed, then opened with truncate.
#[test]
fn what_was_written_and_closed_is_cut_by_the_next_open() {
    for round in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let link = Local::new_with(&common::cached_options(64, 128)).unwrap();
        let one = cached().open(&link, &path).wait().unwrap();
        one.write_all_at(0, vec![7_u8; 40_000]).wait().unwrap();
        drop(one);
        let two = cached().truncate().open(&link, &path).wait().unwrap();
        let size = two.size().wait().unwrap();
        let got = two.read_at(0, vec![0_u8; 100]).wait().unwrap();
        two.write_all_at(0, b"new".to_vec()).wait().unwrap();
        two.sync(Durability::Data).wait().unwrap();
        let disk = std::fs::read(&path).unwrap();
        assert_eq!((size, got.bytes), (0, 0), "round {round}");
        assert_eq!(disk, b"new", "round {round}");
    }
}

/// A reader with the file open (clean pages), another opens it with truncate.
#[test]
fn what_another_has_cached_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![7_u8; 40_000]).unwrap();
    let link = Local::new_with(&common::cached_options(64, 128)).unwrap();
    let one = cached().open(&link, &path).wait().unwrap();
    one.read_at(0, vec![0_u8; 40_000]).wait().unwrap();
    let two = cached().truncate().open(&link, &path).wait().unwrap();
    let size = two.size().wait().unwrap();
    let got = two.read_at(0, vec![0_u8; 100]).wait().unwrap();
    assert_eq!((size, got.bytes), (0, 0));
    two.write_all_at(0, b"new".to_vec()).wait().unwrap();
    two.sync(Durability::Data).wait().unwrap();
    let disk = std::fs::read(&path).unwrap();
    assert_eq!(disk, b"new");
}
