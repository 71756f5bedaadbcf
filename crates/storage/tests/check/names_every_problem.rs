//! The promise: `check` names every kind of damage with its place and writes nothing; with repair it heals what can be
//! healed, says what is lost, and a second check finds nothing. Segments that were not hit are there afterwards, byte for byte.

use baio_engine::sim::{Disk, Fault as Injected, Faults, Sim, Trigger};
use baio_engine::{Engine, File};
use baio_storage::segment::inode::{Inode, InodeState, RenameFrom};
use baio_storage::segment::layout::{BUCKET_BYTES, Place};
use baio_storage::segment::name::SegmentName;
use baio_storage::segment::probe::SlotAddress;
use baio_storage::{CheckReport, Core, FormatOptions, Repair, SegmentInfo, check, check_on};

use crate::harness::images::{
    find, forget_clean_close, home, put, segments, state_of, superblock, tamper, tamper_bytes,
};
use crate::harness::{self, BLOCK, ME, ROOT, create, open, open_simulated, open_write, read, simulated_disk, write};

fn check_disk(disk: &Disk, repair: bool) -> CheckReport {
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
    check_on(&mut engine, &File::simulated(disk, "disk"), repair).unwrap()
}

/// A closed volume with three segments, each full of its own byte.
fn volume(size_bytes: u64) -> Disk {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(size_bytes),
        ..FormatOptions::default()
    });
    let mut core = open_simulated(&disk);
    for (name, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        create(&mut core, name, 4 * BLOCK as u64);
        let handle = open_write(&mut core, name);
        write(&mut core, handle, 0, &[byte; 4 * BLOCK]).unwrap();
    }
    core.close().unwrap();
    disk
}

/// The kinds of problems that are found; every one has the same fate. Nothing is written.
fn found(disk: &Disk, fate: Repair) -> Vec<&'static str> {
    let fingerprint = disk.fingerprint();
    let report = check_disk(disk, false);
    assert_eq!(disk.fingerprint(), fingerprint, "a check wrote");
    assert!(
        report.problems.iter().all(|problem| problem.repair == fate),
        "{:?}",
        report.problems
    );
    assert_eq!(report.repaired, 0);
    report.problems.iter().map(|problem| problem.kind).collect()
}

/// Repairs, says how many problems were healed, and sees to it that none is left.
fn repair(disk: &Disk) -> u64 {
    let report = check_disk(disk, true);
    let again = check_disk(disk, false);
    assert!(
        again.problems.is_empty() && again.clean && again.in_doubt == 0,
        "{again:?}"
    );
    report.repaired
}

fn list(disk: &Disk) -> Vec<SegmentInfo> {
    let mut core = open_simulated(disk);
    let infos = core.list(ROOT).unwrap();
    core.close().unwrap();
    infos
}

/// The bytes of a segment are still all `byte`.
fn assert_full_of(disk: &Disk, name: &str, byte: u8) {
    let mut core = open_simulated(disk);
    let handle = open_write(&mut core, name);
    assert!(
        read(&mut core, handle, 0, 4 * BLOCK).unwrap() == [byte; 4 * BLOCK],
        "{name}"
    );
    core.close().unwrap();
}

/// What is saved under a name that the repair made.
fn recovered(disk: &Disk) -> (SlotAddress, Inode) {
    let is_made = |(_, inode): &(SlotAddress, Inode)| {
        inode
            .name
            .as_ref()
            .is_some_and(|name| name.as_str().starts_with("recovered-"))
    };
    let mut made: Vec<_> = segments(disk).into_iter().filter(is_made).collect();
    assert_eq!(made.len(), 1);
    made.remove(0)
}

fn bytes_of(disk: &Disk, inode: &Inode) -> Vec<u8> {
    let (at, len) = superblock(disk)
        .layout()
        .run_at(inode.start_block, inode.blocks)
        .unwrap();
    let mut bytes = vec![0; len as usize];
    disk.read(at, &mut bytes);
    bytes
}

#[test]
fn a_sound_volume_has_no_problem() {
    let disk = volume(2 << 20);
    assert_eq!(found(&disk, Repair::Repairable), [""; 0]);
    let report = check_disk(&disk, false);
    assert!(report.clean && report.segments == 3 && report.owners == 1 && report.quarantined == 0);
    assert_eq!(report.blocks - report.free_blocks, 12);
    assert_eq!(repair(&disk), 0);
}

