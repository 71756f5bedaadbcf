//! The promise: after a defragmentation the free blocks are one run at the end, wherever that can be had; no byte is lost,
//! whatever goes on meanwhile; and what stays where it was is told.

use baio_engine::sim::{Disk, Fault as Injected, Faults, Flash, Profile, Sim, Trigger};
use baio_engine::{Engine, EngineOptions, File, Wait};
use baio_storage::{Core, CreateOptions, DefragReport, FormatOptions, Handle, Identity};

use crate::harness::{
    self, BLOCK, ME, ROOT, Random, STRANGER, config, create, open_write, read, simulated_disk, write,
};

const VOLUME: u64 = 8 << 20;

fn simulated(small_arena: bool) -> (Core, Disk) {
    let disk = simulated_disk(&FormatOptions {
        size_bytes: Some(VOLUME),
        segments: Some(32),
        ..FormatOptions::default()
    });
    disk.set_profile(Profile::Flash(Flash::default()));
    let config = EngineOptions {
        arena_bytes: if small_arena { 1 << 20 } else { 4 << 20 },
        ..config()
    };
    let engine = Engine::simulated(Sim::new(9).unwrap(), &config).unwrap();
    let core = Core::open_on(engine, &File::simulated(&disk, "disk"), &config).unwrap();
    (core, disk)
}

/// A segment whose blocks say whose they are.
fn marked(core: &mut Core, name: &str, blocks: u64) -> Handle {
    create(core, name, blocks * BLOCK as u64);
    let handle = open_write(core, name);
    for block in 0..blocks {
        write(core, handle, block * BLOCK as u64, &mark(name, block)).unwrap();
    }
    handle
}

fn mark(name: &str, block: u64) -> [u8; BLOCK] {
    let seed = name
        .bytes()
        .fold(block, |seed, byte| seed.wrapping_mul(257) + u64::from(byte));
    [Random(seed).bits() as u8; BLOCK]
}

fn assert_marked(core: &mut Core, name: &str, handle: Handle, blocks: u64) {
    for block in 0..blocks {
        let found = read(core, handle, block * BLOCK as u64, BLOCK).unwrap();
        assert!(found == mark(name, block), "block {block} of {name}");
    }
}

fn defrag(core: &mut Core, who: Identity) -> DefragReport {
    let mut told = Vec::new();
    let report = core.defrag(who, &mut |progress| told.push(progress)).unwrap();
    assert_eq!(told.last().map_or(0, |last| last.moved_bytes), report.moved_bytes);
    assert!(told.iter().all(|one| one.segments_done <= one.segments));
    report
}

fn is_packed(core: &mut Core) -> bool {
    let info = core.volume_info().unwrap();
    let mut segments = core.list(ROOT).unwrap();
    segments.sort_by_key(|segment| segment.start_block);
    let mut end = 0;
    let packed = segments.iter().all(|segment| {
        let fits = segment.start_block == end && segment.state == "live";
        end += segment.reserve_bytes / BLOCK as u64;
        fits
    });
    packed && info.largest_free_bytes == info.free_bytes
}

#[test]
fn what_is_free_becomes_one_run_at_the_end() {
    for seed in 0..6 {
        let (mut core, disk) = simulated(seed % 2 == 0);
        let mut random = Random(seed);
        let mut kept = Vec::new();
        for index in 0..24 {
            let name = format!("segment {index}");
            let blocks = 1 + random.below(70);
            let handle = marked(&mut core, &name, blocks);
            kept.push((name, handle, blocks));
        }
        for _ in 0..12 {
            let (name, ..) = kept.swap_remove(random.below(kept.len() as u64) as usize);
            core.delete(ME, ME.uid, &name).unwrap();
        }
        let before = core.volume_info().unwrap();
        assert!(before.largest_free_bytes < before.free_bytes);
        let report = defrag(&mut core, ME);
        assert_eq!(report.unmoved, [], "seed {seed}");
        assert!(is_packed(&mut core), "seed {seed}: {report:?}");
        assert!(report.moves >= report.moved_segments && report.moved_segments > 0);
        assert_eq!(report.largest_free_before_bytes, before.largest_free_bytes);
        assert_eq!(
            (report.largest_free_bytes, report.free_bytes),
            (before.free_bytes, before.free_bytes)
        );
        for (name, handle, blocks) in &kept {
            assert_marked(&mut core, name, *handle, *blocks);
        }
        let again = defrag(&mut core, ME);
        assert_eq!((again.moves, again.moved_bytes), (0, 0), "nothing is left to do");
        core.close().unwrap();
        let mut core = harness::open_simulated(&disk);
        for (name, _, blocks) in &kept {
            let handle = open_write(&mut core, name);
            assert_marked(&mut core, name, handle, *blocks);
        }
        assert!(is_packed(&mut core));
    }
}

