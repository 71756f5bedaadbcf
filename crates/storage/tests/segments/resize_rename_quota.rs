//! The promises: a segment grows and shrinks in place, under its open handles, and never shows what was there before;
//! it takes another name without losing a handle or a byte; an owner holds no more than its quota.

use baio_engine::Wait;
use baio_storage::segment::name::{Key, SegmentName};
use baio_storage::segment::superblock::Superblock;
use baio_storage::{
    Access, Account, Core, CreateOptions, Fault, FormatOptions, Limits, ResizeOptions, SegmentInfo, Usage,
};

use crate::harness::{
    BLOCK, ME, ROOT, STRANGER, config, create, open_moody, open_simulated, open_write, read, simulated_disk, start,
    write, write_request,
};

const B: u64 = BLOCK as u64;

fn small() -> FormatOptions {
    FormatOptions {
        size_bytes: Some(8 << 20),
        ..FormatOptions::default()
    }
}

fn resize(core: &mut Core, name: &str, blocks: u64, reserve: Option<u64>) -> Result<SegmentInfo, baio_storage::Error> {
    let options = ResizeOptions {
        reserve_bytes: reserve.map(|blocks| blocks * B),
        ..ResizeOptions::to_size(blocks * B)
    };
    core.resize(ME, ME.uid, name, &options)
}

/// Size and reserve in blocks.
fn shape(info: &SegmentInfo) -> (u64, u64) {
    (info.size_bytes / B, info.reserve_bytes / B)
}

/// Free blocks and the segments' reserves are the whole volume, and the owner is charged for the same.
fn assert_nothing_leaked(core: &mut Core) {
    let segments = core.list(ROOT).unwrap();
    let info = core.volume_info().unwrap();
    let used: u64 = segments.iter().map(|segment| segment.reserve_bytes).sum();
    assert_eq!(info.free_bytes + used, info.size_bytes, "{segments:?}");
    assert_eq!(info.segments, segments.len() as u64);
    for uid in [ME.uid, STRANGER.uid] {
        let mine = || segments.iter().filter(|segment| segment.owner_uid == uid);
        let used = Usage {
            blocks: mine().map(|segment| segment.reserve_bytes / B).sum(),
            segments: mine().count() as u64,
        };
        assert_eq!(core.quota(ROOT, uid).unwrap().used, used);
    }
}

#[test]
fn a_segment_changes_its_size_under_its_handles() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    let options = CreateOptions {
        reserve_bytes: 20 * B,
        ..CreateOptions::of_size(10 * B)
    };
    core.create(ME, ME.uid, "a", &options).unwrap();
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 0, &[7; 10 * BLOCK]).unwrap();
    assert_eq!(
        write(&mut core, handle, 10 * B, &[7; BLOCK]).unwrap_err().code(),
        "ENOSPC"
    );
    // Inside the reserve, which stays.
    assert_eq!(shape(&resize(&mut core, "a", 15, None).unwrap()), (15, 20));
    assert_eq!(core.size(handle).unwrap(), 15 * B);
    write(&mut core, handle, 14 * B, &[8; BLOCK]).unwrap();
    assert_eq!(read(&mut core, handle, 10 * B, 4 * BLOCK).unwrap(), [0; 4 * BLOCK]);
    // Behind the run, in place.
    let longer = resize(&mut core, "a", 30, None).unwrap();
    assert_eq!(shape(&longer), (30, 30));
    write(&mut core, handle, 29 * B, &[9; BLOCK]).unwrap();
    // A shrink without a word about the reserve gives everything back.
    assert_eq!(shape(&resize(&mut core, "a", 5, None).unwrap()), (5, 5));
    assert_eq!(core.size(handle).unwrap(), 5 * B);
    assert_eq!(
        write(&mut core, handle, 5 * B, &[7; BLOCK]).unwrap_err().code(),
        "ENOSPC"
    );
    assert_eq!(read(&mut core, handle, 0, 10 * BLOCK).unwrap(), [7; 5 * BLOCK]);
    // One that keeps it shows zeroes when it grows again, not the old bytes.
    assert_eq!(shape(&resize(&mut core, "a", 10, Some(12)).unwrap()), (10, 12));
    write(&mut core, handle, 0, &[3; 10 * BLOCK]).unwrap();
    assert_eq!(shape(&resize(&mut core, "a", 2, Some(12)).unwrap()), (2, 12));
    assert_eq!(shape(&resize(&mut core, "a", 12, None).unwrap()), (12, 12));
    assert_eq!(read(&mut core, handle, 0, 2 * BLOCK).unwrap(), [3; 2 * BLOCK]);
    assert_eq!(read(&mut core, handle, 2 * B, 10 * BLOCK).unwrap(), [0; 10 * BLOCK]);
    // Only the reserve; and nothing at all.
    assert_eq!(shape(&resize(&mut core, "a", 12, Some(40)).unwrap()), (12, 40));
    assert_eq!(shape(&resize(&mut core, "a", 12, Some(14)).unwrap()), (12, 14));
    assert_eq!(shape(&resize(&mut core, "a", 12, None).unwrap()), (12, 14));
    assert_nothing_leaked(&mut core);
    core.close().unwrap();
    let mut core = open_simulated(&disk);
    let handle = open_write(&mut core, "a");
    assert_eq!(core.size(handle).unwrap(), 12 * B);
    assert_eq!(read(&mut core, handle, 2 * B, 10 * BLOCK).unwrap(), [0; 10 * BLOCK]);
    assert_nothing_leaked(&mut core);
}

