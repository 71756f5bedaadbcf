//! The socket of a session: questions go out, answers come in, and a thread that waits for the broker sleeps here.
//!
//! | when | is the socket read? |
//! |---|---|
//! | a thread looks for news, while questions are under way | yes, before it looks at the ring |
//! | a thread looks for news, while none are | every 64th time, so that the end of a broker is noticed without a sleep |
//! | a thread sleeps | when the socket has something |
//!
//! **The socket before the ring.** Reading a doorbell message consumes it, and another thread may be about to sleep for it. What it
//! announced is in the ring already. So the thread that read the socket looks at the ring next, and wakes the sleeper itself, because the
//! broker takes the sleeper for awake.
//!
//! Only [`FarBell::sleep`] waits. Messages that cannot be sent yet wait in the outbox. They are sent when answers have come, when
//! a thread looks for news, and when one sleeps and the socket has room.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use baio_ring::bell::FarBell;
use baio_words::session::{Answer, DOORBELL, Failed, FromBroker, LIST_MAX, MESSAGE_MAX, Question};
use baio_words::{Errno, SegmentInfo};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno as Said;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

/// For how long who waits does so without asking whether it is still to.
pub(crate) const SLICE: Duration = Duration::from_millis(250);

/// Questions whose answer nobody waits for have numbers from here on: below are the places of requests.
const FORGOTTEN: u32 = 1 << 31;
/// What has no answer of its own.
const NO_ANSWER: u32 = u32::MAX;
/// Messages of one read. Who reads keeps others of the process from the link, so one look at a broker that never stops talking must end.
const READ_MAX: usize = 64;
/// Looks without a question under way for one that reads the socket.
const IDLE_LOOKS: u32 = 64;

const SILENT: u32 = 0;
const RUNG: u32 = 1;
const ASLEEP: u32 = 2;

/// A session's socket.
#[derive(Debug)]
pub struct Wire {
    /// The session's of now: another takes its place when another session does ([`Wire::take_over`]).
    socket: RwLock<Arc<OwnedFd>>,
    /// Rung by threads of this process for one that sleeps.
    bell: OwnedFd,
    rung: AtomicU32,
    gone: AtomicBool,
    /// It has ended, and another session may take its place: who sleeps waits for that.
    awaited: AtomicBool,
    /// Which session it is, counted from 0.
    session: AtomicU32,
    /// The socket was full: who sleeps waits for room too.
    blocked: AtomicBool,
    looks: AtomicU32,
    /// Questions without a whole answer, those that wait to be sent included, and answers that nobody has taken.
    busy: AtomicUsize,
    questions_max: AtomicUsize,
    post: Mutex<Post>,
}

#[derive(Debug)]
struct Post {
    /// Sent, and not answered yet; with the pieces of an answer that has come in part.
    asked: HashMap<u32, Vec<SegmentInfo>>,
    /// What lets others end, not sent yet: it waits for no answer. All that were asked may wait for just that.
    urgent: VecDeque<(u32, Vec<u8>)>,
    /// Not sent yet.
    outbox: VecDeque<(u32, Vec<u8>)>,
    inbox: VecDeque<(u32, Answer)>,
    forgotten: u32,
    /// So many segments are kept at most, of all lists whose end has not come.
    list_max: usize,
    buffer: Box<[u8]>,
}

/// What the socket is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sought {
    /// Answers and doorbells.
    News,
    /// The end of the session, behind whatever was said before it.
    End,
}