#[test]
fn an_inode_that_cannot_be_decoded_is_saved_in_quarantine() {
    let disk = volume(2 << 20);
    let (at, before) = find(&disk, "b");
    tamper_bytes(&disk, |address, bytes| {
        bytes[0] = 77;
        address == at
    });
    assert_eq!(found(&disk, Repair::Repairable), ["inode"]);
    assert_eq!(repair(&disk), 1);
    let (place, saved) = recovered(&disk);
    assert_eq!(
        (place, saved.state, saved.owner_uid),
        (at, InodeState::Quarantined, ME.uid)
    );
    assert_eq!(
        (saved.start_block, saved.reserve_blocks, saved.uuid),
        (before.start_block, 4, before.uuid)
    );
    assert!(bytes_of(&disk, &saved) == [2; 4 * BLOCK]);
    assert_full_of(&disk, "a", 1);
    assert_eq!(list(&disk).len(), 3);
    let mut core = open_simulated(&disk);
    core.delete(ME, ME.uid, saved.name.as_ref().unwrap().as_str()).unwrap();
    core.close().unwrap();
    assert_eq!(list(&disk).len(), 2, "it is found by the name that it got");
}

#[test]
fn an_inode_that_does_not_even_say_where_its_blocks_are_is_lost() {
    let disk = volume(2 << 20);
    let (at, _) = find(&disk, "b");
    tamper_bytes(&disk, |address, bytes| {
        bytes[296..320].fill(0xff);
        address == at
    });
    assert_eq!(found(&disk, Repair::Lost), ["inode"]);
    assert_eq!(repair(&disk), 0);
    assert_eq!(state_of(&disk, at), InodeState::Tombstone);
    assert_full_of(&disk, "a", 1);
    assert_full_of(&disk, "c", 3);
}

#[test]
fn a_bucket_without_an_image_becomes_four_tombstones() {
    let disk = volume(2 << 20);
    let (at, _) = find(&disk, "b");
    let others = segments(&disk)
        .iter()
        .filter(|(other, _)| other.bucket != at.bucket)
        .count();
    let layout = *superblock(&disk).layout();
    for place in [Place::Table, Place::Mirror] {
        disk.poke(
            layout.bucket_at(at.bucket, place).unwrap(),
            &[0xee; BUCKET_BYTES as usize],
        );
    }
    assert_eq!(found(&disk, Repair::Lost), ["bucket-lost"]);
    assert_eq!(repair(&disk), 0);
    assert_eq!(list(&disk).len(), others);
    for slot in 0..4 {
        let at = SlotAddress {
            bucket: at.bucket,
            slot,
        };
        assert_eq!(state_of(&disk, at), InodeState::Tombstone);
    }
    let mut core = open_simulated(&disk);
    create(&mut core, "b", BLOCK as u64);
    core.close().unwrap();
    assert_eq!(find(&disk, "b").0.bucket, at.bucket, "the slots can be used");
}

/// Moves an inode to the bucket so many steps behind its own.
fn displace(disk: &Disk, name: &str, steps: u64) -> SlotAddress {
    let (at, inode) = find(disk, name);
    let buckets = superblock(disk).layout().buckets();
    let to = SlotAddress {
        bucket: (at.bucket + steps) % buckets,
        slot: 3,
    };
    put(disk, at, &Inode::free());
    put(disk, to, &inode);
    to
}

#[test]
fn a_name_that_a_look_up_does_not_reach_is_made_reachable() {
    let disk = volume(2 << 20);
    let to = displace(&disk, "b", 2);
    assert!(
        open_simulated(&disk.copy())
            .open_segment(ME, ME.uid, "b", baio_storage::Access::Read)
            .is_err()
    );
    assert_eq!(found(&disk, Repair::Repairable), ["name-unreachable"]);
    assert_eq!(repair(&disk), 1);
    assert_eq!(find(&disk, "b").0, to);
    for (name, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_full_of(&disk, name, byte);
    }
}

#[test]
fn or_gets_a_name_by_which_it_is_found() {
    let disk = volume(1 << 30);
    let to = displace(&disk, "b", 100);
    assert_eq!(found(&disk, Repair::Repairable), ["name-unreachable"]);
    assert_eq!(repair(&disk), 1);
    let (at, inode) = recovered(&disk);
    assert_eq!((at, inode.state), (to, InodeState::Live));
    assert_full_of(&disk, inode.name.as_ref().unwrap().as_str(), 2);
    assert_full_of(&disk, "a", 1);
}

