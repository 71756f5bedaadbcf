//! A range of a file goes to a pipe or a socket, window by window.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use baio_engine::{Caching, Engine, Errno, Error, File, Memory, Notice, Op, Open, Patience, Policy, Request};

use crate::backends::{Bench, Case, Stop, blank, buffer, direct, next, pattern, policies};
use crate::streams::{blanks, file, go, holds_requests, tcp, unix};

/// An odd number of bytes, so that its end is in the middle of a block.
const SIZE: usize = 300_001;

fn drain(from: impl Into<OwnedFd>) -> std::thread::JoinHandle<Vec<u8>> {
    let mut from = std::fs::File::from(from.into());
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).expect("a stream");
        all
    })
}

/// Sends `len` bytes from `offset` on through a window to a pipe, and looks at what came out.
fn goes(bench: &Bench, offset: u64, len: u64, window: usize, policy: Option<Policy>) -> Case {
    let bytes = pattern(1, SIZE);
    let (reader, writer) = bench.raw_pipe()?;
    let source = bench.file(&bytes);
    let mut engine = bench.engine();
    let policy = match policy {
        Some(policy) if policy.caching == Caching::Direct => direct(&source)?,
        Some(policy) => policy,
        None => Policy::kernel(),
    };
    let all = drain(reader);
    let request = Request::transfer(&source, offset, len, &file(writer), blank(&engine, window), policy);
    let done = go!(engine, request)?;
    let start = SIZE.min(offset as usize);
    let expected = &bytes[start..SIZE.min(start.saturating_add(len as usize))];
    assert_eq!(
        (done.result, done.bytes_done),
        (Ok(expected.len() as u32), expected.len() as u32)
    );
    assert_eq!((done.memory.len(), done.took), (window, policy.caching));
    drop((engine, done));
    assert!(
        all.join().expect("the reading thread") == expected,
        "other bytes came out"
    );
    Ok(())
}

macro_rules! transfers {
    ($($case:ident($offset:expr, $len:expr, $window:expr))*) => {
        pub(crate) mod a_transfer {
            use super::*;
            $(pub(crate) fn $case(bench: &Bench) -> Case {
                goes(bench, $offset, $len, $window, None)
            })*
        }
        pub(crate) mod a_direct_transfer {
            use super::*;
            $(pub(crate) fn $case(bench: &Bench) -> Case {
                goes(bench, $offset / 4096 * 4096, $len, usize::next_multiple_of($window, 4096), Some(Policy::direct()))
            })*
        }
    };
}

transfers! {
    of_a_whole_file(0, SIZE as u64, 65536)
    of_a_part(12_345, 100_000, 65536)
    of_one_byte(8191, 1, 4096)
    in_windows_of_one_chunk(0, SIZE as u64, 4096)
    in_odd_windows(777, 99_999, 12_289)
    through_a_window_larger_than_the_range(5000, 3000, 1 << 20)
    ends_with_the_file(200_000, 1 << 30, 65536)
    behind_the_end_is_empty(1 << 20, 4096, 8192)
    of_a_range_that_fits_its_windows(16384, 65536, 16384)
}

pub(crate) fn nothing_to_transfer_ends_at_once(bench: &Bench) -> Case {
    let (_reader, writer) = bench.raw_pipe()?;
    let source = bench.file(&pattern(2, 8192));
    let mut engine = bench.engine();
    let request = Request::transfer(&source, 0, 0, &file(writer), blank(&engine, 4096), Policy::kernel());
    let done = go!(engine, request)?;
    assert_eq!((done.result, done.iterations), (Ok(0), 0));
    Ok(())
}

/// `RWF_DONTCACHE` is for the file; a pipe refuses it.
pub(crate) fn an_uncached_transfer_reaches_a_pipe(bench: &Bench) -> Case {
    let uncached = Policy {
        caching: Caching::Uncached,
        ..Policy::default()
    };
    if !bench.is_simulated() && bench.file(&[1; 4096]).probe(Caching::Uncached).is_err() {
        return Err(Stop::Skipped("RWF_DONTCACHE is not known here".into()));
    }
    goes(bench, 777, 99_999, 12_288, Some(uncached))
}

