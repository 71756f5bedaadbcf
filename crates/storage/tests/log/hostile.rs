//! Whatever lies in the area, a log opens or refuses: it never panics, never runs for ever, never asks for memory without bound.

use baio_engine::{Arena, Errno, Memory};
use baio_storage::log::format::{BatchHeader, Carry, HEADER_BYTES, Header, SeenBatch, walk};
use baio_storage::log::{LogError, LogIoKind, LogOptions, LogPart, LogRequest, Lsn};
use proptest::prelude::*;

use crate::rig::{Device, Rig, SALT, UUID, record, small};

const SIZE: u64 = 8192 + (24 << 10);

/// A log with some of everything: a group over several batches, an earlier opening, a lap.
fn used() -> Device {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..12 {
        let lsn = rig.write(&record(number, 1500));
        if number == 5 {
            rig.truncate(lsn);
        }
    }
    let mut rig = Rig::open(rig.crash(|_, _| true), &small());
    let group: Vec<Vec<u8>> = (0..4).map(|number| record(number, 700)).collect();
    let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
    rig.appender.append_all(&slices).unwrap();
    rig.run();
    rig.write(b"the end");
    rig.crash(|_, _| true)
}

/// Opens it in both ways, reads, appends, truncates and grows, whatever comes of it.
fn try_all(device: &Device) {
    if let Ok(mut rig) = Rig::try_look(device.clone(), &small()) {
        let head = rig.part.usage().head.0;
        let _ = rig.try_read(head);
        assert!(rig.device.bytes == device.bytes);
    }
    for salvage in [false, true] {
        let options = LogOptions { salvage, ..small() };
        let Ok(mut rig) = Rig::try_open(device.clone(), &options) else {
            continue;
        };
        let head = rig.part.usage().head.0;
        let _ = rig.try_read(head);
        let _ = rig.appender.append(&[1; 3000]);
        rig.run();
        let durable = rig.appender.durable_lsn().0;
        let _ = rig.ask(LogRequest::Truncate {
            to: Lsn(head + durable.saturating_sub(head) / 2),
        });
        rig.device.bytes.resize(SIZE as usize * 2, 0);
        let _ = rig.ask(LogRequest::Grow { size_bytes: SIZE * 2 });
        let head = rig.part.usage().head.0;
        let _ = rig.try_read(head);
        let _ = rig.ask(LogRequest::Close);
    }
}

