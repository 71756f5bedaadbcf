//! Connections are made and taken, and what stands in their way is told.

use std::io::Write;
use std::net::TcpStream;

use baio_engine::{Address, Errno, File, Memory, Request};
use rustix::net::SocketFlags;

use crate::backends::{Bench, Case, blank, buffer, bytes_of, next};
use crate::streams::{
    blanks, connect, fails, file, has_streams, holds_requests, listener, listener_unix, listener_v6, tcp, unconnected,
    unconnected_fd,
};

/// Connects and accepts, both by the engine, and sends a word each way.
fn meets(bench: &Bench, (listener, to): (File, Address)) -> Case {
    holds_requests(bench)?;
    let mut engine = bench.engine();
    begin!(engine, Request::accept(&listener).tagged(1))?;
    let ours = unconnected(&to);
    let request = connect(&engine, &ours, &to).tagged(2);
    engine.submit(request).expect("a slot");
    let mut theirs = None;
    for _ in 0..2 {
        let done = next(&mut engine);
        assert_eq!(done.result, Ok(0), "{done:?}");
        assert_eq!(done.accepted.is_some(), done.tag == 1);
        theirs = theirs.or(done.accepted);
    }
    let theirs = theirs.expect("the connection");
    for (from, into) in [(&ours, &theirs), (&theirs, &ours)] {
        let word = Request::send(from, buffer(&engine, b"a word"));
        assert_eq!(go!(engine, word)?.result, Ok(6));
        let done = go!(engine, Request::receive(into, blank(&engine, 64)))?;
        assert_eq!((done.result, &bytes_of(&done.memory)[..6]), (Ok(6), &b"a word"[..]));
    }
    Ok(())
}

pub(crate) fn a_connection_is_made_and_taken(bench: &Bench) -> Case {
    meets(bench, listener(bench)?)
}

pub(crate) fn a_connection_is_made_and_taken_over_ipv6(bench: &Bench) -> Case {
    meets(bench, listener_v6(bench)?)
}

pub(crate) fn a_connection_is_made_and_taken_over_a_unix_socket(bench: &Bench) -> Case {
    meets(bench, listener_unix(bench)?)
}

fn dial(to: &Address) -> TcpStream {
    let Address::Internet(to) = to else {
        unreachable!("an internet address")
    };
    TcpStream::connect(to).expect("a connection")
}

pub(crate) fn connections_that_wait_are_taken_one_by_one(bench: &Bench) -> Case {
    let (listener, to) = listener(bench)?;
    let mut engine = bench.engine();
    let mut peers: Vec<_> = (0..20).map(|_| dial(&to)).collect();
    for (byte, peer) in peers.iter_mut().enumerate() {
        peer.write_all(&[byte as u8]).expect("a socket");
    }
    let mut seen = Vec::new();
    for _ in 0..20 {
        let socket = go!(engine, Request::accept(&listener))?.accepted.expect("a connection");
        let done = go!(engine, Request::receive(&socket, blank(&engine, 4)))?;
        seen.push(bytes_of(&done.memory)[0]);
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..20));
    Ok(())
}

pub(crate) fn accepts_that_wait_together_take_one_each(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (listener, to) = listener(bench)?;
    let mut engine = bench.engine();
    for tag in 0..8 {
        begin!(engine, Request::accept(&listener).tagged(tag))?;
    }
    let _peers: Vec<_> = (0..8).map(|_| dial(&to)).collect();
    let mut told: Vec<_> = (0..8)
        .map(|_| next(&mut engine))
        .map(|done| (done.tag, done.accepted.is_some()))
        .collect();
    told.sort_unstable();
    assert_eq!(told, [0, 1, 2, 3, 4, 5, 6, 7].map(|tag| (tag, true)));
    Ok(())
}

pub(crate) fn a_non_blocking_listener_is_waited_for(bench: &Bench) -> Case {
    holds_requests(bench)?;
    has_streams(bench)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    listener.set_nonblocking(true).expect("a listener");
    let to = Address::Internet(listener.local_addr().expect("an address"));
    let mut engine = bench.engine();
    begin!(engine, Request::accept(&file(listener)))?;
    let _peer = dial(&to);
    let done = next(&mut engine);
    assert!(
        done.result == Ok(0) && done.accepted.is_some() && done.iterations < 5,
        "{done:?}"
    );
    Ok(())
}

pub(crate) fn an_accepted_socket_is_closed_in_programs_that_are_started(bench: &Bench) -> Case {
    let (listener, to) = listener(bench)?;
    let mut engine = bench.engine();
    let _peer = dial(&to);
    let before = open_without_cloexec();
    let _accepted = go!(engine, Request::accept(&listener))?.accepted.expect("a connection");
    // Other threads open and close descriptors, but every one of them with O_CLOEXEC.
    assert!(open_without_cloexec() <= before, "a descriptor would be inherited");
    Ok(())
}

