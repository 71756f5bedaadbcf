//! Making a log, and recovering one.
//!
//! A recovery follows the batches from the head on. Where the next one is not there is a gap. Behind a gap there may be batches that
//! were in flight together with what is missing: those were never acknowledged, and the log ends at the gap. But if the header, or
//! one of those batches, says that the log was durable beyond it (the watermark), something has rotted, and the opening fails with
//! the place. With `salvage` it goes on behind the hole, and says so; the header remembers that there are holes, so that later
//! openings find them known. Where the place of the gap could not be read nobody knows whether a batch is there: that is no end.
//!
//! Then the epoch is raised in both copies of the header, before the first append. After an end that was not a clean close the new
//! LSNs begin so far ahead that none was ever given; the place does not skip.

use baio_engine::{Buffer, Errno};

use super::chain::{Chain, Later, Step as ChainStep};
use super::error::LogError;
use super::format::{COPIES_AT, DATA_AT, Header, HeaderFault, LSN_MAX};
use super::front::{Gap, Life, Shape, Tail};
use super::index::Mark;
use super::jobs::{AfterHeader, AfterZero, Ended, HeaderWrite, Job, Next, Running, Step};
use super::zero::Zeroing;
use super::{Hole, LogAnswer, LogIoKind, LogPart, LogRequest, Lsn, Recovered};

/// Bytes that are read at once, if the arena has them.
const CHUNK: u32 = 1 << 20;

/// How far a recovery has come.
#[derive(Debug)]
pub(super) struct Scan {
    header: Header,
    /// The highest watermark of both copies.
    watermark: u64,
    chain: Chain,
    buffer: Option<Buffer>,
    chunk: u32,
    /// Which bytes of the data are in the buffer.
    at: u64,
    len: u32,
    /// Blocks in the buffer that could not be read, and stand there as zeroes.
    unreadable: Vec<(u64, Errno)>,
    /// Bytes of the data that were gone over.
    passed: u64,
    look: Option<Look>,
    holes: Vec<Hole>,
}

/// Looking for later batches behind a gap.
#[derive(Debug)]
struct Look {
    place: u64,
    left: u64,
    passed: u64,
    is_rot: bool,
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

impl LogPart {
    pub(super) fn create_by(&mut self, header: Header) -> Result<(), LogError> {
        self.header = Some(header);
        self.take_memory(&header)?;
        self.run_opening(Step::Clear { copy: 0 });
        Ok(())
    }

    pub(super) fn open_by(&mut self) {
        self.run_opening(Step::ReadHeader { copy: 0 });
    }

    fn run_opening(&mut self, step: Step) {
        let job = Job {
            who: None,
            request: LogRequest::Open,
        };
        self.running = Some(Running::new(job, step));
    }

    fn take_memory(&mut self, header: &Header) -> Result<(), LogError> {
        let capacity_batches = header.capacity / 4 / u64::from(header.batch_bytes_max);
        let window = self.options.window.min(capacity_batches as u32).max(1);
        let window_short = match self.options.window_short {
            0 => window,
            short => short.min(window),
        };
        let mut front = self.shared.lock();
        front.shape = Shape {
            block: header.block_bytes,
            batch_max: header.batch_bytes_max,
            capacity: header.capacity,
            window,
            window_short,
            ahead: self.options.ahead(header.batch_bytes_max),
        };
        self.block_buffer = self.arena.buffer(4096);
        if self.block_buffer.is_none() {
            return Err(LogError::NoMemory);
        }
        if self.only_looks {
            return Ok(());
        }
        front.take_buffers()
    }

    pub(super) fn clear(&mut self, copy: usize, ended: Option<Ended>) -> Next {
        let (Some(header), copy) = (self.header, copy + usize::from(ended.is_some())) else {
            return Next::End(Err(LogError::NotLog));
        };
        if let Some(ended) = ended {
            self.block_buffer = ended.buffer;
            if ended.result != Ok(header.block_bytes) {
                let errno = ended.result.err().unwrap_or(Errno::EIO);
                return Next::End(Err(self.header_failed(errno)));
            }
        }
        if copy == COPIES_AT.len() {
            let zeroing = Zeroing::new(0..header.capacity, AfterZero::Create);
            return Next::Go(Step::Zero(zeroing));
        }
        let Some(mut buffer) = self.take_block(header.block_bytes) else {
            return Next::End(Err(LogError::NoMemory));
        };
        buffer.fill(0);
        let kind = LogIoKind::Write {
            offset: COPIES_AT[copy],
            len: header.block_bytes,
        };
        Next::Io(Step::Clear { copy }, kind, Some(buffer))
    }

