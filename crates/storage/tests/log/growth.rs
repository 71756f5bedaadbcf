//! A growth, and what comes between its two headers: reads, and memory that does not come back.

use baio_engine::{Errno, Memory};
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogRequest, Lsn};

use crate::rig::{Rig, record, small};

const SIZE: u64 = 8192 + (64 << 10);

/// A log that has wrapped, and is being grown: the first of the two headers is at the device.
fn growing() -> (Rig, u64, Lsn) {
    let options = LogOptions {
        recent_bytes: 0,
        ..small()
    };
    let mut rig = Rig::create(SIZE, &options);
    let mut lsns = Vec::new();
    for number in 0..40 {
        lsns.push(rig.write(&record(number, 1900)));
        if lsns.len() > 25 {
            rig.truncate(lsns[20]);
            lsns.drain(..20);
        }
    }
    // Where the area ends and the log goes on at its beginning: a place that the log remembers for who reads on.
    let from = rig.part.usage().head;
    let Ok(LogAnswer::Batches(Some(batches))) = rig.ask(LogRequest::Read { from }) else {
        panic!("they are there");
    };
    let wrapped = batches.next();
    assert!(wrapped < rig.appender.durable_lsn());
    rig.device.bytes.resize(SIZE as usize * 2, 0x77);
    let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
    rig.pump();
    while !matches!(rig.ios[0].kind, LogIoKind::Write { offset, .. } if offset < 8192) {
        rig.end(0);
        rig.pump();
    }
    (rig, owner, wrapped)
}

#[test]
fn a_read_between_the_headers_remembers_no_old_place() {
    let (mut rig, owner, wrapped) = growing();
    rig.end(0);
    rig.pump();
    let end = rig.appender.durable_lsn();
    let reader = rig.start(LogRequest::Read { from: wrapped });
    rig.pump();
    assert_eq!(rig.ios.len(), 2, "the second header, and the read");
    rig.end(0);
    assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Done))));
    rig.run();
    let Some(Ok(LogAnswer::Batches(Some(batches)))) = rig.take_done(reader) else {
        panic!("they are there");
    };
    assert_eq!(batches.next(), end);
    rig.write(b"behind the growth");
    let records = rig.try_read(end.0).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].1, b"behind the growth");
}

/// Where there is no room below a sparse file or a thin pool for the zeroes of a growth, nothing has happened to the log.
#[test]
fn a_growth_that_finds_no_room_leaves_the_log_as_it_was() {
    let mut rig = Rig::create(SIZE, &small());
    rig.write(&record(0, 100));
    rig.device.bytes.resize(SIZE as usize * 2, 0x77);
    let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
    rig.pump();
    rig.fail(0, Errno::ENOSPC, |sector| sector < 3);
    rig.run();
    let (errno, offset) = (Errno::ENOSPC, SIZE);
    let answer = rig.take_done(owner).expect("it has ended");
    assert_eq!(answer.err(), Some(LogError::Write { errno, offset }));
    rig.write(&record(1, 100));
    rig.ask(LogRequest::Grow { size_bytes: SIZE * 2 }).unwrap();
    assert_eq!(rig.part.usage().size_bytes, SIZE * 2);
    rig.write(&record(2, 100));
    let mut opened = Rig::open(rig.crash(|_, _| false), &small());
    assert_eq!(opened.payloads(), [0, 1, 2].map(|number| record(number, 100)));
}

/// Of one cache the kernel tells whoever asks first that a write-back has failed: it may have been that of a batch.
#[test]
fn a_growth_that_fails_in_a_cache_ends_the_log() {
    let mut rig = Rig::create(SIZE, &small());
    rig.part.goes_through_a_cache();
    rig.device.bytes.resize(SIZE as usize * 2, 0x77);
    let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
    rig.pump();
    rig.fail(0, Errno::EIO, |_| false);
    rig.run();
    let is_told = |error: &LogError| matches!(error, LogError::Failed { errno: Errno::EIO, .. });
    let answer = rig.take_done(owner);
    assert!(matches!(&answer, Some(Err(error)) if is_told(error)), "{answer:?}");
    assert!(rig.appender.append(b"x").is_err_and(|error| is_told(&error)));
}

/// A broker that hangs up cancels what it has, and who waits no more is told nothing: its zeroes may land when batches are there. So it is
/// also where another of the zeroes was refused.
#[test]
fn a_growth_that_no_device_has_refused_ends_the_log() {
    for errno in [Errno::ECANCELED, Errno::ETIMEDOUT, Errno::EPIPE] {
        let mut rig = Rig::create(SIZE, &small());
        let size_bytes = SIZE + (2 << 20);
        rig.device.bytes.resize(size_bytes as usize, 0x77);
        let owner = rig.start(LogRequest::Grow { size_bytes });
        rig.pump();
        assert!(rig.ios.len() > 1, "several zeroes are under way");
        rig.fail(0, Errno::ENOSPC, |_| false);
        rig.fail(0, errno, |_| false);
        rig.run();
        let is_told = |error: &LogError| matches!(error, LogError::Failed { errno: told, .. } if *told == errno);
        let answer = rig.take_done(owner);
        assert!(matches!(&answer, Some(Err(error)) if is_told(error)), "{answer:?}");
        assert!(rig.appender.append(b"x").is_err_and(|error| is_told(&error)));
    }
}

/// The pool below is full: a batch has failed before the zeroes do, and nobody says of that log that it goes on.
#[test]
fn a_growth_that_fails_behind_a_batch_says_that_the_log_has_ended() {
    let mut rig = Rig::create(SIZE, &small());
    rig.device.bytes.resize(SIZE as usize * 2, 0x77);
    rig.batch(&record(0, 100));
    let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
    rig.pump();
    for _ in ["the batch", "a zero"] {
        rig.fail(0, Errno::ENOSPC, |_| false);
    }
    rig.run();
    let answer = rig.take_done(owner);
    assert!(matches!(answer, Some(Err(LogError::Failed { .. }))), "{answer:?}");
    assert_eq!(rig.part.usage().size_bytes, SIZE);
}

#[test]
fn a_growth_without_memory_for_its_second_header_ends_the_log() {
    let (mut rig, owner, _) = growing();
    let before = rig.part.usage().head;
    let mut hogs = Vec::new();
    while let Some(buffer) = rig.arena.buffer(4096) {
        hogs.push(buffer);
    }
    // The kernel keeps the memory of the first, which is there.
    let io = rig.ios.remove(0);
    io.land(&mut rig.device, |_| true);
    rig.part.io_ended(io.id, Ok(512), Memory::None);
    rig.run();
    let answer = rig.take_done(owner);
    let is_told = |error: &LogError| matches!(error, LogError::Failed { errno, .. } if *errno == Errno::ENOMEM);
    assert!(matches!(&answer, Some(Err(error)) if is_told(error)), "{answer:?}");
    assert!(rig.appender.append(b"x").is_err_and(|error| is_told(&error)));
    drop(io);
    // Both sizes are right: what has wrapped is at both places.
    let mut opened = Rig::open(rig.crash(|_, _| false), &small());
    assert_eq!(opened.part.usage().head, before);
    assert_eq!(opened.payloads().last().unwrap(), &record(39, 1900));
    opened.write(b"it goes on");
}
