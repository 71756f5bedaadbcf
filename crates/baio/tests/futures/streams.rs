//! Readers and writers over a range: any beginning, end and flush, in every mode, on both links. What fails: `streams_over_bad_disks.rs`.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use baio::{Backend, Durability, EngineOptions, File, Link, LinkOptions, Local, Mode, OpenOptions, Reader, Remote};
use futures_util::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::common;
use crate::common::stream::{PIECE, bytes, futures_io_write, write};

fn options(arena_bytes: usize) -> LinkOptions {
    LinkOptions {
        engine: EngineOptions {
            slots: 128,
            arena_bytes,
            ..EngineOptions::default()
        },
        ..LinkOptions::default()
    }
}

/// Runs it on both links, each with a file in this directory.
fn on_both(arena_bytes: usize, how: OpenOptions, run: impl Fn(&dyn Body, &std::path::Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let link = Local::new_with(&options(arena_bytes)).unwrap();
    run(&On(link, how.clone(), path.clone()), &path);
    let link = Remote::new_with(&options(arena_bytes)).unwrap();
    run(&On(link, how, path.clone()), &path);
}

/// What tests do with whichever link it is.
trait Body {
    /// What a reader gives of a range.
    fn read(&self, range: std::ops::Range<u64>) -> Vec<u8>;
    /// Writes these from there on, with a flush behind each, and closes.
    fn write(&self, offset: u64, parts: &[&[u8]]);
    fn fails_to_write(&self, offset: u64, part: &[u8]) -> std::io::Error;
}

struct On<L: Link>(L, OpenOptions, std::path::PathBuf);

impl<L: Link> Body for On<L> {
    fn read(&self, range: std::ops::Range<u64>) -> Vec<u8> {
        let On(link, how, path) = self;
        let file = how.open(link, path).wait().unwrap();
        let mut seen = Vec::new();
        link.block_on(file.reader(range).read_to_end(&mut seen))
            .unwrap()
            .unwrap();
        seen
    }

    fn write(&self, offset: u64, parts: &[&[u8]]) {
        let On(link, how, path) = self;
        let file = how.open(link, path).wait().unwrap();
        link.block_on(write(&file, offset, parts)).unwrap().unwrap();
    }

    fn fails_to_write(&self, offset: u64, part: &[u8]) -> std::io::Error {
        let On(link, how, path) = self;
        let file = how.open(link, path).wait().unwrap();
        link.block_on(write(&file, offset, &[part])).unwrap().unwrap_err()
    }
}

fn kernel() -> OpenOptions {
    OpenOptions::new().write().create()
}

fn direct() -> OpenOptions {
    kernel().direct().every_mode()
}

const ODD: usize = 9 * PIECE + 777;

#[test]
fn any_range_is_read_right() {
    let content = bytes(ODD, 1);
    let ends = [
        0,
        1,
        777,
        4095,
        4096,
        PIECE - 1,
        PIECE,
        PIECE + 1,
        3 * PIECE + 5000,
        ODD - 1,
        ODD,
        ODD + 1,
        20 * PIECE,
    ];
    for how in [kernel(), direct()] {
        on_both(8 << 20, how, |body, path| {
            std::fs::write(path, &content).unwrap();
            for begin in ends {
                for end in ends {
                    let seen = body.read(begin as u64..end as u64);
                    let wanted = content.get(begin.min(ODD)..end.clamp(begin.min(ODD), ODD)).unwrap();
                    assert!(seen == wanted, "{begin}..{end} gave {} bytes", seen.len());
                }
            }
        });
    }
}

#[test]
fn any_parts_are_written_right() {
    let sizes = [0, 1, 777, 4096, 5000, PIECE - 1, PIECE, 2 * PIECE + 3];
    for how in [kernel(), direct()] {
        on_both(8 << 20, how, |body, path| {
            for begin in [0, 1, 4095, 4096, 10_000, PIECE + 1, 5 * PIECE] {
                // Over what is there, and behind its end.
                for old in [0, 100, 3 * PIECE + 9] {
                    let mut model = bytes(old, 2);
                    std::fs::write(path, &model).unwrap();
                    let new = bytes(sizes.iter().sum(), 3 + begin as u64);
                    let mut rest = &new[..];
                    let parts: Vec<&[u8]> = sizes.iter().map(|&size| rest.split_off(..size).unwrap()).collect();
                    body.write(begin as u64, &parts);
                    model.resize(old.max(begin + new.len()), 0);
                    model[begin..begin + new.len()].copy_from_slice(&new);
                    assert!(std::fs::read(path).unwrap() == model, "from {begin} over {old} bytes");
                }
            }
        });
    }
}

/// Room for two pieces: whoever has none takes pages.
#[test]
fn a_small_arena_is_enough() {
    let content = bytes(ODD, 1);
    for arena in [64 << 10, 300 << 10] {
        on_both(arena, direct(), |body, path| {
            std::fs::write(path, []).unwrap();
            body.write(0, &[&content[..5000], &content[5000..]]);
            assert!(body.read(0..u64::MAX) == content);
        });
    }
}

#[test]
fn the_end_of_a_direct_file_needs_the_kernels_cache() {
    on_both(8 << 20, kernel().direct(), |body, path| {
        std::fs::write(path, []).unwrap();
        let error = body.fails_to_write(0, &[7; 100]);
        assert!(error.get_ref().unwrap().is::<baio::Error>(), "{error}");
        // Whole pages do not, nor do parts of pages that are there.
        body.write(0, &[&[7; 8192]]);
        body.write(100, &[&[8; 5000], &[9; 1]]);
        let mut model = [7; 8192];
        model[100..5100].fill(8);
        model[5100] = 9;
        assert_eq!(std::fs::read(path).unwrap(), model);
    });
}

/// Its requests are direct, and nothing but whole blocks can be.
fn of_a_segment<L: Link>(link: &L) {
    let segment = common::segment(link, "stream", 1 << 20);
    let content = bytes((1 << 20) - 5000, 4);
    link.block_on(write(
        &segment,
        5000,
        &[&content[..1234], &content[1234..300_001], &content[300_001..]],
    ))
    .unwrap()
    .unwrap();
    let mut seen = Vec::new();
    link.block_on(segment.reader(4000..).read_to_end(&mut seen))
        .unwrap()
        .unwrap();
    assert!(seen[..1000].iter().all(|&byte| byte == 0) && seen[1000..] == content);
    // It does not grow: what crosses its end is refused.
    let error = link
        .block_on(write(&segment, (1 << 20) - 10, &[&[1; 11]]))
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("stream"), "{error}");
}

