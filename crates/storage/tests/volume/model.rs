//! The promise: a volume is a map from (owner, name) to bytes, and nothing else. Random sequences of create, write, sync,
//! read, resize, rename, delete, quota, list, close, open and power cuts agree with a map in memory, on a real file and on the
//! simulated disk. Handles stay open through all of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use baio_engine::sim::Disk;
use baio_storage::{Access, Core, CreateOptions, Format, Handle, Identity, Limits, ResizeOptions, Usage, Zeroing};
use proptest::prelude::*;

use crate::harness::{self, BLOCK, ME, ROOT, STRANGER, open, open_simulated, read, simulated_disk, sync, write};

const VOLUME: u64 = 2 << 20;

#[derive(Clone, Debug)]
enum Action {
    Create {
        who: bool,
        name: u8,
        blocks: u64,
        reserve: u64,
        lazy: bool,
    },
    Resize {
        who: bool,
        name: u8,
        blocks: u64,
        reserve: Option<u64>,
    },
    Rename {
        who: bool,
        name: u8,
        to: u8,
    },
    Quota {
        who: bool,
        blocks: Option<u64>,
        segments: Option<u64>,
    },
    Delete {
        who: bool,
        name: u8,
    },
    Write {
        who: bool,
        name: u8,
        at: u64,
        blocks: usize,
        fill: u8,
    },
    Read {
        who: bool,
        name: u8,
        at: u64,
        blocks: usize,
    },
    Sync {
        who: bool,
        name: u8,
    },
    List,
    Reopen {
        clean: bool,
    },
    /// What was synced is there, whatever the power cut takes.
    PowerCut {
        seed: u64,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let key = || (any::<bool>(), 0..10_u8);
    prop_oneof![
        4 => (key(), 1..60_u64, 0..80_u64, any::<bool>())
            .prop_map(|((who, name), blocks, reserve, lazy)| Action::Create { who, name, blocks, reserve, lazy }),
        4 => (key(), 1..80_u64, proptest::option::of(0..100_u64))
            .prop_map(|((who, name), blocks, reserve)| Action::Resize { who, name, blocks, reserve }),
        2 => (key(), 0..10_u8).prop_map(|((who, name), to)| Action::Rename { who, name, to }),
        1 => (any::<bool>(), proptest::option::of(50..300_u64), proptest::option::of(1..8_u64))
            .prop_map(|(who, blocks, segments)| Action::Quota { who, blocks, segments }),
        3 => key().prop_map(|(who, name)| Action::Delete { who, name }),
        6 => (key(), 0..60_u64, 1..6_usize, any::<u8>())
            .prop_map(|((who, name), at, blocks, fill)| Action::Write { who, name, at, blocks, fill }),
        4 => (key(), 0..60_u64, 1..6_usize).prop_map(|((who, name), at, blocks)| Action::Read { who, name, at, blocks }),
        1 => key().prop_map(|(who, name)| Action::Sync { who, name }),
        1 => Just(Action::List),
        1 => any::<bool>().prop_map(|clean| Action::Reopen { clean }),
        1 => any::<u64>().prop_map(|seed| Action::PowerCut { seed }),
    ]
}

/// Where the volume lies.
enum Ground {
    File(PathBuf),
    Simulated(Disk),
}

impl Ground {
    fn open(&self) -> Core {
        match self {
            Ground::File(path) => open(path),
            Ground::Simulated(disk) => open_simulated(disk),
        }
    }
}

#[derive(Debug, Default)]
struct Segment {
    bytes: Vec<u8>,
    reserve: u64,
    /// Opened once, used under every name and size.
    handle: Option<Handle>,
}

#[derive(Debug, Default)]
struct Model {
    segments: BTreeMap<(u32, String), Segment>,
    limits: BTreeMap<u32, Limits>,
}

impl Model {
    fn used(&self, uid: u32) -> Usage {
        let mine = || self.segments.iter().filter(|((owner, _), _)| *owner == uid);
        Usage {
            blocks: mine().map(|(_, segment)| segment.reserve / BLOCK as u64).sum(),
            segments: mine().count() as u64,
        }
    }

