//! Drives one log by hand, on the record: what it asks of the device ends in any order, and what it tells is noted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baio_engine::sim::Random;
use baio_engine::{Arena, Errno, Memory, Time};
use baio_storage::log::{
    Appender, LogAnswer, LogError, LogIoId, LogIoKind, LogOptions, LogPart, LogRequest, Lsn, RecordReader, Recovered,
    Retained, Salt,
};

use super::medium::{Medium, Write};
use super::model::{self, Group, Seen, Told};
use crate::violation::{Kind, Violation};

/// What happened, in order.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write went to the device.
    Begun(usize, Write),
    /// The write with this number is durable.
    Ended(usize),
    /// So many of its first bytes are durable, and that was told: the others never came.
    Short(usize, usize),
    /// The write with this number has failed: it may be there in part, and does not come later than what is written there since.
    Failed(usize),
    /// Everything that had reached the device is durable.
    Synced,
    /// Somebody was told something.
    Told(Told),
}

/// How a request ended.
pub type Answer = Result<LogAnswer, LogError>;
/// What callbacks were told of LSNs.
type Acks = Arc<Mutex<Vec<(u64, Result<(), LogError>)>>>;

#[derive(Debug)]
struct Waiting {
    id: LogIoId,
    kind: LogIoKind,
    memory: Memory,
    number: usize,
}

/// A log and its device.
#[derive(Debug)]
pub struct Rig {
    part: LogPart,
    appender: Appender,
    /// What the device holds now.
    pub medium: Medium,
    /// What happened.
    pub record: Vec<Event>,
    /// Which of it is wanted.
    pub is_on_record: bool,
    random: Random,
    waiting: Vec<Waiting>,
    answers: Vec<(u64, Answer)>,
    acks: Acks,
    durable: u64,
    /// What the opening found was served: from then on what is told counts.
    is_served: bool,
    writes: usize,
    now: u64,
    owner: u64,
    /// So many more writes end well.
    pub fails_in: Option<u32>,
    /// A write has failed: nothing is acknowledged any more.
    pub has_failed: bool,
    only_looks: bool,
    /// So many reads fail, at any time.
    pub misread_percent: u64,
    /// One did.
    pub has_misread: bool,
}

const TRUNCATES: u64 = 1 << 32;
const CLOSES: u64 = 1 << 33;
/// More I/Os than any opening or request needs: it would never end.
const STEPS_MAX: u32 = 100_000;

impl Rig {
    fn of(part: Result<LogPart, LogError>, medium: Medium, random: Random) -> Result<Rig, Violation> {
        let part = part.map_err(|error| Violation::new(Kind::Failed, format!("it does not begin: {error}")))?;
        let appender = part.appender().quiet();
        Ok(Rig {
            part,
            appender,
            medium,
            record: Vec::new(),
            is_on_record: true,
            random,
            waiting: Vec::new(),
            answers: Vec::new(),
            acks: Acks::default(),
            durable: 0,
            is_served: false,
            writes: 0,
            now: 0,
            owner: 0,
            fails_in: None,
            has_failed: false,
            only_looks: false,
            misread_percent: 0,
            has_misread: false,
        })
    }

    /// Makes a log in so many bytes of the medium.
    ///
    /// # Errors
    /// It is refused.
    pub fn create(
        arena: &Arc<Arena>,
        medium: Medium,
        size_bytes: u64,
        uuid: [u8; 16],
        options: &LogOptions,
        random: Random,
    ) -> Result<Rig, Violation> {
        let salt = Salt(uuid); // As new as that.
        Rig::of(LogPart::create(arena, size_bytes, uuid, salt, options), medium, random)
    }

    /// Opens what is there.
    ///
    /// # Errors
    /// The options are refused.
    pub fn open(arena: &Arc<Arena>, medium: Medium, options: &LogOptions, random: Random) -> Result<Rig, Violation> {
        Rig::of(LogPart::open(arena, medium.len(), options), medium, random)
    }