#[test]
fn segments_are_read_and_written() {
    let (_dir, link) = common::volume(Backend::Auto);
    of_a_segment(&link);
    let (_dir, link) = common::remote::volume(Backend::Auto);
    of_a_segment(&link);
}

#[test]
fn one_is_copied_into_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let content = bytes(ODD, 5);
    std::fs::write(dir.path().join("from"), &content).unwrap();
    let link = Remote::new().unwrap();
    let from = File::open(&link, dir.path().join("from")).wait().unwrap();
    let to = direct().open(&link, dir.path().join("to")).wait().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    // Any task of any thread may have them.
    let copied = runtime.spawn(async move {
        let (mut reader, mut writer) = (from.reader(..), to.writer(0));
        let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut writer).await.unwrap();
        copied
    });
    assert_eq!(runtime.block_on(copied).unwrap(), ODD as u64);
    assert!(std::fs::read(dir.path().join("to")).unwrap() == content);
}

#[test]
fn lines_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    let text: String = (0..50_000).map(|line| format!("this is line {line}\n")).collect();
    std::fs::write(&path, &text).unwrap();
    let link = Local::new().unwrap();
    let file = File::open(&link, &path).wait().unwrap();
    let count = link.block_on(async {
        let mut lines = file.reader(..).lines();
        let mut count = 0;
        while let Some(line) = futures_util::StreamExt::next(&mut lines).await {
            assert_eq!(line.unwrap(), format!("this is line {count}"));
            count += 1;
        }
        count
    });
    assert_eq!(count.unwrap(), 50_000);
}

fn poll<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn several_are_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes(40 * PIECE, 6)).unwrap();
    let link = Local::new().unwrap();
    let file = direct().open(&link, &path).wait().unwrap();
    let _driver = link.drive(); // Nobody polls it: nothing ends.
    let mut reader = file.reader(..);
    let mut page = [0; 4096];
    assert!(poll(|context| futures_io_read(&mut reader, context, &mut page)).is_pending());
    assert_eq!(link.in_flight(), 1, "it may be all that is wanted");
    link.block_on(reader.read_exact(&mut vec![0; 8 * PIECE]))
        .unwrap()
        .unwrap();
    let stats = link.stats().wait().unwrap();
    assert!(stats.in_flight_max >= 8, "{stats:?}");
    drop(reader);
    let mut writer = file.writer(0).with_depth(4);
    let piece = vec![1; PIECE];
    for _ in 0..4 {
        let Poll::Ready(Ok(PIECE)) = poll(|context| futures_io_write(&mut writer, context, &piece)) else {
            panic!("there is room");
        };
    }
    assert!(poll(|context| futures_io_write(&mut writer, context, &piece)).is_pending());
    assert_eq!(writer.position(), 4 * PIECE as u64);
    // What is under way ends by itself.
    drop(writer);
    let free = link.arena_free_bytes();
    while link.in_flight() > 0 {
        link.turn(baio::Wait::one()).unwrap();
    }
    assert!(link.arena_free_bytes() > free);
    link.close().unwrap();
    // Each piece of it is written or not, and nothing else is.
    let (before, after) = (bytes(40 * PIECE, 6), std::fs::read(&path).unwrap());
    for (number, (before, after)) in before.chunks(PIECE).zip(after.chunks(PIECE)).enumerate() {
        assert!(before == after || number < 4 && piece == after, "piece {number}");
    }
}

