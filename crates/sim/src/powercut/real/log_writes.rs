//! Power cuts by dm-log-writes, which records what reaches the disk, and in which order. A write that was not flushed is recorded after the
//! marks of what was acknowledged meanwhile. The record is played again up to some entry, and the state of the disk is judged.
//!
//! A write with FUA is recorded at once, and a plain one of the same sector that had ended before it at the next flush, so behind it: played
//! again, the old bytes would win. So a loop device without FUA stands between, whose durable writes are writes and flushes.
//!
//! The record: a sector that says how many entries there are; then each entry's own sector and its data.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use baio_engine::sim::Random;

use super::rigs::{DEVICE_BYTES, Disks, Mapped, sectors};
use super::{Report, name_of};
use crate::nbd::LoopDevice;
use crate::powercut::bench;
use crate::powercut::marks::MARKS;
use crate::powercut::place::{Folder, Place};
use crate::powercut::running::Running;
use crate::powercut::stories::Make;
use crate::powercut::worker::Failure;

const NAME: &str = "baio-log-writes";
const MAGIC: u64 = 0x006a_7366_7773_6872;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const SECTOR: usize = 512;
const LINES: usize = 250;
const PATIENCE: Duration = Duration::from_secs(60);
const MOMENTS_OF_A_LIFE: u64 = 20;

/// One thing that has reached the disk.
enum Entry {
    Write { at: u64, bytes: Vec<u8> },
    Discard { at: u64, len: u64 },
    Mark(u64),
}

fn record(path: &Path) -> Result<Vec<Entry>, Failure> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut sector = [0; SECTOR];
    let word = |sector: &[u8], at: usize| u64::from_le_bytes(*sector[at * 8..].first_chunk().unwrap_or(&[0; 8]));
    file.read_exact(&mut sector)?;
    if word(&sector, 0) != MAGIC {
        return Err(format!("{}: no record of dm-log-writes", path.display()).into());
    }
    let (count, entry_bytes) = (word(&sector, 2), word(&sector, 3) as u32 as usize);
    file.seek_relative(entry_bytes as i64 - SECTOR as i64)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        file.read_exact(&mut sector)?;
        let [at, sectors, flags, text] = [0, 1, 2, 3].map(|number| word(&sector, number));
        file.seek_relative(entry_bytes as i64 - SECTOR as i64)?;
        let (at, len) = (at * entry_bytes as u64, sectors * entry_bytes as u64);
        if flags & MARK != 0 {
            let text = String::from_utf8_lossy(&sector[32..32 + text as usize]).into_owned();
            // It puts one of its own at the end.
            entries.extend(text.trim_end_matches('\0').parse().map(Entry::Mark));
        } else if flags & DISCARD != 0 {
            entries.push(Entry::Discard { at, len });
        } else {
            let mut bytes = vec![0; len as usize];
            file.read_exact(&mut bytes)?;
            entries.push(Entry::Write { at, bytes });
        }
    }
    Ok(entries)
}

/// Somebody works on a recorded device; the record is cut at many moments, and each is judged.
pub(super) fn life(disks: &Disks, story: (&'static str, Make), seed: u64, report: &mut Report) -> Result<(), Failure> {
    let mut random = Random::from(&[seed, name_of(story.0)]);
    let folder = super::Scratch::new("devices")?;
    disks.blank()?;
    let table = format!(
        "0 {} log-writes {} {}",
        sectors(),
        disks.first.display(),
        disks.second.display()
    );
    let device = Mapped::new(NAME, &table)?;
    let without_fua = LoopDevice::over(&device.path())?;
    let place = super::At {
        device: without_fua.path().to_owned(),
        folder: folder.0.clone(),
    };
    let mut made = story.1();
    made.prepare(&place, &mut random)?;
    std::fs::write(place.beside(MARKS), NAME)?;
    device.message("mark 0")?;
    let running = Running::start(&place, story.0, random.bits(), made.first())?;
    running.wait_for_lines(LINES, PATIENCE);
    let lines = running.kill()?;
    drop(without_fua);
    drop(device);
    std::fs::remove_file(place.beside(MARKS))?;
    if lines.len() < LINES {
        return Err(format!("the worker ended early: {:?}", lines.last()).into());
    }
    report.lines += lines.len() as u64;
    let entries = record(&disks.second)?;
    let begin = entries.iter().position(|entry| matches!(entry, Entry::Mark(0)));
    let begin = begin.ok_or("the record has no mark")?;
    let mut moments: Vec<usize> = (0..MOMENTS_OF_A_LIFE)
        .map(|_| begin + random.below((entries.len() - begin) as u64) as usize)
        .collect();
    moments.sort_unstable();
    let (mut image, mut said, mut next) = (vec![0; DEVICE_BYTES as usize], 0, 0);
    for moment in moments {
        bench::begins(&format!(
            "baio-sim devices --on log-writes --story {} --seed {seed}",
            story.0
        ));
        for entry in &entries[next..=moment] {
            play(entry, &mut image, &mut said)?;
        }
        next = next.max(moment + 1);
        judge(&place, &image, story, &lines[..said], &mut random, report)
            .map_err(|error| format!("entry {moment} of {}, line {said}: {error}", entries.len()))?;
        report.rounds += 1;
    }
    Ok(())
}

fn play(entry: &Entry, image: &mut [u8], said: &mut usize) -> Result<(), Failure> {
    match entry {
        Entry::Write { at, bytes } => {
            let place = image.get_mut(*at as usize..*at as usize + bytes.len());
            place.ok_or("a write past the end")?.copy_from_slice(bytes);
        }
        Entry::Discard { at, len } => {
            let place = image.get_mut(*at as usize..(*at + *len) as usize);
            place.ok_or("a discard past the end")?.fill(0);
        }
        Entry::Mark(line) => *said = *line as usize,
    }
    Ok(())
}

/// The device as it was at that moment, in a file; what had been said until then must hold.
fn judge(
    place: &super::At,
    image: &[u8],
    (_, make): (&str, Make),
    lines: &[String],
    random: &mut Random,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut then = Folder(place.folder.clone());
    let file = File::create(then.device())?;
    file.set_len(DEVICE_BYTES)?;
    for (at, block) in (0..).step_by(1 << 16).zip(image.chunks(1 << 16)) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at)?;
        }
    }
    drop(file);
    let mut story = make();
    story.resume(&then);
    lines.iter().try_for_each(|line| story.hear(line))?;
    story.judge(&mut then, random, &mut report.seen)
}
