//! The area of a log from a hostile hand: looking writes nothing, opening and salvaging never panic, run for ever or reach beyond the
//! area, and what was opened once is opened again with the same records.
//!
//! The input is edits of a good log, each followed by a right stamp and checksum where it asks for that.
#![no_main]

use std::sync::Arc;

use baio_engine::Arena;
use baio_storage::log::format::{COPIES_AT, DATA_AT, HEADER_BYTES};
use baio_storage::log::{LogAnswer, LogError, LogIoKind, LogOptions, LogPart, LogRequest, Lsn, RecordReader, Salt};
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;
const BLOCKS: usize = 48;
const SIZE: usize = DATA_AT as usize + BLOCKS * BLOCK;
const SALT: Salt = Salt(*b"salt of the fuzz");
/// More I/Os than any request needs in an area of this size.
const IOS_MAX: u32 = 5000;

/// Beyond this no opening has LSNs for many more.
const LSN_FAR: u64 = 1 << 60;

type Records = Vec<(Lsn, Vec<u8>)>;

thread_local! {
    static ARENA: Arc<Arena> = Arena::new(16 << 20).expect("memory");
    static GOOD: Vec<u8> = good().expect("a log on an honest device");
}

fn options() -> LogOptions {
    LogOptions {
        block_bytes: BLOCK as u32,
        window: 3,
        batch_bytes_max: 2048,
        buffer_bytes: 16 << 10,
        recent_bytes: 4 << 10,
        ..LogOptions::default()
    }
}

/// Carries out all that the log wants; `writes` says whether it may write.
fn drive(part: &mut LogPart, area: &mut [u8], writes: bool) {
    let mut ios = 0;
    while let Some((id, kind, mut memory)) = part.next_io() {
        ios += 1;
        assert!(ios < IOS_MAX, "for ever");
        let result = match kind {
            LogIoKind::Read { offset, len } => {
                memory.copy_in_at(0, &area[offset as usize..][..len as usize]);
                Ok(len)
            }
            LogIoKind::Write { offset, len } => {
                assert!(writes, "looking wrote");
                memory.copy_out_at(0, &mut area[offset as usize..][..len as usize]);
                Ok(len)
            }
            LogIoKind::Sync | LogIoKind::Allocate { .. } => Ok(0),
        };
        part.io_ended(id, result, memory);
    }
}

fn ask(part: &mut LogPart, area: &mut [u8], request: LogRequest, writes: bool) -> Result<LogAnswer, LogError> {
    part.start(7, request);
    drive(part, area, writes);
    let answer = part.next_done().filter(|done| done.owner == 7);
    let answer = answer.expect("each request has its end").result;
    assert!(part.next_done().is_none(), "and one only");
    answer
}

fn read(part: &mut LogPart, area: &mut [u8], writes: bool) -> Result<Records, LogError> {
    let mut reader = RecordReader::new(part.usage().head);
    let mut records = Vec::new();
    loop {
        let from = reader.next_batch();
        let LogAnswer::Batches(Some(batches)) = ask(part, area, LogRequest::Read { from }, writes)? else {
            return Ok(records);
        };
        if batches.ranges().is_empty() {
            return Ok(records);
        }
        reader.push(&batches);
        while let Some(record) = reader.next_record() {
            records.push((record.lsn, record.bytes.to_vec()));
        }
        assert!(reader.next_batch() > from, "a reader goes on");
    }
}

fn create(arena: &Arc<Arena>) -> Option<(LogPart, Vec<u8>)> {
    let mut area = vec![0; SIZE];
    let mut part = LogPart::create(arena, SIZE as u64, *b"log of the fuzz!", SALT, &options()).ok()?;
    ask(&mut part, &mut area, LogRequest::Open, true).ok()?;
    Some((part, area))
}

fn append(part: &mut LogPart, area: &mut [u8], group: &[&[u8]]) -> Option<Lsn> {
    let lsn = part.appender().append_all(group).ok()?;
    drive(part, area, true);
    Some(lsn)
}

/// Several epochs, a lap, groups over several batches, and one that was never whole.
fn good() -> Option<Vec<u8>> {
    ARENA.with(|arena| {
        let (mut part, mut area) = create(arena)?;
        for number in 0..14_u8 {
            let lsn = append(&mut part, &mut area, &[&[number; 1500]])?;
            if number % 5 == 4 {
                ask(&mut part, &mut area, LogRequest::Truncate { to: lsn }, true).ok()?;
            }
        }
        drop(part);
        let mut part = LogPart::open(arena, SIZE as u64, &options()).ok()?;
        ask(&mut part, &mut area, LogRequest::Open, true).ok()?;
        append(&mut part, &mut area, &[&[20; 700], &[21; 2500], &[]])?;
        append(&mut part, &mut area, &[b"the end"])?;
        // Never whole: of a group of two batches the first alone is there.
        part.appender().append_all(&[&[22; 1900], &[23; 100]]).ok()?;
        let (_, kind, memory) = part.next_io()?;
        if let LogIoKind::Write { offset, len } = kind {
            memory.copy_out_at(0, &mut area[offset as usize..][..len as usize]);
        }
        Some(area)
    })
}

