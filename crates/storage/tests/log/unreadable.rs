//! The promise: an error of the device is never a judgement on the data. What cannot be read is told as that, with the device's errno and
//! the byte; no opening takes it for rot, for the end, or for no log, and nobody salvages while reads fail. When the device is well
//! again, everything is there.

use baio_engine::sim::Random;
use baio_engine::{Arena, Errno};
use baio_storage::log::{LogError, LogOptions, LogPart, LogRequest, Lsn};

use crate::rig::{Device, Rig, record, small};

const SIZE: u64 = 8192 + (64 << 10);
/// Where the fourth of the batches would lie: each has a block.
const END: u64 = 8192 + 3 * 512;

fn salvaging() -> LogOptions {
    LogOptions {
        salvage: true,
        ..small()
    }
}

fn expected(numbers: &[u64]) -> Vec<Vec<u8>> {
    numbers.iter().map(|number| record(*number, 100)).collect()
}

/// A log with three records, which was not closed; a watermark names them, or none does.
fn three(is_noted: bool) -> Device {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..3 {
        rig.write(&record(number, 100));
    }
    if is_noted {
        rig.tick(1000);
        rig.run();
    }
    rig.crash(|_, _| false)
}

fn says_the_device(device: &Device, options: &LogOptions, offset: u64, what: &str) {
    let expected = LogError::Read {
        errno: Errno::EIO,
        offset,
    };
    let looked = Rig::try_look(device.clone(), options).err();
    assert_eq!(looked.as_ref(), Some(&expected), "a look: {what}");
    let opened = Rig::try_open(device.clone(), options).err();
    assert_eq!(opened, Some(expected), "{what}");
}

#[test]
fn what_cannot_be_read_is_the_devices_error_and_nothing_else() {
    let spots = [
        (8192..8704, 8192),                   // The first batch.
        (8704..9216, 8704),                   // One in the middle.
        (END - 512..END, END - 512),          // The last.
        (END..END + 512, END),                // Where the next one may be.
        (END + 1536..END + 2048, END + 1536), // Inside of that.
        (8192..SIZE, 8192),                   // All data.
        (0..8192, 0),                         // Both headers.
    ];
    for is_noted in [false, true] {
        for (unreadable, offset) in &spots {
            let mut device = three(is_noted);
            device.unreadable.push(unreadable.clone());
            let what = format!("{unreadable:?}, noted: {is_noted}");
            says_the_device(&device, &small(), *offset, &what);
            says_the_device(&device, &salvaging(), *offset, &format!("salvage: {what}"));
            device.unreadable.clear();
            assert_eq!(Rig::open(device, &small()).payloads(), expected(&[0, 1, 2]), "{what}");
        }
    }
}

#[test]
fn who_salvages_while_the_end_cannot_be_read_loses_nothing() {
    for lost in 1..=3 {
        let mut device = three(false);
        device.unreadable.push(END - lost * 512..END);
        let before = device.bytes.clone();
        // He believes the message, and tries by force.
        if let Ok(mut rig) = Rig::try_open(device.clone(), &salvaging()) {
            for number in 10..15 {
                rig.write(&record(number, 100));
            }
            device = rig.crash(|_, _| false);
        }
        device.unreadable.clear();
        let kept = Rig::open(device.clone(), &small()).payloads();
        assert_eq!(kept, expected(&[0, 1, 2]), "{lost} blocks");
        assert!(device.bytes == before);
    }
}

#[test]
fn a_block_far_behind_the_end_keeps_nobody_out() {
    let mut device = three(true);
    device.unreadable.push(END + 2048..SIZE);
    assert_eq!(Rig::open(device.clone(), &small()).payloads(), expected(&[0, 1, 2]));
    // Where a salvage goes on is decided there.
    let bytes = &mut device.bytes[8192 + 512 + 100];
    *bytes ^= 1;
    says_the_device(&device, &salvaging(), END + 2048, "behind a hole");
}

/// Each of them ends a read of a megabyte after some hundred bytes; what such reads asked for was counted as gone over in vain.
#[test]
fn hundreds_of_blocks_far_behind_the_end_keep_nobody_out() {
    let options = LogOptions { window: 64, ..small() };
    let size = 8192 + (4 << 20);
    let mut rig = Rig::create(size, &options);
    rig.write(&record(0, 100));
    let mut device = rig.crash(|_, _| false);
    let far = 8192 + 512 + u64::from(options.batch_bytes_max);
    device
        .unreadable
        .extend((0..400).map(|number| far + number * 1024..far + number * 1024 + 512));
    assert_eq!(Rig::open(device, &options).payloads(), expected(&[0]));
}