pub(crate) fn a_transfer_reaches_a_socket(bench: &Bench) -> Case {
    let (ours, theirs) = unix(bench)?;
    let bytes = pattern(3, SIZE);
    let source = bench.file(&bytes);
    let mut engine = bench.engine();
    let all = drain(theirs);
    let request = Request::transfer(&source, 0, SIZE as u64, &ours, blank(&engine, 65536), Policy::kernel());
    assert_eq!(go!(engine, request)?.result, Ok(SIZE as u32));
    drop((engine, ours));
    assert!(all.join().expect("the reading thread") == bytes);
    Ok(())
}

/// Linux before 5.16 may say `EAGAIN` there, where the file fills its last page.
pub(crate) fn an_impatient_transfer_ends_where_its_file_ends(bench: &Bench) -> Case {
    let (ours, theirs) = tcp(bench)?;
    let bytes = pattern(10, 65536);
    // In the cache, as it has just been written.
    let source = bench.file(&bytes);
    let mut engine = bench.engine();
    let all = drain(theirs);
    let impatient = Policy {
        patience: Patience::NoWait,
        ..Policy::kernel()
    };
    let request = Request::transfer(&source, 61_440, 8192, &ours, blank(&engine, 4096), impatient);
    let done = go!(engine, request)?;
    if done.result == Err(Error::System(Errno::EOPNOTSUPP)) {
        return Err(Stop::Skipped("the file system has no RWF_NOWAIT".into()));
    }
    assert_eq!((done.result, done.bytes_done), (Ok(4096), 4096));
    drop((engine, done, ours));
    assert!(all.join().expect("the reading thread") == bytes[61_440..]);
    Ok(())
}

pub(crate) fn a_non_blocking_target_is_waited_for(bench: &Bench) -> Case {
    let (reader, writer) = bench.raw_pipe()?;
    rustix::io::ioctl_fionbio(&writer, true).expect("O_NONBLOCK");
    let bytes = pattern(4, SIZE);
    let source = bench.file(&bytes);
    let mut engine = bench.engine();
    let slow = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drain(reader).join().expect("the reading thread")
    });
    let request = Request::transfer(
        &source,
        0,
        SIZE as u64,
        &file(writer),
        blank(&engine, 100_000),
        Policy::kernel(),
    );
    let done = go!(engine, request)?;
    assert_eq!(done.result, Ok(SIZE as u32));
    assert!(done.iterations < 400, "a storm of {} retries", done.iterations);
    drop((engine, done));
    assert!(slow.join().expect("a thread") == bytes);
    Ok(())
}

pub(crate) fn a_reader_that_goes_away_is_epipe(bench: &Bench) -> Case {
    for policy in [Policy::kernel(), Policy::direct()] {
        let (reader, writer) = bench.raw_pipe()?;
        let source = bench.file(&pattern(5, 1 << 20));
        if !source.gives(policy.caching) {
            continue;
        }
        let mut engine = bench.engine();
        let leaver = std::thread::spawn(move || {
            let mut some = [0; 10_000];
            std::fs::File::from(reader).read_exact(&mut some).expect("a pipe");
        });
        let request = Request::transfer(&source, 0, 1 << 20, &file(writer), blank(&engine, 16384), policy);
        let done = go!(engine, request)?;
        assert_eq!(done.result, Err(Error::System(Errno::EPIPE)));
        assert!(
            (10_000..1 << 20).contains(&done.bytes_done),
            "{} bytes",
            done.bytes_done
        );
        leaver.join().expect("a thread");
    }
    Ok(())
}

