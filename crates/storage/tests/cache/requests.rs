//! The promise: requests through the page cache and beside it, on one file, are one order of bytes. What a cached write has
//! acknowledged is read by everybody who goes through the core; what a durable one or a sync has acknowledged holds over a
//! power cut; and nothing that the cache waits for can be kept from it by those who wait for the cache.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use baio_engine::sim::{Disk, Flash, Profile};
use baio_engine::{Durability, File, Open, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::{Access, Core, Fault, FormatOptions, Handle, Mode, SegmentOp, SegmentRequest};

use crate::harness::{self, BLOCK, Random, create, open_simulated, open_write, run, simulated_disk, start};

const PAGES: usize = 64;
const SIZE: usize = PAGES * BLOCK;

fn small_cache() -> CacheOptions {
    CacheOptions::of_size(16 * BLOCK)
}

fn file_of(dir: &Path, bytes: usize) -> std::path::PathBuf {
    let path = dir.join("file");
    std::fs::write(&path, vec![0; bytes]).unwrap();
    path
}

/// A core with a cache and a handle on a file.
fn opened(path: &Path) -> (Core, Handle) {
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&small_cache()).unwrap();
    let handle = core.open_file(path, &Open::write()).unwrap();
    (core, handle)
}

/// The same on a simulated disk, beside a volume that nobody uses.
fn simulated(disk: &Disk) -> (Core, Handle) {
    let volume = simulated_disk(&FormatOptions::of_size(1 << 20));
    let mut core = open_simulated(&volume);
    core.use_cache(&small_cache()).unwrap();
    let handle = core.add_file(File::simulated(disk, "disk"), Access::Write);
    (core, handle)
}

fn request(core: &Core, handle: Handle, op: SegmentOp, bytes: &[u8], mode: Mode) -> SegmentRequest {
    let mut buffer = core.buffer(bytes.len().max(1)).unwrap();
    buffer[..bytes.len()].copy_from_slice(bytes);
    SegmentRequest {
        mode,
        ..SegmentRequest::new(handle, op, buffer)
    }
}

fn write(core: &mut Core, handle: Handle, offset: u64, bytes: &[u8], mode: Mode) {
    let request = request(core, handle, SegmentOp::Write { offset }, bytes, mode);
    assert_eq!(run(core, request).result.unwrap() as usize, bytes.len());
}

fn read(core: &mut Core, handle: Handle, offset: u64, len: usize, mode: Mode) -> Vec<u8> {
    let request = request(core, handle, SegmentOp::Read { offset }, &vec![0xee; len], mode);
    let outcome = run(core, request);
    let len = outcome.result.unwrap() as usize;
    outcome.memory.into_buffer().unwrap()[..len].to_vec()
}

fn sync(core: &mut Core, handle: Handle) {
    run(core, harness::sync_request(handle)).result.unwrap();
}

#[test]
fn what_is_written_through_the_cache_is_read_through_it_and_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path(), SIZE);
    let (mut core, handle) = opened(&path);
    write(&mut core, handle, 100, &[7; 5000], Mode::Cached);
    let seen = read(&mut core, handle, 0, 2 * BLOCK, Mode::Cached);
    assert!(seen[..100].iter().all(|byte| *byte == 0) && seen[100..5100] == [7; 5000]);
    assert_eq!(read(&mut core, handle, 0, 2 * BLOCK, Mode::Direct), seen);
    // And the other way round, over pages that are cached.
    write(&mut core, handle, 0, &[9; BLOCK], Mode::Direct);
    assert_eq!(read(&mut core, handle, 0, BLOCK, Mode::Cached), [9; BLOCK]);
    // A second handle on the file is the same file.
    let other = core.open_file(&path, &Open::read()).unwrap();
    assert_eq!(read(&mut core, other, BLOCK as u64, BLOCK, Mode::Cached), seen[BLOCK..]);
    write(&mut core, handle, 0, &[4; 3], Mode::Cached);
    assert_eq!(read(&mut core, other, 0, 4, Mode::Cached), [4, 4, 4, 9]);
    // The end of the file is the end.
    assert_eq!(read(&mut core, handle, (SIZE - 10) as u64, 100, Mode::Cached), [0; 10]);
    core.close().unwrap();
    let kept = std::fs::read(&path).unwrap();
    assert_eq!(kept[..4], [4, 4, 4, 9], "a close writes back");
}

