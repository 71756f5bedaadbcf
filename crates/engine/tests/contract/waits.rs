//! Every kind of request that can wait for ever, and what cancel, abandon, deadline, shutdown and drop do to it: it ends
//! exactly once, by itself, and its memory comes back (docs/inside/engine.md rules 1 and 6).

use std::any::Any;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use baio_engine::{Address, Completion, Engine, Error, Memory, Notice, Op, Policy, Request, Wait};
use rustix::net::SocketFlags;

use crate::backends::{Bench, Case, Stop, blank, own, refused};
use crate::gate::gated;
use crate::streams::{connect, file, has_streams, holds_requests, listener, tcp, unconnected, unconnected_fd};

/// A request that waits, with what keeps it waiting.
struct Waiting {
    engine: Engine,
    request: Option<Request>,
    len: usize,
    /// Bytes that it has moved before it waits, and the pipe that they are in.
    moved: u32,
    filled: Option<OwnedFd>,
    _others: Box<dyn Any>,
}

impl Waiting {
    fn new(engine: Engine, request: Request, others: impl Any) -> Waiting {
        let len = request.memory.len();
        let (request, _others) = (Some(request), Box::new(others));
        Waiting {
            engine,
            request,
            len,
            moved: 0,
            filled: None,
            _others,
        }
    }

    /// It is in flight, and waits.
    fn begin(&mut self) -> Result<baio_engine::RequestId, Stop> {
        let request = self.request.take().expect("one request");
        let id = begin!(self.engine, request.tagged(7))?;
        while let Some(pipe) = &self.filled
            && rustix::io::ioctl_fionread(pipe) != Ok(u64::from(self.moved))
        {
            self.engine.turn(Wait::No).expect("a turn");
            std::thread::yield_now();
        }
        for _ in 0..50 {
            // A backend with threads needs a moment until it runs; it is to be met while it waits.
            self.engine.turn(Wait::No).expect("a turn");
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(self.engine.next_completion().is_none(), "it should wait");
        Ok(id)
    }

    /// What ends in the next ten seconds of engine time.
    fn next(&mut self) -> Completion {
        let deadline = Some(self.engine.now().after(Duration::from_secs(10)));
        while self.engine.completed() == 0 && Some(self.engine.now()) < deadline {
            let wait = Wait::Until {
                count: 1,
                min_wait: Duration::ZERO,
                deadline,
            };
            self.engine.turn(wait).expect("a turn");
        }
        self.engine.next_completion().expect("it did not end")
    }

    fn nothing_left(&mut self) {
        assert!(self.engine.next_completion().is_none());
        self.engine.turn(Wait::No).expect("a turn");
        assert!(self.engine.next_completion().is_none(), "it ended twice");
        assert_eq!(self.engine.in_flight(), 0);
    }
}

type Make = fn(&Bench) -> Result<Waiting, Stop>;

fn pipe_read(bench: &Bench) -> Result<Waiting, Stop> {
    let (reader, writer) = bench.pipe()?;
    let engine = bench.engine();
    let memory = blank(&engine, 5000);
    Ok(Waiting::new(engine, Request::read_stream(&reader, memory), writer))
}

fn pipe_write(bench: &Bench) -> Result<Waiting, Stop> {
    let (reader, writer) = bench.raw_pipe()?;
    crate::streams::shrink(&writer);
    let engine = bench.engine();
    let memory = blank(&engine, 1 << 20);
    Ok(Waiting::new(
        engine,
        Request::write_stream(&file(writer), memory),
        reader,
    ))
}

fn poll(bench: &Bench) -> Result<Waiting, Stop> {
    let (reader, writer) = bench.pipe()?;
    let events = libc::POLLIN as u32;
    let request = Request::bare(Op::Poll { events }, Some(&reader), Policy::kernel());
    Ok(Waiting::new(bench.engine(), request, writer))
}

fn timer(bench: &Bench) -> Result<Waiting, Stop> {
    let engine = bench.engine();
    let at = engine.now().after(Duration::from_secs(3600));
    Ok(Waiting::new(
        engine,
        Request::bare(Op::Timer { at }, None, Policy::kernel()),
        (),
    ))
}

fn accept(bench: &Bench) -> Result<Waiting, Stop> {
    let (listener, _) = listener(bench)?;
    Ok(Waiting::new(bench.engine(), Request::accept(&listener), ()))
}

/// A listener whose queue is full does not answer.
fn slow_connect(bench: &Bench) -> Result<Waiting, Stop> {
    use rustix::net::{bind, connect as dial, listen};
    has_streams(bench)?;
    let any = Address::Internet(([127, 0, 0, 1], 0).into());
    let listener = unconnected_fd(&any, SocketFlags::CLOEXEC);
    bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("an address");
    listen(&listener, 0).expect("a listener");
    let listener = TcpListener::from(listener);
    let to = listener.local_addr().expect("an address");
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let fd = unconnected_fd(&any, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
            // It is on its way, and will stay there.
            let _ = dial(&fd, &to);
            fd
        })
        .collect();
    let engine = bench.engine();
    let to = Address::Internet(to);
    let request = connect(&engine, &unconnected(&to), &to);
    Ok(Waiting::new(engine, request, (listener, waiting)))
}

