//! The promise: an operation that is asked for again, under the name of the first time, is done once. Where the volume shows that it was
//! done, that is the answer; where it does not, nothing is done and nobody is told that it was or was not.

use baio_engine::Wait;
use baio_engine::sim::Disk;
use baio_storage::{
    Answer, Begun, Command, Core, CreateOptions, Error, FormatOptions, Identity, OperationId, OperationName,
    OwnershipChange, ResizeOptions, SegmentInfo,
};

use crate::harness::{BLOCK, ME, ROOT, STRANGER, open_simulated, simulated_disk};

const B: u64 = BLOCK as u64;
const ID: [u8; 16] = [7; 16];
const OTHER: [u8; 16] = [8; 16];

/// What is asked; always about the segment `a`, which a rename calls `b`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ask {
    Create,
    Delete,
    Resize(u64),
    Rename,
    Chmod,
    /// By uid 0, to somebody else.
    Chown,
}

const ALL: [Ask; 6] = [
    Ask::Create,
    Ask::Delete,
    Ask::Resize(9),
    Ask::Rename,
    Ask::Chmod,
    Ask::Chown,
];

fn begin(core: &mut Core, ask: Ask, operation: OperationName) -> OperationId {
    let (owner_uid, name) = (ME.uid, "a".to_owned());
    let change = |change| Command::ChangeOwnership {
        operation,
        owner_uid,
        name: "a".to_owned(),
        change,
    };
    let (who, command) = match ask {
        Ask::Create => {
            let options = CreateOptions::of_size(5 * B);
            (
                ME,
                Command::Create {
                    operation,
                    owner_uid,
                    name,
                    options,
                },
            )
        }
        Ask::Delete => (
            ME,
            Command::Delete {
                operation,
                owner_uid,
                name,
            },
        ),
        Ask::Resize(blocks) => {
            let options = ResizeOptions::to_size(blocks * B);
            (
                ME,
                Command::Resize {
                    operation,
                    owner_uid,
                    name,
                    options,
                },
            )
        }
        Ask::Rename => {
            let new = "b".to_owned();
            (
                ME,
                Command::Rename {
                    operation,
                    owner_uid,
                    old: name,
                    new,
                },
            )
        }
        Ask::Chmod => (ME, change(OwnershipChange::of_mode(0o640))),
        Ask::Chown => (ROOT, change(OwnershipChange::of_owner(STRANGER.uid, None))),
    };
    begun(core, who, command)
}

fn begun(core: &mut Core, who: Identity, command: Command) -> OperationId {
    match core.begin_command(who, command) {
        Ok(Begun::Operation(id)) => id,
        other => panic!("{other:?}"),
    }
}

fn ask(core: &mut Core, what: Ask, name: OperationName) -> Result<SegmentInfo, Error> {
    let id = begin(core, what, name);
    loop {
        if let Some(answer) = core.take_answer(&id) {
            return answer.map(|answer| match answer {
                Answer::Segment { info } => info,
                other => panic!("{other:?}"),
            });
        }
        core.turn(Wait::one()).unwrap();
    }
}

fn first(core: &mut Core, what: Ask) -> SegmentInfo {
    ask(core, what, OperationName::first(ID)).unwrap()
}

/// A repeat that must be recognised.
fn again(core: &mut Core, what: Ask) -> SegmentInfo {
    let before = core.list(ROOT).unwrap();
    let info = ask(core, what, OperationName::again(ID)).unwrap();
    assert_eq!(core.list(ROOT).unwrap(), before, "{what:?} was done a second time");
    info
}

/// A repeat of which nobody knows.
fn unknown(core: &mut Core, what: Ask) {
    let before = core.list(ROOT).unwrap();
    let error = ask(core, what, OperationName::again(ID)).unwrap_err();
    assert_eq!(error.code(), "EINDETERMINATE", "{what:?}");
    assert_eq!(core.list(ROOT).unwrap(), before, "{what:?} was done");
}

fn volume() -> (Disk, Core) {
    let disk = simulated_disk(&FormatOptions {
        segments: Some(16),
        ..FormatOptions::of_size(16 << 20)
    });
    let core = open_simulated(&disk);
    (disk, core)
}

/// A volume with what an operation needs.
fn volume_for(what: Ask) -> (Disk, Core) {
    let (disk, mut core) = volume();
    if what != Ask::Create {
        ask(&mut core, Ask::Create, OperationName::first(OTHER)).unwrap();
    }
    (disk, core)
}

fn other(core: &mut Core, what: Ask) -> SegmentInfo {
    ask(core, what, OperationName::first(OTHER)).unwrap()
}

#[test]
fn what_was_done_a_moment_ago_is_recognised() {
    for what in ALL {
        let (_, mut core) = volume_for(what);
        let info = first(&mut core, what);
        let repeated = again(&mut core, what);
        assert_eq!((&repeated.name, repeated.owner_uid), (&info.name, info.owner_uid));
        if what != Ask::Delete {
            assert_eq!(repeated, info);
        }
    }
}

#[test]
fn what_was_never_done_is_not_done_by_a_repeat() {
    for what in ALL {
        let (_, mut core) = volume_for(what);
        unknown(&mut core, what);
        let (_, mut core) = volume();
        unknown(&mut core, what);
    }
}