#[test]
fn what_cannot_be_resized_is_told_and_stays() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    create(&mut core, "a", 10 * B);
    create(&mut core, "wall", B);
    let code = |result: Result<SegmentInfo, baio_storage::Error>| result.unwrap_err().code();
    assert_eq!(code(resize(&mut core, "nobody", 1, None)), "ENOENT");
    assert_eq!(code(resize(&mut core, "a", 0, None)), "EINVAL");
    assert_eq!(code(resize(&mut core, "a", 1 << 30, None)), "ENOSPC");
    let options = ResizeOptions::to_size(B);
    assert_eq!(code(core.resize(STRANGER, ME.uid, "a", &options)), "EACCES");
    core.resize(ROOT, ME.uid, "a", &ResizeOptions::to_size(9 * B)).unwrap();
    assert_nothing_leaked(&mut core);
}

/// Requests behind the new end that are under way end first; those that come meanwhile wait, and are then refused; all
/// others go on.
#[test]
fn a_shrink_waits_for_what_it_cuts_off() {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "a", 10 * B);
    let handle = open_write(&mut core, "a");
    whims.borrow_mut().hold = true;
    whims.borrow_mut().hold_turns = 60;
    let request = write_request(&core, handle, 8 * B, &[1; BLOCK]);
    let before = start(&mut core, request);
    core.turn(Wait::No).unwrap();
    whims.borrow_mut().hold = false;
    let shrink = core
        .begin_resize(ME, ME.uid, "a", &ResizeOptions::to_size(5 * B))
        .unwrap();
    for _ in 0..20 {
        core.turn(Wait::No).unwrap();
    }
    assert!(
        core.take_answer(&shrink).is_none(),
        "it cut off a write that was under way"
    );
    let request = write_request(&core, handle, 9 * B, &[2; BLOCK]);
    let behind = start(&mut core, request);
    write(&mut core, handle, 0, &[3; BLOCK]).unwrap();
    // A handle that is opened meanwhile is told, too.
    let other = open_write(&mut core, "a");
    let mut answer = None;
    while answer.is_none() {
        core.turn(Wait::one()).unwrap();
        answer = core.take_answer(&shrink);
    }
    answer.unwrap().unwrap();
    core.wait(before).unwrap().unwrap().result.unwrap();
    let refused = core.wait(behind).unwrap().unwrap().result.unwrap_err();
    assert!(matches!(refused.fault, Fault::Beyond { .. }), "{refused}");
    assert_eq!(core.size(other).unwrap(), 5 * B);
    assert_nothing_leaked(&mut core);
    // The blocks are somebody else's: nothing of the old shows.
    create(&mut core, "b", 5 * B);
    let b = open_write(&mut core, "b");
    assert_eq!(read(&mut core, b, 0, 5 * BLOCK).unwrap(), [0; 5 * BLOCK]);
}

