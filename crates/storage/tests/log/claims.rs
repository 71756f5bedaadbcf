//! The promise: a segment that is for a log which its caller keeps elsewhere is written by that caller alone, until the last of its
//! writes has landed; and that log takes no more of an arena than it may.

use baio_engine::{Arena, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::log::{LogOptions, LogPart, Salt};
use baio_storage::{Access, Core, Error, Fault, Handle, Mode, ResizeOptions, SegmentOp, SegmentRequest};

use crate::harness::{BLOCK, ME, create, open_with_seed, open_write, run, slow_volume, start, write, write_request};
use crate::held_log::{LOG_BYTES, create_log, options};
use crate::rig::{Device, Rig};

fn with_segment() -> (Core, Handle) {
    let disk = slow_volume(16 << 20);
    let mut core = open_with_seed(&disk, 9);
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    (core, handle)
}

fn has_log<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result.map_err(Error::into_fault), Err(Fault::HasLog))
}

#[test]
fn a_claim_lasts_until_its_last_write_has_landed() {
    let (mut core, handle) = with_segment();
    let claim = core.claim_log(handle).unwrap();
    assert_eq!(claim.size_bytes, LOG_BYTES);
    assert!(core.is_log_claim(claim.handle) && !core.is_log_claim(handle));
    assert_eq!(write(&mut core, claim.handle, 0, &[1; BLOCK]).unwrap(), BLOCK as u32);
    assert!(has_log(core.delete(ME, ME.uid, "log")));
    let request = write_request(&core, claim.handle, 0, &[2; BLOCK]);
    let late = start(&mut core, request);
    core.close_handle(claim.handle);
    // Nobody has turned the core: it is under way.
    assert!(core.is_under_way_on(claim.handle));
    assert!(has_log(write(&mut core, handle, 0, &[3; BLOCK])));
    assert!(has_log(core.claim_log(handle)) && has_log(core.begin_open_log(handle, &options())));
    while core.is_under_way_on(claim.handle) {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(core.wait(late).unwrap().unwrap().result.unwrap(), BLOCK as u32);
    assert!(!core.is_log_claim(claim.handle));
    write(&mut core, handle, 0, &[3; BLOCK]).unwrap();
    core.claim_log(handle).unwrap();
}

#[test]
fn a_claim_and_a_log_of_the_core_keep_each_other_out() {
    let (mut core, handle) = with_segment();
    let log = create_log(&mut core, handle);
    assert!(has_log(core.claim_log(handle)));
    drop(log);
    while has_log(core.claim_log(handle).map(|claim| core.close_handle(claim.handle))) {
        core.turn(Wait::one()).unwrap();
    }
    let claim = core.claim_log(handle).unwrap();
    assert!(has_log(core.begin_open_log(handle, &options())) && has_log(core.begin_create_log(handle, &options())));
    // By a claim blocks are written, directly, and nothing else is changed.
    let cached = SegmentRequest {
        mode: Mode::Cached,
        ..write_request(&core, claim.handle, 0, &[1; BLOCK])
    };
    assert!(has_log(run(&mut core, cached).result));
    let discard = SegmentOp::Discard { offset: 0, len: 4096 };
    let discard = SegmentRequest::new(claim.handle, discard, baio_engine::Memory::None);
    assert!(has_log(run(&mut core, discard).result));
    // A handle that is opened from it is none.
    let again = core.open_again(claim.handle, Access::Write).unwrap();
    assert!(has_log(write(&mut core, again, 0, &[1; BLOCK])));
    write(&mut core, claim.handle, 0, &[1; BLOCK]).unwrap();
}

#[test]
fn nobody_claims_where_he_may_not_write_or_somebody_writes() {
    let (mut core, handle) = with_segment();
    let read = core.open_segment(ME, ME.uid, "log", Access::Read).unwrap().0;
    let fault = core.claim_log(read).unwrap_err().into_fault();
    assert!(matches!(fault, Fault::ReadOnly), "{fault:?}");
    let request = write_request(&core, handle, 0, &[2; BLOCK]);
    let late = start(&mut core, request);
    assert_eq!(
        core.claim_log(handle).unwrap_err().errno(),
        Some(baio_engine::Errno::EBUSY)
    );
    core.wait(late).unwrap().unwrap().result.unwrap();
    core.claim_log(handle).unwrap();
    core.close_handle(handle);
    let fault = core.claim_log(handle).unwrap_err().into_fault();
    assert!(matches!(fault, Fault::Stale), "{fault:?}");
}

/// It would take the end of that log with it. A claim that was refused leaves nothing.
#[test]
fn nobody_claims_what_gets_shorter() {
    const HALF: u64 = LOG_BYTES / 2;
    let mut refused = 0;
    for turns in 0..12 {
        let (mut core, handle) = with_segment();
        let half = ResizeOptions::to_size(HALF);
        let id = core.begin_resize(ME, ME.uid, "log", &half).unwrap();
        for _ in 0..turns {
            core.turn(Wait::one()).unwrap();
        }
        let claimed = core.claim_log(handle);
        refused += u32::from(claimed.as_ref().is_err_and(|error| error.code() == "EBUSY"));
        let resized = loop {
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
            core.turn(Wait::one()).unwrap();
        };
        match (claimed, resized) {
            (Ok(claim), Ok(_)) => assert_eq!(claim.size_bytes, HALF, "after {turns} turns"),
            (Ok(_), Err(error)) => assert!(matches!(error.fault, Fault::HasLog), "{error}"),
            (Err(_), resized) => {
                resized.unwrap();
                assert_eq!(core.claim_log(handle).unwrap().size_bytes, HALF);
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_log_takes_no_more_of_an_arena_than_it_may() {
    const SIZE: u64 = 16 << 20;
    const ARENA: usize = 16 << 20;
    let taken = |most: Option<usize>| {
        let arena = Arena::new(ARENA).unwrap();
        let salt = Salt([2; 16]);
        let mut part = LogPart::create(&arena, SIZE, [1; 16], salt, &LogOptions::default()).unwrap();
        most.inspect(|most| part.take_at_most(*most).unwrap());
        let mut rig = Rig::of(arena.clone(), Device::new(SIZE), part).unwrap();
        let taken = ARENA - arena.free_bytes();
        let records: Vec<Vec<u8>> = (0..20).map(|number| vec![number; 100_000]).collect();
        records.iter().for_each(|record| _ = rig.write(record));
        assert_eq!(rig.payloads(), records);
        taken
    };
    let slack = 64 << 10;
    assert!(taken(None) >= 4 << 20);
    for most in [2 << 20, 1 << 20, 256 << 10] {
        let taken = taken(Some(most));
        assert!(taken <= most + slack && taken > most / 4, "{taken} of {most}");
    }
}

/// It would be changed in place, and written over that log by the cache.
#[test]
fn no_page_is_pinned_where_somebody_has_a_claim() {
    let (mut core, handle) = with_segment();
    core.use_cache(&CacheOptions::of_size(512 << 10)).unwrap();
    let claim = core.claim_log(handle).unwrap();
    for page in [0, 5] {
        assert!(has_log(core.pin_now(handle, page).map(|_| ())));
        assert!(has_log(core.pin_new_now(handle, page, 0).map(|_| ())));
        assert!(has_log(core.pin_there(handle, page).map(|_| ())));
    }
    core.close_handle(claim.handle);
    let pin = core.pin_now(handle, 5).unwrap();
    core.unpin(pin);
    core.close().unwrap();
}
