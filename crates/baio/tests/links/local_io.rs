//! Sockets, pipes and timers in the loop of a local link, beside its files.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use baio::{Address, File, Link, Local, Stream, Wait};
use futures_util::StreamExt;
use futures_util::future::{Either, join, join_all, select};
use futures_util::stream::FuturesUnordered;

use crate::common;

/// Each test on each of these; one that cannot start here is skipped by name.
macro_rules! on_each_backend {
    ($($test:ident)*) => {
        on_each_backend!(in auto: Auto $($test)*);
        on_each_backend!(in threads: Threads $($test)*);
        on_each_backend!(in aio: Aio $($test)*);
    };
    (in $backend:ident: $choice:ident $($test:ident)*) => {
        mod $backend {
            $(#[test]
            fn $test() {
                match baio::Local::new_with(&crate::common::options(baio::Backend::$choice, 64)) {
                    Ok(link) => super::$test(link),
                    Err(error) => println!("SKIPPED: {}: {error}", stringify!($test)),
                }
            })*
        }
    };
}

on_each_backend! {
    bytes_go_to_and_fro
    pipes_too
    connections_are_made_and_taken
    timers_end_in_their_order
    a_timer_lasts_as_long_as_was_asked
    what_is_dropped_is_given_up
    a_close_ends_what_waits_for_ever
    an_undriven_link_is_told
    there_may_be_more_than_slots
    who_gives_up_makes_room
    who_waits_for_a_slot_is_called_off
    the_echo_server_logs
}

/// Both ends in the loop.
fn pair(link: &Local) -> (Stream, Stream) {
    let (one, other) = UnixStream::pair().unwrap();
    (link.stream(one).unwrap(), link.stream(other).unwrap())
}

fn bytes_go_to_and_fro(link: Local) {
    let (one, other) = pair(&link);
    let large: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    let seen = link
        .block_on(async {
            let write = async {
                let written = one.write(large.clone()).await.unwrap();
                assert_eq!((written.bytes, &written.buffer), (large.len(), &large));
                drop(written);
            };
            let read = async {
                let (mut seen, mut buffer) = (Vec::<u8>::new(), vec![0; 10_000]);
                while seen.len() < large.len() {
                    let read = other.read(buffer).await.unwrap();
                    seen.extend(&read.buffer[..read.bytes]);
                    buffer = read.buffer;
                }
                seen
            };
            join(write, read).await.1
        })
        .unwrap();
    assert!(seen == large);
    drop(one);
    assert_eq!(
        other.read(vec![0; 10]).wait().unwrap().bytes,
        0,
        "its other end is closed"
    );
    // Nobody reads it any more: an error, and no signal.
    let error = other.write(b"more").wait().unwrap_err();
    assert_eq!((error.error.code(), error.buffer), ("EPIPE", Some(b"more")));
}

fn pipes_too(link: Local) {
    let (reader, writer) = std::io::pipe().unwrap();
    let (reader, writer) = (link.stream(reader).unwrap(), link.stream(writer).unwrap());
    let read = link.block_on(async {
        let mut read = reader.read(link.buffer(100).unwrap());
        let pending = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut read).poll(context).is_pending()));
        assert!(pending.await);
        writer.write(&b"through a pipe"[..]).await.unwrap();
        read.await.unwrap()
    });
    let read = read.unwrap();
    assert_eq!(&read.buffer[..read.bytes], b"through a pipe");
    let file = link.stream(std::fs::File::open("/etc/passwd").unwrap());
    assert_eq!(file.unwrap_err().code(), "EINVAL");
}

fn connections_are_made_and_taken(link: Local) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = link.stream(UnixListener::bind(&path).unwrap()).unwrap();
    // std makes none that is not connected.
    let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    let socket = link.stream(socket).unwrap();
    link.block_on(async {
        let (accepted, connected) = join(listener.accept(), socket.connect(&Address::Local(path.clone()))).await;
        connected.unwrap();
        let accepted = accepted.unwrap();
        let ready = accepted.poll(1);
        let ready = join(ready, socket.write(b"hello")).await.0;
        assert_eq!(ready.unwrap() & 1, 1);
        let read = accepted.read(vec![0; 10]).await.unwrap();
        assert_eq!(&read.buffer[..read.bytes], b"hello");
        let gone = Address::Local(path.with_extension("gone"));
        assert_eq!(socket.connect(&gone).await.unwrap_err().code(), "ENOENT");
        let long = Address::Local("x".repeat(200).into());
        assert_eq!(socket.connect(&long).await.unwrap_err().code(), "ENAMETOOLONG");
    })
    .unwrap();
}

