//! The live ring of a context: what `io_context_t` points at. It is the kernel's at first; when a context goes over, memory of ours takes
//! its place.
//!
//! Programs read it without a call, and some take events from it themselves: QEMU (block/linux-aio.c), fio (`userspace_reap`). So it
//! lies in memory as the kernel keeps its own: an event is there before the tail says so, and the head is whatever the program last
//! wrote. Who publishes and who takes in this library does so under one lock; who takes in the program is alone by its own care, as with
//! the kernel.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use baio_engine::Errno;
use baio_memory::Mapping;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use crate::abi::{IoEvent, RING_MAGIC, RingHeader};
use crate::sleepers::is_wake;

const HEADER_BYTES: usize = size_of::<RingHeader>();
const EVENT_BYTES: usize = size_of::<IoEvent>();

/// That of the kernel.
pub(crate) struct KernelRing(*mut u8);

impl KernelRing {
    /// None where something else lies.
    ///
    /// # Safety
    /// The address is that of a context of the kernel's that lives as long as this.
    pub(crate) unsafe fn at(address: usize) -> Option<KernelRing> {
        let ring = KernelRing(std::ptr::with_exposed_provenance_mut(address));
        (ring.word(MAGIC).load(Ordering::Relaxed) == RING_MAGIC && ring.nr() > 0).then_some(ring)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: a word of the header, which the kernel and the program write as an atomic, alive as long as `self`.
        unsafe { AtomicU32::from_ptr(self.0.wrapping_add(at).cast()) }
    }

    pub(crate) fn nr(&self) -> u32 {
        self.word(NR).load(Ordering::Relaxed)
    }

    /// Head and tail.
    pub(crate) fn ends(&self) -> (u32, u32) {
        // Acquire: the events before the tail are there.
        let tail = self.word(TAIL).load(Ordering::Acquire);
        (self.word(HEAD).load(Ordering::Acquire), tail)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let (head, tail) = self.ends();
        head == tail
    }

    /// Moves events to the caller's array, if there are at least so many, at most so many; says how many. As libaio's programs do that
    /// take events without a call: nobody else may take any meanwhile, in the kernel or not.
    ///
    /// # Safety
    /// The array has room for `most`.
    pub(crate) unsafe fn take(&self, into: *mut IoEvent, least: u32, most: u32) -> u32 {
        let nr = self.nr();
        let (mut head, tail) = self.ends();
        if head >= nr || tail >= nr {
            return 0;
        }
        let there = (tail + nr - head) % nr;
        if there < least {
            return 0;
        }
        let count = there.min(most);
        for at in 0..count as usize {
            // SAFETY: the caller's promise.
            unsafe { into.add(at).write_unaligned(self.event(head)) };
            head = (head + 1) % nr;
        }
        // Release: the places are free only when they have been read.
        self.word(HEAD).store(head, Ordering::Release);
        count
    }

    /// The event in this place.
    pub(crate) fn event(&self, index: u32) -> IoEvent {
        let at = HEADER_BYTES + (index % self.nr()) as usize * EVENT_BYTES;
        // SAFETY: the place is inside the ring, and the kernel writes it no more before the tail has come round.
        unsafe { self.0.wrapping_add(at).cast::<IoEvent>().read_volatile() }
    }
}

/// The memory of one of ours.
pub(crate) struct LiveRing {
    /// The kernel takes it away, in io_destroy(2).
    base: *mut u8,
    nr: u32,
    /// It may be taken away.
    closed: AtomicBool,
}

// SAFETY: an address range, whose words are atomics, and whose places are written and read under one lock.
unsafe impl Send for LiveRing {}
// SAFETY: as above.
unsafe impl Sync for LiveRing {}

impl LiveRing {
    /// Puts a ring of ours in the place of the kernel's, with the same number, size and events.
    ///
    /// # Errors
    /// `EINVAL` where the program has moved it away, `ENOMEM`. Then the kernel's is there still, or, where there was no memory for what took its
    /// place, none is: see [`is_mapped`].
    ///
    /// # Safety
    /// A context of the kernel's is there, in which nothing is in flight, and which nobody uses meanwhile but to look.
    pub(crate) unsafe fn over(address: usize) -> Result<LiveRing, Errno> {
        // SAFETY: the caller's promise.
        let kernels = unsafe { KernelRing::at(address) }.ok_or(Errno::EINVAL)?;
        let nr = kernels.nr();
        let bytes = bytes_of(nr as usize);
        let memory = Mapping::anonymous(bytes)?;
        // SAFETY: both are so long, and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(kernels.0, memory.at(0), bytes) };
        LiveRing::of(memory.at(0), nr).leave_out_wakes();
        let base = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the new mapping is nobody's yet, and what it replaces is the kernel's live ring, by the caller's promise.
        match unsafe { rustix::mm::mremap_fixed(memory.at(0).cast(), bytes, bytes, MremapFlags::MAYMOVE, base.cast()) }
        {
            // It is no longer where it was.
            Ok(_) => std::mem::forget(memory),
            Err(errno) => stand_in(&memory, base).map_err(|_| errno)?,
        }
        Ok(LiveRing::of(base, nr))
    }

