//! The promise: whatever is given up half way (requests, operations, buffers, pins, freezes, links), by whom and wherever, hangs nobody, loses
//! nothing of others, and leaves no memory behind: user code in drops, wakers and closures may use the link that it came from.

#![allow(
    unsafe_code,
    reason = "a waker that owns the futures it wakes, as some executors have"
)]
#![allow(clippy::all, dead_code, unused, missing_docs, reason = "stories of misuse")]

mod common;

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use baio::{
    Access, Backend, Buffer, Config, CreateOptions, File, Format, Identity, Link, Local, Options, Owned, OwnedBytes,
    OwnedBytesMut, Remote, Request, Segment, SegmentOp, Wait,
};

fn told(story: impl FnOnce() + Send + 'static) {
    let (done, hears) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = done.send(catch_unwind(AssertUnwindSafe(story)));
    });
    match hears.recv_timeout(Duration::from_secs(20)) {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(_) => panic!("IT HANGS"),
    }
}

#[repr(align(4096))]
struct Page([u8; 4096]);
struct Owner<D: Send + 'static> {
    page: Box<Page>,
    #[allow(dead_code)]
    with: D,
}
// SAFETY: a boxed slice stays where it is when its owner moves.
unsafe impl<D: Send + 'static> OwnedBytes for Owner<D> {
    fn bytes(&mut self) -> (*mut u8, usize) {
        (self.page.0.as_mut_ptr(), 4096)
    }
}
// SAFETY: as above, and nobody else has it.
unsafe impl<D: Send + 'static> OwnedBytesMut for Owner<D> {}
fn owner<D: Send + 'static>(with: D) -> Owned<Owner<D>> {
    Owned(Owner {
        page: Box::new(Page([7; 4096])),
        with,
    })
}
/// Polls once, in the task that awaits this.
async fn polled<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}
fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

// A: the memory of an abandoned request keeps its segment.
#[test]
fn a1_remote_buffer_with_its_segment_is_abandoned() {
    told(|| {
        let (gate, volume) = common::gate::gated();
        let segment = common::segment(&volume, "a", 64 << 10);
        gate.close();
        let mut read = Box::pin(segment.read_at(0, owner(segment.clone())).direct());
        assert!(read.as_mut().poll(&mut noop()).is_pending());
        gate.wait_for(1);
        drop(read);
        drop(segment);
        gate.open();
        let end = Instant::now();
        while volume.in_flight() > 0 {
            assert!(end.elapsed() < Duration::from_secs(10));
            let _ = volume.turn(Wait::No);
        }
        volume.close().unwrap();
    });
}

// A2: an answer of with_pool that nobody wants.
#[test]
fn a2_remote_answer_with_a_segment_is_left() {
    told(|| {
        let (_dir, volume) = common::remote::volume(Backend::Auto);
        let segment = common::segment(&volume, "a", 64 << 10);
        let inside = segment.clone();
        let mut run = Box::pin(volume.with_pool(move |_| {
            std::thread::sleep(Duration::from_millis(200));
            inside
        }));
        assert!(run.as_mut().poll(&mut noop()).is_pending());
        std::thread::sleep(Duration::from_millis(50));
        drop(segment);
        drop(run);
        std::thread::sleep(Duration::from_millis(300));
        println!("{}", volume.in_flight());
        volume.close().unwrap();
    });
}

struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("the buffer's drop");
        }
    }
}

// J: the drop of an abandoned buffer panics: who gets it?
#[test]
fn j1_remote_buffer_whose_drop_panics() {
    told(|| {
        let (gate, volume) = common::gate::gated();
        let segment = common::segment(&volume, "a", 64 << 10);
        gate.close();
        let mut read = Box::pin(segment.read_at(0, owner(Bomb)).direct());
        assert!(read.as_mut().poll(&mut noop()).is_pending());
        gate.wait_for(1);
        drop(read);
        gate.open();
        std::thread::sleep(Duration::from_millis(200));
        println!("in flight {}", volume.in_flight());
        let other = segment.read_at(4096, segment.buffer(4096).unwrap()).wait();
        println!("another: {:?}", other.map(|d| d.bytes).map_err(|f| f.error.to_string()));
        let volume2 = volume.clone();
        println!("turn: {:?}", volume2.turn(Wait::one()).map_err(|e| e.to_string()));
        println!("in flight after: {}", volume.in_flight());
        volume.close().unwrap();
    });
}