#[test]
fn a_renamed_segment_keeps_handles_and_bytes() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    create(&mut core, "old", 4 * B);
    create(&mut core, "taken", B);
    let handle = open_write(&mut core, "old");
    write(&mut core, handle, 0, &[5; BLOCK]).unwrap();
    let before = core
        .list(ME)
        .unwrap()
        .into_iter()
        .find(|info| info.name == "old")
        .unwrap();
    // Back and forth through enough names to meet the same bucket and others.
    let mut name = "old".to_owned();
    for round in 0..40 {
        let next = format!("n{}", round % 7);
        let renamed = core.rename(ME, ME.uid, &name, &next).unwrap();
        assert_eq!(
            (renamed.name.as_str(), renamed.start_block),
            (next.as_str(), before.start_block)
        );
        assert_eq!(
            core.open_segment(ME, ME.uid, &name, Access::Read).unwrap_err().code(),
            "ENOENT"
        );
        write(&mut core, handle, B, &[round; BLOCK]).unwrap();
        name = next;
        assert_nothing_leaked(&mut core);
        if round % 8 == 0 {
            // What an open finds is the same.
            let mut copy = open_simulated(&disk.copy());
            let listed: Vec<String> = copy.list(ME).unwrap().into_iter().map(|info| info.name).collect();
            assert_eq!(listed, [name.as_str(), "taken"]);
            let other = open_write(&mut copy, &name);
            assert_eq!(read(&mut copy, other, 0, BLOCK).unwrap(), [5; BLOCK]);
            assert_nothing_leaked(&mut copy);
        }
    }
    let code = |result: Result<SegmentInfo, baio_storage::Error>| result.unwrap_err().code();
    assert_eq!(code(core.rename(ME, ME.uid, &name, "taken")), "EEXIST");
    assert_eq!(code(core.rename(ME, ME.uid, &name, &name)), "EEXIST");
    assert_eq!(code(core.rename(ME, ME.uid, "nobody", "x")), "ENOENT");
    assert_eq!(code(core.rename(ME, ME.uid, &name, "a/b")), "EINVAL");
    assert_eq!(code(core.rename(STRANGER, ME.uid, &name, "x")), "EACCES");
    // The handle's errors call it by its new name, and a delete under it reaches the handle.
    let beyond = write(&mut core, handle, 4 * B, &[1; BLOCK]).unwrap_err();
    assert!(beyond.to_string().contains(&format!("#1000/{name}")), "{beyond}");
    core.delete(ME, ME.uid, &name).unwrap();
    assert!(matches!(
        write(&mut core, handle, 0, &[1; BLOCK]).unwrap_err().fault,
        Fault::Stale
    ));
    assert_nothing_leaked(&mut core);
}

/// Names in one bucket take one record; both kinds must have been met by the test above, and here is one of each.
#[test]
fn a_rename_within_a_bucket_is_one_record() {
    let disk = simulated_disk(&small());
    let mut page = [0; BLOCK];
    disk.read(0, &mut page);
    let superblock = Superblock::decode(&page, 0).unwrap();
    let home = |name: &str| {
        let key = Key::segment(ME.uid, SegmentName::new(name).unwrap());
        key.hash(&superblock.hash_seed) % superblock.layout().buckets()
    };
    let same = (0..)
        .map(|n| format!("s{n}"))
        .find(|name| home(name) == home("a"))
        .unwrap();
    let other = (0..)
        .map(|n| format!("o{n}"))
        .find(|name| home(name) != home("a"))
        .unwrap();
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "a", B);
    let requests = |core: &mut Core, from: &str, to: &str| {
        let seen = whims.borrow().seen;
        core.rename(ME, ME.uid, from, to).unwrap();
        whims.borrow().seen - seen
    };
    // Two look-ups and a record of three requests; across buckets another look-up and another record.
    assert_eq!(requests(&mut core, "a", &same), 5);
    assert_eq!(requests(&mut core, &same, &other), 9);
}

