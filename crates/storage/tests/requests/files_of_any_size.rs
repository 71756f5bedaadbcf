//! The promise: a plain file of any size is read and written in every mode, by several handles, while it grows and is cut: each read gives
//! the bytes of the last writes that had ended, up to the file's end and no further, whichever way they went.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baio_engine::{Caching, Descriptions, Durability, Errno, Memory, Open, Wait};
use baio_storage::{Core, Fault, Handle, Mode, SegmentOp, SegmentRequest, Ticket};

use crate::harness::through_cache::{self, B, cache_of, end, got};
use crate::harness::{self, BLOCK, Random, run, start};

const SIZES: [usize; 12] = [0, 1, 511, 512, 513, 4095, 4096, 4097, 5000, 12_388, 65_535, 300_001];

struct World {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn world(bytes: &[u8]) -> World {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    World { _dir: dir, path }
}

fn core_with(pages: usize) -> Core {
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&cache_of(pages)).unwrap();
    core
}

fn open(core: &mut Core, path: &Path) -> Handle {
    core.open_file(path, &Open::write()).unwrap()
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u64 * 7 + at as u64 / 251 + seed) as u8 | 1)
        .collect()
}

fn asked(core: &Core, handle: Handle, op: SegmentOp, bytes: &[u8], mode: Mode) -> SegmentRequest {
    SegmentRequest {
        mode,
        ..through_cache::request(core, handle, op, bytes, mode)
    }
}

fn begin_read(core: &mut Core, handle: Handle, offset: u64, len: usize, mode: Mode) -> Ticket {
    let request = asked(core, handle, SegmentOp::Read { offset }, &vec![0xee; len], mode);
    start(core, request)
}

fn read(core: &mut Core, handle: Handle, offset: u64, len: usize, mode: Mode) -> Vec<u8> {
    let ticket = begin_read(core, handle, offset, len, mode);
    got(end(core, ticket))
}

fn begin_write(core: &mut Core, handle: Handle, offset: u64, bytes: &[u8], mode: Mode) -> Ticket {
    let request = asked(core, handle, SegmentOp::Write { offset }, bytes, mode);
    start(core, request)
}

fn write(core: &mut Core, handle: Handle, offset: u64, bytes: &[u8], mode: Mode) {
    let ticket = begin_write(core, handle, offset, bytes, mode);
    assert_eq!(end(core, ticket).result.unwrap() as usize, bytes.len());
}

fn bare(core: &mut Core, handle: Handle, op: SegmentOp, mode: Mode) {
    let request = SegmentRequest {
        mode,
        durability: Durability::Data,
        ..SegmentRequest::new(handle, op, Memory::None)
    };
    assert_eq!(run(core, request).result.unwrap(), 0);
}

/// Long vectors tell nobody anything.
fn same(left: &[u8], right: &[u8], what: &str) {
    let differs = left.iter().zip(right).position(|(left, right)| left != right);
    assert!(
        left.len() == right.len() && differs.is_none(),
        "{what}: {} and {} bytes, first other byte {differs:?}",
        left.len(),
        right.len()
    );
}

#[test]
fn a_file_of_any_size_is_read_to_its_end_in_every_mode() {
    for size in SIZES {
        let bytes = pattern(1, size);
        let world = world(&bytes);
        for mode in [Mode::Cached, Mode::Direct, Mode::Kernel, Mode::Uncached] {
            let mut core = core_with(64);
            let handle = open(&mut core, &world.path);
            assert_eq!(core.size(handle).unwrap(), size as u64);
            let len = size.next_multiple_of(BLOCK) + BLOCK;
            let ticket = begin_read(&mut core, handle, 0, len, mode);
            let outcome = end(&mut core, ticket);
            if mode == Mode::Uncached && outcome.result.is_err() {
                continue; // Not every file system has it.
            }
            same(&got(outcome), &bytes, &format!("{size} {mode:?}"));
            let last = size / BLOCK * BLOCK;
            same(
                &read(&mut core, handle, last as u64, BLOCK, mode),
                &bytes[last..],
                "the last page",
            );
            assert_eq!(read(&mut core, handle, len as u64, BLOCK, mode), []);
            if mode == Mode::Cached && size > 1 {
                same(
                    &read(&mut core, handle, 1, size, mode),
                    &bytes[1..],
                    "from the second byte on",
                );
            }
            core.close().unwrap();
        }
    }
}

