//! The promise: no tenant takes a volume or its table for all others. The limits of everybody else bind each owner without
//! limits of its own, uid 0 excepted; they are an ordinary record, which holds after a clean close and after a crash. And
//! whatever limits there are, the last segments are kept back for uid 0 and the user that the volume's file belongs to, who
//! can then still set limits.

use baio_storage::segment::inode::{Inode, InodeState};
use baio_storage::{
    Core, CreateOptions, EVERYBODY_ELSE, Error, Fault, FormatOptions, Identity, Limits, ResizeOptions, Sight,
};

use crate::harness::images;
use crate::harness::{self, BLOCK, ME, ROOT, STRANGER, open_simulated, simulated_disk};

const B: u64 = BLOCK as u64;

fn small() -> FormatOptions {
    FormatOptions::of_size(8 << 20)
}

fn limits(blocks: u64, segments: u64) -> Limits {
    Limits {
        blocks: Some(blocks),
        segments: Some(segments),
    }
}

fn made(core: &mut Core, who: Identity, name: &str, blocks: u64) -> Result<(), &'static str> {
    let made = core.create(who, who.uid, name, &CreateOptions::of_size(blocks * B));
    made.map(drop).map_err(|error| error.code())
}

#[test]
fn the_limits_of_everybody_else_bind_who_has_none() {
    let disk = simulated_disk(&small());
    let mut core = open_simulated(&disk);
    core.set_quota(ROOT, STRANGER.uid, limits(100, 5)).unwrap();
    core.set_quota(ROOT, EVERYBODY_ELSE, limits(20, 2)).unwrap();
    for (who, limits) in [
        (ME, limits(20, 2)),
        (STRANGER, limits(100, 5)),
        (ROOT, Limits::default()),
    ] {
        assert_eq!(core.quota(who, who.uid).unwrap().limits, limits, "{who:?}");
    }
    assert_eq!(made(&mut core, ME, "large", 21), Err("EDQUOT"));
    assert_eq!(made(&mut core, STRANGER, "large", 21), Ok(()));
    assert_eq!(made(&mut core, ROOT, "large", 21), Ok(()));
    assert_eq!(made(&mut core, ME, "a", 10), Ok(()));
    let longer = core.resize(ME, ME.uid, "a", &ResizeOptions::to_size(21 * B));
    assert_eq!(longer.unwrap_err().code(), "EDQUOT");
    assert_eq!(made(&mut core, ME, "b", 10), Ok(()));
    core.resize(ME, ME.uid, "b", &ResizeOptions::to_size(B)).unwrap();
    assert_eq!(made(&mut core, ME, "c", 1), Err("EDQUOT"), "a third segment");
    // What holds for all is each one's own: one has as much as before, whatever the other took.
    let third = Identity::new(1002, 1002);
    assert_eq!(made(&mut core, third, "a", 20), Ok(()));
    assert_eq!(made(&mut core, third, "b", 1), Err("EDQUOT"));
    // Only who may set limits sets or sees them, and nobody is that owner.
    let refused = core.set_quota(ME, EVERYBODY_ELSE, Limits::default()).unwrap_err();
    assert_eq!(refused.code(), "EACCES", "{refused}");
    assert_eq!(core.quota(ME, EVERYBODY_ELSE).unwrap_err().code(), "EACCES");
    let refused = core.create(ROOT, EVERYBODY_ELSE, "a", &CreateOptions::of_size(1));
    assert_eq!(refused.unwrap_err().code(), "EACCES");
    // Taken back, it binds nobody.
    core.set_quota(ROOT, EVERYBODY_ELSE, Limits::default()).unwrap();
    assert_eq!(made(&mut core, third, "b", 30), Ok(()));
}

