//! A file or device, with up to two descriptions.
//!
//! `O_DIRECT` belongs to an open file description, not to a request (open(2)), and a durable choice per request is what
//! the seeds ask for (004 §5: "the option can be specified on a per-operation basis"). So a [`File`] holds two
//! descriptions of one inode, kernel-cached and direct, both made when it is opened: the second through
//! `/proc/self/fd`, after which device and inode are compared, so a path that was replaced meanwhile cannot split a file
//! in two. What alignment the direct one needs is asked of the file itself ([`DirectLimits`]).

mod trials;

use std::cell::Cell;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags};

use crate::backend::sim::disk::Disk;
use crate::durable::{self, DurableBy};
use crate::error::{Errno, SetupError};
use crate::policy::Caching;
use crate::sys;

use trials::Trials;

/// What an inode is, as far as I/O is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Anything else that can be read and written: pipes, sockets, terminals.
    Stream,
    /// A disk of the simulated backend.
    Simulated,
}

/// Which descriptions a file is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptions {
    /// A kernel-cached one, and a direct one where the file system gives it.
    Both,
    /// Exactly the one for this mode.
    Only(Caching),
}

/// What to do about a file that is missing, or there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must exist.
    Never,
    /// Made when missing.
    IfMissing,
    /// It must not exist.
    New,
}

/// How to open a file.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// For writing as well as reading.
    pub write: bool,
    /// Which descriptions.
    pub descriptions: Descriptions,
    /// About existence.
    pub create: Create,
    /// On a block device: fail with `EBUSY` when it is mounted or held (`O_EXCL` without `O_CREAT`, open(2)).
    pub claim_device: bool,
}

impl Open {
    /// Both descriptions, read only, the file must exist.
    #[must_use]
    pub fn read() -> Open {
        Open {
            write: false,
            descriptions: Descriptions::Both,
            create: Create::Never,
            claim_device: false,
        }
    }

    /// Both descriptions, reading and writing, the file must exist.
    #[must_use]
    pub fn write() -> Open {
        Open {
            write: true,
            ..Open::read()
        }
    }

    fn flags(&self, caching: Caching, kind: Option<Kind>) -> OFlags {
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
        flags |= if self.write { OFlags::RDWR } else { OFlags::RDONLY };
        if caching == Caching::Direct {
            flags |= OFlags::DIRECT;
        }
        match self.create {
            Create::Never => {}
            // A device is not made, and with O_EXCL for its claim, O_CREAT would mean that it must not exist.
            Create::IfMissing if kind == Some(Kind::Block) => {}
            Create::IfMissing => flags |= OFlags::CREATE,
            Create::New => flags |= OFlags::CREATE | OFlags::EXCL,
        }
        if self.claim_device && kind == Some(Kind::Block) {
            flags |= OFlags::EXCL;
        }
        flags
    }
}

/// Who has locked a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// The process.
    pub pid: u32,
    /// Alone, or with others who only read?
    pub exclusive: bool,
}

/// What direct I/O on a file needs, in bytes (`STATX_DIOALIGN`, statx(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectLimits {
    /// Memory addresses are multiples of this.
    pub memory: u32,
    /// Offsets and lengths are multiples of this.
    pub offset: u32,
}

impl DirectLimits {
    /// Fits every device in use today; assumed where nothing can be learned.
    pub const SAFE: DirectLimits = DirectLimits {
        memory: 4096,
        offset: 4096,
    };
}

/// One file as everybody in this process sees it; cheap to clone.
#[derive(Clone)]
pub struct File(Rc<Inner>);

struct Inner {
    name: String,
    kind: Kind,
    identity: (u64, u64),
    kernel: Option<OwnedFd>,
    direct: Option<OwnedFd>,
    limits: DirectLimits,
    disk: Option<Disk>,
    /// What it lies on (statfs(2)).
    file_system: Option<i64>,
    durable_by: DurableBy,
    /// Pipes, sockets and terminals have none (lseek(2)).
    offsets: bool,
    /// The first failed sync, until the owner acknowledges it.
    poison: Cell<Option<Errno>>,
    /// How many have failed so far, and the last failure: acknowledging forgets neither.
    failures: Cell<(u64, Option<Errno>)>,
    /// Where a backend has registered the two descriptions: its mark, and the index of the first.
    attached: Cell<Option<(u64, u32)>>,
    trials: Cell<Trials>,
    /// What direct requests really are, as far as is known.
    direct_is: Cell<Caching>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({:?}, {:?})", self.0.name, self.0.kind)
    }
}