#[test]
fn without_an_id_nothing_is_recognised() {
    for what in ALL {
        let (_, mut core) = volume_for(what);
        ask(&mut core, what, OperationName::NONE).unwrap();
        let before = core.list(ROOT).unwrap();
        let error = ask(&mut core, what, OperationName::again([0; 16])).unwrap_err();
        assert_eq!(error.code(), "EINDETERMINATE");
        assert_eq!(core.list(ROOT).unwrap(), before);
    }
}

#[test]
fn a_trace_that_another_operation_wrote_over_says_nothing() {
    let (_, mut core) = volume();
    first(&mut core, Ask::Create);
    other(&mut core, Ask::Resize(3));
    unknown(&mut core, Ask::Create);
    other(&mut core, Ask::Delete);
    unknown(&mut core, Ask::Create);

    let (_, mut core) = volume_for(Ask::Resize(9));
    first(&mut core, Ask::Resize(9));
    other(&mut core, Ask::Resize(3));
    unknown(&mut core, Ask::Resize(9));
    other(&mut core, Ask::Rename);
    unknown(&mut core, Ask::Resize(9));

    // The slot of what was deleted is used again.
    let (_, mut core) = volume_for(Ask::Delete);
    first(&mut core, Ask::Delete);
    other(&mut core, Ask::Create);
    unknown(&mut core, Ask::Delete);
}

#[test]
fn a_resize_is_recognised_by_its_size_too() {
    let (_, mut core) = volume_for(Ask::Resize(9));
    first(&mut core, Ask::Resize(9));
    unknown(&mut core, Ask::Resize(10));
    again(&mut core, Ask::Resize(9));
}

#[test]
fn a_resize_that_moves_the_segment_is_recognised() {
    let (_, mut core) = volume_for(Ask::Resize(9));
    core.create(ME, ME.uid, "behind", &CreateOptions::of_size(B)).unwrap();
    let before = core.list(ROOT).unwrap()[0].start_block;
    let info = first(&mut core, Ask::Resize(100));
    assert_ne!(info.start_block, before);
    assert_eq!(again(&mut core, Ask::Resize(100)), info);
}

#[test]
fn a_rename_is_recognised_after_the_segment_was_changed() {
    let (_, mut core) = volume_for(Ask::Rename);
    first(&mut core, Ask::Rename);
    let resized = core.resize(ME, ME.uid, "b", &ResizeOptions::to_size(2 * B)).unwrap();
    assert_eq!(again(&mut core, Ask::Rename), resized);
    // What has the name then is another one.
    core.delete(ME, ME.uid, "b").unwrap();
    core.create(ME, ME.uid, "b", &CreateOptions::of_size(B)).unwrap();
    unknown(&mut core, Ask::Rename);
}

#[test]
fn tombstones_of_named_operations_do_not_fill_the_table() {
    let (_, mut core) = volume();
    for nth in 0u32..200 {
        let name = format!("s{nth}");
        core.create(ME, ME.uid, &name, &CreateOptions::of_size(B)).unwrap();
        let mut id = [1; 16];
        id[..4].copy_from_slice(&nth.to_le_bytes());
        let command = Command::Delete {
            operation: OperationName::first(id),
            owner_uid: ME.uid,
            name,
        };
        let id = begun(&mut core, ME, command);
        while core.take_answer(&id).map(Result::unwrap).is_none() {
            core.turn(Wait::one()).unwrap();
        }
    }
    for nth in 0..10 {
        core.create(ME, ME.uid, &format!("t{nth}"), &CreateOptions::of_size(B))
            .unwrap();
    }
}

/// The power fails after any turn; the next owner is asked again. At every moment the operation has one effect at most, and once it was
/// answered exactly one, which the repeat tells.
#[test]
fn a_crash_before_the_answer_leaves_one_effect() {
    for what in ALL {
        for seed in 0..8 {
            let (disk, mut core) = volume_for(what);
            let before = core.list(ROOT).unwrap();
            let id = begin(&mut core, what, OperationName::first(ID));
            let (mut cuts, mut answered) = (Vec::new(), false);
            while !answered {
                cuts.push((disk.power_cut(seed), false));
                core.turn(Wait::one()).unwrap();
                if let Some(answer) = core.take_answer(&id) {
                    answer.unwrap();
                    answered = true;
                    cuts.push((disk.power_cut(seed), true));
                }
            }
            let after = core.list(ROOT).unwrap();
            assert_ne!(before, after);
            for (disk, was_answered) in cuts {
                let mut core = open_simulated(&disk);
                let found = core.list(ROOT).unwrap();
                let repeated = ask(&mut core, what, OperationName::again(ID));
                let now = core.list(ROOT).unwrap();
                assert_eq!(now, found, "{what:?}: a repeat changes nothing");
                match repeated {
                    Ok(_) => assert_eq!(now, after, "{what:?}"),
                    Err(error) => {
                        assert_eq!(error.code(), "EINDETERMINATE", "{what:?}");
                        assert!(!was_answered, "{what:?} was done, and is forgotten");
                        assert!(now == before || now == after, "{what:?}");
                    }
                }
            }
        }
    }
}
