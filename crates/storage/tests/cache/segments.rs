//! The promise: a segment can be cached like a file, and whatever happens to it meanwhile (it is moved, renamed, resized,
//! deleted, its handles are closed), its bytes are in one order, and nothing of a segment that has gone is seen or written.

use std::time::Duration;

use baio_engine::Wait;
use baio_engine::sim::{Fault as Injected, Faults, Trigger};
use baio_storage::{Access, Core, Fault, Mode, ResizeOptions, SegmentOp, SegmentRequest};

use crate::harness::through_cache::{
    B, begin_durable, begin_read, begin_write, code, end, get, got, open_cached, put, quiet, request, slow_disk, sync,
};
use crate::harness::{self, BLOCK, ME, Random, create, open_write, simulated_disk, start};

const PAGES: usize = 32;

/// A volume on a slow disk with a segment of 64 blocks, half of which the cache holds.
fn opened() -> (baio_engine::sim::Disk, Core, baio_storage::Handle) {
    let disk = slow_disk();
    let mut core = open_cached(&disk, PAGES);
    create(&mut core, "data", 64 * B);
    let handle = open_write(&mut core, "data");
    (disk, core, handle)
}

/// Takes all other blocks, so that whoever comes next gets those of a segment that goes.
fn fill_the_rest(core: &mut Core) {
    let free = core.volume_info().unwrap().free_bytes;
    create(core, "rest", free);
}

fn resize(core: &mut Core, blocks: u64) -> Result<(), baio_storage::Error> {
    core.resize(ME, ME.uid, "data", &ResizeOptions::to_size(blocks * B))
        .map(drop)
}

/// Where the segment's first byte lies on the device.
fn on_device(core: &mut Core) -> u64 {
    let info = core.volume_info().unwrap();
    let segments = core.list(ME).unwrap();
    let segment = segments.iter().find(|segment| segment.name == "data").unwrap();
    info.data_at_bytes + segment.start_block * B
}

#[test]
fn what_is_written_through_the_cache_is_read_through_it_and_beside_it() {
    let (_, mut core, handle) = opened();
    put(&mut core, handle, 1, &[7; 5000], Mode::Cached);
    let seen = get(&mut core, handle, 0, 4, Mode::Cached);
    assert!(seen[..BLOCK] == [0; BLOCK] && seen[BLOCK..BLOCK + 5000] == [7; 5000]);
    assert_eq!(get(&mut core, handle, 0, 4, Mode::Direct), seen);
    put(&mut core, handle, 1, &[9; BLOCK], Mode::Direct);
    assert_eq!(get(&mut core, handle, 1, 1, Mode::Cached), [9; BLOCK]);
    let (reader, _) = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
    put(&mut core, handle, 1, &[4; 3], Mode::Cached);
    assert_eq!(get(&mut core, reader, 1, 1, Mode::Cached)[..4], [4, 4, 4, 9]);
    let refused = begin_write(&mut core, reader, 0, &[1], Mode::Cached);
    assert_eq!(code(&mut core, refused), "EBADF");
    // Its end is the end: reads stop there, writes do not begin.
    assert_eq!(get(&mut core, handle, 63, 4, Mode::Cached).len(), BLOCK);
    assert_eq!(get(&mut core, handle, 64, 1, Mode::Cached).len(), 0);
    let beyond = begin_write(&mut core, handle, 63, &[1; 2 * BLOCK], Mode::Cached);
    assert_eq!(code(&mut core, beyond), "ENOSPC");
    assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
}

#[test]
fn a_close_writes_back_and_a_power_cut_takes_what_was_not_synced() {
    let (disk, mut core, handle) = opened();
    let durable = begin_durable(&mut core, handle, 0, &[1; BLOCK]);
    end(&mut core, durable).result.unwrap();
    put(&mut core, handle, 1, &[2; BLOCK], Mode::Cached);
    sync(&mut core, handle).unwrap();
    put(&mut core, handle, 2, &[3; BLOCK], Mode::Cached);
    let at = on_device(&mut core);
    let mut left = vec![0; 3 * BLOCK];
    disk.power_cut(1).read(at, &mut left);
    assert!(left[..BLOCK] == [1; BLOCK] && left[BLOCK..2 * BLOCK] == [2; BLOCK] && left[2 * BLOCK..] == [0; BLOCK]);
    core.close().unwrap();
    disk.power_cut(1).read(at, &mut left);
    assert_eq!(left[2 * BLOCK..], [3; BLOCK]);
    let mut core = open_cached(&disk, PAGES);
    let handle = open_write(&mut core, "data");
    assert_eq!(get(&mut core, handle, 2, 1, Mode::Cached), [3; BLOCK]);
}

