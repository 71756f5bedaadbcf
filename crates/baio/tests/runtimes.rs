//! Another runtime drives the link: requests, timers and other tasks share its thread, and none is missed.

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use async_io::{Async, Timer};
use baio::{
    Backend, CreateOptions, Durability, File, Link, Local, Mode, OpenOptions, Segment, SegmentOp, SegmentRequest, Time,
    Wait,
};
use futures_util::StreamExt;
use futures_util::future::{Either, join_all, select};
use futures_util::stream::FuturesUnordered;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A runtime on this thread.
trait Runtime {
    /// Runs the work, with the driver as a task of its own beside it; gives up after so long.
    fn run(&self, driver: Task, work: Task);
    fn sleep(&self, duration: Duration) -> Task;
}

/// Longer than anything takes that is waited for.
const FOR_EVER: Duration = Duration::from_secs(20);

#[cfg(feature = "tokio")]
struct Tokio;

#[cfg(feature = "tokio")]
impl Runtime for Tokio {
    fn run(&self, driver: Task, work: Task) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let driver = tokio::task::spawn_local(driver);
            tokio::time::timeout(FOR_EVER, work)
                .await
                .expect("the driver slept through it");
            driver.abort();
        });
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(feature = "compio")]
struct Compio;

#[cfg(feature = "compio")]
impl Runtime for Compio {
    fn run(&self, driver: Task, work: Task) {
        let runtime = compio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let driver = compio::runtime::spawn(driver);
            compio::time::timeout(FOR_EVER, work)
                .await
                .expect("the driver slept through it");
            driver.cancel().await;
        });
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(compio::time::sleep(duration))
    }
}

struct AsyncIo;

impl Runtime for AsyncIo {
    fn run(&self, driver: Task, work: Task) {
        let given_up = pin!(Timer::after(FOR_EVER));
        // Tasks of their own: each is polled when it is woken, and not because the other was.
        let [mut driver, mut work] = [driver, work].map(|task| FuturesUnordered::from_iter([task]));
        let ended = async_io::block_on(select(work.next(), select(driver.next(), given_up)));
        assert!(matches!(ended, Either::Left(_)), "the driver slept through it");
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(async move {
            Timer::after(duration).await;
        })
    }
}

/// The library has no adapter for async-io: this one is made of what a link offers to every loop.
fn drive_async_io(link: &Local) -> Task {
    let link = link.clone();
    // It is never polled. As long as it is there, somebody reaps.
    let role = link.drive();
    Box::pin(async move {
        let _role = role;
        let ready = link.ready_fd(false).unwrap().map(|fd| Async::new(fd).unwrap());
        loop {
            drop(link.ready_fd(true).unwrap());
            link.turn(Wait::No).unwrap();
            sleep_until_news(&link, ready.as_ref()).await;
            drop(link.ready_fd(false).unwrap());
        }
    })
}

async fn sleep_until_news(link: &Local, ready: Option<&Async<std::os::fd::OwnedFd>>) {
    const SOON: Duration = Duration::from_millis(1);
    let until = link.next_wake();
    let mut timer = until.map(|at| Timer::after(at.since(link.now()).max(SOON)));
    let mut has_yielded = false;
    poll_fn(|context| {
        link.set_driver(context.waker());
        let is_sooner = |at| until.is_none_or(|until| at < until);
        let is_untold = ready.is_none() && link.in_flight() > 0;
        if link.has_news() || is_untold || link.next_wake().is_some_and(is_sooner) {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            // Those who were called go on first.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if timer.as_mut().is_some_and(|timer| pin!(timer).poll(context).is_ready()) {
            return Poll::Ready(());
        }
        ready.map_or(Poll::Pending, |ready| ready.poll_readable(context).map(Result::unwrap))
    })
    .await;
}