impl File {
    /// Opens `path`.
    ///
    /// With [`Descriptions::Both`] a file system that refuses `O_DIRECT` leaves the file without a direct description,
    /// which [`File::gives`] tells; with [`Descriptions::Only`] the refusal is an error.
    ///
    /// # Errors
    /// What the system said, with the path and, where there is one, the cure.
    pub fn open(path: &Path, options: &Open) -> Result<File, SetupError> {
        let name = path.display().to_string();
        let first = match options.descriptions {
            Descriptions::Both => Caching::Kernel,
            Descriptions::Only(caching) => caching,
        };
        let known = rustix::fs::stat(path).ok().map(|stat| kind_of(stat.st_mode));
        let fd = open_path(path, options.flags(first, known)).map_err(|errno| explain_open(&name, errno, first))?;
        let mut file = Inner::new(name, fd, first)?;
        if options.descriptions == Descriptions::Both && file.kind != Kind::Stream {
            file.add_direct(options)?;
        }
        file.limits = file.ask_limits();
        Ok(File::known(file))
    }

    /// Takes over a descriptor that somebody else opened. It never gets a second description: whether it is direct is
    /// read from its flags.
    ///
    /// # Errors
    /// What `fcntl` or `fstat` said.
    pub fn from_fd(fd: OwnedFd, name: &str) -> Result<File, SetupError> {
        let flags =
            rustix::fs::fcntl_getfl(&fd).map_err(|errno| SetupError::new("inspect", name.to_owned(), errno.into()))?;
        let caching = if flags.contains(OFlags::DIRECT) {
            Caching::Direct
        } else {
            Caching::Kernel
        };
        let mut file = Inner::new(name.to_owned(), fd, caching)?;
        file.limits = file.ask_limits();
        Ok(File::known(file))
    }

    /// Where the file system says it all, no probe is needed.
    fn known(inner: Inner) -> File {
        let file = File(Rc::new(inner));
        if file.is_in_memory() {
            file.set_direct_is(Caching::Kernel);
        }
        file
    }

    /// A file of the simulated backend.
    #[must_use]
    pub fn simulated(disk: &Disk, name: &str) -> File {
        File(Rc::new(Inner {
            name: name.to_owned(),
            kind: Kind::Simulated,
            identity: (0, disk.id()),
            kernel: None,
            direct: None,
            limits: DirectLimits {
                memory: 512,
                offset: 512,
            },
            disk: Some(disk.clone()),
            file_system: None,
            durable_by: disk.durable_by(),
            offsets: true,
            poison: Cell::new(None),
            failures: Cell::default(),
            attached: Cell::new(None),
            trials: Cell::default(),
            direct_is: Cell::new(Caching::Direct),
        }))
    }

    /// What the file was opened as, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the inode is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whom the file or device node belongs to; a disk of the simulation belongs to nobody.
    #[must_use]
    pub fn owner_uid(&self) -> Option<u32> {
        let fd = self.any_fd().ok()?;
        rustix::fs::fstat(fd).ok().map(|stat| stat.st_uid)
    }

