//! One request at a time, and the signals that come while it is under way: for a copy in order, and for what comes before and behind
//! any copy.
//!
//! Beside it one read may go on, of which nobody can see when it was made: it is begun, the others are waited for, and later its outcome
//! is asked for.

use baio_console::diagnostics;
use baio_console::failure::Failure;
use baio_engine::{Buffer, Durability};
use baio_storage::{Mode, Outcome, SegmentOp, SegmentRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::cores::Cores;
use super::ends::End;
use super::figures::Figures;
use super::signals::Signals;
use super::summary::{Meter, Part};
use crate::operands::Status;

/// So often a copy looks for signals that came between a look and a sleep.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Why a copy goes no further.
pub(super) enum Halt {
    Failed(Failure),
    /// SIGINT.
    Interrupted,
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Halt {
        Halt::Failed(failure)
    }
}

/// The tag of the read that goes on beside the others, which have none.
const AHEAD: u64 = 1;

/// The read that goes on beside the others.
#[derive(Default)]
enum Ahead {
    #[default]
    None,
    UnderWay,
    Ended(Outcome),
}

/// What each of those steps needs.
pub(super) struct Work<'a> {
    cores: &'a mut Cores,
    status: Status,
    meter: &'a mut Meter,
    signals: &'a Signals,
    /// Signals have been heard enough.
    ends: bool,
    ahead: Ahead,
    /// Requests that were under way at once.
    pub(super) in_flight_max: u64,
    pub(super) figures: Figures,
    pub(super) parts: [Part; 2],
}

