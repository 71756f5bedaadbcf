//! What the client carries to a broker: questions and answers on a socket, and buffers of an arena that both have.

#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use baio_broker::control::{Call, Reply};
use baio_client::{Session, Wire};
use baio_engine::{Arena, Buffer, SetupError};
use baio_ring::{FarBell, SessionMemory};
use baio_storage::{Command, Error, Fault, Handle, HeldFreeze, Hint, Result, SegmentInfo};
use baio_words::entry::{HandleWords, Tag};
use baio_words::session::{Answer, FEATURE_GROW, FEATURE_LOGS, FEATURE_OWNERSHIP, Question, RANGES_MAX};
use baio_words::{Errno, LogClaim, RequestFault};

use super::handles::Handles;

/// The way to a broker.
pub(super) struct Far {
    wire: Arc<Wire>,
    /// What stands in handles for it.
    core: u32,
    /// Who it takes us for.
    uid: u32,
    /// What it serves.
    name: String,
    returned: Arc<Returned>,
    /// Of a link that goes on with the next broker.
    next: Option<OnceLock<Search>>,
}

/// Begins to look for the next broker. False: no thread can be had for that.
type Search = Box<dyn Fn() -> bool + Send + Sync>;

/// What the client keeps behind its lock: what changes with the session, and what was asked in it.
#[derive(Default)]
pub(super) struct Current {
    /// Whose buffers move without a copy; none in a forked child.
    pub(super) arena: Option<Arc<Arena>>,
    /// Of a link that goes on with the next broker.
    pub(super) handles: Handles,
    /// What the session has beside the first version.
    features: u64,
    /// What was asked that no broker can be asked.
    refused: VecDeque<(Tag, Error)>,
    /// Of the questions under way: which use of its place each is.
    tags: HashMap<u32, u32>,
}

impl Current {
    /// With this arena, and nothing that is a broker's.
    pub(super) fn here(arena: Arc<Arena>) -> Current {
        Current {
            arena: Some(arena),
            ..Current::default()
        }
    }

    /// Where memory lies that has a place in the arena.
    pub(super) fn is_shown(&self, buffer: &Buffer) -> bool {
        self.arena.as_ref().is_some_and(|arena| buffer.is_of(arena))
    }
}

/// Memory of the arena that came back while somebody waits for some.
#[derive(Default)]
struct Returned {
    is_awaited: AtomicBool,
    times: AtomicUsize,
}

impl Returned {
    /// Counts what comes back to this arena, and rings the client's bell.
    fn hear(self: &Arc<Self>, arena: &Arena, wire: &Arc<Wire>) {
        // Buffers may be kept longer than the link.
        let (returned, wire) = (Arc::clone(self), Arc::downgrade(wire));
        arena.on_return(move || {
            // Other side: `is_awaited`. Either this sees that somebody waits, or he sees the memory.
            fence(Ordering::SeqCst);
            if returned.is_awaited.load(Ordering::Relaxed) && returned.times.fetch_add(1, Ordering::AcqRel) == 0 {
                if let Some(wire) = wire.upgrade() {
                    wire.ring();
                }
            }
        });
    }
}

pub(super) fn arena(memory: &SessionMemory, name: &str) -> Result<Arc<Arena>> {
    let failed = |error: SetupError| Error::new("connect to", name, error);
    let span = memory.arena().ok_or_else(|| {
        failed(SetupError::new("find the arena of", name.to_owned(), Errno::EPROTO).need("an arena of less than 4 GiB"))
    })?;
    // SAFETY: the session's memory was received by `Session` for this client alone, which takes no other span of it: these bytes are
    // the arena's in this process. The broker is trusted as the kernel is that reads for it: it writes into the memory of requests
    // that were sent and read. The client gives none of that back before it has seen the request's end, or knows that the broker has let go of
    // all that it had (`again.rs`); what a broker had that was given up, or has gone without another in its place, stays in nobody's hands for
    // ever (`reap.rs` of the client), and with it the mapping.
    unsafe { Arena::over(span) }.map_err(failed)
}

