//! How the kernel is entered: by the ring's descriptor, or by the ring's place in a table of this thread's, which saves taking
//! and giving back a reference of the file in each call (`IORING_REGISTER_RING_FDS`, Linux 5.18).
//!
//! The table belongs to a thread. In another thread's table the same place holds another ring or none. So only a ring with
//! a single issuer is registered, which no other thread can enter. A forked child begins with an empty table. The table
//! holds the ring open, so a place is given back before the ring is closed. When an engine is dropped in another thread, the
//! place is left for its own thread to give back ([`Places`]). There are sixteen places; a ring that finds none is entered by its descriptor.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use baio_process::kernel::{self, Feature};
use io_uring::{EnterFlags, IoUring};

use crate::error::Errno;

/// `include/uapi/linux/io_uring.h`.
const REGISTER_RING_FDS: libc::c_uint = 20;
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// `struct io_uring_rsrc_update` there: the place, and which ring it shall have.
#[repr(C)]
struct Update {
    place: u32,
    reserved: u32,
    ring: u64,
}

/// The kernel chooses.
const ANY_PLACE: u32 = u32::MAX;

/// Places in the table of one thread whose rings were closed in another, and which that thread has yet to give back: a bit for each. No
/// lock, because whoever held it may have forked: in the child nobody would ever let go of it.
#[derive(Clone, Debug, Default)]
struct Places(Arc<AtomicU64>);

impl Places {
    /// Which of them can be left. There are sixteen (`IO_RINGFD_REG_MAX`, io_uring/tctx.h).
    const MAX: u32 = u64::BITS;

    fn leave(&self, place: u32) {
        // Release, and Acquire below: what is given back had been left.
        self.0.fetch_or(1 << place, Ordering::Release);
    }

    /// In a forked child these are the parent's, and so early that the child has none of its own: giving them back does nothing.
    fn take(&self) -> impl Iterator<Item = u32> + use<> {
        let left = self.0.swap(0, Ordering::Acquire);
        (0..Self::MAX).filter(move |place| left & 1 << place != 0)
    }

    fn is(&self, other: &Places) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

thread_local! {
    static LEFT_HERE: Places = Places::default();
}

/// Where a ring is entered.
#[derive(Debug, Default)]
pub(super) struct Entrance {
    /// In the table of the thread whose list this is.
    place: Option<(u32, Places)>,
}

impl Entrance {
    /// Finds the ring a place; a refusal costs speed only.
    pub(super) fn register(&mut self, ring: &IoUring) -> Result<(), String> {
        if !kernel::has(Feature::RegisteredRing, true) {
            return Err(Feature::RegisteredRing.missing());
        }
        if !ring.params().is_setup_single_issuer() {
            return Err("only a ring that belongs to one thread can have it".into());
        }
        let Ok(here) = LEFT_HERE.try_with(Places::clone) else {
            return Err("this thread is ending".into());
        };
        give_back_left(&here, ring);
        let mut update = Update {
            place: ANY_PLACE,
            reserved: 0,
            ring: ring.as_raw_fd() as u64,
        };
        match register(ring.as_raw_fd(), REGISTER_RING_FDS, &mut update) {
            Ok(()) if update.place >= Places::MAX => {
                give_back(update.place, ring);
                Err("the kernel gave it a place that could not be left".into())
            }
            Ok(()) => {
                self.place = Some((update.place, here));
                self.prove(ring)
            }
            Err(Errno::EBUSY) => Err("this thread has as many as there can be".into()),
            // What it says to what it does not know.
            Err(Errno::EINVAL) => {
                kernel::has(Feature::RegisteredRing, false);
                Err(Feature::RegisteredRing.missing())
            }
            Err(errno) => Err(errno.to_string()),
        }
    }

    /// A place that was given may still be one that nobody may enter by.
    fn prove(&mut self, ring: &IoUring) -> Result<(), String> {
        // SAFETY: nothing is submitted.
        let entered = unsafe { self.enter(ring, 0, 0, EnterFlags::empty(), None::<&()>) };
        entered.map_err(|errno| {
            self.unregister(ring);
            format!("the ring cannot be entered by it: {errno}")
        })
    }

    /// Gives the place back, or leaves it for the thread that got it.
    pub(super) fn unregister(&mut self, ring: &IoUring) {
        let Some((place, home)) = self.place.take() else { return };
        let Ok(is_here) = LEFT_HERE.try_with(|here| here.is(&home)) else {
            return; // This thread is ending, and its table with it; or another one's, and nobody asks there again.
        };
        if is_here {
            give_back(place, ring);
            give_back_left(&home, ring);
        } else {
            home.leave(place);
        }
    }

    /// This is a forked child: the place was in the parent's table.
    pub(super) fn forget(&mut self) {
        self.place = None;
    }

    #[cfg(test)]
    pub(super) fn is_registered(&self) -> bool {
        self.place.is_some()
    }

    /// Submits the first so many entries and sleeps until so many have ended (io_uring_enter(2)).
    ///
    /// # Safety
    /// What the entries refer to must be valid until they have ended.
    pub(super) unsafe fn enter<T>(
        &self,
        ring: &IoUring,
        submit: u32,
        want: u32,
        flags: EnterFlags,
        argument: Option<&T>,
    ) -> Result<(), Errno> {
        let (fd, flags) = match &self.place {
            Some((place, _)) => (*place as RawFd, flags | EnterFlags::REGISTERED_RING),
            None => (ring.as_raw_fd(), flags),
        };
        let argument = argument.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the caller's promise; the argument outlives the call, and its size goes with it.
        let entered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                submit,
                want,
                flags.bits(),
                argument,
                size_of::<T>(),
            )
        };
        if entered < 0 { Err(Errno::last()) } else { Ok(()) }
    }
}

fn give_back_left(here: &Places, ring: &IoUring) {
    here.take().for_each(|place| give_back(place, ring));
}

/// Any ring will do to ask by.
fn give_back(place: u32, ring: &IoUring) {
    let mut update = Update {
        place,
        reserved: 0,
        ring: 0,
    };
    let _ = register(ring.as_raw_fd(), UNREGISTER_RING_FDS, &mut update);
}

fn register(ring: RawFd, how: libc::c_uint, update: &mut Update) -> Result<(), Errno> {
    // SAFETY: the kernel reads and writes the one `Update`.
    let changed = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            ring,
            how,
            std::ptr::from_mut(update),
            1_u32,
        )
    };
    if changed < 0 { Err(Errno::last()) } else { Ok(()) }
}
