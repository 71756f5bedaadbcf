//! The promise: an update that was acknowledged counts. An image that claims an epoch which the volume has not reached would win
//! over every later update of its bucket: it is refused, `check` names it, and a repair makes it one of this epoch, with all
//! that it holds.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{Parity, Place};
use baio_storage::segment::page;
use baio_storage::{Access, CheckReport, Core, Error, FormatOptions, Repair, check_on};

use crate::harness::images;
use crate::harness::{BLOCK, ME, config, create, open_simulated, simulated_disk};

fn check(disk: &Disk, repair: bool) -> CheckReport {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &config()).unwrap();
    check_on(&mut engine, &File::simulated(disk, "disk"), repair).unwrap()
}

fn try_open(disk: &Disk) -> Result<Core, Error> {
    let engine = Engine::simulated(Sim::new(4).unwrap(), &config()).unwrap();
    Core::open_on(engine, &File::simulated(disk, "disk"), &config())
}

/// Gives images of the segment's bucket an epoch that is far ahead.
fn put_ahead(disk: &Disk, bucket: u64, places: &[Place], parities: &[Parity]) {
    let layout = *images::superblock(disk).layout();
    for &place in places {
        for &parity in parities {
            let at = layout.image_at(bucket, parity, place).unwrap();
            let mut bytes = [0; BLOCK];
            disk.read(at, &mut bytes);
            assert_ne!(bytes, [0; BLOCK], "it was never written");
            bytes[32..40].copy_from_slice(&1000_u64.to_le_bytes());
            let sum = page::checksum(&bytes, 4);
            bytes[4..8].copy_from_slice(&sum.to_le_bytes());
            disk.poke(at, &bytes);
        }
    }
}

#[test]
fn an_image_of_an_epoch_to_come_is_refused_and_repaired() {
    for (clean, parities) in [
        (true, &[Parity::Even][..]),
        (true, &[Parity::Odd]),
        (true, &Parity::BOTH),
        (false, &Parity::BOTH),
    ] {
        let disk = simulated_disk(&FormatOptions {
            size_bytes: Some(2 << 20),
            ..FormatOptions::default()
        });
        let mut core = open_simulated(&disk);
        for name in ["kept", "gone"] {
            create(&mut core, name, BLOCK as u64);
            core.delete(ME, ME.uid, name).unwrap();
            create(&mut core, name, BLOCK as u64);
        }
        core.close().unwrap();
        if !clean {
            images::forget_clean_close(&disk);
        }
        let (at, _) = images::find(&disk, "gone");
        put_ahead(&disk, at.bucket, &[Place::Table, Place::Mirror], parities);

        // Refused: by the open that reads the table, or by the look-up that meets it.
        let refused = try_open(&disk)
            .and_then(|mut core| core.delete(ME, ME.uid, "gone").map(drop))
            .unwrap_err();
        assert_eq!(refused.code(), "ECORRUPT", "{refused}");
        assert!(refused.to_string().contains("epoch 1000"), "{refused}");
        // Named, and made whole.
        let found = check(&disk, false).problems;
        assert!(
            found
                .iter()
                .any(|one| one.kind == "image-epoch" && one.repair == Repair::Repairable),
            "{found:?}"
        );
        check(&disk, true);
        assert_eq!(check(&disk, false).problems, []);
        let mut core = try_open(&disk).unwrap();
        for name in ["kept", "gone"] {
            core.open_segment(ME, ME.uid, name, Access::Read).unwrap();
        }
        // An update counts now, also after a crash.
        core.delete(ME, ME.uid, "gone").unwrap();
        drop(core);
        let mut core = try_open(&disk).unwrap();
        assert_eq!(core.list(ME).unwrap().len(), 1);
    }
}

/// One copy with such an epoch has another one, which is right.
#[test]
fn a_single_copy_ahead_is_healed_like_any_damaged_one() {
    for place in [Place::Table, Place::Mirror] {
        let disk = simulated_disk(&FormatOptions {
            size_bytes: Some(2 << 20),
            ..FormatOptions::default()
        });
        let mut core = open_simulated(&disk);
        create(&mut core, "a", BLOCK as u64);
        drop(core);
        let (at, _) = images::find(&disk, "a");
        put_ahead(&disk, at.bucket, &[place], &[Parity::Odd]);
        let mut core = try_open(&disk).unwrap();
        core.delete(ME, ME.uid, "a").unwrap();
        drop(core);
        let mut core = try_open(&disk).unwrap();
        assert!(core.list(ME).unwrap().is_empty(), "{place:?}");
        core.close().unwrap();
        assert_eq!(check(&disk, false).problems, []);
    }
}