fn timers_end_in_their_order(link: Local) {
    let order = RefCell::new(Vec::new());
    let begun = Instant::now();
    let sleep = |ms| {
        let (link, order) = (&link, &order);
        async move {
            link.sleep(Duration::from_millis(ms)).await.unwrap();
            order.borrow_mut().push(ms);
        }
    };
    // In the order in which they are woken: on a busy machine several end in one turn.
    let all: FuturesUnordered<_> = [40, 10, 30, 20, 0].into_iter().map(sleep).collect();
    link.block_on(all.collect::<()>()).unwrap();
    assert_eq!(*order.borrow(), [0, 10, 20, 30, 40]);
    assert!(begun.elapsed() >= Duration::from_millis(40));
    link.sleep(Duration::from_millis(1)).wait().unwrap();
}

/// However long ago the link's last turn is.
fn a_timer_lasts_as_long_as_was_asked(link: Local) {
    link.block_on(async {
        std::thread::sleep(Duration::from_millis(30));
        let begun = Instant::now();
        link.sleep(Duration::from_millis(30)).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(30));
    })
    .unwrap();
}

/// A timeout as one would write it: the read that has lost is dropped, and the next one finds the bytes.
fn what_is_dropped_is_given_up(link: Local) {
    let (one, mut other) = UnixStream::pair().unwrap();
    let one = link.stream(one).unwrap();
    link.block_on(async {
        let read = pin!(one.read(vec![0; 10]));
        let Either::Right((slept, _)) = select(read, link.sleep(Duration::from_millis(5))).await else {
            panic!("nobody has written");
        };
        slept.unwrap();
    })
    .unwrap();
    while link.in_flight() > 0 {
        link.turn(Wait::one()).unwrap();
    }
    other.write_all(b"late").unwrap();
    assert_eq!(one.read(vec![0; 10]).wait().unwrap().bytes, 4);

    let failed = one
        .read(vec![0; 10])
        .within(Duration::from_millis(5))
        .wait()
        .unwrap_err();
    assert_eq!((failed.error.code(), failed.buffer), ("EINDETERMINATE", None));
    // A cancelled one gives its buffer back.
    let failed = link.block_on(async {
        let mut read = one.read(vec![7; 10]);
        let pending = std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut read).poll(context).is_pending()));
        assert!(pending.await);
        read.cancel();
        read.await.unwrap_err()
    });
    let failed = failed.unwrap();
    assert_eq!((failed.error.code(), failed.buffer), ("ECANCELED", Some(vec![7; 10])));
    let mut read = one.read(vec![7; 10]);
    read.cancel();
    assert_eq!(read.wait().unwrap_err().error.code(), "ECANCELED");
}

fn a_close_ends_what_waits_for_ever(link: Local) {
    let (one, _other) = pair(&link);
    let ended = Rc::new(Cell::new(0));
    let driver = link.drive();
    let mut reads: Vec<_> = (0..3).map(|_| one.read(vec![0; 10])).collect();
    for read in &mut reads {
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(Pin::new(read).poll(context).is_pending());
    }
    link.clone().close().unwrap();
    for read in reads {
        let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Err(failed)) = pin!(read).poll(context) else {
            panic!("the link is closed");
        };
        assert_eq!((failed.error.code(), failed.buffer.is_some()), ("ECANCELED", true));
        ended.set(ended.get() + 1);
    }
    drop(driver);
    assert_eq!(ended.get(), 3);
    assert!(one.read(vec![0; 10]).wait().is_err() && link.sleep(Duration::ZERO).wait().is_err());
}

fn an_undriven_link_is_told(link: Local) {
    let (one, _other) = pair(&link);
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(Err(failed)) = pin!(one.read(vec![5; 10])).poll(context) else {
        panic!("nobody drives it");
    };
    assert_eq!(failed.buffer, Some(vec![5; 10]), "{}", failed.error);
    // It was driven when it began.
    let mut read = one.read(vec![0; 10]);
    let driver = link.drive();
    assert!(Pin::new(&mut read).poll(context).is_pending());
    drop(driver);
    assert!(Pin::new(&mut read).poll(context).is_ready());
}

/// More than there are slots: the others wait for one.
fn there_may_be_more_than_slots(link: Local) {
    let dir = tempfile::tempdir().unwrap();
    let file = File::options()
        .write()
        .create()
        .open(&link, dir.path().join("file"))
        .wait()
        .unwrap();
    link.block_on(async {
        let sleeps = join_all((0..200).map(|_| link.sleep(Duration::from_millis(2))));
        let writes = join_all((0..200).map(|number| file.write_all_at(number * 100, vec![1; 100])));
        let (slept, written) = join(sleeps, writes).await;
        assert!(slept.iter().all(Result::is_ok) && written.iter().all(Result::is_ok));
    })
    .unwrap();
    assert_eq!(file.size().wait().unwrap(), 20_000);
    link.close().unwrap();
}

