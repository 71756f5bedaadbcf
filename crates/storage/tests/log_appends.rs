//! Appending, waiting, reading, truncating and growing, without a crash.

mod log_harness;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use baio_engine::{Arena, Errno, Time};
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogPart, LogRequest, Lsn, RecordReader, WaitKey};
use log_harness::{Rig, UUID, Woken, record, small};

const SIZE: u64 = 8192 + (64 << 10);

#[test]
fn records_of_all_sizes_come_back() {
    for (block_bytes, batch_bytes_max) in [(512, 4096), (4096, 256 << 10)] {
        let options = LogOptions {
            block_bytes,
            batch_bytes_max,
            buffer_bytes: 20 << 20,
            ..small()
        };
        let mut rig = Rig::create(24 << 20, &options);
        let sizes = [
            0, 1, 7, 8, 9, 63, 64, 440, 441, 448, 504, 505, 511, 512, 513, 4000, 4096, 5000, 70_000, 300_000,
        ];
        let mut expected = Vec::new();
        for (number, size) in sizes.into_iter().enumerate() {
            let bytes = record(number as u64, size);
            expected.push((rig.append(&bytes), bytes));
            if number % 3 == 0 {
                rig.pump();
            }
        }
        let long = record(99, 16 << 20);
        expected.push((rig.append(&long), long));
        rig.run();
        assert!(rig.is_durable(expected[expected.len() - 1].0));
        assert_eq!(rig.read().len(), expected.len());
        assert!(rig.read() == expected);
        assert!(
            expected
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[1].0 % 8 == 0)
        );
        // From any record on.
        for index in [0, 5, 17, 20] {
            assert!(rig.try_read(expected[index].0).unwrap() == expected[index..]);
        }
        rig.ask(LogRequest::Close).unwrap();
        let mut rig = Rig::open(rig.crash(|_, _| false), &options);
        assert!(rig.recovered().was_clean);
        assert!(rig.read() == expected);
    }
}

#[test]
fn what_arrives_while_the_device_is_busy_is_one_batch() {
    let mut rig = Rig::create(SIZE, &LogOptions { window: 1, ..small() });
    rig.batch(b"alone");
    assert_eq!(rig.ios.len(), 1);
    for _ in 0..10 {
        rig.batch(b"together");
    }
    assert_eq!(rig.ios.len(), 1, "the window is full");
    rig.end(0);
    rig.pump();
    assert_eq!(rig.ios.len(), 1);
    rig.run();
    let usage = rig.part.usage();
    assert_eq!((usage.batches, usage.batch_records, usage.appends), (2, 11, 11));
    assert_eq!(usage.batch_sizes.iter().sum::<u64>(), 2);
    assert_eq!(usage.durable, usage.next);
}

#[test]
fn a_full_buffer_would_block_and_says_when_there_is_room() {
    let mut rig = Rig::create(SIZE, &small());
    let mut appended = 0;
    while rig.appender.append(&record(appended, 500)).is_ok() {
        appended += 1;
    }
    assert!(appended > 100, "{appended}");
    assert_eq!(rig.appender.append(&[0; 500]), Err(LogError::WouldBlock));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut key = WaitKey::default();
    assert!(rig.appender.poll_room(500, &mut key, &waker).is_pending());
    // The area is as small as the buffer here: only truncation makes room.
    rig.run();
    let lsn = rig.read()[50].0;
    rig.truncate(lsn);
    assert!(woken.count() > 0);
    assert_eq!(rig.appender.poll_room(500, &mut key, &waker), Poll::Ready(Ok(())));
    rig.write(&[1; 500]);

    // A large area, a small buffer.
    let mut rig = Rig::create(1 << 20, &small());
    while rig.appender.append(&[0; 500]).is_ok() {}
    assert!(rig.appender.poll_room(500, &mut key, &waker).is_pending());
    let before = woken.count();
    rig.pump();
    rig.end(0);
    assert_eq!(woken.count(), before + 1, "a batch is durable");
    assert_eq!(rig.appender.poll_room(500, &mut key, &waker), Poll::Ready(Ok(())));
}

