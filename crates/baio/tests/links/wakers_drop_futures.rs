//! A waker may do anything, even drop other futures of the same link, and so may the drop of a waker: both happen when the
//! core is not borrowed. It may also wait for what ended in the same turn; and if it panics, the others are woken all the same.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use baio::{Backend, Buffer, Event, File, Link, Local, Log, LogOptions, Operation, Request, SegmentOp, Wait};

use crate::common::story::tell_of;
use crate::common::{self, Wakes};

type Futures = Rc<RefCell<Vec<Pin<Box<Request<Local, Buffer>>>>>>;

thread_local! {
    /// What the waker drops when it is woken; thread-local, because wakers are `Send` and these futures are not.
    static VICTIMS: RefCell<Option<Futures>> = const { RefCell::new(None) };
}

struct Assassin;

impl Wake for Assassin {
    fn wake(self: Arc<Self>) {
        kill();
    }
}

fn kill() {
    if let Some(victims) = VICTIMS.with_borrow_mut(Option::take) {
        victims.borrow_mut().clear();
    }
}

fn reads(volume: &Local, count: u64) -> Futures {
    let segment = common::segment(volume, "victims", 1 << 20);
    let read = |block| Box::pin(segment.read_at(block * 4096, segment.buffer(4096).unwrap()));
    Rc::new(RefCell::new((0..count).map(read).collect()))
}

#[test]
fn a_waker_may_drop_other_futures_from_inside_a_turn() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let free = volume.arena_free_bytes();
    let driver = volume.drive();
    let all = reads(&volume, 16);
    let mut first = all.borrow_mut().remove(0);
    let waker = Waker::from(Arc::new(Assassin));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for read in all.borrow_mut().iter_mut() {
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    VICTIMS.set(Some(Rc::clone(&all)));
    while !all.borrow().is_empty() {
        volume.turn(Wait::one()).unwrap();
    }
    // What was dropped ends by itself, and every buffer is back in the arena.
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    let Poll::Ready(ended) = first.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("the first read has ended");
    };
    let done = ended.unwrap();
    assert_eq!(done.bytes, 4096);
    drop((done, first, driver));
    assert_eq!(volume.arena_free_bytes(), free);
}

/// A waker whose last drop runs code: what a task that owns its own futures does.
fn dropping_waker() -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(|_| raw(), |_| kill(), |_| kill(), |_| kill());
    const fn raw() -> RawWaker {
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    #[allow(unsafe_code)]
    // SAFETY: the table ignores its data pointer.
    unsafe {
        Waker::from_raw(raw())
    }
}

#[test]
fn the_drop_of_a_waker_may_drop_other_futures() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let driver = volume.drive();
    let all = reads(&volume, 8);
    let mut first = all.borrow_mut().remove(0);
    let waker = dropping_waker();
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for read in all.borrow_mut().iter_mut() {
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    VICTIMS.set(Some(Rc::clone(&all)));
    // Dropping the future drops its waker, which drops the others.
    drop(first);
    assert!(all.borrow().is_empty());
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    drop(driver);
}

#[test]
fn replacing_a_waker_may_drop_other_futures() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let driver = volume.drive();
    let all = reads(&volume, 8);
    let mut first = all.borrow_mut().remove(0);
    let waker = dropping_waker();
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for read in all.borrow_mut().iter_mut() {
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    VICTIMS.set(Some(Rc::clone(&all)));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    assert!(all.borrow().is_empty());
    drop((first, driver));
}

type Open = Pin<Box<Operation<Local, File<Local>>>>;