impl<'a> Work<'a> {
    pub(super) fn new(cores: &'a mut Cores, status: Status, meter: &'a mut Meter, signals: &'a Signals) -> Work<'a> {
        Work {
            cores,
            status,
            meter,
            signals,
            ends: false,
            ahead: Ahead::None,
            in_flight_max: 0,
            figures: Figures::default(),
            parts: Part::NONE,
        }
    }

    pub(super) fn cores(&mut self) -> &mut Cores {
        self.cores
    }

    /// Reads at most `len` bytes.
    pub(super) fn read(&mut self, end: &End, offset: u64, len: u64) -> Result<Outcome, Halt> {
        self.heed()?;
        let buffer = self.cores.buffer(len as usize)?;
        let outcome = self.run(end, read_of(end, offset, len, buffer))?;
        self.count(Part::READ, &outcome);
        Ok(outcome)
    }

    /// Begins a read that goes on beside others; says whether there was memory for it. There is one at a time.
    pub(super) fn begin_ahead(&mut self, end: &End, offset: u64, len: u64) -> Result<bool, Halt> {
        let Ok(buffer) = self.cores.buffer(len as usize) else {
            return Ok(false);
        };
        let request = SegmentRequest {
            tag: AHEAD,
            ..read_of(end, offset, len, buffer)
        };
        self.ahead = Ahead::UnderWay;
        self.cores.start(end.way, request)?;
        Ok(true)
    }

    /// The outcome of that read, once it has ended; `None` if none was begun.
    pub(super) fn take_ahead(&mut self) -> Result<Option<Outcome>, Halt> {
        loop {
            // Nothing else is under way, and so nothing else can have ended.
            let _ = self.next_outcome();
            match std::mem::take(&mut self.ahead) {
                Ahead::None => return Ok(None),
                Ahead::Ended(outcome) => return Ok(Some(outcome)),
                Ahead::UnderWay => self.ahead = Ahead::UnderWay,
            }
            self.heed()?;
            self.cores.turn()?;
        }
    }

    /// Waits until the read ahead is not under way any more; after SIGINT for a while only, since a disk or a server that has gone never
    /// answers.
    pub(super) fn leave_ahead(&mut self) -> Result<(), Halt> {
        self.ends();
        loop {
            let _ = self.next_outcome();
            if !matches!(self.ahead, Ahead::UnderWay) {
                self.ahead = Ahead::None;
                return Ok(());
            }
            self.heed()?;
            if !self.signals.interrupted() {
                self.cores.turn()?;
            } else if self.cores.are_stuck()? {
                return Err(Halt::Interrupted);
            }
        }
    }

    /// Writes all of `bytes`.
    pub(super) fn write(
        &mut self,
        end: &End,
        offset: u64,
        bytes: &[u8],
        (mode, durability): (Mode, Durability),
    ) -> Result<Outcome, Halt> {
        self.heed()?;
        let mut buffer = self.cores.buffer(bytes.len())?;
        buffer.set_len(bytes.len());
        buffer.copy_from_slice(bytes);
        let request = SegmentRequest {
            mode,
            durability,
            ..SegmentRequest::new(end.handle, SegmentOp::Write { offset }, buffer)
        };
        let outcome = self.run(end, request)?;
        self.count(Part::WRITE, &outcome);
        Ok(outcome)
    }

    fn count(&mut self, part: usize, outcome: &Outcome) {
        if let Some(part) = self.parts.get_mut(part) {
            part.requests += 1;
            part.bytes += u64::from(outcome.bytes_done);
        }
    }

    /// Runs one request, while no other is under way but a read ahead.
    pub(super) fn run(&mut self, end: &End, request: SegmentRequest) -> Result<Outcome, Halt> {
        let beside = u64::from(matches!(self.ahead, Ahead::UnderWay));
        self.in_flight_max = self.in_flight_max.max(1 + beside);
        self.cores.start(end.way, request)?;
        loop {
            if let Some(outcome) = self.next_outcome() {
                return Ok(outcome);
            }
            if let Err(halt) = self.heed() {
                return self.call_off(halt);
            }
            self.cores.turn()?;
        }
    }

    /// What has ended. The read ahead is kept until somebody asks for it.
    fn next_outcome(&mut self) -> Option<Outcome> {
        loop {
            let outcome = self.cores.next_outcome()?;
            if outcome.tag != AHEAD {
                return Some(outcome);
            }
            self.count(Part::READ, &outcome);
            self.ahead = Ahead::Ended(outcome);
        }
    }

    /// After SIGINT: what can still end does, and counts; what waits for a stream is called off.
    fn call_off(&mut self, halt: Halt) -> Result<Outcome, Halt> {
        while !self.cores.are_stuck()? {
            if let Some(outcome) = self.next_outcome() {
                return if outcome.result.is_ok() { Ok(outcome) } else { Err(halt) };
            }
        }
        Err(halt)
    }

    /// Waits until a stream can be read or written, where a backend would wait for it and hear no signal.
    pub(super) fn wait_for(&mut self, end: &End, flags: PollFlags) -> Result<(), Halt> {
        let Some(file) = end.positioned.as_ref().filter(|_| !self.cores.backend().1) else {
            return Ok(());
        };
        loop {
            self.heed()?;
            match poll(&mut [PollFd::new(file, flags)], Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Whatever else there is to say, the request says it.
                _ => return Ok(()),
            }
        }
    }

    /// Does what signals have asked for meanwhile.
    pub(super) fn heed(&mut self) -> Result<(), Halt> {
        while self.signals.take_asked() {
            self.print();
        }
        match self.signals.interrupted() && !self.ends {
            true => Err(Halt::Interrupted),
            false => Ok(()),
        }
    }

    /// From here on nothing is interrupted: what was begun ends.
    pub(super) fn ends(&mut self) {
        self.ends = true;
    }

    /// The figures so far.
    pub(super) fn print(&mut self) {
        self.meter.finish();
        self.figures.print(self.status, self.meter.elapsed().as_secs_f64());
    }

    pub(super) fn tick(&mut self) {
        self.meter.tick(self.figures.bytes);
    }

    /// A message for people, on a line of its own.
    pub(super) fn say(&mut self, message: &str) {
        self.meter.finish();
        diagnostics::say(message);
    }
}

fn read_of(end: &End, offset: u64, len: u64, mut buffer: Buffer) -> SegmentRequest {
    buffer.set_len(len as usize);
    SegmentRequest {
        mode: end.mode,
        ..SegmentRequest::new(end.handle, SegmentOp::Read { offset }, buffer)
    }
}

/// What the system said of something that was tried beside the engine.
pub(super) fn refused(end: &End, operation: &'static str, offset: u64, errno: baio_engine::Errno) -> Failure {
    end.failed(&baio_storage::Error::new(operation, end.typed.clone(), errno).at(offset))
}
