//! The promise: `check` repairs every loss of one block of metadata, whatever was put in its place: zeroes, garbage, or what
//! stood there before, as a device leaves it that acknowledges a write and loses it. Every page is tried, of a volume that was
//! closed and of one whose process was killed; the check names the page, a repair heals it, a second check finds nothing, and
//! every segment and byte is there. Of both copies of one image nobody can know what they held: where that may have been the last
//! state of a bucket it is said, and the check does not end as if nothing were lost.

use baio_engine::sim::{Disk, Sim};
use baio_engine::{Engine, File};
use baio_storage::segment::layout::{Parity, Place};
use baio_storage::{CheckReport, FormatOptions, Repair, SegmentInfo, check_on};

use crate::harness::images::superblock;
use crate::harness::{
    self, BLOCK, ME, ROOT, Random, STRANGER, create, open_simulated, open_write, read, simulated_disk, write,
};

const SEGMENTS: u8 = 9;

fn check(disk: &Disk, repair: bool) -> CheckReport {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
    check_on(&mut engine, &File::simulated(disk, "disk"), repair).unwrap()
}

/// A volume with a history, and what it looked like on the way.
fn volume(clean: bool) -> (Disk, Vec<Disk>) {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(2 << 20),
        ..FormatOptions::default()
    });
    let mut before = vec![disk.copy()];
    let mut core = open_simulated(&disk);
    for round in 0..3 {
        for segment in 0..SEGMENTS {
            let name = format!("s{segment}");
            create(&mut core, &name, 2 * BLOCK as u64);
            let handle = open_write(&mut core, &name);
            write(&mut core, handle, 0, &[segment + 1; 2 * BLOCK]).unwrap();
            before.push(disk.copy());
            if round < 2 {
                core.delete(ME, ME.uid, &name).unwrap();
                before.push(disk.copy());
            }
        }
        core.close().unwrap();
        before.push(disk.copy());
        core = open_simulated(&disk);
    }
    let options = baio_storage::CreateOptions::of_size(BLOCK as u64);
    core.create(STRANGER, STRANGER.uid, "theirs", &options).unwrap();
    if clean {
        core.close().unwrap();
    }
    (disk, before)
}

/// Every page of metadata that means something.
fn pages(disk: &Disk) -> Vec<(String, u64)> {
    let superblock = superblock(disk);
    let layout = superblock.layout();
    let copies = layout.superblocks_at();
    let mut pages: Vec<(String, u64)> = (0..)
        .zip(copies)
        .map(|(copy, at)| (format!("superblock {copy}"), at))
        .collect();
    for bucket in 0..layout.buckets() {
        for place in [Place::Table, Place::Mirror] {
            for parity in Parity::BOTH {
                let at = layout.image_at(bucket, parity, place).unwrap();
                pages.push((format!("bucket {bucket}, {place:?}, {parity:?}"), at));
            }
        }
    }
    if superblock.valid_snapshot().is_some() {
        pages.push(("bitmap".into(), layout.bitmap_at()));
        pages.push(("accounts".into(), copies[2] + BLOCK as u64));
    }
    pages
}

fn page_at(disk: &Disk, at: u64) -> Vec<u8> {
    let mut page = vec![0; BLOCK];
    disk.read(at, &mut page);
    page
}

/// What a user finds on the volume.
fn contents(disk: &Disk) -> (Vec<SegmentInfo>, Vec<Vec<u8>>) {
    let mut core = open_simulated(disk);
    let infos = core.list(ROOT).unwrap();
    let bytes = (0..SEGMENTS)
        .map(|segment| {
            let handle = open_write(&mut core, &format!("s{segment}"));
            read(&mut core, handle, 0, 2 * BLOCK).unwrap()
        })
        .collect();
    // And it can be used: what was damaged is written.
    core.delete(ME, ME.uid, "s0").unwrap();
    create(&mut core, "s0", 2 * BLOCK as u64);
    core.close().unwrap();
    (infos, bytes)
}