// B: a waker that is displaced by the poll of an open.
type Futures = std::rc::Rc<RefCell<Vec<Pin<Box<Request<Local, Buffer>>>>>>;
thread_local! {
    static VICTIMS: RefCell<Option<Futures>> = const { RefCell::new(None) };
    static INSIDE: RefCell<Option<Pin<Box<Request<Local, Buffer>>>>> = const { RefCell::new(None) };
}
fn kill() {
    if let Some(victims) = VICTIMS.with_borrow_mut(Option::take) {
        victims.borrow_mut().clear();
    }
}
fn dropping_waker() -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(|_| raw(), |_| kill(), |_| kill(), |_| kill());
    const fn raw() -> RawWaker {
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    // SAFETY: its functions use no pointer.
    unsafe { Waker::from_raw(raw()) }
}
fn reads(volume: &Local, count: u64) -> Futures {
    let segment = common::segment(volume, "victims", 1 << 20);
    let read = |block| Box::pin(segment.read_at(block * 4096, segment.buffer(4096).unwrap()));
    std::rc::Rc::new(RefCell::new((0..count).map(read).collect()))
}
fn fifo(dir: &std::path::Path) -> std::path::PathBuf {
    let path = dir.join("fifo");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path
}
fn waker_of_an_open(leave: bool) {
    let (dir, volume) = common::volume(Backend::Auto);
    let free = volume.arena_free_bytes();
    let driver = volume.drive();
    let all = reads(&volume, 8);
    for read in all.borrow_mut().iter_mut() {
        assert!(read.as_mut().poll(&mut noop()).is_pending());
    }
    let mut open = Box::pin(File::open(&volume, fifo(dir.path())));
    let waker = dropping_waker();
    assert!(open.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    VICTIMS.set(Some(std::rc::Rc::clone(&all)));
    if leave {
        drop(open);
    } else {
        assert!(open.as_mut().poll(&mut noop()).is_pending());
    }
    assert!(all.borrow().is_empty());
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    drop(driver);
    assert_eq!(volume.arena_free_bytes(), free, "arena bytes");
}
#[test]
fn b1_waker_displaced_by_the_poll_of_an_open() {
    told(|| waker_of_an_open(false));
}
#[test]
fn b2_waker_of_an_open_that_is_left() {
    told(|| waker_of_an_open(true));
}

fn cached(pages: usize, slots: u32) -> Options {
    Options {
        identity: Identity::new(0, 0),
        config: Config {
            slots,
            arena_bytes: 4 << 20,
            ..Config::default()
        },
        ..Options::default()
    }
    .with_cache(pages * 4096)
}

// C: a closure that panics inside of Pool::read
fn panics_in_pool<L: Link>(volume: L) {
    let segment = common::segment(&volume, "c", 64 << 10);
    let handle = segment.handle();
    drop(segment.pin(0).wait().unwrap());
    let run = volume.with_pool(move |pool| pool.read(handle, 0, |_| panic!("of the caller")).map(drop));
    assert!(catch_unwind(AssertUnwindSafe(|| run.wait())).is_err());
    let mut left = 0;
    for _ in 0..100 {
        left += segment.drop_cached(0..1).wait().unwrap();
        let _ = volume.turn(Wait::No);
    }
    assert_eq!(left, 1, "the page leaves the cache");
    volume.close().unwrap();
}
#[test]
fn c1_local_panic_in_pool_read() {
    told(|| {
        let (_dir, path) = common::image(16 << 20);
        panics_in_pool(Local::open_with(&path, &cached(64, 64)).unwrap());
    });
}
#[test]
fn c2_remote_panic_in_pool_read() {
    told(|| {
        let (_dir, path) = common::image(16 << 20);
        panics_in_pool(Remote::open_with(&path, &cached(64, 64)).unwrap());
    });
}

// D: a request that is polled / dropped inside of with_pool
fn inside(polls: bool) {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "d", 64 << 10);
    let free = volume.arena_free_bytes();
    let driver = volume.drive();
    let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
    assert!(read.as_mut().poll(&mut noop()).is_pending());
    INSIDE.set(Some(read));
    volume
        .with_pool(move |_| {
            let mut read = INSIDE.take().unwrap();
            if polls {
                match read.as_mut().poll(&mut noop()) {
                    Poll::Ready(Err(failed)) => {
                        println!("inside: {}, buffer {}", failed.error, failed.buffer.is_some())
                    }
                    other => println!("inside: {:?}", other.is_pending()),
                }
            }
        })
        .wait()
        .unwrap();
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    drop(driver);
    assert_eq!(volume.arena_free_bytes(), free, "arena bytes");
}
#[test]
fn d1_request_polled_inside() {
    told(|| inside(true));
}
#[test]
fn d2_request_dropped_inside() {
    told(|| inside(false));
}

