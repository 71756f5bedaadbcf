//! The promise: a segment is opened by what it is, whatever it is called now; another that has its name is not opened in its place.

use baio_engine::Wait;
use baio_storage::{Access, Answer, Core, CreateOptions, Error, FormatOptions, Identity, SegmentInfo};

use crate::harness::{BLOCK, ME, open_simulated, simulated_disk};

fn core_with(names: &[&str]) -> Core {
    let disk = simulated_disk(&FormatOptions {
        segments: Some(200),
        ..FormatOptions::of_size(16 << 20)
    });
    let mut core = open_simulated(&disk);
    for name in names {
        make(&mut core, name);
    }
    core
}

fn make(core: &mut Core, name: &str) -> SegmentInfo {
    core.create(ME, ME.uid, name, &CreateOptions::of_size(BLOCK as u64))
        .unwrap()
}

fn open(core: &mut Core, who: Identity, name: &str, uuid: [u8; 16]) -> Result<String, Error> {
    let id = core.begin_open_known(who, ME.uid, name, Access::Write, uuid).unwrap();
    loop {
        if let Some(answer) = core.take_answer(&id) {
            return answer.map(|answer| match answer {
                Answer::Opened { info, .. } => {
                    assert_eq!(info.uuid, uuid);
                    info.name
                }
                other => panic!("{other:?}"),
            });
        }
        core.turn(Wait::one()).unwrap();
    }
}

fn uuid_of(core: &mut Core, name: &str) -> [u8; 16] {
    let (handle, info) = core.open_segment(ME, ME.uid, name, Access::Read).unwrap();
    core.close_handle(handle);
    info.uuid
}

#[test]
fn whatever_it_is_called() {
    let mut core = core_with(&["a", "b", "other"]);
    let (a, b) = (uuid_of(&mut core, "a"), uuid_of(&mut core, "b"));
    assert_ne!(a, b);
    assert_eq!(open(&mut core, ME, "a", a).unwrap(), "a");
    core.rename(ME, ME.uid, "a", "c").unwrap();
    assert_eq!(open(&mut core, ME, "a", a).unwrap(), "c");
    // The names are exchanged.
    core.rename(ME, ME.uid, "b", "a").unwrap();
    core.rename(ME, ME.uid, "c", "b").unwrap();
    assert_eq!(open(&mut core, ME, "a", a).unwrap(), "b");
    assert_eq!(open(&mut core, ME, "b", b).unwrap(), "a");
    assert_eq!(open(&mut core, ME, "never there", b).unwrap(), "a");
}

#[test]
fn what_is_gone_is_not_another() {
    let mut core = core_with(&["a"]);
    let a = uuid_of(&mut core, "a");
    core.delete(ME, ME.uid, "a").unwrap();
    assert_eq!(open(&mut core, ME, "a", a).unwrap_err().code(), "ESTALE");
    make(&mut core, "a");
    assert_eq!(open(&mut core, ME, "a", a).unwrap_err().code(), "ESTALE");
    // The table is free for others afterwards.
    make(&mut core, "b");
}

#[test]
fn knowing_it_is_no_permission() {
    let mut core = core_with(&["a"]);
    let a = uuid_of(&mut core, "a");
    core.rename(ME, ME.uid, "a", "b").unwrap();
    let stranger = Identity::new(ME.uid + 77, ME.gid + 77);
    for name in ["a", "b"] {
        let error = open(&mut core, stranger, name, a).unwrap_err();
        assert_eq!(error.code(), "EACCES");
        // Nor is it told what it is called now.
        assert!(error.object.ends_with(&format!("/{name}")), "{error}");
    }
}