#[test]
fn they_hold_after_a_clean_close_and_after_a_crash() {
    for closed in [true, false] {
        let disk = simulated_disk(&small());
        let mut core = open_simulated(&disk);
        assert_eq!(made(&mut core, STRANGER, "a", 30), Ok(()));
        core.set_quota(ROOT, EVERYBODY_ELSE, limits(20, 2)).unwrap();
        match closed {
            true => core.close().unwrap(),
            false => drop(core),
        }
        let mut core = open_simulated(&disk);
        assert_eq!(core.quota(ROOT, EVERYBODY_ELSE).unwrap().limits, limits(20, 2));
        for who in [ME, STRANGER] {
            // Whoever held more than that keeps it, and gets nothing more.
            assert_eq!(
                core.quota(who, who.uid).unwrap().limits,
                limits(20, 2),
                "closed {closed}"
            );
            assert_eq!(made(&mut core, who, "large", 21), Err("EDQUOT"), "closed {closed}");
        }
        assert_eq!(core.quota(STRANGER, STRANGER.uid).unwrap().used.blocks, 30);
        assert_eq!(made(&mut core, ME, "a", 20), Ok(()));
        // It is one record, and no owner has got one by it.
        core.close().unwrap();
        let geometry = *images::superblock(&disk).geometry();
        let mut owners = Vec::new();
        images::tamper_bytes(&disk, |_, bytes| {
            let inode = Inode::decode(bytes, &geometry).unwrap();
            if inode.state == InodeState::Quota {
                owners.push(inode.owner_uid);
            }
            false
        });
        assert_eq!(owners, [EVERYBODY_ELSE]);
    }
}

/// Makes segments until the first refusal.
fn fill(core: &mut Core, who: Identity) -> (u64, Error) {
    for number in 0.. {
        if let Err(error) = core.create(who, who.uid, &format!("n{number}"), &CreateOptions::of_size(1)) {
            return (number, error);
        }
    }
    unreachable!("a volume without end");
}

#[test]
fn the_last_segments_are_kept_back() {
    for segments in [16, 64] {
        let disk = simulated_disk(&FormatOptions {
            segments: Some(segments),
            ..small()
        });
        let mut core = open_simulated(&disk);
        let (by_tenant, error) = fill(&mut core, ME);
        assert!(matches!(error.fault, Fault::TableFull { .. }), "{error}");
        assert_eq!(by_tenant, harness::open_to_tenants(segments));
        assert_eq!(fill(&mut core, STRANGER).0, 0);
        // What binds them can be recorded still, and root is served.
        for uid in [ME.uid, STRANGER.uid, EVERYBODY_ELSE] {
            core.set_quota(ROOT, uid, limits(1, 1)).unwrap();
        }
        assert_eq!(by_tenant + fill(&mut core, ROOT).0, segments);
    }
}

/// Whom the file belongs to can do anything to it; he is no tenant.
#[test]
fn the_owner_of_the_volumes_file_sets_limits_and_takes_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, 8 << 20);
    let mut owner = Identity::effective();
    if harness::is_root() {
        std::os::unix::fs::chown(&path, Some(ME.uid), Some(ME.gid)).unwrap();
        owner = ME;
    }
    let mut core = harness::open(&path);
    let segments = core.volume_info().unwrap().segments_max;
    assert_eq!(fill(&mut core, owner).0, segments);
    core.delete(owner, owner.uid, "n0").unwrap();
    core.set_quota(owner, EVERYBODY_ELSE, limits(5, 3)).unwrap();
    assert_eq!(core.quota(owner, EVERYBODY_ELSE).unwrap().limits, limits(5, 3));
    assert_eq!(core.quota(owner, STRANGER.uid).unwrap().limits, limits(5, 3));
    core.close().unwrap();
    let (account, _) = Core::inspect_quota(&path, owner, EVERYBODY_ELSE).unwrap();
    assert_eq!(account.limits, limits(5, 3));
    let refused = Core::inspect_quota(&path, Identity::new(owner.uid + 1, 7), EVERYBODY_ELSE).unwrap_err();
    assert_eq!(refused.code(), "EACCES", "{refused}");
    assert_eq!(owner.sight(Some(owner.uid)), Sight::Whole);
    assert_eq!(STRANGER.sight(None), Sight::Own);
}