// E: bounced into what may not be written
#[test]
fn e_bounced_into_shared_memory() {
    told(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![9; 8192]).unwrap();
        let link = Local::new().unwrap();
        let file = File::options().direct().open(&link, &path).wait().unwrap();
        let shared: Arc<[u8]> = Arc::from(vec![1_u8; 4096]);
        let of = || baio::Memory::from(baio_engine::Foreign::of_arc(Arc::clone(&shared)));
        let plain = file
            .run(file.request(SegmentOp::Read { offset: 0 }, of()))
            .direct()
            .wait();
        println!("plain: {:?}", plain.map(|d| d.bytes).map_err(|f| f.error.to_string()));
        let bounced = file
            .run(file.request(SegmentOp::Read { offset: 0 }, of()))
            .direct()
            .bounced()
            .wait();
        let said = bounced.map(|d| d.bytes).map_err(|f| f.error.to_string());
        println!("bounced: {said:?}, first byte {}", shared[0]);
        assert!(said.is_err());
    });
}
#[test]
fn e2_bounced_empty() {
    told(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![9; 8192]).unwrap();
        let link = Local::new().unwrap();
        let file = File::options().write().every_mode().open(&link, &path).wait().unwrap();
        let r = file.read_at(0, Vec::<u8>::new()).direct().wait();
        println!(
            "empty direct: {:?}",
            r.map(|d| d.bytes).map_err(|f| f.error.to_string())
        );
        let r = file.read_at(0, Vec::<u8>::new()).direct().bounced().wait();
        println!(
            "empty bounced: {:?}",
            r.map(|d| d.bytes).map_err(|f| f.error.to_string())
        );
        let r = file.write_vectored_at(0, Vec::<Vec<u8>>::new()).wait();
        println!("no pieces: {:?}", r.map(|d| d.bytes).map_err(|f| f.error.to_string()));
    });
}

// F: who waits for a slot when those who have them are given up
#[test]
fn f_room_after_abandon() {
    told(|| {
        let (_dir, path) = common::image(16 << 20);
        let volume = Local::open_with(&path, &common::options(Backend::Auto, 8)).unwrap();
        let segment = common::segment(&volume, "f", 64 << 10);
        let read = || Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        let driver = volume.drive();
        let mut all = Vec::new();
        let mut late;
        loop {
            late = read();
            assert!(late.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            if format!("{late:?}").contains("read") {
                break; // It found no slot.
            }
            all.push(late);
        }
        println!("{} have slots", all.len());
        flag.0.store(false, Ordering::SeqCst);
        drop(all);
        while volume.in_flight() > 0 {
            volume.turn(Wait::one()).unwrap();
        }
        drop(driver.drop_me());
        println!("was woken: {}", flag.0.load(Ordering::SeqCst));
        assert!(flag.0.load(Ordering::SeqCst), "who waits for a slot is woken");
    });
}
trait DropMe {
    fn drop_me(self) -> Self;
}
impl<T> DropMe for T {
    fn drop_me(self) -> T {
        self
    }
}
#[test]
fn f2_block_on_after_abandon() {
    told(|| {
        let (_dir, path) = common::image(16 << 20);
        let volume = Local::open_with(&path, &common::options(Backend::Auto, 8)).unwrap();
        let segment = common::segment(&volume, "f", 64 << 10);
        let read = || Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        let mut all: Vec<_> = Vec::new();
        let driver = volume.drive();
        loop {
            let mut one = read();
            assert!(one.as_mut().poll(&mut noop()).is_pending());
            if format!("{one:?}").contains("read") {
                break;
            }
            all.push(one);
        }
        drop(driver);
        let mut all = Some(all);
        let mut late = read();
        let work = std::future::poll_fn(|context| {
            let polled = late.as_mut().poll(context);
            all = None;
            polled
        });
        println!("{}", volume.block_on(work).unwrap().unwrap().bytes);
    });
}

struct Flag(AtomicBool);
impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

// G: two drivers, and the one that came later leaves
#[test]
fn g_two_drivers() {
    told(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "g", 64 << 10);
        let mut one = std::pin::pin!(volume.drive());
        let (f1, f2) = (
            Arc::new(Flag(AtomicBool::new(false))),
            Arc::new(Flag(AtomicBool::new(false))),
        );
        let (w1, w2) = (Waker::from(Arc::clone(&f1)), Waker::from(Arc::clone(&f2)));
        assert!(one.as_mut().poll(&mut Context::from_waker(&w1)).is_pending());
        {
            let mut two = Box::pin(volume.drive());
            assert!(two.as_mut().poll(&mut Context::from_waker(&w2)).is_pending());
        }
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        assert!(read.as_mut().poll(&mut noop()).is_pending());
        println!(
            "first {} second {}",
            f1.0.load(Ordering::SeqCst),
            f2.0.load(Ordering::SeqCst)
        );
        assert!(f1.0.load(Ordering::SeqCst), "the driver that is there hears of it");
    });
}

