//! One log in a segment of a broker: its batches become requests of the link, on the handle of its claim.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};

use baio_broker::control::Reply;
use baio_client::{Ended, Places, WaitPlace};
use baio_engine::{Caching, Durability, Memory, Time};
use baio_storage::log::{Fired, LogAnswer, LogDone, LogError, LogIoId, LogIoKind, LogPart, LogRequest, LogUsage};
use baio_storage::{
    Answer, Command, Error, Fault, Handle, HeldLog, LogId, Result, SegmentOp, SegmentRequest, Ticket, log_request_name,
};
use baio_words::{Errno, RequestFault};

use super::super::carried::{Client, arena_of};
use super::call::{Answerer, Call};
use super::desk::{Desk, Order};

/// Copies of what is shared that are under way at once: each takes as much of the arena.
const COPIES_MAX: usize = 2;

/// One log.
pub(super) struct Kept {
    pub(super) id: LogId,
    name: String,
    /// Of its claim.
    handle: Handle,
    part: Option<LogPart>,
    desk: Arc<Desk>,
    /// At the broker.
    ios: Vec<(Ticket, LogIoId)>,
    /// For these there was no place.
    delayed: VecDeque<(LogIoId, LogIoKind, Memory)>,
    /// Where it waits for one.
    place: Option<WaitPlace>,
    asked: HashMap<u64, Asked>,
    last: u64,
    /// Growths, until the size of the segment is known.
    sizes: Vec<Growing>,
    stage: Stage,
}

/// Something under way. With nobody to be answered, the log asks for itself.
struct Asked {
    request: LogRequest,
    answer: Option<Answerer>,
}

struct Growing {
    call: Call,
    size_bytes: u64,
    answer: Answerer,
}

/// Where a log stands.
enum Stage {
    /// It is opened, or open.
    Serves,
    /// Its last request is under way.
    Closes,
    /// What is told when the segment is free again; who has asked for it.
    Releases(Call, Vec<(Answerer, Result<Reply>)>),
    Over,
}

impl Kept {
    /// Opens a log on a segment that is claimed for it. On failure it releases the segment, and says why.
    pub(super) fn new(
        id: LogId,
        handle: Handle,
        part: Result<LogPart>,
        answer: Answerer,
        desk: &Arc<Desk>,
        waker: &Waker,
    ) -> Kept {
        let mut kept = Kept {
            id,
            name: answer.name.clone(),
            handle,
            part: None,
            desk: Arc::clone(desk),
            ios: Vec::new(),
            delayed: VecDeque::new(),
            place: None,
            asked: HashMap::new(),
            last: 0,
            sizes: Vec::new(),
            stage: Stage::Serves,
        };
        match part {
            Ok(part) => {
                kept.part = Some(part);
                kept.set_bell(waker);
                kept.start(LogRequest::Open, Some(answer));
            }
            Err(error) => kept.release(Some((answer, Err(error)))),
        }
        kept
    }

