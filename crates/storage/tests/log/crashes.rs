//! What a crash, or a failing device, may leave of a log, and what an opening makes of it. Each rule has a test of its own.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use baio_engine::{Arena, Errno};
use baio_storage::log::{LogError, LogIoKind, LogOptions, LogPart, LogRequest, Lsn, WaitKey};

use crate::rig::{Device, Rig, gone_round, record, small};

const SIZE: u64 = 8192 + (64 << 10);

fn one(number: u64) -> Vec<u8> {
    record(number, 100)
}

/// A log with three records that were acknowledged, each in a batch of its own, and its uncrashed device.
fn three() -> Rig {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..3 {
        rig.write(&one(number));
    }
    rig
}

fn reopened(device: Device) -> Rig {
    Rig::open(device, &small())
}

fn expected(numbers: &[u64]) -> Vec<Vec<u8>> {
    numbers.iter().map(|number| one(*number)).collect()
}

#[test]
fn what_was_acknowledged_is_there() {
    let device = three().crash(|_, _| false);
    let mut rig = reopened(device);
    assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
    assert!(!rig.recovered().was_clean);
    rig.write(&one(3));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]), "in one opening");
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]), "over two");
}

#[test]
fn a_lost_middle_batch_ends_the_log() {
    let mut rig = three();
    for number in 3..6 {
        rig.batch(&one(number));
    }
    assert_eq!(rig.ios.len(), 3, "the window");
    // The second of the three is lost.
    let mut rig = reopened(rig.crash(|io, _| io != 1));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]));
    // And what stands behind the gap stays out when the gap is filled.
    rig.write(&one(9));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3, 9]));
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3, 9]));
}

#[test]
fn a_batch_behind_a_gap_is_never_acknowledged() {
    let mut rig = three();
    let lsns: Vec<u64> = (3..6).map(|number| rig.batch(&one(number))).collect();
    rig.end(2);
    rig.end(1);
    assert!(lsns.iter().all(|lsn| !rig.is_durable(*lsn)));
    rig.end(0);
    assert!(lsns.iter().all(|lsn| rig.is_durable(*lsn)), "the first one ended last");
}

#[test]
fn a_torn_last_batch_is_cut() {
    for torn in 0..4 {
        let mut rig = three();
        rig.batch(&record(3, 1900));
        let mut rig = reopened(rig.crash(|_, sector| sector != torn));
        assert_eq!(rig.payloads(), expected(&[0, 1, 2]), "without sector {torn}");
    }
    let mut rig = three();
    rig.batch(&record(3, 1900));
    let mut rig = reopened(rig.crash(|_, _| true));
    assert_eq!(rig.payloads().len(), 4, "not acknowledged, but there");
}

/// Where in the area the record was written whose batch began with it.
fn offset_of(rig: &Rig, bytes: &[u8]) -> u64 {
    let found = rig.device.bytes.windows(bytes.len()).position(|window| window == bytes);
    found.unwrap() as u64
}

#[test]
fn rot_below_the_watermark_is_told_with_its_place() {
    // The batches behind it say so.
    for rotten in 0..2 {
        let mut rig = three();
        let end = rig.read()[..rotten].len() as u64 * 512 + 8192;
        let offset = offset_of(&rig, &one(rotten as u64));
        rig.device.flip(offset);
        let error = Rig::try_open(rig.crash(|_, _| false), &small()).err();
        let expected = LogError::Rot {
            lsn: Lsn(end),
            offset: offset / 512 * 512,
        };
        assert_eq!(error, Some(expected));
    }
}

#[test]
fn rot_of_the_last_batch_is_known_by_the_header_of_an_idle_log() {
    let mut rig = three();
    assert!(rig.part.next_tick().is_some());
    rig.tick(1000);
    rig.run();
    assert_eq!(rig.part.next_tick(), None, "the device knows");
    let offset = offset_of(&rig, &one(2));
    rig.device.flip(offset);
    let error = Rig::try_open(rig.crash(|_, _| false), &small()).err();
    assert!(matches!(error, Some(LogError::Rot { lsn: Lsn(9216), .. })), "{error:?}");
}