// H: a frozen volume is dropped with writes that wait
fn frozen_drop<L: Link>(volume: L) {
    let segment = common::segment(&volume, "h", 64 << 10);
    let frozen = volume.freeze().wait().unwrap();
    let mut tickets = Vec::new();
    for n in 0..4 {
        tickets.push(
            segment
                .submit(segment.request(SegmentOp::Write { offset: n * 4096 }, segment.buffer(4096).unwrap()))
                .unwrap(),
        );
    }
    let _ = volume.turn(Wait::No);
    let mut make = Box::pin(volume.create_segment("more", &CreateOptions::of_size(1 << 20)));
    let _ = make.as_mut().poll(&mut noop());
    std::mem::forget(frozen);
    drop(make);
    drop(segment);
    let start = Instant::now();
    drop(volume);
    println!("dropped in {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(5));
}
fn frozen_close<L: Link>(volume: L) {
    let segment = common::segment(&volume, "h", 64 << 10);
    let frozen = volume.freeze().wait().unwrap();
    let ticket = segment
        .submit(segment.request(SegmentOp::Write { offset: 0 }, segment.buffer(4096).unwrap()))
        .unwrap();
    let _ = volume.turn(Wait::No);
    let mut make = Box::pin(volume.create_segment("more", &CreateOptions::of_size(1 << 20)));
    let mut again = Box::pin(volume.freeze());
    let mut check = Box::pin(volume.check());
    let mut dir = Box::pin(volume.defrag());
    let _ = (
        make.as_mut().poll(&mut noop()),
        again.as_mut().poll(&mut noop()),
        check.as_mut().poll(&mut noop()),
        dir.as_mut().poll(&mut noop()),
    );
    std::mem::forget(frozen);
    let start = Instant::now();
    let kept = volume.clone();
    volume.close().unwrap();
    println!("closed in {:?}", start.elapsed());
    drop((kept, make, again, check, dir));
    let _ = ticket;
}
#[test]
fn h1_local_frozen_drop() {
    told(|| {
        let (_d, p) = common::image(16 << 20);
        frozen_drop(Local::open_with(&p, &cached(64, 64)).unwrap())
    });
}
#[test]
fn h2_remote_frozen_drop() {
    told(|| {
        let (_d, p) = common::image(16 << 20);
        frozen_drop(Remote::open_with(&p, &cached(64, 64)).unwrap())
    });
}
#[test]
fn h3_local_frozen_close() {
    told(|| {
        let (_d, p) = common::image(16 << 20);
        frozen_close(Local::open_with(&p, &cached(64, 64)).unwrap())
    });
}
#[test]
fn h4_remote_frozen_close() {
    told(|| {
        let (_d, p) = common::image(16 << 20);
        frozen_close(Remote::open_with(&p, &cached(64, 64)).unwrap())
    });
}

// I: pins when every slot is taken
fn pins_when_full<L: Link>(volume: L, watched: bool) {
    let segment = common::segment(&volume, "i", 1 << 20);
    let mut pins = Vec::new();
    for n in 0..24 {
        let pin = segment.pin(n * 5);
        pins.push(Box::pin(if watched { pin.watched().0 } else { pin }));
    }
    let joined = futures_util::future::join_all(pins.iter_mut().map(|p| p.as_mut()));
    let ends = volume.block_on(joined).unwrap();
    let bad: Vec<_> = ends
        .iter()
        .filter_map(|e| e.as_ref().err())
        .map(|e| e.to_string())
        .collect();
    drop(ends);
    assert!(bad.is_empty(), "{} failed: {}", bad.len(), bad[0]);
}
#[test]
fn i1_local_pins() {
    told(|| {
        let (_d, p) = common::image(16 << 20);
        pins_when_full(Local::open_with(&p, &cached(64, 4)).unwrap(), false)
    });
}
#[test]
fn i2_remote_pins() {
    told(|| {
        let (_d, p) = common::image(16 << 20);
        pins_when_full(Remote::open_with(&p, &cached(64, 4)).unwrap(), false)
    });
}
#[test]
fn i3_local_pins_watched() {
    told(|| {
        let (_d, p) = common::image(16 << 20);
        pins_when_full(Local::open_with(&p, &cached(64, 4)).unwrap(), true)
    });
}

// L: the last Remote goes on the helper's thread, or inside of a buffer's drop on the service's thread
#[test]
fn l_last_link_in_a_buffer() {
    told(|| {
        let (_dir, volume) = common::remote::volume(Backend::Auto);
        let segment = common::segment(&volume, "l", 64 << 10);
        let client = Box::pin(segment.write_at(0, owner(volume.clone())).direct());
        let mut client = client;
        let _ = client.as_mut().poll(&mut noop());
        drop(client);
        drop(segment);
        drop(volume);
        std::thread::sleep(Duration::from_millis(300));
        println!(
            "service still there: {:?}",
            common::remote::thread_named("baio-service")
        );
    });
}
#[allow(unused)]
fn unused(_: Access, _: Format, _: Segment<Local>) {}

// M: what is let go beside a reactor
#[cfg(feature = "tokio")]
mod reactor {
    use super::*;
    fn run<F: Future>(link: &Local, work: F) -> F::Output {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        let link = link.clone();
        local.block_on(&rt, async move {
            let driver = tokio::task::spawn_local(link.drive_tokio());
            let out = tokio::time::timeout(Duration::from_secs(5), work)
                .await
                .expect("in time");
            driver.abort();
            out
        })
    }
    #[test]
    fn m1_thaw_by_drop() {
        told(|| {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            let segment = common::segment(&volume, "m", 64 << 10);
            run(&volume, async {
                let frozen = volume.freeze().await.unwrap();
                let mut write = Box::pin(segment.write_at(0, segment.buffer(4096).unwrap()));
                assert!(polled(write.as_mut()).await.is_pending());
                tokio::time::sleep(Duration::from_millis(50)).await;
                drop(frozen);
                write.await.unwrap();
                let frozen = volume.freeze().await.unwrap();
                let mut write = Box::pin(segment.write_at(0, segment.buffer(4096).unwrap()));
                assert!(polled(write.as_mut()).await.is_pending());
                tokio::time::sleep(Duration::from_millis(50)).await;
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(50));
                    drop(frozen)
                });
                write.await.unwrap();
            });
        });
    }
    fn thaw(driven: bool, elsewhere: bool) {
        told(move || {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            let segment = common::segment(&volume, "m", 64 << 10);
            let work = async {
                let frozen = volume.freeze().await.unwrap();
                println!("frozen");
                let mut write = Box::pin(segment.write_at(0, segment.buffer(4096).unwrap()));
                assert!(polled(write.as_mut()).await.is_pending());
                if driven {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                match elsewhere {
                    true => drop(std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(100));
                        drop(frozen)
                    })),
                    false => drop(frozen),
                }
                write.await.unwrap();
                println!("written");
            };
            match driven {
                true => run(&volume, work),
                false => volume.block_on(work).unwrap(),
            }
        });
    }
    #[test]
    fn m1a_thaw_tokio_here() {
        thaw(true, false)
    }
    #[test]
    fn m1b_thaw_tokio_elsewhere() {
        thaw(true, true)
    }
    #[test]
    fn m1c_thaw_block_on_here() {
        thaw(false, false)
    }
    #[test]
    fn m1d_thaw_block_on_elsewhere() {
        thaw(false, true)
    }
    #[test]
    fn m4_check_tokio() {
        told(move || {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            run(&volume, async { println!("{}", volume.check().await.is_ok()) });
            run(&volume, async { println!("{}", volume.defrag().await.is_ok()) });
            run(&volume, async { println!("{}", volume.list().await.is_ok()) });
        });
    }
    // With the pool's write latch: a change that waits for room until another pin goes.
    #[test]
    fn m5_pin_waits_for_unpin() {
        told(|| {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            let segment = common::segment(&volume, "m", 1 << 20);
            run(&volume, async {
                let mut pins = Vec::new();
                for n in 0..64 {
                    match segment.pin(n).await {
                        Ok(p) => pins.push(p),
                        Err(e) => {
                            println!("{n} {e}");
                            break;
                        }
                    }
                }
                let mut waits = Box::pin(segment.pin(100));
                let first = polled(waits.as_mut()).await;
                println!("pending {}", first.is_pending());
            });
        });
    }
    #[test]
    fn m2_room_by_unpin() {
        told(|| {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            let segment = common::segment(&volume, "m", 1 << 20);
            run(&volume, async {
                let mut pins = Vec::new();
                let mut n = 0;
                let mut waits = loop {
                    let mut pin = Box::pin(segment.pin(n));
                    n += 1;
                    match tokio::time::timeout(Duration::from_millis(300), pin.as_mut()).await {
                        Ok(Ok(held)) => pins.push(held),
                        Ok(Err(error)) => {
                            println!("{n}: {error}");
                            return;
                        }
                        Err(_) => break pin,
                    }
                };
                println!("{} pinned", pins.len());
                drop(pins.pop());
                waits.await.unwrap();
            });
        });
    }
    #[test]
    fn m3_an_open_that_waits() {
        told(|| {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let path = fifo(dir.path());
            let volume = Local::new().unwrap();
            run(&volume, async {
                let p2 = path.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(100));
                    std::fs::OpenOptions::new().write(true).open(p2).map(|f| {
                        std::thread::sleep(Duration::from_millis(500));
                        drop(f)
                    })
                });
                File::open(&volume, &path).await.map(drop).map_err(|e| println!("{e}"));
            });
        });
    }
}

