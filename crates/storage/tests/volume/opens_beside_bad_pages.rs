//! The promise: a page of metadata that cannot be read costs that page, not the volume: the superblock has its other copies,
//! the table its mirror, the snapshot the table. Each read of an opening fails once, alone and with the one after it; the
//! opening succeeds with everything there, or it fails with the device's error; it is never wrong.

use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{BUCKET_BYTES, Place};
use baio_storage::segment::name::{Key, SegmentName};
use baio_storage::{Core, FormatOptions, Repair, check_on};

use crate::harness::images::superblock;
use crate::harness::{self, BLOCK, ME, config, create, open_simulated, open_write, read, simulated_disk, write};

fn volume(clean: bool) -> Disk {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(2 << 20),
        ..FormatOptions::default()
    });
    let mut core = open_simulated(&disk);
    for name in ["a", "b", "c"] {
        create(&mut core, name, BLOCK as u64);
        let handle = open_write(&mut core, name);
        write(&mut core, handle, 0, &[name.as_bytes()[0]; BLOCK]).unwrap();
    }
    if clean {
        core.close().unwrap();
    }
    disk
}

/// Opens a copy of the disk on a device whose results fail as told; how many results there were.
fn open_with_failures(disk: &Disk, from: u64, count: u64) -> (u64, Result<(), String>) {
    let disk = disk.copy();
    let (backend, whims) = harness::moody();
    whims.borrow_mut().fail_from = Some(from);
    whims.borrow_mut().fail_count = count;
    let engine = Engine::with_backend(backend, &config()).unwrap();
    let opened = Core::open_on(engine, &File::simulated(&disk, "disk"), &config());
    whims.borrow_mut().fail_count = 0;
    let seen = whims.borrow().seen;
    let mut core = match opened {
        Ok(core) => core,
        Err(error) => return (seen, Err(error.to_string())),
    };
    assert_eq!(core.volume_info().unwrap().segments, 3);
    for name in ["a", "b", "c"] {
        let handle = open_write(&mut core, name);
        assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [name.as_bytes()[0]; BLOCK]);
    }
    core.close().unwrap();
    (seen, Ok(()))
}

#[test]
fn what_cannot_be_read_has_another_copy() {
    for clean in [true, false] {
        let disk = volume(clean);
        let (results, _) = open_with_failures(&disk, u64::MAX, 0);
        for count in [1, 2] {
            let failed: Vec<u64> = (0..results)
                .filter(|from| open_with_failures(&disk, *from, count).1.is_err())
                .collect();
            // The first flush, and the updates of the superblock: what must be durable. Everything else is a read.
            let writes = if clean { 1 + 4 } else { 1 + 8 };
            let most = writes + (count - 1) * 3;
            assert!(
                failed.len() as u64 <= most,
                "clean {clean}, {count} of {results}: {failed:?}"
            );
            assert!(results > writes + 4 && !failed.is_empty());
        }
    }
}

/// An open volume goes on in the same way: a look-up reads the mirror where the table cannot be read.
#[test]
fn a_look_up_beside_a_bad_page_reads_the_mirror() {
    let disk = volume(true);
    let (backend, whims) = harness::moody();
    let engine = Engine::with_backend(backend, &config()).unwrap();
    let mut core = Core::open_on(engine, &File::simulated(&disk, "disk"), &config()).unwrap();
    for name in ["a", "b", "c"] {
        let seen = whims.borrow().seen;
        whims.borrow_mut().fail_from = Some(seen);
        whims.borrow_mut().fail_count = 1;
        let handle = open_write(&mut core, name);
        assert!(
            whims.borrow().seen >= seen + 2,
            "the read that failed was followed by another"
        );
        whims.borrow_mut().fail_count = 0;
        assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [name.as_bytes()[0]; BLOCK]);
    }
    core.close().unwrap();
}

/// The table is read in large pieces, and what is left at its end may be one bucket. That nothing of it can be read is no sign that
/// the device is gone: the mirror has it.
#[test]
fn an_end_of_the_table_that_cannot_be_read_is_in_the_mirror() {
    let disk = simulated_disk(&FormatOptions {
        segments: Some(257),
        ..FormatOptions::of_size(8 << 20)
    });
    let superblock = superblock(&disk);
    let layout = superblock.layout();
    let last = layout.buckets() - 1;
    assert_eq!(last, 128, "one bucket is left of a piece of 1 MiB");
    let is_last = |name: &String| {
        let key = Key::segment(ME.uid, SegmentName::new(name).unwrap());
        key.hash(&superblock.hash_seed) % layout.buckets() == last
    };
    let name = (0..).map(|number| format!("n{number}")).find(is_last).unwrap();
    let mut core = open_simulated(&disk);
    create(&mut core, &name, BLOCK as u64);
    drop(core); // Not closed: the next opening reads the table.
    let at = layout.bucket_at(last, Place::Table).unwrap();
    let bad = |times| {
        let trigger = Trigger::nth(Sick::ReadError, 1).times(times);
        Faults::none().when(trigger.within(at..at + BUCKET_BYTES))
    };

    // All of it, then each page by itself.
    disk.set_faults(bad(3));
    let mut core = open_simulated(&disk);
    assert_eq!(disk.faults_injected().of(Sick::ReadError), 3);
    disk.set_faults(bad(u64::MAX));
    assert_eq!(core.list(ME).unwrap().len(), 1);
    assert!(disk.faults_injected().total() > 3, "the list has not met them");
    disk.set_faults(Faults::none());
    core.close().unwrap();

    disk.set_faults(bad(u64::MAX));
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    let report = check_on(&mut engine, &File::simulated(&disk, "disk"), false).unwrap();
    let told: Vec<_> = report.problems.iter().map(|one| (one.kind, one.repair)).collect();
    assert_eq!(told, [("image", Repair::Unread); 2], "{:?}", report.problems);
}

/// With memory for one bucket at a time, too, a check ends where the device is gone: it does not tell of every bucket.
#[test]
fn a_check_with_little_memory_ends_where_nothing_can_be_read() {
    let disk = simulated_disk(&FormatOptions {
        segments: Some(257),
        ..FormatOptions::of_size(8 << 20)
    });
    let layout = *superblock(&disk).layout();
    let gone = |at: u64| Trigger::always(Sick::ReadError).within(at..at + layout.table_bytes());
    let (table, mirror) = (gone(layout.table_at()), gone(layout.mirror_at()));
    disk.set_faults(Faults::none().when(table).when(mirror));
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    let mut held: Vec<_> = std::iter::from_fn(|| engine.buffer(BUCKET_BYTES as usize)).collect();
    // No two of those that are free are neighbours.
    for number in 0..12 {
        drop(held.remove(number));
    }
    let failed = check_on(&mut engine, &File::simulated(&disk, "disk"), false).unwrap_err();
    assert_eq!(failed.code(), "EIO", "{failed}");
    let at = failed.offset.unwrap();
    assert_eq!(at, layout.table_at() + 16 * BUCKET_BYTES, "{failed}");
}