/// The header with other numbers and a right checksum, in both copies.
fn with_header(device: &mut Device, change: impl FnOnce(&mut [u8])) {
    let mut bytes = device.bytes[..HEADER_BYTES].to_vec();
    change(&mut bytes);
    let checksum = crc32c::crc32c(&bytes[..508]);
    bytes[508..].copy_from_slice(&checksum.to_le_bytes());
    device.bytes[..HEADER_BYTES].copy_from_slice(&bytes);
    device.bytes[4096..4096 + HEADER_BYTES].copy_from_slice(&bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bytes_that_are_changed(flips in prop::collection::vec((0..SIZE, any::<u8>()), 1..40)) {
        let mut device = used();
        for (at, value) in flips {
            device.bytes[at as usize] = value;
        }
        try_all(&device);
    }

    #[test]
    fn a_header_that_says_anything(fields in prop::collection::vec((1..17_usize, any::<u64>(), 0..64_u32), 1..4)) {
        let mut device = used();
        with_header(&mut device, |bytes| {
            for (field, value, shift) in fields {
                bytes[field * 8..field * 8 + 8].copy_from_slice(&(value >> shift).to_le_bytes());
            }
        });
        try_all(&device);
    }

    #[test]
    fn batches_that_say_anything_with_a_right_checksum(
        places in prop::collection::vec((0..48_usize, 1..8_usize, any::<u64>(), 0..64_u32, 0..2000_usize, any::<u64>()), 1..6),
    ) {
        let mut device = used();
        for (block, field, value, shift, at, content) in places {
            let start = 8192 + block * 512;
            let batch = &mut device.bytes[start..];
            if batch[..4] != *b"BLOG" {
                continue;
            }
            batch[field * 8..field * 8 + 8].copy_from_slice(&(value >> shift).to_le_bytes());
            let word = |at: usize| u64::from_le_bytes(batch[at..at + 8].try_into().unwrap());
            let stamp = SALT.stamp(word(16), word(24));
            batch[8..16].copy_from_slice(&stamp.to_le_bytes());
            let used = u32::from_le_bytes(batch[48..52].try_into().unwrap()) as usize;
            let Some(whole) = batch.get_mut(..used.max(64)) else {
                continue;
            };
            if let Some(bytes) = whole.get_mut(64 + at / 8 * 8..72 + at / 8 * 8) {
                bytes.copy_from_slice(&content.to_le_bytes());
            }
            let checksum = crc32c::crc32c(&whole[8..]);
            whole[4..8].copy_from_slice(&checksum.to_le_bytes());
        }
        try_all(&device);
    }

    #[test]
    fn any_bytes_decode_to_something(bytes in prop::collection::vec(any::<u8>(), 0..1024), max in any::<u64>()) {
        let _ = Header::decode(&bytes);
        prop_assert_ne!(BatchHeader::look(&bytes, &SALT, max), SeenBatch::Longer(0));
    }

    #[test]
    fn any_records_are_walked(
        mut bytes in prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 64..600),
        first in prop_oneof![Just(0_u32), 8..80_u32],
        goes_on in any::<bool>(),
        len in 0..100_u32,
        seen in 0..200_u32,
    ) {
        bytes.truncate(bytes.len() / 8 * 8);
        let header = BatchHeader { epoch: 1, lsn: 8192, prev: 0, watermark: 0, bytes: bytes.len() as u32, first: first * 8, goes_on };
        for carry in [Carry::Unknown, Carry::Between, Carry::Within { len, seen, flags: 3 }] {
            let mut behind = 64;
            walk(&bytes, &header, carry, |piece| {
                assert!(piece.from >= behind && piece.from <= piece.to && piece.to as usize <= bytes.len(), "{piece:?}");
                behind = piece.to;
            });
        }
    }
}

#[test]
fn a_batch_that_follows_itself_is_read_once() {
    // All sequence numbers may be right and the area still be one ring without an end: a lap is the most that is followed.
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..12 {
        rig.write(&record(number, 1900));
    }
    try_all(&rig.crash(|_, _| true));
}

#[test]
fn every_call_in_any_state_is_answered() {
    // A device of which every I/O fails, at every point of every request.
    for fails_at in 0..80 {
        let arena = baio_engine::Arena::new(8 << 20).unwrap();
        let mut device = used();
        let mut part = if fails_at % 2 == 0 {
            LogPart::open(&arena, SIZE, &small()).unwrap()
        } else {
            LogPart::create(&arena, SIZE, UUID, SALT, &small()).unwrap()
        };
        device.bytes.resize(SIZE as usize * 2, 0);
        let requests = [
            LogRequest::Open,
            LogRequest::Read { from: Lsn(8192) },
            LogRequest::Truncate { to: Lsn(u64::MAX) },
            LogRequest::Grow { size_bytes: SIZE * 2 },
            LogRequest::NoteWatermark,
            LogRequest::Truncate { to: Lsn(12_000) },
            LogRequest::Read { from: Lsn(u64::MAX) },
            LogRequest::Close,
            LogRequest::Close,
            LogRequest::Grow { size_bytes: u64::MAX },
        ];
        for (owner, request) in requests.into_iter().enumerate() {
            part.start(owner as u64, request);
        }
        let mut number = 0;
        let (mut ended, mut stale) = (0, Vec::new());
        loop {
            let _ = part.appender().append(&[number as u8; 700]);
            let Some((id, kind, mut memory)) = part.next_io() else {
                break;
            };
            number += 1;
            let result = match kind {
                _ if number > fails_at / 2 => Err(Errno::EIO),
                LogIoKind::Read { offset, len } => {
                    memory.copy_in_at(0, &device.bytes[offset as usize..][..len as usize]);
                    Ok(len)
                }
                LogIoKind::Write { offset, len } => {
                    memory.copy_out_at(0, &mut device.bytes[offset as usize..][..len as usize]);
                    Ok(len)
                }
                LogIoKind::Sync | LogIoKind::Allocate { .. } => Ok(0),
            };
            part.io_ended(id, result, memory);
            stale.push(id);
            while part.next_done().is_some() {
                ended += 1;
            }
            assert!(number < 2000, "it ends");
        }
        while part.next_done().is_some() {
            ended += 1;
        }
        assert_eq!(ended, requests.len(), "each has one end ({fails_at})");
        for id in stale {
            part.io_ended(id, Ok(512), Memory::None);
        }
        assert!(part.is_idle());
    }
}