impl Far {
    /// The way over this session, and what is kept of it.
    pub(super) fn new(session: Session, arena: Arc<Arena>, core: u32, goes_on: bool) -> (Far, Current) {
        let Session { wire, welcome, .. } = session;
        let returned = Arc::new(Returned::default());
        returned.hear(&arena, &wire);
        let kept = Current {
            handles: Handles::new(core),
            features: welcome.features,
            ..Current::here(arena)
        };
        let far = Far {
            wire,
            core,
            uid: welcome.uid,
            name: welcome.volume,
            returned,
            next: goes_on.then(OnceLock::new),
        };
        (far, kept)
    }

    /// When its broker has ended, the next one is looked for so.
    pub(super) fn looks_by(&self, search: Search) {
        if let Some(next) = &self.next {
            let _ = next.set(search);
        }
    }

    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn goes_on(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn looks_for_another(&self) -> bool {
        let Some(search) = self.next.as_ref().and_then(OnceLock::get) else {
            return false;
        };
        // Before it can be there.
        self.wire.await_another(true);
        let begun = search();
        self.wire.await_another(begun);
        begun
    }

    /// The session on this wire, with this arena, takes the place of the one of now.
    pub(super) fn take_over(&self, kept: &mut Current, wire: &Wire, arena: Arc<Arena>, features: u64) {
        kept.features = features;
        kept.tags.clear();
        self.wire.take_over(wire);
        self.returned.hear(&arena, &self.wire);
        kept.arena = Some(arena);
    }

    pub(super) fn await_memory(&self, awaited: bool) {
        self.returned.is_awaited.store(awaited, Ordering::Relaxed);
        // Other side: `Returned::hear`.
        fence(Ordering::SeqCst);
    }

    pub(super) fn memory_came(&self) -> usize {
        match self.returned.times.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.returned.times.swap(0, Ordering::AcqRel),
        }
    }

    pub(super) fn words(&self, kept: &Current, handle: Handle) -> std::result::Result<HandleWords, RequestFault> {
        match self.goes_on() {
            true => kept.handles.words(handle),
            false => Ok(handle.into()),
        }
    }

    pub(super) fn close(&self, kept: &mut Current, handle: Handle) -> Option<HandleWords> {
        match self.goes_on() {
            true => kept.handles.close(handle),
            false => Some(handle.into()),
        }
    }

    pub(super) fn ring(&self) {
        self.wire.ring_broker();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.wire.has_gone()
    }

    pub(super) fn hang_up(&self) {
        // Unless one is looked for from now on: of a link that has ended nobody sleeps for news.
        self.wire.await_another(false);
        self.wire.hang_up();
    }

    /// A question's number is the place of its command, which is used by nothing else until it is answered.
    pub(super) fn send(&self, kept: &mut Current, tag: Tag, call: &Call) {
        let name = call.name();
        let asked = self.question(kept, call).and_then(|question| {
            kept.tags.insert(tag.index, tag.generation);
            let sent = self.wire.ask(tag.index, &question);
            sent.map_err(|long| Fault::BadSize(long.to_string()))
        });
        if let Err(fault) = asked {
            kept.tags.remove(&tag.index);
            kept.refused
                .push_back((tag, Error::new(name, self.name.clone(), fault)));
        }
    }

    pub(super) fn call_off(&self, tag: Tag) {
        self.wire.cancel(tag.index);
    }

    pub(super) fn next_reply(&self, kept: &mut Current) -> Option<(Tag, Result<Reply>)> {
        if let Some((tag, error)) = kept.refused.pop_front() {
            return Some((tag, Err(error)));
        }
        loop {
            let (index, answer) = self.wire.next_answer()?;
            let Some(generation) = kept.tags.remove(&index) else {
                continue; // No question of ours: the wire knows those.
            };
            return Some((Tag { index, generation }, self.reply(kept, answer)));
        }
    }