fn receive(bench: &Bench) -> Result<Waiting, Stop> {
    let (ours, theirs) = tcp(bench)?;
    let engine = bench.engine();
    let memory = blank(&engine, 5000);
    Ok(Waiting::new(engine, Request::receive(&ours, memory), theirs))
}

/// More than the two sockets' buffers take.
fn send(bench: &Bench) -> Result<Waiting, Stop> {
    let (ours, theirs) = crate::streams::unix(bench)?;
    let engine = bench.engine();
    let memory = blank(&engine, 4 << 20);
    Ok(Waiting::new(engine, Request::send(&ours, memory), theirs))
}

fn transfer(bench: &Bench) -> Result<Waiting, Stop> {
    let (reader, writer) = bench.raw_pipe()?;
    crate::streams::shrink(&writer);
    let source = bench.file(&vec![1; 1 << 20]);
    let engine = bench.engine();
    let window = blank(&engine, 16384);
    let request = Request::transfer(&source, 0, 1 << 20, &file(writer), window, Policy::kernel());
    let filled = reader.try_clone().expect("a pipe");
    let mut waiting = Waiting::new(engine, request, reader);
    (waiting.moved, waiting.filled) = (crate::streams::PIPE, Some(filled));
    Ok(waiting)
}

fn disk_read(bench: &Bench) -> Result<Waiting, Stop> {
    let (engine, gate, _, file) = gated(bench, 65536)?;
    gate.close();
    let memory = blank(&engine, 4096);
    Ok(Waiting::new(
        engine,
        Request::read(&file, 0, memory, Policy::direct()),
        gate,
    ))
}

fn event(bench: &Bench) -> Result<Waiting, Stop> {
    Ok(Waiting::new(bench.engine(), Request::event(), ()))
}

fn cancelled(bench: &Bench, make: Make) -> Case {
    holds_requests(bench)?;
    let mut waiting = make(bench)?;
    let free = waiting.engine.arena().free_bytes();
    let id = waiting.begin()?;
    waiting.engine.cancel(id);
    waiting.engine.cancel(id);
    let done = waiting.next();
    assert_eq!((done.id, done.tag, done.notice), (id, 7, Notice::Completed));
    assert_eq!((done.result, done.memory.len()), (Err(Error::Cancelled), waiting.len));
    assert!(done.bytes_done >= waiting.moved, "{} bytes", done.bytes_done);
    waiting.engine.cancel(id);
    waiting.nothing_left();
    assert_eq!(waiting.engine.arena().free_bytes(), free);
    Ok(())
}

fn cancelled_early(bench: &Bench, make: Make) -> Case {
    holds_requests(bench)?;
    let mut waiting = make(bench)?;
    let request = waiting.request.take().expect("one request");
    let id = waiting.engine.submit(request.tagged(7)).expect("a slot");
    waiting.engine.cancel(id);
    let done = waiting.engine.next_completion().expect("known at once");
    refused(&done)?;
    assert_eq!((done.id, done.tag, done.result), (id, 7, Err(Error::Cancelled)));
    assert_eq!(
        (done.iterations, done.bytes_done, done.memory.len()),
        (0, 0, waiting.len)
    );
    waiting.nothing_left();
    Ok(())
}