fn futures_io_read<L: Link>(
    reader: &mut Reader<L>,
    context: &mut Context<'_>,
    into: &mut [u8],
) -> Poll<std::io::Result<usize>> {
    futures_util::io::AsyncRead::poll_read(Pin::new(reader), context, into)
}

/// A flush that nobody waited for to its end is under way in the same page as what is written next.
#[test]
fn a_flush_that_was_given_up_is_not_overtaken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for seed in 0..20 {
        std::fs::write(&path, bytes(4 * PIECE, 7)).unwrap();
        let content = bytes(2 * PIECE, seed);
        let link = Local::new().unwrap();
        let file = direct().open(&link, &path).wait().unwrap();
        link.block_on(async {
            let mut writer = file.writer(0);
            for (number, part) in content.chunks(1000).enumerate() {
                writer.write_all(part).await.unwrap();
                let mut polls = number % 4;
                std::future::poll_fn(|context| {
                    if polls == 0 {
                        return Poll::Ready(());
                    }
                    polls -= 1;
                    Pin::new(&mut writer.flush()).poll(context).map(Result::unwrap)
                })
                .await;
            }
            writer.close().await.unwrap();
        })
        .unwrap();
        assert!(std::fs::read(&path).unwrap()[..2 * PIECE] == content);
    }
}

#[test]
fn what_has_ended_keeps_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let link = Local::new_with(&options(4 << 20)).unwrap();
    let path = dir.path().join("file");
    let file = direct().open(&link, &path).wait().unwrap();
    let to_read = File::open(&link, &path).wait().unwrap();
    let (mut writer, mut refused, mut reader) = (file.writer(0), to_read.writer(0), file.reader(..));
    let free = link.arena_free_bytes();
    let content = bytes(ODD, 1);
    let run = async {
        writer.write_all(&content).await.unwrap();
        writer.close().await.unwrap();
        assert_eq!(link.arena_free_bytes(), free, "the writer");
        refused.write_all(&content[..PIECE + 100]).await.unwrap();
        refused.flush().await.unwrap_err();
        assert_eq!(link.arena_free_bytes(), free, "the writer that failed");
        let mut seen = Vec::new();
        reader.read_to_end(&mut seen).await.unwrap();
        assert!(seen == content);
    };
    link.block_on(run).unwrap();
    // What was asked behind the end.
    while link.in_flight() > 0 {
        link.turn(baio::Wait::one()).unwrap();
    }
    assert_eq!(link.arena_free_bytes(), free, "the reader");
    assert_eq!((writer.position(), reader.position()), (ODD as u64, ODD as u64));
}