#[test]
fn the_second_of_two_with_one_name_gets_another() {
    let disk = volume(2 << 20);
    let (_, mut second) = find(&disk, "b");
    let mut core = open_simulated(&disk);
    create(&mut core, "d", 4 * BLOCK as u64);
    let handle = open_write(&mut core, "d");
    write(&mut core, handle, 0, &[4; 4 * BLOCK]).unwrap();
    core.close().unwrap();
    // "d" under the name of "b", in the home of "b".
    let (at, d) = find(&disk, "d");
    put(&disk, at, &d.tombstone([0; 16]));
    (second.start_block, second.uuid) = (d.start_block, d.uuid);
    put(&disk, home(&disk, ME.uid, "b"), &second);
    assert_eq!(found(&disk, Repair::Repairable), ["name-twice"]);
    let problem = &check_disk(&disk, false).problems[0];
    assert!(
        problem.what.contains("comes to another inode of this name first"),
        "{problem:?}"
    );
    assert_eq!(repair(&disk), 1);
    let (_, inode) = recovered(&disk);
    let made = inode.name.as_ref().unwrap().as_str();
    let (of_b, of_made) = if find(&disk, "b").1.uuid == d.uuid {
        (4, 2)
    } else {
        (2, 4)
    };
    assert_full_of(&disk, "b", of_b);
    assert_full_of(&disk, made, of_made);
}

#[test]
fn the_second_limit_of_one_owner_goes() {
    let disk = volume(2 << 20);
    let quota = Inode {
        state: InodeState::Quota,
        owner_uid: 77,
        generation: 1,
        quota_blocks: 9,
        quota_segments: u64::MAX,
        ..Inode::free()
    };
    let key = baio_storage::segment::name::Key {
        owner_uid: 77,
        name: None,
    };
    let bucket = key.hash(&superblock(&disk).hash_seed) % superblock(&disk).layout().buckets();
    let free: Vec<SlotAddress> = (0..4)
        .map(|slot| SlotAddress { bucket, slot })
        .filter(|at| state_of(&disk, *at) == InodeState::Free)
        .collect();
    let [first, second, ..] = free[..] else {
        panic!("the simulation's key, always the same, puts three segments in there");
    };
    put(&disk, first, &quota);
    put(&disk, second, &quota);
    forget_clean_close(&disk);
    assert_eq!(found(&disk, Repair::Repairable), ["name-twice"]);
    assert_eq!(repair(&disk), 1);
    assert_eq!(state_of(&disk, first), InodeState::Quota);
    assert_eq!(state_of(&disk, second), InodeState::Tombstone);
}

#[test]
fn who_lost_a_block_to_a_later_one_is_quarantined() {
    let disk = volume(2 << 20);
    let (_, b) = find(&disk, "b");
    tamper(&disk, "c", |c| c.start_block = b.start_block + 2);
    assert_eq!(found(&disk, Repair::Repairable), ["overlap"]);
    assert_eq!(repair(&disk), 1);
    let report = check_disk(&disk, false);
    assert_eq!(
        (report.quarantined, find(&disk, "b").1.state),
        (1, InodeState::Quarantined)
    );
    assert_full_of(&disk, "a", 1);
}

#[test]
fn a_rename_that_was_cut_is_finished() {
    let disk = volume(2 << 20);
    let (at, b) = find(&disk, "b");
    let mut renamed = b.clone();
    renamed.name = Some(SegmentName::new("z").unwrap());
    renamed.alloc_seq.counter += 9;
    renamed.rename_from = Some(RenameFrom {
        bucket: at.bucket,
        slot: at.slot as u32,
        generation: b.generation,
    });
    put(&disk, home(&disk, ME.uid, "z"), &renamed);
    forget_clean_close(&disk);
    assert_eq!(found(&disk, Repair::Repairable), ["rename"]);
    assert_eq!(repair(&disk), 1);
    assert_eq!(list(&disk).len(), 3);
    assert_full_of(&disk, "z", 2);
}

#[test]
fn a_snapshot_that_does_not_agree_with_the_inodes_is_written_anew() {
    let disk = volume(2 << 20);
    let (at, b) = find(&disk, "b");
    put(&disk, at, &b.tombstone([0; 16]));
    assert_eq!(found(&disk, Repair::Repairable), ["snapshot"]);
    assert_eq!(repair(&disk), 1);
    let used = check_disk(&disk, false);
    assert_eq!(used.blocks - used.free_blocks, 8);
}