#[test]
fn a_handle_that_reads_first_does_not_keep_others_from_writing() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path(), SIZE);
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&small_cache()).unwrap();
    let reader = core.open_file(&path, &Open::read()).unwrap();
    assert_eq!(read(&mut core, reader, 0, 10, Mode::Cached), [0; 10]);
    let writer = core.open_file(&path, &Open::write()).unwrap();
    write(&mut core, writer, 5, &[1; 5], Mode::Cached);
    let refused = request(&core, reader, SegmentOp::Write { offset: 0 }, &[1], Mode::Cached);
    assert_eq!(run(&mut core, refused).result.unwrap_err().code(), "EBADF");
    sync(&mut core, reader);
    let mut kept = [0; 10];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut kept, 0).unwrap();
    assert_eq!(kept, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn a_durable_write_and_a_sync_hold_over_a_power_cut_and_a_plain_write_need_not() {
    let disk = Disk::new(SIZE as u64);
    let (mut core, handle) = simulated(&disk);
    let durable = SegmentRequest {
        durability: Durability::Data,
        ..request(&core, handle, SegmentOp::Write { offset: 0 }, &[1; BLOCK], Mode::Cached)
    };
    run(&mut core, durable).result.unwrap();
    write(&mut core, handle, BLOCK as u64, &[2; BLOCK], Mode::Cached);
    sync(&mut core, handle);
    write(&mut core, handle, 2 * BLOCK as u64, &[3; BLOCK], Mode::Cached);
    let mut left = vec![0; 3 * BLOCK];
    disk.power_cut(1).read(0, &mut left);
    assert!(left[..BLOCK] == [1; BLOCK] && left[BLOCK..2 * BLOCK] == [2; BLOCK]);
    assert!(
        left[2 * BLOCK..] == [0; BLOCK],
        "a plain write had no reason to reach the disk yet"
    );
    let stats = core.cache_stats().unwrap();
    assert_eq!((stats.writes, stats.spurious_wakeups), (2, 0), "{stats:?}");
}

/// Time passes, and nobody asks for anything.
fn run_for(core: &mut Core, time: Duration) {
    let until = core.engine().now().after(time);
    while core.engine().now() < until {
        core.turn(Wait::Until {
            count: 0,
            min_wait: Duration::ZERO,
            deadline: Some(until),
        })
        .unwrap();
    }
}

/// A core that has run for long before its first change took that for an old one: the cleaner wrote the first batch of every run, and
/// what was written over again and again reached the device twice.
#[test]
fn a_first_change_is_not_an_old_one_however_long_the_core_has_run() {
    let disk = Disk::new(SIZE as u64);
    let (mut core, handle) = simulated(&disk);
    let age = CacheOptions::default().age_max;
    run_for(&mut core, age * 3);
    // Twice: the second first change comes after a sync has left nothing changed.
    for pass in 1..=2 {
        for byte in 0..3 {
            for page in 0..4 {
                write(&mut core, handle, page * BLOCK as u64, &[byte; BLOCK], Mode::Cached);
                core.turn(Wait::No).unwrap();
            }
        }
        sync(&mut core, handle);
        let stats = core.cache_stats().unwrap();
        assert_eq!((stats.pages_written, stats.cleaner_writes), (4 * pass, 0), "{stats:?}");
        run_for(&mut core, age * 3);
    }
}

#[test]
fn what_cannot_be_cached_is_refused_with_what_was_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = file_of(dir.path(), SIZE);
    let mut core = Core::new(&harness::config()).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    let cached = |core: &Core, handle| request(core, handle, SegmentOp::Read { offset: 0 }, &[0; 16], Mode::Cached);
    let asked = cached(&core, handle);
    let error = run(&mut core, asked).result.unwrap_err();
    assert!(
        matches!(error.fault, Fault::NoCache) && error.cure().unwrap().contains("with_cache"),
        "{error}"
    );
    let too_large = CacheOptions::of_size(1 << 40);
    assert_eq!(core.use_cache(&too_large).unwrap_err().code(), "ENOBUFS");
    core.use_cache(&small_cache()).unwrap();
    assert_eq!(core.use_cache(&small_cache()).unwrap_err().code(), "EEXIST");

    // A disk ends where it ends; files grow (`requests/files_of_any_size.rs`).
    let (mut core, disk) = simulated(&Disk::new(SIZE as u64));
    let offset = SIZE as u64 - 1;
    let beyond = request(&core, disk, SegmentOp::Write { offset }, &[1; 2], Mode::Cached);
    assert_eq!(run(&mut core, beyond).result.unwrap_err().code(), "ENOSPC");

    let (end, _other) = std::io::pipe().unwrap();
    let pipe = File::from_fd(end.into(), "a pipe").unwrap();
    let pipe = core.add_file(pipe, Access::Write);
    let asked = cached(&core, pipe);
    let error = run(&mut core, asked).result.unwrap_err();
    assert!(error.to_string().contains("regular files and disks"), "{error}");
}

