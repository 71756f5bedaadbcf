//! The promise: a volume is a map from (owner, name) to bytes, and nothing else (DESIGN §5). Random sequences of create,
//! write, sync, read, delete, list, close and open agree with a map in memory, on a real file and on the simulated disk.

mod harness;

use std::collections::BTreeMap;
use std::path::PathBuf;

use baio_engine::sim::Disk;
use baio_storage::{Access, Core, CreateOptions, Format, Identity};
use harness::{BLOCK, ME, STRANGER, open, open_simulated, read, simulated_disk, sync, write};
use proptest::prelude::*;

const VOLUME: u64 = 2 << 20;

#[derive(Clone, Debug)]
enum Action {
    Create {
        who: bool,
        name: u8,
        blocks: u64,
        reserve: u64,
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
}

fn action() -> impl Strategy<Value = Action> {
    let key = || (any::<bool>(), 0..10_u8);
    prop_oneof![
        4 => (key(), 1..60_u64, 0..80_u64)
            .prop_map(|((who, name), blocks, reserve)| Action::Create { who, name, blocks, reserve }),
        3 => key().prop_map(|(who, name)| Action::Delete { who, name }),
        6 => (key(), 0..60_u64, 1..6_usize, any::<u8>())
            .prop_map(|((who, name), at, blocks, fill)| Action::Write { who, name, at, blocks, fill }),
        4 => (key(), 0..60_u64, 1..6_usize).prop_map(|((who, name), at, blocks)| Action::Read { who, name, at, blocks }),
        1 => key().prop_map(|(who, name)| Action::Sync { who, name }),
        1 => Just(Action::List),
        1 => any::<bool>().prop_map(|clean| Action::Reopen { clean }),
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
}

type Model = BTreeMap<(u32, String), Segment>;

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
        } => {
            let who = identity(who);
            let name = format!("n{name}");
            let size_bytes = blocks * BLOCK as u64;
            let reserve_bytes = reserve * BLOCK as u64;
            let options = CreateOptions {
                reserve_bytes,
                ..CreateOptions::of_size(size_bytes - 5)
            };
            let before = core.volume_info().unwrap();
            let made = core.create(who, who.uid, &name, &options);
            let key = (who.uid, name);
            let needed = size_bytes.max(reserve_bytes);
            let expected = if model.contains_key(&key) {
                "EEXIST"
            } else if model.len() as u64 >= before.segments_max || needed > before.largest_free_bytes {
                "ENOSPC"
            } else {
                "made"
            };
            assert_eq!(made.as_ref().map_or_else(|error| error.code(), |_| "made"), expected);
            if made.is_ok() {
                let bytes = vec![0; size_bytes as usize];
                model.insert(key, Segment { bytes, reserve: needed });
            }
        }
        Action::Delete { who, name } => {
            let who = identity(who);
            let name = format!("n{name}");
            let gone = core.delete(who, who.uid, &name);
            let expected = model.remove(&(who.uid, name)).map_or("ENOENT", |_| "gone");
            assert_eq!(gone.as_ref().map_or_else(|error| error.code(), |_| "gone"), expected);
        }
        Action::Write {
            who,
            name,
            at,
            blocks,
            fill,
        } => on_segment(core, model, who, name, Access::Write, |core, handle, segment| {
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
            on_segment(core, model, who, name, Access::Read, |core, handle, segment| {
                let (at, len) = (at as usize * BLOCK, blocks * BLOCK);
                let end = (at + len).min(segment.bytes.len());
                let expected = segment.bytes.get(at..end).unwrap_or(&[]);
                assert!(read(core, handle, at as u64, len).unwrap() == expected);
            });
        }
        Action::Sync { who, name } => on_segment(core, model, who, name, Access::Read, |core, handle, _| {
            assert_eq!(sync(core, handle).unwrap(), 0);
        }),
        Action::List => compare(core, model),
        Action::Reopen { .. } => unreachable!("done by the caller, who owns the core"),
    }
}

fn on_segment(
    core: &mut Core,
    model: &mut Model,
    who: bool,
    name: u8,
    access: Access,
    then: impl FnOnce(&mut Core, baio_storage::Handle, &mut Segment),
) {
    let who = identity(who);
    let name = format!("n{name}");
    let opened = core.open_segment(who, who.uid, &name, access);
    match model.get_mut(&(who.uid, name)) {
        Some(segment) => {
            let (handle, _) = opened.unwrap();
            then(core, handle, segment);
            core.close_handle(handle);
        }
        None => assert_eq!(opened.unwrap_err().code(), "ENOENT"),
    }
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
            .iter()
            .filter(|((uid, _), _)| *uid == identity(who).uid)
            .map(|((_, name), segment)| (name.clone(), segment.bytes.len() as u64, segment.reserve))
            .collect();
        assert_eq!(listed, known);
    }
    let info = core.volume_info().unwrap();
    let used: u64 = model.values().map(|segment| segment.reserve).sum();
    assert_eq!(
        (info.segments, info.free_bytes),
        (model.len() as u64, info.size_bytes - used)
    );
    for ((uid, name), segment) in &*model {
        let who = identity(*uid == ME.uid);
        let (handle, _) = core.open_segment(who, *uid, name, Access::Read).unwrap();
        assert!(
            read(core, handle, 0, segment.bytes.len()).unwrap() == segment.bytes,
            "{name}"
        );
        core.close_handle(handle);
    }
}

fn play(ground: &Ground, actions: &[Action]) {
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
                core = ground.open();
                compare(&mut core, &mut model);
            }
            action => act(&mut core, &mut model, action),
        }
    }
    compare(&mut core, &mut model);
    core.close().unwrap();
    compare(&mut ground.open(), &mut model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_in_a_file_is_a_map(actions in prop::collection::vec(action(), 1..80)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        harness::format(&path, VOLUME);
        play(&Ground::File(path), &actions);
    }

    #[test]
    fn a_volume_on_the_simulated_disk_is_a_map(actions in prop::collection::vec(action(), 1..200)) {
        let format = Format { size_bytes: Some(VOLUME), ..Format::default() };
        play(&Ground::Simulated(simulated_disk(&format)), &actions);
    }
}
