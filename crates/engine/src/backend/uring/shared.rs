//! A ring for shims: many threads submit, wait and reap at once, and the memory and descriptors are their callers' own.
//!
//! An [`Engine`](crate::Engine) gives exact answers: it goes on after a short transfer, refuses what is misaligned, owns memory and files,
//! and has one user at a time, who also sleeps in it. A shim that stands in for another interface must do none of that. It passes one
//! call on, once, and hands back what the kernel said. So it stands one floor lower, on the ring itself: set up with the same flags and
//! refused with the same cures as the `uring` backend, and without slots, iterations or policies.
//!
//! Submitting has a lock of its own. Who reaps is whoever has the [`Reaper`], which lies under a lock of the shim's with what the results
//! are of: so taking a result in takes one lock. Nobody holds one while asleep: [`SharedRing::wait`] takes none.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baio_process::{descriptor, signals};
use io_uring::types::{self, FsyncFlags, Timespec};
use io_uring::{EnterFlags, IoUring, opcode, squeue};

use super::entrance::Entrance;
use super::setup::{build, explain_refusal};
use super::{IGNORED, NAME, REFUSED};
use crate::affinity::Affinity;
use crate::backend::Explain;
use crate::error::{Errno, SetupError};

/// One call for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What.
    pub what: What,
    /// On which descriptor; the kernel keeps its file open until the call has ended.
    pub fd: RawFd,
    /// On which file in its place.
    pub kept: Option<Kept>,
    /// A worker of the kernel's does it, and not the thread that submits, as far as it need not wait: a long one. It looks for the descriptor
    /// later than that, if the file is not kept.
    pub beside: bool,
    /// The `ioprio` of a read or write; 0 for the thread's own.
    pub priority: u16,
    /// The caller's name for it, handed back with its result. The two highest are taken.
    pub name: u64,
}

/// A file that the ring keeps open whatever becomes of its descriptors, and without one: closing a duplicate would drop the process's record
/// locks on the file (fcntl_locking(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept(u32);

/// What a [`Call`] does, with the bytes and flags that the system call of this name takes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as in preadv2(2) and pwritev2(2)")]
pub enum What {
    /// pread(2) with `RWF_*`.
    Read {
        pointer: *mut u8,
        len: u32,
        offset: u64,
        flags: i32,
    },
    /// pwrite(2) with `RWF_*`.
    Write {
        pointer: *const u8,
        len: u32,
        offset: u64,
        flags: i32,
    },
    /// preadv2(2).
    ReadList {
        list: *const libc::iovec,
        count: u32,
        offset: u64,
        flags: i32,
    },
    /// pwritev2(2).
    WriteList {
        list: *const libc::iovec,
        count: u32,
        offset: u64,
        flags: i32,
    },
    /// fsync(2), or fdatasync(2).
    Sync { data_only: bool },
    /// poll(2), once; the result is the ready events.
    Poll { events: u32 },
}

impl Call {
    fn entry(&self) -> squeue::Entry {
        let fd = types::Fd(self.kept.map_or(self.fd, |Kept(place)| place as RawFd));
        let priority = self.priority;
        let entry = match self.what {
            What::Read {
                pointer,
                len,
                offset,
                flags,
            } => opcode::Read::new(fd, pointer, len)
                .offset(offset)
                .rw_flags(flags)
                .ioprio(priority)
                .build(),
            What::Write {
                pointer,
                len,
                offset,
                flags,
            } => opcode::Write::new(fd, pointer, len)
                .offset(offset)
                .rw_flags(flags)
                .ioprio(priority)
                .build(),
            What::ReadList {
                list,
                count,
                offset,
                flags,
            } => opcode::Readv::new(fd, list, count)
                .offset(offset)
                .rw_flags(flags)
                .ioprio(priority)
                .build(),
            What::WriteList {
                list,
                count,
                offset,
                flags,
            } => opcode::Writev::new(fd, list, count)
                .offset(offset)
                .rw_flags(flags)
                .ioprio(priority)
                .build(),
            What::Sync { data_only } => {
                let flags = match data_only {
                    true => FsyncFlags::DATASYNC,
                    false => FsyncFlags::empty(),
                };
                opcode::Fsync::new(fd).flags(flags).build()
            }
            What::Poll { events } => opcode::PollAdd::new(fd, events).build(),
        };
        // Whose place among the ring's files stands where the descriptor would.
        let mut flags = squeue::Flags::empty();
        flags.set(squeue::Flags::FIXED_FILE, self.kept.is_some());
        flags.set(squeue::Flags::ASYNC, self.beside);
        entry.flags(flags).user_data(self.name)
    }
}

