//! The promise: a page cache asked for with the options serves both links alike, by the thread of the caller and by that of a
//! service: what is written is read, a sync or a close makes it safe, a deadline answers with the memory, and refusals say the
//! same.

use std::path::Path;

use baio::{
    Access, Backend, Buffer, CacheOptions, Durability, Error, Fault, Link, LinkOptions, Local, Mode, Remote,
    ResizeOptions, Segment,
};

use crate::common;

const PAGE: usize = 4096;

fn options(cache_pages: usize) -> LinkOptions {
    LinkOptions {
        cache: (cache_pages > 0).then(|| CacheOptions {
            bytes: cache_pages * PAGE,
            ..CacheOptions::default()
        }),
        ..common::options(Backend::Auto, 128)
    }
}

fn filled<L: Link>(segment: &Segment<L>, bytes: &[u8]) -> Buffer {
    let mut buffer = segment.buffer(bytes.len()).unwrap();
    buffer.copy_from_slice(bytes);
    buffer
}

fn read<L: Link>(segment: &Segment<L>, offset: u64, len: usize, mode: Mode) -> Vec<u8> {
    let asked = segment.read_at(offset, filled(segment, &vec![0xee; len])).mode(mode);
    let done = asked.wait().unwrap();
    assert_eq!(done.bytes, len);
    done.buffer.to_vec()
}

/// The same story over either.
fn story<L: Link>(segment: &Segment<L>) {
    let write = |offset, bytes: &[u8], mode| {
        let done = segment
            .write_at(offset, filled(segment, bytes))
            .mode(mode)
            .wait()
            .unwrap();
        assert_eq!(done.bytes, bytes.len());
        assert_eq!(done.buffer.len(), bytes.len(), "the memory comes back");
    };
    write(100, &[7; 5000], Mode::Cached);
    assert_eq!(read(segment, 100, 5000, Mode::Cached), [7; 5000]);
    assert_eq!(read(segment, 0, 2 * PAGE, Mode::Direct)[100..5100], [7; 5000]);
    write(0, &[9; PAGE], Mode::Direct);
    assert_eq!(read(segment, 0, 10, Mode::Cached), [9; 10]);
    let durable = segment.write_at(3 * 4096, filled(segment, &[5; PAGE]));
    durable.cached().durable(Durability::Data).wait().unwrap();
    // More than the cache holds.
    for page in 0..64_u8 {
        write(u64::from(page) * 4096, &[page; PAGE], Mode::Cached);
    }
    segment.sync(Durability::Data).wait().unwrap();
    for page in [0, 17, 63] {
        assert_eq!(read(segment, u64::from(page) * 4096, PAGE, Mode::Cached), [page; PAGE]);
    }
    write(0, &[99; 10], Mode::Cached); // For the close.
}

fn told(error: Error) -> (String, String) {
    (error.code().to_owned(), error.fault.to_string())
}

fn holds_after(path: &Path) {
    let volume = Local::open_with(path, &options(0)).unwrap();
    let segment = volume.open_segment("data", Access::Read).wait().unwrap();
    let first = read(&segment, 0, PAGE, Mode::Direct);
    assert!(
        first[..10] == [99; 10] && first[10..] == [0; PAGE - 10],
        "a close writes back"
    );
    // Without a cache the mode is refused.
    let cached = segment.read_at(0, segment.buffer(10).unwrap()).cached();
    assert!(matches!(cached.wait().unwrap_err().error.fault, Fault::NoCache));
    drop(segment);
    volume.close().unwrap();
}

#[test]
fn in_this_thread() {
    let (_dir, path) = common::image(16 << 20);
    let volume = Local::open_with(&path, &options(16)).unwrap();
    let segment = common::segment(&volume, "data", 64 * 4096);
    story(&segment);
    let stats = volume.cache_stats().wait().unwrap().unwrap();
    assert_eq!((stats.frames, stats.spurious_wakeups), (16, 0));
    drop(segment);
    volume.close().unwrap();
    holds_after(&path);
}

#[test]
fn in_a_service() {
    let (_dir, path) = common::image(16 << 20);
    let volume = Remote::open_with(&path, &options(16)).unwrap();
    let segment = common::segment(&volume, "data", 64 * 4096);
    story(&segment);
    // Four threads on one cache.
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let segment = segment.clone();
            scope.spawn(move || {
                for round in 0..50_u8 {
                    let offset = (thread * 16 + 1 + u64::from(round) % 15) * 4096;
                    let write = segment.write_at(offset, filled(&segment, &[round; PAGE]));
                    write.cached().wait().unwrap();
                    assert_eq!(read(&segment, offset, PAGE, Mode::Cached), [round; PAGE]);
                }
            });
        }
    });
    drop(segment);
    volume.close().unwrap();
    holds_after(&path);
}

/// What the cache refuses, and what is refused of a segment that has gone.
fn refusals<L: Link>(volume: &L) -> [(String, String); 2] {
    let segment = common::segment(volume, "data", 64 * 4096);
    let past = segment.write_at(64 * 4096 - 1, filled(&segment, &[1; 2])).cached();
    let past = past.wait().unwrap_err();
    assert_eq!(past.buffer.unwrap().len(), 2);
    let half = ResizeOptions::to_size(32 * 4096);
    volume.resize_segment("data", &half).wait().unwrap();
    volume.delete_segment("data").wait().unwrap();
    let gone = segment.read_at(0, segment.buffer(2).unwrap()).cached().wait();
    [past.error, gone.unwrap_err().error].map(told)
}

/// What the cache refuses or ends early is told over the ring in the same words.
#[test]
fn what_is_refused_is_refused_alike() {
    let (_dir, path) = common::image(16 << 20);
    let here = Local::open_with(&path, &options(16)).unwrap();
    let mine = refusals(&here);
    here.close().unwrap();

    let there = Remote::open_with(&path, &options(16)).unwrap();
    let segment = common::segment(&there, "late", 64 * 4096);
    // Overdue or just in time: its memory comes back at once.
    let late = segment.read_at(8 * 4096, segment.buffer(2).unwrap()).cached();
    match late.deadline(baio::Time(1)).wait() {
        Ok(done) => assert_eq!((done.bytes, done.buffer.len()), (2, 2)),
        Err(failed) => {
            assert_eq!(failed.error.code(), "EINDETERMINATE");
            assert_eq!(failed.buffer.unwrap().len(), 2);
        }
    }
    assert_eq!(mine, refusals(&there));
    drop(segment);
    there.close().unwrap();
}
