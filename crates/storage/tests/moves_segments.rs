//! The promise: a segment can be moved, and the volume packed, while it serves. Every request on it sees what was written
//! last, wherever that lies at the moment; a move that is stopped by anything leaves the segment served by its mark, and
//! another one goes on from there (DESIGN §5).

mod harness;

use std::path::PathBuf;
use std::time::Duration;

use baio_engine::sim::{Disk, Fault as Injected, Faults, Flash, Profile, Sim, Trigger};
use baio_engine::{Choice, Config, Engine, File, Memory, Wait};
use baio_storage::{Answer, Core, CreateOptions, Fault, Format, Handle, ResizeOptions, SegmentOp, SegmentRequest};
use harness::{
    BLOCK, ME, Random, config, create, open_moody, open_simulated, open_write, read, read_request, run, simulated_disk,
    start, sync_request, write, write_request,
};

const VOLUME: u64 = 16 << 20;
const BLOCKS: u64 = 512;

/// A volume somewhere, and how it is opened again.
enum World {
    Simulated(Disk),
    Real(PathBuf, Choice, #[allow(dead_code)] tempfile::TempDir),
}

impl World {
    fn simulated() -> World {
        let disk = simulated_disk(&Format {
            size_bytes: Some(VOLUME),
            ..Format::default()
        });
        disk.set_profile(Profile::Flash(Flash::default()));
        World::Simulated(disk)
    }

    fn real(backend: Choice) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume.img");
        harness::format(&path, VOLUME);
        World::Real(path, backend, dir)
    }

    fn open(&self) -> Core {
        match self {
            World::Simulated(disk) => {
                let engine = Engine::simulated(Sim::new(5).unwrap(), &config()).unwrap();
                Core::open_simulated(engine, &File::simulated(disk, "disk"), &config()).unwrap()
            }
            World::Real(path, backend, _) => {
                let config = Config {
                    backend: *backend,
                    ..config()
                };
                Core::open(path, &config).unwrap()
            }
        }
    }
}

/// The same test on a simulated device and on real files.
fn everywhere(test: fn(&World)) {
    test(&World::simulated());
    for backend in [Choice::Sync, Choice::Threads, Choice::Auto] {
        test(&World::real(backend));
    }
}

/// A segment and what it must hold: one byte per block.
struct Known {
    name: &'static str,
    handle: Handle,
    holds: Vec<u8>,
    busy: Vec<bool>,
}

impl Known {
    fn new(core: &mut Core, name: &'static str, blocks: u64) -> Known {
        create(core, name, blocks * BLOCK as u64);
        Known {
            name,
            handle: open_write(core, name),
            holds: vec![0; blocks as usize],
            busy: vec![false; blocks as usize],
        }
    }

    fn fill(&mut self, core: &mut Core, random: &mut Random) {
        for block in 0..self.holds.len() {
            self.holds[block] = random.below(256) as u8;
            write(core, self.handle, (block * BLOCK) as u64, &[self.holds[block]; BLOCK]).unwrap();
        }
    }

    fn assert_holds(&self, core: &mut Core) {
        for (block, expected) in self.holds.iter().enumerate() {
            let bytes = read(core, self.handle, (block * BLOCK) as u64, BLOCK).unwrap();
            assert!(
                bytes.len() == BLOCK && bytes.iter().all(|byte| byte == expected),
                "block {block} of {}: {} instead of {expected}",
                self.name,
                bytes[0]
            );
        }
    }
}

/// Segment, first block, blocks, and the byte written; none for a read.
type UnderWay = (usize, u64, u64, Option<u8>);

/// Random requests on some segments, of which the outcome of each is known: no two under way touch one block.
struct Load {
    random: Random,
    under_way: Vec<Option<UnderWay>>,
    ended: u64,
}

impl Load {
    fn new(seed: u64) -> Load {
        Load {
            random: Random(seed),
            under_way: Vec::new(),
            ended: 0,
        }
    }

