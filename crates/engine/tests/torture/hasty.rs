//! A backend that is broken on purpose: it tells the end of a read, and some time later the kernel still writes the memory.
//!
//! It is the simulation, which ends its requests honestly, plus a real read(2) into the same addresses that comes late. What
//! an engine that frees early would cause with a slow device is so caused with certainty.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard};

use baio_engine::backend::{Backend, Done};
use baio_engine::sim::{Disk, Sim};
use baio_engine::{Buffer, Engine, EngineOptions, Errno, File, Memory, Slots, Wait};

use crate::backends::bent::{self, Bend};

/// So many requests later the kernel writes.
const LATE: usize = 30;

/// Reads still under way although they have been told to have ended.
#[derive(Clone)]
pub(crate) struct Late(Arc<Inner>);

struct Inner {
    pending: Mutex<VecDeque<Vec<Target>>>,
    /// None: it is not broken at all.
    source: Option<std::fs::File>,
}

struct Target {
    address: usize,
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
        let pending = Mutex::default();
        Late(Arc::new(Inner { pending, source }))
    }

    pub(crate) fn file(&self, bytes: &[u8]) -> File {
        let disk = Disk::new(bytes.len() as u64);
        disk.poke(0, bytes);
        File::simulated(&disk, "disk")
    }

    pub(crate) fn engine(&self, config: &EngineOptions) -> Engine {
        bent::engine(1, self.clone(), config)
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
        self.0.pending().push_back(targets);
    }

    /// It was not submitted after all.
    pub(crate) fn forget(&self) {
        self.0.pending().pop_back();
    }
}

fn aim(buffer: &Buffer) -> Target {
    Target {
        address: buffer.as_ptr().expose_provenance(),
        len: buffer.len(),
    }
}

impl Inner {
    fn pending(&self) -> MutexGuard<'_, VecDeque<Vec<Target>>> {
        self.pending.lock().expect("no panic meanwhile")
    }

    fn write_late(&self) {
        let mut pending = self.pending();
        while pending.len() > LATE {
            let targets = pending.pop_front().unwrap_or_default();
            let Some(source) = &self.source else { continue };
            for Target { address, len } in targets {
                // SAFETY: none, and that is the point: the memory is mapped (the arena outlives every engine of the run),
                // but it belongs to somebody else by now. The kernel writes it as a device would.
                unsafe {
                    libc::pread(
                        source.as_raw_fd(),
                        std::ptr::with_exposed_provenance_mut(address),
                        len,
                        0,
                    )
                };
            }
        }
    }
}

impl Bend for Late {
    fn turn(&mut self, sim: &mut Sim, slots: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        sim.turn(slots, wait, done)?;
        self.0.write_late();
        Ok(())
    }
}
