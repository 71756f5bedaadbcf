//! All of a new log is written once, by several writes at a time, and it is no log before the last has ended.

mod log_harness;

use std::sync::Arc;

use baio_engine::{Arena, Errno};
use baio_storage::log::format::Header;
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogPart, LogRequest};
use log_harness::{Device, Io, Rig, SALT, UUID, record, small};

const MIB: u64 = 1 << 20;
/// No whole number of writes.
const SIZE: u64 = 8192 + 13 * MIB + 512;

/// A log of which both copies of what was there are cleared, and a request that waits for it.
fn cleared(arena: &Arc<Arena>, options: &LogOptions) -> (Rig, u64) {
    let part = LogPart::create(arena, SIZE, UUID, SALT, options).unwrap();
    let mut rig = Rig::of_unopened(Arc::clone(arena), Device::new(SIZE), part);
    let owner = rig.start(LogRequest::Open);
    for _ in 0..2 {
        rig.pump();
        rig.end(0);
    }
    rig.pump();
    (rig, owner)
}

fn len_of(rig: &Rig, index: usize) -> u64 {
    match rig.ios[index].kind {
        LogIoKind::Write { offset, len } if offset >= 8192 => len.into(),
        other => panic!("{other:?}"),
    }
}

fn has_header(rig: &Rig) -> bool {
    Header::decode(&rig.device.bytes).is_ok()
}

#[test]
fn zeroes_end_in_any_order() {
    let arena = Arena::new(64 << 20).unwrap();
    for (window, at_once) in [(1, 4), (6, 6), (64, 8)] {
        let (mut rig, owner) = cleared(&arena, &LogOptions { window, ..small() });
        let (mut state, mut most) = (1_usize, 0);
        while rig.ios.iter().all(Io::is_batch) {
            assert!(!rig.ios.is_empty() && rig.ios.len() <= at_once && !has_header(&rig));
            assert!((0..rig.ios.len()).all(|index| len_of(&rig, index) <= MIB));
            most = most.max(rig.ios.len());
            state = state.wrapping_mul(31).wrapping_add(7);
            rig.end(state % rig.ios.len());
            rig.pump();
        }
        assert_eq!((most, rig.ios.len()), (at_once, 1), "the first header is alone");
        rig.run();
        assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Opened(_)))));
        assert!(rig.device.bytes[8192..].iter().all(|byte| *byte == 0));
        rig.write(&record(0, 100));
    }
}

#[test]
fn what_is_short_is_written_again() {
    let arena = Arena::new(64 << 20).unwrap();
    let (mut rig, owner) = cleared(&arena, &small());
    // Every write is cut once, somewhere in a block.
    for number in 0..13 {
        let io = rig.ios.remove(0);
        let written = 512 * (number + 1) + 100;
        io.land(&mut rig.device, |sector| sector < written as usize / 512);
        rig.part.io_ended(io.id, Ok(written), io.memory);
        rig.pump();
    }
    rig.run();
    assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Opened(_)))));
    assert!(rig.device.bytes[8192..].iter().all(|byte| *byte == 0));
}

#[test]
fn one_that_fails_is_told_when_the_others_have_ended() {
    let arena = Arena::new(64 << 20).unwrap();
    let (mut rig, owner) = cleared(&arena, &small());
    assert_eq!(rig.ios.len(), 4);
    rig.fail(1, Errno::ENOSPC, |_| false);
    rig.pump();
    assert_eq!(rig.ios.len(), 3, "no more are begun");
    assert!(rig.take_done(owner).is_none());
    rig.fail(0, Errno::EIO, |_| false);
    rig.run();
    let answer = rig.take_done(owner);
    let first = Errno::ENOSPC;
    assert!(
        matches!(&answer, Some(Err(LogError::Failed { errno, .. })) if *errno == first),
        "{answer:?}"
    );
    assert!(!has_header(&rig));
}

#[test]
fn they_take_the_memory_of_one_write() {
    let arena = Arena::new(64 << 20).unwrap();
    let (rig, _) = cleared(&arena, &LogOptions { window: 64, ..small() });
    assert_eq!(rig.ios.len(), 8);
    // Beside the batches, which a log has from the beginning.
    let batches = 66 * 4096 + 4096;
    assert!(
        arena.free_bytes() as u64 >= (64 << 20) - MIB - batches,
        "{}",
        arena.free_bytes()
    );
    drop(rig);
    // And less where there is less.
    let arena = Arena::new(256 << 10).unwrap();
    let (mut rig, owner) = cleared(&arena, &small());
    assert_eq!(len_of(&rig, 0), 64 << 10);
    rig.run();
    assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Opened(_)))));
}