    fn start_some(&mut self, core: &mut Core, segments: &mut [Known]) {
        while self.under_way.iter().flatten().count() < 12 {
            let which = self.random.below(segments.len() as u64) as usize;
            let known = &mut segments[which];
            if self.random.below(20) == 0 {
                let mut request = sync_request(known.handle);
                request.tag = u64::MAX;
                start(core, request);
            }
            let most = if self.random.below(8) == 0 { 96 } else { 6 };
            let len = 1 + self.random.below(most);
            let first = self.random.below(known.holds.len() as u64 - len);
            let range = first as usize..(first + len) as usize;
            if known.busy[range.clone()].contains(&true) {
                continue;
            }
            known.busy[range].fill(true);
            let offset = first * BLOCK as u64;
            let byte = (self.random.below(2) == 0).then(|| self.random.next() as u8);
            let mut buffer = core.buffer((len * BLOCK as u64) as usize).unwrap();
            buffer.fill(byte.unwrap_or(0));
            let op = match byte {
                Some(_) => SegmentOp::Write { offset },
                None => SegmentOp::Read { offset },
            };
            let place = self.under_way.iter().position(Option::is_none);
            let place = place.unwrap_or_else(|| {
                self.under_way.push(None);
                self.under_way.len() - 1
            });
            self.under_way[place] = Some((which, first, len, byte));
            let request = SegmentRequest {
                tag: place as u64,
                ..SegmentRequest::new(known.handle, op, buffer)
            };
            start(core, request);
        }
    }

    fn collect(&mut self, core: &mut Core, segments: &mut [Known]) {
        while let Some(outcome) = core.next_outcome() {
            let got = outcome.result.unwrap();
            if outcome.tag == u64::MAX {
                continue;
            }
            let (which, first, len, byte) = self.under_way[outcome.tag as usize].take().unwrap();
            assert_eq!(u64::from(got), len * BLOCK as u64);
            let known = &mut segments[which];
            let buffer = outcome.memory.into_buffer().unwrap();
            for index in 0..len {
                let block = (first + index) as usize;
                known.busy[block] = false;
                match byte {
                    Some(byte) => known.holds[block] = byte,
                    None => {
                        let bytes = &buffer[index as usize * BLOCK..][..BLOCK];
                        let expected = known.holds[block];
                        assert!(
                            bytes.iter().all(|byte| *byte == expected),
                            "block {block} of {}: read {} instead of {expected}",
                            known.name,
                            bytes[0]
                        );
                    }
                }
            }
            self.ended += 1;
        }
    }

    fn turn(&mut self, core: &mut Core, segments: &mut [Known]) {
        self.start_some(core, segments);
        core.turn(Wait::one()).unwrap();
        self.collect(core, segments);
    }

    fn end(&mut self, core: &mut Core, segments: &mut [Known]) {
        while self.under_way.iter().any(Option::is_some) {
            core.turn(Wait::one()).unwrap();
            self.collect(core, segments);
        }
    }
}

fn start_block(core: &mut Core, name: &str) -> (u64, &'static str) {
    let segments = core.list(ME).unwrap();
    let info = segments.iter().find(|info| info.name == name).unwrap();
    (info.start_block, info.state)
}

/// Free blocks and the segments' reserves are the whole volume.
fn assert_nothing_leaked(core: &mut Core) {
    let segments = core.list(ME).unwrap();
    let info = core.volume_info().unwrap();
    let used: u64 = segments.iter().map(|segment| segment.reserve_bytes).sum();
    assert_eq!(info.free_bytes + used, info.size_bytes, "{segments:?}");
    let account = segments.iter().map(|segment| segment.reserve_bytes).sum::<u64>();
    assert_eq!(used, account);
}

