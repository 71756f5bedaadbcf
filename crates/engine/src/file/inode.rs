//! What this kernel has of a file: an inode, by up to two descriptions, and what they tell of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use baio_process::kernel::{self, Feature};
use baio_process::signals;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};

use crate::device::{Device, DirectLimits, DurableBy, Kind};
use crate::durable;
use crate::error::{Errno, SetupError};
use crate::policy::Caching;
use crate::sys;

pub(super) struct Inode {
    pub(super) kind: Kind,
    /// Device and inode number; of a block device its own number.
    pub(super) identity: (u64, u64),
    pub(super) kernel: Option<OwnedFd>,
    pub(super) direct: Option<OwnedFd>,
    /// What it lies on (statfs(2)).
    pub(super) file_system: Option<i64>,
    /// Pipes, sockets and terminals have none (lseek(2)).
    pub(super) offsets: bool,
    /// A write to it may wait however ready it is.
    pub(super) is_terminal: bool,
    /// Somebody else opened it, and may use its position.
    pub(super) is_given: bool,
}

impl Inode {
    pub(super) fn new(name: &str, fd: OwnedFd, caching: Caching) -> Result<Inode, SetupError> {
        let stat = rustix::fs::fstat(&fd).map_err(|errno| SetupError::new("stat", name.to_owned(), errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(SetupError::new("open", name.to_owned(), Errno::EISDIR).need("a file or a device"));
        }
        let is_terminal =
            FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && sys::is_terminal(fd.as_fd());
        let offsets = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo | FileType::Socket => false,
            FileType::RegularFile | FileType::BlockDevice => true,
            _ => rustix::fs::tell(&fd).is_ok(),
        };
        let file_system = durable::file_system_of(fd.as_fd());
        let (kernel, direct) = match caching {
            Caching::Direct => (None, Some(fd)),
            Caching::Kernel | Caching::Uncached => (Some(fd), None),
        };
        Ok(Inode {
            kind: kind_of(stat.st_mode),
            identity: identity_of(&stat),
            kernel,
            direct,
            file_system,
            offsets,
            is_terminal,
            is_given: false,
        })
    }

    pub(super) fn descriptor(&self, caching: Caching) -> Option<&OwnedFd> {
        match caching {
            Caching::Direct => self.direct.as_ref(),
            Caching::Kernel | Caching::Uncached => self.kernel.as_ref(),
        }
    }