fn destroy_one_after_the_other(clean: bool) {
    let (disk, before) = volume(clean);
    let sound = check(&disk, false);
    assert!(sound.problems.is_empty(), "{:?}", sound.problems);
    assert_eq!(
        (sound.clean, sound.segments, sound.owners),
        (clean, u64::from(SEGMENTS) + 1, 2)
    );
    let expected = contents(&disk.copy());
    let mut random = Random(11);
    let (mut tried, mut stale) = (0, 0);
    for (what, at) in pages(&disk) {
        let page = page_at(&disk, at);
        let older = before
            .iter()
            .map(|disk| page_at(disk, at))
            .rev()
            .find(|older| *older != page);
        let mut flipped = page.clone();
        flipped[random.below(BLOCK as u64) as usize] ^= 1 << random.below(8);
        let damages = [
            ("zeroes", Some(vec![0; BLOCK])),
            ("garbage", Some(random.bytes(BLOCK))),
            ("a bit", Some(flipped)),
            ("older", older),
        ];
        for (how, damage) in damages {
            let Some(damage) = damage.filter(|damage| *damage != page) else {
                continue;
            };
            let context = format!("{how} in {what}");
            let damaged = disk.copy();
            damaged.poke(at, &damage);
            let fingerprint = damaged.fingerprint();
            let found = check(&damaged, false);
            assert_eq!(damaged.fingerprint(), fingerprint, "{context}: a check wrote");
            let named = found.problems.iter().any(|problem| problem.place.offset == at);
            // In the mirror of a killed volume an older image is what a crash leaves.
            assert!(
                named || (!clean && found.in_doubt > sound.in_doubt),
                "{context}: {:?}",
                found.problems
            );
            let harmless = |problem: &baio_storage::Problem| problem.repair == Repair::Repairable;
            assert!(found.problems.iter().all(harmless), "{context}: {:?}", found.problems);
            let repaired = check(&damaged, true);
            assert_eq!(
                repaired.repaired,
                found.problems.len() as u64,
                "{context}: {:?}",
                repaired.problems
            );
            let again = check(&damaged, false);
            assert!(
                again.problems.is_empty() && again.clean,
                "{context}: {:?}",
                again.problems
            );
            assert!(contents(&damaged) == expected, "{context}: contents");
            tried += 1;
            stale += u64::from(how == "older");
        }
    }
    assert!(
        tried > 60 && stale > 10,
        "{tried} losses, {stale} of them older contents"
    );
}

#[test]
fn of_a_closed_volume() {
    destroy_one_after_the_other(true);
}

#[test]
fn of_a_killed_volume() {
    destroy_one_after_the_other(false);
}

/// A repair that the power cuts anywhere is an opening that crashed: the next repair finds everything.
#[test]
fn a_repair_can_be_cut_short() {
    let (disk, _) = volume(true);
    let expected = contents(&disk.copy());
    let mut random = Random(12);
    let mut cuts = 0;
    for (what, at) in pages(&disk).into_iter().step_by(5) {
        let damaged = disk.copy();
        damaged.poke(at, &random.bytes(BLOCK));
        for steps in (0..).step_by(3) {
            let cut = damaged.copy();
            cut.cut_power_after(steps, random.bits());
            let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
            let repaired = check_on(&mut engine, &File::simulated(&cut, "disk"), true);
            let Some(left) = cut.surviving() else {
                repaired.unwrap();
                break;
            };
            let again = check(&left, true);
            let lost = again.problems.iter().any(|problem| problem.repair == Repair::Lost);
            assert!(!lost, "{what}, cut after {steps}: {:?}", again.problems);
            assert!(check(&left, false).problems.is_empty(), "{what}, cut after {steps}");
            assert!(contents(&left) == expected, "{what}, cut after {steps}: contents");
            cuts += 1;
        }
    }
    assert!(cuts > 50, "{cuts} cuts");
}

/// What there is, whatever became of it.
fn listed(disk: &Disk) -> Vec<SegmentInfo> {
    let mut core = open_simulated(disk);
    core.list(ROOT).unwrap()
}

#[test]
fn both_copies_of_an_image_are_lost_and_it_is_said_that_nobody_can_know() {
    let (mut losses, mut unknown) = (0, 0);
    for (clean, snapshot_too) in [(false, false), (true, false), (true, true)] {
        let (sound, _) = volume(clean);
        let layout = *superblock(&sound).layout();
        let before = listed(&sound.copy());
        for bucket in 0..layout.buckets() {
            for parity in Parity::BOTH {
                let disk = sound.copy();
                let spoil = |at: u64| disk.poke(at + 1000, &[0x5A; 100]);
                for place in [Place::Table, Place::Mirror] {
                    spoil(layout.image_at(bucket, parity, place).unwrap());
                }
                if snapshot_too {
                    spoil(layout.bitmap_at());
                }
                let found = check(&disk, false);
                let report = check(&disk, true);
                let what = format!("bucket {bucket}, {parity}, clean: {clean}, snapshot: {snapshot_too}");
                let is_said = |report: &CheckReport| report.problems.iter().any(|one| one.repair == Repair::Lost);
                assert_eq!(is_said(&found), is_said(&report), "{what}");
                let is_lost = listed(&disk) != before;
                assert!(!is_lost || is_said(&report), "{what}: {:?}", report.problems);
                if is_said(&report) {
                    assert!(
                        report.repaired < report.problems.len() as u64,
                        "{what}: the status is not 0"
                    );
                    unknown += 1;
                }
                losses += u64::from(is_lost);
                assert!(
                    check(&disk, false).problems.is_empty(),
                    "{what}: a repair makes it sound"
                );
            }
        }
    }
    assert!(losses > 0 && unknown >= losses, "{losses} losses, {unknown} told");
}
