//! A client written from the page of the protocol. It checks nothing that it sends.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use baio_ring::ring::Cursor;
use baio_ring::{Layout, SessionMemory};
use baio_words::entry::{Completion, HandleWords, Op, Place, RawSubmission, Submission, Tag};
use baio_words::session::{Answer, DOORBELL, Failed, FromBroker, Hello, MESSAGE_MAX, Question, Welcome};
use baio_words::{Access, CreateOptions, OperationName, SegmentInfo};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// So long nothing takes that works: who waits longer has found a fault.
pub(crate) const GUARD: Duration = Duration::from_secs(60);
/// Length of the requests of most stories.
pub(crate) const BLOCK: u32 = 4096;

/// The oldest and newest version that this speaks, and nothing wanted beside.
pub(crate) fn hello() -> Hello {
    Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        places: 0,
        arena_bytes: 0,
        volume: String::new(),
    }
}

/// The fields of a question to create a segment, of one's own user.
pub(crate) fn create(owner_uid: u32, name: &str, size_bytes: u64) -> Question {
    Question::Create {
        operation: OperationName::NONE,
        owner_uid,
        name: name.to_owned(),
        options: CreateOptions::of_size(size_bytes),
    }
}

/// A socket to the broker.
pub(crate) struct Wire(pub(crate) OwnedFd);

/// What comes from it.
#[derive(Debug)]
pub(crate) enum Told {
    Message(FromBroker, Vec<OwnedFd>),
    End,
}

impl Wire {
    pub(crate) fn connect(path: &Path) -> Wire {
        let kind = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, kind, None).unwrap();
        rustix::net::connect(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Wire::of(fd)
    }

    /// A socket that somebody hands over.
    pub(crate) fn of(fd: OwnedFd) -> Wire {
        rustix::io::ioctl_fionbio(&fd, false).unwrap();
        set_socket_timeout(&fd, Timeout::Recv, Some(GUARD)).unwrap();
        set_socket_timeout(&fd, Timeout::Send, Some(GUARD)).unwrap();
        Wire(fd)
    }

    /// False when the broker has gone.
    pub(crate) fn send(&self, datagram: &[u8]) -> bool {
        rustix::net::send(&self.0, datagram, SendFlags::NOSIGNAL).is_ok()
    }

