//! A list of an open volume is begun as other operations are: the core serves meanwhile, each turn looks at a part of the table, and
//! what is told is the table of one moment.

use baio_engine::Wait;
use baio_engine::sim::{Disk, Fault as Sick, Faults, Trigger};
use baio_storage::{Answer, Core, CreateOptions, FormatOptions, OperationId, Progress, SegmentInfo};

use crate::harness::{self, ME, ROOT, create, open_simulated, simulated_disk};

/// A table of some reads.
fn volume() -> Disk {
    simulated_disk(&FormatOptions {
        segments: Some(600),
        ..FormatOptions::of_size(16 << 20)
    })
}

/// Turns until it has ended; how often that was.
fn ended(core: &mut Core, id: &OperationId) -> (Vec<SegmentInfo>, u32) {
    for turns in 0.. {
        match core.take_answer(id) {
            Some(Ok(Answer::Segments { infos: segments, .. })) => return (segments, turns),
            Some(other) => panic!("{other:?}"),
            None => drop(core.turn(Wait::one()).unwrap()),
        }
    }
    unreachable!()
}

fn names(segments: &[SegmentInfo]) -> Vec<&str> {
    segments.iter().map(|segment| segment.name.as_str()).collect()
}

#[test]
fn a_list_takes_many_turns_and_tells_all_in_order() {
    let disk = volume();
    let mut core = open_simulated(&disk);
    let mut expected: Vec<String> = (0..200).map(|nth| format!("s{nth}")).collect();
    for name in &expected {
        create(&mut core, name, 4096);
    }
    expected.sort_unstable();
    let id = core.begin_list(ME).unwrap();
    core.turn(Wait::one()).unwrap();
    let Some(Progress::Bytes { done, of }) = core.operation_progress(&id) else {
        panic!("it reads the table");
    };
    assert!(done < of && of == 300 * 8192, "{done} of {of}");
    let (listed, turns) = ended(&mut core, &id);
    assert_eq!(names(&listed), expected);
    assert!(turns >= 4, "{turns} turns for a table of {} KiB", 300 * 8);
    assert_eq!(core.list(ROOT).unwrap(), listed);
    assert!(core.list(harness::STRANGER).unwrap().is_empty());
}

/// A create that begins beside a list is not seen by it, and has not been made before it has seen all: as if it had come later.
#[test]
fn a_list_is_of_one_moment() {
    let disk = volume();
    let mut core = open_simulated(&disk);
    for nth in 0..100 {
        create(&mut core, &format!("s{nth}"), 4096);
    }
    let list = core.begin_list(ME).unwrap();
    let new = core
        .begin_create(ME, ME.uid, "new", &CreateOptions::of_size(4096))
        .unwrap();
    let gone = core.begin_delete(ME, ME.uid, "s7").unwrap();
    let (listed, _) = ended(&mut core, &list);
    assert_eq!(listed.len(), 100);
    assert!(names(&listed).contains(&"s7"));
    for id in [new, gone] {
        while core.take_answer(&id).map(|answer| answer.unwrap()).is_none() {
            core.turn(Wait::one()).unwrap();
        }
    }
    let after = core.list(ME).unwrap();
    assert_eq!(after.len(), 100);
    assert!(names(&after).contains(&"new") && !names(&after).contains(&"s7"));
}

/// Others read and write while a list is under way.
#[test]
fn requests_go_on_beside_a_list() {
    let disk = volume();
    let mut core = open_simulated(&disk);
    create(&mut core, "data", 8192);
    let handle = harness::open_write(&mut core, "data");
    let list = core.begin_list(ME).unwrap();
    harness::write(&mut core, handle, 0, &[5; 4096]).unwrap();
    assert!(
        core.take_answer(&list).is_none(),
        "a write takes less turns than a list"
    );
    assert_eq!(ended(&mut core, &list).0.len(), 1);
}

/// Bad pages cost what they cost an open: nothing, where the mirror has what they had.
#[test]
fn a_list_reads_round_bad_pages() {
    let disk = volume();
    let mut core = open_simulated(&disk);
    for nth in 0..200 {
        create(&mut core, &format!("s{nth}"), 4096);
    }
    let expected = core.list(ME).unwrap();
    let table_at = 128 << 10;
    let mut injected = 0;
    for page in [0, 1, 7, 64, 65, 200] {
        let at = table_at + page * 4096;
        disk.set_faults(Faults::none().when(Trigger::always(Sick::ReadError).within(at..at + 4096)));
        assert_eq!(core.list(ME).unwrap(), expected, "page {page}");
        let now = disk.faults_injected().total();
        assert!(now > injected, "page {page} was not asked for");
        injected = now;
    }
    // All of it: then it is the device.
    disk.set_faults(Faults::none().when(Trigger::always(Sick::ReadError)));
    assert_eq!(core.list(ME).unwrap_err().code(), "EIO");
    disk.set_faults(Faults::none());
    assert_eq!(core.list(ME).unwrap(), expected);
}

/// Memory may be short: then it reads less at a time.
#[test]
fn a_list_needs_little_memory() {
    let disk = volume();
    let mut core = open_simulated(&disk);
    for nth in 0..50 {
        create(&mut core, &format!("s{nth}"), 4096);
    }
    let little = core.buffer(64 << 10).unwrap();
    let mut all = Vec::new();
    for size in [1 << 20, 64 << 10, 4096] {
        all.extend(std::iter::from_fn(|| core.buffer(size).ok()));
    }
    assert_eq!(core.list(ME).unwrap_err().code(), "ENOBUFS");
    drop(little);
    assert_eq!(core.list(ME).unwrap().len(), 50);
}