/// `struct io_uring_getevents_arg`, include/uapi/linux/io_uring.h.
#[repr(C)]
struct Argument {
    sigmask: u64,
    sigmask_bytes: u32,
    min_wait_us: u32,
    limit: u64,
}

/// The kernel's signal sets have 64 bits, those of libc 1024.
const SIGMASK_BYTES: u32 = 8;

/// A ring that any thread may use, and several at once.
pub struct SharedRing {
    ring: ManuallyDrop<IoUring>,
    /// By which its descriptor is known: the number may be another file's, where the program closes what it has not opened.
    identity: Option<(u64, u64)>,
    /// No other file looks the same.
    has_own_inode: bool,
    /// A write in a caller's thread may raise SIGXFSZ (`ulimit -f`).
    files_are_limited: bool,
    submitting: Mutex<()>,
    /// Whose reaper is this ring's.
    number: u64,
    /// Free places for files; none before the first is kept.
    keeping: Mutex<Option<Vec<Kept>>>,
    features: Vec<(&'static str, Result<(), String>)>,
}

/// The right to take results from a ring. There is one of each ring's.
#[derive(Debug)]
pub struct Reaper {
    ring: u64,
}

/// Files that a ring keeps at most; fewer, where so few may be open.
pub const KEPT_MAX: u32 = 64;
const KEPT_FEW: u32 = 8;

/// A table with nothing in it: -1 is an empty place.
const NO_FILES: [RawFd; KEPT_MAX as usize] = [-1; KEPT_MAX as usize];

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedRing {
    /// A ring with room for the results of so many calls, proven by a no-op that goes round: one that can be set up may still be
    /// blocked at its first use.
    ///
    /// # Errors
    /// Why there is none, and the cure.
    pub fn new(calls: u32) -> Result<(SharedRing, Reaper), SetupError> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let (ring, features) = build(calls.max(1), Affinity::AnyThread, None)?;
        // Relaxed: it is only never given twice.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let identity = identity_of(&ring);
        let ring = SharedRing {
            identity,
            has_own_inode: descriptor::event().is_ok_and(|other| identity_of(&other) != identity),
            ring: ManuallyDrop::new(ring),
            files_are_limited: signals::files_are_limited(),
            submitting: Mutex::default(),
            number,
            keeping: Mutex::default(),
            features,
        };
        ring.wake(1)
            .and_then(|()| ring.wait(1, None, None))
            .map_err(explain_refusal)?;
        let mut reaper = Reaper { ring: number };
        ring.reap(&mut reaper, |_, _| {});
        Ok((ring, reaper))
    }

    /// Hands calls to the kernel, in order; a list of memory need not outlive this. One system call for as many as the queue has room for.
    ///
    /// # Errors
    /// How many were taken before the ring was found broken, and what the system said: the program has closed its descriptor.
    ///
    /// # Safety
    /// The memory that the calls name, but for lists themselves, is valid for what they do until they have ended, wherever the ring is
    /// by then, and nobody is harmed by the kernel's reading and writing it.
    pub unsafe fn submit(&self, calls: &[Call]) -> Result<(), (usize, Errno)> {
        match self.files_are_limited {
            // SAFETY: the caller's promise.
            false => unsafe { self.submit_all(calls) },
            // SAFETY: the caller's promise.
            true => signals::outlasting_limits(|| unsafe { self.submit_all(calls) }),
        }
    }

