//! Readiness of descriptors (poll(2)) completes like everything else.

use std::io::{Read, Write};

use baio_engine::{File, Op, Policy, Request, Wait};
use rustix::event::{EventfdFlags, eventfd};

use crate::backends::{Bench, Case, next};
use crate::streams::{file, go, has_streams, holds_requests, listener, tcp, unix};

const IN: u32 = libc::POLLIN as u32;
const OUT: u32 = libc::POLLOUT as u32;
const HUP: u32 = libc::POLLHUP as u32;
const ERR: u32 = libc::POLLERR as u32;

fn poll(file: &File, events: u32) -> Request {
    Request::bare(Op::Poll { events }, Some(file), Policy::kernel())
}

/// What a poll of `file` for `events` tells at once.
fn told(bench: &Bench, file: &File, events: u32) -> Result<u32, crate::backends::Stop> {
    Ok(go(&mut bench.engine(), poll(file, events))?.result.expect("a poll"))
}

pub(crate) fn bytes_in_a_pipe_are_pollin(bench: &Bench) -> Case {
    let (reader, writer) = bench.pipe()?;
    std::fs::File::from(writer.try_clone().expect("a pipe"))
        .write_all(b"x")
        .expect("a pipe");
    assert_eq!(told(bench, &reader, IN)?, IN);
    Ok(())
}

pub(crate) fn room_in_a_pipe_is_pollout(bench: &Bench) -> Case {
    let (_reader, writer) = bench.raw_pipe()?;
    assert_eq!(told(bench, &file(writer), OUT | IN)?, OUT);
    Ok(())
}

pub(crate) fn a_writer_that_has_gone_is_pollhup(bench: &Bench) -> Case {
    let (reader, writer) = bench.pipe()?;
    drop(writer);
    assert_eq!(told(bench, &reader, IN)?, HUP, "asked for or not");
    Ok(())
}

pub(crate) fn a_reader_that_has_gone_is_pollerr(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    drop(reader);
    assert_eq!(told(bench, &file(writer), OUT)? & (OUT | ERR), OUT | ERR);
    Ok(())
}

pub(crate) fn a_poll_waits_until_there_are_bytes(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    begin!(engine, poll(&reader, IN))?;
    engine.turn(Wait::No).expect("a turn");
    assert_eq!(engine.completed(), 0);
    std::fs::File::from(writer).write_all(b"x").expect("a pipe");
    let events = next(&mut engine).result.expect("a poll");
    // The writer closed behind its byte, and a poll may see both.
    assert_eq!(events & IN, IN);
    Ok(())
}

pub(crate) fn a_poll_waits_until_there_is_room(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.raw_pipe()?;
    crate::streams::shrink(&writer);
    let mut source = std::fs::File::from(writer.try_clone().expect("a pipe"));
    source.write_all(&[0; 65536]).expect("a pipe");
    let mut engine = bench.engine();
    begin!(engine, poll(&file(writer), OUT))?;
    engine.turn(Wait::No).expect("a turn");
    assert_eq!(engine.completed(), 0);
    std::fs::File::from(reader.try_clone().expect("a pipe"))
        .read_exact(&mut [0; 65536])
        .expect("a pipe");
    assert_eq!(next(&mut engine).result, Ok(OUT));
    Ok(())
}

pub(crate) fn a_poll_that_waits_hears_the_hang_up(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    begin!(engine, poll(&reader, IN))?;
    drop(writer);
    assert_eq!(next(&mut engine).result, Ok(HUP));
    Ok(())
}

pub(crate) fn a_poll_ends_once_and_takes_nothing(bench: &Bench) -> Case {
    let (reader, writer) = bench.pipe()?;
    std::fs::File::from(writer.try_clone().expect("a pipe"))
        .write_all(b"abc")
        .expect("a pipe");
    let mut engine = bench.engine();
    for _ in 0..3 {
        assert_eq!(go!(engine, poll(&reader, IN))?.result, Ok(IN));
        engine.turn(Wait::No).expect("a turn");
        assert_eq!((engine.completed(), engine.in_flight()), (0, 0));
    }
    let memory = crate::backends::blank(&engine, 8);
    assert_eq!(go!(engine, Request::read_stream(&reader, memory))?.result, Ok(3));
    Ok(())
}

pub(crate) fn polls_of_one_descriptor_all_end(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    for tag in 0..20 {
        begin!(engine, poll(&reader, IN).tagged(tag))?;
    }
    std::fs::File::from(writer.try_clone().expect("a pipe"))
        .write_all(b"x")
        .expect("a pipe");
    let mut tags: Vec<_> = (0..20)
        .map(|_| next(&mut engine))
        .map(|done| (assert_eq!(done.result, Ok(IN)), done.tag).1)
        .collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..20));
    Ok(())
}

pub(crate) fn a_poll_of_an_event_fd_hears_its_write(bench: &Bench) -> Case {
    has_streams(bench)?;
    holds_requests(bench)?;
    let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an event fd");
    let watched = file(event.try_clone().expect("an event fd"));
    let mut engine = bench.engine();
    begin!(engine, poll(&watched, IN))?;
    rustix::io::write(&event, &1_u64.to_ne_bytes()).expect("an event fd");
    assert_eq!(next(&mut engine).result, Ok(IN));
    Ok(())
}

pub(crate) fn a_connection_that_waits_is_pollin(bench: &Bench) -> Case {
    let (listener, to) = listener(bench)?;
    let baio_engine::Address::Internet(to) = to else {
        unreachable!("an internet address")
    };
    let _peer = std::net::TcpStream::connect(to).expect("a connection");
    assert_eq!(told(bench, &listener, IN)?, IN);
    Ok(())
}

pub(crate) fn a_socket_tells_both_directions(bench: &Bench) -> Case {
    let (ours, mut theirs) = unix(bench)?;
    assert_eq!(told(bench, &ours, IN | OUT)?, OUT);
    theirs.write_all(b"x").expect("a socket");
    assert_eq!(told(bench, &ours, IN | OUT)?, IN | OUT);
    Ok(())
}

pub(crate) fn a_half_closed_socket_is_pollrdhup(bench: &Bench) -> Case {
    let (ours, theirs) = tcp(bench)?;
    theirs.shutdown(std::net::Shutdown::Write).expect("a socket");
    let events = told(bench, &ours, libc::POLLRDHUP as u32)?;
    assert_eq!(events, libc::POLLRDHUP as u32);
    Ok(())
}

pub(crate) fn a_regular_file_is_always_ready(bench: &Bench) -> Case {
    has_streams(bench)?;
    let disk = bench.file(&[0; 4096]);
    assert_eq!(told(bench, &disk, IN | OUT)?, IN | OUT);
    Ok(())
}

pub(crate) fn a_poll_without_a_file_is_refused(bench: &Bench) -> Case {
    let mut engine = bench.engine();
    let done = go!(engine, Request::bare(Op::Poll { events: IN }, None, Policy::kernel()),)?;
    assert_eq!(done.result, Err(baio_engine::Error::System(baio_engine::Errno::EBADF)));
    Ok(())
}