#[test]
fn memory_that_does_not_come_back_is_no_panic() {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..10 {
        let lsn = rig.batch(&record(number, 100));
        let io = rig.ios.remove(0);
        let LogIoKind::Write { len, .. } = io.kind else {
            panic!("{:?}", io.kind);
        };
        rig.part.io_ended(io.id, Ok(len), Memory::None);
        assert!(rig.is_durable(lsn));
    }
    let io = {
        rig.batch(b"short");
        rig.ios.remove(0)
    };
    rig.part.io_ended(io.id, Ok(0), io.memory);
    assert!(matches!(
        rig.appender.append(b"x"),
        Err(LogError::Failed { errno: Errno::EIO, .. })
    ));
}

#[test]
fn a_header_with_numbers_that_no_log_has_is_refused() {
    let change: [fn(&mut Header); 8] = [
        |header| header.epoch = 0,
        |header| header.ahead += 4,
        |header| header.ahead = u64::from(header.window + 1) * u64::from(header.batch_bytes_max) - 512,
        |header| header.epoch_first += 100_001,
        |header| header.watermark += 2,
        |header| header.holes_below = 8193,
        |header| header.head.lsn += 1,
        |header| header.head.batch -= 4,
    ];
    for (number, change) in change.into_iter().enumerate() {
        let mut rig = Rig::create(SIZE, &small());
        rig.write(b"one");
        let mut device = rig.crash(|_, _| false);
        for at in [0, 4096] {
            let mut header = Header::decode(&device.bytes[at..at + HEADER_BYTES]).unwrap();
            change(&mut header);
            device.bytes[at..at + HEADER_BYTES].copy_from_slice(&header.encode());
        }
        let error = Rig::try_open(device, &small()).err();
        assert_eq!(error, Some(LogError::HeaderLost), "{number}");
    }
}

#[test]
fn a_reader_goes_on_by_the_rules_of_the_opening() {
    let mut rig = Rig::create(SIZE, &small());
    for number in 0..4 {
        rig.write(&record(number, 100));
    }
    let mut device = rig.crash(|_, _| false);
    // The second is of an epoch before the first, and right in all else.
    let batch = &mut device.bytes[8192 + 512..8192 + 1024];
    let used = u32::from_le_bytes(batch[48..52].try_into().unwrap()) as usize;
    let lsn = u64::from_le_bytes(batch[24..32].try_into().unwrap());
    batch[8..16].copy_from_slice(&SALT.stamp(0, lsn).to_le_bytes());
    batch[16..24].fill(0);
    let checksum = crc32c::crc32c(&batch[8..used]);
    batch[4..8].copy_from_slice(&checksum.to_le_bytes());
    let options = LogOptions {
        salvage: true,
        ..small()
    };
    let mut rig = Rig::open(device, &options);
    assert_eq!(rig.recovered().holes.len(), 1);
    assert_eq!(rig.payloads(), [0, 2, 3].map(|number| record(number, 100)));
}

#[test]
fn numbers_at_their_limit_are_refused_before_anything_is_written() {
    for field in [32, 40] {
        let mut device = used();
        with_header(&mut device, |bytes| {
            bytes[field..field + 8].copy_from_slice(&((1_u64 << 62) - 1).to_le_bytes());
        });
        let before = device.bytes.clone();
        let arena = Arena::new(64 << 20).unwrap();
        let part = LogPart::open(&arena, SIZE, &small()).unwrap();
        let mut rig = Rig::of_unopened(arena, device, part);
        assert_eq!(rig.ask(LogRequest::Open).unwrap_err(), LogError::HeaderLost);
        assert!(rig.device.bytes == before, "nothing was written");
        let mut rig = Rig::try_look(rig.device.clone(), &small()).unwrap();
        assert!(!rig.read().is_empty(), "its records can be looked at");
    }
}

