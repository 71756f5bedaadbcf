//! Readers and writers over a disk that fails: an error is told once and in its place, nothing of what failed stays under way, and what was
//! closed is safe.

use std::pin::Pin;
use std::task::Poll;

use baio::{Core, EngineOptions, FormatOptions, Identity, Link, Local, Segment};
use baio_engine::Engine;
use baio_engine::sim::{Disk, Fault, Faults, Sim, Trigger};
use futures_util::io::{AsyncReadExt, AsyncWriteExt};

use crate::common;
use crate::common::stream::{PIECE, bytes, futures_io_write, write};

/// A volume on a simulated disk, with a segment of 1 MiB whose bytes are these.
fn simulated(content: &[u8]) -> (Disk, Local, Segment<Local>) {
    let config = EngineOptions {
        slots: 64,
        arena_bytes: 4 << 20,
        ..EngineOptions::default()
    };
    let disk = Disk::new(8 << 20);
    let file = baio_engine::File::simulated(&disk, "volume");
    let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config).unwrap();
    baio_storage::format_on(&mut engine, &file, &FormatOptions::default()).unwrap();
    let engine = Engine::simulated(Sim::new(2).unwrap(), &config).unwrap();
    let core = Core::open_on(engine, &file, &config).unwrap();
    let link = Local::around(core, Identity::effective());
    let segment = common::segment(&link, "stream", 1 << 20);
    link.block_on(write(&segment, 0, &[content])).unwrap().unwrap();
    (disk, link, segment)
}

/// Where the segment's bytes lie on the disk.
fn place(disk: &Disk, content: &[u8]) -> u64 {
    let mut page = vec![0; 4096];
    (0..disk.size() / 4096)
        .map(|number| number * 4096)
        .find(|&at| disk.read(at, &mut page) == 4096 && page == content[..4096])
        .unwrap()
}

#[test]
fn a_bad_page_is_told_once_in_its_place() {
    let content = bytes(1 << 20, 8);
    let (disk, link, segment) = simulated(&content);
    let bad = 2 * PIECE + 5 * 4096;
    let at = place(&disk, &content) + bad as u64;
    // The piece and the page in it; then the disk is well again.
    let trigger = Trigger::nth(Fault::ReadError, 1).times(2).within(at..at + 4096);
    disk.set_faults(Faults::none().when(trigger));
    link.block_on(async {
        let mut reader = segment.reader(100..);
        let mut seen = Vec::new();
        let error = reader.read_to_end(&mut seen).await.unwrap_err();
        assert!(seen == content[100..bad], "{} bytes", seen.len());
        let told = error.get_ref().unwrap().downcast_ref::<baio::Error>().unwrap();
        assert_eq!((told.code(), told.offset), ("EIO", Some(bad as u64)));
        assert_eq!(reader.position(), bad as u64);
        reader.read_to_end(&mut seen).await.unwrap();
        assert!(seen == content[100..]);
    })
    .unwrap();
}

#[test]
fn a_failed_write_is_told_once_and_ends_the_writer() {
    let content = bytes(1 << 20, 9);
    let (disk, link, segment) = simulated(&content);
    let at = place(&disk, &content) + PIECE as u64;
    disk.set_faults(Faults::none().when(Trigger::always(Fault::WriteError).within(at..at + 4096)));
    link.block_on(async {
        let mut writer = segment.writer(0);
        let error = match writer.write_all(&vec![1; 1 << 20]).await {
            Ok(()) => writer.flush().await.unwrap_err(),
            Err(error) => error,
        };
        let told = error.get_ref().unwrap().downcast_ref::<baio::Error>().unwrap();
        assert_eq!((told.code(), told.offset), ("EIO", Some(PIECE as u64)));
        for error in [
            writer.flush().await,
            writer.write_all(b"more").await,
            writer.close().await,
        ] {
            assert!(
                error
                    .unwrap_err()
                    .get_ref()
                    .is_none_or(|error| !error.is::<baio::Error>())
            );
        }
        // Nothing of it is under way: a write now is not overtaken.
        let page = segment.read_exact_at(0, segment.buffer(4096).unwrap()).await.unwrap();
        assert!(page.buffer.iter().all(|&byte| byte == 1));
    })
    .unwrap();
    assert_eq!(link.in_flight(), 0);
}

/// Both lie in one page, so the next write waits for the flush's, whoever lets it go on.
#[test]
fn what_is_written_next_waits_for_a_flush_that_was_given_up() {
    let old = bytes(1 << 20, 14);
    let (_disk, link, segment) = simulated(&old);
    let new = bytes(2 * PIECE, 15);
    link.block_on(async {
        let mut writer = segment.writer(0);
        writer.write_all(&new[..100]).await.unwrap();
        let mut polls = 0;
        std::future::poll_fn(|context| {
            polls += 1;
            assert!(Pin::new(&mut writer.flush()).poll(context).is_pending());
            if polls < 2 {
                return Poll::Pending;
            }
            // The page was read, and its write is queued.
            assert!(futures_io_write(&mut writer, context, &new[100..]).is_pending());
            Poll::Ready(())
        })
        .await;
        writer.write_all(&new[100..]).await.unwrap();
        writer.close().await.unwrap();
    })
    .unwrap();
    let mut seen = Vec::new();
    link.block_on(segment.reader(..).read_to_end(&mut seen))
        .unwrap()
        .unwrap();
    assert!(seen[..2 * PIECE] == new && seen[2 * PIECE..] == old[2 * PIECE..]);
}

/// What a direct writer must read first, to write whole pages, may fail too.
#[test]
fn a_page_that_cannot_be_mended_ends_the_writer() {
    let content = bytes(1 << 20, 13);
    let (disk, link, segment) = simulated(&content);
    let at = place(&disk, &content);
    disk.set_faults(Faults::none().when(Trigger::always(Fault::ReadError).within(at..at + 4096)));
    link.block_on(async {
        let mut writer = segment.writer(0);
        writer.write_all(&[1; 100]).await.unwrap();
        let error = writer.flush().await.unwrap_err();
        assert!(error.get_ref().unwrap().is::<baio::Error>());
        assert!(writer.close().await.is_err());
        let mut writer = segment.writer(100);
        assert!(writer.write_all(&[1; 100]).await.is_err());
    })
    .unwrap();
    disk.set_faults(Faults::none());
    let mut seen = Vec::new();
    link.block_on(segment.reader(..).read_to_end(&mut seen))
        .unwrap()
        .unwrap();
    assert!(seen == content, "and leaves all as it was");
}

/// A close is durable: the power may go at once.
#[test]
fn what_was_closed_survives_a_power_cut() {
    let content = bytes(1 << 20, 10);
    for seed in 0..10 {
        let (disk, link, segment) = simulated(&bytes(1 << 20, 11));
        link.block_on(write(&segment, 0, &[&content[..700_001]]))
            .unwrap()
            .unwrap();
        let at = place(&disk, &content);
        let survived = disk.power_cut(seed);
        let mut seen = vec![0; 700_001];
        survived.read(at, &mut seen);
        assert!(seen == content[..700_001]);
    }
}