    /// Takes events out that were made to wake those who sleep. The tail stays: the kernel's count of events goes on from there.
    fn leave_out_wakes(&self) {
        let head = self.head().load(Ordering::Relaxed) % self.nr;
        let (mut from, mut to) = (self.tail(), self.tail());
        while from != head {
            from = (from + self.nr - 1) % self.nr;
            // SAFETY: the place holds an event, since it is not behind the tail.
            let event = unsafe { self.place(from).read() };
            if !is_wake(&event) {
                to = (to + self.nr - 1) % self.nr;
                // SAFETY: a place of the same kind.
                unsafe { self.place(to).write(event) };
            }
        }
        self.head().store(to, Ordering::Relaxed);
    }

    fn of(base: *mut u8, nr: u32) -> LiveRing {
        LiveRing {
            base,
            nr,
            closed: AtomicBool::new(false),
        }
    }

    /// One that is nobody's context, and stays.
    #[cfg(test)]
    fn alone(nr: u32) -> LiveRing {
        let memory = Mapping::anonymous(bytes_of(nr as usize)).unwrap();
        let base = memory.at(0);
        std::mem::forget(memory);
        LiveRing::of(base, nr)
    }

    /// It is about to be taken away: from here on it is empty, and takes nothing.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Places for events.
    pub(crate) fn nr(&self) -> u32 {
        self.nr
    }

    /// Events that nobody has taken.
    pub(crate) fn len(&self) -> u32 {
        if self.is_closed() {
            return 0;
        }
        // Acquire: what the program has done with the events before the head is over.
        let (head, tail) = (self.head().load(Ordering::Acquire) % self.nr, self.tail());
        (tail + self.nr - head) % self.nr
    }

    /// Appends an event. There is room, because no more requests are let in than there are places. One caller at a time.
    pub(crate) fn publish(&self, event: IoEvent) {
        if self.is_closed() {
            return;
        }
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
        unsafe { AtomicU32::from_ptr(self.base.wrapping_add(at).cast()) }
    }

    fn place(&self, index: u32) -> *mut IoEvent {
        let at = HEADER_BYTES + (index % self.nr) as usize * EVENT_BYTES;
        self.base.wrapping_add(at).cast()
    }
}

/// mremap(2) may have taken away what was to be replaced before it failed. Then there is new memory in that place, with the same contents.
///
/// # Errors
/// `EEXIST` where something is still there; else nothing is.
fn stand_in(memory: &Mapping, base: *mut u8) -> Result<(), Errno> {
    let (access, flags) = (
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
    );
    // SAFETY: it replaces nothing.
    unsafe { rustix::mm::mmap_anonymous(base.cast(), memory.len(), access, flags) }?;
    // SAFETY: both are so long, and the new one is nobody's yet but to look.
    unsafe { std::ptr::copy_nonoverlapping(memory.at(0), base, memory.len()) };
    Ok(())
}

/// Is any memory there?
pub(crate) fn is_mapped(address: usize) -> bool {
    let mut page = 0_u8;
    let place = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the kernel writes a byte for the one page, and looks itself whether it is there.
    unsafe { libc::mincore(place, 1, &raw mut page) == 0 }
}

/// As long as the kernel's for so many places: whole pages.
fn bytes_of(nr: usize) -> usize {
    (HEADER_BYTES + nr * EVENT_BYTES).next_multiple_of(rustix::param::page_size())
}

const NR: usize = std::mem::offset_of!(RingHeader, nr);
const MAGIC: usize = std::mem::offset_of!(RingHeader, magic);
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

    #[test]
    fn events_go_round_and_a_program_may_take_them_itself() {
        let ring = LiveRing::alone(127);
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
    fn what_a_failed_move_has_taken_away_is_there_again() {
        let memory = Mapping::anonymous(bytes_of(127)).unwrap();
        let ring = LiveRing::of(memory.at(0), 127);
        ring.publish(event(7));
        // Where nothing is mapped unless somebody asks for it.
        let base = std::ptr::with_exposed_provenance_mut::<u8>(0x10_0000_0000);
        assert!(!is_mapped(base.addr()));
        stand_in(&memory, base).unwrap();
        assert!(is_mapped(base.addr()));
        let mut out = [event(-1)];
        let own = LiveRing::of(base, 127);
        // SAFETY: the array has a place.
        assert_eq!((unsafe { own.take(out.as_mut_ptr(), 1) }, out[0].result), (1, 7));
        // What is there stays.
        assert_eq!(stand_in(&memory, base), Err(Errno::EEXIST));
        assert_eq!(own.len(), 0);
        // SAFETY: nobody refers to it.
        unsafe { rustix::mm::munmap(base.cast(), memory.len()) }.unwrap();
    }

    #[test]
    fn a_head_that_a_program_has_spoilt_breaks_nothing() {
        let ring = LiveRing::alone(127);
        ring.head().store(u32::MAX, Ordering::Release);
        let mut out = vec![event(-1); 4096];
        // SAFETY: the array is larger than the ring.
        assert!(unsafe { ring.take(out.as_mut_ptr(), 4096) } < ring.nr() as usize);
    }
}