#[test]
fn requests_under_way_see_what_was_written_last_while_segments_move() {
    everywhere(|world| {
        let mut core = world.open();
        create(&mut core, "hole", 600 * BLOCK as u64);
        let mut random = Random(1);
        let mut segments = vec![
            Known::new(&mut core, "one", BLOCKS),
            Known::new(&mut core, "two", BLOCKS / 2),
        ];
        core.delete(ME, ME.uid, "hole").unwrap();
        for known in &mut segments {
            known.fill(&mut core, &mut random);
        }
        let mut load = Load::new(2);
        for round in 0..6 {
            let before: Vec<u64> = ["one", "two"].map(|name| start_block(&mut core, name).0).into();
            // Down, then to the end, alone and both at once.
            let far = core.volume_info().unwrap().size_bytes / BLOCK as u64 - BLOCKS - 40;
            let to = [None, Some(far)][round % 2];
            let mut moves = vec![core.begin_move(ME, ME.uid, "one", to).unwrap()];
            if round >= 2 {
                moves.push(core.begin_move(ME, ME.uid, "two", None).unwrap());
            }
            let ended = load.ended;
            while !moves.is_empty() {
                load.turn(&mut core, &mut segments);
                moves.retain(|id| core.take_answer(id).map(|answer| answer.unwrap()).is_none());
            }
            assert!(load.ended > ended + 10, "requests go on meanwhile");
            load.end(&mut core, &mut segments);
            let after = start_block(&mut core, "one");
            assert!(after.0 != before[0] && after.1 == "live", "{before:?} {after:?}");
            if let Some(to) = to {
                assert_eq!(after.0, to);
            }
            assert_nothing_leaked(&mut core);
        }
        segments.iter().for_each(|known| known.assert_holds(&mut core));
        // No move is under way; only syncs may be, of which the load keeps nothing.
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
            load.collect(&mut core, &mut segments);
        }
        core.close().unwrap();
        let mut core = world.open();
        for known in &mut segments {
            known.handle = open_write(&mut core, known.name);
            known.assert_holds(&mut core);
        }
        assert_nothing_leaked(&mut core);
    });
}

/// The blocks that were left may be somebody else's at once.
#[test]
fn who_gets_the_old_blocks_neither_sees_nor_touches_the_segment() {
    everywhere(|world| {
        let mut core = world.open();
        let mut moved = [Known::new(&mut core, "moved", 200)];
        moved[0].fill(&mut core, &mut Random(3));
        let mut load = Load::new(4);
        let id = core.begin_move(ME, ME.uid, "moved", Some(1000)).unwrap();
        let answer = loop {
            load.turn(&mut core, &mut moved);
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
        };
        answer.unwrap();
        core.create(ME, ME.uid, "next", &CreateOptions::of_size(1000 * BLOCK as u64))
            .unwrap();
        let next = open_write(&mut core, "next");
        for block in (0..1000).step_by(7) {
            let at = block * BLOCK as u64;
            assert_eq!(read(&mut core, next, at, BLOCK).unwrap(), vec![0; BLOCK]);
            write(&mut core, next, at, &[0xee; BLOCK]).unwrap();
        }
        load.end(&mut core, &mut moved);
        moved[0].assert_holds(&mut core);
    });
}

#[test]
fn a_close_stops_a_move_at_its_mark_and_the_next_open_goes_on() {
    everywhere(|world| {
        let mut core = world.open();
        let mut known = [Known::new(&mut core, "data", BLOCKS)];
        known[0].fill(&mut core, &mut Random(5));
        let mut load = Load::new(6);
        core.begin_move(ME, ME.uid, "data", Some(1500)).unwrap();
        let mut states = std::collections::BTreeSet::new();
        for opened in 0..100 {
            for _ in 0..3 {
                load.turn(&mut core, &mut known);
            }
            load.end(&mut core, &mut known);
            core.close().unwrap();
            core = world.open();
            known[0].handle = open_write(&mut core, "data");
            let (start, state) = start_block(&mut core, "data");
            states.insert(state);
            if state == "live" {
                assert_eq!(start, 1500);
                assert!(opened > 0, "it was stopped at least once");
                break;
            }
        }
        assert_eq!(states.into_iter().collect::<Vec<_>>(), ["live", "moving"]);
        known[0].assert_holds(&mut core);
        assert_nothing_leaked(&mut core);
    });
}