    /// As [`SharedRing::submit`].
    unsafe fn submit_all(&self, calls: &[Call]) -> Result<(), (usize, Errno)> {
        let guard = locked(&self.submitting);
        let mut taken = 0;
        while taken < calls.len() {
            // SAFETY: whoever uses this side of the queue has the lock.
            let mut room = unsafe { self.ring.submission_shared() };
            let before = room.len();
            let mut put = 0;
            for call in &calls[taken..] {
                // SAFETY: the caller's promise.
                if unsafe { room.push(&call.entry()) }.is_err() {
                    break;
                }
                put += 1;
            }
            drop(room);
            let told = self.enter(before + put);
            taken += put;
            if let Err((left, errno)) = told {
                return Err((taken.saturating_sub(left), errno));
            }
        }
        drop(guard);
        Ok(())
    }

    /// Makes the kernel take what is queued, so many; the lock is the caller's. Want of memory is waited for: an entry that has been queued
    /// cannot be taken back.
    fn enter(&self, queued: usize) -> Result<(), (usize, Errno)> {
        let mut left = queued;
        while left > 0 {
            let before = left;
            // SAFETY: what the entries refer to is valid, by the promise of `submit`.
            let told = unsafe { Entrance::default().enter(&self.ring, left as u32, 0, EnterFlags::empty(), NOTHING) };
            // SAFETY: the lock is the caller's.
            left = unsafe { self.ring.submission_shared() }.len();
            match told {
                // It took nothing and is content: the program has closed our descriptor, and its number is another ring's.
                Ok(()) if left == before => return Err((left, Errno::EBADF)),
                Ok(()) | Err(Errno::EINTR) => {}
                // The kernel has no memory now. Not `thread::sleep`, where a thread may be cancelled.
                Err(Errno::EAGAIN | Errno::EBUSY | Errno::ENOMEM) => nap(REFUSED),
                Err(errno) => return Err((left, errno)),
            }
        }
        Ok(())
    }

    /// Does the kernel take the file of each call while it is handed over? Before Linux 5.18 it does. Since then a worker of the kernel's looks for
    /// the file when it begins, and by then the descriptor may be closed: such a call needs a file that is kept.
    pub fn takes_files_at_once(&self) -> bool {
        !self.ring.params().is_feature_linked_file()
    }

    /// Keeps the file of this descriptor until it is given back; none when there is no place, or no such file, or when the ring is gone.
    pub fn keep(&self, fd: RawFd) -> Option<Kept> {
        // The kernel takes a negative number for word to empty the place. And another ring's table is the program's own.
        if fd < 0 || !self.may_have_its_number() {
            return None;
        }
        let mut keeping = locked(&self.keeping);
        let free = keeping.get_or_insert_with(|| {
            let submitter = self.ring.submitter();
            let mut sizes = [KEPT_MAX, KEPT_FEW].into_iter();
            let taken = |size: &u32| submitter.register_files(&NO_FILES[..*size as usize]).is_ok();
            let size = sizes.find(taken);
            (0..size.unwrap_or(0)).map(Kept).collect()
        });
        let kept = free.pop()?;
        if self.ring.submitter().register_files_update(kept.0, &[fd]).is_err() {
            free.push(kept);
            return None;
        }
        Some(kept)
    }

    /// Lets go of a file; calls on it that are under way keep it. Before Linux 6.13 the kernel closes it only when the calls on other kept
    /// files have ended that were submitted until now (`io_rsrc_node_ref_zero`, io_uring/rsrc.c), and before 6.4 a second after that.
    pub fn give_back(&self, kept: Kept) {
        let mut keeping = locked(&self.keeping);
        // A place that cannot be emptied, since the ring is gone, is not used again.
        if self.may_have_its_number() && self.ring.submitter().register_files_update(kept.0, &[-1]).is_ok() {
            keeping.get_or_insert_default().push(kept);
        }
    }

