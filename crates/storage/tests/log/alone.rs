//! The promise: nobody else writes where a log is, by whatever way, and nobody who only reads there keeps it from writing.

use baio_engine::{Open, Wait};
use baio_storage::cache::CacheOptions;
use baio_storage::log::{LogRequest, Lsn};
use baio_storage::{Core, Fault, ResizeOptions};

use crate::harness::{BLOCK, ME, config, create, open_with_seed, open_write, slow_volume, start, write_request};
use crate::held_log::{LOG_BYTES, create_log, held, options, wait};

/// On a plain file there is no volume whose owner would be alone.
#[test]
fn a_plain_file_has_one_log_in_all_cores() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![0; LOG_BYTES as usize]).unwrap();
    let mut cores = [0, 1].map(|_| Core::new(&config()).unwrap());
    let [one, other] = &mut cores;
    let handle = one.open_file(&path, &Open::write()).unwrap();
    let second = other.open_file(&path, &Open::write()).unwrap();
    let log = create_log(one, handle);
    let lsn = log.appender().append(b"kept").unwrap();
    wait(one, &log, lsn);
    for _ in 0..2 {
        let error = other.begin_open_log(second, &options()).map(|_| ()).unwrap_err();
        assert!(matches!(error.fault, Fault::Busy { .. }), "{error}");
        let error = other.begin_create_log(second, &options()).map(|_| ()).unwrap_err();
        assert!(matches!(error.fault, Fault::Busy { .. }), "{error}");
    }
    let close = one.begin_on_log(log.id(), LogRequest::Close).unwrap();
    one.wait_log(&close).unwrap();
    let question = other.begin_open_log(second, &options()).unwrap();
    let again = held(other.wait_log(&question).unwrap());
    assert!(one.begin_open_log(handle, &options()).is_err());
    drop(again);
    // The core that goes gives it back, also without a close.
    let [mut one, other] = cores;
    drop(other);
    let question = one.begin_open_log(handle, &options()).unwrap();
    drop(held(one.wait_log(&question).unwrap()));
    // One that could not be opened, too.
    std::fs::write(dir.path().join("none"), vec![0; LOG_BYTES as usize]).unwrap();
    let none = one.open_file(&dir.path().join("none"), &Open::write()).unwrap();
    for _ in 0..2 {
        let question = one.begin_open_log(none, &options()).unwrap();
        let error = one.wait_log(&question).map(|_| ()).unwrap_err();
        assert!(matches!(error.fault, Fault::Log(_)), "{error}");
    }
    one.close().unwrap();
}

/// A write that the device has already, also one that nobody waits for, would land over the log's batches.
#[test]
fn a_write_under_way_is_not_beside_a_log() {
    let disk = slow_volume(16 << 20);
    let mut core = open_with_seed(&disk, 1);
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let other = open_write(&mut core, "log");
    for abandons in [false, true] {
        let request = write_request(&core, other, 0, &[9; BLOCK]);
        let ticket = start(&mut core, request);
        core.turn(Wait::No).unwrap();
        if abandons {
            core.abandon(ticket);
        }
        let error = core.begin_create_log(handle, &options()).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "EBUSY", "{error}");
        while core.in_flight() > 0 {
            core.turn(Wait::one()).unwrap();
        }
        drop(core.wait(ticket));
    }
    let log = create_log(&mut core, handle);
    let lsn = log.appender().append(b"kept").unwrap();
    wait(&mut core, &log, lsn);
    core.close().unwrap();
}

/// A page that is pinned can be changed, and until it is let go nothing can be written there: the log would end.
#[test]
fn no_page_is_pinned_where_a_log_is() {
    let disk = slow_volume(16 << 20);
    let mut core = open_with_seed(&disk, 1);
    let bytes = 512 << 10;
    core.use_cache(&CacheOptions {
        bytes,
        ..CacheOptions::default()
    })
    .unwrap();
    create(&mut core, "log", LOG_BYTES);
    let handle = open_write(&mut core, "log");
    let other = open_write(&mut core, "log");
    let pin = core.pin_now(other, 5).unwrap();
    let error = core.begin_create_log(handle, &options()).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), "EBUSY", "{error}");
    let held = core.hold(pin);
    drop(held); // On whatever thread: it is back at once.
    let log = create_log(&mut core, handle);
    let is_refused = |error: baio_storage::Error| assert!(matches!(error.fault, Fault::HasLog), "{error}");
    for page in [0, 5, 100] {
        is_refused(core.pin_now(other, page).map(|_| ()).unwrap_err());
        is_refused(core.pin_new_now(other, page, 0).map(|_| ()).unwrap_err());
        is_refused(core.pin_there(other, page).map(|_| ()).unwrap_err());
    }
    let mut last = Lsn(0);
    for _ in 0..10 {
        last = log.appender().append(&[7; 4000]).unwrap();
    }
    wait(&mut core, &log, last);
    let close = core.begin_on_log(log.id(), LogRequest::Close).unwrap();
    core.wait_log(&close).unwrap();
    let pin = core.pin_now(other, 5).unwrap();
    core.unpin(pin);
    core.close().unwrap();
}

/// A segment that gets shorter would take the log's end with it.
#[test]
fn no_log_is_opened_in_what_gets_shorter() {
    let mut refused = 0;
    for turns in 0..12 {
        let disk = slow_volume(16 << 20);
        let mut core = open_with_seed(&disk, 1);
        create(&mut core, "log", LOG_BYTES);
        let handle = open_write(&mut core, "log");
        let log = create_log(&mut core, handle);
        let mut last = Lsn(0);
        while let Ok(lsn) = log.appender().append(&[7; 4000]) {
            last = lsn;
        }
        wait(&mut core, &log, last);
        let close = core.begin_on_log(log.id(), LogRequest::Close).unwrap();
        core.wait_log(&close).unwrap();
        let half = ResizeOptions::to_size(LOG_BYTES / 2);
        let id = core.begin_resize(ME, ME.uid, "log", &half).unwrap();
        for _ in 0..turns {
            core.turn(Wait::one()).unwrap();
        }
        let opened = core.begin_open_log(handle, &options());
        refused += u32::from(opened.as_ref().is_err_and(|error| error.code() == "EBUSY"));
        let opened = opened.and_then(|question| core.wait_log(&question));
        let answer = loop {
            if let Some(answer) = core.take_answer(&id) {
                break answer;
            }
            core.turn(Wait::one()).unwrap();
        };
        assert!(
            answer.is_err() || opened.is_err(),
            "after {turns} turns both have their way"
        );
        assert!(answer.is_ok() || opened.is_ok(), "after {turns} turns neither has");
        drop(opened);
        core.close().unwrap();
    }
    assert!(refused > 0);
}
