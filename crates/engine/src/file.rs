//! A file, as all users in this process share it.
//!
//! Its bytes lie on a device (`device.rs`): an inode of this kernel, or something foreign that a backend knows.
//!
//! The seeds ask that each request choose its caching mode (004 §5: "the option can be specified on a per-operation basis"). But `O_DIRECT`
//! belongs to an open file description, not to a request (open(2)). So a [`File`] holds two descriptions of one inode, kernel-cached and
//! direct, both made when it is opened. The second is opened through `/proc/self/fd`, and device and inode are compared. So a path that was
//! replaced meanwhile cannot split a file in two. The file itself says which alignment direct I/O needs ([`DirectLimits`]).
//!
//! | file | what it holds |
//! |---|---|
//! | `file.rs` | the file as everybody in this process sees it |
//! | `file/made.rs` | what it is made of: an inode, or a foreign device |
//! | `file/open.rs` | how it is opened |
//! | `file/inode.rs` | what this kernel has of it: descriptions, size, alignment |
//! | `file/lock.rs` | who has locked it |
//! | `file/losses.rs` | what its syncs have lost |
//! | `file/trials.rs` | how reads of it that were tried at once have fared |
//! | `file/attached.rs` | where a backend has registered it |

mod attached;
mod inode;
mod lock;
mod losses;
mod made;
mod open;
mod trials;

pub use lock::LockHolder;
pub use open::{Create, Descriptions, Open, path_name};

use std::fmt;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::device::{Device, DirectLimits, DurableBy, Kind};
use crate::error::{Errno, SetupError};
use crate::policy::Caching;

use attached::Attached;
use inode::Inode;
pub(crate) use losses::Known;
use losses::Losses;
use made::Made;
pub(crate) use trials::{Fared, Trials};

/// One file as everybody in this process sees it, in whatever thread; cheap to clone.
#[derive(Clone)]
pub struct File(Arc<Inner>);

struct Inner {
    name: String,
    made: Made,
    kind: Kind,
    identity: (u64, u64),
    limits: DirectLimits,
    durable_by: DurableBy,
    losses: Arc<Losses>,
    attached: Attached,
    served_by: Attached,
    trials: Trials,
    /// Direct requests really go through the kernel's cache, as far as is known.
    direct_is_cached: AtomicBool,
    /// It may end there and before, as far as its file system goes.
    reach: AtomicU64,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({:?}, {:?})", self.0.name, self.0.kind)
    }
}

impl File {
    fn made_of(name: String, made: Made) -> File {
        let kind = match &made {
            Made::Inode(inode) => inode.kind,
            Made::Foreign(_) => Kind::Foreign,
        };
        let device = made.device();
        let (identity, limits, durable_by) = (device.identity(), device.direct_limits(), device.durable_by());
        let file = File(Arc::new(Inner {
            name,
            made,
            kind,
            identity,
            limits,
            durable_by,
            losses: Losses::of(identity),
            attached: Attached::default(),
            served_by: Attached::default(),
            trials: Trials::default(),
            direct_is_cached: AtomicBool::new(false),
            reach: AtomicU64::new(0),
        }));
        // Where the file system says it all, no probe is needed.
        if file.is_in_memory() {
            file.set_direct_is(Caching::Kernel);
        }
        file
    }

    /// A file on a device that is not this kernel's. Requests to it belong to an engine whose backend knows the device
    /// ([`Engine::with_backend`](crate::Engine::with_backend)), or one of whose helpers does
    /// ([`Engine::add_helper`](crate::Engine::add_helper)).
    #[must_use]
    pub fn on(device: impl Device, name: &str) -> File {
        File::made_of(name.to_owned(), Made::Foreign(Box::new(device)))
    }

    /// The device, if it is a foreign one of this type: how its backend finds it.
    #[must_use]
    pub fn device<D: Device>(&self) -> Option<&D> {
        self.0.made.foreign()
    }

    /// What the file was opened as, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whom the file or device node belongs to; a foreign device belongs to nobody.
    #[must_use]
    pub fn owner_uid(&self) -> Option<u32> {
        self.inode().ok()?.owner_uid()
    }

    /// Who may open it, by the description that is held: its path may lead elsewhere by now.
    ///
    /// # Errors
    /// The file is a foreign device, or what fstat(2) says.
    pub fn permissions(&self) -> Result<u32, Errno> {
        self.inode()?.permissions()
    }

