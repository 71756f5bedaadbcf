//! Following a log's batches to its end, and judging what is missing there.
//!
//! A recovery follows the batches from the head on. Where the next one is not there is a gap. Behind a gap there may be batches that
//! were in flight together with what is missing: those were never acknowledged, and the log ends at the gap. But if the header, or
//! one of those batches, says that the log was durable beyond it (the watermark), something has rotted, and the opening fails with
//! the place. With `salvage` it goes on behind the hole, and says so; the header remembers that there are holes, so that later
//! openings find them known.
//!
//! What could not be read is neither there nor missing: no judgement comes of it, but the device's error. That is so for the batch that
//! is next, and for all that decides where a log goes on behind a hole, so nobody salvages while reads fail. Farther behind the end
//! of a log that has no hole a block may be unreadable: it could only have told of rot.

use super::chain::{Chain, Later, Step as ChainStep};
use super::error::LogError;
use super::format::DATA_AT;
use super::index::Mark;
use super::seen::{Heard, Reading, Seen, Unread};
use super::steps::{Ended, Look, Next, Scan, Step};
use super::{Hole, LogPart, Lsn};

/// Bytes that are read at once, if the arena has them.
const CHUNK: u32 = 1 << 20;

/// Laps that may be read and summed up in vain, behind gaps, before a log is refused; and how long a lap is taken to be at least. Who
/// knows the salt can let each block begin a batch that is as long as the longest: without a limit each is read whole.
const LAPS_IN_VAIN: u64 = 4;
const LAP_LEAST: u64 = 16 << 20;
/// Holes that a log may have: each is kept in memory.
const HOLES_MAX: usize = 4096;

/// What a gap is, when it is not a hole behind which the log goes on.
enum Verdict {
    Tail,
    Fault(LogError),
}

impl Scan {
    /// Memory is for others now.
    pub(super) fn let_go(&mut self) {
        (self.buffer, self.seen) = (None, None);
    }

    fn too_damaged(&self) -> LogError {
        LogError::TooDamaged {
            lsn: Lsn(self.chain.end),
            offset: DATA_AT + self.chain.place,
        }
    }
}

impl LogPart {
    pub(super) fn begin_scan(&mut self) -> Result<Next, LogError> {
        let header = self.headers.newest()?;
        if let Some(unread) = self.headers.unread().filter(|_| self.options.salvage) {
            return Err(unread.into());
        }
        if self.options.block_bytes > header.block_bytes && !self.only_looks && !self.takes_smaller {
            return Err(LogError::BlockBytes {
                log: header.block_bytes,
                device: self.options.block_bytes,
            });
        }
        let need = DATA_AT + header.capacity;
        if need > self.size_bytes {
            return Err(LogError::Cut {
                size_bytes: self.size_bytes,
                need,
            });
        }
        self.take_memory(&header)?;
        self.header = Some(header);
        let chain = Chain::new(&header, header.head);
        let chunk = CHUNK.max(header.batch_bytes_max);
        let buffer = self.arena.buffer(chunk as usize);
        let (buffer, chunk) = match buffer {
            Some(buffer) => (buffer, chunk),
            None => {
                let least = header.batch_bytes_max;
                (self.arena.buffer(least as usize).ok_or(LogError::NoMemory)?, least)
            }
        };
        Ok(Next::Go(Step::Scan(Box::new(Scan {
            watermark: self.headers.watermark(),
            header,
            chain,
            buffer: Some(buffer),
            chunk,
            reading: None,
            seen: None,
            at: 0,
            len: 0,
            unread: None,
            passed: 0,
            look: None,
            holes: Vec::new(),
        }))))
    }

