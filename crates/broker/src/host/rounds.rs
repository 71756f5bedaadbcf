//! The broker's loop. One round: show what has ended, read the sockets, take entries from the rings, post completions, start requests that
//! were held back, say "asleep" and look at the rings again, then turn the core once. The turn submits everything, and sleeps until something
//! completes or a socket has something.
//!
//! A session is *awake* while it has anything under way: each round looks at its ring. Other sessions cost nothing. A round does only so much
//! for one user (`owners.rs`), and each round begins with another session.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use baio_engine::{Memory, Op, Policy, Request, Time, Wait};
use baio_storage::{Core, Result};

use super::Broker;
use crate::seat::{Other, answered, seat_of};
use crate::served::{self, Ended};

/// The poll of the set of sockets.
const POLL_TAG: u64 = 1;
/// `POLLIN` (poll(2)).
const READABLE: u32 = 1;
const _: () = assert!(Core::FOREIGN_TAGS.start <= POLL_TAG && POLL_TAG < Core::FOREIGN_TAGS.end);

impl Broker {
    pub(super) fn serve(&mut self) -> Result<()> {
        let mut is_ending = false;
        loop {
            self.begin_round(&mut is_ending);
            self.take();
            self.collect();
            self.start_held();
            self.publish();
            self.bury();
            self.show();
            if is_ending && self.count == 0 {
                return Ok(());
            }
            // Behind all that gives anything back.
            let has_begun = self.begin_questions();
            self.turn(!has_begun)?;
        }
    }

    /// Listens to everybody. What has ended is shown first: any of these may say that a session is over, and a client takes a request without a
    /// completion for one of which nobody knows anything.
    fn begin_round(&mut self, is_ending: &mut bool) {
        self.round = self.round.wrapping_add(1);
        self.take_ends();
        self.publish();
        self.take_rules();
        self.hear();
        self.end_silent();
        self.end_unread();
        if self.stop.load(Ordering::Acquire) && !*is_ending {
            *is_ending = true;
            self.begin_to_end();
        }
    }

    /// Other rules, if there are any. Who may do less than before is not served on under the old ones.
    fn take_rules(&mut self) {
        let next = self.next_rules.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(rules) = next else { return };
        let before = std::mem::replace(&mut self.options.rules, rules);
        for number in 0..self.sessions.len() {
            let Some(session) = self.sessions[number].as_deref() else {
                continue;
            };
            let (had, has) = (before.of(&session.who), self.options.rules.of(&session.who));
            if !has.includes(had) {
                self.leave(number as u32);
            }
        }
    }

