//! Records that are batches to the byte: whoever appends may know all of a log but its salt, and tears nothing apart with that.

use baio_engine::Arena;
use baio_storage::log::format::{
    BATCH_HEADER, BatchHeader, COPIES_AT, Header, RECORD_FIRST, RECORD_LAST, Salt, record_header,
};
use baio_storage::log::{LogError, LogIoKind, LogOptions, LogPart, LogRequest};

use crate::rig::{Device, Rig, SALT, record, small};

const SIZE: u64 = 8192 + (64 << 10);
const BLOCK: usize = 512;

/// A batch with one record, with the right checksum, by somebody who knows everything but the salt.
fn forged(header: BatchHeader, payload: &[u8], stamp: Option<[u8; 8]>) -> Vec<u8> {
    let mut batch = vec![0; BATCH_HEADER];
    batch.extend(record_header(payload.len() as u32, RECORD_FIRST | RECORD_LAST));
    batch.extend(payload);
    batch.resize(batch.len().next_multiple_of(8), 0);
    let header = BatchHeader {
        bytes: batch.len() as u32,
        first: BATCH_HEADER as u32,
        ..header
    };
    header.seal(&mut batch, &Salt([0; 16]));
    if let Some(stamp) = stamp {
        batch[8..16].copy_from_slice(&stamp);
        let checksum = crc32c::crc32c(&batch[8..]);
        batch[4..8].copy_from_slice(&checksum.to_le_bytes());
    }
    batch
}

/// A record whose bytes are `batch` from the second block of its own batch on.
fn around(batch: &[u8]) -> Vec<u8> {
    let mut payload = vec![7; BLOCK - BATCH_HEADER - 8];
    payload.extend(batch);
    payload.resize(1900, 7);
    payload
}

/// Stamps that are not computed: none, and one that was seen in the log.
fn stamps(device: &Device) -> [Option<[u8; 8]>; 2] {
    [None, Some(device.bytes[8192 + 8..8192 + 16].try_into().unwrap())]
}

fn header(lsn: u64, prev: u64, watermark: u64) -> BatchHeader {
    BatchHeader {
        epoch: 1,
        lsn,
        prev,
        watermark,
        bytes: 0,
        first: 0,
        goes_on: false,
    }
}

/// A torn batch with one in it that says that the log was durable beyond it.
fn torn() -> Vec<Device> {
    (0..2)
        .map(|which| {
            let mut rig = Rig::create(SIZE, &small());
            for number in 0..3 {
                rig.write(&record(number, 100));
            }
            let lsn = rig.appender.end_lsn().0 + BLOCK as u64;
            let batch = forged(header(lsn, lsn, lsn), b"forged", stamps(&rig.device)[which]);
            rig.batch(&around(&batch));
            let device = rig.crash(|_, sector| sector != 0);
            assert_eq!(
                device.bytes[8192 + 4 * BLOCK..][..batch.len()],
                batch,
                "it stands at a block"
            );
            device
        })
        .collect()
}

/// A lap ago a record was written that is the next batch of this lap.
fn next_lap() -> Vec<Device> {
    (0..2)
        .map(|which| {
            let mut rig = Rig::create(SIZE, &small());
            let first = rig.write(&record(0, 100));
            let again = 8192 + BLOCK as u64 + (64 << 10) + BLOCK as u64;
            let batch = forged(header(again, again, again), b"forged", stamps(&rig.device)[which]);
            rig.write(&around(&batch));
            rig.truncate(first + BLOCK as u64);
            for number in 5..=127 {
                rig.write(&record(number, 100));
            }
            let last = rig.write(&record(128, 100));
            rig.truncate(last);
            rig.write(&record(129, 100));
            assert_eq!(rig.appender.end_lsn().0, again);
            let device = rig.crash(|_, _| false);
            assert_eq!(device.bytes[8192 + 2 * BLOCK..][..batch.len()], batch);
            device
        })
        .collect()
}

#[test]
fn a_record_that_is_a_batch_is_none() {
    for device in torn() {
        let mut rig = Rig::open(device, &small());
        assert_eq!(
            rig.payloads(),
            [0, 1, 2].map(|number| record(number, 100)),
            "behind a torn one"
        );
    }
    for device in next_lap() {
        let mut rig = Rig::open(device, &small());
        assert_eq!(
            rig.payloads(),
            [128, 129].map(|number| record(number, 100)),
            "where the next one goes"
        );
    }
}