/// Cached bytes behind the end make the file longer, to the byte, also where nothing was written in between.
#[test]
fn a_file_grows_by_cached_writes_to_the_byte() {
    for size in SIZES {
        for (gap, len) in [(0, 1), (0, 4096), (1, 100), (5000, 3), (0, 70_000), (9000, 20_000)] {
            let mut model = pattern(2, size);
            let world = world(&model);
            let mut core = core_with(64);
            let handle = open(&mut core, &world.path);
            let at = size + gap;
            let bytes = pattern(3, len);
            write(&mut core, handle, at as u64, &bytes, Mode::Cached);
            model.resize(at, 0);
            model.extend(&bytes);
            let what = format!("{size} + {gap} + {len}");
            assert_eq!(core.size(handle).unwrap(), model.len() as u64, "{what}");
            let whole = model.len().next_multiple_of(BLOCK) + BLOCK;
            same(&read(&mut core, handle, 0, whole, Mode::Cached), &model, &what);
            // Whoever comes by another way waits until what he would see is there.
            let mode = [Mode::Direct, Mode::Kernel][len % 2];
            same(
                &read(&mut core, handle, 0, BLOCK, mode),
                &model[..model.len().min(BLOCK)],
                &what,
            );
            same(&read(&mut core, handle, 0, whole, mode), &model, &what);
            bare(&mut core, handle, SegmentOp::Sync, Mode::Cached);
            same(&std::fs::read(&world.path).unwrap(), &model, &what);
            core.close().unwrap();
            same(&std::fs::read(&world.path).unwrap(), &model, &what);
        }
    }
}

/// Large durable writes go to the device from the caller's memory, where they do not make the file longer.
#[test]
fn large_durable_writes_over_the_end_are_all_there_when_they_end() {
    let mut model = pattern(2, 2 * BLOCK);
    let world = world(&model);
    let mut core = core_with(256);
    let handle = open(&mut core, &world.path);
    for (at, pages) in [(2, 8), (6, 8), (20, 16), (0, 36), (30, 32)] {
        let bytes = pattern(at, pages * BLOCK);
        let request = SegmentRequest {
            durability: Durability::Data,
            ..asked(&core, handle, SegmentOp::Write { offset: at * B }, &bytes, Mode::Cached)
        };
        assert_eq!(run(&mut core, request).result.unwrap() as usize, bytes.len());
        let start = at as usize * BLOCK;
        model.resize(model.len().max(start + bytes.len()), 0);
        model[start..start + bytes.len()].copy_from_slice(&bytes);
        same(&std::fs::read(&world.path).unwrap(), &model, "on the device");
        same(
            &read(&mut core, handle, 0, 64 * BLOCK, Mode::Cached),
            &model,
            "in the cache",
        );
    }
}

/// One request after the other, by two handles, against an array.
#[test]
fn any_mix_of_sizes_and_modes_agrees_with_an_array() {
    for seed in 0..12 {
        let mut dice = Random(seed);
        let mut model = pattern(seed, dice.bits() as usize % 100_000);
        let world = world(&model);
        let mut core = core_with(if seed % 2 == 0 { 8 } else { 64 });
        let handles = [open(&mut core, &world.path), open(&mut core, &world.path)];
        for step in 0..400 {
            let what = format!("seed {seed}, step {step}");
            let handle = handles[dice.bits() as usize % 2];
            let mode = [Mode::Cached, Mode::Cached, Mode::Direct, Mode::Kernel][dice.bits() as usize % 4];
            let unit = if mode == Mode::Direct { BLOCK } else { 1 };
            let at = dice.bits() as usize % (model.len() + 20_000) / unit * unit;
            let len = (1 + dice.bits() as usize % 40_000).next_multiple_of(unit);
            match dice.bits() % 12 {
                0..=4 => {
                    let seen = read(&mut core, handle, at as u64, len, mode);
                    let end = model.len().min(at + len);
                    same(&seen, model.get(at..end).unwrap_or(&[]), &what);
                }
                5..=8 => {
                    let bytes = pattern(step, len);
                    let request = SegmentRequest {
                        durability: [Durability::None, Durability::None, Durability::Data][dice.bits() as usize % 3],
                        ..asked(&core, handle, SegmentOp::Write { offset: at as u64 }, &bytes, mode)
                    };
                    let done = run(&mut core, request).result.unwrap();
                    assert_eq!(done as usize, len, "{what}");
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&bytes);
                }
                9 => {
                    let len = at + dice.bits() as usize % 3;
                    bare(&mut core, handle, SegmentOp::Truncate { len: len as u64 }, mode);
                    model.resize(len, 0);
                }
                10 => {
                    let (offset, end) = (at as u64, at + len);
                    bare(
                        &mut core,
                        handle,
                        SegmentOp::Allocate {
                            offset,
                            len: len as u64,
                        },
                        mode,
                    );
                    model.resize(model.len().max(end), 0);
                }
                _ => {
                    bare(&mut core, handle, SegmentOp::Sync, mode);
                    same(&std::fs::read(&world.path).unwrap(), &model, &what);
                }
            }
            assert_eq!(core.size(handle).unwrap(), model.len() as u64, "{what}");
        }
        core.close().unwrap();
        same(
            &std::fs::read(&world.path).unwrap(),
            &model,
            &format!("seed {seed}, closed"),
        );
    }
}

