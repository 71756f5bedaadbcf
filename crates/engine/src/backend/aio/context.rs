//! A context of native Linux AIO: its system calls, and the ring in which the kernel leaves completions.
//!
//! The ring lies in the program's own memory, at the address that is the context's name, so completions can be taken without
//! a system call:
//!
//! ```text
//!   0    4    8      12     16      20           24             28      32
//!   | id | nr | head | tail | magic | compatible | incompatible | bytes | event 0 | event 1 | ... | event nr - 1 |
//! ```
//!
//! The kernel writes events and then `tail`; we read events and then write `head`. io_getevents(2) does the same under a
//! lock of its own; it runs only when we call it, from the same thread. The layout is no promise of the kernel, so it is
//! looked at (`struct aio_ring`, fs/aio.c), tried once, and not used where it is not what we expect.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::Timespec;

use crate::error::Errno;

/// One operation, as the kernel wants it (`struct iocb`, include/uapi/linux/aio_abi.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Iocb {
    pub(crate) data: u64,
    #[cfg(target_endian = "little")]
    pub(crate) key: u32,
    pub(crate) rw_flags: i32,
    #[cfg(target_endian = "big")]
    pub(crate) key: u32,
    pub(crate) opcode: u16,
    pub(crate) priority: i16,
    pub(crate) fd: u32,
    pub(crate) buffer: u64,
    pub(crate) bytes: u64,
    pub(crate) offset: i64,
    pub(crate) reserved: u64,
    pub(crate) flags: u32,
    pub(crate) signal_fd: u32,
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const SYNC: u16 = 2;
pub(crate) const DATA_SYNC: u16 = 3;
pub(crate) const POLL: u16 = 5;
pub(crate) const READ_LIST: u16 = 7;
pub(crate) const WRITE_LIST: u16 = 8;

/// `Iocb::flags`: signal the event fd in `signal_fd` at completion (`IOCB_FLAG_RESFD`).
pub(crate) const SIGNALS: u32 = 1;

/// What became of one (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    pub(crate) data: u64,
    object: u64,
    pub(crate) result: i64,
    result_2: i64,
}

#[repr(C)]
struct Header {
    id: u32,
    nr: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    bytes: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32 && size_of::<Header>() == 32);

const MAGIC: u32 = 0xa10a_10a1;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Events that one io_getevents takes at most.
const EVENTS_MAX: usize = 256;

pub(crate) struct Context {
    id: libc::c_ulong,
    ring: Option<Ring>,
    room: Box<[Event; EVENTS_MAX]>,
    system_calls: u64,
}