/// Requests that have nothing to do with the cache use the entries that its I/O has used before them.
#[test]
fn what_is_not_cached_is_untouched_beside_it() {
    let disk = Disk::new(SIZE as u64);
    let (mut core, handle) = simulated(&disk);
    create(&mut core, "data", SIZE as u64);
    let segment = open_write(&mut core, "data");
    let other = core.add_file(File::simulated(&Disk::new(SIZE as u64), "other"), Access::Write);
    let mut random = Random(11);
    for round in 0..40_u8 {
        let mut tickets = Vec::new();
        for nth in 0..30 {
            let offset = nth * BLOCK as u64;
            for (target, mode) in [(handle, Mode::Cached), (segment, Mode::Direct), (other, Mode::Direct)] {
                if random.below(2) == 0 {
                    let asked = request(&core, target, SegmentOp::Write { offset }, &[round; BLOCK], mode);
                    tickets.push((start(&mut core, asked), target, offset, mode));
                }
            }
        }
        for (ticket, target, offset, mode) in tickets {
            let outcome = core.wait(ticket).unwrap().expect("nobody else has taken it");
            assert_eq!(outcome.result.unwrap() as usize, BLOCK);
            assert_eq!(read(&mut core, target, offset, BLOCK, mode), [round; BLOCK]);
        }
    }
}

/// As many callers as there are entries wait for the cache, which has fewer frames and no dirty page to spare.
#[test]
fn a_table_full_of_callers_does_not_stop_the_cache() {
    let disk = Disk::new(SIZE as u64);
    disk.set_profile(Profile::Flash(Flash::default()));
    let (mut core, handle) = simulated(&disk);
    let mut random = Random(3);
    for round in 0..50_u8 {
        let mut tickets = Vec::new();
        loop {
            let offset = random.below(PAGES as u64 - 1) * BLOCK as u64;
            let op = if random.below(3) == 0 {
                SegmentOp::Read { offset }
            } else {
                SegmentOp::Write { offset }
            };
            let mode = if random.below(4) == 0 {
                Mode::Direct
            } else {
                Mode::Cached
            };
            let asked = request(&core, handle, op, &[round; BLOCK], mode);
            match core.start(asked) {
                Ok(ticket) => tickets.push(ticket),
                Err(_) => break,
            }
        }
        assert!(tickets.len() >= 32, "{}", tickets.len());
        for ticket in tickets {
            core.wait(ticket).unwrap().unwrap().result.unwrap();
        }
    }
    assert_eq!(core.cache_stats().unwrap().spurious_wakeups, 0);
}

