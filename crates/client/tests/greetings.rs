//! The promise: whatever is at the other end of a socket, a client has a session or knows why not, in time, and keeps no descriptor
//! of it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use baio_client::{ConnectError, Session, Wishes};
use baio_ring::SessionMemory;
use baio_words::session::{FromClient, VERSION, Welcome};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a broker would say; and its memory.
fn welcome(places: u32) -> (Welcome, SessionMemory) {
    let memory = SessionMemory::create(places, 1 << 20).unwrap();
    let layout = *memory.layout();
    let welcome = Welcome {
        version: VERSION,
        features: 0,
        places,
        questions_max: 4,
        uid: 7,
        memory_bytes: layout.bytes,
        submissions: layout.submissions,
        completions: layout.completions,
        arena_at: layout.arena_at,
        arena_bytes: layout.arena_bytes,
        volume: "served".into(),
        cached: false,
        block_size: 4096,
    };
    (welcome, memory)
}

/// What comes of a greeting that is answered so, with so many descriptors.
fn answered(message: &[u8], fds: &[&OwnedFd]) -> Result<Session, ConnectError> {
    answered_where(message, fds, |connect| connect())
}

/// The same where something holds while the client connects.
fn answered_where<T>(
    message: &[u8],
    fds: &[&OwnedFd],
    holds: impl FnOnce(&mut dyn FnMut() -> Result<Session, ConnectError>) -> T,
) -> T {
    answered_to(&Wishes::default(), message, fds, holds)
}

/// The same to a client that would like this.
fn answered_to<T>(
    wishes: &Wishes,
    message: &[u8],
    fds: &[&OwnedFd],
    holds: impl FnOnce(&mut dyn FnMut() -> Result<Session, ConnectError>) -> T,
) -> T {
    let flags = SocketFlags::CLOEXEC;
    let (here, there) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&fds));
    }
    let bytes = [std::io::IoSlice::new(message)];
    rustix::net::sendmsg(&there, &bytes, &mut control, SendFlags::empty()).unwrap();
    let mut here = Some(here);
    let session = holds(&mut || Session::over(here.take().unwrap(), wishes));
    let mut hello = [0; 256];
    let (_, len) = rustix::net::recv(&there, &mut hello, RecvFlags::empty()).unwrap();
    assert!(matches!(FromClient::decode(&hello[..len]), Ok(FromClient::Hello(_))));
    session
}

fn descriptor(memory: &SessionMemory) -> OwnedFd {
    memory.region().fd().try_clone_to_owned().unwrap()
}

#[track_caller]
fn refused(session: Result<Session, ConnectError>, code: &str, what: &str) {
    let error = session.unwrap_err();
    assert_eq!(error.errno.name(), code, "{error}");
    assert!(error.to_string().contains(what), "{error}");
    assert!(error.need.is_some() && error.cure.is_some(), "{error}");
}

#[test]
fn a_welcome_with_its_memory_is_a_session() {
    let (welcome, memory) = welcome(8);
    let session = answered(&welcome.encode(), &[&descriptor(&memory)]).unwrap();
    assert_eq!(session.welcome, welcome);
    assert_eq!(session.memory.layout(), memory.layout());
}

#[test]
fn whatever_else_comes_is_none() {
    let (good, memory) = welcome(8);
    let fd = descriptor(&memory);
    let with = |change: fn(&mut Welcome)| {
        let mut welcome = good.clone();
        change(&mut welcome);
        answered(&welcome.encode(), &[&fd])
    };
    refused(answered(b"hello", &[]), "EPROTO", "no sense");
    refused(answered(&[1], &[]), "EPROTO", "greeting");
    refused(answered(&good.encode(), &[]), "EPROTO", "descriptor");
    refused(with(|welcome| welcome.version = 9), "EPROTONOSUPPORT", "version 9");
    refused(with(|welcome| welcome.places = 9), "EPROTO", "no room");
    refused(with(|welcome| welcome.places = 0), "EPROTO", "no room");
    refused(with(|welcome| welcome.arena_at += 8), "EPROTO", "arena");
    refused(with(|welcome| welcome.memory_bytes *= 2), "EPROTO", "memory");
}

/// A client keeps memory for each place.
#[test]
fn more_places_than_were_asked_for_are_refused() {
    let (eight, memory) = welcome(8);
    let fd = descriptor(&memory);
    let asked = |places| {
        let wishes = Wishes {
            places,
            ..Wishes::default()
        };
        answered_to(&wishes, &eight.encode(), &[&fd], |connect| connect())
    };
    for places in [0, 8, 9] {
        assert_eq!(asked(places).unwrap().welcome.places, 8);
    }
    refused(asked(7), "EPROTO", "8 requests in flight, where 7");
    let (mut many, memory) = welcome(8);
    many.places = (1 << 20) + 1;
    refused(
        answered(&many.encode(), &[&descriptor(&memory)]),
        "EPROTO",
        "1048577 requests in flight, where 1048576",
    );
}

/// Of descriptors too many none is kept.
#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    let (welcome, memory) = welcome(8);
    let (end, begin) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let session = answered(&welcome.encode(), &[&descriptor(&memory), &begin]);
    refused(session, "EPROTO", "descriptor");
    // Nobody has the pipe's other end any more: it ends.
    drop(begin);
    assert_eq!(rustix::io::read(&end, &mut [0_u8; 8]), Ok(0));
}

#[test]
fn nobody_answers() {
    let flags = SocketFlags::CLOEXEC;
    let pair = || rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let (here, silent) = pair();
    let wishes = Wishes {
        patience: Duration::from_millis(20),
        ..Wishes::default()
    };
    refused(Session::over(here, &wishes), "ETIMEDOUT", "does not answer");
    drop(silent);
    let (here, gone) = pair();
    drop(gone);
    refused(Session::over(here, &wishes), "ECONNRESET", "closed the connection");
    let (stream, _other) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    refused(Session::over(stream, &wishes), "EPROTOTYPE", "handed on");
    refused(
        Session::connect(Path::new("/nowhere/socket"), &wishes),
        "ENOENT",
        "/nowhere/socket",
    );
}

const FEW: &str = "BAIO_FEW_DESCRIPTORS";

/// A number for each descriptor of a session may be lacking: that is no fault of the broker's. In a process of its own, whose limit is lowered.
#[test]
fn who_has_no_descriptor_left_is_told_so() {
    const TEST: &str = "who_has_no_descriptor_left_is_told_so";
    if std::env::var_os(FEW).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", TEST, "--nocapture"]).env(FEW, "1").status();
        assert!(child.unwrap().success());
        return;
    }
    let (good, memory) = welcome(8);
    let fd = descriptor(&memory);
    for more in 0.. {
        let session = answered_where(&good.encode(), &[&fd], |connect| {
            let limit = getrlimit(Resource::Nofile);
            let next = baio_process::descriptor::duplicate(&fd).unwrap().as_raw_fd() as u64;
            let current = Some(next + more);
            setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
            let session = connect();
            setrlimit(Resource::Nofile, limit).unwrap();
            session
        });
        if session.is_ok() {
            assert!(more > 1, "the memory and the bell need one each");
            return;
        }
        let cure = session.as_ref().err().and_then(|error| error.cure.clone());
        assert!(
            cure.is_some_and(|cure| cure.contains("ulimit -n")),
            "{more}: {session:?}"
        );
        refused(session, "EMFILE", "EMFILE");
    }
}