#[test]
fn rot_of_the_last_batch_is_known_by_the_header_of_a_closed_log() {
    let mut rig = three();
    rig.ask(LogRequest::Close).unwrap();
    let offset = offset_of(&rig, &one(2));
    rig.device.flip(offset);
    let error = Rig::try_open(rig.crash(|_, _| false), &small()).err();
    assert!(matches!(error, Some(LogError::Rot { lsn: Lsn(9216), .. })), "{error:?}");
}

#[test]
fn rot_of_many_batches_is_known_by_the_header_of_a_busy_log() {
    let size = 8192 + (80 << 20);
    let options = LogOptions {
        batch_bytes_max: 256 << 10,
        buffer_bytes: 2 << 20,
        ..small()
    };
    let mut rig = Rig::create(size, &options);
    for number in 0..66 {
        rig.write(&record(number, 1 << 20));
    }
    // All that was written is gone, but for the beginning.
    rig.device.bytes[8192 + (1 << 20)..].fill(0);
    let error = Rig::try_open(rig.crash(|_, _| false), &options).err();
    assert!(matches!(error, Some(LogError::Rot { .. })), "{error:?}");
}

#[test]
fn rot_above_the_watermark_cuts_the_tail() {
    // A single copy cannot tell it from a batch that was never whole: the last one, of a log that was not idle yet.
    let mut rig = three();
    let offset = offset_of(&rig, &one(2));
    rig.device.flip(offset);
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected(&[0, 1]));
}

#[test]
fn what_is_in_flight_says_nothing_of_its_neighbours() {
    // Two batches in flight, the first lost: the second one's watermark is not above the gap.
    let mut rig = three();
    rig.batch(&one(3));
    rig.batch(&one(4));
    let mut rig = reopened(rig.crash(|io, _| io == 1));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
    // The same in an epoch that begins with it.
    rig.batch(&one(5));
    rig.batch(&one(6));
    let mut rig = reopened(rig.crash(|io, _| io == 1));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
}

#[test]
fn ghosts_of_the_last_lap_stay_out() {
    let mut rig = Rig::create(SIZE, &small());
    // More than a lap of batches of the same size, all kept short by truncation.
    for number in 0..300 {
        let lsn = rig.write(&one(number));
        if number % 10 == 9 {
            rig.truncate(lsn);
        }
    }
    let expected = rig.payloads();
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected);
}

#[test]
fn ghosts_of_an_earlier_opening_stay_out() {
    // Three in flight; the first is lost. The next opening writes one of the same size in its place, so that the old second
    // stands right behind it.
    let mut rig = three();
    for number in 3..6 {
        rig.batch(&one(number));
    }
    let mut rig = reopened(rig.crash(|io, _| io != 0));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
    rig.write(&one(9));
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 9]));
}

#[test]
fn a_failed_write_fails_all_from_it_on() {
    let mut rig = three();
    let lsns: Vec<u64> = (3..6).map(|number| rig.batch(&one(number))).collect();
    let later = rig.append(&one(6));
    rig.fail(1, Errno::EIO, |_| false);
    assert!(
        rig.poll(lsns[0]).is_pending(),
        "the one before may still be acknowledged"
    );
    for lsn in [lsns[1], lsns[2], later] {
        match rig.poll(lsn) {
            Poll::Ready(Err(LogError::Failed { errno, lsn: from })) => {
                assert!(errno == Errno::EIO && from.0 <= lsns[1] && from.0 > lsns[0], "{from}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(rig.appender.append(b"x"), Err(LogError::Failed { .. })));
    rig.end(1);
    rig.end(0);
    assert!(rig.is_durable(lsns[0]) && !rig.is_durable(lsns[1]) && !rig.is_durable(lsns[2]));
    rig.pump();
    assert!(rig.ios.is_empty(), "nothing more is written");
    assert!(matches!(rig.ask(LogRequest::Close), Err(LogError::Failed { .. })));
    // What was acknowledged is there, without a gap; what was not landed either.
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]));
    rig.write(&one(7));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3, 7]));
}