fn on_each(run: impl Fn(&'static dyn Runtime, fn(&Local) -> Task)) {
    run(&AsyncIo, drive_async_io);
    #[cfg(feature = "tokio")]
    run(&Tokio, |link| {
        let driver = link.drive_tokio();
        Box::pin(async { drop(driver.await) })
    });
    #[cfg(feature = "compio")]
    {
        if let Err(error) = compio::runtime::Runtime::new() {
            return println!("SKIPPED: compio's runtime: {error}");
        }
        run(&Compio, |link| {
            let driver = link.drive_compio();
            Box::pin(async { drop(driver.await) })
        });
    }
}

async fn rounds(segment: Segment<Local>, task: u64) {
    for round in 0..50_u64 {
        let offset = (task * 16 + round % 16) * 4096;
        let mut page = segment.buffer(4096).unwrap();
        page.fill(round as u8);
        let page = segment.write_all_at(offset, page).await.unwrap().buffer;
        let page = segment.read_exact_at(offset, page).await.unwrap().buffer;
        assert!(page.iter().all(|&byte| byte == round as u8));
    }
}

fn many_tasks(backend: Backend) {
    on_each(|runtime, driver| {
        let (_dir, link) = common::volume(backend);
        let segment = common::segment(&link, "async", 1 << 20);
        let ticks = Rc::new(Cell::new(0));
        let counter = Rc::clone(&ticks);
        let work = async move {
            let ticker: Task = Box::pin(async move {
                loop {
                    runtime.sleep(Duration::from_millis(1)).await;
                    counter.set(counter.get() + 1);
                }
            });
            let tasks = join_all((0..8).map(|task| rounds(segment.clone(), task)));
            let Either::Left((_, ticker)) = select(tasks, ticker).await else {
                panic!("the ticker never ends");
            };
            segment.sync(Durability::Data).await.unwrap();
            // The runtime goes on beside the link: its timers fire.
            select(ticker, runtime.sleep(Duration::from_millis(20))).await;
        };
        runtime.run(driver(&link), Box::pin(work));
        assert!(ticks.get() > 0);
        link.close().unwrap();
    });
}

#[test]
fn the_link_is_driven() {
    many_tasks(Backend::Auto);
}

#[test]
fn a_link_without_a_ready_fd_is_driven() {
    many_tasks(Backend::Sync);
}

/// What completes without the kernel, or takes several turns, is seen too.
#[test]
fn what_is_refused_or_takes_turns_is_seen() {
    for backend in [Backend::Auto, Backend::Sync] {
        on_each(|runtime, driver| {
            let (_dir, link) = common::volume(backend);
            let segment = common::segment(&link, "async", 1 << 20);
            let work = {
                let link = link.clone();
                async move {
                    let refused = segment.write_at(1, segment.buffer(4096).unwrap()).await;
                    assert_eq!(refused.unwrap_err().error.code(), "EINVAL");
                    let read = segment.read_at(0, segment.buffer(4096).unwrap());
                    let options = CreateOptions::of_size(1 << 20);
                    let create = link.create_segment("other", &options);
                    let (read, create) = futures_util::future::join(read, create).await;
                    assert_eq!((read.unwrap().bytes, create.unwrap().size_bytes), (4096, 1 << 20));
                    assert_eq!(link.list().await.unwrap().len(), 2);
                }
            };
            runtime.run(driver(&link), Box::pin(work));
            link.close().unwrap();
        });
    }
}

/// A link with few slots, and a pipe that nobody writes to: a read of it never ends.
fn link_and_pipe(slots: u32) -> (std::io::PipeWriter, Local, File<Local>) {
    let link = Local::new_with(&common::options(Backend::Auto, slots)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let pipe = OpenOptions::new().mode(Mode::Kernel).open(&link, path).wait().unwrap();
    (writer, link, pipe)
}

fn endless(link: &Local, pipe: &File<Local>, deadline: Option<Time>) -> SegmentRequest {
    SegmentRequest {
        deadline,
        ..pipe.request(SegmentOp::Read { offset: 0 }, link.buffer(4096).unwrap())
    }
}

/// Slots that the engine keeps for others are no room: who waits for one is not asked to try again and again.
#[test]
fn who_waits_for_a_slot_sleeps() {
    on_each(|runtime, driver| {
        let (_writer, link, pipe) = link_and_pipe(16);
        let mut under_way = Vec::new();
        while let Ok(ticket) = link.start(endless(&link, &pipe, None)) {
            under_way.push(ticket);
        }
        let polls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&polls);
        let mut read = pipe.read_at(0, vec![0; 10]).within(Duration::from_millis(50));
        let work = poll_fn(move |context| {
            counted.set(counted.get() + 1);
            Pin::new(&mut read).poll(context).map(|read| {
                assert_eq!(read.unwrap_err().error.code(), "ECANCELED");
            })
        });
        runtime.run(driver(&link), Box::pin(work));
        assert!(polls.get() < 20, "{} polls", polls.get());
        under_way.into_iter().for_each(|ticket| link.abandon(ticket));
    });
}

#[test]
fn a_deadline_ends_the_sleep() {
    on_each(|runtime, driver| {
        let (_writer, link, pipe) = link_and_pipe(64);
        let work = {
            let link = link.clone();
            async move {
                let request = endless(&link, &pipe, Some(link.deadline(Duration::from_millis(20))));
                let ticket = link.start(request).unwrap();
                let outcome = poll_fn(|context| link.poll(ticket, context.waker())).await;
                assert_eq!(outcome.unwrap().result.unwrap_err().code(), "EINDETERMINATE");
            }
        };
        runtime.run(driver(&link), Box::pin(work));
    });
}

/// Its first poll takes the link's last slot; it gives up when its deadline passes, and nobody else ends meanwhile.
#[test]
fn the_deadline_of_who_waits_for_a_slot_ends_the_sleep() {
    on_each(|runtime, driver| {
        let (_writer, link, pipe) = link_and_pipe(16);
        let mut under_way = Vec::new();
        while let Ok(ticket) = link.start(endless(&link, &pipe, None)) {
            under_way.push(ticket);
        }
        let read = pipe.read_at(0, vec![0; 10]).within(Duration::from_millis(20));
        let work = async { assert_eq!(read.await.unwrap_err().error.code(), "ECANCELED") };
        runtime.run(driver(&link), Box::pin(work));
        under_way.into_iter().for_each(|ticket| link.abandon(ticket));
    });
}

/// Nobody polls the link meanwhile: another thread's ring of the doorbell, and a request of a task that was asleep.
#[test]
fn an_idle_driver_is_woken() {
    on_each(|runtime, driver| {
        let dir = tempfile::tempdir().unwrap();
        let link = Local::new().unwrap();
        let file = OpenOptions::new()
            .write()
            .create()
            .open(&link, dir.path().join("file"))
            .wait()
            .unwrap();
        let work = async move {
            for _ in 0..5 {
                runtime.sleep(Duration::from_millis(5)).await;
                file.write_all_at(0, b"late").await.unwrap();
            }
        };
        runtime.run(driver(&link), Box::pin(work));
        link.close().unwrap();
    });
}

/// Sockets and timers of the link's own loop.
#[test]
fn streams_are_seen() {
    on_each(|runtime, driver| {
        let link = Local::new().unwrap();
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (one, other) = (link.stream(one).unwrap(), link.stream(other).unwrap());
        let work = {
            let link = link.clone();
            async move {
                for round in 0..10 {
                    let read = one.read(vec![0; 10]);
                    let write = async {
                        match round % 2 {
                            0 => runtime.sleep(Duration::from_millis(2)).await,
                            _ => link.sleep(Duration::from_millis(2)).await.unwrap(),
                        }
                        other.write(b"bytes").await.unwrap()
                    };
                    let (read, written) = futures_util::future::join(read, write).await;
                    assert_eq!((read.unwrap().bytes, written.bytes), (5, 5));
                }
                // One that is given up lets the link be closed.
                let read = std::pin::pin!(one.read(vec![0; 10]));
                select(read, runtime.sleep(Duration::from_millis(2))).await;
            }
        };
        runtime.run(driver(&link), Box::pin(work));
        link.close().unwrap();
    });
}

/// An accept that waits for ever keeps neither reads nor timers waiting.
#[test]
fn an_accept_that_nobody_answers_keeps_nobody_waiting() {
    on_each(|runtime, driver| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 4096]).unwrap();
        let link = Local::new().unwrap();
        let file = File::open(&link, &path).wait().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let listener = link.stream(listener).unwrap();
        let work = {
            let link = link.clone();
            async move {
                let others = async {
                    for _ in 0..20 {
                        let buffer = link.buffer(4096).unwrap();
                        assert_eq!(file.read_at(0, buffer).await.unwrap().buffer[..], [7; 4096]);
                        link.sleep(Duration::from_millis(1)).await.unwrap();
                    }
                };
                let accept = std::pin::pin!(listener.accept());
                let Either::Right(_) = select(accept, std::pin::pin!(others)).await else {
                    panic!("somebody has connected")
                };
            }
        };
        runtime.run(driver(&link), Box::pin(work));
        link.close().unwrap();
    });
}