    /// Looks at the sockets if any of them has something.
    fn hear(&mut self) {
        while let Some(completion) = self.core.next_foreign() {
            if completion.tag == POLL_TAG {
                self.polled = None;
            }
        }
        if self.polled.is_some() {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        self.set.ready(&mut ready);
        // Each round begins with another: of one user's sockets not the same ones are heard first.
        let first = self.round as usize % ready.len().max(1);
        ready.rotate_left(first);
        for word in ready.drain(..) {
            self.heard(word);
        }
        self.ready = ready;
        self.bury_rests();
        // Of what is left the poll tells at once.
        let poll = Request::bare(Op::Poll { events: READABLE }, Some(&self.poll), Policy::kernel());
        self.polled = self.core.engine_mut().submit_reserved(poll.tagged(POLL_TAG)).ok();
    }

    /// Those awake, beginning with another one each round.
    fn rotation(&self) -> impl Iterator<Item = usize> + use<> {
        let count = self.awake.len();
        let first = self.round as usize % count.max(1);
        (first..count).chain(0..first)
    }

    /// Takes what clients submitted, as much as is dealt out to each user.
    fn take(&mut self) {
        self.owners.deal(self.core.engine().now());
        for at in self.rotation() {
            let number = self.awake[at];
            let Some(session) = self.sessions[number as usize].as_deref_mut() else {
                continue;
            };
            let Some(open) = session.open.as_mut().filter(|_| !session.is_leaving) else {
                continue;
            };
            let owner = self.owners.at(session.owner);
            let before = owner.ration;
            let taken = open.seat.take(&mut self.core, &mut owner.ration);
            owner.started_since(&before);
            owner.held += open.seat.held() as u32;
            match taken {
                Ok(None) => continue,
                // Between processes commands are messages.
                Ok(Some(Other::Command(tag) | Other::CallOff(tag))) => {
                    let _ = open.seat.end(answered(tag), Memory::None);
                }
                Err(_) => {}
            }
            owner.violations += 1;
            self.leave(number);
        }
    }

    /// Posts what has ended, and answers what was asked.
    fn collect(&mut self) {
        self.take_ends();
        for at in self.rotation() {
            self.answer_all(self.awake[at]);
        }
    }

    /// Posts what has ended, and counts what the device is done with.
    fn take_ends(&mut self) {
        let now = self.core.engine().now();
        while let Some(Ended {
            completion,
            memory,
            held,
        }) = served::next_end(&mut self.core)
        {
            let (number, _) = seat_of(completion.tag);
            let Some(session) = self.sessions.get_mut(number as usize).and_then(Option::as_deref_mut) else {
                continue;
            };
            let Some(open) = &mut session.open else { continue };
            let (done, posted) = open.seat.end(completion, memory);
            let owner = self.owners.at(session.owner);
            if let Some(done) = done {
                owner.ended(done, &completion, now);
                match held {
                    Some(ticket) => {
                        self.held_on.insert(ticket, (session.owner, done.bytes));
                    }
                    None => owner.let_go(done.bytes),
                }
            }
            if posted.is_err() && !session.is_leaving {
                owner.violations += 1;
                self.leave(number);
            }
        }
        while let Some(ticket) = self.core.next_released() {
            if let Some((owner, bytes)) = self.held_on.remove(&ticket) {
                self.owners.at(owner).let_go(bytes);
            }
        }
    }

    /// Answers what a session has asked, as far as there are answers.
    fn answer_all(&mut self, number: u32) {
        let mut at = 0;
        loop {
            let Some(session) = self.sessions[number as usize].as_deref_mut() else {
                return;
            };
            let Some(asking) = session.open.as_deref().and_then(|open| open.asking.get(at)) else {
                return;
            };
            match asking
                .doing
                .poll(&mut self.core, Some(std::task::Waker::noop().clone()))
            {
                Poll::Pending => at += 1,
                Poll::Ready(reply) => {
                    let Some(open) = &mut session.open else { return };
                    let asking = open.asking.swap_remove(at);
                    self.answered(number, asking, reply);
                }
            }
        }
    }

    /// Ends what is held for too long, and starts what there is room for.
    fn start_held(&mut self) {
        let now = self.core.engine().now();
        let mut any = false;
        for at in self.rotation() {
            let number = self.awake[at];
            let Some(session) = self.sessions[number as usize].as_deref_mut() else {
                continue;
            };
            let Some(open) = &mut session.open else { continue };
            let ended = open.seat.end_held(now, !open.asking.is_empty());
            let owner = self.owners.at(session.owner);
            if !session.is_leaving {
                let before = owner.ration;
                any |= open.seat.start_held(&mut self.core, &mut owner.ration);
                owner.started_since(&before);
            }
            open.seat.close_leaving(&mut self.core);
            if ended.is_err() && !session.is_leaving {
                owner.violations += 1;
                self.leave(number);
            }
        }
        if any {
            // What has ended as it was started ends now: no sleep would end for it.
            self.collect();
        }
    }

    /// Shows clients what has ended.
    fn publish(&mut self) {
        for &number in &self.awake {
            let session = self.sessions[number as usize].as_deref_mut();
            if let Some(open) = session.and_then(|session| session.open.as_mut()) {
                open.seat.publish();
            }
        }
    }

    /// Asks the core what waits, as far as each user may have more under way there.
    fn begin_questions(&mut self) -> bool {
        // Who has left may have held what others wait for: they are looked at again at once.
        let mut any = std::mem::take(&mut self.has_room);
        for at in self.rotation() {
            let number = self.awake[at];
            let session = self.sessions[number as usize].as_deref();
            let waits = session
                .and_then(|session| session.open.as_deref())
                .is_some_and(|open| !open.waiting.is_empty());
            any |= waits && self.begin_waiting(number);
        }
        any
    }

    /// Submits, and sleeps if it may, unless there is more to take.
    fn turn(&mut self, mut may_sleep: bool) -> Result<()> {
        let silent = self.silent.front().map(|(until, _)| *until);
        let mut until: Option<Time> = silent.into_iter().chain(self.unread_at).min();
        let (sessions, owners) = (&mut self.sessions, &mut self.owners);
        self.awake.retain(|&number| {
            let Some(session) = sessions[number as usize].as_deref_mut() else {
                return false;
            };
            let Some(open) = session.open.as_ref() else {
                return true;
            };
            until = until.into_iter().chain(open.seat.sweep_at()).min();
            if session.is_leaving {
                return true;
            }
            let is_empty = open.seat.fall_asleep();
            let goes_on = open.seat.held() > 0 && owners.at(session.owner).ration.grows();
            may_sleep &= is_empty && !goes_on;
            session.is_awake = !is_empty || !open.is_still() || !open.waiting.is_empty();
            session.is_awake
        });
        let wait = match may_sleep {
            true => Wait::Until {
                count: 1,
                min_wait: Duration::ZERO,
                deadline: until,
            },
            false => Wait::No,
        };
        let ended = served::turn(&mut self.core, wait)?;
        for &number in &self.awake {
            let session = self.sessions[number as usize].as_deref_mut();
            if let Some(open) = session.and_then(|session| session.open.as_mut()) {
                open.seat.wake_up();
                if ended > 0 {
                    open.seat.unstick();
                }
            }
        }
        Ok(())
    }

    /// It is to end: nobody is accepted, and everybody leaves.
    fn begin_to_end(&mut self) {
        self.set.remove(&self.listener.fd);
        self.is_deaf = true;
        self.core.wind_down();
        for number in 0..self.sessions.len() as u32 {
            self.leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use baio_engine::sim::{Disk, Fault, Faults, Sim};
    use baio_engine::{Choice, Engine, EngineOptions, File};
    use baio_ring::ring::Cursor;
    use baio_ring::{Layout, SessionMemory};
    use baio_storage::cache::CacheOptions;
    use baio_storage::{CreateOptions, FormatOptions, Identity, format_on};
    use baio_words::entry::{Completion, HandleWords, Op, Place, Submission, Tag};
    use baio_words::session::{Answer, FromBroker, Hello, Question, VERSION};
    use baio_words::{Access, Failure, Hint, Mode, SegmentOp};
    use rustix::net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketType,
    };

    use super::*;
    use crate::host::deal::{ALONE, COPIED_BYTES, Good};
    use crate::host::far::Opened;
    use crate::host::{Listener, Options};

    const TAG: Tag = Tag {
        index: 0,
        generation: 1,
    };

    fn format() -> FormatOptions {
        FormatOptions {
            size_bytes: Some(16 << 20),
            segments: Some(64),
            ..FormatOptions::default()
        }
    }

    /// A session's first entry.
    fn submit(memory: &SessionMemory, entry: &Submission) {
        let mut submissions = Cursor::default();
        memory.submissions().push(&mut submissions, &entry.encode()).unwrap();
        // The tests wake the broker themselves, whether it sleeps or not.
        let _ = memory.submissions().publish(&submissions);
    }

    /// What the broker has said next, and the descriptor that came with it; no bytes are the end.
    fn heard(socket: &OwnedFd) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let mut inbox = vec![0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [std::io::IoSliceMut::new(&mut inbox)];
        let told = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::DONTWAIT).ok()?;
        let mut rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let fd = rights.next();
        inbox.truncate(told.bytes);
        Some((inbox, fd))
    }

    /// Connects, says hello and is welcomed: the session in the broker's first place.
    fn connected(broker: &mut Broker, path: &Path) -> (OwnedFd, SessionMemory) {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        let hello = Hello {
            version_min: VERSION,
            version_max: VERSION,
            features: 0,
            places: 1,
            arena_bytes: 0,
            volume: String::new(),
        };
        rustix::net::send(&socket, &hello.encode(), SendFlags::NOSIGNAL).unwrap();
        for _ in 0..10_000 {
            broker.begin_round(&mut false);
            broker.turn(false).unwrap();
            let Some((message, fd)) = heard(&socket) else { continue };
            let Ok(FromBroker::Welcome(welcome)) = FromBroker::decode(&message) else {
                panic!("{message:?}")
            };
            let memory = SessionMemory::map(fd.unwrap(), Layout::told(&welcome)).unwrap();
            return (socket, memory);
        }
        panic!("no welcome");
    }

    /// A broker on a simulated machine with a page cache, its disk, and a session with a segment that is open to write.
    fn simulated(path: &Path) -> (Broker, Disk, OwnedFd, SessionMemory, HandleWords) {
        const ROOT: Identity = Identity::new(0, 0);
        let disk = Disk::new(16 << 20);
        let config = EngineOptions {
            arena_bytes: 16 << 20,
            ..EngineOptions::default()
        };
        let file = File::simulated(&disk, "disk");
        let mut engine = Engine::simulated(Sim::new(1).unwrap(), &config).unwrap();
        format_on(&mut engine, &file, &format()).unwrap();
        let engine = Engine::simulated(Sim::new(2).unwrap(), &config).unwrap();
        let mut core = Core::open_on(engine, &file, &config).unwrap();
        core.use_cache(&CacheOptions::of_size(8 << 20)).unwrap();
        core.create(ROOT, 0, "own", &CreateOptions::of_size(1 << 20)).unwrap();
        let (handle, info) = core.open_segment(ROOT, 0, "own", Access::Write).unwrap();
        let listener = Listener::bind(path, 0o600).unwrap();
        let mut broker = Broker::new(core, listener, Options::default()).unwrap();
        let (socket, memory) = connected(&mut broker, path);
        let opened = Opened {
            handle,
            access: Access::Write,
            info,
        };
        let open = broker.sessions[0].as_mut().unwrap().open.as_mut().unwrap();
        let words = open.seat.border.handles.add(opened);
        (broker, disk, socket, memory, words)
    }

    /// A deadline that has passed answers a request that the device has still. It counts until the device is done with it: else whoever sets such
    /// deadlines has no share, but the whole device.
    #[test]
    fn what_was_answered_at_its_deadline_counts_until_the_device_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let (mut broker, disk, _socket, memory, handle) = simulated(&dir.path().join("socket"));
        let slow = Duration::from_millis(200)..Duration::from_millis(201);
        disk.set_faults(Faults::none().chance(Fault::Delay, 1.0).delays(slow));
        let write = Submission {
            handle,
            place: Place::Arena { at: 0, len: 4096 },
            deadline: Some(broker.core.engine().now().after(Duration::from_millis(1))),
            ..Submission::new(Op::Write, TAG)
        };
        submit(&memory, &write);
        broker.wake(0);
        broker.take();
        let at_work = |broker: &Broker| broker.status_of(None).owners[0].in_flight;
        assert_eq!(at_work(&broker), 1);
        let mut completions = Cursor::default();
        let raw = (0..100).find_map(|_| {
            broker.turn(true).unwrap();
            broker.collect();
            broker.publish();
            memory.completions().pop(&mut completions).unwrap()
        });
        let ended = Completion::decode(&raw.expect("an answer")).unwrap();
        assert_eq!(ended.result, Err(Failure::Io(baio_engine::Error::Indeterminate)));
        assert_eq!(at_work(&broker), 1, "the device has it still");
        for _ in 0..100 {
            if at_work(&broker) == 1 {
                broker.turn(true).unwrap();
                broker.collect();
            }
        }
        assert_eq!(at_work(&broker), 0);
    }

