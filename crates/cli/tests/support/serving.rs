//! Clients of a broker: tests that run again as such, and one that speaks through the socket alone.

use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::task::Poll;

use baio_words::session::{
    Answer, BrokerStatus, FromBroker, Hello, MESSAGE_MAX, OwnerStatus, Question, VERSION, Welcome,
};
use baio_words::{CreateOptions, OperationName};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix};

use crate::support::TestName;
use crate::support::server::packets;

/// How often, if the environment says nothing else.
pub(crate) fn times(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |times| times.parse().unwrap())
}

/// Numbers that look random, the same for each seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }
}

/// What each of these comes to, when all have.
pub(crate) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut each: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut each {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        match each.iter().all(|(_, output)| output.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    each.into_iter().filter_map(|(_, output)| output).collect()
}

const ROLE: &str = "BAIO_TEST_CHILD";

/// What this process was told to do, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Makes this command, which runs a copy of this test binary, a child that does what `role` says in the test of that name. Standard
/// error is its line to us: the test runner writes nothing there by itself.
pub(crate) fn as_child<'a>(command: &'a mut Command, test: TestName, role: &str) -> &'a mut Command {
    command
        .args([test.0, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
}

/// A session of which only the socket is used.
pub(crate) struct Talk {
    socket: OwnedFd,
    pub(crate) welcome: Welcome,
    ids: u32,
    /// It must stay, or the memory would go.
    _memory: Vec<OwnedFd>,
}

impl Talk {
    /// `None`: the broker is not there, or does not want us.
    pub(crate) fn connect(path: &Path) -> Option<Talk> {
        let socket = packets();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
        Talk::greet(socket)
    }

    /// Says hello on a socket that is connected.
    pub(crate) fn greet(socket: OwnedFd) -> Option<Talk> {
        rustix::io::ioctl_fionbio(&socket, false).unwrap();
        says_hello(&socket, "").ok()?;
        match hear(&socket)? {
            (FromBroker::Welcome(welcome), memory) => Some(Talk {
                socket,
                welcome,
                ids: 0,
                _memory: memory,
            }),
            _ => None,
        }
    }

    /// Sends a question, and does not wait. False: the broker has gone.
    pub(crate) fn pose(&mut self, question: &Question) -> bool {
        self.ids += 1;
        let question = question.encode(self.ids).unwrap();
        rustix::net::send(&self.socket, &question, SendFlags::NOSIGNAL).is_ok()
    }

    /// Its answer, with what came with it. `None`: the broker has gone.
    pub(crate) fn ask(&mut self, question: &Question) -> Option<(Answer, Vec<OwnedFd>)> {
        if !self.pose(question) {
            return None;
        }
        loop {
            match hear(&self.socket)? {
                (FromBroker::Answer { id, answer }, fds) if id == self.ids => return Some((answer, fds)),
                _ => {}
            }
        }
    }

    /// Waits until the broker has gone.
    pub(crate) fn hears_the_end(&mut self) {
        while hear(&self.socket).is_some() {}
    }

    pub(crate) fn create(&self, name: &str, size_bytes: u64) -> Question {
        Question::Create {
            operation: OperationName::NONE,
            owner_uid: self.welcome.uid,
            name: name.to_owned(),
            options: CreateOptions::of_size(size_bytes),
        }
    }

    pub(crate) fn status(&mut self) -> BrokerStatus {
        match self.ask(&Question::Status) {
            Some((Answer::Status(status), _)) => status,
            other => panic!("{other:?}"),
        }
    }

    /// The row of its own user.
    pub(crate) fn row(&mut self) -> OwnerStatus {
        let uid = self.welcome.uid;
        let status = self.status();
        *status.owners.iter().find(|row| row.uid == uid).expect("a row")
    }
}

/// Asks for the volume of this name; what comes back is still to be heard.
pub(crate) fn says_hello(socket: &OwnedFd, volume: &str) -> rustix::io::Result<()> {
    let hello = Hello {
        version_min: VERSION,
        version_max: VERSION,
        features: 0,
        places: 4,
        arena_bytes: 0,
        volume: volume.to_owned(),
    };
    rustix::net::send(socket, &hello.encode(), SendFlags::NOSIGNAL).map(drop)
}

/// The next message, and what came with it; `None` when the broker has gone.
pub(crate) fn hear(socket: &OwnedFd) -> Option<(FromBroker, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let received = rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC);
    let len = received.map_or(0, |message| message.bytes);
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    (len > 0).then(|| (FromBroker::decode(&bytes[..len]).unwrap(), fds))
}