pub(crate) fn what_was_transferred_before_a_cancel_has_arrived(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let (reader, writer) = bench.raw_pipe()?;
    crate::streams::shrink(&writer);
    let bytes = pattern(6, SIZE);
    let source = bench.file(&bytes);
    let mut engine = bench.engine();
    let request = Request::transfer(
        &source,
        0,
        SIZE as u64,
        &file(writer),
        blank(&engine, 20_000),
        Policy::kernel(),
    );
    let id = begin!(engine, request)?;
    for _ in 0..100 {
        engine.turn(baio_engine::Wait::No).expect("a turn");
        std::thread::sleep(Duration::from_micros(200));
    }
    engine.cancel(id);
    let done = next(&mut engine);
    assert_eq!((done.result, done.notice), (Err(Error::Cancelled), Notice::Completed));
    let told = done.bytes_done as usize;
    drop((engine, done));
    let seen = drain(reader).join().expect("the reading thread");
    assert!(bytes.starts_with(&seen));
    assert_eq!(seen.len(), told, "told and arrived");
    Ok(())
}

/// It is always between two system calls, or in one that cannot be cancelled, and must end all the same: nobody reads.
pub(crate) fn a_cancel_at_any_moment_ends_a_transfer(bench: &Bench) -> Case {
    holds_requests(bench)?;
    let source = bench.file(&pattern(9, SIZE));
    let mut engine = bench.engine();
    for round in 0..60_u64 {
        let (_reader, writer) = bench.raw_pipe()?;
        let window = blank(&engine, 4096);
        let request = Request::transfer(&source, 0, SIZE as u64, &file(writer), window, Policy::kernel());
        let id = engine.submit(request).expect("a slot");
        for _ in 0..round % 12 {
            engine.turn(baio_engine::Wait::No).expect("a turn");
        }
        engine.cancel(id);
        let deadline = Some(engine.now().after(Duration::from_secs(20)));
        let wait = baio_engine::Wait::Until {
            count: 1,
            min_wait: Duration::ZERO,
            deadline,
        };
        while engine.completed() == 0 && Some(engine.now()) < deadline {
            engine.turn(wait).expect("a turn");
        }
        let done = engine.next_completion().expect("the cancel was forgotten");
        assert_eq!((done.id, done.result), (id, Err(Error::Cancelled)), "round {round}");
    }
    Ok(())
}

pub(crate) fn two_transfers_of_one_file_run_side_by_side(bench: &Bench) -> Case {
    let bytes = pattern(7, SIZE);
    let source = bench.file(&bytes);
    let mut engine = bench.engine();
    let mut readers = Vec::new();
    for half in 0..2 {
        let (reader, writer) = bench.raw_pipe()?;
        readers.push(drain(reader));
        let memory = blank(&engine, 8192);
        let request = Request::transfer(
            &source,
            half * 150_000,
            150_000,
            &file(writer),
            memory,
            Policy::kernel(),
        );
        engine.submit(request).expect("a slot");
    }
    for _ in 0..2 {
        let done = next(&mut engine);
        crate::backends::refused(&done)?;
        assert_eq!(done.result, Ok(150_000));
    }
    drop(engine);
    for (half, reader) in readers.into_iter().enumerate() {
        assert!(reader.join().expect("the reading thread") == bytes[half * 150_000..][..150_000]);
    }
    Ok(())
}

/// A refusal that is told at once, with nothing tried.
fn refused_at_once(engine: &mut Engine, request: Request, expected: Error) -> Case {
    let done = go(engine, request)?;
    assert_eq!((done.result, done.iterations, done.bytes_done), (Err(expected), 0, 0));
    Ok(())
}

const EINVAL: Error = Error::System(Errno::EINVAL);
const EBADF: Error = Error::System(Errno::EBADF);

fn setting(bench: &Bench) -> Result<(Engine, File, File, OwnedFd), Stop> {
    let (reader, writer) = bench.raw_pipe()?;
    Ok((bench.engine(), bench.file(&pattern(8, 65536)), file(writer), reader))
}

