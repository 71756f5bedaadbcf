//! The promise: a superblock that cannot be read is told as the device's error, with the place and what to do, and never as no
//! volume at all: who believed that, and formatted, would lose everything. Every set of copies cannot be read, by every
//! command; then the device is well again and everything is there.

use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Engine, File};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{Core, Error, FormatOptions, Repair, check_on};

use crate::harness::{BLOCK, ME, config, create, open_simulated, simulated_disk};

fn engine() -> Engine {
    Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap()
}

fn places(disk: &Disk) -> [u64; 4] {
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    Superblock::decode(&page, 0).unwrap().layout().superblocks_at()
}

fn unread(places: &[u64]) -> Faults {
    places.iter().fold(Faults::none(), |faults, &at| {
        faults.when(Trigger::always(Sick::ReadError).within(at..at + BLOCK as u64))
    })
}

fn assert_is_of_the_device(error: &Error, what: &str) {
    assert_eq!(error.code(), "EIO", "{what}: {error}");
    let text = error.to_string();
    assert!(error.offset.is_some() && text.contains("dmesg"), "{what}: {text}");
    assert!(
        !text.contains("format") && !text.contains("not a baio volume"),
        "{what}: {text}"
    );
}

#[test]
fn copies_that_cannot_be_read_are_the_devices_error() {
    for clean in [true, false] {
        let disk = simulated_disk(&FormatOptions {
            size_bytes: Some(2 << 20),
            ..FormatOptions::default()
        });
        let mut core = open_simulated(&disk);
        create(&mut core, "a", BLOCK as u64);
        if clean {
            core.close().unwrap();
        } else {
            drop(core);
        }
        let places = places(&disk);
        for set in 0..16_u32 {
            let bad: Vec<u64> = (0..4)
                .filter(|copy| set >> copy & 1 == 1)
                .map(|copy| places[copy])
                .collect();
            let what = format!("clean {clean}, copies {set:04b}");
            for command in 0..3 {
                let disk = disk.copy();
                disk.set_faults(unread(&bad));
                let file = File::simulated(&disk, "disk");
                let done = match command {
                    0 => Core::open_on(engine(), &file, &config()).map(drop),
                    1 => check_on(&mut engine(), &file, false).map(|report| {
                        let told: Vec<_> = report.problems.iter().map(|one| (one.kind, one.repair)).collect();
                        assert_eq!(told, vec![("superblock", Repair::Unread); bad.len()], "{what}");
                        assert!(report.problems.iter().all(|one| one.what.contains("EIO")), "{what}");
                        assert_eq!(report.repaired, 0);
                    }),
                    _ => check_on(&mut engine(), &file, true).map(drop),
                };
                match done {
                    // Two that agree are enough, but not to repair.
                    Ok(()) => assert!(
                        bad.is_empty() || bad.len() <= 2 && command < 2,
                        "{what}, command {command}"
                    ),
                    Err(error) => {
                        assert_is_of_the_device(&error, &format!("{what}, command {command}"));
                        assert!(bad.len() > 2 || command == 2, "{what}, command {command}: {error}");
                    }
                }
                disk.set_faults(Faults::none());
                let mut core = Core::open_on(engine(), &file, &config()).unwrap();
                assert_eq!(core.list(ME).unwrap().len(), 1, "{what}");
                core.close().unwrap();
                let report = check_on(&mut engine(), &file, false).unwrap();
                assert_eq!(report.problems, [], "{what}");
            }
        }
    }
}

/// One copy cannot be read at first, and then it holds what no owner wrote beside the others, under their sequence.
#[test]
fn a_copy_that_says_something_else_is_told_though_a_read_has_failed() {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(2 << 20),
        ..FormatOptions::default()
    });
    open_simulated(&disk).close().unwrap();
    let at = places(&disk)[3];
    let mut page = [0; BLOCK];
    disk.read(at, &mut page);
    let mut other = Superblock::decode(&page, 3).unwrap();
    other.epoch += 1;
    disk.poke(at, other.encode(3).bytes());
    let file = File::simulated(&disk, "disk");
    for read_fails in [false, true] {
        let first = Trigger::nth(Sick::ReadError, 1).within(at..at + BLOCK as u64);
        disk.set_faults(match read_fails {
            true => Faults::none().when(first),
            false => Faults::none(),
        });
        let report = check_on(&mut engine(), &file, false).unwrap();
        let told: Vec<_> = report
            .problems
            .iter()
            .map(|one| (one.kind, one.place.object.as_str()))
            .collect();
        assert_eq!(told, [("superblock", "superblock copy 3")], "{read_fails}");
    }
}