    pub(super) fn is_closing(&self) -> bool {
        !matches!(self.stage, Stage::Serves)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    pub(super) fn usage(&self) -> Option<LogUsage> {
        self.part.as_ref().map(LogPart::usage)
    }

    pub(super) fn set_bell(&self, waker: &Waker) {
        if let Some(part) = &self.part {
            part.appender().set_bell(waker.clone());
        }
    }

    pub(super) fn set_driver_awake(&mut self, is_awake: bool) {
        if let Some(part) = &mut self.part {
            part.set_driver_awake(is_awake);
        }
    }

    /// Would a turn have something to send? What has no place waits for one.
    pub(super) fn wants_io(&self) -> bool {
        self.delayed.is_empty() && self.part.as_ref().is_some_and(LogPart::wants_io)
    }

    /// When it has something to do that no end and no append tells.
    pub(super) fn next_tick(&self) -> Option<Time> {
        // The clock brings no place: what is due waits behind what waits for one.
        self.part.as_ref().filter(|_| self.delayed.is_empty())?.next_tick()
    }

    /// Asks it something; it is not closing.
    pub(super) fn ask(&mut self, request: LogRequest, answer: Answerer) {
        match request {
            LogRequest::Grow { size_bytes } => self.sizes.push(Growing {
                call: Call::new(Command::Size { handle: self.handle }),
                size_bytes,
                answer,
            }),
            _ => self.start(request, Some(answer)),
        }
    }

    fn start(&mut self, request: LogRequest, answer: Option<Answerer>) {
        self.last = self.last.wrapping_add(1);
        if let Some(part) = &mut self.part {
            part.start(self.last, request);
            self.asked.insert(self.last, Asked { request, answer });
        }
        if matches!(request, LogRequest::Close) {
            self.stage = Stage::Closes;
        }
    }

    /// Nobody holds it, or the link is closed.
    pub(super) fn wind_down(&mut self) {
        if !self.is_closing() {
            self.start(LogRequest::Close, None);
        }
    }

    /// Takes what has ended, starts what it wants in places of these, answers.
    pub(super) fn turn(&mut self, client: &Arc<Client>, places: Places, waker: &Waker, fired: &mut Vec<Fired>) {
        self.take_ends(client, waker);
        self.take_sizes(client, places, waker);
        if let Some(part) = &mut self.part {
            part.tick(Time::monotonic());
        }
        self.start_ios(client, places, waker);
        while let Some(done) = self.part.as_mut().and_then(LogPart::next_done) {
            self.done(done);
        }
        if let Some(part) = &mut self.part {
            part.take_fired(fired);
        }
        self.go_on_releasing(client, places, waker);
    }

    fn take_ends(&mut self, client: &Arc<Client>, waker: &Waker) {
        let Some(part) = &mut self.part else { return };
        self.ios.retain(|(ticket, id)| match client.poll(*ticket, waker) {
            Poll::Pending => true,
            Poll::Ready(Some(Ended::Request(ended))) => {
                // Whatever became of it: its broker has ended, and no device has failed.
                let has_ended = client.refusal() == Some(RequestFault::ServiceEnded);
                let errno = |fault: RequestFault| if has_ended { Errno::EPIPE } else { fault.errno() };
                let result = ended.result.map_err(|error| errno(error.fault));
                if ended.took != Caching::Direct {
                    part.goes_through_a_cache(); // The volume's file has no direct I/O.
                }
                // One that the kernel may still have comes without its memory, which is never lent again.
                part.io_ended(*id, result, ended.memory);
                false
            }
            Poll::Ready(_) => {
                part.io_ended(*id, Err(Errno::EPIPE), Memory::None);
                false
            }
        });
    }

    /// A segment that is shorter than the log is to be says so.
    fn take_sizes(&mut self, client: &Arc<Client>, places: Places, waker: &Waker) {
        let mut at = 0;
        while let Some(growing) = self.sizes.get_mut(at) {
            let Poll::Ready(size) = growing.call.poll(client, places, waker) else {
                at = at.saturating_add(1);
                continue;
            };
            let Growing { size_bytes, answer, .. } = self.sizes.swap_remove(at);
            match size {
                _ if self.is_closing() => answer.fail(Fault::Stale),
                Ok(Reply::Answer(Answer::Count { value: has })) if has >= size_bytes => {
                    self.start(LogRequest::Grow { size_bytes }, Some(answer));
                }
                Ok(Reply::Answer(Answer::Count { value: has })) => {
                    let why = format!("the log is to have {size_bytes} bytes, there are {has}");
                    answer.fail(Fault::BadSize(why));
                }
                Ok(_) => answer.fail(Fault::ServiceEnded),
                Err(error) => answer.fail(error.into_fault()),
            }
        }
    }

    fn start_ios(&mut self, client: &Arc<Client>, places: Places, waker: &Waker) {
        let Some(part) = &mut self.part else { return };
        while let Some((id, kind, memory)) = self.delayed.pop_front().or_else(|| part.next_io()) {
            let (op, durability) = match kind {
                LogIoKind::Read { offset, .. } => (SegmentOp::Read { offset }, Durability::None),
                LogIoKind::Write { offset, .. } => (SegmentOp::Write { offset }, Durability::Data),
                LogIoKind::Sync => (SegmentOp::Sync, Durability::Data),
                // The logs of this house are in segments: none asks for it.
                LogIoKind::Allocate { to } => (SegmentOp::Allocate { offset: 0, len: to }, Durability::Data),
            };
            let memory = match shown(memory, client, self.ios.len()) {
                Ok(memory) => memory,
                // Nothing ends that would make room.
                Err(memory) if self.ios.is_empty() => {
                    part.io_ended(id, Err(Errno::ENOMEM), memory);
                    continue;
                }
                Err(memory) => {
                    self.delayed.push_front((id, kind, memory));
                    return;
                }
            };
            let request = SegmentRequest {
                durability,
                ..SegmentRequest::new(self.handle, op, memory)
            };
            match client.start_awaited_in(places, request, waker) {
                Ok(ticket) => {
                    if let Some(place) = self.place.take() {
                        client.room_taken(place);
                    }
                    self.ios.push((ticket, id));
                }
                Err(request) if client.refusal().is_some() => {
                    part.io_ended(id, Err(Errno::EPIPE), request.memory);
                }
                Err(request) => {
                    // Before the look at what is free: it may be so already.
                    self.delayed.push_front((id, kind, request.memory));
                    client.wake_when_room(&mut self.place, waker, None);
                    return;
                }
            }
        }
    }

    fn done(&mut self, done: LogDone) {
        let Some(Asked { request, answer }) = self.asked.remove(&done.owner) else {
            return;
        };
        let failed = done.result.is_err();
        let result = done.result.map_err(|error| {
            let what = answer.as_ref().map_or(log_request_name(&request), |answer| answer.what);
            Error::of_log(what, self.name.clone(), error)
        });
        match request {
            LogRequest::Open if failed => self.release(answer.map(|answer| (answer, result.map(Reply::OnLog)))),
            LogRequest::Open => {
                if let Some(answer) = answer {
                    answer.give(result.and_then(|found| self.opened(found)));
                }
            }
            LogRequest::Close => self.release(answer.map(|answer| (answer, result.map(Reply::OnLog)))),
            _ => {
                if let Some(answer) = answer {
                    answer.give(result.map(Reply::OnLog));
                }
            }
        }
    }

    /// It is open. If nobody takes it, it closes again.
    fn opened(&self, found: LogAnswer) -> Result<Reply> {
        let gone = || Error::new("open the log in", self.name.clone(), Fault::Stale);
        let appender = self.part.as_ref().map(LogPart::appender).ok_or_else(gone)?;
        let (desk, id) = (Arc::clone(&self.desk), self.id);
        let close = move || desk.put(Order::LetGo(id));
        let held = HeldLog::elsewhere(id, appender, self.name.clone(), close);
        Ok(Reply::Log(held, found))
    }

    /// Nothing is asked of it any more. Who is told last hears when its segment is free.
    fn release(&mut self, last: Option<(Answerer, Result<Reply>)>) {
        let call = Call::new(Command::ReleaseLog { handle: self.handle });
        match &mut self.stage {
            Stage::Releases(_, told) => told.extend(last),
            Stage::Serves | Stage::Closes => self.stage = Stage::Releases(call, last.into_iter().collect()),
            Stage::Over => {}
        }
    }

    fn go_on_releasing(&mut self, client: &Arc<Client>, places: Places, waker: &Waker) {
        if !matches!(self.stage, Stage::Releases(..)) {
            return;
        }
        // A read may be under way still, which nobody waits for.
        for (_, asked) in self.asked.drain() {
            if let Some(answer) = asked.answer {
                let error = Error::of_log(answer.what, answer.name.clone(), LogError::Closed);
                answer.give(Err(error));
            }
        }
        if !self.ios.is_empty() {
            return;
        }
        let Stage::Releases(call, told) = &mut self.stage else {
            return;
        };
        if call.poll(client, places, waker).is_pending() {
            return;
        }
        let told = std::mem::take(told);
        self.stage = Stage::Over;
        self.leave_room(client);
        self.part = None; // Whoever waits hears it.
        for (answer, reply) in told {
            answer.give(reply);
        }
    }

    /// As in a crash: what is under way lands, or does not. Behind it the segment is free, also when the link goes on.
    pub(super) fn leave(&mut self, client: &Arc<Client>) {
        self.leave_room(client);
        if let (Some(part), Some(RequestFault::ServiceEnded)) = (&mut self.part, client.refusal()) {
            part.driver_ended(Errno::EPIPE);
        }
        for (ticket, _) in self.ios.drain(..) {
            client.abandon(ticket);
        }
        client.close_handle(self.handle);
    }

    fn leave_room(&mut self, client: &Arc<Client>) {
        if let Some(place) = self.place.take() {
            client.leave_room(place);
        }
    }
}

/// Memory as the broker can be shown it: of what is shared (zeroes, when a log is made) a copy, if there is room for it.
fn shown(memory: Memory, client: &Arc<Client>, under_way: usize) -> std::result::Result<Memory, Memory> {
    let Memory::Shared(shared) = memory else {
        return Ok(memory);
    };
    if under_way >= COPIES_MAX {
        return Err(Memory::Shared(shared));
    }
    match arena_of(client).and_then(|arena| arena.buffer(shared.len())) {
        Some(mut copy) => {
            copy.copy_from_slice(&shared);
            Ok(Memory::Own(copy))
        }
        None => Err(Memory::Shared(shared)),
    }
}
