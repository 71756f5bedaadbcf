//! One write that is slow: others behind it end, and more follow, farther than the window of batches in flight.

use baio_storage::log::{LogError, LogOptions};

use crate::rig::{Rig, record, small};

/// An area that is larger than LSNs may lie beyond what is durable.
const WIDE: u64 = 8192 + (256 << 10);

/// Batches of one record behind a slow write, which has the index 0, until no more may follow. How many; the LSN of the slow one.
fn all_behind_a_slow_one(rig: &mut Rig, each: impl Fn(&Rig, u64)) -> (u64, u64) {
    let slow = rig.batch(&record(0, 100));
    for number in 1.. {
        if rig.appender.append(&record(number, 100)).is_err() {
            return (number - 1, slow);
        }
        rig.pump();
        rig.end(1);
        each(rig, number);
    }
    unreachable!()
}

#[test]
fn batches_behind_a_slow_one_give_their_memory_back() {
    let mut rig = Rig::create(WIDE, &small());
    let free = rig.arena.free_bytes();
    let (count, slow) = all_behind_a_slow_one(&mut rig, |rig, number| {
        assert!(rig.arena.free_bytes() >= free, "batch {number} holds memory");
    });
    assert!(count > 100, "{count}");
    assert!(!rig.is_durable(slow));
    rig.end(0);
    assert_eq!(rig.part.usage().batches, count + 1);
    assert_eq!(rig.part.usage().in_flight_max, 2);
    assert_eq!(rig.payloads().len() as u64, count + 1);
}

#[test]
fn a_reader_at_the_tail_finds_what_went_past_it_behind_a_slow_one() {
    let options = LogOptions {
        recent_bytes: 64 << 10,
        ..small()
    };
    let mut rig = Rig::create(WIDE, &options);
    let first = rig.write(&record(0, 100));
    assert_eq!(rig.payloads_at_hand(), 1);
    let free = rig.arena.free_bytes();
    let (count, _) = all_behind_a_slow_one(&mut rig, |rig, number| {
        let held = free.saturating_sub(rig.arena.free_bytes());
        assert!(held <= 3 * 4096, "batch {number}: {held} bytes");
    });
    rig.end(0);
    // Those that are in memory are not all, and none is passed over.
    let expected: Vec<Vec<u8>> = (0..=count).map(|number| record(number, 100)).collect();
    let read: Vec<Vec<u8>> = rig
        .try_read(first)
        .unwrap()
        .into_iter()
        .map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(read[1..], expected[..]);
    // A little out of order all are.
    let from = rig.batch(&record(1000, 100));
    rig.batch(&record(1001, 100));
    rig.end(1);
    rig.end(0);
    let before = rig.part.usage().reads_device;
    assert_eq!(rig.try_read(from).unwrap().len(), 2);
    assert_eq!(rig.part.usage().reads_device, before);
}

#[test]
fn rot_is_told_when_as_much_as_may_be_lay_behind_it() {
    let mut rig = Rig::create(WIDE, &small());
    all_behind_a_slow_one(&mut rig, |_, _| {});
    rig.end(0);
    // The only batch that says that the first was durable.
    rig.write(&record(1, 100));
    rig.device.flip(8192 + 100);
    let error = Rig::try_open(rig.crash(|_, _| false), &small()).err();
    assert!(matches!(error, Some(LogError::Rot { .. })), "{error:?}");
}

#[test]
fn rot_of_a_batch_that_was_slow_is_told() {
    let mut rig = Rig::create(8192 + (64 << 10), &small());
    let first = rig.batch(&record(0, 100));
    // Far more than the window, one by one, while the first is at the device.
    for number in 1..12 {
        rig.batch(&record(number, 1900));
        rig.end(1);
    }
    assert!(!rig.is_durable(first));
    rig.end(0);
    assert!(rig.is_durable(first));
    // The only batch that says so.
    rig.write(&record(12, 100));
    rig.device.flip(8192 + 100);
    let error = Rig::try_open(rig.crash(|_, _| false), &small()).err();
    assert!(matches!(error, Some(LogError::Rot { .. })), "{error:?}");
}
