//! The stories, about any link and any place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use baio::{CreateOptions, Errno, Fault, Log, LogError, LogOptions, Lsn, ResizeOptions};

use crate::rig::{LOG_BYTES, Made, Rig, numbered, payloads, segment};

fn create<L: Made>(rig: &Rig, link: &L) -> Log<L> {
    rig.opened(link).create_log(&rig.options()).wait().unwrap()
}

/// A broker may still end what the one before had under way.
fn open<L: Made>(rig: &Rig, link: &L) -> Log<L> {
    let opened = rig.opened(link);
    loop {
        match opened.open_log(&rig.options()).wait() {
            Err(error) if rig.place.is_far && matches!(error.fault, Fault::HasLog) => std::thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

fn fault(error: &baio::Error) -> Option<LogError> {
    match &error.fault {
        Fault::Log(error) => Some((**error).clone()),
        _ => None,
    }
}

pub(crate) fn what_was_appended_is_read_again<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let mut last = Lsn(0);
    for number in 0..200 {
        let lsn = log.append(&numbered(number)).unwrap();
        assert!(lsn > last, "LSNs grow");
        last = lsn;
        if number % 7 == 0 {
            assert_eq!(log.durable(lsn).wait().unwrap(), lsn);
            assert!(lsn < log.durable_lsn());
        }
    }
    log.durable(last).wait().unwrap();
    let lsn = log.append_durable(&numbered(200)).wait().unwrap();
    assert!(lsn > last && lsn < log.durable_lsn());
    let all: Vec<Vec<u8>> = (0..=200).map(numbered).collect();
    assert_eq!(payloads(&log), all);
    log.close().wait().unwrap();
    drop(log);
    link.close().unwrap();
    let link = rig.link::<L>();
    let log = open(rig, &link);
    assert!(log.found().was_clean, "{:?}", log.found());
    assert_eq!(payloads(&log), all);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn a_log_is_made_where_none_was_ever_made<L: Made>(rig: &Rig) {
    for number in 0..3 {
        let link = rig.link::<L>();
        let opened = rig.opened(&link);
        let log = loop {
            match opened.open_or_create_log(&rig.options()).wait() {
                Err(error) if rig.place.is_far && matches!(error.fault, Fault::HasLog) => std::thread::yield_now(),
                log => break log.unwrap(),
            }
        };
        let all: Vec<Vec<u8>> = (0..number).map(numbered).collect();
        assert_eq!(payloads(&log), all);
        log.append_durable(&numbered(number)).wait().unwrap();
        drop(log);
        drop(opened);
        link.close().unwrap();
    }
}

pub(crate) fn nobody_waits_for_a_record_that_is_nobodys<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let last = log.append_durable(&numbered(1)).wait().unwrap();
    let is_told = |error: &baio::Error| {
        assert!(matches!(fault(error), Some(LogError::NotYet { .. })), "{error}");
        assert_eq!(error.code(), "EINVAL");
    };
    for lsn in [log.end_lsn().0 + 8, 1 << 40, u64::MAX] {
        is_told(&log.durable(Lsn(lsn)).wait().unwrap_err());
        is_told(&log.durable(Lsn(lsn)).wait_within(Duration::from_secs(60)).unwrap_err());
    }
    let waited = log.durable(last).wait_within(Duration::from_secs(60)).unwrap();
    assert_eq!(waited, Some(last));
    // For the next record one may wait, and nobody appends it.
    let next = log.end_lsn();
    assert_eq!(log.durable(next).wait_within(Duration::from_millis(1)).unwrap(), None);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn a_group_is_recovered_whole<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let group: Vec<Vec<u8>> = (0..40).map(|number| vec![number; 1500]).collect();
    let parts: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
    let last = log.append_all(&parts).unwrap();
    log.durable(last).wait().unwrap();
    assert_eq!(payloads(&log), group);
    assert_eq!(log.append_all(&[]).unwrap_err().errno(), Some(Errno::EINVAL));
    drop(log);
    link.close().unwrap();
    let link = rig.link::<L>();
    let log = open(rig, &link);
    assert_eq!(payloads(&log), group);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn records_of_all_sizes<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let sizes = [0, 1, 7, 8, 9, 500, 4095, 4096, 32 << 10, 100_000, 300_000];
    let mut all = Vec::new();
    for (number, size) in sizes.into_iter().enumerate() {
        let record: Vec<u8> = (0..size).map(|at| (at * 31 + number) as u8).collect();
        let lsn = log.append(&record).unwrap();
        log.durable(lsn).wait().unwrap();
        all.push(record);
    }
    assert_eq!(payloads(&log), all);
    let error = log.append(&vec![0; 2 << 20]).unwrap_err();
    assert!(matches!(fault(&error), Some(LogError::TooLong { .. })), "{error}");
    drop(log);
    link.close().unwrap();
    let link = rig.link::<L>();
    let log = open(rig, &link);
    assert_eq!(payloads(&log), all);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn a_follower_hears_of_more<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let mut follower = log.follow(log.head_lsn());
    for number in 0..60 {
        let lsn = log.append(&numbered(number)).unwrap();
        let record = follower.next_record().wait().unwrap().unwrap();
        assert_eq!((record.lsn(), record.payload()), (lsn, &numbered(number)[..]));
    }
    drop(follower);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn truncated_space_is_used_again<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let record = vec![7; 20_000];
    let (mut written, mut last) = (0, Lsn(0));
    while written < 4 * LOG_BYTES {
        match log.append(&record) {
            Ok(lsn) => {
                (written, last) = (written + 20_000, lsn);
            }
            Err(error) => {
                assert!(matches!(error.errno(), Some(Errno::EAGAIN | Errno::ENOSPC)), "{error}");
                log.durable(last).wait().unwrap();
                let head = log.truncate(last).wait().unwrap();
                assert!(head <= last && head == log.head_lsn());
                log.room(record.len()).wait().unwrap();
            }
        }
    }
    log.durable(last).wait().unwrap();
    let kept = payloads(&log);
    assert!(!kept.is_empty() && kept.iter().all(|payload| *payload == record));
    let error = log.records(Lsn(8)).next_record().wait().unwrap_err();
    assert!(matches!(fault(&error), Some(LogError::Truncated { .. })), "{error}");
    log.close().wait().unwrap();
    drop(log);
    link.close().unwrap();
    let link = rig.link::<L>();
    let log = open(rig, &link);
    assert_eq!(payloads(&log), kept);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn what_is_retained_is_kept<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let lsns: Vec<Lsn> = (0..20).map(|number| log.append(&numbered(number)).unwrap()).collect();
    log.durable(lsns[19]).wait().unwrap();
    let retained = log.retain(lsns[5]);
    assert!(retained.wanted().is_none());
    let head = log.truncate(lsns[10]).wait().unwrap();
    assert!(head <= lsns[5], "{head:?}");
    assert_eq!(retained.wanted(), Some(lsns[10]));
    retained.advance(lsns[8]);
    assert!(log.truncate(lsns[10]).wait().unwrap() <= lsns[8]);
    drop(retained);
    let head = log.truncate(lsns[10]).wait().unwrap();
    assert_eq!(head, lsns[10]);
    assert_eq!(payloads(&log)[0], numbered(10));
    drop(log);
    link.close().unwrap();
}

pub(crate) fn a_log_that_is_full_says_so<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let mut last = None;
    let error = loop {
        match log.append(&[1; 5000]) {
            Ok(lsn) => last = Some(lsn),
            // The memory for what is on its way.
            Err(error) if error.errno() == Some(Errno::EAGAIN) => log.room(5000).wait().unwrap(),
            Err(error) => break error,
        }
    };
    assert_eq!(fault(&error), Some(LogError::Full));
    assert_eq!(error.code(), "ENOSPC");
    assert!(error.to_string().contains("the log is full"), "{error}");
    let last = last.unwrap();
    log.durable(last).wait().unwrap();
    let usage = log.usage().wait().unwrap();
    assert!(usage.used_bytes > usage.free_bytes, "{usage:?}");
    drop(log);
    link.close().unwrap();
}

/// Without a close of the log or the link: as after a crash of the process.
pub(crate) fn a_log_that_was_dropped_is_recovered<L: Made>(rig: &Rig) {
    let mut all = Vec::new();
    let mut latest = Lsn(0);
    for round in 0..4_u64 {
        let link = rig.link::<L>();
        let log = match round {
            0 => create(rig, &link),
            _ => open(rig, &link),
        };
        let found = payloads(&log);
        assert!(found.starts_with(&all), "what was acknowledged is there");
        all = found;
        for number in 0..25 {
            let record = numbered(round * 100 + number);
            let lsn = log.append(&record).unwrap();
            assert!(lsn > latest, "no LSN is given twice");
            latest = lsn;
            if number < 20 {
                log.durable(lsn).wait().unwrap();
                all.push(record);
            }
        }
        drop(link); // Before the log, which closes nothing then.
        drop(log);
    }
}

pub(crate) fn a_log_grows<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let mut last = log.append(b"first").unwrap();
    while let Ok(lsn) = log.append(&[3; 10_000]) {
        last = lsn;
    }
    log.durable(last).wait().unwrap();
    let before = payloads(&log);
    let error = log.grow(2 * LOG_BYTES).wait().unwrap_err();
    assert!(matches!(error.fault, Fault::BadSize(_)), "{error}");
    if rig.place.is_file {
        let file = std::fs::OpenOptions::new().write(true).open(&rig.file).unwrap();
        file.set_len(2 * LOG_BYTES).unwrap();
    } else {
        let size = ResizeOptions::to_size(2 * LOG_BYTES);
        link.resize_segment("log", &size).wait().unwrap();
    }
    log.grow(2 * LOG_BYTES).wait().unwrap();
    for _ in 0..50 {
        last = log.append(&[4; 10_000]).unwrap();
    }
    log.durable(last).wait().unwrap();
    let after = payloads(&log);
    assert!(after.starts_with(&before) && after.len() == before.len() + 50);
    log.close().wait().unwrap();
    drop(log);
    link.close().unwrap();
    let link = rig.link::<L>();
    let log = open(rig, &link);
    assert_eq!(payloads(&log), after);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn two_logs_beside_each_other<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let one = create(rig, &link);
    let other = segment(&link, "other").create_log(&rig.options()).wait().unwrap();
    for number in 0..50 {
        let lsns = [
            one.append(&numbered(number)).unwrap(),
            other.append(&numbered(1000 + number)).unwrap(),
        ];
        let [a, b] = [one.durable(lsns[0]), other.durable(lsns[1])];
        link.block_on(async { (a.await.unwrap(), b.await.unwrap()) }).unwrap();
    }
    one.close().wait().unwrap();
    other.append_durable(b"on").wait().unwrap();
    assert_eq!(payloads(&other).len(), 51);
    assert_eq!(one.append(b"late").unwrap_err().errno(), Some(Errno::ESTALE));
    drop((one, other));
    link.close().unwrap();
}

