//! The promise: an update of the superblock leaves its rear pair alone until the front pair is durable. Were all four written at
//! once, a crash could tear them all.

use baio_engine::sim::Disk;
use baio_engine::{Engine, File};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, FormatOptions};

use crate::harness::images;
use crate::harness::{BLOCK, config, moody, simulated_disk};

fn sequences(disk: &Disk) -> Vec<u64> {
    let places = images::superblock(disk).layout().superblocks_at();
    let read = |(copy, at): (usize, &u64)| {
        let mut page = [0; BLOCK];
        disk.read(*at, &mut page);
        Superblock::decode(&page, copy as u8).unwrap().sequence
    };
    places.iter().enumerate().map(read).collect()
}

#[test]
fn the_rear_pair_waits_for_the_front_pair() {
    let format = FormatOptions {
        size_bytes: Some(2 << 20),
        ..FormatOptions::default()
    };
    // Every result of an open in turn is an error, although the device did what was asked.
    let mut half_written = 0;
    for at in 0.. {
        let disk = simulated_disk(&format);
        let before = sequences(&disk);
        let (backend, whims) = moody();
        whims.borrow_mut().fail_from = Some(at);
        whims.borrow_mut().fail_count = 1;
        let engine = Engine::with_backend(backend, &config()).unwrap();
        let opened = Core::open_on(engine, &File::simulated(&disk, "disk"), &config());
        if whims.borrow().seen <= at {
            whims.borrow_mut().fail_from = None;
            opened.unwrap().close().unwrap();
            break;
        }
        let Err(_) = opened else { continue };
        let now = sequences(&disk);
        let is_written = |copy: usize| now[copy] > before[copy];
        if (is_written(0) || is_written(1)) && !(is_written(2) || is_written(3)) {
            half_written += 1;
        }
    }
    // One for each of the two copies.
    assert_eq!(
        half_written, 2,
        "the rear pair was begun before the front pair was durable"
    );
}