/// Both images before the newest are lost, in table and mirror: the bucket is written once more.
#[test]
fn a_bucket_gets_its_second_generation_back() {
    let disk = volume(2 << 20);
    let (at, b) = find(&disk, "b");
    put(&disk, at, &b);
    put(&disk, at, &b);
    let layout = *superblock(&disk).layout();
    let mut newest = (0, baio_storage::segment::layout::Parity::Even);
    for parity in baio_storage::segment::layout::Parity::BOTH {
        let mut page = [0; BLOCK];
        disk.read(layout.image_at(at.bucket, parity, Place::Table).unwrap(), &mut page);
        newest = newest.max_by(u64::from_le_bytes(page[40..48].try_into().unwrap()), parity);
    }
    for place in [Place::Table, Place::Mirror] {
        disk.poke(
            layout.image_at(at.bucket, newest.1.other(), place).unwrap(),
            &[7; BLOCK],
        );
    }
    let report = check_disk(&disk, false);
    let kinds: Vec<_> = report.problems.iter().map(|one| (one.kind, one.repair)).collect();
    // It was the older one; nobody who comes later can know that.
    assert_eq!(
        kinds,
        [
            ("image", Repair::Repairable),
            ("image", Repair::Repairable),
            ("image-unknown", Repair::Lost)
        ]
    );
    assert_eq!(check_disk(&disk, true).repaired, 2);
    assert_full_of(&disk, "b", 2);
}

trait MaxBy {
    fn max_by(self, generation: u64, parity: baio_storage::segment::layout::Parity) -> Self;
}

impl MaxBy for (u64, baio_storage::segment::layout::Parity) {
    fn max_by(self, generation: u64, parity: baio_storage::segment::layout::Parity) -> Self {
        if generation >= self.0 {
            (generation, parity)
        } else {
            self
        }
    }
}

/// On a file: cut short, with a segment that reached behind the cut; a check leaves bytes and times alone.
#[test]
fn a_file_that_was_cut_is_extended_and_what_was_behind_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 2 << 20);
    let mut core = open(&path);
    for (name, byte) in [("kept", 1), ("cut", 2)] {
        create(&mut core, name, 4 * BLOCK as u64);
        let handle = open_write(&mut core, name);
        write(&mut core, handle, 0, &[byte; 4 * BLOCK]).unwrap();
    }
    let start = core
        .list(ME)
        .unwrap()
        .iter()
        .find(|info| info.name == "cut")
        .unwrap()
        .start_block;
    let data_at = core.volume_info().unwrap().data_at_bytes;
    core.close().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(data_at + (start + 2) * BLOCK as u64).unwrap();
    let (bytes, modified) = (
        std::fs::read(&path).unwrap(),
        file.metadata().unwrap().modified().unwrap(),
    );
    assert_eq!(Core::open(&path, &harness::config()).unwrap_err().code(), "ECORRUPT");

    let mut progress = Vec::new();
    let report = check(&path, false, &mut |so_far| progress.push(so_far)).unwrap();
    let seen: Vec<_> = report
        .problems
        .iter()
        .map(|problem| (problem.kind, problem.repair))
        .collect();
    assert_eq!(
        seen,
        [("device-short", Repair::Repairable), ("segment-cut", Repair::Lost)]
    );
    assert!(report.problems[1].what.contains("1000/cut"), "{report:?}");
    assert_eq!(progress.last().map(|last| last.buckets_done), Some(report.buckets));
    assert!(bytes == std::fs::read(&path).unwrap());
    assert_eq!(file.metadata().unwrap().modified().unwrap(), modified);

    assert_eq!(check(&path, true, &mut |_| {}).unwrap().repaired, 1);
    assert!(check(&path, false, &mut |_| {}).unwrap().problems.is_empty());
    let mut core = open(&path);
    let handle = open_write(&mut core, "kept");
    assert!(read(&mut core, handle, 0, 4 * BLOCK).unwrap() == [1; 4 * BLOCK]);
    let handle = open_write(&mut core, "cut");
    let left = read(&mut core, handle, 0, 4 * BLOCK).unwrap();
    assert!(left[..2 * BLOCK] == [2; 2 * BLOCK] && left[2 * BLOCK..] == [0; 2 * BLOCK]);
    // Who serves the volume is not disturbed, and disturbs a check.
    assert_eq!(check(&path, false, &mut |_| {}).unwrap_err().code(), "EBUSY");
    core.close().unwrap();
}

/// Three of the four copies of the superblock, or both that stand at the beginning: an opening refuses, a repair saves.
#[test]
fn a_superblock_is_saved_from_its_last_copy() {
    for left in 0..4 {
        let disk = volume(2 << 20);
        let places = superblock(&disk).layout().superblocks_at();
        for (_, at) in places.into_iter().enumerate().filter(|(copy, _)| *copy != left) {
            disk.poke(at, &[0; BLOCK]);
        }
        assert_eq!(found(&disk, Repair::Repairable), ["superblock"; 3], "copy {left}");
        assert_eq!(repair(&disk), 3, "copy {left}");
        assert_full_of(&disk, "a", 1);
    }
    let disk = volume(2 << 20);
    let places = superblock(&disk).layout().superblocks_at();
    places[..2].iter().for_each(|at| disk.poke(*at, &[0; BLOCK]));
    assert_eq!(found(&disk, Repair::Repairable), ["superblock"; 2]);
    assert_eq!(repair(&disk), 2);
    assert_full_of(&disk, "a", 1);
}