    /// Equal for two files that are one: device and inode number; of a block device its own number, whichever of its nodes
    /// was opened. Devices that share bytes, a disk and its partition, differ.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.0.identity
    }

    /// Can requests of this mode be made?
    #[must_use]
    pub fn gives(&self, caching: Caching) -> bool {
        self.0.disk.is_some() || self.descriptor(caching).is_some()
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

    pub(crate) fn file_system(&self) -> Option<i64> {
        self.0.file_system
    }

    /// Size in bytes: of a device, its capacity; of a stream, 0.
    ///
    /// # Errors
    /// What `fstat` or `BLKGETSIZE64` said.
    pub fn size(&self) -> Result<u64, Errno> {
        if let Some(disk) = &self.0.disk {
            return Ok(disk.size());
        }
        let fd = self.any_fd()?;
        match self.0.kind {
            Kind::Block => sys::device_size(fd),
            _ => Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0)),
        }
    }

    /// Where the next bytes at or behind `from` are that were ever written, as far as the file system tells; `None` behind the
    /// last of them. On anything but a regular file that is `from`.
    ///
    /// # Errors
    /// What `lseek` said.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>, Errno> {
        if self.0.disk.is_some() || self.0.kind != Kind::Regular {
            return Ok(Some(from));
        }
        match rustix::fs::seek(self.any_fd()?, rustix::fs::SeekFrom::Data(from)) {
            Ok(at) => Ok(Some(at)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            // A file system that keeps no account of its holes.
            Err(rustix::io::Errno::INVAL) => Ok(Some(from)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Cuts or extends a regular file; extension is sparse.
    ///
    /// # Errors
    /// What `ftruncate` said; `EINVAL` on anything but a regular file.
    pub fn set_size(&self, bytes: u64) -> Result<(), Errno> {
        let fd = self.any_fd()?;
        sys::until_it_says(|| rustix::fs::ftruncate(fd, bytes))
    }

    /// Tries to lock the description used for the I/O itself, without waiting (flock(2)): of two the direct one, whose writes
    /// may be under way when the process has gone. Only such a lock outlives it until its last write has landed.
    ///
    /// # Errors
    /// `EAGAIN` when somebody holds it; else what `flock` said.
    pub fn try_lock(&self, exclusive: bool) -> Result<(), Errno> {
        if self.0.disk.is_some() {
            return Ok(());
        }
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        let fd = self.lock_fd()?;
        // EAGAIN is an answer here.
        Ok(rustix::io::retry_on_intr(|| rustix::fs::flock(fd, operation))?)
    }

    /// Gives the lock back at once, whatever still refers to the description.
    pub fn unlock(&self) {
        if let Ok(fd) = self.lock_fd() {
            let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
        }
    }

    /// A process that holds a lock on this inode, from `/proc/locks`; `None` when the kernel does not name one that this
    /// process can see.
    #[must_use]
    pub fn lock_holder(&self) -> Option<LockHolder> {
        let stat = rustix::fs::fstat(self.any_fd().ok()?).ok()?;
        let device = stat.st_dev;
        let wanted = format!(
            "{:02x}:{:02x}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device),
            stat.st_ino
        );
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            // "1: FLOCK  ADVISORY  WRITE 123 08:01:42 0 EOF"; a waiting line has "->" in second place.
            match words[..] {
                [_, "FLOCK", _, kind, pid, inode, ..] if inode == wanted => {
                    let pid = pid.parse().ok().filter(|&pid| pid > 0)?;
                    let exclusive = kind == "WRITE";
                    Some(LockHolder { pid, exclusive })
                }
                _ => None,
            }
        })
    }

    /// The failure of an earlier sync, and forgets it: the owner has checked or rewritten the data.
    /// What was submitted before it and is still under way is not proven by that, and ends as [`Poisoned`](crate::Error::Poisoned).
    pub fn acknowledge_failure(&self) -> Option<Errno> {
        self.0.poison.take()
    }

    pub(crate) fn poisoned(&self) -> Option<Errno> {
        self.0.poison.get()
    }

    /// How many of its syncs have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        self.0.failures.get().0
    }

    /// A failure after the first so many. It may have been the report of what somebody had begun before it, who is told so also
    /// when another has acknowledged it meanwhile.
    pub(crate) fn failed_since(&self, failures: u64) -> Option<Errno> {
        let (now, last) = self.0.failures.get();
        last.filter(|_| now != failures)
    }

    pub(crate) fn poison(&self, errno: Errno) {
        self.0.failures.set((self.failures() + 1, Some(errno)));
        if self.0.poison.get().is_none() {
            self.0.poison.set(Some(errno));
        }
    }

    /// Can it be read and written at an offset?
    pub(crate) fn has_offsets(&self) -> bool {
        self.0.offsets
    }

    /// The simulated disk behind the file.
    pub(crate) fn disk(&self) -> Option<&Disk> {
        self.0.disk.as_ref()
    }

    /// Are these clones of one file?
    pub(crate) fn is(&self, other: &File) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn raw_fd(&self, caching: Caching) -> Option<RawFd> {
        self.descriptor(caching).map(AsRawFd::as_raw_fd)
    }

    /// The mode that really carries requests of this one.
    pub(crate) fn really(&self, asked: Caching) -> Caching {
        match asked {
            Caching::Direct => self.0.direct_is.get(),
            other => other,
        }
    }

    pub(crate) fn set_direct_is(&self, found: Caching) {
        self.0.direct_is.set(found);
    }

    /// How reads tried at once have fared.
    pub(crate) fn trials(&self) -> &Cell<Trials> {
        &self.0.trials
    }

    pub(crate) fn attached(&self) -> Option<(u64, u32)> {
        self.0.attached.get()
    }

    pub(crate) fn set_attached(&self, mark: Option<(u64, u32)>) {
        self.0.attached.set(mark);
    }

    /// A descriptor for what does not depend on the mode: sync, allocation, polling.
    pub(crate) fn any_caching(&self) -> Caching {
        if self.0.kernel.is_some() {
            Caching::Kernel
        } else {
            Caching::Direct
        }
    }

    fn descriptor(&self, caching: Caching) -> Option<&OwnedFd> {
        match caching {
            Caching::Direct => self.0.direct.as_ref(),
            Caching::Kernel | Caching::Uncached => self.0.kernel.as_ref(),
        }
    }

    fn lock_fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        let fd = self.0.direct.as_ref().or(self.0.kernel.as_ref());
        fd.map(AsFd::as_fd).ok_or(Errno::EBADF)
    }

    pub(crate) fn any_fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        let fd = self.0.kernel.as_ref().or(self.0.direct.as_ref());
        fd.map(AsFd::as_fd).ok_or(Errno::EBADF)
    }
}

