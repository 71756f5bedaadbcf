//! Appending, waiting and reading, without a crash.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use baio_engine::{Arena, Errno, Time};
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogPart, LogRequest, Lsn, RecordReader, WaitKey};

use crate::rig::{self, Device, Rig, SALT, UUID, Woken, record, small};

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
fn tasks_that_wait_in_turn_are_woken_once_for_each_end() {
    let mut rig = Rig::create(SIZE, &small());
    let tasks: Vec<Arc<Woken>> = (0..3).map(|_| Arc::default()).collect();
    let wakers: Vec<Waker> = tasks.iter().map(|task| Waker::from(Arc::clone(task))).collect();
    let mut keys: Vec<WaitKey> = Vec::new();
    for number in 0..60 {
        let lsn = rig.append(&record(number, 10));
        let mut key = WaitKey::default();
        let waker = &wakers[number as usize % wakers.len()];
        assert!(rig.appender.poll_durable(Lsn(lsn), &mut key, waker).is_pending());
        keys.push(key);
    }
    rig.run();
    for task in &tasks {
        assert_eq!(task.count(), rig.part.usage().batches as usize);
    }
    drop((keys, wakers));
    for task in tasks {
        assert_eq!(Arc::strong_count(&task), 1, "none is kept");
    }
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
    let lsn = rig.write(b"the last");
    let next = rig.appender.end_lsn();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut key = WaitKey::default();
    assert!(rig.appender.poll_durable(next, &mut key, &waker).is_pending());
    rig.ask(LogRequest::Close).unwrap();
    assert!(rig.is_durable(lsn), "what was appended is made durable first");
    assert!(lsn >= end && woken.count() == 1);
    assert_eq!(rig.poll(next.0), Poll::Ready(Err(LogError::Closed)));
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
    let refused = LogPart::create(&arena, 64 << 20, UUID, SALT, &LogOptions::default());
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
fn a_log_that_would_take_no_record_is_refused() {
    for block_bytes in [512, 4096] {
        for window in [1, 2, 3, 8, 100] {
            for (blocks, buffer_bytes) in [(1, 0), (1, 32 << 20), (2, 0), (2, 32 << 20), (3, 0), (3, 32 << 20)] {
                let options = LogOptions {
                    block_bytes,
                    batch_bytes_max: blocks * block_bytes,
                    buffer_bytes,
                    window,
                    ..LogOptions::default()
                };
                let what = format!("{blocks} blocks of {block_bytes}, window {window}, buffer {buffer_bytes}");
                // The smallest area with such batches, and a large one.
                for size in [8192 + u64::from(4 * window * blocks * block_bytes), 8 << 20] {
                    match Rig::try_create(size, &options) {
                        Ok(mut rig) => {
                            rig.write(b"1");
                            assert!(blocks > 1, "{what}");
                        }
                        Err(error) => {
                            assert!(matches!(error, LogError::BadOptions(_)), "{what}: {error:?}");
                            assert!(blocks < 3, "{what}");
                        }
                    }
                }
            }
        }
    }
    // What was made is opened with less of a buffer, too.
    let options = LogOptions {
        block_bytes: 4096,
        batch_bytes_max: 8192,
        window: 8,
        ..LogOptions::default()
    };
    let mut rig = Rig::create(8192 + 4 * 8 * 8192, &options);
    rig.write(b"1");
    let less = LogOptions {
        buffer_bytes: 0,
        window: 1,
        ..options
    };
    let mut rig = Rig::open(rig.crash(|_, _| true), &less);
    rig.write(b"2");
    assert_eq!(rig.payloads().len(), 2);
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
fn what_was_there_before_is_gone() {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..20 {
        rig.write(&record(number, 1000));
    }
    let arena = Arena::new(8 << 20).unwrap();
    let part = LogPart::create(&arena, SIZE, UUID, SALT, &small()).unwrap();
    let mut rig = Rig::of(arena, rig.crash(|_, _| false), part).unwrap();
    assert_eq!(rig.payloads().len(), 0);
    let mut rig = Rig::open(rig.crash(|_, _| false), &small());
    assert_eq!(rig.payloads().len(), 0);
}

#[test]
fn what_was_recovered_is_synced_before_it_is_told() {
    let mut rig = Rig::create(SIZE, &small());
    rig.write(b"x");
    let killed = rig.device.clone();
    rig.ask(LogRequest::Close).unwrap();
    // A log that was closed may be a copy, which nobody has synced.
    for device in [killed, rig.crash(|_, _| false)] {
        assert_eq!(written_by_an_opening(&device), ["sync", "write", "write"]);
    }
}

/// What an opening asks of its device beside reads.
fn written_by_an_opening(device: &Device) -> Vec<&'static str> {
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
            LogIoKind::Allocate { .. } => {
                seen.push("allocate");
                Ok(0)
            }
        };
        part.io_ended(id, result, memory);
    }
    seen
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
                            Err(LogError::WouldBlock | LogError::Full) => std::thread::yield_now(),
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

