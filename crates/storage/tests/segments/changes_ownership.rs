//! The promise: a segment's mode, group and owner can be changed by whom they are to change; it is charged to its new owner before anything
//! is written; what is open stays open; and a crash or a failed request leaves it with one owner, the old or the new.

use baio_storage::{Access, Core, CreateOptions, Fault, FormatOptions, Identity, Limits, OwnershipChange, SegmentInfo};

use crate::harness::{
    BLOCK, ME, ROOT, STRANGER, config, create, open_moody, open_simulated, open_write, read, simulated_disk, write,
};

const B: u64 = BLOCK as u64;

fn volume() -> Core {
    open_simulated(&simulated_disk(&small()))
}

fn small() -> FormatOptions {
    FormatOptions::of_size(8 << 20)
}

fn change(core: &mut Core, who: Identity, to: OwnershipChange) -> Result<SegmentInfo, baio_storage::Error> {
    core.change_ownership(who, ME.uid, "a", to)
}

/// What the code of a refusal is.
fn refused(core: &mut Core, who: Identity, to: OwnershipChange) -> &'static str {
    let before = core.list(ROOT).unwrap();
    let error = change(core, who, to).unwrap_err();
    assert_eq!(core.list(ROOT).unwrap(), before, "{error}");
    assert_all_is_charged(core);
    error.code()
}

/// Each owner is charged for its segments, and for nothing else.
fn assert_all_is_charged(core: &mut Core) {
    let segments = core.list(ROOT).unwrap();
    for uid in [ME.uid, STRANGER.uid] {
        let its = segments.iter().filter(|segment| segment.owner_uid == uid);
        let its: Vec<u64> = its.map(|segment| segment.reserve_bytes / B).collect();
        let used = core.quota(ROOT, uid).unwrap().used;
        assert_eq!(
            (used.blocks, used.segments),
            (its.iter().sum(), its.len() as u64),
            "uid {uid}"
        );
    }
}

#[test]
fn the_mode_decides_on_the_next_open_and_leaves_what_is_open() {
    let mut core = volume();
    create(&mut core, "a", 2 * B);
    let of_a_stranger = |core: &mut Core| core.open_segment(STRANGER, ME.uid, "a", Access::Read);
    assert_eq!(of_a_stranger(&mut core).unwrap_err().code(), "EACCES");
    let info = change(&mut core, ME, OwnershipChange::of_mode(0o644)).unwrap();
    assert_eq!((info.mode, info.owner_uid), (0o644, ME.uid));
    let (handle, _) = of_a_stranger(&mut core).unwrap();
    change(&mut core, ME, OwnershipChange::of_mode(0o600)).unwrap();
    assert_eq!(of_a_stranger(&mut core).unwrap_err().code(), "EACCES");
    read(&mut core, handle, 0, BLOCK).unwrap();
    // Not another's to change.
    assert_eq!(refused(&mut core, STRANGER, OwnershipChange::of_mode(0o666)), "EACCES");
    change(&mut core, ROOT, OwnershipChange::of_mode(0o640)).unwrap();
}

#[test]
fn a_group_is_one_that_its_owner_is_in() {
    let mut core = volume();
    create(&mut core, "a", B);
    let to = |gid| OwnershipChange {
        owner_gid: Some(gid),
        ..OwnershipChange::default()
    };
    assert_eq!(refused(&mut core, ME, to(77)), "EACCES");
    let me = ME.with_groups(&[77]);
    assert_eq!(change(&mut core, me, to(77)).unwrap().owner_gid, 77);
    assert_eq!(change(&mut core, ROOT, to(78)).unwrap().owner_gid, 78);
}

#[test]
fn only_root_gives_a_segment_away_and_its_new_owner_is_charged() {
    let mut core = volume();
    create(&mut core, "a", 3 * B);
    let handle = open_write(&mut core, "a");
    write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
    let to = OwnershipChange::of_owner(STRANGER.uid, Some(STRANGER.gid));
    assert_eq!(refused(&mut core, ME, to), "EACCES");
    assert_eq!(
        refused(&mut core, ROOT, OwnershipChange::of_owner(u32::MAX, None)),
        "EACCES"
    );
    // His quota counts, and his names are his.
    let limits = |blocks| Limits {
        blocks: Some(blocks),
        segments: None,
    };
    core.set_quota(ROOT, STRANGER.uid, limits(2)).unwrap();
    assert_eq!(refused(&mut core, ROOT, to), "EDQUOT");
    core.set_quota(ROOT, STRANGER.uid, limits(4)).unwrap();
    let one = CreateOptions::of_size(B);
    core.create(STRANGER, STRANGER.uid, "a", &one).unwrap();
    assert_eq!(refused(&mut core, ROOT, to), "EEXIST");
    core.delete(STRANGER, STRANGER.uid, "a").unwrap();

    let before = core.list(ROOT).unwrap().remove(0);
    let given = change(&mut core, ROOT, to).unwrap();
    assert_eq!((given.owner_uid, given.owner_gid), (STRANGER.uid, STRANGER.gid));
    assert_eq!((given.uuid, given.start_block), (before.uuid, before.start_block));
    assert_all_is_charged(&mut core);
    // What is open stays open; by its name it is there for its new owner alone.
    assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [7; BLOCK]);
    let error = core.open_segment(ME, ME.uid, "a", Access::Read).unwrap_err();
    assert!(matches!(error.fault, Fault::NotFound), "{error}");
    core.open_segment(STRANGER, STRANGER.uid, "a", Access::Write).unwrap();
    // The former owner has room again, under that name too.
    core.create(ME, ME.uid, "a", &one).unwrap();
    core.close().unwrap();
}

#[test]
fn a_change_that_fails_at_any_request_leaves_one_owner() {
    let give = OwnershipChange::of_owner(STRANGER.uid, None);
    for to in [give, OwnershipChange::of_mode(0o640)] {
        let mut failed = 0;
        for at in 0.. {
            let disk = simulated_disk(&small());
            let (mut core, whims) = open_moody(&disk, &config());
            create(&mut core, "a", 3 * B);
            let handle = open_write(&mut core, "a");
            write(&mut core, handle, 0, &[7; BLOCK]).unwrap();
            let seen = whims.borrow().seen;
            whims.borrow_mut().fail_from = Some(seen + at);
            whims.borrow_mut().fail_count = 1;
            let changed = change(&mut core, ROOT, to);
            let reached = whims.borrow().seen > seen + at;
            whims.borrow_mut().fail_from = None;
            let is_done = changed.is_ok();
            if let Err(error) = changed {
                failed += 1;
                assert_eq!(error.code(), "EIO");
                assert_eq!(read(&mut core, handle, 0, BLOCK).unwrap(), [7; BLOCK]);
            }
            let _ = core.close();
            let mut core = open_simulated(&disk);
            let listed = core.list(ROOT).unwrap();
            assert_eq!(listed.len(), 1, "request {at}: {listed:?}");
            let is_new = (listed[0].owner_uid, listed[0].mode) != (ME.uid, 0o600);
            assert!(is_new || !is_done, "request {at}: {listed:?}");
            assert_all_is_charged(&mut core);
            if !reached {
                break;
            }
        }
        assert!(failed >= 3, "{to:?}");
    }
}