#[test]
fn dirty_pages_outlive_the_handle_that_wrote_them_and_the_name() {
    let (_, mut core, handle) = opened();
    put(&mut core, handle, 3, &[5; BLOCK], Mode::Cached);
    core.close_handle(handle);
    assert_eq!(core.cache_stats().unwrap().frames_dirty, 1);
    core.rename(ME, ME.uid, "data", "other").unwrap();
    let handle = open_write(&mut core, "other");
    assert_eq!(core.cache_stats().unwrap().writes, 0);
    assert_eq!(get(&mut core, handle, 3, 1, Mode::Cached), [5; BLOCK]);
    // The name is free, and who takes it gets nothing of them.
    create(&mut core, "data", 64 * B);
    let new = open_write(&mut core, "data");
    assert_eq!(get(&mut core, new, 3, 1, Mode::Cached), [0; BLOCK]);
    put(&mut core, new, 3, &[6; BLOCK], Mode::Cached);
    assert_eq!(get(&mut core, handle, 3, 1, Mode::Direct), [5; BLOCK]);
    assert_eq!(get(&mut core, new, 3, 1, Mode::Direct), [6; BLOCK]);
}

#[test]
fn a_deleted_segment_takes_its_dirty_pages_with_it() {
    let (disk, mut core, handle) = opened();
    let at = on_device(&mut core);
    fill_the_rest(&mut core);
    for block in 0..4 {
        put(&mut core, handle, block, &[5; BLOCK], Mode::Cached);
    }
    disk.record();
    core.delete(ME, ME.uid, "data").unwrap();
    let stats = core.cache_stats().unwrap();
    assert_eq!(
        (stats.writes, stats.frames_dirty, stats.frames_clean),
        (0, 0, 0),
        "{stats:?}"
    );
    // The same name, the same blocks, the same place in the table.
    create(&mut core, "data", 64 * B);
    assert_eq!(on_device(&mut core), at);
    let new = open_write(&mut core, "data");
    for mode in [Mode::Cached, Mode::Direct] {
        assert_eq!(get(&mut core, new, 0, 8, mode), vec![0; 8 * BLOCK]);
    }
    let stale = begin_read(&mut core, handle, 0, 1, Mode::Cached);
    assert_eq!(code(&mut core, stale), "ESTALE");
    put(&mut core, new, 0, &[6; BLOCK], Mode::Cached);
    core.close().unwrap();
    let mut left = vec![0; 2 * BLOCK];
    disk.read(at, &mut left);
    assert!(left[..BLOCK] == [6; BLOCK] && left[BLOCK..] == [0; BLOCK]);
}

/// Reads, writes, durable writes, syncs and direct requests, most of them waiting in the cache, at every moment of a delete.
#[test]
fn a_delete_ends_what_waits_in_the_cache_and_waits_for_what_the_device_has() {
    for seed in 0..60 {
        let (disk, mut core, handle) = opened();
        let at = on_device(&mut core);
        fill_the_rest(&mut core);
        let mut random = Random(seed);
        let mut tickets = Vec::new();
        for _ in 0..40 {
            let block = random.below(60);
            let mode = [Mode::Cached, Mode::Cached, Mode::Direct][random.below(3) as usize];
            tickets.push(match random.below(5) {
                0 => begin_read(&mut core, handle, block, 4, mode),
                1 => begin_write(&mut core, handle, block, &[5; 3 * BLOCK], mode),
                2 => begin_durable(&mut core, handle, block, &[6; 2 * BLOCK]),
                3 => begin_write(&mut core, handle, block, &[7; 100], Mode::Cached),
                _ => start(&mut core, harness::sync_request(handle)),
            });
            if random.below(4) == 0 {
                core.turn(Wait::No).unwrap();
            }
        }
        let id = core.begin_delete(ME, ME.uid, "data").unwrap();
        let mut cancelled = None;
        if random.below(2) == 0 {
            for _ in 0..random.below(4) {
                core.turn(Wait::No).unwrap();
            }
            cancelled = Some(tickets[random.below(40) as usize]);
            core.cancel(cancelled.unwrap());
        }
        loop {
            if let Some(answer) = core.take_answer(&id) {
                answer.unwrap();
                break;
            }
            core.turn(Wait::one()).unwrap();
        }
        // It has waited for the device: nothing may land any more.
        disk.record();
        let mut stale = 0;
        for ticket in tickets {
            if let Err(error) = end(&mut core, ticket).result {
                let told = matches!(error.fault, Fault::Stale);
                assert!(told || cancelled == Some(ticket), "seed {seed}: {error}");
                stale += usize::from(told);
            }
        }
        assert!(stale > 0 || seed > 0, "some of them waited");
        quiet(&mut core);
        let stats = core.cache_stats().unwrap();
        assert_eq!(stats.frames_free, stats.frames, "seed {seed}: {stats:?}");
        assert_eq!(stats.spurious_wakeups, 0);
        assert_eq!(disk.take_record().len(), 0, "seed {seed}");
        create(&mut core, "data", 64 * B);
        assert_eq!(on_device(&mut core), at);
        let new = open_write(&mut core, "data");
        assert_eq!(
            get(&mut core, new, 0, 64, Mode::Cached),
            vec![0; 64 * BLOCK],
            "seed {seed}"
        );
        core.close().unwrap();
    }
}

