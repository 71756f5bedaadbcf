//! The space of a log, without a crash: room and who waits for it, truncation and who holds it up, laps, growth.

use std::sync::Arc;
use std::task::{Poll, Waker};

use baio_engine::{Arena, Errno};
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogPart, LogRequest, Lsn, RecordReader, WaitKey};

use crate::rig::{self, Device, Rig, SALT, UUID, Woken, gone_round, record, small};

const SIZE: u64 = 8192 + (64 << 10);

#[test]
fn a_full_buffer_would_block_and_says_when_there_is_room() {
    let mut rig = Rig::create(SIZE, &small());
    let mut appended = 0;
    while rig.appender.append(&record(appended, 500)).is_ok() {
        appended += 1;
    }
    assert!(appended > 100, "{appended}");
    // The area is as small as the buffer here: only truncation makes room.
    assert_eq!(rig.appender.append(&[0; 500]), Err(LogError::Full));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut key = WaitKey::default();
    assert!(rig.appender.poll_room(500, &mut key, &waker).is_pending());
    rig.run();
    let lsn = rig.read()[50].0;
    rig.truncate(lsn);
    assert!(woken.count() > 0);
    assert_eq!(rig.appender.poll_room(500, &mut key, &waker), Poll::Ready(Ok(())));
    rig.write(&[1; 500]);

    // A large area, a small buffer.
    let mut rig = Rig::create(1 << 20, &small());
    while rig.appender.append(&[0; 500]).is_ok() {}
    assert_eq!(rig.appender.append(&[0; 500]), Err(LogError::WouldBlock));
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
            // Who was woken gives its place up, and the next is woken.
            let gives_up = |keys: &mut Vec<WaitKey>| {
                let mut woken = woken.iter().zip(keys).filter(|(woken, _)| woken.count() > 0);
                woken.by_ref().for_each(|(_, key)| *key = WaitKey::default());
            };
            let count = || woken.iter().filter(|woken| woken.count() > 0).count();
            let mut before = 0;
            while count() > before {
                before = count();
                gives_up(&mut keys);
            }
            let mut key = WaitKey::default();
            for (size, woken) in woken.iter().enumerate().filter(|(_, woken)| woken.count() == 0) {
                let polled = rig.appender.poll_room(size, &mut key, Waker::noop());
                assert!(polled.is_pending(), "{filling} {step} {size} {}", woken.count());
            }
        }
    }
}

/// Tasks that each append one record of so many bytes, or give up, as a model says; on a log whose area is large.
struct Tasks {
    woken: Vec<Arc<Woken>>,
    wakers: Vec<Waker>,
    /// None when it is over.
    keys: Vec<Option<WaitKey>>,
    seen: Vec<usize>,
    sizes: Vec<usize>,
    attempts: usize,
}

impl Tasks {
    fn new(sizes: Vec<usize>) -> Tasks {
        let woken: Vec<Arc<Woken>> = sizes.iter().map(|_| Arc::default()).collect();
        Tasks {
            wakers: woken.iter().map(|woken| Waker::from(Arc::clone(woken))).collect(),
            keys: sizes.iter().map(|_| Some(WaitKey::default())).collect(),
            seen: sizes.iter().map(|_| usize::MAX).collect(),
            woken,
            sizes,
            attempts: 0,
        }
    }

    fn left(&self) -> usize {
        self.keys.iter().flatten().count()
    }

    fn is_woken(&self, task: usize) -> bool {
        self.keys[task].is_some() && self.seen[task] != self.woken[task].count()
    }