/// Every slot is taken by what waits for ever. Those that are dropped, cancelled or overdue make room for who waits.
fn who_gives_up_makes_room(link: Local) {
    let (one, _other) = pair(&link);
    let _driver = link.drive();
    for how in ["dropped", "dropped at work", "cancelled", "overdue", "timers"] {
        let mut timers: Vec<_> = (0..30).map(|_| link.sleep(Duration::from_secs(3600))).collect();
        let mut first: Vec<_> = (0..30).map(|_| one.read(vec![0; 1])).collect();
        match how {
            "timers" => first.clear(),
            "overdue" => first = first.into_iter().map(|read| read.within(Duration::ZERO)).collect(),
            _ => {}
        }
        if how != "timers" {
            timers.clear();
        }
        while link.in_flight() > 0 {
            link.turn(Wait::one()).unwrap(); // What the one before has left.
        }
        assert!(timers.iter_mut().all(waits) && first.iter_mut().all(waits));
        // 32 slots are for these, so some of the rest stand in line: fewer than make room.
        let mut rest: Vec<_> = (0..20).map(|_| one.read(vec![0; 1])).collect();
        assert!(rest.iter_mut().all(waits));
        let (called, waker) = common::Wakes::new();
        let mut late = one.read(vec![0; 1]);
        assert!(Pin::new(&mut late).poll(&mut Context::from_waker(&waker)).is_pending());
        match how {
            "dropped" => first.clear(),
            "dropped at work" => {
                link.turn(Wait::No).unwrap();
                first.clear();
            }
            "cancelled" => first.iter_mut().for_each(baio::StreamRequest::cancel),
            "timers" => timers.clear(),
            _ => {}
        }
        turn_until(&link, || called.count() > 0, how);
    }
    link.close().unwrap();
}

fn waits<F: Future + Unpin>(future: &mut F) -> bool {
    Pin::new(future)
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

/// Without a sleep: before one a driver calls whoever stands beside a free slot.
fn turn_until(link: &Local, is_so: impl Fn() -> bool, what: &str) {
    for _ in 0..1_000_000 {
        if is_so() {
            return;
        }
        link.turn(Wait::No).unwrap();
        std::thread::yield_now();
    }
    panic!("{what}: nobody was called");
}

/// Who waits for a slot ends at its deadline, and when it is cancelled, with what it brought.
fn who_waits_for_a_slot_is_called_off(link: Local) {
    let (one, _other) = pair(&link);
    let driver = link.drive();
    let mut first: Vec<_> = (0..40).map(|_| one.read(vec![0; 1])).collect();
    assert!(first.iter_mut().all(waits));
    drop(driver);
    let late = one.read(vec![7; 3]).within(Duration::from_millis(20));
    let late = link.block_on(late).unwrap().unwrap_err();
    assert_eq!((late.error.code(), late.buffer), ("ECANCELED", Some(vec![7; 3])));
    let mut asked = one.read(vec![8; 3]);
    let asked = link.block_on(async {
        assert!(poll_fn(|context| Poll::Ready(Pin::new(&mut asked).poll(context).is_pending())).await);
        asked.cancel();
        asked.await.unwrap_err()
    });
    let asked = asked.unwrap();
    assert_eq!((asked.error.code(), asked.buffer), ("ECANCELED", Some(vec![8; 3])));
    link.close().unwrap();
}

#[allow(dead_code)]
#[path = "../../examples/echo.rs"]
mod echo;

/// The example, with clients of their own threads.
fn the_echo_server_logs(link: Local) {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener = link.stream(listener).unwrap();
    let log = File::options()
        .write()
        .create()
        .open(&link, dir.path().join("log"))
        .wait()
        .unwrap();
    let end = Cell::new(0);
    let (finished, told) = UnixStream::pair().unwrap();
    let clients = std::thread::spawn(move || {
        let clients: Vec<_> = (0..4_u8)
            .map(|client| {
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for round in 0..100_u8 {
                        stream.write_all(&[client; 100]).unwrap();
                        let mut seen = [round; 100];
                        stream.read_exact(&mut seen).unwrap();
                        assert_eq!(seen, [client; 100]);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        drop(told);
    });
    let finished = link.stream(finished).unwrap();
    link.block_on(async {
        let server = pin!(join_all((0..4).map(|_| echo::serve(&listener, &log, &end))));
        let read = select(server, finished.read(vec![0; 1])).await;
        assert!(matches!(read, Either::Right(_)));
    })
    .unwrap();
    clients.join().unwrap();
    let content = std::fs::read(dir.path().join("log")).unwrap();
    for client in 0..4 {
        assert_eq!(content.iter().filter(|&&byte| byte == client).count(), 10_000);
    }
    link.close().unwrap();
}