    pub(super) fn scan(&mut self, mut scan: Box<Scan>, ended: Option<Ended>) -> Next {
        if let (Some(ended), Some(reading)) = (ended, scan.reading.take()) {
            match reading.ended(ended.result, ended.buffer) {
                Heard::Seen(seen, block) => {
                    self.block_buffer = block.or(self.block_buffer.take());
                    if let Some(unread) = seen.cut() {
                        let to = unread.offset + u64::from(scan.header.block_bytes);
                        scan.len = (to - DATA_AT - scan.at) as u32;
                        scan.unread.get_or_insert(unread);
                    }
                    // What was read behind a gap and led nowhere, not what was asked for: blocks that fail are asked for one by one.
                    if scan.look.is_some() {
                        scan.chain.in_vain += u64::from(scan.len);
                    }
                    scan.seen = Some(seen);
                }
                Heard::Block(reading, block) => {
                    self.block_buffer = block.or(self.block_buffer.take());
                    let Some(block) = self.take_block(scan.header.block_bytes) else {
                        return Next::End(Err(LogError::NoMemory));
                    };
                    let kind = reading.kind();
                    scan.reading = Some(reading);
                    return Next::Io(Step::Scan(scan), kind, Some(block));
                }
            }
        }
        let limit = LAPS_IN_VAIN * scan.header.capacity.max(LAP_LEAST);
        loop {
            if scan.chain.in_vain > limit {
                // Beside a block that could not be read nobody knows how much is damaged.
                let unread = scan.unread.map(LogError::from);
                return Next::End(Err(unread.unwrap_or_else(|| scan.too_damaged())));
            }
            let place = scan.look.as_ref().map_or(scan.chain.place, |look| look.place);
            let is_here = place >= scan.at && place < scan.at + u64::from(scan.len);
            let went_on = match scan.seen.take().filter(|_| is_here) {
                Some(seen) => {
                    let went_on = self.scan_at(&mut scan, &seen, place);
                    scan.seen = Some(seen);
                    went_on
                }
                None => Ok(false),
            };
            match went_on {
                Ok(true) => match self.gap_is_judged(&mut scan) {
                    None => continue,
                    Some(Verdict::Tail) => return self.tail_found(scan),
                    Some(Verdict::Fault(error)) => return Next::End(Err(error)),
                },
                Ok(false) => return self.read_more(scan, place),
                Err(unread) => return Next::End(Err(unread.into())),
            }
        }
    }

    /// The part of the data is read that begins at a place.
    fn read_more(&mut self, mut scan: Box<Scan>, place: u64) -> Next {
        let seen = scan.seen.take().and_then(Seen::into_buffer);
        let buffer = scan.buffer.take().or(seen);
        let Some(mut buffer) = buffer.or_else(|| self.arena.buffer(scan.chunk as usize)) else {
            return Next::End(Err(LogError::NoMemory));
        };
        scan.at = place;
        scan.len = u64::from(scan.chunk).min(scan.header.capacity - place) as u32;
        buffer.set_len(scan.len as usize);
        let reading = Reading::new(DATA_AT + place, scan.len, scan.header.block_bytes);
        let kind = reading.kind();
        scan.reading = Some(reading);
        Next::Io(Step::Scan(scan), kind, Some(buffer))
    }

    /// Goes over what lies at a place of which the beginning was asked for. False: more has to be read from there on.
    fn scan_at(&mut self, scan: &mut Scan, seen: &Seen, place: u64) -> Result<bool, Unread> {
        let is_begin = place == scan.at;
        let rest = scan.header.capacity.saturating_sub(scan.passed);
        if scan.look.is_some() {
            return self.look_at(scan, seen, place, rest);
        }
        // No batch lies over the head: what is appended behind one that did would take the place of others.
        let bytes = up_to(rest, seen.from(DATA_AT + place)?);
        match scan.chain.step(bytes, |_| {}) {
            ChainStep::Longer if !is_begin => return Ok(false),
            ChainStep::Longer if seen.cut().is_some() => return seen.cut().map_or(Ok(false), Err),
            ChainStep::Batch {
                header,
                padded,
                place,
                group,
            } => {
                scan.passed += u64::from(padded);
                // At most its own LSN: it makes no rot of what follows.
                scan.watermark = scan.watermark.max(header.watermark);
                self.index.note(Mark {
                    lsn: header.lsn,
                    place,
                    group,
                });
            }
            _ => {
                // While one write is slow, others end and more follow: batches at the device lie as far apart as LSNs are given beyond
                // what is durable.
                let batch_max = u64::from(scan.header.batch_bytes_max);
                let window = scan.header.ahead.max(u64::from(scan.header.window) * batch_max) + batch_max;
                let far = self.goes_on(scan);
                // The whole of the batch that would begin here: it crosses neither the end of the data nor the head.
                let next = u64::from(scan.header.batch_bytes_max)
                    .min(rest)
                    .min(scan.header.capacity - place);
                let looks_like_one = crate::seeded_bug("log-tail-told-as-rot") && bytes.starts_with(b"BLOG");
                scan.look = Some(Look {
                    place: scan.chain.place,
                    left: if far { rest } else { window.min(rest) },
                    passed: 0,
                    is_rot: scan.watermark > scan.chain.end || looks_like_one,
                    next_to: place + next,
                    found: None,
                });
            }
        }
        Ok(true)
    }

