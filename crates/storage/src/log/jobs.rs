//! What changes a log as a whole: making, recovering, truncating, growing, noting, closing. One at a time, in the order in which they
//! were asked; each is a row of steps, and a step has at most one I/O under way, but for zeroes.

use baio_engine::{Buffer, Errno};

use super::error::LogError;
use super::format::{COPIES_AT, Header};
use super::front::Life;
use super::headers::HeaderCopy;
use super::steps::{AfterDrain, AfterHeader, Ended, HeaderWrite, Job, Next, Running, Step};
use super::{IoOwner, LogAnswer, LogIoKind, LogPart, LogRequest, LogRequestId};

impl LogPart {
    pub(super) fn start_job(&mut self, who: Option<(u64, LogRequestId)>, request: LogRequest) {
        self.jobs.push_back(Job { who, request });
    }

    pub(super) fn job_io_ended(&mut self, result: Result<u32, Errno>, buffer: Option<Buffer>) {
        if let Some(running) = &mut self.running {
            running.ended = Some(Ended { result, buffer });
            running.is_waiting = false;
        }
    }

    /// Does what can be done without the end of an I/O.
    pub(super) fn go_on(&mut self) {
        self.truncate_if_let_go();
        loop {
            if self.running.is_none() {
                let Some(job) = self.jobs.pop_front() else {
                    return;
                };
                self.running = Some(Running::new(job, Step::Begin));
            }
            let Some(running) = &mut self.running else {
                return;
            };
            if running.is_waiting {
                return;
            }
            let Some(step) = running.step.take() else {
                return;
            };
            let ended = running.ended.take();
            let request = running.job.request;
            let next = self.step(step, request, ended);
            let Some(running) = &mut self.running else {
                return;
            };
            match next {
                Next::Go(step) => running.step = Some(step),
                Next::Stay(step) => {
                    running.step = Some(step);
                    return;
                }
                Next::Io(step, kind, buffer) => {
                    running.step = Some(step);
                    running.is_waiting = true;
                    self.ask(IoOwner::Job, kind, buffer);
                    return;
                }
                Next::End(result) => {
                    let who = running.job.who;
                    self.running = None;
                    if let Err(error) = &result {
                        self.truncated_for = self.head.lsn;
                        self.shared.lock().retains.going_to = self.head.lsn;
                        self.fail_opening(error);
                        self.resume();
                    }
                    self.end(who, result);
                }
            }
        }
    }

    /// A log that could not be opened says so to everybody.
    fn fail_opening(&mut self, error: &LogError) {
        let mut front = self.shared.lock();
        if front.life == Life::Opening {
            front.life = Life::Failed(error.clone());
            front.lost_from = 0;
            front.waits.fail_from(0, error);
        }
    }

    fn step(&mut self, step: Step, request: LogRequest, ended: Option<Ended>) -> Next {
        match step {
            Step::Begin => self.begin(request),
            Step::Lengthen(how) => self.lengthen(how, ended),
            Step::Clear { copy } => self.clear(copy, ended),
            Step::Blank(blank) => self.blank(blank, ended),
            Step::Zero(zeroing) => self.zero(zeroing),
            Step::ReadHeader { copy } => self.read_header(copy, ended),
            Step::Scan(scan) => self.scan(scan, ended),
            Step::Settle(settling) => self.settle(settling, ended),
            Step::Sync(scan) => self.synced(scan, ended),
            Step::Header(write) => self.write_header(write, ended),
            Step::Find(find) => self.find(find, ended),
            Step::Drain(then) => self.drain(then),
            Step::Move(growth) => self.move_wrapped(growth, ended),
        }
    }

    fn begin(&mut self, request: LogRequest) -> Next {
        let life = self.shared.lock().life.clone();
        match (life, request) {
            (Life::Failed(error), LogRequest::Open) => Next::End(Err(error)),
            (_, LogRequest::Open) => Next::End(Ok(LogAnswer::Opened(self.recovered.clone()))),
            (Life::Closed, LogRequest::Close) => Next::End(Ok(LogAnswer::Done)),
            (Life::Open, LogRequest::Close) => {
                self.stop_appends();
                Next::Go(Step::Drain(AfterDrain::Close))
            }
            (Life::Failed(_), LogRequest::Close) => Next::Go(Step::Drain(AfterDrain::Close)),
            (Life::Open, LogRequest::Truncate { to }) => self.begin_truncate(to.0),
            (Life::Open, LogRequest::Grow { size_bytes }) => self.begin_grow(size_bytes),
            (Life::Open, LogRequest::NoteWatermark) => self.begin_note(),
            (Life::Failed(error), _) => Next::End(Err(error)),
            _ => Next::End(Err(LogError::Closed)),
        }
    }