/// An open has places of its own for wakers, since it waits for a path and for no slot.
fn an_open_lets_its_waker_go(how: fn(Open)) {
    let (dir, volume) = common::volume(Backend::Auto);
    let free = volume.arena_free_bytes();
    let driver = volume.drive();
    let all = reads(&volume, 8);
    for read in all.borrow_mut().iter_mut() {
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let mut open = Box::pin(File::open(&volume, common::fifo(dir.path())));
    let waker = dropping_waker();
    assert!(open.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    VICTIMS.set(Some(Rc::clone(&all)));
    how(open);
    assert!(all.borrow().is_empty());
    common::finish(&volume);
    drop(driver);
    assert_eq!(volume.arena_free_bytes(), free);
}

#[test]
fn replacing_the_waker_of_an_open_may_drop_other_futures() {
    tell_of(|| {
        an_open_lets_its_waker_go(|mut open| {
            let polled = open.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        });
    });
}

#[test]
fn leaving_an_open_may_drop_other_futures() {
    tell_of(|| an_open_lets_its_waker_go(drop));
}

#[test]
fn a_waker_that_panics_leaves_nobody_else_asleep() {
    let (_dir, volume) = common::volume(Backend::Sync);
    let segment = common::segment(&volume, "two", 64 << 10);
    let driver = volume.drive();
    let (wakes, waker) = Wakes::new();
    let mut reads: Vec<_> = (0..2)
        .map(|block| Box::pin(segment.read_at(block * 4096, segment.buffer(4096).unwrap())))
        .collect();
    for (read, waker) in reads.iter_mut().zip([common::panicking_waker(), waker]) {
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // This backend refuses a timer, and the same turn says so.
    let (slept, waker) = Wakes::new();
    let mut sleep = volume.sleep(Duration::ZERO);
    assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
    let mut panics = 0;
    while volume.in_flight() > 0 {
        let turned = catch_unwind(AssertUnwindSafe(|| volume.turn(Wait::one()).unwrap()));
        panics += u32::from(turned.is_err());
    }
    assert_eq!((panics, wakes.count(), slept.count()), (1, 1, 1));
    drop((reads, sleep, driver));
}

thread_local! {
    /// What [`Waits`] waits for.
    static SLEEP: RefCell<Option<Event<()>>> = const { RefCell::new(None) };
}

struct Waits;

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        if let Some(sleep) = SLEEP.take() {
            let _ = sleep.wait();
        }
    }
}

/// The read's end and the timer's (a refusal by this backend) are found by one turn, and the read's waker is woken first.
#[test]
fn a_waker_may_wait_for_what_ended_in_the_same_turn() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Sync);
        let segment = common::segment(&volume, "one", 64 << 10);
        let driver = volume.drive();
        let mut sleep = volume.sleep(Duration::ZERO);
        let mut noop = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut sleep).poll(&mut noop).is_pending());
        SLEEP.set(Some(sleep));
        let waker = Waker::from(Arc::new(Waits));
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        common::finish(&volume);
        assert!(SLEEP.take().is_none(), "nobody waited for it");
        drop((read, driver));
    });
}

thread_local! {
    /// What [`Turns`] turns.
    static LINK: RefCell<Option<Local>> = const { RefCell::new(None) };
    static TURNS: Cell<u32> = const { Cell::new(0) };
}

fn turn() {
    if let Some(link) = LINK.with_borrow(Option::clone) {
        link.turn(Wait::No).unwrap();
        TURNS.set(TURNS.get() + 1);
    }
}

struct Turns;

impl Wake for Turns {
    fn wake(self: Arc<Self>) {
        turn();
    }
}

/// A turn that tells the descriptor of an event loop calls whoever stands beside a free place. Each who is called turns the link, and takes no place.
#[test]
fn a_waker_may_turn_a_link_whose_descriptor_is_being_told() {
    let (_dir, path) = common::image(16 << 20);
    let volume = Local::open_with(&path, &common::options(Backend::Sync, 8)).unwrap();
    let segment = common::segment(&volume, "full", 64 << 10);
    let _event = volume.event_fd().unwrap();
    let driver = volume.drive();
    let mut reads: Vec<_> = (0..64)
        .map(|_| Box::pin(segment.read_at(0, segment.buffer(4096).unwrap())))
        .collect();
    for read in &mut reads {
        let waker = Waker::from(Arc::new(Turns));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    common::finish(&volume);
    LINK.set(Some(volume.clone()));
    let polled = reads[0].as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready());
    LINK.set(None);
    assert!(TURNS.get() > 1, "they were not called");
    drop((reads, driver));
}

/// A waker that turns the link whenever it is cloned.
fn turning_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        turn();
        raw()
    }
    const TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| {}, |_| {}, |_| {});
    const fn raw() -> RawWaker {
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    #[allow(unsafe_code)]
    // SAFETY: the table ignores its data pointer.
    unsafe {
        Waker::from_raw(raw())
    }
}

/// This backend's refusal of the timer is found by the next turn: by none before somebody waits for it.
#[test]
fn the_clone_of_a_waker_may_turn_the_link() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Sync);
        let driver = volume.drive();
        let waker = turning_waker();
        let mut sleep = volume.sleep(Duration::ZERO);
        LINK.set(Some(volume.clone()));
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        LINK.set(None);
        assert!(TURNS.get() > 0, "it was not cloned");
        let _ = volume.block_on(sleep).unwrap();
        drop(driver);
    });
}

