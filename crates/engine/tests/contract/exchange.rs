//! Bytes and datagrams go through sockets, and what a peer does is told.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use baio_engine::{Errno, Error, File, Memory, Op, Patience, Policy, Request, Wait};
use rustix::net::SocketFlags;

use crate::backends::{Bench, Case, Stop, blank, buffer, bytes_of, next, own, pattern, refused};
use crate::streams::{blanks, datagrams, fails, file, has_streams, holds_requests, joined, tcp, unix, unix_datagrams};

fn flagged(op: Op, socket: &File, memory: impl Into<Memory>) -> Request {
    Request {
        memory: memory.into(),
        ..Request::bare(op, Some(socket), Policy::kernel())
    }
}

fn receive(flags: i32, socket: &File, memory: impl Into<Memory>) -> Request {
    flagged(Op::Receive { flags: flags as u32 }, socket, memory)
}

fn send(flags: i32, socket: &File, memory: impl Into<Memory>) -> Request {
    flagged(Op::Send { flags: flags as u32 }, socket, memory)
}

/// The loopback device needs a moment; an engine's request waits for it, the test's own calls must, too.
fn readable(fd: impl AsFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).expect("poll");
    assert_eq!(ready, 1, "nothing came");
}

pub(crate) fn a_receive_returns_what_there_is(bench: &Bench) -> Case {
    let (ours, mut theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    for text in ["hello", "a second helping"] {
        theirs.write_all(text.as_bytes()).expect("a socket");
        let done = go!(engine, Request::receive(&ours, blank(&engine, 4096)))?;
        assert_eq!(done.result, Ok(text.len() as u32));
        assert_eq!(&bytes_of(&done.memory)[..text.len()], text.as_bytes());
    }
    Ok(())
}

pub(crate) fn a_receive_of_less_leaves_the_rest(bench: &Bench) -> Case {
    let (ours, mut theirs) = unix(bench)?;
    let mut engine = bench.engine();
    theirs.write_all(b"abcdef").expect("a socket");
    for expected in [b"ab", b"cd", b"ef"] {
        let done = go!(engine, Request::receive(&ours, blank(&engine, 2)))?;
        assert_eq!((done.result, bytes_of(&done.memory)), (Ok(2), &expected[..]));
    }
    Ok(())
}

pub(crate) fn a_closed_peer_is_the_end_of_the_stream(bench: &Bench) -> Case {
    let (ours, theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    drop(theirs);
    for _ in 0..2 {
        assert_eq!(go!(engine, Request::receive(&ours, blank(&engine, 16)))?.result, Ok(0));
    }
    Ok(())
}

pub(crate) fn a_peer_that_closes_ends_a_receive_that_waits(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (ours, theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    begin!(engine, Request::receive(&ours, blank(&engine, 16)))?;
    drop(theirs);
    assert_eq!(next(&mut engine).result, Ok(0));
    Ok(())
}

pub(crate) fn a_half_closed_connection_still_takes_bytes(bench: &Bench) -> Case {
    let (ours, mut theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    theirs.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(go!(engine, Request::receive(&ours, blank(&engine, 16)))?.result, Ok(0));
    assert_eq!(
        go!(engine, Request::send(&ours, buffer(&engine, b"still")))?.result,
        Ok(5)
    );
    let mut seen = [0; 5];
    theirs.read_exact(&mut seen).expect("a socket");
    assert_eq!(&seen, b"still");
    Ok(())
}

pub(crate) fn a_reset_connection_is_told(bench: &Bench) -> Case {
    let (ours, theirs) = tcp(bench)?;
    rustix::net::sockopt::set_socket_linger(&theirs, Some(Duration::ZERO)).expect("a socket");
    drop(theirs);
    let mut engine = bench.engine();
    let request = Request::receive(&ours, blank(&engine, 16));
    fails(&mut engine, request, &[Errno::ECONNRESET])
}

pub(crate) fn a_send_to_a_closed_peer_is_epipe(bench: &Bench) -> Case {
    let (ours, theirs) = unix(bench)?;
    drop(theirs);
    let mut engine = bench.engine();
    for _ in 0..2 {
        let request = Request::send(&ours, blank(&engine, 16));
        fails(&mut engine, request, &[Errno::EPIPE])?;
    }
    Ok(())
}

pub(crate) fn a_peer_that_closes_ends_a_send_that_waits(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (ours, theirs) = unix(bench)?;
    let mut engine = bench.engine();
    begin!(engine, Request::send(&ours, blank(&engine, 4 << 20)))?;
    drop(theirs);
    let done = next(&mut engine);
    assert!(
        matches!(done.result, Err(Error::System(Errno::EPIPE | Errno::ECONNRESET))),
        "{:?}",
        done.result
    );
    assert!(done.bytes_done < 4 << 20);
    Ok(())
}

fn arrives_whole(bench: &Bench, non_blocking: bool, list: bool) -> Case {
    let (ours, mut theirs) = unix(bench)?;
    let mut engine = bench.engine();
    let bytes = pattern(1, 4 << 20);
    let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair of sockets");
    let ours = if non_blocking {
        one.set_nonblocking(true).expect("a socket");
        theirs = other;
        file(one)
    } else {
        ours
    };
    let memory = if list {
        let mut parts = baio_engine::Vectored::default();
        for part in bytes.chunks(700_001) {
            parts.push(Memory::Own(buffer(&engine, part))).expect("a part");
        }
        Memory::Many(parts)
    } else {
        Memory::Own(buffer(&engine, &bytes))
    };
    engine.submit(Request::send(&ours, memory)).expect("a slot");
    if let Some(done) = engine.next_completion() {
        refused(&done)?;
    }
    let drain = std::thread::spawn(move || {
        let mut all = vec![0; 4 << 20];
        theirs.read_exact(&mut all).map(|()| all)
    });
    let done = next(&mut engine);
    assert_eq!((done.result, done.bytes_done), (Ok(4 << 20), 4 << 20));
    assert!(done.iterations < 4000, "a storm of {} retries", done.iterations);
    assert!(drain.join().expect("the reading thread").expect("a socket") == bytes);
    Ok(())
}

pub(crate) fn a_large_send_is_whole(bench: &Bench) -> Case {
    arrives_whole(bench, false, false)
}

pub(crate) fn a_large_send_on_a_non_blocking_socket_is_whole(bench: &Bench) -> Case {
    arrives_whole(bench, true, false)
}

pub(crate) fn a_list_is_sent_whole_and_in_order(bench: &Bench) -> Case {
    arrives_whole(bench, false, true)
}

pub(crate) fn a_list_is_sent_whole_on_a_non_blocking_socket(bench: &Bench) -> Case {
    arrives_whole(bench, true, true)
}

pub(crate) fn a_list_is_received_into_in_order(bench: &Bench) -> Case {
    let (ours, mut theirs) = unix(bench)?;
    let mut engine = bench.engine();
    theirs.write_all(b"abcdefgh").expect("a socket");
    let list = blanks(&engine, [1, 0, 3, 10]);
    let done = go!(engine, Request::receive(&ours, list))?;
    assert_eq!((done.result, &joined(&done.memory)[..8]), (Ok(8), &b"abcdefgh"[..]));
    Ok(())
}

pub(crate) fn a_list_with_flags_is_refused(bench: &Bench) -> Case {
    let (ours, _theirs) = unix(bench)?;
    let mut engine = bench.engine();
    let list = blanks(&engine, [8, 8]);
    let done = go!(engine, receive(libc::MSG_PEEK, &ours, list))?;
    assert_eq!((done.result, done.iterations), (Err(Error::System(Errno::EINVAL)), 0));
    let done = go!(engine, send(libc::MSG_MORE, &ours, done.memory))?;
    assert_eq!((done.result, done.iterations), (Err(Error::System(Errno::EINVAL)), 0));
    Ok(())
}

pub(crate) fn a_peek_leaves_the_bytes(bench: &Bench) -> Case {
    let (ours, mut theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    theirs.write_all(b"stay").expect("a socket");
    for flags in [libc::MSG_PEEK, libc::MSG_PEEK, 0] {
        let done = go!(engine, receive(flags, &ours, blank(&engine, 16)))?;
        assert_eq!((done.result, &bytes_of(&done.memory)[..4]), (Ok(4), &b"stay"[..]));
    }
    theirs.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(go!(engine, Request::receive(&ours, blank(&engine, 16)))?.result, Ok(0));
    Ok(())
}

pub(crate) fn a_receive_that_waits_for_all_gets_all(bench: &Bench) -> Case {
    let (ours, mut theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    let feed = std::thread::spawn(move || {
        for part in pattern(2, 40_000).chunks(10_000) {
            // A backend that refuses has let go of its end.
            if theirs.write_all(part).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        theirs
    });
    let done = go!(engine, receive(libc::MSG_WAITALL, &ours, blank(&engine, 40_000)))?;
    assert_eq!(done.result, Ok(40_000));
    assert!(bytes_of(&done.memory) == pattern(2, 40_000));
    feed.join().expect("the feeding thread");
    Ok(())
}

pub(crate) fn a_receive_that_waits_for_all_ends_with_the_stream(bench: &Bench) -> Case {
    let (ours, mut theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    theirs.write_all(b"not all").expect("a socket");
    drop(theirs);
    let done = go!(engine, receive(libc::MSG_WAITALL, &ours, blank(&engine, 100)))?;
    assert_eq!((done.result, &bytes_of(&done.memory)[..7]), (Ok(7), &b"not all"[..]));
    Ok(())
}

pub(crate) fn who_will_not_wait_is_told_eagain(bench: &Bench) -> Case {
    let (ours, _theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    let again = Err(Error::System(Errno::EAGAIN));
    let done = go!(engine, receive(libc::MSG_DONTWAIT, &ours, blank(&engine, 8)))?;
    assert_eq!((done.result, done.iterations), (again, 1));
    let mut request = Request::receive(&ours, done.memory);
    request.policy.patience = Patience::NoWait;
    let done = go!(engine, request)?;
    assert_eq!((done.result, done.iterations), (again, 1));
    Ok(())
}

pub(crate) fn a_send_that_will_not_wait_tells_how_far_it_came(bench: &Bench) -> Case {
    let (ours, _theirs) = unix(bench)?;
    let mut engine = bench.engine();
    let done = go!(engine, send(libc::MSG_DONTWAIT, &ours, blank(&engine, 4 << 20)))?;
    assert_eq!(done.result, Err(Error::System(Errno::EAGAIN)));
    assert!(
        done.bytes_done > 0 && done.bytes_done < 4 << 20,
        "{} bytes",
        done.bytes_done
    );
    Ok(())
}

pub(crate) fn frozen_bytes_are_sent_and_never_received_into(bench: &Bench) -> Case {
    let (ours, mut theirs) = unix(bench)?;
    let mut engine = bench.engine();
    let frozen = buffer(&engine, b"frozen").freeze();
    assert_eq!(go!(engine, Request::send(&ours, frozen.clone()))?.result, Ok(6));
    theirs.write_all(b"warmer").expect("a socket");
    let done = go!(engine, Request::receive(&ours, frozen.clone()))?;
    assert_eq!((done.result, done.iterations), (Err(Error::ReadOnlyMemory), 0));
    assert_eq!(&frozen[..], b"frozen");
    Ok(())
}

pub(crate) fn both_directions_are_in_flight_at_once(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (ours, mut theirs) = tcp(bench)?;
    let mut engine = bench.engine();
    begin!(engine, Request::receive(&ours, blank(&engine, 16)).tagged(1))?;
    let word = Request::send(&ours, buffer(&engine, b"ping")).tagged(2);
    engine.submit(word).expect("a slot");
    assert_eq!(next(&mut engine).tag, 2, "a receive that waits holds no send up");
    readable(&theirs);
    theirs.write_all(b"pong").expect("a socket");
    let done = next(&mut engine);
    assert_eq!((done.tag, done.result), (1, Ok(4)));
    Ok(())
}

pub(crate) fn datagrams_keep_their_boundaries(bench: &Bench) -> Case {
    let (ours, theirs) = datagrams(bench)?;
    let mut engine = bench.engine();
    for text in ["one", "three", "seven!!"] {
        theirs.send(text.as_bytes()).expect("a socket");
        assert_eq!(
            go!(engine, Request::send(&ours, buffer(&engine, text.as_bytes())))?.result,
            Ok(text.len() as u32)
        );
    }
    for len in [3, 5, 7] {
        assert_eq!(
            go!(engine, Request::receive(&ours, blank(&engine, 100)))?.result,
            Ok(len)
        );
        assert_eq!(theirs.recv(&mut [0; 100]).expect("a socket"), len as usize);
    }
    Ok(())
}

pub(crate) fn an_empty_datagram_is_sent_and_received(bench: &Bench) -> Case {
    let (ours, theirs) = datagrams(bench)?;
    let mut engine = bench.engine();
    for memory in [Memory::None, Memory::Own(blank(&engine, 0))] {
        assert_eq!(go!(engine, Request::send(&ours, memory))?.result, Ok(0));
        readable(&theirs);
        assert_eq!(theirs.recv(&mut [0; 8]).expect("a socket"), 0);
    }
    theirs.send(&[]).expect("a socket");
    theirs.send(b"next").expect("a socket");
    assert_eq!(go!(engine, Request::receive(&ours, blank(&engine, 8)))?.result, Ok(0));
    assert_eq!(go!(engine, Request::receive(&ours, blank(&engine, 8)))?.result, Ok(4));
    Ok(())
}

pub(crate) fn a_datagram_too_long_for_its_memory_is_cut(bench: &Bench) -> Case {
    let (ours, theirs) = unix_datagrams(bench)?;
    let mut engine = bench.engine();
    theirs.send(b"a long one").expect("a socket");
    theirs.send(b"b").expect("a socket");
    let done = go!(engine, Request::receive(&ours, blank(&engine, 6)))?;
    assert_eq!((done.result, bytes_of(&done.memory)), (Ok(6), &b"a long"[..]));
    assert_eq!(go!(engine, Request::receive(&ours, blank(&engine, 6)))?.result, Ok(1));
    Ok(())
}

pub(crate) fn a_datagram_too_long_to_be_sent_is_told(bench: &Bench) -> Case {
    let (ours, _theirs) = datagrams(bench)?;
    let mut engine = bench.engine();
    let request = Request::send(&ours, blank(&engine, 70_000));
    fails(&mut engine, request, &[Errno::EMSGSIZE])
}

pub(crate) fn a_list_is_one_datagram(bench: &Bench) -> Case {
    let (ours, theirs) = unix_datagrams(bench)?;
    let mut engine = bench.engine();
    let list = blanks(&engine, [3, 0, 4]);
    assert_eq!(go!(engine, Request::send(&ours, list))?.result, Ok(7));
    assert_eq!(theirs.recv(&mut [0; 100]).expect("a socket"), 7);
    Ok(())
}

pub(crate) fn a_datagram_to_nobody_is_told_afterwards(bench: &Bench) -> Case {
    let (ours, theirs) = datagrams(bench)?;
    drop(theirs);
    let mut engine = bench.engine();
    assert_eq!(
        go!(engine, Request::send(&ours, buffer(&engine, b"anybody?")))?.result,
        Ok(8)
    );
    let request = Request::receive(&ours, blank(&engine, 16));
    fails(&mut engine, request, &[Errno::ECONNREFUSED])
}

pub(crate) fn a_sequence_of_packets_keeps_its_boundaries(bench: &Bench) -> Case {
    use rustix::net::{AddressFamily, SocketType, socketpair};
    has_streams(bench)?;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.expect("a pair of sockets");
    let (ours, theirs) = (file(ours), file(theirs));
    let mut engine = bench.engine();
    for len in [1, 500, 3000] {
        assert_eq!(
            go!(engine, Request::send(&ours, blank(&engine, len)))?.result,
            Ok(len as u32)
        );
    }
    for len in [1, 500, 3000] {
        assert_eq!(
            go!(engine, Request::receive(&theirs, blank(&engine, 4096)))?.result,
            Ok(len)
        );
    }
    drop(ours);
    assert_eq!(
        go!(engine, Request::receive(&theirs, blank(&engine, 16)))?.result,
        Ok(0)
    );
    Ok(())
}

pub(crate) fn hundreds_of_connections_share_one_queue(bench: &Bench) -> Case {
    holds_requests(bench)?;
    const CONNECTIONS: u64 = 200;
    let config = baio_engine::EngineOptions {
        slots: 256,
        ..Bench::config()
    };
    let mut engine = bench.engine_if_it_fits(&config)?;
    let mut peers = Vec::new();
    let mut sockets = Vec::new();
    for tag in 0..CONNECTIONS {
        let (ours, theirs) = unix(bench)?;
        begin!(engine, Request::receive(&ours, blank(&engine, 64)).tagged(tag))?;
        sockets.push(ours);
        peers.push(theirs);
    }
    for (tag, peer) in peers.iter_mut().enumerate().rev() {
        peer.write_all(&vec![tag as u8; 1 + tag % 64]).expect("a socket");
    }
    let mut seen = vec![false; CONNECTIONS as usize];
    for _ in 0..CONNECTIONS {
        let done = next(&mut engine);
        let tag = done.tag as usize;
        assert!(!std::mem::replace(&mut seen[tag], true));
        assert_eq!(done.result, Ok(1 + done.tag as u32 % 64));
        assert_eq!(own(done.memory)[0], tag as u8);
    }
    engine.turn(Wait::No).expect("a turn");
    assert_eq!((engine.in_flight(), engine.completed()), (0, 0));
    Ok(())
}

/// What nobody can make a socket do is the same `Stop` on every backend.
pub(crate) fn a_direct_mode_for_a_socket_is_refused(bench: &Bench) -> Case {
    let (ours, _theirs) = unix(bench)?;
    let mut engine = bench.engine();
    let mut request = Request::receive(&ours, blank(&engine, 4096));
    request.policy = Policy::direct();
    let done: Result<_, Stop> = go!(engine, request);
    assert_eq!(done?.result, Err(Error::NoDescription { mode: "direct" }));
    Ok(())
}
