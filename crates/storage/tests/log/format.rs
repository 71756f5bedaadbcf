//! The promise: a log that an earlier build wrote is read, and `docs/inside/log-format.md` says enough to write another reader.
//!
//! The images in `tests/log_images` were written once and are kept. They are made by
//! `cargo test -p baio-storage --test log format:: -- --ignored`, which makes those that are missing.
//!
//! The reader below was written from the document and shares no code with the library.

use std::path::PathBuf;

use baio_storage::log::{LogError, LogOptions, LogRequest};

use crate::harness::image_text::{from_text, to_text};
use crate::rig::{Device, Records, Rig, record, small};

const SIZE: u64 = 8192 + (32 << 10);
const NAMES: [&str; 4] = ["closed", "killed", "wrapped", "large-blocks"];

/// What `docs/inside/log-format.md` says, in its order.
mod reader {
    use std::hash::Hasher;

    pub(super) type Records = Vec<(u64, Vec<u8>)>;

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    /// CRC-32C, bit by bit.
    fn crc(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 }
            })
        })
    }

    struct Header<'a>(&'a [u8]);

    impl Header<'_> {
        fn block(&self) -> u64 {
            u64::from(u32_at(self.0, 12))
        }
        fn sequence(&self) -> u64 {
            u64_at(self.0, 32)
        }
        fn watermark(&self) -> u64 {
            u64_at(self.0, 80)
        }
        fn batch_max(&self) -> u64 {
            u64::from(u32_at(self.0, 112))
        }
        fn look(&self) -> u64 {
            let window = u64::from(u32_at(self.0, 116));
            u64_at(self.0, 96).max(window * self.batch_max()) + self.batch_max()
        }
        /// SipHash-2-4 of two numbers, by the standard library.
        #[allow(deprecated, reason = "it is what the document names, and no code of ours")]
        fn stamp(&self, epoch: u64, lsn: u64) -> u64 {
            let mut sip = std::hash::SipHasher::new_with_keys(u64_at(self.0, 136), u64_at(self.0, 144));
            sip.write(&epoch.to_le_bytes());
            sip.write(&lsn.to_le_bytes());
            sip.finish()
        }
        fn is_valid(&self) -> bool {
            self.0[..8] == *b"BAIOLOG\0"
                && crc(&self.0[..508]) == u32_at(self.0, 508)
                && u32_at(self.0, 8) == 1
                && u32_at(self.0, 120) == 0
        }
    }

    /// A batch that is whole, at this place of the data.
    fn batch<'a>(header: &Header<'_>, data: &'a [u8], place: u64) -> Option<&'a [u8]> {
        let bytes = &data[place as usize..];
        if bytes[..4] != *b"BLOG" || u64_at(bytes, 8) != header.stamp(u64_at(bytes, 16), u64_at(bytes, 24)) {
            return None;
        }
        let used = u64::from(u32_at(bytes, 48));
        let padded = used.next_multiple_of(header.block());
        if used < 72 || used % 8 != 0 || padded > header.batch_max() || padded > bytes.len() as u64 {
            return None;
        }
        let batch = &bytes[..used as usize];
        (crc(&batch[8..]) == u32_at(batch, 4)).then_some(batch)
    }

    /// A record that is being put together.
    struct Open {
        lsn: u64,
        rest: usize,
        flags: u32,
        bytes: Vec<u8>,
    }

    /// Is there a batch behind the end that was written when this one was there?
    fn is_later_there(header: &Header<'_>, data: &[u8], (end, place, epoch): (u64, u64, u64)) -> bool {
        let capacity = data.len() as u64;
        let mut looks =
            (0..header.look().min(capacity) / header.block()).map(|nth| (place + nth * header.block()) % capacity);
        looks.any(|at| {
            batch(header, data, at).is_some_and(|batch| {
                let is_later = u64_at(batch, 24) > end && u64_at(batch, 16) >= epoch;
                is_later && u64_at(batch, 40) > end
            })
        })
    }

    /// The records, or the LSN and the place of the area where something has rotted.
    pub(super) fn read(area: &[u8]) -> Result<Records, (u64, u64)> {
        let copies = [Header(&area[..512]), Header(&area[4096..4608])];
        let valid = copies.iter().filter(|copy| copy.is_valid());
        let header = valid.max_by_key(|copy| copy.sequence()).expect("a header");
        let watermark = copies
            .iter()
            .filter(|copy| copy.is_valid())
            .map(Header::watermark)
            .max()
            .unwrap();
        let (head, capacity) = (u64_at(header.0, 48), u64_at(header.0, 88));
        let data = &area[8192..8192 + capacity as usize];
        let (mut end, mut place, mut epoch) = (u64_at(header.0, 56), u64_at(header.0, 64), 0);
        let (mut is_first, mut passed) = (true, 0);
        let (mut records, mut group): (Records, Option<Records>) = (Vec::new(), None);
        let mut open: Option<Open> = None;
        while passed < capacity {
            let Some(batch) = batch(header, data, place) else {
                break;
            };
            let (batch_epoch, lsn, prev) = (u64_at(batch, 16), u64_at(batch, 24), u64_at(batch, 32));
            let is_new_epoch = batch_epoch > epoch;
            let follows = prev == end && (lsn == end || is_new_epoch && lsn > end) || is_first && lsn == end;
            if !follows || batch_epoch < epoch {
                break;
            }
            if is_new_epoch {
                (open, group) = (None, None);
            }
            let first = u32_at(batch, 52) as usize;
            let goes_on = u32_at(batch, 56) & 1 == 1;
            let mut at = 64;
            if is_first && first > 64 {
                at = first; // What began before the head.
            }
            while at < batch.len() {
                if open.is_none() {
                    let (len, flags) = (u32_at(batch, at) as usize, u32_at(batch, at + 4));
                    let lsn = lsn + at as u64;
                    if lsn >= head && flags & 2 != 0 {
                        group = Some(Vec::new());
                    }
                    open = Some(Open {
                        lsn,
                        rest: len,
                        flags,
                        bytes: Vec::new(),
                    });
                    at += 8;
                }
                let current = open.as_mut().unwrap();
                let here = current.rest.min(batch.len() - at);
                current.bytes.extend_from_slice(&batch[at..at + here]);
                current.rest -= here;
                at += here.next_multiple_of(8);
                if current.rest == 0 {
                    let ended = open.take().unwrap();
                    if let Some(group) = &mut group {
                        group.push((ended.lsn, ended.bytes));
                    }
                    if ended.flags & 1 != 0 {
                        records.extend(group.take().unwrap_or_default());
                    }
                }
            }
            assert_eq!(goes_on, open.is_some(), "batch {lsn}");
            let padded = (batch.len() as u64).next_multiple_of(header.block());
            (end, epoch, is_first) = (lsn + padded, batch_epoch, false);
            place = (place + padded) % capacity;
            passed += padded;
        }
        match watermark > end || is_later_there(header, data, (end, place, epoch)) {
            true => Err((end, 8192 + place)),
            false => Ok(records),
        }
    }
}