#[test]
fn the_window_of_a_huge_log_is_as_wished() {
    // A quarter of 64 TiB has 2^32 batches of 4 KiB.
    let options = LogOptions {
        batch_bytes_max: 4096,
        ..small()
    };
    let mut device = Rig::create(8192 + (64 << 10), &options).crash(|_, _| true);
    let capacity = 64_u64 << 40;
    with_header(&mut device, |bytes| {
        bytes[88..96].copy_from_slice(&capacity.to_le_bytes());
    });
    let arena = Arena::new(64 << 20).unwrap();
    let mut part = LogPart::open(&arena, 8192 + capacity, &options).unwrap();
    while let Some((id, kind, mut memory)) = part.next_io() {
        let mut len = 0;
        if let LogIoKind::Read { offset, .. } | LogIoKind::Write { offset, .. } = kind {
            len = memory.len();
            if matches!(kind, LogIoKind::Read { .. }) {
                let mut bytes = device.bytes[(offset as usize).min(device.bytes.len())..].to_vec();
                bytes.resize(len, 0);
                memory.copy_in_at(0, &bytes);
            }
        }
        part.io_ended(id, Ok(len as u32), memory);
    }
    let appender = part.appender();
    for _ in 0..options.window {
        appender.append(&record(1, 4000)).unwrap();
    }
    let writes = std::iter::from_fn(|| part.next_io()).count();
    assert_eq!(writes, options.window as usize);
}

#[test]
fn an_end_with_any_length_and_any_memory_is_no_panic() {
    // The I/O with this number ends in another way than it should: with other bytes than were asked for, with other memory.
    let requests = [
        LogRequest::Open,
        LogRequest::Read { from: Lsn(8192) },
        LogRequest::Truncate { to: Lsn(12_000) },
        LogRequest::Close,
    ];
    for (odd, how) in (0..40).flat_map(|odd| (0..20).map(move |how| (odd, how))) {
        let arena = Arena::new(8 << 20).unwrap();
        let mut device = used();
        let mut part = LogPart::open(&arena, SIZE, &small()).unwrap();
        for (owner, request) in requests.into_iter().enumerate() {
            part.start(owner as u64, request);
        }
        let (mut number, mut is_told) = (0, 0);
        loop {
            while part.next_done().is_some() {
                is_told += 1;
            }
            let Some((id, kind, mut memory)) = part.next_io() else {
                break;
            };
            let (mut result, is_odd) = (
                Ok(memory.len() as u32),
                number >= odd && number < odd + 1 + how as usize / 10,
            );
            match kind {
                LogIoKind::Read { offset, len } => {
                    memory.copy_in_at(0, &device.bytes[offset as usize..][..len as usize]);
                }
                LogIoKind::Write { offset, len } => {
                    memory.copy_out_at(0, &mut device.bytes[offset as usize..][..len as usize]);
                }
                LogIoKind::Sync | LogIoKind::Allocate { .. } => result = Ok(0),
            }
            number += 1;
            if !is_odd {
                part.io_ended(id, result, memory);
                continue;
            }
            let bytes = memory.len();
            let other = match how % 10 {
                0 | 1 => Memory::None,
                2 | 3 => with_len(memory, bytes / 2),
                4 | 5 => with_len(memory, bytes * 2),
                6 => with_len(memory, 0),
                _ => memory,
            };
            let said = match how % 10 {
                0 | 2 | 4 => result,
                1 | 3 | 5 => Err(Errno::EIO),
                6 | 7 => Ok(0),
                8 => Ok(bytes as u32 / 2),
                _ => Ok(u32::MAX),
            };
            part.io_ended(id, said, other);
            assert!(number < 2000, "it ends");
        }
        assert_eq!(is_told, requests.len(), "each has one end ({odd}, {how})");
    }
}

fn with_len(memory: Memory, len: usize) -> Memory {
    match memory.into_buffer() {
        Some(mut buffer) => {
            buffer.set_len(len);
            Memory::Own(buffer)
        }
        None => Memory::None,
    }
}