    /// A discard is no work for who copies, however long its range is.
    #[test]
    fn what_moves_no_memory_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (mut broker, _disk, _socket, memory, handle) = simulated(&dir.path().join("socket"));
        let len = 512 << 10;
        let discard = Submission {
            handle,
            mode: Mode::Cached,
            ..Submission::of(SegmentOp::Discard { offset: 0, len }, TAG)
        };
        submit(&memory, &discard);
        broker.wake(0);
        broker.take();
        let ration = &broker.owners.at(0).ration;
        assert_eq!(ration.device_bytes, ALONE.bytes - len as i64, "it was not started");
        assert_eq!(ration.copied_bytes, COPIED_BYTES);
    }

    /// The system tells of room when most of the socket is free. Who takes one piece of a long list now and then reads, and is not ended as one
    /// who does not.
    #[test]
    fn who_reads_a_little_reads() {
        let dir = tempfile::tempdir().unwrap();
        let (mut broker, _disk, socket, _memory, _handle) = simulated(&dir.path().join("socket"));
        while heard(&socket).is_some_and(|(message, _)| !message.is_empty()) {}
        broker.options.unread_patience = Duration::ZERO;
        let session = broker.sessions[0].as_deref_mut().unwrap();
        let mut more = 8;
        while more > 0 {
            // Of one length: what is read makes room for the next.
            assert!(session.tell(None, vec![0; 8 << 10], None));
            more -= u32::from(session.owes());
        }
        broker.listen_to(0);
        let is_ended = |broker: &Broker| broker.sessions[0].as_deref().is_none_or(|session| session.is_leaving);
        for _ in 0..3 {
            assert!(heard(&socket).is_some());
            broker.end_unread();
            assert!(!is_ended(&broker), "it has read");
        }
        broker.end_unread();
        assert!(is_ended(&broker));
    }

    /// A hint may go over the same pages again and again, and costs its user as many messages as that takes.
    #[test]
    fn a_hint_costs_what_it_goes_over() {
        let dir = tempfile::tempdir().unwrap();
        let (mut broker, _disk, socket, _memory, handle) = simulated(&dir.path().join("socket"));
        let hint = Hint::Prefetch(vec![0..16; 1024]);
        let handle = handle.into();
        let question = Question::Hint { handle, hint }.encode(1).unwrap();
        broker.take(); // Deals.
        rustix::net::send(&socket, &question, SendFlags::NOSIGNAL).unwrap();
        let answer = (0..10_000).find_map(|_| {
            broker.begin_round(&mut false);
            broker.turn(false).unwrap();
            heard(&socket)
        });
        let (message, _) = answer.expect("an answer");
        let Ok(FromBroker::Answer {
            answer: Answer::Count { value },
            ..
        }) = FromBroker::decode(&message)
        else {
            panic!("{message:?}")
        };
        assert!(value >= 8 * 1024, "{value}");
        let hand = &mut broker.owners.at(0).hand;
        let left = (0..).take_while(|_| hand.take(Good::Messages)).count();
        assert!(left <= 64 - 1 - 8, "{left} messages are left");
    }

    /// A durable write that has ended was told as one of which nobody knows anything, when its session ended before it was shown.
    #[test]
    fn what_has_ended_is_shown_before_the_end_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (image, path) = (dir.path().join("volume.img"), dir.path().join("socket"));
        Core::format(&image, &format()).unwrap();
        let config = EngineOptions {
            backend: Choice::Sync,
            ..EngineOptions::default()
        };
        let core = Core::open(&image, &config).unwrap();
        let listener = Listener::bind(&path, 0o600).unwrap();
        let mut broker = Broker::new(core, listener, Options::default()).unwrap();
        let (socket, memory) = connected(&mut broker, &path);
        submit(&memory, &Submission::new(Op::Sync, TAG));
        // The session is awake still, or the doorbell would have to be heard first. It has ended when it is taken: it names no handle.
        broker.wake(0);
        broker.take();
        rustix::net::send(&socket, &[9; 9], SendFlags::NOSIGNAL).unwrap();
        for _ in 0..10_000 {
            broker.turn(false).unwrap();
            broker.begin_round(&mut false);
            if heard(&socket).is_some_and(|(message, _)| message.is_empty()) {
                break;
            }
        }
        let raw = memory.completions().pop(&mut Cursor::default()).unwrap();
        let ended = Completion::decode(&raw.expect("its end is shown")).unwrap();
        assert_eq!((ended.tag, ended.result), (TAG, Err(Failure::Stale)));
    }
}