fn options_of(name: &str) -> LogOptions {
    match name {
        "large-blocks" => LogOptions {
            block_bytes: 4096,
            window: 1,
            batch_bytes_max: 8192,
            ..small()
        },
        _ => small(),
    }
}

/// The log of this name, made anew.
fn make(name: &str) -> Rig {
    let mut rig = Rig::create(SIZE, &options_of(name));
    for number in 0..4 {
        rig.write(&record(number, 100 * number as usize));
    }
    let group: Vec<Vec<u8>> = (10..14).map(|number| record(number, 900)).collect();
    let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
    rig.appender.append_all(&slices).unwrap();
    rig.run();
    match name {
        "closed" | "large-blocks" => {
            rig.ask(LogRequest::Close).unwrap();
            rig
        }
        "killed" => {
            // A second opening; a group of which the first batch alone landed; a third opening; a batch behind one that was lost.
            let mut rig = Rig::open(rig.crash(|_, _| false), &options_of(name));
            rig.write(&record(20, 50));
            rig.appender.append_all(&slices).unwrap();
            rig.pump();
            let mut rig = Rig::open(rig.crash(|io, _| io == 0), &options_of(name));
            rig.write(&record(21, 60));
            rig.batch(&record(22, 70));
            rig.batch(&record(23, 80));
            let device = rig.crash(|io, _| io == 1);
            let mut opened = Rig::open(device.clone(), &options_of(name));
            opened.device = device;
            opened
        }
        "wrapped" => {
            for number in 30..60 {
                let lsn = rig.write(&record(number, 1500));
                if number % 5 == 0 {
                    rig.truncate(lsn);
                }
            }
            rig
        }
        _ => panic!("{name}"),
    }
}

/// What is in it.
fn contents(name: &str) -> Vec<Vec<u8>> {
    let early = (0..4).map(|number| record(number, 100 * number as usize));
    let group = (10..14).map(|number| record(number, 900));
    match name {
        "killed" => early.chain(group).chain([record(20, 50), record(21, 60)]).collect(),
        "wrapped" => (55..60).map(|number| record(number, 1500)).collect(),
        _ => early.chain(group).collect(),
    }
}

