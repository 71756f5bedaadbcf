//! The durable log, in a file or in a segment: what is durable is there, in order, whole groups, without a gap.
//!
//! | line | |
//! |---|---|
//! | `a FIRST COUNT` | these records are about to be appended, as a group |
//! | `l FIRST COUNT LSN` | they were; the last has this LSN |
//! | `d LSN` | everything before this LSN is durable |
//! | `t LSN` | a truncation to it begins |

use baio::{Access, CreateOptions, Errno, File, FormatOptions, Link, Log, LogOptions, Lsn, Remote};
use baio_engine::sim::Random;

use super::{PLAIN_LOST, Seen, Story, count};
use crate::powercut::place::Place;
use crate::powercut::worker::{self, Failure, Worker};

const SEGMENT_BYTES: u64 = 3 << 20;

/// A record that was appended, or may have been.
#[derive(Clone, Debug)]
struct Appended {
    id: u64,
    /// The last of its group.
    last_of_group: u64,
    lsn: Option<Lsn>,
}

#[derive(Debug, Default)]
pub(super) struct LogStory {
    records: Vec<Appended>,
    durable: Lsn,
    /// Nothing below need be there.
    truncated: Lsn,
    highest: Lsn,
    last: u64,
    in_segment: bool,
}

/// A record says its number, again and again, and its length follows from it.
fn payload(id: u64) -> Vec<u8> {
    let len = Random::from(&[id]).below(if id.is_multiple_of(7) { 20_000 } else { 1500 });
    let bytes = id.to_le_bytes().into_iter().cycle();
    bytes.take(8 + len as usize).collect()
}

fn id_of(payload: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(*payload.first_chunk()?);
    (self::payload(id) == payload).then_some(id)
}

fn options(random: &mut Random) -> LogOptions {
    LogOptions {
        batch_bytes_max: *random.pick(&[0, 16 << 10, 64 << 10]).unwrap_or(&0),
        window: 1 + random.below(4) as u32,
        window_short: random.below(3) as u32,
        buffer_bytes: 1 << 20,
        ..LogOptions::default()
    }
}

/// Opens what there is: a volume with a segment, or the device itself as a file.
fn open(path: &std::path::Path, in_segment: bool, random: &mut Random) -> Result<Log<Remote>, Failure> {
    let how = worker::options(random);
    let options = options(random);
    Ok(if in_segment {
        let link = Remote::open_with(path, &how)?;
        let segment = link.open_segment("log", Access::Write).wait()?;
        segment.open_log(&options).wait()?
    } else {
        let link = Remote::new_with(&how)?;
        let file = File::options().write().open(&link, path).wait()?;
        file.open_log(&options).wait()?
    })
}

pub(super) fn work(worker: &Worker) -> Result<(), Failure> {
    let mut random = worker.random(0);
    let in_segment = worker.task.beside.join("in-segment").exists();
    let log = open(worker.device(), in_segment, &mut random)?;
    let mut last = None;
    loop {
        // Some groups take more than a batch.
        let count = match random.below(100) {
            0..80 => 1,
            80..97 => 2 + random.below(5),
            _ => 10 + random.below(40),
        };
        let ids: Vec<u64> = (0..count).map(|_| worker.number()).collect();
        let payloads: Vec<Vec<u8>> = ids.iter().map(|id| payload(*id)).collect();
        let records: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        worker.say(&format!("a {} {count}", ids[0]));
        let lsn = loop {
            match log.append_all(&records) {
                Ok(lsn) => break lsn,
                Err(error) if error.errno() == Some(Errno::EAGAIN) => make_room(worker, &log, &records)?,
                Err(error) if error.errno() == Some(Errno::ENOSPC) => give_up_all(worker, &log, last)?,
                Err(error) => return Err(error.into()),
            }
        };
        worker.say(&format!("l {} {count} {lsn}", ids[0]));
        last = Some(lsn);
        if random.percent(25) {
            log.durable(lsn).wait()?;
        }
        if random.percent(50) {
            worker.say(&format!("d {}", log.durable_lsn()));
        }
        if random.percent(2) {
            let head = log.head_lsn();
            truncate(
                worker,
                &log,
                Lsn(head.0 + random.below(log.durable_lsn().0 - head.0 + 1)),
            )?;
        }
    }
}

fn truncate(worker: &Worker, log: &Log<Remote>, to: Lsn) -> Result<(), Failure> {
    worker.say(&format!("t {to}"));
    log.truncate(to).wait()?;
    Ok(())
}

/// The log's area is full: it gives up all that it has, once that is durable.
fn give_up_all(worker: &Worker, log: &Log<Remote>, last: Option<Lsn>) -> Result<(), Failure> {
    if let Some(last) = last {
        log.durable(last).wait()?;
    }
    truncate(worker, log, log.durable_lsn())
}

/// The log's memory is full.
fn make_room(worker: &Worker, log: &Log<Remote>, records: &[&[u8]]) -> Result<(), Failure> {
    let bytes: usize = records.iter().map(|record| record.len() + 64).sum();
    let usage = log.usage().wait()?;
    if usage.free_bytes < usage.used_bytes {
        truncate(worker, log, log.durable_lsn())?;
    }
    log.room(bytes).wait()?;
    Ok(())
}