/// A turn ends the read of a future, whose waker panics, and one that is taken by its ticket: the program's loop hears of that.
#[test]
fn a_waker_that_panics_keeps_no_outcome_from_a_loop() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Sync);
        let segment = common::segment(&volume, "two", 64 << 10);
        let event = volume.event_fd().unwrap();
        while common::is_readable(&event) {
            volume.turn(Wait::No).unwrap();
        }
        let driver = volume.drive();
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        let waker = common::panicking_waker();
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let other = segment.request(SegmentOp::Read { offset: 4096 }, segment.buffer(4096).unwrap());
        segment.submit(other).unwrap();
        let mut panics = 0;
        while volume.in_flight() > 0 {
            let turned = catch_unwind(AssertUnwindSafe(|| volume.turn(Wait::No).unwrap()));
            panics += u32::from(turned.is_err());
        }
        assert_eq!(panics, 1);
        assert!(common::is_readable(&event), "the loop sleeps beside an outcome");
        volume.next_outcome().unwrap().result.unwrap();
        drop((read, driver));
    });
}

/// Whoever drives the link is called for what begins. If that panics, nobody has the request: nothing of it stays behind.
#[test]
fn what_begins_beside_a_driver_that_panics_leaves_nothing() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "one", 64 << 10);
        let free = volume.arena_free_bytes();
        let driver = volume.drive();
        let mut noop = Context::from_waker(Waker::noop());
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        volume.set_driver(&common::panicking_waker());
        let polled = catch_unwind(AssertUnwindSafe(|| read.as_mut().poll(&mut noop).is_ready()));
        assert!(polled.is_err(), "nobody was called for the read");
        let mut sleep = volume.sleep(Duration::from_secs(3600));
        volume.set_driver(&common::panicking_waker());
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut sleep).poll(&mut noop).is_ready()));
        assert!(polled.is_err(), "nobody was called for the timer");
        drop((read, sleep));
        common::finish(&volume);
        assert_eq!(volume.arena_free_bytes(), free);
        drop(driver);
    });
}

thread_local! {
    /// Does [`PanicsLater`] panic now?
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

struct PanicsLater;

impl Wake for PanicsLater {
    fn wake(self: Arc<Self>) {
        assert!(!PANICS.get(), "the test wants a waker to panic");
    }
}

/// The first of those who wait for a place is called for one, and panics. Whoever drives the link is to call those behind it.
#[test]
fn who_panics_when_it_is_called_for_a_place_keeps_no_driver_asleep() {
    let (_dir, path) = common::image(16 << 20);
    let volume = Local::open_with(&path, &common::options(Backend::Sync, 8)).unwrap();
    let segment = common::segment(&volume, "full", 64 << 10);
    let driver = volume.drive();
    let mut reads: Vec<_> = (0..64)
        .map(|_| Box::pin(segment.read_at(0, segment.buffer(4096).unwrap())))
        .collect();
    for read in &mut reads {
        let waker = Waker::from(Arc::new(PanicsLater));
        assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    common::finish(&volume);
    let (wakes, waker) = Wakes::new();
    volume.set_driver(&waker);
    PANICS.set(true);
    let mut noop = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| reads[0].as_mut().poll(&mut noop).is_ready()));
    PANICS.set(false);
    assert_eq!((polled.is_err(), wakes.count()), (true, 1));
    drop((reads, driver));
}

thread_local! {
    /// To which [`appending_waker`] appends.
    static LOG: RefCell<Option<Log<Local>>> = const { RefCell::new(None) };
}

fn append() {
    if let Some(log) = LOG.with_borrow(Option::clone) {
        let _ = log.append(b"from a waker");
    }
}

/// A waker that uses a log whenever it is cloned, woken or dropped.
fn appending_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        append();
        raw()
    }
    const TABLE: RawWakerVTable = RawWakerVTable::new(clone, |_| append(), |_| append(), |_| append());
    const fn raw() -> RawWaker {
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    #[allow(unsafe_code)]
    // SAFETY: the table ignores its data pointer.
    unsafe {
        Waker::from_raw(raw())
    }
}

/// The log has a lock, under which none of this may happen.
#[test]
fn the_clone_of_a_waker_may_use_the_log_that_it_waits_for() {
    tell_of(|| {
        let (_dir, volume) = common::volume(Backend::Auto);
        let segment = common::segment(&volume, "log", 1 << 20);
        let log = segment.create_log(&LogOptions::default()).wait().unwrap();
        let driver = volume.drive();
        LOG.set(Some(log.clone()));
        let waker = appending_waker();
        let mut context = Context::from_waker(&waker);
        let mut first = Box::pin(log.append_durable(b"first"));
        assert!(first.as_mut().poll(&mut context).is_pending());
        volume.turn(Wait::No).unwrap();
        // By the same waker, which stays when the first is woken.
        let mut last = Box::pin(log.append_durable(b"last"));
        assert!(last.as_mut().poll(&mut context).is_pending());
        while first.as_mut().poll(&mut context).is_pending() {
            volume.turn(Wait::No).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        // Whoever waits is to look again, since nobody drives the log.
        drop(driver);
        assert!(last.as_mut().poll(&mut context).is_ready());
        drop((first, last, waker));
        LOG.set(None);
    });
}