/// Nobody asks for it, and nobody is kept waiting by it.
#[test]
fn an_unfinished_move_goes_on_in_the_background() {
    everywhere(|world| {
        let mut core = world.open();
        let mut known = [
            Known::new(&mut core, "data", BLOCKS),
            Known::new(&mut core, "more", BLOCKS),
        ];
        for one in &mut known {
            one.fill(&mut core, &mut Random(7));
        }
        core.begin_move(ME, ME.uid, "data", Some(1500)).unwrap();
        core.begin_move(ME, ME.uid, "more", Some(2500)).unwrap();
        for _ in 0..8 {
            core.turn(Wait::one()).unwrap();
        }
        drop(core); // As a process that is killed: nothing is noted.
        let mut core = world.open();
        for one in &mut known {
            one.handle = open_write(&mut core, one.name);
            assert_eq!(start_block(&mut core, one.name).1, "moving");
        }
        let mut load = Load::new(9);
        for _ in 0..400 {
            load.turn(&mut core, &mut known);
        }
        load.end(&mut core, &mut known);
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        assert_eq!(start_block(&mut core, "data"), (1500, "live"));
        assert_eq!(start_block(&mut core, "more"), (2500, "live"));
        known.iter().for_each(|one| one.assert_holds(&mut core));
        assert_nothing_leaked(&mut core);
    });
}

#[test]
fn deleting_a_segment_that_is_being_moved_gives_both_runs_back() {
    everywhere(|world| {
        let mut core = world.open();
        let free = core.volume_info().unwrap().free_bytes;
        for turns in [0, 1, 5, 20, 40] {
            let mut known = [Known::new(&mut core, "data", BLOCKS)];
            known[0].fill(&mut core, &mut Random(10));
            let to = if start_block(&mut core, "data").0 < 1400 {
                2000
            } else {
                100
            };
            let id = core.begin_move(ME, ME.uid, "data", Some(to)).unwrap();
            let mut load = Load::new(11);
            for _ in 0..turns {
                load.turn(&mut core, &mut known);
            }
            load.end(&mut core, &mut known);
            core.delete(ME, ME.uid, "data").unwrap();
            let answer = core.take_answer(&id).unwrap();
            if let Err(error) = answer {
                assert!(matches!(error.code(), "EAGAIN" | "ENOENT"), "{error}");
            }
            assert_eq!(core.volume_info().unwrap().free_bytes, free);
            let error = read(&mut core, known[0].handle, 0, BLOCK).unwrap_err();
            assert!(matches!(error.fault, Fault::Stale), "{error}");
        }
        core.close().unwrap();
        assert_eq!(world.open().volume_info().unwrap().free_bytes, free);
    });
}

