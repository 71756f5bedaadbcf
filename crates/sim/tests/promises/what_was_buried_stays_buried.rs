//! A regression, found by exploration (seed 2, trial 25629): a create that nobody was told about comes back after an opening
//! has served the volume without it.
//!
//! 1. A first create in a bucket is cut while its mirror image is written: table whole, mirror torn.
//! 2. One bit of the table's image rots. Both images are invalid now; the opening serves the bucket as it was before, empty,
//!    and leaves the invalid images where they are, in the home of the *next* image.
//! 3. The next create in that bucket is cut while it is written over the rotten image. Torn behind the first sector, the old
//!    head and the new tail, both zeroes there, are the first create's image again, without the rotten bit: valid, and
//!    newer than what was served.

use baio_engine::sim::Disk;
use baio_engine::sim::crash::{Crash, Replay, Torn};
use baio_engine::sim::log::Record;
use baio_sim::world::{self, World};
use baio_storage::{Core, CreateOptions, Identity};

const ROOT: Identity = Identity::new(0, 0);

fn create(core: &mut Core, name: &str) {
    core.create(ROOT, 0, name, &CreateOptions::of_size(4096)).unwrap();
}

fn is_there(disk: &Disk, name: &str) -> bool {
    let mut core = world::open(disk, 3).unwrap();
    core.list(ROOT).unwrap().iter().any(|segment| segment.name == name)
}

/// The place in the record and on the disk of the first write in a range of the disk.
fn write_in(record: &[Record], from: u64, to: u64) -> Option<(usize, u64)> {
    record.iter().enumerate().find_map(|(at, record)| match record {
        Record::Write { offset, .. } if (from..to).contains(offset) => Some((at, *offset)),
        _ => None,
    })
}

fn torn(base: &Disk, record: &[Record], at: usize, torn: Torn) -> Disk {
    let crash = Crash {
        torn: Some((at, torn)),
        ..Crash::clean(at)
    };
    Replay::new(base, record).disk(crash)
}

#[test]
fn a_create_that_was_served_as_absent_does_not_come_back() {
    let World { disk, layout, .. } = World::new(1).unwrap();
    let mut core = world::open(&disk, 1).unwrap();
    let base = disk.copy();
    disk.record();
    create(&mut core, "first");
    let record = disk.take_record();
    let (_, image) = write_in(&record, layout.table_at(), layout.mirror_at()).unwrap();
    let (mirror, _) = write_in(&record, layout.mirror_at(), layout.data_at()).unwrap();

    let disk = torn(&base, &record, mirror, Torn::Tail(4));
    let mut byte = [0];
    disk.read(image + 3000, &mut byte);
    disk.poke(image + 3000, &[byte[0] ^ 4]);

    let mut core = world::open(&disk, 2).unwrap();
    assert!(core.list(ROOT).unwrap().is_empty(), "nobody was told about it");
    let (base, record, at) = (0..40)
        .find_map(|number| {
            let base = disk.copy();
            disk.record();
            let name = format!("second-{number}");
            create(&mut core, &name);
            let record = disk.take_record();
            core.delete(ROOT, 0, &name).unwrap(); // The table holds 16 segments, and the next name may fit better.
            write_in(&record, image, image + 1).map(|(at, _)| (base, record, at))
        })
        .expect("a name in the same bucket");
    for cut in 1..8 {
        let disk = torn(&base, &record, at, Torn::Tail(cut));
        assert!(!is_there(&disk, "first"), "torn behind {cut} sectors");
    }
}