#[test]
fn a_delete_that_fails_leaves_a_segment_with_all_its_pages() {
    let (disk, mut core, handle) = opened();
    put(&mut core, handle, 3, &[5; BLOCK], Mode::Cached);
    // Neither the table nor its mirror can be read.
    let data = core.volume_info().unwrap().data_at_bytes;
    disk.set_faults(Faults::none().when(Trigger::always(Injected::ReadError).within(0..data)));
    let waits = begin_durable(&mut core, handle, 4, &[6; BLOCK]);
    core.delete(ME, ME.uid, "data").unwrap_err();
    disk.set_faults(Faults::none());
    drop(end(&mut core, waits));
    assert_eq!(get(&mut core, handle, 3, 1, Mode::Cached), [5; BLOCK]);
    sync(&mut core, handle).unwrap();
    assert_eq!(get(&mut core, handle, 3, 1, Mode::Direct), [5; BLOCK]);
    core.close().unwrap();
}

#[test]
fn a_segment_that_grows_keeps_what_is_cached_of_it() {
    let (_, mut core, handle) = opened();
    put(&mut core, handle, 63, &[5; BLOCK], Mode::Cached);
    let beyond = begin_write(&mut core, handle, 64, &[6; BLOCK], Mode::Cached);
    assert_eq!(code(&mut core, beyond), "ENOSPC");
    resize(&mut core, 80).unwrap();
    let stats = core.cache_stats().unwrap();
    assert_eq!((stats.frames_dirty, stats.writes), (1, 0));
    assert_eq!(get(&mut core, handle, 64, 16, Mode::Cached), vec![0; 16 * BLOCK]);
    put(&mut core, handle, 79, &[6; BLOCK], Mode::Cached);
    // Its neighbour makes it move to grow on.
    create(&mut core, "neighbour", 4 * B);
    let at = on_device(&mut core);
    resize(&mut core, 300).unwrap();
    assert_ne!(on_device(&mut core), at);
    put(&mut core, handle, 299, &[7; BLOCK], Mode::Cached);
    sync(&mut core, handle).unwrap();
    for mode in [Mode::Cached, Mode::Direct] {
        for (block, byte) in [(63, 5), (64, 0), (79, 6), (299, 7)] {
            assert_eq!(get(&mut core, handle, block, 1, mode), [byte; BLOCK], "{block}");
        }
    }
}

