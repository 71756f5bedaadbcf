//! Opening a log: its headers are read, its end is found (`scan`), and its epoch is raised.
//!
//! The epoch is raised in both copies of the header, before the first append. After an end that was not a clean close the new
//! LSNs begin so far ahead that none was ever given; the place does not skip.

use super::error::LogError;
use super::format::{COPIES_AT, DATA_AT, Header, LSN_MAX};
use super::front::{Gap, Life, Shape, Tail};
use super::seen::{Heard, Reading};
use super::steps::{AfterHeader, Ended, HeaderWrite, Job, Next, Running, Scan, Step};
use super::{LogAnswer, LogIoKind, LogPart, LogRequest, Lsn, Recovered};

impl LogPart {
    pub(super) fn open_by(&mut self) {
        self.run_opening(Step::ReadHeader { copy: 0 });
    }

    pub(super) fn run_opening(&mut self, step: Step) {
        let job = Job {
            who: None,
            request: LogRequest::Open,
        };
        self.running = Some(Running::new(job, step));
    }

    pub(super) fn take_memory(&mut self, header: &Header) -> Result<(), LogError> {
        let capacity_batches = header.capacity / 4 / u64::from(header.batch_bytes_max);
        // At most as `u32` has them: more than are ever in flight.
        let capacity_batches = u32::try_from(capacity_batches).unwrap_or(u32::MAX);
        let window = self.options.window.min(capacity_batches).max(1);
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
            ahead: self.options.ahead(header.block_bytes, header.batch_bytes_max),
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

    pub(super) fn read_header(&mut self, copy: usize, ended: Option<Ended>) -> Next {
        let copy = copy + usize::from(ended.is_some());
        if let Some(ended) = ended {
            let read = Reading::new(COPIES_AT[copy - 1], 4096, 4096).ended(ended.result, ended.buffer);
            let Heard::Seen(seen, _) = read else {
                return Next::End(Err(LogError::NoMemory));
            };
            let found = seen.from(COPIES_AT[copy - 1]).map(Header::decode);
            self.headers.set(copy - 1, found.into());
            self.block_buffer = seen.into_buffer();
        }
        if copy == COPIES_AT.len() {
            return match (self.begin_scan(), self.maker) {
                (Ok(next), _) => next,
                (Err(LogError::NotMade), Some(maker)) => self.make(maker),
                (Err(LogError::NotLog), Some(_)) => self.look_for_bytes(0, None),
                (Err(error), _) => Next::End(Err(error)),
            };
        }
        if self.size_bytes < DATA_AT {
            return match self.maker {
                Some(_) => self.look_for_bytes(0, None), // What is left of a log that was cut is no reason to make one.
                None => Next::End(Err(LogError::NotLog)),
            };
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

    /// The end of the log is known: its next header, too.
    pub(super) fn tail_found(&mut self, mut scan: Box<Scan>) -> Next {
        let old = scan.header;
        let end = scan.chain.end;
        let doubtful = scan.doubtful();
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
        // What is written must be readable, and so must all headers of this opening.
        let is_near_limit = epoch > LSN_MAX / 2 || old.sequence > LSN_MAX / 2;
        if is_near_limit || !scan.header.is_possible() {
            return Next::End(Err(LogError::HeaderLost));
        }
        self.settle_from(scan, doubtful)
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
            left: if crate::seeded_bug("log-epoch-in-one-copy") {
                1
            } else {
                2
            },
            then: AfterHeader::Open {
                end: scan.chain.end,
                place: scan.chain.place,
            },
        }))
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