impl Inner {
    fn new(name: String, fd: OwnedFd, caching: Caching) -> Result<Inner, SetupError> {
        let stat = rustix::fs::fstat(&fd).map_err(|errno| SetupError::new("stat", name.clone(), errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(SetupError::new("open", name, Errno::EISDIR).need("a file or a device"));
        }
        let offsets = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo | FileType::Socket => false,
            FileType::RegularFile | FileType::BlockDevice => true,
            _ => rustix::fs::tell(&fd).is_ok(),
        };
        let kind = kind_of(stat.st_mode);
        let file_system = durable::file_system_of(fd.as_fd());
        let (kernel, direct) = match caching {
            Caching::Direct => (None, Some(fd)),
            Caching::Kernel | Caching::Uncached => (Some(fd), None),
        };
        Ok(Inner {
            name,
            kind,
            identity: identity_of(&stat),
            kernel,
            direct,
            limits: DirectLimits::SAFE,
            disk: None,
            file_system,
            durable_by: durable::durable_by(kind, file_system),
            offsets,
            poison: Cell::new(None),
            failures: Cell::default(),
            attached: Cell::new(None),
            trials: Cell::default(),
            direct_is: Cell::new(Caching::Direct),
        })
    }

    /// The second description of the same inode; a file system that has none leaves it out.
    fn add_direct(&mut self, options: &Open) -> Result<(), SetupError> {
        let Some(kernel) = &self.kernel else {
            return Ok(());
        };
        let again = Open {
            create: Create::Never,
            claim_device: false,
            ..*options
        };
        let path = format!("/proc/self/fd/{}", kernel.as_raw_fd());
        let Ok(fd) = open_path(Path::new(&path), again.flags(Caching::Direct, Some(self.kind))) else {
            return Ok(());
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| SetupError::new("stat", self.name.clone(), errno.into()))?;
        if identity_of(&stat) != self.identity {
            return Err(SetupError::new("open", self.name.clone(), Errno::ESTALE)
                .need("two descriptions of one inode; the path was replaced meanwhile"));
        }
        self.direct = Some(fd);
        Ok(())
    }

    /// Asks statx, then the device; else assumes what fits everything.
    fn ask_limits(&self) -> DirectLimits {
        let Some(fd) = self.direct.as_ref().or(self.kernel.as_ref()) else {
            return DirectLimits::SAFE;
        };
        let asked = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        if let Ok(stat) = asked {
            let answered = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
            // Some file systems set the mask and leave the value 0: then they have said nothing.
            if answered && stat.stx_dio_mem_align != 0 && stat.stx_dio_offset_align != 0 {
                return DirectLimits {
                    memory: stat.stx_dio_mem_align,
                    offset: stat.stx_dio_offset_align,
                };
            }
        }
        match (self.kind, sys::device_sector_size(fd.as_fd())) {
            (Kind::Block, Ok(sector)) if sector.is_power_of_two() => DirectLimits {
                memory: sector,
                offset: sector,
            },
            _ => DirectLimits::SAFE,
        }
    }
}

/// No file system has this number, so a device is never taken for a file.
const DEVICES: u64 = u64::MAX;

/// A block device has one page cache, however many nodes.
fn identity_of(stat: &Stat) -> (u64, u64) {
    match kind_of(stat.st_mode) {
        Kind::Block => (DEVICES, stat.st_rdev),
        _ => (stat.st_dev, stat.st_ino),
    }
}

fn kind_of(mode: u32) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Kind::Regular,
        FileType::BlockDevice => Kind::Block,
        _ => Kind::Stream,
    }
}

fn open_path(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(Errno::from),
        }
    }
}

fn explain_open(name: &str, errno: Errno, caching: Caching) -> SetupError {
    let error = SetupError::new("open", name.to_owned(), errno);
    match (errno, caching) {
        (Errno::EINVAL, Caching::Direct) => error
            .need("a file system that supports O_DIRECT")
            .cure("use another mode, or move the file"),
        (Errno::ENOENT, _) => error.cure("check the path"),
        (Errno::EACCES, _) => error.cure("check the permissions of the file and its directories"),
        (Errno::EBUSY, _) => error.need("a device that is not mounted and not held by another"),
        (Errno::EMFILE, _) => error.cure("raise RLIMIT_NOFILE (`ulimit -n`)"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_descriptions_the_direct_one_is_locked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(file.path(), &Open::write()).unwrap();
        if !file.gives(Caching::Direct) {
            return eprintln!("skipped: no direct I/O here");
        }
        let lock = |mode| {
            let fd = file.descriptor(mode).unwrap();
            rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)
        };
        file.try_lock(true).unwrap();
        assert_eq!(lock(Caching::Direct), Ok(()), "it has the lock already");
        assert_eq!(lock(Caching::Kernel), Err(rustix::io::Errno::AGAIN));
        file.unlock();
        assert_eq!(lock(Caching::Kernel), Ok(()));
    }
}