    pub(super) fn created(&mut self) -> Next {
        let Some(header) = self.header else {
            return Next::End(Err(LogError::NotLog));
        };
        self.recovered.was_clean = true;
        Next::Go(Step::Header(HeaderWrite {
            header,
            left: 2,
            then: AfterHeader::Open {
                end: header.epoch_first,
                place: 0,
            },
        }))
    }

    pub(super) fn read_header(&mut self, copy: usize, ended: Option<Ended>) -> Next {
        let copy = copy + usize::from(ended.is_some());
        if let Some(ended) = ended {
            let whole = ended
                .result
                .is_ok_and(|read| read as usize >= super::format::HEADER_BYTES);
            let header = match &ended.buffer {
                Some(buffer) if whole => Header::decode(buffer),
                _ => Err(HeaderFault::Damaged),
            };
            self.headers.set(copy - 1, header);
            self.block_buffer = ended.buffer;
        }
        if copy == COPIES_AT.len() {
            return match self.begin_scan() {
                Ok(next) => next,
                Err(error) => Next::End(Err(error)),
            };
        }
        if self.size_bytes < DATA_AT {
            return Next::End(Err(LogError::NotLog));
        }
        let Some(buffer) = self.take_block(4096) else {
            return Next::End(Err(LogError::NoMemory));
        };
        let kind = LogIoKind::Read {
            offset: COPIES_AT[copy],
            len: 4096,
        };
        Next::Io(Step::ReadHeader { copy }, kind, Some(buffer))
    }