#[test]
fn a_failed_write_that_landed_may_be_found() {
    let mut rig = three();
    let lsn = rig.batch(&one(3));
    rig.fail(0, Errno::EIO, |_| true);
    assert!(!rig.is_durable(lsn));
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(
        rig.payloads(),
        expected(&[0, 1, 2, 3]),
        "indeterminate: here it is there"
    );
}

/// Opens what a process before this one has left in the kernel's cache.
fn reopened_through_a_cache(device: Device) -> Rig {
    let arena = Arena::new(8 << 20).unwrap();
    let mut part = LogPart::open(&arena, SIZE, &small()).unwrap();
    part.goes_through_a_cache();
    Rig::of(arena, device, part).unwrap()
}

/// The kernel keeps a page whose write-back has failed, and says so to nobody who comes later.
#[test]
fn what_only_the_kernels_cache_has_is_written_before_anything_follows_it() {
    for is_known in [false, true] {
        let mut rig = three();
        rig.batch(&one(3));
        rig.write_back_fails(0);
        let device = rig.crash(|_, _| false);
        let mut rig = match is_known {
            true => reopened_through_a_cache(device),
            false => reopened(device),
        };
        assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]));
        rig.write(&one(4));
        let left = Rig::try_open(rig.crash(|_, _| false).without_cache(), &small());
        if is_known {
            assert_eq!(left.unwrap().payloads(), expected(&[0, 1, 2, 3, 4]));
        } else {
            // So it is for who does not know of the cache.
            assert!(matches!(left.err(), Some(LogError::Rot { .. })));
        }
    }
}

/// An opening of a log whose last batch only the kernel's cache has, up to its first I/O of this kind.
fn settling(is_wanted: fn(LogIoKind) -> bool) -> (Rig, u64) {
    let mut rig = three();
    rig.batch(&one(3));
    rig.write_back_fails(0);
    let arena = Arena::new(8 << 20).unwrap();
    let mut part = LogPart::open(&arena, SIZE, &small()).unwrap();
    part.goes_through_a_cache();
    let mut rig = Rig::of_unopened(arena, rig.crash(|_, _| false), part);
    let owner = rig.start(LogRequest::Open);
    rig.pump();
    while !is_wanted(rig.ios[0].kind) {
        rig.end(0);
        rig.pump();
    }
    (rig, owner)
}

/// Nothing follows what could not be written again; the next opening tries that once more.
#[test]
fn a_batch_that_cannot_be_written_again_ends_the_opening() {
    for is_short in [false, true] {
        let (mut rig, owner) = settling(|kind| matches!(kind, LogIoKind::Write { .. }));
        assert!(rig.ios[0].is_batch(), "before any header");
        if is_short {
            let io = rig.ios.remove(0);
            rig.part.io_ended(io.id, Ok(0), io.memory);
        } else {
            rig.fail(0, Errno::EIO, |_| false);
        }
        rig.pump();
        assert!(rig.ios.is_empty(), "nothing more is written");
        let answer = rig.take_done(owner);
        let is_told = matches!(answer, Some(Err(LogError::Failed { errno: Errno::EIO, .. })));
        assert!(is_told, "{answer:?}, short: {is_short}");
        let mut rig = reopened_through_a_cache(rig.crash(|_, _| false));
        assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]));
        rig.write(&one(4));
        let mut rig = reopened(rig.crash(|_, _| false).without_cache());
        assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3, 4]));
    }
}