    /// Changes who may open it, likewise.
    ///
    /// # Errors
    /// The file is a foreign device, or what fchmod(2) says.
    pub fn set_permissions(&self, mode: u32) -> Result<(), Errno> {
        self.inode()?.set_permissions(mode)
    }

    /// Equal for two files that are one: device and inode number; of a block device its own number, whichever of its nodes
    /// was opened. Devices that share bytes, a disk and its partition, differ.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.0.identity
    }

    /// Refuses a description with `O_APPEND`: a write to a place lands at the end of the file there, and says that all is well (pwrite(2)).
    ///
    /// # Errors
    /// `EINVAL`, what is needed, and the cure.
    pub fn must_not_append(&self) -> Result<(), SetupError> {
        match &self.0.made {
            Made::Inode(inode) if inode.appends() => {
                let error = SetupError::new("write to places in", self.name().to_owned(), Errno::EINVAL);
                let error = error.need("a descriptor without O_APPEND, which puts every write at the end of the file");
                Err(error.cure("open the file without `append`, or clear the flag (`F_SETFL`, fcntl(2))"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a device that takes writes in order only, for whoever writes where he wants: it would say `EIO` to the second write, as a
    /// broken one does.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, what is needed, and the cure.
    pub fn must_take_any_order(&self) -> Result<(), SetupError> {
        match &self.0.made {
            Made::Inode(inode) if inode.is_in_order() => {
                let error = SetupError::new("write in any order to", self.name().to_owned(), Errno::EOPNOTSUPP);
                let error = error.need("a device that takes writes in any order; this one is zoned (host-managed)");
                Err(error.cure(
                    "put a layer on it that takes writes in any order (dm-zoned: `dmzadm --format`, `dmzadm --start`), or a file system for zoned devices (f2fs, btrfs), and work in a file there; a dm-linear over its conventional zones alone takes any order, as Linux says since 6.10",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Can requests of this mode be made?
    #[must_use]
    pub fn gives(&self, caching: Caching) -> bool {
        match &self.0.made {
            Made::Inode(inode) => inode.gives(caching),
            Made::Foreign(device) => device.gives(caching),
        }
    }

    /// What direct requests must be aligned to.
    #[must_use]
    pub fn direct_limits(&self) -> DirectLimits {
        self.0.limits
    }

    /// What makes a durable write to it durable: on file systems that are not known to keep `RWF_DSYNC`, such as FUSE and
    /// those over a network, a sync behind each write.
    #[must_use]
    pub fn durable_by(&self) -> DurableBy {
        self.0.durable_by
    }

    /// Must a durable write flush the volatile cache of the device below? Where it takes FUA, or has no such cache, each write is made durable
    /// by itself, and several at once; flushes wait for one another. `None` for a foreign device.
    #[must_use]
    pub fn flushes(&self) -> Option<bool> {
        match &self.0.made {
            Made::Inode(inode) => Some(inode.flushes()),
            Made::Foreign(_) => None,
        }
    }

    pub(crate) fn file_system(&self) -> Option<i64> {
        self.inode().ok()?.file_system
    }

    /// Size in bytes: of a device, its capacity; of a stream, 0.
    ///
    /// # Errors
    /// What `fstat`, `BLKGETSIZE64` or a foreign device said.
    pub fn size(&self) -> Result<u64, Errno> {
        self.0.made.device().size()
    }

    /// Could the file end there, as far as its file system goes? Asks the system when that is more than was asked for before.
    #[must_use]
    pub fn may_end_at(&self, end: u64) -> bool {
        if end <= self.0.reach.load(Ordering::Relaxed) {
            return true;
        }
        let Made::Inode(inode) = &self.0.made else {
            return true;
        };
        // A file that grows asks some dozens of times in its life.
        let ahead = end.checked_next_power_of_two().unwrap_or(end);
        let known = [ahead, end].into_iter().find(|end| inode.may_end_at(*end));
        if let Some(end) = known {
            self.0.reach.fetch_max(end, Ordering::Relaxed);
        }
        known.is_some()
    }

    /// Where the next bytes at or behind `from` are that were ever written, as far as the file system tells; `None` behind the
    /// last of them. On anything but a regular file that is `from`.
    ///
    /// # Errors
    /// What `lseek` said.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>, Errno> {
        match &self.0.made {
            Made::Inode(inode) => inode.next_data(from),
            Made::Foreign(_) => Ok(Some(from)),
        }
    }

    /// Cuts or extends a regular file; extension is sparse.
    ///
    /// # Errors
    /// What `ftruncate` said; `EINVAL` on anything but a regular file, `EBADF` on a foreign device.
    pub fn set_size(&self, bytes: u64) -> Result<(), Errno> {
        self.inode()?.set_size(bytes)
    }

    /// Tries to lock the description used for the I/O itself, without waiting (flock(2)): of two the direct one, whose writes
    /// may be under way when the process has gone. Only such a lock outlives it until its last write has landed.
    ///
    /// # Errors
    /// `EAGAIN` when somebody holds it; else what `flock` or a foreign device said.
    pub fn try_lock(&self, exclusive: bool) -> Result<(), Errno> {
        self.0.made.device().try_lock(exclusive)
    }

    /// Gives the lock back at once, whatever still refers to the description.
    pub fn unlock(&self) {
        self.0.made.device().unlock();
    }

    /// A process that holds a lock on this inode, from `/proc/locks`; `None` when the kernel does not name one that this
    /// process can see.
    #[must_use]
    pub fn lock_holder(&self) -> Option<LockHolder> {
        self.inode().ok()?.lock_holder()
    }

    /// The failure of an earlier sync of this file, by whatever handle on it in this process, and forgets it: the owner has checked or
    /// rewritten the data.
    /// What was submitted before it and is still under way is not proven by that, and ends as [`Poisoned`](crate::Error::Poisoned).
    pub fn acknowledge_failure(&self) -> Option<Errno> {
        self.0.losses.acknowledge()
    }

    pub(crate) fn poisoned(&self) -> Option<Errno> {
        self.0.losses.poisoned()
    }

    /// How many of its syncs have failed so far.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.losses.failures()
    }

    /// A failure after the first so many. It may have been the report of what somebody had begun before it, who is told so also
    /// when another has acknowledged it meanwhile.
    #[must_use]
    pub fn failed_since(&self, failures: u64) -> Option<Errno> {
        self.0.losses.failed_since(failures)
    }

    pub(crate) fn poison(&self, errno: Errno) {
        self.0.losses.poison(errno);
    }

    /// Counts it among these.
    pub(crate) fn be_known(&self, to: &mut Known) {
        to.insert(self.0.identity, &self.0.losses);
    }

    /// Can it be read and written at an offset?
    pub(crate) fn has_offsets(&self) -> bool {
        match &self.0.made {
            Made::Inode(inode) => inode.offsets,
            Made::Foreign(_) => true,
        }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.inode().is_ok_and(|inode| inode.is_terminal)
    }

    /// Are these clones of one file?
    pub(crate) fn is(&self, other: &File) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn raw_fd(&self, caching: Caching) -> Option<RawFd> {
        let inode = self.inode().ok()?;
        inode.descriptor(caching).map(AsRawFd::as_raw_fd)
    }

    /// The mode that really carries requests of this one.
    pub(crate) fn really(&self, asked: Caching) -> Caching {
        match asked {
            // Relaxed, as what a probe finds is true before it is known.
            Caching::Direct if self.0.direct_is_cached.load(Ordering::Relaxed) => Caching::Kernel,
            other => other,
        }
    }

    pub(crate) fn set_direct_is(&self, found: Caching) {
        self.0
            .direct_is_cached
            .store(found != Caching::Direct, Ordering::Relaxed);
    }

    /// How reads tried at once have fared.
    pub(crate) fn trials(&self) -> &Trials {
        &self.0.trials
    }

    /// Where a backend has registered the two descriptions.
    pub(crate) fn attached(&self) -> &Attached {
        &self.0.attached
    }

    /// Which of an engine's backends said that it serves this file (`backend/router.rs`).
    pub(crate) fn served_by(&self) -> &Attached {
        &self.0.served_by
    }

    /// A descriptor for what does not depend on the mode: sync, allocation, polling.
    pub(crate) fn any_caching(&self) -> Caching {
        match &self.0.made {
            Made::Inode(inode) if inode.kernel.is_some() => Caching::Kernel,
            _ => Caching::Direct,
        }
    }

    fn inode(&self) -> Result<&Inode, Errno> {
        match &self.0.made {
            Made::Inode(inode) => Ok(inode),
            Made::Foreign(_) => Err(Errno::EBADF),
        }
    }
}