/// A segment whose neighbour is in the way grows elsewhere, in service: what it held is kept, what is new is zero.
#[test]
fn a_segment_grows_past_its_neighbour_by_moving() {
    everywhere(|world| {
        let mut core = world.open();
        // What the new run held before must not be seen.
        let mut dirt = Known::new(&mut core, "dirt", 2000);
        dirt.fill(&mut core, &mut Random(20));
        core.delete(ME, ME.uid, "dirt").unwrap();
        let mut known = [Known::new(&mut core, "data", BLOCKS)];
        create(&mut core, "wall", BLOCK as u64);
        known[0].fill(&mut core, &mut Random(21));
        let before = start_block(&mut core, "data").0;
        let mut load = Load::new(22);
        let options = ResizeOptions {
            size_bytes: 700 * BLOCK as u64,
            reserve_bytes: Some(800 * BLOCK as u64),
        };
        let id = core.begin_resize(ME, ME.uid, "data", &options).unwrap();
        let answer = loop {
            load.turn(&mut core, &mut known);
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
        };
        let Answer::Segment(info) = answer.unwrap() else {
            panic!("a resize answers with its segment")
        };
        load.end(&mut core, &mut known);
        assert_eq!((info.size_bytes, info.reserve_bytes), (700 << 12, 800 << 12));
        assert_ne!(info.start_block, before);
        known[0].holds.resize(700, 0);
        known[0].busy.resize(700, false);
        known[0].assert_holds(&mut core);
        assert_eq!(core.quota(ME, ME.uid).unwrap().used.blocks, 801);
        assert_nothing_leaked(&mut core);
        // A longer reserve for a shorter segment: it moves, then it shrinks.
        create(&mut core, "wall 2", 3 * BLOCK as u64);
        let options = ResizeOptions {
            size_bytes: 100 * BLOCK as u64,
            reserve_bytes: Some(900 * BLOCK as u64),
        };
        let info = core.resize(ME, ME.uid, "data", &options).unwrap();
        assert_eq!((info.size_bytes, info.reserve_bytes), (100 << 12, 900 << 12));
        core.resize(ME, ME.uid, "data", &ResizeOptions::to_size(900 << 12))
            .unwrap();
        known[0].holds.truncate(100);
        known[0].holds.resize(900, 0);
        known[0].assert_holds(&mut core);
        assert_nothing_leaked(&mut core);
        core.close().unwrap();
        let mut core = world.open();
        known[0].handle = open_write(&mut core, "data");
        known[0].assert_holds(&mut core);
    });
}

/// Who wants to change a segment that is being moved waits for the end of the move.
#[test]
fn other_operations_wait_for_a_move() {
    everywhere(|world| {
        let mut core = world.open();
        let mut known = [Known::new(&mut core, "data", BLOCKS)];
        known[0].fill(&mut core, &mut Random(23));
        let moved = core.begin_move(ME, ME.uid, "data", Some(2000)).unwrap();
        let again = core.begin_move(ME, ME.uid, "data", Some(1000)).unwrap();
        let renamed = core.begin_rename(ME, ME.uid, "data", "other").unwrap();
        let grown = core
            .begin_resize(ME, ME.uid, "other", &ResizeOptions::to_size(600 << 12))
            .unwrap();
        let mut load = Load::new(24);
        let mut waiting = vec![moved, again, renamed];
        while !waiting.is_empty() {
            load.turn(&mut core, &mut known);
            waiting.retain(|id| core.take_answer(id).map(|answer| answer.unwrap()).is_none());
        }
        load.end(&mut core, &mut known);
        // The last came before the name was there.
        assert_eq!(core.take_answer(&grown).unwrap().unwrap_err().code(), "ENOENT");
        assert_eq!(start_block(&mut core, "other"), (1000, "live"));
        core.resize(ME, ME.uid, "other", &ResizeOptions::to_size(600 << 12))
            .unwrap();
        known[0].holds.resize(600, 0);
        known[0].assert_holds(&mut core);
        assert_nothing_leaked(&mut core);
    });
}

