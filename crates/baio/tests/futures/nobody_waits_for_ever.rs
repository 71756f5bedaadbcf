//! A future is never pending for ever: not when its request is refused at once, not when something else reaps its
//! completion, not when the driver leaves; and an outcome goes to whoever waits for it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use baio::{
    Backend, Buffer, CreateOptions, Done, Failed, Fault, File, Link, Local, Memory, Request, Segment, SegmentOp,
    StatusWord, Ticket, Wait,
};
use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;

use crate::common::gate::Gate;
use crate::common::story::tell_of;
use crate::common::{self, Wakes, begun};

#[test]
fn a_refused_request_answers_inside_block_on_and_beside_a_driver() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "refused", 64 << 10);
    let misaligned = || segment.write_at(1, segment.buffer(4096).unwrap());
    let error = misaligned().wait().unwrap_err().error;
    assert_eq!((error.code(), error.offset), ("EINVAL", Some(1)), "{error}");
    let error = common::run_elsewhere(&volume, misaligned()).unwrap_err().error;
    assert_eq!(error.code(), "EINVAL", "{error}");
    let nothing = segment.read_at(0, segment.buffer(0).unwrap()).wait().unwrap();
    assert_eq!(nothing.bytes, 0);
}

#[test]
fn an_operation_wakes_those_whose_requests_end_meanwhile() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "first", 64 << 10);
    let read = segment.read_at(0, segment.buffer(4096).unwrap());
    let create = async {
        volume
            .create_segment("second", &CreateOptions::of_size(1 << 20))
            .wait()
            .unwrap()
    };
    let (ended, _) = volume.block_on(join(read, create)).unwrap();
    assert_eq!(ended.unwrap().bytes, 4096);
}

#[test]
fn the_last_driver_that_leaves_wakes_those_who_wait() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "left", 64 << 10);
    let driver = volume.drive();
    let (wakes, waker) = Wakes::new();
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(driver);
    assert!(wakes.count() > 0);
}

/// What was written through the cache goes to the device when it is old enough, though no request is under way any more.
#[test]
fn a_driver_writes_what_has_grown_old() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut options = common::cached_options(16, 64);
    options.cache.as_mut().unwrap().age_max = Duration::from_millis(20);
    let link = Local::new_with(&options).unwrap();
    let file = File::options()
        .write()
        .create()
        .cached()
        .open(&link, &path)
        .wait()
        .unwrap();
    file.write_at(0, vec![7; 4096]).cached().wait().unwrap();
    let (wakes, waker) = Wakes::new();
    let mut driver = std::pin::pin!(link.drive());
    let mut heard = 0;
    for _ in 0..20_000 {
        assert!(driver.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        if std::fs::read(&path).unwrap() == [7; 4096] {
            return;
        }
        assert!(wakes.count() > heard, "nobody would poll the driver again");
        heard = wakes.count();
    }
    panic!("it was never written");
}

/// Whichever of the drivers is there hears of what there is to do.
#[test]
fn a_driver_that_leaves_leaves_the_link_to_the_other() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "left", 64 << 10);
    let mut one = std::pin::pin!(volume.drive());
    let (wakes, waker) = Wakes::new();
    assert!(one.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let (_, another) = Wakes::new();
    let mut two = Box::pin(volume.drive());
    assert!(two.as_mut().poll(&mut Context::from_waker(&another)).is_pending());
    drop(two);
    let _read = begun(segment.read_at(0, segment.buffer(4096).unwrap()));
    assert!(wakes.count() > 0);
}

#[cfg(feature = "tokio")]
#[test]
fn a_tokio_driver_that_leaves_leaves_the_link_to_the_other() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "left", 64 << 10);
    let read = || segment.read_at(0, segment.buffer(4096).unwrap());
    common::beside_tokio(&volume, async {
        let moment = || tokio::time::sleep(Duration::from_millis(50));
        read().await.unwrap();
        moment().await;
        let own = tokio::task::spawn_local(volume.drive_tokio());
        moment().await;
        own.abort();
        read().await.unwrap();
    });
}

