//! Following a log's batches to its end, and judging what is missing there.
//!
//! A recovery follows the batches from the head on. Where the next one is not there is a gap. Behind a gap there may be batches that
//! were in flight together with what is missing: those were never acknowledged, and the log ends at the gap. But if the header, or
//! one of those batches, says that the log was durable beyond it (the watermark), something has rotted, and the opening fails with
//! the place. With `salvage` it goes on behind the hole, and says so; the header remembers that there are holes, so that later
//! openings find them known. Where the place of the gap could not be read nobody knows whether a batch is there: that is no end.

use baio_engine::{Buffer, Errno};

use super::chain::{Chain, Later, Step as ChainStep};
use super::error::LogError;
use super::format::{DATA_AT, Header};
use super::index::Mark;
use super::jobs::{Ended, Next, Step};
use super::{Hole, LogIoKind, LogPart, Lsn};

/// Bytes that are read at once, if the arena has them.
const CHUNK: u32 = 1 << 20;

/// Laps that may be read and summed up in vain, behind gaps, before a log is refused; and how long a lap is taken to be at least. Who
/// knows the salt can let each block begin a batch that is as long as the longest: without a limit each is read whole.
const LAPS_IN_VAIN: u64 = 4;
const LAP_LEAST: u64 = 16 << 20;
/// Holes that a log may have: each is kept in memory.
const HOLES_MAX: usize = 4096;

/// How far a recovery has come.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) header: Header,
    /// The highest watermark of both copies.
    pub(super) watermark: u64,
    pub(super) chain: Chain,
    pub(super) buffer: Option<Buffer>,
    chunk: u32,
    /// Which bytes of the data are in the buffer.
    at: u64,
    len: u32,
    /// Blocks in the buffer that could not be read, and stand there as zeroes.
    unreadable: Vec<(u64, Errno)>,
    /// Bytes of the data that were gone over.
    passed: u64,
    look: Option<Look>,
    pub(super) holes: Vec<Hole>,
}

/// Looking for later batches behind a gap.
#[derive(Debug)]
struct Look {
    place: u64,
    left: u64,
    passed: u64,
    is_rot: bool,
    /// Up to there the next batch may lie that should begin in the gap.
    next_to: u64,
    /// The next batch may be there all the same: its place could not be read.
    unreadable: Option<Errno>,
    /// Where the first later batch lies, its LSN, and how far behind the gap.
    found: Option<(u64, u64, u64)>,
}

/// What a gap is, when it is not a hole behind which the log goes on.
enum Verdict {
    Tail,
    Fault(LogError),
}

/// Reading a part block by block: those that cannot be read stand there as zeroes, and are remembered.
#[derive(Debug)]
pub(super) struct Fill {
    piece: u32,
}