impl Context {
    /// A context for `operations` at a time.
    pub(crate) fn new(operations: u32) -> Result<Context, Errno> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, operations, &raw mut id) };
        if result < 0 {
            return Err(Errno::last());
        }
        // SAFETY: if there is a ring, it stays until `destroy`, which forgets it first.
        let ring = unsafe { Ring::at(id as usize) };
        Ok(Context {
            id,
            ring,
            room: Box::new([Event::default(); EVENTS_MAX]),
            system_calls: 1,
        })
    }

    /// Starts operations in order, as many as the kernel takes: at least one, or the error is the first one's own
    /// (`EAGAIN`: there is no room).
    ///
    /// # Safety
    /// Each operation's memory must stay valid, and its descriptor open, until its event has been taken.
    pub(crate) unsafe fn submit(&mut self, operations: &[*mut Iocb]) -> Result<usize, Errno> {
        self.system_calls += 1;
        let count = operations.len() as libc::c_long;
        // SAFETY: the kernel copies what the pointers lead to; the caller promises the rest.
        let started = unsafe { libc::syscall(libc::SYS_io_submit, self.id, count, operations.as_ptr()) };
        match started {
            0 => Err(Errno::EAGAIN),
            1.. => Ok(started as usize),
            _ => Err(Errno::last()),
        }
    }

    /// Takes what has completed, without a system call where the ring can be read.
    pub(crate) fn reap(&mut self, into: &mut Vec<Event>) -> Result<(), Errno> {
        match &self.ring {
            Some(ring) => {
                ring.drain(into);
                Ok(())
            }
            None => self.wait(0, Some(&NOW), into),
        }
    }

    /// Sleeps until `least` have completed, at most `limit`, and takes them. A signal ends the sleep too.
    pub(crate) fn wait(&mut self, least: usize, limit: Option<&Timespec>, into: &mut Vec<Event>) -> Result<(), Errno> {
        self.system_calls += 1;
        // SAFETY: there is room for so many events; the time has the layout of `timespec`.
        let got = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                least.min(EVENTS_MAX) as libc::c_long,
                EVENTS_MAX as libc::c_long,
                self.room.as_mut_ptr(),
                limit.map_or(std::ptr::null(), std::ptr::from_ref),
            )
        };
        if got < 0 {
            return match Errno::last() {
                Errno::EINTR => Ok(()),
                errno => Err(errno),
            };
        }
        into.extend_from_slice(&self.room[..(got as usize).min(EVENTS_MAX)]);
        Ok(())
    }

    /// Does the kernel see that we take events out of the ring? Called when there is one event, `expected`. After a no, the
    /// ring is not used.
    pub(crate) fn prove_ring(&mut self, expected: u64) -> Result<(), String> {
        let (mut seen, mut again) = (Vec::new(), Vec::new());
        if let Some(ring) = &self.ring {
            ring.drain(&mut seen);
        }
        let asked = self.wait(0, Some(&NOW), &mut again);
        let read = seen.len() == 1 && seen[0].data == expected;
        if self.ring.is_some() && read && again.is_empty() && asked.is_ok() {
            return Ok(());
        }
        let why = match self.ring.take() {
            None => "the kernel's ring has another layout",
            Some(_) if !read => "the kernel's ring does not tell what has completed",
            Some(_) => "the kernel does not see what is taken from its ring",
        };
        Err(why.into())
    }

    pub(crate) fn system_calls(&self) -> u64 {
        self.system_calls
    }

    /// Ends the context: polls are cancelled, transfers are waited for, however long they take. So never while one is in
    /// flight that may be stuck.
    pub(crate) fn destroy(&mut self) {
        self.ring = None;
        // SAFETY: the ring is unmapped, and no longer read.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

struct Ring {
    header: *const Header,
    nr: u32,
}

impl Ring {
    /// The ring at an address, if there is one.
    ///
    /// # Safety
    /// What is mapped at the address must stay mapped while the ring is used.
    unsafe fn at(address: usize) -> Option<Ring> {
        // An emulation may name its contexts in another way, so it is asked whether anything is mapped there at all.
        // SAFETY: no memory is involved.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mut resident = 0_u8;
        let plausible = page != 0 && address != 0 && address % page == 0;
        // SAFETY: the kernel writes one byte for the one page.
        if !plausible || unsafe { libc::mincore(address as *mut _, page, &raw mut resident) } != 0 {
            return None;
        }
        let header = address as *const Header;
        // SAFETY: the page is mapped, and larger than a header.
        let (magic, bytes, incompatible, nr) = unsafe {
            (
                (&raw const (*header).magic).read_volatile(),
                (&raw const (*header).bytes).read_volatile(),
                (&raw const (*header).incompatible).read_volatile(),
                (&raw const (*header).nr).read_volatile(),
            )
        };
        let known = magic == MAGIC && bytes as usize == size_of::<Header>() && incompatible == 0 && nr > 0;
        known.then_some(Ring { header, nr })
    }

    /// Takes every event out.
    fn drain(&self, into: &mut Vec<Event>) {
        // SAFETY: the ring is mapped while its context lives, and both words are only touched atomically.
        let (head, tail) = unsafe { (&(*self.header).head, &(*self.header).tail) };
        // The only other writer of `head` is the kernel, in an io_getevents of this thread.
        let mut at = head.load(Ordering::Relaxed);
        // Pairs with the kernel's barrier between an event and `tail`: what it says is there has been written.
        let end = tail.load(Ordering::Acquire);
        if at >= self.nr || end >= self.nr {
            return;
        }
        let before = at;
        while at != end {
            // SAFETY: `at` is below `nr`, and the kernel leaves this place alone until `head` has passed it.
            into.push(unsafe { self.header.add(1).cast::<Event>().add(at as usize).read_volatile() });
            at = if at + 1 == self.nr { 0 } else { at + 1 };
        }
        if at != before {
            // The kernel may fill these places again, but not before they were read.
            head.store(at, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring as the kernel would lay it out.
    fn fake(nr: u32, magic: u32) -> (Vec<u64>, *mut Header) {
        const PAGE: usize = 4096;
        let mut memory = vec![0_u64; 4 * PAGE / 8];
        let header = (memory.as_mut_ptr() as usize).next_multiple_of(PAGE) as *mut Header;
        // SAFETY: inside `memory`.
        unsafe {
            header.write(Header {
                id: 0,
                nr,
                head: AtomicU32::new(0),
                tail: AtomicU32::new(0),
                magic,
                compatible: 1,
                incompatible: 0,
                bytes: 32,
            });
        }
        (memory, header)
    }

    fn complete(header: *mut Header, nr: u32, data: u64) {
        // SAFETY: inside the memory behind the header.
        unsafe {
            let tail = (*header).tail.load(Ordering::Relaxed);
            let event = Event {
                data,
                ..Event::default()
            };
            header.add(1).cast::<Event>().add(tail as usize).write(event);
            (*header).tail.store((tail + 1) % nr, Ordering::Release);
        }
    }

    #[test]
    fn events_come_in_order_across_the_end_of_the_ring() {
        const NR: u32 = 7;
        let (_memory, header) = fake(NR, MAGIC);
        // SAFETY: the memory lives to the end of the test.
        let ring = unsafe { Ring::at(header as usize) }.expect("a ring");
        let (mut written, mut expected) = (0, 0);
        for round in 0..100 {
            for _ in 0..round % NR {
                complete(header, NR, written);
                written += 1;
            }
            let mut events = Vec::new();
            ring.drain(&mut events);
            for event in events {
                assert_eq!(event.data, expected);
                expected += 1;
            }
            assert_eq!(written, expected, "round {round}");
        }
    }

    #[test]
    fn what_is_no_ring_is_not_read() {
        let (_memory, header) = fake(7, MAGIC);
        // SAFETY: the memory lives to the end of the test.
        unsafe {
            assert!(Ring::at(header as usize).is_some());
            (*header).incompatible = 1;
            assert!(Ring::at(header as usize).is_none());
            (*header).incompatible = 0;
            (*header).magic = 0;
            assert!(Ring::at(header as usize).is_none());
            assert!(Ring::at(0).is_none());
            assert!(Ring::at(3).is_none());
            assert!(Ring::at(1 << 46).is_none(), "nothing is mapped there");
        }
    }

    #[test]
    fn a_ring_that_tells_other_things_than_the_kernel_is_given_up() {
        let mut context = match Context::new(16) {
            Ok(context) => context,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let (_memory, header) = fake(7, MAGIC);
        // SAFETY: the memory lives to the end of the test.
        context.ring = unsafe { Ring::at(header as usize) };
        complete(header, 7, 5);
        assert!(context.prove_ring(6).is_err());
        assert!(context.ring.is_none());
        // From now on the kernel is asked.
        let mut events = Vec::new();
        context.reap(&mut events).unwrap();
        assert!(events.is_empty());
        context.destroy();
    }
}
