//! However a service ends, nobody waits for ever: not the futures under way, not those that wait for a place, not a thread
//! in `wait` or `turn`, not an operation. Each gets an error with a cure, and what memory can come back does.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use baio::{
    Backend, Buffer, CreateOptions, Done, Failed, Fault, Link, Remote, Request, Segment, SegmentOp, Status, StatusWord,
    Wait,
};
use futures_util::future::join_all;

use crate::common::gate::{self, Gate};
use crate::common::{self, Wakes};

type Reads = Vec<Pin<Box<Request<Remote, Buffer>>>>;
type Ended = Result<Done<Buffer>, Failed<Buffer>>;

/// More reads and writes than there are places.
const CROWD: u64 = 200;

/// Reads and writes, all polled once.
fn crowd(count: u64, segment: &Segment<Remote>, context: &mut Context<'_>) -> Reads {
    let mut all: Reads = (0..count)
        .map(|n| {
            let buffer = segment.buffer(4096).unwrap();
            let offset = n % 16 * 4096;
            Box::pin(if n % 2 == 0 {
                segment.read_at(offset, buffer)
            } else {
                segment.write_at(offset, buffer)
            })
        })
        .collect();
    for future in &mut all {
        assert!(future.as_mut().poll(context).is_pending());
    }
    all
}

fn ends(mut all: Reads, wakes: &Wakes, waker: &Waker) -> Vec<Ended> {
    let guard = Instant::now();
    let mut ends = Vec::new();
    while !all.is_empty() {
        assert!(guard.elapsed() < Duration::from_secs(60), "{} wait for ever", all.len());
        while wakes.take() == 0 {
            assert!(guard.elapsed() < Duration::from_secs(60), "nobody was woken");
            std::thread::yield_now();
        }
        all.retain_mut(|future| match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(ended) => {
                ends.push(ended);
                false
            }
            Poll::Pending => true,
        });
    }
    ends
}

/// `why`: what everybody is told who is not told that nobody knows.
fn dies(kill: fn(&Gate), why: fn(&Fault) -> bool) {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "doomed", 64 << 10);
    let free = volume.arena_free_bytes();
    gate.close();
    let (wakes, waker) = Wakes::new();
    let all = crowd(CROWD, &segment, &mut Context::from_waker(&waker));
    let word = StatusWord::new();
    let thread = {
        let volume = volume.clone();
        std::thread::spawn(move || volume.create_segment("never", &CreateOptions::of_size(4096)).wait())
    };
    gate.wait_for(32);
    kill(&gate);
    let ends = ends(all, &wakes, &waker);
    let errors = || ends.iter().map(|ended| &ended.as_ref().unwrap_err().error);
    for error in errors() {
        assert!(error.cure().is_some(), "{error}");
        let indeterminate = error.code() == "EINDETERMINATE";
        assert!(indeterminate || why(&error.fault), "{error}");
        assert!(!(indeterminate && error.operation == "read"), "{error}");
    }
    assert!(errors().any(|error| error.code() == "EINDETERMINATE"));
    let created = thread.join().unwrap();
    assert!(why(&created.unwrap_err().fault));
    drop(ends);
    assert_eq!(volume.arena_free_bytes(), free, "every buffer is back");

    // Whatever is tried later is told at once.
    let ended = volume.block_on(segment.write_at(0, client_buffer())).unwrap();
    assert!(why(&ended.unwrap_err().error.fault));
    assert!(volume.block_on(volume.list()).unwrap().is_err());
    assert!(volume.turn(Wait::one()).is_err());
    assert!(segment.buffer(4096).is_err());
    let mut request = segment.request(SegmentOp::Sync, baio::Memory::None);
    request.status = Some(word.clone());
    assert!(segment.submit(request).is_err());
    assert_eq!(word.get(), Status::InFlight, "it was never taken");
    assert!(why(&volume.close().unwrap_err().fault));
}

/// A buffer that needs no service.
fn client_buffer() -> Buffer {
    baio_engine::Arena::new(4096).unwrap().buffer(4096).unwrap()
}

#[test]
fn a_service_that_panics_tells_everybody() {
    dies(Gate::panic, |fault| matches!(fault, Fault::ServiceEnded));
}

#[test]
fn a_service_whose_backend_breaks_tells_everybody() {
    // The device says so, and they are told.
    dies(Gate::break_it, |fault| {
        matches!(fault, Fault::ServiceFailed(baio::Errno::EIO))
    });
}

#[test]
fn threads_that_wait_are_told_too() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "doomed", 64 << 10);
    gate.close();
    let word = StatusWord::new();
    let threads: Vec<_> = (0..6_u64)
        .map(|n| {
            let (volume, segment, word) = (volume.clone(), segment.clone(), word.clone());
            std::thread::spawn(move || {
                let mut request = segment.request(SegmentOp::Read { offset: n * 4096 }, segment.buffer(4096).unwrap());
                match n {
                    0..2 => {
                        let ticket = segment.submit(request).unwrap();
                        volume.wait(ticket).unwrap().unwrap().result.unwrap_err()
                    }
                    2..4 => volume.block_on(segment.run(request)).unwrap().unwrap_err().error,
                    _ => {
                        if n == 4 {
                            request.status = Some(word);
                        }
                        segment.submit(request).unwrap();
                        while volume.turn(Wait::one()).is_ok() {
                            while volume.next_outcome().is_some() {}
                        }
                        baio::Error::new("turn", "it", Fault::ServiceEnded)
                    }
                }
            })
        })
        .collect();
    gate.wait_for(6);
    gate.panic();
    for thread in threads {
        assert!(matches!(thread.join().unwrap().fault, Fault::ServiceEnded));
    }
    assert_eq!(word.get(), Status::Failed(baio::Errno::EPIPE));
}

