//! Pipes and sockets for the cases: one end a [`File`] for the engine, the other left to the test.

#![allow(unsafe_code)]

use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use baio_engine::{Address, Completion, Engine, Errno, File, Memory, Request, RequestId, Wait};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::backends::{Bench, Stop, blank, next, refused};

/// A descriptor as the engine's file.
pub(crate) fn file(fd: impl Into<OwnedFd>) -> File {
    File::from_fd(fd.into(), "a stream").expect("an open descriptor")
}

/// Where there are only disks there are neither pipes nor sockets.
pub(crate) fn has_streams(bench: &Bench) -> Result<(), Stop> {
    if !bench.has_files() {
        return Err(Stop::Refused("it has disks, no streams".into()));
    }
    Ok(())
}

/// Both ends of a connection over the loopback device.
pub(crate) fn tcp(bench: &Bench) -> Result<(File, TcpStream), Stop> {
    has_streams(bench)?;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let ours = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (theirs, _) = listener.accept().expect("a connection");
    Ok((file(ours), theirs))
}

pub(crate) fn unix(bench: &Bench) -> Result<(File, UnixStream), Stop> {
    has_streams(bench)?;
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    Ok((file(ours), theirs))
}

/// A listener as a file, and where it listens.
pub(crate) fn listener(bench: &Bench) -> Result<(File, Address), Stop> {
    has_streams(bench)?;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = Address::Internet(listener.local_addr().expect("an address"));
    Ok((file(listener), address))
}

pub(crate) fn listener_v6(bench: &Bench) -> Result<(File, Address), Stop> {
    has_streams(bench)?;
    let listener =
        TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).map_err(|error| Stop::Skipped(format!("no IPv6 here: {error}")))?;
    let address = Address::Internet(listener.local_addr().expect("an address"));
    Ok((file(listener), address))
}

pub(crate) fn listener_unix(bench: &Bench) -> Result<(File, Address), Stop> {
    let path = bench.path()?;
    std::fs::remove_file(&path).expect("a name to listen at");
    let listener = UnixListener::bind(&path).map_err(|error| Stop::Skipped(format!("no socket here: {error}")))?;
    Ok((file(listener), Address::Local(path)))
}

/// A socket that is not connected.
pub(crate) fn unconnected(to: &Address) -> File {
    file(unconnected_fd(to, SocketFlags::CLOEXEC))
}

pub(crate) fn unconnected_fd(to: &Address, flags: SocketFlags) -> OwnedFd {
    let family = match to {
        Address::Internet(to) if to.is_ipv6() => AddressFamily::INET6,
        Address::Internet(_) => AddressFamily::INET,
        Address::Local(_) => AddressFamily::UNIX,
    };
    socket_with(family, SocketType::STREAM, flags, None).expect("a socket")
}

pub(crate) fn connect(engine: &Engine, socket: &File, to: &Address) -> Request {
    let address = to.encode(engine.arena()).expect("an address");
    Request::connect(socket, address)
}

/// Two datagram sockets that are connected with one another.
pub(crate) fn datagrams(bench: &Bench) -> Result<(File, UdpSocket), Stop> {
    has_streams(bench)?;
    let [ours, theirs] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    ours.connect(theirs.local_addr().expect("an address"))
        .expect("an address");
    theirs
        .connect(ours.local_addr().expect("an address"))
        .expect("an address");
    Ok((file(ours), theirs))
}

pub(crate) fn unix_datagrams(bench: &Bench) -> Result<(File, UnixDatagram), Stop> {
    has_streams(bench)?;
    let (ours, theirs) = UnixDatagram::pair().expect("a pair of sockets");
    Ok((file(ours), theirs))
}

/// What a pipe holds from now on: little, and a known amount.
pub(crate) const PIPE: u32 = 65536;

pub(crate) fn shrink(pipe: &OwnedFd) {
    // SAFETY: no memory is involved.
    let size = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE as i32) };
    assert_eq!(size, PIPE as i32, "a pipe of that size");
}

/// Submits, and turns until it has completed. A typed refusal ends the case.
pub(crate) fn go(engine: &mut Engine, request: Request) -> Result<Completion, Stop> {
    engine.submit(request).expect("a free slot");
    let done = next(engine);
    refused(&done)?;
    Ok(done)
}

/// Submits, and turns once: it waits now. A typed refusal ends the case.
pub(crate) fn begin(engine: &mut Engine, request: Request) -> Result<RequestId, Stop> {
    let id = engine.submit(request).expect("a free slot");
    // What is refused is known at once, and what is not shall not be taken for it.
    if engine.completed() > 0 {
        let done = next(engine);
        refused(&done)?;
        panic!("it ended at once: {:?}", done.result);
    }
    engine.turn(Wait::No).expect("a turn");
    Ok(id)
}

/// The request fails with one of these.
pub(crate) fn fails(engine: &mut Engine, request: Request, expected: &[Errno]) -> Result<(), Stop> {
    let done = go(engine, request)?;
    let told = done.result.expect_err("it cannot work").errno();
    assert!(expected.contains(&told), "{told:?}, not one of {expected:?}");
    assert_ne!(told.name(), "E?", "an error number without a name");
    Ok(())
}

/// A backend in which requests can wait while the caller goes on.
pub(crate) fn holds_requests(bench: &Bench) -> Result<(), Stop> {
    if bench.ends_in_its_turn() {
        return Err(Stop::Refused("a request has ended when its turn returns".into()));
    }
    Ok(())
}

/// A list of blank buffers of these lengths.
pub(crate) fn blanks(engine: &Engine, lens: impl IntoIterator<Item = usize>) -> Memory {
    let mut list = baio_engine::Vectored::default();
    for len in lens {
        list.push(Memory::Own(blank(engine, len))).expect("a part is no list");
    }
    Memory::Many(list)
}

/// The bytes of a list, joined.
pub(crate) fn joined(memory: &Memory) -> Vec<u8> {
    match memory {
        Memory::Many(list) => list.parts().iter().flat_map(joined).collect(),
        Memory::None => Vec::new(),
        Memory::Span(span) => {
            let mut bytes = vec![0; span.len()];
            span.copy_out(&mut bytes);
            bytes
        }
        flat => crate::backends::bytes_of(flat).to_vec(),
    }
}