#[test]
fn what_is_cancelled_or_abandoned_gives_its_memory_back() {
    let disk = Disk::new(SIZE as u64);
    disk.set_profile(Profile::Flash(Flash::default()));
    let (mut core, handle) = simulated(&disk);
    let free = core.engine().arena().free_bytes();
    let mut random = Random(5);
    for nth in 0..400 {
        let offset = random.below(PAGES as u64) * BLOCK as u64;
        let op = match random.below(3) {
            0 => SegmentOp::Read { offset },
            1 => SegmentOp::Write { offset },
            _ => SegmentOp::Sync,
        };
        let mode = if random.below(2) == 0 {
            Mode::Direct
        } else {
            Mode::Cached
        };
        let asked = request(&core, handle, op, &[1; BLOCK], mode);
        let ticket = start(&mut core, asked);
        if nth % 2 == 0 {
            core.cancel(ticket);
            drop(core.wait(ticket).unwrap());
        } else {
            core.abandon(ticket);
        }
    }
    sync(&mut core, handle);
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(core.engine().arena().free_bytes(), free);
}

/// Cached, direct, durable requests and syncs, one after the other and many at a time on different pages, against an array.
#[test]
fn any_mix_agrees_with_an_array() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let disk = Disk::new(SIZE as u64);
        if random.below(2) == 0 {
            disk.set_profile(Profile::Flash(Flash::default()));
        }
        let (mut core, handle) = simulated(&disk);
        let mut expected = vec![0_u8; SIZE];
        let mut safe = vec![0_u8; SIZE];
        for _ in 0..60 {
            // Disjoint parts, so that the order of what is under way together does not matter.
            let parts = 1 + random.below(8) as usize;
            let part = SIZE / 8;
            let mut reads = Vec::new();
            let mut all = Vec::new();
            for nth in 0..parts {
                let whole = random.below(2) == 0;
                let (from, len) = if whole {
                    (random.below(4) as usize * BLOCK, BLOCK * (1 + random.below(4) as usize))
                } else {
                    (random.below(20_000) as usize, 1 + random.below(12_000) as usize)
                };
                let at = nth * part + from;
                let direct = whole && random.below(3) == 0;
                let mode = if direct { Mode::Direct } else { Mode::Cached };
                let offset = at as u64;
                if random.below(2) == 0 {
                    let ticket = {
                        let asked = request(&core, handle, SegmentOp::Read { offset }, &vec![0; len], mode);
                        start(&mut core, asked)
                    };
                    reads.push((ticket, at, len));
                } else {
                    let bytes = vec![random.bits() as u8; len];
                    let mut asked = request(&core, handle, SegmentOp::Write { offset }, &bytes, mode);
                    let durable = random.below(3) == 0;
                    if durable {
                        asked.durability = Durability::Data;
                        safe[at..at + len].copy_from_slice(&bytes);
                    }
                    expected[at..at + len].copy_from_slice(&bytes);
                    all.push(start(&mut core, asked));
                }
            }
            for (ticket, at, len) in reads {
                let outcome = core.wait(ticket).unwrap().unwrap();
                assert_eq!(outcome.result.unwrap() as usize, len);
                let bytes = outcome.memory.into_buffer().unwrap();
                assert!(
                    bytes[..len] == expected[at..at + len],
                    "seed {seed}: {len} bytes at {at}"
                );
            }
            for ticket in all {
                core.wait(ticket).unwrap().unwrap().result.unwrap();
            }
            if random.below(4) == 0 {
                sync(&mut core, handle);
                safe.copy_from_slice(&expected);
                let mut left = vec![0; SIZE];
                disk.power_cut(seed).read(0, &mut left);
                assert!(left == safe, "seed {seed}: after a sync");
            }
        }
        let stats = core.cache_stats().unwrap();
        assert_eq!(stats.spurious_wakeups, 0, "seed {seed}");
        core.close().unwrap();
        let mut left = vec![0; SIZE];
        disk.power_cut(seed).read(0, &mut left);
        assert!(left == expected, "seed {seed}: after a close");
    }
}