    /// Runs one that was woken.
    fn run(&mut self, rig: &Rig, task: usize) {
        self.seen[task] = self.woken[task].count();
        self.attempts += 1;
        let size = self.sizes[task];
        let Some(key) = &mut self.keys[task] else { return };
        match rig.appender.append(&vec![task as u8; size]) {
            Ok(_) => self.keys[task] = None,
            Err(LogError::WouldBlock | LogError::Full) => {
                assert!(rig.appender.poll_room(size, key, &self.wakers[task]).is_pending())
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn run_woken(&mut self, rig: &Rig) {
        while let Some(task) = (0..self.sizes.len()).find(|task| self.is_woken(*task)) {
            self.run(rig, task);
        }
    }
}

#[test]
fn as_many_are_woken_as_find_room() {
    let options = LogOptions {
        batch_bytes_max: 16 << 10,
        ..small()
    };
    let mut rig = Rig::create(16 << 20, &options);
    let mut tasks = Tasks::new(vec![3000; 1000]);
    let mut ends = 0;
    loop {
        tasks.run_woken(&rig);
        if tasks.left() == 0 {
            break;
        }
        rig.pump();
        rig.end(0);
        ends += 1;
    }
    // Each tries twice, and one more for each batch that ends.
    assert!(
        tasks.attempts <= 2 * 1000 + ends,
        "{} attempts, {ends} ends",
        tasks.attempts
    );
}

#[test]
fn room_that_is_not_taken_is_for_the_next() {
    let mut seed = 1_u64;
    let mut below = |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for round in 0..200 {
        let mut rig = Rig::create(4 << 20, &small());
        let sizes = (0..100).map(|_| [10, 500, 3000, 20_000][below(4) as usize] + below(100) as usize);
        let mut tasks = Tasks::new(sizes.collect());
        for task in 0..100 {
            tasks.run(&rig, task);
        }
        for step in 0.. {
            if tasks.left() == 0 {
                break;
            }
            let runnable: Vec<usize> = (0..100).filter(|task| tasks.is_woken(*task)).collect();
            let task = runnable.get(below(runnable.len().max(1) as u64) as usize).copied();
            match (below(6), task) {
                // Dropped, woken or not; asks for something else; or was woken and goes away after it asked.
                (0, _) => tasks.keys[below(100) as usize] = None,
                (1, Some(task)) => {
                    tasks.sizes[task] = below(30_000) as usize;
                    tasks.run(&rig, task);
                }
                (2, Some(task)) => {
                    let mut key = tasks.keys[task].take().unwrap();
                    let _ = rig.appender.poll_room(10, &mut key, &tasks.wakers[task]);
                }
                (3, _) => rig.pump(),
                (4, None) if !rig.ios.is_empty() => rig.end(below(rig.ios.len() as u64) as usize),
                (_, Some(task)) => tasks.run(&rig, task),
                _ => rig.pump(),
            }
            if tasks.left() > 0 && rig.ios.is_empty() && !(0..100).any(|task| tasks.is_woken(task)) {
                rig.pump();
                // Nothing is under way, and everybody sleeps: then there is no room for anybody.
                assert!(
                    !rig.ios.is_empty(),
                    "{round} {step}: {} sleep beside an empty log",
                    tasks.left()
                );
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
    let part = LogPart::create(&arena, 8 << 20, UUID, SALT, &options).unwrap();
    let mut rig = Rig::of(Arc::clone(&arena), rig::Device::new(8 << 20), part).unwrap();
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
fn only_who_lets_truncation_go_on_rings_for_it() {
    let mut rig = Rig::create(SIZE, &small());
    let lsns: Vec<u64> = (0..20).map(|number| rig.write(&record(number, 500))).collect();
    let bell = baio_engine::Doorbell::new().unwrap();
    rig.appender.set_bell(bell.clone());
    let first = rig.part.usage().head;
    let held: Vec<_> = (0..10).map(|_| rig.appender.retain(first)).collect();
    let rings = |let_go: &dyn Fn()| {
        let_go();
        bell.silence()
    };
    for retained in &held {
        assert!(!rings(&|| retained.advance(Lsn(lsns[2]))), "nobody wants to truncate");
    }
    assert_eq!(rig.truncate(lsns[10]), lsns[2]);
    for (number, retained) in held.iter().enumerate() {
        let is_last = number + 1 == held.len();
        assert_eq!(rings(&|| retained.advance(Lsn(lsns[5]))), is_last, "{number}");
    }
    assert!(!rings(&|| held[0].advance(Lsn(lsns[6]))), "others hold it");
    rig.run();
    assert_eq!(rig.part.usage().head.0, lsns[5]);
    let count = held.len();
    for (number, retained) in held.into_iter().enumerate() {
        if number == 0 {
            assert!(!rings(&|| retained.advance(Lsn(lsns[15]))), "others hold it");
        }
        let is_last = number + 1 == count;
        drop(retained);
        assert_eq!(bell.silence(), is_last, "{number}");
    }
    rig.run();
    assert_eq!(rig.part.usage().head.0, lsns[10]);
}

#[test]
fn what_is_let_go_while_the_log_grows_is_truncated_then() {
    let mut rig = Rig::create(SIZE, &small());
    let lsns: Vec<u64> = (0..20).map(|number| rig.write(&record(number, 500))).collect();
    let retained = rig.appender.retain(Lsn(lsns[5]));
    assert_eq!(rig.truncate(lsns[10]), lsns[5]);
    rig.device.bytes.resize(2 * SIZE as usize, 0);
    rig.batch(b"is waited for");
    let grown = rig.start(LogRequest::Grow { size_bytes: 2 * SIZE });
    // All ends but that of the batch: appends wait for it.
    loop {
        rig.pump();
        let Some(index) = rig
            .ios
            .iter()
            .position(|io| !io.is_batch() || rig.ios.len() > 1 && io.bytes() == vec![0; io.memory.len()])
        else {
            break;
        };
        rig.end(index);
    }
    assert_eq!(rig.appender.append(b"x"), Err(LogError::WouldBlock));
    drop(retained);
    rig.run();
    assert!(matches!(rig.take_done(grown), Some(Ok(LogAnswer::Done))));
    assert_eq!(rig.part.usage().head.0, lsns[10]);
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
                    Err(LogError::WouldBlock | LogError::Full) => {
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
        let (mut rig, mut kept) = gone_round(SIZE, 20 + before);
        rig.device.bytes.resize(SIZE as usize * 2, 0x77);
        let owner = rig.start(LogRequest::Grow { size_bytes: SIZE * 2 });
        // Appends go on meanwhile, or wait.
        let (mut extra, mut blocked) = (0, 0);
        while rig.take_done(owner).is_none() {
            rig.pump();
            match rig.appender.append(&record(1000 + extra, 700)) {
                Ok(lsn) => kept.push((lsn.0, record(1000 + extra, 700))),
                Err(LogError::WouldBlock | LogError::Full) => blocked += 1,
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
    assert_eq!(
        refused.err(),
        Some(LogError::Read {
            errno: Errno::EIO,
            offset: start
        })
    );
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
fn truncation_that_found_no_memory_is_tried_again() {
    let options = LogOptions {
        window: 1,
        batch_bytes_max: 64 << 10,
        ..small()
    };
    let (arena, size) = (Arena::new(2 << 20).unwrap(), 8 << 20);
    let part = LogPart::create(&arena, size, UUID, SALT, &options).unwrap();
    let mut rig = Rig::of(arena, Device::new(size), part).unwrap();
    let lsns: Vec<u64> = (0..20).map(|number| rig.write(&record(number, 5000))).collect();
    let mut hogs = Vec::new();
    while let Some(buffer) = rig.arena.buffer(4096) {
        hogs.push(buffer);
    }
    let refused = rig.ask(LogRequest::Truncate { to: Lsn(lsns[18]) });
    assert_eq!(refused.err(), Some(LogError::NoMemory));
    hogs.clear();
    assert_eq!(rig.truncate(lsns[18]), lsns[18]);
}

/// A log that has gone round, with so many records left.
fn around(size: u64, options: &LogOptions, count: u64, len: usize, keep: usize) -> (Rig, Vec<u64>) {
    let mut rig = Rig::create(size, options);
    let mut lsns = Vec::new();
    for number in 0..count {
        let lsn = loop {
            match rig.appender.append(&record(number, len)) {
                Ok(lsn) => break lsn.0,
                Err(_) => {
                    let gone = lsns.len() - keep;
                    rig.truncate(lsns[gone]);
                    lsns.drain(..gone);
                }
            }
        };
        rig.run();
        lsns.push(lsn);
    }
    (rig, lsns)
}

#[test]
fn a_known_hole_is_still_one_when_the_log_has_grown() {
    let (rig, _) = around(8192 + (32 << 10), &small(), 40, 900, 20);
    let head = rig.part.usage().head.0;
    let mut device = rig.crash(|_, _| false);
    // The log has wrapped by eight batches: the third of those rots.
    device.flip(8192 + 2 * 1024 + 300);
    let salvaging = LogOptions {
        salvage: true,
        ..small()
    };
    let mut rig = Rig::open(device, &salvaging);
    let offset = rig.recovered().holes[0].offset;
    assert_eq!(offset, 8192 + 2 * 1024);
    let before = rig.try_read(head).unwrap();
    let (old, new) = (rig.device.bytes.len(), rig.device.bytes.len() + (64 << 10));
    rig.device.bytes.resize(new, 0xA5);
    rig.ask(LogRequest::Grow { size_bytes: new as u64 }).unwrap();
    assert!(rig.try_read(head).unwrap() == before);
    assert_eq!(rig.recovered().holes[0].offset, offset + old as u64 - 8192);
    let mut rig = Rig::open(rig.crash(|_, _| false), &small());
    assert!(rig.try_read(head).unwrap() == before);
}

#[test]
fn a_read_over_a_growth_and_a_lap_finds_its_records() {
    let options = LogOptions {
        recent_bytes: 0,
        ..small()
    };
    let (mut rig, lsns) = around(8192 + (3584 << 10), &options, 1851, 1900, 600);
    let from = *lsns.last().unwrap();
    let owner = rig.start(LogRequest::Read { from: Lsn(from) });
    rig.pump();
    let read = rig.ios.remove(0);
    let size = rig.device.bytes.len() + (1 << 20);
    rig.device.bytes.resize(size, 0xA5);
    rig.ask(LogRequest::Grow {
        size_bytes: size as u64,
    })
    .unwrap();
    rig.truncate(from);
    for number in 0..700 {
        rig.write(&record(number, 1900));
    }
    assert_eq!(rig.part.usage().head, Lsn(from), "it is kept");
    rig.ios.push(read);
    rig.end(0);
    rig.run();
    let answer = rig.take_done(owner).unwrap();
    assert!(answer.is_ok(), "{answer:?}");
}

/// What a new opening says to be durable is where its first batch will begin: all in front of that can be given up later.
#[test]
fn truncating_to_the_beginning_of_a_batch_gives_up_what_lies_before() {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..3 {
        rig.write(&record(number, 100));
    }
    let mut rig = Rig::open(rig.crash(|_, _| true), &small());
    let from = rig.appender.durable_lsn().0;
    let first = rig.write(&record(3, 100));
    rig.write(&record(4, 100));
    assert!(first > from, "a batch has a header");
    rig.truncate(from);
    assert_eq!(rig.part.usage().head.0, from);
    assert_eq!(rig.payloads(), [record(3, 100), record(4, 100)]);
}

#[test]
fn a_read_that_a_truncation_and_a_lap_overtake_finds_its_records() {
    let options = LogOptions {
        recent_bytes: 0,
        ..small()
    };
    let mut rig = Rig::create(SIZE, &options);
    // 32 batches of 2048 bytes: it is full.
    let lsns: Vec<u64> = (0..32).map(|n| rig.write(&record(n, 1900))).collect();
    let owner = rig.start(LogRequest::Read { from: Lsn(lsns[20]) });
    rig.pump();
    let held = rig.ios.remove(0);
    assert_eq!(rig.truncate(lsns[20]), lsns[20]);
    (32..36).for_each(|n| {
        rig.write(&record(n, 1900));
    });
    rig.ios.push(held);
    rig.end(0);
    rig.run();
    let answer = rig.take_done(owner).unwrap();
    assert!(matches!(answer, Ok(LogAnswer::Batches(Some(_)))), "{answer:?}");
}