/// Batches are as long as the log has place for, and its link memory.
#[test]
fn a_small_log_and_little_memory_have_short_batches() {
    let longest = |size: u64, arena_bytes: usize| {
        let arena = Arena::new(arena_bytes).unwrap();
        let part = LogPart::create(&arena, size, UUID, rig::SALT, &LogOptions::default()).unwrap();
        let mut rig = Rig::of(arena, rig::Device::new(size), part).unwrap();
        let record = vec![7; 8 << 10];
        for _ in 0..size.min(2 << 20) / 2 / (8 << 10) {
            rig.append(&record);
        }
        rig.pump();
        let batches = rig.ios.iter().filter(|io| io.is_batch());
        let longest = batches.map(|io| io.bytes().len()).max().unwrap();
        rig.run();
        longest
    };
    let least = 8192 + (128 << 10);
    assert_eq!(longest(least, 64 << 20), 16 << 10);
    let refused = Rig::try_create(least - 1, &LogOptions::default()).err();
    let (size_bytes, need) = (least - 1, least);
    assert_eq!(refused, Some(LogError::BadSize { size_bytes, need }));
    assert_eq!(longest(8 << 20, 64 << 20), 512 << 10, "a quarter of less than 8 MiB");
    assert_eq!(longest(9 << 20, 64 << 20), 1 << 20);
    assert_eq!(
        longest(9 << 20, 4 << 20),
        512 << 10,
        "four of them and a block are more"
    );
}

/// Where a durable write flushes the device's cache, a second short batch is a second flush: it waits, and gathers. A full one goes.
#[test]
fn a_short_batch_waits_for_the_one_at_the_device() {
    let options = LogOptions {
        window: 3,
        window_short: 1,
        ..small()
    };
    let mut rig = Rig::create(SIZE, &options);
    let bell = baio_engine::Doorbell::new().unwrap();
    rig.appender.set_bell(bell.clone());
    let under_way = |rig: &Rig| rig.ios.iter().filter(|io| io.is_batch()).count();
    rig.batch(b"one");
    assert!(bell.silence());
    let two = rig.append(b"two");
    assert!(!bell.silence(), "the end of the first wakes the driver");
    assert!(!rig.part.wants_io());
    rig.pump();
    assert_eq!(under_way(&rig), 1);
    rig.append(&[3; 3000]);
    assert!(bell.silence(), "one is full");
    assert!(rig.part.wants_io());
    rig.pump();
    assert_eq!(under_way(&rig), 2, "the full one alone");
    rig.end(0);
    rig.pump();
    assert_eq!(under_way(&rig), 1, "the rest waits for the full one");
    rig.run();
    assert!(rig.is_durable(two));
    assert_eq!(rig.part.usage().batches, 3);
}

#[test]
fn a_reader_keeps_how_payloads_begin() {
    let mut rig = Rig::create(8192 + (64 << 10), &small());
    let lens = [5000, 0, 10, 16, 17, 3000];
    let lsns = lens.map(|len| rig.write(&record(len as u64, len)));
    for kept in [0, 16] {
        let mut reader = RecordReader::new(Lsn(0)).keeping(kept);
        let mut seen = Vec::new();
        let mut from = Lsn(lsns[0]);
        while let LogAnswer::Batches(Some(batches)) = rig.ask(LogRequest::Read { from }).unwrap() {
            reader.push(&batches);
            from = reader.next_batch();
            while let Some(read) = reader.next_record() {
                seen.push((read.lsn.0, read.len, read.bytes.to_vec()));
            }
        }
        let begun = |len: usize| record(len as u64, len)[..len.min(kept)].to_vec();
        let expected = lsns.iter().zip(lens).map(|(lsn, len)| (*lsn, len, begun(len)));
        assert_eq!(seen, expected.collect::<Vec<_>>());
    }
}

#[test]
fn a_reader_may_begin_anywhere_in_a_group() {
    let mut rig = Rig::create(1 << 20, &small());
    let records: Vec<Vec<u8>> = (0..6).map(|n| record(n, 1500)).collect();
    let group: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    rig.appender.append_all(&group).unwrap();
    rig.run();
    let all = rig.read();
    assert_eq!(all.len(), 6);
    for (n, (lsn, _)) in all.iter().enumerate() {
        for from in [lsn + 1, lsn + 8] {
            assert_eq!(rig.try_read(from).unwrap(), all[n + 1..], "{n}");
        }
    }
}