type Read = Pin<Box<Request<Local, Buffer>>>;

/// As many reads as there are slots, under way; beside a driver.
fn take_every_slot(segment: &Segment<Local>) -> Vec<Read> {
    let mut all = Vec::new();
    loop {
        let read = begun(segment.read_at(0, segment.buffer(4096).unwrap()));
        if found_no_slot(&read) {
            return all;
        }
        all.push(read);
    }
}

/// Its words say what it would do as long as it has not begun.
fn found_no_slot(read: &Request<Local, Buffer>) -> bool {
    format!("{read:?}").contains("read")
}

#[test]
fn who_waits_for_a_slot_is_woken_when_others_give_theirs_up() {
    tell_of(|| {
        let (_dir, volume) = few_slots();
        let segment = common::segment(&volume, "full", 64 << 10);
        let _driver = volume.drive();
        let all = take_every_slot(&segment);
        let (wakes, waker) = Wakes::new();
        let mut late = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        assert!(late.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(found_no_slot(&late));
        wakes.take();
        drop(all);
        common::finish(&volume);
        assert!(wakes.count() > 0);
    });
}

#[test]
fn block_on_goes_on_when_others_give_their_slots_up() {
    tell_of(|| {
        let (_dir, volume) = few_slots();
        let segment = common::segment(&volume, "full", 64 << 10);
        let driver = volume.drive();
        let mut all = Some(take_every_slot(&segment));
        drop(driver);
        let mut late = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        let work = std::future::poll_fn(|context| {
            let polled = late.as_mut().poll(context);
            all = None;
            polled
        });
        assert_eq!(volume.block_on(work).unwrap().unwrap().bytes, 4096);
    });
}

fn few_slots() -> (tempfile::TempDir, Local) {
    let (dir, path) = common::image(16 << 20);
    let volume = Local::open_with(&path, &common::options(Backend::Auto, 8)).unwrap();
    (dir, volume)
}

#[test]
fn the_queue_leaves_the_outcome_of_a_future_to_it() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "mine", 64 << 10);
    let _driver = volume.drive();
    let mut context = Context::from_waker(Waker::noop());
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    assert!(read.as_mut().poll(&mut context).is_pending());
    while volume.in_flight() > 0 {
        volume.turn(Wait::one()).unwrap();
    }
    assert!(volume.next_outcome().is_none());
    let Poll::Ready(ended) = read.as_mut().poll(&mut context) else {
        panic!("it has ended");
    };
    assert_eq!(ended.unwrap().bytes, 4096);
}

#[test]
fn requests_and_tickets_of_another_volume_are_strangers() {
    let (_dir_1, one) = common::volume(Backend::Auto);
    let (_dir_2, two) = common::volume(Backend::Auto);
    let theirs = common::segment(&one, "theirs", 64 << 10);
    let ours = common::segment(&two, "ours", 64 << 10);
    let request = theirs.request(SegmentOp::Write { offset: 0 }, ours.buffer(4096).unwrap());
    let ended = two.block_on(ours.run(request)).unwrap();
    assert!(matches!(ended.unwrap_err().error.fault, Fault::Stale));
    let ticket = ours
        .submit(ours.request(SegmentOp::Read { offset: 0 }, ours.buffer(4096).unwrap()))
        .unwrap();
    assert_ne!(ticket, Ticket::default());
    two.abandon(Ticket::default());
    assert_eq!(two.wait(ticket).unwrap().unwrap().result.unwrap(), 4096);
}

#[test]
fn a_status_word_tells_the_reason() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "word", 4096);
    let word = StatusWord::new();
    let mut request = segment.request(SegmentOp::Write { offset: 4096 }, segment.buffer(4096).unwrap());
    request.status = Some(word.clone());
    let ticket = segment.submit(request).unwrap();
    let error = volume.wait(ticket).unwrap().unwrap().result.unwrap_err();
    assert_eq!(error.code(), "ENOSPC");
    assert_eq!(word.get(), baio::Status::Failed(baio::Errno::ENOSPC));
}