    /// Asks that the call of this name end early: a poll ends as `ECANCELED`.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn cancel(&self, name: u64) -> Result<(), Errno> {
        self.push(&opcode::AsyncCancel::new(name).build().user_data(IGNORED), 1)
    }

    /// Lets so many results arrive that are nobody's, for those who wait.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn wake(&self, arrivals: u32) -> Result<(), Errno> {
        self.push(&opcode::Nop::new().build().user_data(IGNORED), arrivals)
    }

    fn push(&self, entry: &squeue::Entry, times: u32) -> Result<(), Errno> {
        let guard = locked(&self.submitting);
        let mut left = times;
        while left > 0 {
            // SAFETY: whoever uses this side of the queue has the lock; the entry refers to no memory.
            let queued = unsafe {
                let mut room = self.ring.submission_shared();
                while left > 0 && room.push(entry).is_ok() {
                    left -= 1;
                }
                room.len()
            };
            self.enter(queued).map_err(|(_, errno)| errno)?;
        }
        drop(guard);
        Ok(())
    }

    /// Sleeps until so many results have arrived since the last was reaped, the time is over, or a signal is handled; with this mask
    /// of blocked signals meanwhile.
    ///
    /// # Errors
    /// `ETIME` and `EINTR`; others when the ring is broken.
    pub fn wait(&self, arrivals: u32, limit: Option<Duration>, mask: Option<u64>) -> Result<(), Errno> {
        let limit = limit.map(Timespec::from);
        let argument = Argument {
            sigmask: mask.as_ref().map_or(0, |mask| std::ptr::from_ref(mask).addr() as u64),
            sigmask_bytes: if mask.is_some() { SIGMASK_BYTES } else { 0 },
            min_wait_us: 0,
            limit: limit
                .as_ref()
                .map_or(0, |limit| std::ptr::from_ref(limit).addr() as u64),
        };
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: nothing is submitted; argument, mask and limit outlive the call.
        unsafe { Entrance::default().enter(&self.ring, 0, arrivals, flags, Some(&argument)) }
    }

    /// Gives out what has arrived: name and raw result; nothing to another ring's reaper. No system call.
    pub fn reap(&self, reaper: &mut Reaper, mut each: impl FnMut(u64, i32)) {
        if reaper.ring != self.number {
            return;
        }
        // SAFETY: whoever uses this side of the queue has the ring's only reaper for itself.
        for entry in unsafe { self.ring.completion_shared() } {
            if entry.user_data() != IGNORED {
                each(entry.user_data(), entry.result());
            }
        }
    }

    /// The name of the backend, and which properties of a ring could be had.
    #[must_use]
    pub fn explain(&self) -> Explain {
        Explain {
            backend: NAME,
            features: self.features.clone(),
        }
    }
}

impl SharedRing {
    /// May its number be its own still? If not, it surely is another file's. Where `has_own_inode` is false it may be another ring's
    /// all the same.
    fn may_have_its_number(&self) -> bool {
        self.identity.is_some() && identity_of(&*self.ring) == self.identity
    }

    /// Does what has its number take an entry out of its queue? No other file does, nor another ring. Asked once, where nobody waits for results
    /// any more: a ring that has no room for one now is not found out, and one that was found broken is not asked.
    fn takes_a_no_op(&self) -> bool {
        let _guard = locked(&self.submitting);
        // SAFETY: whoever uses this side of the queue has the lock; a no-op refers to no memory.
        let is_queued = unsafe {
            let mut room = self.ring.submission_shared();
            room.is_empty() && room.push(&opcode::Nop::new().build().user_data(IGNORED)).is_ok()
        };
        if !is_queued {
            return false;
        }
        // SAFETY: of ours only the no-op is queued. Where the number is another ring's, the kernel may take an entry that its owner has
        // published, as it would at the owner's next call.
        let _ = unsafe { Entrance::default().enter(&self.ring, 1, 0, EnterFlags::empty(), NOTHING) };
        // SAFETY: as above.
        unsafe { self.ring.submission_shared() }.is_empty()
    }
}