    /// Looks at what is there.
    ///
    /// # Errors
    /// The options are refused.
    pub fn look(arena: &Arc<Arena>, medium: Medium, options: &LogOptions, random: Random) -> Result<Rig, Violation> {
        let mut rig = Rig::of(LogPart::look(arena, medium.len(), options), medium, random)?;
        rig.only_looks = true;
        Ok(rig)
    }

    /// The kernel's page cache lies between the log and its device.
    pub fn goes_through_a_cache(&mut self) {
        self.part.goes_through_a_cache();
    }

    /// Notes what was told.
    pub fn tell(&mut self, told: Told) {
        if self.is_on_record {
            self.record.push(Event::Told(told));
        }
    }

    /// So many groups are there, and were read.
    pub fn served(&mut self, recovered: Recovered, groups: usize) {
        self.is_served = true;
        self.tell(Told::Opened { recovered, groups });
    }

    /// Takes what the log wants of the device.
    pub fn pump(&mut self) {
        while let Some((id, kind, memory)) = self.part.next_io() {
            let number = self.writes;
            if let (LogIoKind::Write { offset, len }, Some(buffer)) = (kind, written(&memory)) {
                self.writes += 1;
                if self.is_on_record {
                    let bytes = Arc::from(&buffer[..len as usize]);
                    self.record.push(Event::Begun(number, Write { offset, bytes }));
                }
            }
            self.waiting.push(Waiting {
                id,
                kind,
                memory,
                number,
            });
        }
    }

    /// One I/O ends, any of those on their way; of reads only if told. False: there is none.
    ///
    /// # Errors
    /// What was told is wrong.
    pub fn end_one(&mut self, reads_only: bool) -> Result<bool, Violation> {
        self.pump();
        let mut fits: Vec<usize> = (0..self.waiting.len()).collect();
        fits.retain(|&at| !reads_only || matches!(self.waiting[at].kind, LogIoKind::Read { .. }));
        let Some(&at) = self.random.pick(&fits) else {
            return Ok(false);
        };
        let Waiting {
            id,
            kind,
            mut memory,
            number,
        } = self.waiting.swap_remove(at);
        let result = match (kind, &mut memory) {
            (LogIoKind::Read { offset, len }, Memory::Own(buffer)) => {
                if !self.medium.can_read(offset, u64::from(len)) || self.misreads() {
                    Err(Errno::EIO)
                } else {
                    self.medium.read(offset, &mut buffer[..len as usize]);
                    Ok(len)
                }
            }
            (LogIoKind::Write { offset, len }, Memory::Own(_) | Memory::Shared(_)) => {
                let buffer = written(&memory).unwrap_or_default();
                let fails = self.fails_in == Some(0);
                self.fails_in = self.fails_in.map(|left| left.saturating_sub(1));
                if fails {
                    self.has_failed = true;
                    self.fails_in = None;
                    if self.random.percent(30) {
                        let short = len / 2 / 512 * 512;
                        self.medium.write(offset, &buffer[..short as usize]);
                        self.note(Event::Short(number, short as usize));
                        Ok(short)
                    } else {
                        // As much of it as the device likes: the next process finds that.
                        self.note(Event::Failed(number));
                        Err(Errno::EIO)
                    }
                } else {
                    self.medium.write(offset, &buffer[..len as usize]);
                    self.note(Event::Ended(number));
                    Ok(len)
                }
            }
            (LogIoKind::Sync, _) if self.fails_in == Some(0) => {
                (self.has_failed, self.fails_in) = (true, None);
                Err(Errno::EIO)
            }
            (LogIoKind::Sync, _) => {
                self.fails_in = self.fails_in.map(|left| left - 1);
                self.medium.sync();
                self.note(Event::Synced);
                Ok(0)
            }
            (kind, _) => {
                return Err(Violation::new(
                    Kind::Failed,
                    format!("{kind:?}, in an area that has its size"),
                ));
            }
        };
        self.part.io_ended(id, result, memory);
        self.pump();
        self.hear()?;
        Ok(true)
    }

    /// Does the device fail to read now?
    fn misreads(&mut self) -> bool {
        let fails = self.misread_percent > 0 && self.random.percent(self.misread_percent);
        self.has_misread |= fails;
        fails
    }

