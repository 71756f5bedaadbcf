//! The promise: a log whose blocks are smaller than the sectors of the device that it has come to is read there, goes on, and is emptied. A
//! disk was copied to another, or an older kernel does not tell how small the sectors may be. Needs root, for a loop device.

use std::path::Path;

use baio_engine::{Caching, Descriptions, Open};
use baio_storage::log::{LogAnswer, LogRequest, Lsn, RecordReader};
use baio_storage::{Core, HeldLog, LogReply};

use crate::harness::loop_device::Loop;
use crate::harness::{self, config};
use crate::held_log::{LOG_BYTES, create_log, held, options, wait};

fn open(core: &mut Core, path: &Path) -> HeldLog {
    let handle = core.open_file(path, &Open::write()).unwrap();
    let question = core.begin_open_log(handle, &options()).unwrap();
    held(core.wait_log(&question).unwrap())
}

fn append(core: &mut Core, log: &HeldLog, records: &[&[u8]]) -> Lsn {
    let lsns = records.iter().map(|record| {
        let lsn = log.appender().append(record).unwrap();
        wait(core, log, lsn);
        lsn
    });
    lsns.last().unwrap()
}

fn ask(core: &mut Core, log: &HeldLog, request: LogRequest) -> LogAnswer {
    let question = core.begin_on_log(log.id(), request).unwrap();
    match core.wait_log(&question).unwrap() {
        LogReply::Done(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// How many it holds.
fn records(core: &mut Core, log: &HeldLog) -> usize {
    let mut reader = RecordReader::new(log.appender().head_lsn());
    let mut records = 0;
    loop {
        let from = reader.next_batch();
        match ask(core, log, LogRequest::Read { from }) {
            LogAnswer::Batches(Some(batches)) => reader.push(&batches),
            LogAnswer::Batches(None) => return records,
            other => panic!("{other:?}"),
        }
        while reader.next_record().is_some() {
            records += 1;
        }
    }
}

#[test]
fn a_log_of_smaller_blocks_is_read_goes_on_and_is_emptied() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("log");
    std::fs::write(&path, vec![0; LOG_BYTES as usize]).unwrap();
    let mut core = Core::new(&config()).unwrap();
    let handle = core.open_file(&path, &Open::write()).unwrap();
    let log = create_log(&mut core, handle);
    append(&mut core, &log, &[b"one", b"two"]);
    core.close().unwrap();
    // Its header tells (docs/inside/log-format.md).
    if std::fs::read(&path).unwrap()[12..16] != 512_u32.to_le_bytes() {
        return harness::skip("the sectors here are larger than 512 bytes");
    }
    let device = match Loop::with(&path, &["--sector-size", "4096"]) {
        Ok(device) => device,
        Err(why) => return harness::skip(&format!("no loop device: {why}")),
    };
    for round in 0..3 {
        let mut core = Core::new(&config()).unwrap();
        let log = open(&mut core, &device.0);
        append(&mut core, &log, &[b"three", &vec![round; 5000]]);
        core.close().unwrap();
    }
    let mut core = Core::new(&config()).unwrap();
    let log = open(&mut core, &device.0);
    let end = append(&mut core, &log, &[b"last"]);
    assert_eq!(records(&mut core, &log), 9, "one, two, three times two, last");
    ask(&mut core, &log, LogRequest::Truncate { to: end });
    core.close().unwrap();
    // Without the page cache it cannot be, and that is said.
    let mut core = Core::new(&config()).unwrap();
    let direct = Open {
        descriptions: Descriptions::Only(Caching::Direct),
        ..Open::write()
    };
    let handle = core.open_file(&device.0, &direct).unwrap();
    let question = core.begin_open_log(handle, &options()).unwrap();
    let error = core.wait_log(&question).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("both descriptions"), "{error}");
    core.close().unwrap();
    drop(device);
    // And back on the disk with small ones.
    let mut core = Core::new(&config()).unwrap();
    let log = open(&mut core, &path);
    append(&mut core, &log, &[b"home"]);
    assert_eq!(records(&mut core, &log), 2, "last and home");
    core.close().unwrap();
}
