//! The logs of a core: what they want of their devices, and what is asked of them.
//!
//! A log does no I/O ([`crate::log`]): here its reads and writes become direct requests like any caller's, on a handle of the
//! log's own, so that moves, holds and freezes treat them as such. Entries of the table and slots of the engine are kept for them: a
//! table full of callers who wait for a log cannot stop it.
//!
//! Records do not come this way: they are appended to the log's memory on any thread, by its [`Appender`]. A turn seals what was
//! appended until it submits, as one batch, and so everything that comes while a device works goes out together. An append wakes the
//! driver only if he sleeps, and may do something about it.
//!
//! | file | what it does |
//! |---|---|
//! | `logs.rs` | asking, closing; a log's turn |
//! | `opening.rs` | where a log may be, and how it begins |
//! | `io.rs` | their reads and writes; nobody else writes there |
//! | `claims.rs` | a segment for a log that a caller keeps itself, elsewhere |
//! | `gates.rs` | pages of the cache wait for their log |
//! | `held.rs`, `id.rs` | an open log, held on any thread; its name |

mod claims;
mod gates;
mod held;
mod id;
mod io;
mod opening;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake, Waker};

use baio_engine::{Doorbell, Memory, Time};

use self::gates::LogGate;
pub use self::held::HeldLog;
pub use self::id::LogId;
use crate::cache::GateId;
use crate::core::Core;
use crate::core::counters::LogCounters;
use crate::core::lane::Lane;
use crate::error::{Error, Fault, Result};
use crate::log::{
    Appender, Fired, LogAnswer, LogDone, LogError, LogOptions, LogPart, LogRequest, LogStart, LogUsage, Salt,
    WhenDurable,
};
use crate::request::{Handle, LogIo};
use crate::slot_map::{SlotKey, SlotMap};

/// Entries of the table that are kept for each open log, beside one for each batch in flight: header copies, reads.
const ENTRIES: u32 = 6;

/// Who asked for what nobody waits for.
const NOBODY: u64 = u64::MAX;

/// Names what was asked of a log, until its answer was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct LogQuestion(SlotKey);

/// What was asked of a log and has ended.
#[derive(Debug)]
pub enum LogReply {
    /// It is open, and this is what was found.
    Opened(HeldLog, LogAnswer),
    /// It is done.
    Done(LogAnswer),
}

#[derive(Debug)]
struct OpenLog {
    part: LogPart,
    /// The core's own.
    handle: Handle,
    /// By which it was opened: with that it closes.
    by: Handle,
    /// What the table or the engine had no room for.
    delayed: VecDeque<(LogIo, Memory)>,
    entries: u32,
    is_closing: bool,
    /// When pages wait for it.
    gate: Option<LogGate>,
    /// It has claimed a segment; when the table has heard of that, it is opened for whoever asked this.
    opens_for: Option<SlotKey>,
}

/// Somebody asked something.
#[derive(Debug)]
struct Asked {
    log: SlotKey,
    what: &'static str,
    /// Its answer is the open log.
    opens: bool,
    answer: Option<Result<LogAnswer>>,
    waker: Option<Waker>,
    left_alone: bool,
}

/// The logs of a core.
#[derive(Debug)]
pub(crate) struct Logs {
    open: SlotMap<OpenLog>,
    count: usize,
    asked: SlotMap<Asked>,
    /// Of those, so many have no answer.
    unanswered: usize,
    /// Entries kept in the table, and how many of them open logs count on.
    kept: u32,
    used: u32,
    doorbell: Doorbell,
    /// Gates of logs that were closed, while something is under them.
    gates_left: Vec<GateId>,
    /// Kept for the next turn.
    fired: Vec<Fired>,
    /// An I/O has ended, so there may be more to be asked of the device.
    is_told: bool,
    /// Why a caller may not have a log of its own.
    refused: Option<Fault>,
}

impl Logs {
    pub(in crate::core) fn new(doorbell: Doorbell) -> Logs {
        Logs {
            open: SlotMap::default(),
            count: 0,
            asked: SlotMap::default(),
            unanswered: 0,
            kept: 0,
            used: 0,
            doorbell,
            gates_left: Vec::new(),
            fired: Vec::new(),
            is_told: false,
            refused: None,
        }
    }