    fn note(&mut self, event: Event) {
        if self.is_on_record {
            self.record.push(event);
        }
    }

    /// Everything on its way ends.
    ///
    /// # Errors
    /// What was told is wrong.
    pub fn drain(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS_MAX {
            if !self.end_one(false)? {
                return Ok(());
            }
        }
        Err(Violation::new(Kind::Failed, "it never ends"))
    }

    /// What the log tells now.
    ///
    /// # Errors
    /// It is wrong.
    pub fn hear(&mut self) -> Result<(), Violation> {
        let durable = self.appender.durable_lsn().0;
        if durable < self.durable {
            let story = format!("the durable LSN went from {} to {durable}", self.durable);
            return Err(Violation::new(Kind::Order, story));
        }
        if durable > self.durable {
            self.durable = durable;
            if self.is_served {
                self.tell(Told::Durable(durable));
            }
        }
        let mut fired = Vec::new();
        self.part.take_fired(&mut fired);
        for one in fired {
            one.fire();
        }
        let acks = std::mem::take(&mut *self.acks.lock().unwrap_or_else(PoisonError::into_inner));
        for (lsn, result) in acks {
            let is_right = match &result {
                Ok(()) => lsn < durable,
                Err(LogError::Failed { lsn: from, .. }) => lsn >= from.0 && lsn >= durable,
                Err(_) => lsn >= durable,
            };
            if !is_right {
                let story = format!("LSN {lsn} was told {result:?}, and durable is {durable}");
                return Err(Violation::new(Kind::Failed, story));
            }
        }
        while let Some(done) = self.part.next_done() {
            match (&done.result, done.owner & !(TRUNCATES - 1)) {
                (Ok(LogAnswer::Head(head)), TRUNCATES) => self.tell(Told::Head(head.0)),
                (Ok(LogAnswer::Done), CLOSES) => self.tell(Told::Closed),
                _ => {}
            }
            self.answers.push((done.owner, done.result));
        }
        Ok(())
    }

    fn start(&mut self, class: u64, request: LogRequest) -> Result<u64, Violation> {
        self.owner += 1;
        let owner = class | self.owner;
        self.part.start(owner, request);
        self.pump();
        self.hear()?;
        Ok(owner)
    }

    /// Asks for batches, and waits for nothing.
    ///
    /// # Errors
    /// A broken promise.
    pub fn begin_read(&mut self, from: Lsn) -> Result<u64, Violation> {
        self.start(0, LogRequest::Read { from })
    }

    /// Holds records.
    pub fn retain(&mut self, from: u64) -> Retained {
        self.appender.retain(Lsn(from))
    }

    /// How it ended, if it has.
    pub fn answer(&mut self, owner: u64) -> Option<Answer> {
        let at = self.answers.iter().position(|(of, _)| *of == owner)?;
        Some(self.answers.swap_remove(at).1)
    }

    fn wait_for(&mut self, owner: u64, reads_only: bool) -> Result<Answer, Violation> {
        for _ in 0..STEPS_MAX {
            if let Some(answer) = self.answer(owner) {
                return Ok(answer);
            }
            if !self.end_one(reads_only)? {
                break;
            }
        }
        Err(Violation::new(Kind::Failed, format!("request {owner} never ends")))
    }