// K: many opens that hang, then the link goes
fn many_hung<L: Link>(link: L, count: usize) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = fifo(dir.path());
    let mut opens: Vec<_> = (0..count).map(|_| Box::pin(File::open(&link, &path))).collect();
    for open in &mut opens {
        let _ = open.as_mut().poll(&mut noop());
    }
    let _ = link.turn(Wait::No);
    std::thread::sleep(Duration::from_millis(200));
    println!("threads: {}", std::fs::read_dir("/proc/self/task").unwrap().count());
    let start = Instant::now();
    link.close().unwrap();
    println!("closed in {:?}", start.elapsed());
    drop(opens);
    println!("threads: {}", std::fs::read_dir("/proc/self/task").unwrap().count());
}
#[test]
fn k1_local_many_hung_opens() {
    told(|| {
        let l = Local::new().unwrap();
        let d = l.drive();
        many_hung(l, 2000);
        drop(d)
    });
}
#[test]
fn k2_remote_many_hung_opens() {
    told(|| many_hung(Remote::new().unwrap(), 2000));
}

// N: which operations end beside a reactor, and freezes with and without a cache
#[cfg(feature = "tokio")]
mod beside {
    use super::*;
    fn run<F: Future>(link: &Local, work: F) -> Option<F::Output> {
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        let link = link.clone();
        local.block_on(&rt, async move {
            let driver = tokio::task::spawn_local(link.drive_tokio());
            let out = tokio::time::timeout(Duration::from_secs(3), work).await.ok();
            driver.abort();
            out
        })
    }
    fn freeze(options: Options, segment: bool) {
        told(move || {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &options).unwrap();
            if segment {
                let segment = common::segment(&volume, "m", 64 << 10);
                segment
                    .write_at(0, segment.buffer(4096).unwrap())
                    .cached()
                    .wait()
                    .map_err(|e| e.error.to_string());
            }
            assert!(
                run(&volume, async { volume.freeze().await.unwrap() }).is_some(),
                "a freeze beside tokio"
            );
        });
    }
    #[test]
    fn n1_freeze_plain() {
        freeze(
            Options {
                identity: Identity::new(0, 0),
                ..Options::default()
            },
            false,
        )
    }
    #[test]
    fn n2_freeze_cached() {
        freeze(cached(64, 64), false)
    }
    #[test]
    fn n3_freeze_cached_dirty() {
        freeze(cached(64, 64), true)
    }
    #[test]
    fn n4_thaw_only() {
        told(move || {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            let segment = common::segment(&volume, "m", 64 << 10);
            let frozen = volume.freeze().wait().unwrap();
            let done = run(&volume, async {
                let mut write = Box::pin(segment.write_at(0, segment.buffer(4096).unwrap()));
                assert!(polled(write.as_mut()).await.is_pending());
                tokio::time::sleep(Duration::from_millis(50)).await;
                drop(frozen);
                write.await.unwrap();
            });
            assert!(done.is_some(), "a write that waited for the thaw");
        });
    }
    #[test]
    fn n5_thaw_elsewhere() {
        told(move || {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            let segment = common::segment(&volume, "m", 64 << 10);
            let frozen = volume.freeze().wait().unwrap();
            let done = run(&volume, async {
                let mut write = Box::pin(segment.write_at(0, segment.buffer(4096).unwrap()));
                assert!(polled(write.as_mut()).await.is_pending());
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(100));
                    drop(frozen)
                });
                write.await.unwrap();
            });
            assert!(done.is_some(), "a write that waited for the thaw");
        });
    }
    // A generic driver in another executor.
    #[test]
    fn n6_freeze_drive() {
        told(move || {
            let (_d, p) = common::image(16 << 20);
            let volume = Local::open_with(&p, &cached(64, 64)).unwrap();
            drop(common::run_elsewhere(&volume, volume.freeze()).unwrap());
        });
    }
    #[test]
    fn n7_freeze_remote_polled() {
        told(move || {
            let (_d, p) = common::image(16 << 20);
            let volume = Remote::open_with(&p, &cached(64, 64)).unwrap();
            let rt = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            assert!(
                rt.block_on(async { tokio::time::timeout(Duration::from_secs(3), volume.freeze()).await })
                    .is_ok()
            );
        });
    }
}