    /// Is any open?
    #[inline]
    pub(in crate::core) fn any(&self) -> bool {
        self.count > 0
    }

    /// Questions without an answer; and whether a log has something for its device, now or soon.
    pub(in crate::core) fn under_way(&self) -> usize {
        match self.any() {
            true => self.unanswered + usize::from(self.want_io() || self.gathers()),
            false => 0,
        }
    }

    /// Would a turn have something to submit?
    pub(in crate::core) fn want_io(&self) -> bool {
        // What the engine has no room for now comes again with the end of something else.
        let wants = |log: &OpenLog| log.delayed.is_empty() && log.part.wants_io();
        self.any() && (self.is_told || self.open.iter().any(|(_, log)| wants(log)))
    }

    fn gathers(&self) -> bool {
        self.open.iter().any(|(_, log)| log.part.is_gathering())
    }

    /// When one of them has something to do that no end and no append tells.
    pub(in crate::core) fn next_tick(&self) -> Option<Time> {
        self.open.iter().filter_map(|(_, log)| log.part.next_tick()).min()
    }

    /// The driver is awake: appends ring no more.
    pub(in crate::core) fn wake_up(&mut self) {
        self.open.values_mut().for_each(|log| log.part.set_driver_awake(true));
    }

    /// The driver is about to sleep: appends ring from now on. False: something was appended meanwhile.
    pub(in crate::core) fn fall_asleep(&mut self) -> bool {
        self.open.values_mut().for_each(|log| log.part.set_driver_awake(false));
        !self.want_io()
    }
}

impl Core {
    /// Begins to make a log in all of a segment or file, whose bytes are lost. It is empty then, and open.
    ///
    /// # Errors
    /// A log is open there, by this core or, in a plain file, by another, or a write is under way or a page pinned there; the handle is for reading,
    /// or stale; the log cannot be so small. What the device says is told by the answer.
    pub fn begin_create_log(&mut self, handle: Handle, options: &LogOptions) -> Result<LogQuestion> {
        self.begin_log(handle, LogStart::Create, options)
    }

    /// Begins to open the log in a segment or file: it is recovered, and its epoch raised, before the answer.
    ///
    /// # Errors
    /// As [`Core::begin_create_log`]; what is found is told by the answer.
    pub fn begin_open_log(&mut self, handle: Handle, options: &LogOptions) -> Result<LogQuestion> {
        self.begin_log(handle, LogStart::Open, options)
    }

    /// Begins to open the log in a segment or file, to make one there, or to make one where none was ever made.
    ///
    /// # Errors
    /// As [`Core::begin_create_log`]; what is found is told by the answer.
    pub fn begin_log(&mut self, handle: Handle, start: LogStart, options: &LogOptions) -> Result<LogQuestion> {
        let what = start.name();
        let options = self.lane.free_for_log(what, handle, options)?;
        let (mut uuid, mut salt) = ([0; 16], Salt([0; 16]));
        if start != LogStart::Open {
            for bytes in [&mut uuid, &mut salt.0] {
                let drawn = self.lane.engine.random(bytes);
                drawn.map_err(|errno| Error::new(what, self.lane.name_of(handle), errno))?;
            }
        }
        let LogQuestion(question) = self.lane.begin_to_open(what, handle, &options, |core, size_bytes| {
            LogPart::begin_as(core.engine.arena(), start, size_bytes, (uuid, salt), &options)
        })?;
        self.pass_on();
        // What was refused at once needs no question.
        let asked = self.lane.logs.asked.get(question);
        if asked.is_some_and(|asked| matches!(asked.answer, Some(Err(_)))) {
            let answer = self.lane.take_log_answer(question);
            answer.map_or(Ok(()), |answer| answer.map(drop))?;
        }
        Ok(LogQuestion(question))
    }