    /// The same without waiting for room.
    pub(crate) fn try_send(&self, datagram: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.0, datagram, flags).is_ok()
    }

    /// Sends when there is room. False: nobody makes any, for so long that nobody will.
    pub(crate) fn sends_at_last(&self, datagram: &[u8]) -> bool {
        self.try_send(datagram) || self.has_room_at_last() && self.try_send(datagram)
    }

    /// Is most of the socket free, or does it come to be?
    pub(crate) fn has_room_at_last(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let patience = Timespec {
            tv_sec: 0,
            tv_nsec: 300_000_000,
        };
        let mut room = [PollFd::new(&self.0, PollFlags::OUT)];
        poll(&mut room, Some(&patience)) == Ok(1)
    }

    pub(crate) fn send_with(&self, datagram: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        let parts = [std::io::IoSlice::new(datagram)];
        rustix::net::sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL).is_ok()
    }

    /// Has anything come that was not received?
    pub(crate) fn has_something(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    pub(crate) fn receive(&self) -> Told {
        let mut inbox = vec![0; MESSAGE_MAX + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [std::io::IoSliceMut::new(&mut inbox)];
            match rustix::net::recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received,
            }
        };
        let len = match received {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(errno) => panic!("nothing came from the broker: {errno}"),
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        match len {
            0 => Told::End,
            len => Told::Message(FromBroker::decode(&inbox[..len]).expect("what the page allows"), fds),
        }
    }

    /// What the broker says to this hello.
    pub(crate) fn greet(self, hello: &Hello) -> Result<Client, Box<Failed>> {
        assert!(self.send(&hello.encode()));
        self.greeted()
    }

    /// What the broker says to a hello that was sent.
    pub(crate) fn greeted(self) -> Result<Client, Box<Failed>> {
        match self.receive() {
            Told::Message(FromBroker::Welcome(welcome), mut fds) => {
                assert_eq!(fds.len(), 1, "the memory, and nothing else");
                Ok(Client::new(self, welcome, fds.remove(0)))
            }
            Told::Message(FromBroker::Answer { id: 0, answer }, fds) => {
                assert!(fds.is_empty());
                let Answer::Failed(failed) = answer else {
                    panic!("{answer:?}")
                };
                assert!(matches!(self.receive(), Told::End), "refused, and still connected");
                Err(failed)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The broker ends this connection: whatever it still says first.
    pub(crate) fn goes_out(&self, what: &str) {
        for _ in 0..10_000 {
            if matches!(self.receive(), Told::End) {
                return;
            }
        }
        panic!("{what}: the broker goes on");
    }
}

/// A session.
pub(crate) struct Client {
    pub(crate) wire: Wire,
    pub(crate) memory: SessionMemory,
    pub(crate) welcome: Welcome,
    pub(crate) submissions: Cursor,
    completions: Cursor,
    answers: VecDeque<(u32, Answer, Vec<OwnedFd>)>,
    ids: u32,
    generations: u32,
}

impl Client {
    fn new(wire: Wire, welcome: Welcome, fd: OwnedFd) -> Client {
        Client {
            wire,
            memory: SessionMemory::map(fd, Layout::told(&welcome)).unwrap(),
            welcome,
            submissions: Cursor::default(),
            completions: Cursor::default(),
            answers: VecDeque::new(),
            ids: 0,
            generations: 0,
        }
    }

    pub(crate) fn uid(&self) -> u32 {
        self.welcome.uid
    }

    /// A word of the memory, to be scribbled over.
    pub(crate) fn word(&self, at: u64) -> &AtomicU32 {
        self.memory.region().word(at).unwrap()
    }

    pub(crate) fn memfd(&self) -> BorrowedFd<'_> {
        self.memory.region().fd()
    }

    /// Ids of questions begin anew here.
    pub(crate) fn ids_from(&mut self, id: u32) {
        self.ids = id;
    }

    /// Sends a question; its id.
    pub(crate) fn pose(&mut self, question: &Question) -> u32 {
        assert!(self.poses(question), "{question:?}");
        self.ids
    }

    /// Sends one, if the broker still hears this client.
    pub(crate) fn poses(&mut self, question: &Question) -> bool {
        self.ids = self.ids.wrapping_add(1);
        self.wire.send(&question.encode(self.ids).unwrap())
    }

    /// The next answer to this question, with what came with it.
    pub(crate) fn answer_with(&mut self, id: u32) -> (Answer, Vec<OwnedFd>) {
        loop {
            if let Some(at) = self.answers.iter().position(|(known, ..)| *known == id) {
                let (_, answer, fds) = self.answers.remove(at).unwrap();
                return (answer, fds);
            }
            assert!(self.hear(), "the session has ended");
        }
    }

    pub(crate) fn answer(&mut self, id: u32) -> Answer {
        let (answer, fds) = self.answer_with(id);
        assert!(fds.is_empty());
        answer
    }

    pub(crate) fn ask(&mut self, question: &Question) -> Answer {
        let id = self.pose(question);
        self.answer(id)
    }

    /// Waits for a datagram. False: the session has ended.
    pub(crate) fn hear(&mut self) -> bool {
        match self.wire.receive() {
            Told::Message(FromBroker::Doorbell, _) => true,
            Told::Message(FromBroker::Answer { id, answer }, fds) => {
                self.answers.push_back((id, answer, fds));
                true
            }
            Told::Message(FromBroker::Welcome(_), _) => panic!("a second welcome"),
            Told::End => false,
        }
    }

    /// Takes in what has come; how many answers nobody has looked at.
    pub(crate) fn arrived(&mut self) -> usize {
        while self.wire.has_something() && self.hear() {}
        self.answers.len()
    }

    /// Answers that came and were not asked for by [`Client::answer`].
    pub(crate) fn other_answers(&self) -> usize {
        self.answers.len()
    }

    /// The code of a failure.
    pub(crate) fn refusal(&mut self, question: &Question) -> String {
        match self.ask(question) {
            Answer::Failed(failed) => failed.code,
            other => panic!("{question:?} was answered: {other:?}"),
        }
    }

    pub(crate) fn create(&mut self, name: &str, size_bytes: u64) -> SegmentInfo {
        let answer = self.ask(&create(self.uid(), name, size_bytes));
        let Answer::Segment { info } = answer else {
            panic!("{answer:?}")
        };
        info
    }

    pub(crate) fn open(&mut self, name: &str, access: Access) -> HandleWords {
        self.open_of(self.uid(), name, access).unwrap()
    }

    pub(crate) fn open_of(&mut self, owner_uid: u32, name: &str, access: Access) -> Result<HandleWords, String> {
        let name = name.to_owned();
        let question = Question::Open {
            owner_uid,
            name,
            access,
        };
        match self.ask(&question) {
            Answer::Opened { handle, .. } => Ok(handle.into()),
            Answer::Failed(failed) => Err(failed.code),
            other => panic!("{other:?}"),
        }
    }

    /// A new segment, open to write.
    pub(crate) fn made(&mut self, name: &str, size_bytes: u64) -> HandleWords {
        self.create(name, size_bytes);
        self.open(name, Access::Write)
    }

    /// The same, if it is not there yet.
    pub(crate) fn made_once(&mut self, name: &str, size_bytes: u64) -> HandleWords {
        self.ask(&create(self.uid(), name, size_bytes));
        self.open(name, Access::Write)
    }

    /// A tag for this place, of its own.
    pub(crate) fn tag(&mut self, place: u32) -> Tag {
        self.generations += 1;
        Tag {
            index: place,
            generation: self.generations,
        }
    }

    /// An entry with a block of memory at the place's own part of the arena.
    pub(crate) fn entry(&mut self, op: Op, place: u32, handle: HandleWords, offset: u64) -> Submission {
        Submission {
            handle,
            offset,
            place: match op {
                Op::Read | Op::Write => Place::Arena {
                    at: u64::from(place) * u64::from(BLOCK),
                    len: BLOCK,
                },
                _ => Place::Nowhere,
            },
            ..Submission::new(op, self.tag(place))
        }
    }

    /// Pushes entries; nobody sees them before [`Client::publish`].
    pub(crate) fn push(&mut self, entry: &RawSubmission) {
        let pushed = self.memory.submissions().push(&mut self.submissions, entry);
        pushed.expect("room in the ring");
    }

    /// The same if there is room.
    pub(crate) fn try_push(&mut self, entry: &RawSubmission) -> bool {
        self.memory.submissions().push(&mut self.submissions, entry).is_ok()
    }

    pub(crate) fn publish(&mut self) {
        if self.memory.submissions().publish(&self.submissions) {
            self.ring();
        }
    }

    pub(crate) fn ring(&self) {
        self.wire.try_send(&DOORBELL);
    }

    pub(crate) fn submit(&mut self, entry: &Submission) {
        self.push(&entry.encode());
        self.publish();
    }

    pub(crate) fn submit_raw(&mut self, entry: &RawSubmission) {
        self.push(entry);
        self.publish();
    }

    /// The next completion; `None` when the session has ended.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.posted() {
                return Some(completion);
            }
            if !self.memory.completions().fall_asleep(&self.completions) {
                continue;
            }
            let goes_on = self.hear();
            self.memory.completions().wake_up();
            if !goes_on {
                return self.posted();
            }
        }
    }

    /// A completion that is in the ring.
    pub(crate) fn posted(&mut self) -> Option<Completion> {
        let ring = self.memory.completions();
        let raw = ring.pop(&mut self.completions).expect("a ring that can be")?;
        ring.release(&self.completions);
        Some(Completion::decode(&raw).expect("what the page allows"))
    }

    /// Runs one request to its end.
    pub(crate) fn run(&mut self, entry: &Submission) -> Completion {
        self.submit(entry);
        let ended = self.next().expect("the session goes on");
        assert_eq!(ended.tag, entry.tag);
        ended
    }

    /// The same for one that may end the session: `None`.
    pub(crate) fn try_run(&mut self, entry: &Submission) -> Option<Completion> {
        self.memory
            .submissions()
            .push(&mut self.submissions, &entry.encode())
            .ok()?;
        self.publish();
        self.next()
    }

    /// Writes these bytes from place 0's part of the arena.
    pub(crate) fn write(&mut self, handle: HandleWords, offset: u64, bytes: &[u8]) -> Completion {
        self.memory.arena().unwrap().copy_in(bytes);
        let len = bytes.len() as u32;
        let entry = Submission {
            place: Place::Arena { at: 0, len },
            ..self.entry(Op::Write, 0, handle, offset)
        };
        self.run(&entry)
    }

    /// Reads so many bytes by way of place 0's part of the arena.
    pub(crate) fn read(&mut self, handle: HandleWords, offset: u64, len: u32) -> (Completion, Vec<u8>) {
        let entry = Submission {
            place: Place::Arena { at: 0, len },
            ..self.entry(Op::Read, 0, handle, offset)
        };
        let ended = self.run(&entry);
        let mut bytes = vec![0; len as usize];
        self.memory.arena().unwrap().copy_out(&mut bytes);
        (ended, bytes)
    }

    pub(crate) fn sync(&mut self, handle: HandleWords) -> Completion {
        let entry = Submission {
            durability: baio_words::Durability::Data,
            ..self.entry(Op::Sync, 0, handle, 0)
        };
        self.run(&entry)
    }

    pub(crate) fn close(&mut self, handle: HandleWords) {
        self.submit(&Submission {
            handle,
            ..Submission::new(Op::CloseHandle, Tag::default())
        });
    }

    /// Waits until the broker has taken all that was submitted.
    pub(crate) fn is_taken(&mut self) {
        let head = self.word(self.welcome.submissions.head);
        let tail = self.word(self.welcome.submissions.tail);
        crate::house::until("the broker takes what is in the ring", || {
            head.load(Ordering::Acquire) == tail.load(Ordering::Relaxed)
        });
    }

    /// What this client did ends its session.
    pub(crate) fn goes_out(&self, what: &str) {
        self.wire.goes_out(what);
    }
}