impl Wire {
    /// Over a connected socket that does not block, on which both sides have greeted each other.
    ///
    /// # Errors
    /// What eventfd(2) said.
    pub(crate) fn new(socket: OwnedFd, questions_max: u32) -> Result<Wire, Said> {
        Ok(Wire {
            socket: RwLock::new(Arc::new(socket)),
            bell: baio_process::descriptor::event()?,
            rung: AtomicU32::new(SILENT),
            gone: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            session: AtomicU32::new(0),
            blocked: AtomicBool::new(false),
            looks: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            // With none at all nothing could ever be asked.
            questions_max: AtomicUsize::new(questions_max.max(1) as usize),
            post: Mutex::new(Post {
                asked: HashMap::new(),
                urgent: VecDeque::new(),
                outbox: VecDeque::new(),
                inbox: VecDeque::new(),
                forgotten: 0,
                list_max: LIST_MAX,
                buffer: vec![0; MESSAGE_MAX + 1].into(),
            }),
        })
    }

    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, now or as soon as there is room, under the number of a place.
    ///
    /// # Errors
    /// What is too long for a message.
    pub fn ask(&self, place: u32, question: &Question) -> Result<(), baio_words::session::TooLong> {
        let message = question.encode(place)?;
        let mut post = self.post();
        post.outbox.push_back((place, message));
        self.flush(&mut post);
        Ok(())
    }

    /// The places of the questions that wait to be sent, in their order.
    pub fn unsent(&self) -> Vec<u32> {
        self.post().outbox.iter().map(|(place, _)| *place).collect()
    }

    /// Asks what nobody waits for an answer to, before all that was not sent yet, and however many questions are under way: a thaw.
    pub fn tell(&self, question: &Question) {
        let mut post = self.post();
        post.forgotten = post.forgotten.wrapping_add(1) & (FORGOTTEN / 2 - 1);
        let id = FORGOTTEN | post.forgotten;
        // What is told is short.
        if let Ok(message) = question.encode(id) {
            post.urgent.push_back((id, message));
            self.flush(&mut post);
        }
    }

    /// The question of this place is to end early, if it can.
    pub fn cancel(&self, place: u32) {
        let mut post = self.post();
        // One that was not sent yet is answered all the same, soon after it was.
        let cancel = Question::Cancel { question: place };
        if let Some(message) = cancel
            .encode(NO_ANSWER)
            .ok()
            .filter(|_| post.asked.contains_key(&place))
        {
            post.urgent.push_back((NO_ANSWER, message));
            self.flush(&mut post);
        }
    }

    /// Sends what there is room for.
    fn flush(&self, post: &mut Post) {
        let mut blocked = false;
        while !self.has_gone() {
            let is_urgent = !post.urgent.is_empty();
            if !is_urgent && post.asked.len() >= self.questions_max.load(Ordering::Relaxed) {
                break;
            }
            let letters = if is_urgent { &mut post.urgent } else { &mut post.outbox };
            let Some((id, message)) = letters.front() else { break };
            let id = *id;
            match rustix::net::send(&*self.socket(), message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => {
                    letters.pop_front();
                    if id != NO_ANSWER && post.asked.insert(id, Vec::new()).is_some() {
                        self.hang_up(); // It was answered elsewhere than here: no broker of ours does so.
                    }
                }
                Err(Said::AGAIN | Said::INTR | Said::NOBUFS | Said::NOMEM) => {
                    blocked = true;
                    break;
                }
                // What it said before it went is still to be read.
                Err(Said::PIPE | Said::CONNRESET) => break,
                Err(_) => {
                    self.hang_up();
                    break;
                }
            }
        }
        self.count(post);
        if blocked && !self.blocked.swap(true, Ordering::SeqCst) {
            // Who sleeps is to wait for room from now on.
            self.ring();
        } else if !blocked {
            self.blocked.store(false, Ordering::SeqCst);
        }
    }

    fn count(&self, post: &Post) {
        let busy = post.asked.len() + post.urgent.len() + post.outbox.len() + post.inbox.len();
        self.busy.store(busy, Ordering::Release);
    }

    /// The next whole answer, and whose it is. Reads the socket only while it must, so that it costs nothing while nothing was asked.
    pub fn next_answer(&self) -> Option<(u32, Answer)> {
        // Who has asked has counted it under the client's lock, as who looks does.
        let is_idle = self.busy.load(Ordering::Acquire) == 0;
        if is_idle && self.looks.fetch_add(1, Ordering::Relaxed) % IDLE_LOOKS != IDLE_LOOKS - 1 {
            return None;
        }
        let mut post = self.post();
        if post.inbox.is_empty() {
            if self.read(&mut post, Sought::News) {
                // It was for one who sleeps perhaps, and is rung for no more before he has looked.
                self.ring();
            }
            self.flush(&mut post);
        }
        let answer = post.inbox.pop_front();
        self.count(&post);
        answer
    }