impl Drop for SharedRing {
    fn drop(&mut self) {
        // Else the ring is gone, and another file, perhaps another ring, has its number. Its memory stays mapped.
        if self.may_have_its_number() && (self.has_own_inode || self.takes_a_no_op()) {
            // SAFETY: it is dropped once, here, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

/// Since Linux 5.16 each ring has an inode of its own (`io_uring_get_file`, io_uring/io_uring.c). Before, one inode is that of all rings, event
/// fds, timers and epoll instances.
fn identity_of(file: &impl AsRawFd) -> Option<(u64, u64)> {
    // SAFETY: the number is looked at during this call only, whosever it is.
    let fd = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
    rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

const NOTHING: Option<&Argument> = None;

/// Sleeps without being a place where a thread can be cancelled, as `std::thread::sleep` is.
fn nap(time: Duration) {
    let time = rustix::event::Timespec::try_from(time).ok();
    let _ = rustix::event::poll(&mut [], time.as_ref());
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use super::*;

    fn ring(calls: u32) -> Option<(SharedRing, Reaper)> {
        let ring = SharedRing::new(calls);
        ring.map_err(|why| eprintln!("skipped: {why}")).ok()
    }

    /// The program closes the ring's descriptor, and gets its number for this file.
    fn takes_the_number(ring: &SharedRing, file: impl AsFd) -> OwnedFd {
        // SAFETY: the test is the program that closes what it has not opened: the number is its own from here on.
        let mut number = unsafe { OwnedFd::from_raw_fd(ring.ring.as_raw_fd()) };
        rustix::io::dup2(file, &mut number).unwrap();
        number
    }

    /// Before Linux 5.16 both are of the same inode as the ring.
    #[test]
    fn a_number_that_is_another_files_by_now_is_not_closed() {
        let (Some((ring, _reaper)), Some((second, _others))) = (ring(8), ring(8)) else {
            return;
        };
        let event = takes_the_number(&ring, descriptor::event().unwrap());
        drop(ring);
        assert!(rustix::io::fcntl_getfd(&event).is_ok(), "an event fd was closed");
        let Some((third, _thirds)) = self::ring(8) else { return };
        // SAFETY: the descriptor is open for as long as `third` is there.
        let other = unsafe { BorrowedFd::borrow_raw(third.ring.as_raw_fd()) };
        let other = takes_the_number(&second, other);
        drop(second);
        assert!(rustix::io::fcntl_getfd(&other).is_ok(), "another ring was closed");
    }

    /// A program's own ring, with files of its own in the places that we would take.
    #[test]
    fn the_files_of_another_ring_with_its_number_stay() {
        let (Some((ring, _reaper)), Some((theirs, mut reaper))) = (ring(8), ring(8)) else {
            return;
        };
        if !ring.has_own_inode {
            return; // Before Linux 5.16 a ring cannot be told from another one by a look.
        }
        let file_of = |byte: u8| {
            let file = tempfile::tempfile().unwrap();
            std::os::unix::fs::FileExt::write_at(&file, &[byte; 4], 0).unwrap();
            file
        };
        let (our_file, their_file) = (file_of(1), file_of(2));
        let kept = ring.keep(our_file.as_raw_fd()).unwrap();
        let places = [(); 2].map(|()| theirs.keep(their_file.as_raw_fd()));
        assert_eq!(places[0], Some(kept), "the place that is given back below");
        // SAFETY: the descriptor is open for as long as `theirs` is there.
        let other = unsafe { BorrowedFd::borrow_raw(theirs.ring.as_raw_fd()) };
        let _number = takes_the_number(&ring, other);
        assert_eq!(ring.keep(our_file.as_raw_fd()), None);
        ring.give_back(kept);
        for kept in places {
            assert_eq!(four_bytes_of(&theirs, &mut reaper, kept), [2; 4]);
        }
    }

    /// By which a ring is known on kernels where its inode tells nothing.
    #[test]
    fn only_a_ring_itself_takes_what_is_queued_in_it() {
        let (Some((first, _reaper)), Some((second, _others))) = (ring(8), ring(8)) else {
            return;
        };
        assert!(first.takes_a_no_op() && first.takes_a_no_op());
        // SAFETY: the descriptor is open for as long as `second` is there.
        let other = unsafe { BorrowedFd::borrow_raw(second.ring.as_raw_fd()) };
        let _number = takes_the_number(&first, other);
        assert!(!first.takes_a_no_op());
        assert!(second.takes_a_no_op(), "nothing was taken from the other one");
    }

    /// More than the queue holds go off in several parts, and each is answered once.
    #[test]
    fn threads_submit_and_reap_on_one_ring() {
        let Some((ring, reaper)) = ring(2048) else { return };
        let reaper = Mutex::new(reaper);
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let seen = Mutex::new(vec![0_u32; 2000]);
        std::thread::scope(|scope| {
            for part in 0..4_u64 {
                let (ring, reaper, seen, fd) = (&ring, &reaper, &seen, zeros.as_raw_fd());
                scope.spawn(move || {
                    let mut bytes = [1_u8; 500];
                    let calls: Vec<Call> = (0..500)
                        .map(|at| Call {
                            what: What::Read {
                                pointer: bytes.as_mut_ptr().wrapping_add(at),
                                len: 1,
                                offset: 0,
                                flags: 0,
                            },
                            fd,
                            kept: None,
                            beside: false,
                            priority: 0,
                            name: part * 500 + at as u64,
                        })
                        .collect();
                    // SAFETY: the thread stays until all are answered.
                    unsafe { ring.submit(&calls) }.unwrap();
                    while seen.lock().unwrap().iter().sum::<u32>() < 2000 {
                        ring.reap(&mut locked(reaper), |name, raw| {
                            assert_eq!(raw, 1);
                            seen.lock().unwrap()[name as usize] += 1;
                        });
                    }
                    assert_eq!(bytes, [0; 500]);
                });
            }
        });
        assert!(seen.into_inner().unwrap().iter().all(|times| *times == 1));
    }

    /// The beginning of a file that the ring keeps.
    fn four_bytes_of(ring: &SharedRing, reaper: &mut Reaper, kept: Option<Kept>) -> [u8; 4] {
        let mut bytes = [0_u8; 4];
        let what = What::Read {
            pointer: bytes.as_mut_ptr(),
            len: 4,
            offset: 0,
            flags: 0,
        };
        let call = Call {
            what,
            fd: -1,
            kept,
            beside: false,
            priority: 0,
            name: 7,
        };
        // SAFETY: the thread stays until it is answered.
        unsafe { ring.submit(&[call]) }.unwrap();
        ring.wait(1, None, None).unwrap();
        ring.reap(reaper, |name, raw| assert_eq!((name, raw), (7, 4)));
        bytes
    }

    #[test]
    fn a_file_is_kept_without_its_descriptor() {
        let Some((ring, mut reaper)) = ring(8) else { return };
        for round in 0..2 * KEPT_MAX as u8 {
            let file = tempfile::tempfile().unwrap();
            std::os::unix::fs::FileExt::write_at(&file, &[round; 4], 0).unwrap();
            let kept = ring.keep(file.as_raw_fd());
            assert!(kept.is_some());
            drop(file);
            assert_eq!(four_bytes_of(&ring, &mut reaper, kept), [round; 4]);
            ring.give_back(kept.unwrap());
        }
        assert_eq!(ring.keep(-1), None);
    }

    #[test]
    fn a_sleeper_is_woken_and_a_limit_ends_a_sleep() {
        let Some((ring, mut reaper)) = ring(8) else { return };
        assert_eq!(ring.wait(1, Some(Duration::from_millis(1)), None), Err(Errno::ETIME));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| ring.wait(3, None, None));
            ring.wake(3).unwrap();
            assert_eq!(sleeper.join().unwrap(), Ok(()));
        });
        ring.reap(&mut reaper, |name, _| panic!("{name} is nobody's"));
    }

    #[test]
    fn anothers_reaper_takes_nothing() {
        let (Some((ring, mut own)), Some((_other, mut others))) = (ring(8), ring(8)) else {
            return;
        };
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let mut byte = 1_u8;
        let what = What::Read {
            pointer: &raw mut byte,
            len: 1,
            offset: 0,
            flags: 0,
        };
        let call = Call {
            what,
            fd: zeros.as_raw_fd(),
            kept: None,
            beside: false,
            priority: 0,
            name: 7,
        };
        // SAFETY: the thread stays until it is answered.
        unsafe { ring.submit(&[call]) }.unwrap();
        ring.wait(1, None, None).unwrap();
        ring.reap(&mut others, |name, _| panic!("{name} is another's"));
        let mut seen = 0;
        ring.reap(&mut own, |name, raw| {
            assert_eq!((name, raw), (7, 1));
            seen += 1;
        });
        assert_eq!(seen, 1);
    }
}