/// An unreadable block of the source: what is below the mark is served from the target, the rest from the source, and what
/// crosses the mark is refused with it. Written anew, the block lets the next move pass.
#[test]
fn a_move_stopped_by_a_read_error_leaves_the_segment_served() {
    let world = World::simulated();
    let World::Simulated(disk) = &world else { unreachable!() };
    let mut core = world.open();
    let mut known = Known::new(&mut core, "data", BLOCKS);
    known.fill(&mut core, &mut Random(12));
    let info = core.volume_info().unwrap();
    let bad = 300 * BLOCK as u64;
    let on_device = info.data_at_bytes + start_block(&mut core, "data").0 * BLOCK as u64 + bad;
    let fails = Trigger::always(Injected::ReadError).within(on_device..on_device + BLOCK as u64);
    disk.set_faults(Faults::none().when(fails));
    let error = core.move_segment(ME, ME.uid, "data", Some(1500)).unwrap_err();
    assert_eq!(error.code(), "EIO", "{error}");
    assert_eq!(start_block(&mut core, "data").1, "moving");
    // The chunk is 64 blocks: the arena of these tests is small.
    let mark = 256 * BLOCK as u64;
    let handle = open_write(&mut core, "data");
    for handle in [handle, known.handle] {
        for offset in [0, mark - BLOCK as u64, mark] {
            assert!(read(&mut core, handle, offset, BLOCK).is_ok());
        }
        let error = read(&mut core, handle, mark - BLOCK as u64, 2 * BLOCK).unwrap_err();
        assert!(
            matches!(error.fault, Fault::MoveStopped { mark: at } if at == mark),
            "{error}"
        );
        assert!(error.need().unwrap().contains(&mark.to_string()) && error.cure().is_some());
        assert_eq!(error.offset, Some(mark - BLOCK as u64));
    }
    for (block, byte) in [(255, 1), (256, 2), (300, 3), (511, 4)] {
        known.holds[block] = byte;
        write(&mut core, known.handle, (block * BLOCK) as u64, &[byte; BLOCK]).unwrap();
    }
    // Still unreadable; another move stops there again, and so does one after an open.
    assert!(core.move_segment(ME, ME.uid, "data", None).is_err());
    core.close().unwrap();
    let mut core = world.open();
    known.handle = open_write(&mut core, "data");
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(start_block(&mut core, "data").1, "moving");
    disk.set_faults(Faults::none());
    let info = core.move_segment(ME, ME.uid, "data", None).unwrap();
    assert_eq!(
        (info.start_block, info.state),
        (1500, "live"),
        "it goes on to where it was going"
    );
    known.assert_holds(&mut core);
    assert_nothing_leaked(&mut core);
}

/// Every request of a move, in turn, fails with EIO although the device did it: whatever holds then, no byte is lost, and no
/// block leaks.
#[test]
fn a_move_that_fails_at_any_request_loses_nothing() {
    let format = Format {
        size_bytes: Some(VOLUME),
        ..Format::default()
    };
    let mut doubted = 0;
    for at in 0.. {
        let disk = simulated_disk(&format);
        let (mut core, whims) = open_moody(&disk, &config());
        let mut known = Known::new(&mut core, "data", 130);
        known.fill(&mut core, &mut Random(13));
        let seen = whims.borrow().seen;
        whims.borrow_mut().fail_from = Some(seen + at);
        whims.borrow_mut().fail_count = 1;
        let arena = core.engine().arena().free_bytes();
        let moved = core.move_segment(ME, ME.uid, "data", Some(1000));
        let reached = whims.borrow().seen > seen + at;
        whims.borrow_mut().fail_from = None;
        assert_eq!(
            core.engine().arena().free_bytes(),
            arena,
            "request {at}: memory is lost"
        );
        assert_eq!(moved.is_err(), reached, "request {at}");
        // What is acknowledged now must still be there after the next open, whichever record it finds.
        for block in 0..130 {
            let byte = block as u8 ^ 0x5a;
            match write(&mut core, known.handle, (block * BLOCK) as u64, &[byte; BLOCK]) {
                Ok(_) => known.holds[block] = byte,
                Err(error) => {
                    assert_eq!(error.code(), "EPOISONED", "request {at}: {error}");
                    doubted += 1;
                }
            }
        }
        harness::sync(&mut core, known.handle).unwrap();
        core.close().unwrap();
        let mut core = open_simulated(&disk);
        known.handle = open_write(&mut core, "data");
        known.assert_holds(&mut core);
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        known.assert_holds(&mut core);
        assert_eq!(start_block(&mut core, "data").1, "live");
        assert_nothing_leaked(&mut core);
        if !reached {
            assert!(at > 15, "only {at} requests");
            break;
        }
    }
    assert!(doubted > 0, "no record of a mark was in doubt");
}