#[test]
fn what_is_no_volume_is_an_error_and_stays_as_it_is() {
    let disk = Disk::new(1 << 20);
    disk.poke(5, b"something else");
    let fingerprint = disk.fingerprint();
    let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
    let error = check_on(&mut engine, &File::simulated(&disk, "disk"), true).unwrap_err();
    assert_eq!((error.code(), disk.fingerprint()), ("ENOTVOLUME", fingerprint));
}

/// Two good superblocks of a volume with a table of 2^61 bytes, on a small device: nothing is reserved, read or written for it.
#[test]
fn a_table_that_no_device_has_room_for_is_refused() {
    use baio_storage::segment::layout::{Geometry, Layout};
    use baio_storage::segment::superblock::Superblock;
    let disk = volume(16 << 20);
    let geometry = Geometry {
        block_size: BLOCK as u32,
        data_blocks: 100,
        data_blocks_max: 100,
        segments_max: 1 << 49,
    };
    let superblock = Superblock::fresh(Layout::of(&geometry).unwrap(), [1; 16], [2; 16]);
    for (copy, at) in [(0, 0), (1, 64 << 10)] {
        disk.poke(at, superblock.encode(copy).bytes());
    }
    let fingerprint = disk.fingerprint();
    for repair in [false, true] {
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
        let refused = check_on(&mut engine, &File::simulated(&disk, "disk"), repair).unwrap_err();
        assert_eq!(refused.code(), "ECORRUPT", "{refused}");
    }
    assert_eq!(disk.fingerprint(), fingerprint);
}

/// Both copies of the newest image are gone: the one before it serves, and only the snapshot tells that something is missing.
#[test]
fn what_only_the_snapshot_remembers_is_lost() {
    let disk = volume(2 << 20);
    let (at, _) = find(&disk, "b");
    let layout = *superblock(&disk).layout();
    let mut core = open_simulated(&disk);
    core.delete(ME, ME.uid, "b").unwrap();
    create(&mut core, "b", BLOCK as u64); // It is in the newest image only.
    core.close().unwrap();
    let (table_at, mirror_at) = [Place::Table, Place::Mirror]
        .map(|place| layout.bucket_at(at.bucket, place).unwrap())
        .into();
    let mut bytes = [0; BUCKET_BYTES as usize];
    disk.read(table_at, &mut bytes);
    let generation = |page: usize| u64::from_le_bytes(bytes[page * BLOCK + 40..][..8].try_into().unwrap());
    let newest = u64::from(generation(1) > generation(0)) * BLOCK as u64;
    for at in [table_at, mirror_at] {
        disk.poke(at + newest + 100, &[0xee; 8]);
    }
    let report = check_disk(&disk, true);
    assert!(
        report.problems.iter().any(|problem| problem.repair == Repair::Lost),
        "{:?}",
        report.problems
    );
    assert!(
        open_simulated(&disk)
            .list(ME)
            .unwrap()
            .iter()
            .all(|info| info.name != "b")
    );
}

/// A page that cannot be read may be read again tomorrow: a repair that wrote over it would be what loses it.
#[test]
fn what_cannot_be_read_is_not_thrown_away() {
    let disk = volume(16 << 20);
    let (at, _) = find(&disk, "a");
    let layout = *superblock(&disk).layout();
    let mut faults = Faults::none();
    for place in [Place::Table, Place::Mirror] {
        let from = layout.bucket_at(at.bucket, place).unwrap();
        faults = faults.when(Trigger::always(Injected::ReadError).within(from..from + 8192));
    }
    disk.set_faults(faults);
    let check = |repair| {
        let mut engine = Engine::simulated(Sim::new(3).unwrap(), &harness::config()).unwrap();
        check_on(&mut engine, &File::simulated(&disk, "disk"), repair)
    };
    let problems = check(false).unwrap().problems;
    assert!(
        problems.iter().any(|problem| problem.kind == "bucket-unreadable"),
        "{problems:?}"
    );
    assert_eq!(check(true).unwrap_err().code(), "EIO");
    disk.set_faults(Faults::none());
    assert_eq!(open_simulated(&disk).list(ME).unwrap().len(), 3);
    assert!(check(true).unwrap().problems.is_empty());
}