pub(crate) fn a_target_that_is_no_stream_is_refused(bench: &Bench) -> Case {
    let (mut engine, source, _, _reader) = setting(bench)?;
    let other = bench.file(&[0; 4096]);
    let request = Request::transfer(&source, 0, 4096, &other, blank(&engine, 4096), Policy::kernel());
    refused_at_once(&mut engine, request, EINVAL)
}

pub(crate) fn a_transfer_without_target_or_source_is_refused(bench: &Bench) -> Case {
    let (mut engine, source, target, _reader) = setting(bench)?;
    let op = Op::Transfer { offset: 0, len: 4096 };
    let memory = Memory::Own(blank(&engine, 4096));
    let request = Request {
        memory,
        ..Request::bare(op, Some(&source), Policy::kernel())
    };
    refused_at_once(&mut engine, request, EBADF)?;
    let memory = Memory::Own(blank(&engine, 4096));
    let request = Request {
        memory,
        target: Some(target),
        ..Request::bare(op, None, Policy::kernel())
    };
    refused_at_once(&mut engine, request, EBADF)
}

pub(crate) fn a_window_that_cannot_be_one_is_refused(bench: &Bench) -> Case {
    let (mut engine, source, target, _reader) = setting(bench)?;
    let list = blanks(&engine, [4096, 4096]);
    for (window, expected) in [
        (Memory::None, EINVAL),
        (Memory::Own(blank(&engine, 0)), EINVAL),
        (list, EINVAL),
        (
            Memory::Shared(buffer(&engine, &[1; 4096]).freeze()),
            Error::ReadOnlyMemory,
        ),
    ] {
        let request = Request::transfer(&source, 0, 4096, &target, window, Policy::kernel());
        refused_at_once(&mut engine, request, expected)?;
    }
    Ok(())
}

pub(crate) fn a_transfer_of_more_than_a_result_can_tell_is_refused(bench: &Bench) -> Case {
    let (mut engine, source, target, _reader) = setting(bench)?;
    let request = Request::transfer(&source, 0, 1 << 32, &target, blank(&engine, 4096), Policy::kernel());
    refused_at_once(&mut engine, request, EINVAL)
}

pub(crate) fn a_transfer_from_beyond_every_file_is_refused(bench: &Bench) -> Case {
    let (mut engine, source, target, _reader) = setting(bench)?;
    for offset in [i64::MAX as u64 - 100, 1 << 63, u64::MAX] {
        let request = Request::transfer(&source, offset, 4096, &target, blank(&engine, 4096), Policy::kernel());
        refused_at_once(&mut engine, request, Error::System(Errno::EFBIG))?;
    }
    Ok(())
}

pub(crate) fn a_misaligned_direct_transfer_is_refused(bench: &Bench) -> Case {
    let (mut engine, source, target, _reader) = setting(bench)?;
    let policy = direct(&source)?;
    for (offset, window) in [(1, 4096), (0, 100)] {
        let request = Request::transfer(&source, offset, 4096, &target, blank(&engine, window), policy);
        let done = go!(engine, request)?;
        assert!(
            matches!(done.result, Err(Error::Misaligned { .. })),
            "{:?}",
            done.result
        );
        assert_eq!(done.iterations, 0);
    }
    Ok(())
}

/// Neither a 31-bit count nor a 16-bit one may wrap round; the range is a hole, and /dev/null takes everything.
pub(crate) fn a_transfer_goes_past_two_gib(bench: &Bench) -> Case {
    const LEN: u64 = (2 << 30) + (100 << 20) + 4096;
    let path = bench.path()?;
    let source = File::open(&path, &Open::write()).expect("a test file");
    source.set_size(LEN + 4096).expect("a sparse file");
    let target = File::open(std::path::Path::new("/dev/null"), &Open::write()).expect("a device");
    let mut engine = bench.engine();
    let policy = policies(&source).last().expect("a mode");
    let request = Request::transfer(&source, 0, LEN, &target, blank(&engine, 4 << 20), policy);
    let done = go!(engine, request)?;
    assert_eq!((done.result, done.bytes_done), (Ok(LEN as u32), LEN as u32));
    Ok(())
}