/// The kernel gives up a clean page when it likes, also between the two reads of an opening.
#[test]
fn a_batch_that_has_left_the_cache_since_it_was_found_ends_the_opening() {
    let (mut rig, owner) = settling(|kind| matches!(kind, LogIoKind::Read { offset, len: 512 } if offset > 8192));
    rig.device = rig.device.without_cache();
    rig.run();
    let answer = rig.take_done(owner).expect("it has ended");
    let (errno, offset) = (Errno::EIO, 8192 + 3 * 512);
    assert_eq!(answer.err(), Some(LogError::Read { errno, offset }));
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
}

/// Wherever they lie in the area, also around its end.
#[test]
fn a_window_of_batches_that_only_a_cache_has_is_written_again() {
    for records in 25..65 {
        let (mut rig, mut kept) = gone_round(SIZE, records);
        for number in 0..3 {
            let bytes = record(1000 + number, 1500);
            kept.push((rig.batch(&bytes), bytes));
        }
        assert_eq!(rig.ios.len(), 3, "the window");
        while !rig.ios.is_empty() {
            rig.write_back_fails(0);
        }
        let mut rig = reopened_through_a_cache(rig.crash(|_, _| false));
        assert!(rig.read() == kept, "{records}");
        kept.push((rig.write(&one(9)), one(9)));
        let mut rig = reopened(rig.crash(|_, _| false).without_cache());
        assert!(rig.read() == kept, "{records}");
    }
}

#[test]
fn a_failed_header_fails_the_log() {
    let mut rig = three();
    let owner = rig.start(LogRequest::Truncate {
        to: Lsn(8192 + 512 + 64),
    });
    while !rig
        .ios
        .iter()
        .any(|io| !io.is_batch() && matches!(io.kind, baio_storage::log::LogIoKind::Write { .. }))
    {
        rig.pump();
        if rig
            .ios
            .iter()
            .any(|io| matches!(io.kind, baio_storage::log::LogIoKind::Read { .. }))
        {
            rig.end(0);
        }
    }
    rig.fail(0, Errno::EIO, |_| true);
    rig.run();
    assert!(matches!(rig.take_done(owner), Some(Err(LogError::Failed { .. }))));
    assert!(matches!(rig.appender.append(b"x"), Err(LogError::Failed { .. })));
    let mut rig = reopened(rig.crash(|_, _| false));
    let found = rig.payloads();
    assert!(
        found == expected(&[0, 1, 2]) || found == expected(&[1, 2]),
        "{}",
        found.len()
    );
}

#[test]
fn one_rotten_copy_of_the_header_falls_back_to_the_other() {
    for copy in [0, 4096] {
        let mut rig = three();
        rig.device.flip(copy + 100);
        let mut rig = reopened(rig.crash(|_, _| false));
        assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
        let lsn = rig.write(&one(3));
        // The other copy, in the next opening; the first was written anew.
        rig.device.flip(4096 - copy + 100);
        let mut rig = reopened(rig.crash(|_, _| false));
        assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]));
        assert!(rig.append(&one(4)) > lsn);
    }
}

#[test]
fn a_copy_that_cannot_be_read_falls_back_too() {
    for copy in [0, 4096] {
        let mut rig = three();
        rig.device.unreadable.push(copy..copy + 512);
        let mut rig = reopened(rig.crash(|_, _| false));
        assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
    }
}

#[test]
fn without_both_copies_the_log_is_lost_and_says_so() {
    let mut rig = three();
    rig.device.flip(100);
    rig.device.flip(4096 + 100);
    let error = Rig::try_open(rig.crash(|_, _| false), &small()).err();
    assert_eq!(error, Some(LogError::HeaderLost));
    let error = Rig::try_open(Device::new(SIZE), &small()).err();
    assert_eq!(error, Some(LogError::NotLog));
}