#[test]
fn what_is_cut_off_is_gone_and_who_waits_there_is_told() {
    for seed in 0..40 {
        let (_, mut core, handle) = opened();
        let mut random = Random(seed);
        for block in 0..64 {
            put(&mut core, handle, block, &[1; BLOCK], Mode::Cached);
        }
        let options = ResizeOptions::to_size(20 * B);
        let before: Vec<_> = (0..random.below(6))
            .map(|_| begin_write(&mut core, handle, 10 + random.below(40), &[2; 3 * BLOCK], Mode::Cached))
            .collect();
        let id = core.begin_resize(ME, ME.uid, "data", &options).unwrap();
        let mut late = Vec::new();
        let answer = loop {
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
            core.turn(if random.below(2) == 0 { Wait::one() } else { Wait::No })
                .unwrap();
            if late.len() < 20 {
                let block = random.below(60);
                late.push(match random.below(4) {
                    0 => (true, block, 4, begin_read(&mut core, handle, block, 4, Mode::Cached)),
                    1 => (
                        false,
                        block,
                        2,
                        begin_durable(&mut core, handle, block, &[3; 2 * BLOCK]),
                    ),
                    2 => (
                        false,
                        block,
                        4,
                        begin_write(&mut core, handle, block, &[3; 4 * BLOCK], Mode::Cached),
                    ),
                    _ => (
                        false,
                        block,
                        2,
                        begin_write(&mut core, handle, block, &[3; 2 * BLOCK], Mode::Direct),
                    ),
                });
                if random.below(8) == 0 {
                    core.cancel(late[late.len() - 1].3);
                }
            }
        };
        answer.unwrap();
        for (reads, block, blocks, ticket) in late {
            let outcome = end(&mut core, ticket);
            match outcome.result {
                Err(error) if error.code() == "ECANCELED" => {}
                Ok(bytes) if reads => {
                    let all = blocks * B;
                    let cut = (20 * B).saturating_sub(block * B).min(all);
                    // What it had copied before stays copied.
                    assert!((cut..=all).contains(&u64::from(bytes)), "seed {seed}");
                }
                // It came before the resize had begun to wait.
                Ok(_) => {}
                Err(error) => {
                    assert!(!reads && block + blocks > 20, "seed {seed}: {error} at {block}");
                    assert!(matches!(error.fault, Fault::Beyond { .. }), "seed {seed}: {error}");
                }
            }
        }
        for ticket in before {
            end(&mut core, ticket).result.unwrap();
        }
        sync(&mut core, handle).unwrap();
        assert_eq!(get(&mut core, handle, 19, 4, Mode::Cached).len(), BLOCK);
        // Grown again, it shows zeroes there, in the cache and beside it.
        resize(&mut core, 64).unwrap();
        for mode in [Mode::Cached, Mode::Direct] {
            assert_eq!(get(&mut core, handle, 20, 44, mode), vec![0; 44 * BLOCK], "seed {seed}");
        }
        assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0, "seed {seed}");
        core.close().unwrap();
    }
}

/// What is to be cut off is made safe first: so it is all still there when nothing comes of it.
#[test]
fn a_shrink_that_fails_has_lost_nothing() {
    let (disk, mut core, handle) = opened();
    for block in 40..50 {
        put(&mut core, handle, block, &[block as u8; BLOCK], Mode::Cached);
    }
    let at = on_device(&mut core);
    let bad = Trigger::always(Injected::WriteError).within(at + 45 * B..at + 46 * B);
    disk.set_faults(Faults::none().when(bad));
    assert_eq!(resize(&mut core, 20).unwrap_err().code(), "EIO");
    assert_eq!(core.size(handle).unwrap(), 64 * B);
    let holds = |core: &mut Core, mode| (40..50).all(|block| get(core, handle, block, 1, mode) == [block as u8; BLOCK]);
    assert!(holds(&mut core, Mode::Cached));
    disk.set_faults(Faults::none());
    sync(&mut core, handle).unwrap();
    assert!(holds(&mut core, Mode::Direct));
    resize(&mut core, 20).unwrap();
    core.close().unwrap();
}

#[test]
fn a_segment_is_moved_and_packed_under_cached_traffic() {
    let (_, mut core, handle) = opened();
    create(&mut core, "hole", 100 * B);
    let mut random = Random(8);
    let mut expected = [0_u8; 64];
    for round in 0..8 {
        let id = (round % 2 == 0).then(|| {
            let to = if round % 4 == 0 { Some(1000) } else { None };
            core.begin_move(ME, ME.uid, "data", to).unwrap()
        });
        let mut tickets = Vec::new();
        for nth in 0..60_u64 {
            let block = (nth * 7 + round) % 64;
            let byte = random.bits() as u8;
            expected[block as usize] = byte;
            tickets.push(match nth % 5 {
                0 => begin_write(&mut core, handle, block, &[byte; BLOCK], Mode::Direct),
                1 | 2 => begin_durable(&mut core, handle, block, &[byte; BLOCK]),
                _ => begin_write(&mut core, handle, block, &[byte; BLOCK], Mode::Cached),
            });
            core.turn(Wait::No).unwrap();
            if tickets.len() == 20 {
                for ticket in tickets.drain(..) {
                    end(&mut core, ticket).result.unwrap();
                }
                let back = begin_read(&mut core, handle, 0, 64, Mode::Cached);
                let seen = got(end(&mut core, back));
                assert!((0..64).all(|block| seen[block * BLOCK..][..BLOCK] == [expected[block]; BLOCK]));
            }
        }
        if let Some(id) = id {
            while core.take_answer(&id).map(|answer| answer.unwrap()).is_none() {
                core.turn(Wait::one()).unwrap();
            }
        } else {
            core.defrag(ME, &mut |_| {}).unwrap();
        }
        sync(&mut core, handle).unwrap();
        let seen = get(&mut core, handle, 0, 64, Mode::Direct);
        assert!((0..64).all(|block| seen[block * BLOCK..][..BLOCK] == [expected[block]; BLOCK]));
    }
    assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
    core.close().unwrap();
}

