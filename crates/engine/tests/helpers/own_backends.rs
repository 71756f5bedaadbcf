//! What a backend from outside does and reports can do no harm: a number is no descriptor that the engine may close, a write's memory
//! is not written, more bytes than were asked for are not believed, and one iteration has one end.

#![allow(unsafe_code)]

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

use baio_engine::backend::Done;
use baio_engine::{
    Backend, Doorbell, Engine, EngineOptions, Errno, Error, Explain, File, Op, Policy, Request, RequestId, Slots, Wait,
};

/// Ends everything with one number.
struct Liar {
    /// Something it shares with the child of a fork, and says good-bye to when it is dropped.
    peer: Option<std::io::PipeWriter>,
    number: i32,
    times: usize,
    doorbell: Doorbell,
    ended: Vec<(RequestId, i32)>,
}

impl Backend for Liar {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            slots.begin(id);
            slots.copy_in(id, &[7; 4]);
            self.ended.extend(std::iter::repeat_n((id, self.number), self.times));
        }
        queue.len()
    }

    fn turn(&mut self, _: &mut Slots, _: Wait, done: &mut Done) -> Result<(), Errno> {
        done.raw.append(&mut self.ended);
        Ok(())
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn explain(&self) -> Explain {
        Explain::named("liar")
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        None
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        if let Some(peer) = &mut self.peer {
            std::io::Write::write_all(peer, b"bye").unwrap();
        }
    }
}

fn engine(number: i32) -> Engine {
    engine_of(number, 1)
}

fn engine_of(number: i32, times: usize) -> Engine {
    let backend = Liar {
        peer: None,
        number,
        times,
        doorbell: Doorbell::new().unwrap(),
        ended: Vec::new(),
    };
    Engine::with_backend(Box::new(backend), &EngineOptions::default()).unwrap()
}

#[test]
fn a_descriptor_that_is_made_up_is_not_closed() {
    let listener = OwnedFd::from(std::os::unix::net::UnixDatagram::unbound().unwrap());
    let listener = File::from_fd(listener, "a socket").unwrap();
    let mine = tempfile::tempfile().unwrap();
    let mut engine = engine(mine.as_raw_fd());
    let done = engine.run(Request::accept(&listener));
    assert_eq!(done.result, Err(Error::System(Errno::EOPNOTSUPP)));
    assert!(done.accepted.is_none());
    drop((done, engine));
    assert!(mine.metadata().is_ok(), "it was closed");
}

#[test]
fn the_memory_of_a_write_is_not_written() {
    let file = File::from_fd(OwnedFd::from(tempfile::tempfile().unwrap()), "a file").unwrap();
    for (is_read, left) in [(false, [1; 4]), (true, [7; 4])] {
        let mut engine = engine(4);
        let mut memory = engine.buffer(4).unwrap();
        memory.copy_from_slice(&[1; 4]);
        let request = match is_read {
            false => Request::write(&file, 0, memory, Policy::kernel()),
            true => Request::read(&file, 0, memory, Policy::kernel()),
        };
        let memory = engine.run(request).memory.into_buffer().unwrap();
        assert_eq!(memory[..], left);
    }
}

#[test]
fn more_bytes_than_were_asked_for_are_not_believed() {
    let file = File::from_fd(OwnedFd::from(tempfile::tempfile().unwrap()), "a file").unwrap();
    for (told, expected) in [
        (4, Ok(4)),
        (5, Err(Error::System(Errno::EIO))),
        (i32::MAX, Err(Error::System(Errno::EIO))),
    ] {
        let mut engine = engine(told);
        let read = Request::read(&file, 0, engine.buffer(4).unwrap(), Policy::kernel());
        let write = Request::write(&file, 0, engine.buffer(4).unwrap(), Policy::kernel());
        for request in [read, write] {
            let done = engine.run(request);
            assert_eq!(done.result, expected, "{told}");
            assert_eq!(done.bytes_done, expected.unwrap_or(0));
        }
    }
}

#[test]
fn an_iteration_has_one_end() {
    let file = File::from_fd(OwnedFd::from(tempfile::tempfile().unwrap()), "a file").unwrap();
    // The first end makes the request go on, and the second is none of its next iteration.
    let mut engine = engine_of(-Errno::EINTR.raw(), 2);
    let id = engine
        .submit(Request::read(&file, 0, engine.buffer(4).unwrap(), Policy::kernel()))
        .unwrap();
    engine.turn(Wait::No).unwrap();
    engine.cancel(id);
    engine.turn(Wait::No).unwrap();
    let done = engine.next_completion().unwrap();
    assert_eq!((done.id, done.result), (id, Err(Error::Cancelled)));
    assert_eq!((engine.in_flight(), engine.completed()), (0, 0));
}

/// It begins what it was given last, whoever is there now.
struct Stale {
    doorbell: Doorbell,
    last: Option<RequestId>,
    ended: Vec<(RequestId, i32)>,
}

impl Backend for Stale {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        let id = self.last.replace(queue[0]).unwrap_or(queue[0]);
        slots.begin(id);
        self.ended.push((id, 0));
        1
    }

    fn turn(&mut self, _: &mut Slots, _: Wait, done: &mut Done) -> Result<(), Errno> {
        done.raw.append(&mut self.ended);
        Ok(())
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn explain(&self) -> Explain {
        Explain::named("stale")
    }

    fn refuses(&self, _: Op) -> Option<Error> {
        None
    }
}

#[test]
#[should_panic(expected = "has ended")]
fn a_request_is_not_begun_by_the_name_of_an_earlier_one() {
    let backend = Stale {
        doorbell: Doorbell::new().unwrap(),
        last: None,
        ended: Vec::new(),
    };
    let mut engine = Engine::with_backend(Box::new(backend), &EngineOptions::default()).unwrap();
    let file = File::from_fd(OwnedFd::from(tempfile::tempfile().unwrap()), "a file").unwrap();
    for _ in 0..2 {
        let memory = engine.buffer(4).unwrap();
        engine
            .submit(Request::read(&file, 0, memory, Policy::kernel()))
            .unwrap();
        engine.turn(Wait::No).unwrap();
    }
}

/// What it shares with its parent a child leaves alone, though the backend says nothing about forks.
#[test]
fn a_child_drops_no_backend_that_does_not_say_how() {
    let (mut told, peer) = std::io::pipe().unwrap();
    let backend = Liar {
        peer: Some(peer),
        number: 0,
        times: 1,
        doorbell: Doorbell::new().unwrap(),
        ended: Vec::new(),
    };
    let engine = Engine::with_backend(Box::new(backend), &EngineOptions::default()).unwrap();
    // SAFETY: the child is single-threaded, drops its engine and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(engine);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's exit status");
    drop(engine);
    let mut words = String::new();
    told.read_to_string(&mut words).unwrap();
    assert_eq!(words, "bye", "once, from the parent");
}