#[test]
fn an_opening_that_is_cut_off_raises_no_epoch_by_halves() {
    // The new epoch is in one copy only, and that copy rots: nothing was appended in it.
    let device = three().crash(|_, _| false);
    let arena = baio_engine::Arena::new(8 << 20).unwrap();
    let mut part = baio_storage::log::LogPart::open(&arena, SIZE, &small()).unwrap();
    let mut device = device;
    let mut headers = 0;
    while let Some((id, kind, mut memory)) = part.next_io() {
        assert!(
            part.appender().append(b"early").is_err(),
            "nothing is appended before both copies have it"
        );
        let result = match kind {
            baio_storage::log::LogIoKind::Read { offset, len } => {
                memory.copy_in_at(0, &device.bytes[offset as usize..][..len as usize]);
                Ok(len)
            }
            baio_storage::log::LogIoKind::Write { offset, len } => {
                headers += 1;
                if headers == 2 {
                    break;
                }
                let mut bytes = vec![0; len as usize];
                memory.copy_out_at(0, &mut bytes);
                device.bytes[offset as usize..][..len as usize].copy_from_slice(&bytes);
                Ok(len)
            }
            baio_storage::log::LogIoKind::Sync | baio_storage::log::LogIoKind::Allocate { .. } => Ok(0),
        };
        part.io_ended(id, result, memory);
    }
    assert_eq!(headers, 2);
    for rotten in [None, Some(0), Some(4096)] {
        let mut device = device.clone();
        if let Some(at) = rotten {
            device.flip(at + 100);
        }
        let mut rig = reopened(device);
        assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
        rig.write(&one(3));
        let mut rig = reopened(rig.crash(|_, _| false));
        assert_eq!(rig.payloads(), expected(&[0, 1, 2, 3]));
    }
}

#[test]
fn no_lsn_is_given_twice() {
    let mut device = three().crash(|_, _| false);
    let mut given = std::collections::BTreeSet::new();
    for round in 0..20 {
        let mut rig = reopened(device);
        let mut appended = 0;
        // As many as the buffer takes, and nothing of it, or one batch, reaches the device.
        while let Ok(lsn) = rig.appender.append(&one(appended)) {
            assert!(given.insert(lsn.0), "{lsn} in round {round}");
            appended += 1;
        }
        assert!(appended > 100);
        rig.pump();
        device = rig.crash(|io, _| io == 0 && round % 3 == 0);
    }
}

#[test]
fn a_group_is_recovered_whole_or_not_at_all() {
    let group: Vec<Vec<u8>> = (0..5).map(|number| record(number, 1000)).collect();
    let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
    for landed in 0..=3 {
        let mut rig = three();
        let first = rig.appender.end_lsn().0 + 64;
        let last = rig.appender.append_all(&slices).unwrap();
        rig.pump();
        assert_eq!(rig.ios.len(), 3, "it takes three batches");
        for _ in 0..landed {
            rig.end(0);
        }
        let is_whole = landed == 3;
        assert_eq!(rig.is_durable(last.0), is_whole);
        assert_eq!(rig.is_durable(first), is_whole, "nor is any other of the group");
        assert_eq!(rig.payloads_at_hand(), if is_whole { 8 } else { 3 });
        let mut rig = reopened(rig.crash(|_, _| false));
        let found = rig.payloads();
        assert_eq!(found.len(), if is_whole { 8 } else { 3 });
        rig.write(&one(7));
        assert_eq!(rig.payloads().len(), found.len() + 1, "what is not whole stays out");
        let mut rig = reopened(rig.crash(|_, _| false));
        assert_eq!(rig.payloads().len(), found.len() + 1);
    }
}