/// Also on a real file, with the backend that is best here.
#[test]
fn a_real_volume_is_packed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    harness::format(&path, VOLUME);
    let mut core = harness::open(&path);
    for name in ["a", "b", "c", "d"] {
        marked(&mut core, name, 100);
    }
    core.delete(ME, ME.uid, "a").unwrap();
    core.delete(ME, ME.uid, "c").unwrap();
    let report = defrag(&mut core, ROOT);
    assert_eq!((report.moves, report.moved_bytes), (2, 2 * 100 * BLOCK as u64));
    assert!(is_packed(&mut core));
    for name in ["b", "d"] {
        let handle = open_write(&mut core, name);
        assert_marked(&mut core, name, handle, 100);
    }
}

/// A gap smaller than the segment behind it: it hops over the free run at the end.
#[test]
fn a_segment_that_slides_by_less_than_its_length_hops() {
    let (mut core, _disk) = simulated(false);
    marked(&mut core, "gap", 10);
    let data = marked(&mut core, "data", 200);
    core.delete(ME, ME.uid, "gap").unwrap();
    let report = defrag(&mut core, ME);
    assert_eq!((report.moves, report.moved_segments), (2, 1));
    assert_eq!(report.moved_bytes, 2 * 200 * BLOCK as u64);
    assert!(is_packed(&mut core));
    assert_marked(&mut core, "data", data, 200);
}

#[test]
fn without_room_to_hop_it_stays_and_that_is_told() {
    let (mut core, _disk) = simulated(false);
    marked(&mut core, "gap", 10);
    let data = marked(&mut core, "data", 200);
    let free = core.volume_info().unwrap().free_bytes;
    // Another owner's, which fills the rest but for less than it takes.
    let rest = CreateOptions::of_size(free - 100 * BLOCK as u64);
    core.create(STRANGER, STRANGER.uid, "rest", &rest).unwrap();
    core.delete(ME, ME.uid, "gap").unwrap();
    let report = defrag(&mut core, ME);
    assert_eq!(report.moves, 0);
    let [unmoved] = &report.unmoved[..] else {
        panic!("{report:?}")
    };
    assert_eq!((unmoved.name.as_str(), unmoved.owner_uid), ("data", ME.uid));
    assert!(
        unmoved.why.contains("40960 bytes are free before it"),
        "{}",
        unmoved.why
    );
    assert_marked(&mut core, "data", data, 200);
    // A small one from behind fills the gap.
    core.create(ME, ME.uid, "small", &CreateOptions::of_size(4 * BLOCK as u64))
        .unwrap();
    let report = defrag(&mut core, ME);
    let small = core
        .list(ME)
        .unwrap()
        .into_iter()
        .find(|one| one.name == "small")
        .unwrap();
    assert_eq!((small.start_block, report.moves), (0, 1), "{report:?}");
}

/// In the first pass there is no room to hop; those behind make it.
#[test]
fn what_those_behind_free_is_room_for_another_pass() {
    let (mut core, _disk) = simulated(false);
    let data = marked(&mut core, "gap", 10);
    core.close_handle(data);
    let data = marked(&mut core, "data", 200);
    marked(&mut core, "free 1", 120);
    let small = marked(&mut core, "small", 30);
    marked(&mut core, "free 2", 120);
    let rest = CreateOptions::of_size(core.volume_info().unwrap().free_bytes);
    core.create(STRANGER, STRANGER.uid, "rest", &rest).unwrap();
    for name in ["gap", "free 1", "free 2"] {
        core.delete(ME, ME.uid, name).unwrap();
    }
    let mut passes = 0;
    let report = core.defrag(ME, &mut |progress| passes = progress.pass).unwrap();
    assert_eq!((report.unmoved.len(), report.moved_segments), (0, 2), "{report:?}");
    assert!(passes >= 2);
    let segments = core.list(ME).unwrap();
    let at = |name| segments.iter().find(|one| one.name == name).unwrap().start_block;
    assert_eq!((at("data"), at("small")), (0, 200));
    assert_eq!(report.largest_free_bytes, 250 * BLOCK as u64);
    assert_marked(&mut core, "data", data, 200);
    assert_marked(&mut core, "small", small, 30);
}

