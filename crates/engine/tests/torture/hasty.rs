//! A backend that is broken on purpose: it tells the end of a read, and some time later the kernel still writes the memory.
//!
//! It is the simulation, which ends its requests honestly, plus a real read(2) into the same addresses that comes late. What
//! an engine that frees early would cause with a slow device is so caused with certainty.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;

use baio_engine::backend::{Attach, Detached, Done};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{
    Backend, Buffer, Config, Doorbell, Engine, Errno, Error, Explain, File, Memory, Op, RequestId, Slots, Time, Wait,
};

/// So many requests later the kernel writes.
const LATE: usize = 30;

/// Reads still under way although they have been told to have ended.
pub(crate) struct Late(Rc<Inner>);

struct Inner {
    pending: RefCell<VecDeque<Vec<Target>>>,
    /// None: it is not broken at all.
    source: Option<std::fs::File>,
}

struct Target {
    address: *mut u8,
    len: usize,
}

impl Late {
    pub(crate) fn new() -> Late {
        let mut source = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a test file");
        std::io::Write::write_all(&mut source, &[0x11; 1 << 16]).expect("a test file");
        Late::with(Some(source))
    }

    pub(crate) fn never() -> Late {
        Late::with(None)
    }

    fn with(source: Option<std::fs::File>) -> Late {
        let pending = RefCell::default();
        Late(Rc::new(Inner { pending, source }))
    }

    pub(crate) fn file(&self, bytes: &[u8]) -> File {
        let disk = Disk::new(bytes.len() as u64);
        disk.poke(0, bytes);
        File::simulated(&disk, "disk")
    }

    pub(crate) fn engine(&self, config: &Config) -> Engine {
        let inner = Sim::new(1).expect("a simulation");
        let late = Rc::clone(&self.0);
        Engine::with_backend(Box::new(Hasty { inner, late }), config).expect("an engine")
    }

    /// A request that is about to be submitted: where its bytes go.
    pub(crate) fn expect(&self, memory: &Memory, reads: bool) {
        let target = |part: &Memory| match part {
            Memory::Own(buffer) if reads => vec![aim(buffer)],
            _ => Vec::new(),
        };
        let targets = match memory {
            Memory::Many(list) => list.parts().iter().flat_map(target).collect(),
            one => target(one),
        };
        self.0.pending.borrow_mut().push_back(targets);
    }

    /// It was not submitted after all.
    pub(crate) fn forget(&self) {
        self.0.pending.borrow_mut().pop_back();
    }
}

fn aim(buffer: &Buffer) -> Target {
    Target {
        address: buffer.as_ptr().cast_mut(),
        len: buffer.len(),
    }
}

impl Inner {
    fn write_late(&self) {
        let mut pending = self.pending.borrow_mut();
        while pending.len() > LATE {
            let targets = pending.pop_front().unwrap_or_default();
            let Some(source) = &self.source else { continue };
            for Target { address, len } in targets {
                // SAFETY: none, and that is the point: the memory is mapped (the arena outlives every engine of the run),
                // but it belongs to somebody else by now. The kernel writes it as a device would.
                unsafe { libc::pread(source.as_raw_fd(), address.cast(), len, 0) };
            }
        }
    }
}

struct Hasty {
    inner: Sim,
    late: Rc<Inner>,
}

impl Backend for Hasty {
    fn turn(&mut self, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        self.inner.turn(slots, wait, done)?;
        self.late.write_late();
        Ok(())
    }

    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        self.inner.start(slots, queue)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn cancel(&mut self, slots: &Slots, id: RequestId) {
        self.inner.cancel(slots, id);
    }

    fn attach(&mut self, what: Attach<'_>) -> Result<(), Errno> {
        self.inner.attach(what)
    }

    fn detach(&mut self, what: Detached<'_>) {
        self.inner.detach(what);
    }

    fn ready_fd(&mut self, arm: bool) -> Option<BorrowedFd<'_>> {
        self.inner.ready_fd(arm)
    }

    fn doorbell(&self) -> Doorbell {
        self.inner.doorbell()
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        self.inner.random(bytes)
    }

    fn explain(&self) -> Explain {
        self.inner.explain()
    }

    fn refuses(&self, op: Op) -> Option<Error> {
        self.inner.refuses(op)
    }

    fn disown(&mut self) {
        self.inner.disown();
    }

    fn system_calls(&self) -> u64 {
        self.inner.system_calls()
    }
}