#[test]
fn space_is_not_used_again_before_the_head_is_durable() {
    let mut rig = Rig::create(SIZE, &small());
    let mut lsns = Vec::new();
    loop {
        match rig.appender.append(&record(lsns.len() as u64, 1900)) {
            Ok(lsn) => lsns.push(lsn.0),
            Err(error) => {
                assert_eq!(error, LogError::Full);
                break;
            }
        }
        rig.run();
    }
    assert_eq!(lsns.len(), 32, "the area is full");
    rig.start(LogRequest::Truncate { to: Lsn(lsns[8]) });
    // Neither while it looks for the head, nor with the head in one copy only, is anything free.
    let mut headers = 0;
    loop {
        rig.pump();
        let Some(io) = rig.ios.first() else {
            break;
        };
        headers += usize::from(matches!(io.kind, baio_storage::log::LogIoKind::Write { .. }));
        assert_eq!(
            rig.appender.append(&record(99, 1900)).err(),
            Some(LogError::Full),
            "{headers}"
        );
        rig.end(0);
    }
    assert_eq!(headers, 2);
    rig.write(&record(99, 1900));
    assert_eq!(rig.payloads().len(), 25);
    // One copy rots: the other has the same head.
    for copy in [0, 4096] {
        let mut device = rig.device.clone();
        device.flip(copy + 100);
        assert_eq!(reopened(device).payloads().len(), 25);
    }
}

#[test]
fn what_a_crash_has_lost_is_never_told_as_durable() {
    let mut rig = three();
    let kept = rig.read()[2].0;
    let lost = rig.batch(&one(3));
    let waits = |rig: &Rig, lsn: u64| {
        let heard = Arc::new(Mutex::new(None));
        let into = Arc::clone(&heard);
        let callback = move |result| *into.lock().unwrap() = Some(result);
        rig.appender.when_durable(Lsn(lsn), Box::new(callback));
        heard
    };
    let device = rig.crash(|_, _| false);
    // Some ask before the opening is over.
    let arena = Arena::new(64 << 20).unwrap();
    let part = LogPart::open(&arena, SIZE, &small()).unwrap();
    let appender = part.appender();
    let heard = Arc::new(Mutex::new(Vec::new()));
    for lsn in [kept, lost] {
        let into = Arc::clone(&heard);
        let callback = move |result| into.lock().unwrap().push((lsn, result));
        appender.when_durable(Lsn(lsn), Box::new(callback));
    }
    let mut rig = Rig::of(arena, device, part).unwrap();
    let recovered = rig.recovered();
    let error = LogError::Lost {
        end: recovered.end,
        next: recovered.next,
    };
    assert!(recovered.end.0 < lost && lost < recovered.next.0);
    assert_eq!(*heard.lock().unwrap(), [(kept, Ok(())), (lost, Err(error.clone()))]);
    assert_eq!(rig.poll(kept), Poll::Ready(Ok(())));
    for lsn in [lost, recovered.next.0 - 8] {
        assert_eq!(rig.poll(lsn), Poll::Ready(Err(error.clone())));
        let heard = waits(&rig, lsn);
        rig.collect();
        assert_eq!(*heard.lock().unwrap(), Some(Err(error.clone())));
    }
    // A reader who has read all waits at the old end for the first new record: nothing is lost for it.
    let (end, mut key) = (recovered.end.0, WaitKey::default());
    assert!(rig.try_read(end).unwrap().is_empty());
    assert!(
        rig.appender
            .poll_durable(Lsn(end), &mut key, Waker::noop())
            .is_pending()
    );
    let heard = waits(&rig, end);
    let new = rig.write(&one(4));
    assert_eq!(*heard.lock().unwrap(), Some(Ok(())));
    assert_eq!(rig.poll(end), Poll::Ready(Ok(())));
    assert_eq!(rig.poll(new), Poll::Ready(Ok(())));
    assert_eq!(rig.poll(lost), Poll::Ready(Err(error)));
    assert_eq!(rig.try_read(end).unwrap(), [(new, one(4))]);
}

#[test]
fn a_group_that_a_crash_has_cut_is_lost_as_a_whole() {
    let mut rig = three();
    let group: Vec<Vec<u8>> = (0..4).map(|number| record(number, 1500)).collect();
    let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
    rig.appender.append_all(&slices).unwrap();
    rig.pump();
    let mut rig = reopened(rig.crash(|io, _| io < 2));
    let recovered = rig.recovered();
    // Its first record stands in a batch that is there.
    assert!(matches!(
        rig.poll(recovered.end.0),
        Poll::Ready(Err(LogError::Lost { .. }))
    ));
    assert_eq!(rig.payloads(), expected(&[0, 1, 2]));
}