    /// Begins something on an open log; not [`LogRequest::Open`], which opening has begun.
    ///
    /// # Errors
    /// The log is closed, or on its way.
    pub fn begin_on_log(&mut self, log: LogId, request: LogRequest) -> Result<LogQuestion> {
        let what = log_request_name(&request);
        let found = self
            .lane
            .log_key(log)
            .and_then(|key| Some((key, self.lane.logs.open.get(key)?)));
        let Some((key, open)) = found.filter(|(_, log)| !log.is_closing) else {
            return Err(Error::new(what, "a closed log", Fault::Stale));
        };
        if let LogRequest::Grow { size_bytes } = request {
            let has = self.lane.size(open.handle)?;
            if has < size_bytes {
                let fault = Fault::BadSize(format!("the log is to have {size_bytes} bytes, there are {has}"));
                return Err(Error::new(what, self.lane.name_of(open.handle), fault));
            }
        }
        Ok(self.lane.ask_log(key, what, request, false))
    }

    /// The answer to a question, if there is one; else remembers whom to wake. `None` for a question that was answered before.
    pub fn poll_log(&mut self, question: &LogQuestion, waker: Option<Waker>) -> Poll<Option<Result<LogReply>>> {
        let &LogQuestion(key) = question;
        match self.lane.logs.asked.get_mut(key) {
            Some(asked) if asked.answer.is_none() => {
                if waker.is_some() {
                    let old = std::mem::replace(&mut asked.waker, waker);
                    self.lane.displaced.extend(old);
                }
                Poll::Pending
            }
            _ => {
                self.lane.displaced.extend(waker);
                Poll::Ready(self.lane.take_log_answer(key))
            }
        }
    }

    /// Nobody will take the answer. What was asked may happen all the same; a log that it would have given is closed.
    pub fn abandon_log(&mut self, question: LogQuestion) {
        let LogQuestion(key) = question;
        if let Some(asked) = self.lane.logs.asked.get_mut(key) {
            asked.left_alone = true;
            self.lane.displaced.extend(asked.waker.take());
            if asked.answer.is_some() {
                drop(self.lane.take_log_answer(key)); // Dropping an open log closes it.
            }
        }
    }

    /// Turns the core until a question is answered.
    ///
    /// # Errors
    /// As the answer; and that the core cannot be turned.
    pub fn wait_log(&mut self, question: &LogQuestion) -> Result<LogReply> {
        loop {
            if let Poll::Ready(answer) = self.poll_log(question, None) {
                self.lane.note_what_waits();
                return answer.unwrap_or_else(|| Err(Error::new("ask", "a log", Fault::Stale)));
            }
            self.turn(baio_engine::Wait::one())?;
        }
    }

    /// How an open log stands.
    #[must_use]
    pub fn log_usage(&self, log: LogId) -> Option<LogUsage> {
        Some(self.lane.logs.open.get(self.lane.log_key(log)?)?.part.usage())
    }

    /// Begins to wind a log down: batches in flight end, and the watermark is written. Whoever waits for what was not durable is told.
    pub fn end_log(&mut self, log: LogId) {
        self.lane.end_log(log);
    }
}

impl Lane {
    /// Of each log that has been opened and not closed.
    pub(in crate::core) fn log_counters(&self) -> Vec<LogCounters> {
        let logs = self.logs.open.iter().map(|(_, log)| LogCounters {
            name: self.name_of(log.handle),
            usage: log.part.usage(),
            failed: log.part.has_failed(),
        });
        logs.filter(|log| log.usage.epoch > 0).collect()
    }

    pub(in crate::core) fn end_log(&mut self, log: LogId) {
        if let Some(key) = self.log_key(log) {
            self.wind_down_log(key);
        }
    }

    fn wind_down_log(&mut self, key: SlotKey) {
        if let Some(open) = self.logs.open.get_mut(key).filter(|log| !log.is_closing) {
            open.is_closing = true;
            self.ask_log(key, CLOSE, LogRequest::Close, true);
        }
    }

    /// Begins to wind down every log.
    pub(in crate::core) fn end_logs(&mut self) {
        for index in self.logs.open.indices() {
            if let Some(key) = self.logs.open.key_at(index) {
                self.wind_down_log(key);
            }
        }
    }