// J2: on a local link the drop of a buffer panics inside of a turn
#[test]
fn j2_local_buffer_whose_drop_panics() {
    told(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "a", 64 << 10);
        let driver = volume.drive();
        let mut read = Box::pin(segment.read_at(0, owner(Bomb)).direct());
        assert!(read.as_mut().poll(&mut noop()).is_pending());
        let mut other = Box::pin(segment.read_at(4096, segment.buffer(4096).unwrap()));
        assert!(other.as_mut().poll(&mut noop()).is_pending());
        let _ = volume.turn(Wait::No);
        println!("drop: {}", catch_unwind(AssertUnwindSafe(|| drop(read))).is_err());
        for _ in 0..5 {
            let turned = catch_unwind(AssertUnwindSafe(|| volume.turn(Wait::No).map_err(|e| e.to_string())));
            println!(
                "turn: {:?}, in flight {}",
                turned.map_err(|_| "a panic"),
                volume.in_flight()
            );
        }
        let first = catch_unwind(AssertUnwindSafe(|| volume.turn(Wait::one()).map_err(|e| e.to_string())));
        println!(
            "turn: {:?}, in flight {}",
            first.map_err(|_| "a panic"),
            volume.in_flight()
        );
        println!(
            "other: {:?}",
            volume
                .block_on(other)
                .unwrap()
                .map(|d| d.bytes)
                .map_err(|f| f.error.to_string())
        );
        drop(driver);
        drop(segment);
        volume.close().unwrap();
    });
}
// O: an operation polled inside of with_pool: what it has is left to nobody
thread_local! {
    static OPERATION: RefCell<Option<Pin<Box<dyn Future<Output = String>>>>> = const { RefCell::new(None) };
}
#[test]
fn o_freeze_polled_inside() {
    told(|| {
        let (_dir, path) = common::image(16 << 20);
        let volume = Local::open_with(&path, &cached(64, 64)).unwrap();
        let segment = common::segment(&volume, "o", 64 << 10);
        let driver = volume.drive();
        let freeze = volume.freeze();
        let mut freeze: Pin<Box<dyn Future<Output = String>>> = Box::pin(async move {
            match freeze.await {
                Ok(_) => "frozen".into(),
                Err(e) => e.to_string(),
            }
        });
        assert!(freeze.as_mut().poll(&mut noop()).is_pending());
        OPERATION.set(Some(freeze));
        volume
            .with_pool(|_| {
                let mut freeze = OPERATION.take().unwrap();
                println!("inside: {:?}", freeze.as_mut().poll(&mut noop()));
            })
            .wait()
            .unwrap();
        drop(driver);
        let write = segment
            .write_at(0, segment.buffer(4096).unwrap())
            .within(Duration::from_secs(3))
            .wait();
        println!(
            "write: {:?}",
            write.as_ref().map(|d| d.bytes).map_err(|f| f.error.to_string())
        );
        assert!(write.is_ok(), "the volume is frozen, and nobody has it");
    });
}
// P: a buffer whose drop uses its link while a turn of a local link runs
struct Drops;
impl Drop for Drops {
    fn drop(&mut self) {
        drop(INSIDE.take());
    }
}
#[test]
fn p_buffer_drop_drops_a_request() {
    told(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "d", 64 << 10);
        let free = volume.arena_free_bytes();
        let driver = volume.drive();
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        assert!(read.as_mut().poll(&mut noop()).is_pending());
        INSIDE.set(Some(read));
        let mut abandoned = Box::pin(segment.read_at(4096, owner(Drops)).direct());
        assert!(abandoned.as_mut().poll(&mut noop()).is_pending());
        volume.turn(Wait::No).unwrap();
        drop(abandoned);
        while volume.in_flight() > 0 {
            volume.turn(Wait::one()).unwrap();
        }
        drop(driver);
        assert_eq!(volume.arena_free_bytes(), free, "arena bytes");
    });
}
// A3: two threads, the service dies with a closure queued that has a segment.
#[test]
fn a3_closure_with_a_segment_when_the_service_dies() {
    told(|| {
        let (gate, volume) = common::gate::gated();
        let segment = common::segment(&volume, "a", 64 << 10);
        let inside = segment.clone();
        let blocks = volume.with_pool(|_| std::thread::sleep(Duration::from_millis(200)));
        let mut blocks = Box::pin(blocks);
        assert!(blocks.as_mut().poll(&mut noop()).is_pending());
        std::thread::sleep(Duration::from_millis(50));
        gate.close();
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        assert!(read.as_mut().poll(&mut noop()).is_pending());
        let mut run = Box::pin(volume.with_pool(move |_| drop(inside)));
        drop(run);
        drop((segment, blocks, read));
        gate.open();
        volume.close().unwrap();
    });
}

