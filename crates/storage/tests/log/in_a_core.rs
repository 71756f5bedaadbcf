//! The promise: a log in a core is driven by its turns, and what the core does to its segment meanwhile (moves, freezes, a full table)
//! delays its batches and loses none.

use std::task::{Poll, Waker};

use baio_engine::sim::Disk;
use baio_engine::{Open, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::log::{Batches, LogAnswer, LogOptions, LogRequest, LogStart, Lsn, RecordReader, WaitKey};
use baio_storage::{
    Access, Answer, Core, Error, Fault, Handle, HeldLog, LogReply, Mode, ResizeOptions, SegmentOp, SegmentRequest,
};

use crate::harness::{
    self, BLOCK, ME, ROOT, create, open_with_seed, open_write, read_request, run, slow_volume, start, write_request,
};
use crate::held_log::{LOG_BYTES, create_log, held, is_durable, options, wait};

fn volume() -> (Core, Disk) {
    let disk = slow_volume(16 << 20);
    (open_with_seed(&disk, 9), disk)
}

fn open_log(core: &mut Core, handle: Handle) -> Result<HeldLog, Error> {
    let question = core.begin_open_log(handle, &options())?;
    core.wait_log(&question).map(held)
}

fn payloads(core: &mut Core, log: &HeldLog) -> Vec<Vec<u8>> {
    let mut reader = RecordReader::new(log.appender().head_lsn());
    let mut all = Vec::new();
    loop {
        let from = reader.next_batch();
        let question = core.begin_on_log(log.id(), LogRequest::Read { from }).unwrap();
        let batches: std::sync::Arc<Batches> = match core.wait_log(&question).unwrap() {
            LogReply::Done(LogAnswer::Batches(Some(batches))) => batches,
            LogReply::Done(LogAnswer::Batches(None)) => return all,
            other => panic!("{other:?}"),
        };
        reader.push(&batches);
        while let Some(record) = reader.next_record() {
            all.push(record.bytes.to_vec());
        }
    }
}

#[test]
fn a_turn_makes_one_batch_of_what_was_appended() {
    let (mut core, _disk) = volume();
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    let mut last = Lsn(0);
    for byte in 0..20 {
        last = log.appender().append(&[byte; 30]).unwrap();
    }
    wait(&mut core, &log, last);
    let usage = core.log_usage(log.id()).unwrap();
    assert_eq!((usage.batches, usage.batch_records), (1, 20));
    assert_eq!(payloads(&mut core, &log).len(), 20);
    core.close().unwrap();
}

/// What an opening finds behind a kill is synced first, by the device: the cache, which knows the segment here, has no part in that.
#[test]
fn a_log_opens_where_the_cache_has_read() {
    let (mut core, disk) = volume();
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    let lsn = log.appender().append(b"kept").unwrap();
    wait(&mut core, &log, lsn);
    let mut core = open_with_seed(&disk.power_cut(1), 9);
    core.use_cache(&CacheOptions::of_size(512 << 10)).unwrap();
    let handle = open_write(&mut core, "log");
    let request = SegmentRequest {
        mode: Mode::Cached,
        ..read_request(&core, handle, 0, BLOCK)
    };
    run(&mut core, request).result.unwrap();
    let log = open_log(&mut core, handle).unwrap();
    assert_eq!(payloads(&mut core, &log), [b"kept"]);
    drop(log);
    core.close().unwrap();
}

#[test]
fn it_moves_with_its_segment() {
    let (mut core, disk) = volume();
    create(&mut core, "log", LOG_BYTES);
    create(&mut core, "wall", BLOCK as u64);
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    let id = core
        .begin_resize(ME, ME.uid, "log", &ResizeOptions::to_size(2 * LOG_BYTES))
        .unwrap();
    let mut count = 0_u32;
    let answer = loop {
        if let Ok(lsn) = log.appender().append(&count.to_le_bytes()) {
            count += 1;
            if count % 3 == 0 {
                wait(&mut core, &log, lsn);
            }
        }
        core.turn(Wait::one()).unwrap();
        if let Some(answer) = core.take_answer(&id) {
            break answer;
        }
    };
    assert!(matches!(answer, Ok(Answer::Segment { .. })), "{answer:?}");
    let grow = LogRequest::Grow {
        size_bytes: 2 * LOG_BYTES,
    };
    let question = core.begin_on_log(log.id(), grow).unwrap();
    core.wait_log(&question).unwrap();
    let last = log.appender().append(&count.to_le_bytes()).unwrap();
    wait(&mut core, &log, last);
    drop(log);
    drop(core);
    let mut core = open_with_seed(&disk.power_cut(1), 9);
    let handle = open_write(&mut core, "log");
    let log = open_log(&mut core, handle).unwrap();
    let all: Vec<Vec<u8>> = (0..=count).map(|number| number.to_le_bytes().to_vec()).collect();
    assert!(count > 3, "it appended while it moved");
    assert_eq!(payloads(&mut core, &log), all);
}

#[test]
fn its_batches_wait_for_the_end_of_a_freeze() {
    let (mut core, _disk) = volume();
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    let id = core.begin_freeze(ROOT).unwrap();
    let frozen = loop {
        match core.take_answer(&id) {
            Some(Ok(Answer::Frozen { freeze: id })) => break id,
            Some(other) => panic!("{other:?}"),
            None => drop(core.turn(Wait::one()).unwrap()),
        }
    };
    let lsn = log.appender().append(b"later").unwrap();
    for _ in 0..20 {
        core.turn(Wait::No).unwrap();
    }
    assert!(!is_durable(&log, lsn), "nothing changes on the device");
    core.thaw(frozen);
    wait(&mut core, &log, lsn);
    core.close().unwrap();
}

#[test]
fn a_full_table_does_not_stop_it() {
    let (mut core, _disk) = volume();
    create(&mut core, "log", LOG_BYTES);
    create(&mut core, "data", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let data = open_write(&mut core, "data");
    let log = create_log(&mut core, handle);
    let mut tickets = Vec::new();
    loop {
        let request = write_request(&core, data, tickets.len() as u64 % 64 * BLOCK as u64, &[1; BLOCK]);
        match core.start(request) {
            Ok(ticket) => tickets.push(ticket),
            Err(_) => break,
        }
    }
    let lsn = log.appender().append(b"beside them").unwrap();
    wait(&mut core, &log, lsn);
    for ticket in tickets {
        core.wait(ticket).unwrap().unwrap().result.unwrap();
    }
    core.close().unwrap();
}

#[test]
fn who_has_the_log_alone_writes_there() {
    let (mut core, _disk) = volume();
    core.use_cache(&CacheOptions::of_size(512 << 10)).unwrap();
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let other = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    for mode in [Mode::Direct, Mode::Cached] {
        let request = SegmentRequest {
            mode,
            ..write_request(&core, other, 0, &[9; BLOCK])
        };
        let error = run(&mut core, request).result.unwrap_err();
        assert!(matches!(error.fault, Fault::HasLog), "{error}");
        // Reads are anybody's, and see what the log has written, also in the cache.
        let request = SegmentRequest {
            mode,
            ..read_request(&core, other, 0, BLOCK)
        };
        let outcome = run(&mut core, request);
        outcome.result.unwrap();
        assert!(outcome.memory.into_buffer().unwrap().starts_with(b"BAIOLOG\0"));
    }
    let zero = SegmentRequest::new(
        other,
        SegmentOp::Zero { offset: 0, len: 4096 },
        baio_engine::Memory::None,
    );
    assert!(matches!(run(&mut core, zero).result.unwrap_err().fault, Fault::HasLog));
    assert!(matches!(open_log(&mut core, other).unwrap_err().fault, Fault::HasLog));
    assert!(matches!(
        core.delete(ME, ME.uid, "log").unwrap_err().fault,
        Fault::HasLog
    ));
    let half = ResizeOptions::to_size(LOG_BYTES / 2);
    assert!(matches!(
        core.resize(ME, ME.uid, "log", &half).unwrap_err().fault,
        Fault::HasLog
    ));
    core.rename(ME, ME.uid, "log", "renamed").unwrap();
    assert!(matches!(
        core.delete(ME, ME.uid, "renamed").unwrap_err().fault,
        Fault::HasLog
    ));
    let reader = core.open_segment(ME, ME.uid, "renamed", Access::Read).unwrap().0;
    let lsn = log.appender().append(b"renamed").unwrap();
    wait(&mut core, &log, lsn);
    // With its handle the log goes, and with the log the others may write.
    core.close_handle(handle);
    core.turn(Wait::No).unwrap();
    assert!(log.appender().append(b"late").is_err());
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    let error = core.begin_open_log(reader, &options()).unwrap_err();
    assert!(matches!(error.fault, Fault::ReadOnly), "{error}");
    let again = open_log(&mut core, other).unwrap();
    assert_eq!(payloads(&mut core, &again), [b"renamed"]);
    drop((log, again)); // The next turn winds the second down.
    core.turn(Wait::No).unwrap();
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    core.delete(ME, ME.uid, "renamed").unwrap();
    core.close().unwrap();
}

#[test]
fn a_close_makes_durable_what_was_appended() {
    let (mut core, disk) = volume();
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    log.appender().append(b"in memory").unwrap();
    let (mut key, waker) = (WaitKey::default(), Waker::noop());
    let never = Lsn(log.appender().end_lsn().0 + (1 << 20));
    core.close().unwrap();
    assert!(matches!(
        log.appender().poll_durable(never, &mut key, waker),
        Poll::Ready(Err(_))
    ));
    let mut core = open_with_seed(&disk.power_cut(3), 9);
    let handle = open_write(&mut core, "log");
    let log = open_log(&mut core, handle).unwrap();
    assert_eq!(payloads(&mut core, &log), [b"in memory"]);
    core.close().unwrap();
}

/// Nothing is asked, nothing is under way, and the sleep ends all the same: the watermark is written.
#[test]
fn an_idle_log_notes_its_watermark() {
    let (mut core, _disk) = volume();
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let log = create_log(&mut core, handle);
    let lsn = log.appender().append(b"one").unwrap();
    wait(&mut core, &log, lsn);
    let before = core.log_usage(log.id()).unwrap().headers;
    let at = core.next_wake().expect("it has something to note");
    while core.log_usage(log.id()).unwrap().headers == before {
        let deadline = Wait::Until {
            count: 0,
            min_wait: std::time::Duration::ZERO,
            deadline: Some(at),
        };
        core.turn(deadline).unwrap();
    }
    assert!(core.engine().now() >= at);
    let ticket = start(&mut core, harness::sync_request(handle));
    core.wait(ticket).unwrap().unwrap().result.unwrap();
    core.close().unwrap();
}

/// Pages of two databases wait for their own logs, which nobody has to speak for.
#[test]
fn pages_wait_for_the_log_that_they_are_under() {
    let (mut core, _disk) = volume();
    core.use_cache(&CacheOptions::of_size(512 << 10)).unwrap();
    let [logs, pages] = [["log a", "log b"], ["a", "b"]].map(|names| {
        names.map(|name| {
            create(&mut core, name, LOG_BYTES);
            open_write(&mut core, name)
        })
    });
    let logs = logs.map(|handle| create_log(&mut core, handle));
    for (handle, log) in pages.into_iter().zip(&logs) {
        core.set_log(handle, log.id()).unwrap();
    }
    let lsns = [0, 1].map(|nth| {
        let lsn = logs[nth].appender().append(b"change page 3").unwrap();
        let pin = core.pin_now(pages[nth], 3).unwrap();
        core.change(&pin, lsn.0).unwrap()[0] = 7;
        core.unpin(pin);
        lsn
    });
    // A sync waits for the log, and by turning the core drives it.
    for (handle, log, lsn) in [(pages[1], &logs[1], lsns[1]), (pages[0], &logs[0], lsns[0])] {
        let ticket = start(&mut core, harness::sync_request(handle));
        core.wait(ticket).unwrap().unwrap().result.unwrap();
        assert!(is_durable(log, lsn), "the log goes first");
    }
    // One whose log has gone is not written.
    let lsn = logs[0].appender().append(b"change page 4").unwrap();
    wait(&mut core, &logs[0], lsn);
    core.end_log(logs[0].id());
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    let pin = core.pin_now(pages[0], 4).unwrap();
    if let Ok(bytes) = core.change(&pin, lsn.0 + (1 << 20)) {
        bytes[0] = 9;
    }
    core.unpin(pin);
    let ticket = start(&mut core, harness::sync_request(pages[0]));
    assert!(core.wait(ticket).unwrap().unwrap().result.is_err());
    assert!(core.set_log(pages[1], logs[0].id()).is_err(), "it is closed");
    let _ = core.close();
}

/// The cache had it with no bytes; the log has made it longer.
#[test]
fn a_log_in_a_file_that_was_cached_when_it_was_empty_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, []).unwrap();
    let mut core = Core::new(&harness::config()).unwrap();
    core.use_cache(&CacheOptions::of_size(512 << 10)).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    core.prefetch(handle, &[0..1, 2..3]).unwrap();
    let options = LogOptions {
        file_bytes: LOG_BYTES,
        ..options()
    };
    let begin = |core: &mut Core| {
        let question = core.begin_log(handle, LogStart::OpenOrCreate, &options).unwrap();
        held(core.wait_log(&question).unwrap())
    };
    let log = begin(&mut core);
    let lsn = log.appender().append(b"kept").unwrap();
    wait(&mut core, &log, lsn);
    core.end_log(log.id());
    drop(log);
    while core.in_flight() > 0 {
        core.turn(Wait::one()).unwrap();
    }
    assert_eq!(core.size(handle).unwrap(), LOG_BYTES);
    let log = begin(&mut core);
    assert_eq!(payloads(&mut core, &log), [b"kept".to_vec()]);
}