    /// Winds down the logs that were opened by a handle, which is being closed.
    pub(in crate::core) fn end_logs_by(&mut self, handle: Handle) {
        if !self.logs.any() {
            return;
        }
        for index in self.logs.open.indices() {
            let key = self.logs.open.key_at(index);
            if let Some(key) = key.filter(|key| self.logs.open.get(*key).is_some_and(|log| log.by == handle)) {
                self.wind_down_log(key);
            }
        }
    }

    /// Which of ours, if it is.
    fn log_key(&self, log: LogId) -> Option<SlotKey> {
        (log.core == self.number()).then_some(log.key)
    }

    fn ask_log(&mut self, log: SlotKey, what: &'static str, request: LogRequest, alone: bool) -> LogQuestion {
        let question = self.note_question(log, what, alone);
        self.start_log(log, question, request);
        LogQuestion(question)
    }

    fn note_question(&mut self, log: SlotKey, what: &'static str, alone: bool) -> SlotKey {
        self.logs.unanswered += 1;
        self.logs.asked.insert(Asked {
            log,
            what,
            opens: false,
            answer: None,
            waker: None,
            left_alone: alone,
        })
    }

    fn start_log(&mut self, log: SlotKey, question: SlotKey, request: LogRequest) {
        self.logs.is_told = true;
        if let Some(open) = self.logs.open.get_mut(log) {
            open.is_closing |= matches!(request, LogRequest::Close);
            open.part.start(owner_of(question), request);
        }
        self.take_log_ends(log);
    }

    fn take_log_answer(&mut self, key: SlotKey) -> Option<Result<LogReply>> {
        let asked = self.logs.asked.remove(key)?;
        let answer = asked.answer?;
        if !asked.opens {
            return Some(answer.map(LogReply::Done));
        }
        Some(answer.and_then(|found| match self.hold_log(asked.log) {
            Some(held) => Ok(LogReply::Opened(held, found)),
            None => Err(Error::new(asked.what, "a log that was closed meanwhile", Fault::Stale)),
        }))
    }

    /// Has the log wound down when this is dropped, on whatever thread.
    fn hold_log(&self, key: SlotKey) -> Option<HeldLog> {
        let open = self.logs.open.get(key)?;
        let core = self.number();
        let log = LogId { core, key };
        let appender: Appender = open.part.appender();
        let name = self.name_of(open.handle);
        Some(HeldLog::new(log, appender, name, Arc::clone(&self.returns)))
    }

    /// Wakes all who wait for a log, and for its answers: nobody turns the core any more.
    pub(in crate::core) fn take_log_wakers(&mut self, into: &mut Vec<Waker>) {
        for log in self.logs.open.values_mut() {
            log.part.stir();
            take_fired(&mut log.part, &mut self.logs.fired, into);
        }
        into.extend(self.logs.asked.values_mut().filter_map(|asked| asked.waker.take()));
    }

    /// Seals what was appended, and starts what the logs want. Has anybody been told of an end?
    pub(in crate::core) fn turn_logs(&mut self) -> bool {
        if !self.logs.any() {
            return false;
        }
        self.logs.is_told = false;
        let told = self.fired.len();
        let unanswered = self.logs.unanswered;
        let now = self.engine.now();
        for index in self.logs.open.indices() {
            let Some(key) = self.logs.open.key_at(index) else {
                continue;
            };
            if let Some(log) = self.logs.open.get_mut(key) {
                log.part.tick(now);
            }
            self.start_log_ios(key);
            self.take_log_ends(key);
        }
        self.fired.len() > told || self.logs.unanswered < unanswered
    }

    /// Takes what has ended in the logs. Nothing is sealed: who is woken by it may append before the next turn submits.
    pub(in crate::core) fn end_log_turn(&mut self) {
        if self.logs.any() {
            for index in self.logs.open.indices() {
                if let Some(key) = self.logs.open.key_at(index) {
                    self.take_log_ends(key);
                }
            }
        }
    }