/// Below its mark it lies in one place, above in another; the cache's I/Os know nothing of that.
#[test]
fn a_segment_whose_move_has_stopped_is_cached_across_its_mark() {
    let disk = simulated_disk(&baio_storage::FormatOptions::of_size(16 << 20));
    let mut core = open_cached(&disk, 200);
    create(&mut core, "data", 600 * B);
    let handle = open_write(&mut core, "data");
    let bad = on_device(&mut core) + 300 * B;
    disk.set_faults(Faults::none().when(Trigger::always(Injected::ReadError).within(bad..bad + B)));
    core.move_segment(ME, ME.uid, "data", Some(1500)).unwrap_err();
    let across = begin_read(&mut core, handle, 0, 300, Mode::Direct);
    let mark = match end(&mut core, across).result.unwrap_err().into_fault() {
        Fault::MoveStopped { mark } => mark / B,
        fault => panic!("{fault}"),
    };
    disk.set_faults(Faults::none());
    // Nothing of it is cached: one read, which has to be made two.
    assert_eq!(get(&mut core, handle, mark - 3, 6, Mode::Cached), [0; 6 * BLOCK]);
    let stats = core.cache_stats().unwrap();
    assert_eq!((stats.fills, stats.failed_fills), (1, 0), "{stats:?}");
    let bytes: Vec<u8> = (0..40 * BLOCK).map(|at| (at / BLOCK) as u8 + 1).collect();
    put(&mut core, handle, mark - 20, &bytes, Mode::Cached);
    sync(&mut core, handle).unwrap();
    // What is read again comes from the device, in one request of the caller's.
    let all = get(&mut core, handle, mark - 100, 200, Mode::Cached);
    assert_eq!(all[80 * BLOCK..120 * BLOCK], bytes);
    let durable = begin_durable(&mut core, handle, mark - 3, &[9; 6 * BLOCK]);
    end(&mut core, durable).result.unwrap();
    for (block, byte) in [(mark - 4, 17), (mark - 3, 9), (mark - 1, 9), (mark, 9), (mark + 3, 24)] {
        assert_eq!(get(&mut core, handle, block, 1, Mode::Direct), [byte; BLOCK]);
    }
    core.move_segment(ME, ME.uid, "data", None).unwrap();
    assert_eq!(get(&mut core, handle, mark - 3, 6, Mode::Direct), [9; 6 * BLOCK]);
    core.close().unwrap();
}

/// A write across the mark waits for the chunk in copy behind it. Nobody copies that any more when the move stops there.
#[test]
fn what_waits_for_a_chunk_goes_on_when_the_move_stops_at_it() {
    for turns in 0..8 {
        let disk = slow_disk();
        let mut core = open_cached(&disk, PAGES);
        create(&mut core, "data", 200 * B);
        let handle = open_write(&mut core, "data");
        // In the second chunk: one has 64 blocks here.
        let bad = on_device(&mut core) + 100 * B;
        disk.set_faults(Faults::none().when(Trigger::always(Injected::ReadError).within(bad..bad + B)));
        let id = core.begin_move(ME, ME.uid, "data", Some(1000)).unwrap();
        for _ in 0..turns {
            core.turn(Wait::one()).unwrap();
        }
        let across = begin_durable(&mut core, handle, 61, &[9; 6 * BLOCK]);
        let answer = loop {
            match core.take_answer(&id) {
                Some(answer) => break answer,
                None => core.turn(Wait::one()).unwrap(),
            };
        };
        assert_eq!(answer.unwrap_err().code(), "EIO");
        end(&mut core, across).result.unwrap();
        for block in [61, 64] {
            assert_eq!(
                get(&mut core, handle, block, 3, Mode::Direct),
                [9; 3 * BLOCK],
                "{turns}"
            );
        }
        core.close().unwrap();
    }
}

