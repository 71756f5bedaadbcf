//! Pipes: a stream read returns what there is, a stream write is whole, and both ends tell when the other has gone.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use baio_engine::{Durability, Errno, Error, File, Memory, Op, Patience, Policy, Request, Vectored};

use crate::backends::{Bench, Case, blank, buffer, bytes_of, next, pattern};
use crate::streams::{blanks, file, holds_requests, joined};

fn put(writer: &OwnedFd, bytes: &[u8]) {
    let mut writer = std::fs::File::from(writer.try_clone().expect("a pipe"));
    writer.write_all(bytes).expect("a pipe");
}

/// Reads to the end in another thread.
fn drain(reader: OwnedFd) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        std::fs::File::from(reader).read_to_end(&mut all).expect("a pipe");
        all
    })
}

fn impatient(mut request: Request) -> Request {
    request.policy.patience = Patience::NoWait;
    request
}

pub(crate) fn a_read_returns_what_there_is(bench: &Bench) -> Case {
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    for len in [1, 4095, 4096, 10_000] {
        let bytes = pattern(len as u64, len);
        put(&writer, &bytes);
        let done = go!(engine, Request::read_stream(&reader, blank(&engine, 16384)))?;
        assert_eq!((done.result, done.bytes_done), (Ok(len as u32), len as u32));
        assert_eq!(&bytes_of(&done.memory)[..len], bytes);
    }
    Ok(())
}

pub(crate) fn a_read_of_less_leaves_the_rest(bench: &Bench) -> Case {
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    put(&writer, b"abcdef");
    for expected in [b"abc", b"def"] {
        let done = go!(engine, Request::read_stream(&reader, blank(&engine, 3)))?;
        assert_eq!((done.result, bytes_of(&done.memory)), (Ok(3), &expected[..]));
    }
    Ok(())
}

pub(crate) fn a_closed_writer_is_the_end(bench: &Bench) -> Case {
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    put(&writer, b"last");
    drop(writer);
    for expected in [4, 0, 0] {
        assert_eq!(
            go!(engine, Request::read_stream(&reader, blank(&engine, 16)))?.result,
            Ok(expected)
        );
    }
    Ok(())
}

pub(crate) fn a_writer_that_closes_ends_every_read_that_waits(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    for tag in 0..5 {
        begin!(engine, Request::read_stream(&reader, blank(&engine, 16)).tagged(tag),)?;
    }
    drop(writer);
    let mut tags: Vec<_> = (0..5)
        .map(|_| next(&mut engine))
        .map(|done| (assert_eq!(done.result, Ok(0)), done.tag).1)
        .collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3, 4]);
    Ok(())
}

pub(crate) fn reads_that_wait_together_share_the_bytes(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    for _ in 0..8 {
        begin!(engine, Request::read_stream(&reader, blank(&engine, 1)))?;
    }
    put(&writer, b"abcdefgh");
    let mut seen: Vec<_> = (0..8)
        .map(|_| next(&mut engine))
        .map(|done| (assert_eq!(done.result, Ok(1)), bytes_of(&done.memory)[0]).1)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, b"abcdefgh", "each byte goes to one of them");
    Ok(())
}

pub(crate) fn a_large_write_is_whole(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    let mut engine = bench.engine();
    let bytes = pattern(1, 3_000_001);
    let all = drain(reader);
    let done = go!(engine, Request::write_stream(&file(writer), buffer(&engine, &bytes)),)?;
    assert_eq!((done.result, done.bytes_done), (Ok(3_000_001), 3_000_001));
    drop(done);
    assert!(all.join().expect("the reading thread") == bytes);
    Ok(())
}

pub(crate) fn a_list_of_thousands_of_parts_is_written_whole(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    let mut engine = bench.engine();
    let bytes = pattern(2, 3000 * 37);
    let mut list = Vectored::default();
    for part in bytes.chunks(37) {
        list.push(Memory::Own(buffer(&engine, part))).expect("a part");
    }
    let all = drain(reader);
    let done = go!(engine, Request::write_stream(&file(writer), Memory::Many(list)))?;
    assert_eq!(done.result, Ok(bytes.len() as u32));
    drop(done);
    assert!(all.join().expect("the reading thread") == bytes);
    Ok(())
}

