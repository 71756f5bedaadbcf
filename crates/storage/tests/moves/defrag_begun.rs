//! A defragmentation that was begun: whoever turns the core serves others meanwhile, is told how far it is, and can leave it.

use baio_engine::Wait;
use baio_engine::sim::Disk;
use baio_storage::{Answer, Core, DefragProgress, DefragReport, OperationId, Progress};

use crate::harness::{self, BLOCK, ME, ROOT, Random, create, open_with_seed, open_write, read, slow_volume, write};

/// Every second segment was deleted.
fn holey() -> (Core, Disk) {
    let disk = slow_volume(8 << 20);
    let mut core = open_with_seed(&disk, 9);
    for nth in 0..40 {
        create(&mut core, &format!("s{nth}"), 20 * BLOCK as u64);
    }
    for nth in (0..40).step_by(2) {
        core.delete(ME, ME.uid, &format!("s{nth}")).unwrap();
    }
    (core, disk)
}

fn report(core: &mut Core, id: &OperationId) -> Option<DefragReport> {
    match core.take_answer(id)? {
        Ok(Answer::Defragged(report)) => Some(*report),
        other => panic!("{other:?}"),
    }
}

fn progress(core: &Core, id: &OperationId) -> DefragProgress {
    match core.operation_progress(id) {
        Some(Progress::Defrag(progress)) => progress,
        other => panic!("{other:?}"),
    }
}

#[test]
fn others_are_served_and_told_how_far_it_is() {
    let (mut core, _disk) = holey();
    let handle = open_write(&mut core, "s39");
    let id = core.begin_defrag(ME).unwrap();
    let mut last = DefragProgress::default();
    let (mut steps, mut byte) = (0, 0_u8);
    let report = loop {
        if let Some(report) = report(&mut core, &id) {
            break report;
        }
        byte = byte.wrapping_add(1);
        write(&mut core, handle, 4096, &[byte; 4096]).unwrap();
        let now = progress(&core, &id);
        assert!((now.pass, now.segments_done, now.moved_bytes) >= (last.pass, last.segments_done, last.moved_bytes));
        steps += u32::from(now != last);
        last = now;
    };
    assert!(steps > 10, "{steps} steps of progress");
    assert_eq!((report.moved_segments, last.segments), (20, 20), "{report:?}");
    assert_eq!(report.largest_free_bytes, report.free_bytes);
    assert!(core.operation_progress(&id).is_none(), "its id is used up");
    assert_eq!(read(&mut core, handle, 4096, 4096).unwrap(), [byte; 4096]);
}

/// The move under way ends, and no other is begun.
#[test]
fn who_is_left_moves_no_more_segments() {
    let (mut core, _disk) = holey();
    let id = core.begin_defrag(ME).unwrap();
    while progress(&core, &id).segments_done < 3 {
        core.turn(Wait::one()).unwrap();
    }
    core.abandon_operation(id);
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    let segments = core.list(ROOT).unwrap();
    assert!(segments.iter().all(|segment| segment.state == "live"));
    let packed = segments.iter().filter(|segment| segment.start_block < 20 * 4).count();
    assert_eq!(packed, 4, "{segments:?}");
    // The token and the claims are free.
    core.delete(ME, ME.uid, "s39").unwrap();
    let report = core.defrag(ME, &mut |_| {}).unwrap();
    assert_eq!(report.moved_segments, 15);
}

/// A close stops the move under way at its mark; the next open goes on with that one alone.
#[test]
fn a_close_ends_it() {
    let (mut core, disk) = holey();
    let id = core.begin_defrag(ME).unwrap();
    while progress(&core, &id).segments_done < 3 {
        core.turn(Wait::one()).unwrap();
    }
    core.close().unwrap();
    let mut core = harness::open_simulated(&disk);
    let moving = |core: &mut Core| {
        core.list(ROOT)
            .unwrap()
            .iter()
            .filter(|one| one.state == "moving")
            .count()
    };
    assert!(moving(&mut core) <= 1);
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(moving(&mut core), 0);
    assert_eq!(core.list(ROOT).unwrap().len(), 20);
}

/// Two at once get into nobody's way.
#[test]
fn two_defragmentations_end() {
    let (mut core, _disk) = holey();
    let ids = [ME, ROOT].map(|who| core.begin_defrag(who).unwrap());
    for id in ids {
        while report(&mut core, &id).is_none() {
            core.turn(Wait::one()).unwrap();
        }
    }
    let info = core.volume_info().unwrap();
    assert_eq!(info.largest_free_bytes, info.free_bytes);
}

/// On these volumes three at once moved the same segments for ever: what one had moved up, to bring it down behind, was for the others where
/// they began from.
#[test]
fn three_defragmentations_end() {
    for seed in [45, 71, 83, 183, 201, 205, 207, 285] {
        let mut random = Random::from(&[seed]);
        let disk = slow_volume(8 << 20);
        let mut core = open_with_seed(&disk, seed);
        let names: Vec<String> = (0..4 + random.below(5)).map(|nth| format!("s{nth}")).collect();
        for name in &names {
            create(&mut core, name, (1 + random.below(30)) * BLOCK as u64);
        }
        for name in &names {
            if random.below(3) == 0 {
                core.delete(ME, ME.uid, name).unwrap();
            }
        }
        let mut ids = Vec::new();
        for _ in 0..3 {
            for _ in 0..random.below(20) {
                core.turn(Wait::one()).unwrap();
            }
            ids.push(core.begin_defrag(ROOT).unwrap());
        }
        let mut turns = 0;
        while !ids.is_empty() {
            core.turn(Wait::one()).unwrap();
            ids.retain(|id| report(&mut core, id).is_none());
            turns += 1;
            assert!(turns < 6000, "seed {seed}: {} go on", ids.len());
        }
    }
}

/// One waits for the other, and ends at once when nobody wants it any more.
#[test]
fn a_defragmentation_that_waits_for_another_is_called_off() {
    let (mut core, _disk) = holey();
    let [first, other] = [ME, ROOT].map(|who| core.begin_defrag(who).unwrap());
    while progress(&core, &first).segments_done < 3 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(progress(&core, &other), DefragProgress::default());
    core.call_off_operation(&other);
    let ended = core.take_answer(&other).expect("it waits for nobody");
    assert_eq!(ended.unwrap_err().code(), "ECANCELED");
    while report(&mut core, &first).is_none() {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(core.defrag(ME, &mut |_| {}).unwrap().moves, 0);
}
