//! Many threads share one link: each byte that comes back is the one that was written, whoever reaps for whom; futures are
//! dropped at random meanwhile; wakers do what they like.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use baio::{Backend, Buffer, Link, Remote, Request, Segment, SegmentOp, Wait};
use baio_engine::sim::Random;
use futures_util::future::{Either, join_all, select};

use crate::common::{self, remote};

fn stamp(thread: u64, block: u64, version: u64, page: &mut [u8]) {
    let mut random = Random(thread << 48 | block << 32 | version);
    for word in page.chunks_exact_mut(8) {
        word.copy_from_slice(&random.bits().to_le_bytes());
    }
}

fn expect(thread: u64, block: u64, version: u64, page: &[u8]) {
    let mut should = vec![0; page.len()];
    stamp(thread, block, version, &mut should);
    assert!(page == should, "thread {thread}, block {block}, version {version}");
}

const BLOCKS: u64 = 16;

/// Each thread has blocks of its own, and its own way to wait.
fn work(volume: &Remote, segment: &Segment<Remote>, thread: u64, rounds: u64) {
    let offset = |block: u64| (thread * BLOCKS + block) * 4096;
    let mut versions = [0_u64; BLOCKS as usize];
    let mut random = Random(thread);
    let fill = |block, version| {
        let mut page = segment.buffer(4096).unwrap();
        stamp(thread, block, version, &mut page);
        page
    };
    for block in 0..BLOCKS {
        segment.write_at(offset(block), fill(block, 0)).wait().unwrap();
    }
    for round in 1..=rounds {
        let block = random.bits() % BLOCKS;
        let write = || segment.request(SegmentOp::Write { offset: offset(block) }, fill(block, round));
        match thread % 3 {
            // Blocks, by ticket.
            0 => {
                let ticket = loop {
                    match segment.submit(write()) {
                        Ok(ticket) => break ticket,
                        Err(_) => std::thread::yield_now(),
                    }
                };
                volume.wait(ticket).unwrap().unwrap().result.unwrap();
            }
            // Drives its futures itself.
            1 => {
                volume.block_on(segment.run(write())).unwrap().unwrap();
            }
            // Leaves reaping to the helper.
            _ => {
                park_on(segment.run(write())).unwrap();
            }
        }
        versions[block as usize] = round;
        if random.bits().is_multiple_of(4) {
            // One of two reads is dropped half-way; its slot and memory come back by themselves.
            let other = random.bits() % BLOCKS;
            let one = segment.read_at(offset(block), segment.buffer(4096).unwrap());
            let two = segment.read_at(offset(other), segment.buffer(4096).unwrap());
            let (ended, of) = match volume.block_on(select(one, two)).unwrap() {
                Either::Left((ended, _)) => (ended, block),
                Either::Right((ended, _)) => (ended, other),
            };
            expect(thread, of, versions[of as usize], &ended.unwrap().buffer);
        }
    }
    let reads = (0..BLOCKS).map(|block| segment.read_at(offset(block), segment.buffer(4096).unwrap()));
    let ends = volume.block_on(join_all(reads)).unwrap();
    for (block, ended) in (0..).zip(ends) {
        expect(thread, block, versions[block as usize], &ended.unwrap().buffer);
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor that knows nothing of us.
fn park_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

fn share(backend: Backend, threads: u64, rounds: u64) {
    let (_dir, volume) = remote::volume(backend);
    let segment = common::segment(&volume, "shared", 4 << 20);
    let free = volume.arena_free_bytes();
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let (volume, segment) = (volume.clone(), segment.clone());
            std::thread::spawn(move || work(&volume, &segment, thread, rounds))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    assert_eq!(volume.arena_free_bytes(), free);
    volume.close().unwrap();
}

#[test]
fn every_byte_is_the_one_that_was_written() {
    share(Backend::Auto, 12, 300);
}

#[test]
fn also_on_the_backend_that_blocks() {
    share(Backend::Sync, 6, 100);
}

#[test]
fn raw_batches_of_several_threads_lose_nothing() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "raw", 1 << 20);
    let ended = Arc::new(Mutex::new(vec![0_u32; 4 * 500]));
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let (volume, segment, ended) = (volume.clone(), segment.clone(), Arc::clone(&ended));
            std::thread::spawn(move || {
                let mut next = 0;
                // Outcomes of all threads come out of one queue, so each takes whatever there is.
                while next < 500 || volume.in_flight() > 0 {
                    while next < 500 {
                        let read = SegmentOp::Read {
                            offset: next % 256 * 4096,
                        };
                        let Ok(buffer) = segment.buffer(4096) else { break };
                        let mut request = segment.request(read, buffer);
                        request.tag = thread * 500 + next;
                        if segment.submit(request).is_err() {
                            break;
                        }
                        next += 1;
                    }
                    volume.turn(Wait::one()).unwrap();
                    while let Some(outcome) = volume.next_outcome() {
                        outcome.result.unwrap();
                        ended.lock().unwrap()[outcome.tag as usize] += 1;
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    while let Some(outcome) = volume.next_outcome() {
        ended.lock().unwrap()[outcome.tag as usize] += 1;
    }
    assert!(ended.lock().unwrap().iter().all(|&times| times == 1));
}

/// One thread has the role and waits for something else; another one takes outcomes out of the queue.
#[test]
fn whoever_reaps_tells_those_who_take_any_outcome() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "others", 64 << 10);
    let (tell, told) = std::sync::mpsc::channel::<Waker>();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let reaper = {
        let (volume, done) = (volume.clone(), Arc::clone(&done));
        std::thread::spawn(move || {
            let other = std::future::poll_fn(|context| {
                let _ = tell.send(context.waker().clone());
                match done.load(std::sync::atomic::Ordering::SeqCst) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                }
            });
            volume.block_on(other).unwrap();
        })
    };
    let waker = told.recv().unwrap();
    for _ in 0..20 {
        // Most likely it sleeps on the bell by now, so that this thread is a follower.
        std::thread::sleep(std::time::Duration::from_millis(2));
        let read = segment.request(SegmentOp::Read { offset: 0 }, segment.buffer(4096).unwrap());
        segment.submit(read).unwrap();
        volume.turn(Wait::one()).unwrap();
        volume.next_outcome().unwrap().result.unwrap();
    }
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    waker.wake();
    reaper.join().unwrap();
}

type Victims = Arc<Mutex<Vec<Pin<Box<Request<Remote, Buffer>>>>>>;

struct Assassin(Victims, Remote);

impl Wake for Assassin {
    fn wake(self: Arc<Self>) {
        let victims = std::mem::take(&mut *self.0.lock().unwrap());
        drop(victims);
        // Even this: the role of reaping is free while wakers run.
        assert!(self.1.block_on(async { self.1.info().await }).unwrap().is_ok());
    }
}

#[test]
fn a_waker_may_drop_other_futures_and_wait_itself() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "victims", 1 << 20);
    let free = volume.arena_free_bytes();
    let read = |block: u64| Box::pin(segment.read_at(block * 4096, segment.buffer(4096).unwrap()));
    for _ in 0..50 {
        let victims: Victims = Arc::new(Mutex::new((1..16).map(read).collect()));
        let waker = Waker::from(Arc::new(Assassin(Arc::clone(&victims), volume.clone())));
        let mut first = read(0);
        // The helper may still be awake from the round before, and one poll is enough for what it reaps meanwhile.
        let all = std::mem::take(&mut *victims.lock().unwrap());
        let is_pending = |victim: &mut Pin<Box<Request<Remote, Buffer>>>| {
            let mut context = Context::from_waker(Waker::noop());
            victim.as_mut().poll(&mut context).is_pending()
        };
        let waiting = all
            .into_iter()
            .map(|mut victim| is_pending(&mut victim).then_some(victim));
        victims.lock().unwrap().extend(waiting.flatten());
        if first.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            continue;
        }
        while !victims.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(park_on(first).unwrap().bytes, 4096);
    }
    while volume.arena_free_bytes() != free {
        volume.turn(Wait::No).unwrap();
    }
}