    /// What the opening found.
    ///
    /// # Errors
    /// A broken promise; inside, why it could not be opened.
    pub fn opened(&mut self) -> Result<Result<Recovered, LogError>, Violation> {
        let owner = self.start(0, LogRequest::Open)?;
        match self.wait_for(owner, false)? {
            Ok(LogAnswer::Opened(recovered)) => {
                if self.appender.durable_lsn() < recovered.next && !self.only_looks {
                    return Err(Violation::new(Kind::Failed, "opened, and durable is behind"));
                }
                Ok(Ok(recovered))
            }
            Ok(other) => Err(Violation::new(Kind::Failed, format!("an opening gave {other:?}"))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// All records from this LSN on that are durable.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self, from: Lsn) -> Result<Vec<Seen>, Violation> {
        let mut reader = RecordReader::new(from);
        let mut seen = Vec::new();
        for _ in 0..STEPS_MAX {
            let from = reader.next_batch();
            let owner = self.start(0, LogRequest::Read { from })?;
            let answer = self.wait_for(owner, true)?;
            let batches = match answer {
                Ok(LogAnswer::Batches(Some(batches))) if !batches.ranges().is_empty() => batches,
                Ok(LogAnswer::Batches(_)) => return Ok(seen),
                // The same again.
                Err(LogError::Read { .. }) if self.misread_percent > 0 => continue,
                other => return Err(Violation::new(Kind::Lost, format!("a read from {from} gave {other:?}"))),
            };
            model::see(&mut reader, &batches, from, &mut seen)?;
        }
        Err(Violation::new(Kind::Failed, "reading never ends"))
    }

    /// Appends records with numbers from there on.
    ///
    /// # Errors
    /// A broken promise; inside, why it was refused.
    pub fn append(&mut self, first: u64, lens: &[u32], above: u64) -> Result<Result<u64, LogError>, Violation> {
        let records: Vec<Vec<u8>> = lens
            .iter()
            .zip(first..)
            .map(|(&len, number)| {
                let mut bytes = vec![0; len as usize];
                model::fill(number, &mut bytes);
                bytes
            })
            .collect();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let lsn = match self.appender.append_all(&records) {
            Ok(lsn) => lsn.0,
            Err(error) => return Ok(Err(error)),
        };
        if lsn <= above || lsn % 8 != 0 || lsn < self.durable {
            let story = format!("LSN {lsn} after {above}, durable {}", self.durable);
            return Err(Violation::new(Kind::Order, story));
        }
        self.tell(Told::Given(Group {
            first,
            lens: lens.to_vec(),
            lsn,
        }));
        if self.random.percent(30) {
            let acks = Arc::clone(&self.acks);
            let callback = Box::new(move |result| {
                acks.lock().unwrap_or_else(PoisonError::into_inner).push((lsn, result));
            });
            self.appender.when_durable(Lsn(lsn), callback);
        }
        self.hear()?;
        Ok(Ok(lsn))
    }

    /// Asks to give up what is below.
    ///
    /// # Errors
    /// A broken promise.
    pub fn truncate(&mut self, to: u64) -> Result<(), Violation> {
        self.tell(Told::TruncateAsked(to));
        self.start(TRUNCATES, LogRequest::Truncate { to: Lsn(to) }).map(|_| ())
    }

    /// Asks for a larger log.
    ///
    /// # Errors
    /// A broken promise.
    pub fn grow(&mut self, size_bytes: u64) -> Result<(), Violation> {
        self.start(0, LogRequest::Grow { size_bytes }).map(|_| ())
    }

    /// Asks for a note of how far it is durable.
    ///
    /// # Errors
    /// A broken promise.
    pub fn note_watermark(&mut self) -> Result<(), Violation> {
        self.start(0, LogRequest::NoteWatermark).map(|_| ())
    }

    /// Asks for a close.
    ///
    /// # Errors
    /// A broken promise.
    pub fn close(&mut self) -> Result<(), Violation> {
        self.tell(Told::CloseAsked);
        self.start(CLOSES, LogRequest::Close).map(|_| ())
    }

    /// Time passes.
    ///
    /// # Errors
    /// A broken promise.
    pub fn pass(&mut self, time: Duration) -> Result<(), Violation> {
        self.now += time.as_nanos() as u64;
        self.part.tick(Time(self.now));
        self.pump();
        self.hear()
    }

    /// The durable LSN.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Bytes of the area, as the log sees it.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.part.usage().size_bytes
    }

    /// The oldest LSN that is kept.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.appender.head_lsn()
    }
}

/// The bytes of a write: a batch, a header, or zeroes that several writes share.
fn written(memory: &Memory) -> Option<&[u8]> {
    match memory {
        Memory::Own(buffer) => Some(buffer),
        Memory::Shared(frozen) => Some(frozen),
        _ => None,
    }
}
