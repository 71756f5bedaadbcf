//! The promise: a segment can be moved while it serves. Every request on it sees what was written last, wherever that lies at
//! the moment; an unfinished move goes on after the next open.

use baio_engine::Wait;
use baio_storage::{Answer, CreateOptions, Fault, ResizeOptions};

use crate::harness::known::{BLOCKS, Known, Load, assert_nothing_leaked, everywhere, start_block};
use crate::harness::{BLOCK, ME, Random, create, open_write, read, write};

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
        let free = core.volume_info().unwrap().free_bytes;
        let id = core.begin_move(ME, ME.uid, "moved", Some(1000)).unwrap();
        let mut both = false;
        let answer = loop {
            load.turn(&mut core, &mut moved);
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
            // From when the target is taken to the last record it has both.
            let now = core.volume_info().unwrap().free_bytes;
            both |= now < free;
            assert_eq!(now < free, both, "given back too early");
        };
        answer.unwrap();
        assert_eq!((both, core.volume_info().unwrap().free_bytes), (true, free));
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
            reserve_bytes: Some(800 * BLOCK as u64),
            ..ResizeOptions::to_size(700 * BLOCK as u64)
        };
        let id = core.begin_resize(ME, ME.uid, "data", &options).unwrap();
        let answer = loop {
            load.turn(&mut core, &mut known);
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
        };
        let Answer::Segment { info } = answer.unwrap() else {
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
            reserve_bytes: Some(900 * BLOCK as u64),
            ..ResizeOptions::to_size(100 * BLOCK as u64)
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