/// Sockets of this process that a program it starts would inherit.
fn open_without_cloexec() -> usize {
    let entries = std::fs::read_dir("/proc/self/fdinfo").expect("procfs");
    let inherited = |entry: &std::fs::DirEntry| {
        let number = entry.file_name();
        let target = std::fs::read_link(std::path::Path::new("/proc/self/fd").join(&number));
        let is_socket = target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        // Another thread may have closed it since.
        let Ok(text) = std::fs::read_to_string(entry.path()) else {
            return false;
        };
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = i32::from_str_radix(flags.expect("flags").trim(), 8).expect("an octal number");
        is_socket && flags & libc::O_CLOEXEC == 0
    };
    entries.flatten().filter(inherited).count()
}

pub(crate) fn a_refused_connection_is_told(bench: &Bench) -> Case {
    let (listener, to) = listener(bench)?;
    drop(listener);
    let mut engine = bench.engine();
    let request = connect(&engine, &unconnected(&to), &to);
    fails(&mut engine, request, &[Errno::ECONNREFUSED])
}

pub(crate) fn a_unix_socket_that_is_not_there_is_told(bench: &Bench) -> Case {
    let to = Address::Local(bench.path()?.with_extension("missing"));
    let mut engine = bench.engine();
    let request = connect(&engine, &unconnected(&to), &to);
    fails(&mut engine, request, &[Errno::ENOENT])
}

pub(crate) fn a_unix_socket_without_a_listener_refuses(bench: &Bench) -> Case {
    let (listener, to) = listener_unix(bench)?;
    drop(listener);
    let mut engine = bench.engine();
    let request = connect(&engine, &unconnected(&to), &to);
    fails(&mut engine, request, &[Errno::ECONNREFUSED])
}

pub(crate) fn an_address_of_another_family_is_told(bench: &Bench) -> Case {
    let (_listener, to) = listener(bench)?;
    let local = Address::Local("/nowhere".into());
    let mut engine = bench.engine();
    let request = connect(&engine, &unconnected(&local), &to);
    fails(&mut engine, request, &[Errno::EAFNOSUPPORT, Errno::EINVAL])
}

pub(crate) fn a_connect_without_an_address_is_told(bench: &Bench) -> Case {
    let (_listener, to) = listener(bench)?;
    let mut engine = bench.engine();
    let request = Request::connect(&unconnected(&to), Memory::None);
    fails(&mut engine, request, &[Errno::EINVAL, Errno::EFAULT])?;
    let list = blanks(&engine, [16]);
    let request = Request::connect(&unconnected(&to), list);
    fails(&mut engine, request, &[Errno::EINVAL, Errno::EFAULT])
}

pub(crate) fn a_second_connect_is_told(bench: &Bench) -> Case {
    let (listener, to) = listener(bench)?;
    let mut engine = bench.engine();
    let socket = unconnected(&to);
    let request = connect(&engine, &socket, &to);
    assert_eq!(go!(engine, request)?.result, Ok(0));
    let request = connect(&engine, &socket, &to);
    fails(&mut engine, request, &[Errno::EISCONN])?;
    drop(listener);
    Ok(())
}

pub(crate) fn a_non_blocking_socket_is_connected_all_the_same(bench: &Bench) -> Case {
    let (_listener, to) = listener(bench)?;
    let mut engine = bench.engine();
    let socket = file(unconnected_fd(&to, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC));
    let request = connect(&engine, &socket, &to);
    assert_eq!(go!(engine, request)?.result, Ok(0));
    assert_eq!(
        go!(engine, Request::send(&socket, buffer(&engine, b"hello")))?.result,
        Ok(5)
    );
    Ok(())
}

pub(crate) fn a_non_blocking_socket_that_is_refused_is_told(bench: &Bench) -> Case {
    let (listener, to) = listener(bench)?;
    drop(listener);
    let mut engine = bench.engine();
    let socket = file(unconnected_fd(&to, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC));
    let request = connect(&engine, &socket, &to);
    fails(&mut engine, request, &[Errno::ECONNREFUSED])
}

pub(crate) fn an_accept_on_what_does_not_listen_is_told(bench: &Bench) -> Case {
    let (socket, _peer) = tcp(bench)?;
    let mut engine = bench.engine();
    fails(&mut engine, Request::accept(&socket), &[Errno::EINVAL])?;
    let (pipe, _writer) = bench.pipe()?;
    fails(&mut engine, Request::accept(&pipe), &[Errno::ENOTSOCK])
}

pub(crate) fn a_pipe_is_no_socket(bench: &Bench) -> Case {
    let (pipe, _writer) = bench.pipe()?;
    let mut engine = bench.engine();
    let request = Request::receive(&pipe, blank(&engine, 16));
    fails(&mut engine, request, &[Errno::ENOTSOCK])?;
    let request = Request::send(&pipe, blank(&engine, 16));
    fails(&mut engine, request, &[Errno::ENOTSOCK])
}

pub(crate) fn a_socket_that_is_not_connected_is_told(bench: &Bench) -> Case {
    let (_listener, to) = listener(bench)?;
    let mut engine = bench.engine();
    let socket = unconnected(&to);
    let request = Request::receive(&socket, blank(&engine, 16));
    fails(&mut engine, request, &[Errno::ENOTCONN])?;
    let request = Request::send(&socket, blank(&engine, 16));
    fails(&mut engine, request, &[Errno::EPIPE, Errno::ENOTCONN])
}