/// A request that has not begun by its deadline has had no effect, and its memory comes back: on both links.
#[test]
fn a_future_that_finds_no_slot_ends_at_its_deadline() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "full", 64 << 10);
    // Outcomes that nobody takes keep their places, until there is none left.
    loop {
        while segment.submit(segment.request(SegmentOp::Sync, Memory::None)).is_ok() {}
        if volume.in_flight() == 0 {
            break;
        }
        volume.turn(Wait::one()).unwrap();
    }
    let late = |wait| segment.write_at(4096, segment.buffer(4096).unwrap()).within(wait);
    ends_late(late(Duration::from_millis(50)).wait());
    ends_late(common::run_elsewhere(&volume, late(Duration::from_millis(50))));
    // One that waits without a deadline is served as soon as there is a place, whoever else gives up.
    let patient = segment.read_at(0, segment.buffer(4096).unwrap());
    let free = async {
        ends_late(late(Duration::from_millis(20)).await);
        while volume.next_outcome().is_some() {}
    };
    let (ended, ()) = volume.block_on(join(patient, free)).unwrap();
    assert_eq!(ended.unwrap().bytes, 4096);
}

#[test]
fn a_future_that_finds_no_place_on_a_service_ends_at_its_deadline() {
    let (gate, volume) = common::gate::gated();
    let segment = common::segment(&volume, "full", 1 << 20);
    gate.close();
    let mut under_way = Vec::new();
    while let Ok(ticket) = segment.submit(segment.request(SegmentOp::Sync, Memory::None)) {
        under_way.push(ticket);
    }
    let late = || {
        let write = segment.write_at(4096, segment.buffer(4096).unwrap());
        write.within(Duration::from_millis(50))
    };
    ends_late(late().wait());
    // Beside a thread that sleeps on the bell already, and where only the helper reaps.
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| volume.wait(under_way[0]));
        std::thread::sleep(Duration::from_millis(20));
        ends_late(late().wait());
        ends_late(parked(late()));
        gate.open();
        assert_eq!(sleeper.join().unwrap().unwrap().unwrap().result.unwrap(), 0);
    });
}

/// Another runtime: it knows nothing of us.
fn parked<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park_timeout(Duration::from_secs(20));
    }
}

fn ends_late(ended: Result<Done<Buffer>, Failed<Buffer>>) {
    let failed = ended.unwrap_err();
    let error = failed.error;
    assert_eq!((error.code(), error.offset), ("ECANCELED", Some(4096)), "{error}");
    assert_eq!((failed.buffer.unwrap().len(), failed.bytes_done), (4096, 0));
}

thread_local! {
    static REENTERED: RefCell<Option<Local>> = const { RefCell::new(None) };
}

fn reentering() -> RawWaker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            REENTERED.with_borrow(|volume| volume.as_ref().map(|volume| volume.stats().wait().unwrap()));
            reentering()
        },
        |_| {},
        |_| {},
        |_| {},
    );
    RawWaker::new(std::ptr::null(), &TABLE)
}

#[test]
fn the_clone_of_a_waker_may_use_the_link() {
    let (_dir, volume) = common::volume(Backend::Auto);
    let segment = common::segment(&volume, "clone", 64 << 10);
    let _driver = volume.drive();
    REENTERED.set(Some(volume.clone()));
    #[allow(unsafe_code)]
    // SAFETY: the table ignores its data pointer.
    let waker = unsafe { Waker::from_raw(reentering()) };
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    REENTERED.set(None);
}

/// Counts how often the future is polled.
struct Polls<F> {
    future: Pin<Box<F>>,
    count: Arc<AtomicUsize>,
}

impl<F: Future> Future for Polls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(context)
    }
}