#[test]
fn an_owner_holds_no_more_than_its_quota() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    let limits = |blocks, segments| Limits { blocks, segments };
    let refused = core.set_quota(ME, ME.uid, limits(Some(1000), None)).unwrap_err();
    assert_eq!(refused.code(), "EACCES", "{refused}");
    let account = core.set_quota(ROOT, ME.uid, limits(Some(20), Some(2))).unwrap();
    assert_eq!(account.limits, limits(Some(20), Some(2)));
    create(&mut core, "a", 10 * B);
    let over = core
        .create(ME, ME.uid, "b", &CreateOptions::of_size(11 * B))
        .unwrap_err();
    assert_eq!(over.code(), "EDQUOT");
    let text = over.to_string();
    for figure in [11 * B, 10 * B, 20 * B] {
        assert!(text.contains(&figure.to_string()), "{text}");
    }
    // Whoever acts for the owner is bound as well; others are not.
    assert_eq!(
        core.create(ROOT, ME.uid, "b", &CreateOptions::of_size(11 * B))
            .unwrap_err()
            .code(),
        "EDQUOT"
    );
    core.create(STRANGER, STRANGER.uid, "b", &CreateOptions::of_size(30 * B))
        .unwrap();
    create(&mut core, "b", 4 * B);
    assert_eq!(
        core.create(ME, ME.uid, "c", &CreateOptions::of_size(B))
            .unwrap_err()
            .code(),
        "EDQUOT",
        "a third segment"
    );
    // It is the reserve that counts; what is given back can be taken again.
    assert_eq!(resize(&mut core, "b", 4, Some(11)).unwrap_err().code(), "EDQUOT");
    assert_eq!(resize(&mut core, "b", 11, None).unwrap_err().code(), "EDQUOT");
    resize(&mut core, "a", 9, None).unwrap();
    assert_eq!(shape(&resize(&mut core, "b", 4, Some(11)).unwrap()), (4, 11));
    core.rename(ME, ME.uid, "b", "renamed").unwrap();
    assert_nothing_leaked(&mut core);
    // It holds at the next open, and below what is held it only refuses.
    core.set_quota(ROOT, ME.uid, limits(Some(5), None)).unwrap();
    core.close().unwrap();
    let mut core = open_simulated(&disk);
    let expected = Account {
        used: Usage {
            blocks: 20,
            segments: 2,
        },
        limits: limits(Some(5), None),
    };
    assert_eq!(core.quota(ME, ME.uid).unwrap(), expected);
    assert_eq!(core.quota(STRANGER, ME.uid).unwrap_err().code(), "EACCES");
    resize(&mut core, "renamed", 3, None).unwrap();
    assert_eq!(
        core.create(ME, ME.uid, "c", &CreateOptions::of_size(B))
            .unwrap_err()
            .code(),
        "EDQUOT"
    );
    // Without a limit there is no record.
    core.set_quota(ROOT, ME.uid, Limits::default()).unwrap();
    core.set_quota(ROOT, 77, Limits::default()).unwrap();
    create(&mut core, "c", B);
    core.close().unwrap();
    let mut core = open_simulated(&disk);
    assert_eq!(core.quota(ME, ME.uid).unwrap().limits, Limits::default());
    assert_nothing_leaked(&mut core);
}

/// Two changes of one segment do not cross: the second waits for the first, and finds what it left.
#[test]
fn operations_on_one_segment_wait_for_each_other() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    create(&mut core, "a", 100 * B);
    let grow = core
        .begin_resize(ME, ME.uid, "a", &ResizeOptions::to_size(600 * B))
        .unwrap();
    let rename = core.begin_rename(ME, ME.uid, "a", "b").unwrap();
    let delete = core.begin_delete(ME, ME.uid, "a").unwrap();
    let shrink = core
        .begin_resize(ME, ME.uid, "b", &ResizeOptions::to_size(5 * B))
        .unwrap();
    let mut codes = Vec::new();
    for id in [grow, rename, delete, shrink] {
        loop {
            if let Some(answer) = core.take_answer(&id) {
                codes.push(answer.map_or_else(|error| error.code(), |_| "done"));
                break;
            }
            core.turn(Wait::one()).unwrap();
        }
    }
    // The shrink looked before there was a "b".
    assert_eq!(codes, ["done", "done", "ENOENT", "ENOENT"]);
    assert_eq!(shape(&core.list(ME).unwrap()[0]), (600, 600));
    assert_nothing_leaked(&mut core);
}

