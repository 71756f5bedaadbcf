//! The live ring of a context: what `io_context_t` points at.
//!
//! Programs read it without a call, and some take events from it themselves: QEMU (block/linux-aio.c), fio (`userspace_reap`). So it
//! lies in memory as the kernel keeps its own: an event is there before the tail says so, and the head is whatever the program last
//! wrote. Who publishes and who takes in this library does so under one lock; who takes in the program is alone by its own care, as with
//! the kernel.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use baio_engine::Errno;
use baio_memory::Mapping;

use crate::abi::{IoEvent, RING_MAGIC, RingHeader};

const HEADER_BYTES: usize = size_of::<RingHeader>();
const EVENT_BYTES: usize = size_of::<IoEvent>();

/// The memory of one.
pub(crate) struct LiveRing {
    memory: Mapping,
    nr: u32,
}

impl LiveRing {
    /// A ring as large as the kernel makes it for so many requests (`aio_setup_ring`, fs/aio.c): twice as many, at least four times the
    /// processors, and what else the last page holds.
    pub(crate) fn new(requests: u32, processors: u32, id: u32) -> Result<LiveRing, Errno> {
        let page = rustix::param::page_size();
        let events = requests.max(processors.saturating_mul(4)).saturating_mul(2) as usize + 2;
        let bytes = (HEADER_BYTES + events * EVENT_BYTES).next_multiple_of(page);
        let nr = u32::try_from((bytes - HEADER_BYTES) / EVENT_BYTES).map_err(|_| Errno::EINVAL)?;
        let memory = Mapping::anonymous(bytes)?;
        let header = RingHeader {
            id,
            nr,
            head: 0,
            tail: 0,
            magic: RING_MAGIC,
            compat_features: 1,
            incompat_features: 0,
            header_length: HEADER_BYTES as u32,
        };
        // SAFETY: the mapping is new, page-aligned and larger than the header.
        unsafe { memory.at(0).cast::<RingHeader>().write(header) };
        Ok(LiveRing { memory, nr })
    }

    pub(crate) fn address(&self) -> usize {
        self.memory.at(0).addr()
    }

    /// Places for events.
    pub(crate) fn nr(&self) -> u32 {
        self.nr
    }

    /// Events that nobody has taken.
    pub(crate) fn len(&self) -> u32 {
        // Acquire: what the program has done with the events before the head is over.
        let (head, tail) = (self.head().load(Ordering::Acquire) % self.nr, self.tail());
        (tail + self.nr - head) % self.nr
    }

    /// Appends an event. There is room, because no more requests are let in than there are places. One caller at a time.
    pub(crate) fn publish(&self, event: IoEvent) {
        let tail = self.tail();
        // SAFETY: the place is inside the mapping, and nobody reads it before the tail has passed it.
        unsafe { self.place(tail).write(event) };
        // Release: whoever sees the tail, in the library or in the program, sees the event.
        self.word(TAIL).store((tail + 1) % self.nr, Ordering::Release);
    }

    /// Moves at most so many events to the caller's array; returns how many. One caller at a time.
    ///
    /// # Safety
    /// The array has room for them.
    pub(crate) unsafe fn take(&self, into: *mut IoEvent, most: usize) -> usize {
        let count = most.min(self.len() as usize);
        let mut head = self.head().load(Ordering::Acquire) % self.nr;
        for at in 0..count {
            // SAFETY: the place holds an event, since it is not behind the tail; the array by the caller's promise.
            unsafe { into.add(at).write_unaligned(self.place(head).read()) };
            head = (head + 1) % self.nr;
        }
        if count > 0 {
            // Release: the places are free only when they have been read.
            self.head().store(head, Ordering::Release);
        }
        count
    }

    fn head(&self) -> &AtomicU32 {
        self.word(HEAD)
    }

    fn tail(&self) -> u32 {
        // Only this library writes it, under the lock of those who call this; a program that scribbles on it hurts itself alone.
        self.word(TAIL).load(Ordering::Relaxed) % self.nr
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: a word of the header, aligned, used as an atomic by this library, and alive as long as `self`.
        unsafe { AtomicU32::from_ptr(self.memory.at(at).cast()) }
    }

    fn place(&self, index: u32) -> *mut IoEvent {
        self.memory
            .at(HEADER_BYTES + (index % self.nr) as usize * EVENT_BYTES)
            .cast()
    }
}

const HEAD: usize = std::mem::offset_of!(RingHeader, head);
const TAIL: usize = std::mem::offset_of!(RingHeader, tail);

#[cfg(test)]
mod tests {
    use super::*;

    fn event(result: i64) -> IoEvent {
        IoEvent {
            data: 0,
            object: 0,
            result,
            result2: 0,
        }
    }

    /// What the kernel of a machine with two processors says of these.
    #[test]
    fn it_is_as_large_as_the_kernels() {
        for (requests, nr) in [(1, 127), (64, 255), (128, 383)] {
            assert_eq!(LiveRing::new(requests, 2, 0).unwrap().nr(), nr, "{requests}");
        }
    }

    #[test]
    fn events_go_round_and_a_program_may_take_them_itself() {
        let ring = LiveRing::new(1, 1, 7).unwrap();
        let mut out = [event(-1); 4];
        for round in 0..1000 {
            for at in 0..4 {
                ring.publish(event(round * 4 + at));
            }
            // As QEMU does it.
            let head = ring.head().load(Ordering::Relaxed);
            ring.head().store((head + 1) % ring.nr(), Ordering::Release);
            // SAFETY: the array has four places.
            assert_eq!(unsafe { ring.take(out.as_mut_ptr(), 4) }, 3);
            assert_eq!((out[0].result, out[2].result), (round * 4 + 1, round * 4 + 3));
            assert_eq!(ring.len(), 0);
        }
    }

    #[test]
    fn a_head_that_a_program_has_spoilt_breaks_nothing() {
        let ring = LiveRing::new(1, 1, 7).unwrap();
        ring.head().store(u32::MAX, Ordering::Release);
        let mut out = vec![event(-1); 4096];
        // SAFETY: the array is larger than the ring.
        assert!(unsafe { ring.take(out.as_mut_ptr(), 4096) } < ring.nr() as usize);
    }
}