    /// Has it ended, by what the socket has now? In front of the end may lie answers and a doorbell: who fell asleep for that may have found
    /// the ring not empty, and left it there. No broker of ours leaves more than one read takes.
    pub fn has_just_gone(&self) -> bool {
        let mut post = self.post();
        if self.read(&mut post, Sought::End) {
            self.ring(); // As in `next_answer`.
        }
        self.count(&post);
        drop(post);
        self.has_gone()
    }

    /// Takes what the socket has, [`READ_MAX`] messages at most: of what is left behind these poll(2) tells the next who sleeps. True: a
    /// doorbell was among it.
    fn read(&self, post: &mut Post, sought: Sought) -> bool {
        let mut is_rung = false;
        for _ in 0..READ_MAX {
            if self.has_gone() {
                break;
            }
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let len = match rustix::net::recv(&*self.socket(), &mut *post.buffer, flags) {
                Ok((_, 0)) => {
                    self.hang_up();
                    break;
                }
                Ok((_, len)) => len,
                // The second is told once, before what was said earlier.
                Err(Said::INTR | Said::CONNRESET) => continue,
                Err(Said::AGAIN) => break,
                Err(_) => {
                    self.hang_up();
                    break;
                }
            };
            let message = post.buffer.get(..len).map(FromBroker::decode);
            let is_known = match message {
                Some(Ok(FromBroker::Doorbell)) => {
                    is_rung = true;
                    // Mostly there is nothing behind it; if there is, the next sleep ends at once.
                    let is_idle = post.asked.is_empty() && post.urgent.is_empty() && post.outbox.is_empty();
                    if is_idle && sought == Sought::News {
                        break;
                    }
                    true
                }
                Some(Ok(FromBroker::Answer { id, answer })) => post.heard(id, answer),
                // Longer than any message, or none, or a second welcome.
                Some(Ok(FromBroker::Welcome(_)) | Err(_)) | None => false,
            };
            if !is_known {
                self.hang_up();
            }
        }
        is_rung
    }