/// What cannot be read stays half-moved, the others are packed all the same; when it can be read again it is packed, too.
#[test]
fn a_segment_that_cannot_be_read_is_told_and_the_others_are_packed() {
    let (mut core, disk) = simulated(false);
    for name in ["gap", "bad", "gap 2", "good"] {
        marked(&mut core, name, 80);
    }
    core.delete(ME, ME.uid, "gap").unwrap();
    core.delete(ME, ME.uid, "gap 2").unwrap();
    let at = core.volume_info().unwrap().data_at_bytes + (80 + 70) * BLOCK as u64;
    let unreadable = Trigger::always(Injected::ReadError).within(at..at + BLOCK as u64);
    disk.set_faults(Faults::none().when(unreadable));
    let report = defrag(&mut core, ME);
    let [unmoved] = &report.unmoved[..] else {
        panic!("{report:?}")
    };
    assert_eq!(unmoved.name, "bad");
    assert!(
        unmoved.why.contains("EIO") || unmoved.why.contains("error"),
        "{}",
        unmoved.why
    );
    let segments = core.list(ME).unwrap();
    let of = |name| segments.iter().find(|one| one.name == name).unwrap();
    assert_eq!((of("bad").state, of("good").state), ("moving", "live"));
    assert_eq!(of("good").start_block, 160, "as low as it can");
    disk.set_faults(Faults::none());
    let report = defrag(&mut core, ME);
    assert_eq!(report.unmoved, []);
    assert!(is_packed(&mut core));
    for name in ["bad", "good"] {
        let handle = open_write(&mut core, name);
        assert_marked(&mut core, name, handle, 80);
    }
}

/// Nobody knows what holds when a record has failed: that is no reason of one segment's among others.
#[test]
fn a_record_that_fails_ends_it() {
    let (mut core, disk) = simulated(false);
    for name in ["gap", "data"] {
        marked(&mut core, name, 10);
    }
    core.delete(ME, ME.uid, "gap").unwrap();
    let table = 0..core.volume_info().unwrap().data_at_bytes;
    disk.set_faults(Faults::none().when(Trigger::always(Injected::WriteError).within(table)));
    let error = core.defrag(ME, &mut |_| {}).unwrap_err();
    assert_eq!(error.code(), "EIO", "{error}");
}

/// Only root moves what belongs to others.
#[test]
fn segments_of_others_stay_unless_root_asks() {
    let (mut core, _disk) = simulated(false);
    marked(&mut core, "mine", 10);
    core.create(
        STRANGER,
        STRANGER.uid,
        "theirs",
        &CreateOptions::of_size(50 * BLOCK as u64),
    )
    .unwrap();
    marked(&mut core, "gap", 5);
    marked(&mut core, "more", 20);
    for name in ["mine", "gap"] {
        core.delete(ME, ME.uid, name).unwrap();
    }
    let report = defrag(&mut core, ME);
    assert_eq!(
        (report.moves, report.unmoved.len()),
        (2, 0),
        "`more` slides down to what is not ours"
    );
    assert!(!is_packed(&mut core));
    defrag(&mut core, ROOT);
    assert!(is_packed(&mut core));
}

/// Operations that others began go on meanwhile.
#[test]
fn a_volume_is_packed_while_others_make_and_delete_segments() {
    let (mut core, _disk) = simulated(false);
    let mut kept = Vec::new();
    for index in 0..10 {
        let name = format!("segment {index}");
        let handle = marked(&mut core, &name, 40);
        if index % 2 == 1 {
            kept.push((name, handle));
        } else {
            core.delete(ME, ME.uid, &name).unwrap();
        }
    }
    let mut begun = Vec::new();
    for index in 0..4 {
        let options = CreateOptions::of_size(30 * BLOCK as u64);
        begun.push(
            core.begin_create(ME, ME.uid, &format!("new {index}"), &options)
                .unwrap(),
        );
    }
    begun.push(core.begin_delete(ME, ME.uid, "segment 9").unwrap());
    kept.pop();
    let writes: Vec<_> = kept
        .iter()
        .map(|(_, handle)| {
            let request = harness::write_request(&core, *handle, 0, &[0x77; BLOCK]);
            harness::start(&mut core, request)
        })
        .collect();
    defrag(&mut core, ME);
    for id in begun {
        core.take_answer(&id).unwrap().unwrap();
    }
    for ticket in writes {
        core.wait(ticket).unwrap().unwrap().result.unwrap();
    }
    defrag(&mut core, ME);
    assert!(is_packed(&mut core));
    for (name, handle) in &kept {
        assert_eq!(read(&mut core, *handle, 0, BLOCK).unwrap(), [0x77; BLOCK]);
        for block in 1..40 {
            let found = read(&mut core, *handle, block * BLOCK as u64, BLOCK).unwrap();
            assert!(found == mark(name, block), "block {block} of {name}");
        }
    }
    assert_eq!(core.in_flight(), 0);
    core.turn(Wait::No).unwrap();
}
