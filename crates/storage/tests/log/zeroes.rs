//! All of a new log is written once, by several writes at a time, and it is no log before the last has ended. Who opens or creates one may
//! be killed at each step: the next one begins anew, as nothing was appended; and nothing else is ever written over.

use std::sync::Arc;

use baio_engine::{Arena, Errno};
use baio_storage::log::format::Header;
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogPart, LogRequest};

use crate::rig::{Device, Io, Rig, SALT, UUID, record, small};

const MIB: u64 = 1 << 20;
/// No whole number of writes.
const SIZE: u64 = 8192 + 13 * MIB + 512;

/// A log of which both copies of what was there are cleared, and a request that waits for it.
fn cleared(arena: &Arc<Arena>, options: &LogOptions) -> (Rig, u64) {
    let part = LogPart::create(arena, SIZE, UUID, SALT, options).unwrap();
    let mut rig = Rig::of_unopened(Arc::clone(arena), Device::new(SIZE), part);
    let owner = rig.start(LogRequest::Open);
    for _ in 0..2 {
        rig.pump();
        rig.end(0);
    }
    rig.pump();
    (rig, owner)
}

fn len_of(rig: &Rig, index: usize) -> u64 {
    match rig.ios[index].kind {
        LogIoKind::Write { offset, len } if offset >= 8192 => len.into(),
        other => panic!("{other:?}"),
    }
}

fn has_header(rig: &Rig) -> bool {
    Header::decode(&rig.device.bytes).is_ok()
}

#[test]
fn zeroes_end_in_any_order() {
    let arena = Arena::new(64 << 20).unwrap();
    for (window, at_once) in [(1, 4), (6, 6), (64, 8)] {
        let (mut rig, owner) = cleared(&arena, &LogOptions { window, ..small() });
        let (mut state, mut most) = (1_usize, 0);
        while rig.ios.iter().all(Io::is_batch) {
            assert!(!rig.ios.is_empty() && rig.ios.len() <= at_once && !has_header(&rig));
            assert!((0..rig.ios.len()).all(|index| len_of(&rig, index) <= MIB));
            most = most.max(rig.ios.len());
            state = state.wrapping_mul(31).wrapping_add(7);
            rig.end(state % rig.ios.len());
            rig.pump();
        }
        assert_eq!((most, rig.ios.len()), (at_once, 1), "the first header is alone");
        rig.run();
        assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Opened(_)))));
        assert!(rig.device.bytes[8192..].iter().all(|byte| *byte == 0));
        rig.write(&record(0, 100));
    }
}

#[test]
fn what_is_short_is_written_again() {
    let arena = Arena::new(64 << 20).unwrap();
    let (mut rig, owner) = cleared(&arena, &small());
    // Every write is cut once, somewhere in a block.
    for number in 0..13 {
        let io = rig.ios.remove(0);
        let written = 512 * (number + 1) + 100;
        io.land(&mut rig.device, |sector| sector < written as usize / 512);
        rig.part.io_ended(io.id, Ok(written), io.memory);
        rig.pump();
    }
    rig.run();
    assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Opened(_)))));
    assert!(rig.device.bytes[8192..].iter().all(|byte| *byte == 0));
}

#[test]
fn one_that_fails_is_told_when_the_others_have_ended() {
    let arena = Arena::new(64 << 20).unwrap();
    let (mut rig, owner) = cleared(&arena, &small());
    assert_eq!(rig.ios.len(), 4);
    rig.fail(1, Errno::ENOSPC, |_| false);
    rig.pump();
    assert_eq!(rig.ios.len(), 3, "no more are begun");
    assert!(rig.take_done(owner).is_none());
    rig.fail(0, Errno::EIO, |_| false);
    rig.run();
    let answer = rig.take_done(owner);
    let first = Errno::ENOSPC;
    assert!(
        matches!(&answer, Some(Err(LogError::Failed { errno, .. })) if *errno == first),
        "{answer:?}"
    );
    assert!(!has_header(&rig));
}

#[test]
fn they_take_the_memory_of_one_write() {
    let arena = Arena::new(64 << 20).unwrap();
    let (rig, _) = cleared(&arena, &LogOptions { window: 64, ..small() });
    assert_eq!(rig.ios.len(), 8);
    // Beside the batches, which a log has from the beginning.
    let batches = 66 * 4096 + 4096;
    assert!(
        arena.free_bytes() as u64 >= (64 << 20) - MIB - batches,
        "{}",
        arena.free_bytes()
    );
    drop(rig);
    // And less where there is less.
    let arena = Arena::new(256 << 10).unwrap();
    let (mut rig, owner) = cleared(&arena, &small());
    assert_eq!(len_of(&rig, 0), 64 << 10);
    rig.run();
    assert!(matches!(rig.take_done(owner), Some(Ok(LogAnswer::Opened(_)))));
}