    /// May it have so much more?
    fn allows(&self, uid: u32, blocks: u64, segments: u64) -> bool {
        let (used, limits) = (self.used(uid), self.limits.get(&uid).copied().unwrap_or_default());
        let fits =
            |more: u64, used: u64, limit: Option<u64>| more == 0 || limit.is_none_or(|limit| used + more <= limit);
        fits(blocks, used.blocks, limits.blocks) && fits(segments, used.segments, limits.segments)
    }
}

fn identity(who: bool) -> Identity {
    if who { ME } else { STRANGER }
}

/// What an action gave, in one word for both.
fn act(core: &mut Core, model: &mut Model, action: &Action) {
    match *action {
        Action::Create {
            who,
            name,
            blocks,
            reserve,
            lazy,
        } => {
            let who = identity(who);
            let name = format!("n{name}");
            let size_bytes = blocks * BLOCK as u64;
            let reserve_bytes = reserve * BLOCK as u64;
            let options = CreateOptions {
                reserve_bytes,
                zero: if lazy { Zeroing::Lazy } else { Zeroing::Written },
                ..CreateOptions::of_size(size_bytes - 5)
            };
            let before = core.volume_info().unwrap();
            let made = core.create(who, who.uid, &name, &options);
            let key = (who.uid, name);
            let needed = size_bytes.max(reserve_bytes);
            let expected = if model.segments.contains_key(&key) {
                "EEXIST"
            } else if model.segments.len() as u64 >= harness::open_to_tenants(before.segments_max) {
                "ENOSPC"
            } else if !model.allows(who.uid, blocks.max(reserve), 1) {
                "EDQUOT"
            } else if needed > before.largest_free_bytes {
                "ENOSPC"
            } else {
                "made"
            };
            assert_eq!(made.as_ref().map_or_else(|error| error.code(), |_| "made"), expected);
            if made.is_ok() {
                let segment = Segment {
                    bytes: vec![0; size_bytes as usize],
                    reserve: needed,
                    handle: None,
                };
                model.segments.insert(key, segment);
            }
        }
        Action::Resize {
            who,
            name,
            blocks,
            reserve,
        } => resize(core, model, identity(who), &format!("n{name}"), blocks, reserve),
        Action::Rename { who, name, to } => {
            let who = identity(who);
            let (old, new) = (format!("n{name}"), format!("n{to}"));
            let renamed = core.rename(who, who.uid, &old, &new);
            let (old, new) = ((who.uid, old), (who.uid, new));
            let expected = match (model.segments.contains_key(&old), model.segments.contains_key(&new)) {
                (false, _) => "ENOENT",
                (true, true) => "EEXIST",
                (true, false) => "renamed",
            };
            assert_eq!(renamed.map_or_else(|error| error.code(), |_| "renamed"), expected);
            if expected == "renamed"
                && let Some(segment) = model.segments.remove(&old)
            {
                model.segments.insert(new, segment);
            }
        }
        Action::Quota { who, blocks, segments } => {
            let limits = Limits { blocks, segments };
            let uid = identity(who).uid;
            assert_eq!(core.set_quota(ROOT, uid, limits).unwrap().limits, limits);
            model.limits.insert(uid, limits);
        }
        Action::Delete { who, name } => {
            let who = identity(who);
            let name = format!("n{name}");
            let gone = core.delete(who, who.uid, &name);
            let removed = model.segments.remove(&(who.uid, name));
            let expected = removed.as_ref().map_or("ENOENT", |_| "gone");
            assert_eq!(gone.as_ref().map_or_else(|error| error.code(), |_| "gone"), expected);
            if let Some(handle) = removed.and_then(|segment| segment.handle) {
                assert_eq!(write(core, handle, 0, &[1; BLOCK]).unwrap_err().code(), "ESTALE");
            }
        }
        Action::Write {
            who,
            name,
            at,
            blocks,
            fill,
        } => on_segment(core, model, who, name, |core, handle, segment| {
            let (at, len) = (at as usize * BLOCK, blocks * BLOCK);
            let wrote = write(core, handle, at as u64, &vec![fill; len]);
            if at + len <= segment.bytes.len() {
                assert_eq!(wrote.unwrap() as usize, len);
                segment.bytes[at..at + len].fill(fill);
            } else {
                assert_eq!(wrote.unwrap_err().code(), "ENOSPC");
            }
        }),
        Action::Read { who, name, at, blocks } => {
            on_segment(core, model, who, name, |core, handle, segment| {
                let (at, len) = (at as usize * BLOCK, blocks * BLOCK);
                let end = (at + len).min(segment.bytes.len());
                let expected = segment.bytes.get(at..end).unwrap_or(&[]);
                assert!(read(core, handle, at as u64, len).unwrap() == expected);
            });
        }
        Action::Sync { who, name } => on_segment(core, model, who, name, |core, handle, _| {
            assert_eq!(sync(core, handle).unwrap(), 0);
        }),
        Action::List => compare(core, model),
        Action::Reopen { .. } | Action::PowerCut { .. } => unreachable!("done by the caller, who owns the core"),
    }
}

fn resize(core: &mut Core, model: &mut Model, who: Identity, name: &str, blocks: u64, reserve: Option<u64>) {
    let block = BLOCK as u64;
    let options = ResizeOptions {
        reserve_bytes: reserve.map(|reserve| reserve * block),
        ..ResizeOptions::to_size(blocks * block)
    };
    let largest_free = core.volume_info().unwrap().largest_free_bytes;
    let resized = core.resize(who, who.uid, name, &options);
    let code = resized.as_ref().map_or_else(|error| error.code(), |_| "resized");
    let key = (who.uid, name.to_owned());
    let Some(segment) = model.segments.get(&key) else {
        assert_eq!(code, "ENOENT");
        return;
    };
    let (old_blocks, old_reserve) = (segment.bytes.len() as u64 / block, segment.reserve / block);
    let kept = if blocks < old_blocks { blocks } else { old_reserve };
    let reserve = reserve.unwrap_or(kept).max(blocks);
    let more = reserve.saturating_sub(old_reserve);
    if !model.allows(who.uid, more, 0) {
        assert_eq!(code, "EDQUOT");
        return;
    }
    // What is inside the run always fits; for more it may move, if there is a run to move to.
    if more > 0 && code == "ENOSPC" {
        assert!(
            largest_free < reserve * block,
            "{largest_free} are free in a run, {reserve} blocks are asked for"
        );
        return;
    }
    let info = resized.unwrap();
    assert_eq!((info.size_bytes, info.reserve_bytes), (blocks * block, reserve * block));
    let segment = model.segments.get_mut(&key).unwrap();
    segment.bytes.resize((blocks * block) as usize, 0);
    segment.reserve = reserve * block;
}

fn on_segment(
    core: &mut Core,
    model: &mut Model,
    who: bool,
    name: u8,
    then: impl FnOnce(&mut Core, Handle, &mut Segment),
) {
    let who = identity(who);
    let name = format!("n{name}");
    let key = (who.uid, name.clone());
    let Some(segment) = model.segments.get_mut(&key) else {
        let opened = core.open_segment(who, who.uid, &name, Access::Write);
        assert_eq!(opened.unwrap_err().code(), "ENOENT");
        return;
    };
    let handle = *segment
        .handle
        .get_or_insert_with(|| core.open_segment(who, who.uid, &name, Access::Write).unwrap().0);
    assert_eq!(core.size(handle).unwrap(), segment.bytes.len() as u64);
    then(core, handle, segment);
}

/// Everything: names, sizes, bytes, free space.
fn compare(core: &mut Core, model: &mut Model) {
    for who in [true, false] {
        let listed: Vec<_> = core
            .list(identity(who))
            .unwrap()
            .into_iter()
            .map(|info| (info.name, info.size_bytes, info.reserve_bytes))
            .collect();
        let known: Vec<_> = model
            .segments
            .iter()
            .filter(|((uid, _), _)| *uid == identity(who).uid)
            .map(|((_, name), segment)| (name.clone(), segment.bytes.len() as u64, segment.reserve))
            .collect();
        assert_eq!(listed, known);
        let uid = identity(who).uid;
        let account = core.quota(ROOT, uid).unwrap();
        assert_eq!(account.used, model.used(uid));
        assert_eq!(account.limits, model.limits.get(&uid).copied().unwrap_or_default());
    }
    let info = core.volume_info().unwrap();
    let used: u64 = model.segments.values().map(|segment| segment.reserve).sum();
    assert_eq!(
        (info.segments, info.free_bytes),
        (model.segments.len() as u64, info.size_bytes - used)
    );
    for ((uid, name), segment) in &model.segments {
        let who = identity(*uid == ME.uid);
        let (handle, _) = core.open_segment(who, *uid, name, Access::Read).unwrap();
        assert!(
            read(core, handle, 0, segment.bytes.len()).unwrap() == segment.bytes,
            "{name}"
        );
        core.close_handle(handle);
    }
}

fn play(mut ground: Ground, actions: &[Action]) {
    let mut model = Model::default();
    let mut core = ground.open();
    for action in actions {
        match action {
            Action::Reopen { clean } => {
                if *clean {
                    core.close().unwrap();
                } else {
                    drop(core);
                }
                core = reopen(&ground, &mut model);
            }
            Action::PowerCut { seed } => {
                // One sync covers the writes of all handles.
                if let Some(handle) = model.segments.values().find_map(|segment| segment.handle) {
                    sync(&mut core, handle).unwrap();
                }
                drop(core);
                if let Ground::Simulated(disk) = &ground {
                    ground = Ground::Simulated(disk.power_cut(*seed));
                }
                core = reopen(&ground, &mut model);
            }
            action => act(&mut core, &mut model, action),
        }
    }
    compare(&mut core, &mut model);
    core.close().unwrap();
    reopen(&ground, &mut model);
}

/// Every handle is gone, and all else is there.
fn reopen(ground: &Ground, model: &mut Model) -> Core {
    for segment in model.segments.values_mut() {
        segment.handle = None;
    }
    let mut core = ground.open();
    compare(&mut core, model);
    core
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_in_a_file_is_a_map(actions in prop::collection::vec(action(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        harness::format(&path, VOLUME);
        play(Ground::File(path), &actions);
    }

    #[test]
    fn a_volume_on_the_simulated_disk_is_a_map(actions in prop::collection::vec(action(), 1..200)) {
        let format = Format { size_bytes: Some(VOLUME), ..Format::default() };
        play(Ground::Simulated(simulated_disk(&format)), &actions);
    }
}