/// What waits for the chunk in copy can be called back, and ends in time.
#[test]
fn requests_that_wait_for_a_chunk_obey_cancel_and_deadline() {
    let format = Format {
        size_bytes: Some(VOLUME),
        ..Format::default()
    };
    let disk = simulated_disk(&format);
    let (mut core, whims) = open_moody(&disk, &config());
    let mut known = Known::new(&mut core, "data", 130);
    known.fill(&mut core, &mut Random(14));
    let seen = whims.borrow().seen;
    let id = core.begin_move(ME, ME.uid, "data", Some(1000)).unwrap();
    // The look-up, the record in table and mirror, and its reading back; then the first chunk, whose read does not end.
    while whims.borrow().seen < seen + 4 {
        core.turn(Wait::one()).unwrap();
    }
    whims.borrow_mut().hold = true;
    whims.borrow_mut().hold_turns = 1000;
    let request = read_request(&core, known.handle, 0, BLOCK);
    let cancelled = start(&mut core, request);
    let due = core.engine().now().after(Duration::from_millis(5));
    let [late, beside] = [0, 129].map(|block| {
        let mut request = write_request(&core, known.handle, block * BLOCK as u64, &[1; BLOCK]);
        request.deadline = Some(due);
        request
    });
    let beside = start(&mut core, beside);
    let late = start(&mut core, late);
    core.cancel(cancelled);
    for ticket in [cancelled, late] {
        let outcome = core.wait(ticket).unwrap().unwrap();
        assert_eq!(outcome.memory.len(), BLOCK, "it never reached the device");
        let error = outcome.result.unwrap_err();
        assert!(
            matches!(error.fault, Fault::Io(baio_engine::Error::Cancelled)),
            "{error}"
        );
    }
    assert!(core.engine().now() >= due, "not before its time");
    let outcome = core.wait(beside).unwrap().unwrap();
    assert_eq!(outcome.result.unwrap_err().code(), "EINDETERMINATE", "this one did");
    known.holds[129] = 1;
    whims.borrow_mut().hold = false;
    whims.borrow_mut().hold_turns = 0;
    loop {
        match core.take_answer(&id) {
            Some(answer) => break drop(answer.unwrap()),
            None => core.turn(Wait::one()).unwrap(),
        };
    }
    known.assert_holds(&mut core);
}

#[test]
fn a_move_says_what_it_cannot_do() {
    let world = World::simulated();
    let mut core = world.open();
    create(&mut core, "data", 100 * BLOCK as u64);
    create(&mut core, "wall", 100 * BLOCK as u64);
    for to in [50, 150, u64::MAX, 1 << 40] {
        let error = core.move_segment(ME, ME.uid, "data", Some(to)).unwrap_err();
        assert_eq!(error.code(), "ENOSPC", "{error}");
    }
    let same = core.move_segment(ME, ME.uid, "data", Some(0)).unwrap();
    assert_eq!(same.start_block, 0);
    assert_eq!(
        core.move_segment(ME, ME.uid, "nothing", None).unwrap_err().code(),
        "ENOENT"
    );
    let stranger = core.move_segment(harness::STRANGER, ME.uid, "data", None).unwrap_err();
    assert_eq!(stranger.code(), "EACCES");
    assert_nothing_leaked(&mut core);
    // A caller that holds all memory is told so, and nothing is lost by it.
    let mut all = Vec::new();
    let mut size = 1 << 20;
    while size >= BLOCK {
        match core.buffer(size) {
            Ok(buffer) => all.push(buffer),
            Err(_) => size /= 2,
        }
    }
    let error = core.move_segment(ME, ME.uid, "data", Some(1000)).unwrap_err();
    assert_eq!(error.code(), "ENOBUFS", "{error}");
    drop(all);
    core.move_segment(ME, ME.uid, "data", Some(1000)).unwrap();
    assert_nothing_leaked(&mut core);
    let bare = SegmentRequest::new(open_write(&mut core, "data"), SegmentOp::Sync, Memory::None);
    run(&mut core, bare).result.unwrap();
}
