//! A device that writes less than it was asked to, and says so.

use baio_engine::Arena;
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogPart, LogRequest};

use crate::rig::{Device, Rig, SALT, UUID, gone_round, small};

const SIZE: u64 = 8192 + (64 << 10);

#[test]
fn a_growth_whose_copy_is_short_fails_and_loses_nothing() {
    let (mut rig, kept) = gone_round(SIZE, 40);
    rig.device.bytes.resize(SIZE as usize * 2, 0x77);
    let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
    // The copy of what has wrapped is what goes behind the old end and is no zeroes.
    let is_copy = |rig: &Rig| {
        let io = &rig.ios[0];
        matches!(io.kind, LogIoKind::Write { offset, .. } if offset == SIZE) && io.bytes().iter().any(|byte| *byte != 0)
    };
    rig.pump();
    while !is_copy(&rig) {
        rig.end(0);
        rig.pump();
    }
    let io = rig.ios.remove(0);
    rig.part.io_ended(io.id, Ok(512), io.memory);
    rig.run();
    let answer = rig.take_done(owner);
    assert!(matches!(answer, Some(Err(LogError::Failed { .. }))), "{answer:?}");
    let mut rig = Rig::open(rig.crash(|_, _| false), &small());
    assert!(rig.read() == kept);
}

/// Makes a log; the write with this number, counted from 0, ends with so many bytes.
fn made(number: usize, written: u32) -> (Option<Result<LogAnswer, LogError>>, Rig) {
    let arena = Arena::new(16 << 20).unwrap();
    let part = LogPart::create(&arena, SIZE, UUID, SALT, &small()).unwrap();
    let mut rig = Rig::of_unopened(arena, Device::new(SIZE), part);
    let owner = rig.start(LogRequest::Open);
    for _ in 0..number {
        rig.pump();
        rig.end(0);
    }
    rig.pump();
    let io = rig.ios.remove(0);
    let sectors = written as usize / 512;
    io.land(&mut rig.device, |sector| sector < sectors);
    rig.part.io_ended(io.id, Ok(written), io.memory);
    rig.run();
    (rig.take_done(owner), rig)
}

#[test]
fn a_log_that_is_made_with_short_writes_is_whole_or_none() {
    // What may have been a header, in both copies.
    for number in 0..2 {
        let (answer, _) = made(number, 0);
        assert!(matches!(answer, Some(Err(LogError::Failed { .. }))), "{answer:?}");
    }
    // The zeroes: nothing at all, and a part, of which the last block is not whole.
    let (answer, _) = made(2, 0);
    assert!(matches!(answer, Some(Err(LogError::Failed { .. }))), "{answer:?}");
    let (answer, rig) = made(2, 5 * 512 + 100);
    assert!(matches!(answer, Some(Ok(LogAnswer::Opened(_)))), "{answer:?}");
    assert!(rig.device.bytes[8192..].iter().all(|byte| *byte == 0));
}