fn abandoned(bench: &Bench, make: Make) -> Case {
    holds_requests(bench)?;
    let mut waiting = make(bench)?;
    let id = waiting.begin()?;
    waiting.engine.abandon(id);
    waiting.engine.abandon(id);
    waiting.engine.cancel(id);
    let done = waiting.next();
    assert_eq!((done.id, done.tag, done.notice), (id, 7, Notice::Released));
    assert_eq!(done.memory.len(), waiting.len);
    assert!(done.accepted.is_none());
    waiting.nothing_left();
    assert_eq!(waiting.engine.stats().completions, 0, "a notice is no completion");
    Ok(())
}

fn overdue(bench: &Bench, make: Make) -> Case {
    holds_requests(bench)?;
    let mut waiting = make(bench)?;
    let request = waiting.request.as_mut().expect("one request");
    request.policy.deadline = Some(waiting.engine.now().after(Duration::from_millis(30)));
    // A simulation's time is not that of `begin`.
    let id = begin!(waiting.engine, waiting.request.take().expect("one request").tagged(7),)?;
    let done = waiting.next();
    assert_eq!((done.id, done.tag, done.notice), (id, 7, Notice::Completed));
    assert_eq!(done.result, Err(Error::Indeterminate));
    assert!(matches!(done.memory, Memory::None), "the kernel may still use it");
    let done = waiting.next();
    assert_eq!((done.id, done.tag, done.notice), (id, 7, Notice::Released));
    assert_eq!(done.memory.len(), waiting.len);
    waiting.nothing_left();
    Ok(())
}

fn shut_down(bench: &Bench, make: Make) -> Case {
    holds_requests(bench)?;
    let mut waiting = make(bench)?;
    let id = waiting.begin()?;
    assert_eq!(waiting.engine.shutdown(Duration::from_secs(20)), 0);
    let done = waiting.engine.next_completion().expect("an end");
    assert_eq!(
        (done.id, done.notice, done.result),
        (id, Notice::Completed, Err(Error::Cancelled))
    );
    assert_eq!(done.memory.len(), waiting.len);
    waiting.nothing_left();
    Ok(())
}

fn dropped(bench: &Bench, make: Make) -> Case {
    holds_requests(bench)?;
    let mut waiting = make(bench)?;
    let arena = waiting.engine.arena().clone();
    waiting.begin()?;
    let Waiting { engine, _others, .. } = waiting;
    drop(engine);
    let whole = arena.buffer(Bench::config().arena_bytes);
    assert!(whole.is_some(), "memory of a request that was ended is missing");
    Ok(())
}

macro_rules! ends {
    ($($module:ident: $body:ident { $($case:ident = $make:ident)* })*) => {$(
        pub(crate) mod $module {
            use crate::backends::{Bench, Case};
            $(pub(crate) fn $case(bench: &Bench) -> Case {
                super::$body(bench, super::$make)
            })*
        }
    )*};
}

macro_rules! every_wait {
    ($($module:ident: $body:ident)*) => {
        ends! {
            $($module: $body {
                a_pipe_read = pipe_read
                a_write_to_a_full_pipe = pipe_write
                a_poll = poll
                a_timer = timer
                an_accept = accept
                a_connect = slow_connect
                a_receive = receive
                a_send_to_a_full_socket = send
                a_transfer_half_way = transfer
            })*
        }
    };
}

every_wait! {
    cancel_ends: cancelled
    a_cancel_before_the_start_ends: cancelled_early
    an_abandon_releases: abandoned
    a_deadline_ends: overdue
    shutdown_ends: shut_down
    drop_ends: dropped
}

/// What only a held device can show.
pub(crate) mod held {
    use super::{Bench, Case, Duration, Notice, Wait, disk_read, own};
    use baio_engine::Error;

    pub(crate) fn a_disk_read_completes_once_cancelled_or_not(bench: &Bench) -> Case {
        let mut waiting = disk_read(bench)?;
        let id = waiting.begin()?;
        waiting.engine.cancel(id);
        waiting.engine.turn(Wait::No).expect("a turn");
        let told = waiting.engine.next_completion();
        assert!(told.is_none_or(|done| done.result == Err(Error::Cancelled)));
        Ok(())
    }

