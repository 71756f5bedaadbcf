//! A simulated machine: virtual time, seeded randomness, and disks in memory that record everything done to them.
//!
//! Requests run at once and complete at the next turn, in the order in which they were started. What makes the simulation
//! worth having is the record ([`log::Record`]): every write, with its durability, and every sync, with the owner's marks
//! of what it has acknowledged in between. From one record any crash can be cut ([`crash`]), without running the workload
//! again. It is always compiled and public, so that users can test their own formats with it.

use std::os::fd::BorrowedFd;

use crate::backend::{Attach, Backend, Detached, Done, Doorbell, Explain};
use crate::error::{Errno, Error, SetupError};
use crate::policy::{Durability, Space, Time};
use crate::request::{Op, RequestId, Wait};
use crate::slot::{Slots, State};

pub mod crash;
pub mod disk;
pub mod log;

pub use disk::Disk;

const NAME: &str = "sim";

/// How much virtual time a turn takes when nothing is waited for.
const TICK_NS: u64 = 1000;

/// The simulated backend.
pub struct Sim {
    now: Time,
    random: u64,
    finished: Vec<(RequestId, i32)>,
    timers: Vec<(Time, RequestId)>,
    doorbell: Doorbell,
}

impl Sim {
    /// A machine whose randomness follows from `seed`.
    ///
    /// # Errors
    /// When the doorbell's event fd cannot be made.
    pub fn new(seed: u64) -> Result<Sim, SetupError> {
        Ok(Sim {
            now: Time(0),
            random: seed,
            finished: Vec::new(),
            timers: Vec::new(),
            doorbell: Doorbell::new()?,
        })
    }

    fn run(slots: &mut Slots, id: RequestId) -> i32 {
        let Some(slot) = slots.get(id) else {
            return -libc::EBADF;
        };
        let Some(disk) = slot.file.as_ref().and_then(|file| file.disk().cloned()) else {
            return -libc::EBADF;
        };
        let skip = slot.resumed_at as u64;
        let left = slot.memory.len() - slot.resumed_at;
        let durable = slot.policy.durability != Durability::None;
        match slot.op {
            Op::Read { offset } => {
                let mut bytes = vec![0; left];
                let got = disk.read(offset.unwrap_or(0) + skip, &mut bytes);
                slots.fill(id, &bytes[..got]);
                got as i32
            }
            Op::Write { offset } => {
                let mut bytes = vec![0; left];
                slots.take(id, &mut bytes);
                disk.write(offset.unwrap_or(0) + skip, bytes, durable)
            }
            Op::Sync | Op::Fence => {
                disk.sync();
                0
            }
            // Write-back without a flush makes nothing durable.
            Op::SyncRange { .. } => 0,
            Op::Allocate { len: 0, .. } => -libc::EINVAL,
            Op::Allocate { offset, len, space } => match (offset.checked_add(len), space) {
                (None, _) => -libc::EFBIG,
                (Some(end), _) if end > disk.size() => -libc::ENOSPC,
                (Some(_), Space::Reserve) => 0,
                (Some(_), Space::Zero | Space::Discard) => disk.write(offset, vec![0; len as usize], false).min(0),
            },
            _ => -libc::EOPNOTSUPP,
        }
    }

    /// Virtual time jumps to the next event.
    fn advance(&mut self, until: Option<Time>) {
        let next = self.timers.iter().map(|(at, _)| *at).min();
        let target = match (next, until) {
            (Some(next), Some(until)) => Some(next.min(until)),
            (next, until) => next.or(until),
        };
        self.now = self.now.max(target.unwrap_or(Time(self.now.0.saturating_add(TICK_NS))));
    }

    fn fire_timers(&mut self) {
        let now = self.now;
        let finished = &mut self.finished;
        self.timers.retain(|&(at, id)| {
            if at <= now {
                finished.push((id, -libc::ETIME));
            }
            at > now
        });
    }
}

impl Backend for Sim {
    fn start(&mut self, slots: &mut Slots, queue: &[RequestId]) -> usize {
        for &id in queue {
            slots.transition(id, State::Running);
            match slots.get(id).map(|slot| slot.op) {
                Some(Op::Timer { at }) => self.timers.push((at, id)),
                _ => {
                    let raw = Sim::run(slots, id);
                    self.finished.push((id, raw));
                }
            }
        }
        queue.len()
    }

    fn flush(&mut self) {}

    fn turn(&mut self, _: &mut Slots, wait: Wait, done: &mut Done) -> Result<(), Errno> {
        done.rang = self.doorbell.silence();
        self.now = Time(self.now.0.saturating_add(TICK_NS));
        self.fire_timers();
        if let Wait::Until { deadline, .. } = wait
            && self.finished.is_empty()
            && !done.rang
        {
            self.advance(deadline);
            self.fire_timers();
        }
        done.raw.append(&mut self.finished);
        Ok(())
    }

    fn cancel(&mut self, _: &Slots, id: RequestId) {
        if let Some(at) = self.timers.iter().position(|&(_, timer)| timer == id) {
            self.timers.swap_remove(at);
            self.finished.push((id, -libc::ECANCELED));
        }
    }

    fn attach(&mut self, _: Attach<'_>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn detach(&mut self, _: Detached<'_>) {}

    fn ready_fd(&mut self, _: bool) -> Option<BorrowedFd<'_>> {
        None
    }

    fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    fn now(&mut self) -> Time {
        self.now
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): small, and equal for equal seeds.
    fn random(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        for chunk in bytes.chunks_mut(8) {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = self.random;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }

    fn explain(&self) -> Explain {
        Explain {
            backend: NAME,
            features: Vec::new(),
        }
    }

    fn refuses(&self, op: Op) -> Option<Error> {
        let needs_streams = matches!(op, Op::Poll { .. } | Op::Transfer { .. }) || op.is_network();
        needs_streams.then_some(Error::Unsupported {
            operation: op.name(),
            backend: NAME,
        })
    }

    fn disown(&mut self) {}

    fn system_calls(&self) -> u64 {
        0
    }
}