#[test]
fn nobody_sleeps_beside_room_that_is_large_enough() {
    for filling in [100, 504, 1000, 1900] {
        let mut rig = Rig::create(SIZE, &small());
        let mut lsns = Vec::new();
        while let Ok(lsn) = rig.appender.append(&vec![1; filling]) {
            lsns.push(lsn.0);
        }
        while rig.appender.append(&[]).is_ok() {}
        let woken: Vec<Arc<Woken>> = (0..2200).map(|_| Arc::new(Woken::default())).collect();
        let mut keys: Vec<WaitKey> = woken.iter().map(|_| WaitKey::default()).collect();
        for (size, (woken, key)) in woken.iter().zip(&mut keys).enumerate() {
            let waker = Waker::from(Arc::clone(woken));
            assert!(rig.appender.poll_room(size, key, &waker).is_pending());
        }
        rig.run();
        for step in 0..12 {
            rig.truncate(lsns[step * 2 + 1]);
            let mut key = WaitKey::default();
            for (size, woken) in woken.iter().enumerate().filter(|(_, woken)| woken.count() == 0) {
                let polled = rig.appender.poll_room(size, &mut key, Waker::noop());
                assert!(polled.is_pending(), "{filling} {step} {size} {}", woken.count());
            }
        }
    }
}

#[test]
fn an_arena_that_is_used_up_is_waited_for_or_told() {
    let arena = Arena::new(1 << 20).unwrap();
    let options = LogOptions {
        batch_bytes_max: 64 << 10,
        block_bytes: 512,
        window: 2,
        ..LogOptions::default()
    };
    let part = LogPart::create(&arena, 8 << 20, UUID, &options).unwrap();
    let mut rig = Rig::of(Arc::clone(&arena), log_harness::Device::new(8 << 20), part).unwrap();
    let others: Vec<_> = std::iter::from_fn(|| arena.buffer(4096)).collect();
    let mut key = WaitKey::default();
    // More than the buffers that the log keeps, and nothing of it will come back.
    assert_eq!(rig.appender.append(&[1; 300_000]), Err(LogError::NoMemory));
    let polled = rig.appender.poll_room(300_000, &mut key, Waker::noop());
    assert_eq!(polled, Poll::Ready(Err(LogError::NoMemory)));
    // What the log has itself comes back.
    while rig.appender.append(&[2; 1000]).is_ok() {}
    assert_eq!(rig.appender.append(&[2; 1000]), Err(LogError::WouldBlock));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(rig.appender.poll_room(1000, &mut key, &waker).is_pending());
    rig.run();
    assert!(woken.count() > 0);
    assert_eq!(rig.appender.poll_room(1000, &mut key, &waker), Poll::Ready(Ok(())));
    rig.write(&[2; 1000]);
    drop(others);
    rig.write(&[1; 300_000]);
}

#[test]
fn what_never_fits_is_too_long() {
    let rig = Rig::create(SIZE, &small());
    let Err(LogError::TooLong { max, .. }) = rig.appender.append(&vec![0; 64 << 10]) else {
        panic!("it is as long as the area");
    };
    assert!(max > 40_000, "{max}");
    rig.appender.append(&vec![0; max as usize]).unwrap();
    let rig = Rig::create(SIZE, &small());
    assert!(matches!(
        rig.appender.append(&vec![0; max as usize + 1]),
        Err(LogError::TooLong { .. })
    ));
    assert!(matches!(
        rig.appender.append_all(&[&[0; 30_000], &[0; 30_000]]),
        Err(LogError::TooLong { .. })
    ));
    assert!(matches!(rig.appender.append_all(&[]), Err(LogError::BadOptions(_))));
    let rig = Rig::create(64 << 20, &LogOptions::default());
    assert!(matches!(
        rig.appender.append(&vec![0; (16 << 20) + 1]),
        Err(LogError::TooLong { max: 16_777_216, .. })
    ));
}

