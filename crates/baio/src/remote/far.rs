//! What the client carries to a broker: questions and answers on a socket, and buffers of an arena that both have.

#![allow(unsafe_code)]

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use baio_broker::control::{Call, Reply};
use baio_client::{ConnectError, Session, Unsynced, Wire, Wishes};
use baio_engine::{Arena, SetupError};
use baio_ring::{Bell, FarBell, SessionMemory, Shared};
use baio_storage::{Command, Error, Fault, Handle, HeldFreeze, Hint, Result, SegmentInfo};
use baio_words::entry::{HandleWords, Tag};
use baio_words::session::{Answer, FEATURE_GROW, FEATURE_LOGS, FEATURE_OWNERSHIP, Question, RANGES_MAX};
use baio_words::{Errno, RequestFault, next_number};

use super::again::Again;
use super::carried::{Between, Carried, Client, Way};

/// The way to a broker.
pub(super) struct Far {
    wire: Arc<Wire>,
    /// What stands in handles for it.
    core: u32,
    /// Who it takes us for.
    uid: u32,
    /// What the session has beside the first version.
    /// Those of the session of now.
    features: AtomicU64,
    /// What it serves.
    name: String,
    /// What was asked that no broker can be asked.
    refused: Mutex<VecDeque<(Tag, Error)>>,
    /// Of the questions under way: which use of its place each is.
    tags: Mutex<HashMap<u32, u32>>,
    /// The arena of the session of now.
    arena: RwLock<Arc<Arena>>,
    returned: Arc<Returned>,
    /// For a link that goes on with the next broker.
    again: Option<Again>,
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

/// A client of the broker at the other end of a session, and who it is there. It goes on with the next broker for so long as `limit` says.
pub(super) fn client(
    session: Session,
    path: &Path,
    wishes: &Wishes,
    limit: Option<Duration>,
) -> Result<(Arc<Client>, u32)> {
    let core = next_number();
    let again = limit.map(|limit| Again::new(&session, core, path, wishes, limit));
    let again = again.transpose().map_err(|error| unconnected(error, path))?;
    let Session {
        wire, memory, welcome, ..
    } = session;
    let arena = arena(&memory, &welcome.volume)?;
    let bell = Bell::far(Arc::clone(&wire) as Arc<dyn FarBell>);
    let shared: Option<Between> = Shared::far(&memory, welcome.places, bell);
    let crooked = || {
        let error = SetupError::new("use the memory of", welcome.volume.clone(), Errno::EPROTO);
        Error::new("connect to", welcome.volume.clone(), error)
    };
    let returned = Arc::new(Returned::default());
    returned.hear(&arena, &wire);
    let far = Far {
        wire,
        returned,
        core,
        uid: welcome.uid,
        features: AtomicU64::new(welcome.features),
        name: welcome.volume.clone(),
        refused: Default::default(),
        tags: Default::default(),
        arena: RwLock::new(arena),
        again,
    };
    let carried = Carried {
        way: Way::Far(Box::new(far)),
    };
    let shared = Arc::new(shared.ok_or_else(crooked)?);
    let client = Arc::new(Client::new(carried, shared, core, welcome.volume));
    if let Some(again) = client.carrier().far().and_then(Far::again) {
        again.belongs_to(&client);
    }
    Ok((client, welcome.uid))
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

/// Why there is no session, in this crate's words.
pub(super) fn unconnected(error: ConnectError, path: &Path) -> Error {
    let object = baio_engine::path_name(path);
    if let Some(failed) = error.refused {
        return Error::new("connect to", object, Fault::Told(failed));
    }
    let mut setup = SetupError::new("connect to", error.object, error.errno);
    if let Some(what) = error.what {
        setup.object = format!("{}, which is there: {what}", setup.object);
    }
    setup.need = error.need;
    setup.cure = error.cure;
    Error::new("connect to", object, setup)
}

impl Far {
    pub(super) fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn again(&self) -> Option<&Again> {
        self.again.as_ref()
    }

    pub(super) fn goes_on(&self) -> bool {
        self.again.is_some()
    }

    pub(super) fn arena(&self) -> RwLockReadGuard<'_, Arc<Arena>> {
        self.arena.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn looks_for_another(&self) -> bool {
        let Some(again) = &self.again else { return false };
        // Before it can be there.
        self.wire.await_another(true);
        let begun = again.begin();
        self.wire.await_another(begun);
        begun
    }

    /// The session on this wire, with this arena, takes the place of the one of now. Under the client's lock.
    pub(super) fn take_over(&self, wire: &Wire, arena: Arc<Arena>, features: u64) {
        self.features.store(features, Ordering::Relaxed);
        self.tags().clear();
        self.wire.take_over(wire);
        self.returned.hear(&arena, &self.wire);
        *self.arena.write().unwrap_or_else(PoisonError::into_inner) = arena;
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

    pub(super) fn words(&self, handle: Handle) -> std::result::Result<HandleWords, RequestFault> {
        match &self.again {
            Some(again) => again.handles().words(handle),
            None => Ok(handle.into()),
        }
    }

    pub(super) fn close(&self, handle: Handle) -> Option<HandleWords> {
        match &self.again {
            Some(again) => again.handles().close(handle),
            None => Some(handle.into()),
        }
    }

    pub(super) fn unsynced(&self, handle: Handle) -> Option<Arc<Unsynced>> {
        self.again.as_ref()?.handles().unsynced(handle)
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

    // Both are used under the client's lock alone, so nobody waits for them.

    fn tags(&self) -> MutexGuard<'_, HashMap<u32, u32>> {
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, VecDeque<(Tag, Error)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A question's number is the place of its command, which is used by nothing else until it is answered.
    pub(super) fn send(&self, tag: Tag, call: &Call) {
        let name = call.name();
        let asked = self.question(call).and_then(|question| {
            self.tags().insert(tag.index, tag.generation);
            let sent = self.wire.ask(tag.index, &question);
            sent.map_err(|long| Fault::BadSize(long.to_string()))
        });
        if let Err(fault) = asked {
            self.tags().remove(&tag.index);
            self.refused()
                .push_back((tag, Error::new(name, self.name.clone(), fault)));
        }
    }

    pub(super) fn call_off(&self, tag: Tag) {
        self.wire.cancel(tag.index);
    }

    pub(super) fn next_reply(&self) -> Option<(Tag, Result<Reply>)> {
        if let Some((tag, error)) = self.refused().pop_front() {
            return Some((tag, Err(error)));
        }
        loop {
            let (index, answer) = self.wire.next_answer()?;
            let Some(generation) = self.tags().remove(&index) else {
                continue; // No question of ours: the wire knows those.
            };
            return Some((Tag { index, generation }, self.reply(answer)));
        }
    }

    /// The answer with the handles of this process, and a freeze that thaws when it is dropped.
    fn reply(&self, answer: Answer) -> Result<Reply> {
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
            } => {
                let Some(again) = &self.again else {
                    return Err(self.unasked());
                };
                let handles = &mut again.handles();
                Answer::Opened {
                    handle: handles.add(handle.into(), info.owner_uid, &info.name, access, identity),
                    access,
                    info: SegmentInfo {
                        uuid: identity,
                        ..*info
                    },
                }
            }
            Answer::LogClaimed {
                handle,
                size_bytes,
                block_bytes,
                flushes,
            } => Answer::LogClaimed {
                handle: own(handle),
                size_bytes,
                block_bytes,
                flushes,
            },
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
            Answer::HandedOn { .. } | Answer::Opening { .. } => return Err(self.unasked()),
            same => same,
        }))
    }

    fn unasked(&self) -> Error {
        let fault = Fault::Unexpected("an answer to another question");
        Error::new("ask", self.name.clone(), fault)
    }

    /// What a call asks of this broker, by its handles.
    fn question(&self, call: &Call) -> std::result::Result<Question, Fault> {
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
            *handle = self.words(*handle)?.into();
        }
        if let Question::Hint {
            hint: Hint::Prefetch(pages),
            ..
        } = &mut question
        {
            pages.truncate(RANGES_MAX); // A hint: of too many ranges the first.
        }
        match question.feature() & !self.features.load(Ordering::Relaxed) {
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
