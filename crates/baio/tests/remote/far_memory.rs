//! Memory that a broker cannot be shown goes through the arena that it can; who finds none there waits for some.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use baio::{Buffer, Done, Failed, Fault, Foreign, Link, Memory, Mode, Remote, Request, Segment, SegmentOp, Wait};

use crate::common::broker::Served;
use crate::common::segment;
use crate::far::MIB;

/// Memory that is not the arena's, of every kind, for reads and writes, direct and cached.
#[test]
fn other_memory_goes_through_the_arena() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", 8 * MIB);
    let elsewhere = Remote::new().unwrap();
    let mut at = 0;
    for mode in [Mode::Direct, Mode::Cached] {
        let before = volume.bounced();
        let a = a.clone().with_mode(mode);
        a.write_at(at, vec![1; 4096]).wait().unwrap();
        let mut other = elsewhere.buffer(4096).unwrap();
        other.fill(2);
        a.write_at(at + 4096, other).wait().unwrap();
        a.write_vectored_at(at + 8192, vec![vec![3; 1024], vec![4; 3072]])
            .wait()
            .unwrap();
        assert_eq!(volume.bounced(), (before.0 + 3, before.1 + 12288));
        let read = a
            .read_vectored_at(at, vec![vec![0; 4096], vec![0; 5120], vec![0; 3072]])
            .wait()
            .unwrap();
        assert_eq!(read.bytes, 12288);
        assert_eq!(read.buffer[0], [1; 4096]);
        assert_eq!(
            (&read.buffer[1][..4096], &read.buffer[1][4096..]),
            (&[2; 4096][..], &[3; 1024][..])
        );
        assert_eq!(read.buffer[2], [4; 3072]);
        assert_eq!(volume.bounced().0, before.0 + 4);
        a.read_at(at, a.buffer(4096).unwrap()).wait().unwrap();
        assert_eq!(volume.bounced().0, before.0 + 4);
        at += 64 << 10;
    }
    assert_eq!(volume.arena_free_bytes(), 4 << 20);
    // More at a time than the arena holds: they go one after the other.
    let writes = (0..32_u64).map(|at| a.write_at(at * (256 << 10), vec![at as u8; 256 << 10]));
    for done in volume.block_on(futures_util::future::join_all(writes)).unwrap() {
        done.unwrap();
    }
    let read = a.read_at(31 * (256 << 10), vec![0; 256 << 10]).wait().unwrap();
    assert!(read.buffer.iter().all(|byte| *byte == 31));
    // More than it ever holds.
    let failed = a.write_at(0, vec![0; 5 << 20]).wait().unwrap_err();
    assert!(
        matches!(failed.error.fault, Fault::NoMemory { asked: 5242880 }),
        "{failed:?}"
    );
    assert!(failed.error.cure().unwrap().contains("ask for less at a time"));
    assert_eq!(failed.buffer.unwrap().len(), 5 << 20);
}

/// A task elsewhere, which is told when it is called.
struct Task(Mutex<Sender<()>>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

fn task() -> (Waker, Receiver<()>) {
    let (tell, told) = channel();
    (Waker::from(Arc::new(Task(Mutex::new(tell)))), told)
}

/// A minute is for ever.
fn called(told: &Receiver<()>) {
    told.recv_timeout(Duration::from_secs(60)).expect("it was never called");
}

type Write<B = Vec<u8>> = Request<Remote, B>;

fn poll<B: baio::IoBuf>(write: &mut Write<B>, waker: &Waker) -> Poll<Result<Done<B>, Failed<B>>> {
    Pin::new(write).poll(&mut Context::from_waker(waker))
}

/// All of the arena is taken: one half by a write that waits for the thaw, the other by a buffer.
struct Full {
    a: Segment<Remote>,
    frozen: Option<baio::FrozenVolume>,
    held: Write,
    buffer: Buffer,
    rest: Buffer,
}

const HALF: usize = 2 << 20;
const SMALL: usize = 8192;

fn full(volume: &Remote) -> Full {
    let a = segment(volume, "a", 8 * MIB);
    let frozen = volume.freeze().wait().unwrap();
    assert_eq!(volume.arena_free_bytes(), 2 * HALF);
    let mut held = a.write_at(0, vec![1; HALF]);
    assert!(poll(&mut held, Waker::noop()).is_pending());
    let (buffer, rest) = (volume.buffer(HALF - SMALL).unwrap(), volume.buffer(SMALL).unwrap());
    Full {
        a,
        frozen: Some(frozen),
        held,
        buffer,
        rest,
    }
}

/// A request that waits for memory to be copied to sleeps, and ends at its deadline, or when there is some.
#[test]
fn who_waits_for_memory_sleeps() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let mut full = full(&volume);
    let polls = AtomicU64::new(0);
    let ended = volume.block_on(async {
        let mut late = full.a.write_at(0, vec![2; 4096]).within(Duration::from_millis(100));
        let late = poll_fn(|context| {
            polls.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut late).poll(context)
        });
        let late = late.await.unwrap_err();
        assert_eq!((late.error.code(), late.buffer), ("ECANCELED", Some(vec![2; 4096])));
        let mut next = full.a.write_at(4096, vec![3; 4096]);
        assert!(poll_fn(|context| Poll::Ready(Pin::new(&mut next).poll(context).is_pending())).await);
        full.frozen = None;
        assert_eq!(full.held.await.unwrap().bytes, HALF);
        next.await.unwrap().bytes
    });
    assert_eq!(ended.unwrap(), 4096);
    let polls = polls.into_inner();
    assert!(polls <= 4, "{polls} polls of one that had nothing to find");
}