#[test]
fn one_waker_for_many_lsns_is_woken_once_for_each_end() {
    let mut rig = Rig::create(1 << 20, &small());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let lsns: Vec<u64> = (0..100).map(|_| rig.append(&[7; 50])).collect();
    let mut keys: Vec<WaitKey> = lsns.iter().map(|_| WaitKey::default()).collect();
    for (lsn, key) in lsns.iter().zip(&mut keys) {
        assert!(rig.appender.poll_durable(Lsn(*lsn), key, &waker).is_pending());
        assert!(
            rig.appender.poll_durable(Lsn(*lsn), key, &waker).is_pending(),
            "asked twice"
        );
    }
    assert_eq!(Arc::strong_count(&woken), 3, "kept once");
    rig.pump();
    let batches = rig.part.usage().batches as usize;
    rig.run();
    let ends = rig.part.usage().batches as usize - batches;
    assert!(woken.count() <= ends && woken.count() > 0, "{} {ends}", woken.count());
    for (lsn, key) in lsns.iter().zip(&mut keys) {
        assert_eq!(rig.appender.poll_durable(Lsn(*lsn), key, &waker), Poll::Ready(Ok(())));
    }
    assert_eq!(Arc::strong_count(&woken), 2);
}

#[test]
fn a_dropped_key_wakes_nobody_and_keeps_nothing() {
    let mut rig = Rig::create(SIZE, &small());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let lsn = Lsn(rig.append(b"x"));
    let mut key = WaitKey::default();
    assert!(rig.appender.poll_durable(lsn, &mut key, &waker).is_pending());
    drop(key);
    assert_eq!(Arc::strong_count(&woken), 2);
    rig.run();
    assert_eq!(woken.count(), 0);
}