/// What one would find who opens a log here, or makes one.
fn begun(device: Device) -> Rig {
    begun_by(device, &small())
}

fn begun_by(device: Device, options: &LogOptions) -> Rig {
    let arena = Arena::new(8 << 20).unwrap();
    let size = device.bytes.len() as u64;
    let part = LogPart::open_or_create(&arena, size, UUID, SALT, options).unwrap();
    Rig::of_unopened(arena, device, part)
}

fn opened_or_created(device: Device) -> Result<Rig, LogError> {
    let mut rig = begun(device);
    rig.ask(LogRequest::Open)?;
    Ok(rig)
}

const LITTLE: u64 = 8192 + (64 << 10);

fn zeroes() -> Device {
    let mut device = Device::new(LITTLE);
    device.bytes.fill(0);
    device
}

#[test]
fn a_making_that_is_cut_off_anywhere_is_begun_anew() {
    for steps in 0.. {
        let mut is_over = false;
        for lands in 0..3_usize {
            let mut rig = begun(zeroes());
            let owner = rig.start(LogRequest::Open);
            rig.pump();
            for _ in 0..steps {
                rig.end(0);
                rig.pump();
                is_over = rig.ios.is_empty();
                if is_over {
                    break;
                }
            }
            assert_eq!(rig.take_done(owner).is_some(), is_over);
            // Of what is at the device nothing lands, every other sector, or all.
            let device = rig.crash(|_, sector| lands == 2 || lands == 1 && sector % 2 == 0);
            let mut rig = opened_or_created(device).unwrap_or_else(|error| panic!("step {steps}, {lands}: {error}"));
            assert!(rig.payloads().is_empty());
            rig.write(&record(1, 100));
            let mut rig = opened_or_created(rig.crash(|_, _| false)).unwrap();
            assert_eq!(rig.payloads(), [record(1, 100)], "step {steps}: it is opened now");
        }
        if is_over {
            assert!(steps > 5, "{steps}");
            return;
        }
    }
}

#[test]
fn who_only_opens_hears_that_its_making_was_cut_off() {
    let arena = Arena::new(8 << 20).unwrap();
    let part = LogPart::create(&arena, LITTLE, UUID, SALT, &small()).unwrap();
    let mut rig = Rig::of_unopened(arena, Device::new(LITTLE), part);
    rig.start(LogRequest::Open);
    rig.pump();
    rig.end(0);
    rig.pump();
    let device = rig.crash(|_, _| false);
    // Of what was there before the other copy of a header may be left, and it is whatever it is.
    assert_eq!(Rig::try_open(device.clone(), &small()).err(), Some(LogError::NotMade));
    assert_eq!(Rig::try_look(device.clone(), &small()).err(), Some(LogError::NotMade));
    assert!(opened_or_created(device).unwrap().payloads().is_empty());
}

#[test]
fn nothing_is_written_over_that_is_no_log() {
    let mut log = Rig::create(LITTLE, &small());
    log.write(&record(1, 100));
    let log = log.crash(|_, _| false);
    let with = |at: u64| {
        let mut device = zeroes();
        device.bytes[at as usize] = 1;
        device
    };
    let mut headless = log.clone();
    headless.bytes[..8192].fill(0);
    for (device, offset) in [
        (with(0), 0),
        (with(5000), 5000),
        (with(8192), 8192),
        (with(LITTLE - 1), LITTLE - 1),
        (headless, 8192), // A log whose headers were wiped.
    ] {
        let mut rig = begun(device.clone());
        let refused = rig.ask(LogRequest::Open).err();
        assert_eq!(refused, Some(LogError::Foreign { offset }));
        assert!(rig.device.bytes == device.bytes);
    }
    let mut rotten = log.clone();
    rotten.flip(100);
    rotten.flip(4096 + 100);
    assert_eq!(opened_or_created(rotten).err(), Some(LogError::HeaderLost));
    assert_eq!(opened_or_created(log).unwrap().payloads(), [record(1, 100)]);
}

#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    for offset in [0, 4096, 8192, LITTLE - 512] {
        let mut rig = begun(zeroes());
        rig.device.unreadable.push(offset..offset + 512);
        let refused = rig.ask(LogRequest::Open).err();
        assert!(
            matches!(refused, Some(LogError::Read { errno: Errno::EIO, .. })),
            "{offset}: {refused:?}"
        );
        assert!(rig.device.bytes == zeroes().bytes);
    }
}