pub(crate) fn a_list_is_read_into_in_order(bench: &Bench) -> Case {
    let (reader, writer) = bench.pipe()?;
    let mut engine = bench.engine();
    put(&writer, b"abcdefgh");
    let list = blanks(&engine, [1, 0, 3, 100]);
    let done = go!(engine, Request::read_stream(&reader, list))?;
    assert_eq!((done.result, &joined(&done.memory)[..8]), (Ok(8), &b"abcdefgh"[..]));
    Ok(())
}

pub(crate) fn a_write_without_a_reader_is_epipe(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    drop(reader);
    let (writer, mut engine) = (file(writer), bench.engine());
    for _ in 0..2 {
        let done = go!(engine, Request::write_stream(&writer, blank(&engine, 100)))?;
        assert_eq!((done.result, done.bytes_done), (Err(Error::System(Errno::EPIPE)), 0));
        assert_eq!(done.memory.len(), 100);
    }
    Ok(())
}

pub(crate) fn a_reader_that_closes_ends_a_write_that_waits(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    let mut engine = bench.engine();
    let leaver = std::thread::spawn(move || {
        // Not before the write has begun.
        let mut pipe = [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut pipe, None).expect("a poll");
        std::thread::sleep(Duration::from_millis(20));
        drop(reader);
    });
    let done = go!(engine, Request::write_stream(&file(writer), blank(&engine, 4 << 20)),)?;
    assert_eq!(done.result, Err(Error::System(Errno::EPIPE)));
    assert!(
        done.bytes_done > 0 && done.bytes_done < 4 << 20,
        "{} bytes",
        done.bytes_done
    );
    leaver.join().expect("a thread");
    Ok(())
}

pub(crate) fn the_wrong_end_is_ebadf(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    let (reader, writer, mut engine) = (file(reader), file(writer), bench.engine());
    let bad = Err(Error::System(Errno::EBADF));
    assert_eq!(
        go!(engine, Request::write_stream(&reader, blank(&engine, 8)))?.result,
        bad
    );
    assert_eq!(
        go!(engine, Request::read_stream(&writer, blank(&engine, 8)))?.result,
        bad
    );
    Ok(())
}

/// io_uring would take the bytes and forget the offset.
pub(crate) fn an_offset_in_a_pipe_is_refused(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    put(&writer, b"left alone");
    let (reader, writer, mut engine) = (file(reader), file(writer), bench.engine());
    let seek = Err(Error::System(Errno::ESPIPE));
    for offset in [0, 5, 1 << 40] {
        assert_eq!(
            finish!(
                engine,
                Request::read(&reader, offset, blank(&engine, 8), Policy::kernel())
            )
            .result,
            seek
        );
        assert_eq!(
            finish!(
                engine,
                Request::write(&writer, offset, blank(&engine, 8), Policy::kernel())
            )
            .result,
            seek
        );
    }
    assert_eq!(
        go!(engine, Request::read_stream(&reader, blank(&engine, 64)))?.result,
        Ok(10)
    );
    Ok(())
}

pub(crate) fn a_stream_request_on_a_file_is_refused(bench: &Bench) -> Case {
    let (_, _) = bench.pipe()?;
    let file = bench.file(&pattern(3, 8192));
    let mut engine = bench.engine();
    let done = go!(engine, Request::read_stream(&file, blank(&engine, 100)))?;
    assert_eq!((done.result, done.iterations), (Err(Error::System(Errno::EINVAL)), 0));
    let done = go!(engine, Request::write_stream(&file, blank(&engine, 100)))?;
    assert_eq!((done.result, done.iterations), (Err(Error::System(Errno::EINVAL)), 0));
    Ok(())
}

pub(crate) fn syncs_and_ranges_of_a_pipe_are_refused(bench: &Bench) -> Case {
    let (reader, _writer) = bench.pipe()?;
    let mut engine = bench.engine();
    let sync = go!(engine, Request::sync(&reader, Durability::Full))?;
    assert_eq!(sync.result, Err(Error::System(Errno::EINVAL)));
    assert_eq!(reader.acknowledge_failure(), None, "it says nothing about data");
    for op in [
        Op::SyncRange { offset: 0, len: 1 },
        Op::Allocate {
            offset: 0,
            len: 4096,
            space: baio_engine::Space::Reserve,
        },
    ] {
        let done = go!(engine, Request::bare(op, Some(&reader), Policy::kernel()))?;
        assert!(
            matches!(
                done.result,
                Err(Error::System(Errno::ESPIPE | Errno::EBADF | Errno::EINVAL))
            ),
            "{done:?}"
        );
    }
    Ok(())
}