    /// A descriptor for what does not depend on the mode.
    pub(super) fn any_fd(&self) -> Result<BorrowedFd<'_>, Errno> {
        let fd = self.kernel.as_ref().or(self.direct.as_ref());
        fd.map(AsFd::as_fd).ok_or(Errno::EBADF)
    }

    /// Does any of its descriptions have `O_APPEND` now? It may be given later too (`F_SETFL`, fcntl(2)).
    pub(super) fn appends(&self) -> bool {
        let appends = |fd: &OwnedFd| rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
        [&self.kernel, &self.direct].into_iter().flatten().any(appends)
    }

    /// Of anything but a regular file that is `from`.
    pub(super) fn next_data(&self, from: u64) -> Result<Option<u64>, Errno> {
        if self.kind != Kind::Regular {
            return Ok(Some(from));
        }
        match rustix::fs::seek(self.any_fd()?, SeekFrom::Data(from)) {
            Ok(at) => Ok(Some(at)),
            Err(rustix::io::Errno::NXIO) => Ok(None),
            // A file system that keeps no account of its holes.
            Err(rustix::io::Errno::INVAL) => Ok(Some(from)),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn set_size(&self, bytes: u64) -> Result<(), Errno> {
        let fd = self.any_fd()?;
        signals::outlasting_limits(|| sys::until_it_says(|| rustix::fs::ftruncate(fd, bytes)))
    }

    /// What sysfs tells of the queue below (Documentation/ABI/stable/sysfs-block: `write_cache`, `fua`). Where there is no such
    /// device, as for btrfs, it is taken for one that must.
    pub(super) fn flushes(&self) -> bool {
        let Some(cache) = self.of_queue("write_cache") else {
            return true;
        };
        let takes_fua = || self.of_queue("fua").is_some_and(|fua| fua.trim_ascii() == b"1");
        cache.trim_ascii() != b"write through" && !takes_fua()
    }

    /// What sysfs tells of the queue of the device, or of the one below a file.
    fn of_queue(&self, what: &str) -> Option<Vec<u8>> {
        let number = match self.identity {
            (DEVICES, device) | (device, _) => device,
        };
        queue_of(Path::new("/sys"), number, what)
    }

    /// Is it a device whose zones take writes in order only?
    pub(super) fn is_in_order(&self) -> bool {
        self.kind == Kind::Block && self.of_queue("zoned").is_some_and(|zoned| is_in_order(&zoned))
    }

    /// The sectors of the device below, for file systems that ask of direct I/O what the device asks, and no more.
    fn sectors_below(&self) -> Option<u32> {
        if !matches!(self.file_system, Some(durable::EXT | durable::XFS)) {
            return None;
        }
        let told = self.of_queue("logical_block_size")?;
        std::str::from_utf8(&told).ok()?.trim().parse().ok()
    }

    /// Only a file system that cannot have a file so long says no: lseek(2) refuses a place behind its longest file. Nobody uses the position of a
    /// description of ours; one that was given to us has its owner's, and is not asked.
    pub(super) fn may_end_at(&self, end: u64) -> bool {
        let (false, Ok(fd), Kind::Regular) = (self.is_given, self.any_fd(), self.kind) else {
            return true;
        };
        rustix::fs::seek(fd, SeekFrom::Start(end)) != Err(rustix::io::Errno::INVAL)
    }

    pub(super) fn permissions(&self) -> Result<u32, Errno> {
        let stat = rustix::fs::fstat(self.any_fd()?)?;
        Ok(Mode::from_raw_mode(stat.st_mode).bits())
    }

    pub(super) fn set_permissions(&self, mode: u32) -> Result<(), Errno> {
        Ok(rustix::fs::fchmod(self.any_fd()?, Mode::from_raw_mode(mode))?)
    }

    pub(super) fn owner_uid(&self) -> Option<u32> {
        let fd = self.any_fd().ok()?;
        rustix::fs::fstat(fd).ok().map(|stat| stat.st_uid)
    }
}

impl Device for Inode {
    fn identity(&self) -> (u64, u64) {
        self.identity
    }

    fn size(&self) -> Result<u64, Errno> {
        let fd = self.any_fd()?;
        match self.kind {
            Kind::Block => sys::device_size(fd),
            _ => Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0)),
        }
    }

    /// Asks statx, then the device itself or the one below; else assumes what fits everything. So a log has the same blocks on
    /// every kernel.
    fn direct_limits(&self) -> DirectLimits {
        let Some(fd) = self.direct.as_ref().or(self.kernel.as_ref()) else {
            return DirectLimits::SAFE;
        };
        let told = kernel::direct_alignment(fd);
        if self.kind == Kind::Block || self.file_system == Some(durable::EXT) {
            // These tell of every file, since the kernel has the question.
            kernel::has(Feature::DirectLimits, told.is_some());
        }
        // Some file systems leave the values 0: then they have said nothing.
        if let Some(told) = told.filter(|told| told.memory != 0 && told.offset != 0) {
            return DirectLimits {
                memory: told.memory,
                offset: told.offset,
            };
        }
        let sectors = match self.kind {
            Kind::Block => sys::device_sector_size(fd.as_fd()).ok(),
            _ => self.sectors_below(),
        };
        match sectors {
            Some(sector) if sector.is_power_of_two() => DirectLimits {
                memory: sector,
                offset: sector,
            },
            _ => DirectLimits::SAFE,
        }
    }

    fn durable_by(&self) -> DurableBy {
        durable::durable_by(self.kind, self.file_system)
    }

    fn gives(&self, caching: Caching) -> bool {
        self.descriptor(caching).is_some()
    }

    /// Locks the description used for the I/O itself: of two the direct one, whose writes may be under way when the process
    /// has gone. Only such a lock outlives it until its last write has landed.
    fn try_lock(&self, exclusive: bool) -> Result<(), Errno> {
        self.flock(exclusive)
    }

    fn unlock(&self) {
        self.give_back();
    }
}

/// What sysfs, mounted there, tells of the queue of the device with this number.
fn queue_of(sysfs: &Path, number: u64, what: &str) -> Option<Vec<u8>> {
    let device = format!("dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    // A partition's queue is its disk's.
    let mut queues = ["queue", "../queue"].into_iter();
    queues.find_map(|queue| std::fs::read(sysfs.join(&device).join(queue).join(what)).ok())
}

/// Of `none`, `host-aware` and `host-managed` the last only refuses a write that is not at the pointer of its zone.
fn is_in_order(zoned: &[u8]) -> bool {
    zoned.trim_ascii() == b"host-managed"
}

/// No file system has this number, so a device is never taken for a file.
const DEVICES: u64 = u64::MAX;

/// A block device has one page cache, however many nodes.
pub(super) fn identity_of(stat: &Stat) -> (u64, u64) {
    match kind_of(stat.st_mode) {
        Kind::Block => (DEVICES, stat.st_rdev),
        _ => (stat.st_dev, stat.st_ino),
    }
}

pub(super) fn kind_of(mode: u32) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Kind::Regular,
        FileType::BlockDevice => Kind::Block,
        _ => Kind::Stream,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_takes_writes_in_order_only_is_known_by_its_queue_or_its_disks() {
        let sysfs = tempfile::tempdir().unwrap();
        let (disk, part) = (rustix::fs::makedev(252, 0), rustix::fs::makedev(252, 1));
        let place = sysfs.path().join("dev/block");
        std::fs::create_dir_all(place.join("252:0/queue")).unwrap();
        std::fs::create_dir_all(place.join("252:0/vdx1")).unwrap();
        std::os::unix::fs::symlink("252:0/vdx1", place.join("252:1")).unwrap();
        for (zoned, in_order) in [("none", false), ("host-aware", false), ("host-managed", true)] {
            std::fs::write(place.join("252:0/queue/zoned"), format!("{zoned}\n")).unwrap();
            for number in [disk, part] {
                let told = queue_of(sysfs.path(), number, "zoned").unwrap();
                assert_eq!(is_in_order(&told), in_order, "{zoned}");
            }
        }
        assert_eq!(queue_of(sysfs.path(), rustix::fs::makedev(252, 2), "zoned"), None);
    }
}
