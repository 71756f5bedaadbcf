//! Who reads the tail takes the latest batches from memory, without the driver; who is slow goes on from the device.

use baio_storage::log::{LogAnswer, LogError, LogOptions, LogRequest, Lsn, RecordReader};

use crate::rig::{Rig, record, small};

const SIZE: u64 = 1 << 20;

/// Asks the driver for the next batches.
fn ask(rig: &mut Rig, reader: &mut RecordReader) {
    let from = reader.next_batch();
    match rig.ask(LogRequest::Read { from }) {
        Ok(LogAnswer::Batches(Some(batches))) => reader.push(&batches),
        other => panic!("{other:?}"),
    }
}

fn rest(reader: &mut RecordReader) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| reader.next_record().map(|record| record.bytes.to_vec())).collect()
}

#[test]
fn the_tail_is_read_without_the_driver() {
    let mut rig = Rig::create(SIZE, &small());
    let appender = rig.part.appender();
    let mut reader = RecordReader::new(appender.head_lsn());
    assert!(appender.recent(reader.next_batch()).is_none(), "there is nothing");
    for number in 0..200 {
        let bytes = record(number, 300);
        rig.append(&bytes);
        rig.pump();
        assert!(appender.recent(reader.next_batch()).is_none(), "it is not durable yet");
        rig.run();
        reader.push(&appender.recent(reader.next_batch()).unwrap());
        assert_eq!(rest(&mut reader), [bytes]);
    }
    let usage = rig.part.usage();
    assert_eq!((usage.reads_device, usage.reads_recent), (0, 200));
}

#[test]
fn a_group_is_shown_when_it_is_whole() {
    let mut rig = Rig::create(SIZE, &small());
    let appender = rig.part.appender();
    let mut reader = RecordReader::new(appender.head_lsn());
    assert!(appender.recent(reader.next_batch()).is_none());
    let records: Vec<Vec<u8>> = (0..4).map(|number| record(number, 1500)).collect();
    let group: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    appender.append_all(&group).unwrap();
    rig.pump();
    rig.end(0);
    reader.push(&appender.recent(reader.next_batch()).unwrap());
    assert_eq!(rest(&mut reader).len(), 0, "it goes on in another batch");
    rig.run();
    while let Some(batches) = appender.recent(reader.next_batch()) {
        reader.push(&batches);
    }
    assert_eq!(rest(&mut reader), records);
}

#[test]
fn a_slow_reader_holds_nobody_and_goes_on_from_the_device() {
    let mut rig = Rig::create(SIZE, &small());
    let appender = rig.part.appender();
    let mut reader = RecordReader::new(appender.head_lsn());
    assert!(appender.recent(reader.next_batch()).is_none());
    rig.write(&record(0, 300));
    let held = appender.recent(reader.next_batch()).unwrap();
    let mut expected = vec![record(0, 300)];
    for number in 1..100 {
        rig.write(&record(number, 300));
        expected.push(record(number, 300));
    }
    reader.push(&held);
    assert!(appender.recent(reader.next_batch()).is_none(), "forgotten");
    let mut got = rest(&mut reader);
    while got.len() < expected.len() {
        ask(&mut rig, &mut reader);
        got.append(&mut rest(&mut reader));
    }
    assert_eq!(got, expected);
    assert_eq!(rig.part.usage().reads_device, 1, "a long one");
    rig.write(b"at the tail again");
    reader.push(&appender.recent(reader.next_batch()).unwrap());
    assert_eq!(rest(&mut reader), [b"at the tail again"]);
}

/// The driver tells why there is nothing.
#[test]
fn what_is_given_up_is_not_shown_nor_is_a_closed_log() {
    let mut rig = Rig::create(SIZE, &small());
    let appender = rig.part.appender();
    assert!(appender.recent(Lsn(0)).is_none());
    let lsns: Vec<Lsn> = (0..6).map(|number| Lsn(rig.write(&record(number, 300)))).collect();
    assert!(appender.recent(lsns[2]).is_some());
    rig.ask(LogRequest::Truncate { to: lsns[3] }).unwrap();
    assert!(appender.recent(lsns[2]).is_none());
    let asked = rig.ask(LogRequest::Read { from: lsns[2] });
    assert!(matches!(asked, Err(LogError::Truncated { .. })), "{asked:?}");
    assert!(appender.recent(lsns[3]).is_some());
    rig.ask(LogRequest::Close).unwrap();
    assert!(appender.recent(lsns[3]).is_none());
    drop(rig);
    assert!(appender.recent(lsns[3]).is_none());
}

#[test]
fn some_of_the_longest_batches_are_kept_by_default() {
    let mut rig = Rig::create(16 << 20, &LogOptions::default());
    let appender = rig.part.appender();
    let mut reader = RecordReader::new(appender.head_lsn());
    assert!(appender.recent(reader.next_batch()).is_none());
    let bytes = record(1, (1 << 20) - 100);
    for _ in 0..3 {
        rig.append(&bytes);
    }
    rig.run();
    assert!(rig.part.usage().batches <= 4, "they are long");
    let mut got = Vec::new();
    while let Some(batches) = appender.recent(reader.next_batch()) {
        reader.push(&batches);
        got.append(&mut rest(&mut reader));
    }
    assert!(got.len() == 3 && got.iter().all(|other| *other == bytes));
}