/// Each block is written with its own number, one after the other behind the end: a reader that sees a block sees all of it.
#[test]
fn readers_beside_a_growing_file_see_no_byte_that_was_not_written() {
    const PIECE: usize = 3000;
    let world = world(&[]);
    let mut core = core_with(16);
    let (writer, reader) = (open(&mut core, &world.path), open(&mut core, &world.path));
    let (mut done, mut under_way) = (0, Vec::new());
    let mut dice = Random(5);
    while done < 200 * PIECE {
        let piece = vec![(done / PIECE) as u8 | 1; PIECE];
        let ticket = begin_write(&mut core, writer, done as u64, &piece, Mode::Cached);
        for mode in [Mode::Cached, Mode::Cached, Mode::Direct] {
            let at = dice.bits() as usize % (done + BLOCK) / BLOCK * BLOCK;
            let read = begin_read(&mut core, reader, at as u64, 4 * BLOCK, mode);
            under_way.push((read, at, done));
        }
        if dice.bits().is_multiple_of(4) {
            core.turn(Wait::No).unwrap();
        }
        end(&mut core, ticket).result.unwrap();
        done += PIECE;
        if dice.bits().is_multiple_of(8) {
            bare(&mut core, writer, SegmentOp::Sync, Mode::Cached);
        }
        for (read, at, known) in under_way.drain(..) {
            let seen = got(end(&mut core, read));
            assert!(
                seen.len() >= known.saturating_sub(at).min(4 * BLOCK),
                "{} at {at} of {known}",
                seen.len()
            );
            for (nth, byte) in seen.iter().enumerate() {
                assert_eq!(*byte, ((at + nth) / PIECE) as u8 | 1, "{} of {known}", at + nth);
            }
        }
    }
    core.close().unwrap();
    assert_eq!(std::fs::metadata(&world.path).unwrap().len(), 200 * PIECE as u64);
}

#[test]
fn what_one_handle_writes_directly_another_reads_through_the_cache() {
    let mut model = pattern(4, 10_000);
    let world = world(&model);
    let mut core = core_with(64);
    let [one, other] = [open(&mut core, &world.path), open(&mut core, &world.path)];
    same(&read(&mut core, other, 0, 16_384, Mode::Cached), &model, "as it was");
    // Whole sectors over the end: it is longer, for both.
    let bytes = pattern(5, 2 * BLOCK);
    write(&mut core, one, 2 * B, &bytes, Mode::Direct);
    model.truncate(2 * BLOCK);
    model.extend(&bytes);
    same(&read(&mut core, other, 0, 20_000, Mode::Cached), &model, "longer");
    write(&mut core, other, 16_384, b"a tail", Mode::Cached);
    model.extend(b"a tail");
    same(&read(&mut core, one, 0, 5 * BLOCK, Mode::Direct), &model, "with a tail");
    same(&read(&mut core, one, 0, 5 * BLOCK, Mode::Kernel), &model, "with a tail");
    write(&mut core, one, 16_390, b", longer", Mode::Kernel);
    model.extend(b", longer");
    same(
        &read(&mut core, other, 0, 20_000, Mode::Cached),
        &model,
        "by the kernel",
    );
    assert_eq!(core.size(other).unwrap(), model.len() as u64);
}