#[test]
fn nobody_is_shown_the_salt() {
    let rig = Rig::create(SIZE, &small());
    let shown = format!("{:?} {:?}", rig.part, rig.part.usage());
    let [one, two, three, ..] = SALT.0;
    assert!(shown.contains("Salt(..)") && !shown.contains(&format!("{one}, {two}, {three}")));
    let data = &rig.device.bytes[8192..];
    assert!(!data.windows(16).any(|bytes| bytes == SALT.0));
}

/// Opens it: how it went, and how many bytes were read.
fn bytes_read(device: &Device) -> (Result<(), LogError>, u64) {
    let arena = Arena::new(64 << 20).unwrap();
    let mut part = LogPart::look(&arena, device.bytes.len() as u64, &LogOptions::default()).unwrap();
    part.start(0, LogRequest::Open);
    let mut read = 0;
    while let Some((id, kind, mut memory)) = part.next_io() {
        let LogIoKind::Read { offset, len } = kind else {
            panic!("{kind:?}");
        };
        memory.copy_in_at(0, &device.bytes[offset as usize..][..len as usize]);
        read += u64::from(len);
        part.io_ended(id, Ok(len), memory);
    }
    (part.next_done().unwrap().result.map(drop), read)
}

#[test]
fn each_block_that_begins_a_batch_is_not_read_whole() {
    let longest = 1 << 20;
    let capacity = 4 * u64::from(longest);
    let options = LogOptions {
        window: 1,
        batch_bytes_max: longest,
        ..small()
    };
    for salt in [Salt([0; 16]), SALT] {
        let mut device = Rig::create(8192 + capacity, &options).crash(|_, _| false);
        for at in (8192 + BLOCK..device.bytes.len()).step_by(BLOCK) {
            let bytes = longest.min((device.bytes.len() - at) as u32);
            let batch = BatchHeader {
                epoch: 5,
                bytes,
                first: BATCH_HEADER as u32,
                ..header(1 << 40, 1 << 40, 0)
            };
            let mut head = vec![0; bytes as usize];
            // The stamp is right for who knows the salt. The sum is wrong, which nobody knows before it is read whole.
            batch.seal(&mut head, &salt);
            head[4] ^= 1;
            device.bytes[at..at + BATCH_HEADER].copy_from_slice(&head[..BATCH_HEADER]);
        }
        let (result, read) = bytes_read(&device);
        if salt == SALT {
            assert!(
                matches!(result, Err(LogError::TooDamaged { offset: 8192, .. })),
                "{result:?}"
            );
            assert!(read <= 66 << 20, "{read} bytes were read");
        } else {
            assert_eq!(result, Ok(()));
            assert!(read <= 2 * capacity, "{read} bytes were read");
        }
    }
}

/// A log in which every other block is a hole.
fn full_of_holes(count: u64) -> Device {
    let options = LogOptions {
        window: 1,
        batch_bytes_max: 1024,
        ..small()
    };
    let mut device = Rig::create(8192 + count * 1024, &options).crash(|_, _| false);
    let mut bytes = Header::decode(&device.bytes).unwrap();
    (bytes.holes_below, bytes.watermark, bytes.is_clean) = (1 << 40, 1 << 40, false);
    for copy in COPIES_AT {
        device.bytes[copy as usize..][..512].copy_from_slice(&bytes.encode());
    }
    for lsn in (8192..8192 + count * 1024).step_by(1024) {
        let mut batch = vec![0; BATCH_HEADER];
        batch.extend(record_header(8, RECORD_FIRST | RECORD_LAST));
        batch.extend(lsn.to_le_bytes());
        let sealed = BatchHeader {
            bytes: batch.len() as u32,
            first: BATCH_HEADER as u32,
            ..header(lsn, lsn - 8, 8192)
        };
        sealed.seal(&mut batch, &SALT);
        device.bytes[lsn as usize..][..batch.len()].copy_from_slice(&batch);
    }
    device
}

#[test]
fn many_holes_are_gone_behind_without_reading_anew() {
    let count = 2000;
    let device = full_of_holes(count);
    let capacity = count * 1024;
    let (result, read) = bytes_read(&device);
    assert_eq!(result, Ok(()));
    assert!(read <= 2 * capacity, "{read} bytes were read by the opening");
    let mut rig = Rig::try_look(device, &LogOptions::default()).unwrap();
    assert_eq!(rig.read().len() as u64, count);
    let reads = rig.part.usage().reads_device;
    assert!(reads <= 4, "{reads} reads");
}

#[test]
fn holes_have_an_end() {
    let (result, _) = bytes_read(&full_of_holes(5000));
    assert!(matches!(result, Err(LogError::TooDamaged { .. })), "{result:?}");
}