/// What a handle was found to mean is found out anew when anything is cached or forgotten, whatever it is.
#[test]
fn a_handle_that_was_used_before_its_segment_was_cached_sees_what_is_cached() {
    let (_, mut core, handle) = opened();
    create(&mut core, "other", 4 * B);
    let other = open_write(&mut core, "other");
    let (reader, _) = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
    put(&mut core, other, 0, &[1; BLOCK], Mode::Cached);
    assert_eq!(get(&mut core, reader, 3, 1, Mode::Direct), [0; BLOCK]);
    put(&mut core, handle, 3, &[5; BLOCK], Mode::Cached);
    core.delete(ME, ME.uid, "other").unwrap();
    assert_eq!(get(&mut core, reader, 3, 1, Mode::Direct), [5; BLOCK]);
}

#[test]
fn a_failed_write_is_told_by_the_next_sync_and_the_one_after_it_makes_it_good() {
    let (disk, mut core, handle) = opened();
    let at = on_device(&mut core);
    let (reader, _) = core.open_segment(ME, ME.uid, "data", Access::Read).unwrap();
    put(&mut core, handle, 5, &[5; BLOCK], Mode::Cached);
    disk.set_faults(Faults::none().when(Trigger::nth(Injected::WriteError, 1).within(at..at + 64 * B)));
    assert_eq!(sync(&mut core, reader).unwrap_err().code(), "EIO");
    let mut left = vec![1; BLOCK];
    disk.power_cut(3).read(at + 5 * B, &mut left);
    assert_eq!(left, [0; BLOCK]);
    assert_eq!(get(&mut core, reader, 5, 1, Mode::Cached), [5; BLOCK]);
    sync(&mut core, reader).unwrap();
    disk.power_cut(3).read(at + 5 * B, &mut left);
    assert_eq!(left, [5; BLOCK]);
    core.close().unwrap();
}

/// The memory of a cached request is only ever copied from or to by the cache: it comes back with the answer.
#[test]
fn a_deadline_ends_a_cached_request_and_one_that_waits_for_the_cache() {
    let (_, mut core, handle) = opened();
    let free = core.engine().arena().free_bytes();
    let with_deadline = |core: &Core, op, mode, after: Duration| {
        let asked = request(core, handle, op, &[5; BLOCK], mode);
        SegmentRequest {
            deadline: Some(core.engine().now().after(after)),
            durability: baio_engine::Durability::Data,
            ..asked
        }
    };
    let short = Duration::from_micros(1);
    for op in [SegmentOp::Read { offset: 8 * B }, SegmentOp::Write { offset: 9 * B }] {
        let asked = with_deadline(&core, op, Mode::Cached, short);
        let ticket = start(&mut core, asked);
        let outcome = end(&mut core, ticket);
        assert_eq!(outcome.result.unwrap_err().code(), "EINDETERMINATE");
        assert_eq!(outcome.memory.len(), BLOCK);
    }
    // It waits until the cache has made block 20 safe, and has not begun.
    let first = begin_durable(&mut core, handle, 20, &[1; BLOCK]);
    let asked = with_deadline(&core, SegmentOp::Write { offset: 20 * B }, Mode::Direct, short);
    let ticket = start(&mut core, asked);
    let outcome = end(&mut core, ticket);
    assert_eq!(outcome.result.unwrap_err().code(), "ECANCELED");
    assert_eq!(outcome.memory.len(), BLOCK);
    drop(outcome.memory);
    end(&mut core, first).result.unwrap();
    assert_eq!(get(&mut core, handle, 20, 1, Mode::Cached), [1; BLOCK]);
    // And a long one does nothing to a request that ends before it.
    let asked = with_deadline(
        &core,
        SegmentOp::Write { offset: 9 * B },
        Mode::Cached,
        Duration::from_secs(9),
    );
    let ticket = start(&mut core, asked);
    end(&mut core, ticket).result.unwrap();
    quiet(&mut core);
    assert!(
        core.engine().now().0 < Duration::from_secs(5).as_nanos() as u64,
        "nobody sleeps for it"
    );
    assert_eq!(core.engine().arena().free_bytes(), free);
    core.close().unwrap();
}