impl Story for LogStory {
    fn prepare(&mut self, place: &dyn Place, random: &mut Random) -> Result<(), Failure> {
        self.in_segment = random.percent(50);
        let mark = place.beside("in-segment");
        let _ = std::fs::remove_file(&mark);
        let path = place.device();
        let (link, log) = if self.in_segment {
            std::fs::write(&mark, [])?;
            baio::format(
                &path,
                &FormatOptions {
                    force: true,
                    ..FormatOptions::default()
                },
            )?;
            let link = Remote::open(&path)?;
            link.create_segment("log", &CreateOptions::of_size(SEGMENT_BYTES))
                .wait()?;
            let segment = link.open_segment("log", Access::Write).wait()?;
            let log = segment.create_log(&options(random)).wait()?;
            (link, log)
        } else {
            let link = Remote::new()?;
            let file = File::options().write().open(&link, &path).wait()?;
            let log = file.create_log(&options(random)).wait()?;
            (link, log)
        };
        self.truncated = log.head_lsn();
        log.close().wait()?;
        drop(log);
        link.close()?;
        Ok(())
    }

    fn resume(&mut self, place: &dyn Place) {
        self.in_segment = place.beside("in-segment").exists();
    }

    fn first(&self) -> u64 {
        self.last + 1
    }

    fn hear(&mut self, line: &str) -> Result<(), Failure> {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>()?;
        match (kind, numbers.as_slice()) {
            ("a", &[first, count]) => {
                let last_of_group = first + count - 1;
                self.records.extend((first..=last_of_group).map(|id| Appended {
                    id,
                    last_of_group,
                    lsn: None,
                }));
                self.last = last_of_group;
            }
            ("l", &[_, _, lsn]) => {
                if Lsn(lsn) <= self.highest {
                    return Err(format!("LSN {lsn} is given, and {} was before", self.highest).into());
                }
                self.highest = Lsn(lsn);
                if let Some(record) = self.records.last_mut() {
                    record.lsn = Some(Lsn(lsn));
                }
            }
            ("d", &[lsn]) => self.durable = self.durable.max(Lsn(lsn)),
            ("t", &[lsn]) => self.truncated = self.truncated.max(Lsn(lsn)),
            _ => return Err(format!("a line that says nothing: {line}").into()),
        }
        Ok(())
    }

    fn judge(&mut self, place: &mut dyn Place, random: &mut Random, seen: &mut Seen) -> Result<(), Failure> {
        let log = open(&place.device(), self.in_segment, random)?;
        let mut found = Vec::new();
        let mut records = log.records(log.head_lsn());
        while let Some(record) = records.next_record().wait()? {
            let id = id_of(record.payload());
            let id = id.ok_or_else(|| format!("the record at LSN {} is nobody's", record.lsn()))?;
            found.push((id, record.lsn()));
        }
        drop(records);
        count(seen, "records", found.len() as u64);
        count(seen, PLAIN_LOST, self.compare(&found)?);
        self.truncated = self.truncated.max(log.head_lsn());
        let link = log.link().clone();
        if random.percent(50) {
            log.close().wait()?;
            drop(log);
            link.close()?;
        }
        Ok(())
    }
}

impl LogStory {
    /// What was found is a run of what was appended, with all of it that is durable and was not given up. From now on it is all there is.
    fn compare(&mut self, found: &[(u64, Lsn)]) -> Result<u64, Failure> {
        let first = found.first().map(|(id, _)| *id);
        let begin = match first {
            Some(first) => self
                .records
                .iter()
                .position(|record| record.id == first)
                .ok_or_else(|| format!("record {first} was never appended"))?,
            // Nothing is there: all of it was given up, or none was durable.
            None => self
                .records
                .iter()
                .take_while(|record| self.is_given_up(record))
                .count(),
        };
        if let Some(missing) = self.records[..begin].iter().find(|record| !self.is_given_up(record)) {
            return Err(format!("record {} was not given up, and the log begins behind it", missing.id).into());
        }
        let end = begin + found.len();
        for (at, (id, lsn)) in found.iter().enumerate() {
            let appended = self.records.get(begin + at);
            let same = appended.is_some_and(|record| record.id == *id && record.lsn.is_none_or(|known| known == *lsn));
            if !same {
                return Err(format!("record {id} with LSN {lsn}, where {appended:?} was appended").into());
            }
        }
        let missing = self.records.get(end..).unwrap_or_default();
        let durable = |record: &&Appended| record.lsn.is_some_and(|lsn| lsn < self.durable);
        if let Some(record) = missing.iter().rfind(durable) {
            let what = format!(
                "durable up to {}, and {record:?} is gone; the log ends at {:?}",
                self.durable,
                found.last()
            );
            return Err(what.into());
        }
        let kept = self.records.get(begin..end).unwrap_or_default();
        if let Some(record) = kept.last().filter(|record| record.id != record.last_of_group) {
            return Err(format!("half a group: {record:?}").into());
        }
        let lost = missing.iter().filter(|record| record.lsn.is_some()).count();
        self.records = found
            .iter()
            .zip(kept)
            .map(|((_, lsn), record)| Appended {
                lsn: Some(*lsn),
                ..record.clone()
            })
            .collect();
        if let Some((_, lsn)) = found.last() {
            self.durable = self.durable.max(Lsn(lsn.0 + 1));
            self.highest = self.highest.max(*lsn);
        }
        Ok(lost as u64)
    }

    /// It may be gone: it lies below a head that was asked for.
    fn is_given_up(&self, record: &Appended) -> bool {
        // The records of a group before the last one have no LSN here: they are below that of the last one.
        let mut group = self
            .records
            .iter()
            .filter(|other| other.last_of_group == record.last_of_group);
        let lsn = record.lsn.or_else(|| group.find_map(|other| other.lsn));
        lsn.is_some_and(|lsn| lsn < self.truncated)
    }
}