/// A buffer that was no request's comes back on another thread. The one that is called is dropped, and cancelled the next; the third is called then.
#[test]
fn who_was_called_for_memory_and_leaves_hands_it_on() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let full = full(&volume);
    let (mut writes, mut tasks) = (Vec::new(), Vec::new());
    for nth in 0..3 {
        let (waker, told) = task();
        let mut write = full.a.write_at(nth * 4096, vec![2; HALF - SMALL]);
        assert!(poll(&mut write, &waker).is_pending());
        // The last one is polled again, by a task that is not the one of before.
        let (other, told_there) = task();
        let moves = nth == 2;
        assert!(!moves || poll(&mut write, &other).is_pending());
        writes.push(write);
        tasks.push(if moves { (other, told_there) } else { (waker, told) });
    }
    let buffer = full.buffer;
    std::thread::spawn(move || drop(buffer)).join().unwrap();
    called(&tasks[0].1);
    assert!(
        tasks[1].1.try_recv().is_err() && tasks[2].1.try_recv().is_err(),
        "one is enough"
    );
    drop(writes.remove(0));
    called(&tasks[1].1);
    let mut second = writes.remove(0);
    second.cancel();
    assert!(matches!(poll(&mut second, &tasks[1].0), Poll::Ready(Err(failed)) if failed.error.code() == "ECANCELED"));
    called(&tasks[2].1);
    let mut third = writes.remove(0);
    assert!(poll(&mut third, &tasks[2].0).is_pending());
    assert_eq!(volume.arena_free_bytes(), 0, "it has the memory");
}

/// A large wish that cannot be met keeps no small one waiting.
#[test]
fn who_wants_less_does_not_wait_for_who_wants_more() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let full = full(&volume);
    let (large, small) = (task(), task());
    let mut much = full.a.write_at(0, vec![2; HALF]);
    assert!(poll(&mut much, &large.0).is_pending());
    let mut little = full.a.write_at(0, vec![3; SMALL]);
    assert!(poll(&mut little, &small.0).is_pending());
    drop(full.rest);
    called(&small.1);
    assert!(poll(&mut little, &small.0).is_pending());
    assert_eq!(volume.arena_free_bytes(), 0, "it has the memory");
}

/// What was under way has ended, and gave nothing back: who waits is told so.
#[test]
fn who_waits_for_memory_is_told_when_none_will_come() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let mut full = full(&volume);
    let mut own = full.a.write_at(0, full.buffer);
    let (first, second) = (task(), task());
    assert!(poll(&mut own, &first.0).is_pending());
    let mut late = full.a.write_at(0, vec![2; 2 * HALF]);
    assert!(poll(&mut late, &second.0).is_pending());
    full.frozen = None;
    full.held.wait().unwrap();
    called(&second.1);
    assert!(
        poll(&mut late, &second.0).is_pending(),
        "the other is under way, or has not been looked at"
    );
    called(&first.1);
    let Poll::Ready(Ok(kept)) = poll(&mut own, &first.0) else {
        panic!("it was called before its end");
    };
    let failed = loop {
        called(&second.1);
        if let Poll::Ready(ended) = poll(&mut late, &second.0) {
            break ended.unwrap_err();
        }
    };
    assert_eq!(failed.error.code(), "ENOBUFS");
    drop(kept);
}

/// What an outcome holds comes back when it is taken: until then a request that wants it is given back, and not ended.
#[test]
fn what_lies_untaken_is_room_to_come() {
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", 8 * MIB);
    let write = |len: usize| {
        let memory = Memory::from(Foreign::of_vec(vec![1; len]));
        volume.start(a.request(SegmentOp::Write { offset: 0 }, memory))
    };
    write(HALF).unwrap();
    write(HALF).unwrap();
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    let back = write(HALF).unwrap_err();
    assert_eq!(volume.next_outcome().unwrap().result.unwrap(), HALF as u32);
    volume.start(back).unwrap();
}

/// Who reads ahead and is not read on leaves memory to others.
#[cfg(feature = "futures-io")]
#[test]
fn readers_that_rest_leave_memory_to_others() {
    use futures_util::io::AsyncReadExt;

    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", 8 * MIB);
    let work = async {
        let mut readers: Vec<_> = (0..4).map(|_| a.reader(..)).collect();
        for reader in &mut readers {
            reader.read_exact(&mut vec![0; 3 * (128 << 10) + 1]).await.unwrap();
        }
        // Without a deadline it would wait for ever.
        let write = a.write_at(0, vec![1; 4096]).within(Duration::from_secs(60));
        write.await.map(|done| done.bytes)
    };
    assert_eq!(volume.block_on(work).unwrap().unwrap(), 4096);
}

/// What others hold is not what a reader leaves to them: it leaves half of the rest.
#[cfg(feature = "futures-io")]
#[test]
fn a_reader_is_ahead_beside_memory_that_others_hold() {
    use futures_util::io::AsyncReadExt;

    const PIECE: usize = 128 << 10;
    let served = Served::new(|_| {});
    let volume = served.connect();
    let a = segment(&volume, "a", 8 * MIB);
    let _held: Vec<Buffer> = (0..HALF / PIECE).map(|_| volume.buffer(PIECE).unwrap()).collect();
    let half = volume.arena_free_bytes();
    assert_eq!(half, HALF);
    let mut reader = a.reader(..);
    let read = volume.block_on(reader.read_exact(&mut vec![0; 3 * PIECE + 1]));
    read.unwrap().unwrap();
    let free = volume.arena_free_bytes();
    assert!(free <= half - 4 * PIECE, "{free} bytes of {half} are free");
}