    /// Ends the session: both sides see it. The socket stays open while anybody uses the session's memory (`stays_open`): a broker
    /// takes that back when the socket is closed.
    pub fn hang_up(&self) {
        self.gone.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&*self.socket(), Shutdown::Write);
        self.ring();
    }

    /// Keeps the socket of the session of now open.
    pub(crate) fn stays_open(&self) -> Arc<OwnedFd> {
        Arc::clone(&*self.socket())
    }

    /// Has it ended?
    pub fn has_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Wakes the broker, which sleeps. One that has messages to read is awake.
    pub fn ring_broker(&self) {
        match rustix::net::send(&*self.socket(), &DOORBELL, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Said::AGAIN | Said::INTR | Said::NOBUFS | Said::NOMEM) => {}
            // What it said before it went is still to be read.
            Err(_) => self.ring(),
        }
    }

    fn socket(&self) -> RwLockReadGuard<'_, Arc<OwnedFd>> {
        self.socket.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which session it is, counted from 0.
    pub fn session(&self) -> u32 {
        self.session.load(Ordering::Acquire)
    }

    /// Another session may take the place of this one when it has gone, until `false` is said.
    pub fn await_another(&self, awaited: bool) {
        self.awaited.store(awaited, Ordering::Release);
    }

    /// The session of another wire, on which nothing is under way, takes the place of this one, which has gone. What was asked here and
    /// not answered is forgotten.
    pub fn take_over(&self, other: &Wire) {
        let socket = Arc::clone(&*other.socket());
        // Who reads and finds an end says so under this lock: of the socket that it has read.
        let mut post = self.post();
        post.asked.clear();
        post.urgent.clear();
        post.outbox.clear();
        post.inbox.clear();
        self.questions_max
            .store(other.questions_max.load(Ordering::Relaxed), Ordering::Relaxed);
        *self.socket.write().unwrap_or_else(PoisonError::into_inner) = socket;
        self.session.fetch_add(1, Ordering::AcqRel);
        self.blocked.store(false, Ordering::SeqCst);
        self.await_another(false);
        self.gone.store(other.has_gone(), Ordering::Release);
        self.count(&post);
    }

    /// Asks, and waits for the answer in this thread. For one who has the wire alone. `None`: the session has ended, or `until` is
    /// over, or it is longer than a message, or `still`, which is asked each 250 ms or more often, says no.
    pub fn ask_alone(&self, question: &Question, until: Instant, still: &dyn Fn() -> bool) -> Option<Answer> {
        self.ask(0, question).ok()?;
        loop {
            // An answer that came with the end is still an answer.
            let has_gone = self.has_gone();
            while let Some((place, answer)) = self.next_answer() {
                if place == 0 {
                    return Some(answer);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if has_gone || left.is_zero() || !still() {
                return None;
            }
            FarBell::sleep(self, Some(left.min(SLICE)));
        }
    }
}

impl Post {
    /// False for what no broker of ours says: an answer to nothing that was asked, a list without an end.
    fn heard(&mut self, id: u32, answer: Answer) -> bool {
        if id == NO_ANSWER {
            return true;
        }
        let kept: usize = self.asked.values().map(Vec::len).sum();
        let Some(pieces) = self.asked.get_mut(&id) else {
            return false;
        };
        let answer = match answer {
            Answer::Segments { infos, .. } if kept.saturating_add(infos.len()) > self.list_max => {
                let failed = Answer::Failed(Box::new(too_many(self.list_max)));
                self.asked.remove(&id);
                self.inbox.push_back((id, failed));
                return false;
            }
            Answer::Segments { more: true, infos } => {
                pieces.extend(infos);
                return true;
            }
            Answer::Segments { more, infos } => {
                let mut all = std::mem::take(pieces);
                all.extend(infos);
                Answer::Segments { more, infos: all }
            }
            other => other,
        };
        self.asked.remove(&id);
        if id < FORGOTTEN {
            self.inbox.push_back((id, answer));
        }
        true
    }
}

/// Why a list is not taken to its end.
fn too_many(list_max: usize) -> Failed {
    Failed {
        code: "EMSGSIZE".to_owned(),
        errno: Errno::EMSGSIZE.raw().unsigned_abs(),
        operation: "list".to_owned(),
        object: "the segments of the broker's volume".to_owned(),
        what: format!("the broker lists more than {list_max} segments: the session was ended"),
        need: Some(format!("a list of {list_max} segments at most")),
        cure: Some("see who runs that broker; `baio list` beside the volume's owner needs none".to_owned()),
        ..Failed::default()
    }
}

impl FarBell for Wire {
    fn ring(&self) {
        // Other side: `sleep`. Whoever hears the ring sees what was done before it.
        if self.rung.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    fn sleep(&self, limit: Option<Duration>) {
        let fell = self
            .rung
            .compare_exchange(SILENT, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        let (has_gone, awaited) = (self.has_gone(), self.awaited.load(Ordering::Acquire));
        if fell.is_err() || (has_gone && !awaited) {
            self.rung.store(SILENT, Ordering::Release);
            return;
        }
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, self.blocked.load(Ordering::SeqCst));
        // Nobody waits for the lock: it is another's as soon as there is another session.
        let socket = Arc::clone(&*self.socket());
        // Of a session that has gone there is nothing to hear: the bell tells of the next one.
        let heard = if has_gone { self.bell.as_fd() } else { socket.as_fd() };
        let mut fds = [
            PollFd::from_borrowed_fd(heard, if has_gone { PollFlags::IN } else { wanted }),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        // A deadline past the clock's range means no deadline.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // A signal ends the sleep early, as a late ring does.
        let _ = rustix::event::poll(&mut fds, limit.as_ref());
        let is_rung = self.rung.swap(SILENT, Ordering::AcqRel) == RUNG;
        if is_rung || !fds[1].revents().is_empty() {
            // Of one that rings at this moment the next sleep hears.
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        }
        if !has_gone && !fds[0].revents().is_empty() {
            let mut post = self.post();
            self.read(&mut post, Sought::News);
            self.flush(&mut post);
        }
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