fn path_of(name: &str) -> PathBuf {
    let file = format!("version-1-{name}.hex");
    [env!("CARGO_MANIFEST_DIR"), "tests", "log_images", &file]
        .iter()
        .collect()
}

/// A header's block beside its 512 bytes, and what was never written, is whatever was there: zeroes in an image.
fn without_gaps(device: &Device) -> Vec<u8> {
    let mut bytes = device.bytes.clone();
    bytes[512..4096].fill(0);
    bytes[4608..8192].fill(0);
    bytes
}

#[test]
#[ignore = "makes the images that are missing"]
fn make_images() {
    for name in NAMES {
        let path = path_of(name);
        if !path.exists() {
            std::fs::write(path, to_text(&without_gaps(&make(name).device))).unwrap();
        }
    }
}

#[test]
fn old_logs_are_read() {
    for name in NAMES {
        let bytes = from_text(&std::fs::read_to_string(path_of(name)).unwrap());
        let device = Device {
            bytes,
            ..Device::new(0)
        };
        let by_another = reader::read(&device.bytes).unwrap();
        let payloads: Vec<Vec<u8>> = by_another.iter().map(|(_, bytes)| bytes.clone()).collect();
        assert!(payloads == contents(name), "{name}");
        let mut rig = Rig::open(device, &options_of(name));
        assert!(rig.read() == by_another, "{name}");
        assert_eq!(
            rig.recovered().was_clean,
            name == "closed" || name == "large-blocks",
            "{name}"
        );
        // And written on.
        rig.write(b"by this build");
        let records = rig.read();
        let mut rig = Rig::open(rig.crash(|_, _| false), &options_of(name));
        assert!(rig.read() == records, "{name}");
    }
}

#[test]
fn this_build_writes_the_same() {
    for name in NAMES {
        let text = std::fs::read_to_string(path_of(name)).unwrap();
        assert!(text == to_text(&without_gaps(&make(name).device)), "{name}");
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut device = make("closed").device;
    for at in [0, 4096] {
        device.bytes[at + 8] = 2;
        let checksum = crc32c::crc32c(&device.bytes[at..at + 508]);
        device.bytes[at + 508..at + 512].copy_from_slice(&checksum.to_le_bytes());
    }
    assert_eq!(Rig::try_open(device, &small()).err(), Some(LogError::Version(2)));
}

/// What the library says of a device, and what the other reader does.
fn agree(device: Device, seed: u64) -> Option<Device> {
    let by_another = reader::read(&device.bytes);
    match (Rig::try_open(device, &small()), by_another) {
        (Ok(mut rig), Ok(records)) => {
            let found: Records = rig.read();
            assert!(found == records, "seed {seed}");
            Some(rig.crash(|_, _| false))
        }
        (Err(LogError::Rot { lsn, offset }), Err(place)) => {
            assert_eq!((lsn.0, offset), place, "seed {seed}");
            None
        }
        (one, other) => panic!(
            "seed {seed}: {:?} and {:?}",
            one.err(),
            other.map(|records| records.len())
        ),
    }
}

#[test]
fn both_readers_say_the_same() {
    for seed in 0..150_u64 {
        let mut state = seed;
        let mut next = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let mut device = Rig::create(SIZE, &small()).crash(|_, _| false);
        for _ in 0..4 {
            let mut rig = Rig::open(device, &small());
            for _ in 0..next(40) {
                let count = 1 + next(3) * next(3);
                let group: Vec<Vec<u8>> = (0..count).map(|number| record(number, next(1200) as usize)).collect();
                let slices: Vec<&[u8]> = group.iter().map(Vec::as_slice).collect();
                if let Err(error) = rig.appender.append_all(&slices) {
                    assert!(matches!(error, LogError::WouldBlock | LogError::Full));
                    rig.run();
                    let records = rig.read();
                    rig.truncate(records[records.len() / 2].0);
                }
                rig.pump();
                if next(2) == 0 && !rig.ios.is_empty() {
                    let index = next(rig.ios.len() as u64) as usize;
                    rig.end(index);
                }
            }
            let landed = next(8);
            let mut crashed = rig.crash(|io, sector| (io as u64 + sector as u64 * landed) % 3 != landed % 3);
            if next(6) == 0 {
                crashed.flip(8192 + next(SIZE - 8192));
            }
            match agree(crashed, seed) {
                Some(after) => device = after,
                None => break,
            }
        }
    }
}