    /// The answer with the handles of this process, and a freeze that thaws when it is dropped.
    fn reply(&self, kept: &mut Current, answer: Answer) -> Result<Reply> {
        let own = |handle: Handle| Handle::from_parts(self.core, handle.index, handle.generation);
        Ok(Reply::Answer(match answer {
            Answer::Opened { handle, access, info } => Answer::Opened {
                handle: own(handle),
                access,
                info,
            },
            Answer::OpenedKnown {
                handle,
                access,
                info,
                identity,
            } if self.goes_on() => Answer::Opened {
                handle: kept
                    .handles
                    .add(handle.into(), info.owner_uid, &info.name, access, identity),
                access,
                info: SegmentInfo {
                    uuid: identity,
                    ..*info
                },
            },
            Answer::LogClaimed(claim) => Answer::LogClaimed(LogClaim {
                handle: own(claim.handle),
                ..claim
            }),
            Answer::Frozen { freeze } => {
                // The session may have ended by then, and its freezes with it.
                let (wire, its) = (Arc::downgrade(&self.wire), self.wire.session());
                return Ok(Reply::Frozen(HeldFreeze::elsewhere(move || {
                    if let Some(wire) = wire.upgrade().filter(|wire| wire.session() == its) {
                        wire.tell(&Question::Thaw { freeze });
                    }
                })));
            }
            Answer::Failed(failed) => return Err(Error::told(failed, self.uid)),
            Answer::OpenedKnown { .. } | Answer::HandedOn { .. } | Answer::Opening { .. } => return Err(self.unasked()),
            same => same,
        }))
    }

    fn unasked(&self) -> Error {
        let fault = Fault::Unexpected("an answer to another question");
        Error::new("ask", self.name.clone(), fault)
    }

    /// What a call asks of this broker, by its handles.
    fn question(&self, kept: &Current, call: &Call) -> std::result::Result<Question, Fault> {
        let Call::Command(command) = call else {
            return Err(Fault::NotFar(of_one_process(call)));
        };
        let mut question = match command.clone() {
            Command::Open {
                owner_uid,
                name,
                access,
            } if self.goes_on() => Question::OpenKnown {
                owner_uid,
                name,
                access,
                identity: None,
            },
            // A log ends with its broker, and its claim with it.
            Command::ClaimLog { .. } if self.goes_on() => {
                return Err(Fault::NotFar("a log, by a link that goes on with the next broker,"));
            }
            same => same,
        };
        if let Some(handle) = question.handle_mut() {
            *handle = self.words(kept, *handle)?.into();
        }
        if let Question::Hint {
            hint: Hint::Prefetch(pages),
            ..
        } = &mut question
        {
            pages.truncate(RANGES_MAX); // A hint: of too many ranges the first.
        }
        match question.feature() & !kept.features {
            0 => Ok(question),
            FEATURE_LOGS => Err(Fault::OlderBroker("a log")),
            FEATURE_OWNERSHIP => Err(Fault::OlderBroker("a change of ownership")),
            FEATURE_GROW => Err(Fault::OlderBroker("a resize that never cuts")),
            _ => Err(Fault::OlderBroker("this question")),
        }
    }
}

/// What a broker is not asked: what it would need of this process.
fn of_one_process(call: &Call) -> &'static str {
    match call {
        Call::Command(_) => "this question",
        Call::Watched(..) => "the progress of an operation",
        Call::OpenFile { .. } | Call::AddFile { .. } => "a plain file",
        Call::Counters => "a look at all counters",
        Call::Pin { .. } | Call::ChangeLater { .. } | Call::FlushTo { .. } => "a page held in the cache",
        Call::DurableLsn(_) | Call::SetLog { .. } => "a page that waits for a log",
        // Kept by this process (`logs.rs`), and not sent.
        Call::StartLog { .. } | Call::OnLog { .. } | Call::LogUsage(_) => "a log of this process",
        Call::Run(_) => "what runs on the core's thread",
        Call::Close => "the end of the service",
    }
}
