//! The promise: a page cache asked for with the options serves both links alike, by the thread of the caller and by that of a
//! service: what is written is read, a sync or a close makes it safe, a deadline answers with the memory, and refusals say the
//! same.

mod common;

use std::path::Path;

use baio::{
    Access, CacheConfig, Choice, CreateOptions, Durability, Error, Fault, Link, Local, Mode, Options, Outcome, Remote,
    ResizeOptions, Result, Segment, SegmentOp, SegmentRequest,
};
use common::remote;

const PAGE: usize = 4096;

fn options(cache_pages: usize) -> Options {
    Options {
        cache: (cache_pages > 0).then(|| CacheConfig {
            bytes: cache_pages * PAGE,
            ..CacheConfig::default()
        }),
        ..remote::options(Choice::Auto, 128)
    }
}

/// Runs one request to its end.
type Run<'a, L> = &'a dyn Fn(&Segment<L>, SegmentRequest) -> Outcome;

fn request<L: Link>(segment: &Segment<L>, op: SegmentOp, bytes: &[u8], mode: Mode) -> SegmentRequest {
    let mut buffer = segment.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    SegmentRequest {
        mode,
        ..segment.request(op, buffer)
    }
}

fn read<L: Link>(segment: &Segment<L>, run: Run<'_, L>, offset: u64, len: usize, mode: Mode) -> Vec<u8> {
    let asked = request(segment, SegmentOp::Read { offset }, &vec![0xee; len], mode);
    let outcome = run(segment, asked);
    assert_eq!(outcome.result.unwrap() as usize, len);
    outcome.memory.into_buffer().unwrap().to_vec()
}

/// The same story over either.
fn story<L: Link>(segment: &Segment<L>, run: Run<'_, L>, sync: &dyn Fn() -> Result<Outcome>) {
    let write = |offset, bytes: &[u8], mode| {
        let outcome = run(segment, request(segment, SegmentOp::Write { offset }, bytes, mode));
        assert_eq!(outcome.result.unwrap() as usize, bytes.len());
        assert_eq!(outcome.memory.len(), bytes.len(), "the memory comes back");
    };
    write(100, &[7; 5000], Mode::Cached);
    assert_eq!(read(segment, run, 100, 5000, Mode::Cached), [7; 5000]);
    assert_eq!(read(segment, run, 0, 2 * PAGE, Mode::Direct)[100..5100], [7; 5000]);
    write(0, &[9; PAGE], Mode::Direct);
    assert_eq!(read(segment, run, 0, 10, Mode::Cached), [9; 10]);
    let durable = SegmentRequest {
        durability: Durability::Data,
        ..request(segment, SegmentOp::Write { offset: 3 * 4096 }, &[5; PAGE], Mode::Cached)
    };
    assert!(run(segment, durable).result.is_ok());
    // More than the cache holds.
    for page in 0..64_u8 {
        write(u64::from(page) * 4096, &[page; PAGE], Mode::Cached);
    }
    sync().unwrap().result.unwrap();
    for page in [0, 17, 63] {
        assert_eq!(
            read(segment, run, u64::from(page) * 4096, PAGE, Mode::Cached),
            [page; PAGE]
        );
    }
    write(0, &[99; 10], Mode::Cached); // For the close.
}

fn told(error: Error) -> (String, String) {
    (error.code().to_owned(), error.fault.to_string())
}

fn holds_after(path: &Path) {
    let volume = Local::open_with(path, &options(0)).unwrap();
    let segment = volume.open_segment("data", Access::Read).unwrap();
    let run: Run<'_, Local> = &|segment, request| volume.block_on(segment.run(request)).unwrap();
    let first = read(&segment, run, 0, PAGE, Mode::Direct);
    assert!(
        first[..10] == [99; 10] && first[10..] == [0; PAGE - 10],
        "a close writes back"
    );
    // Without a cache the mode is refused.
    let asked = request(&segment, SegmentOp::Read { offset: 0 }, &[0; 10], Mode::Cached);
    assert!(matches!(run(&segment, asked).result.unwrap_err().fault, Fault::NoCache));
    drop(segment);
    volume.close().unwrap();
}

