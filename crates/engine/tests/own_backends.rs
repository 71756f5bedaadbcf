//! What a backend from outside reports is believed as far as it can do no harm: a number is no descriptor that the engine may
//! close.

use std::os::fd::{AsRawFd, OwnedFd};

use baio_engine::backend::Done;
use baio_engine::{
    Backend, Config, Doorbell, Engine, Errno, Error, Explain, File, Op, Request, RequestId, Slots, Wait,
};

/// Ends everything with one number.
struct Liar {
    number: i32,
    doorbell: Doorbell,
    ended: Vec<(RequestId, i32)>,
}

impl Backend for Liar {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            slots.begin(id);
            self.ended.push((id, self.number));
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

#[test]
fn a_descriptor_that_is_made_up_is_not_closed() {
    let listener = OwnedFd::from(std::os::unix::net::UnixDatagram::unbound().unwrap());
    let listener = File::from_fd(listener, "a socket").unwrap();
    let mine = tempfile::tempfile().unwrap();
    let backend = Liar {
        number: mine.as_raw_fd(),
        doorbell: Doorbell::new().unwrap(),
        ended: Vec::new(),
    };
    let mut engine = Engine::with_backend(Box::new(backend), &Config::default()).unwrap();
    let done = engine.run(Request::accept(&listener));
    assert_eq!(done.result, Err(Error::System(Errno::EOPNOTSUPP)));
    assert!(done.accepted.is_none());
    drop((done, engine));
    assert!(mine.metadata().is_ok(), "it was closed");
}