#[test]
fn callbacks_are_called_once_in_order() {
    let mut rig = Rig::create(SIZE, &small());
    let called = Arc::new(Mutex::new(Vec::new()));
    let lsns: Vec<u64> = (0..3).map(|number| rig.append(&[number])).collect();
    for lsn in lsns.iter().rev() {
        let (called, lsn) = (Arc::clone(&called), *lsn);
        let callback = Box::new(move |result: Result<(), LogError>| called.lock().unwrap().push((lsn, result.is_ok())));
        rig.appender.when_durable(Lsn(lsn), callback);
    }
    rig.run();
    assert_eq!(
        *called.lock().unwrap(),
        lsns.iter().map(|lsn| (*lsn, true)).collect::<Vec<_>>()
    );
    // For what is durable already, at the next collection; for what never will be, with the error.
    let count = Arc::new(AtomicUsize::new(0));
    let ok = Arc::clone(&count);
    rig.appender.when_durable(
        Lsn(lsns[0]),
        Box::new(move |result| {
            assert!(result.is_ok());
            ok.fetch_add(1, Ordering::Relaxed);
        }),
    );
    let lsn = rig.append(b"lost");
    let lost = Arc::clone(&count);
    rig.appender.when_durable(
        Lsn(lsn),
        Box::new(move |result| {
            assert!(matches!(result, Err(LogError::Failed { .. })));
            lost.fetch_add(1, Ordering::Relaxed);
        }),
    );
    rig.pump();
    rig.fail(0, Errno::EIO, |_| false);
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn a_log_that_is_closed_or_dropped_tells_those_who_wait() {
    let mut rig = Rig::create(SIZE, &small());
    let end = rig.appender.end_lsn().0;
    let lsn = rig.append(b"the last");
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut key = WaitKey::default();
    assert!(
        rig.appender
            .poll_durable(Lsn(lsn + 1000), &mut key, &waker)
            .is_pending()
    );
    rig.ask(LogRequest::Close).unwrap();
    assert!(rig.is_durable(lsn), "what was appended is made durable first");
    assert!(lsn >= end && woken.count() == 1);
    assert_eq!(rig.poll(lsn + 1000), Poll::Ready(Err(LogError::Closed)));
    assert_eq!(rig.appender.append(b"x"), Err(LogError::Closed));
    assert!(rig.ask(LogRequest::Close).is_ok(), "twice");
    assert_eq!(rig.payloads(), [b"the last".to_vec()]);

    let mut rig = Rig::create(SIZE, &small());
    let lsn = rig.append(b"never durable");
    assert!(rig.appender.poll_durable(Lsn(lsn), &mut key, &waker).is_pending());
    let appender = rig.appender.clone();
    drop(rig);
    assert_eq!(woken.count(), 2);
    assert_eq!(
        appender.poll_durable(Lsn(lsn), &mut key, &waker),
        Poll::Ready(Err(LogError::Closed))
    );
}

#[test]
fn truncation_stops_at_what_is_retained_and_goes_on_by_itself() {
    let mut rig = Rig::create(SIZE, &small());
    let lsns: Vec<u64> = (0..20).map(|number| rig.write(&record(number, 100))).collect();
    let archiver = rig.appender.retain(Lsn(lsns[5]));
    let replica = rig.appender.retain(Lsn(lsns[8]));
    let woken = Arc::new(Woken::default());
    assert_eq!(archiver.wanted(), None);
    assert!(archiver.poll_wanted(&Waker::from(Arc::clone(&woken))).is_pending());
    assert_eq!(rig.truncate(lsns[12]), lsns[5]);
    assert_eq!((woken.count(), archiver.wanted()), (1, Some(Lsn(lsns[12]))));
    archiver.advance(Lsn(lsns[10]));
    rig.run();
    assert_eq!(rig.part.usage().head.0, lsns[8], "the replica's");
    drop(replica);
    rig.run();
    assert_eq!(rig.part.usage().head.0, lsns[10]);
    archiver.advance(Lsn(lsns[15]));
    rig.run();
    assert_eq!(
        (rig.part.usage().head.0, archiver.wanted()),
        (lsns[12], None),
        "what was asked for"
    );
    // What is gone cannot be held.
    assert_eq!(rig.appender.retain(Lsn(lsns[0])).from().0, lsns[12]);
    assert_eq!(rig.truncate(u64::MAX), lsns[15], "as far as it is held");
    drop(archiver);
    rig.run();
    assert_eq!(rig.payloads().len(), 0);
    assert_eq!(rig.part.usage().used_bytes, 0);
}

#[test]
fn truncation_keeps_the_group_whole() {
    let mut rig = Rig::create(1 << 20, &small());
    rig.append(b"before");
    let group: Vec<Vec<u8>> = (0..4).map(|number| record(number, 3000)).collect();
    let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
    let last = rig.appender.append_all(&slices).unwrap();
    rig.write(b"after");
    let records = rig.read();
    assert_eq!(rig.truncate(last.0), records[1].0);
    assert_eq!(rig.read(), records[1..]);
    assert_eq!(rig.truncate(records[5].0), records[5].0);
    assert_eq!(rig.payloads(), [b"after".to_vec()]);
    assert!(matches!(rig.try_read(records[0].0), Err(LogError::Truncated { .. })));
    let mut rig = Rig::open(rig.crash(|_, _| false), &small());
    assert_eq!(rig.payloads(), [b"after".to_vec()]);
}

#[test]
fn a_log_goes_round_and_round() {
    for len in [0, 100, 1900, 3000] {
        let mut rig = Rig::create(SIZE, &small());
        let mut kept: Vec<(u64, Vec<u8>)> = Vec::new();
        for number in 0..400 {
            let bytes = record(number, len);
            let lsn = loop {
                match rig.appender.append(&bytes) {
                    Ok(lsn) => break lsn.0,
                    Err(LogError::WouldBlock) => {
                        rig.run();
                        let half = kept.len() / 2;
                        assert_eq!(rig.truncate(kept[half].0), kept[half].0);
                        kept.drain(..half);
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            kept.push((lsn, bytes));
            if number % 7 == 0 {
                rig.run();
            }
            if number % 50 == 49 {
                rig.run();
                assert!(rig.read() == kept, "{len} {number}");
                let usage = rig.part.usage();
                assert_eq!(usage.used_bytes + usage.free_bytes, 64 << 10);
                rig = Rig::open(rig.crash(|_, _| false), &small());
                assert!(rig.read() == kept, "{len} {number} reopened");
            }
        }
    }
}

#[test]
fn a_log_grows_wherever_its_end_is() {
    for before in 0..40 {
        let mut rig = Rig::create(SIZE, &small());
        let mut kept = Vec::new();
        for number in 0..20 + before {
            let bytes = record(number, 1500);
            kept.push((rig.write(&bytes), bytes));
            if kept.len() > 20 {
                let head = kept[10].0;
                assert_eq!(rig.truncate(head), head);
                kept.drain(..10);
            }
        }
        rig.device.bytes.resize(SIZE as usize * 2, 0x77);
        let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
        // Appends go on meanwhile, or wait.
        let (mut extra, mut blocked) = (0, 0);
        while rig.take_done(owner).is_none() {
            rig.pump();
            match rig.appender.append(&record(1000 + extra, 700)) {
                Ok(lsn) => kept.push((lsn.0, record(1000 + extra, 700))),
                Err(LogError::WouldBlock) => blocked += 1,
                Err(error) => panic!("{error}"),
            }
            extra += 1;
            if !rig.ios.is_empty() {
                rig.end(0);
            }
        }
        assert!(blocked > 0, "it waits for what is in flight");
        rig.run();
        assert!(rig.read() == kept, "{before}");
        assert_eq!(rig.part.usage().size_bytes, SIZE * 2);
        // The new room is there.
        let mut more = 0;
        while let Ok(lsn) = rig.appender.append(&record(more, 1500)) {
            rig.run();
            kept.push((lsn.0, record(more, 1500)));
            more += 1;
        }
        assert!(more > 25, "{before}: {more}");
        assert!(rig.read() == kept, "{before}");
        let mut rig = Rig::open(rig.crash(|_, _| false), &small());
        assert!(rig.read() == kept, "{before} reopened");
        let half = kept[kept.len() / 2].0;
        assert_eq!(rig.truncate(half), half);
        rig.write(b"and on");
    }
}

#[test]
fn a_read_that_a_growth_overtakes_gives_the_right_batches() {
    let mut rig = Rig::create(SIZE, &small());
    let mut lsns: Vec<u64> = (0..28).map(|number| rig.write(&record(number, 1900))).collect();
    rig.truncate(lsns[20]);
    lsns.drain(..20);
    lsns.extend((28..40).map(|number| rig.write(&record(number, 1900))));
    let expected = rig.read();
    assert_eq!(expected.len(), lsns.len());
    rig.device.bytes.resize(SIZE as usize * 2, 0);
    let read = rig.start(LogRequest::Read { from: Lsn(lsns[0]) });
    rig.pump();
    let held = rig.ios.remove(0);
    assert!(matches!(held.kind, LogIoKind::Read { .. }));
    rig.ask(LogRequest::Grow { size_bytes: SIZE * 2 }).unwrap();
    rig.ios.push(held);
    rig.end(0);
    rig.run();
    let Some(Ok(LogAnswer::Batches(Some(batches)))) = rig.take_done(read) else {
        panic!("it has an answer");
    };
    let mut reader = RecordReader::new(Lsn(lsns[0]));
    reader.push(&batches);
    let mut got = 0;
    while let Some(record) = reader.next_record() {
        assert_eq!((record.lsn.0, record.bytes), (expected[got].0, &expected[got].1[..]));
        got += 1;
    }
    assert!(got > 0);
    assert_eq!(rig.read(), expected);
}

#[test]
fn truncation_that_could_not_read_is_tried_again() {
    let mut rig = Rig::create(SIZE, &small());
    let lsns: Vec<u64> = (0..6).map(|number| rig.write(&record(number, 100))).collect();
    let start = lsns[0] - 64;
    rig.device.unreadable.push(start..start + 512);
    let refused = rig.ask(LogRequest::Truncate { to: Lsn(lsns[3]) });
    assert_eq!(refused.err(), Some(LogError::Read(Errno::EIO)));
    rig.device.unreadable.clear();
    assert_eq!(rig.truncate(lsns[3]), lsns[3]);
}

#[test]
fn growth_is_refused_where_it_cannot_be() {
    let mut rig = Rig::create(SIZE, &small());
    assert!(matches!(
        rig.ask(LogRequest::Grow { size_bytes: SIZE }),
        Err(LogError::BadSize { .. })
    ));
    assert!(matches!(
        rig.ask(LogRequest::Grow { size_bytes: 100 }),
        Err(LogError::BadSize { .. })
    ));
    // What has wrapped does not fit behind the old end.
    for number in 0..28 {
        let lsn = rig.write(&record(number, 1900));
        if number == 25 {
            rig.truncate(lsn);
        }
    }
    for number in 0..20 {
        rig.write(&record(number, 1900));
    }
    rig.device.bytes.resize(SIZE as usize + 4096, 0);
    let records = rig.read();
    let refused = rig.ask(LogRequest::Grow {
        size_bytes: SIZE + 4096,
    });
    assert!(
        matches!(refused, Err(LogError::BadSize { need, .. }) if need > SIZE + 4096),
        "{refused:?}"
    );
    assert_eq!(rig.read(), records);
    rig.write(b"it goes on");
}

#[test]
fn a_reader_at_the_tail_is_served_from_memory() {
    let mut rig = Rig::create(1 << 20, &small());
    rig.write(b"first");
    let mut reader = RecordReader::new(rig.part.usage().head);
    let mut got = 0;
    for number in 0..200 {
        let Ok(LogAnswer::Batches(Some(batches))) = rig.ask(LogRequest::Read {
            from: reader.next_batch(),
        }) else {
            panic!("there is something");
        };
        reader.push(&batches);
        while reader.next_record().is_some() {
            got += 1;
        }
        let asked = rig.ask(LogRequest::Read {
            from: reader.next_batch(),
        });
        assert!(matches!(asked, Ok(LogAnswer::Batches(None))), "it has all");
        rig.write(&record(number, 300));
    }
    assert_eq!(got, 200);
    let usage = rig.part.usage();
    assert_eq!((usage.reads_device, usage.reads_recent), (1, 199));
}

#[test]
fn a_gathering_log_waits_for_others_and_no_longer() {
    let gathering = LogOptions {
        gather: Duration::from_millis(2),
        ..small()
    };
    let mut rig = Rig::create(SIZE, &gathering);
    rig.tick(10);
    rig.batch(b"one");
    assert!(rig.ios.is_empty());
    assert_eq!(rig.part.next_tick(), Some(Time(12_000_000)));
    rig.tick(11);
    rig.batch(b"two");
    assert!(rig.ios.is_empty());
    rig.tick(12);
    rig.pump();
    assert_eq!(rig.ios.len(), 1);
    assert!(rig.ios[0].bytes().windows(3).any(|bytes| bytes == b"two"));
    rig.run();
    // Nor longer because the device is busy.
    rig.tick(20);
    for _ in 0..4 {
        let now = rig.ios.len() as u64;
        rig.batch(b"busy");
        rig.tick(30 + 2 * now);
        rig.pump();
    }
    assert_eq!(rig.ios.len(), 3, "the window");
    assert_eq!(rig.part.next_tick(), None, "an end comes first");
    rig.tick(50);
    rig.end(0);
    rig.pump();
    assert_eq!(rig.ios.len(), 3, "it has gathered long enough");
    rig.run();
    // A full batch does not wait.
    rig.batch(&[0; 3000]);
    assert_eq!(rig.ios.len(), 1);
    rig.run();
    // Nor does a log that is closed.
    rig.append(b"three");
    rig.ask(LogRequest::Close).unwrap();
    let mut rig = Rig::open(rig.crash(|_, _| false), &gathering);
    assert_eq!(rig.payloads().len(), 8);
}

#[test]
fn the_bell_rings_when_the_driver_may_sleep() {
    let mut rig = Rig::create(SIZE, &small());
    let bell = baio_engine::Doorbell::new().unwrap();
    rig.appender.set_bell(bell.clone());
    rig.append(b"x");
    assert!(bell.silence(), "the driver had nothing to do");
    rig.append(b"y");
    assert!(!bell.silence(), "it knows");
    rig.run();
    rig.appender.quiet().append(b"z").unwrap();
    assert!(!bell.silence(), "the driver itself");
    rig.run();
    for _ in 0..3 {
        rig.batch(b"in flight");
        bell.silence();
    }
    rig.append(b"the window is full");
    assert!(!bell.silence(), "an end will wake it");

    let gathering = LogOptions {
        gather: Duration::from_millis(2),
        ..small()
    };
    let mut rig = Rig::create(SIZE, &gathering);
    rig.appender.set_bell(bell.clone());
    rig.batch(b"x");
    assert!(bell.silence(), "there is one to wait for");
    rig.append(b"y");
    assert!(!bell.silence(), "it waits for that one");
    rig.append(&[0; 3000]);
    assert!(bell.silence(), "a batch is full");
}

#[test]
fn a_log_that_does_not_fit_is_refused_with_what_it_needs() {
    let need = 8192 + 4 * 3 * 2048;
    for size in [0, 512, 8192, need - 1] {
        let refused = Rig::try_create(size, &small()).err();
        assert_eq!(refused, Some(LogError::BadSize { size_bytes: size, need }));
    }
    Rig::create(need, &small());
    let arena = Arena::new(256 << 10).unwrap();
    let refused = LogPart::create(&arena, 64 << 20, UUID, &LogOptions::default());
    assert!(matches!(refused, Err(LogError::NoMemory)));
    for options in [
        LogOptions { window: 0, ..small() },
        LogOptions {
            block_bytes: 1024,
            ..small()
        },
        LogOptions {
            batch_bytes_max: 1000,
            ..small()
        },
        LogOptions {
            batch_bytes_max: 0,
            ..small()
        },
    ] {
        assert!(matches!(
            Rig::try_create(SIZE, &options).err(),
            Some(LogError::BadOptions(_))
        ));
    }
    let mut rig = Rig::create(SIZE, &small());
    rig.write(b"x");
    let mut device = rig.crash(|_, _| false);
    let coarse = LogOptions {
        block_bytes: 4096,
        batch_bytes_max: 4096,
        ..small()
    };
    let refused = Rig::try_open(device.clone(), &coarse).err();
    assert_eq!(refused, Some(LogError::BlockBytes { log: 512, device: 4096 }));
    device.bytes.truncate(SIZE as usize - 512);
    let refused = Rig::try_open(device, &small()).err();
    assert_eq!(
        refused,
        Some(LogError::Cut {
            size_bytes: SIZE - 512,
            need: SIZE
        })
    );
}

#[test]
fn a_look_changes_nothing() {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..30 {
        let lsn = rig.write(&record(number, 1500));
        if number == 20 {
            rig.truncate(lsn);
        }
    }
    let expected = rig.read();
    // A group of which the first batch alone has landed.
    let slices = [&[1; 1500][..]; 3];
    rig.appender.append_all(&slices).unwrap();
    rig.pump();
    let usage = rig.part.usage();
    let device = rig.crash(|io, _| io == 0);
    let mut looked = Rig::try_look(device.clone(), &small()).unwrap();
    assert_eq!(looked.read(), expected);
    assert!(looked.device.bytes == device.bytes, "nothing was written");
    let seen = looked.part.usage();
    assert_eq!(
        (seen.head, seen.epoch, seen.durable.0),
        (usage.head, 1, usage.durable.0 + 64)
    );
    assert_eq!(looked.recovered().end, seen.durable);
    assert_eq!(looked.appender.append(b"x"), Err(LogError::Closed));
    assert!(matches!(
        looked.ask(LogRequest::Truncate { to: Lsn(u64::MAX) }),
        Err(LogError::Closed)
    ));
    looked.tick(10_000);
    looked.run();
    assert!(looked.ask(LogRequest::Close).is_ok());
    assert!(looked.device.bytes == device.bytes);
    let mut rig = Rig::open(looked.crash(|_, _| false), &small());
    assert_eq!(rig.read(), expected);
}

#[test]
fn what_can_be_held_is_told_while_truncation_looks() {
    let mut rig = Rig::create(SIZE, &small());
    let lsns: Vec<u64> = (0..10).map(|number| rig.write(&record(number, 100))).collect();
    let owner = rig.start(LogRequest::Truncate { to: Lsn(lsns[5]) });
    rig.pump();
    let held = rig.appender.retain(Lsn(lsns[2]));
    assert_eq!(held.from().0, lsns[5], "what is below goes");
    rig.run();
    assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Head(head))) if head.0 == lsns[5]));
    assert_eq!(rig.read().len(), 5);
}