#[test]
fn what_block_on_leaves_behind_is_reaped_by_the_helper() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "left", 64 << 10);
    let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // Polled inside, with a waker of the outside, and not polled again before that one is woken.
    let polled = volume.block_on(async { read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() });
    assert!(polled.unwrap());
    std::thread::park();
    assert_eq!(park_on(read).unwrap().bytes, 4096);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the test wants this waker to panic");
    }
}

/// The helper dies of it; others of its batch are woken all the same, and another helper reaps for the rest.
#[test]
fn a_waker_that_panics_leaves_nobody_waiting() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "panics", 64 << 10);
    for _ in 0..5 {
        let mut bad = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        let waker = Waker::from(Arc::new(Panics));
        let good = segment.read_at(4096, segment.buffer(4096).unwrap());
        let pending = bad.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        assert_eq!(park_on(good).unwrap().bytes, 4096);
        if pending {
            while volume.in_flight() > 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(park_on(bad).unwrap().bytes, 4096);
    }
}

#[test]
fn a_future_that_panics_inside_block_on_leaves_others_alone() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let segment = common::segment(&volume, "panics", 64 << 10);
    let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let work = async {
            assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            panic!("the test wants this future to panic");
        };
        volume.block_on::<std::pin::Pin<Box<dyn Future<Output = ()>>>>(Box::pin(work))
    }));
    assert!(caught.is_err());
    std::thread::park();
    assert_eq!(park_on(read).unwrap().bytes, 4096);
}

#[test]
fn another_thread_wakes_block_on() {
    let (_dir, volume) = remote::volume(Backend::Auto);
    let shared = Arc::new(Mutex::new((false, None::<Waker>)));
    let other = Arc::clone(&shared);
    let thread = std::thread::spawn(move || {
        loop {
            let mut state = other.lock().unwrap();
            if let Some(waker) = state.1.take() {
                state.0 = true;
                drop(state);
                return waker.wake();
            }
            drop(state);
            std::thread::yield_now();
        }
    });
    let answered = std::future::poll_fn(|context| {
        let mut state = shared.lock().unwrap();
        if state.0 {
            return Poll::Ready(7);
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    });
    assert_eq!(volume.block_on(answered).unwrap(), 7);
    thread.join().unwrap();
}