    /// Nothing was there to be cancelled just then, and the next iteration would wait, perhaps for ever.
    pub(crate) fn a_cancel_between_two_iterations_is_not_forgotten(bench: &Bench) -> Case {
        // The end of the disk makes the first iteration short.
        let (mut engine, gate, _, file) = crate::gate::gated(bench, 4608)?;
        gate.close();
        let memory = crate::backends::blank(&engine, 8192);
        let request = baio_engine::Request::read(&file, 0, memory, baio_engine::Policy::direct());
        let id = engine.submit(request).expect("a slot");
        engine.turn(Wait::No).expect("a turn");
        engine.cancel(id);
        gate.open();
        let done = crate::backends::next(&mut engine);
        assert_eq!(
            (done.result, done.bytes_done, done.iterations),
            (Err(Error::Cancelled), 4608, 1)
        );
        assert_eq!(own(done.memory).len(), 8192);
        Ok(())
    }

    pub(crate) fn an_abandoned_disk_read_keeps_its_memory_until_the_device_lets_go(bench: &Bench) -> Case {
        let mut waiting = disk_read(bench)?;
        let free = waiting.engine.arena().free_bytes();
        let id = waiting.begin()?;
        waiting.engine.abandon(id);
        for _ in 0..100 {
            waiting.engine.turn(Wait::No).expect("a turn");
            assert!(
                waiting.engine.next_completion().is_none(),
                "the device still has the memory"
            );
        }
        let gate = waiting
            ._others
            .downcast_ref::<crate::gate::Gate>()
            .expect("a gate")
            .clone();
        gate.open();
        let done = waiting.next();
        assert_eq!((done.id, done.notice), (id, Notice::Released));
        assert_eq!(waiting.engine.arena().free_bytes(), free);
        drop(own(done.memory));
        Ok(())
    }

    pub(crate) fn a_shutdown_without_patience_returns_and_tells_how_many_are_stuck(bench: &Bench) -> Case {
        let mut waiting = disk_read(bench)?;
        waiting.begin()?;
        assert_eq!(waiting.engine.shutdown(Duration::ZERO), 1);
        let gate = waiting
            ._others
            .downcast_ref::<crate::gate::Gate>()
            .expect("a gate")
            .clone();
        gate.open();
        assert_eq!(waiting.engine.shutdown(Duration::from_secs(1)), 0);
        Ok(())
    }

    pub(crate) fn what_a_stuck_device_holds_is_leaked_and_not_freed(bench: &Bench) -> Case {
        let mut waiting = disk_read(bench)?;
        let arena = waiting.engine.arena().clone();
        let all = arena.free_bytes() + 4096;
        waiting.begin()?;
        drop(waiting);
        assert_eq!(arena.free_bytes(), all - 4096, "the device may still write it");
        Ok(())
    }
}

/// What was cancelled took nothing away.
pub(crate) mod a_cancel_takes_nothing {
    use super::*;

    use std::io::Write;

    pub(crate) fn from_a_pipe(bench: &Bench) -> Case {
        holds_requests(bench)?;
        let (reader, writer) = bench.pipe()?;
        let mut engine = bench.engine();
        for round in 0..20_u8 {
            let id = begin!(engine, Request::read_stream(&reader, blank(&engine, 16)))?;
            engine.cancel(id);
            assert_eq!(crate::backends::next(&mut engine).result, Err(Error::Cancelled));
            let mut writer = std::fs::File::from(writer.try_clone().expect("a pipe"));
            writer.write_all(&[round]).expect("a pipe");
            let done = go!(engine, Request::read_stream(&reader, blank(&engine, 16)))?;
            assert_eq!((done.result, own(done.memory)[0]), (Ok(1), round));
        }
        Ok(())
    }

    pub(crate) fn from_a_socket(bench: &Bench) -> Case {
        holds_requests(bench)?;
        let (ours, mut theirs) = tcp(bench)?;
        let mut engine = bench.engine();
        for round in 0..20_u8 {
            let id = begin!(engine, Request::receive(&ours, blank(&engine, 16)))?;
            engine.cancel(id);
            assert_eq!(crate::backends::next(&mut engine).result, Err(Error::Cancelled));
            theirs.write_all(&[round]).expect("a socket");
            let done = go!(engine, Request::receive(&ours, blank(&engine, 16)))?;
            assert_eq!((done.result, own(done.memory)[0]), (Ok(1), round));
        }
        Ok(())
    }