#[test]
fn closing_lets_what_is_under_way_end_and_turns_others_away() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "open", 64 << 10);
    gate.close();
    let (wakes, waker) = Wakes::new();
    let all = crowd(CROWD, &segment, &mut Context::from_waker(&waker));
    let closer = {
        let volume = volume.clone();
        std::thread::spawn(move || volume.close())
    };
    while segment.buffer(4096).is_ok() {
        std::thread::yield_now();
    }
    gate.open();
    let ends = ends(all, &wakes, &waker);
    closer.join().unwrap().unwrap();
    let (done, refused): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_ok);
    assert!(
        done.len() >= 100 && !refused.is_empty(),
        "{} ended, {} refused",
        done.len(),
        refused.len()
    );
    for ended in refused {
        let failed = ended.unwrap_err();
        assert!(matches!(failed.error.fault, Fault::Stale));
        assert_eq!(failed.buffer.unwrap().len(), 4096, "its buffer comes back");
    }
    volume.close().unwrap();
}

#[test]
fn a_closed_volume_is_clean_and_a_dropped_one_is_given_back() {
    let (_dir, path) = common::image(16 << 20);
    let options = common::options(Backend::Auto, 128);
    let volume = Remote::open_with(&path, &options).unwrap();
    let segment = common::segment(&volume, "kept", 64 << 10);
    let mut page = segment.buffer(4096).unwrap();
    page.fill(5);
    segment.write_at(0, page).wait().unwrap();
    assert!(Remote::open_with(&path, &options).is_err(), "it has one owner");
    volume.clone().close().unwrap();
    assert!(volume.block_on(volume.list()).unwrap().is_err());
    assert!(
        volume.block_on(std::future::pending::<()>()).is_err(),
        "it cannot sleep"
    );
    let (info, _) = baio::Core::inspect(&path, baio::Identity::effective()).unwrap();
    assert!(info.clean);
    drop((segment, volume));

    let volume = Remote::open_with(&path, &options).unwrap();
    let segment = volume.open_segment("kept", baio::Access::Read).wait().unwrap();
    let back = segment.read_at(0, segment.buffer(4096).unwrap()).wait().unwrap();
    assert!(back.buffer.iter().all(|&byte| byte == 5));
    // With requests in flight, and nobody left who would take them.
    for n in 0..16 {
        let read = segment.request(SegmentOp::Read { offset: n * 4096 }, segment.buffer(4096).unwrap());
        segment.submit(read).unwrap();
    }
    volume.turn(Wait::No).unwrap();
    drop((segment, volume));
    // The lock is free at once.
    Remote::open_with(&path, &options).unwrap().close().unwrap();
}

#[test]
fn an_open_that_fails_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let error = Remote::open(dir.path().join("none")).unwrap_err();
    assert_eq!(error.code(), "ENOENT");
    let error = Remote::around(|| panic!("in the making"), &baio::LinkOptions::default()).unwrap_err();
    assert!(matches!(error.fault, Fault::ServiceEnded));
}

/// The helper sleeps for one future; the next one is sent all the same.
#[test]
fn a_future_polled_while_somebody_sleeps_is_sent() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "one by one", 64 << 10);
    gate.close();
    let mut reads: Reads = Vec::new();
    for sent in 1..=8 {
        reads.push(Box::pin(segment.read_at(0, segment.buffer(4096).unwrap())));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(reads[sent - 1].as_mut().poll(context).is_pending());
        gate.wait_for(sent);
        // Now it sleeps again: nothing is left to be done.
        std::thread::sleep(Duration::from_millis(5));
    }
    gate.open();
    let ends = volume.block_on(join_all(reads)).unwrap();
    assert!(ends.iter().all(Result::is_ok));
}

#[test]
fn dropped_futures_give_their_memory_back() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "dropped", 64 << 10);
    let free = volume.arena_free_bytes();
    gate.close();
    let all = crowd(100, &segment, &mut Context::from_waker(Waker::noop()));
    gate.wait_for(32);
    drop(all);
    gate.open();
    // The helper reaps for them; nobody else looks.
    let guard = Instant::now();
    while volume.arena_free_bytes() != free {
        assert!(guard.elapsed() < Duration::from_secs(60), "memory is missing");
        std::thread::yield_now();
    }
    // And every place is free again.
    let reads = (0..128).map(|n| segment.read_at(n % 16 * 4096, segment.buffer(4096).unwrap()));
    let ends = volume.block_on(join_all(reads)).unwrap();
    assert!(ends.iter().all(Result::is_ok));
}

/// The same where nobody has reaped so far but the thread that has left.
#[test]
fn futures_dropped_inside_block_on_give_their_memory_back() {
    let (gate, volume) = gate::gated();
    let segment = common::segment(&volume, "dropped", 64 << 10);
    let free = volume.arena_free_bytes();
    gate.close();
    let mut all: Reads = Vec::new();
    let work = std::future::poll_fn(|context| {
        if all.is_empty() {
            all = crowd(50, &segment, context);
            context.waker().wake_by_ref();
            return Poll::Pending; // Now they are sent.
        }
        gate.wait_for(50);
        all.clear();
        Poll::Ready(())
    });
    volume.block_on(work).unwrap();
    gate.open();
    let guard = Instant::now();
    while volume.arena_free_bytes() != free {
        assert!(guard.elapsed() < Duration::from_secs(20), "memory is missing");
        std::thread::yield_now();
    }
}