/// The handle keeps the file that it was opened on; who opens the name again gets the other, and neither sees the other's pages.
#[test]
fn a_file_that_was_replaced_by_its_name_is_another() {
    let (old, new) = (pattern(6, 9000), pattern(7, 7000));
    let world = world(&old);
    let mut core = core_with(64);
    let before = open(&mut core, &world.path);
    same(&read(&mut core, before, 0, 12_000, Mode::Cached), &old, "old");
    let beside = world.path.with_extension("new");
    std::fs::write(&beside, &new).unwrap();
    std::fs::rename(&beside, &world.path).unwrap();
    let after = open(&mut core, &world.path);
    for _ in 0..2 {
        same(&read(&mut core, after, 0, 12_000, Mode::Cached), &new, "new");
        same(&read(&mut core, before, 0, 12_000, Mode::Cached), &old, "old");
    }
    write(&mut core, before, 0, b"nobody's", Mode::Cached);
    write(&mut core, after, 100, b"somebody's", Mode::Cached);
    core.close().unwrap();
    let mut expected = new;
    expected[100..110].copy_from_slice(b"somebody's");
    same(&std::fs::read(&world.path).unwrap(), &expected, "the name's");
}

/// What docs/program/cache.md says of it: as long as the file is open here, the cache does not look again.
#[test]
fn what_others_do_to_a_file_is_seen_when_it_is_opened_again() {
    let bytes = pattern(8, 20_000);
    let world = world(&bytes);
    let mut core = core_with(64);
    let handle = open(&mut core, &world.path);
    same(
        &read(&mut core, handle, 0, BLOCK, Mode::Cached),
        &bytes[..BLOCK],
        "the first page",
    );
    let file = std::fs::OpenOptions::new().write(true).open(&world.path).unwrap();
    file.set_len(10_000).unwrap();
    // What was not cached is read as it is now; behind its end there are zeros up to where it ended.
    let seen = read(&mut core, handle, 0, 24_000, Mode::Cached);
    assert_eq!(seen.len(), 20_000);
    let end = seen.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    same(&seen[..end], &bytes[..end], "up to there");
    assert_eq!(read(&mut core, handle, 0, 24_576, Mode::Kernel).len(), 10_000);
    assert_eq!(core.size(handle).unwrap(), 20_000, "where cached reads end");
    core.close_handle(handle);
    let handle = open(&mut core, &world.path);
    same(
        &read(&mut core, handle, 0, 24_000, Mode::Cached),
        &bytes[..10_000],
        "again",
    );
    file.set_len(30_000).unwrap();
    assert_eq!(read(&mut core, handle, 0, 32_768, Mode::Cached).len(), 10_000);
    assert_eq!(core.size(handle).unwrap(), 10_000, "where cached reads end");
    core.close_handle(handle);
    let handle = open(&mut core, &world.path);
    assert_eq!(read(&mut core, handle, 0, 32_768, Mode::Cached).len(), 30_000);
}

/// The last page of an odd size needs the kernel's page cache.
#[test]
fn a_file_that_was_opened_for_direct_io_alone_is_cached_by_whole_sectors() {
    let odd = world(&pattern(9, 5000));
    let even = world(&pattern(9, 8192));
    let mut core = core_with(64);
    let only = Open {
        descriptions: Descriptions::Only(Caching::Direct),
        ..Open::write()
    };
    let handle = core.open_file(&odd.path, &only).unwrap();
    let request = asked(&core, handle, SegmentOp::Read { offset: 0 }, &[0; 4096], Mode::Cached);
    let error = run(&mut core, request).result.unwrap_err();
    assert!(matches!(error.fault, Fault::BadSize(_)), "{error}");
    assert!(error.to_string().contains("both descriptions"), "{error}");
    let handle = core.open_file(&even.path, &only).unwrap();
    write(&mut core, handle, 8192, &[1; 4096], Mode::Cached);
    let request = asked(
        &core,
        handle,
        SegmentOp::Write { offset: 12_288 },
        &[1; 100],
        Mode::Cached,
    );
    let error = run(&mut core, request).result.unwrap_err();
    assert!(matches!(error.fault, Fault::BadSize(_)), "{error}");
    write(&mut core, handle, 100, &[2; 100], Mode::Cached);
    core.close().unwrap();
    assert_eq!(std::fs::metadata(&even.path).unwrap().len(), 12_288);
}

