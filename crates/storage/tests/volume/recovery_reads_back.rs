//! The promise: what recovery and repair write to the inode table is read back, as what operations write is. A device that
//! acknowledges such a write and loses it is found out before anything is served or called repaired, and the page is named.

use baio_engine::sim::{Disk, Fault as Sick, Faults, Sim, Trigger};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{Parity, Place};
use baio_storage::{Core, Error, Fault, FormatOptions, check_on};

use crate::harness::images;
use crate::harness::{BLOCK, ME, config, create, open_simulated, simulated_disk};

fn engine() -> Engine {
    Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap()
}

fn try_open(disk: &Disk) -> Result<(), Error> {
    Core::open_on(engine(), &File::simulated(disk, "disk"), &config()).map(drop)
}

fn repair(disk: &Disk) -> Result<(), Error> {
    check_on(&mut engine(), &File::simulated(disk, "disk"), true).map(drop)
}

#[test]
fn a_write_of_recovery_or_repair_that_the_device_loses_is_noticed() {
    for parity in Parity::BOTH {
        for place in [Place::Table, Place::Mirror] {
            for (what, run) in [("open", try_open as fn(&Disk) -> _), ("repair", repair)] {
                let disk = simulated_disk(&FormatOptions {
                    size_bytes: Some(2 << 20),
                    ..FormatOptions::default()
                });
                let mut core = open_simulated(&disk);
                for _ in 0..3 {
                    create(&mut core, "a", BLOCK as u64);
                    core.delete(ME, ME.uid, "a").unwrap();
                }
                create(&mut core, "a", BLOCK as u64);
                drop(core);
                // One image is torn, as by the crash.
                let (slot, _) = images::find(&disk, "a");
                let layout = *images::superblock(&disk).layout();
                let at = layout.image_at(slot.bucket, parity, place).unwrap();
                disk.poke(at, &[0xa5; 512]);
                let range = at..at + BLOCK as u64;
                disk.set_faults(Faults::none().when(Trigger::always(Sick::LostWrite).within(range)));
                let error = run(&disk).unwrap_err();
                assert!(
                    matches!(&error.fault, Fault::LostWrite { at: named, .. } if *named == at),
                    "{what}, {parity} image of the {place:?}: {error}"
                );
                disk.set_faults(Faults::none());
                run(&disk).unwrap();
                let mut core = open_simulated(&disk);
                assert_eq!(core.list(ME).unwrap().len(), 1);
                core.close().unwrap();
            }
        }
    }
}