#[test]
fn what_was_read_and_is_wrong_is_rot_beside_an_unreadable_block() {
    let mut device = three(true);
    device.flip(8192 + 512 + 100);
    device.unreadable.push(END + 4096..SIZE);
    let error = Rig::try_open(device, &small()).err();
    assert!(matches!(error, Some(LogError::Rot { offset: 8704, .. })), "{error:?}");
}

#[test]
fn one_copy_of_the_header_is_enough_but_not_to_salvage() {
    for copy in [0, 4096] {
        let mut device = three(true);
        device.unreadable.push(copy..copy + 512);
        says_the_device(&device, &salvaging(), copy, "one copy");
        assert_eq!(Rig::open(device, &small()).payloads(), expected(&[0, 1, 2]));
    }
}

/// Two thousand openings of a log, each read of which may fail: the device's error, or all of it.
#[test]
fn openings_while_reads_fail_say_the_devices_error_or_find_all() {
    let (mut told, mut opened) = (0, 0);
    for round in 0..2000_u64 {
        let mut device = three(round % 2 == 0);
        let options = if round % 3 == 0 { salvaging() } else { small() };
        device.failing_percent = [3, 20, 50][(round % 5) as usize % 3];
        device.random = Random(round);
        let looks = round % 7 == 0;
        let tried = match looks {
            true => Rig::try_look(device, &options),
            false => Rig::try_open(device, &options),
        };
        match tried {
            Err(LogError::Read { errno: Errno::EIO, .. }) => told += 1,
            Err(other) => panic!("round {round}: {other}"),
            Ok(mut rig) => {
                opened += 1;
                rig.device.failing_percent = 0;
                assert_eq!(rig.payloads(), expected(&[0, 1, 2]), "round {round}");
            }
        }
    }
    assert!(told > 200 && opened > 200, "{told} failed, {opened} opened");
}

/// A reader of an open log, too.
#[test]
fn reads_of_an_open_log_say_the_devices_error() {
    let options = LogOptions {
        recent_bytes: 0,
        ..small()
    };
    let mut rig = Rig::create(SIZE, &options);
    for number in 0..6 {
        rig.write(&record(number, 100));
    }
    let head = rig.part.usage().head.0;
    rig.device.unreadable.push(8192 + 1024..8192 + 1536);
    let expected_error = LogError::Read {
        errno: Errno::EIO,
        offset: 8192 + 1024,
    };
    assert_eq!(rig.try_read(head).err(), Some(expected_error));
    rig.device.unreadable.clear();
    assert_eq!(rig.try_read(head).unwrap().len(), 6);
}

/// Whoever read was killed, and the memory went with him: that is what happened, and no lack of memory.
#[test]
fn a_read_that_ends_without_its_memory_is_told_as_what_happened() {
    let gone = |error: Option<LogError>, what: &str| {
        let is_told = matches!(
            error,
            Some(LogError::Read {
                errno: Errno::EPIPE,
                ..
            })
        );
        assert!(is_told, "{what}: {error:?}");
    };
    // Both headers, and the first part of the data.
    for reads in 1..=3 {
        let device = three(true);
        let arena = Arena::new(8 << 20).unwrap();
        let part = LogPart::open(&arena, SIZE, &small()).unwrap();
        let mut rig = Rig::of_unopened(arena, device, part);
        let open = rig.start(LogRequest::Open);
        for read in 1.. {
            rig.pump();
            match rig.ios.is_empty() {
                true => break,
                false if read < reads => rig.end(0),
                false => rig.lose(0, Errno::EPIPE),
            }
        }
        gone(rig.take_done(open).unwrap().err(), "an opening");
    }
    let options = LogOptions {
        recent_bytes: 0,
        ..small()
    };
    let mut rig = Rig::create(SIZE, &options);
    let lsns: Vec<u64> = (0..6).map(|number| rig.write(&record(number, 100))).collect();
    for request in [
        LogRequest::Truncate { to: Lsn(lsns[3]) },
        LogRequest::Read { from: Lsn(lsns[0]) },
    ] {
        let owner = rig.start(request);
        rig.pump();
        rig.lose(0, Errno::EPIPE);
        gone(rig.take_done(owner).unwrap().err(), "an open log");
    }
}