/// A place that comes free wakes one of those who wait: what each costs does not grow with how many they are.
fn a_place_wakes_one<L: Link>(link: &L) {
    const TASKS: usize = 1000;
    let segment = common::segment(link, "many", 64 << 10);
    let count = Arc::new(AtomicUsize::new(0));
    let tasks = (0..TASKS).map(|_| Polls {
        future: Box::pin(segment.read_at(0, segment.buffer(4096).unwrap())),
        count: Arc::clone(&count),
    });
    let mut tasks: FuturesUnordered<_> = tasks.collect();
    link.block_on(async { while tasks.next().await.is_some() {} }).unwrap();
    let polls = count.load(Ordering::Relaxed);
    assert!(polls <= 8 * TASKS, "{polls} polls of {TASKS} requests");
}

#[test]
fn a_place_wakes_one_of_those_who_wait() {
    tell_of(|| a_place_wakes_one(&few_slots().1));
}

#[test]
fn a_place_on_a_service_wakes_one_of_those_who_wait() {
    tell_of(|| a_place_wakes_one(&common::remote::volume(Backend::Auto).1));
}

#[test]
fn who_was_woken_for_a_slot_and_leaves_hands_it_on() {
    let (_dir, path) = common::image(16 << 20);
    let mut options = common::options(Backend::Auto, 8);
    options.engine.reserved_slots = 0; // An outcome that nobody takes keeps a slot that others could have.
    let volume = Local::open_with(&path, &options).unwrap();
    let segment = common::segment(&volume, "full", 64 << 10);
    let _driver = volume.drive();
    let mut all = take_every_slot(&segment);
    let late = |waker: &Waker| {
        let mut read = Box::pin(segment.read_at(0, segment.buffer(4096).unwrap()));
        assert!(read.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        read
    };
    // The one that found every slot taken stands before them.
    let [(first, one), (second, two), (third, three)] = [Wakes::new(), Wakes::new(), Wakes::new()];
    let waiting = [late(&one), late(&two), late(&three)];
    let woken = || [first.count(), second.count(), third.count()];
    drop(all.pop());
    // Without a sleep: that is for when all who were called have been polled.
    while volume.in_flight() > 0 {
        volume.turn(Wait::No).unwrap();
    }
    assert_eq!(woken(), [1, 0, 0], "a place has come free");
    let [one, two, _three] = waiting;
    drop(two);
    assert_eq!(woken(), [1, 0, 0], "who was not woken hands nothing on");
    drop(one);
    assert_eq!(woken(), [1, 0, 1]);
}

/// What has no place in the table of requests has slots of the engine: they are for requests again when it has ended.
#[test]
fn who_waits_for_the_slots_of_operations_is_called() {
    let gate = Gate::default();
    let link = common::gate::gated_here(&gate, 4);
    let segment = common::segment(&link, "mine", 64 << 10);
    let _driver = link.drive();
    gate.close();
    let names = ["one", "two", "three", "four"];
    let creates = names.map(|name| begun(link.create_segment(name, &CreateOptions::of_size(1 << 20))));
    for _ in 0..8 {
        link.turn(Wait::No).unwrap();
    }
    let (called, waker) = Wakes::new();
    let mut read = std::pin::pin!(segment.read_at(0, segment.buffer(4096).unwrap()));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    gate.open();
    // Without a sleep: before one a driver calls whoever stands beside a free slot.
    while link.in_flight() > 0 {
        link.turn(Wait::No).unwrap();
    }
    assert!(called.count() > 0);
    drop(creates);
}

/// Nothing is at the device: what ends the wait is another task of the same thread, and the driver does not sleep over it.
#[test]
fn a_driver_lets_the_task_go_on_that_ends_the_wait() {
    tell_of(|| {
        let (_dir, volume) = common::cached(16, 64);
        let segment = common::segment(&volume, "gated", 64 << 10);
        let work = async {
            let pin = segment.pin(0).await.unwrap();
            pin.change(500, |page| page[0] = 1).await.unwrap();
            drop(pin);
            let log = async {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                volume.set_durable_lsn(500).await
            };
            let (synced, told) = join(segment.sync(baio::Durability::Data), log).await;
            told.unwrap();
            synced.unwrap();
        };
        common::run_elsewhere(&volume, work);
    });
}