/// A flush that nobody waits for has begun to read the page that it would write a part of.
#[test]
fn a_closed_writer_keeps_no_page_of_a_flush_that_was_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let link = Local::new_with(&options(4 << 20)).unwrap();
    let file = direct().open(&link, dir.path().join("file")).wait().unwrap();
    let mut writer = file.writer(0);
    let free = link.arena_free_bytes();
    let run = async {
        writer.write_all(&[1; 100]).await.unwrap();
        std::future::poll_fn(|context| {
            assert!(Pin::new(&mut writer.flush()).poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        writer.write_all(&vec![2; PIECE - 100]).await.unwrap();
        writer.close().await.unwrap();
    };
    link.block_on(run).unwrap();
    while link.in_flight() > 0 {
        link.turn(baio::Wait::one()).unwrap();
    }
    assert_eq!(link.arena_free_bytes(), free);
    assert_eq!(writer.position(), PIECE as u64);
}

#[test]
fn an_undriven_link_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let link = Local::new().unwrap();
    let file = kernel().open(&link, &path).wait().unwrap();
    let mut reader = file.reader(..);
    let polled = poll(|context| futures_io_read(&mut reader, context, &mut [0; 10]));
    assert!(matches!(polled, Poll::Ready(Err(_))), "{polled:?}");
}

#[test]
fn a_cached_stream_sees_what_is_cached() {
    let (dir, path) = common::image(16 << 20);
    let link = Local::open_with(&path, &options(8 << 20).with_cache(1 << 20)).unwrap();
    let segment = common::segment(&link, "stream", 1 << 20).with_mode(Mode::Cached);
    let content = bytes(900_001, 12);
    link.block_on(async {
        write(&segment, 77, &[&content[..300_000], &content[300_000..]])
            .await
            .unwrap();
        let mut page = segment.buffer(4096).unwrap();
        page.fill(0);
        segment
            .write_all_at(8192, page)
            .durable(Durability::None)
            .await
            .unwrap();
        let mut seen = Vec::new();
        segment.reader(77..900_078).read_to_end(&mut seen).await.unwrap();
        let hole = 8192 - 77..8192 - 77 + 4096;
        assert!(seen[hole.clone()].iter().all(|&byte| byte == 0));
        assert!(seen[..hole.start] == content[..hole.start] && seen[hole.end..] == content[hole.end..]);
    })
    .unwrap();
    link.close().unwrap();
    drop(dir);
}

/// In a build that does not check sums an offset that wraps is one near the beginning.
#[test]
fn no_write_wraps_round_the_end_of_all_offsets() {
    let content = bytes(ODD, 1);
    for how in [kernel(), direct()] {
        on_both(8 << 20, how, |body, path| {
            std::fs::write(path, &content).unwrap();
            for offset in [1 << 63, u64::MAX - 4095, u64::MAX - 10, u64::MAX] {
                let error = body.fails_to_write(offset, &bytes(4 * PIECE, 2));
                assert!(error.to_string().contains("EFBIG"), "{offset}: {error}");
            }
            assert!(std::fs::read(path).unwrap() == content);
        });
    }
}

/// Every call that takes an offset, a page or a length: none reaches what is there from behind the end.
#[test]
fn no_offset_wraps() {
    let content = bytes(4 * 4096, 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &content).unwrap();
    let options = options(8 << 20).with_cache(1 << 20);
    no_offset_wraps_on(&Local::new_with(&options).unwrap(), &path);
    no_offset_wraps_on(&Remote::new_with(&options).unwrap(), &path);
    assert!(std::fs::read(&path).unwrap() == content);
}

fn no_offset_wraps_on<L: baio::Link>(link: &L, path: &std::path::Path) {
    let file = direct().open(link, path).wait().unwrap();
    let buffer = |len| file.buffer(len).unwrap();
    let top = u64::MAX;
    for offset in [1 << 63, (1 << 63) - 4096, top - 8191, top - 4095, top] {
        for mode in [Mode::Direct, Mode::Kernel, Mode::Cached] {
            for len in [4096, 3 * 4096] {
                let said = file.write_at(offset, buffer(len)).mode(mode).wait();
                assert!(said.is_err(), "{mode:?} {offset} {len}");
                let said = file.write_all_at(offset, buffer(len)).mode(mode).wait();
                assert!(said.is_err(), "{mode:?} {offset} {len}");
                let read = file.read_at(offset, buffer(len)).mode(mode).wait();
                assert_eq!(read.map_or(0, |done| done.bytes), 0, "{mode:?} {offset} {len}");
            }
            for len in [4096, 1 << 63, top - 4095, top] {
                let said = file.zero(offset, len).mode(mode).wait();
                assert!(said.is_err() || mode != Mode::Cached, "{mode:?} {offset} {len}");
                let _ = file.discard(offset, len).mode(mode).wait();
            }
        }
        for len in [4096, 1 << 63, top - 4095, top] {
            assert!(file.allocate(offset, len).wait().is_err(), "{offset} {len}");
        }
        assert!(offset < 1 << 63 || file.truncate(offset).wait().is_err(), "{offset}");
        assert!(file.pin(offset).wait().is_err() && file.pin_new(offset, 1).wait().is_err());
        for pages in [offset..top, offset..offset.saturating_add(1), 0..offset] {
            let _ = file.prefetch(std::slice::from_ref(&pages)).wait();
            let _ = file.drop_cached(pages.clone()).wait();
            let _ = file.keep_cached(pages.clone()).wait();
            let _ = file.keep_cached_no_more(pages.clone()).wait();
            assert!(pages.start == 0 || !matches!(file.lend(pages).wait(), Ok(Some(_))));
        }
    }
}