    /// Nothing is appended any more; who waits for more hears it.
    fn stop_appends(&mut self) {
        self.shared.recent().end();
        let mut front = self.shared.lock();
        front.life = Life::Closed;
        front.lost_from = front.next_lsn();
        let from = front.lost_from;
        front.waits.fail_from(from, &LogError::Closed);
    }

    fn drain(&mut self, then: AfterDrain) -> Next {
        let (life, has_work) = {
            let front = self.shared.lock();
            (front.life.clone(), front.has_work())
        };
        if has_work || self.flights.at_device() > 0 {
            return Next::Stay(Step::Drain(then));
        }
        match (life, then) {
            (Life::Failed(error), _) => Next::End(Err(error)),
            (_, AfterDrain::Close) => match self.headers.next() {
                Ok(header) => Next::Go(Step::Header(HeaderWrite {
                    header: Header {
                        watermark: self.flights.durable_end,
                        is_clean: true,
                        ..header
                    },
                    left: 1,
                    then: AfterHeader::Close,
                })),
                Err(error) => Next::End(Err(error)),
            },
            (_, AfterDrain::Grow(growth)) => Next::Go(Step::Move(growth)),
        }
    }

    fn begin_note(&mut self) -> Next {
        let watermark = self.flights.durable_end;
        match self.headers.next() {
            Ok(header) if header.watermark < watermark => Next::Go(Step::Header(HeaderWrite {
                header: Header { watermark, ..header },
                left: 1,
                then: AfterHeader::Note,
            })),
            Ok(_) => Next::End(Ok(LogAnswer::Done)),
            Err(error) => Next::End(Err(error)),
        }
    }

    fn write_header(&mut self, mut write: HeaderWrite, ended: Option<Ended>) -> Next {
        let one_is_there = ended.is_some();
        if let Some(ended) = ended {
            self.block_buffer = ended.buffer;
            let is_whole = ended.result == Ok(write.header.block_bytes);
            if !is_whole {
                let errno = ended.result.err().unwrap_or(Errno::EIO);
                let error = self.header_failed(errno);
                return Next::End(Err(error));
            }
            self.headers.set(self.headers.older(), HeaderCopy::Valid(write.header));
            self.counts.headers += 1;
            write.left -= 1;
            if write.left == 0 {
                self.header = Some(write.header);
                return self.header_written(write.header, write.then);
            }
        } else if let AfterHeader::Truncate(head) = write.then {
            if crate::seeded_bug("log-space-reused-early") {
                self.move_head(head);
            }
        }
        let Some(mut buffer) = self.take_block(write.header.block_bytes) else {
            // The log cannot go on with the old size when the next header may have the new one.
            let is_half_grown = one_is_there && matches!(write.then, AfterHeader::Grow(_));
            return Next::End(Err(match is_half_grown {
                true => self.header_failed(Errno::ENOMEM),
                false => LogError::NoMemory,
            }));
        };
        let bytes = write.header.encode();
        buffer.fill(0);
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let kind = LogIoKind::Write {
            offset: COPIES_AT[self.headers.older()],
            len: write.header.block_bytes,
        };
        Next::Io(Step::Header(write), kind, Some(buffer))
    }

    /// The buffer for a block that is kept for this, with so many bytes.
    pub(super) fn take_block(&mut self, bytes: u32) -> Option<Buffer> {
        let mut buffer = self.block_buffer.take().or_else(|| self.arena.buffer(4096))?;
        buffer.set_len(bytes as usize);
        Some(buffer)
    }

    /// So many copies of a header are durable as it takes.
    fn header_written(&mut self, header: Header, then: AfterHeader) -> Next {
        match then {
            AfterHeader::Open { end, place } => {
                self.become_open(header, end, place);
                Next::End(Ok(LogAnswer::Done))
            }
            AfterHeader::Truncate(head) => {
                self.move_head(head);
                Next::End(Ok(LogAnswer::Head(super::Lsn(head.lsn))))
            }
            AfterHeader::Grow(growth) => self.grown(growth),
            AfterHeader::Note => Next::End(Ok(LogAnswer::Done)),
            AfterHeader::Close => {
                self.shared.lock().drop_buffers();
                Next::End(Ok(LogAnswer::Done))
            }
        }
    }
}
