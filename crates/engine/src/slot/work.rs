//! A slot as a backend sees it that moves bytes itself: what to do now, on which file, and copies to and from the request's memory.
//! The other backends hand a whole `Iteration` to the system.

use super::{Slots, State};
use crate::file::File;
use crate::policy::{Caching, Durability, Space, Time};
use crate::request::{Op, RequestId};
use crate::sys::TRANSFER_MAX;

/// What an iteration is to do: all that is left of its request. It ends with a raw result: a count of bytes, 0 where there is
/// nothing to count, or a negated error number. Fewer bytes than asked for are no error: the engine asks for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Fills the memory ([`Slots::copy_in`]); 0 bytes mean the end of the file.
    Read {
        /// First byte in the file.
        offset: u64,
        /// Bytes.
        len: usize,
        /// Where from.
        caching: Caching,
    },
    /// Stores the memory ([`Slots::copy_out`]).
    Write {
        /// First byte in the file.
        offset: u64,
        /// Bytes.
        len: usize,
        /// Where to.
        caching: Caching,
        /// How durable it must be when it ends; none where the device said that a sync makes it so
        /// ([`DurableBy::Sync`](crate::DurableBy::Sync)).
        durability: Durability,
    },
    /// Makes durable all writes that have ended.
    Sync {
        /// Data with what finds it again, or everything.
        durability: Durability,
    },
    /// Starts and waits for write-back of a range, and proves nothing.
    SyncRange {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Changes how a range is stored.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// To what.
        space: Space,
    },
    /// Makes the file so long. A device of a fixed size says `-EINVAL`, as one of the kernel's does.
    Truncate {
        /// Bytes.
        len: u64,
    },
    /// Ends at this time, with `-ETIME`: a timer, or a pause before the next try.
    Timer {
        /// Engine time ([`Backend::now`](crate::Backend::now)).
        at: Time,
    },
    /// Nothing that a device could do: streams, sockets, polls. A backend that refuses these operations never sees it.
    Other,
}

impl Slots {
    /// Takes an iteration on, for [`Backend::start`](crate::Backend::start): from here on it runs, and the backend owes its
    /// result.
    ///
    /// # Panics
    /// When `id` has ended, is not queued, or was taken already: a backend takes what `start` gives it.
    pub fn begin(&mut self, id: RequestId) -> Work {
        // The slot of a request that has ended is another's.
        assert!(self.get(id).is_some(), "request {id:?} has ended");
        assert!(
            self.starting == Some(self.runs_at(id)),
            "request {id:?} is begun by who was not given it"
        );
        self.transition(id, State::Running);
        if let Some(slot) = self.get_mut(id) {
            slot.by_copies = true;
        }
        self.work(id)
    }

    fn work(&self, id: RequestId) -> Work {
        let Some(slot) = self.get(id) else {
            return Work::Other;
        };
        if let Some(at) = slot.rests_until {
            return Work::Timer { at };
        }
        let skip = slot.resumed_at;
        let len = (slot.memory.len() - skip).min(TRANSFER_MAX);
        let caching = slot.policy.caching;
        match slot.op {
            _ if slot.is_sync() => Work::Sync {
                durability: slot.policy.durability,
            },
            Op::Read { offset: Some(at) } => Work::Read {
                offset: at + skip as u64,
                len,
                caching,
            },
            Op::Write { offset: Some(at) } => Work::Write {
                offset: at + skip as u64,
                len,
                caching,
                durability: slot.flag(),
            },
            Op::SyncRange { offset, len } => Work::SyncRange { offset, len },
            Op::Allocate { offset, len, space } => Work::Allocate { offset, len, space },
            Op::Truncate { len } => Work::Truncate { len },
            Op::Timer { at } => Work::Timer { at },
            _ => Work::Other,
        }
    }

    /// How many iterations of a request have ended so far.
    #[must_use]
    pub fn iterations(&self, id: RequestId) -> u16 {
        self.get(id).map_or(0, |slot| slot.iterations)
    }

    /// The file that a request is about.
    #[must_use]
    pub fn file(&self, id: RequestId) -> Option<&File> {
        self.get(id)?.file.as_ref()
    }

    /// Fills a running read's memory, from where this iteration begins. Other memory stays as it is: what a write was lent may
    /// be read by its owner meanwhile ([`Lent`](crate::Lent)), and what was not begun by [`Slots::begin`] may be the kernel's.
    pub fn copy_in(&mut self, id: RequestId, bytes: &[u8]) {
        let slot = self.get_mut(id);
        if let Some(slot) = slot.filter(|slot| slot.by_copies && matches!(slot.op, Op::Read { .. })) {
            let skip = slot.resumed_at;
            slot.memory.copy_in_at(skip, bytes);
        }
    }

    /// Copies the bytes that a running write has left into `bytes`; none of what was not begun by [`Slots::begin`].
    pub fn copy_out(&self, id: RequestId, bytes: &mut [u8]) {
        if let Some(slot) = self.get(id).filter(|slot| slot.by_copies) {
            slot.memory.copy_out_at(slot.resumed_at, bytes);
        }
    }
}