#[test]
fn what_was_there_before_is_gone() {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..20 {
        rig.write(&record(number, 1000));
    }
    let arena = Arena::new(8 << 20).unwrap();
    let part = LogPart::create(&arena, SIZE, UUID, &small()).unwrap();
    let mut rig = Rig::of(arena, rig.crash(|_, _| false), part).unwrap();
    assert_eq!(rig.payloads().len(), 0);
    let mut rig = Rig::open(rig.crash(|_, _| false), &small());
    assert_eq!(rig.payloads().len(), 0);
}

#[test]
fn what_was_recovered_is_synced_before_it_is_told() {
    let mut rig = Rig::create(SIZE, &small());
    rig.write(b"x");
    let device = rig.crash(|_, _| false);
    let arena = Arena::new(8 << 20).unwrap();
    let mut part = LogPart::open(&arena, SIZE, &small()).unwrap();
    let mut seen = Vec::new();
    while let Some((id, kind, mut memory)) = part.next_io() {
        let result = match kind {
            LogIoKind::Read { offset, len } => {
                memory.copy_in_at(0, &device.bytes[offset as usize..][..len as usize]);
                Ok(len)
            }
            LogIoKind::Write { len, .. } => {
                seen.push("write");
                Ok(len)
            }
            LogIoKind::Sync => {
                seen.push("sync");
                Ok(0)
            }
        };
        part.io_ended(id, result, memory);
    }
    assert_eq!(seen, ["sync", "write", "write"]);
}

#[test]
fn appends_of_many_threads_are_all_there() {
    let options = LogOptions {
        buffer_bytes: 1 << 20,
        ..small()
    };
    let mut rig = Rig::create(4 << 20, &options);
    let threads: Vec<_> = (0..4_u8)
        .map(|thread| {
            let appender = rig.appender.clone();
            std::thread::spawn(move || {
                let mut lsns = Vec::new();
                for number in 0..500_u32 {
                    let bytes = [&[thread][..], &number.to_le_bytes()].concat();
                    lsns.push(loop {
                        match appender.append(&bytes) {
                            Ok(lsn) => break lsn,
                            Err(LogError::WouldBlock) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    });
                }
                assert!(lsns.windows(2).all(|pair| pair[0] < pair[1]));
            })
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        rig.run();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    rig.run();
    let payloads = rig.payloads();
    assert_eq!(payloads.len(), 2000);
    for thread in 0..4 {
        let numbers: Vec<u8> = payloads
            .iter()
            .filter(|bytes| bytes[0] == thread)
            .map(|bytes| bytes[1])
            .collect();
        assert!(numbers.iter().enumerate().all(|(at, number)| at as u8 == *number));
    }
}