#[test]
fn too_little_space_is_told() {
    for size in [0, 512, 4096, 16384] {
        let refused = opened_or_created(Device {
            bytes: vec![0; size],
            ..Device::new(0)
        });
        assert!(matches!(refused.err(), Some(LogError::BadSize { .. })), "{size}");
    }
}

/// A file that has as many bytes as the log is to have, once that is made.
fn of_little() -> LogOptions {
    LogOptions {
        file_bytes: LITTLE,
        ..small()
    }
}

fn file(bytes: &[u8]) -> Device {
    Device {
        bytes: bytes.to_vec(),
        ..Device::new(0)
    }
}

#[test]
fn a_file_is_made_longer_for_a_new_log_whatever_was_cut_off_before() {
    for steps in 0.. {
        let mut rig = begun_by(file(&[]), &of_little());
        rig.start(LogRequest::Open);
        rig.pump();
        for _ in 0..steps {
            rig.end(0);
            rig.pump();
        }
        let is_over = rig.ios.is_empty();
        let mut device = rig.crash(|_, sector| sector % 2 == 0);
        // What is still being set aside may be there in part.
        for left in [0, 100, 512, 8192, 40 << 10, 50_000, LITTLE as usize] {
            match steps {
                0 => device.bytes = vec![0; left],
                _ if left < LITTLE as usize => continue,
                _ => {}
            }
            let mut rig = begun_by(device.clone(), &of_little());
            rig.ask(LogRequest::Open)
                .unwrap_or_else(|error| panic!("step {steps}, {left}: {error}"));
            assert_eq!(rig.device.bytes.len() as u64, LITTLE);
            rig.write(&record(1, 100));
            let mut rig = begun_by(rig.crash(|_, _| false), &of_little());
            rig.ask(LogRequest::Open).unwrap();
            assert_eq!(rig.payloads(), [record(1, 100)]);
        }
        if is_over {
            return;
        }
    }
}

/// exfat, ext2, 9p, NFS before 4.2 (EOPNOTSUPP), and some file systems of users.
#[test]
fn a_log_is_made_where_no_space_can_be_set_aside() {
    let without = |left| Device {
        sets_nothing_aside: true,
        ..file(&vec![0; left])
    };
    for left in [0, 512, 40 << 10, LITTLE as usize - 512] {
        let mut rig = begun_by(without(left), &of_little());
        rig.ask(LogRequest::Open)
            .unwrap_or_else(|error| panic!("{left}: {error}"));
        assert_eq!(rig.device.bytes.len() as u64, LITTLE);
        rig.write(&record(1, 100));
        let mut rig = begun_by(rig.crash(|_, _| false), &of_little());
        rig.ask(LogRequest::Open).unwrap();
        assert_eq!(rig.payloads(), [record(1, 100)]);
    }
}

#[test]
fn a_log_that_was_cut_short_is_refused_and_not_made_longer() {
    let mut log = Rig::create(LITTLE, &small());
    log.write(&record(1, 100));
    let log = log.crash(|_, _| false);
    for left in [
        100,
        512,
        4096,
        4096 + 512,
        8192,
        8192 + 512,
        40 << 10,
        50_000,
        LITTLE as usize - 512,
    ] {
        let cut = &log.bytes[..left];
        let mut rig = begun_by(file(cut), &of_little());
        let refused = rig.ask(LogRequest::Open).err();
        let is_told = match left {
            ..8192 => matches!(refused, Some(LogError::Foreign { .. })),
            _ => matches!(refused, Some(LogError::Cut { .. })),
        };
        assert!(is_told, "{left}: {refused:?}");
        assert!(rig.device.bytes == cut, "{left}");
    }
    // A text of some bytes is none either, nor are zeroes that something follows.
    let mut longer = vec![0; 50_000];
    longer[49_990..].copy_from_slice(b"a last one");
    for (text, offset) in [(&b"shopping list"[..], 0), (&longer, 49_990)] {
        let mut rig = begun_by(file(text), &of_little());
        assert_eq!(rig.ask(LogRequest::Open).err(), Some(LogError::Foreign { offset }));
        assert!(rig.device.bytes == text);
    }
}

#[test]
fn a_log_keeps_the_size_that_it_has() {
    let log = Rig::create(LITTLE, &small()).crash(|_, _| false);
    for file_bytes in [0, 100, LITTLE + 512, 10 * LITTLE] {
        let mut rig = begun_by(log.clone(), &LogOptions { file_bytes, ..small() });
        rig.ask(LogRequest::Open).unwrap();
        assert_eq!(rig.device.bytes.len() as u64, LITTLE);
    }
}