    fn take_log_ends(&mut self, key: SlotKey) {
        self.tell_gate(key);
        while let Some(log) = self.logs.open.get_mut(key) {
            take_fired(&mut log.part, &mut self.logs.fired, &mut self.fired);
            match log.part.next_done() {
                Some(done) => self.log_done(key, done),
                None => return,
            }
        }
    }

    fn log_done(&mut self, key: SlotKey, done: LogDone) {
        let Some(handle) = self.logs.open.get(key).map(|log| log.handle) else {
            return;
        };
        let question = key_of(done.owner);
        let Some(asked) = self.logs.asked.get(question).filter(|_| done.owner != NOBODY) else {
            return;
        };
        let object = self.objects.get(handle);
        let name = object.map_or("a closed handle", |object| &object.name);
        let answer = done.result.map_err(|error| Error::of_log(asked.what, name, error));
        self.log_answered(question, answer);
    }

    fn log_answered(&mut self, question: SlotKey, answer: Result<LogAnswer>) {
        let Some(asked) = self.logs.asked.get_mut(question) else {
            return;
        };
        let (key, left_alone) = (asked.log, asked.left_alone);
        let is_over = asked.what == CLOSE || asked.opens && answer.is_err();
        self.fired.extend(asked.waker.take());
        asked.answer = Some(answer);
        self.logs.unanswered -= 1;
        if is_over {
            self.log_over(key);
        }
        if left_alone {
            drop(self.take_log_answer(question));
        }
    }

    /// Nothing of a log is under way any more.
    fn log_over(&mut self, key: SlotKey) {
        let Some(mut log) = self.logs.open.remove(key) else {
            return;
        };
        take_fired(&mut log.part, &mut self.logs.fired, &mut self.fired);
        self.end_gate(log.gate.take());
        self.logs.count -= 1;
        self.logs.used -= log.entries;
        self.end_log_questions(key, &log);
        self.objects.set_log(log.handle, false);
        self.file(log.handle).inspect(|file| file.unlock());
        self.close_handle(log.handle);
    }

    /// Whoever has asked it something is answered: a read may be at the device still, and a log that could not be opened may have been
    /// asked to close.
    fn end_log_questions(&mut self, key: SlotKey, log: &OpenLog) {
        for index in self.logs.asked.indices() {
            let Some(question) = self.logs.asked.key_at(index) else {
                continue;
            };
            let asked = self.logs.asked.get_mut(question);
            let Some(asked) = asked.filter(|asked| asked.log == key && asked.answer.is_none()) else {
                continue;
            };
            let name = self
                .objects
                .get(log.handle)
                .map_or("a closed handle", |object| &object.name);
            asked.answer = Some(Err(Error::of_log(asked.what, name, LogError::Closed)));
            self.fired.extend(asked.waker.take());
            self.logs.unanswered -= 1;
            if asked.left_alone {
                self.logs.asked.remove(question);
            }
        }
    }
}

/// Callbacks go out as wakers do: to be called when nothing is borrowed.
fn take_fired(part: &mut LogPart, spare: &mut Vec<Fired>, into: &mut Vec<Waker>) {
    part.take_fired(spare);
    into.extend(spare.drain(..).map(|fired| match fired {
        Fired::Wake(waker) => waker,
        Fired::Call(callback, result) => Waker::from(Arc::new(Callback(Mutex::new(Some((callback, result)))))),
    }));
}

/// Somebody's callback, and what it is told.
struct Callback(Mutex<Option<(WhenDurable, std::result::Result<(), LogError>)>>);

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((callback, result)) = call {
            callback(result);
        }
    }
}

const CLOSE: &str = "close";

/// What is being done to a log, for messages.
#[must_use]
pub fn log_request_name(request: &LogRequest) -> &'static str {
    match request {
        LogRequest::Open => "open",
        LogRequest::Truncate { .. } => "truncate",
        LogRequest::Read { .. } => "read",
        LogRequest::Grow { .. } => "grow",
        LogRequest::NoteWatermark => "note the watermark of",
        LogRequest::Close => CLOSE,
    }
}

fn owner_of(key: SlotKey) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

fn key_of(owner: u64) -> SlotKey {
    SlotKey {
        index: owner as u32,
        generation: (owner >> 32) as u32,
    }
}