/// A delete waits for a request on its segment. Meanwhile other segments are made and deleted, and an open of the doomed
/// one waits for the outcome.
#[test]
fn a_delete_that_waits_keeps_nobody_but_its_own_segment_waiting() {
    let disk = simulated_disk(&small());
    let (mut core, whims) = open_moody(&disk, &config());
    create(&mut core, "doomed", 10 * B);
    create(&mut core, "other", B);
    let handle = open_write(&mut core, "doomed");
    whims.borrow_mut().hold = true;
    whims.borrow_mut().hold_turns = 400;
    let request = write_request(&core, handle, 0, &[1; BLOCK]);
    let slow = start(&mut core, request);
    core.turn(Wait::No).unwrap();
    whims.borrow_mut().hold = false;
    let delete = core.begin_delete(ME, ME.uid, "doomed").unwrap();
    let open = core.begin_open(ME, ME.uid, "doomed", Access::Read).unwrap();
    core.delete(ME, ME.uid, "other").unwrap();
    create(&mut core, "another", B);
    assert!(core.take_answer(&delete).is_none() && core.take_answer(&open).is_none());
    core.wait(slow).unwrap().unwrap().result.unwrap();
    let mut answers = Vec::new();
    for id in [delete, open] {
        loop {
            if let Some(answer) = core.take_answer(&id) {
                answers.push(answer.map_or_else(|error| error.code(), |_| "done"));
                break;
            }
            core.turn(Wait::one()).unwrap();
        }
    }
    assert_eq!(answers, ["done", "ENOENT"]);
    assert_nothing_leaked(&mut core);
}

/// Somebody takes every byte of memory that comes free, at any time of a rename: it may be refused, but the volume goes on.
#[test]
fn a_rename_for_which_memory_runs_out_latches_nothing() {
    use baio_engine::sim::{Flash, Profile};
    for begin in 0..12 {
        let disk = simulated_disk(&small());
        // The read-back ends before the mirror is written, so memory comes free in two pieces.
        disk.set_profile(Profile::Flash(Flash::default()));
        let mut core = open_simulated(&disk);
        create(&mut core, "data", B);
        let id = core.begin_rename(ME, ME.uid, "data", "other").unwrap();
        let mut all = Vec::new();
        let mut answer = None;
        for turn in 0..100 {
            while turn >= begin
                && let Ok(buffer) = core.buffer(BLOCK)
            {
                all.push(buffer);
            }
            core.turn(Wait::one()).unwrap();
            answer = core.take_answer(&id);
            if answer.is_some() {
                break;
            }
        }
        let name = answer.expect("it ends").map_or("data", |_| "other");
        all.clear();
        open_write(&mut core, name);
        create(&mut core, "later", B);
        assert_nothing_leaked(&mut core);
    }
}

/// The device writes no limit as the highest number: a limit of so many is none, and the volume is as sound with it.
#[test]
fn the_highest_limit_is_none() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    let limits = Limits {
        blocks: Some(u64::MAX),
        segments: Some(u64::MAX),
    };
    assert_eq!(core.set_quota(ROOT, 7, limits).unwrap(), Account::default());
    let few = Limits {
        blocks: Some(u64::MAX),
        segments: Some(3),
    };
    let told = core.set_quota(ROOT, 8, few).unwrap();
    assert_eq!((told.limits.blocks, told.limits.segments), (None, Some(3)));
    core.close().unwrap();
    let mut engine = baio_engine::Engine::simulated(baio_engine::sim::Sim::new(1).unwrap(), &config()).unwrap();
    let file = baio_engine::File::simulated(&disk, "disk");
    let report = baio_storage::check_on(&mut engine, &file, false).unwrap();
    assert_eq!(report.problems, []);
}

/// A resize that has to copy a segment may take long: a list waits for its records only.
#[test]
fn a_list_does_not_wait_for_a_resize_that_copies() {
    let disk = simulated_disk(&small());
    disk.set_profile(baio_engine::sim::Profile::Flash(baio_engine::sim::Flash::default()));
    let mut core = open_simulated(&disk);
    create(&mut core, "a", 500 * B);
    create(&mut core, "wall", B);
    let options = ResizeOptions::to_size(600 * B);
    let id = core.begin_resize(ME, ME.uid, "a", &options).unwrap();
    while core.list(ME).unwrap()[0].state != "moving" {
        assert!(core.take_answer(&id).is_none(), "all was copied first");
        core.turn(Wait::one()).unwrap();
    }
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    core.take_answer(&id).unwrap().unwrap();
    assert_eq!(shape(&core.list(ME).unwrap()[0]), (600, 600));
}