pub(crate) fn a_pipe_has_no_direct_mode(bench: &Bench) -> Case {
    let (reader, _writer) = bench.pipe()?;
    let mut engine = bench.engine();
    let mut request = Request::read_stream(&reader, blank(&engine, 4096));
    request.policy = Policy::direct();
    let done = go!(engine, request)?;
    assert_eq!(
        (done.result, done.iterations),
        (Err(Error::NoDescription { mode: "direct" }), 0)
    );
    Ok(())
}

pub(crate) fn a_write_that_will_not_wait_tells_how_far_it_came(bench: &Bench) -> Case {
    let (_reader, writer) = bench.raw_pipe()?;
    crate::streams::shrink(&writer);
    let (writer, mut engine) = (file(writer), bench.engine());
    let again = Err(Error::System(Errno::EAGAIN));
    let done = go!(
        engine,
        impatient(Request::write_stream(&writer, blank(&engine, 200_000))),
    )?;
    assert_eq!((done.result, done.bytes_done), (again, 65536));
    let done = go!(engine, impatient(Request::write_stream(&writer, blank(&engine, 100))),)?;
    assert_eq!((done.result, done.bytes_done), (again, 0));
    Ok(())
}

pub(crate) fn an_empty_pipe_tells_the_impatient(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    let ends = reader.try_clone().expect("a descriptor");
    let (reader, mut engine) = (file(reader), bench.engine());
    let done = go!(engine, impatient(Request::read_stream(&reader, blank(&engine, 8))))?;
    assert_eq!(done.result, Err(Error::System(Errno::EAGAIN)));
    drop(writer);
    // A process that another test is just starting has it open until its execve(2).
    let mut ends = [rustix::event::PollFd::new(&ends, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ends, None).expect("a poll");
    let done = go!(engine, impatient(Request::read_stream(&reader, blank(&engine, 8))))?;
    assert_eq!(done.result, Ok(0), "the end is known without waiting");
    Ok(())
}

pub(crate) fn no_bytes_are_read_and_written_at_once(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    let (reader, writer, mut engine) = (file(reader), file(writer), bench.engine());
    assert_eq!(
        go!(engine, Request::read_stream(&reader, blank(&engine, 0)))?.result,
        Ok(0)
    );
    assert_eq!(go!(engine, Request::write_stream(&writer, Memory::None))?.result, Ok(0));
    Ok(())
}

pub(crate) fn character_devices_are_streams(bench: &Bench) -> Case {
    crate::streams::has_streams(bench)?;
    let open = |path: &str, options| File::open(std::path::Path::new(path), &options).expect("a device");
    let zero = open("/dev/zero", baio_engine::Open::read());
    let null = open("/dev/null", baio_engine::Open::write());
    let mut engine = bench.engine();
    let done = go!(engine, Request::read_stream(&zero, blank(&engine, 10_000)))?;
    // A stream read returns what there is, and /dev/zero stops early when somebody else wants the processor.
    let got = done.result.expect("zeros") as usize;
    assert!(got > 0 && bytes_of(&done.memory)[..got].iter().all(|&byte| byte == 0));
    assert_eq!(
        go!(engine, Request::write_stream(&null, blank(&engine, 10_000)))?.result,
        Ok(10_000)
    );
    assert_eq!(
        go!(engine, Request::read_stream(&null, blank(&engine, 10)))?.result,
        Ok(0)
    );
    Ok(())
}

pub(crate) fn a_stream_request_serves_a_socket_too(bench: &Bench) -> Case {
    let (ours, mut theirs) = crate::streams::tcp(bench)?;
    let mut engine = bench.engine();
    assert_eq!(
        go!(engine, Request::write_stream(&ours, buffer(&engine, b"out")))?.result,
        Ok(3)
    );
    theirs.write_all(b"inward").expect("a socket");
    assert_eq!(
        go!(engine, Request::read_stream(&ours, blank(&engine, 64)))?.result,
        Ok(6)
    );
    Ok(())
}