#[test]
fn in_this_thread() {
    let (_dir, path) = remote::image(16 << 20);
    let volume = Local::open_with(&path, &options(16)).unwrap();
    volume
        .create_segment("data", &CreateOptions::of_size(64 * 4096))
        .unwrap();
    let segment = volume.open_segment("data", Access::Write).unwrap();
    let run: Run<'_, Local> = &|segment, request| volume.block_on(segment.run(request)).unwrap();
    story(&segment, run, &|| volume.block_on(segment.sync(Durability::Data)));
    let stats = volume.cache_stats().unwrap();
    assert_eq!((stats.frames, stats.spurious_wakeups), (16, 0));
    drop(segment);
    volume.close().unwrap();
    holds_after(&path);
}

#[test]
fn in_a_service() {
    let (_dir, path) = remote::image(16 << 20);
    let volume = Remote::open_with(&path, &options(16)).unwrap();
    let segment = remote::segment(&volume, "data", 64 * 4096);
    let run: Run<'_, Remote> = &|segment, request| volume.block_on(segment.run(request)).unwrap();
    story(&segment, run, &|| volume.block_on(segment.sync(Durability::Data)));
    // Four threads on one cache.
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (volume, segment) = (volume.clone(), segment.clone());
            scope.spawn(move || {
                let run: Run<'_, Remote> = &|segment, request| volume.block_on(segment.run(request)).unwrap();
                for round in 0..50_u8 {
                    let offset = (thread * 16 + 1 + u64::from(round) % 15) * 4096;
                    let asked = request(&segment, SegmentOp::Write { offset }, &[round; PAGE], Mode::Cached);
                    run(&segment, asked).result.unwrap();
                    assert_eq!(read(&segment, run, offset, PAGE, Mode::Cached), [round; PAGE]);
                }
            });
        }
    });
    drop(segment);
    volume.close().unwrap();
    holds_after(&path);
}

/// What the cache refuses or ends early is told over the ring in the same words.
#[test]
fn what_is_refused_is_refused_alike() {
    let (_dir, path) = remote::image(16 << 20);
    let here = Local::open_with(&path, &options(16)).unwrap();
    here.create_segment("data", &CreateOptions::of_size(64 * 4096)).unwrap();
    let segment = here.open_segment("data", Access::Write).unwrap();
    let past = SegmentOp::Write { offset: 64 * 4096 - 1 };
    let asked = request(&segment, past, &[1; 2], Mode::Cached);
    let outcome = here.block_on(segment.run(asked)).unwrap();
    assert_eq!(outcome.memory.len(), 2);
    let mut mine = vec![told(outcome.result.unwrap_err())];
    let stale = segment.clone();
    here.delete_segment("data").unwrap();
    let asked = request(&stale, SegmentOp::Read { offset: 0 }, &[1; 2], Mode::Cached);
    mine.push(told(here.block_on(stale.run(asked)).unwrap().result.unwrap_err()));
    drop((segment, stale));
    here.close().unwrap();

    let there = Remote::open_with(&path, &options(16)).unwrap();
    let segment = remote::segment(&there, "data", 64 * 4096);
    let asked = request(&segment, past, &[1; 2], Mode::Cached);
    let outcome = there.block_on(segment.run(asked)).unwrap();
    assert_eq!(outcome.memory.len(), 2);
    let mut theirs = vec![told(outcome.result.unwrap_err())];
    // Overdue or just in time: its memory comes back at once.
    let late = SegmentRequest {
        deadline: Some(baio::Time(1)),
        ..request(&segment, SegmentOp::Read { offset: 8 * 4096 }, &[1; 2], Mode::Cached)
    };
    let outcome = there.block_on(segment.run(late)).unwrap();
    assert_eq!(outcome.memory.len(), 2);
    match outcome.result {
        Ok(read) => assert_eq!(read, 2),
        Err(error) => assert_eq!(error.code(), "EINDETERMINATE"),
    }
    there
        .block_on(there.resize_segment("data", &ResizeOptions::to_size(32 * 4096)))
        .unwrap()
        .unwrap();
    there.block_on(there.delete_segment("data")).unwrap().unwrap();
    let asked = request(&segment, SegmentOp::Read { offset: 0 }, &[1; 2], Mode::Cached);
    theirs.push(told(there.block_on(segment.run(asked)).unwrap().result.unwrap_err()));
    assert_eq!(mine, theirs);
    drop(segment);
    there.close().unwrap();
}