    pub(crate) fn from_a_listener(bench: &Bench) -> Case {
        holds_requests(bench)?;
        let (listener, to) = listener(bench)?;
        let Address::Internet(to) = to else {
            unreachable!("an internet address")
        };
        let mut engine = bench.engine();
        let id = begin!(engine, Request::accept(&listener))?;
        engine.cancel(id);
        assert_eq!(crate::backends::next(&mut engine).result, Err(Error::Cancelled));
        let _peer = TcpStream::connect(to).expect("a connection");
        assert!(go!(engine, Request::accept(&listener))?.accepted.is_some());
        Ok(())
    }
}

/// An accept that was given up has its connection closed, not leaked.
pub(crate) fn a_connection_that_nobody_takes_is_closed(bench: &Bench) -> Case {
    has_streams(bench)?;
    holds_requests(bench)?;
    let (listener, to) = listener(bench)?;
    let Address::Internet(to) = to else {
        unreachable!("an internet address")
    };
    let mut engine = bench.engine();
    for round in 0..20 {
        let id = begin!(engine, Request::accept(&listener))?;
        let mut peer = TcpStream::connect(to).expect("a connection");
        engine.abandon(id);
        let done = crate::backends::next(&mut engine);
        assert_eq!((done.id, done.notice), (id, Notice::Released));
        if done.accepted.is_none() {
            // The cancel came first: the connection still waits.
            drop(go_accept(&mut engine, &listener)?);
        }
        drop(done);
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let end = peer.read(&mut [0; 1]);
        assert!(
            matches!(end, Ok(0)) || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset),
            "{round}"
        );
    }
    Ok(())
}

fn go_accept(engine: &mut Engine, listener: &baio_engine::File) -> Result<Option<baio_engine::File>, Stop> {
    Ok(crate::streams::go(engine, Request::accept(listener))?.accepted)
}

/// Events never reach a backend, so every backend has them.
pub(crate) mod an_event {
    use super::*;

    pub(crate) fn is_ended_by_cancel(bench: &Bench) -> Case {
        let mut waiting = event(bench)?;
        let id = waiting.begin()?;
        waiting.engine.cancel(id);
        let done = waiting.next();
        assert_eq!((done.id, done.result), (id, Err(Error::Cancelled)));
        assert!(!waiting.engine.signal(id, 1), "it has ended");
        waiting.nothing_left();
        Ok(())
    }

    pub(crate) fn is_released_by_abandon(bench: &Bench) -> Case {
        let mut waiting = event(bench)?;
        let id = waiting.begin()?;
        waiting.engine.abandon(id);
        let done = waiting.next();
        assert_eq!((done.id, done.notice), (id, Notice::Released));
        waiting.nothing_left();
        Ok(())
    }

    pub(crate) fn is_ended_by_its_deadline(bench: &Bench) -> Case {
        let mut waiting = event(bench)?;
        let deadline = Some(waiting.engine.now().after(Duration::from_millis(5)));
        waiting.request.as_mut().expect("one request").policy.deadline = deadline;
        let id = begin!(waiting.engine, waiting.request.take().expect("one request"))?;
        let done = waiting.next();
        assert_eq!((done.id, done.result), (id, Err(Error::Cancelled)), "nothing of it ran");
        assert!(Some(waiting.engine.now()) >= deadline);
        waiting.nothing_left();
        Ok(())
    }

    pub(crate) fn is_ended_by_shutdown(bench: &Bench) -> Case {
        let mut waiting = event(bench)?;
        waiting.begin()?;
        assert_eq!(waiting.engine.shutdown(Duration::from_secs(1)), 0);
        assert_eq!(waiting.next().result, Err(Error::Cancelled));
        Ok(())
    }

    pub(crate) fn ends_with_its_engine(bench: &Bench) -> Case {
        let mut waiting = event(bench)?;
        let id = waiting.begin()?;
        let signals = waiting.engine.signals();
        drop(waiting);
        signals.signal(id, 1);
        Ok(())
    }
}