pub(crate) fn callbacks_and_events_tell_of_progress<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let events = log.events().unwrap();
    assert!(!events.take(), "nothing has become durable");
    let called = Arc::new(AtomicU64::new(0));
    let lsn = log.append(b"one").unwrap();
    for _ in 0..3 {
        let called = Arc::clone(&called);
        log.when_durable(lsn, move |result| {
            result.unwrap();
            called.fetch_add(1, Ordering::SeqCst);
        });
    }
    log.durable(lsn).wait().unwrap();
    let then = Arc::clone(&called);
    log.when_durable(lsn, move |_| {
        then.fetch_add(1, Ordering::SeqCst);
    });
    for _ in 0..2000 {
        if called.load(Ordering::SeqCst) == 4 {
            break;
        }
        let _ = link.turn(baio::Wait::No);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(called.load(Ordering::SeqCst), 4);
    assert!(events.take() && !events.take());
    drop(events);
    drop(log);
    link.close().unwrap();
}

pub(crate) fn who_else_would_write_is_refused<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let opened = rig.opened(&link);
    let has_log = |error: &baio::Error| matches!(error.fault, Fault::HasLog);
    let write = |offset| {
        opened
            .write_at(offset, opened.buffer(4096).unwrap())
            .wait()
            .unwrap_err()
    };
    assert!(has_log(&write(0).error), "{}", write(0).error);
    assert!(has_log(&opened.discard(0, 4096).wait().unwrap_err().error));
    assert!(has_log(&opened.open_log(&rig.options()).wait().unwrap_err()));
    assert!(has_log(&opened.create_log(&LogOptions::default()).wait().unwrap_err()));
    opened.read_at(0, opened.buffer(4096).unwrap()).wait().unwrap();
    if !rig.place.is_file {
        assert!(has_log(&link.delete_segment("log").wait().unwrap_err()));
        let size = ResizeOptions::to_size(LOG_BYTES / 2);
        assert!(has_log(&link.resize_segment("log", &size).wait().unwrap_err()));
    }
    log.append_durable(b"still").wait().unwrap();
    log.close().wait().unwrap();
    drop(log);
    opened.write_at(0, opened.buffer(4096).unwrap()).wait().unwrap();
    if !rig.place.is_file {
        link.delete_segment("log").wait().unwrap();
        link.create_segment("log", &CreateOptions::of_size(LOG_BYTES))
            .wait()
            .unwrap();
        let error = segment(&link, "log").open_log(&rig.options()).wait().unwrap_err();
        assert_eq!(fault(&error), Some(LogError::NotLog));
    }
    drop(opened);
    link.close().unwrap();
}

pub(crate) fn a_closed_log_is_closed<L: Made>(rig: &Rig) {
    let link = rig.link::<L>();
    let log = create(rig, &link);
    let clone = log.clone();
    let lsn = log.append(b"before").unwrap();
    clone.close().wait().unwrap();
    log.durable(lsn).wait().unwrap();
    assert_eq!(log.append(b"after").unwrap_err().errno(), Some(Errno::ESTALE));
    assert!(log.usage().wait().is_err() && log.close().wait().is_err());
    // It can be opened again at once, while the old one is still held.
    let again = rig.opened(&link).open_log(&rig.options()).wait().unwrap();
    assert_eq!(payloads(&again), [b"before"]);
    drop((log, clone));
    again.append_durable(b"again").wait().unwrap();
    let late = again.append(b"late").unwrap();
    link.clone().close().unwrap();
    assert!(again.append(b"never").is_err());
    // A close of the link ends what is under way.
    let _ = (again, late);
    let link = rig.link::<L>();
    let log = open(rig, &link);
    assert_eq!(payloads(&log), [&b"before"[..], b"again", b"late"]);
    drop(log);
    link.close().unwrap();
}