/// As on a file system that has no direct I/O: the cache lies over the kernel's.
#[test]
fn a_file_without_direct_io_is_cached_all_the_same() {
    let mut model = pattern(10, 30_001);
    let world = world(&model);
    let mut core = core_with(8);
    let only = Open {
        descriptions: Descriptions::Only(Caching::Kernel),
        ..Open::write()
    };
    let handle = core.open_file(&world.path, &only).unwrap();
    for at in [5, 29_990, 60_000] {
        let bytes = pattern(at, 10_000);
        write(&mut core, handle, at, &bytes, Mode::Cached);
        let end = at as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(&bytes);
        same(
            &read(&mut core, handle, 0, 80_000, Mode::Cached),
            &model,
            "in the cache",
        );
    }
    bare(&mut core, handle, SegmentOp::Sync, Mode::Cached);
    same(&std::fs::read(&world.path).unwrap(), &model, "in the file");
    let direct = asked(&core, handle, SegmentOp::Read { offset: 0 }, &[0; 4096], Mode::Direct);
    assert!(run(&mut core, direct).result.is_err());
    core.close().unwrap();
}

#[test]
fn a_write_beyond_what_a_file_can_have_is_refused() {
    let world = world(b"a few bytes");
    let mut core = core_with(16);
    let handle = open(&mut core, &world.path);
    for offset in [u64::MAX, u64::MAX - 5, i64::MAX as u64 - 5] {
        let request = asked(&core, handle, SegmentOp::Write { offset }, &[1; 100], Mode::Cached);
        assert_eq!(run(&mut core, request).result.unwrap_err().code(), "EFBIG");
    }
    assert_eq!(core.size(handle).unwrap(), 11);
}

/// The last page waits for its log, and the file ends before it: who reads what is on the device needs neither.
#[test]
fn a_direct_read_needs_the_pages_of_its_range_and_the_size_alone() {
    let bytes = pattern(1, 2 * BLOCK);
    let w = world(&bytes);
    let mut core = core_with(64);
    let handle = open(&mut core, &w.path);
    write(&mut core, handle, 5 * B, &[9; BLOCK], Mode::Cached);
    let pin = core.pin_now(handle, 5).unwrap();
    core.change_now(&pin, 500).unwrap()[0] = 8;
    core.unpin(pin);
    for mode in [Mode::Direct, Mode::Kernel] {
        // One that waited for that page would wait for ever.
        let deadline = core.engine().now().after(Duration::from_secs(20));
        let request = SegmentRequest {
            deadline: Some(deadline),
            ..asked(&core, handle, SegmentOp::Read { offset: 0 }, &[0; BLOCK], mode)
        };
        let ticket = start(&mut core, request);
        assert_eq!(got(end(&mut core, ticket)), bytes[..BLOCK], "{mode:?}");
    }
    let beyond = begin_read(&mut core, handle, 2 * B, BLOCK, Mode::Direct);
    (0..100).for_each(|_| drop(core.turn(Wait::No)));
    assert!(core.poll(beyond, None).is_pending(), "there are no zeros yet");
    core.set_durable_lsn(500).unwrap();
    assert_eq!(got(end(&mut core, beyond)), [0; BLOCK]);
}

/// Its page could never be written: whoever came later to the file would be told so, for ever.
#[test]
fn a_cached_write_beyond_the_longest_file_is_refused() {
    const FAR: u64 = 1 << 62;
    let w = world(&[1; BLOCK]);
    let longest = std::fs::File::options().write(true).open(&w.path).unwrap();
    if longest.set_len(FAR + B).is_ok() {
        println!("SKIPPED: a_cached_write_beyond_the_longest_file_is_refused: this file system has none");
        return;
    }
    let mut core = core_with(64);
    let handle = open(&mut core, &w.path);
    let ticket = begin_write(&mut core, handle, FAR, &[2; BLOCK], Mode::Cached);
    let error = end(&mut core, ticket).result.unwrap_err();
    assert_eq!(
        (error.errno(), error.offset),
        (Some(Errno::EFBIG), Some(FAR)),
        "{error}"
    );
    assert_eq!(core.size(handle).unwrap(), B);
    write(&mut core, handle, B, &[3; BLOCK], Mode::Cached);
    bare(&mut core, handle, SegmentOp::Sync, Mode::Cached);
    assert_eq!(read(&mut core, handle, 0, BLOCK, Mode::Direct), [1; BLOCK]);
}