impl Scan {
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
        if self.options.block_bytes > header.block_bytes && !self.only_looks {
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
            at: 0,
            len: 0,
            unreadable: Vec::new(),
            passed: 0,
            look: None,
            holes: Vec::new(),
        }))))
    }

    pub(super) fn scan(&mut self, mut scan: Box<Scan>, ended: Option<Ended>) -> Next {
        if let Some(ended) = ended {
            // Whatever length it comes back with: so many bytes are gone over.
            let mut buffer = ended.buffer.filter(|buffer| buffer.capacity() >= scan.len as usize);
            if let Some(buffer) = &mut buffer {
                buffer.set_len(scan.len as usize);
            }
            scan.buffer = buffer;
            scan.unreadable.clear();
            if ended.result != Ok(scan.len) {
                return Next::Go(Step::Fill(scan, Fill { piece: 0 }));
            }
        }
        if scan.len > 0 && scan.buffer.is_none() {
            return Next::End(Err(LogError::NoMemory));
        }
        let limit = LAPS_IN_VAIN * scan.header.capacity.max(LAP_LEAST);
        loop {
            if scan.chain.in_vain > limit {
                return Next::End(Err(scan.too_damaged()));
            }
            let place = scan.look.as_ref().map_or(scan.chain.place, |look| look.place);
            let is_here = place >= scan.at && place < scan.at + u64::from(scan.len);
            let went_on = is_here && self.scan_at(&mut scan, place);
            if went_on {
                match self.gap_is_judged(&mut scan) {
                    None => continue,
                    Some(Verdict::Tail) => return self.tail_found(scan),
                    Some(Verdict::Fault(error)) => return Next::End(Err(error)),
                }
            }
            let Some(mut buffer) = scan.buffer.take() else {
                return Next::End(Err(LogError::NoMemory));
            };
            scan.at = place;
            scan.len = u64::from(scan.chunk).min(scan.header.capacity - place) as u32;
            buffer.set_len(scan.len as usize);
            if scan.look.is_some() {
                scan.chain.in_vain += u64::from(scan.len);
            }
            let kind = LogIoKind::Read {
                offset: DATA_AT + place,
                len: scan.len,
            };
            return Next::Io(Step::Scan(scan), kind, Some(buffer));
        }
    }

    /// Goes over what lies at a place of which the buffer has the beginning. False: the buffer has too little of it.
    fn scan_at(&mut self, scan: &mut Scan, place: u64) -> bool {
        let Some(buffer) = &scan.buffer else {
            return false;
        };
        let is_begin = place == scan.at;
        let bytes = buffer.get((place - scan.at) as usize..).unwrap_or(&[]);
        // No batch lies over the head: what is appended behind one that did would take the place of others.
        let rest = scan.header.capacity.saturating_sub(scan.passed);
        let ahead = scan.look.as_ref().map_or(0, |look| look.passed);
        let bytes = &bytes[..rest.saturating_sub(ahead).min(bytes.len() as u64) as usize];
        let block = u64::from(scan.header.block_bytes);
        if let Some(look) = &mut scan.look {
            let mut step = block;
            match scan.chain.look_later(bytes, place) {
                Some(Later::Longer) if !is_begin => return false,
                Some(Later::Batch(header)) => {
                    look.is_rot |= header.watermark > scan.chain.end;
                    look.found.get_or_insert((place, header.lsn, look.passed));
                    step = u64::from(header.padded(scan.header.block_bytes));
                }
                _ => {}
            }
            let here = look.place..look.next_to.min(look.place + step);
            if look.unreadable.is_none() && here.start >= scan.chain.place {
                let first = scan.unreadable.partition_point(|(at, _)| *at < here.start);
                let unreadable = scan.unreadable.get(first).filter(|(at, _)| here.contains(at));
                look.unreadable = unreadable.map(|(_, errno)| *errno);
            }
            look.left = look.left.saturating_sub(step);
            look.passed += step;
            look.place += step;
            if look.place >= scan.header.capacity {
                look.place = 0;
            }
            return true;
        }
        match scan.chain.step(bytes, |_| {}) {
            ChainStep::Longer if !is_begin => return false,
            ChainStep::Batch {
                header,
                padded,
                place,
                group,
            } => {
                scan.passed += u64::from(padded);
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
                let far = self.options.salvage || scan.chain.end < scan.header.holes_below;
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
                    unreadable: None,
                    found: None,
                });
            }
        }
        true
    }

    /// The look behind a gap is over: is the log's end there, or a hole?
    fn gap_is_judged(&mut self, scan: &mut Scan) -> Option<Verdict> {
        let end = scan.chain.end;
        let goes_on = self.options.salvage || end < scan.header.holes_below;
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
        let tail = match look.unreadable.filter(|_| !self.options.salvage) {
            Some(errno) => Verdict::Fault(LogError::Read(errno)),
            None => Verdict::Tail,
        };
        if !look.is_rot || crate::seeded_bug("log-rot-told-as-tail") {
            return Some(tail);
        }
        if !goes_on {
            return Some(Verdict::Fault(LogError::Rot { lsn: Lsn(end), offset }));
        }
        let to = look.found.map_or(scan.watermark.max(end), |(_, lsn, _)| lsn);
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
            None => Some(tail),
        }
    }

    /// A part that could not be read whole, block by block.
    pub(super) fn fill(&mut self, mut scan: Box<Scan>, fill: Fill, ended: Option<Ended>) -> Next {
        let mut piece = fill.piece;
        let len = scan.header.block_bytes;
        if let Some(ended) = ended {
            if let Some(buffer) = &mut scan.buffer {
                let into = buffer
                    .get_mut(piece as usize..(piece + len) as usize)
                    .unwrap_or(&mut []);
                match &ended.buffer {
                    Some(read) if ended.result == Ok(len) && read.len() == into.len() => into.copy_from_slice(read),
                    _ => {
                        into.fill(0);
                        let errno = ended.result.err().unwrap_or(Errno::EIO);
                        scan.unreadable.push((scan.at + u64::from(piece), errno));
                    }
                }
            }
            self.block_buffer = ended.buffer;
            piece += len;
        }
        if piece >= scan.len {
            return Next::Go(Step::Scan(scan));
        }
        let Some(buffer) = self.take_block(len) else {
            return Next::End(Err(LogError::NoMemory));
        };
        let kind = LogIoKind::Read {
            offset: DATA_AT + scan.at + u64::from(piece),
            len,
        };
        Next::Io(Step::Fill(scan, Fill { piece }), kind, Some(buffer))
    }
}