    fn begin_scan(&mut self) -> Result<Next, LogError> {
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
            scan.buffer = ended.buffer;
            scan.unreadable.clear();
            if ended.result != Ok(scan.len) {
                return Next::Go(Step::Fill(scan, Fill { piece: 0 }));
            }
        }
        loop {
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
        let bytes = &buffer[(place - scan.at) as usize..scan.len as usize];
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
            look.left = look.left.saturating_sub(step);
            look.passed += step;
            look.place += step;
            if look.place >= scan.header.capacity {
                look.place = 0;
            }
            return true;
        }
        let is_round = scan.passed >= scan.header.capacity;
        let step = if is_round {
            ChainStep::Gap
        } else {
            scan.chain.step(bytes, |_| {})
        };
        match step {
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
                let rest = scan.header.capacity.saturating_sub(scan.passed);
                let far = self.options.salvage || scan.chain.end < scan.header.holes_below;
                // The whole of the batch that would begin here: it crosses neither the end of the data nor the head.
                let next = u64::from(scan.header.batch_bytes_max)
                    .min(rest)
                    .min(scan.header.capacity - place);
                if !is_begin && (bytes.len() as u64) < next {
                    return false;
                }
                let is_of_next = |at: u64| (place..place + next).contains(&at);
                let unreadable = scan.unreadable.iter().find(|(at, _)| is_of_next(*at));
                scan.look = Some(Look {
                    place: scan.chain.place,
                    left: if far { rest } else { window.min(scan.header.capacity) },
                    passed: 0,
                    is_rot: scan.watermark > scan.chain.end,
                    unreadable: unreadable.map(|(_, errno)| *errno),
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
            if let Some((place, _, passed)) = look.found.filter(|_| scan.passed < scan.header.capacity) {
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
        // A lap is the most that is followed.
        let found = look.found.filter(|_| scan.passed < scan.header.capacity);
        let to = found.map_or(scan.watermark, |(_, lsn, _)| lsn);
        scan.holes.push(Hole {
            from: Lsn(scan.chain.complete().lsn),
            to: Lsn(to),
            offset,
        });
        match found {
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

    /// The end of the log is known: its next header, too.
    fn tail_found(&mut self, mut scan: Box<Scan>) -> Next {
        let old = scan.header;
        let end = scan.chain.end;
        let was_clean = old.is_clean && old.watermark == end && scan.holes.is_empty();
        let seen = end.max(old.epoch_first).max(scan.watermark);
        // After a clean close none was given beyond the end, or, with nothing appended, beyond where that opening began.
        let is_certain = was_clean || crate::seeded_bug("log-lsns-do-not-skip");
        let ahead = if is_certain { 0 } else { old.ahead };
        let mut first = seen.saturating_add(ahead);
        let mut epoch = old.epoch.max(scan.chain.epoch) + 1;
        if crate::seeded_bug("log-epoch-not-raised") {
            (first, epoch) = (end, old.epoch);
        }
        if first > LSN_MAX / 2 {
            return Next::End(Err(LogError::HeaderLost));
        }
        let front = self.shared.lock();
        let shape = front.shape;
        drop(front);
        // A hole in which the log ended needs no memory: its LSNs are below the new epoch's.
        let deepest = scan.holes.iter().map(|hole| hole.to.0).max().unwrap_or(0);
        self.recovered = Recovered {
            head: Lsn(old.head.lsn),
            end: Lsn(scan.chain.complete().lsn),
            next: Lsn(first),
            epoch,
            was_clean,
            holes: std::mem::take(&mut scan.holes),
        };
        if self.only_looks {
            return self.looked(&scan);
        }
        scan.header = Header {
            sequence: old.sequence + 1,
            epoch,
            epoch_first: first,
            watermark: end,
            ahead: old.ahead.max(shape.ahead),
            window: old.window.max(shape.window),
            holes_below: old.holes_below.max(deepest),
            is_clean: false,
            ..old
        };
        scan.buffer = None;
        if was_clean {
            return self.synced(scan, None);
        }
        Next::Io(Step::Sync(scan), LogIoKind::Sync, None)
    }

    /// Nothing more is done: what was found can be read.
    fn looked(&mut self, scan: &Scan) -> Next {
        let (head, complete) = (scan.header.head, scan.chain.complete());
        self.head = head;
        self.flights.begin(scan.chain.end, scan.chain.place);
        self.recovered.epoch = scan.header.epoch;
        let mut front = self.shared.lock();
        front.life = Life::Closed;
        front.tail = Tail {
            lsn: self.recovered.next.0,
            prev: scan.chain.end,
            place: scan.chain.place,
        };
        front.durable_to = self.recovered.next.0;
        front.head = head.lsn;
        front.used = front.used_from(head);
        front.lost_from = complete.lsn;
        self.shared.set_durable(complete.lsn);
        front.waits.durable_to(complete.lsn);
        front.waits.fail_from(complete.lsn, &LogError::Closed);
        Next::End(Ok(LogAnswer::Done))
    }

    /// What was found is durable: the epoch is raised.
    pub(super) fn synced(&mut self, scan: Box<Scan>, ended: Option<Ended>) -> Next {
        if let Some(Ended { result: Err(errno), .. }) = ended {
            return Next::End(Err(self.header_failed(errno)));
        }
        Next::Go(Step::Header(HeaderWrite {
            header: scan.header,
            left: 2,
            then: AfterHeader::Open {
                end: scan.chain.end,
                place: scan.chain.place,
            },
        }))
    }

    /// A part that could not be read whole, block by block.
    pub(super) fn fill(&mut self, mut scan: Box<Scan>, fill: Fill, ended: Option<Ended>) -> Next {
        let mut piece = fill.piece;
        let len = scan.header.block_bytes;
        if let Some(ended) = ended {
            if let Some(buffer) = &mut scan.buffer {
                let into = &mut buffer[piece as usize..(piece + len) as usize];
                match &ended.buffer {
                    Some(read) if ended.result == Ok(len) => into.copy_from_slice(&read[..len as usize]),
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

    /// Both copies of the header say so: appends may come.
    pub(super) fn become_open(&mut self, header: Header, end: u64, place: u64) {
        self.header = Some(header);
        self.head = header.head;
        self.flights.begin(end, place);
        if self.recovered.epoch == 0 {
            self.recovered.end = Lsn(end); // A new log.
        }
        self.recovered.head = Lsn(header.head.lsn);
        self.recovered.next = Lsn(header.epoch_first);
        self.recovered.epoch = header.epoch;
        let mut front = self.shared.lock();
        front.tail = Tail {
            lsn: header.epoch_first,
            prev: end,
            place,
        };
        front.durable_to = header.epoch_first;
        front.head = header.head.lsn;
        front.used = front.used_from(header.head);
        front.retains.going_to = header.head.lsn;
        front.life = Life::Open;
        front.gap = Gap {
            lost: self.recovered.end.0,
            end,
            next: header.epoch_first,
        };
        self.shared.set_epoch_first(header.epoch_first);
        self.shared.set_durable(header.epoch_first);
        let lost = Err(front.gap.error());
        front.waits.durable_to(self.recovered.end.0);
        front.waits.end_below(header.epoch_first, &lost);
        front.tell_room();
    }
}