/// Puts a right stamp and checksum on what stands there.
fn sum_up(area: &mut [u8], at: usize, stamps: bool) {
    if at < DATA_AT as usize {
        let sum = crc(&area[at..at + HEADER_BYTES - 4]);
        area[at + HEADER_BYTES - 4..at + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
        return;
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| area[at + byte]));
    let (epoch, lsn, used) = (word(at + 16), word(at + 24), word(at + 48) as u32 as usize);
    if stamps {
        area[at + 8..at + 16].copy_from_slice(&SALT.stamp(epoch, lsn).to_le_bytes());
    }
    if let Some(batch) = area.get(at + 8..at.saturating_add(used.max(64))) {
        let sum = crc(batch);
        area[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 }
        })
    })
}

/// An edit: how, which block (the first two are the header's copies), where in it, how many bytes, the bytes.
fn edit(area: &mut [u8], mut rest: &[u8]) {
    let place = |block: u8| match usize::from(block) % (BLOCKS + 2) {
        copy @ 0..2 => COPIES_AT[copy] as usize,
        block => DATA_AT as usize + (block - 2) * BLOCK,
    };
    while let [how, block, at, len, tail @ ..] = rest {
        let bytes = &tail[..tail.len().min(usize::from(*len) % 32)];
        let start = place(*block);
        if how & 8 != 0 {
            // A batch from elsewhere.
            let from = place(*at);
            let len = (1 + usize::from(*len) % 4) * BLOCK;
            let len = len.min(SIZE - start).min(SIZE - from);
            area.copy_within(from..from + len, start);
        } else {
            let begin = start + usize::from(*at) + usize::from(how & 4) * 64;
            let end = (begin + bytes.len()).min(start + BLOCK);
            if let Some(into) = area.get_mut(begin..end) {
                into.copy_from_slice(&bytes[..into.len()]);
            }
        }
        if how & 1 == 0 {
            sum_up(area, start, how & 2 == 0);
        }
        rest = &tail[bytes.len()..];
    }
}

/// An opening refuses more than a look: numbers that have no next one.
fn has_no_next_header(arena: &Arc<Arena>, area: &mut Vec<u8>) -> bool {
    let part = LogPart::open(arena, SIZE as u64, &options());
    part.and_then(|mut part| ask(&mut part, area, LogRequest::Open, true).map(drop)) == Err(LogError::HeaderLost)
}

/// Opens it, goes on with it, and opens what a crash leaves of that.
fn open(arena: &Arc<Arena>, area: &mut Vec<u8>, salvage: bool) -> Option<Records> {
    let options = LogOptions { salvage, ..options() };
    let mut part = LogPart::open(arena, SIZE as u64, &options).ok()?;
    ask(&mut part, area, LogRequest::Open, true).ok()?;
    let records = read(&mut part, area, true).expect("what was recovered can be read");
    let next = part.usage().next.0;
    drop(part);
    if next > LSN_FAR {
        return Some(records);
    }
    let mut part = LogPart::open(arena, SIZE as u64, &self::options()).ok()?;
    ask(&mut part, area, LogRequest::Open, true).expect("what was opened is opened again");
    let again = read(&mut part, area, true).expect("and read again");
    assert!(again == records, "with the same records");
    let written = append(&mut part, area, &[b"one", &[1; 3000]]);
    let more = read(&mut part, area, true);
    let more = more.expect("and with more");
    assert!(more.starts_with(&records) && written.is_none_or(|lsn| more.last().is_some_and(|(last, _)| *last == lsn)));
    let (head, durable) = (part.usage().head.0, part.usage().durable.0);
    let to = Lsn(head + (durable - head) / 2);
    let _ = ask(&mut part, area, LogRequest::Truncate { to }, true);
    area.resize(SIZE * 2, 0);
    let size_bytes = SIZE as u64 * 2;
    if ask(&mut part, area, LogRequest::Grow { size_bytes }, true).is_ok() {
        let _ = append(&mut part, area, &[&[2; 5000]]);
    }
    let _ = read(&mut part, area, true).expect("and what is left");
    let _ = ask(&mut part, area, LogRequest::Close, true);
    Some(records)
}

fuzz_target!(|data: &[u8]| {
    let mut area = GOOD.with(Vec::clone);
    edit(&mut area, data);
    ARENA.with(|arena| {
        let free = arena.free_bytes();
        let before = area.clone();
        let mut looked = None;
        if let Ok(mut part) = LogPart::look(arena, SIZE as u64, &options())
            && ask(&mut part, &mut area, LogRequest::Open, false).is_ok()
        {
            looked = read(&mut part, &mut area, false).ok();
        }
        assert!(area == before);
        let opened = open(arena, &mut area.clone(), false);
        assert!(
            opened == looked || opened.is_none() && has_no_next_header(arena, &mut area.clone()),
            "an opening finds what a look did"
        );
        let salvaged = open(arena, &mut area, true);
        if let (Some(opened), Some(salvaged)) = (opened, salvaged) {
            assert!(salvaged.starts_with(&opened), "it looks further, and finds no less");
        }
        assert_eq!(arena.free_bytes(), free, "all memory comes back");
    });
});