#[cfg(feature = "tokio")]
#[test]
fn g2_two_tokio_drivers() {
    told(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "g", 64 << 10);
        let rt = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&rt, async move {
            tokio::task::spawn_local(volume.drive_tokio());
            segment.read_at(0, segment.buffer(4096).unwrap()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            // Somebody has one of his own for a while.
            let own = tokio::task::spawn_local(volume.drive_tokio());
            tokio::time::sleep(Duration::from_millis(50)).await;
            own.abort();
            let read = segment.read_at(0, segment.buffer(4096).unwrap());
            assert!(
                tokio::time::timeout(Duration::from_secs(5), read).await.is_ok(),
                "the read hangs"
            );
        });
    });
}
#[test]
fn k3_truncate_after_the_close() {
    told(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("file");
        let mut late = 0;
        for _ in 0..200 {
            std::fs::write(&path, b"old").unwrap();
            let link = Local::new().unwrap();
            let driver = link.drive();
            let mut open = Box::pin(File::options().write().create().truncate().open(&link, &path));
            assert!(open.as_mut().poll(&mut noop()).is_pending());
            drop(open);
            drop(driver);
            link.close().unwrap();
            std::fs::write(&path, b"written after the close").unwrap();
            std::thread::sleep(Duration::from_millis(3));
            late += u32::from(std::fs::read(&path).unwrap().is_empty());
        }
        println!("{late} of 200 were cut after the close");
        assert_eq!(late, 0);
    });
}