    /// The same behind a gap, block by block.
    fn look_at(&mut self, scan: &mut Scan, seen: &Seen, place: u64, rest: u64) -> Result<bool, Unread> {
        let goes_on = self.goes_on(scan);
        let Some(look) = &mut scan.look else {
            return Ok(true);
        };
        let must_be_read = goes_on || (scan.chain.place..look.next_to).contains(&place);
        let mut step = u64::from(scan.header.block_bytes);
        let bytes = match seen.from(DATA_AT + place) {
            Err(unread) if must_be_read => return Err(unread),
            read => read.unwrap_or(&[]),
        };
        match scan
            .chain
            .look_later(up_to(rest.saturating_sub(look.passed), bytes), place)
        {
            Some(Later::Longer) if place != scan.at => return Ok(false),
            // Else a block in the place of the next batch fails by itself, and one behind that may be unreadable.
            Some(Later::Longer) if goes_on && seen.cut().is_some() => return seen.cut().map_or(Ok(false), Err),
            Some(Later::Batch(header)) => {
                look.is_rot |= header.watermark > scan.chain.end;
                look.found.get_or_insert((place, header.lsn, look.passed));
                step = u64::from(header.padded(scan.header.block_bytes));
            }
            _ => {}
        }
        look.left = look.left.saturating_sub(step);
        look.passed += step;
        look.place += step;
        if look.place >= scan.header.capacity {
            look.place = 0;
        }
        Ok(true)
    }

    /// Does the log go on behind what is missing here?
    fn goes_on(&self, scan: &Scan) -> bool {
        self.options.salvage || scan.chain.end < scan.header.holes_below
    }

    /// The look behind a gap is over: is the log's end there, or a hole?
    fn gap_is_judged(&mut self, scan: &mut Scan) -> Option<Verdict> {
        let end = scan.chain.end;
        let goes_on = self.goes_on(scan);
        let look = scan.look.as_ref()?;
        let is_known = look.is_rot && (!goes_on || look.found.is_some());
        if look.left > 0 && !is_known && !crate::seeded_bug("log-gap-is-passed-over") {
            return None;
        }
        let offset = DATA_AT + scan.chain.place;
        let look = scan.look.take()?;
        if crate::seeded_bug("log-gap-is-passed-over") {
            if look.found.is_none() && look.left > 0 {
                scan.look = Some(look);
                return None;
            }
            if let Some((place, _, passed)) = look.found {
                scan.chain.skip_to(place);
                scan.passed += passed;
                return None;
            }
        }
        if !look.is_rot || crate::seeded_bug("log-rot-told-as-tail") {
            return Some(Verdict::Tail);
        }
        let to = look.found.map_or(scan.watermark.max(end), |(_, lsn, _)| lsn);
        // Whoever salvaged has agreed to what was missing then, and to no more.
        let is_new = to > scan.header.holes_below;
        if !goes_on || (is_new && !self.options.salvage) {
            return Some(Verdict::Fault(LogError::Rot { lsn: Lsn(end), offset }));
        }
        if scan.holes.len() >= HOLES_MAX {
            return Some(Verdict::Fault(scan.too_damaged()));
        }
        scan.holes.push(Hole {
            from: Lsn(scan.chain.complete().lsn),
            to: Lsn(to),
            offset,
        });
        match look.found {
            Some((place, _, passed)) => {
                scan.passed += passed;
                scan.chain.skip_to(place);
                self.index.note_behind_hole(Mark {
                    lsn: to,
                    place,
                    group: None,
                });
                None
            }
            None => Some(Verdict::Tail),
        }
    }
}

/// So many of the bytes at most.
fn up_to(most: u64, bytes: &[u8]) -> &[u8] {
    &bytes[..most.min(bytes.len() as u64) as usize]
}