#[test]
fn salvage_goes_on_behind_a_hole_and_says_so() {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..20 {
        rig.write(&one(number));
    }
    rig.tick(1000);
    rig.run();
    let offset = offset_of(&rig, &one(5)) / 512 * 512;
    rig.device.flip(offset + 20);
    rig.device.flip(offset + 512 + 20);
    let device = rig.crash(|_, _| false);
    assert!(matches!(
        Rig::try_open(device.clone(), &small()),
        Err(LogError::Rot { .. })
    ));
    let salvaging = LogOptions {
        salvage: true,
        ..small()
    };
    let mut rig = Rig::open(device, &salvaging);
    let holes = rig.recovered().holes;
    assert_eq!(holes.len(), 1);
    assert_eq!((holes[0].offset, holes[0].to.0 - holes[0].from.0), (offset, 1024));
    let kept: Vec<u64> = (0..20).filter(|number| !(5..7).contains(number)).collect();
    assert_eq!(rig.payloads(), expected(&kept));
    rig.write(&one(20));
    let kept: Vec<u64> = kept.into_iter().chain([20]).collect();
    assert_eq!(rig.payloads(), expected(&kept));
    // It is known from now on.
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.recovered().holes.len(), 1);
    assert_eq!(rig.payloads(), expected(&kept));
    // And it is over when its place is given up.
    let lsn = rig.read()[10].0;
    rig.truncate(lsn);
    let mut rig = reopened(rig.crash(|_, _| false));
    assert!(rig.recovered().holes.is_empty());
    assert_eq!(rig.payloads(), expected(&kept[10..]));
}

#[test]
fn salvage_of_a_lost_end_gives_no_lsn_twice() {
    let mut rig = three();
    rig.tick(1000);
    rig.run();
    let lsn = rig.read()[2].0;
    let offset = offset_of(&rig, &one(2));
    rig.device.flip(offset);
    let salvaging = LogOptions {
        salvage: true,
        ..small()
    };
    let mut rig = Rig::open(rig.crash(|_, _| false), &salvaging);
    assert_eq!(rig.payloads(), expected(&[0, 1]));
    assert_eq!(rig.recovered().holes.len(), 1);
    assert!(rig.write(&one(3)) > lsn);
    let mut rig = reopened(rig.crash(|_, _| false));
    assert_eq!(rig.payloads(), expected(&[0, 1, 3]));
}

#[test]
fn what_rots_after_a_salvage_is_told() {
    let salvaging = LogOptions {
        salvage: true,
        ..small()
    };
    let is_rot = |device| matches!(Rig::try_open(device, &small()).err(), Some(LogError::Rot { .. }));
    // At the end.
    let mut rig = three();
    rig.tick(1000);
    rig.run();
    let at = offset_of(&rig, &one(2));
    rig.device.flip(at);
    let mut rig = Rig::open(rig.crash(|_, _| false), &salvaging);
    rig.write(&one(3));
    rig.tick(1000);
    rig.run();
    let at = offset_of(&rig, &one(3));
    rig.device.flip(at);
    assert!(is_rot(rig.crash(|_, _| false)));
    // Right behind a known hole.
    let mut rig = three();
    (3..6).for_each(|number| {
        rig.write(&one(number));
    });
    rig.tick(1000);
    rig.run();
    let at = offset_of(&rig, &one(2));
    rig.device.flip(at);
    let mut rig = Rig::open(rig.crash(|_, _| false), &salvaging);
    let at = offset_of(&rig, &one(3));
    rig.device.flip(at);
    assert!(is_rot(rig.crash(|_, _| false)));
}
